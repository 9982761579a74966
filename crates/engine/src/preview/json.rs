//! Formats a rollout preview as JSON. docs/explain.md documents the schema. Fields may be added, but are never removed.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use muster_api::text::Text;
use serde_json::{Value, json};

use super::{RevisionChange, RolloutPreview};
use crate::explain::{node_json, strategy_name_and_limit};

impl RolloutPreview {
    /// Returns the JSON that `muster plan --output json` prints.
    pub fn to_json(&self) -> Value {
        let nodes = self.after.nodes.iter();
        let loses: BTreeSet<&Text> = self.loses.iter().collect();
        let lost: Vec<Value> =
            nodes.clone().filter(|it| loses.contains(&it.explained.node)).map(node_json).collect();
        let batches: Vec<Value> = self
            .batches
            .iter()
            .map(|it| json!({"afterSeconds": it.after.as_secs(), "nodes": it.nodes, "step": it.step}))
            .collect();
        let (strategy, limit) = strategy_name_and_limit(self.after.rollout.strategy);
        let stops = self.stops.as_ref().map(|it| {
            let wait_reasons = it.wait_reasons.iter();
            let wait_reasons =
                wait_reasons.map(|(why, nodes): &(_, Vec<Text>)| json!({"message": why, "nodes": nodes}));
            json!({"left": it.left, "waitsFor": wait_reasons.collect::<Vec<_>>()})
        });
        json!({
            "daemonSet": {"namespace": self.key.namespace, "name": self.key.name},
            "change": change_json(self.change),
            "counts": {
                "total": self.after.node_count(),
                "gain": self.gains.len(),
                "lose": self.loses.len(),
                "replace": self.replaced_node_count(),
                "keep": self.keeps.len(),
                "without": self.nodes_without_pod_count(),
            },
            "gains": self.gains,
            "loses": lost,
            "rollout": {
                "strategy": strategy,
                "limit": limit,
                "batches": batches,
                "atLeastSeconds": self.at_least.as_secs(),
                "policy": self.policy,
                "stops": stops,
                "waitForDelete": self.waits,
            },
            "after": nodes.map(node_json).collect::<Vec<_>>(),
            "notes": self.after.notes,
        })
    }
}

/// Returns the value of the field `change` in the JSON of a preview.
fn change_json(change: RevisionChange) -> Value {
    match change {
        RevisionChange::Create => json!({"kind": "create"}),
        RevisionChange::Nothing => json!({"kind": "none"}),
        RevisionChange::NoRestart => json!({"kind": "noRestart"}),
        RevisionChange::NewRevision { number } => json!({"kind": "newRevision", "revision": number}),
        RevisionChange::Rollback { old_number, new_number } => {
            json!({"kind": "rollback", "was": old_number, "revision": new_number})
        }
    }
}
