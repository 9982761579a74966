//! The calls of the node lifecycle controller and their API requests.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::DISRUPTION_TARGET;
use serde_json::{Map, Value, json};

use super::decode::{LEASE_NAMESPACE, Node, NodeConditionType, Pod, Taint};
use super::{lease_watch, node_watch, pod_watch};
use crate::controller::{PatchFormat, Request, Verb, delete_options};

/// Reason of the condition `DisruptionTarget` of an evicted pod. Upstream: `PodReasonDeletionByTaintManager`.
pub(super) const DELETION_BY_TAINT_MANAGER: &str = "DeletionByTaintManager";

/// A call of the node lifecycle controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeLifecycleCall {
    /// Reads the Lease of a node before the node is marked Unknown, because the watch may be delayed. `last_heartbeat`
    /// is the time of the last heartbeat that the watch has delivered.
    ReadLease { node: Text, last_heartbeat: Time },
    /// Sets conditions of a node to Unknown, with `at` as their transition time.
    MarkUnknown { node: Arc<Node>, conditions: Vec<NodeConditionType>, at: Time },
    /// Sets the deprecated aliases of the node's OS and architecture labels ([`Node::alias_labels`]), and replaces the
    /// taints of the node if `taints` is `Some`.
    PatchNode { node: Arc<Node>, taints: Option<Vec<Taint>> },
    /// Sets the condition `Ready` of a pod to False because its node is Unknown, with `at` as the transition time.
    MarkPodNotReady { pod: Arc<Pod>, at: Time },
    /// Sets the condition `DisruptionTarget` of a pod before the pod is evicted, with `at` as the transition time.
    MarkDisruptionTarget { pod: Arc<Pod>, at: Time },
    /// Deletes a pod in order to evict it.
    DeletePod { pod: Arc<Pod> },
}

/// Returns the API request of a call.
pub(super) fn request(call: &NodeLifecycleCall) -> Request {
    let on_node = |node: &Node| node_watch().resource.path(&ObjectKey::new("", node.name.clone()));
    let on_pod = |pod: &Pod| pod_watch().resource.path(&pod.key);
    match call {
        NodeLifecycleCall::ReadLease { node, .. } => Request {
            verb: Verb::Get,
            path: lease_watch().resource.path(&ObjectKey::new(LEASE_NAMESPACE, node.clone())),
            body: None,
            metadata_only: false,
        },
        // Each patch of a Node has the `resourceVersion` as precondition: the node may have sent a heartbeat since.
        NodeLifecycleCall::MarkUnknown { node, conditions, at } => {
            let conditions: Vec<Value> =
                conditions.iter().map(|it| unknown_condition(node, *it, *at)).collect();
            let body = json!({"metadata": precondition_metadata(node), "status": {"conditions": conditions}});
            patch_request(PatchFormat::Strategic, on_node(node) + "/status", body)
        }
        NodeLifecycleCall::PatchNode { node, taints } => {
            let mut metadata = precondition_metadata(node);
            if !node.alias_labels.is_empty() {
                let labels = node.alias_labels.iter().map(|(key, value)| (key.to_string(), json!(value)));
                metadata["labels"] = Value::Object(labels.collect());
            }
            let mut body = json!({"metadata": metadata});
            if let Some(taints) = taints {
                body["spec"] = json!({"taints": taints.iter().map(taint_json).collect::<Vec<_>>()});
            }
            patch_request(PatchFormat::Merge, on_node(node), body)
        }
        NodeLifecycleCall::MarkPodNotReady { pod, at } => {
            let condition = json!({
                "type": "Ready",
                "status": "False",
                "lastTransitionTime": at.to_rfc3339(),
            });
            let metadata = json!({"uid": pod.uid, "resourceVersion": pod.resource_version.to_string()});
            let body = json!({"metadata": metadata, "status": {"conditions": [condition]}});
            patch_request(PatchFormat::Strategic, on_pod(pod) + "/status", body)
        }
        NodeLifecycleCall::MarkDisruptionTarget { pod, at } => {
            let mut condition = json!({
                "type": DISRUPTION_TARGET,
                "status": "True",
                "reason": DELETION_BY_TAINT_MANAGER,
                "message": "Taint manager: deleting due to NoExecute taint",
                "lastTransitionTime": at.to_rfc3339(),
            });
            if pod.generation != 0 {
                condition["observedGeneration"] = pod.generation.into();
            }
            let body = json!({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}});
            patch_request(PatchFormat::Strategic, on_pod(pod) + "/status", body)
        }
        NodeLifecycleCall::DeletePod { pod } => Request {
            verb: Verb::Delete,
            path: on_pod(pod),
            body: Some(delete_options(&pod.uid, None)),
            metadata_only: true,
        },
    }
}

