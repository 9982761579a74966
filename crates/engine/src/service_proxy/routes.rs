//! Routes to the pods of other nodes.

use alloc::collections::BTreeMap;
use core::net::Ipv4Addr;

use super::ProxyState;
use super::facts::Range;

/// Routes to pods of other nodes: the node's address for each pod CIDR.
pub type Routes = BTreeMap<Range, Ipv4Addr>;

/// Rule: the pod range of another node is routed to that node if both are on one network; else the network routes it.
/// If two nodes claim overlapping ranges, the first by name gets it. A range that overlaps this node's own, or contains
/// a node's address, is ignored.
pub fn routes(state: &ProxyState, me: &str, network: Option<Range>) -> Routes {
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
