//! The interface of all controllers, and the code that they share. A controller keeps facts (the fields of API objects
//! that it reads, decoded), and returns keys to reconcile and API calls to make.
//!
//! A [`Controller`] decides; a [`WorkQueue`] holds the keys to reconcile. Neither does IO. A runner drives them. The
//! runner is either a task with a clock and an API client, or the simulator:
//!
//! 1. The runner lists and watches the kinds of [`Controller::watches`], and passes each event to [`WorkQueue::apply`].
//! 2. It calls [`WorkQueue::reconcile_due`], makes the API calls that this function returns, and records the events.
//! 3. It passes the outcome of each API call to [`WorkQueue::apply_outcome`], and continues with 2. It makes the
//!    measurements of rollout checks in the background, and passes their results to [`WorkQueue::apply_measurement`].
//!    It also continues with 2 after each event, and at `wake_at`.

/// API calls of controllers: their requests, outcomes and errors.
mod call;
/// Event correlation: decides which events become new Kubernetes Events, which increment a count, and which are
/// dropped.
pub mod events;
/// Applies list and watch events to the facts of a controller.
mod fact_store;
/// Leader election: decides when a replica acquires, renews or loses the Lease.
pub mod lease;
/// Measurements of rollout checks by Prometheus queries and webhooks, and the evaluation of the responses.
pub mod measurement;
/// When the next call about an object may be made: after a backoff if the last call failed.
pub(crate) mod retry;
/// An in-memory API server for tests of controllers.
#[cfg(test)]
pub(crate) mod test_cluster;
/// Decodes the lines of a watch response into watch events.
mod watch_event;
/// The work queue of a controller: the keys to reconcile, and the calls in flight.
mod work_queue;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

pub use call::{Accept, CallError, EncodedRequest, Outcome, PatchFormat, Priority, Request, Verb};
pub(crate) use call::{WrittenObject, delete_options, new_controller_ref};
pub(crate) use fact_store::{FactStore, apply_event};
pub use measurement::{Measurement, MeasurementRequest, MeasurementResult};
pub use muster_api::backoff::{Backoff, BackoffPolicy};
use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
pub(crate) use watch_event::decode_watch_line;
pub use watch_event::{Malformed, WatchEvent};
pub use work_queue::WorkQueue;

/// Watches some kinds, keeps facts about their objects, and returns the API calls to make for a key. Upstream: a
/// controller of kube-controller-manager, or `Reconciler` in controller-runtime.
pub trait Controller {
    /// The type of the facts: the fields of an object that the controller keeps in memory.
    type DecodedObject: DecodedObject;
    /// The key of an entry in the work queue, usually namespace and name of an object.
    type Key: Ord + Clone;
    /// An API call that a reconcile returns. `Display` is for logs and tests.
    type Call: Clone + fmt::Display;

    /// Returns the kinds to list and watch.
    fn watches(&self) -> Vec<Watch>;

    /// Decodes one object of a watched kind. `object` is its JSON. `shared` interns strings that several facts have in
    /// common.
    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<Self::DecodedObject, Malformed>;

    /// Decodes the last state of a deleted object. By default it is decoded like any other object. A controller can
    /// override this to decode fewer fields.
    fn decode_deleted(
        watch: &Watch,
        object: &[u8],
        shared: &mut Interner,
    ) -> Result<Self::DecodedObject, Malformed> {
        Self::decode(watch, object, shared)
    }

    /// Applies a list or watch event to the facts, and returns the keys to reconcile. The work queue reconciles no key
    /// before every watched kind was listed. An optional kind that is forbidden need not be listed.
    fn apply(&mut self, event: Event<Self::DecodedObject>, now: Time) -> Vec<Self::Key>;

    /// Applies a bookmark, which shows that the watch of a kind has delivered all events up to this resource version.
    /// `_kind` is the index of the kind in [`Controller::watches`]. Returns the keys to reconcile.
    fn apply_bookmark(&mut self, _kind: usize, _resource_version: u64) -> Vec<Self::Key> {
        Vec::new()
    }

    /// Records that the API server forbids the controller to list an optional kind. `_kind` is the index of the kind in
    /// [`Controller::watches`]. Returns the keys to reconcile.
    fn on_forbidden(&mut self, _kind: usize) -> Vec<Self::Key> {
        Vec::new()
    }

    /// Whether a key may be reconciled now. If not, the key stays in the queue.
    fn may_reconcile(&self, _key: &Self::Key) -> bool {
        true
    }

