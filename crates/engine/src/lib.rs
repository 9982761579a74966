#![no_std]
//! All decisions of Muster, as functions without clock, IO and unordered collections. Their input is facts (the fields
//! of API objects that a controller reads, decoded); their output is API calls.
//!
//! - [`controller`]: the [`Controller`](controller::Controller) trait, the work queue, retries, event correlation and
//!   leader election, which all controllers use;
//! - [`daemonset`]: the DaemonSet controller;
//! - [`scheduler`], [`node_lifecycle`], [`garbage_collector`], [`disruption`], [`endpoints`]: the other controllers;
//! - [`explain`] and [`preview`]: `muster explain` and `muster plan`, from the rules of the DaemonSet controller and of
//!   the scheduler;
//! - [`kubelet`]: the rules of the node agent;
//! - [`service_proxy`]: nftables rules and DNS records for Services;
//! - [`scenario`]: a cluster as text, for tests and for the simulator.

extern crate alloc;

/// A map with a deterministic order that is fast for many long keys.
mod hash_ordered_map;

/// The parts that all controllers have in common.
pub mod controller;
/// The DaemonSet controller.
pub mod daemonset;
/// The disruption controller: the status of PodDisruptionBudgets.
pub mod disruption;
/// The endpoints controllers: Endpoints and EndpointSlices.
pub mod endpoints;
/// The garbage collector and the pod garbage collector.
pub mod garbage_collector;
/// The node lifecycle controller: heartbeats, taints and evictions.
pub mod node_lifecycle;
/// The scheduler.
pub mod scheduler;

/// The explanation that `muster explain` prints.
pub mod explain;
/// The rollout preview that `muster plan` prints.
pub mod preview;

/// The rules of the node agent.
pub mod kubelet;
/// nftables rules and DNS records for Services.
pub mod service_proxy;

/// A cluster as text, for tests and for the simulator.
pub mod scenario;
