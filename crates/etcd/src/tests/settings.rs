use bytes::Bytes;

use super::*;
use crate::cluster_settings::{create_cluster_settings, read_cluster_settings, replace_cluster_settings};
use crate::cluster_state::{self, ClusterState};

fn keyspace() -> Keyspace {
    Keyspace::new("/m", 0)
}

async fn read_state(etcd: &FakeEtcd) -> ClusterState {
    cluster_state::read(etcd, &keyspace()).await.unwrap()
}

async fn read(etcd: &FakeEtcd) -> Option<Bytes> {
    read_cluster_settings(etcd, &keyspace()).await.unwrap()
}

async fn create(etcd: &FakeEtcd, value: &'static str) -> Bytes {
    create_cluster_settings(etcd, &keyspace(), value.into()).await.unwrap()
}

async fn replace(etcd: &FakeEtcd, state: &ClusterState, old: &'static str, new: &'static str) -> bool {
    replace_cluster_settings(etcd, &keyspace(), state, old.into(), new.into()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_settings_are_those_of_the_first_server() {
    for seed in 0..30 {
        let etcd =
            FakeEtcd::new(seed, FaultRates { lost_request: 100, lost_response: 100, late: 50, ..FAULTS });
        assert_eq!(read(&etcd).await, None);
        let created =
            futures::future::join_all(["one", "two", "three"].map(|value| create(&etcd, value))).await;
        assert!(created.iter().all(|it| *it == created[0]), "seed {seed}: {created:?}");
        assert_eq!(read(&etcd).await.as_ref(), Some(&created[0]), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn settings_are_replaced_only_if_no_server_has_written_since() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    create(&etcd, "old").await;
    let server = Server::start(&etcd, "a").await;
    server.commit(put("pods/a/a", Precondition::Absent, "1")).await.unwrap();
    let state = read_state(&etcd).await;
    server.commit(put("pods/a/b", Precondition::Absent, "1")).await.unwrap();
    assert!(!replace(&etcd, &state, "old", "new").await);
    let state = read_state(&etcd).await;
    assert!(!replace(&etcd, &state, "other", "new").await, "another server has replaced them");
    assert_eq!(read(&etcd).await.unwrap(), "old");
    assert!(replace(&etcd, &state, "old", "new").await);
    assert_eq!(read(&etcd).await.unwrap(), "new");
    assert!(!replace(&etcd, &state, "new", "newer").await, "they were replaced since the state was read");
    let state = read_state(&etcd).await;
    assert!(replace(&etcd, &state, "new", "newer").await);
}

/// The server was suspended for so long that it seemed to be stopped.
#[tokio::test(start_paused = true)]
async fn a_server_with_the_old_settings_writes_nothing_and_ends() {
    for seed in 0..30 {
        let etcd = FakeEtcd::new(seed, FAULTS);
        create(&etcd, "old").await;
        let server = Server::start(&etcd, "a").await;
        let _ = server.commit(put("pods/a/a", Precondition::Any, "1")).await;
        // No transaction of the server is applied late.
        tokio::time::sleep(Duration::from_secs(20)).await;
        let state = read_state(&etcd).await;
        assert!(replace(&etcd, &state, "old", "new").await, "seed {seed}");
        let written = server.commit_if_running(put("pods/a/b", Precondition::Absent, "1")).await;
        assert!(!matches!(written, Some(Ok(_))), "seed {seed}: {written:?}");
        tokio::time::sleep(Duration::from_secs(20)).await;
        let failure = server.failure.lock().unwrap().clone();
        assert!(failure.as_ref().is_some_and(|it| it.contains("its settings were changed")), "{failure:?}");
        let key = keyspace().object_key("pods/a/b");
        assert!(!etcd.keys().iter().any(|it| it.key == key), "seed {seed}: the late write is in etcd");
        // A server with the new settings starts, and can write.
        let server = Server::start(&etcd, "b").await;
        while server.commit(put("pods/a/c", Precondition::Any, "1")).await.is_err() {}
    }
}
