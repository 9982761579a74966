//! The pods of the node, with a worker for each. Pods come from the API server, from manifests, and as orphans from the
//! runtime and from the disk.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{FutureExt as _, TryStreamExt as _};
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use muster_api::object_key::ObjectKey;
use muster_engine::kubelet::pod::admission::AdmissionCandidate;
use muster_engine::kubelet::pod::{self, PodTermination};
use muster_engine::kubelet::static_pod;
use tokio::sync::Notify;

use super::orphans::is_path_safe_uid;
use super::worker::Worker;
use super::{NodeAgent, pleg, sandbox};
use crate::parsed_pod::ParsedPod;
use crate::runtime::{Runtime, RuntimeError};

/// Maximum number of remembered exits of containers and sandboxes. An exit is needed only until the worker of the pod
/// has read the new state from the runtime.
const EXITS_REMEMBERED_MAX: usize = 256;
/// Delay before a worker that panicked is restarted. Without a delay, a worker that panics each time would be restarted
/// continuously.
const WORKER_RESTART_DELAY: Duration = Duration::from_secs(10);
/// Delay before a runtime that did not respond is called again.
const RUNTIME_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Where the agent got a pod from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodSource {
    /// The pod is from the API server.
    Api,
    /// The pod is from a manifest on the node's disk.
    Static,
    /// The pod was found only in the runtime or on the disk: it has neither an object on the API server nor a manifest.
    /// It is cleaned up.
    Orphan,
}

/// The pods of a node, each with its worker.
#[derive(Debug, Default)]
pub struct PodManager {
    /// The pods by UID.
    entries: Mutex<BTreeMap<String, Arc<PodEntry>>>,
    /// IDs of the containers and sandboxes that exited most recently. The runtime reports an exit a moment before it
    /// shows the new state. With these IDs, a worker notices that the state it has read is out of date. The IDs are not
    /// stored in the pods, because the runtime may report an exit before the agent knows the pod.
    exited_ids: Mutex<VecDeque<String>>,
    /// Notified when a pod is added, removed, or has terminated.
    changed: Notify,
    /// The node's mirror pods on the API server.
    mirrors: Mutex<MirrorPods>,
    /// Notified when a mirror pod changes, and after each list of the API server's pods.
    mirrors_changed: Notify,
}

/// The mirror pods of static pods.
#[derive(Debug, Default)]
struct MirrorPods {
    /// The mirror pods, by namespace and name.
    all: BTreeMap<ObjectKey, Arc<ParsedPod>>,
    /// Whether the API server's pods were listed. Before that, a mirror pod that is not in the map may exist.
    is_listed: bool,
}

/// A pod of the node, with the pending input of its worker and a snapshot of its state.
#[derive(Debug)]
pub struct PodEntry {
    pub source: PodSource,
    /// Input that the worker has not processed yet.
    update: Mutex<WorkerUpdate>,
    /// Notified when `update` changes.
    update_notify: Notify,
    snapshot: Mutex<PodSnapshot>,
    /// The pod in the form that pod admission checks. `None` for an orphan.
    pub(super) candidate: Option<AdmissionCandidate>,
    /// Whether pod admission has admitted the pod.
    is_admitted: AtomicBool,
    /// The pod whose worker starts when the worker of this entry has ended. `None` if no worker follows. If this entry
    /// is an orphan, the successor is a pod with the same UID that was added during the cleanup. This pod waits,
    /// because two workers of one UID would undo each other's actions. If the worker of this entry has panicked, the
    /// successor is the pod of this entry.
    successor: Mutex<Option<(PodSource, Arc<ParsedPod>)>>,
}

/// Pending input of a worker. A newer value replaces an older one, so the input does not grow.
#[derive(Debug, Default)]
pub(super) struct WorkerUpdate {
    /// The new pod object, if it changed.
    pub object: Option<Arc<ParsedPod>>,
    /// Whether the pod was deleted on the API server, or, for a static pod, its manifest was removed or replaced.
    pub is_gone: bool,
    /// Why the node terminates the pod, or `None` if it does not.
    pub termination: Option<PodTermination>,
    /// Whether the pod's sandbox or containers may have changed in the runtime.
    pub runtime_changed: bool,
}

