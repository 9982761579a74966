//! A progressive rollout of real containers: a revision that crashes is stopped at its canary and rolled back.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::bed::{Cluster, daemon_set, items};

/// Restarts of a container are delayed more and more, so the canary must fail after few of them.
const POLICY: &str = r#"
apiVersion: muster.dev/v1alpha1
kind: RolloutPolicy
metadata: {name: careful, namespace: default}
spec:
  daemonSets: [app]
  failures: {maxRestarts: 1}
  steps:
  - {name: canary, nodes: 1, soak: 5s}
  - {name: all, nodes: "100%", soak: 1s}
"#;

/// The DaemonSet with this command, which ends at once with the grace period of zero.
fn set_with(command: &[&str]) -> String {
    let mut set = daemon_set(command);
    set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(0);
    set.to_string()
}

fn rollout(cluster: &Cluster) -> Value {
    cluster.try_kubectl(&["get", "dro", "app", "-o", "json"]).1.parse().unwrap_or_default()
}

/// The nodes that have a pod with this command, or are the target of one that is not scheduled yet.
fn nodes_with(cluster: &Cluster, command: &[&str]) -> BTreeSet<String> {
    const TARGET: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                          /nodeSelectorTerms/0/matchFields/0/values/0";
    let pods = items(&cluster.get(&["pods", "-l", "app=app"]));
    let has_command = |it: &&Value| it["spec"]["containers"][0]["command"] == json!(command);
    let node =
        |pod: &Value| pod["spec"]["nodeName"].as_str().or(pod.pointer(TARGET)?.as_str()).map(str::to_owned);
    pods.iter()
        .filter(has_command)
        .map(|it| node(it).expect("a pod of a DaemonSet has a target node"))
        .collect()
}

#[test]
#[ignore = "needs real nodes: root, kubectl, containerd, runc, CNI plugins, ip, nft, iptables, busybox"]
fn a_crashing_revision_is_stopped_at_the_canary_and_rolled_back() {
    let cluster = Cluster::up("rollout", 3);
    let (good, better, bad) = (["sleep", "3600"], ["sleep", "3601"], ["sh", "-c", "exit 3"]);
    cluster.apply(&set_with(&good));
    cluster.ready_pods("app=app", 3);
    cluster.apply(POLICY);
    let phase_is = |phase: &str| (rollout(&cluster)["status"]["phase"] == phase).then_some(());
    cluster.wait("the policy is followed", || phase_is("Complete"));

    // A good revision goes to one node, and then to all.
    cluster.apply(&set_with(&better));
    cluster.wait("the canary", || (nodes_with(&cluster, &better).len() == 1).then_some(()));
    cluster.wait("the good revision is on all nodes", || {
        let is_everywhere = nodes_with(&cluster, &better).len() == 3;
        phase_is("Complete").filter(|()| is_everywhere)
    });

    // A bad one reaches the canary and no other node, and goes again by itself.
    let mut exposed = BTreeSet::new();
    cluster.apply(&set_with(&bad));
    cluster.wait("the rollback", || {
        exposed.extend(nodes_with(&cluster, &bad));
        phase_is("RolledBack")
    });
    assert_eq!(exposed.len(), 1, "{exposed:?}");
    assert_eq!(nodes_with(&cluster, &better).len(), 3);
    cluster.ready_pods("app=app", 3);
    let failed = rollout(&cluster)["status"]["failures"]["nodes"][0]["node"].clone();
    assert_eq!(failed.as_str(), exposed.first().map(String::as_str));
    let set = cluster.get(&["ds", "app"]);
    let conditions = items(&json!({"items": set["status"]["conditions"]}));
    let stalled = conditions.iter().find(|it| it["type"] == "Stalled").expect("the condition Stalled");
    assert_eq!((&stalled["status"], &stalled["reason"]), (&json!("True"), &json!("RolledBack")));
}
