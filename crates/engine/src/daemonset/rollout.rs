//! The rolling update on one node: what may be deleted or created there, and whether the node counts against
//! `maxUnavailable` or `maxSurge`.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::taints::{Taint, TaintEffect, any_tolerates};
use muster_api::text::Text;
use muster_api::time::Time;

use super::revision::Current;
use super::roster::{self, Roster};
use super::status::{available, up};
use crate::daemonset::facts::{Node, Pod, Ready, Rollout, Set, Truth};
use crate::daemonset::placement::Verdict;
use crate::daemonset::placement::taints::is_node_trouble;
use crate::daemonset::why::Why;

/// How one node counts in the rollout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Standing {
    /// The node counts against `maxUnavailable` (drain) or `maxSurge` (surge).
    pub(crate) charged: bool,
    /// The node has an available pod, and either the node is eligible or the rollout is to delete that pod.
    pub(crate) available: bool,
}

/// Action of the rollout on one node, executed when the budget allows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Offer {
    /// Delete the old pod; the node has no available pod until its replacement is available.
    Replace(Arc<Pod>, Why),
    /// Create the new pod while the old one still runs.
    Surge,
    /// Delete the old pod of a node that is no longer eligible, once enough other pods are available.
    Leave(Arc<Pod>, Why),
}

#[derive(Debug, Default)]
pub(crate) struct Stand {
    pub(crate) standing: Standing,
    pub(crate) offer: Option<Offer>,
    /// Old pods that are not up: deleting them uses no budget.
    pub(crate) delete: Vec<(Arc<Pod>, Why)>,
    /// Create a new pod beside an old one that is not up: uses no budget either.
    pub(crate) create: Option<Why>,
    pub(crate) waiting: Option<Why>,
    /// When this state changes without an event.
    pub(crate) again_at: Option<Time>,
}

/// `maxUnavailable` or `maxSurge` as a number of nodes; 0 with `OnDelete`.
pub(crate) fn budget(set: &Set, desired: i64) -> usize {
    let desired = usize::try_from(desired).unwrap_or(0);
    match set.rollout {
        Rollout::OnDelete => 0,
        // With no eligible node a percentage would be 0, and old pods on nodes that are no longer eligible would never
        // be deleted.
        Rollout::Drain(share) | Rollout::Surge(share) => share.of(desired).max(usize::from(!share.is_zero())),
    }
}

