//! The network of a node: Services, DNS, and routes to the pods of other nodes.
//!
//! service_cache -> service_rules, routes, dns: three watches fill the cache, the engine computes rules, routes
//! and DNS records from it, and this module applies them.

mod cni;
mod dns;
mod flows;
mod kernel;
mod routes;
mod server;
mod service_cache;
mod services;
mod tool;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use muster_engine::service_proxy::{self as decide, Me};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

pub(crate) use self::server::all_addresses as server_addresses;
pub use self::server::reach as reach_server;
pub use self::service_cache::ServiceCache;
use crate::config::Config;
use crate::error_chain::chain;
use crate::membership::Membership;
pub use muster_engine::service_proxy::Range;

/// Delay that collects changes into one reconciliation.
const GATHER: Duration = Duration::from_millis(50);

/// Interval of checks that rules and routes are still in place: other programs may change them.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// Delay between a route change and the check, so that the changes settle.
const SETTLE: Duration = Duration::from_secs(1);
/// Minimum interval between two checks that route changes trigger.
const CHECK_MIN: Duration = Duration::from_secs(5);

const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(crate) enum NetError {
    #[error("run {program}: is it installed?")]
    Run { program: &'static str, source: std::io::Error },
    #[error("{program} failed: {said}")]
    Refused { program: &'static str, said: String },
    #[error("parse the output of {program}")]
    Read { program: &'static str, source: serde_json::Error },
    #[error("request a pod CIDR for node {node}")]
    Ask { node: String, source: Box<kube::Error> },
    #[error(
        "node {node} has no pod CIDR, so no pod can run on it: set its spec.podCIDR, or give the server \
         a larger --cluster-cidr"
    )]
    NoRange { node: String },
    #[error("delete conntrack entries of removed UDP endpoints")]
    Flows { source: std::io::Error },
    #[error("write {path}")]
    Write { path: String, source: std::io::Error },
}

/// Reconciles the node's network until `stop`. Rules and routes stay, so that pods keep their network while no
/// agent runs.
pub async fn run(
    config: Arc<Config>,
    client: Client,
    cache: Arc<ServiceCache>,
    membership: Arc<Membership>,
    stop: CancellationToken,
) {
    let work = async {
        tokio::join!(
            service_cache::watch(client.clone(), &cache, &membership),
            keep(&config, &client, &cache),
            dns::serve(&config, &cache),
        )
    };
    tokio::select! {
        () = stop.cancelled() => {}
        _ = work => {}
    }
}

/// Applies rules and routes whenever the cache changes, and restores what other programs removed.
async fn keep(config: &Config, client: &Client, cache: &ServiceCache) {
    let mut services = services::Services::new();
    let mut routes = routes::Routes::new(config.address);
    let mut server = server::addresses(&config.server).await;
    let mut retry = RETRY_MIN;
    let kernel = kernel::Changes::listen();
    let mut checked = Instant::now();
    let mut check_at = checked + CHECK_EVERY;
    cache.synced().await;
    loop {
        let done = carry_out(config, client, cache, &server, &mut services, &mut routes).await;
        let wait = match done {
            Ok(()) => {
                retry = RETRY_MIN;
                check_at.saturating_duration_since(Instant::now())
            }
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(error, "cannot reconcile the node's network, retrying");
                retry = (retry * 2).min(RETRY_MAX);
                retry
            }
        };
        tokio::select! {
            () = cache.changed() => sleep(GATHER).await,
            () = kernel.changed() => {
                // One change arrives as many messages, and the agent's own changes are among them.
                check_at = check_at.min((Instant::now() + SETTLE).max(checked + CHECK_MIN));
            }
            () = sleep(wait) => {}
        }
        if check_at <= Instant::now() {
            checked = Instant::now();
            check_at = checked + CHECK_EVERY;
            // If the server's name cannot be resolved now, the previous addresses stay.
            let now = server::addresses(&config.server).await;
            server = if now.is_empty() { server } else { now };
            if !services.stands().await {
                tracing::warn!("the nftables rules for Services are missing; restoring them");
                services = services::Services::new();
            }
            routes.check().await;
        }
    }
}

async fn carry_out(
    config: &Config,
    client: &Client,
    cache: &ServiceCache,
    server: &[(Ipv4Addr, u16)],
    services: &mut services::Services,
    routes: &mut routes::Routes,
) -> Result<(), NetError> {
    routes.prepare(config.cluster_dns).await?;
    let this_node = Me {
        name: config.name.as_str().into(),
        addresses: routes.own().to_vec(),
        dns: config.cluster_dns.and_then(|it| match it {
            IpAddr::V4(it) => Some(it),
            IpAddr::V6(_) => None,
        }),
        is_bridge_unseen: !routes.is_bridge_seen(),
        server: server.to_vec(),
        external_ips: config.external_ips.clone(),
    };
    let (desired, table, own) = {
        let picture = cache.picture();
        let desired = decide::routes(&picture, &config.name, routes.network());
        let table = decide::table(&picture, &this_node, &desired);
        (desired, table, picture.node(&config.name).cloned())
    };
    // All three are tried, whichever fails.
    let results = [
        routes.apply(desired).await,
        services.apply(table).await,
        match own.map(|it| it.range) {
            Some(Some(range)) => cni::write(config, range).await,
            Some(None) => ask_for_range(config, client).await,
            // The Node has not arrived on the watch yet.
            None => Ok(()),
        },
    ];
    results.into_iter().collect()
}

/// Patches the Node, which makes the API server assign a pod CIDR to a Node that has none yet.
async fn ask_for_range(config: &Config, client: &Client) -> Result<(), NetError> {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let spec = match &config.pod_range {
        Some(range) => json!({"podCIDR": range, "podCIDRs": [range]}),
        None => json!({}),
    };
    let patch = Patch::Strategic(json!({"spec": spec}));
    let patched = nodes.patch(&config.name, &PatchParams::default(), &patch).await;
    let patched =
        patched.map_err(|source| NetError::Ask { node: config.name.clone(), source: source.into() })?;
    match patched.spec.and_then(|it| it.pod_cidr) {
        Some(_) => Ok(()),
        None => Err(NetError::NoRange { node: config.name.clone() }),
    }
}
