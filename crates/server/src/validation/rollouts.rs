//! Validation of the kinds of `muster.dev`. The rules are in the crate `api`, because controllers use them too.

use muster_api::muster_v1alpha1::daemon_rollout::{DaemonRolloutSpec, DaemonRolloutStatus};
use muster_api::muster_v1alpha1::policy::{ClusterRolloutPolicySpec, RolloutPolicySpec, RolloutPolicyStatus};
use muster_api::muster_v1alpha1::validation::InvalidField;
use serde::Deserialize;
use serde_json::Value;

use super::WriteToValidate;
use super::field_error::{ErrorPath, FieldError, FieldErrors};

pub(crate) fn validate_rollout_policy(write: &WriteToValidate, out: &mut FieldErrors) {
    validate(write, RolloutPolicySpec::validate, RolloutPolicyStatus::validate, out);
}

pub(crate) fn validate_cluster_rollout_policy(write: &WriteToValidate, out: &mut FieldErrors) {
    validate(write, ClusterRolloutPolicySpec::validate, RolloutPolicyStatus::validate, out);
}

pub(crate) fn validate_daemon_rollout(write: &WriteToValidate, out: &mut FieldErrors) {
    validate(write, DaemonRolloutSpec::validate, DaemonRolloutStatus::validate, out);
}

/// Validates the status if the write is an update of `/status`, and otherwise the spec.
fn validate<'a, Spec: Deserialize<'a> + Default, Status: Deserialize<'a> + Default>(
    write: &WriteToValidate<'a>,
    validate_spec: fn(&Spec) -> Vec<InvalidField>,
    validate_status: fn(&Status) -> Vec<InvalidField>,
    out: &mut FieldErrors,
) {
    if write.is_status_update() {
        validate_spec_or_status("status", &write.new["status"], validate_status, out);
    } else {
        validate_spec_or_status("spec", &write.new["spec"], validate_spec, out);
    }
}

/// Decodes and validates the spec or the status. `name` is `spec` or `status`, for the path of a decoding error.
fn validate_spec_or_status<'a, T: Deserialize<'a> + Default>(
    name: &str,
    value: &'a Value,
    validate: fn(&T) -> Vec<InvalidField>,
    out: &mut FieldErrors,
) {
    match Option::<T>::deserialize(value) {
        Ok(part) => validate(&part.unwrap_or_default()).into_iter().for_each(|it| out.push(field_error(it))),
        Err(error) => out.invalid(&ErrorPath::new(name), value, &error.to_string()),
    }
}

/// Converts an error of the rules in the crate `api` to a field error of the API server.
fn field_error(invalid: InvalidField) -> FieldError {
    FieldError { reason: invalid.kind.reason(), message: invalid.message(), field: invalid.path }
}
