//! The pods around: who wants whom near, who apart, and how evenly a kind is spread.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::labels::{Labels, Requirement};
use muster_api::meta::ObjectKey;
use muster_api::text::Text;

use super::fit::{Unfit, expected, is_tolerated};
use super::rooms::Room;
use super::{Pod, PodTerm, Scheduler, Spread};
use crate::daemonset::placement;

/// Which pods stand in which place, as far as one pod's wishes ask about it: counted once for all nodes.
#[derive(Debug, Default)]
pub(super) struct Around {
    /// For each term of `near`, pods that match all of them, by the value of the place's label.
    near: Vec<BTreeMap<Text, usize>>,
    /// For each term of `apart`, those that match it, by place.
    apart: Vec<BTreeMap<Text, usize>>,
    /// How many pods want none of this kind near them, by the label of their place and by its value.
    others: BTreeMap<Text, BTreeMap<Text, usize>>,
    /// For each constraint that must hold, those that it counts, by place.
    spread: Vec<BTreeMap<Text, usize>>,
}

impl Around {
    pub(super) fn of(all: &Scheduler, pod: &Pod) -> Self {
        let mut around = Self::default();
        for (labels, other) in all.rooms.apart() {
            for term in other.wants.apart.iter().filter(|it| it.matches(pod, &all.namespaces)) {
                if let Some(place) = labels.get(&term.topology) {
                    let places = around.others.entry(term.topology.clone()).or_default();
                    *places.entry(place.clone()).or_default() += 1;
                }
            }
        }
        let wants = &pod.wants;
        if !wants.near.is_empty() || !wants.apart.is_empty() {
            around.count_company(all, pod);
        }
        let must: Vec<&Spread> = wants.spread.iter().filter(|it| it.is_must).collect();
        if !must.is_empty() {
            around.spread = places(all, pod, &must);
        }
        around
    }

    fn count_company(&mut self, all: &Scheduler, pod: &Pod) {
        let wants = &pod.wants;
        self.near.resize_with(wants.near.len(), BTreeMap::new);
        self.apart.resize_with(wants.apart.len(), BTreeMap::new);
        let add = |counts: &mut BTreeMap<Text, usize>, labels: &Labels, term: &PodTerm| {
            if let Some(place) = labels.get(&term.topology) {
                *counts.entry(place.clone()).or_default() += 1;
            }
        };
        for room in all.rooms.iter() {
            for other in room.pods.values() {
                if is_company(all, pod, other) {
                    for (term, counts) in wants.near.iter().zip(&mut self.near) {
                        add(counts, room.labels(), term);
                    }
                }
                for (term, counts) in wants.apart.iter().zip(&mut self.apart) {
                    if term.matches(other, &all.namespaces) {
                        add(counts, room.labels(), term);
                    }
                }
            }
        }
    }

    pub(super) fn check(
        &self,
        all: &Scheduler,
        pod: &Pod,
        room: &Room,
        without: &BTreeSet<ObjectKey>,
    ) -> Result<(), Unfit> {
        let gone: Vec<&Arc<Pod>> = without.iter().filter_map(|it| room.pods.get(it)).collect();
        self.is_even(pod, room, &gone)?;
        self.has_company(all, pod, room, &gone)?;
        self.keeps_distance(all, pod, room, &gone)
    }

    /// Rule: with the pod there, a place has at most `maxSkew` pods of the kind more than the place with the fewest, or
    /// than none where there are fewer places than `minDomains`. A node without the place's label takes none.
    fn is_even(&self, pod: &Pod, room: &Room, gone: &[&Arc<Pod>]) -> Result<(), Unfit> {
        let must = pod.wants.spread.iter().filter(|it| it.is_must);
        for (spread, counts) in must.zip(&self.spread) {
            let Some(place) = room.labels().get(&spread.topology) else { return Err(Unfit::Nowhere) };
            let left = gone.iter().filter(|it| spread.counts(pod, it)).count();
            let here = counts.get(place).map(|it| it.saturating_sub(left));
            let others = counts.iter().filter(|it| it.0 != place).map(|it| *it.1);
            let fewest = others.chain(here).min().filter(|_| spread.places_min <= counts.len()).unwrap_or(0);
            let with_it = here.unwrap_or(0) + usize::from(spread.selects(&pod.labels));
            if spread.skew < with_it as i64 - fewest as i64 {
                return Err(Unfit::TooUneven);
            }
        }
        Ok(())
    }

    /// Rule: where the pod asks for company, a pod that matches all its terms is in each of the places; the first of a
    /// kind that asks for its own company may go anywhere.
    fn has_company(&self, all: &Scheduler, pod: &Pod, room: &Room, gone: &[&Arc<Pod>]) -> Result<(), Unfit> {
        let wants = &pod.wants;
        let left = gone.iter().filter(|it| is_company(all, pod, it)).count();
        let mut is_there = true;
        for (term, counts) in wants.near.iter().zip(&self.near) {
            let Some(place) = room.labels().get(&term.topology) else { return Err(Unfit::NoCompany) };
            is_there &= left < counts.get(place).copied().unwrap_or(0);
        }
        let is_first = || {
            let nobody = self.near.iter().all(|it| it.values().sum::<usize>() <= left);
            nobody && wants.near.iter().all(|it| it.matches(pod, &all.namespaces))
        };
        if is_there || is_first() { Ok(()) } else { Err(Unfit::NoCompany) }
    }

