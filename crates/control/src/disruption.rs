//! Keeps the status of disruption budgets.

use futures::FutureExt as _;
use kube::Client;
use muster_engine::disruption::DisruptionController;
use tokio_util::sync::CancellationToken;

use crate::loops::{Terms, run};

/// A budget has one call under way at a time, and few clusters have many budgets.
const CALLS_MAX: usize = 10;

/// Keeps what disruption budgets allow, until `stop`.
pub async fn disruption(client: Client, stop: CancellationToken) {
    let terms = Terms { component: "disruption-controller", calls_max: CALLS_MAX };
    run(client, terms, || async { DisruptionController::default() }.boxed(), stop).await;
}
