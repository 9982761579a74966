//! hostPath volumes.

use super::*;

#[tokio::test]
#[ignore = "needs root"]
async fn paths_of_the_machine_are_what_they_say() {
    let bed = Bed::new();
    let host = bed.root.join("host");
    fs::create_dir(&host).unwrap();
    fs::create_dir(host.join("dir")).unwrap();
    fs::write(host.join("file"), "").unwrap();
    symlink("dir", host.join("to-dir")).unwrap();
    symlink("nowhere", host.join("dangling")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(host.join("socket")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        host.join("block"),
        rustix::fs::FileType::BlockDevice,
        rustix::fs::Mode::RUSR,
        rustix::fs::makedev(7, 0),
    )
    .unwrap();
    let kinds =
        ["", "Directory", "File", "Socket", "CharDevice", "BlockDevice", "DirectoryOrCreate", "FileOrCreate"];
    let mut told = String::new();
    for path in ["dir", "file", "to-dir", "dangling", "socket", "block", "none/deep", "none", "/dev/null"] {
        let path = host.join(path);
        for kind in kinds {
            let volume = json!({"name": "v", "hostPath": {"path": path, "type": kind}});
            let pod = pod(json!({"containers": [{"name": "c"}], "volumes": [volume]}));
            let made = bed.prepare(&pod).await;
            let made = made.strip_prefix("MountVolume.SetUp failed for volume \"v\" : ").unwrap_or("yes");
            writeln!(told, "{} is {kind:?}: {made}", bed.without_root(path.to_str().unwrap())).unwrap();
        }
    }
    check(
        &told,
        expect![[r#"
        ROOT/host/dir is "": yes
        ROOT/host/dir is "Directory": yes
        ROOT/host/dir is "File": hostPath type check failed: ROOT/host/dir is not a file
        ROOT/host/dir is "Socket": hostPath type check failed: ROOT/host/dir is not a socket file
        ROOT/host/dir is "CharDevice": hostPath type check failed: ROOT/host/dir is not a character device
        ROOT/host/dir is "BlockDevice": hostPath type check failed: ROOT/host/dir is not a block device
        ROOT/host/dir is "DirectoryOrCreate": yes
        ROOT/host/dir is "FileOrCreate": hostPath type check failed: ROOT/host/dir is not a file
        ROOT/host/file is "": yes
        ROOT/host/file is "Directory": hostPath type check failed: ROOT/host/file is not a directory
        ROOT/host/file is "File": yes
        ROOT/host/file is "Socket": hostPath type check failed: ROOT/host/file is not a socket file
        ROOT/host/file is "CharDevice": hostPath type check failed: ROOT/host/file is not a character device
        ROOT/host/file is "BlockDevice": hostPath type check failed: ROOT/host/file is not a block device
        ROOT/host/file is "DirectoryOrCreate": hostPath type check failed: ROOT/host/file is not a directory
        ROOT/host/file is "FileOrCreate": yes
        ROOT/host/to-dir is "": yes
        ROOT/host/to-dir is "Directory": yes
        ROOT/host/to-dir is "File": hostPath type check failed: ROOT/host/to-dir is not a file
        ROOT/host/to-dir is "Socket": hostPath type check failed: ROOT/host/to-dir is not a socket file
        ROOT/host/to-dir is "CharDevice": hostPath type check failed: ROOT/host/to-dir is not a character device
        ROOT/host/to-dir is "BlockDevice": hostPath type check failed: ROOT/host/to-dir is not a block device
        ROOT/host/to-dir is "DirectoryOrCreate": yes
        ROOT/host/to-dir is "FileOrCreate": hostPath type check failed: ROOT/host/to-dir is not a file
        ROOT/host/dangling is "": yes
        ROOT/host/dangling is "Directory": hostPath type check failed: ROOT/host/dangling is not a directory
        ROOT/host/dangling is "File": hostPath type check failed: ROOT/host/dangling is not a file
        ROOT/host/dangling is "Socket": hostPath type check failed: ROOT/host/dangling is not a socket file
        ROOT/host/dangling is "CharDevice": hostPath type check failed: ROOT/host/dangling is not a character device
        ROOT/host/dangling is "BlockDevice": hostPath type check failed: ROOT/host/dangling is not a block device
        ROOT/host/dangling is "DirectoryOrCreate": cannot create the directory ROOT/host/dangling: File exists (os error 17)
        ROOT/host/dangling is "FileOrCreate": yes
        ROOT/host/socket is "": yes
        ROOT/host/socket is "Directory": hostPath type check failed: ROOT/host/socket is not a directory
        ROOT/host/socket is "File": hostPath type check failed: ROOT/host/socket is not a file
        ROOT/host/socket is "Socket": yes
        ROOT/host/socket is "CharDevice": hostPath type check failed: ROOT/host/socket is not a character device
        ROOT/host/socket is "BlockDevice": hostPath type check failed: ROOT/host/socket is not a block device
        ROOT/host/socket is "DirectoryOrCreate": hostPath type check failed: ROOT/host/socket is not a directory
        ROOT/host/socket is "FileOrCreate": hostPath type check failed: ROOT/host/socket is not a file
        ROOT/host/block is "": yes
        ROOT/host/block is "Directory": hostPath type check failed: ROOT/host/block is not a directory
        ROOT/host/block is "File": hostPath type check failed: ROOT/host/block is not a file
        ROOT/host/block is "Socket": hostPath type check failed: ROOT/host/block is not a socket file
        ROOT/host/block is "CharDevice": hostPath type check failed: ROOT/host/block is not a character device
        ROOT/host/block is "BlockDevice": yes
        ROOT/host/block is "DirectoryOrCreate": hostPath type check failed: ROOT/host/block is not a directory
        ROOT/host/block is "FileOrCreate": hostPath type check failed: ROOT/host/block is not a file
        ROOT/host/none/deep is "": yes
        ROOT/host/none/deep is "Directory": hostPath type check failed: ROOT/host/none/deep is not a directory
        ROOT/host/none/deep is "File": hostPath type check failed: ROOT/host/none/deep is not a file
        ROOT/host/none/deep is "Socket": hostPath type check failed: ROOT/host/none/deep is not a socket file
        ROOT/host/none/deep is "CharDevice": hostPath type check failed: ROOT/host/none/deep is not a character device
        ROOT/host/none/deep is "BlockDevice": hostPath type check failed: ROOT/host/none/deep is not a block device
        ROOT/host/none/deep is "DirectoryOrCreate": yes
        ROOT/host/none/deep is "FileOrCreate": hostPath type check failed: ROOT/host/none/deep is not a file
        ROOT/host/none is "": yes
        ROOT/host/none is "Directory": yes
        ROOT/host/none is "File": hostPath type check failed: ROOT/host/none is not a file
        ROOT/host/none is "Socket": hostPath type check failed: ROOT/host/none is not a socket file
        ROOT/host/none is "CharDevice": hostPath type check failed: ROOT/host/none is not a character device
        ROOT/host/none is "BlockDevice": hostPath type check failed: ROOT/host/none is not a block device
        ROOT/host/none is "DirectoryOrCreate": yes
        ROOT/host/none is "FileOrCreate": hostPath type check failed: ROOT/host/none is not a file
        /dev/null is "": yes
        /dev/null is "Directory": hostPath type check failed: /dev/null is not a directory
        /dev/null is "File": hostPath type check failed: /dev/null is not a file
        /dev/null is "Socket": hostPath type check failed: /dev/null is not a socket file
        /dev/null is "CharDevice": yes
        /dev/null is "BlockDevice": hostPath type check failed: /dev/null is not a block device
        /dev/null is "DirectoryOrCreate": hostPath type check failed: /dev/null is not a directory
        /dev/null is "FileOrCreate": hostPath type check failed: /dev/null is not a file
    "#]],
    );
    let made = fs::symlink_metadata(host.join("none/deep")).unwrap();
    assert!(made.is_dir() && !made.file_type().is_fifo());
}

#[tokio::test]
async fn a_path_of_the_machine_that_does_not_answer_holds_up_nobody() {
    use std::time::Duration;
    let (looks, soon) = (crate::volumes::host_path::HostPathOperations::default(), Duration::from_millis(20));
    let begun: Arc<AtomicU32> = Arc::default();
    let (answer, wait) = std::sync::mpsc::channel::<()>();
    let counted = begun.clone();
    let hangs = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        wait.recv().ok();
        Ok(())
    };
    let told = looks.run(Path::new("/gone"), soon, hangs).await.unwrap_err().to_string();
    expect!["hostPath /gone does not respond: its disk or file server may be gone"].assert_eq(&told);
    for _ in 0..10 {
        let counted = begun.clone();
        let looked = looks.run(Path::new("/gone"), soon, move || {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        assert!(looked.await.is_err(), "it is asked once, until it answers");
    }
    assert_eq!(begun.load(Ordering::Relaxed), 1);
    let long = Duration::from_secs(600);
    looks.run(Path::new("/here"), long, || Ok(())).await.unwrap();
    answer.send(()).unwrap();
    looks.run(Path::new("/gone"), long, || Ok(())).await.unwrap();
}

#[tokio::test]
#[ignore = "needs root"]
async fn a_host_path_through_a_symbolic_link_is_resolved_where_mounts_propagate() {
    let bed = Bed::new();
    let real = bed.root.join("real");
    fs::create_dir(&real).unwrap();
    rustix::mount::mount_bind(&real, &real).unwrap();
    rustix::mount::mount_change(&real, rustix::mount::MountPropagationFlags::SHARED).unwrap();
    symlink("real", bed.root.join("link")).unwrap();
    let pod = pod(json!({
        "containers": [{"name": "c", "volumeMounts": [
            {"name": "host", "mountPath": "/both", "mountPropagation": "Bidirectional"},
            {"name": "host", "mountPath": "/received", "mountPropagation": "HostToContainer"},
            {"name": "host", "mountPath": "/plain"},
        ]}],
        "volumes": [{"name": "host", "hostPath": {"path": bed.root.join("link"), "type": "Directory"}}],
    }));
    bed.prepare(&pod).await;
    let mounts = bed.mounts(&pod).await;
    rustix::mount::unmount(&real, rustix::mount::UnmountFlags::empty()).unwrap();
    check(
        &mounts,
        expect![[r#"
        /both <- ROOT/real rw PROPAGATION_BIDIRECTIONAL
        /received <- ROOT/real rw PROPAGATION_HOST_TO_CONTAINER
        /plain <- ROOT/link rw PROPAGATION_PRIVATE
    "#]],
    );
}
