//! Builds the Node object of a simulated node, for registration and for status reports. It reads no clock and makes no
//! API calls.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use muster_api::well_known::{
    LABEL_ARCH, LABEL_BETA_ARCH, LABEL_BETA_OS, LABEL_HOSTNAME, LABEL_OS, NODE_DISK_PRESSURE,
    NODE_MEMORY_PRESSURE, NODE_NETWORK_UNAVAILABLE, NODE_PID_PRESSURE,
};
use serde_json::{Value, json};

use super::behaviour::{FLEET_LABEL, NodeBehaviour, NodeFault};
use super::wire;
use crate::architecture;

/// Maximum number of simulated nodes. Two bytes of an address identify a node, and some address ranges are used for
/// other purposes.
pub const NODES_MAX: u16 = 40_000;

/// A node to register.
#[derive(Debug, Clone, Default)]
pub struct NewNode {
    pub name: String,
    /// Number of the node, from which its addresses are derived.
    pub number: u16,
    /// Name of the fleet that the node belongs to.
    pub fleet: String,
    /// Labels in addition to those that the kubelet sets and to the fleet's label.
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Value>,
}

impl NewNode {
    /// Builds the Node object to create, with its status.
    pub(super) fn to_object(&self, now: Timestamp) -> Value {
        let mut labels = json!({
            (LABEL_HOSTNAME): self.name,
            (LABEL_OS): "linux",
            (LABEL_ARCH): architecture(),
            (LABEL_BETA_OS): "linux",
            (LABEL_BETA_ARCH): architecture(),
            FLEET_LABEL: self.fleet,
        });
        for (key, value) in &self.labels {
            labels[key] = value.clone().into();
        }
        let range = format!("{}/24", pod_address(self.number, 0));
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {"podCIDR": range, "podCIDRs": [range], "taints": self.taints},
            "status": node_status(&self.name, self.number, &NodeBehaviour::default(), &[], now),
        })
    }
}

/// Derives the number of a node from its pod CIDR. Returns `None` if a simulated node cannot have this pod CIDR.
pub(super) fn node_number(node: &wire::Node) -> Option<u16> {
    let (range, _) = node.spec.pod_cidr.as_deref()?.split_once('/')?;
    let range: Ipv4Addr = range.parse().ok()?;
    let [10, high, low, 0] = range.octets() else { return None };
    let number = u16::from_be_bytes([if 96 < high { high - 1 } else { high }, low]);
    (pod_address(number, 0) == range && number <= NODES_MAX).then_some(number)
}

/// Pool of the pod addresses of a node, with one bit for each address of its pod CIDR.
#[derive(Debug)]
pub(super) struct PodAddressPool {
    number: u16,
    /// One bit for each address, set if the address is allocated.
    allocated: [u128; 2],
}

impl PodAddressPool {
    /// Creates the pool for the pod CIDR of the node with this number. The network and broadcast addresses are never
    /// allocated.
    pub(super) fn new(number: u16) -> Self {
        Self { number, allocated: [1, 1 << 127] }
    }

    /// Allocates the requested address, even if it is already allocated, or the lowest free address if none is
    /// requested. If no address is free, returns the last address, which several pods then share.
    pub(super) fn allocate_address(&mut self, requested: Option<Ipv4Addr>) -> Ipv4Addr {
        let last = match (requested, self.allocated) {
            (Some(requested), _) => u32::from(requested.octets()[3]),
            (None, [u128::MAX, high]) => 128 + high.trailing_ones().min(126),
            (None, [low, _]) => low.trailing_ones(),
        };
        let last = u8::try_from(last).unwrap_or(u8::MAX);
        self.allocated[usize::from(last >> 7)] |= 1 << (last & 127);
        requested.unwrap_or_else(|| pod_address(self.number, last))
    }

    /// Marks a pod address as free. Does nothing if `address` is `None`.
    pub(super) fn release_address(&mut self, address: Option<Ipv4Addr>) {
        if let Some([.., last @ 1..=254]) = address.map(|it| it.octets()) {
            self.allocated[usize::from(last >> 7)] &= !(1 << (last & 127));
        }
    }
}

/// Returns the InternalIP of the node with this number.
pub(super) fn host_address(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 200, high, low)
}

