//! Operations on values whose type is known: computes their field sets, compares and merges them. Upstream:
//! `typed.TypedValue`.
//!
//! An absent value is not null. For an object, map or list whose fields, entries or items are owned separately, null
//! counts as empty.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::path_element::{ElementValue, PathElement, compare_values};
use crate::go_format;
use crate::types::{Field, ListKeys, MapType, Presence, Shape, Type};

/// Whether field managers own a value of some type as a whole, or its fields, entries or items separately.
#[derive(Debug, Clone, Copy)]
pub(super) enum Granularity {
    /// A scalar such as a string, or JSON without a known structure. It is owned as one value.
    Scalar,
    /// An object, map or list that is owned as one value.
    Atomic,
    /// An object whose fields are owned separately.
    Fields(&'static Type),
    /// A map with values of this type, whose entries are owned separately.
    Entries(Shape),
    /// A list with items of this type, which are owned separately. The keys are never [`ListKeys::Atomic`].
    Items(Shape, ListKeys),
}

impl Granularity {
    /// Returns the granularity of values of the type `shape`.
    pub(super) fn from_shape(shape: Shape) -> Self {
        match shape {
            Shape::Object(it) if it.atomic => Self::Atomic,
            Shape::Object(it) => Self::Fields(it),
            Shape::Map(_, MapType::Atomic) | Shape::List(_, ListKeys::Atomic) => Self::Atomic,
            Shape::Map(of, MapType::Granular) => Self::Entries(*of),
            Shape::List(of, keys) => Self::Items(*of, keys),
            _ => Self::Scalar,
        }
    }

    /// Whether the value is an object, map or list that is owned as a whole.
    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Self::Atomic)
    }

    /// Whether the value is an object whose type declares a field of this name. Returns `false` for an atomic object,
    /// even if its type declares the field.
    pub(super) fn has_field(self, name: &str) -> bool {
        matches!(self, Self::Fields(it) if it.field(name).is_some())
    }

    /// Returns the type of the field, entry or item to which this path element leads. Returns `None` if the type of the
    /// value declares no such field, and for a scalar or atomic value.
    pub(super) fn child_shape(self, element: &PathElement<'_>) -> Option<Shape> {
        match (self, element) {
            (Self::Fields(it), PathElement::Field(name)) => it.field(name).map(|it| it.shape),
            (Self::Entries(of), PathElement::Field(_)) | (Self::Items(of, _), _) => Some(of),
            _ => None,
        }
    }
}

/// Error for a value that does not conform to its type. It contains the path of the value and the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SchemaError(pub(super) String);

/// Returns the field set of a value: the paths of its leaf fields, map entries and list items. If the fields, entries
/// or items of a declared field are owned separately, the set contains them and not the declared field itself, unless
/// the value of the declared field is null or an empty object. `shape` is the type of the value.
pub(super) fn field_set(shape: Shape, value: &Value) -> Result<FieldSet<'_>, SchemaError> {
    let mut all = FieldSet::default();
    match (Granularity::from_shape(shape), value) {
        (grain @ (Granularity::Fields(_) | Granularity::Entries(_)), Value::Object(entries)) => {
            for (name, value) in entries {
                let element = PathElement::Field(name.as_str().into());
                let shape = grain.child_shape(&element).unwrap_or(Shape::Any);
                let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                let is_member = is_leaf(shape) || is_empty || !grain.has_field(name);
                let below = field_set(shape, value)?;
                all.push(element, is_member, below);
            }
        }
        (Granularity::Items(of, keys), Value::Array(items)) => {
            for (element, same) in group_by_element(of, keys, items)? {
                // Duplicate items are owned together.
                let below = if let [one] = same[..] { field_set(of, one)? } else { FieldSet::default() };
                all.push(element, true, below);
            }
        }
        _ => {}
    }
    Ok(all)
}

/// Whether a value of the type `shape` is a leaf: a field manager owns it as a whole.
fn is_leaf(shape: Shape) -> bool {
    matches!(Granularity::from_shape(shape), Granularity::Scalar | Granularity::Atomic)
}

