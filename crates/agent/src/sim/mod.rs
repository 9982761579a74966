//! Simulated nodes. One process simulates many nodes, with one watch of nodes and one watch of pods.
//!
//! `behaviour` reads the behaviour that annotations and image names configure. `wire` decodes watch events. `pod`
//! drives the kubelet rules of the engine with the fake `runtime`. `node` builds the Node object. `fleet` makes the API
//! calls, timed by `clock`.
//!
//! The state of a pod can be restored from its status, so a restarted process continues where the previous process
//! stopped.

/// Behaviour that annotations and image names configure.
mod behaviour;
/// The fleet's clock.
mod clock;
/// The nodes, pods, timers and API calls of a fleet.
mod fleet;
/// The Node object of a simulated node.
mod node;
/// A simulated pod.
mod pod;
/// The fake container runtime.
mod runtime;
/// Decoding of watch events.
mod wire;

#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod tests;

pub use behaviour::{
    ContainerTimings, FAULTS_ANNOTATION, FLEET_LABEL, IMAGE_NAME_BEHAVIOURS, NodeFault, parse_duration,
};
pub use fleet::{Fleet, FleetOptions, free_node_numbers, register_node, remove_fleet};
pub use node::{NODES_MAX, NewNode};
