//! Strategic merge patch, in which the type of the patched object determines how each field is merged.
//!
//! Upstream: `strategicpatch`. The results are the same, including the order of list items.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::merge::prune_null_fields;
use crate::error::ApiError;
use crate::go_format;
use crate::small_map::{SmallMap, SmallSet};
use crate::types::{Field, PatchStrategy, Shape};

/// Field of a patch with the directive `replace` or `delete` for the object that contains the field. In a list item,
/// `replace` replaces the whole list. As in upstream, any other directive is an error.
const PATCH_DIRECTIVE: &str = "$patch";
/// Field of a patch that lists the fields that the patched object keeps. All other fields are removed from the object.
const RETAIN_KEYS_DIRECTIVE: &str = "$retainKeys";
/// Prefix of a field of a patch that lists the values to delete from a list of primitives:
/// `$deleteFromPrimitiveList/finalizers`.
const DELETE_FROM_LIST_DIRECTIVE: &str = "$deleteFromPrimitiveList";
/// Prefix of a field of a patch that sets the order of the items of a list: `$setElementOrder/containers`.
const ELEMENT_ORDER_DIRECTIVE: &str = "$setElementOrder";

/// A JSON object: the patched object or the patch.
type JsonObject = Map<String, Value>;

/// Why a strategic merge patch cannot be applied.
#[derive(Debug)]
pub(super) enum StrategicPatchError {
    /// The patch violates the patch format. The client gets this message with status 400.
    Malformed(&'static str),
    /// A list that is merged contains lists, which strategic merge patch does not support.
    ListOfLists,
    /// An error for which upstream has no error type. The client gets this message with status 500.
    Other(String),
}

/// The error for an invalid name of a `$deleteFromPrimitiveList` field.
const MALFORMED_PRIMITIVE_LIST: StrategicPatchError =
    StrategicPatchError::Malformed("invalid patch format of primitive list");
/// The error for an invalid `$retainKeys` list.
const MALFORMED_RETAIN_KEYS: StrategicPatchError =
    StrategicPatchError::Malformed("invalid patch format of retainKeys");
/// The error for an invalid name of a `$setElementOrder` field.
const MALFORMED_ELEMENT_ORDER: StrategicPatchError =
    StrategicPatchError::Malformed("invalid patch format of setElementOrder list");

impl From<StrategicPatchError> for ApiError {
    fn from(error: StrategicPatchError) -> Self {
        match error {
            StrategicPatchError::Malformed(why) => Self::bad_request(why),
            StrategicPatchError::ListOfLists => Self::patch_not_applicable(),
            StrategicPatchError::Other(why) => Self::internal_without_reason(why),
        }
    }
}

/// Merges `patch` into `original` and returns the merged object. `shape` is the type of the object.
pub(super) fn merge_objects(
    mut original: JsonObject,
    mut patch: JsonObject,
    shape: Shape,
) -> Result<JsonObject, StrategicPatchError> {
    match patch.get(PATCH_DIRECTIVE) {
        None => {}
        Some(directive) if directive == "replace" => {
            patch.remove(PATCH_DIRECTIVE);
            return Ok(patch);
        }
        Some(directive) if directive == "delete" => return Ok(JsonObject::new()),
        Some(directive) => return Err(unknown_directive_error(directive, &patch)),
    }
    apply_retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, shape)?;
    for (name, value) in patch {
        let (name, is_deletion) = match name.starts_with(DELETE_FROM_LIST_DIRECTIVE) {
            true => (
                directive_field(&name, DELETE_FROM_LIST_DIRECTIVE)
                    .ok_or(MALFORMED_PRIMITIVE_LIST)?
                    .to_owned(),
                true,
            ),
            false => (name, false),
        };
        if value.is_null() {
            original.remove(&name);
            continue;
        }
        let merged = match (original.remove(&name), value) {
            (None, _) if is_deletion => continue,
            (Some(Value::Object(old)), Value::Object(patch)) => {
                let field = find_field(shape, &name)?;
                match field.patch {
                    PatchStrategy::Replace => Value::Object(patch),
                    _ => Value::Object(merge_objects(old, patch, field.shape)?),
                }
            }
            (Some(Value::Array(old)), Value::Array(patch)) => {
                let (of, strategy) = list_item_type_and_strategy(shape, &name)?;
                Value::Array(merge_lists(old, patch, of, strategy, is_deletion)?)
            }
            (Some(old), _) if is_deletion => old,
            (_, mut value) => {
                prune_null_fields(&mut value);
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

/// Returns the error for a `$patch` field with an unknown value. `patch` is the object that contains the field.
fn unknown_directive_error(directive: &Value, patch: &JsonObject) -> StrategicPatchError {
    let patch = go_format::format_value(&Value::Object(patch.clone()));
    let directive = match directive.as_str() {
        Some(text) => text.to_owned(),
        None if directive.is_null() => "%!s(<nil>)".to_owned(),
        None => format!("%!s({}={})", go_format::go_type_of(directive), go_format::format_value(directive)),
    };
    StrategicPatchError::Other(format!("unknown patch type: {directive} in map: {patch}"))
}

/// Applies `$retainKeys`, which lists the fields that may stay in the object. All other fields are removed from the
/// object. Fails if the value of `$retainKeys` is not a list, or if the patch sets a field that is not in the list.
fn apply_retain_keys(original: &mut JsonObject, patch: &mut JsonObject) -> Result<(), StrategicPatchError> {
    let Some(retained) = patch.remove(RETAIN_KEYS_DIRECTIVE) else { return Ok(()) };
    let Value::Array(retained) = retained else { return Err(MALFORMED_RETAIN_KEYS) };
    let retained: SmallSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let is_retained = |name: &String| retained.contains(name.as_str());
    let is_allowed = |(name, value): (&String, &Value)| {
        value.is_null()
            || name.starts_with(DELETE_FROM_LIST_DIRECTIVE)
            || name.starts_with(ELEMENT_ORDER_DIRECTIVE)
            || is_retained(name)
    };
    if !patch.iter().all(is_allowed) {
        return Err(MALFORMED_RETAIN_KEYS);
    }
    original.retain(|name, _| is_retained(name));
    Ok(())
}

/// Merges and sorts the lists for which the patch has a `$setElementOrder` field, and removes both the lists and these
/// fields from the patch.
fn merge_ordered_lists(
    original: &mut JsonObject,
    patch: &mut JsonObject,
    shape: Shape,
) -> Result<(), StrategicPatchError> {
    let orders: Vec<_> = patch.keys().filter(|it| it.starts_with(ELEMENT_ORDER_DIRECTIVE)).cloned().collect();
    for directive in orders {
        let order = patch.remove(&directive).unwrap_or_default();
        let Value::Array(order) = order else { return Err(type_error("[]interface {}", &order)) };
        let name = directive_field(&directive, ELEMENT_ORDER_DIRECTIVE).ok_or(MALFORMED_ELEMENT_ORDER)?;
        let (old, new) = (optional_list(original.get(name))?, optional_list(patch.get(name))?);
        let (of, strategy) = list_item_type_and_strategy(shape, name)?;
        let key = strategy.key;
        check_element_order(new.map_or(&[], Vec::as_slice), &order, key)?;
        if old.is_none() && new.is_none() {
            continue;
        }
        let is_map = are_objects(old.map_or(&[], Vec::as_slice), new.map_or(&[], Vec::as_slice))?;
        let mut live: Vec<&Value> = old.into_iter().flatten().collect();
        let merged = match (old, new) {
            (Some(old), None) => old.clone(),
            (None, Some(new)) => new.iter().cloned().filter_map(without_directives).collect(),
            (Some(old), Some(new)) => {
                if let (true, true, Some(key)) = (is_map, strategy.merges, key) {
                    live = live_order_after_merge(&live, new, key);
                }
                merge_lists(old.clone(), new.clone(), of, strategy, false)?
            }
            (None, None) => continue,
        };
        let sorted = sort_by_element_order(merged, &order, &live, key, is_map)?;
        original.insert(name.to_owned(), Value::Array(sorted));
        patch.remove(name);
    }
    Ok(())
}

/// Returns the items of a list, or `None` if there is no value. Fails if the value is not a list.
fn optional_list(value: Option<&Value>) -> Result<Option<&Vec<Value>>, StrategicPatchError> {
    match value {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(type_error("[]interface {}", other)),
    }
}

/// Checks that the items of the list `patch` are in its `$setElementOrder` list `order`, in the same order. Items with
/// a `$patch` directive are ignored. Checks nothing if one of the lists is empty. `key` is the merge key of the items,
/// or `None` if they have none.
fn check_element_order(
    patch: &[Value],
    order: &[Value],
    key: Option<&str>,
) -> Result<(), StrategicPatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut items: Vec<&Value> = Vec::new();
    for item in patch {
        match item {
            Value::Object(entries)
                if key.is_some() && entries.get(PATCH_DIRECTIVE) == Some(&"delete".into()) => {}
            Value::Object(_) => items.push(item),
            other if key.is_some() => return Err(type_error("map[string]interface {}", other)),
            _ => items.push(item),
        }
    }
    let (mut at, mut order_at) = (0, 0);
    while at < items.len() && order_at < order.len() {
        if items[at].get(PATCH_DIRECTIVE).is_some() {
            at += 1;
            continue;
        }
        let is_same = match key {
            None => items[at] == &order[order_at],
            Some(key) => value_of_merge_key(items[at], key)? == value_of_merge_key(&order[order_at], key)?,
        };
        if is_same {
            at += 1;
        }
        order_at += 1;
    }
    if at < items.len() && order.len() <= order_at {
        return Err(StrategicPatchError::Other(format!(
            "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER_DIRECTIVE} list:\n{}\n",
            go_format::format_value(&Value::Array(patch.to_vec())),
            go_format::format_value(&Value::Array(order.to_vec()))
        )));
    }
    Ok(())
}

/// How a list in the patch is merged with the list in the object.
#[derive(Debug, Clone, Copy)]
struct ListMergeStrategy {
    /// Whether the items are merged. If not, the list in the patch replaces the list in the object.
    merges: bool,
    /// The merge key: the field that identifies an item. `None` for a list of primitives, and for a list that is not
    /// merged.
    key: Option<&'static str>,
}

/// Merges the list `patch` into the list `old` and returns the merged list. `of` is the type of the items. If
/// `is_deletion` is set, `patch` is a `$deleteFromPrimitiveList` list, and its values are removed from `old`.
fn merge_lists(
    old: Vec<Value>,
    patch: Vec<Value>,
    of: Shape,
    strategy: ListMergeStrategy,
    is_deletion: bool,
) -> Result<Vec<Value>, StrategicPatchError> {
    if !strategy.merges && !is_deletion {
        return Ok(patch);
    }
    if old.is_empty() && patch.is_empty() {
        return Ok(old);
    }
    if !are_objects(&old, &patch)? {
        if is_deletion {
            let deleted: SmallSet<&Value> = patch.iter().collect();
            return Ok(old.into_iter().filter(|it| !deleted.contains(it)).collect());
        }
        let mut seen: SmallSet<&Value> = SmallSet::default();
        let both = old.iter().chain(&patch).filter(|it| seen.insert(it)).cloned().collect();
        let live: Vec<_> = old.iter().collect();
        return sort_by_element_order(both, &patch, &live, strategy.key, false);
    }
    let Some(key) = strategy.key else {
        return Err(StrategicPatchError::Other(format!(
            "cannot merge lists without merge key for {}",
            go_kind(of)
        )));
    };
    let (mut old, patch) = apply_list_directives(old, patch, key)?;
    let live = old.clone();
    // The index in `old` of the first item with each value of the merge key.
    let mut indices: SmallMap<&Value, usize> =
        live.iter().enumerate().filter_map(|(at, it)| Some((it.get(key)?, at))).collect();
    for item in &patch {
        let name = value_of_merge_key(item, key)?;
        match indices.get(name).copied() {
            Some(at) => {
                let (Value::Object(original), Value::Object(item)) = (old[at].take(), item.clone()) else {
                    return Err(type_error("map[string]interface {}", item));
                };
                old[at] = Value::Object(merge_objects(original, item, of)?);
            }
            None => {
                indices.insert_new(name, old.len());
                old.push(item.clone());
            }
        }
    }
    sort_by_element_order(old, &patch, &live.iter().collect::<Vec<_>>(), Some(key), true)
}

/// Applies the `$patch` directives in the items of the list `patch` to the list `old`. Returns the resulting list, and
/// the items of `patch` that the caller must still merge into it.
fn apply_list_directives(
    mut old: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), StrategicPatchError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut deleted = SmallSet::default();
    let mut is_replaced = false;
    for item in patch {
        let Some(directive) = item.get(PATCH_DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => drop(deleted.insert(value_of_merge_key(&item, key)?.clone())),
            Some("replace") => is_replaced = true,
            Some("merge") => {
                return Err(StrategicPatchError::Other(
                    "merging lists cannot yet be specified in the patch".to_owned(),
                ));
            }
            _ => {
                return Err(unknown_directive_error(
                    directive,
                    item.as_object().unwrap_or(&JsonObject::new()),
                ));
            }
        }
    }
    if is_replaced {
        return Ok((plain, Vec::new()));
    }
    old.retain(|it| !it.get(key).is_some_and(|name| deleted.contains(name)));
    Ok((old, plain))
}

/// Returns the list `live` as upstream's merge leaves it. Upstream merges `live` in place, as a Go slice, and then
/// sorts the merged items by the order of this slice. Each deletion leaves a duplicate of the last item in the tail of
/// the slice, and each appended item overwrites the first such duplicate. An item that is appended when no duplicate is
/// left does not get into the list.
fn live_order_after_merge<'a>(live: &[&'a Value], patch: &'a [Value], key: &str) -> Vec<&'a Value> {
    let has_directive =
        |item: &Value, directive: &str| item.get(PATCH_DIRECTIVE).is_some_and(|it| it == directive);
    let mut indices: HashMap<&Value, Vec<usize>> = HashMap::new();
    for (at, it) in live.iter().enumerate() {
        if let Some(name) = it.get(key) {
            indices.entry(name).or_default().push(at);
        }
    }
    let mut is_deleted = vec![false; live.len()];
    // The tail of the slice, from its end, and the number of items of `live` up to the last one that is not deleted.
    let (mut tail, mut live_len) = (Vec::new(), live.len());
    for name in patch.iter().filter(|it| has_directive(it, "delete")).filter_map(|it| it.get(key)) {
        for at in indices.remove(name).unwrap_or_default() {
            while is_deleted[live_len - 1] {
                live_len -= 1;
            }
            tail.push(live[live_len - 1]);
            is_deleted[at] = true;
        }
    }
    let kept = live.iter().zip(&is_deleted).filter(|(_, is_deleted)| !**is_deleted).map(|(it, _)| *it);
    let mut out: Vec<&Value> = kept.collect();
    if patch.iter().all(|it| !has_directive(it, "replace")) {
        let mut names: SmallSet<&Value> = out.iter().filter_map(|it| it.get(key)).collect();
        for item in patch.iter().filter(|it| it.get(PATCH_DIRECTIVE).is_none()) {
            if out.len() < live.len() && item.get(key).is_some_and(|name| names.insert(name)) {
                out.push(item);
            }
        }
    }
    // The rest of the tail, which no appended item overwrites.
    let rest = live.len() - out.len();
    out.extend(tail[..rest].iter().rev());
    out
}

/// Sorts the items of a merged list. Items that are in `order`, which is the `$setElementOrder` list or else the list
/// in the patch, get the order of that list. Each other item is inserted before the first item of `order` that follows
/// it in `live`, or at the end if there is none. `live` is the list before the merge, or the result of
/// [`live_order_after_merge`]. `key` is the merge key of the items, or `None` if they have none. `is_map` says whether
/// the items are objects. Fails if an object has no field `key`.
fn sort_by_element_order(
    merged: Vec<Value>,
    order: &[Value],
    live: &[&Value],
    key: Option<&str>,
    is_map: bool,
) -> Result<Vec<Value>, StrategicPatchError> {
    if let (true, Some(key)) = (is_map, key) {
        let all = merged.iter().chain(order).chain(live.iter().copied());
        all.into_iter().try_for_each(|it| value_of_merge_key(it, key).map(drop))?;
    }
    /// The value that identifies an item: its merge key if it has one, or else the item.
    fn identity<'a>(item: &'a Value, key: Option<&str>) -> Option<&'a Value> {
        key.map_or(Some(item), |key| item.get(key))
    }
    let order: SmallMap<Option<&Value>, usize> =
        order.iter().enumerate().map(|(at, it)| (identity(it, key), at)).collect();
    let live: SmallMap<Option<&Value>, usize> =
        live.iter().enumerate().map(|(at, it)| (identity(it, key), at)).collect();
    let order_at = |it: &Value| order.get(&identity(it, key)).copied();
    let live_at = |it: &Value| live.get(&identity(it, key)).copied();
    let (mut named, others): (Vec<_>, Vec<_>) = merged.into_iter().partition(|it| order_at(it).is_some());
    named.sort_by_cached_key(order_at);
    let mut others: Vec<_> = others.into_iter().map(|it| (live_at(&it), it)).collect();
    sort_by_live_order(&mut others);

    let mut all = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        let live_at = live_at(&item);
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