/// The fields that differ between an old and a new value. A list item is in both `removed` and `added` if one item
/// replaces several duplicates, or several duplicates replace one item. Otherwise no field is in more than one set.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison<'a> {
    pub(super) removed: FieldSet<'a>,
    pub(super) modified: FieldSet<'a>,
    pub(super) added: FieldSet<'a>,
}

/// How a value itself has changed, apart from changes of its fields, entries or items. An unchanged value has no flag
/// set.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct ValueChange {
    removed: bool,
    modified: bool,
    added: bool,
}

/// [`ValueChange`] of a value that has not changed.
const VALUE_UNCHANGED: ValueChange = ValueChange { removed: false, modified: false, added: false };
/// [`ValueChange`] of a value that was removed.
const VALUE_REMOVED: ValueChange = ValueChange { removed: true, ..VALUE_UNCHANGED };
/// [`ValueChange`] of a value that was replaced by another value.
const VALUE_MODIFIED: ValueChange = ValueChange { modified: true, ..VALUE_UNCHANGED };
/// [`ValueChange`] of a value that was added.
const VALUE_ADDED: ValueChange = ValueChange { added: true, ..VALUE_UNCHANGED };

impl<'a> Comparison<'a> {
    /// Compares two objects of the type `shape`.
    pub(super) fn between(shape: Shape, old: &'a Value, new: &'a Value) -> Result<Self, SchemaError> {
        compare(shape, Some(old), Some(new)).map(|(below, _)| below)
    }

    /// Removes `fields` and all fields below them from the comparison.
    pub(super) fn without_fields(self, fields: &FieldSet<'a>) -> Self {
        if fields.is_empty() {
            return self;
        }
        Self {
            removed: self.removed.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            added: self.added.recursive_difference(fields),
        }
    }

    /// Adds the comparison of the field, entry or item at `element`, which must be greater than all earlier elements.
    fn push_element(&mut self, element: PathElement<'a>, (below, value_change): (Self, ValueChange)) {
        let put = |set: &mut FieldSet<'a>, is_member: bool, below: FieldSet<'a>| {
            if is_member || !below.is_empty() {
                set.push(element.clone(), is_member, below);
            }
        };
        put(&mut self.removed, value_change.removed, below.removed);
        put(&mut self.modified, value_change.modified, below.modified);
        put(&mut self.added, value_change.added, below.added);
    }
}

/// Compares two values of the type `shape`. Returns the differences of their fields, entries or items, and how the
/// value itself has changed.
fn compare<'a>(
    shape: Shape,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
) -> Result<(Comparison<'a>, ValueChange), SchemaError> {
    let mut all = Comparison::default();
    match Granularity::from_shape(shape) {
        grain @ (Granularity::Fields(_) | Granularity::Entries(_)) => {
            let (before, after) = (object_entries(old), object_entries(new));
            if before.is_empty() && after.is_empty() {
                return Ok((all, leaf_change(old, new)));
            }
            for (name, old, new) in zip_entries(before, after) {
                let element = PathElement::Field(name.into());
                let shape = grain.child_shape(&element).unwrap_or(Shape::Any);
                all.push_element(element, compare(shape, old, new)?);
            }
        }
        Granularity::Items(of, keys) => {
            let (before, after) = (array_items(old), array_items(new));
            if before.is_empty() && after.is_empty() {
                return Ok((all, leaf_change(old, new)));
            }
            let mut before = group_by_element(of, keys, before)?;
            let mut pairs: BTreeMap<_, _> = group_by_element(of, keys, after)?
                .into_iter()
                .map(|(element, after)| {
                    let before = before.remove(&element).unwrap_or_default();
                    (element, (before, after))
                })
                .collect();
            pairs.extend(before.into_iter().map(|(element, before)| (element, (before, Vec::new()))));
            for (element, (before, after)) in pairs {
                all.push_element(element, compare_items(of, &before, &after)?);
            }
        }
        Granularity::Scalar | Granularity::Atomic => return Ok((all, leaf_change(old, new))),
    }
    let value_change = match (old, new) {
        (None, _) => VALUE_ADDED,
        (_, None) => VALUE_REMOVED,
        _ => VALUE_UNCHANGED,
    };
    Ok((all, value_change))
}

