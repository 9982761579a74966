//! JSON patch (RFC 6902) as upstream's library implements it: a negative index counts from the end, `replace`
//! may add an absent field, and an absent value equals null.

use serde_json::{Map, Value};

use crate::decode::{self, VALUES_BYTES_MAX};

/// Most operations of one patch. Upstream: `maxJSONPatchOperations`.
pub(super) const OPERATIONS_MAX: usize = 10_000;

/// Most bytes that all `copy` operations of a patch may add: as many as a request body may have. Upstream:
/// `JSONPatchMaxCopyBytes`.
const COPIED_BYTES_MAX: usize = 3 << 20;

/// Most nesting that `move` and `copy` operations may create: each can nest its value as deep as its path. No
/// real object is a tenth as deep, and code that walks an object recurses.
const DEPTH_MAX: usize = 1_000;

/// The patch cannot be applied to the object. Upstream gives its clients no details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DoesNotApply;

pub(super) fn apply(object: &mut Value, operations: &[Value]) -> Result<(), DoesNotApply> {
    let mut limits = PatchLimits { copied_bytes: 0, copied_values_bytes: 0, depth: 256 };
    operations.iter().try_for_each(|it| step(object, it, &mut limits))
}

struct PatchLimits {
    copied_bytes: usize,
    /// Estimated memory of the copies, which can be a hundred times their bytes.
    copied_values_bytes: usize,
    depth: usize,
}

impl PatchLimits {
    fn nest(&mut self, path: &str) -> Result<(), DoesNotApply> {
        self.depth += path.split('/').count();
        if self.depth <= DEPTH_MAX { Ok(()) } else { Err(DoesNotApply) }
    }

    fn copy(&mut self, value: &Value) -> Result<(), DoesNotApply> {
        self.copied_bytes += value.to_string().len();
        self.copied_values_bytes += decode::values_bytes(value);
        let is_small = self.copied_bytes <= COPIED_BYTES_MAX && self.copied_values_bytes <= VALUES_BYTES_MAX;
        if is_small { Ok(()) } else { Err(DoesNotApply) }
    }
}

fn step(object: &mut Value, operation: &Value, limits: &mut PatchLimits) -> Result<(), DoesNotApply> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str).ok_or(DoesNotApply);
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    let path = text("path");
    match operation.get("op").and_then(Value::as_str) {
        Some("add") => {
            let (parent, key) = parent_of(object, path?)?;
            add(parent, &key, value())
        }
        Some("remove") => {
            let (parent, key) = parent_of(object, path?)?;
            remove(parent, &key).map(drop)
        }
        Some("replace") => match path? {
            "" => match value() {
                value @ (Value::Object(_) | Value::Array(_)) => {
                    *object = value;
                    Ok(())
                }
                _ => Err(DoesNotApply),
            },
            path => match parent_of(object, path)? {
                (Value::Object(entries), key) => {
                    entries.insert(key, value());
                    Ok(())
                }
                (Value::Array(items), key) => {
                    let at = index(&key, items.len())?;
                    *items.get_mut(at).ok_or(DoesNotApply)? = value();
                    Ok(())
                }
                _ => Err(DoesNotApply),
            },
        },
        Some("move") => {
            let (parent, key) = parent_of(object, text("from")?)?;
            let moved = remove(parent, &key)?;
            limits.nest(path?)?;
            let (parent, key) = parent_of(object, path?)?;
            add(parent, &key, moved)
        }
        Some("copy") => {
            let (parent, key) = parent_of(object, text("from")?)?;
            let found = get(parent, &key)?;
            limits.copy(found)?;
            let copied = found.clone();
            limits.nest(path?)?;
            let (parent, key) = parent_of(object, path?)?;
            add(parent, &key, copied)
        }
        Some("test") => {
            let is_equal = match path? {
                "" => *object == value(),
                path => {
                    let (parent, key) = parent_of(object, path)?;
                    *get(parent, &key)? == value()
                }
            };
            if is_equal { Ok(()) } else { Err(DoesNotApply) }
        }
        _ => Err(DoesNotApply),
    }
}

/// Returns the parent of the value at the path, and the last path segment. Anything before the first slash is
/// ignored.
fn parent_of<'a>(object: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), DoesNotApply> {
    let (_, path) = path.split_once('/').ok_or(DoesNotApply)?;
    let (parents, key) = path.rsplit_once('/').map_or((None, path), |(parents, key)| (Some(parents), key));
    let mut at = object;
    for part in parents.into_iter().flat_map(|it| it.split('/')) {
        at = match at {
            Value::Object(entries) => entries.get_mut(&unescaped(part)).ok_or(DoesNotApply)?,
            Value::Array(items) => {
                let at = index(&unescaped(part), items.len())?;
                items.get_mut(at).ok_or(DoesNotApply)?
            }
            _ => return Err(DoesNotApply),
        };
    }
    if at.is_object() || at.is_array() { Ok((at, unescaped(key))) } else { Err(DoesNotApply) }
}

fn unescaped(part: &str) -> String {
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

/// Parses a list index; a negative one counts from the end.
fn index(key: &str, len: usize) -> Result<usize, DoesNotApply> {
    let at: i64 = key.parse().map_err(|_| DoesNotApply)?;
    let len = i64::try_from(len).map_err(|_| DoesNotApply)?;
    let at = if at < 0 { at.checked_add(len) } else { Some(at) };
    at.and_then(|it| usize::try_from(it).ok()).ok_or(DoesNotApply)
}

fn get<'a>(parent: &'a Value, key: &str) -> Result<&'a Value, DoesNotApply> {
    match parent {
        Value::Object(entries) => Ok(entries.get(key).unwrap_or(&Value::Null)),
        Value::Array(items) => items.get(index(key, items.len())?).ok_or(DoesNotApply),
        _ => Err(DoesNotApply),
    }
}

fn add(parent: &mut Value, key: &str, value: Value) -> Result<(), DoesNotApply> {
    match parent {
        Value::Object(entries) => drop(entries.insert(key.to_owned(), value)),
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(key, items.len() + 1)?;
            if items.len() < at {
                return Err(DoesNotApply);
            }
            items.insert(at, value);
        }
        _ => return Err(DoesNotApply),
    }
    Ok(())
}

fn remove(parent: &mut Value, key: &str) -> Result<Value, DoesNotApply> {
    match parent {
        Value::Object(entries) => entries.remove(key).ok_or(DoesNotApply),
        Value::Array(items) => {
            let at = index(key, items.len())?;
            if at < items.len() { Ok(items.remove(at)) } else { Err(DoesNotApply) }
        }
        _ => Err(DoesNotApply),
    }
}

/// Returns strict decoding errors for unknown fields of operations.
pub(super) fn unknown_fields(operations: &[Value]) -> Vec<String> {
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
