//! Pod admission.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use expect_test::{Expect, expect};
use muster_api::core_v1::PodWithoutContainerStatuses;
use muster_api::interner::Interner;
use muster_api::qos::QosClass;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::super::admission::{Admission, AdmissionCandidate, admit};
use crate::scheduler;

/// Admits the pods one after the other, and compares the result of each. Admitted pods stay.
fn check(node: Value, pods: &[(&str, Value)], expected: Expect) {
    let node = scheduler::decode_node(&serde_json::to_vec(&node).unwrap(), &mut Interner::default()).unwrap();
    let runtimes: BTreeSet<_> = ["runc".into()].into();
    let mut admitted: Vec<AdmissionCandidate> = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    for (name, change) in pods {
        let mut pod = json!({
            "metadata": {"name": name, "uid": name},
            "spec": {"nodeName": "n1", "containers": [{"name": "a"}]},
            "status": {"qosClass": "Burstable"},
        });
        for (pointer, value) in change.as_object().unwrap() {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            pod.pointer_mut(parent).unwrap()[key] = value.clone();
        }
        let candidate = candidate(&pod);
        let admission = admit(&node, &admitted.iter().collect::<Vec<_>>(), &candidate, &runtimes);
        lines.push(match admission {
            Admission::Admitted => format!("{name} is admitted"),
            Admission::AfterOthers(uids) => format!("{name} is admitted after {}", uids.join(" ")),
            Admission::Rejected(why) => {
                lines.push(format!("{name} is rejected: {}: {}", why.reason, why.message));
                continue;
            }
        });
        admitted.push(candidate);
    }
    expected.assert_eq(&lines.join("\n"));
}

fn candidate(pod: &Value) -> AdmissionCandidate {
    let decoded = PodWithoutContainerStatuses::deserialize(pod).unwrap();
    AdmissionCandidate::from_pod(&decoded, QosClass::of_pod(pod))
}

fn node() -> Value {
    json!({
        "metadata": {"name": "n1", "labels": {"disk": "ssd"}},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "4"}},
    })
}

fn requests(cpu: &str, memory: &str) -> Value {
    json!({"/spec/containers/0/resources": {"requests": {"cpu": cpu, "memory": memory}}})
}

