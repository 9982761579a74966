//! `muster explain` and `muster plan`, as a user has them: the real binary beside a server and, where it matters, a controller.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Instant;

use expect_test::expect;
use http::Request;
use serde_json::{Value, json};

use super::{Cluster, PATIENCE, set, text};

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";

#[tokio::test]
async fn why_not_here() {
    let cluster = Cluster::start("why").await;
    let node = async |name: &str, labels: Value, spec: Value, cpu: &str| {
        cluster.create("/api/v1/nodes", json!({"metadata": {"name": name, "labels": labels}})).await;
        ready(&cluster, name, spec, cpu).await;
    };
    let good = || json!({"disk": "ssd", "zone": "a"});
    node("n1", good(), json!({}), "4").await;
    node("n2", good(), json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}), "4")
        .await;
    node("n3", good(), json!({"unschedulable": true}), "4").await;
    node("n4", json!({"disk": "ssd", "zone": "c"}), json!({}), "4").await;
    node("n5", json!({"disk": "hdd", "zone": "a"}), json!({}), "4").await;
    node("n6", good(), json!({}), "4").await;
    node("n7", good(), json!({}), "1").await;
    let guest = json!({
        "metadata": {"name": "exporter"},
        "spec": {"nodeName": "n6", "containers": [{"name": "c", "image": "c:1", "ports": [{"containerPort": 1, "hostPort": 9100}]}]},
    });
    cluster.create("/api/v1/namespaces/default/pods", guest).await;
    let mut web = set("web");
    let spec = &mut web["spec"]["template"]["spec"];
    spec["nodeSelector"] = json!({"disk": "ssd"});
    let zones = json!([{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]);
    spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}});
    spec["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 9100}]);
    spec["containers"][0]["resources"] = json!({"requests": {"cpu": "2"}});
    cluster.create(SETS, web).await;

    expect![[r#"
        [0] DaemonSet default/web: revision not recorded yet, generation 1
        7 nodes: 4 should run it (4 missing), 3 should not (3 excluded)

          NODES  STATE        WHY
              2  missing      no pod yet
                              n1, n3
              1  missing      host port 9100/TCP is in use
                              n6
                              pod default/exporter uses it
              1  missing      insufficient cpu
                              n7
                              the pod requests 2; of 1 on the node, 0 are requested
              1  excluded     node affinity requires zone in (a, b)
                              n4
                              the node has zone=c
              1  excluded     taint gpu=yes:NoSchedule is not tolerated
                              n2
              1  excluded     the node selector requires disk=ssd
                              n5
                              the node has disk=hdd

        rollout     the template is not recorded as a revision yet: no pod is created
                    until it is
        controller  state unavailable: the API server does not serve /debug/explain;
                    name the metrics address of `muster controller` with --controller
        note        No controller has observed generation 1 yet (last observed: 0): is
                    one running?
    "#]]
    .assert_eq(&said(&cluster, &["explain", "ds/web"]));
    expect![[r#"
        [0] DaemonSet default/web on node n7: missing, and should run there
          insufficient cpu
          the pod requests 2; of 1 on the node, 0 are requested

        rollout     the template is not recorded as a revision yet: no pod is created
                    until it is
        controller  state unavailable: the API server does not serve /debug/explain;
                    name the metrics address of `muster controller` with --controller
        note        No controller has observed generation 1 yet (last observed: 0): is
                    one running?
    "#]]
    .assert_eq(&said(&cluster, &["explain", "daemonset", "web", "--node", "n7"]));
    let json: Value =
        serde_json::from_str(&said(&cluster, &["explain", "web", "-n", "default", "-o", "json"])[4..])
            .unwrap();
    let reasons: BTreeMap<&str, &str> = json["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["node"].as_str().unwrap(), it["reason"].as_str().unwrap()))
        .collect();
    expect![[r#"
        {"excluded":3,"gone":0,"kept":0,"missing":4,"notReady":0,"outdated":0,"pending":0,"removing":0,"terminating":0,"total":7,"upToDate":0} {
            "n1": "NoPodOnNode",
            "n2": "UntoleratedNoScheduleTaint",
            "n3": "NoPodOnNode",
            "n4": "NodeAffinityMismatch",
            "n5": "NodeSelectorMismatch",
            "n6": "NoPodOnNode",
            "n7": "NoPodOnNode",
        }"#]].assert_eq(&format!("{} {reasons:#?}", json["counts"]));
    expect![[r#"
        [1] muster: at SERVER: DaemonSet default/nothing not found; the namespace has web
        [1] muster: deploy is not a DaemonSet: name one as ds/NAME
        [1] muster: there is no node n9, and no pod of default/web on it
        [2] error: invalid value 'yaml' for '--output <FORMAT>'
          [possible values: table, wide, json]

        For more information, try '--help'.
    "#]]
    .assert_eq(
        &[
            said(&cluster, &["explain", "ds/nothing"]),
            said(&cluster, &["explain", "deploy/web"]),
            said(&cluster, &["explain", "ds/web", "--node", "n9"]),
            said(&cluster, &["explain", "ds/web", "-o", "yaml"]),
        ]
        .concat(),
    );

    // Who may not look is told what for.
    let kubeconfig = fs::read_to_string(cluster.dir.join("kubeconfig")).unwrap();
    let stranger = cluster.dir.join("stranger");
    let mut config: Value = serde_json::from_str(&kubeconfig).unwrap_or_else(|_| as_json(&kubeconfig));
    config["users"][0]["user"]["as"] = "stranger".into();
    fs::write(&stranger, config.to_string()).unwrap();
    let as_stranger = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        let output = command.args(args).arg("--kubeconfig").arg(&stranger).output().unwrap();
        let server = regex::Regex::new(r"https://\S+/").unwrap();
        server.replace(&text(&output), "SERVER").into_owned()
    };
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let grant = async |name: &str, rules: Value| {
        cluster
            .create(&format!("{rbac}/clusterroles"), json!({"metadata": {"name": name}, "rules": rules}))
            .await;
        let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "stranger"});
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        let binding = json!({"metadata": {"name": name}, "subjects": [subject], "roleRef": role});
        cluster.create(&format!("{rbac}/clusterrolebindings"), binding).await;
    };
    let mut refusals = as_stranger(&["explain", "ds/web"]);
    grant("sets", json!([{"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get"]}])).await;
    refusals += &as_stranger(&["explain", "ds/web"]);
    expect![[r#"
        muster: at SERVER: you may not get daemonsets in the namespace default: a Role or ClusterRole must grant you the verb get on daemonsets of the group apps
        muster: at SERVER: you may not list nodes: a Role or ClusterRole must grant you the verb list on nodes
    "#]].assert_eq(&refusals);
}

#[tokio::test]
async fn what_a_rollout_waits_for() {
    let cluster = Cluster::start("waits").await;
    let controller = cluster.controller_with("a", &["--leader-elect=false"]);
    assert_eq!(controller.once_ready().await, "leader 1");
    for name in ["n1", "n2", "n3"] {
        cluster.create("/api/v1/nodes", json!({"metadata": {"name": name}})).await;
        ready(&cluster, name, json!({}), "4").await;
    }
    cluster.create(SETS, set("web")).await;
    all_up(&cluster, "registry.example/c:1", 3).await;
    let endpoint = format!("http://{}", controller.address().unwrap());
    let explain = |more: &[&str]| {
        let args = [&["explain", "ds/web", "--controller", &endpoint], more].concat();
        without_times(&said(&cluster, &args))
    };
    let once = async |wanted: &str| {
        let began = Instant::now();
        loop {
            let shown = explain(&[]);
            if shown.contains(wanted) && is_quiet(&shown) {
                return shown;
            }
            assert!(began.elapsed() < PATIENCE, "{shown}");
        }
    };
    let shown = once("rollout     complete").await;
    expect![[r#"
        [0] DaemonSet default/web: revision 1, generation 1
        3 nodes: 3 should run it (3 up to date), 0 should not

          NODES  STATE        WHY
              3  up to date   its pod is available
                              n1, n2, n3

        rollout     complete: 3 nodes with an available pod of this revision
        controller  next reconcile when something changes
    "#]]
    .assert_eq(&shown);

    // An image that nobody has.
    let mut web = cluster.get(&format!("{SETS}/web")).await;
    web["spec"]["template"]["spec"]["containers"][0]["image"] = "nowhere.example/c:2".into();
    cluster.put(&format!("{SETS}/web"), &web).await;
    let broken = new_pod(&cluster, "nowhere.example/c:2").await;
    let waiting =
        json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image \"nowhere.example/c:2\""});
    let status = json!({"phase": "Pending", "containerStatuses": [{
        "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": waiting},
    }]});
    write_status(&cluster, &broken, status).await;
    let shown = once("ImagePullBackOff: Back-off").await;
    let node = broken["spec"]["nodeName"].as_str().unwrap();
    assert!(shown.contains(&format!("waits for 1 node: ImagePullBackOff: {node}\n")), "{shown}");
    expect![[r#"
        [0] DaemonSet default/web: revision 2, generation 2
        3 nodes: 3 should run it (2 outdated, 1 not ready), 0 should not

          NODES  STATE        WHY
              2  outdated     outdated, waits for the rollout budget (1 of 1 used)
                              NODE, NODE
              1  not ready    ImagePullBackOff
                              NODE
                              pod POD: container c: ImagePullBackOff: Back-off
                              pulling image "nowhere.example/c:2"

        rollout     1 of 3 nodes up to date, 2 available
                    maxUnavailable 1: 1 unavailable, none left
                    waits for 1 node: ImagePullBackOff: NODE
                    next: NODE, NODE
        controller  next reconcile at TIME, or when something changes
    "#]]
    .assert_eq(&anonymous(&shown));
    // Whoever does not say where the controller is learns no less of the rest.
    let outside = without_times(&said(&cluster, &["explain", "ds/web"]));
    let (rest, controllers) = outside.split_once("controller  ").unwrap();
    assert!(shown.starts_with(rest), "{outside}");
    expect![[r#"
        state unavailable: the API server does not serve /debug/explain;
                    name the metrics address of `muster controller` with --controller
    "#]]
    .assert_eq(controllers);

    // A pod that fails again and again is made anew ever later, and only the controller knows when.
    let began = Instant::now();
    let held_back = loop {
        let shown = explain(&["--node", node]);
        if shown.contains("is replaced at") && is_quiet(&shown) {
            break shown;
        }
        assert!(began.elapsed() < PATIENCE, "{shown}");
        for pod in pods(&cluster).await {
            let is_new = pod["spec"]["containers"][0]["image"] == "nowhere.example/c:2";
            if is_new && pod["status"]["phase"] != "Failed" {
                write_status(&cluster, &pod, json!({"phase": "Failed", "reason": "Evicted"})).await;
            }
        }
    };
    expect![[r#"
        [0] DaemonSet default/web on node NODE: not ready, and should run there
          failed-pod backoff
          the failed pod is replaced at TIME
          pod POD: Evicted
          pod POD
          counts against the rollout budget

        rollout     1 of 3 nodes up to date, 2 available
                    maxUnavailable 1: 1 unavailable, none left
                    waits for 1 node: failed-pod backoff: NODE
                    next: NODE, NODE
        controller  failed-pod backoff on 1 node
                    next reconcile at TIME, or when something changes
    "#]]
    .assert_eq(&anonymous(&held_back));
    let answer = controller.get("/debug/explain?namespace=default&name=web");
    assert_eq!(answer.0, 200);
    let known: Value = serde_json::from_str(&answer.1).unwrap();
    assert!(known["backoffs"][node]["delayMs"].as_u64().is_some_and(|it| 1000 <= it), "{known}");
    expect![[r#"(404, "the controller has no such DaemonSet")"#]]
        .assert_eq(&format!("{:?}", controller.get("/debug/explain?namespace=default&name=no")));
}

#[tokio::test]
async fn what_a_file_would_do() {
    let cluster = Cluster::start("plan").await;
    let controller = cluster.controller_with("a", &["--leader-elect=false"]);
    assert_eq!(controller.once_ready().await, "leader 1");
    for name in ["n1", "n2", "n3", "n4"] {
        cluster.create("/api/v1/nodes", json!({"metadata": {"name": name}})).await;
        let spec = if name == "n4" {
            json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]})
        } else {
            json!({})
        };
        ready(&cluster, name, spec, "4").await;
    }
    let file = |image: &str| {
        let mut web = set("web");
        (web["apiVersion"], web["kind"]) = ("apps/v1".into(), "DaemonSet".into());
        web["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        let path = cluster.dir.join("web.json");
        fs::write(&path, web.to_string()).unwrap();
        (path.to_str().unwrap().to_owned(), web)
    };
    let everything = async || {
        let mut all = BTreeMap::new();
        for path in ["/api/v1/nodes", "/api/v1/pods", SETS, "/apis/apps/v1/controllerrevisions"] {
            for it in cluster.get(path).await["items"].as_array().unwrap() {
                all.insert(it["metadata"]["uid"].to_string(), it["metadata"]["resourceVersion"].to_string());
            }
        }
        all
    };
    let plan = async |image: &str| {
        let (path, _) = file(image);
        let before = everything().await;
        let shown = said(&cluster, &["plan", "-f", &path]);
        assert_eq!(everything().await, before, "a plan changes nothing");
        shown
    };
    expect![[r#"
        [0] DaemonSet default/web: new
        4 nodes: 3 gain a pod, 0 lose it, 0 get a new one, 0 keep theirs, 1 without

        gains       n1, n2, n3
        without     1 node: taint gpu:NoSchedule is not tolerated: n4

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]]
    .assert_eq(&plan("c:1").await);
    apply(&cluster, &file("c:1").1).await;
    all_up(&cluster, "c:1", 3).await;
    settled(&cluster).await;
    expect![[r#"
        [0] DaemonSet default/web: no change
        4 nodes: 0 gain a pod, 0 lose it, 0 get a new one, 3 keep theirs, 1 without

        without     1 node: taint gpu:NoSchedule is not tolerated: n4

        Nothing was changed. Assumes that every new pod becomes available and nothing
        else changes.
    "#]]
    .assert_eq(&plan("c:1").await);

    // It goes as was foretold.
    let (path, _) = file("c:2");
    let foretold = said(&cluster, &["plan", "-f", &path, "-o", "json"]);
    let foretold: Value = serde_json::from_str(&foretold[4..]).unwrap();
    let batches = foretold["plans"][0]["rollout"]["batches"].as_array().unwrap().iter();
    let batches: Vec<String> = batches.map(|it| it["nodes"][0].as_str().unwrap().to_owned()).collect();
    apply(&cluster, &file("c:2").1).await;
    let mut went = Vec::new();
    while went.len() < 3 {
        let pod = new_pod(&cluster, "c:2").await;
        went.push(pod["spec"]["nodeName"].as_str().unwrap().to_owned());
        up(&cluster, &pod).await;
    }
    assert_eq!(went, batches);
    settled(&cluster).await;
    let undo = plan("c:1").await;
    assert!(
        undo.starts_with("[0] DaemonSet default/web: rollback to revision 1, which becomes revision 3\n"),
        "{undo}"
    );

    let others = cluster.dir.join("others.yaml");
    fs::write(&others, "kind: Service\nmetadata: {name: a}\n---\nkind: Pod\n").unwrap();
    let misspelt = cluster.dir.join("misspelt.json");
    let mut web = file("c:2").1;
    web["spec"]["template"]["spec"]["nodeSelecter"] = json!({});
    fs::write(&misspelt, web.to_string()).unwrap();
    let refused = [
        said(&cluster, &["plan", "-f", others.to_str().unwrap()]),
        said(&cluster, &["plan", "-f", misspelt.to_str().unwrap()]),
        said(&cluster, &["plan", "-f", &path, "-n", "elsewhere"]),
        said(&cluster, &["plan"]),
    ];
    expect![[r#"
        [1] muster: no DaemonSet found; skipped: Service a, Pod
        [1] muster: DaemonSet default/web: the API server would reject it: strict decoding error: unknown field "spec.template.spec.nodeSelecter"
        [1] muster: DaemonSet elsewhere/web: namespace elsewhere does not exist: create it first
        [2] error: the following required arguments were not provided:
          --filename <FILE>

        Usage: muster plan --filename <FILE> --kubeconfig <FILE>

        For more information, try '--help'.
    "#]].assert_eq(&refused.concat());
}

fn said(cluster: &Cluster, args: &[&str]) -> String {
    let output = cluster.muster(args);
    let server = regex::Regex::new(r"https://\S+/").unwrap();
    format!("[{}] {}", output.status.code().unwrap_or(-1), server.replace(&text(&output), "SERVER"))
}

/// Replaces times with `TIME`. A time of another day is shown with its date; the longer line may then break at another word.
fn without_times(shown: &str) -> String {
    let time = regex::Regex::new(r"\s+(\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\dZ\s+\(\S+\s\S+?\)").unwrap();
    let end_of_line = regex::Regex::new(r"TIME,\s+or\s+when\s+something\s+changes").unwrap();
    end_of_line.replace_all(&time.replace_all(shown, " TIME"), "TIME, or when something changes").into_owned()
}

/// Whether the controller has done what it had to do, as far as it can.
fn is_quiet(shown: &str) -> bool {
    !["executing a plan", "waiting for the watch", "queued for the next reconcile", "failed in a row"]
        .iter()
        .any(|it| shown.contains(it))
}

/// Without the names that are made up, and without which of three nodes it is.
fn anonymous(shown: &str) -> String {
    let pod = regex::Regex::new(r"web-[a-z0-9]{5}").unwrap();
    let node = regex::Regex::new(r"\bn[123]\b").unwrap();
    node.replace_all(&pod.replace_all(shown, "POD"), "NODE").into_owned()
}

fn as_json(kubeconfig: &str) -> Value {
    let config = kube::config::Kubeconfig::from_yaml(kubeconfig).unwrap();
    serde_json::to_value(config).unwrap()
}

/// A node that reports, and has room.
async fn ready(cluster: &Cluster, name: &str, spec: Value, cpu: &str) {
    let path = format!("/api/v1/nodes/{name}");
    let mut node = cluster.get(&path).await;
    node["spec"] = spec;
    cluster.put(&path, &node).await;
    let mut node = cluster.get(&path).await;
    let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    node["status"] =
        json!({"conditions": [condition], "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}});
    cluster.put(&format!("{path}/status"), &node).await;
}

/// The pods that are there. Those that were asked to go are gone, for no node stands in their way.
async fn pods(cluster: &Cluster) -> Vec<Value> {
    let path = "/api/v1/namespaces/default/pods";
    let list = cluster.get(path).await;
    let is_leaving = |it: &Value| it["metadata"]["deletionTimestamp"].is_string();
    let (leaving, here): (Vec<Value>, Vec<Value>) =
        list["items"].as_array().unwrap().iter().cloned().partition(is_leaving);
    for pod in leaving {
        let path = format!("{path}/{}?gracePeriodSeconds=0", pod["metadata"]["name"].as_str().unwrap());
        let _ = cluster.client.request::<Value>(Request::delete(path).body(Vec::new()).unwrap()).await;
    }
    here
}

async fn write_status(cluster: &Cluster, pod: &Value, status: Value) {
    let path =
        format!("/api/v1/namespaces/default/pods/{}/status", pod["metadata"]["name"].as_str().unwrap());
    let body = json!({"status": status}).to_string().into_bytes();
    let request =
        Request::patch(path).header("Content-Type", "application/merge-patch+json").body(body).unwrap();
    // The controller may have deleted it meanwhile.
    let _ = cluster.client.request::<Value>(request).await;
}

async fn up(cluster: &Cluster, pod: &Value) {
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    write_status(cluster, pod, json!({"phase": "Running", "conditions": [ready]})).await;
}

/// The next pod with this image that is not up, once there is one.
async fn new_pod(cluster: &Cluster, image: &str) -> Value {
    let began = Instant::now();
    loop {
        let is_next = |pod: &&Value| {
            pod["spec"]["containers"][0]["image"] == image && pod["status"]["phase"] != "Running"
        };
        if let Some(pod) = pods(cluster).await.iter().find(is_next) {
            return pod.clone();
        }
        assert!(began.elapsed() < PATIENCE, "no new pod with {image}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn all_up(cluster: &Cluster, image: &str, count: usize) {
    for _ in 0..count {
        let pod = new_pod(cluster, image).await;
        up(cluster, &pod).await;
    }
}

/// As `kubectl apply` leaves an object behind.
async fn apply(cluster: &Cluster, object: &Value) {
    let mut sent = object.clone();
    sent["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": object.to_string()});
    let path = format!("{SETS}/web");
    let is_there = !cluster.get(SETS).await["items"].as_array().unwrap().is_empty();
    if is_there {
        let body = sent.to_string().into_bytes();
        let request = Request::patch(path).header("Content-Type", "application/strategic-merge-patch+json");
        cluster.client.request::<Value>(request.body(body).unwrap()).await.unwrap();
    } else {
        cluster.create(SETS, sent).await;
    }
}

/// Until nothing moves, and no event is still to be recorded.
async fn settled(cluster: &Cluster) {
    cluster
        .until("true", async || {
            let web = cluster.get(&format!("{SETS}/web")).await;
            let complete = |it: &Value| it["type"] == "Progressing" && it["reason"] == "Complete";
            let is_complete =
                web["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(complete));
            let is_seen = web["status"]["observedGeneration"] == web["metadata"]["generation"];
            (is_complete && is_seen).to_string()
        })
        .await;
}
