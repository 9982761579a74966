//! A story in, what is done out, as text. A small runtime carries the actions out at once, unless it is told to fail.
//!
//! A story begins with the pod: `pod`, then `restart=POLICY`, `grace=SECONDS`, `deadline=SECONDS`, `host-network`,
//! `gate=NAME`, `static`; then its containers, `init NAME`, `side NAME`, `main NAME`, and then `image=NAME`, `always` or `never`
//! (pulled), `hook` (postStart), `prestop`, `startup`, `liveness`, `readiness` with `=PERIOD,FAILURES[,DELAY]`.
//!
//! Then come lines that begin with a second: what happens then.
//! - `exits NAME CODE`, `sandbox dies`, `vanishes NAME`, `oom NAME`: in the runtime;
//! - `fails ACTION`: actions with this prefix fail until `works ACTION`; `hangs ACTION`: they get no response until `answers ACTION`;
//! - `absent IMAGE`, `present IMAGE`: on the node;
//! - `bad NAME KIND`, `odd NAME KIND` (passed, with a warning), `good NAME KIND`: what a probe says from now on;
//! - `delete [GRACE]`, `gone`, `end REASON [GRACE]`, `image NAME IMAGE`, `debug NAME`, `condition TYPE STATUS`: by others;
//! - `agent dies`: all that is remembered is lost, and a new one takes over.

mod admitted;
mod begins;
mod ends;
mod goes_on;
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

/// Plays a story, and shows what was done in some of its seconds.
fn play(seconds: RangeInclusive<i64>, story: &str, told: Expect) {
    let mut scene = Scene::of(story);
    scene.from = Time::from_secs(*seconds.start());
    scene.run(*seconds.end());
    told.assert_eq(&scene.told);
}

