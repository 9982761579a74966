//! The calls of the disruption controller and their API requests.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::ToString as _;
use alloc::sync::Arc;
use core::fmt;

use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::DISRUPTION_TARGET;
use serde_json::{Map, Value, json};

use super::DisruptionKey;
use super::decode::{BudgetStatus, Pod, PodDisruptionBudget};
use crate::controller::{PatchFormat, Request, Verb};

/// A call of the disruption controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DisruptionCall {
    /// Writes the status of a PodDisruptionBudget.
    WriteStatus { budget: Arc<PodDisruptionBudget>, status: BudgetStatus },
    /// Sets the condition `DisruptionTarget` of a pod to False, with `at` as its transition time.
    ClearDisruptionTarget { pod: Arc<Pod>, at: Time },
}

impl DisruptionCall {
    /// Returns the work queue key of the object that the call writes.
    pub(super) fn queue_key(&self) -> DisruptionKey {
        match self {
            Self::WriteStatus { budget, .. } => DisruptionKey::Budget(budget.key.clone()),
            Self::ClearDisruptionTarget { pod, .. } => DisruptionKey::Pod(pod.key.clone()),
        }
    }

    /// Returns the resource version of the budget or pod from which the call was computed. It is the precondition of
    /// the request.
    pub(super) fn base_version(&self) -> u64 {
        match self {
            Self::WriteStatus { budget, .. } => budget.resource_version,
            Self::ClearDisruptionTarget { pod, .. } => pod.resource_version,
        }
    }
}

/// Returns the API request of a call: a patch with UID and `resourceVersion` as its preconditions.
pub(super) fn request(call: &DisruptionCall) -> Request {
    match call {
        DisruptionCall::WriteStatus { budget, status } => {
            let names: BTreeSet<&Text> =
                budget.status.disrupted.keys().chain(status.disrupted.keys()).collect();
            let disrupted: Map<_, _> = names
                .into_iter()
                .map(|it| {
                    (
                        it.as_ref().into(),
                        status.disrupted.get(it).map_or(Value::Null, |at| json!(at.to_rfc3339())),
                    )
                })
                .collect();
            let disrupted = if status.disrupted.is_empty() { Value::Null } else { Value::Object(disrupted) };
            let body = json!({
                "metadata": {"uid": budget.uid, "resourceVersion": budget.resource_version.to_string()},
                "status": {
                    "observedGeneration": status.observed_generation,
                    "disruptionsAllowed": status.allowed,
                    "currentHealthy": status.healthy,
                    "desiredHealthy": status.desired,
                    "expectedPods": status.expected,
                    "disruptedPods": disrupted,
                    "conditions": status.conditions,
                },
            });
            let (namespace, name) = (&budget.key.namespace, &budget.key.name);
            let path = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}/status");
            Request { verb: Verb::Patch(PatchFormat::Merge), path, body: Some(body), metadata_only: true }
        }
        DisruptionCall::ClearDisruptionTarget { pod, at } => {
            let body = json!({
                "metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version.to_string()},
                "status": {"conditions": [{
                    "type": DISRUPTION_TARGET,
                    "status": "False",
                    "reason": null,
                    "message": null,
                    "lastTransitionTime": at.to_rfc3339(),
                }]},
            });
            let path = format!("/api/v1/namespaces/{}/pods/{}/status", pod.key.namespace, pod.key.name);
            Request { verb: Verb::Patch(PatchFormat::Strategic), path, body: Some(body), metadata_only: true }
        }
    }
}

/// Formats the call on one line, for logs and tests.
impl fmt::Display for DisruptionCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteStatus { budget, status } => write!(f, "status of {}: {status}", budget.key),
            Self::ClearDisruptionTarget { pod, .. } => write!(f, "clear DisruptionTarget of {}", pod.key),
        }
    }
}
