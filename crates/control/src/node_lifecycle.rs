//! Runs the node lifecycle controller: heartbeats to conditions, conditions to taints, taints to evictions.

use futures::FutureExt as _;
use kube::Client;
use muster_engine::node_lifecycle::{Config, NodeLifecycle};
use tokio_util::sync::CancellationToken;

use crate::controller_runner::{RunnerConfig, run};

/// Maximum number of calls in flight: a lost zone needs thousands, and the other nodes need some meanwhile.
const CALLS_MAX: usize = 32;

/// Runs the node lifecycle controller until `stop`.
pub async fn node_lifecycle(client: Client, config: Config, stop: CancellationToken) {
    let begin = move || std::future::ready(NodeLifecycle::new(config.clone())).boxed();
    run(client, RunnerConfig::new("node-lifecycle", CALLS_MAX), begin, stop).await;
}