/// Returns the change of a value that is either owned as a whole or empty. `None` stands for an absent value.
fn leaf_change(old: Option<&Value>, new: Option<&Value>) -> ValueChange {
    match (old, new) {
        (None, _) => VALUE_ADDED,
        (_, None) => VALUE_REMOVED,
        (Some(old), Some(new)) if is_equal(old, new) => VALUE_UNCHANGED,
        _ => VALUE_MODIFIED,
    }
}

/// Compares the items that have the same key in an old and a new list. Usually each list has at most one such item.
///
/// Duplicate items are owned together. If one item replaces several, or several items replace one, all old items count
/// as removed and all new items as added.
fn compare_items<'a>(
    shape: Shape,
    old: &[&'a Value],
    new: &[&'a Value],
) -> Result<(Comparison<'a>, ValueChange), SchemaError> {
    match (old, new) {
        ([] | [_], [] | [_]) => compare(shape, old.first().copied(), new.first().copied()),
        ([_, _, ..], [_, _, ..]) => {
            let is_kept = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_equal(old, new));
            Ok((Comparison::default(), if is_kept { VALUE_UNCHANGED } else { VALUE_MODIFIED }))
        }
        ([_, _, ..], []) => Ok((Comparison::default(), VALUE_REMOVED)),
        ([], [_, _, ..]) => Ok((Comparison::default(), VALUE_ADDED)),
        ([_, _, ..], [new]) => {
            let (below, value_change) = compare(shape, None, Some(new))?;
            Ok((below, ValueChange { removed: true, ..value_change }))
        }
        ([old], [_, _, ..]) => {
            let (below, value_change) = compare(shape, Some(old), None)?;
            Ok((below, ValueChange { added: true, ..value_change }))
        }
    }
}

/// Whether two values are equal. As in upstream, `1` and `1.0` are equal.
pub(super) fn is_equal(left: &Value, right: &Value) -> bool {
    left == right || compare_values(left, right).is_eq()
}

