//! Delayed watches, lists, and failed calls.

use expect_test::expect;

use super::*;

#[test]
fn a_failed_call_is_retried_with_backoff() {
    let mut cluster = TestCluster::of("Pod p of=DaemonSet/gone failures=3");
    cluster.run();
    expect![[r#"
        read DaemonSet a/gone gone  -> not found
        delete Pod a/p Background: its owners no longer exist  -> not now
        delete Pod a/p Background: its owners no longer exist  -> not now
        delete Pod a/p Background: its owners no longer exist  -> not now
        delete Pod a/p Background: its owners no longer exist
    "#]]
    .assert_eq(&cluster.report());
    assert_eq!(cluster.now, Time::from_secs(0) + Duration::from_millis(100 + 200 + 400));
}

#[test]
fn an_object_that_has_changed_is_not_deleted() {
    let mut cluster = TestCluster::of("Pod p of=DaemonSet/gone");
    // The pod was adopted meanwhile, and the watch is delayed.
    let adopted = object(&["Pod", "p", "of=DaemonSet/web"], 60);
    cluster.server.insert("p".into(), adopted.clone());
    cluster.server.insert("web".into(), object(&["DaemonSet", "web"], 10));
    let reconcile = cluster.collector.reconcile(&"p".into(), cluster.now);
    let [GarbageCollectorCall::Read(_)] = &reconcile.calls[..] else { panic!("{reconcile:?}") };
    let requeue = cluster.collector.apply_outcome(
        &reconcile.calls[0],
        Outcome::Refused(CallError::NotFound),
        cluster.now,
    );
    let reconcile =
        requeue.keys.iter().map(|it| cluster.collector.reconcile(it, cluster.now)).next().unwrap();
    assert_eq!(cluster.make(&reconcile.calls[0]), (Outcome::Refused(CallError::Conflict), None));
    let refusal = Outcome::Refused(CallError::Conflict);
    cluster.queue.extend(cluster.collector.apply_outcome(&reconcile.calls[0], refusal, cluster.now).keys);
    cluster.apply(applied(adopted));
    cluster.run();
    expect![[r#"
        read DaemonSet a/web web
        read DaemonSet a/web web
        left: Pod a/p of web
        left: DaemonSet a/web
    "#]]
    .assert_eq(&cluster.report());
}

#[test]
fn a_delete_that_was_not_found_waits_for_the_watch() {
    check(
        "Pod p of=DaemonSet/gone stale",
        expect![[r#"
            read DaemonSet a/gone gone  -> not found
            delete Pod a/p Background: its owners no longer exist  -> not found
            read DaemonSet a/gone gone  -> not found
            delete Pod a/p Background: its owners no longer exist  -> not found
        "#]],
    );
}

#[test]
fn nothing_is_decided_before_every_kind_is_listed() {
    let mut collector = GarbageCollector::new(resources(), resources());
    for resource in resources().into_iter().take(3) {
        let pods = [object(&["Pod", "p", "of=DaemonSet/gone"], 1)];
        let objects = pods.into_iter().filter(|it| it.resource == resource).collect();
        assert_eq!(collector.apply(listed(&resource, objects), Time::from_secs(1)), []);
        assert_eq!(collector.reconcile(&"p".into(), Time::from_secs(1)), Reconcile::default());
    }
    let last = listed(&resources()[3], Vec::new());
    assert_eq!(collector.apply(last, Time::from_secs(1)), ["p".into()]);
}

#[test]
fn objects_missing_from_a_list_are_removed() {
    let mut cluster = TestCluster::of(
        "DaemonSet web
         Pod web-1 of=DaemonSet/web",
    );
    cluster.server.remove("web");
    let sets = resources()[3].clone();
    cluster.apply(listed(&sets, Vec::new()));
    cluster.run();
    expect![[r#"
        read DaemonSet a/web web  -> not found
        delete Pod a/web-1 Background: its owners no longer exist
    "#]]
    .assert_eq(&cluster.report());
}

#[test]
fn a_change_that_leaves_the_graph_as_it_is_reconciles_nothing() {
    let mut cluster = TestCluster::of(
        "DaemonSet web
         Pod web-1 of=DaemonSet/web",
    );
    cluster.run();
    let touched = |line: &[&str]| object(line, 90);
    assert_eq!(cluster.collector.apply(applied(touched(&["DaemonSet", "web"])), cluster.now), []);
    let pod = touched(&["Pod", "web-1", "of=DaemonSet/web"]);
    assert_eq!(cluster.collector.apply(applied(pod), cluster.now), []);
}
