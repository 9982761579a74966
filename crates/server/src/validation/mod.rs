//! Validation of objects before they are stored, one function for each kind. Messages and their order are upstream's,
//! because clients print them and users search for them.
//!
//! Upstream: `pkg/apis/*/validation`.

mod address;
pub(crate) mod authority;
mod container;
mod daemonset;
mod downward;
pub(crate) mod field_error;
mod file;
mod labels;
pub(crate) mod metadata;
pub(crate) mod names;
mod network;
mod node;
mod pod;
mod pod_change;
mod probe;
mod quota;
pub(crate) mod resources;
mod runtime_class;
mod scheduling;
mod security;
mod small;
pub(crate) mod volume;
pub(crate) mod warnings;

use serde_json::Value;

pub(crate) use self::authority::{cluster_role, cluster_role_binding, role, role_binding, signing_request};
pub(crate) use self::daemonset::{controller_revision, daemonset};
use self::field_error::{Bad, FieldErrors, Path};
pub(crate) use self::field_error::{FieldError, go_quoted};
pub(crate) use self::labels::selects;
pub(crate) use self::network::{endpoint_slice, endpoints, service};
pub(crate) use self::node::node;
pub(crate) use self::pod::{pod, pod_template};
pub(crate) use self::quota::{limit_range, resource_quota};
pub(crate) use self::runtime_class::runtime_class;
pub(crate) use self::security::is_app_armor_profile;
pub(crate) use self::small::{
    config_map, disruption_budget, event, lease, namespace, priority_class, secret,
};
use crate::subresource::Subresource;
use crate::unstructured::{is_set, str_at};

/// The write to validate: the object that would be stored, the stored object unless this is a create, and the
/// subresource.
pub(crate) struct Write<'a> {
    pub(crate) new: &'a Value,
    pub(crate) old: Option<&'a Value>,
    pub(crate) subresource: Subresource,
}

impl Write<'_> {
    fn is_status(&self) -> bool {
        self.subresource == Subresource::Status
    }
}

/// Does nothing: the validation function of kinds that need none.
pub(crate) fn nothing(_: &Write, _: &mut FieldErrors) {}

/// Whether a field is present and not null. An empty object counts as present, as a non-nil pointer does in Go.
fn has(object: &Value, name: &str) -> bool {
    object.get(name).is_some_and(|it| !it.is_null())
}

/// Checks that the fields are set.
fn required(object: &Value, fields: &[&str], at: &Path, out: &mut FieldErrors) {
    for field in fields {
        if !is_set(&object[field]) {
            out.required(&at.field(field), "");
        }
    }
}

/// Checks a required string against a syntax rule.
fn check_name(name: &str, rule: fn(&str) -> Vec<String>, at: &Path, out: &mut FieldErrors) {
    if name.is_empty() {
        out.required(at, "");
    } else {
        out.each(at, name, rule(name));
    }
}

/// Checks an optional string against the supported values.
fn check_choice(value: &Value, supported: &[&str], at: &Path, out: &mut FieldErrors) {
    if let Some(text) = value.as_str()
        && !supported.contains(&text)
    {
        out.unsupported(at, text, supported);
    }
}

/// Checks that the numbers in the fields are not negative.
fn not_negative(object: &Value, fields: &[&str], at: &Path, out: &mut FieldErrors) {
    for field in fields {
        if let Some(number) = object[field].as_i64().filter(|it| *it < 0) {
            out.invalid(&at.field(field), number, "must be greater than or equal to 0");
        }
    }
}

/// Checks that the number is greater than zero.
fn positive(number: i64, at: &Path, out: &mut FieldErrors) {
    if number <= 0 {
        out.invalid(at, number, "must be greater than zero");
    }
}

/// Checks that the value has not changed.
fn immutable(new: &Value, old: &Value, at: &Path, out: &mut FieldErrors) {
    if new != old {
        out.invalid(at, new, metadata::IMMUTABLE);
    }
}

/// Checks a value that is a number or a percentage.
fn check_int_or_percent(value: &Value, at: &Path, out: &mut FieldErrors) {
    match value.as_str() {
        Some(text) => {
            for why in names::percent(text) {
                out.invalid(at, text, &why);
            }
        }
        None => {
            if let Some(number) = value.as_i64().filter(|it| *it < 0) {
                out.invalid(at, number, "must be greater than or equal to 0");
            }
        }
    }
}

/// The number of a percentage such as `25%`; `None` for other values.
fn percent_of(value: &Value) -> Option<i64> {
    let text = value.as_str().filter(|it| names::percent(it).is_empty())?;
    Some(text.trim_end_matches('%').parse().unwrap_or(i64::MAX))
}

fn check_not_above_100_percent(value: &Value, at: &Path, out: &mut FieldErrors) {
    if percent_of(value).is_some_and(|it| 100 < it) {
        out.invalid(at, value, "must not be greater than 100%");
    }
}

/// Formats an object like a Go struct of upstream's internal types in error messages: every field, in order, by its Go
/// name. Missing strings are empty.
fn in_go(object: &Value, fields: &[(&str, &str)]) -> Bad<'static> {
    let go_fields: Vec<_> = fields
        .iter()
        .map(|(go, json)| match &object[json] {
            Value::Null
                if matches!(
                    *go,
                    "TimeAdded" | "TolerationSeconds" | "ResourceClaimName" | "ResourceClaimTemplateName"
                ) =>
            {
                format!("\"{go}\":null")
            }
            Value::Null => format!("\"{go}\":\"\""),
            it => format!("\"{go}\":{it}"),
        })
        .collect();
    Bad::Said(format!("{{{}}}", go_fields.join(",")))
}

/// The key-value pairs of a label map.
fn labels_of(labels: &Value) -> impl Iterator<Item = (&String, &Value)> {
    labels.as_object().into_iter().flatten()
}

/// Checks an optional object name at a dotted path.
fn check_reference(object: &Value, field: &str, at: &Path, out: &mut FieldErrors) {
    let name = str_at(object, field);
    if !name.is_empty() {
        out.each(&at.field(field), name, names::dns_subdomain(name));
    }
}

#[cfg(test)]
mod tests;
