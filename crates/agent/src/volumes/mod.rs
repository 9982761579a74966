//! The volumes of a node's pods: made before the sandbox, mounted at each start of a container, gone with the pod.
//!
//! Each is in the pod's own directory, laid out as a kubelet's. Read: payload, files, empty_dir, host_path, sub_path,
//! table, remove.

mod empty_dir;
mod files;
mod host_path;
mod payload;
mod remove;
mod sub_path;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod, Volume, VolumeMount};
use muster_api::quantity::Quantity;
use muster_api::resources::{self, ResourceQuantities};
use muster_engine::kubelet::downward_api;
use serde_json::Value;

use self::empty_dir::{EmptyDir, Medium};
use self::payload::{Payload, Subject};
use crate::config::Config;
use crate::references::{ReferenceError, References};
use crate::runtime::v1::{Mount, MountPropagation};

/// The volumes of a node's pods.
pub struct Volumes {
    config: Arc<Config>,
    references: References,
    /// What is done for one pod is done one at a time.
    turns: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// Pods whose volumes are made, and stay as they are.
    settled: Mutex<BTreeSet<String>>,
    looks: host_path::Looks,
}

/// A path of the machine that takes longer to look at does not answer.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// What is wrong with a volume; it reads as what a kubelet would say in a `FailedMount` event.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("MountVolume.SetUp failed for volume {volume:?} : {why}")]
    SetUp { volume: String, why: Box<VolumeError> },
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    NoSuchVolume { volume: String, container: String },
    #[error("volumeMount {volume:?} of container {container:?}: {why}")]
    Mount { volume: String, container: String, why: Box<VolumeError> },
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error("{0}")]
    Untold(#[from] downward_api::Untold),
    #[error("references non-existent {kind} key: {key} ({kind} {name:?})")]
    MissingKey { kind: &'static str, name: String, key: String },
    #[error("missing value for {0}")]
    MissingVariable(String),
    #[error("invalid path: {why}: {path}")]
    Path { path: String, why: &'static str },
    #[error("hostPath type check failed: {path} is not {what}", path = path.display())]
    HostPath { path: PathBuf, what: &'static str },
    #[error("its files have more than {bytes_max} bytes together")]
    TooLarge { bytes_max: usize },
    #[error("{0}")]
    Unsupported(String),
    #[error("cannot {what} {path}: {cause}", path = path.display())]
    Io { what: &'static str, path: PathBuf, cause: io::Error },
    #[error("hostPath {path} does not answer: its disk, or the server that it is on, may be gone", path = path.display())]
    Silent { path: PathBuf },
    /// It says nothing of what is on the machine: the one who wrote the pod reads it.
    #[error("failed to prepare subPath: it is not there, or leads out of its volume")]
    SubPath,
}

impl VolumeError {
    fn io(what: &'static str, path: &Path, cause: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), cause }
    }

    fn in_volume(self, volume: &str) -> Self {
        Self::SetUp { volume: volume.to_owned(), why: Box::new(self) }
    }

    fn in_mount(self, volume: &str, container: &str) -> Self {
        Self::Mount { volume: volume.to_owned(), container: container.to_owned(), why: Box::new(self) }
    }
}

impl Volumes {
    pub fn new(config: Arc<Config>, references: References) -> Self {
        Self {
            config,
            references,
            turns: Mutex::default(),
            settled: Mutex::default(),
            looks: host_path::Looks::default(),
        }
    }

    /// Makes all volumes of a pod, or brings them up to date; it can be done again at any time. `tree` is the pod with its present
    /// addresses.
    pub async fn prepare(
        &self,
        pod: &Pod,
        tree: &Value,
        allocatable: &ResourceQuantities,
    ) -> Result<(), VolumeError> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let dir = self.pod_dir(uid)?;
        let turn = self.turn(uid);
        let _turn = turn.lock().await;
        make_private(&dir).map_err(|why| VolumeError::io("make", &dir, why))?;

        let subject = Subject { pod, value: tree, allocatable };
        let mut may_change = false;
        for volume in pod.spec.iter().flat_map(|it| it.volumes.iter().flatten()) {
            let made = self.prepare_one(&dir, volume, &subject).await;
            may_change |= made.map_err(|why| why.in_volume(&volume.name))?;
        }
        if !may_change {
            lock(&self.settled).insert(uid.to_owned());
        }
        Ok(())
    }

    /// Whether nothing in a pod's volumes can change any more but by its own containers.
    pub fn are_settled(&self, uid: &str) -> bool {
        lock(&self.settled).contains(uid)
    }

    /// Where an empty directory of a pod is, if it can have one of that name.
    pub fn empty_dir(&self, uid: &str, volume: &str) -> Option<PathBuf> {
        Some(own_place(&self.pod_dir(uid).ok()?, "empty-dir", name(volume).ok()?))
    }

    /// Whether what is in it may change.
    async fn prepare_one(
        &self,
        pod_dir: &Path,
        volume: &Volume,
        subject: &Subject<'_>,
    ) -> Result<bool, VolumeError> {
        let dir = match self.place(pod_dir, volume)? {
            Place::Host { path, kind } => {
                let (at, kind) = (path.clone(), kind.to_owned());
                self.looks.take(&path, LOOK_MAX, move || host_path::check(&at, &kind)).await?;
                return Ok(false);
            }
            Place::Own(dir) => dir,
        };
        let group = payload::group(subject.pod);
        let payload = Payload::of(volume, subject, &self.references).await?;
        let medium = match (&volume.empty_dir, &payload) {
            (Some(source), _) => medium(source, subject)?,
            // Files of config maps are on disk, as a kubelet's; those that may hold secrets never are.
            (None, Some(_)) if volume.config_map.is_some() => Medium::Disk,
            (None, _) => Medium::Memory { bytes_max: None },
        };
        let is_shared = volume.empty_dir.is_some() && is_bidirectional(subject.pod, &volume.name);
        let empty = EmptyDir { medium, group, is_shared };
        let ready = pod_dir.join("plugins/kubernetes.io~empty-dir").join(&volume.name).join("ready");
        let nested = nested_points(subject.pod, &volume.name);
        let may_change = payload.as_ref().is_some_and(|it| it.may_change);
        blocking(move || {
            empty.make(&dir, &ready).map_err(|why| VolumeError::io("make", &dir, why))?;
            let Some(payload) = payload else { return Ok(()) };
            files::write(&dir, &payload.files, group).map_err(|why| VolumeError::io("write", &dir, why))?;
            for point in nested {
                let made = sub_path::make_dir(&dir, &point, 0o755);
                made.map_err(|why| VolumeError::io("make a mount point in", &dir, why))?;
            }
            Ok(())
        })
        .await?;
        Ok(may_change)
    }

    /// What a container mounts, worked out at each of its starts. `recursive_read_only` is whether the runtime can
    /// make a mount read-only with all that is mounted below it.
    pub async fn mounts(
        &self,
        pod: &Pod,
        container: &str,
        mounts: &[VolumeMount],
        env: &BTreeMap<String, String>,
        recursive_read_only: bool,
    ) -> Result<Vec<Mount>, VolumeError> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let pod_dir = self.pod_dir(uid)?;
        let turn = self.turn(uid);
        let _turn = turn.lock().await;

        let mut made = Vec::with_capacity(mounts.len());
        for (at, mount) in mounts.iter().enumerate() {
            let missing =
                || VolumeError::NoSuchVolume { volume: mount.name.clone(), container: container.to_owned() };
            let mut volumes = pod.spec.iter().flat_map(|it| it.volumes.iter().flatten());
            let volume = volumes.find(|it| it.name == mount.name).ok_or_else(missing)?;
            let target = pod_dir
                .join("volume-subpaths")
                .join(&volume.name)
                .join(name(container)?)
                .join(at.to_string());
            let wish = Wish { volume, mount, env, recursive_read_only };
            let mounted = self.mount_one(&pod_dir, target, wish).await;
            made.extend(mounted.map_err(|why| why.in_mount(&mount.name, container))?);
        }
        Ok(made)
    }

    async fn mount_one(
        &self,
        pod_dir: &Path,
        target: PathBuf,
        wish: Wish<'_>,
    ) -> Result<Vec<Mount>, VolumeError> {
        let Wish { volume, mount, env, recursive_read_only } = wish;
        let (place, kind) = match self.place(pod_dir, volume)? {
            Place::Host { path, kind } => (path, Some(kind.to_owned())),
            Place::Own(dir) => (dir, None),
        };
        let sub_path = match (&mount.sub_path, &mount.sub_path_expr) {
            (_, Some(text)) if !text.is_empty() => Some(sub_path::parse(&expanded(text, env)?)?),
            (Some(text), _) if !text.is_empty() => Some(sub_path::parse(text)?),
            _ => None,
        };
        let found = {
            let (place, kind, wish) = (place.clone(), kind.clone(), mount.mount_propagation.clone());
            let own_paths = self.config.own_paths.clone();
            move || {
                if let Some(kind) = &kind {
                    host_path::check(&place, kind)?;
                }
                let is_whole = sub_path.is_none();
                let host_path = match sub_path {
                    None => place.clone(),
                    Some(sub_path) => part(&place, &sub_path, target)?,
                };
                let (propagation, host_path) = propagation(wish.as_deref(), host_path)?;
                let hidden = if kind.is_some() && is_whole { hidden(&own_paths, &place) } else { Vec::new() };
                Ok(Found { host_path, propagation, hidden })
            }
        };
        let found = if kind.is_some() {
            self.looks.take(&place, LOOK_MAX, found).await?
        } else {
            blocking(found).await?
        };

        let container_path = absolute(&mount.mount_path);
        let whole = Mount {
            container_path: container_path.clone(),
            host_path: text(&found.host_path)?,
            readonly: mount.read_only.unwrap_or(false) || is_files(volume),
            propagation: found.propagation.into(),
            recursive_read_only: is_recursive_read_only(mount, recursive_read_only)?,
            ..Mount::default()
        };
        let mut mounts = vec![whole];
        for (rest, to) in found.hidden {
            let container_path = text(&Path::new(&container_path).join(rest))?;
            mounts.push(Mount { container_path, host_path: text(&to)?, ..mounts[0].clone() });
        }
        Ok(mounts)
    }

    /// A pod is gone: its volumes are taken down and all that is kept for it is deleted. It can be done again, and
    /// goes on where an agent that died has stopped.
    pub async fn clean_up(&self, uid: &str) -> Result<(), VolumeError> {
        let dir = self.pod_dir(uid)?;
        let turn = self.turn(uid);
        let _turn = turn.lock().await;
        self.references.forget(uid);
        blocking(move || {
            let real = match dir.canonicalize() {
                Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
                other => other.map_err(|why| VolumeError::io("look at", &dir, why))?,
            };
            table::unmount_below(&real).map_err(|why| VolumeError::io("unmount what is in", &dir, why))?;
            remove::remove(&dir).map_err(|why| VolumeError::io("delete", &dir, why))
        })
        .await?;
        lock(&self.turns).remove(uid);
        lock(&self.settled).remove(uid);
        Ok(())
    }

    fn pod_dir(&self, uid: &str) -> Result<PathBuf, VolumeError> {
        let pods = self.config.root.join("pods");
        // As mounts are listed: a link in the way to the pods would hide them.
        let pods = pods.canonicalize().unwrap_or(pods);
        Ok(pods.join(name(uid)?))
    }

    fn turn(&self, uid: &str) -> Arc<tokio::sync::Mutex<()>> {
        lock(&self.turns).entry(uid.to_owned()).or_default().clone()
    }

    /// Where a volume is.
    fn place<'a>(&self, pod_dir: &Path, volume: &'a Volume) -> Result<Place<'a>, VolumeError> {
        if let Some(source) = &volume.host_path {
            let path = self.config.host_path(host_path::parse(&source.path)?);
            return Ok(Place::Host { path, kind: source.type_.as_deref().unwrap_or_default() });
        }
        let kind = if volume.empty_dir.is_some() {
            "empty-dir"
        } else if volume.config_map.is_some() {
            "configmap"
        } else if volume.secret.is_some() {
            "secret"
        } else if volume.downward_api.is_some() {
            "downward-api"
        } else if volume.projected.is_some() {
            "projected"
        } else {
            return Err(unsupported(volume));
        };
        Ok(Place::Own(own_place(pod_dir, kind, name(&volume.name)?)))
    }
}

