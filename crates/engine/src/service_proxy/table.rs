//! Which packets go where: all of a node's rules as a value, from which nft's script is written.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt::Write as _;
use core::net::{IpAddr, Ipv4Addr};

use muster_api::meta::ObjectKey;
use muster_api::text::Text;

use super::facts::{Endpoint, Kind, Policy, Port, Protocol, Range, Service};
use super::outside::Reserved;
use super::{Picture, Routes};

/// The bridge that the node's pods are on.
pub(super) const BRIDGE: &str = "cni0";

/// Marks packets whose source is to be the node's own address. Upstream: `--iptables-masquerade-bit`, 14.
const MARK: &str = "0x4000";

/// First in every chain that could lead a connection elsewhere or refuse it: the node always reaches its API server.
const TO_SERVER: &str = "ip daddr . tcp dport @api-server accept";

/// What a node knows of itself.
#[derive(Debug, Clone, Default)]
pub struct Me {
    pub name: Text,
    /// The addresses that the node's kernel has, without that of its DNS server.
    pub addresses: Vec<Ipv4Addr>,
    /// Where the node's own DNS server answers; none: it has none.
    pub dns: Option<Ipv4Addr>,
    /// Packets between two pods of the node are not seen by these rules, as the kernel was not told to show them: an answer
    /// would not be recognised as one, unless it goes through the node.
    pub is_bridge_unseen: bool,
    /// Where the node reaches the API server.
    pub server: Vec<(Ipv4Addr, u16)>,
    /// The addresses that `externalIPs` of Services may have.
    pub external_ips: Vec<Range>,
}

/// All rules of a node. What is not a rule of ours is in another table, and not touched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Each with its declaration and its elements, which for a map have values.
    pub(super) sets: BTreeMap<String, Set>,
    pub(super) chains: BTreeMap<String, Chain>,
    /// Where packets of UDP go that were sent to these, as long as their sender does not fall silent.
    flows: BTreeMap<(Option<Ipv4Addr>, u16), BTreeSet<Place>>,
}

/// A flow of packets without connection, as the kernel remembers it: to whom they were sent, and who got them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    pub to: (Ipv4Addr, u16),
    pub got_by: (Ipv4Addr, u16),
}

impl Table {
    /// Whether flows may go astray by the change.
    pub fn moves_flows(&self, before: &Self) -> bool {
        self.flows != before.flows
    }

    /// Rule: a flow of UDP goes on to where it went first, for as long as it is never silent; where that is no endpoint any more, it is
    /// to be forgotten, so that its next packet goes to one that is. Upstream: `CleanStaleEntries`.
    pub fn is_astray(&self, before: &Self, flow: Flow) -> bool {
        let (address, port) = flow.to;
        // What went where it was sent to went by no rule of ours.
        let keys = [(Some(address), port), (None, port)];
        let now = keys.iter().find_map(|it| self.flows.get(it));
        let ever = now.is_some() || keys.iter().any(|it| before.flows.contains_key(it));
        flow.got_by != flow.to && ever && now.is_none_or(|it| !it.contains(&flow.got_by))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) is_map: bool,
    pub(super) declaration: String,
    pub(super) elements: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Chain {
    /// Where packets enter it by themselves.
    pub(super) hook: &'static str,
    pub(super) rules: Vec<String>,
}

type Place = (Ipv4Addr, u16);

/// Rule: a Service's address, and its port on nodes, lead to its endpoints; to none, and the client is told so at once.
pub fn table(picture: &Picture, me: &Me, routes: &Routes) -> Table {
    let reserved = Reserved::of(picture, me, routes);
    let mut making = Making { picture, me, table: Table::default(), reserved, is_dns_ours: me.dns.is_some() };
    making.sets();
    for (key, service) in &picture.services {
        if let Kind::Cluster(addresses) = &service.kind
            && is_plain(key)
        {
            making.service(key, service, addresses);
        }
    }
    making.base(picture.node(&me.name).and_then(|it| it.range), routes);
    making.table
}

/// Rule: traffic goes to ready endpoints, those meant for this node first, then those meant for its zone; where none is ready,
/// to those that are terminating and still serve. Upstream: `CategorizeEndpoints`.
fn anywhere<'a>(all: &[Candidate<'a>], me: &str, zone: Option<&str>) -> Vec<Candidate<'a>> {
    let ready: Vec<Candidate<'a>> = all.iter().filter(|it| it.endpoint.ready).copied().collect();
    if ready.is_empty() {
        return all.iter().filter(|it| it.endpoint.is_leaving()).copied().collect();
    }
    let is_for_me = |it: &Candidate<'_>| it.endpoint.for_nodes.iter().any(|it| **it == *me);
    let is_for_zone = |it: &Candidate<'_>| it.endpoint.for_zones.iter().any(|it| Some(&**it) == zone);
    let all_say_nodes = ready.iter().all(|it| !it.endpoint.for_nodes.is_empty());
    let all_say_zones = ready.iter().all(|it| !it.endpoint.for_zones.is_empty());
    if all_say_nodes && ready.iter().any(is_for_me) {
        return ready.into_iter().filter(is_for_me).collect();
    }
    if all_say_zones && ready.iter().any(is_for_zone) {
        return ready.into_iter().filter(is_for_zone).collect();
    }
    ready
}

