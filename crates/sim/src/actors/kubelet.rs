//! A simulated node: a machine with a container runtime, and a kubelet that can crash and restart. The kubelet runs the
//! shipped rules of `engine::kubelet::pod`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::{Time, earliest};
use muster_engine::daemonset::execution::Refusal;
use muster_engine::daemonset::facts::Kind;
use muster_engine::kubelet::pod::{Action, Container, Ending, Host, Object, Outcome, Pod, State};
use serde_json::{Value, json};

use crate::faults::Mix;
use crate::invariants::Checks;
use crate::machine::Machine;
use crate::rng::Rng;
use crate::server::{Actor, Server};
use crate::world::World;

/// The behaviour of the containers of an image.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Nature {
    #[default]
    Good,
    NeverReady,
    /// The node rejects the pod, or evicts it.
    Fails,
    /// The container runs to completion.
    Ends,
    /// The container crashes its node.
    KillsNode,
    /// The container fails repeatedly, and waits in the kubelet's crash-loop backoff.
    Crashes,
}

/// A simulated node with its kubelet.
#[derive(Clone, Debug, Default)]
pub struct Kubelet {
    pub alive: bool,
    /// Time since which the node has sent no heartbeats.
    pub dead_since: Option<Time>,
    /// Clock skew of the node in microseconds.
    pub skew: i64,
    /// Time that containers take to start, and to stop.
    pub start: Duration,
    pub stop: Duration,
    /// A node that is shutting down fails its pods and rejects new ones.
    pub shutting_down: bool,
    machine: Machine,
    /// Pod key by pod UID, as the labels of sandboxes have it.
    keys: BTreeMap<Text, ObjectKey>,
    /// Runtime operations in progress, by completion time. They complete even if the kubelet crashes meanwhile.
    under_way: BTreeMap<(Time, u64), Asked>,
    asked: u64,
    /// The kubelet's in-memory state, by pod UID.
    charges: BTreeMap<Text, Charge>,
    /// Number of kubelet restarts.
    life: u64,
}

/// A runtime operation in progress.
#[derive(Clone, Debug)]
struct Asked {
    life: u64,
    uid: Text,
    action: Action,
}

/// The kubelet's in-memory state of one pod.
#[derive(Clone, Debug)]
struct Charge {
    pod: Pod,
    /// The API object as the kubelet saw it last; `None` after its deletion.
    object: Option<Arc<Value>>,
    image: Text,
    /// Responses of the API server, with the time at which they arrive.
    answers: Vec<(Time, Action, Outcome)>,
    /// The probe in progress. It completes only when its result differs from the last one, so that an idle pod needs no
    /// steps.
    probe: Option<Action>,
    /// Container ID and result of the last probe.
    probed: Option<(Text, bool)>,
    is_ended: bool,
    wake_at: Option<Time>,
    /// The pod must be synced: an input has changed since the last sync.
    has_news: bool,
}

/// One sync loop iteration of a kubelet, with the parts of the simulation that it uses.
struct Round<'a> {
    node: &'a Text,
    now: Time,
    /// The current time by the node's clock.
    clock: Time,
    server: &'a mut Server,
    natures: &'a BTreeMap<String, Nature>,
    mix: &'a Mix,
    rng: &'a mut Rng,
    checks: &'a mut Checks,
    again: Option<Time>,
    /// A container crashes the node.
    dies: bool,
}

impl World {
    /// One sync loop iteration of a kubelet: reads its bound pods and containers, and syncs each changed pod.
    pub fn kubelet(&mut self, node: &Text) {
        if self.woken.get(node).is_some_and(|at| *at <= self.now) {
            self.woken.remove(node);
        }
        let Self { now, server, kubelets, natures, mix, rng, checks, .. } = self;
        let Some(kubelet) = kubelets.get_mut(node).filter(|it| it.alive) else { return };
        if !server.nodes.contains_key(node) {
            return;
        }
        let clock = kubelet.clock(*now);
        let mut round =
            Round { node, now: *now, clock, server, natures, mix, rng, checks, again: None, dies: false };
        kubelet.watch(&mut round);
        kubelet.finish(&mut round);
        kubelet.live(&mut round);
        kubelet.tend(&mut round);
        let (again, dies) = (round.again, round.dies);
        if let Some(at) = again {
            self.wake_kubelet_at(node, at);
        }
        if dies {
            self.kill_node(node);
        }
    }

