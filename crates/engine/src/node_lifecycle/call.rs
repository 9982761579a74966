//! The calls about nodes and their pods, and what goes over the wire for each.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use serde_json::{Map, Value, json};

use super::decode::{Condition, LEASE_NAMESPACE, Node, Pod, Taint};
use super::{leases, nodes, pods};
use crate::controller::Request;
use crate::daemonset::manifest::{Patch, Verb};

/// The reason that a pod gives for going.
pub(super) const ANNOUNCED: &str = "DeletionByTaintManager";

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    /// Whether a node that seems to be silent is: a watch may be late.
    ReadLease {
        node: Text,
        /// When it was last heard of.
        heard: Time,
    },
    /// Nobody knows how the node is.
    Doubt {
        node: Arc<Node>,
        conditions: Vec<Condition>,
        at: Time,
    },
    /// Its taints and labels follow from what is known of it.
    Amend {
        node: Arc<Node>,
        taints: Option<Vec<Taint>>,
    },
    /// The pod is not ready, for nobody knows how its node is.
    Unready {
        pod: Arc<Pod>,
        at: Time,
    },
    /// The pod says why it goes.
    Announce {
        pod: Arc<Pod>,
        at: Time,
    },
    Delete {
        pod: Arc<Pod>,
    },
}

pub(super) fn request(call: &Call) -> Request {
    let on_node = |node: &Node| nodes().resource.path(&ObjectKey::new("", node.name.clone()));
    let on_pod = |pod: &Pod| pods().resource.path(&pod.key);
    match call {
        Call::ReadLease { node, .. } => Request {
            verb: Verb::Get,
            path: leases().resource.path(&ObjectKey::new(LEASE_NAMESPACE, node.clone())),
            body: None,
            metadata_only: false,
        },
        // Every write about a node is made on the version that was looked at: the node itself may have spoken since.
        Call::Doubt { node, conditions, at } => {
            let conditions: Vec<Value> = conditions.iter().map(|it| doubted(node, *it, *at)).collect();
            let body = json!({"metadata": version(node), "status": {"conditions": conditions}});
            patch(Patch::Strategic, on_node(node) + "/status", body)
        }
        Call::Amend { node, taints } => {
            let mut metadata = version(node);
            if !node.labels.is_empty() {
                let labels = node.labels.iter().map(|(key, value)| (key.to_string(), json!(value)));
                metadata["labels"] = Value::Object(labels.collect());
            }
            let mut body = json!({"metadata": metadata});
            if let Some(taints) = taints {
                body["spec"] = json!({"taints": taints.iter().map(written).collect::<Vec<_>>()});
            }
            patch(Patch::Merge, on_node(node), body)
        }
        Call::Unready { pod, at } => {
            let condition = json!({
                "type": "Ready",
                "status": "False",
                "lastTransitionTime": at.to_rfc3339(),
            });
            let metadata = json!({"uid": pod.uid, "resourceVersion": pod.resource_version.to_string()});
            let body = json!({"metadata": metadata, "status": {"conditions": [condition]}});
            patch(Patch::Strategic, on_pod(pod) + "/status", body)
        }
        Call::Announce { pod, at } => {
            let mut condition = json!({
                "type": "DisruptionTarget",
                "status": "True",
                "reason": ANNOUNCED,
                "message": "Taint manager: deleting due to NoExecute taint",
                "lastTransitionTime": at.to_rfc3339(),
            });
            if pod.generation != 0 {
                condition["observedGeneration"] = pod.generation.into();
            }
            let body = json!({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}});
            patch(Patch::Strategic, on_pod(pod) + "/status", body)
        }
        Call::Delete { pod } => Request {
            verb: Verb::Delete,
            path: on_pod(pod),
            body: Some(json!({
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": pod.uid},
            })),
            metadata_only: true,
        },
    }
}

fn patch(kind: Patch, path: String, body: Value) -> Request {
    Request { verb: Verb::Patch(kind), path, body: Some(body), metadata_only: true }
}

fn version(node: &Node) -> Value {
    json!({"uid": node.uid, "resourceVersion": node.resource_version.to_string()})
}

/// A condition that nobody vouches for any more.
fn doubted(node: &Node, condition: Condition, at: Time) -> Value {
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

/// As it was read, but for what is ours.
fn written(taint: &Taint) -> Value {
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

/// As tests and logs show it.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadLease { node, .. } => write!(f, "read the lease of node {node}"),
            Self::Doubt { node, conditions, .. } => {
                let conditions: Vec<&str> = conditions.iter().map(|it| it.as_str()).collect();
                write!(f, "node {} has unknown {}", node.name, conditions.join(" "))
            }
            Self::Amend { node, taints } => {
                write!(f, "node {}", node.name)?;
                if let Some(taints) = taints {
                    let taints: Vec<String> = taints.iter().map(ToString::to_string).collect();
                    write!(f, " has taints [{}]", taints.join(" "))?;
                }
                node.labels.iter().try_for_each(|(key, value)| write!(f, " has label {key}={value}"))
            }
            Self::Unready { pod, .. } => write!(f, "pod {} is not ready", pod.key),
            Self::Announce { pod, .. } => write!(f, "pod {} says why it leaves", pod.key),
            Self::Delete { pod } => write!(f, "delete pod {}", pod.key),
        }
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.key.strip_prefix("node.kubernetes.io/").unwrap_or(&self.key);
        let value = if self.value.is_empty() { String::new() } else { format!("={}", self.value) };
        write!(f, "{short}{value}:{}", self.effect)?;
        self.added.iter().try_for_each(|it| write!(f, "@{it}"))
    }
}
