//! A scenario in, the calls and events and the final state out, as text. A small API server executes the calls, and
//! nodes renew their Leases every ten seconds unless they are silent.
//!
//! A line of the scenario is an object:
//! - `node NAME`, and then `ready`, `not-ready`, `unknown`, or `new` if it has no conditions yet; `memory`, `disk`,
//!   `pid`, `network`: that condition is True; `cordoned`, `excluded`, `zone=NAME`, `silent`,
//!   `taint=KEY:EFFECT[@SECOND]`, `os`: its `kubernetes.io/os` label lacks the deprecated alias;
//! - `pod NAME on=NODE`, and then `tolerates=KEY[:SECONDS]` (`*`: any key), `bound=SECOND`, `not-ready`.
//!
//! The lines after them begin with the second of an action. `deleted` deletes an object, `silent` stops the heartbeats
//! of a node and `heartbeats` starts them again, `status-heartbeat` is one heartbeat in the Node status. `suspended
//! until SECOND` suspends the controller. `watch-stalled` delays all watch events until `relisted`. `no-response`
//! leaves our calls without a response until `responses`. `disk-full` makes the API server refuse every write,
//! heartbeats among them, until `disk-freed`.

mod incremental;
mod scenarios;
mod wire;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use expect_test::Expect;
use muster_api::object_key::ObjectKey;
use muster_api::taints::{Toleration, TolerationOperator};

use super::*;
use crate::controller::WorkQueue;

/// Runs a scenario until a second, and compares the calls, the events, and the final nodes and pods.
fn check(until_s: i64, scenario: &str, expected: Expect) {
    check_with_config(Config::default(), until_s, scenario, expected);
}

fn check_with_config(config: Config, until_s: i64, scenario: &str, expected: Expect) {
    let mut cluster = TestCluster::with(config, scenario);
    cluster.run(until_s);
    expected.assert_eq(&cluster.report());
}

struct TestCluster {
    queue: WorkQueue<NodeLifecycle>,
    nodes: BTreeMap<Text, Node>,
    leases: BTreeMap<Text, Lease>,
    pods: BTreeMap<ObjectKey, Pod>,
    silent: BTreeSet<Text>,
    actions: Vec<(i64, String)>,
    version: u64,
    now: Time,
    watch_stalled: bool,
    no_response: bool,
    disk_full: bool,
    log: String,
}

impl TestCluster {
    fn of(scenario: &str) -> Self {
        Self::with(Config::default(), scenario)
    }

    fn with(config: Config, scenario: &str) -> Self {
        let mut cluster = Self {
            queue: WorkQueue::new(NodeLifecycle::new(config), 4),
            nodes: BTreeMap::new(),
            leases: BTreeMap::new(),
            pods: BTreeMap::new(),
            silent: BTreeSet::new(),
            actions: Vec::new(),
            version: 0,
            now: Time::from_secs(0),
            watch_stalled: true,
            no_response: false,
            disk_full: false,
            log: String::new(),
        };
        for line in scenario.lines().map(str::trim).filter(|it| !it.is_empty()) {
            match line.split_once(' ').map(|(at, rest)| (at.parse(), rest)) {
                Some((Ok(at_s), rest)) => cluster.actions.push((at_s, rest.to_string())),
                _ => cluster.apply_line(line),
            }
        }
        cluster.actions.reverse();
        cluster.watch_stalled = false;
        cluster.list();
        cluster
    }

    fn lists(&self) -> [(usize, Vec<NodeLifecycleObject>); 3] {
        let nodes = self.nodes.values().cloned().map(NodeLifecycleObject::Node).collect();
        let leases = self.leases.values().cloned().map(NodeLifecycleObject::Lease).collect();
        let pods = self.pods.values().cloned().map(NodeLifecycleObject::Pod).collect();
        [(NODE_KIND, nodes), (LEASE_KIND, leases), (POD_KIND, pods)]
    }

    fn list(&mut self) {
        for (kind, facts) in self.lists() {
            self.queue.apply(Event::Listed { kind, facts, resource_version: 1 }, self.now);
        }
    }

    fn show(&mut self, kind: usize, fact: NodeLifecycleObject) {
        if !self.watch_stalled {
            self.queue.apply(Event::Applied { kind, fact }, self.now);
        }
    }