/// State of a pod that other components of the agent read.
#[derive(Debug, Clone)]
pub struct PodSnapshot {
    pub object: Arc<ParsedPod>,
    pub runtime_state: pod::RuntimeState,
    /// The status in the last completed [`Action::Report`](pod::Action::Report). Null before the first report.
    pub status: serde_json::Value,
    /// Whether the pod has terminated: no container runs, and no container will be started again.
    pub has_ended: bool,
    /// UID of the mirror pod, if the pod is a static pod and its mirror pod exists.
    pub mirror_uid: Option<String>,
}

impl PodEntry {
    fn new(source: PodSource, object: Arc<ParsedPod>) -> Self {
        let candidate = (source != PodSource::Orphan).then(|| object.candidate.clone());
        let shown = PodSnapshot {
            object,
            runtime_state: pod::RuntimeState::default(),
            status: serde_json::Value::Null,
            has_ended: false,
            mirror_uid: None,
        };
        Self {
            source,
            update: Mutex::default(),
            update_notify: Notify::new(),
            snapshot: Mutex::new(shown),
            is_admitted: AtomicBool::new(candidate.as_ref().is_some_and(|it| it.was_admitted)),
            candidate,
            successor: Mutex::default(),
        }
    }

    /// Marks the pod as admitted. Its resources then count in the admission of other pods.
    pub(super) fn set_admitted(&self) {
        self.is_admitted.store(true, Ordering::Relaxed);
    }

    /// Whether pod admission has admitted the pod.
    pub(super) fn is_admitted(&self) -> bool {
        self.is_admitted.load(Ordering::Relaxed)
    }

    /// Whether the pod's pending input has a deletion or a termination, so that the pod need not wait for admission.
    pub(super) fn should_stop(&self) -> bool {
        let update = lock(&self.update);
        let is_deleted = update.object.as_ref().is_some_and(|it| it.metadata.deletion_timestamp.is_some());
        update.is_gone || update.termination.is_some() || is_deleted
    }

    /// Returns a snapshot of the pod's current state.
    pub fn snapshot(&self) -> PodSnapshot {
        lock(&self.snapshot).clone()
    }

    /// Changes the snapshot of the pod's state.
    pub(super) fn update_snapshot(&self, change: impl FnOnce(&mut PodSnapshot)) {
        change(&mut lock(&self.snapshot));
    }

    /// Tells the worker to terminate the pod because it is evicted or preempted, or because the node stops.
    pub fn terminate(&self, termination: PodTermination) {
        self.notify_worker(|update| update.termination = Some(termination));
    }

    /// Sets the mirror pod of a static pod, or `None` if the mirror pod does not exist. The worker then continues from
    /// the status of the mirror pod. Does nothing if the UID of the mirror pod is unchanged.
    pub(super) fn set_mirror(&self, mirror: Option<&ParsedPod>) {
        let uid = mirror.and_then(|it| it.metadata.uid.clone());
        let mut snapshot = lock(&self.snapshot);
        if snapshot.mirror_uid == uid {
            return;
        }
        snapshot.mirror_uid = uid;
        let status = mirror.map(|it| it.json["status"].clone()).unwrap_or_default();
        let object = snapshot.object.with_status(status);
        drop(snapshot);
        match object {
            Ok(object) => self.notify_worker(|update| update.object = Some(Arc::new(object))),
            Err(error) => tracing::warn!(%error, "cannot decode the status of a mirror pod"),
        }
    }

    /// Changes the pending input of the pod's worker with `write`, and wakes the worker.
    pub(super) fn notify_worker(&self, write: impl FnOnce(&mut WorkerUpdate)) {
        write(&mut lock(&self.update));
        self.update_notify.notify_one();
    }

    /// Waits until the worker is notified, and takes its pending input, which may be empty.
    pub(super) async fn next_update(&self) -> WorkerUpdate {
        self.update_notify.notified().await;
        std::mem::take(&mut lock(&self.update))
    }
}

