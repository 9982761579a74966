//! What a node's conditions say, as taints: those who place pods and those who send them off read nothing else.

use alloc::vec::Vec;

use muster_api::text::Text;
use muster_api::time::Time;

use super::decode::{Condition, Node, Taint};
use crate::daemonset::facts::Truth;

pub(super) const NO_SCHEDULE: &str = "NoSchedule";
pub(super) const NO_EXECUTE: &str = "NoExecute";

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The conditions that keep pods away, by what they say.
const BY_CONDITION: [(Condition, Truth, &str); 6] = [
    (Condition::Ready, Truth::False, NOT_READY),
    (Condition::Ready, Truth::Unknown, UNREACHABLE),
    (Condition::MemoryPressure, Truth::True, "node.kubernetes.io/memory-pressure"),
    (Condition::DiskPressure, Truth::True, "node.kubernetes.io/disk-pressure"),
    (Condition::PidPressure, Truth::True, "node.kubernetes.io/pid-pressure"),
    (Condition::NetworkUnavailable, Truth::True, "node.kubernetes.io/network-unavailable"),
];

/// Whether pods are sent off a node that is not ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendOff {
    /// Its turn has come.
    Now,
    /// It has not: only a node whose pods are being sent off already is told the right reason.
    Later,
    /// From no node: there is none that they could go to.
    Never,
}

/// Rule: each condition that is not as it should be, and a cordon, keep pods away by a taint of its own (`NoSchedule`),
/// which goes when the cause does. A node that is not ready, or not heard of, also sends off the pods that do not
/// tolerate it (`NoExecute`), when its turn has come. The taints of others stay as they are.
/// `None`: they are as they should be. Upstream: `doNoScheduleTaintingPass`, `processTaintBaseEviction`.
pub(super) fn wanted(node: &Node, send_off: SendOff, now: Time) -> Option<Vec<Taint>> {
    let mut wanted: Vec<Taint> = Vec::new();
    for taint in &node.taints {
        if keeps(node, taint, send_off) {
            wanted.push(taint.clone());
        }
    }
    let has = |wanted: &[Taint], key: &str, effect: &str| {
        wanted.iter().any(|it| *it.key == *key && *it.effect == *effect)
    };
    let added = Some(Text::from(now.to_rfc3339()));
    for key in keeping_away(node) {
        if !has(&wanted, key, NO_SCHEDULE) {
            wanted.push(taint(key, NO_SCHEDULE, added.clone()));
        }
    }
    if let Some(key) = trouble(node).filter(|it| !has(&wanted, it, NO_EXECUTE)) {
        // Its pods have been on their way since the first trouble: another reason gives them no more time.
        let before = node.sending_off().find(|it| is_trouble(&it.key));
        let is_due = match send_off {
            SendOff::Now => true,
            SendOff::Later => before.is_some(),
            SendOff::Never => false,
        };
        if is_due {
            wanted.push(taint(key, NO_EXECUTE, before.and_then(|it| it.added.clone()).or(added)));
        }
    }
    (wanted != node.taints).then_some(wanted)
}

/// Whether a node that is not ready still waits for its turn.
pub(super) fn waits(node: &Node) -> bool {
    trouble(node).is_some() && !node.sending_off().any(|it| is_trouble(&it.key))
}

/// Whether a taint is one that the trouble of the node itself puts there.
pub(super) fn is_trouble(key: &str) -> bool {
    matches!(key, NOT_READY | UNREACHABLE)
}

fn keeps(node: &Node, taint: &Taint, send_off: SendOff) -> bool {
    match &*taint.effect {
        NO_SCHEDULE => !is_ours(&taint.key) || keeping_away(node).any(|it| *it == *taint.key),
        NO_EXECUTE if is_trouble(&taint.key) => match (node.ready(), trouble(node)) {
            _ if send_off == SendOff::Never => false,
            // Nobody has said anything yet.
            (None, _) => true,
            (_, trouble) => trouble == Some(&*taint.key),
        },
        _ => true,
    }
}

fn keeping_away(node: &Node) -> impl Iterator<Item = &'static str> {
    let said = BY_CONDITION.iter().filter(|(it, says, _)| node.conditions.get(*it) == Some(*says));
    said.map(|(_, _, key)| *key).chain(node.unschedulable.then_some(UNSCHEDULABLE))
}

fn is_ours(key: &str) -> bool {
    key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, _, it)| *it == key)
}

/// Why pods would be sent off.
fn trouble(node: &Node) -> Option<&'static str> {
    match node.ready()? {
        Truth::True => None,
        Truth::False => Some(NOT_READY),
        Truth::Unknown => Some(UNREACHABLE),
    }
}

fn taint(key: &str, effect: &str, added: Option<Text>) -> Taint {
    Taint { key: key.into(), value: "".into(), effect: effect.into(), added }
}
