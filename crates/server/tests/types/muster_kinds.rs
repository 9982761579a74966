//! The kinds of `muster.dev`, whose schemas are derived from the types of the crate `api`.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::muster_v1alpha1::daemon_rollout::{DaemonRolloutSpec, DaemonRolloutStatus};
use muster_api::muster_v1alpha1::policy::{ClusterRolloutPolicySpec, RolloutPolicySpec, RolloutPolicyStatus};
use muster_api::muster_v1alpha1::{CLUSTER_ROLLOUT_POLICY, DAEMON_ROLLOUT, KindNames, ROLLOUT_POLICY};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::META;
use crate::schemas::{Merge, Property, Schema};

/// Prefix of the names of our types, as upstream names the types of custom resources.
pub(crate) const PACKAGE: &str = "dev.muster.v1alpha1";

/// A kind of `muster.dev`, with the JSON schemas of its spec and status.
#[derive(Debug)]
pub(crate) struct MusterKind {
    pub(crate) names: KindNames,
    pub(crate) description: &'static str,
    pub(crate) spec: Value,
    pub(crate) status: Value,
    /// Whether an object must have a spec; otherwise an absent one is empty.
    pub(crate) requires_spec: bool,
    pub(crate) columns: Vec<PrinterColumn>,
}

/// A column of `kubectl get`.
#[derive(Debug)]
pub(crate) struct PrinterColumn {
    pub(crate) name: &'static str,
    pub(crate) cell_type: &'static str,
    pub(crate) path: &'static str,
    pub(crate) wide: bool,
}

const fn column(name: &'static str, cell_type: &'static str, path: &'static str) -> PrinterColumn {
    PrinterColumn { name, cell_type, path, wide: false }
}

const fn wide_column(name: &'static str, cell_type: &'static str, path: &'static str) -> PrinterColumn {
    PrinterColumn { name, cell_type, path, wide: true }
}

pub(crate) fn kinds() -> Vec<MusterKind> {
    vec![
        MusterKind {
            names: CLUSTER_ROLLOUT_POLICY,
            description: "ClusterRolloutPolicy controls how new revisions of DaemonSets in all namespaces are rolled out. \
                          It applies to DaemonSets that no RolloutPolicy names or selects.",
            spec: schema_of::<ClusterRolloutPolicySpec>(),
            status: without_defaults(schema_of::<RolloutPolicyStatus>()),
            requires_spec: true,
            columns: policy_columns(),
        },
        MusterKind {
            names: DAEMON_ROLLOUT,
            description: "DaemonRollout is the rollout of the DaemonSet of the same name. Operators write the spec, the \
                          controller writes the status.",
            spec: schema_of::<DaemonRolloutSpec>(),
            status: without_defaults(schema_of::<DaemonRolloutStatus>()),
            requires_spec: false,
            columns: vec![
                column("Phase", "string", ".status.phase"),
                column("Step", "string", ".status.step.name"),
                column("Updated", "integer", ".status.nodes.updated"),
                column("Held", "integer", ".status.nodes.held"),
                column("Faulty", "integer", ".status.failures.counted"),
                column("Revision", "string", ".status.current.revision"),
                column("Stable", "string", ".status.stable.revision"),
                column("Age", "date", ".metadata.creationTimestamp"),
                wide_column("Policy", "string", ".status.policy.name"),
                wide_column("Message", "string", ".status.message"),
            ],
        },
        MusterKind {
            names: ROLLOUT_POLICY,
            description: "RolloutPolicy controls how new revisions of the DaemonSets of its namespace are rolled out. A \
                          policy that names a DaemonSet has precedence over a policy that selects it, and both over a \
                          ClusterRolloutPolicy.",
            spec: schema_of::<RolloutPolicySpec>(),
            status: without_defaults(schema_of::<RolloutPolicyStatus>()),
            requires_spec: true,
            columns: policy_columns(),
        },
    ]
}

fn policy_columns() -> Vec<PrinterColumn> {
    vec![
        column("Sets", "integer", ".status.sets.matched"),
        column("Rolling", "integer", ".status.sets.rolling"),
        column("Waiting", "integer", ".status.sets.waiting"),
        column("Failed", "integer", ".status.sets.failed"),
        column("Paused", "boolean", ".spec.paused"),
        column("Age", "date", ".metadata.creationTimestamp"),
        // A JSON path cannot count: the column has the names of the steps.
        wide_column("Steps", "string", ".spec.steps[*].name"),
        wide_column("On-Failure", "string", ".spec.onFailure"),
    ]
}

