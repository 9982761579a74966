//! What a node says of itself: its object when it registers, its status from then on.
//!
//! Reasons, messages and events are a kubelet's: those who watch nodes know them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::quantity::Quantity;
use muster_api::resources::ResourceQuantities;
use muster_api::text::Text;
use muster_api::time::Time;
use serde_json::{Map, Value, json};

use crate::daemonset::plan::Event;

/// A heartbeat comes so often, of which three may be missed.
pub const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);
pub const LEASE_S: u32 = 40;

/// A status in which nothing changed is told again after so long.
pub const REPORT_EVERY: Duration = Duration::from_secs(300);

/// So many images are told of, the largest first, each with so many of its names.
const IMAGES_MAX: usize = 50;
const IMAGE_NAMES_MAX: usize = 5;

/// Labels that a node sets again when it comes back under its name; all others are for those who set them.
/// Upstream: `updateDefaultLabels`.
const OWN_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// A node as it knows itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Node {
    pub name: String,
    /// As `amd64`.
    pub arch: String,
    pub addresses: Vec<String>,
    /// Where the API server reaches it.
    pub port: u16,
    pub capacity: ResourceQuantities,
    /// What the system keeps for itself, and what must be left before pods are sent off.
    pub reserved: ResourceQuantities,
    pub info: Info,
    pub images: Vec<Image>,
    /// Ways to run containers that a runtime class may name. The runtime's own has no name.
    pub handlers: Vec<String>,
    pub pressures: Pressures,
    /// Why it is not ready; nothing: it is.
    pub troubles: Vec<String>,
}

/// What a machine is called, and what it runs.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Info {
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel: String,
    pub os_image: String,
    /// As `containerd://1.6.20`.
    pub runtime: String,
    pub version: String,
    pub swap_bytes: i64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Image {
    /// Digests first.
    pub names: Vec<String>,
    pub size_bytes: i64,
}

/// What there is too little of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pressures {
    pub memory: bool,
    pub disk: bool,
    pub pids: bool,
}

impl Pressures {
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// What a node registers with.
pub fn object(
    node: &Node,
    labels: &BTreeMap<String, String>,
    taints: &[Value],
    now: Time,
) -> (Value, Vec<Event>) {
    let mut all = json!({
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": node.arch,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": node.arch,
    });
    for (key, value) in labels {
        all[key] = value.as_str().into();
    }
    let (status, events) = status(node, &Value::Null, now);
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": all},
        "spec": {},
        "status": status,
    });
    if !taints.is_empty() {
        object["spec"]["taints"] = taints.into();
    }
    (object, events)
}

/// Rule: a node that comes back under its name sets the labels anew that are about itself; taints and all other labels
/// stay as others left them. `None`: there is nothing to set. Upstream: `tryRegisterWithAPIServer`.
pub fn relabel(wanted: &Value, shown: &Value) -> Option<Value> {
    let of = |node: &Value, key: &str| node["metadata"]["labels"].get(key).cloned();
    let changed: Map<String, Value> = OWN_LABELS
        .iter()
        .filter_map(|key| {
            Some((key.to_string(), of(wanted, key).filter(|it| of(shown, key).as_ref() != Some(it))?))
        })
        .collect();
    (!changed.is_empty()).then(|| json!({"metadata": {"labels": changed}}))
}

/// Rule: a node says that it was cordoned, and that it takes pods again. Upstream: `recordNodeSchedulableEvent`.
pub fn cordoned(name: &str, before: bool, now: bool) -> Option<Event> {
    let event = if now { "NodeNotSchedulable" } else { "NodeSchedulable" };
    (before != now).then(|| Event::normal(event, format!("Node {name} status is now: {event}")))
}