/// Sorts items by their index in the live list, in the order of upstream's insertion sort. Upstream's comparison puts
/// an item without an index before every other item, and every other item before it. So an item without an index gets
/// in front of all items before it in the list, and a later item gets in front of it only if its index is less than
/// all indices before it.
fn sort_by_live_order(items: &mut Vec<(Option<usize>, Value)>) {
    let mut least = usize::MAX;
    let mut keyed: Vec<_> = std::mem::take(items)
        .into_iter()
        .enumerate()
        .map(|(at, item)| match item.0 {
            Some(index) => {
                least = least.min(index);
                ((index, true, at), item)
            }
            None => ((least, false, usize::MAX - at), item),
        })
        .collect();
    keyed.sort_unstable_by_key(|(key, _)| *key);
    items.extend(keyed.into_iter().map(|(_, item)| item));
}

/// Returns the value of the merge key `key` of a list item. Fails if the item is not an object or has no such field.
fn value_of_merge_key<'a>(item: &'a Value, key: &str) -> Result<&'a Value, StrategicPatchError> {
    let Value::Object(entries) = item else { return Err(type_error("map[string]interface {}", item)) };
    let missing = || {
        StrategicPatchError::Other(format!(
            "map: {} does not contain declared merge key: {key}",
            go_format::format_value(item)
        ))
    };
    entries.get(key).ok_or_else(missing)
}

