//! Event correlation: a repeated event is counted, many similar events are aggregated into one, and the rate of events
//! about one object is limited. Upstream: `EventCorrelator` of client-go.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;
use serde_json::{Value, json};

use crate::controller::{EventRecord, KubeEvent, ObjectReference, PatchFormat, Verb};

/// The content of an Event object that is created or patched. If `count` is one, the Event is created. Otherwise the
/// existing Event is patched with the new count, or created if it no longer exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EmittedEvent {
    /// Name of the Event object.
    name: String,
    message: String,
    /// Number of times that the event occurred, including the first time.
    count: u32,
    /// The `firstTimestamp`: when the event first occurred.
    first: Time,
    /// The `lastTimestamp`: when the event last occurred.
    last: Time,
}

impl EmittedEvent {
    /// Returns the path and the body of the request that creates the Event. `component` is the name of the component
    /// that reports the Event. `host` is the name of the component's node, or empty if the component runs on no node.
    fn create_request(
        &self,
        component: &str,
        host: &str,
        EventRecord { about, event }: &EventRecord,
    ) -> (String, Value) {
        let mut involved = json!({
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.key.name,
            "uid": about.uid,
        });
        if !about.key.namespace.is_empty() {
            involved["namespace"] = json!(about.key.namespace);
        }
        if about.resource_version != 0 {
            involved["resourceVersion"] = json!(about.resource_version.to_string());
        }
        let mut source = json!({"component": component});
        if !host.is_empty() {
            source["host"] = json!(host);
        }
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": self.name, "namespace": event_namespace(about)},
            "involvedObject": involved,
            "type": if event.warning { "Warning" } else { "Normal" },
            "reason": event.reason,
            "message": self.message,
            "source": source,
            "reportingComponent": component,
            "reportingInstance": host,
            "firstTimestamp": self.first.to_rfc3339(),
            "lastTimestamp": self.last.to_rfc3339(),
            "count": self.count,
        });
        (format!("/api/v1/namespaces/{}/events", event_namespace(about)), body)
    }

    /// Returns the path and the body of the merge patch that sets count, last time and message of the existing Event.
    fn patch_request(&self, about: &ObjectReference) -> (String, Value) {
        let body =
            json!({"count": self.count, "lastTimestamp": self.last.to_rfc3339(), "message": self.message});
        (format!("/api/v1/namespaces/{}/events/{}", event_namespace(about), self.name), body)
    }
}

/// The write of one Event with its retries: builds each request, and decides whether to retry a failed one.
#[derive(Debug)]
pub struct EventWrite<'a> {
    /// The name, count and times of the Event to write.
    emitted: &'a EmittedEvent,
    /// The object, type, reason and message from which the Event was made.
    record: &'a EventRecord,
    /// Whether the next request patches an existing Event. Otherwise it creates the Event.
    is_patch: bool,
    /// Number of failed attempts. A patch that got status 404 is not counted: the Event is created instead.
    failed_attempts: u32,
}

/// Maximum number of attempts to write one Event. A patch that gets status 404 is not counted.
const EVENT_WRITE_ATTEMPTS_MAX: u32 = 3;
/// Delay between two attempts to write one Event, except after a patch that gets status 404. The other queued Events
/// wait during the delay.
const EVENT_WRITE_RETRY_DELAY: Duration = Duration::from_secs(5);

impl<'a> EventWrite<'a> {
    /// Creates the write of `emitted`, which was made from `record`. No request has been made yet.
    pub fn new(emitted: &'a EmittedEvent, record: &'a EventRecord) -> Self {
        Self { emitted, record, is_patch: emitted.count != 1, failed_attempts: 0 }
    }

    /// Returns the verb, path and body of the next request. `component` is the name of the component that reports the
    /// Event. `host` is the name of the component's node, or empty if the component runs on no node.
    pub fn request(&self, component: &str, host: &str) -> (Verb, String, Value) {
        let (verb, (path, body)) = if self.is_patch {
            (Verb::Patch(PatchFormat::Merge), self.emitted.patch_request(&self.record.about))
        } else {
            (Verb::Create, self.emitted.create_request(component, host, self.record))
        };
        (verb, path, body)
    }

