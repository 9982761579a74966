//! Resource requests and limits: quantities by resource name, and their totals for a pod.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString as _};

use serde_json::{Map, Value};

use crate::core_v1::{ResourceList, is_sidecar_policy};
use crate::json::StrMap;
use crate::qos::QosClass;
use crate::quantity::Quantity;

/// Quantities by resource name. Upstream: `v1.ResourceList`.
pub type ResourceQuantities = BTreeMap<String, Quantity>;

/// Returns the total requests or limits of a pod's containers. `containers` has the requests or limits of each
/// container. `init_containers` has the same for each init container, with a flag that is `true` for a sidecar.
///
/// Rule: the total of each resource is the maximum of what the pod needs while it runs and what it needs while it
/// starts. While it runs, it needs the sum of its containers and sidecars. While an init container runs, the pod needs
/// the sum of this init container and the sidecars that were started before it. Upstream: `AggregateContainerRequests`.
pub fn container_total(
    containers: impl Iterator<Item = ResourceQuantities>,
    init_containers: impl Iterator<Item = (bool, ResourceQuantities)>,
) -> ResourceQuantities {
    let mut running = ResourceQuantities::new();
    for amounts in containers {
        add_quantities(&mut running, &amounts);
    }
    let (mut sidecars, mut startup) = (ResourceQuantities::new(), ResourceQuantities::new());
    for (is_sidecar, amounts) in init_containers {
        let mut now = sidecars.clone();
        add_quantities(&mut now, &amounts);
        if is_sidecar {
            add_quantities(&mut running, &amounts);
            sidecars.clone_from(&now);
        }
        raise_to_maximum(&mut startup, now);
    }
    raise_to_maximum(&mut running, startup);
    running
}

/// Returns the total requests or limits of a pod, without its overhead. `containers` and `init_containers` are as in
/// [`container_total`]. `pod_level` are the requests or limits in `spec.resources` of the pod.
///
/// Rule: pod-level requests and limits of CPU, memory and huge pages override the total of the containers. Upstream:
/// `PodRequests`, `PodLimits`.
pub fn pod_total(
    containers: impl Iterator<Item = ResourceQuantities>,
    init_containers: impl Iterator<Item = (bool, ResourceQuantities)>,
    pod_level: ResourceQuantities,
) -> ResourceQuantities {
    let mut total = container_total(containers, init_containers);
    total.extend(pod_level.into_iter().filter(|(name, _)| is_pod_level_resource(name)));
    total
}

/// Returns the [`container_total`] of a pod spec in JSON. `part` is `requests` or `limits`. An invalid quantity counts
/// as zero.
pub fn spec_container_total(spec: &Value, part: &str) -> ResourceQuantities {
    let (containers, init_containers) = container_quantities(spec, part);
    container_total(containers, init_containers)
}

/// Returns the [`pod_total`] of a pod spec in JSON. `part` is `requests` or `limits`. An invalid quantity counts as
/// zero.
pub fn spec_pod_total(spec: &Value, part: &str) -> ResourceQuantities {
    let (containers, init_containers) = container_quantities(spec, part);
    pod_total(containers, init_containers, quantities_from_json(&spec["resources"][part]))
}

/// Returns the total requests or limits of a pod spec in JSON, with the pod's overhead. `part` is `requests` or
/// `limits`.
///
/// Rule: the overhead of a pod is added only to totals that are not zero. Upstream: `PodLimits`,
/// `GetResourceRequestQuantity`.
pub fn spec_total_with_overhead(spec: &Value, part: &str) -> ResourceQuantities {
    let mut total = spec_pod_total(spec, part);
    for (name, overhead) in quantities_from_json(&spec["overhead"]) {
        if let Some(amount) = total.get_mut(&name).filter(|it| !it.is_zero()) {
            *amount = amount.plus(overhead);
        }
    }
    total
}

/// Returns the limit that applies to all containers of a pod together, with the pod's overhead. `None` if the pod has
/// no such limit. `pod` is the pod object in JSON.
///
/// Rule: a pod has a limit of a resource if it has one at pod level, or if all its containers have one, including init
/// containers. A BestEffort pod has none. Upstream: `ResourceConfigForPod`.
pub fn pod_limit(pod: &Value, resource: &str) -> Option<Quantity> {
    let spec = &pod["spec"];
    let has_limit = |of: &Value| !Quantity::from_json(&of["resources"]["limits"][resource]).is_zero();
    let mut all = list_at(spec, "containers").chain(list_at(spec, "initContainers"));
    let is_limited = has_limit(spec) || all.all(has_limit);
    if !is_limited || QosClass::of_pod(pod) == QosClass::BestEffort {
        return None;
    }
    spec_total_with_overhead(spec, "limits").remove(resource)
}

