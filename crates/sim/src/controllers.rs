//! Runs the shipped built-in controllers in the simulation, with watches that lag, requests that fail, and processes
//! that crash.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::NAMESPACE_NODE_LEASE;
use muster_engine::controller::{
    CallError, Controller, Event, Outcome, Request, Resource, Verb, Watch, WorkQueue,
};
use muster_engine::daemonset::facts::Kind;

use muster_engine::garbage_collector::GarbageCollector;
use muster_engine::node_lifecycle::{self, NodeLifecycle};
use muster_engine::scheduler::Scheduler;
use muster_store::{CommitEvent, KeyChange};
use serde_json::{Value, json};

use crate::faults::{FaultRates, RequestFault, WatchFault};
use crate::invariants::InvariantChecks;
use crate::kubelet::HEARTBEAT_INTERVAL;
use crate::lagging_server::{LaggingServer, ReadBarrier, ServerId, visible_revision};
use crate::rng::Rng;
use crate::server::{Actor, RequestHandler, SimServer, store_key_prefix};
use crate::trace::Trace;

/// A built-in controller that the simulation runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SimController {
    GarbageCollector,
    NodeLifecycle,
    Scheduler,
}

impl SimController {
    /// Returns the actor of the requests and watches of this controller.
    fn as_actor(self) -> Actor {
        match self {
            Self::GarbageCollector => Actor::GarbageCollector,
            Self::NodeLifecycle => Actor::NodeLifecycle,
            Self::Scheduler => Actor::Scheduler,
        }
    }
}

/// Returns the simulated processes of the built-in controllers in [`SimController`], not started yet.
pub fn all_controllers() -> BTreeMap<SimController, Box<dyn ControllerProcess>> {
    BTreeMap::from([
        (
            SimController::GarbageCollector,
            SimProcess::new_boxed(SimController::GarbageCollector, garbage_collector),
        ),
        (
            SimController::NodeLifecycle,
            SimProcess::new_boxed(SimController::NodeLifecycle, node_lifecycle_with_short_periods),
        ),
        (SimController::Scheduler, SimProcess::new_boxed(SimController::Scheduler, Scheduler::default)),
    ])
}

/// Returns the garbage collector for the kinds in [`Kind::REQUIRED`].
fn garbage_collector() -> GarbageCollector {
    let all = Kind::REQUIRED.map(|kind| kind.watch().resource);
    GarbageCollector::new(all.to_vec(), all)
}

/// Returns the node lifecycle controller with short grace periods, so that a short run includes node failures and
/// evictions.
fn node_lifecycle_with_short_periods() -> NodeLifecycle {
    NodeLifecycle::new(node_lifecycle::Config {
        node_monitor_grace_period: HEARTBEAT_INTERVAL * 4,
        node_startup_grace_period: HEARTBEAT_INTERVAL * 4,
        heartbeat_interval: HEARTBEAT_INTERVAL,
        eviction_interval: Duration::from_secs(2),
        ..node_lifecycle::Config::default()
    })
}

/// One step of a built-in controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControllerStep {
    /// The process starts.
    Start,
    /// The next watch event reaches the controller. The value is the index of the watched kind in
    /// `SimProcess::watches`.
    DeliverEvent(usize),
    /// A list that the controller has requested reaches the controller, if the API server has the state that the list
    /// must contain. The value is the index of the kind in `SimProcess::watches`.
    ReceiveList(usize),
    /// The controller reconciles the keys that are due.
    Reconcile,
    /// A request reaches the API server. The value is the key of the request in `SimProcess::calls`.
    SendRequest(usize),
    /// The lagging API server acknowledges a write that it has committed, because its state now contains the write. If
    /// the server was killed before, the write gets no response. The value is the key of the request in
    /// `SimProcess::calls`.
    AcknowledgeWrite(usize),
    /// The response to a request reaches the controller. The value is the key of the request in `SimProcess::calls`.
    ReceiveResponse(usize),
}

/// A source of watch events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchSource {
    /// Objects of a kind in the store.
    Commits(Kind),
    /// Node Leases, which are kept outside the store.
    Leases,
}