impl fmt::Debug for Volumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volumes").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Whether it is where the empty directories of a pod are.
pub(crate) fn is_empty_dir(path: &Path) -> bool {
    path.parent().is_some_and(|it| it.ends_with("volumes/kubernetes.io~empty-dir"))
}

fn own_place(pod_dir: &Path, kind: &str, name: &str) -> PathBuf {
    pod_dir.join("volumes").join(format!("kubernetes.io~{kind}")).join(name)
}

enum Place<'a> {
    Host { path: PathBuf, kind: &'a str },
    Own(PathBuf),
}

/// What the machine has for a mount.
struct Found {
    host_path: PathBuf,
    propagation: MountPropagation,
    /// What is the node's own below it, and where that is.
    hidden: Vec<(PathBuf, PathBuf)>,
}

/// One mount that a container asks for.
struct Wish<'a> {
    volume: &'a Volume,
    mount: &'a VolumeMount,
    env: &'a BTreeMap<String, String>,
    recursive_read_only: bool,
}

/// Rule: a name of a spec that becomes one of a file is one name: no separator, no `.` or `..`, not too long.
fn name(text: &str) -> Result<&str, VolumeError> {
    let mut parts = Path::new(text).components();
    let is_one = matches!((parts.next(), parts.next()), (Some(Component::Normal(it)), None) if it == text);
    if is_one && text.len() <= 253 && !text.contains('\0') {
        return Ok(text);
    }
    Err(VolumeError::Path { path: text.chars().take(253).collect(), why: "must be one plain name" })
}

