//! Keeps Endpoints and EndpointSlices.

use futures::FutureExt as _;
use kube::Client;
use muster_engine::endpoints::EndpointsController;
use tokio_util::sync::CancellationToken;

use crate::controller_runner::{RunnerConfig, run};

/// As many as a Service of thousands of pods has slices that change in a second.
const CALLS_MAX: usize = 20;

/// Keeps what stands behind Services, until `stop`.
pub async fn endpoints(client: Client, stop: CancellationToken) {
    let config = RunnerConfig::new("endpoint-controller", CALLS_MAX);
    run(client, config, || async { EndpointsController::default() }.boxed(), stop).await;
}
