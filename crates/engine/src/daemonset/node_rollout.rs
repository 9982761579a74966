//! The rolling update of one DaemonSet on one node: which pods may be deleted or created, and whether the node counts
//! against `maxUnavailable` or `maxSurge`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::taints::{Taint, TaintEffect, any_tolerates};
use muster_api::text::Text;
use muster_api::time::Time;

use super::revision::TargetRevision;
use super::roster::{self, Roster};
use super::status::{check_availability, is_pod_up};
use crate::daemonset::facts::{ConditionStatus, Node, Pod, ReadyCondition, Set, Template, UpdateStrategy};
use crate::daemonset::placement::Verdict;
use crate::daemonset::placement::taints::is_readiness_taint;
use crate::daemonset::progressive::rollout::{NodeTarget, UpdateMode};
use crate::daemonset::why::Why;

/// Whether one node counts against the rollout budget, and whether it counts as a node with an available pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct BudgetUse {
    /// Whether the node counts against `maxUnavailable` or, with surge, against `maxSurge`.
    pub(crate) charged: bool,
    /// Whether the node has an available pod, and either the node is eligible or [`RolloutAction::Remove`] is to delete
    /// that pod.
    pub(crate) available: bool,
}

/// Action of the rolling update on one node. Each variant says under which condition the plan takes the action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RolloutAction {
    /// If the rollout budget allows it: delete the old pod. If the node gets a new pod, the node has no available pod
    /// until the new one is available.
    Replace(Arc<Pod>, Why),
    /// If the rollout budget allows it: create the new pod while the old pod still runs.
    Surge,
    /// With surge, once enough other pods are available: delete the old pod of a node that may no longer get a new pod.
    /// This delete uses no rollout budget.
    Remove(Arc<Pod>, Why),
    /// In a progressive rollout, when its phase allows it: delete the old pod, which is not Ready. This delete uses no
    /// rollout budget.
    ReplaceNotReady(Arc<Pod>, Why),
    /// In a progressive rollout with surge, when its phase allows it: create the new pod beside this old pod, which is
    /// not Ready. This create uses no rollout budget.
    SurgeBesideNotReady(Arc<Pod>),
}

/// What the rolling update of one DaemonSet does on one node, whether the node counts against the rollout budget, and
/// why the node waits.
#[derive(Debug, Default)]
pub(crate) struct NodeRollout {
    pub(crate) budget_use: BudgetUse,
    /// The action that the plan takes on the node once the condition of the action is met. `None` if the node needs no
    /// such action.
    pub(crate) action: Option<RolloutAction>,
    /// Old pods to delete because they are not Ready. These deletes use no rollout budget. Empty in a progressive
    /// rollout, which uses [`RolloutAction::ReplaceNotReady`] instead.
    pub(crate) delete: Vec<(Arc<Pod>, Why)>,
    /// Why to create a new pod beside an old pod that is not Ready. This create uses no rollout budget. `None` if no
    /// such pod is to be created. Always `None` in a progressive rollout, which uses
    /// [`RolloutAction::SurgeBesideNotReady`] instead.
    pub(crate) create: Option<Why>,
    /// Why the rollout does not update the node yet. `None` if the node waits for nothing.
    pub(crate) waiting: Option<Why>,
    /// The time at which this result must be computed again even without an event. `None` if there is no such time.
    pub(crate) recheck_at: Option<Time>,
}

/// Returns the rollout budget as a number of nodes. With `OnDelete` it is 0. Otherwise it is `maxUnavailable` or
/// `maxSurge`, and at least 1 unless that field is 0. `desired` is the number of eligible nodes.
pub(crate) fn rollout_budget(set: &Set, desired: i64) -> usize {
    let desired = usize::try_from(desired).unwrap_or(0);
    match set.rollout {
        UpdateStrategy::OnDelete => 0,
        // With no eligible node a percentage would be 0, and old pods on nodes that are no longer eligible would never
        // be deleted.
        UpdateStrategy::Drain(share) | UpdateStrategy::Surge(share) => {
            share.scaled_value(desired).max(usize::from(!share.is_zero()))
        }
    }
}

