//! What people use DaemonSets for, from end to end. Each step asserts everything there is: pods by node with owner,
//! revision and version, the status, the revisions, the events.

use std::collections::BTreeSet;
use std::process::Command;

use expect_test::expect;
use serde_json::json;

use crate::bed::{Bed, set, with};
use crate::line::Weather;

async fn bed(nodes: u16) -> Bed {
    let mut bed = Bed::new(nodes).await;
    bed.start(0, Weather::fair());
    bed
}

/// The real kubectl, on this bed. Gives what it prints.
async fn kubectl(bed: &Bed, args: &[&str]) -> String {
    let mut command = Command::new("kubectl");
    command
        .env("KUBECONFIG", bed.dir.join("kubeconfig"))
        .env("KUBECACHEDIR", bed.dir.join("cache"))
        .args(args);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().expect("kubectl runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_join_and_leave() {
    let bed = bed(3).await;
    let node = bed.remove_node("sim-3").await;
    bed.create(set("a", "v1")).await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready
        sim-2  a@1 v1 ready
        a  generation 1/1 desired 2 current 2 ready 2 updated 2 available 2 unavailable 0 misscheduled 0
        revision 1 of a: v1
        event a SuccessfulCreate x2
    "#]])
        .await;
    bed.add_node(&node).await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready
        sim-2  a@1 v1 ready
        sim-3  a@1 v1 ready
        a  generation 1/1 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        event a SuccessfulCreate x3
    "#]])
        .await;
    bed.remove_node("sim-1").await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready
        sim-2  a@1 v1 ready
        sim-3  a@1 v1 ready
        a  generation 1/1 desired 2 current 2 ready 2 updated 2 available 2 unavailable 0 misscheduled 0
        revision 1 of a: v1
        event a SuccessfulCreate x3
    "#]])
        .await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_relabelled() {
    let bed = bed(3).await;
    bed.patch_node("sim-1", json!({"metadata": {"labels": {"disk": "ssd"}}})).await;
    bed.create(with(set("a", "v1"), "spec.template.spec.nodeSelector", json!({"disk": "ssd"}))).await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready
        sim-2  -
        sim-3  -
        a  generation 1/1 desired 1 current 1 ready 1 updated 1 available 1 unavailable 0 misscheduled 0
        revision 1 of a: v1
        event a SuccessfulCreate x1
    "#]])
        .await;
    bed.patch_node("sim-2", json!({"metadata": {"labels": {"disk": "ssd"}}})).await;
    bed.patch_node("sim-1", json!({"metadata": {"labels": {"disk": null}}})).await;
    bed.becomes(&expect![[r#"
        sim-1  -
        sim-2  a@1 v1 ready
        sim-3  -
        a  generation 1/1 desired 1 current 1 ready 1 updated 1 available 1 unavailable 0 misscheduled 0
        revision 1 of a: v1
        event a SuccessfulCreate x2
        event a SuccessfulDelete x1
    "#]])
        .await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn nodes_are_tainted_and_cordoned() {
    let bed = bed(4).await;
    let taint =
        |effect: &str| json!({"spec": {"taints": [{"key": "only", "value": "gpu", "effect": effect}]}});
    bed.patch_node("sim-4", taint("NoSchedule")).await;
    kubectl(&bed, &["cordon", "sim-3"]).await;
    bed.create(set("a", "v1")).await;
    let tolerating = json!([{"key": "only", "operator": "Exists", "effect": "NoSchedule"}]);
    bed.create(with(set("b", "v1"), "spec.template.spec.tolerations", tolerating)).await;
    // A cordoned node gets its pods all the same; a tainted one only those that tolerate it.
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready, b@1 v1 ready
        sim-2  a@1 v1 ready, b@1 v1 ready
        sim-3  a@1 v1 ready, b@1 v1 ready
        sim-4  b@1 v1 ready
        a  generation 1/1 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        b  generation 1/1 desired 4 current 4 ready 4 updated 4 available 4 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 1 of b: v1
        event a SuccessfulCreate x3
        event b SuccessfulCreate x4
    "#]])
        .await;
    // A pod that runs stays when its node takes no new ones, and goes when its node bears it no longer.
    bed.patch_node("sim-1", taint("NoSchedule")).await;
    bed.patch_node("sim-2", taint("NoExecute")).await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready, b@1 v1 ready
        sim-2  -
        sim-3  a@1 v1 ready, b@1 v1 ready
        sim-4  b@1 v1 ready
        a  generation 1/1 desired 1 current 1 ready 1 updated 1 available 1 unavailable 0 misscheduled 1
        b  generation 1/1 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 1 of b: v1
        event a SuccessfulCreate x3
        event a SuccessfulDelete x1
        event b SuccessfulCreate x4
        event b SuccessfulDelete x1
    "#]])
        .await;
    bed.patch_node("sim-1", json!({"spec": {"taints": null}})).await;
    bed.patch_node("sim-2", json!({"spec": {"taints": null}})).await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready, b@1 v1 ready
        sim-2  a@1 v1 ready, b@1 v1 ready
        sim-3  a@1 v1 ready, b@1 v1 ready
        sim-4  b@1 v1 ready
        a  generation 1/1 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        b  generation 1/1 desired 4 current 4 ready 4 updated 4 available 4 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 1 of b: v1
        event a SuccessfulCreate x4
        event a SuccessfulDelete x1
        event b SuccessfulCreate x5
        event b SuccessfulDelete x1
    "#]])
        .await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_deleted_fail_and_succeed() {
    let bed = bed(3).await;
    bed.create(set("a", "v1")).await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready
        sim-2  a@1 v1 ready
        sim-3  a@1 v1 ready
        a  generation 1/1 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        event a SuccessfulCreate x3
    "#]])
        .await;
    bed.delete_pod_on("sim-1").await;
    bed.end_pods_on("sim-2", "Failed").await;
    bed.end_pods_on("sim-3", "Succeeded").await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready
        sim-2  a@1 v1 ready
        sim-3  a@1 v1 ready
        a  generation 1/1 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        event a FailedDaemonPod x1
        event a SucceededDaemonPod x1
        event a SuccessfulCreate x6
        event a SuccessfulDelete x2
    "#]])
        .await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn rolled_out_undone_and_restarted() {
    let mut bed = bed(3).await;
    bed.create(set("a", "v1")).await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready
        sim-2  a@1 v1 ready
        sim-3  a@1 v1 ready
        a  generation 1/1 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        event a SuccessfulCreate x3
    "#]])
        .await;
    kubectl(&bed, &["set", "image", "ds/a", "c=r/a:v2"]).await;
    kubectl(&bed, &["rollout", "status", "ds/a", "--timeout=100s"]).await;
    bed.becomes(&expect![[r#"
        sim-1  a@2 v2 ready
        sim-2  a@2 v2 ready
        sim-3  a@2 v2 ready
        a  generation 2/2 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 2 of a: v2
        event a SuccessfulCreate x6
        event a SuccessfulDelete x3
    "#]])
        .await;
    kubectl(&bed, &["rollout", "undo", "ds/a"]).await;
    kubectl(&bed, &["rollout", "status", "ds/a", "--timeout=100s"]).await;
    bed.becomes(&expect![[r#"
        sim-1  a@3 v1 ready
        sim-2  a@3 v1 ready
        sim-3  a@3 v1 ready
        a  generation 3/3 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 2 of a: v2
        revision 3 of a: v1
        event a SuccessfulCreate x9
        event a SuccessfulDelete x6
    "#]])
        .await;
    kubectl(&bed, &["rollout", "restart", "ds/a"]).await;
    kubectl(&bed, &["rollout", "status", "ds/a", "--timeout=100s"]).await;
    bed.becomes(&expect![[r#"
        sim-1  a@4 v1 ready
        sim-2  a@4 v1 ready
        sim-3  a@4 v1 ready
        a  generation 4/4 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 2 of a: v2
        revision 3 of a: v1
        revision 4 of a: v1
        event a SuccessfulCreate x12
        event a SuccessfulDelete x9
    "#]])
        .await;
    expect![[r#"
        daemonset.apps/a 
        REVISION  CHANGE-CAUSE
        2         <none>
        3         <none>
        4         <none>

    "#]]
    .assert_eq(&kubectl(&bed, &["rollout", "history", "ds/a"]).await);
    bed.stays_quiet().await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_delete_waits_for_the_user() {
    let bed = bed(3).await;
    bed.create(with(set("a", "v1"), "spec.updateStrategy", json!({"type": "OnDelete"}))).await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready
        sim-2  a@1 v1 ready
        sim-3  a@1 v1 ready
        a  generation 1/1 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        event a SuccessfulCreate x3
    "#]])
        .await;
    bed.set_image("a", "v2").await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready
        sim-2  a@1 v1 ready
        sim-3  a@1 v1 ready
        a  generation 2/2 desired 3 current 3 ready 3 updated 0 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 2 of a: v2
        event a SuccessfulCreate x3
    "#]])
        .await;
    bed.delete_pod_on("sim-2").await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready
        sim-2  a@2 v2 ready
        sim-3  a@1 v1 ready
        a  generation 2/2 desired 3 current 3 ready 3 updated 1 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 2 of a: v2
        event a SuccessfulCreate x4
    "#]])
        .await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn surge_brings_the_new_pod_first() {
    let bed = bed(3).await;
    let surge = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    bed.create(with(set("a", "v1"), "spec.updateStrategy", surge)).await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready
        sim-2  a@1 v1 ready
        sim-3  a@1 v1 ready
        a  generation 1/1 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        event a SuccessfulCreate x3
    "#]])
        .await;
    bed.set_image("a", "v2").await;
    bed.becomes(&expect![[r#"
        sim-1  a@2 v2 ready
        sim-2  a@2 v2 ready
        sim-3  a@2 v2 ready
        a  generation 2/2 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 2 of a: v2
        event a SuccessfulCreate x6
        event a SuccessfulDelete x3
    "#]])
        .await;
    // Never less than three were up: the judge holds the history against W7.
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_set_for_each_kind_of_hardware() {
    let bed = bed(4).await;
    for (node, kind) in [("sim-1", "big"), ("sim-2", "big"), ("sim-3", "small"), ("sim-4", "small")] {
        bed.patch_node(node, json!({"metadata": {"labels": {"hardware": kind}}})).await;
    }
    for kind in ["big", "small"] {
        let on = with(set(kind, "v1"), "spec.template.spec.nodeSelector", json!({"hardware": kind}));
        bed.create(on).await;
    }
    bed.becomes(&expect![[r#"
        sim-1  big@1 v1 ready
        sim-2  big@1 v1 ready
        sim-3  small@1 v1 ready
        sim-4  small@1 v1 ready
        big  generation 1/1 desired 2 current 2 ready 2 updated 2 available 2 unavailable 0 misscheduled 0
        small  generation 1/1 desired 2 current 2 ready 2 updated 2 available 2 unavailable 0 misscheduled 0
        revision 1 of big: v1
        revision 1 of small: v1
        event big SuccessfulCreate x2
        event small SuccessfulCreate x2
    "#]])
        .await;
    bed.set_image("big", "v2").await;
    bed.patch_node("sim-4", json!({"metadata": {"labels": {"hardware": "big"}}})).await;
    bed.becomes(&expect![[r#"
        sim-1  big@2 v2 ready
        sim-2  big@2 v2 ready
        sim-3  small@1 v1 ready
        sim-4  big@2 v2 ready
        big  generation 2/2 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        small  generation 1/1 desired 1 current 1 ready 1 updated 1 available 1 unavailable 0 misscheduled 0
        revision 1 of big: v1
        revision 1 of small: v1
        revision 2 of big: v2
        event big SuccessfulCreate x5
        event big SuccessfulDelete x2
        event small SuccessfulCreate x2
        event small SuccessfulDelete x1
    "#]])
        .await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_with_overlapping_selectors_share_no_pods() {
    let mut bed = bed(2).await;
    bed.create(set("a", "v1")).await;
    bed.settles().await;
    let other = with(set("b", "v1"), "spec.selector", json!({"matchLabels": {"app": "a"}}));
    bed.create(with(other, "spec.template.metadata.labels", json!({"app": "a"}))).await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready, b@1 v1 ready
        sim-2  a@1 v1 ready, b@1 v1 ready
        a  generation 1/1 desired 2 current 2 ready 2 updated 2 available 2 unavailable 0 misscheduled 0
        b  generation 1/1 desired 2 current 2 ready 2 updated 2 available 2 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 1 of b: v1
        event a SuccessfulCreate x2
        event b SuccessfulCreate x2
    "#]])
        .await;
    bed.set_image("b", "v2").await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready, b@2 v2 ready
        sim-2  a@1 v1 ready, b@2 v2 ready
        a  generation 1/1 desired 2 current 2 ready 2 updated 2 available 2 unavailable 0 misscheduled 0
        b  generation 2/2 desired 2 current 2 ready 2 updated 2 available 2 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 1 of b: v1
        revision 2 of b: v2
        event a SuccessfulCreate x2
        event b SuccessfulCreate x4
        event b SuccessfulDelete x2
    "#]])
        .await;
    bed.stays_quiet().await;
    bed.ends_well().await;
}

/// A set is rolled out twice and deleted, and its pods stay behind. Gives their UIDs.
async fn orphaned(bed: &Bed) -> BTreeSet<String> {
    bed.create(set("a", "v1")).await;
    bed.settles().await;
    bed.set_image("a", "v2").await;
    bed.settles().await;
    let pods = bed.pod_uids().await;
    kubectl(bed, &["delete", "ds", "a", "--cascade=orphan"]).await;
    bed.becomes(&expect![[r#"
        sim-1  nobody@2 v2 ready
        sim-2  nobody@2 v2 ready
        sim-3  nobody@2 v2 ready
        revision 1 of nobody: v1
        revision 2 of nobody: v2
        event a SuccessfulCreate x6
        event a SuccessfulDelete x3
    "#]])
        .await;
    pods
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn orphans_of_the_same_template_are_taken_over_and_left_alone() {
    let mut bed = bed(3).await;
    let pods = orphaned(&bed).await;
    bed.create(set("a", "v2")).await;
    bed.becomes(&expect![[r#"
        sim-1  a@2 v2 ready
        sim-2  a@2 v2 ready
        sim-3  a@2 v2 ready
        a  generation 1/1 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 2 of a: v2
        event a SuccessfulCreate x6
        event a SuccessfulDelete x3
    "#]])
        .await;
    assert_eq!(bed.pod_uids().await, pods);
    bed.stays_quiet().await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn on_delete_adopts_differing_orphans() {
    let mut bed = bed(3).await;
    let pods = orphaned(&bed).await;
    bed.create(with(set("a", "v3"), "spec.updateStrategy", json!({"type": "OnDelete"}))).await;
    bed.becomes(&expect![[r#"
        sim-1  a@2 v2 ready
        sim-2  a@2 v2 ready
        sim-3  a@2 v2 ready
        a  generation 1/1 desired 3 current 3 ready 3 updated 0 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 2 of a: v2
        revision 3 of a: v3
        event a SuccessfulCreate x6
        event a SuccessfulDelete x3
    "#]])
        .await;
    assert_eq!(bed.pod_uids().await, pods);
    bed.stays_quiet().await;
    bed.ends_well().await;
}

/// Within the budget: the judge holds every delete against W5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn differing_orphans_are_replaced_by_the_rollout() {
    let bed = bed(3).await;
    orphaned(&bed).await;
    bed.create(set("a", "v3")).await;
    bed.becomes(&expect![[r#"
        sim-1  a@3 v3 ready
        sim-2  a@3 v3 ready
        sim-3  a@3 v3 ready
        a  generation 1/1 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 2 of a: v2
        revision 3 of a: v3
        event a SuccessfulCreate x9
        event a SuccessfulDelete x6
    "#]])
        .await;
    bed.ends_well().await;
}

/// Both sets are of their first template, so the pods bear the number that those of the new set will bear.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn differing_orphans_are_replaced_regardless_of_their_generation() {
    let bed = bed(2).await;
    bed.create(set("a", "v1")).await;
    bed.settles().await;
    kubectl(&bed, &["delete", "ds", "a", "--cascade=orphan"]).await;
    // Whether a pod is older than the set is known to the second.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    bed.create(set("a", "v2")).await;
    bed.becomes(&expect![[r#"
        sim-1  a@2 v2 ready
        sim-2  a@2 v2 ready
        a  generation 1/1 desired 2 current 2 ready 2 updated 2 available 2 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 2 of a: v2
        event a SuccessfulCreate x4
        event a SuccessfulDelete x2
    "#]])
        .await;
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn a_deleted_set_is_deleted_with_its_dependents() {
    for cascade in ["background", "foreground"] {
        let bed = bed(2).await;
        bed.create(set("a", "v1")).await;
        bed.create(set("b", "v1")).await;
        bed.settles().await;
        kubectl(&bed, &["delete", "ds", "a", &format!("--cascade={cascade}")]).await;
        bed.becomes(&expect![[r#"
            sim-1  b@1 v1 ready
            sim-2  b@1 v1 ready
            b  generation 1/1 desired 2 current 2 ready 2 updated 2 available 2 unavailable 0 misscheduled 0
            revision 1 of b: v1
            event a SuccessfulCreate x2
            event b SuccessfulCreate x2
        "#]])
            .await;
        bed.ends_well().await;
    }
}

/// The set's template decides, and not what became of the pod that was there before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn a_recreated_node_gets_a_pod_of_the_template() {
    let bed = bed(2).await;
    bed.create(set("a", "v1")).await;
    bed.settles().await;
    let pod = bed.pod_on("sim-1").await;
    kubectl(&bed, &["set", "image", &format!("pod/{pod}"), "c=r/a:by-hand"]).await;
    bed.calms_down().await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 by-hand ready
        sim-2  a@1 v1 ready
        a  generation 1/1 desired 2 current 2 ready 2 updated 2 available 2 unavailable 0 misscheduled 0
        revision 1 of a: v1
        event a SuccessfulCreate x2
    "#]])
        .await;
    // Its pod goes with it, once it is sure that the node does not come back.
    let node = bed.remove_node("sim-1").await;
    bed.becomes(&expect![[r#"
        sim-2  a@1 v1 ready
        a  generation 1/1 desired 1 current 1 ready 1 updated 1 available 1 unavailable 0 misscheduled 0
        revision 1 of a: v1
        event a SuccessfulCreate x2
    "#]])
        .await;
    bed.add_node(&node).await;
    bed.becomes(&expect![[r#"
        sim-1  a@1 v1 ready
        sim-2  a@1 v1 ready
        a  generation 1/1 desired 2 current 2 ready 2 updated 2 available 2 unavailable 0 misscheduled 0
        revision 1 of a: v1
        event a SuccessfulCreate x3
    "#]])
        .await;
    bed.ends_well().await;
}

/// As an old text has it: the new set leaves them alone until they are deleted, or their node is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs kubectl"]
async fn on_delete_replaces_differing_orphans_once_they_are_deleted() {
    let bed = bed(3).await;
    orphaned(&bed).await;
    bed.create(with(set("a", "v3"), "spec.updateStrategy", json!({"type": "OnDelete"}))).await;
    bed.settles().await;
    bed.delete_pod_on("sim-1").await;
    let node = bed.remove_node("sim-2").await;
    bed.becomes(&expect![[r#"
        sim-1  a@3 v3 ready
        sim-3  a@2 v2 ready
        a  generation 1/1 desired 2 current 2 ready 2 updated 1 available 2 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 2 of a: v2
        revision 3 of a: v3
        event a SuccessfulCreate x7
        event a SuccessfulDelete x3
    "#]])
        .await;
    bed.add_node(&node).await;
    bed.becomes(&expect![[r#"
        sim-1  a@3 v3 ready
        sim-2  a@3 v3 ready
        sim-3  a@2 v2 ready
        a  generation 1/1 desired 3 current 3 ready 3 updated 2 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 2 of a: v2
        revision 3 of a: v3
        event a SuccessfulCreate x8
        event a SuccessfulDelete x3
    "#]])
        .await;
    bed.ends_well().await;
}
