//! The nodes, the pods on each node, and the requests of these pods. Upstream: `NodeInfo` in the scheduler's cache.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use muster_api::labels::Labels;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;

use super::{Node, Pod};

/// The cpu request (in millicores) and memory request (in bytes) that scoring assumes for a pod without such a request.
/// Otherwise, all pods without requests could be bound to one node. Upstream: `DefaultMilliCPURequest`,
/// `DefaultMemoryRequest`.
pub(super) const DEFAULT_REQUESTS: [(&str, i64); 2] = [("cpu", 100), ("memory", 200 * 1024 * 1024)];

/// All nodes with their pods. Upstream: the scheduler's cache.
#[derive(Debug, Default)]
pub(super) struct NodeInfos {
    nodes: BTreeMap<Text, NodeInfo>,
    /// Pods on nodes whose Node object does not exist (yet), by node name.
    on_unknown_nodes: BTreeMap<Text, BTreeMap<ObjectKey, Arc<Pod>>>,
    /// The name of the node of each assigned pod.
    node_by_pod: BTreeMap<ObjectKey, Text>,
    /// Pods with required pod anti-affinity.
    pods_with_anti_affinity: BTreeMap<ObjectKey, Arc<Pod>>,
    /// Pods with required pod affinity, or with preferred affinity or anti-affinity.
    pods_with_affinity: BTreeMap<ObjectKey, Arc<Pod>>,
}

/// A node, the pods on it, and the sums of their requests.
#[derive(Debug)]
pub(super) struct NodeInfo {
    pub(super) node: Arc<Node>,
    pub(super) pods: BTreeMap<ObjectKey, Arc<Pod>>,
    /// Sum of the pods' requests for each resource.
    requested: BTreeMap<Text, i64>,
    /// Sums of the pods' [`nonzero_requests`], in the order of [`DEFAULT_REQUESTS`].
    nonzero_requested: [i64; 2],
}

impl NodeInfos {
    /// Returns the number of nodes.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns all nodes in the order of their names.
    pub(super) fn iter(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.values()
    }

    /// Returns all nodes in the order of their names, starting after `name` and wrapping around.
    pub(super) fn iter_wrapping_after<'a>(&'a self, name: &Text) -> impl Iterator<Item = &'a NodeInfo> {
        use core::ops::Bound::{Excluded, Unbounded};
        let after = self.nodes.range((Excluded(name.clone()), Unbounded));
        after.chain(self.nodes.range(..=name.clone())).map(|(_, info)| info)
    }

    /// Returns the node with this name. `None` if its Node object does not exist.
    pub(super) fn get(&self, node: &Text) -> Option<&NodeInfo> {
        self.nodes.get(node)
    }

    /// Returns the names of all nodes.
    pub(super) fn names(&self) -> BTreeSet<Text> {
        self.nodes.keys().cloned().collect()
    }

    /// Returns the name of the node that the pod with this key is assigned to. `None` if the pod is assigned to no
    /// node.
    pub(super) fn node_of(&self, key: &ObjectKey) -> Option<&Text> {
        self.node_by_pod.get(key)
    }

    /// Returns the keys of all pods that are assigned to a node.
    pub(super) fn assigned_pods(&self) -> impl Iterator<Item = &ObjectKey> {
        self.node_by_pod.keys()
    }

    /// Returns the pod with this key. `None` if it is not assigned to a node.
    pub(super) fn pod(&self, key: &ObjectKey) -> Option<&Arc<Pod>> {
        let node = self.node_by_pod.get(key)?;
        let here = self.nodes.get(node).and_then(|it| it.pods.get(key));
        here.or_else(|| self.on_unknown_nodes.get(node)?.get(key))
    }

    /// Returns the pods with required pod anti-affinity, each with the labels of its node.
    pub(super) fn pods_with_anti_affinity(&self) -> impl Iterator<Item = (&Labels, &Arc<Pod>)> {
        self.with_node_labels(&self.pods_with_anti_affinity)
    }

    /// Returns the pods with required pod affinity, or with preferred pod affinity or anti-affinity, each with the
    /// labels of its node.
    pub(super) fn pods_with_affinity(&self) -> impl Iterator<Item = (&Labels, &Arc<Pod>)> {
        self.with_node_labels(&self.pods_with_affinity)
    }

    /// Pairs each pod with the labels of its node. A pod is left out if the Node object of its node does not exist.
    fn with_node_labels<'a>(
        &'a self,
        pods: &'a BTreeMap<ObjectKey, Arc<Pod>>,
    ) -> impl Iterator<Item = (&'a Labels, &'a Arc<Pod>)> {
        pods.iter().filter_map(|(key, pod)| {
            let info = self.nodes.get(self.node_by_pod.get(key)?)?;
            Some((&info.node.fact.labels, pod))
        })
    }

    /// Assigns a pod to a node, and removes the pod from any other node.
    pub(super) fn assign(&mut self, pod: Arc<Pod>, node: Text) {
        self.unassign(&pod.key);
        if !pod.requirements.pod_anti_affinity.is_empty() {
            self.pods_with_anti_affinity.insert(pod.key.clone(), pod.clone());
        }
        if !pod.requirements.pod_affinity.is_empty() || !pod.requirements.preferred_pod_affinity.is_empty() {
            self.pods_with_affinity.insert(pod.key.clone(), pod.clone());
        }
        self.node_by_pod.insert(pod.key.clone(), node.clone());
        match self.nodes.get_mut(&node) {
            Some(info) => info.add_pod(pod),
            None => drop(self.on_unknown_nodes.entry(node).or_default().insert(pod.key.clone(), pod)),
        }
    }

    /// Removes a pod from its node. Returns the name of that node, or `None` if the pod was not assigned.
    pub(super) fn unassign(&mut self, key: &ObjectKey) -> Option<Text> {
        let node = self.node_by_pod.remove(key)?;
        self.pods_with_anti_affinity.remove(key);
        self.pods_with_affinity.remove(key);
        if let Some(info) = self.nodes.get_mut(&node) {
            info.remove_pod(key);
        } else if let Some(pods) = self.on_unknown_nodes.get_mut(&node) {
            pods.remove(key);
            if pods.is_empty() {
                self.on_unknown_nodes.remove(&node);
            }
        }
        Some(node)
    }

    /// Adds or updates a node. Returns whether the node is new, or a field that scheduling depends on has changed.
    pub(super) fn put_node(&mut self, node: Arc<Node>) -> bool {
        let name = node.fact.name.clone();
        if let Some(info) = self.nodes.get_mut(&name) {
            let is_same = info.node.unschedulable == node.unschedulable
                && info.node.allocatable == node.allocatable
                && info.node.fact.labels == node.fact.labels
                && info.node.fact.taints == node.fact.taints;
            info.node = node;
            return !is_same;
        }
        let mut info =
            NodeInfo { node, pods: BTreeMap::new(), requested: BTreeMap::new(), nonzero_requested: [0; 2] };
        self.on_unknown_nodes.remove(&name).into_iter().flatten().for_each(|(_, pod)| info.add_pod(pod));
        self.nodes.insert(name, info);
        true
    }

    /// Removes a node. Its pods stay assigned to the node's name. Returns whether the node existed.
    pub(super) fn remove_node(&mut self, name: &Text) -> bool {
        let Some(info) = self.nodes.remove(name) else { return false };
        if !info.pods.is_empty() {
            self.on_unknown_nodes.insert(name.clone(), info.pods);
        }
        true
    }
}

