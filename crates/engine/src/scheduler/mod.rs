//! Which node a pending pod goes to.
//!
//! The scheduler keeps what every node has left, and a queue of the pods that have none: the more important first, the
//! older first among equals. [`Scheduler::next`] decides about one pod. One that fits nowhere is parked with the
//! reason, and comes back when something happens that could help: a node changes, a pod leaves or, where it looks for
//! company, comes. It comes back after some minutes all the same, so that nothing is ever forgotten.
//!
//! A decision counts as carried out until [`Scheduler::failed`] says that it was not, so the next one sees its room
//! taken before any watch does.

mod facts;
mod fit;
mod obstacle;
mod preempt;
mod score;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

pub use facts::{Node, Pod, PodTerm, Port, SCHEDULER_NAME, Wants, node, pod};
pub use fit::Unfit;
pub use obstacle::{Fitting, Obstacle};
pub use preempt::Budget;

use crate::facts::{Affinity, Key, Labels, NodeRequirement, Term, Text};
use crate::time::Time;
use fit::Around;

/// How long a pod that fitted nowhere waits at least, doubled with every time, and at most.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// A parked pod is looked at again after this, whatever happened. Upstream: `podMaxInUnschedulablePodsDuration`.
const PARKED_MAX: Duration = Duration::from_secs(300);

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    Pod(Arc<Pod>),
    PodGone(Key),
    Node(Arc<Node>),
    NodeGone(Text),
    /// A namespace and its labels.
    Namespace(Text, Labels),
    NamespaceGone(Text),
    Budget(Key, Budget),
    BudgetGone(Key),
}

/// What to do about one pod.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a decision does nothing until it is carried out"]
pub enum Decision {
    Bind {
        pod: Arc<Pod>,
        node: Text,
    },
    /// It fits nowhere: say so.
    Tell {
        pod: Arc<Pod>,
        message: String,
        /// The node that the pods in `remove` leave to it.
        nominate: Option<Text>,
        remove: Vec<Arc<Pod>>,
    },
}

/// A node and what is taken of it.
#[derive(Clone, Debug)]
struct Room {
    node: Arc<Node>,
    taken: BTreeMap<Text, i64>,
    pods: BTreeMap<Key, Arc<Pod>>,
}

/// Why a pod waits, and since when it has.
#[derive(Clone, Debug)]
struct Parked {
    because: BTreeSet<Unfit>,
    until: Time,
}

#[derive(Debug, Default)]
pub struct Scheduler {
    rooms: BTreeMap<Text, Room>,
    /// Pods on nodes that are not known (yet).
    elsewhere: BTreeMap<Text, BTreeMap<Key, Arc<Pod>>>,
    /// Where each pod that takes room is.
    places: BTreeMap<Key, Text>,
    /// Ours, without a node.
    pending: BTreeMap<Key, Pending>,
    queue: BTreeSet<(Reverse<i32>, Time, Key)>,
    /// Parked pods that one node alone could take, by that node.
    pinned: BTreeMap<Text, BTreeSet<Key>>,
    /// All other parked pods.
    parked: BTreeSet<Key>,
    /// When parked pods are due.
    due: BTreeSet<(Time, Key)>,
    /// Pods whose own wish to be apart may keep others away.
    apart: BTreeMap<Key, Arc<Pod>>,
    /// Pods for which a node was made free, by node.
    nominated: BTreeMap<Text, BTreeSet<Key>>,
    namespaces: BTreeMap<Text, Labels>,
    budgets: BTreeMap<Key, Budget>,
}

#[derive(Clone, Debug)]
struct Pending {
    pod: Arc<Pod>,
    /// Times it fitted nowhere in a row.
    tries: u32,
    tried_at: Option<Time>,
    parked: Option<Parked>,
    /// Something happened that could help, before its wait was over.
    helped: bool,
}

/// What an event may make possible.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Help {
    /// The node itself is another.
    Node,
    /// A pod left.
    Room,
    /// A pod came.
    Company,
}

impl Scheduler {
    pub fn apply(&mut self, event: Event, now: Time) {
        match event {
            Event::Pod(pod) => self.put_pod(pod, now),
            Event::PodGone(key) => {
                self.forget_pending(&key);
                if let Some(node) = self.leave(&key) {
                    self.help(Some(&node), Help::Room, now);
                }
            }
            Event::Node(node) => self.put_node(node, now),
            Event::NodeGone(name) => {
                if let Some(room) = self.rooms.remove(&name) {
                    self.elsewhere.insert(name, room.pods);
                    self.help(None, Help::Company, now);
                }
            }
            Event::Namespace(name, labels) => {
                if self.namespaces.insert(name, labels.clone()).is_none_or(|it| it != labels) {
                    self.help(None, Help::Company, now);
                }
            }
            Event::NamespaceGone(name) => drop(self.namespaces.remove(&name)),
            Event::Budget(key, budget) => drop(self.budgets.insert(key, budget)),
            Event::BudgetGone(key) => drop(self.budgets.remove(&key)),
        }
    }