    pub fn image(&self, key: &ObjectKey) -> String {
        let object = self.server.object(Kind::Pods, key);
        object.and_then(|it| it["spec"]["containers"][0]["image"].as_str()).unwrap_or_default().to_owned()
    }
}

impl Kubelet {
    pub fn new(skew: i64, start: Duration, stop: Duration) -> Self {
        Self { alive: true, skew, start, stop, ..Self::default() }
    }

    /// The pods with running containers, by UID.
    pub fn running(&self) -> impl Iterator<Item = (&Text, &ObjectKey)> {
        self.keys.iter().filter(|(uid, _)| self.machine.is_running(uid))
    }

    /// Whether the kubelet is idle: no operation in progress, and no retry or timer pending.
    pub fn is_at_rest(&self) -> bool {
        let rests = |it: &Charge| it.answers.is_empty() && it.wake_at.is_none() && !it.has_news;
        self.under_way.is_empty() && self.charges.values().all(rests)
    }

    /// Reboots the machine: all containers are stopped, and a new kubelet finds them.
    pub fn reboot(&mut self, now: Time) {
        (self.alive, self.dead_since, self.shutting_down) = (true, None, false);
        self.under_way.clear();
        self.begin_anew();
        self.machine.reboot(self.clock(now));
    }

    /// Restarts the kubelet, which loses its in-memory state.
    pub fn begin_anew(&mut self) {
        self.charges.clear();
        self.life += 1;
    }

    /// Crashes a random running container or its sandbox, and returns its description.
    pub fn crash_container(&mut self, rng: &mut Rng, now: Time) -> Option<String> {
        let all = self.machine.uids().flat_map(|uid| self.machine.running(uid).map(move |it| (uid, it)));
        let all: Vec<(Text, Text)> = all.map(|(uid, it)| (uid.clone(), it.id.clone())).collect();
        let (uid, id) = rng.pick(&all)?;
        let clock = self.clock(now);
        if let Some(charge) = self.charges.get_mut(uid) {
            charge.has_news = true;
        }
        if rng.chance(300) {
            self.machine.break_sandboxes(uid, clock);
            return Some(format!("the sandbox of {uid}"));
        }
        self.machine.exit(uid, id, 137, clock);
        Some(format!("{id} of {uid}"))
    }

    /// Creates the sandbox and container of a pod that is running when the simulation starts, and adds its container
    /// status.
    pub fn settle_in(&mut self, object: &mut Value, now: Time) {
        let text = |it: &Value| Text::from(it.as_str().unwrap_or_default());
        let (meta, container) = (&object["metadata"], &object["spec"]["containers"][0]);
        let (uid, name, image) = (text(&meta["uid"]), text(&container["name"]), text(&container["image"]));
        if object["status"]["phase"] != "Running" || uid.is_empty() {
            return;
        }
        let clock = self.clock(now);
        self.keys.insert(uid.clone(), ObjectKey::new(text(&meta["namespace"]), text(&meta["name"])));
        self.machine.carry_out(&uid, &Action::RunSandbox { attempt: 0 }, &image, clock);
        let sandbox =
            self.machine.state(&uid, 0).sandboxes.first().map(|it| it.id.clone()).unwrap_or_default();
        let start =
            Action::Start { container: name.clone(), position: 0, sandbox, attempt: 0, hash: "".into() };
        let Some(Outcome::Started { id }) = self.machine.carry_out(&uid, &start, &image, clock) else {
            return;
        };
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
        object["status"]["containerStatuses"] = json!([{
            "name": name, "image": image, "imageID": image, "containerID": format!("sim://{id}"), "restartCount": 0,
            "ready": is_ready, "started": true, "state": {"running": {"startedAt": clock.to_rfc3339()}}, "lastState": {},
        }]);
    }

