//! Simulated nodes, as whoever asks the API server sees them: every way to fail, and back again.

use std::process::Command;
use std::time::Instant;

use expect_test::{Expect, expect};
use http::Method;
use serde_json::{Value, json};

use crate::bed::{Bed, PATIENCE, trim};

/// `muster sim-node …` on this bed: what it prints, on either side.
pub(crate) async fn sim_node(bed: &Bed, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.arg("sim-node").args(args).arg("--kubeconfig").arg(bed.dir.join("kubeconfig"));
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat()
}

/// Waits until it is so.
pub(crate) async fn becomes(expect: Expect, state: impl AsyncFn() -> String) {
    let began = Instant::now();
    loop {
        let state = state().await;
        let is_late = PATIENCE < began.elapsed();
        if is_late || state.trim() == trim(expect.data()).trim() {
            return expect.assert_eq(&state);
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// What is unusual about a node.
async fn trouble(bed: &Bed, node: &str) -> String {
    let node = bed.send(Method::GET, &format!("/api/v1/nodes/{node}"), &Value::Null).await;
    let Ok(node) = node else { return "gone".to_owned() };
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let unusual = conditions.iter().filter(|it| (it["type"] == "Ready") != (it["status"] == "True"));
    let told =
        unusual.map(|it| format!("{} {}", it["type"].as_str().unwrap(), it["reason"].as_str().unwrap()));
    told.collect::<Vec<_>>().join(", ")
}

async fn run(bed: &Bed, name: &str, node: &str, pod: Value) {
    let mut pod = pod;
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = name.into();
    pod["spec"]["nodeName"] = node.into();
    bed.create(pod).await;
}

fn image(image: &str) -> Value {
    json!({"spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": image}]}})
}

