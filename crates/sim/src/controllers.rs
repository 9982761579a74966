//! The shipped built-in controllers in the simulation: watches lag, requests fail, and processes crash.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use muster_api::interner::Interner;
use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::controller::{Controller, Event, Outcome, Request, Resource, Watch, WorkQueue};
use muster_engine::daemonset::execution::Refusal;
use muster_engine::daemonset::facts::Kind;
use muster_engine::daemonset::manifest::Verb;
use muster_engine::garbage_collector::GarbageCollector;
use muster_engine::node_lifecycle::{self, NodeLifecycle};
use muster_engine::scheduler::Scheduler;
use muster_store::KeyChange;
use serde_json::{Value, json};

use crate::actors::nodes::HEARTBEAT_INTERVAL;
use crate::faults::{Mix, WatchFault, WriteFault};
use crate::rng::Rng;
use crate::server::{Actor, SimServer, store_key_prefix};
use crate::trace::Trace;
use crate::world::{SimTask, World};

/// A built-in controller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SimController {
    Garbage,
    NodeLifecycle,
    Scheduler,
}

impl SimController {
    fn as_actor(self) -> Actor {
        match self {
            Self::Garbage => Actor::Garbage,
            Self::NodeLifecycle => Actor::NodeLifecycle,
            Self::Scheduler => Actor::Scheduler,
        }
    }
}

/// All built-in controllers, not started yet.
pub fn all_controllers() -> BTreeMap<SimController, Box<dyn ControllerProcess>> {
    BTreeMap::from([
        (SimController::Garbage, SimProcess::new_boxed(SimController::Garbage, garbage_collector)),
        (
            SimController::NodeLifecycle,
            SimProcess::new_boxed(SimController::NodeLifecycle, fast_node_lifecycle),
        ),
        (SimController::Scheduler, SimProcess::new_boxed(SimController::Scheduler, Scheduler::default)),
    ])
}

fn garbage_collector() -> GarbageCollector {
    let resource = |kind: Kind| {
        let name = match kind {
            Kind::Sets => "DaemonSet",
            Kind::Nodes => "Node",
            Kind::Pods => "Pod",
            Kind::Revisions => "ControllerRevision",
        };
        Watch::whole(kind.group(), "v1", name, kind.plural(), kind != Kind::Nodes).resource
    };
    let all = Kind::ALL.map(resource);
    GarbageCollector::new(all.to_vec(), all)
}

/// The node lifecycle controller with short grace periods, so that a short run covers node failures and evictions.
fn fast_node_lifecycle() -> NodeLifecycle {
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
    /// The next watch event of a watched kind reaches the controller.
    Deliver(usize),
    Reconcile,
    /// A request reaches the API server.
    Call(usize),
    /// The response reaches the controller.
    Answer(usize),
}

impl World {
    pub fn step_controller(&mut self, part: SimController, life: u64, its: ControllerStep) {
        let runs = match part {
            SimController::Garbage => self.garbage_runs,
            SimController::NodeLifecycle => true,
            SimController::Scheduler => self.scheduler_runs,
        };
        if !runs {
            return self.schedule_after(Duration::from_secs(1), SimTask::ControllerStep { part, life, its });
        }
        let Some(mut player) = self.parts.remove(&part) else { return };
        if player.process_number() == life || its == ControllerStep::Start {
            let mut hands = StepContext {
                now: self.now,
                server: &mut self.server,
                rng: &mut self.rng,
                mix: &self.mix,
                trace: &mut self.trace,
                moves: Vec::new(),
            };
            player.execute_step(its, &mut hands);
            let moves = hands.moves;
            let life = player.process_number();
            for (delay, its) in moves {
                self.schedule_after(delay, SimTask::ControllerStep { part, life, its });
            }
        }
        self.parts.insert(part, player);
    }

    /// Schedules the delivery of a new commit to all built-in controllers that watch its kind.
    pub fn schedule_delivery_to_controllers(&mut self, kind: Kind) {
        let parts: Vec<SimController> = self.parts.keys().copied().collect();
        for part in parts {
            let Some(player) = self.parts.get_mut(&part) else { continue };
            let life = player.process_number();
            if let Some(its) = player.delivery_for(WatchSource::Commits(kind)) {
                let delay = self.random_delay();
                self.schedule_after(delay, SimTask::ControllerStep { part, life, its });
            }
        }
    }
}

