use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;

use expect_test::expect;

use super::*;

fn node() -> Node {
    let of = |it: &str| Quantity::parse(it).unwrap();
    let amounts =
        |it: &[(&str, &str)]| it.iter().map(|(key, amount)| (String::from(*key), of(amount))).collect();
    Node {
        name: "node-1".into(),
        arch: "amd64".into(),
        addresses: vec!["10.0.0.1".into()],
        port: 10250,
        capacity: amounts(&[("cpu", "2"), ("memory", "8Gi"), ("pods", "110"), ("hugepages-2Mi", "1Gi")]),
        reserved: amounts(&[("cpu", "100m"), ("memory", "100Mi")]),
        info: NodeSystemInfo {
            machine_id: "3d12".into(),
            system_uuid: "3d12".into(),
            boot_id: "a5ad".into(),
            kernel: "6.18".into(),
            os_image: "Debian GNU/Linux 12".into(),
            runtime: "containerd://1.6.20".into(),
            version: "v1.36.0+muster".into(),
            swap_bytes: 0,
        },
        images: vec![
            ContainerImage { names: vec!["small:1".into()], size_bytes: 1 },
            ContainerImage { names: vec!["large@sha256:1".into(), "large:1".into()], size_bytes: 2 },
        ],
        ..Node::default()
    }
}

fn event_lines(events: &[KubeEvent]) -> String {
    events.iter().map(|it| format!("{}: {}\n", it.reason, it.message)).collect()
}

