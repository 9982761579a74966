//! Checks pod affinity, pod anti-affinity and topology spread.
//!
//! A topology domain is the set of nodes with the same value of the topology key.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::labels::Labels;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;

use super::filter::{UnfitReason, nominated_pods, tolerates_taints};
use super::node_info::NodeInfo;
use super::{Pod, PodAffinityTerm, Scheduler, TopologySpreadConstraint};
use crate::daemonset::placement;

/// Counts for each topology domain, computed once for one pod to schedule: the existing pods that match its affinity
/// terms and spread constraints, and the anti-affinity terms of existing pods that match it. Upstream: `PreFilter` of
/// `InterPodAffinity` and `PodTopologySpread`.
#[derive(Debug, Default)]
pub(super) struct TopologyCounts {
    /// For each pod affinity term, the number of pods that match all pod affinity terms, by domain of the term's
    /// topology key.
    pod_affinity: Vec<BTreeMap<Text, usize>>,
    /// For each pod anti-affinity term, the number of pods that match the term, by domain of the term's topology key.
    pod_anti_affinity: Vec<BTreeMap<Text, usize>>,
    /// Number of required anti-affinity terms of existing pods that match this pod, by topology key and domain.
    existing_anti_affinity: BTreeMap<Text, BTreeMap<Text, usize>>,
    /// For each spread constraint with `DoNotSchedule`, the number of pods that the constraint counts, by domain.
    spread: Vec<BTreeMap<Text, usize>>,
}

impl TopologyCounts {
    /// Computes the counts for `pod`. `all` is the scheduler with all nodes and pods.
    pub(super) fn for_pod(all: &Scheduler, pod: &Pod) -> Self {
        let mut counts = Self::default();
        for (labels, other) in all.nodes.pods_with_anti_affinity() {
            for term in
                other.requirements.pod_anti_affinity.iter().filter(|it| it.matches(pod, &all.namespaces))
            {
                if let Some(domain) = labels.get(&term.topology_key) {
                    let domains = counts.existing_anti_affinity.entry(term.topology_key.clone()).or_default();
                    *domains.entry(domain.clone()).or_default() += 1;
                }
            }
        }
        let requirements = &pod.requirements;
        if !requirements.pod_affinity.is_empty() || !requirements.pod_anti_affinity.is_empty() {
            counts.count_matching_pods(all, pod);
        }
        let must: Vec<&TopologySpreadConstraint> =
            requirements.spread_constraints.iter().filter(|it| it.do_not_schedule).collect();
        if !must.is_empty() {
            counts.spread = matching_pods_by_domain(all, pod, &must);
        }
        counts
    }

    /// Counts the pods that match the required pod affinity and anti-affinity terms of the pod.
    fn count_matching_pods(&mut self, all: &Scheduler, pod: &Pod) {
        let requirements = &pod.requirements;
        self.pod_affinity.resize_with(requirements.pod_affinity.len(), BTreeMap::new);
        self.pod_anti_affinity.resize_with(requirements.pod_anti_affinity.len(), BTreeMap::new);
        let add = |counts: &mut BTreeMap<Text, usize>, labels: &Labels, term: &PodAffinityTerm| {
            if let Some(domain) = labels.get(&term.topology_key) {
                *counts.entry(domain.clone()).or_default() += 1;
            }
        };
        for info in all.nodes.iter() {
            for other in info.pods.values() {
                if matches_affinity(all, pod, other) {
                    for (term, counts) in requirements.pod_affinity.iter().zip(&mut self.pod_affinity) {
                        add(counts, info.labels(), term);
                    }
                }
                for (term, counts) in requirements.pod_anti_affinity.iter().zip(&mut self.pod_anti_affinity) {
                    if term.matches(other, &all.namespaces) {
                        add(counts, info.labels(), term);
                    }
                }
            }
        }
    }

    /// Checks whether a pod may run on a node according to its spread constraints and to pod affinity and
    /// anti-affinity. The error is the reason why the pod does not fit. Pods in `without` count as removed from the
    /// node.
    pub(super) fn check(
        &self,
        all: &Scheduler,
        pod: &Pod,
        info: &NodeInfo,
        without: &BTreeSet<ObjectKey>,
    ) -> Result<(), UnfitReason> {
        let gone: Vec<&Arc<Pod>> = without.iter().filter_map(|it| info.pods.get(it)).collect();
        self.check_spread(pod, info, &gone)?;
        self.check_affinity(all, pod, info, &gone)?;
        self.check_anti_affinity(all, pod, info, &gone)
    }

