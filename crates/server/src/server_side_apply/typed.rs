//! Typed values: their field sets, comparison and merge. Upstream: `typed.TypedValue`.
//!
//! An absent value is not null: null is a value, which is merged and compared like any other.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::path::{Element, Item, order};
use super::set::Set;
use crate::go_format;
use crate::types::{Field, Keys, MapKind, Presence, Shape, Type};

/// Granularity of ownership of a shape.
#[derive(Debug, Clone, Copy)]
pub(super) enum Grain {
    Scalar,
    /// An object, map or list that is owned as one value.
    Whole,
    Fields(&'static Type),
    Entries(Shape),
    /// A list whose items are owned separately; its `Keys` are not atomic.
    Items(Shape, Keys),
}

impl Grain {
    pub(super) fn of(shape: Shape) -> Self {
        match shape {
            Shape::Object(it) if it.atomic => Self::Whole,
            Shape::Object(it) => Self::Fields(it),
            Shape::Map(_, MapKind::Atomic) | Shape::List(_, Keys::Atomic) => Self::Whole,
            Shape::Map(of, MapKind::Granular) => Self::Entries(*of),
            Shape::List(of, keys) => Self::Items(*of, keys),
            _ => Self::Scalar,
        }
    }

    pub(super) fn is_whole(self) -> bool {
        matches!(self, Self::Whole)
    }

    /// Whether the type has a field of this name.
    pub(super) fn names(self, name: &str) -> bool {
        matches!(self, Self::Fields(it) if it.field(name).is_some())
    }

    /// The shape of the value at this element.
    pub(super) fn below(self, element: &Element<'_>) -> Option<Shape> {
        match (self, element) {
            (Self::Fields(it), Element::Field(name)) => it.field(name).map(|it| it.shape),
            (Self::Entries(of), Element::Field(_)) | (Self::Items(of, _), _) => Some(of),
            _ => None,
        }
    }
}

/// A value does not fit its type: path and reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misfit(pub(super) String);

/// The value that Go serializes for an unset field.
pub(super) fn zero(shape: Shape) -> Value {
    match shape {
        Shape::Bool => Value::Bool(false),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString => 0.into(),
        Shape::String => "".into(),
        Shape::Quantity => "0".into(),
        Shape::Object(it) => {
            let value = |field: &Field| match field.presence {
                Presence::NotEmpty | Presence::Set => None,
                Presence::Always => Some((field.name.to_owned(), zero(field.shape))),
                Presence::OrNull => Some((field.name.to_owned(), Value::Null)),
            };
            Value::Object(it.fields.iter().filter_map(value).collect())
        }
        _ => Value::Null,
    }
}

/// Returns the set of all fields of a value, with list items and map entries.
pub(super) fn fields_of(shape: Shape, value: &Value) -> Result<Set<'_>, Misfit> {
    let mut all = Set::default();
    match (Grain::of(shape), value) {
        (grain @ (Grain::Fields(_) | Grain::Entries(_)), Value::Object(entries)) => {
            for (name, value) in entries {
                let element = Element::Field(name.as_str().into());
                let shape = grain.below(&element).unwrap_or(Shape::Any);
                let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                let is_member = is_leaf(shape) || is_empty || !grain.names(name);
                let below = fields_of(shape, value)?;
                all.push(element, is_member, below);
            }
        }
        (Grain::Items(of, keys), Value::Array(items)) => {
            for (element, same) in by_element(of, keys, items)? {
                // Duplicate items are owned together.
                let below = if let [one] = same[..] { fields_of(of, one)? } else { Set::default() };
                all.push(element, true, below);
            }
        }
        _ => {}
    }
    Ok(all)
}

fn is_leaf(shape: Shape) -> bool {
    matches!(Grain::of(shape), Grain::Scalar | Grain::Whole)
}

/// The fields that differ between two values. No field is in more than one of the three sets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison<'a> {
    pub(super) removed: Set<'a>,
    pub(super) modified: Set<'a>,
    pub(super) added: Set<'a>,
}

/// How the value itself differs, apart from everything below it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Fate {
    removed: bool,
    modified: bool,
    added: bool,
}

const KEPT: Fate = Fate { removed: false, modified: false, added: false };
const REMOVED: Fate = Fate { removed: true, ..KEPT };
const MODIFIED: Fate = Fate { modified: true, ..KEPT };
const ADDED: Fate = Fate { added: true, ..KEPT };

impl<'a> Comparison<'a> {
    pub(super) fn of(shape: Shape, old: &'a Value, new: &'a Value) -> Result<Self, Misfit> {
        compare(shape, Some(old), Some(new)).map(|(below, _)| below)
    }

