//! Preemption: chooses the pods of lower priority to delete, so that a pod fits on a node. Upstream:
//! `DefaultPreemption`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use super::filter::{self, UnfitReason};
use super::node_info::NodeInfo;
use super::topology_counts::TopologyCounts;
use super::{Budget, Pod, Scheduler, format_reason_counts};

/// Number of nodes with victims after which preemption stops the search and chooses the best of them. If a tenth of the
/// candidate nodes is more, that number is used instead. Upstream: `MinCandidateNodesAbsolute`,
/// `MinCandidateNodesPercentage`.
const CANDIDATE_NODES_MIN: usize = 100;

/// Upstream's message for nodes on which preemption cannot help, whichever pods are removed.
const NOT_HELPFUL_MESSAGE: &str = "Preemption is not helpful for scheduling";
/// Upstream's message for nodes without pods of lower priority.
const NO_VICTIMS_MESSAGE: &str = "No preemption victims found for incoming pod";

/// The result of preemption for one pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Preemption {
    /// Delete these victims, highest priority first, and nominate this node for the pod.
    Remove { node: Text, victims: Vec<Arc<Pod>> },
    /// The pod may not preempt other pods, or must wait for earlier victims. Its nominated node stays. Holds the reason
    /// for the condition `PodScheduled`.
    NotEligible(String),
    /// Preemption would not help the pod on any node. Its nominated node is cleared. Holds the reason for the condition
    /// `PodScheduled`.
    NotHelpful(String),
}

