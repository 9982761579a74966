//! What goes because of what it belongs to: an object names its owners, and does not outlive them.
//!
//! A [`Graph`] holds who names whom, for every kind. Events go in, and the objects to look at come out; a look gives the
//! one call that an object needs now, and what came of it goes back. Each call is about one object alone: what an owner
//! waits for is done by its dependents, one by one.
//!
//! Pods that nobody will end go as well: [`Pod`] is what is known of them.
//!
//! Nothing is deleted on the word of a watch that may be late. An owner that the graph does not show is asked for by
//! name, once for all who name it, and a delete names the version that was looked at.
//! Upstream: `pkg/controller/garbagecollector`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

pub use call::{Call, Propagation, request};
pub use decode::Raw;
pub use pods::Pod;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use self::pods::{ENDED_MAX, Fate, Pods};
use crate::controller::Reconcile;
pub use crate::controller::Resource;
use crate::controller::retry::{Attempt, NextAttempt};
use crate::daemonset::execution::Refusal;
use crate::daemonset::why::Why;

mod call;
mod decode;
mod driven;
mod pods;

/// The owner waits until its dependents are gone.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The owner waits until its dependents have let go of it.
pub const ORPHAN: &str = "orphan";

/// What is kept of an object, of whatever kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    pub resource: Arc<Resource>,
    /// The namespace is empty where the kind has none.
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub owners: Vec<Owner>,
    pub deleting: bool,
    pub finalizers: Vec<Text>,
    /// If it is one.
    pub pod: Option<Arc<Pod>>,
    /// If it is a node: whether it was declared to run nothing any more, and is not ready.
    pub out_of_service: Option<bool>,
}

/// An object's word about an owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    pub api_version: Text,
    pub kind: Text,
    pub name: Text,
    pub uid: Text,
    /// The owner may not go before this object, if it is deleted in the foreground.
    pub blocks: bool,
}

impl Object {
    fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|it| **it == *finalizer)
    }

    fn standing(&self) -> Standing {
        if self.deleting && self.has(ORPHAN) {
            Standing::Orphaning
        } else if self.deleting && self.has(FOREGROUND) {
            Standing::Waiting
        } else {
            Standing::Solid
        }
    }

    fn blocks(&self, owner: &str) -> bool {
        self.owners.iter().any(|it| *it.uid == *owner && it.blocks)
    }
}

/// An object by all its names. Two objects never share a UID, but references can be wrong about the rest.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Identity {
    pub resource: Arc<Resource>,
    pub key: ObjectKey,
    pub uid: Text,
}

/// What an owner is to those who name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Solid,
    /// It is being deleted, and its dependents go first.
    Waiting,
    /// It is being deleted, and its dependents stay.
    Orphaning,
    /// There is none of that name with that UID, and there will not be.
    Absent,
}

/// What is known of an owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word {
    standing: Standing,
    /// The API server itself has said so, and is asked again then.
    until: Option<Time>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// All objects of a kind.
    Listed {
        resource: Arc<Resource>,
        objects: Vec<Object>,
    },
    Applied(Object),
    Deleted {
        uid: Text,
    },
}

/// What came of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    /// The object of that name, which was to be read.
    Found(Object),
    Refused(Refusal),
}

/// How long the API server's word about an owner that no watch shows is taken. Thousands that name the same one cost one
/// read.
const ANSWER_KEPT: Duration = Duration::from_secs(10);

/// More answers than this are forgotten, which costs reads and nothing else.
const ANSWERS_MAX: usize = 1000;

/// The watches of two kinds come independently. A dependent that was made just before its owner was deleted may be shown
/// a little later, and would be deleted if its owner had gone before it could let go.
const ORPHANS_SHOWN_WITHIN: Duration = Duration::from_millis(250);

/// Who names whom, over all kinds.
#[derive(Debug)]
pub struct Graph {
    /// The kinds whose events come.
    watched: Vec<Arc<Resource>>,
    /// All that an owner may be of.
    resources: Vec<Arc<Resource>>,
    /// Kinds whose first list has not come: until then nothing is decided.
    missing: BTreeSet<Arc<Resource>>,
    objects: BTreeMap<Text, Arc<Object>>,
    /// By the UID of the owner, which may be one that is not there.
    dependents: BTreeMap<Text, BTreeSet<Text>>,
    /// What the API server said of owners, by their UID, and until when it is taken.
    answers: BTreeMap<Text, Vec<(Identity, Standing, Time)>>,
    /// Reads that are under way, and who waits for them.
    asked: BTreeMap<Identity, BTreeSet<Text>>,
    attempts: BTreeMap<Text, Attempt>,
    /// When the dependents of an owner that lets them go can be taken to have been shown.
    orphans_shown_at: BTreeMap<Text, Time>,
    pods: Pods,
}

