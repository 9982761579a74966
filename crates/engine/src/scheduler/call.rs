//! The calls of the scheduler, and what goes over the wire for each.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use serde_json::{Value, json};

use super::facts::PREEMPTED;
use super::{Pod, SCHEDULER_NAME};
use crate::controller::{Request, Watch};
use crate::daemonset::manifest::{Patch, Verb};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    Bind {
        pod: Arc<Pod>,
        node: Text,
    },
    /// The pod is told why it waits, and which node is kept free for it.
    Explain {
        pod: Arc<Pod>,
        message: Text,
        nominee: Option<Text>,
        at: Time,
    },
    /// No node is kept free for the pod any more.
    Unnominate {
        pod: Arc<Pod>,
    },
    /// A pod that is to leave a node is told why, and asked to leave after that.
    Warn {
        victim: Arc<Pod>,
        node: Text,
        by: Arc<Pod>,
        at: Time,
    },
    Evict {
        victim: Arc<Pod>,
        node: Text,
        by: Arc<Pod>,
    },
}

pub(super) fn pods() -> Watch {
    Watch::whole("", "v1", "Pod", "pods", true)
}

pub(super) fn request(call: &Call) -> Request {
    match call {
        Call::Bind { pod, node } => {
            let body = json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod.key.name, "namespace": pod.key.namespace, "uid": pod.uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            write(&pod.key, Verb::Create, "/binding", body)
        }
        Call::Explain { pod, message, nominee, at } => {
            let mut condition = json!({
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
                "observedGeneration": pod.generation,
            });
            // The time is that of the first time it said so.
            if pod.told.is_none() {
                condition["lastTransitionTime"] = at.to_rfc3339().into();
            }
            let mut status = json!({"conditions": [condition]});
            if *nominee != pod.nominated {
                status["nominatedNodeName"] = nominee.as_deref().into();
            }
            patch_status(pod, status)
        }
        Call::Unnominate { pod } => patch_status(pod, json!({"nominatedNodeName": null})),
        Call::Warn { victim, at, .. } => {
            let condition = json!({
                "type": "DisruptionTarget",
                "status": "True",
                "reason": PREEMPTED,
                "message": format!("{SCHEDULER_NAME}: preempting to accommodate a higher priority pod"),
                "observedGeneration": victim.generation,
                "lastTransitionTime": at.to_rfc3339(),
            });
            patch_status(victim, json!({"conditions": [condition]}))
        }
        Call::Evict { victim, .. } => {
            let body = json!({
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": victim.uid},
            });
            write(&victim.key, Verb::Delete, "", body)
        }
    }
}

/// The UID alone is asked for: whatever else has changed, this is to be said.
fn patch_status(pod: &Pod, status: Value) -> Request {
    let body = json!({"metadata": {"uid": pod.uid}, "status": status});
    write(&pod.key, Verb::Patch(Patch::Strategic), "/status", body)
}

fn write(key: &ObjectKey, verb: Verb, part: &str, body: Value) -> Request {
    let path = format!("{}{part}", pods().resource.path(key));
    Request { verb, path, body: Some(body), metadata_only: false }
}

/// As tests and logs show it.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { pod, node } => write!(f, "bind {} to {node}", pod.key),
            Self::Explain { pod, message, nominee, .. } => {
                let nominee = nominee.as_ref().map(|it| format!(" ({it} is kept free for it)"));
                write!(f, "explain to {}{}: {message}", pod.key, nominee.unwrap_or_default())
            }
            Self::Unnominate { pod } => write!(f, "keep no node free for {}", pod.key),
            Self::Warn { victim, by, .. } => write!(f, "warn {} that it goes for {}", victim.key, by.key),
            Self::Evict { victim, by, .. } => write!(f, "evict {} for {}", victim.key, by.key),
        }
    }
}

/// No event is longer. Upstream: `NoteLengthLimit`.
const NOTE_MAX: usize = 1024;

/// What an event can say of a message.
pub(super) fn note(message: &str) -> String {
    const MORE: &str = " ...";
    if message.len() <= NOTE_MAX {
        return message.into();
    }
    let end = (0..=NOTE_MAX - MORE.len()).rev().find(|it| message.is_char_boundary(*it)).unwrap_or(0);
    format!("{}{MORE}", &message[..end])
}
