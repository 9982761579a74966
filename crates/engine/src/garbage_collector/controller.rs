//! Implements [`Controller`] and [`FactStore`] for [`GarbageCollector`].

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use super::{GarbageCollector, GarbageCollectorCall, TrackedObject, decode, request};
use crate::controller::{
    self, CallError, Controller, DecodedObject, Event, FactStore, Malformed, Outcome, Reconcile, Request,
    Requeue, Watch,
};

impl DecodedObject for TrackedObject {
    fn key(&self) -> ObjectKey {
        self.key.clone()
    }

    fn resource_version(&self) -> u64 {
        self.resource_version
    }
}

impl Controller for GarbageCollector {
    type DecodedObject = TrackedObject;
    /// The UID of the object to reconcile.
    type Key = Text;
    type Call = GarbageCollectorCall;

    fn watches(&self) -> Vec<Watch> {
        let watch = |it: &Arc<_>| Watch {
            metadata_only: !decode::needs_whole_object(it),
            resource: it.clone(),
            is_optional: false,
        };
        self.watched.iter().map(watch).collect()
    }

    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<TrackedObject, Malformed> {
        decode::decode_object(&watch.resource, object, shared)
            .map_err(|source| Malformed::new(&watch.resource.plural, source))
    }

    /// Returns no keys before all watched kinds have been listed.
    fn apply(&mut self, event: Event<TrackedObject>, now: Time) -> Vec<Text> {
        let mut keys = BTreeSet::new();
        let listed = if let Event::Listed { kind, .. } = &event { Some(*kind) } else { None };
        controller::apply_event(self, event, now, &mut keys);
        let is_first_list = listed.is_some_and(|kind| self.unlisted.remove(&self.watched[kind]));
        if !self.unlisted.is_empty() {
            return Vec::new();
        }
        if is_first_list {
            keys = self.objects.keys().cloned().collect();
        }
        keys.into_iter().collect()
    }

    fn reconcile(&mut self, uid: &Text, now: Time) -> Reconcile<GarbageCollectorCall> {
        GarbageCollector::reconcile(self, uid, now)
    }

    fn request(call: &GarbageCollectorCall) -> Request {
        request(call)
    }

    fn apply_outcome(&mut self, call: &GarbageCollectorCall, outcome: Outcome, now: Time) -> Requeue<Text> {
        let keys = match call {
            GarbageCollectorCall::Read(identity) => {
                self.apply_owner_read(identity, outcome, now).into_iter().collect()
            }
            GarbageCollectorCall::Delete { object, .. }
            | GarbageCollectorCall::RemoveOwners { object, .. }
            | GarbageCollectorCall::UnblockOwners { object }
            | GarbageCollectorCall::RemoveFinalizer { object, .. }
            | GarbageCollectorCall::MarkPodFailed { object, .. }
            | GarbageCollectorCall::ForceDeletePod { object, .. } => {
                // There is no attempt if the object was deleted meanwhile.
                let Some(attempt) = self.attempts.get_mut(&object.uid) else { return Requeue::default() };
                match outcome {
                    Outcome::Done(_) | Outcome::Refused(CallError::NotFound) => {
                        attempt.expect_version(object.resource_version.saturating_add(1), now);
                    }
                    Outcome::Refused(refusal) => attempt.record_failure(&refusal, now),
                }
                Vec::from([object.uid.clone()])
            }
        };
        keys.into()
    }
}

impl FactStore for GarbageCollector {
    /// The UID of the object.
    type Id = Text;
    type Keys = BTreeSet<Text>;

    fn id(fact: &TrackedObject) -> Text {
        fact.uid.clone()
    }

    fn stored_ids(&self, kind: usize) -> Vec<Text> {
        let of_kind = self.objects.values().filter(|it| it.resource == self.watched[kind]);
        of_kind.map(|it| it.uid.clone()).collect()
    }

    /// Adds or updates an object, and adds to `keys` the UIDs of the objects to reconcile. Ignores an object without a
    /// UID.
    fn put(&mut self, object: TrackedObject, _: Time, keys: &mut BTreeSet<Text>) {
        if object.uid.is_empty() {
            return;
        }
        let uid = object.uid.clone();
        self.owner_cache.remove(&uid);
        let before = self.objects.get(&uid).cloned();
        let old_owners = before.as_ref().map_or(&[][..], |it| &it.owners);
        let is_same = before.as_ref().is_some_and(|it| {
            it.owners == object.owners
                && it.deleting == object.deleting
                && it.finalizers == object.finalizers
                && it.pod == object.pod
        });
        self.pod_gc.update(before.as_deref(), Some(&object), keys);
        if !is_same {
            for owner in old_owners {
                self.remove_dependent(&owner.uid, &uid, keys);
            }
            for owner in &object.owners {
                self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
            }
            if before.as_ref().map(|it| it.owner_state()) != Some(object.owner_state()) {
                keys.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
            }
        }
        if !is_same || self.attempts.contains_key(&uid) {
            keys.insert(uid.clone());
        }
        self.objects.insert(uid, Arc::new(object));
    }

    fn remove(&mut self, _: usize, uid: &Text, _: Time, keys: &mut BTreeSet<Text>) {
        let Some(object) = self.objects.remove(uid) else { return };
        self.owner_cache.remove(uid);
        self.attempts.remove(uid);
        self.dependents_visible_at.remove(uid);
        self.pod_gc.update(Some(&object), None, keys);
        for owner in &object.owners {
            self.remove_dependent(&owner.uid, uid, keys);
        }
        keys.extend(self.dependents.get(uid).into_iter().flatten().cloned());
    }
}