impl World {
    /// Schedules the delivery of renewed node Leases to the node lifecycle controller.
    pub fn schedule_lease_delivery(&mut self) {
        let Some(player) = self.parts.get_mut(&SimController::NodeLifecycle) else { return };
        let life = player.process_number();
        if let Some(its) = player.delivery_for(WatchSource::Leases) {
            let delay = self.random_delay();
            self.schedule_after(
                delay,
                SimTask::ControllerStep { part: SimController::NodeLifecycle, life, its },
            );
        }
    }
}

/// A source of watch events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchSource {
    Commits(Kind),
    /// Node Leases, which are kept outside the store.
    Leases,
}

impl WatchSource {
    fn from_resource(resource: &Resource) -> Option<Self> {
        if *resource.plural == *"leases" {
            return Some(Self::Leases);
        }
        let is_it = |it: &Kind| *it.group() == *resource.group && *it.plural() == *resource.plural;
        Kind::ALL.into_iter().find(is_it).map(Self::Commits)
    }
}

fn node_lease_json((node, renewed): (&Text, &Time)) -> Value {
    json!({
        "metadata": {
            "namespace": "kube-node-lease",
            "name": node,
            "resourceVersion": renewed.as_micros().to_string(),
        },
        "spec": {"renewTime": renewed.as_micros().to_string()},
    })
}

/// The part of the simulation that a built-in controller's step may use.
#[derive(Debug)]
pub struct StepContext<'a> {
    now: Time,
    server: &'a mut SimServer,
    rng: &'a mut Rng,
    mix: &'a Mix,
    trace: &'a mut Trace,
    moves: Vec<(Duration, ControllerStep)>,
}

impl StepContext<'_> {
    fn schedule_soon(&mut self, its: ControllerStep) {
        let delay = Duration::from_micros(self.rng.between(100, self.mix.lag_ms.max(1) * 1000));
        self.moves.push((delay, its));
    }
}

/// A simulated process of a built-in controller, of any controller type.
pub trait ControllerProcess: fmt::Debug {
    /// Number of process starts; tasks of an earlier process are ignored.
    fn process_number(&self) -> u64;
    /// Executes one step.
    fn execute_step(&mut self, its: ControllerStep, hands: &mut StepContext<'_>);
    /// The delivery step for a new event, unless one is already scheduled for that kind.
    fn delivery_for(&mut self, heard: WatchSource) -> Option<ControllerStep>;
}

/// A simulated process that runs one built-in controller.
pub struct SimProcess<L: Controller> {
    part: SimController,
    begin: fn() -> L,
    is_running: bool,
    life: u64,
    work_queue: WorkQueue<L>,
    watches: Vec<Watch>,
    /// The revision that each watch has reached.
    cursors: Vec<u64>,
    /// The time up to which Lease renewals were delivered.
    leases_delivered_until: Time,
    delivering: BTreeSet<usize>,
    shared: Interner,
    /// Requests in flight, with the outcome of those that the API server has handled.
    calls: BTreeMap<usize, (L::Call, Option<Outcome>)>,
    sequence: usize,
    /// Time of the next scheduled reconcile.
    reconcile_due: Option<Time>,
}

impl<L: Controller> fmt::Debug for SimProcess<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player").field("part", &self.part).field("life", &self.life).finish_non_exhaustive()
    }
}

/// Maximum number of concurrent requests of a built-in controller; low, so that requests queue even in a small cluster.
const REQUESTS_MAX: usize = 4;

