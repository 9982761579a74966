//! Keeps the API servers reachable: no nftables rule for Services may cut the agent off.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::command;
use crate::api_servers::ServerUrl;

/// Chains of the agent's nftables table that outgoing connections pass.
const OUTPUT_CHAINS: [&str; 2] = ["nat-output", "filter-output"];

/// The IPv4 addresses and ports of each API server, as they were last resolved.
#[derive(Debug, Default)]
pub(super) struct ResolvedServers(Vec<(ServerUrl, Vec<(Ipv4Addr, u16)>)>);

impl ResolvedServers {
    /// Resolves the URLs of the servers. A server whose host name cannot be resolved now keeps its previous addresses.
    pub(super) async fn update(&mut self, servers: &[ServerUrl]) {
        let previous = std::mem::take(&mut self.0);
        for server in servers {
            let mut addresses = ipv4_addresses(server).await;
            if addresses.is_empty() {
                let known = previous.iter().find(|it| it.0 == *server);
                addresses = known.map(|it| it.1.clone()).unwrap_or_default();
            }
            self.0.push((server.clone(), addresses));
        }
    }

    /// Returns the addresses and ports of all servers.
    pub(super) fn addresses(&self) -> Vec<(Ipv4Addr, u16)> {
        let mut addresses: Vec<(Ipv4Addr, u16)> = self.0.iter().flat_map(|it| &it.1).copied().collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

/// Resolves the URL of an API server to IPv4 addresses and ports. Returns an empty list if its host name cannot be
/// resolved.
async fn ipv4_addresses(server: &ServerUrl) -> Vec<(Ipv4Addr, u16)> {
    let found = server.resolve().await.into_iter();
    let found = found.filter_map(|it| match it.ip() {
        IpAddr::V4(address) => Some((address, it.port())),
        IpAddr::V6(_) => None,
    });
    found.collect()
}

/// Resolves the URLs of the API servers to IP addresses. Leaves out host names that cannot be resolved.
pub(crate) async fn server_ip_addresses(servers: &[ServerUrl]) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    for server in servers {
        addresses.extend(server.resolve().await.iter().map(SocketAddr::ip));
    }
    addresses
}

/// Inserts nftables rules that accept connections to the API servers' IPv4 addresses. Does nothing without a table of
/// an earlier agent.
///
/// Rule: a starting agent inserts these rules before it connects. The rules of an earlier agent may block the
/// connections. The agent can compute correct rules only from the Services of the API server, so without a connection
/// it could never replace the blocking rules. The earlier rules stay until new rules replace them in one transaction.
pub async fn insert_api_server_accept_rules(servers: &[ServerUrl]) {
    let mut resolved = ResolvedServers::default();
    resolved.update(servers).await;
    for chain in OUTPUT_CHAINS {
        // Without a table of an earlier agent, nothing blocks the connection.
        let Ok(rules) = command::run_program("nft", &["list", "chain", "ip", "muster", chain], "").await
        else {
            return;
        };
        let rules = String::from_utf8_lossy(&rules).into_owned();
        for (address, port) in resolved.addresses() {
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
