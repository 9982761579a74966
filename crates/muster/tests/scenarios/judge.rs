//! Judges a run by the simulator's own invariants. The server's history is replayed revision by revision, and beside it
//! what each controller saw, planned and sent, in the order in which it happened.
//!
//! What cannot be judged from outside: S6, since simulated nodes run nothing; S10, since real time is no seed; L8 in
//! full, since it compares thousands of runs. S9 is held by the test itself: a controller that panics fails it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::controller::{CallError, Verb};
use muster_engine::daemonset::execution::{PlannedCall, Response};
use muster_engine::daemonset::facts::{Kind, Set};
use muster_engine::daemonset::manifest;
use muster_engine::daemonset::plan::{Plan, Settings};
use muster_sim::faults::RequestFault;
use muster_sim::invariants::liveness::ConvergenceCheck;
use muster_sim::invariants::oracle::ClusterView;
use muster_sim::invariants::{DecidedPlan, InvariantChecks, Violation};
use muster_sim::server::{Actor, SimServer};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::line::{Delivered, Fate, Sent};

/// One change that the server's history tells of.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) of: Of,
    pub(crate) key: ObjectKey,
    /// The object as it was then, or last was, and the same byte for byte.
    pub(crate) object: Value,
    pub(crate) json: Bytes,
    pub(crate) gone: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    Kind(Kind),
    Lease,
}

/// What a controller's witness told.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) at: Time,
    pub(crate) replica: usize,
    /// Counts its processes.
    pub(crate) life: u64,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Planned { plan: Arc<Plan>, snapshot: BTreeMap<Kind, u64>, sets: Vec<Arc<Set>> },
    Called { set: Arc<Set>, call: PlannedCall },
    Answered { set: Arc<Set>, call: PlannedCall, outcome: Response },
    Done { set: Arc<Set> },
    Died,
}

/// Everything that is known of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) history: Vec<Change>,
    pub(crate) records: Vec<Record>,
    pub(crate) sent: Vec<Sent>,
    pub(crate) delivered: Vec<Delivered>,
    /// The identity in the lease of each process; without leases, the one that writes.
    pub(crate) leases: Leases,
}

#[derive(Clone, Debug)]
pub(crate) enum Leases {
    /// One controller, of which there may be several processes one after the other.
    One,
    /// Whoever's name is in the lease.
    Held,
    /// Several lead at once, and each believes that it is alone: what they do is healed.
    None,
}

impl Run {
    /// The first invariant that was broken. Whoever was told the wrong things is not to blame for what follows.
    pub(crate) fn violation(&self) -> Option<Violation> {
        let mut replay = Replay::new(self);
        for record in &self.records {
            replay.take(record);
        }
        replay.advance(u64::MAX, self.records.last().map_or(Time::default(), |it| it.at));
        let mut told = InvariantChecks::default();
        for it in &self.delivered {
            told.check_delivered_event(&replay.server, it.replica, it.kind, it.after, it.revision);
        }
        told.violation.or(replay.checks.violation)
    }

    /// The first commits by controllers after this revision.
    pub(crate) fn writes_after(&self, revision: u64) -> Vec<String> {
        let actors = actors(self);
        let mine = self.history.iter().zip(actors).filter(|(it, actor)| {
            revision < it.revision && it.of != Of::Lease && matches!(actor, Actor::Controller(_))
        });
        let shown =
            |it: &Change| format!("{:?} {} at r{}: {}", it.of, it.key, it.revision, it.object["status"]);
        mine.map(|(it, _)| shown(it)).take(3).collect()
    }
}

/// The first thing that is not where it should be: L1 to L4, L7, L11.
pub(crate) fn unsettled(objects: &[(Kind, Value)], dead: &BTreeSet<Text>, now: Time) -> Option<Violation> {
    let mut server = SimServer::default();
    let version =
        |it: &Value| it["metadata"]["resourceVersion"].as_str().unwrap_or("0").parse().unwrap_or(0_u64);
    let mut sorted: Vec<&(Kind, Value)> = objects.iter().collect();
    sorted.sort_by_key(|(_, it)| version(it));
    for (kind, object) in sorted {
        let json = Bytes::from(object.to_string());
        server.replay_commit(version(object), *kind, &key_of(object), Some(json), Actor::User, now);
    }
    let view = ClusterView::current(&server);
    let outlook = ConvergenceCheck {
        view: &view,
        clock: now,
        dead_nodes: dead.clone(),
        never_ready_pods: BTreeSet::new(),
        rejects_new_pods: false,
    };
    if let Some(pod) = view.pods.values().find(|it| !it.bound && it.is_live()) {
        let detail = format!("{} is not bound", pod.key);
        return Some(Violation { invariant: "L11", detail });
    }
    let deleting = view.sets.values().find(|it| it.deleting);
    if let Some(set) = deleting {
        return Some(Violation { invariant: "L6", detail: format!("{} is being deleted", set.key) });
    }
    let of_sets = objects.iter().filter(|(kind, _)| *kind == Kind::Sets);
    view.sets
        .values()
        .find_map(|set| outlook.first_set_difference(set))
        .or_else(|| of_sets.map(|(_, it)| it).find_map(unsettled_conditions))
}