/// A pod in a line: phase, state, and whether it is ready, restarted, leaving.
async fn pod(bed: &Bed, name: &str) -> String {
    let pod = bed.send(Method::GET, &format!("/api/v1/namespaces/default/pods/{name}"), &Value::Null).await;
    let Ok(pod) = pod else { return "gone".to_owned() };
    let status = &pod["status"]["containerStatuses"][0];
    let state = status["state"].as_object().and_then(|it| it.iter().next());
    let state = state.map_or("unknown", |(kind, of)| of["reason"].as_str().unwrap_or(kind));
    let mut line = format!("{} {state}", pod["status"]["phase"].as_str().unwrap());
    if status["ready"] == true {
        line += " ready";
    }
    if status["restartCount"].as_i64().unwrap_or(0) != 0 {
        line += " again";
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        line += " leaving";
    }
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_fails_in_every_way_and_recovers() {
    let bed = Bed::new(3).await;
    let usual = || becomes(expect![[""]], async || trouble(&bed, "sim-1").await);
    usual().await;
    for (how, expect) in [
        ("not-ready", expect!["Ready KubeletNotReady"]),
        ("memory-pressure", expect!["MemoryPressure KubeletHasInsufficientMemory"]),
        ("disk-pressure", expect!["DiskPressure KubeletHasDiskPressure"]),
        ("pid-pressure", expect!["PIDPressure KubeletHasInsufficientPID"]),
        ("network-unavailable", expect!["NetworkUnavailable NoRouteCreated"]),
    ] {
        assert_eq!(sim_node(&bed, &["fail", "sim-1", "--how", how]).await, format!("sim-1: {how}\n"));
        becomes(expect, async || trouble(&bed, "sim-1").await).await;
        sim_node(&bed, &["recover", "sim-1"]).await;
        usual().await;
    }

    // Nothing starts on a node that is silent, or not ready, while it does elsewhere.
    sim_node(&bed, &["fail", "sim-1", "--how", "silent"]).await;
    sim_node(&bed, &["fail", "sim-2", "--how", "not-ready"]).await;
    becomes(expect!["Ready KubeletNotReady"], async || trouble(&bed, "sim-2").await).await;
    run(&bed, "first", "sim-1", image("web")).await;
    run(&bed, "second", "sim-2", image("web")).await;
    run(&bed, "third", "sim-3", image("web")).await;
    becomes(expect!["Running running ready"], async || pod(&bed, "third").await).await;
    assert_eq!(pod(&bed, "first").await, "Pending unknown");
    assert_eq!(pod(&bed, "second").await, "Pending unknown");
    sim_node(&bed, &["recover", "sim-1", "sim-2"]).await;
    becomes(expect!["Running running ready"], async || pod(&bed, "first").await).await;
    becomes(expect!["Running running ready"], async || pod(&bed, "second").await).await;

    // By annotation, as kubectl does it.
    let vanish = json!({"metadata": {"annotations": {"sim.muster.dev/fail": "vanish"}}});
    bed.patch_node("sim-3", vanish).await;
    becomes(expect!["gone"], async || trouble(&bed, "sim-3").await).await;
    expect![[r#"
        muster: there is no node "sim-3": `muster sim-node list` lists all simulated nodes, and `muster sim-node add --name sim-3` creates it
    "#]]
    .assert_eq(&sim_node(&bed, &["recover", "sim-3"]).await);
    assert_eq!(sim_node(&bed, &["add", "--name", "sim-3"]).await, "sim-3: added\n");
    becomes(expect![[""]], async || trouble(&bed, "sim-3").await).await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_fails_in_every_way() {
    let bed = Bed::new(1).await;
    let told = |annotations: Value| {
        let mut pod = image("web");
        pod["metadata"] = json!({"annotations": annotations});
        pod
    };
    run(&bed, "crashes", "sim-1", image("web:crash-loop")).await;
    run(&bed, "eats", "sim-1", image("web:out-of-memory")).await;
    run(&bed, "pulls", "sim-1", image("web:non-existent")).await;
    run(&bed, "waits", "sim-1", told(json!({"sim.muster.dev/never-ready": "true"}))).await;
    run(&bed, "slow", "sim-1", told(json!({"sim.muster.dev/start-delay": "1h"}))).await;
    run(&bed, "hangs", "sim-1", told(json!({"sim.muster.dev/stop-delay": "never"}))).await;
    let mut job = told(json!({"sim.muster.dev/exit-after": "1s"}));
    job["spec"]["restartPolicy"] = "Never".into();
    run(&bed, "ends", "sim-1", job).await;
    let mut failing = told(json!({"sim.muster.dev/exit-code": "3"}));
    failing["spec"]["restartPolicy"] = "Never".into();
    run(&bed, "fails", "sim-1", failing).await;

    becomes(expect!["Running CrashLoopBackOff again"], async || pod(&bed, "crashes").await).await;
    becomes(expect!["Running CrashLoopBackOff again"], async || pod(&bed, "eats").await).await;
    becomes(expect!["Pending ImagePullBackOff"], async || pod(&bed, "pulls").await).await;
    becomes(expect!["Running running"], async || pod(&bed, "waits").await).await;
    becomes(expect!["Pending ContainerCreating"], async || pod(&bed, "slow").await).await;
    becomes(expect!["Running running ready"], async || pod(&bed, "hangs").await).await;
    becomes(expect!["Succeeded Completed"], async || pod(&bed, "ends").await).await;
    becomes(expect!["Failed Error"], async || pod(&bed, "fails").await).await;

    let pods = "/api/v1/namespaces/default/pods";
    for name in ["hangs", "crashes", "slow", "waits"] {
        bed.send(Method::DELETE, &format!("{pods}/{name}"), &Value::Null).await.unwrap();
    }
    for name in ["crashes", "slow", "waits"] {
        becomes(expect!["gone"], async || pod(&bed, name).await).await;
    }
    assert_eq!(pod(&bed, "hangs").await, "Running running ready leaving");
    let now = json!({"gracePeriodSeconds": 0});
    bed.send(Method::DELETE, &format!("{pods}/hangs"), &now).await.unwrap();
    becomes(expect!["gone"], async || pod(&bed, "hangs").await).await;
    let mut mended = bed.get(&format!("{pods}/pulls")).await;
    mended["spec"]["containers"][0]["image"] = "web:2".into();
    mended["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    bed.send(Method::PUT, &format!("{pods}/pulls"), &mended).await.unwrap();
    becomes(expect!["Running running ready"], async || pod(&bed, "pulls").await).await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_added_drained_and_removed() {
    let bed = Bed::new(1).await;
    let added =
        sim_node(&bed, &["add", "--count", "2", "--label", "disk=ssd", "--taint", "gpu=yes:NoSchedule"]);
    assert_eq!(added.await, "sim-2: added\nsim-3: added\n");
    let node = bed.get("/api/v1/nodes/sim-3").await;
    assert_eq!(node["metadata"]["labels"]["disk"], "ssd");
    let taints = node["spec"]["taints"].as_array().unwrap();
    assert!(taints.contains(&json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"})), "{taints:?}");

    run(&bed, "a", "sim-2", image("web")).await;
    becomes(expect!["Running running ready"], async || pod(&bed, "a").await).await;
    sim_node(&bed, &["fail", "sim-3", "--how", "disk-pressure", "--how", "slow-start"]).await;
    expect![[r#"
        sim-2: cordoned
        default/a: evicted
        sim-2: drained
    "#]]
    .assert_eq(&sim_node(&bed, &["drain", "sim-2"]).await);
    expect![[r#"
        NODE                     FLEET        READY      FAILURES
        sim-1                    up           True       
        sim-2                    up           True       cordoned
        sim-3                    up           True       disk-pressure,slow-start
    "#]]
    .assert_eq(&sim_node(&bed, &["list"]).await);
    assert_eq!(sim_node(&bed, &["remove", "sim-2", "sim-3"]).await, "sim-2: removed\nsim-3: removed\n");
    expect![[r#"
        NODE                     FLEET        READY      FAILURES
        sim-1                    up           True       
    "#]]
    .assert_eq(&sim_node(&bed, &["list"]).await);
    bed.patch_node("sim-1", json!({"metadata": {"labels": {"sim.muster.dev/fleet": null}}})).await;
    expect![[r#"
        muster: the node "sim-1" is not a simulated node: it has no label sim.muster.dev/fleet
    "#]]
    .assert_eq(&sim_node(&bed, &["drain", "sim-1"]).await);
    bed.ends_well().await;
}
