//! Adds the writes of a progressive rollout to the plan of its DaemonSet: the verdict about a revision (Good, Bad or
//! Superseded), the DaemonRollout with its status, and the pod replacements that the phase of the rollout allows.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::muster_v1alpha1::daemon_rollout::StatusCondition;
use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use super::node_rollout::{RolloutAction, ZERO_BUDGET_MESSAGE, is_budget_always_zero, rollout_budget};
use super::status::RolloutReport;
use super::{DecisionInput, add_create, pods_to_remove};
use crate::daemonset::facts::{ConditionStatus, Pod, UpdateStrategy};
use crate::daemonset::plan::{Plan, PodSource, RevisionWrite, RolloutWrite, Settings};
use crate::daemonset::progressive::analysis;
use crate::daemonset::progressive::check::{MeasurementInput, due_measurements};
use crate::daemonset::progressive::membership::{AssignedRevision, MembershipScope};
use crate::daemonset::progressive::phase::{
    PhaseInput, PhaseOutcome, REASON_CANNOT_ROLL_BACK, is_stopped_without_rollback, next_status,
};
use crate::daemonset::progressive::policy::{LISTED_NODES_MAX, ReplaceMethod};
use crate::daemonset::progressive::record::{CheckResult, CheckStatus, Phase, RolloutRecord, RolloutStatus};
use crate::daemonset::progressive::rollout::{FreezeReason, ProgressiveRollout, revision_with_verdict};
use crate::daemonset::progressive::verdict::RevisionVerdict;
use crate::daemonset::refused_evictions::REFUSED_EVICTIONS_MESSAGE_PREFIX;
use crate::daemonset::why::Why;

/// Adds the writes of a progressive rollout to the plan of its DaemonSet. Adds none while the rollout is frozen, or
/// while the DaemonRollout of a deleted DaemonSet of the same name still exists. Returns the rollout budget
/// (`maxUnavailable` or `maxSurge`) as a number of nodes.
///
/// Rule: the next status is computed from the stored status. An outdated pod is replaced only if both the stored and
/// the next status allow it. So each decision is stored before a write relies on it: which nodes are admitted, which
/// failures are excused, and the verdict.
pub(crate) fn add_progressive_rollout_writes(
    plan: &mut Plan,
    input: &DecisionInput<'_>,
    active: &ProgressiveRollout,
    settings: &Settings,
    now: Time,
) -> usize {
    let desired = input.set_state.totals.status_counts().desired;
    let budget = rollout_budget(input.set, desired);
    plan.stable = active.stable.as_ref().map(|it| {
        let generation = it.target.generation.as_ref().and_then(|it| it.parse().ok());
        let template = it.template.raw.clone();
        Arc::new(PodSource { hash: it.target.hash.clone(), template, generation })
    });
    if active.frozen.is_none() {
        match &active.record {
            Some(record) => advance_phase(plan, input, active, record, budget, settings, now),
            // The deletion of the stale DaemonRollout makes the next plan.
            None if active.has_stale_record => {}
            None => plan.rollout = Some(RolloutWrite::Create),
        }
    }
    if plan.create_stable.is_empty() {
        plan.stable = None;
    }
    budget
}

