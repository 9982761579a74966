//! Index of Node addresses. It is kept in memory and updated from the changes of stored Nodes, so that checking a
//! signing request does not parse every Node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use muster_store::{KeyChange, Revision};
use serde_json::Value;

use super::AccessControl;
use crate::kinds::Kind;
use crate::selector::ObjectSelector;
use crate::unstructured::{self, list_at, str_at};

/// Index of the IP addresses of all Nodes, behind a lock.
#[derive(Debug, Default)]
pub(crate) struct NodeAddresses(Mutex<NodeAddressIndex>);

/// Addresses by Node, and Nodes by address, as of a revision of the store.
#[derive(Debug, Default)]
struct NodeAddressIndex {
    /// Revision of the store up to which changes of Nodes are applied. `None` before the first sync.
    synced_revision: Option<Revision>,
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
        index.nodes_by_address.get(it).is_some_and(|nodes| nodes.len() == 1 && nodes.contains(node))
    })
}

impl NodeAddressIndex {
    /// Applies the changes of stored Nodes since `synced_revision`. Builds the index from all Nodes on the first sync,
    /// and if the store no longer has these changes.
    fn sync_nodes(&mut self, access: &AccessControl) {
        let kind = Kind::builtin("", "v1", "nodes");
        // A commit during the sync is applied again by the next one, with the same result.
        let head = access.storage.revision();
        let events = match self.synced_revision.replace(head) {
            Some(after) => access.storage.events_since(&kind.store_key_prefix(None), after).ok(),
            None => None,
        };
        let Some((events, _)) = events else {
            *self = Self { synced_revision: Some(head), ..Self::default() };
            for node in access.storage.list(kind, None, &ObjectSelector::default()).0 {
                let node = unstructured::parse_stored(&node);
                self.set_addresses(str_at(&node, "metadata.name"), status_addresses(&node));
            }
            return;
        };
        for event in events {
            match &event.change {
                KeyChange::Put { now, .. } => {
                    let node = unstructured::parse_stored(&now.value);
                    self.set_addresses(str_at(&node, "metadata.name"), status_addresses(&node));
                }
                KeyChange::Delete { .. } => {
                    self.set_addresses(event.key.rsplit('/').next().unwrap_or_default(), BTreeSet::new());
                }
            }
        }
    }

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
