//! Cost is proportional to what changed, and the result is not: after every event, what the cache has kept up to date cell
//! by cell equals what it would work out from nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;

use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::time::Time;
use muster_engine::controller::CallError;
use muster_engine::controller::Event;
use muster_engine::daemonset::execution::{PlannedCall, Response};
use muster_engine::daemonset::facts::{self, Kind, WatchedObject};
use muster_engine::daemonset::plan::Settings;
use muster_engine::daemonset::planner::Planner;
use muster_engine::scenario;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

mod world;
use world::carry_out;

/// One thing that happens. Numbers choose among the few names there are.
#[derive(Debug, Clone)]
enum Happens {
    /// A line of a scenario: a set, a node, a pod or a revision is there, or has become this.
    Is(String),
    Gone(Kind, u8),
    /// A list brings everything anew, but one object, which went unseen.
    Relist(Kind, u8),
    Bookmark(Kind),
    Time(i64),
    /// The plan of a set is carried out; calls go as these say.
    Execution(u8, Vec<u8>),
    /// A heartbeat, or the same again.
    Again(Kind, u8),
    /// A policy, DaemonRollout or namespace is there, or has become this.
    Object(Kind, Value),
    /// A revision of a set got this verdict.
    Judged(&'static str, u8, &'static str),
    /// The controller may not read a kind of a rollout any more.
    Forbidden(Kind),
    /// It may read all of them again.
    Allowed,
}

const SETS: [&str; 3] = ["d", "e", "f"];
const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
const PODS: [&str; 8] = ["p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"];

fn word(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(words)
}

fn set() -> impl Strategy<Value = String> {
    let strategy =
        word(&["", "on-delete", "max-unavailable=2", "max-unavailable=50%", "max-surge=1", "max-surge=100%"]);
    let more = word(&[
        "",
        "min-ready=20",
        "history=0",
        "tolerate=gpu",
        "template-generation=5",
        "min-ready=20",
        "min-ready=200",
        "deleting",
        "collisions=1",
        "node-selector=zone:a",
        "node-name=n1",
    ]);
    // Two of them select the same pods.
    let select = word(&["app:x", "app:x", "app:x", "app:x", "app:y"]);
    let uid = word(&["", "", "", "", "", "", "uid=again"]);
    (word(&SETS), 1..4_u8, 1..4_u8, strategy, more, select, uid).prop_map(
        |(name, template, generation, strategy, more, select, uid)| {
            let uid = if uid.is_empty() { String::new() } else { format!("uid=again-{name}") };
            format!("set {name} template={template} gen={generation} select={select} {strategy} {more} {uid}")
        },
    )
}

fn node() -> impl Strategy<Value = String> {
    let taint = word(&[
        "",
        "",
        "taint=gpu:NoSchedule",
        "taint=gpu:NoExecute",
        "taint=node.kubernetes.io/unreachable:NoSchedule",
    ]);
    let state = word(&["", "not-ready since=50", "unknown since=5", "unknown since=500", "new"]);
    (
        word(&NODES),
        word(&["", "label=zone:a", "label=zone:b"]),
        taint,
        state,
        word(&["", "", "", "uid=other"]),
    )
        .prop_map(|(name, label, taint, state, uid)| format!("node {name} {label} {taint} {state} {uid}"))
}

fn pod() -> impl Strategy<Value = String> {
    let place = word(&["on=n1", "on=n2", "on=n3", "on=n4", "for=n1", "for=n2", "on=gone", ""]);
    let state = word(&[
        "starting",
        "ready",
        "ready since=90",
        "ready since=900",
        "unready",
        "failed=Evicted",
        "succeeded",
        "waiting=CrashLoopBackOff",
    ]);
    let more = word(&[
        "",
        "",
        "deleting",
        "deleting finalizer=f",
        "tolerate=gpu",
        "generation-label=5",
        "hash=none",
        "hash=twin",
    ]);
    let owner = prop_oneof![
        24 => Just(""),
        1 => word(&["orphan", "owner=other", "unlabel=app", "orphan label=app:y"]),
    ];
    (word(&PODS), word(&SETS), 1..4_u8, place, state, more, owner, 0..200_u8).prop_map(
        |(name, of, rev, place, state, more, owner, made)| {
            let state = if place.starts_with("on=") || state == "starting" { state } else { "" };
            format!("pod {name} of={of} rev={rev} {place} {state} {more} {owner} made={made}")
        },
    )
}