    pub(super) fn without(self, fields: &Set<'a>) -> Self {
        if fields.is_empty() {
            return self;
        }
        Self {
            removed: self.removed.recursive_difference(fields),
            modified: self.modified.recursive_difference(fields),
            added: self.added.recursive_difference(fields),
        }
    }

    fn push(&mut self, element: Element<'a>, (below, fate): (Self, Fate)) {
        let put = |set: &mut Set<'a>, is_member: bool, below: Set<'a>| {
            if is_member || !below.is_empty() {
                set.push(element.clone(), is_member, below);
            }
        };
        put(&mut self.removed, fate.removed, below.removed);
        put(&mut self.modified, fate.modified, below.modified);
        put(&mut self.added, fate.added, below.added);
    }
}

fn compare<'a>(
    shape: Shape,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
) -> Result<(Comparison<'a>, Fate), Misfit> {
    let mut all = Comparison::default();
    match Grain::of(shape) {
        grain @ (Grain::Fields(_) | Grain::Entries(_)) => {
            let (before, after) = (entries(old), entries(new));
            if before.is_empty() && after.is_empty() {
                return Ok((all, leaf_fate(old, new)));
            }
            for (name, old, new) in zip(before, after) {
                let element = Element::Field(name.into());
                let shape = grain.below(&element).unwrap_or(Shape::Any);
                all.push(element, compare(shape, old, new)?);
            }
        }
        Grain::Items(of, keys) => {
            let (before, after) = (items(old), items(new));
            if before.is_empty() && after.is_empty() {
                return Ok((all, leaf_fate(old, new)));
            }
            let mut before = by_element(of, keys, before)?;
            let mut pairs: BTreeMap<_, _> = by_element(of, keys, after)?
                .into_iter()
                .map(|(element, after)| {
                    let before = before.remove(&element).unwrap_or_default();
                    (element, (before, after))
                })
                .collect();
            pairs.extend(before.into_iter().map(|(element, before)| (element, (before, Vec::new()))));
            for (element, (before, after)) in pairs {
                all.push(element, compare_same(of, &before, &after)?);
            }
        }
        Grain::Scalar | Grain::Whole => return Ok((all, leaf_fate(old, new))),
    }
    let fate = match (old, new) {
        (None, _) => ADDED,
        (_, None) => REMOVED,
        _ => KEPT,
    };
    Ok((all, fate))
}

fn leaf_fate(old: Option<&Value>, new: Option<&Value>) -> Fate {
    match (old, new) {
        (None, _) => ADDED,
        (_, None) => REMOVED,
        (Some(old), Some(new)) if is_same(old, new) => KEPT,
        _ => MODIFIED,
    }
}

/// Compares the items of two lists that have the same key: usually one in each. Duplicates are owned together,
/// so where one item replaces several or several replace one, all old ones are removed and all new ones are
/// added.
fn compare_same<'a>(
    shape: Shape,
    old: &[&'a Value],
    new: &[&'a Value],
) -> Result<(Comparison<'a>, Fate), Misfit> {
    match (old, new) {
        ([] | [_], [] | [_]) => compare(shape, old.first().copied(), new.first().copied()),
        ([_, _, ..], [_, _, ..]) => {
            let is_kept = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_same(old, new));
            Ok((Comparison::default(), if is_kept { KEPT } else { MODIFIED }))
        }
        ([_, _, ..], []) => Ok((Comparison::default(), REMOVED)),
        ([], [_, _, ..]) => Ok((Comparison::default(), ADDED)),
        ([_, _, ..], [new]) => {
            let (below, fate) = compare(shape, None, Some(new))?;
            Ok((below, Fate { removed: true, ..fate }))
        }
        ([old], [_, _, ..]) => {
            let (below, fate) = compare(shape, Some(old), None)?;
            Ok((below, Fate { added: true, ..fate }))
        }
    }
}

pub(super) fn is_same(left: &Value, right: &Value) -> bool {
    left == right || order(left, right).is_eq()
}

/// Merges `new` into `old`: nothing of `old` is removed, and where both have a value the new one wins.
pub(super) fn merge(shape: Shape, old: Option<&Value>, new: Option<&Value>) -> Result<Option<Value>, Misfit> {
    let leaf = || new.or(old).cloned();
    match Grain::of(shape) {
        grain @ (Grain::Fields(_) | Grain::Entries(_)) => {
            let (before, after) = (entries(old), entries(new));
            if before.is_empty() && after.is_empty() {
                return Ok(leaf());
            }
            let mut out = Map::new();
            for (name, old, new) in zip(before, after) {
                let shape = grain.below(&Element::Field(name.into())).unwrap_or(Shape::Any);
                if let Some(value) = merge(shape, old, new)? {
                    out.insert(name.to_owned(), value);
                }
            }
            Ok((!out.is_empty()).then_some(Value::Object(out)))
        }
        Grain::Items(of, keys) => {
            let (before, after) = (items(old), items(new));
            if before.is_empty() && after.is_empty() {
                return Ok(leaf());
            }
            let out = merge_items(of, keys, before, after)?;
            Ok((!out.is_empty()).then_some(Value::Array(out)))
        }
        Grain::Scalar | Grain::Whole => Ok(leaf()),
    }
}