    /// Checks the topology spread constraints with `DoNotSchedule`. The error is the reason why the pod does not fit.
    /// `gone` are the pods that count as removed from the node.
    ///
    /// Rule: with the new pod, the node's domain may have at most `maxSkew` matching pods more than the domain with the
    /// fewest matching pods. If there are fewer domains than `minDomains`, the smallest number of matching pods counts
    /// as zero. A pod does not fit on a node without the topology key.
    fn check_spread(&self, pod: &Pod, info: &NodeInfo, gone: &[&Arc<Pod>]) -> Result<(), UnfitReason> {
        let must = pod.requirements.spread_constraints.iter().filter(|it| it.do_not_schedule);
        for (spread, counts) in must.zip(&self.spread) {
            let Some(domain) = info.labels().get(&spread.topology_key) else {
                return Err(UnfitReason::MissingTopologyLabel);
            };
            let left = gone.iter().filter(|it| spread.counts_pod(pod, it)).count();
            let here = counts.get(domain).map(|it| it.saturating_sub(left));
            let others = counts.iter().filter(|it| it.0 != domain).map(|it| *it.1);
            let fewest = others.chain(here).min().filter(|_| spread.min_domains <= counts.len()).unwrap_or(0);
            let with_it = here.unwrap_or(0) + usize::from(spread.selector.matches(&pod.labels));
            if spread.max_skew < with_it as i64 - fewest as i64 {
                return Err(UnfitReason::TopologySpread);
            }
        }
        Ok(())
    }

    /// Checks the required pod affinity. The error is the reason why the pod does not fit. `gone` are the pods that
    /// count as removed from the node.
    ///
    /// Rule: for each term of pod affinity, a pod that matches all terms must be in the node's domain. If no existing
    /// pod matches and the new pod matches its own terms, the new pod fits on any node with the topology keys.
    fn check_affinity(
        &self,
        all: &Scheduler,
        pod: &Pod,
        info: &NodeInfo,
        gone: &[&Arc<Pod>],
    ) -> Result<(), UnfitReason> {
        let requirements = &pod.requirements;
        let left = gone.iter().filter(|it| matches_affinity(all, pod, it)).count();
        let mut is_satisfied = true;
        for (term, counts) in requirements.pod_affinity.iter().zip(&self.pod_affinity) {
            let Some(domain) = info.labels().get(&term.topology_key) else {
                return Err(UnfitReason::PodAffinity);
            };
            is_satisfied &= left < counts.get(domain).copied().unwrap_or(0);
        }
        let is_first = || {
            let none = self.pod_affinity.iter().all(|it| it.values().sum::<usize>() <= left);
            none && requirements.pod_affinity.iter().all(|it| it.matches(pod, &all.namespaces))
        };
        if is_satisfied || is_first() { Ok(()) } else { Err(UnfitReason::PodAffinity) }
    }

    /// Checks the required pod anti-affinity in both directions. The error is the reason why the pod does not fit.
    /// `gone` are the pods that count as removed from the node.
    ///
    /// Rule: no pod in the node's domain may match the anti-affinity of the new pod, and the new pod may not match the
    /// anti-affinity of any pod in the node's domain. Pods that are nominated for the node count too.
    fn check_anti_affinity(
        &self,
        all: &Scheduler,
        pod: &Pod,
        info: &NodeInfo,
        gone: &[&Arc<Pod>],
    ) -> Result<(), UnfitReason> {
        let labels = info.labels();
        let nominated_pods = nominated_pods(all, pod, info);
        for (term, counts) in pod.requirements.pod_anti_affinity.iter().zip(&self.pod_anti_affinity) {
            let Some(domain) = labels.get(&term.topology_key) else { continue };
            let matching =
                |pods: &[&Arc<Pod>]| pods.iter().filter(|it| term.matches(it, &all.namespaces)).count();
            if matching(gone) < counts.get(domain).copied().unwrap_or(0) + matching(&nominated_pods) {
                return Err(UnfitReason::PodAntiAffinity);
            }
        }
        let rejecting = |other: &Pod, topology_key: &Text| {
            let terms =
                other.requirements.pod_anti_affinity.iter().filter(|it| it.topology_key == *topology_key);
            terms.filter(|it| it.matches(pod, &all.namespaces)).count()
        };
        for (topology_key, domains) in &self.existing_anti_affinity {
            let count = labels.get(topology_key).and_then(|domain| domains.get(domain)).copied().unwrap_or(0);
            if 0 < count && gone.iter().map(|it| rejecting(it, topology_key)).sum::<usize>() < count {
                return Err(UnfitReason::ExistingPodAntiAffinity);
            }
        }
        let rejects = |other: &&Arc<Pod>| {
            let mut terms = other
                .requirements
                .pod_anti_affinity
                .iter()
                .filter(|it| labels.get(&it.topology_key).is_some());
            terms.any(|it| it.matches(pod, &all.namespaces))
        };
        if nominated_pods.iter().any(rejects) { Err(UnfitReason::ExistingPodAntiAffinity) } else { Ok(()) }
    }
}

