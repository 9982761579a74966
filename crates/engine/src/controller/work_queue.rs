//! The work queue of a controller. Upstream: `workqueue.TypedRateLimitingInterface`.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::time::Time;

use super::{Controller, Event, EventRecord, Measurement, MeasurementResult, Outcome, Reconcile};

/// A controller and its pending work: the keys to reconcile now or later (without duplicates), and the calls,
/// measurements and events that the runner has not taken yet.
#[derive(Debug)]
pub struct WorkQueue<C: Controller> {
    controller: C,
    /// Kinds that have not been listed yet and are not known to be forbidden, as indexes in [`Controller::watches`].
    unlisted_kinds: BTreeSet<usize>,
    /// Keys to reconcile now, each with the time at which it was queued.
    queue: BTreeMap<C::Key, Time>,
    /// Keys that were due while [`Controller::may_reconcile`] was false for them, oldest first. Each key is reconciled
    /// once that function is true for it.
    deferred: VecDeque<C::Key>,
    /// The time at which each key of `deferred` was queued.
    deferred_since: BTreeMap<C::Key, Time>,
    /// Keys to reconcile later, each with the time at which it is reconciled even if no event enqueues it.
    wakes: BTreeMap<C::Key, Time>,
    /// The entries of `wakes` sorted by time, earliest first.
    wakes_by_time: BTreeSet<(Time, C::Key)>,
    /// The `now` of the last call of [`WorkQueue::enqueue_due`]. It shows whether the clock was set back.
    last_now: Time,
    /// Calls to make as soon as fewer than `calls_max` calls are in flight.
    ready: VecDeque<C::Call>,
    in_flight: usize,
    /// Maximum number of calls in flight.
    calls_max: usize,
    /// Measurements of rollout checks to start. The next call of [`WorkQueue::take_work`] returns these measurements.
    measurements: Vec<Arc<Measurement>>,
    events: Vec<EventRecord>,
    /// Whether the runner must list every kind again. The next call of [`WorkQueue::take_work`] returns this flag and
    /// resets it.
    relist: bool,
}

impl<C: Controller> WorkQueue<C> {
    /// Creates a work queue that allows at most `calls_max` calls in flight.
    pub fn new(controller: C, calls_max: usize) -> Self {
        assert!(0 < calls_max, "a controller must be allowed at least one call");
        Self {
            unlisted_kinds: (0..controller.watches().len()).collect(),
            controller,
            queue: BTreeMap::new(),
            deferred: VecDeque::new(),
            deferred_since: BTreeMap::new(),
            wakes: BTreeMap::new(),
            wakes_by_time: BTreeSet::new(),
            last_now: Time::default(),
            ready: VecDeque::new(),
            in_flight: 0,
            calls_max,
            measurements: Vec::new(),
            events: Vec::new(),
            relist: false,
        }
    }

    /// Returns the controller whose keys are in the queue.
    pub fn controller(&self) -> &C {
        &self.controller
    }

    /// Whether every watched kind was listed, or is optional and forbidden, so that keys may be reconciled.
    pub fn is_synced(&self) -> bool {
        self.unlisted_kinds.is_empty()
    }

    /// Returns the number of keys to reconcile now, including those that [`Controller::may_reconcile`] does not allow
    /// yet.
    pub fn len(&self) -> usize {
        self.queue.len() + self.deferred.len()
    }

    /// Whether there is no key to reconcile now. Keys that [`Controller::may_reconcile`] does not allow yet count, but
    /// keys that wait for their time do not.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a key is queued to be reconciled now, even if [`Controller::may_reconcile`] does not allow it yet.
    pub fn is_queued(&self, key: &C::Key) -> bool {
        self.queue.contains_key(key) || self.deferred_since.contains_key(key)
    }

    /// Returns the time at which a key is reconciled even if no event enqueues it. `None` if no such time is set.
    pub fn wake_at(&self, key: &C::Key) -> Option<Time> {
        self.wakes.get(key).copied()
    }

    /// Returns the number of calls that the runner has received and whose outcome it has not reported yet.
    pub fn calls_in_flight(&self) -> usize {
        self.in_flight
    }

    /// Passes an event to the controller, and enqueues the keys to reconcile.
    pub fn apply(&mut self, event: Event<C::DecodedObject>, now: Time) {
        if let Event::Listed { kind, .. } = &event {
            self.unlisted_kinds.remove(kind);
        }
        let keys = self.controller.apply(event, now);
        self.enqueue(keys, now);
    }

    /// Passes a bookmark of a watch to the controller, and enqueues the keys to reconcile. `kind` is an index in
    /// [`Controller::watches`].
    pub fn apply_bookmark(&mut self, kind: usize, resource_version: u64, now: Time) {
        let keys = self.controller.apply_bookmark(kind, resource_version);
        self.enqueue(keys, now);
    }