/// Locks a mutex, even if a thread panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PodManager {
    /// Returns the pod with this UID, or `None` if the node does not have it.
    pub fn get(&self, uid: &str) -> Option<Arc<PodEntry>> {
        lock(&self.entries).get(uid).cloned()
    }

    /// Finds a pod by name. If a terminating pod and its replacement have the same name, returns the replacement.
    /// Returns `None` if there is no such pod.
    pub fn find_pod(&self, namespace: &str, name: &str) -> Option<Arc<PodEntry>> {
        let all = self.all_pods();
        let mut found: Vec<_> = all
            .into_iter()
            .filter(|it| {
                let snapshot = lock(&it.snapshot);
                let (own_name, own_namespace, _) = sandbox::pod_ids(&snapshot.object);
                own_name == name && own_namespace == namespace
            })
            .collect();
        found.sort_by_key(|it| {
            let metadata = &lock(&it.snapshot).object.metadata;
            (metadata.deletion_timestamp.is_none(), metadata.creation_timestamp.as_ref().map(|it| it.0))
        });
        found.pop()
    }

    /// Returns the pods of all sources.
    pub fn all_pods(&self) -> Vec<Arc<PodEntry>> {
        lock(&self.entries).values().cloned().collect()
    }

    /// Waits until a pod is added, removed, or has terminated. Changes before the call do not count.
    pub async fn wait_for_change(&self) {
        self.changed.notified().await;
    }

    /// Returns the mirror pods of static pods, or `None` until the API server's pods were listed.
    pub(super) fn mirror_pods(&self) -> Option<BTreeMap<ObjectKey, Arc<ParsedPod>>> {
        let mirrors = lock(&self.mirrors);
        mirrors.is_listed.then(|| mirrors.all.clone())
    }

    /// Waits until a mirror pod changes or the API server's pods are listed.
    pub(super) async fn wait_for_mirror_change(&self) {
        self.mirrors_changed.notified().await;
    }

    /// Changes the mirror pods with `change`, and wakes the task that waits for a change of mirror pods.
    fn update_mirrors(&self, change: impl FnOnce(&mut MirrorPods)) {
        change(&mut lock(&self.mirrors));
        self.mirrors_changed.notify_one();
    }

    /// Starts a worker for a new pod, or passes a changed pod to its worker. If an orphan with this UID is being
    /// cleaned up, the pod waits as its successor. A pod with an invalid UID is ignored.
    pub fn upsert_pod<R: Runtime>(
        &self,
        node: &Arc<NodeAgent<R>>,
        source: PodSource,
        object: Arc<ParsedPod>,
    ) {
        let (name, namespace, uid) = sandbox::pod_ids(&object);
        if !is_path_safe_uid(uid) {
            tracing::warn!(namespace, name, uid, "ignoring a pod with an invalid UID");
            return;
        }
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get(uid) {
            match entry.source {
                PodSource::Orphan => *lock(&entry.successor) = Some((source, object)),
                PodSource::Api | PodSource::Static => {
                    entry.notify_worker(|update| update.object = Some(object))
                }
            }
            return;
        }
        let uid = uid.to_owned();
        let entry = Arc::new(PodEntry::new(source, object.clone()));
        let worker = Worker::new(node.clone(), entry.clone(), object);
        entries.insert(uid.clone(), entry.clone());
        drop(entries);
        spawn_worker(node, uid, entry, worker);
    }

    /// Calls `decide` with the admitted pods that have not terminated, and returns its result. Only one caller at a
    /// time runs `decide`, because the lock on the pods is held.
    pub(super) fn with_admitted_pods<T>(&self, decide: impl FnOnce(&[&AdmissionCandidate]) -> T) -> T {
        let entries = lock(&self.entries);
        let is_in = |it: &&Arc<PodEntry>| it.is_admitted() && !lock(&it.snapshot).has_ended;
        let candidates: Vec<&AdmissionCandidate> =
            entries.values().filter(is_in).filter_map(|it| it.candidate.as_ref()).collect();
        decide(&candidates)
    }

    /// Wakes the tasks in [`wait_for_change`](Self::wait_for_change).
    pub(super) fn notify_change(&self) {
        self.changed.notify_waiters();
    }

    /// Whether the exit of the container or sandbox with this ID is one of the last [`EXITS_REMEMBERED_MAX`] exits that
    /// the runtime reported.
    pub(super) fn has_exited(&self, id: &str) -> bool {
        lock(&self.exited_ids).iter().any(|it| it == id)
    }

    /// Records that the runtime reported the exit of the container or sandbox with this ID. Only the last
    /// [`EXITS_REMEMBERED_MAX`] exits are kept.
    pub(super) fn record_exit(&self, container_or_sandbox_id: String) {
        let mut ended = lock(&self.exited_ids);
        ended.push_back(container_or_sandbox_id);
        let excess = ended.len().saturating_sub(EXITS_REMEMBERED_MAX);
        ended.drain(..excess);
    }

    /// Tells the worker of a pod that the pod was deleted. The worker then stops the containers and cleans up. A
    /// successor of the pod is dropped.
    pub fn remove_pod(&self, uid: &str) {
        if let Some(entry) = self.get(uid) {
            *lock(&entry.successor) = None;
            entry.notify_worker(|update| update.is_gone = true);
        }
    }

    /// Removes the entry of a pod whose worker has ended, and starts the worker of its successor, if it has one.
    fn finish_worker<R: Runtime>(&self, node: &Arc<NodeAgent<R>>, uid: &str, entry: &Arc<PodEntry>) {
        lock(&self.entries).remove(uid);
        let next = lock(&entry.successor).take();
        if let Some((source, object)) = next {
            self.upsert_pod(node, source, object);
        }
        self.notify_change();
    }

    /// Marks the pods with source [`PodSource::Api`] whose UIDs are not in `listed` as deleted on the API server. Drops
    /// unlisted successors of this source.
    fn remove_unlisted_pods(&self, listed: &BTreeSet<String>) {
        for (uid, entry) in lock(&self.entries).iter() {
            if listed.contains(uid) {
                continue;
            }
            lock(&entry.successor).take_if(|(source, _)| *source == PodSource::Api);
            if entry.source == PodSource::Api {
                entry.notify_worker(|update| update.is_gone = true);
            }
        }
    }

    /// Starts a worker that removes the containers and files of a pod that the API server does not know. Does nothing
    /// if the node has a pod with this UID.
    pub(super) fn clean_up_orphan<R: Runtime>(&self, node: &Arc<NodeAgent<R>>, key: ObjectKey, uid: String) {
        let Ok(object) = ParsedPod::placeholder_pod(&key, &uid) else { return };
        let entry = Arc::new(PodEntry::new(PodSource::Orphan, Arc::new(object)));
        let mut entries = lock(&self.entries);
        if entries.contains_key(&uid) {
            return;
        }
        tracing::info!(pod = %key, uid, "removing containers and files of a pod that the API server does not know");
        let worker = Worker::for_orphan(node.clone(), entry.clone(), key, &uid);
        entries.insert(uid.clone(), entry.clone());
        drop(entries);
        spawn_worker(node, uid, entry, worker);
    }
}