enum Verdict {
    Nothing,
    Wait { until: Time },
    Ask(Vec<Identity>),
    Do(Call),
}

impl Graph {
    /// `watched` are the kinds whose events will come; owners may be of any that is served.
    pub fn new(served: Vec<Arc<Resource>>, watched: impl IntoIterator<Item = Arc<Resource>>) -> Self {
        let watched: Vec<_> = watched.into_iter().collect();
        Self {
            resources: served,
            missing: watched.iter().cloned().collect(),
            watched,
            objects: BTreeMap::new(),
            dependents: BTreeMap::new(),
            answers: BTreeMap::new(),
            asked: BTreeMap::new(),
            attempts: BTreeMap::new(),
            orphans_shown_at: BTreeMap::new(),
            pods: Pods::new(ENDED_MAX),
        }
    }

    /// Takes an event in, and says which objects to look at.
    pub fn apply(&mut self, event: Event) -> BTreeSet<Text> {
        let mut keys = BTreeSet::new();
        match event {
            Event::Applied(object) => self.put(object, &mut keys),
            Event::Deleted { uid } => self.remove(&uid, &mut keys),
            Event::Listed { resource, objects } => {
                let listed: BTreeSet<&Text> = objects.iter().map(|it| &it.uid).collect();
                let is_gone = |it: &&Arc<Object>| it.resource == resource && !listed.contains(&it.uid);
                let gone: Vec<Text> =
                    self.objects.values().filter(is_gone).map(|it| it.uid.clone()).collect();
                gone.iter().for_each(|uid| self.remove(uid, &mut keys));
                objects.into_iter().for_each(|it| self.put(it, &mut keys));
                if self.missing.remove(&resource) && self.missing.is_empty() {
                    keys = self.objects.keys().cloned().collect();
                }
            }
        }
        if self.missing.is_empty() { keys } else { BTreeSet::new() }
    }

    fn put(&mut self, object: Object, keys: &mut BTreeSet<Text>) {
        if object.uid.is_empty() {
            return;
        }
        let uid = object.uid.clone();
        self.answers.remove(&uid);
        let before = self.objects.get(&uid).cloned();
        let old_owners = before.as_ref().map_or(&[][..], |it| &it.owners);
        let is_same = before.as_ref().is_some_and(|it| {
            it.owners == object.owners
                && it.deleting == object.deleting
                && it.finalizers == object.finalizers
                && it.pod == object.pod
        });
        self.pods.change(before.as_deref(), Some(&object), keys);
        if !is_same {
            for owner in old_owners {
                self.let_go(&owner.uid, &uid, keys);
            }
            for owner in &object.owners {
                self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
            }
            if before.as_ref().map(|it| it.standing()) != Some(object.standing()) {
                keys.extend(self.dependents.get(&uid).into_iter().flatten().cloned());
            }
        }
        if !is_same || self.attempts.contains_key(&uid) {
            keys.insert(uid.clone());
        }
        self.objects.insert(uid, Arc::new(object));
    }

    fn remove(&mut self, uid: &Text, keys: &mut BTreeSet<Text>) {
        let Some(object) = self.objects.remove(uid) else { return };
        self.answers.remove(uid);
        self.attempts.remove(uid);
        self.orphans_shown_at.remove(uid);
        self.pods.change(Some(&object), None, keys);
        for owner in &object.owners {
            self.let_go(&owner.uid, uid, keys);
        }
        keys.extend(self.dependents.get(uid).into_iter().flatten().cloned());
    }

    /// The owner may have waited for just this one.
    fn let_go(&mut self, owner: &Text, dependent: &Text, keys: &mut BTreeSet<Text>) {
        if let Some(others) = self.dependents.get_mut(owner) {
            others.remove(dependent);
            if others.is_empty() {
                self.dependents.remove(owner);
            }
        }
        if self.objects.get(owner).is_some_and(|it| it.deleting) {
            keys.insert(owner.clone());
        }
    }

