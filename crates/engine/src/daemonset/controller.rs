//! [`DaemonSetController`]: makes the plans of DaemonSets, and executes several plans concurrently.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use muster_api::go_json;
use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::time::Time;

use crate::controller::{
    Accept, BackoffPolicy, Controller, EncodedRequest, Event, EventRecord, KubeEvent, Malformed, Measurement,
    MeasurementResult, ObjectReference, Outcome, Priority, Reconcile, Request, Requeue, Watch,
};
use crate::daemonset::execution::{Execution, ExecutionReport, NextStep, PlannedCall, Response};
use crate::daemonset::facts::{self, Kind, Set, WatchedObject};
use crate::daemonset::manifest::{self, Binding, EncodedPod};
use crate::daemonset::plan::{Plan, Settings};
use crate::daemonset::planner::Planner;

/// Maximum number of calls of one plan that are in flight at a time. It is half of the default limit on the calls in
/// flight of the whole controller, so that a large DaemonSet does not block the others.
const CALLS_IN_FLIGHT_PER_PLAN_MAX: usize = 32;

/// Backoff of the reconciles of a DaemonSet after consecutive panics.
const PANIC_BACKOFF: BackoffPolicy =
    BackoffPolicy { min: Duration::from_secs(1), max: Duration::from_secs(300) };

/// The DaemonSet controller: makes plans and executes them. At most one plan of each DaemonSet is executed at a time.
#[derive(Debug)]
pub struct DaemonSetController {
    planner: Planner,
    /// Maximum number of plans, of different DaemonSets, that are executed at the same time.
    workers: usize,
    /// The plans that are being executed, by namespace and name of the DaemonSet.
    executions: BTreeMap<ObjectKey, RunningPlan>,
    /// Number of executions started so far. It is also the number of the newest execution. The late outcome of a call
    /// is not applied to an execution with another number.
    started: u64,
    /// Number of reconciles so far, not counting those that only continued the execution of a plan.
    reconciles: u64,
    /// The plan of the last reconcile of each DaemonSet. An idle plan during the backoff after a panic.
    plans: BTreeMap<ObjectKey, Arc<Plan>>,
    /// Backoffs of the DaemonSets whose last reconcile panicked, by namespace and name of the DaemonSet.
    panics: BTreeMap<ObjectKey, PanicBackoff>,
}

/// The execution of one plan, with the JSON of the pods that the plan creates.
#[derive(Debug)]
struct RunningPlan {
    /// Number of the execution. Its calls have the same number in [`DaemonSetCall::execution`].
    number: u64,
    execution: Execution,
    /// The JSON of the pods to create from the template of the DaemonSet, encoded once for all nodes. `None` if the
    /// plan creates no such pod, or if the pod must be encoded for each node.
    encoded_pod: Option<Arc<EncodedPod>>,
    /// JSON of the pods to create from the stable revision, encoded once for all nodes. `None` if the plan creates no
    /// such pod, or if the pod must be encoded for each node.
    encoded_stable_pod: Option<Arc<EncodedPod>>,
}

/// Backoff of a DaemonSet that made the controller panic.
#[derive(Clone, Copy, Debug)]
struct PanicBackoff {
    /// Number of consecutive panics during reconciles of the DaemonSet.
    count: u32,
    /// Time before which the DaemonSet is not reconciled again.
    until: Time,
}

/// A call of the DaemonSet controller to the API server, with the values from which its request is built.
#[derive(Clone, Debug)]
pub struct DaemonSetCall {
    pub set: Arc<Set>,
    pub call: PlannedCall,
    /// Number of the execution that sent the call. Zero if the call is not part of a plan.
    execution: u64,
    /// Whether the controller or the scheduler binds the pods that the controller creates.
    binding: Binding,
    /// JSON of the pod to create, encoded once for all nodes. `None` for other calls, and if the pod must be encoded
    /// for each node.
    encoded_pod: Option<Arc<EncodedPod>>,
}

impl DaemonSetCall {
    /// Creates a call that is not part of a plan. [`DaemonSetController`] ignores its outcome.
    pub fn standalone(set: Arc<Set>, call: PlannedCall, binding: Binding) -> Self {
        Self { set, call, execution: 0, binding, encoded_pod: None }
    }

