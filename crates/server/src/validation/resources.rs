//! Resource names and quantities: their validation. Also merges `matchLabelKeys` of a pod into its label selectors.

use serde_json::Value;

use super::field_error::{ErrorPath, FieldErrors};
use super::names;
use super::scheduling::REQUIRED_AFFINITY;
use crate::unstructured::list_at;
use muster_api::quantity::Quantity;
use muster_api::resources::is_huge_pages;

/// Adds the keys in `matchLabelKeys` and `mismatchLabelKeys` of a pod's affinity terms and spread constraints to the
/// label selectors of these terms and constraints. Each key becomes an expression with the value of the pod's label.
/// Keys without a label, and terms without a label selector, are skipped. Upstream:
/// `applyMatchLabelKeysAndMismatchLabelKeys`.
pub(crate) fn merge_match_label_keys(pod: &mut Value) {
    /// Name of the field for required affinity.
    /// Name of the field for preferred affinity.
    const PREFERRED_AFFINITY: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let labels = pod["metadata"]["labels"].clone();
    let Some(spec) = pod.get_mut("spec") else { return };
    let items = |list: Option<&mut Value>, change: &mut dyn FnMut(&mut Value)| {
        list.and_then(Value::as_array_mut).into_iter().flatten().for_each(change);
    };
    items(spec.get_mut("topologySpreadConstraints"), &mut |it| merge_label_keys(it, &labels));
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.get_mut("affinity").and_then(|it| it.get_mut(kind)) else { continue };
        items(affinity.get_mut(REQUIRED_AFFINITY), &mut |it| merge_label_keys(it, &labels));
        items(affinity.get_mut(PREFERRED_AFFINITY), &mut |it| {
            if let Some(term) = it.get_mut("podAffinityTerm") {
                merge_label_keys(term, &labels);
            }
        });
    }
}

/// Adds the keys in `matchLabelKeys` and `mismatchLabelKeys` of one affinity term or spread constraint to its label
/// selector. Each key becomes an expression with its value in `labels`, the labels of the pod.
fn merge_label_keys(term: &mut Value, labels: &Value) {
    if !term["labelSelector"].is_object() {
        return;
    }
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in list_at(term, keys).to_vec() {
            let Some(value) = labels.get(key.as_str().unwrap_or_default()) else { continue };
            let requirement = serde_json::json!({"key": key, "operator": operator, "values": [value]});
            match term["labelSelector"].get_mut("matchExpressions").and_then(Value::as_array_mut) {
                Some(expressions) => expressions.push(requirement),
                None => term["labelSelector"]["matchExpressions"] = Value::from(vec![requirement]),
            }
        }
    }
}

/// Whether a resource name has no domain, or a domain that ends with `kubernetes.io`. Upstream: `IsNativeResource`.
pub(crate) fn is_native_resource(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether the limit of a resource may exceed its request. Upstream: `IsOvercommitAllowed`.
pub(crate) fn is_overcommittable(name: &str) -> bool {
    is_native_resource(name) && !is_huge_pages(name)
}

/// Whether the name is that of an extended resource such as `example.com/gpu`.
pub(crate) fn is_extended_resource(name: &str) -> bool {
    !is_native_resource(name)
        && !name.starts_with("requests.")
        && names::qualified_name_errors(&format!("requests.{name}")).is_empty()
}

/// Whether quantities of the resource must be integers. Upstream: `IsIntegerResourceName`.
fn is_integer_resource(name: &str) -> bool {
    /// Resources without a domain whose quantities must be integers.
    const INTEGER_RESOURCES: &[&str] = &[
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
    INTEGER_RESOURCES.contains(&name) || is_extended_resource(name)
}

/// Compute and storage resources that a ResourceQuota can limit, besides huge pages and extended resources.
const COMPUTE_QUOTA_RESOURCES: &[&str] = &[
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

/// Whether the name is that of a built-in resource that a ResourceQuota can limit. Upstream:
/// `IsStandardQuotaResourceName`.
pub(crate) fn is_standard_quota_resource(name: &str) -> bool {
    COMPUTE_QUOTA_RESOURCES.contains(&name)
        || (is_integer_resource(name) && is_native_resource(name))
        || is_quota_huge_pages(name)
}

/// Whether the name is one under which a ResourceQuota can limit huge pages, such as `requests.hugepages-2Mi`.
fn is_quota_huge_pages(name: &str) -> bool {
    is_huge_pages(name) || name.starts_with("requests.hugepages-")
}

/// Checks that a resource name is that of a built-in resource or has a domain.
pub(crate) fn check_resource_name(name: &str, at: &ErrorPath, out: &mut FieldErrors) {
    let errors = names::qualified_name_errors(name);
    if !errors.is_empty() {
        return out.invalid_for_each(at, name, errors);
    }
    if !name.contains('/') && !is_standard_quota_resource(name) && name != "storage" {
        out.invalid(at, name, "must be a standard resource type or fully qualified");
    }
}

/// Checks the name of a resource in a container's requests or limits.
pub(crate) fn check_container_resource_name(name: &str, at: &ErrorPath, out: &mut FieldErrors) {
    check_resource_name(name, at, out);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_pages(name) {
            out.invalid(at, name, "must be a standard resource for containers");
        }
    } else if !is_native_resource(name) && !is_extended_resource(name) {
        out.invalid(at, name, "doesn't follow extended resource name standard");
    }
}

/// Checks that the quantity `amount` of the resource `name` is not negative, and that it is an integer if the resource
/// requires one.
pub(crate) fn check_quantity(name: &str, amount: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let quantity = Quantity::from_json(amount);
    if quantity.is_negative() {
        out.invalid(at, amount, "must be greater than or equal to 0");
    }
    if is_integer_resource(name) && quantity.millis() % 1000 != 0 {
        out.invalid(at, amount, "must be an integer");
    }
}
