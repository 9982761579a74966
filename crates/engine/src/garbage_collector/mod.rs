//! The garbage collector: deletes objects whose owners no longer exist, pods that no kubelet manages any more, and
//! surplus terminated pods.
//!
//! [`GarbageCollector`] is the graph of owner references over all kinds. It applies events and returns the UIDs of the
//! objects to reconcile. The reconcile of an object returns the next call about this object. Each object is reconciled
//! on its own: the reconcile of an owner makes no calls about its dependents.
//!
//! [`pod_gc`] is the pod garbage collector.
//!
//! A delayed watch must not cause a deletion. So an owner that the graph does not contain is read from the API server.
//! One read serves all dependents of the owner. A delete because of owners has the `resourceVersion` of the object as
//! precondition. Upstream: `pkg/controller/garbagecollector`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

pub use call::{GarbageCollectorCall, Propagation, request};

pub use pod_gc::Pod;

use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};

use self::pod_gc::{PodGc, PodGcDecision, TERMINATED_PODS_MAX};
pub use crate::controller::Resource;
use crate::controller::retry::{Attempt, NextAttempt};
use crate::controller::{CallError, Outcome, Reconcile};
use crate::daemonset::why::Why;

/// The calls of the garbage collector and their API requests.
mod call;
/// Implements the traits `Controller` and `FactStore` for [`GarbageCollector`].
mod controller;
/// Decodes objects of all kinds.
mod decode;
/// The pod garbage collector: decides which pods to delete, because no kubelet manages them or because there are too
/// many terminated pods.
mod pod_gc;

/// The metadata of an object of any kind, and the fields of pods and nodes that pod garbage collection needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrackedObject {
    pub resource: Arc<Resource>,
    /// Namespace and name of the object. The namespace is empty for a cluster-scoped kind.
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub owners: Vec<OwnerReference>,
    /// Whether the object has a `deletionTimestamp`.
    pub deleting: bool,
    pub finalizers: Vec<Text>,
    /// The fields of a pod that pod garbage collection needs. `None` for other kinds.
    pub pod: Option<Arc<Pod>>,
    /// For a node, whether it has the taint `out-of-service` and is not ready. `None` for other kinds.
    pub out_of_service: Option<bool>,
}

/// An owner reference of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerReference {
    pub api_version: Text,
    pub kind: Text,
    pub name: Text,
    pub uid: Text,
    /// Whether the foreground deletion of the owner waits until this object is deleted (`blockOwnerDeletion`).
    pub block_owner_deletion: bool,
}

impl TrackedObject {
    /// Whether the object has this finalizer.
    fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|it| **it == *finalizer)
    }

    /// Returns the state of this object as an owner of other objects.
    fn owner_state(&self) -> OwnerState {
        if self.deleting && self.has_finalizer(FINALIZER_ORPHAN) {
            OwnerState::OrphaningDependents
        } else if self.deleting && self.has_finalizer(FINALIZER_FOREGROUND) {
            OwnerState::WaitingForDependents
        } else {
            OwnerState::Solid
        }
    }

    /// Whether this object has an owner reference with this UID and `blockOwnerDeletion`.
    fn blocks_deletion_of(&self, owner: &str) -> bool {
        self.owners.iter().any(|it| *it.uid == *owner && it.block_owner_deletion)
    }
}

/// Kind, namespace, name and UID of an object that is read from the API server. All of them are needed, because an
/// owner reference may have a wrong kind or name for its UID. The UID is empty for a node, which is read by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ObjectIdentity {
    pub resource: Arc<Resource>,
    pub key: ObjectKey,
    pub uid: Text,
}

/// The state of an owner. Upstream: solid, dangling, `waitingForDependentsDeletion`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnerState {
    /// The owner exists and does not wait for its dependents. Its dependents stay.
    Solid,
    /// The owner is being deleted in the foreground. Its dependents are deleted first.
    WaitingForDependents,
    /// The owner is being deleted, and its dependents become orphans.
    OrphaningDependents,
    /// The owner does not exist: no object has the name and UID of the owner reference.
    Absent,
}

