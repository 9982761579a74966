//! The DaemonSet controller's cache: the facts about all objects that concern DaemonSets, and the state of each
//! DaemonSet. Facts are the decoded fields of API objects that the controller's rules read. The cache applies watch
//! events and returns the keys of the DaemonSets to reconcile.
//!
//! The state of one DaemonSet on one node is called a cell. An event marks only the cells that it may change as dirty,
//! and the next reconcile computes these cells again. Most events of a pod change one cell of one DaemonSet. An event
//! of a node changes at most one cell of each DaemonSet. A heartbeat of a node changes no cell.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use crate::controller::Event;
use crate::daemonset::SetState;
use crate::daemonset::facts::{Kind, Node, Pod, Revision, Set, UpdateStrategy, WatchedObject};
use crate::daemonset::in_memory_state::InMemoryState;
use crate::daemonset::object_cache::ObjectCache;
use crate::daemonset::plan::Claim;
use crate::daemonset::progressive::membership::{MembershipScope, added_names};
use crate::daemonset::progressive::policy::{Policy, SelectableSet, governing_policy};
use crate::daemonset::progressive::record::RolloutRecord;
use crate::hash_ordered_map::HashOrderedMap;

/// The DaemonSet controller's cache of all watched objects, with the state of each DaemonSet.
#[derive(Debug, Default)]
pub(super) struct ControllerCache {
    /// The newest resource version of each kind that the last list of the kind, or the watch since that list, has
    /// delivered. A kind has no entry before its first list.
    pub(super) seen: BTreeMap<Kind, u64>,
    /// The newest resource version of each kind ever delivered. It can be newer than the version in `seen`: after a
    /// list from an API server that lags behind, until the watch has caught up.
    pub(super) newest: BTreeMap<Kind, u64>,
    /// All watched objects except DaemonSets.
    pub(super) objects: ObjectCache,
    /// The DaemonSets with their pods and state, by namespace and name.
    pub(super) entries: BTreeMap<ObjectKey, SetEntry>,
    /// Keys of the DaemonSets by UID.
    by_uid: BTreeMap<Text, ObjectKey>,
}

/// One DaemonSet with its pods, its state on each node (its cells), and the controller's in-memory state about it. The
/// in-memory state belongs to the UID, so a DaemonSet that was deleted and created again starts with an empty state.
#[derive(Debug)]
pub(super) struct SetEntry {
    pub(super) set: Arc<Set>,
    /// The policy that governs the DaemonSet. `None` if no policy selects it.
    pub(super) policy: Option<Arc<Policy>>,
    /// The DaemonSet from which plans are made: like `set`, but possibly with a rolling update instead of `OnDelete` if
    /// a policy governs the DaemonSet ([`effective_set`]).
    pub(super) effective: Arc<Set>,
    /// Pods of the DaemonSet by node. A pod without a target node, or one that is to be adopted or released, is not in
    /// this map.
    pub(super) pods: HashOrderedMap<Text, Vec<Arc<Pod>>>,
    /// Number of the DaemonSet's pods by revision hash label. Includes pods without a target node, but not pods to
    /// adopt or release.
    pub(super) pods_by_hash: BTreeMap<Text, usize>,
    /// Pods and ControllerRevisions that the DaemonSet must adopt or release, by kind and name.
    pub(super) claims: BTreeMap<(Kind, Text), Claim>,
    /// The cells and revision history of the DaemonSet.
    pub(super) set_state: SetState,
    /// The cells of the DaemonSet that must be computed again.
    pub(super) dirty: DirtyCells,
    /// Time of the last reconcile of the DaemonSet. `None` before the first reconcile.
    pub(super) reconciled_at: Option<Time>,
    /// The controller's state about the DaemonSet that no API object stores, such as backoffs and expectations.
    pub(super) memory: InMemoryState,
}

