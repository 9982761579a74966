//! Keeps the API server reachable: no nftables rule for Services may cut the agent off.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::Uri;

use super::command;

/// Chains of the agent's nftables table that outgoing connections pass.
const OUTPUT_CHAINS: [&str; 2] = ["nat-output", "filter-output"];

/// Resolves the URL of the API server to IPv4 addresses and ports. Returns an empty list if the URL is invalid or its
/// host name cannot be resolved.
pub(super) async fn ipv4_addresses(server: &str) -> Vec<(Ipv4Addr, u16)> {
    let found = resolve_server(server).await.into_iter();
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

/// Resolves the URL of the API server to IP addresses. Returns an empty list if the URL is invalid or its host name
/// cannot be resolved.
pub(crate) async fn server_ip_addresses(server: &str) -> Vec<IpAddr> {
    resolve_server(server).await.iter().map(SocketAddr::ip).collect()
}

/// Resolves the URL of the API server to socket addresses. Returns an empty list if the URL is invalid or its host name
/// cannot be resolved.
async fn resolve_server(server: &str) -> Vec<SocketAddr> {
    let uri: Option<Uri> = server.parse().ok();
    let Some(host) = uri.as_ref().and_then(Uri::host) else { return Vec::new() };
    let port = uri.as_ref().and_then(Uri::port_u16).unwrap_or(443);
    let found = tokio::net::lookup_host((host.trim_matches(['[', ']']), port)).await;
    found.into_iter().flatten().collect()
}

/// Inserts nftables rules that accept connections to the API server's IPv4 addresses. Does nothing without a table of
/// an earlier agent.
///
/// Rule: a starting agent inserts these rules before it connects. The rules of an earlier agent may block the
/// connections. The agent can compute correct rules only from the Services of the API server, so without a connection
/// it could never replace the blocking rules. The earlier rules stay until new rules replace them in one transaction.
pub async fn insert_api_server_accept_rules(server: &str) {
    for chain in OUTPUT_CHAINS {
        // Without a table of an earlier agent, nothing blocks the connection.
        let Ok(rules) = command::run_program("nft", &["list", "chain", "ip", "muster", chain], "").await
        else {
            return;
        };
        let rules = String::from_utf8_lossy(&rules).into_owned();
        for (address, port) in ipv4_addresses(server).await {
            let accept = format!("ip daddr {address} tcp dport {port} accept");
            if rules.contains(&accept) {
                continue;
            }
            let script = format!("insert rule ip muster {chain} {accept}\n");
            if let Err(error) = command::run_program("nft", &["-f", "-"], &script).await {
                tracing::warn!(chain, %error, "cannot insert the rule that accepts connections to the API server");
            }
        }
    }
}
