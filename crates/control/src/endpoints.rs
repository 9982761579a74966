//! Runs the controllers of Endpoints and EndpointSlices.

use futures::FutureExt as _;
use kube::Client;
use muster_engine::endpoints::EndpointsController;
use tokio_util::sync::CancellationToken;

use crate::controller_runner::{RunnerConfig, run};

/// Maximum number of calls in flight of the controllers of Endpoints and EndpointSlices. This is enough to update all
/// EndpointSlices of a Service with thousands of pods within a second.
const CALLS_IN_FLIGHT_MAX: usize = 20;

/// Runs the controllers of Endpoints and EndpointSlices until `stop` is cancelled.
pub async fn run_endpoints_controller(client: Client, stop: CancellationToken) {
    let config = RunnerConfig::new("endpoint-controller", CALLS_IN_FLIGHT_MAX);
    run(client, config, || async { EndpointsController::default() }.boxed(), stop).await;
}
