//! Who is let in.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use expect_test::{Expect, expect};
use muster_api::interner::Interner;
use serde_json::{Value, json};

use super::super::admission::{Admission, AdmissionCandidate, admit};
use crate::scheduler;

/// A line for each pod that comes, one after the other: those that are let in stay.
fn check(node: Value, pods: &[(&str, Value)], told: Expect) {
    let node = scheduler::node(&serde_json::to_vec(&node).unwrap(), &mut Interner::default()).unwrap();
    let runtimes: BTreeSet<_> = ["runc".into()].into();
    let mut here: Vec<AdmissionCandidate> = Vec::new();
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
        let candidate = AdmissionCandidate::from_value(&pod).unwrap();
        let decided = admit(&node, &here.iter().collect::<Vec<_>>(), &candidate, &runtimes);
        lines.push(match decided {
            Admission::Admitted => format!("{name} is let in"),
            Admission::AfterOthers(uids) => format!("{name} is let in after {}", uids.join(" ")),
            Admission::Rejected(why) => {
                lines.push(format!("{name} is rejected: {}: {}", why.reason, why.message));
                continue;
            }
        });
        here.push(candidate);
    }
    told.assert_eq(&lines.join("\n"));
}

fn node() -> Value {
    json!({
        "metadata": {"name": "n1", "labels": {"disk": "ssd"}},
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "4"}},
    })
}

fn asks(cpu: &str, memory: &str) -> Value {
    json!({"/spec/containers/0/resources": {"requests": {"cpu": cpu, "memory": memory}}})
}

#[test]
fn what_does_not_fit_is_rejected() {
    let tiny = || json!({});
    check(
        node(),
        &[
            ("a", asks("1500m", "100Mi")),
            ("b", asks("600m", "100Mi")),
            ("c", asks("500m", "2Gi")),
            ("d", asks("500m", "924Mi")),
            ("e", asks("0", "1")),
            ("f", tiny()),
            ("g", tiny()),
            ("h", tiny()),
            ("i", json!({"/spec/containers/0/resources": {"requests": {"vendor.example/card": "1"}}})),
        ],
        expect![[r#"
            a is let in
            b is rejected: OutOfcpu: Pod was rejected: Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000
            c is rejected: OutOfmemory: Pod was rejected: Node didn't have enough resource: memory, requested: 2147483648, used: 104857600, capacity: 1073741824
            d is let in
            e is rejected: OutOfmemory: Pod was rejected: Node didn't have enough resource: memory, requested: 1, used: 1073741824, capacity: 1073741824
            f is let in
            g is let in
            h is rejected: OutOfpods: Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 4, capacity: 4
            i is rejected: OutOfpods: Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 4, capacity: 4"#]],
    );
}

#[test]
fn what_is_not_meant_for_the_node_is_rejected() {
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
            a is let in
            b is let in
            c is rejected: NodePorts: Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports
            d is let in
            e is rejected: NodeAffinity: Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector
            f is rejected: NodeName: Pod was rejected: Predicate NodeName failed: node(s) didn't match the requested node name
            g is rejected: PodOSNotSupported: Pod was rejected: Failed to admit pod as the OS field doesn't match node OS
            h is rejected: UnexpectedAdmissionError: Pod was rejected: RuntimeClass "kata" is not known to the node's container runtime
            i is let in"#]],
    );
}

#[test]
fn a_taint_that_would_send_a_pod_away_keeps_it_out() {
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
            b is let in
            c is let in"#]],
    );
}

#[test]
fn a_critical_pod_takes_the_place_of_others() {
    let roomy = || {
        let mut node = node();
        node["status"]["allocatable"]["pods"] = "10".into();
        node
    };
    let critical = |cpu: &str| {
        let mut pod = asks(cpu, "0");
        pod["/spec/priority"] = 2_000_001_000.into();
        pod
    };
    let of = |quality: &str, cpu: &str| {
        let mut pod = asks(cpu, "0");
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
            low is let in
            small is let in
            big is let in
            best is let in
            critical is let in after small"#]],
    );
    check(
        roomy(),
        &with(&[("best", of("Guaranteed", "900m")), ("critical", critical("1500m"))]),
        expect![[r#"
            low is let in
            small is let in
            big is let in
            best is let in
            critical is let in after big best"#]],
    );
    check(
        roomy(),
        &with(&[("best", of("Guaranteed", "900m")), ("critical", critical("3"))]),
        expect![[r#"
            low is let in
            small is let in
            big is let in
            best is let in
            critical is rejected: UnexpectedAdmissionError: Pod was rejected: Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 3000)]"#]],
    );
    check(
        roomy(),
        &with(&[("first", critical("900m")), ("critical", critical("1100m"))]),
        expect![[r#"
            low is let in
            small is let in
            big is let in
            first is let in
            critical is let in after big small"#]],
    );
}

#[test]
fn whoever_was_let_in_before_is_known() {
    let read = |text: &str| AdmissionCandidate::from_value(&serde_json::from_str(text).unwrap());
    assert!(read(r#"{"status": {"startTime": "2026-01-01T00:00:00Z"}}"#).unwrap().was_admitted);
    assert!(!read("{}").unwrap().was_admitted);
    let why = read("7").unwrap_err().to_string();
    assert!(why.starts_with("read an object of pods: "), "{why}");
}

#[test]
fn the_kernel_is_set_only_where_it_is_the_pods_own() {
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
            safe is let in
            slashes is let in
            unsafe is rejected: SysctlForbidden: Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted
            network is rejected: SysctlForbidden: Pod was rejected: forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled
            ipc is rejected: SysctlForbidden: Pod was rejected: forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled
            other is let in"#]],
    );
}
