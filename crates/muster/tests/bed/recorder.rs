//! Clients of API servers that record what they ask and what they are answered, for [`super::history`]. The objects are
//! ConfigMaps with the label [`LABEL`] in the namespace `default`.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions, WatchEvent, WatchParams};
use kube::core::Status;
use kube::{Api, ResourceExt as _};

use super::history::{Commit, NEVER, Operation, Outcome, Revision, Tick, Told, Version, What};

/// The label of all recorded objects.
pub(crate) const LABEL: &str = "crash=test";

/// Number of keys that all writers share.
const KEYS: u64 = 6;

/// All that the clients share.
pub(crate) struct Recorder {
    /// Time after which a client no longer waits for an answer.
    timeout: Duration,
    clock: AtomicU64,
    operations: Mutex<Vec<Operation>>,
    /// What someone saw last under each key: writers begin from it, and often it is too late.
    beliefs: Mutex<BTreeMap<String, Option<Revision>>>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Done(T),
    /// The key was not as the client believed.
    Refused,
    /// The server answered with another error.
    Failed(Box<Status>),
    /// The connection was lost, or no answer came in time.
    Lost,
}

impl Recorder {
    /// Clients that wait for an answer for this long.
    pub(crate) fn new(timeout: Duration) -> Self {
        let (clock, operations, beliefs) = Default::default();
        Self { timeout, clock, operations, beliefs }
    }

    /// All operations so far that have ended.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.operations.lock().unwrap().clone()
    }

    fn tick(&self) -> Tick {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    async fn answer<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Answer<T> {
        match tokio::time::timeout(self.timeout, request).await {
            Ok(Ok(it)) => Answer::Done(it),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Answer::Refused,
            Ok(Err(kube::Error::Api(status))) => Answer::Failed(status),
            Ok(Err(_)) | Err(_) => Answer::Lost,
        }
    }

    fn record(&self, begin: Tick, what: What) {
        let is_unknown = matches!(
            what,
            What::Put { outcome: Outcome::Unknown, .. } | What::Delete { outcome: Outcome::Unknown, .. }
        );
        let end = if is_unknown { NEVER } else { self.tick() };
        self.operations.lock().unwrap().push(Operation { begin, end, what });
    }

    fn believe(&self, key: &str, revision: Option<Revision>) {
        self.beliefs.lock().unwrap().insert(key.to_owned(), revision);
    }

    /// One of the shared keys, and the revision that someone saw there last.
    pub(crate) fn any_key(&self) -> (String, Option<Revision>) {
        let key = format!("key-{}", random() % KEYS);
        let belief = self.belief(&key);
        (key, belief)
    }

    /// The revision that someone saw last under a key.
    pub(crate) fn belief(&self, key: &str) -> Option<Revision> {
        self.beliefs.lock().unwrap().get(key).copied().flatten()
    }

    pub(crate) async fn get(&self, maps: &Api<ConfigMap>, key: &str) -> Answer<()> {
        let begin = self.tick();
        let seen = match self.answer(maps.get(key)).await {
            Answer::Done(map) => Some(version(&map)),
            Answer::Refused => None,
            Answer::Failed(status) => return Answer::Failed(status),
            Answer::Lost => return Answer::Lost,
        };
        self.record(begin, What::Get { key: key.to_owned(), seen: seen.clone() });
        self.believe(key, seen.map(|it| it.revision));
        Answer::Done(())
    }

    pub(crate) async fn list(&self, maps: &Api<ConfigMap>) -> Answer<()> {
        let begin = self.tick();
        let list = match self.answer(maps.list(&ListParams::default().labels(LABEL))).await {
            Answer::Done(list) => list,
            Answer::Refused => return Answer::Refused,
            Answer::Failed(status) => return Answer::Failed(status),
            Answer::Lost => return Answer::Lost,
        };
        let at = number(list.metadata.resource_version.as_deref());
        let seen = list.iter().map(|it| (it.name_any(), version(it))).collect();
        self.record(begin, What::List { at, seen });
        Answer::Done(())
    }

    pub(crate) async fn put(
        &self,
        maps: &Api<ConfigMap>,
        key: &str,
        on: Option<Revision>,
    ) -> Answer<Revision> {
        let begin = self.tick();
        let value = begin.to_string();
        let (label, said) = LABEL.split_once('=').expect("a label is a pair");
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(key.to_owned()),
                labels: Some([(label.to_owned(), said.to_owned())].into()),
                resource_version: on.map(|it| it.to_string()),
                ..ObjectMeta::default()
            },
            data: Some([("value".to_owned(), value.clone())].into()),
            ..ConfigMap::default()
        };
        let params = PostParams::default();
        let answer = match on {
            None => self.answer(maps.create(&params, &map)).await,
            Some(_) => self.answer(maps.replace(key, &params, &map)).await,
        };
        let answer = answer.map(|map| version(&map).revision);
        let outcome = answer.outcome(|revision| Some(*revision));
        match outcome {
            Outcome::Done(revision) => self.believe(key, revision),
            Outcome::Refused | Outcome::Unknown => self.believe(key, None),
            Outcome::NotMade => {}
        }
        self.record(begin, What::Put { key: key.to_owned(), value, on, outcome });
        answer
    }

    pub(crate) async fn delete(&self, maps: &Api<ConfigMap>, key: &str, on: Revision) -> Answer<()> {
        let begin = self.tick();
        let resource_version = Some(on.to_string());
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: None, resource_version }),
            ..DeleteParams::default()
        };
        let answer = self.answer(maps.delete(key, &params)).await.map(drop);
        let outcome = answer.outcome(|()| None);
        self.record(begin, What::Delete { key: key.to_owned(), on, outcome });
        self.believe(key, None);
        answer
    }
}

