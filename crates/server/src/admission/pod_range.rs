//! Allocates a pod CIDR to every Node when it is created. Upstream: the node IPAM controller, which allocates it after
//! the create.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use muster_store::{Change, Revision};
use serde_json::{Value, json};

use super::Admission;
use super::{AdmissionAttributes, Operation};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::Context;
use crate::selector::Selector;
use crate::unstructured::{self, is_set, list, map_mut, str_at};

/// Prefix length of a node's pod CIDR: 256 addresses for each node. Upstream: `--node-cidr-mask-size`.
const BITS: u8 = 24;

/// How long an allocation counts although its Node is not stored yet. A write is committed or has failed by then.
const PROMISE: SignedDuration = SignedDuration::from_mins(2);

/// Allocates pod CIDRs to nodes. Follows the changes of stored Nodes, so that an allocation does not list all Nodes.
#[derive(Debug, Default)]
pub(crate) struct PodRanges(Mutex<AllocatedRanges>);

/// The pod CIDRs in use, and the range to allocate from.
#[derive(Debug, Default)]
struct AllocatedRanges {
    /// The range to allocate from. `None`: nodes choose their pod CIDR or have none.
    all: Option<Block>,
    /// Number of CIDRs at the start of the range that are reserved for nodes that choose their own.
    left: u32,
    /// Stored Nodes up to this revision are in `allocated`.
    seen: Option<Revision>,
    /// Pod CIDRs and node addresses of stored Nodes, by Node name.
    held: HashMap<String, Vec<Block>>,
    /// CIDRs allocated to Nodes that are not stored yet, by Node name, with the time of allocation.
    promised: HashMap<String, (Block, Timestamp)>,
}

/// An IPv4 address range: its first address as a number, and its prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    first: u32,
    bits: u8,
}

impl PodRanges {
    /// Sets the range to allocate from. Fails if it is not a CIDR, is too small, or overlaps the Service range.
    pub(crate) fn give_of(&self, range: &str, reserved: u32) -> Result<(), String> {
        let block = Block::parse(range).filter(|it| (8..=BITS).contains(&it.bits));
        let block = block.ok_or_else(|| {
            format!("{range:?} is not a range of 256 addresses or more such as 10.244.0.0/16")
        })?;
        if block.overlaps(super::service_address::RANGE.into()) {
            return Err(format!("{range} overlaps the Service range 10.96.0.0/16"));
        }
        let mut allocations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (allocations.all, allocations.left) = (Some(block), reserved);
        Ok(())
    }

    /// Whether the address is in the cluster's pod range.
    pub(super) fn contains(&self, address: Ipv4Addr) -> bool {
        let allocations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        allocations.all.is_some_and(|it| it.overlaps(Block { first: address.into(), bits: 32 }))
    }

    /// Name of a node other than `name` whose pod CIDR contains the address.
    pub(super) fn holder_of_pod(
        &self,
        admission: &Admission,
        now: Timestamp,
        address: Ipv4Addr,
        name: &str,
    ) -> Option<String> {
        let mut allocations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        allocations.follow(admission, now);
        let address = Block { first: address.into(), bits: 32 };
        // Blocks of a single address are addresses of nodes, not pod CIDRs.
        allocations.holder_among(address, name, |it| it.bits < 32).map(str::to_owned)
    }
}

/// Rule: a node that creates its Node without a pod CIDR gets the lowest free one. A CIDR that the node chooses must be
/// in the cluster's range and must not overlap that of another node, because all other nodes route it to this node.
/// Other users may set any CIDR.
pub(super) fn mutate(
    admission: &Admission,
    context: &Context,
    attributes: AdmissionAttributes<'_>,
    node: &mut Value,
) -> Result<(), ApiError> {
    let Some(name) = context.user.node() else { return Ok(()) };
    let requested: Vec<String> = ranges(node).map(str::to_owned).collect();
    if let Operation::Update { old } = attributes.operation
        && ranges(old).next().is_some()
    {
        // Validation refuses a change of an existing pod CIDR.
        return Ok(());
    }
    let mut allocations = admission.pod_ranges.0.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(all) = allocations.all else {
        return match requested.is_empty() {
            true => Ok(()),
            false => Err(attributes
                .forbid(node, "a node cannot choose its spec.podCIDR: this cluster allocates no pod CIDRs")),
        };
    };
    allocations.follow(admission, context.now);
    let block = if requested.is_empty() {
        // When no CIDR is free, the Node is created without one.
        let Some(block) = allocations.free(all, name) else { return Ok(()) };
        let text = block.to_string();
        let spec = map_mut(node, "spec");
        spec.insert("podCIDR".into(), json!(text));
        spec.insert("podCIDRs".into(), json!([text]));
        block
    } else {
        let block = match &requested[..] {
            [one] => Block::parse(one).filter(|it| BITS <= it.bits && all.overlaps(*it)),
            _ => None,
        };
        let Some(block) = block else {
            let why = format!("a node's spec.podCIDR must be one range of at most 256 addresses in {all}");
            return Err(attributes.forbid(node, &why));
        };
        if let Some(other) = allocations.holder(block, name) {
            let why = format!("spec.podCIDR {block} overlaps the addresses of node {other:?}");
            return Err(attributes.forbid(node, &why));
        }
        block
    };
    if !context.dry_run {
        allocations.promised.insert(name.to_owned(), (block, context.now));
    }
    Ok(())
}

