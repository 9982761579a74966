//! Whatever goes wrong between controller and server, no invariant breaks, and in the end all is as it should be.

use std::time::Duration;

use expect_test::expect;
use futures::future::join_all;
use muster_engine::daemonset::facts::Kind;
use muster_sim::rng::Rng;
use serde_json::{Value, json};

use crate::bed::{Bed, set, stray, with};
use crate::line::{Fault, Rates, WatchFault, Weather};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_at_every_sort_of_write() {
    let faults = [
        Fault::Conflict,
        Fault::TooManyRequests,
        Fault::Server,
        Fault::ServerApplied,
        Fault::LostAnswer,
        Fault::LostRequest,
    ];
    join_all(faults.map(rolled_out_despite)).await;
}

/// Creates and rolls a set out while each sort of write fails once, at each of two occasions.
async fn rolled_out_despite(fault: Fault) {
    let mut bed = Bed::new(3).await;
    bed.start(0, Weather::fair());
    let weather = bed.controller(0).weather.clone();
    for write in ["POST controllerrevisions", "POST pods", "PUT daemonsets/status"] {
        weather.strike(write, fault);
    }
    bed.create(set("a", "v1")).await;
    bed.settles().await;
    for write in ["POST controllerrevisions", "DELETE pods", "POST pods", "PUT daemonsets/status"] {
        weather.strike(write, fault);
    }
    bed.set_image("a", "v2").await;
    bed.settles().await;
    assert_eq!(weather.struck().len(), 7, "{fault:?} struck {:?}", weather.struck());
    expect![[r#"
        sim-1  a@2 v2 ready
        sim-2  a@2 v2 ready
        sim-3  a@2 v2 ready
        a  generation 2/2 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 2 of a: v2
    "#]]
    .assert_eq(&bed.state_without_events().await);
    // Not one pod more than without faults: three, and three again.
    assert_eq!(bed.pods_ever().await, 6, "{fault:?}");
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_breaks_or_lags() {
    let freeze = WatchFault::Freeze(Duration::from_secs(4));
    let faults = [WatchFault::Cut, WatchFault::CutInMidLine, WatchFault::Expired, freeze];
    join_all(faults.map(async |fault| {
        let mut bed = Bed::new(2).await;
        bed.start(0, Weather::fair());
        let weather = bed.controller(0).weather.clone();
        bed.create(set("a", "v1")).await;
        bed.settles().await;
        for (version, kind) in [("v2", Kind::Pods), ("v3", Kind::Revisions), ("v4", Kind::Sets)] {
            weather.strike_watch(kind, fault);
            bed.set_image("a", version).await;
            bed.settles().await;
        }
        weather.strike_watch(Kind::Nodes, fault);
        let node = bed.remove_node("sim-2").await;
        bed.add_node(&node).await;
        bed.settles().await;
        assert_eq!(weather.struck().len(), 4, "{fault:?} struck {:?}", weather.struck());
        bed.ends_well().await;
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_minute_without_an_answer() {
    let half_a_minute = Duration::from_secs(30);
    let stalled_write = async |write: &str, fault: Fault| {
        let mut bed = Bed::new(3).await;
        bed.start(0, Weather::fair());
        let weather = bed.controller(0).weather.clone();
        bed.create(set("a", "v1")).await;
        bed.settles().await;
        weather.strike(write, fault);
        bed.set_image("a", "v2").await;
        bed.settles().await;
        assert_eq!(weather.struck().len(), 1);
        bed.ends_well().await;
    };
    let stalled_watch = async |kind: Kind, stall: Duration| {
        let mut bed = Bed::new(3).await;
        bed.start(0, Weather::fair());
        let weather = bed.controller(0).weather.clone();
        bed.create(set("a", "v1")).await;
        bed.settles().await;
        weather.strike_watch(kind, WatchFault::Freeze(stall));
        bed.set_image("a", "v2").await;
        bed.settles().await;
        assert_eq!(weather.struck().len(), 1);
        bed.ends_well().await;
    };
    futures::join!(
        stalled_write("POST pods", Fault::StalledRequest(half_a_minute)),
        stalled_write("DELETE pods", Fault::StalledAnswer(half_a_minute)),
        stalled_write("PUT daemonsets/status", Fault::StalledRequest(half_a_minute)),
        // So long that it is noticed, and everything listed anew.
        stalled_watch(Kind::Pods, half_a_minute * 3),
        stalled_watch(Kind::Sets, half_a_minute),
    );
}

/// Seeds of storms, in which everything fails now and then, and users are busy. MUSTER_TEST_STORMS names others.
const STORMS: [u64; 4] = [1, 2, 3, 4];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storms() {
    let named = std::env::var("MUSTER_TEST_STORMS").ok();
    let seeds: Vec<u64> = match named {
        Some(named) => named.split(',').map(|it| it.parse().expect("a seed")).collect(),
        None => STORMS.to_vec(),
    };
    join_all(seeds.into_iter().map(storm)).await;
}

async fn storm(seed: u64) {
    let mut rng = Rng::new(seed);
    let mut bed = Bed::new(4).await;
    let rates = Rates { writes: 120, reads: 60, watches: 40, freeze_ms: 2000 };
    bed.start(0, Weather::stormy(seed, rates));
    bed.create(set("a", "v1")).await;
    let surge = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    bed.create(with(set("b", "v1"), "spec.updateStrategy", surge)).await;
    let mut away: Option<Value> = None;
    for step in 0..12_u64 {
        tokio::time::sleep(Duration::from_millis(rng.between(100, 1500))).await;
        let node = format!("sim-{}", rng.between(1, 3));
        let taint = |effect: &str| json!({"spec": {"taints": [{"key": "k", "effect": effect}]}});
        match rng.below(14) {
            0 | 1 => bed.set_image("a", &format!("v{step}")).await,
            2 => bed.set_image("b", &format!("v{step}")).await,
            3 => bed.delete_pod_on(&node).await,
            4 => bed.end_pods_on(&node, "Failed").await,
            5 => bed.patch_node(&node, taint("NoSchedule")).await,
            6 => bed.patch_node(&node, taint("NoExecute")).await,
            7 => match away.take() {
                Some(node) => bed.add_node(&node).await,
                None => away = Some(bed.remove_node("sim-4").await),
            },
            8 => drop(bed.create(stray("a", &format!("stray-{step}"), &node)).await),
            9 => bed.relabel_pods_on(&node, &format!("left-{step}")).await,
            10 => {
                let strategies = [
                    json!({"type": "OnDelete", "rollingUpdate": null}),
                    json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%", "maxSurge": 0}}),
                    json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 2}}),
                ];
                let strategy = rng.pick(&strategies);
                bed.patch_set("a", json!({"spec": {"updateStrategy": strategy}})).await;
            }
            11 => bed.controller(0).pause(Duration::from_millis(rng.between(200, 2000))),
            _ => {
                bed.end(0, true).await;
                bed.start(0, Weather::stormy(seed ^ step << 20, rates));
            }
        }
    }
    bed.clear();
    if let Some(node) = away {
        bed.add_node(&node).await;
    }
    for node in ["sim-1", "sim-2", "sim-3"] {
        bed.patch_node(node, json!({"spec": {"taints": null}})).await;
    }
    bed.settles().await;
    // The controller may still write from a state that is behind: its reflectors wait after the cuts.
    bed.calms_down().await;
    bed.stays_quiet().await;
    bed.ends_well().await;
}