    /// Whether a plan for this key is being executed: calls of an earlier reconcile are still to be made or have no
    /// outcome yet. While this is true, a reconcile of the key returns only further calls of that plan. False for a
    /// controller without plans.
    fn is_executing(&self, _key: &Self::Key) -> bool {
        false
    }

    /// Returns the calls to make for a key. Calls of an earlier reconcile that are still in flight are not returned
    /// again.
    fn reconcile(&mut self, key: &Self::Key, now: Time) -> Reconcile<Self::Call>;

    /// Returns the API request of a call.
    fn request(call: &Self::Call) -> Request;

    /// Returns the API request of a call, with its body serialized.
    fn encode(call: &Self::Call) -> EncodedRequest {
        Self::request(call).into()
    }

    /// Applies the outcome of a call. Returns the keys to reconcile, and the events to record.
    fn apply_outcome(&mut self, call: &Self::Call, outcome: Outcome, now: Time) -> Requeue<Self::Key>;

    /// Applies the result of a measurement of a rollout check, and returns the keys to reconcile. Only a controller
    /// whose reconcile returns measurements has to implement this function.
    fn apply_measurement(
        &mut self,
        _measurement: &Measurement,
        _measured: &MeasurementResult,
        _now: Time,
    ) -> Vec<Self::Key> {
        Vec::new()
    }

    /// Returns the key whose reconcile returned this call. `None` if the controller cannot recover from a panic during
    /// [`Controller::apply_outcome`].
    fn key_of(_call: &Self::Call) -> Option<Self::Key> {
        None
    }

    /// Recovers from a panic during the reconcile of this key, or while the outcome of one of its calls was applied.
    /// Returns the time at which to reconcile the key again, or `None` if the controller cannot recover.
    fn recover(&mut self, _key: &Self::Key, _now: Time) -> Option<Time> {
        None
    }
}

/// The fields of an API object that a controller keeps in memory, decoded.
pub trait DecodedObject {
    /// Returns namespace and name of the object. The namespace is empty for a cluster-scoped kind.
    fn key(&self) -> ObjectKey;
    fn resource_version(&self) -> u64;

    /// Whether the controller keeps the object in memory. The reflector drops objects that are not relevant from lists,
    /// but delivers their watch events.
    fn is_relevant(&self) -> bool {
        true
    }
}

/// A kind that the API server serves: its group, version, names and scope. Upstream: `APIResource`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Text,
    pub version: Text,
    /// Name of the kind, such as `DaemonSet`.
    pub kind: Text,
    /// Plural name in URL paths, such as `daemonsets`.
    pub plural: Text,
    /// Whether objects of the kind are in a namespace. Otherwise the kind is cluster-scoped.
    pub namespaced: bool,
}

impl Resource {
    /// Returns the `apiVersion` of objects of the kind, such as `apps/v1`.
    pub fn api_version(&self) -> String {
        match &*self.group {
            "" => self.version.as_ref().into(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Whether `api_version`, as in an owner reference, is the group and version of this resource.
    pub(crate) fn has_api_version(&self, api_version: &str) -> bool {
        match api_version.split_once('/') {
            Some((group, version)) => *self.group == *group && *self.version == *version,
            None => self.group.is_empty() && *self.version == *api_version,
        }
    }

    /// Returns the URL path of the objects of this kind in one namespace, or in all namespaces if `namespace` is
    /// `None`. The namespace is ignored for a cluster-scoped kind.
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
        let (group, version, plural) = (&self.group, &self.version, &self.plural);
        let mut path =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            path = format!("{path}/namespaces/{namespace}");
        }
        format!("{path}/{plural}")
    }

    /// Returns the URL path of one object.
    pub fn path(&self, key: &ObjectKey) -> String {
        format!("{}/{}", self.collection_path(Some(&key.namespace)), percent_encode(&key.name))
    }
}

/// The characters that are percent-encoded in URLs: all except letters, digits, and those that have no special meaning
/// in a segment of a path or in the value of a query parameter.
const ENCODED_IN_URLS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// Percent-encodes a text as a segment of a URL path or as the value of a query parameter. A segment may be any text,
/// because it may be the name in an owner reference.
pub(crate) fn percent_encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, ENCODED_IN_URLS)
}

/// A kind that a controller lists and watches. The watch delivers whole objects or only their metadata. Upstream: an
/// informer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    pub resource: Arc<Resource>,
    /// Whether the watch delivers only the metadata of objects (`PartialObjectMetadata`).
    pub metadata_only: bool,
    /// Whether the controller works without this kind. If the API server does not serve an optional kind, an empty list
    /// is delivered. If the API server forbids the list, [`Controller::on_forbidden`] is called.
    pub is_optional: bool,
}