/// Message for users about a DaemonSet whose `maxUnavailable` is 0.
pub(crate) const ZERO_BUDGET_MESSAGE: &str = "spec.updateStrategy.rollingUpdate.maxUnavailable of the DaemonSet is 0, \
                                              so no Ready pod is replaced: set it to 1 or more, or remove it";

/// Whether the update strategy is [`UpdateStrategy::Drain`] with a `maxUnavailable` of 0, so that no Ready pod is ever
/// replaced.
///
/// Rule: with a `maxUnavailable` of 0 and without surge, a rollout replaces no Ready pod. API servers refuse such a
/// DaemonSet with the strategy `RollingUpdate`. They accept it with `OnDelete`, where a policy may use the value.
pub(crate) fn is_budget_always_zero(strategy: UpdateStrategy) -> bool {
    matches!(strategy, UpdateStrategy::Drain(share) if share.is_zero())
}

/// Whether a node may get a new pod and, if not, why.
enum Eligibility<'a> {
    /// The node may get a new pod.
    Eligible,
    /// The node may not get a new pod now. Its only untolerated `NoSchedule` taints are `not-ready`, `unreachable` or
    /// both. Holds the first of these taints.
    NotReady(&'a Taint),
    /// The node may not get a new pod. Holds all its untolerated `NoSchedule` taints except `not-ready` and
    /// `unreachable`.
    Tainted(Vec<&'a Taint>),
    /// The node does not exist, or has [`Verdict::Leave`], with which all pods of the DaemonSet are deleted. The
    /// rollout has nothing to do.
    Excluded,
}

/// Computes what the rolling update does on one node, and whether the node counts against the rollout budget.
///
/// `target` is the revision that the node is assigned, of which the node is to get a pod. `here` is the node with its
/// verdict, `None` if the node was deleted. A node that was lost or not Ready before that revision was created can be
/// exempt from the budget (see [`is_charged`]). Until `charged_until`, the node is not exempt. `charged_until` is
/// `None` if there is no such time.
pub(crate) fn compute_node_rollout(
    set: &Set,
    target: &NodeTarget<'_>,
    here: Option<(&Node, &Verdict)>,
    pods: &[Arc<Pod>],
    roster: &Roster,
    charged_until: Option<Time>,
    now: Time,
) -> NodeRollout {
    let current = target.revision;
    let is_available = |pod: &Arc<Pod>| check_availability(set, pod, now).is_ok();
    let mut node_rollout = NodeRollout::default();
    let node = here.map(|(node, _)| node);
    let eligibility = rollout_eligibility(target.template, here);
    let lost = node.and_then(|it| node_lost_since(it, current));
    let was_not_ready_before_revision =
        || node.is_some_and(|it| was_not_ready_before_revision(it, current, pods));
    let is_exempt = lost.is_some()
        || (matches!(eligibility, Eligibility::NotReady(_)) && was_not_ready_before_revision());
    node_rollout.recheck_at = charged_until.filter(|_| is_exempt);
    let is_exempt = is_exempt && node_rollout.recheck_at.is_none();
    node_rollout.budget_use.charged = is_charged(set, current, &eligibility, is_exempt, pods, roster, now);
    node_rollout.budget_use.available =
        matches!(eligibility, Eligibility::Eligible) && roster.kept.iter().any(is_available);
    if set.rollout == UpdateStrategy::OnDelete {
        let waits = roster.kept.iter().any(|it| !current.is_up_to_date(it));
        node_rollout.waiting = waits.then_some(Why::WaitsForUserDelete);
        return node_rollout;
    }
    // Rule: a held node keeps its pod, of whatever revision, until the pod ends. Then it gets the stable revision.
    if target.mode == UpdateMode::Hold {
        let waits = roster.kept.iter().any(|it| !current.is_up_to_date(it));
        node_rollout.waiting = waits.then_some(Why::HeldByRollout);
        return node_rollout;
    }
    // The rollout acts only on nodes with exactly one pod, which is outdated, and with no surplus pod left to delete.
    let [old] = roster.kept.as_slice() else {
        let new = roster.kept.iter().find(|it| current.is_up_to_date(it));
        node_rollout.waiting = new.and_then(|it| check_availability(set, it, now).err());
        return node_rollout;
    };
    if roster.delete.iter().any(|(pod, _)| pod.is_live()) {
        return node_rollout;
    }
    if current.is_up_to_date(old) || pods.iter().any(|it| it.is_live() && current.is_up_to_date(it)) {
        return node_rollout;
    }
    if let Some(since) = lost {
        node_rollout.waiting = Some(Why::NodeLost { since });
        return node_rollout;
    }
    let is_up = is_pod_up(set, current, old, now);
    // Rule: the old pod of an unreachable node is not deleted: no kubelet would report its end, and after a network
    // partition all such pods would terminate at once. The node counts against the budget until it reports again.
    if let (false, Some(since)) = (is_up, node.and_then(node_unreachable_since)) {
        node_rollout.waiting = Some(Why::NodeUnreachable { since });
        return node_rollout;
    }
    match (eligibility, set.rollout) {
        (Eligibility::Excluded, _) | (_, UpdateStrategy::OnDelete) => {}
        (Eligibility::Eligible, UpdateStrategy::Drain(_)) if is_up => {
            node_rollout.action = Some(RolloutAction::Replace(old.clone(), Why::Outdated));
            node_rollout.waiting = Some(Why::Outdated);
        }
        (Eligibility::Eligible, UpdateStrategy::Drain(_)) => {
            node_rollout.waiting = Some(Why::BeingReplaced);
            replace_not_ready(&mut node_rollout, old, Why::OutdatedAndNotReady, target.mode);
        }
        (Eligibility::Eligible, UpdateStrategy::Surge(_)) => {
            match roster::check_surge_create(current, pods, roster.recheck_at) {
                Err(why) => node_rollout.waiting = Some(why),
                Ok(()) if is_up => {
                    node_rollout.action = Some(RolloutAction::Surge);
                    node_rollout.waiting = Some(Why::Outdated);
                }
                Ok(()) => {
                    node_rollout.waiting = Some(Why::BeingReplaced);
                    match target.mode {
                        UpdateMode::Plain => node_rollout.create = Some(Why::OutdatedAndNotReady),
                        _ => node_rollout.action = Some(RolloutAction::SurgeBesideNotReady(old.clone())),
                    }
                }
            }
        }
        (Eligibility::Tainted(taints), rollout) => {
            let Some(taint) = taints.first().map(|it| Arc::new((*it).clone())) else { return node_rollout };
            if !was_toleration_dropped(old, &taints) {
                node_rollout.waiting = Some(Why::KeptByTaint { taint });
            } else {
                let why = Why::TolerationDropped { taint };
                remove_old_pod(&mut node_rollout, old, is_up, rollout, target.mode, why);
            }
        }
        (Eligibility::NotReady(taint), rollout) => {
            remove_old_pod(
                &mut node_rollout,
                old,
                is_up,
                rollout,
                target.mode,
                Why::NodeNotReadyOrUnreachable { taint: Arc::new(taint.clone()) },
            );
        }
    }
    if let Some(RolloutAction::Remove(pod, _)) = &node_rollout.action {
        node_rollout.budget_use.available = is_available(pod);
    }
    node_rollout
}

/// Adds the replacement of an old pod that is not Ready to `node_rollout`.
///
/// Rule: without a progressive rollout, an old pod that is not Ready is replaced at once. In a progressive rollout, it
/// is replaced when the phase allows it, after the status has recorded that failures of the node are not counted.
fn replace_not_ready(node_rollout: &mut NodeRollout, old: &Arc<Pod>, why: Why, mode: UpdateMode) {
    match mode {
        UpdateMode::Plain => node_rollout.delete.push((old.clone(), why)),
        UpdateMode::Progressive | UpdateMode::Hold => {
            node_rollout.action = Some(RolloutAction::ReplaceNotReady(old.clone(), why));
        }
    }
}

/// Adds the removal of an old pod to `node_rollout`, with `why` as the reason why the node waits. `is_up` is the result
/// of [`is_pod_up`] for the pod.
///
/// Rule: on a node whose taints prevent a new pod, an old pod that is not Ready is deleted without rollout budget (see
/// [`replace_not_ready`]). An old pod that is Ready is deleted within the rollout budget or, with surge, once enough
/// other pods are available.
fn remove_old_pod(
    node_rollout: &mut NodeRollout,
    old: &Arc<Pod>,
    is_up: bool,
    rollout: UpdateStrategy,
    mode: UpdateMode,
    why: Why,
) {
    node_rollout.waiting = Some(why.clone());
    match (is_up, rollout) {
        (false, _) => replace_not_ready(node_rollout, old, why, mode),
        (true, UpdateStrategy::Surge(_)) => {
            node_rollout.action = Some(RolloutAction::Remove(old.clone(), why))
        }
        (true, _) => node_rollout.action = Some(RolloutAction::Replace(old.clone(), why)),
    }
}

/// Whether a node counts against the rollout budget. `current` is the revision that the node is assigned. `is_exempt`
/// is whether the problem of the node is older than that revision (the node was lost before the revision was created,
/// or was already not Ready then and has no pod), and no recent deletion by the controller makes the node count (see
/// [`RolloutDeletion::charged_until`]).
///
/// Rule: the first of these cases that applies decides:
///
/// - An exempt node (`is_exempt`) does not count.
/// - A node with pods of the revision that it is assigned (`current`), none of which is available, counts, whatever its
///   taints or verdict. So a rollout that breaks nodes stops when the budget is used up. Pods that have failed or
///   succeeded and are being deleted are ignored.
/// - With surge, no other node counts.
/// - A node that is eligible, or would be without the taints `not-ready` and `unreachable`, counts unless a kept pod on
///   it is up (see [`is_pod_up`]).
/// - A node with other untolerated `NoSchedule` taints counts while a pod that tolerates these taints is terminating:
///   the template dropped a toleration, so the rollout removes the pod.
/// - No other node counts, for example a node that only keeps its old pod.
fn is_charged(
    set: &Set,
    current: &TargetRevision,
    eligibility: &Eligibility<'_>,
    is_exempt: bool,
    pods: &[Arc<Pod>],
    roster: &Roster,
    now: Time,
) -> bool {
    let mut new =
        pods.iter().filter(|it| current.is_up_to_date(it) && !it.is_terminal_and_deleting()).peekable();
    let new_pods_unavailable =
        new.peek().is_some() && !new.any(|it| check_availability(set, it, now).is_ok());
    // A node that was lost before the revision became current was not broken by this revision.
    if is_exempt {
        return false;
    }
    if new_pods_unavailable {
        return true;
    }
    if matches!(set.rollout, UpdateStrategy::Surge(_)) {
        return false;
    }
    let is_up = roster.kept.iter().any(|it| is_pod_up(set, current, it, now));
    match eligibility {
        Eligibility::Eligible | Eligibility::NotReady(_) => !is_up,
        Eligibility::Tainted(taints) => pods
            .iter()
            .any(|it| it.deleting && !it.is_terminal_and_deleting() && was_toleration_dropped(it, taints)),
        Eligibility::Excluded => false,
    }
}

/// Returns whether a node may get a new pod of this template and, if not, why. `here` is the node with its verdict,
/// `None` if the node was deleted.
fn rollout_eligibility<'a>(template: &Template, here: Option<(&'a Node, &Verdict)>) -> Eligibility<'a> {
    let Some((node, verdict)) = here else { return Eligibility::Excluded };
    match verdict {
        Verdict::Run => Eligibility::Eligible,
        Verdict::Leave(_) => Eligibility::Excluded,
        Verdict::Keep(_) => {
            let untolerated = || {
                let taints = node.taints.iter().filter(|it| it.effect == TaintEffect::NoSchedule);
                taints.filter(|it| !any_tolerates(&template.tolerations, it))
            };
            let real: Vec<&Taint> = untolerated().filter(|it| !is_readiness_taint(it)).collect();
            match untolerated().next() {
                _ if !real.is_empty() => Eligibility::Tainted(real),
                Some(taint) => Eligibility::NotReady(taint),
                None => Eligibility::Eligible,
            }
        }
    }
}

