//! Computes the routes to the pods of other nodes.

use alloc::collections::BTreeMap;
use core::net::Ipv4Addr;

use muster_api::cidr::Ipv4Cidr;

use super::ProxyState;

/// Routes to the pods of other nodes. The key is the pod CIDR of a node, and the value is the address of that node.
pub type Routes = BTreeMap<Ipv4Cidr, Ipv4Addr>;

/// Returns the routes of the node with the name `me`. `network` is the CIDR of the network that the node is on. If it
/// is `None`, there are no routes.
///
/// Rule: the pod CIDR of another node gets a route to that node if both nodes are on one network. Otherwise the network
/// routes the CIDR. If the CIDRs of two nodes overlap, only the CIDR of the first node by name gets a route. A CIDR
/// that overlaps this node's own CIDR, or contains the address of a node, is ignored.
pub fn pod_routes(state: &ProxyState, me: &str, network: Option<Ipv4Cidr>) -> Routes {
    let mut routes = Routes::new();
    let own = state.node(me);
    for (name, node) in &state.nodes {
        let (Some(address), Some(range), Some(network)) = (node.address, node.range, network) else {
            continue;
        };
        let is_own = **name == *me || own.is_some_and(|it| it.address == Some(address));
        let is_claimed = own.and_then(|it| it.range).is_some_and(|it| it.overlaps(range))
            || routes.keys().any(|it| it.overlaps(range))
            || state.nodes.values().filter_map(|it| it.address).any(|it| range.contains(it));
        if !is_own && !is_claimed && network.contains(address) {
            routes.insert(range, address);
        }
    }
    routes
}
