//! The graph as one loop among others.

use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::interner::Interner;
use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use super::{Call, Event, Graph, Object, Outcome, Raw, request};
use crate::controller::{self, Controller, Fact, Reconcile, Request, Requeue, Watch};
use crate::daemonset::execution::Refusal;
use crate::daemonset::facts::Malformed;

impl Fact for Object {
    fn key(&self) -> ObjectKey {
        self.key.clone()
    }

    fn resource_version(&self) -> u64 {
        self.resource_version
    }
}

impl Controller for Graph {
    type Fact = Object;
    /// A UID.
    type Key = Text;
    type Call = Call;

    fn watches(&self) -> Vec<Watch> {
        let watch = |it: &Arc<_>| Watch { metadata_only: !Raw::is_read_whole(it), resource: it.clone() };
        self.watched.iter().map(watch).collect()
    }

    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<Object, Malformed> {
        let raw: Raw = serde_json::from_slice(object)
            .map_err(|source| Malformed::new(&watch.resource.plural, source))?;
        Ok(raw.object(&watch.resource, shared))
    }

    fn apply(&mut self, event: controller::Event<Object>, _: Time) -> Vec<Text> {
        let event = match event {
            controller::Event::Listed { kind, facts } => {
                Event::Listed { resource: self.watched[kind].clone(), objects: facts }
            }
            controller::Event::Applied { fact, .. } => Event::Applied(fact),
            controller::Event::Deleted { fact, .. } => Event::Deleted { uid: fact.uid },
        };
        Graph::apply(self, event).into_iter().collect()
    }

    fn reconcile(&mut self, uid: &Text, now: Time) -> Reconcile<Call> {
        Graph::reconcile(self, uid, now)
    }

    fn request(call: &Call) -> Request {
        request(call)
    }

    fn done(&mut self, call: &Call, outcome: controller::Outcome, now: Time) -> Requeue<Text> {
        let outcome = match (outcome, call) {
            (controller::Outcome::Refused(refusal), _) => Outcome::Refused(refusal),
            (controller::Outcome::Done(answer), Call::Read(it)) => {
                match serde_json::from_slice::<Raw>(&answer) {
                    Ok(raw) => Outcome::Found(raw.object(&it.resource, &mut Interner::default())),
                    Err(_) => Outcome::Refused(Refusal::NoAnswer),
                }
            }
            (controller::Outcome::Done(_), _) => Outcome::Done,
        };
        let keys: Vec<Text> = Graph::done(self, call, outcome, now).into_iter().collect();
        keys.into()
    }
}
