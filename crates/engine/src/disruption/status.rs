//! Computes the status of a PodDisruptionBudget.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::{Time, earliest};
use serde_json::{Value, json};

use super::decode::{AvailabilityTarget, BudgetStatus, Pod, PodController, PodDisruptionBudget};
use super::{DISRUPTION_TIMEOUT, SelectedPods};
use crate::controller::{EventRecord, KubeEvent};

/// The counts of a PodDisruptionBudget's pods, from which its new status and the events about it are computed.
pub(super) struct BudgetEvaluation {
    /// The pod counts, or the error message if the expected number of pods cannot be computed.
    counts: Result<PodCounts, String>,
    /// Pods that were evicted at least [`DISRUPTION_TIMEOUT`] ago and are not being deleted.
    not_deleted: Vec<Arc<Pod>>,
}

/// The numbers of pods in the status of a PodDisruptionBudget, and its `disruptedPods`.
struct PodCounts {
    /// The `currentHealthy`: how many selected pods are healthy.
    healthy: i64,
    /// The `desiredHealthy`: how many pods must be healthy.
    desired: i64,
    /// The `expectedPods`: how many pods the budget counts in total.
    expected: i64,
    /// The `disruptedPods`: names of pods that an eviction is about to delete, with the time of the eviction.
    disrupted: BTreeMap<Text, Time>,
}

/// Counts the pods of a budget for its new status. `selected` are the pods that the budget selects, and `pods` all pods
/// of the cluster.
///
/// Rule: a budget allows as many disruptions as it has healthy pods above the desired number, and none if it expects no
/// pods. A pod is healthy if it is Ready, is not being deleted, and was not evicted in the last two minutes. Upstream:
/// `trySync`.
pub(super) fn evaluate_budget(
    budget: &PodDisruptionBudget,
    selected: &SelectedPods,
    pods: &BTreeMap<ObjectKey, Arc<Pod>>,
    now: Time,
) -> BudgetEvaluation {
    let mut healthy = selected.healthy;
    let (mut disrupted, mut not_deleted) = (BTreeMap::new(), Vec::new());
    for (name, at) in &budget.status.disrupted {
        let key = ObjectKey { namespace: budget.key.namespace.clone(), name: name.clone() };
        let pod = pods.get(&key).filter(|it| budget.selects(it) && !it.deleting);
        let Some(pod) = pod else { continue };
        if now < *at + DISRUPTION_TIMEOUT {
            disrupted.insert(name.clone(), *at);
            healthy -= i64::from(pod.is_healthy());
        } else {
            not_deleted.push(pod.clone());
        }
    }
    let counts = desired_and_expected_pods(budget, selected, pods);
    BudgetEvaluation {
        counts: counts.map(|(desired, expected)| PodCounts { healthy, desired, expected, disrupted }),
        not_deleted,
    }
}

/// Returns `desiredHealthy` and `expectedPods`, or an error message.
///
/// Rule: if `minAvailable` is a number, it is `desiredHealthy`, and `expectedPods` is the number of selected pods. If
/// `minAvailable` is a percentage, or if `maxUnavailable` is set, upstream takes `expectedPods` from the `scale`
/// subresource of the pods' controllers. No kind that Muster serves has that subresource, so a selected pod with a
/// controller is an error. Pods without a controller are not counted in `expectedPods`. If neither field is set, both
/// results are 0.
/// Upstream: `getExpectedPodCount`.
fn desired_and_expected_pods(
    budget: &PodDisruptionBudget,
    selected: &SelectedPods,
    pods: &BTreeMap<ObjectKey, Arc<Pod>>,
) -> Result<(i64, i64), String> {
    let (share, is_max_unavailable) = match &budget.target {
        AvailabilityTarget::MinAvailable(count) => return Ok((*count, selected.pods)),
        AvailabilityTarget::Unset => return Ok((0, 0)),
        AvailabilityTarget::Malformed(problem) => return Err(String::from(&**problem)),
        AvailabilityTarget::MinAvailablePercent(share) => (share, false),
        AvailabilityTarget::MaxUnavailable(share) => (share, true),
    };
    if let Some(name) = selected.controlled.first() {
        let key = ObjectKey { namespace: budget.key.namespace.clone(), name: name.clone() };
        let controller = pods.get(&key).and_then(|it| it.controller.as_ref());
        return Err(controller.map_or_else(String::new, no_scale_error));
    }
    // Pods without a controller have no scale.
    let expected = 0;
    let share = share.scaled_value(expected);
    let desired = if is_max_unavailable { expected.saturating_sub(share) } else { share };
    Ok((i64::try_from(desired).unwrap_or(i64::MAX), 0))
}

/// Returns the error message for a pod whose controller has no `scale` subresource.
fn no_scale_error(controller: &PodController) -> String {
    let PodController { api_version, kind, .. } = controller;
    let resource = match (&**api_version, &**kind) {
        ("apps/v1" | "extensions/v1beta1", "DaemonSet") => "daemonsets.apps",
        ("v1", "Node") => "nodes",
        _ => return format!("no matches for kind {kind:?} in version {api_version:?}"),
    };
    format!("{resource} does not implement the scale subresource")
}

