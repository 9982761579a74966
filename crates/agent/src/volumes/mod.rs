//! The volumes of a node's pods. A volume is set up before the sandbox is run, and mounted at each start of a
//! container. All volumes except hostPaths are removed with the pod.
//!
//! Each volume except a hostPath is in the pod's own directory, in the kubelet's layout. Reading order: payload, files,
//! empty_dir, host_path, sub_path, mount_table, removal.

/// emptyDir volumes.
mod empty_dir;
/// Atomic writes of a volume's files.
mod files;
/// hostPath volumes.
mod host_path;
/// The mounts of this mount namespace.
pub(crate) mod mount_table;
/// Collects the files of a volume before they are written.
mod payload;
/// Deletion of a pod's directory.
mod removal;
/// subPath mounts.
mod sub_path;
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
use muster_api::resources::{ResourceQuantities, pod_limit};
use muster_engine::kubelet::downward_api::{self, PodAddresses};
use serde_json::Value;

use self::empty_dir::{EmptyDir, EmptyDirMedium};
use self::payload::{PodContext, VolumePayload};
use crate::config::Config;
use crate::references::{PodReferenceClient, ReferenceError};
use crate::runtime::v1::{Mount, MountPropagation};

/// Sets up, mounts and removes the volumes of a node's pods.
pub struct VolumeManager {
    config: Arc<Config>,
    /// Reads the ConfigMaps and Secrets that volumes refer to, and requests service account tokens.
    references: PodReferenceClient,
    /// Locks by pod UID. Each serializes the operations on the volumes of one pod.
    pod_locks: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// UIDs of pods whose volumes are set up and need no refresh.
    pods_with_final_volumes: Mutex<BTreeSet<String>>,
    /// Runs operations on host paths with a timeout.
    host_path_operations: host_path::HostPathOperations,
}