impl WatchSource {
    /// Returns the source of watch events for a resource, or `None` for a resource that the simulation does not have.
    fn from_resource(resource: &Resource) -> Option<Self> {
        if *resource.plural == *"leases" {
            return Some(Self::Leases);
        }
        let is_resource = |it: &Kind| *it.group() == *resource.group && *it.plural() == *resource.plural;
        Kind::ALL.into_iter().find(is_resource).map(Self::Commits)
    }
}

/// Returns the Lease of a node as JSON, from the node's name and the time of the last renewal.
fn node_lease_json((node, renewed): (&Text, &Time)) -> Value {
    json!({
        "metadata": {
            "namespace": NAMESPACE_NODE_LEASE,
            "name": node,
            "resourceVersion": renewed.as_micros().to_string(),
        },
        "spec": {"renewTime": renewed.as_micros().to_string()},
    })
}

/// The part of the simulation that a step of a built-in controller may use.
#[derive(Debug)]
pub struct StepContext<'a> {
    pub(crate) now: Time,
    pub(crate) server: &'a mut SimServer,
    pub(crate) lagging: Option<&'a LaggingServer>,
    pub(crate) checks: &'a mut InvariantChecks,
    pub(crate) rng: &'a mut Rng,
    pub(crate) fault_rates: &'a FaultRates,
    pub(crate) trace: &'a mut Trace,
    /// Steps to schedule, each with its delay.
    pub(crate) next_steps: Vec<(Duration, ControllerStep)>,
    /// Steps to execute when the lagging server has reached a revision.
    pub(crate) waiting_steps: Vec<(u64, ControllerStep)>,
}

impl StepContext<'_> {
    /// Schedules a step after a random network latency.
    fn schedule_soon(&mut self, step: ControllerStep) {
        let delay = Duration::from_micros(self.rng.between(100, self.fault_rates.lag_ms.max(1) * 1000));
        self.next_steps.push((delay, step));
    }

    /// Returns the revision up to which the state of a server is complete.
    fn visible_revision(&self, server: ServerId) -> u64 {
        visible_revision(server, self.server, self.lagging)
    }

    /// Returns the read barrier of a request that arrives now.
    fn read_barrier(&self) -> ReadBarrier {
        ReadBarrier { revision: self.server.revision(), acknowledged: self.checks.acknowledged_revision }
    }
}

/// The simulated process of a built-in controller. The trait hides the type of the controller.
pub trait ControllerProcess: fmt::Debug {
    /// Returns how often the process has started or crashed. A step that was scheduled for an earlier number is
    /// ignored, except [`ControllerStep::Start`].
    fn process_number(&self) -> u64;
    /// Executes one step.
    fn execute_step(&mut self, step: ControllerStep, context: &mut StepContext<'_>);
    /// Marks the delivery of a new event of `source` as scheduled, and returns the step that delivers the event. The
    /// caller must schedule this step. Returns `None` if such a step is already scheduled, if the process is not
    /// running, or if the controller does not watch this source.
    fn mark_delivery_scheduled(&mut self, source: WatchSource) -> Option<ControllerStep>;
    /// Returns the API server of the controller's watches. Most requests of the controller go to this server, too.
    fn server(&self) -> ServerId;
    /// Makes the controller use another API server. The watches continue there.
    fn set_server(&mut self, server: ServerId);
    /// Crashes the process. Returns `false` if it is not running.
    fn crash(&mut self) -> bool;
}

/// A simulated process that runs one built-in controller. It implements [`ControllerProcess`] for a controller of type
/// `L`.
pub struct SimProcess<L: Controller> {
    controller: SimController,
    /// Creates the controller, at each start of the process.
    create: fn() -> L,
    is_running: bool,
    process_number: u64,
    work_queue: WorkQueue<L>,
    /// The kinds that the controller watches. Other fields refer to a kind by its index in this list.
    watches: Vec<Watch>,
    /// The revision up to which each watch has delivered events, by index in `watches`.
    cursors: Vec<u64>,
    /// The time up to which Lease renewals were delivered. A list of any kind also advances it to the current time.
    leases_delivered_until: Time,
    /// The API server of the watches, and usually of the requests.
    server: ServerId,
    /// Lists that the controller has requested and not received yet, with what they must contain, by index in
    /// `watches`. The watches of these kinds have ended.
    awaited_lists: BTreeMap<usize, ReadBarrier>,
    /// Watches for which a [`ControllerStep::DeliverEvent`] is scheduled, by index in `watches`.
    scheduled_deliveries: BTreeSet<usize>,
    /// Stores equal strings of decoded objects only once.
    shared: Interner,
    /// Requests in flight, by sequence number.
    calls: BTreeMap<usize, CallInFlight<L::Call>>,
    /// Sequence number of the last request.
    sequence: usize,
    /// Time of the next scheduled reconcile. `None` if no reconcile is scheduled.
    reconcile_due: Option<Time>,
}

/// A request of a built-in controller, from its sending until its response is delivered.
struct CallInFlight<C> {
    call: C,
    /// The API server to which the request was sent.
    server: ServerId,
    /// The read barrier of the request. `None` until the request has reached the API server.
    barrier: Option<ReadBarrier>,
    /// The outcome for the controller. `None` until the API server has handled the request.
    outcome: Option<Outcome>,
    /// The revision of the write, if the lagging server has committed it and not acknowledged it yet.
    unacknowledged: Option<u64>,
}

impl<L: Controller> fmt::Debug for SimProcess<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimProcess")
            .field("controller", &self.controller)
            .field("process_number", &self.process_number)
            .finish_non_exhaustive()
    }
}

