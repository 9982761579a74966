//! The decoded form of a RolloutPolicy or ClusterRolloutPolicy, and the rule that decides which policy governs a
//! DaemonSet.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use muster_api::labels::{Labels, Selector};
use muster_api::muster_v1alpha1::validation::FAULTY_NODES_MAX;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

pub use super::check::CheckSource;
use super::order::NodeOrder;
use super::window::Window;
use crate::daemonset::facts::{IntOrPercent, Kind};

/// Whether a policy is a RolloutPolicy of one namespace or a ClusterRolloutPolicy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PolicyKind {
    RolloutPolicy,
    ClusterRolloutPolicy,
}

impl PolicyKind {
    /// Returns the `kind` of the policy object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RolloutPolicy => "RolloutPolicy",
            Self::ClusterRolloutPolicy => "ClusterRolloutPolicy",
        }
    }

    /// Returns the resource kind that controllers watch to receive policies of this kind.
    pub fn watched_kind(self) -> Kind {
        match self {
            Self::RolloutPolicy => Kind::Policies,
            Self::ClusterRolloutPolicy => Kind::ClusterPolicies,
        }
    }
}

/// The fields of a RolloutPolicy or ClusterRolloutPolicy that the controller uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    pub kind: PolicyKind,
    /// Namespace and name of the policy. A ClusterRolloutPolicy has no namespace.
    pub key: ObjectKey,
    pub resource_version: u64,
    pub generation: i64,
    pub created: Time,
    /// Which DaemonSets the policy selects.
    pub selection: SetSelection,
    pub spec: PolicySpec,
    /// Errors in the spec, each with the path of the invalid field. While there are any, the policy holds the rollouts
    /// of its DaemonSets: no step admits a node, and no outdated pod is replaced except by a rollback.
    pub invalid: Vec<String>,
}

/// Which DaemonSets a policy selects: by name, by labels, or by labels of the DaemonSet and its namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetSelection {
    /// The policy selects DaemonSets by these names, in its own namespace.
    Names(BTreeSet<Text>),
    /// The policy selects DaemonSets whose labels match this selector, in its own namespace.
    Selector(Selector),
    /// The policy selects DaemonSets whose labels match `sets`, in namespaces whose labels match `namespaces`.
    Cluster { sets: Selector, namespaces: Selector },
}

/// The settings of a policy. The default settings are those of an empty `spec`: one step for all nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicySpec {
    /// Whether the policy pauses the rollouts of its DaemonSets (`spec.paused`).
    pub paused: bool,
    /// The maintenance windows in which rollouts may advance. If there are none, rollouts may always advance.
    pub windows: Vec<Window>,
    /// Number or percentage of nodes that may be unavailable during a rollout. It applies only to DaemonSets that have
    /// the update strategy `OnDelete` and no `maxUnavailable` of their own.
    pub max_unavailable: IntOrPercent,
    /// The order in which nodes are admitted, that is, assigned the current revision.
    pub order: NodeOrder,
    /// The steps of a rollout, in order.
    pub steps: Vec<Step>,
    /// The rules by which a node counts as failed, and the number of failed nodes that is tolerated.
    pub failures: FailureRules,
    /// Reaction of the rollout to the failure of its revision.
    pub on_failure: OnFailure,
    /// How long a rollout may go without progress before it misses its deadline.
    pub progress_deadline: Duration,
    /// Reaction of the rollout to a missed deadline.
    pub on_deadline: OnDeadline,
    /// Which revision a node gets if it joins the cluster during a rollout.
    pub new_nodes: NewNodeRevision,
    /// Checks of the new revision, all of which must pass before a step passes.
    pub checks: Vec<Check>,
    pub replace_method: ReplaceMethod,
}

/// One step of a rollout: how many nodes may have the new revision before the next step starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub name: Text,
    /// Number or percentage of the eligible nodes matching `selector` that may have the new revision, including those
    /// of earlier steps.
    pub nodes: IntOrPercent,
    /// Selects the nodes that may get the new revision in this step. An empty selector matches all nodes.
    pub selector: Selector,
    /// Key of a node label, such as `topology.kubernetes.io/zone`. The step spreads the nodes that it admits evenly
    /// over the values of this label. Not used if the step has `groups`. `None` if nodes are not spread.
    pub spread: Option<Text>,
    /// How long the pods of the admitted nodes of the step must have been healthy before the step passes. Failed nodes
    /// are exempt.
    pub soak: Duration,
    /// Whether an operator must approve the end of the step.
    pub approval: Approval,
    /// Groups of nodes. They are updated in order, by default one group at a time. `None` if the step has no `groups`.
    pub groups: Option<NodeGroups>,
}

impl Step {
    /// Returns the key of the label that divides the nodes of this step into groups: the label of `groups` or, if the
    /// step has no `groups`, the label of `spread`. `None` if the step has neither.
    pub fn group_label(&self) -> Option<&Text> {
        self.groups.as_ref().map(|it| &it.label).or(self.spread.as_ref())
    }
}

/// Whether an operator must approve the end of a step before the next step starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Approval {
    /// The next step starts without approval.
    Automatic,
    /// The next step starts only after an operator has approved the end of the current step.
    Manual,
}

/// Groups of nodes, such as zones, of which up to `max_concurrent` are updated at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeGroups {
    /// Key of the node label by whose value the nodes are grouped.
    pub label: Text,
    /// Groups to update first, in this order. Other groups follow by name, and last the nodes without the label.
    pub sequence: Vec<Text>,
    /// Number of groups that may be updated at the same time.
    pub max_concurrent: usize,
    /// How many nodes of one group may be unavailable at a time. The limit of the whole DaemonSet applies too.
    pub max_unavailable: IntOrPercent,
    /// How long the pods of the admitted nodes of a group must have been healthy before the group is finished. Failed
    /// nodes are exempt.
    pub soak: Duration,
}

