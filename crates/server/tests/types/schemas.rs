//! The schemas of k8s-openapi, and how it merges each field.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

#[derive(Debug, Clone)]
pub(crate) struct Schema {
    pub(crate) description: String,
    pub(crate) properties: BTreeMap<String, Property>,
    pub(crate) required: BTreeSet<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Property {
    /// As JSON Schema; `$ref` is a name, such as `io.k8s.api.core.v1.Pod`.
    pub(crate) json: Value,
    pub(crate) merge: Merge,
}

impl Property {
    pub(crate) fn description(&self) -> &str {
        self.json["description"].as_str().unwrap_or_default()
    }
}

/// What the `DeepMerge` of a type does with a field. Keys are in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Merge {
    Plain,
    AtomicList,
    ListAsSet,
    ListByKeys(Vec<String>),
    AtomicMap,
    GranularMap,
}

/// Every schema under a folder, by name.
pub(crate) fn read(folder: &Path) -> BTreeMap<String, Schema> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|it| panic!("list {}: {it}", folder.display())) {
        let path = entry.expect("read an entry of a folder").path();
        if path.is_dir() {
            found.extend(read(&path));
        } else {
            let text = fs::read_to_string(&path).expect("read a source file");
            found.extend(schema(&text));
        }
    }
    found
}

fn schema(text: &str) -> Option<(String, Schema)> {
    let (before, after) = text.split_once("crate::schemars::json_schema!(")?;
    let name = between(before.rsplit_once("fn schema_name()")?.1, "\"", "\"")?;
    let body = json(after.split_once("\n        })")?.0);
    let merges = merges(before);
    let properties =
        body["properties"].as_object().cloned().unwrap_or_default().into_iter().map(|(field, json)| {
            let merge = merges.get(&plain(&field)).cloned().unwrap_or(Merge::Plain);
            (field, Property { json, merge })
        });
    let required = body["required"].as_array().into_iter().flatten();
    let schema = Schema {
        description: body["description"].as_str().unwrap_or_default().to_owned(),
        properties: properties.collect(),
        required: required.filter_map(|it| it.as_str().map(str::to_owned)).collect(),
    };
    Some((name.to_owned(), schema))
}

/// The argument of the macro `json_schema!` as JSON. It is JSON but for expressions that stand for other schemas, and
/// for a comma after each last item.
fn json(text: &str) -> Value {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim) {
        let reference = between(line, "subschema_for::<", ">()").map(|it| {
            format!("\"$ref\": \"{}\"", it.replace("crate::", "io.k8s.").replace("::", ".").replace('_', "-"))
        });
        let line = match (reference, line) {
            (Some(reference), line) if line.starts_with("let mut") => format!("{reference},"),
            (Some(reference), line) => match line.split_once("__gen") {
                Some((before, _)) => format!("{}{{{reference}}},", before.trim_end_matches('(')),
                None => panic!("a schema in an unknown form: {line}"),
            },
            (None, "schema_obj") => continue,
            (None, "})," | "}),}" | "})") => "},".to_owned(),
            (None, line) => {
                match line.strip_prefix("schema_obj.ensure_object().insert(\"description\".into(), ") {
                    Some(rest) => format!("\"description\": {},", rest.trim_end_matches(".into());")),
                    None => line.replace("({", "{"),
                }
            }
        };
        let closes = line.starts_with(['}', ']']);
        if let Some(last) = lines.last_mut().filter(|it| closes && it.ends_with(',')) {
            last.pop();
        }
        lines.push(line);
    }
    if let Some(last) = lines.last_mut().filter(|it| it.ends_with(',')) {
        last.pop();
    }
    let text = format!("{}}}", lines.join("\n"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
}

fn merges(text: &str) -> BTreeMap<String, Merge> {
    let Some((_, body)) = text.split_once("fn merge_from(&mut self, other: Self) {") else {
        return BTreeMap::new();
    };
    let body = body.split_once("\n}").map_or(body, |(it, _)| it);
    let calls = body.split("crate::merge_strategies::").skip(1);
    calls
        .filter_map(|call| {
            // A call within a call merges the values of a map.
            let (strategy, arguments) = call.split_once('(')?;
            let field = arguments.trim_start().strip_prefix("&mut self.")?.split(',').next()?;
            let keys = || call.match_indices("|lhs, rhs| lhs.").map(|(at, it)| &call[at + it.len()..]);
            let keys = || keys().map(|it| plain(it.split(' ').next().unwrap_or_default())).collect();
            let merge = match strategy {
                "list::atomic" => Merge::AtomicList,
                "list::set" => Merge::ListAsSet,
                "list::map" => Merge::ListByKeys(keys()),
                "map::atomic" => Merge::AtomicMap,
                "map::granular" => Merge::GranularMap,
                other => panic!("k8s-openapi merges {field} by {other}"),
            };
            Some((plain(field), merge))
        })
        .collect()
}

/// Rust's spelling of a name and the API's, made the same.
pub(crate) fn plain(name: &str) -> String {
    name.trim_start_matches("r#").replace('_', "").to_lowercase()
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let from = text.find(before)? + before.len();
    Some(&text[from..from + text[from..].find(after)?])
}
