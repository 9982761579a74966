//! Kubernetes events as they are told: what is said again is counted, what is said of many is said once of all, and an
//! object that never comes to rest is not heard for ever.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;
use serde_json::{Value, json};

use crate::controller::{Reference, Tell};
use crate::daemonset::manifest::{Patch, Verb};
use crate::daemonset::plan::Event;

/// An event as it is to be written: anew where it is the first of its like, else as a count of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    name: String,
    message: String,
    count: u32,
    first: Time,
    last: Time,
}

impl Told {
    /// Where it is created, and what.
    fn created(&self, component: &str, host: &str, Tell { about, event }: &Tell) -> (String, Value) {
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
            "metadata": {"name": self.name, "namespace": namespace(about)},
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
        (format!("/api/v1/namespaces/{}/events", namespace(about)), body)
    }

    /// Where it is counted up, and the merge patch that does.
    fn counted(&self, about: &Reference) -> (String, Value) {
        let body =
            json!({"count": self.count, "lastTimestamp": self.last.to_rfc3339(), "message": self.message});
        (format!("/api/v1/namespaces/{}/events/{}", namespace(about), self.name), body)
    }
}

/// One event on its way to the API server: what is asked, and what each answer means.
#[derive(Debug)]
pub struct Writing<'a> {
    told: &'a Told,
    tell: &'a Tell,
    /// It is there already, and is counted up.
    is_count: bool,
    tries: u32,
}

/// An event that cannot be written is tried again so often, and so much later; the others wait.
const TRIES_MAX: u32 = 3;
const RETRY: Duration = Duration::from_secs(5);

impl<'a> Writing<'a> {
    pub fn new(told: &'a Told, tell: &'a Tell) -> Self {
        Self { told, tell, is_count: told.count != 1, tries: 0 }
    }

    /// What to ask for now, where, and with what. `host` is empty for what belongs to no node.
    pub fn ask(&self, component: &str, host: &str) -> (Verb, String, Value) {
        let (verb, (path, body)) = if self.is_count {
            (Verb::Patch(Patch::Merge), self.told.counted(&self.tell.about))
        } else {
            (Verb::Create, self.told.created(component, host, self.tell))
        };
        (verb, path, body)
    }

    /// It was refused with this code, or not answered: how long to wait before it is asked again. `None`: not again.
    pub fn refused(&mut self, code: Option<u16>) -> Option<Duration> {
        match code {
            // The server forgets events after a while: then it is told anew.
            Some(404) if self.is_count => {
                self.is_count = false;
                return Some(Duration::ZERO);
            }
            // It would say the same next time.
            Some(code) if code != 429 && code < 500 => return None,
            _ => {}
        }
        self.tries += 1;
        (self.tries < TRIES_MAX).then_some(RETRY)
    }
}

/// Events that may wait to be written; of more, the last are lost. Upstream: `maxQueuedEvents`.
pub const WAITING_MAX: usize = 1000;

/// What is in no namespace has its events in the default one.
fn namespace(about: &Reference) -> &str {
    if about.key.namespace.is_empty() { "default" } else { &about.key.namespace }
}

/// Decides which events are told, and how. Upstream: `EventCorrelator`.
#[derive(Debug, Default)]
pub struct Sieve {
    objects: BTreeMap<Text, OfObject>,
    /// Names are made of the time, and no two may be alike.
    named_at: Time,
}

/// Objects that are remembered; of more, those that were quiet for longest are forgotten, half of them at once.
const OBJECTS_MAX: usize = 4096;
/// Events of one object that are remembered, likewise.
const TOLD_MAX: usize = 64;

/// So many events of one reason, each with a message of its own, are told one by one; then they become one.
const SIMILAR_MAX: usize = 10;
const SIMILAR_FOR: Duration = Duration::from_secs(600);

