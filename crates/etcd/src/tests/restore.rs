use bytes::Bytes;
use muster_store::{EncryptionKeys, ObjectListDigest};

use super::*;
use crate::cluster_state::{self, ClusterState, UnusableError};
use crate::load::LoadError;
use crate::restore::{RestoreError, RestoreInput, restore};
use crate::snapshot::EtcdSnapshot;
use crate::{EtcdError, FEATURE_LEVEL, mark_moved, raise_feature_level};

const OBJECTS: usize = 350;
const BACKUP_REVISION: Revision = 70_000;

fn keyspace() -> Keyspace {
    Keyspace::new("/m", 0)
}

fn encryption() -> EncryptionKeys {
    let dir = tempfile::tempdir().unwrap();
    EncryptionKeys::write_file_with_new_key(None, &dir.path().join("keys")).unwrap()
}

/// A newer version has raised the feature level, because all servers that it knew could read what it writes.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_too_old_for_the_cluster_ends_and_does_not_start() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "a").await;
    server.commit(put("pods/a/a", Precondition::Absent, "1")).await.unwrap();
    for _ in 0..2 {
        raise_feature_level(&etcd, &keyspace(), FEATURE_LEVEL).await.unwrap();
    }
    assert_eq!(read_state(&etcd).await.feature_level, FEATURE_LEVEL);
    server.commit(put("pods/a/b", Precondition::Absent, "1")).await.unwrap();
    raise_feature_level(&etcd, &keyspace(), FEATURE_LEVEL + 1).await.unwrap();
    // No level is taken back.
    raise_feature_level(&etcd, &keyspace(), FEATURE_LEVEL).await.unwrap();
    assert_eq!(read_state(&etcd).await.feature_level, FEATURE_LEVEL + 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let expected = "the cluster in etcd has feature level 2, and this version of Muster reads level 1 at most: run a newer version";
    assert!(server.failure.lock().unwrap().as_ref().is_some_and(|it| it.contains(expected)));
    let refused = load::load(&etcd, keyspace(), &ObjectCodec::default(), WIDE).await.unwrap_err();
    assert_eq!(refused.to_string(), expected);
}