fn revision() -> impl Strategy<Value = String> {
    let more = word(&["", "", "", "", "orphan", "deleting", "hash=none", "owner=other"]);
    (word(&["", "", "twin"]), word(&SETS), 1..4_u8, 1..4_u8, more, 0..200_u8).prop_map(
        |(twin, of, template, number, more, made)| {
            let hash = if twin.is_empty() || more == "hash=none" { "" } else { "hash=twin" };
            let words = format!("of={of} template={template} number={number} made={made} {hash} {more}");
            format!("rev {of}-{template}{twin} {words}")
        },
    )
}

fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::ALL.to_vec())
}

/// A RolloutPolicy that selects one set by name, or a ClusterRolloutPolicy that selects all sets of namespaces with a label.
fn policy() -> impl Strategy<Value = (Kind, Value)> {
    let step = (word(&["canary", "rest"]), 1..4_u8, word(&["", "zone"]), word(&["", "a"])).prop_map(
        |(name, nodes, group, zone)| {
            let mut step = json!({"name": name, "nodes": nodes, "soak": "5s"});
            if !group.is_empty() {
                step["groups"] =
                    json!({"labelKey": group, "maxConcurrent": 1, "maxUnavailable": 1, "soak": "2s"});
            }
            if !zone.is_empty() {
                step["selector"] = json!({"matchLabels": {"zone": zone}});
            }
            step
        },
    );
    (any::<bool>(), word(&SETS), prop::collection::vec(step, 1..3), 1..9_i64, word(&["Hash", "Name"]))
        .prop_map(|(is_cluster, set, steps, generation, order)| {
            let metadata =
                json!({"name": "p", "generation": generation, "creationTimestamp": "2020-01-01T00:00:00Z"});
            let mut policy = json!({"metadata": metadata, "spec": {"steps": steps, "order": {"by": order}}});
            if is_cluster {
                policy["spec"]["selector"] = json!({});
                policy["spec"]["namespaceSelector"] = json!({"matchLabels": {"team": "a"}});
                return (Kind::ClusterPolicies, policy);
            }
            policy["metadata"]["namespace"] = "default".into();
            policy["spec"]["daemonSets"] = json!([set]);
            (Kind::Policies, policy)
        })
}

/// The DaemonRollout of a set in some phase, with some nodes admitted by name or by position.
fn rollout() -> impl Strategy<Value = (Kind, Value)> {
    let phases = word(&[
        "Complete",
        "Rolling",
        "Soaking",
        "Waiting",
        "Stopped",
        "RollingBack",
        "RolledBack",
        "Napping",
    ]);
    let admitted = prop_oneof![
        prop::collection::btree_set(word(&NODES), 0..4)
            .prop_map(|it| json!([{"step": "canary", "nodes": it}])),
        Just(json!([{"step": "canary", "upTo": "8", "createdBefore": "2030-01-01T00:00:00Z"}])),
    ];
    (word(&SETS), 1..4_u8, phases, admitted, word(&["canary", "rest", "*"]), any::<bool>()).prop_map(
        |(set, template, phase, admitted, step, paused)| {
            let current = json!({"number": template});
            let status = json!({
                "phase": phase, "current": current, "attempt": 1, "admitted": admitted, "observedGeneration": 1,
                "step": {"name": step, "index": 0, "target": 1},
            });
            let metadata = json!({"namespace": "default", "name": set, "uid": format!("r-{set}"), "generation": 1});
            (Kind::Rollouts, json!({"metadata": metadata, "spec": {"paused": paused}, "status": status}))
        },
    )
}

