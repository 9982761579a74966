//! The service proxy of a node: computes nftables rules, DNS answers, routes and environment variables from Services,
//! EndpointSlices and nodes.
//!
//! ```text
//! API objects -> ProxyState -> nft_table::build_table     -> nft_script: the whole table, or the changes
//!                           -> dns::resolve               -> answers of the node's DNS server
//!                           -> routes::pod_routes         -> routes to the pods of other nodes
//!                           -> env_vars::service_env_vars -> environment variables of containers
//!                           -> api_servers::api_server_addresses -> API servers to which the agent can connect
//! ```

/// Finds the API servers of the cluster.
mod api_servers;
/// Resolves DNS names in the cluster domain.
mod dns;
/// Computes the environment variables of containers for Services.
mod env_vars;
/// Decodes Services, EndpointSlices and nodes.
mod facts;
/// Writes the `nft` script that creates or changes the table.
mod nft_script;
/// Computes the nftables table of a node: its sets, maps, chains and rules.
mod nft_table;
/// Decides for which addresses of a Service the proxy writes rules.
mod reserved_addresses;
/// Computes the routes to the pods of other nodes.
mod routes;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;

pub use api_servers::api_server_addresses;
pub use dns::{Answer, QueryType, Question, Record, resolve};
pub use env_vars::service_env_vars;
pub use facts::{Endpoint, Node, Port, Protocol, Service, ServiceType, Slice, SlicePort, TrafficPolicy};
pub use nft_table::{NftTable, ThisNode, UdpFlow, build_table};
pub use routes::{Routes, pod_routes};

/// State of the service proxy: the cluster's Services, EndpointSlices and nodes.
#[derive(Debug, Default)]
pub struct ProxyState {
    services: BTreeMap<ObjectKey, Service>,
    /// EndpointSlices by the key of their Service, then by the name of the slice.
    slices: BTreeMap<ObjectKey, BTreeMap<Text, Slice>>,
    /// The key of the Service of each EndpointSlice, by the key of the slice.
    owners: BTreeMap<ObjectKey, ObjectKey>,
    /// The nodes by name.
    nodes: BTreeMap<Text, Node>,
}

impl ProxyState {
    /// Adds or updates a Service. Returns whether the state changed.
    pub fn put_service(&mut self, key: ObjectKey, service: Service) -> bool {
        self.services.insert(key, service.clone()).as_ref() != Some(&service)
    }

    /// Removes a Service. Returns whether it existed.
    pub fn remove_service(&mut self, key: &ObjectKey) -> bool {
        self.services.remove(key).is_some()
    }

    /// Adds or updates an EndpointSlice, or removes it if `slice` is `None`. Returns whether the state changed.
    pub fn put_slice(&mut self, key: ObjectKey, slice: Option<Slice>) -> bool {
        // A slice without a Service, or with FQDN addresses, is ignored.
        let Some(slice) = slice else { return self.remove_slice(&key) };
        let owner = ObjectKey { namespace: key.namespace.clone(), name: slice.service.clone() };
        let moved = self.owners.get(&key).is_some_and(|it| *it != owner) && self.remove_slice(&key);
        let of_owner = self.slices.entry(owner.clone()).or_default();
        let changed = of_owner.insert(key.name.clone(), slice.clone()).as_ref() != Some(&slice);
        self.owners.insert(key, owner);
        changed || moved
    }

    /// Removes an EndpointSlice. Returns whether it existed.
    pub fn remove_slice(&mut self, key: &ObjectKey) -> bool {
        let Some(owner) = self.owners.remove(key) else { return false };
        let Some(of_owner) = self.slices.get_mut(&owner) else { return false };
        let removed = of_owner.remove(&key.name).is_some();
        if of_owner.is_empty() {
            self.slices.remove(&owner);
        }
        removed
    }

    /// Adds or updates a node. Returns whether the state changed.
    pub fn put_node(&mut self, name: Text, node: Node) -> bool {
        self.nodes.insert(name, node.clone()).as_ref() != Some(&node)
    }

    /// Removes a node. Returns whether it existed.
    pub fn remove_node(&mut self, name: &str) -> bool {
        self.nodes.remove(name).is_some()
    }

    /// Returns the node with this name. `None` if there is no such node.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// Removes the Services that are not in `listed`. Returns whether the state changed.
    pub fn retain_services(&mut self, listed: &BTreeSet<ObjectKey>) -> bool {
        let before = self.services.len();
        self.services.retain(|key, _| listed.contains(key));
        self.services.len() != before
    }

    /// Removes the EndpointSlices that are not in `listed`. Returns whether the state changed.
    pub fn retain_slices(&mut self, listed: &BTreeSet<ObjectKey>) -> bool {
        let gone: Vec<ObjectKey> = self.owners.keys().filter(|it| !listed.contains(it)).cloned().collect();
        gone.iter().filter(|key| self.remove_slice(key)).count() != 0
    }

    /// Removes the nodes that are not in `listed`. Returns whether the state changed.
    pub fn retain_nodes(&mut self, listed: &BTreeSet<ObjectKey>) -> bool {
        let names: BTreeSet<&Text> = listed.iter().map(|it| &it.name).collect();
        let before = self.nodes.len();
        self.nodes.retain(|name, _| names.contains(name));
        self.nodes.len() != before
    }

    /// Returns the EndpointSlices of a Service.
    fn slices_of(&self, service: &ObjectKey) -> impl Iterator<Item = &Slice> {
        self.slices.get(service).into_iter().flat_map(BTreeMap::values)
    }
}

#[cfg(test)]
mod tests;
