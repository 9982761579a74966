//! What all controllers but the DaemonSet controller share: facts in, keys to reconcile, API calls out.
//!
//! A [`Controller`] decides; a [`WorkQueue`] holds the keys to reconcile. Neither does IO. A runner, which has a clock and
//! an API client or is the simulator, drives them:
//!
//! 1. it lists and watches the kinds of [`Controller::watches`], and passes each event to [`WorkQueue::apply`];
//! 2. it calls [`WorkQueue::next`], makes the calls that it returns and records the events;
//! 3. it passes each call's outcome to [`WorkQueue::done`] and repeats 2: at once, and no later than `wake_at`.

pub mod events;
pub mod lease;
pub(crate) mod retry;
#[cfg(test)]
pub(crate) mod test_cluster;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use muster_api::interner::Interner;
use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use serde_json::Value;

use crate::daemonset::execution::Refusal;
use crate::daemonset::facts::{self, Malformed};
use crate::daemonset::manifest::Verb;
use crate::daemonset::plan;

/// Watches some kinds, keeps facts about their objects, and returns for a key which calls to make. Upstream: a controller
/// of kube-controller-manager; `Reconciler` in controller-runtime.
pub trait Controller {
    /// What the controller keeps of an object.
    type Fact: Fact;
    /// What is reconciled.
    type Key: Ord + Clone;
    /// A call that the controller wants to be made. `Display` is for logs and tests.
    type Call: Clone + fmt::Display;

    fn watches(&self) -> Vec<Watch>;

    /// Reads one object of a watched kind.
    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<Self::Fact, Malformed>;

    /// Updates the facts and returns the keys to reconcile. Nothing is reconciled before every kind is listed.
    fn apply(&mut self, event: Event<Self::Fact>, now: Time) -> Vec<Self::Key>;

    /// Returns what to do about a key now. Calls of an earlier pass may still be in flight: they are not returned twice.
    fn reconcile(&mut self, key: &Self::Key, now: Time) -> Reconcile<Self::Call>;

    /// The API request of a call.
    fn request(call: &Self::Call) -> Request;

    /// Applies the outcome of a call and returns the keys to reconcile.
    fn done(&mut self, call: &Self::Call, outcome: Outcome, now: Time) -> Requeue<Self::Key>;
}

/// What a controller keeps of an object.
pub trait Fact {
    /// The namespace is empty for a cluster-scoped kind.
    fn key(&self) -> ObjectKey;
    fn resource_version(&self) -> u64;
}

/// A kind as the API server serves it. Upstream: `APIResource`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Resource {
    /// Empty for the core group.
    pub group: Text,
    pub version: Text,
    pub kind: Text,
    pub plural: Text,
    pub namespaced: bool,
}

impl Resource {
    /// The `apiVersion` of objects of the kind.
    pub fn api_version(&self) -> String {
        match &*self.group {
            "" => self.version.as_ref().into(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Whether the `apiVersion` of an owner reference is this group and version.
    pub(crate) fn is_version(&self, api_version: &str) -> bool {
        match api_version.split_once('/') {
            Some((group, version)) => *self.group == *group && *self.version == *version,
            None => self.group.is_empty() && *self.version == *api_version,
        }
    }

    /// The URL path of the collection, in all namespaces or in one.
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let (group, version, plural) = (&self.group, &self.version, &self.plural);
        let mut path =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            path = format!("{path}/namespaces/{namespace}");
        }
        format!("{path}/{plural}")
    }

    /// The URL path of one object.
    pub fn path(&self, key: &ObjectKey) -> String {
        format!("{}/{}", self.collection(Some(&key.namespace)), segment(&key.name))
    }
}

/// Percent-encodes a name: the name in an owner reference may be any text.
fn segment(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                text.push(char::from(byte))
            }
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

/// A kind that a controller lists and watches in all namespaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    pub resource: Arc<Resource>,
    /// Only metadata is requested (`PartialObjectMetadata`).
    pub metadata_only: bool,
}

impl Watch {
    pub fn whole(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        let resource = Resource {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
            namespaced,
        };
        Self { resource: Arc::new(resource), metadata_only: false }
    }

    pub fn metadata(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        Self { metadata_only: true, ..Self::whole(group, version, kind, plural, namespaced) }
    }
}

