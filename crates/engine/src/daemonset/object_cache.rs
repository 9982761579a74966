//! The DaemonSet controller's cache of all watched objects except DaemonSets, by key and by owner. The objects are
//! decoded to the fields that rules read.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::labels::Labels;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;

use crate::daemonset::facts::{Kind, NamespaceLabels, Node, Pod, Revision, WatchedObject};
use crate::daemonset::progressive::policy::Policy;
use crate::daemonset::progressive::record::RolloutRecord;
use crate::hash_ordered_map::HashOrderedMap;

/// All watched objects except DaemonSets, with indexes of pods and revisions by owner.
#[derive(Debug, Default)]
pub(super) struct ObjectCache {
    nodes: HashOrderedMap<Text, Arc<Node>>,
    pods: HashOrderedMap<ObjectKey, Arc<Pod>>,
    revisions: BTreeMap<ObjectKey, Arc<Revision>>,
    /// RolloutPolicies and ClusterRolloutPolicies, by kind and key.
    policies: BTreeMap<(Kind, ObjectKey), Arc<Policy>>,
    rollouts: BTreeMap<ObjectKey, Arc<RolloutRecord>>,
    namespaces: BTreeMap<Text, Arc<NamespaceLabels>>,
    /// Optional kinds ([`Kind::OPTIONAL`]) that the API server forbids the controller to read.
    forbidden: BTreeSet<Kind>,
    /// Keys of the pods and revisions that a DaemonSet controls, by kind and by UID of the DaemonSet.
    owned: BTreeMap<(Kind, Text), HashOrderedMap<ObjectKey, ()>>,
    /// Keys of pods and revisions without a controller, by kind and namespace. A DaemonSet may adopt these objects.
    orphans: BTreeMap<(Kind, Text), HashOrderedMap<ObjectKey, ()>>,
}