/// The nodes on which the state of one DaemonSet (its cell) must be computed again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DirtyCells {
    /// The cells of all nodes must be computed again, and so must the revision history.
    All,
    /// Only the cells of these nodes must be computed again.
    Nodes(BTreeSet<Text>),
}

impl DirtyCells {
    /// Adds a node, so that its cell is computed again. Does nothing if all cells are computed again anyway.
    pub(super) fn add_node(&mut self, node: &Text) {
        if let Self::Nodes(nodes) = self {
            nodes.insert(node.clone());
        }
    }
}

impl ControllerCache {
    /// Whether the cache is complete enough to make plans.
    ///
    /// Rule: no plan is made before every kind has been listed, except optional kinds that the API server forbids the
    /// controller to read. An empty cache does not mean an empty cluster. If a list is older than the events that the
    /// watch of the kind had already delivered, no plan is made until the watch has delivered a version that is as new
    /// as those events.
    pub(super) fn is_synced(&self) -> bool {
        let listed = |kind: &Kind| {
            let newest = self.newest.get(kind).copied().unwrap_or(0);
            self.seen.get(kind).is_some_and(|seen| newest <= *seen) || self.objects.is_forbidden(*kind)
        };
        Kind::ALL.iter().all(listed)
    }

    /// Applies an event and returns the keys of the DaemonSets that the event concerns.
    ///
    /// The object of a watch event is ignored unless it is newer than the newest resource version delivered for its
    /// kind. The objects of a list are ignored if the list is older than that version. The resource versions of ignored
    /// events and lists are still recorded.
    pub(super) fn apply(&mut self, event: Event<WatchedObject>) -> BTreeSet<ObjectKey> {
        let mut keys = BTreeSet::new();
        match event {
            Event::Applied { fact, .. } | Event::Deleted { fact, .. } => {
                let (kind, at) = (fact.kind(), crate::controller::DecodedObject::resource_version(&fact));
                if self.is_stale(kind, at) {
                    self.advance_watch(kind, at);
                } else {
                    self.apply_object(fact, &mut keys);
                }
            }
            Event::Listed { kind, facts, resource_version } => {
                let kind = Kind::ALL[kind];
                let is_older = resource_version < self.newest.get(&kind).copied().unwrap_or(0);
                if !is_older {
                    self.apply_list(kind, facts, &mut keys);
                    self.set_forbidden(kind, false, &mut keys);
                }
                self.seen.insert(kind, resource_version);
                self.advance_watch(kind, resource_version);
            }
        }
        keys
    }

    /// Records whether the API server forbids the controller to read an optional kind. If the permission changed, marks
    /// all cells as dirty and adds the keys of all DaemonSets to `keys`.
    pub(super) fn set_forbidden(&mut self, kind: Kind, is_forbidden: bool, keys: &mut BTreeSet<ObjectKey>) {
        if self.objects.set_forbidden(kind, is_forbidden) {
            for (key, entry) in &mut self.entries {
                entry.dirty = DirtyCells::All;
                keys.insert(key.clone());
            }
        }
    }

    /// Records that the watch of a kind has delivered a resource version. Does nothing before the first list of the
    /// kind.
    pub(super) fn advance_watch(&mut self, kind: Kind, resource_version: u64) {
        // Before the first list of a kind its watch has delivered nothing, whatever version arrives.
        if let Some(seen) = self.seen.get_mut(&kind) {
            *seen = (*seen).max(resource_version);
            let newest = self.newest.entry(kind).or_default();
            *newest = (*newest).max(*seen);
        }
    }

    /// Whether an event of this kind with this resource version is already in the cache.
    ///
    /// Rule: an event that is not newer than the newest event of its kind is already in the cache. Applying the event
    /// again would restore an old state, and could discard the in-memory state of a DaemonSet that was created in the
    /// meantime.
    fn is_stale(&self, kind: Kind, resource_version: u64) -> bool {
        resource_version <= self.newest.get(&kind).copied().unwrap_or(0)
    }