/// What a list or watch returned. `kind` is an index into [`Controller::watches`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<F> {
    /// All objects of a kind; every other object is deleted.
    Listed { kind: usize, facts: Vec<F> },
    /// Added or modified.
    Applied { kind: usize, fact: F },
    /// With the last state of the object.
    Deleted { kind: usize, fact: F },
}

/// The result of a reconcile: the calls to make, the events to record, and when to reconcile again.
#[must_use = "the runner makes the calls"]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reconcile<C> {
    pub calls: Vec<C>,
    pub events: Vec<EventRecord>,
    /// Reconcile again then, even if nothing happens. Replaces the time of the previous reconcile.
    pub wake_at: Option<Time>,
}

impl<C> Default for Reconcile<C> {
    fn default() -> Self {
        Self { calls: Vec::new(), events: Vec::new(), wake_at: None }
    }
}

/// An API request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub verb: Verb,
    pub path: String,
    /// `None` for a read.
    pub body: Option<Value>,
    /// Only metadata is requested (`PartialObjectMetadata`).
    pub metadata_only: bool,
}

/// The outcome of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// With the body of the response, usually an object.
    Done(Vec<u8>),
    Refused(Refusal),
}

/// The keys to reconcile after a call, and the events to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requeue<K> {
    pub keys: Vec<K>,
    pub events: Vec<EventRecord>,
}

impl<K> Default for Requeue<K> {
    fn default() -> Self {
        Self { keys: Vec::new(), events: Vec::new() }
    }
}

impl<K> From<Vec<K>> for Requeue<K> {
    fn from(keys: Vec<K>) -> Self {
        Self { keys, ..Self::default() }
    }
}

/// A Kubernetes Event to record, and the object it is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventRecord {
    pub about: ObjectReference,
    pub event: plan::Event,
}

/// Kind, namespace, name and UID of an object. Upstream: `ObjectReference`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectReference {
    pub api_version: Text,
    pub kind: Text,
    /// The namespace is empty for a cluster-scoped kind.
    pub key: ObjectKey,
    pub uid: Text,
    /// Zero if unknown.
    pub resource_version: u64,
}

/// The keys that a controller is to reconcile now and later, without duplicates, and the calls in flight.
#[derive(Debug)]
pub struct WorkQueue<C: Controller> {
    controller: C,
    /// Kinds that are not listed yet.
    missing: BTreeSet<usize>,
    queue: BTreeSet<C::Key>,
    /// Keys to reconcile later even if nothing happens, by key and by time.
    wakes: BTreeMap<C::Key, Time>,
    due: BTreeSet<(Time, C::Key)>,
    /// The time of the last call of `next`.
    last_now: Time,
    /// Calls that wait until fewer are in flight.
    ready: VecDeque<C::Call>,
    in_flight: usize,
    calls_max: usize,
    events: Vec<EventRecord>,
}

impl<C: Controller> WorkQueue<C> {
    /// At most `calls_max` calls are in flight at once.
    pub fn new(controller: C, calls_max: usize) -> Self {
        assert!(0 < calls_max, "a controller must be allowed at least one call");
        Self {
            missing: (0..controller.watches().len()).collect(),
            controller,
            queue: BTreeSet::new(),
            wakes: BTreeMap::new(),
            due: BTreeSet::new(),
            last_now: Time::default(),
            ready: VecDeque::new(),
            in_flight: 0,
            calls_max,
            events: Vec::new(),
        }
    }

    pub fn controller(&self) -> &C {
        &self.controller
    }

    pub fn is_synced(&self) -> bool {
        self.missing.is_empty()
    }

    pub fn apply(&mut self, event: Event<C::Fact>, now: Time) {
        if let Event::Listed { kind, .. } = &event {
            self.missing.remove(kind);
        }
        self.queue.extend(self.controller.apply(event, now));
    }

