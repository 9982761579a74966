//! The calls of the scheduler and their API requests.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use muster_api::object_key::ObjectKey;
use muster_api::text::{self, Text};
use muster_api::time::Time;
use muster_api::well_known::{DISRUPTION_TARGET, POD_SCHEDULED};
use serde_json::{Value, json};

use super::facts::PREEMPTION_REASON;
use super::{Pod, SCHEDULER_NAME};
use crate::controller::{PatchFormat, Request, Verb, Watch, delete_options};

/// A call of the scheduler.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchedulerCall {
    /// Binds a pod to the node with this name.
    Bind { pod: Arc<Pod>, node: Text },
    /// Sets the condition `PodScheduled` of a pod to False with this message. Also sets the pod's `nominatedNodeName`
    /// to `nominated_node` if they differ (`None` clears it). `at` is the transition time of the condition if the
    /// condition was not False before.
    WriteUnschedulable { pod: Arc<Pod>, message: Text, nominated_node: Option<Text>, at: Time },
    /// Clears the pod's `nominatedNodeName`.
    ClearNomination { pod: Arc<Pod> },
    /// Sets the condition `DisruptionTarget` of a victim on this node, before the victim is deleted. `by` is the
    /// preempting pod, and `at` the transition time of the condition.
    MarkVictim { victim: Arc<Pod>, node: Text, by: Arc<Pod>, at: Time },
    /// Deletes a victim on this node. `by` is the preempting pod.
    DeleteVictim { victim: Arc<Pod>, node: Text, by: Arc<Pod> },
}

/// Returns the watch of pods.
pub(super) fn pod_watch() -> Watch {
    Watch::whole_objects("", "v1", "Pod", "pods", true)
}

/// Returns the API request of a call.
pub(super) fn request(call: &SchedulerCall) -> Request {
    match call {
        SchedulerCall::Bind { pod, node } => {
            let body = json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod.key.name, "namespace": pod.key.namespace, "uid": pod.uid},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            });
            write_request(&pod.key, Verb::Create, "/binding", body)
        }
        SchedulerCall::WriteUnschedulable { pod, message, nominated_node, at } => {
            let mut condition = json!({
                "type": POD_SCHEDULED,
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
                "observedGeneration": pod.generation,
            });
            // The condition keeps the time at which it first became False.
            if pod.unschedulable_condition.is_none() {
                condition["lastTransitionTime"] = at.to_rfc3339().into();
            }
            let mut status = json!({"conditions": [condition]});
            if *nominated_node != pod.nominated {
                status["nominatedNodeName"] = nominated_node.as_deref().into();
            }
            status_patch_request(pod, status)
        }
        SchedulerCall::ClearNomination { pod } => {
            status_patch_request(pod, json!({"nominatedNodeName": null}))
        }
        SchedulerCall::MarkVictim { victim, at, .. } => {
            let condition = json!({
                "type": DISRUPTION_TARGET,
                "status": "True",
                "reason": PREEMPTION_REASON,
                "message": format!("{SCHEDULER_NAME}: preempting to accommodate a higher priority pod"),
                "observedGeneration": victim.generation,
                "lastTransitionTime": at.to_rfc3339(),
            });
            status_patch_request(victim, json!({"conditions": [condition]}))
        }
        SchedulerCall::DeleteVictim { victim, .. } => {
            write_request(&victim.key, Verb::Delete, "", delete_options(&victim.uid, None))
        }
    }
}

/// Returns the request that patches a pod's status. Its only precondition is the UID, because other changes of the pod
/// do not matter.
fn status_patch_request(pod: &Pod, status: Value) -> Request {
    let body = json!({"metadata": {"uid": pod.uid}, "status": status});
    write_request(&pod.key, Verb::Patch(PatchFormat::Strategic), "/status", body)
}

/// Returns a request that writes a pod or one of its subresources. `part` is the subresource with a leading slash, or
/// empty.
fn write_request(key: &ObjectKey, verb: Verb, part: &str, body: Value) -> Request {
    let path = format!("{}{part}", pod_watch().resource.path(key));
    Request { verb, path, body: Some(body), metadata_only: false }
}

/// Formats the call on one line, for logs and tests.
impl fmt::Display for SchedulerCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { pod, node } => write!(f, "bind {} to {node}", pod.key),
            Self::WriteUnschedulable { pod, message, nominated_node, .. } => {
                let nominated_node = nominated_node.as_ref().map(|it| format!(" (nominated node {it})"));
                write!(
                    f,
                    "report {} as unschedulable{}: {message}",
                    pod.key,
                    nominated_node.unwrap_or_default()
                )
            }
            Self::ClearNomination { pod } => write!(f, "clear the nomination of {}", pod.key),
            Self::MarkVictim { victim, by, .. } => {
                write!(f, "mark {} as preempted by {}", victim.key, by.key)
            }
            Self::DeleteVictim { victim, by, .. } => write!(f, "delete {} for {}", victim.key, by.key),
        }
    }
}

/// Maximum length of the message of an Event, in bytes. Upstream: `NoteLengthLimit`.
const EVENT_MESSAGE_BYTES_MAX: usize = 1024;

/// Truncates a message to [`EVENT_MESSAGE_BYTES_MAX`] bytes. A truncated message ends with ` ...`.
pub(super) fn truncate_event_message(message: &str) -> String {
    /// The text that ends a truncated message.
    const ELLIPSIS: &str = " ...";
    if message.len() <= EVENT_MESSAGE_BYTES_MAX {
        return message.into();
    }
    text::truncate(message, EVENT_MESSAGE_BYTES_MAX - ELLIPSIS.len(), ELLIPSIS).into_owned()
}