/// Computes the next status of the rollout, and adds it to the plan if it has changed. Also adds the verdict, the
/// measurements, the events and the pod replacements to the plan, and removes from the plan those pod creations whose
/// revision contradicts the next status.
fn advance_phase(
    plan: &mut Plan,
    input: &DecisionInput<'_>,
    active: &ProgressiveRollout,
    record: &Arc<RolloutRecord>,
    budget: usize,
    settings: &Settings,
    now: Time,
) {
    let (totals, counts) = (&input.set_state.totals, &input.set_state.rollout_counts);
    let method = active.replace_method();
    let stored = &record.status;
    let is_rolled_out = totals.is_rollout_complete();
    let stable = active.stable.as_ref().map(|it| &it.judged);
    let needs_running = stable.is_none() && active.current.verdict.is_none() && !is_rolled_out;
    let running =
        needs_running.then(|| active.newest_other_revision((input.available_pods)().iter())).flatten();
    let superseded = stored.current.as_ref().filter(|it| it.hash != active.current.reference.hash);
    let superseded = superseded
        .and_then(|it| Some(revision_with_verdict(active.revision_with_hash(&it.hash)?, it.hash.clone())));
    let chosen = choose_actions(plan, input, active, stored, budget, settings, now);
    let (check_results, check_failures) = add_measurements(plan, input, active, stored, now);
    let mut outcome = next_status(&PhaseInput {
        stored,
        generation: record.generation,
        requests: &record.requests,
        policy: active.policy.as_deref(),
        current: &active.current,
        stable,
        running: running.as_ref(),
        superseded: superseded.as_ref(),
        counts,
        is_rolled_out,
        // A current revision that is a duplicate of the stable one leaves nothing to return to.
        is_rolled_back: active.scope() != MembershipScope::Admitted && totals.is_assignment_complete(),
        check_results: &check_results,
        check_failures: &check_failures,
        excuses: &chosen.excuses,
        is_assisting: active.is_assisting,
        waits_for_deletes: input.set.rollout == UpdateStrategy::OnDelete,
        now,
    });
    if let Some(write) = &outcome.verdict
        && let Some(revision) = active.revision_with_hash(&write.revision)
    {
        let revision = revision.clone();
        let (verdict, reason) = (write.verdict, write.reason);
        // Rule: a verdict is later than the one about the stable revision, even if the clock was set back since. The
        // stable revision is the one with the latest verdict `Good`.
        let stable = active.stable.as_ref().and_then(|it| it.target.revision.verdict.as_ref());
        let at = stable.map_or(now, |it| now.max(it.at + Duration::from_secs(1)));
        plan.steps.push(RevisionWrite::StoreVerdict { revision, verdict, reason, at });
    }
    plan.events.append(&mut outcome.events);
    plan.wake_at = earliest(plan.wake_at, outcome.wake_at);
    // A node that gets the current revision as soon as the status is stored does not get a pod of the stable one first.
    plan.create_stable.retain(|(name, _)| {
        outcome.status.admitted == stored.admitted
            || !(input.node)(name).is_some_and(|node| active.will_admit(&outcome.status, node))
    });
    let hold = hold_message(input, active).filter(|_| outcome.may_replace);
    outcome.status.message = replace_hold_message(&outcome.status.message, hold.as_deref()).into();
    remove_contradicted_creates(plan, input, active, stored, &outcome);
    let conditions = rollout_conditions(&outcome.status, record, now);
    // A status without a phase is not written: clients would read it as Complete. The next plan has a phase, when the
    // watch has delivered the verdict of the adopted revision.
    let has_phase = outcome.status.phase.is_some();
    if has_phase && (outcome.status != *stored || conditions != record.conditions) {
        let status = Arc::new(outcome.status);
        plan.rollout = Some(RolloutWrite::PutStatus { record: record.clone(), status, conditions });
    }
    if outcome.may_replace {
        plan.wake_at = earliest(plan.wake_at, chosen.wake_at);
        for (node, assigned, action) in chosen.actions {
            match action {
                RolloutAction::Replace(pod, why) => remove_ready_pod(plan, method, pod, why),
                RolloutAction::ReplaceNotReady(pod, why) => plan.delete.push((pod, why)),
                RolloutAction::Surge => add_create(plan, assigned, node, Why::Outdated),
                RolloutAction::SurgeBesideNotReady(_) => {
                    add_create(plan, assigned, node, Why::OutdatedAndNotReady)
                }
                RolloutAction::Remove(..) => {}
            }
        }
        for (pod, why) in pods_to_remove(input, settings) {
            let waits_until =
                pod.target.as_ref().and_then(|it| eviction_waits_until(input, method, it, &pod, now));
            plan.wake_at = earliest(plan.wake_at, waits_until);
            let is_within_limits = plan.delete.len() + plan.evict.len() < settings.burst
                && plan.evict.len() < input.evictions.max_evictions_per_plan();
            if is_within_limits && waits_until.is_none() {
                remove_ready_pod(plan, method, pod, why);
            }
        }
    }
}

/// Removes from the plan those creations of pods of the current revision that contradict the next status.
///
/// Rule: a node that is admitted in the stored status, but not in the next one, gets no pod of the current revision any
/// more. This happens when the revision fails and when an operator retries it: a retry begins with the first step.
fn remove_contradicted_creates(
    plan: &mut Plan,
    input: &DecisionInput<'_>,
    active: &ProgressiveRollout,
    stored: &RolloutStatus,
    outcome: &PhaseOutcome,
) {
    if plan.create.is_empty() || active.stable.is_none() || active.scope() != MembershipScope::Admitted {
        return;
    }
    // The verdict of a retried revision is removed before the status that starts the attempt is written.
    if outcome.verdict.as_ref().is_some_and(|it| it.verdict.is_none()) {
        plan.create.clear();
    }
    let next = &outcome.status;
    let is_failed = |it: &RolloutStatus| it.phase.is_some_and(Phase::is_failed);
    if next.admitted == stored.admitted && is_failed(next) == is_failed(stored) {
        return;
    }
    plan.create.retain(|(name, _)| match next.phase {
        Some(Phase::RollingBack | Phase::RolledBack) => false,
        Some(Phase::Complete) => true,
        _ => (input.node)(name).is_some_and(|node| active.will_admit(next, node)),
    });
}