/// Sets the missing requests of a new pod, and its missing pod-level limits of huge pages, in its `spec`.
///
/// Rule: a missing request of a container is set to its limit. If the pod has pod-level requests or limits, each
/// missing pod-level limit of huge pages is set to the total of the containers, unless the pod has a pod-level request
/// for that page size. If the pod then has pod-level limits, its missing pod-level requests of CPU and memory are set
/// to the totals of the containers. Pod-level requests that are still missing are set to the pod-level limits.
/// Upstream: `SetDefaults_Pod`, `defaultHugePagePodLimits`, `defaultPodRequests`.
pub fn set_default_resources(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let limits = container["resources"]["limits"].as_object().cloned();
            set_missing_quantities(container, "requests", limits.unwrap_or_default());
        }
    }
    let is_set =
        |spec: &Value, part: &str| spec["resources"][part].as_object().is_some_and(|it| !it.is_empty());
    if !is_set(spec, "limits") && !is_set(spec, "requests") {
        return;
    }
    let to_json = |(name, amount): (String, Quantity)| (name, amount.to_string().into());
    let huge_pages = spec_container_total(spec, "limits").into_iter();
    let huge_pages = huge_pages
        .filter(|(name, _)| is_huge_pages(name) && spec["resources"]["requests"][name].is_null())
        .map(to_json)
        .collect();
    set_missing_quantities(spec, "limits", huge_pages);
    if !is_set(spec, "limits") {
        return;
    }
    let totals = spec_container_total(spec, "requests").into_iter();
    let totals = totals.filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")).map(to_json).collect();
    set_missing_quantities(spec, "requests", totals);
    let limits = spec["resources"]["limits"].as_object().cloned().unwrap_or_default().into_iter();
    set_missing_quantities(
        spec,
        "requests",
        limits.filter(|(name, _)| is_pod_level_resource(name)).collect(),
    );
}

/// Sets the missing requests or limits of the container or pod spec `of` to `amounts`. A request or limit that is
/// already set stays. `part` is `requests` or `limits`. Does nothing if `of` has no `resources`.
fn set_missing_quantities(of: &mut Value, part: &str, amounts: Map<String, Value>) {
    let resources = of.get_mut("resources").and_then(Value::as_object_mut);
    let Some(resources) = resources.filter(|_| !amounts.is_empty()) else { return };
    let list = resources.entry(part).or_insert(Value::Null);
    if list.is_null() {
        *list = Map::new().into();
    }
    let Some(list) = list.as_object_mut() else { return };
    for (name, amount) in amounts {
        let slot = list.entry(name).or_insert(Value::Null);
        if slot.is_null() {
            *slot = amount;
        }
    }
}

/// Returns the requests or limits of the containers and of the init containers of a pod spec in JSON. Each init
/// container has a flag that is `true` for a sidecar. `part` is `requests` or `limits`.
fn container_quantities<'a>(
    spec: &'a Value,
    part: &'a str,
) -> (impl Iterator<Item = ResourceQuantities> + 'a, impl Iterator<Item = (bool, ResourceQuantities)> + 'a) {
    let amounts = move |container: &Value| quantities_from_json(&container["resources"][part]);
    let is_sidecar = |init_container: &Value| is_sidecar_policy(init_container["restartPolicy"].as_str());
    (
        list_at(spec, "containers").map(amounts),
        list_at(spec, "initContainers").map(move |it| (is_sidecar(it), amounts(it))),
    )
}

/// Returns the items of a list field. Empty if the field is no list.
fn list_at<'a>(object: &'a Value, field: &'static str) -> impl Iterator<Item = &'a Value> {
    object[field].as_array().into_iter().flatten()
}

/// Whether `spec.resources` of a pod may contain this resource. Upstream: `IsSupportedPodLevelResource`.
pub fn is_pod_level_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

/// Whether a resource is huge pages of some size, such as `hugepages-2Mi`.
pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Parses the quantities of a resource list. An invalid quantity becomes zero. The result is empty if there is no list.
pub fn parse_quantities(list: Option<&ResourceList<'_>>) -> ResourceQuantities {
    let entries = list.into_iter().flat_map(StrMap::iter);
    entries.map(|(name, amount)| (name.into(), amount.quantity())).collect()
}

/// Parses a JSON object of quantities by resource name. An invalid quantity becomes zero, as in
/// [`Quantity::from_json`]. The result is empty if the value is not a JSON object.
pub fn quantities_from_json(map: &Value) -> ResourceQuantities {
    let entries = map.as_object().into_iter().flatten();
    entries.map(|(name, amount)| (name.clone(), Quantity::from_json(amount))).collect()
}

/// Adds the quantity of each resource in `amounts` to its sum in `sums`.
pub fn add_quantities(sums: &mut ResourceQuantities, amounts: &ResourceQuantities) {
    for (name, amount) in amounts {
        let sum = sums.entry(name.clone()).or_insert(Quantity::ZERO);
        *sum = sum.plus(*amount);
    }
}

