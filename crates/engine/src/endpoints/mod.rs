//! The endpoints controllers: they write the Endpoints and EndpointSlices of Services with a selector, and
//! EndpointSlices that mirror the Endpoints of Services without a selector.
//!
//! An event only enqueues the Services that it concerns. The endpoints of a Service are computed when the Service is
//! reconciled, and written at most once per second, however many pods change. So a rollout of 5,000 pods writes some
//! slices each second, not one slice for each pod. Upstream: `pkg/controller/endpoint`, `endpointslice` and
//! `endpointslicemirroring`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::interner::Interner;
use muster_api::object_key::{ObjectKey, entries_in_namespace_mut};
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::LABEL_SERVICE_NAME;

pub use call::{EndpointsCall, EndpointsDraft, EndpointsWrite, SliceDraft};
pub use facts::{
    Address, Endpoint, EndpointHints, EndpointPort, Endpoints, EndpointsObject, IpFamily, Node, Pod, Service,
    ServicePort, Slice, SliceOwner, Subset, TargetPort, TargetRef, TrafficDistribution,
};

use self::slices::NodeZones;
use crate::controller::retry::{Attempt, NextAttempt, WATCH_DELAY_MAX};
use crate::controller::{
    self, CallError, Controller, DecodedObject as _, Event, EventRecord, FactStore, KubeEvent, Malformed,
    Outcome, Reconcile, Request, Requeue, Watch, WrittenObject,
};

/// The calls of the endpoints controllers and their API requests.
mod call;
/// Decodes the objects that the endpoints controllers watch.
mod decode;
/// Facts: the fields of objects that the endpoints controllers read.
mod facts;
/// Computes the EndpointSlices that mirror the Endpoints of a Service without a selector.
mod mirror;
/// Computes the EndpointSlices of a Service with a selector.
mod slices;
/// Computes the Endpoints of a Service with a selector.
mod subsets;

/// Minimum time between two reconciles of a Service that write. Changes within this time are batched. A reconcile that
/// only deletes slices does not count. Upstream: `endpoint-updates-batch-period`.
const BATCH_PERIOD: Duration = Duration::from_secs(1);

/// Delay before a Service is reconciled again after a create failed because the namespace is terminating. The namespace
/// may be created again under the same name.
const NAMESPACE_TERMINATING_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Label `service.kubernetes.io/headless` of the Endpoints and EndpointSlices of a headless Service.
const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";
/// Label `kubernetes.io/service-name` of an EndpointSlice. Its value is the name of the Service.
const SERVICE_NAME_LABEL: &str = LABEL_SERVICE_NAME;
/// Label `endpointslice.kubernetes.io/managed-by` of an EndpointSlice. Its value is the name of the controller that
/// manages the slice.
const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
/// Annotation of Endpoints and EndpointSlices. Its value is the time of the first change that the last write contains.
const TRIGGER_TIME_ANNOTATION: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Annotation of Endpoints from which addresses were left out because there were more than 1000.
const OVER_CAPACITY_ANNOTATION: &str = "endpoints.kubernetes.io/over-capacity";

/// The endpoints controllers: all Services with their pods, Endpoints and EndpointSlices.
#[derive(Debug, Default)]
pub struct EndpointsController {
    /// The state of each Service, by namespace and name. The Endpoints of the Service have the same name. Its
    /// EndpointSlices have that name in the label `kubernetes.io/service-name`.
    services: BTreeMap<ObjectKey, ServiceState>,
    pods: BTreeMap<ObjectKey, Arc<Pod>>,
    /// Namespaces and names of the pods on each node, by node name.
    by_node: BTreeMap<Text, BTreeSet<ObjectKey>>,
    /// The zone of each node.
    zones: NodeZones,
    /// The key of the Service of each EndpointSlice, by the key of the slice.
    slices: BTreeMap<ObjectKey, ObjectKey>,
    /// Whether the Endpoints have been listed once. Endpoints of the first list that have no Service count as orphaned.
    endpoints_were_listed: bool,
}

