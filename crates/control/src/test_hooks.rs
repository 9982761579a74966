//! Lets tests observe the DaemonSet controller. A test can compare each plan with the cache from which the plan was
//! made.

use std::sync::Arc;

use muster_api::time::Time;
use muster_engine::daemonset::execution::{Call, Response};
use muster_engine::daemonset::facts::Set;
use muster_engine::daemonset::plan::Plan;
use muster_engine::daemonset::planner::Planner;

/// Callback of a test, called for each step of a plan in order. It runs in the controller's task and must return
/// quickly.
pub type PlanObserver = Arc<dyn Fn(PlanProgress<'_>) + Send + Sync>;

/// A step of the controller's work on one DaemonSet, reported to a [`PlanObserver`].
#[derive(Debug)]
pub enum PlanProgress<'a> {
    /// A plan was made. It may be empty.
    Planned { planner: &'a Planner, plan: &'a Plan, now: Time },
    /// A call of the plan is sent.
    Called { set: &'a Arc<Set>, call: &'a Call },
    /// The outcome of a call is about to be applied.
    Answered { set: &'a Arc<Set>, call: &'a Call, outcome: &'a Response },
    /// All calls of the plan are done.
    Done { set: &'a Arc<Set> },
}