    /// Everything that a fresh list does not name is gone.
    pub fn retain_pods(&mut self, listed: &BTreeSet<Key>, now: Time) {
        let known = self.places.keys().chain(self.pending.keys());
        let gone: Vec<Key> = known.filter(|it| !listed.contains(*it)).cloned().collect();
        gone.into_iter().for_each(|key| self.apply(Event::PodGone(key), now));
    }

    pub fn retain_nodes(&mut self, listed: &BTreeSet<Text>, now: Time) {
        let gone: Vec<Text> = self.rooms.keys().filter(|it| !listed.contains(*it)).cloned().collect();
        gone.into_iter().for_each(|name| self.apply(Event::NodeGone(name), now));
    }

    /// Decides about the next pod in line, if one is.
    pub fn next(&mut self, now: Time) -> Option<Decision> {
        self.wake(now);
        let (_, _, key) = self.queue.pop_first()?;
        let pod = self.pending.get(&key)?.pod.clone();
        let around = Around::of(self, &pod);
        let (fitting, unfit) = self.sift(&pod, &around);
        if let Some(node) = score::best(self, &pod, &fitting) {
            self.forget_pending(&key);
            self.enter(pod.clone(), node.clone());
            return Some(Decision::Bind { pod, node });
        }

        let removal = preempt::choose(self, &pod, &around, &unfit);
        let message = self.message(&unfit, removal.as_ref().err().map(String::as_str));
        let (nominate, remove) = match removal {
            Ok((node, victims)) => (Some(node), victims),
            Err(_) => (None, Vec::new()),
        };
        if let Some(node) = &nominate {
            self.nominate(&key, Some(node.clone()));
        }
        self.park(&key, unfit.into_values().collect(), now);
        Some(Decision::Tell { pod, message, nominate, remove })
    }

