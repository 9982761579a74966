//! Termination of a pod.

use alloc::format;

use expect_test::expect;

use super::{Scene, check};

#[test]
fn a_pod_succeeds_when_its_containers_complete() {
    check(
        5..=100,
        "
        pod restart=OnFailure
        side proxy
        main web
        main log
        5 exits web 1
        6 exits web 0
        10 exits log 0
        50 delete
        ",
        expect![[r#"
            5    # exits web 1
            5    find image busybox:1 for web
            5      = Running sandbox initialized proxy#0=running+ log#0=running+ web#0=Error(1)
            5      - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            5    start web 1 in s1
            5      - Created: Created container: web
            5      - Started: Started container web
            5      = Running sandbox initialized ready containers proxy#0=running+ log#0=running+ web#1=running<-Error(1)+
            6    # exits web 0
            6      = Running sandbox initialized proxy#0=running+ log#0=running+ web#1=Completed(0)<-Error(1)
            10   # exits log 0
            10     - Killing: Stopping container proxy
            10   stop proxy c2 within 30s
            10     = Running sandbox initialized proxy#0=running+ log#0=Completed(0) web#1=Completed(0)<-Error(1)
            10   stop sandbox s1
            10     = Succeeded initialized proxy#0=Error(143) log#0=Completed(0) web#1=Completed(0)<-Error(1)
            10   clean up
            50   # delete
            50   remove sandbox s1
            50   clean up with its logs
            50   delete
            50   finished
        "#]],
    );
}

#[test]
fn a_pod_is_not_complete_while_a_container_starts() {
    check(
        6..=20,
        "
        pod restart=OnFailure
        side proxy
        main web
        5 hang start
        6 exits proxy 1
        8 exits web 0
        10 complete start
        ",
        expect![[r#"
            6    # exits proxy 1
            6    find image busybox:1 for proxy
            6      = Running sandbox initialized proxy#0=Error(1) web#0=running+
            6      - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            6    start proxy 1 in s1
            8    # exits web 0
            8      = Running sandbox initialized proxy#0=Error(1) web#0=Completed(0)
            10   # complete start
            10     - Created: Created container: proxy
            10     - Started: Started container proxy
            10     - Killing: Stopping container proxy
            10   stop proxy c4 within 28s
            10     = Running sandbox initialized proxy#1=running<-Error(1)+ web#0=Completed(0)
            10   stop sandbox s1
            10     = Succeeded initialized proxy#1=Error(143)<-Error(1) web#0=Completed(0)
            10   clean up
        "#]],
    );
}

#[test]
fn a_pod_that_never_restarts_fails_with_its_container() {
    check(
        5..=100,
        "
        pod restart=Never
        main web
        main log
        5 exits web 1
        8 exits log 0
        ",
        expect![[r#"
            5    # exits web 1
            5      = Running sandbox initialized log#0=running+ web#0=Error(1)
            8    # exits log 0
            8    stop sandbox s1
            8      = Failed initialized log#0=Completed(0) web#0=Error(1)
            8    clean up
        "#]],
    );
}

#[test]
fn a_finished_pod_stays_finished() {
    check(
        10..=100,
        "
        pod restart=Never
        main web
        10 exits web 0
        20 agent-restarts
        30 vanishes web
        30 agent-restarts
        ",
        expect![[r#"
            10   # exits web 0
            10   stop sandbox s1
            10     = Succeeded initialized web#0=Completed(0)
            10   clean up
            20   # agent-restarts
            20   stop sandbox s1
            20   clean up
            30   # vanishes web
            30   # agent-restarts
            30   stop sandbox s1
            30   clean up
        "#]],
    );
}

#[test]
fn a_pod_that_never_restarts_fails_when_its_container_is_lost() {
    check(
        10..=100,
        "
        pod restart=Never
        main web
        10 vanishes web
        10 agent-restarts
        ",
        expect![[r#"
            10   # vanishes web
            10   # agent-restarts
            10   prepare
            10   stop sandbox s1
            10     = Failed initialized web#0=ContainerStatusUnknown(137)
            10   clean up
        "#]],
    );
}

#[test]
fn a_shorter_grace_period_stops_containers_earlier() {
    check(
        10..=100,
        "
        pod grace=60
        main web prestop
        10 hang stop
        10 delete 60
        20 delete 5
        23 complete stop
        ",
        expect![[r#"
            10   # hang stop
            10   # delete 60
            10     - Killing: Stopping container web
            10   stop web c2 within 60s after its preStop hook
            20   # delete 5
            20   stop web c2 within 5s
            23   # complete stop
            23   stop sandbox s1
            23     = Failed initialized web#0=Error(143)
            23   remove sandbox s1
            23   clean up with its logs
            23   delete
            23   finished
        "#]],
    );
}

#[test]
fn a_force_deleted_pod() {
    check(
        10..=100,
        "
        pod
        main web
        10 removed
        ",
        expect![[r#"
            10   # removed
            10     - Killing: Stopping container web
            10   stop web c2 within 2s
            10   stop sandbox s1
            10   remove sandbox s1
            10   clean up with its logs
            10   finished
        "#]],
    );
}

#[test]
fn a_pod_deleted_before_it_started() {
    check(
        0..=100,
        "
        pod
        main web
        0 delete
        ",
        expect![[r#"
            0    # delete
            0      = Failed initialized web#0=ContainerStatusUnknown(137)
            0    clean up with its logs
            0    delete
            0    finished
        "#]],
    );
}

#[test]
fn a_pod_deleted_while_it_starts() {
    check(
        5..=100,
        "
        pod
        main web
        0 hang start
        5 delete
        9 complete start
        ",
        expect![[r#"
            5    # delete
            9    # complete start
            9      - Created: Created container: web
            9      - Started: Started container web
            9      - Killing: Stopping container web
            9    stop web c2 within 26s
            9      = Running sandbox initialized ready containers web#0=running+
            9    stop sandbox s1
            9      = Failed initialized web#0=Error(143)
            9    remove sandbox s1
            9    clean up with its logs
            9    delete
            9    finished
        "#]],
    );
}

#[test]
fn a_pod_past_its_active_deadline() {
    check(
        30..=100,
        "
        pod deadline=30
        main web
        ",
        expect![[r#"
            30     - DeadlineExceeded: Pod was active on the node longer than the specified deadline
            30     - Killing: Stopping container web
            30   stop web c2 within 30s
            30     = Running sandbox initialized web#0=running+
            30   stop sandbox s1
            30     = Failed initialized (DeadlineExceeded) web#0=Error(143)
            30   clean up
        "#]],
    );
}

#[test]
fn an_evicted_pod() {
    check(
        10..=100,
        "
        pod
        main web
        10 terminate Evicted 5
        50 delete
        ",
        expect![[r#"
            10   # terminate Evicted 5
            10     - Killing: Stopping container web
            10   stop web c2 within 5s
            10     = Running sandbox initialized DisruptionTarget web#0=running+
            10   stop sandbox s1
            10     = Failed initialized DisruptionTarget (Evicted) web#0=Error(143)
            10   clean up
            50   # delete
            50   remove sandbox s1
            50   clean up with its logs
            50   delete
            50   finished
        "#]],
    );
}

#[test]
fn a_rejected_pod() {
    check(
        0..=100,
        "
        pod
        main web
        0 terminate OutOfcpu
        20 agent-restarts
        50 delete
        ",
        expect![[r#"
            0    # terminate OutOfcpu
            0      ! OutOfcpu: It was OutOfcpu
            0    clean up
            0      = Failed (OutOfcpu)
            20   # agent-restarts
            20   clean up
            50   # delete
            50   clean up with its logs
            50   delete
            50   finished
        "#]],
    );
}

#[test]
fn a_static_pod() {
    check(
        10..=100,
        "
        pod static
        main web
        10 removed
        ",
        expect![[r#"
            10   # removed
            10     - Killing: Stopping container web
            10   stop web c2 within 30s
            10   stop sandbox s1
            10   remove sandbox s1
            10   clean up with its logs
            10   finished
        "#]],
    );
}

#[test]
fn failed_cleanup_is_retried() {
    check(
        10..=100,
        "
        pod
        main web
        10 fail stop sandbox
        10 delete
        20 succeed stop sandbox
        20 fail clean up
        30 succeed clean up
        30 fail delete
        40 succeed delete
        ",
        expect![[r#"
            10   # fail stop sandbox
            10   # delete
            10     - Killing: Stopping container web
            10   stop web c2 within 30s
            10   stop sandbox s1
            10     = Failed initialized web#0=Error(143)
            10     ! FailedKillPod: error killing pod: cannot stop sandbox
            10.5 stop sandbox s1
            10.5   ! FailedKillPod: error killing pod: cannot stop sandbox
            11.5 stop sandbox s1
            11.5   ! FailedKillPod: error killing pod: cannot stop sandbox
            13.5 stop sandbox s1
            13.5   ! FailedKillPod: error killing pod: cannot stop sandbox
            17.5 stop sandbox s1
            17.5   ! FailedKillPod: error killing pod: cannot stop sandbox
            20   # succeed stop sandbox
            20   # fail clean up
            25.5 stop sandbox s1
            25.5 remove sandbox s1
            25.5 clean up with its logs
            26   clean up with its logs
            27   clean up with its logs
            29   clean up with its logs
            30   # succeed clean up
            30   # fail delete
            33   clean up with its logs
            33   delete
            33.5 delete
            34.5 delete
            36.5 delete
            40   # succeed delete
            40.5 delete
            40.5 finished
        "#]],
    );
}

#[test]
fn grace_period_does_not_depend_on_the_wall_clock() {
    for step in ["wall-clock 3600", "wall-clock -3600"] {
        let mut scene = Scene::of(&format!(
            "
            pod grace=300
            side proxy prestop
            main web
            10 hang stop web
            10 delete 300
            20 {step}
            30 exits web 0
            30 complete stop web
            "
        ));
        scene.run(60);
        let stop = scene.log.lines().find(|it| it.contains("stop proxy"));
        assert_eq!(stop, Some("30   stop proxy c2 within 280s after its preStop hook"), "{step}");
    }
}

#[test]
fn status_timestamps_follow_the_wall_clock() {
    let scenario = "
        pod restart=Never
        main web
        20 wall-clock 3600
        30 exits web 0
        ";
    let mut scene = Scene::of(scenario);
    scene.run(60);
    let status = &scene.object["status"];
    let terminated = &status["containerStatuses"][0]["state"]["terminated"];
    let ready = status["conditions"].as_array().unwrap().iter().find(|it| it["type"] == "Ready").unwrap();
    let times = [
        &status["startTime"],
        &terminated["startedAt"],
        &terminated["finishedAt"],
        &ready["lastTransitionTime"],
    ];
    // The container and the pod were started before the wall clock was set.
    assert_eq!(
        times.map(|it| it.as_str().unwrap()),
        ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-01T01:00:30Z", "1970-01-01T01:00:30Z"]
    );
}