/// Maximum number of concurrent requests of a built-in controller. It is low, so that requests queue even in a small
/// cluster.
const CONCURRENT_REQUESTS_MAX: usize = 4;

impl<L: Controller + 'static> SimProcess<L> {
    /// Returns a process that is not started yet. `create` is called at each start of the process to create its
    /// controller.
    pub fn new_boxed(controller: SimController, create: fn() -> L) -> Box<dyn ControllerProcess> {
        let inner = create();
        let watches = inner.watches();
        Box::new(Self {
            controller,
            create,
            is_running: false,
            process_number: 0,
            cursors: vec![0; watches.len()],
            leases_delivered_until: Time::default(),
            watches,
            work_queue: WorkQueue::new(inner, CONCURRENT_REQUESTS_MAX),
            server: ServerId::Current,
            awaited_lists: BTreeMap::new(),
            scheduled_deliveries: BTreeSet::new(),
            shared: Interner::default(),
            calls: BTreeMap::new(),
            sequence: 0,
            reconcile_due: None,
        })
    }

    /// Starts a new process with empty caches, which lists all watched kinds.
    fn start_process(&mut self, context: &mut StepContext<'_>) {
        self.process_number += 1;
        self.is_running = true;
        self.work_queue = WorkQueue::new((self.create)(), CONCURRENT_REQUESTS_MAX);
        self.calls.clear();
        self.awaited_lists.clear();
        self.scheduled_deliveries.clear();
        self.reconcile_due = None;
        for kind in 0..self.watches.len() {
            self.list_kind(kind, context);
        }
        self.reconcile_soon(context);
    }

    /// Lists the kind with the index `kind` in `watches`, without a `resourceVersion`. If the state of the server is
    /// older than the store is now, the server responds later.
    fn list_kind(&mut self, kind: usize, context: &mut StepContext<'_>) {
        self.awaited_lists.insert(kind, context.read_barrier());
        self.receive_list(kind, context);
    }

    /// Delivers a list that the controller has requested, if its server has the state that the list must contain.
    /// `kind` is the index of the kind in `watches`.
    fn receive_list(&mut self, kind: usize, context: &mut StepContext<'_>) {
        let Some(wanted) = self.awaited_lists.get(&kind).copied() else { return };
        let source = WatchSource::from_resource(&self.watches[kind].resource);
        let revision = match source {
            Some(WatchSource::Commits(_)) => context.visible_revision(self.server),
            Some(WatchSource::Leases) | None => context.server.revision(),
        };
        if revision < wanted.revision {
            return context.waiting_steps.push((wanted.revision, ControllerStep::ReceiveList(kind)));
        }
        context.checks.check_fresh_state(wanted.acknowledged, revision);
        self.awaited_lists.remove(&kind);
        self.cursors[kind] = revision;
        self.leases_delivered_until = context.now;
        let texts: Vec<String> = match source {
            Some(WatchSource::Commits(kind)) => {
                context.checks.on_list(self.controller.as_actor(), kind, revision);
                match context.lagging.filter(|_| self.server == ServerId::Lagging) {
                    Some(lagging) => lagging.cache().objects(kind).map(|(_, it)| it.to_string()).collect(),
                    None => context.server.objects(kind).map(|(_, it)| it.to_string()).collect(),
                }
            }
            Some(WatchSource::Leases) => {
                context.server.leases.iter().map(|it| node_lease_json(it).to_string()).collect()
            }
            None => Vec::new(),
        };
        let facts = texts.iter().map(|it| self.decode_fact(kind, it.as_bytes())).collect();
        self.work_queue
            .apply(Event::Listed { kind, facts, resource_version: self.cursors[kind] }, context.now);
    }

    /// Decodes an object of the kind with the index `kind` in `watches` into the fact that the controller keeps.
    fn decode_fact(&mut self, kind: usize, object: &[u8]) -> L::DecodedObject {
        L::decode(&self.watches[kind], object, &mut self.shared).expect("the server holds what it was given")
    }

    /// Delivers the next event of the kind with the index `kind` in `watches`. If a watch fault is drawn at random, the
    /// fault changes or delays the delivery. The fault `StaleRelist` acts as `Relist`. `Coalesce` has no effect, nor
    /// has `Duplicate` for Leases.
    fn deliver_event(&mut self, kind: usize, context: &mut StepContext<'_>) {
        self.scheduled_deliveries.remove(&kind);
        let Some(source) = WatchSource::from_resource(&self.watches[kind].resource) else { return };
        if self.awaited_lists.contains_key(&kind) {
            return;
        }
        let fault = context.fault_rates.random_watch_fault(context.rng);
        match fault {
            Some(WatchFault::Relist | WatchFault::StaleRelist) => self.list_kind(kind, context),
            Some(WatchFault::Freeze) => {
                self.scheduled_deliveries.insert(kind);
                let span = Duration::from_millis(context.rng.between(500, 15_000));
                return context.next_steps.push((span, ControllerStep::DeliverEvent(kind)));
            }
            _ if source == WatchSource::Leases => self.deliver_leases(kind, context),
            _ => {
                let Some(event) = self.next_watch_event(kind, source, context) else { return };
                if let WatchSource::Commits(kind) = source {
                    let client = self.controller.as_actor();
                    context.checks.check_watch_position(client, kind, event.revision);
                }
                self.cursors[kind] = event.revision;
                for _ in 0..if fault == Some(WatchFault::Duplicate) { 2 } else { 1 } {
                    let event = match &event.change {
                        KeyChange::Put { now, .. } => {
                            Event::Applied { kind, fact: self.decode_fact(kind, &now.value) }
                        }
                        KeyChange::Delete { last, .. } => {
                            Event::Deleted { kind, fact: self.decode_fact(kind, last) }
                        }
                    };
                    self.work_queue.apply(event, context.now);
                }
            }
        }
        self.schedule_next_event(kind, source, context);
        self.reconcile_soon(context);
    }

    /// Returns the next event of the watch with the index `kind` in `watches`. Returns `None` if the state of the
    /// server has no further event, and for Leases, which have no revisions.
    fn next_watch_event(
        &self,
        kind: usize,
        source: WatchSource,
        context: &StepContext<'_>,
    ) -> Option<Arc<CommitEvent>> {
        let WatchSource::Commits(watched) = source else { return None };
        let events = context.server.store.commits_since(store_key_prefix(watched), self.cursors[kind]);
        let event = events.expect("it is all kept").next().cloned();
        event.filter(|it| it.revision <= context.visible_revision(self.server))
    }

    /// Schedules the delivery of the next event of the watch with the index `kind` in `watches`, if there is one.
    fn schedule_next_event(&mut self, kind: usize, source: WatchSource, context: &mut StepContext<'_>) {
        if self.next_watch_event(kind, source, context).is_some() {
            self.scheduled_deliveries.insert(kind);
            context.schedule_soon(ControllerStep::DeliverEvent(kind));
        }
    }

    /// Delivers the Leases that were renewed since the last delivery. `kind` is the index of the Leases in `watches`.
    fn deliver_leases(&mut self, kind: usize, context: &mut StepContext<'_>) {
        let renewed = context.server.leases.iter().filter(|(_, at)| self.leases_delivered_until < **at);
        let renewed: Vec<String> = renewed.map(|it| node_lease_json(it).to_string()).collect();
        for text in renewed {
            let fact = self.decode_fact(kind, text.as_bytes());
            self.work_queue.apply(Event::Applied { kind, fact }, context.now);
        }
        self.leases_delivered_until = context.now;
    }

    /// Schedules a reconcile after a short random delay.
    fn reconcile_soon(&mut self, context: &mut StepContext<'_>) {
        self.reconcile_at(context.now + Duration::from_micros(context.rng.between(50, 2_000)), context);
    }

    /// Schedules a reconcile at a time, unless an earlier one is scheduled.
    fn reconcile_at(&mut self, at: Time, context: &mut StepContext<'_>) {
        if self.reconcile_due.is_none_or(|it| at < it) {
            self.reconcile_due = Some(at);
            context.next_steps.push((at.since(context.now), ControllerStep::Reconcile));
        }
    }

    /// Reconciles the next keys of the work queue, and schedules the resulting requests. Does nothing if no reconcile
    /// is due.
    fn reconcile(&mut self, context: &mut StepContext<'_>) {
        if self.reconcile_due.is_none_or(|it| context.now < it) {
            return;
        }
        self.reconcile_due = None;
        let step = self.work_queue.reconcile_due(context.now);
        for call in step.calls {
            self.sequence += 1;
            let server = context.lagging.map_or(self.server, |it| it.route_request(self.server, context.rng));
            let request = CallInFlight { call, server, barrier: None, outcome: None, unacknowledged: None };
            self.calls.insert(self.sequence, request);
            context.schedule_soon(ControllerStep::SendRequest(self.sequence));
        }
        if let Some(at) = step.wake_at {
            // At least one microsecond later: a timer never fires early.
            self.reconcile_at(at.max(context.now + Duration::from_micros(1)), context);
        }
    }

    /// Sends the request with the key `at` in `calls` to the API server. If a request fault is drawn at random, the
    /// fault decides whether the request is applied and what the outcome is.
    fn send_request(&mut self, at: usize, context: &mut StepContext<'_>) {
        let Some(in_flight) = self.calls.get_mut(&at) else { return };
        let (call, server) = (&in_flight.call, in_flight.server);
        let request = L::request(call);
        let refused = |refusal| Outcome::Refused(refusal);
        if let Some(lagging) = context.lagging {
            if lagging.down == Some(server) {
                in_flight.outcome = Some(refused(CallError::NoAnswer));
                return context.schedule_soon(ControllerStep::ReceiveResponse(at));
            }
            let barrier = *in_flight.barrier.get_or_insert_with(|| context.read_barrier());
            if server == ServerId::Lagging {
                let written = written_object(&request);
                if let Some(revision) =
                    lagging.revision_to_wait_for(context.server, barrier, written.as_ref())
                {
                    return context.waiting_steps.push((revision, ControllerStep::SendRequest(at)));
                }
                context.checks.check_fresh_state(barrier.acknowledged, lagging.revision());
            }
        }
        let lagging = context.lagging.filter(|_| server == ServerId::Lagging);
        let before = context.server.revision();
        let make = |context: &mut StepContext<'_>| {
            context.trace.add_line(context.now, || format!("{:?}: {call}", self.controller));
            let cache = lagging.map(LaggingServer::cache);
            let mut handler = RequestHandler { store: context.server, cache };
            handle_request(&mut handler, &request, self.controller.as_actor())
        };
        let mut is_answered = false;
        let mut crashes = false;
        let outcome = match context.fault_rates.random_request_fault(context.rng) {
            None => {
                is_answered = true;
                make(context)
            }
            Some(RequestFault::Conflict) => refused(CallError::Conflict),
            Some(RequestFault::TooManyRequests) => refused(CallError::TooManyRequests { retry_after: None }),
            Some(RequestFault::Server) => refused(CallError::Server("not now".to_owned())),
            Some(RequestFault::Forbidden) => refused(CallError::Forbidden("not you".to_owned())),
            Some(RequestFault::Invalid) => refused(CallError::Invalid("not this".to_owned())),
            Some(RequestFault::LostNotApplied) => refused(CallError::NoAnswer),
            Some(RequestFault::ServerApplied) => {
                make(context);
                refused(CallError::Server("not now".to_owned()))
            }
            Some(RequestFault::LostApplied) => {
                make(context);
                refused(CallError::NoAnswer)
            }
            Some(fault @ (RequestFault::CrashAfter | RequestFault::CrashBefore)) => {
                if fault == RequestFault::CrashAfter {
                    make(context);
                }
                crashes = true;
                refused(CallError::NoAnswer)
            }
        };
        if crashes {
            self.crash();
            let down = Duration::from_millis(context.rng.between(100, 5_000));
            return context.next_steps.push((down, ControllerStep::Start));
        }
        let Some(in_flight) = self.calls.get_mut(&at) else { return };
        in_flight.outcome = Some(outcome);
        let written = context.server.revision();
        if is_answered && lagging.is_some() && before < written {
            in_flight.unacknowledged = Some(written);
            return context.waiting_steps.push((written, ControllerStep::AcknowledgeWrite(at)));
        }
        context.schedule_soon(ControllerStep::ReceiveResponse(at));
    }

    /// Responds to the write with the key `at` in `calls`. The lagging server has committed the write, and its state
    /// now contains the write. If the server was killed before, there is no response.
    fn acknowledge_write(&mut self, at: usize, context: &mut StepContext<'_>) {
        let Some(in_flight) = self.calls.get_mut(&at) else { return };
        let Some(written) = in_flight.unacknowledged.take() else { return };
        if context.lagging.is_some_and(|it| it.down == Some(ServerId::Lagging)) {
            in_flight.outcome = Some(Outcome::Refused(CallError::NoAnswer));
        } else {
            context.checks.on_write_acknowledged(written, context.visible_revision(ServerId::Lagging));
        }
        context.schedule_soon(ControllerStep::ReceiveResponse(at));
    }

    /// Passes the outcome of the request with the key `at` in `calls` to the controller.
    fn receive_response(&mut self, at: usize, context: &mut StepContext<'_>) {
        let Some(CallInFlight { call, outcome: Some(outcome), .. }) = self.calls.remove(&at) else {
            return;
        };
        self.work_queue.apply_outcome(&call, outcome, context.now);
        self.reconcile_soon(context);
    }
}

