//! Computes the status of a policy.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use muster_api::muster_v1alpha1::daemon_rollout::StatusCondition;
use muster_api::muster_v1alpha1::policy::{PolicySetCounts, RolloutPolicyStatus};
use muster_api::object_key::ObjectKey;
use muster_api::text::truncate;
use muster_api::time::Time;

use super::PolicyKey;
use super::WatchedPolicy;
use super::decode::RolloutState;
use crate::daemonset::facts::ConditionStatus;

/// Maximum number of DaemonSets, or of invalid fields, that a message lists.
const LISTED_MAX: usize = 10;
/// Maximum length in bytes of an invalid field in a message. A longer text is cut.
const INVALID_FIELD_BYTES_MAX: usize = 512;

/// The types of the conditions that the controller writes. It keeps conditions of other types.
const CONDITION_TYPES: [&str; 3] = [CONDITION_ACCEPTED, CONDITION_READY, CONDITION_CONFLICT];
/// Type of the condition that reports whether all fields of the policy are valid.
const CONDITION_ACCEPTED: &str = "Accepted";
/// Type of the condition that reports whether the policy is in effect, that is, valid.
const CONDITION_READY: &str = "Ready";
/// Type of the condition that reports that another policy governs a DaemonSet which this policy selects.
const CONDITION_CONFLICT: &str = "Conflict";

/// Counts of the DaemonSets that one policy governs, and the DaemonSets that it selects but another policy governs.
#[derive(Debug, Default)]
pub(super) struct PolicySummary<'a> {
    counts: PolicySetCounts,
    /// The first [`LISTED_MAX`] DaemonSets that the policy selects but another policy governs, each with that other
    /// policy.
    conflicts: Vec<(&'a ObjectKey, &'a PolicyKey)>,
    /// Number of all DaemonSets that the policy selects but another policy governs.
    conflict_count: usize,
}

impl<'a> PolicySummary<'a> {
    /// Counts a DaemonSet that the policy governs, by the state of its rollout.
    pub(super) fn add_governed(&mut self, state: RolloutState) {
        self.counts.matched = self.counts.matched.saturating_add(1);
        let count = match state {
            RolloutState::Idle => return,
            RolloutState::Rolling => &mut self.counts.rolling,
            RolloutState::Waiting => &mut self.counts.waiting,
            RolloutState::Failed => &mut self.counts.failed,
        };
        *count = count.saturating_add(1);
    }

    /// Counts a DaemonSet that this policy selects, but that another policy governs.
    pub(super) fn add_conflict(&mut self, set: &'a ObjectKey, governing: &'a PolicyKey) {
        self.conflict_count += 1;
        if self.conflicts.len() < LISTED_MAX {
            self.conflicts.push((set, governing));
        }
    }
}

/// Computes the status of a policy. It equals the stored status if nothing has changed.
///
/// Rule: a policy is accepted and ready if all its fields are valid. The condition `Conflict` exists only while another
/// policy governs a DaemonSet that the policy selects.
pub(super) fn policy_status(
    policy: &WatchedPolicy,
    summary: &PolicySummary<'_>,
    now: Time,
) -> RolloutPolicyStatus {
    let generation = policy.policy.generation;
    let condition = |kind: &str, is_true: bool, reason: &str, message: String| {
        let value = if is_true { ConditionStatus::True } else { ConditionStatus::False }.as_str();
        let before = policy.status.conditions.iter().find(|it| it.type_ == kind && it.status == value);
        StatusCondition {
            type_: kind.into(),
            status: value.into(),
            observed_generation: Some(generation),
            last_transition_time: before.and_then(|it| it.last_transition_time).or(Some(now)),
            reason: reason.into(),
            message,
        }
    };
    let invalid = &policy.policy.invalid;
    let mut conditions = if invalid.is_empty() {
        Vec::from([
            condition(CONDITION_ACCEPTED, true, "Valid", "all fields are valid".into()),
            condition(CONDITION_READY, true, "Accepted", "the policy is in effect".into()),
        ])
    } else {
        let fields = join_entries(
            invalid.iter().map(|it| truncate(it, INVALID_FIELD_BYTES_MAX, "…").into_owned()),
            invalid.len(),
        );
        let held = format!("the DaemonSets of the policy are held until its fields are valid: {fields}");
        Vec::from([
            condition(CONDITION_ACCEPTED, false, "InvalidFields", fields),
            condition(CONDITION_READY, false, "InvalidFields", held),
        ])
    };
    if 0 < summary.conflict_count {
        let describe = |(set, by): &(&ObjectKey, &PolicyKey)| {
            let governing = if by.key.namespace.is_empty() { &*by.key.name } else { &*format!("{}", by.key) };
            format!("{set} (by {} {governing})", by.kind.as_str())
        };
        let sets = join_entries(summary.conflicts.iter().map(describe), summary.conflict_count);
        let message = format!("other policies govern these DaemonSets: {sets}");
        conditions.push(condition(CONDITION_CONFLICT, true, "GovernedByAnotherPolicy", message));
    }
    let others = policy.status.conditions.iter().filter(|it| !CONDITION_TYPES.contains(&it.type_.as_str()));
    conditions.extend(others.cloned());
    RolloutPolicyStatus { observed_generation: generation, sets: summary.counts, conditions }
}

/// Joins at most [`LISTED_MAX`] entries with commas, and appends how many more there are. `count` is the number of all
/// entries.
fn join_entries(entries: impl Iterator<Item = String>, count: usize) -> String {
    let listed: Vec<String> = entries.take(LISTED_MAX).collect();
    let more = count.saturating_sub(listed.len());
    let listed = listed.join(", ");
    if more == 0 { listed } else { format!("{listed}, and {more} more") }
}
