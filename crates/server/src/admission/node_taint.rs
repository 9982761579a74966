//! A new node takes no pods before it is known to be ready. Upstream: `TaintNodesByCondition`.

use serde_json::{Value, json};

use super::AdmissionAttributes;
use crate::unstructured::{list, map_mut};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Whoever sees that the node is ready takes the taint away.
pub(super) fn mutate(attributes: AdmissionAttributes<'_>, node: &mut Value) {
    let has_it = |it: &Value| it["key"] == NOT_READY && it["effect"] == "NoSchedule";
    if !attributes.is_create() || list(&node["spec"], "taints").iter().any(has_it) {
        return;
    }
    let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
    match map_mut(node, "spec").entry("taints").or_insert_with(|| json!([])) {
        Value::Array(taints) => taints.push(taint),
        other => *other = json!([taint]),
    }
}
