//! Computes the taints that a node gets for its conditions.

use alloc::vec::Vec;

use muster_api::core_v1::ConditionStatus;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{
    TAINT_NODE_DISK_PRESSURE, TAINT_NODE_MEMORY_PRESSURE, TAINT_NODE_NETWORK_UNAVAILABLE,
    TAINT_NODE_NOT_READY, TAINT_NODE_PID_PRESSURE, TAINT_NODE_UNREACHABLE, TAINT_NODE_UNSCHEDULABLE,
};

use super::decode::{Node, NodeConditionType, Taint};

/// Taint effect that prevents new pods on the node.
pub(super) const NO_SCHEDULE: &str = "NoSchedule";
/// Taint effect that prevents new pods on the node and evicts existing ones.
pub(super) const NO_EXECUTE: &str = "NoExecute";

/// The unhealthy conditions: type and status of each, and the key of the taint that it adds. Upstream:
/// `nodeConditionToTaintKeyStatusMap`.
const TAINT_BY_CONDITION: [(NodeConditionType, ConditionStatus, &str); 6] = [
    (NodeConditionType::Ready, ConditionStatus::False, TAINT_NODE_NOT_READY),
    (NodeConditionType::Ready, ConditionStatus::Unknown, TAINT_NODE_UNREACHABLE),
    (NodeConditionType::MemoryPressure, ConditionStatus::True, TAINT_NODE_MEMORY_PRESSURE),
    (NodeConditionType::DiskPressure, ConditionStatus::True, TAINT_NODE_DISK_PRESSURE),
    (NodeConditionType::PidPressure, ConditionStatus::True, TAINT_NODE_PID_PRESSURE),
    (NodeConditionType::NetworkUnavailable, ConditionStatus::True, TAINT_NODE_NETWORK_UNAVAILABLE),
];

/// Whether an unhealthy node may get its `NoExecute` taint now, which evicts its pods. The nodes of a zone get the
/// taint one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EvictionPermission {
    /// The node may be tainted `NoExecute` now.
    Now,
    /// The node may not be tainted until its zone permits it, because other nodes are tainted first or too many nodes
    /// are down. If the node already has a `NoExecute` taint, the taint may still change from `not-ready` to
    /// `unreachable`, or back.
    Waiting,
    /// No node of the cluster may be tainted `NoExecute`, because no node is ready.
    Suspended,
}

/// Returns the taints that a node should have. `None` if the node has these taints already.
///
/// Rule: each unhealthy condition, and a cordon, adds its own `NoSchedule` taint. The taint is removed when its cause
/// has ended. A node whose condition `Ready` is False or Unknown also gets a `NoExecute` taint, when the eviction rate
/// of its zone permits it. Taints that this controller does not manage stay. Upstream: `doNoScheduleTaintingPass`,
/// `processTaintBaseEviction`.
pub(super) fn desired_taints(node: &Node, permission: EvictionPermission, now: Time) -> Option<Vec<Taint>> {
    let mut desired: Vec<Taint> = Vec::new();
    for taint in &node.taints {
        if is_retained(node, taint, permission) {
            desired.push(taint.clone());
        }
    }
    let has = |desired: &[Taint], key: &str, effect: &str| {
        desired.iter().any(|it| *it.key == *key && *it.effect == *effect)
    };
    let added = Some(Text::from(now.to_rfc3339()));
    for key in no_schedule_taint_keys(node) {
        if !has(&desired, key, NO_SCHEDULE) {
            desired.push(new_taint(key, NO_SCHEDULE, added.clone()));
        }
    }
    if let Some(key) = health_taint_key(node).filter(|it| !has(&desired, it, NO_EXECUTE)) {
        // `tolerationSeconds` count from the first health taint: another one does not extend them.
        let before = node.no_execute_taints().find(|it| is_health_taint(&it.key));
        let is_due = match permission {
            EvictionPermission::Now => true,
            EvictionPermission::Waiting => before.is_some(),
            EvictionPermission::Suspended => false,
        };
        if is_due {
            desired.push(new_taint(key, NO_EXECUTE, before.and_then(|it| it.added.clone()).or(added)));
        }
    }
    (desired != node.taints).then_some(desired)
}

/// Whether the condition `Ready` of the node is False or Unknown, and the node has no `NoExecute` taint for that yet.
pub(super) fn needs_no_execute_taint(node: &Node) -> bool {
    health_taint_key(node).is_some() && !node.no_execute_taints().any(|it| is_health_taint(&it.key))
}

/// Whether `key` is the key of a taint that this controller adds for the condition `Ready`: `not-ready` or
/// `unreachable`.
pub(super) fn is_health_taint(key: &str) -> bool {
    matches!(key, TAINT_NODE_NOT_READY | TAINT_NODE_UNREACHABLE)
}

/// Whether an existing taint of a node stays: it is one of the taints that the node should have, or this controller
/// does not manage it.
fn is_retained(node: &Node, taint: &Taint, permission: EvictionPermission) -> bool {
    match &*taint.effect {
        NO_SCHEDULE => {
            !is_managed_taint_key(&taint.key) || no_schedule_taint_keys(node).any(|it| *it == *taint.key)
        }
        NO_EXECUTE if is_health_taint(&taint.key) => match (node.ready(), health_taint_key(node)) {
            _ if permission == EvictionPermission::Suspended => false,
            // The node has no condition `Ready` yet.
            (None, _) => true,
            (_, key) => key == Some(&*taint.key),
        },
        _ => true,
    }
}

/// Returns the keys of the `NoSchedule` taints that a node gets for its conditions and for a cordon.
fn no_schedule_taint_keys(node: &Node) -> impl Iterator<Item = &'static str> {
    let matching =
        TAINT_BY_CONDITION.iter().filter(|(it, status, _)| node.conditions.get(*it) == Some(*status));
    matching.map(|(_, _, key)| *key).chain(node.unschedulable.then_some(TAINT_NODE_UNSCHEDULABLE))
}

/// Whether this controller adds and removes taints with this key.
fn is_managed_taint_key(key: &str) -> bool {
    key == TAINT_NODE_UNSCHEDULABLE || TAINT_BY_CONDITION.iter().any(|(_, _, it)| *it == key)
}

/// Returns the key of the `NoExecute` taint that a node gets for its condition `Ready`. `None` if the node is ready, or
/// has no condition `Ready`.
fn health_taint_key(node: &Node) -> Option<&'static str> {
    match node.ready()? {
        ConditionStatus::True => None,
        ConditionStatus::False => Some(TAINT_NODE_NOT_READY),
        ConditionStatus::Unknown => Some(TAINT_NODE_UNREACHABLE),
    }
}

/// Returns a taint without a value. `added` is its `timeAdded`.
fn new_taint(key: &str, effect: &str, added: Option<Text>) -> Taint {
    Taint { key: key.into(), value: "".into(), effect: effect.into(), added }
}