/// The whole status as a strategic merge patch, in which conditions that others set stay, and what is to be heard of it.
/// `shown` is the status that the API server has.
pub fn status(node: &Node, shown: &Value, now: Time) -> (Value, Vec<Event>) {
    let mut events = Vec::new();
    let name = &node.name;
    let conditions: Vec<Value> = conditions(node)
        .into_iter()
        .map(|it| {
            let before = find(&shown["conditions"], it.kind);
            let is_same = before.is_some_and(|before| before["status"] == it.status());
            let since = before.map(|it| &it["lastTransitionTime"]).filter(|it| is_same && it.is_string());
            // That a new node is ready is no news to anybody.
            if !is_same && (before.is_some() || it.kind != "Ready") {
                events.push(Event::normal(it.event, format!("Node {name} status is now: {}", it.event)));
            }
            json!({
                "type": it.kind,
                "status": it.status(),
                "reason": it.reason,
                "message": it.message,
                "lastHeartbeatTime": now.to_rfc3339(),
                "lastTransitionTime": since.cloned().unwrap_or_else(|| now.to_rfc3339().into()),
            })
        })
        .collect();
    let boot_id = &shown["nodeInfo"]["bootID"];
    if boot_id.as_str().is_some_and(|it| !it.is_empty() && it != node.info.boot_id) {
        let message = format!("Node {name} has been rebooted, boot id: {}", node.info.boot_id);
        events.push(Event::warning("Rebooted", message));
    }
    let addresses = node.addresses.iter().map(|it| json!({"type": "InternalIP", "address": it}));
    let addresses = addresses.chain([json!({"type": "Hostname", "address": name})]);
    let status = json!({
        "capacity": amounts(&node.capacity, &shown["capacity"]),
        "allocatable": amounts(&allocatable(&node.capacity, &node.reserved), &shown["allocatable"]),
        "conditions": conditions,
        "addresses": addresses.collect::<Vec<_>>(),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": node.port}},
        "nodeInfo": info(node),
        "images": images(&node.images),
        "runtimeHandlers": node.handlers.iter().map(|it| json!({"name": it})).collect::<Vec<_>>(),
    });
    (status, events)
}

/// Rule: a status is told when something in it changed; that it was measured anew is no change.
/// Upstream: `nodeStatusHasChanged`.
pub fn is_news(status: &Value, shown: &Value) -> bool {
    let is_shown = |(key, value): (&String, &Value)| match key.as_str() {
        "conditions" => value.as_array().into_iter().flatten().all(|it| {
            let fields = ["status", "reason", "message", "lastTransitionTime"];
            let shown = find(&shown["conditions"], it["type"].as_str().unwrap_or_default());
            shown.is_some_and(|shown| fields.iter().all(|key| shown[key] == it[key]))
        }),
        _ => says_the_same(value, &shown[key]),
    };
    !status.as_object().into_iter().flatten().all(is_shown)
}

/// What is taken off is not there; an empty list is none, and neither is an empty text.
fn says_the_same(ours: &Value, shown: &Value) -> bool {
    match (ours, shown) {
        (Value::Object(ours), shown) => ours.iter().all(|(key, value)| says_the_same(value, &shown[key])),
        (Value::Array(ours), Value::Array(shown)) => {
            ours.len() == shown.len()
                && ours.iter().zip(shown).all(|(ours, shown)| says_the_same(ours, shown))
        }
        (Value::Array(ours), Value::Null) => ours.is_empty(),
        (Value::String(ours), Value::Null) => ours.is_empty(),
        (Value::Bool(false), Value::Null) => true,
        (ours, shown) => ours == shown,
    }
}

/// Rule: pods may have what there is, but for what is reserved and for huge pages, which are no other memory.
/// Upstream: `MachineInfo`.
pub fn allocatable(capacity: &ResourceQuantities, reserved: &ResourceQuantities) -> ResourceQuantities {
    let above_zero = |it: Quantity| if it.is_negative() { Quantity::ZERO } else { it };
    let mut left: ResourceQuantities = capacity
        .iter()
        .map(|(key, amount)| {
            (key.clone(), reserved.get(key).map_or(*amount, |it| above_zero(amount.minus(*it))))
        })
        .collect();
    let huge = capacity.iter().filter(|(key, _)| key.starts_with("hugepages-"));
    for (_, pages) in huge {
        left.entry("memory".into()).and_modify(|it| *it = above_zero(it.minus(*pages)));
    }
    left
}

