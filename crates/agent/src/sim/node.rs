//! Builds the Node object of a simulated node, for registration and for status reports, and assigns the addresses of
//! simulated nodes and their pods. This module reads no clock and makes no API calls.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use muster_api::quantity::Quantity;
use muster_api::resources::ResourceQuantities;
use muster_api::time::Time;
use muster_api::well_known::NODE_NETWORK_UNAVAILABLE;
use muster_engine::kubelet::node_status::{self, NodeCondition, NodeSystemInfo, Pressures};
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
    pub(super) fn to_object(&self, now: Time) -> Value {
        let mut labels = self.labels.clone();
        labels.insert(FLEET_LABEL.to_owned(), self.fleet.clone());
        let node = node_properties(&self.name, self.number, &NodeBehaviour::default());
        let (mut object, _) = node_status::initial_node(&node, &labels, &self.taints, now);
        let range = format!("{}/24", pod_address(self.number, 0));
        object["spec"]["podCIDR"] = range.as_str().into();
        object["spec"]["podCIDRs"] = json!([range]);
        remove_unsupported_fields(&mut object["status"]);
        object
    }
}

/// Derives the number of a node from its pod CIDR. Returns `None` if the node has no pod CIDR, or one that a simulated
/// node cannot have.
pub(super) fn node_number(node: &wire::Node) -> Option<u16> {
    let (range, _) = node.pod_cidr.as_deref()?.split_once('/')?;
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

/// Builds the complete status of a node as a strategic merge patch. `current` are the node's conditions on the API
/// server. Conditions that other clients set are kept.
pub(super) fn node_status(
    name: &str,
    number: u16,
    behaviour: &NodeBehaviour,
    current: &Value,
    now: Time,
) -> Value {
    let node = node_properties(name, number, behaviour);
    let (mut status, _) = node_status::status_patch(&node, &json!({"conditions": current}), now);
    if let Some(condition) = network_condition(behaviour, current)
        && let Some(conditions) = status["conditions"].as_array_mut()
    {
        conditions.push(condition.to_json(current, now));
    }
    remove_unsupported_fields(&mut status);
    status
}

/// Returns the properties of a simulated node from which the engine computes the Node object and its status.
fn node_properties(name: &str, number: u16, behaviour: &NodeBehaviour) -> node_status::Node {
    let resources = [("cpu", "4"), ("memory", "8Gi"), ("ephemeral-storage", "64Gi"), ("pods", "110")];
    let resources = resources.map(|(name, amount)| {
        (name.to_owned(), Quantity::parse(amount).expect("the amounts of a simulated node are valid"))
    });
    let (pressures, not_ready_reasons) = faults(behaviour);
    node_status::Node {
        name: name.to_owned(),
        arch: architecture().to_owned(),
        addresses: vec![host_address(number).to_string()],
        port: 0,
        capacity: resources.into_iter().collect(),
        reserved: ResourceQuantities::new(),
        info: NodeSystemInfo {
            machine_id: format!("{number:032x}"),
            system_uuid: format!("00000000-0000-0000-0000-{number:012x}"),
            boot_id: format!("00000000-0000-0000-0001-{number:012x}"),
            kernel: "simulated".to_owned(),
            os_image: "simulated".to_owned(),
            runtime: "sim://0".to_owned(),
            version: concat!("v1.36.0+muster-sim-", env!("CARGO_PKG_VERSION")).to_owned(),
            swap_bytes: 0,
        },
        images: Vec::new(),
        handlers: Vec::new(),
        pressures,
        not_ready_reasons,
    }
}

/// Removes the fields of a node status that a simulated node does not report: its images and runtime handlers.
fn remove_unsupported_fields(status: &mut Value) {
    if let Some(status) = status.as_object_mut() {
        status.remove("images");
        status.remove("runtimeHandlers");
    }
}

/// Returns the pod address with this number on the node with the number `node`.
pub(super) fn pod_address(node: u16, number: u8) -> Ipv4Addr {
    let [high, low] = node.to_be_bytes();
    // 10.96.0.0/16 is the range of Services.
    let high = if high < 96 { high } else { high + 1 };
    Ipv4Addr::new(10, high, low, number)
}

/// Whether the statuses of the node's conditions on the API server (`current`) match its behaviour.
pub(super) fn is_status_current(behaviour: &NodeBehaviour, current: &Value) -> bool {
    let (pressures, not_ready_reasons) = faults(behaviour);
    let conditions = node_status::node_conditions(pressures, &not_ready_reasons);
    let mut conditions = conditions.iter().map(|(it, _)| it);
    conditions.all(|it| it.is_reported(current))
        && network_condition(behaviour, current).is_none_or(|it| it.is_reported(current))
}

/// Returns the pressures of a node with this behaviour, and the messages that explain why the node is not ready.
fn faults(behaviour: &NodeBehaviour) -> (Pressures, Vec<String>) {
    let pressures = Pressures {
        memory: behaviour.has_fault(NodeFault::MemoryPressure),
        disk: behaviour.has_fault(NodeFault::DiskPressure),
        pids: behaviour.has_fault(NodeFault::PidPressure),
    };
    let is_not_ready = behaviour.has_fault(NodeFault::NotReady);
    (pressures, is_not_ready.then(|| "container runtime is down".to_owned()).into_iter().collect())
}

/// Returns the condition NetworkUnavailable of a node with this behaviour. The kubelet does not set this condition, so
/// it is `None` unless the node has this fault, or `current`, the conditions on the API server, include the condition.
fn network_condition(behaviour: &NodeBehaviour, current: &Value) -> Option<NodeCondition> {
    let holds = behaviour.has_fault(NodeFault::NetworkUnavailable);
    let is_reported = |it: &Value| it["type"] == NODE_NETWORK_UNAVAILABLE;
    if !holds && !current.as_array().is_some_and(|it| it.iter().any(is_reported)) {
        return None;
    }
    let (reason, message) = if holds {
        ("NoRouteCreated", "no network agent has set the node up")
    } else {
        ("RouteCreated", "the node's network is set up")
    };
    Some(NodeCondition { kind: NODE_NETWORK_UNAVAILABLE, holds, reason, message: message.to_owned() })
}