/// Rule: where a Service keeps traffic on the node that sees it, only the endpoints there take it, and where there are none
/// it is dropped, for a client must not take another node's silence for an answer. Upstream: `CategorizeEndpoints`.
fn here<'a>(all: &[Candidate<'a>], me: &str) -> Vec<Candidate<'a>> {
    let here = || all.iter().filter(|it| it.endpoint.node.as_deref() == Some(me));
    let ready: Vec<Candidate<'a>> = here().filter(|it| it.endpoint.ready).copied().collect();
    if ready.is_empty() { here().filter(|it| it.endpoint.is_leaving()).copied().collect() } else { ready }
}

/// An endpoint, with what is behind one port of its Service.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    endpoint: &'a Endpoint,
    place: Place,
}

impl Endpoint {
    fn is_leaving(&self) -> bool {
        self.serving && self.terminating
    }
}

struct Making<'a> {
    picture: &'a Picture,
    me: &'a Me,
    table: Table,
    reserved: Reserved<'a>,
    is_dns_ours: bool,
}

impl Making<'_> {
    fn sets(&mut self) {
        let mut set = |name: &str, is_map, declaration: &str| {
            let set = Set { is_map, declaration: declaration.into(), elements: BTreeMap::new() };
            self.table.sets.insert(name.into(), set);
        };
        set("services", true, "type ipv4_addr . inet_proto . inet_service : verdict;");
        set("node-ports", true, "type inet_proto . inet_service : verdict;");
        set("cluster-ips", false, "type ipv4_addr;");
        set("api-server", false, "type ipv4_addr . inet_service;");
        set("refused", false, "type ipv4_addr . inet_proto . inet_service;");
        set("pods", false, "type ipv4_addr; flags interval;");
        set("hairpins", false, "type ipv4_addr . ipv4_addr;");
    }

    fn service(&mut self, key: &ObjectKey, service: &Service, addresses: &[IpAddr]) {
        let addresses = self.reserved.cluster_ips(addresses);
        let outside = self.reserved.outside(service);
        let mut has_endpoints = false;
        for port in &service.ports {
            has_endpoints |= self.port(key, service, &addresses, &outside, port);
        }
        for address in addresses {
            // Somebody else serves DNS where there is a Service for it with something behind it.
            if Some(address) == self.me.dns && has_endpoints {
                self.is_dns_ours = false;
            }
            if Some(address) != self.me.dns || has_endpoints {
                self.element("cluster-ips", address.to_string(), String::new());
            }
        }
    }

    /// Whether there is anything behind the port.
    fn port(
        &mut self,
        key: &ObjectKey,
        service: &Service,
        addresses: &[Ipv4Addr],
        outside: &[Ipv4Addr],
        port: &Port,
    ) -> bool {
        let all = candidates(self.picture, key, port);
        let zone = self.picture.node(&self.me.name).and_then(|it| it.zone.as_deref());
        let (anywhere, here) = (anywhere(&all, &self.me.name, zone), here(&all, &self.me.name));
        let has_any = !anywhere.is_empty() || !here.is_empty();
        let name = format!("{}/{}/{}/{}", key.namespace, key.name, port.protocol.as_str(), port.number);
        let used = |policy| match policy {
            Policy::Anywhere => ("all", !anywhere.is_empty()),
            Policy::Local => ("local", !here.is_empty()),
        };
        let verdict = match used(service.from_inside) {
            (chain, true) => Some(format!("goto {chain}/{name}")),
            (_, false) => has_any.then(|| "drop".into()),
        };
        let protocol = port.protocol.as_str();
        if let Some(verdict) = verdict {
            for address in addresses {
                let element = format!("{address} . {protocol} . {}", port.number);
                self.element("services", element, verdict.clone());
            }
        }
        let is_open = port.on_nodes.is_some() || !outside.is_empty();
        if is_open && has_any {
            self.outside(service, outside, &name, port, !anywhere.is_empty(), !here.is_empty());
        }
        if port.protocol == Protocol::Udp {
            let places: BTreeSet<Place> = anywhere.iter().chain(&here).map(|it| it.place).collect();
            let claimed = addresses.iter().chain(outside).map(|it| (Some(*it), port.number));
            for to in claimed.chain(port.on_nodes.map(|it| (None, it))) {
                self.table.flows.entry(to).or_insert_with(|| places.clone());
            }
        }
        if !has_any {
            for address in outside {
                let element = format!("{address} . {protocol} . {}", port.number);
                self.element("refused", element, String::new());
            }
        }
        if !anywhere.is_empty() && (is_open || service.from_inside == Policy::Anywhere) {
            self.pool(&format!("all/{name}"), &name, service, port, &anywhere);
        }
        let is_kept_here =
            service.from_inside == Policy::Local || (is_open && service.from_outside == Policy::Local);
        if !here.is_empty() && is_kept_here {
            self.pool(&format!("local/{name}"), &name, service, port, &here);
        }
        has_any
    }

    /// What comes from outside of the cluster, to a port of the node or to an address that leads to it.
    fn outside(
        &mut self,
        service: &Service,
        outside: &[Ipv4Addr],
        name: &str,
        port: &Port,
        any: bool,
        here: bool,
    ) {
        let chain = format!("out/{name}");
        let protocol = port.protocol.as_str();
        if let Some(on_nodes) = port.on_nodes {
            self.element("node-ports", format!("{protocol} . {on_nodes}"), format!("goto {chain}"));
        }
        for address in outside {
            let element = format!("{address} . {protocol} . {}", port.number);
            self.element("services", element, format!("goto {chain}"));
        }
        let marked = format!("meta mark set meta mark | {MARK}");
        let rules = match service.from_outside {
            // Another node's pod would answer the client itself, who knows nothing of it.
            Policy::Anywhere if any => [marked, format!("goto all/{name}")].into(),
            Policy::Anywhere => ["drop".into()].into(),
            Policy::Local => {
                let mut rules = Vec::new();
                // To those who are inside, the outer address is as good as the inner one.
                if any {
                    rules.push(format!("ip saddr @pods goto all/{name}"));
                    rules.push(format!("fib saddr type local {marked} goto all/{name}"));
                }
                rules.push(if here { format!("goto local/{name}") } else { "drop".into() });
                rules
            }
        };
        self.table.chains.insert(chain, Chain { hook: "", rules });
    }

    /// The chain that gives each new connection one of the endpoints.
    fn pool(&mut self, chain: &str, name: &str, service: &Service, port: &Port, pool: &[Candidate<'_>]) {
        let own = self.picture.node(&self.me.name).and_then(|it| it.range);
        for Candidate { place: (address, _), .. } in pool {
            if own.is_some_and(|it| it.contains(*address)) {
                self.element("hairpins", format!("{address} . {address}"), String::new());
            }
        }
        let protocol = port.protocol.as_str();
        let rules = match (service.affinity, pool) {
            (None, [one]) => {
                let (address, number) = one.place;
                [format!("meta l4proto {protocol} dnat ip to {address}:{number}")].into()
            }
            (None, _) => {
                let mut map = String::new();
                for (at, Candidate { place: (address, number), .. }) in pool.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    let _ = write!(map, "{comma}{at} : {address} . {number}");
                }
                let count = pool.len();
                [format!("meta l4proto {protocol} dnat ip to numgen random mod {count} map {{ {map} }}")]
                    .into()
            }
            (Some(for_long), _) => {
                let mut rules = Vec::new();
                let mut map = String::new();
                for (at, Candidate { place: (address, number), .. }) in pool.iter().enumerate() {
                    let one = format!("{name}/{address}/{number}");
                    let declaration =
                        format!("type ipv4_addr; flags dynamic,timeout; timeout {}s;", for_long.as_secs());
                    let clients = Set { is_map: false, declaration, elements: BTreeMap::new() };
                    self.table.sets.insert(format!("clients/{one}"), clients);
                    let to_one = [
                        format!("update @clients/{one} {{ ip saddr }}"),
                        format!("meta l4proto {protocol} dnat ip to {address}:{number}"),
                    ];
                    let to_one = Chain { hook: "", rules: to_one.into() };
                    self.table.chains.insert(format!("one/{one}"), to_one);
                    rules.push(format!("ip saddr @clients/{one} goto one/{one}"));
                    let comma = if at == 0 { "" } else { ", " };
                    let _ = write!(map, "{comma}{at} : goto one/{one}");
                }
                rules.push(format!("numgen random mod {} vmap {{ {map} }}", pool.len()));
                rules
            }
        };
        self.table.chains.insert(chain.into(), Chain { hook: "", rules });
    }

    /// Rule: what leaves the node for a place that does not know its pods goes under the node's own address, and so does what
    /// would else be answered past the node.
    fn base(&mut self, own: Option<Range>, routes: &Routes) {
        for range in own.iter().chain(routes.keys()) {
            self.element("pods", range.to_string(), String::new());
        }
        for (address, port) in &self.me.server {
            self.element("api-server", format!("{address} . {port}"), String::new());
        }
        // The address for names is one of the node's own, and no port of it is a node port.
        let not_dns = self.me.dns.map(|it| format!(" ip daddr != {it}")).unwrap_or_default();
        let on_node = format!(
            "fib daddr type local ip daddr != 127.0.0.0/8{not_dns} meta l4proto . th dport vmap @node-ports"
        );
        let mut base = |name: &str, hook, rules: &[&str]| {
            let rules = rules.iter().map(|it| (*it).into()).collect();
            self.table.chains.insert(name.into(), Chain { hook, rules });
        };
        base("balance", "", &["ip daddr . meta l4proto . th dport vmap @services", &on_node]);
        let marked = format!("meta mark set meta mark | {MARK}");
        base(
            "nat-prerouting",
            "type nat hook prerouting priority dstnat;",
            // A pod on another node would answer one outside itself.
            &[TO_SERVER, &format!("ip daddr @cluster-ips ip saddr != @pods {marked}"), "jump balance"],
        );
        base("nat-output", "type nat hook output priority -100;", &[TO_SERVER, "jump balance"]);
        let as_node = "masquerade fully-random";
        let mut after = [
            format!("meta mark & {MARK} != 0 meta mark set meta mark ^ {MARK} {as_node}"),
            // A pod that reaches itself through its Service would not take a packet of its own for an answer.
            format!("ct status dnat ip saddr . ip daddr @hairpins {as_node}"),
        ]
        .to_vec();
        if let Some(own) = own {
            if self.me.is_bridge_unseen {
                after.push(format!("ct status dnat ip saddr {own} ip daddr {own} {as_node}"));
            }
            after.push(format!("ip saddr {own} ip daddr != @pods oifname != \"{BRIDGE}\" {as_node}"));
        }
        let after: Vec<&str> = after.iter().map(String::as_str).collect();
        base("nat-postrouting", "type nat hook postrouting priority srcnat;", &after);
        // What still has such an address after all of the above leads nowhere.
        let refuse = [
            TO_SERVER,
            // Connections that stand are left alone. Of anything less than a reset a client thinks that it might pass.
            "ct state new meta l4proto tcp ip daddr @cluster-ips reject with tcp reset",
            "ct state new ip daddr @cluster-ips reject",
            "ct state new meta l4proto tcp ip daddr . meta l4proto . th dport @refused reject with tcp reset",
            "ct state new ip daddr . meta l4proto . th dport @refused reject",
        ];
        base("filter-forward", "type filter hook forward priority filter;", &refuse);
        base("filter-output", "type filter hook output priority filter;", &refuse);
        // Questions are many and short: nothing is remembered of them, and no port of a pod's takes them away.
        let dns = self.me.dns.filter(|_| self.is_dns_ours);
        let ask = dns.map(|it| format!("ip daddr {it} meta l4proto {{ tcp, udp }} th dport 53 notrack"));
        let answer = dns.map(|it| format!("ip saddr {it} meta l4proto {{ tcp, udp }} th sport 53 notrack"));
        let came: Vec<&str> = ask.iter().map(String::as_str).collect();
        let went: Vec<&str> = ask.iter().chain(&answer).map(String::as_str).collect();
        base("raw-prerouting", "type filter hook prerouting priority raw;", &came);
        base("raw-output", "type filter hook output priority raw;", &went);
    }

    fn element(&mut self, set: &str, element: String, value: String) {
        if let Some(set) = self.table.sets.get_mut(set) {
            // Two Services may claim one address of the outside: the first one by name has it.
            set.elements.entry(element).or_insert(value);
        }
    }
}

/// What is behind a port of a Service, each place once.
fn candidates<'a>(picture: &'a Picture, key: &ObjectKey, port: &Port) -> Vec<Candidate<'a>> {
    let mut seen = BTreeSet::new();
    let mut candidates = Vec::new();
    for slice in picture.slices_of(key) {
        let same = slice.ports.iter().filter(|it| it.name == port.name && it.protocol == port.protocol);
        for (endpoint, number) in same.flat_map(|port| slice.endpoints.iter().map(|it| (it, port.number))) {
            if let Some(address) = v4(&endpoint.address)
                && seen.insert((address, number))
            {
                candidates.push(Candidate { endpoint, place: (address, number) });
            }
        }
    }
    candidates
}

pub(super) fn v4(address: &IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(it) => Some(*it),
        IpAddr::V6(_) => None,
    }
}

/// Names become part of a script: what the API server would never let through goes no further.
fn is_plain(key: &ObjectKey) -> bool {
    let is_plain = |it: &str| {
        !it.is_empty()
            && it.len() <= 63
            && it.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
    };
    is_plain(&key.namespace) && is_plain(&key.name)
}