/// A Service with its pods, Endpoints and EndpointSlices, and the state of its writes.
#[derive(Debug, Default)]
struct ServiceState {
    /// The Service. `None` if it does not exist.
    service: Option<Arc<Service>>,
    /// Names of the pods that the Service selects.
    selected_pods: BTreeSet<Text>,
    endpoints: Option<Arc<Endpoints>>,
    /// The EndpointSlices of the Service that these controllers manage, by name.
    slices: BTreeMap<Text, Arc<Slice>>,
    /// Whether the Endpoints are deleted if no Service with their name exists. False for Endpoints that appeared after
    /// the first list, until a Service with their name is deleted: their Service may not have been created yet.
    endpoints_are_orphaned: bool,
    /// The time of the first change of the Service's endpoints that is not written yet.
    trigger: WriteTrigger,
    /// Number of calls for the Service whose outcome is not known yet.
    calls_in_flight: usize,
    /// The object states that the watches must still deliver after the last writes of this controller, by kind and name
    /// of the written object.
    expected: BTreeMap<(WrittenKind, Text), ExpectedState>,
    /// Time until which the Service waits for the watches to deliver the writes in `expected`.
    expected_until: Time,
    /// The state of the last writes for the Service. After a failure they are retried together.
    attempt: Attempt,
    /// Time before which nothing is written for the Service: the end of the batch period, or of the delay for a
    /// terminating namespace. `None` if there is no such time.
    not_before: Option<Time>,
}

/// The kinds that the endpoints controllers write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum WrittenKind {
    Endpoints,
    Slice,
}

/// The state of a written object that its watch must deliver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ExpectedState {
    /// The watch must deliver this resource version of the object, or a newer one.
    Version(u64),
    Deleted,
}

/// The source of the annotation `last-change-trigger-time`: the time of the first change that is not written yet.
/// Upstream: `TriggerTimeTracker`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum WriteTrigger {
    /// No endpoints have been computed for the Service yet. The creation time of the Service is the trigger time.
    #[default]
    Service,
    /// The trigger time is the earliest readiness change of a pod since the last write. `None` if there was none.
    Pod(Option<Time>),
}

impl WriteTrigger {
    /// Records the time of a change of a pod's readiness. Does nothing before the endpoints are computed for the first
    /// time, because until then the trigger time is the creation time of the Service.
    fn record_change(&mut self, ready_changed_at: Option<Time>) {
        if let Self::Pod(first) = self {
            *first = muster_api::time::earliest(*first, ready_changed_at);
        }
    }
}

impl ServiceState {
    /// Whether nothing is stored about the Service, so that its entry can be removed.
    fn is_empty(&self) -> bool {
        self.service.is_none()
            && self.endpoints.is_none()
            && self.slices.is_empty()
            && self.calls_in_flight == 0
    }

    /// Returns the slices that `controller` manages according to their label `managed-by`, and that are not being
    /// deleted.
    fn slices_managed_by(&self, controller: &str) -> Vec<&Arc<Slice>> {
        self.slices.values().filter(|it| it.label(MANAGED_BY_LABEL) == controller && !it.deleting).collect()
    }

    /// Returns the last resource version of an object that its watch delivered. `None` if the watch has not delivered
    /// the object, or has delivered its deletion.
    fn watched_version(&self, kind: WrittenKind, name: &Text) -> Option<u64> {
        match kind {
            WrittenKind::Endpoints => self.endpoints.as_ref().map(|it| it.resource_version),
            WrittenKind::Slice => self.slices.get(name).map(|it| it.resource_version),
        }
    }

    /// Resets the backoff and the batch period. Does nothing while calls are in flight. Called after the Service was
    /// created or deleted, or its selector has changed.
    fn reset_backoff(&mut self) {
        if self.calls_in_flight == 0 {
            (self.attempt, self.not_before) = (Attempt::None, None);
        }
    }

    /// Returns the earliest time of the next write for the Service. Before a write, the watches must have delivered the
    /// last writes, and the batch period and any backoff must have ended. `None` if a write is allowed now. Called when
    /// no call is in flight: also resets `attempt` if no call failed.
    fn earliest_write_at(&mut self, now: Time) -> Option<Time> {
        // All calls have ended, and none failed.
        if let Attempt::InFlight { .. } = self.attempt {
            self.attempt = Attempt::None;
        }
        let failed = match self.attempt.next_attempt(0, now) {
            NextAttempt::At(at) => Some(at),
            NextAttempt::Now | NextAttempt::AfterOutcome => None,
        };
        let expected = (!self.expected.is_empty()).then_some(self.expected_until);
        // A clock that was set back must not make a wait longer.
        let is_ahead = |at: &Time, most: Duration| now < *at && at.since(now) <= most;
        let expected = expected.filter(|it| is_ahead(it, WATCH_DELAY_MAX));
        let not_before = self.not_before.filter(|it| is_ahead(it, NAMESPACE_TERMINATING_RETRY_DELAY));
        failed.max(expected).max(not_before)
    }

