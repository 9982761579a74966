//! Kubernetes events: what was done to a set, for whoever runs `kubectl describe`.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use kube::Client;
use muster_engine::facts::Set;
use muster_engine::plan::Event;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::daemonset::now;

/// Events wait here to be written. What comes while it is full is dropped: an event must never hold up a pod.
const WAITING_MAX: usize = 1000;

const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// As upstream's: dashboards filter by it.
const COMPONENT: &str = "daemonset-controller";

pub(crate) struct Recorder(mpsc::Sender<(Arc<Set>, Event)>);

impl Recorder {
    /// The recorder, and the work of writing down what it takes.
    pub(crate) fn new(client: Client) -> (Self, impl Future<Output = ()>) {
        let (sender, mut waiting) = mpsc::channel::<(Arc<Set>, Event)>(WAITING_MAX);
        let writing = async move {
            while let Some((set, event)) = waiting.recv().await {
                write(&client, &set, &event).await;
            }
        };
        (Self(sender), writing)
    }

    pub(crate) fn record(&self, set: &Arc<Set>, event: &Event) {
        if self.0.try_send((set.clone(), event.clone())).is_err() {
            tracing::warn!(set = %set.key, reason = event.reason, "an event was dropped: too many wait");
        }
    }
}

async fn write(client: &Client, set: &Set, event: &Event) {
    let request = Request::post(format!("/api/v1/namespaces/{}/events", set.key.namespace))
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/json")
        .body(body(set, event).to_string().into_bytes())
        .expect("names of namespaces make valid paths");
    match tokio::time::timeout(WRITE_TIMEOUT, client.request_text(request)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::warn!(set = %set.key, reason = event.reason, %error, "an event was not written")
        }
        Err(_) => tracing::warn!(set = %set.key, reason = event.reason, "an event was not written in time"),
    }
}

fn body(set: &Set, event: &Event) -> Value {
    let now = now().to_rfc3339();
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": format!("{}-", set.key.name), "namespace": set.key.namespace},
        "involvedObject": {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "namespace": set.key.namespace,
            "name": set.key.name,
            "uid": set.uid,
            "resourceVersion": set.resource_version.to_string(),
        },
        "type": if event.warning { "Warning" } else { "Normal" },
        "reason": event.reason,
        "message": event.message,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    })
}
