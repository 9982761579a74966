//! Nodes that are not well, and what that means for the pods on them.

use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};

use crate::bed::{Bed, set, with};
use crate::line::Weather;
use crate::nodes::{becomes, sim_node};

/// Simulated nodes speak every ten seconds, and may be late on a machine that is busy.
const GRACE: Duration = Duration::from_secs(20);

/// A cluster of three nodes with somebody who watches over them.
async fn cluster() -> Bed {
    let mut bed = Bed::new(3).await;
    bed.binds_directly();
    bed.watches_nodes(GRACE).await;
    bed.start(0, Weather::fair());
    bed
}

/// Each node: whether it is ready, its taints and pods, and what is unusual about those.
async fn shown(bed: &Bed) -> String {
    let nodes = bed.get("/api/v1/nodes").await["items"].take();
    let pods = bed.get("/api/v1/namespaces/default/pods").await["items"].take();
    let mut shown = String::new();
    for node in nodes.as_array().unwrap() {
        let name = &node["metadata"]["name"];
        let mut taints: Vec<String> = array(&node["spec"]["taints"]).iter().map(taint).collect();
        taints.sort();
        let ready = condition(node, "Ready").map_or("", |it| it["status"].as_str().unwrap());
        shown += &format!("{} {ready} [{}]", name.as_str().unwrap(), taints.join(" "));
        for pod in pods.as_array().unwrap().iter().filter(|it| it["spec"]["nodeName"] == *name) {
            shown += &format!(" {}", told(pod));
        }
        shown += "\n";
    }
    shown
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], |it| it)
}

fn taint(taint: &Value) -> String {
    let key = taint["key"].as_str().unwrap();
    let short = key.strip_prefix("node.kubernetes.io/").unwrap_or(key);
    format!("{short}:{}", taint["effect"].as_str().unwrap())
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    array(&object["status"]["conditions"]).iter().find(|it| it["type"] == kind)
}

fn told(pod: &Value) -> String {
    let app = pod["metadata"]["labels"]["app"].as_str();
    let mut told = app.or(pod["metadata"]["name"].as_str()).unwrap().to_owned();
    if condition(pod, "Ready").is_none_or(|it| it["status"] != "True") {
        told += "(not ready)";
    }
    if let Some(why) = condition(pod, "DisruptionTarget") {
        told += &format!("({})", why["reason"].as_str().unwrap());
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        told += "(leaving)";
    }
    told
}