/// Returns a patch request. The response contains only the metadata of the object.
fn patch_request(kind: PatchFormat, path: String, body: Value) -> Request {
    Request { verb: Verb::Patch(kind), path, body: Some(body), metadata_only: true }
}

/// Returns the `metadata` of a patch, with UID and `resourceVersion` of the node as preconditions.
fn precondition_metadata(node: &Node) -> Value {
    json!({"uid": node.uid, "resourceVersion": node.resource_version.to_string()})
}

/// Returns the JSON of a node condition with status Unknown. Upstream: `tryUpdateNodeHealth`.
fn unknown_condition(node: &Node, condition: NodeConditionType, at: Time) -> Value {
    let (reason, message) = match node.conditions.get(condition) {
        Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
        None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
    };
    let mut body = json!({
        "type": condition.as_str(),
        "status": "Unknown",
        "reason": reason,
        "message": message,
        "lastTransitionTime": at.to_rfc3339(),
    });
    if node.conditions.get(condition).is_none() && !node.created.is_empty() {
        body["lastHeartbeatTime"] = json!(node.created);
    }
    body
}

/// Returns the JSON of a taint with all its fields, because a merge patch replaces all taints of the Node.
fn taint_json(taint: &Taint) -> Value {
    let mut body = Map::new();
    body.insert("key".to_string(), json!(taint.key));
    if !taint.value.is_empty() {
        body.insert("value".to_string(), json!(taint.value));
    }
    body.insert("effect".to_string(), json!(taint.effect));
    if let Some(added) = &taint.added {
        body.insert("timeAdded".to_string(), json!(added));
    }
    Value::Object(body)
}

/// Formats the call on one line, for logs and tests.
impl fmt::Display for NodeLifecycleCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadLease { node, .. } => write!(f, "read the lease of node {node}"),
            Self::MarkUnknown { node, conditions, .. } => {
                let conditions: Vec<&str> = conditions.iter().map(|it| it.as_str()).collect();
                write!(f, "set conditions of node {} to Unknown: {}", node.name, conditions.join(" "))
            }
            Self::PatchNode { node, taints } => {
                write!(f, "patch node {}", node.name)?;
                if let Some(taints) = taints {
                    let taints: Vec<String> = taints.iter().map(ToString::to_string).collect();
                    write!(f, " taints [{}]", taints.join(" "))?;
                }
                node.alias_labels.iter().try_for_each(|(key, value)| write!(f, " label {key}={value}"))
            }
            Self::MarkPodNotReady { pod, .. } => write!(f, "mark pod {} as not ready", pod.key),
            Self::MarkDisruptionTarget { pod, .. } => write!(f, "mark pod {} as DisruptionTarget", pod.key),
            Self::DeletePod { pod } => write!(f, "delete pod {}", pod.key),
        }
    }
}

/// Formats a taint as `KEY[=VALUE]:EFFECT[@TIME]`, without the prefix `node.kubernetes.io/` of the key.
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.key.strip_prefix("node.kubernetes.io/").unwrap_or(&self.key);
        let value = if self.value.is_empty() { String::new() } else { format!("={}", self.value) };
        write!(f, "{short}{value}:{}", self.effect)?;
        self.added.iter().try_for_each(|it| write!(f, "@{it}"))
    }
}