    /// Replaces all objects of a kind by a list. Adds the keys of the DaemonSets that the changes concern to `keys`.
    fn apply_list(&mut self, kind: Kind, facts: Vec<WatchedObject>, keys: &mut BTreeSet<ObjectKey>) {
        let listed: BTreeSet<ObjectKey> = facts
            .iter()
            .filter(|it| !matches!(it, WatchedObject::Gone { .. }))
            .map(crate::controller::DecodedObject::key)
            .collect();
        for key in self.keys_of_kind(kind) {
            if !listed.contains(&key) {
                self.remove_object(kind, &key, keys);
            }
        }
        for fact in facts {
            self.apply_object(fact, keys);
        }
    }

    /// Returns the keys of all cached objects of a kind.
    fn keys_of_kind(&self, kind: Kind) -> Vec<ObjectKey> {
        match kind {
            Kind::Sets => self.entries.keys().cloned().collect(),
            kind => self.objects.keys(kind),
        }
    }

    /// Returns the number of cached objects of a kind.
    pub(super) fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Sets => self.entries.len(),
            kind => self.objects.count(kind),
        }
    }

    /// Returns a cache with the same objects and in-memory state, in which all cells are dirty, that is, must be
    /// computed again. A cell is the state of one DaemonSet on one node.
    pub(super) fn with_all_cells_dirty(&self) -> Self {
        let mut scratch = Self { seen: self.seen.clone(), ..Self::default() };
        let mut ignored = BTreeSet::new();
        let sets = self.entries.values().map(|it| WatchedObject::Set(it.set.clone()));
        for fact in self.objects.all_objects().into_iter().chain(sets) {
            scratch.apply_object(fact, &mut ignored);
        }
        scratch.seen = self.seen.clone();
        scratch.newest = self.newest.clone();
        for kind in Kind::OPTIONAL {
            scratch.objects.set_forbidden(kind, self.objects.is_forbidden(kind));
        }
        for (key, entry) in &self.entries {
            if let Some(fresh) = scratch.entries.get_mut(key) {
                fresh.memory = entry.memory.clone();
                fresh.reconciled_at = entry.reconciled_at;
            }
        }
        scratch
    }

    /// Adds, replaces or removes one object. Adds the keys of the DaemonSets that the change concerns to `keys`.
    fn apply_object(&mut self, fact: WatchedObject, keys: &mut BTreeSet<ObjectKey>) {
        match fact {
            WatchedObject::Set(set) => self.apply_set(set, keys),
            WatchedObject::Node(node) => self.apply_node(node, keys),
            WatchedObject::Pod(pod) => self.apply_pod(pod, keys),
            WatchedObject::Revision(revision) => self.apply_revision(revision, keys),
            WatchedObject::Policy(policy) => {
                self.advance_watch(policy.kind.watched_kind(), policy.resource_version);
                let before = self.objects.put_policy(policy.clone());
                if before.is_none_or(|it| it.generation != policy.generation || it.spec != policy.spec) {
                    self.select_policies(keys);
                }
            }
            WatchedObject::Rollout(rollout) => self.apply_rollout(rollout, keys),
            WatchedObject::Namespace(namespace) => {
                self.advance_watch(Kind::Namespaces, namespace.resource_version);
                let before = self.objects.put_namespace(namespace.clone());
                if before.is_none_or(|it| it.labels != namespace.labels) {
                    self.select_policies(keys);
                }
            }
            WatchedObject::Gone { kind, key, resource_version } => {
                self.advance_watch(kind, resource_version);
                self.remove_object(kind, &key, keys);
            }
        }
    }

    /// Determines again which policy governs each DaemonSet. Adds the keys of the DaemonSets whose policy changed to
    /// `keys`.
    fn select_policies(&mut self, keys: &mut BTreeSet<ObjectKey>) {
        for (key, entry) in &mut self.entries {
            if entry.select_policy(&self.objects) {
                keys.insert(key.clone());
            }
        }
    }

    /// Adds or replaces a DaemonRollout. Marks the cells of its DaemonSet that depend on the change as dirty, and adds
    /// the key of the DaemonSet to `keys`. A cell is the state of one DaemonSet on one node.
    fn apply_rollout(&mut self, rollout: Arc<RolloutRecord>, keys: &mut BTreeSet<ObjectKey>) {
        self.advance_watch(Kind::Rollouts, rollout.resource_version);
        let key = rollout.key.clone();
        let before = self.objects.put_rollout(rollout.clone());
        if let Some(entry) = self.entries.get_mut(&key) {
            let is_ours = rollout.belongs_to(&entry.set.uid);
            entry.apply_rollout_change(before.as_deref().filter(|_| is_ours), &rollout);
            keys.insert(key);
        }
    }

    /// Adds or replaces a DaemonSet, and adds its key to `keys`. A DaemonSet with a new UID starts with an empty
    /// in-memory state.
    fn apply_set(&mut self, set: Arc<Set>, keys: &mut BTreeSet<ObjectKey>) {
        self.advance_watch(Kind::Sets, set.resource_version);
        let key = set.key.clone();
        keys.insert(key.clone());
        match self.entries.get_mut(&key).filter(|it| it.set.uid == set.uid) {
            Some(entry) => {
                let same = has_same_cell_inputs(&entry.set, &set);
                let selects_other_objects =
                    entry.set.selector != set.selector || entry.set.deleting != set.deleting;
                entry.replace_set(set, &self.objects);
                if selects_other_objects {
                    entry.collect_objects(&self.objects);
                }
                if !same {
                    entry.dirty = DirtyCells::All;
                }
            }
            None => {
                let mut entry = SetEntry::new(set);
                entry.select_policy(&self.objects);
                entry.collect_objects(&self.objects);
                self.by_uid.insert(entry.set.uid.clone(), key.clone());
                if let Some(before) = self.entries.insert(key, entry) {
                    self.by_uid.remove(&before.set.uid);
                }
            }
        }
    }

    /// Adds or replaces a node. If the node is new, or a field that rules read has changed, marks the node's cell as
    /// dirty in every DaemonSet, and adds the keys of all DaemonSets to `keys`.
    fn apply_node(&mut self, node: Arc<Node>, keys: &mut BTreeSet<ObjectKey>) {
        self.advance_watch(Kind::Nodes, node.resource_version);
        let name = node.name.clone();
        let before = self.objects.put_node(node.clone());
        if before.is_some_and(|it| it.is_equivalent(&node)) {
            return;
        }
        self.mark_cells_of_node_dirty(&name, keys);
    }

    /// Marks the cell of a node as dirty in every DaemonSet, and adds the keys of all DaemonSets to `keys`.
    fn mark_cells_of_node_dirty(&mut self, name: &Text, keys: &mut BTreeSet<ObjectKey>) {
        for (key, entry) in &mut self.entries {
            entry.dirty.add_node(name);
            keys.insert(key.clone());
        }
    }

    /// Adds or replaces a pod, in the cache and in the entries of the DaemonSets that it concerns. Adds the keys of
    /// these DaemonSets to `keys`.
    fn apply_pod(&mut self, pod: Arc<Pod>, keys: &mut BTreeSet<ObjectKey>) {
        self.advance_watch(Kind::Pods, pod.resource_version);
        let before = self.objects.put_pod(pod.clone());
        // Compares the version first, because it needs no dereference into other allocations.
        if before.as_ref().is_some_and(|it| it.resource_version == pod.resource_version && *it == pod) {
            return;
        }
        if let Some(before) = before {
            if self.try_replace_pod(&before, &pod, keys) {
                return;
            }
            self.remove_pod(&before, keys);
        }
        for key in self.possible_owners(pod.owner.as_ref(), &pod.key.namespace) {
            if self.entries.get_mut(&key).is_some_and(|it| it.add_pod(&pod)) {
                keys.insert(key);
            }
        }
    }

    /// Replaces a pod in the entry of its DaemonSet, marks the cell of the pod's node as dirty, adds the key of the
    /// DaemonSet to `keys`, and returns `true`.
    ///
    /// Changes nothing and returns `false` if the pod's owner, node or labels changed (which is rare), if the pod has
    /// no owner or no node, or if no entry contains the pod.
    fn try_replace_pod(&mut self, before: &Arc<Pod>, pod: &Arc<Pod>, keys: &mut BTreeSet<ObjectKey>) -> bool {
        let (Some(owner), Some(node)) = (&pod.owner, &pod.target) else { return false };
        let stays = before.owner == pod.owner && before.target == pod.target && before.labels == pod.labels;
        let Some(key) = self.by_uid.get(owner).filter(|_| stays) else { return false };
        let Some(entry) = self.entries.get_mut(key) else { return false };
        let here = entry.pods.get_mut(node).map_or(&mut [][..], Vec::as_mut_slice);
        let Some(place) = here.iter_mut().find(|it| Arc::ptr_eq(it, before)) else { return false };
        *place = pod.clone();
        entry.dirty.add_node(node);
        keys.insert(key.clone());
        true
    }

    /// Removes a pod from the entries of the DaemonSets that it concerns. Adds the keys of these DaemonSets to `keys`.
    fn remove_pod(&mut self, pod: &Arc<Pod>, keys: &mut BTreeSet<ObjectKey>) {
        for key in self.possible_owners(pod.owner.as_ref(), &pod.key.namespace) {
            if self.entries.get_mut(&key).is_some_and(|it| it.remove_pod(pod)) {
                keys.insert(key);
            }
        }
    }

    /// Returns the keys of the DaemonSets that own an object or might adopt it. `owner` is the UID of the object's
    /// controller, `None` if the object has no controller.
    ///
    /// Rule: an object with a controller concerns only the DaemonSet in its namespace that has the UID of the
    /// controller. An object without a controller concerns all DaemonSets of its namespace. Labels are not compared
    /// here.
    fn possible_owners(&self, owner: Option<&Text>, namespace: &Text) -> Vec<ObjectKey> {
        match owner {
            Some(uid) => {
                let owner = self.by_uid.get(uid).filter(|key| key.namespace == *namespace);
                owner.cloned().into_iter().collect()
            }
            None => {
                let first = ObjectKey::new(namespace.clone(), "");
                let sets = self.entries.range(first..).map(|(key, _)| key);
                sets.take_while(|key| key.namespace == *namespace).cloned().collect()
            }
        }
    }

    /// Adds or replaces a ControllerRevision. If it has changed, updates the DaemonSets that it concerns, and adds
    /// their keys to `keys`.
    fn apply_revision(&mut self, revision: Arc<Revision>, keys: &mut BTreeSet<ObjectKey>) {
        self.advance_watch(Kind::Revisions, revision.resource_version);
        let before = self.objects.put_revision(revision.clone());
        if before.as_ref() == Some(&revision) {
            return;
        }
        self.apply_revision_change(&revision, before.as_ref(), keys);
    }

    /// Updates the DaemonSets that a new, changed or removed ControllerRevision concerns, and adds their keys to
    /// `keys`. Marks all cells (the states on each node) of the DaemonSets that own or owned the ControllerRevision as
    /// dirty. Updates which DaemonSets must adopt or release the ControllerRevision.
    ///
    /// `before` is the previous version of the ControllerRevision: `None` if it is new, the same version as `revision`
    /// if it was removed.
    fn apply_revision_change(
        &mut self,
        revision: &Revision,
        before: Option<&Arc<Revision>>,
        keys: &mut BTreeSet<ObjectKey>,
    ) {
        let owners = [before.and_then(|it| it.owner.as_ref()), revision.owner.as_ref()];
        let concerned = owners.into_iter().flat_map(|it| self.possible_owners(it, &revision.key.namespace));
        for key in concerned.collect::<BTreeSet<ObjectKey>>() {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let objects = &self.objects;
            let was_ours = before.is_some_and(|it| it.owner.as_ref() == Some(&entry.set.uid));
            let is_ours = revision.owner.as_ref() == Some(&entry.set.uid);
            let stray = entry.update_revision_claim(objects, &revision.key.name);
            if was_ours || is_ours {
                entry.dirty = DirtyCells::All;
            }
            if was_ours || is_ours || stray {
                keys.insert(key);
            }
        }
    }

    /// Removes an object. Adds the keys of the DaemonSets that the removal concerns to `keys`. The key of a removed
    /// DaemonSet itself is not added.
    fn remove_object(&mut self, kind: Kind, key: &ObjectKey, keys: &mut BTreeSet<ObjectKey>) {
        match kind {
            Kind::Sets => {
                if let Some(entry) = self.entries.remove(key) {
                    self.by_uid.remove(&entry.set.uid);
                }
            }
            Kind::Nodes => {
                if self.objects.remove_node(&key.name) {
                    self.mark_cells_of_node_dirty(&key.name, keys);
                }
            }
            Kind::Pods => {
                if let Some(pod) = self.objects.remove_pod(key) {
                    self.remove_pod(&pod, keys);
                }
            }
            Kind::Revisions => {
                if let Some(revision) = self.objects.remove_revision(key) {
                    self.apply_revision_change(&revision, Some(&revision), keys);
                }
            }
            Kind::Policies | Kind::ClusterPolicies => {
                if self.objects.remove_policy(kind, key) {
                    self.select_policies(keys);
                }
            }
            Kind::Rollouts => {
                if self.objects.remove_rollout(key)
                    && let Some(entry) = self.entries.get_mut(key)
                {
                    entry.dirty = DirtyCells::All;
                    keys.insert(key.clone());
                }
            }
            Kind::Namespaces => {
                if self.objects.remove_namespace(&key.name) {
                    self.select_policies(keys);
                }
            }
        }
    }
}

