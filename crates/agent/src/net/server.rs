//! Keeps the API server reachable: no rule for Services may cut the agent off.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::Uri;

use super::tool;

/// Chains of an earlier agent's nftables table that outgoing connections pass.
const CHAINS: [&str; 2] = ["nat-output", "filter-output"];

/// IPv4 addresses and port of the API server. Empty: its name cannot be resolved now.
pub(super) async fn addresses(server: &str) -> Vec<(Ipv4Addr, u16)> {
    let found = resolve(server).await.into_iter();
    let mut addresses: Vec<(Ipv4Addr, u16)> = found
        .filter_map(|it| match it.ip() {
            IpAddr::V4(address) => Some((address, it.port())),
            IpAddr::V6(_) => None,
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

pub(crate) async fn all_addresses(server: &str) -> Vec<IpAddr> {
    resolve(server).await.iter().map(SocketAddr::ip).collect()
}

async fn resolve(server: &str) -> Vec<SocketAddr> {
    let uri: Option<Uri> = server.parse().ok();
    let Some(host) = uri.as_ref().and_then(Uri::host) else { return Vec::new() };
    let port = uri.as_ref().and_then(Uri::port_u16).unwrap_or(443);
    let found = tokio::net::lookup_host((host.trim_matches(['[', ']']), port)).await;
    found.into_iter().flatten().collect()
}

/// Rule: a starting agent first accepts its own connections to the API server: the rules of an earlier agent may
/// cut it off, and only the API server can correct them. The other rules stay until the new ones replace all of
/// them in one transaction.
pub async fn reach(server: &str) {
    for chain in CHAINS {
        // Without a table of an earlier agent, nothing blocks the connection.
        let Ok(rules) = tool::run("nft", &["list", "chain", "ip", "muster", chain], "").await else { return };
        let rules = String::from_utf8_lossy(&rules).into_owned();
        for (address, port) in addresses(server).await {
            let accept = format!("ip daddr {address} tcp dport {port} accept");
            if rules.contains(&accept) {
                continue;
            }
            let script = format!("insert rule ip muster {chain} {accept}\n");
            if let Err(error) = tool::run("nft", &["-f", "-"], &script).await {
                tracing::warn!(chain, %error, "cannot insert the rule that accepts connections to the API server");
            }
        }
    }
}
