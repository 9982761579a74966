//! Resource requests and limits: quantities by resource name.

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::quantity::Quantity;

/// Quantities by resource name. Upstream: `v1.ResourceList`.
pub type ResourceQuantities = BTreeMap<String, Quantity>;

/// Returns the total requests or limits of a pod. `containers` are the requests or limits of its containers.
/// `init_containers` are those of its init containers, each with a flag that is `true` for a sidecar.
///
/// Rule: the total of each resource is the maximum of what the pod needs while it runs and what it needs while it
/// starts. While it runs, it needs the sum of its containers and sidecars. While an init container runs, the pod needs
/// the sum of this init container and the sidecars that were started before it. Upstream: `AggregateContainerRequests`.
pub fn pod_total(
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

/// Replaces the totals of the containers with the requests or limits in `spec.resources` of the pod.
///
/// Rule: pod-level requests and limits of CPU, memory and huge pages override the total of the containers. Upstream:
/// `PodRequests`, `PodLimits`.
pub fn override_with_pod_level(total: &mut ResourceQuantities, pod_level: ResourceQuantities) {
    total.extend(pod_level.into_iter().filter(|(name, _)| is_pod_level_resource(name)));
}

/// Whether `spec.resources` of a pod may contain this resource. Upstream: `IsSupportedPodLevelResource`.
pub fn is_pod_level_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

/// Whether a resource is huge pages of some size, such as `hugepages-2Mi`.
pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Parses a JSON object of quantities by resource name. An invalid quantity becomes zero, as in
/// [`Quantity::from_json`]. The result is empty if the value is not a JSON object.
pub fn quantities_from_json(map: &serde_json::Value) -> ResourceQuantities {
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
    use alloc::string::ToString as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_needs_the_maximum_over_its_startup_phases() {
        let cpu = |text: &str| quantities_from_json(&json!({"cpu": text}));
        let total = |containers: &[&str], init: &[(bool, &str)]| {
            let init = init.iter().map(|(is_sidecar, it)| (*is_sidecar, cpu(it)));
            pod_total(containers.iter().map(|it| cpu(it)), init)["cpu"].to_string()
        };
        assert_eq!(total(&["1", "500m"], &[]), "1500m");
        assert_eq!(total(&["1"], &[(false, "3"), (false, "2")]), "3");
        assert_eq!(total(&["1"], &[(true, "500m"), (false, "2")]), "2500m");
        assert_eq!(total(&["3"], &[(true, "500m"), (false, "2")]), "3500m");
    }

    #[test]
    fn resources_of_the_pod_override_the_total() {
        let mut total = quantities_from_json(&json!({"cpu": "1", "memory": "1Gi", "example.com/gpu": 1}));
        let pod_level = json!({"cpu": "2", "hugepages-2Mi": "4Mi", "example.com/gpu": 2});
        override_with_pod_level(&mut total, quantities_from_json(&pod_level));
        let expected = json!({"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": 1});
        assert_eq!(total, quantities_from_json(&expected));
    }
}
