//! What a node makes of the cluster's Services: rules for its packets, answers for its pods' resolvers, and routes to the
//! pods of other nodes.
//!
//! ```text
//! API objects -> Picture -> table::table   -> script: nft's, whole or the difference
//!                        -> names::resolve -> what the DNS server of the node answers
//!                        -> routes::routes -> where the pods of other nodes are
//!                        -> links::links   -> what containers are told in their variables
//! ```

mod facts;
mod links;
mod names;
mod outside;
mod routes;
mod script;
mod table;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;

pub use facts::{Endpoint, Kind, Node, Policy, Port, Protocol, Range, Service, Slice, SlicePort};
pub use links::links;
pub use names::{Answer, Asked, Question, Record, resolve};
pub use routes::{Routes, routes};
pub use table::{Flow, Me, Table, table};

/// All that a node knows of the cluster's Services and nodes.
#[derive(Debug, Default)]
pub struct Picture {
    services: BTreeMap<ObjectKey, Service>,
    /// By the Service that each is of, then by their own names.
    slices: BTreeMap<ObjectKey, BTreeMap<Text, Slice>>,
    /// Which Service a slice was of when it was last seen.
    owners: BTreeMap<ObjectKey, ObjectKey>,
    nodes: BTreeMap<Text, Node>,
}

impl Picture {
    /// Whether anything changed by it; so do all below.
    pub fn put_service(&mut self, key: ObjectKey, service: Service) -> bool {
        self.services.insert(key, service.clone()).as_ref() != Some(&service)
    }

    pub fn remove_service(&mut self, key: &ObjectKey) -> bool {
        self.services.remove(key).is_some()
    }

    pub fn put_slice(&mut self, key: ObjectKey, slice: Option<Slice>) -> bool {
        // A slice of no Service, or of no kind that is served here, is as good as none.
        let Some(slice) = slice else { return self.remove_slice(&key) };
        let owner = ObjectKey { namespace: key.namespace.clone(), name: slice.service.clone() };
        let moved = self.owners.get(&key).is_some_and(|it| *it != owner) && self.remove_slice(&key);
        let of_owner = self.slices.entry(owner.clone()).or_default();
        let changed = of_owner.insert(key.name.clone(), slice.clone()).as_ref() != Some(&slice);
        self.owners.insert(key, owner);
        changed || moved
    }

    pub fn remove_slice(&mut self, key: &ObjectKey) -> bool {
        let Some(owner) = self.owners.remove(key) else { return false };
        let Some(of_owner) = self.slices.get_mut(&owner) else { return false };
        let removed = of_owner.remove(&key.name).is_some();
        if of_owner.is_empty() {
            self.slices.remove(&owner);
        }
        removed
    }

    pub fn put_node(&mut self, name: Text, node: Node) -> bool {
        self.nodes.insert(name, node.clone()).as_ref() != Some(&node)
    }

    pub fn remove_node(&mut self, name: &str) -> bool {
        self.nodes.remove(name).is_some()
    }

    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// Forgets what a whole list did not show.
    pub fn keep_services(&mut self, listed: &BTreeSet<ObjectKey>) -> bool {
        let before = self.services.len();
        self.services.retain(|key, _| listed.contains(key));
        self.services.len() != before
    }

    pub fn keep_slices(&mut self, listed: &BTreeSet<ObjectKey>) -> bool {
        let gone: Vec<ObjectKey> = self.owners.keys().filter(|it| !listed.contains(it)).cloned().collect();
        gone.iter().filter(|key| self.remove_slice(key)).count() != 0
    }

    pub fn keep_nodes(&mut self, listed: &BTreeSet<ObjectKey>) -> bool {
        let names: BTreeSet<&Text> = listed.iter().map(|it| &it.name).collect();
        let before = self.nodes.len();
        self.nodes.retain(|name, _| names.contains(name));
        self.nodes.len() != before
    }

    fn slices_of(&self, service: &ObjectKey) -> impl Iterator<Item = &Slice> {
        self.slices.get(service).into_iter().flat_map(BTreeMap::values)
    }
}

#[cfg(test)]
mod tests;
