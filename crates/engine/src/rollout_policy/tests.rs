use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::controller::CallError;
use crate::controller::test_cluster::TestCluster;

type Cluster = TestCluster<RolloutPolicyController>;

fn cluster(objects: impl IntoIterator<Item = Value>) -> Cluster {
    let mut cluster = TestCluster::new(RolloutPolicyController::new(PolicyScope::Cluster), objects);
    cluster.now = Time::from_secs(100);
    cluster
}

fn run(cluster: &mut Cluster, seconds: u64) -> String {
    cluster.run(Duration::from_secs(seconds))
}

fn namespace(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn set(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"template": {"spec": {"containers": []}}},
    })
}

fn rollout(name: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "DaemonRollout",
        "metadata": {"namespace": "a", "name": name}, "status": {"phase": phase},
    })
}

/// A RolloutPolicy of the namespace `a`, or a ClusterRolloutPolicy.
fn policy(kind: &str, name: &str, created: i64, spec: &Value) -> Value {
    let created = Time::from_secs(created).to_rfc3339();
    let mut policy = json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "generation": 1, "creationTimestamp": created},
        "spec": spec,
    });
    if kind == "RolloutPolicy" {
        policy["metadata"]["namespace"] = json!("a");
    }
    policy
}

fn team_a() -> Value {
    json!({"matchLabels": {"team": "a"}})
}

/// The status of each policy, without times.
fn statuses(cluster: &Cluster) -> String {
    let mut out = String::new();
    for policy in ["RolloutPolicy", "ClusterRolloutPolicy"].iter().flat_map(|it| cluster.all(it)) {
        let status = &policy["status"];
        out += &format!("{}: {}\n", policy["metadata"]["name"].as_str().unwrap(), status["sets"]);
        for it in status["conditions"].as_array().into_iter().flatten() {
            let text = |field: &str| it[field].as_str().unwrap_or("-").to_owned();
            out +=
                &format!("  {} {} {}: {}\n", text("type"), text("status"), text("reason"), text("message"));
        }
    }
    out
}

fn check(cluster: &Cluster, expected: &Expect) {
    expected.assert_eq(&statuses(cluster));
}

