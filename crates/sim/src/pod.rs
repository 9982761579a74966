//! Simulation of one pod on one node: runs the shipped rules of `engine::kubelet::pod` with a slow and failing runtime,
//! crashing containers, a crashing kubelet, and users who change and delete the pod.
//!
//! In the first phase everything may fail, and safety is checked at every step. Then all faults stop, and the pod must
//! converge. Then it is deleted, and nothing of it may remain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::kubelet::pod::{
    Action, Container, Ending, Host, Object, Outcome, Pod, Restart, RuntimeState, State,
};
use serde_json::{Value, json};

use crate::judge::Judge;
use crate::machine::{Machine, is_running};
use crate::rng::Rng;
use crate::server::merge;

/// Runs a seed. The error describes the violation and contains the trace.
pub fn run(seed: u64) -> Result<(), String> {
    let mut stage = Stage::draw(seed);
    stage.play().map_err(|why| {
        let Stage { object, trace, .. } = &stage;
        format!("seed {seed}: {why}\n{}\n{}", object, trace.join("\n"))
    })
}

/// Duration of the phase with faults, and the time to converge afterwards, which is longer than the longest backoff.
const TROUBLED: Duration = Duration::from_secs(600);
const RESTS_WITHIN: Duration = Duration::from_secs(700);
/// Maximum number of steps in one phase; more mean a hot loop.
const STEPS_MAX: usize = 100_000;

/// A scheduled step of the simulation.
#[derive(Debug)]
enum Task {
    /// The runtime or the API server executes an action.
    Effect {
        life: u64,
        action: Action,
    },
    /// The outcome of an action reaches the kubelet.
    Answer {
        life: u64,
        action: Action,
        outcome: Outcome,
    },
    /// A container exits on its own.
    Exit {
        id: Text,
        code: i32,
    },
    /// The kubelet queries the state of the runtime.
    Ask {
        life: u64,
    },
    /// The state of the runtime reaches the kubelet.
    Told {
        life: u64,
        seen: RuntimeState,
    },
    /// The watch delivers the current object, or its deletion.
    Watch {
        life: u64,
    },
    Wake {
        life: u64,
    },
    /// Injects a fault or a user action.
    Chaos,
    /// The kubelet starts.
    Begin,
}

/// The simulation of one pod.
struct Stage {
    rng: Rng,
    now: Time,
    tasks: BTreeMap<(Time, u64), Task>,
    sequence: u64,
    uid: Text,
    /// The pod on the API server.
    object: Value,
    exists: bool,
    machine: Machine,
    /// The running kubelet's state of the pod; `None` while the kubelet is down.
    agent: Option<Pod>,
    /// Number of kubelet starts and crashes; tasks of an earlier kubelet process are ignored.
    life: u64,
    /// The kubelet has seen that the pod is deleted or being deleted.
    knows_of_end: bool,
    /// Time of the next scheduled sync.
    wake_at: Option<Time>,
    is_troubled: bool,
    restart: Restart,
    /// Exit codes of containers, by name: they decide whether a restart is allowed.
    ended: BTreeMap<Text, Vec<i32>>,
    /// Sandboxes in which a main container has started.
    begun: BTreeSet<Text>,
    /// Name and attempt of every container that was started.
    ran: BTreeSet<(Text, u32)>,
    judge: Judge,
    trace: Vec<String>,
}

/// Names of the init containers, and whether each is a sidecar.
const INIT: [(&str, bool); 3] = [("first", false), ("proxy", true), ("second", false)];
const MAIN: [&str; 2] = ["log", "web"];

