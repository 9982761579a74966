//! Which nodes are admitted to a rollout, and which are admitted next.
//!
//! NodeAdmission is stored in the status of the DaemonRollout, so a restart of the controller changes nothing. Up to
//! [`LISTED_NODES_MAX`] nodes are stored by name. Beyond that a position in the order is stored: all nodes up to it that
//! existed when it was stored are admitted.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::labels::Labels;
use muster_api::text::Text;
use muster_api::time::Time;

use super::order::{NodeOrder, OrderKey};
use super::policy::{LISTED_NODES_MAX, Step};
use super::record::Phase;

/// Nodes of one step and group that are admitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeAdmission {
    pub step: Text,
    /// Value of the label that divides the step into groups; empty without groups.
    pub group: Text,
    pub members: Members,
}

/// The admitted nodes of an [`NodeAdmission`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Members {
    Names(BTreeSet<Text>),
    /// All nodes of the group up to this position in the order that were created before this time.
    UpTo {
        key: OrderKey,
        created_before: Time,
    },
}

/// The fields of a node that decide its membership.
#[derive(Clone, Copy, Debug)]
pub struct NodeIdentity<'a> {
    pub name: &'a Text,
    pub labels: &'a Labels,
    pub created: Time,
}

/// The revision that a node is assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assigned {
    Current,
    Stable,
}

/// The nodes that are assigned the current revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutMembership {
    pub scope: MembershipScope,
    pub order: NodeOrder,
    pub stable_hash: Text,
    pub admitted: Vec<NodeAdmission>,
    /// The steps of the policy, to find the selector and group label of an admission by its step name.
    pub steps: Vec<Step>,
    /// Nodes created after this time are admitted (`newNodes: Latest`).
    pub admits_nodes_after: Option<Time>,
}

/// Whether the current revision goes to every node, to the admitted ones, or to none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MembershipScope {
    Everyone,
    Admitted,
    Nobody,
}

impl MembershipScope {
    /// Rule: a node is assigned the current revision if it is admitted. Every node is, if the rollout is complete or no
    /// stable revision is known. No node is during and after a rollback.
    pub fn of(phase: Phase, has_stable: bool) -> Self {
        match phase {
            _ if !has_stable => Self::Everyone,
            Phase::Complete => Self::Everyone,
            Phase::RollingBack | Phase::RolledBack => Self::Nobody,
            Phase::Rolling | Phase::Soaking | Phase::Waiting | Phase::PartiallyComplete | Phase::Stopped => {
                Self::Admitted
            }
        }
    }
}

impl RolloutMembership {
    /// Rule: the revision of a node depends on its membership alone, never on the fate of its pod. So a pod that ends on
    /// a held node is replaced by one of the stable revision, and a node that joins gets the stable revision.
    pub fn assigned(&self, node: NodeIdentity<'_>) -> Assigned {
        if self.is_admitted(node) { Assigned::Current } else { Assigned::Stable }
    }

    pub fn is_admitted(&self, node: NodeIdentity<'_>) -> bool {
        match self.scope {
            MembershipScope::Everyone => true,
            MembershipScope::Nobody => false,
            MembershipScope::Admitted => {
                self.admits_nodes_after.is_some_and(|after| after < node.created)
                    || self.admitted.iter().any(|it| self.is_member(it, node))
            }
        }
    }

    fn is_member(&self, admission: &NodeAdmission, node: NodeIdentity<'_>) -> bool {
        match &admission.members {
            Members::Names(names) => names.contains(node.name),
            Members::UpTo { key, created_before } => {
                let step = self.steps.iter().find(|it| it.name == admission.step);
                // The policy may have dropped the step: what it admitted stays admitted.
                let matches = step.is_none_or(|it| it.selector.matches(node.labels));
                let group = step.and_then(|it| group_of(it, node.labels));
                matches
                    && group.is_none_or(|it| *it == admission.group)
                    && node.created < *created_before
                    && self.order.key(&self.stable_hash, node.name, node.labels) <= *key
            }
        }
    }
}

/// The group of a node in a step; `None` if the step has no groups or the node has no such label.
fn group_of<'a>(step: &Step, labels: &'a Labels) -> Option<&'a Text> {
    labels.get(step.group_label()?)
}

