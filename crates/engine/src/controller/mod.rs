//! What all loops but the DaemonSets' have in common: facts come in, keys are looked at, calls go out, one by one.
//!
//! A [`Loop`] decides; a [`Driver`] keeps what is to be looked at and when. Whoever drives it, with a clock and a client,
//! or without either as a simulator, does this:
//!
//! 1. it lists and watches the kinds of [`Loop::watches`], and hands each event to [`Driver::take`];
//! 2. it asks [`Driver::next`] what to do, makes those calls and records those events;
//! 3. it hands each call's outcome to [`Driver::done`], and goes on with 2: at once, and no later than `wake_at`.

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

/// Watches some kinds, and makes of each object what there is to do about it.
pub trait Loop {
    /// An object as this loop keeps it.
    type Fact: Fact;
    /// What is looked at.
    type Key: Ord + Clone;
    /// What it wants done. As text it is for logs and tests.
    type Call: Clone + fmt::Display;

    fn watches(&self) -> Vec<Watch>;

    /// Reads one object of a watched kind.
    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<Self::Fact, Malformed>;

    /// Takes an event in, and says what to look at. Nothing is looked at before every kind is listed.
    fn apply(&mut self, event: Event<Self::Fact>, now: Time) -> Vec<Self::Key>;

    /// What there is to do about a key now. Calls of an earlier look may still be under way: they are not asked for twice.
    fn look(&mut self, key: &Self::Key, now: Time) -> Look<Self::Call>;

    /// What goes over the wire for a call.
    fn request(call: &Self::Call) -> Request;

    /// Takes in what came of a call, and says what to look at.
    fn done(&mut self, call: &Self::Call, outcome: Outcome, now: Time) -> Next<Self::Key>;
}

/// What is kept of an object must say which one it is, and how new.
pub trait Fact {
    /// The namespace is empty where the kind has none.
    fn key(&self) -> ObjectKey;
    fn resource_version(&self) -> u64;
}

/// A kind, as an API server serves it.
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
    /// As objects of the kind, and references to them, name it.
    pub fn api_version(&self) -> String {
        match &*self.group {
            "" => self.version.as_ref().into(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Whether this is what a reference calls `group/version`.
    pub(crate) fn is_version(&self, api_version: &str) -> bool {
        match api_version.split_once('/') {
            Some((group, version)) => *self.group == *group && *self.version == *version,
            None => self.group.is_empty() && *self.version == *api_version,
        }
    }

    /// Where all objects of the kind are, or those of one namespace.
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let (group, version, plural) = (&self.group, &self.version, &self.plural);
        let mut path =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            path = format!("{path}/namespaces/{namespace}");
        }
        format!("{path}/{plural}")
    }

    /// Where one object of the kind is.
    pub fn path(&self, key: &ObjectKey) -> String {
        format!("{}/{}", self.collection(Some(&key.namespace)), segment(&key.name))
    }
}

/// A name as a path has it. What a reference calls its owner may be any text.
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

/// A kind that is listed and watched, in all namespaces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    pub resource: Arc<Resource>,
    /// Nothing but the metadata is asked for.
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

/// What watches bring. The kind is its place among [`Loop::watches`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<F> {
    /// All objects of a kind: what is not among them is gone.
    Listed {
        kind: usize,
        facts: Vec<F>,
    },
    Put {
        kind: usize,
        fact: F,
    },
    /// As it last was.
    Gone {
        kind: usize,
        fact: F,
    },
}

/// What there is to do about a key now.
#[must_use = "calls are made by whoever looks"]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Look<C> {
    pub calls: Vec<C>,
    pub tells: Vec<Tell>,
    /// Look again then, whatever happens or does not. Each look says it anew.
    pub wake_at: Option<Time>,
}

impl<C> Default for Look<C> {
    fn default() -> Self {
        Self { calls: Vec::new(), tells: Vec::new(), wake_at: None }
    }
}

/// A call, ready to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub verb: Verb,
    pub path: String,
    /// `None` where a call only reads.
    pub body: Option<Value>,
    /// Of the answer nothing but the metadata is asked for.
    pub metadata_only: bool,
}

/// What came of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// With what the server answered: an object as JSON, as a rule.
    Done(Vec<u8>),
    Refused(Refusal),
}

/// What follows from an outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Next<K> {
    pub keys: Vec<K>,
    pub tells: Vec<Tell>,
}

