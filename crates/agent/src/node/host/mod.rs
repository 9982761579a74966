//! The Node object and the machine: registration, heartbeat, status, stats, eviction and shutdown.

/// Pods that exceed their ephemeral storage limits.
mod ephemeral_storage;
/// Eviction of pods, image garbage collection and log rotation.
mod eviction_manager;
/// Rotation of container logs.
mod log_rotation;
/// Measurements of the machine.
mod measure;
/// Registration, Lease and status of the Node.
mod node_status;
/// Termination of the node's pods when the node stops.
mod shutdown;
/// Resource usage, as in `/stats/summary`.
pub mod stats;

use std::sync::Arc;

use muster_api::object_key::ObjectKey;
use muster_api::quantity::Quantity;
use muster_api::resources::ResourceQuantities;
use muster_engine::controller::ObjectReference;
use muster_engine::kubelet::eviction::Signal;
use muster_engine::kubelet::node_status as rules;

pub use self::node_status::{NodeState, NodeStop};
pub use self::shutdown::{ShutdownGrace, terminate_pods};
use super::{Config, NodeAgent};
use crate::runtime::Runtime;

/// Runs the node status manager and the eviction manager and never returns.
pub(super) async fn run<R: Runtime>(node: &Arc<NodeAgent<R>>) {
    tokio::join!(node_status::run(node), eviction_manager::run(node));
}

/// Returns the allocatable resources of the node: its capacity minus [`reserved_resources`].
pub(super) fn allocatable(config: &Config) -> ResourceQuantities {
    let capacity = measure::node_capacity(&config.root_dir, config.pods_max);
    rules::allocatable(&capacity, &reserved_resources(config, &capacity))
}

/// Returns the resources that pods cannot use: the system-reserved resources plus the hard eviction thresholds of
/// memory and of ephemeral storage.
fn reserved_resources(config: &Config, capacity: &ResourceQuantities) -> ResourceQuantities {
    let mut reserved = config.eviction_and_gc.system_reserved.clone();
    for (resource, signal) in
        [("memory", Signal::MemoryAvailable), ("ephemeral-storage", Signal::NodefsAvailable)]
    {
        let capacity = capacity.get(resource).map_or(0, |it| i64::try_from(it.units()).unwrap_or(i64::MAX));
        let threshold = Quantity::from_bytes(
            config.eviction_and_gc.eviction_thresholds.reserved_amount(signal, capacity),
        );
        let sum = reserved.entry(resource.to_owned()).or_insert(Quantity::ZERO);
        *sum = sum.plus(threshold);
    }
    reserved
}

/// Returns the object reference for Events about the node. Its UID is the node's name, as in the kubelet's Events,
/// because clients search for it.
fn node_reference(name: &str) -> ObjectReference {
    ObjectReference::new("v1", "Node", ObjectKey::new("", name), name.into(), 0)
}
