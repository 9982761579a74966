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
use muster_engine::garbage_collector::Graph;
use muster_engine::node_lifecycle::{self, Lifecycle};
use muster_engine::scheduler::Scheduler;
use muster_store::Change;
use serde_json::{Value, json};

use crate::actors::nodes::BEAT_EVERY;
use crate::faults::{Mix, WatchFault, WriteFault};
use crate::rng::Rng;
use crate::server::{Actor, Server, prefix};
use crate::trace::Trace;
use crate::world::{Task, World};

/// A built-in controller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    Garbage,
    NodeLifecycle,
    Scheduler,
}

impl Part {
    fn actor(self) -> Actor {
        match self {
            Self::Garbage => Actor::Garbage,
            Self::NodeLifecycle => Actor::NodeLifecycle,
            Self::Scheduler => Actor::Scheduler,
        }
    }
}

/// All built-in controllers, not started yet.
pub fn all() -> BTreeMap<Part, Box<dyn Plays>> {
    BTreeMap::from([
        (Part::Garbage, Player::boxed(Part::Garbage, garbage)),
        (Part::NodeLifecycle, Player::boxed(Part::NodeLifecycle, node_lifecycle)),
        (Part::Scheduler, Player::boxed(Part::Scheduler, Scheduler::default)),
    ])
}

fn garbage() -> Graph {
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
    Graph::new(all.to_vec(), all)
}

/// The node lifecycle controller with short grace periods, so that a short run covers node failures and evictions.
fn node_lifecycle() -> Lifecycle {
    Lifecycle::new(node_lifecycle::Settings {
        grace: BEAT_EVERY * 4,
        startup_grace: BEAT_EVERY * 4,
        heartbeat: BEAT_EVERY,
        send_off_every: Duration::from_secs(2),
        ..node_lifecycle::Settings::default()
    })
}

/// One step of a built-in controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// The process starts.
    Begin,
    /// The next watch event of a watched kind reaches the controller.
    Deliver(usize),
    Look,
    /// A request reaches the API server.
    Call(usize),
    /// The response reaches the controller.
    Answer(usize),
}

impl World {
    pub fn part(&mut self, part: Part, life: u64, its: Move) {
        let runs = match part {
            Part::Garbage => self.garbage_runs,
            Part::NodeLifecycle => true,
            Part::Scheduler => self.scheduler_runs,
        };
        if !runs {
            return self.after(Duration::from_secs(1), Task::Part { part, life, its });
        }
        let Some(mut player) = self.parts.remove(&part) else { return };
        if player.life() == life || its == Move::Begin {
            let mut hands = Hands {
                now: self.now,
                server: &mut self.server,
                rng: &mut self.rng,
                mix: &self.mix,
                trace: &mut self.trace,
                moves: Vec::new(),
            };
            player.play(its, &mut hands);
            let moves = hands.moves;
            let life = player.life();
            for (delay, its) in moves {
                self.after(delay, Task::Part { part, life, its });
            }
        }
        self.parts.insert(part, player);
    }

    /// Schedules the delivery of a new commit to all built-in controllers that watch its kind.
    pub fn expect_delivery_to_parts(&mut self, kind: Kind) {
        let parts: Vec<Part> = self.parts.keys().copied().collect();
        for part in parts {
            let Some(player) = self.parts.get_mut(&part) else { continue };
            let life = player.life();
            if let Some(its) = player.expect(Heard::Commits(kind)) {
                let delay = self.soon();
                self.after(delay, Task::Part { part, life, its });
            }
        }
    }
}

impl World {
    /// Schedules the delivery of renewed node Leases to the node lifecycle controller.
    pub fn expect_heartbeats(&mut self) {
        let Some(player) = self.parts.get_mut(&Part::NodeLifecycle) else { return };
        let life = player.life();
        if let Some(its) = player.expect(Heard::Leases) {
            let delay = self.soon();
            self.after(delay, Task::Part { part: Part::NodeLifecycle, life, its });
        }
    }
}

/// A source of watch events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    Commits(Kind),
    /// Node Leases, which are kept outside the store.
    Leases,
}

impl Heard {
    fn of(resource: &Resource) -> Option<Self> {
        if *resource.plural == *"leases" {
            return Some(Self::Leases);
        }
        let is_it = |it: &Kind| *it.group() == *resource.group && *it.plural() == *resource.plural;
        Kind::ALL.into_iter().find(is_it).map(Self::Commits)
    }
}

fn lease((node, renewed): (&Text, &Time)) -> Value {
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
pub struct Hands<'a> {
    now: Time,
    server: &'a mut Server,
    rng: &'a mut Rng,
    mix: &'a Mix,
    trace: &'a mut Trace,
    moves: Vec<(Duration, Move)>,
}

impl Hands<'_> {
    fn soon(&mut self, its: Move) {
        let delay = Duration::from_micros(self.rng.between(100, self.mix.lag_ms.max(1) * 1000));
        self.moves.push((delay, its));
    }
}

