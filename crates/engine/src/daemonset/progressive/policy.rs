//! A RolloutPolicy or ClusterRolloutPolicy as the rules read it, and the rule which policy governs a DaemonSet.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use muster_api::labels::{Labels, Selector};
use muster_api::meta::ObjectKey;
use muster_api::muster_v1alpha1::validation::FAULTY_NODES_MAX;
use muster_api::text::Text;
use muster_api::time::Time;

use super::order::NodeOrder;
use super::window::Window;
use crate::daemonset::facts::IntOrPercent;

/// The kind of a policy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PolicyKind {
    RolloutPolicy,
    ClusterRolloutPolicy,
}

impl PolicyKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RolloutPolicy => "RolloutPolicy",
            Self::ClusterRolloutPolicy => "ClusterRolloutPolicy",
        }
    }
}

/// A policy object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    pub kind: PolicyKind,
    /// Name and namespace; a ClusterRolloutPolicy has no namespace.
    pub key: ObjectKey,
    pub resource_version: u64,
    pub generation: i64,
    pub created: Time,
    pub selection: SetSelection,
    pub spec: PolicySpec,
    /// Invalid fields, each with its path. The DaemonSets of an invalid policy are held: nothing is admitted or replaced.
    pub invalid: Vec<String>,
}

/// The DaemonSets that a policy governs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetSelection {
    Names(BTreeSet<Text>),
    /// DaemonSets whose labels match.
    Selector(Selector),
    /// DaemonSets whose labels match, in namespaces whose labels match.
    Cluster {
        sets: Selector,
        namespaces: Selector,
    },
}

/// The settings of a policy. The default is that of an empty `spec`: one step for all nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicySpec {
    pub paused: bool,
    pub windows: Vec<Window>,
    /// The limit of unavailable nodes for DaemonSets with `OnDelete` that have none themselves.
    pub max_unavailable: IntOrPercent,
    pub order: NodeOrder,
    pub steps: Vec<Step>,
    pub failures: FailureRules,
    pub on_failure: OnFailure,
    pub progress_deadline: Duration,
    pub on_deadline: OnDeadline,
    pub new_nodes: NewNodes,
    pub checks: Vec<Check>,
    pub replace_method: ReplaceMethod,
}

/// One step of a rollout: how many nodes may have the new revision before the next step starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub name: Text,
    /// How many of the eligible nodes that match `selector` may have the new revision, those of earlier steps included.
    pub nodes: IntOrPercent,
    /// Only nodes that match are admitted in this step. An empty selector matches all nodes.
    pub selector: Selector,
    /// The label over whose values the admitted nodes are spread evenly.
    pub spread: Option<Text>,
    /// How long every node must have been available before the step passes.
    pub soak: Duration,
    pub approval: Approval,
    pub groups: Option<Groups>,
}

impl Step {
    /// The label that divides the nodes of this step into groups: that of `groups` or of `spread`.
    pub fn group_label(&self) -> Option<&Text> {
        self.groups.as_ref().map(|it| &it.label).or(self.spread.as_ref())
    }
}

/// Whether a step needs the approval of an operator after it has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Approval {
    Automatic,
    Manual,
}

/// Groups of nodes, such as zones, that are updated one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Groups {
    /// The label whose value is the group of a node.
    pub label: Text,
    /// Groups to update first, in this order. Other groups follow by name.
    pub sequence: Vec<Text>,
    /// Number of groups that may be updated at a time.
    pub max_concurrent: usize,
    /// How many nodes of one group may be unavailable, besides the limit of the DaemonSet.
    pub max_unavailable: IntOrPercent,
    /// How long every node of a group must have been available before the next group starts.
    pub soak: Duration,
}

impl Groups {
    /// The rank of a group among all groups: those of `sequence` first, then by name, nodes without the label last.
    pub fn rank<'a>(&self, group: &'a str) -> (usize, bool, &'a str) {
        let at = self.sequence.iter().position(|it| **it == *group).unwrap_or(self.sequence.len());
        (at, group.is_empty(), group)
    }
}

