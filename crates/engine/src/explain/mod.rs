//! Why a set runs where it does, and does not where it does not: `muster explain`.
//!
//! Whoever asks reads the cluster into a [`Snapshot`]; the rules look at it as the controller would, and what they find
//! is an [`Explanation`], as text or as JSON. Nothing here is decided a second time: every reason is a [`Why`] of the
//! rules themselves.

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
pub(crate) use json::{on_node, strategy};
pub use snapshot::{Snapshot, Unread};
pub(crate) use text::{counted, labelled, moment, names, span, wrapped};

use crate::daemonset::facts::{Rollout, Set};
use crate::daemonset::why::Why;

/// What is true of one set, on every node.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    pub key: ObjectKey,
    pub now: Time,
    pub set: Arc<Set>,
    /// The number of the current revision; `None` while it is not recorded.
    pub revision: Option<i64>,
    /// By name; pods whose node is gone come last.
    pub nodes: Vec<OnNode>,
    pub rollout: RolloutState,
    pub controller: ControllerAnswer,
    /// Further notes for the user.
    pub notes: Vec<String>,
}

/// One node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OnNode {
    pub is: NodeExplanation,
    /// In words that nodes of one reason share.
    pub message: String,
    /// All there is to say of this node, the message left out.
    pub details: Vec<String>,
}

/// Nodes of one state and one reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group<'a> {
    pub state: NodeState,
    pub message: &'a str,
    pub nodes: Vec<&'a OnNode>,
}

impl Explanation {
    /// Rule: nodes of one state and one reason are one line; those that should run the set come first, and of those that
    /// are in one state the largest group.
    pub fn groups(&self) -> Vec<Group<'_>> {
        let mut by_reason: BTreeMap<(NodeState, &str), Vec<&OnNode>> = BTreeMap::new();
        for node in &self.nodes {
            by_reason.entry((node.is.state, &node.message)).or_default().push(node);
        }
        let groups = by_reason.into_iter().map(|((state, message), nodes)| Group { state, message, nodes });
        let mut groups: Vec<Group<'_>> = groups.collect();
        groups.sort_by_key(|it| (it.state, core::cmp::Reverse(it.nodes.len())));
        groups
    }

    /// How many nodes are in each state. Pods whose node is gone are on no node.
    pub fn count(&self, state: NodeState) -> usize {
        self.nodes.iter().filter(|it| it.is.state == state).count()
    }

    pub fn node_count(&self) -> usize {
        self.nodes.len() - self.count(NodeState::Gone)
    }

    /// Rule: what a rollout waits for are the nodes that take up its budget and are not up to date: by reason, most nodes
    /// first.
    pub fn waits_for(&self) -> Vec<(&str, Vec<&Text>)> {
        let mut by_reason: BTreeMap<&str, Vec<&Text>> = BTreeMap::new();
        let has_budget = self.set.rollout != Rollout::OnDelete;
        for node in self.nodes.iter().filter(|it| it.is.charged && has_budget) {
            by_reason.entry(&node.message).or_default().push(&node.is.node);
        }
        let mut all: Vec<(&str, Vec<&Text>)> = by_reason.into_iter().collect();
        all.sort_by_key(|(_, nodes)| core::cmp::Reverse(nodes.len()));
        all
    }
}

/// Words for a reason that all nodes share which have it: no names of pods, no times. Those are details.
fn shared_words(why: &Why) -> String {
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

/// The particulars that the shared words leave out.
fn particulars(why: &Why, now: Time) -> Option<String> {
    match why {
        Why::FailedRecently { retry_at } => {
            Some(format!("the failed pod is replaced at {}", moment(*retry_at, now)))
        }
        Why::StillSettling { until } => Some(format!("it counts as available at {}", moment(*until, now))),
        Why::NodeIsLost { since } | Why::NodeIsSilent { since } => {
            Some(format!("nothing was heard of the node since {}", moment(*since, now)))
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
