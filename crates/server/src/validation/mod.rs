//! Validation of objects before they are stored, one function for each kind. Messages and their order are upstream's,
//! because clients print them and users search for them.
//!
//! Upstream: `pkg/apis/*/validation`.

mod address;
mod container;
mod daemonset;
mod downward_api;
pub(crate) mod field_error;
mod file_path;
mod labels;
pub(crate) mod metadata;
pub(crate) mod names;
mod network;
mod node;
mod other_kinds;
mod pod;
mod pod_update;
mod probe;
mod quota;
pub(crate) mod rbac_and_certificates;
pub(crate) mod resources;
mod runtime_class;
mod scheduling;
mod security;
pub(crate) mod volume;
pub(crate) mod warnings;

use serde_json::Value;

pub(crate) use self::daemonset::{validate_controller_revision, validate_daemonset};
use self::field_error::{ErrorPath, FieldErrors, InvalidValue};
pub(crate) use self::field_error::{FieldError, go_quoted};
pub(crate) use self::labels::selector_matches;
pub(crate) use self::network::{validate_endpoint_slice, validate_endpoints, validate_service};
pub(crate) use self::node::validate_node;
pub(crate) use self::other_kinds::{
    validate_config_map, validate_disruption_budget, validate_event, validate_lease, validate_namespace,
    validate_priority_class, validate_secret,
};
pub(crate) use self::pod::{validate_pod, validate_pod_template};
pub(crate) use self::quota::{validate_limit_range, validate_resource_quota};
pub(crate) use self::rbac_and_certificates::{
    validate_cluster_role, validate_cluster_role_binding, validate_role, validate_role_binding,
    validate_signing_request,
};
pub(crate) use self::runtime_class::validate_runtime_class;
pub(crate) use self::security::is_valid_app_armor_profile;
use crate::subresource::Subresource;
use crate::unstructured::{is_set, str_at};

/// The write to validate: the object that would be stored, the stored object (`None` on create), and the written
/// subresource.
pub(crate) struct ValidatedWrite<'a> {
    pub(crate) new: &'a Value,
    pub(crate) old: Option<&'a Value>,
    pub(crate) subresource: Subresource,
}

impl ValidatedWrite<'_> {
    fn is_status_update(&self) -> bool {
        self.subresource == Subresource::Status
    }
}

/// The validation function of kinds of which only the metadata is validated.
pub(crate) fn no_validation(_: &ValidatedWrite, _: &mut FieldErrors) {}

/// Whether a field is present and not null. An empty object is present, like a non-nil pointer in Go.
fn has_field(object: &Value, name: &str) -> bool {
    object.get(name).is_some_and(|it| !it.is_null())
}

/// Checks that the required fields are set.
fn check_required(object: &Value, fields: &[&str], at: &ErrorPath, out: &mut FieldErrors) {
    for field in fields {
        if !is_set(&object[field]) {
            out.required(&at.field(field), "");
        }
    }
}

/// Checks a required string against a syntax rule.
fn check_required_name(name: &str, rule: fn(&str) -> Vec<String>, at: &ErrorPath, out: &mut FieldErrors) {
    if name.is_empty() {
        out.required(at, "");
    } else {
        out.invalid_for_each(at, name, rule(name));
    }
}

/// Checks that a string, if it is present, is one of the supported values.
fn check_choice(value: &Value, supported: &[&str], at: &ErrorPath, out: &mut FieldErrors) {
    if let Some(text) = value.as_str()
        && !supported.contains(&text)
    {
        out.unsupported(at, text, supported);
    }
}

/// Checks that the numbers in the fields are not negative.
fn check_not_negative(object: &Value, fields: &[&str], at: &ErrorPath, out: &mut FieldErrors) {
    for field in fields {
        if let Some(number) = object[field].as_i64().filter(|it| *it < 0) {
            out.invalid(&at.field(field), number, "must be greater than or equal to 0");
        }
    }
}

/// Checks that the number is greater than zero.
fn check_positive(number: i64, at: &ErrorPath, out: &mut FieldErrors) {
    if number <= 0 {
        out.invalid(at, number, "must be greater than zero");
    }
}

/// Checks that the value has not changed.
fn check_immutable(new: &Value, old: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    if new != old {
        out.invalid(at, new, metadata::IMMUTABLE_MESSAGE);
    }
}

/// Checks a value that is a number or a percentage.
fn check_int_or_percent(value: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    match value.as_str() {
        Some(text) => {
            for why in names::percent_errors(text) {
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

/// Parses a percentage such as `25%`. Returns `None` for other values.
fn parse_percent(value: &Value) -> Option<i64> {
    let text = value.as_str().filter(|it| names::percent_errors(it).is_empty())?;
    Some(text.trim_end_matches('%').parse().unwrap_or(i64::MAX))
}

fn check_not_above_100_percent(value: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    if parse_percent(value).is_some_and(|it| 100 < it) {
        out.invalid(at, value, "must not be greater than 100%");
    }
}

/// Formats an object for an error message as Go prints the struct of upstream's internal type: every field, in order,
/// by its Go name. `fields` contains the Go name and the JSON name of each field. Missing strings are empty.
fn format_as_go_struct(object: &Value, fields: &[(&str, &str)]) -> InvalidValue<'static> {
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
    InvalidValue::Formatted(format!("{{{}}}", go_fields.join(",")))
}

/// The key-value pairs of a label map.
fn label_pairs(labels: &Value) -> impl Iterator<Item = (&String, &Value)> {
    labels.as_object().into_iter().flatten()
}

/// Checks an optional object name at a dotted path.
fn check_optional_name(object: &Value, field: &str, at: &ErrorPath, out: &mut FieldErrors) {
    let name = str_at(object, field);
    if !name.is_empty() {
        out.invalid_for_each(&at.field(field), name, names::dns_subdomain_errors(name));
    }
}

#[cfg(test)]
mod tests;