/// Chooses a node and its victims for a pod that fits on no node. `unfit` are the nodes that were checked, each with
/// the reason why the pod does not fit on it.
///
/// Rule: if a pod fits on no node, pods of lower priority are deleted from one node. The node is chosen so that as few
/// PodDisruptionBudgets as possible are violated, and victims are as low in priority and as few as possible. No further
/// pods are deleted for the pod while earlier victims are terminating on its nominated node. Upstream:
/// `DefaultPreemption`.
pub(super) fn choose_preemption(
    all: &Scheduler,
    pod: &Pod,
    topology_counts: &TopologyCounts,
    unfit: &[(&NodeInfo, UnfitReason)],
) -> Preemption {
    if !pod.may_preempt {
        return Preemption::NotEligible("not eligible due to preemptionPolicy=Never.".into());
    }
    if has_terminating_victims(all, pod, unfit) {
        return Preemption::NotEligible(
            "not eligible due to a terminating pod on the nominated node.".into(),
        );
    }
    let mut best: Option<(PreemptionCost, &NodeInfo, Vec<Arc<Pod>>)> = None;
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let nodes: Vec<&NodeInfo> =
        unfit.iter().filter(|(_, why)| why.may_be_resolved_by_preemption()).map(|(info, _)| *info).collect();
    let mut left = (nodes.len() / 10).max(CANDIDATE_NODES_MIN);
    for info in &nodes {
        match victims_on_node(all, pod, topology_counts, info) {
            Err(why) => {
                for reason in why.map_or_else(|| [NO_VICTIMS_MESSAGE.into()].into(), |it| it.messages()) {
                    *reasons.entry(reason).or_default() += 1;
                }
            }
            Ok((violations, victims)) => {
                let cost = preemption_cost(violations, &victims);
                if best.as_ref().is_none_or(|it| cost < it.0) {
                    best = Some((cost, info, victims));
                }
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
    }
    if let Some((_, info, victims)) = best {
        return Preemption::Remove { node: info.name().clone(), victims };
    }
    if nodes.len() < all.nodes.len() {
        *reasons.entry(NOT_HELPFUL_MESSAGE.into()).or_default() += all.nodes.len() - nodes.len();
    }
    Preemption::NotHelpful(format_reason_counts(all.nodes.len(), &reasons))
}

/// Whether victims are still being deleted on the pod's nominated node, and the pod may still fit on that node without
/// them.
fn has_terminating_victims(all: &Scheduler, pod: &Pod, unfit: &[(&NodeInfo, UnfitReason)]) -> bool {
    let Some(info) = all.queue.nominated_node(&pod.key).and_then(|it| all.nodes.get(it)) else {
        return false;
    };
    let is_lost =
        unfit.iter().any(|(it, why)| it.name() == info.name() && !why.may_be_resolved_by_preemption());
    let leaves = |it: &&Arc<Pod>| all.victims.contains(&it.uid) || it.deleting && it.preempted;
    !is_lost && info.pods.values().filter(|it| it.priority < pod.priority).any(|it| leaves(&it))
}

/// The cost of preemption on a node. The node with the lowest cost is chosen. The parts are, in the order of
/// comparison: number of victims whose deletion violates a PodDisruptionBudget, highest priority of a victim, sum of
/// the priorities, number of victims, and start time of the oldest victim of the highest priority. A later start time
/// costs less. Upstream: `pickOneNodeForPreemption`.
type PreemptionCost = (usize, i32, i64, usize, Reverse<Time>);

/// Returns the cost of deleting these victims. `violations` is the number of victims whose deletion violates a
/// PodDisruptionBudget.
fn preemption_cost(violations: usize, victims: &[Arc<Pod>]) -> PreemptionCost {
    let highest = victims.iter().map(|it| it.priority).max().unwrap_or(i32::MIN);
    let sum = victims.iter().map(|it| i64::from(it.priority) + i64::from(i32::MAX) + 1).sum();
    let oldest = victims.iter().filter(|it| it.priority == highest).map(|it| start_time(it)).min();
    (violations, highest, sum, victims.len(), Reverse(oldest.unwrap_or_default()))
}

/// Returns the start time of a pod. A pod that has not started has the latest possible time.
fn start_time(pod: &Pod) -> Time {
    pod.started.unwrap_or(Time::from_micros(i64::MAX))
}

/// Chooses the victims on one node. All pods of lower priority are candidates. They are tried one after the other: a
/// candidate stays if the pod then still fits. Candidates whose deletion violates a PodDisruptionBudget are tried
/// first, then candidates of higher priority. Returns the number of victims whose deletion violates a
/// PodDisruptionBudget, and the victims, highest priority first.
///
/// The error is the reason why the pod would not fit even if all pods of lower priority were deleted. It is `None` if
/// the node has no pod of lower priority. Upstream: `SelectVictimsOnNode`.
fn victims_on_node(
    all: &Scheduler,
    pod: &Pod,
    topology_counts: &TopologyCounts,
    info: &NodeInfo,
) -> Result<(usize, Vec<Arc<Pod>>), Option<UnfitReason>> {
    let mut lower: Vec<&Arc<Pod>> = info.pods.values().filter(|it| it.priority < pod.priority).collect();
    if lower.is_empty() {
        return Err(None);
    }
    let mut gone: BTreeSet<ObjectKey> = lower.iter().map(|it| it.key.clone()).collect();
    filter::check_fit(all, pod, topology_counts, info, &gone).map_err(Some)?;
    // Pods are reprieved by priority, then age; those whose deletion violates a budget come first.
    let importance = |it: &Pod| (Reverse(it.priority), start_time(it), it.key.clone());
    lower.sort_by_key(|it| importance(it));
    let mut left: BTreeMap<&ObjectKey, i64> = all.budgets.iter().map(|(key, it)| (key, it.allowed)).collect();
    let mut breaks = |it: &Pod| {
        let mut is_broken = false;
        for (key, _) in all.budgets.iter().filter(|(_, budget)| budget.covers_pod(it)) {
            let allowed = left.entry(key).or_default();
            *allowed -= 1;
            is_broken |= *allowed < 0;
        }
        is_broken
    };
    let (breaking, keeping): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = lower.into_iter().partition(|it| breaks(it));
    let (mut violations, mut victims) = (0, Vec::new());
    let in_turn = breaking.into_iter().map(|it| (1, it)).chain(keeping.into_iter().map(|it| (0, it)));
    for (broken, it) in in_turn {
        gone.remove(&it.key);
        if filter::check_fit(all, pod, topology_counts, info, &gone).is_err() {
            gone.insert(it.key.clone());
            violations += broken;
            victims.push(it.clone());
        }
    }
    victims.sort_by_key(|it| importance(it));
    Ok((violations, victims))
}

impl Budget {
    /// Whether the deletion of the pod counts against the budget: the budget selects the pod, and has not counted its
    /// eviction yet. As upstream, a budget with an empty selector selects no pod here, and no budget selects a pod
    /// without labels.
    fn covers_pod(&self, pod: &Pod) -> bool {
        self.key.namespace == pod.key.namespace
            && !pod.labels.is_empty()
            && !self.disrupted.contains(&pod.key.name)
            && !self.selector.is_empty()
            && self.selector.matches(&pod.labels)
    }
}