    /// Returns the calls to make now, the events to record, and when to call this again.
    ///
    /// Rule: when the clock was set back, every waiting key is reconciled, so that no wait becomes longer.
    pub fn next(&mut self, now: Time) -> Reconcile<C::Call> {
        if self.is_synced() {
            let was_set_back = now < self.last_now;
            self.last_now = now;
            while let Some((at, _)) = self.due.first()
                && (*at <= now || was_set_back)
            {
                let (_, key) = self.due.pop_first().expect("it is the first");
                self.wakes.remove(&key);
                self.queue.insert(key);
            }
            while let Some(key) = self.queue.pop_first() {
                let reconcile = self.controller.reconcile(&key, now);
                self.events.extend(reconcile.events);
                self.ready.extend(reconcile.calls);
                self.wake(key, reconcile.wake_at);
            }
        }
        let allowed = self.calls_max.saturating_sub(self.in_flight).min(self.ready.len());
        self.in_flight += allowed;
        Reconcile {
            calls: self.ready.drain(..allowed).collect(),
            events: core::mem::take(&mut self.events),
            wake_at: self.due.first().map(|(at, _)| *at).filter(|_| self.is_synced()),
        }
    }

    pub fn done(&mut self, call: &C::Call, outcome: Outcome, now: Time) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let requeue = self.controller.done(call, outcome, now);
        self.queue.extend(requeue.keys);
        self.events.extend(requeue.events);
    }

    fn wake(&mut self, key: C::Key, at: Option<Time>) {
        if let Some(before) = self.wakes.remove(&key) {
            self.due.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.due.insert((at, key.clone()));
            self.wakes.insert(key, at);
        }
    }
}

/// One line of a watch, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Watched<F> {
    Put(F),
    Gone(F),
    Bookmark {
        resource_version: u64,
        /// All objects that existed when the watch began have been sent (`k8s.io/initial-events-end`).
        ends_list: bool,
    },
    /// The server ended the watch; 410 means that the history was compacted and a new list is needed.
    Error {
        code: i64,
        message: String,
    },
}

