//! The leader of a controller is stopped for longer than its Lease, and another server takes over. What the old leader
//! writes afterwards is refused.

use std::time::Instant;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::etcd::write_token;
use super::transaction_gate::TransactionGate;
use super::*;
use crate::cluster::etcd::{Etcd, flags_with_token};

/// Time for which the leader is stopped. Its Lease expires after 15 s.
const STOPPED: Duration = Duration::from_secs(25);

/// Maximum time for each step of the test, also on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// The bind of a pod is on its way to etcd when the leader of the scheduler is stopped. The node is deleted, and another
/// server becomes the leader. The pod has not changed since, so that only the fence can refuse the bind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_leader_that_was_stopped_cannot_write_after_another_has_taken_over() {
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-fencing");
    let token = write_token(&dir);
    let gate = TransactionGate::start(etcd.address(), "pods/default/p");
    let url = gate.url();
    let mut first = Server::start_with(&dir.join("first"), &flags_with_token(&url, &token));
    let mut stderr = first.child.stderr.take().unwrap();
    let old_leader = wait_for_leader(&first.client().await, "").await;
    let pods: Api<Pod> = Api::namespaced(first.client().await, "default");
    let container = json!({"name": "c", "image": "i"});
    let spec = json!({"containers": [container], "tolerations": [{"operator": "Exists"}]});
    let pod = json!({"metadata": {"name": "p"}, "spec": spec});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    // The next leader finds this condition, and does not write it.
    let is_unschedulable = |it: &Pod| {
        let conditions = it.status.iter().flat_map(|it| it.conditions.iter().flatten());
        conditions.into_iter().any(|it| it.type_ == "PodScheduled" && it.status == "False")
    };
    wait_for_pod(&pods, "there is no node", is_unschedulable).await;

    // A leader gives its Lease to a new server after 30 s at the earliest.
    let second = Server::start_with(&dir.join("second"), &etcd.flags_with_token(&token));
    let client = second.client().await;
    let (pods, nodes): (Api<Pod>, Api<Node>) =
        (Api::namespaced(client.clone(), "default"), Api::all(client.clone()));
    gate.close();
    nodes.create(&PostParams::default(), &node("deleted")).await.unwrap();
    tokio::time::timeout(STEP_TIMEOUT, gate.wait_until_held()).await.expect("the scheduler binds the pod");
    signal(&first, "-STOP");
    let stopped = Instant::now();
    let before = pods.get("p").await.unwrap();
    assert_eq!(leader(&client).await, old_leader);
    nodes.delete("deleted", &DeleteParams::default()).await.unwrap();
    let new_leader = wait_for_leader(&client, &old_leader).await;
    println!("another server became the leader after {:?}", stopped.elapsed());
    tokio::time::sleep(STOPPED.saturating_sub(stopped.elapsed())).await;
    assert_eq!(pods.get("p").await.unwrap(), before, "nothing but the fence refuses the bind");

    // The bind reaches etcd, and the old leader goes on.
    gate.open();
    let began = Instant::now();
    while gate.applied().is_empty() {
        assert!(began.elapsed() < STEP_TIMEOUT, "etcd does not get the bind");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    signal(&first, "-CONT");
    // A read of the old leader is current: it has seen that it is not the leader any more.
    let pods_of_first: Api<Pod> = Api::namespaced(first.client().await, "default");
    assert_eq!(pods_of_first.get("p").await.unwrap(), before);
    // Long enough for whatever the old leader still does.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(pods.get("p").await.unwrap(), before, "the late bind is not in the store");
    let applied = gate.applied();
    assert!(applied.iter().all(|it| !it), "etcd applied a write of the old leader: {applied:?}");
    println!("etcd refused {} writes of the old leader", applied.len());

    // The new leader is not disturbed.
    assert_eq!(leader(&client).await, new_leader);
    nodes.create(&PostParams::default(), &node("new")).await.unwrap();
    let is_bound = |it: &Pod| it.spec.as_ref().is_some_and(|it| it.node_name.is_some());
    let bound = wait_for_pod(&pods, "the new leader binds the pod", is_bound).await;
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("new"));
    drop((first, second));
    let mut log = String::new();
    stderr.read_to_string(&mut log).unwrap();
    assert!(log.contains("lost the lease") && log.contains("kube-system/muster-scheduler"), "{log}");
    fs::remove_dir_all(&dir).unwrap();
}

