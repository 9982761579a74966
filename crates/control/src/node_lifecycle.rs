//! Runs the node lifecycle controller. It sets the conditions of nodes without heartbeats to Unknown, taints these
//! nodes, and evicts their pods.

use futures::FutureExt as _;
use kube::Client;
use muster_engine::node_lifecycle::{Config, NodeLifecycle};
use tokio_util::sync::CancellationToken;

use crate::controller_runner::{RunnerConfig, run};

/// Maximum number of calls of the node lifecycle controller in flight. An unreachable zone needs thousands of calls,
/// which must not delay the calls about other nodes for long.
const CALLS_IN_FLIGHT_MAX: usize = 32;

/// Runs the node lifecycle controller until `stop` is cancelled.
pub async fn run_node_lifecycle(client: Client, config: Config, stop: CancellationToken) {
    let new_controller = move || std::future::ready(NodeLifecycle::new(config.clone())).boxed();
    run(client, RunnerConfig::new("node-lifecycle", CALLS_IN_FLIGHT_MAX), new_controller, stop).await;
}
