//! Keeps Endpoints and EndpointSlices.

use futures::FutureExt as _;
use kube::Client;
use muster_engine::endpoints::EndpointsController;
use tokio_util::sync::CancellationToken;

use crate::loops::{Terms, run};

/// As many as a Service of thousands of pods has slices that change in a second.
const CALLS_MAX: usize = 20;

/// Keeps what stands behind Services, until `stop`.
pub async fn endpoints(client: Client, stop: CancellationToken) {
    let terms = Terms { component: "endpoint-controller", calls_max: CALLS_MAX };
    run(client, terms, || async { EndpointsController::default() }.boxed(), stop).await;
}