/// Adds the removal of a Ready pod to the plan, as a delete or as an eviction, depending on `method`.
///
/// Rule: with `replace.method: Evict`, the rollout evicts outdated pods that are Ready. Pods that are not Ready are
/// deleted. An old pod whose replacement on the same node is available (surge) is deleted, too: its removal leaves the
/// node with an available pod. Pods that are removed for other reasons than a rollout are also deleted.
fn remove_ready_pod(plan: &mut Plan, method: ReplaceMethod, pod: Arc<Pod>, why: Why) {
    match method {
        ReplaceMethod::Delete => plan.delete.push((pod, why)),
        ReplaceMethod::Evict => plan.evict.push((pod, why)),
    }
}

/// Returns the time before which the Ready pod of a node must not be removed, because its eviction was refused, or
/// because all evictions of the DaemonSet's pods were refused. `None` if the pod may be removed now.
fn eviction_waits_until(
    input: &DecisionInput<'_>,
    method: ReplaceMethod,
    node: &Text,
    pod: &Pod,
    now: Time,
) -> Option<Time> {
    match method {
        ReplaceMethod::Delete => None,
        ReplaceMethod::Evict => {
            input.evictions.retry_at(node, pod, now).max(input.evictions.no_eviction_before(now))
        }
    }
}

/// Returns the part of the status message about nodes whose outdated pod could not be evicted. `None` if there are no
/// such nodes, or if the policy does not evict.
fn refused_evictions_message(input: &DecisionInput<'_>, active: &ProgressiveRollout) -> Option<String> {
    let is_evicted = |node: &Text| {
        let action = input.set_state.cells.get(node).and_then(|it| it.action.as_ref());
        matches!(action, Some(RolloutAction::Replace(..) | RolloutAction::Remove(..)))
    };
    match active.replace_method() {
        ReplaceMethod::Delete => None,
        ReplaceMethod::Evict => input.evictions.message(is_evicted),
    }
}

/// Returns why some or all outdated pods that are Ready are not replaced: `maxUnavailable` is 0, or evictions were
/// refused. `None` if there is no such reason. Does not check whether the phase of the rollout allows replacements.
fn hold_message(input: &DecisionInput<'_>, active: &ProgressiveRollout) -> Option<String> {
    let has_candidates = input.set_state.budgeted_actions().next().is_some();
    if is_budget_always_zero(input.set.rollout) && has_candidates {
        return Some(ZERO_BUDGET_MESSAGE.into());
    }
    refused_evictions_message(input, active)
}

/// Removes an earlier [`hold_message`] from the end of `message`, and appends the new hold message `hold`, if any.
fn replace_hold_message(message: &str, hold: Option<&str>) -> String {
    let starts = [REFUSED_EVICTIONS_MESSAGE_PREFIX, ZERO_BUDGET_MESSAGE];
    let end = starts.iter().filter_map(|it| message.find(it)).min().unwrap_or(message.len());
    let base = message[..end].trim_end_matches("; ");
    match hold {
        None => base.into(),
        Some(hold) if base.is_empty() => hold.into(),
        Some(hold) => format!("{base}; {hold}"),
    }
}

/// Returns the [`hold_message`] for the conditions of the DaemonSet. `None` if there is no such message, if the rollout
/// is paused, or if its phase is neither `Rolling` nor `Complete`.
pub(crate) fn hold_message_for_conditions(
    plan: &Plan,
    input: &DecisionInput<'_>,
    active: &ProgressiveRollout,
) -> Option<String> {
    let report = rollout_report(plan, active)?;
    let is_replacing = !report.is_paused && matches!(report.phase, Phase::Rolling | Phase::Complete);
    hold_message(input, active).filter(|_| is_replacing)
}

/// Adds a measurement to the plan for each check that must be measured now. Returns the last result of each check that
/// was measured, and the number of consecutive failures by check name. Both are empty without a policy.
fn add_measurements(
    plan: &mut Plan,
    input: &DecisionInput<'_>,
    active: &ProgressiveRollout,
    stored: &RolloutStatus,
    now: Time,
) -> (Vec<CheckStatus>, BTreeMap<Text, u32>) {
    let Some(policy) = active.policy.as_deref() else { return Default::default() };
    let revision = &active.current.reference.hash;
    let (measurements, wake_at) = due_measurements(&MeasurementInput {
        set: input.set,
        policy,
        stored,
        revision,
        pods: &|| (input.pods_with_hash)(revision),
        nodes_with_revision: input.set_state.rollout_counts.with_current_pod,
        memory: input.checks,
        now,
    });
    plan.measurements = measurements;
    plan.wake_at = earliest(plan.wake_at, wake_at);
    input.checks.results(&policy.spec.checks, revision, stored.attempt)
}