impl<L: Controller + 'static> SimProcess<L> {
    pub fn new_boxed(part: SimController, begin: fn() -> L) -> Box<dyn ControllerProcess> {
        let inner = begin();
        let watches = inner.watches();
        Box::new(Self {
            part,
            begin,
            is_running: false,
            life: 0,
            cursors: vec![0; watches.len()],
            leases_delivered_until: Time::default(),
            watches,
            work_queue: WorkQueue::new(inner, REQUESTS_MAX),
            delivering: BTreeSet::new(),
            shared: Interner::default(),
            calls: BTreeMap::new(),
            sequence: 0,
            reconcile_due: None,
        })
    }

    fn start(&mut self, hands: &mut StepContext<'_>) {
        self.life += 1;
        self.is_running = true;
        self.work_queue = WorkQueue::new((self.begin)(), REQUESTS_MAX);
        self.calls.clear();
        self.delivering.clear();
        self.reconcile_due = None;
        for kind in 0..self.watches.len() {
            self.list_kind(kind, hands);
        }
        self.reconcile_soon(hands);
    }

    fn list_kind(&mut self, kind: usize, hands: &mut StepContext<'_>) {
        self.cursors[kind] = hands.server.revision();
        self.leases_delivered_until = hands.now;
        let texts: Vec<String> = match WatchSource::from_resource(&self.watches[kind].resource) {
            Some(WatchSource::Commits(kind)) => {
                hands.server.objects(kind).map(|(_, it)| it.to_string()).collect()
            }
            Some(WatchSource::Leases) => {
                hands.server.leases.iter().map(|it| node_lease_json(it).to_string()).collect()
            }
            None => Vec::new(),
        };
        let facts = texts.iter().map(|it| self.decode_fact(kind, it.as_bytes())).collect();
        self.work_queue.apply(Event::Listed { kind, facts }, hands.now);
    }

    fn decode_fact(&mut self, kind: usize, object: &[u8]) -> L::Fact {
        L::decode(&self.watches[kind], object, &mut self.shared).expect("the server holds what it was given")
    }

    fn deliver_event(&mut self, kind: usize, hands: &mut StepContext<'_>) {
        self.delivering.remove(&kind);
        let Some(heard) = WatchSource::from_resource(&self.watches[kind].resource) else { return };
        let fault = hands.mix.random_watch_fault(hands.rng);
        match fault {
            Some(WatchFault::Relist | WatchFault::StaleRelist) => self.list_kind(kind, hands),
            Some(WatchFault::Freeze) => {
                self.delivering.insert(kind);
                let span = Duration::from_millis(hands.rng.between(500, 15_000));
                return hands.moves.push((span, ControllerStep::Deliver(kind)));
            }
            _ if heard == WatchSource::Leases => self.deliver_leases(kind, hands),
            _ => {
                let Some(event) = next_watch_event(hands.server, heard, self.cursors[kind]) else { return };
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
                    self.work_queue.apply(event, hands.now);
                }
            }
        }
        if next_watch_event(hands.server, heard, self.cursors[kind]).is_some() {
            self.delivering.insert(kind);
            hands.schedule_soon(ControllerStep::Deliver(kind));
        }
        self.reconcile_soon(hands);
    }

    /// Delivers the Leases that were renewed since the last delivery.
    fn deliver_leases(&mut self, kind: usize, hands: &mut StepContext<'_>) {
        let renewed = hands.server.leases.iter().filter(|(_, at)| self.leases_delivered_until < **at);
        let renewed: Vec<String> = renewed.map(|it| node_lease_json(it).to_string()).collect();
        for text in renewed {
            let fact = self.decode_fact(kind, text.as_bytes());
            self.work_queue.apply(Event::Applied { kind, fact }, hands.now);
        }
        self.leases_delivered_until = hands.now;
    }

    fn reconcile_soon(&mut self, hands: &mut StepContext<'_>) {
        self.reconcile_at(hands.now + Duration::from_micros(hands.rng.between(50, 2_000)), hands);
    }

    fn reconcile_at(&mut self, at: Time, hands: &mut StepContext<'_>) {
        if self.reconcile_due.is_none_or(|it| at < it) {
            self.reconcile_due = Some(at);
            hands.moves.push((at.since(hands.now), ControllerStep::Reconcile));
        }
    }

    fn reconcile(&mut self, hands: &mut StepContext<'_>) {
        if self.reconcile_due.is_none_or(|it| hands.now < it) {
            return;
        }
        self.reconcile_due = None;
        let step = self.work_queue.next(hands.now);
        for call in step.calls {
            self.sequence += 1;
            self.calls.insert(self.sequence, (call, None));
            hands.schedule_soon(ControllerStep::Call(self.sequence));
        }
        if let Some(at) = step.wake_at {
            // At least one microsecond later: a timer never fires early.
            self.reconcile_at(at.max(hands.now + Duration::from_micros(1)), hands);
        }
    }

    fn send_request(&mut self, at: usize, hands: &mut StepContext<'_>) {
        let Some((call, _)) = self.calls.get(&at) else { return };
        let request = L::request(call);
        let refused = |refusal| Outcome::Refused(refusal);
        let make = |hands: &mut StepContext<'_>| {
            hands.trace.add_line(hands.now, || format!("{:?}: {call}", self.part));
            handle_request(hands.server, &request, self.part.as_actor())
        };
        let mut dies = false;
        let outcome = match hands.mix.random_write_fault(hands.rng) {
            None => make(hands),
            Some(WriteFault::Conflict) => refused(Refusal::Conflict),
            Some(WriteFault::TooManyRequests) => refused(Refusal::TooManyRequests { retry_after: None }),
            Some(WriteFault::Server) => refused(Refusal::Server("not now".to_owned())),
            Some(WriteFault::Forbidden) => refused(Refusal::Forbidden("not you".to_owned())),
            Some(WriteFault::Invalid) => refused(Refusal::Invalid("not this".to_owned())),
            Some(WriteFault::LostNotApplied) => refused(Refusal::NoAnswer),
            Some(WriteFault::ServerApplied) => {
                make(hands);
                refused(Refusal::Server("not now".to_owned()))
            }
            Some(WriteFault::LostApplied) => {
                make(hands);
                refused(Refusal::NoAnswer)
            }
            Some(fault @ (WriteFault::CrashAfter | WriteFault::CrashBefore)) => {
                if fault == WriteFault::CrashAfter {
                    make(hands);
                }
                dies = true;
                refused(Refusal::NoAnswer)
            }
        };
        if dies {
            self.life += 1;
            self.is_running = false;
            self.calls.clear();
            let down = Duration::from_millis(hands.rng.between(100, 5_000));
            return hands.moves.push((down, ControllerStep::Start));
        }
        if let Some(call) = self.calls.get_mut(&at) {
            call.1 = Some(outcome);
            hands.schedule_soon(ControllerStep::Answer(at));
        }
    }

    fn receive_response(&mut self, at: usize, hands: &mut StepContext<'_>) {
        let Some((call, Some(outcome))) = self.calls.remove(&at) else { return };
        self.work_queue.done(&call, outcome, hands.now);
        self.reconcile_soon(hands);
    }
}

