//! Sums of the resource requests and limits of a pod.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::unstructured::{is_set, list_at};
use muster_api::quantity::Quantity;

/// Quantities by resource name. Upstream: `v1.ResourceList`.
pub(super) type ResourceList = BTreeMap<String, Quantity>;

/// Parses a JSON map of resource names to quantities.
pub(super) fn parse_resource_list(map: &Value) -> ResourceList {
    let map = map.as_object().into_iter().flatten();
    map.map(|(name, amount)| (name.clone(), Quantity::from_json(amount))).collect()
}

/// Adds the quantities of `more` to `sum`.
pub(super) fn add_resources(sum: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        let slot = sum.entry(name.clone()).or_insert(Quantity::ZERO);
        *slot = slot.plus(*amount);
    }
}

/// Total of a pod's `requests` or `limits`, selected by `which`. Regular containers run concurrently, init containers
/// run one after the other before them, and sidecars run along with everything that starts after them. Upstream:
/// `PodRequests`, `PodLimits`.
pub(super) fn pod_resources(pod: &Value, which: &str) -> ResourceList {
    let spec = &pod["spec"];
    let mut sum = ResourceList::new();
    for container in list_at(spec, "containers") {
        add_resources(&mut sum, &parse_resource_list(&container["resources"][which]));
    }
    let (mut sidecars, mut peak) = (ResourceList::new(), ResourceList::new());
    for container in list_at(spec, "initContainers") {
        let own = parse_resource_list(&container["resources"][which]);
        let mut running = sidecars.clone();
        add_resources(&mut running, &own);
        if container["restartPolicy"] == "Always" {
            add_resources(&mut sum, &own);
            sidecars.clone_from(&running);
        }
        raise_to_maximum(&mut peak, &running);
    }
    raise_to_maximum(&mut sum, &peak);
    // Pod-level resources override the sum of the containers.
    for (name, amount) in parse_resource_list(&spec["resources"][which]) {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            sum.insert(name, amount);
        }
    }
    sum
}

/// Whether no container sets a cpu or memory request or limit (QoS class BestEffort).
pub(super) fn is_best_effort(pod: &Value) -> bool {
    let spec = &pod["spec"];
    let containers = list_at(spec, "containers").iter().chain(list_at(spec, "initContainers"));
    containers.map(|it| &it["resources"]).chain([&spec["resources"]]).all(|it| {
        ["requests", "limits"].into_iter().all(|which| {
            ["cpu", "memory"].into_iter().all(|name| {
                let amount = &it[which][name];
                !is_set(amount) || Quantity::from_json(amount).is_zero()
            })
        })
    })
}

/// Raises each quantity of `peak` to that of `other`.
fn raise_to_maximum(peak: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        let slot = peak.entry(name.clone()).or_insert(Quantity::ZERO);
        *slot = (*slot).max(*amount);
    }
}