/// Timeout of an operation on a host path, including the wait for an earlier operation on the same path.
const HOST_PATH_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a volume cannot be set up, mounted or removed. The messages are the kubelet's where the kubelet has the same
/// error.
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
    DownwardApi(#[from] downward_api::DownwardApiError),
    #[error("references non-existent {kind} key: {key} ({kind} {name:?})")]
    MissingKey { kind: &'static str, name: String, key: String },
    #[error("missing value for {0}")]
    MissingVariable(String),
    #[error("invalid path: {why}: {path}")]
    Path { path: String, why: &'static str },
    #[error("hostPath type check failed: {path} is not {what}", path = path.display())]
    HostPath { path: PathBuf, what: &'static str },
    #[error("its files exceed {bytes_max} bytes in total")]
    TooLarge { bytes_max: usize },
    #[error("{0}")]
    Unsupported(String),
    #[error("cannot {what} {path}: {cause}", path = path.display())]
    Io { what: &'static str, path: PathBuf, cause: io::Error },
    #[error("hostPath {path} does not respond: its disk or file server may be gone", path = path.display())]
    HostPathTimeout { path: PathBuf },
    /// A subPath cannot be mounted. The message reveals nothing about the machine, because the creator of the pod can
    /// read it.
    #[error("failed to prepare subPath: it does not exist, or leads out of its volume")]
    SubPath,
}

impl VolumeError {
    /// Returns the error for a failed file operation on a path. `what` is the operation as a verb, such as `create`.
    fn from_io(what: &'static str, path: &Path, cause: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), cause }
    }

    /// Adds the name of the volume whose setup failed.
    fn with_volume(self, volume: &str) -> Self {
        Self::SetUp { volume: volume.to_owned(), why: Box::new(self) }
    }

    /// Adds the names of the volume and of the container whose mount failed.
    fn with_mount(self, volume: &str, container: &str) -> Self {
        Self::Mount { volume: volume.to_owned(), container: container.to_owned(), why: Box::new(self) }
    }
}

impl VolumeManager {
    pub fn new(config: Arc<Config>, references: PodReferenceClient) -> Self {
        Self {
            config,
            references,
            pod_locks: Mutex::default(),
            pods_with_final_volumes: Mutex::default(),
            host_path_operations: host_path::HostPathOperations::default(),
        }
    }

    /// Sets up all volumes of a pod, or updates their content if they are already set up. Stops at the first volume
    /// that fails. `pod_json` is the pod object as JSON. `addresses` are the current IP addresses of the pod and the
    /// node. `allocatable` has the allocatable resources of the node.
    pub async fn prepare_volumes(
        &self,
        pod: &Pod,
        pod_json: &Value,
        addresses: PodAddresses<'_>,
        allocatable: &ResourceQuantities,
    ) -> Result<(), VolumeError> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let dir = self.pod_dir(uid)?;
        let turn = self.pod_lock(uid);
        let _turn = turn.lock().await;
        create_pod_dir(&dir).map_err(|why| VolumeError::from_io("create", &dir, why))?;

        let context = PodContext { pod, pod_json, addresses, allocatable };
        let mut may_change = false;
        for volume in pod.spec.iter().flat_map(|it| it.volumes.iter().flatten()) {
            let made = self.prepare_volume(&dir, volume, &context).await;
            may_change |= made.map_err(|why| why.with_volume(&volume.name))?;
        }
        if !may_change {
            lock(&self.pods_with_final_volumes).insert(uid.to_owned());
        }
        Ok(())
    }

    /// Whether the volumes of the pod with this UID are set up and need no refresh, because none of them has content
    /// that may change.
    pub fn are_volumes_final(&self, uid: &str) -> bool {
        lock(&self.pods_with_final_volumes).contains(uid)
    }

    /// Returns the path of an emptyDir volume of a pod, or `None` if the UID or the name of the volume cannot be part
    /// of a path.
    pub fn empty_dir_path(&self, uid: &str, volume: &str) -> Option<PathBuf> {
        Some(pod_volume_dir(&self.pod_dir(uid).ok()?, "empty-dir", validate_path_component(volume).ok()?))
    }

    /// Sets up one volume, or updates its content. Returns whether the content must be refreshed later.
    async fn prepare_volume(
        &self,
        pod_dir: &Path,
        volume: &Volume,
        context: &PodContext<'_>,
    ) -> Result<bool, VolumeError> {
        let dir = match self.volume_location(pod_dir, volume)? {
            VolumeLocation::Host { path, kind } => {
                let (at, kind) = (path.clone(), kind.to_owned());
                self.host_path_operations
                    .run(&path, HOST_PATH_TIMEOUT, move || host_path::ensure_type(&at, &kind))
                    .await?;
                return Ok(false);
            }
            VolumeLocation::PodDir(dir) => dir,
        };
        let group = payload::fs_group(context.pod);
        let payload = VolumePayload::collect_files(volume, context, &self.references).await?;
        let medium = match (&volume.empty_dir, &payload) {
            (Some(source), _) => empty_dir_medium(source, context)?,
            // As with the kubelet, files of ConfigMaps are on disk; files that may hold secrets are in memory
            // only.
            (None, Some(_)) if volume.config_map.is_some() => EmptyDirMedium::Disk,
            (None, _) => EmptyDirMedium::Memory { bytes_max: None },
        };
        let is_shared = volume.empty_dir.is_some() && has_bidirectional_mount(context.pod, &volume.name);
        let empty = EmptyDir { medium, group, is_shared };
        let ready = pod_dir.join("plugins/kubernetes.io~empty-dir").join(&volume.name).join("ready");
        let nested = nested_mount_points(context.pod, &volume.name);
        let may_change = payload.as_ref().is_some_and(|it| it.may_change);
        run_blocking(move || {
            empty.create(&dir, &ready).map_err(|why| VolumeError::from_io("create", &dir, why))?;
            let Some(payload) = payload else { return Ok(()) };
            files::write_files(&dir, &payload.files, group)
                .map_err(|why| VolumeError::from_io("write", &dir, why))?;
            for point in nested {
                let made = sub_path::create_dir_in_volume(&dir, &point, 0o755);
                made.map_err(|why| VolumeError::from_io("create a mount point in", &dir, why))?;
            }
            Ok(())
        })
        .await?;
        Ok(may_change)
    }

    /// Resolves the volume mounts of a container to CRI mounts, and bind-mounts their subPaths on the machine. Called
    /// at each start of the container. `env` has the environment variables of the container, for `subPathExpr`.
    /// `supports_recursive_read_only` is whether the runtime supports recursive read-only mounts.
    pub async fn resolve_mounts(
        &self,
        pod: &Pod,
        container: &str,
        mounts: &[VolumeMount],
        env: &BTreeMap<String, String>,
        supports_recursive_read_only: bool,
    ) -> Result<Vec<Mount>, VolumeError> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let pod_dir = self.pod_dir(uid)?;
        let turn = self.pod_lock(uid);
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
                .join(validate_path_component(container)?)
                .join(at.to_string());
            let request = MountRequest { volume, mount, env, supports_recursive_read_only };
            let mounted = self.resolve_mount(&pod_dir, target, request).await;
            made.extend(mounted.map_err(|why| why.with_mount(&mount.name, container))?);
        }
        Ok(made)
    }

    /// Resolves one volume mount to CRI mounts. The first CRI mount is that of the volume or of its subPath. A hostPath
    /// without a subPath has further CRI mounts if `host_path_mappings` maps paths below it. Each mounts a directory or
    /// file of this node over one of these paths. `target` is the path at which a subPath is mounted on the machine.
    async fn resolve_mount(
        &self,
        pod_dir: &Path,
        target: PathBuf,
        request: MountRequest<'_>,
    ) -> Result<Vec<Mount>, VolumeError> {
        let MountRequest { volume, mount, env, supports_recursive_read_only } = request;
        let (place, kind) = match self.volume_location(pod_dir, volume)? {
            VolumeLocation::Host { path, kind } => (path, Some(kind.to_owned())),
            VolumeLocation::PodDir(dir) => (dir, None),
        };
        let sub_path = match (&mount.sub_path, &mount.sub_path_expr) {
            (_, Some(text)) if !text.is_empty() => {
                Some(sub_path::parse_sub_path(&expand_sub_path(text, env)?)?)
            }
            (Some(text), _) if !text.is_empty() => Some(sub_path::parse_sub_path(text)?),
            _ => None,
        };
        let found = {
            let (place, kind, mode) = (place.clone(), kind.clone(), mount.mount_propagation.clone());
            let mappings = self.config.host_path_mappings.clone();
            move || {
                if let Some(kind) = &kind {
                    host_path::ensure_type(&place, kind)?;
                }
                let is_whole = sub_path.is_none();
                let host_path = match sub_path {
                    None => place.clone(),
                    Some(sub_path) => mount_sub_path(&place, &sub_path, target)?,
                };
                let (propagation, host_path) = resolve_propagation(mode.as_deref(), host_path)?;
                let hidden = if kind.is_some() && is_whole {
                    mapped_paths_below(&mappings, &place)
                } else {
                    Vec::new()
                };
                Ok(ResolvedMount { host_path, propagation, mapped_below: hidden })
            }
        };
        let found = if kind.is_some() {
            self.host_path_operations.run(&place, HOST_PATH_TIMEOUT, found).await?
        } else {
            run_blocking(found).await?
        };

        let container_path = absolute_path(&mount.mount_path);
        let whole = Mount {
            container_path: container_path.clone(),
            host_path: path_to_string(&found.host_path)?,
            readonly: mount.read_only.unwrap_or(false) || is_agent_written_volume(volume),
            propagation: found.propagation.into(),
            recursive_read_only: resolve_recursive_read_only(mount, supports_recursive_read_only)?,
            ..Mount::default()
        };
        let mut mounts = vec![whole];
        for (rest, to) in found.mapped_below {
            let container_path = path_to_string(&Path::new(&container_path).join(rest))?;
            mounts.push(Mount { container_path, host_path: path_to_string(&to)?, ..mounts[0].clone() });
        }
        Ok(mounts)
    }

    /// Unmounts the volumes of a removed pod, deletes the pod's directory, and drops its cached service account tokens.
    /// The method is idempotent and continues a cleanup that an earlier agent started.
    pub async fn clean_up_pod(&self, uid: &str) -> Result<(), VolumeError> {
        let dir = self.pod_dir(uid)?;
        let turn = self.pod_lock(uid);
        let _turn = turn.lock().await;
        self.references.forget_tokens(uid);
        run_blocking(move || {
            let real = match dir.canonicalize() {
                Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
                other => other.map_err(|why| VolumeError::from_io("inspect", &dir, why))?,
            };
            mount_table::unmount_below(&real)
                .map_err(|why| VolumeError::from_io("unmount everything below", &dir, why))?;
            removal::remove_pod_dir(&dir).map_err(|why| VolumeError::from_io("delete", &dir, why))
        })
        .await?;
        lock(&self.pod_locks).remove(uid);
        lock(&self.pods_with_final_volumes).remove(uid);
        Ok(())
    }

    /// Returns the directory of the pod with this UID. Fails if the UID cannot safely be part of a path.
    fn pod_dir(&self, uid: &str) -> Result<PathBuf, VolumeError> {
        let pods = self.config.root_dir.join("pods");
        // Canonical, as in the mount table: a symbolic link in the path would hide the mounts.
        let pods = pods.canonicalize().unwrap_or(pods);
        Ok(pods.join(validate_path_component(uid)?))
    }

    /// Returns the lock of the pod with this UID.
    fn pod_lock(&self, uid: &str) -> Arc<tokio::sync::Mutex<()>> {
        lock(&self.pod_locks).entry(uid.to_owned()).or_default().clone()
    }

    /// Returns the location of a volume on the machine. Fails if the type of the volume is not supported, or if its
    /// path or name is invalid.
    fn volume_location<'a>(
        &self,
        pod_dir: &Path,
        volume: &'a Volume,
    ) -> Result<VolumeLocation<'a>, VolumeError> {
        if let Some(source) = &volume.host_path {
            let path = self.config.resolve_host_path(host_path::parse_host_path(&source.path)?);
            return Ok(VolumeLocation::Host { path, kind: source.type_.as_deref().unwrap_or_default() });
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
            return Err(unsupported_volume(volume));
        };
        Ok(VolumeLocation::PodDir(pod_volume_dir(pod_dir, kind, validate_path_component(&volume.name)?)))
    }
}