/// A settled set says so: the counts may be right while an old pod is still ending, and then one write of the conditions follows.
fn unsettled_conditions(set: &Value) -> Option<Violation> {
    let conditions = set["status"]["conditions"].as_array()?;
    let is_open = |it: &&Value| match it["type"].as_str() {
        Some("Available") => it["status"] != "True",
        Some("Progressing") => it["status"] != "False",
        Some("Degraded") => it["status"] != "False" && it["reason"] != "InvalidSpec",
        _ => false,
    };
    let open = conditions.iter().find(is_open)?;
    let detail = format!("{}: {} is {}: {}", key_of(set), open["type"], open["status"], open["message"]);
    Some(Violation { invariant: "L2", detail })
}

pub(crate) fn key_of(object: &Value) -> ObjectKey {
    let meta = &object["metadata"];
    ObjectKey::new(meta["namespace"].as_str().unwrap_or_default(), meta["name"].as_str().unwrap_or_default())
}

struct Replay<'a> {
    run: &'a Run,
    server: SimServer,
    checks: InvariantChecks,
    actors: Vec<Actor>,
    /// How many changes have been replayed, and up to which revision anybody is known to have seen.
    replayed: usize,
    known: u64,
    decided: BTreeMap<(usize, ObjectKey), DecidedPlan>,
    open: Vec<Open>,
    /// Which of `run.sent` have been matched with a call.
    matched: BTreeSet<usize>,
}

/// A call that waits for its answer.
struct Open {
    replica: usize,
    set: ObjectKey,
    call: PlannedCall,
    sent: Option<usize>,
    before: u64,
}

impl<'a> Replay<'a> {
    fn new(run: &'a Run) -> Self {
        let mut checks = InvariantChecks::default();
        checks.burst = Settings::default().burst;
        match run.leases {
            Leases::One => checks.on_lease_renewed((0, 0)),
            Leases::Held => {}
            // No lease tells them apart.
            Leases::None => checks.on_clock_step(usize::MAX),
        }
        Self {
            run,
            server: SimServer::default(),
            checks,
            actors: actors(run),
            replayed: 0,
            known: 0,
            decided: BTreeMap::new(),
            open: Vec::new(),
            matched: BTreeSet::new(),
        }
    }

    fn take(&mut self, record: &Record) {
        let Record { at, replica, life, what } = record;
        match what {
            What::Planned { plan, snapshot, sets } => {
                self.advance(snapshot.values().copied().max().unwrap_or(0), *at);
                if let Leases::One = self.run.leases {
                    self.checks.on_lease_renewed((*replica, *life));
                }
                let decided = DecidedPlan {
                    replica: *replica,
                    process_number: *life,
                    snapshot: snapshot.clone(),
                    clock: *at,
                    plan: plan.clone(),
                    rechecked: None,
                };
                self.checks.check_new_plan(&self.server, sets.iter(), &decided);
                if !plan.is_idle() {
                    self.checks.on_execution_start(&decided);
                    self.decided.insert((*replica, plan.set.key.clone()), decided);
                }
            }
            What::Called { set, call } => self.called((*replica, *life), set, call, *at),
            What::Answered { set, call, outcome } => self.answered(*replica, set, call, outcome, *at),
            What::Done { set } => {
                if let Some(decided) = self.decided.get(&(*replica, set.key.clone())) {
                    self.checks.on_execution_end(&self.server, decided);
                }
            }
            What::Died => {
                self.checks.drop_replica_records(*replica);
                self.open.retain(|it| it.replica != *replica);
            }
        }
    }

    fn called(&mut self, (replica, life): (usize, u64), set: &Arc<Set>, call: &PlannedCall, at: Time) {
        let sent = self.find((replica, life), set, call);
        let before = self.server.revision();
        self.open.push(Open { replica, set: set.key.clone(), call: call.clone(), sent, before });
        let reached = sent.map(|it| &self.run.sent[it]).filter(|it| it.fate != Fate::Lost);
        if let (Some(sent), Some(decided)) = (reached, self.decided.get(&(replica, set.key.clone()))) {
            let body = without_binding(call, sent.body.clone());
            self.checks.check_request(&self.server, decided, set, call, &body, at);
        }
    }

