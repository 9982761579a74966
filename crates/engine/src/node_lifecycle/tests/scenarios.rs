//! Each rule as a scenario.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use expect_test::expect;

use super::*;

#[test]
fn a_node_without_heartbeats_becomes_unknown_and_recovers() {
    check(
        400,
        "
        node n1 ready
        node n2 ready
        pod daemon on=n1 tolerates=unreachable tolerates=not-ready
        pod web on=n1 tolerates=unreachable:30 tolerates=not-ready:30
        pod bare on=n1
        15 node n1 silent
        300 node n1 heartbeats
        300 node n1 ready
        ",
        expect![[r#"
              60 read the lease of node n1
              60 set conditions of node n1 to Unknown: Ready MemoryPressure DiskPressure PIDPressure
              60 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
              60 patch node n1 taints [unreachable:NoSchedule@60 unreachable:NoExecute@60]
              60 mark pod a/bare as not ready
              60 mark pod a/daemon as not ready
              60 mark pod a/web as not ready
              60 event Pod bare: NodeNotReady Node is not ready
              60 event Pod daemon: NodeNotReady Node is not ready
              60 event Pod web: NodeNotReady Node is not ready
              60 event Pod bare: TaintManagerEviction Marking for deletion Pod a/bare
              60 mark pod a/bare as DisruptionTarget
              60 delete pod a/bare
              90 event Pod web: TaintManagerEviction Marking for deletion Pod a/web
              90 mark pod a/web as DisruptionTarget
              90 delete pod a/web
             300 patch node n1 taints []
            --
            node n1 True []
            node n2 True []
            pod bare not ready, terminating
            pod daemon not ready
            pod web not ready, terminating
        "#]],
    );
}

#[test]
fn a_short_grace_period_works_with_a_single_healthy_node() {
    let config = Config { node_monitor_grace_period: Duration::from_secs(15), ..Config::default() };
    check_with_config(
        config,
        100,
        "
        node n1 ready
        node n2 ready
        15 node n1 silent
        ",
        expect![[r#"
              25 read the lease of node n1
              25 set conditions of node n1 to Unknown: Ready MemoryPressure DiskPressure PIDPressure
              25 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
              25 patch node n1 taints [unreachable:NoSchedule@25 unreachable:NoExecute@25]
            --
            node n1 Unknown [unreachable:NoSchedule@25 unreachable:NoExecute@25]
            node n2 True []
        "#]],
    );
}

#[test]
fn a_status_heartbeat_counts_like_a_lease_renewal() {
    check(
        130,
        "
        node n1 ready silent
        node n2 ready
        40 node n1 status-heartbeat
        ",
        expect![[r#"
              90 read the lease of node n1  -> not found
              90 set conditions of node n1 to Unknown: Ready MemoryPressure DiskPressure PIDPressure
              90 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
              90 patch node n1 taints [unreachable:NoSchedule@90 unreachable:NoExecute@90]
            --
            node n1 Unknown [unreachable:NoSchedule@90 unreachable:NoExecute@90]
            node n2 True []
        "#]],
    );
}

#[test]
fn lease_renewals_suffice_for_a_node_without_conditions() {
    check(
        300,
        "
        node n1 new
        node n2 new silent
        node n3 ready
        ",
        expect![[r#"
              60 read the lease of node n2  -> not found
              60 set conditions of node n2 to Unknown: Ready MemoryPressure DiskPressure PIDPressure
              60 patch node n2 taints [unreachable:NoSchedule@60 unreachable:NoExecute@60]
            --
            node n1 - []
            node n2 Unknown [unreachable:NoSchedule@60 unreachable:NoExecute@60]
            node n3 True []
        "#]],
    );
}

#[test]
fn each_condition_and_a_cordon_has_its_taint() {
    check(
        60,
        "
        node n1 ready memory taint=mine:NoSchedule@5 taint=memory-pressure:NoExecute taint=dedicated:PreferNoSchedule
        node n2 ready
        node n3 ready network
        10 node n1 disk pid
        20 node n1 ready
        30 node n2 cordoned
        40 node n2 uncordoned
        50 node n3 network-up
        ",
        expect![[r#"
               0 patch node n1 taints [mine:NoSchedule@5 memory-pressure:NoExecute dedicated:PreferNoSchedule memory-pressure:NoSchedule@0]
               0 patch node n3 taints [network-unavailable:NoSchedule@0]
              10 patch node n1 taints [mine:NoSchedule@5 memory-pressure:NoExecute dedicated:PreferNoSchedule memory-pressure:NoSchedule@0 disk-pressure:NoSchedule@10 pid-pressure:NoSchedule@10]
              20 patch node n1 taints [mine:NoSchedule@5 memory-pressure:NoExecute dedicated:PreferNoSchedule]
              30 patch node n2 taints [unschedulable:NoSchedule@30]
              40 patch node n2 taints []
              50 patch node n3 taints []
            --
            node n1 True [mine:NoSchedule@5 memory-pressure:NoExecute dedicated:PreferNoSchedule]
            node n2 True []
            node n3 True []
        "#]],
    );
}

#[test]
fn a_new_node_loses_its_taints_when_it_is_ready() {
    check(
        30,
        "
        node n2 ready
        10 node n1 not-ready taint=not-ready:NoSchedule
        20 node n1 ready
        ",
        expect![[r#"
              10 patch node n1 taints [not-ready:NoSchedule not-ready:NoExecute@10]
              20 patch node n1 taints []
            --
            node n1 True []
            node n2 True []
        "#]],
    );
}

#[test]
fn toleration_seconds_count_from_the_first_health_taint() {
    check(
        200,
        "
        node n1 ready
        node n2 ready
        pod web on=n1 tolerates=unreachable:100 tolerates=not-ready:100
        10 node n1 not-ready
        12 node n1 silent
        ",
        expect![[r#"
              10 patch node n1 taints [not-ready:NoSchedule@10 not-ready:NoExecute@10]
              60 read the lease of node n1
              60 set conditions of node n1 to Unknown: Ready MemoryPressure DiskPressure PIDPressure
              60 patch node n1 taints [unreachable:NoSchedule@60 unreachable:NoExecute@10]
              60 mark pod a/web as not ready
              60 event Pod web: NodeNotReady Node is not ready
             110 event Pod web: TaintManagerEviction Marking for deletion Pod a/web
             110 mark pod a/web as DisruptionTarget
             110 delete pod a/web
            --
            node n1 Unknown [unreachable:NoSchedule@60 unreachable:NoExecute@10]
            node n2 True []
            pod web not ready, terminating
        "#]],
    );
}

#[test]
fn a_removed_taint_cancels_evictions() {
    check(
        200,
        "
        node n1 ready
        pod web on=n1 tolerates=mine:60
        pod other on=n1 tolerates=mine:300
        10 node n1 taint=mine:NoExecute
        50 node n1 untainted
        60 node n1 taint=mine:NoExecute
        ",
        expect![[r#"
              50 event Pod other: TaintManagerEviction Cancelling deletion of Pod a/other
              50 event Pod web: TaintManagerEviction Cancelling deletion of Pod a/web
             120 event Pod web: TaintManagerEviction Marking for deletion Pod a/web
             120 mark pod a/web as DisruptionTarget
             120 delete pod a/web
            --
            node n1 True [mine:NoExecute]
            pod other ready
            pod web ready, terminating
        "#]],
    );
}

#[test]
fn the_first_toleration_of_a_taint_and_the_shortest_time_of_all_taints_count() {
    check(
        500,
        "
        node n1 ready taint=one:NoExecute taint=two:NoExecute
        pod long on=n1 tolerates=one:300 tolerates=*:20
        pod ever on=n1 tolerates=one tolerates=two tolerates=*:20
        pod once on=n1 tolerates=one:300 tolerates=two
        pod none on=n1 tolerates=one
        pod less on=n1 tolerates=*:-5
        pod nowhere tolerates=one
        ",
        expect![[r#"
               0 event Pod less: TaintManagerEviction Marking for deletion Pod a/less
               0 event Pod none: TaintManagerEviction Marking for deletion Pod a/none
               0 mark pod a/less as DisruptionTarget
               0 mark pod a/none as DisruptionTarget
               0 delete pod a/less
               0 delete pod a/none
              20 event Pod long: TaintManagerEviction Marking for deletion Pod a/long
              20 mark pod a/long as DisruptionTarget
              20 delete pod a/long
             300 event Pod once: TaintManagerEviction Marking for deletion Pod a/once
             300 mark pod a/once as DisruptionTarget
             300 delete pod a/once
            --
            node n1 True [one:NoExecute two:NoExecute]
            pod ever ready
            pod less ready, terminating
            pod long ready, terminating
            pod none ready, terminating
            pod nowhere ready
            pod once ready, terminating
        "#]],
    );
}

#[test]
fn toleration_seconds_survive_a_restart_but_unhealthy_nodes_get_their_grace_period() {
    check(
        200,
        "
        node n1 unknown silent taint=unreachable:NoSchedule taint=unreachable:NoExecute@-1000
        node n2 ready taint=mine:NoExecute@-1000
        node n3 unknown silent taint=unreachable:NoSchedule taint=unreachable:NoExecute@-1000
        pod lost on=n1 bound=-2000 tolerates=*:300 not-ready
        pod mine on=n2 bound=-2000 tolerates=*:300
        pod back on=n3 bound=-2000 tolerates=*:300 not-ready
        20 node n3 heartbeats
        20 node n3 ready
        ",
        expect![[r#"
               0 event Pod mine: TaintManagerEviction Marking for deletion Pod a/mine
               0 mark pod a/mine as DisruptionTarget
               0 delete pod a/mine
              20 patch node n3 taints []
              20 event Pod back: TaintManagerEviction Cancelling deletion of Pod a/back
              50 event Pod lost: TaintManagerEviction Marking for deletion Pod a/lost
              50 mark pod a/lost as DisruptionTarget
              50 delete pod a/lost
            --
            node n1 Unknown [unreachable:NoSchedule unreachable:NoExecute@-1000]
            node n2 True [mine:NoExecute@-1000]
            node n3 True []
            pod back not ready
            pod lost not ready, terminating
            pod mine ready, terminating
        "#]],
    );
}

#[test]
fn toleration_seconds_count_from_the_binding_of_a_later_pod() {
    check(
        200,
        "
        node n1 ready taint=mine:NoExecute@-1000
        30 pod late on=n1 tolerates=*:100
        ",
        expect![[r#"
             130 event Pod late: TaintManagerEviction Marking for deletion Pod a/late
             130 mark pod a/late as DisruptionTarget
             130 delete pod a/late
            --
            node n1 True [mine:NoExecute@-1000]
            pod late ready, terminating
        "#]],
    );
}

#[test]
fn nodes_are_tainted_no_execute_one_after_the_other() {
    check(
        100,
        "
        node n1 ready
        node n2 ready
        node n3 ready
        node n4 ready
        node n5 ready
        node other1 ready zone=b
        node other2 ready zone=b
        10 node n1 not-ready
        10 node n2 not-ready
        11 node other1 not-ready
        15 node n2 ready
        16 node n2 not-ready
        ",
        expect![[r#"
              10 patch node n1 taints [not-ready:NoSchedule@10 not-ready:NoExecute@10]
              10 patch node n2 taints [not-ready:NoSchedule@10]
              11 patch node other1 taints [not-ready:NoSchedule@11 not-ready:NoExecute@11]
              15 patch node n2 taints []
              16 patch node n2 taints [not-ready:NoSchedule@16]
              20 patch node n2 taints [not-ready:NoSchedule@16 not-ready:NoExecute@20]
            --
            node n1 False [not-ready:NoSchedule@10 not-ready:NoExecute@10]
            node n2 False [not-ready:NoSchedule@16 not-ready:NoExecute@20]
            node n3 True []
            node n4 True []
            node n5 True []
            node other1 False [not-ready:NoSchedule@11 not-ready:NoExecute@11]
            node other2 True []
        "#]],
    );
}

#[test]
fn no_pod_is_evicted_in_a_small_zone_that_is_partly_down() {
    check(
        100,
        "
        node n1 ready
        node n2 ready
        node n3 ready
        node n4 ready
        node n5 ready
        10 node n1 not-ready
        11 node n2 not-ready
        12 node n3 not-ready
        80 node n3 ready
        ",
        expect![[r#"
              10 patch node n1 taints [not-ready:NoSchedule@10 not-ready:NoExecute@10]
              11 patch node n2 taints [not-ready:NoSchedule@11]
              12 patch node n3 taints [not-ready:NoSchedule@12]
              80 patch node n2 taints [not-ready:NoSchedule@11 not-ready:NoExecute@80]
              80 patch node n3 taints []
            --
            node n1 False [not-ready:NoSchedule@10 not-ready:NoExecute@10]
            node n2 False [not-ready:NoSchedule@11 not-ready:NoExecute@80]
            node n3 True []
            node n4 True []
            node n5 True []
        "#]],
    );
}

#[test]
fn pods_are_evicted_from_a_zone_without_ready_nodes() {
    check(
        60,
        "
        node n1 ready
        node m1 ready zone=b
        node m2 ready zone=b
        10 node m1 not-ready
        10 node m2 not-ready
        ",
        expect![[r#"
              10 patch node m1 taints [not-ready:NoSchedule@10 not-ready:NoExecute@10]
              10 patch node m2 taints [not-ready:NoSchedule@10]
              20 patch node m2 taints [not-ready:NoSchedule@10 not-ready:NoExecute@20]
            --
            node m1 False [not-ready:NoSchedule@10 not-ready:NoExecute@10]
            node m2 False [not-ready:NoSchedule@10 not-ready:NoExecute@20]
            node n1 True []
        "#]],
    );
}

#[test]
fn no_pod_is_evicted_while_no_node_is_ready() {
    check(
        300,
        "
        node n1 ready
        node n2 ready
        pod web on=n1 tolerates=*:60
        5 node n1 silent
        15 node n2 silent
        200 node n2 heartbeats
        200 node n2 ready
        ",
        expect![[r#"
              50 read the lease of node n1
              50 set conditions of node n1 to Unknown: Ready MemoryPressure DiskPressure PIDPressure
              50 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
              50 patch node n1 taints [unreachable:NoSchedule@50 unreachable:NoExecute@50]
              50 mark pod a/web as not ready
              50 event Pod web: NodeNotReady Node is not ready
              60 read the lease of node n2
              60 set conditions of node n2 to Unknown: Ready MemoryPressure DiskPressure PIDPressure
              60 event Node n2: NodeNotReady Node n2 status is now: NodeNotReady
              60 patch node n1 taints [unreachable:NoSchedule@50]
              60 patch node n2 taints [unreachable:NoSchedule@60]
              60 event Pod web: TaintManagerEviction Cancelling deletion of Pod a/web
             200 patch node n2 taints []
             250 patch node n1 taints [unreachable:NoSchedule@50 unreachable:NoExecute@250]
            --
            node n1 Unknown [unreachable:NoSchedule@50 unreachable:NoExecute@250]
            node n2 True []
            pod web not ready
        "#]],
    );
}

#[test]
fn an_excluded_node_does_not_count_as_ready() {
    check(
        60,
        "
        node n1 ready
        node out ready excluded
        10 node n1 not-ready
        ",
        expect![[r#"
              10 patch node n1 taints [not-ready:NoSchedule@10]
            --
            node n1 False [not-ready:NoSchedule@10]
            node out True []
        "#]],
    );
}

#[test]
fn after_a_gap_of_the_controller_every_node_gets_its_grace_period() {
    check(
        200,
        "
        node n1 ready
        node n2 ready silent
        35 suspended until 100
        ",
        expect![[r#"
             151 read the lease of node n2  -> not found
             151 set conditions of node n2 to Unknown: Ready MemoryPressure DiskPressure PIDPressure
             151 event Node n2: NodeNotReady Node n2 status is now: NodeNotReady
             151 patch node n2 taints [unreachable:NoSchedule@151 unreachable:NoExecute@151]
            --
            node n1 True []
            node n2 Unknown [unreachable:NoSchedule@151 unreachable:NoExecute@151]
        "#]],
    );
}

#[test]
fn a_delayed_watch_makes_no_node_unknown() {
    check(
        130,
        "
        node n1 ready
        node n2 ready
        15 watch-stalled
        90 relisted
        ",
        expect![[r#"
              60 read the lease of node n1
              60 read the lease of node n2
            --
            node n1 True []
            node n2 True []
        "#]],
    );
}

#[test]
fn an_unresponsive_server_extends_the_grace_period() {
    check(
        200,
        "
        node n1 ready
        node n2 ready
        12 node n1 silent
        40 no-response
        70 responses
        ",
        expect![[r#"
              60 read the lease of node n1  -> no answer in time
              60 read the lease of node n1  -> no answer in time
              60 read the lease of node n1  -> no answer in time
              60 read the lease of node n1  -> no answer in time
              61 read the lease of node n1  -> no answer in time
              63 read the lease of node n1  -> no answer in time
              66 read the lease of node n1  -> no answer in time
              72 read the lease of node n1
             122 read the lease of node n1
             122 set conditions of node n1 to Unknown: Ready MemoryPressure DiskPressure PIDPressure
             122 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
             122 patch node n1 taints [unreachable:NoSchedule@122 unreachable:NoExecute@122]
            --
            node n1 Unknown [unreachable:NoSchedule@122 unreachable:NoExecute@122]
            node n2 True []
        "#]],
    );
}

#[test]
fn after_a_silence_of_all_nodes_the_first_heartbeat_restarts_every_grace_period() {
    check(
        130,
        "
        node n1 ready
        node n2 ready
        15 node n1 silent
        15 node n2 silent
        55 node n1 heartbeats
        ",
        expect![[r#"
             110 read the lease of node n2
             110 set conditions of node n2 to Unknown: Ready MemoryPressure DiskPressure PIDPressure
             110 event Node n2: NodeNotReady Node n2 status is now: NodeNotReady
             110 patch node n2 taints [unreachable:NoSchedule@110 unreachable:NoExecute@110]
            --
            node n1 True []
            node n2 Unknown [unreachable:NoSchedule@110 unreachable:NoExecute@110]
        "#]],
    );
}

#[test]
fn a_node_with_another_uid_has_no_history() {
    check(
        100,
        "
        node n1 ready
        node n2 ready
        pod web on=n1 tolerates=mine:50
        15 node n1 silent
        30 node n1 taint=mine:NoExecute
        40 node n1 uid=other
        70 node n1 deleted
        ",
        expect![[r#"
            node n2 True []
            pod web ready
        "#]],
    );
}

#[test]
fn deprecated_label_aliases_are_set() {
    check(
        10,
        "
        node n1 ready os
        node n2 ready os cordoned
        ",
        expect![[r#"
               0 patch node n1 label beta.kubernetes.io/os=linux
               0 patch node n2 taints [unschedulable:NoSchedule@0] label beta.kubernetes.io/os=linux
            --
            node n1 True []
            node n2 True [unschedulable:NoSchedule@0]
        "#]],
    );
}

#[test]
fn a_large_zone_that_is_partly_down_has_the_secondary_rate() {
    let mut cluster =
        TestCluster::of(&(0..60).map(|it| format!("node n{it:02} ready\n")).collect::<String>());
    cluster.run(9);
    for it in 0..40 {
        cluster.apply_line(&format!("node n{it:02} not-ready"));
    }
    cluster.run(309);
    let evicting = cluster.log.lines().filter(|it| it.contains("NoExecute"));
    let evicting: Vec<&str> =
        evicting.map(|it| it.split(" taints").next().unwrap_or_default().trim()).collect();
    expect![[r#"
        9 patch node n00
        109 patch node n01
        209 patch node n02
        309 patch node n03"#]]
    .assert_eq(&evicting.join("\n"));
}

#[test]
fn a_clock_set_back_makes_no_grace_period_longer() {
    let mut lifecycle = NodeLifecycle::new(Config::default());
    let names = |keys: Vec<Key>| keys.iter().map(|it| format!("{it:?} ")).collect::<String>();
    let put = |name: &str, at_s| {
        let fact = NodeLifecycleObject::Node(node(name, &["ready"], None, Time::from_secs(at_s)));
        Event::Applied { kind: NODE_KIND, fact }
    };
    lifecycle.apply(put("n1", 10_000), Time::from_secs(10_000));
    let reconcile = lifecycle.reconcile(&Key::Node("n1".into()), Time::from_secs(10_000));
    assert_eq!(reconcile.wake_at, Some(Time::from_secs(10_050)));
    let keys = lifecycle.apply(put("n2", 100), Time::from_secs(100));
    expect![[r#"Node("n2") Zone("") Node("n1") Node("n2") Zone("") Zone("") "#]].assert_eq(&names(keys));
    let reconcile = lifecycle.reconcile(&Key::Node("n1".into()), Time::from_secs(100));
    assert_eq!(reconcile.wake_at, Some(Time::from_secs(150)));
    // Without a heartbeat, the rest of the grace period is as long as without the step.
    for second in 101..150 {
        let _ = lifecycle.reconcile(&Key::GapCheck, Time::from_secs(second));
        let reconcile = lifecycle.reconcile(&Key::Node("n1".into()), Time::from_secs(second));
        assert_eq!(
            (reconcile.calls.len(), reconcile.wake_at),
            (0, Some(Time::from_secs(150))),
            "at {second}"
        );
    }
    let reconcile = lifecycle.reconcile(&Key::Node("n1".into()), Time::from_secs(150));
    assert!(
        matches!(reconcile.calls.as_slice(), [NodeLifecycleCall::ReadLease { .. }]),
        "{:?}",
        reconcile.calls
    );
}

#[test]
fn no_node_becomes_unknown_after_a_full_disk_of_the_server() {
    check(
        400,
        "
        node n1 ready
        node n2 ready
        15 disk-full
        118 disk-freed
        ",
        expect![[r#"
              60 read the lease of node n1
              60 read the lease of node n2
              60 set conditions of node n1 to Unknown: Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
              60 set conditions of node n2 to Unknown: Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
             110 read the lease of node n1
             110 read the lease of node n2
             110 set conditions of node n1 to Unknown: Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
            --
            node n1 True []
            node n2 True []
        "#]],
    );
}

#[test]
fn a_node_that_fails_during_a_full_disk_becomes_unknown_after_its_grace_period() {
    check(
        400,
        "
        node n1 ready
        node n2 ready
        15 disk-full
        20 node n1 silent
        100 disk-freed
        ",
        expect![[r#"
              60 read the lease of node n1
              60 read the lease of node n2
              60 set conditions of node n1 to Unknown: Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
              60 set conditions of node n2 to Unknown: Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
             150 read the lease of node n1
             150 set conditions of node n1 to Unknown: Ready MemoryPressure DiskPressure PIDPressure
             150 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
             150 patch node n1 taints [unreachable:NoSchedule@150 unreachable:NoExecute@150]
            --
            node n1 Unknown [unreachable:NoSchedule@150 unreachable:NoExecute@150]
            node n2 True []
        "#]],
    );
}

#[test]
fn after_a_full_disk_one_write_tests_whether_writes_succeed() {
    check(
        400,
        "
        node n1 ready
        node n2 ready
        15 disk-full
        20 node n1 silent
        20 node n2 silent
        100 disk-freed
        ",
        expect![[r#"
              60 read the lease of node n1
              60 read the lease of node n2
              60 set conditions of node n1 to Unknown: Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
              60 set conditions of node n2 to Unknown: Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
             110 read the lease of node n1
             110 read the lease of node n2
             110 set conditions of node n1 to Unknown: Ready MemoryPressure DiskPressure PIDPressure
             110 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
             110 patch node n1 taints [unreachable:NoSchedule@110]
             160 patch node n1 taints [unreachable:NoSchedule@110 unreachable:NoExecute@160]
             160 set conditions of node n2 to Unknown: Ready MemoryPressure DiskPressure PIDPressure
             160 event Node n2: NodeNotReady Node n2 status is now: NodeNotReady
             160 patch node n1 taints [unreachable:NoSchedule@110]
             160 patch node n2 taints [unreachable:NoSchedule@160]
            --
            node n1 Unknown [unreachable:NoSchedule@110]
            node n2 Unknown [unreachable:NoSchedule@160]
        "#]],
    );
}
