//! Restores the stored values of the fields that an update may not change. Upstream: `GetResetFields`.

use serde_json::{Map, Value};

use super::{FieldPath, Kind};
use crate::subresource::Subresource;
use crate::unstructured::is_set;

/// Metadata fields that every update of every kind and subresource resets to their stored value.
const IMMUTABLE_METADATA: [FieldPath; 4] = [
    &["metadata", "namespace"],
    &["metadata", "resourceVersion"],
    &["metadata", "creationTimestamp"],
    &["metadata", "generation"],
];

/// Restores the fields of `new` that an update of `subresource` may not change, by copying their values from `old`.
/// `new` is the object in the request, and `old` is the stored object.
///
/// Rule: an update changes only the fields that its subresource may change. All other fields keep their stored value,
/// whatever the request contains. See [`Kind::mutable_fields`] and [`Kind::reset_fields`].
/// Upstream: `PrepareForUpdate` of each strategy, `ResetObjectMetaForStatus`.
pub(super) fn reset_fields(kind: &Kind, subresource: Subresource, new: &mut Value, old: &Value) {
    if let Some(changes) = kind.mutable_fields(subresource) {
        let sent = std::mem::replace(new, old.clone());
        for path in changes {
            copy_field(path, &sent, new);
        }
    }
    for path in kind.reset_fields(subresource).chain(IMMUTABLE_METADATA) {
        copy_field(path, old, new);
    }
    if is_set(&old["metadata"]["deletionTimestamp"]) {
        copy_field(&["metadata", "deletionTimestamp"], old, new);
    }
}

/// Copies the field at `path` from the object `from` to the object `to`. If `from` does not have the field, removes the
/// field from `to`.
fn copy_field(path: &[&str], from: &Value, to: &mut Value) {
    let Some((name, parents)) = path.split_last() else { return };
    let (mut source, mut parent) = (Some(from), to);
    for at in parents {
        source = source.and_then(|it| it.get(at));
        let is_there = source.is_some_and(Value::is_object);
        let object = match parent {
            Value::Object(object) => object,
            _ if is_there => reset_to_empty_object(parent),
            _ => return,
        };
        parent = match is_there {
            true => object.entry(*at).or_insert_with(|| Value::Object(Map::new())),
            false => match object.get_mut(*at) {
                Some(it) => it,
                None => return,
            },
        };
    }
    match (source.and_then(|it| it.get(name)), parent) {
        (Some(value), Value::Object(object)) => drop(object.insert((*name).to_owned(), value.clone())),
        (Some(value), parent) => {
            drop(reset_to_empty_object(parent).insert((*name).to_owned(), value.clone()))
        }
        (None, Value::Object(object)) => drop(object.remove(*name)),
        (None, _) => {}
    }
}

/// Replaces `value` with an empty object, and returns the object.
fn reset_to_empty_object(value: &mut Value) -> &mut Map<String, Value> {
    *value = Value::Object(Map::new());
    value.as_object_mut().expect("the value is an object")
}

#[cfg(test)]
mod tests;
