//! Static pods, from manifests on the node's disk. They run independently of the API server. Each static pod has a
//! mirror pod on the API server.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use muster_api::object_key::ObjectKey;
use muster_engine::kubelet::static_pod::{self, MirrorDecision};
use muster_events::clock::now;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use serde_json::Value;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{sleep, timeout};

use super::NodeAgent;
use super::pod_manager::{PodEntry, PodSource};
use crate::digest::format_hex;
use crate::parsed_pod::ParsedPod;
use crate::runtime::Runtime;

/// Interval at which the manifest directory is read even without inotify events, because some filesystems have no
/// inotify events. Upstream: `fileCheckFrequency`.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);

/// Delay between an inotify event and the read of the directory, so that several changes cause one read.
const RELOAD_DELAY: Duration = Duration::from_millis(100);

/// Maximum size of a manifest in bytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of manifests that are read from the directory.
const MANIFESTS_MAX: usize = 1000;

/// Interval at which failed writes of mirror pods are retried.
const MIRROR_RETRY_INTERVAL: Duration = Duration::from_secs(30);
/// Timeout of an API call for a mirror pod.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The manifest files by path, as they were last read.
#[derive(Default)]
struct ManifestFiles {
    by_path: BTreeMap<PathBuf, ManifestFile>,
}

/// A manifest file, as it was last read.
struct ManifestFile {
    /// Hash of the file's content, the file's path and the node name, see [`manifest_hash`].
    hash: String,
    /// The pod of the last valid content of the file. It stays if the file becomes invalid. `None` if the content was
    /// never valid.
    pod: Option<Arc<ParsedPod>>,
}

/// Runs the static pods and keeps their mirror pods up to date. Returns only if no manifest directory is configured. The
/// first poll of the future reads the directory, so that tasks which are polled later know all static pods.
pub(super) async fn run<R: Runtime>(node: &Arc<NodeAgent<R>>) {
    let Some(dir) = node.config.static_pod_dir.clone() else { return };
    // Created, so that it can be watched.
    if let Err(error) = fs::create_dir_all(&dir) {
        tracing::warn!(dir = %dir.display(), %error, "cannot create the directory of static pods");
    }
    tokio::join!(watch_manifests(node, &dir), reconcile_mirrors_loop(node));
}

/// Reads the manifest directory when it changes and at intervals of [`CHECK_INTERVAL`], and reconciles the static pods.
/// Never returns.
async fn watch_manifests<R: Runtime>(node: &Arc<NodeAgent<R>>, dir: &Path) {
    let mut files = ManifestFiles::default();
    loop {
        // Watched before it is read, so that no change is missed.
        let watch = watch_dir(dir);
        files.reload_manifests(dir, &node.config.name);
        loop {
            let is_waiting = reconcile_pods(node, &files);
            let check_after = if is_waiting { Duration::from_secs(1) } else { CHECK_INTERVAL };
            let changed = async {
                match &watch {
                    Ok(watch) => drop(wait_for_change(watch).await),
                    Err(_) => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed => {
                    sleep(RELOAD_DELAY).await;
                    break;
                }
                () = node.pods.wait_for_change(), if is_waiting => {}
                () = sleep(check_after) => if !is_waiting { break },
            }
        }
    }
}

/// Starts the pods of new manifests, and removes static pods without a manifest. A new pod is not started while another
/// static pod with the same name exists, for example one that is terminating. Returns whether a new pod waits for this
/// reason.
fn reconcile_pods<R: Runtime>(node: &Arc<NodeAgent<R>>, files: &ManifestFiles) -> bool {
    let desired: BTreeMap<String, &Arc<ParsedPod>> = files
        .by_path
        .values()
        .filter_map(|it| it.pod.as_ref())
        .filter_map(|it| Some((it.uid()?, it)))
        .collect();
    let mut running: BTreeMap<ObjectKey, String> = BTreeMap::new();
    for entry in static_pod_entries(node) {
        let object = entry.snapshot().object;
        let uid = object.uid().unwrap_or_default();
        if !desired.contains_key(&uid) {
            node.pods.remove_pod(&uid);
        }
        running.insert(pod_key(&object), uid);
    }
    let mut is_waiting = false;
    for (uid, pod) in desired {
        match running.get(&pod_key(pod)) {
            Some(other) if *other == uid => {}
            Some(_) => is_waiting = true,
            None => {
                tracing::info!(pod = %pod_key(pod), "starting a static pod");
                running.insert(pod_key(pod), uid);
                node.pods.upsert_pod(node, PodSource::Static, pod.clone());
            }
        }
    }
    is_waiting
}

/// Returns all static pods of the node.
fn static_pod_entries<R: Runtime>(node: &NodeAgent<R>) -> Vec<Arc<PodEntry>> {
    node.pods.all_pods().into_iter().filter(|it| it.source == PodSource::Static).collect()
}

fn pod_key(pod: &Pod) -> ObjectKey {
    ObjectKey::new(pod.namespace().unwrap_or_default(), pod.name_any())
}

impl ManifestFiles {
    /// Reads the manifests, parses those that have changed, and removes the entries of manifests that no longer exist.
    /// Changes nothing if the directory cannot be read.
    fn reload_manifests(&mut self, dir: &Path, node: &str) {
        let paths = match list_manifests(dir) {
            Ok(paths) => paths,
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "cannot read the directory of static pods");
                // The pods stay: the directory may be missing only for a moment.
                return;
            }
        };
        self.by_path.retain(|path, _| paths.contains(path));
        for path in paths {
            let text = match read_manifest(&path) {
                Ok(text) => text,
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "cannot read a static pod manifest");
                    continue;
                }
            };
            let hash = manifest_hash(&text, &path, node);
            if self.by_path.get(&path).is_some_and(|it| it.hash == hash) {
                continue;
            }
            let before = self.by_path.remove(&path).and_then(|it| it.pod);
            let pod = match parse_manifest(&text, node, &hash) {
                Ok(pod) => Some(pod),
                Err(why) => {
                    let stays = if before.is_some() { ", its pod is unchanged" } else { "" };
                    tracing::warn!(file = %path.display(), "invalid static pod manifest{stays}: {why}");
                    before
                }
            };
            self.by_path.insert(path, ManifestFile { hash, pod });
        }
    }
}

