use expect_test::expect;
use muster_engine::daemonset::manifest;
use muster_engine::daemonset::plan::Settings;
use serde_json::{Value, json};

use super::check_status;
use super::world::{Scene, each, granted, parse, status_text, text};

fn set(words: &str) -> String {
    format!("now 1000\nset d template=2 {words}\nrev d-1 template=1 made=100\nrev d-2 template=2 made=500\n")
}

#[test]
fn nothing_there_yet() {
    check_status(
        "set d\nrev d-1\nnode a\nnode b",
        expect![[r#"
        desired=2 current=0 ready=0 updated=0 available=0 unavailable=2 misscheduled=0 observed=1
        Available=False since 0 TooFewAvailable: 0 of 2 nodes have an available pod; 2 nodes: no pod yet
        Progressing=True since 0 RollingOut: 0 of 2 nodes are up to date; 2 nodes: no pod yet
        Degraded=False since 0 AsExpected: no failing or misscheduled pods
    "#]],
    );
}

#[test]
fn no_nodes() {
    check_status(
        "set d\nrev d-1",
        expect![[r#"
        desired=0 current=0 ready=0 updated=0 available=0 unavailable=0 misscheduled=0 observed=1
        Available=True since 0 EnoughAvailable: 0 of 0 nodes have an available pod
        Progressing=False since 0 Complete: 0 of 0 nodes are up to date
        Degraded=False since 0 AsExpected: no failing or misscheduled pods
    "#]],
    );
}

#[test]
fn a_complete_rollout() {
    check_status(
        &format!("set d\nrev d-1\n{}{}", each("a b", "node $"), each("a b", "pod p-$ on=$ ready")),
        expect![[r#"
            desired=2 current=2 ready=2 updated=2 available=2 unavailable=0 misscheduled=0 observed=1
            Available=True since 0 EnoughAvailable: 2 of 2 nodes have an available pod
            Progressing=False since 0 Complete: 2 of 2 nodes are up to date
            Degraded=False since 0 AsExpected: no failing or misscheduled pods
        "#]],
    );
}

#[test]
fn number_ready_follows_the_pods() {
    check_status(
        "now 100\nset d min-ready=10\nrev d-1\nnode a\nnode b\nnode c\nnode e\npod a on=a ready since=50\npod b on=b ready since=95\npod c on=c starting",
        expect![[r#"
            desired=4 current=3 ready=2 updated=3 available=1 unavailable=3 misscheduled=0 observed=1
            Available=False since 100 TooFewAvailable: 1 of 4 nodes have an available pod; 1 node: no pod yet, 1 node: pod not ready, 1 node: pod ready for less than minReadySeconds
            Progressing=True since 100 RollingOut: 3 of 4 nodes are up to date; 1 node: no pod yet, 1 node: pod not ready, 1 node: pod ready for less than minReadySeconds
            Degraded=False since 100 AsExpected: no failing or misscheduled pods
        "#]],
    );
}

#[test]
fn a_no_schedule_taint_takes_a_node_from_desired_and_makes_its_pod_misscheduled() {
    check_status(
        "set d\nrev d-1\nnode a taint=x:NoSchedule\nnode b\npod a on=a ready\npod b on=b ready",
        expect![[r#"
            desired=1 current=1 ready=1 updated=1 available=1 unavailable=0 misscheduled=1 observed=1
            Available=True since 0 EnoughAvailable: 1 of 1 nodes have an available pod
            Progressing=False since 0 Complete: 1 of 1 nodes are up to date
            Degraded=True since 0 PodsMisscheduled: 1 node with a misscheduled pod
        "#]],
    );
    // A node that does not match and has no pod counts nowhere.
    check_status(
        "set d\nrev d-1\nnode a taint=x:NoSchedule\nnode b\npod b on=b ready",
        expect![[r#"
        desired=1 current=1 ready=1 updated=1 available=1 unavailable=0 misscheduled=0 observed=1
        Available=True since 0 EnoughAvailable: 1 of 1 nodes have an available pod
        Progressing=False since 0 Complete: 1 of 1 nodes are up to date
        Degraded=False since 0 AsExpected: no failing or misscheduled pods
    "#]],
    );
}

#[test]
fn the_name_of_the_template_is_not_the_name_of_a_node() {
    // B43.
    let mut scene = super::changed("set d node-name=a\nrev d-1\nnode a\nnode b", |world| {
        world.sets[0]["spec"]["template"]["metadata"]["name"] = json!("b");
        world.revisions[0]["data"]["spec"]["template"]["metadata"]["name"] = json!("b");
    });
    assert_eq!(scene.reconcile().status.expect("counts").counts.desired, 1);
}

#[test]
fn a_terminating_pod_is_neither_ready_nor_available() {
    check_status(
        "set d\nrev d-1\nnode a\npod x on=a ready deleting",
        expect![[r#"
        desired=1 current=1 ready=0 updated=1 available=0 unavailable=1 misscheduled=0 observed=1
        Available=True since 0 EnoughAvailable: 0 of 1 nodes have an available pod; 1 node: pod still terminating
        Progressing=True since 0 RollingOut: 1 of 1 nodes are up to date; 1 node: pod still terminating
        Degraded=False since 0 AsExpected: no failing or misscheduled pods
    "#]],
    );
}

#[test]
fn beside_a_terminating_old_pod_the_new_one_counts() {
    // K06.
    check_status(
        &(set("max-surge=1") + "node a\npod old on=a rev=1 ready deleting made=1\npod new on=a ready made=2"),
        expect![[r#"
            desired=1 current=1 ready=1 updated=1 available=1 unavailable=0 misscheduled=0 observed=2
            Available=True since 1000 EnoughAvailable: 1 of 1 nodes have an available pod
            Progressing=False since 1000 Complete: 1 of 1 nodes are up to date
            Degraded=False since 1000 AsExpected: no failing or misscheduled pods
        "#]],
    );
}

#[test]
fn of_an_old_and_a_new_pod_the_available_one_counts() {
    // The old one is available, the new one not yet: ready and available, not updated.
    check_status(
        &(set("max-surge=1") + "node a\npod old on=a rev=1 ready\npod new on=a starting"),
        expect![[r#"
            desired=1 current=1 ready=1 updated=0 available=1 unavailable=0 misscheduled=0 observed=2
            Available=True since 1000 EnoughAvailable: 1 of 1 nodes have an available pod; 1 node: pod not ready
            Progressing=True since 1000 RollingOut: 0 of 1 nodes are up to date; 1 node: pod not ready; no rollout budget left: 1 of 1 used
            Degraded=False since 1000 AsExpected: no failing or misscheduled pods
        "#]],
    );
    check_status(
        &(set("max-surge=1 min-ready=60")
            + "node a\npod old on=a rev=1 unready\npod new on=a ready since=990"),
        expect![[r#"
            desired=1 current=1 ready=1 updated=1 available=0 unavailable=1 misscheduled=0 observed=2
            Available=False since 1000 TooFewAvailable: 0 of 1 nodes have an available pod; 1 node: pod ready for less than minReadySeconds
            Progressing=True since 1000 RollingOut: 1 of 1 nodes are up to date; 1 node: pod ready for less than minReadySeconds; no rollout budget left: 1 of 1 used
            Degraded=False since 1000 AsExpected: no failing or misscheduled pods
        "#]],
    );
}

#[test]
fn a_pod_on_a_node_that_is_gone_counts_nowhere() {
    check_status(
        "set d\nrev d-1\nnode a\npod a on=a ready\npod b on=b ready",
        expect![[r#"
        desired=1 current=1 ready=1 updated=1 available=1 unavailable=0 misscheduled=0 observed=1
        Available=True since 0 EnoughAvailable: 1 of 1 nodes have an available pod
        Progressing=False since 0 Complete: 1 of 1 nodes are up to date
        Degraded=False since 0 AsExpected: no failing or misscheduled pods
    "#]],
    );
}

#[test]
fn an_unchanged_status_is_not_written() {
    let world = "set d gen=3 observed=3 status=desired:1,current:1,ready:1,updated:1,available:1\nrev d-1\nnode a\npod a on=a ready";
    let mut parsed = parse(world);
    let mut without = Scene::from(&parsed, Settings { conditions: false, ..Settings::default() });
    assert_eq!(status_text(&without.reconcile()), "as it is\n");
    // With conditions it is written once, and then it is right.
    let mut scene = Scene::from(&parsed, Settings::default());
    let plan = scene.reconcile();
    let body = manifest::status_body(&plan.set, &plan.status.expect("conditions"));
    parsed.sets[0]["status"] = body["status"].clone();
    scene.list(&parsed);
    assert_eq!(status_text(&scene.reconcile()), "as it is\n");
    assert_eq!(text(&scene.reconcile()), "nothing\n");
}

#[test]
fn observed_generation_never_decreases() {
    let observed = |world: &str| Scene::of(world).reconcile().status.map(|it| it.observed_generation);
    assert_eq!(observed("set d gen=7 observed=3\nrev d-1\nnode a\npod a on=a ready"), Some(7));
    assert_eq!(observed("set d gen=7 observed=9\nrev d-1\nnode a\npod a on=a ready"), Some(9));
}

#[test]
fn while_own_writes_are_awaited_nothing_is_observed() {
    // B45.
    let mut scene = Scene::of("set d gen=1\nrev d-1\nnode a");
    let plan = scene.reconcile();
    scene.act(plan, granted(9_999));
    scene.then("set d gen=2 observed=1\nrev d-1\nnode a");
    assert_eq!(scene.reconcile().status, None);
}

#[test]
fn before_the_history_is_settled_nothing_is_observed() {
    let first = Scene::of("set d template=2 observed=1\nrev d-1 template=1").reconcile().status;
    assert_eq!(first.map(|it| it.observed_generation), Some(1));
    assert_eq!(Scene::of("set d observed=0\nrev d-1\npod o orphan for=a").reconcile().status, None);
}

// Conditions.

#[test]
fn a_rollout_in_progress() {
    check_status(
        &(set("max-unavailable=1")
            + &each("a b c", "node $")
            + "pod old-b on=b rev=1 ready\npod old-c on=c rev=1 ready\npod new-a on=a starting"),
        expect![[r#"
            desired=3 current=3 ready=2 updated=1 available=2 unavailable=1 misscheduled=0 observed=2
            Available=True since 1000 EnoughAvailable: 2 of 3 nodes have an available pod; 2 nodes: pod is outdated, 1 node: pod not ready
            Progressing=True since 1000 RollingOut: 1 of 3 nodes are up to date; 2 nodes: pod is outdated, 1 node: pod not ready; no rollout budget left: 1 of 1 used
            Degraded=False since 1000 AsExpected: no failing or misscheduled pods
        "#]],
    );
}

#[test]
fn too_few_are_available_when_more_than_the_budget_are_down() {
    check_status(
        &(set("max-unavailable=1")
            + &each("a b c", "node $")
            + &each("a b c", "pod new-$ on=$ waiting=ImagePullBackOff")),
        expect![[r#"
            desired=3 current=3 ready=0 updated=3 available=0 unavailable=3 misscheduled=0 observed=2
            Available=False since 1000 TooFewAvailable: 0 of 3 nodes have an available pod; 3 nodes: pod not ready
            Progressing=True since 1000 RollingOut: 3 of 3 nodes are up to date; 3 nodes: pod not ready
            Degraded=True since 1000 PodsFailing: 3 nodes: ImagePullBackOff
        "#]],
    );
    check_status(
        &(set("max-surge=1") + &each("a b", "node $") + "pod a on=a ready\npod b on=b unready"),
        expect![[r#"
            desired=2 current=2 ready=1 updated=2 available=1 unavailable=1 misscheduled=0 observed=2
            Available=False since 1000 TooFewAvailable: 1 of 2 nodes have an available pod; 1 node: pod not ready
            Progressing=True since 1000 RollingOut: 2 of 2 nodes are up to date; 1 node: pod not ready
            Degraded=False since 1000 AsExpected: no failing or misscheduled pods
        "#]],
    );
}

#[test]
fn on_delete_waits_for_deletes() {
    check_status(
        &(set("on-delete") + "node a\nnode b\npod a on=a rev=1 ready\npod b on=b ready"),
        expect![[r#"
            desired=2 current=2 ready=2 updated=1 available=2 unavailable=0 misscheduled=0 observed=2
            Available=True since 1000 EnoughAvailable: 2 of 2 nodes have an available pod; 1 node: waiting for a user to delete the pod
            Progressing=False since 1000 WaitingForDeletes: 1 of 2 nodes are up to date; 1 node: waiting for a user to delete the pod
            Degraded=False since 1000 AsExpected: no failing or misscheduled pods
        "#]],
    );
}

#[test]
fn a_rollout_without_progress_for_ten_minutes_is_stalled_and_then_goes_on() {
    let world = |now: i64, pod: &str| {
        format!(
            "now {now}\nset d template=2\nrev d-1 template=1\nrev d-2 template=2\nnode a\nnode b\npod new-a on=a {pod}\npod old-b on=b rev=1 ready\n"
        )
    };
    let progressing = |scene: &mut Scene| {
        let plan = scene.reconcile();
        let status = status_text(&plan);
        let line = status.lines().find(|it| it.starts_with("Progressing")).expect("a condition").to_owned();
        format!("{line}; wake {:?}\n", plan.wake_at.map(super::world::second))
    };
    let mut scene = Scene::of(&world(0, "waiting=CrashLoopBackOff"));
    let mut out = progressing(&mut scene);
    for now in [599, 600, 700] {
        scene.then(&world(now, "waiting=CrashLoopBackOff"));
        out += &progressing(&mut scene);
    }
    scene.then(&world(800, "ready"));
    out += &progressing(&mut scene);
    expect![[r#"
        Progressing=True since 0 RollingOut: 1 of 2 nodes are up to date; 1 node: pod is outdated, 1 node: pod not ready; no rollout budget left: 1 of 1 used; wake Some(600)
        Progressing=True since 599 RollingOut: 1 of 2 nodes are up to date; 1 node: pod is outdated, 1 node: pod not ready; no rollout budget left: 1 of 1 used; wake Some(600)
        Progressing=False since 600 Stalled: 1 of 2 nodes are up to date; 1 node: pod is outdated, 1 node: pod not ready; no rollout budget left: 1 of 1 used; wake None
        Progressing=False since 700 Stalled: 1 of 2 nodes are up to date; 1 node: pod is outdated, 1 node: pod not ready; no rollout budget left: 1 of 1 used; wake None
        Progressing=True since 800 RollingOut: 1 of 2 nodes are up to date; 1 node: pod is outdated; wake Some(1400)
    "#]].assert_eq(&out);
}

#[test]
fn what_pods_suffer_from_is_counted_by_reason() {
    check_status(
        &(set("max-unavailable=1")
            + &each("a b c d e", "node $")
            + "pod a on=a waiting=CrashLoopBackOff\npod b on=b waiting=CrashLoopBackOff\npod c on=c waiting=ImagePullBackOff\npod e on=e failed=Evicted\npod d on=d ready"),
        expect![[r#"
            desired=5 current=5 ready=1 updated=5 available=1 unavailable=4 misscheduled=0 observed=2
            Available=False since 1000 TooFewAvailable: 1 of 5 nodes have an available pod; 4 nodes: pod not ready
            Progressing=True since 1000 RollingOut: 5 of 5 nodes are up to date; 4 nodes: pod not ready
            Degraded=True since 1000 PodsFailing: 2 nodes: CrashLoopBackOff; 1 node: Evicted; 1 node: ImagePullBackOff
        "#]],
    );
}

#[test]
fn misplaced_pods_are_said() {
    check_status(
        "set d\nrev d-1\nnode a taint=x:NoSchedule\npod a on=a ready",
        expect![[r#"
        desired=0 current=0 ready=0 updated=0 available=0 unavailable=0 misscheduled=1 observed=1
        Available=True since 0 EnoughAvailable: 0 of 0 nodes have an available pod
        Progressing=False since 0 Complete: 0 of 0 nodes are up to date
        Degraded=True since 0 PodsMisscheduled: 1 node with a misscheduled pod
    "#]],
    );
}

#[test]
fn a_condition_keeps_the_time_of_its_last_change() {
    let mut world = parse("now 500\nset d\nrev d-1\nnode a\npod a on=a ready");
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Old", "message": "old", "lastTransitionTime": "2026-01-01T00:00:07Z"});
    world.sets[0]["status"]["conditions"] =
        json!([condition("Available", "True"), condition("Degraded", "True")]);
    let mut scene = Scene::from(&world, Settings::default());
    expect![[r#"
        desired=1 current=1 ready=1 updated=1 available=1 unavailable=0 misscheduled=0 observed=1
        Available=True since 7 EnoughAvailable: 1 of 1 nodes have an available pod
        Progressing=False since 500 Complete: 1 of 1 nodes are up to date
        Degraded=False since 500 AsExpected: no failing or misscheduled pods
    "#]]
    .assert_eq(&status_text(&scene.reconcile()));
}

#[test]
fn without_conditions_none_are_written_and_those_that_are_there_stay() {
    let mut world = parse("set d\nrev d-1\nnode a\npod a on=a ready");
    let theirs = json!({"type": "Theirs", "status": "True"});
    let settings = Settings { conditions: false, ..Settings::default() };
    let status = |world: &muster_engine::scenario::World| -> Value {
        let plan = Scene::from(world, settings).reconcile();
        manifest::status_body(&plan.set, &plan.status.expect("counts"))
            .get("status")
            .cloned()
            .expect("a status")
    };
    assert_eq!(status(&world).get("conditions"), None);
    world.sets[0]["status"]["conditions"] = json!([theirs]);
    assert_eq!(status(&world)["conditions"], json!([theirs]));
}

#[test]
fn conditions_of_others_survive_what_we_write() {
    let mut world = parse("set d\nrev d-1\nnode a\npod a on=a ready");
    let theirs = json!({"type": "Theirs", "status": "True", "extra": [1]});
    world.sets[0]["status"]["conditions"] = json!([theirs]);
    world.sets[0]["status"]["newField"] = json!("kept");
    let plan = Scene::from(&world, Settings::default()).reconcile();
    let body = manifest::status_body(&plan.set, &plan.status.expect("conditions"));
    assert_eq!(body["status"]["newField"], json!("kept"));
    assert_eq!(body["status"]["conditions"][0], theirs);
    let ours: Vec<&Value> = body["status"]["conditions"]
        .as_array()
        .expect("a list")
        .iter()
        .skip(1)
        .map(|it| &it["type"])
        .collect();
    assert_eq!(ours, ["Available", "Progressing", "Degraded"]);
}