impl BudgetEvaluation {
    /// Returns the earliest time at which an evicted pod that still exists counts as healthy again. `None` if there is
    /// no such time: no pod was evicted recently, or the counts could not be computed.
    pub(super) fn next_change_at(&self) -> Option<Time> {
        let disrupted = self.counts.as_ref().ok().map(|it| &it.disrupted);
        let times = disrupted.into_iter().flatten().map(|(_, at)| Some(*at + DISRUPTION_TIMEOUT));
        times.fold(None, earliest)
    }

    /// Returns the status to write. If the expected number of pods cannot be computed, it is the previous status with
    /// no disruption allowed and with the condition reason `SyncFailed`.
    pub(super) fn status(&self, budget: &PodDisruptionBudget, now: Time) -> BudgetStatus {
        match &self.counts {
            Ok(counts) => {
                // Without expected pods no disruption is allowed: the first pods may be about to be created.
                let spare = (counts.healthy - counts.desired).max(0);
                let allowed = if 0 < counts.expected { spare } else { 0 };
                let (condition_status, reason) =
                    if 0 < allowed { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
                let status = BudgetStatus {
                    observed_generation: budget.generation,
                    allowed,
                    healthy: counts.healthy,
                    desired: counts.desired,
                    expected: counts.expected,
                    disrupted: counts.disrupted.clone(),
                    conditions: budget.status.conditions.clone(),
                };
                with_disruption_allowed_condition(
                    status,
                    condition_status,
                    reason,
                    "",
                    budget.generation,
                    now,
                )
            }
            // No disruption is allowed, and all else stays. Upstream: `failSafe`.
            Err(problem) => {
                let observed = budget.status.observed_generation;
                let status = BudgetStatus { allowed: 0, ..budget.status.clone() };
                with_disruption_allowed_condition(status, "False", "SyncFailed", problem, observed, now)
            }
        }
    }

    /// Returns the events about the budget and about pods that were evicted but not deleted. They are recorded when the
    /// status is written.
    pub(super) fn events(&self, budget: &PodDisruptionBudget, selected: &SelectedPods) -> Vec<EventRecord> {
        let mut events = Vec::new();
        let mut record = |warning, reason, message| {
            events.push(EventRecord {
                about: budget.object_reference(),
                event: KubeEvent { warning, reason, message },
            });
        };
        if selected.pods == 0 {
            record(false, "NoPods", String::from("No matching pods found"));
        }
        let depends_on_scale = matches!(
            budget.target,
            AvailabilityTarget::MinAvailablePercent(_) | AvailabilityTarget::MaxUnavailable(_)
        );
        match &self.counts {
            Err(problem) => {
                let message = format!("Failed to calculate the number of expected pods: {problem}");
                record(true, "CalculateExpectedPodCountFailed", message);
            }
            Ok(_) if depends_on_scale && !selected.unmanaged.is_empty() => record(
                true,
                "UnmanagedPods",
                String::from(
                    "Pods selected by this PodDisruptionBudget were found to be unmanaged. As a result, the status of the \
                     PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods \
                     please set \".spec.minAvailable\" field of the PDB to an integer value.",
                ),
            ),
            Ok(_) => {}
        }
        events.extend(self.not_deleted.iter().map(|pod| EventRecord {
            about: pod.object_reference(),
            event: KubeEvent::warning(
                "NotDeleted",
                format!("Pod was expected by PDB {} to be deleted but it wasn't", budget.key),
            ),
        }));
        events
    }
}

/// Returns `status` with a condition `DisruptionAllowed` that has these values. Its `lastTransitionTime` is kept if the
/// previous condition has the same status, and is `now` otherwise.
fn with_disruption_allowed_condition(
    mut status: BudgetStatus,
    condition_status: &str,
    reason: &str,
    message: &str,
    generation: i64,
    now: Time,
) -> BudgetStatus {
    let index = status.conditions.iter().position(|it| it["type"] == "DisruptionAllowed");
    let before = index.and_then(|it| status.conditions.get(it)).filter(|it| it["status"] == condition_status);
    let since = before.and_then(|it| it["lastTransitionTime"].as_str());
    let mut condition = json!({
        "type": "DisruptionAllowed",
        "status": condition_status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since.map_or_else(|| now.to_rfc3339(), String::from),
    });
    if generation != 0 {
        condition["observedGeneration"] = json!(generation);
    }
    match index.and_then(|it| status.conditions.get_mut(it)) {
        Some(slot) => *slot = condition,
        None => status.conditions.push(condition),
    }
    status
}

/// Formats the status on one line, for logs and tests.
impl core::fmt::Display for BudgetStatus {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { observed_generation, allowed, healthy, desired, expected, .. } = self;
        write!(
            f,
            "generation {observed_generation}: {healthy} of {expected} healthy, {desired} desired, {allowed} disruptions allowed"
        )?;
        for (name, at) in &self.disrupted {
            write!(f, ", {name} disrupted since {}", at.to_rfc3339())?;
        }
        let text = |it: &Value, field: &str| String::from(it[field].as_str().unwrap_or_default());
        for it in &self.conditions {
            write!(f, "; {} {} {}", text(it, "type"), text(it, "status"), text(it, "reason"))?;
            if !text(it, "message").is_empty() {
                write!(f, ": {}", text(it, "message"))?;
            }
        }
        Ok(())
    }
}
