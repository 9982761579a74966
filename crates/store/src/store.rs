//! State and history in memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Change, Compacted, Conflict, Event, Expect, Index, Record, Revision, Usage};

#[derive(Debug)]
pub struct Store {
    state: BTreeMap<Arc<str>, Arc<Record>>,
    /// When, and which key.
    expiring: BTreeSet<(u64, Arc<str>)>,
    /// The commits `floor + 1 ..= revision`, all of them, in order.
    history: VecDeque<Arc<Event>>,
    /// The same commits once more, kind by kind: a watch of one kind does not walk over those of others.
    kinds: BTreeMap<Box<str>, Kind>,
    usage: Usage,
    window: Window,
    /// What the history weighs.
    bytes: usize,
    floor: Revision,
    /// Where the history began when this store was made: older commits are unknown, of whatever kind.
    origin: Revision,
    revision: Revision,
}

/// How much history is kept: whichever is reached first ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub events_max: usize,
    pub bytes_max: usize,
}

#[derive(Debug)]
struct Kind {
    history: VecDeque<Arc<Event>>,
    /// The last commit of this kind that is out of the history. The kind may be watched from here on,
    /// however many commits of other kinds were forgotten since.
    floor: Revision,
}

impl Store {
    /// An empty store is at 1 and not at 0, because to Kubernetes clients a watch from "0" means
    /// "from anywhere", and they take the number from the list of an empty store.
    pub const FIRST: Revision = 1;

    /// Keeps the last `history_max` commits for watchers.
    pub fn new(history_max: usize) -> Self {
        Self::at(Self::FIRST, Window { events_max: history_max, bytes_max: usize::MAX })
    }

    /// A store whose history begins after `floor`; its state is still to be restored.
    pub(crate) fn at(floor: Revision, window: Window) -> Self {
        Self {
            state: BTreeMap::new(),
            expiring: BTreeSet::new(),
            history: VecDeque::new(),
            kinds: BTreeMap::new(),
            usage: Usage::default(),
            window,
            bytes: 0,
            floor,
            origin: floor,
            revision: floor,
        }
    }

    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The history begins after this revision.
    pub fn floor(&self) -> Revision {
        self.floor
    }