fn namespace() -> impl Strategy<Value = (Kind, Value)> {
    word(&["a", "b"]).prop_map(|team| {
        (Kind::Namespaces, json!({"metadata": {"name": "default", "labels": {"team": team}}}))
    })
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        2 => policy().prop_map(|(kind, object)| Happens::Object(kind, object)),
        3 => rollout().prop_map(|(kind, object)| Happens::Object(kind, object)),
        1 => namespace().prop_map(|(kind, object)| Happens::Object(kind, object)),
        3 => (word(&SETS), 1..4_u8, word(&["Good", "Good", "Bad", "Superseded"]))
            .prop_map(|(set, template, verdict)| Happens::Judged(set, template, verdict)),
        1 => prop::sample::select(Kind::OPTIONAL.to_vec()).prop_map(Happens::Forbidden),
        3 => Just(Happens::Allowed),
        3 => set().prop_map(Happens::Is),
        4 => node().prop_map(Happens::Is),
        8 => pod().prop_map(Happens::Is),
        4 => revision().prop_map(Happens::Is),
        3 => (kind(), any::<u8>()).prop_map(|(kind, which)| Happens::Gone(kind, which)),
        1 => (kind(), any::<u8>()).prop_map(|(kind, which)| Happens::Relist(kind, which)),
        1 => kind().prop_map(Happens::Bookmark),
        3 => prop_oneof![5 => 1..40_i64, 2 => 100..800_i64, 1 => -300..0_i64].prop_map(Happens::Time),
        4 => (any::<u8>(), prop::collection::vec(any::<u8>(), 1..4)).prop_map(|(set, answers)| Happens::Execution(set, answers)),
        1 => (kind(), any::<u8>()).prop_map(|(kind, which)| Happens::Again(kind, which)),
    ]
}

/// The objects there are, as an API server would keep them, and a cache that watches.
struct History {
    store: BTreeMap<(Kind, ObjectKey), Value>,
    planner: Planner,
    shared: Interner,
    now: i64,
    version: u64,
}

impl History {
    fn new() -> Self {
        let mut planner = Planner::new(Settings { burst: 3, ..Settings::default() });
        for kind in Kind::ALL {
            let _ =
                planner.apply(Event::Listed { kind: kind.index(), facts: Vec::new(), resource_version: 0 });
        }
        let mut history =
            Self { store: BTreeMap::new(), planner, shared: Interner::default(), now: 100, version: 0 };
        let revisions = SETS.iter().flat_map(|of| {
            (1..4).map(move |template| format!("rev {of}-{template} of={of} template={template}"))
        });
        let nodes = NODES.iter().map(|name| format!("node {name}"));
        let sets = SETS.iter().map(|name| format!("set {name} template=2 select=app:x min-ready=20"));
        for line in sets.chain(nodes).chain(revisions) {
            history.happen(&Happens::Is(line));
        }
        history
    }

    fn now(&self) -> Time {
        Time::from_secs(scenario::EPOCH_S + self.now)
    }

    fn happen(&mut self, what: &Happens) {
        self.version += 1;
        match what {
            Happens::Is(line) => self.is(line),
            Happens::Gone(kind, which) => {
                if let Some((key, object)) = self.choose(*kind, *which) {
                    self.store.remove(&(*kind, key));
                    self.watch(*kind, "DELETED", object);
                }
            }
            Happens::Relist(kind, which) => self.relist(*kind, *which),
            Happens::Bookmark(kind) => drop(self.planner.apply_bookmark(*kind, self.version)),
            Happens::Time(seconds) => self.now += seconds,
            Happens::Execution(which, answers) => self.act(*which, answers),
            Happens::Object(kind, object) => {
                let mut object = object.clone();
                object["metadata"]["resourceVersion"] = self.version.to_string().into();
                let text = |at: &str| object["metadata"][at].as_str().unwrap_or_default().to_owned();
                let key = ObjectKey::new(text("namespace"), text("name"));
                // A status names its revision by the hash label that the revision has now.
                if let Some(number) = object["status"]["current"]["number"].as_u64() {
                    let revision = ObjectKey::new("default", format!("{}-{number}", key.name));
                    let revision = self.store.get(&(Kind::Revisions, revision)).cloned().unwrap_or_default();
                    let hash = revision["metadata"]["labels"]["controller-revision-hash"].as_str();
                    object["status"]["current"]["revision"] = hash.unwrap_or("none").into();
                }
                self.store.insert((*kind, key), object.clone());
                self.watch(*kind, "MODIFIED", object);
            }
            Happens::Judged(set, template, verdict) => {
                let key = ObjectKey::new("default", format!("{set}-{template}"));
                let Some(mut object) = self.store.get(&(Kind::Revisions, key.clone())).cloned() else {
                    return;
                };
                object["metadata"]["resourceVersion"] = self.version.to_string().into();
                object["metadata"]["annotations"]["muster.dev/verdict"] = (*verdict).into();
                object["metadata"]["annotations"]["muster.dev/verdict-time"] = self.now().to_rfc3339().into();
                self.store.insert((Kind::Revisions, key), object.clone());
                self.watch(Kind::Revisions, "MODIFIED", object);
            }
            Happens::Forbidden(kind) => drop(self.planner.on_forbidden(*kind)),
            Happens::Allowed => Kind::OPTIONAL.into_iter().for_each(|kind| self.relist(kind, 1)),
            Happens::Again(kind, which) => {
                if let Some((_, object)) = self.choose(*kind, *which) {
                    self.watch(*kind, "MODIFIED", object);
                }
            }
        }
    }

