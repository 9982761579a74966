//! The validation in the crate `api` and that of the CustomResourceDefinitions accept and refuse the same objects.

use std::collections::BTreeSet;

use muster_api::muster_v1alpha1::daemon_rollout::{DaemonRolloutSpec, DaemonRolloutStatus};
use muster_api::muster_v1alpha1::policy::{ClusterRolloutPolicySpec, RolloutPolicySpec, RolloutPolicyStatus};
use muster_api::muster_v1alpha1::validation::InvalidField;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::crds;
use crate::muster_kinds::kinds;
use crate::structural::{SchemaValidator, refusal_keys, set_defaults};

/// One object per line: `+` if it is valid and `-` if not, what it is, and its spec or status.
const CASES: &str = include_str!("agreement.txt");

/// A spec or a status.
#[derive(Debug)]
struct Case {
    is_valid: bool,
    what: String,
    content: Value,
}

#[test]
fn validation_and_custom_resource_definitions_agree() {
    let mut validator = SchemaValidator::default();
    let mut problems = Vec::new();
    let cases: Vec<Case> = CASES.lines().filter_map(parse).chain(long_lists()).collect();
    for case in &cases {
        let ours = own_errors(case);
        let theirs = definition_errors(case, &mut validator);
        if (ours.is_empty(), theirs.is_empty()) != (case.is_valid, case.is_valid) {
            let expected = if case.is_valid { "valid" } else { "invalid" };
            problems.push(format!(
                "{} {} is {expected}\n  validation: {ours:?}\n  definition: {theirs:?}",
                case.what, case.content
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));

    let mut keys = BTreeSet::new();
    for kind in kinds() {
        let schema = crds::schema(&kind);
        for field in ["spec", "status"] {
            refusal_keys(&schema["properties"][field], &format!(".{field}"), &mut keys);
        }
    }
    let refusals = |key: &String| validator.refusals.get(key).copied().unwrap_or_default();
    let untested: Vec<_> =
        keys.iter().filter(|it| refusals(it) < 2).map(|it| format!("{}: {it}", refusals(it))).collect();
    assert!(untested.is_empty(), "fewer than two invalid objects for:\n{}", untested.join("\n"));
}

/// kube-apiserver refuses a definition if the estimated cost of a rule has no bound: in a spec, every list, map and
/// string has a limit. The key of a map has none in a schema, and is not estimated.
#[test]
fn every_list_and_string_of_a_spec_has_a_limit() {
    fn unlimited(schema: &Value, path: &str, found: &mut Vec<String>) {
        let is_limited = match schema["type"].as_str() {
            Some("array") => schema["maxItems"].is_u64(),
            Some("string") => schema["maxLength"].is_u64() || schema["enum"].is_array(),
            None => schema["maxLength"].is_u64(),
            Some("object") if schema["additionalProperties"].is_object() => schema["maxProperties"].is_u64(),
            Some(_) => true,
        };
        if !is_limited {
            found.push(path.to_owned());
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            unlimited(property, &format!("{path}.{name}"), found);
        }
        for inner in ["items", "additionalProperties"] {
            schema.get(inner).into_iter().for_each(|it| unlimited(it, &format!("{path}[]"), found));
        }
    }
    let mut found = Vec::new();
    for kind in kinds() {
        unlimited(&crds::schema(&kind)["properties"]["spec"], kind.names.kind, &mut found);
    }
    assert!(found.is_empty(), "without a limit: {found:?}");
}

/// Defaults of the types and of the definitions are the same.
#[test]
fn defaults_of_types_and_custom_resource_definitions_agree() {
    fn check<T: DeserializeOwned + serde::Serialize>(kind: &str, content: &Value) {
        let kind = kinds().into_iter().find(|it| it.names.kind == kind).expect("the kind exists");
        let mut theirs = json!({"spec": content});
        set_defaults(&crds::schema(&kind), &mut theirs);
        let ours: T = serde_json::from_value(content.clone()).expect("a valid spec decodes");
        let ours = without_empty_lists(serde_json::to_value(ours).expect("a spec is JSON"));
        assert_eq!(ours, without_empty_lists(theirs["spec"].clone()), "{content}");
    }
    for case in CASES.lines().filter_map(parse).filter(|it| it.is_valid) {
        match case.what.as_str() {
            "policy" => check::<RolloutPolicySpec>("RolloutPolicy", &case.content),
            "cluster" => check::<ClusterRolloutPolicySpec>("ClusterRolloutPolicy", &case.content),
            "rollout" => check::<DaemonRolloutSpec>("DaemonRollout", &case.content),
            _ => {}
        }
    }
}

/// An empty list without a default means the same as an absent one, and the types do not tell them apart.
fn without_empty_lists(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(without_empty_lists).collect(),
        Value::Object(object) => {
            let is_kept = |name: &str, it: &Value| {
                !matches!(name, "windows" | "checks" | "sequence" | "checkReports") || *it != json!([])
            };
            let kept = object.into_iter().filter(|(name, it)| is_kept(name, it));
            kept.map(|(name, it)| (name, without_empty_lists(it))).collect()
        }
        other => other,
    }
}

/// Reads a line. `<63>` stands for 63 letters.
fn parse(line: &str) -> Option<Case> {
    let (sign, rest) = line.split_once(' ').filter(|(sign, _)| matches!(*sign, "+" | "-"))?;
    let (what, json) = rest.split_once(' ').expect("a line has a kind and JSON");
    let mut text = String::new();
    for (index, part) in json.split('<').enumerate() {
        match part.split_once('>').filter(|_| 0 < index) {
            Some((count, part)) => {
                text.push_str(&"a".repeat(count.parse().expect("a number of letters")));
                text.push_str(part);
            }
            None => text.push_str(part),
        }
    }
    let content = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    Some(Case { is_valid: sign == "+", what: what.to_owned(), content: with_base(what, content) })
}

/// Adds a selector to a policy that has none, unless the line is about that.
fn with_base(what: &str, mut content: Value) -> Value {
    let object = content.as_object_mut().expect("a spec is an object");
    let has_target = ["selector", "daemonSets", "none"].iter().any(|it| object.contains_key(*it));
    object.remove("none");
    if matches!(what, "policy" | "cluster") && !has_target {
        object.insert("selector".to_owned(), json!({}));
    }
    content
}

/// Lists at their limit, and one above it.
fn long_lists() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |what: &str, limit: usize, content: &dyn Fn(Vec<String>) -> Value| {
        for (count, is_valid) in [(limit, true), (limit + 1, false), (limit + 2, false)] {
            let names = (0..count).map(|it| format!("n{it}")).collect();
            cases.push(Case { is_valid, what: what.to_owned(), content: with_base(what, content(names)) });
        }
    };
    let named =
        |names: Vec<String>, item: &dyn Fn(String) -> Value| names.into_iter().map(item).collect::<Value>();
    let window = |_| json!({"start": "09:00", "end": "17:00"});
    let check = |name| json!({"name": name, "external": {}});
    add("policy", 10, &|it| json!({"windows": named(it, &window)}));
    add("policy", 20, &|it| json!({"steps": named(it, &|name| json!({"name": name}))}));
    add("policy", 10, &|it| json!({"checks": named(it, &check)}));
    add("policy", 20, &|it| json!({"failures": {"immediateFailureReasons": it}}));
    add(
        "policy",
        64,
        &|it| json!({"steps": [{"name": "a", "groups": {"labelKey": "zone", "sequence": it}}]}),
    );
    add("policy", 256, &|it| json!({"daemonSets": it}));
    let labels =
        |names: Vec<String>| names.into_iter().map(|it| (it, json!(""))).collect::<serde_json::Map<_, _>>();
    add("policy", 64, &|it| json!({"selector": {"matchLabels": labels(it)}}));
    add(
        "cluster",
        64,
        &|it| json!({"namespaceSelector": {"matchExpressions": named(it, &|key| json!({"key": key, "operator": "Exists"}))}}),
    );
    add(
        "cluster",
        64,
        &|it| json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": it}]}}),
    );
    let report = |check| json!({"check": check, "revision": "r", "result": "Pass"});
    add("rollout", 10, &|it| json!({"checkReports": named(it, &report)}));
    let failure = |node| json!({"node": node});
    add("rollout-status", 200, &|it| json!({"failures": {"nodes": named(it, &failure)}}));
    add("rollout-status", 200, &|it| json!({"failures": {"excused": named(it, &failure)}}));
    cases
}

