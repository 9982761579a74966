//! Which of the nodes that fit is best.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Pod, Room, Scheduler};
use crate::facts::{Effect, Text};
use crate::placement::{affinity, tolerates};
use crate::spread;

/// What a pod that asks for nothing is taken to need, so that such pods do not all end on one node.
/// Upstream: `DefaultMilliCPURequest`, `DefaultMemoryRequest`.
const UNSAID: [(&str, i64); 2] = [("cpu", 100), ("memory", 200 * 1024 * 1024)];

/// The best score of each rule.
const BEST: i64 = 100;

/// Rule: what is wished for weighs three times for taints, twice for affinity to nodes and to pods, and once for room
/// that is left and for its balance; among equals a hash of pod and node decides. Upstream: the default plugins.
pub(super) fn best(all: &Scheduler, pod: &Pod, fitting: &[Text]) -> Option<Text> {
    // The node that was made free for it.
    if let Some(nominated) = pod.nominated.as_ref().filter(|it| fitting.contains(it)) {
        return Some(nominated.clone());
    }
    if let [only] = fitting {
        return Some(only.clone());
    }
    let rooms: Vec<&Room> = fitting.iter().filter_map(|it| all.rooms.get(it)).collect();
    let wishes = by_wishes_about_pods(all, pod, &rooms);
    let mut rules: [(i64, Vec<i64>); 3] = [
        (3, rooms.iter().map(|it| -unwanted_taints(pod, it)).collect()),
        (2, rooms.iter().map(|it| preferred(pod, it)).collect()),
        (2, wishes),
    ];
    for (_, scores) in &mut rules {
        normalise(scores);
    }
    let score = |at: usize, room: &Room| -> i64 {
        let weighed: i64 = rules.iter().map(|(weight, scores)| weight * scores[at]).sum();
        weighed + left_over(pod, room) + balance(pod, room)
    };
    let scored = rooms.iter().enumerate().map(|(at, room)| {
        let name = &room.node.fact.name;
        (score(at, room), spread::order(&pod.uid, name), name)
    });
    scored.max().map(|(_, _, name)| name.clone())
}

/// Spreads what the rule said over 0 to 100; all the same says nothing.
fn normalise(scores: &mut [i64]) {
    let (Some(least), Some(most)) = (scores.iter().min().copied(), scores.iter().max().copied()) else {
        return;
    };
    for score in scores {
        *score = if most == least { 0 } else { (*score - least) * BEST / (most - least) };
    }
}

fn unwanted_taints(pod: &Pod, room: &Room) -> i64 {
    let taints = room.node.fact.taints.iter();
    let unwanted =
        taints.filter(|it| it.effect == Effect::PreferNoSchedule && !tolerates(&pod.wants.tolerations, it));
    i64::try_from(unwanted.count()).unwrap_or(i64::MAX)
}

fn preferred(pod: &Pod, room: &Room) -> i64 {
    let held = pod.wants.preferred.iter().filter(|(_, term)| affinity::holds(term, &room.node.fact));
    held.map(|(weight, _)| weight).sum()
}

/// What the pod wishes of the pods around it, and what they wish of it.
fn by_wishes_about_pods(all: &Scheduler, pod: &Pod, rooms: &[&Room]) -> Vec<i64> {
    let mut sums: BTreeMap<(Text, Text), i64> = BTreeMap::new();
    for room in all.rooms.values() {
        let labels = &room.node.fact.labels;
        for other in room.pods.values() {
            let ours = pod.wants.rather.iter().filter(|(_, term)| term.matches(other, &all.namespaces));
            let theirs = other.wants.rather.iter().filter(|(_, term)| term.matches(pod, &all.namespaces));
            // Whom another pod must be near of is welcome there. Upstream: `HardPodAffinityWeight`.
            let company = other.wants.near.iter().filter(|term| term.matches(pod, &all.namespaces));
            let wishes = ours.chain(theirs).map(|(weight, term)| (*weight, term));
            for (weight, term) in wishes.chain(company.map(|term| (1, term))) {
                if let Some(place) = labels.get(&term.topology) {
                    *sums.entry((term.topology.clone(), place.clone())).or_default() += weight;
                }
            }
        }
    }
    let sum_at = |room: &&Room| {
        let here = |place: &(Text, Text)| room.node.fact.labels.get(&place.0) == Some(&place.1);
        sums.iter().filter(|(place, _)| here(place)).map(|(_, sum)| sum).sum()
    };
    rooms.iter().map(sum_at).collect()
}

/// The more is left of cpu and memory, the better. Upstream: `LeastAllocated`.
fn left_over(pod: &Pod, room: &Room) -> i64 {
    let parts = shares(pod, room);
    parts.iter().map(|share| BEST - share).sum::<i64>() / 2
}

/// The more alike cpu and memory are used, the better. Upstream: `NodeResourcesBalancedAllocation`.
fn balance(pod: &Pod, room: &Room) -> i64 {
    let [cpu, memory] = shares(pod, room);
    BEST - (cpu - memory).abs() / 2
}

/// How much of cpu and of memory is taken with the pod there, in hundredths.
fn shares(pod: &Pod, room: &Room) -> [i64; 2] {
    UNSAID.map(|(name, unsaid)| {
        let asks =
            |it: &Pod| it.wants.amounts.iter().find(|it| it.0.as_ref() == name).map_or(unsaid, |it| it.1);
        let taken: i64 = room.pods.values().map(|it| asks(it)).sum::<i64>().saturating_add(asks(pod));
        match room.node.allocatable.get(name).copied().unwrap_or(0) {
            given if given <= 0 => BEST,
            given => (i128::from(taken) * i128::from(BEST) / i128::from(given)).clamp(0, 100) as i64,
        }
    })
}
