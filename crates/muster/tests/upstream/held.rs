//! A revision that failed stays held, also without the objects that described its rollout.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect;
use serde_json::json;

use crate::bed::{DaemonSetController, POLICIES, ROLLOUTS, SETS, UpstreamCluster, daemon_set, policy};

/// A set that was rolled back stays held when its policy is deleted, when the controller restarts, and when its
/// DaemonRollout is deleted too.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs kube-apiserver and kubectl: MUSTER_TEST_UPSTREAM"]
async fn a_set_stays_held_without_its_policy() {
    let mut cluster = UpstreamCluster::start("held", DaemonSetController::Muster, 490).await;
    let controller = cluster.start_controller();
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}});
    cluster.create(SETS, &daemon_set("web:1", &strategy)).await;
    cluster.until_images("web:1", &BTreeMap::new()).await;
    let steps = json!([{"name": "canary", "nodes": 1, "soak": "1m"}, {"name": "all", "nodes": "100%"}]);
    let failures = json!({"maxRestarts": 0});
    cluster.create(POLICIES, &policy(json!({"steps": steps, "failures": failures}))).await;
    cluster.until_phase("Complete").await;
    cluster.set_image("crash-loop:2").await;
    cluster.until_phase("RolledBack").await;
    let exposed = cluster.pods.nodes_with("crash-loop:2");
    assert_eq!(exposed.len(), 1);

    cluster.delete(&format!("{POLICIES}/careful")).await;
    cluster
        .until("a rollout without a policy", async || {
            cluster.rollout().await["status"]["policy"].is_null().then_some(())
        })
        .await;
    replace_all_pods(&cluster).await;
    cluster.until_state(None, expect![[r#"
        490 nodes: revision 1, web:1, Ready
        revision 1 is web:1: Good, Adopted
        revision 2 is crash-loop:2: Bad, Failed
        rollout RolledBack, attempt 1, step canary, revision 2, stable 1: revision 2 failed on 1 of 1 nodes (Restarted1Times: NODE)
        rollout nodes: eligible 490 admitted 0 updated 0 available 0 soaked 0 held 490 unassigned 0
        failed: "NODE" "Restarted1Times"
        set: desired 490 current 490 ready 490 available 490 updated 0 misscheduled 0
        condition Available True EnoughAvailable: 490 of 490 nodes have an available pod; 490 nodes: held by the rollout
        condition Degraded True RolloutFailed: revision 2 failed on 1 of 1 nodes (Restarted1Times: NODE)
        condition Progressing False RolledBack: 0 of 490 nodes are up to date; revision 2 failed on 1 of 1 nodes (Restarted1Times: NODE)
        condition Stalled True RolledBack: revision 2 failed on 1 of 1 nodes (Restarted1Times: NODE)
    "#]]).await;

    controller.kill();
    let _controller = cluster.start_controller();
    cluster.add_nodes(5).await;
    replace_all_pods(&cluster).await;
    let uid = cluster.rollout().await["metadata"]["uid"].clone();
    cluster.delete(&format!("{ROLLOUTS}/web")).await;
    cluster
        .until("no DaemonRollout", async || (cluster.rollout().await["metadata"]["uid"] != uid).then_some(()))
        .await;
    cluster.add_nodes(5).await;
    replace_all_pods(&cluster).await;
    cluster.until_state(None, expect![[r#"
        500 nodes: revision 1, web:1, Ready
        revision 1 is web:1: Good, Adopted
        revision 2 is crash-loop:2: Bad, Failed
        no rollout
        set: desired 500 current 500 ready 500 available 500 updated 0 misscheduled 0
        condition Available True EnoughAvailable: 500 of 500 nodes have an available pod; 500 nodes: held by the rollout
        condition Degraded True RolloutFailed: the revision failed before: retry it, or change the template
        condition Progressing False KnownBad: 0 of 500 nodes are up to date; the revision failed before: retry it, or change the template
        condition Stalled True KnownBad: the revision failed before: retry it, or change the template
    "#]]).await;
    assert_eq!(cluster.pods.nodes_with("crash-loop:2"), exposed, "nodes that ever had a pod that crashes");
}

/// Deletes the pod of every node, and waits until every node has a new one of the stable revision.
async fn replace_all_pods(cluster: &UpstreamCluster) {
    let nodes = cluster.nodes().await;
    cluster.until_images("web:1", &BTreeMap::new()).await;
    let before: BTreeSet<String> = cluster.pods.present().into_iter().map(|it| it.uid).collect();
    cluster.delete_pods_of(&nodes).await;
    cluster
        .until("new pods", async || {
            let are_new = cluster.pods.present().iter().all(|it| !before.contains(&it.uid));
            are_new.then_some(())
        })
        .await;
    cluster.until_images("web:1", &BTreeMap::new()).await;
}
