//! Explains for each node why it runs or does not run a DaemonSet: `muster explain`.
//!
//! The caller reads the objects of the cluster into a [`Snapshot`]. The rules of the controller evaluate the snapshot.
//! The result is an [`Explanation`], which is printed as text or JSON. Every reason comes from the rules of the
//! controller or of the scheduler, or from the status of a pod or node.

/// The running controller's in-memory state about a DaemonSet, as `/debug/explain` returns it.
mod controller_state;
/// Formats an explanation as JSON.
mod json;
/// Formats why a pod is not ready.
mod pod_problem;
/// The objects of a cluster that concern one DaemonSet, from which its state is computed.
mod snapshot;
/// Formats an explanation as text.
mod text;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

pub use crate::daemonset::{
    ControllerMode, NodeExplanation, NodeSummary, ProgressiveRolloutSummary, RolloutSummary,
};
pub use controller_state::{ControllerAnswer, ControllerState};
pub(crate) use json::{node_json, strategy_name_and_limit};
pub use snapshot::{Snapshot, SnapshotError};
pub(crate) use text::{format_duration, format_names, format_time, pluralize, write_labelled, write_wrapped};

use crate::daemonset::facts::{Set, UpdateStrategy};
use crate::daemonset::why::Why;

/// The output of `muster explain`: the state of one DaemonSet on every node, its rollout, and its controller.
#[derive(Clone, PartialEq, Debug)]
pub struct Explanation {
    /// Namespace and name of the DaemonSet.
    pub key: ObjectKey,
    /// Time at which the state was computed.
    pub now: Time,
    pub set: Arc<Set>,
    /// Number of the current revision. `None` if no revision contains the current template yet.
    pub revision: Option<i64>,
    /// The state of the DaemonSet on each node, sorted by node name. Deleted nodes that still have pods are last.
    pub nodes: Vec<NodeReport>,
    /// Progress and budget of the DaemonSet's rollout.
    pub rollout: RolloutSummary,
    /// Whether this controller acts on the DaemonSet alone, or in assist mode beside upstream's controller. `Unknown`
    /// if the metadata of the DaemonSet does not show that.
    pub mode: ControllerMode,
    /// The response of the running controller about the DaemonSet, or why there is none.
    pub controller: ControllerAnswer,
    /// Messages for the user that are not about a single node.
    pub notes: Vec<String>,
}

/// The state of one DaemonSet on one node, with the reason and details as messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeReport {
    /// The state and its reason, as the controller's rules return them.
    pub explained: NodeExplanation,
    /// The reason as a message. It contains no pod names or times, so that all nodes with the same reason have the same
    /// message.
    pub message: String,
    /// Further messages about this node, such as pod names, times and unmet requirements.
    pub details: Vec<String>,
}

/// Nodes on which the DaemonSet has the same state for the same reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeGroup<'a> {
    pub state: NodeSummary,
    /// The reason for the state as a message ([`NodeReport::message`]).
    pub message: &'a str,
    pub nodes: Vec<&'a NodeReport>,
}

impl Explanation {
    /// Returns the nodes grouped by state and reason.
    ///
    /// Rule: nodes with the same state and the same message are one group. The groups are in the order of
    /// [`NodeSummary::ALL`]. Within a state, larger groups are first.
    pub fn groups(&self) -> Vec<NodeGroup<'_>> {
        let mut by_reason: BTreeMap<(NodeSummary, &str), Vec<&NodeReport>> = BTreeMap::new();
        for node in &self.nodes {
            by_reason.entry((node.explained.state, &node.message)).or_default().push(node);
        }
        let groups =
            by_reason.into_iter().map(|((state, message), nodes)| NodeGroup { state, message, nodes });
        let mut groups: Vec<NodeGroup<'_>> = groups.collect();
        groups.sort_by_key(|it| (it.state, core::cmp::Reverse(it.nodes.len())));
        groups
    }

    /// Returns the number of nodes on which the DaemonSet has this state.
    pub fn count(&self, state: NodeSummary) -> usize {
        self.nodes.iter().filter(|it| it.explained.state == state).count()
    }

    /// Returns the number of nodes, not counting deleted nodes that still have pods.
    pub fn node_count(&self) -> usize {
        self.nodes.len() - self.count(NodeSummary::Gone)
    }

    /// Returns the reasons why the rollout waits, each with the names of the nodes. Empty with `OnDelete`.
    ///
    /// Rule: a rollout waits for the nodes that count against its budget. They are grouped by reason, the largest group
    /// first.
    pub fn wait_reasons(&self) -> Vec<(&str, Vec<&Text>)> {
        let mut by_reason: BTreeMap<&str, Vec<&Text>> = BTreeMap::new();
        let has_budget = self.rollout.strategy != UpdateStrategy::OnDelete;
        for node in self.nodes.iter().filter(|it| it.explained.charged && has_budget) {
            by_reason.entry(&node.message).or_default().push(&node.explained.node);
        }
        let mut all: Vec<(&str, Vec<&Text>)> = by_reason.into_iter().collect();
        all.sort_by_key(|(_, nodes)| core::cmp::Reverse(nodes.len()));
        all
    }
}

/// Returns the message for a reason. The message contains no pod names or times, so that all nodes with the same reason
/// have the same message. [`reason_details`] returns the names and times.
fn reason_message(why: &Why) -> String {
    match why {
        Why::NodeNameMismatch { .. }
        | Why::NodeSelectorMismatch { .. }
        | Why::NodeAffinityInvalid { .. }
        | Why::UntoleratedNoScheduleTaint { .. }
        | Why::UntoleratedNoExecuteTaint { .. }
        | Why::KeptByTaint { .. }
        | Why::TolerationDropped { .. }
        | Why::NodeNotReadyOrUnreachable { .. }
        | Why::WaitsForUserDelete => why.to_string(),
        // The state of the node says the rest.
        Why::NotReady { reason: Some(reason) } => reason.to_string(),
        Why::NotReady { reason: None } => "its pod is not ready yet".to_string(),
        Why::UpToDate => "its pod is available".to_string(),
        _ => why.label().to_string(),
    }
}

/// Returns the details of a reason, such as pod names and times, which [`reason_message`] omits. `None` if the reason
/// has no details to show.
fn reason_details(why: &Why, now: Time) -> Option<String> {
    match why {
        Why::FailedPodBackoff { retry_at } => {
            Some(format!("the failed pod is replaced at {}", format_time(*retry_at, now)))
        }
        Why::WaitsForMinReady { until } => Some(format!("available at {}", format_time(*until, now))),
        Why::NodeLost { since } | Why::NodeUnreachable { since } => {
            Some(format!("no heartbeat since {}", format_time(*since, now)))
        }
        Why::StillTerminating { .. }
        | Why::TooManyTerminating { .. }
        | Why::SurplusPod { .. }
        | Why::NewPodAvailable { .. }
        | Why::OldPodNotReady { .. } => Some(why.to_string()),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
