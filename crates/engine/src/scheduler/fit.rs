//! Does a pod fit on a node?

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::{Pod, PodTerm, Room, Scheduler};
use crate::facts::{Effect, Key, Labels, Requirement, Taint, Text};
use crate::placement;

/// Why a pod does not fit on a node, in the order in which it is asked.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unfit {
    Cordoned,
    Tainted,
    NotWanted,
    PortTaken,
    TooManyPods,
    Short { resource: Text },
    NoCompany,
    TooClose,
    TooCloseForOthers,
}

impl Unfit {
    /// Whether the pods of lower priority could be in the way.
    pub(super) fn others_are_in_the_way(&self) -> bool {
        self.room_helps() && *self != Self::NoCompany
    }

    pub(super) fn room_helps(&self) -> bool {
        !matches!(self, Self::Cordoned | Self::Tainted | Self::NotWanted)
    }

    pub(super) fn company_helps(&self) -> bool {
        matches!(self, Self::NoCompany | Self::TooClose | Self::TooCloseForOthers)
    }
}

/// In upstream's words, which tools look for.
impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cordoned => f.write_str("node(s) were unschedulable"),
            Self::Tainted => f.write_str("node(s) had untolerated taint(s)"),
            Self::NotWanted => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::PortTaken => f.write_str("node(s) didn't have free ports for the requested pod ports"),
            Self::TooManyPods => f.write_str("Too many pods"),
            Self::Short { resource } => write!(f, "Insufficient {resource}"),
            Self::NoCompany => f.write_str("node(s) didn't match pod affinity rules"),
            Self::TooClose => f.write_str("node(s) didn't match pod anti-affinity rules"),
            Self::TooCloseForOthers => {
                f.write_str("node(s) didn't satisfy existing pods anti-affinity rules")
            }
        }
    }
}

/// Rule: a pod fits on a node that is open to it, has the labels, ports and amounts it asks for, and the right pods
/// around it. `without` are pods taken to be gone.
pub(super) fn check(
    all: &Scheduler,
    pod: &Pod,
    around: &Around,
    room: &Room,
    without: &BTreeSet<Key>,
) -> Result<(), Unfit> {
    is_open(pod, room)?;
    placement::wanted(&pod.wants.node_selector, &pod.wants.affinity, &room.node.fact)
        .map_err(|_| Unfit::NotWanted)?;
    let guests = guests(all, pod, room, without);
    has_ports(pod, &guests)?;
    has_room(pod, room, &guests)?;
    around.check(all, pod, room, without)
}

/// Rule: an untolerated taint keeps the pod away, and so does a cordon, unless its taint is tolerated.
fn is_open(pod: &Pod, room: &Room) -> Result<(), Unfit> {
    let tolerations = &pod.wants.tolerations;
    let cordon = || Taint {
        key: "node.kubernetes.io/unschedulable".into(),
        value: "".into(),
        effect: Effect::NoSchedule,
    };
    if room.node.unschedulable && !placement::tolerates(tolerations, &cordon()) {
        return Err(Unfit::Cordoned);
    }
    let keeps_away = |it: &&Taint| matches!(it.effect, Effect::NoSchedule | Effect::NoExecute);
    let mut taints = room.node.fact.taints.iter().filter(keeps_away);
    if taints.all(|it| placement::tolerates(tolerations, it)) { Ok(()) } else { Err(Unfit::Tainted) }
}

/// Who has a claim on the node beside the pod: those that are on it, and those of its own priority or above for which
/// it was made free.
fn guests<'a>(all: &'a Scheduler, pod: &Pod, room: &'a Room, without: &BTreeSet<Key>) -> Vec<&'a Arc<Pod>> {
    let expected = all.nominated.get(&room.node.fact.name).into_iter().flatten();
    let expected = expected.filter(|key| **key != pod.key).filter_map(|key| all.pending.get(key));
    let expected = expected.map(|it| &it.pod).filter(|it| pod.priority <= it.priority);
    room.pods.values().filter(|it| !without.contains(&it.key)).chain(expected).collect()
}

/// Rule: two pods on one node cannot have the same port of it.
fn has_ports(pod: &Pod, guests: &[&Arc<Pod>]) -> Result<(), Unfit> {
    if pod.wants.ports.is_empty() {
        return Ok(());
    }
    let mut taken = guests.iter().flat_map(|it| &it.wants.ports);
    let meets = |port: &super::Port| pod.wants.ports.iter().any(|it| it.meets(port));
    if taken.any(meets) { Err(Unfit::PortTaken) } else { Ok(()) }
}

/// Rule: what all pods of a node ask for, together and of each resource, is no more than the node has to give; and so
/// is their number.
fn has_room(pod: &Pod, room: &Room, guests: &[&Arc<Pod>]) -> Result<(), Unfit> {
    let given = |name: &str| room.node.allocatable.get(name).copied().unwrap_or(0);
    if room.node.allocatable.contains_key("pods")
        && given("pods") < i64::try_from(guests.len()).unwrap_or(i64::MAX).saturating_add(1)
    {
        return Err(Unfit::TooManyPods);
    }
    for (name, wanted) in &pod.wants.amounts {
        // The sum that is kept, unless others are counted than those that are there.
        let taken = if guests.len() == room.pods.len() {
            room.taken.get(name).copied().unwrap_or(0)
        } else {
            guests.iter().flat_map(|it| &it.wants.amounts).filter(|it| it.0 == *name).map(|it| it.1).sum()
        };
        if given(name) < taken.saturating_add(*wanted) {
            return Err(Unfit::Short { resource: name.clone() });
        }
    }
    Ok(())
}

