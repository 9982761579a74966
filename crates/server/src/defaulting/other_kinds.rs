//! Defaults of the kinds that have no module of their own.

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use muster_api::defaulting::{
    for_each_object, remove_field, round_to_millis, set_if_absent, set_if_zero, set_pod_spec_defaults,
    with_object, with_object_or_new,
};
use muster_api::well_known::API_GROUP_RBAC;
use serde_json::{Value, json};

use super::copy_missing_resources;
use crate::unstructured::{is_set, map_at_mut, str_at};

/// Sets the label `kubernetes.io/metadata.name`, by which a label selector can select a namespace by its name.
pub(crate) fn set_namespace_defaults(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    if !name.is_null() {
        map_at_mut(&mut namespace["metadata"], "labels").insert("kubernetes.io/metadata.name".into(), name);
    }
}

/// Replaces an empty list in `rules` of a Role or ClusterRole with null, as upstream does. These kinds have no
/// defaults.
pub(crate) fn normalize_role(role: &mut Value) {
    empty_to_null(role, "rules");
}

/// Replaces an empty list in the field `name` with null, because upstream stores null.
fn empty_to_null(object: &mut Value, name: &str) {
    if object[name].as_array().is_some_and(Vec::is_empty) {
        object[name] = Value::Null;
    }
}

/// Removes the fields of coordinated leader election from a Lease, as upstream does while its feature gate
/// `CoordinatedLeaderElection` is off. The kind has no defaults.
pub(crate) fn normalize_lease(lease: &mut Value) {
    with_object(lease, "spec", |spec| {
        for name in ["strategy", "preferredHolder"] {
            remove_field(spec, name);
        }
    });
}

/// Removes all fields except `name` from the references in `secrets` of a service account. The kind has no defaults.
pub(crate) fn normalize_service_account(account: &mut Value) {
    for_each_object(account, "secrets", |it| {
        let name = it["name"].clone();
        *it = if is_set(&name) { json!({"name": name}) } else { json!({}) };
    });
}

/// Makes `podCIDR` and `podCIDRs` of a Node agree. If `podCIDR` is set and is not the first of `podCIDRs`, it replaces
/// the list. If `podCIDR` is not set, it gets the first value of `podCIDRs`. Sets a missing `allocatable` from
/// `capacity`, rounds the quantities of both, and removes `configSource`.
pub(crate) fn set_node_defaults(node: &mut Value) {
    with_object(node, "spec", |spec| {
        // `configSource` is deprecated, has no effect and is not stored.
        remove_field(spec, "configSource");
        // The deprecated field holds the first item of the list, and takes precedence.
        let (one, all) = (spec["podCIDR"].clone(), spec["podCIDRs"].clone());
        if is_set(&one) && all[0] != one {
            spec["podCIDRs"] = json!([one]);
        } else if let Some(first) = all.get(0) {
            spec["podCIDR"] = first.clone();
        }
    });
    with_object(node, "status", |status| {
        if status["allocatable"].is_null() && status["capacity"].is_object() {
            status["allocatable"] = status["capacity"].clone();
        }
        round_to_millis(status, "capacity");
        round_to_millis(status, "allocatable");
    });
}

/// Sets the defaults of an object of the kind PodTemplate.
pub(crate) fn set_pod_template_defaults(object: &mut Value) {
    with_object(object, "template", |template| with_object_or_new(template, "spec", set_pod_spec_defaults));
}

/// Sets the default type of a Secret, and moves the values in `stringData` to `data`, encoded as base64.
pub(crate) fn set_secret_defaults(secret: &mut Value) {
    set_if_zero(secret, "type", "Opaque");
    // `stringData` is write-only.
    let Some(Value::Object(plain)) = secret.as_object_mut().and_then(|it| it.remove("stringData")) else {
        return;
    };
    let data = map_at_mut(secret, "data");
    for (name, value) in plain {
        data.insert(name, json!(BASE64.encode(value.as_str().unwrap_or_default())));
    }
}

/// Sets missing values of the container limits in a LimitRange. A missing `default` is set from `max`. A missing
/// `defaultRequest` is set from `default`, or from `min` if `default` has no value either. Also rounds the quantities
/// of all limits, and replaces an empty list of limits with null.
pub(crate) fn set_limit_range_defaults(range: &mut Value) {
    with_object_or_new(range, "spec", |spec| {
        empty_to_null(spec, "limits");
        for_each_object(spec, "limits", |limit| {
            if limit["type"] == "Container" {
                copy_missing_resources(limit, "default", "max");
                copy_missing_resources(limit, "defaultRequest", "default");
                copy_missing_resources(limit, "defaultRequest", "min");
            }
            for name in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
                round_to_millis(limit, name);
            }
        });
    });
}

/// Rounds the quantities of a ResourceQuota away from zero to thousandths. The kind has no defaults.
pub(crate) fn normalize_resource_quota(quota: &mut Value) {
    with_object(quota, "spec", |it| round_to_millis(it, "hard"));
    with_object(quota, "status", |it| {
        round_to_millis(it, "hard");
        round_to_millis(it, "used");
    });
}

/// Sets the default names and protocols of the ports of an EndpointSlice. Replaces empty lists of endpoints and ports
/// with null, because upstream stores null. Removes `deprecatedTopology` of the endpoints.
pub(crate) fn set_endpoint_slice_defaults(slice: &mut Value) {
    empty_to_null(slice, "endpoints");
    // A field of `v1beta1` that is not stored in `v1`.
    for_each_object(slice, "endpoints", |it| remove_field(it, "deprecatedTopology"));
    empty_to_null(slice, "ports");
    for_each_object(slice, "ports", |it| {
        set_if_absent(it, "name", "");
        set_if_absent(it, "protocol", "TCP");
    });
}

/// Sets the default `preemptionPolicy` of a PriorityClass.
pub(crate) fn set_priority_class_defaults(class: &mut Value) {
    set_if_absent(class, "preemptionPolicy", "PreemptLowerPriority");
}

/// Sets the default `apiGroup` of the role, users and groups in a RoleBinding or ClusterRoleBinding.
pub(crate) fn set_role_binding_defaults(binding: &mut Value) {
    with_object_or_new(binding, "roleRef", |it| set_if_zero(it, "apiGroup", API_GROUP_RBAC));
    for_each_object(binding, "subjects", |it| {
        if matches!(str_at(it, "kind"), "User" | "Group") {
            set_if_zero(it, "apiGroup", API_GROUP_RBAC);
        }
    });
}