impl ObjectCache {
    /// Returns the number of objects of a kind. Zero for DaemonSets, which `ControllerCache::entries` contains.
    pub(super) fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Sets => 0,
            Kind::Nodes => self.nodes.len(),
            Kind::Pods => self.pods.len(),
            Kind::Revisions => self.revisions.len(),
            Kind::Policies | Kind::ClusterPolicies => {
                self.policies.keys().filter(|(it, _)| *it == kind).count()
            }
            Kind::Rollouts => self.rollouts.len(),
            Kind::Namespaces => self.namespaces.len(),
        }
    }

    /// Returns all RolloutPolicies and ClusterRolloutPolicies.
    pub(super) fn policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.policies.values()
    }

    /// Returns the DaemonRollout with this key. `None` if the cache does not contain it.
    pub(super) fn rollout(&self, key: &ObjectKey) -> Option<&Arc<RolloutRecord>> {
        self.rollouts.get(key)
    }

    /// Returns the labels of a namespace. `None` if the cache does not contain the namespace.
    pub(super) fn namespace_labels(&self, name: &Text) -> Option<&Labels> {
        self.namespaces.get(name).map(|it| &it.labels)
    }

    /// Whether the API server forbids the controller to read one of the kinds that progressive rollouts need
    /// ([`Kind::OPTIONAL`]).
    pub(super) fn is_rollout_kind_forbidden(&self) -> bool {
        !self.forbidden.is_empty()
    }

    /// Records whether the API server forbids the controller to read an optional kind. Returns whether the recorded
    /// value changed.
    pub(super) fn set_forbidden(&mut self, kind: Kind, is_forbidden: bool) -> bool {
        if is_forbidden { self.forbidden.insert(kind) } else { self.forbidden.remove(&kind) }
    }

    /// Whether the API server forbids the controller to read this kind.
    pub(super) fn is_forbidden(&self, kind: Kind) -> bool {
        self.forbidden.contains(&kind)
    }

    /// Adds or replaces a policy. Returns its previous version, or `None` if it is new.
    pub(super) fn put_policy(&mut self, policy: Arc<Policy>) -> Option<Arc<Policy>> {
        self.policies.insert((policy.kind.watched_kind(), policy.key.clone()), policy)
    }

    /// Removes a policy. Returns whether it existed.
    pub(super) fn remove_policy(&mut self, kind: Kind, key: &ObjectKey) -> bool {
        self.policies.remove(&(kind, key.clone())).is_some()
    }

    /// Adds or replaces a DaemonRollout. Returns its previous version, or `None` if it is new.
    pub(super) fn put_rollout(&mut self, rollout: Arc<RolloutRecord>) -> Option<Arc<RolloutRecord>> {
        self.rollouts.insert(rollout.key.clone(), rollout)
    }

    /// Removes a DaemonRollout. Returns whether it existed.
    pub(super) fn remove_rollout(&mut self, key: &ObjectKey) -> bool {
        self.rollouts.remove(key).is_some()
    }

    /// Adds or replaces a namespace. Returns its previous version, or `None` if it is new.
    pub(super) fn put_namespace(&mut self, namespace: Arc<NamespaceLabels>) -> Option<Arc<NamespaceLabels>> {
        self.namespaces.insert(namespace.name.clone(), namespace)
    }

    /// Removes a namespace. Returns whether it existed.
    pub(super) fn remove_namespace(&mut self, name: &Text) -> bool {
        self.namespaces.remove(name).is_some()
    }

    /// Returns the node with this name. `None` if the cache does not contain it.
    pub(super) fn node(&self, name: &Text) -> Option<&Node> {
        self.nodes.get(name).map(Arc::as_ref)
    }

    /// Returns all nodes by name.
    pub(super) fn nodes(&self) -> &HashOrderedMap<Text, Arc<Node>> {
        &self.nodes
    }

    /// Returns the pod with this key. `None` if the cache does not contain it.
    pub(super) fn pod(&self, key: &ObjectKey) -> Option<&Pod> {
        self.pods.get(key).map(Arc::as_ref)
    }

    /// Returns the ControllerRevision with this key. `None` if the cache does not contain it.
    pub(super) fn revision(&self, key: &ObjectKey) -> Option<&Arc<Revision>> {
        self.revisions.get(key)
    }

    /// Returns the pods in the namespace whose controller is the DaemonSet with this UID, and the pods in the namespace
    /// that have no controller.
    pub(super) fn pods_for(&self, uid: &Text, namespace: &Text) -> impl Iterator<Item = Arc<Pod>> {
        self.keys_for(Kind::Pods, uid, namespace).filter_map(|key| self.pods.get(key).cloned())
    }

    /// Returns the revisions in the namespace whose controller is the DaemonSet with this UID, and the revisions in the
    /// namespace that have no controller.
    pub(super) fn revisions_for(&self, uid: &Text, namespace: &Text) -> impl Iterator<Item = Arc<Revision>> {
        self.keys_for(Kind::Revisions, uid, namespace).filter_map(|key| self.revisions.get(key).cloned())
    }

    /// Returns the keys of the pods or revisions (`kind`) in a namespace whose controller is the DaemonSet with this
    /// UID, and of those in the namespace that have no controller.
    fn keys_for(&self, kind: Kind, uid: &Text, namespace: &Text) -> impl Iterator<Item = &ObjectKey> {
        let owned = self.owned.get(&(kind, uid.clone()));
        let orphans = self.orphans.get(&(kind, namespace.clone()));
        let namespace = namespace.clone();
        owned
            .into_iter()
            .chain(orphans)
            .flat_map(HashOrderedMap::keys)
            .filter(move |key| key.namespace == namespace)
    }

    /// Adds or replaces a node. Returns its previous version, or `None` if it is new.
    pub(super) fn put_node(&mut self, node: Arc<Node>) -> Option<Arc<Node>> {
        let name = node.name.clone();
        self.nodes.insert(&name, node)
    }

    /// Adds or replaces a pod. Returns its previous version, or `None` if it is new.
    pub(super) fn put_pod(&mut self, pod: Arc<Pod>) -> Option<Arc<Pod>> {
        let (key, owner) = (pod.key.clone(), pod.owner.clone());
        let before = self.pods.insert(&key, pod);
        self.reindex_owner(Kind::Pods, before.as_ref().map(|it| it.owner.as_ref()), owner.as_ref(), &key);
        before
    }

    /// Adds or replaces a revision. Returns its previous version, or `None` if it is new.
    pub(super) fn put_revision(&mut self, revision: Arc<Revision>) -> Option<Arc<Revision>> {
        let (key, owner) = (revision.key.clone(), revision.owner.clone());
        let before = self.revisions.insert(key.clone(), revision);
        self.reindex_owner(
            Kind::Revisions,
            before.as_ref().map(|it| it.owner.as_ref()),
            owner.as_ref(),
            &key,
        );
        before
    }

    /// Updates the index by owner after an object was added or changed: moves the key of the object from its previous
    /// to its present owner. `before` is the previous owner. The outer `None` means that the object is new, and the
    /// inner `None` that it had no controller. `owner` is the present owner, `None` if the object has no controller.
    fn reindex_owner(
        &mut self,
        kind: Kind,
        before: Option<Option<&Text>>,
        owner: Option<&Text>,
        key: &ObjectKey,
    ) {
        if before == Some(owner) {
            return;
        }
        if let Some(before) = before {
            self.remove_from_owner_index(kind, before, key);
        }
        self.owner_index_entry(kind, owner, key).insert(key, ());
    }

    /// Removes a node. Returns whether it existed.
    pub(super) fn remove_node(&mut self, name: &Text) -> bool {
        self.nodes.remove(name).is_some()
    }

    /// Removes a pod. Returns it, or `None` if it did not exist.
    pub(super) fn remove_pod(&mut self, key: &ObjectKey) -> Option<Arc<Pod>> {
        let pod = self.pods.remove(key)?;
        self.remove_from_owner_index(Kind::Pods, pod.owner.as_ref(), key);
        Some(pod)
    }

    /// Removes a revision. Returns it, or `None` if it did not exist.
    pub(super) fn remove_revision(&mut self, key: &ObjectKey) -> Option<Arc<Revision>> {
        let revision = self.revisions.remove(key)?;
        self.remove_from_owner_index(Kind::Revisions, revision.owner.as_ref(), key);
        Some(revision)
    }

    /// Returns the entry of the index by owner for an object with this kind, owner and key, and adds an empty entry if
    /// there is none. The entry holds the keys of the objects that the DaemonSet with the UID `owner` controls or, if
    /// `owner` is `None`, of the objects in the namespace of `key` that have no controller.
    fn owner_index_entry(
        &mut self,
        kind: Kind,
        owner: Option<&Text>,
        key: &ObjectKey,
    ) -> &mut HashOrderedMap<ObjectKey, ()> {
        match owner {
            Some(uid) => self.owned.entry((kind, uid.clone())).or_default(),
            None => self.orphans.entry((kind, key.namespace.clone())).or_default(),
        }
    }

    /// Removes the key of an object from the index by owner. `owner` is `None` if the object has no controller.
    fn remove_from_owner_index(&mut self, kind: Kind, owner: Option<&Text>, key: &ObjectKey) {
        let (map, place) = match owner {
            Some(uid) => (&mut self.owned, (kind, uid.clone())),
            None => (&mut self.orphans, (kind, key.namespace.clone())),
        };
        if let Some(keys) = map.get_mut(&place) {
            keys.remove(key);
            if keys.keys().next().is_none() {
                map.remove(&place);
            }
        }
    }

    /// Returns the keys of all objects of a kind. Empty for DaemonSets, which `ControllerCache::entries` contains.
    pub(super) fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        match kind {
            Kind::Sets => Vec::new(),
            Kind::Nodes => self.nodes.keys().map(|it| ObjectKey::new("", it.clone())).collect(),
            Kind::Pods => self.pods.keys().cloned().collect(),
            Kind::Revisions => self.revisions.keys().cloned().collect(),
            Kind::Policies | Kind::ClusterPolicies => {
                let keys = self.policies.keys().filter(|(it, _)| *it == kind);
                keys.map(|(_, key)| key.clone()).collect()
            }
            Kind::Rollouts => self.rollouts.keys().cloned().collect(),
            Kind::Namespaces => self.namespaces.keys().map(|it| ObjectKey::new("", it.clone())).collect(),
        }
    }

    pub(super) fn all_objects(&self) -> Vec<WatchedObject> {
        let nodes = self.nodes.values().map(|it| WatchedObject::Node(it.clone()));
        let pods = self.pods.values().map(|it| WatchedObject::Pod(it.clone()));
        let revisions = self.revisions.values().map(|it| WatchedObject::Revision(it.clone()));
        let policies = self.policies.values().map(|it| WatchedObject::Policy(it.clone()));
        let rollouts = self.rollouts.values().map(|it| WatchedObject::Rollout(it.clone()));
        let namespaces = self.namespaces.values().map(|it| WatchedObject::Namespace(it.clone()));
        nodes.chain(pods).chain(revisions).chain(policies).chain(rollouts).chain(namespaces).collect()
    }
}