/// The state of an owner, from the graph or from the owner cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct OwnerLookup {
    state: OwnerState,
    /// Time at which the cached state of an owner expires. `None` if the state is from the graph, because such a state
    /// does not expire.
    until: Option<Time>,
}

/// Time for which the state of an owner is cached after the owner was read from the API server. So one read serves all
/// dependents of the owner. Upstream: `absentOwnerCache`.
const OWNER_CACHE_TTL: Duration = Duration::from_secs(10);

/// Maximum number of owner UIDs in the owner cache. A full cache is cleared. Then owners are read from the API server
/// again.
const OWNER_CACHE_MAX: usize = 1000;

/// Assumed maximum delay between the watches of two kinds.
///
/// The orphan finalizer of an owner is removed only after this delay. Until then, a watch may still deliver a dependent
/// that was created shortly before. Without the delay, that dependent would be deleted instead of orphaned.
const WATCH_SKEW_MAX: Duration = Duration::from_millis(250);

/// The garbage collector, with the graph of owner references over all kinds. Upstream: `GraphBuilder`,
/// `GarbageCollector`.
#[derive(Debug)]
pub struct GarbageCollector {
    /// The watched kinds, in the order of [`Controller::watches`](crate::controller::Controller::watches).
    watched: Vec<Arc<Resource>>,
    /// The kinds that an owner may have: all kinds that the API server serves.
    served: Vec<Arc<Resource>>,
    /// Watched kinds that have not been listed yet. No object is deleted before all watched kinds have been listed.
    unlisted: BTreeSet<Arc<Resource>>,
    /// All watched objects, by UID.
    objects: BTreeMap<Text, Arc<TrackedObject>>,
    /// UIDs of the dependents of each owner, by the UID of the owner. The owner may not exist.
    dependents: BTreeMap<Text, BTreeSet<Text>>,
    /// States of owners and nodes that were read from the API server, by the UID in the owner reference (empty for a
    /// node). Each state has the time at which it expires.
    owner_cache: BTreeMap<Text, Vec<(ObjectIdentity, OwnerState, Time)>>,
    /// Owners and nodes that are being read from the API server, each with the UIDs of the objects to reconcile
    /// afterwards.
    pending_reads: BTreeMap<ObjectIdentity, BTreeSet<Text>>,
    /// The state of the last call about each object, by UID of the object.
    attempts: BTreeMap<Text, Attempt>,
    /// For each owner that orphans its dependents, by UID: the time from which the watches are assumed to have
    /// delivered all its dependents.
    dependents_visible_at: BTreeMap<Text, Time>,
    /// State of the pod garbage collector.
    pod_gc: PodGc,
}

/// The decision of the garbage collector about one object.
enum GcDecision {
    /// The object is neither deleted nor changed.
    Nothing,
    /// The decision must be made again at this time.
    Wait { until: Time },
    /// These objects must be read from the API server before the decision is made again.
    Read(Vec<ObjectIdentity>),
    /// This call must be made about the object.
    Call(GarbageCollectorCall),
}

impl GarbageCollector {
    /// Creates a garbage collector. `served` are the kinds that owners may have. `watched` are the kinds that the
    /// garbage collector lists and watches.
    pub fn new(served: Vec<Arc<Resource>>, watched: impl IntoIterator<Item = Arc<Resource>>) -> Self {
        let watched: Vec<_> = watched.into_iter().collect();
        Self {
            served,
            unlisted: watched.iter().cloned().collect(),
            watched,
            objects: BTreeMap::new(),
            dependents: BTreeMap::new(),
            owner_cache: BTreeMap::new(),
            pending_reads: BTreeMap::new(),
            attempts: BTreeMap::new(),
            dependents_visible_at: BTreeMap::new(),
            pod_gc: PodGc::new(TERMINATED_PODS_MAX),
        }
    }

