//! Facts by index. `apply(event)` gives back the keys to look at again; `look` gives the plan for one of them.
//!
//! An event only says whom to look at; what to do is read from the state. Its cost is that of the cells it touches: a
//! pod touches one cell of one set, a node one cell of each set, a heartbeat none.

mod explain;
mod objects;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use crate::daemonset::cell::{self, OfNode};
use crate::daemonset::execution::{Creates, Report};
use crate::daemonset::expectations::{Closed, Gate};
use crate::daemonset::facts::{
    Condition, ConditionType, Counts, Kind, Node, Pod, Revision, Set, Status, Watched,
};
use crate::daemonset::plan::{Claim, Plan, Settings};
use crate::daemonset::revision::{self, Current};
use crate::daemonset::status::STALLED;
use crate::daemonset::why::Why;
use crate::daemonset::{self, Advance, Backoff, Ledger, Taken};
use crate::hash_ordered_map::HashOrderedMap;
pub use explain::{Explained, Remembered, RolloutState, State};
use objects::Objects;

/// What a watch, or a list, has brought.
#[derive(Debug)]
pub enum Event {
    Watched(Watched),
    /// A whole list: what is not in it is gone.
    Listed {
        kind: Kind,
        items: Vec<Watched>,
        resource_version: u64,
    },
}

/// All that is known of the cluster, and what each set needs next.
#[derive(Debug, Default)]
pub struct Cache {
    settings: Settings,
    /// How far each kind's watch has come; `None` until its first list.
    seen: BTreeMap<Kind, u64>,
    /// How far it had ever come. A list from an API server that lags behind leads back in time.
    newest: BTreeMap<Kind, u64>,
    objects: Objects,
    entries: BTreeMap<ObjectKey, Entry>,
    by_uid: BTreeMap<Text, ObjectKey>,
    /// Sets that wait for their own writes: any event may open their gate.
    gated: BTreeSet<ObjectKey>,
}

/// One set, and what is worked out and remembered for it. It is the set's by UID: one that was deleted and made anew
/// starts afresh.
#[derive(Debug)]
struct Entry {
    set: Arc<Set>,
    /// Pods of the set by target node.
    pods: HashOrderedMap<Text, Vec<Arc<Pod>>>,
    carried: BTreeMap<Text, usize>,
    /// Objects to be adopted or released.
    strays: BTreeMap<(Kind, Text), Claim>,
    ledger: Ledger,
    dirty: Dirty,
    looked_at: Option<Time>,
    memory: Memory,
}

/// Cells that must be assessed anew.
#[derive(Debug, PartialEq, Eq)]
enum Dirty {
    All,
    Nodes(BTreeSet<Text>),
}

impl Dirty {
    fn node(&mut self, node: &Text) {
        if let Self::Nodes(nodes) = self {
            nodes.insert(node.clone());
        }
    }
}

/// What is remembered beside the facts. All of it may be lost in a crash.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Memory {
    gate: Gate,
    /// Failed pods by node, of one generation.
    backoffs: BTreeMap<Text, Backoff>,
    /// Nodes whose pod was deleted under a revision, and when.
    taken: BTreeMap<Text, Taken>,
    generation: i64,
    failures: u32,
    retry_at: Option<Time>,
    creates: Creates,
    advance: Option<Advance>,
    /// The generation that standing events were recorded for.
    told: Option<i64>,
    /// When a status was last written.
    status_at: Option<Time>,
}

/// While pods come and go, counts are written so often: four times in a second is more than anyone reads, and a status
/// costs the API server as much as a pod.
const STATUS_EVERY: Duration = Duration::from_millis(250);

/// First wait after a failed call, and the longest; doubled in between.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// An API server that fails so many times in a row is worth a condition: by then some three seconds have passed.
const FAILURES_TOLD: u32 = 5;

impl Cache {
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Rule: nothing is decided before all four kinds have been listed once: an empty cache is not an empty cluster. Nor
    /// while one of them shows an older state than it has shown before: the past was acted on already.
    pub fn synced(&self) -> bool {
        let listed = |kind: &Kind| {
            let newest = self.newest.get(kind).copied().unwrap_or(0);
            self.seen.get(kind).is_some_and(|seen| newest <= *seen)
        };
        Kind::ALL.iter().all(listed)
    }

