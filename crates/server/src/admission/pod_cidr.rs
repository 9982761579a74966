//! Allocates a pod CIDR to a node when the node creates or updates its own Node object. Upstream: the node IPAM
//! controller, which allocates pod CIDRs after the create.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use muster_api::cidr::Ipv4Cidr;
use serde_json::{Value, json};

use super::AdmissionChain;
use super::service_address::SERVICE_RANGE;
use super::{AdmissionAttributes, AdmissionOperation};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::RequestContext;
use crate::storage::{ObjectChange, ObjectChangeReader, PendingAllocations};
use crate::unstructured::{self, is_set, list_at, map_at_mut, str_at};

/// Prefix length of an automatically allocated pod CIDR, which has 256 addresses. A node may choose a longer prefix.
/// Upstream: `--node-cidr-mask-size`.
const NODE_PREFIX_LENGTH: u8 = 24;

/// Allocates pod CIDRs to nodes. Keeps the pod CIDRs and addresses of all stored Nodes in memory, and updates them from
/// the changes in the store, so that an allocation does not list all Nodes.
#[derive(Debug, Default)]
pub(crate) struct PodCidrAllocator(Mutex<PodCidrAllocations>);

/// The pod CIDRs and node addresses in use, and the cluster range to allocate from.
#[derive(Debug, Default)]
struct PodCidrAllocations {
    /// Cluster range from which pod CIDRs are allocated. `None` if the cluster allocates no pod CIDRs.
    cluster_range: Option<Ipv4Cidr>,
    /// Number of pod CIDRs at the start of the cluster range that are never allocated automatically. They are reserved
    /// for nodes that choose their pod CIDR.
    reserved: u32,
    /// Reads the changes of stored Nodes that `allocated` does not include yet.
    nodes: ObjectChangeReader,
    /// Pod CIDRs and node addresses of stored Nodes, by Node name.
    allocated: HashMap<String, Vec<Ipv4Cidr>>,
    /// Recently allocated or chosen pod CIDRs, by Node name. The Node may not be stored yet.
    pending: PendingAllocations<String, Ipv4Cidr>,
}

impl PodCidrAllocator {
    /// Sets the cluster range from which pod CIDRs are allocated, and the number of reserved pod CIDRs at its start.
    pub(crate) fn set_range(&self, range: Ipv4Cidr, reserved: u32) {
        let mut allocations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (allocations.cluster_range, allocations.reserved) = (Some(range), reserved);
    }

    /// Whether the address is in the cluster range from which pod CIDRs are allocated. `false` if the cluster allocates
    /// no pod CIDRs.
    pub(super) fn is_in_cluster_range(&self, address: Ipv4Addr) -> bool {
        let allocations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        allocations.cluster_range.is_some_and(|it| it.contains(address))
    }

    /// Returns the name of a node other than `name` whose pod CIDR contains the address, or `None` if there is none.
    pub(super) fn pod_cidr_owner(
        &self,
        admission: &AdmissionChain,
        now: Timestamp,
        address: Ipv4Addr,
        name: &str,
    ) -> Option<String> {
        let mut allocations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        allocations.sync_nodes(admission, now);
        let address = Ipv4Cidr::new(address, 32);
        // Blocks of a single address are addresses of nodes, not pod CIDRs.
        allocations.overlapping_node_where(address, name, |it| it.prefix_length() < 32).map(str::to_owned)
    }
}

/// Parses a cluster range from which pod CIDRs are allocated. Returns an error message if `range` is not an IPv4 CIDR, if
/// its prefix length is not between 8 and 24, or if it overlaps the Service range.
pub(crate) fn parse_cluster_range(range: &str) -> Result<Ipv4Cidr, String> {
    let block = Ipv4Cidr::parse(range).ok();
    let block = block.filter(|it| (8..=NODE_PREFIX_LENGTH).contains(&it.prefix_length()));
    let block = block
        .ok_or_else(|| format!("{range:?} is not a range of 256 addresses or more such as 10.244.0.0/16"))?;
    if block.overlaps(SERVICE_RANGE) {
        return Err(format!("{range} overlaps the Service range {SERVICE_RANGE}"));
    }
    Ok(block)
}

/// Allocates the pod CIDR of a Node, or checks the pod CIDR that a node chooses.
///
/// Rule: a node that writes its Node without a pod CIDR gets the lowest free pod CIDR that is not reserved. It gets
/// none if all are in use, or if the cluster allocates no pod CIDRs. A pod CIDR that the node chooses must be in the
/// cluster range, because all other nodes route that pod CIDR to this node. For the same reason, it must not overlap
/// the pod CIDR or the address of another node. A Node that already has a pod CIDR keeps it. Other users may set any
/// pod CIDR.
pub(super) fn mutate(
    admission: &AdmissionChain,
    context: &RequestContext,
    attributes: AdmissionAttributes<'_>,
    node: &mut Value,
) -> Result<(), ApiError> {
    let Some(name) = context.user.node_name() else { return Ok(()) };
    let requested: Vec<String> = pod_cidrs(node).map(str::to_owned).collect();
    if let AdmissionOperation::Update { old } = attributes.operation
        && pod_cidrs(old).next().is_some()
    {
        // Validation refuses a change of an existing pod CIDR.
        return Ok(());
    }
    let mut allocations = admission.pod_cidrs.0.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(all) = allocations.cluster_range else {
        return match requested.is_empty() {
            true => Ok(()),
            false => Err(attributes.forbidden(
                node,
                "a node cannot choose its spec.podCIDR: this cluster allocates no pod CIDRs",
            )),
        };
    };
    allocations.sync_nodes(admission, context.now);
    let block = if requested.is_empty() {
        // When no CIDR is free, the Node is created without one.
        let Some(block) = allocations.pending_or_free_cidr(all, name) else { return Ok(()) };
        let text = block.to_string();
        let spec = map_at_mut(node, "spec");
        spec.insert("podCIDR".into(), json!(text));
        spec.insert("podCIDRs".into(), json!([text]));
        block
    } else {
        let block = match &requested[..] {
            [one] => {
                // A block of one address would be taken for the address of a node, see `pod_cidr_owner`.
                let is_pod_range = |it: &Ipv4Cidr| (NODE_PREFIX_LENGTH..32).contains(&it.prefix_length());
                Ipv4Cidr::parse(one).ok().filter(|it| is_pod_range(it) && all.overlaps(*it))
            }
            _ => None,
        };
        let Some(block) = block else {
            let why = format!("a node's spec.podCIDR must be one range of 2 to 256 addresses in {all}");
            return Err(attributes.forbidden(node, &why));
        };
        if let Some(other) = allocations.overlapping_node(block, name) {
            let why = format!("spec.podCIDR {block} overlaps the addresses of node {other:?}");
            return Err(attributes.forbidden(node, &why));
        }
        block
    };
    if !context.dry_run {
        allocations.pending.insert(name.to_owned(), block, context.now);
    }
    Ok(())
}

