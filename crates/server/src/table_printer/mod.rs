//! Tables for `kubectl get`: the columns of each kind. Upstream: `printers/internalversion`.

/// Columns of Namespaces, Nodes, Events, Leases, PriorityClasses, RuntimeClasses and ResourceQuotas.
mod cluster;
/// Columns of ConfigMaps, Secrets, role bindings and CertificateSigningRequests.
mod config_and_auth;
/// Columns of Services, Endpoints and EndpointSlices.
mod network;
/// Columns of pods.
mod pod;
/// Columns of DaemonRollouts and rollout policies.
mod rollout;
/// Columns of DaemonSets, PodTemplates, ControllerRevisions and PodDisruptionBudgets.
mod workload;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::types::{Shape, Type};
use crate::unstructured::{list_at, str_at};

pub(crate) use cluster::{
    EVENT_COLUMNS, LEASE_COLUMNS, NAMESPACE_COLUMNS, NODE_COLUMNS, PRIORITY_CLASS_COLUMNS,
    RESOURCE_QUOTA_COLUMNS, RUNTIME_CLASS_COLUMNS,
};
pub(crate) use config_and_auth::{
    CERTIFICATE_SIGNING_REQUEST_COLUMNS, CLUSTER_ROLE_BINDING_COLUMNS, CONFIG_MAP_COLUMNS,
    ROLE_BINDING_COLUMNS, SECRET_COLUMNS,
};
pub(crate) use network::{ENDPOINT_SLICE_COLUMNS, ENDPOINTS_COLUMNS, SERVICE_COLUMNS};
pub(crate) use pod::{POD_COLUMNS, completed_condition as completed_pod_condition};
pub(crate) use rollout::{DAEMON_ROLLOUT_COLUMNS, ROLLOUT_POLICY_COLUMNS};
pub(crate) use workload::{
    CONTROLLER_REVISION_COLUMNS, DAEMON_SET_COLUMNS, POD_DISRUPTION_BUDGET_COLUMNS, POD_TEMPLATE_COLUMNS,
};

/// A column of a table that `kubectl get` prints.
#[derive(Debug)]
pub(crate) struct Column {
    /// Column header.
    pub(crate) name: &'static str,
    /// OpenAPI type of the column, such as `string`.
    pub(crate) cell_type: &'static str,
    /// Whether the column is shown only with `-o wide`.
    pub(crate) wide: bool,
    description: ColumnDescription,
    /// Function that returns the cell of an object. The second argument is the current time.
    pub(crate) cell: fn(&Value, Timestamp) -> Value,
}

