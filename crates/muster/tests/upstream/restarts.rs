//! A controller that is killed in any phase of a rollout, and a new one that resumes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use expect_test::expect;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::bed::{
    DaemonSetController, LoggedProcess, POLICIES, ROLLOUTS, SETS, UpstreamCluster, daemon_set, policy,
};
use crate::pod_history::watch;

/// Readiness gate of the pods: the test decides when a pod becomes Ready, and so when a phase ends.
const GATE: &str = "upstream.test/open";

/// The controller is killed in every phase, and the next one resumes in the same phase. The transitions and verdicts are
/// those of a controller that is not killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs kube-apiserver and kubectl: MUSTER_TEST_UPSTREAM"]
async fn a_new_controller_resumes_in_every_phase() {
    let mut cluster = UpstreamCluster::start("restarts", DaemonSetController::Muster, 500).await;
    let transitions = record_transitions(&cluster);
    let gates = Gates::control(&cluster);
    gates.open("web:1");
    let mut controller = cluster.start_controller();
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}});
    let mut set = daemon_set("web:1", &strategy);
    set["spec"]["template"]["spec"]["readinessGates"] = json!([{"conditionType": GATE}]);
    cluster.create(SETS, &set).await;
    let steps = |canary: Value, last: &str| json!({"steps": [canary, {"name": "last", "nodes": last}], "failures": {"maxRestarts": 0}});
    let quick = || json!({"name": "canary", "nodes": 2, "soak": "0s", "approval": "Automatic"});
    let manual = |soak: &str| json!({"name": "canary", "nodes": 2, "soak": soak, "approval": "Manual"});
    cluster.until_images("web:1", &BTreeMap::new()).await;
    cluster.create(POLICIES, &policy(steps(manual("24h"), "100%"))).await;
    controller = kill_in(&mut cluster, controller, "Complete", "web:1").await;

    cluster.set_image("web:2").await;
    cluster
        .until("the canary pods", async || (cluster.pods.nodes_with("web:2").len() == 2).then_some(()))
        .await;
    controller = kill_in(&mut cluster, controller, "Rolling", "web:1").await;
    gates.open("web:2");
    controller = kill_in(&mut cluster, controller, "Soaking", "web:1").await;
    let careful = format!("{POLICIES}/careful");
    cluster.patch(&careful, &json!({"spec": steps(manual("0s"), "100%")})).await;
    controller = kill_in(&mut cluster, controller, "Waiting", "web:1").await;
    assert_eq!(cluster.pods.nodes_with("web:2").len(), 2, "the canary has two nodes");
    cluster.rollout_command(&["promote", "ds/web"]);
    cluster.until_phase("Complete").await;

    // A last step of half of the nodes.
    cluster.patch(&careful, &json!({"spec": steps(quick(), "50%")})).await;
    gates.open("web:3");
    cluster.set_image("web:3").await;
    controller = kill_in(&mut cluster, controller, "PartiallyComplete", "web:2").await;
    assert_eq!(cluster.pods.nodes_with("web:3").len(), 250, "half of the nodes");
    cluster.patch(&careful, &json!({"spec": steps(quick(), "100%")})).await;
    cluster.until_phase("Complete").await;

    // A revision that fails is rolled back, and then stopped in its second attempt.
    gates.close("web:3");
    cluster.patch(&careful, &json!({"spec": steps(manual("24h"), "100%")})).await;
    cluster.set_image("crash-loop:4").await;
    controller = kill_in(&mut cluster, controller, "RollingBack", "web:3").await;
    gates.open("web:3");
    controller = kill_in(&mut cluster, controller, "RolledBack", "web:3").await;
    assert_eq!(cluster.pods.nodes_with("crash-loop:4").len(), 2, "the canary has two nodes");
    cluster.patch(&careful, &json!({"spec": {"onFailure": "Stop"}})).await;
    cluster.rollout_command(&["retry", "ds/web"]);
    controller = kill_in(&mut cluster, controller, "Stopped", "web:3").await;
    assert_eq!(cluster.pods.nodes_with("crash-loop:4").len(), 2, "the second attempt has the same nodes");
    cluster.set_image("web:3").await;
    cluster.until_phase("Complete").await;
    cluster
        .until("the record of the last transition", async || {
            transitions.lock().unwrap().last().is_some_and(|it| it.contains("Complete at *")).then_some(())
        })
        .await;

    expect![[r#"
        revision 1 attempt 1: Complete at -
        revision 2 attempt 1: Rolling at canary
        revision 2 attempt 1: Soaking at canary
        revision 2 attempt 1: Waiting at canary
        revision 2 attempt 1: Rolling at last
        revision 2 attempt 1: Complete at last
        revision 3 attempt 1: Rolling at canary
        revision 3 attempt 1: Rolling at last
        revision 3 attempt 1: PartiallyComplete at last
        revision 3 attempt 1: Rolling at last
        revision 3 attempt 1: Complete at last
        revision 4 attempt 1: Rolling at canary
        revision 4 attempt 1: RollingBack at canary
        revision 4 attempt 1: RolledBack at canary
        revision 4 attempt 2: Rolling at canary
        revision 4 attempt 2: Stopped at canary
        revision 3 attempt 1: Rolling at *
        revision 5 attempt 1: Rolling at *
        revision 5 attempt 1: Complete at *"#]]
    .assert_eq(&transitions.lock().unwrap().join("\n"));
    cluster
        .until_state(
            None,
            expect![[r#"
        500 nodes: revision 5, web:3, Ready
        revision 1 is web:1: Good, Adopted
        revision 2 is web:2: Good, Passed
        revision 4 is crash-loop:4: Bad, Failed
        revision 5 is web:3: Good, Passed
        rollout Complete, attempt 1, step *, revision 5, stable 5: -
        rollout nodes: eligible 500 admitted 500 updated 500 available 500 soaked 500 held 0 unassigned 0
        set: desired 500 current 500 ready 500 available 500 updated 500 misscheduled 0
        condition Available True EnoughAvailable: 500 of 500 nodes have an available pod
        condition Degraded False AsExpected: no failing or misscheduled pods
        condition Progressing False Complete: 500 of 500 nodes are up to date
    "#]],
        )
        .await;
    controller.kill();
}

/// Waits for a phase, kills the controller and starts another. Then deletes the pod of a node that has the stable
/// revision: the new controller must replace it with a pod of the same revision, and be in the same phase.
async fn kill_in(
    cluster: &mut UpstreamCluster,
    controller: LoggedProcess,
    phase: &str,
    stable_image: &str,
) -> LoggedProcess {
    cluster.until_phase(phase).await;
    controller.kill();
    // The controller may have written once more before it was killed.
    let before = cluster.rollout().await;
    assert_eq!(before["status"]["phase"], phase);
    let controller = cluster.start_controller();
    let pods = cluster.pods.present();
    let deleted = pods.iter().find(|it| it.image == stable_image).expect("a node has the stable revision");
    cluster.delete_pods_of(&BTreeSet::from([deleted.node.clone()])).await;
    let replacement = cluster
        .until("the new controller replaces a pod", async || {
            let pods = cluster.pods.present();
            pods.into_iter().find(|it| it.node == deleted.node && it.uid != deleted.uid)
        })
        .await;
    assert_eq!(replacement.image, stable_image, "in phase {phase}");
    let after = cluster.rollout().await;
    assert_eq!(resumed_fields(&after), resumed_fields(&before), "{}", cluster.state().await);
    // Further nodes of the step may have failed since.
    assert!(failed_nodes(&after).is_superset(&failed_nodes(&before)), "{before}\n{after}");
    controller
}

/// Returns the fields of the status from which a controller resumes.
fn resumed_fields(rollout: &Value) -> Value {
    let mut status = rollout["status"].clone();
    if let Some(step) = status["step"].as_object_mut() {
        step.remove("passesAt");
    }
    let kept = ["phase", "current", "stable", "attempt", "step", "admitted", "policy", "paused"];
    kept.into_iter().map(|it| (it.to_owned(), status[it].take())).collect::<serde_json::Map<_, _>>().into()
}

fn failed_nodes(rollout: &Value) -> BTreeSet<String> {
    let nodes = rollout["status"]["failures"]["nodes"].as_array();
    nodes.into_iter().flatten().map(|it| it["node"].to_string()).collect()
}

/// Records every change of phase, step, attempt and revision.
fn record_transitions(cluster: &UpstreamCluster) -> Arc<Mutex<Vec<String>>> {
    let transitions = Arc::new(Mutex::new(Vec::<String>::new()));
    let (recorded, client) = (Arc::clone(&transitions), cluster.client.clone());
    tokio::spawn(async move {
        let record = |event: &Value| {
            let status = &event["object"]["status"];
            let Some(phase) = status["phase"].as_str() else { return };
            let step = status["step"]["name"].as_str().unwrap_or("-");
            let line = format!(
                "revision {} attempt {}: {phase} at {step}",
                status["current"]["number"], status["attempt"]
            );
            let mut recorded = recorded.lock().unwrap();
            if recorded.last() != Some(&line) {
                recorded.push(line);
            }
        };
        let gap = watch(&client, ROLLOUTS, record).await;
        recorded.lock().unwrap().push(format!("gap: {gap}"));
    });
    transitions
}

/// Opens the readiness gates of pods with certain images.
struct Gates {
    open: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Gates {
    fn control(cluster: &UpstreamCluster) -> Self {
        let open = Arc::new(Mutex::new(BTreeSet::<&'static str>::new()));
        let (images, pods) = (Arc::clone(&open), cluster.pods.clone());
        let api: Api<Pod> = Api::default_namespaced(cluster.client.clone());
        tokio::spawn(async move {
            let mut opened = BTreeSet::new();
            loop {
                let is_open = |image: &str| images.lock().unwrap().contains(image);
                for pod in pods.present().into_iter().filter(|it| is_open(&it.image)) {
                    if opened.contains(&pod.uid) {
                        continue;
                    }
                    let condition = json!({"type": GATE, "status": "True"});
                    let patch = json!({"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}});
                    // A pod that was deleted meanwhile has no gate any more.
                    if api
                        .patch_status(&pod.name, &PatchParams::default(), &Patch::Strategic(patch))
                        .await
                        .is_ok()
                    {
                        opened.insert(pod.uid);
                    }
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Self { open }
    }

    /// Lets pods with this image become Ready.
    fn open(&self, image: &'static str) {
        self.open.lock().unwrap().insert(image);
    }

    /// Lets no further pod with this image become Ready.
    fn close(&self, image: &'static str) {
        self.open.lock().unwrap().remove(image);
    }
}
