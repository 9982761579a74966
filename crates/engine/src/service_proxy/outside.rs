//! Which addresses may lead to a Service.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use super::facts::{Kind, Range, Service};
use super::table::{Me, v4};
use super::{Picture, Routes};

/// Addresses that belong to something else than the Service which claims them.
pub(super) struct Reserved<'a> {
    /// The API server and this node, as the node's own configuration and kernel say.
    own: BTreeSet<Ipv4Addr>,
    own_pods: Option<Range>,
    /// All nodes, as their Node objects say.
    nodes: BTreeSet<Ipv4Addr>,
    pods: Vec<Range>,
    cluster_ips: BTreeSet<Ipv4Addr>,
    allowed: &'a [Range],
}

impl<'a> Reserved<'a> {
    pub(super) fn of(picture: &Picture, me: &'a Me, routes: &Routes) -> Self {
        let nodes = picture.nodes.values().flat_map(|it| it.addresses.iter().copied());
        let here = me.addresses.iter().copied();
        let servers = me.server.iter().map(|it| it.0);
        let ranges = picture.nodes.values().filter_map(|it| it.range);
        let services = picture.services.values().filter_map(|it| match &it.kind {
            Kind::Cluster(addresses) => Some(addresses),
            Kind::Headless | Kind::External(_) => None,
        });
        Self {
            own: here.chain(servers).collect(),
            own_pods: picture.node(&me.name).and_then(|it| it.range),
            nodes: nodes.collect(),
            pods: ranges.chain(routes.keys().copied()).collect(),
            cluster_ips: services.flatten().filter_map(v4).chain(me.dns).collect(),
            allowed: &me.external_ips,
        }
    }

    /// Rule: an address from outside of the cluster leads to a Service only if it belongs to nothing else: not to the API
    /// server, a node, a pod or any Service's cluster IP. Those of `externalIPs` must also be in a range that the operator
    /// allowed. Upstream programs all of them (CVE-2020-8554).
    pub(super) fn outside(&self, service: &Service) -> Vec<Ipv4Addr> {
        let is_allowed = |it: &&Ipv4Addr| self.allowed.iter().any(|range| range.contains(**it));
        let named = service.external_ips.iter().filter(is_allowed);
        let all: BTreeSet<Ipv4Addr> = named.chain(&service.ingress).copied().collect();
        let is_free = |it: &Ipv4Addr| {
            !self.is_own(*it)
                && !self.nodes.contains(it)
                && !self.pods.iter().any(|range| range.contains(*it))
                && !self.cluster_ips.contains(it)
        };
        all.into_iter().filter(is_free).collect()
    }

    /// Rule: a cluster IP leads to its Service unless it is the address of the API server, of this node or of a pod on it. What
    /// other Nodes claim does not count: each node writes its own Node, and could take any Service away from all others.
    pub(super) fn cluster_ips(&self, addresses: &[IpAddr]) -> Vec<Ipv4Addr> {
        addresses.iter().filter_map(v4).filter(|it| !self.is_own(*it)).collect()
    }

    /// Whether the address is special, or belongs to the API server, to this node or to a pod on it.
    fn is_own(&self, address: Ipv4Addr) -> bool {
        let is_special = address.is_loopback()
            || address.is_link_local()
            || address.is_multicast()
            || address.is_broadcast()
            || address.octets()[0] == 0;
        is_special || self.own.contains(&address) || self.own_pods.is_some_and(|it| it.contains(address))
    }
}
