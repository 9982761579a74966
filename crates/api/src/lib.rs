#![no_std]
//! The shared types of engine, server, control and agent. No IO, no clock, no decisions about the cluster.
//!
//! - [`text`], [`interner`]: shared strings; [`meta`]: object metadata;
//! - [`labels`], [`taints`]: labels and requirements on them, taints and tolerations;
//! - [`quantity`], [`resources`], [`qos`]: quantities, the resources of a pod, and its QoS class;
//! - [`time`], [`go_json`], [`metrics_exposition`]: timestamps, JSON as Go writes it, the formats of `/metrics`.

extern crate alloc;

pub mod interner;
pub mod text;

pub mod labels;
pub mod meta;
pub mod taints;

pub mod qos;
pub mod quantity;
pub mod resources;

pub mod go_json;
pub mod metrics_exposition;
pub mod time;
