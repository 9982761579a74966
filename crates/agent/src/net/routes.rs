//! Routes to the pods of other nodes, the cluster DNS address on the loopback interface, and kernel settings.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use muster_engine::service_proxy::{Range, Routes as Wanted};
use serde::Deserialize;

use super::{NetError, tool};

/// Protocol number that marks the agent's routes; no routing daemon uses it.
const PROTOCOL: &str = "77";

const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
const BRIDGED: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// The routes to other nodes' pods, as last applied.
#[derive(Debug)]
pub(super) struct Routes {
    address: IpAddr,
    /// The network of the node's own address.
    network: Option<Range>,
    /// The node's IPv4 addresses.
    own: Vec<Ipv4Addr>,
    is_bridge_seen: bool,
    is_prepared: bool,
    told: Wanted,
}

impl Routes {
    pub(super) fn new(address: IpAddr) -> Self {
        let (network, own, told) = (None, Vec::new(), Wanted::new());
        Self { address, network, own, is_bridge_seen: false, is_prepared: false, told }
    }

    pub(super) fn network(&self) -> Option<Range> {
        self.network
    }

    pub(super) fn own(&self) -> &[Ipv4Addr] {
        &self.own
    }

    /// Whether bridged packets between the node's pods pass nftables.
    pub(super) fn is_bridge_seen(&self) -> bool {
        self.is_bridge_seen
    }

    /// Sets up what does not depend on other nodes, and reads the routes that an earlier agent left.
    pub(super) async fn prepare(&mut self, dns: Option<IpAddr>) -> Result<(), NetError> {
        if self.is_prepared {
            return Ok(());
        }
        set(FORWARD).map_err(|source| NetError::Write { path: FORWARD.to_owned(), source })?;
        if !Path::new(BRIDGED).exists() {
            // The module may be missing; then traffic between pods of the node is routed through the node.
            let _ = tool::run("modprobe", &["br_netfilter"], "").await;
        }
        self.is_bridge_seen = set(BRIDGED).is_ok();
        if let Some(dns) = dns {
            let bits = if dns.is_ipv4() { 32 } else { 128 };
            tool::run("ip", &["addr", "replace", &format!("{dns}/{bits}"), "dev", "lo"], "").await?;
        }
        let links = links().await?;
        self.network = network(&links, self.address);
        self.own = own(&links);
        self.told = standing().await?;
        self.is_prepared = true;
        Ok(())
    }

    /// Compares the applied routes with the kernel's. The next `prepare` and `apply` restore what is missing or
    /// different: routes, the DNS address, and IP forwarding.
    pub(super) async fn check(&mut self) {
        if !self.is_prepared {
            return;
        }
        match standing().await {
            Ok(found) if found != self.told => {
                let missing = self.told.iter().filter(|(range, node)| found.get(range) != Some(node)).count();
                tracing::warn!(
                    missing,
                    "routes to pods of other nodes differ from the desired ones; repairing them"
                );
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "cannot read the routes"),
        }
        self.is_prepared = false;
    }

    pub(super) async fn apply(&mut self, desired: Wanted) -> Result<(), NetError> {
        let mut commands = String::new();
        for range in self.told.keys().filter(|it| !desired.contains_key(it)) {
            let _ = writeln!(commands, "route del {range} proto {PROTOCOL}");
        }
        for (range, node) in desired.iter().filter(|(range, node)| self.told.get(range) != Some(node)) {
            let _ = writeln!(commands, "route replace {range} via {node} proto {PROTOCOL}");
        }
        if !commands.is_empty() {
            // `-force`: a route that disappeared with its link must not stop the other commands.
            let done = tool::run("ip", &["-force", "-batch", "-"], &commands).await;
            if done.is_err() {
                self.is_prepared = false;
                return done.map(drop);
            }
        }
        self.told = desired;
        Ok(())
    }
}

fn set(path: &str) -> std::io::Result<()> {
    if std::fs::read_to_string(path)?.trim() == "1" { Ok(()) } else { std::fs::write(path, "1") }
}

#[derive(Deserialize)]
struct Link {
    #[serde(default)]
    ifname: String,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    local: Option<IpAddr>,
    prefixlen: u8,
}

async fn links() -> Result<Vec<Link>, NetError> {
    let output = tool::run("ip", &["-json", "-4", "addr", "show"], "").await?;
    serde_json::from_slice(&output).map_err(|source| NetError::Read { program: "ip", source })
}

fn network(links: &[Link], address: IpAddr) -> Option<Range> {
    let own = links.iter().flat_map(|it| &it.addr_info).find(|it| it.local == Some(address))?;
    match address {
        IpAddr::V4(address) => Range::around(address, own.prefixlen),
        IpAddr::V6(_) => None,
    }
}

/// The machine's own IPv4 addresses, without those of Services: the cluster DNS address is on the loopback
/// interface, and kube-proxy in IPVS mode has all cluster IPs on `kube-ipvs0`.
fn own(links: &[Link]) -> Vec<Ipv4Addr> {
    let links = links.iter().filter(|it| !matches!(&*it.ifname, "lo" | "kube-ipvs0"));
    let addresses = links.flat_map(|it| &it.addr_info).filter_map(|it| it.local);
    addresses
        .filter_map(|it| match it {
            IpAddr::V4(it) => Some(it),
            IpAddr::V6(_) => None,
        })
        .collect()
}

/// Reads the agent's routes from the kernel.
async fn standing() -> Result<Wanted, NetError> {
    #[derive(Deserialize)]
    struct Route {
        dst: String,
        gateway: Option<Ipv4Addr>,
    }
    let output = tool::run("ip", &["-json", "-4", "route", "show", "proto", PROTOCOL], "").await?;
    let routes: Vec<Route> =
        serde_json::from_slice(&output).map_err(|source| NetError::Read { program: "ip", source })?;
    Ok(routes.iter().filter_map(|it| Some((Range::parse(&it.dst)?, it.gateway?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_those_of_links_that_stand_for_no_service() {
        let links: Vec<Link> = serde_json::from_str(
            r#"[{"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "prefixlen": 8}, {"local": "10.96.0.10", "prefixlen": 32}]},
                {"ifname": "eth0", "addr_info": [{"local": "172.30.0.1", "prefixlen": 24}]},
                {"ifname": "kube-ipvs0", "addr_info": [{"local": "10.96.0.1", "prefixlen": 32}]},
                {"ifname": "cni0", "addr_info": [{"local": "10.244.1.1", "prefixlen": 24}]}, {}]"#,
        )
        .unwrap();
        assert_eq!(own(&links), [Ipv4Addr::new(172, 30, 0, 1), Ipv4Addr::new(10, 244, 1, 1)]);
        assert_eq!(network(&links, [172, 30, 0, 1].into()), Range::parse("172.30.0.0/24"));
        assert_eq!(network(&links, [172, 30, 0, 2].into()), None);
    }
}
