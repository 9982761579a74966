//! Kubernetes events: what was done to an object, for whoever runs `kubectl describe`.
//!
//! They are aggregated and rate-limited as upstream's are (`engine/src/controller/events.rs`). An event must never hold up a pod, so it waits in a
//! queue of its own, and is lost where that is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kube::Client;
use muster_engine::controller::EventRecord;
use muster_engine::controller::events::{EventCorrelator, EventWrite, QUEUED_EVENTS_MAX};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::daemonset::now;
use crate::request::{JSON, request};

const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often it is said that events were lost.
const SAY_LOST_EVERY: Duration = Duration::from_secs(10);

pub(crate) struct Recorder {
    sender: mpsc::Sender<EventRecord>,
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
        let (sender, mut waiting) = mpsc::channel::<EventRecord>(QUEUED_EVENTS_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let recorder = Self { sender, dropped: dropped.clone(), lost: lost.clone() };
        let writing = async move {
            let mut correlator = EventCorrelator::default();
            let mut said_lost: Option<Instant> = None;
            while let Some(record) = waiting.recv().await {
                let written = match correlator.correlate(&record, now()) {
                    Some(emitted) => write(&client, component, EventWrite::new(&emitted, &record)).await,
                    None => Err("rate limit of events about one object".to_owned()),
                };
                if let Err(why) = written {
                    dropped.inc();
                    let EventRecord { about, event } = record;
                    tracing::debug!(object = %about.key, reason = event.reason, why, "dropping an event");
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

    pub(crate) fn record(&self, record: EventRecord) {
        if let Err(lost) = self.sender.try_send(record) {
            self.dropped.inc();
            let EventRecord { about, event } = lost.into_inner();
            self.lost.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(object = %about.key, reason = event.reason, "dropping an event: the queue is full");
        }
    }
}

async fn write(client: &Client, component: &str, mut event: EventWrite<'_>) -> Result<(), String> {
    loop {
        let (verb, path, body) = event.request(component, "");
        let request = request(verb, path, JSON, body.to_string());
        let (code, why) = match tokio::time::timeout(WRITE_TIMEOUT, client.request_text(request)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(kube::Error::Api(status))) => (Some(status.code), status.message),
            Ok(Err(error)) => (None, error.to_string()),
            Err(late) => (None, late.to_string()),
        };
        let Some(after) = event.failed(code) else { return Err(why) };
        tokio::time::sleep(after).await;
    }
}
