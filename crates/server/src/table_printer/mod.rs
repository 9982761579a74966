//! Table columns of `kubectl get` for each kind. Upstream: `printers/internalversion`.

mod access;
mod cluster;
mod network;
mod pod;
mod workload;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::types::{self, GroupVersionKind, Shape};
use crate::unstructured::{list, str_at};

pub(crate) use access::{
    CERTIFICATE_SIGNING_REQUEST, CLUSTER_ROLE_BINDING, CONFIG_MAP, ROLE_BINDING, SECRET,
};
pub(crate) use cluster::{EVENT, LEASE, NAMESPACE, NODE, PRIORITY_CLASS, RESOURCE_QUOTA, RUNTIME_CLASS};
pub(crate) use network::{ENDPOINT_SLICE, ENDPOINTS, SERVICE};
pub(crate) use pod::{POD, is_over as completed_pod_condition};
pub(crate) use workload::{CONTROLLER_REVISION, DAEMON_SET, POD_DISRUPTION_BUDGET, POD_TEMPLATE};

/// A column of a table.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    /// The OpenAPI type of the cells, by which kubectl aligns and sorts.
    pub(crate) cells: &'static str,
    /// Shown only with `-o wide`.
    pub(crate) wide: bool,
    doc: Doc,
    pub(crate) cell: fn(&Value, Timestamp) -> Value,
}

