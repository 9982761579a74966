//! Reading and writing API objects as JSON values.

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// The value at a dotted path as text, or nothing at all: what a field selector compares.
pub(crate) fn text(object: &Value, path: &str) -> String {
    match path.split('.').fold(object, |at, name| &at[name]) {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The string at a dotted path, empty where there is none.
pub(crate) fn str_at<'a>(object: &'a Value, path: &str) -> &'a str {
    path.split('.').fold(object, |at, name| &at[name]).as_str().unwrap_or_default()
}

/// The list under a name, empty where there is none.
pub(crate) fn list<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object[name].as_array().map_or(&[], Vec::as_slice)
}

/// The map under a name, made if it is not there.
pub(crate) fn map_mut<'a>(object: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let slot = &mut object[name];
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("just made one")
}

/// Absent, null and empty are the same to a reader of API objects.
pub(crate) fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(it) => !it.is_empty(),
        Value::Array(it) => !it.is_empty(),
        Value::Object(it) => !it.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// `2026-01-02T03:04:05Z`: the API knows whole seconds.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(crate) fn bytes(object: &Value) -> Bytes {
    Bytes::from(object.to_string())
}

/// What the store holds was written by us, so it parses.
pub(crate) fn parse(stored: &[u8]) -> Value {
    serde_json::from_slice(stored).expect("the store holds the JSON that was put into it")
}
