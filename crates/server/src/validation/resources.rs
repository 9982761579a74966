//! Names of resources, and what a pod's containers ask for together.

use serde_json::Value;

use super::field_error::{FieldErrors, Path};
use super::names;
use crate::unstructured::list;
use muster_api::qos::{ComputeResources, CpuAndMemory, QosClass};
use muster_api::quantity::Quantity;
use muster_api::resources::{self, Amounts};

/// What the containers of a pod need at once. `part` is `requests` or `limits`.
pub(crate) fn of_containers(spec: &Value, part: &str) -> Amounts {
    let amounts = |container: &Value| -> Amounts {
        let said = container["resources"][part].as_object().into_iter().flatten();
        said.map(|(name, amount)| (name.clone(), Quantity::of(amount))).collect()
    };
    let init_containers = list(spec, "initContainers");
    resources::at_once(
        list(spec, "containers").iter().map(amounts),
        init_containers.iter().map(|it| (it["restartPolicy"] == "Always", amounts(it))),
    )
}

pub(crate) fn qos_class(spec: &Value) -> QosClass {
    let of = |resources: &Value| {
        let compute = |part: &str| CpuAndMemory {
            cpu: Quantity::of(&resources[part]["cpu"]),
            memory: Quantity::of(&resources[part]["memory"]),
        };
        ComputeResources { requests: compute("requests"), limits: compute("limits") }
    };
    let of_pod = &spec["resources"];
    let containers = list(spec, "containers").iter().chain(list(spec, "initContainers"));
    QosClass::of((!of_pod.is_null()).then(|| of(of_pod)), containers.map(|it| of(&it["resources"])))
}

/// The values of `matchLabelKeys` are the pod's own, so they are written into its selectors once it has labels.
pub(crate) fn spell_out_label_keys(pod: &mut Value) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let labels = pod["metadata"]["labels"].clone();
    let Some(spec) = pod.get_mut("spec") else { return };
    let items = |list: Option<&mut Value>, change: &mut dyn FnMut(&mut Value)| {
        list.and_then(Value::as_array_mut).into_iter().flatten().for_each(change);
    };
    items(spec.get_mut("topologySpreadConstraints"), &mut |it| spell_out(it, &labels));
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.get_mut("affinity").and_then(|it| it.get_mut(kind)) else { continue };
        items(affinity.get_mut(REQUIRED), &mut |it| spell_out(it, &labels));
        items(affinity.get_mut(PREFERRED), &mut |it| {
            if let Some(term) = it.get_mut("podAffinityTerm") {
                spell_out(term, &labels);
            }
        });
    }
}

fn spell_out(term: &mut Value, labels: &Value) {
    if !term["labelSelector"].is_object() {
        return;
    }
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in list(term, keys).to_vec() {
            let Some(value) = labels.get(key.as_str().unwrap_or_default()) else { continue };
            let more = serde_json::json!({"key": key, "operator": operator, "values": [value]});
            match term["labelSelector"].get_mut("matchExpressions").and_then(Value::as_array_mut) {
                Some(held) => held.push(more),
                None => term["labelSelector"]["matchExpressions"] = Value::from(vec![more]),
            }
        }
    }
}

/// What a pod may ask for as a whole.
pub(crate) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_pages(name)
}

pub(crate) fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Without a prefix, or with one of ours.
pub(crate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether more of it may be used than is asked for.
pub(crate) fn is_overcommittable(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// `example.com/gpu`
pub(crate) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified(&format!("requests.{name}")).is_empty()
}

/// Counted in whole units.
fn is_counted(name: &str) -> bool {
    const COUNTED: &[&str] = &[
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    COUNTED.contains(&name) || is_extended(name)
}

const COMPUTE: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "requests.storage",
];

pub(crate) fn is_quota_standard(name: &str) -> bool {
    COMPUTE.contains(&name) || (is_counted(name) && is_native(name)) || is_quota_huge_pages(name)
}

fn is_quota_huge_pages(name: &str) -> bool {
    is_huge_pages(name) || name.starts_with("requests.hugepages-")
}

pub(crate) fn check_name(name: &str, at: &Path, out: &mut FieldErrors) {
    let wrong = names::qualified(name);
    if !wrong.is_empty() {
        return out.each(at, name, wrong);
    }
    if !name.contains('/') && !is_quota_standard(name) && name != "storage" {
        out.invalid(at, name, "must be a standard resource type or fully qualified");
    }
}

/// Of a resource that a container asks for.
pub(crate) fn check_container_name(name: &str, at: &Path, out: &mut FieldErrors) {
    check_name(name, at, out);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_pages(name) {
            out.invalid(at, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        out.invalid(at, name, "doesn't follow extended resource name standard");
    }
}

/// Not negative, and whole where the resource is counted.
pub(crate) fn check_amount(name: &str, amount: &Value, at: &Path, out: &mut FieldErrors) {
    let quantity = Quantity::of(amount);
    if quantity.is_negative() {
        out.invalid(at, amount, "must be greater than or equal to 0");
    }
    if is_counted(name) && quantity.millis() % 1000 != 0 {
        out.invalid(at, amount, "must be an integer");
    }
}
