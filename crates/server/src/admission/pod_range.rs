//! Every node that joins has a range of addresses for its pods, and nobody else's. Upstream: the node IPAM controller, which
//! gives it later; here it is there when the node is.

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

/// Each node has 256 addresses. Upstream: `--node-cidr-mask-size`.
const BITS: u8 = 24;

/// What is given to a node is kept for it until its write must have come through.
const PROMISE: SignedDuration = SignedDuration::from_mins(2);

/// The ranges that are taken. Follows the store, so that a new node costs what changed since the last.
#[derive(Debug, Default)]
pub(crate) struct PodRanges(Mutex<AllocatedRanges>);

#[derive(Debug, Default)]
struct AllocatedRanges {
    /// What there is to give; none: nodes bring their own, or have none.
    all: Option<Block>,
    /// So many from the first on are left to nodes that bring theirs.
    left: u32,
    /// Everything up to this revision is in `held`.
    seen: Option<Revision>,
    /// By the node's name.
    held: HashMap<String, Vec<Block>>,
    promised: HashMap<String, (Block, Timestamp)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    first: u32,
    bits: u8,
}

impl PodRanges {
    /// Says of what to give. `Err`: it is no range, or too small to give of.
    pub(crate) fn give_of(&self, range: &str, left: u32) -> Result<(), String> {
        let block = Block::parse(range).filter(|it| (8..=BITS).contains(&it.bits));
        let block = block.ok_or_else(|| {
            format!("{range:?} is no range of 256 addresses or more, such as 10.244.0.0/16")
        })?;
        if block.overlaps(super::service_address::RANGE.into()) {
            return Err(format!("{range} holds addresses of Services, which are in 10.96.0.0/16"));
        }
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (taken.all, taken.left) = (Some(block), left);
        Ok(())
    }

    /// Whether the address is one that pods are given.
    pub(super) fn contains(&self, address: Ipv4Addr) -> bool {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all.is_some_and(|it| it.overlaps(Block { first: address.into(), bits: 32 }))
    }

    /// Another node than `name` whose pods have the address.
    pub(super) fn holder_of_pod(
        &self,
        admission: &Admission,
        now: Timestamp,
        address: Ipv4Addr,
        name: &str,
    ) -> Option<String> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.follow(admission, now);
        let address = Block { first: address.into(), bits: 32 };
        // Blocks of one address are those of nodes themselves.
        taken.holder_among(address, name, |it| it.bits < 32).map(str::to_owned)
    }
}

/// Rule: a node that joins without a range of addresses for its pods is given the lowest that is free; one that it brings itself
/// must be of the cluster's and nobody else's, for all other nodes will send there what is meant for it. Whoever is no node may
/// say what they will.
pub(super) fn mutate(
    admission: &Admission,
    context: &Context,
    attributes: AdmissionAttributes<'_>,
    node: &mut Value,
) -> Result<(), ApiError> {
    let Some(name) = context.user.node() else { return Ok(()) };
    let said: Vec<String> = ranges(node).map(str::to_owned).collect();
    if let Operation::Update { old } = attributes.operation
        && ranges(old).next().is_some()
    {
        // It stays as it is: the checks see to that.
        return Ok(());
    }
    let mut taken = admission.pod_ranges.0.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(all) = taken.all else {
        return match said.is_empty() {
            true => Ok(()),
            false => {
                Err(attributes.forbid(node, "a node cannot choose its spec.podCIDR: this cluster gives none"))
            }
        };
    };
    taken.follow(admission, context.now);
    let block = if said.is_empty() {
        // Where none is left it has none, and whoever looks at its Node sees it.
        let Some(block) = taken.free(all, name) else { return Ok(()) };
        let text = block.to_string();
        let spec = map_mut(node, "spec");
        spec.insert("podCIDR".into(), json!(text));
        spec.insert("podCIDRs".into(), json!([text]));
        block
    } else {
        let block = match &said[..] {
            [one] => Block::parse(one).filter(|it| BITS <= it.bits && all.overlaps(*it)),
            _ => None,
        };
        let Some(block) = block else {
            let why = format!("a node's spec.podCIDR must be one range of at most 256 addresses in {all}");
            return Err(attributes.forbid(node, &why));
        };
        if let Some(other) = taken.holder(block, name) {
            let why = format!("spec.podCIDR {block} holds addresses of node {other:?}");
            return Err(attributes.forbid(node, &why));
        }
        block
    };
    if !context.dry_run {
        taken.promised.insert(name.to_owned(), (block, context.now));
    }
    Ok(())
}

fn ranges(node: &Value) -> impl Iterator<Item = &str> {
    let spec = &node["spec"];
    let all = list(spec, "podCIDRs").iter().filter_map(Value::as_str);
    let one = Some(str_at(spec, "podCIDR")).filter(|it| !it.is_empty() && !is_set(&spec["podCIDRs"]));
    all.chain(one)
}

impl AllocatedRanges {
    /// Another node than this that has any of it.
    fn holder(&self, block: Block, name: &str) -> Option<&str> {
        self.holder_among(block, name, |_| true)
    }

    fn holder_among(&self, block: Block, name: &str, counts: impl Fn(Block) -> bool) -> Option<&str> {
        let held = self.held.iter().flat_map(|(name, blocks)| blocks.iter().map(move |it| (name, *it)));
        let promised = self.promised.iter().map(|(name, (block, _))| (name, *block));
        let mut others = held.chain(promised).filter(|(holder, _)| *holder != name);
        others.find(|(_, it)| counts(*it) && it.overlaps(block)).map(|(holder, _)| holder.as_str())
    }

    fn free(&self, all: Block, name: &str) -> Option<Block> {
        // A node that comes again at once has the same as before.
        if let Some((block, _)) = self.promised.get(name) {
            return Some(*block);
        }
        let count = 1u32 << (BITS - all.bits);
        let mut blocks =
            (self.left..count).map(|it| Block { first: all.first + (it << (32 - BITS)), bits: BITS });
        blocks.find(|it| self.holder(*it, name).is_none())
    }

    fn follow(&mut self, admission: &Admission, now: Timestamp) {
        self.promised.retain(|_, (_, at)| now.duration_since(*at) < PROMISE);
        let kind = Kind::builtin("", "v1", "nodes");
        let news = self.seen.and_then(|seen| admission.storage.since(&kind.prefix(None), seen).ok());
        let Some((events, revision)) = news else {
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

    /// What nodes are reached by is no pod's either.
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