struct Condition {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
    event: &'static str,
}

impl Condition {
    fn status(&self) -> &'static str {
        if self.holds { "True" } else { "False" }
    }
}

fn conditions(node: &Node) -> [Condition; 4] {
    let pressure = |kind, holds, if_so: [&'static str; 3], if_not: [&'static str; 3]| {
        let [reason, message, event] = if holds { if_so } else { if_not };
        Condition { kind, holds, reason, message: message.into(), event }
    };
    let ready = if node.troubles.is_empty() {
        ("KubeletReady", String::from("kubelet is posting ready status"), "NodeReady")
    } else if let [trouble] = node.troubles.as_slice() {
        ("KubeletNotReady", trouble.clone(), "NodeNotReady")
    } else {
        ("KubeletNotReady", format!("[{}]", node.troubles.join(", ")), "NodeNotReady")
    };
    [
        pressure(
            "MemoryPressure",
            node.pressures.memory,
            [
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
                "NodeHasInsufficientMemory",
            ],
            [
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
                "NodeHasSufficientMemory",
            ],
        ),
        pressure(
            "DiskPressure",
            node.pressures.disk,
            ["KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"],
            ["KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"],
        ),
        pressure(
            "PIDPressure",
            node.pressures.pids,
            ["KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"],
            ["KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"],
        ),
        Condition {
            kind: "Ready",
            holds: node.troubles.is_empty(),
            reason: ready.0,
            message: ready.1,
            event: ready.2,
        },
    ]
}

fn find<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|it| it["type"] == kind)
}

/// A size of huge pages that is gone is taken off; what others advertise stays.
fn amounts(ours: &ResourceQuantities, shown: &Value) -> Value {
    let gone = shown.as_object().into_iter().flatten().map(|(key, _)| key);
    let gone = gone.filter(|key| key.starts_with("hugepages-") && !ours.contains_key(*key));
    let mut all: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
    all.extend(ours.iter().map(|(key, amount)| (key.clone(), amount.to_string().into())));
    all.into()
}

fn info(node: &Node) -> Value {
    let Info { machine_id, system_uuid, boot_id, kernel, os_image, runtime, version, swap_bytes } =
        &node.info;
    let mut info = json!({
        "machineID": machine_id,
        "systemUUID": system_uuid,
        "bootID": boot_id,
        "kernelVersion": kernel,
        "osImage": os_image,
        "containerRuntimeVersion": runtime,
        "kubeletVersion": version,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": node.arch,
    });
    if *swap_bytes != 0 {
        info["swap"] = json!({"capacity": swap_bytes});
    }
    info
}

fn images(images: &[Image]) -> Vec<Value> {
    let mut largest: Vec<&Image> = images.iter().collect();
    largest.sort_by(|a, b| (b.size_bytes, &a.names).cmp(&(a.size_bytes, &b.names)));
    largest.truncate(IMAGES_MAX);
    let written = |it: &&Image| {
        let names: Vec<&String> = it.names.iter().take(IMAGE_NAMES_MAX).collect();
        json!({"names": names, "sizeBytes": it.size_bytes})
    };
    largest.iter().map(written).collect()
}

/// The heartbeat, as it is first made.
pub fn lease(node: &str, node_uid: Option<&Text>, now: Time) -> Value {
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease"},
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": LEASE_S,
            "renewTime": now.to_rfc3339_micros(),
        },
    });
    if let Some(uid) = node_uid {
        lease["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]);
    }
    lease
}

#[cfg(test)]
mod tests;