impl<L: Controller + 'static> ControllerProcess for SimProcess<L> {
    fn process_number(&self) -> u64 {
        self.life
    }

    fn execute_step(&mut self, its: ControllerStep, hands: &mut StepContext<'_>) {
        match its {
            ControllerStep::Start => self.start(hands),
            ControllerStep::Deliver(kind) => self.deliver_event(kind, hands),
            ControllerStep::Reconcile => self.reconcile(hands),
            ControllerStep::Call(at) => self.send_request(at, hands),
            ControllerStep::Answer(at) => self.receive_response(at, hands),
        }
    }

    fn delivery_for(&mut self, heard: WatchSource) -> Option<ControllerStep> {
        if !self.is_running {
            return None;
        }
        let at =
            self.watches.iter().position(|it| WatchSource::from_resource(&it.resource) == Some(heard))?;
        self.delivering.insert(at).then_some(ControllerStep::Deliver(at))
    }
}

fn next_watch_event(
    server: &SimServer,
    heard: WatchSource,
    after: u64,
) -> Option<Arc<muster_store::CommitEvent>> {
    let WatchSource::Commits(kind) = heard else { return None };
    server.store.commits_since(store_key_prefix(kind), after).expect("it is all kept").next().cloned()
}

/// Handles a request of a built-in controller on the simulated API server.
fn handle_request(server: &mut SimServer, request: &Request, actor: Actor) -> Outcome {
    if let Some(node) =
        request.path.strip_prefix("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/")
    {
        let found = server.leases.get_key_value(node).map(|it| node_lease_json(it).to_string().into_bytes());
        return found.map_or(Outcome::Refused(Refusal::NotFound), Outcome::Done);
    }
    let Some((kind, key, subresource)) = parse_request_path(&request.path) else {
        return Outcome::Refused(Refusal::NotFound);
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
    match (done, server.object(kind, &key)) {
        (Err(refusal), _) => Outcome::Refused(refusal),
        (Ok(()), Some(object)) => Outcome::Done(object.to_string().into_bytes()),
        (Ok(()), None) if request.verb == Verb::Get => Outcome::Refused(Refusal::NotFound),
        (Ok(()), None) => Outcome::Done(b"{}".to_vec()),
    }
}

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

fn bind_pod(server: &mut SimServer, key: &ObjectKey, body: &Value, actor: Actor) -> Result<(), Refusal> {
    let object = server.object(Kind::Pods, key).ok_or(Refusal::NotFound)?;
    let other = !body["metadata"]["uid"].is_null() && body["metadata"]["uid"] != object["metadata"]["uid"];
    let is_bound = object["spec"]["nodeName"].as_str().is_some_and(|it| !it.is_empty());
    if other || is_bound || !object["metadata"]["deletionTimestamp"].is_null() {
        return Err(Refusal::Conflict);
    }
    let patch = json!({"spec": {"nodeName": body["target"]["name"]}});
    server.patch(Kind::Pods, key, &patch, actor).map(drop)
}
