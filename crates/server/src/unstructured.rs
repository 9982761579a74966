//! Reads and writes API objects as JSON values. Upstream: `unstructured.Unstructured`.

use bytes::Bytes;
use jiff::Timestamp;
pub(crate) use muster_api::json::is_set;
use muster_api::time::Time;
use serde_json::{Map, Value};

/// Returns the value at a dotted path such as `spec.nodeName` as the text that field selectors compare. Returns "" if
/// the value is absent.
pub(crate) fn field_text(object: &Value, path: &str) -> String {
    match path.split('.').fold(object, |at, name| &at[name]) {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the string at a dotted path such as `metadata.name`, or "" if there is no string.
pub(crate) fn str_at<'a>(object: &'a Value, path: &str) -> &'a str {
    path.split('.').fold(object, |at, name| &at[name]).as_str().unwrap_or_default()
}

/// Returns the list in the field `name`, or an empty list if the field is not a list.
pub(crate) fn list_at<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object[name].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the map in the field `name`. If `object` or the field is not a map, replaces it with an empty one.
pub(crate) fn map_at_mut<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let slot = &mut object[name];
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("the value is an object")
}

/// Whether the object has the condition of this type with the status `True`.
pub(crate) fn is_condition_true(object: &Value, condition_type: &str) -> bool {
    list_at(&object["status"], "conditions")
        .iter()
        .any(|it| it["type"] == condition_type && it["status"] == "True")
}

/// Formats a time in whole seconds as the API does: `2026-01-02T03:04:05Z`.
pub(crate) fn format_time(at: Timestamp) -> String {
    Time::from(at).to_rfc3339()
}

/// Serializes an object as JSON.
pub(crate) fn to_bytes(object: &Value) -> Bytes {
    Bytes::from(object.to_string())
}

/// Parses a stored object. Panics if it is not valid JSON, which cannot happen because the server wrote the object.
pub(crate) fn parse_stored(stored: &[u8]) -> Value {
    serde_json::from_slice(stored).expect("the store contains valid JSON")
}