/// Whether the items of both lists are objects. Fails if both lists are empty, if the items have different types, or if
/// the items are lists.
fn are_objects(old: &[Value], patch: &[Value]) -> Result<bool, StrategicPatchError> {
    let mut kinds = old.iter().chain(patch).map(go_format::go_type_of);
    let Some(first) = kinds.next() else {
        return Err(StrategicPatchError::Other("no elements in any of the given slices".to_owned()));
    };
    if first == "[]interface {}" {
        return Err(StrategicPatchError::ListOfLists);
    }
    if kinds.any(|it| it != first) {
        let (old, patch) = (Value::Array(old.to_vec()), Value::Array(patch.to_vec()));
        return Err(StrategicPatchError::Other(format!(
            "list element types are not identical: [{} {}]",
            go_format::format_value(&old),
            go_format::format_value(&patch)
        )));
    }
    Ok(first == "map[string]interface {}")
}

/// Returns the error for a value that does not have the expected Go type.
fn type_error(expected: &str, got: &Value) -> StrategicPatchError {
    let got = if got.is_null() { "%!s(<nil>)" } else { go_format::go_type_of(got) };
    StrategicPatchError::Other(format!("expected a {expected}, but received a {got}"))
}

/// Returns the name of the field to which a directive applies, such as `containers` for `$setElementOrder/containers`.
/// Returns `None` if the directive does not start with `prefix` and a slash.
fn directive_field<'a>(directive: &'a str, prefix: &str) -> Option<&'a str> {
    directive.split_once('/').filter(|(it, _)| *it == prefix).map(|(_, name)| name)
}