/// Merges two lists. Items in both lists have the order of the new list; items of the old list only stay as
/// near to their neighbours as possible.
fn merge_items(of: Shape, keys: Keys, old: &[Value], new: &[Value]) -> Result<Vec<Value>, Misfit> {
    let elements = |items: &[Value]| -> Result<Vec<Element<'static>>, Misfit> {
        items.iter().map(|it| element_of(of, keys, it).map(Element::into_owned)).collect()
    };
    let (before, after) = (elements(old)?, elements(new)?);
    let in_new: BTreeMap<_, _> = after.iter().zip(new).collect();
    // A duplicate item cannot be merged: null replaces it.
    let mut in_old: BTreeMap<&Element<'_>, &Value> = BTreeMap::new();
    for (element, item) in before.iter().zip(old) {
        in_old.entry(element).and_modify(|it| *it = &Value::Null).or_insert(item);
    }
    let mut shared = after.iter().filter(|it| in_old.contains_key(it));
    let mut next_shared = shared.next();
    let mut merged: BTreeSet<&Element<'_>> = BTreeSet::new();
    let mut out = Vec::with_capacity(old.len().max(new.len()));
    let (mut o, mut n) = (0, 0);
    while o < before.len() || n < after.len() {
        if let (Some(left), Some(right)) = (before.get(o), after.get(n)) {
            if left == right {
                merged.insert(left);
                out.extend(merge(of, in_old.get(left).copied(), in_new.get(left).copied())?);
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
                out.extend(merge(of, Some(&old[o]), None)?);
                o += 1;
                continue;
            }
            if merged.contains(left) {
                o += 1;
            }
        }
        if let Some(right) = after.get(n) {
            merged.insert(right);
            out.extend(merge(of, in_old.get(right).copied(), in_new.get(right).copied())?);
            n += 1;
            if next_shared == Some(right) {
                next_shared = shared.next();
            }
        }
    }
    Ok(out)
}

