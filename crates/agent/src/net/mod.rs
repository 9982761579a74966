//! The network of a node: Services, DNS, and routes to the pods of other nodes.
//!
//! Three watches fill `service_cache`. The engine computes nftables rules, routes and DNS records from the cache.
//! `service_rules` applies the nftables rules, `routes` applies the routes, and `dns` serves the DNS records.

/// Keeps the API servers reachable past the nftables rules of Services.
mod api_server_access;
/// CNI configuration of the pod network.
mod cni;
/// Execution of system programs such as `ip` and `nft`.
mod command;
/// Deletion of stale conntrack entries.
mod conntrack;
/// The cluster DNS server of the node.
mod dns;
/// Kernel notifications about routes.
mod route_changes;
/// Routes to the pods of other nodes.
mod routes;
/// The Services, EndpointSlices and Nodes that the watches have received.
mod service_cache;
/// nftables rules of Services.
mod service_rules;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use muster_api::backoff::{BackoffPolicy, RetryDelay};
use muster_engine::service_proxy::{self as decide, ThisNode};
use muster_events::error_chain::format_error_chain;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

pub use self::api_server_access::insert_api_server_accept_rules;
pub(crate) use self::api_server_access::server_ip_addresses;
pub use self::service_cache::ServiceCache;
use crate::config::Config;
use crate::membership::ClusterMembership;
pub use muster_api::cidr::Ipv4Cidr;

/// Delay between a change of the service cache and the reconciliation of the network, so that a burst of changes causes
/// one reconciliation.
const BATCH_DELAY: Duration = Duration::from_millis(50);

/// Interval at which nftables rules and routes are checked, because other programs may remove them.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Delay between a route change in the kernel and the check that it triggers, so that a burst of changes triggers one
/// check.
const ROUTE_CHECK_DELAY: Duration = Duration::from_secs(1);
/// Minimum interval between two checks that route changes in the kernel trigger.
const ROUTE_CHECK_INTERVAL_MIN: Duration = Duration::from_secs(5);

/// Backoff after a failed reconciliation of the network.
const RETRY_BACKOFF: BackoffPolicy =
    BackoffPolicy { min: Duration::from_secs(1), max: Duration::from_secs(30) };

/// Error of setting up the node's network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkError {
    #[error("run {program}: is it installed?")]
    Spawn { program: &'static str, source: std::io::Error },
    #[error("{program} failed: {message}")]
    CommandFailed { program: &'static str, message: String },
    #[error("parse the output of {program}")]
    ParseOutput { program: &'static str, source: serde_json::Error },
    #[error("request a pod CIDR for node {node}")]
    RequestPodCidr { node: String, source: Box<kube::Error> },
    #[error(
        "node {node} has no pod CIDR, so no pod can run on it: set its spec.podCIDR, or give the server \
         a larger --cluster-cidr"
    )]
    NoPodCidr { node: String },
    #[error("delete conntrack entries of removed UDP endpoints")]
    DeleteFlows { source: std::io::Error },
    #[error("write {path}")]
    Write { path: String, source: std::io::Error },
}

/// Watches Services, EndpointSlices and Nodes, reconciles the node's network, and serves DNS until `stop` is cancelled.
/// Rules and routes stay after that, so that pods keep their network while no agent runs.
pub async fn run(
    config: Arc<Config>,
    client: Client,
    cache: Arc<ServiceCache>,
    membership: Arc<ClusterMembership>,
    stop: CancellationToken,
) {
    let work = async {
        tokio::join!(
            service_cache::run_watches(client.clone(), &cache, &membership),
            reconcile_loop(&config, &client, &cache),
            dns::serve(&config, &cache),
        )
    };
    tokio::select! {
        () = stop.cancelled() => {}
        _ = work => {}
    }
}

