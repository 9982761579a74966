//! Several servers behind a balancer that sends every request to another one: a client does not notice.
//!
//! With MUSTER_TEST_STORE=etcd-balanced, the tests of other files run on such servers. The first test here shows that a
//! read without a read barrier is stale there, so that those tests find a missing one.

mod cluster;

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{
    DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use cluster::{BALANCED_SERVERS, TestCluster};

/// Maximum time until an event arrives, also on a busy machine.
const EVENT_TIMEOUT: Duration = Duration::from_secs(60);

fn fresh_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("balanced-{name}"));
    if dir.exists() {
        fs::remove_dir_all(&dir).unwrap();
    }
    dir
}

fn map(name: &str, value: usize) -> ConfigMap {
    let metadata = json!({"name": name, "labels": {"of": "test"}});
    let map = json!({"metadata": metadata, "data": {"value": value.to_string()}});
    serde_json::from_value(map).unwrap()
}

fn value(map: &ConfigMap) -> usize {
    map.data.as_ref().unwrap()["value"].parse().unwrap()
}

#[tokio::test]
#[ignore = "needs etcd"]
async fn only_a_read_of_any_version_is_stale() {
    const WRITES: usize = 10;
    let cluster = TestCluster::serve_balanced(&fresh_dir("stale"));
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await);
    maps.create(&PostParams::default(), &map("m", 0)).await.unwrap();
    let mut stale = 0;
    for written in 1..=WRITES {
        maps.patch("m", &PatchParams::default(), &Patch::Merge(map("m", written))).await.unwrap();
        for _ in 0..BALANCED_SERVERS {
            let any_version = GetParams::any();
            stale += usize::from(value(&maps.get_with("m", &any_version).await.unwrap()) < written);
        }
        for _ in 0..BALANCED_SERVERS {
            assert_eq!(value(&maps.get("m").await.unwrap()), written);
            let list = maps.list(&ListParams::default().labels("of=test")).await.unwrap();
            assert_eq!(list.iter().map(value).collect::<Vec<_>>(), [written]);
        }
    }
    let reads = WRITES * BALANCED_SERVERS;
    // On a busy machine, most reads come after the delayed events.
    assert!(0 < stale, "of {reads} reads with resourceVersion=0, {stale} were stale");
    cluster.stop();
}

#[tokio::test]
#[ignore = "needs etcd"]
async fn pages_and_watches_continue_at_other_servers() {
    const MAPS: usize = 20;
    const PAGE: usize = 3;
    let cluster = TestCluster::serve_balanced(&fresh_dir("pages"));
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await);
    for number in 0..MAPS {
        maps.create(&PostParams::default(), &map(&format!("m-{number:02}"), 0)).await.unwrap();
    }

    // All pages show one state, although objects change between them.
    let mut params = ListParams::default().labels("of=test").limit(PAGE as u32);
    let (mut listed, mut versions, mut changes) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let page = maps.list(&params).await.unwrap();
        listed.extend(page.iter().map(|it| format!("{} {}", it.name_any(), value(it))));
        versions.push(page.metadata.resource_version.clone().unwrap());
        let Some(next) = page.metadata.continue_.filter(|it| !it.is_empty()) else { break };
        params = params.continue_token(&next);
        let number = versions.len();
        let (changed, late) = (format!("m-{:02}", MAPS - number), format!("late-{number}"));
        let patch = Patch::Merge(map(&changed, number));
        maps.patch(&changed, &PatchParams::default(), &patch).await.unwrap();
        maps.create(&PostParams::default(), &map(&late, 0)).await.unwrap();
        changes.extend([format!("modified {changed} {number}"), format!("added {late} 0")]);
    }
    assert_eq!(listed, (0..MAPS).map(|it| format!("m-{it:02} 0")).collect::<Vec<_>>());
    assert_eq!(versions.len(), MAPS.div_ceil(PAGE));
    versions.dedup();
    assert_eq!(versions.len(), 1, "{versions:?}");
    maps.delete("m-00", &DeleteParams::default()).await.unwrap();
    changes.push("deleted m-00 0".to_owned());

    // A watch that ends after every event, and continues at another server.
    let mut version = versions.remove(0);
    let mut seen = Vec::new();
    while seen.len() < changes.len() {
        let params = WatchParams::default().labels("of=test");
        let mut events = pin!(maps.watch(&params, &version).await.unwrap());
        let event = tokio::time::timeout(EVENT_TIMEOUT, events.next()).await.expect("an event arrives");
        let (what, map) = match event.expect("the watch does not end").unwrap() {
            WatchEvent::Added(map) => ("added", map),
            WatchEvent::Modified(map) => ("modified", map),
            WatchEvent::Deleted(map) => ("deleted", map),
            other => panic!("{other:?}"),
        };
        seen.push(format!("{what} {} {}", map.name_any(), value(&map)));
        version = map.resource_version().unwrap();
    }
    assert_eq!(seen, changes);
    cluster.stop();
}