/// When a node counts as failed, and how many failed nodes are tolerated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailureRules {
    /// How many of the nodes that have had the new revision may fail. A percentage is rounded down.
    pub max_nodes: IntOrPercent,
    pub max_restarts: u32,
    /// How long a pod may be unavailable.
    pub ready_timeout: Duration,
    /// Waiting reasons of a container that count as a failure at once.
    pub immediate_reasons: BTreeSet<Text>,
    /// Whether a node that stops being Ready after it got the new revision counts as failed.
    pub count_not_ready_nodes: bool,
}

impl FailureRules {
    /// Rule: the number of failed nodes that is tolerated, of the nodes that have had the new revision. A percentage is
    /// rounded down, so that one failed node of one canary stops the rollout. At most 200 nodes are tolerated, because
    /// the status lists every failed node.
    pub fn allowed(&self, nodes_with_revision: usize) -> usize {
        let allowed = match self.max_nodes {
            IntOrPercent::Count(count) => count as usize,
            IntOrPercent::Percent(percent) => nodes_with_revision.saturating_mul(percent as usize) / 100,
        };
        allowed.min(LISTED_NODES_MAX)
    }
}

/// Maximum number of nodes in each list of a DaemonRollout's status.
pub const LISTED_NODES_MAX: usize = FAULTY_NODES_MAX;

/// What to do with a revision that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFailure {
    /// Roll back in every step but the last, stop in the last: most nodes then have the new revision.
    Auto,
    Rollback,
    Stop,
}

/// What to do when a rollout makes no progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDeadline {
    Report,
    Stop,
    Rollback,
}

/// The revision of nodes that join during a rollout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewNodes {
    Stable,
    Latest,
}

/// How the rollout removes an old pod that is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplaceMethod {
    Delete,
    /// Through the eviction API, which respects PodDisruptionBudgets.
    Evict,
}

/// A check that runs while nodes have the new revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    pub name: Text,
    /// Whether the result is reported in the DaemonRollout's spec, not measured by the controller.
    pub is_external: bool,
    pub interval: Duration,
    /// Number of consecutive failures after which the revision has failed.
    pub failure_threshold: u32,
}

/// What a policy must know of a DaemonSet to select it.
#[derive(Clone, Copy, Debug)]
pub struct SelectedSet<'a> {
    pub key: &'a ObjectKey,
    pub labels: &'a Labels,
    /// The labels of the namespace; `None` while the namespace is unknown.
    pub namespace_labels: Option<&'a Labels>,
}

impl Policy {
    fn selects(&self, set: SelectedSet<'_>) -> bool {
        match &self.selection {
            SetSelection::Names(names) => {
                self.key.namespace == set.key.namespace && names.contains(&set.key.name)
            }
            SetSelection::Selector(selector) => {
                self.key.namespace == set.key.namespace && selector.matches(set.labels)
            }
            SetSelection::Cluster { sets, namespaces } => {
                sets.matches(set.labels)
                    && (namespaces.is_empty()
                        || set.namespace_labels.is_some_and(|it| namespaces.matches(it)))
            }
        }
    }

    /// Rule: a policy that names the DaemonSet takes precedence over one that selects it by labels, and a RolloutPolicy
    /// over a ClusterRolloutPolicy. Among equals the oldest policy governs, then the first by name. Policies are not
    /// merged.
    fn precedence(&self) -> impl Ord + use<> {
        let by = match self.selection {
            SetSelection::Names(_) => 2,
            SetSelection::Selector(_) => 1,
            SetSelection::Cluster { .. } => 0,
        };
        (by, Reverse(self.created), Reverse(self.key.clone()))
    }
}

/// Returns the policy that governs a DaemonSet, and the policies that select it too and have no effect on it.
pub fn governing_policy<'a, P>(
    policies: impl Iterator<Item = &'a P>,
    set: SelectedSet<'_>,
) -> (Option<&'a P>, Vec<&'a P>)
where
    P: AsRef<Policy> + 'a,
{
    let mut selecting: Vec<&P> = policies.filter(|it| (*it).as_ref().selects(set)).collect();
    selecting.sort_by_key(|it| Reverse((*it).as_ref().precedence()));
    let mut selecting = selecting.into_iter();
    (selecting.next(), selecting.collect())
}

#[cfg(test)]
mod tests;