    /// Records that the request failed. Returns the delay before the next attempt, which may be zero, or `None` if the
    /// Event is dropped. `code` is the HTTP status code of the response, `None` if there was no response.
    pub fn record_failure(&mut self, code: Option<u16>) -> Option<Duration> {
        match code {
            // The server deletes Events after their TTL: create it again.
            Some(404) if self.is_patch => {
                self.is_patch = false;
                return Some(Duration::ZERO);
            }
            // A client error would come again.
            Some(code) if code != 429 && code < 500 => return None,
            _ => {}
        }
        self.failed_attempts += 1;
        (self.failed_attempts < EVENT_WRITE_ATTEMPTS_MAX).then_some(EVENT_WRITE_RETRY_DELAY)
    }
}

/// Maximum number of events that wait in memory to be written. Further events are dropped. Upstream: `maxQueuedEvents`.
pub const QUEUED_EVENTS_MAX: usize = 1000;

/// Returns the namespace of an Event: the namespace of its object, or `default` for a cluster-scoped object.
fn event_namespace(about: &ObjectReference) -> &str {
    if about.key.namespace.is_empty() { "default" } else { &about.key.namespace }
}

/// Correlates repeated and similar events: decides which events are written as new Events, which increment the count of
/// an existing Event, and which are dropped. Upstream: `EventCorrelator`.
#[derive(Debug, Default)]
pub struct EventCorrelator {
    /// The remembered events about each object, by UID of the object.
    objects: BTreeMap<Text, ObjectEvents>,
    /// The timestamp in the name of the last Event. Each new Event gets a later timestamp, so that its name is unique.
    name_time: Time,
}

/// Maximum number of objects whose events are remembered. Before a further object is added, at least half of the
/// objects are forgotten: those whose last event is the oldest.
const REMEMBERED_OBJECTS_MAX: usize = 4096;
/// Maximum number of remembered events per object. Above this number, the event whose last occurrence is the oldest is
/// forgotten.
const REMEMBERED_EVENTS_MAX: usize = 64;

/// Number of different messages for one object, type and reason at which aggregation begins: the events with the tenth
/// and any further message are aggregated into one Event. Upstream: `defaultAggregateMaxEvents`.
const AGGREGATION_THRESHOLD: usize = 10;
/// Time without an event for one object, type and reason, after which the different messages are counted from zero
/// again.
/// Upstream: `defaultAggregateIntervalInSeconds`.
const SIMILAR_EVENTS_INTERVAL: Duration = Duration::from_secs(600);

/// Size of the token bucket that limits the Events about one object. Each object has one bucket for warnings and one
/// for normal events. Upstream: `defaultSpamBurst`.
const EVENT_BURST: u32 = 25;
/// Time in which a token bucket of [`EVENT_BURST`] tokens gains one token: the inverse of upstream's `defaultSpamQPS`.
const EVENT_TOKEN_INTERVAL: Duration = Duration::from_secs(300);