/// Merges the value `new` into the value `old`. Returns the merged value, or `None` if both are absent. The merged
/// value keeps all fields, entries and items of `old`, except duplicate list items that are also in `new`. If both
/// contain a value that is owned as a whole, the merged value contains the one from `new`.
pub(super) fn merge_values(
    shape: Shape,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Result<Option<Value>, SchemaError> {
    let leaf = || new.or(old).cloned();
    match Granularity::from_shape(shape) {
        grain @ (Granularity::Fields(_) | Granularity::Entries(_)) => {
            let (before, after) = (object_entries(old), object_entries(new));
            if before.is_empty() && after.is_empty() {
                return Ok(leaf());
            }
            let mut out = Map::new();
            for (name, old, new) in zip_entries(before, after) {
                let shape = grain.child_shape(&PathElement::Field(name.into())).unwrap_or(Shape::Any);
                if let Some(value) = merge_values(shape, old, new)? {
                    out.insert(name.to_owned(), value);
                }
            }
            Ok((!out.is_empty()).then_some(Value::Object(out)))
        }
        Granularity::Items(of, keys) => {
            let (before, after) = (array_items(old), array_items(new));
            if before.is_empty() && after.is_empty() {
                return Ok(leaf());
            }
            let out = merge_items(of, keys, before, after)?;
            Ok((!out.is_empty()).then_some(Value::Array(out)))
        }
        Granularity::Scalar | Granularity::Atomic => Ok(leaf()),
    }
}

/// Merges two lists with items of the type `of`. Items that are in both lists have the order of the new list. Items
/// that are only in the old list stay as close to their neighbours as possible.
fn merge_items(of: Shape, keys: ListKeys, old: &[Value], new: &[Value]) -> Result<Vec<Value>, SchemaError> {
    let elements = |items: &[Value]| -> Result<Vec<PathElement<'static>>, SchemaError> {
        items.iter().map(|it| list_item_path_element(of, keys, it).map(PathElement::into_owned)).collect()
    };
    let (before, after) = (elements(old)?, elements(new)?);
    let in_new: BTreeMap<_, _> = after.iter().zip(new).collect();
    // A duplicate item cannot be merged: null replaces it.
    let mut in_old: BTreeMap<&PathElement<'_>, &Value> = BTreeMap::new();
    for (element, item) in before.iter().zip(old) {
        in_old.entry(element).and_modify(|it| *it = &Value::Null).or_insert(item);
    }
    let mut shared = after.iter().filter(|it| in_old.contains_key(it));
    let mut next_shared = shared.next();
    let mut merged: BTreeSet<&PathElement<'_>> = BTreeSet::new();
    let mut out = Vec::with_capacity(old.len().max(new.len()));
    let (mut o, mut n) = (0, 0);
    while o < before.len() || n < after.len() {
        if let (Some(left), Some(right)) = (before.get(o), after.get(n)) {
            if left == right {
                merged.insert(left);
                out.extend(merge_values(of, in_old.get(left).copied(), in_new.get(left).copied())?);
                (o, n) = (o + 1, n + 1);
                next_shared = shared.next();
                continue;
            }
            // The new list has this item at another position.
            if in_new.contains_key(left) && next_shared.is_some_and(|it| it != left) {
                o += 1;
                continue;
            }
        }
        if let Some(left) = before.get(o) {
            if !in_new.contains_key(left) {
                out.extend(merge_values(of, Some(&old[o]), None)?);
                o += 1;
                continue;
            }
            if merged.contains(left) {
                o += 1;
            }
        }
        if let Some(right) = after.get(n) {
            merged.insert(right);
            out.extend(merge_values(of, in_old.get(right).copied(), in_new.get(right).copied())?);
            n += 1;
            if next_shared == Some(right) {
                next_shared = shared.next();
            }
        }
    }
    Ok(out)
}