impl<L: Controller + 'static> ControllerProcess for SimProcess<L> {
    fn process_number(&self) -> u64 {
        self.process_number
    }

    fn execute_step(&mut self, step: ControllerStep, context: &mut StepContext<'_>) {
        match step {
            ControllerStep::Start => self.start_process(context),
            ControllerStep::DeliverEvent(kind) => self.deliver_event(kind, context),
            ControllerStep::ReceiveList(kind) => {
                self.receive_list(kind, context);
                if let Some(source) = WatchSource::from_resource(&self.watches[kind].resource) {
                    self.schedule_next_event(kind, source, context);
                }
                self.reconcile_soon(context);
            }
            ControllerStep::Reconcile => self.reconcile(context),
            ControllerStep::SendRequest(at) => self.send_request(at, context),
            ControllerStep::AcknowledgeWrite(at) => self.acknowledge_write(at, context),
            ControllerStep::ReceiveResponse(at) => self.receive_response(at, context),
        }
    }

    fn mark_delivery_scheduled(&mut self, source: WatchSource) -> Option<ControllerStep> {
        if !self.is_running {
            return None;
        }
        let at =
            self.watches.iter().position(|it| WatchSource::from_resource(&it.resource) == Some(source))?;
        self.scheduled_deliveries.insert(at).then_some(ControllerStep::DeliverEvent(at))
    }

    fn server(&self) -> ServerId {
        self.server
    }

    fn set_server(&mut self, server: ServerId) {
        self.server = server;
    }

    fn crash(&mut self) -> bool {
        let was_running = std::mem::take(&mut self.is_running);
        if was_running {
            self.process_number += 1;
            self.calls.clear();
        }
        was_running
    }
}

