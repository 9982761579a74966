//! Runs the garbage collector for the kinds that the API server serves.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::Client;
use kube::discovery::{Discovery, Scope, verbs};
use muster_engine::controller::Resource;
use muster_engine::garbage_collector::GarbageCollector;
use tokio_util::sync::CancellationToken;

use crate::controller_runner::{RunnerConfig, run};

/// Maximum number of calls of the garbage collector in flight. Upstream: `concurrent-gc-syncs`.
const CALLS_IN_FLIGHT_MAX: usize = 20;

/// Delay before a failed API discovery is retried.
const DISCOVERY_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Runs the garbage collector until `stop` is cancelled.
pub async fn run_garbage_collector(client: Client, stop: CancellationToken) {
    let config = RunnerConfig::new("garbage-collector", CALLS_IN_FLIGHT_MAX);
    let discovery_client = client.clone();
    run(client, config, move || new_garbage_collector(discovery_client.clone()).boxed(), stop).await;
}

/// Creates a garbage collector for the kinds that API discovery returns. Waits until discovery succeeds.
async fn new_garbage_collector(client: Client) -> GarbageCollector {
    let served = discover_kinds(&client).await;
    let watched = served.iter().filter(|(_, is_watched)| *is_watched).map(|(it, _)| it.clone());
    let watched: Vec<Arc<Resource>> = watched.collect();
    GarbageCollector::new(served.into_iter().map(|(it, _)| it).collect(), watched)
}

/// Returns the kinds that the API server serves with the verb `get`. The flag of a kind is `true` if the garbage
/// collector watches the kind. Retries API discovery until it succeeds.
///
/// The garbage collector watches only kinds that can be listed, watched and deleted. It does not watch Events, which
/// have no owners. A kind that is served in two API groups is watched in one of them.
async fn discover_kinds(client: &Client) -> Vec<(Arc<Resource>, bool)> {
    /// API groups whose kinds are also served in another group.
    const DUPLICATE_GROUPS: [&str; 2] = ["events.k8s.io", "extensions"];
    let discovery = loop {
        match Discovery::new(client.clone()).run().await {
            Ok(discovery) => break discovery,
            Err(error) => tracing::warn!(%error, "discovery failed; retrying"),
        }
        tokio::time::sleep(DISCOVERY_RETRY_DELAY).await;
    };
    let mut resources = Vec::new();
    for (it, can) in discovery.groups_alphabetical().iter().flat_map(|it| it.recommended_resources()) {
        let is_needed =
            [verbs::LIST, verbs::WATCH, verbs::DELETE].iter().all(|it| can.supports_operation(it));
        let is_watched = is_needed && it.kind != "Event" && !DUPLICATE_GROUPS.contains(&it.group.as_str());
        if can.supports_operation(verbs::GET) {
            let resource = Resource {
                group: it.group.into(),
                version: it.version.into(),
                kind: it.kind.into(),
                plural: it.plural.into(),
                namespaced: can.scope == Scope::Namespaced,
            };
            resources.push((Arc::new(resource), is_watched));
        }
    }
    resources
}