    /// Removes the edge between an owner and a dependent from the graph. Adds the owner to `keys` if it is being
    /// deleted, because it may have waited for this dependent.
    fn remove_dependent(&mut self, owner: &Text, dependent: &Text, keys: &mut BTreeSet<Text>) {
        if let Some(others) = self.dependents.get_mut(owner) {
            others.remove(dependent);
            if others.is_empty() {
                self.dependents.remove(owner);
            }
        }
        if self.objects.get(owner).is_some_and(|it| it.deleting) {
            keys.insert(owner.clone());
        }
    }

    /// Reconciles the object with this UID. Returns the next call about the object, or the reads that it needs and that
    /// are not in flight yet, or the time of the next reconcile. Returns none of these if the object is unknown or
    /// nothing is to be done, before all watched kinds have been listed, and while a call about the object or all the
    /// reads that it needs are in flight.
    pub fn reconcile(&mut self, uid: &Text, now: Time) -> Reconcile<GarbageCollectorCall> {
        let Some(object) = self.objects.get(uid).cloned() else { return Reconcile::default() };
        if !self.unlisted.is_empty() {
            return Reconcile::default();
        }
        let mut attempt = self.attempts.get(uid).copied().unwrap_or_default();
        match attempt.next_attempt(object.resource_version, now) {
            NextAttempt::Now => {}
            NextAttempt::AfterOutcome => return Reconcile::default(),
            NextAttempt::At(at) => return Reconcile { wake_at: Some(at), ..Reconcile::default() },
        }
        match self.decide(&object, now) {
            GcDecision::Nothing => {
                self.attempts.remove(uid);
                Reconcile::default()
            }
            GcDecision::Wait { until } => Reconcile { wake_at: Some(until), ..Reconcile::default() },
            GcDecision::Read(identities) => {
                let mut reconcile = Reconcile::default();
                for identity in identities {
                    let waiting = self.pending_reads.entry(identity.clone()).or_default();
                    if waiting.is_empty() {
                        reconcile.calls.push(GarbageCollectorCall::Read(identity));
                    }
                    waiting.insert(uid.clone());
                }
                reconcile
            }
            GcDecision::Call(call) => {
                attempt.begin();
                self.attempts.insert(uid.clone(), attempt);
                Reconcile { calls: Vec::from([call]), ..Reconcile::default() }
            }
        }
    }

    /// Decides what to do with an object: first by the rules of pod garbage collection, then by the states of its
    /// owners.
    fn decide(&mut self, object: &Arc<TrackedObject>, now: Time) -> GcDecision {
        let until = match self.decide_pod_gc(object, now) {
            None => return self.decide_by_owners_and_dependents(object, now),
            Some(GcDecision::Wait { until }) => until,
            Some(verdict) => return verdict,
        };
        // While a pod waits for its missing node, its owners still decide about it.
        match self.decide_by_owners_and_dependents(object, now) {
            GcDecision::Nothing => GcDecision::Wait { until },
            GcDecision::Wait { until: other } => GcDecision::Wait { until: until.min(other) },
            verdict => verdict,
        }
    }

