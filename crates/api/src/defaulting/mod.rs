//! Defaults of the fields that the author of a pod left out. The API server sets them in pods and pod templates, and a
//! node sets them in static pods. The functions also remove fields that upstream does not store, and round quantities.
//! They do nothing where a field has an unexpected type.
//!
//! Upstream: `pkg/apis/core/v1/defaults.go`.

/// Defaults of containers, probes and lifecycle hooks.
mod container;
/// Defaults of pods and pod specs.
mod pod;
/// Defaults of the volumes of a pod.
mod volume;

use alloc::string::ToString as _;

use serde_json::{Map, Value};

use crate::json::is_set;
use crate::quantity::Quantity;

pub use self::pod::{set_pod_defaults, set_pod_spec_defaults};

/// Sets the field `name` of the JSON object `object` if it is absent, null, empty or 0. Use it for fields that are not
/// pointers in Go.
pub fn set_if_zero(object: &mut Value, name: &str, value: impl Into<Value>) {
    let current = &object[name];
    if !is_set(current) || current.as_i64() == Some(0) {
        object[name] = value.into();
    }
}

/// Sets the field `name` of the JSON object `object` if it is absent or null. Use it for fields that are pointers in
/// Go.
pub fn set_if_absent(object: &mut Value, name: &str, value: impl Into<Value>) {
    if object[name].is_null() {
        object[name] = value.into();
    }
}

/// Removes the field `name`, which upstream does not store, for example because a feature gate is off.
pub fn remove_field(object: &mut Value, name: &str) {
    drop(object.as_object_mut().and_then(|it| it.remove(name)));
}

/// Calls `change` with the object at a dotted path, such as `status.loadBalancer`. Does nothing if there is no object
/// at the path.
pub fn with_object(object: &mut Value, path: &str, change: impl FnOnce(&mut Value)) {
    let found = path.split('.').try_fold(object, |at, name| at.get_mut(name));
    found.filter(|it| it.is_object()).map(change);
}

/// Calls `change` with the object in the field `name` of the JSON object `object`. Creates an empty object if the field
/// is absent or null.
pub fn with_object_or_new(object: &mut Value, name: &str, change: impl FnOnce(&mut Value)) {
    set_if_absent(object, name, Map::new());
    with_object(object, name, change);
}

/// Calls `change` with each object in the list field `name`.
pub fn for_each_object(object: &mut Value, name: &str, change: impl FnMut(&mut Value)) {
    if let Some(items) = object.get_mut(name).and_then(Value::as_array_mut) {
        items.iter_mut().filter(|it| it.is_object()).for_each(change);
    }
}

/// Rounds the quantities in the field `name` away from zero to thousandths, as upstream does.
pub fn round_to_millis(object: &mut Value, name: &str) {
    for (_, amount) in object.get_mut(name).and_then(Value::as_object_mut).into_iter().flatten() {
        let quantity = Quantity::from_json(amount);
        let rounded = quantity.rounded_to_millis();
        if rounded != quantity {
            *amount = rounded.to_string().into();
        }
    }
}
