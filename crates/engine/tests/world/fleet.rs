//! A fleet as it really is: nodes with thirty labels, pods with what a kubelet and an API server put into them.

use serde_json::{Value, json};

/// `node-00042`
pub(crate) fn node_name(number: usize) -> String {
    format!("ip-10-{}-{}-{}.compute.internal", number / 65_536, number / 256 % 256, number % 256)
}

pub(crate) fn uid(kind: u8, number: usize) -> String {
    format!("{kind:08x}-1c2d-4e5f-8a9b-{number:012x}")
}

pub(crate) fn node(number: usize, version: u64) -> Value {
    let name = node_name(number);
    let mut labels = serde_json::Map::new();
    let zone = format!("eu-north-1{}", ["a", "b", "c"][number % 3]);
    for (key, value) in [
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", ["m7i.xlarge", "m7i.2xlarge", "r7i.large"][number % 3]),
        ("topology.kubernetes.io/zone", &zone),
        ("topology.kubernetes.io/region", "eu-north-1"),
        ("topology.ebs.csi.aws.com/zone", &zone),
        ("alpha.example.com/nodegroup", ["general", "memory"][number % 2]),
    ] {
        labels.insert(key.to_owned(), value.into());
    }
    for it in labels.len()..30 {
        labels.insert(format!("feature.example.com/cpu-cpuid.FEATURE{it}"), "true".into());
    }
    let conditions: Vec<Value> = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]
        .map(|kind| {
            let status = if kind == "Ready" { "True" } else { "False" };
            json!({"type": kind, "status": status, "lastHeartbeatTime": "2026-01-01T00:10:00Z",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "KubeletReady", "message": "kubelet is posting ready status"})
        })
        .to_vec();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": uid(1, number), "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
            "annotations": {"csi.volume.kubernetes.io/nodeid": "{\"ebs.csi.aws.com\":\"i-0123456789abcdef0\"}"}},
        "spec": {"providerID": format!("aws:///{zone}/i-{number:017x}"), "podCIDR": "10.0.0.0/24"},
        "status": {"conditions": conditions, "capacity": {"cpu": "4", "memory": "16Gi", "pods": "58"},
            "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Linux"}},
    })
}

pub(crate) fn set(template: usize, version: u64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "log-shipper", "namespace": "observability", "uid": uid(2, 0), "generation": template,
            "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": "log-shipper"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}},
            "template": template_of(template),
        },
    })
}

fn template_of(template: usize) -> Value {
    json!({
        "metadata": {"labels": {"app.kubernetes.io/name": "log-shipper", "app.kubernetes.io/part-of": "observability"}},
        "spec": {
            "containers": [{"name": "shipper", "image": format!("registry.example.com/log-shipper:{template}"),
                "resources": {"limits": {"memory": "200Mi"}},
                "volumeMounts": [{"name": "varlog", "mountPath": "/var/log"}]}],
            "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}],
            "volumes": [{"name": "varlog", "hostPath": {"path": "/var/log"}}],
        },
    })
}

const HASH: &str = "7c9d8f6b54";

pub(crate) fn revision(template: usize, version: u64) -> Value {
    let mut data = template_of(template);
    data["$patch"] = json!("replace");
    let mut labels = data["metadata"]["labels"].clone();
    labels["controller-revision-hash"] = json!(HASH);
    json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"name": format!("log-shipper-{HASH}"), "namespace": "observability", "uid": uid(3, 0),
            "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
            "ownerReferences": [owner()]},
        "data": {"spec": {"template": data}}, "revision": template,
    })
}

fn owner() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "log-shipper", "uid": uid(2, 0),
        "controller": true, "blockOwnerDeletion": true})
}

/// The pod of a node, bound and Ready or not.
pub(crate) fn pod(template: usize, number: usize, ready: bool, version: u64) -> Value {
    let mut pod = template_of(template);
    let node = node_name(number);
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    let metadata = &mut pod["metadata"];
    metadata["name"] = json!(format!("log-shipper-{:05x}", number));
    metadata["generateName"] = json!("log-shipper-");
    metadata["namespace"] = json!("observability");
    metadata["uid"] = json!(uid(4, number));
    metadata["resourceVersion"] = json!(version.to_string());
    metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    metadata["labels"]["controller-revision-hash"] = json!(HASH);
    metadata["ownerReferences"] = json!([owner()]);
    let spec = &mut pod["spec"];
    spec["nodeName"] = json!(node);
    spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}}});
    if let Some(tolerations) = spec["tolerations"].as_array_mut() {
        for (key, effect) in [
            ("not-ready", "NoExecute"),
            ("unreachable", "NoExecute"),
            ("disk-pressure", "NoSchedule"),
            ("memory-pressure", "NoSchedule"),
            ("pid-pressure", "NoSchedule"),
            ("unschedulable", "NoSchedule"),
        ] {
            tolerations.push(
                json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect}),
            );
        }
    }
    let truth = if ready { "True" } else { "False" };
    pod["status"] = json!({
        "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "startTime": "2026-01-01T00:00:01Z",
        "conditions": [
            {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"},
            {"type": "Ready", "status": truth, "lastTransitionTime": "2026-01-01T00:00:05Z"},
            {"type": "ContainersReady", "status": truth, "lastTransitionTime": "2026-01-01T00:00:05Z"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ],
        "containerStatuses": [{"name": "shipper", "ready": ready, "restartCount": 0, "image": "registry.example.com/log-shipper:1",
            "imageID": "sha256:0123456789abcdef", "containerID": "containerd://0123456789abcdef",
            "state": {"running": {"startedAt": "2026-01-01T00:00:04Z"}}}],
    });
    pod
}