    /// Returns the request body in Go's JSON encoding, because upstream compares revisions byte by byte. `None` if the
    /// request has no body.
    fn body(&self) -> Option<String> {
        if let (PlannedCall::CreatePod { node, .. }, Some(encoded_pod)) = (&self.call, &self.encoded_pod)
            && let Some(pod) = encoded_pod.for_node(node)
        {
            return Some(pod);
        }
        manifest::call_body(&self.set, &self.call, self.binding).as_ref().map(go_json::to_string)
    }
}

/// Formats a call for logs as verb, resource and name: `delete pods web-1`. A create and a list have no name, except an
/// eviction: `create pods/eviction web-1`.
impl fmt::Display for DaemonSetCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = manifest::call_target(&self.set, &self.call);
        let name = target.name.as_deref().unwrap_or_default();
        let verb = manifest::call_verb(&self.call).as_str();
        match (&self.call, target.subresource) {
            (PlannedCall::EvictPod { .. }, Some(subresource)) => {
                write!(f, "{verb} {}/{subresource} {name}", target.kind.plural())
            }
            _ => write!(f, "{verb} {} {name}", target.kind.plural()),
        }
    }
}

impl DaemonSetController {
    /// Creates a controller that executes at most `workers` plans at a time, and at least one.
    pub fn new(settings: Settings, workers: usize) -> Self {
        Self {
            planner: Planner::new(settings),
            workers: workers.max(1),
            executions: BTreeMap::new(),
            started: 0,
            reconciles: 0,
            plans: BTreeMap::new(),
            panics: BTreeMap::new(),
        }
    }

    /// Returns the planner, which holds the cache and makes the plans.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Returns the plan of the last reconcile of a DaemonSet. `None` if that reconcile made no plan, for example
    /// because the DaemonSet did not exist. Returns an idle plan during the backoff after a panic.
    pub fn last_plan(&self, key: &ObjectKey) -> Option<&Arc<Plan>> {
        self.plans.get(key)
    }

    /// Returns the number of reconciles so far, not counting those that only continued the execution of a plan.
    pub fn reconcile_count(&self) -> u64 {
        self.reconciles
    }

    /// Returns the number of plans that are being executed.
    pub fn executing_plan_count(&self) -> usize {
        self.executions.len()
    }

    /// Returns the time before which a DaemonSet is not reconciled, because its last reconcile panicked. The time may
    /// be in the past. `None` if the last reconcile did not panic.
    pub fn panic_backoff_until(&self, key: &ObjectKey) -> Option<Time> {
        self.panics.get(key).map(|it| it.until)
    }

    /// Starts the execution of a plan. Returns its first calls, its measurements and its wake-up time. An idle plan is
    /// not executed. The execution of a plan that has only events ends at once.
    fn start_execution(&mut self, plan: Arc<Plan>, now: Time) -> Reconcile<DaemonSetCall> {
        let mut reconcile = Reconcile {
            measurements: plan.measurements.clone(),
            wake_at: plan.wake_at,
            relist: plan.relist,
            ..Reconcile::default()
        };
        if plan.is_idle() {
            return reconcile;
        }
        let key = plan.set.key.clone();
        let binding = self.planner.settings().binding;
        let encoded_pod =
            if plan.create.is_empty() { None } else { EncodedPod::new(&plan.set, &plan.hash, None, binding) };
        let encoded_stable_pod = plan
            .stable
            .as_ref()
            .and_then(|source| EncodedPod::new(&plan.set, &source.hash, Some(source), binding));
        self.started += 1;
        let execution = Execution::new(plan);
        let running = RunningPlan {
            number: self.started,
            execution,
            encoded_pod: encoded_pod.map(Arc::new),
            encoded_stable_pod: encoded_stable_pod.map(Arc::new),
        };
        self.executions.insert(key.clone(), running);
        reconcile.calls = self.next_calls(&key);
        let (is_finished, events) = self.finish_if_done(&key, now);
        reconcile.events = events;
        if is_finished {
            // The plan had no calls, only events.
            reconcile.wake_at = Some(now);
        }
        reconcile
    }

