use muster_api::labels::Labels;
use muster_api::object_key::ObjectKey;

use super::*;
use crate::daemonset::facts::ReadyCondition;

const CREATED: Time = Time::from_secs(1_000);

fn pod() -> Pod {
    Pod {
        key: ObjectKey::new("default", "web-1"),
        uid: "1".into(),
        resource_version: 1,
        owner: None,
        labels: Labels::default(),
        target: Some("n1".into()),
        bound: true,
        created: CREATED,
        deleting: false,
        phase: Phase::Running,
        ready_since: None,
        not_ready_since: None,
        last_started: None,
        restarts: 0,
        is_disrupted: false,
        problem: None,
        tolerations: [].into(),
    }
}

fn node(status: ConditionStatus, since: i64) -> Node {
    Node {
        name: "n1".into(),
        uid: "n1".into(),
        resource_version: 1,
        created: Time::from_secs(0),
        labels: Labels::default(),
        taints: [].into(),
        ready: ReadyCondition { status, since: Some(Time::from_secs(since)) },
    }
}

/// The failure of a node `seconds` after the creation of its pod.
fn failure(pod: &Pod, node: Option<&Node>, seconds: u64) -> Option<Text> {
    let now = CREATED + Duration::from_secs(seconds);
    node_health(&FailureRules::default(), pod, pod.is_ready(), node, now).failure
}

#[test]
fn a_pod_that_is_not_available_in_time_is_a_failure_with_its_reason() {
    let waiting = Pod { problem: Some("ImagePullBackOff".into()), ..pod() };
    assert_eq!(failure(&waiting, None, 299), None);
    assert_eq!(failure(&waiting, None, 300), Some("ImagePullBackOff".into()));
    let now = CREATED + Duration::from_secs(10);
    let health = node_health(&FailureRules::default(), &waiting, false, None, now);
    assert_eq!(health.fails_at, Some(CREATED + Duration::from_secs(300)));
}

#[test]
fn the_timeout_starts_again_when_readiness_is_lost() {
    let lost = Pod { not_ready_since: Some(CREATED + Duration::from_secs(1_000)), ..pod() };
    assert_eq!(failure(&lost, None, 1_299), None);
    assert_eq!(failure(&lost, None, 1_300), Some("NotReady".into()));
}

#[test]
fn restarts_immediate_reasons_and_failed_pods_are_failures_at_once() {
    assert_eq!(failure(&Pod { restarts: 2, ready_since: Some(CREATED), ..pod() }, None, 1), None);
    let restarted = Pod { restarts: 3, ready_since: Some(CREATED), ..pod() };
    assert_eq!(failure(&restarted, None, 1), Some("Restarted3Times".into()));
    let crashing = Pod { restarts: 3, problem: Some("CrashLoopBackOff".into()), ..pod() };
    assert_eq!(failure(&crashing, None, 1), Some("CrashLoopBackOff".into()));
    let invalid = Pod { problem: Some("InvalidImageName".into()), ..pod() };
    assert_eq!(failure(&invalid, None, 1), Some("InvalidImageName".into()));
    let failed = Pod { phase: Phase::Failed, problem: Some("Error".into()), ..pod() };
    assert_eq!(failure(&failed, None, 1), Some("Error".into()));
}

#[test]
fn a_node_that_stops_being_ready_after_the_revision_reached_it_has_failed() {
    let ready = Pod { ready_since: Some(CREATED), ..pod() };
    assert_eq!(failure(&ready, Some(&node(ConditionStatus::Unknown, 1_001)), 5), Some("NodeNotReady".into()));
    assert_eq!(failure(&ready, Some(&node(ConditionStatus::False, 999)), 5), None, "it was not ready before");
    assert_eq!(failure(&ready, Some(&node(ConditionStatus::True, 1_001)), 5), None);
    let rules = FailureRules { count_not_ready_nodes: false, ..FailureRules::default() };
    let health = node_health(&rules, &ready, true, Some(&node(ConditionStatus::False, 1_001)), CREATED);
    assert_eq!(health, NodeHealth::default());
}

#[test]
fn a_disrupted_pod_and_a_shortage_of_the_node_are_no_failures() {
    let disrupted = Pod { is_disrupted: true, phase: Phase::Failed, ..pod() };
    assert_eq!(failure(&disrupted, None, 1_000), None);
    for reason in ["Evicted", "OutOfcpu", "OutOfmemory", "NodeShutdown"] {
        let rejected = Pod { phase: Phase::Failed, problem: Some(reason.into()), ..pod() };
        assert_eq!(failure(&rejected, None, 1_000), None, "{reason}");
    }
}

#[test]
fn a_node_is_excused_if_it_or_its_old_pod_was_not_ready() {
    let ready = Pod { ready_since: Some(CREATED), ..pod() };
    assert_eq!(excuse_reason(&ready, Some(&node(ConditionStatus::True, 0))), None);
    assert_eq!(excuse_reason(&ready, Some(&node(ConditionStatus::False, 0))), Some("NodeNotReady".into()));
    assert_eq!(excuse_reason(&pod(), Some(&node(ConditionStatus::True, 0))), Some("NotReady".into()));
    let crashing = Pod { problem: Some("CrashLoopBackOff".into()), ..pod() };
    assert_eq!(excuse_reason(&crashing, None), Some("CrashLoopBackOff".into()));
}

#[test]
fn the_soak_time_counts_from_readiness_and_from_the_last_start_of_a_container() {
    let (min_ready, soak) = (Duration::from_secs(5), Duration::from_secs(60));
    let at = |seconds| CREATED + Duration::from_secs(seconds);
    assert_eq!(soak_ends_at(&pod(), min_ready, soak), None);
    let ready = Pod { ready_since: Some(at(10)), ..pod() };
    assert_eq!(soak_ends_at(&ready, min_ready, soak), Some(at(70)));
    assert_eq!(soak_ends_at(&ready, min_ready, Duration::ZERO), Some(at(15)));
    let restarted = Pod { ready_since: Some(at(10)), last_started: Some(at(30)), ..pod() };
    assert_eq!(soak_ends_at(&restarted, min_ready, soak), Some(at(90)));
}