#[test]
fn the_initial_node() {
    let labels =
        BTreeMap::from([("disk".into(), "fast".into()), ("kubernetes.io/hostname".into(), "mine".into())]);
    let taints = [json!({"key": "own", "effect": "NoSchedule"})];
    let (object, events) = initial_node(&node(), &labels, &taints, Time::from_secs(1_000_000_000));
    expect![[r#"
        {
          "apiVersion": "v1",
          "kind": "Node",
          "metadata": {
            "labels": {
              "beta.kubernetes.io/arch": "amd64",
              "beta.kubernetes.io/os": "linux",
              "disk": "fast",
              "kubernetes.io/arch": "amd64",
              "kubernetes.io/hostname": "mine",
              "kubernetes.io/os": "linux"
            },
            "name": "node-1"
          },
          "spec": {
            "taints": [
              {
                "effect": "NoSchedule",
                "key": "own"
              }
            ]
          },
          "status": {
            "addresses": [
              {
                "address": "10.0.0.1",
                "type": "InternalIP"
              },
              {
                "address": "node-1",
                "type": "Hostname"
              }
            ],
            "allocatable": {
              "cpu": "1900m",
              "hugepages-2Mi": "1Gi",
              "memory": "7068Mi",
              "pods": "110"
            },
            "capacity": {
              "cpu": "2",
              "hugepages-2Mi": "1Gi",
              "memory": "8Gi",
              "pods": "110"
            },
            "conditions": [
              {
                "lastHeartbeatTime": "2001-09-09T01:46:40Z",
                "lastTransitionTime": "2001-09-09T01:46:40Z",
                "message": "kubelet has sufficient memory available",
                "reason": "KubeletHasSufficientMemory",
                "status": "False",
                "type": "MemoryPressure"
              },
              {
                "lastHeartbeatTime": "2001-09-09T01:46:40Z",
                "lastTransitionTime": "2001-09-09T01:46:40Z",
                "message": "kubelet has no disk pressure",
                "reason": "KubeletHasNoDiskPressure",
                "status": "False",
                "type": "DiskPressure"
              },
              {
                "lastHeartbeatTime": "2001-09-09T01:46:40Z",
                "lastTransitionTime": "2001-09-09T01:46:40Z",
                "message": "kubelet has sufficient PID available",
                "reason": "KubeletHasSufficientPID",
                "status": "False",
                "type": "PIDPressure"
              },
              {
                "lastHeartbeatTime": "2001-09-09T01:46:40Z",
                "lastTransitionTime": "2001-09-09T01:46:40Z",
                "message": "kubelet is posting ready status",
                "reason": "KubeletReady",
                "status": "True",
                "type": "Ready"
              }
            ],
            "daemonEndpoints": {
              "kubeletEndpoint": {
                "Port": 10250
              }
            },
            "images": [
              {
                "names": [
                  "large@sha256:1",
                  "large:1"
                ],
                "sizeBytes": 2
              },
              {
                "names": [
                  "small:1"
                ],
                "sizeBytes": 1
              }
            ],
            "nodeInfo": {
              "architecture": "amd64",
              "bootID": "a5ad",
              "containerRuntimeVersion": "containerd://1.6.20",
              "kernelVersion": "6.18",
              "kubeProxyVersion": "",
              "kubeletVersion": "v1.36.0+muster",
              "machineID": "3d12",
              "operatingSystem": "linux",
              "osImage": "Debian GNU/Linux 12",
              "systemUUID": "3d12"
            },
            "runtimeHandlers": []
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&object).unwrap());
    expect![[r#"
        NodeHasSufficientMemory: Node node-1 status is now: NodeHasSufficientMemory
        NodeHasNoDiskPressure: Node node-1 status is now: NodeHasNoDiskPressure
        NodeHasSufficientPID: Node node-1 status is now: NodeHasSufficientPID
    "#]]
    .assert_eq(&event_lines(&events));
}

#[test]
fn only_changes_of_the_status_are_written() {
    let now = Time::from_secs(1_000_000_000);
    let later = now + Duration::from_secs(10);
    let (first, _) = status_patch(&node(), &Value::Null, now);
    let mut current = first.clone();
    // The stored status also has fields of others.
    current["conditions"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "NetworkUnavailable", "status": "False"}));
    current["capacity"]["example.com/device"] = "3".into();
    current.as_object_mut().unwrap().remove("runtimeHandlers");
    let mut report = String::new();
    let mut check = |what: &str, node: &Node, current: &Value| {
        let (status, events) = status_patch(node, current, later);
        report += &format!("{what}: {}\n{}", has_changed(&status, current), event_lines(&events));
        status
    };
    check("nothing changed", &node(), &current);
    let mut pressed = node();
    pressed.pressures.disk = true;
    pressed.not_ready_reasons = vec!["container runtime is down".into()];
    let status = check("pressure, and not ready", &pressed, &current);
    pressed.not_ready_reasons.push("node is shutting down".into());
    check("two reasons", &pressed, &status);
    pressed.info.boot_id = "b6be".into();
    check("rebooted", &pressed, &status);
    let mut grown = node();
    grown.images.pop();
    check("an image is gone", &grown, &current);
    let mut without = node();
    without.capacity.remove("hugepages-2Mi");
    let status = check("huge pages are gone", &without, &current);
    report += &format!("{}\n{}", status["capacity"], status["allocatable"]);
    expect![[r#"
        nothing changed: false
        pressure, and not ready: true
        NodeHasDiskPressure: Node node-1 status is now: NodeHasDiskPressure
        NodeNotReady: Node node-1 status is now: NodeNotReady
        two reasons: true
        rebooted: true
        Rebooted: Node node-1 has been rebooted, boot id: b6be
        an image is gone: true
        huge pages are gone: true
        {"cpu":"2","hugepages-2Mi":null,"memory":"8Gi","pods":"110"}
        {"cpu":"1900m","hugepages-2Mi":null,"memory":"8092Mi","pods":"110"}"#]]
    .assert_eq(&report);
}

#[test]
fn a_node_that_registers_again_keeps_labels_of_users() {
    let (desired, _) =
        initial_node(&node(), &BTreeMap::from([("disk".into(), "fast".into())]), &[], Time::from_secs(0));
    let current = json!({"metadata": {"labels": {
        "disk": "slow", "kubernetes.io/hostname": "old", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64", "role": "db"}}});
    let patch = default_label_patch(&desired, &current).map(|it| format!("{it}"));
    expect![[r#"Some("{\"metadata\":{\"labels\":{\"kubernetes.io/hostname\":\"node-1\"}}}")"#]]
        .assert_eq(&format!("{patch:?}"));
    assert_eq!(default_label_patch(&desired, &desired), None);
}

#[test]
fn events_when_a_node_is_cordoned_and_uncordoned() {
    let report = [(false, true), (true, true), (true, false), (false, false)].map(|(before, now)| {
        let event = schedulable_event("node-1", before, now);
        event.map_or("-".into(), |it| format!("{}: {}", it.reason, it.message))
    });
    expect![[r#"
        NodeNotSchedulable: Node node-1 status is now: NodeNotSchedulable
        -
        NodeSchedulable: Node node-1 status is now: NodeSchedulable
        -"#]]
    .assert_eq(&report.join("\n"));
}
