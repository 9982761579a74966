//! Canaries of `muster controller` in place of the DaemonSet controller of kube-controller-manager, on 500 nodes.

use std::collections::{BTreeMap, BTreeSet};

use expect_test::expect;
use serde_json::json;

use crate::bed::{DaemonSetController, POLICIES, SETS, UpstreamCluster, daemon_set, policy};

/// A revision whose containers crash reaches the canary node only, although pods of held nodes are deleted and nodes
/// join all the time, and it is rolled back.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs kube-apiserver and kubectl: MUSTER_TEST_UPSTREAM"]
async fn a_bad_revision_reaches_one_of_500_nodes() {
    let mut cluster = UpstreamCluster::start("bad-canary", DaemonSetController::Muster, 500).await;
    let _controller = cluster.start_controller();
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%"}});
    cluster.create(SETS, &daemon_set("web:1", &strategy)).await;
    cluster.until_images("web:1", &BTreeMap::new()).await;
    let steps = json!([{"name": "canary", "nodes": 1, "soak": "1m"}, {"name": "all", "nodes": "100%"}]);
    cluster.create(POLICIES, &policy(json!({"steps": steps}))).await;
    cluster.until_phase("Complete").await;

    // The simulated node lets the container exit after a second, and restarts it after 10 s, 20 s, …
    cluster.set_image("crash-loop:2").await;
    cluster
        .until("a canary", async || (!cluster.pods.nodes_with("crash-loop:2").is_empty()).then_some(()))
        .await;
    let mut rounds_before_verdict = 0;
    loop {
        disturb(&cluster).await;
        let rollout = cluster.rollout().await;
        match rollout["status"]["phase"].as_str().unwrap() {
            "Rolling" | "Soaking" => rounds_before_verdict += 1,
            "RollingBack" => {}
            "RolledBack" => break,
            other => panic!("{other} is not expected: {}", cluster.state().await),
        }
    }
    assert!(0 < rounds_before_verdict, "no pod was deleted and no node joined in mid-canary");
    disturb(&cluster).await;

    let count = cluster.nodes().await.len();
    let canaries = cluster.pods.nodes_with("crash-loop:2");
    let failed = &cluster.rollout().await["status"]["failures"]["nodes"][0]["node"];
    assert_eq!(canaries, BTreeSet::from([failed.as_str().unwrap().to_owned()]));
    cluster.until_images("web:1", &BTreeMap::new()).await;
    cluster.until_state(Some(count), expect![[r#"
        COUNT nodes: revision 1, web:1, Ready
        revision 1 is web:1: Good, Adopted
        revision 2 is crash-loop:2: Bad, Failed
        rollout RolledBack, attempt 1, step canary, revision 2, stable 1: revision 2 failed on 1 of 1 nodes (Restarted3Times: NODE)
        rollout nodes: eligible COUNT admitted 0 updated 0 available 0 soaked 0 held COUNT unassigned 0
        failed: "NODE" "Restarted3Times"
        set: desired COUNT current COUNT ready COUNT available COUNT updated 0 misscheduled 0
        condition Available True EnoughAvailable: COUNT of COUNT nodes have an available pod; COUNT nodes: held by the rollout
        condition Degraded True RolloutFailed: revision 2 failed on 1 of 1 nodes (Restarted3Times: NODE)
        condition Progressing False RolledBack: 0 of COUNT nodes are up to date; revision 2 failed on 1 of 1 nodes (Restarted3Times: NODE)
        condition Stalled True RolledBack: revision 2 failed on 1 of 1 nodes (Restarted3Times: NODE)
    "#]]).await;
}

/// Lets two nodes join and deletes the pods of five held nodes, and waits until all of them have a Ready pod of the
/// stable revision.
async fn disturb(cluster: &UpstreamCluster) {
    let exposed = cluster.pods.nodes_with("crash-loop:2");
    let mut disturbed = cluster.add_nodes(2).await;
    let present = cluster.pods.present();
    let held = present.iter().filter(|it| it.is_ready && !exposed.contains(&it.node));
    // Any order that differs from round to round: UIDs are random.
    let held: BTreeMap<&str, &str> = held.map(|it| (it.uid.as_str(), it.node.as_str())).collect();
    let held: BTreeSet<String> = held.into_values().take(5).map(str::to_owned).collect();
    let deleted: BTreeSet<&str> =
        present.iter().filter(|it| held.contains(&it.node)).map(|it| it.uid.as_str()).collect();
    cluster.delete_pods_of(&held).await;
    disturbed.extend(held);
    cluster
        .until("new pods of the stable revision", async || {
            let pods = cluster.pods.present();
            let are_deleted = !pods.iter().any(|it| deleted.contains(it.uid.as_str()));
            let images = cluster.pods.ready_images();
            let are_ready = disturbed.iter().all(|it| images.get(it).is_some_and(|it| it == "web:1"));
            (are_deleted && are_ready).then_some(())
        })
        .await;
}

/// Nodes that join in mid-canary get the last good revision, until the rollout goes on.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs kube-apiserver and kubectl: MUSTER_TEST_UPSTREAM"]
async fn nodes_that_join_during_a_canary_get_the_last_good_revision() {
    let mut cluster = UpstreamCluster::start("join", DaemonSetController::Muster, 300).await;
    let _controller = cluster.start_controller();
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%"}});
    cluster.create(SETS, &daemon_set("web:1", &strategy)).await;
    cluster.until_images("web:1", &BTreeMap::new()).await;
    let steps = json!([{"name": "canary", "nodes": 1, "soak": "24h"}, {"name": "all", "nodes": "100%"}]);
    cluster.create(POLICIES, &policy(json!({"steps": steps}))).await;
    cluster.until_phase("Complete").await;

    cluster.set_image("web:2").await;
    cluster.until_phase("Soaking").await;
    let canaries = cluster.pods.nodes_with("web:2");
    assert_eq!(canaries.len(), 1);
    let canaries: BTreeMap<String, String> =
        canaries.into_iter().map(|it| (it, "web:2".to_owned())).collect();
    cluster.add_nodes(200).await;
    cluster.until_images("web:1", &canaries).await;
    cluster.until_state(None, expect![[r#"
        499 nodes: revision 1, web:1, Ready
        1 nodes: revision 2, web:2, Ready
        revision 1 is web:1: Good, Adopted
        revision 2 is web:2: -, -
        rollout Soaking, attempt 1, step canary, revision 2, stable 1: 0 of 1 nodes of step "canary" have soaked
        rollout nodes: eligible 500 admitted 1 updated 1 available 1 soaked 0 held 499 unassigned 0
        set: desired 500 current 500 ready 500 available 500 updated 1 misscheduled 0
        condition Available True EnoughAvailable: 500 of 500 nodes have an available pod; 499 nodes: held by the rollout
        condition Degraded False AsExpected: no failing or misscheduled pods
        condition Progressing True Soaking: 1 of 500 nodes are up to date; 0 of 1 nodes of step "canary" have soaked
        condition Reconciling True Soaking: 0 of 1 nodes of step "canary" have soaked
    "#]]).await;
    assert_eq!(cluster.pods.nodes_with("web:2").len(), 1, "nodes that ever had a pod of the canary");

    cluster.rollout_command(&["promote", "ds/web", "--full"]);
    cluster.until_phase("Complete").await;
    cluster.until_images("web:2", &BTreeMap::new()).await;
    cluster
        .until_state(
            None,
            expect![[r#"
        500 nodes: revision 2, web:2, Ready
        revision 1 is web:1: Good, Adopted
        revision 2 is web:2: Good, Passed
        rollout Complete, attempt 1, step *, revision 2, stable 2: -
        rollout nodes: eligible 500 admitted 500 updated 500 available 500 soaked 500 held 0 unassigned 0
        set: desired 500 current 500 ready 500 available 500 updated 500 misscheduled 0
        condition Available True EnoughAvailable: 500 of 500 nodes have an available pod
        condition Degraded False AsExpected: no failing or misscheduled pods
        condition Progressing False Complete: 500 of 500 nodes are up to date
    "#]],
        )
        .await;
}