/// Lists the files of the directory that are not hidden, in alphabetical order, at most [`MANIFESTS_MAX`].
fn list_manifests(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        // Symbolic links are followed: mounted ConfigMaps consist of them.
        if !is_hidden && fs::metadata(entry.path()).is_ok_and(|it| it.is_file()) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    if MANIFESTS_MAX < paths.len() {
        tracing::warn!(dir = %dir.display(), "only the first {MANIFESTS_MAX} of {} files are read", paths.len());
        paths.truncate(MANIFESTS_MAX);
    }
    Ok(paths)
}

/// Reads a manifest. Fails if it is larger than [`MANIFEST_BYTES_MAX`].
fn read_manifest(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    fs::File::open(path)?.take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut text)?;
    if MANIFEST_BYTES_MAX < text.len() as u64 {
        return Err(io::Error::other(format!("the manifest is larger than {MANIFEST_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Returns the hash of a manifest, its path and the node name. The hash is as long as the kubelet's.
fn manifest_hash(text: &[u8], path: &Path, node: &str) -> String {
    let mut hasher = ring::digest::Context::new(&ring::digest::SHA256);
    for part in [text, path.as_os_str().as_encoded_bytes(), node.as_bytes()] {
        hasher.update(&(part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    format_hex(&hasher.finish().as_ref()[..16])
}

/// Parses a manifest into the static pod of this node.
fn parse_manifest(text: &[u8], node: &str, hash: &str) -> Result<Arc<ParsedPod>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
    let manifest: Value = serde_saphyr::from_str(text).map_err(|it| it.to_string())?;
    let pod = static_pod::parse_manifest(manifest, node, hash, &now().to_rfc3339_micros())?;
    ParsedPod::new(pod).map(Arc::new).map_err(|it| it.to_string())
}

/// Watches a directory with inotify. The returned receiver becomes readable when the directory changes.
fn watch_dir(dir: &Path) -> io::Result<Receiver> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let what = WatchFlags::CLOSE_WRITE | WatchFlags::MOVE | WatchFlags::DELETE | WatchFlags::CREATE;
    inotify::add_watch(&watch, dir, what | WatchFlags::DELETE_SELF | WatchFlags::ONLYDIR)?;
    Receiver::from_owned_fd_unchecked(watch)
}

/// Waits for a change in the watched directory, and discards the inotify events. The caller reads all manifests again,
/// so it does not need to know which file changed.
async fn wait_for_change(watch: &Receiver) -> io::Result<()> {
    watch.readable().await?;
    let mut buffer = [0; 4096];
    while matches!(watch.try_read(&mut buffer), Ok(1..)) {}
    Ok(())
}

/// Reconciles the mirror pods after each change and at intervals of [`MIRROR_RETRY_INTERVAL`], once the Node is
/// registered and the API server's pods were listed. Never returns.
async fn reconcile_mirrors_loop<R: Runtime>(node: &Arc<NodeAgent<R>>) {
    let mut own = node.state.watch_node();
    let mut logged = BTreeMap::new();
    loop {
        let node_uid = own.borrow_and_update().as_ref().and_then(|it| it.uid());
        if let Some(node_uid) = node_uid
            && let Some(mirrors) = node.pods.mirror_pods()
        {
            reconcile_mirrors(node, &mirrors, &node_uid, &mut logged).await;
        }
        tokio::select! {
            () = node.pods.wait_for_mirror_change() => {}
            () = node.pods.wait_for_change() => {}
            _ = own.changed() => {}
            () = sleep(MIRROR_RETRY_INTERVAL) => {}
        }
    }
}

/// Creates missing mirror pods, deletes mirror pods that are outdated or have no static pod, and passes every other
/// mirror pod to its static pod. `logged` has the last logged message about each pod.
async fn reconcile_mirrors<R: Runtime>(
    node: &Arc<NodeAgent<R>>,
    mirrors: &BTreeMap<ObjectKey, Arc<ParsedPod>>,
    node_uid: &str,
    logged: &mut BTreeMap<ObjectKey, String>,
) {
    let entries: BTreeMap<ObjectKey, Arc<PodEntry>> =
        static_pod_entries(node).into_iter().map(|it| (pod_key(&it.snapshot().object), it)).collect();
    for (key, mirror) in mirrors {
        let entry = entries.get(key);
        let pod = entry.map(|it| it.snapshot().object);
        match (static_pod::decide_mirror(&mirror.json, pod.as_ref().map(|it| &it.json), node_uid), entry) {
            (MirrorDecision::Keep, Some(entry)) => entry.set_mirror(Some(mirror)),
            _ => {
                let preconditions = Preconditions { uid: mirror.uid(), ..Preconditions::default() };
                let now = DeleteParams {
                    preconditions: Some(preconditions),
                    ..DeleteParams::default().grace_period(0)
                };
                let pods: Api<Pod> = Api::namespaced(node.client.clone(), &key.namespace);
                match timeout(CALL_TIMEOUT, pods.delete(&key.name, &now)).await {
                    Ok(Err(error)) if !is_gone_or_conflict(&error) => {
                        warn_if_changed(
                            logged,
                            key,
                            format!("cannot delete the mirror pod of a static pod: {error}"),
                        );
                    }
                    // The watch shows the deletion.
                    _ => {}
                }
            }
        }
    }
    for (key, entry) in entries.iter().filter(|(key, _)| !mirrors.contains_key(*key)) {
        entry.set_mirror(None);
        let object = static_pod::mirror_pod(&entry.snapshot().object.json, &node.config.name, node_uid);
        let Ok(object) = serde_json::from_value::<Pod>(object) else { continue };
        let pods: Api<Pod> = Api::namespaced(node.client.clone(), &key.namespace);
        match timeout(CALL_TIMEOUT, pods.create(&PostParams::default(), &object)).await {
            Ok(Ok(_)) => drop(logged.remove(key)),
            // The watch has not shown the mirror pod yet, or another pod has the name.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {}
            Ok(Err(error)) => {
                warn_if_changed(
                    logged,
                    key,
                    format!("cannot create the mirror pod of a static pod: {error}"),
                );
            }
            Err(_) => {}
        }
    }
}

/// Whether the API server responded with the HTTP status 404 or 409.
fn is_gone_or_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}

/// Logs a message about a pod, unless the last message about that pod was the same.
fn warn_if_changed(logged: &mut BTreeMap<ObjectKey, String>, key: &ObjectKey, message: String) {
    if logged.get(key) != Some(&message) {
        tracing::warn!(pod = %key, "{message}");
        logged.insert(key.clone(), message);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_file_that_is_spoilt_leaves_its_pod_as_it_was() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("manifests");
        fs::create_dir(&dir).unwrap();
        let web = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: main\n    image: web:1\n";
        let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
        let mut files = ManifestFiles::default();
        let mut logged = String::new();
        let mut look = |what: &str| {
            files.reload_manifests(&dir, "Node-1");
            let pods = files.by_path.iter().map(|(path, it)| {
                let file = path.file_name().unwrap().to_string_lossy();
                let image = |it: &Pod| it.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
                let pod =
                    it.pod.as_ref().map_or("none".to_owned(), |it| format!("{} {}", pod_key(it), image(it)));
                format!("  {file}: {pod}\n")
            });
            logged += &format!("{what}\n{}", pods.collect::<String>());
        };
        write("web.yaml", web);
        write(".hidden.yaml", web);
        fs::create_dir_all(dir.join("a directory")).unwrap();
        look("one file");
        write("web.yaml", &web.replace("web:1", "web:2"));
        write("broken.yaml", "apiVersion: v1\nkind: [");
        look("changed, and another that is spoilt");
        write("web.yaml", "kind: Service");
        look("spoilt");
        fs::remove_file(dir.join("web.yaml")).unwrap();
        fs::write(dir.join("broken.yaml"), vec![b' '; 2 << 20]).unwrap();
        look("gone, and the other too large");
        fs::remove_dir_all(&dir).unwrap();
        look("the directory is gone");
        expect![[r#"
            one file
              web.yaml: default/web-node-1 web:1
            changed, and another that is spoilt
              broken.yaml: none
              web.yaml: default/web-node-1 web:2
            spoilt
              broken.yaml: none
              web.yaml: default/web-node-1 web:2
            gone, and the other too large
              broken.yaml: none
            the directory is gone
              broken.yaml: none
        "#]]
        .assert_eq(&logged);
    }
}