/// `muster controller` holds a Lease whose holder changes before the controller notices. What it writes from then on is
/// refused, and it is refused nothing as long as it holds the Lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn a_controller_that_has_lost_its_lease_creates_no_pod() {
    let etcd = Etcd::start();
    let dir = fresh_dir("etcd-fencing-controller");
    let token = write_token(&dir);
    let server = Server::start_with(&dir.join("server"), &etcd.flags_with_token(&token));
    let client = server.client().await;
    // It renews its Lease every 30 s only, so it does not notice for so long that it has lost it.
    let mut controller = Command::new(env!("CARGO_BIN_EXE_muster"))
        .arg("controller")
        .arg("--kubeconfig")
        .arg(&server.kubeconfig)
        .args(["--metrics-addr", "127.0.0.1:0", "--leader-elect-lease-duration", "90s"])
        .args(["--leader-elect-renew-deadline", "60s", "--leader-elect-retry-period", "30s"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &node("n")).await.unwrap();
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), "default");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    sets.create(&PostParams::default(), &daemon_set("before")).await.unwrap();
    let pods_of = async |set: &str| {
        let params = ListParams::default().labels(&format!("app={set}"));
        pods.list(&params).await.unwrap().items.len()
    };
    let began = Instant::now();
    while pods_of("before").await == 0 {
        assert!(began.elapsed() < STEP_TIMEOUT, "the leader creates no pod");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let patch = Patch::Merge(json!({"spec": {"holderIdentity": "another"}}));
    leases.patch("muster-controller", &PatchParams::default(), &patch).await.unwrap();
    sets.create(&PostParams::default(), &daemon_set("after")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(pods_of("after").await, 0, "the former leader created a pod");
    assert!(
        controller.try_wait().unwrap().is_none(),
        "the controller has noticed already: nothing was tested"
    );

    // A header that names no Lease is refused, and never ignored.
    let create = |fence: &str| {
        let body = json!({"metadata": {"generateName": "m"}}).to_string().into_bytes();
        let request = http::Request::post("/api/v1/namespaces/default/configmaps")
            .header("content-type", "application/json")
            .header("muster-lease-fence", fence)
            .body(body)
            .unwrap();
        client.request::<ConfigMap>(request)
    };
    let refused = create("muster-controller").await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(it) if it.code == 400), "{refused}");
    let lease = leases.get("muster-controller").await.unwrap();
    let version: u64 = lease.resource_version().unwrap().parse().unwrap();
    let refused = create(&format!("kube-system/muster-controller/{}", version - 1)).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(it) if it.code == 409), "{refused}");
    create(&format!("kube-system/muster-controller/{version}")).await.unwrap();

    controller.kill().unwrap();
    controller.wait().unwrap();
    drop(server);
    fs::remove_dir_all(&dir).unwrap();
}

/// A DaemonSet with the label `app` of its name, for every node.
fn daemon_set(name: &str) -> DaemonSet {
    let labels = json!({"app": name});
    let container = json!({"name": "c", "image": "i"});
    let spec = json!({"containers": [container], "tolerations": [{"operator": "Exists"}]});
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    let spec = json!({"selector": {"matchLabels": labels}, "template": template});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn node(name: &str) -> Node {
    let resources = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let status = json!({"capacity": resources, "allocatable": resources});
    serde_json::from_value(json!({"metadata": {"name": name}, "status": status})).unwrap()
}

/// The holder of the Lease of the scheduler. Empty if there is none.
async fn leader(client: &Client) -> String {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let lease = leases.get_opt("muster-scheduler").await.unwrap();
    lease.and_then(|it| it.spec?.holder_identity).unwrap_or_default()
}

/// Waits until the Lease of the scheduler has a holder other than `not`.
async fn wait_for_leader(client: &Client, not: &str) -> String {
    let began = Instant::now();
    loop {
        let leader = leader(client).await;
        if !leader.is_empty() && leader != not {
            return leader;
        }
        assert!(began.elapsed() < STEP_TIMEOUT, "no server becomes the leader");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn wait_for_pod(pods: &Api<Pod>, what: &str, is_reached: impl Fn(&Pod) -> bool) -> Pod {
    let began = Instant::now();
    loop {
        let pod = pods.get("p").await.unwrap();
        if is_reached(&pod) {
            return pod;
        }
        assert!(began.elapsed() < STEP_TIMEOUT, "{what}: {pod:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
