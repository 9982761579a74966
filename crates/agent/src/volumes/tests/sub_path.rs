//! Mounts of a container, and subPath.

use super::*;

#[tokio::test]
#[ignore = "needs root"]
async fn mounts_of_a_container() {
    let bed = Bed::new();
    bed.put("configmaps/settings", json!({"data": {"a": "1"}}));
    fs::create_dir_all(bed.root.join("host/sub")).unwrap();
    let host = bed.root.join("host");
    let pod = pod(json!({
        "containers": [{"name": "c", "volumeMounts": [
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": "scratch", "mountPath": "/part", "subPath": "new/er"},
            {"name": "scratch", "mountPath": "/named", "subPathExpr": "$(POD)/x"},
            {"name": "scratch", "mountPath": "/unknown", "subPathExpr": "$(WHO)/x"},
            {"name": "scratch", "mountPath": "/up", "subPathExpr": "$(UP)/etc"},
            {"name": "scratch", "mountPath": "/abs", "subPath": "/etc"},
            {"name": "settings", "mountPath": "/settings"},
            {"name": "settings", "mountPath": "/a", "subPath": "a"},
            {"name": "host", "mountPath": "/host", "readOnly": true, "mountPropagation": "HostToContainer"},
            {"name": "host", "mountPath": "/both", "mountPropagation": "Bidirectional"},
            {"name": "shared", "mountPath": "/shared", "mountPropagation": "Bidirectional"},
            {"name": "shared", "mountPath": "/received", "mountPropagation": "HostToContainer"},
            {"name": "logs", "mountPath": "/logs"},
            {"name": "machine", "mountPath": "/machine", "readOnly": true},
            {"name": "host", "mountPath": "/rro", "readOnly": true, "recursiveReadOnly": "IfPossible"},
            {"name": "host", "mountPath": "/rro", "readOnly": true, "recursiveReadOnly": "Enabled"},
            {"name": "none", "mountPath": "/none"},
        ]}],
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "settings", "configMap": {"name": "settings"}},
            {"name": "host", "hostPath": {"path": host}},
            {"name": "shared", "emptyDir": {}},
            {"name": "logs", "hostPath": {"path": "/var/log/pods/"}},
            {"name": "machine", "hostPath": {"path": "/"}},
        ],
    }));
    fs::create_dir(bed.root.join("private")).unwrap();
    rustix::mount::mount_bind(bed.root.join("private"), &host).unwrap();
    rustix::mount::mount_change(&host, rustix::mount::MountPropagationFlags::PRIVATE).unwrap();
    bed.prepare(&pod).await;
    check(
        &bed.mounts(&pod).await,
        expect![[r#"
        /scratch <- ROOT/node/pods/u1/volumes/kubernetes.io~empty-dir/scratch rw PROPAGATION_PRIVATE
        /part <- ROOT/node/pods/u1/volume-subpaths/scratch/c-1/0 rw PROPAGATION_PRIVATE
        /named <- ROOT/node/pods/u1/volume-subpaths/scratch/c-2/0 rw PROPAGATION_PRIVATE
        /unknown! volumeMount "scratch" of container "c-3": missing value for WHO
        /up! volumeMount "scratch" of container "c-4": invalid path: must not contain '..': ../../etc
        /abs! volumeMount "scratch" of container "c-5": invalid path: must be relative path: /etc
        /settings <- ROOT/node/pods/u1/volumes/kubernetes.io~configmap/settings ro PROPAGATION_PRIVATE
        /a <- ROOT/node/pods/u1/volume-subpaths/settings/c-7/0 ro PROPAGATION_PRIVATE
        /host <- ROOT/host ro PROPAGATION_PRIVATE
        /both! volumeMount "host" of container "c-9": path ROOT/host is mounted on ROOT/host but it is not a shared mount: `mount --make-rshared ROOT/host` on the machine makes it one
        /shared <- ROOT/node/pods/u1/volumes/kubernetes.io~empty-dir/shared rw PROPAGATION_BIDIRECTIONAL
        /received <- ROOT/node/pods/u1/volumes/kubernetes.io~empty-dir/shared rw PROPAGATION_HOST_TO_CONTAINER
        /logs <- ROOT/var-log/pods rw PROPAGATION_PRIVATE
        /machine <- / ro PROPAGATION_PRIVATE
        /machine/var/log <- ROOT/var-log ro PROPAGATION_PRIVATE
        /rro <- ROOT/host ro PROPAGATION_PRIVATE
        /rro! volumeMount "host" of container "c-15": requested recursive read-only mode, but it is not supported by the runtime
        /none! cannot find volume "none" to mount into container "c-16"
    "#]],
    );
    // The same again, as when a container restarts; and what its parts are.
    let again = bed.mounts(&pod).await;
    assert_eq!(again, bed.mounts(&pod).await);
    check(
        &tree(&bed.pod_dir().join("volume-subpaths")),
        expect![[r#"
        d755 0:0 scratch
        d755 0:0 scratch/c-1
        d777 0:0 scratch/c-1/0 mounted
        d755 0:0 scratch/c-2
        d777 0:0 scratch/c-2/0 mounted
        d755 0:0 settings
        d755 0:0 settings/c-7
        f644 0:0 settings/c-7/0 "1""#]],
    );
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_sub_path_stays_in_its_volume() {
    let bed = Bed::new();
    let sub_paths =
        ["out", "out/shadow", "up", "up/x", "fd", "in", "in/file", "dangling", "loop", "file/x", "file"];
    let mounts: Vec<Value> = sub_paths
        .iter()
        .map(|it| json!({"name": "v", "mountPath": format!("/{it}"), "subPath": it}))
        .collect();
    let spec = json!({"containers": [{"name": "c", "volumeMounts": mounts}], "volumes": [{"name": "v", "emptyDir": {}}]});
    let pod = pod(spec);
    bed.prepare(&pod).await;
    let dir = bed.pod_dir().join("volumes/kubernetes.io~empty-dir/v");
    fs::create_dir(bed.root.join("secrets")).unwrap();
    fs::write(bed.root.join("secrets/shadow"), "not yours").unwrap();
    symlink(bed.root.join("secrets"), dir.join("out")).unwrap();
    symlink("../../../../..", dir.join("up")).unwrap();
    symlink("/proc/self/fd", dir.join("fd")).unwrap();
    symlink("real", dir.join("in")).unwrap();
    symlink("nowhere/at/all", dir.join("dangling")).unwrap();
    symlink("loop", dir.join("loop")).unwrap();
    fs::create_dir(dir.join("real")).unwrap();
    fs::write(dir.join("real/file"), "mine").unwrap();
    fs::write(dir.join("file"), "").unwrap();
    check(
        &bed.mounts(&pod).await,
        expect![[r#"
        /out! volumeMount "v" of container "c-0": failed to prepare subPath: it does not exist, or leads out of its volume
        /out/shadow! volumeMount "v" of container "c-1": failed to prepare subPath: it does not exist, or leads out of its volume
        /up! volumeMount "v" of container "c-2": failed to prepare subPath: it does not exist, or leads out of its volume
        /up/x! volumeMount "v" of container "c-3": failed to prepare subPath: it does not exist, or leads out of its volume
        /fd! volumeMount "v" of container "c-4": failed to prepare subPath: it does not exist, or leads out of its volume
        /in <- ROOT/node/pods/u1/volume-subpaths/v/c-5/0 rw PROPAGATION_PRIVATE
        /in/file <- ROOT/node/pods/u1/volume-subpaths/v/c-6/0 rw PROPAGATION_PRIVATE
        /dangling! volumeMount "v" of container "c-7": failed to prepare subPath: it does not exist, or leads out of its volume
        /loop! volumeMount "v" of container "c-8": failed to prepare subPath: it does not exist, or leads out of its volume
        /file/x! volumeMount "v" of container "c-9": failed to prepare subPath: it does not exist, or leads out of its volume
        /file <- ROOT/node/pods/u1/volume-subpaths/v/c-10/0 rw PROPAGATION_PRIVATE
    "#]],
    );
    check(
        &tree(&bed.pod_dir().join("volume-subpaths")),
        expect![[r#"
        d755 0:0 v
        d755 0:0 v/c-10
        f644 0:0 v/c-10/0 ""
        d755 0:0 v/c-5
        d755 0:0 v/c-5/0 mounted
        f644 0:0 v/c-5/0/file "mine"
        d755 0:0 v/c-6
        f644 0:0 v/c-6/0 "mine""#]],
    );
    check(&tree(&bed.root.join("secrets")), expect![[r#"f644 0:0 shadow "not yours""#]]);
}

/// A container exchanges a directory for a link out of the volume, as fast as it can, while its part is mounted.
#[tokio::test]
#[ignore = "needs root"]
async fn a_link_that_comes_and_goes_leads_nowhere() {
    let bed = Bed::new();
    let volume = bed.root.join("volume");
    let outside = bed.root.join("outside");
    fs::create_dir_all(volume.join("a/b")).unwrap();
    fs::create_dir_all(outside.join("b")).unwrap();
    fs::write(outside.join("b/secret"), "not yours").unwrap();
    symlink(&outside, volume.join("link")).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let (swapping, at) = (is_over.clone(), volume.clone());
    let swapper = std::thread::spawn(move || {
        while !swapping.load(Ordering::Relaxed) {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            let (a, link) = (at.join("a"), at.join("link"));
            rustix::fs::renameat_with(rustix::fs::CWD, a, rustix::fs::CWD, link, exchange).unwrap();
        }
    });
    let target = bed.root.join("target");
    let (mut made, mut refused) = (0, 0);
    for _ in 0..100 {
        let opened = crate::volumes::sub_path::open_sub_path(&volume, Path::new("a/b"));
        match opened.and_then(|it| crate::volumes::sub_path::bind_mount(&it, &target)) {
            Ok(()) => {
                made += 1;
                assert!(!target.join("secret").exists(), "the link was followed");
                mount_table::unmount_point(&target).unwrap();
            }
            Err(_) => refused += 1,
        }
    }
    is_over.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert_eq!(made + refused, 100);
}
