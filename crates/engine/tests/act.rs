//! A plan is carried out call by call: what is asked, in which order, and what each answer leads to. And the gate: no
//! second plan before the first one's writes came back.

use std::time::Duration;

use expect_test::{Expect, expect};
use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_engine::controller::CallError;
use muster_engine::daemonset::execution::{Execution, NextStep, PlannedCall, Response};
use muster_engine::daemonset::facts::{self, Kind, Revision, Set};
use muster_engine::daemonset::manifest;
use muster_engine::daemonset::plan::{Plan, RevisionWrite};
use std::sync::Arc;

mod world;
use world::{Scene, at, carry_out, each, granted, names, parse, second, text};

const WROTE: fn(u64) -> Response = |resource_version| Response::Wrote { name: "x".into(), resource_version };

fn refused(refusal: CallError) -> Response {
    Response::Refused(refusal)
}

fn quota() -> CallError {
    CallError::Forbidden("exceeded quota".to_owned())
}

/// The set of a world as the API server would give it now.
fn set_now(world: &str) -> Arc<Set> {
    let object = parse(world).sets.remove(0);
    Arc::new(facts::decode_set(object.to_string().as_bytes(), &mut Interner::default()).expect("a set"))
}

fn revision_now(world: &str) -> Arc<Revision> {
    let object = parse(world).revisions.remove(0);
    let revision = facts::decode_revision(object.to_string().as_bytes(), &mut Interner::default());
    Arc::new(revision.expect("a revision").expect("of a set"))
}

/// The calls of a world's plan, with these answers; then what the next look says.
fn check(world: &str, answer: impl FnMut(&PlannedCall) -> Response, want: Expect) {
    let mut scene = Scene::of(world);
    let plan = scene.reconcile();
    let calls = scene.act(plan, answer);
    want.assert_eq(&format!("{calls}then\n{}", text(&scene.reconcile())));
}

fn ok(call: &PlannedCall) -> Response {
    granted(1)(call)
}

#[test]
fn creates_start_slowly_and_stop_after_the_first_batch_with_a_failure() {
    let world = format!("set d\nrev d-1\n{}", each(&names("n", 100), "node $"));
    // A quota of ten: 1 + 2 + 4 are made, then 3 of 8; fifteen calls in all, and the status is still said.
    let mut created = 0;
    let (calls, _) = carry_out(Scene::of(&world).reconcile(), |call| match call {
        PlannedCall::CreatePod { .. } if created == 10 => refused(quota()),
        PlannedCall::CreatePod { .. } => {
            created += 1;
            WROTE(1)
        }
        call => ok(call),
    });
    let creates = calls.lines().filter(|it| it.starts_with("create pods")).count();
    let status = calls.lines().filter(|it| it.starts_with("update daemonsets/status")).count();
    assert_eq!((created, creates, status), (10, 15, 1));
}

