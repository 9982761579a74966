//! Prints an explanation as JSON. docs/explain.md documents the schema; fields are only ever added.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use muster_api::time::Time;
use serde_json::{Map, Value, json};

use super::{ControllerAnswer, Explanation, NodeState, OnNode};
use crate::daemonset::facts::Rollout;

impl Explanation {
    /// The explanation as JSON, with all nodes or only one.
    pub fn to_json(&self, only: Option<&str>) -> Value {
        let shown = self.nodes.iter().filter(|it| only.is_none_or(|only| it.is.node.as_ref() == only));
        let (set, rollout) = (&self.set, &self.rollout);
        let mut counts = Map::new();
        counts.insert("total".to_string(), self.node_count().into());
        for state in NodeState::ALL {
            counts.insert(camel(state), self.count(state).into());
        }
        let (strategy, share) = strategy(set.rollout);
        let waits_for: Vec<Value> = self
            .waits_for()
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
                "share": share,
                "budget": rollout.budget,
                "used": rollout.charged,
                "complete": rollout.complete,
                "waitsFor": waits_for,
                "next": rollout.next,
            },
            "controller": controller(&self.controller),
            "nodes": shown.map(on_node).collect::<Vec<_>>(),
            "notes": self.notes,
            "at": self.now.to_rfc3339(),
        })
    }
}

fn controller(answer: &ControllerAnswer) -> Value {
    match answer {
        ControllerAnswer::NotKnown(why) => json!({"known": false, "why": why}),
        ControllerAnswer::By(it) => {
            let mut said = it.to_json();
            said["known"] = true.into();
            said
        }
    }
}

pub(crate) fn on_node(node: &OnNode) -> Value {
    json!({
        "node": node.is.node,
        "shouldRun": node.is.state.should_run(),
        "state": camel(node.is.state),
        "pod": node.is.pod,
        "reason": node.is.why.reason(),
        "message": node.message,
        "details": node.details,
        "usesBudget": node.is.charged,
        "changesAt": node.is.wakes_at.map(Time::to_rfc3339),
    })
}

pub(crate) fn strategy(rollout: Rollout) -> (&'static str, Option<String>) {
    match rollout {
        Rollout::OnDelete => ("OnDelete", None),
        Rollout::Drain(share) => ("maxUnavailable", Some(super::text::in_words(share))),
        Rollout::Surge(share) => ("maxSurge", Some(super::text::in_words(share))),
    }
}

/// Formats a state in camel case: `upToDate`.
pub(crate) fn camel(state: NodeState) -> String {
    let mut words = state.as_str().split(' ');
    let first = words.next().unwrap_or_default().to_string();
    words.fold(first, |mut name, word| {
        let mut letters = word.chars();
        name.extend(letters.next().map(|it| it.to_ascii_uppercase()));
        name.extend(letters);
        name
    })
}
