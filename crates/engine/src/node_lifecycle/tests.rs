//! A story in, what is done out, as text. A small API server carries the calls out, and nodes renew their leases every ten
//! seconds unless they are silent.
//!
//! A line of the world is an object:
//! - `node NAME`, and then `ready`, `not-ready`, `unknown`, or `new` if it has never said how it is; `memory`, `disk`, `pid`,
//!   `network`: it says True of that; `cordoned`, `excluded`, `zone=NAME`, `silent`, `taint=KEY:EFFECT[@SECOND]`, `os`: it
//!   has that label under its new name only;
//! - `pod NAME on=NODE`, and then `tolerates=KEY[:SECONDS]` (`*`: any key), `bound=SECOND`, `not-ready`.
//!
//! Then come lines that begin with a second: what happens then, with the rest of such a line. `gone` deletes, `silent` and
//! `speaks` end and begin the heartbeats, `tells` is a heartbeat by status; `asleep` leaves us without a chance to look until
//! then, `deaf` shows us no watch, `hears` shows all that was missed; `mute` leaves our calls unanswered until `answers`;
//! `full` has the API server refuse every write, heartbeats among them, until `room`.

mod kept;
mod stories;
mod wire;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use expect_test::Expect;
use muster_api::meta::ObjectKey;
use muster_api::taints::{Toleration, TolerationOperator};

use super::*;
use crate::controller::WorkQueue;

/// Plays a story until a second, and shows what was done and how the nodes and pods ended.
fn play(until_s: i64, story: &str, told: Expect) {
    play_with(Settings::default(), until_s, story, told);
}

fn play_with(settings: Settings, until_s: i64, story: &str, told: Expect) {
    let mut scene = Scene::with(settings, story);
    scene.run(until_s);
    told.assert_eq(&scene.told());
}

struct Scene {
    queue: WorkQueue<Lifecycle>,
    nodes: BTreeMap<Text, Node>,
    leases: BTreeMap<Text, Lease>,
    pods: BTreeMap<ObjectKey, Pod>,
    silent: BTreeSet<Text>,
    actions: Vec<(i64, String)>,
    version: u64,
    now: Time,
    deaf: bool,
    mute: bool,
    full: bool,
    story: String,
}

impl Scene {
    fn of(story: &str) -> Self {
        Self::with(Settings::default(), story)
    }

    fn with(settings: Settings, story: &str) -> Self {
        let mut scene = Self {
            queue: WorkQueue::new(Lifecycle::new(settings), 4),
            nodes: BTreeMap::new(),
            leases: BTreeMap::new(),
            pods: BTreeMap::new(),
            silent: BTreeSet::new(),
            actions: Vec::new(),
            version: 0,
            now: Time::from_secs(0),
            deaf: true,
            mute: false,
            full: false,
            story: String::new(),
        };
        for line in story.lines().map(str::trim).filter(|it| !it.is_empty()) {
            match line.split_once(' ').map(|(at, rest)| (at.parse(), rest)) {
                Some((Ok(at_s), rest)) => scene.actions.push((at_s, rest.to_string())),
                _ => scene.happens(line),
            }
        }
        scene.actions.reverse();
        scene.deaf = false;
        scene.list();
        scene
    }

    fn lists(&self) -> [(usize, Vec<Fact>); 3] {
        let nodes = self.nodes.values().cloned().map(Fact::Node).collect();
        let leases = self.leases.values().cloned().map(Fact::Lease).collect();
        let pods = self.pods.values().cloned().map(Fact::Pod).collect();
        [(NODES, nodes), (LEASES, leases), (PODS, pods)]
    }

    fn list(&mut self) {
        for (kind, facts) in self.lists() {
            self.queue.apply(Event::Listed { kind, facts }, self.now);
        }
    }

    fn show(&mut self, kind: usize, fact: Fact) {
        if !self.deaf {
            self.queue.apply(Event::Applied { kind, fact }, self.now);
        }
    }

    fn show_node(&mut self, name: &str) {
        self.version += 1;
        let version = self.version;
        let node = self.nodes.get_mut(name).expect("it is there");
        node.resource_version = version;
        let fact = Fact::Node(node.clone());
        self.show(NODES, fact);
    }

    fn show_pod(&mut self, key: &ObjectKey) {
        self.version += 1;
        let version = self.version;
        let pod = self.pods.get_mut(key).expect("it is there");
        pod.resource_version = version;
        let fact = Fact::Pod(pod.clone());
        self.show(PODS, fact);
    }