impl fmt::Debug for VolumeManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeManager").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Whether a path has the form of an emptyDir volume's directory.
pub(crate) fn is_empty_dir_path(path: &Path) -> bool {
    path.parent().is_some_and(|it| it.ends_with("volumes/kubernetes.io~empty-dir"))
}

/// Returns the directory of a volume in the pod's directory. `kind` is the name of the volume plugin without
/// `kubernetes.io/`, such as `empty-dir`.
fn pod_volume_dir(pod_dir: &Path, kind: &str, name: &str) -> PathBuf {
    pod_dir.join("volumes").join(format!("kubernetes.io~{kind}")).join(name)
}

/// Where the content of a volume is on the machine.
enum VolumeLocation<'a> {
    /// A hostPath with its declared type, which is empty if none is declared.
    Host { path: PathBuf, kind: &'a str },
    /// A directory in the pod's directory.
    PodDir(PathBuf),
}

/// A volume mount with its resolved path on the machine.
struct ResolvedMount {
    host_path: PathBuf,
    propagation: MountPropagation,
    /// Host paths below the mount that `host_path_mappings` maps to directories or files of this node. Each entry has
    /// the path relative to the mount, and the directory or file that is mounted over it.
    mapped_below: Vec<(PathBuf, PathBuf)>,
}

