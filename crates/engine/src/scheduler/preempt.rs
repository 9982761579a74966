//! Whom to remove for a pod that is more important.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::fit::{self, Around};
use super::{Pod, Room, Scheduler, Unfit};
use crate::facts::{Key, Selector, Text};

/// A PodDisruptionBudget: how many more of these pods may go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Budget {
    pub selector: Selector,
    pub allowed: i64,
}

/// Rule: pods of lower priority leave a node, the fewest and least important that make room, if no node takes the pod as
/// it is. Budgets are kept where that is possible. Nobody is removed while the last ones removed for the pod are still
/// leaving. Upstream: `DefaultPreemption`.
///
/// Or why that does not help.
pub(super) fn choose(
    all: &Scheduler,
    pod: &Pod,
    around: &Around,
    unfit: &BTreeMap<Text, Unfit>,
) -> Result<(Text, Vec<Arc<Pod>>), String> {
    if !pod.preempts {
        return Err(String::from("not eligible due to preemptionPolicy=Never."));
    }
    let are_leaving = |node: &Text| {
        let room = all.rooms.get(node)?;
        Some(room.pods.values().any(|it| it.deleting && it.priority < pod.priority))
    };
    if pod.nominated.as_ref().and_then(are_leaving).unwrap_or(false) {
        return Err(String::from("not eligible due to a terminating pod on the nominated node."));
    }
    let mut best: Option<(Cost, Text, Vec<Arc<Pod>>)> = None;
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, why) in unfit {
        let Some(room) = all.rooms.get(name).filter(|_| why.others_are_in_the_way()) else {
            *reasons.entry("Preemption is not helpful for scheduling").or_default() += 1;
            continue;
        };
        let Some((violations, victims)) = victims(all, pod, around, room) else {
            *reasons.entry("No preemption victims found for incoming pod").or_default() += 1;
            continue;
        };
        let cost = cost(violations, &victims);
        if best.as_ref().is_none_or(|it| cost < it.0) {
            best = Some((cost, name.clone(), victims));
        }
    }
    if let Some((_, node, victims)) = best {
        return Ok((node, victims));
    }
    let seen: usize = reasons.values().sum();
    if seen < all.rooms.len() {
        *reasons.entry("Preemption is not helpful for scheduling").or_default() += all.rooms.len() - seen;
    }
    let mut said: Vec<String> = reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
    said.sort();
    Err(format!("0/{} nodes are available: {}.", all.rooms.len(), said.join(", ")))
}

/// What is paid for a node, the dearest first: budgets broken, the highest priority, the sum of them, their number, and
/// how long the most important have run.
type Cost = (usize, i32, i64, usize, Reverse<crate::time::Time>);

fn cost(violations: usize, victims: &[Arc<Pod>]) -> Cost {
    let highest = victims.iter().map(|it| it.priority).max().unwrap_or(i32::MIN);
    let sum = victims.iter().map(|it| i64::from(it.priority) + i64::from(i32::MAX) + 1).sum();
    let oldest = victims.iter().filter(|it| it.priority == highest).map(|it| it.created).min();
    (violations, highest, sum, victims.len(), Reverse(oldest.unwrap_or_default()))
}

/// Who would have to leave this node, the most important first, and how many budgets that breaks.
fn victims(all: &Scheduler, pod: &Pod, around: &Around, room: &Room) -> Option<(usize, Vec<Arc<Pod>>)> {
    let mut lower: Vec<&Arc<Pod>> = room.pods.values().filter(|it| it.priority < pod.priority).collect();
    if lower.is_empty() {
        return None;
    }
    let mut gone: BTreeSet<Key> = lower.iter().map(|it| it.key.clone()).collect();
    fit::check(all, pod, around, room, &gone).ok()?;
    // The most important are given back first, and of equals the older; but those before all whose budget would break.
    lower.sort_by_key(|it| (Reverse(it.priority), it.created, it.key.clone()));
    let mut left: BTreeMap<&Key, i64> = all.budgets.iter().map(|(key, it)| (key, it.allowed)).collect();
    let mut breaks = |it: &Pod| {
        let mut broken = false;
        for (key, budget) in &all.budgets {
            if key.namespace == it.key.namespace && budget.selector.matches(&it.labels) {
                let allowed = left.entry(key).or_default();
                *allowed -= 1;
                broken |= *allowed < 0;
            }
        }
        broken
    };
    let (breaking, keeping): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = lower.into_iter().partition(|it| breaks(it));
    let mut violations = 0;
    let mut victims: Vec<Arc<Pod>> = Vec::new();
    let is_breaking: BTreeSet<Key> = breaking.iter().map(|it| it.key.clone()).collect();
    for it in breaking.into_iter().chain(keeping) {
        gone.remove(&it.key);
        if fit::check(all, pod, around, room, &gone).is_err() {
            gone.insert(it.key.clone());
            violations += usize::from(is_breaking.contains(&it.key));
            victims.push(it.clone());
        }
    }
    victims.sort_by_key(|it| (Reverse(it.priority), it.created, it.key.clone()));
    Some((violations, victims))
}