    /// How much the records are, in bytes.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    pub fn get(&self, key: &str) -> Option<&Arc<Record>> {
        self.state.get(key)
    }

    /// Every record whose key begins with `prefix`, ordered by key.
    pub fn list(&self, prefix: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.list_from(prefix, prefix)
    }

    /// The same from the key `start` on, which is how a list in pages goes on.
    pub fn list_from(&self, prefix: &str, start: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.state
            .range::<str, _>((Bound::Included(start.max(prefix)), Bound::Unbounded))
            .map(|(_, record)| record)
            .take_while(move |record| record.key.starts_with(prefix))
    }

    /// The records whose time has come, the first to go first. They are there until someone deletes them.
    pub fn expired(&self, now_s: u64) -> impl Iterator<Item = &Arc<Record>> {
        self.expiring.iter().take_while(move |(at, _)| *at <= now_s).map(|(_, key)| &self.state[key])
    }

    /// `make` is given the revision of this commit, so that the value can carry it.
    pub fn put(
        &mut self,
        key: &str,
        expect: Expect,
        make: impl FnOnce(Revision) -> Bytes,
    ) -> Result<Arc<Record>, Conflict> {
        let before = self.get(key).cloned();
        expect.check(before.as_ref())?;
        let revision = self.revision + 1;
        let now = written(key, before.as_ref(), revision, make(revision), Index::default(), None);
        self.apply(Event::new(revision, now.key.clone(), Change::Put { now: now.clone(), before }));
        self.trim(drop);
        Ok(now)
    }

    /// `make` gives the last value, which carries the revision of this deletion: watchers get it.
    pub fn delete(
        &mut self,
        key: &str,
        expect: Expect,
        make: impl FnOnce(Revision) -> Bytes,
    ) -> Result<Arc<Event>, Conflict> {
        let before = self.get(key).cloned();
        expect.check(before.as_ref())?;
        let before = before.ok_or(Conflict::Missing)?;
        let revision = self.revision + 1;
        let last = make(revision);
        let event = Event::new(revision, before.key.clone(), Change::Delete { before, last });
        self.apply(event.clone());
        self.trim(drop);
        Ok(event)
    }

    /// The commits after `after` to keys that begin with `prefix`, in order, none left out.
    pub fn since(
        &self,
        prefix: &str,
        after: Revision,
    ) -> Result<impl Iterator<Item = &Arc<Event>>, Compacted> {
        let (history, floor) = match prefix.split_once('/') {
            None => (Some(&self.history), self.floor),
            Some((kind, _)) => match self.kinds.get(kind) {
                None => (None, self.origin),
                Some(kind) => (Some(&kind.history), kind.floor),
            },
        };
        if after < floor {
            return Err(Compacted { floor });
        }
        let skip = move |it: &VecDeque<Arc<Event>>| it.partition_point(|event| event.revision <= after);
        let events = history.into_iter().flat_map(move |it| it.range(skip(it)..));
        Ok(events.filter(move |event| event.key.starts_with(prefix)))
    }

    /// Forgets the commits up to `floor`. The state stays.
    pub fn compact(&mut self, floor: Revision) {
        self.compact_to(floor, drop);
    }

    pub(crate) fn compact_to(&mut self, floor: Revision, mut forgotten: impl FnMut(Arc<Event>)) {
        let floor = floor.min(self.revision);
        while self.floor < floor {
            forgotten(self.forget_oldest());
        }
    }

    /// What was there at the floor. Its commit is not in the history.
    pub(crate) fn restore(&mut self, record: Record) {
        assert!(record.modified <= self.floor, "the state at the floor is not newer than it");
        self.place(Arc::new(record));
    }

    /// The next commit. Whoever applies commits also trims the history, in its own time.
    pub(crate) fn apply(&mut self, event: Arc<Event>) {
        assert_eq!(event.revision, self.revision + 1, "one commit, one revision");
        match &event.change {
            Change::Put { now, .. } => self.place(now.clone()),
            Change::Delete { before, .. } => {
                if let Some(removed) = self.state.remove(&before.key) {
                    self.usage.remove(&removed);
                }
                self.unschedule(before);
            }
        }
        self.revision = event.revision;
        self.bytes += weight(&event);
        let kind = kind_of(&event.key);
        if !self.kinds.contains_key(kind) {
            self.kinds.insert(kind.into(), Kind { history: VecDeque::new(), floor: self.origin });
        }
        self.kinds.get_mut(kind).expect("just made one").history.push_back(event.clone());
        self.history.push_back(event);
    }

    pub(crate) fn trim(&mut self, mut forgotten: impl FnMut(Arc<Event>)) {
        while self.window.events_max < self.history.len() || self.window.bytes_max < self.bytes {
            forgotten(self.forget_oldest());
        }
    }

    fn place(&mut self, record: Arc<Record>) {
        if let Some(at) = record.expires_s {
            self.expiring.insert((at, record.key.clone()));
        }
        let expires_s = record.expires_s;
        self.usage.add(&record);
        if let Some(before) = self.state.insert(record.key.clone(), record) {
            self.usage.remove(&before);
            if before.expires_s != expires_s {
                self.unschedule(&before);
            }
        }
    }

    fn unschedule(&mut self, record: &Record) {
        if let Some(at) = record.expires_s {
            self.expiring.remove(&(at, record.key.clone()));
        }
    }

    fn forget_oldest(&mut self) -> Arc<Event> {
        let oldest = self.history.pop_front().expect("the floor is below the revision");
        assert_eq!(oldest.revision, self.floor + 1, "the history has no gaps");
        let kind = self.kinds.get_mut(kind_of(&oldest.key)).expect("every commit has its kind");
        let also = kind.history.pop_front().expect("every commit is in the history of its kind");
        assert_eq!(also.revision, oldest.revision, "both histories are in order");
        kind.floor = oldest.revision;
        self.floor = oldest.revision;
        self.bytes -= weight(&oldest);
        oldest
    }
}

/// The record that a commit leaves. The key is shared with the record before.
pub(crate) fn written(
    key: &str,
    before: Option<&Arc<Record>>,
    revision: Revision,
    value: Bytes,
    index: Index,
    expires_s: Option<u64>,
) -> Arc<Record> {
    let created = before.map_or(revision, |it| it.created);
    let key = before.map_or_else(|| Arc::from(key), |it| it.key.clone());
    Arc::new(Record { key, value, index, created, modified: revision, expires_s })
}

fn kind_of(key: &str) -> &str {
    key.split('/').next().unwrap_or_default()
}

/// What an event holds at most: its value, a frame that is a copy of it, and about this much around them.
fn weight(event: &Event) -> usize {
    const AROUND: usize = 400;
    AROUND + event.key.len() + 2 * event.value().len()
}

#[cfg(test)]
mod tests;
