//! Index of Node addresses, synced with changes of Nodes, so that checking a signing request does not parse every Node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use muster_store::{Change, Revision};
use serde_json::Value;

use super::Access;
use crate::kinds::Kind;
use crate::selector::Selector;
use crate::unstructured::{self, list, str_at};

/// Index of Node addresses, behind a lock.
#[derive(Debug, Default)]
pub(crate) struct NodeAddresses(Mutex<Index>);

/// Addresses by Node, and Nodes by address, as of a revision.
#[derive(Debug, Default)]
struct Index {
    seen: Option<Revision>,
    by_node: BTreeMap<String, BTreeSet<IpAddr>>,
    nodes: BTreeMap<IpAddr, BTreeSet<String>>,
}

/// Whether the Node has all of these addresses, and no other Node has one of them.
pub(crate) fn are_of_node_alone(access: &Access, node: &str, addresses: &[IpAddr]) -> bool {
    let mut index = access.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
    index.catch_up(access);
    addresses
        .iter()
        .all(|it| index.nodes.get(it).is_some_and(|nodes| nodes.len() == 1 && nodes.contains(node)))
}

impl Index {
    /// Syncs the index with the store.
    fn catch_up(&mut self, access: &Access) {
        let kind = Kind::builtin("", "v1", "nodes");
        // A commit during the sync is applied again by the next one, with the same result.
        let head = access.storage.revision();
        let events = match self.seen.replace(head) {
            Some(after) => access.storage.since(&kind.prefix(None), after).ok(),
            None => None,
        };
        let Some((events, _)) = events else {
            *self = Self { seen: Some(head), ..Self::default() };
            for node in access.storage.list(kind, None, &Selector::default()).0 {
                let node = unstructured::parse(&node);
                self.set(str_at(&node, "metadata.name"), addresses(&node));
            }
            return;
        };
        for event in events {
            match &event.change {
                Change::Put { now, .. } => {
                    let node = unstructured::parse(&now.value);
                    self.set(str_at(&node, "metadata.name"), addresses(&node));
                }
                Change::Delete { .. } => {
                    self.set(event.key.rsplit('/').next().unwrap_or_default(), BTreeSet::new());
                }
            }
        }
    }

    /// Replaces the addresses of a Node; none removes it.
    fn set(&mut self, name: &str, now: BTreeSet<IpAddr>) {
        let before = match now.is_empty() {
            true => self.by_node.remove(name),
            false => self.by_node.insert(name.to_owned(), now.clone()),
        };
        for address in before.iter().flatten().filter(|it| !now.contains(it)) {
            if let Some(nodes) = self.nodes.get_mut(address) {
                nodes.remove(name);
                if nodes.is_empty() {
                    self.nodes.remove(address);
                }
            }
        }
        for address in now {
            self.nodes.entry(address).or_default().insert(name.to_owned());
        }
    }
}

/// The IP addresses in a Node's status.
fn addresses(node: &Value) -> BTreeSet<IpAddr> {
    list(&node["status"], "addresses").iter().filter_map(|it| str_at(it, "address").parse().ok()).collect()
}
