//! Servers whose etcd is restored from a snapshot that `etcdctl snapshot save` made. They must not go on with objects
//! that no longer exist.

use std::time::Instant;

use kube::api::VersionMatch;

use super::etcd::write_token;
use super::*;
use crate::cluster::etcd::{Etcd, flags_with_token};

/// Maximum time until a server has noticed the restore. It is below the interval of the consistency check, which is five
/// minutes.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(60);

/// Number of objects that are created after the snapshot. The restored etcd must not reach the revision that the servers
/// have seen before they notice the restore.
const LOST_OBJECTS: usize = 50;

/// One server runs while etcd is restored, and one is suspended until the restored etcd has reached the revision that
/// the server has seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd and etcdctl"]
async fn servers_notice_that_etcd_was_restored_from_a_snapshot() {
    let mut etcd = Etcd::start();
    let dir = fresh_dir("etcd-snapshot");
    let token = write_token(&dir);
    let url = etcd.url.clone();
    let flags = flags_with_token(&url, &token);
    let mut running = Server::start_with(&dir.join("running"), &flags);
    let mut suspended = Server::start_with(&dir.join("suspended"), &flags);
    create_map(&running.maps().await, "kept").await;
    let snapshot = etcd.save_snapshot();
    let maps = suspended.maps().await;
    let mut seen = 0;
    for it in 0..LOST_OBJECTS {
        seen = create_map(&maps, &format!("lost-{it}")).await;
    }
    // The running server has seen this revision too.
    running.maps().await.get(&format!("lost-{}", LOST_OBJECTS - 1)).await.unwrap();
    signal(&suspended, "-STOP");

    etcd.restore_snapshot(&snapshot);
    let began = Instant::now();
    let ended = loop {
        match running.child.try_wait().unwrap() {
            Some(ended) => break ended,
            None => assert!(began.elapsed() < NOTICE_TIMEOUT, "the server goes on"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    println!("the running server ended {:?} after the restore", began.elapsed());
    let mut log = String::new();
    running.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert_eq!(ended.code(), Some(1), "{log}");
    assert!(log.contains("etcd was restored from a snapshot. Restart the servers"), "{log}");

    // A server that starts now has the objects of the snapshot.
    let restarted = Server::start_with(&dir.join("running"), &flags);
    let restored = restarted.maps().await;
    assert_eq!(map_names(&restored).await, ["kept"]);
    for it in 0.. {
        if seen < create_map(&restored, &format!("new-{it}")).await {
            break;
        }
    }
    let expected = map_names(&restored).await;
    signal(&suspended, "-CONT");
    let began = Instant::now();
    while map_names(&maps).await != expected {
        assert!(began.elapsed() < NOTICE_TIMEOUT, "the server shows objects that no longer exist");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("the suspended server noticed the restore after {:?}", began.elapsed());
    let mut log = suspended.child.stderr.take().unwrap();
    drop((suspended, restarted));
    let mut text = String::new();
    log.read_to_string(&mut text).unwrap();
    assert!(text.contains("so etcd was restored from a snapshot: loading all objects again"), "{text}");
    fs::remove_dir_all(&dir).unwrap();
}

/// Creates a ConfigMap. Returns its resourceVersion.
async fn create_map(maps: &Api<ConfigMap>, name: &str) -> Revision {
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    number(maps.create(&PostParams::default(), &map).await.unwrap().resource_version().as_deref())
}

/// The names of the ConfigMaps of the test in the memory of a server.
async fn map_names(maps: &Api<ConfigMap>) -> Vec<String> {
    let from_memory = ListParams::default().matching(VersionMatch::NotOlderThan).at("0");
    let found = maps.list(&from_memory).await.unwrap();
    found.iter().map(|it| it.name_any()).filter(|it| it != "kube-root-ca.crt").collect()
}
