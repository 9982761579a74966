//! Looking over the controller's shoulder. Whether a plan was right depends on the picture that it was made from, and no
//! API server can tell what that was: whoever judges a run hears of it here.

use std::sync::Arc;

use muster_engine::daemonset::cache::Cache;
use muster_engine::daemonset::execution::{Call, Outcome};
use muster_engine::daemonset::facts::Set;
use muster_engine::daemonset::plan::Plan;
use muster_engine::time::Time;

/// Told of everything in the order in which it happens, and must not take long.
pub type Witness = Arc<dyn Fn(Moment<'_>) + Send + Sync>;

/// One moment of the controller's work on one set.
#[derive(Debug)]
pub enum Moment<'a> {
    /// A plan was made from what the cache shows, idle or not.
    Planned {
        cache: &'a Cache,
        plan: &'a Plan,
        now: Time,
    },
    /// A call of that set's plan goes out.
    Called {
        set: &'a Arc<Set>,
        call: &'a Call,
    },
    Answered {
        set: &'a Arc<Set>,
        call: &'a Call,
        outcome: &'a Outcome,
    },
    /// All calls of the plan are through.
    Done {
        set: &'a Arc<Set>,
    },
}