/// Returns the value without `fields`. An object, map or list that becomes empty is replaced by null. So is an atomic
/// value if `fields` contains a field below it. List items without a valid key are removed.
pub(super) fn remove_fields(shape: Shape, value: Value, fields: &FieldSet<'_>) -> Value {
    match (Granularity::from_shape(shape), value) {
        (Granularity::Scalar, value) => value,
        (grain @ (Granularity::Fields(_) | Granularity::Entries(_)), Value::Object(entries)) => {
            let mut out = Map::new();
            for (name, value) in entries {
                let element = PathElement::Field(Cow::Borrowed(name.as_str()));
                if fields.contains(&element) {
                    continue;
                }
                let value = match fields.children(&element) {
                    Some(fields) => {
                        remove_fields(grain.child_shape(&element).unwrap_or(Shape::Any), value, fields)
                    }
                    None => value,
                };
                drop(element);
                out.insert(name, value);
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        (Granularity::Items(of, keys), Value::Array(items)) => {
            let mut out = Vec::with_capacity(items.len());
            for item in items {
                let Ok(element) = list_item_path_element(of, keys, &item).map(PathElement::into_owned) else {
                    continue;
                };
                if fields.contains(&element) {
                    continue;
                }
                out.push(match fields.children(&element) {
                    Some(fields) => remove_fields(of, item, fields),
                    None => item,
                });
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        _ => Value::Null,
    }
}

/// Checks that a value conforms to the type `shape`. Duplicate list items are errors unless `may_repeat` is set.
pub(super) fn check_schema(shape: Shape, value: &Value, may_repeat: bool) -> Result<(), SchemaError> {
    let mut check = SchemaCheck { allows_duplicates: may_repeat, path: String::new(), errors: Vec::new() };
    check.check_value(shape, value);
    match &check.errors[..] {
        [] => Ok(()),
        [one] => Err(SchemaError(one.clone())),
        all => Err(SchemaError(format!("errors:\n  {}", all.join("\n  ")))),
    }
}

/// Checks recursively that a value conforms to its type, and collects the errors.
struct SchemaCheck {
    /// Whether lists may contain duplicate items.
    allows_duplicates: bool,
    /// Path of the value that is being checked.
    path: String,
    errors: Vec<String>,
}

impl SchemaCheck {
    /// Checks that `value`, which is at `path`, conforms to the type `shape`.
    fn check_value(&mut self, shape: Shape, value: &Value) {
        match (shape, value) {
            (_, Value::Null) | (Shape::Any | Shape::FieldsV1, _) => {}
            (Shape::Object(of), Value::Object(entries)) => {
                for (name, value) in entries {
                    let Some(field) = of.field(name) else {
                        let here = self.path.len();
                        self.path.push('.');
                        self.path.push_str(name);
                        self.report_error("field not declared in schema");
                        self.path.truncate(here);
                        // Upstream also stops at the first unknown field.
                        return;
                    };
                    self.check_child(&format!(".{name}"), field.shape, value);
                }
            }
            (Shape::Map(of, _), Value::Object(entries)) => {
                for (name, value) in entries {
                    self.check_child(&format!(".{name}"), *of, value);
                }
            }
            (Shape::List(of, keys), Value::Array(items)) => self.check_items(*of, keys, items),
            (Shape::Object(_) | Shape::Map(..), _) => {
                self.report_error(&format!("expected map, got {}", go_wrapped_value(value)))
            }
            (Shape::List(..), _) => {
                self.report_error(&format!("expected list, got {}", go_wrapped_value(value)))
            }
            (Shape::Bool, _) if !value.is_boolean() => {
                self.report_error(&format!("expected boolean, got {}", go_wrapped_value(value)));
            }
            (Shape::Int32 | Shape::Int64, _) if !value.is_number() => {
                self.report_error(&format!(
                    "expected numeric (int or float), got {}",
                    go_format::go_type_of(value)
                ));
            }
            (Shape::String | Shape::Bytes | Shape::Time | Shape::MicroTime, _) if !value.is_string() => {
                self.report_error(&format!(
                    "expected string, got &value.valueUnstructured{{Value:{}}}",
                    go_format::format_go_syntax(value)
                ));
            }
            (Shape::Quantity | Shape::IntOrString, Value::Array(_) | Value::Object(_)) => {
                self.report_error(&format!("expected any scalar, got {}", go_wrapped_value(value)));
            }
            _ => {}
        }
    }

    /// Checks that the items of a list conform to the type `of`. Duplicate items are errors unless they are allowed.
    fn check_items(&mut self, of: Shape, keys: ListKeys, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            let element = match keys {
                ListKeys::Atomic => PathElement::Index(i64::try_from(at).unwrap_or(i64::MAX)),
                keys => match list_item_path_element(of, keys, item) {
                    Ok(element) => element,
                    Err(SchemaError(why)) => return self.report_error(&format!("element {at}: {why}")),
                },
            };
            let step = element.to_string();
            if !seen.insert(element) && !self.allows_duplicates {
                self.report_error(&format!("duplicate entries for key {step}"));
            }
            self.check_child(&step, of, item);
        }
    }

    /// Checks `value`, a field, entry or item of the value at `path`. `step` is its path element as text.
    fn check_child(&mut self, step: &str, shape: Shape, value: &Value) {
        let here = self.path.len();
        self.path.push_str(step);
        self.check_value(shape, value);
        self.path.truncate(here);
    }

    /// Adds an error for the value at `path`.
    fn report_error(&mut self, why: &str) {
        let colon = if self.path.is_empty() { "" } else { ": " };
        self.errors.push(format!("{}{colon}{why}", self.path));
    }
}

/// Formats a value as Go prints it inside upstream's struct `valueUnstructured`: `&{VALUE}`.
fn go_wrapped_value(value: &Value) -> String {
    format!("&{{{}}}", go_format::format_value(value))
}

/// Groups the items of a list by their path element. Duplicate items are in the same group.
fn group_by_element<'a>(
    of: Shape,
    keys: ListKeys,
    items: &'a [Value],
) -> Result<BTreeMap<PathElement<'a>, Vec<&'a Value>>, SchemaError> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        let element = list_item_path_element(of, keys, item)
            .map_err(|SchemaError(why)| SchemaError(format!("element {at}: {why}")))?;
        all.entry(element).or_default().push(item);
    }
    Ok(all)
}

