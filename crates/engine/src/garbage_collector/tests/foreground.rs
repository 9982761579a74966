//! Foreground deletion.

use expect_test::expect;

use super::*;

#[test]
fn foreground_deletion_removes_the_owner_last() {
    check(
        "DaemonSet web deleting finalizer=foregroundDeletion
         Pod web-1 of=DaemonSet/web!
         Pod web-2 of=DaemonSet/web!",
        expect![[r#"
            read DaemonSet a/web web
            delete Pod a/web-1 Background: owner is deleted in the foreground
            delete Pod a/web-2 Background: owner is deleted in the foreground
            remove finalizer foregroundDeletion of DaemonSet a/web
        "#]],
    );
}

#[test]
fn foreground_deletion_waits_only_for_blocking_dependents() {
    check(
        "DaemonSet web deleting finalizer=foregroundDeletion
         Pod slow of=DaemonSet/web finalizer=example.com/slow
         Pod quick of=DaemonSet/web!",
        expect![[r#"
            read DaemonSet a/web web
            delete Pod a/quick Background: owner is deleted in the foreground
            delete Pod a/slow Background: owner is deleted in the foreground
            remove finalizer foregroundDeletion of DaemonSet a/web
            left: Pod a/slow of web deleting
        "#]],
    );
}

#[test]
fn foreground_deletion_waits_for_the_finalizers_of_a_dependent() {
    check(
        "DaemonSet web deleting finalizer=foregroundDeletion
         Pod held of=DaemonSet/web! finalizer=example.com/slow",
        expect![[r#"
            read DaemonSet a/web web
            delete Pod a/held Background: owner is deleted in the foreground
            left: Pod a/held of web deleting
            left: DaemonSet a/web deleting
        "#]],
    );
}

#[test]
fn foreground_deletion_descends_level_by_level() {
    check(
        "DaemonSet web deleting finalizer=foregroundDeletion
         Pod web-1 of=DaemonSet/web!
         ConfigMap of-web-1 of=Pod/web-1!",
        expect![[r#"
            read DaemonSet a/web web
            delete Pod a/web-1 Foreground: owner is deleted in the foreground
            read Pod a/web-1 web-1
            delete ConfigMap a/of-web-1 Background: owner is deleted in the foreground
            remove finalizer foregroundDeletion of Pod a/web-1
            remove finalizer foregroundDeletion of DaemonSet a/web
        "#]],
    );
}

#[test]
fn foreground_deletion_of_a_cycle_ends() {
    check(
        "ConfigMap one deleting finalizer=foregroundDeletion of=ConfigMap/two!
         ConfigMap two of=ConfigMap/one!",
        expect![[r#"
            read ConfigMap a/one one
            unblock the owners of ConfigMap a/two
            remove finalizer foregroundDeletion of ConfigMap a/one
            read ConfigMap a/one one  -> not found
            delete ConfigMap a/two Background: its owners no longer exist
        "#]],
    );
}

#[test]
fn foreground_deletion_is_confirmed_by_a_read_before_dependents_are_deleted() {
    let mut cluster = TestCluster::of(
        "DaemonSet web deleting finalizer=foregroundDeletion
         Pod web-1 of=DaemonSet/web!",
    );
    // The deletion was changed to orphaning meanwhile, and the watch is delayed.
    let web = cluster.server.get_mut("web").unwrap();
    (web.finalizers, web.resource_version) = (Vec::from([FINALIZER_ORPHAN.into()]), 50);
    let shown = applied(web.clone());
    let pod = Text::from("web-1");
    let read = cluster.collector.reconcile(&pod, cluster.now).calls.remove(0);
    let (outcome, _) = cluster.make(&read);
    cluster.queue.extend(cluster.collector.apply_outcome(&read, outcome, cluster.now).keys);
    cluster.apply(shown);
    cluster.run();
    expect![[r#"
        remove owners web of Pod a/web-1: owner is deleted, orphaning dependents
        remove finalizer orphan of DaemonSet a/web
        left: Pod a/web-1
    "#]]
    .assert_eq(&cluster.report());
}