/// So many writes of an object's events, warnings and others apart, may come at once, and then one in so long a time.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
struct OfObject {
    last: Time,
    similar: BTreeMap<(bool, &'static str), Similar>,
    told: BTreeMap<Like, Told>,
    /// When a bucket of writes that is being filled will be full, for warnings and others.
    full_at: [Time; 2],
}

/// Events are alike by reason and message, or by reason alone once there were too many.
type Like = (bool, &'static str, Option<String>);

#[derive(Debug, Default)]
struct Similar {
    messages: Vec<String>,
    last: Time,
}

impl Sieve {
    /// Rule: an event that was told before is counted; the tenth message of one reason within ten minutes, and all that
    /// follow, are told as one; and of all this only so much is written.
    pub fn take(&mut self, Tell { about, event }: &Tell, now: Time) -> Option<Told> {
        if OBJECTS_MAX <= self.objects.len() && !self.objects.contains_key(&about.uid) {
            let mut heard: Vec<Time> = self.objects.values().map(|it| it.last).collect();
            let (_, median, _) = heard.select_nth_unstable(OBJECTS_MAX / 2);
            self.objects.retain(|_, it| *median < it.last);
        }
        let of_object = self.objects.entry(about.uid.clone()).or_default();
        of_object.last = now;
        let combined = of_object.is_one_of_many(event, now);
        let message = if combined {
            format!("(combined from similar events): {}", event.message)
        } else {
            event.message.clone()
        };
        let like = (event.warning, event.reason, (!combined).then(|| event.message.clone()));
        let before = of_object.told.remove(&like);
        self.named_at = now.max(Time::from_micros(self.named_at.as_micros() + 1));
        let told = match before {
            Some(before) => Told { message, count: before.count.saturating_add(1), last: now, ..before },
            None => Told {
                name: format!("{}.{:x}", head_of(&about.key.name), self.named_at.as_micros() * 1000),
                message,
                count: 1,
                first: now,
                last: now,
            },
        };
        of_object.remember(like, told.clone());
        of_object.may_write(event.warning, now).then_some(told)
    }
}

/// So much of an object's name that a time behind it still makes a name.
fn head_of(name: &str) -> &str {
    const MAX: usize = 230;
    name.get(..MAX).unwrap_or(name).trim_end_matches(['-', '.'])
}

impl OfObject {
    fn is_one_of_many(&mut self, event: &Event, now: Time) -> bool {
        let similar = self.similar.entry((event.warning, event.reason)).or_default();
        if SIMILAR_FOR < now.since(similar.last) {
            similar.messages.clear();
        }
        similar.last = now;
        if !similar.messages.contains(&event.message) {
            similar.messages.push(event.message.clone());
        }
        let many = SIMILAR_MAX <= similar.messages.len();
        similar.messages.truncate(SIMILAR_MAX - 1);
        many
    }

    fn remember(&mut self, like: Like, told: Told) {
        if TOLD_MAX <= self.told.len() {
            let oldest = self.told.iter().min_by_key(|(_, it)| it.last).map(|(like, _)| like.clone());
            oldest.and_then(|like| self.told.remove(&like));
        }
        self.told.insert(like, told);
    }

    fn may_write(&mut self, warning: bool, now: Time) -> bool {
        let full_at = &mut self.full_at[usize::from(warning)];
        // A clock that was set back must not make the wait longer than one refill.
        *full_at = (*full_at).min(now + REFILL * BURST);
        let next = (*full_at).max(now) + REFILL;
        let may = next.since(now) <= REFILL * BURST;
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
    use muster_api::meta::ObjectKey;

    use super::*;

    fn tell(uid: &str, event: &Event) -> Tell {
        let about = Reference {
            api_version: "apps/v1".into(),
            kind: "DaemonSet".into(),
            key: ObjectKey::new("a", "d"),
            uid: uid.into(),
            resource_version: 7,
        };
        Tell { about, event: event.clone() }
    }

    fn at(s: i64) -> Time {
        Time::from_micros(s * 1_000_000)
    }

    fn told(sieve: &mut Sieve, event: &Event, s: i64) -> String {
        match sieve.take(&tell("u", event), at(s)) {
            Some(told) => format!("{} ×{} {}", told.name, told.count, told.message),
            None => "lost".to_owned(),
        }
    }

    #[test]
    fn what_each_answer_to_an_event_means() {
        let mut sieve = Sieve::default();
        let tell = tell("u", &Event::warning("FailedCreate", "quota".to_owned()));
        let first = sieve.take(&tell, at(1)).expect("it is told");
        let again = sieve.take(&tell, at(2)).expect("it is told");
        let ask = |writing: &Writing<'_>| {
            let (verb, path, _) = writing.ask("c", "");
            format!("{verb:?} {path}")
        };
        let mut lines = Vec::new();
        for (told, codes) in [
            (&first, &[Some(404)][..]),
            (&first, &[Some(403)]),
            (&first, &[Some(429), Some(500), None]),
            (&again, &[Some(404), Some(404)]),
            (&again, &[None, Some(404), Some(503), None]),
        ] {
            let mut writing = Writing::new(told, &tell);
            lines.push(ask(&writing));
            for code in codes {
                let after = writing.refused(*code);
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
    fn what_is_said_again_is_counted_and_what_is_said_of_many_is_said_once() {
        let mut sieve = Sieve::default();
        let failed = Event::warning("FailedCreate", "quota".to_owned());
        let mut lines: Vec<String> = [1, 2, 90].map(|s| told(&mut sieve, &failed, s)).to_vec();
        let created = |pod: i64| Event::normal("SuccessfulCreate", format!("Created pod: d-{pod}"));
        lines.extend((1..13).map(|it| told(&mut sieve, &created(it), 100 + it)));
        // Long after, pods are told one by one again.
        lines.push(told(&mut sieve, &created(99), 1_000));
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
    fn a_set_that_never_comes_to_rest_is_not_heard_for_ever() {
        let mut sieve = Sieve::default();
        let event = Event::normal("SuccessfulCreate", "again".to_owned());
        let heard = |sieve: &mut Sieve, s: i64| sieve.take(&tell("u", &event), at(s)).is_some();
        let first: Vec<bool> = (0..30).map(|_| heard(&mut sieve, 1_000)).collect();
        assert_eq!(first, [[true; 25].as_slice(), [false; 5].as_slice()].concat());
        assert!(!heard(&mut sieve, 1_299));
        assert!(heard(&mut sieve, 1_300));
        assert!(!heard(&mut sieve, 1_301));
        // Nor is the wait longer when the clock is set back.
        assert!(!heard(&mut sieve, -9_000));
        assert!(heard(&mut sieve, -8_700));
        // Warnings, and other sets, have a share of their own.
        assert!(sieve.take(&tell("u", &Event::warning("FailedCreate", String::new())), at(1_301)).is_some());
        assert!(sieve.take(&tell("v", &event), at(1_301)).is_some());
    }

    #[test]
    fn an_event_as_http_has_it() {
        let mut sieve = Sieve::default();
        let event = Event::normal("SuccessfulCreate", "Created pod: d-x".to_owned());
        let said = |(path, body): (String, Value)| format!("{path}\n{body}");
        let first = sieve.take(&tell("u", &event), at(1_767_225_600)).unwrap();
        let second = sieve.take(&tell("u", &event), at(1_767_225_601)).unwrap();
        let both = [
            first.created("daemonset-controller", "", &tell("u", &event)),
            second.counted(&tell("u", &event).about),
        ]
        .map(said);
        expect![[r#"
            /api/v1/namespaces/a/events
            {"apiVersion":"v1","count":1,"firstTimestamp":"2026-01-01T00:00:00Z","involvedObject":{"apiVersion":"apps/v1","kind":"DaemonSet","name":"d","namespace":"a","resourceVersion":"7","uid":"u"},"kind":"Event","lastTimestamp":"2026-01-01T00:00:00Z","message":"Created pod: d-x","metadata":{"name":"d.18867251edfa0000","namespace":"a"},"reason":"SuccessfulCreate","reportingComponent":"daemonset-controller","reportingInstance":"","source":{"component":"daemonset-controller"},"type":"Normal"}
            /api/v1/namespaces/a/events/d.18867251edfa0000
            {"count":2,"lastTimestamp":"2026-01-01T00:00:01Z","message":"Created pod: d-x"}"#]].assert_eq(&both.join("\n"));
    }
}