    /// A pod or a revision is of a set that may not be there: the scenario needs its line to read it.
    fn is(&mut self, line: &str) {
        let kind = match line.split(' ').next() {
            Some("set") => Kind::Sets,
            Some("node") => Kind::Nodes,
            Some("pod") => Kind::Pods,
            _ => Kind::Revisions,
        };
        let sets: String = SETS.iter().map(|name| format!("set {name} select=app:x\n")).collect();
        let text = if kind == Kind::Sets { line.to_owned() } else { format!("{sets}{line}") };
        let mut world =
            scenario::parse(&format!("now {}\n{text}", self.now)).unwrap_or_else(|it| panic!("{it}: {line}"));
        let objects = match kind {
            Kind::Sets => &mut world.sets,
            Kind::Nodes => &mut world.nodes,
            Kind::Pods => &mut world.pods,
            _ => &mut world.revisions,
        };
        let mut object = objects.remove(0);
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let text = |at: &str| object["metadata"][at].as_str().unwrap_or_default().to_owned();
        let key = ObjectKey::new(text("namespace"), text("name"));
        self.store.insert((kind, key), object.clone());
        self.watch(kind, "MODIFIED", object);
    }

    fn read(&mut self, kind: Kind, what: &str, object: &Value) -> WatchedObject {
        let line = json!({"type": what, "object": object}).to_string();
        facts::decode_watch_event(kind, line.as_bytes(), &mut self.shared)
            .expect("a well-formed object")
            .into_fact()
            .expect("a fact")
    }

    fn watch(&mut self, kind: Kind, what: &str, mut object: Value) {
        if what == "DELETED" {
            object["metadata"]["resourceVersion"] = self.version.to_string().into();
        }
        let watched = self.read(kind, what, &object);
        let _ = self.planner.apply(watched.into_event());
    }

    fn choose(&self, kind: Kind, which: u8) -> Option<(ObjectKey, Value)> {
        let of_kind: Vec<_> = self.store.iter().filter(|it| it.0.0 == kind).collect();
        let (key, object) = of_kind.get(usize::from(which) % of_kind.len().max(1))?;
        Some((key.1.clone(), (*object).clone()))
    }

    fn relist(&mut self, kind: Kind, which: u8) {
        if which.is_multiple_of(2)
            && let Some((key, _)) = self.choose(kind, which)
        {
            self.store.remove(&(kind, key));
        }
        let objects: Vec<Value> =
            self.store.iter().filter(|it| it.0.0 == kind).map(|it| it.1.clone()).collect();
        let items = objects.iter().map(|it| self.read(kind, "ADDED", it)).collect();
        let _ = self.planner.apply(Event::Listed {
            kind: kind.index(),
            facts: items,
            resource_version: self.version,
        });
    }