    /// How far the watch of a kind has come; 0 before its first list.
    pub fn seen(&self, kind: Kind) -> u64 {
        self.seen.get(&kind).copied().unwrap_or(0)
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes an event in, and says which sets to look at again.
    pub fn apply(&mut self, event: Event) -> Vec<ObjectKey> {
        let mut keys = BTreeSet::new();
        let seen_all = self.synced();
        match event {
            Event::Watched(watched) => match place_of(&watched) {
                Some((kind, at)) if self.is_old_news(kind, at) => self.saw(kind, at),
                _ => self.take(watched, &mut keys),
            },
            Event::Listed { kind, items, resource_version } => {
                let leads_back = resource_version < self.newest.get(&kind).copied().unwrap_or(0);
                if !leads_back {
                    self.replace(kind, items, &mut keys);
                }
                self.seen.insert(kind, resource_version);
                self.saw(kind, resource_version);
            }
        }
        if !self.synced() {
            return Vec::new();
        }
        if !seen_all {
            return self.entries.keys().cloned().collect();
        }
        keys.extend(self.opened());
        keys.into_iter().collect()
    }

    /// Says what to do for one set now. Call it for every key that `apply` gave, again when the plan's `wake_at` has
    /// come, and again once a plan has been carried out and reported with [`Cache::done`].
    pub fn look(&mut self, key: &ObjectKey, now: Time) -> Option<Plan> {
        if !self.synced() {
            return None;
        }
        let closed = self.gate(key, now);
        let entry = self.entries.get_mut(key)?;
        entry.mind_the_clock(now);
        if entry.set.deleting {
            return Some(Plan::idle(entry.set.clone()));
        }
        // Before the gate, which asks for calls too: a list that fails is not tried again at once.
        if let Some(at) = entry.memory.retry_at.filter(|at| now < *at) {
            let mut plan = Plan::idle(entry.set.clone());
            plan.waiting = Some(Why::RetryLater { at });
            plan.wake_at = Some(at);
            return Some(plan);
        }
        if let Some(closed) = closed {
            return Some(wait(&entry.set, closed));
        }
        entry.refresh(&self.objects, now);
        entry.note_advance(now);
        let pods = &entry.pods;
        let carrying = |hash: &Text| -> Vec<Arc<Pod>> {
            let mut pods: Vec<Arc<Pod>> =
                pods.values().flatten().filter(|it| it.hash() == Some(hash)).cloned().collect();
            pods.sort_by(|a, b| a.key.cmp(&b.key));
            pods
        };
        let facts = daemonset::Facts {
            set: &entry.set,
            claims: entry.strays.values().cloned().collect(),
            ledger: &entry.ledger,
            carried: &entry.carried,
            pods_carrying: &carrying,
            advance: entry.memory.advance.as_ref(),
            creates: &entry.memory.creates,
            told: entry.memory.told == Some(entry.set.generation),
        };
        let mut plan = daemonset::decide(&facts, &self.settings, now);
        entry.hold_status(&mut plan, now);
        // A plan that only claims or records says nothing yet of what is wrong with the set.
        if plan.claims.is_empty() && (!plan.hash.is_empty() || plan.steps.is_empty()) {
            entry.memory.told = Some(entry.set.generation);
        }
        Some(plan)
    }

    /// Takes in how the calls of a plan went. Look at the set again right after.
    pub fn done(&mut self, key: &ObjectKey, report: &Report, now: Time) {
        let Some(entry) = self.entries.get_mut(key).filter(|it| it.set.uid == report.uid) else { return };
        entry.mind_the_clock(now);
        entry.memory.take(report, now);
        for node in &report.failed_on {
            let before = entry.memory.backoffs.get(node).copied();
            entry.memory.backoffs.insert(node.clone(), Backoff::next(before, now));
            entry.dirty.node(node);
        }
        if let Some(current) = &entry.ledger.history.current {
            for node in report.deleted_on() {
                entry.memory.taken.insert(node.clone(), Taken { hash: current.hash.clone(), at: now });
                entry.dirty.node(node);
            }
        }
        if entry.memory.gate.is_waiting() {
            self.gated.insert(key.clone());
        }
    }

    /// Rule: what is not newer than what was seen of its kind is in the cache already. Taking it in again would lead back
    /// in time, and forget what is remembered of a set that was not there yet.
    fn is_old_news(&self, kind: Kind, resource_version: u64) -> bool {
        resource_version <= self.newest.get(&kind).copied().unwrap_or(0)
    }

    fn replace(&mut self, kind: Kind, items: Vec<Watched>, keys: &mut BTreeSet<ObjectKey>) {
        let listed: BTreeSet<ObjectKey> =
            items.iter().filter(|it| !matches!(it, Watched::Gone { .. })).filter_map(Watched::key).collect();
        for key in self.known(kind) {
            if !listed.contains(&key) {
                self.gone(kind, &key, keys);
            }
        }
        for item in items {
            self.take(item, keys);
        }
    }

    fn known(&self, kind: Kind) -> Vec<ObjectKey> {
        match kind {
            Kind::Sets => self.entries.keys().cloned().collect(),
            kind => self.objects.keys(kind),
        }
    }

    /// How many objects of a kind are known.
    pub fn count(&self, kind: Kind) -> usize {
        match kind {
            Kind::Sets => self.entries.len(),
            kind => self.objects.count(kind),
        }
    }

    /// A set as it is cached.
    pub fn set_of(&self, key: &ObjectKey) -> Option<&Arc<Set>> {
        self.entries.get(key).map(|it| &it.set)
    }

    /// The sets as they are cached.
    pub fn sets(&self) -> impl Iterator<Item = &Arc<Set>> {
        self.entries.values().map(|it| &it.set)
    }

    /// The sets there are.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.entries.keys()
    }

