//! Pods that nobody will end: their node is gone, or they never had one, or they have long ended.
//! Upstream: `pkg/controller/podgc`.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

use super::Object;
use crate::daemonset::why::Why;

/// What is kept of a pod besides its metadata.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    /// Empty until it is bound.
    pub node: Text,
    /// It succeeded or failed.
    pub ended: bool,
    pub evicted: bool,
    pub created: Time,
    /// It is being deleted, and its node was given no time for it.
    pub at_once: bool,
}

/// A node may be gone for a moment, while it registers anew. Upstream: `quarantineTime`.
pub(super) const QUARANTINE: Duration = Duration::from_secs(40);

/// More ended pods than this are too many. Upstream: `terminated-pod-gc-threshold`.
pub(super) const ENDED_MAX: usize = 12_500;

/// The pods by what decides about them.
#[derive(Debug)]
pub(super) struct Pods {
    by_node: BTreeMap<Text, BTreeSet<Text>>,
    /// The nodes that are there, and whether their pods are known to run no longer.
    nodes: BTreeMap<Text, bool>,
    /// When the absence of a node is believed.
    missing: BTreeMap<Text, Time>,
    /// Those to go first come first.
    ended: BTreeSet<(Place, Text)>,
    pub(super) ended_max: usize,
}

/// Evicted pods before others, old ones before new ones.
type Place = (bool, Time, Text);

/// What becomes of a pod.
pub(super) enum Fate {
    Stays,
    /// Its node seems to be gone.
    Suspect {
        until: Time,
    },
    Goes(Why),
}

impl Pods {
    pub(super) fn new(ended_max: usize) -> Self {
        Self {
            by_node: BTreeMap::new(),
            nodes: BTreeMap::new(),
            missing: BTreeMap::new(),
            ended: BTreeSet::new(),
            ended_max,
        }
    }

    /// An object has come or gone or changed. The pods to look at go into `keys`.
    pub(super) fn change(
        &mut self,
        before: Option<&Object>,
        now: Option<&Object>,
        keys: &mut BTreeSet<Text>,
    ) {
        let node = |it: Option<&Object>| it.and_then(|it| Some((it.key.name.clone(), it.out_of_service?)));
        let (was, is) = (node(before), node(now));
        if was != is {
            if let Some((name, _)) = &was {
                self.nodes.remove(name);
            }
            for (name, out_of_service) in is.iter().cloned() {
                self.missing.remove(&name);
                self.nodes.insert(name, out_of_service);
            }
            let names = was.iter().chain(&is).map(|(name, _)| name);
            keys.extend(names.filter_map(|it| self.by_node.get(it)).flatten().cloned());
        }
        let (was, is) = (before.and_then(|it| it.pod.as_deref()), now.and_then(|it| it.pod.as_deref()));
        if was == is {
            return;
        }
        if let (Some(object), Some(pod)) = (before, was) {
            if let Some(others) = self.by_node.get_mut(&pod.node) {
                others.remove(&object.uid);
            }
            self.ended.remove(&(place(object, pod), object.uid.clone()));
        }
        if let (Some(object), Some(pod)) = (now, is) {
            self.by_node.entry(pod.node.clone()).or_default().insert(object.uid.clone());
            if pod.ended {
                self.ended.insert((place(object, pod), object.uid.clone()));
                keys.extend(self.surplus().map(|(_, uid)| uid.clone()));
            }
        }
        // Nobody waits for a node any more whose last pod is gone; one that has only changed still does.
        if let Some(pod) = was.filter(|it| self.by_node.get(&it.node).is_some_and(BTreeSet::is_empty)) {
            self.by_node.remove(&pod.node);
            self.missing.remove(&pod.node);
        }
    }

    fn surplus(&self) -> impl Iterator<Item = &(Place, Text)> {
        self.ended.iter().take(self.ended.len().saturating_sub(self.ended_max))
    }

    /// Rule: a pod goes at once if its node has been gone for 40 seconds, if it is being deleted and was never bound, if it
    /// is being deleted on a node that was declared out of service, or if it has ended and 12,500 that ended later are
    /// kept. Upstream: `gcOrphaned`, `gcUnscheduledTerminating`, `gcTerminating`, `gcTerminated`.
    pub(super) fn fate(&mut self, object: &Object, pod: &Pod, now: Time) -> Fate {
        // Whoever holds it with a finalizer is waited for, and nothing can be added.
        if object.deleting && pod.at_once {
            return Fate::Stays;
        }
        let never_bound = pod.node.is_empty();
        if never_bound && object.deleting {
            return Fate::Goes(Why::NeverBound);
        }
        match self.nodes.get(&pod.node) {
            Some(true) if object.deleting => return Fate::Goes(Why::NodeOutOfService),
            None if !never_bound => {
                let until = *self.missing.entry(pod.node.clone()).or_insert(now + QUARANTINE);
                // A clock that was set back must not make the wait longer.
                let until = until.min(now + QUARANTINE);
                return if now < until { Fate::Suspect { until } } else { Fate::Goes(Why::NodeIsGone) };
            }
            _ => {}
        }
        let is_surplus = |last: &(Place, Text)| (place(object, pod), object.uid.clone()) <= *last;
        if pod.ended && self.surplus().last().is_some_and(is_surplus) {
            return Fate::Goes(Why::TooManyEnded);
        }
        Fate::Stays
    }
}

fn place(object: &Object, pod: &Pod) -> Place {
    (!pod.evicted, pod.created, object.key.name.clone())
}
