//! Which of the feasible nodes is chosen.

use expect_test::expect;

use super::*;

#[test]
fn preferred_node_affinity_and_taints_score_feasible_nodes() {
    let preferring = json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}},
    ]}}}});
    TestScheduler::new()
        .node("a", tainted("PreferNoSchedule"))
        .node("b", json!({}))
        .node("c", json!({"metadata": {"labels": {"disk": "ssd"}}}))
        .pod("x-1", preferring)
        .pod("x-2", on("c", cpu("1500m")))
        .expect_calls(&expect!["bind default/x-1 to c"])
        .pod("x-3", json!({}))
        .expect_calls(&expect!["bind default/x-3 to b"]);
}

#[test]
fn preferred_pod_affinity_scores_feasible_nodes() {
    let preferred_affinity = |kind: &str| {
        json!({"spec": {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 10,
            "podAffinityTerm": {
                "labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname",
            },
        }]}}}})
    };
    TestScheduler::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .pod("web-1", on("a", json!({})))
        .pod("x-1", with(cpu("1"), preferred_affinity("podAffinity")))
        .pod("x-2", with(cpu("1"), preferred_affinity("podAntiAffinity")))
        .expect_calls(&expect![[r#"
            bind default/x-1 to a
            bind default/x-2 to b"#]])
        // Preferred anti-affinity of an existing pod counts too.
        .pod("web-2", cpu("100m"))
        .expect_calls(&expect!["bind default/web-2 to a"]);
}