/// A volume mount of a container, and the inputs from which it is resolved.
struct MountRequest<'a> {
    volume: &'a Volume,
    mount: &'a VolumeMount,
    env: &'a BTreeMap<String, String>,
    /// Whether the runtime supports recursive read-only mounts.
    supports_recursive_read_only: bool,
}

/// Checks a name or UID from a pod object that becomes a file name.
///
/// Rule: the name is a single path component. It is not empty, has no separator and no NUL byte, is not `.` or `..`,
/// and has at most 253 bytes.
fn validate_path_component(text: &str) -> Result<&str, VolumeError> {
    let mut parts = Path::new(text).components();
    let is_one = matches!((parts.next(), parts.next()), (Some(Component::Normal(it)), None) if it == text);
    if is_one && text.len() <= 253 && !text.contains('\0') {
        return Ok(text);
    }
    Err(VolumeError::Path { path: text.chars().take(253).collect(), why: "must be a single path component" })
}

/// Bind-mounts a subPath of a volume at `target`, and returns `target`. Creates missing directories of the subPath.
fn mount_sub_path(volume: &Path, sub_path: &Path, target: PathBuf) -> Result<PathBuf, VolumeError> {
    let bound = sub_path::open_sub_path(volume, sub_path).and_then(|it| sub_path::bind_mount(&it, &target));
    bound.map_err(|why| {
        tracing::warn!(volume = %volume.display(), sub_path = %sub_path.display(), "cannot prepare a subPath: {why}");
        VolumeError::SubPath
    })?;
    Ok(target)
}

