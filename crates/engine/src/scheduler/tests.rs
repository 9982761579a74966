//! Scenarios of the scheduler, with a fake API server.

mod affinity;
mod binding;
mod filter;
mod preemption;
mod queue;
mod score;
mod spread;

use alloc::string::ToString;
use core::time::Duration;

use expect_test::Expect;
use serde_json::{Value, json};

use super::*;
use crate::controller::WorkQueue;

/// A scheduler, a fake API server that executes every call, and a clock.
struct TestScheduler {
    queue: WorkQueue<Scheduler>,
    watches: Vec<Watch>,
    shared: Interner,
    pods: BTreeMap<String, Value>,
    now: Time,
    version: u64,
    /// The error of every binding, if any.
    refusal: Option<CallError>,
    events: Vec<String>,
}

impl TestScheduler {
    fn new() -> Self {
        let scheduler = Scheduler::default();
        let watches = scheduler.watches();
        let mut queue = WorkQueue::new(scheduler, 1000);
        let now = Time::from_secs(1_000_000);
        (0..watches.len()).for_each(|kind| {
            queue.apply(Event::Listed { kind, facts: Vec::new(), resource_version: 1 }, now)
        });
        Self {
            queue,
            watches,
            shared: Interner::default(),
            pods: BTreeMap::new(),
            now,
            version: 0,
            refusal: None,
            events: Vec::new(),
        }
    }

    fn fact(&mut self, kind: usize, object: &Value) -> SchedulerObject {
        Scheduler::decode(&self.watches[kind], object.to_string().as_bytes(), &mut self.shared).unwrap()
    }

    fn put(&mut self, kind: usize, object: &Value) {
        let fact = self.fact(kind, object);
        self.queue.apply(Event::Applied { kind, fact }, self.now);
    }

    /// A node with two cores and ten pods at most, merged with `more`.
    fn node(&mut self, name: &str, more: Value) -> &mut Self {
        let mut node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {},
            "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}},
        });
        merge(&mut node, more);
        node["metadata"]["labels"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.put(1, &node);
        self
    }

    fn delete_node(&mut self, name: &str) -> &mut Self {
        let fact = self.fact(1, &json!({"metadata": {"name": name}}));
        self.queue.apply(Event::Deleted { kind: 1, fact }, self.now);
        self
    }

    /// A pod, merged with `more`, which may set its node.
    fn pod(&mut self, name: &str, more: Value) -> &mut Self {
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("uid of {name}"),
                "labels": {"app": name.split('-').next()},
                "creationTimestamp": self.now.to_rfc3339(),
            },
            "spec": {"containers": [{"name": "c"}]},
            "status": {},
        });
        self.pods.entry(name.into()).or_insert(pod);
        self.patch_pod(name, more)
    }

    fn patch_pod(&mut self, name: &str, more: Value) -> &mut Self {
        self.version += 1;
        let version = self.version.to_string();
        let pod = self.pods.get_mut(name).unwrap();
        merge(pod, with(json!({"metadata": {"resourceVersion": version}}), more));
        let pod = pod.clone();
        self.put(0, &pod);
        self
    }

    fn delete_pod(&mut self, name: &str) -> &mut Self {
        let pod = self.pods.remove(name).unwrap();
        let fact = self.fact(0, &pod);
        self.queue.apply(Event::Deleted { kind: 0, fact }, self.now);
        self
    }

    fn namespace(&mut self, name: &str, labels: Value) -> &mut Self {
        self.put(2, &json!({"metadata": {"name": name, "labels": labels}}));
        self
    }

    fn budget(&mut self, app: &str, allowed: i64) -> &mut Self {
        self.put(
            3,
            &json!({
                "metadata": {"name": app, "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": app}}},
                "status": {"disruptionsAllowed": allowed},
            }),
        );
        self
    }

    fn advance(&mut self, seconds: u64) -> &mut Self {
        self.now = self.now + Duration::from_secs(seconds);
        self
    }

    /// Makes every call that is due, in order; the watches show each at once.
    fn expect_calls(&mut self, expected: &Expect) -> &mut Self {
        let mut lines = Vec::new();
        for _ in 0..1000 {
            let step = self.queue.reconcile_due(self.now);
            self.record_events(step.events);
            if step.calls.is_empty() && step.wake_at.is_none_or(|at| self.now < at) {
                break;
            }
            for call in step.calls {
                lines.push(call.to_string());
                self.make(&call);
            }
        }
        expected.assert_eq(&lines.join("\n"));
        self
    }

    fn make(&mut self, call: &SchedulerCall) {
        let name = match call {
            SchedulerCall::Bind { pod, .. }
            | SchedulerCall::WriteUnschedulable { pod, .. }
            | SchedulerCall::ClearNomination { pod } => &pod.key.name,
            SchedulerCall::MarkVictim { victim, .. } | SchedulerCall::DeleteVictim { victim, .. } => {
                &victim.key.name
            }
        };
        let outcome = match (call, &self.refusal) {
            (SchedulerCall::Bind { .. }, Some(refusal)) => Outcome::Refused(refusal.clone()),
            _ => Outcome::Done(Vec::new()),
        };
        if outcome == Outcome::Done(Vec::new()) {
            let change = match call {
                SchedulerCall::Bind { node, .. } => json!({"spec": {"nodeName": node}}),
                SchedulerCall::DeleteVictim { .. } => {
                    json!({"metadata": {"deletionTimestamp": self.now.to_rfc3339()}})
                }
                _ => {
                    let body = Scheduler::request(call).body.unwrap();
                    json!({"status": body["status"]})
                }
            };
            self.patch_pod(name, change);
        }
        self.queue.apply_outcome(call, outcome, self.now);
    }

    fn record_events(&mut self, events: Vec<EventRecord>) {
        let line = |it: EventRecord| {
            let kind = if it.event.warning { "Warning" } else { "Normal" };
            format!("{kind} {} {}: {}", it.event.reason, it.about.key.name, it.event.message)
        };
        self.events.extend(events.into_iter().map(line));
    }

    fn expect_events(&mut self, expected: &Expect) -> &mut Self {
        expected.assert_eq(&self.events.join("\n"));
        self
    }
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

fn cpu(amount: &str) -> Value {
    json!({"spec": {"containers": [{"resources": {"requests": {"cpu": amount}}}]}})
}

fn port(number: i64, ip: &str) -> Value {
    json!({"spec": {"containers": [{"ports": [{"hostPort": number, "hostIP": ip}]}]}})
}

fn pinned(node: &str) -> Value {
    json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}],
    }}}}})
}

/// `kind` is podAffinity or podAntiAffinity.
fn required_affinity(kind: &str, app: &str) -> Value {
    json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname",
    }]}}}})
}

fn with(mut a: Value, b: Value) -> Value {
    merge(&mut a, b);
    a
}

fn with_priority(priority: i32, more: Value) -> Value {
    with(more, json!({"spec": {"priority": priority}}))
}

fn on(node: &str, more: Value) -> Value {
    with(more, json!({"spec": {"nodeName": node}}))
}

fn tainted(effect: &str) -> Value {
    json!({"spec": {"taints": [{"key": "k", "effect": effect}]}})
}