impl Watch {
    /// Creates a watch that delivers whole objects.
    pub fn whole_objects(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        let resource = Resource {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
            namespaced,
        };
        Self { resource: Arc::new(resource), metadata_only: false, is_optional: false }
    }

    /// Creates a watch that delivers only the metadata of objects.
    pub fn metadata(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        Self { metadata_only: true, ..Self::whole_objects(group, version, kind, plural, namespaced) }
    }
}

/// A list or a watch event, with decoded objects. `kind` is the index of their kind in [`Controller::watches`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<F> {
    /// All objects of a kind were listed. An object that is not in the list does not exist, is not relevant
    /// ([`DecodedObject::is_relevant`]) or could not be decoded.
    Listed { kind: usize, facts: Vec<F>, resource_version: u64 },
    /// The object was added or modified.
    Applied { kind: usize, fact: F },
    /// The object was deleted. Holds the last state of the object.
    Deleted { kind: usize, fact: F },
}

/// The result of a reconcile: the calls and measurements to make, the events to record, and when to reconcile again.
#[must_use = "the runner makes the calls"]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reconcile<C> {
    pub calls: Vec<C>,
    /// Measurements of rollout checks to make in the background. The runner passes each result to
    /// [`WorkQueue::apply_measurement`].
    pub measurements: Vec<Arc<Measurement>>,
    pub events: Vec<EventRecord>,
    /// Time at which to reconcile the key again even without an event. It replaces the time that the previous reconcile
    /// returned. In the result of [`WorkQueue::take_work`], the earliest such time of all keys. `None` if there is no
    /// such time.
    pub wake_at: Option<Time>,
    /// Whether to list every kind again, because the watches have not delivered the controller's own writes for too
    /// long.
    pub relist: bool,
}

impl<C> Default for Reconcile<C> {
    fn default() -> Self {
        Self { calls: Vec::new(), measurements: Vec::new(), events: Vec::new(), wake_at: None, relist: false }
    }
}

/// The result of applying the outcome of a call: the keys to reconcile, and the events to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requeue<K> {
    pub keys: Vec<K>,
    pub events: Vec<EventRecord>,
}

impl<K> Default for Requeue<K> {
    fn default() -> Self {
        Self { keys: Vec::new(), events: Vec::new() }
    }
}

impl<K> From<Vec<K>> for Requeue<K> {
    fn from(keys: Vec<K>) -> Self {
        Self { keys, ..Self::default() }
    }
}

/// A Kubernetes Event to record, and the object that the Event is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventRecord {
    /// Refers to the object that the Event is about (`involvedObject`).
    pub about: ObjectReference,
    pub event: KubeEvent,
}

/// Type, reason and message of a Kubernetes Event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KubeEvent {
    /// Whether the type of the Event is `Warning`. Otherwise it is `Normal`.
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

impl KubeEvent {
    /// Creates an event of type `Normal`.
    pub fn normal(reason: &'static str, message: String) -> Self {
        Self { warning: false, reason, message }
    }

    /// Creates an event of type `Warning`.
    pub fn warning(reason: &'static str, message: String) -> Self {
        Self { warning: true, reason, message }
    }
}

/// Refers to one version of an object. Upstream: `ObjectReference`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectReference {
    pub api_version: Text,
    pub kind: Text,
    /// Namespace and name of the object. The namespace is empty for a cluster-scoped kind.
    pub key: ObjectKey,
    pub uid: Text,
    /// The `resourceVersion` of the object; zero if unknown.
    pub resource_version: u64,
}

impl ObjectReference {
    /// Refers to an object of the kind `kind`. The other arguments are those of the fields.
    pub fn new(api_version: &str, kind: &str, key: ObjectKey, uid: Text, resource_version: u64) -> Self {
        Self { api_version: api_version.into(), kind: kind.into(), key, uid, resource_version }
    }

    /// Refers to a pod. The arguments are those of the fields.
    pub(crate) fn to_pod(key: &ObjectKey, uid: &Text, resource_version: u64) -> Self {
        Self::new("v1", "Pod", key.clone(), uid.clone(), resource_version)
    }
}

/// Decodes one line of a watch response, `{"type":…,"object":…}`, of a kind that the controller `C` watches.
pub fn decode_watch_event<C: Controller>(
    watch: &Watch,
    line: &[u8],
    shared: &mut Interner,
) -> Result<WatchEvent<C::DecodedObject>, Malformed> {
    decode_watch_line(&watch.resource.plural, line, |is_deleted, object| {
        let decode = if is_deleted { C::decode_deleted } else { C::decode };
        decode(watch, object, shared)
    })
}
