//! Resource requests and limits: amounts by resource name.

use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::quantity::Quantity;

pub type Amounts = BTreeMap<String, Quantity>;

/// Rule: a pod needs what all its containers and sidecars need together, or what its largest init container needs
/// with the sidecars that run before it, whichever is more. Upstream: `AggregateContainerRequests`.
///
/// An init container comes with whether it is a sidecar.
pub fn at_once(
    containers: impl Iterator<Item = Amounts>,
    init_containers: impl Iterator<Item = (bool, Amounts)>,
) -> Amounts {
    let mut running = Amounts::new();
    for amounts in containers {
        add(&mut running, &amounts);
    }
    let (mut sidecars, mut at_start) = (Amounts::new(), Amounts::new());
    for (is_sidecar, amounts) in init_containers {
        let mut now = sidecars.clone();
        add(&mut now, &amounts);
        if is_sidecar {
            add(&mut running, &amounts);
            sidecars.clone_from(&now);
        }
        keep_larger(&mut at_start, now);
    }
    keep_larger(&mut running, at_start);
    running
}

pub fn add(sums: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        let sum = sums.entry(name.clone()).or_insert(Quantity::ZERO);
        *sum = sum.plus(*amount);
    }
}

fn keep_larger(sums: &mut Amounts, others: Amounts) {
    for (name, amount) in others {
        let sum = sums.entry(name).or_insert(amount);
        *sum = amount.max(*sum);
    }
}
