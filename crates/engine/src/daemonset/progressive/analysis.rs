//! Analysis of one node during a rollout: whether it has failed with the current revision, whether its failure is
//! excused, and when its soak ends. The soak is the time for which a new pod must have been healthy.

use alloc::format;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use super::policy::FailureRules;
use crate::daemonset::facts::{ConditionStatus, Node, Phase, Pod};

/// Whether a node with a pod of the current revision has failed and, if not, the time at which it will count as failed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeHealth {
    /// Why the node has failed, such as `CrashLoopBackOff` or `NodeNotReady`. `None` if it has not failed.
    pub failure: Option<Text>,
    /// Time at which the node counts as failed unless its pod becomes available before. `None` if the node has failed
    /// already, if it has no pod of the current revision, if that pod is available or being deleted, or if failures of
    /// that pod do not count against the node.
    pub fails_at: Option<Time>,
}

/// Values of `status.reason` of a failed pod that name the node as the cause, for example its shutdown, and not the
/// revision of the pod. Reasons that start with `OutOf` mean the same, but are not listed here.
///
/// Upstream: the reasons with which the kubelet evicts, terminates or rejects a pod.
const NODE_CAUSED_FAILURES: [&str; 7] = [
    "Evicted",
    "NodeShutdown",
    "Shutdown",
    "Terminated",
    "Preempting",
    "NodeLost",
    "UnexpectedAdmissionError",
];

/// Returns whether a node has failed with `pod`, its pod of the current revision, and, if not, the time at which it
/// will count as failed.
///
/// Rule: the first of these cases that applies decides whether the node has failed:
///
/// - No, if the pod has the condition `DisruptionTarget`, or failed because of its node, for example by an eviction or
///   a shutdown.
/// - Yes, if the pod restarted too often.
/// - Yes, if the pod has a problem that the policy lists as an immediate failure, such as `ImagePullBackOff`.
/// - Yes, if the pod is in the phase Failed.
/// - Yes, if the policy counts nodes that are not Ready, and the node stopped being Ready after the pod was created.
/// - No, if the pod is available or is being deleted.
/// - Yes, if the pod has been unavailable for too long.
pub fn node_health(
    rules: &FailureRules,
    pod: &Pod,
    is_available: bool,
    node: Option<&Node>,
    now: Time,
) -> NodeHealth {
    if pod.is_disrupted || failed_because_of_node(pod) {
        return NodeHealth::default();
    }
    let reason = |default: &str| pod.problem.clone().unwrap_or_else(|| Text::from(default));
    let failed = |reason: Text| NodeHealth { failure: Some(reason), fails_at: None };
    if rules.max_restarts < pod.restarts {
        return failed(
            pod.problem.clone().unwrap_or_else(|| format!("Restarted{}Times", pod.restarts).into()),
        );
    }
    if pod.problem.as_ref().is_some_and(|it| rules.immediate_reasons.contains(it)) {
        return failed(reason("Waiting"));
    }
    if pod.phase == Phase::Failed {
        return failed(reason("Failed"));
    }
    if rules.count_not_ready_nodes && node.is_some_and(|it| stopped_being_ready(it, pod.created)) {
        return failed("NodeNotReady".into());
    }
    if is_available || pod.deleting {
        return NodeHealth::default();
    }
    let since = pod.not_ready_since.unwrap_or(pod.created).max(pod.created);
    let fails_at = since + rules.ready_timeout;
    if fails_at <= now {
        return failed(reason("NotReady"));
    }
    NodeHealth { failure: None, fails_at: Some(fails_at) }
}

/// Whether the pod failed because of its node: its reason is in [`NODE_CAUSED_FAILURES`] or starts with `OutOf`.
fn failed_because_of_node(pod: &Pod) -> bool {
    let reason = pod.problem.as_deref().unwrap_or_default();
    pod.phase == Phase::Failed && (NODE_CAUSED_FAILURES.contains(&reason) || reason.starts_with("OutOf"))
}

/// Whether the node is not Ready, and its condition `Ready` last changed after `at`.
fn stopped_being_ready(node: &Node, at: Time) -> bool {
    node.ready.status != ConditionStatus::True && node.ready.since.is_some_and(|since| at < since)
}

/// Returns why the failures of a node are excused, that is, not counted. `None` if they are counted. `old` is the pod
/// that the rollout is about to delete, or beside which it is about to create the new pod.
///
/// Rule: a failure of a node is excused if the node or its old pod was not Ready when the rollout acted on the node.
/// The excuse is stored before the rollout acts.
pub fn excuse_reason(old: &Pod, node: Option<&Node>) -> Option<Text> {
    if node.is_some_and(|it| it.ready.status != ConditionStatus::True) {
        return Some("NodeNotReady".into());
    }
    (!old.is_ready()).then(|| old.problem.clone().unwrap_or_else(|| Text::from("NotReady")))
}

/// Returns the time at which the soak of a node ends: from then on, its pod has been healthy for long enough. The time
/// may be in the past or in the future. `None` if the pod is not Ready, is terminal or is being deleted.
///
/// Rule: the soak lasts for the longer of `minReadySeconds` and the soak time. It starts at the later of the time at
/// which the pod became Ready and the last start of one of its containers. A restart or a loss of readiness starts it
/// again.
pub fn soak_ends_at(pod: &Pod, min_ready: Duration, soak: Duration) -> Option<Time> {
    let ready_since = pod.ready_since.filter(|_| pod.is_live())?;
    let healthy_since = pod.last_started.map_or(ready_since, |it| it.max(ready_since));
    Some(healthy_since + min_ready.max(soak))
}

/// Returns the earliest future time at which the node counts as failed or its soak ends, if its pod does not change.
/// `None` if there is no such time.
pub fn recheck_at(health: &NodeHealth, soak_ends_at: Option<Time>, now: Time) -> Option<Time> {
    earliest(health.fails_at, soak_ends_at.filter(|at| now < *at))
}

#[cfg(test)]
mod tests;
