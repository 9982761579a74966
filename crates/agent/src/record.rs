//! Kubernetes events of a node and its pods. An event must never hold up a pod, so it waits in a queue of its own, and is
//! lost where that is full.

use std::time::Duration;

use http::{Method, Request, header};
use kube::Client;
use muster_engine::controller::Tell;
use muster_engine::controller::events::{Sieve, WAITING_MAX, Writing};
use muster_engine::daemonset::manifest::Verb;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::clock::now;

const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// As a kubelet's are marked: tools look for it.
const COMPONENT: &str = "kubelet";

#[derive(Debug, Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Tell>,
}

impl Recorder {
    /// The recorder, and the work of writing down what it takes.
    pub fn new(client: Client, node: String) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, mut waiting) = mpsc::channel::<Tell>(WAITING_MAX);
        let writing = async move {
            let mut sieve = Sieve::default();
            while let Some(tell) = waiting.recv().await {
                let written = match sieve.take(&tell, now()) {
                    Some(told) => write(&client, &node, Writing::new(&told, &tell)).await,
                    None => Err("too many of this object".to_owned()),
                };
                if let Err(why) = written {
                    let Tell { about, event } = tell;
                    tracing::debug!(object = %about.key, reason = event.reason, why, "an event is not told");
                }
            }
        };
        (Self { sender }, writing)
    }

    pub fn record(&self, tell: Tell) {
        if let Err(lost) = self.sender.try_send(tell) {
            let Tell { about, event } = lost.into_inner();
            tracing::debug!(object = %about.key, reason = event.reason, "an event was lost: too many wait");
        }
    }
}

async fn write(client: &Client, node: &str, mut writing: Writing<'_>) -> Result<(), String> {
    loop {
        let (verb, path, body) = writing.ask(COMPONENT, node);
        let request = request(verb, &path, &body);
        let (code, why) = match tokio::time::timeout(WRITE_TIMEOUT, client.request_text(request)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(kube::Error::Api(status))) => (Some(status.code), status.message),
            Ok(Err(error)) => (None, error.to_string()),
            Err(late) => (None, late.to_string()),
        };
        let Some(after) = writing.refused(code) else { return Err(why) };
        tokio::time::sleep(after).await;
    }
}

fn request(verb: Verb, path: &str, body: &Value) -> Request<Vec<u8>> {
    let (method, media_type) = match verb {
        Verb::Patch(patch) => (Method::PATCH, patch.content_type()),
        _ => (Method::POST, "application/json"),
    };
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, media_type);
    request.body(body.to_string().into_bytes()).expect("names of objects make valid paths")
}