#[test]
fn a_policy_counts_the_daemon_sets_that_it_governs_by_the_state_of_their_rollout() {
    let sets = ["complete", "rolling", "soaking", "waiting", "stopped", "back", "none", "strange"];
    let rollouts = [
        rollout("complete", "Complete"),
        rollout("rolling", "Rolling"),
        rollout("soaking", "Soaking"),
        rollout("waiting", "Waiting"),
        rollout("stopped", "Stopped"),
        rollout("back", "RollingBack"),
        rollout("strange", "Meditating"),
        rollout("other", "Rolling"),
    ];
    let objects = [policy("RolloutPolicy", "careful", 1, &json!({"selector": team_a()}))];
    let others = [set("a", "other", &json!({"team": "b"})), set("b", "rolling", &json!({"team": "a"}))];
    let sets = sets.iter().map(|it| set("a", it, &json!({"team": "a"})));
    let mut cluster = cluster(objects.into_iter().chain(sets).chain(rollouts).chain(others));
    run(&mut cluster, 5);
    check(
        &cluster,
        &expect![[r#"
            careful: {"failed":2,"matched":8,"rolling":2,"waiting":1}
              Accepted True Valid: all fields are valid
              Ready True Accepted: the policy is in effect
        "#]],
    );
    assert_eq!(cluster.get("RolloutPolicy", "careful")["status"]["observedGeneration"], 1);
    assert_eq!(run(&mut cluster, 600), "", "a status that is correct is not written again");

    cluster.put(rollout("waiting", "Complete"));
    cluster.delete("DaemonRollout", "stopped");
    cluster.delete("DaemonSet", "complete");
    cluster.patch("DaemonSet", "other", &json!({"metadata": {"labels": {"team": "a"}}}));
    run(&mut cluster, 5);
    assert_eq!(
        cluster.get("RolloutPolicy", "careful")["status"]["sets"],
        json!({"matched": 8, "rolling": 3, "waiting": 0, "failed": 1})
    );
}

#[test]
fn a_policy_names_the_daemon_sets_that_another_policy_governs() {
    let named = json!({"daemonSets": ["web"]});
    let objects = [
        namespace("a", &json!({"env": "prod"})),
        set("a", "web", &json!({"team": "a"})),
        set("a", "log", &json!({"team": "a"})),
        set("b", "far", &json!({"team": "a"})),
        policy("RolloutPolicy", "by-name", 3, &named),
        policy("RolloutPolicy", "by-label", 2, &json!({"selector": team_a()})),
        policy("RolloutPolicy", "younger", 4, &json!({"selector": team_a()})),
        policy("ClusterRolloutPolicy", "cluster", 1, &json!({"selector": {}})),
    ];
    let mut cluster = cluster(objects);
    run(&mut cluster, 5);
    check(
        &cluster,
        &expect![[r#"
            by-label: {"failed":0,"matched":1,"rolling":0,"waiting":0}
              Accepted True Valid: all fields are valid
              Ready True Accepted: the policy is in effect
              Conflict True GovernedByAnotherPolicy: other policies govern these DaemonSets: a/web (by RolloutPolicy a/by-name)
            by-name: {"failed":0,"matched":1,"rolling":0,"waiting":0}
              Accepted True Valid: all fields are valid
              Ready True Accepted: the policy is in effect
            younger: {"failed":0,"matched":0,"rolling":0,"waiting":0}
              Accepted True Valid: all fields are valid
              Ready True Accepted: the policy is in effect
              Conflict True GovernedByAnotherPolicy: other policies govern these DaemonSets: a/log (by RolloutPolicy a/by-label), a/web (by RolloutPolicy a/by-name)
            cluster: {"failed":0,"matched":1,"rolling":0,"waiting":0}
              Accepted True Valid: all fields are valid
              Ready True Accepted: the policy is in effect
              Conflict True GovernedByAnotherPolicy: other policies govern these DaemonSets: a/log (by RolloutPolicy a/by-label), a/web (by RolloutPolicy a/by-name)
        "#]],
    );
    for name in ["by-name", "by-label", "younger"] {
        cluster.delete("RolloutPolicy", name);
    }
    run(&mut cluster, 5);
    check(
        &cluster,
        &expect![[r#"
            cluster: {"failed":0,"matched":3,"rolling":0,"waiting":0}
              Accepted True Valid: all fields are valid
              Ready True Accepted: the policy is in effect
        "#]],
    );
}

#[test]
fn a_cluster_policy_follows_the_labels_of_namespaces() {
    let spec = json!({"selector": {}, "namespaceSelector": {"matchLabels": {"env": "prod"}}});
    let objects = [
        namespace("a", &json!({"env": "prod"})),
        namespace("b", &json!({"env": "test"})),
        set("a", "web", &json!({})),
        set("b", "web", &json!({})),
        policy("ClusterRolloutPolicy", "prod", 1, &spec),
    ];
    let mut cluster = cluster(objects);
    let matched = |it: &Cluster| it.get("ClusterRolloutPolicy", "prod")["status"]["sets"]["matched"].clone();
    run(&mut cluster, 5);
    assert_eq!(matched(&cluster), 1);
    cluster.put(namespace("b", &json!({"env": "prod"})));
    run(&mut cluster, 5);
    assert_eq!(matched(&cluster), 2);
    cluster.put(namespace("a", &json!({})));
    cluster.delete("Namespace", "b");
    run(&mut cluster, 5);
    assert_eq!(matched(&cluster), 0);
}

#[test]
fn an_invalid_policy_lists_its_invalid_fields() {
    let mut spec = json!({
        "daemonSets": ["web"],
        "steps": [{"name": "canary", "nodes": "many", "soak": "1 hour"}],
        "windows": [{"start": "09:00", "end": "17:00", "timeZone": "Mars/Phobos"}],
    });
    let objects = [set("a", "web", &json!({})), policy("RolloutPolicy", "broken", 1, &spec)];
    let mut cluster = cluster(objects);
    run(&mut cluster, 5);
    let status = statuses(&cluster);
    for part in [
        "Accepted False InvalidFields: ",
        "Ready False InvalidFields: the DaemonSets",
        "spec.steps[0].nodes: ",
    ] {
        assert!(status.contains(part), "{status}");
    }
    assert!(status.contains("spec.steps[0].soak: ") && status.contains("spec.windows[0]"), "{status}");
    let since = |it: &Cluster, index: usize| {
        it.get("RolloutPolicy", "broken")["status"]["conditions"][index]["lastTransitionTime"].clone()
    };
    let before = since(&cluster, 0);

    // Another invalid field: the condition stays False since the same time.
    spec["windows"][0]["timeZone"] = json!("UTC");
    let with_spec =
        |spec: &Value, generation: i64| json!({"metadata": {"generation": generation}, "spec": spec});
    cluster.patch("RolloutPolicy", "broken", &with_spec(&spec, 2));
    run(&mut cluster, 5);
    assert!(!statuses(&cluster).contains("spec.windows[0]"), "{}", statuses(&cluster));
    assert_eq!(since(&cluster, 0), before);
    spec["steps"] = json!([{"name": "canary", "nodes": 1}]);
    cluster.patch("RolloutPolicy", "broken", &with_spec(&spec, 3));
    run(&mut cluster, 5);
    assert!(statuses(&cluster).contains("Accepted True Valid"), "{}", statuses(&cluster));
    assert_ne!(since(&cluster, 0), before);
    assert_eq!(cluster.get("RolloutPolicy", "broken")["status"]["observedGeneration"], 3);
}

#[test]
fn long_lists_are_cut() {
    let sets = (10..40).map(|it| set("a", &format!("s{it}"), &json!({"team": "a"})));
    let steps: Vec<Value> =
        (0..15).map(|it| json!({"name": format!("s{it}"), "nodes": "x".repeat(5000)})).collect();
    let policies = [
        policy("RolloutPolicy", "first", 1, &json!({"selector": team_a()})),
        policy("RolloutPolicy", "second", 2, &json!({"selector": team_a(), "steps": steps})),
    ];
    let mut cluster = cluster(sets.chain(policies));
    run(&mut cluster, 5);
    let conditions = &cluster.get("RolloutPolicy", "second")["status"]["conditions"];
    let message = |index: usize| conditions[index]["message"].as_str().unwrap();
    assert!(message(0).len() < 10_000 && message(0).ends_with(" more"), "{}", message(0));
    assert!(message(2).contains("a/s10 ") && message(2).contains("a/s19 "), "{}", message(2));
    assert!(message(2).ends_with(", and 20 more"), "{}", message(2));
}

#[test]
fn a_policy_is_written_at_most_once_per_second() {
    let objects = [
        set("a", "web", &json!({"team": "a"})),
        policy("RolloutPolicy", "careful", 1, &json!({"selector": team_a()})),
    ];
    let mut cluster = cluster(objects);
    run(&mut cluster, 5);
    let mut log = String::new();
    for index in 0..100 {
        cluster.put(rollout("web", if index % 2 == 0 { "Rolling" } else { "Waiting" }));
        log += &cluster.run(Duration::from_millis(100));
    }
    log += &run(&mut cluster, 5);
    assert!((5..=11).contains(&log.lines().count()), "{log}");
    assert!(log.ends_with("update rolloutpolicies/status a/careful: 1 0 1 0\n"), "{log}");
}

#[test]
fn a_refused_write_is_retried_and_a_deleted_policy_is_not_written() {
    let objects = [policy("RolloutPolicy", "careful", 1, &json!({"selector": {}}))];
    let mut cluster = cluster(objects);
    cluster.refusals.extend([CallError::Conflict, CallError::Server("etcd is away".into())]);
    let log = run(&mut cluster, 10);
    assert_eq!(log.lines().count(), 3, "{log}");
    assert_eq!(cluster.get("RolloutPolicy", "careful")["status"]["observedGeneration"], 1);
    cluster.put(set("a", "web", &json!({})));
    cluster.delete("RolloutPolicy", "careful");
    assert_eq!(run(&mut cluster, 60), "");
}

#[test]
fn conditions_of_other_writers_are_kept() {
    let mut careful = policy("RolloutPolicy", "careful", 1, &json!({"selector": {}}));
    let audited = json!({
        "type": "Audited", "status": "True", "reason": "ByHand", "message": "",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    });
    careful["status"] = json!({"conditions": [audited]});
    let mut cluster = cluster([careful]);
    run(&mut cluster, 5);
    assert!(statuses(&cluster).contains("  Audited True ByHand: "), "{}", statuses(&cluster));
    assert_eq!(run(&mut cluster, 60), "");
}

#[test]
fn with_the_daemon_sets_of_one_namespace_no_cluster_policy_is_written() {
    let objects = [
        set("a", "web", &json!({"team": "a"})),
        policy("RolloutPolicy", "careful", 1, &json!({"selector": team_a()})),
        policy("ClusterRolloutPolicy", "cluster", 1, &json!({"selector": {}})),
    ];
    let mut cluster = TestCluster::new(RolloutPolicyController::new(PolicyScope::Namespace), objects);
    assert_eq!(run(&mut cluster, 60), "update rolloutpolicies/status a/careful: 1 0 0 0\n");
}

#[test]
fn a_restarted_controller_writes_nothing_new() {
    let objects = [
        set("a", "web", &json!({"team": "a"})),
        rollout("web", "Rolling"),
        policy("RolloutPolicy", "careful", 1, &json!({"selector": team_a()})),
        policy("ClusterRolloutPolicy", "cluster", 1, &json!({"selector": {}})),
    ];
    let mut cluster = cluster(objects);
    run(&mut cluster, 5);
    cluster.restart(RolloutPolicyController::new(PolicyScope::Cluster));
    assert_eq!(run(&mut cluster, 60), "");
}
