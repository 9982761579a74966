//! Checks whether a pod fits on a node. Scheduling and preemption use these checks. Upstream: the filter plugins.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::object_key::ObjectKey;
use muster_api::taints::{Taint, TaintEffect, any_tolerates};
use muster_api::text::Text;
use muster_api::well_known::TAINT_NODE_UNSCHEDULABLE;

use super::node_info::NodeInfo;
use super::topology_counts::TopologyCounts;
use super::{HostPort, Pod, Scheduler};
use crate::daemonset::placement;

/// The reason why a pod does not fit on a node: the first check that failed. The variants are in the order of the
/// checks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UnfitReason {
    /// The node is cordoned (`spec.unschedulable`).
    Unschedulable,
    /// The pod does not tolerate a `NoSchedule` or `NoExecute` taint of the node.
    UntoleratedTaint,
    /// The node does not match the pod's node selector or required node affinity.
    NodeAffinity,
    /// A host port of the pod is in use on the node.
    HostPort,
    /// The node has too little of some resources. Holds one shortage for each.
    Insufficient(Vec<Shortage>),
    /// The node has no label with the topology key of a spread constraint.
    MissingTopologyLabel,
    /// The pod would exceed the maximum skew of a topology spread constraint.
    TopologySpread,
    /// The node's topology domain does not satisfy the pod's required pod affinity.
    PodAffinity,
    /// An existing pod in the node's topology domain matches the required pod anti-affinity of the new pod.
    PodAntiAffinity,
    /// The new pod matches the required pod anti-affinity of an existing pod in the node's topology domain.
    ExistingPodAntiAffinity,
}

/// A reason why the resources of a node do not suffice for a pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Shortage {
    /// The node already has its maximum number of pods.
    Pods,
    /// The node has too little of a resource. `exceeds_allocatable` is whether the pod requests more than the node has
    /// in total.
    Resource { resource: Text, exceeds_allocatable: bool },
}

impl UnfitReason {
    /// Whether the pod could fit if other pods were removed from the node. Upstream: all reasons other than
    /// `UnschedulableAndUnresolvable`.
    pub(super) fn may_be_resolved_by_preemption(&self) -> bool {
        match self {
            Self::Unschedulable
            | Self::UntoleratedTaint
            | Self::NodeAffinity
            | Self::MissingTopologyLabel
            | Self::PodAffinity => false,
            Self::Insufficient(shortages) => {
                !shortages.iter().any(|it| matches!(it, Shortage::Resource { exceeds_allocatable: true, .. }))
            }
            Self::HostPort | Self::TopologySpread | Self::PodAntiAffinity | Self::ExistingPodAntiAffinity => {
                true
            }
        }
    }

    /// Whether the reason may depend on pods on other nodes, as for pod affinity and topology spread.
    pub(super) fn depends_on_pods_elsewhere(&self) -> bool {
        matches!(
            self,
            Self::MissingTopologyLabel
                | Self::TopologySpread
                | Self::PodAffinity
                | Self::PodAntiAffinity
                | Self::ExistingPodAntiAffinity
        )
    }

    /// Returns the messages for this reason: one message for each shortage, or exactly one for any other reason. They
    /// have upstream's wording, because tools parse them.
    pub(super) fn messages(&self) -> Vec<String> {
        let reason = match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::UntoleratedTaint => "node(s) had untolerated taint(s)",
            Self::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            Self::HostPort => "node(s) didn't have free ports for the requested pod ports",
            Self::Insufficient(shortages) => return shortages.iter().map(Shortage::message).collect(),
            Self::MissingTopologyLabel => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            Self::TopologySpread => "node(s) didn't match pod topology spread constraints",
            Self::PodAffinity => "node(s) didn't match pod affinity rules",
            Self::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            Self::ExistingPodAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules",
        };
        [reason.into()].into()
    }
}

impl Shortage {
    /// Returns the message for the shortage, with upstream's wording.
    fn message(&self) -> String {
        match self {
            Self::Pods => "Too many pods".into(),
            Self::Resource { resource, .. } => format!("Insufficient {resource}"),
        }
    }
}

/// Checks whether a pod fits on a node. The error is the reason why it does not fit. Pods in `without` count as removed
/// from the node.
///
/// Rule: a pod fits on a node if the pod tolerates the node's taints and cordon, the node matches the pod's node
/// selector and node affinity, the pod's host ports and resources are free on the node, and pod affinity, pod
/// anti-affinity and spread constraints are satisfied.
pub(super) fn check_fit(
    all: &Scheduler,
    pod: &Pod,
    topology_counts: &TopologyCounts,
    info: &NodeInfo,
    without: &BTreeSet<ObjectKey>,
) -> Result<(), UnfitReason> {
    check_node_fit(all, pod, info, without)?;
    topology_counts.check(all, pod, info, without)
}

