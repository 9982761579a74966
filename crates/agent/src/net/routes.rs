//! The machine's own part: the routes to pods of other nodes, the address for names, and what the kernel has to be told.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use muster_engine::service_proxy::{Range, Routes as Wanted};
use serde::Deserialize;

use super::{NetError, tool};

/// By which our routes are known among others': no routing daemon has this number.
const PROTOCOL: &str = "77";

const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
const BRIDGED: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

#[derive(Debug)]
pub(super) struct Routes {
    address: IpAddr,
    /// The network that the node's own address is in.
    network: Option<Range>,
    /// The addresses that the kernel has.
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

    /// Whether packets between pods of the node are shown to its rules.
    pub(super) fn is_bridge_seen(&self) -> bool {
        self.is_bridge_seen
    }

    /// What stands by itself, once made, and what an agent before this one left.
    pub(super) async fn prepare(&mut self, dns: Option<IpAddr>) -> Result<(), NetError> {
        if self.is_prepared {
            return Ok(());
        }
        set(FORWARD).map_err(|source| NetError::Write { path: FORWARD.to_owned(), source })?;
        if !Path::new(BRIDGED).exists() {
            // Where it is not built in. If there is none, packets take the way through the node.
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

    /// Compares what was told with what the kernel has. What is missing or different is put back by the next `prepare` and
    /// `apply`: routes, the address for names, and the setting that packets are forwarded.
    pub(super) async fn check(&mut self) {
        if !self.is_prepared {
            return;
        }
        match standing().await {
            Ok(standing) if standing != self.told => {
                let missing =
                    self.told.iter().filter(|(range, node)| standing.get(range) != Some(node)).count();
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

    pub(super) async fn apply(&mut self, wanted: Wanted) -> Result<(), NetError> {
        let mut commands = String::new();
        for range in self.told.keys().filter(|it| !wanted.contains_key(it)) {
            let _ = writeln!(commands, "route del {range} proto {PROTOCOL}");
        }
        for (range, node) in wanted.iter().filter(|(range, node)| self.told.get(range) != Some(node)) {
            let _ = writeln!(commands, "route replace {range} via {node} proto {PROTOCOL}");
        }
        if !commands.is_empty() {
            // A route that is gone by itself, with its link, is no reason to leave out the others.
            let told = tool::run("ip", &["-force", "-batch", "-"], &commands).await;
            if told.is_err() {
                self.is_prepared = false;
                return told.map(drop);
            }
        }
        self.told = wanted;
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
    let said = tool::run("ip", &["-json", "-4", "addr", "show"], "").await?;
    serde_json::from_slice(&said).map_err(|source| NetError::Read { program: "ip", source })
}

fn network(links: &[Link], address: IpAddr) -> Option<Range> {
    let own = links.iter().flat_map(|it| &it.addr_info).find(|it| it.local == Some(address))?;
    match address {
        IpAddr::V4(address) => Range::around(address, own.prefixlen),
        IpAddr::V6(_) => None,
    }
}

/// The addresses at which the machine itself is reached, without those that stand for Services: agents have the one for names
/// on the loopback link, and upstream's kube-proxy (IPVS) has all cluster IPs on a link of its own.
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

/// The routes that are there already.
async fn standing() -> Result<Wanted, NetError> {
    #[derive(Deserialize)]
    struct Route {
        dst: String,
        gateway: Option<Ipv4Addr>,
    }
    let said = tool::run("ip", &["-json", "-4", "route", "show", "proto", PROTOCOL], "").await?;
    let routes: Vec<Route> =
        serde_json::from_slice(&said).map_err(|source| NetError::Read { program: "ip", source })?;
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
