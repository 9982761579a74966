use alloc::string::ToString;
use alloc::vec;
use core::time::Duration;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::controller::WorkQueue;

/// A scheduler, a fake API server that executes every call, and a clock.
struct World {
    queue: WorkQueue<Scheduler>,
    watches: Vec<Watch>,
    shared: Interner,
    pods: BTreeMap<String, Value>,
    now: Time,
    version: u64,
    /// The error of every binding, if any.
    refusal: Option<Refusal>,
    events: Vec<String>,
}

impl World {
    fn new() -> Self {
        let scheduler = Scheduler::default();
        let watches = scheduler.watches();
        let mut queue = WorkQueue::new(scheduler, 1000);
        let now = Time::from_secs(1_000_000);
        (0..watches.len()).for_each(|kind| queue.apply(Event::Listed { kind, facts: Vec::new() }, now));
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

    fn fact(&mut self, kind: usize, object: &Value) -> Fact {
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

    fn no_node(&mut self, name: &str) -> &mut Self {
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
        self.change(name, more)
    }

    fn change(&mut self, name: &str, more: Value) -> &mut Self {
        self.version += 1;
        let version = self.version.to_string();
        let pod = self.pods.get_mut(name).unwrap();
        merge(pod, with(json!({"metadata": {"resourceVersion": version}}), more));
        let pod = pod.clone();
        self.put(0, &pod);
        self
    }

    fn gone(&mut self, name: &str) -> &mut Self {
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

    fn after(&mut self, seconds: u64) -> &mut Self {
        self.now = self.now + Duration::from_secs(seconds);
        self
    }

    /// Makes every call that is due, in order; the watches show each at once.
    fn calls(&mut self, golden: &Expect) -> &mut Self {
        let mut lines = Vec::new();
        for _ in 0..1000 {
            let step = self.queue.next(self.now);
            self.tell(step.events);
            if step.calls.is_empty() && step.wake_at.is_none_or(|at| self.now < at) {
                break;
            }
            for call in step.calls {
                lines.push(call.to_string());
                self.make(&call);
            }
        }
        golden.assert_eq(&lines.join("\n"));
        self
    }

    fn make(&mut self, call: &Call) {
        let name = match call {
            Call::Bind { pod, .. } | Call::WriteUnschedulable { pod, .. } | Call::ClearNomination { pod } => {
                &pod.key.name
            }
            Call::MarkVictim { victim, .. } | Call::DeleteVictim { victim, .. } => &victim.key.name,
        };
        let outcome = match (call, &self.refusal) {
            (Call::Bind { .. }, Some(refusal)) => Outcome::Refused(refusal.clone()),
            _ => Outcome::Done(Vec::new()),
        };
        if outcome == Outcome::Done(Vec::new()) {
            let change = match call {
                Call::Bind { node, .. } => json!({"spec": {"nodeName": node}}),
                Call::DeleteVictim { .. } => {
                    json!({"metadata": {"deletionTimestamp": self.now.to_rfc3339()}})
                }
                _ => {
                    let body = Scheduler::request(call).body.unwrap();
                    json!({"status": body["status"]})
                }
            };
            self.change(name, change);
        }
        self.queue.done(call, outcome, self.now);
    }

    fn tell(&mut self, events: Vec<EventRecord>) {
        let line = |it: EventRecord| {
            let kind = if it.event.warning { "Warning" } else { "Normal" };
            format!("{kind} {} {}: {}", it.event.reason, it.about.key.name, it.event.message)
        };
        self.events.extend(events.into_iter().map(line));
    }

    fn events(&mut self, golden: &Expect) -> &mut Self {
        golden.assert_eq(&self.events.join("\n"));
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
fn about(kind: &str, app: &str) -> Value {
    json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname",
    }]}}}})
}

fn with(mut a: Value, b: Value) -> Value {
    merge(&mut a, b);
    a
}

fn important(priority: i32, more: Value) -> Value {
    with(more, json!({"spec": {"priority": priority}}))
}

fn on(node: &str, more: Value) -> Value {
    with(more, json!({"spec": {"nodeName": node}}))
}

