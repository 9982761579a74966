//! Start of a pod.

use expect_test::expect;

use super::check;

#[test]
fn a_pod_runs_and_is_deleted() {
    check(
        0..=100,
        "
        pod
        main web
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
            0      = Running sandbox initialized ready containers web#0=running+
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
fn init_containers_run_one_after_the_other_and_a_sidecar_stays() {
    check(
        0..=200,
        "
        pod grace=20
        init first
        side proxy startup=5,3 prestop
        init second
        main web
        main log
        0 probe-fails proxy startup
        3 exits first 0
        12 probe-passes proxy startup
        20 exits second 0
        30 exits proxy 1
        60 delete
        ",
        expect![[r#"
            0    # probe-fails proxy startup
            0    prepare
            0      = Pending first#0=PodInitializing proxy#0=PodInitializing second#0=PodInitializing log#0=PodInitializing web#0=PodInitializing
            0    run sandbox 0
            0    find image busybox:1 for first
            0      = Pending sandbox first#0=PodInitializing proxy#0=PodInitializing second#0=PodInitializing log#0=PodInitializing web#0=PodInitializing
            0      - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            0    start first 0 in s1
            0      - Created: Created container: first
            0      - Started: Started container first
            0      = Pending sandbox first#0=running~ proxy#0=PodInitializing second#0=PodInitializing log#0=PodInitializing web#0=PodInitializing
            3    # exits first 0
            3    find image busybox:1 for proxy
            3      = Pending sandbox first#0=Completed(0)+ proxy#0=PodInitializing second#0=PodInitializing log#0=PodInitializing web#0=PodInitializing
            3      - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            3    start proxy 0 in s1
            3      - Created: Created container: proxy
            3      - Started: Started container proxy
            3    Startup probe of proxy c3
            3      = Pending sandbox first#0=Completed(0)+ proxy#0=running second#0=PodInitializing log#0=PodInitializing web#0=PodInitializing
            3      ! Unhealthy: Startup probe failed: no
            8    Startup probe of proxy c3
            8      ! Unhealthy: Startup probe failed: no
            12   # probe-passes proxy startup
            13   Startup probe of proxy c3
            13   find image busybox:1 for second
            13     = Pending sandbox first#0=Completed(0)+ proxy#0=running+ second#0=PodInitializing log#0=PodInitializing web#0=PodInitializing
            13     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            13   start second 0 in s1
            13     - Created: Created container: second
            13     - Started: Started container second
            13     = Pending sandbox first#0=Completed(0)+ proxy#0=running+ second#0=running~ log#0=PodInitializing web#0=PodInitializing
            20   # exits second 0
            20   find image busybox:1 for web
            20   find image busybox:1 for log
            20     = Pending sandbox initialized first#0=Completed(0)+ proxy#0=running+ second#0=Completed(0)+ log#0=PodInitializing web#0=PodInitializing
            20     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            20     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            20   start web 0 in s1
            20   start log 0 in s1
            20     - Created: Created container: web
            20     - Started: Started container web
            20     - Created: Created container: log
            20     - Started: Started container log
            20     = Running sandbox initialized ready containers first#0=Completed(0)+ proxy#0=running+ second#0=Completed(0)+ log#0=running+ web#0=running+
            30   # exits proxy 1
            30   find image busybox:1 for proxy
            30     = Running sandbox initialized first#0=Completed(0)+ proxy#0=Error(1) second#0=Completed(0)+ log#0=running+ web#0=running+
            30     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            30   start proxy 1 in s1
            30     - Created: Created container: proxy
            30     - Started: Started container proxy
            30   Startup probe of proxy c7
            30     = Running sandbox initialized first#0=Completed(0)+ proxy#1=running<-Error(1) second#0=Completed(0)+ log#0=running+ web#0=running+
            30     = Running sandbox initialized ready containers first#0=Completed(0)+ proxy#1=running<-Error(1)+ second#0=Completed(0)+ log#0=running+ web#0=running+
            60   # delete
            60     - Killing: Stopping container web
            60     - Killing: Stopping container log
            60   stop web c5 within 30s
            60   stop log c6 within 30s
            60     - Killing: Stopping container proxy
            60   stop proxy c7 within 30s after its preStop hook
            60     = Running sandbox initialized first#0=Completed(0)+ proxy#1=running<-Error(1)+ second#0=Completed(0)+ log#0=Error(143) web#0=Error(143)
            60   stop sandbox s1
            60     = Failed initialized first#0=Completed(0)+ proxy#1=Error(143)<-Error(1) second#0=Completed(0)+ log#0=Error(143) web#0=Error(143)
            60   remove sandbox s1
            60   clean up with its logs
            60   delete
            60   finished
        "#]],
    );
}

#[test]
fn a_failed_pull_backs_off() {
    check(
        0..=70,
        "
        pod
        main web always image=nginx
        0 fail pull
        50 succeed pull
        ",
        expect![[r#"
            0    # fail pull
            0    prepare
            0      = Pending initialized web#0=ContainerCreating
            0    run sandbox 0
            0      - Pulling: Pulling image "nginx"
            0    pull image nginx for web
            0      = Pending sandbox initialized web#0=ContainerCreating
            0      ! Failed: Failed to pull image "nginx": cannot pull
            0      ! Failed: Error: ErrImagePull
            0      = Pending sandbox initialized web#0=ErrImagePull
            2      - BackOff: Back-off pulling image "nginx"
            2      ! Failed: Error: ImagePullBackOff
            2      = Pending sandbox initialized web#0=ImagePullBackOff
            10     - Pulling: Pulling image "nginx"
            10   pull image nginx for web
            10     ! Failed: Failed to pull image "nginx": cannot pull
            10     ! Failed: Error: ErrImagePull
            10     = Pending sandbox initialized web#0=ErrImagePull
            12     - BackOff: Back-off pulling image "nginx"
            12     ! Failed: Error: ImagePullBackOff
            12     = Pending sandbox initialized web#0=ImagePullBackOff
            30     - Pulling: Pulling image "nginx"
            30   pull image nginx for web
            30     ! Failed: Failed to pull image "nginx": cannot pull
            30     ! Failed: Error: ErrImagePull
            30     = Pending sandbox initialized web#0=ErrImagePull
            32     - BackOff: Back-off pulling image "nginx"
            32     ! Failed: Error: ImagePullBackOff
            32     = Pending sandbox initialized web#0=ImagePullBackOff
            50   # succeed pull
            70     - Pulling: Pulling image "nginx"
            70   pull image nginx for web
            70     - Pulled: Successfully pulled image "nginx" in 0ms (0ms including waiting). Image size: 1000 bytes.
            70   start web 0 in s1
            70     - Created: Created container: web
            70     - Started: Started container web
            70     = Running sandbox initialized ready containers web#0=running+
        "#]],
    );
}

#[test]
fn a_changed_image_is_pulled_at_once() {
    check(
        30..=35,
        "
        pod
        main web image=nginx
        0 fail pull image nginx
        33 image web httpd
        ",
        expect![[r#"
            30     - Pulling: Pulling image "nginx"
            30   pull image nginx for web
            30     ! Failed: Failed to pull image "nginx": cannot pull image nginx
            30     ! Failed: Error: ErrImagePull
            30     = Pending sandbox initialized web#0=ErrImagePull
            32     - BackOff: Back-off pulling image "nginx"
            32     ! Failed: Error: ImagePullBackOff
            32     = Pending sandbox initialized web#0=ImagePullBackOff
            33   # image web httpd
            33     - Pulling: Pulling image "httpd"
            33   pull image httpd for web
            33     - Pulled: Successfully pulled image "httpd" in 0ms (0ms including waiting). Image size: 1000 bytes.
            33   start web 0 in s1
            33     - Created: Created container: web
            33     - Started: Started container web
            33     = Running sandbox initialized ready containers web#0=running+
        "#]],
    );
}

#[test]
fn an_image_that_is_imported_during_the_pull_backoff_is_found() {
    check(
        0..=60,
        "
        pod
        main web image=x:1
        0 absent x:1
        0 fail pull
        35 present x:1
        ",
        expect![[r#"
            0    # absent x:1
            0    # fail pull
            0    prepare
            0      = Pending initialized web#0=ContainerCreating
            0    run sandbox 0
            0    find image x:1 for web
            0      = Pending sandbox initialized web#0=ContainerCreating
            0      - Pulling: Pulling image "x:1"
            0    pull image x:1 for web
            0      ! Failed: Failed to pull image "x:1": cannot pull
            0      ! Failed: Error: ErrImagePull
            0      = Pending sandbox initialized web#0=ErrImagePull
            2      - BackOff: Back-off pulling image "x:1"
            2      ! Failed: Error: ImagePullBackOff
            2      = Pending sandbox initialized web#0=ImagePullBackOff
            10   find image x:1 for web
            10     - Pulling: Pulling image "x:1"
            10   pull image x:1 for web
            10     ! Failed: Failed to pull image "x:1": cannot pull
            10     ! Failed: Error: ErrImagePull
            10     = Pending sandbox initialized web#0=ErrImagePull
            12     - BackOff: Back-off pulling image "x:1"
            12     ! Failed: Error: ImagePullBackOff
            12     = Pending sandbox initialized web#0=ImagePullBackOff
            20   find image x:1 for web
            30   find image x:1 for web
            30     - Pulling: Pulling image "x:1"
            30   pull image x:1 for web
            30     ! Failed: Failed to pull image "x:1": cannot pull
            30     ! Failed: Error: ErrImagePull
            30     = Pending sandbox initialized web#0=ErrImagePull
            32     - BackOff: Back-off pulling image "x:1"
            32     ! Failed: Error: ImagePullBackOff
            32     = Pending sandbox initialized web#0=ImagePullBackOff
            35   # present x:1
            40   find image x:1 for web
            40     - Pulled: Container image "x:1" already present on machine and can be accessed by the pod
            40   start web 0 in s1
            40     - Created: Created container: web
            40     - Started: Started container web
            40     = Running sandbox initialized ready containers web#0=running+
        "#]],
    );
}

#[test]
fn pull_policy_never() {
    check(
        0..=20,
        "
        pod
        main web never image=nginx
        main log image=x:1
        0 absent nginx
        0 absent x:1
        5 present nginx
        ",
        expect![[r#"
            0    # absent nginx
            0    # absent x:1
            0    prepare
            0      = Pending initialized log#0=ContainerCreating web#0=ContainerCreating
            0    run sandbox 0
            0    find image nginx for web
            0    find image x:1 for log
            0      = Pending sandbox initialized log#0=ContainerCreating web#0=ContainerCreating
            0      ! ErrImageNeverPull: Container image "nginx" is not present with pull policy of Never
            0      ! Failed: Error: ErrImageNeverPull: Container image "nginx" is not present with pull policy of Never
            0      - Pulling: Pulling image "x:1"
            0    pull image x:1 for log
            0      = Pending sandbox initialized log#0=ContainerCreating web#0=ErrImageNeverPull
            0      - Pulled: Successfully pulled image "x:1" in 0ms (0ms including waiting). Image size: 1000 bytes.
            0    start log 0 in s1
            0      - Created: Created container: log
            0      - Started: Started container log
            0      = Pending sandbox initialized log#0=running+ web#0=ErrImageNeverPull
            1    find image nginx for web
            3    find image nginx for web
            5    # present nginx
            7    find image nginx for web
            7    start web 0 in s1
            7      - Created: Created container: web
            7      - Started: Started container web
            7      = Running sandbox initialized ready containers log#0=running+ web#0=running+
        "#]],
    );
}

#[test]
fn an_invalid_image_name_is_retried() {
    check(
        0..=4,
        "
        pod
        main web image=A:::
        0 fail find image
        ",
        expect![[r#"
            0    # fail find image
            0    prepare
            0      = Pending initialized web#0=ContainerCreating
            0    run sandbox 0
            0    find image A::: for web
            0      = Pending sandbox initialized web#0=ContainerCreating
            0      ! InspectFailed: cannot find image
            0      ! Failed: Error: InvalidImageName
            0      = Pending sandbox initialized web#0=InvalidImageName
            1    find image A::: for web
            3    find image A::: for web
        "#]],
    );
}

#[test]
fn a_failed_start_is_retried() {
    check(
        0..=20,
        "
        pod
        main web
        main log
        0 fail start web
        15 succeed start web
        ",
        expect![[r#"
            0    # fail start web
            0    prepare
            0      = Pending initialized log#0=ContainerCreating web#0=ContainerCreating
            0    run sandbox 0
            0    find image busybox:1 for web
            0    find image busybox:1 for log
            0      = Pending sandbox initialized log#0=ContainerCreating web#0=ContainerCreating
            0      - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            0      - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            0    start web 0 in s1
            0    start log 0 in s1
            0      ! Failed: Error: cannot start web
            0      - Created: Created container: log
            0      - Started: Started container log
            0      = Pending sandbox initialized log#0=running+ web#0=CreateContainerError
            1    find image busybox:1 for web
            1    start web 0 in s1
            1      ! Failed: Error: cannot start web
            3    find image busybox:1 for web
            3    start web 0 in s1
            3      ! Failed: Error: cannot start web
            7    find image busybox:1 for web
            7    start web 0 in s1
            7      ! Failed: Error: cannot start web
            15   # succeed start web
            15   find image busybox:1 for web
            15   start web 0 in s1
            15     - Created: Created container: web
            15     - Started: Started container web
            15     = Running sandbox initialized ready containers log#0=running+ web#0=running+
        "#]],
    );
}

#[test]
fn a_failed_preparation_is_retried() {
    check(
        0..=20,
        "
        pod
        main web
        0 fail prepare
        9 succeed prepare
        ",
        expect![[r#"
            0    # fail prepare
            0    prepare
            0      = Pending initialized web#0=ContainerCreating
            0      ! FailedMount: cannot prepare
            0.5  prepare
            0.5    ! FailedMount: cannot prepare
            1.5  prepare
            1.5    ! FailedMount: cannot prepare
            3.5  prepare
            3.5    ! FailedMount: cannot prepare
            7.5  prepare
            7.5    ! FailedMount: cannot prepare
            9    # succeed prepare
            15.5 prepare
            15.5 run sandbox 0
            15.5 find image busybox:1 for web
            15.5   = Pending sandbox initialized web#0=ContainerCreating
            15.5   - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            15.5 start web 0 in s1
            15.5   - Created: Created container: web
            15.5   - Started: Started container web
            15.5   = Running sandbox initialized ready containers web#0=running+
        "#]],
    );
}

#[test]
fn a_failed_sandbox_is_retried() {
    check(
        0..=20,
        "
        pod
        main web
        0 fail run sandbox
        9 succeed run sandbox
        ",
        expect![[r#"
            0    # fail run sandbox
            0    prepare
            0      = Pending initialized web#0=ContainerCreating
            0    run sandbox 0
            0      ! FailedCreatePodSandBox: Failed to create pod sandbox: cannot run sandbox
            0.5  run sandbox 1
            0.5    ! FailedCreatePodSandBox: Failed to create pod sandbox: cannot run sandbox
            1.5  run sandbox 2
            1.5    ! FailedCreatePodSandBox: Failed to create pod sandbox: cannot run sandbox
            3.5  run sandbox 3
            3.5    ! FailedCreatePodSandBox: Failed to create pod sandbox: cannot run sandbox
            7.5  run sandbox 4
            7.5    ! FailedCreatePodSandBox: Failed to create pod sandbox: cannot run sandbox
            9    # succeed run sandbox
            15.5 run sandbox 5
            15.5 find image busybox:1 for web
            15.5   = Pending sandbox initialized web#0=ContainerCreating
            15.5   - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            15.5 start web 0 in s1
            15.5   - Created: Created container: web
            15.5   - Started: Started container web
            15.5   = Running sandbox initialized ready containers web#0=running+
        "#]],
    );
}

#[test]
fn an_ephemeral_container_runs_once() {
    check(
        5..=100,
        "
        pod
        init first
        main web
        5 debug look
        10 exits look 1
        20 exits first 0
        30 delete
        ",
        expect![[r#"
            5    # debug look
            5    find image busybox:1 for look
            5      = Pending sandbox first#0=running~ web#0=PodInitializing look#0=PodInitializing
            5      - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            5    start look 0 in s1
            5      - Created: Created container: look
            5      - Started: Started container look
            5      = Pending sandbox first#0=running~ web#0=PodInitializing look#0=running
            10   # exits look 1
            10     = Pending sandbox first#0=running~ web#0=PodInitializing look#0=Error(1)
            20   # exits first 0
            20   find image busybox:1 for web
            20     = Pending sandbox initialized first#0=Completed(0)+ web#0=PodInitializing look#0=Error(1)
            20     - Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod
            20   start web 0 in s1
            20     - Created: Created container: web
            20     - Started: Started container web
            20     = Running sandbox initialized ready containers first#0=Completed(0)+ web#0=running+ look#0=Error(1)
            30   # delete
            30     - Killing: Stopping container web
            30   stop web c4 within 30s
            30   stop sandbox s1
            30     = Failed initialized first#0=Completed(0)+ web#0=Error(143) look#0=Error(1)
            30   remove sandbox s1
            30   clean up with its logs
            30   delete
            30   finished
        "#]],
    );
}

#[test]
fn a_host_network_pod_with_a_readiness_gate() {
    check(
        0..=100,
        "
        pod gate=ours host-network
        main web
        10 condition ours False
        20 condition ours True
        30 condition Ready False
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
            0      = Running sandbox initialized containers web#0=running+
            10   # condition ours False
            20   # condition ours True
            20     = Running ours sandbox initialized ready containers web#0=running+
            30   # condition Ready False
        "#]],
    );
}
