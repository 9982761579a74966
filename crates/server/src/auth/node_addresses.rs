//! Index of Node addresses. It is kept in memory and updated from the changes of stored Nodes, so that checking a
//! signing request does not parse every Node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::AccessControl;
use crate::kinds::Kind;
use crate::storage::{ObjectChange, ObjectChangeReader};
use crate::unstructured::{self, list_at, str_at};

/// Index of the IP addresses of all Nodes, behind a lock.
#[derive(Debug, Default)]
pub(crate) struct NodeAddresses(Mutex<NodeAddressIndex>);

/// The addresses of stored Nodes.
#[derive(Debug, Default)]
struct NodeAddressIndex {
    /// Reads the changes of stored Nodes that `entries` does not include yet.
    nodes: ObjectChangeReader,
    entries: NodeAddressEntries,
}

/// Addresses by Node, and Nodes by address.
#[derive(Debug, Default)]
struct NodeAddressEntries {
    /// IP addresses of each Node, by Node name.
    addresses_by_node: BTreeMap<String, BTreeSet<IpAddr>>,
    /// Names of the Nodes that have an IP address, by IP address.
    nodes_by_address: BTreeMap<IpAddr, BTreeSet<String>>,
}

/// Whether the Node has all of the given addresses, and no other Node has any of them.
pub(crate) fn addresses_belong_only_to_node(
    access: &AccessControl,
    node: &str,
    addresses: &[IpAddr],
) -> bool {
    let mut index = access.node_addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
    index.sync_nodes(access);
    addresses.iter().all(|it| {
        index.entries.nodes_by_address.get(it).is_some_and(|nodes| nodes.len() == 1 && nodes.contains(node))
    })
}

impl NodeAddressIndex {
    /// Updates the index from the stored Nodes.
    fn sync_nodes(&mut self, access: &AccessControl) {
        let Self { nodes, entries } = self;
        nodes.for_each_change(&access.storage, Kind::builtin("", "v1", "nodes"), |change| match change {
            ObjectChange::Reset => *entries = NodeAddressEntries::default(),
            ObjectChange::Put { now, .. } => {
                let node = unstructured::parse_stored(now);
                entries.set_addresses(str_at(&node, "metadata.name"), status_addresses(&node));
            }
            ObjectChange::Delete { before } => {
                let node = unstructured::parse_stored(before);
                entries.set_addresses(str_at(&node, "metadata.name"), BTreeSet::new());
            }
        });
    }
}

impl NodeAddressEntries {
    /// Replaces the addresses of a Node. A Node without addresses is removed from the index.
    fn set_addresses(&mut self, name: &str, addresses: BTreeSet<IpAddr>) {
        let before = match addresses.is_empty() {
            true => self.addresses_by_node.remove(name),
            false => self.addresses_by_node.insert(name.to_owned(), addresses.clone()),
        };
        for address in before.iter().flatten().filter(|it| !addresses.contains(it)) {
            if let Some(nodes) = self.nodes_by_address.get_mut(address) {
                nodes.remove(name);
                if nodes.is_empty() {
                    self.nodes_by_address.remove(address);
                }
            }
        }
        for address in addresses {
            self.nodes_by_address.entry(address).or_default().insert(name.to_owned());
        }
    }
}

/// Returns the IP addresses in `status.addresses` of a Node. Host names are left out.
fn status_addresses(node: &Value) -> BTreeSet<IpAddr> {
    list_at(&node["status"], "addresses").iter().filter_map(|it| str_at(it, "address").parse().ok()).collect()
}
