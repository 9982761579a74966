//! Adds the default tolerations to pods, so that a pod stays on a not-ready or unreachable node for five minutes.
//! Upstream: `DefaultTolerationSeconds`.

use muster_api::well_known::{TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE};
use serde_json::{Value, json};

use crate::unstructured::{list_at, map_at_mut, str_at};

/// `tolerationSeconds` of the tolerations that are added: five minutes.
const DEFAULT_TOLERATION_S: u32 = 300;
/// Taints of a node that is not Ready or not reachable. The default tolerations are for these taints.
const NODE_FAILURE_TAINTS: [&str; 2] = [TAINT_NODE_NOT_READY, TAINT_NODE_UNREACHABLE];

/// Adds a toleration for each taint in `NODE_FAILURE_TAINTS` for which the pod has no `NoExecute` toleration.
pub(super) fn mutate(pod: &mut Value) {
    let tolerates = |taint: &str| {
        list_at(&pod["spec"], "tolerations").iter().any(|it| {
            let (key, effect) = (str_at(it, "key"), str_at(it, "effect"));
            (key.is_empty() || key == taint) && (effect.is_empty() || effect == "NoExecute")
        })
    };
    let missing: Vec<_> = NODE_FAILURE_TAINTS
        .into_iter()
        .filter(|it| !tolerates(it))
        .map(|it| json!({"key": it, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": DEFAULT_TOLERATION_S}))
        .collect();
    if missing.is_empty() {
        return;
    }
    match map_at_mut(pod, "spec").entry("tolerations").or_insert_with(|| json!([])) {
        Value::Array(tolerations) => tolerations.extend(missing),
        other => *other = Value::Array(missing),
    }
}