/// A part of a volume, mounted at `target`.
fn part(volume: &Path, sub_path: &Path, target: PathBuf) -> Result<PathBuf, VolumeError> {
    let bound = sub_path::open(volume, sub_path).and_then(|it| sub_path::bind(&it, &target));
    bound.map_err(|why| {
        tracing::warn!(volume = %volume.display(), sub_path = %sub_path.display(), "no subPath: {why}");
        VolumeError::SubPath
    })?;
    Ok(target)
}

/// The node's own paths are its own in whatever part of the machine a container looks at.
fn hidden(own_paths: &[(PathBuf, PathBuf)], place: &Path) -> Vec<(PathBuf, PathBuf)> {
    let hidden = own_paths.iter().filter_map(|(from, to)| {
        let rest = from.strip_prefix(place).ok().filter(|it| !it.as_os_str().is_empty())?;
        // A mount covers what is there, and its like: a directory, or a file such as a socket.
        let (is_dir, is_own_dir) = (fs::metadata(from).ok()?.is_dir(), fs::metadata(to).ok()?.is_dir());
        (is_dir == is_own_dir).then(|| (rest.to_owned(), to.clone()))
    });
    hidden.collect()
}

/// A pod's directory, which no other user of the machine looks into.
fn make_private(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o750))
}

