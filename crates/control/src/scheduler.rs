//! Runs the scheduler.

use futures::FutureExt as _;
use kube::Client;
use muster_engine::scheduler::{SCHEDULER_NAME, Scheduler};
use tokio_util::sync::CancellationToken;

use crate::controller_runner::{RunnerConfig, run};

/// Maximum number of calls of the scheduler in flight. Most calls bind one pod, so this is also the number of pods that
/// can be bound at the same time.
const CALLS_IN_FLIGHT_MAX: usize = 100;

/// Runs the scheduler until `stop` is cancelled.
pub async fn run_scheduler(client: Client, stop: CancellationToken) {
    let config = RunnerConfig::new(SCHEDULER_NAME, CALLS_IN_FLIGHT_MAX);
    run(client, config, || async { Scheduler::default() }.boxed(), stop).await;
}