/// The schema of a type. Definitions of other types are in `$defs`, as `#/$defs/<name>`.
fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<T>().to_value();
    normalize(&mut schema);
    schema
}

/// Rewrites a schema to the subset of structural schemas: no null, no titles, descriptions on one line, and no default
/// of a required field.
fn normalize(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Object(object) => {
            object.remove("$schema");
            object.remove("title");
            // Absent and null are one value of an `Option`; the API has no nulls.
            if let Some(types) = object.get("type").and_then(Value::as_array) {
                let types: Vec<_> = types.iter().filter(|it| *it != "null").cloned().collect();
                assert_eq!(types.len(), 1, "a field has one type: {object:?}");
                object.insert("type".to_owned(), types[0].clone());
            }
            let is_optional =
                |it: &Value| it.as_array().is_some_and(|it| it.contains(&json!({"type": "null"})));
            if object.get("anyOf").is_some_and(is_optional) {
                let Some(Value::Array(choices)) = object.remove("anyOf") else {
                    unreachable!("checked above")
                };
                let choice =
                    choices.into_iter().find(|it| it["type"] != "null").expect("an Option has a value");
                for (name, value) in choice.as_object().expect("a schema is an object") {
                    object.entry(name.clone()).or_insert_with(|| value.clone());
                }
            }
            let required: Vec<String> = object.get("required").map_or_else(Vec::new, |it| {
                it.as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
            });
            for name in required {
                let property = object.get_mut("properties").and_then(|it| it.get_mut(&name));
                property.and_then(Value::as_object_mut).map(|it| it.remove("default"));
            }
            if object.get("default").is_some_and(Value::is_null) {
                object.remove("default");
            }
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = text
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ")
                    .replace("\\[", "[")
                    .replace("\\]", "]");
            }
            for (name, value) in object {
                if !matches!(name.as_str(), "default" | "enum" | "x-kubernetes-validations") {
                    normalize(value);
                }
            }
        }
        _ => {}
    }
}

/// A status has no defaults: the controller writes all of it.
fn without_defaults(mut schema: Value) -> Value {
    fn remove(schema: &mut Value) {
        match schema {
            Value::Array(items) => items.iter_mut().for_each(remove),
            Value::Object(object) => {
                object.remove("default");
                object.values_mut().for_each(remove);
            }
            _ => {}
        }
    }
    remove(&mut schema);
    schema
}

/// Adds the types of all kinds to the schemas of upstream's types, in the same form.
pub(crate) fn add_schemas(schemas: &mut BTreeMap<String, Schema>) {
    let of_upstream = |name: &str| schemas["io.k8s.api.apps.v1.DaemonSet"].properties[name].clone();
    let type_meta = ["apiVersion", "kind", "metadata"].map(|it| (it.to_owned(), of_upstream(it)));
    for kind in kinds() {
        let name = kind.names.kind;
        let mut properties: BTreeMap<String, Property> = type_meta.clone().into();
        for (field, schema) in [("spec", &kind.spec), ("status", &kind.status)] {
            let type_name = match (field, name) {
                // Both policies have one status.
                ("status", "ClusterRolloutPolicy") => format!("{PACKAGE}.RolloutPolicyStatus"),
                (field, name) => format!("{PACKAGE}.{name}{}{}", field[..1].to_uppercase(), &field[1..]),
            };
            let mut json = json!({"$ref": type_name, "description": schema["description"]});
            if field == "spec" && !kind.requires_spec {
                json["default"] = json!({});
            }
            properties.insert(field.to_owned(), Property { json, merge: Merge::Plain });
            let definitions = schema["$defs"].as_object().into_iter().flatten();
            for (name, definition) in definitions.filter(|(name, _)| !name.contains('.')) {
                schemas.insert(format!("{PACKAGE}.{name}"), type_schema(definition));
            }
            schemas.insert(type_name, type_schema(schema));
        }
        let required = if kind.requires_spec { BTreeSet::from(["spec".to_owned()]) } else { BTreeSet::new() };
        let schema = Schema { description: kind.description.to_owned(), properties, required };
        schemas.insert(format!("{PACKAGE}.{name}"), schema);
    }
}