/// A node name, the revision that the node is assigned (current or stable), and the action of the rollout on it.
type NodeAction = (Text, AssignedRevision, RolloutAction);

/// The actions that the rollout takes now, and what further actions wait for: excuses that must be stored first, and
/// the retry time of refused evictions.
#[derive(Debug, Default)]
struct ChosenActions {
    actions: Vec<NodeAction>,
    /// Names of nodes, each with the reason why its failures are not counted (excused). The rollout acts on these nodes
    /// only after the status has stored the reason.
    excuses: Vec<(Text, Text)>,
    /// Earliest time at which a refused eviction is tried again. `None` if no eviction waits.
    wake_at: Option<Time>,
}

/// Returns the actions that the rollout takes now if its phase allows it, and the excuses that must be stored before
/// further actions. An excuse records that the failures of a node are not counted.
///
/// Rule: the rollout acts on nodes within these limits:
///
/// - Outdated pods that are not Ready are replaced first, without rollout budget.
/// - Outdated pods that are Ready are replaced within the rollout budget and, if the step has groups, within
///   `maxUnavailable` of their group.
/// - The rollout acts on a node that needs an excuse only after the excuse was stored. Exception: if the list of
///   excused nodes is full, the rollout acts without an excuse, and failures of the node count.
/// - Failures of the stable revision never count, so they need no excuse.
/// - Together with the deletes or creates that the plan already has, there are at most [`Settings::burst`] actions.
fn choose_actions(
    plan: &Plan,
    input: &DecisionInput<'_>,
    active: &ProgressiveRollout,
    stored: &RolloutStatus,
    budget: usize,
    settings: &Settings,
    now: Time,
) -> ChosenActions {
    let method = active.replace_method();
    let set_state = input.set_state;
    let mut groups_left = group_budgets(input, active);
    let charged = usize::try_from(set_state.totals.charged).unwrap_or(0);
    let mut left = budget.saturating_sub(charged);
    let planned = plan.delete.len().max(plan.create.len() + plan.create_stable.len());
    let mut free = settings.burst.saturating_sub(planned);
    let mut evictions_left = input.evictions.max_evictions_per_plan();
    let mut wake_at = None;
    let (mut actions, mut excuses): (Vec<NodeAction>, Vec<(Text, Text)>) = (Vec::new(), Vec::new());
    let mut take = |node: &Text, action: &RolloutAction| {
        let Some(cell) = set_state.cells.get(node) else { return };
        let old = match action {
            RolloutAction::Replace(pod, _)
            | RolloutAction::ReplaceNotReady(pod, _)
            | RolloutAction::SurgeBesideNotReady(pod) => Some(pod),
            RolloutAction::Surge | RolloutAction::Remove(..) => None,
        };
        let old = old.filter(|_| cell.assigned == AssignedRevision::Current);
        let excuse = old.and_then(|old| analysis::excuse_reason(old, (input.node)(node)));
        match excuse {
            Some(reason) if !is_excuse_stored_or_list_full(stored, node, excuses.len()) => {
                excuses.push((node.clone(), reason));
            }
            _ => actions.push((node.clone(), cell.assigned, action.clone())),
        }
    };
    for (node, action) in set_state.not_ready_actions() {
        if free == 0 {
            break;
        }
        free -= 1;
        take(node, action);
    }
    if groups_left.as_ref().is_some_and(|it| it.values().all(|left| *left == 0)) {
        return ChosenActions { actions, excuses, wake_at };
    }
    for (node, action) in set_state.budgeted_actions() {
        if left == 0 || free == 0 || evictions_left == 0 {
            break;
        }
        if let RolloutAction::Replace(pod, _) = action
            && method == ReplaceMethod::Evict
        {
            if let Some(until) = eviction_waits_until(input, method, node, pod, now) {
                wake_at = earliest(wake_at, Some(until));
                continue;
            }
            evictions_left -= 1;
        }
        if let Some(groups_left) = &mut groups_left {
            let progress = set_state.cells.get(node).and_then(|it| it.progress.as_ref());
            match progress.and_then(|it| groups_left.get_mut(&it.group)) {
                Some(0) => continue,
                Some(group_left) => *group_left -= 1,
                None => {}
            }
        }
        (left, free) = (left - 1, free - 1);
        take(node, action);
    }
    ChosenActions { actions, excuses, wake_at }
}