    /// Removes from `expected` the entries of the writes that the watches have delivered.
    fn drop_delivered_writes(&mut self) {
        let mut expected = core::mem::take(&mut self.expected);
        expected.retain(|(kind, name), it| match (it, self.watched_version(*kind, name)) {
            (ExpectedState::Version(version), shown) => shown.is_none_or(|shown| shown < *version),
            (ExpectedState::Deleted, shown) => shown.is_some(),
        });
        self.expected = expected;
    }
}

impl Controller for EndpointsController {
    type DecodedObject = EndpointsObject;
    type Key = ObjectKey;
    type Call = EndpointsCall;

    fn watches(&self) -> Vec<Watch> {
        [
            Watch::whole_objects("", "v1", "Service", "services", true),
            Watch::whole_objects("", "v1", "Pod", "pods", true),
            Watch::metadata("", "v1", "Node", "nodes", false),
            Watch::whole_objects("", "v1", "Endpoints", "endpoints", true),
            Watch::whole_objects("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true),
        ]
        .into()
    }

    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<EndpointsObject, Malformed> {
        decode::decode_fact(watch, object, shared)
    }

    fn apply(&mut self, event: Event<EndpointsObject>, now: Time) -> Vec<ObjectKey> {
        let mut keys = BTreeSet::new();
        let lists_endpoints = matches!(event, Event::Listed { kind: ENDPOINTS_WATCH, .. });
        controller::apply_event(self, event, now, &mut keys);
        if lists_endpoints && !core::mem::replace(&mut self.endpoints_were_listed, true) {
            self.services.values_mut().for_each(|it| it.endpoints_are_orphaned = true);
        }
        keys.into_iter().collect()
    }

    fn reconcile(&mut self, key: &ObjectKey, now: Time) -> Reconcile<EndpointsCall> {
        let Some(state) = self.services.get_mut(key) else { return Reconcile::default() };
        if 0 < state.calls_in_flight {
            return Reconcile::default();
        }
        state.drop_delivered_writes();
        if let Some(wake_at) = state.earliest_write_at(now) {
            return Reconcile { wake_at: Some(wake_at), ..Reconcile::default() };
        }
        state.expected.clear();
        let (mut writes, events) = writes_for_service(key, state, &self.pods, &self.zones);
        if writes.is_empty() {
            (state.attempt, state.not_before) = (Attempt::None, None);
            if state.is_empty() {
                self.services.remove(key);
            }
            return Reconcile::default();
        }
        // Slices are deleted only after those that replace them were written.
        let is_delete = |it: &EndpointsWrite| matches!(it, EndpointsWrite::DeleteSlice(_));
        if writes.iter().all(is_delete) {
            state.not_before = None;
        } else {
            writes.retain(|it| !is_delete(it));
            state.not_before = Some(now + BATCH_PERIOD);
        }
        state.calls_in_flight = writes.len();
        state.attempt.begin();
        let calls = writes.into_iter().map(|write| EndpointsCall { service: key.clone(), write }).collect();
        Reconcile { calls, events, ..Reconcile::default() }
    }

    fn request(call: &EndpointsCall) -> Request {
        call::request(call)
    }

    fn apply_outcome(&mut self, call: &EndpointsCall, outcome: Outcome, now: Time) -> Requeue<ObjectKey> {
        let Some(state) = self.services.get_mut(&call.service) else { return Requeue::default() };
        state.calls_in_flight = state.calls_in_flight.saturating_sub(1);
        let mut events = Vec::new();
        let is_delete =
            matches!(call.write, EndpointsWrite::DeleteEndpoints(_) | EndpointsWrite::DeleteSlice(_));
        let outcome = match outcome {
            // It was deleted meanwhile.
            Outcome::Refused(CallError::NotFound) if is_delete => Outcome::Done(Vec::new()),
            outcome => outcome,
        };
        match outcome {
            Outcome::Done(body) => {
                state.expected.extend(expected_watch_state(&call.write, &body));
                state.expected_until = now + WATCH_DELAY_MAX;
            }
            Outcome::Refused(CallError::NamespaceTerminating) => {
                state.not_before = Some(now + NAMESPACE_TERMINATING_RETRY_DELAY);
            }
            Outcome::Refused(refusal) => {
                // Several failed calls of one reconcile count as one failure.
                if let Attempt::InFlight { .. } = state.attempt {
                    state.attempt.record_failure(&refusal, now);
                }
                events
                    .extend(state.service.as_ref().map(|it| write_failure_event(it, &call.write, &refusal)));
            }
        }
        Requeue { keys: Vec::from([call.service.clone()]), events }
    }
}

/// Index of the watch of Services in [`Controller::watches`].
const SERVICE_WATCH: usize = 0;
/// Index of the watch of pods in [`Controller::watches`].
const POD_WATCH: usize = 1;
/// Index of the watch of Nodes in [`Controller::watches`].
const NODE_WATCH: usize = 2;
/// Index of the watch of Endpoints in [`Controller::watches`].
const ENDPOINTS_WATCH: usize = 3;

impl FactStore for EndpointsController {
    type Id = ObjectKey;
    type Keys = BTreeSet<ObjectKey>;