    /// What `look` would work from if everything were computed anew: the oracle of the incremental one.
    pub fn from_scratch(&self) -> Self {
        let mut scratch = Self { settings: self.settings, ..Self::default() };
        scratch.seen = self.seen.clone();
        let mut ignored = BTreeSet::new();
        let sets = self.entries.values().map(|it| Watched::Set(it.set.clone()));
        for watched in self.objects.all().into_iter().chain(sets) {
            scratch.take(watched, &mut ignored);
        }
        scratch.seen = self.seen.clone();
        scratch.newest = self.newest.clone();
        for (key, entry) in &self.entries {
            if let Some(fresh) = scratch.entries.get_mut(key) {
                fresh.memory = entry.memory.clone();
                fresh.looked_at = entry.looked_at;
            }
        }
        scratch.gated = self.gated.clone();
        scratch
    }

    /// Whether two caches hold the same for a set: cells, totals and what is to be done.
    pub fn agrees_with(&self, other: &Self, key: &ObjectKey) -> bool {
        match (self.entries.get(key), other.entries.get(key)) {
            (Some(a), Some(b)) => {
                a.ledger == b.ledger && a.pods == b.pods && a.carried == b.carried && a.strays == b.strays
            }
            (a, b) => a.is_none() && b.is_none(),
        }
    }

    fn gate(&mut self, key: &ObjectKey, now: Time) -> Option<Closed> {
        let entry = self.entries.get_mut(key)?;
        let (seen, objects) = (&self.seen, &self.objects);
        let seen = |kind: Kind| seen.get(&kind).copied().unwrap_or(0);
        let set = entry.set.clone();
        let is_alive = |kind, uid: &Text, key: &ObjectKey| shows_alive(objects, &set, kind, uid, key);
        let closed = entry.memory.gate.closed(seen, is_alive, now);
        if closed.is_none() {
            self.gated.remove(key);
        }
        closed
    }

    /// Sets whose gate an event has opened.
    fn opened(&self) -> Vec<ObjectKey> {
        if self.gated.is_empty() {
            return Vec::new();
        }
        let seen = |kind: Kind| self.seen(kind);
        let open = |key: &&ObjectKey| {
            let entry = self.entries.get(*key);
            entry.is_none_or(|entry| {
                let objects = &self.objects;
                let is_alive =
                    |kind, uid: &Text, key: &ObjectKey| shows_alive(objects, &entry.set, kind, uid, key);
                entry.memory.gate.is_open(seen, is_alive)
            })
        };
        self.gated.iter().filter(open).cloned().collect()
    }

