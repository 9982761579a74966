//! Which nodes are admitted to a rollout, that is, assigned the current revision, and which nodes are admitted next.
//!
//! Each [`NodeAdmission`] is stored in the status of the DaemonRollout, so a restart of the controller does not change
//! which nodes are admitted. Up to [`LISTED_NODES_MAX`] nodes are stored by name. For more nodes, a position in the
//! order of admission is stored instead. Such a position admits all nodes of the step and group up to that position,
//! except nodes that were younger than ten seconds when the position was stored.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::labels::Labels;
use muster_api::text::Text;
use muster_api::time::Time;

use super::order::{NodeOrder, OrderKey};
use super::policy::{LISTED_NODES_MAX, Step};
use super::record::Phase;

/// Admitted nodes of one step and group. A step and group may have two admissions: one with names and one with a
/// position. An admitted node is assigned the current revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeAdmission {
    /// Name of the step that admitted the nodes.
    pub step: Text,
    /// Value of the label that divides the step into groups. Empty if the step has no groups, and for nodes without the
    /// label.
    pub group: Text,
    pub members: AdmittedMembers,
}

/// The admitted nodes of a [`NodeAdmission`]: a list of names, or all nodes up to a position in the order of admission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AdmittedMembers {
    /// The nodes with these names are admitted.
    Names(BTreeSet<Text>),
    /// All nodes of the step and group that were created before `created_before` and whose position in the order of
    /// admission is at most `key`. Exception: if the policy no longer has the step, all nodes of the DaemonSet with
    /// such a creation time and position are admitted.
    UpTo { key: OrderKey, created_before: Time },
}

/// The fields of a node that decide whether it is admitted, that is, assigned the current revision.
#[derive(Clone, Copy, Debug)]
pub struct MembershipInput<'a> {
    pub name: &'a Text,
    pub labels: &'a Labels,
    pub created: Time,
}

/// The revision that a node should run: the current or the stable one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AssignedRevision {
    #[default]
    Current,
    Stable,
}

/// Decides which nodes are assigned the current revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutMembership {
    pub scope: MembershipScope,
    /// The order in which nodes are admitted, that is, assigned the current revision.
    pub order: NodeOrder,
    /// Hash of the stable revision. Unless nodes are ordered by name, their positions depend on this hash. Empty if
    /// there is no stable revision.
    pub stable_hash: Text,
    /// The admissions in the stored status of the DaemonRollout.
    pub admitted: Vec<NodeAdmission>,
    /// The steps of the policy. An admission stores only the name of its step; the step itself has the selector and the
    /// group label.
    pub steps: Vec<Step>,
    /// A node that was created after this time is admitted without a step (`newNodes: Latest`). `None` if nodes are
    /// admitted by steps only.
    pub admitted_if_created_after: Option<Time>,
}

/// Which nodes are assigned the current revision: all, none, or the admitted ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MembershipScope {
    /// Every node is assigned the current revision.
    AllNodes,
    /// Admitted nodes are assigned the current revision, all others the stable one.
    Admitted,
    /// Every node is assigned the stable revision.
    NoNodes,
}

impl MembershipScope {
    /// Returns which nodes are assigned the current revision in a phase. `has_stable` is whether there is a stable
    /// revision.
    ///
    /// Rule: if the rollout is complete, or if there is no stable revision, all nodes are assigned the current
    /// revision. Otherwise, during and after a rollback, no node is assigned the current revision. In every other
    /// phase, only the admitted nodes are assigned the current revision.
    pub fn for_phase(phase: Phase, has_stable: bool) -> Self {
        match phase {
            _ if !has_stable => Self::AllNodes,
            Phase::Complete => Self::AllNodes,
            Phase::RollingBack | Phase::RolledBack => Self::NoNodes,
            Phase::Rolling | Phase::Soaking | Phase::Waiting | Phase::PartiallyComplete | Phase::Stopped => {
                Self::Admitted
            }
        }
    }
}