    fn clock(&self, now: Time) -> Time {
        Time::from_micros(now.as_micros() + self.skew)
    }

    /// Updates the kubelet's pods from the API server, and finds pods that exist only in the runtime.
    fn watch(&mut self, round: &mut Round<'_>) {
        let host = || Host { addresses: Vec::new(), runtime: "sim".into() };
        let mut bound = BTreeSet::new();
        let here = |object: &Arc<Value>| object["spec"]["nodeName"].as_str() == Some(round.node);
        let objects = round.server.objects(Kind::Pods).filter(|(_, it)| here(it));
        for (key, object) in objects {
            let uid = Text::from(object["metadata"]["uid"].as_str().unwrap_or_default());
            let parsed = || Arc::new(Object::from_value(object).expect("a pod"));
            match self.charges.get_mut(&uid) {
                None => {
                    let pod = Pod::new(parsed(), host(), round.clock);
                    let image = object["spec"]["containers"][0]["image"].as_str().unwrap_or_default();
                    self.keys.insert(uid.clone(), key.clone());
                    self.charges.insert(uid.clone(), Charge::new(pod, Some(object.clone()), image.into()));
                }
                Some(charge) if charge.object.as_ref().is_none_or(|it| !Arc::ptr_eq(it, object)) => {
                    charge.pod.update_spec(parsed(), round.clock);
                    charge.object = Some(object.clone());
                    charge.has_news = true;
                }
                Some(_) => {}
            }
            bound.insert(uid);
        }
        for (_, charge) in self.charges.iter_mut().filter(|(uid, _)| !bound.contains(*uid)) {
            if charge.object.take().is_some() {
                charge.pod.gone(round.clock);
                charge.has_news = true;
            }
        }
        for uid in self.machine.uids().filter(|it| !bound.contains(*it)) {
            let key = || self.keys.get(uid).cloned().unwrap_or_else(|| ObjectKey::new("", uid.clone()));
            let orphan =
                || Charge::new(Pod::orphan(key(), uid.clone(), host(), round.clock), None, "".into());
            self.charges.entry(uid.clone()).or_insert_with(orphan);
        }
    }

    /// Completes the runtime operations that are due.
    fn finish(&mut self, round: &mut Round<'_>) {
        while let Some(entry) = self.under_way.first_entry().filter(|it| it.key().0 <= round.now) {
            let Asked { life, uid, action } = entry.remove();
            let twin =
                action.container().filter(|_| matches!(action, Action::Start { .. })).and_then(|name| {
                    self.machine.running(&uid).find(|it| it.name == *name).map(|it| it.id.clone())
                });
            let image = self.charges.get(&uid).map(|it| it.image.clone()).unwrap_or_default();
            let Some(outcome) = self.machine.carry_out(&uid, &action, &image, round.clock) else { continue };
            if let (Some(twin), Outcome::Started { id }) = (twin, &outcome) {
                round.checks.fail("S12", || format!("{uid} on {} runs {id} beside {twin}", round.node));
            }
            if let Some(charge) = self.charges.get_mut(&uid).filter(|_| life == self.life) {
                charge.pod.done(&action, outcome, round.clock);
                charge.has_news = true;
            }
        }
        if let Some(((at, _), _)) = self.under_way.first_key_value() {
            round.at(*at);
        }
    }

