//! Runs the rollout policy controller, which writes the status of rollout policies.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::join_all;
use kube::Client;
use muster_engine::rollout_policy::{PolicyScope, RolloutPolicyController};
use tokio_util::sync::CancellationToken;

use crate::Context;
use crate::call::Caller;
use crate::controller_runner::{RunnerConfig, run, run_in_namespace};

/// Name of the rollout policy controller in logs and Events.
const COMPONENT: &str = "rollout-policy-controller";

/// Maximum number of calls of the rollout policy controller in flight. Each policy has at most one call in flight.
const CALLS_IN_FLIGHT_MAX: usize = 4;

/// Runs the rollout policy controller for all namespaces until `stop` is cancelled.
pub async fn run_rollout_policy_controller(client: Client, stop: CancellationToken) {
    let new_controller = || async { RolloutPolicyController::new(PolicyScope::Cluster) }.boxed();
    run(client, RunnerConfig::new(COMPONENT, CALLS_IN_FLIGHT_MAX), new_controller, stop).await;
}

/// Runs the rollout policy controller beside the DaemonSet controller until `stop` is cancelled. It serves the same
/// namespaces, and `caller` limits its calls by the rate limit and the lease term of the replica.
pub(crate) async fn run_beside_daemonset_controller(
    context: &Arc<Context>,
    caller: Caller,
    stop: &CancellationToken,
) {
    let config = RunnerConfig::new(COMPONENT, CALLS_IN_FLIGHT_MAX);
    let namespaces: BTreeSet<&str> = context.options.namespaces.iter().map(String::as_str).collect();
    if namespaces.is_empty() {
        let new_controller = || async { RolloutPolicyController::new(PolicyScope::Cluster) }.boxed();
        return run_in_namespace(caller, &config, None, new_controller, stop).await;
    }
    let running = namespaces.into_iter().map(|namespace| {
        let new_controller = || async { RolloutPolicyController::new(PolicyScope::Namespace) }.boxed();
        run_in_namespace(caller.clone(), &config, Some(namespace), new_controller, stop)
    });
    join_all(running).await;
}
