//! Routes to the pods of other nodes, the cluster DNS address on the loopback interface, and kernel settings.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use muster_api::cidr::Ipv4Cidr;
use muster_engine::service_proxy::Routes;
use serde::Deserialize;

use super::{NetworkError, command};

/// Protocol number that marks the agent's routes in the kernel. No routing daemon uses this number.
const ROUTE_PROTOCOL: &str = "77";

/// Kernel setting that allows IPv4 forwarding.
const IP_FORWARD_PATH: &str = "/proc/sys/net/ipv4/ip_forward";
/// Kernel setting with which nftables rules apply to bridged packets.
const BRIDGE_NF_PATH: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// The applied routes to the pods of other nodes, and the host state that they depend on.
#[derive(Debug)]
pub(super) struct PodRoutes {
    /// The node's InternalIP.
    address: IpAddr,
    /// The network of the interface that has the node's address. `None` if it is unknown.
    node_network: Option<Ipv4Cidr>,
    /// The machine's own IPv4 addresses.
    node_addresses: Vec<Ipv4Addr>,
    /// Whether nftables rules apply to the packets that are bridged between the node's pods (sysctl
    /// `bridge-nf-call-iptables`).
    is_bridge_filtered: bool,
    /// Whether [`PodRoutes::prepare_host`] has prepared the host since the last check of the routes, and no change of
    /// routes has failed since.
    is_prepared: bool,
    /// The agent's routes in the kernel, as they were last read or applied.
    applied: Routes,
}

impl PodRoutes {
    pub(super) fn new(address: IpAddr) -> Self {
        let (node_network, own, applied) = (None, Vec::new(), Routes::new());
        Self {
            address,
            node_network,
            node_addresses: own,
            is_bridge_filtered: false,
            is_prepared: false,
            applied,
        }
    }

    /// Returns the network of the interface that has the node's address, or `None` if it is unknown.
    pub(super) fn node_network(&self) -> Option<Ipv4Cidr> {
        self.node_network
    }

    /// Returns the machine's own IPv4 addresses.
    pub(super) fn node_addresses(&self) -> &[Ipv4Addr] {
        &self.node_addresses
    }

    /// Whether nftables rules apply to the packets that are bridged between the node's pods (sysctl
    /// `bridge-nf-call-iptables`).
    pub(super) fn is_bridge_filtered(&self) -> bool {
        self.is_bridge_filtered
    }

    /// Adds the cluster DNS address `dns`, if there is one, to the loopback interface, enables IPv4 forwarding, and
    /// enables nftables rules for bridged packets if the kernel supports this. Then reads the machine's addresses and
    /// the agent's routes. Does nothing if the host is already prepared.
    pub(super) async fn prepare_host(&mut self, dns: Option<IpAddr>) -> Result<(), NetworkError> {
        if self.is_prepared {
            return Ok(());
        }
        enable_sysctl(IP_FORWARD_PATH)
            .map_err(|source| NetworkError::Write { path: IP_FORWARD_PATH.to_owned(), source })?;
        if !Path::new(BRIDGE_NF_PATH).exists() {
            // The module may be missing; then traffic between pods of the node is routed through the node.
            let _ = command::run_program("modprobe", &["br_netfilter"], "").await;
        }
        self.is_bridge_filtered = enable_sysctl(BRIDGE_NF_PATH).is_ok();
        if let Some(dns) = dns {
            let bits = if dns.is_ipv4() { 32 } else { 128 };
            command::run_program("ip", &["addr", "replace", &format!("{dns}/{bits}"), "dev", "lo"], "")
                .await?;
        }
        let links = read_interfaces().await?;
        self.node_network = network_of_address(&links, self.address);
        self.node_addresses = machine_addresses(&links);
        self.applied = read_routes().await?;
        self.is_prepared = true;
        Ok(())
    }