    fn show_node(&mut self, name: &str) {
        self.version += 1;
        let version = self.version;
        let node = self.nodes.get_mut(name).expect("the object exists");
        node.resource_version = version;
        let fact = NodeLifecycleObject::Node(node.clone());
        self.show(NODE_KIND, fact);
    }

    fn show_pod(&mut self, key: &ObjectKey) {
        self.version += 1;
        let version = self.version;
        let pod = self.pods.get_mut(key).expect("the object exists");
        pod.resource_version = version;
        let fact = NodeLifecycleObject::Pod(pod.clone());
        self.show(POD_KIND, fact);
    }

    fn apply_line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["watch-stalled"] => self.watch_stalled = true,
            ["relisted"] => {
                self.watch_stalled = false;
                self.list();
            }
            ["no-response"] => self.no_response = true,
            ["responses"] => self.no_response = false,
            ["disk-full"] => self.disk_full = true,
            ["disk-freed"] => self.disk_full = false,
            ["node", name, "deleted"] => {
                let node = self.nodes.remove(name).expect("the object exists");
                self.queue.apply(
                    Event::Deleted { kind: NODE_KIND, fact: NodeLifecycleObject::Node(node) },
                    self.now,
                );
            }
            ["node", name, "silent"] => drop(self.silent.insert(name.into())),
            ["node", name, "heartbeats"] => drop(self.silent.remove(name)),
            ["node", name, ref words @ ..] => {
                let before = self.nodes.remove(name);
                let node = node(name, words, before, self.now);
                self.nodes.insert(name.into(), node);
                if words.contains(&"silent") {
                    self.silent.insert(name.into());
                }
                self.show_node(name);
            }
            ["pod", name, "deleted"] => {
                let pod = self.pods.remove(&ObjectKey::new("a", name)).expect("the object exists");
                self.queue
                    .apply(Event::Deleted { kind: POD_KIND, fact: NodeLifecycleObject::Pod(pod) }, self.now);
            }
            ["pod", name, ref words @ ..] => {
                let pod = pod(name, words, self.now);
                let key = pod.key.clone();
                self.pods.insert(key.clone(), pod);
                self.show_pod(&key);
            }
            _ => panic!("unknown line: {line}"),
        }
    }

    fn send_heartbeats(&mut self) {
        if self.disk_full {
            return;
        }
        let with_heartbeats = self.nodes.keys().filter(|it| !self.silent.contains(*it));
        let with_heartbeats: Vec<Text> = with_heartbeats.cloned().collect();
        for name in with_heartbeats {
            self.version += 1;
            let lease = Lease {
                key: ObjectKey::new(LEASE_NAMESPACE, name.clone()),
                resource_version: self.version,
                renewed: Some(self.now.to_rfc3339().into()),
            };
            self.leases.insert(name, lease.clone());
            self.show(LEASE_KIND, NodeLifecycleObject::Lease(lease));
        }
    }

    fn run(&mut self, until_s: i64) {
        let mut heartbeat_at = Time::from_secs(0);
        loop {
            self.settle();
            let step = self.queue.reconcile_due(self.now);
            assert!(step.calls.is_empty() && step.events.is_empty(), "no call and no event is left");
            let action_at = self.actions.last().map(|(at_s, _)| Time::from_secs(*at_s));
            let at = [Some(heartbeat_at), step.wake_at, action_at].into_iter().flatten().min();
            let Some(at) = at.filter(|it| *it <= Time::from_secs(until_s)) else { break };
            self.now = self.now.max(at);
            if action_at.is_some_and(|it| it <= self.now) {
                let (_, action) = self.actions.pop().expect("one is due");
                match action.strip_prefix("suspended until ") {
                    Some(until) => {
                        self.now = Time::from_secs(until.parse().unwrap());
                        heartbeat_at = self.now + Duration::from_secs(1);
                    }
                    None => self.apply_line(&action),
                }
            } else if heartbeat_at <= self.now {
                self.send_heartbeats();
                heartbeat_at = self.now + Duration::from_secs(10);
            }
        }
        self.now = Time::from_secs(until_s);
    }

    /// Makes the calls until there are none.
    fn settle(&mut self) {
        for _ in 0..1000 {
            let step = self.queue.reconcile_due(self.now);
            for record in &step.events {
                let (about, event) = (&record.about, &record.event);
                self.log_line(&format!(
                    "event {} {}: {} {}",
                    about.kind, about.key.name, event.reason, event.message
                ));
            }
            if step.calls.is_empty() {
                return;
            }
            for call in step.calls {
                let outcome = self.make(&call);
                let refusal = match &outcome {
                    Outcome::Refused(it) => format!("  -> {it}"),
                    Outcome::Done(_) => String::new(),
                };
                self.log_line(&format!("{call}{refusal}"));
                self.queue.apply_outcome(&call, outcome, self.now);
            }
        }
        panic!("does not settle:\n{}", self.log);
    }

    fn log_line(&mut self, line: &str) {
        let line = &short(line);
        self.log += &format!("{:>4} {line}\n", self.now.as_micros() / 1_000_000);
    }

    fn make(&mut self, call: &NodeLifecycleCall) -> Outcome {
        if self.no_response {
            return Outcome::Refused(CallError::NoAnswer);
        }
        if self.disk_full && !matches!(call, NodeLifecycleCall::ReadLease { .. }) {
            return Outcome::Refused(CallError::Server("the disk is full".into()));
        }
        match call {
            NodeLifecycleCall::ReadLease { node, .. } => match self.leases.get(node) {
                Some(lease) => {
                    let body = serde_json::json!({"spec": {"renewTime": lease.renewed}});
                    return Outcome::Done(body.to_string().into_bytes());
                }
                None => return Outcome::Refused(CallError::NotFound),
            },
            NodeLifecycleCall::MarkUnknown { node: seen, .. }
            | NodeLifecycleCall::PatchNode { node: seen, .. } => {
                let Some(node) = self.nodes.get_mut(&seen.name) else {
                    return Outcome::Refused(CallError::NotFound);
                };
                if node.resource_version != seen.resource_version {
                    return Outcome::Refused(CallError::Conflict);
                }
                if let NodeLifecycleCall::MarkUnknown { conditions, .. } = call {
                    conditions.iter().for_each(|it| node.conditions.set(*it, ConditionStatus::Unknown));
                }
                if let NodeLifecycleCall::PatchNode { taints, .. } = call {
                    node.alias_labels.clear();
                    node.taints = taints.clone().unwrap_or(core::mem::take(&mut node.taints));
                }
                self.show_node(&seen.name);
            }
            NodeLifecycleCall::MarkPodNotReady { pod: seen, .. }
            | NodeLifecycleCall::MarkDisruptionTarget { pod: seen, .. }
            | NodeLifecycleCall::DeletePod { pod: seen } => {
                let Some(pod) = self.pods.get_mut(&seen.key) else {
                    return Outcome::Refused(CallError::NotFound);
                };
                if pod.uid != seen.uid {
                    return Outcome::Refused(CallError::Conflict);
                }
                match call {
                    NodeLifecycleCall::MarkPodNotReady { .. } => pod.ready = false,
                    NodeLifecycleCall::MarkDisruptionTarget { .. } => pod.is_disruption_target = true,
                    _ => pod.deleting = true,
                }
                self.show_pod(&seen.key);
            }
        }
        let body = serde_json::json!({"metadata": {"resourceVersion": self.version.to_string()}});
        Outcome::Done(body.to_string().into_bytes())
    }

    fn report(&self) -> String {
        let mut report = String::new();
        for node in self.nodes.values() {
            let taints: Vec<String> = node.taints.iter().map(ToString::to_string).collect();
            let ready = node.ready().map_or("-", ConditionStatus::as_str);
            report += &format!("node {} {ready} [{}]\n", node.name, taints.join(" "));
        }
        for pod in self.pods.values() {
            let ready = if pod.ready { "ready" } else { "not ready" };
            let terminating = if pod.deleting { ", terminating" } else { "" };
            report += &format!("pod {} {ready}{terminating}\n", pod.key.name);
        }
        let line = if self.log.is_empty() { "" } else { "--\n" };
        format!("{}{line}{}", self.log, short(&report))
    }
}