    fn take(&mut self, watched: Watched, keys: &mut BTreeSet<ObjectKey>) {
        match watched {
            Watched::Set(set) => self.set(set, keys),
            Watched::Node(node) => self.node(node, keys),
            Watched::Pod(pod) => self.pod(pod, keys),
            Watched::Revision(revision) => self.revision(revision, keys),
            Watched::Gone { kind, key, resource_version } => {
                self.saw(kind, resource_version);
                self.gone(kind, &key, keys);
            }
            Watched::Bookmark { .. } | Watched::Error { .. } => {}
        }
    }

    /// A bookmark: the kind's watch has come this far. Gives the sets to look at again, as `apply` does.
    pub fn bookmark(&mut self, kind: Kind, resource_version: u64) -> Vec<ObjectKey> {
        let before = self.synced();
        self.saw(kind, resource_version);
        if !before && self.synced() {
            return self.entries.keys().cloned().collect();
        }
        self.opened()
    }

    fn saw(&mut self, kind: Kind, resource_version: u64) {
        // Before its first list a kind has not been seen, whatever comes.
        if let Some(seen) = self.seen.get_mut(&kind) {
            *seen = (*seen).max(resource_version);
            let newest = self.newest.entry(kind).or_default();
            *newest = (*newest).max(*seen);
        }
    }

    fn set(&mut self, set: Arc<Set>, keys: &mut BTreeSet<ObjectKey>) {
        self.saw(Kind::Sets, set.resource_version);
        let key = set.key.clone();
        keys.insert(key.clone());
        match self.entries.get_mut(&key).filter(|it| it.set.uid == set.uid) {
            Some(entry) => {
                let same = reads_the_same(&entry.set, &set);
                if entry.set.selector != set.selector || entry.set.deleting != set.deleting {
                    entry.set = set;
                    entry.gather(&self.objects);
                } else {
                    entry.set = set;
                }
                if !same {
                    entry.dirty = Dirty::All;
                }
            }
            None => {
                let mut entry = Entry::new(set);
                entry.gather(&self.objects);
                self.by_uid.insert(entry.set.uid.clone(), key.clone());
                if let Some(before) = self.entries.insert(key, entry) {
                    self.by_uid.remove(&before.set.uid);
                }
            }
        }
    }

    fn node(&mut self, node: Arc<Node>, keys: &mut BTreeSet<ObjectKey>) {
        self.saw(Kind::Nodes, node.resource_version);
        let name = node.name.clone();
        let before = self.objects.put_node(node.clone());
        if before.is_some_and(|it| it.looks_like(&node)) {
            return;
        }
        self.touch_node(&name, keys);
    }

    fn touch_node(&mut self, name: &Text, keys: &mut BTreeSet<ObjectKey>) {
        for (key, entry) in &mut self.entries {
            entry.dirty.node(name);
            keys.insert(key.clone());
        }
    }

    fn pod(&mut self, pod: Arc<Pod>, keys: &mut BTreeSet<ObjectKey>) {
        self.saw(Kind::Pods, pod.resource_version);
        let before = self.objects.put_pod(pod.clone());
        // The version first: it lies in the pod itself, all else lies elsewhere.
        if before.as_ref().is_some_and(|it| it.resource_version == pod.resource_version && *it == pod) {
            return;
        }
        if let Some(before) = before {
            if self.swap_pod(&before, &pod, keys) {
                return;
            }
            self.forget_pod(&before, keys);
        }
        for key in self.concerned(pod.owner.as_ref(), &pod.key.namespace) {
            if self.entries.get_mut(&key).is_some_and(|it| it.meet_pod(&pod)) {
                keys.insert(key);
            }
        }
    }