/// Whether the old pod tolerates all of `taints`, the taints that the new template does not tolerate.
///
/// Rule: an old pod that tolerates every taint that the new template does not tolerate is deleted, because the user
/// moved the DaemonSet off such nodes. An old pod that does not tolerate all of these taints is kept, because it was
/// created before the node got the taint.
fn was_toleration_dropped(old: &Pod, taints: &[&Taint]) -> bool {
    taints.iter().all(|it| any_tolerates(&old.tolerations, it))
}

/// Returns the time since which a node is lost. `None` if it is not lost. `current` is the revision that the node is
/// assigned.
///
/// Rule: a node is lost if its Ready condition has been Unknown since before that revision was created. If one of the
/// two times is not known, the node is not lost. A node whose Ready condition is False is not lost either.
fn node_lost_since(node: &Node, current: &TargetRevision) -> Option<Time> {
    let since = node_unreachable_since(node)?;
    let current_since = current.created?;
    (since < current_since).then_some(since)
}

/// Whether the node has no pod, and was already not Ready when `current`, the revision that the node is assigned, was
/// created. Pods that have failed or succeeded and are being deleted are ignored.
///
/// Rule: the rollout does not wait for a node that has no pod and lost readiness before its assigned revision was
/// created. Such a node gets its pod once it is Ready.
fn was_not_ready_before_revision(node: &Node, current: &TargetRevision, pods: &[Arc<Pod>]) -> bool {
    let before = node.ready.since.zip(current.created).is_some_and(|(since, created)| since < created);
    node.ready.status != ConditionStatus::True
        && before
        && pods.iter().all(|it| it.is_terminal_and_deleting())
}

