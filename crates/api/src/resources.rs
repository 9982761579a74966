//! Resource requests and limits: quantities by resource name.

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::quantity::Quantity;

/// Quantities by resource name. Upstream: `v1.ResourceList`.
pub type Amounts = BTreeMap<String, Quantity>;

/// Rule: a pod needs the sum of its containers and sidecars, or the largest sum of an init container and the sidecars
/// started before it, whichever is larger. Upstream: `AggregateContainerRequests`.
///
/// Each init container has a flag that is true for a sidecar.
pub fn at_once(
    containers: impl Iterator<Item = Amounts>,
    init_containers: impl Iterator<Item = (bool, Amounts)>,
) -> Amounts {
    let mut running = Amounts::new();
    for amounts in containers {
        add(&mut running, &amounts);
    }
    let (mut sidecars, mut startup) = (Amounts::new(), Amounts::new());
    for (is_sidecar, amounts) in init_containers {
        let mut now = sidecars.clone();
        add(&mut now, &amounts);
        if is_sidecar {
            add(&mut running, &amounts);
            sidecars.clone_from(&now);
        }
        keep_larger(&mut startup, now);
    }
    keep_larger(&mut running, startup);
    running
}

/// Adds quantities to sums.
pub fn add(sums: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        let sum = sums.entry(name.clone()).or_insert(Quantity::ZERO);
        *sum = sum.plus(*amount);
    }
}

/// Raises each sum to the other quantity if that is larger.
fn keep_larger(sums: &mut Amounts, others: Amounts) {
    for (name, amount) in others {
        let sum = sums.entry(name).or_insert(amount);
        *sum = amount.max(*sum);
    }
}
