//! Sums over the nodes of a rollout. The sums are updated whenever a cell (the state of one DaemonSet on one node)
//! changes, so the work for an event depends on the number of cells that the event changes, not on the number of nodes.

use alloc::collections::{BTreeMap, BTreeSet};

use muster_api::text::Text;
use muster_api::time::Time;

use super::membership::{Candidate, GroupCandidates};
use super::record::NodeCounts;

/// State of one node in a rollout, from which [`RolloutCounts`] are summed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeProgress {
    /// Whether the node should run a pod, according to the template of the current revision.
    pub is_eligible: bool,
    /// Whether the selector of the current step matches the node. True if there is no current step.
    pub is_in_step: bool,
    /// Group of the node in the current step: the node's value of the label that `groups` or, without `groups`,
    /// `spread` of the step names. Empty if the step has neither, or if the node does not have the label.
    pub group: Text,
    /// Whether the node is admitted, that is, assigned the current revision.
    pub is_admitted: bool,
    /// Whether the node has a pod of a revision without the verdict `Good`.
    pub has_unproven_pod: bool,
    /// Whether the node has a pod of the current revision.
    pub has_current_pod: bool,
    /// Whether the node has an available pod of the current revision.
    pub is_available: bool,
    /// Whether the pod of the current revision is available, and has been healthy for the soak time of the step (see
    /// [`soak_ends_at`](super::analysis::soak_ends_at)).
    pub is_soaked: bool,
    /// Whether the pod of the current revision is available, and has been healthy for the soak time in `groups` of the
    /// step or, if the step has no `groups`, for the soak time of the step.
    pub is_group_soaked: bool,
    /// Time at which the pod of the current revision will have been healthy for the soak time of the step. `None` if
    /// the node has no such pod, or if the pod is not available or has soaked already.
    pub soak_ends_at: Option<Time>,
    /// Whether the node counts against `maxUnavailable` or `maxSurge`.
    pub is_charged: bool,
    /// Why the node has failed, even if the failure is excused. `None` if it has not failed.
    pub failure: Option<Text>,
    /// Name and creation time of the node, and its position in the order in which nodes are admitted.
    pub candidate: Candidate,
}

impl NodeProgress {
    /// Whether the node is exposed, that is, counts against the target of a step: it is eligible, and it is admitted or
    /// has a pod of a revision without the verdict `Good`.
    fn is_exposed(&self) -> bool {
        self.is_eligible && (self.is_admitted || self.has_unproven_pod)
    }
}

/// Counts and sets of the nodes of one rollout, from which the next phase of the rollout is computed. They are updated
/// whenever the state of a node changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RolloutCounts {
    /// Counts of all eligible nodes of the DaemonSet, by their state in the rollout.
    pub nodes: NodeCounts,
    /// Number of nodes with a pod of the current revision, eligible or not.
    pub with_current_pod: usize,
    /// Counts of the eligible nodes that the selector of the current step matches.
    pub step: StepCounts,
    /// Counts of the eligible nodes of each group of the current step, by the name of the group.
    pub groups: BTreeMap<Text, StepCounts>,
    /// The eligible nodes of the current step that are not admitted, and the number of exposed nodes, by group.
    pub candidates: BTreeMap<Text, GroupCandidates>,
    /// Names of the nodes that have failed with a pod of the current revision, each with the reason of the failure.
    /// Includes nodes whose failure is excused, that is, not counted.
    pub failing: BTreeMap<Text, Text>,
    /// Names of the nodes with a pod of the current revision, eligible or not.
    pub nodes_with_current_pod: BTreeSet<Text>,
    /// Admitted eligible nodes that still have to soak (see [`UnsoakedNode`]), by name.
    pub unsoaked: BTreeMap<Text, UnsoakedNode>,
    /// Number of admitted eligible nodes of the current step that are soaking, by the time at which their soak ends.
    pub soak_ends: BTreeMap<Time, usize>,
}

/// An admitted node that still has to soak: it has no available pod of the current revision, or this pod has been
/// healthy for less than the soak time of the step or of the step's `groups`, whichever is longer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnsoakedNode {
    /// Whether the selector of the current step matches the node. True if there is no current step.
    pub is_in_step: bool,
    /// Group of the node in the current step: the node's value of the label that `groups` or, without `groups`,
    /// `spread` of the step names. Empty if the step has neither, or if the node does not have the label.
    pub group: Text,
    /// Whether the node has an available pod of the current revision.
    pub is_available: bool,
    /// Whether the pod of the current revision is available, and has been healthy for the soak time of the step (see
    /// [`soak_ends_at`](super::analysis::soak_ends_at)). If true, `is_group_soaked` is false.
    pub is_soaked: bool,
    /// Whether the pod of the current revision is available, and has been healthy for the soak time in `groups` of the
    /// step or, if the step has no `groups`, for the soak time of the step.
    pub is_group_soaked: bool,
    /// Time at which the pod of the current revision will have been healthy for the soak time of the step. `None` if
    /// the node has no such pod, or if the pod is not available or has soaked already.
    pub soak_ends_at: Option<Time>,
}