    /// Compares the applied routes with the kernel's routes, and logs a difference. Also marks the host as not
    /// prepared, so that the next [`PodRoutes::prepare_host`] restores the DNS address and IP forwarding and reads the
    /// routes, and the next [`PodRoutes::apply_routes`] restores missing or changed routes.
    pub(super) async fn check_routes(&mut self) {
        if !self.is_prepared {
            return;
        }
        match read_routes().await {
            Ok(found) if found != self.applied => {
                let missing =
                    self.applied.iter().filter(|(range, node)| found.get(range) != Some(node)).count();
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

    /// Adds, changes and removes routes in the kernel, so that the agent's routes are `desired`.
    pub(super) async fn apply_routes(&mut self, desired: Routes) -> Result<(), NetworkError> {
        let mut commands = String::new();
        for range in self.applied.keys().filter(|it| !desired.contains_key(it)) {
            let _ = writeln!(commands, "route del {range} proto {ROUTE_PROTOCOL}");
        }
        for (range, node) in desired.iter().filter(|(range, node)| self.applied.get(range) != Some(node)) {
            let _ = writeln!(commands, "route replace {range} via {node} proto {ROUTE_PROTOCOL}");
        }
        if !commands.is_empty() {
            // `-force`: a route that disappeared with its link must not stop the other commands.
            let done = command::run_program("ip", &["-force", "-batch", "-"], &commands).await;
            if done.is_err() {
                self.is_prepared = false;
                return done.map(drop);
            }
        }
        self.applied = desired;
        Ok(())
    }
}

/// Sets a kernel setting to 1.
fn enable_sysctl(path: &str) -> std::io::Result<()> {
    if std::fs::read_to_string(path)?.trim() == "1" { Ok(()) } else { std::fs::write(path, "1") }
}

/// A network interface in the output of `ip -json addr show`.
#[derive(Deserialize)]
struct Interface {
    #[serde(default)]
    ifname: String,
    #[serde(default)]
    addr_info: Vec<InterfaceAddress>,
}

/// An address of a network interface in the output of `ip -json addr show`.
#[derive(Deserialize)]
struct InterfaceAddress {
    local: Option<IpAddr>,
    prefixlen: u8,
}

/// Reads the network interfaces and their IPv4 addresses.
async fn read_interfaces() -> Result<Vec<Interface>, NetworkError> {
    let output = command::run_program("ip", &["-json", "-4", "addr", "show"], "").await?;
    serde_json::from_slice(&output).map_err(|source| NetworkError::ParseOutput { program: "ip", source })
}

/// Returns the network of the interface that has this address. Returns `None` for an IPv6 address, and if no interface
/// has the address.
fn network_of_address(links: &[Interface], address: IpAddr) -> Option<Ipv4Cidr> {
    let own = links.iter().flat_map(|it| &it.addr_info).find(|it| it.local == Some(address))?;
    match address {
        IpAddr::V4(address) => Ipv4Cidr::containing(address, own.prefixlen),
        IpAddr::V6(_) => None,
    }
}

/// Returns the IPv4 addresses of the machine's interfaces, except `lo` and `kube-ipvs0`. These two have addresses of
/// Services: the cluster DNS address, and the cluster IPs that kube-proxy in IPVS mode adds.
fn machine_addresses(links: &[Interface]) -> Vec<Ipv4Addr> {
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
async fn read_routes() -> Result<Routes, NetworkError> {
    /// A route in the output of `ip -json route show`.
    #[derive(Deserialize)]
    struct Route {
        dst: String,
        gateway: Option<Ipv4Addr>,
    }
    let output =
        command::run_program("ip", &["-json", "-4", "route", "show", "proto", ROUTE_PROTOCOL], "").await?;
    let routes: Vec<Route> = serde_json::from_slice(&output)
        .map_err(|source| NetworkError::ParseOutput { program: "ip", source })?;
    Ok(routes.iter().filter_map(|it| Some((Ipv4Cidr::parse(&it.dst).ok()?, it.gateway?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_those_of_links_that_stand_for_no_service() {
        let links: Vec<Interface> = serde_json::from_str(
            r#"[{"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "prefixlen": 8}, {"local": "10.96.0.10", "prefixlen": 32}]},
                {"ifname": "eth0", "addr_info": [{"local": "172.30.0.1", "prefixlen": 24}]},
                {"ifname": "kube-ipvs0", "addr_info": [{"local": "10.96.0.1", "prefixlen": 32}]},
                {"ifname": "cni0", "addr_info": [{"local": "10.244.1.1", "prefixlen": 24}]}, {}]"#,
        )
        .unwrap();
        assert_eq!(machine_addresses(&links), [Ipv4Addr::new(172, 30, 0, 1), Ipv4Addr::new(10, 244, 1, 1)]);
        assert_eq!(network_of_address(&links, [172, 30, 0, 1].into()), Ipv4Cidr::parse("172.30.0.0/24").ok());
        assert_eq!(network_of_address(&links, [172, 30, 0, 2].into()), None);
    }
}
