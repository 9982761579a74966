//! Pods that have no node yet: who is next, and who waits for something to happen.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use super::Pod;

/// How long a pod that fitted nowhere waits at least before it is ahead of others again, doubled with every time, and at
/// most. Upstream: `podInitialBackoffSeconds`, `podMaxBackoffSeconds`.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A parked pod is looked at again after this, whatever happened. Upstream: `podMaxInUnschedulablePodsDuration`.
const PARKED_MAX: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub(super) struct Queue {
    pending: BTreeMap<ObjectKey, Pending>,
    /// In line: the more important first, the older first among equals.
    line: BTreeSet<Turn>,
    /// When parked pods are due.
    due: BTreeSet<(Time, ObjectKey)>,
    /// Parked pods that something happened for: they go before their time if nobody is in line, in the same order.
    hopeful: BTreeSet<Turn>,
    /// Parked pods that some nodes alone could take, by node.
    pinned: BTreeMap<Text, BTreeSet<ObjectKey>>,
    /// All other parked pods.
    roaming: BTreeSet<ObjectKey>,
    /// Parked pods to which it matters which pods are where.
    social: BTreeSet<ObjectKey>,
    /// Pods for which a node was made free, by node.
    nominated: BTreeMap<Text, BTreeSet<ObjectKey>>,
}

type Turn = (Reverse<i32>, Time, ObjectKey);

#[derive(Debug)]
struct Pending {
    pod: Arc<Pod>,
    /// The node that was made free for it.
    nominee: Option<Text>,
    /// Times it was tried in vain, in a row.
    tries: u32,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    InLine,
    Parked { since: Time, until: Time, names: Option<BTreeSet<Text>>, is_hopeful: bool },
}