    /// Applies the behaviour of images to running containers, and ends pods of a failing image or of a node that shuts
    /// down.
    fn live(&mut self, round: &mut Round<'_>) {
        let Self { machine, charges, start, shutting_down, .. } = self;
        for (uid, charge) in charges {
            let nature = round.natures.get(&*charge.image).copied().unwrap_or_default();
            let code = match nature {
                Nature::Crashes => Some(1),
                Nature::Ends => Some(0),
                Nature::Good | Nature::NeverReady | Nature::Fails | Nature::KillsNode => None,
            };
            if let Some(code) = code {
                let running: Vec<(Text, Time)> =
                    machine.running(uid).map(|it| (it.id.clone(), since(it))).collect();
                for (id, since) in running {
                    let end = since + *start;
                    if round.clock < end {
                        round.at(round.now + end.since(round.clock));
                    } else {
                        machine.exit(uid, &id, code, round.clock);
                        charge.has_news = true;
                    }
                }
            }
            round.dies |= nature == Nature::KillsNode && machine.is_running(uid);
            if (nature == Nature::Fails || *shutting_down) && !charge.is_ended {
                (charge.is_ended, charge.has_news) = (true, true);
                let is_rejection = machine.state(uid, 0).sandboxes.is_empty();
                charge.pod.end(ending(is_rejection, *shutting_down), round.clock);
            }
            charge.judge(nature, round.clock);
        }
    }

    /// Syncs each changed pod until no immediate action is left.
    fn tend(&mut self, round: &mut Round<'_>) {
        for uid in self.charges.keys().cloned().collect::<Vec<_>>() {
            let Some(mut charge) = self.charges.remove(&uid) else { continue };
            charge.has_news |= charge.wake_at.is_some_and(|at| at <= round.clock);
            for (at, action, outcome) in core::mem::take(&mut charge.answers) {
                if at <= round.now {
                    charge.pod.done(&action, outcome, round.clock);
                    charge.has_news = true;
                } else {
                    round.at(at);
                    charge.answers.push((at, action, outcome));
                }
            }
            while core::mem::take(&mut charge.has_news) {
                charge.pod.update_runtime_state(self.machine.state(&uid, charge.pod.mark()), round.clock);
                let sync = charge.pod.sync(round.clock);
                charge.wake_at = sync.wake_at;
                for action in sync.actions {
                    self.carry_out(&uid, &mut charge, action, round);
                }
            }
            if let Some(at) = charge.wake_at {
                round.at(round.now + at.since(round.clock));
            }
            if charge.object.is_some() || !charge.pod.is_over() {
                self.charges.insert(uid, charge);
            }
        }
        let Self { keys, machine, charges, .. } = self;
        keys.retain(|uid, _| charges.contains_key(uid) || machine.has(uid));
    }

    fn carry_out(&mut self, uid: &Text, charge: &mut Charge, action: Action, round: &mut Round<'_>) {
        let done = match &action {
            Action::Start { .. } => return self.ask(uid, action, self.start, round),
            Action::Stop { grace, .. } => return self.ask(uid, action.clone(), self.stop.min(*grace), round),
            Action::Probe { .. } => {
                charge.probe = Some(action);
                let nature = round.natures.get(&*charge.image).copied().unwrap_or_default();
                return charge.judge(nature, round.clock);
            }
            Action::Report(patch) => {
                let outcome = self.report(uid, charge, patch, round);
                return charge.answers.push((self.heard_at(round), action, outcome));
            }
            Action::Delete => {
                let outcome = self.delete(uid, charge, round);
                return charge.answers.push((self.heard_at(round), action, outcome));
            }
            Action::FindImage { .. } => Outcome::Present,
            Action::Pull { .. } => Outcome::Pulled { bytes: 1 },
            action => {
                self.machine.carry_out(uid, action, &charge.image, round.clock).unwrap_or(Outcome::Done)
            }
        };
        charge.pod.done(&action, done, round.clock);
        charge.has_news = true;
    }

    /// Starts a runtime operation that takes the given time.
    fn ask(&mut self, uid: &Text, action: Action, takes: Duration, round: &mut Round<'_>) {
        self.asked += 1;
        let at = round.now + takes;
        self.under_way.insert((at, self.asked), Asked { life: self.life, uid: uid.clone(), action });
        round.at(at);
    }