impl NodeGroups {
    /// Returns the sort key of a group: groups of `sequence` come first, then other groups by name, and last the group
    /// with the empty name, which has the nodes without the label.
    pub fn rank<'a>(&self, group: &'a str) -> (usize, bool, &'a str) {
        let at = self.sequence.iter().position(|it| **it == *group).unwrap_or(self.sequence.len());
        (at, group.is_empty(), group)
    }
}

/// The rules by which a node counts as failed, and the number of failed nodes that is tolerated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailureRules {
    /// How many of the nodes that have had the new revision may fail. With one more failed node, the revision counts as
    /// failed. A percentage is rounded down.
    pub max_nodes: IntOrPercent,
    /// How often a container of the new pod may restart. With one more restart, the pod's node counts as failed.
    pub max_restarts: u32,
    /// How long a new pod may be unavailable before the pod's node counts as failed.
    pub ready_timeout: Duration,
    /// Problems of a new pod, such as the waiting reason `ImagePullBackOff`, for which the pod's node counts as failed
    /// at once.
    pub immediate_reasons: BTreeSet<Text>,
    /// Whether a node that stops being Ready after it got the new revision counts as failed.
    pub count_not_ready_nodes: bool,
}

impl FailureRules {
    /// Returns how many failed nodes are tolerated. `nodes_with_revision` is the number of nodes that have had the new
    /// revision.
    ///
    /// Rule: a percentage of failed nodes is rounded down, so that one failed node of one canary stops the rollout. At
    /// most 199 failed nodes are tolerated, because the status must list every failed node and can list 200.
    pub fn tolerated_failures(&self, nodes_with_revision: usize) -> usize {
        let allowed = match self.max_nodes {
            IntOrPercent::Count(count) => count as usize,
            IntOrPercent::Percent(percent) => nodes_with_revision.saturating_mul(percent as usize) / 100,
        };
        allowed.min(LISTED_NODES_MAX - 1)
    }
}

/// Maximum number of nodes that a DaemonRollout's status lists by name. The limit applies separately to failed nodes,
/// to excused nodes and to admitted nodes.
pub const LISTED_NODES_MAX: usize = FAULTY_NODES_MAX;

/// Reaction of a rollout to the failure of its revision (`onFailure`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFailure {
    /// The rollout is rolled back in every step but the last. In the last step it stops, because most nodes have the
    /// new revision by then.
    Auto,
    /// The rollout returns all nodes to the stable revision.
    Rollback,
    /// The rollout stops. Nodes keep their revision.
    Stop,
}

/// Reaction of a rollout that misses its `progressDeadline` (`onDeadline`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnDeadline {
    /// The rollout continues, and the status reports the missed deadline.
    Report,
    /// The rollout stops. Nodes keep their revision.
    Stop,
    /// The rollout returns all nodes to the stable revision.
    Rollback,
}

/// Which revision a node gets if it joins the cluster during a rollout (`newNodes`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewNodeRevision {
    /// A node that joins gets the stable revision.
    Stable,
    /// A node that joins gets the current revision.
    Latest,
}

/// How the rollout removes an outdated pod that is Ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplaceMethod {
    /// The rollout deletes the pod without regard to PodDisruptionBudgets.
    Delete,
    /// The rollout evicts the pod with the eviction API, which respects PodDisruptionBudgets.
    Evict,
}

/// A check that must pass before a step passes, and that can fail the revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    pub name: Text,
    /// Where the result of the check comes from: Prometheus, a webhook, or a report of another component.
    pub source: CheckSource,
    /// Time between the starts of two measurements of the check. Not used for external checks.
    pub interval: Duration,
    /// Number of consecutive failed measurements after which the revision has failed. Not used for external checks,
    /// whose first reported failure fails the revision.
    pub failure_threshold: u32,
}

/// The fields of a DaemonSet that decide which policies select it.
#[derive(Clone, Copy, Debug)]
pub struct SelectableSet<'a> {
    pub key: &'a ObjectKey,
    pub labels: &'a Labels,
    /// The labels of the DaemonSet's namespace. `None` until the watch has delivered the namespace.
    pub namespace_labels: Option<&'a Labels>,
}

impl Policy {
    /// Whether the policy selects a DaemonSet. A ClusterRolloutPolicy with a non-empty namespace selector does not
    /// select a DaemonSet while the labels of the DaemonSet's namespace are not known.
    pub(crate) fn selects(&self, set: SelectableSet<'_>) -> bool {
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

    /// Returns the sort key of the policy. Of the policies that select a DaemonSet, the one with the greatest key
    /// governs it.
    ///
    /// Rule: a policy that names the DaemonSet takes precedence over a policy that selects it by labels, and a
    /// RolloutPolicy over a ClusterRolloutPolicy. If this does not decide, the oldest policy governs and, of several
    /// equally old policies, the first one by name. Policies are not merged.
    fn precedence(&self) -> impl Ord + use<> {
        let by = match self.selection {
            SetSelection::Names(_) => 2,
            SetSelection::Selector(_) => 1,
            SetSelection::Cluster { .. } => 0,
        };
        (by, Reverse(self.created), Reverse(self.key.clone()))
    }
}

/// Returns the policy that governs a DaemonSet, or `None` if no policy selects the DaemonSet. Also returns the other
/// policies that select the DaemonSet, which have no effect on it.
pub fn governing_policy<'a, P>(
    policies: impl Iterator<Item = &'a P>,
    set: SelectableSet<'_>,
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
