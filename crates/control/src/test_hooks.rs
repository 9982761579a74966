//! Lets tests observe the DaemonSet controller: a test can compare each plan with the cache from which it was made.

use std::sync::Arc;

use muster_api::time::Time;
use muster_engine::daemonset::execution::{Call, Response};
use muster_engine::daemonset::facts::Set;
use muster_engine::daemonset::plan::Plan;
use muster_engine::daemonset::planner::Planner;

/// Called for each observation in order. It runs in the controller's task, so it must return quickly.
pub type PlanObserver = Arc<dyn Fn(Observation<'_>) + Send + Sync>;

/// One step of the controller's work on one DaemonSet.
#[derive(Debug)]
pub enum Observation<'a> {
    /// A plan was made; it may be empty.
    Planned { planner: &'a Planner, plan: &'a Plan, now: Time },
    /// A call of the plan is sent.
    Called { set: &'a Arc<Set>, call: &'a Call },
    /// The outcome of a call is about to be applied.
    Answered { set: &'a Arc<Set>, call: &'a Call, outcome: &'a Response },
    /// All calls of the plan are done.
    Done { set: &'a Arc<Set> },
}