    /// Most events change nothing of whose a pod is and where: then it only takes its own place.
    fn swap_pod(&mut self, before: &Arc<Pod>, pod: &Arc<Pod>, keys: &mut BTreeSet<ObjectKey>) -> bool {
        let (Some(owner), Some(node)) = (&pod.owner, &pod.target) else { return false };
        let stays = before.owner == pod.owner && before.target == pod.target && before.labels == pod.labels;
        let Some(key) = self.by_uid.get(owner).filter(|_| stays) else { return false };
        let Some(entry) = self.entries.get_mut(key) else { return false };
        let here = entry.pods.get_mut(node).map_or(&mut [][..], Vec::as_mut_slice);
        let Some(place) = here.iter_mut().find(|it| Arc::ptr_eq(it, before)) else { return false };
        *place = pod.clone();
        entry.dirty.node(node);
        keys.insert(key.clone());
        true
    }

    fn forget_pod(&mut self, pod: &Arc<Pod>, keys: &mut BTreeSet<ObjectKey>) {
        for key in self.concerned(pod.owner.as_ref(), &pod.key.namespace) {
            if self.entries.get_mut(&key).is_some_and(|it| it.forget_pod(pod)) {
                keys.insert(key);
            }
        }
    }

    /// Rule: an object that has a controller concerns that set only, found by UID, and only in the set's own namespace;
    /// an orphan concerns the sets of its namespace.
    fn concerned(&self, owner: Option<&Text>, namespace: &Text) -> Vec<ObjectKey> {
        match owner {
            Some(uid) => {
                let owner = self.by_uid.get(uid).filter(|key| key.namespace == *namespace);
                owner.cloned().into_iter().collect()
            }
            None => {
                let first = ObjectKey::new(namespace.clone(), "");
                let sets = self.entries.range(first..).map(|(key, _)| key);
                sets.take_while(|key| key.namespace == *namespace).cloned().collect()
            }
        }
    }

    fn revision(&mut self, revision: Arc<Revision>, keys: &mut BTreeSet<ObjectKey>) {
        self.saw(Kind::Revisions, revision.resource_version);
        let before = self.objects.put_revision(revision.clone());
        if before.as_ref() == Some(&revision) {
            return;
        }
        self.touch_revision(&revision, before.as_ref(), keys);
    }

    fn touch_revision(
        &mut self,
        revision: &Revision,
        before: Option<&Arc<Revision>>,
        keys: &mut BTreeSet<ObjectKey>,
    ) {
        let owners = [before.and_then(|it| it.owner.as_ref()), revision.owner.as_ref()];
        let concerned = owners.into_iter().flat_map(|it| self.concerned(it, &revision.key.namespace));
        for key in concerned.collect::<BTreeSet<ObjectKey>>() {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let objects = &self.objects;
            let was_ours = before.is_some_and(|it| it.owner.as_ref() == Some(&entry.set.uid));
            let is_ours = revision.owner.as_ref() == Some(&entry.set.uid);
            let stray = entry.meet_stray_revision(objects, &revision.key.name);
            if was_ours || is_ours {
                entry.dirty = Dirty::All;
            }
            if was_ours || is_ours || stray {
                keys.insert(key);
            }
        }
    }

    fn gone(&mut self, kind: Kind, key: &ObjectKey, keys: &mut BTreeSet<ObjectKey>) {
        match kind {
            Kind::Sets => {
                if let Some(entry) = self.entries.remove(key) {
                    self.by_uid.remove(&entry.set.uid);
                }
                self.gated.remove(key);
            }
            Kind::Nodes => {
                if self.objects.remove_node(&key.name) {
                    self.touch_node(&key.name, keys);
                }
            }
            Kind::Pods => {
                if let Some(pod) = self.objects.remove_pod(key) {
                    self.forget_pod(&pod, keys);
                }
            }
            Kind::Revisions => {
                if let Some(revision) = self.objects.remove_revision(key) {
                    self.touch_revision(&revision, Some(&revision), keys);
                }
            }
        }
    }
}

/// Whether cells and history come out the same for both. The collision count is in the name of the next revision:
/// without it a taken name would be tried, and the count raised, again and again.
fn reads_the_same(a: &Set, b: &Set) -> bool {
    a.generation == b.generation
        && a.selector == b.selector
        && a.rollout == b.rollout
        && a.min_ready == b.min_ready
        && a.history_max == b.history_max
        && a.template == b.template
        && a.template_generation == b.template_generation
        && a.status.collisions == b.status.collisions
}