/// Replaces timestamps by seconds.
fn short(text: &str) -> String {
    let (first, rest) = text.split_once('@').unwrap_or((text, ""));
    let mut short = first.to_string();
    for part in rest.split('@').filter(|it| !it.is_empty()) {
        let (time, rest) = part.split_at("1970-01-01T00:00:00Z".len());
        let at_s = Time::parse(time).map(|it| it.as_micros() / 1_000_000);
        short += &format!("@{}{rest}", at_s.expect("a time follows an @"));
    }
    short
}

/// Applies the words to a node, or to a new one.
fn node(name: &str, words: &[&str], before: Option<Node>, now: Time) -> Node {
    let mut node = before.unwrap_or_else(|| Node {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        resource_version: 0,
        created: now.to_rfc3339().into(),
        zone: "".into(),
        excluded: false,
        unschedulable: false,
        taints: Vec::new(),
        conditions: Conditions::default(),
        heartbeat: None,
        alias_labels: Vec::new(),
    });
    for word in words {
        match *word {
            "ready" | "not-ready" | "unknown" => {
                let says = match *word {
                    "ready" => ConditionStatus::True,
                    "not-ready" => ConditionStatus::False,
                    _ => ConditionStatus::Unknown,
                };
                let said = NodeConditionType::ALL
                    .into_iter()
                    .filter(|it| *it != NodeConditionType::NetworkUnavailable);
                let other = if says == ConditionStatus::Unknown {
                    ConditionStatus::Unknown
                } else {
                    ConditionStatus::False
                };
                said.for_each(|it| node.conditions.set(it, other));
                node.conditions.set(NodeConditionType::Ready, says);
                node.heartbeat = Some(now.to_rfc3339().into());
            }
            "status-heartbeat" => node.heartbeat = Some(now.to_rfc3339().into()),
            "memory" => node.conditions.set(NodeConditionType::MemoryPressure, ConditionStatus::True),
            "disk" => node.conditions.set(NodeConditionType::DiskPressure, ConditionStatus::True),
            "pid" => node.conditions.set(NodeConditionType::PidPressure, ConditionStatus::True),
            "network" => node.conditions.set(NodeConditionType::NetworkUnavailable, ConditionStatus::True),
            "network-up" => {
                node.conditions.set(NodeConditionType::NetworkUnavailable, ConditionStatus::False)
            }
            "cordoned" => node.unschedulable = true,
            "uncordoned" => node.unschedulable = false,
            "excluded" => node.excluded = true,
            "os" => node.alias_labels = [("beta.kubernetes.io/os", Text::from("linux"))].into(),
            "untainted" => node.taints.clear(),
            "new" | "silent" => {}
            _ => match word.split_once('=') {
                Some(("zone", zone)) => node.zone = zone.into(),
                Some(("uid", uid)) => node.uid = uid.into(),
                Some(("taint", taint)) => {
                    let (taint, added) = match taint.split_once('@') {
                        Some((taint, at)) => (taint, Some(Time::from_secs(at.parse().unwrap()))),
                        None => (taint, None),
                    };
                    let (key, effect) = taint.split_once(':').expect("a taint has an effect");
                    let key = match key {
                        "not-ready" | "unreachable" | "unschedulable" | "memory-pressure" => {
                            format!("node.kubernetes.io/{key}")
                        }
                        key => key.to_string(),
                    };
                    node.taints.push(Taint {
                        key: key.into(),
                        value: "".into(),
                        effect: effect.into(),
                        added: added.map(|it| it.to_rfc3339().into()),
                    });
                }
                _ => panic!("unknown word: {word}"),
            },
        }
    }
    node
}