/// Whether two versions of a DaemonSet are equal in all fields on which its revision history and its cells depend (a
/// cell is the state of the DaemonSet on one node). `collisionCount` is one of these fields, because the name of the
/// next revision depends on it. If it were not compared, a colliding name would be tried again and again.
fn has_same_cell_inputs(a: &Set, b: &Set) -> bool {
    a.generation == b.generation
        && a.selector == b.selector
        && a.rollout == b.rollout
        && a.on_delete_limit == b.on_delete_limit
        && a.min_ready == b.min_ready
        && a.history_max == b.history_max
        && a.template == b.template
        && a.template_generation == b.template_generation
        && a.status.collisions == b.status.collisions
}

/// Returns the DaemonSet from which plans are made. For a DaemonSet with `OnDelete` and without invalid fields that a
/// policy governs, this is a copy with a rolling update instead of `OnDelete`. Otherwise it is the DaemonSet itself.
///
/// Rule: if a policy governs a DaemonSet with `OnDelete` and without invalid fields, the rollout deletes the outdated
/// pods of the DaemonSet within `maxUnavailable`. A `maxUnavailable` beside `OnDelete` in the DaemonSet has precedence
/// over the one in the policy.
fn effective_set(set: &Arc<Set>, policy: Option<&Policy>) -> Arc<Set> {
    match policy {
        Some(policy) if set.rollout == UpdateStrategy::OnDelete && set.faults.is_empty() => {
            let limit = set.on_delete_limit.unwrap_or(policy.spec.max_unavailable);
            Arc::new(Set { rollout: UpdateStrategy::Drain(limit), ..(**set).clone() })
        }
        _ => set.clone(),
    }
}