/// The description of a column: a text, or a reference to the description of a field.
#[derive(Debug, Clone, Copy)]
enum ColumnDescription {
    /// This text.
    Literal(&'static str),
    /// The description of the field at this dotted path, from the type table.
    Field(&'static str),
}

use ColumnDescription::{Field, Literal};

impl Column {
    /// Returns the description of the column. `stored` is the type of the objects in their storage version.
    pub(crate) fn description(&self, stored: Option<&'static Type>) -> &'static str {
        match self.description {
            Literal(text) => text,
            Field(path) => field_description(stored, path).unwrap_or_default(),
        }
    }

    /// Returns the OpenAPI format of the column. kubectl recognizes the primary name column by the format `name`.
    pub(crate) fn column_format(&self) -> &'static str {
        if self.name == "Name" { "name" } else { "" }
    }

    /// Returns the column with `wide` set, so that it is shown only with `-o wide`.
    const fn only_wide(self) -> Self {
        Self { wide: true, ..self }
    }
}

/// Returns the description of the field at a dotted path of a type, or `None` if the type does not contain the field.
fn field_description(of: Option<&'static Type>, path: &str) -> Option<&'static str> {
    let mut shape = Shape::Object(of?);
    let mut description = None;
    for name in path.split('.') {
        let Shape::Object(of) = shape else { return None };
        let field = of.field(name)?;
        (shape, description) = (field.shape, Some(field.description));
    }
    description
}

/// Creates a column of the type `string`. `doc` is its description.
const fn text_column(
    name: &'static str,
    doc: ColumnDescription,
    cell: fn(&Value, Timestamp) -> Value,
) -> Column {
    Column { name, cell_type: "string", wide: false, description: doc, cell }
}

/// Creates a column of the type `integer`. `doc` is its description.
const fn integer_column(
    name: &'static str,
    doc: ColumnDescription,
    cell: fn(&Value, Timestamp) -> Value,
) -> Column {
    Column { name, cell_type: "integer", wide: false, description: doc, cell }
}

/// Creates a column of the type `boolean`. `doc` is its description.
const fn boolean_column(
    name: &'static str,
    doc: ColumnDescription,
    cell: fn(&Value, Timestamp) -> Value,
) -> Column {
    Column { name, cell_type: "boolean", wide: false, description: doc, cell }
}

/// The column with the name of the object.
const NAME_COLUMN: Column =
    text_column("Name", Field("metadata.name"), |it, _| it["metadata"]["name"].clone());
/// The column with the time since the object was created.
const AGE_COLUMN: Column = text_column("Age", Field("metadata.creationTimestamp"), |it, now| {
    json!(format_age(&it["metadata"]["creationTimestamp"], now))
});

/// The columns of a kind that shows only name and age.
pub(crate) const NAME_AND_AGE_COLUMNS: &[Column] = &[NAME_COLUMN, AGE_COLUMN];

/// The columns name and creation time, for kinds for which upstream defines no columns.
pub(crate) const NAME_AND_CREATED_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    Column {
        cell_type: "date",
        ..text_column("Created At", Field("metadata.creationTimestamp"), |it, _| {
            it["metadata"]["creationTimestamp"].clone()
        })
    },
];

/// The columns of NodeMetrics and PodMetrics. Upstream: metrics-server.
pub(crate) const RESOURCE_METRICS_COLUMNS: &[Column] = &[
    Column { description: Literal("Name of the resource"), ..NAME_COLUMN },
    text_column("CPU", Literal("Processor time that is used"), |it, _| total_usage(it, "cpu")),
    text_column("Memory", Literal("Memory that is used and cannot be taken away"), |it, _| {
        total_usage(it, "memory")
    }),
    text_column("Window", Literal("Over which time it was measured"), |it, _| it["window"].clone()),
];

/// Returns the CPU or memory usage (`resource` is `cpu` or `memory`) of the node in a NodeMetrics, or the sum over all
/// containers in a PodMetrics.
pub(crate) fn total_usage(object: &Value, resource: &str) -> Value {
    let own = str_at(object, &format!("usage.{resource}")).to_owned();
    if !own.is_empty() {
        return json!(own);
    }
    let suffix = if resource == "cpu" { "n" } else { "Ki" };
    let of = |it: &Value| it["usage"][resource].as_str()?.strip_suffix(suffix)?.parse::<u64>().ok();
    let sum: u64 = list_at(object, "containers").iter().filter_map(of).sum();
    json!(format!("{sum}{suffix}"))
}

/// Formats the time between `since` and `now` as kubectl prints ages. Returns `<unknown>` if `since` is not a time.
fn format_age(since: &Value, now: Timestamp) -> String {
    since
        .as_str()
        .and_then(|it| it.parse::<Timestamp>().ok())
        .map_or_else(|| "<unknown>".to_owned(), |since| human_duration(now.duration_since(since).as_secs()))
}

/// Formats a duration in seconds with at most two units, such as `3d4h`. A negative duration is `<invalid>`, except for
/// -1, which is `0s`. Upstream: `duration.HumanDuration`.
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

/// Formats a map of labels, such as `a=1,b=2`, or `<none>` if it is empty.
fn format_labels(labels: &Value) -> String {
    let labels = labels.as_object().into_iter().flatten();
    let labels: Vec<_> = labels.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    non_empty_or(&labels.join(","), "<none>").to_owned()
}

/// Formats a label selector with its requirements ordered by key, or `<none>` if it is empty.
fn format_selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(k, v)| (k.as_str(), format!("{k}={}", v.as_str().unwrap_or_default())));
    let expressions = list_at(selector, "matchExpressions").iter().map(|it| {
        let mut values: Vec<_> = list_at(it, "values").iter().filter_map(Value::as_str).collect();
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
    non_empty_or(&all.join(","), "<none>").to_owned()
}

/// Returns the values of a container field, such as `image`, of all containers of a pod template, joined with commas.
fn container_field_list(template: &Value, field: &str) -> String {
    let containers = list_at(&template["spec"], "containers");
    containers.iter().map(|it| str_at(it, field)).collect::<Vec<_>>().join(",")
}

/// Joins the first three items with commas and appends the number of other items, such as `a,b,c + 2 more...`.
fn format_first_three(mut all: Vec<String>) -> String {
    /// Number of items that are shown before the rest is summarized as `+ N more...`.
    const SHOWN_ITEMS_MAX: usize = 3;
    let more = all.len().saturating_sub(SHOWN_ITEMS_MAX);
    all.truncate(SHOWN_ITEMS_MAX);
    let shown = all.join(",");
    if more == 0 { shown } else { format!("{shown} + {more} more...") }
}

/// Returns the value if it is an integer, otherwise 0.
fn integer_or_zero(value: &Value) -> Value {
    json!(value.as_i64().unwrap_or(0))
}

/// Returns the number of entries of a map, or 0 if it is absent.
fn entry_count(map: &Value) -> usize {
    map.as_object().map_or(0, serde_json::Map::len)
}

/// Returns the text, or `otherwise` if the text is empty.
fn non_empty_or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::kinds::WRITABLE_KINDS;

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
    fn ages_are_formatted_as_by_kubectl() {
        let now = "2026-01-10T00:00:00Z".parse::<Timestamp>().unwrap();
        let ago = |s: i64| {
            format_age(&json!(Timestamp::from_second(now.as_second() - s).unwrap().to_string()), now)
        };
        let said =
            [-1, 0, 119, 120, 599, 600, 10_799, 10_800, 28_801, 172_800, 700_000, 86_400 * 800].map(ago);
        let kubectl = ["0s", "0s", "119s", "2m", "9m59s", "10m", "179m", "3h", "8h", "2d", "8d", "2y70d"]
            .map(str::to_owned);
        assert_eq!(said, kubectl);
        assert_eq!(format_age(&Value::Null, now), "<unknown>");
    }

    #[test]
    fn every_column_has_a_description() {
        for kind in WRITABLE_KINDS {
            for column in kind.columns {
                assert_ne!(
                    column.description(kind.storage_kind().object_type()),
                    "",
                    "{} {}",
                    kind.group_resource(),
                    column.name
                );
            }
        }
    }

    #[test]
    fn a_selector_is_printed_by_key() {
        let said = format_selector(&json!({
            "matchLabels": {"b": "1", "d": "2"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["y", "x"]},
                {"key": "a", "operator": "DoesNotExist"},
                {"key": "e", "operator": "Exists"},
            ],
        }));
        assert_eq!(said, "!a,b=1,c in (x,y),d=2,e");
        assert_eq!(format_selector(&json!({})), "<none>");
    }
}