/// Applies nftables rules, routes and the CNI configuration whenever the service cache changes, and requests a pod CIDR
/// if the node has none. After a failure, tries again with a growing delay. Restores rules and routes that other
/// programs removed. Also passes the API servers in the EndpointSlices on to
/// [`ApiServers`](crate::api_servers::ApiServers). Never returns.
async fn reconcile_loop(config: &Config, client: &Client, cache: &ServiceCache) {
    let mut services = service_rules::ServiceRules::new();
    let mut routes = routes::PodRoutes::new(config.address);
    let mut servers = api_server_access::ResolvedServers::default();
    servers.update(&config.api_servers.all()).await;
    let mut retry = RetryDelay::new(RETRY_BACKOFF);
    let kernel = route_changes::RouteChanges::subscribe();
    let mut checked = Instant::now();
    let mut check_at = checked + CHECK_INTERVAL;
    cache.wait_until_synced().await;
    loop {
        let endpoints = decide::api_server_addresses(&cache.lock_state());
        if config.api_servers.replace_learned(&endpoints) {
            servers.update(&config.api_servers.all()).await;
        }
        let done = reconcile(config, client, cache, &servers, &mut services, &mut routes).await;
        let wait = match done {
            Ok(()) => {
                retry.reset();
                check_at.saturating_duration_since(Instant::now())
            }
            Err(error) => {
                let error = format_error_chain(&error);
                tracing::warn!(error, "cannot reconcile the node's network, retrying");
                retry.next_delay()
            }
        };
        tokio::select! {
            () = cache.wait_for_change() => sleep(BATCH_DELAY).await,
            () = kernel.wait_for_change() => {
                // One change arrives as many messages, and the agent's own changes are among them.
                check_at = check_at.min((Instant::now() + ROUTE_CHECK_DELAY).max(checked + ROUTE_CHECK_INTERVAL_MIN));
            }
            () = sleep(wait) => {}
        }
        if check_at <= Instant::now() {
            checked = Instant::now();
            check_at = checked + CHECK_INTERVAL;
            servers.update(&config.api_servers.all()).await;
            if !services.is_table_present().await {
                tracing::warn!("the nftables rules for Services are missing; restoring them");
                services = service_rules::ServiceRules::new();
            }
            routes.check_routes().await;
        }
    }
}

/// Computes nftables rules, routes and the CNI configuration from the service cache, and applies them. Requests a pod
/// CIDR if the node has none.
async fn reconcile(
    config: &Config,
    client: &Client,
    cache: &ServiceCache,
    servers: &api_server_access::ResolvedServers,
    services: &mut service_rules::ServiceRules,
    routes: &mut routes::PodRoutes,
) -> Result<(), NetworkError> {
    routes.prepare_host(config.cluster_dns).await?;
    let this_node = ThisNode {
        name: config.name.as_str().into(),
        addresses: routes.node_addresses().to_vec(),
        dns: config.cluster_dns.and_then(|it| match it {
            IpAddr::V4(it) => Some(it),
            IpAddr::V6(_) => None,
        }),
        bridge_netfilter_disabled: !routes.is_bridge_filtered(),
        server: servers.addresses(),
        external_ips: config.external_ip_ranges.clone(),
    };
    let (desired, table, own) = {
        let proxy_state = cache.lock_state();
        let desired = decide::pod_routes(&proxy_state, &config.name, routes.node_network());
        let table = decide::build_table(&proxy_state, &this_node, &desired);
        (desired, table, proxy_state.node(&config.name).cloned())
    };
    // All three are tried, whichever fails.
    let results = [
        routes.apply_routes(desired).await,
        services.apply_table(table).await,
        match own.map(|it| it.range) {
            Some(Some(range)) => cni::write_conflist(config, range).await,
            Some(None) => request_pod_cidr(config, client).await,
            // The Node has not arrived on the watch yet.
            None => Ok(()),
        },
    ];
    results.into_iter().collect()
}

/// Patches the Node with the configured pod CIDR. If none is configured, the patch is empty, and the API server assigns
/// a pod CIDR. Fails if the Node then still has none.
async fn request_pod_cidr(config: &Config, client: &Client) -> Result<(), NetworkError> {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let spec = match &config.pod_cidr {
        Some(range) => json!({"podCIDR": range, "podCIDRs": [range]}),
        None => json!({}),
    };
    let patch = Patch::Strategic(json!({"spec": spec}));
    let patched = nodes.patch(&config.name, &PatchParams::default(), &patch).await;
    let patched = patched.map_err(|source| NetworkError::RequestPodCidr {
        node: config.name.clone(),
        source: source.into(),
    })?;
    match patched.spec.and_then(|it| it.pod_cidr) {
        Some(_) => Ok(()),
        None => Err(NetworkError::NoPodCidr { node: config.name.clone() }),
    }
}
