//! Scores the feasible nodes (the nodes on which a pod fits). Upstream: the score plugins.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use muster_api::labels::Labels;
use muster_api::taints::{TaintEffect, any_tolerates};
use muster_api::text::Text;

use super::node_info::{DEFAULT_REQUESTS, NodeInfo, nonzero_requests};
use super::{Pod, PodAffinityTerm, Scheduler, TopologySpreadConstraint, topology_counts};
use crate::daemonset::placement::affinity;
use crate::hash_ordered_map;

/// The maximum score that one scoring rule gives a node. Upstream: `MaxNodeScore`.
const SCORE_MAX: i64 = 100;

/// Returns the name of the node with the highest score. `fitting` are the nodes on which the pod fits. `None` if there
/// are none.
///
/// Rule: the score of a node is a weighted sum. The weights are 3 for taints, 2 for node affinity, pod affinity and
/// topology spread, and 1 for least allocated and balanced allocation. A hash of pod and node decides between equal
/// scores. Upstream: the default plugins.
pub(super) fn best_node(all: &Scheduler, pod: &Pod, fitting: &[&NodeInfo]) -> Option<Text> {
    if let [only] = fitting {
        return Some(only.name().clone());
    }
    let rules: [(i64, Vec<i64>); 4] = [
        (3, score_taints(pod, fitting)),
        (2, score_node_affinity(pod, fitting)),
        (2, score_pod_affinity(all, pod, fitting)),
        (2, score_spread(all, pod, fitting)),
    ];
    let score = |at: usize, info: &NodeInfo| -> i64 {
        let weighed: i64 = rules.iter().map(|(weight, scores)| weight * scores.get(at).unwrap_or(&0)).sum();
        weighed + score_least_allocated(pod, info) + score_balanced_allocation(pod, info)
    };
    let scored = fitting
        .iter()
        .enumerate()
        .map(|(at, info)| (score(at, info), hash_ordered_map::hash_pair(&pod.uid, info.name()), info.name()));
    scored.max().map(|(_, _, name)| name.clone())
}

/// Returns a score for each node by its untolerated `PreferNoSchedule` taints: a node with fewer such taints scores
/// higher. Returns an empty list if no node has such a taint.
fn score_taints(pod: &Pod, nodes: &[&NodeInfo]) -> Vec<i64> {
    let unwanted = |info: &&NodeInfo| {
        let taints = info.node.fact.taints.iter().filter(|it| it.effect == TaintEffect::PreferNoSchedule);
        to_i64(taints.filter(|it| !any_tolerates(&pod.requirements.tolerations, it)).count())
    };
    let counts: Vec<i64> = nodes.iter().map(unwanted).collect();
    match counts.iter().max() {
        None | Some(0) => Vec::new(),
        Some(most) => counts.iter().map(|it| SCORE_MAX - SCORE_MAX * it / most).collect(),
    }
}

/// Returns a score for each node by the sum of the weights of the preferred node affinity terms that it matches.
/// Returns an empty list if no node matches any term.
fn score_node_affinity(pod: &Pod, nodes: &[&NodeInfo]) -> Vec<i64> {
    if pod.requirements.preferred_node_affinity.is_empty() {
        return Vec::new();
    }
    let weight = |info: &&NodeInfo| -> i64 {
        let held = pod
            .requirements
            .preferred_node_affinity
            .iter()
            .filter(|(_, term)| affinity::matches_term(term, &info.node.fact));
        held.map(|(weight, _)| weight).sum()
    };
    let weights: Vec<i64> = nodes.iter().map(weight).collect();
    match weights.iter().max() {
        Some(most) if 0 < *most => weights.iter().map(|it| SCORE_MAX * it / most).collect(),
        _ => Vec::new(),
    }
}

/// Returns a score for each node by pod affinity: the preferred affinity and anti-affinity of the pod and of the
/// existing pods, and the required affinity of the existing pods. Returns an empty list if no term matches.
fn score_pod_affinity(all: &Scheduler, pod: &Pod, nodes: &[&NodeInfo]) -> Vec<i64> {
    let mut sums: BTreeMap<Text, BTreeMap<Text, i64>> = BTreeMap::new();
    let mut add = |labels: &Labels, weight: i64, term: &PodAffinityTerm| {
        if let Some(domain) = labels.get(&term.topology_key) {
            *sums.entry(term.topology_key.clone()).or_default().entry(domain.clone()).or_default() += weight;
        }
    };
    for (labels, other) in all.nodes.pods_with_affinity() {
        for (weight, term) in &other.requirements.preferred_pod_affinity {
            if term.matches(pod, &all.namespaces) {
                add(labels, *weight, term);
            }
        }
        // Required affinity of an existing pod attracts the pod. Upstream: `HardPodAffinityWeight`.
        for term in other.requirements.pod_affinity.iter().filter(|it| it.matches(pod, &all.namespaces)) {
            add(labels, 1, term);
        }
    }
    if !pod.requirements.preferred_pod_affinity.is_empty() {
        for info in all.nodes.iter() {
            for other in info.pods.values() {
                for (weight, term) in &pod.requirements.preferred_pod_affinity {
                    if term.matches(other, &all.namespaces) {
                        add(info.labels(), *weight, term);
                    }
                }
            }
        }
    }
    if sums.is_empty() {
        return Vec::new();
    }
    let sum_at = |info: &&NodeInfo| -> i64 {
        let here = |(topology_key, domains): (&Text, &BTreeMap<Text, i64>)| {
            domains.get(info.labels().get(topology_key)?).copied()
        };
        sums.iter().filter_map(here).sum()
    };
    normalize_scores(nodes.iter().map(sum_at).collect())
}

