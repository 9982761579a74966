//! Which object an owner reference refers to, and when its dependents are deleted.

use expect_test::expect;

use super::*;

#[test]
fn objects_with_an_owner_or_without_references_stay() {
    check(
        "DaemonSet web
         Pod web-1 of=DaemonSet/web!
         Pod alone",
        expect![[r#"
            left: Pod a/alone
            left: DaemonSet a/web
            left: Pod a/web-1 of web
        "#]],
    );
}

#[test]
fn dependents_of_a_missing_owner_are_deleted_after_one_read() {
    check(
        "Pod web-1 of=DaemonSet/web!
         Pod web-2 of=DaemonSet/web!
         Pod web-3 of=DaemonSet/web!
         ConfigMap of-a-pod of=Pod/web-3",
        expect![[r#"
            read DaemonSet a/web web  -> not found
            delete Pod a/web-1 Background: its owners no longer exist
            delete Pod a/web-2 Background: its owners no longer exist
            delete Pod a/web-3 Background: its owners no longer exist
            read Pod a/web-3 web-3  -> not found
            delete ConfigMap a/of-a-pod Background: its owners no longer exist
        "#]],
    );
}

#[test]
fn an_object_with_the_name_and_another_uid_is_not_the_owner() {
    check(
        "DaemonSet web uid=new
         Pod old-1 of=DaemonSet/web@old!
         Pod new-1 of=DaemonSet/web@new!",
        expect![[r#"
            read DaemonSet a/web old
            delete Pod a/old-1 Background: its owners no longer exist
            left: DaemonSet a/web
            left: Pod a/new-1 of new
        "#]],
    );
}

#[test]
fn an_owner_that_the_watch_has_not_delivered_counts() {
    check(
        "DaemonSet web unwatched
         Pod web-1 of=DaemonSet/web!",
        expect![[r#"
            read DaemonSet a/web web
            read DaemonSet a/web web
            left: DaemonSet a/web
            left: Pod a/web-1 of web
        "#]],
    );
}

#[test]
fn an_object_in_another_namespace_is_not_the_owner() {
    check(
        "DaemonSet web ns=b
         Pod web-1 of=DaemonSet/web!",
        expect![[r#"
            read DaemonSet a/web web  -> not found
            delete Pod a/web-1 Background: its owners no longer exist
            left: DaemonSet b/web
        "#]],
    );
}

#[test]
fn an_object_with_another_kind_or_name_is_not_the_owner() {
    check(
        "DaemonSet web
         Pod by-kind of=ConfigMap/web@web
         Pod by-name of=DaemonSet/other@web",
        expect![[r#"
            read ConfigMap a/web web  -> not found
            delete Pod a/by-kind Background: its owners no longer exist
            read DaemonSet a/other web  -> not found
            delete Pod a/by-name Background: its owners no longer exist
            left: DaemonSet a/web
        "#]],
    );
}

#[test]
fn a_cluster_scoped_owner_has_dependents_in_any_namespace() {
    check(
        "Node n1
         Pod mirror-1 of=Node/n1
         Pod mirror-2 ns=b of=Node/n2
         Node child of=Node/n1
         Node orphan of=Node/n2",
        expect![[r#"
            read Node n2 n2  -> not found
            delete Pod b/mirror-2 Background: its owners no longer exist
            delete Node orphan Background: its owners no longer exist
            left: Node child of n1
            left: Pod a/mirror-1 of n1
            left: Node n1
        "#]],
    );
}

#[test]
fn a_cluster_scoped_object_with_a_namespaced_owner_stays() {
    check(
        "Node n1 of=DaemonSet/web",
        expect![[r#"
        left: Node n1 of web
    "#]],
    );
}

#[test]
fn an_object_with_an_owner_of_an_unserved_kind_stays() {
    check(
        "Pod p of=Widget/w of=DaemonSet/gone",
        expect![[r#"
        left: Pod a/p of w of gone
    "#]],
    );
}

#[test]
fn references_to_absent_and_waiting_owners_are_removed_if_one_owner_is_solid() {
    check(
        "DaemonSet web
         DaemonSet waits deleting finalizer=foregroundDeletion
         Pod p of=DaemonSet/web of=DaemonSet/gone of=DaemonSet/waits!",
        expect![[r#"
            read DaemonSet a/gone gone  -> not found
            remove owners gone waits of Pod a/p: its owners no longer exist
            remove finalizer foregroundDeletion of DaemonSet a/waits
            left: Pod a/p of web
            left: DaemonSet a/web
        "#]],
    );
}