/// The objects of a backup, ordered by key. One of them is too large to share a transaction with another one.
fn backup_objects() -> Vec<Arc<StoredObject>> {
    let object = |at: usize| {
        let value = "x".repeat(if at == 70 { 1 << 20 } else { at });
        let json = format!(r#"{{"metadata":{{"name":"{at}","resourceVersion":"{at}"}},"value":"{value}"}}"#);
        Arc::new(StoredObject {
            key: format!("{}/default/{at:04}", if at < 300 { "configmaps" } else { "secrets" }).into(),
            value: json.into(),
            index: SelectorIndex::new([("at", &*at.to_string())], []),
            created: at as Revision,
            modified: at as Revision,
            expires_s: at.is_multiple_of(9).then_some(at as u64 + 1),
        })
    };
    (0..OBJECTS).map(object).collect()
}

fn input<'a>(objects: &'a [Arc<StoredObject>], encryption: &'a EncryptionKeys) -> RestoreInput<'a> {
    RestoreInput {
        objects,
        cluster_keys: Bytes::from_static(b"sealed"),
        encryption,
        cluster_uid: "uid".to_owned(),
        revision: BACKUP_REVISION,
        revision_gap: 1_000,
    }
}

async fn read_state(etcd: &FakeEtcd) -> ClusterState {
    cluster_state::read(etcd, &keyspace()).await.unwrap()
}

/// Checks that etcd has the objects of a complete restore, and nothing else of an earlier cluster.
async fn check_restored(
    etcd: &FakeEtcd,
    objects: &[Arc<StoredObject>],
    encryption: &EncryptionKeys,
    above: Revision,
) {
    let codec = ObjectCodec { encryption: Some(encryption.clone()) };
    let loaded = load::load(etcd, keyspace(), &codec, WIDE).await.unwrap();
    let found: Vec<Arc<StoredObject>> = loaded.store.list("").cloned().collect();
    assert_eq!(ObjectListDigest::of(&found), ObjectListDigest::of(objects));
    for object in &found {
        assert!(above < object.modified && object.created <= object.modified, "{object:?}");
        let version = format!(r#""resourceVersion":"{}""#, object.modified);
        assert!(String::from_utf8_lossy(&object.value).contains(&version));
    }
    assert!(found.iter().map(|it| it.modified).max() <= Some(loaded.store.revision()));
    let others: Vec<String> = etcd
        .keys()
        .iter()
        .filter(|it| keyspace().store_key(&it.key).is_none())
        .map(|it| String::from_utf8_lossy(&it.key).into_owned())
        .collect();
    assert_eq!(others, ["/m/m/base", "/m/m/compacted", "/m/m/keys", "/m/m/source"]);
    assert_eq!(read_cluster_keys(etcd, &keyspace()).await.unwrap().unwrap(), "sealed");
}

#[tokio::test(start_paused = true)]
async fn a_restore_is_complete_although_requests_are_lost_and_late() {
    let (objects, encryption) = (backup_objects(), encryption());
    for seed in 0..30 {
        let etcd =
            FakeEtcd::new(seed, FaultRates { lost_request: 100, lost_response: 100, late: 50, ..FAULTS });
        let server = Server::start(&etcd, "s").await;
        for at in 0..30 {
            let _ = server.commit(put(&format!("pods/default/{at}"), Precondition::Any, "old")).await;
        }
        drop(server);
        tokio::time::sleep(Duration::from_secs(20)).await;
        let before = read_state(&etcd).await;
        assert!(0 < before.last_write);
        let mut attempts = 0;
        while let Err(error) =
            restore(&etcd, &keyspace(), &read_state(&etcd).await, &input(&objects, &encryption), &mut |_| ())
                .await
        {
            // The first transaction is not repeated. An attempt may be applied later, in the place of the next one.
            let is_expected = matches!(
                error,
                RestoreError::Etcd(EtcdError::NoResponse { .. })
                    | RestoreError::Raced
                    | RestoreError::Superseded
            );
            assert!(is_expected, "seed {seed}: {error}");
            attempts += 1;
            assert!(attempts < 100, "seed {seed}: {error}");
        }
        etcd.stop_faults();
        tokio::time::sleep(Duration::from_secs(20)).await;
        check_restored(&etcd, &objects, &encryption, BACKUP_REVISION + 1_000).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_interrupted_restore_no_server_starts_until_it_is_run_again() {
    let (objects, encryption) = (backup_objects(), encryption());
    let mut interrupted = 0;
    for steps_ms in (0..400).step_by(20) {
        let etcd = FakeEtcd::new(steps_ms + 1, FaultRates::default());
        let server = Server::start(&etcd, "s").await;
        // The resourceVersions of the replaced cluster are above those of the backup.
        for at in 0..600 {
            server.commit(put("pods/default/a", Precondition::Any, &at.to_string())).await.unwrap();
        }
        let seen = server.published.read().revision();
        assert!(BACKUP_REVISION < seen);
        let before = read_state(&etcd).await;
        let (keys, input) = (keyspace(), input(&objects, &encryption));
        let mut progress = |_| ();
        let running = restore(&etcd, &keys, &before, &input, &mut progress);
        let ended = tokio::time::timeout(Duration::from_millis(steps_ms), running).await;
        if ended.is_err() && read_state(&etcd).await.is_restoring() {
            interrupted += 1;
            let refused = load::load(&etcd, keyspace(), &ObjectCodec::default(), WIDE).await.unwrap_err();
            assert!(matches!(refused, LoadError::Unusable(UnusableError::Restoring)), "{refused}");
            let refused = EtcdSnapshot::take(&etcd, keyspace(), true).await.unwrap_err();
            assert!(matches!(refused, LoadError::Unusable(UnusableError::Restoring)), "{refused}");
            let created = create_cluster_keys(&etcd, &keyspace(), Bytes::from_static(b"new")).await;
            assert!(created.is_err());
            // A server that seemed to be stopped does not go on.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let failure = server.failure.lock().unwrap().clone();
            assert!(failure.is_some_and(|it| it.contains("restore")));
        }
        let state = read_state(&etcd).await;
        restore(&etcd, &keys, &state, &input, &mut |_| ()).await.unwrap();
        check_restored(&etcd, &objects, &encryption, seen + 1_000).await;
    }
    assert!(5 < interrupted, "{interrupted}");
}

/// One prefix is the beginning of the other one. A restore of the outer cluster would delete the inner one.
#[tokio::test(start_paused = true)]
async fn two_clusters_do_not_share_keys() {
    let (objects, encryption) = (backup_objects(), encryption());
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (outer, inner) = (Keyspace::new("/muster", 0), Keyspace::new("/muster/v1", 0));
    let start = async |keys: &Keyspace| {
        let loaded = load::load(&etcd, keys.clone(), &ObjectCodec::default(), WIDE).await;
        loaded.map(drop).map_err(|it| it.to_string())
    };
    let state = async |keys: &Keyspace| cluster_state::read(&etcd, keys).await.unwrap();
    let input = input(&objects, &encryption);
    let refuse = async |keys: &Keyspace| {
        let before = etcd.keys();
        let refused = restore(&etcd, keys, &state(keys).await, &input, &mut |_| ()).await.unwrap_err();
        assert!(matches!(refused, RestoreError::Unusable(UnusableError::Prefix(_))), "{refused}");
        assert_eq!(etcd.keys(), before);
        start(keys).await.unwrap_err()
    };
    assert_eq!((start(&outer).await, start(&inner).await), (Ok(()), Ok(())));
    create_cluster_keys(&etcd, &inner, Bytes::from_static(b"keys")).await.unwrap();
    assert_eq!(start(&inner).await, Ok(()));
    expect_test::expect![
        "etcd has the key /muster/v1/m/keys below the prefix /muster/, which is not one of this cluster but perhaps of another one: choose another --etcd-prefix"
    ]
    .assert_eq(&refuse(&outer).await);
    restore(&etcd, &inner, &state(&inner).await, &input, &mut |_| ()).await.unwrap();
    assert_eq!(start(&Keyspace::new("/muster-2", 0)).await, Ok(()));
    etcd.delete_prefix("/muster/");
    create_cluster_keys(&etcd, &outer, Bytes::from_static(b"keys")).await.unwrap();
    assert_eq!(start(&outer).await, Ok(()));
    expect_test::expect![
        "etcd has a cluster with the prefix /muster/, which has all keys below /muster/v1/: choose another --etcd-prefix"
    ]
    .assert_eq(&refuse(&inner).await);
}

#[tokio::test(start_paused = true)]
async fn a_restore_changes_nothing_if_a_server_writes() {
    let (objects, encryption) = (backup_objects(), encryption());
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    server.commit(put("pods/default/a", Precondition::Absent, "1")).await.unwrap();
    let state = read_state(&etcd).await;
    server.commit(put("pods/default/a", Precondition::Any, "2")).await.unwrap();
    let keys = etcd.keys();
    let raced = restore(&etcd, &keyspace(), &state, &input(&objects, &encryption), &mut |_| ()).await;
    assert!(matches!(raced, Err(RestoreError::Raced)), "{raced:?}");
    assert!(!mark_moved(&etcd, &keyspace(), &state).await.unwrap());
    assert_eq!(etcd.keys(), keys);
    assert!(mark_moved(&etcd, &keyspace(), &read_state(&etcd).await).await.unwrap());
    let refused = load::load(&etcd, keyspace(), &ObjectCodec::default(), WIDE).await.unwrap_err();
    assert!(matches!(refused, LoadError::Unusable(UnusableError::Moved)), "{refused}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let failure = server.failure.lock().unwrap().clone();
    assert!(failure.is_some_and(|it| it.contains("moved")));
}

/// A transaction of a server has no response and is repeated. The first attempt is on its way during a restore, which
/// deletes the lane that would refuse it.
#[tokio::test(start_paused = true)]
async fn a_late_transaction_of_a_server_writes_nothing_to_the_restored_cluster() {
    let (objects, encryption) = (backup_objects(), encryption());
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let other = Server::start(&etcd, "other").await;
    other.commit(put("nodes//before", Precondition::Absent, "old")).await.unwrap();
    let server = Server::start(&etcd, "s").await;
    etcd.delay_next_transaction(Duration::from_secs(100));
    server.commit(put("nodes//late", Precondition::Absent, "late")).await.unwrap();
    let state = read_state(&etcd).await;
    restore(&etcd, &keyspace(), &state, &input(&objects, &encryption), &mut |_| ()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(200)).await;
    check_restored(&etcd, &objects, &encryption, BACKUP_REVISION + 1_000).await;
}

/// The server is cut off for the whole restore, and etcd compacts its events.
#[tokio::test(start_paused = true)]
async fn a_server_that_was_cut_off_during_a_restore_ends() {
    let (objects, encryption) = (backup_objects(), encryption());
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    server.commit(put("pods/default/a", Precondition::Absent, "1")).await.unwrap();
    etcd.stop_watch(0);
    let state = read_state(&etcd).await;
    restore(&etcd, &keyspace(), &state, &input(&objects, &encryption), &mut |_| ()).await.unwrap();
    etcd.compact_to_current();
    etcd.resume_watches();
    tokio::time::sleep(Duration::from_secs(5)).await;
    expect_test::expect!["the cluster was restored, or its settings were changed, while this server was cut off. Restart the server"]
        .assert_eq(server.failure.lock().unwrap().as_deref().unwrap_or_default());
    // It has published nothing of the restored cluster.
    assert_eq!(server.published.read().list("").map(|it| value_of(it)).collect::<Vec<_>>(), ["1"]);
    assert!(server.commit_if_running(put("pods/default/b", Precondition::Any, "2")).await.is_none());
    check_restored(&etcd, &objects, &encryption, BACKUP_REVISION + 1_000).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_restores_the_first_one_stops() {
    let (objects, encryption) = (backup_objects(), encryption());
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let keys = keyspace();
    let (first, second) = (input(&objects, &encryption), input(&objects[..40], &encryption));
    let state = read_state(&etcd).await;
    let (mut progress, mut ignored) = (|_| (), |_| ());
    let first = restore(&etcd, &keys, &state, &first, &mut progress);
    let second = async {
        while !read_state(&etcd).await.is_restoring() {}
        loop {
            let state = read_state(&etcd).await;
            match restore(&etcd, &keys, &state, &second, &mut ignored).await {
                // The first one has written its mark again in the meantime.
                Err(RestoreError::Raced) => {}
                done => break done,
            }
        }
    };
    let (first, second) = tokio::join!(first, second);
    assert!(matches!(first, Err(RestoreError::Superseded)), "{first:?}");
    second.unwrap();
    check_restored(&etcd, &objects[..40], &encryption, BACKUP_REVISION).await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_has_one_revision_while_servers_write() {
    let etcd = FakeEtcd::new(3, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    for at in 0..700 {
        let key = format!("pods/default/{at:03}");
        server.commit(put(&key, Precondition::Absent, "old")).await.unwrap();
    }
    let snapshot = EtcdSnapshot::take(&etcd, keyspace(), false).await.unwrap();
    assert_eq!(snapshot.revision(), server.published.read().revision() | 127);
    for at in [0, 350, 699] {
        server.commit(put(&format!("pods/default/{at:03}"), Precondition::Any, "new")).await.unwrap();
    }
    server.commit(delete("pods/default/600", Precondition::Any)).await.unwrap();
    let mut found = Vec::new();
    let encryption = encryption();
    snapshot
        .read_objects::<LoadError>(&etcd, &encryption, &mut |it| {
            found.push(it);
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(found.len(), 700);
    assert!(found.iter().all(|it| value_of(it) == "old" && it.modified <= snapshot.revision()));
    etcd.compact_to_current();
    let compacted = snapshot.read_objects::<LoadError>(&etcd, &encryption, &mut |_| Ok(())).await;
    assert!(matches!(compacted, Err(LoadError::Etcd { source: EtcdError::Compacted })), "{compacted:?}");
}
