//! The validation in the crate `api` and that of the CustomResourceDefinitions accept and refuse the same objects.

use std::collections::BTreeSet;

use muster_api::muster_v1alpha1::daemon_rollout::{DaemonRolloutSpec, DaemonRolloutStatus};
use muster_api::muster_v1alpha1::policy::{ClusterRolloutPolicySpec, RolloutPolicySpec, RolloutPolicyStatus};
use muster_api::muster_v1alpha1::validation::InvalidField;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::agreement_cases::{Case, cases_of_long_lists, listed_cases};
use crate::crds;
use crate::muster_kinds::kinds;
use crate::structural::{SchemaValidator, refusal_keys, set_defaults};

#[test]
fn validation_and_custom_resource_definitions_agree() {
    let mut validator = SchemaValidator::default();
    let mut problems = Vec::new();
    let cases = listed_cases().chain(cases_of_long_lists());
    for case in &cases.collect::<Vec<_>>() {
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
    for case in listed_cases().filter(|it| it.is_valid) {
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
