//! Applies the overhead and the scheduling constraints of a RuntimeClass to new pods that name it. Upstream:
//! `RuntimeClass`.

use serde_json::{Map, Value};

use super::AdmissionAttributes;
use super::AdmissionChain;
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::small_map::SmallSet;
use crate::unstructured::{self, is_set, list_at, map_at_mut, str_at};
use muster_api::resources::quantities_from_json;

/// Error message for a pod whose overhead differs from that of its RuntimeClass.
const OVERHEAD_MISMATCH_MESSAGE: &str =
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Sets the overhead of a new pod from its RuntimeClass, and adds the node selector and tolerations of the
/// RuntimeClass. Refuses a pod whose RuntimeClass does not exist, or that sets a different overhead or a contradictory
/// node selector.
pub(super) fn mutate(
    admission: &AdmissionChain,
    attributes: AdmissionAttributes<'_>,
    pod: &mut Value,
) -> Result<(), ApiError> {
    let Some(class) = runtime_class_of(admission, attributes, pod)? else { return Ok(()) };
    let overhead = &class["overhead"]["podFixed"];
    if !class["overhead"].is_null() {
        let given = &pod["spec"]["overhead"];
        if is_set(given) && quantities_from_json(given) != quantities_from_json(overhead) {
            return Err(attributes.forbidden(pod, OVERHEAD_MISMATCH_MESSAGE));
        }
        if is_set(overhead) {
            map_at_mut(pod, "spec").insert("overhead".into(), overhead.clone());
        }
    }
    let scheduling = &class["scheduling"];
    if scheduling.is_null() {
        return Ok(());
    }
    let mut selector = pod["spec"]["nodeSelector"].as_object().cloned().unwrap_or_default();
    if let Some((key, required, given)) = merge_node_selector(&mut selector, &scheduling["nodeSelector"]) {
        let why = format!(
            "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {required}; pod.spec.nodeSelector[{key}] = {given}"
        );
        return Err(attributes.forbidden(pod, &why));
    }
    let tolerations =
        merge_tolerations(list_at(&pod["spec"], "tolerations"), list_at(scheduling, "tolerations"));
    let spec = map_at_mut(pod, "spec");
    if !selector.is_empty() {
        spec.insert("nodeSelector".into(), selector.into());
    }
    if !tolerations.is_empty() {
        spec.insert("tolerations".into(), tolerations.into());
    }
    Ok(())
}

/// Checks that the overhead of a new pod equals the overhead of its RuntimeClass. A pod without a RuntimeClass must
/// have no overhead.
pub(super) fn validate(
    admission: &AdmissionChain,
    attributes: AdmissionAttributes<'_>,
    pod: &Value,
) -> Result<(), ApiError> {
    if !attributes.is_create() {
        return Ok(());
    }
    let class = runtime_class_of(admission, attributes, pod)?.unwrap_or_default();
    let given = &pod["spec"]["overhead"];
    match &class["overhead"] {
        Value::Null if is_set(given) => {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            Err(attributes.forbidden(pod, why))
        }
        overhead if quantities_from_json(&overhead["podFixed"]) != quantities_from_json(given) => {
            Err(attributes.forbidden(pod, OVERHEAD_MISMATCH_MESSAGE))
        }
        _ => Ok(()),
    }
}

/// Returns the RuntimeClass of a new pod, or `None` if the pod names no RuntimeClass or is not new. Returns an error if
/// the RuntimeClass does not exist.
fn runtime_class_of(
    admission: &AdmissionChain,
    attributes: AdmissionAttributes<'_>,
    pod: &Value,
) -> Result<Option<Value>, ApiError> {
    let Some(name) = pod["spec"]["runtimeClassName"].as_str().filter(|_| attributes.is_create()) else {
        return Ok(None);
    };
    let kind = Kind::builtin("node.k8s.io", "v1", "runtimeclasses");
    match admission.storage.find(kind, None, name) {
        Some(class) => Ok(Some(unstructured::parse_stored(&class))),
        None => Err(attributes.forbidden(pod, &format!("pod rejected: RuntimeClass {name:?} not found"))),
    }
}

