//! Strategic merge patch: the meaning of a patch depends on the type of the patched object.
//!
//! Upstream: `strategicpatch`. Results are the same, down to the order of lists.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::go_format;
use crate::types::{Field, Patch, Shape};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_VALUES: &str = "$deleteFromPrimitiveList";
const ORDER: &str = "$setElementOrder";

type Entries = Map<String, Value>;

#[derive(Debug)]
pub(super) enum Error {
    /// The patch violates the patch format.
    Malformed(&'static str),
    ListOfLists,
    /// Errors without a type upstream, which are passed on to the client.
    Other(String),
}

const BAD_DELETE_VALUES: Error = Error::Malformed("invalid patch format of primitive list");
const BAD_RETAIN_KEYS: Error = Error::Malformed("invalid patch format of retainKeys");
const BAD_ORDER: Error = Error::Malformed("invalid patch format of setElementOrder list");

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::Malformed(why) => Self::bad_request(why),
            Error::ListOfLists => Self::unprocessable(),
            Error::Other(why) => Self::failed(why),
        }
    }
}

pub(super) fn merge(mut original: Entries, mut patch: Entries, shape: Shape) -> Result<Entries, Error> {
    match patch.get(DIRECTIVE) {
        None => {}
        Some(directive) if directive == "replace" => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some(directive) if directive == "delete" => return Ok(Entries::new()),
        Some(directive) => return Err(unknown_directive(directive, &patch)),
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered(&mut original, &mut patch, shape)?;
    for (name, value) in patch {
        let (name, is_deletion) = match name.starts_with(DELETE_VALUES) {
            true => (list_named(&name, DELETE_VALUES).ok_or(BAD_DELETE_VALUES)?.to_owned(), true),
            false => (name, false),
        };
        if value.is_null() {
            original.remove(&name);
            continue;
        }
        let merged = match (original.remove(&name), value) {
            (None, _) if is_deletion => continue,
            (Some(Value::Object(old)), Value::Object(patch)) => {
                let field = field_of(shape, &name)?;
                match field.patch {
                    Patch::Replace => Value::Object(patch),
                    _ => Value::Object(merge(old, patch, field.shape)?),
                }
            }
            (Some(Value::Array(old)), Value::Array(patch)) => {
                let (of, strategy) = items_of(shape, &name)?;
                Value::Array(merge_lists(old, patch, of, strategy, is_deletion)?)
            }
            (Some(old), _) if is_deletion => old,
            (_, mut value) => {
                discard_nulls(&mut value);
                match without_directives(value) {
                    Some(value) => value,
                    None => continue,
                }
            }
        };
        original.insert(name, merged);
    }
    Ok(original)
}

fn unknown_directive(directive: &Value, patch: &Entries) -> Error {
    let patch = go_format::text(&Value::Object(patch.clone()));
    let directive = match directive.as_str() {
        Some(text) => text.to_owned(),
        None if directive.is_null() => "%!s(<nil>)".to_owned(),
        None => format!("%!s({}={})", go_format::type_of(directive), go_format::text(directive)),
    };
    Error::Other(format!("unknown patch type: {directive} in map: {patch}"))
}

/// Applies `$retainKeys`, which lists every field that may stay, and so every field that the patch may set.
fn retain_keys(original: &mut Entries, patch: &mut Entries) -> Result<(), Error> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(retained) = retained else { return Err(BAD_RETAIN_KEYS) };
    let is_retained = |name: &String| retained.iter().any(|it| it == name);
    let is_allowed = |(name, value): (&String, &Value)| {
        value.is_null() || name.starts_with(DELETE_VALUES) || name.starts_with(ORDER) || is_retained(name)
    };
    if !patch.iter().all(is_allowed) {
        return Err(BAD_RETAIN_KEYS);
    }
    original.retain(|name, _| is_retained(name));
    Ok(())
}

