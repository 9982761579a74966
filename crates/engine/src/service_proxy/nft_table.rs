//! Computes the nftables table of a node. The `nft` script is generated from this table.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt::Write as _;
use core::net::{IpAddr, Ipv4Addr};

use muster_api::cidr::Ipv4Cidr;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;

use super::facts::{Endpoint, Port, Protocol, Service, ServiceType, TrafficPolicy};
use super::reserved_addresses::ReservedAddresses;
use super::{ProxyState, Routes};

/// Name of the network bridge of the node's pods.
pub(super) const BRIDGE_NAME: &str = "cni0";

/// Bit of the packet mark that is set on packets that are to be masqueraded. Upstream: bit 14
/// (`--iptables-masquerade-bit`).
const MASQUERADE_MARK: &str = "0x4000";

/// First rule of every base chain that could redirect or reject a connection. It accepts connections to the API server,
/// so that the node always reaches it.
const ACCEPT_API_SERVER_RULE: &str = "ip daddr . tcp dport @api-server accept";

/// Name, addresses and configuration of the node on which the service proxy runs.
#[derive(Debug, Clone, Default)]
pub struct ThisNode {
    pub name: Text,
    /// Addresses of the node's interfaces, except the address of its DNS server.
    pub addresses: Vec<Ipv4Addr>,
    /// Address of the node's DNS server. `None` if the node runs none.
    pub dns: Option<Ipv4Addr>,
    /// Whether `bridge-nf-call-iptables` is off. If so, packets between two pods of the node bypass the nftables rules.
    /// The replies of an endpoint to a client on the same node are then translated back only if they are routed through
    /// the node.
    pub bridge_netfilter_disabled: bool,
    /// Addresses and ports of the API server.
    pub server: Vec<(Ipv4Addr, u16)>,
    /// CIDRs that the operator allows for the `externalIPs` of Services.
    pub external_ips: Vec<Ipv4Cidr>,
}

/// The nftables table of the service proxy on this node. Rules of other programs are in other tables and are not
/// changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NftTable {
    /// Sets and maps of the table, by name.
    pub(super) sets: BTreeMap<String, NftSet>,
    /// Chains of the table, by name.
    pub(super) chains: BTreeMap<String, NftChain>,
    /// The endpoints of each UDP port of a Service, by destination address and port. The address `None` stands for all
    /// addresses of the node (node ports). [`Self::is_stale_flow`] uses the endpoints to find outdated conntrack
    /// entries.
    flows: BTreeMap<(Option<Ipv4Addr>, u16), BTreeSet<Backend>>,
}

/// A UDP conntrack entry: the original destination, and the endpoint to which the kernel translated it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UdpFlow {
    /// Address and port to which the client sent its packets.
    pub destination: (Ipv4Addr, u16),
    /// Address and port of the endpoint that receives the packets.
    pub backend: (Ipv4Addr, u16),
}

impl NftTable {
    /// Whether the endpoints of UDP ports differ between the tables, so that UDP conntrack entries may be stale after
    /// the table `before` was replaced by this table.
    pub fn changes_udp_endpoints(&self, before: &Self) -> bool {
        self.flows != before.flows
    }

    /// Whether a UDP conntrack entry must be deleted after the table `before` was replaced by this table.
    ///
    /// Rule: the kernel sends packets of a UDP flow to the same endpoint as long as the flow is active. If this
    /// endpoint no longer belongs to the Service, the conntrack entry is deleted, and the next packet goes to another
    /// endpoint. Upstream: `CleanStaleEntries`.
    pub fn is_stale_flow(&self, before: &Self, flow: UdpFlow) -> bool {
        let (address, port) = flow.destination;
        // A flow that was not translated did not match our rules.
        let keys = [(Some(address), port), (None, port)];
        let now = keys.iter().find_map(|it| self.flows.get(it));
        let ever = now.is_some() || keys.iter().any(|it| before.flows.contains_key(it));
        flow.backend != flow.destination && ever && now.is_none_or(|it| !it.contains(&flow.backend))
    }
}