/// Which pods stand in which place, as far as the pod's own wishes ask about it: counted once for all nodes.
#[derive(Debug, Default)]
pub(super) struct Around {
    /// For each term of `near`, pods that match all of them, by the value of the place's label.
    near: Vec<BTreeMap<Text, usize>>,
    /// For each term of `apart`, those that match it, by place and by who.
    apart: Vec<BTreeMap<Text, Vec<Key>>>,
    /// Pods that want none of this kind near them: the label of their place, its value, and who.
    others: BTreeMap<(Text, Text), Vec<Key>>,
}

impl Around {
    pub(super) fn of(all: &Scheduler, pod: &Pod) -> Self {
        let mut around = Self::default();
        for (key, other) in &all.apart {
            let Some(labels) = all.places.get(key).and_then(|it| all.labels_of(it)) else { continue };
            for term in other.wants.apart.iter().filter(|it| it.matches(pod, &all.namespaces)) {
                if let Some(place) = labels.get(&term.topology) {
                    let place = (term.topology.clone(), place.clone());
                    around.others.entry(place).or_default().push(key.clone());
                }
            }
        }
        let wants = &pod.wants;
        around.near.resize_with(wants.near.len(), BTreeMap::new);
        around.apart.resize_with(wants.apart.len(), BTreeMap::new);
        if wants.near.is_empty() && wants.apart.is_empty() {
            return around;
        }
        for room in all.rooms.values() {
            let labels = &room.node.fact.labels;
            for other in room.pods.values() {
                if !wants.near.is_empty() && wants.near.iter().all(|it| it.matches(other, &all.namespaces)) {
                    for (term, counts) in wants.near.iter().zip(&mut around.near) {
                        if let Some(place) = labels.get(&term.topology) {
                            *counts.entry(place.clone()).or_default() += 1;
                        }
                    }
                }
                for (term, places) in wants.apart.iter().zip(&mut around.apart) {
                    if let Some(place) = labels.get(&term.topology)
                        && term.matches(other, &all.namespaces)
                    {
                        places.entry(place.clone()).or_default().push(other.key.clone());
                    }
                }
            }
        }
        around
    }

    /// Rule: where the pod asks for company, a pod that matches all its terms is in each of the places; the first of a
    /// kind that asks for its own company may go anywhere. None that it wants apart is in its place, and no pod there
    /// wants it apart.
    fn check(&self, all: &Scheduler, pod: &Pod, room: &Room, without: &BTreeSet<Key>) -> Result<(), Unfit> {
        let labels = &room.node.fact.labels;
        let is_there = |keys: Option<&Vec<Key>>| keys.into_iter().flatten().any(|it| !without.contains(it));
        let has_company = |(term, counts): (&PodTerm, &BTreeMap<Text, usize>)| {
            labels.get(&term.topology).is_some_and(|place| counts.contains_key(place))
        };
        let wants = &pod.wants;
        if !wants.near.iter().zip(&self.near).all(has_company) {
            let is_first = self.near.iter().all(BTreeMap::is_empty)
                && wants.near.iter().all(|it| it.matches(pod, &all.namespaces))
                && wants.near.iter().all(|it| labels.get(&it.topology).is_some());
            if !is_first {
                return Err(Unfit::NoCompany);
            }
        }
        let too_close = |(term, places): (&PodTerm, &BTreeMap<Text, Vec<Key>>)| {
            labels.get(&term.topology).is_some_and(|place| is_there(places.get(place)))
        };
        if wants.apart.iter().zip(&self.apart).any(too_close) {
            return Err(Unfit::TooClose);
        }
        let unwelcome = |(place, keys): (&(Text, Text), &Vec<Key>)| {
            labels.get(&place.0) == Some(&place.1) && is_there(Some(keys))
        };
        if self.others.iter().any(unwelcome) {
            return Err(Unfit::TooCloseForOthers);
        }
        Ok(())
    }
}

impl Scheduler {
    fn labels_of(&self, node: &Text) -> Option<&Labels> {
        self.rooms.get(node).map(|it| &it.node.fact.labels)
    }
}

impl PodTerm {
    pub(super) fn matches(&self, pod: &Pod, namespaces: &BTreeMap<Text, Labels>) -> bool {
        let all_hold = |all: &[Requirement], labels: &Labels| all.iter().all(|it| it.holds(labels));
        let by_label = || {
            let asked = self.namespace_selector.as_deref()?;
            let none = Labels::default();
            Some(all_hold(asked, namespaces.get(&pod.key.namespace).unwrap_or(&none)))
        };
        (self.namespaces.contains(&pod.key.namespace) || by_label().unwrap_or(false))
            && self.selector.as_deref().is_some_and(|it| all_hold(it, &pod.labels))
    }
}
