//! Records Kubernetes Events: queues, correlates and writes them.
//!
//! Events are aggregated and rate-limited as upstream's Events are (`engine/src/controller/events.rs`). Events wait in
//! a bounded queue. When the queue is full, further Events are dropped, so that recording an Event never delays the
//! caller.

/// The wall clock.
pub mod clock;
/// Formats an error and its causes as one line.
pub mod error_chain;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use kube::Client;
use muster_api::well_known::JSON_MEDIA_TYPE;
use muster_engine::controller::EventRecord;
use muster_engine::controller::Verb;
use muster_engine::controller::events::{EventCorrelator, EventWrite, QUEUED_EVENTS_MAX};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Timeout of one attempt to write an Event.
const EVENT_WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum time between two log messages about a full queue. A full queue may drop thousands of Events at once.
const WARNING_INTERVAL_MIN: Duration = Duration::from_secs(10);

/// The component that reports Events, with its node. Upstream: `v1.EventSource`.
#[derive(Debug, Clone)]
pub struct EventSource {
    pub component: &'static str,
    /// Name of the node on which the component runs. Empty for a component that does not belong to a node.
    pub host: String,
}

impl EventSource {
    /// Creates the event source of a component that does not belong to a node.
    pub fn for_component(component: &'static str) -> Self {
        Self { component, host: String::new() }
    }
}

/// Queues Events to be written to the API server. The future that [`EventRecorder::new`] returns writes them.
#[derive(Debug, Clone)]
pub struct EventRecorder {
    /// The queue of Events to write.
    sender: mpsc::Sender<EventRecord>,
    /// Metric that counts the Events that were not written, whatever the reason.
    dropped: Counter,
    /// Number of Events that were dropped because the queue was full or closed, since the last log message about such
    /// Events.
    rejected: Arc<AtomicU64>,
}

impl EventRecorder {
    /// Creates the recorder, and the future that writes its Events. The future ends when all clones of the recorder are
    /// dropped and all queued Events are written or dropped. Events that are not written are counted in `dropped`.
    pub fn new(
        client: Client,
        source: EventSource,
        dropped: Counter,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, queue) = mpsc::channel::<EventRecord>(QUEUED_EVENTS_MAX);
        let recorder = Self { sender, dropped, rejected: Arc::default() };
        let writer = EventWriter {
            client,
            source,
            dropped: recorder.dropped.clone(),
            rejected: recorder.rejected.clone(),
        };
        (recorder, writer.run(queue))
    }

    /// Queues an Event. If the queue is full or closed, the Event is dropped.
    pub fn record(&self, record: EventRecord) {
        if let Err(rejected) = self.sender.try_send(record) {
            self.dropped.inc();
            self.rejected.fetch_add(1, Ordering::Relaxed);
            let EventRecord { about, event } = rejected.into_inner();
            tracing::debug!(object = %about.key, reason = event.reason, "dropping an event: the queue is full");
        }
    }
}

/// Writes queued Events, one at a time.
struct EventWriter {
    client: Client,
    source: EventSource,
    /// Metric that counts the Events that were not written, whatever the reason.
    dropped: Counter,
    /// Number of Events that were dropped because the queue was full or closed, since the last log message about such
    /// Events.
    rejected: Arc<AtomicU64>,
}

impl EventWriter {
    /// Writes the queued Events until all recorders are dropped.
    async fn run(self, mut queue: mpsc::Receiver<EventRecord>) {
        let mut correlator = EventCorrelator::default();
        let mut warned_at: Option<Instant> = None;
        while let Some(record) = queue.recv().await {
            let written = match correlator.correlate(&record, clock::now()) {
                Some(emitted) => self.write(EventWrite::new(&emitted, &record)).await,
                None => Err("rate limit of events about one object".to_owned()),
            };
            if let Err(why) = written {
                self.dropped.inc();
                let EventRecord { about, event } = record;
                tracing::debug!(object = %about.key, reason = event.reason, why, "dropping an event");
            }
            if warned_at.is_none_or(|it| WARNING_INTERVAL_MIN < it.elapsed())
                && let events @ 1.. = self.rejected.swap(0, Ordering::Relaxed)
            {
                warned_at = Some(Instant::now());
                let component = self.source.component;
                tracing::warn!(component, events, "dropped events: the queue was full");
            }
        }
    }

    /// Writes one Event, with retries. If all attempts fail, returns the message of the last failure.
    async fn write(&self, mut event: EventWrite<'_>) -> Result<(), String> {
        loop {
            let (verb, path, body) = event.request(self.source.component, &self.source.host);
            let request = event_request(verb, &path, body.to_string());
            let write = self.client.request_text(request);
            let (code, why) = match tokio::time::timeout(EVENT_WRITE_TIMEOUT, write).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(kube::Error::Api(status))) => (Some(status.code), status.message),
                Ok(Err(error)) => (None, error.to_string()),
                Err(late) => (None, late.to_string()),
            };
            let Some(after) = event.record_failure(code) else { return Err(why) };
            tokio::time::sleep(after).await;
        }
    }
}

/// Builds a request that creates or patches an Event.
fn event_request(verb: Verb, path: &str, body: String) -> Request<Vec<u8>> {
    let (method, media_type) = match verb {
        Verb::Patch(patch) => (Method::PATCH, patch.content_type()),
        _ => (Method::POST, JSON_MEDIA_TYPE),
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(ACCEPT, JSON_MEDIA_TYPE)
        .header(CONTENT_TYPE, media_type);
    request.body(body.into_bytes()).expect("names of objects make valid paths")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use http::Response;
    use kube::client::Body;
    use muster_api::object_key::ObjectKey;
    use muster_engine::controller::{KubeEvent, ObjectReference};

    use super::*;

    fn record(name: &str) -> EventRecord {
        let about = ObjectReference::new("v1", "Pod", ObjectKey::new("default", name), name.into(), 1);
        EventRecord { about, event: KubeEvent::normal("Started", "Started container".to_owned()) }
    }

    /// A client of an API server that accepts every request, and the requests.
    fn client() -> (Client, Arc<Mutex<Vec<String>>>) {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = requests.clone();
        let respond = move |request: Request<Body>| {
            seen.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
            std::future::ready(Ok::<_, Infallible>(Response::new(Body::from(b"{}".to_vec()))))
        };
        (Client::new(tower::service_fn(respond), "default"), requests)
    }

    #[tokio::test]
    async fn queued_events_are_written_when_the_recorder_is_dropped() {
        let (client, requests) = client();
        let dropped = Counter::default();
        let (recorder, writing) =
            EventRecorder::new(client, EventSource::for_component("test"), dropped.clone());
        recorder.record(record("a"));
        recorder.record(record("b"));
        drop(recorder);
        writing.await;
        assert_eq!(*requests.lock().unwrap(), ["POST /api/v1/namespaces/default/events"; 2]);
        assert_eq!(dropped.get(), 0);
    }

    #[tokio::test]
    async fn events_beyond_the_queue_are_dropped_and_counted() {
        let (client, requests) = client();
        let dropped = Counter::default();
        let (recorder, writing) =
            EventRecorder::new(client, EventSource::for_component("test"), dropped.clone());
        for number in 0..QUEUED_EVENTS_MAX + 3 {
            recorder.record(record(&format!("p{number}")));
        }
        assert_eq!(dropped.get(), 3);
        drop((recorder, writing));
        assert!(requests.lock().unwrap().is_empty(), "nothing is written before the future runs");
    }
}
