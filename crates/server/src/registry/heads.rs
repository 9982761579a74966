//! How far the store has come: watchers sleep here, each on what concerns it.
//!
//! A watch of one object, or of the pods of one node, is woken by nothing else. The agents of thousands of nodes hold one of
//! each, and if every pod woke them all, a rollout would cost the square of the cluster.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_store::{Change, Event, Record, Revision};
use tokio::sync::watch;

use crate::kinds::{Kind, served};
use crate::selector::Selector;

/// Of this kind many clients watch a part each: those with the same value of this field.
const PARTED: (&str, &str) = ("pods", "spec.nodeName");

/// Commits that a place remembers. A watcher that has fallen further behind walks over the history of its kind.
const COMMITS_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Heads {
    pub(super) all: watch::Sender<Revision>,
    /// By resource, which is how keys begin.
    kinds: HashMap<String, watch::Sender<Revision>>,
    places: Mutex<Places>,
}

/// What someone watches that is narrower than a kind.
#[derive(Debug, Default)]
struct Places {
    /// By the key of an object, or by what [`part`] calls a part of a kind.
    by_name: HashMap<String, Place>,
    /// All up to here were told of. What comes later is told to every place that is here by then.
    told: Revision,
}

#[derive(Debug)]
struct Place {
    commits: watch::Sender<Commits>,
    watchers: usize,
}

/// The last commits to a place: all of those after `since`.
#[derive(Debug)]
struct Commits {
    since: Revision,
    revisions: VecDeque<Revision>,
}

/// What a watcher sleeps on.
#[derive(Debug)]
pub(crate) struct Head(On);

#[derive(Debug)]
enum On {
    Kind(watch::Receiver<Revision>),
    Place { heads: Arc<Heads>, name: String, commits: watch::Receiver<Commits> },
}

impl Heads {
    pub(super) fn new() -> Self {
        let sender = || watch::Sender::new(0);
        Self {
            all: sender(),
            kinds: served().map(|it| (it.resource(), sender())).collect(),
            places: Mutex::default(),
        }
    }

    /// Where the store stands when it is opened.
    pub(super) fn begin(&self, revision: Revision) {
        self.places().told = revision;
        self.all.send_replace(revision);
    }

    pub(super) fn of_kind(&self, kind: &Kind) -> &watch::Sender<Revision> {
        self.kinds.get(&kind.stored().resource()).unwrap_or(&self.all)
    }

    /// What a watch of this kind sleeps on. `key` is the object's, if it is of one alone.
    pub(super) fn of_watch(self: &Arc<Self>, kind: &Kind, key: Option<&str>, selector: &Selector) -> Head {
        let resource = kind.stored().resource();
        let part_of = |value| (resource == PARTED.0).then(|| part(value));
        let Some(name) = key.map(str::to_owned).or_else(|| part_of(selector.exactly(PARTED.1)?)) else {
            return Head(On::Kind(self.of_kind(kind).subscribe()));
        };
        let mut places = self.places();
        let since = places.told;
        let place = places.by_name.entry(name.clone()).or_insert_with(|| Place {
            commits: watch::Sender::new(Commits { since, revisions: VecDeque::new() }),
            watchers: 0,
        });
        place.watchers += 1;
        let commits = place.commits.subscribe();
        drop(places);
        Head(On::Place { heads: self.clone(), name, commits })
    }

    /// Each kind is woken once for a batch, with the last of its commits.
    pub(super) fn advance(&self, batch: &[Arc<Event>]) {
        let Some(last) = batch.last() else { return };
        let mut places = self.places();
        if !places.by_name.is_empty() {
            batch.iter().for_each(|it| places.tell(it));
        }
        places.told = last.revision;
        drop(places);

        let mut lasts: Vec<(&str, Revision)> = Vec::new();
        for event in batch {
            let resource = resource_of(event);
            match lasts.iter_mut().find(|it| it.0 == resource) {
                Some(it) => it.1 = event.revision,
                None => lasts.push((resource, event.revision)),
            }
        }
        for (resource, revision) in lasts {
            if let Some(kind) = self.kinds.get(resource) {
                kind.send_replace(revision);
            }
        }
        // Last, so that no place lacks what is told here.
        self.all.send_replace(last.revision);
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    fn tell(&self, event: &Event) {
        let tell = |name: &str| {
            if let Some(place) = self.by_name.get(name) {
                place.commits.send_modify(|it| it.push(event.revision));
            }
        };
        tell(&event.key);
        if resource_of(event) == PARTED.0 {
            let part_of = |it: &Record| part(it.index.field(PARTED.1).unwrap_or_default());
            let before = event.before().map(|it| part_of(it));
            let now = match &event.change {
                Change::Put { now, .. } => Some(part_of(now)),
                Change::Delete { .. } => None,
            };
            // Whoever moves from one to the other concerns both.
            before.iter().for_each(|it| tell(it));
            now.iter().filter(|it| before.as_ref() != Some(it)).for_each(|it| tell(it));
        }
    }
}

impl Commits {
    fn push(&mut self, revision: Revision) {
        if self.revisions.len() == COMMITS_MAX {
            self.since = self.revisions.pop_front().unwrap_or(self.since);
        }
        self.revisions.push_back(revision);
    }
}

impl Head {
    pub(crate) fn mark_unchanged(&mut self) {
        match &mut self.0 {
            On::Kind(head) => head.mark_unchanged(),
            On::Place { commits, .. } => commits.mark_unchanged(),
        }
    }

    /// `None` when nothing can come any more.
    pub(crate) async fn changed(&mut self) -> Option<()> {
        match &mut self.0 {
            On::Kind(head) => head.changed().await.ok(),
            On::Place { commits, .. } => commits.changed().await.ok(),
        }
    }

    /// How far a watcher that has seen everything up to `seen` may go on without a look, because nothing in between concerns it.
    pub(crate) fn skip(&self, seen: Revision) -> Revision {
        let On::Place { heads, commits, .. } = &self.0 else { return seen };
        // Read first: what is told of here, the place has been told of already.
        let told = *heads.all.borrow();
        let commits = commits.borrow();
        if seen < commits.since {
            return seen;
        }
        match commits.revisions.iter().find(|it| seen < **it) {
            Some(next) => next - 1,
            None => told.max(seen),
        }
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        let On::Place { heads, name, .. } = &self.0 else { return };
        let mut places = heads.places();
        if let Some(place) = places.by_name.get_mut(name) {
            place.watchers -= 1;
            if place.watchers == 0 {
                places.by_name.remove(name);
            }
        }
    }
}

fn resource_of(event: &Event) -> &str {
    event.key.split('/').next().unwrap_or_default()
}

/// No key looks like it: a resource has no such sign in it.
fn part(value: &str) -> String {
    format!("{}?{value}", PARTED.0)
}
