//! The section "Fields" of docs/rollouts.md: the fields of the kinds of `muster.dev` with types, defaults and meanings.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use muster_api::muster_v1alpha1::syntax::DURATION_PATTERN;
use serde_json::Value;

use crate::muster_kinds::{MusterKind, kinds};

const HEADING: &str = "## Fields\n";

pub(crate) fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rollouts.md")
}

/// The document with the section of today.
pub(crate) fn document() -> String {
    let committed = fs::read_to_string(path()).expect("read the document");
    let (before, rest) = committed.split_once(HEADING).expect("the document has the section");
    let after = rest.find("\n## ").map_or("", |at| &rest[at..]);
    format!("{before}{HEADING}{}{after}", section())
}

fn section() -> String {
    let kinds = kinds();
    let of = |kind: &str| kinds.iter().find(|it| it.names.kind == kind).expect("the kind exists");
    let (policy, cluster) = (of("RolloutPolicy"), of("ClusterRolloutPolicy"));
    let known: BTreeSet<Row> = rows(policy).into_iter().collect();
    let mut own = rows(cluster);
    own.retain(|it| !known.contains(it));
    let mut out = String::new();
    write_table(&mut out, policy, "", &rows(policy));
    let others = "\nIt has all fields of RolloutPolicy except `spec.daemonSets`, and these:";
    write_table(&mut out, cluster, others, &own);
    write_table(&mut out, of("DaemonRollout"), "", &rows(of("DaemonRollout")));
    out
}

fn write_table(out: &mut String, kind: &MusterKind, more: &str, rows: &[Row]) {
    let names = kind.names;
    let scope = if names.namespaced { "namespaced" } else { "cluster-scoped" };
    write!(out, "\n### {}\n\n", names.kind).expect("write text");
    writeln!(out, "`{}.muster.dev`, short name `{}`, {scope}.{more}", names.plural, names.short_name)
        .expect("write text");
    out.push_str("\n| field | type | default | meaning |\n|---|---|---|---|\n");
    for row in rows {
        writeln!(out, "| `{}` | {} | {} | {} |", row.field, row.shape, row.default, row.meaning)
            .expect("write text");
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    field: String,
    shape: String,
    default: String,
    meaning: String,
}

fn rows(kind: &MusterKind) -> Vec<Row> {
    let mut found = Vec::new();
    for (field, schema) in [("spec", &kind.spec), ("status", &kind.status)] {
        add_rows(schema, &schema["$defs"], field, &mut found);
    }
    found
}

fn add_rows(schema: &Value, definitions: &Value, path: &str, found: &mut Vec<Row>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let is_complex = property["$ref"].is_string();
        let default = property.get("default").filter(|_| !is_complex).map(|it| match it {
            Value::String(text) => format!("`{text}`"),
            other => format!("`{other}`"),
        });
        let description = property["description"].as_str().unwrap_or_default();
        // The default has its own column.
        let meaning = match description.split_once(" Defaults to") {
            Some((before, _)) if default.is_some() => before,
            _ => description,
        };
        found.push(Row {
            field: path.clone(),
            shape: shape(property),
            default: default.unwrap_or_default(),
            meaning: meaning.to_owned(),
        });
        let (of, path) = match property.get("items") {
            Some(items) => (items, format!("{path}[]")),
            None => (property, path),
        };
        let reference = of["$ref"].as_str().map(|it| it.trim_start_matches("#/$defs/"));
        if let Some(name) = reference.filter(|it| !it.contains('.')) {
            add_rows(&definitions[name], definitions, &path, found);
        }
    }
}

fn shape(schema: &Value) -> String {
    if let Some(items) = schema.get("items") {
        return format!("list of {}", shape(items));
    }
    if let Some(values) = schema["enum"].as_array() {
        return values
            .iter()
            .filter_map(Value::as_str)
            .map(|it| format!("`{it}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    let reference = schema["$ref"].as_str().unwrap_or_default();
    match schema["type"].as_str() {
        _ if schema["x-kubernetes-int-or-string"] == true => "number or percentage".to_owned(),
        _ if schema["pattern"] == DURATION_PATTERN => "duration".to_owned(),
        _ if schema["format"] == "date-time" => "time".to_owned(),
        Some(name) => name.to_owned(),
        None if reference.contains(".meta.v1.") => {
            reference.rsplit('.').next().unwrap_or_default().to_owned()
        }
        None => "object".to_owned(),
    }
}
