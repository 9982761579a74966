use alloc::string::ToString as _;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::facts::{Selector, Shared};

/// A scheduler, and the clock it is asked by.
struct World {
    scheduler: Scheduler,
    shared: Shared,
    now: Time,
    version: u64,
}

impl World {
    fn new() -> Self {
        Self {
            scheduler: Scheduler::default(),
            shared: Shared::default(),
            now: Time::from_micros(0),
            version: 0,
        }
    }

    /// A node with two cores and room for ten pods, and what `more` says of it.
    fn node(&mut self, name: &str, more: Value) -> &mut Self {
        let mut node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "spec": {},
            "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}},
        });
        merge(&mut node, more);
        let node = super::node(node.to_string().as_bytes(), &mut self.shared).unwrap();
        self.scheduler.apply(Event::Node(Arc::new(node)), self.now);
        self
    }

    /// A pod, which asks for the node that `more` may name.
    fn pod(&mut self, name: &str, more: Value) -> &mut Self {
        self.version += 1;
        let mut pod = json!({
            "metadata": {
                "name": name, "namespace": "default", "uid": name, "resourceVersion": self.version.to_string(),
                "labels": {"app": name.split('-').next()},
                "creationTimestamp": self.now.to_rfc3339(),
            },
            "spec": {"containers": [{"name": "c"}]},
            "status": {},
        });
        merge(&mut pod, more);
        let pod = super::pod(pod.to_string().as_bytes(), &mut self.shared).unwrap();
        self.scheduler.apply(Event::Pod(Arc::new(pod)), self.now);
        self
    }

    fn gone(&mut self, name: &str) -> &mut Self {
        self.scheduler.apply(Event::PodGone(Key::new("default", name)), self.now);
        self
    }

    fn after(&mut self, seconds: u64) -> &mut Self {
        self.now = self.now + Duration::from_secs(seconds);
        self
    }

    /// Every decision that is due.
    fn decide(&mut self, golden: &Expect) -> &mut Self {
        let mut lines = Vec::new();
        while let Some(decision) = self.scheduler.next(self.now) {
            lines.push(match decision {
                Decision::Bind { pod, node } => format!("{} -> {node}", pod.key.name),
                Decision::Tell { pod, message, nominate, remove } => {
                    let mut line = format!("{}: {message}", pod.key.name);
                    if let Some(node) = nominate {
                        let who: Vec<&str> = remove.iter().map(|it| it.key.name.as_ref()).collect();
                        line += &format!(" Makes room on {node}: {}", who.join(" "));
                    }
                    line
                }
            });
        }
        golden.assert_eq(&lines.join("\n"));
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

#[test]
fn each_reason_is_counted_over_the_nodes() {
    let taint = json!({"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}});
    let label = json!({"metadata": {"labels": {"disk": "ssd"}}});
    let wants_ssd = with(cpu("3"), json!({"spec": {"nodeSelector": {"disk": "ssd"}}}));
    World::new()
        .node("a", with(taint, label.clone()))
        .node("b", json!({"spec": {"unschedulable": true}}))
        .node("c", json!({}))
        .node("d", label)
        .pod("x", wants_ssd)
        .decide(&expect!["x: 0/4 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. preemption: 0/4 nodes are available: 1 No preemption victims found for incoming pod, 3 Preemption is not helpful for scheduling."]);
}

#[test]
fn there_are_no_nodes() {
    World::new().pod("x", json!({})).decide(&expect!["x: no nodes available to schedule pods"]);
}

#[test]
fn a_daemon_pod_goes_to_its_node_and_to_no_other() {
    World::new()
        .node("a", json!({}))
        .node("b", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}))
        .pod("x-a", pinned("a"))
        .pod("x-b", pinned("b"))
        .pod("x-c", pinned("c"))
        .decide(&expect![[r#"
            x-a -> a
            x-b: 0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
            x-c: 0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."#]])
        // The node it waits for comes, and another loses its taint: each pod follows once its wait is over.
        .node("c", json!({}))
        .node("b", json!({"spec": {"taints": []}}))
        .decide(&expect![""])
        .after(1)
        .decide(&expect![[r#"
            x-b -> b
            x-c -> c"#]]);
}

#[test]
fn a_port_is_taken_once_on_a_node() {
    World::new()
        .node("a", json!({}))
        .pod("x-1", port(80, ""))
        .pod("x-2", port(80, "127.0.0.1"))
        .pod("x-3", port(81, "127.0.0.1"))
        .pod("x-4", port(81, "127.0.0.2"))
        .decide(&expect![[r#"
            x-1 -> a
            x-2: 0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
            x-3 -> a
            x-4 -> a"#]])
        .gone("x-1")
        .after(1)
        .decide(&expect!["x-2 -> a"]);
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
        .decide(&expect!["x-1 -> a"])
        .pod("x-2", cpu("401m"))
        .decide(&expect!["x-2: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."])
        .pod("x-3", cpu("400m"))
        .decide(&expect!["x-3 -> a"]);
}

#[test]
fn the_more_important_are_first_and_of_equals_the_older() {
    World::new()
        .pod("young", cpu("1"))
        .after(1)
        .pod("old", with(cpu("1"), json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"}})))
        .pod("important", important(5, cpu("1")))
        .node("a", json!({}))
        .decide(&expect![[r#"
            important -> a
            old -> a
            young: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."#]]);
}

#[test]
fn pods_keep_company_and_distance() {
    World::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .pod("web-1", on("a", json!({})))
        .pod("cache-1", about("podAffinity", "web"))
        .pod("cache-2", with(about("podAffinity", "web"), about("podAntiAffinity", "cache")))
        .pod("lone-1", about("podAntiAffinity", "lone"))
        .pod("lone-2", about("podAntiAffinity", "lone"))
        .pod("lone-3", json!({}))
        .pod("first-1", about("podAffinity", "first"))
        .pod("none-1", about("podAffinity", "nobody"))
        .decide(&expect![[r#"
            cache-1 -> a
            cache-2: 0/2 nodes are available: 1 node(s) didn't match pod affinity rules, 1 node(s) didn't match pod anti-affinity rules. preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.
            first-1 -> b
            lone-1 -> b
            lone-2 -> a
            lone-3: 0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.
            none-1: 0/2 nodes are available: 2 node(s) didn't match pod affinity rules. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."#]]);
}

#[test]
fn whoever_is_more_important_gets_room_and_keeps_it() {
    let mut world = World::new();
    world
        .node("a", json!({}))
        .node("b", json!({}))
        .pod("low-1", important(1, on("a", cpu("2"))))
        .pod("mid-1", important(2, on("b", cpu("1"))))
        .pod("low-2", important(1, on("b", cpu("1"))))
        .pod("high", important(9, cpu("1")))
        .decide(&expect!["high: 0/2 nodes are available: 2 Insufficient cpu. Makes room on a: low-1"])
        // While they leave, nobody else is removed, and nobody of its own rank or below takes the room.
        .pod("low-2", important(1, on("b", with(cpu("1"), json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}})))))
        .pod("high", important(9, with(cpu("1"), json!({"status": {"nominatedNodeName": "b"}}))))
        .pod("small", important(3, cpu("1")))
        .after(2)
        .decide(&expect![[r#"
            high: 0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible due to a terminating pod on the nominated node.
            small: 0/2 nodes are available: 2 Insufficient cpu. Makes room on a: low-1"#]])
        .gone("low-2")
        .after(10)
        .decide(&expect![[r#"
            high -> b
            small: 0/2 nodes are available: 2 Insufficient cpu. Makes room on a: low-1"#]]);
}

#[test]
fn a_budget_is_kept_where_that_is_possible() {
    let mut world = World::new();
    world.node("a", json!({})).node("b", json!({}));
    let selector = Selector::AllOf(
        [crate::facts::Requirement {
            key: "app".into(),
            op: crate::facts::LabelOp::In(["kept".into()].into()),
        }]
        .into(),
    );
    world
        .scheduler
        .apply(Event::Budget(Key::new("default", "b"), Budget { selector, allowed: 0 }), world.now);
    world
        .pod("kept-1", on("a", cpu("2")))
        .pod("free-1", important(1, on("b", cpu("2"))))
        .pod("high", important(9, cpu("1")))
        .decide(&expect!["high: 0/2 nodes are available: 2 Insufficient cpu. Makes room on b: free-1"]);
}

#[test]
fn a_binding_that_failed_is_tried_again() {
    let mut world = World::new();
    world.node("a", json!({})).pod("x", cpu("2"));
    let Some(Decision::Bind { pod, .. }) = world.scheduler.next(world.now) else { panic!("it fits") };
    world.pod("y", cpu("2")).decide(&expect!["y: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."]);
    world.scheduler.failed(&pod, world.now);
    world.after(2).decide(&expect![[r#"
        x -> a
        y: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."#]]);
}

#[test]
fn what_is_wished_for_decides_between_nodes_that_fit() {
    let wish = json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}},
    ]}}}});
    World::new()
        .node("a", json!({"spec": {"taints": [{"key": "old", "effect": "PreferNoSchedule"}]}}))
        .node("b", json!({}))
        .node("c", json!({"metadata": {"labels": {"disk": "ssd"}}}))
        .pod("x-1", wish)
        .pod("x-2", on("c", cpu("1500m")))
        .pod("x-3", json!({}))
        .pod("x-4", json!({}))
        .decide(&expect![[r#"
            x-1 -> c
            x-3 -> b
            x-4 -> b"#]]);
}

#[test]
fn a_parked_pod_is_never_forgotten() {
    World::new()
        .node("a", json!({}))
        .pod("x", cpu("4"))
        .decide(&expect!["x: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."])
        .after(299)
        .decide(&expect![""])
        .after(1)
        .decide(&expect!["x: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."]);
}
