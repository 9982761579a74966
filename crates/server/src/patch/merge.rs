//! JSON merge patch (RFC 7386) as upstream's library implements it.

use serde_json::{Map, Value};

/// Applies a JSON merge patch to the object `target`. A null value removes a field. Null fields in a new value are
/// dropped too, at any depth. They stay only in a list that replaces an object.
pub(super) fn merge_patch(target: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, value) in patch {
        if value.is_null() {
            target.remove(&name);
            continue;
        }
        match (target.get_mut(&name), value) {
            (Some(Value::Object(target)), Value::Object(patch)) => merge_patch(target, patch),
            // Nulls in a value that replaces an object stay, wherever they are.
            (Some(Value::Object(_)), value) => drop(target.insert(name, value)),
            (_, mut value) => {
                prune_null_fields(&mut value);
                target.insert(name, value);
            }
        }
    }
}

/// Removes the fields that are null from all objects in a value. Null items of lists stay.
pub(super) fn prune_null_fields(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            entries.retain(|_, it| !it.is_null());
            entries.values_mut().for_each(prune_null_fields);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_null_fields),
        _ => {}
    }
}
