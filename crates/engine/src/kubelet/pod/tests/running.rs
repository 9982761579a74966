//! Restarts, probes, hooks and changes of a running pod.

use expect_test::expect;

use super::check;

#[test]
fn a_failed_init_container_is_restarted() {
    check(
        5..=100,
        "
        pod
        init first
        main web
        5 exits first 1
        8 exits first 1
        25 exits first 0
        ",
        expect![[r#"
            5    # exits first 1
            5    find image busybox:1 for first
            5      = Pending sandbox first#0=Error(1) web#0=PodInitializing
            5      - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            5    start first 1 in s1
            5      - Created: Created container: first
            5      - Started: Started container first
            5      = Pending sandbox first#1=running<-Error(1)~ web#0=PodInitializing
            8    # exits first 1
            8      ! BackOff: Back-off restarting failed container first in pod web_default(u1)
            8      = Pending sandbox first#1=CrashLoopBackOff<-Error(1) web#0=PodInitializing
            18   find image busybox:1 for first
            18     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            18   start first 2 in s1
            18     - Created: Created container: first
            18     - Started: Started container first
            18   remove container c2
            18     = Pending sandbox first#2=running<-Error(1)~ web#0=PodInitializing
            25   # exits first 0
            25   find image busybox:1 for web
            25     = Pending sandbox initialized first#2=Completed(0)<-Error(1)+ web#0=PodInitializing
            25     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            25   start web 0 in s1
            25     - Created: Created container: web
            25     - Started: Started container web
            25     = Running sandbox initialized ready containers first#2=Completed(0)<-Error(1)+ web#0=running+
        "#]],
    );
}

#[test]
fn a_failed_init_container_fails_a_pod_that_never_restarts() {
    check(
        5..=100,
        "
        pod restart=Never
        side proxy
        init first
        main web
        5 exits first 3
        ",
        expect![[r#"
            5    # exits first 3
            5      - Killing: Stopping container proxy
            5    stop proxy c2 within 30s
            5      = Pending sandbox proxy#0=running+ first#0=Error(3) web#0=PodInitializing
            5    stop sandbox s1
            5      = Failed proxy#0=Error(143) first#0=Error(3) web#0=PodInitializing
            5    clean up
        "#]],
    );
}

#[test]
fn a_crashing_container_backs_off() {
    check(
        5..=400,
        "
        pod
        main web
        5 exits web 1
        6 exits web 1
        20 oom web
        50 exits web 0
        ",
        expect![[r#"
            5    # exits web 1
            5    find image busybox:1 for web
            5      = Running sandbox initialized web#0=Error(1)
            5      - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            5    start web 1 in s1
            5      - Created: Created container: web
            5      - Started: Started container web
            5      = Running sandbox initialized ready containers web#1=running<-Error(1)+
            6    # exits web 1
            6      ! BackOff: Back-off restarting failed container web in pod web_default(u1)
            6      = Running sandbox initialized web#1=CrashLoopBackOff<-Error(1)
            16   find image busybox:1 for web
            16     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            16   start web 2 in s1
            16     - Created: Created container: web
            16     - Started: Started container web
            16   remove container c2
            16     = Running sandbox initialized ready containers web#2=running<-Error(1)+
            20   # oom web
            20     ! BackOff: Back-off restarting failed container web in pod web_default(u1)
            20     = Running sandbox initialized web#2=CrashLoopBackOff<-OOMKilled(137)
            40   find image busybox:1 for web
            40     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            40   start web 3 in s1
            40     - Created: Created container: web
            40     - Started: Started container web
            40   remove container c3
            40     = Running sandbox initialized ready containers web#3=running<-OOMKilled(137)+
            50   # exits web 0
            50     ! BackOff: Back-off restarting failed container web in pod web_default(u1)
            50     = Running sandbox initialized web#3=CrashLoopBackOff<-Completed(0)
            90   find image busybox:1 for web
            90     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            90   start web 4 in s1
            90     - Created: Created container: web
            90     - Started: Started container web
            90   remove container c4
            90     = Running sandbox initialized ready containers web#4=running<-Completed(0)+
        "#]],
    );
}

#[test]
fn a_container_that_ran_long_is_restarted_at_once() {
    check(
        1000..=1500,
        "
        pod
        main web
        5 exits web 1
        6 exits web 1
        1000 exits web 1
        1001 exits web 1
        ",
        expect![[r#"
            1000 # exits web 1
            1000 find image busybox:1 for web
            1000   = Running sandbox initialized web#2=Error(1)<-Error(1)
            1000   - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            1000 start web 3 in s1
            1000   - Created: Created container: web
            1000   - Started: Started container web
            1000 remove container c3
            1000   = Running sandbox initialized ready containers web#3=running<-Error(1)+
            1001 # exits web 1
            1001   ! BackOff: Back-off restarting failed container web in pod web_default(u1)
            1001   = Running sandbox initialized web#3=CrashLoopBackOff<-Error(1)
            1011 find image busybox:1 for web
            1011   - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            1011 start web 4 in s1
            1011   - Created: Created container: web
            1011   - Started: Started container web
            1011 remove container c4
            1011   = Running sandbox initialized ready containers web#4=running<-Error(1)+
        "#]],
    );
}

#[test]
fn a_dead_sandbox_is_recreated() {
    check(
        10..=40,
        "
        pod
        init first
        main web
        1 exits first 0
        10 sandbox-dies
        12 exits first 0
        ",
        expect![[r#"
            10   # sandbox-dies
            10   stop sandbox s1
            10     = Running initialized first#0=Completed(0)+ web#0=Error(255)
            10     - SandboxChanged: Pod sandbox changed, it will be killed and re-created.
            10   run sandbox 1
            10   find image busybox:1 for first
            10     = Running sandbox initialized first#0=Completed(0)+ web#0=Error(255)
            10     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            10   start first 1 in s4
            10     - Created: Created container: first
            10     - Started: Started container first
            10     = Running sandbox initialized first#1=running<-Completed(0)~ web#0=Error(255)
            12   # exits first 0
            12   find image busybox:1 for web
            12     = Running sandbox initialized first#1=Completed(0)<-Completed(0)+ web#0=Error(255)
            12     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            12   start web 1 in s4
            12     - Created: Created container: web
            12     - Started: Started container web
            12     = Running sandbox initialized ready containers first#1=Completed(0)<-Completed(0)+ web#1=running<-Error(255)+
        "#]],
    );
}

#[test]
fn a_dead_sandbox_fails_a_pod_that_never_restarts() {
    check(
        10..=40,
        "
        pod restart=Never
        main web
        10 sandbox-dies
        ",
        expect![[r#"
            10   # sandbox-dies
            10   stop sandbox s1
            10     = Failed initialized web#0=Error(255)
            10   clean up
        "#]],
    );
}

/// A probe that passes with a message passes, and a probe that cannot run is no result; both cause an event.
#[test]
fn probe_warnings_and_probes_that_cannot_run() {
    check(
        0..=20,
        "
        pod
        main web liveness=5,1
        4 probe-warns web liveness
        9 probe-passes web liveness
        9 fail Liveness probe
        14 succeed Liveness probe
        20 delete
        ",
        expect![[r#"
            0    prepare
            0      = Pending initialized web#0=ContainerCreating
            0    run sandbox 0
            0    find image busybox:1 for web
            0      = Pending sandbox initialized web#0=ContainerCreating
            0      - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            0    start web 0 in s1
            0      - Created: Created container: web
            0      - Started: Started container web
            0    Liveness probe of web c2
            0      = Running sandbox initialized ready containers web#0=running+
            4    # probe-warns web liveness
            5    Liveness probe of web c2
            5      ! ProbeWarning: Liveness probe warning: moved
            9    # probe-passes web liveness
            9    # fail Liveness probe
            10   Liveness probe of web c2
            10     ! Unhealthy: Liveness probe errored and resulted in unknown state: cannot Liveness probe
            14   # succeed Liveness probe
            15   Liveness probe of web c2
            20   # delete
            20     - Killing: Stopping container web
            20   stop web c2 within 30s
            20   stop sandbox s1
            20     = Failed initialized web#0=Error(143)
            20   remove sandbox s1
            20   clean up with its logs
            20   delete
            20   finished
        "#]],
    );
}

#[test]
fn a_failed_probe_kills_its_container() {
    check(
        0..=70,
        "
        pod grace=40
        main web startup=2,5 liveness=5,2 readiness=5,1,3
        0 probe-fails web startup
        5 probe-passes web startup
        20 probe-fails web readiness
        30 probe-passes web readiness
        40 probe-fails web liveness
        50 probe-passes web liveness
        50 probe-fails web startup
        60 delete
        ",
        expect![[r#"
            0    # probe-fails web startup
            0    prepare
            0      = Pending initialized web#0=ContainerCreating
            0    run sandbox 0
            0    find image busybox:1 for web
            0      = Pending sandbox initialized web#0=ContainerCreating
            0      - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            0    start web 0 in s1
            0      - Created: Created container: web
            0      - Started: Started container web
            0    Startup probe of web c2
            0      = Running sandbox initialized web#0=running
            0      ! Unhealthy: Startup probe failed: no
            2    Startup probe of web c2
            2      ! Unhealthy: Startup probe failed: no
            4    Startup probe of web c2
            4      ! Unhealthy: Startup probe failed: no
            5    # probe-passes web startup
            6    Startup probe of web c2
            6    Liveness probe of web c2
            6    Readiness probe of web c2
            6      = Running sandbox initialized web#0=running~
            6      = Running sandbox initialized ready containers web#0=running+
            11   Liveness probe of web c2
            11   Readiness probe of web c2
            16   Liveness probe of web c2
            16   Readiness probe of web c2
            20   # probe-fails web readiness
            21   Liveness probe of web c2
            21   Readiness probe of web c2
            21     ! Unhealthy: Readiness probe failed: no
            21     = Running sandbox initialized web#0=running~
            26   Liveness probe of web c2
            26   Readiness probe of web c2
            26     ! Unhealthy: Readiness probe failed: no
            30   # probe-passes web readiness
            31   Liveness probe of web c2
            31   Readiness probe of web c2
            31     = Running sandbox initialized ready containers web#0=running+
            36   Liveness probe of web c2
            36   Readiness probe of web c2
            40   # probe-fails web liveness
            41   Liveness probe of web c2
            41   Readiness probe of web c2
            41     ! Unhealthy: Liveness probe failed: no
            46   Liveness probe of web c2
            46   Readiness probe of web c2
            46     ! Unhealthy: Liveness probe failed: no
            46     - Killing: Container web failed liveness probe, will be restarted
            46   stop web c2 within 40s
            46   find image busybox:1 for web
            46     = Running sandbox initialized web#0=Error(143)
            46     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            46   start web 1 in s1
            46     - Created: Created container: web
            46     - Started: Started container web
            46   Startup probe of web c3
            46     = Running sandbox initialized web#1=running<-Error(143)
            46   Liveness probe of web c3
            46     = Running sandbox initialized web#1=running<-Error(143)~
            46     ! Unhealthy: Liveness probe failed: no
            49   Readiness probe of web c3
            49     = Running sandbox initialized ready containers web#1=running<-Error(143)+
            50   # probe-passes web liveness
            50   # probe-fails web startup
            51   Liveness probe of web c3
            54   Readiness probe of web c3
            56   Liveness probe of web c3
            59   Readiness probe of web c3
            60   # delete
            60     - Killing: Stopping container web
            60   stop web c3 within 30s
            60   stop sandbox s1
            60     = Failed initialized web#1=Error(143)<-Error(143)
            60   remove sandbox s1
            60   clean up with its logs
            60   delete
            60   finished
        "#]],
    );
}

#[test]
fn a_post_start_hook_delays_the_next_container_and_kills_its_own_if_it_fails() {
    check(
        0..=40,
        "
        pod
        main web hook
        main log
        0 hang run the postStart hook
        5 complete run the postStart hook
        10 exits web 1
        10 fail run the postStart hook
        30 succeed run the postStart hook
        ",
        expect![[r#"
            0    # hang run the postStart hook
            0    prepare
            0      = Pending initialized log#0=ContainerCreating web#0=ContainerCreating
            0    run sandbox 0
            0    find image busybox:1 for web
            0      = Pending sandbox initialized log#0=ContainerCreating web#0=ContainerCreating
            0      - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            0    start web 0 in s1
            0      - Created: Created container: web
            0      - Started: Started container web
            0    run the postStart hook of web c2
            5    # complete run the postStart hook
            5    find image busybox:1 for log
            5      = Pending sandbox initialized log#0=ContainerCreating web#0=running+
            5      - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            5    start log 0 in s1
            5      - Created: Created container: log
            5      - Started: Started container log
            5      = Running sandbox initialized ready containers log#0=running+ web#0=running+
            10   # exits web 1
            10   # fail run the postStart hook
            10   find image busybox:1 for web
            10     = Running sandbox initialized log#0=running+ web#0=Error(1)
            10     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            10   start web 1 in s1
            10     - Created: Created container: web
            10     - Started: Started container web
            10   run the postStart hook of web c4
            10     = Running sandbox initialized log#0=running+ web#1=ContainerCreating<-Error(1)
            10     ! FailedPostStartHook: PostStartHook failed: cannot run the postStart hook
            10     - Killing: FailedPostStartHook
            10   stop web c4 within 30s
            10     = Running sandbox initialized log#0=running+ web#1=running<-Error(1)
            10     ! BackOff: Back-off restarting failed container web in pod web_default(u1)
            10     = Running sandbox initialized log#0=running+ web#1=CrashLoopBackOff<-Error(143)
            20   find image busybox:1 for web
            20     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            20   start web 2 in s1
            20     - Created: Created container: web
            20     - Started: Started container web
            20   remove container c2
            20   run the postStart hook of web c5
            20     = Running sandbox initialized log#0=running+ web#2=ContainerCreating<-Error(143)
            20     ! FailedPostStartHook: PostStartHook failed: cannot run the postStart hook
            20     - Killing: FailedPostStartHook
            20   stop web c5 within 30s
            20     = Running sandbox initialized log#0=running+ web#2=running<-Error(143)
            20     ! BackOff: Back-off restarting failed container web in pod web_default(u1)
            20     = Running sandbox initialized log#0=running+ web#2=CrashLoopBackOff<-Error(143)
            30   # succeed run the postStart hook
            40   find image busybox:1 for web
            40     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            40   start web 3 in s1
            40     - Created: Created container: web
            40     - Started: Started container web
            40   remove container c4
            40   run the postStart hook of web c6
            40     = Running sandbox initialized log#0=running+ web#3=ContainerCreating<-Error(143)
            40     = Running sandbox initialized ready containers log#0=running+ web#3=running<-Error(143)+
        "#]],
    );
}

#[test]
fn a_changed_image_restarts_the_container() {
    check(
        10..=100,
        "
        pod
        main web
        main log
        10 image web busybox:2
        ",
        expect![[r#"
            10   # image web busybox:2
            10     - Killing: Container web definition changed, will be restarted
            10   stop web c2 within 30s
            10   find image busybox:2 for web
            10     = Running sandbox initialized log#0=running+ web#0=Error(143)
            10     - Pulled: Container image "busybox:2" already present on machine and can be accessed by the pod
            10   start web 1 in s1
            10     - Created: Created container: web
            10     - Started: Started container web
            10     = Running sandbox initialized ready containers log#0=running+ web#1=running<-Error(143)+
        "#]],
    );
}

#[test]
fn a_restarted_agent_continues() {
    check(
        10..=100,
        "
        pod
        side proxy startup=5,3
        main web readiness=20,2 hook
        main log
        10 exits log 1
        11 agent-restarts
        12 exits log 1
        13 agent-restarts
        60 exits web 0
        61 agent-restarts
        90 delete
        90 agent-restarts
        ",
        expect![[r#"
            10   # exits log 1
            10   find image busybox:1 for log
            10     = Running sandbox initialized proxy#0=running+ log#0=Error(1) web#0=running+
            10     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            10   start log 1 in s1
            10     - Created: Created container: log
            10     - Started: Started container log
            10     = Running sandbox initialized ready containers proxy#0=running+ log#1=running<-Error(1)+ web#0=running+
            11   # agent-restarts
            11   prepare
            11   Readiness probe of web c3
            12   # exits log 1
            12     ! BackOff: Back-off restarting failed container log in pod web_default(u1)
            12     = Running sandbox initialized proxy#0=running+ log#1=CrashLoopBackOff<-Error(1) web#0=running+
            13   # agent-restarts
            13     ! BackOff: Back-off restarting failed container log in pod web_default(u1)
            13   prepare
            13   Readiness probe of web c3
            22   find image busybox:1 for log
            22     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            22   start log 2 in s1
            22     - Created: Created container: log
            22     - Started: Started container log
            22   remove container c4
            22     = Running sandbox initialized ready containers proxy#0=running+ log#2=running<-Error(1)+ web#0=running+
            33   Readiness probe of web c3
            53   Readiness probe of web c3
            60   # exits web 0
            60   find image busybox:1 for web
            60     = Running sandbox initialized proxy#0=running+ log#2=running<-Error(1)+ web#0=Completed(0)
            60     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            60   start web 1 in s1
            60     - Created: Created container: web
            60     - Started: Started container web
            60   run the postStart hook of web c7
            60     = Running sandbox initialized proxy#0=running+ log#2=running<-Error(1)+ web#1=PodInitializing<-Completed(0)
            60   Readiness probe of web c7
            60     = Running sandbox initialized proxy#0=running+ log#2=running<-Error(1)+ web#1=running<-Completed(0)~
            60     = Running sandbox initialized ready containers proxy#0=running+ log#2=running<-Error(1)+ web#1=running<-Completed(0)+
            61   # agent-restarts
            61   prepare
            61   Readiness probe of web c7
            81   Readiness probe of web c7
            90   # delete
            90   # agent-restarts
            90     - Killing: Stopping container log
            90     - Killing: Stopping container web
            90   stop log c6 within 30s
            90   stop web c7 within 30s
            90   Readiness probe of web c7
            90     - Killing: Stopping container proxy
            90   stop proxy c2 within 30s
            90     = Running sandbox initialized proxy#0=running+ log#2=Error(143)<-Error(1) web#1=Error(143)<-Completed(0)
            90   stop sandbox s1
            90     = Failed initialized proxy#0=Error(143) log#2=Error(143)<-Error(1) web#1=Error(143)<-Completed(0)
            90   remove sandbox s1
            90   clean up with its logs
            90   delete
            90   finished
        "#]],
    );
}

#[test]
fn a_restarted_agent_replaces_lost_containers() {
    check(
        10..=100,
        "
        pod
        main web
        10 vanishes web
        10 agent-restarts
        20 exits web 1
        20 agent-restarts
        ",
        expect![[r#"
            10   # vanishes web
            10   # agent-restarts
            10   prepare
            10     = Running sandbox initialized web#1=ContainerCreating<-ContainerStatusUnknown(137)
            10   find image busybox:1 for web
            10     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            10   start web 1 in s1
            10     - Created: Created container: web
            10     - Started: Started container web
            10     = Running sandbox initialized ready containers web#1=running<-ContainerStatusUnknown(137)+
            20   # exits web 1
            20   # agent-restarts
            20     ! BackOff: Back-off restarting failed container web in pod web_default(u1)
            20   prepare
            20     = Running sandbox initialized web#1=CrashLoopBackOff<-Error(1)
            30   find image busybox:1 for web
            30     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            30   start web 2 in s1
            30     - Created: Created container: web
            30     - Started: Started container web
            30     = Running sandbox initialized ready containers web#2=running<-Error(1)+
        "#]],
    );
}