fn type_schema(schema: &Value) -> Schema {
    let strings = |it: &Value| {
        it.as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
    };
    let properties = schema["properties"].as_object().into_iter().flatten();
    Schema {
        description: schema["description"].as_str().unwrap_or_default().to_owned(),
        properties: properties.map(|(name, it)| (name.clone(), property(it))).collect(),
        required: strings(&schema["required"]),
    }
}

fn property(schema: &Value) -> Property {
    let merge = match schema["x-kubernetes-list-type"].as_str() {
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
            Merge::ListByKeys(keys.filter_map(|it| it.as_str().map(str::to_lowercase)).collect())
        }
        Some("set") => Merge::ListAsSet,
        Some("atomic") => Merge::AtomicList,
        _ => Merge::Plain,
    };
    assert!(schema["type"] != "array" || merge != Merge::Plain, "a list has a list type: {schema}");
    let mut json = with_named_types(schema);
    if let Some(items) = schema.get("items") {
        json["items"] = with_named_types(items);
    }
    Property { json, merge }
}

/// Replaces references and special types by the names of their types.
fn with_named_types(schema: &Value) -> Value {
    let mut named = schema.clone();
    let reference = schema["$ref"].as_str().map(|it| it.trim_start_matches("#/$defs/"));
    let name = match reference {
        Some(name) if name.contains('.') => Some(name.to_owned()),
        Some(name) => Some(format!("{PACKAGE}.{name}")),
        None if schema["x-kubernetes-int-or-string"] == true => {
            Some("io.k8s.apimachinery.pkg.util.intstr.IntOrString".to_owned())
        }
        None if schema["format"] == "date-time" => Some(format!("{META}.Time")),
        None => None,
    };
    if let Some(name) = name {
        named["$ref"] = name.into();
    }
    named
}

/// Name and values of each enum.
pub(crate) fn enums() -> BTreeMap<String, Vec<String>> {
    fn find(schema: &Value, found: &mut BTreeMap<String, Vec<String>>) {
        if let Some(name) = go_type(schema) {
            let values = schema["enum"].as_array().into_iter().flatten();
            found.insert(name, values.filter_map(|it| it.as_str().map(str::to_owned)).collect());
        }
        match schema {
            Value::Array(items) => items.iter().for_each(|it| find(it, found)),
            Value::Object(object) => object.values().for_each(|it| find(it, found)),
            _ => {}
        }
    }
    let mut found = BTreeMap::new();
    for kind in kinds() {
        find(&kind.spec, &mut found);
        find(&kind.status, &mut found);
    }
    found
}

/// The name of the enum that a field or the items of a list have, as Go would name it.
pub(crate) fn go_type(schema: &Value) -> Option<String> {
    let name = schema["x-muster-type"].as_str().map(|it| format!("v1alpha1.{it}"));
    name.or_else(|| schema["items"]["x-muster-type"].as_str().map(|it| format!("[]v1alpha1.{it}")))
}

/// A schema with all references replaced by what they refer to, as a CustomResourceDefinition has it.
pub(crate) fn inlined(root: &Value) -> Value {
    fn inline(schema: &Value, definitions: &Value) -> Value {
        match schema {
            Value::Array(items) => items.iter().map(|it| inline(it, definitions)).collect(),
            Value::Object(object) => {
                let mut inlined = Map::new();
                if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
                    let definition = &definitions[reference.trim_start_matches("#/$defs/")];
                    assert!(definition.is_object(), "{reference} is not defined");
                    inlined = inline(definition, definitions).as_object().cloned().unwrap_or_default();
                }
                for (name, value) in object {
                    match name.as_str() {
                        "$ref" | "$defs" | "x-muster-type" => {}
                        "default" | "enum" | "x-kubernetes-validations" => {
                            inlined.insert(name.clone(), value.clone());
                        }
                        _ => {
                            inlined.insert(name.clone(), inline(value, definitions));
                        }
                    }
                }
                Value::Object(inlined)
            }
            other => other.clone(),
        }
    }
    inline(root, &root["$defs"])
}