/// What happened that may help parked pods.
#[derive(Clone, Copy, Debug)]
pub(super) enum Help<'a> {
    /// A node is another, or there is more room on it: it helps those that it could take, and those to which it matters
    /// which pods are where.
    Node(&'a Text),
    /// Which pods are where has changed.
    Company,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.pending.keys()
    }

    pub(super) fn pod(&self, key: &ObjectKey) -> Option<&Arc<Pod>> {
        self.pending.get(key).map(|it| &it.pod)
    }

    pub(super) fn nominee(&self, key: &ObjectKey) -> Option<&Text> {
        self.pending.get(key)?.nominee.as_ref()
    }

    /// The pods for which a node was made free.
    pub(super) fn nominated(&self, node: &Text) -> impl Iterator<Item = &Arc<Pod>> {
        let keys = self.nominated.get(node).into_iter().flatten();
        keys.filter_map(|key| self.pending.get(key)).map(|it| &it.pod)
    }

    /// The pod looks for a node. One that waits goes on waiting until it asks for something else.
    pub(super) fn put(&mut self, pod: Arc<Pod>) {
        let key = pod.key.clone();
        let asks_the_same = |it: &Pod| {
            it.uid == pod.uid
                && it.wants == pod.wants
                && it.labels == pod.labels
                && it.priority == pod.priority
                && it.created == pod.created
        };
        match self.pending.get_mut(&key).filter(|it| asks_the_same(&it.pod)) {
            Some(pending) => {
                // What we nominated counts until the server shows it; from then on the server does.
                let is_news = pending.pod.nominated != pod.nominated;
                let nominated = pod.nominated.clone();
                pending.pod = pod;
                if is_news {
                    self.nominate(&key, nominated);
                }
            }
            None => {
                self.remove(&key);
                self.line.insert(turn(&pod));
                let nominated = pod.nominated.clone();
                let pending = Pending { pod, nominee: None, tries: 0, state: State::InLine };
                self.pending.insert(key.clone(), pending);
                self.nominate(&key, nominated);
            }
        }
    }

    /// The pod looks for no node any more. Gives the node that was kept free for it.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Text> {
        self.unpark(key);
        let pending = self.pending.remove(key)?;
        self.line.remove(&turn(&pending.pod));
        if let Some(node) = &pending.nominee {
            self.forget_nominee(node, key);
        }
        pending.nominee
    }

    /// Rule: whoever is more important is looked at first, and of equals the older one. A pod that fitted nowhere comes
    /// back when something happens that could help it, at once if nobody is in line, else after a wait that grows from one
    /// second to ten; and after five minutes in any case, so that nobody is forgotten. A wait that would be longer began before
    /// the clock was set back, and is over.
    pub(super) fn next(&mut self, now: Time) -> Option<ObjectKey> {
        while let Some((at, key)) = self.due.last().cloned()
            && now + PARKED_MAX < at
        {
            self.get_in_line(&key);
        }
        while let Some((at, key)) = self.due.first().cloned()
            && at <= now
        {
            self.get_in_line(&key);
        }
        if self.line.is_empty()
            && let Some((_, _, key)) = self.hopeful.first().cloned()
        {
            self.get_in_line(&key);
        }
        let (_, _, key) = self.line.first()?.clone();
        Some(key)
    }

    pub(super) fn is_someone_in_line(&self) -> bool {
        !self.line.is_empty() || !self.hopeful.is_empty()
    }

    /// When somebody gets in line, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The pod fits nowhere. `is_social`: it matters to it which pods are where.
    ///
    /// The others that hope for the same wait their time: where thousands do, each pod that leaves would have them all tried.
    pub(super) fn park(&mut self, key: &ObjectKey, is_social: bool, now: Time) {
        self.hopeful.clear();
        let Some(pending) = self.pending.get(key) else { return };
        let names = pending.pod.wants.named_nodes();
        for name in names.iter().flatten() {
            self.pinned.entry(name.clone()).or_default().insert(key.clone());
        }
        if names.is_none() {
            self.roaming.insert(key.clone());
        }
        if is_social {
            self.social.insert(key.clone());
        }
        self.wait_until(key, now, now + PARKED_MAX, names);
    }

    /// How often the pod was tried in vain.
    pub(super) fn tries(&self, key: &ObjectKey) -> u32 {
        self.pending.get(key).map_or(0, |it| it.tries)
    }

    /// The pod could not have the node that it was given, after so many tries.
    pub(super) fn put_back(&mut self, pod: Arc<Pod>, tries: u32, now: Time) {
        let key = pod.key.clone();
        self.put(pod);
        if let Some(pending) = self.pending.get_mut(&key) {
            pending.tries = tries;
        }
        self.postpone(&key, now);
    }

    /// What was decided about the pod could not be done: it waits its time, whatever happens.
    pub(super) fn postpone(&mut self, key: &ObjectKey, now: Time) {
        self.unpark(key);
        let tries = self.tries(key);
        self.wait_until(key, now, now + wait(tries + 1), None);
    }

    fn wait_until(&mut self, key: &ObjectKey, now: Time, until: Time, names: Option<BTreeSet<Text>>) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        self.line.remove(&turn(&pending.pod));
        pending.tries = pending.tries.saturating_add(1);
        pending.state = State::Parked { since: now, until, names, is_hopeful: false };
        self.due.insert((until, key.clone()));
    }

    fn unpark(&mut self, key: &ObjectKey) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        let State::Parked { until, names, .. } = core::mem::replace(&mut pending.state, State::InLine) else {
            return;
        };
        self.due.remove(&(until, key.clone()));
        self.hopeful.remove(&turn(&pending.pod));
        self.roaming.remove(key);
        self.social.remove(key);
        for name in names.into_iter().flatten() {
            if let Some(keys) = self.pinned.get_mut(&name) {
                keys.remove(key);
                if keys.is_empty() {
                    self.pinned.remove(&name);
                }
            }
        }
    }

    fn get_in_line(&mut self, key: &ObjectKey) {
        self.unpark(key);
        if let Some(pending) = self.pending.get(key) {
            self.line.insert(turn(&pending.pod));
        }
    }

    /// The parked pods that may be helped, and have not been yet; with each, whether it needs a closer look at the node.
    pub(super) fn helped(&self, help: Help<'_>) -> Vec<(Arc<Pod>, bool)> {
        let near = match help {
            Help::Node(node) => Some(self.pinned.get(node).into_iter().flatten().chain(&self.roaming)),
            Help::Company => None,
        };
        let near = near.into_iter().flatten().filter(|it| !self.social.contains(*it)).map(|it| (it, true));
        let all = self.social.iter().map(|it| (it, false)).chain(near);
        let waits = |key: &ObjectKey| {
            let pending = self.pending.get(key)?;
            match &pending.state {
                State::Parked { is_hopeful: false, .. } => Some(pending.pod.clone()),
                _ => None,
            }
        };
        all.filter_map(|(key, needs_look)| Some((waits(key)?, needs_look))).collect()
    }

    /// Something happened for a parked pod.
    pub(super) fn give_hope(&mut self, key: &ObjectKey) {
        let Some(pending) = self.pending.get_mut(key) else { return };
        let tries = pending.tries;
        let State::Parked { since, until, is_hopeful, .. } = &mut pending.state else { return };
        if core::mem::replace(is_hopeful, true) {
            return;
        }
        self.due.remove(&(*until, key.clone()));
        *until = (*until).min(*since + wait(tries));
        self.due.insert((*until, key.clone()));
        self.hopeful.insert(turn(&pending.pod));
    }

    /// The node is kept free for the pod from now on. Gives the one that no longer is.
    pub(super) fn nominate(&mut self, key: &ObjectKey, node: Option<Text>) -> Option<Text> {
        let pending = self.pending.get_mut(key)?;
        let before = core::mem::replace(&mut pending.nominee, node.clone());
        if let Some(before) = &before {
            self.forget_nominee(before, key);
        }
        if let Some(node) = &node {
            self.nominated.entry(node.clone()).or_default().insert(key.clone());
        }
        before.filter(|it| Some(it) != node.as_ref())
    }

    fn forget_nominee(&mut self, node: &Text, key: &ObjectKey) {
        if let Some(keys) = self.nominated.get_mut(node) {
            keys.remove(key);
            if keys.is_empty() {
                self.nominated.remove(node);
            }
        }
    }
}

fn turn(pod: &Pod) -> Turn {
    (Reverse(pod.priority), pod.created, pod.key.clone())
}

fn wait(tries: u32) -> Duration {
    WAIT_MIN.saturating_mul(1 << tries.saturating_sub(1).min(4)).min(WAIT_MAX)
}