fn own_errors(case: &Case) -> Vec<String> {
    fn check<T: DeserializeOwned>(content: &Value, validate: fn(&T) -> Vec<InvalidField>) -> Vec<String> {
        match serde_json::from_value::<T>(content.clone()) {
            Ok(decoded) => validate(&decoded).iter().map(ToString::to_string).collect(),
            Err(error) => vec![error.to_string()],
        }
    }
    match case.what.as_str() {
        "policy" => check(&case.content, RolloutPolicySpec::validate),
        "cluster" => check(&case.content, ClusterRolloutPolicySpec::validate),
        "rollout" => check(&case.content, DaemonRolloutSpec::validate),
        "policy-status" => check(&case.content, RolloutPolicyStatus::validate),
        "rollout-status" => check(&case.content, DaemonRolloutStatus::validate),
        other => panic!("{other} is no kind"),
    }
}

fn definition_errors(case: &Case, validator: &mut SchemaValidator) -> Vec<String> {
    let (kind, field) = match case.what.as_str() {
        "policy" => ("RolloutPolicy", "spec"),
        "cluster" => ("ClusterRolloutPolicy", "spec"),
        "rollout" => ("DaemonRollout", "spec"),
        "policy-status" => ("RolloutPolicy", "status"),
        _ => ("DaemonRollout", "status"),
    };
    let kind = kinds().into_iter().find(|it| it.names.kind == kind).expect("the kind exists");
    let mut object = json!({"spec": {"selector": {}}});
    object[field] = case.content.clone();
    validator.errors(&crds::schema(&kind), &object)
}
