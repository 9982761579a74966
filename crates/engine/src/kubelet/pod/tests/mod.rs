//! A scenario in, the actions, events and statuses out, as text. A small runtime executes the actions at once, unless
//! the scenario makes them fail.
//!
//! A scenario begins with the pod: `pod`, then `restart=POLICY`, `grace=SECONDS`, `deadline=SECONDS`, `host-network`,
//! `gate=NAME`, `static`; then its containers, `init NAME`, `side NAME`, `main NAME`, and then `image=NAME`, `always`
//! or `never` (pull policy), `hook` (postStart), `prestop`, `startup`, `liveness`, `readiness` with
//! `=PERIOD,FAILURES[,DELAY]`.
//!
//! The lines after them begin with the second of a step.
//! - `exits NAME CODE`, `sandbox-dies`, `vanishes NAME`, `oom NAME`: in the runtime;
//! - `fail ACTION`: actions with this prefix fail until `succeed ACTION`; `hang ACTION`: they do not complete until
//!   `complete ACTION`;
//! - `absent IMAGE`, `present IMAGE`: on the node;
//! - `probe-fails NAME KIND`, `probe-warns NAME KIND` (passes with a message), `probe-passes NAME KIND`: from now on;
//! - `delete [GRACE]`, `removed`, `terminate REASON [GRACE]`, `image NAME IMAGE`, `debug NAME`, `condition TYPE
//!   STATUS`: by others;
//! - `agent-restarts`: the agent's memory is lost;
//! - `wall-clock SECONDS`: the wall clock is set, so that it differs from the time of the steps by this much.

mod admission;

mod running;
mod start;
mod termination;
mod wire;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::time::Duration;

use expect_test::Expect;
use serde_json::{Value, json};

use super::*;

/// Runs a scenario, and compares what happens in the given seconds.
fn check(seconds: RangeInclusive<i64>, scenario: &str, expected: Expect) {
    let mut scene = Scene::of(scenario);
    scene.from = Time::from_secs(*seconds.start());
    scene.run(*seconds.end());
    expected.assert_eq(&scene.log);
}

