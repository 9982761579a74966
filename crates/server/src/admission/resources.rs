//! Sums of what the containers of a pod ask for.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::unstructured::{is_set, list};
use muster_api::quantity::Quantity;

/// Amounts by the name of their resource.
pub(super) type Amounts = BTreeMap<String, Quantity>;

pub(super) fn amounts(map: &Value) -> Amounts {
    let map = map.as_object().into_iter().flatten();
    map.map(|(name, amount)| (name.clone(), Quantity::of(amount))).collect()
}

pub(super) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let slot = sum.entry(name.clone()).or_insert(Quantity::ZERO);
        *slot = slot.plus(*amount);
    }
}

/// What the pod needs of each resource, of its `requests` or of its `limits`: its containers run side by side, its init
/// containers one after the other before them, and its sidecars along with all that comes after.
pub(super) fn of_pod(pod: &Value, which: &str) -> Amounts {
    let spec = &pod["spec"];
    let mut sum = Amounts::new();
    for container in list(spec, "containers") {
        add(&mut sum, &amounts(&container["resources"][which]));
    }
    let (mut sidecars, mut peak) = (Amounts::new(), Amounts::new());
    for container in list(spec, "initContainers") {
        let own = amounts(&container["resources"][which]);
        let mut at_once = sidecars.clone();
        add(&mut at_once, &own);
        if container["restartPolicy"] == "Always" {
            add(&mut sum, &own);
            sidecars.clone_from(&at_once);
        }
        raise(&mut peak, &at_once);
    }
    raise(&mut sum, &peak);
    // What the pod says of itself as a whole counts, and not its parts.
    for (name, amount) in amounts(&spec["resources"][which]) {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            sum.insert(name, amount);
        }
    }
    sum
}

/// No container asks for processor or memory: such a pod is the first to go.
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

fn raise(peak: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let slot = peak.entry(name.clone()).or_insert(Quantity::ZERO);
        *slot = (*slot).max(*amount);
    }
}
