//! Validation of tolerations, taints, affinity and topology spread constraints.

use serde_json::Value;

use super::{check_choice, check_positive};
use crate::small_map::{SmallMap, SmallSet};
use crate::unstructured::{list_at, str_at};
use crate::validation::field_error::{ErrorPath, FieldErrors};
use crate::validation::{labels, names};

/// Supported effects of taints and tolerations.
const TAINT_EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Checks the tolerations of a pod or RuntimeClass.
pub(super) fn check_tolerations(tolerations: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    for (index, it) in tolerations.iter().enumerate() {
        let at = at.index(index);
        let (key, operator) = (str_at(it, "key"), str_at(it, "operator"));
        let (value, effect) = (str_at(it, "value"), str_at(it, "effect"));
        let operator_at = at.field("operator");
        if !key.is_empty() {
            labels::check_label_key(key, &at.field("key"), out);
        } else if operator != "Exists" {
            let why =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            out.invalid(&operator_at, operator, why);
        }
        if !it["tolerationSeconds"].is_null() && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            out.invalid(&at.field("effect"), effect, why);
        }
        match operator {
            "Equal" | "" => {
                let errors = names::label_value_errors(value);
                if !errors.is_empty() {
                    out.invalid(&operator_at, value, &errors.join(";"));
                }
            }
            "Exists" if !value.is_empty() => {
                out.invalid(&operator_at, value, "value must be empty when `operator` is 'Exists'");
            }
            "Exists" => {}
            "Lt" | "Gt" => out.unsupported(&operator_at, operator, &["Equal", "Exists", "Lt", "Gt"]),
            other => out.unsupported(&operator_at, other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            check_choice(&it["effect"], TAINT_EFFECTS, &at.field("effect"), out);
        }
    }
}

/// Checks the taints of a node. No two taints may have the same key and effect.
pub(super) fn check_taints(taints: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    let mut seen = SmallSet::default();
    for (index, it) in taints.iter().enumerate() {
        let at = at.index(index);
        let (key, value, effect) = (str_at(it, "key"), str_at(it, "value"), str_at(it, "effect"));
        labels::check_label_key(key, &at.field("key"), out);
        let errors = names::label_value_errors(value);
        if !errors.is_empty() {
            out.invalid(&at.field("value"), value, &errors.join(";"));
        }
        if effect.is_empty() {
            out.required(&at.field("effect"), "");
        } else {
            check_choice(&it["effect"], TAINT_EFFECTS, &at.field("effect"), out);
        }
        if !seen.insert((key, effect)) {
            let why = "taints must be unique by key and effect pair";
            out.duplicate_because(
                &at,
                super::format_as_go_struct(
                    it,
                    &[("Key", "key"), ("Value", "value"), ("Effect", "effect"), ("TimeAdded", "timeAdded")],
                ),
                why,
            );
        }
    }
}

/// Name of the field for required affinity.
pub(super) const REQUIRED_AFFINITY: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Checks the node affinity, pod affinity and pod anti-affinity of a pod.
pub(super) fn check_affinity(affinity: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    /// Name of the field for preferred affinity.
    const PREFERRED_AFFINITY: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let (node, node_at) = (&affinity["nodeAffinity"], at.field("nodeAffinity"));
    if !node[REQUIRED_AFFINITY].is_null() {
        check_node_selector(&node[REQUIRED_AFFINITY], &node_at.field(REQUIRED_AFFINITY), out);
    }
    for (index, term) in list_at(node, PREFERRED_AFFINITY).iter().enumerate() {
        let at = node_at.field(PREFERRED_AFFINITY);
        let at = at.index(index);
        check_weight(term, &at, out);
        check_node_selector_term(&term["preference"], false, &at.field("preference"), out);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (pod, at) = (&affinity[kind], at.field(kind));
        for (index, term) in list_at(pod, REQUIRED_AFFINITY).iter().enumerate() {
            check_pod_affinity_term(term, &at.field(REQUIRED_AFFINITY).index(index), out);
        }
        for (index, term) in list_at(pod, PREFERRED_AFFINITY).iter().enumerate() {
            let at = at.field(PREFERRED_AFFINITY);
            let at = at.index(index);
            check_weight(term, &at, out);
            check_pod_affinity_term(&term["podAffinityTerm"], &at.field("podAffinityTerm"), out);
        }
    }
}

/// Checks that the weight of a preferred affinity term is between 1 and 100.
fn check_weight(term: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let weight = term["weight"].as_i64().unwrap_or(0);
    if !(1..=100).contains(&weight) {
        out.invalid(&at.field("weight"), weight, "must be in the range 1-100");
    }
}