/// Returns the object that a request writes. Returns `None` if the request only reads, or if the simulation does not
/// have the kind of the object.
fn written_object(request: &Request) -> Option<(Kind, ObjectKey)> {
    let (kind, key, _) = parse_request_path(&request.path).filter(|_| request.verb != Verb::Get)?;
    Some((kind, key))
}

/// Handles a request of a built-in controller on a simulated API server.
fn handle_request(server: &mut RequestHandler<'_>, request: &Request, actor: Actor) -> Outcome {
    if let Some(node) =
        request.path.strip_prefix("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/")
    {
        let found =
            server.store.leases.get_key_value(node).map(|it| node_lease_json(it).to_string().into_bytes());
        return found.map_or(Outcome::Refused(CallError::NotFound), Outcome::Done);
    }
    let Some((kind, key, subresource)) = parse_request_path(&request.path) else {
        return Outcome::Refused(CallError::NotFound);
    };
    let body = request.body.as_ref().unwrap_or(&Value::Null);
    let done = match (request.verb, subresource) {
        (Verb::Get, None) => Ok(()),
        (Verb::Create, Some("binding")) => bind_pod(server, &key, body, actor),
        (Verb::Patch(_), None | Some("status")) => server.patch(kind, &key, body, actor).map(drop),
        (Verb::Delete, None) => {
            let guards = &body["preconditions"];
            let version = guards["resourceVersion"].as_str().and_then(|it| it.parse().ok());
            let force = body["gracePeriodSeconds"] == 0;
            server.delete(kind, &key, guards["uid"].as_str(), version, force, actor)
        }
        (verb, _) => unreachable!("{verb:?} {} is not implemented in the simulation", request.path),
    };
    // After a write, the response has the object as the server has committed it.
    let object =
        if request.verb == Verb::Get { server.object(kind, &key) } else { server.store.object(kind, &key) };
    match (done, object) {
        (Err(refusal), _) => Outcome::Refused(refusal),
        (Ok(()), Some(object)) => Outcome::Done(object.to_string().into_bytes()),
        (Ok(()), None) if request.verb == Verb::Get => Outcome::Refused(CallError::NotFound),
        (Ok(()), None) => Outcome::Done(b"{}".to_vec()),
    }
}

