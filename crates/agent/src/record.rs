//! Kubernetes events of a node and its pods. An event must never hold up a pod, so it waits in a queue of its own, and is
//! lost where that is full.

use std::time::Duration;

use http::{Method, Request, header};
use kube::Client;
use muster_engine::events::{Sieve, Told};
use muster_engine::loops::Tell;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::node::now;

/// Events wait here to be written. Upstream: `maxQueuedEvents`.
const WAITING_MAX: usize = 1000;
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// An event that cannot be written is tried again so often, and so much later; the others wait.
const TRIES_MAX: u32 = 3;
const RETRY: Duration = Duration::from_secs(5);

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
                    Some(told) => write(&client, &node, &tell, &told).await,
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

async fn write(client: &Client, node: &str, tell: &Tell, told: &Told) -> Result<(), String> {
    let mut again = told.count != 1;
    let mut tries = 0;
    loop {
        let request = if again {
            request(Method::PATCH, "application/merge-patch+json", told.counted(&tell.about))
        } else {
            request(Method::POST, "application/json", told.created(COMPONENT, node, tell))
        };
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

fn request(method: Method, media_type: &str, (path, body): (String, Value)) -> Request<Vec<u8>> {
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, media_type);
    request.body(body.to_string().into_bytes()).expect("names of objects make valid paths")
}
