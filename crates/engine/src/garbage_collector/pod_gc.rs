//! The pod garbage collector. It deletes pods whose node no longer exists, pods that are being deleted on a node that
//! is out of service, and pods that were deleted before they were bound. If there are too many terminated pods, it also
//! deletes the first of them in [`TerminatedOrder`]. Upstream: `pkg/controller/podgc`.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

use super::TrackedObject;
use crate::daemonset::why::Why;

/// The fields of a pod that pod garbage collection reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    /// Name of the pod's node; empty until the pod is bound.
    pub node: Text,
    /// Whether the pod's phase is Succeeded or Failed.
    pub terminated: bool,
    /// Whether the pod's status is Failed with the reason `Evicted`.
    pub evicted: bool,
    /// The `creationTimestamp` of the pod.
    pub created: Time,
    /// Whether the pod is being deleted with `deletionGracePeriodSeconds: 0`.
    pub has_zero_grace_period: bool,
}

/// Time for which a Node object must be missing before the pods of the node are deleted. The node may register again
/// within this time. Upstream: `quarantineTime`.
pub(super) const QUARANTINE_PERIOD: Duration = Duration::from_secs(40);

/// Maximum number of terminated pods. If there are more, the first in [`TerminatedOrder`] are deleted. Upstream:
/// `terminated-pod-gc-threshold`.
pub(super) const TERMINATED_PODS_MAX: usize = 12_500;

/// State of the pod garbage collector: the nodes, the pods by node, and the terminated pods.
#[derive(Debug)]
pub(super) struct PodGc {
    /// UIDs of the pods on each node, by node name. Pods that are not bound have an empty node name.
    by_node: BTreeMap<Text, BTreeSet<Text>>,
    /// All nodes by name. The value is whether the node is out of service: it has the taint `out-of-service` and is not
    /// ready.
    nodes: BTreeMap<Text, bool>,
    /// Nodes that have pods but no Node object, by name. The value is the end of the node's quarantine, see
    /// [`QUARANTINE_PERIOD`].
    missing_nodes: BTreeMap<Text, Time>,
    /// The UIDs of the terminated pods, in the order in which the pods are deleted.
    terminated: BTreeSet<(TerminatedOrder, Text)>,
    /// Maximum number of terminated pods. It is [`TERMINATED_PODS_MAX`] except in tests.
    pub(super) terminated_max: usize,
}

/// The order in which terminated pods are deleted: evicted pods before others, then by creation time, then by name. The
/// first value is false for an evicted pod.
type TerminatedOrder = (bool, Time, Text);

/// The decision of the pod garbage collector about one pod.
pub(super) enum PodGcDecision {
    /// The pod is not deleted.
    Keep,
    /// The pod's node does not exist. The decision must be made again at the end of the node's quarantine.
    Wait { until: Time },
    /// The pod is force-deleted for this reason.
    Delete(Why),
}

impl PodGc {
    /// Creates a pod garbage collector that keeps at most `terminated_max` terminated pods.
    pub(super) fn new(terminated_max: usize) -> Self {
        Self {
            by_node: BTreeMap::new(),
            nodes: BTreeMap::new(),
            missing_nodes: BTreeMap::new(),
            terminated: BTreeSet::new(),
            terminated_max,
        }
    }

    /// Updates the state after an object was added, changed or deleted, and adds to `keys` the UIDs of the pods to
    /// reconcile.
    pub(super) fn update(
        &mut self,
        before: Option<&TrackedObject>,
        now: Option<&TrackedObject>,
        keys: &mut BTreeSet<Text>,
    ) {
        let node =
            |it: Option<&TrackedObject>| it.and_then(|it| Some((it.key.name.clone(), it.out_of_service?)));
        let (was, is) = (node(before), node(now));
        if was != is {
            if let Some((name, _)) = &was {
                self.nodes.remove(name);
            }
            for (name, out_of_service) in is.iter().cloned() {
                self.missing_nodes.remove(&name);
                self.nodes.insert(name, out_of_service);
            }
            let names = was.iter().chain(&is).map(|(name, _)| name);
            keys.extend(names.filter_map(|it| self.by_node.get(it)).flatten().cloned());
        }
        let (was, is) = (before.and_then(|it| it.pod.as_deref()), now.and_then(|it| it.pod.as_deref()));
        if was == is {
            return;
        }
        if let (Some(object), Some(pod)) = (before, was) {
            if let Some(others) = self.by_node.get_mut(&pod.node) {
                others.remove(&object.uid);
            }
            self.terminated.remove(&(terminated_order(object, pod), object.uid.clone()));
        }
        if let (Some(object), Some(pod)) = (now, is) {
            self.by_node.entry(pod.node.clone()).or_default().insert(object.uid.clone());
            if pod.terminated {
                self.terminated.insert((terminated_order(object, pod), object.uid.clone()));
                keys.extend(self.surplus_pods().map(|(_, uid)| uid.clone()));
            }
        }
        // The quarantine of a node without pods ends.
        if let Some(pod) = was.filter(|it| self.by_node.get(&it.node).is_some_and(BTreeSet::is_empty)) {
            self.by_node.remove(&pod.node);
            self.missing_nodes.remove(&pod.node);
        }
    }

    /// Returns the terminated pods that are to be deleted because there are more than `terminated_max`.
    fn surplus_pods(&self) -> impl Iterator<Item = &(TerminatedOrder, Text)> {
        self.terminated.iter().take(self.terminated.len().saturating_sub(self.terminated_max))
    }

    /// Decides whether the pod garbage collector deletes a pod. The quarantine of a missing node starts with the first
    /// decision about one of its pods.
    ///
    /// Rule: a pod is force-deleted in four cases. Its node has been missing for 40 seconds. The pod is being deleted
    /// and was never bound. The pod is being deleted on a node that is out of service. Or the pod is terminated, and at
    /// least 12,500 other terminated pods come after it in the order of deletion. A pod that is being deleted with
    /// grace period 0 is kept. Upstream: `gcOrphaned`, `gcUnscheduledTerminating`, `gcTerminating`, `gcTerminated`.
    pub(super) fn decide(&mut self, object: &TrackedObject, pod: &Pod, now: Time) -> PodGcDecision {
        // Only its finalizers keep it: another delete would change nothing.
        if object.deleting && pod.has_zero_grace_period {
            return PodGcDecision::Keep;
        }
        let never_bound = pod.node.is_empty();
        if never_bound && object.deleting {
            return PodGcDecision::Delete(Why::NeverBound);
        }
        match self.nodes.get(&pod.node) {
            Some(true) if object.deleting => return PodGcDecision::Delete(Why::NodeOutOfService),
            None if !never_bound => {
                let until = *self.missing_nodes.entry(pod.node.clone()).or_insert(now + QUARANTINE_PERIOD);
                // A clock that was set back must not make the wait longer.
                let until = until.min(now + QUARANTINE_PERIOD);
                return if now < until {
                    PodGcDecision::Wait { until }
                } else {
                    PodGcDecision::Delete(Why::NodeDeleted)
                };
            }
            _ => {}
        }
        let is_surplus =
            |last: &(TerminatedOrder, Text)| (terminated_order(object, pod), object.uid.clone()) <= *last;
        if pod.terminated && self.surplus_pods().last().is_some_and(is_surplus) {
            return PodGcDecision::Delete(Why::TooManyTerminatedPods);
        }
        PodGcDecision::Keep
    }
}

/// Returns the sort key of a pod in the order in which terminated pods are deleted.
fn terminated_order(object: &TrackedObject, pod: &Pod) -> TerminatedOrder {
    (!pod.evicted, pod.created, object.key.name.clone())
}
