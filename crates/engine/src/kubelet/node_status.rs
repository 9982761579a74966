//! Computes the Node object that the agent registers, the status of the Node, and the node's Lease.
//!
//! Reasons and events are the same as the kubelet's. So are the messages, except for those that explain why the node is
//! not ready.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::quantity::Quantity;
use muster_api::resources::{ResourceQuantities, is_huge_pages};
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{
    KUBELET_LABELS, LABEL_ARCH, LABEL_BETA_ARCH, LABEL_BETA_OS, LABEL_HOSTNAME, LABEL_OS,
    NAMESPACE_NODE_LEASE, NODE_DISK_PRESSURE, NODE_MEMORY_PRESSURE, NODE_PID_PRESSURE, NODE_READY,
};
use serde_json::{Map, Value, json};

use crate::controller::KubeEvent;

/// Interval at which the agent renews the node's Lease.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// The `leaseDurationSeconds` of the node's Lease. Three renewals may be missed.
pub const LEASE_DURATION_S: u32 = 40;

/// Interval at which an unchanged node status is written again. Upstream: `nodeStatusReportFrequency`.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(300);

/// Maximum number of images in the node status. The largest images are reported. Upstream: `nodeStatusMaxImages`.
const IMAGES_MAX: usize = 50;
/// Maximum number of names per image in the node status. Upstream: `MaxNamesPerImageInNodeStatus`.
const IMAGE_NAMES_MAX: usize = 5;

/// Labels ([`KUBELET_LABELS`]) that the agent updates each time it registers an existing Node, if it has a value for
/// them. It leaves all other labels of the Node unchanged. Upstream: `updateDefaultLabels`.
const DEFAULT_LABELS: [&str; 11] = KUBELET_LABELS;

/// Properties of the node, from which the Node object and its status are computed. The agent takes them from its flags,
/// the machine and the runtime.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Node {
    pub name: String,
    /// CPU architecture as Go names it, such as `amd64` or `arm64`.
    pub arch: String,
    pub addresses: Vec<String>,
    /// Port of the agent's HTTPS endpoint, for logs, exec and metrics.
    pub port: u16,
    /// Total amounts of the node's resources (`status.capacity`).
    pub capacity: ResourceQuantities,
    /// Amounts of resources that are not allocatable: what is reserved for the system, plus the hard eviction
    /// thresholds.
    pub reserved: ResourceQuantities,
    pub info: NodeSystemInfo,
    pub images: Vec<ContainerImage>,
    /// Names of the runtime handlers that a RuntimeClass may refer to. The default handler has an empty name.
    pub handlers: Vec<String>,
    pub pressures: Pressures,
    /// Messages that explain why the node is not ready. Empty if the node is ready.
    pub not_ready_reasons: Vec<String>,
}

/// Identifiers of the machine, versions of its software, and its swap size. Upstream: `NodeSystemInfo`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeSystemInfo {
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    /// Version of the kernel, such as `6.1.0`.
    pub kernel: String,
    pub os_image: String,
    /// Name and version of the runtime, such as `containerd://1.6.20`.
    pub runtime: String,
    /// Version of the agent, which it reports as `kubeletVersion`.
    pub version: String,
    pub swap_bytes: i64,
}

/// An image in the node status. Upstream: `v1.ContainerImage`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContainerImage {
    /// Names of the image, such as `nginx:1.27`. Names with a digest are first.
    pub names: Vec<String>,
    pub size_bytes: i64,
}

/// Which pressure conditions of a node are True.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pressures {
    pub memory: bool,
    pub disk: bool,
    pub pids: bool,
}