impl SetEntry {
    /// Creates the entry of a DaemonSet, without pods and with an empty in-memory state.
    fn new(set: Arc<Set>) -> Self {
        Self {
            effective: set.clone(),
            set,
            policy: None,
            pods: HashOrderedMap::default(),
            pods_by_hash: BTreeMap::new(),
            claims: BTreeMap::new(),
            set_state: SetState::default(),
            dirty: DirtyCells::All,
            reconciled_at: None,
            memory: InMemoryState::default(),
        }
    }

    /// Replaces the DaemonSet by a newer version. If its labels changed, determines again which policy governs it.
    fn replace_set(&mut self, set: Arc<Set>, objects: &ObjectCache) {
        let has_other_labels = self.set.labels != set.labels;
        self.set = set;
        if has_other_labels {
            self.select_policy(objects);
        }
        self.effective = effective_set(&self.set, self.policy.as_deref());
    }

    /// Determines which policy governs the DaemonSet. If that is another policy than before, or a changed version of
    /// the same policy, stores it, computes `effective` again, marks all cells as dirty and returns `true`.
    fn select_policy(&mut self, objects: &ObjectCache) -> bool {
        let selected = SelectableSet {
            key: &self.set.key,
            labels: &self.set.labels,
            namespace_labels: objects.namespace_labels(&self.set.key.namespace),
        };
        let policy = governing_policy(objects.policies(), selected).0.cloned();
        if policy == self.policy {
            return false;
        }
        self.policy = policy;
        self.effective = effective_set(&self.set, self.policy.as_deref());
        self.dirty = DirtyCells::All;
        true
    }

