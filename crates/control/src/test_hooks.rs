//! Observes the controller in tests. Whether a plan was right depends on the index that it was made from, which the API
//! server cannot show.

use std::sync::Arc;

use muster_api::time::Time;
use muster_engine::daemonset::execution::{Call, Response};
use muster_engine::daemonset::facts::Set;
use muster_engine::daemonset::plan::Plan;
use muster_engine::daemonset::planner::Planner;

/// Called for each observation in order; must return quickly.
pub type PlanObserver = Arc<dyn Fn(Observation<'_>) + Send + Sync>;

/// One step of the controller's work on one DaemonSet.
#[derive(Debug)]
pub enum Observation<'a> {
    /// A plan was made; it may be empty.
    Planned {
        planner: &'a Planner,
        plan: &'a Plan,
        now: Time,
    },
    /// A call of the plan is sent.
    Called {
        set: &'a Arc<Set>,
        call: &'a Call,
    },
    Answered {
        set: &'a Arc<Set>,
        call: &'a Call,
        outcome: &'a Response,
    },
    /// All calls of the plan are done.
    Done {
        set: &'a Arc<Set>,
    },
}
