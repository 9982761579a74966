use expect_test::expect;

use super::world::{Scene, each};
use super::{check, explained};

fn set(strategy: &str) -> String {
    format!("set d template=2 {strategy}\nrev d-1 template=1 made=100\nrev d-2 template=2 made=500\n")
}

fn five(now: i64, strategy: &str, pods: &str) -> String {
    format!("now {now}\n{}{}{pods}", set(strategy), each("a b c d e", "node $"))
}

fn old(names: &str) -> String {
    each(names, "pod old-$ on=$ rev=1 ready")
}

fn new(names: &str) -> String {
    each(names, "pod new-$ on=$ ready")
}

#[test]
fn two_at_a_time_new_before_old() {
    // Upstream: TestDaemonSetUpdatesPodsWithMaxSurge.
    let world = |pods: String| five(1000, "max-surge=2", &pods);
    check(
        &world(old("a b c d e")),
        expect![[r#"
        b  create  outdated
        d  create  outdated
        wake at 1600
    "#]],
    );
    check(
        &world(old("a b c d e") + &each("a c", "pod new-$ on=$ starting")),
        expect![[r#"
        nothing
        wake at 1600
    "#]],
    );
    check(
        &world(old("a b c d e") + &new("a c")),
        expect![[r#"
        a  delete old-a  new pod new-a is available
        c  delete old-c  new pod new-c is available
        b  create  outdated
        d  create  outdated
        wake at 1600
    "#]],
    );
    check(
        &world(old("b d e") + &new("a c") + &each("b d", "pod new-$ for=$")),
        expect![[r#"
        nothing
        wake at 1600
    "#]],
    );
    check(
        &world(old("b d e") + &new("a b c d")),
        expect![[r#"
        b  delete old-b  new pod new-b is available
        d  delete old-d  new pod new-d is available
        e  create  outdated
        wake at 1600
    "#]],
    );
    check(
        &world(old("e") + &new("a b c d e")),
        expect![[r#"
            e  delete old-e  new pod new-e is available
            wake at 1600
        "#]],
    );
    check(
        &world(new("a b c d e")),
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn beside_old_pods_that_are_not_ready_new_ones_come_at_once() {
    let pods = each("a b c d e", "pod old-$ on=$ rev=1 unready");
    check(
        &five(1000, "max-surge=1", &pods),
        expect![[r#"
        b  create  outdated and not ready
        d  create  outdated and not ready
        e  create  outdated and not ready
        a  create  outdated and not ready
        c  create  outdated and not ready
        wake at 1600
    "#]],
    );
    // And the old ones go as soon as the new ones are there, ready or not.
    check(
        &five(1000, "max-surge=1", &(pods + &each("a b c d e", "pod new-$ for=$"))),
        expect![[r#"
        b  delete old-b  old pod not ready; replaced by new-b
        d  delete old-d  old pod not ready; replaced by new-d
        e  delete old-e  old pod not ready; replaced by new-e
        a  delete old-a  old pod not ready; replaced by new-a
        c  delete old-c  old pod not ready; replaced by new-c
        wake at 1600
    "#]],
    );
}

#[test]
fn an_old_pod_that_turns_unready_gets_its_new_one_beyond_the_limit() {
    // Upstream: TestDaemonSetUpdatesAllOldPodsNotReadyMaxSurge: three are surging, a fourth is needed.
    let pods = old("a b c e")
        + &each("d", "pod old-$ on=$ rev=1 unready")
        + &each("a b c", "pod new-$ on=$ starting");
    check(
        &five(1000, "max-surge=3", &pods),
        expect![[r#"
        d  create  outdated and not ready
        wake at 1600
    "#]],
    );
}

#[test]
fn young_old_pods_that_are_ready_are_surged_within_the_limit() {
    // K08 with surge.
    let pods = each("a b c d e", "pod old-$ on=$ rev=1 ready since=995");
    let plan = Scene::of(&five(1000, "max-surge=2 min-ready=60", &pods)).reconcile();
    assert_eq!((plan.create.len(), plan.delete.len()), (2, 0));
}

#[test]
fn the_senior_ready_old_pod_stays_beside_the_new_one_and_others_go() {
    check(
        &format!(
            "now 1000\n{}node a\npod o1 on=a rev=1 ready made=1\npod o2 on=a rev=1 ready made=2\npod n1 on=a starting made=3\npod n2 on=a starting made=4",
            set("max-surge=1")
        ),
        expect![[r#"
            a  delete n2  surplus pod; n1 is kept
            a  delete o2  surplus pod; o1 is kept
            wake at 1600
        "#]],
    );
}

#[test]
fn an_unready_old_pod_beside_a_new_one_goes() {
    check(
        &format!("now 1000\n{}node a\npod old on=a rev=1 unready\npod new on=a starting", set("max-surge=1")),
        expect![[r#"
            a  delete old  old pod not ready; replaced by new
            wake at 1600
        "#]],
    );
}

#[test]
fn an_old_pod_stays_until_the_new_one_is_available() {
    let world = |now: i64| {
        format!(
            "now {now}\n{}node a\npod old on=a rev=1 ready\npod new on=a ready since=1000",
            set("max-surge=1 min-ready=15")
        )
    };
    check(
        &world(1010),
        expect![[r#"
        nothing
        wake at 1015
    "#]],
    );
    check(
        &world(1015),
        expect![[r#"
            a  delete old  new pod new is available
            wake at 1615
        "#]],
    );
}

#[test]
fn a_node_whose_only_pod_is_terminating_gets_a_new_one_even_at_the_limit() {
    let pods =
        old("b c d e") + "pod old-a on=a rev=1 ready deleting\n" + &each("b", "pod new-$ on=$ starting");
    check(
        &five(1000, "max-surge=1", &pods),
        expect![[r#"
        a  create  old pod is terminating
        wake at 1600
    "#]],
    );
}

#[test]
fn no_third_new_pod_comes_while_two_are_leaving() {
    let pods = "pod new-1 on=a ready deleting\npod new-2 on=a ready deleting\n";
    explained(
        &format!("now 1000\n{}node a\n{pods}", set("max-surge=1")),
        expect![[r#"
        a  run  new-1  2 pods are still terminating
    "#]],
    );
    check(
        &format!("now 1000\n{}node a\n{pods}", set("max-surge=1")),
        expect![[r#"
        nothing
        wake at 1600
    "#]],
    );
    check(
        &format!("now 1000\n{}node a\n{}", set("max-surge=1"), pods.lines().next().expect("a line")),
        expect![[r#"
            a  create  old pod is terminating
            wake at 1600
        "#]],
    );
}

#[test]
fn a_pod_bound_to_a_deleted_node_stops_nobody() {
    // X05.
    let world = format!("now 1000\n{}node a\nnode b\n{}", set("max-surge=1"), old("a b c"));
    check(
        &world,
        expect![[r#"
        b  create  outdated
        wake at 1600
    "#]],
    );
}

#[test]
fn a_failed_new_pod_is_replaced_before_another_comes() {
    check(
        &format!("now 1000\n{}node a\npod old on=a rev=1 ready\npod new on=a failed", set("max-surge=1")),
        expect![[r#"
            a  delete new  failed
            event FailedDaemonPod: Found failed daemon pod default/new on node a, will try to kill it
            wake at 1600
        "#]],
    );
}

#[test]
fn where_the_template_moved_on_old_pods_leave_as_others_are_available() {
    // Upstream: …NotMatchTaintsWithMaxSurge. Node a's taint is no longer tolerated: it is not the set's any more. Four are
    // wanted, five are available, so one old pod may leave; with four available none may.
    let world = |pods: &str| {
        format!(
            "now 1000\n{}node a taint=x:NoSchedule\n{}pod old-a on=a rev=1 ready tolerate=x\n{pods}",
            set("max-surge=1"),
            each("b c d e", "node $")
        )
    };
    check(
        &world(&old("b c d e")),
        expect![[r#"
        a  delete old-a  the template no longer tolerates taint x:NoSchedule
        b  create  outdated
        wake at 1600
    "#]],
    );
    check(
        &world(&(old("b c d") + &each("e", "pod old-$ on=$ rev=1 unready"))),
        expect![[r#"
        e  create  outdated and not ready
        b  create  outdated
        wake at 1600
    "#]],
    );
}

#[test]
fn a_set_that_moves_from_zone_to_zone_is_up_in_one_before_it_leaves_the_other() {
    // From y to z: new pods come to z at once, for nobody is there; old ones in y leave only as those get available.
    let world = |pods: &str| {
        format!(
            "now 1000\n{}{}{}{}{pods}",
            set("max-surge=1 tolerate=z"),
            each("y1 y2", "node $ taint=y:NoSchedule"),
            each("z1 z2", "node $ taint=z:NoSchedule"),
            each("y1 y2", "pod old-$ on=$ rev=1 ready tolerate=y"),
        )
    };
    check(
        &world(""),
        expect![[r#"
        z2  create  no pod on the node
        z1  create  no pod on the node
        wake at 1600
    "#]],
    );
    check(
        &world(&each("z1 z2", "pod new-$ on=$ starting")),
        expect![[r#"
        nothing
        wake at 1600
    "#]],
    );
    check(
        &world("pod new-z1 on=z1 ready\npod new-z2 on=z2 starting"),
        expect![[r#"
        y1  delete old-y1  the template no longer tolerates taint y:NoSchedule
        wake at 1600
    "#]],
    );
    check(
        &world(&each("z1 z2", "pod new-$ on=$ ready")),
        expect![[r#"
            y1  delete old-y1  the template no longer tolerates taint y:NoSchedule
            y2  delete old-y2  the template no longer tolerates taint y:NoSchedule
            wake at 1600
        "#]],
    );
}

#[test]
fn taints_of_node_trouble_let_an_old_pod_leave_only_as_others_are_available() {
    let world = |pods: &str| {
        format!(
            "now 1000\n{}node a not-ready taint=node.kubernetes.io/not-ready:NoSchedule\nnode b\npod old-a on=a rev=1 ready\n{pods}",
            set("max-surge=1")
        )
    };
    check(
        &world("pod old-b on=b rev=1 unready"),
        expect![[r#"
        b  create  outdated and not ready
        wake at 1600
    "#]],
    );
    check(
        &world("pod new-b on=b ready"),
        expect![[r#"
            a  delete old-a  outdated on a node with taint node.kubernetes.io/not-ready:NoSchedule
            wake at 1600
        "#]],
    );
}

#[test]
fn a_node_that_starts_its_first_pod_takes_of_the_surge() {
    // The brake makes no exception: an unavailable new pod is charged wherever it is.
    let pods = old("b c d e") + "pod new-a on=a starting\n";
    let plan = Scene::of(&five(1000, "max-surge=1", &pods)).reconcile();
    assert_eq!((plan.create.len(), plan.delete.len()), (0, 0));
}

#[test]
fn one_and_two_and_five_pods_of_one_revision() {
    check(
        &format!(
            "now 1000\nset d max-surge=1\nrev d-1\n{}pod one on=a ready\n{}{}",
            each("a b c", "node $"),
            each("1 2", "pod two-$ on=b ready made=$"),
            each("1 2 3 4 5", "pod five-$ on=c ready made=$")
        ),
        expect![[r#"
            c  delete five-2  surplus pod; five-1 is kept
            c  delete five-3  surplus pod; five-1 is kept
            c  delete five-4  surplus pod; five-1 is kept
            c  delete five-5  surplus pod; five-1 is kept
            b  delete two-2  surplus pod; two-1 is kept
        "#]],
    );
}

#[test]
fn a_pod_new_by_its_template_generation_is_new_for_surge_too() {
    // X10: upstream's surge looks at the hash only, its status at both.
    check(
        "now 1000\nset d max-surge=1 template-generation=5\nrev d-1\nnode a\npod x on=a ready hash=none generation-label=5",
        expect![[r#"
            nothing
        "#]],
    );
}
