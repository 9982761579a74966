//! Applies the default requests and limits of a namespace's LimitRanges to new pods, and enforces the constraints of
//! these LimitRanges. Upstream: `LimitRanger`.

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use super::AdmissionAttributes;
use super::AdmissionChain;
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::selector::ObjectSelector;
use crate::unstructured::{self, list_at, map_at_mut, str_at};
use muster_api::quantity::Quantity;
use muster_api::resources::{ResourceQuantities, quantities_from_json, spec_pod_total};

/// Annotation of a pod that lists the defaults that were applied to it. If several LimitRanges set defaults, the
/// annotation lists only the defaults of the last one.
const DEFAULTS_ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Applies the LimitRange defaults to a new pod. Updates are ignored, because they do not change the resources of
/// containers.
pub(super) fn mutate(admission: &AdmissionChain, attributes: AdmissionAttributes<'_>, pod: &mut Value) {
    if !attributes.is_create() {
        return;
    }
    for range in limit_ranges(admission, attributes.namespace()) {
        apply_defaults(&range, pod);
    }
}

/// Refuses a new pod that violates a constraint of a LimitRange in its namespace.
pub(super) fn validate(
    admission: &AdmissionChain,
    attributes: AdmissionAttributes<'_>,
    pod: &Value,
) -> Result<(), ApiError> {
    if !attributes.is_create() {
        return Ok(());
    }
    for range in limit_ranges(admission, attributes.namespace()) {
        let errors = limit_range_violations(&range, pod);
        if let [one] = &errors[..] {
            return Err(attributes.forbidden(pod, one));
        }
        if !errors.is_empty() {
            return Err(attributes.forbidden(pod, &format!("[{}]", errors.join(", "))));
        }
    }
    Ok(())
}

/// Returns all LimitRanges of the namespace.
fn limit_ranges(admission: &AdmissionChain, namespace: &str) -> Vec<Value> {
    let kind = Kind::builtin("", "v1", "limitranges");
    let (ranges, _) = admission.storage.list(kind, Some(namespace), &ObjectSelector::default());
    ranges.iter().map(|it| unstructured::parse_stored(it)).collect()
}

/// Sets missing requests and limits of regular and init containers to the defaults of a LimitRange. Lists the defaults
/// that it has set, if any, in the annotation `DEFAULTS_ANNOTATION` of the pod, in place of an earlier value.
fn apply_defaults(range: &Value, pod: &mut Value) {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for limit in list_at(&range["spec"], "limits").iter().filter(|it| it["type"] == "Container") {
        requests.extend(limit["defaultRequest"].as_object().cloned().unwrap_or_default());
        limits.extend(limit["default"].as_object().cloned().unwrap_or_default());
    }
    let mut notes = Vec::new();
    for (containers, called) in [("containers", "container"), ("initContainers", "init container")] {
        for container in pod["spec"].get_mut(containers).and_then(Value::as_array_mut).into_iter().flatten() {
            for (which, defaults, noun) in [("requests", &requests, "request"), ("limits", &limits, "limit")]
            {
                let missing: Vec<_> = defaults
                    .iter()
                    .filter(|(name, _)| container["resources"][which].get(name).is_none())
                    .collect();
                if missing.is_empty() {
                    continue;
                }
                let names: Vec<_> = missing.iter().map(|(name, _)| name.as_str()).collect();
                notes.push(format!("{} {noun} for {called} {}", names.join(", "), str_at(container, "name")));
                map_at_mut(container, "resources");
                map_at_mut(&mut container["resources"], which)
                    .extend(missing.into_iter().map(|(name, amount)| (name.clone(), amount.clone())));
            }
        }
    }
    if !notes.is_empty() {
        let note = format!("LimitRanger plugin set: {}", notes.join("; "));
        map_at_mut(&mut pod["metadata"], "annotations").insert(DEFAULTS_ANNOTATION.into(), json!(note));
    }
}

/// Returns an error message for each violation of a LimitRange by a regular or init container, or by the pod as a
/// whole. Ignores items of the LimitRange whose type is neither `Container` nor `Pod`.
fn limit_range_violations(range: &Value, pod: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    for limit in list_at(&range["spec"], "limits") {
        let spec = &pod["spec"];
        match str_at(limit, "type") {
            "Container" => {
                for container in list_at(spec, "containers").iter().chain(list_at(spec, "initContainers")) {
                    let of = |which: &str| quantities_from_json(&container["resources"][which]);
                    check_limit_range_item(limit, &of("requests"), &of("limits"), &mut errors);
                }
            }
            "Pod" => {
                let of = |which| spec_pod_total(spec, which);
                check_limit_range_item(limit, &of("requests"), &of("limits"), &mut errors);
            }
            _ => {}
        }
    }
    errors
}

