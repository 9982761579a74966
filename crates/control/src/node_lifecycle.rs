//! The node lifecycle: who is heard of, what that says to pods, and which of them go.

use futures::FutureExt as _;
use kube::Client;
use muster_engine::node_lifecycle::{Config, NodeLifecycle};
use tokio_util::sync::CancellationToken;

use crate::loops::{Terms, run};

/// Calls at once: a zone that is lost has thousands to make, and the rest of the cluster goes on meanwhile.
const CALLS_MAX: usize = 32;

/// Watches over the nodes, until `stop`.
pub async fn node_lifecycle(client: Client, config: Config, stop: CancellationToken) {
    let terms = Terms { component: "node-lifecycle", calls_max: CALLS_MAX };
    let begin = move || std::future::ready(NodeLifecycle::new(config.clone())).boxed();
    run(client, terms, begin, stop).await;
}