/// Returns the path element that identifies an item of a list. If the list has key fields, the element contains the
/// values of these fields in the item. An absent field has its default value, or is left out if it has none. In a set,
/// the element contains the item itself. `of` is the type of the items.
///
/// Fails if an item of a list with key fields is not an object or if all its key fields are left out, and if an item of
/// a set is not a scalar.
fn list_item_path_element(of: Shape, keys: ListKeys, item: &Value) -> Result<PathElement<'_>, SchemaError> {
    let schema_error = |why: &str| Err(SchemaError(why.to_owned()));
    let ListKeys::Fields(keys) = keys else {
        return match item {
            Value::Object(_) => {
                schema_error("associative list without keys has an element that's a map type")
            }
            Value::Array(_) => schema_error("not supported: associative list with lists as elements"),
            Value::Null => {
                schema_error("associative list without keys has an element that's an explicit null")
            }
            plain => Ok(PathElement::Value(ElementValue(Cow::Borrowed(plain)))),
        };
    };
    let entries = match item {
        Value::Object(entries) => entries,
        Value::Null => return schema_error("associative list with keys may not have a null element"),
        _ => return schema_error("associative list with keys may not have non-map elements"),
    };
    let default = |name: &str| {
        let Shape::Object(of) = of else { return None };
        let field = of.field(name)?;
        // An absent key field has Go's zero value if Go always serializes it.
        let is_always = field.presence == Presence::Always;
        field.default_value().or_else(|| is_always.then(|| field.shape.go_zero_value())).map(Cow::Owned)
    };
    let key = |name: &'static str| {
        let value = entries.get(name).map(Cow::Borrowed).or_else(|| default(name))?;
        Some((Cow::Borrowed(name), ElementValue(value)))
    };
    let mut found: Vec<_> = keys.iter().copied().filter_map(key).collect();
    if found.is_empty() {
        let names: Vec<_> = keys.iter().map(|it| format!("{it:?}")).collect();
        return Err(SchemaError(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        )));
    }
    found.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(PathElement::Key(found))
}

impl Field {
    /// Returns the default value of the field, parsed from JSON, or `None` if the field has no default.
    fn default_value(&self) -> Option<Value> {
        serde_json::from_str(self.default?).ok()
    }
}

/// Returns the entries of an object or map, or no entries if the value is absent or not an object.
fn object_entries(value: Option<&Value>) -> &Map<String, Value> {
    /// The map that stands for a value without entries.
    static EMPTY_MAP: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    value.and_then(Value::as_object).unwrap_or(&EMPTY_MAP)
}

/// Returns the items of a list, or no items if the value is absent or not a list.
fn array_items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Iterates over all names in two maps, in order. Returns each name with its value in `left` and its value in `right`,
/// or `None` for a map that does not contain the name.
fn zip_entries<'a>(
    left: &'a Map<String, Value>,
    right: &'a Map<String, Value>,
) -> impl Iterator<Item = (&'a str, Option<&'a Value>, Option<&'a Value>)> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(left), Some(right)) => left.0.cmp(right.0),
        };
        let left = if order.is_le() { left.next() } else { None };
        let right = if order.is_ge() { right.next() } else { None };
        let (name, _) = left.or(right)?;
        Some((name.as_str(), left.map(|it| it.1), right.map(|it| it.1)))
    })
}
