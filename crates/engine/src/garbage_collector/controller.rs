//! Implements [`Controller`] for [`GarbageCollector`].

use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use super::{Call, CallOutcome, GarbageCollector, GraphEvent, TrackedObject, decode, request};
use crate::controller::{
    self, CallError, Controller, DecodedObject, Malformed, Reconcile, Request, Requeue, Watch,
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
    type Call = Call;

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

    fn apply(&mut self, event: controller::Event<TrackedObject>, _: Time) -> Vec<Text> {
        let event = match event {
            controller::Event::Listed { kind, facts, .. } => {
                GraphEvent::Listed { resource: self.watched[kind].clone(), objects: facts }
            }
            controller::Event::Applied { fact, .. } => GraphEvent::Applied(fact),
            controller::Event::Deleted { fact, .. } => GraphEvent::Deleted { uid: fact.uid },
        };
        GarbageCollector::apply(self, event).into_iter().collect()
    }

    fn reconcile(&mut self, uid: &Text, now: Time) -> Reconcile<Call> {
        GarbageCollector::reconcile(self, uid, now)
    }

    fn request(call: &Call) -> Request {
        request(call)
    }

    fn apply_outcome(&mut self, call: &Call, outcome: controller::Outcome, now: Time) -> Requeue<Text> {
        let outcome = match (outcome, call) {
            (controller::Outcome::Refused(refusal), _) => CallOutcome::Refused(refusal),
            (controller::Outcome::Done(answer), Call::Read(it)) => {
                match decode::decode_object(&it.resource, &answer, &mut Interner::default()) {
                    Ok(object) => CallOutcome::Found(object),
                    Err(_) => CallOutcome::Refused(CallError::NoAnswer),
                }
            }
            (controller::Outcome::Done(_), _) => CallOutcome::Done,
        };
        let keys: Vec<Text> = GarbageCollector::apply_outcome(self, call, outcome, now).into_iter().collect();
        keys.into()
    }
}
