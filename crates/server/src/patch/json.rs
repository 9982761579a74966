//! JSON patch (RFC 6902) as upstream's library implements it: a negative index counts from the end, `replace`
//! may add an absent field, and an absent value equals null.

use serde_json::{Map, Value};

use crate::decode::{self, DECODED_BYTES_MAX};

/// Maximum number of operations of one patch. Upstream: `maxJSONPatchOperations`.
pub(super) const OPERATIONS_MAX: usize = 10_000;

/// Maximum number of bytes that all `copy` operations of a patch together may add: the maximum size of a request body.
/// Upstream: `JSONPatchMaxCopyBytes`.
const COPIED_BYTES_MAX: usize = 3 << 20;

/// Maximum nesting depth that `move` and `copy` operations may create, because code that walks an object is recursive.
/// Each operation can nest its value as deep as its path. No real object is nested a tenth as deep.
const NESTING_DEPTH_MAX: usize = 1_000;

/// The error for a patch that cannot be applied to the object. As upstream, the client gets no details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatchDoesNotApply;

pub(super) fn apply_operations(object: &mut Value, operations: &[Value]) -> Result<(), PatchDoesNotApply> {
    let mut usage = PatchUsage { copied_bytes: 0, copied_values_bytes: 0, depth: 256 };
    operations.iter().try_for_each(|it| apply_operation(object, it, &mut usage))
}

/// What the operations of a patch have used of its limits.
struct PatchUsage {
    /// Bytes of the copied values as JSON.
    copied_bytes: usize,
    /// Estimated memory of the copied values, which can be a hundred times their size as JSON.
    copied_values_bytes: usize,
    /// Upper bound of the nesting depth that the patched object has.
    depth: usize,
}

impl PatchUsage {
    fn charge_depth(&mut self, path: &str) -> Result<(), PatchDoesNotApply> {
        self.depth += path.split('/').count();
        if self.depth <= NESTING_DEPTH_MAX { Ok(()) } else { Err(PatchDoesNotApply) }
    }

    fn charge_copy(&mut self, value: &Value) -> Result<(), PatchDoesNotApply> {
        self.copied_bytes += value.to_string().len();
        self.copied_values_bytes += decode::estimated_bytes(value);
        let is_small = self.copied_bytes <= COPIED_BYTES_MAX && self.copied_values_bytes <= DECODED_BYTES_MAX;
        if is_small { Ok(()) } else { Err(PatchDoesNotApply) }
    }
}

fn apply_operation(
    object: &mut Value,
    operation: &Value,
    usage: &mut PatchUsage,
) -> Result<(), PatchDoesNotApply> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str).ok_or(PatchDoesNotApply);
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    let path = text("path");
    match operation.get("op").and_then(Value::as_str) {
        Some("add") => {
            let (parent, key) = parent_of(object, path?)?;
            add_value(parent, &key, value())
        }
        Some("remove") => {
            let (parent, key) = parent_of(object, path?)?;
            remove_value(parent, &key).map(drop)
        }
        Some("replace") => match path? {
            "" => match value() {
                value @ (Value::Object(_) | Value::Array(_)) => {
                    *object = value;
                    Ok(())
                }
                _ => Err(PatchDoesNotApply),
            },
            path => match parent_of(object, path)? {
                (Value::Object(entries), key) => {
                    entries.insert(key, value());
                    Ok(())
                }
                (Value::Array(items), key) => {
                    let at = parse_index(&key, items.len())?;
                    *items.get_mut(at).ok_or(PatchDoesNotApply)? = value();
                    Ok(())
                }
                _ => Err(PatchDoesNotApply),
            },
        },
        Some("move") => {
            let (parent, key) = parent_of(object, text("from")?)?;
            let moved = remove_value(parent, &key)?;
            usage.charge_depth(path?)?;
            let (parent, key) = parent_of(object, path?)?;
            add_value(parent, &key, moved)
        }
        Some("copy") => {
            let (parent, key) = parent_of(object, text("from")?)?;
            let found = get_value(parent, &key)?;
            usage.charge_copy(found)?;
            let copied = found.clone();
            usage.charge_depth(path?)?;
            let (parent, key) = parent_of(object, path?)?;
            add_value(parent, &key, copied)
        }
        Some("test") => {
            let is_equal = match path? {
                "" => *object == value(),
                path => {
                    let (parent, key) = parent_of(object, path)?;
                    *get_value(parent, &key)? == value()
                }
            };
            if is_equal { Ok(()) } else { Err(PatchDoesNotApply) }
        }
        _ => Err(PatchDoesNotApply),
    }
}