/// A set or map of the nftables table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NftSet {
    /// Whether this is a map, whose elements have values.
    pub(super) is_map: bool,
    /// Type and flags of the set, as in an `nft` script.
    pub(super) declaration: String,
    /// The elements, each with its value. In a set that is not a map, the values are empty.
    pub(super) elements: BTreeMap<String, String>,
}

/// A chain of the nftables table, with its rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NftChain {
    /// Type, hook and priority of a base chain. Empty for other chains.
    pub(super) hook: &'static str,
    pub(super) rules: Vec<String>,
}

/// Address and port of an endpoint.
type Backend = (Ipv4Addr, u16);

/// Builds the nftables table of this node.
///
/// Rule: connections to the cluster IPs, node ports and external addresses of a Service are redirected to its
/// endpoints. Connections to a cluster IP or external address of a Service without endpoints are rejected. If a Service
/// has endpoints, but its traffic policy permits none of them on this node, connections are dropped.
pub fn build_table(state: &ProxyState, me: &ThisNode, routes: &Routes) -> NftTable {
    let reserved = ReservedAddresses::collect(state, me, routes);
    let mut builder = TableBuilder {
        state,
        me,
        table: NftTable::default(),
        reserved,
        used_external_addresses: BTreeSet::new(),
        has_node_dns: me.dns.is_some(),
    };
    builder.declare_sets();
    let mut services: Vec<_> = state.services.iter().collect();
    services.sort_by_key(|(key, service)| (service.created, *key));
    for (key, service) in services {
        if let ServiceType::Cluster(addresses) = &service.kind
            && is_safe_name(key)
        {
            builder.add_service(key, service, addresses);
        }
    }
    builder.add_base_chains(state.node(&me.name).and_then(|it| it.range), routes);
    builder.table
}

/// Returns the endpoints that get traffic with the traffic policy `Cluster`. `me` and `zone` are the name and zone of
/// this node.
///
/// Rule: if every ready endpoint has node hints, and some endpoints have a hint for this node, only these endpoints get
/// traffic. Otherwise, if every ready endpoint has zone hints, and some endpoints have a hint for this node's zone,
/// only these endpoints get traffic. Otherwise all ready endpoints get traffic. If no endpoint is ready, the endpoints
/// that are serving and terminating get traffic. Upstream: `CategorizeEndpoints`.
fn cluster_endpoints<'a>(all: &[PortEndpoint<'a>], me: &str, zone: Option<&str>) -> Vec<PortEndpoint<'a>> {
    let ready: Vec<PortEndpoint<'a>> = all.iter().filter(|it| it.endpoint.ready).copied().collect();
    if ready.is_empty() {
        return all.iter().filter(|it| it.endpoint.is_serving_and_terminating()).copied().collect();
    }
    let is_for_node = |it: &PortEndpoint<'_>| it.endpoint.for_nodes.iter().any(|it| **it == *me);
    let is_for_zone = |it: &PortEndpoint<'_>| it.endpoint.for_zones.iter().any(|it| Some(&**it) == zone);
    let all_have_node_hints = ready.iter().all(|it| !it.endpoint.for_nodes.is_empty());
    let all_have_zone_hints = ready.iter().all(|it| !it.endpoint.for_zones.is_empty());
    if all_have_node_hints && ready.iter().any(is_for_node) {
        return ready.into_iter().filter(is_for_node).collect();
    }
    if all_have_zone_hints && ready.iter().any(is_for_zone) {
        return ready.into_iter().filter(is_for_zone).collect();
    }
    ready
}

/// Returns the endpoints that get traffic with the traffic policy `Local`. `me` is the name of this node.
///
/// Rule: with the traffic policy `Local`, only ready endpoints on this node get traffic. If none of them is ready, the
/// endpoints on this node that are serving and terminating get traffic. If only other nodes have endpoints, traffic is
/// dropped, so that the health check of a load balancer fails. Upstream: `CategorizeEndpoints`.
fn local_endpoints<'a>(all: &[PortEndpoint<'a>], me: &str) -> Vec<PortEndpoint<'a>> {
    let here = || all.iter().filter(|it| it.endpoint.node.as_deref() == Some(me));
    let ready: Vec<PortEndpoint<'a>> = here().filter(|it| it.endpoint.ready).copied().collect();
    if ready.is_empty() {
        here().filter(|it| it.endpoint.is_serving_and_terminating()).copied().collect()
    } else {
        ready
    }
}