/// Rule: a delete has come back when the object of that UID is terminating or gone; one that another of the same name has
/// replaced is gone, and a pod that was relabelled or given to somebody else is no longer the set's to count.
fn shows_alive(objects: &Objects, set: &Set, kind: Kind, uid: &Text, key: &ObjectKey) -> bool {
    match kind {
        Kind::Pods => objects.pod(key).is_some_and(|it| {
            let counted = it.owner.as_ref() == Some(&set.uid) && set.selector.matches(&it.labels);
            it.uid == *uid && counted && !it.deleting
        }),
        Kind::Revisions => objects.revision(key).is_some_and(|it| it.uid == *uid && !it.deleting),
        Kind::Sets | Kind::Nodes => false,
    }
}

fn place_of(item: &Watched) -> Option<(Kind, u64)> {
    match item {
        Watched::Set(it) => Some((Kind::Sets, it.resource_version)),
        Watched::Node(it) => Some((Kind::Nodes, it.resource_version)),
        Watched::Pod(it) => Some((Kind::Pods, it.resource_version)),
        Watched::Revision(it) => Some((Kind::Revisions, it.resource_version)),
        Watched::Gone { kind, resource_version, .. } => Some((*kind, *resource_version)),
        Watched::Bookmark { .. } | Watched::Error { .. } => None,
    }
}

fn wait(set: &Arc<Set>, closed: Closed) -> Plan {
    let mut plan = Plan::idle(set.clone());
    match closed {
        Closed::Wait { writes, again_at } => {
            plan.waiting = Some(Why::WaitingForOwnWrites { writes });
            plan.wake_at = Some(again_at);
        }
        Closed::Confirm { relist, again_at } => {
            (plan.confirm, plan.relist, plan.wake_at) = (true, relist, Some(again_at));
        }
    }
    plan
}

impl Entry {
    fn new(set: Arc<Set>) -> Self {
        Self {
            set,
            pods: HashOrderedMap::default(),
            carried: BTreeMap::new(),
            strays: BTreeMap::new(),
            ledger: Ledger::default(),
            dirty: Dirty::All,
            looked_at: None,
            memory: Memory::default(),
        }
    }

    /// Works out anew which objects of the namespace are the set's, and which it should claim or release.
    fn gather(&mut self, objects: &Objects) {
        self.pods.clear();
        self.carried.clear();
        self.strays.clear();
        let set = self.set.clone();
        for pod in objects.pods_for(&set.uid, &set.key.namespace) {
            self.meet_pod(&pod);
        }
        for revision in objects.revisions_for(&set.uid, &set.key.namespace) {
            self.meet_stray_revision(objects, &revision.key.name);
        }
        self.dirty = Dirty::All;
    }

    /// Rule: a pod is the set's if its controller is the set, by UID. One of those that the selector no longer matches
    /// is released; an orphan it matches is adopted, unless it is being deleted. Upstream: `ClaimPods`.
    fn meet_pod(&mut self, pod: &Arc<Pod>) -> bool {
        let matches = self.set.selector.matches(&pod.labels);
        let stray = match &pod.owner {
            Some(owner) if *owner != self.set.uid => return false,
            Some(_) if matches => None,
            Some(_) => Some(Claim::ReleasePod(pod.clone())),
            None if matches && !pod.deleting => Some(Claim::AdoptPod(pod.clone())),
            None => return false,
        };
        if let Some(claim) = stray {
            self.strays.insert((Kind::Pods, pod.key.name.clone()), claim);
            return true;
        }
        if let Some(hash) = pod.hash() {
            *self.carried.entry(hash.clone()).or_default() += 1;
        }
        if let Some(node) = &pod.target {
            let here = self.pods.entry(node).or_default();
            let at = here.partition_point(|it| it.key.name < pod.key.name);
            here.insert(at, pod.clone());
            self.dirty.node(node);
        }
        true
    }