    fn happens(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["deaf"] => self.deaf = true,
            ["hears"] => {
                self.deaf = false;
                self.list();
            }
            ["mute"] => self.mute = true,
            ["answers"] => self.mute = false,
            ["full"] => self.full = true,
            ["room"] => self.full = false,
            ["node", name, "gone"] => {
                let node = self.nodes.remove(name).expect("it is there");
                self.queue.apply(Event::Deleted { kind: NODES, fact: Fact::Node(node) }, self.now);
            }
            ["node", name, "silent"] => drop(self.silent.insert(name.into())),
            ["node", name, "speaks"] => drop(self.silent.remove(name)),
            ["node", name, ref words @ ..] => {
                let before = self.nodes.remove(name);
                let node = node(name, words, before, self.now);
                self.nodes.insert(name.into(), node);
                if words.contains(&"silent") {
                    self.silent.insert(name.into());
                }
                self.show_node(name);
            }
            ["pod", name, "gone"] => {
                let pod = self.pods.remove(&ObjectKey::new("a", name)).expect("it is there");
                self.queue.apply(Event::Deleted { kind: PODS, fact: Fact::Pod(pod) }, self.now);
            }
            ["pod", name, ref words @ ..] => {
                let pod = pod(name, words, self.now);
                let key = pod.key.clone();
                self.pods.insert(key.clone(), pod);
                self.show_pod(&key);
            }
            _ => panic!("what is {line}?"),
        }
    }

    fn beat(&mut self) {
        if self.full {
            return;
        }
        let speaking = self.nodes.keys().filter(|it| !self.silent.contains(*it));
        let speaking: Vec<Text> = speaking.cloned().collect();
        for name in speaking {
            self.version += 1;
            let lease = Lease {
                key: ObjectKey::new(LEASE_NAMESPACE, name.clone()),
                resource_version: self.version,
                renewed: Some(self.now.to_rfc3339().into()),
            };
            self.leases.insert(name, lease.clone());
            self.show(LEASES, Fact::Lease(lease));
        }
    }

    fn run(&mut self, until_s: i64) {
        let mut beat_at = Time::from_secs(0);
        loop {
            self.settle();
            let step = self.queue.next(self.now);
            assert!(step.calls.is_empty() && step.events.is_empty(), "all was done");
            let acts_at = self.actions.last().map(|(at_s, _)| Time::from_secs(*at_s));
            let at = [Some(beat_at), step.wake_at, acts_at].into_iter().flatten().min();
            let Some(at) = at.filter(|it| *it <= Time::from_secs(until_s)) else { break };
            self.now = self.now.max(at);
            if acts_at.is_some_and(|it| it <= self.now) {
                let (_, action) = self.actions.pop().expect("there is one");
                match action.strip_prefix("asleep until ") {
                    Some(until) => {
                        self.now = Time::from_secs(until.parse().unwrap());
                        beat_at = self.now + Duration::from_secs(1);
                    }
                    None => self.happens(&action),
                }
            } else if beat_at <= self.now {
                self.beat();
                beat_at = self.now + Duration::from_secs(10);
            }
        }
        self.now = Time::from_secs(until_s);
    }

    /// Makes the calls, until there are none.
    fn settle(&mut self) {
        for _ in 0..1000 {
            let step = self.queue.next(self.now);
            for tell in &step.events {
                let (about, event) = (&tell.about, &tell.event);
                self.tell(&format!(
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
                self.tell(&format!("{call}{refusal}"));
                self.queue.done(&call, outcome, self.now);
            }
        }
        panic!("no end:\n{}", self.story);
    }

    fn tell(&mut self, line: &str) {
        let line = &short(line);
        self.story += &format!("{:>4} {line}\n", self.now.as_micros() / 1_000_000);
    }

    fn make(&mut self, call: &Call) -> Outcome {
        if self.mute {
            return Outcome::Refused(Refusal::NoAnswer);
        }
        if self.full && !matches!(call, Call::ReadLease { .. }) {
            return Outcome::Refused(Refusal::Server("the disk is full".into()));
        }
        match call {
            Call::ReadLease { node, .. } => match self.leases.get(node) {
                Some(lease) => {
                    let body = serde_json::json!({"spec": {"renewTime": lease.renewed}});
                    return Outcome::Done(body.to_string().into_bytes());
                }
                None => return Outcome::Refused(Refusal::NotFound),
            },
            Call::Doubt { node: seen, .. } | Call::Amend { node: seen, .. } => {
                let Some(node) = self.nodes.get_mut(&seen.name) else {
                    return Outcome::Refused(Refusal::NotFound);
                };
                if node.resource_version != seen.resource_version {
                    return Outcome::Refused(Refusal::Conflict);
                }
                if let Call::Doubt { conditions, .. } = call {
                    conditions.iter().for_each(|it| node.conditions.set(*it, Truth::Unknown));
                }
                if let Call::Amend { taints, .. } = call {
                    node.labels.clear();
                    node.taints = taints.clone().unwrap_or(core::mem::take(&mut node.taints));
                }
                self.show_node(&seen.name);
            }
            Call::Unready { pod: seen, .. }
            | Call::Announce { pod: seen, .. }
            | Call::Delete { pod: seen } => {
                let Some(pod) = self.pods.get_mut(&seen.key) else {
                    return Outcome::Refused(Refusal::NotFound);
                };
                if pod.uid != seen.uid {
                    return Outcome::Refused(Refusal::Conflict);
                }
                match call {
                    Call::Unready { .. } => pod.ready = false,
                    Call::Announce { .. } => pod.announced = true,
                    _ => pod.deleting = true,
                }
                self.show_pod(&seen.key);
            }
        }
        let body = serde_json::json!({"metadata": {"resourceVersion": self.version.to_string()}});
        Outcome::Done(body.to_string().into_bytes())
    }

    fn told(&self) -> String {
        let mut told = String::new();
        for node in self.nodes.values() {
            let taints: Vec<String> = node.taints.iter().map(ToString::to_string).collect();
            let ready = node.ready().map_or("-", Truth::as_str);
            told += &format!("node {} {ready} [{}]\n", node.name, taints.join(" "));
        }
        for pod in self.pods.values() {
            let ready = if pod.ready { "ready" } else { "not ready" };
            let leaving = if pod.deleting { ", leaving" } else { "" };
            told += &format!("pod {} {ready}{leaving}\n", pod.key.name);
        }
        let line = if self.story.is_empty() { "" } else { "--\n" };
        format!("{}{line}{}", self.story, short(&told))
    }
}

/// Times as seconds.
fn short(text: &str) -> String {
    let (first, rest) = text.split_once('@').unwrap_or((text, ""));
    let mut short = first.to_string();
    for part in rest.split('@').filter(|it| !it.is_empty()) {
        let (time, rest) = part.split_at("1970-01-01T00:00:00Z".len());
        let at_s = Time::parse(time).map(|it| it.as_micros() / 1_000_000);
        short += &format!("@{}{rest}", at_s.expect("a time stands after an @"));
    }
    short
}

/// A node as the words say, on top of what it was.
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
        beat: None,
        labels: Vec::new(),
    });
    for word in words {
        match *word {
            "ready" | "not-ready" | "unknown" => {
                let says = match *word {
                    "ready" => Truth::True,
                    "not-ready" => Truth::False,
                    _ => Truth::Unknown,
                };
                let said = Condition::ALL.into_iter().filter(|it| *it != Condition::NetworkUnavailable);
                let other = if says == Truth::Unknown { Truth::Unknown } else { Truth::False };
                said.for_each(|it| node.conditions.set(it, other));
                node.conditions.set(Condition::Ready, says);
                node.beat = Some(now.to_rfc3339().into());
            }
            "events" => node.beat = Some(now.to_rfc3339().into()),
            "memory" => node.conditions.set(Condition::MemoryPressure, Truth::True),
            "disk" => node.conditions.set(Condition::DiskPressure, Truth::True),
            "pid" => node.conditions.set(Condition::PidPressure, Truth::True),
            "network" => node.conditions.set(Condition::NetworkUnavailable, Truth::True),
            "network-up" => node.conditions.set(Condition::NetworkUnavailable, Truth::False),
            "cordoned" => node.unschedulable = true,
            "uncordoned" => node.unschedulable = false,
            "excluded" => node.excluded = true,
            "os" => node.labels = [("beta.kubernetes.io/os", Text::from("linux"))].into(),
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
                _ => panic!("what is {word}?"),
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
        bound: now,
        deleting: false,
        ready: true,
        announced: false,
        tolerations: Vec::new(),
    };
    for word in words {
        match word.split_once('=') {
            Some(("on", node)) => pod.node = node.into(),
            Some(("bound", at_s)) => pod.bound = Time::from_secs(at_s.parse().unwrap()),
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
                pod.tolerations.push(Tolerates { what, for_s });
            }
            None if *word == "not-ready" => pod.ready = false,
            _ => panic!("what is {word}?"),
        }
    }
    pod
}
