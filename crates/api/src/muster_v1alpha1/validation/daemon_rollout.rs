//! Validation of DaemonRollouts, and of the conditions in a status.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{CHECKS_MAX, FAULTY_NODES_MAX, FieldValidator, InvalidField, REPORT_LENGTH_MAX};
use crate::muster_v1alpha1::daemon_rollout::{DaemonRolloutSpec, DaemonRolloutStatus, StatusCondition};
use crate::muster_v1alpha1::values::{CheckOutcome, ReportedResult, RolloutPhase};
use crate::names;

impl DaemonRolloutSpec {
    /// Returns the validation errors of the spec, or an empty list if it is valid.
    pub fn validate(&self) -> Vec<InvalidField> {
        let mut out = FieldValidator::new("spec");
        if let Some(approve) = &self.approve {
            out.in_field("approve", |it| {
                it.check_text_field("revision", &approve.revision, names::label_value_errors);
                it.check_text_field("step", &approve.step, approved_step_errors);
            });
        }
        if let Some(abort) = &self.abort {
            out.in_field("abort", |it| {
                it.check_text_field("revision", &abort.revision, names::label_value_errors)
            });
        }
        if let Some(retry) = &self.retry {
            out.in_field("retry", |it| {
                it.check_text_field("revision", &retry.revision, names::label_value_errors);
                it.check_number("attempt", retry.attempt, 1, i32::MAX);
            });
        }
        out.check_count("checkReports", self.check_reports.len(), CHECKS_MAX);
        out.for_each_item("checkReports", &self.check_reports, |it, _, report| {
            it.check_text_field("check", &report.check, names::dns_label_errors);
            it.check_text_field("revision", &report.revision, names::label_value_errors);
            it.check_choice("result", report.result.as_str(), ReportedResult::VALUES);
            let message = report.message.as_deref().unwrap_or_default();
            it.in_field("message", |it| it.check_not_too_long(message, REPORT_LENGTH_MAX));
        });
        out.check_unique(
            "checkReports",
            Some("check"),
            self.check_reports.iter().map(|it| it.check.as_str()),
        );
        out.invalid
    }
}

/// Returns the validation errors of the name of an approved step, which may be `*`.
fn approved_step_errors(step: &str) -> Vec<String> {
    if step == "*" || names::dns_label_errors(step).is_empty() {
        return Vec::new();
    }
    vec!["must be the name of a step, or * for all steps".into()]
}

impl DaemonRolloutStatus {
    /// Returns the validation errors of the status, or an empty list if it is valid.
    pub fn validate(&self) -> Vec<InvalidField> {
        let mut out = FieldValidator::new("status");
        out.check_choice("phase", self.phase.as_str(), RolloutPhase::VALUES);
        out.in_field("failures", |it| {
            it.check_count("nodes", self.failures.nodes.len(), FAULTY_NODES_MAX);
            it.check_count("excused", self.failures.excused.len(), FAULTY_NODES_MAX);
        });
        out.for_each_item("checks", &self.checks, |it, _, check| {
            it.check_length("name", &check.name, usize::MAX);
            it.check_choice("result", check.result.as_str(), CheckOutcome::VALUES);
        });
        out.check_unique("checks", Some("name"), self.checks.iter().map(|it| it.name.as_str()));
        check_conditions(&self.conditions, &mut out);
        out.invalid
    }
}

/// Checks the conditions of a status. Upstream: `ValidateConditions`.
pub(super) fn check_conditions(conditions: &[StatusCondition], out: &mut FieldValidator) {
    /// Maximum length of the reason of a condition.
    const REASON_LENGTH_MAX: usize = 1024;
    /// Maximum length of the message of a condition.
    const MESSAGE_LENGTH_MAX: usize = 32 * 1024;
    out.for_each_item("conditions", conditions, |it, _, condition| {
        it.check_text_field("type", &condition.type_, names::qualified_name_errors);
        it.check_choice("status", &condition.status, &["True", "False", "Unknown"]);
        if let Some(generation) = condition.observed_generation.filter(|it| *it < 0) {
            it.in_field("observedGeneration", |it| {
                it.add_invalid_error(generation, "must be greater than or equal to zero");
            });
        }
        if condition.last_transition_time.is_none() {
            it.in_field("lastTransitionTime", |it| it.add_required_error("must be set"));
        }
        it.check_length("reason", &condition.reason, REASON_LENGTH_MAX);
        it.in_field("message", |it| it.check_not_too_long(&condition.message, MESSAGE_LENGTH_MAX));
    });
    out.check_unique("conditions", Some("type"), conditions.iter().map(|it| it.type_.as_str()));
}