    /// When to ask again, if nothing happens before.
    pub fn wake_at(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The binding was refused or nobody answered: the room is free again, and the pod is tried again.
    pub fn failed(&mut self, pod: &Arc<Pod>, now: Time) {
        if self.pending.contains_key(&pod.key) {
            return;
        }
        // A pod of the same name that came since has nothing to do with it.
        let held = self.places.get(&pod.key).and_then(|node| self.rooms.get(node)?.pods.get(&pod.key));
        if held.is_none_or(|it| it.uid != pod.uid || it.resource_version != pod.resource_version) {
            return;
        }
        if let Some(node) = self.leave(&pod.key) {
            self.help(Some(&node), Help::Room, now);
        }
        self.await_node(pod.clone());
        let pending = self.pending.get_mut(&pod.key).expect("it was just put there");
        pending.tries = 1;
        self.park(&pod.key, BTreeSet::new(), now);
        if let Some(pending) = self.pending.get_mut(&pod.key) {
            pending.helped = true;
            self.hurry(&pod.key.clone(), now);
        }
    }

    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    fn put_pod(&mut self, pod: Arc<Pod>, now: Time) {
        let key = pod.key.clone();
        let held = self.places.get(&key).and_then(|node| self.held(node, &key)).cloned();
        let is_here = !pod.finished && pod.node.is_some();
        if let Some(held) = &held {
            // Our own binding, which this event is older than.
            if pod.node.is_none() && held.uid == pod.uid && pod.resource_version <= held.resource_version {
                return;
            }
            let same = is_here
                && self.places.get(&key) == pod.node.as_ref()
                && held.labels == pod.labels
                && held.wants == pod.wants
                && held.deleting == pod.deleting;
            if same {
                self.enter(pod.clone(), pod.node.clone().expect("it is here"));
                return;
            }
            if let Some(node) = self.leave(&key) {
                self.help(Some(&node), Help::Room, now);
            }
        }
        match &pod.node {
            Some(node) => {
                self.forget_pending(&key);
                if is_here {
                    let node = node.clone();
                    self.enter(pod, node);
                    self.help(None, Help::Company, now);
                }
            }
            None if pod.ours && !pod.deleting && !pod.finished => self.await_node(pod),
            None => self.forget_pending(&key),
        }
    }

    fn put_node(&mut self, node: Arc<Node>, now: Time) {
        let name = node.fact.name.clone();
        match self.rooms.get_mut(&name) {
            Some(room) => {
                let is_same = room.node.unschedulable == node.unschedulable
                    && room.node.allocatable == node.allocatable
                    && room.node.fact.labels == node.fact.labels
                    && room.node.fact.taints == node.fact.taints;
                room.node = node;
                if is_same {
                    return;
                }
            }
            None => {
                let pods = self.elsewhere.remove(&name).unwrap_or_default();
                let mut room = Room { node, taken: BTreeMap::new(), pods: BTreeMap::new() };
                pods.into_values().for_each(|pod| room.put(pod));
                self.rooms.insert(name.clone(), room);
            }
        }
        self.help(Some(&name), Help::Node, now);
    }

    fn held(&self, node: &Text, key: &Key) -> Option<&Arc<Pod>> {
        let here = self.rooms.get(node).and_then(|it| it.pods.get(key));
        here.or_else(|| self.elsewhere.get(node)?.get(key))
    }

    /// The pod takes room on the node from now on.
    fn enter(&mut self, pod: Arc<Pod>, node: Text) {
        self.leave(&pod.key);
        if !pod.wants.apart.is_empty() {
            self.apart.insert(pod.key.clone(), pod.clone());
        }
        self.places.insert(pod.key.clone(), node.clone());
        match self.rooms.get_mut(&node) {
            Some(room) => room.put(pod),
            None => drop(self.elsewhere.entry(node).or_default().insert(pod.key.clone(), pod)),
        }
    }

    /// The pod takes no room any more. Gives the node that it left.
    fn leave(&mut self, key: &Key) -> Option<Text> {
        let node = self.places.remove(key)?;
        self.apart.remove(key);
        if let Some(room) = self.rooms.get_mut(&node) {
            room.take(key);
        } else if let Some(pods) = self.elsewhere.get_mut(&node) {
            pods.remove(key);
            if pods.is_empty() {
                self.elsewhere.remove(&node);
            }
        }
        Some(node)
    }

    /// The pod looks for a node. One that is parked stays so until it asks for something else.
    fn await_node(&mut self, pod: Arc<Pod>) {
        let key = pod.key.clone();
        let asks_the_same = |it: &Pending| {
            it.pod.uid == pod.uid
                && it.pod.wants == pod.wants
                && it.pod.labels == pod.labels
                && it.pod.priority == pod.priority
        };
        if let Some(pending) = self.pending.get_mut(&key).filter(|it| asks_the_same(it)) {
            pending.pod = pod.clone();
        } else {
            self.forget_pending(&key);
            self.queue.insert((Reverse(pod.priority), pod.created, key.clone()));
            let pending = Pending { pod: pod.clone(), tries: 0, tried_at: None, parked: None, helped: false };
            self.pending.insert(key.clone(), pending);
        }
        self.nominate(&key, pod.nominated.clone());
    }

    fn forget_pending(&mut self, key: &Key) {
        let Some(pending) = self.pending.remove(key) else { return };
        self.queue.remove(&(Reverse(pending.pod.priority), pending.pod.created, key.clone()));
        self.unpark(key, &pending);
        self.nominate(key, None);
    }

    fn nominate(&mut self, key: &Key, node: Option<Text>) {
        self.nominated.retain(|_, keys| {
            keys.remove(key);
            !keys.is_empty()
        });
        if let Some(node) = node {
            self.nominated.entry(node).or_default().insert(key.clone());
        }
    }

    fn park(&mut self, key: &Key, because: BTreeSet<Unfit>, now: Time) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        pending.tries += 1;
        pending.tried_at = Some(now);
        pending.helped = false;
        let until = now + PARKED_MAX;
        pending.parked = Some(Parked { because, until });
        self.due.insert((until, key.clone()));
        match only_node(&pending.pod.wants) {
            Some(node) => drop(self.pinned.entry(node).or_default().insert(key.clone())),
            None => drop(self.parked.insert(key.clone())),
        }
    }

