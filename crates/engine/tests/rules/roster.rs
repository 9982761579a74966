use expect_test::expect;
use serde_json::json;

use super::world::{Scene, at, each, granted, names, second, text};
use super::{check, check_changed};

#[test]
fn of_several_pods_the_bound_oldest_smallest_is_kept() {
    check(
        "
        now 100
        set d
        rev d-1
        node bound
        node oldest
        node name
        pod b1 for=bound made=1
        pod b2 on=bound made=50 ready
        pod o1 on=oldest made=50 ready
        pod o2 on=oldest made=20 ready
        pod o3 on=oldest made=90 ready
        pod n2 on=name made=20 ready
        pod n1 on=name made=20 ready
        ",
        expect![[r#"
            oldest  delete o1  surplus pod; o2 is kept
            oldest  delete o3  surplus pod; o2 is kept
            name  delete n2  surplus pod; n1 is kept
            bound  delete b1  surplus pod; b2 is kept
        "#]],
    );
}

#[test]
fn surplus_pods_are_deleted_except_unmatched_ones() {
    // Upstream: (2 creates, 5 deletes); what does not match is released.
    let world = format!(
        "set d\nrev d-1\n{}{}pod one-1 on=n1 ready\n{}{}",
        each(&names("n", 5), "node $"),
        each("other-1 other-2", "pod $ on=n4 ready unlabel=app"),
        each("1 2", "pod two-$ on=n2 ready made=$"),
        each("1 2 3 4 5", "pod five-$ on=n3 ready made=$"),
    );
    let mut scene = Scene::of(&world);
    let claims = scene.reconcile();
    expect![[r#"
        release pod other-1
        release pod other-2
    "#]]
    .assert_eq(&text(&claims));
    let world: String =
        world.lines().filter(|it| !it.contains("other")).map(|it| format!("{it}\n")).collect();
    check(
        &world,
        expect![[r#"
        n2  delete two-2  surplus pod; two-1 is kept
        n3  delete five-2  surplus pod; five-1 is kept
        n3  delete five-3  surplus pod; five-1 is kept
        n3  delete five-4  surplus pod; five-1 is kept
        n3  delete five-5  surplus pod; five-1 is kept
        n4  create  no pod on the node
        n5  create  no pod on the node
        wake at 600
    "#]],
    );
}

#[test]
fn pods_on_nodes_that_the_selector_leaves_out_go_whatever_their_number() {
    check(
        "
        set d node-selector=zone:x
        rev d-1
        node a label=zone:x
        node b label=zone:x
        node c
        pod d-a1 on=a ready made=1
        pod d-a2 on=a ready made=2
        pod d-c1 on=c ready
        pod d-c2 on=c ready
        pod d-c3 on=c failed
        pod d-c4 on=c deleting
        ",
        expect![[r#"
            a  delete d-a2  surplus pod; d-a1 is kept
            c  delete d-c1  the node selector requires zone=x
            c  delete d-c2  the node selector requires zone=x
            c  delete d-c3  the node selector requires zone=x
            b  create  no pod on the node
            wake at 600
        "#]],
    );
}

#[test]
fn failed_pods_go_and_none_is_created_in_the_same_plan() {
    check(
        "set d\nrev d-1\nnode a\npod d-1 on=a ready",
        expect![[r#"
        nothing
    "#]],
    );
    check(
        "set d\nrev d-1\nnode a",
        expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]],
    );
    check(
        "set d\nrev d-1\nnode a\npod d-1 on=a failed=Evicted",
        expect![[r#"
        a  delete d-1  failed: Evicted
        event FailedDaemonPod: Found failed daemon pod default/d-1 on node a, will try to kill it
        wake at 600
    "#]],
    );
    check(
        "set d\nrev d-1\nnode a\npod d-1 on=a failed\npod d-2 on=a ready made=1\npod d-3 on=a ready made=2\npod d-4 on=a ready made=3",
        expect![[r#"
            a  delete d-1  failed
            a  delete d-3  surplus pod; d-2 is kept
            a  delete d-4  surplus pod; d-2 is kept
            event FailedDaemonPod: Found failed daemon pod default/d-1 on node a, will try to kill it
        "#]],
    );
}

#[test]
fn a_failed_pod_never_costs_a_running_one_its_place() {
    check(
        "set d\nrev d-1\nnode a\npod f on=a failed made=1\npod x on=a ready made=2\npod y on=a ready made=3",
        expect![[r#"
            a  delete f  failed
            a  delete y  surplus pod; x is kept
            event FailedDaemonPod: Found failed daemon pod default/f on node a, will try to kill it
        "#]],
    );
}

#[test]
fn succeeded_pods_are_replaced_too() {
    check(
        "set d\nrev d-1\nnode a\npod d-1 on=a succeeded",
        expect![[r#"
        a  delete d-1  succeeded
        event SucceededDaemonPod: Found succeeded daemon pod default/d-1 on node a, will try to delete it
        wake at 600
    "#]],
    );
}

#[test]
fn failed_pod_backoff_doubles_up_to_fifteen_minutes() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a");
    let mut waits = Vec::new();
    let mut now = 0;
    for round in 0..13 {
        scene.then(&format!("now {now}\nset d\nrev d-1\nnode a\npod d-{round} on=a failed"));
        let since = now;
        // Too early: it is left alone, a timer stands, and asking makes the wait no longer.
        while scene.reconcile_at(now).delete.is_empty() {
            let plan = scene.reconcile();
            assert!(plan.create.is_empty());
            now = second(plan.wake_at.expect("a timer"));
            assert_eq!(scene.reconcile_at(now - 1).delete, []);
        }
        waits.push(now - since);
        let plan = scene.reconcile_at(now);
        scene.act(plan, granted(1));
    }
    expect!["[0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]"].assert_eq(&format!("{waits:?}"));
}

#[test]
fn a_new_generation_is_a_new_try() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a\npod d-1 on=a failed");
    let plan = scene.reconcile();
    scene.act(plan, granted(1));
    scene.then("set d\nrev d-1\nnode a\npod d-2 on=a failed");
    assert_eq!(scene.reconcile().delete.len(), 0);
    scene.then("set d gen=2\nrev d-1\nnode a\npod d-2 on=a failed");
    assert_eq!(scene.reconcile().delete.len(), 1);
}

#[test]
fn after_half_an_hour_without_a_failure_the_wait_starts_over() {
    let mut scene = Scene::of("set d\nrev d-1\nnode a\npod d-1 on=a failed");
    for (now, wait) in [(0, 1), (1, 2), (3 + 1801, 1)] {
        scene.then(&format!("now {now}\nset d\nrev d-1\nnode a\npod d-{now} on=a failed"));
        let plan = scene.reconcile();
        assert_eq!(plan.delete.len(), 1, "at {now}");
        scene.act(plan, granted(1));
        scene.then(&format!("now {now}\nset d\nrev d-1\nnode a\npod d-{now}x on=a failed"));
        assert_eq!(scene.reconcile().wake_at, Some(at(now + wait)));
    }
}

#[test]
fn a_pod_that_is_terminating_holds_its_node() {
    check(
        "set d\nrev d-1\nnode a\npod d-1 on=a ready deleting",
        expect![[r#"
        nothing
        wake at 600
    "#]],
    );
}

#[test]
fn a_finished_pod_that_only_a_finalizer_holds_blocks_nothing() {
    check(
        "set d\nrev d-1\nnode a\npod d-1 on=a failed deleting finalizer=x/y",
        expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]],
    );
    check(
        "set d\nrev d-1\nnode a\npod d-1 on=a succeeded deleting finalizer=x/y",
        expect![[r#"
        a  create  no pod on the node
        wake at 600
    "#]],
    );
}

#[test]
fn pods_of_a_node_that_is_gone_are_left_to_the_garbage_collector_unless_they_never_started() {
    check(
        "set d\nrev d-1\nnode a\npod d-a on=a ready\npod d-b on=b ready\npod d-c for=c\npod d-e for=e deleting",
        expect![[r#"
            c  delete d-c  its node was deleted
        "#]],
    );
}

#[test]
fn a_pod_that_is_already_terminating_is_not_deleted_again() {
    check(
        "set d node-selector=zone:x\nrev d-1\nnode a\nnode b label=zone:x\npod d-a on=a deleting",
        expect![[r#"
            b  create  no pod on the node
            wake at 600
        "#]],
    );
}

#[test]
fn a_pending_pod_counts_for_its_target_node() {
    check(
        "set d\nrev d-1\nnode a\npod d-1 for=a",
        expect![[r#"
        nothing
        wake at 600
    "#]],
    );
}

#[test]
fn a_pod_that_names_no_one_node_is_of_none() {
    let affinity = |names: serde_json::Value| {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]}]}}})
    };
    for names in [json!(["a", "b"]), json!([])] {
        check_changed(
            "set d\nrev d-1\nnode a\npod d-1 for=a",
            |world| world.pods[0]["spec"]["affinity"] = affinity(names.clone()),
            expect![[r#"
                a  create  no pod on the node
                wake at 600
            "#]],
        );
    }
    // Where it is bound wins over where it was meant to be.
    check_changed(
        "set d\nrev d-1\nnode a\nnode b\npod d-1 on=b ready",
        |world| world.pods[0]["spec"]["affinity"] = affinity(json!(["a"])),
        expect![[r#"
            a  create  no pod on the node
            wake at 600
        "#]],
    );
}

#[test]
fn a_plan_creates_and_deletes_at_most_one_burst() {
    let nodes = each(&names("n", 300), "node $");
    let plan = Scene::of(&format!("set d\nrev d-1\n{nodes}")).reconcile();
    assert_eq!((plan.create.len(), plan.delete.len()), (250, 0));
    let pods = each(&names("n", 300), "pod d-$ on=$ failed");
    let plan = Scene::of(&format!("set d\nrev d-1\n{nodes}{pods}")).reconcile();
    assert_eq!((plan.create.len(), plan.delete.len()), (0, 250));
    // A burst of one does not take from the other.
    let half =
        each(&names("x", 300), "node $ taint=x:NoExecute") + &each(&names("x", 300), "pod d-$ on=$ ready");
    let plan = Scene::of(&format!("set d\nrev d-1\n{nodes}{half}")).reconcile();
    assert_eq!((plan.create.len(), plan.delete.len()), (250, 250));
}

#[test]
fn a_set_that_is_being_deleted_writes_nothing() {
    check(
        "set d deleting\nnode a\nnode b\npod d-1 on=a failed\npod o on=a ready orphan",
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn a_flapping_label_creates_and_deletes_one_pod_each_time() {
    check(
        "set d node-selector=on:yes\nrev d-1\nnode a label=on:yes\npod d-1 on=a deleting",
        expect![[r#"
        nothing
        wake at 600
    "#]],
    );
}