    /// Applies a change of the DaemonRollout: marks the cells that depend on the change as dirty. A cell is the state
    /// of the DaemonSet on one node. `before` is the previous version of the DaemonRollout. All cells become dirty if
    /// `before` is `None`, or if the DaemonSet had no progressive rollout.
    ///
    /// Rule: the cells depend on these fields in the stored status of the DaemonRollout: the revision, the phase, the
    /// step, the start of the attempt, and the admitted nodes, which are assigned that revision. They also depend on
    /// whether the DaemonRollout can be decoded. If the only change is that more nodes are admitted by name, only the
    /// cells of these nodes become dirty.
    fn apply_rollout_change(&mut self, before: Option<&RolloutRecord>, now: &Arc<RolloutRecord>) {
        let Some((before, active)) = before.zip(self.set_state.progressive.as_mut()) else {
            self.dirty = DirtyCells::All;
            return;
        };
        let step = |it: &RolloutRecord| it.status.step.as_ref().map(|it| it.name.clone());
        let hash = |it: &RolloutRecord| it.status.current.as_ref().map(|it| it.hash.clone());
        let scope = |it: &RolloutRecord| it.status.phase.map(|it| MembershipScope::for_phase(it, true));
        // With `newNodes: Latest`, both decide which nodes are admitted.
        let attempt = |it: &RolloutRecord| {
            (it.status.attempt_started, it.status.phase.is_some_and(|it| it.is_failed()))
        };
        let is_same_but_admitted = before.uid == now.uid
            && before.unreadable == now.unreadable
            && (step(before), hash(before), scope(before)) == (step(now), hash(now), scope(now))
            && attempt(before) == attempt(now);
        let added = is_same_but_admitted
            .then(|| added_names(&before.status.admitted, &now.status.admitted))
            .flatten();
        match added {
            Some(nodes) => {
                active.replace_record(now.clone());
                nodes.iter().for_each(|it| self.dirty.add_node(it));
            }
            None => self.dirty = DirtyCells::All,
        }
    }