impl<T> Answer<T> {
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Done(it) => Answer::Done(change(it)),
            Self::Refused => Answer::Refused,
            Self::Failed(status) => Answer::Failed(status),
            Self::Lost => Answer::Lost,
        }
    }

    /// What the answer to a write says of the write.
    fn outcome(&self, revision: impl FnOnce(&T) -> Option<Revision>) -> Outcome {
        match self {
            Self::Done(it) => Outcome::Done(revision(it)),
            Self::Refused => Outcome::Refused,
            Self::Failed(status) if matches!(status.code, 429 | 503) || is_store_full(status) => {
                Outcome::NotMade
            }
            Self::Failed(_) | Self::Lost => Outcome::Unknown,
        }
    }
}

/// Whether the server refused a write because its store has no space.
pub(crate) fn is_store_full(status: &Status) -> bool {
    match status.code {
        500 => status.message.contains("the disk is full"),
        503 => status.message.contains("the database of etcd is full"),
        _ => false,
    }
}

/// Goes on from where it was, server after server.
pub(crate) struct Watcher {
    params: WatchParams,
    /// The revision of the last event.
    pub(crate) seen: Arc<AtomicU64>,
    pub(crate) told: Vec<Told>,
}

/// Why a watch ended.
#[derive(Debug)]
pub(crate) enum WatchEnd {
    /// The watcher has come to the revision.
    Reached,
    /// The connection was lost, or could not be opened.
    Lost,
    /// There was no event for too long.
    Silent,
    /// The server answered with an error.
    Refused(Box<Status>),
}

impl Watcher {
    pub(crate) fn new(params: WatchParams, seen: Revision) -> Self {
        Self { params, seen: Arc::new(AtomicU64::new(seen)), told: Vec::new() }
    }

    pub(crate) fn seen(&self) -> Revision {
        self.seen.load(Ordering::Relaxed)
    }

    /// Watches until the watch ends, until there is no event for `silence`, or until a revision.
    pub(crate) async fn watch(
        &mut self,
        maps: &Api<ConfigMap>,
        recorder: &Recorder,
        silence: Duration,
        until: Option<Revision>,
    ) -> WatchEnd {
        let version_seen = self.seen().to_string();
        let opened = tokio::time::timeout(silence, maps.watch(&self.params, &version_seen)).await;
        let mut events = match opened {
            Ok(Ok(events)) => events.boxed(),
            Ok(Err(kube::Error::Api(status))) => return WatchEnd::Refused(status),
            Ok(Err(_)) => return WatchEnd::Lost,
            Err(_) => return WatchEnd::Silent,
        };
        while until.is_none_or(|it| self.seen() < it) {
            let event = match tokio::time::timeout(silence, events.next()).await {
                Ok(Some(Ok(event))) => event,
                Ok(_) => return WatchEnd::Lost,
                Err(_) => return WatchEnd::Silent,
            };
            let at = recorder.tick();
            let (map, is_gone) = match event {
                WatchEvent::Added(map) | WatchEvent::Modified(map) => (map, false),
                WatchEvent::Deleted(map) => (map, true),
                WatchEvent::Bookmark(bookmark) => {
                    let seen = number(Some(&bookmark.metadata.resource_version));
                    self.seen.store(seen, Ordering::Relaxed);
                    continue;
                }
                WatchEvent::Error(status) => return WatchEnd::Refused(status),
            };
            let Version { value, revision } = version(&map);
            self.seen.store(revision, Ordering::Relaxed);
            if map.labels().contains_key("crash") {
                let commit = Commit { revision, key: map.name_any(), value: (!is_gone).then_some(value) };
                self.told.push(Told { at, commit });
            }
        }
        WatchEnd::Reached
    }
}

fn version(map: &ConfigMap) -> Version {
    let value = map.data.as_ref().and_then(|it| it.get("value")).cloned().unwrap_or_default();
    Version { value, revision: number(map.resource_version().as_deref()) }
}

pub(crate) fn number(revision: Option<&str>) -> Revision {
    revision.expect("there is one").parse().expect("it is a number")
}

/// Counts of the operations in words.
pub(crate) fn summary(operations: &[Operation]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for operation in operations {
        let name = match &operation.what {
            What::Get { .. } => "gets",
            What::List { .. } => "lists",
            What::Put { outcome, .. } | What::Delete { outcome, .. } => match outcome {
                Outcome::Done(_) => "writes done",
                Outcome::Refused => "writes refused",
                Outcome::NotMade => "writes not made",
                Outcome::Unknown => "writes without an answer",
            },
        };
        *counts.entry(name).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    counts.join(", ")
}

pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}