impl NodeInfo {
    /// Returns the labels of the node.
    pub(super) fn labels(&self) -> &Labels {
        &self.node.fact.labels
    }

    /// Returns the name of the node.
    pub(super) fn name(&self) -> &Text {
        &self.node.fact.name
    }

    /// Returns the sum of the requests of all pods on the node for a resource.
    pub(super) fn requested(&self, resource: &str) -> i64 {
        self.requested.get(resource).copied().unwrap_or(0)
    }

    /// Returns the sums of the cpu and memory requests of all pods on the node, in the order of [`DEFAULT_REQUESTS`]. A
    /// pod without a request counts with the default. Upstream: `NonZeroRequested`.
    pub(super) fn nonzero_requested(&self) -> [i64; 2] {
        self.nonzero_requested
    }

    /// Adds a pod to the node, and its requests to the sums.
    fn add_pod(&mut self, pod: Arc<Pod>) {
        for (name, amount) in &pod.requirements.requests {
            let sum = self.requested.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        for (sum, amount) in self.nonzero_requested.iter_mut().zip(nonzero_requests(&pod)) {
            *sum = sum.saturating_add(amount);
        }
        self.pods.insert(pod.key.clone(), pod);
    }

    /// Removes a pod from the node, and its requests from the sums.
    fn remove_pod(&mut self, key: &ObjectKey) {
        let Some(pod) = self.pods.remove(key) else { return };
        for (name, amount) in &pod.requirements.requests {
            let sum = self.requested.entry(name.clone()).or_default();
            *sum = sum.saturating_sub(*amount);
            if *sum == 0 {
                self.requested.remove(name);
            }
        }
        for (sum, amount) in self.nonzero_requested.iter_mut().zip(nonzero_requests(&pod)) {
            *sum = sum.saturating_sub(amount);
        }
    }
}

/// Returns a pod's cpu and memory requests, in the order of [`DEFAULT_REQUESTS`]. A missing request counts as the
/// default.
pub(super) fn nonzero_requests(pod: &Pod) -> [i64; 2] {
    DEFAULT_REQUESTS.map(|(name, default)| pod.requirements.request(name).unwrap_or(default))
}
