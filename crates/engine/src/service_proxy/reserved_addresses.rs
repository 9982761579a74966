//! Decides for which addresses of a Service the proxy writes rules. Reserved addresses, such as the address of the API
//! server, get no rules.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use muster_api::cidr::Ipv4Cidr;

use super::facts::{Service, ServiceType};
use super::nft_table::{ThisNode, ipv4_of};
use super::{ProxyState, Routes};

/// The addresses that a Service must not use, and the `externalIPs` that the operator allows. They determine for which
/// addresses of a Service the proxy writes rules. An external address must not be a cluster IP, or the address of the
/// API server, of a node, of a pod or of the node's DNS server, and `externalIPs` must be allowed by the operator. A
/// cluster IP must not belong to the API server, to this node or to its pods. No address may be special, such as a
/// loopback address.
pub(super) struct ReservedAddresses<'a> {
    /// Addresses of the API server and of the interfaces of this node, which the agent knows without API objects.
    own: BTreeSet<Ipv4Addr>,
    /// The pod CIDR of this node. `None` if the node has no IPv4 pod CIDR.
    own_pods: Option<Ipv4Cidr>,
    /// Addresses of all nodes of the cluster, from their Node objects.
    nodes: BTreeSet<Ipv4Addr>,
    /// The IPv4 pod CIDRs of all nodes of the cluster.
    pods: Vec<Ipv4Cidr>,
    /// The cluster IPs of all Services, and the address of the node's DNS server.
    cluster_ips: BTreeSet<Ipv4Addr>,
    /// The CIDRs that the operator allows for the `externalIPs` of Services.
    allowed: &'a [Ipv4Cidr],
}

impl<'a> ReservedAddresses<'a> {
    /// Collects the reserved addresses from the API objects and from the configuration of this node (`me`).
    pub(super) fn collect(state: &ProxyState, me: &'a ThisNode, routes: &Routes) -> Self {
        let nodes = state.nodes.values().flat_map(|it| it.addresses.iter().copied());
        let here = me.addresses.iter().copied();
        let servers = me.server.iter().map(|it| it.0);
        let ranges = state.nodes.values().filter_map(|it| it.range);
        let services = state.services.values().filter_map(|it| match &it.kind {
            ServiceType::Cluster(addresses) => Some(addresses),
            ServiceType::Headless | ServiceType::External(_) => None,
        });
        Self {
            own: here.chain(servers).collect(),
            own_pods: state.node(&me.name).and_then(|it| it.range),
            nodes: nodes.collect(),
            pods: ranges.chain(routes.keys().copied()).collect(),
            cluster_ips: services.flatten().filter_map(ipv4_of).chain(me.dns).collect(),
            allowed: &me.external_ips,
        }
    }

    /// Returns the external IPs and load balancer IPs of a Service for which the proxy writes rules.
    ///
    /// Rule: an external address of a Service gets rules only if it is not special (such as a loopback address), not a
    /// cluster IP, and not the address of the API server, of a node, of a pod or of the node's DNS server. An address
    /// of `externalIPs` must also be in a CIDR that the operator allowed. Upstream writes rules for all external
    /// addresses (CVE-2020-8554).
    pub(super) fn allowed_external_addresses(&self, service: &Service) -> Vec<Ipv4Addr> {
        let is_allowed = |it: &&Ipv4Addr| self.allowed.iter().any(|range| range.contains(**it));
        let named = service.external_ips.iter().filter(is_allowed);
        let all: BTreeSet<Ipv4Addr> = named.chain(&service.ingress).copied().collect();
        let is_free = |it: &Ipv4Addr| {
            !self.is_reserved_on_this_node(*it)
                && !self.nodes.contains(it)
                && !self.pods.iter().any(|range| range.contains(*it))
                && !self.cluster_ips.contains(it)
        };
        all.into_iter().filter(is_free).collect()
    }

    /// Returns the IPv4 cluster IPs in `addresses` for which the proxy writes rules.
    ///
    /// Rule: an IPv4 cluster IP gets rules unless it is special or the address of the API server, of this node or of a
    /// pod on this node. A cluster IP that is the address of another node gets rules. Otherwise any node could disable
    /// a Service on all other nodes, because each node writes the addresses in its own Node object.
    pub(super) fn allowed_cluster_ips(&self, addresses: &[IpAddr]) -> Vec<Ipv4Addr> {
        addresses.iter().filter_map(ipv4_of).filter(|it| !self.is_reserved_on_this_node(*it)).collect()
    }

    /// Whether the address is special (loopback, link-local, multicast …), or belongs to the API server, to this node
    /// or to a pod on this node.
    fn is_reserved_on_this_node(&self, address: Ipv4Addr) -> bool {
        let is_special = address.is_loopback()
            || address.is_link_local()
            || address.is_multicast()
            || address.is_broadcast()
            || address.octets()[0] == 0;
        is_special || self.own.contains(&address) || self.own_pods.is_some_and(|it| it.contains(address))
    }
}
