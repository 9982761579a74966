//! Whatever an object says, the checks answer.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Subresource, WriteToValidate};
use crate::kinds::WRITABLE_KINDS;
use crate::types::{self, Shape, Type};

/// JSON of a type of the table: its fields, with values that are often odd.
fn of_type(it: &'static Type, depth: u32) -> BoxedStrategy<Value> {
    let fields: Vec<_> = it.fields.iter().map(|it| (it.name, of_shape(it.shape, depth))).collect();
    let chosen = proptest::collection::vec(any::<bool>(), fields.len());
    (chosen, fields.into_iter().map(|(name, it)| it.prop_map(move |it| (name, it))).collect::<Vec<_>>())
        .prop_map(|(chosen, fields)| {
            let said = fields.into_iter().zip(chosen).filter(|it| it.1).map(|it| (it.0.0.to_owned(), it.0.1));
            Value::Object(said.collect())
        })
        .boxed()
}

fn of_shape(shape: Shape, depth: u32) -> BoxedStrategy<Value> {
    const WORDS: &[&str] = &[
        "",
        "a",
        "A b",
        "-",
        "..",
        "/a/../b",
        "25%",
        "1Gi",
        "Always",
        "None",
        "10.0.0.1",
        "iqn",
        "é\\c",
        "a['b']",
        "Localhost",
    ];
    let word = proptest::sample::select(WORDS).prop_map(|it| json!(it));
    let number = prop_oneof![Just(0i64), Just(-1), Just(1), Just(i64::MAX), Just(i64::MIN), 0i64..70_000];
    let number = number.prop_map(|it| json!(it));
    match shape {
        Shape::Bool => any::<bool>().prop_map(|it| json!(it)).boxed(),
        Shape::Int32 | Shape::Int64 => number.boxed(),
        Shape::IntOrString | Shape::Quantity => prop_oneof![word, number].boxed(),
        Shape::Object(_) if depth == 0 => Just(json!({})).boxed(),
        Shape::Object(it) => of_type(it, depth - 1),
        Shape::List(_, _) | Shape::Map(_, _) if depth == 0 => Just(Value::Null).boxed(),
        Shape::List(it, _) => {
            proptest::collection::vec(of_shape(*it, depth - 1), 0..3).prop_map(Value::Array).boxed()
        }
        Shape::Map(it, _) => {
            proptest::collection::btree_map("[a-z./ -]{0,4}", of_shape(*it, depth - 1), 0..3)
                .prop_map(|it| Value::Object(it.into_iter().collect()))
                .boxed()
        }
        _ => word.boxed(),
    }
}

fn any_object(at: usize) -> BoxedStrategy<Value> {
    let kind = &WRITABLE_KINDS[at];
    let it = types::find_type(kind.group, kind.version, kind.kind).expect("every kind has a type");
    of_type(it, 5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn checks_take_anything(
        (at, mut new, mut old) in (0..WRITABLE_KINDS.len()).prop_flat_map(|at| (Just(at), any_object(at), any_object(at)))
    ) {
        let kind = &WRITABLE_KINDS[at];
        (kind.apply_defaults)(&mut new);
        (kind.apply_defaults)(&mut old);
        for subresource in [Subresource::Whole, Subresource::Status] {
            for old in [None, Some(&old), Some(&new)] {
                let write = WriteToValidate { new: &new, old, subresource };
                kind.validate(&write);
                (kind.warnings)(&write);
            }
        }
    }
}
