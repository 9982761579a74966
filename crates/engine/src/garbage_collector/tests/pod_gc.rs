//! The pod garbage collector.

use expect_test::expect;

use super::*;

/// The same until the quarantine of a missing node is over.
fn check_with_quarantine(scenario: &str, expected: Expect) {
    let mut cluster = TestCluster::of(scenario);
    cluster.until = Time::from_secs(55);
    cluster.run();
    cluster.log += &format!("at {} s\n", cluster.now.as_micros() / 1_000_000);
    expected.assert_eq(&cluster.report());
}

#[test]
fn pods_of_a_missing_node_are_deleted_after_the_quarantine_and_a_read() {
    check_with_quarantine(
        "Node n1
         Pod here on=n1
         Pod gone-1 on=n2
         Pod gone-2 on=n2 terminated=1
         Pod gone-3 on=n3
         Pod nowhere",
        expect![[r#"
            read Node n2  -> not found
            mark Pod a/gone-1 as Failed: its node was deleted
            force-delete Pod a/gone-1: its node was deleted
            force-delete Pod a/gone-2: its node was deleted
            read Node n3  -> not found
            mark Pod a/gone-3 as Failed: its node was deleted
            force-delete Pod a/gone-3: its node was deleted
            at 40 s
            left: Pod a/here
            left: Node n1
            left: Pod a/nowhere
        "#]],
    );
}

#[test]
fn pods_of_a_node_that_the_watch_has_not_delivered_stay() {
    check_with_quarantine(
        "Node n1 unwatched
         Pod here on=n1",
        expect![[r#"
            read Node n1
            read Node n1
            at 50 s
            left: Pod a/here
            left: Node n1
        "#]],
    );
}

#[test]
fn pods_of_a_node_that_registers_again_stay() {
    let mut cluster = TestCluster::of("Pod here on=n1");
    cluster.run();
    cluster.now = Time::from_secs(30);
    let node = object(&["Node", "n1"], 70);
    cluster.server.insert("n1".into(), node.clone());
    cluster.apply(applied(node));
    cluster.until = Time::from_secs(100);
    cluster.run();
    expect![[r#"
        left: Pod a/here
        left: Node n1
    "#]]
    .assert_eq(&cluster.report());
}

#[test]
fn pods_that_are_deleted_before_they_are_bound_are_force_deleted() {
    check(
        "Pod waits
         Pod leaves deleting graceful finalizer=example.com/slow
         Pod held deleting finalizer=example.com/slow",
        expect![[r#"
            mark Pod a/leaves as Failed: deleted before it was bound
            force-delete Pod a/leaves: deleted before it was bound
            left: Pod a/held deleting
            left: Pod a/leaves deleting
            left: Pod a/waits
        "#]],
    );
}

#[test]
fn pods_that_are_deleted_on_a_node_out_of_service_are_force_deleted() {
    check(
        "Node n1 out-of-service
         Node n2
         Pod stays on=n1
         Pod leaves on=n1 deleting graceful
         Pod is-stopped on=n2 deleting graceful",
        expect![[r#"
            mark Pod a/leaves as Failed: deleted on a node that is out of service
            left: Pod a/is-stopped deleting
            left: Node n1
            left: Node n2
            left: Pod a/stays
        "#]],
    );
}

#[test]
fn surplus_terminated_pods_are_deleted_evicted_ones_first_then_the_oldest() {
    let mut cluster = TestCluster::of("Node n1");
    cluster.collector.pod_gc.terminated_max = 2;
    for line in [
        "Pod old on=n1 terminated=1",
        "Pod older on=n1 terminated=0",
        "Pod evicted on=n1 terminated=9 evicted",
        "Pod new on=n1 terminated=5",
        "Pod newer on=n1 terminated=6",
        "Pod runs on=n1",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let pod = object(&words, 40);
        cluster.server.insert(pod.uid.clone(), pod.clone());
        cluster.apply(applied(pod));
    }
    cluster.run();
    expect![[r#"
        force-delete Pod a/evicted: terminated, and too many terminated pods exist
        force-delete Pod a/old: terminated, and too many terminated pods exist
        force-delete Pod a/older: terminated, and too many terminated pods exist
        left: Node n1
        left: Pod a/new
        left: Pod a/newer
        left: Pod a/runs
    "#]]
    .assert_eq(&cluster.report());
}

#[test]
fn owners_decide_about_pods_of_a_node_in_quarantine() {
    check(
        "Pod gone on=n1 of=DaemonSet/web!",
        expect![[r#"
        read DaemonSet a/web web  -> not found
        delete Pod a/gone Background: its owners no longer exist
    "#]],
    );
}
