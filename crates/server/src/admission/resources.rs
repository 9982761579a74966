//! Sums of the resource requests and limits of a pod.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::unstructured::{is_set, list};
use muster_api::quantity::Quantity;

/// Quantities by resource name. Upstream: `v1.ResourceList`.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// Parses a JSON map of resource names to quantities.
pub(super) fn amounts(map: &Value) -> Amounts {
    let map = map.as_object().into_iter().flatten();
    map.map(|(name, amount)| (name.clone(), Quantity::of(amount))).collect()
}

/// Adds the quantities of `more` to `sum`.
pub(super) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let slot = sum.entry(name.clone()).or_insert(Quantity::ZERO);
        *slot = slot.plus(*amount);
    }
}

/// Total of a pod's `requests` or `limits`, selected by `which`. Regular containers run concurrently, init containers
/// run one after the other before them, and sidecars run along with everything that starts after them. Upstream:
/// `PodRequests`, `PodLimits`.
pub(super) fn of_pod(pod: &Value, which: &str) -> Amounts {
    let spec = &pod["spec"];
    let mut sum = Amounts::new();
    for container in list(spec, "containers") {
        add(&mut sum, &amounts(&container["resources"][which]));
    }
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in list(spec, "initContainers") {
        let own = amounts(&container["resources"][which]);
        let mut running = sidecars.clone();
        add(&mut running, &own);
        if container["restartPolicy"] == "Always" {
            add(&mut sum, &own);
            sidecars.clone_from(&running);
        }
        raise(&mut peak, &running);
    }
    raise(&mut sum, &peak);
    // Pod-level resources override the sum of the containers.
    for (name, amount) in amounts(&spec["resources"][which]) {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            sum.insert(name, amount);
        }
    }
    sum
}

/// Whether no container sets a cpu or memory request or limit (QoS class BestEffort).
pub(super) fn is_best_effort(pod: &Value) -> bool {
    let spec = &pod["spec"];
    let containers = list(spec, "containers").iter().chain(list(spec, "initContainers"));
    containers.map(|it| &it["resources"]).chain([&spec["resources"]]).all(|it| {
        ["requests", "limits"].into_iter().all(|which| {
            ["cpu", "memory"].into_iter().all(|name| {
                let amount = &it[which][name];
                !is_set(amount) || Quantity::of(amount).is_zero()
            })
        })
    })
}

/// Raises each quantity of `peak` to that of `other`.
fn raise(peak: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let slot = peak.entry(name.clone()).or_insert(Quantity::ZERO);
        *slot = (*slot).max(*amount);
    }
}
