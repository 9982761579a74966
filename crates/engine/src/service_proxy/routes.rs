//! Where the pods of other nodes are.

use alloc::collections::BTreeMap;
use core::net::Ipv4Addr;

use super::Picture;
use super::facts::Range;

/// By range of pods, the node that they are on.
pub type Routes = BTreeMap<Range, Ipv4Addr>;

/// Rule: a packet for another node's pod is handed to that node, if both are on one network; elsewhere it is for that network
/// to know the way. Of two nodes that claim the same pods, the first by name has them; nobody has one's own, or a node's address.
pub fn routes(picture: &Picture, me: &str, network: Option<Range>) -> Routes {
    let mut routes = Routes::new();
    let own = picture.node(me);
    for (name, node) in &picture.nodes {
        let (Some(address), Some(range), Some(network)) = (node.address, node.range, network) else {
            continue;
        };
        let is_own = **name == *me || own.is_some_and(|it| it.address == Some(address));
        let is_taken = own.and_then(|it| it.range).is_some_and(|it| it.overlaps(range))
            || routes.keys().any(|it| it.overlaps(range))
            || picture.nodes.values().filter_map(|it| it.address).any(|it| range.contains(it));
        if !is_own && !is_taken && network.contains(address) {
            routes.insert(range, address);
        }
    }
    routes
}
