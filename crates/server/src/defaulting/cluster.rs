//! Defaults of cluster-scoped and small kinds.

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use serde_json::{Value, json};

use super::{each, fill, fill_absent, fill_resources, forget, round_resources, with, within};
use crate::unstructured::{is_set, map_mut, str_at};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Sets the label `kubernetes.io/metadata.name`, by which selectors match namespaces.
pub(crate) fn namespace(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    if !name.is_null() {
        map_mut(&mut namespace["metadata"], "labels").insert("kubernetes.io/metadata.name".into(), name);
    }
}

/// Stores empty `rules` as null.
pub(crate) fn role(role: &mut Value) {
    empty_is_none(role, "rules");
}

/// Replaces an empty list by null, as upstream stores it.
fn empty_is_none(object: &mut Value, name: &str) {
    if object[name].as_array().is_some_and(Vec::is_empty) {
        object[name] = Value::Null;
    }
}

/// Removes the fields of coordinated leader election, as upstream does with the feature gate off.
pub(crate) fn lease(lease: &mut Value) {
    with(lease, "spec", |spec| {
        for name in ["strategy", "preferredHolder"] {
            forget(spec, name);
        }
    });
}

/// Reduces references to Secrets to their names.
pub(crate) fn service_account(account: &mut Value) {
    each(account, "secrets", |it| {
        let name = it["name"].clone();
        *it = if is_set(&name) { json!({"name": name}) } else { json!({}) };
    });
}

/// Syncs `podCIDR` with `podCIDRs`, and sets `allocatable` from `capacity`.
pub(crate) fn node(node: &mut Value) {
    with(node, "spec", |spec| {
        // `configSource` is deprecated, has no effect and is not stored.
        forget(spec, "configSource");
        // The deprecated field holds the first item of the list, and takes precedence.
        let (one, all) = (spec["podCIDR"].clone(), spec["podCIDRs"].clone());
        if is_set(&one) && all[0] != one {
            spec["podCIDRs"] = json!([one]);
        } else if let Some(first) = all.get(0) {
            spec["podCIDR"] = first.clone();
        }
    });
    with(node, "status", |status| {
        if status["allocatable"].is_null() && status["capacity"].is_object() {
            status["allocatable"] = status["capacity"].clone();
        }
        round_resources(status, "capacity");
        round_resources(status, "allocatable");
    });
}

/// Sets the type, and converts `stringData` to `data`.
pub(crate) fn secret(secret: &mut Value) {
    fill(secret, "type", "Opaque");
    // `stringData` is write-only.
    let Some(Value::Object(plain)) = secret.as_object_mut().and_then(|it| it.remove("stringData")) else {
        return;
    };
    let data = map_mut(secret, "data");
    for (name, value) in plain {
        data.insert(name, json!(BASE64.encode(value.as_str().unwrap_or_default())));
    }
}

/// Sets missing defaults of containers from `max` and `min`.
pub(crate) fn limit_range(range: &mut Value) {
    within(range, "spec", |spec| {
        empty_is_none(spec, "limits");
        each(spec, "limits", |limit| {
            if limit["type"] == "Container" {
                fill_resources(limit, "default", "max");
                fill_resources(limit, "defaultRequest", "default");
                fill_resources(limit, "defaultRequest", "min");
            }
            for name in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
                round_resources(limit, name);
            }
        });
    });
}

/// Rounds the quantities of a ResourceQuota.
pub(crate) fn resource_quota(quota: &mut Value) {
    with(quota, "spec", |it| round_resources(it, "hard"));
    with(quota, "status", |it| {
        round_resources(it, "hard");
        round_resources(it, "used");
    });
}

/// Sets port names and protocols.
pub(crate) fn endpoint_slice(slice: &mut Value) {
    empty_is_none(slice, "endpoints");
    // A field of `v1beta1` that is not stored in `v1`.
    each(slice, "endpoints", |it| forget(it, "deprecatedTopology"));
    empty_is_none(slice, "ports");
    each(slice, "ports", |it| {
        fill_absent(it, "name", "");
        fill_absent(it, "protocol", "TCP");
    });
}

/// Sets the preemption policy.
pub(crate) fn priority_class(class: &mut Value) {
    fill_absent(class, "preemptionPolicy", "PreemptLowerPriority");
}

/// Sets the API group of roles, users and groups in a RoleBinding or ClusterRoleBinding.
pub(crate) fn cluster_role_binding(binding: &mut Value) {
    within(binding, "roleRef", |it| fill(it, "apiGroup", RBAC));
    each(binding, "subjects", |it| {
        if matches!(str_at(it, "kind"), "User" | "Group") {
            fill(it, "apiGroup", RBAC);
        }
    });
}