fn unsupported(volume: &Volume) -> VolumeError {
    let value = serde_json::to_value(volume).unwrap_or_default();
    let kind = value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).find(|it| *it != "name");
    VolumeError::Unsupported(format!(
        "volume type {} is not supported by this node: it has hostPath, emptyDir, configMap, secret, downwardAPI and \
         projected",
        kind.unwrap_or("unknown")
    ))
}

/// Whether a volume is made of files that no container writes to.
fn is_files(volume: &Volume) -> bool {
    volume.host_path.is_none() && volume.empty_dir.is_none()
}

/// Rule: an emptyDir in memory may have as much as its limit says, as the pod may have, or as the node can give.
/// Upstream: `calculateEmptyDirMemorySize`.
fn medium(source: &EmptyDirVolumeSource, subject: &Subject<'_>) -> Result<Medium, VolumeError> {
    match source.medium.as_deref().unwrap_or_default() {
        "" => Ok(Medium::Disk),
        "Memory" => {
            let spec = &subject.value["spec"];
            let limits = |of: &Value| {
                let amount = of["resources"]["limits"].get("memory").map(Quantity::from_json);
                amount.map(|it| ("memory".to_owned(), it)).into_iter().collect::<ResourceQuantities>()
            };
            let containers = spec["containers"].as_array().into_iter().flatten().map(limits);
            let inits = spec["initContainers"].as_array().into_iter().flatten();
            let inits = inits.map(|it| (it["restartPolicy"] == "Always", limits(it)));
            let of_pod = limits(spec).remove("memory");
            let of_pod = of_pod.or_else(|| resources::pod_total(containers, inits).remove("memory"));
            let of_node = subject.allocatable.get("memory").copied();
            let stated = source.size_limit.as_ref().and_then(|it| Quantity::parse(&it.0).ok());
            let some = |it: Option<Quantity>| it.filter(|it| !it.is_zero() && !it.is_negative());
            let most = [some(stated), some(of_pod).or(some(of_node))].into_iter().flatten().min();
            Ok(Medium::Memory { bytes_max: most.and_then(|it| u64::try_from(it.units()).ok()) })
        }
        other => Err(VolumeError::Unsupported(format!(
            "emptyDir medium {other:?} is not supported by this node: it has the disk (\"\") and \"Memory\""
        ))),
    }
}

/// Upstream: `resolveRecursiveReadOnly`.
fn is_recursive_read_only(mount: &VolumeMount, is_able: bool) -> Result<bool, VolumeError> {
    let refuse = |why: String| {
        Err(VolumeError::Unsupported(format!("requested recursive read-only mode, but it is {why}")))
    };
    let wish = mount.recursive_read_only.as_deref().unwrap_or("Disabled");
    if wish == "Disabled" {
        return Ok(false);
    }
    if mount.read_only != Some(true) {
        return refuse("not read-only".into());
    }
    match mount.mount_propagation.as_deref().unwrap_or("None") {
        "None" => {}
        other => return refuse(format!("not compatible with propagation {other:?}")),
    }
    match wish {
        "IfPossible" => Ok(is_able),
        "Enabled" if is_able => Ok(true),
        "Enabled" => refuse("not supported by the runtime".into()),
        other => Err(VolumeError::Unsupported(format!("unknown recursive read-only mode {other:?}"))),
    }
}

