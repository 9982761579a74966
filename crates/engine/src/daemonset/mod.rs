//! The DaemonSet controller: which node gets a pod, of which revision, and when.
//!
//! ```text
//! API objects -> facts -> cache -> decision -> plan -> execution -> manifest -> API objects
//!                           ^         |                    |
//!                           |     placement        outcome of each call
//!                           +------ expectations <---------+
//! ```
//!
//! - [`facts`]: API objects, parsed once into small values;
//! - [`cache`]: the facts, indexed; an event goes in, the keys to reconcile come out;
//! - [`placement`]: whether a node should run, keep or lose a pod;
//! - [`decide`]: what has to be done for one DaemonSet now, given its cells (one per node);
//! - [`plan`]: all writes for one DaemonSet, as a value;
//! - [`execution`]: the next call, given a plan and the outcomes of the calls so far;
//! - `expectations`: no new plan before the watch has returned the controller's own writes;
//! - [`manifest`]: request bodies;
//! - [`why`]: every reason that the engine can give;
//! - [`explain`] and [`preview`]: `muster explain` and `muster plan`, from the same rules.
//!
//! # Driving it
//!
//! The caller owns the clock and the API client. It lists and watches four kinds, passes each watch line to
//! [`facts::watched`] and the result to [`cache::Cache::apply`], and keeps the returned keys in a queue without
//! duplicates. For each key, one at a time per key:
//!
//! 1. [`cache::Cache::look`] returns a [`plan::Plan`]. If it is idle, the caller sets a timer for `wake_at`. If it asks
//!    for `relist`, the caller lists every kind again.
//! 2. [`execution::Act::new`] takes the plan. [`execution::Act::next`] returns calls, which may run concurrently; each
//!    outcome goes to [`execution::Act::outcome`], until it returns `Done`. Request bodies come from [`manifest`].
//! 3. [`cache::Cache::done`] takes the report. The caller records its events and reconciles the key again.
//!
//! Lists are consistent reads, never from the API server's watch cache: a new leader must see what the last leader
//! wrote. Watches ask for bookmarks and pass them to [`cache::Cache::bookmark`]. A leader that finds another holder in
//! its lease exits, even if that holder is gone again.

pub mod facts;

pub mod cache;
mod expectations;

pub(crate) mod cell;
mod decision;
pub mod placement;
pub(crate) mod revision;
mod rollout;
pub(crate) mod roster;
pub(crate) mod status;

pub mod execution;
pub mod manifest;
pub mod plan;
pub mod template_equivalence;

pub mod explain;
pub mod preview;
pub mod why;

pub(crate) use decision::*;
pub use rollout::Taken;
pub(crate) use rollout::budget;
pub use roster::Backoff;
pub use status::available;