    /// Tells the controller that the API server forbids it to list an optional kind, and enqueues the keys to
    /// reconcile. `kind` is an index in [`Controller::watches`].
    pub fn on_forbidden(&mut self, kind: usize, now: Time) {
        self.unlisted_kinds.remove(&kind);
        let keys = self.controller.on_forbidden(kind);
        self.enqueue(keys, now);
    }

    /// Reconciles every key that is due. Returns the work for the runner, as [`WorkQueue::take_work`] does.
    pub fn reconcile_due(&mut self, now: Time) -> Reconcile<C::Call> {
        self.enqueue_due(now);
        while let Some((key, _)) = self.next_key(now) {
            self.reconcile(&key, now);
        }
        self.take_work()
    }

    /// Enqueues the keys whose wake time has come. Does nothing before [`WorkQueue::is_synced`].
    ///
    /// Rule: after the clock was set back, every key with a wake time is reconciled at once, so that no key waits
    /// longer.
    pub fn enqueue_due(&mut self, now: Time) {
        if !self.is_synced() {
            return;
        }
        let was_set_back = now < self.last_now;
        self.last_now = now;
        while let Some((at, _)) = self.wakes_by_time.first()
            && (*at <= now || was_set_back)
        {
            let (_, key) = self.wakes_by_time.pop_first().expect("it is the first");
            self.wakes.remove(&key);
            self.enqueue([key].into(), now);
        }
    }

    /// Removes the next key to reconcile from the queue. Returns this key and the time at which it was queued. `None`
    /// before [`WorkQueue::is_synced`], or if no queued key may be reconciled now. Queued keys that
    /// [`Controller::may_reconcile`] does not allow are deferred.
    pub fn next_key(&mut self, now: Time) -> Option<(C::Key, Time)> {
        if !self.is_synced() {
            return None;
        }
        if let Some(at) = self.deferred.iter().position(|key| self.controller.may_reconcile(key))
            && let Some(key) = self.deferred.remove(at)
        {
            let since = self.deferred_since.remove(&key).unwrap_or(now);
            return Some((key, since));
        }
        while let Some((key, since)) = self.queue.pop_first() {
            if self.controller.may_reconcile(&key) {
                return Some((key, since));
            }
            self.deferred.push_back(key.clone());
            self.deferred_since.insert(key, since);
        }
        None
    }

    /// Reconciles a key. Later calls of [`WorkQueue::take_work`] return the resulting calls, measurements and events.
    pub fn reconcile(&mut self, key: &C::Key, now: Time) {
        let reconcile = self.controller.reconcile(key, now);
        self.events.extend(reconcile.events);
        self.ready.extend(reconcile.calls);
        self.measurements.extend(reconcile.measurements);
        self.relist |= reconcile.relist;
        self.set_wake_time(key.clone(), reconcile.wake_at);
    }

    /// Returns what the runner does next: the calls to make within the limit of calls in flight, the measurements to
    /// start, the events to record, the time at which the next key is due, and whether to list every kind again.
    /// Removes all of these from the work queue, except for the time. Reconciles no key.
    pub fn take_work(&mut self) -> Reconcile<C::Call> {
        let allowed = self.calls_max.saturating_sub(self.in_flight).min(self.ready.len());
        self.in_flight += allowed;
        Reconcile {
            calls: self.ready.drain(..allowed).collect(),
            measurements: core::mem::take(&mut self.measurements),
            events: core::mem::take(&mut self.events),
            wake_at: self.wakes_by_time.first().map(|(at, _)| *at).filter(|_| self.is_synced()),
            relist: core::mem::take(&mut self.relist),
        }
    }