/// The remembered events about one object.
#[derive(Debug, Default)]
struct ObjectEvents {
    /// Time of the last event about this object, of any type and reason.
    last: Time,
    /// The messages of recent events about this object, by whether the events are warnings and by their reason.
    similar: BTreeMap<(bool, &'static str), SimilarEvents>,
    /// The last Events about the object, with their counts: at most [`REMEMBERED_EVENTS_MAX`]. An Event that the rate
    /// limit kept from being written is remembered too.
    remembered: BTreeMap<EventKey, EmittedEvent>,
    /// The times at which the two token buckets will be full again: index 0 for normal events, 1 for warnings.
    full_at: [Time; 2],
}

/// Identifies the events that are counted as one Event: whether they are warnings, their reason and their message. The
/// message is `None` for aggregated events.
type EventKey = (bool, &'static str, Option<String>);

/// The messages of recent events about one object that have the same type and reason.
#[derive(Debug, Default)]
struct SimilarEvents {
    /// The different messages that are not aggregated, fewer than [`AGGREGATION_THRESHOLD`].
    messages: Vec<String>,
    /// Time of the last event about the object with this type and reason.
    last: Time,
}

impl EventCorrelator {
    /// Returns the Event to create or to patch, or `None` if the rate limit drops the event.
    ///
    /// Rule: a repeated event increments the count of the existing Event, if that is still remembered. The first nine
    /// different messages of an object with the same type and reason have separate Events. Events with any further
    /// message are aggregated into one Event. After a pause of ten minutes, the messages are counted from zero again.
    /// The rate of events per object and type is limited.
    pub fn correlate(
        &mut self,
        EventRecord { about, event }: &EventRecord,
        now: Time,
    ) -> Option<EmittedEvent> {
        if REMEMBERED_OBJECTS_MAX <= self.objects.len() && !self.objects.contains_key(&about.uid) {
            let mut last: Vec<Time> = self.objects.values().map(|it| it.last).collect();
            let (_, median, _) = last.select_nth_unstable(REMEMBERED_OBJECTS_MAX / 2);
            self.objects.retain(|_, it| *median < it.last);
        }
        let object = self.objects.entry(about.uid.clone()).or_default();
        object.last = now;
        let aggregated = object.record_message(event, now);
        let message = if aggregated {
            format!("(combined from similar events): {}", event.message)
        } else {
            event.message.clone()
        };
        let key = (event.warning, event.reason, (!aggregated).then(|| event.message.clone()));
        let before = object.remembered.remove(&key);
        self.name_time = now.max(Time::from_micros(self.name_time.as_micros() + 1));
        let emitted = match before {
            Some(before) => {
                EmittedEvent { message, count: before.count.saturating_add(1), last: now, ..before }
            }
            None => EmittedEvent {
                name: format!("{}.{:x}", name_prefix(&about.key.name), self.name_time.as_micros() * 1000),
                message,
                count: 1,
                first: now,
                last: now,
            },
        };
        object.remember_event(key, emitted.clone());
        object.take_token(event.warning, now).then_some(emitted)
    }
}

/// Returns the start of the name of an object, short enough to form a valid Event name together with a timestamp.
fn name_prefix(name: &str) -> &str {
    /// Maximum length in bytes of the object's name in the name of an Event.
    const NAME_PREFIX_BYTES_MAX: usize = 230;
    name.get(..NAME_PREFIX_BYTES_MAX).unwrap_or(name).trim_end_matches(['-', '.'])
}

impl ObjectEvents {
    /// Records the message of an event. Returns whether the event is to be aggregated with others of the same type and
    /// reason.
    fn record_message(&mut self, event: &KubeEvent, now: Time) -> bool {
        let similar = self.similar.entry((event.warning, event.reason)).or_default();
        if SIMILAR_EVENTS_INTERVAL < now.since(similar.last) {
            similar.messages.clear();
        }
        similar.last = now;
        if !similar.messages.contains(&event.message) {
            similar.messages.push(event.message.clone());
        }
        let many = AGGREGATION_THRESHOLD <= similar.messages.len();
        similar.messages.truncate(AGGREGATION_THRESHOLD - 1);
        many
    }

    /// Remembers an Event. If the object already has [`REMEMBERED_EVENTS_MAX`] Events, forgets the one whose last
    /// occurrence is the oldest.
    fn remember_event(&mut self, key: EventKey, emitted: EmittedEvent) {
        if REMEMBERED_EVENTS_MAX <= self.remembered.len() {
            let oldest = self.remembered.iter().min_by_key(|(_, it)| it.last).map(|(key, _)| key.clone());
            oldest.and_then(|key| self.remembered.remove(&key));
        }
        self.remembered.insert(key, emitted);
    }

    /// Takes a token from the bucket for warnings or for normal events. Returns whether the bucket had one.
    fn take_token(&mut self, warning: bool, now: Time) -> bool {
        let full_at = &mut self.full_at[usize::from(warning)];
        // If the clock was set back, the wait must not become longer than one refill of the bucket.
        *full_at = (*full_at).min(now + EVENT_TOKEN_INTERVAL * EVENT_BURST);
        let next = (*full_at).max(now) + EVENT_TOKEN_INTERVAL;
        let may = next.since(now) <= EVENT_TOKEN_INTERVAL * EVENT_BURST;
        if may {
            *full_at = next;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned as _;

    use expect_test::expect;
    use muster_api::object_key::ObjectKey;

    use super::*;

    fn record(uid: &str, event: &KubeEvent) -> EventRecord {
        let about = ObjectReference::new("apps/v1", "DaemonSet", ObjectKey::new("a", "d"), uid.into(), 7);
        EventRecord { about, event: event.clone() }
    }

    fn at(s: i64) -> Time {
        Time::from_micros(s * 1_000_000)
    }

    fn emitted(correlator: &mut EventCorrelator, event: &KubeEvent, s: i64) -> String {
        match correlator.correlate(&record("u", event), at(s)) {
            Some(emitted) => format!("{} ×{} {}", emitted.name, emitted.count, emitted.message),
            None => "dropped".to_owned(),
        }
    }

    #[test]
    fn a_failed_event_write_is_retried_by_status_code() {
        let mut correlator = EventCorrelator::default();
        let record = record("u", &KubeEvent::warning("FailedCreate", "quota".to_owned()));
        let first = correlator.correlate(&record, at(1)).expect("not rate limited");
        let again = correlator.correlate(&record, at(2)).expect("not rate limited");
        let ask = |writing: &EventWrite<'_>| {
            let (verb, path, _) = writing.request("c", "");
            format!("{verb:?} {path}")
        };
        let mut lines = Vec::new();
        for (emitted, codes) in [
            (&first, &[Some(404)][..]),
            (&first, &[Some(403)]),
            (&first, &[Some(429), Some(500), None]),
            (&again, &[Some(404), Some(404)]),
            (&again, &[None, Some(404), Some(503), None]),
        ] {
            let mut writing = EventWrite::new(emitted, &record);
            lines.push(ask(&writing));
            for code in codes {
                let after = writing.record_failure(*code);
                lines.push(format!("  {code:?}: {after:?}, {}", ask(&writing)));
            }
        }
        expect![[r#"
            Create /api/v1/namespaces/a/events
              Some(404): None, Create /api/v1/namespaces/a/events
            Create /api/v1/namespaces/a/events
              Some(403): None, Create /api/v1/namespaces/a/events
            Create /api/v1/namespaces/a/events
              Some(429): Some(5s), Create /api/v1/namespaces/a/events
              Some(500): Some(5s), Create /api/v1/namespaces/a/events
              None: None, Create /api/v1/namespaces/a/events
            Patch(Merge) /api/v1/namespaces/a/events/d.3b9aca00
              Some(404): Some(0ns), Create /api/v1/namespaces/a/events
              Some(404): None, Create /api/v1/namespaces/a/events
            Patch(Merge) /api/v1/namespaces/a/events/d.3b9aca00
              None: Some(5s), Patch(Merge) /api/v1/namespaces/a/events/d.3b9aca00
              Some(404): Some(0ns), Create /api/v1/namespaces/a/events
              Some(503): Some(5s), Create /api/v1/namespaces/a/events
              None: None, Create /api/v1/namespaces/a/events"#]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn repeated_events_are_counted_and_similar_ones_aggregated() {
        let mut correlator = EventCorrelator::default();
        let failed = KubeEvent::warning("FailedCreate", "quota".to_owned());
        let mut lines: Vec<String> = [1, 2, 90].map(|s| emitted(&mut correlator, &failed, s)).to_vec();
        let created = |pod: i64| KubeEvent::normal("SuccessfulCreate", format!("Created pod: d-{pod}"));
        lines.extend((1..13).map(|it| emitted(&mut correlator, &created(it), 100 + it)));
        // After the interval, events are written one by one again.
        lines.push(emitted(&mut correlator, &created(99), 1_000));
        expect![[r#"
            d.3b9aca00 ×1 quota
            d.3b9aca00 ×2 quota
            d.3b9aca00 ×3 quota
            d.178411b200 ×1 Created pod: d-1
            d.17bfac7c00 ×1 Created pod: d-2
            d.17fb474600 ×1 Created pod: d-3
            d.1836e21000 ×1 Created pod: d-4
            d.18727cda00 ×1 Created pod: d-5
            d.18ae17a400 ×1 Created pod: d-6
            d.18e9b26e00 ×1 Created pod: d-7
            d.19254d3800 ×1 Created pod: d-8
            d.1960e80200 ×1 Created pod: d-9
            d.199c82cc00 ×1 (combined from similar events): Created pod: d-10
            d.199c82cc00 ×2 (combined from similar events): Created pod: d-11
            d.199c82cc00 ×3 (combined from similar events): Created pod: d-12
            d.e8d4a51000 ×1 Created pod: d-99"#]]
        .assert_eq(&lines.join("\n"));
    }

    #[test]
    fn the_rate_of_events_of_one_object_is_limited() {
        let mut correlator = EventCorrelator::default();
        let event = KubeEvent::normal("SuccessfulCreate", "again".to_owned());
        let passes = |correlator: &mut EventCorrelator, s: i64| {
            correlator.correlate(&record("u", &event), at(s)).is_some()
        };
        let first: Vec<bool> = (0..30).map(|_| passes(&mut correlator, 1_000)).collect();
        assert_eq!(first, [[true; 25].as_slice(), [false; 5].as_slice()].concat());
        assert!(!passes(&mut correlator, 1_299));
        assert!(passes(&mut correlator, 1_300));
        assert!(!passes(&mut correlator, 1_301));
        // A clock set back does not make the wait longer.
        assert!(!passes(&mut correlator, -9_000));
        assert!(passes(&mut correlator, -8_700));
        // Warnings and other objects have buckets of their own.
        assert!(
            correlator
                .correlate(&record("u", &KubeEvent::warning("FailedCreate", String::new())), at(1_301))
                .is_some()
        );
        assert!(correlator.correlate(&record("v", &event), at(1_301)).is_some());
    }

    #[test]
    fn requests_that_create_and_patch_an_event() {
        let mut correlator = EventCorrelator::default();
        let event = KubeEvent::normal("SuccessfulCreate", "Created pod: d-x".to_owned());
        let text = |(path, body): (String, Value)| format!("{path}\n{body}");
        let first = correlator.correlate(&record("u", &event), at(1_767_225_600)).unwrap();
        let second = correlator.correlate(&record("u", &event), at(1_767_225_601)).unwrap();
        let both = [
            first.create_request("daemonset-controller", "", &record("u", &event)),
            second.patch_request(&record("u", &event).about),
        ]
        .map(text);
        expect![[r#"
            /api/v1/namespaces/a/events
            {"apiVersion":"v1","count":1,"firstTimestamp":"2026-01-01T00:00:00Z","involvedObject":{"apiVersion":"apps/v1","kind":"DaemonSet","name":"d","namespace":"a","resourceVersion":"7","uid":"u"},"kind":"Event","lastTimestamp":"2026-01-01T00:00:00Z","message":"Created pod: d-x","metadata":{"name":"d.18867251edfa0000","namespace":"a"},"reason":"SuccessfulCreate","reportingComponent":"daemonset-controller","reportingInstance":"","source":{"component":"daemonset-controller"},"type":"Normal"}
            /api/v1/namespaces/a/events/d.18867251edfa0000
            {"count":2,"lastTimestamp":"2026-01-01T00:00:01Z","message":"Created pod: d-x"}"#]].assert_eq(&both.join("\n"));
    }
}
