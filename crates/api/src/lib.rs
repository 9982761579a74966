#![no_std]
//! Types that the engine, the server, the control crate and the agent have in common. This crate has no IO and no
//! clock, and makes no decisions about the cluster.
//!
//! - [`core_v1`], [`apps_v1`], [`coordination_v1`], [`discovery_v1`], [`policy_v1`], [`meta_v1`]: the objects of each
//!   API group, with the fields that Muster reads, borrowed from the JSON text;
//! - [`muster_v1alpha1`]: the kinds of Muster itself, owned, with their defaults and validation;
//! - [`json`], [`text`], [`interner`]: borrowed, reference-counted and interned strings;
//! - [`object_key`]: the key of an object: its namespace and name;
//! - [`labels`], [`taints`]: labels and selectors, taints and tolerations;
//! - [`well_known`]: names with a fixed meaning in Kubernetes or Muster, such as labels, annotations, namespaces and
//!   users;
//! - [`names`], [`image_reference`]: the syntax of names, label keys and image references;
//! - [`cidr`]: ranges of IP addresses;
//! - [`query_parameters`]: the values of query parameters;
//! - [`quantity`], [`resources`], [`qos`]: quantities, the resources of a pod, and its QoS class;
//! - [`defaulting`]: the defaults of pods and pod templates;
//! - [`backoff`]: exponential backoff;
//! - [`time`], [`go_json`], [`metrics_exposition`]: timestamps, JSON as Go writes it, and the formats of `/metrics`.

extern crate alloc;

/// API types of DaemonSets and ControllerRevisions.
pub mod apps_v1;
/// API types of Leases.
pub mod coordination_v1;
/// API types of pods, nodes, Services and Endpoints.
pub mod core_v1;
/// API types of EndpointSlices.
pub mod discovery_v1;
/// API types of the metadata of all objects, and of label selectors.
pub mod meta_v1;
/// The kinds of Muster: RolloutPolicy, ClusterRolloutPolicy and DaemonRollout.
pub mod muster_v1alpha1;
/// API types of PodDisruptionBudgets.
pub mod policy_v1;

/// Interning: equal strings and lists are stored once.
pub mod interner;
/// Strings, maps and other values that are borrowed from JSON text.
pub mod json;
/// Reference-counted strings.
pub mod text;

/// Ranges of IP addresses in CIDR notation.
pub mod cidr;
/// References to container images, and the default pull policy.
pub mod image_reference;
/// Labels and label selectors.
pub mod labels;
/// Syntax of names, label keys and similar strings.
pub mod names;
/// The key of an object: its namespace and name.
pub mod object_key;
/// Values of query parameters.
pub mod query_parameters;
/// Taints and tolerations, and the function that matches them.
pub mod taints;
/// Names of labels, taints, annotations and conditions with a fixed meaning in Kubernetes or Muster.
pub mod well_known;

/// Defaults of pods and pod templates.
pub mod defaulting;
/// The quality of service class of a pod.
pub mod qos;
/// Resource quantities such as `100m`.
pub mod quantity;
/// Requests and limits of a pod.
pub mod resources;

/// Exponential backoff between repeated failures.
pub mod backoff;
/// Formats JSON as Go's `encoding/json` does.
pub mod go_json;
/// The text formats of `/metrics`: OpenMetrics and the Prometheus text format.
pub mod metrics_exposition;
/// Encodes certificates in PEM.
pub mod pem;
/// Timestamps and durations.
pub mod time;