#[test]
fn pods_that_do_not_fit_are_rejected() {
    let tiny = || json!({});
    check(
        node(),
        &[
            ("a", requests("1500m", "100Mi")),
            ("b", requests("600m", "100Mi")),
            ("c", requests("500m", "2Gi")),
            ("d", requests("500m", "924Mi")),
            ("e", requests("0", "1")),
            ("f", tiny()),
            ("g", tiny()),
            ("h", tiny()),
            ("i", json!({"/spec/containers/0/resources": {"requests": {"vendor.example/card": "1"}}})),
        ],
        expect![[r#"
            a is admitted
            b is rejected: OutOfcpu: Pod was rejected: Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000
            c is rejected: OutOfmemory: Pod was rejected: Node didn't have enough resource: memory, requested: 2147483648, used: 104857600, capacity: 1073741824
            d is admitted
            e is rejected: OutOfmemory: Pod was rejected: Node didn't have enough resource: memory, requested: 1, used: 1073741824, capacity: 1073741824
            f is admitted
            g is admitted
            h is rejected: OutOfpods: Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 4, capacity: 4
            i is rejected: OutOfpods: Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 4, capacity: 4"#]],
    );
}

#[test]
fn pods_that_do_not_match_the_node_are_rejected() {
    let port = |port: i64, ip: &str| json!({"/spec/containers/0/ports": [{"containerPort": 80, "hostPort": port, "hostIP": ip}]});
    check(
        node(),
        &[
            ("a", port(80, "10.0.0.1")),
            ("b", port(80, "10.0.0.2")),
            ("c", port(80, "")),
            ("d", port(81, "")),
            ("e", json!({"/spec/nodeSelector": {"disk": "hdd"}})),
            ("f", json!({"/spec/nodeName": "n2"})),
            ("g", json!({"/spec/os": {"name": "windows"}})),
            ("h", json!({"/spec/runtimeClassName": "kata"})),
            ("i", json!({"/spec/runtimeClassName": "runc"})),
        ],
        expect![[r#"
            a is admitted
            b is admitted
            c is rejected: NodePorts: Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports
            d is admitted
            e is rejected: NodeAffinity: Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector
            f is rejected: NodeName: Pod was rejected: Predicate NodeName failed: node(s) didn't match the requested node name
            g is rejected: PodOSNotSupported: Pod was rejected: Failed to admit pod as the OS field doesn't match node OS
            h is rejected: UnexpectedAdmissionError: Pod was rejected: RuntimeClass "kata" is not known to the node's container runtime
            i is admitted"#]],
    );
}

#[test]
fn an_untolerated_no_execute_taint_rejects_a_pod() {
    let mut node = node();
    node["spec"]["taints"] = json!([{"key": "broken", "effect": "NoExecute"}]);
    check(
        node,
        &[
            ("a", json!({})),
            ("b", json!({"/spec/tolerations": [{"operator": "Exists"}]})),
            ("c", json!({"/metadata/annotations": {"kubernetes.io/config.source": "file"}})),
        ],
        expect![[r#"
            a is rejected: TaintToleration: Pod was rejected: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate
            b is admitted
            c is admitted"#]],
    );
}

#[test]
fn a_critical_pod_preempts_others() {
    let roomy = || {
        let mut node = node();
        node["status"]["allocatable"]["pods"] = "10".into();
        node
    };
    let critical = |cpu: &str| {
        let mut pod = requests(cpu, "0");
        pod["/spec/priority"] = 2_000_001_000.into();
        pod
    };
    let of = |quality: &str, cpu: &str| {
        let mut pod = requests(cpu, "0");
        pod["/status/qosClass"] = quality.into();
        pod
    };
    let full = [
        ("low", of("BestEffort", "0")),
        ("small", of("Burstable", "300m")),
        ("big", of("Burstable", "800m")),
    ];
    let with = |more: &[(&'static str, Value)]| -> Vec<(&'static str, Value)> {
        full.iter().cloned().chain(more.iter().cloned()).collect()
    };
    check(
        roomy(),
        &with(&[("best", of("Guaranteed", "900m")), ("critical", critical("300m"))]),
        expect![[r#"
            low is admitted
            small is admitted
            big is admitted
            best is admitted
            critical is admitted after small"#]],
    );
    check(
        roomy(),
        &with(&[("best", of("Guaranteed", "900m")), ("critical", critical("1500m"))]),
        expect![[r#"
            low is admitted
            small is admitted
            big is admitted
            best is admitted
            critical is admitted after big best"#]],
    );
    check(
        roomy(),
        &with(&[("best", of("Guaranteed", "900m")), ("critical", critical("3"))]),
        expect![[r#"
            low is admitted
            small is admitted
            big is admitted
            best is admitted
            critical is rejected: UnexpectedAdmissionError: Pod was rejected: Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 3000)]"#]],
    );
    check(
        roomy(),
        &with(&[("first", critical("900m")), ("critical", critical("1100m"))]),
        expect![[r#"
            low is admitted
            small is admitted
            big is admitted
            first is admitted
            critical is admitted after big small"#]],
    );
}

/// A static pod has no status when it is admitted, so its QoS class is computed.
#[test]
fn the_qos_class_of_a_pod_without_a_status_is_computed() {
    let without_status = |mut pod: Value| {
        pod["/status"] = json!({});
        pod
    };
    let mut guaranteed = requests("900m", "1Mi");
    guaranteed["/spec/containers/0/resources"]["limits"] = json!({"cpu": "900m", "memory": "1Mi"});
    let mut critical = requests("800m", "0");
    critical["/spec/priority"] = 2_000_001_000.into();
    let burstable = ("burstable", without_status(requests("1100m", "0")));
    check(
        node(),
        &[("guaranteed", without_status(guaranteed)), burstable, ("critical", critical)],
        expect![[r#"
            guaranteed is admitted
            burstable is admitted
            critical is admitted after burstable"#]],
    );
}

#[test]
fn a_pod_with_a_start_time_was_admitted() {
    assert!(candidate(&json!({"status": {"startTime": "2026-01-01T00:00:00Z"}})).was_admitted);
    assert!(!candidate(&json!({})).was_admitted);
}

/// As in Go.
#[test]
fn null_is_an_absent_field() {
    let nulls = json!({
        "metadata": {"annotations": null},
        "spec": {"hostNetwork": null, "hostIPC": null, "os": null, "runtimeClassName": null,
            "securityContext": null, "priority": null, "containers": null},
        "status": {"startTime": null},
    });
    let absent = candidate(&json!({}));
    assert_eq!(candidate(&nulls), absent);
    assert_eq!(candidate(&json!({"spec": {"securityContext": {"sysctls": null}}, "status": null})), absent);
    assert_eq!(candidate(&json!({"spec": null})), absent);
}

#[test]
fn only_safe_sysctls_of_own_namespaces_are_allowed() {
    let sets = |name: &str| json!({"/spec/securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
    let with = |name: &str, host: &str| {
        let mut pod = sets(name);
        pod[format!("/spec/{host}")] = true.into();
        pod
    };
    check(
        node(),
        &[
            ("safe", sets("net.ipv4.tcp_syncookies")),
            ("slashes", sets("net/ipv4/tcp_syncookies")),
            ("unsafe", sets("kernel.msgmax")),
            ("network", with("net.ipv4.tcp_syncookies", "hostNetwork")),
            ("ipc", with("kernel.shm_rmid_forced", "hostIPC")),
            ("other", with("kernel.shm_rmid_forced", "hostNetwork")),
        ],
        expect![[r#"
            safe is admitted
            slashes is admitted
            unsafe is rejected: SysctlForbidden: Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted
            network is rejected: SysctlForbidden: Pod was rejected: forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled
            ipc is rejected: SysctlForbidden: Pod was rejected: forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled
            other is admitted"#]],
    );
}
