//! The in-memory store: the current objects, and the recent history from which watches resume.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::{
    CommitConflict, CommitEvent, CompactedError, KeyChange, ObjectDraft, Precondition, Revision,
    SelectorIndex, StoreUsage, StoredObject,
};

/// All objects at the current revision, and the history of recent commits.
#[derive(Debug)]
pub struct Store {
    state: BTreeMap<Arc<str>, Arc<StoredObject>>,
    /// Expiry time and key of each object that expires.
    expiring: BTreeSet<(u64, Arc<str>)>,
    /// All commits after `floor` and up to `revision`, in order.
    history: VecDeque<Arc<CommitEvent>>,
    /// The commits of `history` by kind, so that a watch of one kind does not iterate over those of other kinds.
    kinds: BTreeMap<Box<str>, KindHistory>,
    usage: StoreUsage,
    window: HistoryWindow,
    /// Estimated memory of the history in bytes, see [`event_memory_bytes`].
    bytes: usize,
    floor: Revision,
    /// The floor with which this store was opened. Earlier commits are unknown, for all kinds.
    origin: Revision,
    revision: Revision,
}

/// Limits of the history, in commits and in bytes. Both limits apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryWindow {
    pub events_max: usize,
    pub bytes_max: usize,
}

/// The history of one kind.
#[derive(Debug)]
struct KindHistory {
    history: VecDeque<Arc<CommitEvent>>,
    /// Revision of the last commit of this kind that has left the history. A watch of the kind may start at this
    /// revision, however many commits of other kinds have left the history since.
    floor: Revision,
}

impl Store {
    /// The revision of an empty store. It is 1 and not 0, because a client starts its watch at the revision of its
    /// list, and a watch from "0" may start at any revision.
    pub const FIRST_REVISION: Revision = 1;

    /// An empty store that keeps the last `history_max` commits.
    pub fn new(history_max: usize) -> Self {
        Self::empty_after(
            Self::FIRST_REVISION,
            HistoryWindow { events_max: history_max, bytes_max: usize::MAX },
        )
    }