    fn id(fact: &EndpointsObject) -> ObjectKey {
        fact.key()
    }

    fn stored_ids(&self, kind: usize) -> Vec<ObjectKey> {
        let services = |is_stored: fn(&ServiceState) -> bool| {
            let stored = self.services.iter().filter(move |(_, it)| is_stored(it));
            stored.map(|(key, _)| key.clone()).collect()
        };
        match kind {
            SERVICE_WATCH => services(|it| it.service.is_some()),
            POD_WATCH => self.pods.keys().cloned().collect(),
            NODE_WATCH => self.zones.keys().map(|it| ObjectKey::new("", it.clone())).collect(),
            ENDPOINTS_WATCH => services(|it| it.endpoints.is_some()),
            _ => self.slices.keys().cloned().collect(),
        }
    }

    fn put(&mut self, fact: EndpointsObject, _: Time, keys: &mut BTreeSet<ObjectKey>) {
        match fact {
            EndpointsObject::Service(service) => self.put_service(service, keys),
            EndpointsObject::Pod(pod) => {
                let before = self.pods.insert(pod.key.clone(), pod.clone());
                self.update_services_of_pod(before.as_deref(), Some(&pod), keys);
            }
            EndpointsObject::Node(node) => {
                let before = self.zones.insert(node.name.clone(), node.zone.clone());
                if before.as_ref() != Some(&node.zone) {
                    self.enqueue_services_of_node(&node.name, keys);
                }
            }
            EndpointsObject::Endpoints(endpoints) => {
                let state = self.services.entry(endpoints.key.clone()).or_default();
                keys.insert(endpoints.key.clone());
                state.endpoints = Some(endpoints);
            }
            EndpointsObject::Slice(slice) => self.put_slice(slice, keys),
        }
    }

    fn remove(&mut self, kind: usize, key: &ObjectKey, _: Time, keys: &mut BTreeSet<ObjectKey>) {
        match kind {
            SERVICE_WATCH => {
                if let Some(state) = self.services.get_mut(key) {
                    (state.service, state.trigger, state.endpoints_are_orphaned) =
                        (None, WriteTrigger::Service, true);
                    state.selected_pods.clear();
                    state.reset_backoff();
                    keys.insert(key.clone());
                }
            }
            POD_WATCH => {
                let before = self.pods.remove(key);
                self.update_services_of_pod(before.as_deref(), None, keys);
            }
            NODE_WATCH => {
                self.zones.remove(&key.name);
                self.enqueue_services_of_node(&key.name, keys);
            }
            ENDPOINTS_WATCH => {
                if let Some(state) = self.services.get_mut(key) {
                    state.endpoints = None;
                    keys.insert(key.clone());
                }
            }
            _ => self.remove_slice(key, keys),
        }
    }
}

impl EndpointsController {
    /// Adds or updates a Service, and adds its key to `keys`. If the Service is new or its selector has changed,
    /// determines again which pods it selects.
    fn put_service(&mut self, service: Arc<Service>, keys: &mut BTreeSet<ObjectKey>) {
        keys.insert(service.key.clone());
        let state = self.services.entry(service.key.clone()).or_default();
        let selected = state.service.as_ref().and_then(|it| it.selector.clone());
        if selected != service.selector || state.service.is_none() {
            let namespace = &service.key.namespace;
            let first = ObjectKey { namespace: namespace.clone(), name: Text::from("") };
            let pods = self.pods.range(first..).take_while(|(key, _)| key.namespace == *namespace);
            let selected_pods = pods.filter(|(_, pod)| service.selects(pod));
            state.selected_pods.clear();
            state.reset_backoff();
            for (key, pod) in selected_pods {
                state.selected_pods.insert(key.name.clone());
                state.trigger.record_change(pod.ready_changed_at);
            }
        }
        state.service = Some(service);
    }