struct Scene {
    pod: PodStateMachine,
    object: Value,
    steps: Vec<(i64, String)>,
    sandboxes: Vec<Sandbox>,
    containers: Vec<Container>,
    ids: usize,
    failing: BTreeSet<String>,
    hanging: BTreeSet<String>,
    held: Vec<Action>,
    absent: BTreeSet<String>,
    /// Results of probes that do not just pass.
    probe_results: BTreeMap<(String, String), (bool, &'static str)>,
    now: Time,
    wall_clock: WallClock,
    from: Time,
    log: String,
    last_status: String,
    deleted: bool,
}

fn parsed(bytes: &[u8]) -> Arc<PodObject> {
    Arc::new(PodObject::parse(bytes).unwrap())
}

fn host() -> Host {
    Host {
        addresses: ["192.168.0.1".into()].into(),
        runtime: "containerd".into(),
        wall_clock: WallClock::default(),
    }
}

impl Scene {
    fn of(scenario: &str) -> Self {
        let mut object = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "1", "generation": 1},
            "spec": {"initContainers": [], "containers": [], "terminationGracePeriodSeconds": 30},
            "status": {"phase": "Pending"},
        });
        let mut steps = Vec::new();
        for line in scenario.lines().map(str::trim).filter(|it| !it.is_empty()) {
            match line.split_once(' ').map(|(at, rest)| (at.parse(), rest)) {
                Some((Ok(at_s), rest)) => steps.push((at_s, rest.to_string())),
                _ => describe(&mut object, line),
            }
        }
        steps.reverse();
        let bytes = serde_json::to_vec(&object).unwrap();
        let now = Time::from_secs(0);
        Self {
            pod: PodStateMachine::new(parsed(&bytes), host(), now),
            object,
            steps,
            sandboxes: Vec::new(),
            containers: Vec::new(),
            ids: 0,
            failing: BTreeSet::new(),
            hanging: BTreeSet::new(),
            held: Vec::new(),
            absent: BTreeSet::new(),
            probe_results: BTreeMap::new(),
            now,
            wall_clock: WallClock::default(),
            from: now,
            log: String::new(),
            last_status: String::new(),
            deleted: false,
        }
    }

    fn run(&mut self, until_s: i64) {
        let until = Time::from_secs(until_s);
        while self.steps.last().is_some_and(|(at, _)| *at == 0) {
            let (_, step) = self.steps.pop().unwrap();
            self.step(&step);
        }
        loop {
            let wake_at = self.settle();
            let next = self.steps.last().map(|(at, _)| Time::from_secs(*at));
            let Some(next) = earliest(next, wake_at).filter(|it| *it <= until) else { return };
            assert!(self.now <= next, "time does not go back");
            self.now = next;
            while self.steps.last().is_some_and(|(at, _)| Time::from_secs(*at) <= self.now) {
                let (_, step) = self.steps.pop().unwrap();
                self.step(&step);
            }
        }
    }

    /// Syncs and executes actions until there are none.
    fn settle(&mut self) -> Option<Time> {
        for _ in 0..1000 {
            let runtime_state = RuntimeState {
                change_count: self.pod.change_count(),
                sandboxes: self.sandboxes.clone(),
                containers: self.containers.clone(),
            };
            self.pod.update_runtime_state(runtime_state, self.now);
            let sync = self.pod.sync(self.now);
            for record in sync.events {
                let symbol = if record.event.warning { "!" } else { "-" };
                self.line(&format!("  {symbol} {}: {}", record.event.reason, record.event.message));
            }
            if sync.actions.is_empty() {
                assert!(sync.wake_at.is_none_or(|it| self.now < it), "wakes forever");
                if self.pod.is_finished() {
                    self.line("finished");
                    assert!(
                        self.sandboxes.is_empty() && self.containers.is_empty(),
                        "sandboxes or containers are left"
                    );
                }
                return sync.wake_at;
            }
            for action in sync.actions {
                if let Action::Report(patch) = &action {
                    self.merge(&patch["status"]);
                    let status = self.short();
                    if status != self.last_status {
                        self.line(&format!("  = {status}"));
                        self.last_status = status;
                    }
                } else {
                    self.line(&action.to_string());
                }
                if self.hanging.iter().any(|it| action.to_string().starts_with(it.as_str())) {
                    self.held.push(action);
                    continue;
                }
                self.complete(&action);
            }
        }
        panic!("does not settle:\n{}", self.log);
    }

    fn line(&mut self, text: &str) {
        if self.now < self.from {
            return;
        }
        let at = self.now.as_micros();
        let (s, tenths) = (at / 1_000_000, at % 1_000_000 / 100_000);
        let at = if tenths == 0 { s.to_string() } else { format!("{s}.{tenths}") };
        self.log += &format!("{at:<4} {text}\n");
    }

    fn complete(&mut self, action: &Action) {
        let outcome = self.execute(action);
        self.pod.apply_outcome(action, outcome, self.now);
        if !self.deleted && !self.pod.is_removed_from_api {
            let bytes = serde_json::to_vec(&self.object).unwrap();
            self.pod.update_object(parsed(&bytes), self.now);
        }
    }

    fn execute(&mut self, action: &Action) -> ActionOutcome {
        if let Some(failing) = self.failing.iter().find(|it| action.to_string().starts_with(it.as_str())) {
            let reason = match action {
                Action::Pull { .. } => "ErrImagePull",
                Action::FindImage { .. } => "InvalidImageName",
                _ => "CreateContainerError",
            };
            return ActionOutcome::Failed {
                reason: reason.into(),
                message: format!("cannot {failing}").into(),
            };
        }
        let now = self.now;
        match action {
            Action::Prepare | Action::CleanUp { .. } | Action::Report(_) | Action::PostStart { .. } => {
                ActionOutcome::Done
            }
            Action::RunSandbox { attempt } => {
                assert!(!self.sandboxes.iter().any(|it| it.is_ready), "two sandboxes at once");
                self.ids += 1;
                let addresses = [format!("10.0.0.{}", self.ids).into()].into();
                let id = format!("s{}", self.ids).into();
                self.sandboxes.push(Sandbox {
                    id,
                    attempt: *attempt,
                    is_ready: true,
                    created: now,
                    addresses,
                });
                ActionOutcome::Done
            }
            Action::FindImage { image, .. } => {
                if self.absent.contains(&**image) {
                    ActionOutcome::Absent
                } else {
                    ActionOutcome::Present
                }
            }
            Action::Pull { image, .. } => {
                self.absent.remove(&**image);
                ActionOutcome::Pulled { bytes: 1000 }
            }
            Action::Start { container, sandbox, attempt, hash, .. } => {
                let is_same = |it: &&Container| it.name == *container;
                let others = self.containers.iter().filter(is_same);
                assert!(others.clone().all(|it| !it.state.may_run()), "two {container} at once");
                assert!(others.clone().all(|it| it.attempt != *attempt), "an attempt of {container} twice");
                self.ids += 1;
                let id: Text = format!("c{}", self.ids).into();
                let image = self.pod.object.spec.find_container(container).unwrap().image.clone();
                self.containers.push(Container {
                    id: id.clone(),
                    sandbox: sandbox.clone(),
                    name: container.clone(),
                    attempt: *attempt,
                    hash: hash.clone(),
                    image_id: format!("sha256:{image}").into(),
                    image,
                    state: ContainerState::Running { since: now },
                });
                ActionOutcome::Started { id }
            }
            Action::Probe { container, probe, .. } => {
                let name = probe.as_str().to_lowercase();
                let result = self.probe_results.get(&(container.to_string(), name)).copied();
                let (passed, message) = result.unwrap_or((true, ""));
                ActionOutcome::Probed { passed, message: message.into() }
            }
            Action::Stop { container, .. } => {
                self.exit(container, 143, "Error");
                ActionOutcome::Done
            }
            Action::RemoveContainer { id } => {
                self.containers.retain(|it| it.id != *id);
                ActionOutcome::Done
            }
            Action::StopSandbox { id } => {
                self.sandboxes.iter_mut().filter(|it| it.id == *id).for_each(|it| it.is_ready = false);
                ActionOutcome::Done
            }
            Action::RemoveSandbox { id } => {
                self.sandboxes.retain(|it| it.id != *id);
                self.containers.retain(|it| it.sandbox != *id);
                ActionOutcome::Done
            }
            Action::Delete => {
                self.deleted = true;
                ActionOutcome::Done
            }
        }
    }

    fn exit(&mut self, name: &str, code: i32, reason: &str) {
        let finished = self.now;
        for container in self.containers.iter_mut().filter(|it| *it.name == *name) {
            if let ContainerState::Running { since } = container.state {
                let (reason, message) = (reason.into(), "".into());
                container.state = ContainerState::Exited { code, reason, message, started: since, finished };
            }
        }
    }

    fn step(&mut self, step: &str) {
        self.line(&format!("# {step}"));
        let words: Vec<&str> = step.split(' ').collect();
        let rest = || words[1..].join(" ");
        match words.as_slice() {
            ["exits", name, code] => {
                let code = code.parse().unwrap();
                self.exit(name, code, if code == 0 { "Completed" } else { "Error" });
            }
            ["oom", name] => self.exit(name, 137, "OOMKilled"),
            ["vanishes", name] => self.containers.retain(|it| *it.name != **name),
            ["sandbox-dies"] => {
                self.sandboxes.iter_mut().for_each(|it| it.is_ready = false);
                let names: Vec<Text> = self.containers.iter().map(|it| it.name.clone()).collect();
                names.iter().for_each(|it| self.exit(it, 255, "Error"));
            }
            ["fail", ..] => _ = self.failing.insert(rest()),
            ["succeed", ..] => _ = self.failing.remove(&rest()),
            ["hang", ..] => _ = self.hanging.insert(rest()),
            ["complete", ..] => {
                self.hanging.remove(&rest());
                for action in core::mem::take(&mut self.held) {
                    self.complete(&action);
                }
            }
            ["absent", image] => _ = self.absent.insert(image.to_string()),
            ["present", image] => _ = self.absent.remove(*image),
            ["probe-fails", name, kind] => {
                _ = self.probe_results.insert((name.to_string(), kind.to_string()), (false, "no"));
            }
            ["probe-warns", name, kind] => {
                _ = self.probe_results.insert((name.to_string(), kind.to_string()), (true, "moved"));
            }
            ["probe-passes", name, kind] => {
                _ = self.probe_results.remove(&(name.to_string(), kind.to_string()))
            }
            ["wall-clock", seconds] => {
                let offset: i64 = seconds.parse().unwrap();
                let wall = Time::from_micros(self.now.as_micros() + offset * 1_000_000);
                self.wall_clock.detect_step(self.now, wall);
                self.pod.set_wall_clock(self.wall_clock.clone());
            }
            ["removed"] => self.pod.mark_removed_from_api(self.now),
            ["terminate", reason, grace @ ..] => {
                let grace = grace.first().map(|it| Duration::from_secs(it.parse().unwrap()));
                let termination = PodTermination {
                    reason: (*reason).into(),
                    message: format!("It was {reason}").into(),
                    grace,
                    is_rejection: *reason == "OutOfcpu",
                    is_disruption: *reason == "Evicted",
                };
                self.pod.terminate(termination, self.now);
            }
            ["agent-restarts"] => {
                let bytes = serde_json::to_vec(&self.object).unwrap();
                self.pod = PodStateMachine::new(parsed(&bytes), host(), self.now);
                self.held.clear();
            }
            _ => {
                match words.as_slice() {
                    ["delete", grace @ ..] => {
                        let grace: i64 = grace.first().map_or(30, |it| it.parse().unwrap());
                        self.object["metadata"]["deletionTimestamp"] = self.now.to_rfc3339().into();
                        self.object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
                    }
                    ["image", name, image] => {
                        let all = self.object["spec"]["containers"].as_array_mut().unwrap();
                        let container = all.iter_mut().find(|it| it["name"] == *name).unwrap();
                        container["image"] = (*image).into();
                    }
                    ["debug", name] => {
                        self.object["spec"]["ephemeralContainers"] =
                            json!([{"name": name, "image": "busybox:1"}]);
                    }
                    ["condition", kind, status] => {
                        self.merge(&json!({"conditions": [{"type": kind, "status": status}]}));
                    }
                    _ => panic!("unknown step: {step}"),
                }
                let bytes = serde_json::to_vec(&self.object).unwrap();
                self.pod.update_object(parsed(&bytes), self.now);
            }
        }
    }

    /// Merges a status as the API server does.
    fn merge(&mut self, patch: &Value) {
        for (key, value) in patch.as_object().unwrap() {
            if key != "conditions" {
                self.object["status"][key] = value.clone();
                continue;
            }
            let mut all = self.object["status"][key].as_array().cloned().unwrap_or_default();
            for condition in value.as_array().unwrap() {
                all.retain(|it| it["type"] != condition["type"]);
                all.push(condition.clone());
            }
            self.object["status"][key] = all.into();
        }
    }

    /// The status on one line.
    fn short(&self) -> String {
        let status = &self.object["status"];
        let mut line = status["phase"].as_str().unwrap().to_string();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let holds = conditions.filter(|it| it["status"] == "True" && it["type"] != "PodScheduled");
        for condition in holds {
            let short = match condition["type"].as_str().unwrap() {
                "PodReadyToStartContainers" => "sandbox",
                "Initialized" => "initialized",
                "ContainersReady" => "containers",
                "Ready" => "ready",
                other => other,
            };
            line += &format!(" {short}");
        }
        if let Some(reason) = status["reason"].as_str() {
            line += &format!(" ({reason})");
        }
        for list in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
            for it in status[list].as_array().into_iter().flatten() {
                let state = |it: &Value| match it {
                    it if it["running"].is_object() => "running".to_string(),
                    it if it["terminated"].is_object() => {
                        let reason = it["terminated"]["reason"].as_str().unwrap_or_default();
                        format!("{reason}({})", it["terminated"]["exitCode"])
                    }
                    it => it["waiting"]["reason"].as_str().unwrap_or_default().to_string(),
                };
                let last = if it["lastState"]["terminated"].is_object() {
                    format!("<-{}", state(&it["lastState"]))
                } else {
                    String::new()
                };
                let marks = match (it["started"] == true, it["ready"] == true) {
                    (_, true) => "+",
                    (true, false) => "~",
                    _ => "",
                };
                let name = it["name"].as_str().unwrap();
                line += &format!(" {name}#{}={}{last}{marks}", it["restartCount"], state(&it["state"]));
            }
        }
        line
    }
}