/// Runs the worker of a pod as a task. If it panics, a new worker starts after [`WORKER_RESTART_DELAY`], except for an
/// orphan, which a later relist finds again.
fn spawn_worker<R: Runtime>(node: &Arc<NodeAgent<R>>, uid: String, entry: Arc<PodEntry>, worker: Worker<R>) {
    let node = node.clone();
    tokio::spawn(async move {
        node.pods.notify_change();
        let ended = tokio::select! {
            () = node.stopping.cancelled() => return,
            ended = AssertUnwindSafe(worker.run()).catch_unwind() => ended,
        };
        if ended.is_err() {
            // The containers keep running and are found by the next worker.
            tracing::error!(uid, "the worker of a pod panicked; restarting it");
            if entry.source != PodSource::Orphan {
                *lock(&entry.successor) = Some((entry.source, entry.snapshot().object));
            }
            tokio::time::sleep(WORKER_RESTART_DELAY).await;
        }
        node.pods.finish_worker(&node, &uid, &entry);
    });
}

/// Waits for the runtime, and then watches the pods on the API server and the containers of the runtime. Never returns.
pub(super) async fn run<R: Runtime>(node: &Arc<NodeAgent<R>>) {
    // No pod can be synced before the runtime responds.
    while let Err(error) = read_runtime_name(node).await {
        tracing::debug!("the runtime does not respond yet: {error}");
        tokio::time::sleep(RUNTIME_RETRY_DELAY).await;
    }
    let listed = Notify::new();
    tokio::join!(watch_pods(node, &listed), pleg::watch_exits(node), pleg::relist(node, &listed));
}

