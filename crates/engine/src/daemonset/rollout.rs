//! Drain and surge within the budget.

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

/// How a node stands towards the budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Standing {
    /// It takes one of the nodes that may be down (or, with surge, that may have two).
    pub(crate) charged: bool,
    /// An available pod is on it, and the node is the set's, or the pod is one that is to leave it.
    pub(crate) available: bool,
}

/// What the rollout may do on a node when the budget allows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Offer {
    /// Delete the old pod; the node is down until the new one is up.
    Replace(Arc<Pod>, Why),
    /// Create the new pod beside the old one.
    Surge,
    /// Delete the old pod once enough others are available: its node is no longer the set's.
    Leave(Arc<Pod>, Why),
}

#[derive(Debug, Default)]
pub(crate) struct Stand {
    pub(crate) standing: Standing,
    pub(crate) offer: Option<Offer>,
    /// Old pods that are not up: replacing them costs nothing.
    pub(crate) delete: Vec<(Arc<Pod>, Why)>,
    /// Surge beside an old pod that is not up: costs nothing either.
    pub(crate) create: Option<Why>,
    pub(crate) waiting: Option<Why>,
    /// When this changes by time alone.
    pub(crate) again_at: Option<Time>,
}

/// How many nodes may be down, or have two pods, at once.
pub(crate) fn budget(set: &Set, desired: i64) -> usize {
    let desired = usize::try_from(desired).unwrap_or(0);
    match set.rollout {
        Rollout::OnDelete => 0,
        // A share of no nodes is still one, or pods that were left behind everywhere would never go.
        Rollout::Drain(share) | Rollout::Surge(share) => share.of(desired).max(usize::from(!share.is_zero())),
    }
}

/// What keeps a new pod from a node that may keep its old one.
enum Hold<'a> {
    /// Nothing: the node is eligible.
    No,
    /// Only the node's own trouble.
    Trouble(&'a Taint),
    /// Taints that new pods do not tolerate, the node's own trouble left out.
    Taints(Vec<&'a Taint>),
    /// The pods here must leave anyway, or the node is gone: nothing for a rollout to do.
    Leaving,
}

/// Where one node stands in the rollout, and what may be done there.
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
    // The rollout looks at nodes that are settled otherwise: one pod, it is old, and no surplus is still to go.
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
    // Rule: the old pod of a node that is silent is left alone, lost or not: nobody would hear of its end, and after a
    // partition all of them would end at once. The node is charged until it reports again.
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

/// Rule: an old pod that no new one can follow yet leaves within the budget; with surge once enough others are
/// available; and at once where it is not up anyway.
fn send_off(stand: &mut Stand, old: &Arc<Pod>, is_up: bool, rollout: Rollout, why: Why) {
    stand.waiting = Some(why.clone());
    match (is_up, rollout) {
        (false, _) => stand.delete.push((old.clone(), why)),
        (true, Rollout::Surge(_)) => stand.offer = Some(Offer::Leave(old.clone(), why)),
        (true, _) => stand.offer = Some(Offer::Replace(old.clone(), why)),
    }
}

/// Rule: what counts against the budget.
/// *The brake*: a node with a pod of the current revision of which none is available is always charged, whatever its
/// taints, its readiness or the verdict; so a revision that kills its nodes stops at the budget.
/// With surge that is all. With drain a node with no pod that is up is charged too, and one whose pod was sent off
/// because the template moved, until it is gone. A node that is lost or was never reached, and one that only keeps its old
/// pod, are not.
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
    // What was lost before the revision was current is not this revision's doing.
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

/// Rule: an old pod that tolerates every taint which the new template does not was left behind by the template: the user
/// moved the set. One that does not tolerate them either was there before the taint, and is kept.
fn moved(old: &Pod, taints: &[&Taint]) -> bool {
    taints.iter().all(|it| any_tolerates(&old.tolerations, it))
}

/// Rule: a node is lost if its Ready condition has been Unknown since before the current revision became current. Where
/// that cannot be shown, it is not lost. Ready=False follows the ordinary rules.
fn lost(node: &Node, current: &Current) -> Option<Time> {
    let since = silent_since(node)?;
    let current_since = current.made_at?;
    (since < current_since).then_some(since)
}

/// Rule: a node in trouble, without a pod, that has not been ready since before the current revision was made is none of
/// the revision's doing: the rollout does not wait for it, and it gets its pod when its trouble is over.
fn never_reached(node: &Node, current: &Current, pods: &[Arc<Pod>]) -> bool {
    let before = node.ready.since.zip(current.made_at).is_some_and(|(since, made_at)| since < made_at);
    node.ready.status != Truth::True && before && pods.iter().all(|it| it.gone())
}

/// A pod that was deleted by our hand: under which revision, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutDeletion {
    pub hash: Text,
    pub at: Time,
}

/// Longer than a watch of nodes may lag before it is restarted.
const DELETION_REMEMBERED_FOR: Duration = Duration::from_secs(5 * 60);

impl RolloutDeletion {
    /// Rule: a node whose pod this rollout took is charged until its new pod is available, though it seem lost: what a
    /// late watch shows of it may be over already. What it shows after five minutes is believed.
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
