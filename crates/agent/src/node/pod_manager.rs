//! What is to run on the node, and what runs there: one watch of the API server, one of the runtime, and a worker for each pod.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{FutureExt as _, TryStreamExt as _};
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use muster_api::meta::ObjectKey;
use muster_engine::kubelet::pod::admission::AdmissionCandidate;
use muster_engine::kubelet::pod::{self, Ending};
use muster_engine::kubelet::static_pod;
use tokio::sync::Notify;

use super::orphans::is_uid;
use super::worker::Worker;
use super::{Node, pleg, sandbox};
use crate::pod::ParsedPod;
use crate::runtime::{Runtime, RuntimeError};

/// Ends that are remembered: more than there can be between two looks at a pod that has just begun.
const ENDED_MAX: usize = 256;
/// A worker that fell over is not begun anew at once: it may fall over again.
const BEGIN_ANEW: Duration = Duration::from_secs(10);
/// A runtime that cannot be followed is tried again.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

/// Who wants a pod to run here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Api,
    /// A manifest on the node.
    Static,
    /// Nobody any more.
    Orphan,
}

/// The pods of a node.
#[derive(Debug, Default)]
pub struct PodManager {
    entries: Mutex<BTreeMap<String, Arc<Entry>>>,
    /// The last containers and sandboxes that the runtime said had ended. It says so a moment before it shows it, and for
    /// some before anybody knows whose they are.
    ended: Mutex<VecDeque<String>>,
    changed: Notify,
    mirrors: Mutex<Mirrors>,
    mirrors_changed: Notify,
}

/// What stands for static pods on the API server.
#[derive(Debug, Default)]
struct Mirrors {
    all: BTreeMap<ObjectKey, Arc<ParsedPod>>,
    /// The API server's pods were listed once: what it does not have is known to be missing.
    are_listed: bool,
}

/// A pod of the node: what its worker is told, and what it has last seen.
#[derive(Debug)]
pub struct Entry {
    pub source: Source,
    mail: Mutex<Mail>,
    bell: Notify,
    shown: Mutex<Shown>,
    /// What it asks of the node. `None` for an orphan.
    pub(super) candidate: Option<AdmissionCandidate>,
    is_in: AtomicBool,
    /// Of an orphan: who wants it after all. It begins when what is here of it has gone, for two would undo each other's actions.
    next: Mutex<Option<(Source, Arc<ParsedPod>)>>,
}

/// What a worker is told. Of each kind the last counts, so it does not grow.
#[derive(Debug, Default)]
pub(super) struct Mail {
    pub object: Option<Arc<ParsedPod>>,
    pub is_gone: bool,
    pub ending: Option<Ending>,
    /// Something of it in the runtime may have changed.
    pub look: bool,
}

/// What others may know of a pod.
#[derive(Debug, Clone)]
pub struct Shown {
    pub object: Arc<ParsedPod>,
    pub seen: pod::RuntimeState,
    /// As it was last reported.
    pub status: serde_json::Value,
    /// Nothing of it runs, or will again.
    pub has_ended: bool,
    /// Of a static pod: the UID of what stands for it on the API server.
    pub mirror: Option<String>,
}

impl Entry {
    fn new(source: Source, object: Arc<ParsedPod>) -> Self {
        let candidate = object.candidate.clone().filter(|_| source != Source::Orphan);
        let shown = Shown {
            object,
            seen: pod::RuntimeState::default(),
            status: serde_json::Value::Null,
            has_ended: false,
            mirror: None,
        };
        Self {
            source,
            mail: Mutex::default(),
            bell: Notify::new(),
            shown: Mutex::new(shown),
            is_in: AtomicBool::new(candidate.as_ref().is_some_and(|it| it.was_admitted)),
            candidate,
            next: Mutex::default(),
        }
    }