    /// Returns the calls that the execution of a DaemonSet's plan may send now: so many that at most
    /// [`CALLS_IN_FLIGHT_PER_PLAN_MAX`] are in flight. Empty if no plan of the DaemonSet is being executed. If the
    /// selector of the DaemonSet selects no pod, a list of its pods is not sent: an empty list is applied as the
    /// response.
    fn next_calls(&mut self, key: &ObjectKey) -> Vec<DaemonSetCall> {
        let binding = self.planner.settings().binding;
        let Some(RunningPlan { number, execution, encoded_pod, encoded_stable_pod }) =
            self.executions.get_mut(key)
        else {
            return Vec::new();
        };
        let mut calls = Vec::new();
        while execution.in_flight() < CALLS_IN_FLIGHT_PER_PLAN_MAX {
            let NextStep::Call(call) = execution.next() else { break };
            let set = execution.set().clone();
            if manifest::call_path(&set, &call).is_none() {
                execution.apply_response(&call, Response::Pods(Vec::new()));
                continue;
            }
            let encoded_pod = match &call {
                PlannedCall::CreatePod { source: None, .. } => encoded_pod.clone(),
                PlannedCall::CreatePod { source: Some(_), .. } => encoded_stable_pod.clone(),
                _ => None,
            };
            calls.push(DaemonSetCall { set, call, execution: *number, binding, encoded_pod });
        }
        calls
    }

    /// Ends the execution of a DaemonSet's plan if all its calls are done. Returns whether it ended, and the events to
    /// record.
    fn finish_if_done(&mut self, key: &ObjectKey, now: Time) -> (bool, Vec<EventRecord>) {
        if !self.executions.get_mut(key).is_some_and(|it| it.execution.is_finished()) {
            return (false, Vec::new());
        }
        let Some(RunningPlan { execution, .. }) = self.executions.remove(key) else {
            return (false, Vec::new());
        };
        let set = execution.set().clone();
        let report = execution.finish();
        self.planner.apply_report(key, &report, now);
        (true, report.events.into_iter().map(|event| event_about(&set, event)).collect())
    }
}

/// Creates the record of a Kubernetes Event about a DaemonSet.
pub fn event_about(set: &Set, event: KubeEvent) -> EventRecord {
    let about =
        ObjectReference::new("apps/v1", "DaemonSet", set.key.clone(), set.uid.clone(), set.resource_version);
    EventRecord { about, event }
}

impl Controller for DaemonSetController {
    type DecodedObject = WatchedObject;
    type Key = ObjectKey;
    type Call = DaemonSetCall;

    fn watches(&self) -> Vec<Watch> {
        Kind::ALL.map(Kind::watch).into()
    }

    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<WatchedObject, Malformed> {
        facts::decode_object(kind_of(watch), object, shared)
    }

    fn decode_deleted(
        watch: &Watch,
        object: &[u8],
        shared: &mut Interner,
    ) -> Result<WatchedObject, Malformed> {
        facts::decode_deleted(kind_of(watch), object, shared)
    }

    fn apply(&mut self, event: Event<WatchedObject>, _: Time) -> Vec<ObjectKey> {
        self.planner.apply(event)
    }

    fn apply_bookmark(&mut self, kind: usize, resource_version: u64) -> Vec<ObjectKey> {
        self.planner.apply_bookmark(Kind::ALL[kind], resource_version)
    }

    fn on_forbidden(&mut self, kind: usize) -> Vec<ObjectKey> {
        self.planner.on_forbidden(Kind::ALL[kind])
    }

    /// Whether a plan of the DaemonSet may be made or continued now.
    ///
    /// Rule: at most one plan of a DaemonSet is executed at a time, and at most `workers` plans in all. A plan that is
    /// being executed continues if it has a call to send and fewer than `CALLS_IN_FLIGHT_PER_PLAN_MAX` calls in flight.
    fn may_reconcile(&self, key: &ObjectKey) -> bool {
        match self.executions.get(key) {
            Some(RunningPlan { execution, .. }) => {
                execution.has_ready_calls() && execution.in_flight() < CALLS_IN_FLIGHT_PER_PLAN_MAX
            }
            None => self.executions.len() < self.workers,
        }
    }

    fn is_executing(&self, key: &ObjectKey) -> bool {
        self.executions.contains_key(key)
    }

    fn reconcile(&mut self, key: &ObjectKey, now: Time) -> Reconcile<DaemonSetCall> {
        if self.executions.contains_key(key) {
            return Reconcile { calls: self.next_calls(key), ..Reconcile::default() };
        }
        self.reconciles += 1;
        if let Some(PanicBackoff { until, .. }) = self.panics.get(key).filter(|it| now < it.until) {
            let idle = self.planner.daemon_set_by_key(key).map(|set| Arc::new(Plan::idle(set.clone())));
            let wake_at = idle.as_ref().map(|_| *until);
            self.plans.remove(key);
            self.plans.extend(idle.map(|it| (key.clone(), it)));
            return Reconcile { wake_at, ..Reconcile::default() };
        }
        let plan = self.planner.reconcile(key, now).map(Arc::new);
        self.panics.remove(key);
        self.plans.remove(key);
        let Some(plan) = plan else { return Reconcile::default() };
        self.plans.insert(key.clone(), plan.clone());
        self.start_execution(plan, now)
    }

