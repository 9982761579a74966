//! What a budget's status should say.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::{Time, earliest};
use serde_json::{Value, json};

use super::decode::{Budget, Demand, Pod, PodController, Status};
use super::{DELETED_WITHIN, Selected};
use crate::controller::EventRecord;
use crate::daemonset::plan::Event;

/// What was found of a budget's pods.
pub(super) struct Found {
    counts: Result<Counts, String>,
    /// Pods that were about to be deleted, and are still here.
    kept: Vec<Arc<Pod>>,
}

struct Counts {
    healthy: i64,
    desired: i64,
    expected: i64,
    disrupted: BTreeMap<Text, Time>,
}

/// Rule: a budget allows as many disruptions as it has healthy pods beyond those it wants. A pod is healthy if it is Ready,
/// is not being deleted, and no eviction was about to delete it in the last two minutes. Upstream: `trySync`.
pub(super) fn found(
    budget: &Budget,
    selected: &Selected,
    pods: &BTreeMap<ObjectKey, Arc<Pod>>,
    now: Time,
) -> Found {
    let mut healthy = selected.healthy;
    let (mut disrupted, mut kept) = (BTreeMap::new(), Vec::new());
    for (name, at) in &budget.status.disrupted {
        let key = ObjectKey { namespace: budget.key.namespace.clone(), name: name.clone() };
        let pod = pods.get(&key).filter(|it| budget.selects(it) && !it.deleting);
        let Some(pod) = pod else { continue };
        if now < *at + DELETED_WITHIN {
            disrupted.insert(name.clone(), *at);
            healthy -= i64::from(pod.is_healthy());
        } else {
            kept.push(pod.clone());
        }
    }
    let counts = demand(budget, selected, pods);
    Found { counts: counts.map(|(desired, expected)| Counts { healthy, desired, expected, disrupted }), kept }
}

/// Rule: a number of pods that must be healthy is just that. A percentage, or a number that may be missing, is of what the
/// pods' controllers were asked for: that needs controllers with a scale, which a DaemonSet is not. Pods without a
/// controller are not counted. Upstream: `getExpectedPodCount`.
fn demand(
    budget: &Budget,
    selected: &Selected,
    pods: &BTreeMap<ObjectKey, Arc<Pod>>,
) -> Result<(i64, i64), String> {
    let (share, is_of_missing) = match &budget.demand {
        Demand::Healthy(count) => return Ok((*count, selected.pods)),
        Demand::Nothing => return Ok((0, 0)),
        Demand::Unreadable(problem) => return Err(String::from(&**problem)),
        Demand::HealthyShare(share) => (share, false),
        Demand::Missing(share) => (share, true),
    };
    if let Some(name) = selected.controlled.first() {
        let key = ObjectKey { namespace: budget.key.namespace.clone(), name: name.clone() };
        let controller = pods.get(&key).and_then(|it| it.controller.as_ref());
        return Err(controller.map_or_else(String::new, unscaled));
    }
    // Whoever has no controller was asked for by nobody.
    let expected = 0;
    let share = share.of(expected);
    let desired = if is_of_missing { expected.saturating_sub(share) } else { share };
    Ok((i64::try_from(desired).unwrap_or(i64::MAX), 0))
}

/// No kind that is served here has a scale.
fn unscaled(controller: &PodController) -> String {
    let PodController { api_version, kind, .. } = controller;
    let resource = match (&**api_version, &**kind) {
        ("apps/v1" | "extensions/v1beta1", "DaemonSet") => "daemonsets.apps",
        ("v1", "Node") => "nodes",
        _ => return format!("no matches for kind {kind:?} in version {api_version:?}"),
    };
    format!("{resource} does not implement the scale subresource")
}

impl Found {
    /// When something will have changed, though nothing happens.
    pub(super) fn look_again_at(&self) -> Option<Time> {
        let disrupted = self.counts.as_ref().ok().map(|it| &it.disrupted);
        let times = disrupted.into_iter().flatten().map(|(_, at)| Some(*at + DELETED_WITHIN));
        times.fold(None, earliest)
    }

    pub(super) fn status(&self, budget: &Budget, now: Time) -> Status {
        match &self.counts {
            Ok(counts) => {
                // A budget that expects no pods allows nothing: the first ones may be about to come.
                let spare = (counts.healthy - counts.desired).max(0);
                let allowed = if 0 < counts.expected { spare } else { 0 };
                let (word, reason) =
                    if 0 < allowed { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
                let status = Status {
                    observed_generation: budget.generation,
                    allowed,
                    healthy: counts.healthy,
                    desired: counts.desired,
                    expected: counts.expected,
                    disrupted: counts.disrupted.clone(),
                    conditions: budget.status.conditions.clone(),
                };
                with_condition(status, word, reason, "", budget.generation, now)
            }
            // Nothing else can be said, but that nothing may go. Upstream: `failSafe`.
            Err(problem) => {
                let observed = budget.status.observed_generation;
                let status = Status { allowed: 0, ..budget.status.clone() };
                with_condition(status, "False", "SyncFailed", problem, observed, now)
            }
        }
    }

    pub(super) fn events(&self, budget: &Budget, selected: &Selected) -> Vec<EventRecord> {
        let mut events = Vec::new();
        let mut tell = |warning, reason, message| {
            events.push(EventRecord { about: budget.reference(), event: Event { warning, reason, message } });
        };
        if selected.pods == 0 {
            tell(false, "NoPods", String::from("No matching pods found"));
        }
        let is_by_scale = matches!(budget.demand, Demand::HealthyShare(_) | Demand::Missing(_));
        match &self.counts {
            Err(problem) => {
                let message = format!("Failed to calculate the number of expected pods: {problem}");
                tell(true, "CalculateExpectedPodCountFailed", message);
            }
            Ok(_) if is_by_scale && !selected.unmanaged.is_empty() => tell(
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
        events.extend(self.kept.iter().map(|pod| EventRecord {
            about: pod.reference(),
            event: Event::warning(
                "NotDeleted",
                format!("Pod was expected by PDB {} to be deleted but it wasn't", budget.key),
            ),
        }));
        events
    }
}

/// The time of a condition is that of its last change of status.
fn with_condition(
    mut status: Status,
    word: &str,
    reason: &str,
    message: &str,
    generation: i64,
    now: Time,
) -> Status {
    let index = status.conditions.iter().position(|it| it["type"] == "DisruptionAllowed");
    let before = index.and_then(|it| status.conditions.get(it)).filter(|it| it["status"] == word);
    let since = before.and_then(|it| it["lastTransitionTime"].as_str());
    let mut condition = json!({
        "type": "DisruptionAllowed",
        "status": word,
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

/// As tests and logs show it.
impl core::fmt::Display for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { observed_generation, allowed, healthy, desired, expected, .. } = self;
        write!(
            f,
            "generation {observed_generation}: {healthy} of {expected} healthy, {desired} wanted, {allowed} may go"
        )?;
        for (name, at) in &self.disrupted {
            write!(f, ", {name} goes since {}", at.to_rfc3339())?;
        }
        let said = |it: &Value, field: &str| String::from(it[field].as_str().unwrap_or_default());
        for it in &self.conditions {
            write!(f, "; {} {} {}", said(it, "type"), said(it, "status"), said(it, "reason"))?;
            if !said(it, "message").is_empty() {
                write!(f, ": {}", said(it, "message"))?;
            }
        }
        Ok(())
    }
}
