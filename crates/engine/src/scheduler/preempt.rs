//! Whom to remove for a pod that is more important.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use super::around::Around;
use super::fit::{self, Unfit};
use super::rooms::Room;
use super::{Budget, Pod, Scheduler, histogram};

/// Where many nodes could be made free, a tenth of them is compared, and no fewer than this. Upstream:
/// `MinCandidateNodesPercentage`, `MinCandidateNodesAbsolute`.
const CANDIDATES_MIN: usize = 100;

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NOBODY: &str = "No preemption victims found for incoming pod";

/// What comes of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Preemption {
    /// These pods leave the node to it, the most important first.
    Remove { node: Text, victims: Vec<Arc<Pod>> },
    /// Nobody need be removed for it now, and why; the node that is kept free for it stays so.
    NotNow(String),
    /// It does not help, and why; no node is kept free for it.
    InVain(String),
}

/// Rule: pods of lower priority leave a node, the fewest and least important that make room, if no node takes the pod as
/// it is. Budgets are kept where that is possible. Nobody is removed while the last ones removed for the pod are still
/// leaving. Upstream: `DefaultPreemption`.
pub(super) fn choose(all: &Scheduler, pod: &Pod, around: &Around, unfit: &[(&Room, Unfit)]) -> Preemption {
    if !pod.preempts {
        return Preemption::NotNow("not eligible due to preemptionPolicy=Never.".into());
    }
    if are_leaving(all, pod, unfit) {
        return Preemption::NotNow("not eligible due to a terminating pod on the nominated node.".into());
    }
    let mut best: Option<(Cost, &Room, Vec<Arc<Pod>>)> = None;
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let rooms: Vec<&Room> =
        unfit.iter().filter(|(_, why)| why.others_are_in_the_way()).map(|(room, _)| *room).collect();
    let mut left = (rooms.len() / 10).max(CANDIDATES_MIN);
    for room in &rooms {
        match victims(all, pod, around, room) {
            Err(why) => {
                for reason in why.map_or_else(|| [NOBODY.into()].into(), |it| it.reasons()) {
                    *reasons.entry(reason).or_default() += 1;
                }
            }
            Ok((violations, victims)) => {
                let cost = cost(violations, &victims);
                if best.as_ref().is_none_or(|it| cost < it.0) {
                    best = Some((cost, room, victims));
                }
                left -= 1;
                if left == 0 {
                    break;
                }
            }
        }
    }
    if let Some((_, room, victims)) = best {
        return Preemption::Remove { node: room.name().clone(), victims };
    }
    if rooms.len() < all.rooms.len() {
        *reasons.entry(NOT_HELPFUL.into()).or_default() += all.rooms.len() - rooms.len();
    }
    Preemption::InVain(histogram(all.rooms.len(), &reasons))
}

/// Whether pods still leave the node that is kept free for this one, unless it cannot take it any more.
fn are_leaving(all: &Scheduler, pod: &Pod, unfit: &[(&Room, Unfit)]) -> bool {
    let Some(room) = all.queue.nominee(&pod.key).and_then(|it| all.rooms.get(it)) else { return false };
    let is_lost = unfit.iter().any(|(it, why)| it.name() == room.name() && !why.others_are_in_the_way());
    let leaves = |it: &&Arc<Pod>| all.victims.contains(&it.uid) || it.deleting && it.preempted;
    !is_lost && room.pods.values().filter(|it| it.priority < pod.priority).any(|it| leaves(&it))
}

/// What is paid for a node, the dearest first: budgets broken, the highest priority, the sum of them, their number, and
/// how long the most important have run.
type Cost = (usize, i32, i64, usize, Reverse<Time>);

fn cost(violations: usize, victims: &[Arc<Pod>]) -> Cost {
    let highest = victims.iter().map(|it| it.priority).max().unwrap_or(i32::MIN);
    let sum = victims.iter().map(|it| i64::from(it.priority) + i64::from(i32::MAX) + 1).sum();
    let oldest = victims.iter().filter(|it| it.priority == highest).map(|it| started(it)).min();
    (violations, highest, sum, victims.len(), Reverse(oldest.unwrap_or_default()))
}

/// Whoever has not started runs since later than all.
fn started(pod: &Pod) -> Time {
    pod.started.unwrap_or(Time::from_micros(i64::MAX))
}

/// Who would have to leave this node, the most important first, and how many budgets that breaks. Or why it would not
/// help; `None`: nobody could leave.
fn victims(
    all: &Scheduler,
    pod: &Pod,
    around: &Around,
    room: &Room,
) -> Result<(usize, Vec<Arc<Pod>>), Option<Unfit>> {
    let mut lower: Vec<&Arc<Pod>> = room.pods.values().filter(|it| it.priority < pod.priority).collect();
    if lower.is_empty() {
        return Err(None);
    }
    let mut gone: BTreeSet<ObjectKey> = lower.iter().map(|it| it.key.clone()).collect();
    fit::check(all, pod, around, room, &gone).map_err(Some)?;
    // The most important are given back first, and of equals the older; but those before all whose budget would break.
    let importance = |it: &Pod| (Reverse(it.priority), started(it), it.key.clone());
    lower.sort_by_key(|it| importance(it));
    let mut left: BTreeMap<&ObjectKey, i64> = all.budgets.iter().map(|(key, it)| (key, it.allowed)).collect();
    let mut breaks = |it: &Pod| {
        let mut is_broken = false;
        for (key, _) in all.budgets.iter().filter(|(_, budget)| budget.guards(it)) {
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
        if fit::check(all, pod, around, room, &gone).is_err() {
            gone.insert(it.key.clone());
            violations += broken;
            victims.push(it.clone());
        }
    }
    victims.sort_by_key(|it| importance(it));
    Ok((violations, victims))
}

impl Budget {
    /// Whether the pod is one of those whose number it keeps up.
    fn guards(&self, pod: &Pod) -> bool {
        let selects = |it: &Vec<_>| -> bool {
            !it.is_empty() && it.iter().all(|it: &muster_api::labels::Requirement| it.holds(&pod.labels))
        };
        self.key.namespace == pod.key.namespace
            && !pod.labels.is_empty()
            && !self.disrupted.contains(&pod.key.name)
            && self.selector.as_ref().is_some_and(selects)
    }
}
