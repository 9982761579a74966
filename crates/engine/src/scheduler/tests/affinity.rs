//! Pod affinity and anti-affinity.

use expect_test::expect;

use super::*;

#[test]
fn pod_affinity_and_anti_affinity_are_respected() {
    TestScheduler::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .node("c", json!({"metadata": {"labels": {"kubernetes.io/hostname": null}}}))
        .pod("web-1", on("a", json!({})))
        .pod("cache-1", required_affinity("podAffinity", "web"))
        .pod("cache-2", with(required_affinity("podAffinity", "web"), required_affinity("podAntiAffinity", "cache")))
        .expect_calls(&expect![[r#"
            bind default/cache-1 to a
            report default/cache-2 as unschedulable: 0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 2 node(s) didn't match pod affinity rules. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."#]])
        .pod("lone-1", with(required_affinity("podAntiAffinity", "lone"), pinned("a")))
        .pod("lone-2", with(json!({}), pinned("a")))
        .pod("first-1", required_affinity("podAffinity", "first"))
        .pod("none-1", required_affinity("podAffinity", "nobody"))
        .expect_calls(&expect![[r#"
            bind default/first-1 to b
            bind default/lone-1 to a
            report default/lone-2 as unschedulable: 0/3 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling.
            report default/none-1 as unschedulable: 0/3 nodes are available: 3 node(s) didn't match pod affinity rules. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."#]])
        // A matching pod is added, and the pod with anti-affinity is deleted.
        .pod("nobody-1", on("b", json!({})))
        .delete_pod("lone-1")
        .expect_calls(&expect![[r#"
            bind default/lone-2 to a
            bind default/none-1 to b"#]]);
}

#[test]
fn pod_affinity_may_select_other_namespaces() {
    let near = |more: Value| {
        let term = with(
            json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}),
            more,
        );
        json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}})
    };
    TestScheduler::new()
        .node("a", json!({}))
        .node("b", json!({}))
        .namespace("far", json!({"team": "x"}))
        .pod("web-1", on("a", json!({"metadata": {"namespace": "far"}})))
        .pod("x-1", near(json!({})))
        .pod("x-2", near(json!({"namespaces": ["far"]})))
        .pod("x-3", near(json!({"namespaceSelector": {"matchLabels": {"team": "x"}}})))
        .pod("x-4", near(json!({"namespaceSelector": {"matchLabels": {"team": "y"}}})))
        .pod("x-5", near(json!({"namespaceSelector": {}})))
        .expect_calls(&expect![[r#"
            report default/x-1 as unschedulable: 0/2 nodes are available: 2 node(s) didn't match pod affinity rules. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
            bind default/x-2 to a
            bind default/x-3 to a
            report default/x-4 as unschedulable: 0/2 nodes are available: 2 node(s) didn't match pod affinity rules. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.
            bind default/x-5 to a"#]])
        .namespace("far", json!({"team": "y"}))
        .expect_calls(&expect!["bind default/x-4 to a"]);
}