/// Merges the lists whose order the patch sets, and removes them from the patch.
fn merge_ordered(original: &mut Entries, patch: &mut Entries, shape: Shape) -> Result<(), Error> {
    let orders: Vec<_> = patch.keys().filter(|it| it.starts_with(ORDER)).cloned().collect();
    for directive in orders {
        let order = patch.remove(&directive).unwrap_or_default();
        let Value::Array(order) = order else { return Err(bad_type("[]interface {}", &order)) };
        let name = list_named(&directive, ORDER).ok_or(BAD_ORDER)?;
        let as_list = |it: Option<&Value>| match it {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items.clone())),
            Some(other) => Err(bad_type("[]interface {}", other)),
        };
        let (old, new) = (as_list(original.get(name))?, as_list(patch.get(name))?);
        let (of, strategy) = items_of(shape, name)?;
        let key = strategy.key;
        refuse_other_order(new.as_deref().unwrap_or_default(), &order, key)?;
        let is_map = match (&old, &new) {
            (None, None) => continue,
            (old, new) => {
                let (old, new) = (old.as_deref().unwrap_or_default(), new.as_deref().unwrap_or_default());
                are_maps(old, new)?
            }
        };
        let mut live = old.clone().unwrap_or_default();
        let merged = match (old, new) {
            (Some(old), None) => old,
            (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
            (Some(old), Some(new)) => {
                if let (true, true, Some(key)) = (is_map, strategy.merges, key) {
                    live = overwritten(live, &new, key);
                }
                merge_lists(old, new, of, strategy, false)?
            }
            (None, None) => continue,
        };
        original.insert(name.to_owned(), Value::Array(in_order(merged, &order, &live, key, is_map)?));
        patch.remove(name);
    }
    Ok(())
}

/// Checks that the items of the patch are in the order that the patch sets.
fn refuse_other_order(patch: &[Value], order: &[Value], key: Option<&str>) -> Result<(), Error> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut items: Vec<&Value> = Vec::new();
    for item in patch {
        match item {
            Value::Object(entries) if key.is_some() && entries.get(DIRECTIVE) == Some(&"delete".into()) => {}
            Value::Object(_) => items.push(item),
            other if key.is_some() => return Err(bad_type("map[string]interface {}", other)),
            _ => items.push(item),
        }
    }
    let (mut at, mut order_at) = (0, 0);
    while at < items.len() && order_at < order.len() {
        if items[at].get(DIRECTIVE).is_some() {
            at += 1;
            continue;
        }
        let is_same = match key {
            None => items[at] == &order[order_at],
            Some(key) => key_of(items[at], key)? == key_of(&order[order_at], key)?,
        };
        if is_same {
            at += 1;
        }
        order_at += 1;
    }
    if at < items.len() && order.len() <= order_at {
        return Err(Error::Other(format!(
            "The order in patch list:\n{}\n doesn't match {ORDER} list:\n{}\n",
            go_format::text(&Value::Array(patch.to_vec())),
            go_format::text(&Value::Array(order.to_vec()))
        )));
    }
    Ok(())
}

/// How the items of a list are merged.
#[derive(Debug, Clone, Copy)]
struct Strategy {
    merges: bool,
    key: Option<&'static str>,
}

fn merge_lists(
    old: Vec<Value>,
    patch: Vec<Value>,
    of: Shape,
    strategy: Strategy,
    is_deletion: bool,
) -> Result<Vec<Value>, Error> {
    if !strategy.merges && !is_deletion {
        return Ok(patch);
    }
    if old.is_empty() && patch.is_empty() {
        return Ok(old);
    }
    if !are_maps(&old, &patch)? {
        if is_deletion {
            return Ok(old.into_iter().filter(|it| !patch.contains(it)).collect());
        }
        let mut both = Vec::with_capacity(old.len() + patch.len());
        for value in old.iter().chain(&patch) {
            if !both.contains(value) {
                both.push(value.clone());
            }
        }
        return in_order(both, &patch, &old, strategy.key, false);
    }
    let Some(key) = strategy.key else {
        return Err(Error::Other(format!("cannot merge lists without merge key for {}", go_kind(of))));
    };
    let (mut old, patch) = follow_directives(old, patch, key)?;
    let live = old.clone();
    for item in &patch {
        let name = key_of(item, key)?;
        match position(&old, key, name)? {
            Some(at) => {
                let (Value::Object(original), Value::Object(item)) = (old[at].take(), item.clone()) else {
                    return Err(bad_type("map[string]interface {}", item));
                };
                old[at] = Value::Object(merge(original, item, of)?);
            }
            None => old.push(item.clone()),
        }
    }
    in_order(old, &patch, &live, Some(key), true)
}

/// Applies the list items that are directives. Returns the remaining list and the items to merge.
fn follow_directives(
    mut old: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Error> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut is_replaced = false;
    for item in patch {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let name = key_of(&item, key)?;
                while let Some(at) = position(&old, key, name)? {
                    old.remove(at);
                }
            }
            Some("replace") => is_replaced = true,
            Some("merge") => {
                return Err(Error::Other("merging lists cannot yet be specified in the patch".to_owned()));
            }
            _ => return Err(unknown_directive(directive, item.as_object().unwrap_or(&Entries::new()))),
        }
    }
    Ok(if is_replaced { (plain, Vec::new()) } else { (old, plain) })
}

