//! A rolling upgrade to a version with a higher feature level. `--feature-level 0` makes a server behave like a version
//! that supports only level 0.

use std::time::Instant;

use k8s_openapi::api::coordination::v1::Lease;
use muster_etcd::proto::RangeRequest;
use muster_etcd::{EtcdApi as _, EtcdClient, Keyspace, raise_feature_level};

use super::etcd::write_token;
use super::*;
use crate::cluster::etcd::{Etcd, flags_with_token};

/// Prefix of the keys of the cluster in etcd.
const PREFIX: &str = "/muster/v1";

/// The flags of a server of the old version.
const OLD_VERSION: [&str; 2] = ["--feature-level", "0"];

/// What a server of the old version says when the level was raised.
const TOO_NEW: &str = "the cluster in etcd has feature level 1, and this version of Muster reads level 0 at most: run a newer \
                       version";

/// Time in which the new server would raise the level if it could: it reads the Leases of the servers every five seconds,
/// and raises the level every five seconds.
const RAISE_TIME: Duration = Duration::from_secs(12);

/// Maximum time until the Lease of a suspended server is deleted, which is two minutes after its last renewal, and the
/// level is raised.
const RAISE_TIMEOUT: Duration = Duration::from_secs(240);

/// Two servers of the old version and one of the new one share the cluster. One old server is stopped, and the other one
/// is suspended until the level was raised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn the_feature_level_is_raised_when_no_server_of_an_old_version_is_left() {
    let etcd = Etcd::start();
    let client = EtcdClient::new(std::slice::from_ref(&etcd.url), None).unwrap().accept_any_version();
    raise_feature_level(&client, &Keyspace::new(PREFIX, 0), 0).await.unwrap();
    let dir = fresh_dir("etcd-feature-level");
    let token = write_token(&dir);
    let new_flags = flags_with_token(&etcd.url, &token);
    let old_flags = [&new_flags[..], &OLD_VERSION].concat();
    let stopped = Server::start_with(&dir.join("stopped"), &old_flags);
    let mut suspended = Server::start_with(&dir.join("suspended"), &old_flags);
    let new = Server::start_with(&dir.join("new"), &new_flags);
    wait_for_levels(&new, &["0", "0", "1"]).await;
    tokio::time::sleep(RAISE_TIME).await;
    assert_eq!(feature_level(&client).await, "0", "the level was raised while old servers run");
    stopped.stop();
    wait_for_levels(&new, &["0", "1"]).await;
    signal(&suspended, "-STOP");
    let at_stop = last_writes(&client).await;
    tokio::time::sleep(RAISE_TIME).await;
    // The servers that write nothing any more: the stopped one and the suspended one.
    let idle: BTreeMap<_, _> =
        last_writes(&client).await.into_iter().filter(|(id, at)| at_stop.get(id) == Some(at)).collect();
    assert_eq!(idle.len(), 2, "{idle:?}");
    assert_eq!(feature_level(&client).await, "0", "the level was raised while an old server has a Lease");

    let began = Instant::now();
    while feature_level(&client).await != "1" {
        assert!(began.elapsed() < RAISE_TIMEOUT, "the level is not raised");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("the level was raised after another {:?}", began.elapsed());
    wait_for_levels(&new, &["1"]).await;
    let refused =
        Server::spawn(&dir.join("stopped"), &old_flags).err().expect("an old server does not start");
    assert_eq!(refused, format!("muster: {TOO_NEW}\n"));

    // The suspended server continues, and ends without a write.
    signal(&suspended, "-CONT");
    let began = Instant::now();
    let ended = loop {
        match suspended.child.try_wait().unwrap() {
            Some(ended) => break ended,
            None => assert!(began.elapsed() < Duration::from_secs(60), "the old server goes on"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    println!("the old server ended {:?} after it continued", began.elapsed());
    let mut log = String::new();
    suspended.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert_eq!(ended.code(), Some(1), "{log}");
    assert!(log.contains(TOO_NEW), "{log}");
    let after = last_writes(&client).await;
    let after: BTreeMap<_, _> = after.into_iter().filter(|(id, _)| idle.contains_key(id)).collect();
    assert_eq!(after, idle, "the old server has written");
    drop(new);
    fs::remove_dir_all(&dir).unwrap();
}

/// Waits until the Leases of the servers name these feature levels, in ascending order.
async fn wait_for_levels(server: &Server, levels: &[&str]) {
    let leases: Api<Lease> = Api::namespaced(server.client().await, "kube-system");
    let of_servers = ListParams::default().labels("apiserver.kubernetes.io/identity=muster-server");
    let began = Instant::now();
    loop {
        let found = leases.list(&of_servers).await.unwrap();
        let level = |it: &Lease| it.annotations().get("muster.dev/server-feature-level").cloned();
        let mut found: Vec<String> = found.iter().filter_map(level).collect();
        found.sort_unstable();
        if found == levels {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{found:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The feature level of the cluster in etcd.
async fn feature_level(client: &EtcdClient) -> String {
    let key = format!("{PREFIX}/m/format").into();
    let found = client.range(RangeRequest { key, ..RangeRequest::default() }).await.unwrap();
    String::from_utf8(found.kvs[0].value.to_vec()).unwrap()
}

/// The etcd revision of the last write of each server, by the ID of the server: that of its lanes, one of which every
/// transaction writes.
async fn last_writes(client: &EtcdClient) -> BTreeMap<String, i64> {
    let start = format!("{PREFIX}/l/");
    let request = RangeRequest {
        key: start.clone().into(),
        range_end: format!("{PREFIX}/l0").into(),
        ..RangeRequest::default()
    };
    let mut writes = BTreeMap::new();
    for lane in client.range(request).await.unwrap().kvs {
        let key = String::from_utf8(lane.key.to_vec()).unwrap();
        let server = key.strip_prefix(&start).unwrap().split('/').next().unwrap().to_owned();
        let last = writes.entry(server).or_insert(0);
        *last = lane.mod_revision.max(*last);
    }
    writes
}