impl Pressures {
    /// Whether the node is under no pressure.
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Returns the Node object with which the agent registers, and the events to record. `labels` and `taints` are the
/// labels and taints that the flags of the agent set. Upstream: `initialNode`.
pub fn initial_node(
    node: &Node,
    labels: &BTreeMap<String, String>,
    taints: &[Value],
    now: Time,
) -> (Value, Vec<KubeEvent>) {
    let mut all = json!({
        (LABEL_HOSTNAME): node.name,
        (LABEL_OS): "linux",
        (LABEL_ARCH): node.arch,
        (LABEL_BETA_OS): "linux",
        (LABEL_BETA_ARCH): node.arch,
    });
    for (key, value) in labels {
        all[key] = value.as_str().into();
    }
    let (status, events) = status_patch(node, &Value::Null, now);
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

/// Returns the merge patch that sets the default labels ([`DEFAULT_LABELS`]) of a node that is already registered.
/// `desired` is the Node from [`initial_node`], and `current` the Node on the API server. `None` if no label needs a
/// change.
///
/// Rule: a node that registers again sets the default labels that `desired` has. Taints and all other labels stay.
/// Upstream: `tryRegisterWithAPIServer`.
pub fn default_label_patch(desired: &Value, current: &Value) -> Option<Value> {
    let of = |node: &Value, key: &str| node["metadata"]["labels"].get(key).cloned();
    let changed: Map<String, Value> = DEFAULT_LABELS
        .iter()
        .filter_map(|key| {
            Some((key.to_string(), of(desired, key).filter(|it| of(current, key).as_ref() != Some(it))?))
        })
        .collect();
    (!changed.is_empty()).then(|| json!({"metadata": {"labels": changed}}))
}

/// Returns the event about a change of `spec.unschedulable` from `before` to `now`. `None` if it is unchanged.
///
/// Rule: the agent records an event when its node is cordoned or uncordoned. Upstream: `recordNodeSchedulableEvent`.
pub fn schedulable_event(name: &str, before: bool, now: bool) -> Option<KubeEvent> {
    let event = if now { "NodeNotSchedulable" } else { "NodeSchedulable" };
    (before != now).then(|| KubeEvent::normal(event, format!("Node {name} status is now: {event}")))
}

/// Returns the node's status, as the `status` of a strategic merge patch, and the events to record. `current` is the
/// status on the API server, or `null` for a new node. The patch keeps conditions that other components have set.
pub fn status_patch(node: &Node, current: &Value, now: Time) -> (Value, Vec<KubeEvent>) {
    let mut events = Vec::new();
    let name = &node.name;
    let conditions: Vec<Value> = node_conditions(node.pressures, &node.not_ready_reasons)
        .into_iter()
        .map(|(it, event)| {
            let current = &current["conditions"];
            // No event if a new node is ready from the start.
            let is_initial_ready = it.kind == NODE_READY && find_condition(current, it.kind).is_none();
            if !it.is_reported(current) && !is_initial_ready {
                events.push(KubeEvent::normal(event, format!("Node {name} status is now: {event}")));
            }
            it.to_json(current, now)
        })
        .collect();
    let boot_id = &current["nodeInfo"]["bootID"];
    if boot_id.as_str().is_some_and(|it| !it.is_empty() && it != node.info.boot_id) {
        let message = format!("Node {name} has been rebooted, boot id: {}", node.info.boot_id);
        events.push(KubeEvent::warning("Rebooted", message));
    }
    let addresses = node.addresses.iter().map(|it| json!({"type": "InternalIP", "address": it}));
    let addresses = addresses.chain([json!({"type": "Hostname", "address": name})]);
    let status = json!({
        "capacity": quantities_patch(&node.capacity, &current["capacity"]),
        "allocatable": quantities_patch(&allocatable(&node.capacity, &node.reserved), &current["allocatable"]),
        "conditions": conditions,
        "addresses": addresses.collect::<Vec<_>>(),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": node.port}},
        "nodeInfo": node_info_json(node),
        "images": images_json(&node.images),
        "runtimeHandlers": node.handlers.iter().map(|it| json!({"name": it})).collect::<Vec<_>>(),
    });
    (status, events)
}

/// Whether the patch `status` from [`status_patch`] changes more than heartbeat times. `current` is the status on the
/// API server.
///
/// Rule: the status is written when a field other than the heartbeat time has changed. Upstream:
/// `nodeStatusHasChanged`.
pub fn has_changed(status: &Value, current: &Value) -> bool {
    let is_unchanged = |(key, value): (&String, &Value)| match key.as_str() {
        "conditions" => value.as_array().into_iter().flatten().all(|it| {
            let fields = ["status", "reason", "message", "lastTransitionTime"];
            let before = find_condition(&current["conditions"], it["type"].as_str().unwrap_or_default());
            before.is_some_and(|before| fields.iter().all(|key| before[key] == it[key]))
        }),
        _ => is_equal_or_default(value, &current[key]),
    };
    !status.as_object().into_iter().flatten().all(is_unchanged)
}

/// Whether `current` has all fields of `ours` with equal values. A field that is absent in `current` equals a field of
/// `ours` that is an empty list, an empty string or false.
fn is_equal_or_default(ours: &Value, current: &Value) -> bool {
    match (ours, current) {
        (Value::Object(ours), current) => {
            ours.iter().all(|(key, value)| is_equal_or_default(value, &current[key]))
        }
        (Value::Array(ours), Value::Array(current)) => {
            ours.len() == current.len()
                && ours.iter().zip(current).all(|(ours, current)| is_equal_or_default(ours, current))
        }
        (Value::Array(ours), Value::Null) => ours.is_empty(),
        (Value::String(ours), Value::Null) => ours.is_empty(),
        (Value::Bool(false), Value::Null) => true,
        (ours, current) => ours == current,
    }
}

/// Returns the allocatable resources of a node. An amount is never negative.
///
/// Rule: the allocatable amount of a resource is its capacity minus the reserved amount. Huge pages are also subtracted
/// from memory. Upstream: `MachineInfo`.
pub fn allocatable(capacity: &ResourceQuantities, reserved: &ResourceQuantities) -> ResourceQuantities {
    let above_zero = |it: Quantity| if it.is_negative() { Quantity::ZERO } else { it };
    let mut left: ResourceQuantities = capacity
        .iter()
        .map(|(key, amount)| {
            (key.clone(), reserved.get(key).map_or(*amount, |it| above_zero(amount.minus(*it))))
        })
        .collect();
    let huge = capacity.iter().filter(|(key, _)| is_huge_pages(key));
    for (_, pages) in huge {
        left.entry("memory".into()).and_modify(|it| *it = above_zero(it.minus(*pages)));
    }
    left
}

/// A condition that an agent or a simulated node reports about its node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeCondition {
    /// The `type` of the condition, such as `MemoryPressure`.
    pub kind: &'static str,
    /// Whether the status of the condition is True.
    pub holds: bool,
    pub reason: &'static str,
    pub message: String,
}

impl NodeCondition {
    /// Returns the status of the condition: `True` or `False`.
    pub fn status(&self) -> &'static str {
        if self.holds { "True" } else { "False" }
    }