/// Returns, for each constraint of `spreads`, the number of pods that the constraint counts in each topology domain. A
/// domain without such pods has the number zero. Nodes that lack the topology key of any of the constraints are left
/// out. Each constraint also leaves out the nodes that its `nodeAffinityPolicy` or `nodeTaintsPolicy` excludes.
pub(super) fn matching_pods_by_domain(
    all: &Scheduler,
    pod: &Pod,
    spreads: &[&TopologySpreadConstraint],
) -> Vec<BTreeMap<Text, usize>> {
    let mut domains: Vec<BTreeMap<Text, usize>> = spreads.iter().map(|_| BTreeMap::new()).collect();
    for info in all.nodes.iter() {
        let labels = info.labels();
        if !spreads.iter().all(|it| labels.get(&it.topology_key).is_some()) {
            continue;
        }
        for (spread, counts) in spreads.iter().zip(&mut domains) {
            if let Some(domain) = labels.get(&spread.topology_key).filter(|_| spread.includes_node(pod, info))
            {
                let count = info.pods.values().filter(|it| spread.counts_pod(pod, it)).count();
                *counts.entry(domain.clone()).or_default() += count;
            }
        }
    }
    domains
}

/// Whether `other` matches all required pod affinity terms of `pod`. False if `pod` has none.
fn matches_affinity(all: &Scheduler, pod: &Pod, other: &Pod) -> bool {
    let pod_affinity = &pod.requirements.pod_affinity;
    !pod_affinity.is_empty() && pod_affinity.iter().all(|it| it.matches(other, &all.namespaces))
}

impl TopologySpreadConstraint {
    /// Whether the constraint counts the pods on this node (`nodeAffinityPolicy`, `nodeTaintsPolicy`).
    fn includes_node(&self, pod: &Pod, info: &NodeInfo) -> bool {
        let requirements = &pod.requirements;
        let is_wanted = || {
            placement::check_selector_and_affinity(
                &requirements.node_selector,
                &requirements.node_affinity,
                &info.node.fact,
            )
            .is_ok()
        };
        (!self.honors_node_affinity || is_wanted())
            && (!self.honors_node_taints || tolerates_taints(pod, info))
    }

    /// Whether the constraint of `pod` counts the pod `other`.
    ///
    /// Rule: a constraint counts pods of the same namespace that match its selector and are not being deleted. An empty
    /// selector counts no pods, as upstream.
    pub(super) fn counts_pod(&self, pod: &Pod, other: &Pod) -> bool {
        !self.selector.is_empty()
            && !other.deleting
            && other.key.namespace == pod.key.namespace
            && self.selector.matches(&other.labels)
    }
}

impl PodAffinityTerm {
    /// Whether the term selects the pod. `namespaces` are the labels of all namespaces, by name.
    pub(super) fn matches(&self, pod: &Pod, namespaces: &BTreeMap<Text, Labels>) -> bool {
        let is_in_namespace = || {
            let labels = namespaces.get(&pod.key.namespace).cloned().unwrap_or_default();
            self.namespace_selector.matches(&labels)
        };
        (self.namespaces.contains(&pod.key.namespace) || is_in_namespace())
            && self.selector.matches(&pod.labels)
    }
}
