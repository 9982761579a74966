//! Validation of objects before they are stored, with one function for each kind. Messages and their order are
//! upstream's, because clients print them and users search for them.
//!
//! A function `check_…` with an argument `out` adds the errors that it finds to `out`. Its argument `at` is the path of
//! the checked value.
//!
//! Upstream: `pkg/apis/*/validation`.

/// IP addresses and CIDRs.
mod address;
/// Containers of pods.
mod container;
/// DaemonSets and ControllerRevisions.
mod daemonset;
/// References of the downward API.
mod downward_api;
/// Validation errors and the paths of fields.
pub(crate) mod field_error;
/// File paths in pod specs.
mod file_path;
/// Labels and label selectors.
mod labels;
/// `metadata` of all kinds.
pub(crate) mod metadata;
/// Services, Endpoints and EndpointSlices.
mod network;
/// Nodes.
mod node;
/// ConfigMaps, Secrets and the other kinds without a module of their own.
mod other_kinds;
/// Pods and pod templates.
mod pod;
/// Updates of pods.
mod pod_update;
/// Probes and lifecycle hooks.
mod probe;
/// LimitRanges and ResourceQuotas.
mod quota;
/// RBAC kinds and CertificateSigningRequests.
pub(crate) mod rbac_and_certificates;
/// Resource names and quantities, the resources of all containers of a pod, and `matchLabelKeys`.
pub(crate) mod resources;
/// RolloutPolicies, ClusterRolloutPolicies and DaemonRollouts (`muster.dev`).
mod rollouts;
/// RuntimeClasses.
mod runtime_class;
/// Tolerations, taints, affinity and topology spread constraints.
mod scheduling;
/// Security contexts.
mod security;
/// Volumes.
pub(crate) mod volume;
/// Warnings about valid objects with deprecated or suspicious fields.
pub(crate) mod warnings;

pub(crate) use muster_api::names;
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
pub(crate) use self::rollouts::{
    validate_cluster_rollout_policy, validate_daemon_rollout, validate_rollout_policy,
};
pub(crate) use self::runtime_class::validate_runtime_class;
pub(crate) use self::security::is_valid_app_armor_profile;
use crate::subresource::Subresource;
use crate::unstructured::{is_set, str_at};

/// A create or update of an object, which a validation function checks.
pub(crate) struct WriteToValidate<'a> {
    /// The object that would be stored.
    pub(crate) new: &'a Value,
    /// The stored object, or `None` on create.
    pub(crate) old: Option<&'a Value>,
    /// The written subresource.
    pub(crate) subresource: Subresource,
}

impl WriteToValidate<'_> {
    /// Whether the write is an update of `/status`.
    fn is_status_update(&self) -> bool {
        self.subresource == Subresource::Status
    }
}

/// Checks nothing. It is the validation function of kinds that need no checks besides those of `metadata`.
pub(crate) fn no_validation(_: &WriteToValidate, _: &mut FieldErrors) {}

/// Whether the field `name` of an object is present and not null. An empty object counts as present, like a non-nil
/// pointer in Go.
fn has_field(object: &Value, name: &str) -> bool {
    object.get(name).is_some_and(|it| !it.is_null())
}

/// Checks that each of these fields of the object is present and not empty.
fn check_required(object: &Value, fields: &[&str], at: &ErrorPath, out: &mut FieldErrors) {
    for field in fields {
        if !is_set(&object[field]) {
            out.required(&at.field(field), "");
        }
    }
}

/// Checks that a name is not empty and that `rule` returns no errors for it.
fn check_required_name(name: &str, rule: fn(&str) -> Vec<String>, at: &ErrorPath, out: &mut FieldErrors) {
    if name.is_empty() {
        out.required(at, "");
    } else {
        out.invalid_for_each(at, name, rule(name));
    }
}

/// Checks that a string is one of the supported values. A value that is absent or not a string is valid.
fn check_choice(value: &Value, supported: &[&str], at: &ErrorPath, out: &mut FieldErrors) {
    if let Some(text) = value.as_str()
        && !supported.contains(&text)
    {
        out.unsupported(at, text, supported);
    }
}

/// Checks that the numbers in these fields of the object are not negative.
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

/// Checks that an immutable field has not changed.
fn check_immutable(new: &Value, old: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    if new != old {
        out.invalid(at, new, metadata::IMMUTABLE_MESSAGE);
    }
}

/// Checks that a value is a non-negative number or a percentage. An absent value is valid.
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
fn parse_percent(value: &Value) -> Option<u64> {
    value.as_str().and_then(names::parse_percent)
}

/// Checks that a percentage is at most 100%. A value that is not a percentage is valid.
fn check_not_above_100_percent(value: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    if parse_percent(value).is_some_and(|it| 100 < it) {
        out.invalid(at, value, "must not be greater than 100%");
    }
}

/// Formats an object for an error message, as Go prints the struct of upstream's internal type. `fields` contains the
/// Go name and the JSON name of each field, in the order of the struct. An absent field is printed as an empty string,
/// or as null if it is a pointer in Go.
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
    InvalidValue::Formatted(format!("{{{}}}", go_fields.join(",")).into())
}

/// Returns the key-value pairs of a map of labels, such as a node selector.
fn label_pairs(labels: &Value) -> impl Iterator<Item = (&String, &Value)> {
    labels.as_object().into_iter().flatten()
}

/// Checks that the string at the dotted path `field` is a DNS subdomain, if it is set.
fn check_optional_name(object: &Value, field: &str, at: &ErrorPath, out: &mut FieldErrors) {
    let name = str_at(object, field);
    if !name.is_empty() {
        out.invalid_for_each(&at.field(field), name, names::dns_subdomain_errors(name));
    }
}

#[cfg(test)]
mod tests;
