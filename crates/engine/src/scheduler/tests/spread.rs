//! Topology spread constraints.

use expect_test::expect;

use super::*;

/// A topology spread constraint over zones with `maxSkew: 1`.
fn zone_spread(more: Value) -> Value {
    let constraint = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    });
    json!({"spec": {"topologySpreadConstraints": [with(constraint, more)]}})
}

fn zone(name: &str) -> Value {
    json!({"metadata": {"labels": {"zone": name}}})
}

#[test]
fn pods_are_spread_over_topology_domains() {
    TestScheduler::new()
        .node("a", zone("one"))
        .node("b", zone("two"))
        .node("c", json!({}))
        .pod("web-1", on("a", json!({})))
        .pod("web-2", zone_spread(json!({})))
        .pod("web-3", with(zone_spread(json!({"nodeAffinityPolicy": "Ignore"})), pinned("a")))
        .pod("web-4", with(zone_spread(json!({"nodeAffinityPolicy": "Ignore"})), pinned("a")))
        .expect_calls(&expect![[r#"
            bind default/web-2 to b
            bind default/web-3 to a
            report default/web-4 as unschedulable: 0/3 nodes are available: 1 node(s) didn't match pod topology spread constraints, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."#]])
        // A pod that is being deleted does not count.
        .patch_pod("web-1", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        .expect_calls(&expect!["bind default/web-4 to a"]);
}

#[test]
fn min_domains_and_node_inclusion_policies_of_spread() {
    TestScheduler::new()
        .node("a", zone("one"))
        .node("b", with(zone("two"), tainted("NoSchedule")))
        // With fewer domains than `minDomains`, the global minimum is zero.
        .pod("web-1", on("a", json!({})))
        .pod("web-2", zone_spread(json!({"minDomains": 3})))
        .expect_calls(&expect!["report default/web-2 as unschedulable: 0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."])
        // The tainted zone counts, unless `nodeTaintsPolicy` is `Honor`.
        .pod("web-3", zone_spread(json!({})))
        .pod("web-4", zone_spread(json!({"nodeTaintsPolicy": "Honor"})))
        .expect_calls(&expect![[r#"
            report default/web-3 as unschedulable: 0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.
            bind default/web-4 to a"#]]);
}

#[test]
fn schedule_anyway_spread_scores_feasible_nodes() {
    let preferring = || zone_spread(json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    TestScheduler::new()
        .node("a", zone("one"))
        .node("b", zone("one"))
        .node("c", zone("two"))
        .pod("web-1", on("a", json!({})))
        .pod("web-2", on("b", json!({})))
        .pod("web-3", with(cpu("1500m"), preferring()))
        .expect_calls(&expect!["bind default/web-3 to c"]);
}
