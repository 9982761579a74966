//! [`ControllerState`]: the running controller's in-memory state about one DaemonSet, as `/debug/explain` returns it.

use alloc::string::{String, ToString as _};

use muster_api::text::Text;
use muster_api::time::Time;
use serde_json::{Map, Value, json};

use crate::controller::Backoff;
use crate::daemonset::RolloutDeletion;
use crate::daemonset::SetInMemoryState;
use crate::daemonset::execution::CreateResult;

/// The response of the running controller to a `/debug/explain` request, or why there is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControllerAnswer {
    /// The controller responded with its state about the DaemonSet.
    Responded(ControllerState),
    /// The controller could not be queried. Holds the reason as a message.
    Unavailable(String),
}

/// The running controller's in-memory state about one DaemonSet, such as backoffs, pending writes and its state in the
/// work queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ControllerState {
    /// The state that the controller keeps between reconciles of the DaemonSet, such as backoffs.
    pub memory: SetInMemoryState,
    /// Whether a plan of the DaemonSet is being executed.
    pub is_executing: bool,
    /// Whether the DaemonSet is in the work queue of the controller.
    pub queued: bool,
    /// The time at which the controller reconciles the DaemonSet again even without an event. `None` if there is no
    /// such time.
    pub wakes_at: Option<Time>,
    /// Time before which the DaemonSet is not reconciled, because its last reconcile panicked. `None` if it did not
    /// panic.
    pub panic_backoff_until: Option<Time>,
}

impl ControllerState {
    /// Encodes the state as the JSON of the `/debug/explain` endpoint.
    pub fn to_json(&self) -> Value {
        let time = |at: Option<Time>| at.map(Time::to_rfc3339_micros);
        let memory = &self.memory;
        let backoffs: Map<String, Value> = memory
            .backoffs
            .iter()
            .map(|(node, it)| {
                let delay_ms = u64::try_from(it.delay.as_millis()).unwrap_or(u64::MAX);
                (node.to_string(), json!({"failedAt": time(Some(it.since)), "delayMs": delay_ms}))
            })
            .collect();
        let rollout_deletions: Map<String, Value> = memory
            .rollout_deletions
            .iter()
            .map(|(node, it)| (node.to_string(), json!({"hash": it.hash, "at": time(Some(it.at))})))
            .collect();
        let creates = match &memory.creates {
            CreateResult::Unknown => Value::Null,
            CreateResult::Succeeded | CreateResult::NamespaceTerminating => json!({"refused": null}),
            CreateResult::Refused(reason) => json!({"refused": reason}),
            CreateResult::Failed(reason) => json!({"failed": reason}),
        };
        json!({
            "generation": memory.generation,
            "executing": self.is_executing,
            "queued": self.queued,
            "nextReconcileAt": time(self.wakes_at),
            "panicBackoffUntil": time(self.panic_backoff_until),
            "unseenWrites": memory.unseen_writes,
            "failures": memory.failures,
            "retryAt": time(memory.retry_at),
            "advancedAt": time(memory.advanced_at),
            "creates": creates,
            "backoffs": backoffs,
            "rolloutDeletions": rollout_deletions,
        })
    }

    /// Parses the JSON of the `/debug/explain` endpoint. `None` if the text is not JSON, or if `generation` or
    /// `backoffs` is missing. Other missing fields get their default.
    pub fn from_json(json: &[u8]) -> Option<Self> {
        let json_state: Value = serde_json::from_slice(json).ok()?;
        let time = |at: &Value| at.as_str().and_then(Time::parse);
        let backoff = |it: &Value| {
            let delay = core::time::Duration::from_millis(it["delayMs"].as_u64()?);
            Some(Backoff { delay, since: time(&it["failedAt"])? })
        };
        let backoffs = json_state.get("backoffs")?.as_object()?.iter();
        let deletion =
            |it: &Value| Some(RolloutDeletion { hash: it["hash"].as_str()?.into(), at: time(&it["at"])? });
        Some(Self {
            memory: SetInMemoryState {
                generation: json_state.get("generation")?.as_i64()?,
                backoffs: backoffs
                    .filter_map(|(node, it)| Some((Text::from(node.as_str()), backoff(it)?)))
                    .collect(),
                rollout_deletions: json_state["rolloutDeletions"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter_map(|(node, it)| Some((Text::from(node.as_str()), deletion(it)?)))
                    .collect(),
                unseen_writes: json_state["unseenWrites"]
                    .as_u64()
                    .and_then(|it| it.try_into().ok())
                    .unwrap_or(0),
                failures: json_state["failures"].as_u64().and_then(|it| it.try_into().ok()).unwrap_or(0),
                retry_at: time(&json_state["retryAt"]),
                advanced_at: time(&json_state["advancedAt"]),
                creates: match (
                    json_state["creates"]["refused"].as_str(),
                    json_state["creates"]["failed"].as_str(),
                ) {
                    (Some(reason), _) => CreateResult::Refused(reason.into()),
                    (None, Some(reason)) => CreateResult::Failed(reason.into()),
                    (None, None) if json_state["creates"].is_object() => CreateResult::Succeeded,
                    (None, None) => CreateResult::Unknown,
                },
            },
            is_executing: json_state["executing"] == true,
            queued: json_state["queued"] == true,
            wakes_at: time(&json_state["nextReconcileAt"]),
            panic_backoff_until: time(&json_state["panicBackoffUntil"]),
        })
    }
}