/// Reproduces the order that upstream uses as the live one after it has merged a list: upstream deletes and
/// appends in the memory of the live list, so that the last item is there twice after a deletion until an
/// appended item overwrites it.
fn overwritten(mut live: Vec<Value>, patch: &[Value], key: &str) -> Vec<Value> {
    let mut len = live.len();
    let is = |it: &Value, name: &Value| it.get(key) == Some(name);
    let says = |item: &Value, directive: &str| item.get(DIRECTIVE).is_some_and(|it| it == directive);
    for name in patch.iter().filter(|it| says(it, "delete")).filter_map(|it| it.get(key)) {
        while let Some(at) = live[..len].iter().position(|it| is(it, name)) {
            let last = live[len - 1].clone();
            live[at..len].rotate_left(1);
            len -= 1;
            live[len] = last;
        }
    }
    let is_replaced = patch.iter().any(|it| says(it, "replace"));
    for item in patch.iter().filter(|it| it.get(DIRECTIVE).is_none() && !is_replaced) {
        let is_new = item.get(key).is_some_and(|name| !live[..len].iter().any(|it| is(it, name)));
        if is_new && len < live.len() {
            live[len] = item.clone();
            len += 1;
        }
    }
    live
}

/// Sorts the items that `order` names into that order. The other items, unknown to the author of the patch,
/// keep their order relative to the live list.
fn in_order(
    merged: Vec<Value>,
    order: &[Value],
    live: &[Value],
    key: Option<&str>,
    is_map: bool,
) -> Result<Vec<Value>, Error> {
    if let (true, Some(key)) = (is_map, key) {
        merged.iter().chain(order).chain(live).try_for_each(|it| key_of(it, key).map(drop))?;
    }
    let same = |left: &Value, right: &Value| match key {
        Some(key) => left.get(key) == right.get(key),
        None => left == right,
    };
    let place = |all: &[Value], it: &Value| all.iter().position(|other| same(other, it));
    let (mut named, others): (Vec<_>, Vec<_>) = merged.into_iter().partition(|it| place(order, it).is_some());
    named.sort_by_cached_key(|it| place(order, it));
    let mut others: Vec<_> = others.into_iter().map(|it| (place(live, &it), it)).collect();
    // An item that is not in the live list is sorted before its neighbour.
    let goes_before = |this: Option<usize>, before: Option<usize>| match (this, before) {
        (Some(this), Some(before)) => this < before,
        _ => true,
    };
    for end in 1..others.len() {
        let mut at = end;
        while 0 < at && goes_before(others[at].0, others[at - 1].0) {
            others.swap(at, at - 1);
            at -= 1;
        }
    }

    let mut all = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        let live_at = place(live, &item);
        let is_before = |other: &(Option<usize>, Value)| match (other.0, live_at) {
            (Some(other), Some(live_at)) => other < live_at,
            _ => false,
        };
        while let Some((_, other)) = others.next_if(is_before) {
            all.push(other);
        }
        all.push(item);
    }
    all.extend(others.map(|(_, it)| it));
    Ok(all)
}

fn position(items: &[Value], key: &str, name: &Value) -> Result<Option<usize>, Error> {
    for (at, item) in items.iter().enumerate() {
        if !item.is_object() {
            return Err(Error::Other(format!("value for key {at} is not a map")));
        }
        if item.get(key) == Some(name) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn key_of<'a>(item: &'a Value, key: &str) -> Result<&'a Value, Error> {
    let Value::Object(entries) = item else { return Err(bad_type("map[string]interface {}", item)) };
    let missing =
        || Error::Other(format!("map: {} does not contain declared merge key: {key}", go_format::text(item)));
    entries.get(key).ok_or_else(missing)
}

/// Whether the items are objects. All items must have the same type, and none may be a list.
fn are_maps(old: &[Value], patch: &[Value]) -> Result<bool, Error> {
    let mut kinds = old.iter().chain(patch).map(go_format::type_of);
    let Some(first) = kinds.next() else {
        return Err(Error::Other("no elements in any of the given slices".to_owned()));
    };
    if first == "[]interface {}" {
        return Err(Error::ListOfLists);
    }
    if kinds.any(|it| it != first) {
        let (old, patch) = (Value::Array(old.to_vec()), Value::Array(patch.to_vec()));
        return Err(Error::Other(format!(
            "list element types are not identical: [{} {}]",
            go_format::text(&old),
            go_format::text(&patch)
        )));
    }
    Ok(first == "map[string]interface {}")
}

fn bad_type(expected: &str, got: &Value) -> Error {
    let got = if got.is_null() { "%!s(<nil>)" } else { go_format::type_of(got) };
    Error::Other(format!("expected a {expected}, but received a {got}"))
}