/// Whether a node may get a new pod, and if not, why.
enum Hold<'a> {
    /// The node is eligible.
    No,
    /// The only untolerated taints report that the node is not ready or unreachable.
    Trouble(&'a Taint),
    /// Untolerated `NoSchedule` taints, without those that report that the node is not ready or unreachable.
    Taints(Vec<&'a Taint>),
    /// The node does not exist, or its verdict deletes all pods of the DaemonSet: the rollout has nothing to do.
    Leaving,
}

/// Computes the rollout state of one node.
pub(crate) fn stand(
    set: &Set,
    current: &Current,
    here: Option<(&Node, &Verdict)>,
    pods: &[Arc<Pod>],
    roster: &Roster,
    charged_until: Option<Time>,
    now: Time,
) -> Stand {
    let is_available = |pod: &Arc<Pod>| available(set, pod, now).is_ok();
    let mut stand = Stand::default();
    let node = here.map(|(node, _)| node);
    let hold = hold(set, here);
    let lost = node.and_then(|it| lost(it, current));
    let never_reached = || node.is_some_and(|it| never_reached(it, current, pods));
    let excused = lost.is_some() || (matches!(hold, Hold::Trouble(_)) && never_reached());
    stand.again_at = charged_until.filter(|_| excused);
    let excused = excused && stand.again_at.is_none();
    stand.standing.charged = charged(set, current, &hold, excused, pods, roster, now);
    stand.standing.available = matches!(hold, Hold::No) && roster.stay.iter().any(is_available);
    if set.rollout == Rollout::OnDelete {
        let waits = roster.stay.iter().any(|it| !current.is_new(it));
        stand.waiting = waits.then_some(Why::UpdatesWaitForDeletion);
        return stand;
    }
    // The rollout acts only on nodes with exactly one pod, which is outdated, and with no surplus pod left to delete.
    let [old] = roster.stay.as_slice() else {
        let new = roster.stay.iter().find(|it| current.is_new(it));
        stand.waiting = new.and_then(|it| available(set, it, now).err());
        return stand;
    };
    if roster.delete.iter().any(|(pod, _)| pod.live()) {
        return stand;
    }
    if current.is_new(old) || pods.iter().any(|it| it.live() && current.is_new(it)) {
        return stand;
    }
    if let Some(since) = lost {
        stand.waiting = Some(Why::NodeIsLost { since });
        return stand;
    }
    let is_up = up(set, current, old, now);
    // Rule: the old pod of an unreachable node is not deleted: no kubelet would report its end, and after a network
    // partition all such pods would terminate at once. The node counts against the budget until it reports again.
    if let (false, Some(since)) = (is_up, node.and_then(silent_since)) {
        stand.waiting = Some(Why::NodeIsSilent { since });
        return stand;
    }
    match (hold, set.rollout) {
        (Hold::Leaving, _) | (_, Rollout::OnDelete) => {}
        (Hold::No, Rollout::Drain(_)) if is_up => {
            stand.offer = Some(Offer::Replace(old.clone(), Why::OutOfDate));
            stand.waiting = Some(Why::OutOfDate);
        }
        (Hold::No, Rollout::Drain(_)) => {
            stand.delete.push((old.clone(), Why::OutOfDateAndNotReady));
            stand.waiting = Some(Why::BeingReplaced);
        }
        (Hold::No, Rollout::Surge(_)) => match roster::may_create_new(current, pods, roster.again_at) {
            Err(why) => stand.waiting = Some(why),
            Ok(()) if is_up => {
                stand.offer = Some(Offer::Surge);
                stand.waiting = Some(Why::OutOfDate);
            }
            Ok(()) => {
                stand.create = Some(Why::OutOfDateAndNotReady);
                stand.waiting = Some(Why::BeingReplaced);
            }
        },
        (Hold::Taints(taints), rollout) => {
            let Some(taint) = taints.first().map(|it| Arc::new((*it).clone())) else { return stand };
            if !moved(old, &taints) {
                stand.waiting = Some(Why::KeptByTaint { taint });
            } else {
                send_off(&mut stand, old, is_up, rollout, Why::TolerationDropped { taint });
            }
        }
        (Hold::Trouble(taint), rollout) => {
            send_off(&mut stand, old, is_up, rollout, Why::NodeInTrouble { taint: Arc::new(taint.clone()) });
        }
    }
    if let Some(Offer::Leave(pod, _)) = &stand.offer {
        stand.standing.available = is_available(pod);
    }
    stand
}

/// Rule: an old pod on a node that cannot get a new pod yet is deleted within the budget; with surge once enough other
/// pods are available; at once if the old pod is not up.
fn send_off(stand: &mut Stand, old: &Arc<Pod>, is_up: bool, rollout: Rollout, why: Why) {
    stand.waiting = Some(why.clone());
    match (is_up, rollout) {
        (false, _) => stand.delete.push((old.clone(), why)),
        (true, Rollout::Surge(_)) => stand.offer = Some(Offer::Leave(old.clone(), why)),
        (true, _) => stand.offer = Some(Offer::Replace(old.clone(), why)),
    }
}

/// Rule: which nodes count against the budget.
/// A node that has pods of the current revision, none of them available, always counts, whatever its taints, readiness
/// or verdict. So a revision that breaks its nodes stops when the budget is used up.
/// With surge no other node counts. With drain two more do: an eligible node with no pod that is up, and a node whose
/// old pod is terminating because the template dropped a toleration. A node that was lost or not ready before the
/// revision, and a node that only keeps its old pod, do not count.
fn charged(
    set: &Set,
    current: &Current,
    hold: &Hold<'_>,
    excused: bool,
    pods: &[Arc<Pod>],
    roster: &Roster,
    now: Time,
) -> bool {
    let mut new = pods.iter().filter(|it| current.is_new(it) && !it.gone()).peekable();
    let brake = new.peek().is_some() && !new.any(|it| available(set, it, now).is_ok());
    // A node that was lost before the revision became current was not broken by this revision.
    if excused {
        return false;
    }
    if brake {
        return true;
    }
    if matches!(set.rollout, Rollout::Surge(_)) {
        return false;
    }
    let is_up = roster.stay.iter().any(|it| up(set, current, it, now));
    match hold {
        Hold::No | Hold::Trouble(_) => !is_up,
        Hold::Taints(taints) => pods.iter().any(|it| it.deleting && !it.gone() && moved(it, taints)),
        Hold::Leaving => false,
    }
}

fn hold<'a>(set: &Set, here: Option<(&'a Node, &Verdict)>) -> Hold<'a> {
    let Some((node, verdict)) = here else { return Hold::Leaving };
    match verdict {
        Verdict::Run => Hold::No,
        Verdict::Leave(_) => Hold::Leaving,
        Verdict::Keep(_) => {
            let untolerated = || {
                let taints = node.taints.iter().filter(|it| it.effect == TaintEffect::NoSchedule);
                taints.filter(|it| !any_tolerates(&set.template.tolerations, it))
            };
            let real: Vec<&Taint> = untolerated().filter(|it| !is_node_trouble(it)).collect();
            match untolerated().next() {
                _ if !real.is_empty() => Hold::Taints(real),
                Some(taint) => Hold::Trouble(taint),
                None => Hold::No,
            }
        }
    }
}

