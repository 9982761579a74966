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

pub mod apps_v1;
pub mod coordination_v1;
pub mod core_v1;
pub mod discovery_v1;
pub mod meta_v1;
pub mod muster_v1alpha1;
pub mod policy_v1;

pub mod interner;
pub mod json;
pub mod text;

pub mod labels;
pub mod meta;
pub mod names;
pub mod taints;
pub mod well_known;

pub mod qos;
pub mod quantity;
pub mod resources;

pub mod go_json;
pub mod metrics_exposition;
pub mod time;