/// Checks whether a pod fits on a node, like [`check_fit`], but without pod affinity, pod anti-affinity and topology
/// spread, which depend on pods on other nodes. The error is the reason why it does not fit. Pods in `without` count as
/// removed from the node.
pub(super) fn check_node_fit(
    all: &Scheduler,
    pod: &Pod,
    info: &NodeInfo,
    without: &BTreeSet<ObjectKey>,
) -> Result<(), UnfitReason> {
    check_taints(pod, info)?;
    placement::check_selector_and_affinity(
        &pod.requirements.node_selector,
        &pod.requirements.node_affinity,
        &info.node.fact,
    )
    .map_err(|_| UnfitReason::NodeAffinity)?;
    check_ports(all, pod, info, without)?;
    check_resources(all, pod, info, without)
}

/// Checks whether a pod tolerates the taints and the cordon of a node. The error is the reason why the pod does not
/// fit.
///
/// Rule: a pod does not fit on a node with an untolerated `NoSchedule` or `NoExecute` taint. It does not fit on a
/// cordoned node either, unless it tolerates the taint `unschedulable`.
fn check_taints(pod: &Pod, info: &NodeInfo) -> Result<(), UnfitReason> {
    let cordon =
        || Taint { key: TAINT_NODE_UNSCHEDULABLE.into(), value: "".into(), effect: TaintEffect::NoSchedule };
    if info.node.unschedulable && !any_tolerates(&pod.requirements.tolerations, &cordon()) {
        return Err(UnfitReason::Unschedulable);
    }
    if tolerates_taints(pod, info) { Ok(()) } else { Err(UnfitReason::UntoleratedTaint) }
}

/// Whether the pod tolerates all `NoSchedule` and `NoExecute` taints of the node.
pub(super) fn tolerates_taints(pod: &Pod, info: &NodeInfo) -> bool {
    let keeps_away = |it: &&Taint| matches!(it.effect, TaintEffect::NoSchedule | TaintEffect::NoExecute);
    let mut taints = info.node.fact.taints.iter().filter(keeps_away);
    taints.all(|it| any_tolerates(&pod.requirements.tolerations, it))
}

/// Returns the other pods that are nominated for a node and have at least the priority of `pod`.
///
/// Rule: when a pod is scheduled, pods of the same or higher priority that are nominated for a node count as running on
/// that node.
pub(super) fn nominated_pods<'a>(all: &'a Scheduler, pod: &Pod, info: &NodeInfo) -> Vec<&'a Arc<Pod>> {
    let nominated_pods = all.queue.pods_nominated_for(info.name());
    nominated_pods.filter(|it| it.key != pod.key && pod.priority <= it.priority).collect()
}

/// Checks whether the host ports of a pod are free on a node. The error is the reason why the pod does not fit. Pods in
/// `without` count as removed from the node.
///
/// Rule: the host ports of two pods on one node must not conflict (see [`HostPort::conflicts_with`]). Nominated pods
/// count too.
fn check_ports(
    all: &Scheduler,
    pod: &Pod,
    info: &NodeInfo,
    without: &BTreeSet<ObjectKey>,
) -> Result<(), UnfitReason> {
    if pod.requirements.ports.is_empty() {
        return Ok(());
    }
    let nominated_pods = nominated_pods(all, pod, info);
    let present = info.pods.values().filter(|it| !without.contains(&it.key));
    let mut requested = present.chain(nominated_pods).flat_map(|it| &it.requirements.ports);
    let conflicts_with = |port: &HostPort| pod.requirements.ports.iter().any(|it| it.conflicts_with(port));
    if requested.any(conflicts_with) { Err(UnfitReason::HostPort) } else { Ok(()) }
}

/// Checks whether a node has enough free resources for a pod. The error is the reason why the pod does not fit. Pods in
/// `without` count as removed from the node.
///
/// Rule: the requests of all pods on a node must not exceed the node's allocatable resources, and the number of pods
/// must not exceed the node's allocatable `pods`. Nominated pods count too.
fn check_resources(
    all: &Scheduler,
    pod: &Pod,
    info: &NodeInfo,
    without: &BTreeSet<ObjectKey>,
) -> Result<(), UnfitReason> {
    let allocatable = |name: &str| info.node.allocatable.get(name).copied().unwrap_or(0);
    let nominated_pods = nominated_pods(all, pod, info);
    let mut shortages = Vec::new();
    let count = (info.pods.len() + nominated_pods.len()).saturating_sub(without.len()).saturating_add(1);
    if allocatable("pods") < i64::try_from(count).unwrap_or(i64::MAX) {
        shortages.push(Shortage::Pods);
    }
    for (name, request) in &pod.requirements.requests {
        let sum = |pods: &mut dyn Iterator<Item = &Arc<Pod>>| {
            pods.filter_map(|it| it.requirements.request(name)).fold(0_i64, i64::saturating_add)
        };
        let gone = sum(&mut without.iter().filter_map(|it| info.pods.get(it)));
        let requested = info
            .requested(name)
            .saturating_sub(gone)
            .saturating_add(sum(&mut nominated_pods.iter().copied()));
        if allocatable(name) < requested.saturating_add(*request) {
            shortages.push(Shortage::Resource {
                resource: name.clone(),
                exceeds_allocatable: allocatable(name) < *request,
            });
        }
    }
    if shortages.is_empty() { Ok(()) } else { Err(UnfitReason::Insufficient(shortages)) }
}