/// Returns the host paths below `host_path` that the configured `host_path_mappings` map to directories or files of
/// this node. Each entry has the path relative to `host_path`, and the directory or file that must be mounted over it.
/// A mapping is left out unless both of its paths exist and are of the same kind, directory or file.
fn mapped_paths_below(mappings: &[(PathBuf, PathBuf)], host_path: &Path) -> Vec<(PathBuf, PathBuf)> {
    let hidden = mappings.iter().filter_map(|(from, to)| {
        let rest = from.strip_prefix(host_path).ok().filter(|it| !it.as_os_str().is_empty())?;
        // A directory can be mounted only over a directory, and a file, such as a socket, only over a file.
        let (is_dir, is_own_dir) = (fs::metadata(from).ok()?.is_dir(), fs::metadata(to).ok()?.is_dir());
        (is_dir == is_own_dir).then(|| (rest.to_owned(), to.clone()))
    });
    hidden.collect()
}

/// Creates the directory of a pod with mode 0750, so that users outside the agent's group cannot read it.
fn create_pod_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o750))
}

/// Returns the error for a volume type that the agent does not support.
fn unsupported_volume(volume: &Volume) -> VolumeError {
    let value = serde_json::to_value(volume).unwrap_or_default();
    let kind = value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).find(|it| *it != "name");
    VolumeError::Unsupported(format!(
        "volume type {} is not supported by this node: it supports hostPath, emptyDir, configMap, secret, downwardAPI and \
         projected",
        kind.unwrap_or("unknown")
    ))
}

/// Whether the agent writes the files of a volume. It does so for ConfigMap, Secret, downward API and projected
/// volumes, which containers mount read-only, but not for hostPath and emptyDir volumes. The volume must be of one of
/// these types.
fn is_agent_written_volume(volume: &Volume) -> bool {
    volume.host_path.is_none() && volume.empty_dir.is_none()
}

/// Returns the medium of an emptyDir volume and, for the medium `Memory`, the maximum size of the volume. Fails if the
/// medium is neither the disk (`""`) nor `Memory`.
///
/// Rule: the size of an emptyDir in memory is at most its `sizeLimit`, the memory limit of the pod's cgroup, and the
/// node's allocatable memory. A limit that is 0 or absent does not count. Upstream: `calculateEmptyDirMemorySize`.
fn empty_dir_medium(
    source: &EmptyDirVolumeSource,
    context: &PodContext<'_>,
) -> Result<EmptyDirMedium, VolumeError> {
    match source.medium.as_deref().unwrap_or_default() {
        "" => Ok(EmptyDirMedium::Disk),
        "Memory" => {
            let size_limit = source.size_limit.as_ref().and_then(|it| Quantity::parse(&it.0).ok());
            let limits = [
                size_limit,
                pod_limit(context.pod_json, "memory"),
                context.allocatable.get("memory").copied(),
            ];
            let least = limits.into_iter().flatten().filter(|it| Quantity::ZERO < *it).min();
            Ok(EmptyDirMedium::Memory { bytes_max: least.and_then(|it| u64::try_from(it.units()).ok()) })
        }
        other => Err(VolumeError::Unsupported(format!(
            "emptyDir medium {other:?} is not supported by this node: it supports the disk (\"\") and \"Memory\""
        ))),
    }
}

/// Returns whether a mount is recursively read-only. `is_supported` is whether the runtime supports recursive read-only
/// mounts. A mount that requests `recursiveReadOnly` must be read-only and must not have mount propagation, otherwise
/// the function fails. It also fails if the mode is `Enabled` and the runtime does not support it.
/// Upstream: `resolveRecursiveReadOnly`.
fn resolve_recursive_read_only(mount: &VolumeMount, is_supported: bool) -> Result<bool, VolumeError> {
    let refuse = |why: String| {
        Err(VolumeError::Unsupported(format!("requested recursive read-only mode, but it is {why}")))
    };
    let mode = mount.recursive_read_only.as_deref().unwrap_or("Disabled");
    if mode == "Disabled" {
        return Ok(false);
    }
    if mount.read_only != Some(true) {
        return refuse("not read-only".into());
    }
    match mount.mount_propagation.as_deref().unwrap_or("None") {
        "None" => {}
        other => return refuse(format!("not compatible with propagation {other:?}")),
    }
    match mode {
        "IfPossible" => Ok(is_supported),
        "Enabled" if is_supported => Ok(true),
        "Enabled" => refuse("not supported by the runtime".into()),
        other => Err(VolumeError::Unsupported(format!("unknown recursive read-only mode {other:?}"))),
    }
}

