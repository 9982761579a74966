//! Runs the disruption controller.

use futures::FutureExt as _;
use kube::Client;
use muster_engine::disruption::DisruptionController;
use tokio_util::sync::CancellationToken;

use crate::controller_runner::{RunnerConfig, run};

/// Maximum number of calls of the disruption controller in flight. Each PodDisruptionBudget has at most one call in
/// flight.
const CALLS_IN_FLIGHT_MAX: usize = 10;

/// Runs the disruption controller until `stop` is cancelled.
pub async fn run_disruption_controller(client: Client, stop: CancellationToken) {
    let config = RunnerConfig::new("disruption-controller", CALLS_IN_FLIGHT_MAX);
    run(client, config, || async { DisruptionController::default() }.boxed(), stop).await;
}
