//! `muster controller --assist` beside the DaemonSet controller of kube-controller-manager.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect;
use http::Method;
use serde_json::{Value, json};

use crate::bed::{DaemonSetController, POLICIES, ROLLOUTS, SETS, UpstreamCluster, daemon_set, items, policy};

/// A canary on 500 nodes. kube-controller-manager gives nodes that join, and nodes whose pods are deleted, the newest
/// revision, and they are counted. A revision that fails stops, and a reverted template reaches all nodes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs kube-apiserver and kubectl: MUSTER_TEST_UPSTREAM"]
async fn a_canary_beside_kube_controller_manager() {
    let mut cluster = UpstreamCluster::start("assist", DaemonSetController::Upstream, 500).await;
    let strategy = json!({"type": "OnDelete", "rollingUpdate": {"maxUnavailable": "20%"}});
    cluster.create(SETS, &daemon_set("web:1", &strategy)).await;
    cluster.until_images("web:1", &BTreeMap::new()).await;
    let _controller = cluster.start_controller();
    let steps = json!([{"name": "canary", "nodes": 1, "soak": "24h"}, {"name": "all", "nodes": "100%"}]);
    cluster.create(POLICIES, &policy(json!({"steps": steps}))).await;
    cluster.until_phase("Complete").await;

    cluster.set_image("web:2").await;
    cluster.until_phase("Soaking").await;
    let mut exposed = cluster.pods.nodes_with("web:2");
    assert_eq!(exposed.len(), 1);
    let deleted: BTreeSet<String> = cluster.nodes().await.difference(&exposed).take(3).cloned().collect();
    cluster.delete_pods_of(&deleted).await;
    exposed.extend(deleted);
    exposed.extend(cluster.add_nodes(5).await);
    let images = exposed.iter().map(|it| (it.clone(), "web:2".to_owned())).collect();
    cluster.until_images("web:1", &images).await;
    cluster.until_state(None, expect![[r#"
        496 nodes: revision 1, web:1, Ready
        9 nodes: revision 2, web:2, Ready
        revision 1 is web:1: Good, Adopted
        revision 2 is web:2: -, -
        rollout Soaking, attempt 1, step canary, revision 2, stable 1: 0 of 1 nodes of step "canary" have soaked
        rollout nodes: eligible 505 admitted 1 updated 9 available 9 soaked 0 held 504 unassigned 8
        set: desired 505 current 505 ready 505 available 505 updated 9 misscheduled 0
        condition Degraded False AsExpected: no failing or misscheduled pods
        condition Progressing True Soaking: 9 of 505 nodes are up to date; 0 of 1 nodes of step "canary" have soaked
        condition Reconciling True Soaking: 0 of 1 nodes of step "canary" have soaked
    "#]]).await;
    assert_eq!(cluster.pods.nodes_with("web:2"), exposed, "nodes that ever had the newest revision");
    cluster.rollout_command(&["promote", "ds/web", "--full"]);
    cluster.until_phase("Complete").await;
    cluster.until_images("web:2", &BTreeMap::new()).await;

    cluster.set_image("crash-loop-never-ready:3").await;
    cluster.until_phase("Stopped").await;
    let exposed = cluster.pods.nodes_with("crash-loop-never-ready:3");
    assert_eq!(exposed.len(), 1);
    cluster.until_state(None, expect![[r#"
        504 nodes: revision 2, web:2, Ready
        1 nodes: revision 3, crash-loop-never-ready:3, not Ready
        revision 1 is web:1: Good, Adopted
        revision 2 is web:2: Good, Passed
        revision 3 is crash-loop-never-ready:3: Bad, Failed
        rollout Stopped, attempt 1, step canary, revision 3, stable 2: revision 3 failed on 1 of 1 nodes (Restarted3Times: NODE); assist mode cannot roll back: revert the template
        rollout nodes: eligible 505 admitted 1 updated 1 available 0 soaked 0 held 504 unassigned 0
        failed: "NODE" "Restarted3Times"
        set: desired 505 current 505 ready 504 available 504 updated 1 misscheduled 0
        condition Degraded True RolloutFailed: revision 3 failed on 1 of 1 nodes (Restarted3Times: NODE); assist mode cannot roll back: revert the template; 1 node: CrashLoopBackOff
        condition Progressing False CannotRollBack: 1 of 505 nodes are up to date; revision 3 failed on 1 of 1 nodes (Restarted3Times: NODE); assist mode cannot roll back: revert the template
        condition Stalled True CannotRollBack: revision 3 failed on 1 of 1 nodes (Restarted3Times: NODE); assist mode cannot roll back: revert the template
    "#]]).await;

    cluster.set_image("web:2").await;
    cluster.until_images("web:2", &BTreeMap::new()).await;
    cluster
        .until_state(
            None,
            expect![[r#"
        505 nodes: revision 4, web:2, Ready
        revision 1 is web:1: Good, Adopted
        revision 3 is crash-loop-never-ready:3: Bad, Failed
        revision 4 is web:2: Good, Passed
        rollout Complete, attempt 1, step *, revision 4, stable 4: -
        rollout nodes: eligible 505 admitted 505 updated 505 available 505 soaked 505 held 0 unassigned 0
        set: desired 505 current 505 ready 505 available 505 updated 505 misscheduled 0
        condition Degraded False AsExpected: no failing or misscheduled pods
        condition Progressing False Complete: 505 of 505 nodes are up to date
    "#]],
        )
        .await;
    assert_eq!(
        cluster.pods.nodes_with("crash-loop-never-ready:3"),
        exposed,
        "nodes that ever had the bad revision"
    );
}

/// A set that kube-controller-manager rolls out itself is refused, and nothing but conditions is written for it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs kube-apiserver and kubectl: MUSTER_TEST_UPSTREAM"]
async fn a_set_with_rolling_update_is_refused() {
    let mut cluster = UpstreamCluster::start("refused", DaemonSetController::Upstream, 3).await;
    let _controller = cluster.start_controller();
    cluster.create(SETS, &daemon_set("web:1", &json!({"type": "RollingUpdate"}))).await;
    cluster.until_images("web:1", &BTreeMap::new()).await;
    cluster.create(POLICIES, &policy(json!({}))).await;
    let refused = async |generation: u64| {
        let set = cluster.get(&format!("{SETS}/web")).await;
        let is_refused = |it: &Value| it["type"] == "Stalled" && it["reason"] == "NotOnDelete";
        let status = &set["status"];
        let is_rolled_out =
            status["observedGeneration"] == generation && status["updatedNumberScheduled"] == 3;
        let is_available = status["numberAvailable"] == 3;
        (is_rolled_out && is_available && conditions(&set).iter().any(is_refused)).then_some(())
    };
    cluster.until("the refusal", async || refused(1).await).await;
    cluster.until_state(None, expect![[r#"
        3 nodes: revision 1, web:1, Ready
        revision 1 is web:1: -, -
        no rollout
        set: desired 3 current 3 ready 3 available 3 updated 3 misscheduled 0
        condition Degraded False AsExpected: no failing or misscheduled pods
        condition Progressing False NotOnDelete: 3 of 3 nodes are up to date; kube-controller-manager replaces the pods: set spec.updateStrategy.type to OnDelete, or run the controller without --assist
        condition Stalled True NotOnDelete: kube-controller-manager replaces the pods: set spec.updateStrategy.type to OnDelete, or run the controller without --assist
    "#]]).await;
    // kube-controller-manager rolls the next revision out by itself.
    cluster.set_image("web:2").await;
    cluster.until_images("web:2", &BTreeMap::new()).await;
    cluster.until("the second revision", async || refused(2).await).await;
    cluster.until_state(None, expect![[r#"
        3 nodes: revision 2, web:2, Ready
        revision 1 is web:1: -, -
        revision 2 is web:2: -, -
        no rollout
        set: desired 3 current 3 ready 3 available 3 updated 3 misscheduled 0
        condition Degraded False AsExpected: no failing or misscheduled pods
        condition Progressing False NotOnDelete: 3 of 3 nodes are up to date; kube-controller-manager replaces the pods: set spec.updateStrategy.type to OnDelete, or run the controller without --assist
        condition Stalled True NotOnDelete: kube-controller-manager replaces the pods: set spec.updateStrategy.type to OnDelete, or run the controller without --assist
    "#]]).await;
    let rollouts = cluster.send(Method::GET, ROLLOUTS, &Value::Null).await.unwrap();
    assert_eq!(items(rollouts), Vec::<Value>::new());
}

fn conditions(set: &Value) -> Vec<Value> {
    set["status"]["conditions"].as_array().cloned().unwrap_or_default()
}