#[test]
fn a_quota_of_nothing_costs_one_call() {
    let world = format!("set d\nrev d-1\n{}", each(&names("n", 100), "node $"));
    check(
        &world,
        |call| if matches!(call, PlannedCall::CreatePod { .. }) { refused(quota()) } else { ok(call) },
        expect![[r#"
            create pods on n078  refused: exceeded quota
            update daemonsets/status d
            then
            wait  a call failed; next attempt at 2026-01-01T00:00:00Z
            wake at 0
        "#]],
    );
}

#[test]
fn creates_are_sent_in_slow_start_batches() {
    let world = format!("set d\nrev d-1\n{}", each(&names("n", 12), "node $"));
    let mut act = Execution::new(Scene::of(&world).reconcile());
    let mut batches = Vec::new();
    loop {
        let mut batch = Vec::new();
        let end = loop {
            match act.next() {
                NextStep::Call(call) => batch.push(call),
                end => break end,
            }
        };
        if batch.is_empty() {
            assert_eq!(end, NextStep::Done);
            break;
        }
        batches.push(batch.len());
        for call in batch {
            act.apply_response(&call, WROTE(1));
        }
    }
    // 1, 2, 4, and the 5 that are left; then the status.
    assert_eq!(batches, [1, 2, 4, 5, 1]);
}

#[test]
fn deletes_are_sent_before_creates_and_the_status_last() {
    check(
        "set d template=2 history=0\nrev d-2 template=2\nrev d-1 template=1\nnode a\nnode b taint=x:NoExecute\npod y on=b ready",
        ok,
        expect![[r#"
            delete pods y
            create pods on a
            delete controllerrevisions d-1
            update daemonsets/status d
            then
            wait  waiting for the watch to deliver 2 writes
            wake at 10
        "#]],
    );
}

#[test]
fn each_failure_is_told_as_an_event() {
    let world = "set d\nrev d-1\nnode a\nnode b taint=x:NoExecute\npod y on=b ready";
    let (_, report) = carry_out(Scene::of(world).reconcile(), |call| match call {
        PlannedCall::CreatePod { .. } => refused(quota()),
        PlannedCall::DeletePod { .. } => refused(CallError::Server("boom".to_owned())),
        call => ok(call),
    });
    let events: Vec<String> =
        report.events.iter().map(|it| format!("{}: {}\n", it.reason, it.message)).collect();
    expect![[r#"
        FailedDelete: Error deleting: pod y: boom
        FailedCreate: Error creating: pod for node a: exceeded quota
    "#]]
    .assert_eq(&events.concat());
    let (_, report) = carry_out(Scene::of(world).reconcile(), ok);
    let events: Vec<String> =
        report.events.iter().map(|it| format!("{}: {}\n", it.reason, it.message)).collect();
    expect![[r#"
        SuccessfulDelete: Deleted pod: y
        SuccessfulCreate: Created pod: made
    "#]]
    .assert_eq(&events.concat());
}

#[test]
fn failures_wait_longer_each_time_and_a_success_forgets_them() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a");
    let mut waits = Vec::new();
    for _ in 0..11 {
        let plan = scene.reconcile();
        scene.act(plan, |call| {
            if matches!(call, PlannedCall::CreatePod { .. }) {
                refused(quota())
            } else {
                refused(CallError::Conflict)
            }
        });
        let until = scene.reconcile().wake_at.expect("a timer");
        waits.push(until.since(scene.now).as_millis());
        scene.now = until;
    }
    expect!["[100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]"]
        .assert_eq(&format!("{waits:?}"));
    let plan = scene.reconcile();
    scene.act(plan, granted(1));
    let plan = scene.reconcile();
    scene.act(plan, |_| refused(quota()));
    assert_eq!(scene.reconcile().wake_at.expect("a timer").since(scene.now), Duration::from_millis(100));
}

// Status.

#[test]
fn a_refused_status_is_written_once_more_on_top_of_what_is_there_now() {
    let world = "set d\nrev d-1\nnode a\npod x on=a ready";
    let fresh = set_now("set d rv=77");
    let mut puts = Vec::new();
    let mut scene = Scene::of(world);
    let plan = scene.reconcile();
    let calls = scene.act(plan, |call| match call {
        PlannedCall::PutStatus { of, .. } => {
            puts.push(of.resource_version);
            if puts.len() == 1 { refused(CallError::Conflict) } else { WROTE(1) }
        }
        PlannedCall::ReadSet => Response::Set(fresh.clone()),
        call => ok(call),
    });
    expect![[r#"
        update daemonsets/status d  refused: the object has changed
        get daemonsets d
        update daemonsets/status d
    "#]]
    .assert_eq(&calls);
    assert_eq!(puts, [1, 77], "the second one is of the version that was read");
    assert_eq!(scene.reconcile().waiting, None);
}

#[test]
fn a_status_refused_twice_is_given_up_for_now() {
    let fresh = set_now("set d rv=77");
    check(
        "set d\nrev d-1\nnode a\npod x on=a ready",
        |call| match call {
            PlannedCall::ReadSet => Response::Set(fresh.clone()),
            _ => refused(CallError::Server("boom".to_owned())),
        },
        expect![[r#"
            update daemonsets/status d  refused: boom
            get daemonsets d
            update daemonsets/status d  refused: boom
            then
            wait  a call failed; next attempt at 2026-01-01T00:00:00Z
            wake at 0
        "#]],
    );
}

#[test]
fn a_status_whose_set_cannot_be_read_is_given_up_for_now() {
    check(
        "set d\nrev d-1\nnode a\npod x on=a ready",
        |call| match call {
            PlannedCall::ReadSet => refused(CallError::Server("boom".to_owned())),
            _ => refused(CallError::Conflict),
        },
        expect![[r#"
            update daemonsets/status d  refused: the object has changed
            get daemonsets d  refused: boom
            then
            wait  a call failed; next attempt at 2026-01-01T00:00:00Z
            wake at 0
        "#]],
    );
}

#[test]
fn a_status_is_not_written_over_one_that_knows_more() {
    let fresh = set_now("set d rv=77 gen=9 observed=9");
    let (calls, _) =
        carry_out(Scene::of("set d\nrev d-1\nnode a\npod x on=a ready").reconcile(), |call| match call {
            PlannedCall::ReadSet => Response::Set(fresh.clone()),
            _ => refused(CallError::Conflict),
        });
    expect![[r#"
        update daemonsets/status d  refused: the object has changed
        get daemonsets d
    "#]]
    .assert_eq(&calls);
}

#[test]
fn a_status_is_not_written_for_a_set_that_is_deleted_or_another() {
    for fresh in ["set d rv=77 deleting", "set d rv=77 uid=other"] {
        let fresh = set_now(fresh);
        let (calls, _) =
            carry_out(Scene::of("set d\nrev d-1\nnode a\npod x on=a ready").reconcile(), |call| match call {
                PlannedCall::ReadSet => Response::Set(fresh.clone()),
                _ => refused(CallError::Conflict),
            });
        assert_eq!(calls.lines().count(), 2, "{calls}");
    }
}

#[test]
fn the_status_is_written_though_a_create_failed() {
    let mut put = None;
    carry_out(Scene::of("set d\nrev d-1\nnode a\nnode b\npod x on=a ready").reconcile(), |call| match call {
        PlannedCall::CreatePod { .. } => refused(quota()),
        PlannedCall::PutStatus { status, .. } => {
            put = Some(status.counts);
            WROTE(1)
        }
        call => ok(call),
    });
    let counts = put.expect("a status");
    assert_eq!((counts.desired, counts.current, counts.ready), (2, 1, 1));
}

// Claims.

#[test]
fn before_an_adoption_the_set_is_read() {
    let world = "set d\nrev d-1\nnode a\npod o on=a ready orphan\npod x on=a ready unlabel=app";
    let fresh = set_now("set d");
    check(
        world,
        |call| if *call == PlannedCall::ReadSet { Response::Set(fresh.clone()) } else { ok(call) },
        expect![[r#"
            get daemonsets d
            patch pods o
            patch pods x
            then
            adopt pod o
            release pod x
        "#]],
    );
}

#[test]
fn nothing_is_adopted_for_a_set_that_is_being_deleted_or_gone() {
    let world = "set d\nrev d-1\nnode a\npod o on=a ready orphan";
    for answer in [
        Response::Set(set_now("set d deleting")),
        Response::Set(set_now("set d uid=other")),
        refused(CallError::NotFound),
    ] {
        let (calls, _) = carry_out(Scene::of(world).reconcile(), |call| {
            assert_eq!(*call, PlannedCall::ReadSet);
            answer.clone()
        });
        assert_eq!(calls.lines().count(), 1);
    }
}

#[test]
fn a_release_needs_no_reading() {
    check(
        "set d\nrev d-1\nnode a\npod x on=a ready unlabel=app",
        ok,
        expect![[r#"
        patch pods x
        then
        release pod x
    "#]],
    );
}

// History.

#[test]
fn no_pod_is_changed_after_a_failed_revision_write() {
    check(
        "set d template=1\nrev d-1 template=1\nrev d-2 template=2\nnode a\nnode b\npod x on=a rev=2 ready",
        |call| {
            if matches!(call, PlannedCall::WriteRevision(_)) {
                refused(CallError::Conflict)
            } else {
                ok(call)
            }
        },
        expect![[r#"
            patch controllerrevisions d-1  refused: the object has changed
            then
            wait  a call failed; next attempt at 2026-01-01T00:00:00Z
            wake at 0
        "#]],
    );
}

/// The name is taken by this revision; the set is now this one.
fn collide(
    revision: Option<Arc<Revision>>,
    fresh: &str,
) -> (String, Option<Option<i32>>, Option<std::time::Duration>) {
    let fresh = set_now(fresh);
    let mut counted = None;
    let mut scene = Scene::of("set d\nnode a");
    let plan = scene.reconcile();
    let calls = scene.act(plan, |call| match call {
        PlannedCall::WriteRevision(RevisionWrite::Create { .. }) => refused(CallError::AlreadyExists),
        PlannedCall::ReadRevision { .. } => Response::Revision(revision.clone()),
        PlannedCall::ReadSet => Response::Set(fresh.clone()),
        PlannedCall::PutStatus { status, .. } => {
            counted = Some(status.collisions);
            WROTE(1)
        }
        call => ok(call),
    });
    let next = scene.reconcile();
    (calls, counted, next.wake_at.map(|it| it.since(scene.now)))
}

#[test]
fn a_name_taken_by_other_data_raises_the_collision_count_by_one() {
    let other = Some(revision_now("set d\nrev x template=2"));
    let (calls, counted, _) = collide(other.clone(), "set d");
    expect![[r#"
        create controllerrevisions  refused: already exists
        get controllerrevisions d-67d7c6686
        get daemonsets d
        update daemonsets/status d
    "#]]
    .assert_eq(&calls);
    assert_eq!(counted, Some(Some(1)));
    // Not if somebody has raised it since: the name was made from another count.
    let (calls, counted, _) = collide(other, "set d collisions=1");
    expect![[r#"
        create controllerrevisions  refused: already exists
        get controllerrevisions d-67d7c6686
        get daemonsets d
    "#]]
    .assert_eq(&calls);
    assert_eq!(counted, None);
    // A stranger's is a collision too, whatever its data.
    assert_eq!(collide(None, "set d").1, Some(Some(1)));
    assert_eq!(collide(Some(revision_now("set d\nrev x owner=other")), "set d").1, Some(Some(1)));
}

#[test]
fn a_name_taken_by_the_very_data_is_ours() {
    let (calls, counted, wait) = collide(Some(revision_now("set d\nrev x")), "set d");
    expect![[r#"
        create controllerrevisions  refused: already exists
        get controllerrevisions d-67d7c6686
    "#]]
    .assert_eq(&calls);
    assert_eq!(counted, None);
    // It is not asked for again at once: the cache has seen it, or it is on its way out.
    assert_eq!(wait, Some(Duration::from_millis(100)));
    assert_eq!(
        collide(Some(revision_now("set d\nrev x deleting")), "set d").2,
        Some(Duration::from_millis(100))
    );
    assert_eq!(collide(Some(revision_now("set d\nrev x orphan")), "set d").1, None, "it will be adopted");
}

#[test]
fn an_orphan_of_the_very_data_that_nobody_will_adopt_is_a_collision() {
    let mut world = parse("set d\nrev x orphan");
    world.revisions[0]["metadata"]["labels"] = serde_json::json!({});
    let object = world.revisions[0].to_string();
    let revision = facts::decode_revision(object.as_bytes(), &mut Interner::default())
        .expect("a revision")
        .expect("an orphan");
    assert_eq!(collide(Some(Arc::new(revision)), "set d").1, Some(Some(1)));
}

// What refusals of pods mean.

#[test]
fn a_pod_that_is_not_found_is_as_good_as_deleted() {
    let world = "set d\nrev d-1\nnode a\npod x on=a failed";
    let mut scene = Scene::of(world);
    let plan = scene.reconcile();
    scene.act(plan, |call| {
        if matches!(call, PlannedCall::DeletePod { .. }) { refused(CallError::NotFound) } else { ok(call) }
    });
    // No retry, no event; once the cache shows it gone, the next one comes.
    expect![[r#"
        wait  waiting for the watch to deliver 1 write
        wake at 10
    "#]]
    .assert_eq(&text(&scene.reconcile()));
    scene.then("set d\nrev d-1\nnode a");
    expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]]
    .assert_eq(&text(&scene.reconcile()));
}

#[test]
fn a_pod_that_has_changed_is_only_tried_again_and_nobody_is_told() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a taint=x:NoExecute\npod x on=a ready");
    let (_, report) = carry_out(scene.reconcile(), |call| match call {
        PlannedCall::DeletePod { .. } => refused(CallError::Conflict),
        call => ok(call),
    });
    assert_eq!(report.events, []);
    let key = scene.key();
    scene.planner.apply_report(&key, &report, scene.now);
    assert_eq!(scene.reconcile().wake_at.expect("a timer").since(scene.now), Duration::from_millis(100));
    scene.now = at(1);
    assert_eq!(scene.reconcile().delete.len(), 1);
}

#[test]
fn a_server_that_asks_for_time_is_given_it() {
    for (asked, given) in [(None, 100), (Some(7), 7_000), (Some(3600), 60_000)] {
        let mut scene = Scene::of("set d\nrev d-1\nnode a");
        let plan = scene.reconcile();
        let retry_after = asked.map(Duration::from_secs);
        scene.act(plan, |_| refused(CallError::TooManyRequests { retry_after }));
        let wait = scene.reconcile().wake_at.expect("a timer").since(scene.now);
        assert_eq!(wait, Duration::from_millis(given));
    }
}

#[test]
fn a_namespace_that_is_being_deleted_is_no_failure() {
    let world = format!("set d\nrev d-1\n{}", each("a b c d", "node $"));
    let mut scene = Scene::of(&world);
    let (calls, report) = carry_out(scene.reconcile(), |call| match call {
        PlannedCall::CreatePod { .. } => refused(CallError::NamespaceTerminating),
        call => ok(call),
    });
    expect![[r#"
        create pods on c  refused: the namespace is being terminated
        update daemonsets/status d
    "#]]
    .assert_eq(&calls);
    assert_eq!(report.events, [], "no event for each pod that cannot be");
    let key = scene.key();
    scene.planner.apply_report(&key, &report, scene.now);
    expect![[r#"
        wait  a call failed; next attempt at 2026-01-01T00:01:00Z
        wake at 60
    "#]]
    .assert_eq(&text(&scene.reconcile()));
}

// A call without an answer.

#[test]
fn a_create_without_an_answer_is_asked_about_before_the_next_plan() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a");
    let plan = scene.reconcile();
    scene.act(plan, |call| {
        if matches!(call, PlannedCall::CreatePod { .. }) { refused(CallError::NoAnswer) } else { ok(call) }
    });
    expect![[r#"
        wait  a call failed; next attempt at 2026-01-01T00:00:00Z
        wake at 0
    "#]]
    .assert_eq(&text(&scene.reconcile()));
    scene.now = at(1);
    let plan = scene.reconcile();
    expect![[r#"
        list the pods
        wake at 11
    "#]]
    .assert_eq(&text(&plan));
    // It had happened: nothing is planned until the cache shows it.
    scene.act(plan, |_| Response::Pods(vec![("u".into(), 4_711, false)]));
    expect![[r#"
        wait  waiting for the watch to deliver 1 write
        wake at 11
    "#]]
    .assert_eq(&text(&scene.reconcile()));
    let pod = parse("set d\nrev d-1\nnode a\npod x on=a rv=4711").pods.remove(0);
    assert_eq!(scene.event(Kind::Pods, "ADDED", &pod), [scene.key()]);
    assert_eq!(scene.reconcile().create, []);
}

#[test]
fn a_create_that_did_not_happen_is_made_again() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a");
    let plan = scene.reconcile();
    scene.act(plan, |call| {
        if matches!(call, PlannedCall::CreatePod { .. }) { refused(CallError::NoAnswer) } else { ok(call) }
    });
    scene.now = at(1);
    let plan = scene.reconcile();
    scene.act(plan, |_| Response::Pods(Vec::new()));
    assert_eq!(scene.reconcile().create.len(), 1);
}

#[test]
fn a_list_that_fails_is_not_made_again_at_once() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a");
    let mut waits = Vec::new();
    let plan = scene.reconcile();
    scene.act(plan, |_| refused(CallError::NoAnswer));
    for _ in 0..4 {
        let until = scene.reconcile().wake_at.expect("a timer");
        waits.push(until.since(scene.now).as_millis());
        scene.now = until;
        let plan = scene.reconcile();
        assert!(plan.confirm);
        scene.act(plan, |_| refused(CallError::Server("boom".to_owned())));
    }
    assert_eq!(waits, [100, 200, 400, 800]);
}

#[test]
fn creates_that_never_get_an_answer_wait_longer_each_time_although_the_lists_between_succeed() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a");
    let mut waits = Vec::new();
    for _ in 0..4 {
        let plan = scene.reconcile();
        assert_eq!(plan.create.len(), 1);
        scene.act(plan, |call| {
            if matches!(call, PlannedCall::CreatePod { .. }) {
                refused(CallError::NoAnswer)
            } else {
                ok(call)
            }
        });
        let until = scene.reconcile().wake_at.expect("a timer");
        waits.push(until.since(scene.now).as_millis());
        scene.now = until;
        let plan = scene.reconcile();
        assert!(plan.confirm);
        scene.act(plan, |_| Response::Pods(Vec::new()));
    }
    assert_eq!(waits, [100, 200, 400, 800]);
}

#[test]
fn a_delete_without_an_answer_is_asked_about_too() {
    let world = "set d\nrev d-1\nnode a taint=x:NoExecute\npod x on=a ready uid=u";
    for (alive, want) in [(true, 1), (false, 0)] {
        let mut scene = Scene::of(world);
        let plan = scene.reconcile();
        scene.act(plan, |call| {
            if matches!(call, PlannedCall::DeletePod { .. }) {
                refused(CallError::NoAnswer)
            } else {
                ok(call)
            }
        });
        scene.now = at(1);
        let plan = scene.reconcile();
        assert!(plan.confirm);
        // Alive: it did not happen, so it is made again. Terminating: the cache will show it.
        scene.act(plan, |_| Response::Pods(vec![("u".into(), 1, !alive)]));
        assert_eq!(scene.reconcile().delete.len(), want);
    }
}

// The gate.

#[test]
fn no_plan_before_every_kind_that_was_written_has_come_back() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a");
    let plan = scene.reconcile();
    scene.act(plan, granted(5_000));
    expect![[r#"
        wait  waiting for the watch to deliver 2 writes
        wake at 10
    "#]]
    .assert_eq(&text(&scene.reconcile()));
    // The pods have come this far, the sets have not.
    assert_eq!(scene.planner.apply_bookmark(Kind::Pods, 5_000), []);
    expect![[r#"
        wait  waiting for the watch to deliver 1 write
        wake at 10
    "#]]
    .assert_eq(&text(&scene.reconcile()));
    assert_eq!(scene.planner.apply_bookmark(Kind::Sets, 4_999), []);
    assert_eq!(
        scene.planner.apply_bookmark(Kind::Sets, 5_000),
        [scene.key()],
        "this opens the gate, so the set is looked at"
    );
    assert_eq!(scene.reconcile().waiting, None);
}

#[test]
fn a_pod_first_seen_terminating_opens_the_gate() {
    // K03: upstream waits for an ADD of a live pod, which never comes.
    let mut scene = Scene::of("set d\nrev d-1\nnode a");
    let plan = scene.reconcile();
    scene.act(plan, |call| {
        if matches!(call, PlannedCall::CreatePod { .. }) {
            WROTE(2_000)
        } else {
            refused(CallError::NotFound)
        }
    });
    let until = scene.reconcile().wake_at.expect("a timer");
    scene.now = until;
    assert!(scene.reconcile().waiting.is_some());
    let pod = parse("set d\nrev d-1\nnode a\npod x on=a deleting rv=2001").pods.remove(0);
    assert_eq!(scene.event(Kind::Pods, "ADDED", &pod), [scene.key()]);
    assert_eq!(scene.reconcile().waiting, None);
    assert_eq!(scene.event(Kind::Pods, "DELETED", &pod), [scene.key()]);
    assert_eq!(scene.reconcile().create.len(), 1);
}

#[test]
fn of_two_deletes_both_must_be_seen() {
    // X01: two updates of one terminating pod do not stand for two pods.
    let world = "now 1000\nset d template=2 max-unavailable=2\nrev d-1 template=1\nrev d-2 template=2\n"
        .to_owned()
        + &each("a b c e", "node $")
        + &each("a b c e", "pod p-$ on=$ rev=1 ready");
    let mut scene = Scene::of(&world);
    let plan = scene.reconcile();
    let gone: Vec<String> = plan.delete.iter().map(|it| it.0.key.name.to_string()).collect();
    assert_eq!(gone.len(), 2);
    scene.act(plan, granted(1));
    let pod = |name: &str, rv: u64, words: &str| {
        let node = &name[2..];
        parse(&format!("{world}pod x on={node} rev=1 rv={rv} deleting uid=pod/default/{name} {words}"))
            .pods
            .pop()
            .map(|mut it| {
                it["metadata"]["name"] = name.into();
                it["metadata"]["uid"] = parse(&world)
                    .pods
                    .iter()
                    .find(|it| it["metadata"]["name"] == name)
                    .expect("it")["metadata"]["uid"]
                    .clone();
                it
            })
            .expect("a pod")
    };
    scene.event(Kind::Pods, "MODIFIED", &pod(&gone[0], 2_020, "ready"));
    scene.event(Kind::Pods, "MODIFIED", &pod(&gone[0], 2_021, "unready"));
    expect![[r#"
        wait  waiting for the watch to deliver 1 write
        wake at 1010
    "#]]
    .assert_eq(&text(&scene.reconcile()));
    let keys = scene.event(Kind::Pods, "MODIFIED", &pod(&gone[1], 2_025, "ready"));
    assert_eq!(keys, [scene.key()]);
    let plan = scene.reconcile();
    assert_eq!((plan.waiting, plan.delete.len()), (None, 0), "both are down, and that is what is allowed");
}

#[test]
fn a_failed_write_is_not_waited_for() {
    // S7.
    let mut scene = Scene::of("set d\nrev d-1\nnode a\nnode b taint=x:NoExecute\npod y on=b ready");
    let plan = scene.reconcile();
    scene.act(plan, |_| refused(CallError::Forbidden("no".to_owned())));
    scene.now = at(1);
    let plan = scene.reconcile();
    assert_eq!((plan.waiting, plan.create.len(), plan.delete.len()), (None, 1, 1));
}

#[test]
fn behind_a_server_s_error_the_write_may_have_been_done() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a\nnode b taint=x:NoExecute\npod y on=b ready");
    let plan = scene.reconcile();
    scene.act(plan, |_| refused(CallError::Server("etcdserver: request timed out".to_owned())));
    scene.now = at(1);
    let plan = scene.reconcile();
    assert!(plan.confirm, "first it is found out which pods there are");
    assert_eq!((plan.create.len(), plan.delete.len()), (0, 0));
}

#[test]
fn a_closed_gate_always_has_a_timer_and_asks_in_the_end() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a");
    let plan = scene.reconcile();
    scene.act(plan, granted(9_000));
    let mut out = String::new();
    for _ in 0..5 {
        let plan = scene.reconcile();
        let until = plan.wake_at.expect("a timer");
        out += &format!(
            "{}: confirm={} relist={} until {}\n",
            second(scene.now),
            plan.confirm,
            plan.relist,
            second(until)
        );
        if plan.confirm {
            scene.act(plan, |_| Response::Pods(vec![("u".into(), 9_000, false)]));
        }
        scene.now = until;
    }
    expect![[r#"
        0: confirm=false relist=false until 10
        10: confirm=true relist=false until 20
        20: confirm=true relist=false until 30
        30: confirm=true relist=true until 40
        40: confirm=true relist=true until 50
    "#]]
    .assert_eq(&out);
}

#[test]
fn a_clock_that_was_set_back_makes_no_wait_longer() {
    let mut scene = Scene::of("now 5000\nset d\nrev d-1\nnode a");
    let plan = scene.reconcile();
    scene.act(plan, granted(9_000));
    let _ = scene.reconcile();
    scene.now = at(1_000);
    let plan = scene.reconcile();
    assert_eq!(plan.wake_at, Some(at(1_010)));
    // The same for a call that failed.
    let mut scene = Scene::of("now 5000\nset d\nrev d-1\nnode a");
    let plan = scene.reconcile();
    scene.act(plan, |_| refused(CallError::Server("boom".to_owned())));
    scene.now = at(1_000);
    assert!(scene.reconcile().wake_at.expect("a timer") <= at(1_030));
}

#[test]
fn no_plan_is_made_before_all_four_kinds_are_listed() {
    use muster_engine::controller::Event;
    use muster_engine::daemonset::plan::Settings;
    use muster_engine::daemonset::planner::Planner;
    let world = parse("set d\nrev d-1\nnode a");
    let mut shared = Interner::default();
    for missing in Kind::ALL {
        let mut planner = Planner::new(Settings::default());
        for (kind, objects) in world::kinds(&world).into_iter().filter(|it| it.0 != missing) {
            let items = objects.iter().map(|it| {
                let line = serde_json::json!({"type": "ADDED", "object": it}).to_string();
                facts::decode_watch_event(kind, line.as_bytes(), &mut shared)
                    .expect("an object")
                    .into_fact()
                    .expect("a fact")
            });
            let items = items.collect();
            assert_eq!(
                planner.apply(Event::Listed { kind: kind.index(), facts: items, resource_version: 1 }),
                []
            );
        }
        let key = ObjectKey::new("default", "d");
        assert_eq!(planner.reconcile(&key, at(0)), None, "without {missing:?}");
        let keys =
            planner.apply(Event::Listed { kind: missing.index(), facts: Vec::new(), resource_version: 1 });
        assert_eq!(keys.len(), usize::from(missing != Kind::Sets));
    }
}

/// The Degraded condition that a plan writes, if it writes a status.
fn degraded(plan: &Plan) -> String {
    let conditions = plan.status.iter().flat_map(|it| &it.conditions);
    let found = conditions.filter(|it| it.kind.as_str() == "Degraded");
    found.map(|it| format!("{:?} {}: {}", it.status, it.reason, it.message)).collect()
}

#[test]
fn degraded_gives_the_reason_while_pods_are_refused() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a\nnode b");
    let refuse = |message: &str| {
        let message = message.to_owned();
        move |call: &PlannedCall| match call {
            PlannedCall::CreatePod { .. } => refused(CallError::Forbidden(message.clone())),
            call => ok(call),
        }
    };
    let plan = scene.reconcile();
    assert_eq!(degraded(&plan), "False AsExpected: no failing or misscheduled pods");
    let missing = "error looking up service account default/npd: serviceaccount \"npd\" not found";
    scene.act(plan, refuse(&format!("pods \"d-x7k2p\" is forbidden: {missing}")));
    scene.now = at(1);
    let plan = scene.reconcile();
    assert_eq!(degraded(&plan), format!("True FailedCreate: pods cannot be created: {missing}"));
    // The account is there now: the next pods are created, and nothing is degraded any more.
    scene.act(plan, |call| match call {
        PlannedCall::CreatePod { .. } => WROTE(1),
        call => ok(call),
    });
    scene.now = at(2);
    assert_eq!(degraded(&scene.reconcile()), "False AsExpected: no failing or misscheduled pods");
}

#[test]
fn a_restarted_controller_keeps_the_reason_until_it_has_tried() {
    let world = "set d\nrev d-1\nnode a";
    let mut scene = Scene::of(world);
    let plan = scene.reconcile();
    scene.act(plan, |call| match call {
        PlannedCall::CreatePod { .. } => refused(quota()),
        call => ok(call),
    });
    scene.now = at(1);
    let plan = scene.reconcile();
    let written = plan.status.as_ref().expect("a status with the reason");
    // What the next process finds, with nothing in its memory.
    let mut set = parse(world).sets.remove(0);
    set["status"] = manifest::status_body(&plan.set, written)["status"].clone();
    let mut scene = Scene::of(world);
    scene.event(Kind::Sets, "MODIFIED", &set);
    scene.now = at(2);
    let plan = scene.reconcile();
    assert_eq!((plan.create.len(), degraded(&plan)), (1, String::new()), "the status says so already");
    scene.act(plan, |call| match call {
        PlannedCall::CreatePod { .. } => WROTE(1),
        call => ok(call),
    });
    assert_eq!(degraded(&scene.reconcile()), "False AsExpected: no failing or misscheduled pods");
}

#[test]
fn a_terminating_namespace_does_not_degrade_a_set() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a");
    let mut round = |refusal: CallError, now: i64| {
        let plan = scene.reconcile();
        scene.act(plan, |call| match call {
            PlannedCall::CreatePod { .. } => refused(refusal.clone()),
            call => ok(call),
        });
        scene.now = at(now);
        degraded(&scene.reconcile())
    };
    assert!(round(quota(), 100).starts_with("True FailedCreate"));
    let well = "False AsExpected: no failing or misscheduled pods";
    assert_eq!(round(CallError::NamespaceTerminating, 200), well, "the reason is outdated");
    assert_eq!(round(quota(), 300), well, "no pod can be created, whatever is refused first");
}

#[test]
fn a_server_that_fails_once_does_not_degrade_a_set() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a");
    let mut said = Vec::new();
    for round in 1..=16 {
        let plan = scene.reconcile();
        if !plan.confirm {
            said.push(degraded(&plan).split(' ').nth(1).unwrap_or("-").to_owned());
        }
        scene.act(plan, |call| match call {
            PlannedCall::CreatePod { .. } => refused(CallError::Server("failed calling webhook".to_owned())),
            PlannedCall::ListPods => Response::Pods(Vec::new()),
            call => ok(call),
        });
        scene.now = at(60 * round);
    }
    // The condition reports the sixth failure in a row.
    let told = [["AsExpected:"; 6].as_slice(), &["FailedCreate:"; 2]].concat();
    assert_eq!(said, told);
}
