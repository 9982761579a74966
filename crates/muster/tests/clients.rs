//! Clients that are not kubectl: kube-rs, and Python's where it is installed.

#[expect(dead_code, reason = "no kubectl runs here")]
mod bed;

use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use bed::Muster;
use expect_test::expect;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{Condition, await_condition};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource as _, ResourceExt as _, discovery};
use serde_json::json;

/// Two pods take about a second; a machine that is busy with other tests takes its time.
const TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn kube_rs_takes_it_for_a_cluster() {
    let muster = Muster::up("kube-rs", 2);
    let said = tokio::time::timeout(2 * TIMEOUT, kube_rs(client(&muster.kubeconfig()).await)).await;
    expect![[r#"
        typed: created with generation Some(1), strategy Some("RollingUpdate")
        typed: again: 409 AlreadyExists
        typed: rolled out on 2 nodes
        typed: a stale replace: 409 Conflict
        dynamic: DaemonSet apps/v1 lists ["rs"]
        dynamic: patched {"app": "rs", "patched": "strategic"}
        apply: one owns ["one"] of {"a": "1", "b": "1"}
        apply: two may not: 409 Apply failed with 1 conflict: conflict with "one": .data.a
        apply: two with force: ["one", "two"] of {"a": "2", "b": "1"}
        metadata: [("rs", "apps/v1 DaemonSet")]
        watcher: streamed Init, kube-root-ca.crt, rs, InitDone
        watcher: listed Init, kube-root-ca.crt, rs, InitDone
        watcher: applied rs {"a": "2", "b": "3"}, deleted rs
        deleted: true
    "#]]
    .assert_eq(&said.expect("it hangs").unwrap());
    muster.stop();
}

async fn kube_rs(client: Client) -> kube::Result<String> {
    let mut said = Vec::new();
    let sets: Api<DaemonSet> = Api::default_namespaced(client.clone());
    let set: DaemonSet = serde_json::from_value(json!({
        "metadata": {"name": "rs", "labels": {"app": "rs"}},
        "spec": {
            "selector": {"matchLabels": {"app": "rs"}},
            "template": {
                "metadata": {"labels": {"app": "rs"}},
                "spec": {"containers": [{"name": "c", "image": "img:1"}]},
            },
        },
    }))
    .map_err(kube::Error::SerdeError)?;
    let created = sets.create(&PostParams::default(), &set).await?;
    let strategy = created.spec.as_ref().and_then(|it| it.update_strategy.as_ref()?.type_.clone());
    said.push(format!(
        "typed: created with generation {:?}, strategy {strategy:?}",
        created.meta().generation
    ));
    said.push(format!("typed: again: {}", refusal(sets.create(&PostParams::default(), &set).await)));
    let rolled_out = |set: Option<&DaemonSet>| {
        set.and_then(|it| it.status.as_ref()?.number_available).is_some_and(|it| it == 2)
    };
    let waited = tokio::time::timeout(TIMEOUT, await_condition(sets.clone(), "rs", rolled_out)).await;
    let is_rolled_out = waited.is_ok_and(|it| it.is_ok_and(|it| rolled_out.matches_object(it.as_ref())));
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pods = pods.list(&ListParams::default().labels("app=rs")).await?.items.len();
    said.push(format!(
        "typed: {} on {pods} nodes",
        if is_rolled_out { "rolled out" } else { "not available" }
    ));
    sets.patch("rs", &PatchParams::default(), &Patch::Merge(json!({"spec": {"minReadySeconds": 1}}))).await?;
    said.push(format!(
        "typed: a stale replace: {}",
        refusal(sets.replace("rs", &PostParams::default(), &created).await)
    ));

    let gvk = GroupVersionKind::gvk("apps", "v1", "DaemonSet");
    let (found, _) = discovery::pinned_kind(&client, &gvk).await?;
    let dynamic: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &found);
    let names: Vec<_> = dynamic.list(&ListParams::default()).await?.iter().map(|it| it.name_any()).collect();
    said.push(format!("dynamic: {} {} lists {names:?}", found.kind, found.api_version));
    let patch = Patch::Strategic(json!({"metadata": {"labels": {"patched": "strategic"}}}));
    let patched = dynamic.patch("rs", &PatchParams::default(), &patch).await?;
    said.push(format!("dynamic: patched {:?}", patched.labels()));

    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let apply = async |manager: &str, force: bool, data: serde_json::Value| {
        let params = if force { PatchParams::apply(manager).force() } else { PatchParams::apply(manager) };
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rs"}, "data": data});
        maps.patch("rs", &params, &Patch::Apply(body)).await
    };
    let shown = |map: &ConfigMap| {
        let managers: Vec<_> = map.managed_fields().iter().filter_map(|it| it.manager.clone()).collect();
        format!("{managers:?} of {:?}", map.data.clone().unwrap_or_default())
    };
    said.push(format!("apply: one owns {}", shown(&apply("one", false, json!({"a": "1", "b": "1"})).await?)));
    let Err(kube::Error::Api(refused)) = apply("two", false, json!({"a": "2"})).await else {
        panic!("what one owns was applied by two")
    };
    said.push(format!("apply: two may not: {} {}", refused.code, refused.message));
    said.push(format!("apply: two with force: {}", shown(&apply("two", true, json!({"a": "2"})).await?)));

    let metadata = sets.list_metadata(&ListParams::default()).await?;
    let resource = ApiResource::erase::<DaemonSet>(&());
    let listed: Vec<_> = metadata
        .iter()
        .map(|it| (it.name_any(), format!("{} {}", resource.api_version, resource.kind)))
        .collect();
    said.push(format!("metadata: {listed:?}"));

    for (name, config) in
        [("streamed", watcher::Config::default().streaming_lists()), ("listed", watcher::Config::default())]
    {
        let events = pin!(watcher::watcher(maps.clone(), config));
        let first: Vec<_> =
            events.take(4).map_ok(|it| event(&it)).try_collect().await.map_err(watch_error)?;
        said.push(format!("watcher: {name} {}", first.join(", ")));
    }
    let mut events = pin!(watcher::watcher(maps.clone(), watcher::Config::default().streaming_lists()));
    while !matches!(events.try_next().await.map_err(watch_error)?, Some(Event::InitDone) | None) {}
    maps.patch("rs", &PatchParams::default(), &Patch::Merge(json!({"data": {"b": "3"}}))).await?;
    maps.delete("rs", &DeleteParams::default()).await?;
    let then: Vec<_> = events.take(2).map_ok(|it| event(&it)).try_collect().await.map_err(watch_error)?;
    said.push(format!("watcher: {}", then.join(", ")));

    sets.delete("rs", &DeleteParams::background()).await?;
    said.push(format!("deleted: {}", sets.get_opt("rs").await?.is_none()));
    Ok(said.iter().map(|it| format!("{it}\n")).collect())
}

fn event(event: &Event<ConfigMap>) -> String {
    match event {
        Event::Init => "Init".to_owned(),
        Event::InitDone => "InitDone".to_owned(),
        Event::InitApply(map) => map.name_any(),
        Event::Apply(map) => format!("applied {} {:?}", map.name_any(), map.data.clone().unwrap_or_default()),
        Event::Delete(map) => format!("deleted {}", map.name_any()),
    }
}

fn watch_error(error: watcher::Error) -> kube::Error {
    kube::Error::Service(error.into())
}

fn refusal<T>(outcome: kube::Result<T>) -> String {
    match outcome {
        Err(kube::Error::Api(refused)) => format!("{} {}", refused.code, refused.reason),
        Err(other) => other.to_string(),
        Ok(_) => "it was let through".to_owned(),
    }
}

#[test]
fn pythons_client_takes_it_for_a_cluster() {
    let named = std::env::var_os("MUSTER_TEST_PYTHON");
    let python = named.clone().unwrap_or_else(|| "python3".into());
    let found = Command::new(&python).args(["-c", "import kubernetes"]).output();
    if !found.is_ok_and(|it| it.status.success()) {
        assert!(named.is_none(), "{} has no package kubernetes", python.display());
        println!("not run: no Python with the package kubernetes; name one in MUSTER_TEST_PYTHON");
        return;
    }
    let muster = Muster::up("python", 2);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients.py");
    let output = Command::new(&python).arg(script).env("KUBECONFIG", muster.kubeconfig()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    expect![[r#"
        created: py RollingUpdate 1
        created again: 409 AlreadyExists
        rolled out on: 2 nodes
        patched: {'patched': 'merge'}
        patched: {'also': 'json', 'patched': 'merge'}
        replaced: 1
        replaced a stale one: 409 Conflict
        one: applied {'a': '1', 'b': '1'} managed by ['one']
        two: applied {'a': '1', 'b': '1', 'c': '2'} managed by ['one', 'two']
        two applied what is one's: 409 Conflict
        two: applied {'a': '2', 'b': '1'} managed by ['one', 'two']
        one: applied {'a': '2'} managed by ['one', 'two']
        seen: ADDED seen {'k': '1'}
        seen: MODIFIED seen {'k': '2'}
        seen: DELETED seen {'k': '2'}
        namespaces in pages of: 3 1
        deleted: Success
    "#]]
    .assert_eq(&(text(&output.stdout) + &text(&output.stderr)));
    muster.stop();
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}
