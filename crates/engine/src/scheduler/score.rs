//! Which of the nodes that fit is best.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use muster_api::labels::Labels;
use muster_api::taints::Effect;
use muster_api::text::Text;

use super::rooms::{Room, UNSAID, asks};
use super::{Pod, PodTerm, Scheduler, Spread, around};
use crate::daemonset::placement::{affinity, tolerates};
use crate::hash_ordered_map;

/// The best score of each rule.
const BEST: i64 = 100;

/// Rule: what is wished for weighs three times for taints, twice for affinity to nodes and to pods and for spread, and
/// once for room that is left and for its balance; among equals a hash of pod and node decides. Upstream: the default
/// plugins.
pub(super) fn best(all: &Scheduler, pod: &Pod, fitting: &[&Room]) -> Option<Text> {
    if let [only] = fitting {
        return Some(only.name().clone());
    }
    let rules: [(i64, Vec<i64>); 4] = [
        (3, by_taints(pod, fitting)),
        (2, by_affinity(pod, fitting)),
        (2, by_wishes_about_pods(all, pod, fitting)),
        (2, by_spread(all, pod, fitting)),
    ];
    let score = |at: usize, room: &Room| -> i64 {
        let weighed: i64 = rules.iter().map(|(weight, scores)| weight * scores.get(at).unwrap_or(&0)).sum();
        weighed + left_over(pod, room) + balance(pod, room)
    };
    let scored = fitting
        .iter()
        .enumerate()
        .map(|(at, room)| (score(at, room), hash_ordered_map::order(&pod.uid, room.name()), room.name()));
    scored.max().map(|(_, _, name)| name.clone())
}

/// The fewer taints the pod would rather do without, the better. No scores: all are the same.
fn by_taints(pod: &Pod, rooms: &[&Room]) -> Vec<i64> {
    let unwanted = |room: &&Room| {
        let taints = room.node.fact.taints.iter().filter(|it| it.effect == Effect::PreferNoSchedule);
        count(taints.filter(|it| !tolerates(&pod.wants.tolerations, it)).count())
    };
    let counts: Vec<i64> = rooms.iter().map(unwanted).collect();
    match counts.iter().max() {
        None | Some(0) => Vec::new(),
        Some(most) => counts.iter().map(|it| BEST - BEST * it / most).collect(),
    }
}

fn by_affinity(pod: &Pod, rooms: &[&Room]) -> Vec<i64> {
    if pod.wants.preferred.is_empty() {
        return Vec::new();
    }
    let weight = |room: &&Room| -> i64 {
        let held = pod.wants.preferred.iter().filter(|(_, term)| affinity::holds(term, &room.node.fact));
        held.map(|(weight, _)| weight).sum()
    };
    let weights: Vec<i64> = rooms.iter().map(weight).collect();
    match weights.iter().max() {
        Some(most) if 0 < *most => weights.iter().map(|it| BEST * it / most).collect(),
        _ => Vec::new(),
    }
}

/// What the pod wishes of the pods around it, and what they wish of it.
fn by_wishes_about_pods(all: &Scheduler, pod: &Pod, rooms: &[&Room]) -> Vec<i64> {
    let mut sums: BTreeMap<Text, BTreeMap<Text, i64>> = BTreeMap::new();
    let mut add = |labels: &Labels, weight: i64, term: &PodTerm| {
        if let Some(place) = labels.get(&term.topology) {
            *sums.entry(term.topology.clone()).or_default().entry(place.clone()).or_default() += weight;
        }
    };
    for (labels, other) in all.rooms.attached() {
        for (weight, term) in &other.wants.rather {
            if term.matches(pod, &all.namespaces) {
                add(labels, *weight, term);
            }
        }
        // Whom another pod must be near of is welcome there. Upstream: `HardPodAffinityWeight`.
        for term in other.wants.near.iter().filter(|it| it.matches(pod, &all.namespaces)) {
            add(labels, 1, term);
        }
    }
    if !pod.wants.rather.is_empty() {
        for room in all.rooms.iter() {
            for other in room.pods.values() {
                for (weight, term) in &pod.wants.rather {
                    if term.matches(other, &all.namespaces) {
                        add(room.labels(), *weight, term);
                    }
                }
            }
        }
    }
    if sums.is_empty() {
        return Vec::new();
    }
    let sum_at = |room: &&Room| -> i64 {
        let here = |(topology, places): (&Text, &BTreeMap<Text, i64>)| {
            places.get(room.labels().get(topology)?).copied()
        };
        sums.iter().filter_map(here).sum()
    };
    between_least_and_most(rooms.iter().map(sum_at).collect())
}

