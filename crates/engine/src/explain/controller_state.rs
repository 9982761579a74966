//! The in-memory state of the running controller, as `/debug/explain` sends it.

use alloc::string::{String, ToString as _};

use muster_api::text::Text;
use muster_api::time::Time;
use serde_json::{Map, Value, json};

use crate::daemonset::SetMemory;
use crate::daemonset::execution::CreateResult;
use crate::daemonset::{FailedPodBackoff, RolloutDeletion};

/// The running controller's state, if it could be queried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControllerAnswer {
    By(ControllerState),
    /// The controller could not be queried, for this reason.
    NotKnown(String),
}

/// In-memory state of the running controller for one DaemonSet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ControllerState {
    pub remembered: SetMemory,
    /// Whether a plan of the DaemonSet is being executed.
    pub acts: bool,
    /// Whether the DaemonSet is in the work queue.
    pub queued: bool,
    /// When the controller reconciles the DaemonSet again without an event.
    pub wakes_at: Option<Time>,
    /// Until when the DaemonSet is not reconciled because it made the controller panic.
    pub left_alone_until: Option<Time>,
}

impl ControllerState {
    /// The JSON of the `/debug/explain` endpoint.
    pub fn to_json(&self) -> Value {
        let time = |at: Option<Time>| at.map(Time::to_rfc3339_micros);
        let known = &self.remembered;
        let backoffs: Map<String, Value> = known
            .backoffs
            .iter()
            .map(|(node, it)| {
                let delay_ms = u64::try_from(it.delay.as_millis()).unwrap_or(u64::MAX);
                (node.to_string(), json!({"failedAt": time(Some(it.last)), "delayMs": delay_ms}))
            })
            .collect();
        let rollout_deletions: Map<String, Value> = known
            .rollout_deletions
            .iter()
            .map(|(node, it)| (node.to_string(), json!({"hash": it.hash, "at": time(Some(it.at))})))
            .collect();
        let creates = match &known.creates {
            CreateResult::Unknown => Value::Null,
            CreateResult::Succeeded | CreateResult::NamespaceTerminating => json!({"refused": null}),
            CreateResult::Refused(reason) => json!({"refused": reason}),
            CreateResult::Failed(reason) => json!({"failed": reason}),
        };
        json!({
            "generation": known.generation,
            "acts": self.acts,
            "queued": self.queued,
            "wakesAt": time(self.wakes_at),
            "leftAloneUntil": time(self.left_alone_until),
            "unseenWrites": known.unseen_writes,
            "failures": known.failures,
            "retryAt": time(known.retry_at),
            "advancedAt": time(known.advanced_at),
            "creates": creates,
            "backoffs": backoffs,
            "taken": rollout_deletions,
        })
    }

    /// Parses the JSON of the `/debug/explain` endpoint; `None` if it has another structure.
    pub fn of_json(json: &[u8]) -> Option<Self> {
        let said: Value = serde_json::from_slice(json).ok()?;
        let time = |at: &Value| at.as_str().and_then(Time::parse);
        let backoff = |it: &Value| {
            let delay = core::time::Duration::from_millis(it["delayMs"].as_u64()?);
            Some(FailedPodBackoff { last: time(&it["failedAt"])?, delay })
        };
        let backoffs = said.get("backoffs")?.as_object()?.iter();
        let deletion =
            |it: &Value| Some(RolloutDeletion { hash: it["hash"].as_str()?.into(), at: time(&it["at"])? });
        Some(Self {
            remembered: SetMemory {
                generation: said.get("generation")?.as_i64()?,
                backoffs: backoffs
                    .filter_map(|(node, it)| Some((Text::from(node.as_str()), backoff(it)?)))
                    .collect(),
                rollout_deletions: said["taken"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter_map(|(node, it)| Some((Text::from(node.as_str()), deletion(it)?)))
                    .collect(),
                unseen_writes: said["unseenWrites"].as_u64().and_then(|it| it.try_into().ok()).unwrap_or(0),
                failures: said["failures"].as_u64().and_then(|it| it.try_into().ok()).unwrap_or(0),
                retry_at: time(&said["retryAt"]),
                advanced_at: time(&said["advancedAt"]),
                creates: match (said["creates"]["refused"].as_str(), said["creates"]["failed"].as_str()) {
                    (Some(reason), _) => CreateResult::Refused(reason.into()),
                    (None, Some(reason)) => CreateResult::Failed(reason.into()),
                    (None, None) if said["creates"].is_object() => CreateResult::Succeeded,
                    (None, None) => CreateResult::Unknown,
                },
            },
            acts: said["acts"] == true,
            queued: said["queued"] == true,
            wakes_at: time(&said["wakesAt"]),
            left_alone_until: time(&said["leftAloneUntil"]),
        })
    }
}
