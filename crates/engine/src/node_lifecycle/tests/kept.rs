//! What is kept from event to event equals what is learnt anew.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// What does not depend on the order in which things came.
fn digest(lifecycle: &Lifecycle) -> String {
    let nodes: Vec<&Arc<Node>> = lifecycle.nodes.values().map(|it| &it.node).collect();
    let pods: Vec<&Arc<Pod>> = lifecycle.pods.values().map(|it| &it.pod).collect();
    format!(
        "{nodes:#?}{pods:#?}{:#?}{:#?}{:#?}",
        lifecycle.renewals,
        lifecycle.on_node,
        lifecycle.zones.digest()
    )
}

/// Something that happens, and how many seconds later the next thing does.
fn happening() -> impl Strategy<Value = (u8, String)> {
    let of_node = prop_oneof![
        Just("ready".to_string()),
        Just("not-ready".to_string()),
        Just("silent".to_string()),
        Just("speaks".to_string()),
        Just("events".to_string()),
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
        1 => Just("deaf".to_string()),
        1 => Just("hears".to_string()),
        1 => Just("mute".to_string()),
        1 => Just("answers".to_string()),
    ];
    (0_u8..60, what)
}

proptest! {
    #[test]
    fn what_is_kept_equals_what_is_learnt_anew_and_all_is_well_that_ends_well(
        happenings in vec(happening(), 1..40),
    ) {
        let mut story = String::new();
        let mut at_s = 0_u32;
        for (later_s, what) in &happenings {
            at_s += u32::from(*later_s);
            story += &format!("{at_s} {what}\n");
        }
        let mut scene = Scene::of(&story);
        scene.run(i64::from(at_s) + 1);
        // At last all watches come, and every node is well again.
        for line in ["hears", "answers"] {
            scene.happens(line);
        }
        let names: Vec<Text> = scene.nodes.keys().cloned().collect();
        for name in &names {
            scene.happens(&format!("node {name} ready"));
            scene.happens(&format!("node {name} speaks"));
        }
        scene.run(i64::from(at_s) + 200);
        let mut anew = Lifecycle::new(Settings::default());
        for (kind, facts) in scene.lists() {
            anew.apply(Event::Listed { kind, facts }, scene.now);
        }
        prop_assert_eq!(digest(scene.queue.controller()), digest(&anew), "{}", scene.told());
        let ours: Vec<&Taint> = scene.nodes.values().flat_map(|it| &it.taints).filter(|it| {
            it.key.starts_with("node.kubernetes.io/") && !it.key.ends_with("/unschedulable")
                && !it.key.ends_with("/network-unavailable")
        }).collect();
        prop_assert!(ours.is_empty(), "{}", scene.told());
    }
}