    fn act(&mut self, which: u8, answers: &[u8]) {
        let keys: Vec<ObjectKey> = self.planner.keys().cloned().collect();
        let Some(key) = keys.get(usize::from(which) % keys.len().max(1)) else { return };
        let now = self.now();
        let Some(plan) = self.planner.reconcile(key, now) else { return };
        let (version, mut at) = (self.version, 0);
        let set = plan.set.clone();
        let (_, report) = carry_out(plan, |call| {
            at += 1;
            match (answers[at % answers.len()] % 8, call) {
                (0, _) => Response::Refused(CallError::NoAnswer),
                (1, _) => Response::Refused(CallError::Conflict),
                (2, _) => Response::Refused(CallError::NotFound),
                (3, _) => Response::Refused(CallError::Server("boom".to_owned())),
                (_, PlannedCall::ReadSet) => Response::Set(set.clone()),
                (_, PlannedCall::ReadRevision { .. }) => Response::Revision(None),
                (_, PlannedCall::ListPods) => Response::Pods(Vec::new()),
                (
                    _,
                    PlannedCall::DeletePod { .. }
                    | PlannedCall::EvictPod { .. }
                    | PlannedCall::DeleteRevision { .. },
                ) => Response::Deleted,
                (4, _) => Response::Wrote { name: "made".into(), resource_version: version + 3 },
                _ => Response::Wrote { name: "made".into(), resource_version: version },
            }
        });
        self.planner.apply_report(key, &report, now);
    }

    /// What is kept, and what would be worked out from nothing: the same plans, from the same cells and totals.
    fn check(&mut self, reached: &mut Reached) -> Result<(), TestCaseError> {
        let keys: Vec<ObjectKey> = self.planner.keys().cloned().collect();
        for key in keys {
            let mut scratch = self.planner.with_all_cells_dirty();
            let now = self.now();
            let kept = self.planner.reconcile(&key, now);
            let anew = scratch.reconcile(&key, now);
            prop_assert_eq!(&kept, &anew, "{}", key);
            let Some(plan) = kept else { continue };
            // A set that is not decided on is not worked out either.
            let decided = plan.waiting.is_none() && !plan.confirm && !plan.set.deleting;
            prop_assert!(
                !decided || self.planner.agrees_with(&scratch, &key),
                "{key}: same plan, other cells"
            );
            let counts = [
                ("decided", usize::from(decided)),
                ("waiting", usize::from(!decided)),
                ("claims", plan.claims.len()),
                ("steps", plan.steps.len()),
                ("relabel", plan.relabel.len()),
                ("delete", plan.delete.len()),
                ("create", plan.create.len()),
                ("create stable", plan.create_stable.len()),
                ("rollout", usize::from(plan.rollout.is_some())),
                ("prune", plan.prune.len()),
                ("status", usize::from(plan.status.is_some())),
            ];
            for (what, count) in counts {
                *reached.entry(what).or_default() += count;
            }
        }
        Ok(())
    }
}

/// How often each part of a plan was compared.
type Reached = BTreeMap<&'static str, usize>;

/// Also run with mutants, to see it fail: `crates/sim/tests/mutants`.
pub(crate) fn run(cases: u32) -> Result<Reached, String> {
    let reached = RefCell::new(Reached::new());
    // Every run has the same cases, so the seeds of failures need not be kept. With mutants, failures are expected.
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 4_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let result = runner.run(&prop::collection::vec(happens(), 1..80), |events| {
        let mut history = History::new();
        for event in &events {
            history.happen(event);
            history.check(&mut reached.borrow_mut())?;
        }
        Ok(())
    });
    result.map_err(|it| it.to_string())?;
    Ok(reached.into_inner())
}

/// Histories of up to eighty events; together some sixteen thousand comparisons of every set.
pub(crate) const CASES: u32 = 400;

#[test]
fn incremental_state_equals_recomputed_state_after_every_event() {
    let reached = run(CASES).unwrap_or_else(|failure| panic!("{failure}"));
    // Histories that lead nowhere would agree about nothing.
    for (what, count) in reached {
        assert!(40 <= count, "{what} was compared {count} times only");
    }
}
