//! Runs the endpoints controller.

use futures::FutureExt as _;
use kube::Client;
use muster_engine::endpoints::EndpointsController;
use tokio_util::sync::CancellationToken;

use crate::controller_runner::{RunnerConfig, run};

/// Maximum number of calls of the endpoints controllers in flight. This is enough to update all EndpointSlices of a
/// Service with thousands of pods within a second.
const CALLS_IN_FLIGHT_MAX: usize = 20;

/// Runs the endpoints controllers until `stop`.
pub async fn run_endpoints_controller(client: Client, stop: CancellationToken) {
    let config = RunnerConfig::new("endpoint-controller", CALLS_IN_FLIGHT_MAX);
    run(client, config, || async { EndpointsController::default() }.boxed(), stop).await;
}