/// Returns the CRI mount propagation for the `mountPropagation` of a volume mount, and the path for the runtime. With
/// propagation, symbolic links in the path are resolved, because the runtime checks only the mount that contains the
/// path, and a link may lead to another mount.
///
/// Rule: Bidirectional propagation needs a shared mount on the machine. HostToContainer propagation needs a shared or
/// slave mount. A container with HostToContainer is started even on a private mount, but then nothing propagates.
fn resolve_propagation(
    mode: Option<&str>,
    path: PathBuf,
) -> Result<(MountPropagation, PathBuf), VolumeError> {
    let mode = mode.unwrap_or("None");
    if mode == "None" {
        return Ok((MountPropagation::PropagationPrivate, path));
    }
    let real = path.canonicalize().map_err(|why| VolumeError::from_io("inspect", &path, why))?;
    let mounts = mount_table::read_mounts()
        .map_err(|why| VolumeError::from_io("read", Path::new("/proc/self/mountinfo"), why))?;
    let under = mount_table::mount_of_path(&mounts, &real);
    let is_shared = under.is_some_and(|it| it.is_shared);
    match mode {
        "HostToContainer" if is_shared || under.is_some_and(|it| it.is_slave) => {
            Ok((MountPropagation::PropagationHostToContainer, real))
        }
        "HostToContainer" => Ok((MountPropagation::PropagationPrivate, real)),
        "Bidirectional" if is_shared => Ok((MountPropagation::PropagationBidirectional, real)),
        "Bidirectional" => {
            let point = under.map_or(Path::new("/"), |it| &it.mount_point).display();
            Err(VolumeError::Unsupported(format!(
                "path {} is mounted on {point} but it is not a shared mount: `mount --make-rshared {point}` on the \
                 machine makes it one",
                path.display()
            )))
        }
        other => Err(VolumeError::Unsupported(format!("invalid MountPropagation mode: {other:?}"))),
    }
}

/// Whether a container of the pod mounts the volume with Bidirectional propagation.
fn has_bidirectional_mount(pod: &Pod, volume: &str) -> bool {
    volume_mounts_by_container(pod).any(|of_one| {
        of_one.iter().any(|it| it.name == volume && it.mount_propagation.as_deref() == Some("Bidirectional"))
    })
}

/// Returns the paths inside this volume at which containers mount other volumes. The paths are relative to the mount
/// point of this volume. Paths that start with `..` or have a component `..` are left out. In a read-only volume these
/// directories must be created beforehand, because the runtime cannot create them there. Upstream:
/// `MakeNestedMountpoints`.
fn nested_mount_points(pod: &Pod, volume: &str) -> Vec<PathBuf> {
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
    volume_mounts_by_container(pod).flat_map(within).collect()
}

/// Returns the volume mounts of a pod, one slice for each container that has any.
fn volume_mounts_by_container(pod: &Pod) -> impl Iterator<Item = &[VolumeMount]> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| {
        let usual = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let usual = usual.filter_map(|it| it.volume_mounts.as_deref());
        let added = spec.ephemeral_containers.iter().flatten().filter_map(|it| it.volume_mounts.as_deref());
        usual.chain(added)
    })
}

/// Expands the variables of a `subPathExpr`. Fails if a variable is not set or is empty.
fn expand_sub_path(text: &str, env: &BTreeMap<String, String>) -> Result<String, VolumeError> {
    let mut missing = Vec::new();
    let lookup = |name: &str| env.get(name).filter(|it| !it.is_empty()).cloned();
    let expanded = downward_api::expand_variables(text, lookup, &mut |name| missing.push(name.to_owned()));
    missing.sort();
    missing.dedup();
    if missing.is_empty() { Ok(expanded) } else { Err(VolumeError::MissingVariable(missing.join(", "))) }
}

/// Makes a mount path absolute, with `/` as its base.
fn absolute_path(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// Returns the path as UTF-8 text, as CRI requires it. Fails if the path is not UTF-8.
fn path_to_string(path: &Path) -> Result<String, VolumeError> {
    let named = path.to_str().map(str::to_owned);
    named.ok_or_else(|| VolumeError::Path { path: path.display().to_string(), why: "must be UTF-8" })
}

/// Locks a mutex, even if a thread panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs blocking work on the blocking thread pool. A panic of the work is returned as an error.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
) -> Result<T, VolumeError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(why) => Err(VolumeError::Unsupported(format!("interrupted: {why}"))),
    }
}