    /// The time at which the kubelet receives the response to a write: after the network latency, and later on a node
    /// where containers start slowly, so that one report covers several changes.
    fn heard_at(&self, round: &mut Round<'_>) -> Time {
        let lag = Duration::from_micros(round.rng.between(100, round.mix.lag_ms.max(1) * 1000));
        let at = round.now + self.start + lag;
        round.at(at);
        at
    }

    fn report(&self, uid: &Text, charge: &Charge, patch: &Value, round: &mut Round<'_>) -> Outcome {
        let conditions = patch["status"]["conditions"].as_array().into_iter().flatten();
        let says_ready = conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
        if says_ready && !self.machine.is_running(uid) {
            round
                .checks
                .fail("S11", || format!("{} is reported as Ready, but is not running", charge.pod.key()));
        }
        round.write(|server| server.patch(Kind::Pods, charge.pod.key(), patch, Actor::Kubelet).map(drop))
    }

    fn delete(&self, uid: &Text, charge: &Charge, round: &mut Round<'_>) -> Outcome {
        let key = charge.pod.key();
        if self.machine.is_running(uid) {
            round.checks.fail("S13", || format!("{key} is deleted from the API server while it is running"));
        }
        round.write(|server| match server.delete(Kind::Pods, key, Some(uid), None, true, Actor::Kubelet) {
            Err(Refusal::NotFound | Refusal::Conflict) => Ok(()),
            other => other,
        })
    }
}

impl Charge {
    fn new(pod: Pod, object: Option<Arc<Value>>, image: Text) -> Self {
        Self {
            pod,
            object,
            image,
            answers: Vec::new(),
            probe: None,
            probed: None,
            is_ended: false,
            wake_at: None,
            has_news: true,
        }
    }

    /// Completes the probe in progress if its result differs from the last one.
    fn judge(&mut self, nature: Nature, clock: Time) {
        let Some(Action::Probe { id, .. }) = &self.probe else { return };
        let says = (id.clone(), nature == Nature::Good);
        if self.probed.as_ref() == Some(&says) {
            return;
        }
        if let Some(action) = self.probe.take() {
            let outcome = Outcome::Probed { passed: says.1, message: "no".into() };
            self.pod.done(&action, outcome, clock);
            (self.probed, self.has_news) = (Some(says), true);
        }
    }
}

impl Round<'_> {
    /// Schedules another iteration at this time.
    fn at(&mut self, time: Time) {
        self.again = earliest(self.again, Some(time));
    }

    /// Writes to the API server; some requests are lost, and of some only the response.
    fn write(&mut self, write: impl FnOnce(&mut Server) -> Result<(), Refusal>) -> Outcome {
        let fails = self.rng.chance(self.mix.agent_write);
        let failed = |why: &str| Outcome::Failed { reason: "Unreachable".into(), message: why.into() };
        if fails && self.rng.chance(500) {
            return failed("the request was lost");
        }
        match write(self.server) {
            Ok(()) if fails => failed("the response was lost"),
            Ok(()) => Outcome::Done,
            Err(refusal) => failed(&format!("{refusal:?}")),
        }
    }
}

fn since(container: &Container) -> Time {
    match container.state {
        State::Running { since } => since,
        _ => Time::default(),
    }
}

fn ending(is_rejection: bool, by_shutdown: bool) -> Ending {
    let (reason, message) = match (is_rejection, by_shutdown) {
        (true, true) => ("NodeShutdown", "Pod was rejected as the node is shutting down."),
        (false, true) => ("Terminated", "Pod was terminated in response to imminent node shutdown."),
        (true, false) => ("OutOfcpu", "Node didn't have enough resource: cpu"),
        (false, false) => ("Evicted", "The node was low on resource: memory."),
    };
    let (reason, message) = (reason.into(), message.into());
    Ending { reason, message, grace: None, is_rejection, is_disruption: !is_rejection }
}
