//! The DaemonSet controller: decides which node gets a pod, of which revision, and when.
//!
//! ```text
//! API objects -> facts -> cache -> decision -> plan -> execution -> manifest -> API objects
//!                           ^         |                    |
//!                           |     placement        outcome of each call
//!                           +------ expectations <---------+
//! ```
//!
//! The main modules are:
//!
//! - [`facts`]: the fields of API objects that rules read, decoded once;
//! - `controller_cache`: stores the facts by key, owner and node, applies events and returns the keys to reconcile;
//! - [`placement`]: whether a node should run, keep or lose a pod;
//! - `cell`: the state of one DaemonSet on one node;
//! - `decision`: makes the plan of one DaemonSet from its cells;
//! - [`plan`]: all writes for one DaemonSet, as a value;
//! - [`planner`]: applies events and makes plans from the cache and the in-memory state;
//! - `refused_evictions`: when a refused eviction is tried again;
//! - [`execution`]: returns the next call, given a plan and the responses so far;
//! - `expectations`: prevents a new plan until the watches have delivered the controller's own writes;
//! - `in_memory_state`: the state that no API object stores, such as backoffs, retries and the progress of the rollout;
//! - [`manifest`]: builds request bodies;
//! - [`why`]: all reasons that verdicts, plans and explanations give;
//! - `controller`: implements [`Controller`](crate::controller::Controller) with these modules.
//!
//! Lists are consistent reads: they show everything that was written before the list, because a new leader must see
//! what the last leader wrote. Watches request bookmarks. A bookmark shows that the watch has delivered all events up
//! to the bookmark's resource version, so the controller does not wait for events of writes that changed nothing. A
//! leader that finds the name of another holder in the Lease exits, even if that holder no longer runs.

/// The fields of API objects that rules read, decoded.
pub mod facts;

/// The controller's cache: the facts about all objects, and the state of each DaemonSet.
mod controller_cache;
/// Delays plans until the watches have delivered the controller's own writes.
mod expectations;
/// In-memory state of the controller about one DaemonSet, which no API object stores.
mod in_memory_state;
/// The controller's cache of all watched objects except DaemonSets, by key and by owner.
mod object_cache;

/// Makes the plan of one DaemonSet in assist mode, in which the controller runs beside upstream's DaemonSet controller.
mod assist_plan;
/// The state of one DaemonSet on one node.
pub(crate) mod cell;
/// Determines from the metadata of a DaemonSet whether this controller runs in assist mode.
mod controller_mode;
/// Makes the plan of one DaemonSet from its cells.
mod decision;
/// The rolling update of one DaemonSet on one node.
mod node_rollout;
/// Decides whether a node should run, keep or lose a pod.
pub mod placement;
/// Determines which revision of a DaemonSet is current, and which revisions to write and delete.
pub(crate) mod revision;
/// The roster of a node: which pods of one DaemonSet on the node are kept and deleted, and whether one is created.
pub(crate) mod roster;
/// The status of a DaemonSet: availability of its pods, counts and conditions.
pub(crate) mod status;

/// Implements the trait `Controller` with the other modules.
mod controller;
/// Executes a plan call by call.
pub mod execution;
/// Builds the API objects, patches and requests that the DaemonSet controller sends.
pub mod manifest;
/// The state of one DaemonSet on every node, for `muster explain`.
mod node_state;
/// The plan of one DaemonSet: all writes to make now.
pub mod plan;
/// Makes plans from the cache and the in-memory state.
pub mod planner;
/// Progressive rollouts: they update the nodes in steps, with checks and rollback.
pub mod progressive;
/// Adds the writes of a progressive rollout to the plan of its DaemonSet.
mod progressive_plan;
/// Remembers the evictions that the API server refused, and decides when to retry each.
mod refused_evictions;
/// Determines whether two pod templates create the same pods.
pub mod template_equivalence;

/// The reasons that verdicts, plans and explanations give.
pub mod why;

pub use controller::{DaemonSetCall, DaemonSetController, event_about};
pub use controller_mode::{ControllerMode, StatusWriter, status_writers};
pub(crate) use decision::*;
pub use node_rollout::RolloutDeletion;
pub(crate) use node_rollout::{ZERO_BUDGET_MESSAGE, is_budget_always_zero, rollout_budget};
pub use node_state::{
    NodeExplanation, NodeSummary, ProgressiveRolloutSummary, RolloutSummary, SetInMemoryState,
};
pub use progressive::rollout::NOT_ON_DELETE_MESSAGE;
pub use status::check_availability;