impl<K> Default for Next<K> {
    fn default() -> Self {
        Self { keys: Vec::new(), tells: Vec::new() }
    }
}

impl<K> From<Vec<K>> for Next<K> {
    fn from(keys: Vec<K>) -> Self {
        Self { keys, ..Self::default() }
    }
}

/// A Kubernetes event to record on an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tell {
    pub about: Reference,
    pub event: plan::Event,
}

/// An object by all its names, as events have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reference {
    pub api_version: Text,
    pub kind: Text,
    /// The namespace is empty where the kind has none.
    pub key: ObjectKey,
    pub uid: Text,
    /// Zero where nobody knows.
    pub resource_version: u64,
}

/// What to do next.
#[must_use = "calls are made by whoever drives"]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step<C> {
    pub calls: Vec<C>,
    pub tells: Vec<Tell>,
    /// Ask again then, whatever happens or does not.
    pub wake_at: Option<Time>,
}

/// Keeps what a loop is to look at, and when.
#[derive(Debug)]
pub struct Driver<L: Loop> {
    inner: L,
    /// Kinds whose first list has not come.
    missing: BTreeSet<usize>,
    queue: BTreeSet<L::Key>,
    /// Keys to look at later, whatever happens, by key and by time.
    wakes: BTreeMap<L::Key, Time>,
    due: BTreeSet<(Time, L::Key)>,
    /// When it was last asked.
    asked_at: Time,
    /// Calls that wait for their turn.
    ready: VecDeque<L::Call>,
    under_way: usize,
    calls_max: usize,
    tells: Vec<Tell>,
}

impl<L: Loop> Driver<L> {
    /// At most `calls_max` calls are under way at once.
    pub fn new(inner: L, calls_max: usize) -> Self {
        assert!(0 < calls_max, "a loop that makes no calls does nothing");
        Self {
            missing: (0..inner.watches().len()).collect(),
            inner,
            queue: BTreeSet::new(),
            wakes: BTreeMap::new(),
            due: BTreeSet::new(),
            asked_at: Time::default(),
            ready: VecDeque::new(),
            under_way: 0,
            calls_max,
            tells: Vec::new(),
        }
    }

    pub fn inner(&self) -> &L {
        &self.inner
    }

    pub fn is_synced(&self) -> bool {
        self.missing.is_empty()
    }

    pub fn take(&mut self, event: Event<L::Fact>, now: Time) {
        if let Event::Listed { kind, .. } = &event {
            self.missing.remove(kind);
        }
        self.queue.extend(self.inner.apply(event, now));
    }

    /// Rule: when the clock was set back, everything that waits is looked at: no wait becomes longer by it.
    pub fn next(&mut self, now: Time) -> Step<L::Call> {
        if self.is_synced() {
            let was_set_back = now < self.asked_at;
            self.asked_at = now;
            while let Some((at, _)) = self.due.first()
                && (*at <= now || was_set_back)
            {
                let (_, key) = self.due.pop_first().expect("it is the first");
                self.wakes.remove(&key);
                self.queue.insert(key);
            }
            while let Some(key) = self.queue.pop_first() {
                let look = self.inner.look(&key, now);
                self.tells.extend(look.tells);
                self.ready.extend(look.calls);
                self.wake(key, look.wake_at);
            }
        }
        let room = self.calls_max.saturating_sub(self.under_way).min(self.ready.len());
        self.under_way += room;
        Step {
            calls: self.ready.drain(..room).collect(),
            tells: core::mem::take(&mut self.tells),
            wake_at: self.due.first().map(|(at, _)| *at).filter(|_| self.is_synced()),
        }
    }

    pub fn done(&mut self, call: &L::Call, outcome: Outcome, now: Time) {
        self.under_way = self.under_way.saturating_sub(1);
        let next = self.inner.done(call, outcome, now);
        self.queue.extend(next.keys);
        self.tells.extend(next.tells);
    }

    fn wake(&mut self, key: L::Key, at: Option<Time>) {
        if let Some(before) = self.wakes.remove(&key) {
            self.due.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.due.insert((at, key.clone()));
            self.wakes.insert(key, at);
        }
    }
}