    /// Passes the outcome of a call to the controller, and enqueues the keys to reconcile.
    pub fn apply_outcome(&mut self, call: &C::Call, outcome: Outcome, now: Time) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let requeue = self.controller.apply_outcome(call, outcome, now);
        self.events.extend(requeue.events);
        self.enqueue(requeue.keys, now);
    }

    /// Passes the result of a measurement of a rollout check to the controller, and enqueues the keys to reconcile.
    pub fn apply_measurement(&mut self, measurement: &Measurement, measured: &MeasurementResult, now: Time) {
        let keys = self.controller.apply_measurement(measurement, measured, now);
        self.enqueue(keys, now);
    }

    /// Recovers from a panic in [`WorkQueue::reconcile`] or [`WorkQueue::apply_outcome`], and retries the key later.
    /// Returns `false` if the controller cannot recover.
    pub fn recover(&mut self, key: &C::Key, now: Time) -> bool {
        let Some(at) = self.controller.recover(key, now) else { return false };
        self.set_wake_time(key.clone(), Some(at));
        true
    }

    /// Adds keys to the queue, unless they are queued already.
    fn enqueue(&mut self, keys: Vec<C::Key>, now: Time) {
        for key in keys {
            if !self.deferred_since.contains_key(&key) {
                self.queue.entry(key).or_insert(now);
            }
        }
    }

    /// Sets the time at which a key is reconciled even if no event enqueues it. It replaces the previous time. `None`
    /// removes the time.
    fn set_wake_time(&mut self, key: C::Key, at: Option<Time>) {
        if let Some(before) = self.wakes.remove(&key) {
            self.wakes_by_time.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.wakes_by_time.insert((at, key.clone()));
            self.wakes.insert(key, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;
    use core::time::Duration;

    use expect_test::{Expect, expect};
    use serde_json::Value;

    use alloc::format;
    use alloc::string::String;
    use muster_api::interner::Interner;
    use muster_api::object_key::ObjectKey;
    use muster_api::text::Text;

    use super::*;
    use crate::controller::{
        CallError, DecodedObject, Malformed, Request, Requeue, Watch, WatchEvent, decode_watch_event,
    };

    /// Makes one call for each marked object, and retries a failed call after a second.
    #[derive(Debug, Default)]
    struct Copier {
        marked: BTreeMap<Text, Option<Time>>,
        asked: BTreeSet<Text>,
    }

    #[derive(Clone, PartialEq, Eq, Debug)]
    struct Mark(ObjectKey, u64);

    impl DecodedObject for Mark {
        fn key(&self) -> ObjectKey {
            self.0.clone()
        }

        fn resource_version(&self) -> u64 {
            self.1
        }
    }

    impl Controller for Copier {
        type DecodedObject = Mark;
        type Key = Text;
        type Call = Text;

        fn watches(&self) -> Vec<Watch> {
            [
                Watch::whole_objects("", "v1", "ConfigMap", "configmaps", true),
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

        fn apply_outcome(&mut self, call: &Text, outcome: Outcome, now: Time) -> Requeue<Text> {
            self.asked.remove(call);
            self.marked.remove(call);
            if matches!(outcome, Outcome::Refused(_)) {
                self.marked.insert(call.clone(), Some(now + Duration::from_secs(1)));
            }
            Vec::from([call.clone()]).into()
        }
    }

    fn listed(kind: usize, names: &[&str]) -> Event<Mark> {
        let facts = names.iter().map(|it| Mark(ObjectKey::new("a", *it), 1)).collect();
        Event::Listed { kind, facts, resource_version: 1 }
    }

    fn step(queue: &mut WorkQueue<Copier>, now_s: i64, expected: Expect) {
        let step = queue.reconcile_due(Time::from_secs(now_s));
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
        queue.apply_outcome(&"x".into(), Outcome::Refused(CallError::NoAnswer), Time::from_secs(5));
        step(&mut queue, 5, expect!["z | 1970-01-01T00:00:06Z"]);
        queue.apply_outcome(&"y".into(), Outcome::Done(Vec::new()), Time::from_secs(5));
        step(&mut queue, 5, expect![" | 1970-01-01T00:00:06Z"]);
        step(&mut queue, 6, expect!["x | -"]);
    }

    #[test]
    fn a_clock_set_back_delays_no_key() {
        let mut queue = WorkQueue::new(Copier::default(), 2);
        queue.apply(listed(0, &["x"]), Time::from_secs(5000));
        queue.apply(listed(1, &[]), Time::from_secs(5000));
        step(&mut queue, 5000, expect!["x | -"]);
        queue.apply_outcome(&"x".into(), Outcome::Refused(CallError::NoAnswer), Time::from_secs(5000));
        step(&mut queue, 5000, expect![" | 1970-01-01T01:23:21Z"]);
        // An hour back: the key is reconciled, and the controller decides whether to wait.
        queue.controller.marked.insert("x".into(), None);
        step(&mut queue, 1401, expect!["x | -"]);
    }

    #[test]
    fn a_watch_line_is_decoded() {
        let watch = &Copier::default().watches()[0];
        let read =
            |line: &str| decode_watch_event::<Copier>(watch, line.as_bytes(), &mut Interner::default());
        let mark = || Mark(ObjectKey::new("a", "x"), 4);
        let put = read(r#"{"type":"ADDED","object":{"name":"x","version":4}}"#).unwrap();
        assert_eq!(put, WatchEvent::Applied(mark()));
        let gone = read(r#"{ "object": {"name":"x","version":4}, "type": "DELETED"}"#).unwrap();
        assert_eq!(gone, WatchEvent::Deleted(mark()));
        let error = read(r#"{"type":"ADDED","object":[}}"#).unwrap_err().to_string();
        assert!(error.starts_with("read an object of configmaps: "), "{error}");
    }

    #[test]
    fn url_paths_of_objects() {
        let paths = Copier::default().watches().into_iter().map(|it| it.resource);
        let paths: Vec<String> =
            paths.flat_map(|it| [it.collection_path(None), it.path(&ObjectKey::new("a", "b/c"))]).collect();
        expect![[r#"
            /api/v1/configmaps
            /api/v1/namespaces/a/configmaps/b%2Fc
            /api/v1/nodes
            /api/v1/nodes/b%2Fc"#]]
        .assert_eq(&paths.join("\n"));
    }
}
