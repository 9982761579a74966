//! Bugs of the state machine that the simulator found.

use super::*;

/// Names of the nodes that the stored status admits.
fn admitted(fleet: &Fleet) -> Vec<&str> {
    let names = fleet.stored.admitted.iter().flat_map(|it| match &it.members {
        AdmittedMembers::Names(names) => names.iter(),
        AdmittedMembers::UpTo { .. } => panic!("a fleet of this size is admitted by name"),
    });
    names.map(|it| &**it).collect()
}

/// A node that was away during the rollout returns with an old pod.
#[test]
fn a_complete_rollout_that_is_paused_replaces_no_pod() {
    for is_paused_by_policy in [false, true] {
        let mut fleet = Fleet::new(3, canary_policy());
        fleet.settle().wait(600).settle();
        assert_eq!(fleet.stored.phase, Some(Phase::Complete));
        fleet.nodes.get_mut("n1").unwrap().revision = "s".into();
        fleet.requests.paused = !is_paused_by_policy;
        fleet.policy.as_mut().unwrap().spec.paused = is_paused_by_policy;
        assert!(!fleet.plan().1.may_replace, "paused by the policy: {is_paused_by_policy}");
        fleet.requests.paused = false;
        fleet.policy.as_mut().unwrap().spec.paused = false;
        assert!(fleet.plan().1.may_replace);
        fleet.settle().check(expect![[r#"
            Complete step=rest attempt=1 verdict=Good r=["n0", "n1", "n2"]

        "#]]);
    }
}

#[test]
fn the_status_that_ends_a_wait_is_stored_before_pods_are_replaced() {
    let mut fleet = Fleet::new(3, canary_policy());
    fleet.policy.as_mut().unwrap().spec.steps[0].approval = Approval::Manual;
    fleet.settle().wait(600).settle();
    assert_eq!(fleet.stored.phase, Some(Phase::Waiting));
    fleet.requests.approve = Some(ApproveRequest { revision: "r".into(), step: "canary".into() });
    let (_, outcome) = fleet.plan();
    assert_eq!((outcome.status.phase, outcome.may_replace), (Some(Phase::Rolling), false));
    assert!(fleet.plan().1.may_replace);
}

#[test]
fn a_failed_node_that_recovered_does_not_stand_for_another_node_that_has_not_soaked() {
    let mut fleet = Fleet::new(4, policy([step("all", IntOrPercent::Percent(100), 60)].into()));
    fleet.policy.as_mut().unwrap().spec.failures.max_nodes = IntOrPercent::Count(1);
    fleet.settle().fail("n1", "NotReady").settle();
    assert_eq!((fleet.stored.failures.failed_count(), fleet.stored.phase), (1, Some(Phase::Soaking)));
    // The failed node recovers and soaks, while another node becomes available later.
    let now = fleet.now;
    let recovered = fleet.nodes.get_mut("n1").unwrap();
    (recovered.failure, recovered.available_since) = (None, Some(now));
    fleet.wait(59);
    fleet.nodes.get_mut("n2").unwrap().available_since = Some(fleet.now);
    fleet.wait(1).settle().check(expect![[r#"
        Soaking step=all attempt=1 verdict=- r=["n0", "n1", "n2", "n3"]
        3 of 4 nodes of step "all" have soaked
    "#]]);
    fleet.wait(59).settle().check(expect![[r#"
        Complete step=all attempt=1 verdict=Good r=["n0", "n1", "n2", "n3"]

    "#]]);
}

#[test]
fn a_node_without_the_failed_revision_is_no_longer_admitted() {
    let mut fleet = Fleet::new(3, policy([step("all", IntOrPercent::Percent(100), 0)].into()));
    while admitted(&fleet).is_empty() {
        fleet.plan();
    }
    assert_eq!(admitted(&fleet), ["n0", "n1", "n2"]);
    // The budget lets one node be updated first.
    fleet.nodes.get_mut("n0").unwrap().revision = "r".into();
    fleet.fail("n0", "CrashLoopBackOff").settle().check(expect![[r#"
        Stopped step=all attempt=1 verdict=Bad r=["n0"]
        revision 2 failed on 1 of 1 nodes (CrashLoopBackOff: n0)
    "#]]);
    assert_eq!(admitted(&fleet), ["n0"]);
}

/// The API server sets the creation times of nodes and revisions. With `newNodes: Latest`, a controller whose clock is
/// behind must not take every node for a new one.
#[test]
fn nodes_that_are_older_than_the_revision_are_not_new_to_a_clock_that_is_behind() {
    let mut fleet = Fleet::new(4, canary_policy());
    fleet.policy.as_mut().unwrap().spec.new_nodes = NewNodeRevision::Latest;
    fleet.current.created = fleet.now + Duration::from_secs(1800);
    let created = fleet.now + Duration::from_secs(900);
    fleet.nodes.values_mut().for_each(|it| it.created = created);
    fleet.plan();
    assert_eq!(fleet.stored.attempt_started, Some(fleet.current.created));
    fleet.plan();
    assert_eq!(fleet.with("r").len(), 0, "no node is admitted without a step");
}