    /// From now on it counts, for others that want to be let in.
    pub(super) fn let_in(&self) {
        self.is_in.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_admitted(&self) -> bool {
        self.is_in.load(Ordering::Relaxed)
    }

    /// Whether nobody waits for it to begin any more.
    pub(super) fn is_to_end(&self) -> bool {
        let mail = lock(&self.mail);
        let is_deleted = mail.object.as_ref().is_some_and(|it| it.metadata.deletion_timestamp.is_some());
        mail.is_gone || mail.ending.is_some() || is_deleted
    }

    /// The pod as it is now.
    pub fn shown(&self) -> Shown {
        lock(&self.shown).clone()
    }

    pub(super) fn show(&self, change: impl FnOnce(&mut Shown)) {
        change(&mut lock(&self.shown));
    }

    /// It is to end: evicted, or because the node shuts down.
    pub fn end(&self, ending: Ending) {
        self.tell(|mail| mail.ending = Some(ending));
    }

    /// Of a static pod: what stands for it on the API server, and has the status that was last told.
    pub(super) fn mirrored(&self, mirror: Option<&ParsedPod>) {
        let uid = mirror.and_then(|it| it.metadata.uid.clone());
        let mut shown = lock(&self.shown);
        if shown.mirror == uid {
            return;
        }
        shown.mirror = uid;
        let status = mirror.map(|it| it.tree["status"].clone()).unwrap_or_default();
        let object = shown.object.with_status(status);
        drop(shown);
        match object {
            Ok(object) => self.tell(|mail| mail.object = Some(Arc::new(object))),
            Err(error) => tracing::warn!(%error, "the status of a mirror pod cannot be read"),
        }
    }

    pub(super) fn tell(&self, write: impl FnOnce(&mut Mail)) {
        write(&mut lock(&self.mail));
        self.bell.notify_one();
    }

    pub(super) async fn mail(&self) -> Mail {
        self.bell.notified().await;
        std::mem::take(&mut lock(&self.mail))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PodManager {
    pub fn get(&self, uid: &str) -> Option<Arc<Entry>> {
        lock(&self.entries).get(uid).cloned()
    }

    /// The pod of that name. Of two, an old one that ends and a new one, it is the new one.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<Entry>> {
        let all = self.all();
        let mut found: Vec<_> = all
            .into_iter()
            .filter(|it| {
                let shown = lock(&it.shown);
                let (own_name, own_namespace, _) = sandbox::ids(&shown.object);
                own_name == name && own_namespace == namespace
            })
            .collect();
        found.sort_by_key(|it| {
            let metadata = &lock(&it.shown).object.metadata;
            (metadata.deletion_timestamp.is_none(), metadata.creation_timestamp.as_ref().map(|it| it.0))
        });
        found.pop()
    }

    pub fn all(&self) -> Vec<Arc<Entry>> {
        lock(&self.entries).values().cloned().collect()
    }

    /// Whoever waits sees that a pod came, went or changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What stands for static pods on the API server. `None` until it is known what does.
    pub(super) fn mirrors(&self) -> Option<BTreeMap<ObjectKey, Arc<ParsedPod>>> {
        let mirrors = lock(&self.mirrors);
        mirrors.are_listed.then(|| mirrors.all.clone())
    }

    pub(super) async fn mirrors_changed(&self) {
        self.mirrors_changed.notified().await;
    }

    fn see_mirrors(&self, change: impl FnOnce(&mut Mirrors)) {
        change(&mut lock(&self.mirrors));
        self.mirrors_changed.notify_one();
    }

    /// A pod is to run, or is as it is now.
    pub fn put<R: Runtime>(&self, node: &Arc<Node<R>>, source: Source, object: Arc<ParsedPod>) {
        let (name, namespace, uid) = sandbox::ids(&object);
        if !is_uid(uid) {
            tracing::warn!(
                namespace,
                name,
                uid,
                "a pod has no UID that could be used as one, and is left alone"
            );
            return;
        }
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get(uid) {
            match entry.source {
                Source::Orphan => *lock(&entry.next) = Some((source, object)),
                Source::Api | Source::Static => entry.tell(|mail| mail.object = Some(object)),
            }
            return;
        }
        let uid = uid.to_owned();
        let entry = Arc::new(Entry::new(source, object.clone()));
        let worker = Worker::new(node.clone(), entry.clone(), object);
        entries.insert(uid.clone(), entry.clone());
        drop(entries);
        spawn(node, uid, entry, worker);
    }

    /// Decides something about those that were let in and have not ended. One is decided about at a time.
    pub(super) fn decide<T>(&self, decide: impl FnOnce(&[&AdmissionCandidate]) -> T) -> T {
        let entries = lock(&self.entries);
        let is_in = |it: &&Arc<Entry>| it.is_admitted() && !lock(&it.shown).has_ended;
        let candidates: Vec<&AdmissionCandidate> =
            entries.values().filter(is_in).filter_map(|it| it.candidate.as_ref()).collect();
        decide(&candidates)
    }

    /// A pod changed in a way that others may wait for.
    pub(super) fn change(&self) {
        self.changed.notify_waiters();
    }

    /// Whether the runtime said that it ended.
    pub(super) fn has_ended(&self, id: &str) -> bool {
        lock(&self.ended).iter().any(|it| it == id)
    }

    pub(super) fn ends(&self, id: String) {
        let mut ended = lock(&self.ended);
        ended.push_back(id);
        let more = ended.len().saturating_sub(ENDED_MAX);
        ended.drain(..more);
    }

    /// Nobody wants it any more.
    pub fn remove(&self, uid: &str) {
        if let Some(entry) = self.get(uid) {
            *lock(&entry.next) = None;
            entry.tell(|mail| mail.is_gone = true);
        }
    }

    /// Its worker has ended: it is forgotten, or begins again for who wants it now.
    fn leave<R: Runtime>(&self, node: &Arc<Node<R>>, uid: &str, entry: &Arc<Entry>) {
        lock(&self.entries).remove(uid);
        let next = lock(&entry.next).take();
        if let Some((source, object)) = next {
            self.put(node, source, object);
        }
        self.change();
    }

    /// Of the API server's pods, those that are not in the list are gone.
    fn keep(&self, listed: &BTreeSet<String>) {
        for (uid, entry) in lock(&self.entries).iter() {
            if listed.contains(uid) {
                continue;
            }
            lock(&entry.next).take_if(|(source, _)| *source == Source::Api);
            if entry.source == Source::Api {
                entry.tell(|mail| mail.is_gone = true);
            }
        }
    }

    /// What the runtime has of a pod that nobody knows is ended.
    pub(super) fn orphan<R: Runtime>(&self, node: &Arc<Node<R>>, key: ObjectKey, uid: String) {
        let Ok(object) = ParsedPod::unknown(&key, &uid) else { return };
        let entry = Arc::new(Entry::new(Source::Orphan, Arc::new(object)));
        let mut entries = lock(&self.entries);
        if entries.contains_key(&uid) {
            return;
        }
        tracing::info!(pod = %key, uid, "removing containers and files of a pod that the API server does not know");
        let worker = Worker::orphan(node.clone(), entry.clone(), key, &uid);
        entries.insert(uid.clone(), entry.clone());
        drop(entries);
        spawn(node, uid, entry, worker);
    }
}

fn spawn<R: Runtime>(node: &Arc<Node<R>>, uid: String, entry: Arc<Entry>, worker: Worker<R>) {
    let node = node.clone();
    tokio::spawn(async move {
        node.pods.change();
        let ended = tokio::select! {
            () = node.stopping.cancelled() => return,
            ended = AssertUnwindSafe(worker.run()).catch_unwind() => ended,
        };
        if ended.is_err() {
            // Its containers run on meanwhile, and are found again; and so is what nobody wants.
            tracing::error!(uid, "the agent has an error of its own in looking after a pod: it begins anew");
            if entry.source != Source::Orphan {
                *lock(&entry.next) = Some((entry.source, entry.shown().object));
            }
            tokio::time::sleep(BEGIN_ANEW).await;
        }
        node.pods.leave(&node, &uid, &entry);
    });
}

/// Follows the API server and the runtime, for ever.
pub(super) async fn run<R: Runtime>(node: &Arc<Node<R>>) {
    // Nothing can be said of a pod before the runtime answers.
    while let Err(error) = ask_name(node).await {
        tracing::debug!("the runtime does not answer yet: {error}");
        tokio::time::sleep(FOLLOW_AGAIN).await;
    }
    let listed = Notify::new();
    tokio::join!(watch(node, &listed), pleg::watch_exits(node), pleg::relist(node, &listed));
}

async fn ask_name<R: Runtime>(node: &Node<R>) -> Result<(), RuntimeError> {
    let version = node.runtime.version().await?;
    node.runtime_name.get_or_init(|| version.runtime_name);
    Ok(())
}

/// What the API server wants to run here. Pods go on while it cannot be reached.
async fn watch<R: Runtime>(node: &Arc<Node<R>>, listed: &Notify) {
    let pods: Api<ParsedPod> = Api::all(node.client.clone());
    // Who is let in depends on what the node is.
    node.standing.own().wait_for(Option::is_some).await.ok();
    loop {
        follow_pods(node, pods.clone(), listed).await;
        // What was listed meanwhile is of another cluster, or may be.
        node.membership.confirmed().await;
    }
}

/// Follows the list and the watch of the node's pods, for as long as the API server is proven to be the node's cluster.
async fn follow_pods<R: Runtime>(node: &Arc<Node<R>>, pods: Api<ParsedPod>, listed: &Notify) {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", node.config.name));
    let mut events = pin!(watcher(pods, config).default_backoff());
    let mut list = Vec::new();
    loop {
        match events.try_next().await {
            Ok(Some(watcher::Event::Init)) => list.clear(),
            Ok(Some(watcher::Event::InitApply(pod))) => list.push(pod),
            Ok(Some(watcher::Event::InitDone)) => {
                if !node.membership.listed().await {
                    return;
                }
                take_list(node, std::mem::take(&mut list));
                listed.notify_one();
            }
            Ok(Some(watcher::Event::Apply(_) | watcher::Event::Delete(_))) if !node.membership.may_obey() => {
                return;
            }
            Ok(Some(watcher::Event::Apply(pod))) => see(node, pod),
            Ok(Some(watcher::Event::Delete(pod))) if is_mirror(&pod) => {
                let is_it = |it: &Arc<ParsedPod>| it.metadata.uid == pod.metadata.uid;
                node.pods.see_mirrors(|mirrors| mirrors.all.retain(|_, it| !is_it(it)));
            }
            Ok(Some(watcher::Event::Delete(pod))) => {
                node.pods.remove(pod.metadata.uid.as_deref().unwrap_or_default());
            }
            Ok(None) => {}
            Err(error) => tracing::debug!("the watch of pods broke off: {error}"),
        }
    }
}

/// A complete list of the node's pods: they run from now on, and no others of the API server's.
fn take_list<R: Runtime>(node: &Arc<Node<R>>, pods: Vec<ParsedPod>) {
    let listed: BTreeSet<String> = pods.iter().filter_map(|it| it.metadata.uid.clone()).collect();
    for pod in pods {
        see(node, pod);
    }
    node.pods.keep(&listed);
    node.pods.see_mirrors(|mirrors| {
        mirrors.are_listed = true;
        mirrors.all.retain(|_, it| it.metadata.uid.as_ref().is_some_and(|it| listed.contains(it)));
    });
}

fn is_mirror(pod: &ParsedPod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.is_some_and(|it| it.contains_key(static_pod::MIRROR))
}

fn see<R: Runtime>(node: &Arc<Node<R>>, pod: ParsedPod) {
    if !is_mirror(&pod) {
        node.pods.put(node, Source::Api, Arc::new(pod));
        return;
    }
    // The static pod itself runs already.
    let (name, namespace, _) = sandbox::ids(&pod);
    let key = ObjectKey::new(namespace, name);
    node.pods.see_mirrors(|mirrors| drop(mirrors.all.insert(key, Arc::new(pod))));
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::config::Config;

    /// A node whose API server and runtime do not answer: all that is seen is who is begun.
    fn alone(test: &str) -> Arc<Node<crate::runtime::Cri>> {
        let root = std::env::temp_dir().join(format!("muster-{test}-{}", std::process::id()));
        let config = Config { root, ..crate::config::example() };
        let answer =
            |_| std::future::ready(Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::empty())));
        let client = kube::Client::new(tower::service_fn(answer), "default");
        let (recorder, _) = crate::record::Recorder::new(client.clone(), "m1".to_owned());
        let runtime = crate::runtime::Cri::connect(&config.root.join("none.sock"));
        Node::new(client, Arc::new(config), Arc::new(runtime), recorder, Arc::default())
    }

