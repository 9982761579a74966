//! Validation of DaemonRollout, and of conditions.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::{CHECKS_MAX, FAULTY_NODES_MAX, FieldValidator, InvalidField, REPORT_LENGTH_MAX};
use crate::muster_v1alpha1::daemon_rollout::{DaemonRolloutSpec, DaemonRolloutStatus, StatusCondition};
use crate::muster_v1alpha1::values::{CheckOutcome, ReportedResult, RolloutPhase};
use crate::names;

impl DaemonRolloutSpec {
    pub fn validate(&self) -> Vec<InvalidField> {
        let mut out = FieldValidator::new("spec");
        if let Some(approve) = &self.approve {
            out.field("approve", |it| {
                it.name("revision", &approve.revision, names::label_value_errors);
                it.name("step", &approve.step, approved_step_errors);
            });
        }
        if let Some(abort) = &self.abort {
            out.field("abort", |it| it.name("revision", &abort.revision, names::label_value_errors));
        }
        if let Some(retry) = &self.retry {
            out.field("retry", |it| {
                it.name("revision", &retry.revision, names::label_value_errors);
                it.number("attempt", retry.attempt, 1, i32::MAX);
            });
        }
        out.at_most("checkReports", self.check_reports.len(), CHECKS_MAX);
        out.items("checkReports", &self.check_reports, |it, _, report| {
            it.name("check", &report.check, names::dns_label_errors);
            it.name("revision", &report.revision, names::label_value_errors);
            it.choice("result", report.result.as_str(), ReportedResult::VALUES);
            let message = report.message.as_deref().unwrap_or_default();
            it.field("message", |it| it.not_too_long(message, REPORT_LENGTH_MAX));
        });
        out.unique("checkReports", Some("check"), self.check_reports.iter().map(|it| it.check.as_str()));
        out.invalid
    }
}

fn approved_step_errors(step: &str) -> Vec<String> {
    if step == "*" || names::dns_label_errors(step).is_empty() {
        return Vec::new();
    }
    vec!["must be the name of a step, or * for all steps".into()]
}

impl DaemonRolloutStatus {
    pub fn validate(&self) -> Vec<InvalidField> {
        let mut out = FieldValidator::new("status");
        out.choice("phase", self.phase.as_str(), RolloutPhase::VALUES);
        out.field("failures", |it| {
            it.at_most("nodes", self.failures.nodes.len(), FAULTY_NODES_MAX);
            it.at_most("excused", self.failures.excused.len(), FAULTY_NODES_MAX);
        });
        out.items("checks", &self.checks, |it, _, check| {
            it.length("name", &check.name, usize::MAX);
            it.choice("result", check.result.as_str(), CheckOutcome::VALUES);
        });
        out.unique("checks", Some("name"), self.checks.iter().map(|it| it.name.as_str()));
        check_conditions(&self.conditions, &mut out);
        out.invalid
    }
}

/// Checks the conditions of a status. Upstream: `ValidateConditions`.
pub(super) fn check_conditions(conditions: &[StatusCondition], out: &mut FieldValidator) {
    const REASON_LENGTH_MAX: usize = 1024;
    const MESSAGE_LENGTH_MAX: usize = 32 * 1024;
    out.items("conditions", conditions, |it, _, condition| {
        it.name("type", &condition.type_, names::qualified_name_errors);
        it.choice("status", &condition.status, &["True", "False", "Unknown"]);
        if let Some(generation) = condition.observed_generation.filter(|it| *it < 0) {
            it.field("observedGeneration", |it| {
                it.invalid(generation, "must be greater than or equal to zero");
            });
        }
        if condition.last_transition_time.is_none() {
            it.field("lastTransitionTime", |it| it.required("must be set"));
        }
        it.length("reason", &condition.reason, REASON_LENGTH_MAX);
        it.field("message", |it| it.not_too_long(&condition.message, MESSAGE_LENGTH_MAX));
    });
    out.unique("conditions", Some("type"), conditions.iter().map(|it| it.type_.as_str()));
}