    /// Decides what to do with an object, from the states of its owners and, if it is being deleted, from its
    /// dependents.
    fn decide_by_owners_and_dependents(&mut self, object: &Arc<TrackedObject>, now: Time) -> GcDecision {
        let owners: Vec<(&OwnerReference, Option<OwnerLookup>)> =
            object.owners.iter().map(|it| (it, self.resolve_owner(object, it, now))).collect();
        let of = |wanted: OwnerState| -> Vec<Text> {
            let is_wanted = |it: &Option<OwnerLookup>| it.is_some_and(|it| it.state == wanted);
            owners.iter().filter(|(_, it)| is_wanted(it)).map(|(owner, _)| owner.uid.clone()).collect()
        };
        let mut orphaning = of(OwnerState::OrphaningDependents);
        // An orphaning owner waits for every reference with its UID, even one with a wrong kind or name.
        let is_orphaning = |uid: &Text| {
            self.objects.get(uid).is_some_and(|it| it.owner_state() == OwnerState::OrphaningDependents)
        };
        for (owner, _) in &owners {
            if is_orphaning(&owner.uid) && !orphaning.contains(&owner.uid) {
                orphaning.push(owner.uid.clone());
            }
        }
        if !orphaning.is_empty() {
            let object = object.clone();
            return GcDecision::Call(GarbageCollectorCall::RemoveOwners {
                object,
                owners: orphaning,
                why: Why::OwnerOrphansDependents,
            });
        }
        if object.deleting {
            return self.decide_finalizer(object, now);
        }
        // An owner of a kind that this server does not serve cannot be looked up.
        let is_unresolvable = |it: &OwnerReference| {
            self.owner_identity(object, it).is_none() && self.watched_owner(object, it).is_none()
        };
        if owners.is_empty() || owners.iter().any(|(it, _)| is_unresolvable(it)) {
            return GcDecision::Nothing;
        }
        let ask = |wanted: &dyn Fn(&Option<OwnerLookup>) -> bool| -> Vec<ObjectIdentity> {
            let wanted = owners.iter().filter(|(_, it)| wanted(it));
            wanted.filter_map(|(owner, _)| self.owner_identity(object, owner)).collect()
        };
        let unknown = ask(&|it| it.is_none());
        if !unknown.is_empty() {
            return GcDecision::Read(unknown);
        }
        let (waiting, mut stale) = (of(OwnerState::WaitingForDependents), of(OwnerState::Absent));
        if !of(OwnerState::Solid).is_empty() {
            stale.extend(waiting);
            if stale.is_empty() {
                let until = owners.iter().filter_map(|(_, it)| it.and_then(|it| it.until)).min();
                return until.map_or(GcDecision::Nothing, |until| GcDecision::Wait { until });
            }
            let object = object.clone();
            return GcDecision::Call(GarbageCollectorCall::RemoveOwners {
                object,
                owners: stale,
                why: Why::OwnersAbsent,
            });
        }
        // Only the watch shows that the owner waits. Its deletion may have been changed to orphaning since.
        let unconfirmed = ask(&|it| it.is_some_and(|it| it.until.is_none()));
        if !unconfirmed.is_empty() {
            return GcDecision::Read(unconfirmed);
        }
        GcDecision::Call(self.delete_call(object, !waiting.is_empty()))
    }

    /// Decides whether pod garbage collection deletes an object. `None` if the object is not a pod, or if pod garbage
    /// collection keeps the pod.
    ///
    /// The phase of a pod that has not terminated is set to Failed before the pod is deleted, so that the pod's
    /// controller notices the failure.
    fn decide_pod_gc(&mut self, object: &Arc<TrackedObject>, now: Time) -> Option<GcDecision> {
        let pod = object.pod.as_ref()?;
        let why = match self.pod_gc.decide(object, pod, now) {
            PodGcDecision::Keep => return None,
            PodGcDecision::Wait { until } => return Some(GcDecision::Wait { until }),
            PodGcDecision::Delete(why) => why,
        };
        if why == Why::NodeDeleted {
            let nodes = self.served.iter().find(|it| it.group.is_empty() && *it.kind == *"Node")?.clone();
            let key = ObjectKey { namespace: Text::from(""), name: pod.node.clone() };
            let node = ObjectIdentity { resource: nodes, key, uid: Text::from("") };
            match self.cached_owner(&node, now) {
                None => return Some(GcDecision::Read(Vec::from([node]))),
                Some((_, OwnerState::Absent, _)) => {}
                Some((_, _, until)) => return Some(GcDecision::Wait { until: *until }),
            }
        }
        let object = object.clone();
        Some(GcDecision::Call(match pod.terminated {
            false => GarbageCollectorCall::MarkPodFailed { object, why, at: now },
            true => GarbageCollectorCall::ForceDeletePod { object, why },
        }))
    }