impl Stage {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let restarts =
            [(Restart::Always, "Always"), (Restart::OnFailure, "OnFailure"), (Restart::Never, "Never")];
        let (restart, policy) = restarts[usize::try_from(rng.below(3)).unwrap_or(0)];
        let image = |name: &str| json!({"name": name, "image": format!("{name}:1")});
        let init = INIT.map(|(name, is_sidecar)| {
            let mut container = image(name);
            if is_sidecar {
                container["restartPolicy"] = "Always".into();
                container["startupProbe"] = json!({"exec": {}, "periodSeconds": 3, "failureThreshold": 20});
            }
            container
        });
        let count = usize::try_from(rng.below(4)).unwrap_or(0);
        let mut main = MAIN.map(image);
        main[0]["readinessProbe"] = json!({"exec": {}, "periodSeconds": 20});
        main[1]["livenessProbe"] = json!({"exec": {}, "periodSeconds": 30, "failureThreshold": 2});
        if rng.chance(500) {
            main[1]["startupProbe"] = json!({"exec": {}, "periodSeconds": 2, "failureThreshold": 10});
        }
        if rng.chance(300) {
            main[0]["lifecycle"] = json!({"postStart": {"exec": {}}, "preStop": {"exec": {}}});
        }
        let object = json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1},
            "spec": {
                "restartPolicy": policy,
                "terminationGracePeriodSeconds": rng.below(40),
                "initContainers": init[..count].to_vec(),
                "containers": main.to_vec(),
            },
            "status": {"phase": "Pending"},
        });
        Self {
            rng,
            now: Time::from_secs(1_000_000),
            tasks: BTreeMap::new(),
            sequence: 0,
            uid: "u".into(),
            object,
            exists: true,
            machine: Machine::default(),
            agent: None,
            life: 0,
            knows_of_end: false,
            wake_at: None,
            is_troubled: true,
            restart,
            ended: BTreeMap::new(),
            begun: BTreeSet::new(),
            ran: BTreeSet::new(),
            judge: Judge::default(),
            trace: Vec::new(),
        }
    }

    fn play(&mut self) -> Result<(), String> {
        self.after(0, Task::Begin);
        self.after(100, Task::Chaos);
        self.run_for(TROUBLED)?;
        self.is_troubled = false;
        if self.agent.is_none() {
            self.after(0, Task::Begin);
        }
        self.run_for(RESTS_WITHIN)?;
        if self.exists {
            self.is_at_rest()?;
            self.say("the pod is deleted");
            self.delete(30);
            self.run_for(RESTS_WITHIN)?;
        }
        if self.exists {
            return Err("the pod was deleted, but still exists on the API server".into());
        }
        if let Some(uid) = self.machine.uids().next() {
            return Err(format!(
                "the pod is deleted from the API server, but the runtime still has {:?}",
                self.machine.state(uid, 0)
            ));
        }
        match &self.agent {
            Some(pod) if !pod.is_over() => {
                Err("nothing of the pod is left, but the kubelet keeps its state".into())
            }
            _ => Ok(()),
        }
    }

    fn run_for(&mut self, span: Duration) -> Result<(), String> {
        let end = self.now + span;
        let mut steps = 0;
        while let Some(((at, _), _)) = self.tasks.first_key_value() {
            if end < *at {
                break;
            }
            let ((at, _), task) = self.tasks.pop_first().expect("there is a first");
            self.now = self.now.max(at);
            self.step(task)?;
            steps += 1;
            if STEPS_MAX < steps {
                return Err("a hot loop".into());
            }
        }
        self.now = end;
        Ok(())
    }

    fn after(&mut self, millis: u64, task: Task) {
        self.sequence += 1;
        self.tasks.insert((self.now + Duration::from_millis(millis), self.sequence), task);
    }

    fn say(&mut self, what: impl Into<String>) {
        let at = self.now.as_micros() / 1000 - 1_000_000_000;
        self.trace.push(format!("{:>8}.{:03} {}", at / 1000, at % 1000, what.into()));
    }

    fn step(&mut self, task: Task) -> Result<(), String> {
        let life = self.life;
        match task {
            Task::Begin => self.begin(),
            Task::Chaos => self.chaos(),
            Task::Exit { id, code } => self.exit(&id, code),
            Task::Effect { life: of, action } => self.effect(of, action)?,
            Task::Answer { life: of, action, outcome } if of == life => {
                self.say(format!("  {action}: {}", short(&outcome)));
                let now = self.now;
                self.judge.answered(&action);
                if let Some(pod) = &mut self.agent {
                    pod.done(&action, outcome, now);
                }
                self.ask(1);
                self.look()?;
            }
            Task::Ask { life: of } if of == life => {
                if let Some(pod) = &self.agent {
                    let seen = self.machine.state(&self.uid, pod.mark());
                    let late = self.rng.between(1, if self.is_troubled { 300 } else { 10 });
                    self.after(late, Task::Told { life, seen });
                }
            }
            Task::Told { life: of, seen } if of == life => {
                let now = self.now;
                if let Some(pod) = &mut self.agent {
                    pod.update_runtime_state(seen, now);
                }
                self.look()?;
            }
            Task::Watch { life: of } if of == life => {
                let (now, object) = (self.now, self.parsed());
                self.learn_of_end();
                if let Some(pod) = &mut self.agent {
                    if self.exists { pod.update_spec(object, now) } else { pod.gone(now) }
                }
                self.look()?;
            }
            Task::Wake { life: of } if of == life && self.wake_at.is_some_and(|at| at <= self.now) => {
                self.wake_at = None;
                self.look()?;
            }
            _ => {}
        }
        Ok(())
    }

    fn parsed(&self) -> Arc<Object> {
        Arc::new(Object::from_value(&self.object).expect("it is a pod"))
    }

    fn begin(&mut self) {
        if self.agent.is_some() {
            return;
        }
        self.life += 1;
        self.say(format!("kubelet {} starts", self.life));
        self.judge.begins(&self.object["status"]);
        self.learn_of_end();
        let host = Host { addresses: ["192.168.0.1".into()].into(), runtime: "sim".into() };
        self.agent = Some(if self.exists {
            Pod::new(self.parsed(), host, self.now)
        } else {
            Pod::orphan(ObjectKey::new("default", "p"), self.uid.clone(), host, self.now)
        });
        self.wake_at = None;
        self.ask(1);
    }

    /// The kubelet sees the current object: whether the pod is being deleted, and its deadline.
    fn learn_of_end(&mut self) {
        let meta = &self.object["metadata"];
        let is_deleted = meta["deletionTimestamp"].is_string();
        self.knows_of_end = !self.exists || is_deleted;
        let grace_s = match (self.exists, is_deleted) {
            (false, _) => Some(2),
            (true, true) => meta["deletionGracePeriodSeconds"].as_u64(),
            (true, false) => None,
        };
        if let Some(grace_s) = grace_s {
            self.judge.ends_by(self.now + Duration::from_secs(grace_s));
        }
    }

    fn ask(&mut self, late: u64) {
        self.after(late, Task::Ask { life: self.life });
    }

    fn look(&mut self) -> Result<(), String> {
        let (now, life) = (self.now, self.life);
        let Some(pod) = &mut self.agent else { return Ok(()) };
        let sync = pod.sync(now);
        if let Some(at) = sync.wake_at
            && self.wake_at.is_none_or(|before| at < before)
        {
            self.wake_at = Some(at);
            let late = u64::try_from(at.since(now).as_millis()).unwrap_or(u64::MAX) + 1;
            self.after(late, Task::Wake { life });
        }
        for action in sync.actions {
            self.say(match &action {
                Action::Report(patch) => format!("report {}", patch["status"]),
                action => action.to_string(),
            });
            let seen = self.machine.state(&self.uid, 0);
            self.judge.given(&action, &self.object["spec"], &seen, now)?;
            let begins = matches!(action, Action::Start { .. } | Action::RunSandbox { .. });
            if begins && self.knows_of_end {
                return Err(format!("{action}: but the pod is being deleted"));
            }
            let slow = if self.is_troubled { 1500 } else { 50 };
            let late = self.rng.between(1, slow);
            self.after(late, Task::Effect { life, action });
        }
        Ok(())
    }

    /// The runtime or the API server executes an action, even if the kubelet that sent it has crashed meanwhile.
    fn effect(&mut self, life: u64, action: Action) -> Result<(), String> {
        let failed = Outcome::Failed { reason: reason(&action).into(), message: "it failed".into() };
        let fails = self.is_troubled && self.rng.chance(120);
        // Some calls take effect although they return an error.
        let outcome = if fails && self.rng.chance(600) {
            failed
        } else {
            let outcome = self.carry_out(life, &action)?;
            self.judge.done(&action, &outcome);
            if fails { failed } else { outcome }
        };
        let late = self.rng.between(1, if self.is_troubled { 400 } else { 10 });
        self.after(late, Task::Answer { life, action, outcome });
        Ok(())
    }

    fn carry_out(&mut self, life: u64, action: &Action) -> Result<Outcome, String> {
        let now = self.now;
        match action {
            Action::Start { container, sandbox, attempt, .. } => {
                let before = self.machine.state(&self.uid, 0);
                let image: Text = format!("{container}:1").into();
                let outcome =
                    self.machine.carry_out(&self.uid.clone(), action, &image, now).expect("it starts");
                if let Outcome::Started { id } = &outcome {
                    self.may_begin(container, sandbox, *attempt, &before)?;
                    self.live(&id.clone(), container);
                }
                return Ok(outcome);
            }
            Action::Stop { container, .. } => self.may_end(life, container)?,
            _ => {}
        }
        if let Some(outcome) = self.machine.carry_out(&self.uid.clone(), action, &"".into(), now) {
            self.note_ends();
            return Ok(outcome);
        }
        Ok(match action {
            Action::FindImage { .. } if self.rng.chance(300) => Outcome::Absent,
            Action::FindImage { .. } => Outcome::Present,
            Action::Pull { .. } => Outcome::Pulled { bytes: 1 },
            Action::Probe { .. } => {
                let passed = !self.is_troubled || self.rng.chance(800);
                Outcome::Probed { passed, message: "no".into() }
            }
            Action::Report(patch) => {
                let before = self.object["status"].clone();
                if self.exists {
                    merge(&mut self.object, patch);
                }
                if self.object["status"] != before {
                    self.watch();
                }
                Outcome::Done
            }
            Action::Delete => {
                if self.exists {
                    self.may_go()?;
                    self.say("the pod is deleted from the API server");
                    self.exists = false;
                    self.watch();
                }
                Outcome::Done
            }
            _ => Outcome::Done,
        })
    }

    /// Checks that a container may start now.
    fn may_begin(
        &mut self,
        name: &Text,
        sandbox: &Text,
        attempt: u32,
        before: &RuntimeState,
    ) -> Result<(), String> {
        let running =
            |name: &str| before.containers.iter().any(|it| *it.name == *name && is_running(&it.state));
        if running(name) {
            return Err(format!("two containers {name} are running"));
        }
        if !self.ran.insert((name.clone(), attempt)) {
            return Err(format!("attempt {attempt} of {name} is started twice"));
        }
        let init = self.object["spec"]["initContainers"].as_array().map_or(0, Vec::len);
        let place = INIT[..init].iter().position(|(it, _)| **it == **name);
        let in_sandbox = |name: &str| {
            let all = before.containers.iter().filter(|it| *it.name == *name && it.sandbox == *sandbox);
            all.max_by_key(|it| it.attempt)
        };
        let has_ended_well = |it: &Container| matches!(it.state, State::Exited { code: 0, .. });
        if !self.begun.contains(sandbox) {
            for (earlier, is_sidecar) in &INIT[..place.unwrap_or(init)] {
                let last = in_sandbox(earlier);
                let has_finished = last.is_some_and(|it| *is_sidecar || has_ended_well(it));
                if !has_finished {
                    return Err(format!("{name} starts before {earlier} has finished"));
                }
            }
        }
        match place {
            Some(place) if !INIT[place].1 => {
                if self.begun.contains(sandbox) || in_sandbox(name).is_some_and(has_ended_well) {
                    return Err(format!("{name} starts again after it had finished"));
                }
                let failed = in_sandbox(name).is_some();
                if failed && self.restart == Restart::Never {
                    return Err(format!("{name} failed, but starts again"));
                }
            }
            Some(_) => {}
            None => {
                self.begun.insert(sandbox.clone());
                let codes = self.ended.get(name).into_iter().flatten();
                if let Some(code) = codes.into_iter().find(|it| !comes_again(self.restart, **it)) {
                    return Err(format!("{name} exited with {code}, but starts again"));
                }
            }
        }
        Ok(())
    }

    /// Checks the order of termination: a sidecar is stopped after all main containers.
    fn may_end(&self, life: u64, name: &str) -> Result<(), String> {
        let seen = self.machine.state(&self.uid, 0);
        let is_deleted = self.object["metadata"]["deletionTimestamp"].is_string() && life == self.life;
        let is_broken = !seen.sandboxes.iter().any(|it| it.is_ready);
        let main = seen.containers.iter().find(|it| MAIN.contains(&&*it.name) && is_running(&it.state));
        match main {
            Some(main) if name == "proxy" && is_deleted && !is_broken && !self.is_troubled => {
                Err(format!("proxy is stopped before {}", main.name))
            }
            _ => Ok(()),
        }
    }

    fn may_go(&self) -> Result<(), String> {
        if self.machine.is_running(&self.uid) {
            return Err("the pod is deleted from the API server while it is running".into());
        }
        let status = &self.object["status"];
        let lists = ["initContainerStatuses", "containerStatuses"];
        let said = lists.into_iter().filter_map(|it| status[it].as_array()).flatten();
        let is_open = |it: &&Value| it["containerID"].is_string() && !it["state"]["terminated"].is_object();
        if let Some(open) = said.into_iter().find(is_open).filter(|_| !self.is_troubled) {
            return Err(format!(
                "the pod is deleted from the API server without this container's exit: {open}"
            ));
        }
        let phase = status["phase"].as_str();
        if matches!(phase, Some("Failed" | "Succeeded")) {
            return Ok(());
        }
        Err(format!("the pod is deleted from the API server in phase {phase:?}"))
    }

    /// Schedules the exit of a started container, if it exits on its own.
    fn live(&mut self, id: &Text, name: &Text) {
        let is_init = INIT.iter().any(|(it, is_sidecar)| **it == **name && !is_sidecar);
        let ends = is_init || self.restart != Restart::Always && &**name != "proxy";
        let code = if self.is_troubled && self.rng.chance(300) { 1 } else { 0 };
        if ends || (self.is_troubled && self.rng.chance(300)) {
            let late = self.rng.between(100, 20_000);
            self.after(late, Task::Exit { id: id.clone(), code });
        }
    }

    fn watch(&mut self) {
        let version =
            self.object["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse::<u64>().ok());
        self.object["metadata"]["resourceVersion"] = (version.unwrap_or(0) + 1).to_string().into();
        let late = self.rng.between(1, if self.is_troubled { 2000 } else { 20 });
        self.after(late, Task::Watch { life: self.life });
    }

    fn is_changed(&mut self) {
        let generation = self.object["metadata"]["generation"].as_u64().unwrap_or(0);
        self.object["metadata"]["generation"] = (generation + 1).into();
    }

    fn delete(&mut self, grace_s: u64) {
        self.object["metadata"]["deletionTimestamp"] = self.now.to_rfc3339().into();
        self.object["metadata"]["deletionGracePeriodSeconds"] = grace_s.into();
        self.is_changed();
        self.watch();
    }

    fn chaos(&mut self) {
        if !self.is_troubled {
            return;
        }
        let late = self.rng.between(100, 20_000);
        self.after(late, Task::Chaos);
        let (now, uid) = (self.now, self.uid.clone());
        match self.rng.below(1000) {
            0..250 => {
                let seen = self.machine.state(&uid, 0);
                let running: Vec<Text> = seen
                    .containers
                    .iter()
                    .filter(|it| is_running(&it.state))
                    .map(|it| it.id.clone())
                    .collect();
                if let Some(id) = self.rng.pick(&running).cloned() {
                    let code = if self.rng.chance(500) { 137 } else { 0 };
                    self.exit(&id, code);
                }
            }
            250..320 => {
                self.say("the sandbox dies");
                self.machine.break_sandboxes(&uid, now);
                self.note_ends();
                self.ask(5);
            }
            320..470 if self.agent.is_some() => {
                self.say("the kubelet crashes");
                self.agent = None;
                self.life += 1;
                let late = self.rng.between(1, 5_000);
                self.after(late, Task::Begin);
            }
            470..490 => {
                self.say("the pod is deleted");
                let grace_s = self.rng.below(30);
                self.delete(grace_s);
            }
            490..500 => {
                self.say("the pod is deleted by force");
                self.exists = false;
                self.watch();
            }
            500..520 if self.restart == Restart::Always => {
                let image = format!("web:{}", self.rng.between(1, 3));
                self.say(format!("web is to be {image}"));
                self.object["spec"]["containers"][1]["image"] = image.into();
                self.is_changed();
                self.watch();
            }
            520..530 => {
                if let Some(pod) = &mut self.agent {
                    let ending = Ending {
                        reason: "Evicted".into(),
                        message: "too much".into(),
                        grace: None,
                        is_rejection: false,
                        is_disruption: true,
                    };
                    pod.end(ending, now);
                    self.say("the pod is evicted");
                }
            }
            530..600 => self.ask(1),
            _ => {}
        }
    }

    fn exit(&mut self, id: &Text, code: i32) {
        self.say(format!("{id} exits with {code}"));
        self.machine.exit(&self.uid.clone(), id, code, self.now);
        self.note_ends();
        self.ask(5);
    }

    fn note_ends(&mut self) {
        let seen = self.machine.state(&self.uid, 0);
        for container in seen.containers {
            if let State::Exited { code, .. } = container.state {
                let codes = self.ended.entry(container.name).or_default();
                if !codes.contains(&code) {
                    codes.push(code);
                }
            }
        }
    }

    /// Checks that the pod has converged after all faults have stopped.
    fn is_at_rest(&self) -> Result<(), String> {
        let status = &self.object["status"];
        let phase = status["phase"].as_str().unwrap_or_default();
        let seen = self.machine.state(&self.uid, 0);
        let running: BTreeSet<&str> =
            seen.containers.iter().filter(|it| is_running(&it.state)).map(|it| &*it.name).collect();
        let mut wanted: BTreeSet<&str> = MAIN.into_iter().collect();
        let init = self.object["spec"]["initContainers"].as_array().map_or(0, Vec::len);
        wanted.extend(INIT[..init].iter().filter(|(_, is_sidecar)| *is_sidecar).map(|(name, _)| *name));
        match phase {
            "Failed" | "Succeeded" if running.is_empty() => {}
            "Running" if running == wanted => {
                let conditions = status["conditions"].as_array().into_iter().flatten();
                let is_ready =
                    conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
                if !is_ready {
                    return Err(format!("all containers are running, but the pod is not Ready: {status}"));
                }
            }
            _ => return Err(format!("the phase is {phase}, but the running containers are {running:?}")),
        }
        let (observed, generation) = (&status["observedGeneration"], &self.object["metadata"]["generation"]);
        if phase == "Running" && observed != generation {
            return Err(format!("observedGeneration is {observed}, but the generation is {generation}"));
        }
        if self.restart == Restart::Always && phase == "Succeeded" {
            return Err("the pod has finished, but its restartPolicy is Always".into());
        }
        for container in seen.containers.iter().filter(|it| is_running(&it.state)) {
            let lists = ["containerStatuses", "initContainerStatuses"];
            let said = lists.iter().filter_map(|it| status[it].as_array()).flatten();
            let said = said.into_iter().find(|it| it["name"] == *container.name);
            let said =
                said.ok_or_else(|| format!("{} is running, but has no container status", container.name))?;
            if said["containerID"] != format!("sim://{}", container.id)
                || said["restartCount"] != container.attempt
            {
                return Err(format!("the container status of {} is wrong: {said}", container.name));
            }
        }
        Ok(())
    }
}

/// Whether the restart policy restarts a container with this exit code. Written independently of the engine.
fn comes_again(restart: Restart, code: i32) -> bool {
    match (restart, code) {
        (Restart::Always, _) => true,
        (Restart::OnFailure, 0) | (Restart::Never, _) => false,
        (Restart::OnFailure, _) => true,
    }
}

/// The reason that the agent gives when an action fails.
fn reason(action: &Action) -> &'static str {
    match action {
        Action::FindImage { .. } => "ImageInspectError",
        Action::Pull { .. } => "ErrImagePull",
        Action::Start { .. } => "CreateContainerError",
        _ => "Failed",
    }
}

fn short(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed { message, .. } => message,
        Outcome::Probed { passed: false, .. } => "did not pass",
        Outcome::Absent => "absent",
        _ => "done",
    }
}

#[cfg(test)]
mod tests {
    /// Enough for most pairs of faults to meet: an action that fails, an agent that dies, a sandbox that breaks.
    #[test]
    fn a_pod_on_its_node() {
        for seed in 0..200 {
            super::run(seed).unwrap_or_else(|why| panic!("{why}"));
        }
    }
}
