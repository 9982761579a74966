//! Decoding of objects, and API requests of calls.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;

use expect_test::expect;

use super::*;

#[test]
fn api_requests_of_calls() {
    let at = Time::from_secs(60);
    let mut of = node("n1", &["ready", "taint=mine:NoExecute@5", "os"], None, at);
    of.resource_version = 7;
    let taints = taints::desired_taints(
        &Node { unschedulable: true, ..of.clone() },
        taints::EvictionPermission::Waiting,
        at,
    );
    let (of, p1) = (Arc::new(of), Arc::new(Pod { resource_version: 8, ..pod("p1", &["on=n1"], at) }));
    let new = Arc::new(node("n2", &["new"], None, Time::from_secs(1)));
    let calls = [
        NodeLifecycleCall::ReadLease { node: "n1".into(), last_heartbeat: at },
        NodeLifecycleCall::MarkUnknown {
            node: of.clone(),
            conditions: [NodeConditionType::Ready].into(),
            at,
        },
        NodeLifecycleCall::MarkUnknown { node: new, conditions: [NodeConditionType::PidPressure].into(), at },
        NodeLifecycleCall::PatchNode { node: of, taints },
        NodeLifecycleCall::MarkPodNotReady { pod: p1.clone(), at },
        NodeLifecycleCall::MarkDisruptionTarget { pod: p1.clone(), at },
        NodeLifecycleCall::DeletePod { pod: p1 },
    ];
    let lines = calls.iter().map(|call| {
        let Request { verb, path, body, .. } = NodeLifecycle::request(call);
        let body = body.map(|it| format!("\n    {it}")).unwrap_or_default();
        format!("{verb:?} {path}{body}\n")
    });
    expect![[r#"
        Get /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1
        Patch(Strategic) /api/v1/nodes/n1/status
            {"metadata":{"resourceVersion":"7","uid":"uid-n1"},"status":{"conditions":[{"lastTransitionTime":"1970-01-01T00:01:00Z","message":"Kubelet stopped posting node status.","reason":"NodeStatusUnknown","status":"Unknown","type":"Ready"}]}}
        Patch(Strategic) /api/v1/nodes/n2/status
            {"metadata":{"resourceVersion":"0","uid":"uid-n2"},"status":{"conditions":[{"lastHeartbeatTime":"1970-01-01T00:00:01Z","lastTransitionTime":"1970-01-01T00:01:00Z","message":"Kubelet never posted node status.","reason":"NodeStatusNeverUpdated","status":"Unknown","type":"PIDPressure"}]}}
        Patch(Merge) /api/v1/nodes/n1
            {"metadata":{"labels":{"beta.kubernetes.io/os":"linux"},"resourceVersion":"7","uid":"uid-n1"},"spec":{"taints":[{"effect":"NoExecute","key":"mine","timeAdded":"1970-01-01T00:00:05Z"},{"effect":"NoSchedule","key":"node.kubernetes.io/unschedulable","timeAdded":"1970-01-01T00:01:00Z"}]}}
        Patch(Strategic) /api/v1/namespaces/a/pods/p1/status
            {"metadata":{"resourceVersion":"8","uid":"uid-p1"},"status":{"conditions":[{"lastTransitionTime":"1970-01-01T00:01:00Z","status":"False","type":"Ready"}]}}
        Patch(Strategic) /api/v1/namespaces/a/pods/p1/status
            {"metadata":{"uid":"uid-p1"},"status":{"conditions":[{"lastTransitionTime":"1970-01-01T00:01:00Z","message":"Taint manager: deleting due to NoExecute taint","observedGeneration":1,"reason":"DeletionByTaintManager","status":"True","type":"DisruptionTarget"}]}}
        Delete /api/v1/namespaces/a/pods/p1
            {"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"uid-p1"}}
    "#]].assert_eq(&lines.collect::<String>());
}

#[test]
fn nodes_leases_and_pods_are_decoded() {
    let read = |watch: Watch, object: serde_json::Value| {
        let fact = NodeLifecycle::decode(&watch, object.to_string().as_bytes(), &mut Interner::default());
        format!("{:#?}\n", fact.unwrap())
    };
    let mut facts = read(
        node_watch(),
        serde_json::json!({
            "metadata": {
                "name": "n1", "uid": "u1", "resourceVersion": "12", "creationTimestamp": "2026-01-02T03:04:05Z",
                "labels": {
                    "topology.kubernetes.io/zone": "b", "topology.kubernetes.io/region": "a",
                    "node.kubernetes.io/exclude-disruption": "", "kubernetes.io/os": "linux",
                    "beta.kubernetes.io/os": "windows", "beta.kubernetes.io/arch": "arm",
                },
            },
            "spec": {
                "unschedulable": true,
                "taints": [{"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:06Z"}],
            },
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-02T03:04:07Z"},
                {"type": "PIDPressure", "status": "Unknown"},
                {"type": "KernelDeadlock", "status": "True"},
            ]},
        }),
    );
    facts += &read(
        lease_watch(),
        serde_json::json!({
            "metadata": {"name": "n1", "namespace": "kube-node-lease", "resourceVersion": "13"},
            "spec": {"renewTime": "2026-01-02T03:04:05.000007Z"},
        }),
    );
    facts += &read(
        pod_watch(),
        serde_json::json!({
            "metadata": {
                "name": "p1", "namespace": "a", "uid": "u2", "resourceVersion": "14", "generation": 2,
                "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:09Z",
            },
            "spec": {
                "nodeName": "n1",
                "tolerations": [
                    {"key": "a", "effect": "NoSchedule", "operator": "Exists"},
                    {"key": "b", "effect": "NoExecute", "value": "c", "tolerationSeconds": 30},
                    {"operator": "Exists"},
                ],
            },
            "status": {"conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-02T03:04:06Z"},
                {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"},
            ]},
        }),
    );
    expect![[r#"
        Node(
            Node {
                name: "n1",
                uid: "u1",
                resource_version: 12,
                created: "2026-01-02T03:04:05Z",
                zone: "a/b",
                excluded: true,
                unschedulable: true,
                taints: [
                    Taint {
                        key: "k",
                        value: "v",
                        effect: "NoExecute",
                        added: Some(
                            "2026-01-02T03:04:06Z",
                        ),
                    },
                ],
                conditions: Conditions(
                    [
                        Some(
                            True,
                        ),
                        None,
                        None,
                        Some(
                            Unknown,
                        ),
                        None,
                    ],
                ),
                heartbeat: Some(
                    "2026-01-02T03:04:07Z",
                ),
                alias_labels: [
                    (
                        "beta.kubernetes.io/os",
                        "linux",
                    ),
                ],
            },
        )
        Lease(
            Lease {
                key: ObjectKey {
                    namespace: "kube-node-lease",
                    name: "n1",
                },
                resource_version: 13,
                renewed: Some(
                    "2026-01-02T03:04:05.000007Z",
                ),
            },
        )
        Pod(
            Pod {
                key: ObjectKey {
                    namespace: "a",
                    name: "p1",
                },
                uid: "u2",
                resource_version: 14,
                generation: 2,
                node: "n1",
                bound_at: 2026-01-02T03:04:06Z,
                deleting: true,
                ready: true,
                is_disruption_target: true,
                tolerations: [
                    TimedToleration {
                        toleration: Toleration {
                            key: "b",
                            operator: Equal(
                                "c",
                            ),
                            effect: Some(
                                NoExecute,
                            ),
                        },
                        seconds: Some(
                            30,
                        ),
                    },
                    TimedToleration {
                        toleration: Toleration {
                            key: "",
                            operator: Exists,
                            effect: None,
                        },
                        seconds: None,
                    },
                ],
            },
        )
    "#]]
    .assert_eq(&facts);
    for watch in [node_watch(), lease_watch(), pod_watch()] {
        let nothing = NodeLifecycle::decode(&watch, b"{}", &mut Interner::default());
        assert!(nothing.is_ok(), "absent fields have defaults");
        let error =
            NodeLifecycle::decode(&watch, br#"{"metadata":7}"#, &mut Interner::default()).unwrap_err();
        assert!(error.to_string().starts_with(&format!("read an object of {}: ", watch.resource.plural)));
    }
}