    /// Returns the call that deletes an object. If the object is in a cycle of owners, and one of its owner references
    /// has `blockOwnerDeletion`, returns the call that clears `blockOwnerDeletion` instead. After that call, this
    /// function returns the delete. `owner_waits` is whether an owner waits for this object in a foreground deletion.
    ///
    /// Rule: an object is deleted when each of its owners is gone or waits for the object in a foreground deletion. If
    /// an owner waits for the object, and the object has dependents, then the object is deleted in the foreground as
    /// well. For any other object, its finalizers decide about its dependents. In a cycle of objects that wait for each
    /// other, `blockOwnerDeletion` is cleared, because otherwise none of them would ever be deleted. Upstream:
    /// `attemptToDeleteItem`.
    fn delete_call(&self, object: &Arc<TrackedObject>, owner_waits: bool) -> GarbageCollectorCall {
        let mut dependents = self.dependents_of(&object.uid).peekable();
        let object = object.clone();
        let why = if owner_waits { Why::OwnerDeletedInForeground } else { Why::OwnersAbsent };
        if owner_waits && dependents.peek().is_some() {
            let is_cycle = dependents.any(|it| it.owner_state() == OwnerState::WaitingForDependents);
            if is_cycle && object.owners.iter().any(|it| it.block_owner_deletion) {
                return GarbageCollectorCall::UnblockOwners { object };
            }
            return GarbageCollectorCall::Delete { object, propagation: Propagation::Foreground, why };
        }
        let propagation = if object.has_finalizer(FINALIZER_ORPHAN) {
            Propagation::Orphan
        } else if object.has_finalizer(FINALIZER_FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        GarbageCollectorCall::Delete { object, propagation, why }
    }

    /// Decides whether to remove the `foregroundDeletion` or `orphan` finalizer of an object that is being deleted.
    ///
    /// Rule: the finalizer of an owner that is deleted in the foreground is removed when no blocking dependent is left.
    /// The finalizer of an owner that orphans its dependents is removed when no dependent refers to the owner.
    /// Upstream: `processDeletingDependentsItem`, `attemptToOrphanWorker`.
    fn decide_finalizer(&mut self, object: &Arc<TrackedObject>, now: Time) -> GcDecision {
        match object.owner_state() {
            OwnerState::Solid | OwnerState::Absent => GcDecision::Nothing,
            OwnerState::WaitingForDependents => {
                if self.dependents_of(&object.uid).any(|it| it.blocks_deletion_of(&object.uid)) {
                    return GcDecision::Nothing;
                }
                GcDecision::Call(GarbageCollectorCall::RemoveFinalizer {
                    object: object.clone(),
                    finalizer: FINALIZER_FOREGROUND,
                })
            }
            OwnerState::OrphaningDependents => {
                let visible_at =
                    *self.dependents_visible_at.entry(object.uid.clone()).or_insert(now + WATCH_SKEW_MAX);
                if now < visible_at {
                    return GcDecision::Wait { until: visible_at.min(now + WATCH_SKEW_MAX) };
                }
                if self.dependents_of(&object.uid).next().is_some() {
                    return GcDecision::Nothing;
                }
                GcDecision::Call(GarbageCollectorCall::RemoveFinalizer {
                    object: object.clone(),
                    finalizer: FINALIZER_ORPHAN,
                })
            }
        }
    }

    /// Returns the objects that have an owner reference with this UID.
    fn dependents_of(&self, uid: &Text) -> impl Iterator<Item = &Arc<TrackedObject>> {
        self.dependents.get(uid).into_iter().flatten().filter_map(|it| self.objects.get(it))
    }

    /// Returns the state of an owner. `None` if the owner must be read from the API server first.
    ///
    /// Rule: the owner is the object with the kind, name and UID of the owner reference. It is in the namespace of the
    /// dependent, or is cluster-scoped. An object in another namespace, or with the same name and another UID, is not
    /// the owner. Upstream: `isDangling`.
    fn resolve_owner(
        &self,
        object: &TrackedObject,
        owner: &OwnerReference,
        now: Time,
    ) -> Option<OwnerLookup> {
        match self.owner_identity(object, owner).and_then(|it| self.cached_owner(&it, now)) {
            Some((_, state, until)) => Some(OwnerLookup { state: *state, until: Some(*until) }),
            None => self
                .watched_owner(object, owner)
                .map(|it| OwnerLookup { state: it.owner_state(), until: None }),
        }
    }

    /// Returns the entry of the owner cache for this owner. `None` if the cache has no such entry, or if the entry has
    /// expired.
    fn cached_owner(
        &self,
        identity: &ObjectIdentity,
        now: Time,
    ) -> Option<&(ObjectIdentity, OwnerState, Time)> {
        let mut owner_cache = self.owner_cache.get(&identity.uid).into_iter().flatten();
        owner_cache.find(|(it, _, until)| it == identity && now < *until)
    }

    /// Returns the object that an owner reference names. `None` if the graph does not contain that object.
    fn watched_owner(&self, object: &TrackedObject, owner: &OwnerReference) -> Option<&Arc<TrackedObject>> {
        let is_it = |it: &&Arc<TrackedObject>| {
            let is_in_scope = !it.resource.namespaced || it.key.namespace == object.key.namespace;
            is_in_scope && it.resource.kind == owner.kind && it.key.name == owner.name
        };
        self.objects.get(&owner.uid).filter(is_it)
    }

    /// Returns the identity of the owner that an owner reference names. `None` if the API server does not serve the
    /// owner's kind, if the owner's kind is namespaced while the dependent is cluster-scoped, or if the reference has
    /// no name.
    fn owner_identity(&self, object: &TrackedObject, owner: &OwnerReference) -> Option<ObjectIdentity> {
        let is_it = |it: &&Arc<Resource>| it.kind == owner.kind && it.has_api_version(&owner.api_version);
        let resource = self.served.iter().find(is_it).filter(|_| !owner.name.is_empty())?.clone();
        let namespace = match (resource.namespaced, object.resource.namespaced) {
            (true, false) => return None,
            (true, true) => object.key.namespace.clone(),
            (false, _) => Text::from(""),
        };
        let key = ObjectKey { namespace, name: owner.name.clone() };
        Some(ObjectIdentity { resource, key, uid: owner.uid.clone() })
    }

    /// Stores the outcome of [`GarbageCollectorCall::Read`] in the owner cache, and returns the UIDs of the objects that
    /// waited for the read. After a failed read, nothing is cached, and these objects back off.
    fn apply_owner_read(&mut self, identity: &ObjectIdentity, outcome: Outcome, now: Time) -> BTreeSet<Text> {
        let waiting = self.pending_reads.remove(identity).unwrap_or_default();
        let read = match outcome {
            Outcome::Done(object) => {
                decode::decode_object(&identity.resource, &object, &mut Interner::default())
                    .map_err(|_| CallError::NoAnswer)
            }
            Outcome::Refused(refusal) => Err(refusal),
        };
        let state = match read {
            // A node is read by name only.
            Ok(object) if object.uid == identity.uid || identity.uid.is_empty() => object.owner_state(),
            Ok(_) | Err(CallError::NotFound) => OwnerState::Absent,
            Err(refusal) => {
                for uid in &waiting {
                    self.attempts.entry(uid.clone()).or_default().record_failure(&refusal, now);
                }
                return waiting;
            }
        };
        if OWNER_CACHE_MAX <= self.owner_cache.len() {
            self.owner_cache.clear();
        }
        let owner_cache = self.owner_cache.entry(identity.uid.clone()).or_default();
        owner_cache.retain(|(it, _, until)| it != identity && now < *until);
        owner_cache.push((identity.clone(), state, now + OWNER_CACHE_TTL));
        waiting
    }
}

#[cfg(test)]
mod tests;
