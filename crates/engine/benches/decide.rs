//! What one event costs, and what a decision from nothing costs, by the size of the fleet.
//!
//! `cargo bench -p muster-engine` prints a table. With `-- --check` it fails where a promise is broken; promises about
//! growth compare within the one run, so that a slow machine does not break them.

#![allow(clippy::print_stdout)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::time::Time;
use muster_engine::controller::Event;
use muster_engine::daemonset::facts::{self, Kind, WatchedObject};
use muster_engine::daemonset::manifest;
use muster_engine::daemonset::plan::{Plan, Settings};
use muster_engine::daemonset::planner::Planner;
use serde_json::{Value, json};

#[path = "../tests/world/fleet.rs"]
mod fleet;

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
const EVENTS: usize = 2_000;
/// Fleets with a progressive rollout.
const PROGRESSIVE_SIZES: [usize; 2] = [1_500, 15_000];

/// One event and the look after it, in a fleet of any size.
const EVENT_MAX: Duration = Duration::from_micros(20);
/// An event from the wire to the plan in the largest fleet, against the smallest. Of that, apply and look alone grow
/// somewhat more: what they touch of a small fleet is in the processor's cache, what they touch of a large one is not.
const GROWTH_MAX: f64 = 2.0;
/// Re-evaluation of all cells of 100,000 nodes, as after a change of the template.
const ALL_CELLS_MAX: Duration = Duration::from_millis(150);

