//! The status of a DaemonSet: the availability of a pod, the pod that is counted on each node, the counts, and the
//! conditions.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::text::Text;
use muster_api::time::Time;

use super::cell::Totals;
use super::revision::TargetRevision;
use crate::daemonset::execution::CreateResult;
use crate::daemonset::facts::{
    Condition, ConditionStatus, ConditionType, Pod, Set, Status, StatusCounts, UpdateStrategy,
};
use crate::daemonset::progressive::record::Phase;
use crate::daemonset::why::Why;

/// Checks whether a pod is available. The error is the reason why it is not.
///
/// Rule: a pod is available once it has been Ready for `minReadySeconds`, or as soon as it is Ready if
/// `minReadySeconds` is 0. A pod that is terminating, or that has failed or succeeded, is not available. If the
/// transition time of the Ready condition is in the future, because the kubelet's clock is ahead, the wait starts when
/// the controller's clock reaches that time.
pub fn check_availability(set: &Set, pod: &Pod, now: Time) -> Result<(), Why> {
    let not_ready = || Why::NotReady { reason: pod.problem.clone() };
    let ready_since = pod.ready_since.filter(|_| pod.is_live()).ok_or_else(not_ready)?;
    let until = ready_since + set.min_ready;
    if set.min_ready.is_zero() || until <= now {
        return Ok(());
    }
    Err(Why::WaitsForMinReady { until })
}

/// Whether a pod counts as up. The rollout replaces a pod that is up only within its budget. In general, an eligible
/// node without a pod that is up counts against `maxUnavailable`. `node_rollout::is_charged` has the exceptions.
///
/// Rule: an up-to-date pod counts as up when it is available. An outdated pod counts as up as soon as it is Ready, so
/// that a second update within `minReadySeconds` does not replace all young pods at once.
pub(crate) fn is_pod_up(set: &Set, current: &TargetRevision, pod: &Pod, now: Time) -> bool {
    if current.is_up_to_date(pod) { check_availability(set, pod, now).is_ok() } else { pod.is_ready() }
}

/// Returns the pod of a node from which the status counts of the node are taken. `None` if the node has no pod. A pod
/// that is terminating and has failed or succeeded is ignored.
///
/// Rule: all status counts of a node come from one pod: an available up-to-date pod, else an available outdated pod,
/// else a Ready pod, else a pod that is not terminating, else a terminating pod. Of several such pods the newest is
/// counted.
pub(crate) fn counted_pod<'a>(
    set: &Set,
    current: &TargetRevision,
    pods: &'a [Arc<Pod>],
    now: Time,
) -> Option<&'a Arc<Pod>> {
    let present = pods.iter().filter(|it| !it.is_terminal_and_deleting());
    let rank = |pod: &Pod| {
        let is_available = check_availability(set, pod, now).is_ok();
        match (is_available, current.is_up_to_date(pod), pod.is_ready()) {
            (true, true, _) => 4,
            (true, false, _) => 3,
            (false, _, true) => 2,
            _ => u8::from(!pod.deleting),
        }
    };
    present.max_by(|a, b| (rank(a), a.created, &b.key.name).cmp(&(rank(b), b.created, &a.key.name)))
}

/// The values, in addition to [`Totals`], from which the conditions of a DaemonSet are computed.
#[derive(Debug)]
pub(crate) struct ConditionInput {
    /// The rollout budget: `maxUnavailable` or `maxSurge` as a number of nodes.
    pub(crate) budget: usize,
    /// The condition `Available` is True if at most this number of eligible nodes have no available pod.
    pub(crate) unavailable_max: usize,
    /// Time of the rollout's last progress if that is at least ten minutes ago, otherwise `None`.
    pub(crate) stalled_since: Option<Time>,
    /// Message that says why the API server refuses to create pods. `None` if it does not refuse, or if the plan
    /// creates no pods.
    pub(crate) refused: Option<String>,
    /// Message that says why a progressive rollout does not replace some or all outdated pods that are Ready, although
    /// its phase allows it: evictions were refused, or `maxUnavailable` is 0. `None` if there is no such reason.
    pub(crate) hold: Option<String>,
    /// State of the progressive rollout, for the conditions. `None` if the DaemonSet has no progressive rollout.
    pub(crate) rollout: Option<RolloutReport>,
}

