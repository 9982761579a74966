//! What is on every node, and what is left of it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use muster_api::labels::Labels;
use muster_api::meta::ObjectKey;
use muster_api::text::Text;

use super::{Node, Pod};

/// What a pod that asks for nothing is taken to need, so that such pods do not all end on one node.
/// Upstream: `DefaultMilliCPURequest`, `DefaultMemoryRequest`.
pub(super) const UNSAID: [(&str, i64); 2] = [("cpu", 100), ("memory", 200 * 1024 * 1024)];

#[derive(Debug, Default)]
pub(super) struct Rooms {
    rooms: BTreeMap<Text, Room>,
    /// Pods on nodes that are not known (yet).
    elsewhere: BTreeMap<Text, BTreeMap<ObjectKey, Arc<Pod>>>,
    /// Where each pod is.
    places: BTreeMap<ObjectKey, Text>,
    /// Pods that must not have some others around them.
    apart: BTreeMap<ObjectKey, Arc<Pod>>,
    /// Pods that must or would rather have some others around them, or not.
    attached: BTreeMap<ObjectKey, Arc<Pod>>,
}

/// A node and what is taken of it.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) node: Arc<Node>,
    pub(super) pods: BTreeMap<ObjectKey, Arc<Pod>>,
    taken: BTreeMap<Text, i64>,
    /// The sums of [`Rooms::asked`], in the order of [`UNSAID`].
    asked: [i64; 2],
}

impl Rooms {
    pub(super) fn len(&self) -> usize {
        self.rooms.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Room> {
        self.rooms.values()
    }

    /// All nodes, those first whose names come after this one.
    pub(super) fn iter_after<'a>(&'a self, name: &Text) -> impl Iterator<Item = &'a Room> {
        use core::ops::Bound::{Excluded, Unbounded};
        let after = self.rooms.range((Excluded(name.clone()), Unbounded));
        after.chain(self.rooms.range(..=name.clone())).map(|(_, room)| room)
    }

    pub(super) fn get(&self, node: &Text) -> Option<&Room> {
        self.rooms.get(node)
    }

    pub(super) fn names(&self) -> BTreeSet<Text> {
        self.rooms.keys().cloned().collect()
    }

    /// Where a pod is.
    pub(super) fn place(&self, key: &ObjectKey) -> Option<&Text> {
        self.places.get(key)
    }

    pub(super) fn placed(&self) -> impl Iterator<Item = &ObjectKey> {
        self.places.keys()
    }

    pub(super) fn pod(&self, key: &ObjectKey) -> Option<&Arc<Pod>> {
        let node = self.places.get(key)?;
        let here = self.rooms.get(node).and_then(|it| it.pods.get(key));
        here.or_else(|| self.elsewhere.get(node)?.get(key))
    }

    /// Pods that must not have some others around them, with the labels of their nodes.
    pub(super) fn apart(&self) -> impl Iterator<Item = (&Labels, &Arc<Pod>)> {
        self.with_labels(&self.apart)
    }

    /// Pods with a wish about others, or a need of them, with the labels of their nodes.
    pub(super) fn attached(&self) -> impl Iterator<Item = (&Labels, &Arc<Pod>)> {
        self.with_labels(&self.attached)
    }

    fn with_labels<'a>(
        &'a self,
        pods: &'a BTreeMap<ObjectKey, Arc<Pod>>,
    ) -> impl Iterator<Item = (&'a Labels, &'a Arc<Pod>)> {
        pods.iter().filter_map(|(key, pod)| {
            let room = self.rooms.get(self.places.get(key)?)?;
            Some((&room.node.fact.labels, pod))
        })
    }

    /// The pod takes room on the node from now on, and nowhere else.
    pub(super) fn enter(&mut self, pod: Arc<Pod>, node: Text) {
        self.leave(&pod.key);
        if !pod.wants.apart.is_empty() {
            self.apart.insert(pod.key.clone(), pod.clone());
        }
        if !pod.wants.near.is_empty() || !pod.wants.rather.is_empty() {
            self.attached.insert(pod.key.clone(), pod.clone());
        }
        self.places.insert(pod.key.clone(), node.clone());
        match self.rooms.get_mut(&node) {
            Some(room) => room.put(pod),
            None => drop(self.elsewhere.entry(node).or_default().insert(pod.key.clone(), pod)),
        }
    }

    /// The pod takes no room any more. Gives the node that it left.
    pub(super) fn leave(&mut self, key: &ObjectKey) -> Option<Text> {
        let node = self.places.remove(key)?;
        self.apart.remove(key);
        self.attached.remove(key);
        if let Some(room) = self.rooms.get_mut(&node) {
            room.take(key);
        } else if let Some(pods) = self.elsewhere.get_mut(&node) {
            pods.remove(key);
            if pods.is_empty() {
                self.elsewhere.remove(&node);
            }
        }
        Some(node)
    }

    /// Whether anything about the node is new that a pod may ask for.
    pub(super) fn put_node(&mut self, node: Arc<Node>) -> bool {
        let name = node.fact.name.clone();
        if let Some(room) = self.rooms.get_mut(&name) {
            let is_same = room.node.unschedulable == node.unschedulable
                && room.node.allocatable == node.allocatable
                && room.node.fact.labels == node.fact.labels
                && room.node.fact.taints == node.fact.taints;
            room.node = node;
            return !is_same;
        }
        let mut room = Room { node, pods: BTreeMap::new(), taken: BTreeMap::new(), asked: [0; 2] };
        self.elsewhere.remove(&name).into_iter().flatten().for_each(|(_, pod)| room.put(pod));
        self.rooms.insert(name, room);
        true
    }

    /// Its pods stay where they are, on a node that nobody knows.
    pub(super) fn remove_node(&mut self, name: &Text) -> bool {
        let Some(room) = self.rooms.remove(name) else { return false };
        if !room.pods.is_empty() {
            self.elsewhere.insert(name.clone(), room.pods);
        }
        true
    }
}

impl Room {
    pub(super) fn labels(&self) -> &Labels {
        &self.node.fact.labels
    }

    pub(super) fn name(&self) -> &Text {
        &self.node.fact.name
    }

    /// What all pods on the node ask for of a resource.
    pub(super) fn taken(&self, resource: &str) -> i64 {
        self.taken.get(resource).copied().unwrap_or(0)
    }

    /// The same of cpu and of memory, with something for those that say nothing.
    pub(super) fn asked(&self) -> [i64; 2] {
        self.asked
    }

    fn put(&mut self, pod: Arc<Pod>) {
        for (name, amount) in &pod.wants.amounts {
            let sum = self.taken.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        for (sum, amount) in self.asked.iter_mut().zip(asks(&pod)) {
            *sum = sum.saturating_add(amount);
        }
        self.pods.insert(pod.key.clone(), pod);
    }

    fn take(&mut self, key: &ObjectKey) {
        let Some(pod) = self.pods.remove(key) else { return };
        for (name, amount) in &pod.wants.amounts {
            let sum = self.taken.entry(name.clone()).or_default();
            *sum = sum.saturating_sub(*amount);
            if *sum == 0 {
                self.taken.remove(name);
            }
        }
        for (sum, amount) in self.asked.iter_mut().zip(asks(&pod)) {
            *sum = sum.saturating_sub(amount);
        }
    }
}

/// What a pod is taken to need of cpu and of memory.
pub(super) fn asks(pod: &Pod) -> [i64; 2] {
    UNSAID.map(|(name, unsaid)| pod.wants.amount(name).unwrap_or(unsaid))
}