impl RolloutMembership {
    /// Returns the revision that a node is assigned: the current one if the node is admitted, otherwise the stable one.
    ///
    /// Rule: the revision of a node depends only on whether the node is admitted, never on the state of its pod. If a
    /// pod ends on a node that is not admitted, a pod of the stable revision replaces it. A node that joins the cluster
    /// during a rollout gets the stable revision too, unless the policy has `newNodes: Latest`.
    pub fn assigned_revision(&self, node: MembershipInput<'_>) -> AssignedRevision {
        if self.is_admitted(node) { AssignedRevision::Current } else { AssignedRevision::Stable }
    }

    /// Whether a node is admitted, that is, assigned the current revision. In [`MembershipScope::AllNodes`] every node
    /// is admitted, in [`MembershipScope::NoNodes`] none.
    pub fn is_admitted(&self, node: MembershipInput<'_>) -> bool {
        match self.scope {
            MembershipScope::AllNodes => true,
            MembershipScope::NoNodes => false,
            MembershipScope::Admitted => {
                self.admitted_if_created_after.is_some_and(|after| after < node.created)
                    || self.admitted.iter().any(|it| self.is_member(it, node))
            }
        }
    }

    /// Whether `admission` admits the node, that is, assigns the current revision to the node.
    fn is_member(&self, admission: &NodeAdmission, node: MembershipInput<'_>) -> bool {
        match &admission.members {
            AdmittedMembers::Names(names) => names.contains(node.name),
            AdmittedMembers::UpTo { key, created_before } => {
                let step = self.steps.iter().find(|it| it.name == admission.step);
                // The policy may have dropped the step: what it admitted stays admitted.
                let is_in_step_and_group = step.is_none_or(|it| {
                    let group = group_of(it, node.labels).map_or("", |it| it);
                    it.selector.matches(node.labels) && *group == *admission.group
                });
                is_in_step_and_group
                    && node.created < *created_before
                    && self.order.key(&self.stable_hash, node.name, node.labels) <= *key
            }
        }
    }
}

/// Returns the group of a node in a step: the value of the node's label that divides the step into groups. `None` if
/// the step has no groups, or if the node does not have that label.
fn group_of<'a>(step: &Step, labels: &'a Labels) -> Option<&'a Text> {
    labels.get(step.group_label()?)
}

/// A node with its position in the order of admission. Candidates are sorted by that position.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Candidate {
    /// Position of the node in the order in which nodes are admitted.
    pub key: OrderKey,
    pub node: Text,
    pub created: Time,
}

/// The nodes of one group that are not admitted yet, and the number of exposed nodes of the group. A node is exposed if
/// it is admitted or has a pod of a revision without the verdict `Good`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupCandidates {
    /// Nodes that are not admitted, but already have a pod of a revision without the verdict `Good`. They are admitted
    /// first, because their admission exposes no further node.
    pub exposed: BTreeSet<Candidate>,
    /// Nodes that are neither admitted nor have a pod of a revision without the verdict `Good`. Admitting one of them
    /// exposes it to the current revision.
    pub held: BTreeSet<Candidate>,
    /// Number of exposed nodes of the group, admitted or not.
    pub exposed_count: usize,
}

/// Minimum age of a node before it is admitted, unless it already has a pod of a revision without the verdict `Good`.
/// The watch is assumed to deliver a node within this time of the node's creation. So when a position in the order is
/// stored, the controller knows every node that the position admits.
const NODE_AGE_MIN: Duration = Duration::from_secs(10);

