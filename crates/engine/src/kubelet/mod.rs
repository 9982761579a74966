//! The rules of the node agent, about the pods on one node and about the node itself.
//!
//! - [`pod`]: admission, containers, probes, restarts, status and termination of one pod;
//! - [`eviction`]: which pods are evicted because of node pressure or their own storage limits;
//! - [`image_gc`]: which unused images are removed;
//! - [`node_status`]: the conditions, capacity and allocatable resources that a node reports;
//! - [`static_pod`]: pods from files on the node, and their mirror pods;
//! - [`downward_api`]: fields and resources of a pod as environment variables and files;
//! - [`cluster_identity`]: whether the API server belongs to the cluster that the node joined;
//! - [`wall_clock`]: conversion between node time, which all waits use, and wall-clock time;
//! - [`fake_runtime`]: a container runtime without processes, for simulated nodes and for the simulator.

/// Decides whether the API server belongs to the cluster that the node joined.
pub mod cluster_identity;
/// The downward API: fields and resources of a pod as environment variables and files.
pub mod downward_api;
/// Eviction of pods from a node under resource pressure.
pub mod eviction;
/// A container runtime without processes, for simulated nodes and for the simulator.
pub mod fake_runtime;
/// Image garbage collection: chooses the unused images to delete.
pub mod image_gc;
/// Computes the Node object, its status and the Lease of a node.
pub mod node_status;
/// The state machine of one pod on its node.
pub mod pod;
/// Static pods and mirror pods.
pub mod static_pod;
/// Conversion between node time and wall-clock time.
pub mod wall_clock;