/// State of a DaemonSet's progressive rollout, as the conditions of the DaemonSet report it.
#[derive(Debug)]
pub(crate) struct RolloutReport {
    pub(crate) phase: Phase,
    pub(crate) is_paused: bool,
    /// The `reason` of the conditions, such as `WaitingForApproval`.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Whether the current revision has failed in the rollout.
    pub(crate) is_failed: bool,
}

impl RolloutReport {
    /// Whether the rollout has stopped or was rolled back (phase `Stopped` or `RolledBack`), so that it does not
    /// continue by itself. A frozen rollout is reported as `Stopped`.
    fn is_stalled(&self) -> bool {
        matches!(self.phase, Phase::Stopped | Phase::RolledBack)
    }

    /// Whether the rollout is in progress: it is not paused, and it replaces pods or waits for the soak time of new
    /// pods.
    fn is_progressing(&self) -> bool {
        !self.is_paused && matches!(self.phase, Phase::Rolling | Phase::Soaking | Phase::RollingBack)
    }
}

/// Returns the DaemonSet status to write. `None` if the stored status is already correct.
///
/// Rule: the counts of the status come from the totals over all nodes. If `conditions` is true, the conditions are
/// computed too. A condition whose status is unchanged keeps its last transition time. Fields and conditions of other
/// writers are kept.
pub(crate) fn status_to_write(
    set: &Set,
    totals: &Totals,
    progress: &ConditionInput,
    conditions: bool,
    now: Time,
) -> Option<Status> {
    let counts = totals.status_counts();
    let conditions = if conditions {
        compute_conditions(set, totals, progress, now)
    } else {
        set.status.conditions.clone()
    };
    let is_current = set.status.counts == counts
        && set.status.observed_generation >= set.generation
        && has_same_conditions(&set.status.conditions, &conditions);
    if is_current {
        return None;
    }
    Some(Status {
        observed_generation: set.generation.max(set.status.observed_generation),
        counts,
        collisions: set.status.collisions,
        conditions,
        raw: set.status.raw.clone(),
    })
}

/// Returns the conditions to write by server-side apply. `None` if the stored conditions are correct. `applied` are the
/// types of the conditions that were applied before. `wanted` is the input of the conditions, or `None` if the
/// DaemonSet is to have none.
///
/// Rule: in assist mode the conditions `Progressing` and `Degraded` are applied whatever their status, and
/// `Reconciling` and `Stalled` only while they are true. A condition that was applied before and is not to be applied
/// any more is removed. Conditions of other field managers are not removed.
pub(crate) fn conditions_to_apply(
    set: &Set,
    totals: &Totals,
    wanted: Option<&ConditionInput>,
    applied: &BTreeSet<ConditionType>,
    now: Time,
) -> Option<Vec<Condition>> {
    let mut conditions = wanted.map(|it| compute_conditions(set, totals, it, now)).unwrap_or_default();
    conditions.retain(|it| it.kind != ConditionType::Available);
    let is_wanted = |kind: &ConditionType| conditions.iter().any(|it| it.kind == *kind);
    let stored = set.status.conditions.iter().filter(|it| is_wanted(&it.kind));
    let stored: Vec<Condition> = stored.cloned().collect();
    let is_current = has_same_conditions(&stored, &conditions) && applied.iter().all(is_wanted);
    (!is_current).then_some(conditions)
}

/// Returns the status to write before a revision records the template. `None` if the status has conditions already, or
/// if `conditions` is false.
///
/// Rule: until the conditions are computed for the first time, their status is Unknown. No other field of the status
/// changes.
pub(crate) fn initial_status(set: &Set, conditions: bool, now: Time) -> Option<Status> {
    if !conditions || !set.status.conditions.is_empty() {
        return None;
    }
    let unknown = |kind| Condition {
        kind,
        status: ConditionStatus::Unknown,
        reason: "NotYetKnown".into(),
        message: "waiting for the template to be recorded as a revision".into(),
        since: Some(now),
    };
    Some(Status { conditions: ConditionType::INITIAL_CONDITIONS.map(unknown).into(), ..set.status.clone() })
}

/// Whether two lists of conditions are equal, apart from their order and transition times.
fn has_same_conditions(a: &[Condition], b: &[Condition]) -> bool {
    let find = |kind| a.iter().find(|it| it.kind == kind);
    a.len() == b.len()
        && b.iter().all(|b| {
            find(b.kind)
                .is_some_and(|a| a.status == b.status && a.reason == b.reason && a.message == b.message)
        })
}