/// Returns a score for each node by the topology spread constraints with `ScheduleAnyway`: nodes with fewer matching
/// pods in their domain score higher. Returns an empty list if the pod has no such constraint, or if no node has all
/// topology keys. Upstream: `PodTopologySpread.Score`.
fn score_spread(all: &Scheduler, pod: &Pod, nodes: &[&NodeInfo]) -> Vec<i64> {
    let spreads: Vec<&TopologySpreadConstraint> =
        pod.requirements.spread_constraints.iter().filter(|it| !it.do_not_schedule).collect();
    if spreads.is_empty() {
        return Vec::new();
    }
    let domains = topology_counts::matching_pods_by_domain(all, pod, &spreads);
    let score = |info: &&NodeInfo| -> Option<i64> {
        let mut sum = 0;
        for (spread, counts) in spreads.iter().zip(&domains) {
            let domain = info.labels().get(&spread.topology_key)?;
            let here = to_i64(counts.get(domain).copied().unwrap_or(0));
            sum += here * topology_weight(counts.len()) + (spread.max_skew - 1) * HUNDREDTHS_PER_UNIT;
        }
        Some(sum)
    };
    let scores: Vec<Option<i64>> = nodes.iter().map(score).collect();
    let (least, most) = (scores.iter().flatten().min(), scores.iter().flatten().max());
    let (Some(least), Some(most)) = (least.copied(), most.copied()) else { return Vec::new() };
    let even = |score: &Option<i64>| match score {
        // A node without the topology key scores lowest.
        None => 0,
        Some(_) if most == 0 => SCORE_MAX,
        Some(score) => SCORE_MAX * (most + least - score) / most,
    };
    scores.iter().map(even).collect()
}

/// Scale of the fixed-point numbers in [`score_spread`], which have two decimals.
const HUNDREDTHS_PER_UNIT: i64 = 100;

/// Returns the weight of a topology spread constraint with this number of domains: approximately ln(domains + 2), in
/// hundredths. Upstream: `topologyNormalizingWeight`.
fn topology_weight(domains: usize) -> i64 {
    let number = domains.saturating_add(2);
    let whole = number.ilog2();
    let part = ((to_i64(number) * HUNDREDTHS_PER_UNIT) >> whole) - HUNDREDTHS_PER_UNIT;
    (i64::from(whole) * HUNDREDTHS_PER_UNIT + part) * 69 / 100
}

/// Scales the scores of all nodes linearly to the range 0..=[`SCORE_MAX`]. If all scores are equal, they become 0.
fn normalize_scores(mut scores: Vec<i64>) -> Vec<i64> {
    let (least, most) = (scores.iter().min().copied(), scores.iter().max().copied());
    let (Some(least), Some(most)) = (least, most) else { return scores };
    for score in &mut scores {
        *score = if most == least { 0 } else { (*score - least) * SCORE_MAX / (most - least) };
    }
    scores
}

/// Returns the score of a node by its free cpu and memory: a node with more free resources scores higher. Upstream:
/// `LeastAllocated`.
fn score_least_allocated(pod: &Pod, info: &NodeInfo) -> i64 {
    allocated_percent(pod, info).iter().map(|share| SCORE_MAX - share).sum::<i64>() / 2
}

/// Returns the score of a node by how balanced its allocation is: the closer the allocated percentages of cpu and
/// memory, the higher the score. Upstream: `NodeResourcesBalancedAllocation`.
fn score_balanced_allocation(pod: &Pod, info: &NodeInfo) -> i64 {
    let [cpu, memory] = allocated_percent(pod, info);
    SCORE_MAX - (cpu - memory).abs() / 2
}

/// Returns the percentages of the node's allocatable cpu and memory that would be requested if the pod ran on the node,
/// at most 100 each. A missing request counts as the default in [`DEFAULT_REQUESTS`]. A resource of which nothing is
/// allocatable counts as 100 percent.
fn allocated_percent(pod: &Pod, info: &NodeInfo) -> [i64; 2] {
    let (nonzero_requested, nonzero_requests) = (info.nonzero_requested(), nonzero_requests(pod));
    [0, 1].map(|at| {
        let requested = i128::from(nonzero_requested[at]) + i128::from(nonzero_requests[at]);
        match info.node.allocatable.get(DEFAULT_REQUESTS[at].0).copied().unwrap_or(0) {
            allocatable if allocatable <= 0 => SCORE_MAX,
            allocatable => (requested * i128::from(SCORE_MAX) / i128::from(allocatable)).clamp(0, 100) as i64,
        }
    })
}

/// Converts a count to `i64`. A count that is too large becomes `i64::MAX`.
fn to_i64(it: usize) -> i64 {
    i64::try_from(it).unwrap_or(i64::MAX)
}