    /// What the object of this UID needs now. One call at a time is under way about each.
    pub fn reconcile(&mut self, uid: &Text, now: Time) -> Reconcile<Call> {
        let Some(object) = self.objects.get(uid).cloned() else { return Reconcile::default() };
        if !self.missing.is_empty() {
            return Reconcile::default();
        }
        let mut attempt = self.attempts.get(uid).copied().unwrap_or_default();
        match attempt.next(object.resource_version, now) {
            NextAttempt::Now => {}
            NextAttempt::AfterOutcome => return Reconcile::default(),
            NextAttempt::At(at) => return Reconcile { wake_at: Some(at), ..Reconcile::default() },
        }
        match self.decide(&object, now) {
            Verdict::Nothing => {
                self.attempts.remove(uid);
                Reconcile::default()
            }
            Verdict::Wait { until } => Reconcile { wake_at: Some(until), ..Reconcile::default() },
            Verdict::Ask(identities) => {
                let mut reconcile = Reconcile::default();
                for identity in identities {
                    let waiting = self.asked.entry(identity.clone()).or_default();
                    if waiting.is_empty() {
                        reconcile.calls.push(Call::Read(identity));
                    }
                    waiting.insert(uid.clone());
                }
                reconcile
            }
            Verdict::Do(call) => {
                attempt.begin();
                self.attempts.insert(uid.clone(), attempt);
                Reconcile { calls: Vec::from([call]), ..Reconcile::default() }
            }
        }
    }

    fn decide(&mut self, object: &Arc<Object>, now: Time) -> Verdict {
        let until = match self.doom(object, now) {
            None => return self.judge(object, now),
            Some(Verdict::Wait { until }) => until,
            Some(verdict) => return verdict,
        };
        // A pod whose node may come back can go with its owners all the same.
        match self.judge(object, now) {
            Verdict::Nothing => Verdict::Wait { until },
            Verdict::Wait { until: other } => Verdict::Wait { until: until.min(other) },
            verdict => verdict,
        }
    }

    /// What follows for an object from its owners, and from its dependents if it is leaving.
    fn judge(&mut self, object: &Arc<Object>, now: Time) -> Verdict {
        let owners: Vec<(&Owner, Option<Word>)> =
            object.owners.iter().map(|it| (it, self.word(object, it, now))).collect();
        let of = |wanted: Standing| -> Vec<Text> {
            let is_wanted = |it: &Option<Word>| it.is_some_and(|it| it.standing == wanted);
            owners.iter().filter(|(_, it)| is_wanted(it)).map(|(owner, _)| owner.uid.clone()).collect()
        };
        let mut orphaning = of(Standing::Orphaning);
        // It waits for whoever names its UID, be the name right or wrong.
        let is_orphaning =
            |uid: &Text| self.objects.get(uid).is_some_and(|it| it.standing() == Standing::Orphaning);
        for (owner, _) in &owners {
            if is_orphaning(&owner.uid) && !orphaning.contains(&owner.uid) {
                orphaning.push(owner.uid.clone());
            }
        }
        if !orphaning.is_empty() {
            let object = object.clone();
            return Verdict::Do(Call::Disown { object, owners: orphaning, why: Why::OwnerLetsGo });
        }
        if object.deleting {
            return self.finish(object, now);
        }
        // Somebody may know what that owner is, but it is not this server.
        let is_beyond_us =
            |it: &Owner| self.identity(object, it).is_none() && self.shown(object, it).is_none();
        if owners.is_empty() || owners.iter().any(|(it, _)| is_beyond_us(it)) {
            return Verdict::Nothing;
        }
        let ask = |wanted: &dyn Fn(&Option<Word>) -> bool| -> Vec<Identity> {
            let wanted = owners.iter().filter(|(_, it)| wanted(it));
            wanted.filter_map(|(owner, _)| self.identity(object, owner)).collect()
        };
        let unknown = ask(&|it| it.is_none());
        if !unknown.is_empty() {
            return Verdict::Ask(unknown);
        }
        let (waiting, mut leaving) = (of(Standing::Waiting), of(Standing::Absent));
        if !of(Standing::Solid).is_empty() {
            leaving.extend(waiting);
            if leaving.is_empty() {
                let until = owners.iter().filter_map(|(_, it)| it.and_then(|it| it.until)).min();
                return until.map_or(Verdict::Nothing, |until| Verdict::Wait { until });
            }
            let object = object.clone();
            return Verdict::Do(Call::Disown { object, owners: leaving, why: Why::OwnersAreGone });
        }
        // A watch alone has said that the owner waits, and somebody may have changed their mind since.
        let unsure = ask(&|it| it.is_some_and(|it| it.until.is_none()));
        if !unsure.is_empty() {
            return Verdict::Ask(unsure);
        }
        Verdict::Do(self.delete(object, !waiting.is_empty()))
    }