    /// Adds or updates an EndpointSlice, and adds the key of its Service to `keys`. A slice that another controller
    /// manages, or that names no Service, is not stored. If such a slice was stored before, or the slice now names
    /// another Service, removes the stored slice, and adds the key of its former Service to `keys`.
    fn put_slice(&mut self, slice: Arc<Slice>, keys: &mut BTreeSet<ObjectKey>) {
        let is_ours =
            [slices::MANAGED_BY_VALUE, mirror::MANAGED_BY_VALUE].contains(&slice.label(MANAGED_BY_LABEL));
        let name = slice.label(SERVICE_NAME_LABEL);
        let key = ObjectKey { namespace: slice.key.namespace.clone(), name: name.into() };
        let before = self.slices.get(&slice.key);
        if before.is_some_and(|it| *it != key || !is_ours) {
            self.remove_slice(&slice.key, keys);
        }
        if is_ours && !name.is_empty() {
            self.slices.insert(slice.key.clone(), key.clone());
            let state = self.services.entry(key.clone()).or_default();
            state.slices.insert(slice.key.name.clone(), slice);
            keys.insert(key);
        }
    }

    /// Removes an EndpointSlice, and adds the key of its Service to `keys`.
    fn remove_slice(&mut self, key: &ObjectKey, keys: &mut BTreeSet<ObjectKey>) {
        if let Some(service) = self.slices.remove(key) {
            if let Some(state) = self.services.get_mut(&service) {
                state.slices.remove(&key.name);
            }
            keys.insert(service);
        }
    }

    /// Updates the Services that select a pod, after the pod was added, changed or deleted. Adds to `keys` the keys of
    /// the Services to reconcile.
    fn update_services_of_pod(
        &mut self,
        before: Option<&Pod>,
        now: Option<&Pod>,
        keys: &mut BTreeSet<ObjectKey>,
    ) {
        let Some(key) = now.or(before).map(|it| it.key.clone()) else { return };
        let (was_on, is_on) = (before.and_then(|it| it.node.as_ref()), now.and_then(|it| it.node.as_ref()));
        if was_on != is_on {
            if let Some(node) = was_on
                && let Some(others) = self.by_node.get_mut(node)
            {
                others.remove(&key);
                if others.is_empty() {
                    self.by_node.remove(node);
                }
            }
            if let Some(node) = is_on {
                self.by_node.entry(node.clone()).or_default().insert(key.clone());
            }
        }
        if before.zip(now).is_some_and(|(before, now)| before.is_equivalent(now)) {
            return;
        }
        let ready_changed_at = now.and_then(|it| it.ready_changed_at);
        let is_news = ready_changed_at > before.and_then(|it| it.ready_changed_at);
        for (name, state) in entries_in_namespace_mut(&mut self.services, &key.namespace) {
            let Some(service) = &state.service else { continue };
            let was = before.is_some_and(|it| service.selects(it));
            let is = now.is_some_and(|it| service.selects(it));
            match is {
                true => state.selected_pods.insert(key.name.clone()),
                false => state.selected_pods.remove(&key.name),
            };
            if is && (is_news || !was) {
                state.trigger.record_change(ready_changed_at);
            }
            if was || is {
                keys.insert(name.clone());
            }
        }
    }

