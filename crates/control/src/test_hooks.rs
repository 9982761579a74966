//! Observes the controller in tests. Whether a plan was right depends on the cache that it was made from, which the API
//! server cannot show.

use std::sync::Arc;

use muster_api::time::Time;
use muster_engine::daemonset::cache::Cache;
use muster_engine::daemonset::execution::{Call, Outcome};
use muster_engine::daemonset::facts::Set;
use muster_engine::daemonset::plan::Plan;

/// Called for each observation in order; must return quickly.
pub type PlanObserver = Arc<dyn Fn(Observation<'_>) + Send + Sync>;

/// One step of the controller's work on one DaemonSet.
#[derive(Debug)]
pub enum Observation<'a> {
    /// A plan was made from the cache; it may be empty.
    Planned {
        cache: &'a Cache,
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
        outcome: &'a Outcome,
    },
    /// All calls of the plan are done.
    Done {
        set: &'a Arc<Set>,
    },
}
