use expect_test::{Expect, expect};
use muster_engine::daemonset::plan::Settings;
use muster_engine::scenario::World;
use serde_json::{Value, json};

use super::world::{Scene, each, names, parse, status_text, text};
use super::{check, check_changed, explained};

/// A set at its second template, with this strategy.
fn set(strategy: &str) -> String {
    format!("set d template=2 {strategy}\nrev d-1 template=1 made=100\nrev d-2 template=2 made=500\n")
}

/// How many pods of which name a plan deletes and how many it creates.
fn moves(world: &str) -> (Vec<String>, usize) {
    let plan = Scene::of(world).reconcile();
    let mut deleted: Vec<String> = plan.delete.iter().map(|it| it.0.key.name.to_string()).collect();
    deleted.sort();
    (deleted, plan.create.len())
}

#[test]
fn a_budget_of_two_replaces_two_pods_at_a_time() {
    // Upstream: TestDaemonSetUpdatesPods. Old pods go two at a time, their nodes are filled, and only when the new ones are
    // available do the next two go.
    let nodes = each("a b c d e", "node $");
    let world = |pods: &str| format!("now 1000\n{}{nodes}{pods}", set("max-unavailable=2"));
    let old = |names: &str| each(names, "pod old-$ on=$ rev=1 ready");
    let new = |names: &str| each(names, "pod new-$ on=$ ready");
    check(
        &world(&old("a b c d e")),
        expect![[r#"
        b  delete old-b  outdated
        d  delete old-d  outdated
        wake at 1600
    "#]],
    );
    // Two are terminating, though still Ready: they are down.
    check(
        &world(&(old("b d e") + &each("a c", "pod old-$ on=$ rev=1 ready deleting"))),
        expect![[r#"
        nothing
        wake at 1600
    "#]],
    );
    // Their nodes are free.
    check(
        &world(&old("b d e")),
        expect![[r#"
        a  create  no pod on the node
        c  create  no pod on the node
        wake at 1600
    "#]],
    );
    // The new ones are starting.
    check(
        &world(&(old("b d e") + &each("a c", "pod new-$ on=$ starting"))),
        expect![[r#"
        nothing
        wake at 1600
    "#]],
    );
    check(
        &world(&(old("b d e") + &new("a c"))),
        expect![[r#"
        b  delete old-b  outdated
        d  delete old-d  outdated
        wake at 1600
    "#]],
    );
    check(
        &world(&(old("e") + &new("a b c d"))),
        expect![[r#"
        e  delete old-e  outdated
        wake at 1600
    "#]],
    );
    check(
        &world(&new("a b c d e")),
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn a_revision_that_never_becomes_ready_stops_at_the_budget() {
    let world = format!(
        "now 1000\n{}{}{}{}",
        set("max-unavailable=3"),
        each("a b c d e", "node $"),
        each("a b c", "pod new-$ on=$ waiting=CrashLoopBackOff"),
        each("d e", "pod old-$ on=$ rev=1 ready")
    );
    check(
        &world,
        expect![[r#"
        nothing
        wake at 1600
    "#]],
    );
}

#[test]
fn a_second_update_replaces_the_bad_pods_and_spares_the_healthy_ones() {
    let world = format!(
        "now 1000\n{}{}{}{}",
        set("max-unavailable=2"),
        each("a b c d e", "node $"),
        each("a b", "pod bad-$ on=$ rev=1 unready"),
        each("c d e", "pod good-$ on=$ rev=1 ready")
    );
    check(
        &world,
        expect![[r#"
        b  delete bad-b  outdated and not ready
        a  delete bad-a  outdated and not ready
        wake at 1600
    "#]],
    );
}

#[test]
fn unready_old_pods_are_replaced_regardless_of_the_budget() {
    // Upstream: TestDaemonSetUpdatesSaveOldHealthyPods.
    let bad = names("bad", 10);
    let good = names("good", 10);
    for allowed in 1..=11 {
        let world = format!(
            "now 1000\n{}{}{}{}",
            set(&format!("max-unavailable={allowed}")),
            each(&(bad.clone() + &good), "node $"),
            each(&bad, "pod p-$ on=$ rev=1 unready"),
            each(&good, "pod p-$ on=$ rev=1 ready"),
        );
        let (deleted, created) = moves(&world);
        let healthy = deleted.iter().filter(|it| it.contains("good")).count();
        assert_eq!((deleted.len(), healthy, created), (if allowed == 11 { 11 } else { 10 }, allowed / 11, 0));
    }
}

#[test]
fn of_a_hundred_nodes_only_the_two_old_bad_ones_are_replaced() {
    // Upstream: TestDaemonSetUpdatesAllOldNotReadyPodsAndNewNotReadyPods.
    let (new_bad, old_bad, old_good) = (names("nb", 88), names("ob", 2), names("og", 10));
    let world = format!(
        "now 1000\n{}{}{}{}{}",
        set("max-unavailable=10"),
        each(&format!("{new_bad}{old_bad}{old_good}"), "node $"),
        each(&new_bad, "pod p-$ on=$ unready"),
        each(&old_bad, "pod p-$ on=$ rev=1 unready"),
        each(&old_good, "pod p-$ on=$ rev=1 ready"),
    );
    assert_eq!(moves(&world), (vec!["p-ob1".to_owned(), "p-ob2".to_owned()], 0));
}

#[test]
fn old_pods_that_are_not_ready_are_all_replaced_at_once() {
    let world = format!(
        "now 1000\n{}{}{}",
        set("max-unavailable=3"),
        each("a b c d e", "node $"),
        each("a b c d e", "pod old-$ on=$ rev=1 unready")
    );
    assert_eq!(moves(&world).0.len(), 5);
}

#[test]
fn young_old_pods_that_are_ready_are_replaced_within_the_budget() {
    // K08: upstream takes all ten at once, for none has been Ready for minReadySeconds.
    let world = format!(
        "now 1000\n{}{}{}",
        set("max-unavailable=1 min-ready=60"),
        each(&names("n", 10), "node $"),
        each(&names("n", 10), "pod old-$ on=$ rev=1 ready since=995"),
    );
    assert_eq!(moves(&world).0.len(), 1);
}

#[test]
fn a_new_pod_counts_as_unavailable_until_min_ready_seconds() {
    let world = |now: i64| {
        format!(
            "now {now}\n{}{}pod new-a on=a ready since=1000\npod old-b on=b rev=1 ready",
            set("max-unavailable=1 min-ready=60"),
            each("a b", "node $")
        )
    };
    check(
        &world(1059),
        expect![[r#"
        nothing
        wake at 1060
    "#]],
    );
    check(
        &world(1060),
        expect![[r#"
        b  delete old-b  outdated
        wake at 1660
    "#]],
    );
}

#[test]
fn a_ready_time_in_the_future_is_waited_for_and_asked_about_in_between() {
    check(
        &format!("now 1000\n{}node a\npod new-a on=a ready since=5000", set("min-ready=10")),
        expect![[r#"
            nothing
            wake at 1030
        "#]],
    );
}

#[test]
fn a_strategy_that_changes_alone_deletes_nothing() {
    let world = each("a b c", "node $") + &each("a b c", "pod p-$ on=$ ready");
    check(
        &format!("set d gen=9 max-unavailable=3\nrev d-1\n{world}"),
        expect![[r#"
        nothing
    "#]],
    );
    check(
        &format!("set d gen=9 max-surge=3\nrev d-1\n{world}"),
        expect![[r#"
        nothing
    "#]],
    );
}

#[test]
fn percentages_are_of_the_eligible_nodes_and_rounded_up() {
    let down = |strategy: &str, nodes: usize| {
        let nodes = names("n", nodes);
        let world = format!(
            "now 1000\n{}{}{}node tainted taint=x:NoSchedule",
            set(strategy),
            each(&nodes, "node $"),
            each(&nodes, "pod old-$ on=$ rev=1 ready")
        );
        let (deleted, created) = moves(&world);
        deleted.len() + created
    };
    let mut out = String::new();
    for strategy in ["max-unavailable", "max-surge"] {
        for share in ["1%", "50%", "100%", "1", "2", "200%", "9"] {
            let of = [1, 2, 3, 8].map(|nodes| down(&format!("{strategy}={share}"), nodes).to_string());
            out += &format!("{strategy}={share}: {}\n", of.join(" "));
        }
    }
    expect![[r#"
        max-unavailable=1%: 1 1 1 1
        max-unavailable=50%: 1 1 2 4
        max-unavailable=100%: 1 2 3 8
        max-unavailable=1: 1 1 1 1
        max-unavailable=2: 1 2 2 2
        max-unavailable=200%: 1 2 3 8
        max-unavailable=9: 1 2 3 8
        max-surge=1%: 1 1 1 1
        max-surge=50%: 1 1 2 4
        max-surge=100%: 1 2 3 8
        max-surge=1: 1 1 1 1
        max-surge=2: 1 2 2 2
        max-surge=200%: 1 2 3 8
        max-surge=9: 1 2 3 8
    "#]]
    .assert_eq(&out);
}

#[test]
fn both_zero_means_one() {
    for strategy in ["max-unavailable=0", "max-unavailable=0%"] {
        let world = format!(
            "now 1000\n{}{}{}",
            set(strategy),
            each("a b c", "node $"),
            each("a b c", "pod old-$ on=$ rev=1 ready")
        );
        assert_eq!(moves(&world).0.len(), 1);
    }
}

fn with_strategy(strategy: Value) -> impl Fn(&mut World) {
    move |world| world.sets[0]["spec"]["updateStrategy"] = strategy.clone()
}

/// What happens to three old pods, one of them not ready, and what is said.
fn check_strategy(strategy: Value, want: Expect) {
    let mut world = parse(&format!(
        "now 1000\n{}{}{}pod bad on=d rev=1 unready",
        set(""),
        each("a b c d", "node $"),
        each("a b c", "pod old-$ on=$ rev=1 ready")
    ));
    with_strategy(strategy)(&mut world);
    let plan = Scene::from(&world, Settings::default()).reconcile();
    let degraded: String = status_text(&plan)
        .lines()
        .filter(|it| it.starts_with("Degraded"))
        .map(|it| format!("{it}\n"))
        .collect();
    want.assert_eq(&(text(&plan) + &degraded));
}

#[test]
fn a_share_that_cannot_be_read_replaces_nothing_and_says_so() {
    let rolling = |name: &str, share: Value| json!({"type": "RollingUpdate", "rollingUpdate": {name: share}});
    check_strategy(
        rolling("maxUnavailable", json!("5")),
        expect![[r#"
        event InvalidSpec: spec.updateStrategy.rollingUpdate.maxUnavailable: "5" is neither a whole number nor a percentage such as "10%"; no pod is replaced
        wake at 1600
        Degraded=True since 1000 InvalidSpec: spec.updateStrategy.rollingUpdate.maxUnavailable: "5" is neither a whole number nor a percentage such as "10%"; no pod is replaced
    "#]],
    );
    check_strategy(
        rolling("maxUnavailable", json!(-1)),
        expect![[r#"
        event InvalidSpec: spec.updateStrategy.rollingUpdate.maxUnavailable: -1 is neither a whole number nor a percentage such as "10%"; no pod is replaced
        wake at 1600
        Degraded=True since 1000 InvalidSpec: spec.updateStrategy.rollingUpdate.maxUnavailable: -1 is neither a whole number nor a percentage such as "10%"; no pod is replaced
    "#]],
    );
    check_strategy(
        rolling("maxSurge", json!("ten%")),
        expect![[r#"
        event InvalidSpec: spec.updateStrategy.rollingUpdate.maxSurge: "ten%" is neither a whole number nor a percentage such as "10%"; no pod is replaced
        wake at 1600
        Degraded=True since 1000 InvalidSpec: spec.updateStrategy.rollingUpdate.maxSurge: "ten%" is neither a whole number nor a percentage such as "10%"; no pod is replaced
    "#]],
    );
}

#[test]
fn a_strategy_nobody_knows_replaces_nothing_and_says_so() {
    check_strategy(
        json!({"type": "Teleport"}),
        expect![[r#"
        event InvalidSpec: spec.updateStrategy.type: "Teleport" is neither RollingUpdate nor OnDelete; no pod is replaced
        wake at 1600
        Degraded=True since 1000 InvalidSpec: spec.updateStrategy.type: "Teleport" is neither RollingUpdate nor OnDelete; no pod is replaced
    "#]],
    );
}

#[test]
fn the_default_strategy_replaces_one_pod_at_a_time() {
    for strategy in [
        json!({}),
        Value::Null,
        json!({"type": "RollingUpdate"}),
        json!({"rollingUpdate": {"maxSurge": null}}),
    ] {
        let mut world = parse(&format!(
            "now 1000\n{}{}{}",
            set(""),
            each("a b c", "node $"),
            each("a b c", "pod old-$ on=$ rev=1 ready")
        ));
        with_strategy(strategy)(&mut world);
        assert_eq!(Scene::from(&world, Settings::default()).reconcile().delete.len(), 1);
    }
}

#[test]
fn negative_seconds_and_limits_are_replaced_and_said() {
    let mut scene = super::changed("set d\nrev d-1\nnode a\npod x on=a ready", |world| {
        world.sets[0]["spec"]["minReadySeconds"] = json!(-5);
        world.sets[0]["spec"]["revisionHistoryLimit"] = json!(-1);
    });
    let plan = scene.reconcile();
    expect![[r#"
        event InvalidSpec: spec.minReadySeconds: -5 is negative; 0 is used
        event InvalidSpec: spec.revisionHistoryLimit: -1 is negative; 10 is used
        desired=1 current=1 ready=1 updated=1 available=1 unavailable=0 misscheduled=0 observed=1
        Available=True since 0 EnoughAvailable: 1 of 1 nodes have an available pod
        Progressing=False since 0 Complete: 1 of 1 nodes are up to date
        Degraded=True since 0 InvalidSpec: spec.minReadySeconds: -5 is negative; 0 is used; spec.revisionHistoryLimit: -1 is negative; 10 is used
    "#]].assert_eq(&(text(&plan) + &status_text(&plan)));
}

#[test]
fn an_affinity_that_cannot_be_read_matches_no_node_and_says_so() {
    let broken = |world: &mut World| {
        let requirement = json!({"key": "cpus", "operator": "Gt", "values": ["many"]});
        let terms = json!([{"matchExpressions": [requirement]}]);
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        world.sets[0]["spec"]["template"]["spec"]["affinity"] = affinity;
        let mut data = world.sets[0]["spec"]["template"].clone();
        data["$patch"] = json!("replace");
        world.revisions[0]["data"]["spec"]["template"] = data;
    };
    let mut scene = super::changed("set d\nrev d-1\nnode a", broken);
    let plan = scene.reconcile();
    expect![[r#"
        event InvalidSpec: spec.template.spec.affinity.nodeAffinity: cpus: Gt "many" is not a whole number; that term matches no node
        desired=0 current=0 ready=0 updated=0 available=0 unavailable=0 misscheduled=0 observed=1
        Available=True since 0 EnoughAvailable: 0 of 0 nodes have an available pod
        Progressing=False since 0 Complete: 0 of 0 nodes are up to date
        Degraded=True since 0 InvalidSpec: spec.template.spec.affinity.nodeAffinity: cpus: Gt "many" is not a whole number; that term matches no node
        a  leave  -  the node affinity is invalid: cpus: Gt "many" is not a whole number
    "#]].assert_eq(&(text(&plan) + &status_text(&plan) + &super::explanation(&scene)));
}

#[test]
fn one_failed_pod_does_not_stop_the_rollout_of_the_others() {
    // B35: the kubelet of a rejects every pod; it costs one of the two that may be down.
    let world = format!(
        "now 1000\n{}{}pod new-a on=a failed\n{}",
        set("max-unavailable=2"),
        each("a b c", "node $"),
        each("b c", "pod old-$ on=$ rev=1 ready")
    );
    check(
        &world,
        expect![[r#"
        a  delete new-a  failed
        b  delete old-b  outdated
        event FailedDaemonPod: Found failed daemon pod default/new-a on node a, will try to kill it
        wake at 1600
    "#]],
    );
}

#[test]
fn a_node_without_a_pod_counts_as_unavailable() {
    let world = format!(
        "now 1000\n{}{}{}",
        set("max-unavailable=1"),
        each("a b c", "node $"),
        each("b c", "pod old-$ on=$ rev=1 ready")
    );
    check(
        &world,
        expect![[r#"
        a  create  no pod on the node
        wake at 1600
    "#]],
    );
}

#[test]
fn a_rollback_before_the_end_restarts_only_what_was_updated() {
    // Two of five are at template 2; back to 1: the other three keep their pods.
    let world = format!(
        "now 1000\nset d template=1 gen=3 max-unavailable=5\nrev d-1 template=1 number=3\nrev d-2 template=2\n{}{}{}",
        each("a b c d e", "node $"),
        each("a b", "pod two-$ on=$ rev=2 ready"),
        each("c d e", "pod one-$ on=$ rev=1 ready")
    );
    assert_eq!(moves(&world).0, ["two-a", "two-b"]);
}

// The brake.

#[test]
fn a_revision_that_kills_its_node_stops_at_the_budget() {
    // The new pod took node a down: not ready, tainted, and even where nothing may stay the node is still charged.
    for (trouble, pod) in [
        ("not-ready since=900", "unready"),
        (
            "unknown since=900 taint=node.kubernetes.io/unreachable:NoSchedule taint=node.kubernetes.io/unreachable:NoExecute",
            "unready",
        ),
        ("not-ready since=900 taint=node.kubernetes.io/not-ready:NoSchedule", "unready"),
        ("taint=repair:NoSchedule", "unready"),
        ("taint=repair:NoExecute", "unready deleting"),
        ("unknown since=900", "unready deleting"),
    ] {
        let world = |strategy: &str| {
            format!(
                "now 1000\n{}node a {trouble}\npod new-a on=a {pod}\n{}{}",
                set(strategy),
                each("b c", "node $"),
                each("b c", "pod old-$ on=$ rev=1 ready")
            )
        };
        assert_eq!(moves(&world("max-unavailable=1")).0, [""; 0], "drain, {trouble}");
        assert_eq!(moves(&world("max-unavailable=2")).0.len(), 1, "drain, {trouble}");
        let surged = |world: &str| {
            let plan = Scene::of(world).reconcile();
            plan.create.iter().filter(|it| it.0.as_ref() != "a").count()
        };
        assert_eq!(surged(&world("max-surge=1")), 0, "surge, {trouble}");
        assert_eq!(surged(&world("max-surge=2")), 1, "surge, {trouble}");
    }
}

#[test]
fn a_node_that_was_silent_before_the_revision_is_not_its_doing_whatever_pod_it_has() {
    let world = format!(
        "now 1000\n{}node a unknown since=400\npod new-a on=a unready\nnode b\npod old-b on=b rev=1 ready",
        set("max-unavailable=1")
    );
    assert_eq!(moves(&world).0, ["old-b"]);
}

// The lost node.

fn with_lost(since: &str, strategy: &str) -> String {
    format!(
        "now 1000\n{}node lost unknown {since} taint=node.kubernetes.io/unreachable:NoSchedule taint=node.kubernetes.io/unreachable:NoExecute\n{}pod old-lost on=lost rev=1 unready\n{}",
        set(strategy),
        each("b c", "node $"),
        each("b c", "pod old-$ on=$ rev=1 ready"),
    )
}

#[test]
fn a_node_lost_before_the_revision_is_neither_charged_nor_touched() {
    check(
        &with_lost("since=499", "max-unavailable=1"),
        expect![[r#"
        b  delete old-b  outdated
        wake at 1600
    "#]],
    );
    check(
        &with_lost("since=499", "max-surge=1"),
        expect![[r#"
        b  create  outdated
        wake at 1600
    "#]],
    );
    explained(
        &with_lost("since=499", "max-unavailable=1"),
        expect![[r#"
        b  run  old-b  outdated
        c  run  old-c  outdated
        lost  keep  old-lost  node unreachable (Ready=Unknown) since 2026-01-01T00:08:19Z, before this revision
    "#]],
    );
}

#[test]
fn a_node_lost_since_the_revision_takes_from_the_budget() {
    // Exactly at the time of the revision cannot be told apart from after it.
    check(
        &with_lost("since=500", "max-unavailable=1"),
        expect![[r#"
            nothing
            wake at 1600
        "#]],
    );
    check(
        &with_lost("since=501", "max-unavailable=1"),
        expect![[r#"
            nothing
            wake at 1600
        "#]],
    );
}

#[test]
fn where_it_cannot_be_shown_a_node_is_not_lost() {
    let timeless = |world: &mut World| {
        world.nodes[0]["status"]["conditions"][0]["lastTransitionTime"] = json!("yesterday");
    };
    check_changed(
        &with_lost("since=499", "max-unavailable=1"),
        timeless,
        expect![[r#"
        lost  delete old-lost  outdated on a node with taint node.kubernetes.io/unreachable:NoSchedule
        wake at 1600
    "#]],
    );
    let never_reported = |world: &mut World| world.nodes[0]["status"]["conditions"] = json!([]);
    check_changed(
        &with_lost("since=499", "max-unavailable=1"),
        never_reported,
        expect![[r#"
        lost  delete old-lost  outdated on a node with taint node.kubernetes.io/unreachable:NoSchedule
        wake at 1600
    "#]],
    );
}

#[test]
fn a_node_that_says_it_is_not_ready_is_not_lost() {
    let world = with_lost("since=499", "max-unavailable=1")
        .replace("unknown", "not-ready")
        .replace("unreachable", "not-ready");
    check(
        &world,
        expect![[r#"
        lost  delete old-lost  outdated on a node with taint node.kubernetes.io/not-ready:NoSchedule
        wake at 1600
    "#]],
    );
}

#[test]
fn a_node_that_was_not_ready_before_the_revision_and_has_no_pod_holds_up_no_other() {
    let world = |since: &str| {
        with_lost(since, "max-unavailable=1")
            .replace("unknown", "not-ready")
            .replace("unreachable", "not-ready")
            .replace("pod old-lost on=lost rev=1 unready\n", "")
    };
    check(
        &world("since=499"),
        expect![[r#"
        b  delete old-b  outdated
        wake at 1600
    "#]],
    );
    // It may be this revision that it is not ready for.
    check(
        &world("since=500"),
        expect![[r#"
        nothing
        wake at 1600
    "#]],
    );
}

#[test]
fn a_lost_node_that_reports_again_is_updated_within_the_budget() {
    let world = format!(
        "now 1000\n{}{}{}",
        set("max-unavailable=1"),
        each("lost b c", "node $ since=990"),
        each("lost b c", "pod old-$ on=$ rev=1 ready"),
    );
    assert_eq!(moves(&world).0.len(), 1);
}

#[test]
fn a_lost_node_without_a_pod_is_not_charged_either() {
    let world =
        with_lost("since=499", "max-unavailable=1").replace("pod old-lost on=lost rev=1 unready\n", "");
    assert_eq!(moves(&world).0.len(), 1);
    let deleting =
        with_lost("since=499", "max-unavailable=1").replace("rev=1 unready\n", "rev=1 unready deleting\n");
    assert_eq!(moves(&deleting).0.len(), 1);
}

// X11: nodes that only keep their pod.

fn tainted(set_words: &str, pod_words: &str, taint: &str) -> String {
    format!(
        "now 1000\n{}node kept taint={taint}\n{}pod old-kept on=kept rev=1 {pod_words}\n{}",
        set(set_words),
        each("b c", "node $"),
        each("b c", "pod old-$ on=$ rev=1 ready"),
    )
}

#[test]
fn an_old_pod_that_never_tolerated_the_taint_is_kept_and_not_charged() {
    let world = tainted("max-unavailable=1", "ready", "x:NoSchedule");
    check(
        &world,
        expect![[r#"
        b  delete old-b  outdated
        wake at 1600
    "#]],
    );
    let plan = Scene::of(&world).reconcile();
    assert_eq!(plan.status.expect("counts").counts.misscheduled, 1);
    // Not even one that is not ready: no other could follow it.
    assert!(
        !moves(&tainted("max-unavailable=3", "unready", "x:NoSchedule")).0.contains(&"old-kept".to_owned())
    );
    assert!(!moves(&tainted("max-surge=3", "ready", "x:NoSchedule")).0.contains(&"old-kept".to_owned()));
}

#[test]
fn an_old_pod_whose_toleration_the_template_dropped_leaves_within_the_budget() {
    // Which of the three goes first is the hash's to say; that only as many go as may be down is ours.
    assert_eq!(moves(&tainted("max-unavailable=1", "ready tolerate=x", "x:NoSchedule")).0.len(), 1);
    assert_eq!(moves(&tainted("max-unavailable=2", "ready tolerate=x", "x:NoSchedule")).0.len(), 2);
    check(
        &tainted("max-unavailable=3", "ready tolerate=x", "x:NoSchedule"),
        expect![[r#"
        b  delete old-b  outdated
        kept  delete old-kept  the template no longer tolerates taint x:NoSchedule
        c  delete old-c  outdated
        wake at 1600
    "#]],
    );
    // While it is terminating it is charged; once it is gone the node is not the set's any more.
    check(
        &tainted("max-unavailable=1", "ready deleting tolerate=x", "x:NoSchedule"),
        expect![[r#"
        nothing
        wake at 1600
    "#]],
    );
    let gone = tainted("max-unavailable=1", "", "x:NoSchedule").replace("pod old-kept on=kept rev=1 \n", "");
    check(
        &gone,
        expect![[r#"
        b  delete old-b  outdated
        wake at 1600
    "#]],
    );
}

#[test]
fn an_old_pod_whose_toleration_was_dropped_and_that_is_not_up_leaves_at_once() {
    assert!(
        moves(&tainted("max-unavailable=1", "unready tolerate=x", "x:NoSchedule"))
            .0
            .contains(&"old-kept".to_owned())
    );
}

#[test]
fn of_two_taints_one_that_the_old_pod_does_not_tolerate_keeps_it() {
    let world = tainted("max-unavailable=3", "ready tolerate=x", "x:NoSchedule taint=y:NoSchedule");
    assert!(!moves(&world).0.contains(&"old-kept".to_owned()));
}

#[test]
fn taints_of_node_trouble_are_no_reason_to_keep_or_not_to_count() {
    for taint in ["node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/unreachable:NoSchedule"] {
        // Up, it goes within the budget; not up, it goes at once and is charged.
        let up = moves(&tainted("max-unavailable=3", "ready", taint)).0;
        assert_eq!(up, ["old-b", "old-c", "old-kept"]);
        let down = moves(&tainted("max-unavailable=1", "unready", taint)).0;
        assert_eq!(down, ["old-kept"]);
    }
}

#[test]
fn a_new_pod_on_a_tainted_node_is_nobody_s_business() {
    let world = tainted("max-unavailable=1", "ready", "x:NoSchedule")
        .replace("pod old-kept on=kept rev=1", "pod new-kept on=kept");
    assert_eq!(moves(&world).0.len(), 1);
}

// Order.

#[test]
fn the_order_is_the_same_every_time_and_another_for_another_revision() {
    let order = |template: usize| -> Vec<String> {
        let nodes = names("n", 9);
        let mut left: Vec<String> = nodes.split_whitespace().map(str::to_owned).collect();
        let mut order = Vec::new();
        while !left.is_empty() {
            let world = format!(
                "now 1000\nset d template={template}\nrev d-0 template=9 number=0\nrev d-t template={template}\n{}{}",
                each(&nodes, "node $"),
                each(&nodes, "pod p-$ on=$ ready rev=!")
                    .split_inclusive('\n')
                    .map(|line| {
                        let old = left.iter().any(|it| line.contains(&format!("p-{it} ")));
                        line.replace('!', if old { "9" } else { "" }).replace(" rev=\n", "\n")
                    })
                    .collect::<String>(),
            );
            let deleted = moves(&world).0;
            assert_eq!(deleted.len(), 1);
            left.retain(|it| deleted[0] != format!("p-{it}"));
            order.push(deleted[0].clone());
        }
        order
    };
    assert_eq!(order(2), order(2));
    assert_ne!(order(2), order(3));
}

#[test]
fn neighbours_are_not_updated_one_after_the_other() {
    // Ten racks of ten: the first ten nodes to be updated are of at least five racks.
    let nodes: String = (0..100).map(|it| format!("rack{}-node{} ", it / 10, it % 10)).collect();
    let world = format!(
        "now 1000\n{}{}{}",
        set("max-unavailable=10"),
        each(&nodes, "node $"),
        each(&nodes, "pod $ on=$ rev=1 ready")
    );
    let mut racks: Vec<String> = moves(&world).0.iter().map(|it| it[..5].to_owned()).collect();
    assert_eq!(racks.len(), 10);
    racks.dedup();
    assert!(5 <= racks.len(), "only {racks:?}");
}
