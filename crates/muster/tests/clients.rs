//! Clients of many languages: kube-rs, those that `ci/clients` installs, and every kubectl where all must do the same.

mod bed;
#[path = "bed/installed.rs"]
mod installed;

use std::path::Path;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;

use bed::{Muster, kubectls};
use expect_test::expect;
use futures::{StreamExt as _, TryStreamExt as _};
use installed::{Installed, output, scripts};
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
async fn kube_rs_works() {
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

/// Runs a script against a cluster of its own with two simulated nodes. Gives all that it says.
fn run(client: &Installed, mut command: Command, script: &str) -> String {
    let muster = Muster::up(client.name, 2);
    command.arg(scripts().join(script)).env("KUBECONFIG", muster.kubeconfig());
    let said = output(&mut command);
    muster.stop();
    said
}

fn pythons_client(name: &'static str, exec: &str) {
    let client = Installed::find(name);
    let said = run(&client, client.python(), "kubernetes_client.py");
    let expected = expect![[r#"
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
        over a WebSocket: ADDED ConfigMap py
        logs of a simulated pod: 503
        exec in a simulated pod: EXEC
        namespaces in pages of: 3 1
        deleted: Success
    "#]];
    expected.assert_eq(
        &said.replace(&format!("exec in a simulated pod: {exec}"), "exec in a simulated pod: EXEC"),
    );
}

#[test]
#[ignore = "needs the client kubernetes-29: ci/clients"]
fn pythons_kubernetes_29() {
    pythons_client("kubernetes-29", "ApiException True");
}

#[test]
#[ignore = "needs the client kubernetes-36: ci/clients"]
fn pythons_kubernetes_36() {
    // It fails on the refusal itself: it decodes a body that a refused WebSocket does not have.
    pythons_client("kubernetes-36", "AttributeError ");
}

#[test]
#[ignore = "needs the client kubernetes-newest: ci/clients"]
fn pythons_newest_kubernetes() {
    pythons_client("kubernetes-newest", "ApiException True");
}

#[test]
#[ignore = "needs the client kubernetes_asyncio: ci/clients"]
fn pythons_kubernetes_asyncio() {
    let client = Installed::find("kubernetes_asyncio");
    expect![[r#"
        nodes: 2
        created: aio 1
        rolled out on: 2
        patched: {'patched': 'yes'}
        one: applied {'a': 'one'}
        two: 409 Conflict
        two: applied {'a': 'two'}
        deleted: Success
    "#]]
    .assert_eq(&run(&client, client.python(), "asyncio_client.py"));
}

#[test]
#[ignore = "needs the client kr8s: ci/clients"]
fn pythons_kr8s() {
    let client = Installed::find("kr8s");
    expect![[r#"
        nodes: 2
        created: kr
        rolled out, by: MODIFIED
        patched: {'patched': 'yes'}
        config map is there: False
        deleted, is there: False
    "#]]
    .assert_eq(&run(&client, client.python(), "kr8s_client.py"));
}

#[test]
#[ignore = "needs the client lightkube: ci/clients"]
fn pythons_lightkube() {
    let client = Installed::find("lightkube");
    expect![[r#"
        nodes: 2
        created: lk
        rolled out on: 2
        patched: {'patched': 'yes'}
        one: applied {'a': 'one'}
        two: 409 Conflict
        two: applied {'a': 'two'}
        deleted: 404
    "#]]
    .assert_eq(&run(&client, client.python(), "lightkube_client.py"));
}

#[test]
#[ignore = "needs the client client-node: ci/clients"]
fn javascripts_client_node() {
    let client = Installed::find("client-node");
    let mut node = Command::new("node");
    node.env("CLIENT_NODE", &client.dir);
    expect![[r#"
        nodes: 2
        created: js 1
        rolled out, by: MODIFIED
        HEAD: 200 application/json true
        bytes of its body: 0
        patched: yes
        one: applied one
        two: 409
        two: applied two
        logs of a simulated pod: 503
        exec in a simulated pod: Unexpected server response: 503
        deleted: Success
    "#]]
    .assert_eq(&run(&client, node, "node_client.mjs"));
}

#[test]
#[ignore = "needs the client kubeclient: ci/clients"]
fn rubys_kubeclient() {
    let client = Installed::find("kubeclient");
    let mut ruby = Command::new("ruby");
    ruby.arg("-W0");
    expect![[r#"
        nodes: 2
        created: rb
        rolled out, by: MODIFIED
        a pod: ADDED Pod
        one node: ADDED sim-1
        patched: yes
        logs of a simulated pod: 503
        deleted: 404
    "#]]
    .assert_eq(&run(&client, ruby, "ruby_client.rb"));
}

/// A chart with a DaemonSet is installed, upgraded, rolled back and uninstalled.
#[test]
#[ignore = "needs the client helm: ci/clients"]
fn helm_manages_a_release() {
    let client = Installed::find("helm");
    let muster = Muster::up("helm", 2);
    let chart = scripts().join("chart");
    let helm = |arguments: &[&str]| {
        let mut command = Command::new(client.dir.join("bin/helm"));
        let home = muster.dir.join("helm");
        command.env("KUBECONFIG", muster.kubeconfig()).env("PYTHONPATH", &client.dir);
        for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(name, &home);
        }
        let said = output(command.args(arguments));
        let is_stable = |it: &&str| !it.starts_with("LAST DEPLOYED") && !it.starts_with("WARNING");
        format!("helm {}\n{}\n", arguments[0], said.lines().filter(is_stable).collect::<Vec<_>>().join("\n"))
    };
    let chart = chart.to_str().unwrap();
    let mut said = helm(&["install", "every", chart, "--wait", "--timeout", "60s"]);
    said += &helm(&["upgrade", "every", chart, "--set", "image=img:2", "--wait", "--timeout", "60s"]);
    said += &helm(&["rollback", "every", "1", "--wait", "--timeout", "60s"]);
    let history = helm(&["history", "every", "-o", "json"]);
    let history: Vec<serde_json::Value> =
        serde_json::from_str(history.split_once('\n').map_or("", |it| it.1)).unwrap();
    for revision in &history {
        said += &format!("{} {}: {}\n", revision["revision"], revision["status"], revision["description"]);
    }
    said += &helm(&["uninstall", "every"]);
    expect![[r#"
        helm install
        NAME: every
        NAMESPACE: default
        STATUS: deployed
        REVISION: 1
        TEST SUITE: None
        helm upgrade
        Release "every" has been upgraded. Happy Helming!
        NAME: every
        NAMESPACE: default
        STATUS: deployed
        REVISION: 2
        TEST SUITE: None
        helm rollback
        Rollback was a success! Happy Helming!
        1 "superseded": "Install complete"
        2 "superseded": "Upgrade complete"
        3 "deployed": "Rollback to 1"
        helm uninstall
        release "every" uninstalled
    "#]]
    .assert_eq(&said);
    muster.stop();
}

/// A kind of a served group that is not served itself comes before a DaemonSet in a file: the DaemonSet is created.
#[test]
#[ignore = "needs kubectl"]
fn every_kubectl_reads_a_file_on_past_a_kind_that_is_not_served() {
    let muster = Muster::up("past-unserved", 1);
    let file = muster.dir.join("both.yaml");
    for (version, kubectl) in kubectls() {
        for flags in [&["apply"][..], &["apply", "--server-side"], &["create"]] {
            let name = format!("past-{}", version.replace(['.', '+'], "-"));
            let text = UNSERVED_THEN_SERVED.replace("NAME", &name);
            std::fs::write(&file, text).unwrap();
            let kubectl = |arguments: &[&str]| {
                let mut command = Command::new(&kubectl);
                output(command.env("KUBECONFIG", muster.kubeconfig()).args(arguments))
            };
            let said = kubectl(&[flags, &["-f", file.to_str().unwrap()]].concat());
            let found = kubectl(&["get", "daemonset", &name, "-o", "name"]);
            assert_eq!(found, format!("daemonset.apps/{name}\n"), "kubectl {version} {flags:?} says: {said}");
            assert!(
                said.contains("Deployment"),
                "kubectl {version} {flags:?} says nothing of the Deployment: {said}"
            );
            kubectl(&["delete", "daemonset", &name]);
        }
        let mut command = Command::new(&kubectl);
        let said = output(command.env("KUBECONFIG", muster.kubeconfig()).args(["get", "crd"]));
        assert!(said.starts_with("No resources found"), "kubectl {version} get crd says: {said}");
    }
    muster.stop();
}

const UNSERVED_THEN_SERVED: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: NAME
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: c, image: i}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: tests.example.com
spec:
  group: example.com
  names: {kind: Test, plural: tests}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: NAME
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: c, image: i}]}
";

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}
