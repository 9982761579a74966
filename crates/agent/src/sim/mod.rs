//! Simulated nodes: any number in one process, with one watch of nodes and one of pods.
//!
//! `behaviour` lists the configurable behaviour; `wire` decodes watch events; `pod` drives the kubelet rules of
//! the engine over the fake `runtime`; `node` builds the Node object; `fleet` makes the API calls, timed by
//! `clock`.
//!
//! A pod's state can be restored from its status, so a restarted process continues where the last one stopped.

mod behaviour;
mod clock;
mod fleet;
mod node;
mod pod;
mod runtime;
mod wire;

#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod tests;

pub use behaviour::{
    ContainerTimings, FAULTS_ANNOTATION, FLEET_LABEL, IMAGE_NAME_BEHAVIOURS, NodeFault, parse_duration,
};
pub use fleet::{Fleet, FleetOptions, add_node, free_numbers, remove_fleet};
pub use node::{NODES_MAX, NewNode};