/// Builds the complete status of a node as a strategic merge patch. `shown` are the node's conditions on the API
/// server. Conditions that other clients set are kept.
pub(super) fn node_status(
    name: &str,
    number: u16,
    behaviour: &NodeBehaviour,
    shown: &[wire::NodeCondition],
    now: Timestamp,
) -> Value {
    let resources = json!({"cpu": "4", "memory": "8Gi", "ephemeral-storage": "64Gi", "pods": "110"});
    let conditions = current_conditions(behaviour, shown).into_iter().map(|it| {
        let before = shown.iter().find(|shown| *shown.r#type == *it.kind && *shown.status == *it.status());
        let since = before.and_then(|it| it.last_transition_time).unwrap_or(now);
        json!({
            "type": it.kind,
            "status": it.status(),
            "reason": it.reason,
            "message": it.message,
            "lastHeartbeatTime": format_seconds(now),
            "lastTransitionTime": format_seconds(since),
        })
    });
    json!({
        "capacity": resources,
        "allocatable": resources,
        "addresses": [
            {"type": "InternalIP", "address": host_address(number).to_string()},
            {"type": "Hostname", "address": name},
        ],
        "conditions": conditions.collect::<Vec<_>>(),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": {
            "machineID": format!("{number:032x}"),
            "systemUUID": format!("00000000-0000-0000-0000-{number:012x}"),
            "bootID": format!("00000000-0000-0000-0001-{number:012x}"),
            "kernelVersion": "simulated",
            "osImage": "simulated",
            "containerRuntimeVersion": "sim://0",
            "kubeletVersion": concat!("v1.36.0+muster-sim-", env!("CARGO_PKG_VERSION")),
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": architecture(),
        },
    })
}

/// Formats a timestamp with whole seconds, as Kubernetes does.
pub(super) fn format_seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the pod address with this number on the node with the number `node`.
pub(super) fn pod_address(node: u16, number: u8) -> Ipv4Addr {
    let [high, low] = node.to_be_bytes();
    // 10.96.0.0/16 is the range of Services.
    let high = if high < 96 { high } else { high + 1 };
    Ipv4Addr::new(10, high, low, number)
}

/// Whether the statuses of the node's conditions on the API server (`shown`) match its behaviour.
pub(super) fn is_status_current(behaviour: &NodeBehaviour, shown: &[wire::NodeCondition]) -> bool {
    let current = current_conditions(behaviour, shown);
    current
        .iter()
        .all(|it| shown.iter().any(|shown| *shown.r#type == *it.kind && *shown.status == *it.status()))
}

/// A condition of a simulated node.
struct SimulatedCondition {
    /// Type of the condition.
    kind: &'static str,
    is_true: bool,
    reason: &'static str,
    message: &'static str,
}

impl SimulatedCondition {
    /// Returns the condition's status, `True` or `False`.
    fn status(&self) -> &'static str {
        if self.is_true { "True" } else { "False" }
    }
}

/// Returns the conditions of a node with this behaviour. NetworkUnavailable is included only if the node has this fault
/// or if `shown`, the conditions on the API server, include it.
fn current_conditions(behaviour: &NodeBehaviour, shown: &[wire::NodeCondition]) -> Vec<SimulatedCondition> {
    let condition =
        |kind, holds, reason, message| SimulatedCondition { kind, is_true: holds, reason, message };
    let pressure = |fault, kind, if_so: [&'static str; 2], if_not: [&'static str; 2]| {
        let holds = behaviour.has_fault(fault);
        let [reason, message] = if holds { if_so } else { if_not };
        condition(kind, holds, reason, message)
    };
    let mut all = vec![
        pressure(
            NodeFault::MemoryPressure,
            NODE_MEMORY_PRESSURE,
            ["KubeletHasInsufficientMemory", "kubelet has insufficient memory available"],
            ["KubeletHasSufficientMemory", "kubelet has sufficient memory available"],
        ),
        pressure(
            NodeFault::DiskPressure,
            NODE_DISK_PRESSURE,
            ["KubeletHasDiskPressure", "kubelet has disk pressure"],
            ["KubeletHasNoDiskPressure", "kubelet has no disk pressure"],
        ),
        pressure(
            NodeFault::PidPressure,
            NODE_PID_PRESSURE,
            ["KubeletHasInsufficientPID", "kubelet has insufficient PID available"],
            ["KubeletHasSufficientPID", "kubelet has sufficient PID available"],
        ),
        if behaviour.has_fault(NodeFault::NotReady) {
            condition("Ready", false, "KubeletNotReady", "container runtime is down")
        } else {
            condition("Ready", true, "KubeletReady", "kubelet is posting ready status")
        },
    ];
    // The kubelet does not set this condition, so it is reported only if it is, or was, True.
    if behaviour.has_fault(NodeFault::NetworkUnavailable) {
        all.push(condition(
            NODE_NETWORK_UNAVAILABLE,
            true,
            "NoRouteCreated",
            "no network agent has set the node up",
        ));
    } else if shown.iter().any(|it| *it.r#type == *NODE_NETWORK_UNAVAILABLE) {
        all.push(condition(NODE_NETWORK_UNAVAILABLE, false, "RouteCreated", "the node's network is set up"));
    }
    all
}
