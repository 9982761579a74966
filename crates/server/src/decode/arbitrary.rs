//! Random objects of the served types, for property tests: valid ones and ones with errors.

use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::GroupVersionKind;
use crate::types::{self, Shape, Type};

/// A stream of random choices. Once it is exhausted, every choice is the first alternative.
#[derive(Debug)]
pub(crate) struct RandomChoices<'a>(&'a [u8]);

impl RandomChoices<'_> {
    /// Returns a number below `bound`.
    fn index_below(&mut self, bound: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % bound
    }

    /// Returns one of the items in `of`.
    fn pick_one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.index_below(of.len())].clone()
    }
}

/// Generates a random kind, and an object of it in which every value has the right type.
pub(crate) fn valid_objects() -> impl Strategy<Value = (GroupVersionKind<'static>, Value)> {
    arbitrary_objects(false)
}

/// Generates a random kind, and an object of it that may have unknown fields and values of the wrong type.
pub(crate) fn objects_with_errors() -> impl Strategy<Value = (GroupVersionKind<'static>, Value)> {
    arbitrary_objects(true)
}

/// Generates a random kind and an object of it. If `may_be_wrong` is set, the object may have unknown fields and values
/// of the wrong type.
fn arbitrary_objects(may_be_wrong: bool) -> impl Strategy<Value = (GroupVersionKind<'static>, Value)> {
    // Types without `kind` cannot be decoded as objects of their own.
    let kinds: Vec<_> =
        types::all_kinds().iter().copied().filter(|it| it.3.field("kind").is_some()).collect();
    let kinds = prop::sample::select(kinds);
    (kinds, prop::collection::vec(any::<u8>(), 0..400)).prop_map(
        move |((group, version, kind, of), bytes)| {
            (
                GroupVersionKind { group, version, kind },
                arbitrary_object(of, &mut RandomChoices(&bytes), may_be_wrong),
            )
        },
    )
}

/// Generates variants of `bytes`: changed in a few places, or truncated.
pub(crate) fn mutated_bytes(bytes: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let length = bytes.len();
    let places = prop::collection::vec((0..length.max(1), any::<u8>(), 0..4u8), 0..6);
    places.prop_map(move |places| {
        let mut bytes = bytes.clone();
        for (at, byte, what) in places {
            let at = at.min(bytes.len());
            match what {
                0 if at < bytes.len() => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 if byte < 32 => bytes.truncate(at),
                _ => {}
            }
        }
        bytes
    })
}

/// Returns an object of the type `of`, made from the choices. If `may_be_wrong` is set, the object may have unknown
/// fields and values of the wrong type.
fn arbitrary_object(of: &'static Type, choices: &mut RandomChoices<'_>, may_be_wrong: bool) -> Value {
    let mut object = Map::new();
    for _ in 0..choices.index_below(6) {
        if of.fields.is_empty() {
            break;
        }
        let field = &of.fields[choices.index_below(of.fields.len())];
        if matches!(field.name, "apiVersion" | "kind") {
            continue;
        }
        let value = arbitrary_value(field.shape, choices, may_be_wrong);
        // An empty `managedFields` has a meaning in JSON that protobuf cannot express.
        if field.name != "managedFields" || value != json!([]) {
            object.insert(field.name.to_owned(), value);
        }
    }
    if may_be_wrong && choices.index_below(8) == 7 {
        object.insert("bogus".to_owned(), json!([{"deep": 1}]));
    }
    Value::Object(object)
}

/// Returns a value of the type `shape`, made from the choices. If `may_be_wrong` is set, the value may have the wrong
/// type.
fn arbitrary_value(shape: Shape, choices: &mut RandomChoices<'_>, may_be_wrong: bool) -> Value {
    if may_be_wrong && choices.index_below(12) == 11 {
        return choices.pick_one(&[
            json!(null),
            json!(1.5),
            json!("x"),
            json!([]),
            json!({}),
            json!(true),
            json!(-1e300),
        ]);
    }
    match shape {
        Shape::Bool => (choices.index_below(2) == 1).into(),
        Shape::Int32 => choices.pick_one(&[0, 1, -1, 80, i32::MAX, i32::MIN]).into(),
        Shape::Int64 => choices.pick_one(&[0, 1, -1, 600, i64::MAX, i64::MIN]).into(),
        Shape::String => choices.pick_one(&["", "a", "Always", "é\n", "🦀"]).into(),
        Shape::Bytes => choices.pick_one(&["", "aGk=", "/+8="]).into(),
        Shape::Time => choices.pick_one(&["2026-01-02T03:04:05Z", "1969-12-31T23:59:59Z"]).into(),
        Shape::MicroTime => {
            choices.pick_one(&["2026-01-02T03:04:05.000006Z", "1970-01-01T00:00:00.000000Z"]).into()
        }
        Shape::Quantity => choices
            .pick_one(&[
                "0",
                "1",
                "100m",
                "1.5Gi",
                "1024Mi",
                "12e6",
                "0.5",
                "-3k",
                "1n",
                "9999999999999999999",
            ])
            .into(),
        Shape::IntOrString => choices.pick_one(&[json!(0), json!(5), json!("10%"), json!("")]),
        Shape::Any => choices.pick_one(&[json!({"a": [1, 2.5, null]}), json!([]), json!("x"), json!(7)]),
        Shape::FieldsV1 => choices.pick_one(&[json!({"f:a": {}}), json!({})]),
        Shape::Object(of) => arbitrary_object(of, choices, may_be_wrong),
        Shape::List(items, _) => (0..choices.index_below(3))
            .map(|_| arbitrary_value(*items, choices, may_be_wrong))
            .collect::<Vec<_>>()
            .into(),
        Shape::Map(values, _) => {
            let names: [Cow<'_, str>; 3] = ["a".into(), "b/c".into(), "".into()];
            let entries = (0..choices.index_below(3)).map(|_| {
                (choices.pick_one(&names).into_owned(), arbitrary_value(*values, choices, may_be_wrong))
            });
            Value::Object(entries.collect())
        }
    }
}

/// Returns an object of this kind in which every value has the right type, made from `bytes`.
pub(crate) fn valid_object_of_kind(gvk: GroupVersionKind<'_>, bytes: &[u8]) -> Value {
    let of = types::find_type(gvk.group, gvk.version, gvk.kind).expect("the kind has a type");
    arbitrary_object(of, &mut RandomChoices(bytes), false)
}