    /// Determines again which pods of the namespace belong to the DaemonSet, and which pods and revisions it must adopt
    /// or release. Marks all cells as dirty.
    fn collect_objects(&mut self, objects: &ObjectCache) {
        self.pods.clear();
        self.pods_by_hash.clear();
        self.claims.clear();
        let set = self.set.clone();
        for pod in objects.pods_for(&set.uid, &set.key.namespace) {
            self.add_pod(&pod);
        }
        for revision in objects.revisions_for(&set.uid, &set.key.namespace) {
            self.update_revision_claim(objects, &revision.key.name);
        }
        self.dirty = DirtyCells::All;
    }

    /// Adds a pod to the DaemonSet, or a claim to adopt or release the pod. Returns whether the pod concerns the
    /// DaemonSet.
    ///
    /// Rule: a pod belongs to the DaemonSet that is its controller, by UID. A pod that the selector no longer matches
    /// is released. A matching pod without a controller is adopted unless the pod is terminating. Upstream:
    /// `ClaimPods`.
    fn add_pod(&mut self, pod: &Arc<Pod>) -> bool {
        let matches = self.set.selector.matches(&pod.labels);
        let stray = match &pod.owner {
            Some(owner) if *owner != self.set.uid => return false,
            Some(_) if matches => None,
            Some(_) => Some(Claim::ReleasePod(pod.clone())),
            None if matches && !pod.deleting => Some(Claim::AdoptPod(pod.clone())),
            None => return false,
        };
        if let Some(claim) = stray {
            self.claims.insert((Kind::Pods, pod.key.name.clone()), claim);
            return true;
        }
        if let Some(hash) = pod.hash_label() {
            *self.pods_by_hash.entry(hash.clone()).or_default() += 1;
        }
        if let Some(node) = &pod.target {
            let here = self.pods.entry(node).or_default();
            let at = here.partition_point(|it| it.key.name < pod.key.name);
            here.insert(at, pod.clone());
            self.dirty.add_node(node);
        }
        true
    }