/// Adds the entries of `more` to a node selector. If a key has different values in both, returns the key, its value in
/// `more`, and its value in the selector. Otherwise returns `None`.
fn merge_node_selector<'a>(
    selector: &mut Map<String, Value>,
    more: &'a Value,
) -> Option<(&'a str, String, String)> {
    for (key, required) in more.as_object().into_iter().flatten() {
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        match selector.get(key) {
            Some(given) if given != required => return Some((key, text(required), text(given))),
            _ => drop(selector.insert(key.clone(), required.clone())),
        }
    }
    None
}

/// Merges two lists of tolerations. Drops duplicates, and tolerations that another toleration covers. If there are more
/// than `COMPARED_TOLERATIONS_MAX`, drops only duplicates, because each toleration is compared with each other one.
/// Upstream: `MergeTolerations`.
fn merge_tolerations(first: &[Value], second: &[Value]) -> Vec<Value> {
    /// Maximum number of tolerations that are compared with each other.
    const COMPARED_TOLERATIONS_MAX: usize = 500;
    let all: Vec<&Value> = first.iter().chain(second).collect();
    if COMPARED_TOLERATIONS_MAX < all.len() {
        let mut seen = SmallSet::default();
        return all.into_iter().filter(|it| seen.insert(*it)).cloned().collect();
    }
    let mut merged: Vec<Value> = Vec::new();
    for (index, it) in all.iter().enumerate() {
        let is_covered = merged.iter().any(|other| is_superset(other, it))
            || all[index + 1..].iter().any(|other| other != it && is_superset(other, it));
        if !is_covered {
            merged.push((*it).clone());
        }
    }
    merged
}

/// Whether the toleration `more` makes the toleration `it` redundant. For this, `more` must have the same key or
/// tolerate all keys, the same effect or tolerate all effects, and the same value or the operator `Exists`. If its
/// effect is `NoExecute`, its `tolerationSeconds` must not be shorter. Upstream: `isSuperset`.
fn is_superset(more: &Value, it: &Value) -> bool {
    if more == it {
        return true;
    }
    let both = |name: &str| (str_at(more, name).to_owned(), str_at(it, name).to_owned());
    let (key, its_key) = both("key");
    let (effect, its_effect) = both("effect");
    let (operator, its_operator) = both("operator");
    let (value, its_value) = both("value");
    if key != its_key && !(key.is_empty() && operator == "Exists") {
        return false;
    }
    if effect != its_effect && !effect.is_empty() {
        return false;
    }
    if let Some(most) = more["tolerationSeconds"].as_i64().filter(|_| effect == "NoExecute")
        && it["tolerationSeconds"].as_i64().is_none_or(|its| most < its)
    {
        return false;
    }
    match operator.as_str() {
        "" | "Equal" => its_operator == "Equal" && its_value == value,
        operator => operator == "Exists",
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_toleration_that_another_covers_goes() {
        let exists = |key: &str, effect: &str| json!({"key": key, "operator": "Exists", "effect": effect});
        let equal = |key: &str, value: &str| json!({"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"});
        let for_s =
            |s: i64| json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": s});
        let said = |first: &[Value], second: &[Value]| {
            let line = |it: &Value| {
                let seconds =
                    it["tolerationSeconds"].as_i64().map(|it| format!(" for {it} s")).unwrap_or_default();
                format!("{}={}:{}{seconds}", str_at(it, "key"), str_at(it, "value"), str_at(it, "effect"))
            };
            merge_tolerations(first, second).iter().map(line).collect::<Vec<_>>().join(", ") + "\n"
        };
        expect![[r"
            a=:NoSchedule, b=1:NoSchedule
            a=:
            a=1:NoSchedule, a=2:NoSchedule
            k=:NoExecute for 5 s
            =:
        "]]
        .assert_eq(
            &[
                said(&[exists("a", "NoSchedule")], &[exists("a", "NoSchedule"), equal("b", "1")]),
                said(&[exists("a", "NoSchedule")], &[exists("a", "")]),
                said(&[equal("a", "1")], &[equal("a", "2")]),
                said(&[for_s(5)], &[for_s(4)]),
                said(&[exists("a", "NoSchedule"), equal("b", "1"), for_s(1)], &[exists("", "")]),
            ]
            .concat(),
        );
    }
}
