//! Resource requests and limits: quantities by resource name.

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::quantity::Quantity;

/// Quantities by resource name. Upstream: `v1.ResourceList`.
pub type ResourceQuantities = BTreeMap<String, Quantity>;

/// Rule: a pod needs the sum of its containers and sidecars, or the largest sum of an init container and the sidecars
/// started before it, whichever is larger. Upstream: `AggregateContainerRequests`.
///
/// Each init container has a flag that is true for a sidecar.
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

/// Adds quantities to sums.
pub fn add_quantities(sums: &mut ResourceQuantities, amounts: &ResourceQuantities) {
    for (name, amount) in amounts {
        let sum = sums.entry(name.clone()).or_insert(Quantity::ZERO);
        *sum = sum.plus(*amount);
    }
}

/// Raises each sum to the other quantity if that is larger.
fn raise_to_maximum(sums: &mut ResourceQuantities, others: ResourceQuantities) {
    for (name, amount) in others {
        let sum = sums.entry(name).or_insert(amount);
        *sum = amount.max(*sum);
    }
}