    /// Returns the condition of this type from `current`, the conditions on the API server. `None` if the API server
    /// does not have the condition, or has it with another status.
    fn find_with_same_status<'a>(&self, current: &'a Value) -> Option<&'a Value> {
        find_condition(current, self.kind).filter(|it| it["status"] == self.status())
    }

    /// Whether `current`, the conditions on the API server, have this condition with the same status.
    pub fn is_reported(&self, current: &Value) -> bool {
        self.find_with_same_status(current).is_some()
    }

    /// Returns the JSON of the condition. `current` are the conditions on the API server. The `lastTransitionTime` is
    /// kept if the condition has the same status there. Otherwise it is `now`.
    pub fn to_json(&self, current: &Value, now: Time) -> Value {
        let since = self.find_with_same_status(current).and_then(|it| it["lastTransitionTime"].as_str());
        let now = now.to_rfc3339();
        json!({
            "type": self.kind,
            "status": self.status(),
            "reason": self.reason,
            "message": self.message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": since.unwrap_or(&now),
        })
    }
}

/// Returns the conditions that a node reports: memory, disk and PID pressure, and `Ready`. Each one comes with the
/// reason of the event that is recorded when its status changes. `not_ready_reasons` are the messages that explain why
/// the node is not ready. They are empty if the node is ready.
pub fn node_conditions(
    pressures: Pressures,
    not_ready_reasons: &[String],
) -> [(NodeCondition, &'static str); 4] {
    let pressure = |kind, holds, if_so: [&'static str; 3], if_not: [&'static str; 3]| {
        let [reason, message, event] = if holds { if_so } else { if_not };
        (NodeCondition { kind, holds, reason, message: message.into() }, event)
    };
    let (reason, message, event) = match not_ready_reasons {
        [] => ("KubeletReady", String::from("kubelet is posting ready status"), "NodeReady"),
        [trouble] => ("KubeletNotReady", trouble.clone(), "NodeNotReady"),
        all => ("KubeletNotReady", format!("[{}]", all.join(", ")), "NodeNotReady"),
    };
    let ready = NodeCondition { kind: NODE_READY, holds: not_ready_reasons.is_empty(), reason, message };
    [
        pressure(
            NODE_MEMORY_PRESSURE,
            pressures.memory,
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
            NODE_DISK_PRESSURE,
            pressures.disk,
            ["KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"],
            ["KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"],
        ),
        pressure(
            NODE_PID_PRESSURE,
            pressures.pids,
            ["KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"],
            ["KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"],
        ),
        (ready, event),
    ]
}

/// Returns the condition with the type `kind`. `None` if there is none.
fn find_condition<'a>(conditions: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions.as_array()?.iter().find(|it| it["type"] == kind)
}