    fn forget_pod(&mut self, pod: &Arc<Pod>) -> bool {
        let was_stray = self.strays.remove(&(Kind::Pods, pod.key.name.clone())).is_some();
        if was_stray || pod.owner.as_ref() != Some(&self.set.uid) || !self.set.selector.matches(&pod.labels) {
            return was_stray;
        }
        if let Some(hash) = pod.hash()
            && let Some(count) = self.carried.get_mut(hash)
        {
            *count -= 1;
            if *count == 0 {
                self.carried.remove(hash);
            }
        }
        if let Some(node) = &pod.target
            && let Some(here) = self.pods.get_mut(node)
        {
            here.retain(|it| it.key.name != pod.key.name);
            if here.is_empty() {
                self.pods.remove(node);
            }
            self.dirty.node(node);
        }
        true
    }

    /// The same rule for revisions.
    fn meet_stray_revision(&mut self, objects: &Objects, name: &Text) -> bool {
        let place = (Kind::Revisions, name.clone());
        let was_stray = self.strays.remove(&place).is_some();
        let key = ObjectKey { namespace: self.set.key.namespace.clone(), name: name.clone() };
        let Some(revision) = objects.revision(&key) else { return was_stray };
        let matches = self.set.selector.matches(&revision.labels);
        let claim = match &revision.owner {
            Some(owner) if *owner != self.set.uid => None,
            Some(_) if matches => None,
            Some(_) => Some(Claim::ReleaseRevision(revision.clone())),
            None if matches && !revision.deleting => Some(Claim::AdoptRevision(revision.clone())),
            None => None,
        };
        let is_stray = claim.is_some();
        if let Some(claim) = claim {
            self.strays.insert(place, claim);
        }
        was_stray || is_stray
    }

    /// A clock that was set back: what time had brought is worked out anew, and no wait grows longer.
    fn mind_the_clock(&mut self, now: Time) {
        if self.looked_at.is_some_and(|it| now < it) {
            self.dirty = Dirty::All;
            for backoff in self.memory.backoffs.values_mut() {
                backoff.last = backoff.last.min(now);
            }
            for taken in self.memory.taken.values_mut() {
                taken.at = taken.at.min(now);
            }
            self.memory.retry_at = self.memory.retry_at.map(|at| at.min(now + RETRY_MAX));
            if let Some(advance) = &mut self.memory.advance {
                advance.at = advance.at.min(now);
            }
            self.memory.status_at = self.memory.status_at.map(|at| at.min(now));
        }
        self.looked_at = Some(now);
        if self.memory.generation != self.set.generation {
            // Rule: a new generation is a new try: failed pods and failed calls of the old one do not count against it.
            self.memory.generation = self.set.generation;
            self.memory.backoffs.clear();
            (self.memory.failures, self.memory.retry_at) = (0, None);
            self.dirty = Dirty::All;
        }
    }

    fn refresh(&mut self, objects: &Objects, now: Time) {
        let due = |ledger: &Ledger| -> Option<Text> {
            let first = ledger.timers.first().filter(|(at, _)| *at <= now);
            first.map(|(_, node)| node.clone())
        };
        if self.ledger.history.again_at.is_some_and(|at| at <= now) {
            self.dirty = Dirty::All;
        }
        let Dirty::Nodes(mut nodes) = core::mem::replace(&mut self.dirty, Dirty::Nodes(BTreeSet::new()))
        else {
            return self.refresh_all(objects, now);
        };
        let Some(current) = self.ledger.history.current.clone() else { return };
        loop {
            let node = match nodes.pop_first() {
                Some(node) => node,
                None => match due(&self.ledger) {
                    Some(node) => node,
                    None => break,
                },
            };
            self.refresh_node(objects, &current, &node, now);
        }
    }

    fn refresh_all(&mut self, objects: &Objects, now: Time) {
        let owned: Vec<Arc<Revision>> = objects
            .revisions_for(&self.set.uid, &self.set.key.namespace)
            .filter(|it| it.owner.as_ref() == Some(&self.set.uid) && self.set.selector.matches(&it.labels))
            .collect();
        self.ledger = Ledger::new(revision::history(&self.set, &owned, now));
        let Some(current) = self.ledger.history.current.clone() else { return };
        let cells = objects.nodes().join(&self.pods, |name, node, pods| {
            let pods = pods.map_or(&[][..], Vec::as_slice);
            cell::assess(&self.set, &current, node.map(Arc::as_ref), pods, self.memory.of(name), now)
        });
        self.ledger.fill(&current, cells);
    }