    fn answered(&mut self, replica: usize, set: &Arc<Set>, call: &PlannedCall, outcome: &Response, at: Time) {
        let Some(open) = self
            .open
            .iter()
            .position(|it| it.replica == replica && it.set == set.key && it.call == *call)
            .map(|it| self.open.remove(it))
        else {
            return;
        };
        match outcome {
            Response::Wrote { resource_version, .. } => self.advance(*resource_version, at),
            Response::Pods(pods) => self.advance(pods.iter().map(|it| it.1).max().unwrap_or(0), at),
            Response::Set(it) => {
                self.advance(it.resource_version, at);
                if let Some(decided) = self.decided.get_mut(&(replica, set.key.clone())) {
                    decided.rechecked = Some((it.uid.clone(), it.deleting));
                }
            }
            _ => {}
        }
        let fate = open.sent.map(|it| self.run.sent[it].fate.clone());
        // What really happened, and what the controller was told of it.
        let (truth, fault) = match (fate, outcome) {
            (Some(Fate::Answered { status: 200..300, resource_version }), Response::Refused(told)) => {
                let told = match told {
                    CallError::NoAnswer => RequestFault::LostApplied,
                    _ => RequestFault::ServerApplied,
                };
                let name = Text::from("");
                let truth = match manifest::call_verb(call) {
                    Verb::Delete => Response::Deleted,
                    Verb::Get | Verb::List => return,
                    _ => Response::Wrote { name, resource_version: resource_version.unwrap_or(0) },
                };
                self.advance(resource_version.unwrap_or(0), at);
                (truth, Some(told))
            }
            (Some(Fate::Answered { resource_version, .. }), outcome) => {
                let removal = if *outcome == Response::Deleted { self.removal(call) } else { 0 };
                self.advance(resource_version.unwrap_or(0).max(removal), at);
                let truth = match (outcome, resource_version) {
                    (Response::Wrote { name, .. }, Some(resource_version)) => {
                        Response::Wrote { name: name.clone(), resource_version }
                    }
                    _ => outcome.clone(),
                };
                (truth, None)
            }
            (_, outcome) => {
                let decided = &self.decided[&(replica, set.key.clone())];
                return self.checks.on_response(decided, call, outcome, None);
            }
        };
        let decided = &self.decided[&(replica, set.key.clone())];
        self.checks.check_request_outcome(&self.server, decided, set, call, &truth, open.before, at);
        self.checks.on_response(decided, call, &truth, fault);
    }

    /// The revision at which what was deleted went, where the answer does not say it.
    fn removal(&self, call: &PlannedCall) -> u64 {
        let (kind, key, uid) = match call {
            PlannedCall::DeleteRevision { revision } => (Kind::Revisions, &revision.key, &revision.uid),
            PlannedCall::DeletePod { pod, .. } | PlannedCall::EvictPod { pod, .. } => {
                (Kind::Pods, &pod.key, &pod.uid)
            }
            _ => return 0,
        };
        let is_it = |it: &&Change| {
            let marked = it.gone || !it.object["metadata"]["deletionTimestamp"].is_null();
            it.of == Of::Kind(kind) && it.key == *key && it.object["metadata"]["uid"] == **uid && marked
        };
        self.run.history.iter().find(is_it).map_or(0, |it| it.revision)
    }

    /// The request that a call became: the first of its sort that no earlier call became.
    fn find(&mut self, (replica, life): (usize, u64), set: &Set, call: &PlannedCall) -> Option<usize> {
        let target = manifest::call_target(set, call);
        let method = match manifest::call_verb(call) {
            Verb::Get | Verb::List => Method::GET,
            Verb::Create => Method::POST,
            Verb::Update => Method::PUT,
            Verb::Delete => Method::DELETE,
            Verb::Patch(_) => Method::PATCH,
        };
        let plural = target.kind.plural();
        let mut tail = format!("/{}/{plural}", set.key.namespace);
        for part in target.name.as_deref().into_iter().chain(target.subresource) {
            tail = format!("{tail}/{part}");
        }
        let same = |it: &Sent| {
            it.actor == Actor::Controller(replica)
                && it.life == life
                && it.method == method
                && it.path.ends_with(&tail)
                && match call {
                    PlannedCall::CreatePod { node, .. } => {
                        let owner = &it.body["metadata"]["ownerReferences"][0];
                        pinned(&it.body) == Some(node) && owner["uid"] == *set.uid
                    }
                    _ => true,
                }
        };
        let found =
            (0..self.run.sent.len()).find(|it| !self.matched.contains(it) && same(&self.run.sent[*it]))?;
        self.matched.insert(found);
        Some(found)
    }

