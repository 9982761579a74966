//! Reading and writing API objects as JSON values.

use bytes::Bytes;
use jiff::Timestamp;
use muster_store::Revision;
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

/// An object that is serialised but for its resourceVersion, which only the commit knows.
#[derive(Debug)]
pub(crate) struct Draft {
    text: Vec<u8>,
    /// Where the resourceVersion goes.
    at: usize,
}

impl Draft {
    pub(crate) fn of(object: &mut Value) -> Self {
        map_mut(object, "metadata").insert("resourceVersion".into(), Value::String(String::new()));
        let mut text = Vec::with_capacity(1024);
        let mut at = 0;
        write_map(&mut text, object, |text, name, value| match name {
            "metadata" => write_map(text, value, |text, name, value| {
                write_json(text, value);
                if name == "resourceVersion" {
                    // Between the quotes.
                    at = text.len() - 1;
                }
            }),
            _ => write_json(text, value),
        });
        Self { text, at }
    }

    pub(crate) fn at(&self, revision: Revision) -> Bytes {
        let (head, tail) = self.text.split_at(self.at);
        Bytes::from([head, revision.to_string().as_bytes(), tail].concat())
    }
}

fn write_map(text: &mut Vec<u8>, map: &Value, mut write: impl FnMut(&mut Vec<u8>, &str, &Value)) {
    text.push(b'{');
    for (at, (name, value)) in map.as_object().into_iter().flatten().enumerate() {
        if at != 0 {
            text.push(b',');
        }
        write_json(text, &Value::from(name.as_str()));
        text.push(b':');
        write(text, name, value);
    }
    text.push(b'}');
}

fn write_json(text: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(text, value).expect("JSON is written into memory");
}

pub(crate) fn bytes(object: &Value) -> Bytes {
    Bytes::from(object.to_string())
}

/// What the store holds was written by us, so it parses.
pub(crate) fn parse(stored: &[u8]) -> Value {
    serde_json::from_slice(stored).expect("the store holds the JSON that was put into it")
}
