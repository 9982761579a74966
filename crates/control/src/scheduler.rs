//! The scheduler.

use futures::FutureExt as _;
use kube::Client;
use muster_engine::scheduler::{SCHEDULER_NAME, Scheduler};
use tokio_util::sync::CancellationToken;

use crate::loops::{Terms, run};

/// Calls at once: as many as the engine asks for before it waits for answers.
const CALLS_MAX: usize = 100;

/// Binds pods to nodes, until `stop`.
pub async fn scheduler(client: Client, stop: CancellationToken) {
    let terms = Terms { component: SCHEDULER_NAME, calls_max: CALLS_MAX };
    run(client, terms, || async { Scheduler::default() }.boxed(), stop).await;
}
