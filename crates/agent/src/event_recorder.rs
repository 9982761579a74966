//! Records Kubernetes Events about the node and its pods. Events wait in a bounded queue and are dropped when it
//! is full, so that they never delay a pod.

use std::time::Duration;

use http::{Method, Request, header};
use kube::Client;
use muster_engine::controller::EventRecord;
use muster_engine::controller::events::{EventCorrelator, EventWrite, QUEUED_EVENTS_MAX};
use muster_engine::daemonset::manifest::Verb;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::clock::now;

const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Source component of the Events. It is the kubelet's, because tools search for that.
const EVENT_COMPONENT: &str = "kubelet";

/// Queues Events for the API server.
#[derive(Debug, Clone)]
pub struct NodeEventRecorder {
    sender: mpsc::Sender<EventRecord>,
}

impl NodeEventRecorder {
    /// Creates the recorder, and the future that writes its Events.
    pub fn new(client: Client, node: String) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, mut waiting) = mpsc::channel::<EventRecord>(QUEUED_EVENTS_MAX);
        let writing = async move {
            let mut correlator = EventCorrelator::default();
            while let Some(record) = waiting.recv().await {
                let written = match correlator.correlate(&record, now()) {
                    Some(emitted) => write_event(&client, &node, EventWrite::new(&emitted, &record)).await,
                    None => Err("rate limit of events about one object".to_owned()),
                };
                if let Err(why) = written {
                    let EventRecord { about, event } = record;
                    tracing::debug!(object = %about.key, reason = event.reason, why, "dropping an event");
                }
            }
        };
        (Self { sender }, writing)
    }

    pub fn record(&self, record: EventRecord) {
        if let Err(lost) = self.sender.try_send(record) {
            let EventRecord { about, event } = lost.into_inner();
            tracing::debug!(object = %about.key, reason = event.reason, "dropping an event: the queue is full");
        }
    }
}

async fn write_event(client: &Client, node: &str, mut event: EventWrite<'_>) -> Result<(), String> {
    loop {
        let (verb, path, body) = event.request(EVENT_COMPONENT, node);
        let request = event_request(verb, &path, &body);
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

fn event_request(verb: Verb, path: &str, body: &Value) -> Request<Vec<u8>> {
    let (method, media_type) = match verb {
        Verb::Patch(patch) => (Method::PATCH, patch.content_type()),
        _ => (Method::POST, "application/json"),
    };
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, media_type);
    request.body(body.to_string().into_bytes()).expect("names of objects make valid paths")
}