/// Returns the field that a directive is about: `containers` for `$setElementOrder/containers`.
fn list_named<'a>(directive: &'a str, prefix: &str) -> Option<&'a str> {
    directive.split_once('/').filter(|(it, _)| *it == prefix).map(|(_, name)| name)
}

fn field_of(shape: Shape, name: &str) -> Result<&'static Field, Error> {
    let Shape::Object(of) = shape else {
        let why = match go_kind(shape) {
            "struct" => {
                format!("unable to find api field in struct {} for the json field {name:?}", go_name(shape))
            }
            kind => format!("merging an object in json but data type is not struct, instead is: {kind}"),
        };
        return Err(Error::Other(why));
    };
    let in_any_case = || of.fields.iter().find(|it| it.name.eq_ignore_ascii_case(name));
    of.field(name).or_else(in_any_case).ok_or_else(|| {
        let name_of_type = go_name(shape);
        Error::Other(format!("unable to find api field in struct {name_of_type} for the json field {name:?}"))
    })
}

fn items_of(shape: Shape, name: &str) -> Result<(Shape, Strategy), Error> {
    let field = field_of(shape, name)?;
    let Shape::List(of, _) = field.shape else {
        return Err(Error::Other("expected slice or array type, but got: struct".to_owned()));
    };
    if matches!(of, Shape::List(..)) {
        return Err(Error::Other("unexpected slice of slice".to_owned()));
    }
    let strategy = match field.patch {
        Patch::Merge(key) => Strategy { merges: true, key },
        Patch::MergeRetainKeys(key) => Strategy { merges: true, key: Some(key) },
        Patch::Plain | Patch::Replace => Strategy { merges: false, key: None },
    };
    Ok((*of, strategy))
}

/// Returns Go's error if the merged value does not fit the shape. For this patch type upstream converts values
/// instead of decoding JSON, with error messages of its own.
pub(super) fn misfit(shape: Shape, value: &Value) -> Option<String> {
    let kind = match go_format::type_of(value) {
        "map[string]interface {}" => "map",
        "[]interface {}" => "slice",
        plain => plain,
    };
    let want = go_kind(shape);
    match (shape, value) {
        (_, Value::Null) => None,
        (Shape::Object(of), Value::Object(entries)) => {
            entries.iter().find_map(|(name, it)| misfit(of.field(name)?.shape, it))
        }
        (Shape::Object(_), _) => Some(format!("cannot restore struct from: {kind}")),
        (Shape::Map(of, _), Value::Object(entries)) => entries.values().find_map(|it| misfit(*of, it)),
        (Shape::Map(..), _) => Some(format!("cannot restore map from {kind}")),
        (Shape::List(of, _), Value::Array(items)) => items.iter().find_map(|it| misfit(*of, it)),
        (Shape::List(..), _) => Some(format!("cannot restore slice from {kind}")),
        (Shape::String, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => None,
        (Shape::String, Value::Number(it)) if !it.is_f64() => Some(format!("cannot convert int64 to {want}")),
        (Shape::Int32 | Shape::Int64, Value::Number(it)) if it.is_f64() => {
            let is_whole = it.as_f64().is_some_and(|it| it.fract() == 0.0);
            (!is_whole).then(|| format!("cannot convert float64 to {want}"))
        }
        (Shape::Int32 | Shape::Int64, Value::Number(_)) => None,
        (Shape::String | Shape::Bool | Shape::Int32 | Shape::Int64, _) => {
            Some(format!("unrecognized type: {want}"))
        }
        _ => None,
    }
}

/// Go's `reflect.Kind` for a shape.
fn go_kind(shape: Shape) -> &'static str {
    match shape {
        Shape::Bool => "bool",
        Shape::Int32 => "int32",
        Shape::Int64 => "int64",
        Shape::String => "string",
        Shape::Bytes | Shape::List(..) => "slice",
        Shape::Map(..) => "map",
        _ => "struct",
    }
}

fn go_name(shape: Shape) -> &'static str {
    match shape {
        Shape::Object(it) => it.name.rsplit('.').next().unwrap_or_default(),
        Shape::Time => "Time",
        Shape::MicroTime => "MicroTime",
        Shape::Quantity => "Quantity",
        Shape::IntOrString => "IntOrString",
        Shape::FieldsV1 => "FieldsV1",
        _ => "RawExtension",
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(entries) => {
            entries.retain(|_, it| !it.is_null());
            entries.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// Removes all values with a directive from a value that is new to the object, where a directive has no
/// meaning.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(entries) if entries.contains_key(DIRECTIVE) => None,
        Value::Object(entries) => {
            let kept = entries.into_iter().filter_map(|(name, it)| Some((name, without_directives(it)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(items.into_iter().filter_map(without_directives).collect()),
        plain => Some(plain),
    }
}
