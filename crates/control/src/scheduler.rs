//! The scheduler.

use futures::FutureExt as _;
use kube::Client;
use muster_engine::scheduler::{SCHEDULER_NAME, Scheduler};
use tokio_util::sync::CancellationToken;

use crate::controller_runner::{RunnerConfig, run};

/// Calls at once: as many as the engine asks for before it waits for answers.
const CALLS_MAX: usize = 100;

/// Binds pods to nodes, until `stop`.
pub async fn scheduler(client: Client, stop: CancellationToken) {
    let config = RunnerConfig::new(SCHEDULER_NAME, CALLS_MAX);
    run(client, config, || async { Scheduler::default() }.boxed(), stop).await;
}