/// An endpoint, with the address and port number at which it serves one port of the Service.
#[derive(Clone, Copy)]
struct PortEndpoint<'a> {
    endpoint: &'a Endpoint,
    /// Address and port number of the endpoint.
    backend: Backend,
}

impl Endpoint {
    /// Whether the endpoint still serves while its pod terminates.
    fn is_serving_and_terminating(&self) -> bool {
        self.serving && self.terminating
    }
}

/// Builds the nftables table of a node, Service by Service.
struct TableBuilder<'a> {
    state: &'a ProxyState,
    /// The node on which the service proxy runs.
    me: &'a ThisNode,
    table: NftTable,
    /// Decides for which addresses of a Service rules are written.
    reserved: ReservedAddresses<'a>,
    /// The external addresses, with protocol and port, of the Services that were added. A later Service with the same
    /// address, protocol and port gets no rules for that address and port.
    used_external_addresses: BTreeSet<(Ipv4Addr, Protocol, u16)>,
    /// Whether the node's own DNS server answers at its DNS address. False if the node runs none, or if a Service with
    /// endpoints has that address.
    has_node_dns: bool,
}

impl TableBuilder<'_> {
    /// Adds the sets and maps that the rules of all Services share, without elements.
    fn declare_sets(&mut self) {
        let mut set = |name: &str, is_map, declaration: &str| {
            let set = NftSet { is_map, declaration: declaration.into(), elements: BTreeMap::new() };
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

    /// Adds the rules of a Service. `addresses` are its cluster IPs.
    fn add_service(&mut self, key: &ObjectKey, service: &Service, addresses: &[IpAddr]) {
        let addresses = self.reserved.allowed_cluster_ips(addresses);
        let outside = self.reserved.allowed_external_addresses(service);
        let mut has_endpoints = false;
        for port in &service.ports {
            has_endpoints |= self.add_port(key, service, &addresses, &outside, port);
        }
        for address in addresses {
            // A Service with endpoints at the DNS address replaces the node's DNS server.
            if Some(address) == self.me.dns && has_endpoints {
                self.has_node_dns = false;
            }
            if Some(address) != self.me.dns || has_endpoints {
                self.add_element("cluster-ips", address.to_string(), String::new());
            }
        }
    }

    /// Adds the rules of a Service port. `addresses` are the cluster IPs and `outside` the external addresses of the
    /// Service. Returns whether the port has endpoints that get traffic with at least one of the two traffic policies.
    ///
    /// Rule: if several Services have the same external address and port, the oldest one gets the traffic, also if it
    /// has no endpoints. Of Services that were created in the same second, it is the first one by namespace and name.
    fn add_port(
        &mut self,
        key: &ObjectKey,
        service: &Service,
        addresses: &[Ipv4Addr],
        outside: &[Ipv4Addr],
        port: &Port,
    ) -> bool {
        let mut outside = outside.to_vec();
        outside.retain(|it| self.used_external_addresses.insert((*it, port.protocol, port.number)));
        let outside = &outside[..];
        let all = port_endpoints(self.state, key, port);
        let zone = self.state.node(&self.me.name).and_then(|it| it.zone.as_deref());
        let (cluster, local) =
            (cluster_endpoints(&all, &self.me.name, zone), local_endpoints(&all, &self.me.name));
        let has_any = !cluster.is_empty() || !local.is_empty();
        let name = format!("{}/{}/{}/{}", key.namespace, key.name, port.protocol.as_str(), port.number);
        let used = |policy| match policy {
            TrafficPolicy::Cluster => ("all", !cluster.is_empty()),
            TrafficPolicy::Local => ("local", !local.is_empty()),
        };
        let verdict = match used(service.internal_traffic_policy) {
            (chain, true) => Some(format!("goto {chain}/{name}")),
            (_, false) => has_any.then(|| "drop".into()),
        };
        let protocol = port.protocol.as_str();
        if let Some(verdict) = verdict {
            for address in addresses {
                let element = format!("{address} . {protocol} . {}", port.number);
                self.add_element("services", element, verdict.clone());
            }
        }
        let is_open = port.node_port.is_some() || !outside.is_empty();
        if is_open && has_any {
            self.add_external_chain(service, outside, &name, port, !cluster.is_empty(), !local.is_empty());
        }
        if port.protocol == Protocol::Udp {
            let backends: BTreeSet<Backend> = cluster.iter().chain(&local).map(|it| it.backend).collect();
            let claimed = addresses.iter().chain(outside).map(|it| (Some(*it), port.number));
            for to in claimed.chain(port.node_port.map(|it| (None, it))) {
                self.table.flows.entry(to).or_insert_with(|| backends.clone());
            }
        }
        if !has_any {
            for address in outside {
                let element = format!("{address} . {protocol} . {}", port.number);
                self.add_element("refused", element, String::new());
            }
        }
        if !cluster.is_empty() && (is_open || service.internal_traffic_policy == TrafficPolicy::Cluster) {
            self.add_load_balancing_chain(&format!("all/{name}"), &name, service, port, &cluster);
        }
        let uses_local = service.internal_traffic_policy == TrafficPolicy::Local
            || (is_open && service.external_traffic_policy == TrafficPolicy::Local);
        if !local.is_empty() && uses_local {
            self.add_load_balancing_chain(&format!("local/{name}"), &name, service, port, &local);
        }
        has_any
    }

    /// Adds the chain for external traffic to a Service port: traffic to a node port, an external IP or a load balancer
    /// IP. `outside` are the external addresses of the Service, and `name` identifies the Service port.
    /// `has_cluster_endpoints` is whether endpoints get traffic with the traffic policy `Cluster`, and
    /// `has_local_endpoints` with the policy `Local`.
    fn add_external_chain(
        &mut self,
        service: &Service,
        outside: &[Ipv4Addr],
        name: &str,
        port: &Port,
        has_cluster_endpoints: bool,
        has_local_endpoints: bool,
    ) {
        let chain = format!("out/{name}");
        let protocol = port.protocol.as_str();
        if let Some(node_port) = port.node_port {
            self.add_element("node-ports", format!("{protocol} . {node_port}"), format!("goto {chain}"));
        }
        for address in outside {
            let element = format!("{address} . {protocol} . {}", port.number);
            self.add_element("services", element, format!("goto {chain}"));
        }
        let marked = format!("meta mark set meta mark | {MASQUERADE_MARK}");
        let rules = match service.external_traffic_policy {
            // A pod on another node would reply to the client directly, which would drop the reply.
            TrafficPolicy::Cluster if has_cluster_endpoints => [marked, format!("goto all/{name}")].into(),
            TrafficPolicy::Cluster => ["drop".into()].into(),
            TrafficPolicy::Local => {
                let mut rules = Vec::new();
                // For clients in the cluster, the external address works like the cluster IP.
                if has_cluster_endpoints {
                    rules.push(format!("ip saddr @pods goto all/{name}"));
                    rules.push(format!("fib saddr type local {marked} goto all/{name}"));
                }
                rules.push(if has_local_endpoints { format!("goto local/{name}") } else { "drop".into() });
                rules
            }
        };
        self.table.chains.insert(chain, NftChain { hook: "", rules });
    }

    /// Adds the chain `chain`, which selects an endpoint of `pool` for each new connection. `name` identifies the
    /// Service port.
    fn add_load_balancing_chain(
        &mut self,
        chain: &str,
        name: &str,
        service: &Service,
        port: &Port,
        pool: &[PortEndpoint<'_>],
    ) {
        let own = self.state.node(&self.me.name).and_then(|it| it.range);
        for PortEndpoint { backend: (address, _), .. } in pool {
            if own.is_some_and(|it| it.contains(*address)) {
                self.add_element("hairpins", format!("{address} . {address}"), String::new());
            }
        }
        let protocol = port.protocol.as_str();
        let rules = match (service.affinity, pool) {
            (None, [one]) => {
                let (address, number) = one.backend;
                [format!("meta l4proto {protocol} dnat ip to {address}:{number}")].into()
            }
            (None, _) => {
                let mut map = String::new();
                for (at, PortEndpoint { backend: (address, number), .. }) in pool.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    let _ = write!(map, "{comma}{at} : {address} . {number}");
                }
                let count = pool.len();
                [format!("meta l4proto {protocol} dnat ip to numgen random mod {count} map {{ {map} }}")]
                    .into()
            }
            (Some(timeout), _) => {
                let mut rules = Vec::new();
                let mut map = String::new();
                for (at, PortEndpoint { backend: (address, number), .. }) in pool.iter().enumerate() {
                    let one = format!("{name}/{address}/{number}");
                    let declaration =
                        format!("type ipv4_addr; flags dynamic,timeout; timeout {}s;", timeout.as_secs());
                    let clients = NftSet { is_map: false, declaration, elements: BTreeMap::new() };
                    self.table.sets.insert(format!("clients/{one}"), clients);
                    let single = [
                        format!("update @clients/{one} {{ ip saddr }}"),
                        format!("meta l4proto {protocol} dnat ip to {address}:{number}"),
                    ];
                    let single = NftChain { hook: "", rules: single.into() };
                    self.table.chains.insert(format!("one/{one}"), single);
                    rules.push(format!("ip saddr @clients/{one} goto one/{one}"));
                    let comma = if at == 0 { "" } else { ", " };
                    let _ = write!(map, "{comma}{at} : goto one/{one}");
                }
                rules.push(format!("numgen random mod {} vmap {{ {map} }}", pool.len()));
                rules
            }
        };
        self.table.chains.insert(chain.into(), NftChain { hook: "", rules });
    }

    /// Adds the base chains, which the kernel calls at its hooks, and the chain `balance`, to which `nat-prerouting`
    /// and `nat-output` jump. Also fills the sets `pods` and `api-server`. `own` is the pod CIDR of this node.
    ///
    /// Rule: traffic of pods to destinations outside the pod network is masqueraded, and so is traffic whose replies
    /// would otherwise bypass the node.
    fn add_base_chains(&mut self, own: Option<Ipv4Cidr>, routes: &Routes) {
        for range in own.iter().chain(routes.keys()) {
            self.add_element("pods", range.to_string(), String::new());
        }
        for (address, port) in &self.me.server {
            self.add_element("api-server", format!("{address} . {port}"), String::new());
        }
        // The DNS address is a local address, but has no node ports.
        let not_dns = self.me.dns.map(|it| format!(" ip daddr != {it}")).unwrap_or_default();
        let on_node = format!(
            "fib daddr type local ip daddr != 127.0.0.0/8{not_dns} meta l4proto . th dport vmap @node-ports"
        );
        let mut base = |name: &str, hook, rules: &[&str]| {
            let rules = rules.iter().map(|it| (*it).into()).collect();
            self.table.chains.insert(name.into(), NftChain { hook, rules });
        };
        base("balance", "", &["ip daddr . meta l4proto . th dport vmap @services", &on_node]);
        let marked = format!("meta mark set meta mark | {MASQUERADE_MARK}");
        base(
            "nat-prerouting",
            "type nat hook prerouting priority dstnat;",
            // A pod on another node would reply to a client outside the cluster directly.
            &[
                ACCEPT_API_SERVER_RULE,
                &format!("ip daddr @cluster-ips ip saddr != @pods {marked}"),
                "jump balance",
            ],
        );
        base("nat-output", "type nat hook output priority -100;", &[ACCEPT_API_SERVER_RULE, "jump balance"]);
        let as_node = "masquerade fully-random";
        let mut after = [
            format!(
                "meta mark & {MASQUERADE_MARK} != 0 meta mark set meta mark ^ {MASQUERADE_MARK} {as_node}"
            ),
            // A pod that reaches itself through its Service (hairpin) would drop a packet with its own source address.
            format!("ct status dnat ip saddr . ip daddr @hairpins {as_node}"),
        ]
        .to_vec();
        if let Some(own) = own {
            if self.me.bridge_netfilter_disabled {
                after.push(format!("ct status dnat ip saddr {own} ip daddr {own} {as_node}"));
            }
            after.push(format!("ip saddr {own} ip daddr != @pods oifname != \"{BRIDGE_NAME}\" {as_node}"));
        }
        let after: Vec<&str> = after.iter().map(String::as_str).collect();
        base("nat-postrouting", "type nat hook postrouting priority srcnat;", &after);
        // A packet that still has a Service address here has no endpoint.
        let refuse = [
            ACCEPT_API_SERVER_RULE,
            // Only new connections are rejected. TCP gets a reset: clients retry after any other error.
            "ct state new meta l4proto tcp ip daddr @cluster-ips reject with tcp reset",
            "ct state new ip daddr @cluster-ips reject",
            "ct state new meta l4proto tcp ip daddr . meta l4proto . th dport @refused reject with tcp reset",
            "ct state new ip daddr . meta l4proto . th dport @refused reject",
        ];
        base("filter-forward", "type filter hook forward priority filter;", &refuse);
        base("filter-output", "type filter hook output priority filter;", &refuse);
        // DNS queries bypass conntrack, so that they neither fill its table nor match node ports.
        let dns = self.me.dns.filter(|_| self.has_node_dns);
        let query = dns.map(|it| format!("ip daddr {it} meta l4proto {{ tcp, udp }} th dport 53 notrack"));
        let reply = dns.map(|it| format!("ip saddr {it} meta l4proto {{ tcp, udp }} th sport 53 notrack"));
        let incoming: Vec<&str> = query.iter().map(String::as_str).collect();
        let outgoing: Vec<&str> = query.iter().chain(&reply).map(String::as_str).collect();
        base("raw-prerouting", "type filter hook prerouting priority raw;", &incoming);
        base("raw-output", "type filter hook output priority raw;", &outgoing);
    }

    /// Adds an element with a value to a set or map. An existing element keeps its value.
    fn add_element(&mut self, set: &str, element: String, value: String) {
        if let Some(set) = self.table.sets.get_mut(set) {
            set.elements.entry(element).or_insert(value);
        }
    }
}

/// Returns the IPv4 endpoints of a Service's port, ready or not, without duplicates.
fn port_endpoints<'a>(state: &'a ProxyState, key: &ObjectKey, port: &Port) -> Vec<PortEndpoint<'a>> {
    let mut seen = BTreeSet::new();
    let mut candidates = Vec::new();
    for slice in state.slices_of(key) {
        let same = slice.ports.iter().filter(|it| it.name == port.name && it.protocol == port.protocol);
        for (endpoint, number) in same.flat_map(|port| slice.endpoints.iter().map(|it| (it, port.number))) {
            if let Some(address) = ipv4_of(&endpoint.address)
                && seen.insert((address, number))
            {
                candidates.push(PortEndpoint { endpoint, backend: (address, number) });
            }
        }
    }
    candidates
}

/// Returns the address if it is an IPv4 address. `None` for an IPv6 address, which the service proxy does not support.
pub(super) fn ipv4_of(address: &IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(it) => Some(*it),
        IpAddr::V6(_) => None,
    }
}

/// Whether namespace and name of a Service have 1 to 63 characters, all of them allowed in a DNS label. Other Services
/// get no rules, because namespace and name become part of the `nft` script.
fn is_safe_name(key: &ObjectKey) -> bool {
    let is_safe_name = |it: &str| {
        !it.is_empty()
            && it.len() <= 63
            && it.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
    };
    is_safe_name(&key.namespace) && is_safe_name(&key.name)
}