    /// Removes a pod, or the claim to adopt or release it. Returns whether the pod concerned the DaemonSet.
    fn remove_pod(&mut self, pod: &Arc<Pod>) -> bool {
        let was_stray = self.claims.remove(&(Kind::Pods, pod.key.name.clone())).is_some();
        if was_stray || pod.owner.as_ref() != Some(&self.set.uid) || !self.set.selector.matches(&pod.labels) {
            return was_stray;
        }
        if let Some(hash) = pod.hash_label()
            && let Some(count) = self.pods_by_hash.get_mut(hash)
        {
            *count -= 1;
            if *count == 0 {
                self.pods_by_hash.remove(hash);
            }
        }
        if let Some(node) = &pod.target
            && let Some(here) = self.pods.get_mut(node)
        {
            here.retain(|it| it.key.name != pod.key.name);
            if here.is_empty() {
                self.pods.remove(node);
            }
            self.dirty.add_node(node);
        }
        true
    }

    /// Adds or removes the claim to adopt or release a revision. A revision is adopted or released under the same
    /// conditions as a pod ([`SetEntry::add_pod`]). Returns whether the revision has such a claim now, or had one
    /// before.
    fn update_revision_claim(&mut self, objects: &ObjectCache, name: &Text) -> bool {
        let place = (Kind::Revisions, name.clone());
        let was_stray = self.claims.remove(&place).is_some();
        let key = ObjectKey { namespace: self.set.key.namespace.clone(), name: name.clone() };
        let Some(revision) = objects.revision(&key) else { return was_stray };
        let matches = self.set.selector.matches(&revision.labels);
        let claim = match &revision.owner {
            Some(owner) if *owner != self.set.uid => None,
            Some(_) if matches => None,
            Some(_) => Some(Claim::ReleaseRevision(revision.clone())),
            None if matches && !revision.deleting => Some(Claim::AdoptRevision(revision.clone())),
            None => None,
        };
        let is_stray = claim.is_some();
        if let Some(claim) = claim {
            self.claims.insert(place, claim);
        }
        was_stray || is_stray
    }
}
