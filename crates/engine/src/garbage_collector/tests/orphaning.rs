//! Orphaning of dependents.

use expect_test::expect;

use super::*;

#[test]
fn orphaning_removes_the_references_of_dependents() {
    check(
        "DaemonSet web deleting finalizer=orphan finalizer=example.com/other
         DaemonSet db
         Pod web-1 of=DaemonSet/web!
         Pod web-2 of=DaemonSet/web! of=DaemonSet/db
         Pod web-3 of=DaemonSet/web! deleting finalizer=example.com/slow",
        expect![[r#"
            remove owners web of Pod a/web-1: owner is deleted, orphaning dependents
            remove owners web of Pod a/web-2: owner is deleted, orphaning dependents
            remove owners web of Pod a/web-3: owner is deleted, orphaning dependents
            remove finalizer orphan of DaemonSet a/web
            left: DaemonSet a/db
            left: DaemonSet a/web deleting
            left: Pod a/web-1
            left: Pod a/web-2 of db
            left: Pod a/web-3 deleting
        "#]],
    );
}

#[test]
fn orphaning_waits_for_dependents_that_the_watch_delivers_late() {
    let mut cluster = TestCluster::of("DaemonSet web deleting finalizer=orphan");
    let delayed = object(&["Pod", "web-1", "of=DaemonSet/web!"], 50);
    cluster.server.insert(delayed.uid.clone(), delayed.clone());
    let uid = Text::from("web");
    assert_eq!(
        cluster.collector.reconcile(&uid, cluster.now),
        Reconcile { wake_at: Some(cluster.now + WATCH_SKEW_MAX), ..Reconcile::default() }
    );
    cluster.apply(applied(delayed));
    cluster.run();
    expect![[r#"
        remove owners web of Pod a/web-1: owner is deleted, orphaning dependents
        remove finalizer orphan of DaemonSet a/web
        left: Pod a/web-1
    "#]]
    .assert_eq(&cluster.report());
}

#[test]
fn finalizers_of_a_dependent_decide_about_its_own_dependents() {
    check(
        "Pod keeps of=DaemonSet/gone finalizer=orphan
         ConfigMap kept of=Pod/keeps
         Pod waits of=DaemonSet/gone finalizer=foregroundDeletion
         ConfigMap first of=Pod/waits!",
        expect![[r#"
            read DaemonSet a/gone gone  -> not found
            delete Pod a/keeps Orphan: its owners no longer exist
            remove owners keeps of ConfigMap a/kept: owner is deleted, orphaning dependents
            delete Pod a/waits Foreground: its owners no longer exist
            read Pod a/waits waits
            delete ConfigMap a/first Background: owner is deleted in the foreground
            remove finalizer foregroundDeletion of Pod a/waits
            remove finalizer orphan of Pod a/keeps
            left: ConfigMap a/kept
        "#]],
    );
}

#[test]
fn orphaning_removes_references_with_a_wrong_name_or_namespace_too() {
    check(
        "DaemonSet web deleting finalizer=orphan
         Pod wrong of=DaemonSet/other@web
         Pod elsewhere ns=b of=DaemonSet/web",
        expect![[r#"
            remove owners web of Pod b/elsewhere: owner is deleted, orphaning dependents
            remove owners web of Pod a/wrong: owner is deleted, orphaning dependents
            remove finalizer orphan of DaemonSet a/web
            left: Pod b/elsewhere
            left: Pod a/wrong
        "#]],
    );
}
