//! Removal of the directories of deleted pods.

use super::*;

#[tokio::test]
#[ignore = "needs root"]
async fn what_is_left_is_deleted_and_nothing_beside_it() {
    let bed = Bed::new();
    let volumes = json!([{"name": "v", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory"}}]);
    let pod = pod(json!({"containers": [{"name": "c"}], "volumes": volumes}));
    bed.prepare(&pod).await;
    let outside = bed.root.join("outside");
    fs::create_dir_all(outside.join("dir")).unwrap();
    fs::write(outside.join("dir/file"), "stays").unwrap();
    let dir = bed.pod_dir().join("volumes/kubernetes.io~empty-dir/v");
    symlink(&outside, dir.join("link")).unwrap();
    symlink(outside.join("dir/file"), dir.join("file-link")).unwrap();
    // A mount of the machine's in the volume, shared with it, and one on top of another.
    fs::create_dir(dir.join("bound")).unwrap();
    fs::create_dir(outside.join("sub")).unwrap();
    rustix::mount::mount_bind(&outside, &outside).unwrap();
    rustix::mount::mount_change(&outside, rustix::mount::MountPropagationFlags::SHARED).unwrap();
    rustix::mount::mount_bind(outside.join("dir"), outside.join("sub")).unwrap();
    rustix::mount::mount_bind_recursive(&outside, dir.join("bound")).unwrap();
    rustix::mount::mount_bind(outside.join("dir"), dir.join("bound")).unwrap();
    // Deeper than a path can be, and than there are files to open.
    let mut at =
        rustix::fs::openat(rustix::fs::CWD, &dir, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
            .unwrap();
    for _ in 0..1000 {
        rustix::fs::mkdirat(&at, "deep", rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "deep", rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty())
            .unwrap();
    }
    fs::write(dir.join(".deep-1"), "in the way").unwrap();

    bed.volumes.clean_up_pod("u1").await.unwrap();
    assert_eq!(tree(&bed.root.join("node")), "d755 0:0 pods");
    check(
        &tree(&outside),
        expect![[r#"
        d755 0:0 dir
        f644 0:0 dir/file "stays"
        d755 0:0 sub mounted
        f644 0:0 sub/file "stays""#]],
    );
}