/// Returns the merge patch for the field `capacity` or `allocatable` of the node status. The patch removes huge page
/// sizes that the node no longer has. Other resources that only the API server has, such as extended resources, stay.
fn quantities_patch(ours: &ResourceQuantities, current: &Value) -> Value {
    let gone = current.as_object().into_iter().flatten().map(|(key, _)| key);
    let gone = gone.filter(|key| is_huge_pages(key) && !ours.contains_key(*key));
    let mut all: Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
    all.extend(ours.iter().map(|(key, amount)| (key.clone(), amount.to_string().into())));
    all.into()
}

/// Returns the JSON of `nodeInfo`.
fn node_info_json(node: &Node) -> Value {
    let NodeSystemInfo { machine_id, system_uuid, boot_id, kernel, os_image, runtime, version, swap_bytes } =
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

/// Returns the JSON of `images` in the node status: at most [`IMAGES_MAX`] images, the largest first.
fn images_json(images: &[ContainerImage]) -> Vec<Value> {
    let mut largest: Vec<&ContainerImage> = images.iter().collect();
    largest.sort_by(|a, b| (b.size_bytes, &a.names).cmp(&(a.size_bytes, &b.names)));
    largest.truncate(IMAGES_MAX);
    let image_json = |it: &&ContainerImage| {
        let names: Vec<&String> = it.names.iter().take(IMAGE_NAMES_MAX).collect();
        json!({"names": names, "sizeBytes": it.size_bytes})
    };
    largest.iter().map(image_json).collect()
}

/// Returns the Lease object that the agent creates for its node. `node_uid` is the UID of the Node, which owns the
/// Lease. If it is `None`, the Lease has no owner.
pub fn node_lease(node: &str, node_uid: Option<&Text>, now: Time) -> Value {
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": NAMESPACE_NODE_LEASE},
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": LEASE_DURATION_S,
            "renewTime": now.to_rfc3339_micros(),
        },
    });
    if let Some(uid) = node_uid {
        lease["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]);
    }
    lease
}

/// Returns the merge patch that renews a Lease. `lease` is the Lease from [`node_lease`].
pub fn lease_renewal_patch(lease: &Value) -> Value {
    json!({"spec": lease["spec"]})
}

#[cfg(test)]
mod tests;
