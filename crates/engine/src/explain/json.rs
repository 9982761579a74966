//! Formats an explanation as JSON. docs/explain.md documents the schema. Fields may be added, but are never removed.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use muster_api::time::Time;
use serde_json::{Map, Value, json};

use super::{
    ControllerAnswer, ControllerMode, Explanation, NodeReport, NodeSummary, ProgressiveRolloutSummary,
};
use crate::daemonset::facts::UpdateStrategy;
use crate::daemonset::progressive::record::{Phase, RevisionReference};

impl Explanation {
    /// Returns the explanation as JSON. Its field `nodes` contains only the node with the name `only`, or all nodes if
    /// `only` is `None`.
    pub fn to_json(&self, only: Option<&str>) -> Value {
        let shown = self.nodes.iter().filter(|it| only.is_none_or(|only| it.explained.node.as_ref() == only));
        let (set, rollout) = (&self.set, &self.rollout);
        let mut counts = Map::new();
        counts.insert("total".to_string(), self.node_count().into());
        for state in NodeSummary::ALL {
            counts.insert(camel_case(state), self.count(state).into());
        }
        let (strategy, limit) = strategy_name_and_limit(rollout.strategy);
        let wait_reasons: Vec<Value> = self
            .wait_reasons()
            .iter()
            .map(|(message, nodes)| json!({"message": message, "nodes": nodes}))
            .collect();
        json!({
            "daemonSet": {
                "namespace": self.key.namespace,
                "name": self.key.name,
                "uid": set.uid,
                "generation": set.generation,
                "observedGeneration": set.status.observed_generation,
                "revision": self.revision,
                "revisionHash": rollout.hash,
            },
            "counts": counts,
            "rollout": {
                "strategy": strategy,
                "limit": limit,
                "budget": rollout.budget,
                "used": rollout.charged,
                "complete": rollout.complete,
                "waitsFor": wait_reasons,
                "next": rollout.next,
                "progressive": rollout.progressive.as_ref().map(|it| progressive_json(it, self.mode)),
            },
            "controller": controller_json(&self.controller),
            "nodes": shown.map(node_json).collect::<Vec<_>>(),
            "notes": self.notes,
            "at": self.now.to_rfc3339(),
        })
    }
}

/// Returns the value of the field `rollout.progressive` in the JSON of an explanation.
fn progressive_json(it: &ProgressiveRolloutSummary, mode: ControllerMode) -> Value {
    let revision = |it: &RevisionReference| json!({"revision": it.hash, "number": it.number});
    let status = it.status.as_ref();
    json!({
        "policy": it.policy.as_ref().map(|(kind, name)| json!({"kind": kind.as_str(), "name": name})),
        "assist": match mode {
            ControllerMode::Own => Some(false),
            ControllerMode::Assist => Some(true),
            ControllerMode::Unknown => None,
        },
        "phase": status.and_then(|it| it.phase).map(Phase::as_str),
        "paused": status.is_some_and(|it| it.paused),
        "step": status.and_then(|it| it.step.as_ref()).map(|it| &it.name),
        "stable": it.stable.as_ref().map(revision),
        "admitted": status.map(|it| it.nodes.admitted),
        "held": status.map(|it| it.nodes.held),
        "unassigned": status.map(|it| it.nodes.unassigned),
        "failed": status.map(|it| it.failures.nodes.iter().map(|it| &it.node).collect::<Vec<_>>()),
        "message": it.frozen.as_deref().or(status.map(|it| &*it.message)),
    })
}

/// Returns the value of the field `controller` in the JSON of an explanation.
fn controller_json(answer: &ControllerAnswer) -> Value {
    match answer {
        ControllerAnswer::Unavailable(why) => json!({"known": false, "why": why}),
        ControllerAnswer::Responded(it) => {
            let mut said = it.to_json();
            said["known"] = true.into();
            said
        }
    }
}

/// Returns the JSON of one element of the list `nodes` in an explanation, or of a node list in a preview.
pub(crate) fn node_json(node: &NodeReport) -> Value {
    json!({
        "node": node.explained.node,
        "shouldRun": node.explained.state.should_run(),
        "state": camel_case(node.explained.state),
        "pod": node.explained.pod,
        "reason": node.explained.why.reason(),
        "message": node.message,
        "details": node.details,
        "revision": node.explained.revision,
        "assignedRevision": node.explained.assigned,
        "admitted": node.explained.admitted,
        "usesBudget": node.explained.charged,
        "changesAt": node.explained.wakes_at.map(Time::to_rfc3339),
    })
}

/// Returns the name and value of the field that limits the rollout: `maxUnavailable` or `maxSurge`. For the strategy
/// `OnDelete`, returns `OnDelete` and no value.
pub(crate) fn strategy_name_and_limit(rollout: UpdateStrategy) -> (&'static str, Option<String>) {
    match rollout {
        UpdateStrategy::OnDelete => ("OnDelete", None),
        UpdateStrategy::Drain(share) => ("maxUnavailable", Some(super::text::format_int_or_percent(share))),
        UpdateStrategy::Surge(share) => ("maxSurge", Some(super::text::format_int_or_percent(share))),
    }
}

/// Returns the name of a node state in camel case, such as `upToDate`.
pub(crate) fn camel_case(state: NodeSummary) -> String {
    let mut words = state.as_str().split(' ');
    let first = words.next().unwrap_or_default().to_string();
    words.fold(first, |mut name, word| {
        let mut letters = word.chars();
        name.extend(letters.next().map(|it| it.to_ascii_uppercase()));
        name.extend(letters);
        name
    })
}