    fn unpark(&mut self, key: &Key, pending: &Pending) {
        let Some(parked) = &pending.parked else { return };
        self.due.remove(&(parked.until, key.clone()));
        self.parked.remove(key);
        if let Some(node) = only_node(&pending.pod.wants)
            && let Some(keys) = self.pinned.get_mut(&node)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.pinned.remove(&node);
            }
        }
    }

    /// Something happened that could make parked pods fit.
    fn help(&mut self, node: Option<&Text>, help: Help, now: Time) {
        let pinned = node.and_then(|it| self.pinned.get(it)).into_iter().flatten();
        // A pod that looks at other pods may be helped by what happens on any node.
        let far = self.pinned.iter().filter(|_| node.is_none()).flat_map(|(_, keys)| keys);
        let keys: Vec<Key> = self.parked.iter().chain(pinned).chain(far).cloned().collect();
        for key in keys {
            let Some(pending) = self.pending.get_mut(&key) else { continue };
            let Some(parked) = &pending.parked else { continue };
            let helps = match help {
                Help::Node => true,
                Help::Room => parked.because.iter().any(|it| it.room_helps()),
                Help::Company => parked.because.iter().any(|it| it.company_helps()),
            };
            if helps && !pending.helped {
                pending.helped = true;
                self.hurry(&key, now);
            }
        }
    }

    /// A helped pod is due as soon as its wait is over.
    fn hurry(&mut self, key: &Key, now: Time) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        let Some(parked) = &mut pending.parked else { return };
        let wait = RETRY_MIN.saturating_mul(1 << (pending.tries.saturating_sub(1)).min(4)).min(RETRY_MAX);
        let at = pending.tried_at.map_or(now, |it| it + wait).max(now);
        self.due.remove(&(parked.until, key.clone()));
        parked.until = parked.until.min(at);
        self.due.insert((parked.until, key.clone()));
    }

    /// Parked pods that are due get in line again.
    fn wake(&mut self, now: Time) {
        while let Some((at, key)) = self.due.first().cloned()
            && at <= now
        {
            self.due.pop_first();
            let Some(pending) = self.pending.get(&key).cloned() else { continue };
            self.unpark(&key, &pending);
            let pending = self.pending.get_mut(&key).expect("it was just read");
            pending.parked = None;
            self.queue.insert((Reverse(pending.pod.priority), pending.pod.created, key));
        }
    }

    /// The nodes that could take the pod, and why each of the others could not.
    fn sift(&self, pod: &Pod, around: &Around) -> (Vec<Text>, BTreeMap<Text, Unfit>) {
        let (mut fitting, mut unfit) = (Vec::new(), BTreeMap::new());
        let only = only_node(&pod.wants);
        let rooms: Vec<(&Text, &Room)> = match &only {
            Some(name) => self.rooms.get_key_value(name).into_iter().collect(),
            None => self.rooms.iter().collect(),
        };
        for (name, room) in rooms {
            match fit::check(self, pod, around, room, &BTreeSet::new()) {
                Ok(()) => fitting.push(name.clone()),
                Err(why) => drop(unfit.insert(name.clone(), why)),
            }
        }
        (fitting, unfit)
    }

    /// Rule: a pod that fits nowhere is told on how many nodes it failed for what. Upstream: `FitError`.
    fn message(&self, unfit: &BTreeMap<Text, Unfit>, preemption: Option<&str>) -> String {
        let all = self.rooms.len();
        if all == 0 {
            return String::from("no nodes available to schedule pods");
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for why in unfit.values() {
            *counts.entry(format!("{why}")).or_default() += 1;
        }
        // The nodes that a pod pinned to another one never looked at.
        if unfit.len() < all {
            let others = String::from("node(s) didn't satisfy plugin(s) [NodeAffinity]");
            *counts.entry(others).or_default() += all - unfit.len();
        }
        let mut reasons: Vec<String> = counts.iter().map(|(why, count)| format!("{count} {why}")).collect();
        reasons.sort();
        let mut message = format!("0/{all} nodes are available: {}.", reasons.join(", "));
        if let Some(preemption) = preemption {
            message = format!("{message} preemption: {preemption}");
        }
        message
    }
}

impl Room {
    fn put(&mut self, pod: Arc<Pod>) {
        for (name, amount) in &pod.wants.amounts {
            *self.taken.entry(name.clone()).or_default() += amount;
        }
        self.pods.insert(pod.key.clone(), pod);
    }

    fn take(&mut self, key: &Key) {
        let Some(pod) = self.pods.remove(key) else { return };
        for (name, amount) in &pod.wants.amounts {
            *self.taken.entry(name.clone()).or_default() -= amount;
        }
    }
}

/// Rule: a pod whose every affinity term names one and the same node is looked at on that node alone; so are the pods
/// of a DaemonSet, and each costs what one node costs.
fn only_node(wants: &Wants) -> Option<Text> {
    let Affinity::AnyOf(terms) = &wants.affinity else { return None };
    let named = |term: &Term| match term {
        Term::AllOf(all) => all.iter().find_map(|it| match it {
            NodeRequirement::NameIs(name) => Some(name.clone()),
            _ => None,
        }),
        Term::Unreadable(_) => None,
    };
    let first = named(terms.first()?)?;
    terms.iter().all(|it| named(it).as_ref() == Some(&first)).then_some(first)
}

#[cfg(test)]
mod tests;