/// Whether a write gives a Node a pod CIDR or an IPv4 address that `old`, the stored Node, does not have. `old` is null
/// for a create.
pub(super) fn allocates(node: &Value, old: &Value) -> bool {
    let before = occupied_blocks(old);
    occupied_blocks(node).iter().any(|it| !before.contains(it))
}

/// Returns the pod CIDRs and the IPv4 addresses of a Node. An address becomes a block of one address.
fn occupied_blocks(node: &Value) -> Vec<Ipv4Cidr> {
    let addresses = list_at(&node["status"], "addresses").iter();
    let addresses = addresses.filter_map(|it| str_at(it, "address").parse::<Ipv4Addr>().ok());
    let addresses = addresses.map(|it| Ipv4Cidr::new(it, 32));
    pod_cidrs(node).filter_map(|it| Ipv4Cidr::parse(it).ok()).chain(addresses).collect()
}

/// Returns the pod CIDRs in a Node's spec.
fn pod_cidrs(node: &Value) -> impl Iterator<Item = &str> {
    let spec = &node["spec"];
    let all = list_at(spec, "podCIDRs").iter().filter_map(Value::as_str);
    let one = Some(str_at(spec, "podCIDR")).filter(|it| !it.is_empty() && !is_set(&spec["podCIDRs"]));
    all.chain(one)
}

impl PodCidrAllocations {
    /// Returns the name of a node other than `name` whose pod CIDR or address overlaps `block`.
    fn overlapping_node(&self, block: Ipv4Cidr, name: &str) -> Option<&str> {
        self.overlapping_node_where(block, name, |_| true)
    }

    /// Returns the name of a node other than `name` whose pod CIDR or address overlaps `block`. Ignores pod CIDRs and
    /// addresses for which `counts` returns false.
    fn overlapping_node_where(
        &self,
        block: Ipv4Cidr,
        name: &str,
        counts: impl Fn(Ipv4Cidr) -> bool,
    ) -> Option<&str> {
        let allocated =
            self.allocated.iter().flat_map(|(name, blocks)| blocks.iter().map(move |it| (name, *it)));
        let pending = self.pending.iter().map(|(name, block)| (name, *block));
        let mut others = allocated.chain(pending).filter(|(holder, _)| *holder != name);
        others.find(|(_, it)| counts(*it) && it.overlaps(block)).map(|(holder, _)| holder.as_str())
    }

    /// Returns the pending pod CIDR of the node `name` if no other node uses it. Otherwise returns the lowest free pod
    /// CIDR in the cluster range `all` that is not reserved, or `None` if there is none.
    fn pending_or_free_cidr(&self, all: Ipv4Cidr, name: &str) -> Option<Ipv4Cidr> {
        // A retried create gets the same CIDR, unless a node got it through another server.
        if let Some(block) = self.pending.get(name)
            && self.overlapping_node(*block, name).is_none()
        {
            return Some(*block);
        }
        let count = 1u32 << (NODE_PREFIX_LENGTH - all.prefix_length());
        let mut blocks = (self.reserved..count).filter_map(|it| {
            Ipv4Cidr::containing(all.nth(it << (32 - NODE_PREFIX_LENGTH)), NODE_PREFIX_LENGTH)
        });
        blocks.find(|it| self.overlapping_node(*it, name).is_none())
    }

    /// Updates `allocated` from the stored Nodes, and drops expired allocations and those of deleted Nodes from
    /// `pending`.
    ///
    /// `allocated` contains the addresses of Nodes too, so that no node gets a pod CIDR that contains the address of
    /// another node.
    fn sync_nodes(&mut self, admission: &AdmissionChain, now: Timestamp) {
        let Self { nodes, allocated, pending, .. } = self;
        pending.drop_expired(now);
        nodes.for_each_change(&admission.storage, Kind::builtin("", "v1", "nodes"), |change| match change {
            ObjectChange::Reset => allocated.clear(),
            ObjectChange::Put { now, .. } => {
                let node = unstructured::parse_stored(now);
                allocated.insert(str_at(&node, "metadata.name").to_owned(), occupied_blocks(&node));
            }
            ObjectChange::Delete { before } => {
                let gone = unstructured::parse_stored(before);
                allocated.remove(str_at(&gone, "metadata.name"));
                pending.remove(str_at(&gone, "metadata.name"));
            }
        });
    }
}

#[cfg(test)]
mod tests;