/// The pod CIDRs in a Node's spec.
fn ranges(node: &Value) -> impl Iterator<Item = &str> {
    let spec = &node["spec"];
    let all = list(spec, "podCIDRs").iter().filter_map(Value::as_str);
    let one = Some(str_at(spec, "podCIDR")).filter(|it| !it.is_empty() && !is_set(&spec["podCIDRs"]));
    all.chain(one)
}

impl AllocatedRanges {
    /// A node other than `name` whose pod CIDR or addresses overlap the block.
    fn holder(&self, block: Block, name: &str) -> Option<&str> {
        self.holder_among(block, name, |_| true)
    }

    /// A node other than `name` that has an overlapping block for which `counts` returns true.
    fn holder_among(&self, block: Block, name: &str, counts: impl Fn(Block) -> bool) -> Option<&str> {
        let allocated = self.held.iter().flat_map(|(name, blocks)| blocks.iter().map(move |it| (name, *it)));
        let pending = self.promised.iter().map(|(name, (block, _))| (name, *block));
        let mut others = allocated.chain(pending).filter(|(holder, _)| *holder != name);
        others.find(|(_, it)| counts(*it) && it.overlaps(block)).map(|(holder, _)| holder.as_str())
    }

    /// The lowest free CIDR of a node's size in `all`.
    fn free(&self, all: Block, name: &str) -> Option<Block> {
        // A retried create gets the same CIDR.
        if let Some((block, _)) = self.promised.get(name) {
            return Some(*block);
        }
        let count = 1u32 << (BITS - all.bits);
        let mut blocks =
            (self.left..count).map(|it| Block { first: all.first + (it << (32 - BITS)), bits: BITS });
        blocks.find(|it| self.holder(*it, name).is_none())
    }

    /// Applies the changes of stored Nodes since the last call, and drops expired pending allocations.
    fn follow(&mut self, admission: &Admission, now: Timestamp) {
        self.promised.retain(|_, (_, at)| now.duration_since(*at) < PROMISE);
        let kind = Kind::builtin("", "v1", "nodes");
        let changes = self.seen.and_then(|seen| admission.storage.since(&kind.prefix(None), seen).ok());
        let Some((events, revision)) = changes else {
            let (nodes, revision) = admission.storage.list(kind, None, &Selector::default());
            self.held.clear();
            for node in &nodes {
                self.put(&unstructured::parse(node));
            }
            self.seen = Some(revision);
            return;
        };
        for event in events {
            match &event.change {
                Change::Put { now, .. } => self.put(&unstructured::parse(&now.value)),
                Change::Delete { before, .. } => {
                    let gone = unstructured::parse(&before.value);
                    self.held.remove(str_at(&gone, "metadata.name"));
                    self.promised.remove(str_at(&gone, "metadata.name"));
                }
            }
        }
        self.seen = Some(revision);
    }

    /// Records the pod CIDRs and addresses of a stored Node. Addresses of nodes are excluded from pod CIDRs.
    fn put(&mut self, node: &Value) {
        let addresses = list(&node["status"], "addresses").iter();
        let addresses = addresses.filter_map(|it| str_at(it, "address").parse::<Ipv4Addr>().ok());
        let addresses = addresses.map(|it| Block { first: it.into(), bits: 32 });
        let blocks = ranges(node).filter_map(Block::parse).chain(addresses).collect();
        self.held.insert(str_at(node, "metadata.name").to_owned(), blocks);
    }
}

impl Block {
    fn parse(text: &str) -> Option<Self> {
        let (first, bits) = text.split_once('/')?;
        let block = Self { first: first.parse::<Ipv4Addr>().ok()?.into(), bits: bits.parse().ok()? };
        (block.bits <= 32 && block.first & !block.mask() == 0).then_some(block)
    }

    fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0)
    }

    fn overlaps(self, other: Self) -> bool {
        let mask = self.mask() & other.mask();
        self.first & mask == other.first & mask
    }
}

impl From<(u32, u8)> for Block {
    fn from((first, bits): (u32, u8)) -> Self {
        Self { first, bits }
    }
}

impl std::fmt::Display for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.first), self.bits)
    }
}

#[cfg(test)]
mod tests;
