//! Explains why a DaemonSet runs or does not run on each node: `muster explain`.
//!
//! The caller reads the cluster into a [`Snapshot`]; the controller's own rules evaluate it, and the result is an
//! [`Explanation`], printed as text or JSON. No decision is made twice: every reason is a [`Why`] of the rules.

mod controller_state;
mod decode;
mod json;
mod snapshot;
mod text;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

pub use crate::daemonset::{NodeExplanation, NodeState, RolloutState};
pub use controller_state::{ControllerAnswer, ControllerState};
pub(crate) use json::{node_json, strategy_name_and_limit};
pub use snapshot::{Snapshot, SnapshotError};
pub(crate) use text::{format_duration, format_names, format_time, pluralize, write_labelled, write_wrapped};

use crate::daemonset::facts::{Set, UpdateStrategy};
use crate::daemonset::why::Why;

/// The state of one DaemonSet on every node.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    pub key: ObjectKey,
    pub now: Time,
    pub set: Arc<Set>,
    /// Number of the current revision; `None` until a revision records the template.
    pub revision: Option<i64>,
    /// Sorted by node name; deleted nodes that still have pods are last.
    pub nodes: Vec<NodeReport>,
    pub rollout: RolloutState,
    pub controller: ControllerAnswer,
    /// Notes for the user that belong to no node.
    pub notes: Vec<String>,
}

/// The state of one DaemonSet on one node, with its reason as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeReport {
    pub explained: NodeExplanation,
    /// The reason of the state as text, the same for all nodes with that reason.
    pub message: String,
    /// Further lines about this node, without the message.
    pub details: Vec<String>,
}

/// Nodes with the same state and reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeGroup<'a> {
    pub state: NodeState,
    pub message: &'a str,
    pub nodes: Vec<&'a NodeReport>,
}

impl Explanation {
    /// Rule: nodes with the same state and reason are one group. Groups of nodes that should run the DaemonSet are
    /// first; within a state, larger groups are first.
    pub fn groups(&self) -> Vec<NodeGroup<'_>> {
        let mut by_reason: BTreeMap<(NodeState, &str), Vec<&NodeReport>> = BTreeMap::new();
        for node in &self.nodes {
            by_reason.entry((node.explained.state, &node.message)).or_default().push(node);
        }
        let groups =
            by_reason.into_iter().map(|((state, message), nodes)| NodeGroup { state, message, nodes });
        let mut groups: Vec<NodeGroup<'_>> = groups.collect();
        groups.sort_by_key(|it| (it.state, core::cmp::Reverse(it.nodes.len())));
        groups
    }

    /// Number of nodes in a state.
    pub fn count(&self, state: NodeState) -> usize {
        self.nodes.iter().filter(|it| it.explained.state == state).count()
    }

    pub fn node_count(&self) -> usize {
        self.nodes.len() - self.count(NodeState::Gone)
    }

    /// Rule: a rollout waits for the nodes that use its budget; they are listed by reason, largest group first.
    pub fn waits_for(&self) -> Vec<(&str, Vec<&Text>)> {
        let mut by_reason: BTreeMap<&str, Vec<&Text>> = BTreeMap::new();
        let has_budget = self.set.rollout != UpdateStrategy::OnDelete;
        for node in self.nodes.iter().filter(|it| it.explained.charged && has_budget) {
            by_reason.entry(&node.message).or_default().push(&node.explained.node);
        }
        let mut all: Vec<(&str, Vec<&Text>)> = by_reason.into_iter().collect();
        all.sort_by_key(|(_, nodes)| core::cmp::Reverse(nodes.len()));
        all
    }
}

/// Message for a reason without pod names and times, so that it is the same for all nodes; [`reason_details`] has those.
fn reason_message(why: &Why) -> String {
    match why {
        Why::AnotherNodeIsNamed { .. }
        | Why::SelectorAsksForLabel { .. }
        | Why::AffinityCannotBeRead { .. }
        | Why::TaintKeepsAway { .. }
        | Why::TaintSendsOff { .. }
        | Why::KeptByTaint { .. }
        | Why::TolerationDropped { .. }
        | Why::NodeInTrouble { .. }
        | Why::UpdatesWaitForDeletion => why.to_string(),
        // The state of the node says the rest.
        Why::NotReady { reason: Some(reason) } => reason.to_string(),
        Why::NotReady { reason: None } => "its pod is not ready yet".to_string(),
        Why::UpToDate => "its pod is available".to_string(),
        _ => why.label().to_string(),
    }
}

/// The pod names and times of a reason, which its shared message omits.
fn reason_details(why: &Why, now: Time) -> Option<String> {
    match why {
        Why::FailedRecently { retry_at } => {
            Some(format!("the failed pod is replaced at {}", format_time(*retry_at, now)))
        }
        Why::StillSettling { until } => {
            Some(format!("it counts as available at {}", format_time(*until, now)))
        }
        Why::NodeIsLost { since } | Why::NodeIsSilent { since } => {
            Some(format!("nothing was heard of the node since {}", format_time(*since, now)))
        }
        Why::StillLeaving { .. }
        | Why::TooManyStillLeaving { .. }
        | Why::SurplusPod { .. }
        | Why::NewPodIsAvailable { .. }
        | Why::NewPodBesideNotReadyOld { .. } => Some(why.to_string()),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