    /// A store whose history begins after `floor`, without objects. [`Store::restore_object`] adds the objects.
    pub fn empty_after(floor: Revision, window: HistoryWindow) -> Self {
        Self {
            state: BTreeMap::new(),
            expiring: BTreeSet::new(),
            history: VecDeque::new(),
            kinds: BTreeMap::new(),
            usage: StoreUsage::default(),
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

    /// The revision after which the history begins.
    pub fn history_floor(&self) -> Revision {
        self.floor
    }

    /// The size of all objects.
    pub fn usage(&self) -> &StoreUsage {
        &self.usage
    }

    pub fn get(&self, key: &str) -> Option<&Arc<StoredObject>> {
        self.state.get(key)
    }

    /// Every object whose key begins with `prefix`, ordered by key.
    pub fn list(&self, prefix: &str) -> impl Iterator<Item = &Arc<StoredObject>> {
        self.list_from(prefix, prefix)
    }

    /// Every object whose key begins with `prefix` and is not less than `start`, ordered by key: the next page of a
    /// list.
    pub fn list_from(&self, prefix: &str, start: &str) -> impl Iterator<Item = &Arc<StoredObject>> {
        self.state
            .range::<str, _>((Bound::Included(start.max(prefix)), Bound::Unbounded))
            .map(|(_, record)| record)
            .take_while(move |record| record.key.starts_with(prefix))
    }

    /// The objects whose expiry time has passed, ordered by that time. They exist until the caller deletes them.
    pub fn expired_objects(&self, now_s: u64) -> impl Iterator<Item = &Arc<StoredObject>> {
        self.expiring.iter().take_while(move |(at, _)| *at <= now_s).map(|(_, key)| &self.state[key])
    }

    /// Stores an object if the precondition holds. The commit gets the next revision.
    pub fn put(
        &mut self,
        key: &str,
        expect: Precondition,
        draft: &ObjectDraft,
    ) -> Result<Arc<CommitEvent>, CommitConflict> {
        let before = self.get(key).cloned();
        expect.check_precondition(before.as_ref())?;
        let revision = self.revision + 1;
        let event = CommitEvent::put(
            revision,
            key,
            before,
            draft.with_revision(revision),
            SelectorIndex::default(),
            None,
        );
        self.apply_commit(event.clone());
        self.trim_history(drop);
        Ok(event)
    }

    /// Deletes an object if the precondition holds. The commit gets the next revision.
    pub fn delete(&mut self, key: &str, expect: Precondition) -> Result<Arc<CommitEvent>, CommitConflict> {
        let before = self.get(key).cloned();
        expect.check_precondition(before.as_ref())?;
        let event = CommitEvent::delete(self.revision + 1, before.ok_or(CommitConflict::Missing)?);
        self.apply_commit(event.clone());
        self.trim_history(drop);
        Ok(event)
    }

    /// Skips revisions, so that later commits have higher revisions than this one.
    pub fn skip_to_revision(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }

    /// Every commit after the revision `after` to a key that begins with `prefix`, in order.
    pub fn commits_since(
        &self,
        prefix: &str,
        after: Revision,
    ) -> Result<impl Iterator<Item = &Arc<CommitEvent>>, CompactedError> {
        let (history, floor) = match prefix.split_once('/') {
            None => (Some(&self.history), self.floor),
            Some((kind, _)) => match self.kinds.get(kind) {
                None => (None, self.origin),
                Some(kind) => (Some(&kind.history), kind.floor),
            },
        };
        if after < floor {
            return Err(CompactedError { floor });
        }
        let skip = move |it: &VecDeque<Arc<CommitEvent>>| it.partition_point(|event| event.revision <= after);
        let events = history.into_iter().flat_map(move |it| it.range(skip(it)..));
        Ok(events.filter(move |event| event.key.starts_with(prefix)))
    }

    /// The highest revision to which the history can be compacted if at least the last `events` commits must stay.
    pub fn floor_keeping_commits(&self, events: usize) -> Revision {
        let last_dropped = self.history.len().checked_sub(events + 1).map(|at| self.history[at].revision);
        last_dropped.unwrap_or(self.floor)
    }

    /// Drops the history up to the revision `floor`. Objects are not affected.
    pub fn compact(&mut self, floor: Revision) {
        self.compact_to(floor, drop);
    }

    pub(crate) fn compact_to(&mut self, floor: Revision, mut trimmed: impl FnMut(Arc<CommitEvent>)) {
        while self.history.front().is_some_and(|it| it.revision <= floor) {
            trimmed(self.drop_oldest_commit());
        }
    }

    /// Adds an object that existed at the floor. Its commit is not in the history.
    pub fn restore_object(&mut self, record: StoredObject) {
        assert!(
            record.modified <= self.floor,
            "a record of the state at the floor is not newer than the floor"
        );
        self.insert_object(Arc::new(record));
    }

    /// Applies the next commit to the state and the history. The caller trims the history afterwards.
    pub(crate) fn apply_commit(&mut self, event: Arc<CommitEvent>) {
        assert!(self.revision < event.revision, "revisions increase");
        match &event.change {
            KeyChange::Put { now, .. } => self.insert_object(now.clone()),
            KeyChange::Delete { before, .. } => {
                if let Some(removed) = self.state.remove(&before.key) {
                    self.usage.remove_object(&removed);
                }
                self.remove_expiry(before);
            }
        }
        self.revision = event.revision;
        self.bytes += event_memory_bytes(&event);
        let kind = kind_of(&event.key);
        if !self.kinds.contains_key(kind) {
            self.kinds.insert(kind.into(), KindHistory { history: VecDeque::new(), floor: self.origin });
        }
        self.kinds.get_mut(kind).expect("inserted above").history.push_back(event.clone());
        self.history.push_back(event);
    }

    pub(crate) fn trim_history(&mut self, mut trimmed: impl FnMut(Arc<CommitEvent>)) {
        while self.window.events_max < self.history.len() || self.window.bytes_max < self.bytes {
            trimmed(self.drop_oldest_commit());
        }
    }

    fn insert_object(&mut self, record: Arc<StoredObject>) {
        if let Some(at) = record.expires_s {
            self.expiring.insert((at, record.key.clone()));
        }
        let expires_s = record.expires_s;
        self.usage.add_object(&record);
        if let Some(before) = self.state.insert(record.key.clone(), record) {
            self.usage.remove_object(&before);
            if before.expires_s != expires_s {
                self.remove_expiry(&before);
            }
        }
    }

    fn remove_expiry(&mut self, record: &StoredObject) {
        if let Some(at) = record.expires_s {
            self.expiring.remove(&(at, record.key.clone()));
        }
    }

    fn drop_oldest_commit(&mut self) -> Arc<CommitEvent> {
        let oldest = self.history.pop_front().expect("the history is not empty");
        let kind =
            self.kinds.get_mut(kind_of(&oldest.key)).expect("every commit is in the history of its kind");
        let also = kind.history.pop_front().expect("every commit is in the history of its kind");
        assert_eq!(also.revision, oldest.revision, "both histories are in order");
        kind.floor = oldest.revision;
        self.floor = oldest.revision;
        self.bytes -= event_memory_bytes(&oldest);
        oldest
    }
}

fn kind_of(key: &str) -> &str {
    key.split('/').next().unwrap_or_default()
}

/// Estimated memory of an event: its value, an encoded watch event with a copy of the value, and overhead.
fn event_memory_bytes(event: &CommitEvent) -> usize {
    const OVERHEAD_BYTES: usize = 400;
    OVERHEAD_BYTES + event.key.len() + 2 * event.latest_value().len()
}

#[cfg(test)]
mod tests;