    /// Rule: none that the pod wants apart is in its place, and no pod there wants it apart; nor one that the node is kept
    /// free for.
    fn keeps_distance(
        &self,
        all: &Scheduler,
        pod: &Pod,
        room: &Room,
        gone: &[&Arc<Pod>],
    ) -> Result<(), Unfit> {
        let labels = room.labels();
        let expected = expected(all, pod, room);
        for (term, counts) in pod.wants.apart.iter().zip(&self.apart) {
            let Some(place) = labels.get(&term.topology) else { continue };
            let matching =
                |pods: &[&Arc<Pod>]| pods.iter().filter(|it| term.matches(it, &all.namespaces)).count();
            if matching(gone) < counts.get(place).copied().unwrap_or(0) + matching(&expected) {
                return Err(Unfit::TooClose);
            }
        }
        let unwelcoming = |other: &Pod, topology: &Text| {
            let terms = other.wants.apart.iter().filter(|it| it.topology == *topology);
            terms.filter(|it| it.matches(pod, &all.namespaces)).count()
        };
        for (topology, places) in &self.others {
            let count = labels.get(topology).and_then(|place| places.get(place)).copied().unwrap_or(0);
            if 0 < count && gone.iter().map(|it| unwelcoming(it, topology)).sum::<usize>() < count {
                return Err(Unfit::TooCloseForOthers);
            }
        }
        let is_unwelcome = |other: &&Arc<Pod>| {
            let mut terms = other.wants.apart.iter().filter(|it| labels.get(&it.topology).is_some());
            terms.any(|it| it.matches(pod, &all.namespaces))
        };
        if expected.iter().any(is_unwelcome) { Err(Unfit::TooCloseForOthers) } else { Ok(()) }
    }
}

/// The pods that each constraint counts, by place; a place without any counts none.
pub(super) fn places(all: &Scheduler, pod: &Pod, spreads: &[&Spread]) -> Vec<BTreeMap<Text, usize>> {
    let mut places: Vec<BTreeMap<Text, usize>> = spreads.iter().map(|_| BTreeMap::new()).collect();
    for room in all.rooms.iter() {
        let labels = room.labels();
        if !spreads.iter().all(|it| labels.get(&it.topology).is_some()) {
            continue;
        }
        for (spread, counts) in spreads.iter().zip(&mut places) {
            if let Some(place) = labels.get(&spread.topology).filter(|_| spread.includes(pod, room)) {
                let count = room.pods.values().filter(|it| spread.counts(pod, it)).count();
                *counts.entry(place.clone()).or_default() += count;
            }
        }
    }
    places
}

/// Whether another pod is one that the pod must have near.
fn is_company(all: &Scheduler, pod: &Pod, other: &Pod) -> bool {
    let near = &pod.wants.near;
    !near.is_empty() && near.iter().all(|it| it.matches(other, &all.namespaces))
}

impl Spread {
    /// Whether a node's place is one of those that are compared.
    fn includes(&self, pod: &Pod, room: &Room) -> bool {
        let wants = &pod.wants;
        let is_wanted = || placement::wanted(&wants.node_selector, &wants.affinity, &room.node.fact).is_ok();
        (!self.honors_affinity || is_wanted()) && (!self.honors_taints || is_tolerated(pod, room))
    }

    /// Rule: pods of the same namespace count that are not being deleted; a selector that asks for nothing counts none,
    /// as upstream's does.
    pub(super) fn counts(&self, pod: &Pod, other: &Pod) -> bool {
        self.selector.as_ref().is_some_and(|it| !it.is_empty())
            && !other.deleting
            && other.key.namespace == pod.key.namespace
            && self.selects(&other.labels)
    }

    fn selects(&self, labels: &Labels) -> bool {
        self.selector.as_deref().is_some_and(|it| all_hold(it, labels))
    }
}

impl PodTerm {
    pub(super) fn matches(&self, pod: &Pod, namespaces: &BTreeMap<Text, Labels>) -> bool {
        let is_in_namespace = || {
            let Some(asked) = self.namespace_selector.as_deref() else { return false };
            let labels = namespaces.get(&pod.key.namespace).cloned().unwrap_or_default();
            all_hold(asked, &labels)
        };
        (self.namespaces.contains(&pod.key.namespace) || is_in_namespace())
            && self.selector.as_deref().is_some_and(|it| all_hold(it, &pod.labels))
    }
}

fn all_hold(all: &[Requirement], labels: &Labels) -> bool {
    all.iter().all(|it| it.holds(labels))
}