/// Returns the field `name` of the type `shape`. If no name matches exactly, ignores the case of ASCII letters. Fails
/// if `shape` is not an object type or has no such field.
fn find_field(shape: Shape, name: &str) -> Result<&'static Field, StrategicPatchError> {
    let Shape::Object(of) = shape else {
        let why = match go_kind(shape) {
            "struct" => {
                format!(
                    "unable to find api field in struct {} for the json field {name:?}",
                    go_type_name(shape)
                )
            }
            kind => format!("merging an object in json but data type is not struct, instead is: {kind}"),
        };
        return Err(StrategicPatchError::Other(why));
    };
    let in_any_case = || of.fields.iter().find(|it| it.name.eq_ignore_ascii_case(name));
    of.field(name).or_else(in_any_case).ok_or_else(|| {
        let name_of_type = go_type_name(shape);
        StrategicPatchError::Other(format!(
            "unable to find api field in struct {name_of_type} for the json field {name:?}"
        ))
    })
}

/// Looks up the list field `name` of the object type `shape`. Returns the type of the list items, and how the list is
/// merged. Fails if the field does not exist, is not a list, or is a list of lists.
fn list_item_type_and_strategy(
    shape: Shape,
    name: &str,
) -> Result<(Shape, ListMergeStrategy), StrategicPatchError> {
    let field = find_field(shape, name)?;
    let Shape::List(of, _) = field.shape else {
        return Err(StrategicPatchError::Other("expected slice or array type, but got: struct".to_owned()));
    };
    if matches!(of, Shape::List(..)) {
        return Err(StrategicPatchError::Other("unexpected slice of slice".to_owned()));
    }
    let strategy = match field.patch {
        PatchStrategy::Merge(key) => ListMergeStrategy { merges: true, key },
        PatchStrategy::MergeRetainKeys(key) => ListMergeStrategy { merges: true, key: Some(key) },
        PatchStrategy::Plain | PatchStrategy::Replace => ListMergeStrategy { merges: false, key: None },
    };
    Ok((*of, strategy))
}