/// The controller's last deletion or eviction of a DaemonSet's pod on one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutDeletion {
    /// Hash label of the revision that the node was assigned when the pod was deleted or evicted.
    pub hash: Text,
    /// Time at which the pod was deleted or evicted.
    pub at: Time,
}

/// Time for which the controller remembers that it deleted a pod. A watch of nodes that lags behind is restarted within
/// this time, so afterwards the watch shows the true state of the node.
const ROLLOUT_DELETION_TTL: Duration = Duration::from_secs(5 * 60);

impl RolloutDeletion {
    /// Returns the time until which the node counts against the rollout budget because of this deletion. `None` if that
    /// time has passed, if the new pod is available, or if `current`, the revision that the node is now assigned, is
    /// not the revision of the deletion.
    ///
    /// Rule: a node whose pod the controller deleted counts against the rollout budget until its new pod is available,
    /// even if the node seems lost, because the watch of nodes may lag behind. After five minutes the state that the
    /// watch shows is trusted.
    pub(crate) fn charged_until(
        &self,
        set: &Set,
        current: &TargetRevision,
        pods: &[Arc<Pod>],
        now: Time,
    ) -> Option<Time> {
        let until = self.at + ROLLOUT_DELETION_TTL;
        let is_back =
            || pods.iter().any(|it| current.is_up_to_date(it) && check_availability(set, it, now).is_ok());
        (self.hash == current.hash && now < until && !is_back()).then_some(until)
    }
}

/// Returns the time since which the Ready condition of a node has been Unknown. `None` if it is not Unknown, or if the
/// time is not known.
fn node_unreachable_since(node: &Node) -> Option<Time> {
    let ReadyCondition { status: ConditionStatus::Unknown, since } = node.ready else { return None };
    since
}