/// A node that may be admitted next.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Candidate {
    pub key: OrderKey,
    pub node: Text,
    pub created: Time,
}

/// The nodes of one group that are not admitted, and how many have the current revision or another one that is not good.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupCandidates {
    /// Nodes that already have a revision that is not good. They are admitted first: no further node is exposed.
    pub exposed: BTreeSet<Candidate>,
    pub held: BTreeSet<Candidate>,
    /// Number of nodes of the group that are exposed, admitted ones included.
    pub exposed_count: usize,
}

/// Minimum age of a node before it is admitted by its position in the order. The watch of nodes delivers a node within
/// this time of its creation, so every node created before is known when a position is stored.
const NODE_AGE_MIN: Duration = Duration::from_secs(10);

/// Rule: a step admits nodes in order until its target is reached, from the group with the fewest exposed nodes first.
/// Nodes that already have a revision that is not good do not count again and are admitted first. Returns the new
/// admissions; `None` if nothing is admitted.
pub fn admit(
    admitted: &[NodeAdmission],
    step: &Text,
    groups: &BTreeMap<Text, GroupCandidates>,
    free: usize,
    now: Time,
) -> Option<Vec<NodeAdmission>> {
    let created_before = now - NODE_AGE_MIN;
    let mut chosen: BTreeMap<&Text, Vec<&Candidate>> = BTreeMap::new();
    for (group, candidates) in groups {
        let exposed = candidates.exposed.iter();
        chosen.entry(group).or_default().extend(exposed);
    }
    let mut held: BTreeMap<&Text, (usize, Vec<&Candidate>)> = groups
        .iter()
        .map(|(group, it)| {
            let old_enough = it.held.iter().filter(|it| it.created < created_before);
            // Taken from the end, so the first candidate is the last element.
            let mut old_enough: Vec<&Candidate> = old_enough.take(free).collect();
            old_enough.reverse();
            (group, (it.exposed_count, old_enough))
        })
        .collect();
    for _ in 0..free {
        let least =
            held.iter_mut().filter(|(_, (_, left))| !left.is_empty()).min_by_key(|(_, (count, _))| *count);
        let Some((group, (count, left))) = least else { break };
        *count += 1;
        chosen.entry(*group).or_default().extend(left.pop());
    }
    chosen.retain(|_, it| !it.is_empty());
    if chosen.is_empty() {
        return None;
    }
    let mut names_left = LISTED_NODES_MAX.saturating_sub(admitted.iter().map(listed_names).sum());
    let mut next = admitted.to_vec();
    for (group, nodes) in chosen {
        if nodes.len() <= names_left {
            names_left -= nodes.len();
            add_names(&mut next, step, group, nodes.into_iter().map(|it| it.node.clone()));
        } else if let Some(last) = nodes.iter().map(|it| &it.key).max() {
            add_position(&mut next, step, group, last.clone(), created_before);
        }
    }
    Some(next)
}

fn listed_names(admission: &NodeAdmission) -> usize {
    match &admission.members {
        Members::Names(names) => names.len(),
        Members::UpTo { .. } => 0,
    }
}

fn add_names(
    admitted: &mut Vec<NodeAdmission>,
    step: &Text,
    group: &Text,
    names: impl Iterator<Item = Text>,
) {
    let listed = admitted.iter_mut().find_map(|it| match &mut it.members {
        Members::Names(listed) if it.step == *step && it.group == *group => Some(listed),
        _ => None,
    });
    match listed {
        Some(listed) => listed.extend(names),
        None => admitted.push(NodeAdmission {
            step: step.clone(),
            group: group.clone(),
            members: Members::Names(names.collect()),
        }),
    }
}

/// Stores a position. It never moves back: what was admitted stays admitted.
fn add_position(
    admitted: &mut Vec<NodeAdmission>,
    step: &Text,
    group: &Text,
    position: OrderKey,
    created_before: Time,
) {
    for it in admitted.iter_mut().filter(|it| it.step == *step && it.group == *group) {
        if let Members::UpTo { key, created_before: before } = &mut it.members {
            if *key < position {
                *key = position;
            }
            *before = created_before.max(*before);
            return;
        }
    }
    admitted.push(NodeAdmission {
        step: step.clone(),
        group: group.clone(),
        members: Members::UpTo { key: position, created_before },
    });
}

#[cfg(test)]
mod tests;
