//! The groups of nodes of a step, such as zones, and which of them are updated at a time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use muster_api::text::Text;

use super::counts::{RolloutCounts, UnsoakedNode};
use super::membership::GroupCandidates;
use super::policy::NodeGroups;
use super::record::FailureStatus;

/// The state of a group whose update is not finished. Groups are updated in the order of the variants. An admitted node
/// is a node that is assigned the current revision. A node has soaked when its new pod has been healthy for the soak
/// time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GroupState {
    /// At least one admitted node of the group has neither failed nor soaked (been healthy with its new pod for the
    /// soak time).
    Updating,
    /// All admitted nodes of the group have failed or soaked (been healthy with their new pod for the soak time). Other
    /// nodes of the group are not admitted, for example because they joined later.
    PartlyAdmitted,
    /// No node of the group is admitted, that is, assigned the current revision.
    NotStarted,
}

/// Returns the candidates of the open groups. A group is open if nodes of the group may be admitted now, that is,
/// assigned the current revision.
///
/// Rule: at most `maxConcurrent` groups are updated at a time. A group is finished when all its nodes are admitted and,
/// except failed nodes, have been healthy for the soak time. Unfinished groups are updated in this order:
///
/// 1. groups with admitted nodes that have neither soaked nor failed;
/// 2. other groups of which some nodes are admitted;
/// 3. groups of which no node is admitted.
///
/// Groups in the same state are updated in the order of `sequence`, then by name.
pub(crate) fn candidates_of_open_groups(
    groups: &NodeGroups,
    counts: &RolloutCounts,
    candidates: &BTreeMap<Text, GroupCandidates>,
    failures: &FailureStatus,
) -> BTreeMap<Text, GroupCandidates> {
    let unsoaked = &counts.unsoaked;
    let counts = &counts.groups;
    let mut names: Vec<&Text> = counts.keys().collect();
    names.sort_by_key(|it| groups.rank(it));
    let state = |group: &Text| {
        let counts = counts.get(group)?;
        let is_of_group = |it: &UnsoakedNode| it.is_in_step && it.group == *group && !it.is_group_soaked;
        let soaked = counts.soaked + count_failed_nodes(failures, unsoaked, is_of_group);
        match counts.admitted {
            admitted if soaked < admitted => Some(GroupState::Updating),
            admitted if admitted == counts.eligible => None,
            0 => Some(GroupState::NotStarted),
            _ => Some(GroupState::PartlyAdmitted),
        }
    };
    let mut unfinished: Vec<(GroupState, &Text)> =
        names.into_iter().filter_map(|it| Some((state(it)?, it))).collect();
    unfinished.sort_by_key(|(state, _)| *state);
    let open = unfinished.into_iter().take(groups.max_concurrent);
    open.filter_map(|(_, it)| Some((it.clone(), candidates.get(it)?.clone()))).collect()
}

/// Returns the number of nodes in `unsoaked` that have failed and for which `is_counted` returns true.
pub(crate) fn count_failed_nodes(
    failures: &FailureStatus,
    unsoaked: &BTreeMap<Text, UnsoakedNode>,
    is_counted: impl Fn(&UnsoakedNode) -> bool,
) -> usize {
    failures.nodes.iter().filter(|it| unsoaked.get(&it.node).is_some_and(&is_counted)).count()
}
