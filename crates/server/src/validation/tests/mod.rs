//! Validates manifests and compares the errors.

mod daemonset;
mod others;
mod pod;
mod random;

use expect_test::Expect;
use serde_json::{Value, json};

use super::WriteToValidate;
use crate::kinds::{Kind, WRITABLE_KINDS};
use crate::subresource::Subresource;

fn kind(name: &str) -> &'static Kind {
    WRITABLE_KINDS.iter().find(|it| it.kind == name).unwrap()
}

/// Defaults are set, and then every cause is on a line of its own.
fn said(kind: &Kind, new: &Value, old: Option<&Value>, subresource: Subresource) -> String {
    let named = |object: &Value| {
        let mut object = object.clone();
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] = json!("it");
        }
        if kind.namespaced && object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!("default");
        }
        (kind.apply_defaults)(&mut object);
        object
    };
    let (new, old) = (named(new), old.map(named));
    let causes = kind.validate(&WriteToValidate { new: &new, old: old.as_ref(), subresource });
    let line = |it: &crate::validation::FieldError| format!("{}: {}", it.field, it.message);
    causes.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn check(name: &str, new: &Value, golden: &Expect) {
    golden.assert_eq(&said(kind(name), new, None, Subresource::Whole));
}

fn check_change(name: &str, old: &Value, new: &Value, golden: &Expect) {
    golden.assert_eq(&said(kind(name), new, Some(old), Subresource::Whole));
}

fn check_status(name: &str, old: &Value, new: &Value, golden: &Expect) {
    golden.assert_eq(&said(kind(name), new, Some(old), Subresource::Status));
}

/// A pod, or a template, of one container with these fields added to it.
fn pod_with(more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"spec": spec})
}

fn container_with(more: Value) -> Value {
    let mut container = json!({"name": "c", "image": "i"});
    container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    pod_with(json!({"containers": [container]}))
}
