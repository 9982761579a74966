//! Lets tests observe the DaemonSet controller. A test can compare each plan with the cache from which the plan was
//! made.

use std::sync::Arc;

use muster_api::time::Time;
use muster_engine::daemonset::execution::{PlannedCall, Response};
use muster_engine::daemonset::facts::Set;
use muster_engine::daemonset::plan::Plan;
use muster_engine::daemonset::planner::Planner;

/// A callback with which a test follows the controller's work. It is called for each step in order. It runs in the
/// controller's task, so it must return quickly.
pub type PlanObserver = Arc<dyn Fn(PlanProgress<'_>) + Send + Sync>;

/// A step of the controller's work on one DaemonSet: a plan, a call, its response, or the end of the plan.
#[derive(Debug)]
pub enum PlanProgress<'a> {
    /// A plan was made. It may be empty.
    Planned { planner: &'a Planner, plan: &'a Plan, now: Time },
    /// A call of the plan is sent.
    Called { set: &'a Arc<Set>, call: &'a PlannedCall },
    /// The outcome of a call is about to be applied.
    Answered { set: &'a Arc<Set>, call: &'a PlannedCall, outcome: &'a Response },
    /// All calls of the plan are done.
    Done { set: &'a Arc<Set> },
}