/// A simulated process of a built-in controller, of any controller type.
pub trait Plays: fmt::Debug {
    /// Number of process starts; tasks of an earlier process are ignored.
    fn life(&self) -> u64;
    /// Executes one step.
    fn play(&mut self, its: Move, hands: &mut Hands<'_>);
    /// The delivery step for a new event, unless one is already scheduled for that kind.
    fn expect(&mut self, heard: Heard) -> Option<Move>;
}

/// A simulated process that runs one built-in controller.
pub struct Player<L: Controller> {
    part: Part,
    begin: fn() -> L,
    alive: bool,
    life: u64,
    driver: WorkQueue<L>,
    watches: Vec<Watch>,
    /// The revision that each watch has reached.
    cursors: Vec<u64>,
    /// The time up to which Lease renewals were delivered.
    heard: Time,
    delivering: BTreeSet<usize>,
    shared: Interner,
    /// Requests in flight, with the outcome of those that the API server has handled.
    calls: BTreeMap<usize, (L::Call, Option<Outcome>)>,
    sequence: usize,
    /// Time of the next scheduled reconcile.
    looks_at: Option<Time>,
}

impl<L: Controller> fmt::Debug for Player<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player").field("part", &self.part).field("life", &self.life).finish_non_exhaustive()
    }
}

/// Maximum number of concurrent requests of a built-in controller; low, so that requests queue even in a small cluster.
const CALLS_MAX: usize = 4;

impl<L: Controller + 'static> Player<L> {
    pub fn boxed(part: Part, begin: fn() -> L) -> Box<dyn Plays> {
        let inner = begin();
        let watches = inner.watches();
        Box::new(Self {
            part,
            begin,
            alive: false,
            life: 0,
            cursors: vec![0; watches.len()],
            heard: Time::default(),
            watches,
            driver: WorkQueue::new(inner, CALLS_MAX),
            delivering: BTreeSet::new(),
            shared: Interner::default(),
            calls: BTreeMap::new(),
            sequence: 0,
            looks_at: None,
        })
    }

    fn begin(&mut self, hands: &mut Hands<'_>) {
        self.life += 1;
        self.alive = true;
        self.driver = WorkQueue::new((self.begin)(), CALLS_MAX);
        self.calls.clear();
        self.delivering.clear();
        self.looks_at = None;
        for kind in 0..self.watches.len() {
            self.list(kind, hands);
        }
        self.look_soon(hands);
    }

    fn list(&mut self, kind: usize, hands: &mut Hands<'_>) {
        self.cursors[kind] = hands.server.revision();
        self.heard = hands.now;
        let texts: Vec<String> = match Heard::of(&self.watches[kind].resource) {
            Some(Heard::Commits(kind)) => hands.server.objects(kind).map(|(_, it)| it.to_string()).collect(),
            Some(Heard::Leases) => hands.server.leases.iter().map(|it| lease(it).to_string()).collect(),
            None => Vec::new(),
        };
        let facts = texts.iter().map(|it| self.fact(kind, it.as_bytes())).collect();
        self.driver.apply(Event::Listed { kind, facts }, hands.now);
    }

    fn fact(&mut self, kind: usize, object: &[u8]) -> L::Fact {
        L::decode(&self.watches[kind], object, &mut self.shared).expect("the server holds what it was given")
    }

    fn deliver(&mut self, kind: usize, hands: &mut Hands<'_>) {
        self.delivering.remove(&kind);
        let Some(heard) = Heard::of(&self.watches[kind].resource) else { return };
        let fault = hands.mix.watch_fault(hands.rng);
        match fault {
            Some(WatchFault::Relist | WatchFault::StaleRelist) => self.list(kind, hands),
            Some(WatchFault::Freeze) => {
                self.delivering.insert(kind);
                let span = Duration::from_millis(hands.rng.between(500, 15_000));
                return hands.moves.push((span, Move::Deliver(kind)));
            }
            _ if heard == Heard::Leases => self.hear(kind, hands),
            _ => {
                let Some(event) = next_event(hands.server, heard, self.cursors[kind]) else { return };
                self.cursors[kind] = event.revision;
                for _ in 0..if fault == Some(WatchFault::Duplicate) { 2 } else { 1 } {
                    let event = match &event.change {
                        Change::Put { now, .. } => Event::Applied { kind, fact: self.fact(kind, &now.value) },
                        Change::Delete { last, .. } => Event::Deleted { kind, fact: self.fact(kind, last) },
                    };
                    self.driver.apply(event, hands.now);
                }
            }
        }
        if next_event(hands.server, heard, self.cursors[kind]).is_some() {
            self.delivering.insert(kind);
            hands.soon(Move::Deliver(kind));
        }
        self.look_soon(hands);
    }

    /// Delivers the Leases that were renewed since the last delivery.
    fn hear(&mut self, kind: usize, hands: &mut Hands<'_>) {
        let renewed = hands.server.leases.iter().filter(|(_, at)| self.heard < **at);
        let renewed: Vec<String> = renewed.map(|it| lease(it).to_string()).collect();
        for text in renewed {
            let fact = self.fact(kind, text.as_bytes());
            self.driver.apply(Event::Applied { kind, fact }, hands.now);
        }
        self.heard = hands.now;
    }

    fn look_soon(&mut self, hands: &mut Hands<'_>) {
        self.look_at(hands.now + Duration::from_micros(hands.rng.between(50, 2_000)), hands);
    }

    fn look_at(&mut self, at: Time, hands: &mut Hands<'_>) {
        if self.looks_at.is_none_or(|it| at < it) {
            self.looks_at = Some(at);
            hands.moves.push((at.since(hands.now), Move::Look));
        }
    }

    fn look(&mut self, hands: &mut Hands<'_>) {
        if self.looks_at.is_none_or(|it| hands.now < it) {
            return;
        }
        self.looks_at = None;
        let step = self.driver.next(hands.now);
        for call in step.calls {
            self.sequence += 1;
            self.calls.insert(self.sequence, (call, None));
            hands.soon(Move::Call(self.sequence));
        }
        if let Some(at) = step.wake_at {
            // At least one microsecond later: a timer never fires early.
            self.look_at(at.max(hands.now + Duration::from_micros(1)), hands);
        }
    }

    fn call(&mut self, at: usize, hands: &mut Hands<'_>) {
        let Some((call, _)) = self.calls.get(&at) else { return };
        let request = L::request(call);
        let refused = |refusal| Outcome::Refused(refusal);
        let make = |hands: &mut Hands<'_>| {
            hands.trace.say(hands.now, || format!("{:?}: {call}", self.part));
            serve(hands.server, &request, self.part.actor())
        };
        let mut dies = false;
        let outcome = match hands.mix.write_fault(hands.rng) {
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
            self.alive = false;
            self.calls.clear();
            let down = Duration::from_millis(hands.rng.between(100, 5_000));
            return hands.moves.push((down, Move::Begin));
        }
        if let Some(call) = self.calls.get_mut(&at) {
            call.1 = Some(outcome);
            hands.soon(Move::Answer(at));
        }
    }

    fn answer(&mut self, at: usize, hands: &mut Hands<'_>) {
        let Some((call, Some(outcome))) = self.calls.remove(&at) else { return };
        self.driver.done(&call, outcome, hands.now);
        self.look_soon(hands);
    }
}

