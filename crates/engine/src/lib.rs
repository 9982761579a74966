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

mod hash_ordered_map;

pub mod controller;
pub mod daemonset;
pub mod disruption;
pub mod endpoints;
pub mod garbage_collector;
pub mod node_lifecycle;
pub mod scheduler;

pub mod explain;
pub mod preview;

pub mod kubelet;
pub mod service_proxy;

pub mod scenario;