/// Adds a line of the scenario to the pod's object.
fn describe(object: &mut Value, line: &str) {
    let mut words = line.split(' ');
    let kind = words.next().unwrap();
    if kind == "pod" {
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "restart" => object["spec"]["restartPolicy"] = value.into(),
                "grace" => {
                    object["spec"]["terminationGracePeriodSeconds"] = value.parse::<i64>().unwrap().into()
                }
                "deadline" => object["spec"]["activeDeadlineSeconds"] = value.parse::<i64>().unwrap().into(),
                "host-network" => object["spec"]["hostNetwork"] = true.into(),
                "gate" => object["spec"]["readinessGates"] = json!([{"conditionType": value}]),
                "static" => {
                    object["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "file"})
                }
                _ => panic!("a pod has no {key}"),
            }
        }
        return;
    }
    let mut container = json!({"name": words.next().unwrap(), "image": "busybox:1"});
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let exec = json!({"exec": {"command": ["true"]}});
        let probe = || {
            let mut numbers = value.split(',').map(|it| it.parse::<i64>().unwrap());
            json!({
                "exec": {"command": ["true"]},
                "periodSeconds": numbers.next().unwrap_or(10),
                "failureThreshold": numbers.next().unwrap_or(3),
                "initialDelaySeconds": numbers.next().unwrap_or(0),
            })
        };
        match key {
            "image" => container["image"] = value.into(),
            "always" => container["imagePullPolicy"] = "Always".into(),
            "never" => container["imagePullPolicy"] = "Never".into(),
            "hook" => container["lifecycle"]["postStart"] = exec,
            "prestop" => container["lifecycle"]["preStop"] = exec,
            "startup" => container["startupProbe"] = probe(),
            "liveness" => container["livenessProbe"] = probe(),
            "readiness" => container["readinessProbe"] = probe(),
            _ => panic!("a container has no {key}"),
        }
    }
    let list = if kind == "main" { "containers" } else { "initContainers" };
    if kind == "side" {
        container["restartPolicy"] = "Always".into();
    }
    object["spec"][list].as_array_mut().unwrap().push(container);
}
