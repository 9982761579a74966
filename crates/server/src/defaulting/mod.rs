//! Defaults of fields that a client left out, with one function for each kind. The functions also remove fields that
//! upstream does not store, and round quantities.
//!
//! The JSON of an object with defaults must equal upstream's byte for byte, because upstream compares the pod templates
//! in ControllerRevisions by their bytes.
//!
//! Upstream: `pkg/apis/*/v1/defaults.go`.

/// Defaults of containers, probes and lifecycle hooks.
mod container;
/// Defaults of DaemonSets.
mod daemonset;
/// Defaults of the kinds of `muster.dev`, which the types in the crate `api` declare.
mod declared_defaults;
/// Parses image references to derive the default pull policy.
/// Defaults of the kinds that have no module of their own.
mod other_kinds;
/// Defaults of pods and pod templates.
mod pod;
/// Defaults of Services and Endpoints.
mod service;
/// Defaults of the volumes of a pod.
mod volume;

use serde_json::{Value, json};

pub(crate) use self::daemonset::set_daemonset_defaults;
pub(crate) use self::declared_defaults::{
    set_cluster_rollout_policy_defaults, set_daemon_rollout_defaults, set_rollout_policy_defaults,
};
pub(crate) use self::other_kinds::{
    set_endpoint_slice_defaults, set_lease_defaults, set_limit_range_defaults, set_namespace_defaults,
    set_node_defaults, set_priority_class_defaults, set_resource_quota_defaults, set_role_binding_defaults,
    set_role_defaults, set_secret_defaults, set_service_account_defaults,
};
pub(crate) use self::pod::{set_pod_defaults, set_pod_template_defaults};
pub(crate) use self::service::{set_endpoints_defaults, set_service_defaults};
use crate::unstructured::is_set;
use muster_api::quantity::Quantity;

/// The defaulting function of kinds without defaults, which does nothing.
pub(crate) fn no_defaults(_: &mut Value) {}

/// Sets the field `name` if it is absent, null, empty or 0. Use it for fields that are not pointers in Go.
fn set_if_zero(object: &mut Value, name: &str, value: impl Into<Value>) {
    let current = &object[name];
    if !is_set(current) || current.as_i64() == Some(0) {
        object[name] = value.into();
    }
}

/// Sets the field `name` if it is absent or null. Use it for fields that are pointers in Go.
fn set_if_absent(object: &mut Value, name: &str, value: impl Into<Value>) {
    if object[name].is_null() {
        object[name] = value.into();
    }
}

/// Removes the field `name`, which upstream does not store, for example because a feature gate is off.
fn remove_field(object: &mut Value, name: &str) {
    drop(object.as_object_mut().and_then(|it| it.remove(name)));
}

/// Calls `change` with the object at a dotted path, such as `status.loadBalancer`. Does nothing if there is no object
/// at the path.
fn with_object(object: &mut Value, path: &str, change: impl FnOnce(&mut Value)) {
    let found = path.split('.').try_fold(object, |at, name| at.get_mut(name));
    found.filter(|it| it.is_object()).map(change);
}

/// Calls `change` with the object in the field `name`. Creates an empty object if the field is absent or null.
fn with_object_or_new(object: &mut Value, name: &str, change: impl FnOnce(&mut Value)) {
    set_if_absent(object, name, json!({}));
    with_object(object, name, change);
}

/// Calls `change` with each object in the list field `name`.
fn for_each_object(object: &mut Value, name: &str, change: impl FnMut(&mut Value)) {
    if let Some(items) = object.get_mut(name).and_then(Value::as_array_mut) {
        items.iter_mut().filter(|it| it.is_object()).for_each(change);
    }
}

/// Rounds the quantities in the field `name` away from zero to thousandths, as upstream does.
fn round_to_millis(object: &mut Value, name: &str) {
    for (_, amount) in object.get_mut(name).and_then(Value::as_object_mut).into_iter().flatten() {
        let quantity = Quantity::from_json(amount);
        let rounded = quantity.rounded_to_millis();
        if rounded != quantity {
            *amount = rounded.to_string().into();
        }
    }
}

/// Copies the quantities in the field `from` to the field `name`, except those of resources that `name` already has.
fn copy_missing_resources(object: &mut Value, name: &str, from: &str) {
    let Some(amounts) = object[from].as_object().cloned() else { return };
    with_object_or_new(object, name, |it| {
        for (resource, amount) in amounts {
            set_if_absent(it, &resource, amount);
        }
    });
}

#[cfg(test)]
mod tests;