/// Checks requests and limits against `min`, `max` and `maxLimitRequestRatio` of `limit`, one item of a LimitRange.
/// Appends a message for each violation to `errors`. A missing request violates `min`, and a missing limit violates
/// `max`. Either violates `maxLimitRequestRatio`.
fn check_limit_range_item(
    limit: &Value,
    requests: &ResourceQuantities,
    limits: &ResourceQuantities,
    errors: &mut Vec<String>,
) {
    let kind = str_at(limit, "type");
    let (request, limit_of) = (("request", requests), ("limit", limits));
    for (field, word, [first, second], violation) in [
        ("min", "minimum", [request, limit_of], Ordering::Less),
        ("max", "maximum", [limit_of, request], Ordering::Greater),
    ] {
        for (name, bound) in quantities_from_json(&limit[field]) {
            let constraint = format!("{word} {name} usage per {kind} is {bound}");
            let is_violated = |it: &Quantity| it.millis().cmp(&bound.millis()) == violation;
            match (first.1.get(&name), second.1.get(&name)) {
                (None, _) => errors.push(format!("{constraint}.  No {} is specified", first.0)),
                (Some(it), _) if is_violated(it) => {
                    errors.push(format!("{constraint}, but {} is {it}", first.0));
                }
                (_, Some(it)) if is_violated(it) => {
                    errors.push(format!("{constraint}, but {} is {it}", second.0));
                }
                _ => {}
            }
        }
    }
    for (name, max) in quantities_from_json(&limit["maxLimitRequestRatio"]) {
        let constraint = format!("{name} max limit to request ratio per {kind} is {max}");
        let of = |all: &ResourceQuantities| all.get(&name).copied().unwrap_or(Quantity::ZERO).millis();
        match (of(requests), of(limits)) {
            (0, _) => errors.push(format!("{constraint}, but no request is specified or request is 0")),
            (_, 0) => errors.push(format!("{constraint}, but no limit is specified or limit is 0")),
            (request, limit) if max.millis().saturating_mul(request) < limit.saturating_mul(1000) => {
                errors.push(format!("{constraint}, but provided ratio is {}", format_ratio(limit, request)));
            }
            _ => {}
        }
    }
}

/// Formats `limit` divided by `request` with six decimal places.
fn format_ratio(limit: i128, request: i128) -> String {
    const MILLION: i128 = 1_000_000;
    let rounded = (limit.saturating_mul(MILLION).saturating_mul(2) / request + 1) / 2;
    format!("{}.{:06}", rounded / MILLION, rounded % MILLION)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn limit_range_defaults_are_applied() {
        let range = json!({"spec": {"limits": [
            {"type": "Container", "default": {"cpu": "500m", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}},
            {"type": "Pod", "max": {"cpu": "4"}},
        ]}});
        let mut pod = json!({"metadata": {}, "spec": {
            "containers": [{"name": "a"}, {"name": "b", "resources": {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "1"}}}],
            "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "1"}}}],
        }});
        apply_defaults(&range, &mut pod);
        expect![[r#"
            {"annotations":{"kubernetes.io/limit-ranger":"LimitRanger plugin set: cpu request for container a; cpu, memory limit for container a; cpu request for init container i; memory limit for init container i"}}
            [{"name":"a","resources":{"limits":{"cpu":"500m","memory":"1Gi"},"requests":{"cpu":"100m"}}},{"name":"b","resources":{"limits":{"cpu":"1","memory":"2Gi"},"requests":{"cpu":"1"}}}]
            [{"name":"i","resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100m"}}}]"#]]
        .assert_eq(&format!("{}\n{}\n{}", pod["metadata"], pod["spec"]["containers"], pod["spec"]["initContainers"]));
    }

    #[test]
    fn limit_range_violations_are_refused() {
        let range = json!({"spec": {"limits": [
            {"type": "Container", "min": {"cpu": "100m", "memory": "1Mi"}, "max": {"cpu": "1", "memory": "1Gi"}, "maxLimitRequestRatio": {"cpu": "3"}},
            {"type": "Pod", "max": {"memory": "1Gi"}},
        ]}});
        let container = |requests: Value, limits: Value| json!({"name": "c", "resources": {"requests": requests, "limits": limits}});
        let pod = json!({"spec": {"containers": [
            container(json!({}), json!({})),
            container(json!({"cpu": "50m", "memory": "512Mi"}), json!({"cpu": "2", "memory": "768Mi"})),
            container(json!({"cpu": "300m", "memory": "512Mi"}), json!({"cpu": "1", "memory": "768Mi"})),
        ]}});
        expect![[r#"
            minimum cpu usage per Container is 100m.  No request is specified
            minimum memory usage per Container is 1Mi.  No request is specified
            maximum cpu usage per Container is 1.  No limit is specified
            maximum memory usage per Container is 1Gi.  No limit is specified
            cpu max limit to request ratio per Container is 3, but no request is specified or request is 0
            minimum cpu usage per Container is 100m, but request is 50m
            maximum cpu usage per Container is 1, but limit is 2
            cpu max limit to request ratio per Container is 3, but provided ratio is 40.000000
            cpu max limit to request ratio per Container is 3, but provided ratio is 3.333333
            maximum memory usage per Pod is 1Gi, but limit is 1536Mi"#]]
        .assert_eq(&limit_range_violations(&range, &pod).join("\n"));
    }
}
