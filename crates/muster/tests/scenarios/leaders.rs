//! More than one controller, and controllers that stand still.

use std::time::Duration;

use expect_test::expect;
use muster_control::LeaderElectionConfig;

use crate::bed::{Bed, set};
use crate::judge::Leases;
use crate::line::{Fault, Rates, Weather};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_stopped_in_its_tracks_goes_on() {
    let mut bed = Bed::new(3).await;
    bed.binds_directly();
    bed.start(0, Weather::fair());
    bed.create(set("a", "v1")).await;
    bed.settles().await;
    bed.set_image("a", "v2").await;
    bed.has_sent(1, "DELETE pods").await;
    bed.controller(0).pause(Duration::from_secs(3));
    bed.delete_pod_on("sim-3").await;
    bed.set_image("a", "v3").await;
    let node = bed.remove_node("sim-2").await;
    bed.add_node(&node).await;
    bed.settles().await;
    bed.ends_well().await;
}

/// A rollout in whose midst the leader goes, one way or the other: the next one goes on with it.
async fn rolled_out_by_two(leader_goes: impl AsyncFnOnce(&mut Bed, usize)) {
    let [duration, renew_deadline, retry_period] = [4000, 2500, 500].map(Duration::from_millis);
    let mut bed = Bed::new(3).await;
    bed.elects(LeaderElectionConfig { duration, renew_deadline, retry_period }).await;
    for replica in [0, 1] {
        bed.start(replica, Weather::fair());
    }
    bed.create(set("a", "v1")).await;
    bed.settles().await;
    bed.set_image("a", "v2").await;
    bed.has_sent(1, "DELETE pods").await;
    let leader = bed.leader(None).await;
    leader_goes(&mut bed, leader).await;
    bed.leader(Some(leader)).await;
    bed.delete_pod_on("sim-2").await;
    bed.set_image("a", "v3").await;
    bed.settles().await;
    bed.clear();
    bed.stays_quiet().await;
    expect![[r#"
        sim-1  a@3 v3 ready
        sim-2  a@3 v3 ready
        sim-3  a@3 v3 ready
        a  generation 3/3 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision 1 of a: v1
        revision 2 of a: v2
        revision 3 of a: v3
    "#]]
    .assert_eq(&bed.state_without_events().await);
    bed.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_in_order_is_followed() {
    rolled_out_by_two(async |bed, leader| bed.end(leader, false).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_dies_is_followed() {
    rolled_out_by_two(async |bed, leader| bed.end(leader, true).await).await;
}

/// It wakes up, believes that it leads, and must not write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_sleeps_is_followed_and_wakes_up_to_that() {
    rolled_out_by_two(async |bed, leader| bed.controller(leader).pause(Duration::from_secs(8))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_is_followed() {
    rolled_out_by_two(async |bed, leader| bed.controller(leader).weather.cut(true)).await;
}

/// No lease tells them apart: what one does, the other has not seen. Nothing is broken for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_both_believe_they_lead() {
    let mut bed = Bed::new(3).await;
    bed.leases = Leases::None;
    let rates = Rates { watches: 100, freeze_ms: 1000, ..Rates::default() };
    for replica in [0, 1] {
        bed.start(replica, Weather::stormy(replica as u64, rates));
    }
    bed.create(set("a", "v1")).await;
    bed.settles().await;
    bed.controller(0).pause(Duration::from_secs(2));
    bed.set_image("a", "v2").await;
    bed.settles().await;
    bed.delete_pod_on("sim-1").await;
    bed.set_image("a", "v3").await;
    bed.settles().await;
    bed.clear();
    // As long as one of them lags behind, each takes the other's status back.
    bed.calms_down().await;
    bed.settles().await;
    bed.stays_quiet().await;
    // ApplyMode often they have overruled each other is in the numbers of the revisions, and does not matter.
    let state = bed.state_without_events().await;
    let numbers = regex::Regex::new("(@|revision )[0-9]+").unwrap();
    expect![[r#"
        sim-1  a@N v3 ready
        sim-2  a@N v3 ready
        sim-3  a@N v3 ready
        a  generation 3/3 desired 3 current 3 ready 3 updated 3 available 3 unavailable 0 misscheduled 0
        revision N of a: v1
        revision N of a: v2
        revision N of a: v3
    "#]]
    .assert_eq(&numbers.replace_all(&state, "${1}N"));
    bed.ends_well().await;
}

/// A create that nobody waits for any more, and that the server gets all the same: one pod too many, which goes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrives_late_is_healed() {
    let mut bed = Bed::new(2).await;
    bed.leases = Leases::None;
    bed.start(0, Weather::fair());
    let weather = bed.controller(0).weather.clone();
    weather.strike("POST pods", Fault::Late(Duration::from_secs(3)));
    bed.create(set("a", "v1")).await;
    bed.has_sent(3, "POST pods").await;
    bed.has_sent(1, "DELETE pods").await;
    bed.settles().await;
    assert_eq!(weather.struck().len(), 1);
    assert_eq!(bed.pods_ever().await, 3);
    bed.ends_well().await;
}
