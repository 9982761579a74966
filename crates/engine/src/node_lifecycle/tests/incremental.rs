//! The incremental state equals the state of a controller that starts with a list.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The state without anything that depends on the order of events.
fn comparable_state(lifecycle: &NodeLifecycle) -> String {
    let nodes: Vec<&Arc<Node>> = lifecycle.nodes.values().map(|it| &it.node).collect();
    let pods: Vec<&Arc<Pod>> = lifecycle.pods.values().map(|it| &it.pod).collect();
    format!(
        "{nodes:#?}{pods:#?}{:#?}{:#?}{:#?}",
        lifecycle.renew_times,
        lifecycle.pods_by_node,
        lifecycle.zones.comparable_state()
    )
}

/// An action, and how many seconds after the previous one it happens.
fn action() -> impl Strategy<Value = (u8, String)> {
    let of_node = prop_oneof![
        Just("ready".to_string()),
        Just("not-ready".to_string()),
        Just("silent".to_string()),
        Just("heartbeats".to_string()),
        Just("status-heartbeat".to_string()),
        Just("cordoned".to_string()),
        Just("uncordoned".to_string()),
        Just("network".to_string()),
        Just("ready excluded".to_string()),
        Just("taint=mine:NoExecute".to_string()),
        Just("untainted".to_string()),
        (0..3).prop_map(|it| format!("zone={it}")),
        (0..3).prop_map(|it| format!("uid={it}")),
    ];
    let of_pod = prop_oneof![
        (0..4).prop_map(|it| format!("on=n{it}")),
        (0..4).prop_map(|it| format!("on=n{it} tolerates=*")),
        (0..4, 0..100).prop_map(|(it, for_s)| format!("on=n{it} tolerates=*:{for_s}")),
    ];
    let what = prop_oneof![
        8 => (0..4, of_node).prop_map(|(it, what)| format!("node n{it} {what}")),
        3 => (0..4, of_pod).prop_map(|(it, what)| format!("pod p{it} {what}")),
        1 => Just("watch-stalled".to_string()),
        1 => Just("relisted".to_string()),
        1 => Just("no-response".to_string()),
        1 => Just("responses".to_string()),
    ];
    (0_u8..60, what)
}

proptest! {
    #[test]
    fn incremental_state_equals_a_new_list_and_healthy_nodes_lose_their_taints(
        actions in vec(action(), 1..40),
    ) {
        let mut scenario = String::new();
        let mut at_s = 0_u32;
        for (later_s, what) in &actions {
            at_s += u32::from(*later_s);
            scenario += &format!("{at_s} {what}\n");
        }
        let mut cluster = TestCluster::of(&scenario);
        cluster.run(i64::from(at_s) + 1);
        // At last the watches are listed again, and every node is healthy.
        for line in ["relisted", "responses"] {
            cluster.apply_line(line);
        }
        let names: Vec<Text> = cluster.nodes.keys().cloned().collect();
        for name in &names {
            cluster.apply_line(&format!("node {name} ready"));
            cluster.apply_line(&format!("node {name} heartbeats"));
        }
        cluster.run(i64::from(at_s) + 200);
        let mut from_lists = NodeLifecycle::new(Config::default());
        for (kind, facts) in cluster.lists() {
            from_lists.apply(Event::Listed { kind, facts, resource_version: 1 }, cluster.now);
        }
        prop_assert_eq!(comparable_state(cluster.queue.controller()), comparable_state(&from_lists), "{}", cluster.report());
        let ours: Vec<&Taint> = cluster.nodes.values().flat_map(|it| &it.taints).filter(|it| {
            it.key.starts_with("node.kubernetes.io/") && !it.key.ends_with("/unschedulable")
                && !it.key.ends_with("/network-unavailable")
        }).collect();
        prop_assert!(ours.is_empty(), "{}", cluster.report());
    }
}
