use alloc::string::ToString;
use alloc::vec;
use core::time::Duration;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::controller::WorkQueue;

/// A scheduler, an API server that does as it is told, and the clock they go by.
struct World {
    queue: WorkQueue<Scheduler>,
    watches: Vec<Watch>,
    shared: Interner,
    pods: BTreeMap<String, Value>,
    now: Time,
    version: u64,
    /// What every binding is answered with.
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

    /// A node with two cores and room for ten pods, and what `more` says of it.
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

    /// A pod, which is on the node that `more` may name.
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

    /// Every call that is due, in its order. The server does each, and shows it.
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
            Call::Bind { pod, .. } | Call::Explain { pod, .. } | Call::Unnominate { pod } => &pod.key.name,
            Call::Warn { victim, .. } | Call::Evict { victim, .. } => &victim.key.name,
        };
        let outcome = match (call, &self.refusal) {
            (Call::Bind { .. }, Some(refusal)) => Outcome::Refused(refusal.clone()),
            _ => Outcome::Done(Vec::new()),
        };
        if outcome == Outcome::Done(Vec::new()) {
            let change = match call {
                Call::Bind { node, .. } => json!({"spec": {"nodeName": node}}),
                Call::Evict { .. } => json!({"metadata": {"deletionTimestamp": self.now.to_rfc3339()}}),
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
fn each_reason_is_counted_over_the_nodes() {
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
        .calls(&expect!["explain to default/x: 0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient example.com/gpu, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."])
        .events(&expect!["Warning FailedScheduling x: 0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient example.com/gpu, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."]);
}

#[test]
fn there_are_no_nodes() {
    World::new()
        .pod("x", json!({}))
        .calls(&expect!["explain to default/x: no nodes available to schedule pods"]);
}

#[test]
fn only_what_is_ours_is_bound() {
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
fn what_goes_over_the_wire() {
    let mut world = World::new();
    world.pod("x", json!({"metadata": {"generation": 3}}));
    let pod = match world.fact(0, &world.pods["x"].clone()) {
        Fact::Pod(pod) => pod,
        other => panic!("{other:?}"),
    };
    let at = world.now;
    let calls = [
        Call::Bind { pod: pod.clone(), node: "a".into() },
        Call::Explain { pod: pod.clone(), message: "why".into(), nominee: Some("a".into()), at },
        Call::Unnominate { pod: pod.clone() },
        Call::Warn { victim: pod.clone(), node: "a".into(), by: pod.clone(), at },
        Call::Evict { victim: pod.clone(), node: "a".into(), by: pod },
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
fn a_daemon_pod_goes_to_its_node_and_to_no_other() {
    World::new()
        .node("a", json!({}))
        .node("b", tainted("NoSchedule"))
        .pod("x-a", pinned("a"))
        .pod("x-b", pinned("b"))
        .pod("x-c", pinned("c"))
        .calls(&expect![[r#"
            bind default/x-a to a
            explain to default/x-b: 0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
            explain to default/x-c: 0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."#]])
        // The node it waits for comes, and another loses its taint.
        .node("c", json!({}))
        .node("b", json!({"spec": {"taints": []}}))
        .calls(&expect![[r#"
            bind default/x-b to b
            bind default/x-c to c"#]]);
}

#[test]
fn a_port_is_taken_once_on_a_node() {
    World::new()
        .node("a", json!({}))
        .pod("x-1", port(80, ""))
        .pod("x-2", port(80, "127.0.0.1"))
        .pod("x-3", port(81, "127.0.0.1"))
        .pod("x-4", port(81, "127.0.0.2"))
        .calls(&expect![[r#"
            bind default/x-1 to a
            explain to default/x-2: 0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
            bind default/x-3 to a
            bind default/x-4 to a"#]])
        .gone("x-1")
        .calls(&expect!["bind default/x-2 to a"]);
}

#[test]
fn amounts_are_those_of_the_containers_or_of_the_largest_init_container() {
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
        .calls(&expect!["explain to default/x-2: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."])
        .pod("x-3", cpu("400m"))
        .calls(&expect!["bind default/x-3 to a"]);
}

#[test]
fn a_node_takes_so_many_pods_and_no_more() {
    World::new()
        .node("a", json!({"status": {"allocatable": {"pods": "1"}}}))
        .pod("x-1", json!({}))
        .pod("x-2", cpu("3"))
        .calls(&expect![[r#"
            bind default/x-1 to a
            explain to default/x-2: 0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."#]]);
}

#[test]
fn the_more_important_are_first_and_of_equals_the_older() {
    World::new()
        .pod("young", cpu("1"))
        .pod("old", with(cpu("1"), json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}})))
        .pod("important", important(5, cpu("1")))
        .node("a", json!({}))
        .calls(&expect![[r#"
            bind default/important to a
            bind default/old to a
            explain to default/young: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."#]]);
}

#[test]
fn the_most_important_of_those_that_wait_gets_the_room() {
    let patient =
        |priority| important(priority, with(cpu("2"), json!({"spec": {"preemptionPolicy": "Never"}})));
    let mut world = World::new();
    world.node("a", json!({})).pod("x", on("a", cpu("2"))).pod("low", patient(1));
    world.calls(&expect!["explain to default/low: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."]);
    world.pod("high", patient(5));
    world.calls(&expect!["explain to default/high: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."]);
    world.gone("x").calls(&expect!["bind default/high to a"]);
}

#[test]
fn of_many_that_hope_for_one_room_one_is_tried_in_vain_and_the_others_wait() {
    let mut world = World::new();
    world.node("a", json!({})).pod("x", on("a", cpu("2")));
    for number in 1..=4 {
        world.pod(&format!("wait-{number}"), cpu("2"));
    }
    world.calls(&expect![[r#"
        explain to default/wait-1: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
        explain to default/wait-2: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
        explain to default/wait-3: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
        explain to default/wait-4: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."#]]);
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
fn pods_keep_company_and_distance() {
    World::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .node("c", json!({"metadata": {"labels": {"kubernetes.io/hostname": null}}}))
        .pod("web-1", on("a", json!({})))
        .pod("cache-1", about("podAffinity", "web"))
        .pod("cache-2", with(about("podAffinity", "web"), about("podAntiAffinity", "cache")))
        .calls(&expect![[r#"
            bind default/cache-1 to a
            explain to default/cache-2: 0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 2 node(s) didn't match pod affinity rules. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."#]])
        .pod("lone-1", with(about("podAntiAffinity", "lone"), pinned("a")))
        .pod("lone-2", with(json!({}), pinned("a")))
        .pod("first-1", about("podAffinity", "first"))
        .pod("none-1", about("podAffinity", "nobody"))
        .calls(&expect![[r#"
            bind default/first-1 to b
            bind default/lone-1 to a
            explain to default/lone-2: 0/3 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.
            explain to default/none-1: 0/3 nodes are available: 3 node(s) didn't match pod affinity rules. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."#]])
        // Company comes, and distance.
        .pod("nobody-1", on("b", json!({})))
        .gone("lone-1")
        .calls(&expect![[r#"
            bind default/lone-2 to a
            bind default/none-1 to b"#]]);
}

#[test]
fn company_may_be_in_other_namespaces() {
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
            explain to default/x-1: 0/2 nodes are available: 2 node(s) didn't match pod affinity rules. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
            bind default/x-2 to a
            bind default/x-3 to a
            explain to default/x-4: 0/2 nodes are available: 2 node(s) didn't match pod affinity rules. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
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
fn pods_are_spread_evenly_over_places() {
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
            explain to default/web-4: 0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."#]])
        // One that leaves does not count any more.
        .change("web-1", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        .calls(&expect!["bind default/web-4 to a"]);
}

#[test]
fn places_that_are_too_few_or_not_to_be_had() {
    World::new()
        .node("a", zone("one"))
        .node("b", with(zone("two"), tainted("NoSchedule")))
        // There are two places, and three are asked for: nobody stands in the third.
        .pod("web-1", on("a", json!({})))
        .pod("web-2", even(json!({"minDomains": 3})))
        .calls(&expect!["explain to default/web-2: 0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."])
        // The tainted place counts, unless it is said not to.
        .pod("web-3", even(json!({})))
        .pod("web-4", even(json!({"nodeTaintsPolicy": "Honor"})))
        .calls(&expect![[r#"
            explain to default/web-3: 0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.
            bind default/web-4 to a"#]]);
}

#[test]
fn spread_that_is_a_wish_decides_between_nodes_that_fit() {
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
fn whoever_is_more_important_gets_room_and_keeps_it() {
    World::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .pod("low-1", important(1, on("a", cpu("2"))))
        .pod("mid-1", important(2, on("b", cpu("1"))))
        .pod("low-2", important(1, on("b", cpu("1"))))
        .pod("high", important(9, cpu("1")))
        .calls(&expect![[r#"
            warn default/low-1 that it goes for default/high
            explain to default/high (a is kept free for it): 0/2 nodes are available: 2 Insufficient cpu.
            evict default/low-1 for default/high"#]])
        // While they leave, nobody of its own rank or below takes the room.
        .pod("small", important(3, cpu("1")))
        .calls(&expect![
            "explain to default/small (a is kept free for it): 0/2 nodes are available: 2 Insufficient cpu."
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
fn room_that_is_kept_free_is_free_again_when_its_pod_is_gone() {
    World::new()
        .node("a", json!({}))
        .pod("low", important(1, on("a", cpu("2"))))
        .pod("high", important(9, cpu("2")))
        .pod("next", important(5, cpu("2")))
        .calls(&expect![[r#"
            warn default/low that it goes for default/high
            explain to default/high (a is kept free for it): 0/1 nodes are available: 1 Insufficient cpu.
            explain to default/next: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Insufficient cpu.
            evict default/low for default/high"#]])
        .gone("low")
        .gone("high")
        .calls(&expect!["bind default/next to a"]);
}

#[test]
fn one_still_more_important_takes_the_node_that_was_kept_free() {
    World::new()
        .node("a", json!({}))
        .pod("low", important(1, on("a", cpu("2"))))
        .pod("high", important(9, cpu("2")))
        .calls(&expect![[r#"
            warn default/low that it goes for default/high
            explain to default/high (a is kept free for it): 0/1 nodes are available: 1 Insufficient cpu.
            evict default/low for default/high"#]])
        .pod("highest", important(10, cpu("2")))
        .calls(&expect![[r#"
            keep no node free for default/high
            explain to default/highest (a is kept free for it): 0/1 nodes are available: 1 Insufficient cpu.
            explain to default/high: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Insufficient cpu."#]])
        .gone("low")
        .calls(&expect!["bind default/highest to a"]);
}

#[test]
fn who_never_preempts_waits() {
    World::new()
        .node("a", json!({}))
        .pod("low", important(1, on("a", cpu("2"))))
        .pod("high", important(9, with(cpu("1"), json!({"spec": {"preemptionPolicy": "Never"}}))))
        .calls(&expect!["explain to default/high: 0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."])
        .gone("low")
        .calls(&expect!["bind default/high to a"]);
}

#[test]
fn preemption_that_does_not_help_says_why() {
    World::new()
        .node("a", json!({}))
        .node("b", tainted("NoSchedule"))
        .node("c", json!({}))
        .pod("low", important(1, on("a", cpu("1"))))
        .pod("high-1", important(20, on("a", cpu("1"))))
        .pod("high-2", important(20, on("c", cpu("1"))))
        .pod("x", important(9, cpu("1500m")))
        .calls(&expect!["explain to default/x: 0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. preemption: 0/3 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."]);
}

#[test]
fn a_budget_is_kept_where_that_is_possible() {
    World::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .budget("kept", 0)
        .pod("kept-1", on("a", cpu("2")))
        .pod("free-1", important(1, on("b", cpu("2"))))
        .pod("high", important(9, cpu("1")))
        .calls(&expect![[r#"
            warn default/free-1 that it goes for default/high
            explain to default/high (b is kept free for it): 0/2 nodes are available: 2 Insufficient cpu.
            evict default/free-1 for default/high"#]]);
}

#[test]
fn who_has_to_be_near_a_pod_does_not_send_it_off() {
    World::new()
        .node("a", json!({}))
        .pod("web-1", important(1, on("a", cpu("2"))))
        .pod("x", important(9, with(cpu("1"), about("podAffinity", "web"))))
        .calls(&expect!["explain to default/x: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 node(s) didn't match pod affinity rules."]);
}

#[test]
fn a_binding_that_was_refused_is_tried_again_after_a_wait() {
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
fn room_is_taken_before_the_server_shows_it() {
    let mut world = World::new();
    world.node("a", json!({})).pod("x", cpu("2")).pod("y", cpu("2"));
    let step = world.queue.next(world.now);
    let calls: Vec<String> = step.calls.iter().map(ToString::to_string).collect();
    expect![[r#"
        bind default/x to a
        explain to default/y: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."#]].assert_eq(&calls.join("\n"));
    // An event that is older than the binding says nothing against it.
    world.change("x", json!({"metadata": {"annotations": {"a": "b"}}}));
    assert_eq!(world.queue.next(world.now).calls, vec![]);
}

#[test]
fn one_whose_room_the_server_does_not_show_yet_may_have_to_leave_it() {
    let mut world = World::new();
    world.node("a", json!({})).pod("low", important(1, cpu("2")));
    assert_eq!(world.queue.next(world.now).calls.len(), 1, "the binding is under way");
    world
        .pod("high", important(9, cpu("2")))
        .calls(&expect![[r#"
        warn default/low that it goes for default/high
        explain to default/high (a is kept free for it): 0/1 nodes are available: 1 Insufficient cpu.
        evict default/low for default/high"#]])
        .events(&expect![[r#"
        Warning FailedScheduling high: 0/1 nodes are available: 1 Insufficient cpu.
        Normal Preempted low: Preempted by pod uid of high on node a"#]]);
}

#[test]
fn what_is_wished_for_decides_between_nodes_that_fit() {
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
fn wishes_about_pods_decide_between_nodes_that_fit() {
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
fn a_parked_pod_is_never_forgotten_and_not_asked_about_for_nothing() {
    World::new()
        .node("a", json!({}))
        .pod("x", cpu("3"))
        .calls(&expect!["explain to default/x: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."])
        // Nothing of this helps it.
        .pod("y", on("a", cpu("1")))
        .gone("y")
        .node("b", json!({}))
        .after(299)
        .calls(&expect![""])
        .after(1)
        .calls(&expect!["explain to default/x: 0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."])
        .node("b", json!({"status": {"allocatable": {"cpu": "4"}}}))
        .calls(&expect!["bind default/x to b"]);
}

#[test]
fn a_clock_that_is_set_back_keeps_no_pod_parked() {
    let mut world = World::new();
    world.after(10_000).node("a", json!({})).pod("x", cpu("3")).calls(&expect!["explain to default/x: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."]);
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
fn nobody_in_line_is_held_up_by_those_that_fit_nowhere() {
    let mut world = World::new();
    world.node("a", json!({})).pod("big", important(9, cpu("8")));
    world.calls(&expect!["explain to default/big: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."]);
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
fn a_list_says_what_is_gone() {
    let mut world = World::new();
    world.node("a", json!({})).pod("x-1", on("a", cpu("2"))).pod("x-2", cpu("2"));
    world.calls(&expect!["explain to default/x-2: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."]);
    let x_2 = world.pods["x-2"].clone();
    let facts = vec![world.fact(0, &x_2)];
    world.queue.apply(Event::Listed { kind: 0, facts }, world.now);
    world.pods.remove("x-1");
    world.calls(&expect!["bind default/x-2 to a"]);
}

#[test]
fn pods_of_a_node_that_is_not_there_count_when_it_comes() {
    World::new()
        .pod("x-1", on("a", cpu("2")))
        .pod("x-2", cpu("2"))
        .node("a", json!({}))
        .calls(&expect!["explain to default/x-2: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."])
        .no_node("a")
        .node("a", json!({}))
        .calls(&expect![""])
        .gone("x-1")
        .calls(&expect!["bind default/x-2 to a"]);
}

#[test]
fn one_of_the_same_name_is_another_pod() {
    World::new()
        .node("a", json!({}))
        .pod("x", cpu("2"))
        .calls(&expect!["bind default/x to a"])
        .change("x", json!({"metadata": {"uid": "another"}, "spec": {"nodeName": null}}))
        .calls(&expect!["bind default/x to a"]);
}

#[test]
fn an_event_is_no_longer_than_it_may_be() {
    let message = call::note(&"ü".repeat(2000));
    assert_eq!((message.len(), message.ends_with("ü ...")), (1024, true));
    assert_eq!(call::note("short"), "short");
}