/// Raises each quantity in `sums` to the quantity of the same resource in `others`, if the latter is larger. Adds
/// resources that `sums` does not contain.
fn raise_to_maximum(sums: &mut ResourceQuantities, others: ResourceQuantities) {
    for (name, amount) in others {
        let sum = sums.entry(name).or_insert(amount);
        *sum = amount.max(*sum);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check_total(total: &ResourceQuantities, expected: &Value) {
        assert_eq!(total, &quantities_from_json(expected));
    }

    #[test]
    fn a_pod_needs_the_maximum_over_its_startup_phases() {
        let cpu = |text: &str| quantities_from_json(&json!({"cpu": text}));
        let total = |containers: &[&str], init: &[(bool, &str)]| {
            let init = init.iter().map(|(is_sidecar, it)| (*is_sidecar, cpu(it)));
            container_total(containers.iter().map(|it| cpu(it)), init)["cpu"].to_string()
        };
        assert_eq!(total(&["1", "500m"], &[]), "1500m");
        assert_eq!(total(&["1"], &[(false, "3"), (false, "2")]), "3");
        assert_eq!(total(&["1"], &[(true, "500m"), (false, "2")]), "2500m");
        assert_eq!(total(&["3"], &[(true, "500m"), (false, "2")]), "3500m");
    }

    #[test]
    fn resources_of_the_pod_override_the_total() {
        let spec = json!({
            "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi", "example.com/gpu": 1}}}],
            "resources": {"requests": {"cpu": "2", "hugepages-2Mi": "4Mi", "example.com/gpu": 2}},
        });
        check_total(
            &spec_pod_total(&spec, "requests"),
            &json!({"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": 1}),
        );
        check_total(
            &spec_container_total(&spec, "requests"),
            &json!({"cpu": "1", "memory": "1Gi", "example.com/gpu": 1}),
        );
    }

    #[test]
    fn overhead_is_added_to_what_the_pod_level_overrides_but_not_to_zero() {
        let spec = json!({
            "containers": [{"resources": {"limits": {"cpu": "1", "ephemeral-storage": "0"}}}],
            "resources": {"limits": {"memory": "1Gi"}},
            "overhead": {"cpu": "250m", "memory": "1Gi", "ephemeral-storage": "1Gi", "hugepages-2Mi": "2Mi"},
        });
        check_total(
            &spec_total_with_overhead(&spec, "limits"),
            &json!({"cpu": "1250m", "memory": "2Gi", "ephemeral-storage": "0"}),
        );
    }

    #[test]
    fn a_pod_is_limited_if_all_containers_or_the_pod_are() {
        let limited = json!({"resources": {"limits": {"memory": "1Gi"}}});
        let bound = |spec: Value| pod_limit(&json!({"spec": spec}), "memory").map(|it| it.to_string());
        assert_eq!(bound(json!({"containers": [limited, limited]})).as_deref(), Some("2Gi"));
        assert_eq!(bound(json!({"containers": [limited, {}]})), None);
        assert_eq!(bound(json!({"containers": [limited], "initContainers": [{}]})), None);
        let mut with_pod_level = limited.clone();
        with_pod_level["containers"] = json!([limited, {}]);
        with_pod_level["overhead"] = json!({"memory": "1Gi"});
        assert_eq!(bound(with_pod_level).as_deref(), Some("2Gi"));
        // `spec.resources: {}` makes the pod BestEffort.
        assert_eq!(bound(json!({"containers": [limited], "resources": {}})), None);
    }

    #[test]
    fn missing_requests_are_limits_of_containers_then_totals_then_limits_of_the_pod() {
        let defaulted = |mut spec: Value| {
            set_default_resources(&mut spec);
            spec
        };
        let limits = json!({"cpu": "1", "memory": "1Gi"});
        let of_container = json!({"resources": {"limits": limits, "requests": {"cpu": "500m"}}});
        let spec = defaulted(json!({"initContainers": [of_container], "resources": {}}));
        let requests = json!({"cpu": "500m", "memory": "1Gi"});
        assert_eq!(spec["initContainers"][0]["resources"]["requests"], requests);
        assert_eq!(spec["resources"], json!({}));

        let spec = defaulted(json!({"containers": [{}], "resources": {"limits": limits}}));
        assert_eq!(spec["resources"]["requests"], limits);
        assert_eq!(QosClass::of_pod_spec(&spec), QosClass::Guaranteed);

        let spec = defaulted(json!({"containers": [of_container], "resources": {"limits": {"cpu": "2"}}}));
        assert_eq!(spec["resources"], json!({"limits": {"cpu": "2"}, "requests": requests}));

        let huge = json!({"resources": {"limits": {"hugepages-2Mi": "4Mi"}}});
        let spec = defaulted(json!({"containers": [huge], "resources": {"requests": {"cpu": "1"}}}));
        let amounts = json!({"hugepages-2Mi": "4Mi"});
        assert_eq!(spec["resources"]["limits"], amounts);
        assert_eq!(spec["resources"]["requests"], json!({"cpu": "1", "hugepages-2Mi": "4Mi"}));

        for invalid in [json!({"containers": "x"}), json!({"containers": ["x"], "resources": 1}), json!(1)] {
            assert_eq!(defaulted(invalid.clone()), invalid);
        }
    }
}
