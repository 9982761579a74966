//! Whatever comes in: it is left out or it is worked with, and nothing panics.

use muster_api::interner::Interner;
use muster_api::time::Time;
use muster_engine::controller::CallError;
use muster_engine::controller::Event;
use muster_engine::daemonset::execution::{PlannedCall, Response};
use muster_engine::daemonset::facts::{self, Kind, WatchedObject};
use muster_engine::daemonset::manifest::{self, Binding};
use muster_engine::daemonset::plan::Settings;
use muster_engine::daemonset::planner::Planner;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use serde_json::{Map, Value, json};

mod world;
use world::{carry_out, kinds, parse};

/// Any JSON there is.
fn anything() -> impl Strategy<Value = Value> {
    let text =
        prop_oneof![".{0,12}", "[0-9]{1,25}%?", "-?[0-9]{1,4}", "2026-01-01T00:00:0[0-9]Z", "[a-z./-]{1,20}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z$]{1,12}", inner, 0..5)
                .prop_map(|fields| Value::from(fields.into_iter().collect::<Map<String, Value>>())),
        ]
    })
}

/// A world in which everything there is a word for is said somewhere.
const WORLD: &str = "
    now 1000
    set d template=2 max-surge=50% min-ready=10 history=1 node-selector=zone:a affinity=zone:in:a+cpus:gt:4 affinity=metadata.name:in:n2 tolerate=gpu=yes:NoSchedule template-generation=5 collisions=1
    node n1 label=zone:a label=cpus:8 taint=gpu=yes:NoSchedule
    node n2 unknown since=5
    pod d-1 on=n1 rev=1 ready since=900
    pod d-2 for=n2 generation-label=5
    pod d-3 on=n1 failed=Evicted finalizer=x
    pod d-4 on=gone ready deleting
    pod o on=n2 orphan waiting=CrashLoopBackOff
    rev d-1 template=1
    rev d-2 template=2
    rev d-3 template=3 orphan
";

/// Where in an object something is replaced by junk: a number for each step down.
fn corrupt(object: &mut Value, path: &[u8], junk: Value) {
    let at = match (path.split_first(), &mut *object) {
        (Some((step, rest)), Value::Object(fields)) if !fields.is_empty() => {
            let count = fields.len();
            fields.values_mut().nth(usize::from(*step) % count).map(|it| (it, rest))
        }
        (Some((step, rest)), Value::Array(items)) if !items.is_empty() => {
            let count = items.len();
            items.get_mut(usize::from(*step) % count).map(|it| (it, rest))
        }
        _ => None,
    };
    match at {
        Some((inner, rest)) => corrupt(inner, rest, junk),
        None => *object = junk,
    }
}

/// Through facts, cache, look and act, with every body built and every call refused or granted.
fn put_through(objects: &[(Kind, Value)], answers: &[u8]) {
    let mut shared = Interner::default();
    let mut planner = Planner::new(Settings::default());
    for kind in Kind::ALL {
        let of_kind = objects.iter().filter(|it| it.0 == kind);
        let items: Vec<WatchedObject> = of_kind
            .filter_map(|(_, object)| {
                let line = json!({"type": "ADDED", "object": object}).to_string();
                facts::decode_watch_event(kind, line.as_bytes(), &mut shared).ok()?.into_fact()
            })
            .collect();
        let _ = planner.apply(Event::Listed { kind: kind.index(), facts: items, resource_version: 1 });
    }
    for second in [0, 1_000, i64::MAX, -5] {
        let now = Time::from_secs(second);
        let keys: Vec<_> = planner.keys().cloned().collect();
        for key in keys {
            let Some(plan) = planner.reconcile(&key, now) else { continue };
            let _ = plan.to_string();
            planner.explain(&key).iter().for_each(|it| drop(it.why.to_string()));
            let set = plan.set.clone();
            let mut at = 0;
            let (_, report) = carry_out(plan, |call| {
                at += 1;
                let body = manifest::call_body(&set, call, Binding::Scheduler);
                assert_eq!(
                    body.is_none(),
                    matches!(
                        call,
                        PlannedCall::ReadSet | PlannedCall::ListPods | PlannedCall::ReadRevision { .. }
                    )
                );
                match (answers[at % answers.len()] % 6, call) {
                    (0, _) => Response::Refused(CallError::AlreadyExists),
                    (1, _) => Response::Refused(CallError::NoAnswer),
                    (_, PlannedCall::ReadSet) => Response::Set(set.clone()),
                    (_, PlannedCall::ReadRevision { .. }) => Response::Revision(None),
                    (_, PlannedCall::ListPods) => Response::Pods(Vec::new()),
                    (
                        _,
                        PlannedCall::DeletePod { .. }
                        | PlannedCall::EvictPod { .. }
                        | PlannedCall::DeleteRevision { .. },
                    ) => Response::Deleted,
                    _ => Response::Wrote { name: "x".into(), resource_version: 1 },
                }
            });
            planner.apply_report(&key, &report, now);
        }
    }
}

