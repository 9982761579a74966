#![no_std]
//! All decisions of Muster. The code of this crate reads no clock, does no IO and uses no unordered collections. Its
//! input is facts (the fields of API objects that a controller reads, decoded) and the time; its output is API calls.
//!
//! - [`controller`]: the [`Controller`](controller::Controller) trait, the work queue, retries, event correlation and
//!   leader election, which all controllers use;
//! - [`daemonset`]: the DaemonSet controller;
//! - [`scheduler`], [`node_lifecycle`], [`garbage_collector`], [`disruption`], [`endpoints`], [`rollout_policy`]: the
//!   other controllers;
//! - [`explain`] and [`preview`]: `muster explain` and `muster plan`, which evaluate the rules of the DaemonSet
//!   controller and of the scheduler;
//! - [`kubelet`]: the rules of the node agent;
//! - [`service_proxy`]: nftables rules and DNS records for Services;
//! - [`scenario`]: a cluster as text, for tests and for the simulator.

extern crate alloc;

/// A map with a deterministic order and fast lookups of long keys.
mod hash_ordered_map;

/// What all controllers share: the trait `Controller`, the work queue, retries, event correlation and leader election.
pub mod controller;
/// The DaemonSet controller: runs one pod of each DaemonSet on every matching node.
pub mod daemonset;
/// The disruption controller: updates the status of PodDisruptionBudgets.
pub mod disruption;
/// The endpoints controller: writes the Endpoints and EndpointSlices of Services.
pub mod endpoints;
/// The garbage collector and the pod garbage collector.
pub mod garbage_collector;
/// The node lifecycle controller: sets Ready=Unknown on nodes without heartbeats, taints nodes, and evicts pods.
pub mod node_lifecycle;
/// The rollout policy controller: writes the status of RolloutPolicies and ClusterRolloutPolicies.
pub mod rollout_policy;
/// The scheduler: binds pending pods to nodes.
pub mod scheduler;

/// `muster explain`: why each node runs or does not run a DaemonSet.
pub mod explain;
/// `muster plan`: a preview of the rollout of a changed DaemonSet.
pub mod preview;

/// The rules of the node agent (kubelet), such as pod lifecycle, probes and eviction.
pub mod kubelet;
/// The service proxy: computes nftables rules and DNS records for Services.
pub mod service_proxy;

/// The state of a cluster as text, parsed and printed, for tests and for the simulator.
pub mod scenario;
