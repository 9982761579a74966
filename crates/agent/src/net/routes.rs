//! The machine's own part: the routes to pods of other nodes, the address for names, and what the kernel has to be told.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use muster_engine::services::{Range, Routes as Wanted};
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
    is_bridge_seen: bool,
    is_prepared: bool,
    told: Wanted,
}

impl Routes {
    pub(super) fn new(address: IpAddr) -> Self {
        Self { address, network: None, is_bridge_seen: false, is_prepared: false, told: Wanted::new() }
    }

    pub(super) fn network(&self) -> Option<Range> {
        self.network
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
        self.network = network(self.address).await?;
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

async fn network(address: IpAddr) -> Result<Option<Range>, NetError> {
    #[derive(Deserialize)]
    struct Link {
        #[serde(default)]
        addr_info: Vec<Address>,
    }
    #[derive(Deserialize)]
    struct Address {
        local: Option<IpAddr>,
        prefixlen: u8,
    }
    let said = tool::run("ip", &["-json", "-4", "addr", "show"], "").await?;
    let links: Vec<Link> =
        serde_json::from_slice(&said).map_err(|source| NetError::Read { program: "ip", source })?;
    let own = links.iter().flat_map(|it| &it.addr_info).find(|it| it.local == Some(address));
    Ok(match (own, address) {
        (Some(own), IpAddr::V4(address)) => Range::around(address, own.prefixlen),
        _ => None,
    })
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