    fn request(call: &DaemonSetCall) -> Request {
        let metadata_only = !matches!(
            call.call,
            PlannedCall::ReadSet | PlannedCall::ReadRevision { .. } | PlannedCall::EvictPod { .. }
        );
        Request {
            verb: manifest::call_verb(&call.call),
            path: manifest::call_path(&call.set, &call.call).unwrap_or_default(),
            body: manifest::call_body(&call.set, &call.call, call.binding),
            metadata_only,
        }
    }

    fn encode(call: &DaemonSetCall) -> EncodedRequest {
        let verb = manifest::call_verb(&call.call);
        let accept = match &call.call {
            // The response to an eviction is a Status.
            PlannedCall::ReadSet | PlannedCall::ReadRevision { .. } | PlannedCall::EvictPod { .. } => {
                Accept::Object
            }
            PlannedCall::ListPods => Accept::MetadataList,
            _ => Accept::Metadata,
        };
        let is_status = matches!(
            call.call,
            PlannedCall::PutStatus { .. }
                | PlannedCall::ApplyConditions { .. }
                | PlannedCall::WriteRollout(_)
        );
        EncodedRequest {
            verb,
            path: manifest::call_path(&call.set, &call.call).unwrap_or_default(),
            body: call.body().unwrap_or_default(),
            accept,
            priority: if is_status { Priority::Low } else { Priority::Normal },
        }
    }

    fn apply_outcome(&mut self, call: &DaemonSetCall, outcome: Outcome, now: Time) -> Requeue<ObjectKey> {
        let key = call.set.key.clone();
        let Some(running) = self.executions.get_mut(&key).filter(|it| it.number == call.execution) else {
            return Requeue::default();
        };
        running.execution.apply_response(&call.call, Response::decode(&call.call, outcome));
        let (_, events) = self.finish_if_done(&key, now);
        Requeue { keys: [key].into(), events }
    }

    fn apply_measurement(
        &mut self,
        measurement: &Measurement,
        measured: &MeasurementResult,
        now: Time,
    ) -> Vec<ObjectKey> {
        let is_known = self.planner.record_measurement(measurement, measured, now);
        Vec::from_iter(is_known.then(|| measurement.set.clone()))
    }

    fn key_of(call: &DaemonSetCall) -> Option<ObjectKey> {
        Some(call.set.key.clone())
    }

    /// Starts the backoff of a DaemonSet after a panic during its reconcile, or while the outcome of one of its calls
    /// was applied. Returns the end of the backoff (never `None`). If a plan of the DaemonSet is being executed, ends
    /// the execution.
    ///
    /// Rule: a DaemonSet whose reconcile panicked is not reconciled until a delay has passed. The delay doubles with
    /// each panic in a row, from 1 s to 5 min. Other DaemonSets are reconciled as usual. The cells of all DaemonSets
    /// are recomputed, because the panic may have left them inconsistent.
    fn recover(&mut self, key: &ObjectKey, now: Time) -> Option<Time> {
        self.planner = self.planner.with_all_cells_dirty();
        self.planner.forget_measurements(key);
        if let Some(RunningPlan { execution, .. }) = self.executions.remove(key) {
            self.planner.apply_report(key, &ExecutionReport::after_panic(execution.set()), now);
        }
        let count = self.panics.get(key).map_or(0, |it| it.count).saturating_add(1);
        let until = now + PANIC_BACKOFF.delay(count);
        self.panics.insert(key.clone(), PanicBackoff { count, until });
        let idle = self.planner.daemon_set_by_key(key).map(|set| Arc::new(Plan::idle(set.clone())));
        self.plans.remove(key);
        self.plans.extend(idle.map(|it| (key.clone(), it)));
        Some(until)
    }
}

/// Returns the kind that a watch of this controller delivers.
fn kind_of(watch: &Watch) -> Kind {
    Kind::from_plural(&watch.resource.plural).expect("the controller watches these kinds only")
}