    fn refresh_node(&mut self, objects: &Objects, current: &Current, name: &Text, now: Time) {
        let node = objects.node(name);
        let pods = self.pods.get(name).map_or(&[][..], Vec::as_slice);
        if node.is_none() && pods.is_empty() {
            self.memory.backoffs.remove(name);
            self.memory.taken.remove(name);
            return self.ledger.remove(current, name);
        }
        let cell = cell::assess(&self.set, current, node, pods, self.memory.of(name), now);
        if self.memory.taken.get(name).is_some_and(|it| it.until(&self.set, current, pods, now).is_none()) {
            self.memory.taken.remove(name);
        }
        self.ledger.put(current, name, cell);
    }

    /// Rule: counts alone are written a few times in a second; a new generation, a condition that turns, and the count
    /// that completes a rollout are written at once.
    fn hold_status(&self, plan: &mut Plan, now: Time) {
        let Some(until) = self.memory.status_at.map(|it| it + STATUS_EVERY).filter(|it| now < *it) else {
            return;
        };
        let counts_alone = |it: &Status| {
            let before = &self.set.status;
            let turned =
                |a: &Condition, b: &Condition| (a.kind, a.status, &a.reason) != (b.kind, b.status, &b.reason);
            it.observed_generation == before.observed_generation
                && it.collisions == before.collisions
                && it.conditions.len() == before.conditions.len()
                && !it.conditions.iter().zip(&before.conditions).any(|(a, b)| turned(a, b))
        };
        if plan.status.as_ref().is_some_and(counts_alone) && !self.ledger.totals.complete() {
            plan.status = None;
            plan.wake_at = earliest(plan.wake_at, Some(until));
        }
    }

    fn note_advance(&mut self, now: Time) {
        let Some(current) = &self.ledger.history.current else { return };
        let counts = self.ledger.totals.counts();
        let complete = self.ledger.totals.complete();
        let (hash, generation) = (current.hash.clone(), self.set.generation);
        let mut next = Advance {
            hash,
            generation,
            updated: counts.updated,
            available: counts.available,
            complete,
            at: now,
        };
        match &self.memory.advance {
            None if self.stalled_before(&counts) => next.at = now - daemonset::STALLED_AFTER,
            // The same rollout: it advances only by coming further than ever, not by a pod that comes and goes.
            Some(it) if it.hash == next.hash && it.generation == generation && it.complete == complete => {
                if next.updated <= it.updated && next.available <= it.available {
                    return;
                }
                next.updated = next.updated.max(it.updated);
                next.available = next.available.max(it.available);
            }
            _ => {}
        }
        self.memory.advance = Some(next);
    }

    /// Rule: a new process takes the last one's word that the rollout is stalled, as long as the counts are the same.
    fn stalled_before(&self, counts: &Counts) -> bool {
        let status = &self.set.status;
        let stalled = |it: &Condition| it.kind == ConditionType::Progressing && it.reason.as_ref() == STALLED;
        status.counts == *counts
            && status.observed_generation == self.set.generation
            && status.conditions.iter().any(stalled)
    }
}

impl Memory {
    /// What is remembered of a node.
    fn of(&self, node: &Text) -> OfNode<'_> {
        OfNode { backoff: self.backoffs.get(node).copied(), taken: self.taken.get(node) }
    }

    fn take(&mut self, report: &Report, now: Time) {
        report.tell(&mut self.gate, now);
        if report.wrote_status() {
            self.status_at = Some(now);
        }
        match &report.creates {
            Creates::Unknown => {}
            Creates::Failed(_) if self.failures < FAILURES_TOLD => {}
            Creates::Refused(_) | Creates::Failed(_) if self.creates == Creates::NamespaceTerminating => {}
            creates => self.creates = creates.clone(),
        }
        match report.retry {
            // A list that only asks how a call went says nothing of the next try.
            None if report.confirms() => self.retry_at = None,
            None => (self.failures, self.retry_at) = (0, None),
            Some(asked) => {
                let wait = RETRY_MIN.saturating_mul(1 << self.failures.min(16)).min(RETRY_MAX).max(asked);
                self.failures = self.failures.saturating_add(1);
                self.retry_at = Some(now + wait);
            }
        }
    }
}