impl<L: Controller + 'static> Plays for Player<L> {
    fn life(&self) -> u64 {
        self.life
    }

    fn play(&mut self, its: Move, hands: &mut Hands<'_>) {
        match its {
            Move::Begin => self.begin(hands),
            Move::Deliver(kind) => self.deliver(kind, hands),
            Move::Look => self.look(hands),
            Move::Call(at) => self.call(at, hands),
            Move::Answer(at) => self.answer(at, hands),
        }
    }

    fn expect(&mut self, heard: Heard) -> Option<Move> {
        if !self.alive {
            return None;
        }
        let at = self.watches.iter().position(|it| Heard::of(&it.resource) == Some(heard))?;
        self.delivering.insert(at).then_some(Move::Deliver(at))
    }
}

fn next_event(server: &Server, heard: Heard, after: u64) -> Option<Arc<muster_store::Event>> {
    let Heard::Commits(kind) = heard else { return None };
    server.store.since(prefix(kind), after).expect("it is all kept").next().cloned()
}

/// Handles a request of a built-in controller on the simulated API server.
fn serve(server: &mut Server, request: &Request, actor: Actor) -> Outcome {
    if let Some(node) =
        request.path.strip_prefix("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/")
    {
        let found = server.leases.get_key_value(node).map(|it| lease(it).to_string().into_bytes());
        return found.map_or(Outcome::Refused(Refusal::NotFound), Outcome::Done);
    }
    let Some((kind, key, subresource)) = target(&request.path) else {
        return Outcome::Refused(Refusal::NotFound);
    };
    let body = request.body.as_ref().unwrap_or(&Value::Null);
    let done = match (request.verb, subresource) {
        (Verb::Get, None) => Ok(()),
        (Verb::Create, Some("binding")) => bind(server, &key, body, actor),
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

fn target(path: &str) -> Option<(Kind, ObjectKey, Option<&str>)> {
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

fn bind(server: &mut Server, key: &ObjectKey, body: &Value, actor: Actor) -> Result<(), Refusal> {
    let object = server.object(Kind::Pods, key).ok_or(Refusal::NotFound)?;
    let other = !body["metadata"]["uid"].is_null() && body["metadata"]["uid"] != object["metadata"]["uid"];
    let is_bound = object["spec"]["nodeName"].as_str().is_some_and(|it| !it.is_empty());
    if other || is_bound || !object["metadata"]["deletionTimestamp"].is_null() {
        return Err(Refusal::Conflict);
    }
    let patch = json!({"spec": {"nodeName": body["target"]["name"]}});
    server.patch(Kind::Pods, key, &patch, actor).map(drop)
}