/// Numbers of eligible nodes of one step or group, by their state in the rollout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StepCounts {
    /// Nodes that should run a pod, according to the template of the current revision.
    pub eligible: usize,
    /// Nodes that are admitted or have a pod of a revision without the verdict `Good`.
    pub exposed: usize,
    /// Nodes that are admitted, that is, assigned the current revision.
    pub admitted: usize,
    /// Admitted nodes with an available pod of the current revision.
    pub available: usize,
    /// Admitted nodes whose pod of the current revision is available, and has been healthy for the soak time of the
    /// step. The counts of a group use the soak time in `groups` of the step instead, if the step has `groups`.
    pub soaked: usize,
    /// Nodes that count against `maxUnavailable` or `maxSurge` of the DaemonSet.
    pub charged: usize,
}

impl RolloutCounts {
    /// Adds a node to the counts.
    pub fn add(&mut self, node: &NodeProgress) {
        self.add_or_subtract(node, true);
    }

    /// Subtracts a node from the counts. `node` must be the state with which the node was added.
    pub fn subtract(&mut self, node: &NodeProgress) {
        self.add_or_subtract(node, false);
    }

    /// Adds a node to the counts if `adds` is true. Subtracts it otherwise.
    fn add_or_subtract(&mut self, node: &NodeProgress, adds: bool) {
        let count = |total: &mut usize, is_counted: bool| {
            if is_counted {
                *total = if adds { *total + 1 } else { *total - 1 };
            }
        };
        let eligible = node.is_eligible;
        let nodes = &mut self.nodes;
        count(&mut nodes.eligible, eligible);
        count(&mut nodes.admitted, eligible && node.is_admitted);
        count(&mut nodes.updated, eligible && node.has_current_pod);
        count(&mut nodes.available, eligible && node.has_current_pod && node.is_available);
        count(&mut nodes.soaked, eligible && node.is_soaked);
        count(&mut nodes.unassigned, eligible && node.has_unproven_pod && !node.is_admitted);
        count(&mut nodes.held, eligible && !node.is_admitted);
        count(&mut self.with_current_pod, node.has_current_pod);
        if node.has_current_pod {
            insert_or_remove(&mut self.nodes_with_current_pod, &node.candidate.node, adds);
            match &node.failure {
                Some(reason) if adds => {
                    drop(self.failing.insert(node.candidate.node.clone(), reason.clone()))
                }
                Some(_) => drop(self.failing.remove(&node.candidate.node)),
                None => {}
            }
        }
        let is_available = node.has_current_pod && node.is_available;
        if eligible && node.is_admitted && !(is_available && node.is_soaked && node.is_group_soaked) {
            let unsoaked = UnsoakedNode {
                is_in_step: node.is_in_step,
                group: node.group.clone(),
                is_available,
                is_soaked: node.is_soaked,
                is_group_soaked: node.is_group_soaked,
                soak_ends_at: node.soak_ends_at,
            };
            let name = &node.candidate.node;
            if adds {
                self.unsoaked.insert(name.clone(), unsoaked);
            } else {
                self.unsoaked.remove(name);
            }
        }
        if !eligible || !node.is_in_step {
            return;
        }
        if let Some(at) = node.soak_ends_at.filter(|_| node.is_admitted) {
            let ends = self.soak_ends.entry(at).or_default();
            count(ends, true);
            if *ends == 0 {
                self.soak_ends.remove(&at);
            }
        }
        let group = self.groups.entry(node.group.clone()).or_default();
        for (total, is_soaked) in [(&mut self.step, node.is_soaked), (&mut *group, node.is_group_soaked)] {
            count(&mut total.eligible, true);
            count(&mut total.exposed, node.is_exposed());
            count(&mut total.admitted, node.is_admitted);
            count(&mut total.available, node.is_admitted && node.has_current_pod && node.is_available);
            count(&mut total.soaked, node.is_admitted && is_soaked);
            count(&mut total.charged, node.is_charged);
        }
        let is_empty = *group == StepCounts::default();
        let candidates = self.candidates.entry(node.group.clone()).or_default();
        count(&mut candidates.exposed_count, node.is_exposed());
        if !node.is_admitted {
            let nodes = if node.has_unproven_pod { &mut candidates.exposed } else { &mut candidates.held };
            insert_or_remove(nodes, &node.candidate, adds);
        }
        if is_empty {
            self.groups.remove(&node.group);
            self.candidates.remove(&node.group);
        }
    }
}

/// Inserts an item into a set if `is_member` is true, and removes it otherwise.
fn insert_or_remove<T: Ord + Clone>(set: &mut BTreeSet<T>, item: &T, is_member: bool) {
    if is_member {
        set.insert(item.clone());
    } else {
        set.remove(item);
    }
}
