//! Keeps the status of disruption budgets.

use futures::FutureExt as _;
use kube::Client;
use muster_engine::disruption::DisruptionController;
use tokio_util::sync::CancellationToken;

use crate::controller_runner::{RunnerConfig, run};

/// A budget has one call under way at a time, and few clusters have many budgets.
const CALLS_MAX: usize = 10;

/// Keeps what disruption budgets allow, until `stop`.
pub async fn disruption(client: Client, stop: CancellationToken) {
    let config = RunnerConfig::new("disruption-controller", CALLS_MAX);
    run(client, config, || async { DisruptionController::default() }.boxed(), stop).await;
}
