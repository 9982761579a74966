//! JSON patch (RFC 6902) as upstream's library implements it: a negative index counts from the end, `replace`
//! may add an absent field, and an absent value equals null.

use serde_json::{Map, Value};

use crate::decode::{self, DECODED_BYTES_MAX};

/// Maximum number of operations in one JSON patch. Upstream: `maxJSONPatchOperations`.
pub(super) const OPERATIONS_MAX: usize = 10_000;

/// Maximum total size, as JSON text, of the values that the `copy` operations of a patch add. It is equal to the
/// maximum size of a request body. Upstream: `JSONPatchMaxCopyBytes`.
const COPIED_BYTES_MAX: usize = 3 << 20;

/// Maximum number of list items that the operations of a patch may move to other indices, because they insert or remove
/// an item before them: 10,000 operations on a list of 2,000 items, or 40 on a list of 500,000. At 32 bytes each, 640
/// MB are moved. Upstream has no limit.
const MOVED_ITEMS_MAX: usize = 20_000_000;

/// Maximum nesting depth that the `move` and `copy` operations of a patch may create. Each operation can nest its value
/// as deep as its path. Without a limit, the recursive functions that walk an object could overflow the stack. Real
/// objects have less than a tenth of this depth.
const NESTING_DEPTH_MAX: usize = 1_000;

/// The error for a patch that cannot be applied to the object. As in upstream, the client gets no details.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatchDoesNotApply;

/// Applies the operations to the object in order. After an error the object is only partly patched.
pub(super) fn apply_operations(object: &mut Value, operations: &[Value]) -> Result<(), PatchDoesNotApply> {
    let mut usage = PatchUsage { copied_json_bytes: 0, copied_memory_bytes: 0, moved_items: 0, depth: 256 };
    operations.iter().try_for_each(|it| apply_operation(object, it, &mut usage))
}

/// The resources that the operations of a patch have used so far, which are checked against limits.
struct PatchUsage {
    /// Total size of the copied values as JSON text, limited by `COPIED_BYTES_MAX`.
    copied_json_bytes: usize,
    /// Estimated memory of the copied values once parsed, limited by `DECODED_BYTES_MAX`. It can be a hundred times
    /// their size as JSON text.
    copied_memory_bytes: usize,
    /// Number of list items that were moved to another index, limited by `MOVED_ITEMS_MAX`.
    moved_items: usize,
    /// Upper bound of the nesting depth of the patched object. It must not exceed `NESTING_DEPTH_MAX`.
    depth: usize,
}

impl PatchUsage {
    /// Adds the number of segments of `path` to `depth`. Fails if `NESTING_DEPTH_MAX` is exceeded.
    fn charge_depth(&mut self, path: &str) -> Result<(), PatchDoesNotApply> {
        self.depth += path.split('/').count();
        if self.depth <= NESTING_DEPTH_MAX { Ok(()) } else { Err(PatchDoesNotApply) }
    }

    /// Adds the number of items that move when an item is inserted into or removed from a list of `len` items at the
    /// index `at`. Fails if `MOVED_ITEMS_MAX` is exceeded.
    fn charge_moved_items(&mut self, len: usize, at: usize) -> Result<(), PatchDoesNotApply> {
        self.moved_items += len.saturating_sub(at);
        if self.moved_items <= MOVED_ITEMS_MAX { Ok(()) } else { Err(PatchDoesNotApply) }
    }

    /// Adds the size of a copied value to the copied bytes. Fails if `COPIED_BYTES_MAX` or `DECODED_BYTES_MAX` is
    /// exceeded.
    fn charge_copy(&mut self, value: &Value) -> Result<(), PatchDoesNotApply> {
        self.copied_json_bytes += value.to_string().len();
        self.copied_memory_bytes += decode::estimated_bytes(value);
        let is_small =
            self.copied_json_bytes <= COPIED_BYTES_MAX && self.copied_memory_bytes <= DECODED_BYTES_MAX;
        if is_small { Ok(()) } else { Err(PatchDoesNotApply) }
    }
}