/// Removes these fields from a value. A map or a list without a remaining entry becomes null.
pub(super) fn without(shape: Shape, value: Value, fields: &Set<'_>) -> Value {
    match (Grain::of(shape), value) {
        (Grain::Scalar, value) => value,
        (grain @ (Grain::Fields(_) | Grain::Entries(_)), Value::Object(entries)) => {
            let mut out = Map::new();
            for (name, value) in entries {
                let element = Element::Field(Cow::Borrowed(name.as_str()));
                if fields.has(&element) {
                    continue;
                }
                let value = match fields.below(&element) {
                    Some(fields) => without(grain.below(&element).unwrap_or(Shape::Any), value, fields),
                    None => value,
                };
                drop(element);
                out.insert(name, value);
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        (Grain::Items(of, keys), Value::Array(items)) => {
            let mut out = Vec::with_capacity(items.len());
            for item in items {
                let Ok(element) = element_of(of, keys, &item).map(Element::into_owned) else { continue };
                if fields.has(&element) {
                    continue;
                }
                out.push(match fields.below(&element) {
                    Some(fields) => without(of, item, fields),
                    None => item,
                });
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        _ => Value::Null,
    }
}

/// Checks that a value has its shape.
pub(super) fn check(shape: Shape, value: &Value, may_repeat: bool) -> Result<(), Misfit> {
    let mut check = TypeCheck { may_repeat, path: String::new(), wrong: Vec::new() };
    check.at(shape, value);
    match &check.wrong[..] {
        [] => Ok(()),
        [one] => Err(Misfit(one.clone())),
        all => Err(Misfit(format!("errors:\n  {}", all.join("\n  ")))),
    }
}

/// Collects the schema errors of a value.
struct TypeCheck {
    may_repeat: bool,
    path: String,
    wrong: Vec<String>,
}

impl TypeCheck {
    fn at(&mut self, shape: Shape, value: &Value) {
        match (shape, value) {
            (_, Value::Null) | (Shape::Any | Shape::FieldsV1, _) => {}
            (Shape::Object(of), Value::Object(entries)) => {
                for (name, value) in entries {
                    let Some(field) = of.field(name) else {
                        let here = self.path.len();
                        self.path.push('.');
                        self.path.push_str(name);
                        self.say("field not declared in schema");
                        self.path.truncate(here);
                        // Upstream also stops at the first unknown field.
                        return;
                    };
                    self.below(&format!(".{name}"), field.shape, value);
                }
            }
            (Shape::Map(of, _), Value::Object(entries)) => {
                for (name, value) in entries {
                    self.below(&format!(".{name}"), *of, value);
                }
            }
            (Shape::List(of, keys), Value::Array(items)) => self.items(*of, keys, items),
            (Shape::Object(_) | Shape::Map(..), _) => self.say(&format!("expected map, got {}", held(value))),
            (Shape::List(..), _) => self.say(&format!("expected list, got {}", held(value))),
            (Shape::Bool, _) if !value.is_boolean() => {
                self.say(&format!("expected boolean, got {}", held(value)));
            }
            (Shape::Int32 | Shape::Int64, _) if !value.is_number() => {
                self.say(&format!("expected numeric (int or float), got {}", go_format::type_of(value)));
            }
            (Shape::String | Shape::Bytes | Shape::Time | Shape::MicroTime, _) if !value.is_string() => {
                self.say(&format!(
                    "expected string, got &value.valueUnstructured{{Value:{}}}",
                    go_format::syntax(value)
                ));
            }
            (Shape::Quantity | Shape::IntOrString, Value::Array(_) | Value::Object(_)) => {
                self.say(&format!("expected any scalar, got {}", held(value)));
            }
            _ => {}
        }
    }

    fn items(&mut self, of: Shape, keys: Keys, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            let element = match keys {
                Keys::Atomic => Element::Index(i64::try_from(at).unwrap_or(i64::MAX)),
                keys => match element_of(of, keys, item) {
                    Ok(element) => element,
                    Err(Misfit(why)) => return self.say(&format!("element {at}: {why}")),
                },
            };
            let step = element.to_string();
            if !seen.insert(element) && !self.may_repeat {
                self.say(&format!("duplicate entries for key {step}"));
            }
            self.below(&step, of, item);
        }
    }

    fn below(&mut self, step: &str, shape: Shape, value: &Value) {
        let here = self.path.len();
        self.path.push_str(step);
        self.at(shape, value);
        self.path.truncate(here);
    }

    fn say(&mut self, why: &str) {
        let colon = if self.path.is_empty() { "" } else { ": " };
        self.wrong.push(format!("{}{colon}{why}", self.path));
    }
}

/// Go's format of a value in its wrapper.
fn held(value: &Value) -> String {
    format!("&{{{}}}", go_format::text(value))
}

/// Groups the items of a list by their element, in the order of the elements. Duplicates are grouped together.
fn by_element<'a>(
    of: Shape,
    keys: Keys,
    items: &'a [Value],
) -> Result<BTreeMap<Element<'a>, Vec<&'a Value>>, Misfit> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        let element =
            element_of(of, keys, item).map_err(|Misfit(why)| Misfit(format!("element {at}: {why}")))?;
        all.entry(element).or_default().push(item);
    }
    Ok(all)
}

/// Returns the path element of a list item.
fn element_of(of: Shape, keys: Keys, item: &Value) -> Result<Element<'_>, Misfit> {
    let schema_error = |why: &str| Err(Misfit(why.to_owned()));
    let Keys::Fields(keys) = keys else {
        return match item {
            Value::Object(_) => {
                schema_error("associative list without keys has an element that's a map type")
            }
            Value::Array(_) => schema_error("not supported: associative list with lists as elements"),
            Value::Null => {
                schema_error("associative list without keys has an element that's an explicit null")
            }
            plain => Ok(Element::Value(Item(Cow::Borrowed(plain)))),
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
        field.default_value().or_else(|| is_always.then(|| zero(field.shape))).map(Cow::Owned)
    };
    let key = |name: &'static str| {
        let value = entries.get(name).map(Cow::Borrowed).or_else(|| default(name))?;
        Some((Cow::Borrowed(name), Item(value)))
    };
    let mut found: Vec<_> = keys.iter().copied().filter_map(key).collect();
    if found.is_empty() {
        let names: Vec<_> = keys.iter().map(|it| format!("{it:?}")).collect();
        return Err(Misfit(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        )));
    }
    found.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(Element::Key(found))
}

impl Field {
    fn default_value(&self) -> Option<Value> {
        serde_json::from_str(self.default?).ok()
    }
}

fn entries(value: Option<&Value>) -> &Map<String, Value> {
    static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    value.and_then(Value::as_object).unwrap_or(&NONE)
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Iterates over the entries of two maps in the order of their names.
fn zip<'a>(
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
