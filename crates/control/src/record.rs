//! Kubernetes events: what was done to an object, for whoever runs `kubectl describe`.
//!
//! They are told as upstream's are, and as seldom: what is said again is counted, what is said of many pods is said once
//! of all, and an object that never comes to rest is not heard for ever. An event must never hold up a pod, so it waits in a
//! queue of its own, and is lost where that is full.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Request;
use kube::Client;
use muster_engine::facts::Text;
use muster_engine::loops::{Reference, Tell};
use muster_engine::manifest::{Patch, Verb};
use muster_engine::plan::Event;
use muster_engine::time::Time;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::daemonset::now;
use crate::request::{JSON, request};

/// Events wait here to be written. Upstream: `maxQueuedEvents`.
const WAITING_MAX: usize = 1000;

const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// An event that cannot be written is tried again so often, and so much later; the others wait.
const TRIES_MAX: u32 = 3;
const RETRY: Duration = Duration::from_secs(5);

/// How often it is said that events were lost.
const SAY_LOST_EVERY: Duration = Duration::from_secs(10);

pub(crate) struct Recorder {
    sender: mpsc::Sender<Tell>,
    dropped: Counter,
    /// Events that found no place in the queue, since it was last said.
    lost: Arc<AtomicU64>,
}

impl Recorder {
    /// The recorder, and the work of writing down what it takes. What is not told is counted as `dropped`.
    pub(crate) fn new(
        client: Client,
        component: &'static str,
        dropped: Counter,
    ) -> (Self, impl Future<Output = ()>) {
        let (sender, mut waiting) = mpsc::channel::<Tell>(WAITING_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let recorder = Self { sender, dropped: dropped.clone(), lost: lost.clone() };
        let writing = async move {
            let mut sieve = Sieve::default();
            let mut said_lost: Option<Instant> = None;
            while let Some(tell) = waiting.recv().await {
                let written = match sieve.take(&tell, now()) {
                    Some(told) => write(&client, component, &tell, &told).await,
                    None => Err("too many of this object".to_owned()),
                };
                if let Err(why) = written {
                    dropped.inc();
                    let Tell { about, event } = tell;
                    tracing::debug!(object = %about.key, reason = event.reason, why, "an event is not told");
                }
                // Thousands are lost at once, if any.
                if said_lost.is_none_or(|it| SAY_LOST_EVERY < it.elapsed())
                    && let events @ 1.. = lost.swap(0, Ordering::Relaxed)
                {
                    said_lost = Some(Instant::now());
                    tracing::warn!(component, events, "events were lost: too many wait to be recorded");
                }
            }
        };
        (recorder, writing)
    }

    pub(crate) fn record(&self, tell: Tell) {
        if let Err(lost) = self.sender.try_send(tell) {
            self.dropped.inc();
            let Tell { about, event } = lost.into_inner();
            self.lost.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(object = %about.key, reason = event.reason, "an event was lost: too many wait");
        }
    }
}

async fn write(client: &Client, component: &str, tell: &Tell, told: &Told) -> Result<(), String> {
    let mut again = told.count != 1;
    let mut tries = 0;
    loop {
        let request = if again { count(&tell.about, told) } else { create(component, tell, told) };
        let error = match tokio::time::timeout(WRITE_TIMEOUT, client.request_text(request)).await {
            Ok(Ok(_)) => return Ok(()),
            // The server forgets events after a while: then it is told anew.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 && again => {
                again = false;
                continue;
            }
            // It would say the same next time.
            Ok(Err(kube::Error::Api(status))) if status.code != 429 && status.code < 500 => {
                return Err(status.message);
            }
            Ok(Err(error)) => error.to_string(),
            Err(late) => late.to_string(),
        };
        tries += 1;
        if tries == TRIES_MAX {
            return Err(error);
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn create(component: &str, Tell { about, event }: &Tell, told: &Told) -> Request<Vec<u8>> {
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
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": told.name, "namespace": namespace(about)},
        "involvedObject": involved,
        "type": if event.warning { "Warning" } else { "Normal" },
        "reason": event.reason,
        "message": told.message,
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": "",
        "firstTimestamp": told.first.to_rfc3339(),
        "lastTimestamp": told.last.to_rfc3339(),
        "count": told.count,
    });
    let path = format!("/api/v1/namespaces/{}/events", namespace(about));
    request(Verb::Create, path, JSON, body.to_string())
}

fn count(about: &Reference, told: &Told) -> Request<Vec<u8>> {
    let body = json!({"count": told.count, "lastTimestamp": told.last.to_rfc3339(), "message": told.message});
    let path = format!("/api/v1/namespaces/{}/events/{}", namespace(about), told.name);
    request(Verb::Patch(Patch::Merge), path, JSON, body.to_string())
}

/// What is in no namespace has its events in the default one.
fn namespace(about: &Reference) -> &str {
    if about.key.namespace.is_empty() { "default" } else { &about.key.namespace }
}

/// An event as it is to be written: anew where it is the first of its like, else as a count of it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Told {
    name: String,
    message: String,
    count: u32,
    first: Time,
    last: Time,
}

/// Decides which events are told, and how. Upstream: `EventCorrelator`.
#[derive(Debug, Default)]
struct Sieve {
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
    fn take(&mut self, Tell { about, event }: &Tell, now: Time) -> Option<Told> {
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
    use expect_test::expect;
    use muster_engine::facts::Key;

    use super::*;

    fn tell(uid: &str, event: &Event) -> Tell {
        let about = Reference {
            api_version: "apps/v1".into(),
            kind: "DaemonSet".into(),
            key: Key::new("a", "d"),
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
        // Warnings, and other sets, have a share of their own.
        assert!(sieve.take(&tell("u", &Event::warning("FailedCreate", String::new())), at(1_301)).is_some());
        assert!(sieve.take(&tell("v", &event), at(1_301)).is_some());
    }

    #[test]
    fn an_event_as_http_has_it() {
        let mut sieve = Sieve::default();
        let event = Event::normal("SuccessfulCreate", "Created pod: d-x".to_owned());
        let said = |request: Request<Vec<u8>>| {
            let body = String::from_utf8(request.body().clone()).unwrap();
            format!("{} {}\n{body}", request.method(), request.uri())
        };
        let first = sieve.take(&tell("u", &event), at(1_767_225_600)).unwrap();
        let second = sieve.take(&tell("u", &event), at(1_767_225_601)).unwrap();
        let both = [
            create("daemonset-controller", &tell("u", &event), &first),
            count(&tell("u", &event).about, &second),
        ]
        .map(said);
        expect![[r#"
            POST /api/v1/namespaces/a/events
            {"apiVersion":"v1","count":1,"firstTimestamp":"2026-01-01T00:00:00Z","involvedObject":{"apiVersion":"apps/v1","kind":"DaemonSet","name":"d","namespace":"a","resourceVersion":"7","uid":"u"},"kind":"Event","lastTimestamp":"2026-01-01T00:00:00Z","message":"Created pod: d-x","metadata":{"name":"d.18867251edfa0000","namespace":"a"},"reason":"SuccessfulCreate","reportingComponent":"daemonset-controller","reportingInstance":"","source":{"component":"daemonset-controller"},"type":"Normal"}
            PATCH /api/v1/namespaces/a/events/d.18867251edfa0000
            {"count":2,"lastTimestamp":"2026-01-01T00:00:01Z","message":"Created pod: d-x"}"#]].assert_eq(&both.join("\n"));
    }
}