/// Returns upstream's error message if the merged value or a value in it does not fit its type, or `None` if all values
/// fit. `shape` is the type of the merged value. Checks only objects, maps, lists, strings, booleans and integers.
///
/// After a strategic merge patch upstream converts values instead of decoding JSON, so these messages differ from those
/// of the decoder.
pub(super) fn conversion_error(shape: Shape, value: &Value) -> Option<String> {
    let kind = match go_format::go_type_of(value) {
        "map[string]interface {}" => "map",
        "[]interface {}" => "slice",
        plain => plain,
    };
    let expected = go_kind(shape);
    match (shape, value) {
        (_, Value::Null) => None,
        (Shape::Object(of), Value::Object(entries)) => {
            entries.iter().find_map(|(name, it)| conversion_error(of.field(name)?.shape, it))
        }
        (Shape::Object(_), _) => Some(format!("cannot restore struct from: {kind}")),
        (Shape::Map(of, _), Value::Object(entries)) => {
            entries.values().find_map(|it| conversion_error(*of, it))
        }
        (Shape::Map(..), _) => Some(format!("cannot restore map from {kind}")),
        (Shape::List(of, _), Value::Array(items)) => items.iter().find_map(|it| conversion_error(*of, it)),
        (Shape::List(..), _) => Some(format!("cannot restore slice from {kind}")),
        (Shape::String, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => None,
        (Shape::String, Value::Number(it)) if !it.is_f64() => {
            Some(format!("cannot convert int64 to {expected}"))
        }
        (Shape::Int32 | Shape::Int64, Value::Number(it)) if it.is_f64() => {
            let is_whole = it.as_f64().is_some_and(|it| it.fract() == 0.0);
            (!is_whole).then(|| format!("cannot convert float64 to {expected}"))
        }
        (Shape::Int32 | Shape::Int64, Value::Number(_)) => None,
        (Shape::String | Shape::Bool | Shape::Int32 | Shape::Int64, _) => {
            Some(format!("unrecognized type: {expected}"))
        }
        _ => None,
    }
}

/// Returns the name of the Go `reflect.Kind` of the type `shape`.
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

/// Returns the name, without the package, of the Go struct that corresponds to `shape`. `shape` must be a type that is
/// a struct in Go.
fn go_type_name(shape: Shape) -> &'static str {
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

/// Removes all objects with a `$patch` directive from a value that the patch adds. Such a directive has no effect
/// there, because there is no old value to change. Returns `None` if the value itself is such an object.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(entries) if entries.contains_key(PATCH_DIRECTIVE) => None,
        Value::Object(entries) => {
            let kept = entries.into_iter().filter_map(|(name, it)| Some((name, without_directives(it)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(items.into_iter().filter_map(without_directives).collect()),
        plain => Some(plain),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Merges the slice `live` in place, as upstream does. See [`live_order_after_merge`].
    fn merge_slice(mut live: Vec<Value>, patch: &[Value]) -> Vec<Value> {
        let mut len = live.len();
        for name in patch.iter().filter(|it| it[PATCH_DIRECTIVE] == "delete").map(|it| &it["name"]) {
            while let Some(at) = live[..len].iter().position(|it| it["name"] == *name) {
                let last = live[len - 1].clone();
                live[at..len].rotate_left(1);
                len -= 1;
                live[len] = last;
            }
        }
        for item in patch.iter().filter(|it| it[PATCH_DIRECTIVE].is_null()) {
            if len < live.len() && !live[..len].iter().any(|it| it["name"] == item["name"]) {
                live[len] = item.clone();
                len += 1;
            }
        }
        live
    }

    /// Sorts the items with upstream's comparison and an insertion sort. See [`sort_by_live_order`].
    fn insertion_sort(items: &mut [(Option<usize>, Value)]) {
        let goes_before = |this: Option<usize>, before: Option<usize>| match (this, before) {
            (Some(this), Some(before)) => this < before,
            _ => true,
        };
        for end in 1..items.len() {
            let mut at = end;
            while 0 < at && goes_before(items[at].0, items[at - 1].0) {
                items.swap(at, at - 1);
                at -= 1;
            }
        }
    }

    proptest! {
        #[test]
        fn the_order_of_a_merged_list_is_upstreams(
            live in proptest::collection::vec(0..12_u8, 0..20),
            patch in proptest::collection::vec((0..16_u8, any::<bool>()), 0..20),
        ) {
            let live: Vec<Value> = live.iter().enumerate().map(|(at, it)| json!({"name": it, "at": at})).collect();
            let patch: Vec<Value> = patch
                .iter()
                .enumerate()
                .map(|(at, (name, is_deletion))| match is_deletion {
                    true => json!({"name": name, PATCH_DIRECTIVE: "delete"}),
                    false => json!({"name": name, "patch": at}),
                })
                .collect();
            let live_refs: Vec<&Value> = live.iter().collect();
            let found = live_order_after_merge(&live_refs, &patch, "name");
            let expected = merge_slice(live.clone(), &patch);
            prop_assert_eq!(found, expected.iter().collect::<Vec<_>>());
        }

        #[test]
        fn items_are_sorted_as_by_upstreams_insertion_sort(
            indices in proptest::collection::vec(proptest::option::of(0..8_usize), 0..20),
        ) {
            let items = indices.into_iter().enumerate().map(|(at, index)| (index, json!(at)));
            let (mut expected, mut found): (Vec<_>, Vec<_>) = (items.clone().collect(), items.collect());
            insertion_sort(&mut expected);
            sort_by_live_order(&mut found);
            prop_assert_eq!(found, expected);
        }
    }
}