struct Scene {
    pod: Pod,
    object: Value,
    steps: Vec<(i64, String)>,
    sandboxes: Vec<Sandbox>,
    containers: Vec<Container>,
    ids: usize,
    failing: BTreeSet<String>,
    hanging: BTreeSet<String>,
    held: Vec<Action>,
    absent: BTreeSet<String>,
    /// What probes answer that do not just pass.
    answers: BTreeMap<(String, String), (bool, &'static str)>,
    now: Time,
    from: Time,
    told: String,
    said: String,
    deleted: bool,
}

fn parsed(bytes: &[u8]) -> Arc<Object> {
    Arc::new(Object::parse(bytes).unwrap())
}

fn host() -> Host {
    Host { addresses: ["192.168.0.1".into()].into(), runtime: "containerd".into() }
}

impl Scene {
    fn of(story: &str) -> Self {
        let mut object = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u1", "resourceVersion": "1", "generation": 1},
            "spec": {"initContainers": [], "containers": [], "terminationGracePeriodSeconds": 30},
            "status": {"phase": "Pending"},
        });
        let mut steps = Vec::new();
        for line in story.lines().map(str::trim).filter(|it| !it.is_empty()) {
            match line.split_once(' ').map(|(at, rest)| (at.parse(), rest)) {
                Some((Ok(at_s), rest)) => steps.push((at_s, rest.to_string())),
                _ => describe(&mut object, line),
            }
        }
        steps.reverse();
        let bytes = serde_json::to_vec(&object).unwrap();
        let now = Time::from_secs(0);
        Self {
            pod: Pod::new(parsed(&bytes), host(), now),
            object,
            steps,
            sandboxes: Vec::new(),
            containers: Vec::new(),
            ids: 0,
            failing: BTreeSet::new(),
            hanging: BTreeSet::new(),
            held: Vec::new(),
            absent: BTreeSet::new(),
            answers: BTreeMap::new(),
            now,
            from: now,
            told: String::new(),
            said: String::new(),
            deleted: false,
        }
    }

    fn run(&mut self, until_s: i64) {
        let until = Time::from_secs(until_s);
        while self.steps.last().is_some_and(|(at, _)| *at == 0) {
            let (_, step) = self.steps.pop().unwrap();
            self.happens(&step);
        }
        loop {
            let wake_at = self.settle();
            let next = self.steps.last().map(|(at, _)| Time::from_secs(*at));
            let Some(next) = earliest(next, wake_at).filter(|it| *it <= until) else { return };
            assert!(self.now <= next, "the past is over");
            self.now = next;
            while self.steps.last().is_some_and(|(at, _)| Time::from_secs(*at) <= self.now) {
                let (_, step) = self.steps.pop().unwrap();
                self.happens(&step);
            }
        }
    }

    /// Looks and does until there is nothing more to do.
    fn settle(&mut self) -> Option<Time> {
        for _ in 0..1000 {
            let seen = RuntimeState {
                mark: self.pod.mark(),
                sandboxes: self.sandboxes.clone(),
                containers: self.containers.clone(),
            };
            self.pod.update_runtime_state(seen, self.now);
            let sync = self.pod.sync(self.now);
            for tell in sync.events {
                let mark = if tell.event.warning { "!" } else { "-" };
                self.line(&format!("  {mark} {}: {}", tell.event.reason, tell.event.message));
            }
            if sync.actions.is_empty() {
                assert!(sync.wake_at.is_none_or(|it| self.now < it), "it wakes without end");
                if self.pod.is_over() {
                    self.line("over");
                    assert!(self.sandboxes.is_empty() && self.containers.is_empty(), "something is left");
                }
                return sync.wake_at;
            }
            for action in sync.actions {
                if let Action::Report(patch) = &action {
                    self.merge(&patch["status"]);
                    let said = self.short();
                    if said != self.said {
                        self.line(&format!("  = {said}"));
                        self.said = said;
                    }
                } else {
                    self.line(&action.to_string());
                }
                if self.hanging.iter().any(|it| action.to_string().starts_with(it.as_str())) {
                    self.held.push(action);
                    continue;
                }
                self.answer(&action);
            }
        }
        panic!("it does not come to rest:\n{}", self.told);
    }

    fn line(&mut self, text: &str) {
        if self.now < self.from {
            return;
        }
        let at = self.now.as_micros();
        let (s, tenths) = (at / 1_000_000, at % 1_000_000 / 100_000);
        let at = if tenths == 0 { s.to_string() } else { format!("{s}.{tenths}") };
        self.told += &format!("{at:<4} {text}\n");
    }

    fn answer(&mut self, action: &Action) {
        let outcome = self.carry_out(action);
        self.pod.done(action, outcome, self.now);
        if !self.deleted && !self.pod.is_gone {
            let bytes = serde_json::to_vec(&self.object).unwrap();
            self.pod.update_spec(parsed(&bytes), self.now);
        }
    }

    fn carry_out(&mut self, action: &Action) -> Outcome {
        if let Some(failing) = self.failing.iter().find(|it| action.to_string().starts_with(it.as_str())) {
            let reason = match action {
                Action::Pull { .. } => "ErrImagePull",
                Action::FindImage { .. } => "InvalidImageName",
                _ => "CreateContainerError",
            };
            return Outcome::Failed { reason: reason.into(), message: format!("cannot {failing}").into() };
        }
        let now = self.now;
        match action {
            Action::Prepare | Action::CleanUp { .. } | Action::Report(_) | Action::PostStart { .. } => {
                Outcome::Done
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
                Outcome::Done
            }
            Action::FindImage { image, .. } => {
                if self.absent.contains(&**image) {
                    Outcome::Absent
                } else {
                    Outcome::Present
                }
            }
            Action::Pull { image, .. } => {
                self.absent.remove(&**image);
                Outcome::Pulled { bytes: 1000 }
            }
            Action::Start { container, sandbox, attempt, hash, .. } => {
                let is_same = |it: &&Container| it.name == *container;
                let others = self.containers.iter().filter(is_same);
                assert!(others.clone().all(|it| !it.state.may_run()), "two {container} at once");
                assert!(others.clone().all(|it| it.attempt != *attempt), "an attempt of {container} twice");
                self.ids += 1;
                let id: Text = format!("c{}", self.ids).into();
                let image = self.pod.object.spec.find(container).unwrap().image.clone();
                self.containers.push(Container {
                    id: id.clone(),
                    sandbox: sandbox.clone(),
                    name: container.clone(),
                    attempt: *attempt,
                    hash: hash.clone(),
                    image_id: format!("sha256:{image}").into(),
                    image,
                    state: State::Running { since: now },
                });
                Outcome::Started { id }
            }
            Action::Probe { container, probe, .. } => {
                let name = probe.as_str().to_lowercase();
                let answer = self.answers.get(&(container.to_string(), name)).copied();
                let (passed, message) = answer.unwrap_or((true, ""));
                Outcome::Probed { passed, message: message.into() }
            }
            Action::Stop { container, .. } => {
                self.exit(container, 143, "Error");
                Outcome::Done
            }
            Action::RemoveContainer { id } => {
                self.containers.retain(|it| it.id != *id);
                Outcome::Done
            }
            Action::StopSandbox { id } => {
                self.sandboxes.iter_mut().filter(|it| it.id == *id).for_each(|it| it.is_ready = false);
                Outcome::Done
            }
            Action::RemoveSandbox { id } => {
                self.sandboxes.retain(|it| it.id != *id);
                self.containers.retain(|it| it.sandbox != *id);
                Outcome::Done
            }
            Action::Delete => {
                self.deleted = true;
                Outcome::Done
            }
        }
    }

    fn exit(&mut self, name: &str, code: i32, reason: &str) {
        let finished = self.now;
        for container in self.containers.iter_mut().filter(|it| *it.name == *name) {
            if let State::Running { since } = container.state {
                let (reason, message) = (reason.into(), "".into());
                container.state = State::Exited { code, reason, message, started: since, finished };
            }
        }
    }

    fn happens(&mut self, step: &str) {
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
            ["sandbox", "dies"] => {
                self.sandboxes.iter_mut().for_each(|it| it.is_ready = false);
                let names: Vec<Text> = self.containers.iter().map(|it| it.name.clone()).collect();
                names.iter().for_each(|it| self.exit(it, 255, "Error"));
            }
            ["fails", ..] => _ = self.failing.insert(rest()),
            ["works", ..] => _ = self.failing.remove(&rest()),
            ["hangs", ..] => _ = self.hanging.insert(rest()),
            ["answers", ..] => {
                self.hanging.remove(&rest());
                for action in core::mem::take(&mut self.held) {
                    self.answer(&action);
                }
            }
            ["absent", image] => _ = self.absent.insert(image.to_string()),
            ["present", image] => _ = self.absent.remove(*image),
            ["bad", name, kind] => {
                _ = self.answers.insert((name.to_string(), kind.to_string()), (false, "no"));
            }
            ["odd", name, kind] => {
                _ = self.answers.insert((name.to_string(), kind.to_string()), (true, "moved"));
            }
            ["good", name, kind] => _ = self.answers.remove(&(name.to_string(), kind.to_string())),
            ["gone"] => self.pod.gone(self.now),
            ["end", reason, grace @ ..] => {
                let grace = grace.first().map(|it| Duration::from_secs(it.parse().unwrap()));
                let ending = Ending {
                    reason: (*reason).into(),
                    message: format!("It was {reason}").into(),
                    grace,
                    is_rejection: *reason == "OutOfcpu",
                    is_disruption: *reason == "Evicted",
                };
                self.pod.end(ending, self.now);
            }
            ["agent", "dies"] => {
                let bytes = serde_json::to_vec(&self.object).unwrap();
                self.pod = Pod::new(parsed(&bytes), host(), self.now);
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
                    _ => panic!("nobody knows how to {step}"),
                }
                let bytes = serde_json::to_vec(&self.object).unwrap();
                self.pod.update_spec(parsed(&bytes), self.now);
            }
        }
    }

    /// As an API server merges a status.
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

    /// The status in a line.
    fn short(&self) -> String {
        let status = &self.object["status"];
        let mut said = status["phase"].as_str().unwrap().to_string();
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
            said += &format!(" {short}");
        }
        if let Some(reason) = status["reason"].as_str() {
            said += &format!(" ({reason})");
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
                said += &format!(" {name}#{}={}{last}{marks}", it["restartCount"], state(&it["state"]));
            }
        }
        said
    }
}

/// A line of the world is added to the pod's object.
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