/// Rule: an old pod that tolerates every taint which the new template does not tolerate is deleted: the user moved the
/// DaemonSet off such nodes. An old pod that does not tolerate the taints either was there before the taint, and is
/// kept.
fn moved(old: &Pod, taints: &[&Taint]) -> bool {
    taints.iter().all(|it| any_tolerates(&old.tolerations, it))
}

/// Rule: a node is lost if its Ready condition has been Unknown since before the current revision was created. If that
/// cannot be shown, the node is not lost. Nodes with Ready=False follow the ordinary rules.
fn lost(node: &Node, current: &Current) -> Option<Time> {
    let since = silent_since(node)?;
    let current_since = current.made_at?;
    (since < current_since).then_some(since)
}

/// Rule: the rollout does not wait for a node without a pod that has been not ready since before the current revision
/// was created. The node gets its pod once it is ready.
fn never_reached(node: &Node, current: &Current, pods: &[Arc<Pod>]) -> bool {
    let before = node.ready.since.zip(current.made_at).is_some_and(|(since, made_at)| since < made_at);
    node.ready.status != Truth::True && before && pods.iter().all(|it| it.gone())
}

/// Record of a pod that the rollout deleted: for which revision, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutDeletion {
    pub hash: Text,
    pub at: Time,
}

/// Longer than the watch of nodes can lag behind before it is restarted.
const DELETION_REMEMBERED_FOR: Duration = Duration::from_secs(5 * 60);

impl RolloutDeletion {
    /// Rule: a node whose pod the rollout deleted counts against the budget until its new pod is available, even if the
    /// node seems lost: the node state may come from a watch that lags behind. After five minutes the watched state is
    /// trusted.
    pub(crate) fn until(&self, set: &Set, current: &Current, pods: &[Arc<Pod>], now: Time) -> Option<Time> {
        let until = self.at + DELETION_REMEMBERED_FOR;
        let is_back = || pods.iter().any(|it| current.is_new(it) && available(set, it, now).is_ok());
        (self.hash == current.hash && now < until && !is_back()).then_some(until)
    }
}

fn silent_since(node: &Node) -> Option<Time> {
    let Ready { status: Truth::Unknown, since } = node.ready else { return None };
    since
}