    /// Adds to `keys` the Services that select a pod on this node, because the zone of the node has changed or the node
    /// was deleted.
    fn enqueue_services_of_node(&mut self, node: &Text, keys: &mut BTreeSet<ObjectKey>) {
        for key in self.by_node.get(node).into_iter().flatten() {
            let services = entries_in_namespace_mut(&mut self.services, &key.namespace);
            keys.extend(
                services.filter(|(_, it)| it.selected_pods.contains(&key.name)).map(|(name, _)| name.clone()),
            );
        }
    }
}

/// Returns the writes for a Service, and the events to record. Resets the trigger time if the Service exists, has a
/// selector, and is not of type ExternalName.
///
/// Rule: the Endpoints and EndpointSlices of a Service with a selector contain its pods. The Endpoints of a Service
/// without a selector are managed by users, and mirrored into EndpointSlices. For a Service of type ExternalName with a
/// selector, neither is written. After a Service is deleted, this controller deletes the EndpointSlices that mirror its
/// Endpoints, and the Endpoints unless they are a leader election record. The garbage collector deletes the other
/// EndpointSlices of the Service.
fn writes_for_service(
    key: &ObjectKey,
    state: &mut ServiceState,
    pods: &BTreeMap<ObjectKey, Arc<Pod>>,
    zones: &NodeZones,
) -> (Vec<EndpointsWrite>, Vec<EventRecord>) {
    let mirrors = state.slices_managed_by(mirror::MANAGED_BY_VALUE);
    let without_mirror =
        || mirrors.iter().map(|it| EndpointsWrite::DeleteSlice((*it).clone())).collect::<Vec<_>>();
    let Some(service) = state.service.clone() else {
        let mut writes = without_mirror();
        let left = state
            .endpoints
            .as_ref()
            .filter(|it| state.endpoints_are_orphaned && !mirror::is_leader_election_record(it));
        writes.extend(left.filter(|it| !it.deleting).map(|it| EndpointsWrite::DeleteEndpoints(it.clone())));
        return (writes, Vec::new());
    };
    if service.selector.is_none() {
        return match state.endpoints.as_ref().filter(|it| mirror::is_mirrored(it)) {
            Some(endpoints) => mirror::slice_writes(endpoints, &mirrors),
            None => (without_mirror(), Vec::new()),
        };
    }
    let mut writes = without_mirror();
    if service.is_external {
        return (writes, Vec::new());
    }
    let trigger = match core::mem::replace(&mut state.trigger, WriteTrigger::Pod(None)) {
        WriteTrigger::Service => Some(service.created),
        WriteTrigger::Pod(first) => first,
    };
    let selected_pods = state.selected_pods.iter().filter_map(|name| {
        let key = ObjectKey { namespace: key.namespace.clone(), name: name.clone() };
        pods.get(&key)
    });
    writes.extend(subsets::endpoints_write(
        &service,
        selected_pods.clone(),
        state.endpoints.as_ref(),
        trigger,
    ));
    let slices = state.slices_managed_by(slices::MANAGED_BY_VALUE);
    writes.extend(slices::slice_writes(&service, selected_pods, zones, &slices, trigger));
    if service.deleting {
        writes.retain(|it| !matches!(it, EndpointsWrite::CreateEndpoints(_)));
    }
    (writes, Vec::new())
}

/// Returns the state of a written object that the watch must deliver before the Service is reconciled again, with kind
/// and name of the object. `body` is the response to the write. `None` if the response cannot be decoded.
fn expected_watch_state(write: &EndpointsWrite, body: &[u8]) -> Option<((WrittenKind, Text), ExpectedState)> {
    let kind = match write {
        EndpointsWrite::DeleteEndpoints(it) => {
            return Some(((WrittenKind::Endpoints, it.key.name.clone()), ExpectedState::Deleted));
        }
        EndpointsWrite::DeleteSlice(it) => {
            return Some(((WrittenKind::Slice, it.key.name.clone()), ExpectedState::Deleted));
        }
        EndpointsWrite::CreateEndpoints(_) | EndpointsWrite::UpdateEndpoints(..) => WrittenKind::Endpoints,
        EndpointsWrite::CreateSlice(_) | EndpointsWrite::UpdateSlice(..) => WrittenKind::Slice,
    };
    let written = WrittenObject::decode(body)?;
    Some(((kind, written.name), ExpectedState::Version(written.resource_version?)))
}

/// Returns the event about a failed write, with upstream's reason and message.
fn write_failure_event(service: &Service, write: &EndpointsWrite, refusal: &CallError) -> EventRecord {
    let key = &service.key;
    let slices = |what: &str| {
        let message = format!(
            "Error updating Endpoint Slices for Service {key}: failed to {what} EndpointSlice for Service {key}: {refusal}"
        );
        KubeEvent::warning("FailedToUpdateEndpointSlices", message)
    };
    let event = match write {
        EndpointsWrite::CreateEndpoints(_) => KubeEvent::warning(
            "FailedToCreateEndpoint",
            format!("Failed to create endpoint for service {key}: {refusal}"),
        ),
        EndpointsWrite::UpdateEndpoints(..) | EndpointsWrite::DeleteEndpoints(_) => KubeEvent::warning(
            "FailedToUpdateEndpoint",
            format!("Failed to update endpoint {key}: {refusal}"),
        ),
        EndpointsWrite::CreateSlice(_) => slices("create"),
        EndpointsWrite::UpdateSlice(..) => slices("update"),
        EndpointsWrite::DeleteSlice(_) => slices("delete"),
    };
    EventRecord { about: service.object_reference(), event }
}

#[cfg(test)]
mod tests;
