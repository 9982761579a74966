use alloc::collections::BTreeSet;
use core::time::Duration;

use expect_test::expect;
use muster_api::labels::{LabelRequirement, Labels};
use muster_api::time::Time;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::super::policy::SelectableSet;
use super::*;

fn parse_policy(spec: &str) -> Policy {
    let object =
        format!(r#"{{"metadata":{{"name":"careful","namespace":"logging","generation":3}},"spec":{spec}}}"#);
    decode_policy(object.as_bytes(), &mut Interner::default()).unwrap().policy
}

#[test]
fn an_empty_policy_has_the_defaults() {
    let policy = parse_policy(r#"{"daemonSets":["agent"]}"#);
    assert_eq!((policy.spec.clone(), policy.invalid), (PolicySpec::default(), Vec::new()));
    assert_eq!(policy.selection, SetSelection::Names([Text::from("agent")].into()));
    assert_eq!((&*policy.key.name, &*policy.key.namespace, policy.generation), ("careful", "logging", 3));
    let [step] = &policy.spec.steps[..] else { panic!("{:?}", policy.spec.steps) };
    assert_eq!((&*step.name, step.nodes, step.soak), ("all", IntOrPercent::Percent(100), Duration::ZERO));
}

#[test]
fn the_phases_are_those_of_the_api() {
    assert_eq!(Phase::ALL.map(Phase::as_str), RolloutPhase::VALUES);
}

#[test]
fn every_field_is_decoded() {
    let policy = parse_policy(
        r#"{
            "selector": {"matchLabels": {"tier": "agent"}},
            "paused": true,
            "windows": [{"days": ["Mon"], "start": "09:00", "end": "16:00", "timeZone": "Europe/Berlin"}],
            "maxUnavailable": "10%",
            "order": {"by": "Label", "labelKey": "rack"},
            "steps": [
                {"name": "canary", "nodes": 1, "selector": {"matchLabels": {"canary": "yes"}},
                 "spread": {"labelKey": "zone"}, "soak": "1h30m", "approval": "Manual"},
                {"name": "rest", "groups": {"labelKey": "zone", "sequence": ["b"], "maxConcurrent": 2,
                 "maxUnavailable": "20%", "soak": "5m"}}
            ],
            "failures": {"maxNodes": 3, "maxRestarts": 5, "readyTimeout": "2m",
                "immediateFailureReasons": ["Boom"], "nodeNotReady": "Ignore"},
            "onFailure": "Stop", "progressDeadline": "20m", "onDeadline": "Rollback", "newNodes": "Latest",
            "checks": [{"name": "smoke", "external": {}, "interval": "30s", "failureThreshold": 4}],
            "replace": {"method": "Evict"}
        }"#,
    );
    assert_eq!(policy.invalid, Vec::<String>::new());
    let equals = |key, value| Selector::AllOf([LabelRequirement::equals(key, value)].into());
    let expected = PolicySpec {
        paused: true,
        windows: [Window::parse(&["Mon".into()], "09:00", "16:00", "Europe/Berlin").unwrap()].into(),
        max_unavailable: IntOrPercent::Percent(10),
        order: NodeOrder::Label("rack".into()),
        steps: [
            Step {
                name: "canary".into(),
                nodes: IntOrPercent::Count(1),
                selector: equals("canary", "yes"),
                spread: Some("zone".into()),
                soak: Duration::from_secs(5400),
                approval: Approval::Manual,
                groups: None,
            },
            Step {
                name: "rest".into(),
                groups: Some(NodeGroups {
                    label: "zone".into(),
                    sequence: ["b".into()].into(),
                    max_concurrent: 2,
                    max_unavailable: IntOrPercent::Percent(20),
                    soak: Duration::from_secs(300),
                }),
                ..Step::default()
            },
        ]
        .into(),
        failures: FailureRules {
            max_nodes: IntOrPercent::Count(3),
            max_restarts: 5,
            ready_timeout: Duration::from_secs(120),
            immediate_reasons: [Text::from("Boom")].into(),
            count_not_ready_nodes: false,
        },
        on_failure: OnFailure::Stop,
        progress_deadline: Duration::from_secs(1200),
        on_deadline: OnDeadline::Rollback,
        new_nodes: NewNodeRevision::Latest,
        checks: [Check {
            name: "smoke".into(),
            source: CheckSource::External,
            interval: Duration::from_secs(30),
            failure_threshold: 4,
        }]
        .into(),
        replace_method: ReplaceMethod::Evict,
    };
    assert_eq!(policy.spec, expected);
    assert_eq!(policy.selection, SetSelection::Selector(equals("tier", "agent")));
}

#[test]
fn invalid_fields_are_listed_with_their_path() {
    let policy = parse_policy(
        r#"{"daemonSets": ["agent"], "onFailure": "Explode", "steps": [{"name": "a", "nodes": "7"}],
            "windows": [{"start": "09:00", "end": "10:00", "timeZone": "Mars/Base"}]}"#,
    );
    expect![[r#"
        spec.steps[0].nodes: Invalid value: "7": must be a number of at least 1 or a percentage from 1% to 100%
        spec.onFailure: Unsupported value: "Explode": supported values: "Auto", "Rollback", "Stop"
        spec.windows[0]: "Mars/Base" is not a time zone such as Europe/Berlin"#]]
    .assert_eq(&policy.invalid.join("\n"));
    assert_eq!(policy.spec.steps[0].nodes, IntOrPercent::Count(0), "an unreadable number admits no node");
}

#[test]
fn a_cluster_policy_selects_by_namespace_labels() {
    let object = br#"{"metadata":{"name":"all"},"spec":{"selector":{},"namespaceSelector":{"matchLabels":{"env":"prod"}}}}"#;
    let policy = decode_cluster_policy(object, &mut Interner::default()).unwrap().policy;
    assert_eq!(policy.kind, PolicyKind::ClusterRolloutPolicy);
    let namespaces = Selector::AllOf([LabelRequirement::equals("env", "prod")].into());
    assert_eq!(policy.selection, SetSelection::Cluster { sets: match_all_selector(), namespaces });
    let key = muster_api::object_key::ObjectKey::new("a", "b");
    let labels = Labels::default();
    let set = SelectableSet { key: &key, labels: &labels, namespace_labels: None };
    let policies = [alloc::sync::Arc::new(policy)];
    assert!(super::super::policy::governing_policy(policies.iter(), set).0.is_none());
}

#[test]
fn requests_of_an_operator_are_decoded_and_invalid_ones_ignored() {
    let object = br#"{"metadata":{"name":"agent","namespace":"logging","uid":"u","resourceVersion":"7","generation":2},
        "spec":{"paused":true,"approve":{"revision":"r","step":"canary"},"abort":{"revision":"r"},
        "retry":{"revision":"r","attempt":2},"checkReports":[
            {"check":"smoke","revision":"r","result":"Pass"},{"check":"other","revision":"r","result":"Maybe"}]}}"#;
    let record = decode_rollout(object, &mut Interner::default()).unwrap();
    let expected = OperatorRequests {
        paused: true,
        approve: Some(ApproveRequest { revision: "r".into(), step: "canary".into() }),
        abort: Some("r".into()),
        retry: Some(RetryRequest { revision: "r".into(), attempt: 2 }),
        check_reports: [CheckReport {
            check: "smoke".into(),
            revision: "r".into(),
            result: CheckResult::Pass,
            message: "".into(),
        }]
        .into(),
    };
    assert_eq!(record.requests, expected);
    assert_eq!((record.resource_version, record.generation), (7, 2));
    assert_eq!(record.status, RolloutStatus::default());
}

#[test]
fn a_phase_of_a_newer_version_counts_as_stopped() {
    let object = br#"{"metadata":{"name":"agent"},"status":{"phase":"Teleporting","current":{"revision":"r","number":1}}}"#;
    let record = decode_rollout(object, &mut Interner::default()).unwrap();
    assert_eq!(record.status.phase, Some(Phase::Stopped));
}

fn name() -> impl Strategy<Value = Text> {
    "[a-z]{1,8}".prop_map(Text::from)
}

fn time() -> impl Strategy<Value = Time> {
    (0i64..4_000_000_000).prop_map(Time::from_secs)
}

fn revision() -> impl Strategy<Value = RevisionReference> {
    (name(), 1i64..100).prop_map(|(hash, number)| RevisionReference { hash, number })
}

fn failures() -> impl Strategy<Value = Vec<NodeFailure>> {
    vec((name(), name(), time()).prop_map(|(node, reason, at)| NodeFailure { node, reason, at }), 0..4)
}

fn admission_strategy() -> impl Strategy<Value = NodeAdmission> {
    let names =
        vec(name(), 0..4).prop_map(|it| AdmittedMembers::Names(it.into_iter().collect::<BTreeSet<_>>()));
    let position = (name(), time()).prop_map(|(key, created_before)| AdmittedMembers::UpTo {
        key: OrderKey::from_stored(key),
        created_before,
    });
    (name(), prop_oneof![Just(Text::from("")), name()], prop_oneof![names, position])
        .prop_map(|(step, group, members)| NodeAdmission { step, group, members })
}

prop_compose! {
    fn status()(
        (observed_generation, phase, paused, attempt) in (0i64..100, 0usize..8, any::<bool>(), 0u32..100),
        message in "[ -~]{0,40}",
        current in revision(),
        stable in option::of(revision()),
        step in option::of((name(), 0usize..20, 0usize..1000, time(), option::of(time()))),
        admitted in vec(admission_strategy(), 0..4),
        counts in vec(0usize..10_000, 9),
        (nodes, excused) in (failures(), failures()),
        checks in vec((name(), 0usize..3, time(), name()), 0..3),
        last_progress in option::of(time()),
        attempt_started in option::of(time()),
        policy in option::of((any::<bool>(), name(), 1i64..100)),
    ) -> RolloutStatus {
        let kind = |is_cluster| {
            if is_cluster { PolicyKind::ClusterRolloutPolicy } else { PolicyKind::RolloutPolicy }
        };
        RolloutStatus {
            observed_generation,
            policy: policy.map(|(is_cluster, name, generation)| PolicyReference {
                kind: kind(is_cluster),
                name,
                generation,
            }),
            phase: Some(Phase::ALL[phase]),
            paused,
            message: message.into(),
            current: Some(current),
            stable,
            attempt,
            attempt_started,
            step: step.map(|(name, index, target, started, passes_at)| StepStatus {
                name,
                index,
                target,
                started,
                passes_at,
            }),
            admitted,
            nodes: NodeCounts {
                eligible: counts[0],
                admitted: counts[1],
                updated: counts[2],
                available: counts[3],
                soaked: counts[4],
                unassigned: counts[5],
                held: counts[6],
            },
            failures: FailureStatus { allowed: counts[7], nodes, excused, excused_count: counts[8] },
            checks: checks
                .into_iter()
                .map(|(name, result, at, message)| CheckStatus {
                    name,
                    result: [CheckResult::Pass, CheckResult::Fail, CheckResult::Inconclusive][result],
                    at,
                    message,
                })
                .collect(),
            last_progress,
        }
    }
}

proptest! {
    /// A restart of the controller must not lose any of the stored state.
    #[test]
    fn a_status_is_decoded_as_it_was_encoded(status in status()) {
        let encoded = encode_status(&status, Vec::new());
        let object = serde_json::json!({"metadata": {"name": "agent"}, "status": encoded}).to_string();
        let record = decode_rollout(object.as_bytes(), &mut Interner::default()).unwrap();
        prop_assert_eq!(record.status, status);
    }
}

/// The bound of a DaemonRollout: a write four times a second of a larger object would load the API server.
#[test]
fn a_status_with_all_lists_full_is_under_100_kib() {
    let node = |it: usize| Text::from(format!("ip-10-0-{it:03}-{it:03}.eu-central-1.compute.internal"));
    let failure =
        |it| NodeFailure { node: node(it), reason: "CrashLoopBackOff".into(), at: Time::from_secs(0) };
    let list = || (0..super::super::policy::LISTED_NODES_MAX).map(failure).collect::<Vec<_>>();
    let status = RolloutStatus {
        phase: Some(Phase::Rolling),
        current: Some(RevisionReference { hash: "7d9c4b5f77".into(), number: 7 }),
        admitted: [NodeAdmission {
            step: "canary".into(),
            group: "".into(),
            members: AdmittedMembers::Names((0..super::super::policy::LISTED_NODES_MAX).map(node).collect()),
        }]
        .into(),
        failures: FailureStatus { allowed: 200, nodes: list(), excused: list(), excused_count: 200 },
        ..RolloutStatus::default()
    };
    let bytes = serde_json::to_string(&encode_status(&status, Vec::new())).unwrap().len();
    assert!(bytes < 100 * 1024, "{bytes} bytes");
}
