//! Does a pod fit on a node?

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::meta::ObjectKey;
use muster_api::taints::{Effect, Taint};
use muster_api::text::Text;

use super::around::Around;
use super::rooms::Room;
use super::{Pod, Port, Scheduler};
use crate::daemonset::placement;

/// Why a pod does not fit on a node, in the order in which it is asked.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unfit {
    Cordoned,
    Tainted,
    NotWanted,
    PortTaken,
    Short(Vec<Lack>),
    /// The node lacks the label that says in which place it is.
    Nowhere,
    TooUneven,
    NoCompany,
    TooClose,
    TooCloseForOthers,
}

/// What a node has too little of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lack {
    Pods,
    /// `is_too_small`: even if nobody else were on it.
    Of {
        resource: Text,
        is_too_small: bool,
    },
}

impl Unfit {
    /// Whether the pods that are there could be in the way.
    pub(super) fn others_are_in_the_way(&self) -> bool {
        match self {
            Self::Cordoned | Self::Tainted | Self::NotWanted | Self::Nowhere | Self::NoCompany => false,
            Self::Short(lacks) => !lacks.iter().any(|it| matches!(it, Lack::Of { is_too_small: true, .. })),
            Self::PortTaken | Self::TooUneven | Self::TooClose | Self::TooCloseForOthers => true,
        }
    }

    /// Whether it matters which pods are elsewhere.
    pub(super) fn is_about_others_elsewhere(&self) -> bool {
        matches!(
            self,
            Self::Nowhere | Self::TooUneven | Self::NoCompany | Self::TooClose | Self::TooCloseForOthers
        )
    }

    /// In upstream's words, which tools look for.
    pub(super) fn reasons(&self) -> Vec<String> {
        let reason = match self {
            Self::Cordoned => "node(s) were unschedulable",
            Self::Tainted => "node(s) had untolerated taint(s)",
            Self::NotWanted => "node(s) didn't match Pod's node affinity/selector",
            Self::PortTaken => "node(s) didn't have free ports for the requested pod ports",
            Self::Short(lacks) => return lacks.iter().map(Lack::reason).collect(),
            Self::Nowhere => "node(s) didn't match pod topology spread constraints (missing required label)",
            Self::TooUneven => "node(s) didn't match pod topology spread constraints",
            Self::NoCompany => "node(s) didn't match pod affinity rules",
            Self::TooClose => "node(s) didn't match pod anti-affinity rules",
            Self::TooCloseForOthers => "node(s) didn't satisfy existing pods anti-affinity rules",
        };
        [reason.into()].into()
    }
}

impl Lack {
    fn reason(&self) -> String {
        match self {
            Self::Pods => "Too many pods".into(),
            Self::Of { resource, .. } => format!("Insufficient {resource}"),
        }
    }
}

/// Rule: a pod fits on a node that is open to it, has the labels, ports and amounts it asks for, and the right pods
/// around it. `without` are pods of the node taken to be gone.
pub(super) fn check(
    all: &Scheduler,
    pod: &Pod,
    around: &Around,
    room: &Room,
    without: &BTreeSet<ObjectKey>,
) -> Result<(), Unfit> {
    check_alone(all, pod, room, without)?;
    around.check(all, pod, room, without)
}

/// The same, whatever pods are on other nodes.
pub(super) fn check_alone(
    all: &Scheduler,
    pod: &Pod,
    room: &Room,
    without: &BTreeSet<ObjectKey>,
) -> Result<(), Unfit> {
    is_open(pod, room)?;
    placement::wanted(&pod.wants.node_selector, &pod.wants.affinity, &room.node.fact)
        .map_err(|_| Unfit::NotWanted)?;
    has_ports(all, pod, room, without)?;
    has_room(all, pod, room, without)
}

/// Rule: an untolerated taint keeps the pod away, and so does a cordon, unless its taint is tolerated.
fn is_open(pod: &Pod, room: &Room) -> Result<(), Unfit> {
    let cordon = || Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        value: "".into(),
        effect: Effect::NoSchedule,
    };
    if room.node.unschedulable && !placement::tolerates(&pod.wants.tolerations, &cordon()) {
        return Err(Unfit::Cordoned);
    }
    if is_tolerated(pod, room) { Ok(()) } else { Err(Unfit::Tainted) }
}

pub(super) fn is_tolerated(pod: &Pod, room: &Room) -> bool {
    let keeps_away = |it: &&Taint| matches!(it.effect, Effect::NoSchedule | Effect::NoExecute);
    let mut taints = room.node.fact.taints.iter().filter(keeps_away);
    taints.all(|it| placement::tolerates(&pod.wants.tolerations, it))
}

/// Rule: a node that was made free for a pod is kept free for it: those of its own priority or below count it as if it
/// were there.
pub(super) fn expected<'a>(all: &'a Scheduler, pod: &Pod, room: &Room) -> Vec<&'a Arc<Pod>> {
    let expected = all.queue.nominated(room.name());
    expected.filter(|it| it.key != pod.key && pod.priority <= it.priority).collect()
}

/// Rule: two pods on one node cannot have the same port of it.
fn has_ports(all: &Scheduler, pod: &Pod, room: &Room, without: &BTreeSet<ObjectKey>) -> Result<(), Unfit> {
    if pod.wants.ports.is_empty() {
        return Ok(());
    }
    let expected = expected(all, pod, room);
    let present = room.pods.values().filter(|it| !without.contains(&it.key));
    let mut taken = present.chain(expected).flat_map(|it| &it.wants.ports);
    let meets = |port: &Port| pod.wants.ports.iter().any(|it| it.meets(port));
    if taken.any(meets) { Err(Unfit::PortTaken) } else { Ok(()) }
}

/// Rule: what all pods of a node ask for, together and of each resource, is no more than the node has to give; and so
/// is their number.
fn has_room(all: &Scheduler, pod: &Pod, room: &Room, without: &BTreeSet<ObjectKey>) -> Result<(), Unfit> {
    let given = |name: &str| room.node.allocatable.get(name).copied().unwrap_or(0);
    let expected = expected(all, pod, room);
    let mut lacks = Vec::new();
    let count = (room.pods.len() + expected.len()).saturating_sub(without.len()).saturating_add(1);
    if given("pods") < i64::try_from(count).unwrap_or(i64::MAX) {
        lacks.push(Lack::Pods);
    }
    for (name, wanted) in &pod.wants.amounts {
        let sum = |pods: &mut dyn Iterator<Item = &Arc<Pod>>| {
            pods.filter_map(|it| it.wants.amount(name)).fold(0_i64, i64::saturating_add)
        };
        let gone = sum(&mut without.iter().filter_map(|it| room.pods.get(it)));
        let taken = room.taken(name).saturating_sub(gone).saturating_add(sum(&mut expected.iter().copied()));
        if given(name) < taken.saturating_add(*wanted) {
            lacks.push(Lack::Of { resource: name.clone(), is_too_small: given(name) < *wanted });
        }
    }
    if lacks.is_empty() { Ok(()) } else { Err(Unfit::Short(lacks)) }
}