/// The fewer pods of the kind are in a place already, the better. Upstream: `PodTopologySpread.Score`.
fn by_spread(all: &Scheduler, pod: &Pod, rooms: &[&Room]) -> Vec<i64> {
    let spreads: Vec<&Spread> = pod.wants.spread.iter().filter(|it| !it.is_must).collect();
    if spreads.is_empty() {
        return Vec::new();
    }
    let places = around::places(all, pod, &spreads);
    let score = |room: &&Room| -> Option<i64> {
        let mut sum = 0;
        for (spread, counts) in spreads.iter().zip(&places) {
            let place = room.labels().get(&spread.topology)?;
            let here = count(counts.get(place).copied().unwrap_or(0));
            sum += here * logarithm(counts.len()) + (spread.skew - 1) * HUNDRED;
        }
        Some(sum)
    };
    let scores: Vec<Option<i64>> = rooms.iter().map(score).collect();
    let (least, most) = (scores.iter().flatten().min(), scores.iter().flatten().max());
    let (Some(least), Some(most)) = (least.copied(), most.copied()) else { return Vec::new() };
    let even = |score: &Option<i64>| match score {
        // A node without the place's label is the last choice.
        None => 0,
        Some(_) if most == 0 => BEST,
        Some(score) => BEST * (most + least - score) / most,
    };
    scores.iter().map(even).collect()
}

const HUNDRED: i64 = 100;

/// The natural logarithm of two more than `places`, in hundredths, near enough: a pod weighs more where there are more
/// places to choose from.
fn logarithm(places: usize) -> i64 {
    let number = places.saturating_add(2);
    let whole = number.ilog2();
    let part = ((count(number) * HUNDRED) >> whole) - HUNDRED;
    (i64::from(whole) * HUNDRED + part) * 69 / 100
}

/// Spreads scores over 0 to 100.
fn between_least_and_most(mut scores: Vec<i64>) -> Vec<i64> {
    let (least, most) = (scores.iter().min().copied(), scores.iter().max().copied());
    let (Some(least), Some(most)) = (least, most) else { return scores };
    for score in &mut scores {
        *score = if most == least { 0 } else { (*score - least) * BEST / (most - least) };
    }
    scores
}

/// The more is left of cpu and memory, the better. Upstream: `LeastAllocated`.
fn left_over(pod: &Pod, room: &Room) -> i64 {
    shares(pod, room).iter().map(|share| BEST - share).sum::<i64>() / 2
}

/// The more alike cpu and memory are used, the better. Upstream: `NodeResourcesBalancedAllocation`.
fn balance(pod: &Pod, room: &Room) -> i64 {
    let [cpu, memory] = shares(pod, room);
    BEST - (cpu - memory).abs() / 2
}

/// How much of cpu and of memory is taken with the pod there, in hundredths.
fn shares(pod: &Pod, room: &Room) -> [i64; 2] {
    let (asked, asks) = (room.asked(), asks(pod));
    [0, 1].map(|at| {
        let taken = i128::from(asked[at]) + i128::from(asks[at]);
        match room.node.allocatable.get(UNSAID[at].0).copied().unwrap_or(0) {
            given if given <= 0 => BEST,
            given => (taken * i128::from(BEST) / i128::from(given)).clamp(0, 100) as i64,
        }
    })
}

fn count(it: usize) -> i64 {
    i64::try_from(it).unwrap_or(i64::MAX)
}