/// Returns the parent of the value at the path, and the last path segment. Text before the first slash is ignored.
fn parent_of<'a>(object: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), PatchDoesNotApply> {
    let (_, path) = path.split_once('/').ok_or(PatchDoesNotApply)?;
    let (parents, key) = path.rsplit_once('/').map_or((None, path), |(parents, key)| (Some(parents), key));
    let mut at = object;
    for part in parents.into_iter().flat_map(|it| it.split('/')) {
        at = match at {
            Value::Object(entries) => entries.get_mut(&unescape_segment(part)).ok_or(PatchDoesNotApply)?,
            Value::Array(items) => {
                let at = parse_index(&unescape_segment(part), items.len())?;
                items.get_mut(at).ok_or(PatchDoesNotApply)?
            }
            _ => return Err(PatchDoesNotApply),
        };
    }
    if at.is_object() || at.is_array() { Ok((at, unescape_segment(key))) } else { Err(PatchDoesNotApply) }
}

fn unescape_segment(part: &str) -> String {
    // In one pass, so that `~01` becomes `~1` and not a slash.
    let mut parts = part.split('~');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.as_bytes().first() {
            Some(b'0') => out.push('~'),
            Some(b'1') => out.push('/'),
            _ => {
                out.push('~');
                out.push_str(part);
                continue;
            }
        }
        out.push_str(&part[1..]);
    }
    out
}

/// Parses a list index. A negative index counts from the end.
fn parse_index(key: &str, len: usize) -> Result<usize, PatchDoesNotApply> {
    let at: i64 = key.parse().map_err(|_| PatchDoesNotApply)?;
    let len = i64::try_from(len).map_err(|_| PatchDoesNotApply)?;
    let at = if at < 0 { at.checked_add(len) } else { Some(at) };
    at.and_then(|it| usize::try_from(it).ok()).ok_or(PatchDoesNotApply)
}

fn get_value<'a>(parent: &'a Value, key: &str) -> Result<&'a Value, PatchDoesNotApply> {
    match parent {
        Value::Object(entries) => Ok(entries.get(key).unwrap_or(&Value::Null)),
        Value::Array(items) => items.get(parse_index(key, items.len())?).ok_or(PatchDoesNotApply),
        _ => Err(PatchDoesNotApply),
    }
}

fn add_value(parent: &mut Value, key: &str, value: Value) -> Result<(), PatchDoesNotApply> {
    match parent {
        Value::Object(entries) => drop(entries.insert(key.to_owned(), value)),
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = parse_index(key, items.len() + 1)?;
            if items.len() < at {
                return Err(PatchDoesNotApply);
            }
            items.insert(at, value);
        }
        _ => return Err(PatchDoesNotApply),
    }
    Ok(())
}

fn remove_value(parent: &mut Value, key: &str) -> Result<Value, PatchDoesNotApply> {
    match parent {
        Value::Object(entries) => entries.remove(key).ok_or(PatchDoesNotApply),
        Value::Array(items) => {
            let at = parse_index(key, items.len())?;
            if at < items.len() { Ok(items.remove(at)) } else { Err(PatchDoesNotApply) }
        }
        _ => Err(PatchDoesNotApply),
    }
}

/// Returns a strict decoding error for each unknown field of an operation.
pub(super) fn unknown_field_errors(operations: &[Value]) -> Vec<String> {
    let unknown = |(at, operation): (usize, &Map<String, Value>)| {
        operation
            .keys()
            .filter(|it| !["op", "path", "from", "value"].contains(&it.as_str()))
            .map(|it| format!("unknown field \"[{at}].{it}\""))
            .collect::<Vec<_>>()
    };
    let operations = operations.iter().enumerate();
    operations.filter_map(|(at, it)| Some((at, it.as_object()?))).flat_map(unknown).collect()
}
