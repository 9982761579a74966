//! The DaemonSet controller: decides which node gets a pod, of which revision, and when.
//!
//! ```text
//! API objects -> facts -> index -> decision -> plan -> execution -> manifest -> API objects
//!                           ^         |                    |
//!                           |     placement        outcome of each call
//!                           +------ expectations <---------+
//! ```
//!
//! - [`facts`]: the fields of API objects that rules read, decoded once;
//! - `index`: stores the facts by key, owner, node and label, applies events and returns the keys to reconcile;
//! - [`placement`]: whether a node should run, keep or lose a pod;
//! - `cell`: the state of one DaemonSet on one node;
//! - `decision`: makes the plan of one DaemonSet from its cells;
//! - [`plan`]: all writes for one DaemonSet, as a value;
//! - [`planner`]: applies events and makes plans from the index and the in-memory state;
//! - [`execution`]: returns the next call, given a plan and the responses so far;
//! - `expectations`: prevents a new plan until the watches have delivered the controller's own writes;
//! - `memory`: the state that is in no API object: backoff, retries, status throttling, progress of the rollout;
//! - [`manifest`]: builds request bodies;
//! - [`why`]: all reasons that verdicts, plans and explanations give;
//! - `controller`: implements [`Controller`](crate::controller::Controller) with these modules.
//!
//! Lists are consistent reads, never from the API server's watch cache, because a new leader must see what the last
//! leader wrote. Watches request bookmarks. A bookmark shows that a write which changed nothing will not be delivered.
//! A leader that finds another holder in its lease exits, even if that holder no longer exists.

pub mod facts;

mod expectations;
mod index;
mod memory;
mod objects;

pub(crate) mod cell;
mod decision;
pub mod placement;
pub(crate) mod revision;
mod rollout;
pub(crate) mod roster;
pub(crate) mod status;

mod controller;
pub mod execution;
pub mod manifest;
mod node_state;
pub mod plan;
pub mod planner;
pub mod progressive;
pub mod template_equivalence;

pub mod why;

pub use controller::{DaemonSetController, SetCall, event_about};
pub(crate) use decision::*;
pub use node_state::{NodeExplanation, NodeState, RolloutSummary, SetMemory};
pub use rollout::RolloutDeletion;
pub(crate) use rollout::rollout_budget;
pub use roster::FailedPodBackoff;
pub use status::check_availability;