/// Reads the name of the container runtime from the runtime, and stores it in the node.
async fn read_runtime_name<R: Runtime>(node: &NodeAgent<R>) -> Result<(), RuntimeError> {
    let version = node.runtime.version().await?;
    node.runtime_name.get_or_init(|| version.runtime_name);
    Ok(())
}

/// Watches the node's pods on the API server, and notifies `listed` after each list. Pods keep running while the API
/// server is unreachable.
async fn watch_pods<R: Runtime>(node: &Arc<NodeAgent<R>>, listed: &Notify) {
    let pods: Api<ParsedPod> = Api::all(node.client.clone());
    // Admission needs the Node object.
    node.state.watch_node().wait_for(Option::is_some).await.ok();
    loop {
        list_and_watch_pods(node, pods.clone(), listed).await;
        // The API server may be that of another cluster: confirm before the next list.
        node.membership.wait_until_confirmed().await;
    }
}

/// Lists and watches the node's pods. After each list, confirms that the API server belongs to the node's cluster. If
/// this fails, returns without applying the list. Also returns when an event arrives while the API server is not
/// confirmed.
async fn list_and_watch_pods<R: Runtime>(node: &Arc<NodeAgent<R>>, pods: Api<ParsedPod>, listed: &Notify) {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", node.config.name));
    let mut events = pin!(watcher(pods, config).default_backoff());
    let mut list = Vec::new();
    loop {
        match events.try_next().await {
            Ok(Some(watcher::Event::Init)) => list.clear(),
            Ok(Some(watcher::Event::InitApply(pod))) => list.push(pod),
            Ok(Some(watcher::Event::InitDone)) => {
                if !node.membership.confirm_list().await {
                    return;
                }
                apply_list(node, std::mem::take(&mut list));
                listed.notify_one();
            }
            Ok(Some(watcher::Event::Apply(_) | watcher::Event::Delete(_)))
                if !node.membership.may_apply_events() =>
            {
                return;
            }
            Ok(Some(watcher::Event::Apply(pod))) => apply_pod(node, pod),
            Ok(Some(watcher::Event::Delete(pod))) if is_mirror_pod(&pod) => {
                let is_deleted_pod = |it: &Arc<ParsedPod>| it.metadata.uid == pod.metadata.uid;
                node.pods.update_mirrors(|mirrors| mirrors.all.retain(|_, it| !is_deleted_pod(it)));
            }
            Ok(Some(watcher::Event::Delete(pod))) => {
                node.pods.remove_pod(pod.metadata.uid.as_deref().unwrap_or_default());
            }
            Ok(None) => {}
            Err(error) => tracing::debug!("the watch of pods failed: {error}"),
        }
    }
}

/// Applies a complete list of the node's pods. Pods from the API server that are not in the list are removed.
fn apply_list<R: Runtime>(node: &Arc<NodeAgent<R>>, pods: Vec<ParsedPod>) {
    let listed: BTreeSet<String> = pods.iter().filter_map(|it| it.metadata.uid.clone()).collect();
    for pod in pods {
        apply_pod(node, pod);
    }
    node.pods.remove_unlisted_pods(&listed);
    node.pods.update_mirrors(|mirrors| {
        mirrors.is_listed = true;
        mirrors.all.retain(|_, it| it.metadata.uid.as_ref().is_some_and(|it| listed.contains(it)));
    });
}

/// Whether the pod has the annotation `kubernetes.io/config.mirror`.
fn is_mirror_pod(pod: &ParsedPod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.is_some_and(|it| it.contains_key(static_pod::MIRROR_ANNOTATION))
}

