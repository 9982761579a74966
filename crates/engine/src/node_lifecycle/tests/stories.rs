//! Each rule, as stories.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use expect_test::expect;

use super::*;

#[test]
fn a_node_that_falls_silent_is_lost_after_its_grace_and_comes_back() {
    play(
        400,
        "
        node n1 ready
        node n2 ready
        pod daemon on=n1 tolerates=unreachable tolerates=not-ready
        pod web on=n1 tolerates=unreachable:30 tolerates=not-ready:30
        pod bare on=n1
        15 node n1 silent
        300 node n1 speaks
        300 node n1 ready
        ",
        expect![[r#"
              60 read the lease of node n1
              60 node n1 has unknown Ready MemoryPressure DiskPressure PIDPressure
              60 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
              60 node n1 has taints [unreachable:NoSchedule@60 unreachable:NoExecute@60]
              60 pod a/bare is not ready
              60 pod a/daemon is not ready
              60 pod a/web is not ready
              60 event Pod bare: NodeNotReady Node is not ready
              60 event Pod daemon: NodeNotReady Node is not ready
              60 event Pod web: NodeNotReady Node is not ready
              60 event Pod bare: TaintManagerEviction Marking for deletion Pod a/bare
              60 pod a/bare says why it leaves
              60 delete pod a/bare
              90 event Pod web: TaintManagerEviction Marking for deletion Pod a/web
              90 pod a/web says why it leaves
              90 delete pod a/web
             300 node n1 has taints []
            --
            node n1 True []
            node n2 True []
            pod bare not ready, leaving
            pod daemon not ready
            pod web not ready, leaving
        "#]],
    );
}

#[test]
fn with_a_short_grace_a_node_is_lost_although_one_other_is_left() {
    let settings = Settings { grace: Duration::from_secs(15), ..Settings::default() };
    play_with(
        settings,
        100,
        "
        node n1 ready
        node n2 ready
        15 node n1 silent
        ",
        expect![[r#"
              25 read the lease of node n1
              25 node n1 has unknown Ready MemoryPressure DiskPressure PIDPressure
              25 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
              25 node n1 has taints [unreachable:NoSchedule@25 unreachable:NoExecute@25]
            --
            node n1 Unknown [unreachable:NoSchedule@25 unreachable:NoExecute@25]
            node n2 True []
        "#]],
    );
}

#[test]
fn a_heartbeat_by_status_counts_as_one_by_lease() {
    play(
        130,
        "
        node n1 ready silent
        node n2 ready
        40 node n1 events
        ",
        expect![[r#"
              90 read the lease of node n1  -> not found
              90 node n1 has unknown Ready MemoryPressure DiskPressure PIDPressure
              90 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
              90 node n1 has taints [unreachable:NoSchedule@90 unreachable:NoExecute@90]
            --
            node n1 Unknown [unreachable:NoSchedule@90 unreachable:NoExecute@90]
            node n2 True []
        "#]],
    );
}

#[test]
fn a_lease_alone_keeps_a_node_that_never_said_how_it_is() {
    play(
        300,
        "
        node n1 new
        node n2 new silent
        node n3 ready
        ",
        expect![[r#"
              60 read the lease of node n2  -> not found
              60 node n2 has unknown Ready MemoryPressure DiskPressure PIDPressure
              60 node n2 has taints [unreachable:NoSchedule@60 unreachable:NoExecute@60]
            --
            node n1 - []
            node n2 Unknown [unreachable:NoSchedule@60 unreachable:NoExecute@60]
            node n3 True []
        "#]],
    );
}

#[test]
fn each_condition_has_its_taint_and_a_cordon_too() {
    play(
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
               0 node n1 has taints [mine:NoSchedule@5 memory-pressure:NoExecute dedicated:PreferNoSchedule memory-pressure:NoSchedule@0]
               0 node n3 has taints [network-unavailable:NoSchedule@0]
              10 node n1 has taints [mine:NoSchedule@5 memory-pressure:NoExecute dedicated:PreferNoSchedule memory-pressure:NoSchedule@0 disk-pressure:NoSchedule@10 pid-pressure:NoSchedule@10]
              20 node n1 has taints [mine:NoSchedule@5 memory-pressure:NoExecute dedicated:PreferNoSchedule]
              30 node n2 has taints [unschedulable:NoSchedule@30]
              40 node n2 has taints []
              50 node n3 has taints []
            --
            node n1 True [mine:NoSchedule@5 memory-pressure:NoExecute dedicated:PreferNoSchedule]
            node n2 True []
            node n3 True []
        "#]],
    );
}

#[test]
fn a_fresh_node_is_free_when_it_is_ready() {
    play(
        30,
        "
        node n2 ready
        10 node n1 not-ready taint=not-ready:NoSchedule
        20 node n1 ready
        ",
        expect![[r#"
              10 node n1 has taints [not-ready:NoSchedule not-ready:NoExecute@10]
              20 node n1 has taints []
            --
            node n1 True []
            node n2 True []
        "#]],
    );
}

#[test]
fn another_reason_gives_pods_no_more_time() {
    play(
        200,
        "
        node n1 ready
        node n2 ready
        pod web on=n1 tolerates=unreachable:100 tolerates=not-ready:100
        10 node n1 not-ready
        12 node n1 silent
        ",
        expect![[r#"
              10 node n1 has taints [not-ready:NoSchedule@10 not-ready:NoExecute@10]
              60 read the lease of node n1
              60 node n1 has unknown Ready MemoryPressure DiskPressure PIDPressure
              60 node n1 has taints [unreachable:NoSchedule@60 unreachable:NoExecute@10]
              60 pod a/web is not ready
              60 event Pod web: NodeNotReady Node is not ready
             110 event Pod web: TaintManagerEviction Marking for deletion Pod a/web
             110 pod a/web says why it leaves
             110 delete pod a/web
            --
            node n1 Unknown [unreachable:NoSchedule@60 unreachable:NoExecute@10]
            node n2 True []
            pod web not ready, leaving
        "#]],
    );
}

#[test]
fn a_taint_that_goes_cancels() {
    play(
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
             120 pod a/web says why it leaves
             120 delete pod a/web
            --
            node n1 True [mine:NoExecute]
            pod other ready
            pod web ready, leaving
        "#]],
    );
}

#[test]
fn the_first_toleration_of_each_taint_counts_and_the_least_of_all_taints() {
    play(
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
               0 pod a/less says why it leaves
               0 pod a/none says why it leaves
               0 delete pod a/less
               0 delete pod a/none
              20 event Pod long: TaintManagerEviction Marking for deletion Pod a/long
              20 pod a/long says why it leaves
              20 delete pod a/long
             300 event Pod once: TaintManagerEviction Marking for deletion Pod a/once
             300 pod a/once says why it leaves
             300 delete pod a/once
            --
            node n1 True [one:NoExecute two:NoExecute]
            pod ever ready
            pod less ready, leaving
            pod long ready, leaving
            pod none ready, leaving
            pod nowhere ready
            pod once ready, leaving
        "#]],
    );
}

#[test]
fn a_timer_survives_a_restart_but_nobody_leaves_a_node_that_we_have_not_listened_to() {
    play(
        200,
        "
        node n1 unknown silent taint=unreachable:NoSchedule taint=unreachable:NoExecute@-1000
        node n2 ready taint=mine:NoExecute@-1000
        node n3 unknown silent taint=unreachable:NoSchedule taint=unreachable:NoExecute@-1000
        pod lost on=n1 bound=-2000 tolerates=*:300 not-ready
        pod mine on=n2 bound=-2000 tolerates=*:300
        pod back on=n3 bound=-2000 tolerates=*:300 not-ready
        20 node n3 speaks
        20 node n3 ready
        ",
        expect![[r#"
               0 event Pod mine: TaintManagerEviction Marking for deletion Pod a/mine
               0 pod a/mine says why it leaves
               0 delete pod a/mine
              20 node n3 has taints []
              20 event Pod back: TaintManagerEviction Cancelling deletion of Pod a/back
              50 event Pod lost: TaintManagerEviction Marking for deletion Pod a/lost
              50 pod a/lost says why it leaves
              50 delete pod a/lost
            --
            node n1 Unknown [unreachable:NoSchedule unreachable:NoExecute@-1000]
            node n2 True [mine:NoExecute@-1000]
            node n3 True []
            pod back not ready
            pod lost not ready, leaving
            pod mine ready, leaving
        "#]],
    );
}

#[test]
fn a_pod_that_came_later_has_its_whole_time() {
    play(
        200,
        "
        node n1 ready taint=mine:NoExecute@-1000
        30 pod late on=n1 tolerates=*:100
        ",
        expect![[r#"
             130 event Pod late: TaintManagerEviction Marking for deletion Pod a/late
             130 pod a/late says why it leaves
             130 delete pod a/late
            --
            node n1 True [mine:NoExecute@-1000]
            pod late ready, leaving
        "#]],
    );
}

#[test]
fn one_node_after_the_other() {
    play(
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
              10 node n1 has taints [not-ready:NoSchedule@10 not-ready:NoExecute@10]
              10 node n2 has taints [not-ready:NoSchedule@10]
              11 node other1 has taints [not-ready:NoSchedule@11 not-ready:NoExecute@11]
              15 node n2 has taints []
              16 node n2 has taints [not-ready:NoSchedule@16]
              20 node n2 has taints [not-ready:NoSchedule@16 not-ready:NoExecute@20]
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
fn a_small_zone_that_is_partly_down_keeps_its_pods() {
    play(
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
              10 node n1 has taints [not-ready:NoSchedule@10 not-ready:NoExecute@10]
              11 node n2 has taints [not-ready:NoSchedule@11]
              12 node n3 has taints [not-ready:NoSchedule@12]
              80 node n2 has taints [not-ready:NoSchedule@11 not-ready:NoExecute@80]
              80 node n3 has taints []
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
fn a_zone_that_is_down_as_a_whole_goes_on() {
    play(
        60,
        "
        node n1 ready
        node m1 ready zone=b
        node m2 ready zone=b
        10 node m1 not-ready
        10 node m2 not-ready
        ",
        expect![[r#"
              10 node m1 has taints [not-ready:NoSchedule@10 not-ready:NoExecute@10]
              10 node m2 has taints [not-ready:NoSchedule@10]
              20 node m2 has taints [not-ready:NoSchedule@10 not-ready:NoExecute@20]
            --
            node m1 False [not-ready:NoSchedule@10 not-ready:NoExecute@10]
            node m2 False [not-ready:NoSchedule@10 not-ready:NoExecute@20]
            node n1 True []
        "#]],
    );
}

#[test]
fn when_all_are_down_nobody_leaves() {
    play(
        300,
        "
        node n1 ready
        node n2 ready
        pod web on=n1 tolerates=*:60
        5 node n1 silent
        15 node n2 silent
        200 node n2 speaks
        200 node n2 ready
        ",
        expect![[r#"
              50 read the lease of node n1
              50 node n1 has unknown Ready MemoryPressure DiskPressure PIDPressure
              50 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
              50 node n1 has taints [unreachable:NoSchedule@50 unreachable:NoExecute@50]
              50 pod a/web is not ready
              50 event Pod web: NodeNotReady Node is not ready
              60 read the lease of node n2
              60 node n2 has unknown Ready MemoryPressure DiskPressure PIDPressure
              60 event Node n2: NodeNotReady Node n2 status is now: NodeNotReady
              60 node n1 has taints [unreachable:NoSchedule@50]
              60 node n2 has taints [unreachable:NoSchedule@60]
              60 event Pod web: TaintManagerEviction Cancelling deletion of Pod a/web
             200 node n2 has taints []
             250 node n1 has taints [unreachable:NoSchedule@50 unreachable:NoExecute@250]
            --
            node n1 Unknown [unreachable:NoSchedule@50 unreachable:NoExecute@250]
            node n2 True []
            pod web not ready
        "#]],
    );
}

#[test]
fn a_node_that_does_not_count_does_not_hold_the_others() {
    play(
        60,
        "
        node n1 ready
        node out ready excluded
        10 node n1 not-ready
        ",
        expect![[r#"
              10 node n1 has taints [not-ready:NoSchedule@10]
            --
            node n1 False [not-ready:NoSchedule@10]
            node out True []
        "#]],
    );
}

#[test]
fn after_a_gap_of_our_own_every_node_has_its_grace_anew() {
    play(
        200,
        "
        node n1 ready
        node n2 ready silent
        35 asleep until 100
        ",
        expect![[r#"
             151 read the lease of node n2  -> not found
             151 node n2 has unknown Ready MemoryPressure DiskPressure PIDPressure
             151 event Node n2: NodeNotReady Node n2 status is now: NodeNotReady
             151 node n2 has taints [unreachable:NoSchedule@151 unreachable:NoExecute@151]
            --
            node n1 True []
            node n2 Unknown [unreachable:NoSchedule@151 unreachable:NoExecute@151]
        "#]],
    );
}

#[test]
fn a_watch_that_is_late_makes_nobody_lost() {
    play(
        130,
        "
        node n1 ready
        node n2 ready
        15 deaf
        90 hears
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
fn where_nobody_answers_us_nobody_answers_the_nodes() {
    play(
        200,
        "
        node n1 ready
        node n2 ready
        12 node n1 silent
        40 mute
        70 answers
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
             122 node n1 has unknown Ready MemoryPressure DiskPressure PIDPressure
             122 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
             122 node n1 has taints [unreachable:NoSchedule@122 unreachable:NoExecute@122]
            --
            node n1 Unknown [unreachable:NoSchedule@122 unreachable:NoExecute@122]
            node n2 True []
        "#]],
    );
}

#[test]
fn when_all_are_silent_and_one_speaks_again_it_was_not_the_others() {
    play(
        130,
        "
        node n1 ready
        node n2 ready
        15 node n1 silent
        15 node n2 silent
        55 node n1 speaks
        ",
        expect![[r#"
             110 read the lease of node n2
             110 node n2 has unknown Ready MemoryPressure DiskPressure PIDPressure
             110 event Node n2: NodeNotReady Node n2 status is now: NodeNotReady
             110 node n2 has taints [unreachable:NoSchedule@110 unreachable:NoExecute@110]
            --
            node n1 True []
            node n2 Unknown [unreachable:NoSchedule@110 unreachable:NoExecute@110]
        "#]],
    );
}

#[test]
fn another_node_of_the_same_name_begins_anew() {
    play(
        100,
        "
        node n1 ready
        node n2 ready
        pod web on=n1 tolerates=mine:50
        15 node n1 silent
        30 node n1 taint=mine:NoExecute
        40 node n1 uid=other
        70 node n1 gone
        ",
        expect![[r#"
            node n2 True []
            pod web ready
        "#]],
    );
}

#[test]
fn old_labels_follow_the_new() {
    play(
        10,
        "
        node n1 ready os
        node n2 ready os cordoned
        ",
        expect![[r#"
               0 node n1 has label beta.kubernetes.io/os=linux
               0 node n2 has taints [unschedulable:NoSchedule@0] has label beta.kubernetes.io/os=linux
            --
            node n1 True []
            node n2 True [unschedulable:NoSchedule@0]
        "#]],
    );
}

#[test]
fn a_large_zone_that_is_partly_down_slows_down() {
    let mut scene = Scene::of(&(0..60).map(|it| format!("node n{it:02} ready\n")).collect::<String>());
    scene.run(9);
    for it in 0..40 {
        scene.happens(&format!("node n{it:02} not-ready"));
    }
    scene.run(309);
    let sent_off = scene.story.lines().filter(|it| it.contains("NoExecute"));
    let sent_off: Vec<&str> = sent_off.map(|it| it.split(" has").next().unwrap_or_default().trim()).collect();
    expect![[r#"
        9 node n00
        109 node n01
        209 node n02
        309 node n03"#]]
    .assert_eq(&sent_off.join("\n"));
}

#[test]
fn a_clock_that_is_set_back_delays_nobody() {
    let mut lifecycle = Lifecycle::new(Settings::default());
    let names = |keys: Vec<Key>| keys.iter().map(|it| format!("{it:?} ")).collect::<String>();
    let put = |name: &str, at_s| {
        let fact = Fact::Node(node(name, &["ready"], None, Time::from_secs(at_s)));
        Event::Applied { kind: NODES, fact }
    };
    lifecycle.apply(put("n1", 10_000), Time::from_secs(10_000));
    let reconcile = lifecycle.reconcile(&Key::Node("n1".into()), Time::from_secs(10_000));
    assert_eq!(reconcile.wake_at, Some(Time::from_secs(10_050)));
    let keys = lifecycle.apply(put("n2", 100), Time::from_secs(100));
    expect![[r#"Node("n2") Zone("") Node("n1") Node("n2") Zone("") Zone("") "#]].assert_eq(&names(keys));
    let reconcile = lifecycle.reconcile(&Key::Node("n1".into()), Time::from_secs(100));
    assert_eq!(reconcile.wake_at, Some(Time::from_secs(150)));
    // It stays silent, and the rest of the grace is as long as without the step.
    for second in 101..150 {
        let _ = lifecycle.reconcile(&Key::Pulse, Time::from_secs(second));
        let reconcile = lifecycle.reconcile(&Key::Node("n1".into()), Time::from_secs(second));
        assert_eq!(
            (reconcile.calls.len(), reconcile.wake_at),
            (0, Some(Time::from_secs(150))),
            "at {second}"
        );
    }
    let reconcile = lifecycle.reconcile(&Key::Node("n1".into()), Time::from_secs(150));
    assert!(matches!(reconcile.calls.as_slice(), [Call::ReadLease { .. }]), "{:?}", reconcile.calls);
}

#[test]
fn a_full_disk_of_the_server_makes_no_node_lost_when_there_is_room_again() {
    play(
        400,
        "
        node n1 ready
        node n2 ready
        15 full
        118 room
        ",
        expect![[r#"
              60 read the lease of node n1
              60 read the lease of node n2
              60 node n1 has unknown Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
              60 node n2 has unknown Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
             110 read the lease of node n1
             110 read the lease of node n2
             110 node n1 has unknown Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
            --
            node n1 True []
            node n2 True []
        "#]],
    );
}

#[test]
fn a_node_that_died_during_a_full_disk_is_lost_after_its_grace() {
    play(
        400,
        "
        node n1 ready
        node n2 ready
        15 full
        20 node n1 silent
        100 room
        ",
        expect![[r#"
              60 read the lease of node n1
              60 read the lease of node n2
              60 node n1 has unknown Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
              60 node n2 has unknown Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
             150 read the lease of node n1
             150 node n1 has unknown Ready MemoryPressure DiskPressure PIDPressure
             150 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
             150 node n1 has taints [unreachable:NoSchedule@150 unreachable:NoExecute@150]
            --
            node n1 Unknown [unreachable:NoSchedule@150 unreachable:NoExecute@150]
            node n2 True []
        "#]],
    );
}

#[test]
fn when_all_nodes_died_during_a_full_disk_one_write_shows_that_there_is_room() {
    play(
        400,
        "
        node n1 ready
        node n2 ready
        15 full
        20 node n1 silent
        20 node n2 silent
        100 room
        ",
        expect![[r#"
              60 read the lease of node n1
              60 read the lease of node n2
              60 node n1 has unknown Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
              60 node n2 has unknown Ready MemoryPressure DiskPressure PIDPressure  -> the disk is full
             110 read the lease of node n1
             110 read the lease of node n2
             110 node n1 has unknown Ready MemoryPressure DiskPressure PIDPressure
             110 event Node n1: NodeNotReady Node n1 status is now: NodeNotReady
             110 node n1 has taints [unreachable:NoSchedule@110]
             160 node n1 has taints [unreachable:NoSchedule@110 unreachable:NoExecute@160]
             160 node n2 has unknown Ready MemoryPressure DiskPressure PIDPressure
             160 event Node n2: NodeNotReady Node n2 status is now: NodeNotReady
             160 node n1 has taints [unreachable:NoSchedule@110]
             160 node n2 has taints [unreachable:NoSchedule@160]
            --
            node n1 Unknown [unreachable:NoSchedule@110]
            node n2 Unknown [unreachable:NoSchedule@160]
        "#]],
    );
}