/// Admits the nodes of a step that already have a pod of a revision without the verdict `Good`, and up to `free` other
/// nodes. Returns the admissions `admitted` together with the new ones, or `None` if no node is added.
///
/// If there would be more than [`LISTED_NODES_MAX`] names, the position of the last of the `free` nodes is stored
/// instead of their names. Nodes after that position that already have such a pod are stored by name, as many as fit.
///
/// Rule: a step admits nodes in order until its target is reached. Nodes that already have a pod of a revision without
/// the verdict `Good` are admitted before others, and do not count against `free`. Each further node is taken from the
/// group with the fewest exposed nodes. A node is exposed if it is admitted or has such a pod.
pub fn admit(
    admitted: &[NodeAdmission],
    step: &Text,
    groups: &BTreeMap<Text, GroupCandidates>,
    free: usize,
    now: Time,
) -> Option<Vec<NodeAdmission>> {
    let created_before = now - NODE_AGE_MIN;
    let mut chosen: BTreeMap<&Text, Vec<&Candidate>> = BTreeMap::new();
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
    let mut names_left = LISTED_NODES_MAX.saturating_sub(admitted.iter().map(listed_name_count).sum());
    let mut next = admitted.to_vec();
    for (group, candidates) in groups {
        let held = chosen.remove(group).unwrap_or_default();
        let mut listed: Vec<&Candidate> = candidates.exposed.iter().collect();
        if listed.len() + held.len() <= names_left {
            listed.extend(held);
        } else if let Some(last) = held.last() {
            // The position is that of a held node: up to an exposed node, more than `free` held nodes may be in order.
            advance_position(&mut next, step, group, last.key.clone(), created_before);
            listed.retain(|it| last.key < it.key || created_before <= it.created);
        }
        listed.truncate(names_left);
        names_left -= listed.len();
        if !listed.is_empty() {
            add_names(&mut next, step, group, listed.into_iter().map(|it| it.node.clone()));
        }
    }
    (next != admitted).then_some(next)
}

/// Returns the node names that the admissions `now` have in addition to those of `before`. `None` if the admissions
/// differ in any other way.
pub fn added_names(before: &[NodeAdmission], now: &[NodeAdmission]) -> Option<BTreeSet<Text>> {
    let names = |it: &NodeAdmission| match &it.members {
        AdmittedMembers::Names(names) => Some(names.clone()),
        AdmittedMembers::UpTo { .. } => None,
    };
    let mut added = BTreeSet::new();
    let mut before = before.iter();
    for admission in now {
        let old = before.next();
        if old == Some(admission) {
            continue;
        }
        let is_same_place = old.is_none_or(|it| it.step == admission.step && it.group == admission.group);
        let had = match old {
            Some(old) => names(old)?,
            None => BTreeSet::new(),
        };
        let has = names(admission).filter(|it| is_same_place && had.is_subset(it))?;
        added.extend(has.difference(&had).cloned());
    }
    before.next().is_none().then_some(added)
}

/// Returns the number of node names that an admission stores. 0 if the admission stores a position in the order
/// instead.
fn listed_name_count(admission: &NodeAdmission) -> usize {
    match &admission.members {
        AdmittedMembers::Names(names) => names.len(),
        AdmittedMembers::UpTo { .. } => 0,
    }
}

/// Adds node names to the admission of a step and group that stores names. Creates that admission if it does not exist.
fn add_names(
    admitted: &mut Vec<NodeAdmission>,
    step: &Text,
    group: &Text,
    names: impl Iterator<Item = Text>,
) {
    let listed = admitted.iter_mut().find_map(|it| match &mut it.members {
        AdmittedMembers::Names(listed) if it.step == *step && it.group == *group => Some(listed),
        _ => None,
    });
    match listed {
        Some(listed) => listed.extend(names),
        None => admitted.push(NodeAdmission {
            step: step.clone(),
            group: group.clone(),
            members: AdmittedMembers::Names(names.collect()),
        }),
    }
}

/// Advances the admission position of a step and group to `position`: the nodes up to this position are admitted.
/// Stores `position` if there is no admission position yet. Neither the admission position nor `created_before` ever
/// moves back, so that admitted nodes stay admitted.
fn advance_position(
    admitted: &mut Vec<NodeAdmission>,
    step: &Text,
    group: &Text,
    position: OrderKey,
    created_before: Time,
) {
    for it in admitted.iter_mut().filter(|it| it.step == *step && it.group == *group) {
        if let AdmittedMembers::UpTo { key, created_before: before } = &mut it.members {
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
        members: AdmittedMembers::UpTo { key: position, created_before },
    });
}

#[cfg(test)]
mod tests;