    fn pod(annotations: serde_json::Value) -> serde_json::Value {
        let metadata = serde_json::json!({
            "name": "web", "namespace": "shop", "uid": "u-1", "annotations": annotations,
        });
        let spec = serde_json::json!({"containers": [{"name": "main", "image": "web:1"}]});
        serde_json::json!({"metadata": metadata, "spec": spec})
    }

    #[tokio::test]
    async fn what_is_wanted_after_all_waits_for_the_orphan_to_go() {
        let node = alone("orphan");
        let here = |what: &str| {
            let all = node.pods.all();
            let all: Vec<String> = all
                .iter()
                .map(|it| format!("{:?} then {:?}", it.source, lock(&it.next).as_ref().map(|it| it.0)))
                .collect();
            format!("{what}: {}\n", all.join(", "))
        };
        let pod = Arc::new(ParsedPod::new(pod(serde_json::json!({}))).unwrap());
        let mut said = String::new();
        node.pods.orphan(&node, ObjectKey::new("shop", "web"), "u-1".to_owned());
        said += &here("nobody knows it");
        node.pods.put(&node, Source::Api, pod.clone());
        said += &here("it is listed");
        node.pods.keep(&BTreeSet::new());
        said += &here("and then it is not");
        node.pods.put(&node, Source::Static, pod);
        let orphan = node.pods.get("u-1").unwrap();
        node.pods.leave(&node, "u-1", &orphan);
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
        let said = [Source::Api, Source::Static].map(|source| {
            let node = alone("source");
            let pod = pod(serde_json::json!({"kubernetes.io/config.source": "file"}));
            let pod = if source == Source::Api { ParsedPod::from_api(pod) } else { ParsedPod::new(pod) };
            node.pods.put(&node, source, Arc::new(pod.unwrap()));
            let entry = node.pods.get("u-1").unwrap();
            node.stopping.cancel();
            (source, entry.candidate.as_ref().unwrap().is_critical())
        });
        assert_eq!(said, [(Source::Api, false), (Source::Static, true)]);
    }

    #[test]
    fn only_the_last_ends_are_remembered() {
        let pods = PodManager::default();
        for number in 0..ENDED_MAX + 2 {
            pods.ends(format!("c{number}"));
        }
        let known = ["c0", "c1", "c2", "c257", "c258"].map(|id| (id, pods.has_ended(id)));
        assert_eq!(known, [("c0", false), ("c1", false), ("c2", true), ("c257", true), ("c258", false)]);
    }
}