/// Orphans are adopted before all else, so worlds without them lead further.
fn objects(with_orphans: bool) -> Vec<(Kind, Value)> {
    let lines = WORLD.lines().filter(|it| with_orphans || !it.contains("orphan"));
    let world = parse(&lines.map(|it| format!("{it}\n")).collect::<String>());
    kinds(&world)
        .into_iter()
        .flat_map(|(kind, objects)| objects.iter().map(move |it| (kind, it.clone())))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn junk_in_any_field_of_any_object_breaks_nothing(
        junk in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 1..9), anything()), 1..4),
        answers in prop::collection::vec(any::<u8>(), 1..4),
        with_orphans in prop::bool::weighted(0.2),
    ) {
        let mut objects = objects(with_orphans);
        for (which, path, junk) in junk {
            let count = objects.len();
            corrupt(&mut objects[usize::from(which) % count].1, &path, junk);
        }
        put_through(&objects, &answers);
    }

    #[test]
    fn no_json_at_all_breaks_nothing(kind in 0..4_usize, what in ".{0,9}", value in anything(), bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let kind = Kind::ALL[kind];
        let mut shared = Interner::default();
        for kind_of_event in ["ADDED", "DELETED", "BOOKMARK", "ERROR", what.as_str()] {
            let line = json!({"type": kind_of_event, "object": value}).to_string();
            let _ = facts::decode_watch_event(kind, line.as_bytes(), &mut shared);
        }
        let _ = facts::decode_watch_event(kind, &bytes, &mut shared);
        put_through(&[(kind, value)], &[2]);
    }
}

/// Other objects go on: one that cannot be read is left out, and only it.
#[test]
fn what_cannot_be_read_is_left_out_and_says_what_it_is() {
    let mut shared = Interner::default();
    let line = br#"{"type":"ADDED","object":{"metadata":{"name":"x","labels":{"a":1}}}}"#;
    let error =
        facts::decode_watch_event(Kind::Pods, line, &mut shared).expect_err("a label that is no text");
    assert!(error.to_string().starts_with("read an object of pods: invalid type"), "{error}");
}

#[test]
fn the_world_that_junk_is_put_into_leads_beyond_claims() {
    let mut scene = world::Scene::from(
        &parse(
            &WORLD
                .lines()
                .filter(|it| !it.contains("orphan"))
                .map(|it| format!("{it}\n"))
                .collect::<String>(),
        ),
        Settings::default(),
    );
    let plan = scene.reconcile();
    assert!(!plan.delete.is_empty() && plan.status.is_some(), "{plan}");
}

#[test]
fn numbers_at_their_limits_break_nothing() {
    for number in [
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(4_294_967_295_u64),
        json!(1e300),
        json!("4294967295%"),
    ] {
        let mut objects = objects(false);
        for field in ["minReadySeconds", "revisionHistoryLimit"] {
            objects[0].1["spec"][field] = number.clone();
        }
        for field in ["maxUnavailable", "maxSurge"] {
            objects[0].1["spec"]["updateStrategy"]["rollingUpdate"][field] = number.clone();
        }
        put_through(&objects, &[2]);
        let mut objects = self::objects(false);
        objects[0].1["metadata"]["generation"] = number.clone();
        objects[0].1["status"]["collisionCount"] = number.clone();
        for object in objects.iter_mut().filter(|it| it.0 == Kind::Revisions) {
            object.1["revision"] = number.clone();
        }
        put_through(&objects, &[0, 2]);
    }
}