/// One line of a watch, of any kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Watched<F> {
    Put(F),
    Gone(F),
    Bookmark {
        resource_version: u64,
        /// What there was when the watch began has been told: from here on it tells changes.
        ends_list: bool,
    },
    /// The server ended the watch; 410 means that the history was compacted away and a list is due.
    Error {
        code: i64,
        message: String,
    },
}

/// Reads one line of a watch: `{"type":…,"object":…}`.
pub fn watched<L: Loop>(
    watch: &Watch,
    line: &[u8],
    shared: &mut Interner,
) -> Result<Watched<L::Fact>, Malformed> {
    facts::line(&watch.resource.plural, line, |event, object| {
        Ok(match event {
            facts::Told::Put => Watched::Put(L::decode(watch, object, shared)?),
            facts::Told::Gone => Watched::Gone(L::decode(watch, object, shared)?),
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

    /// Copies whatever is marked, one call each, and tries again a second after a refusal.
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

    impl Loop for Copier {
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
            let name = shared.text(value["name"].as_str().unwrap_or_default());
            Ok(Mark(ObjectKey::new("a", name), value["version"].as_u64().unwrap_or_default()))
        }

        fn apply(&mut self, event: Event<Mark>, _: Time) -> Vec<Text> {
            let marks = match event {
                Event::Listed { facts, .. } => facts,
                Event::Put { fact, .. } => [fact].into(),
                Event::Gone { fact, .. } => {
                    self.marked.remove(&fact.0.name);
                    return Vec::new();
                }
            };
            let names: Vec<Text> = marks.into_iter().map(|it| it.0.name).collect();
            self.marked.extend(names.iter().map(|it| (it.clone(), None)));
            names
        }

        fn look(&mut self, key: &Text, now: Time) -> Look<Text> {
            let Some(not_before) = self.marked.get(key) else { return Look::default() };
            if let Some(wake_at) = not_before.filter(|it| now < *it) {
                return Look { wake_at: Some(wake_at), ..Look::default() };
            }
            let calls = if self.asked.insert(key.clone()) { [key.clone()].into() } else { Vec::new() };
            Look { calls, ..Look::default() }
        }

        fn request(_: &Text) -> Request {
            unreachable!("nothing is sent here")
        }

        fn done(&mut self, call: &Text, outcome: Outcome, now: Time) -> Next<Text> {
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

    fn step(driver: &mut Driver<Copier>, now_s: i64, told: Expect) {
        let step = driver.next(Time::from_secs(now_s));
        let wake_at = step.wake_at.map_or_else(|| "-".to_string(), |it| it.to_rfc3339());
        told.assert_eq(&format!("{} | {wake_at}", step.calls.join(" ")));
    }

    #[test]
    fn nothing_is_done_before_all_is_listed_and_never_more_at_once_than_may_be() {
        let mut driver = Driver::new(Copier::default(), 2);
        driver.take(listed(0, &["x", "y", "z"]), Time::from_secs(0));
        step(&mut driver, 0, expect![" | -"]);
        driver.take(listed(1, &[]), Time::from_secs(0));
        step(&mut driver, 0, expect!["x y | -"]);
        step(&mut driver, 0, expect![" | -"]);
        driver.done(&"x".into(), Outcome::Refused(Refusal::NoAnswer), Time::from_secs(5));
        step(&mut driver, 5, expect!["z | 1970-01-01T00:00:06Z"]);
        driver.done(&"y".into(), Outcome::Done(Vec::new()), Time::from_secs(5));
        step(&mut driver, 5, expect![" | 1970-01-01T00:00:06Z"]);
        step(&mut driver, 6, expect!["x | -"]);
    }

    #[test]
    fn a_clock_that_is_set_back_delays_nothing() {
        let mut driver = Driver::new(Copier::default(), 2);
        driver.take(listed(0, &["x"]), Time::from_secs(5000));
        driver.take(listed(1, &[]), Time::from_secs(5000));
        step(&mut driver, 5000, expect!["x | -"]);
        driver.done(&"x".into(), Outcome::Refused(Refusal::NoAnswer), Time::from_secs(5000));
        step(&mut driver, 5000, expect![" | 1970-01-01T01:23:21Z"]);
        // An hour back: the loop decides whether to wait on, but it must be called.
        driver.inner.marked.insert("x".into(), None);
        step(&mut driver, 1401, expect!["x | -"]);
    }

    #[test]
    fn a_line_of_a_watch() {
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
    fn where_objects_are() {
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