/// Source of a column's description.
#[derive(Debug, Clone, Copy)]
enum Doc {
    Says(&'static str),
    /// The description of this field of the object.
    Field(&'static str),
}

use Doc::{Field, Says};

impl Column {
    /// The description of the column. `stored` is the kind in its storage version.
    pub(crate) fn description(&self, stored: GroupVersionKind<'_>) -> &'static str {
        match self.doc {
            Says(text) => text,
            Field(path) => described(stored, path).unwrap_or_default(),
        }
    }

    pub(crate) fn format(&self) -> &'static str {
        if self.name == "Name" { "name" } else { "" }
    }

    const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }
}

fn described(kind: GroupVersionKind<'_>, path: &str) -> Option<&'static str> {
    let mut shape = Shape::Object(types::of(kind.group, kind.version, kind.kind)?);
    let mut description = None;
    for name in path.split('.') {
        let Shape::Object(of) = shape else { return None };
        let field = of.field(name)?;
        (shape, description) = (field.shape, Some(field.description));
    }
    description
}

const fn text(name: &'static str, doc: Doc, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { name, cells: "string", wide: false, doc, cell }
}

const fn number(name: &'static str, doc: Doc, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { name, cells: "integer", wide: false, doc, cell }
}

const fn boolean(name: &'static str, doc: Doc, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column { name, cells: "boolean", wide: false, doc, cell }
}

const NAME: Column = text("Name", Field("metadata.name"), |it, _| it["metadata"]["name"].clone());
const AGE: Column = text("Age", Field("metadata.creationTimestamp"), |it, now| {
    json!(age(&it["metadata"]["creationTimestamp"], now))
});

pub(crate) const NAME_AND_AGE: &[Column] = &[NAME, AGE];

/// The default columns of a kind without columns of its own.
pub(crate) const NAME_AND_CREATED: &[Column] = &[
    NAME,
    Column {
        cells: "date",
        ..text("Created At", Field("metadata.creationTimestamp"), |it, _| {
            it["metadata"]["creationTimestamp"].clone()
        })
    },
];

/// Columns of resource metrics. Upstream: metrics-server.
pub(crate) const RESOURCE_METRICS: &[Column] = &[
    Column { doc: Says("Name of the resource"), ..NAME },
    text("CPU", Says("Processor time that is used"), |it, _| total_used(it, "cpu")),
    text("Memory", Says("Memory that is used and cannot be taken away"), |it, _| total_used(it, "memory")),
    text("Window", Says("Over which time it was measured"), |it, _| it["window"].clone()),
];

/// Usage of a node, or of all containers of a pod together.
pub(crate) fn total_used(object: &Value, resource: &str) -> Value {
    let own = str_at(object, &format!("usage.{resource}")).to_owned();
    if !own.is_empty() {
        return json!(own);
    }
    let suffix = if resource == "cpu" { "n" } else { "Ki" };
    let of = |it: &Value| it["usage"][resource].as_str()?.strip_suffix(suffix)?.parse::<u64>().ok();
    let sum: u64 = list(object, "containers").iter().filter_map(of).sum();
    json!(format!("{sum}{suffix}"))
}

/// Time since `since` as kubectl prints it.
fn age(since: &Value, now: Timestamp) -> String {
    since
        .as_str()
        .and_then(|it| it.parse::<Timestamp>().ok())
        .map_or_else(|| "<unknown>".to_owned(), |since| human_duration(now.duration_since(since).as_secs()))
}

/// Prints a duration with at most two units. Upstream: `duration.HumanDuration`.
fn human_duration(s: i64) -> String {
    let (m, h, d) = (s / 60, s / 3600, s / 86400);
    let two = |much: i64, unit: &str, rest: i64, rest_unit: &str| match rest {
        0 => format!("{much}{unit}"),
        rest => format!("{much}{unit}{rest}{rest_unit}"),
    };
    match () {
        // Small clock skew is ignored.
        () if s < -1 => "<invalid>".to_owned(),
        () if s < 0 => "0s".to_owned(),
        () if s < 120 => format!("{s}s"),
        () if m < 10 => two(m, "m", s % 60, "s"),
        () if m < 180 => format!("{m}m"),
        () if h < 8 => two(h, "h", m % 60, "m"),
        () if h < 48 => format!("{h}h"),
        () if h < 24 * 8 => two(d, "d", h % 24, "h"),
        () if d < 365 * 2 => format!("{d}d"),
        () if d < 365 * 8 => two(d / 365, "y", d % 365, "d"),
        () => format!("{}y", d / 365),
    }
}

fn label_list(labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let labels: Vec<_> = labels.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    or(&labels.join(","), "<none>").to_owned()
}

/// A label selector as text, ordered by key.
fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(k, v)| (k.as_str(), format!("{k}={}", v.as_str().unwrap_or_default())));
    let expressions = list(selector, "matchExpressions").iter().map(|it| {
        let mut values: Vec<_> = list(it, "values").iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let (key, values) = (str_at(it, "key"), values.join(","));
        let text = match str_at(it, "operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        };
        (key, text)
    });
    let mut all: Vec<_> = labels.chain(expressions).collect();
    all.sort_by_key(|(key, _)| *key);
    let all: Vec<_> = all.into_iter().map(|(_, text)| text).collect();
    or(&all.join(","), "<none>").to_owned()
}

/// Names or images of the containers of a template.
fn containers(template: &Value, field: &str) -> String {
    let containers = list(&template["spec"], "containers");
    containers.iter().map(|it| str_at(it, field)).collect::<Vec<_>>().join(",")
}

/// Prints the first three items, and the number of the others.
fn at_most_three(mut all: Vec<String>) -> String {
    const MAX: usize = 3;
    let more = all.len().saturating_sub(MAX);
    all.truncate(MAX);
    let shown = all.join(",");
    if more == 0 { shown } else { format!("{shown} + {more} more...") }
}

fn count(value: &Value) -> Value {
    json!(value.as_i64().unwrap_or(0))
}

fn size(map: &Value) -> usize {
    map.as_object().map_or(0, serde_json::Map::len)
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::kinds::KINDS;

    /// The rows of a table as kubectl would print them, but with one space between the cells.
    pub(super) fn rows(columns: &[Column], objects: &[Value]) -> String {
        let now = "2026-01-10T00:00:00Z".parse::<Timestamp>().unwrap();
        let mut said = String::new();
        for object in objects {
            let cells: Vec<_> = columns
                .iter()
                .map(|it| match (it.cell)(object, now) {
                    Value::String(text) => text,
                    other => other.to_string(),
                })
                .collect();
            writeln!(said, "{}", cells.join(" | ")).unwrap();
        }
        said
    }

    #[test]
    fn ages_are_said_as_kubectl_says_them() {
        let now = "2026-01-10T00:00:00Z".parse::<Timestamp>().unwrap();
        let ago = |s: i64| age(&json!(Timestamp::from_second(now.as_second() - s).unwrap().to_string()), now);
        let said =
            [-1, 0, 119, 120, 599, 600, 10_799, 10_800, 28_801, 172_800, 700_000, 86_400 * 800].map(ago);
        let kubectl = ["0s", "0s", "119s", "2m", "9m59s", "10m", "179m", "3h", "8h", "2d", "8d", "2y70d"]
            .map(str::to_owned);
        assert_eq!(said, kubectl);
        assert_eq!(age(&Value::Null, now), "<unknown>");
    }

    #[test]
    fn every_column_says_what_it_shows() {
        for kind in KINDS {
            for column in kind.columns {
                assert_ne!(
                    column.description(kind.stored().gvk()),
                    "",
                    "{} {}",
                    kind.resource(),
                    column.name
                );
            }
        }
    }

    #[test]
    fn a_selector_is_said_by_key() {
        let said = selector(&json!({
            "matchLabels": {"b": "1", "d": "2"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["y", "x"]},
                {"key": "a", "operator": "DoesNotExist"},
                {"key": "e", "operator": "Exists"},
            ],
        }));
        assert_eq!(said, "!a,b=1,c in (x,y),d=2,e");
        assert_eq!(selector(&json!({})), "<none>");
    }
}
