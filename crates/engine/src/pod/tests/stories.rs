//! What a pod does on its node, from beginning to end.

use expect_test::expect;

use super::play;

#[test]
fn a_pod_runs_and_is_deleted() {
    play(
        100,
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
            20     = Failed sandbox initialized web#0=Error(143)
            20     = Failed initialized web#0=Error(143)
            20   remove sandbox s1
            20   clean up with its logs
            20   delete
            20   over
        "#]],
    );
}
