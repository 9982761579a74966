#![no_std]
//! Every decision Muster takes: facts in, plans out. No clock, no IO, nothing unordered.
//!
//! ```text
//! API objects -> facts -> cache -> daemonset::decide -> plan -> act -> manifest -> API objects
//!                           ^            |                       |
//!                           |       placement               outcome of each call
//!                           +------------ gate <-----------------+
//! ```
//!
//! Eleven nouns, and nothing else is a concept here:
//! - **facts**: API objects parsed once into small values: the only way in;
//! - **verdict**: what a template says to a node: run, keep, leave;
//! - **why**: every reason the engine can give;
//! - **plan**: everything to be written for one set now;
//! - **act**: a plan and the outcome of each call give the next call;
//! - **cache**: facts by index; an event in, the keys to look at out;
//! - **key**: namespace and name of a set;
//! - **gate**: no plan before the set's own writes came back;
//! - **revision**: a recorded template;
//! - **lease**: which replica leads, and until when;
//! - **scenario**: a world as text.
//!
//! # How a shell drives it
//!
//! A shell is a loop with a clock and a client. It lists and watches four kinds and hands each line to
//! [`facts::watched`], the result to [`cache::Cache::apply`], and keeps the keys it gets back in a queue without
//! duplicates. For each key, one at a time per key:
//!
//! 1. [`cache::Cache::look`] gives a [`plan::Plan`]. It is idle: arm a timer for `wake_at`, done. (`relist`: list
//!    every kind anew.)
//! 2. [`act::Act::new`] takes the plan. [`act::Act::next`] gives calls to make, side by side as they come; each
//!    outcome goes back with [`act::Act::outcome`], until it says `Done`. Bodies come from [`manifest`].
//! 3. [`cache::Cache::done`] takes the report; its events are recorded; the key is looked at again at once.
//!
//! Every list is read from the store and not from a cache of the API server's: a new leader must see what the last one
//! did. Watches ask for bookmarks and hand them to [`cache::Cache::bookmark`]. A process that led and finds another
//! name in the lease has been away too long, whether or not that other one is gone again: it ends.

extern crate alloc;

pub mod act;
mod attempt;
pub mod cache;
pub mod cluster_identity;
pub mod daemonset;
pub mod disruption;
pub mod downward;
pub mod endpoints;
pub mod events;
pub mod eviction;
pub mod explain;
pub mod exposition;
pub mod facts;
pub mod forecast;
pub mod garbage;
mod gate;
pub mod go_json;
pub mod image_garbage;
pub mod lease;
pub mod loops;
pub mod manifest;
pub mod meaning;
pub mod mutant;
pub mod node_lifecycle;
pub mod node_status;
pub mod placement;
pub mod plan;
pub mod pod;
pub mod quantity;
pub mod resources;
pub mod scenario;
pub mod scheduler;
pub mod services;
mod spread;
#[cfg(test)]
mod stage;
pub mod static_pod;
pub mod time;
pub mod why;