fn pod(name: &str, words: &[&str], now: Time) -> Pod {
    let mut pod = Pod {
        key: ObjectKey::new("a", name),
        uid: format!("uid-{name}").into(),
        resource_version: 0,
        generation: 1,
        node: "".into(),
        bound_at: now,
        deleting: false,
        ready: true,
        is_disruption_target: false,
        tolerations: Vec::new(),
    };
    for word in words {
        match word.split_once('=') {
            Some(("on", node)) => pod.node = node.into(),
            Some(("bound", at_s)) => pod.bound_at = Time::from_secs(at_s.parse().unwrap()),
            Some(("tolerates", what)) => {
                let (key, for_s) = match what.split_once(':') {
                    Some((key, for_s)) => (key, Some(for_s.parse().unwrap())),
                    None => (what, None),
                };
                let key = match key {
                    "*" => String::new(),
                    "not-ready" | "unreachable" => format!("node.kubernetes.io/{key}"),
                    key => key.to_string(),
                };
                let what = Toleration {
                    key: key.into(),
                    operator: TolerationOperator::Exists,
                    effect: Some(TaintEffect::NoExecute),
                };
                pod.tolerations.push(TimedToleration { toleration: what, seconds: for_s });
            }
            None if *word == "not-ready" => pod.ready = false,
            _ => panic!("unknown word: {word}"),
        }
    }
    pod
}
