#![no_std]
//! Types that the engine, the server, the control crate and the agent have in common. This crate has no IO and no
//! clock, and makes no decisions about the cluster.
//!
//! - [`core_v1`], [`apps_v1`], [`coordination_v1`], [`discovery_v1`], [`policy_v1`], [`meta_v1`]: the objects of each
//!   API group, with the fields that rules read, borrowed from the JSON text;
//! - [`muster_v1alpha1`]: the kinds of Muster itself, owned, with their defaults and validation;
//! - [`json`], [`text`], [`interner`]: borrowed, reference-counted and interned strings;
//! - [`meta`]: object keys;
//! - [`labels`], [`taints`]: labels and selectors, taints and tolerations;
//! - [`well_known`]: names of labels, taints, annotations and conditions to which Kubernetes gives a meaning;
//! - [`names`]: the syntax of names and label keys;
//! - [`quantity`], [`resources`], [`qos`]: quantities, the resources of a pod, and its QoS class;
//! - [`time`], [`go_json`], [`metrics_exposition`]: timestamps, JSON as Go writes it, and the formats of `/metrics`.

extern crate alloc;

/// DaemonSets and ControllerRevisions.
pub mod apps_v1;
/// Leases.
pub mod coordination_v1;
/// Pods, nodes, Services and Endpoints.
pub mod core_v1;
/// EndpointSlices.
pub mod discovery_v1;
/// Metadata of all objects, and label selectors.
pub mod meta_v1;
/// The kinds of Muster: RolloutPolicy, ClusterRolloutPolicy and DaemonRollout.
pub mod muster_v1alpha1;
/// PodDisruptionBudgets.
pub mod policy_v1;

/// Interning: equal strings and lists are stored once.
pub mod interner;
/// Strings, maps and other values that are borrowed from JSON text.
pub mod json;
/// Reference-counted strings.
pub mod text;

/// Labels and label selectors.
pub mod labels;
/// Namespace and name of an object.
pub mod meta;
/// Syntax of names, label keys and similar strings.
pub mod names;
/// Taints and tolerations.
pub mod taints;
/// Names of labels, taints, annotations and conditions to which Kubernetes gives a meaning.
pub mod well_known;

/// The quality of service class of a pod.
pub mod qos;
/// Resource quantities such as `100m`.
pub mod quantity;
/// Requests and limits of a pod.
pub mod resources;

/// JSON text as Go writes it.
pub mod go_json;
/// The formats of `/metrics`.
pub mod metrics_exposition;
/// Timestamps and durations.
pub mod time;