/// Decodes one line of a watch: `{"type":…,"object":…}`.
pub fn watched<C: Controller>(
    watch: &Watch,
    line: &[u8],
    shared: &mut Interner,
) -> Result<Watched<C::Fact>, Malformed> {
    facts::line(&watch.resource.plural, line, |event, object| {
        Ok(match event {
            facts::Told::Put => Watched::Put(C::decode(watch, object, shared)?),
            facts::Told::Gone => Watched::Gone(C::decode(watch, object, shared)?),
            facts::Told::Bookmark { resource_version, ends_list } => {
                Watched::Bookmark { resource_version, ends_list }
            }
            facts::Told::Error { code, message } => Watched::Error { code, message },
        })
    })
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;
    use core::time::Duration;

    use expect_test::{Expect, expect};

    use super::*;

    /// Makes one call for each marked object, and retries a failed call after a second.
    #[derive(Debug, Default)]
    struct Copier {
        marked: BTreeMap<Text, Option<Time>>,
        asked: BTreeSet<Text>,
    }

    #[derive(Clone, PartialEq, Eq, Debug)]
    struct Mark(ObjectKey, u64);

    impl Fact for Mark {
        fn key(&self) -> ObjectKey {
            self.0.clone()
        }

        fn resource_version(&self) -> u64 {
            self.1
        }
    }

    impl Controller for Copier {
        type Fact = Mark;
        type Key = Text;
        type Call = Text;

        fn watches(&self) -> Vec<Watch> {
            [
                Watch::whole("", "v1", "ConfigMap", "configmaps", true),
                Watch::metadata("", "v1", "Node", "nodes", false),
            ]
            .into()
        }

        fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<Mark, Malformed> {
            let value: Value =
                serde_json::from_slice(object).map_err(|it| Malformed::new(&watch.resource.plural, it))?;
            let name = shared.intern_text(value["name"].as_str().unwrap_or_default());
            Ok(Mark(ObjectKey::new("a", name), value["version"].as_u64().unwrap_or_default()))
        }

        fn apply(&mut self, event: Event<Mark>, _: Time) -> Vec<Text> {
            let marks = match event {
                Event::Listed { facts, .. } => facts,
                Event::Applied { fact, .. } => [fact].into(),
                Event::Deleted { fact, .. } => {
                    self.marked.remove(&fact.0.name);
                    return Vec::new();
                }
            };
            let names: Vec<Text> = marks.into_iter().map(|it| it.0.name).collect();
            self.marked.extend(names.iter().map(|it| (it.clone(), None)));
            names
        }

        fn reconcile(&mut self, key: &Text, now: Time) -> Reconcile<Text> {
            let Some(not_before) = self.marked.get(key) else { return Reconcile::default() };
            if let Some(wake_at) = not_before.filter(|it| now < *it) {
                return Reconcile { wake_at: Some(wake_at), ..Reconcile::default() };
            }
            let calls = if self.asked.insert(key.clone()) { [key.clone()].into() } else { Vec::new() };
            Reconcile { calls, ..Reconcile::default() }
        }

        fn request(_: &Text) -> Request {
            unreachable!("this test sends nothing")
        }

        fn done(&mut self, call: &Text, outcome: Outcome, now: Time) -> Requeue<Text> {
            self.asked.remove(call);
            self.marked.remove(call);
            if matches!(outcome, Outcome::Refused(_)) {
                self.marked.insert(call.clone(), Some(now + Duration::from_secs(1)));
            }
            Vec::from([call.clone()]).into()
        }
    }

    fn listed(kind: usize, names: &[&str]) -> Event<Mark> {
        Event::Listed { kind, facts: names.iter().map(|it| Mark(ObjectKey::new("a", *it), 1)).collect() }
    }

    fn step(queue: &mut WorkQueue<Copier>, now_s: i64, expected: Expect) {
        let step = queue.next(Time::from_secs(now_s));
        let wake_at = step.wake_at.map_or_else(|| "-".to_string(), |it| it.to_rfc3339());
        expected.assert_eq(&format!("{} | {wake_at}", step.calls.join(" ")));
    }

    #[test]
    fn calls_wait_for_all_lists_and_for_the_limit_of_calls_in_flight() {
        let mut queue = WorkQueue::new(Copier::default(), 2);
        queue.apply(listed(0, &["x", "y", "z"]), Time::from_secs(0));
        step(&mut queue, 0, expect![" | -"]);
        queue.apply(listed(1, &[]), Time::from_secs(0));
        step(&mut queue, 0, expect!["x y | -"]);
        step(&mut queue, 0, expect![" | -"]);
        queue.done(&"x".into(), Outcome::Refused(Refusal::NoAnswer), Time::from_secs(5));
        step(&mut queue, 5, expect!["z | 1970-01-01T00:00:06Z"]);
        queue.done(&"y".into(), Outcome::Done(Vec::new()), Time::from_secs(5));
        step(&mut queue, 5, expect![" | 1970-01-01T00:00:06Z"]);
        step(&mut queue, 6, expect!["x | -"]);
    }

    #[test]
    fn a_clock_set_back_delays_no_key() {
        let mut queue = WorkQueue::new(Copier::default(), 2);
        queue.apply(listed(0, &["x"]), Time::from_secs(5000));
        queue.apply(listed(1, &[]), Time::from_secs(5000));
        step(&mut queue, 5000, expect!["x | -"]);
        queue.done(&"x".into(), Outcome::Refused(Refusal::NoAnswer), Time::from_secs(5000));
        step(&mut queue, 5000, expect![" | 1970-01-01T01:23:21Z"]);
        // An hour back: the key is reconciled, and the controller decides whether to wait.
        queue.controller.marked.insert("x".into(), None);
        step(&mut queue, 1401, expect!["x | -"]);
    }

    #[test]
    fn a_watch_line_is_decoded() {
        let watch = &Copier::default().watches()[0];
        let read = |line: &str| watched::<Copier>(watch, line.as_bytes(), &mut Interner::default());
        let mark = || Mark(ObjectKey::new("a", "x"), 4);
        let put = read(r#"{"type":"ADDED","object":{"name":"x","version":4}}"#).unwrap();
        assert_eq!(put, Watched::Put(mark()));
        let gone = read(r#"{ "object": {"name":"x","version":4}, "type": "DELETED"}"#).unwrap();
        assert_eq!(gone, Watched::Gone(mark()));
        let error = read(r#"{"type":"ADDED","object":[}}"#).unwrap_err().to_string();
        assert!(error.starts_with("read an object of configmaps: "), "{error}");
    }

    #[test]
    fn url_paths_of_objects() {
        let paths = Copier::default().watches().into_iter().map(|it| it.resource);
        let paths: Vec<String> =
            paths.flat_map(|it| [it.collection(None), it.path(&ObjectKey::new("a", "b/c"))]).collect();
        expect![[r#"
            /api/v1/configmaps
            /api/v1/namespaces/a/configmaps/b%2Fc
            /api/v1/nodes
            /api/v1/nodes/b%2Fc"#]]
        .assert_eq(&paths.join("\n"));
    }
}