/// Computes the conditions `Available`, `Progressing` and `Degraded`, and for a progressive rollout that is not
/// complete also `Reconciling` or `Stalled`.
fn compute_conditions(set: &Set, totals: &Totals, progress: &ConditionInput, now: Time) -> Vec<Condition> {
    [
        available_condition(totals, progress),
        progressing_condition(set, totals, progress),
        degraded_condition(set, totals, progress),
    ]
    .into_iter()
    .chain(progress.rollout.as_ref().and_then(kstatus_condition))
    .map(|(kind, status, reason, message)| {
        let before = set.status.conditions.iter().find(|it| it.kind == kind);
        let since = before.filter(|it| it.status == status).and_then(|it| it.since);
        Condition { kind, status, reason: reason.into(), message: message.into(), since: since.or(Some(now)) }
    })
    .collect()
}

/// Type, status, reason and message of a condition.
type ConditionValue = (ConditionType, ConditionStatus, &'static str, String);

/// Computes the `Available` condition.
///
/// Rule: Available is False when more eligible nodes are without an available pod than `maxUnavailable` allows. With
/// surge, and with `OnDelete`, it is False when any eligible node is without an available pod.
fn available_condition(totals: &Totals, progress: &ConditionInput) -> ConditionValue {
    let StatusCounts { desired, unavailable, available, .. } = totals.status_counts();
    let message =
        format!("{available} of {desired} nodes have an available pod{}", reason_list(&totals.waiting));
    let enough = unavailable <= i64::try_from(progress.unavailable_max).unwrap_or(i64::MAX);
    if enough {
        (ConditionType::Available, ConditionStatus::True, "EnoughAvailable", message)
    } else {
        (ConditionType::Available, ConditionStatus::False, "TooFewAvailable", message)
    }
}

/// Computes the condition for tools that follow kstatus. `None` if the rollout is complete. `Stalled` if the rollout
/// has ended without success, or if the controller cannot continue it (see `FreezeReason`). Otherwise `Reconciling`,
/// also while the rollout is paused or waits for approval.
fn kstatus_condition(rollout: &RolloutReport) -> Option<ConditionValue> {
    let kind = match rollout.phase {
        Phase::Complete => return None,
        _ if rollout.is_stalled() => ConditionType::Stalled,
        _ => ConditionType::Reconciling,
    };
    Some((kind, ConditionStatus::True, rollout.reason, rollout.message.clone()))
}

/// Reason of the `Progressing` condition when a rollout makes no progress.
pub(crate) const REASON_STALLED: &str = "Stalled";

/// Computes the `Progressing` condition.
///
/// Rule: Progressing is True while a rollout makes progress. It is False when the rollout is complete, waits for a user
/// to delete pods (`OnDelete`), cannot replace any Ready pod because `maxUnavailable` is 0, or has made no progress for
/// ten minutes. While a progressive rollout is paused, or its phase is neither `Rolling` nor `Complete`, status and
/// reason come from the phase instead.
fn progressing_condition(set: &Set, totals: &Totals, progress: &ConditionInput) -> ConditionValue {
    let StatusCounts { desired, updated, available, .. } = totals.status_counts();
    let message = format!("{updated} of {desired} nodes are up to date");
    let complete = totals.is_rollout_complete();
    let waits = set.rollout == UpdateStrategy::OnDelete && updated < desired && available == desired;
    let rollout = progress.rollout.as_ref().filter(|it| it.phase != Phase::Complete);
    if let Some(rollout) = rollout.filter(|it| it.is_paused || it.phase != Phase::Rolling) {
        let status = if rollout.is_progressing() { ConditionStatus::True } else { ConditionStatus::False };
        let detail =
            if rollout.message.is_empty() { String::new() } else { format!("; {}", rollout.message) };
        return (ConditionType::Progressing, status, rollout.reason, format!("{message}{detail}"));
    }
    let is_budget_zero = progress.budget == 0 && progress.hold.is_some();
    let (status, reason) = if complete {
        (ConditionStatus::False, "Complete")
    } else if waits {
        (ConditionStatus::False, "WaitingForDeletes")
    } else if is_budget_zero {
        (ConditionStatus::False, "ZeroMaxUnavailable")
    } else if progress.stalled_since.is_some() {
        (ConditionStatus::False, REASON_STALLED)
    } else {
        (ConditionStatus::True, "RollingOut")
    };
    let detail = if complete { String::new() } else { reason_list(&totals.waiting) };
    let spent = match usize::try_from(totals.charged) {
        Ok(down)
            if 0 < totals.old_pods
                && progress.budget <= down
                && !is_budget_zero
                && !waits
                && set.rollout != UpdateStrategy::OnDelete =>
        {
            format!("; no rollout budget left: {down} of {} used", progress.budget)
        }
        _ => String::new(),
    };
    let hold = progress.hold.as_ref().filter(|_| !complete);
    let hold = hold.map_or(String::new(), |it| format!("; {it}"));
    (ConditionType::Progressing, status, reason, format!("{message}{detail}{spent}{hold}"))
}

/// Reason of the `Degraded` condition when the current revision failed in a progressive rollout.
const REASON_ROLLOUT_FAILED: &str = "RolloutFailed";
/// Reason of the `Degraded` condition when pods cannot be created.
const REASON_FAILED_CREATE: &str = "FailedCreate";
/// Prefix of the message of the `Degraded` condition when pods cannot be created.
const FAILED_CREATE_MESSAGE_PREFIX: &str = "pods cannot be created: ";

/// Returns a message that says why pods cannot be created. `None` if they can be created, if that is not known, or if
/// their namespace is terminating.
///
/// Rule: the reason why pods cannot be created is the API server's response to the last create. A controller that has
/// tried no create since its start takes the reason from the stored `Degraded` condition, so that Degraded does not
/// turn False after every restart.
pub(crate) fn create_refusal(set: &Set, creates: &CreateResult) -> Option<String> {
    match creates {
        CreateResult::Refused(reason) | CreateResult::Failed(reason) => {
            Some(format!("{FAILED_CREATE_MESSAGE_PREFIX}{reason}"))
        }
        CreateResult::Succeeded | CreateResult::NamespaceTerminating => None,
        CreateResult::Unknown => {
            let is_reported =
                |it: &&Condition| it.kind == ConditionType::Degraded && &*it.reason == REASON_FAILED_CREATE;
            let reported = set.status.conditions.iter().find(is_reported)?;
            let at = reported.message.find(FAILED_CREATE_MESSAGE_PREFIX)?;
            Some(reported.message[at..].into())
        }
    }
}

/// Computes the `Degraded` condition.
///
/// Rule: Degraded is True in each of these cases: pods cannot be created, pods fail or cannot start, pods are on nodes
/// where they should not run, the spec has invalid fields, or the current revision failed in a progressive rollout.
fn degraded_condition(set: &Set, totals: &Totals, progress: &ConditionInput) -> ConditionValue {
    let misscheduled = totals.status_counts().misscheduled;
    let mut parts: Vec<String> = set.faults.iter().map(|it| format!("{it}")).collect();
    parts.extend(
        totals.problem.iter().map(|(reason, count)| format!("{count} {}: {reason}", node_noun(*count))),
    );
    if 0 < misscheduled {
        parts.push(format!("{misscheduled} {} with a misscheduled pod", node_noun(misscheduled)));
    }
    parts.extend(progress.refused.clone());
    let failed = progress.rollout.as_ref().filter(|it| it.is_failed);
    if let Some(rollout) = failed {
        parts.insert(0, rollout.message.clone());
    }
    let reason = if failed.is_some() {
        REASON_ROLLOUT_FAILED
    } else if !set.faults.is_empty() {
        "InvalidSpec"
    } else if progress.refused.is_some() {
        REASON_FAILED_CREATE
    } else if !totals.problem.is_empty() {
        "PodsFailing"
    } else if 0 < misscheduled {
        "PodsMisscheduled"
    } else {
        return (
            ConditionType::Degraded,
            ConditionStatus::False,
            "AsExpected",
            "no failing or misscheduled pods".into(),
        );
    };
    (ConditionType::Degraded, ConditionStatus::True, reason, parts.join("; "))
}

/// Returns the noun `node` or `nodes` for a count.
fn node_noun(count: i64) -> &'static str {
    if count == 1 { "node" } else { "nodes" }
}

/// Formats the number of nodes by reason: `; 3 nodes: pod not ready, 1 node: no pod yet`. Empty if there are no
/// reasons.
fn reason_list(by_reason: &BTreeMap<Text, i64>) -> String {
    let parts: Vec<String> =
        by_reason.iter().map(|(reason, count)| format!("{count} {}: {reason}", node_noun(*count))).collect();
    if parts.is_empty() { String::new() } else { format!("; {}", parts.join(", ")) }
}