/// Parses the path of a request into the kind, the key and the subresource of the object. Returns `None` if the path
/// has another form.
fn parse_request_path(path: &str) -> Option<(Kind, ObjectKey, Option<&str>)> {
    let mut words = path.trim_start_matches('/').split('/');
    let group = match words.next()? {
        "api" => "",
        _ => words.next()?,
    };
    words.next()?;
    let (namespace, plural) = match words.next()? {
        "namespaces" => (words.next()?, words.next()?),
        plural => ("", plural),
    };
    let kind = Kind::ALL.into_iter().find(|it| it.group() == group && it.plural() == plural)?;
    Some((kind, ObjectKey::new(namespace, words.next()?), words.next()))
}

/// Binds a pod to a node, as a POST to the subresource `binding` does. Fails with a conflict if the pod is bound or
/// terminating, or has another UID.
fn bind_pod(
    server: &mut RequestHandler<'_>,
    key: &ObjectKey,
    body: &Value,
    actor: Actor,
) -> Result<(), CallError> {
    let object = server.object(Kind::Pods, key).ok_or(CallError::NotFound)?;
    let other = !body["metadata"]["uid"].is_null() && body["metadata"]["uid"] != object["metadata"]["uid"];
    let is_bound = object["spec"]["nodeName"].as_str().is_some_and(|it| !it.is_empty());
    if other || is_bound || !object["metadata"]["deletionTimestamp"].is_null() {
        return Err(CallError::Conflict);
    }
    let patch = json!({"spec": {"nodeName": body["target"]["name"]}});
    server.patch(Kind::Pods, key, &patch, actor).map(drop)
}