fn tainted(effect: &str) -> Value {
    json!({"spec": {"taints": [{"key": "k", "effect": effect}]}})
}

#[test]
fn nodes_are_counted_per_reason() {
    let label = json!({"metadata": {"labels": {"disk": "ssd"}}});
    let wants = json!({"spec": {
        "nodeSelector": {"disk": "ssd"},
        "containers": [{"resources": {"requests": {"cpu": "2", "memory": "1Gi", "example.com/gpu": "1"}}}],
    }});
    World::new()
        .node("a", with(tainted("NoSchedule"), label.clone()))
        .node("b", json!({"spec": {"unschedulable": true}}))
        .node("c", json!({}))
        .node("d", label)
        .pod("y", on("d", cpu("1")))
        .pod("x", wants)
        .calls(&expect!["report default/x as unschedulable: 0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient example.com/gpu, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."])
        .events(&expect!["Warning FailedScheduling x: 0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient example.com/gpu, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."]);
}

#[test]
fn there_are_no_nodes() {
    World::new()
        .pod("x", json!({}))
        .calls(&expect!["report default/x as unschedulable: no nodes available to schedule pods"]);
}

#[test]
fn only_pods_of_this_scheduler_are_bound() {
    World::new()
        .node("a", json!({}))
        .pod("other", json!({"spec": {"schedulerName": "other"}}))
        .pod("gated", json!({"spec": {"schedulingGates": [{"name": "wait"}]}}))
        .pod("leaving", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        .pod("done", json!({"status": {"phase": "Failed"}}))
        .pod("ours", json!({"spec": {"schedulerName": "default-scheduler"}}))
        .calls(&expect!["bind default/ours to a"])
        .change("gated", json!({"spec": {"schedulingGates": []}}))
        .calls(&expect!["bind default/gated to a"]);
}

#[test]
fn api_requests_of_calls() {
    let mut world = World::new();
    world.pod("x", json!({"metadata": {"generation": 3}}));
    let pod = match world.fact(0, &world.pods["x"].clone()) {
        Fact::Pod(pod) => pod,
        other => panic!("{other:?}"),
    };
    let at = world.now;
    let calls = [
        Call::Bind { pod: pod.clone(), node: "a".into() },
        Call::WriteUnschedulable {
            pod: pod.clone(),
            message: "why".into(),
            nominated_node: Some("a".into()),
            at,
        },
        Call::ClearNomination { pod: pod.clone() },
        Call::MarkVictim { victim: pod.clone(), node: "a".into(), by: pod.clone(), at },
        Call::DeleteVictim { victim: pod.clone(), node: "a".into(), by: pod },
    ];
    let lines: Vec<String> = calls
        .iter()
        .map(Scheduler::request)
        .map(|it| format!("{:?} {}\n  {}", it.verb, it.path, it.body.unwrap_or_default()))
        .collect();
    expect![[r#"
        Create /api/v1/namespaces/default/pods/x/binding
          {"apiVersion":"v1","kind":"Binding","metadata":{"name":"x","namespace":"default","uid":"uid of x"},"target":{"apiVersion":"v1","kind":"Node","name":"a"}}
        Patch(Strategic) /api/v1/namespaces/default/pods/x/status
          {"metadata":{"uid":"uid of x"},"status":{"conditions":[{"lastTransitionTime":"1970-01-12T13:46:40Z","message":"why","observedGeneration":3,"reason":"Unschedulable","status":"False","type":"PodScheduled"}],"nominatedNodeName":"a"}}
        Patch(Strategic) /api/v1/namespaces/default/pods/x/status
          {"metadata":{"uid":"uid of x"},"status":{"nominatedNodeName":null}}
        Patch(Strategic) /api/v1/namespaces/default/pods/x/status
          {"metadata":{"uid":"uid of x"},"status":{"conditions":[{"lastTransitionTime":"1970-01-12T13:46:40Z","message":"default-scheduler: preempting to accommodate a higher priority pod","observedGeneration":3,"reason":"PreemptionByScheduler","status":"True","type":"DisruptionTarget"}]}}
        Delete /api/v1/namespaces/default/pods/x
          {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"uid of x"}}"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn a_daemon_pod_is_bound_to_its_node_only() {
    World::new()
        .node("a", json!({}))
        .node("b", tainted("NoSchedule"))
        .pod("x-a", pinned("a"))
        .pod("x-b", pinned("b"))
        .pod("x-c", pinned("c"))
        .calls(&expect![[r#"
            bind default/x-a to a
            report default/x-b as unschedulable: 0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
            report default/x-c as unschedulable: 0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."#]])
        // The node it waits for comes, and another loses its taint.
        .node("c", json!({}))
        .node("b", json!({"spec": {"taints": []}}))
        .calls(&expect![[r#"
            bind default/x-b to b
            bind default/x-c to c"#]]);
}

#[test]
fn a_host_port_is_used_once_per_node() {
    World::new()
        .node("a", json!({}))
        .pod("x-1", port(80, ""))
        .pod("x-2", port(80, "127.0.0.1"))
        .pod("x-3", port(81, "127.0.0.1"))
        .pod("x-4", port(81, "127.0.0.2"))
        .calls(&expect![[r#"
            bind default/x-1 to a
            report default/x-2 as unschedulable: 0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
            bind default/x-3 to a
            bind default/x-4 to a"#]])
        .gone("x-1")
        .calls(&expect!["bind default/x-2 to a"]);
}

#[test]
fn requests_are_those_of_the_containers_or_of_the_largest_init_container() {
    let init = json!({"spec": {
        "containers": [{"resources": {"requests": {"cpu": "500m"}}}],
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}}},
            {"resources": {"requests": {"cpu": "1250m"}}},
        ],
        "overhead": {"cpu": "100m"},
    }});
    World::new()
        .node("a", json!({}))
        .pod("x-1", init)
        .calls(&expect!["bind default/x-1 to a"])
        .pod("x-2", cpu("401m"))
        .calls(&expect!["report default/x-2 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."])
        .pod("x-3", cpu("400m"))
        .calls(&expect!["bind default/x-3 to a"]);
}

#[test]
fn a_node_has_at_most_its_allocatable_number_of_pods() {
    World::new()
        .node("a", json!({"status": {"allocatable": {"pods": "1"}}}))
        .pod("x-1", json!({}))
        .pod("x-2", cpu("3"))
        .calls(&expect![[r#"
            bind default/x-1 to a
            report default/x-2 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."#]]);
}

#[test]
fn pods_are_scheduled_by_priority_then_by_age() {
    World::new()
        .pod("young", cpu("1"))
        .pod("old", with(cpu("1"), json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}})))
        .pod("important", important(5, cpu("1")))
        .node("a", json!({}))
        .calls(&expect![[r#"
            bind default/important to a
            bind default/old to a
            report default/young as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."#]]);
}

#[test]
fn the_parked_pod_of_highest_priority_gets_freed_resources() {
    let patient =
        |priority| important(priority, with(cpu("2"), json!({"spec": {"preemptionPolicy": "Never"}})));
    let mut world = World::new();
    world.node("a", json!({})).pod("x", on("a", cpu("2"))).pod("low", patient(1));
    world.calls(&expect!["report default/low as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."]);
    world.pod("high", patient(5));
    world.calls(&expect!["report default/high as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."]);
    world.gone("x").calls(&expect!["bind default/high to a"]);
}

#[test]
fn of_many_activated_pods_one_is_tried_and_the_others_wait_for_their_backoff() {
    let mut world = World::new();
    world.node("a", json!({})).pod("x", on("a", cpu("2")));
    for number in 1..=4 {
        world.pod(&format!("wait-{number}"), cpu("2"));
    }
    world.calls(&expect![[r#"
        report default/wait-1 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
        report default/wait-2 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
        report default/wait-3 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
        report default/wait-4 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."#]]);
    let tried = world.events.len();
    world.gone("x").calls(&expect!["bind default/wait-1 to a"]);
    // One of them is told so anew, the others when their wait is over.
    let told =
        |world: &World| world.events[tried..].iter().filter(|it| it.contains("FailedScheduling")).count();
    assert_eq!(told(&world), 1);
    world.after(1).calls(&expect![""]);
    assert_eq!(told(&world), 3);
}

#[test]
fn pod_affinity_and_anti_affinity_are_respected() {
    World::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .node("c", json!({"metadata": {"labels": {"kubernetes.io/hostname": null}}}))
        .pod("web-1", on("a", json!({})))
        .pod("cache-1", about("podAffinity", "web"))
        .pod("cache-2", with(about("podAffinity", "web"), about("podAntiAffinity", "cache")))
        .calls(&expect![[r#"
            bind default/cache-1 to a
            report default/cache-2 as unschedulable: 0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 2 node(s) didn't match pod affinity rules. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."#]])
        .pod("lone-1", with(about("podAntiAffinity", "lone"), pinned("a")))
        .pod("lone-2", with(json!({}), pinned("a")))
        .pod("first-1", about("podAffinity", "first"))
        .pod("none-1", about("podAffinity", "nobody"))
        .calls(&expect![[r#"
            bind default/first-1 to b
            bind default/lone-1 to a
            report default/lone-2 as unschedulable: 0/3 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.
            report default/none-1 as unschedulable: 0/3 nodes are available: 3 node(s) didn't match pod affinity rules. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."#]])
        // Company comes, and distance.
        .pod("nobody-1", on("b", json!({})))
        .gone("lone-1")
        .calls(&expect![[r#"
            bind default/lone-2 to a
            bind default/none-1 to b"#]]);
}

#[test]
fn pod_affinity_may_select_other_namespaces() {
    let near = |more: Value| {
        let term = with(
            json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}),
            more,
        );
        json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}})
    };
    World::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .namespace("far", json!({"team": "x"}))
        .pod("web-1", on("a", json!({"metadata": {"namespace": "far"}})))
        .pod("x-1", near(json!({})))
        .pod("x-2", near(json!({"namespaces": ["far"]})))
        .pod("x-3", near(json!({"namespaceSelector": {"matchLabels": {"team": "x"}}})))
        .pod("x-4", near(json!({"namespaceSelector": {"matchLabels": {"team": "y"}}})))
        .pod("x-5", near(json!({"namespaceSelector": {}})))
        .calls(&expect![[r#"
            report default/x-1 as unschedulable: 0/2 nodes are available: 2 node(s) didn't match pod affinity rules. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
            bind default/x-2 to a
            bind default/x-3 to a
            report default/x-4 as unschedulable: 0/2 nodes are available: 2 node(s) didn't match pod affinity rules. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
            bind default/x-5 to a"#]])
        .namespace("far", json!({"team": "y"}))
        .calls(&expect!["bind default/x-4 to a"]);
}

/// At most one more in a zone than in another.
fn even(more: Value) -> Value {
    let constraint = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    json!({"spec": {"topologySpreadConstraints": [with(constraint, more)]}})
}

fn zone(name: &str) -> Value {
    json!({"metadata": {"labels": {"zone": name}}})
}

#[test]
fn pods_are_spread_over_topology_domains() {
    World::new()
        .node("a", zone("one"))
        .node("b", zone("two"))
        .node("c", json!({}))
        .pod("web-1", on("a", json!({})))
        .pod("web-2", even(json!({})))
        .pod("web-3", with(even(json!({"nodeAffinityPolicy": "Ignore"})), pinned("a")))
        .pod("web-4", with(even(json!({"nodeAffinityPolicy": "Ignore"})), pinned("a")))
        .calls(&expect![[r#"
            bind default/web-2 to b
            bind default/web-3 to a
            report default/web-4 as unschedulable: 0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."#]])
        // One that leaves does not count any more.
        .change("web-1", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        .calls(&expect!["bind default/web-4 to a"]);
}

#[test]
fn min_domains_and_node_inclusion_policies_of_spread() {
    World::new()
        .node("a", zone("one"))
        .node("b", with(zone("two"), tainted("NoSchedule")))
        // There are two places, and three are asked for: nobody stands in the third.
        .pod("web-1", on("a", json!({})))
        .pod("web-2", even(json!({"minDomains": 3})))
        .calls(&expect!["report default/web-2 as unschedulable: 0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."])
        // The tainted place counts, unless it is said not to.
        .pod("web-3", even(json!({})))
        .pod("web-4", even(json!({"nodeTaintsPolicy": "Honor"})))
        .calls(&expect![[r#"
            report default/web-3 as unschedulable: 0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.
            bind default/web-4 to a"#]]);
}

#[test]
fn schedule_anyway_spread_scores_feasible_nodes() {
    let wish = || even(json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    World::new()
        .node("a", zone("one"))
        .node("b", zone("one"))
        .node("c", zone("two"))
        .pod("web-1", on("a", json!({})))
        .pod("web-2", on("b", json!({})))
        .pod("web-3", with(cpu("1500m"), wish()))
        .calls(&expect!["bind default/web-3 to c"]);
}

#[test]
fn a_pod_of_higher_priority_preempts_and_keeps_its_nominated_node() {
    World::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .pod("low-1", important(1, on("a", cpu("2"))))
        .pod("mid-1", important(2, on("b", cpu("1"))))
        .pod("low-2", important(1, on("b", cpu("1"))))
        .pod("high", important(9, cpu("1")))
        .calls(&expect![[r#"
            mark default/low-1 as preempted by default/high
            report default/high as unschedulable (nominated node a): 0/2 nodes are available: 2 Insufficient cpu.
            delete default/low-1 for default/high"#]])
        // While they leave, nobody of its own rank or below takes the room.
        .pod("small", important(3, cpu("1")))
        .calls(&expect![
            "report default/small as unschedulable (nominated node a): 0/2 nodes are available: 2 Insufficient cpu."
        ])
        .gone("low-1")
        .calls(&expect![[r#"
            bind default/high to a
            bind default/small to a"#]])
        .events(&expect![[r#"
            Warning FailedScheduling high: 0/2 nodes are available: 2 Insufficient cpu.
            Normal Preempted low-1: Preempted by pod uid of high on node a
            Warning FailedScheduling small: 0/2 nodes are available: 2 Insufficient cpu.
            Normal Scheduled high: Successfully assigned default/high to a
            Normal Scheduled small: Successfully assigned default/small to a"#]]);
}

#[test]
fn a_nomination_ends_when_its_pod_is_deleted() {
    World::new()
        .node("a", json!({}))
        .pod("low", important(1, on("a", cpu("2"))))
        .pod("high", important(9, cpu("2")))
        .pod("next", important(5, cpu("2")))
        .calls(&expect![[r#"
            mark default/low as preempted by default/high
            report default/high as unschedulable (nominated node a): 0/1 nodes are available: 1 Insufficient cpu.
            report default/next as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Insufficient cpu.
            delete default/low for default/high"#]])
        .gone("low")
        .gone("high")
        .calls(&expect!["bind default/next to a"]);
}

#[test]
fn a_pod_of_still_higher_priority_takes_a_nominated_node() {
    World::new()
        .node("a", json!({}))
        .pod("low", important(1, on("a", cpu("2"))))
        .pod("high", important(9, cpu("2")))
        .calls(&expect![[r#"
            mark default/low as preempted by default/high
            report default/high as unschedulable (nominated node a): 0/1 nodes are available: 1 Insufficient cpu.
            delete default/low for default/high"#]])
        .pod("highest", important(10, cpu("2")))
        .calls(&expect![[r#"
            clear the nomination of default/high
            report default/highest as unschedulable (nominated node a): 0/1 nodes are available: 1 Insufficient cpu.
            report default/high as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Insufficient cpu."#]])
        .gone("low")
        .calls(&expect!["bind default/highest to a"]);
}

#[test]
fn a_pod_with_preemption_policy_never_waits() {
    World::new()
        .node("a", json!({}))
        .pod("low", important(1, on("a", cpu("2"))))
        .pod("high", important(9, with(cpu("1"), json!({"spec": {"preemptionPolicy": "Never"}}))))
        .calls(&expect!["report default/high as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."])
        .gone("low")
        .calls(&expect!["bind default/high to a"]);
}

#[test]
fn preemption_that_does_not_help_reports_why() {
    World::new()
        .node("a", json!({}))
        .node("b", tainted("NoSchedule"))
        .node("c", json!({}))
        .pod("low", important(1, on("a", cpu("1"))))
        .pod("high-1", important(20, on("a", cpu("1"))))
        .pod("high-2", important(20, on("c", cpu("1"))))
        .pod("x", important(9, cpu("1500m")))
        .calls(&expect!["report default/x as unschedulable: 0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. preemption: 0/3 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."]);
}

#[test]
fn preemption_respects_budgets_if_possible() {
    World::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .budget("kept", 0)
        .pod("kept-1", on("a", cpu("2")))
        .pod("free-1", important(1, on("b", cpu("2"))))
        .pod("high", important(9, cpu("1")))
        .calls(&expect![[r#"
            mark default/free-1 as preempted by default/high
            report default/high as unschedulable (nominated node b): 0/2 nodes are available: 2 Insufficient cpu.
            delete default/free-1 for default/high"#]]);
}

#[test]
fn a_pod_does_not_preempt_a_pod_it_has_affinity_to() {
    World::new()
        .node("a", json!({}))
        .pod("web-1", important(1, on("a", cpu("2"))))
        .pod("x", important(9, with(cpu("1"), about("podAffinity", "web"))))
        .calls(&expect!["report default/x as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 node(s) didn't match pod affinity rules."]);
}

#[test]
fn a_failed_binding_is_retried_after_a_backoff() {
    let mut world = World::new();
    world.refusal = Some(Refusal::Server("the server is not well".into()));
    world
        .node("a", json!({}))
        .pod("x", cpu("2"))
        .calls(&expect!["bind default/x to a"])
        .events(&expect!["Warning FailedScheduling x: binding rejected: the server is not well"]);
    world.after(1).calls(&expect!["bind default/x to a"]);
    world.after(1).calls(&expect![""]);
    world.refusal = None;
    world.after(1).calls(&expect!["bind default/x to a"]);
}

#[test]
fn an_assumed_pod_counts_before_the_watch_shows_its_binding() {
    let mut world = World::new();
    world.node("a", json!({})).pod("x", cpu("2")).pod("y", cpu("2"));
    let step = world.queue.next(world.now);
    let calls: Vec<String> = step.calls.iter().map(ToString::to_string).collect();
    expect![[r#"
        bind default/x to a
        report default/y as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."#]].assert_eq(&calls.join("\n"));
    // An event that is older than the binding says nothing against it.
    world.change("x", json!({"metadata": {"annotations": {"a": "b"}}}));
    assert_eq!(world.queue.next(world.now).calls, vec![]);
}

#[test]
fn an_assumed_pod_may_be_preempted() {
    let mut world = World::new();
    world.node("a", json!({})).pod("low", important(1, cpu("2")));
    assert_eq!(world.queue.next(world.now).calls.len(), 1, "the binding is under way");
    world
        .pod("high", important(9, cpu("2")))
        .calls(&expect![[r#"
        mark default/low as preempted by default/high
        report default/high as unschedulable (nominated node a): 0/1 nodes are available: 1 Insufficient cpu.
        delete default/low for default/high"#]])
        .events(&expect![[r#"
        Warning FailedScheduling high: 0/1 nodes are available: 1 Insufficient cpu.
        Normal Preempted low: Preempted by pod uid of high on node a"#]]);
}

#[test]
fn preferred_node_affinity_and_taints_score_feasible_nodes() {
    let wish = json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}},
    ]}}}});
    World::new()
        .node("a", tainted("PreferNoSchedule"))
        .node("b", json!({}))
        .node("c", json!({"metadata": {"labels": {"disk": "ssd"}}}))
        .pod("x-1", wish)
        .pod("x-2", on("c", cpu("1500m")))
        .calls(&expect!["bind default/x-1 to c"])
        .pod("x-3", json!({}))
        .calls(&expect!["bind default/x-3 to b"]);
}

#[test]
fn preferred_pod_affinity_scores_feasible_nodes() {
    let rather = |kind: &str| {
        json!({"spec": {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 10,
            "podAffinityTerm": {
                "labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname",
            },
        }]}}}})
    };
    World::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .pod("web-1", on("a", json!({})))
        .pod("x-1", with(cpu("1"), rather("podAffinity")))
        .pod("x-2", with(cpu("1"), rather("podAntiAffinity")))
        .calls(&expect![[r#"
            bind default/x-1 to a
            bind default/x-2 to b"#]])
        // The one that would rather be alone is left alone.
        .pod("web-2", cpu("100m"))
        .calls(&expect!["bind default/web-2 to a"]);
}

#[test]
fn a_parked_pod_is_tried_again_only_after_a_helpful_change_or_five_minutes() {
    World::new()
        .node("a", json!({}))
        .pod("x", cpu("3"))
        .calls(&expect!["report default/x as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."])
        // Nothing of this helps it.
        .pod("y", on("a", cpu("1")))
        .gone("y")
        .node("b", json!({}))
        .after(299)
        .calls(&expect![""])
        .after(1)
        .calls(&expect!["report default/x as unschedulable: 0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."])
        .node("b", json!({"status": {"allocatable": {"cpu": "4"}}}))
        .calls(&expect!["bind default/x to b"]);
}

#[test]
fn a_clock_set_back_keeps_no_pod_parked() {
    let mut world = World::new();
    world.after(10_000).node("a", json!({})).pod("x", cpu("3")).calls(&expect!["report default/x as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."]);
    world.now = world.now - Duration::from_secs(3600);
    world.node("a", json!({"status": {"allocatable": {"cpu": "4"}}})).calls(&expect!["bind default/x to a"]);
    // Neither one whose binding was refused.
    world.refusal = Some(Refusal::Server("the server is not well".into()));
    world.pod("y", cpu("1")).calls(&expect!["bind default/y to a"]);
    world.refusal = None;
    world.now = world.now - Duration::from_secs(3600);
    world.calls(&expect!["bind default/y to a"]);
}

#[test]
fn unschedulable_pods_do_not_block_the_queue() {
    let mut world = World::new();
    world.node("a", json!({})).pod("big", important(9, cpu("8")));
    world.calls(&expect!["report default/big as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."]);
    for round in 0..3 {
        let name = format!("small-{round}");
        world.pod(&name, cpu("100m"));
    }
    world.calls(&expect![[r#"
        bind default/small-0 to a
        bind default/small-1 to a
        bind default/small-2 to a"#]]);
}

#[test]
fn objects_missing_from_a_list_are_removed() {
    let mut world = World::new();
    world.node("a", json!({})).pod("x-1", on("a", cpu("2"))).pod("x-2", cpu("2"));
    world.calls(&expect!["report default/x-2 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."]);
    let x_2 = world.pods["x-2"].clone();
    let facts = vec![world.fact(0, &x_2)];
    world.queue.apply(Event::Listed { kind: 0, facts }, world.now);
    world.pods.remove("x-1");
    world.calls(&expect!["bind default/x-2 to a"]);
}

#[test]
fn pods_of_an_unknown_node_count_when_it_appears() {
    World::new()
        .pod("x-1", on("a", cpu("2")))
        .pod("x-2", cpu("2"))
        .node("a", json!({}))
        .calls(&expect!["report default/x-2 as unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."])
        .no_node("a")
        .node("a", json!({}))
        .calls(&expect![""])
        .gone("x-1")
        .calls(&expect!["bind default/x-2 to a"]);
}

#[test]
fn a_pod_of_the_same_name_with_another_uid_is_another_pod() {
    World::new()
        .node("a", json!({}))
        .pod("x", cpu("2"))
        .calls(&expect!["bind default/x to a"])
        .change("x", json!({"metadata": {"uid": "another"}, "spec": {"nodeName": null}}))
        .calls(&expect!["bind default/x to a"]);
}

#[test]
fn event_messages_are_truncated() {
    let message = call::note(&"ü".repeat(2000));
    assert_eq!((message.len(), message.ends_with("ü ...")), (1024, true));
    assert_eq!(call::note("short"), "short");
}
