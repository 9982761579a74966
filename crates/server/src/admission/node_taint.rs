//! Adds the `node.kubernetes.io/not-ready` taint to new Nodes, so that pods without a toleration for it are not
//! scheduled before the node is ready.
//! Upstream: `TaintNodesByCondition`.

use muster_api::well_known::TAINT_NODE_NOT_READY;
use serde_json::{Value, json};

use super::AdmissionAttributes;
use crate::unstructured::{list_at, map_at_mut};

/// Adds the taint `node.kubernetes.io/not-ready:NoSchedule` to a new Node that does not have it. The node lifecycle
/// controller removes the taint when the node is Ready.
pub(super) fn mutate(attributes: AdmissionAttributes<'_>, node: &mut Value) {
    let is_not_ready_taint = |it: &Value| it["key"] == TAINT_NODE_NOT_READY && it["effect"] == "NoSchedule";
    if !attributes.is_create() || list_at(&node["spec"], "taints").iter().any(is_not_ready_taint) {
        return;
    }
    let taint = json!({"key": TAINT_NODE_NOT_READY, "effect": "NoSchedule"});
    match map_at_mut(node, "spec").entry("taints").or_insert_with(|| json!([])) {
        Value::Array(taints) => taints.push(taint),
        other => *other = json!([taint]),
    }
}