/// Checks a required node affinity, which is a node selector with at least one term.
fn check_node_selector(selector: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let terms = list_at(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        out.required(&at.field("nodeSelectorTerms"), "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        check_node_selector_term(term, true, &at.field("nodeSelectorTerms").index(index), out);
    }
}

/// Checks a node selector term. `checks_values` is `false` for a preferred term, because upstream does not check its
/// label values.
fn check_node_selector_term(term: &Value, checks_values: bool, at: &ErrorPath, out: &mut FieldErrors) {
    for (index, it) in list_at(term, "matchExpressions").iter().enumerate() {
        let at = at.field("matchExpressions");
        let at = at.index(index);
        let values = list_at(it, "values");
        let values_at = at.field("values");
        match str_at(it, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                out.required(&values_at, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                out.forbidden(
                    &values_at,
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                );
            }
            "Gt" | "Lt" if values.len() != 1 => {
                out.required(&values_at, "must be specified single value when `operator` is 'Lt' or 'Gt'");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => out.invalid(&at.field("operator"), other, "not a valid selector operator"),
        }
        labels::check_label_key(str_at(it, "key"), &at.field("key"), out);
        for (index, value) in values.iter().enumerate().filter(|_| checks_values) {
            let value = value.as_str().unwrap_or_default();
            out.invalid_for_each(&values_at.index(index), value, names::label_value_errors(value));
        }
    }
    for (index, it) in list_at(term, "matchFields").iter().enumerate() {
        let at = at.field("matchFields");
        let at = at.index(index);
        let values = list_at(it, "values");
        match str_at(it, "operator") {
            "In" | "NotIn" if values.len() != 1 => {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                out.required(&at.field("values"), why);
            }
            "In" | "NotIn" => {}
            other => out.invalid(&at.field("operator"), other, "not a valid selector operator"),
        }
        let key = str_at(it, "key");
        if key != "metadata.name" {
            out.invalid(&at.field("key"), key, "not a valid field selector key");
            continue;
        }
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            out.invalid_for_each(&at.field("values").index(index), value, names::dns_subdomain_errors(value));
        }
    }
}

fn check_pod_affinity_term(term: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    labels::check_selector(&term["labelSelector"], &at.field("labelSelector"), out);
    labels::check_selector(&term["namespaceSelector"], &at.field("namespaceSelector"), out);
    for name in list_at(term, "namespaces") {
        let name = name.as_str().unwrap_or_default();
        out.invalid_for_each(&at.field("namespace"), name, names::dns_label_errors(name));
    }
    check_match_label_keys(term, at, out);
    let key = str_at(term, "topologyKey");
    if key.is_empty() {
        out.required(&at.field("topologyKey"), "can not be empty");
    }
    labels::check_label_key(key, &at.field("topologyKey"), out);
}

/// Checks `matchLabelKeys` and `mismatchLabelKeys` of an affinity term or spread constraint.
fn check_match_label_keys(it: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let (matched, mismatched) = (list_at(it, "matchLabelKeys"), list_at(it, "mismatchLabelKeys"));
    let selector = &it["labelSelector"];
    for (name, keys) in [("matchLabelKeys", matched), ("mismatchLabelKeys", mismatched)] {
        if !keys.is_empty() && selector.is_null() {
            out.forbidden(&at.field(name), "must not be specified when labelSelector is not set");
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            labels::check_label_key(key.as_str().unwrap_or_default(), &at.field(name).index(index), out);
        }
    }
    // The selector already has one merged expression for each key, so a second one is from the user.
    let mut seen: SmallSet<&str> =
        selector["matchLabels"].as_object().into_iter().flatten().map(|it| it.0.as_str()).collect();
    let last_matched: SmallMap<_, _> =
        matched.iter().enumerate().rev().filter_map(|(index, it)| Some((it.as_str()?, index))).collect();
    for expression in list_at(selector, "matchExpressions") {
        let key = str_at(expression, "key");
        if !seen.insert(key)
            && let Some(index) = last_matched.get(key)
        {
            out.invalid(&at.index(*index), key, "exists in both matchLabelKeys and labelSelector");
        }
    }
    let mismatched: SmallSet<_> = mismatched.iter().collect();
    for (index, key) in matched.iter().enumerate().filter(|(_, key)| mismatched.contains(key)) {
        let key = key.as_str().unwrap_or_default();
        let why = "exists in both matchLabelKeys and mismatchLabelKeys";
        out.invalid(&at.field("matchLabelKeys").index(index), key, why);
    }
}

/// Returns the fields of a topology spread constraint that must be unique together.
fn key_and_action(constraint: &Value) -> (&str, &str) {
    (str_at(constraint, "topologyKey"), str_at(constraint, "whenUnsatisfiable"))
}

pub(super) fn check_topology_spread(constraints: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    /// Supported values of `whenUnsatisfiable`.
    const UNSATISFIABLE_ACTIONS: &[&str] = &["DoNotSchedule", "ScheduleAnyway"];
    let last: SmallMap<(&str, &str), usize> =
        constraints.iter().enumerate().rev().map(|(index, it)| (key_and_action(it), index)).collect();
    for (index, it) in constraints.iter().enumerate() {
        let at = at.index(index);
        let (key, action) = key_and_action(it);
        check_positive(it["maxSkew"].as_i64().unwrap_or(0), &at.field("maxSkew"), out);
        if key.is_empty() {
            out.required(&at.field("topologyKey"), "can not be empty");
        }
        if !UNSATISFIABLE_ACTIONS.contains(&action) {
            out.unsupported(&at.field("whenUnsatisfiable"), action, UNSATISFIABLE_ACTIONS);
        }
        if last.get(&(key, action)) != Some(&index) {
            out.duplicate(&at.field("{topologyKey, whenUnsatisfiable}"), &format!("{{{key}, {action}}}"));
        }
        if let Some(domains) = it["minDomains"].as_i64() {
            check_positive(domains, &at.field("minDomains"), out);
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                out.invalid(&at.field("minDomains"), domains, &why);
            }
        }
        for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            check_choice(&it[name], &["Honor", "Ignore"], &at.field(name), out);
        }
        check_match_label_keys(it, &at, out);
        labels::check_selector(&it["labelSelector"], &at.field("labelSelector"), out);
    }
}