/// Whether the rollout may act on a node whose failures are to be excused (not counted): the status stores the excuse
/// already, or the status has no space for another excused node. `pending` is the number of excuses to store with the
/// next status.
fn is_excuse_stored_or_list_full(stored: &RolloutStatus, node: &str, pending: usize) -> bool {
    let failures = &stored.failures;
    failures.is_excused(node) || LISTED_NODES_MAX <= failures.excused.len() + pending
}

/// Returns how many Ready pods may be replaced now on the nodes of each group. `None` if there is no step, or if the
/// step has no `groups`.
fn group_budgets(input: &DecisionInput<'_>, active: &ProgressiveRollout) -> Option<BTreeMap<Text, usize>> {
    let groups = active.step.as_ref()?.groups.as_ref()?;
    let counts = input.set_state.rollout_counts.groups.iter();
    let left = counts.map(|(group, counts)| {
        let budget = groups
            .max_unavailable
            .scaled_value(counts.eligible)
            .max(usize::from(!groups.max_unavailable.is_zero()));
        (group.clone(), budget.saturating_sub(counts.charged))
    });
    Some(left.collect())
}

/// Returns what the conditions of the DaemonSet report about its progressive rollout. A frozen rollout is reported as
/// `Stopped`. `None` if a rollout that is not frozen has no DaemonRollout or no phase yet.
pub(crate) fn rollout_report(plan: &Plan, active: &ProgressiveRollout) -> Option<RolloutReport> {
    if let Some(frozen) = &active.frozen {
        return Some(RolloutReport {
            phase: Phase::Stopped,
            is_paused: false,
            reason: frozen.reason(),
            message: frozen.message().into(),
            is_failed: *frozen == FreezeReason::KnownBad,
        });
    }
    let status = match &plan.rollout {
        Some(RolloutWrite::PutStatus { status, .. }) => status,
        _ => &active.record.as_ref()?.status,
    };
    let phase = status.phase?;
    Some(RolloutReport {
        phase,
        is_paused: status.paused,
        reason: phase_condition_reason(status, phase),
        message: (&*status.message).into(),
        is_failed: phase.is_failed() && active.current.verdict == Some(RevisionVerdict::Bad),
    })
}

/// Returns the `reason` of the conditions that report the phase of a rollout, such as `WaitingForApproval`.
fn phase_condition_reason(status: &RolloutStatus, phase: Phase) -> &'static str {
    let has_passed = |it: &CheckStatus| it.result == CheckResult::Pass;
    match phase {
        Phase::Complete => "Complete",
        _ if status.paused => "Paused",
        _ if is_stopped_without_rollback(status) => REASON_CANNOT_ROLL_BACK,
        Phase::Waiting if !status.checks.iter().all(has_passed) => "WaitingForCheck",
        Phase::Waiting => "WaitingForApproval",
        phase => phase.as_str(),
    }
}

/// Computes the conditions of a DaemonRollout: always `Ready`, which is True or False, and also `Reconciling` or
/// `Stalled` if one of them is True. Returns the stored conditions if the status has no phase.
///
/// Rule: a DaemonRollout is Ready when its rollout is complete, or as complete as its policy allows. A DaemonRollout is
/// stalled when its rollout has stopped or was rolled back: such a rollout does not continue by itself.
fn rollout_conditions(status: &RolloutStatus, record: &RolloutRecord, now: Time) -> Vec<StatusCondition> {
    let Some(phase) = status.phase else { return record.conditions.clone() };
    let is_ready = matches!(phase, Phase::Complete | Phase::PartiallyComplete);
    let is_stalled = matches!(phase, Phase::Stopped | Phase::RolledBack);
    let reason = phase_condition_reason(status, phase);
    let condition = |kind: &str, is_true: bool| {
        let value = if is_true { ConditionStatus::True } else { ConditionStatus::False }.as_str();
        let before = record.conditions.iter().find(|it| it.type_ == kind && it.status == value);
        StatusCondition {
            type_: kind.into(),
            status: value.into(),
            observed_generation: Some(status.observed_generation),
            last_transition_time: before.and_then(|it| it.last_transition_time).or(Some(now)),
            reason: reason.into(),
            message: String::from(&*status.message),
        }
    };
    let mut conditions = Vec::from([condition("Ready", is_ready)]);
    if is_stalled {
        conditions.push(condition("Stalled", true));
    } else if !is_ready {
        conditions.push(condition("Reconciling", true));
    }
    conditions
}

#[cfg(test)]
mod tests;