/// Two daemons, one on every node.
async fn daemons(bed: &Bed) {
    bed.create(set("agent", "v1")).await;
    let running = expect![[r#"
        sim-1 True [] agent
        sim-2 True [] agent
        sim-3 True [] agent
    "#]];
    becomes(running, async || shown(bed).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_node_keeps_its_daemon_pods_and_evicts_others() {
    let bed = cluster().await;
    daemons(&bed).await;
    let tolerations = json!([
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2},
    ]);
    for (name, tolerations) in [("short", tolerations), ("usual", json!([]))] {
        let spec = json!({"nodeName": "sim-1", "tolerations": tolerations, "containers": [{"name": "c", "image": "web"}]});
        bed.create(json!({"kind": "Pod", "metadata": {"name": name}, "spec": spec})).await;
    }
    let running = expect![[r#"
        sim-1 True [] agent short usual
        sim-2 True [] agent
        sim-3 True [] agent
    "#]];
    becomes(running, async || shown(&bed).await).await;

    sim_node(&bed, &["fail", "sim-1", "--how", "silent"]).await;
    let lost = expect![[r#"
        sim-1 Unknown [unreachable:NoExecute unreachable:NoSchedule] agent(not ready) short(not ready)(DeletionByTaintManager)(leaving) usual(not ready)
        sim-2 True [] agent
        sim-3 True [] agent
    "#]];
    becomes(lost, async || shown(&bed).await).await;
    let events = bed.get("/api/v1/events").await["items"].take();
    let mut events: Vec<String> = array(&events)
        .iter()
        .filter(|it| it["source"]["component"] == "node-lifecycle")
        .map(|it| format!("{} {}", it["reason"].as_str().unwrap(), it["message"].as_str().unwrap()))
        .collect();
    events.sort();
    events.dedup();
    expect![[r#"
        NodeNotReady Node is not ready
        NodeNotReady Node sim-1 status is now: NodeNotReady
        TaintManagerEviction Marking for deletion Pod default/short"#]]
    .assert_eq(&events.join("\n"));

    sim_node(&bed, &["recover", "sim-1"]).await;
    let back = expect![[r#"
        sim-1 True [] agent usual
        sim-2 True [] agent
        sim-3 True [] agent
    "#]];
    becomes(back, async || shown(&bed).await).await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cordon_and_every_pressure_keep_pods_away_until_they_are_over() {
    let bed = cluster().await;
    daemons(&bed).await;
    bed.patch_node("sim-1", json!({"spec": {"unschedulable": true}})).await;
    sim_node(
        &bed,
        &["fail", "sim-2", "--how", "memory-pressure", "--how", "disk-pressure", "--how", "pid-pressure"],
    )
    .await;
    sim_node(&bed, &["fail", "sim-3", "--how", "not-ready"]).await;
    let troubled = expect![[r#"
        sim-1 True [unschedulable:NoSchedule] agent
        sim-2 True [disk-pressure:NoSchedule memory-pressure:NoSchedule pid-pressure:NoSchedule] agent
        sim-3 False [not-ready:NoExecute not-ready:NoSchedule] agent
    "#]];
    becomes(troubled, async || shown(&bed).await).await;
    bed.patch_node("sim-1", json!({"spec": {"unschedulable": null}})).await;
    sim_node(&bed, &["recover", "sim-2", "sim-3"]).await;
    daemons_are_back(&bed).await;
    bed.ends_well().await;
}

async fn daemons_are_back(bed: &Bed) {
    let running = expect![[r#"
        sim-1 True [] agent
        sim-2 True [] agent
        sim-3 True [] agent
    "#]];
    becomes(running, async || shown(bed).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_network_agent_runs_on_a_node_without_network() {
    let bed = cluster().await;
    sim_node(&bed, &["fail", "sim-1", "--how", "network-unavailable"]).await;
    let waits = expect![[r#"
        sim-1 True [network-unavailable:NoSchedule]
        sim-2 True []
        sim-3 True []
    "#]];
    becomes(waits, async || shown(&bed).await).await;
    let tolerates = json!([{
        "key": "node.kubernetes.io/network-unavailable", "operator": "Exists", "effect": "NoSchedule",
    }]);
    bed.create(set("agent", "v1")).await;
    bed.create(with(set("net", "v1"), "spec.template.spec.tolerations", tolerates)).await;
    let first = expect![[r#"
        sim-1 True [network-unavailable:NoSchedule] net
        sim-2 True [] agent net
        sim-3 True [] agent net
    "#]];
    becomes(first, async || shown(&bed).await).await;
    sim_node(&bed, &["recover", "sim-1"]).await;
    let then = expect![[r#"
        sim-1 True [] agent net
        sim-2 True [] agent net
        sim-3 True [] agent net
    "#]];
    becomes(then, async || shown(&bed).await).await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taint_sends_off_whoever_does_not_tolerate_it() {
    let bed = cluster().await;
    let pod = |name: &str, tolerations: Value| {
        let spec = json!({"nodeName": "sim-1", "tolerations": tolerations, "containers": [{"name": "c", "image": "web"}]});
        json!({"kind": "Pod", "metadata": {"name": name}, "spec": spec})
    };
    bed.create(pod("ever", json!([{"key": "mine", "operator": "Exists"}]))).await;
    bed.create(pod("never", json!([]))).await;
    let began = expect![[r#"
        sim-1 True [] ever never
        sim-2 True []
        sim-3 True []
    "#]];
    becomes(began, async || shown(&bed).await).await;
    bed.patch_node("sim-1", json!({"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}})).await;
    let sent_off = expect![[r#"
        sim-1 True [mine:NoExecute] ever
        sim-2 True []
        sim-3 True []
    "#]];
    becomes(sent_off, async || shown(&bed).await).await;
    bed.ends_well().await;
}