/// Rule: mounts pass from the machine to a container and back only where the machine's own mount passes them on.
/// From a private one nothing passes in any case, so a container that would only receive is started all the same.
///
/// Returns the path for the runtime as well: with symbolic links resolved, for the runtime judges the mount that the path is
/// written under, and a link may lead to another.
fn propagation(wish: Option<&str>, path: PathBuf) -> Result<(MountPropagation, PathBuf), VolumeError> {
    let wish = wish.unwrap_or("None");
    if wish == "None" {
        return Ok((MountPropagation::PropagationPrivate, path));
    }
    let real = path.canonicalize().map_err(|why| VolumeError::io("look at", &path, why))?;
    let mounts =
        table::read().map_err(|why| VolumeError::io("read", Path::new("/proc/self/mountinfo"), why))?;
    let under = table::over(&mounts, &real);
    let is_shared = under.is_some_and(|it| it.is_shared);
    match wish {
        "HostToContainer" if is_shared || under.is_some_and(|it| it.is_slave) => {
            Ok((MountPropagation::PropagationHostToContainer, real))
        }
        "HostToContainer" => Ok((MountPropagation::PropagationPrivate, real)),
        "Bidirectional" if is_shared => Ok((MountPropagation::PropagationBidirectional, real)),
        "Bidirectional" => {
            let point = under.map_or(Path::new("/"), |it| &it.point).display();
            Err(VolumeError::Unsupported(format!(
                "path {} is mounted on {point} but it is not a shared mount: `mount --make-rshared {point}` on the \
                 machine makes it one",
                path.display()
            )))
        }
        other => Err(VolumeError::Unsupported(format!("invalid MountPropagation mode: {other:?}"))),
    }
}

fn is_bidirectional(pod: &Pod, volume: &str) -> bool {
    all_mounts(pod).any(|of_one| {
        of_one.iter().any(|it| it.name == volume && it.mount_propagation.as_deref() == Some("Bidirectional"))
    })
}

/// Where other volumes are mounted within one whose files no container can write: the runtime could not make these
/// mount points itself. Upstream: `MakeNestedMountpoints`.
fn nested_points(pod: &Pod, volume: &str) -> Vec<PathBuf> {
    let within = |of_one: &[VolumeMount]| {
        let mut points = Vec::new();
        for own in of_one.iter().filter(|it| it.name == volume) {
            let others =
                of_one.iter().filter_map(|it| Path::new(&it.mount_path).strip_prefix(&own.mount_path).ok());
            let plain = |it: &&Path| {
                it.components().count() > 0
                    && it.components().all(|it| matches!(it, Component::Normal(_)))
                    && !it.to_string_lossy().starts_with("..")
            };
            points.extend(others.filter(plain).map(Path::to_owned));
        }
        points
    };
    all_mounts(pod).flat_map(within).collect()
}

/// The mounts of each container of a pod.
fn all_mounts(pod: &Pod) -> impl Iterator<Item = &[VolumeMount]> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| {
        let usual = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let usual = usual.filter_map(|it| it.volume_mounts.as_deref());
        let added = spec.ephemeral_containers.iter().flatten().filter_map(|it| it.volume_mounts.as_deref());
        usual.chain(added)
    })
}

fn expanded(text: &str, env: &BTreeMap<String, String>) -> Result<String, VolumeError> {
    let mut missing = Vec::new();
    let meaning = |name: &str| env.get(name).filter(|it| !it.is_empty()).cloned();
    let expanded = downward_api::expand(text, meaning, &mut |name| missing.push(name.to_owned()));
    missing.sort();
    missing.dedup();
    if missing.is_empty() { Ok(expanded) } else { Err(VolumeError::MissingVariable(missing.join(", "))) }
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn text(path: &Path) -> Result<String, VolumeError> {
    let named = path.to_str().map(str::to_owned);
    named.ok_or_else(|| VolumeError::Path { path: path.display().to_string(), why: "must be UTF-8" })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what may take the disk's time where nothing else waits for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<T, VolumeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(why) => Err(VolumeError::Unsupported(format!("interrupted: {why}"))),
    }
}
