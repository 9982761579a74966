//! Defaults of fields that a client left out, one function for each kind. They are upstream's, byte for byte: the
//! templates of revisions are compared by their bytes.
//!
//! Upstream: `pkg/apis/*/v1/defaults.go`.

mod cluster;
mod container;
mod daemonset;
mod image;
mod pod;
mod service;
mod volume;

use serde_json::{Value, json};

pub(crate) use self::cluster::{
    cluster_role_binding, endpoint_slice, lease, limit_range, namespace, node, priority_class,
    resource_quota, role, secret, service_account,
};
pub(crate) use self::daemonset::{TEMPLATE_GENERATION, daemonset};
pub(crate) use self::pod::{pod, pod_template};
pub(crate) use self::service::{endpoints, service};
use crate::unstructured::is_set;
use muster_api::quantity::Quantity;

pub(crate) fn nothing(_: &mut Value) {}

/// For fields that Go holds as values: empty and zero are as good as absent.
fn fill(object: &mut Value, name: &str, value: impl Into<Value>) {
    let held = &object[name];
    if !is_set(held) || held.as_i64() == Some(0) {
        object[name] = value.into();
    }
}

/// For fields that Go holds as pointers: only absent is absent.
fn fill_absent(object: &mut Value, name: &str, value: impl Into<Value>) {
    if object[name].is_null() {
        object[name] = value.into();
    }
}

/// For fields that upstream has but does not take unless it is told to: they are in its types, and nowhere else.
fn forget(object: &mut Value, name: &str) {
    drop(object.as_object_mut().and_then(|it| it.remove(name)));
}

/// Changes the object at a dotted path, if one is there.
fn with(object: &mut Value, path: &str, change: impl FnOnce(&mut Value)) {
    let found = path.split('.').try_fold(object, |at, name| at.get_mut(name));
    found.filter(|it| it.is_object()).map(change);
}

/// Changes the object under a name, made if it is not there.
fn within(object: &mut Value, name: &str, change: impl FnOnce(&mut Value)) {
    fill_absent(object, name, json!({}));
    with(object, name, change);
}

fn each(object: &mut Value, name: &str, change: impl FnMut(&mut Value)) {
    if let Some(items) = object.get_mut(name).and_then(Value::as_array_mut) {
        items.iter_mut().filter(|it| it.is_object()).for_each(change);
    }
}

/// Nothing finer than a thousandth is kept of a resource.
fn round_resources(object: &mut Value, name: &str) {
    for (_, amount) in object.get_mut(name).and_then(Value::as_object_mut).into_iter().flatten() {
        let quantity = Quantity::of(amount);
        let rounded = quantity.rounded_to_millis();
        if rounded != quantity {
            *amount = rounded.to_string().into();
        }
    }
}

/// Copies the amounts that are not said yet.
fn fill_resources(object: &mut Value, name: &str, from: &str) {
    let Some(amounts) = object[from].as_object().cloned() else { return };
    within(object, name, |it| {
        for (resource, amount) in amounts {
            fill_absent(it, &resource, amount);
        }
    });
}

#[cfg(test)]
mod tests;