    /// What a pod needs that nobody else will end. It is marked as failed first, so that whoever made it knows.
    fn doom(&mut self, object: &Arc<Object>, now: Time) -> Option<Verdict> {
        let pod = object.pod.as_ref()?;
        let why = match self.pods.fate(object, pod, now) {
            Fate::Stays => return None,
            Fate::Suspect { until } => return Some(Verdict::Wait { until }),
            Fate::Goes(why) => why,
        };
        if why == Why::NodeIsGone {
            let nodes = self.resources.iter().find(|it| it.group.is_empty() && *it.kind == *"Node")?.clone();
            let key = ObjectKey { namespace: Text::from(""), name: pod.node.clone() };
            let node = Identity { resource: nodes, key, uid: Text::from("") };
            match self.answer(&node, now) {
                None => return Some(Verdict::Ask(Vec::from([node]))),
                Some((_, Standing::Absent, _)) => {}
                Some((_, _, until)) => return Some(Verdict::Wait { until: *until }),
            }
        }
        let object = object.clone();
        Some(Verdict::Do(match pod.ended {
            false => Call::Fail { object, why, at: now },
            true => Call::Remove { object, why },
        }))
    }

    /// Rule: an object goes when none of its owners is left. If one of them waits for it, then what it owns itself goes
    /// before it; else its own finalizers say what becomes of that. An object that waits for what waits for it blocks its
    /// owners no longer, or neither would ever go. Upstream: `attemptToDeleteItem`.
    fn delete(&self, object: &Arc<Object>, owner_waits: bool) -> Call {
        let mut dependents = self.dependents_of(&object.uid).peekable();
        let object = object.clone();
        let why = if owner_waits { Why::OwnerIsLeaving } else { Why::OwnersAreGone };
        if owner_waits && dependents.peek().is_some() {
            let is_circle = dependents.any(|it| it.standing() == Standing::Waiting);
            if is_circle && object.owners.iter().any(|it| it.blocks) {
                return Call::Unblock { object };
            }
            return Call::Delete { object, propagation: Propagation::Foreground, why };
        }
        let propagation = if object.has(ORPHAN) {
            Propagation::Orphan
        } else if object.has(FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        Call::Delete { object, propagation, why }
    }

    /// Rule: an owner that is deleted in the foreground goes when no dependent is left that blocks it; one whose dependents
    /// stay, when none names it any more. Upstream: `processDeletingDependentsItem`, `attemptToOrphanWorker`.
    fn finish(&mut self, object: &Arc<Object>, now: Time) -> Verdict {
        match object.standing() {
            Standing::Solid | Standing::Absent => Verdict::Nothing,
            Standing::Waiting => {
                if self.dependents_of(&object.uid).any(|it| it.blocks(&object.uid)) {
                    return Verdict::Nothing;
                }
                Verdict::Do(Call::RemoveFinalizer { object: object.clone(), finalizer: FOREGROUND })
            }
            Standing::Orphaning => {
                let shown_at =
                    *self.orphans_shown_at.entry(object.uid.clone()).or_insert(now + ORPHANS_SHOWN_WITHIN);
                if now < shown_at {
                    return Verdict::Wait { until: shown_at.min(now + ORPHANS_SHOWN_WITHIN) };
                }
                if self.dependents_of(&object.uid).next().is_some() {
                    return Verdict::Nothing;
                }
                Verdict::Do(Call::RemoveFinalizer { object: object.clone(), finalizer: ORPHAN })
            }
        }
    }

    fn dependents_of(&self, uid: &Text) -> impl Iterator<Item = &Arc<Object>> {
        self.dependents.get(uid).into_iter().flatten().filter_map(|it| self.objects.get(it))
    }

    /// Rule: an owner is the object that a reference names by kind, name and UID, in the dependent's own namespace or in
    /// none. What is not exactly that is no owner: not one of another namespace, and not another that has taken the name.
    /// `None`: nobody has said whether there is one. Upstream: `isDangling`.
    fn word(&self, object: &Object, owner: &Owner, now: Time) -> Option<Word> {
        match self.identity(object, owner).and_then(|it| self.answer(&it, now)) {
            Some((_, standing, until)) => Some(Word { standing: *standing, until: Some(*until) }),
            None => self.shown(object, owner).map(|it| Word { standing: it.standing(), until: None }),
        }
    }

    fn answer(&self, identity: &Identity, now: Time) -> Option<&(Identity, Standing, Time)> {
        let mut answers = self.answers.get(&identity.uid).into_iter().flatten();
        answers.find(|(it, _, until)| it == identity && now < *until)
    }

    /// The owner, if the watches show it.
    fn shown(&self, object: &Object, owner: &Owner) -> Option<&Arc<Object>> {
        let is_it = |it: &&Arc<Object>| {
            let is_near = !it.resource.namespaced || it.key.namespace == object.key.namespace;
            is_near && it.resource.kind == owner.kind && it.key.name == owner.name
        };
        self.objects.get(&owner.uid).filter(is_it)
    }

    /// Where the owner would have to be. `None`: nowhere, for the kind is not served, or has namespaces while the dependent
    /// is in none.
    fn identity(&self, object: &Object, owner: &Owner) -> Option<Identity> {
        let is_it = |it: &&Arc<Resource>| it.kind == owner.kind && it.is_version(&owner.api_version);
        let resource = self.resources.iter().find(is_it).filter(|_| !owner.name.is_empty())?.clone();
        let namespace = match (resource.namespaced, object.resource.namespaced) {
            (true, false) => return None,
            (true, true) => object.key.namespace.clone(),
            (false, _) => Text::from(""),
        };
        let key = ObjectKey { namespace, name: owner.name.clone() };
        Some(Identity { resource, key, uid: owner.uid.clone() })
    }

    /// Takes in what came of a call, and says which objects to look at.
    pub fn done(&mut self, call: &Call, outcome: Outcome, now: Time) -> BTreeSet<Text> {
        match call {
            Call::Read(identity) => self.answered(identity, outcome, now),
            Call::Delete { object, .. }
            | Call::Disown { object, .. }
            | Call::Unblock { object }
            | Call::RemoveFinalizer { object, .. }
            | Call::Fail { object, .. }
            | Call::Remove { object, .. } => {
                // It is gone meanwhile.
                let Some(attempt) = self.attempts.get_mut(&object.uid) else { return BTreeSet::new() };
                match outcome {
                    Outcome::Done | Outcome::Found(_) | Outcome::Refused(Refusal::NotFound) => {
                        attempt.expect_version(object.resource_version.saturating_add(1), now);
                    }
                    Outcome::Refused(refusal) => attempt.fail(&refusal, now),
                }
                BTreeSet::from([object.uid.clone()])
            }
        }
    }

    fn answered(&mut self, identity: &Identity, outcome: Outcome, now: Time) -> BTreeSet<Text> {
        let waited = self.asked.remove(identity).unwrap_or_default();
        let standing = match outcome {
            // A node is looked for by its name alone.
            Outcome::Found(object) if object.uid == identity.uid || identity.uid.is_empty() => {
                object.standing()
            }
            Outcome::Found(_) | Outcome::Done | Outcome::Refused(Refusal::NotFound) => Standing::Absent,
            Outcome::Refused(refusal) => {
                for uid in &waited {
                    self.attempts.entry(uid.clone()).or_default().fail(&refusal, now);
                }
                return waited;
            }
        };
        if ANSWERS_MAX <= self.answers.len() {
            self.answers.clear();
        }
        let answers = self.answers.entry(identity.uid.clone()).or_default();
        answers.retain(|(it, _, until)| it != identity && now < *until);
        answers.push((identity.clone(), standing, now + ANSWER_KEPT));
        waited
    }
}

#[cfg(test)]
mod tests;