/// Applies an added or changed pod from the API server. A mirror pod is recorded, and every other pod is passed to its
/// worker.
fn apply_pod<R: Runtime>(node: &Arc<NodeAgent<R>>, pod: ParsedPod) {
    if !is_mirror_pod(&pod) {
        node.pods.upsert_pod(node, PodSource::Api, Arc::new(pod));
        return;
    }
    // The static pod of a mirror pod has its own entry.
    let (name, namespace, _) = sandbox::pod_ids(&pod);
    let key = ObjectKey::new(namespace, name);
    node.pods.update_mirrors(|mirrors| drop(mirrors.all.insert(key, Arc::new(pod))));
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::config::Config;

    /// A node whose API server and runtime do not answer: all that is seen is who is begun.
    fn alone(root: &tempfile::TempDir) -> Arc<NodeAgent<crate::runtime::CriClient>> {
        let config = Config { root_dir: root.path().to_owned(), ..crate::config::example() };
        let answer =
            |_| std::future::ready(Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::empty())));
        let client = kube::Client::new(tower::service_fn(answer), "default");
        let (recorder, _) = crate::node::event_recorder(client.clone(), "m1".to_owned());
        let runtime = crate::runtime::CriClient::connect_lazy(&config.root_dir.join("none.sock"));
        NodeAgent::new(client, Arc::new(config), Arc::new(runtime), recorder, Arc::default())
    }

    fn pod(annotations: serde_json::Value) -> serde_json::Value {
        let metadata = serde_json::json!({
            "name": "web", "namespace": "shop", "uid": "u-1", "annotations": annotations,
        });
        let spec = serde_json::json!({"containers": [{"name": "main", "image": "web:1"}]});
        serde_json::json!({"metadata": metadata, "spec": spec})
    }

    #[tokio::test]
    async fn a_pod_that_returns_waits_for_its_orphan_to_be_cleaned_up() {
        let root = tempfile::tempdir().unwrap();
        let node = alone(&root);
        let here = |what: &str| {
            let all = node.pods.all_pods();
            let all: Vec<String> = all
                .iter()
                .map(|it| format!("{:?} then {:?}", it.source, lock(&it.successor).as_ref().map(|it| it.0)))
                .collect();
            format!("{what}: {}\n", all.join(", "))
        };
        let pod = Arc::new(ParsedPod::new(pod(serde_json::json!({}))).unwrap());
        let mut said = String::new();
        node.pods.clean_up_orphan(&node, ObjectKey::new("shop", "web"), "u-1".to_owned());
        said += &here("nobody knows it");
        node.pods.upsert_pod(&node, PodSource::Api, pod.clone());
        said += &here("it is listed");
        node.pods.remove_unlisted_pods(&BTreeSet::new());
        said += &here("and then it is not");
        node.pods.upsert_pod(&node, PodSource::Static, pod);
        let orphan = node.pods.get("u-1").unwrap();
        node.pods.finish_worker(&node, "u-1", &orphan);
        said += &here("it comes from a file, and the orphan is gone");
        node.stopping.cancel();
        expect![[r#"
            nobody knows it: Orphan then None
            it is listed: Orphan then Some(Api)
            and then it is not: Orphan then None
            it comes from a file, and the orphan is gone: Static then None
        "#]]
        .assert_eq(&said);
    }

    #[tokio::test]
    async fn only_the_node_says_that_a_pod_comes_from_a_file() {
        let said = [PodSource::Api, PodSource::Static].map(|source| {
            let root = tempfile::tempdir().unwrap();
            let node = alone(&root);
            let pod = pod(serde_json::json!({"kubernetes.io/config.source": "file"}));
            let pod = if source == PodSource::Api { ParsedPod::from_api(pod) } else { ParsedPod::new(pod) };
            node.pods.upsert_pod(&node, source, Arc::new(pod.unwrap()));
            let entry = node.pods.get("u-1").unwrap();
            node.stopping.cancel();
            (source, entry.candidate.as_ref().unwrap().is_critical())
        });
        assert_eq!(said, [(PodSource::Api, false), (PodSource::Static, true)]);
    }

    #[test]
    fn only_the_last_ends_are_remembered() {
        let pods = PodManager::default();
        for number in 0..EXITS_REMEMBERED_MAX + 2 {
            pods.record_exit(format!("c{number}"));
        }
        let known = ["c0", "c1", "c2", "c257", "c258"].map(|id| (id, pods.has_exited(id)));
        assert_eq!(known, [("c0", false), ("c1", false), ("c2", true), ("c257", true), ("c258", false)]);
    }
}