    /// Replays what had been committed by the time that somebody saw this revision.
    fn advance(&mut self, revision: u64, at: Time) {
        self.known = self.known.max(revision);
        while let Some(change) = self.run.history.get(self.replayed).filter(|it| it.revision <= self.known) {
            let actor = self.actors[self.replayed];
            self.replayed += 1;
            let Of::Kind(kind) = change.of else {
                let holder = change.object["spec"]["holderIdentity"]
                    .as_str()
                    .filter(|_| *change.key.name == *"scenario");
                if let Some(process) = holder.and_then(process) {
                    self.checks.on_lease_renewed(process);
                }
                continue;
            };
            if let (Actor::Controller(replica), Leases::Held) = (actor, &self.run.leases) {
                let leads = self.checks.holds_lease(replica);
                self.checks.check_leader(replica, leads, at);
            }
            let json = (!change.gone).then(|| change.json.clone());
            self.server.replay_commit(change.revision, kind, &change.key, json, actor, at);
            let commit = self.server.log.last().expect("it was just replayed").clone();
            self.checks.on_commit(&self.server, &commit, at);
        }
    }
}

/// Which process a name in the lease stands for.
pub(crate) fn process(identity: &str) -> Option<(usize, u64)> {
    let (replica, life) = identity.split_once('-')?;
    Some((replica.parse().ok()?, life.parse().ok()?))
}

/// The client that made each change: the one whose response has that revision, that requested the deletion, or that bound the
/// pod. All other changes count as made by users.
fn actors(run: &Run) -> Vec<Actor> {
    let mut by_revision: BTreeMap<u64, Actor> = BTreeMap::new();
    let mut removed: BTreeMap<String, Actor> = BTreeMap::new();
    // The response to a binding has no resourceVersion.
    let mut bound: BTreeMap<String, Actor> = BTreeMap::new();
    for sent in run.sent.iter().filter(|it| it.method != Method::GET) {
        let Fate::Answered { status: 200..300, resource_version } = sent.fate else { continue };
        if let Some(revision) = resource_version {
            by_revision.entry(revision).or_insert(sent.actor);
        }
        if sent.method == Method::DELETE {
            removed.insert(sent.path.clone(), sent.actor);
        }
        if let Some(pod) = sent.path.strip_suffix("/binding") {
            bound.insert(pod.to_owned(), sent.actor);
        }
    }
    let of = |change: &Change| {
        let by_path = |requests: &BTreeMap<String, Actor>| {
            let Of::Kind(kind) = change.of else { return None };
            let plural =
                muster_sim::server::store_key_prefix(kind).split(['.', '/']).next().unwrap_or_default();
            let tail = match kind {
                Kind::Nodes => format!("/nodes/{}", change.key.name),
                _ => format!("/{}/{plural}/{}", change.key.namespace, change.key.name),
            };
            requests.iter().find(|(path, _)| path.ends_with(&tail)).map(|(_, actor)| *actor)
        };
        let known = by_revision.get(&change.revision).copied();
        let by_request = || match change.gone {
            true => by_path(&removed),
            false => by_path(&bound).filter(|_| change.object["spec"]["nodeName"].is_string()),
        };
        known.or_else(by_request).unwrap_or(Actor::User)
    };
    run.history.iter().map(of).collect()
}

/// A pod that is told its node by the controller itself is otherwise the same.
fn without_binding(call: &PlannedCall, mut body: Value) -> Value {
    if let PlannedCall::CreatePod { node, .. } = call
        && body["spec"]["nodeName"] == **node
        && let Some(spec) = body["spec"].as_object_mut()
    {
        spec.remove("nodeName");
    }
    body
}

pub(crate) fn pinned(pod: &Value) -> Option<&str> {
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0].as_str()
}

/// Reads one line of a watch.
pub(crate) fn change(of: Of, line: &str) -> Option<Change> {
    #[derive(Deserialize)]
    struct Line<'a> {
        r#type: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let line: Line<'_> = serde_json::from_str(line).unwrap();
    assert_ne!(line.r#type, "ERROR", "{}", line.object);
    let json = Bytes::from(line.object.get().to_owned());
    let object: Value = serde_json::from_slice(&json).unwrap();
    let revision = object["metadata"]["resourceVersion"].as_str()?.parse().ok()?;
    let change = Change { revision, of, key: key_of(&object), object, json, gone: line.r#type == "DELETED" };
    (line.r#type != "BOOKMARK").then_some(change)
}

/// What a witness must keep of the facts to be judged later.
pub(crate) fn snapshot(planner: &muster_engine::daemonset::planner::Planner) -> BTreeMap<Kind, u64> {
    Kind::ALL.into_iter().map(|kind| (kind, planner.observed_version(kind))).collect()
}