/// Applies one operation of a patch to the object. Adds the copied bytes and the created nesting depth to `usage`.
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
            add_value(parent, &key, value(), usage)
        }
        Some("remove") => {
            let (parent, key) = parent_of(object, path?)?;
            remove_value(parent, &key, usage).map(drop)
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
            let moved = remove_value(parent, &key, usage)?;
            usage.charge_depth(path?)?;
            let (parent, key) = parent_of(object, path?)?;
            add_value(parent, &key, moved, usage)
        }
        Some("copy") => {
            let (parent, key) = parent_of(object, text("from")?)?;
            let found = get_value(parent, &key)?;
            usage.charge_copy(found)?;
            let copied = found.clone();
            usage.charge_depth(path?)?;
            let (parent, key) = parent_of(object, path?)?;
            add_value(parent, &key, copied, usage)
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

/// Returns the object or list that contains the value at the JSON pointer `path`, and the last segment of `path`. Fails
/// if there is no such object or list. Text before the first slash is ignored.
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

/// Returns a segment of a JSON pointer with `~1` replaced by a slash and `~0` by a tilde.
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

/// Parses an index into a list of `len` items. A negative index counts from the end. Does not check that the index is
/// less than `len`.
fn parse_index(key: &str, len: usize) -> Result<usize, PatchDoesNotApply> {
    let at: i64 = key.parse().map_err(|_| PatchDoesNotApply)?;
    let len = i64::try_from(len).map_err(|_| PatchDoesNotApply)?;
    let at = if at < 0 { at.checked_add(len) } else { Some(at) };
    at.and_then(|it| usize::try_from(it).ok()).ok_or(PatchDoesNotApply)
}

/// Returns the field or item `key` of an object or list. An absent field of an object is null. Fails if a list has no
/// such item.
fn get_value<'a>(parent: &'a Value, key: &str) -> Result<&'a Value, PatchDoesNotApply> {
    match parent {
        Value::Object(entries) => Ok(entries.get(key).unwrap_or(&Value::Null)),
        Value::Array(items) => items.get(parse_index(key, items.len())?).ok_or(PatchDoesNotApply),
        _ => Err(PatchDoesNotApply),
    }
}

/// Sets the field `key` of an object, or inserts an item into a list at the index `key`. The key `-` appends to the
/// list.
fn add_value(
    parent: &mut Value,
    key: &str,
    value: Value,
    usage: &mut PatchUsage,
) -> Result<(), PatchDoesNotApply> {
    match parent {
        Value::Object(entries) => drop(entries.insert(key.to_owned(), value)),
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = parse_index(key, items.len() + 1)?;
            if items.len() < at {
                return Err(PatchDoesNotApply);
            }
            usage.charge_moved_items(items.len(), at)?;
            items.insert(at, value);
        }
        _ => return Err(PatchDoesNotApply),
    }
    Ok(())
}

/// Removes and returns the field or item `key` of an object or list. Fails if it does not exist.
fn remove_value(parent: &mut Value, key: &str, usage: &mut PatchUsage) -> Result<Value, PatchDoesNotApply> {
    match parent {
        Value::Object(entries) => entries.remove(key).ok_or(PatchDoesNotApply),
        Value::Array(items) => {
            let at = parse_index(key, items.len())?;
            usage.charge_moved_items(items.len(), at)?;
            if at < items.len() { Ok(items.remove(at)) } else { Err(PatchDoesNotApply) }
        }
        _ => Err(PatchDoesNotApply),
    }
}

/// Returns a strict decoding error for each operation field that JSON patch does not define, up to
/// `decode::STRICT_ERRORS_MAX`.
pub(super) fn unknown_field_errors(operations: &[Value]) -> Vec<String> {
    let unknown = |(at, operation): (usize, &Map<String, Value>)| {
        operation
            .keys()
            .filter(|it| !["op", "path", "from", "value"].contains(&it.as_str()))
            .map(|it| format!("unknown field \"[{at}].{it}\""))
            .collect::<Vec<_>>()
    };
    let operations = operations.iter().enumerate();
    let errors = operations.filter_map(|(at, it)| Some((at, it.as_object()?))).flat_map(unknown);
    errors.take(decode::STRICT_ERRORS_MAX).collect()
}