fn main() -> ExitCode {
    let check = std::env::args().any(|it| it == "--check");
    let mut broken = Vec::new();
    let mut events = Vec::new();
    println!("{:<44} {:>9} {:>12} {:>12}", "", "nodes", "median", "99 of 100");
    for size in SIZES {
        let mut fleet = Fleet::new(size);
        assert!(fleet.reconcile().is_idle(), "the fleet is settled");
        let pod = fleet.events(Kind::Pods, |number, odd, version| fleet::pod(1, number, odd, version));
        row("a pod's status changes: apply, look", size, pod.1);
        row("  the same from the wire: decode as well", size, pod.0);
        let node = fleet.events(Kind::Nodes, |number, odd, version| {
            let mut node = fleet::node(number, version);
            if !odd {
                node["spec"]["taints"] = json!([{"key": "maintenance", "effect": "NoSchedule"}]);
            }
            node
        });
        row("a node's taint changes: apply, look", size, node.1);
        row("  the same from the wire: decode as well", size, node.0);
        events.push((size, [("pod", pod), ("node", node)]));
        if size == 100_000 {
            let all_cells = fleet.reevaluate_all_cells();
            row("the template changes: all cells", size, all_cells);
            if ALL_CELLS_MAX < all_cells.median {
                broken.push(format!("all cells take {:?}, promised {ALL_CELLS_MAX:?}", all_cells.median));
            }
            let scratch = fleet.all_from_nothing();
            row("from nothing: index, cells, decision", size, scratch);
        }
    }
    let progressive = PROGRESSIVE_SIZES.map(|size| {
        let took = Fleet::with_policy(size).pod_events();
        row("progressive rollout: a pod's status changes", size, took);
        if EVENT_MAX < took.median {
            broken.push(format!(
                "a pod event of a progressive rollout among {size} nodes takes {:?}, promised {EVENT_MAX:?}",
                took.median
            ));
        }
        took.median.as_secs_f64()
    });
    println!(
        "a pod event of a progressive rollout among {} nodes takes {:.2} times what it takes among {}",
        PROGRESSIVE_SIZES[1],
        progressive[1] / progressive[0],
        PROGRESSIVE_SIZES[0]
    );
    row("decode a pod (2.3 KB of JSON)", 1, decode());
    for (size, both) in &events {
        for (what, (_, decoded)) in both {
            if EVENT_MAX < decoded.median {
                let took = decoded.median;
                broken.push(format!(
                    "a {what} event among {size} nodes takes {took:?}, promised {EVENT_MAX:?}"
                ));
            }
        }
    }
    let (small, large) = (&events[0], &events[events.len() - 1]);
    for ((what, small), (_, large)) in small.1.iter().zip(&large.1) {
        let growth = |small: Took, large: Took| large.median.as_secs_f64() / small.median.as_secs_f64();
        let (wire, decoded) = (growth(small.0, large.0), growth(small.1, large.1));
        println!(
            "a {what} event among {} nodes takes {wire:.2} times what it takes among {}; once decoded, {decoded:.2}",
            SIZES[2], SIZES[0]
        );
        if GROWTH_MAX < wire {
            broken.push(format!("a {what} event grows {wire:.2} times, promised {GROWTH_MAX}"));
        }
    }
    for promise in &broken {
        println!("broken: {promise}");
    }
    if check && !broken.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[derive(Clone, Copy)]
struct Took {
    median: Duration,
    most: Duration,
}

impl Took {
    fn of(mut each: Vec<Duration>) -> Self {
        each.sort();
        Self { median: each[each.len() / 2], most: each[each.len() * 99 / 100] }
    }
}

fn row(what: &str, nodes: usize, took: Took) {
    let (median, most) = (format!("{:.1?}", took.median), format!("{:.1?}", took.most));
    println!("{what:<44} {nodes:>9} {median:>12} {most:>12}");
}

/// One set, a node and a ready pod each, and a status that says so.
struct Fleet {
    planner: Planner,
    shared: Interner,
    key: ObjectKey,
    size: usize,
    version: u64,
}

impl Fleet {
    fn new(size: usize) -> Self {
        let mut fleet = Self {
            planner: Planner::new(Settings::default()),
            shared: Interner::default(),
            key: ObjectKey::new("observability", "log-shipper"),
            size,
            version: 1,
        };
        fleet.list(Kind::Sets, vec![fleet::set(1, 1)].into_iter());
        fleet.list(Kind::Nodes, (0..size).map(|it| fleet::node(it, 1)));
        fleet.list(Kind::Pods, (0..size).map(|it| fleet::pod(1, it, true, 1)));
        fleet.list(Kind::Revisions, vec![fleet::revision(1, 1)].into_iter());
        Kind::OPTIONAL.into_iter().for_each(|kind| fleet.list(kind, std::iter::empty()));
        let plan = fleet.reconcile();
        let mut set = fleet::set(1, 2);
        set["status"] =
            manifest::status_body(&plan.set, &plan.status.expect("a first status"))["status"].clone();
        fleet.version += 1;
        fleet.apply(Kind::Sets, &set);
        fleet
    }

    /// A progressive rollout in its last step: all nodes are admitted, and wait for a budget of one node.
    fn with_policy(size: usize) -> Self {
        let mut fleet = Self::new(size);
        let mut good = fleet::revision(1, fleet.next_version());
        good["metadata"]["annotations"] =
            json!({"muster.dev/verdict": "Good", "muster.dev/verdict-time": "2026-01-01T00:00:00Z"});
        fleet.apply(Kind::Revisions, &good);
        let mut new = fleet::revision(2, fleet.next_version());
        new["metadata"]["name"] = json!("log-shipper-new");
        new["metadata"]["uid"] = json!("new");
        new["metadata"]["labels"]["controller-revision-hash"] = json!("new");
        fleet.apply(Kind::Revisions, &new);
        let mut set = fleet::set(2, fleet.next_version());
        set["spec"]["updateStrategy"] = json!({"rollingUpdate": {"maxUnavailable": 1}});
        fleet.apply(Kind::Sets, &set);
        let meta = |name: &str, version: u64| {
            json!({"name": name, "namespace": "observability", "uid": name, "generation": 1,
                "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z"})
        };
        let steps = json!([{"name": "canary", "nodes": 1}, {"name": "all", "nodes": "100%"}]);
        let spec = json!({"daemonSets": ["log-shipper"], "steps": steps});
        let policy = json!({"metadata": meta("p", fleet.next_version()), "spec": spec});
        fleet.apply(Kind::Policies, &policy);
        let status = json!({
            "phase": "Rolling", "attempt": 1, "current": {"revision": "new", "number": 2}, "observedGeneration": 1,
            "step": {"name": "all", "index": 1, "target": size, "startTime": "2026-01-01T00:30:00Z"},
            "lastProgressTime": "2026-01-01T00:59:00Z",
            "admitted": [{"step": "all", "upTo": "~", "createdBefore": "2026-01-01T00:50:00Z"}],
        });
        let rollout =
            json!({"metadata": meta("log-shipper", fleet.next_version()), "spec": {}, "status": status});
        fleet.apply(Kind::Rollouts, &rollout);
        let plan = fleet.reconcile();
        assert!(plan.rollout.is_some() && !plan.delete.is_empty(), "the rollout goes on: {plan}");
        fleet
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// What a pod's event takes once it is decoded. The plans are not carried out.
    fn pod_events(&mut self) -> Took {
        let took = (0..EVENTS).map(|event| {
            let number = (event / 2).wrapping_mul(7_919) % self.size;
            let version = self.next_version();
            let pod = self.read(Kind::Pods, &fleet::pod(1, number, event % 2 == 1, version));
            let started = Instant::now();
            let keys = self.planner.apply(pod.into_event());
            let _ = self.reconcile();
            let took = started.elapsed();
            assert_eq!(keys.len(), 1);
            took
        });
        Took::of(took.collect())
    }

    fn list(&mut self, kind: Kind, objects: impl Iterator<Item = Value>) {
        let items = objects.map(|it| self.read(kind, &it)).collect();
        let _ = self.planner.apply(Event::Listed { kind: kind.index(), facts: items, resource_version: 1 });
    }

    fn read(&mut self, kind: Kind, object: &Value) -> WatchedObject {
        let line = json!({"type": "MODIFIED", "object": object}).to_string();
        facts::decode_watch_event(kind, line.as_bytes(), &mut self.shared)
            .expect("an object")
            .into_fact()
            .expect("a fact")
    }

    fn apply(&mut self, kind: Kind, object: &Value) {
        let watched = self.read(kind, object);
        let _ = self.planner.apply(watched.into_event());
    }

    fn reconcile(&mut self) -> Plan {
        self.planner.reconcile(&self.key, now()).expect("the set is there")
    }

    /// Every other event undoes the one before, so the fleet stays as good as settled.
    /// Gives what an event takes from the wire to the plan, and of that what it takes once it is decoded.
    fn events(&mut self, kind: Kind, object: impl Fn(usize, bool, u64) -> Value) -> (Took, Took) {
        let (mut from_the_wire, mut decoded) = (Vec::new(), Vec::new());
        for event in 0..EVENTS {
            // Strides through the whole fleet: neighbours would be found in the processor's cache.
            let number = (event / 2).wrapping_mul(7_919) % self.size;
            self.version += 1;
            let object = object(number, event % 2 == 1, self.version);
            let line = json!({"type": "MODIFIED", "object": object}).to_string();
            let began = Instant::now();
            let watched = facts::decode_watch_event(kind, line.as_bytes(), &mut self.shared)
                .expect("an object")
                .into_fact()
                .expect("a fact");
            let started = Instant::now();
            let keys = self.planner.apply(watched.into_event());
            let plan = self.reconcile();
            decoded.push(started.elapsed());
            from_the_wire.push(began.elapsed());
            assert_eq!((keys.len(), plan.is_idle()), (1, event % 2 == 1));
        }
        (Took::of(from_the_wire), Took::of(decoded))
    }

    fn reevaluate_all_cells(&mut self) -> Took {
        let mut took = Vec::new();
        for template in 2..7 {
            self.version += 1;
            let revision = fleet::revision(template, self.version);
            self.apply(Kind::Revisions, &revision);
            self.version += 1;
            let set = self.read(Kind::Sets, &fleet::set(template, self.version));
            let started = Instant::now();
            let _ = self.planner.apply(set.into_event());
            let plan = self.reconcile();
            took.push(started.elapsed());
            assert!(plan.status.is_some());
        }
        Took::of(took)
    }

    fn all_from_nothing(&mut self) -> Took {
        let took = (0..3).map(|_| {
            let started = Instant::now();
            let mut scratch = self.planner.with_all_cells_dirty();
            let plan = scratch.reconcile(&self.key, now());
            let took = started.elapsed();
            assert!(plan.is_some());
            took
        });
        Took::of(took.collect())
    }
}

fn now() -> Time {
    Time::parse("2026-01-01T01:00:00Z").expect("a time")
}

fn decode() -> Took {
    let mut shared = Interner::default();
    let took = (0..EVENTS).map(|it| {
        let text = fleet::pod(1, it, true, 1).to_string();
        let started = Instant::now();
        let pod = facts::decode_pod(text.as_bytes(), &mut shared);
        let took = started.elapsed();
        assert!(pod.is_ok());
        took
    });
    Took::of(took.collect())
}
