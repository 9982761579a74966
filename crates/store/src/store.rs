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
    /// The current objects by key.
    state: BTreeMap<Arc<str>, Arc<StoredObject>>,
    /// Expiry time, in seconds since the Unix epoch, and key of each object that expires.
    expiring: BTreeSet<(u64, Arc<str>)>,
    /// All commits after `compacted_revision` and up to `revision`, in order of revision.
    history: VecDeque<Arc<CommitEvent>>,
    /// The commits of `history` by kind, so that a watch of one kind does not iterate over the commits of other kinds.
    kind_histories: BTreeMap<Box<str>, KindHistory>,
    /// The size of the current objects.
    usage: StoreUsage,
    /// The limits of `history`.
    window: HistoryWindow,
    /// Estimated memory that `history` uses in bytes, see [`event_memory_bytes`].
    history_bytes: usize,
    /// The revision of the last commit that was dropped from `history`, or `initial_compacted_revision` if none was
    /// dropped. `history` contains all later commits.
    compacted_revision: Revision,
    /// The value of `compacted_revision` when the objects were loaded. The commits up to this revision were never in
    /// `history`.
    initial_compacted_revision: Revision,
    /// Revision of the last commit.
    revision: Revision,
}

/// Limits of the history from which watches can resume. Both limits apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryWindow {
    /// Maximum number of commits.
    pub events_max: usize,
    /// Maximum estimated memory of the commits in bytes.
    pub bytes_max: usize,
}

/// The part of the history with the commits of one kind.
#[derive(Debug)]
struct KindHistory {
    /// The commits of this kind, in order of revision.
    history: VecDeque<Arc<CommitEvent>>,
    /// Revision of the last commit of this kind that was dropped from the history. Initially
    /// [`Store::initial_compacted_revision`]. A watch of the kind may start at this revision, even if later commits of
    /// other kinds were dropped.
    compacted_revision: Revision,
}

impl Store {
    /// The revision of a new store. It is not 0: a client watches from the revision of its list, and a watch from
    /// resourceVersion "0" may start at any revision.
    pub const FIRST_REVISION: Revision = 1;

    /// Creates an empty store that keeps the last `history_max` commits as history.
    pub fn new(history_max: usize) -> Self {
        Self::empty_after(
            Self::FIRST_REVISION,
            HistoryWindow { events_max: history_max, bytes_max: usize::MAX },
        )
    }

    /// Creates a store without objects and commits, whose history begins after `compacted_revision`. The caller then
    /// adds the objects that existed at that revision with [`Store::restore_object`].
    pub fn empty_after(compacted_revision: Revision, window: HistoryWindow) -> Self {
        Self {
            state: BTreeMap::new(),
            expiring: BTreeSet::new(),
            history: VecDeque::new(),
            kind_histories: BTreeMap::new(),
            usage: StoreUsage::default(),
            window,
            history_bytes: 0,
            compacted_revision,
            initial_compacted_revision: compacted_revision,
            revision: compacted_revision,
        }
    }

    /// Returns the revision of the last commit.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the revision after which the history begins. A watch of a single kind may start earlier, see
    /// [`Store::commits_since`].
    pub fn compacted_revision(&self) -> Revision {
        self.compacted_revision
    }

    /// Returns the revision at which the objects were loaded. No watch of any kind can start before it.
    pub fn initial_compacted_revision(&self) -> Revision {
        self.initial_compacted_revision
    }

    /// Returns the size of the current objects.
    pub fn usage(&self) -> &StoreUsage {
        &self.usage
    }

    /// Returns the object with this key, or `None` if there is none.
    pub fn get(&self, key: &str) -> Option<&Arc<StoredObject>> {
        self.state.get(key)
    }

    /// Returns the objects whose key begins with `prefix`, ordered by key.
    pub fn list(&self, prefix: &str) -> impl Iterator<Item = &Arc<StoredObject>> {
        self.list_from(prefix, prefix)
    }

    /// Returns the objects whose key begins with `prefix` and is at or after the key `start`, ordered by key. This is
    /// used for the next page of a list.
    pub fn list_from(&self, prefix: &str, start: &str) -> impl Iterator<Item = &Arc<StoredObject>> {
        self.state
            .range::<str, _>((Bound::Included(start.max(prefix)), Bound::Unbounded))
            .map(|(_, record)| record)
            .take_while(move |record| record.key.starts_with(prefix))
    }

    /// Returns the objects that have expired at the time `now_s`, ordered by expiry time. `now_s` is in seconds since
    /// the Unix epoch. The store keeps expired objects until the caller deletes them.
    pub fn expired_objects(&self, now_s: u64) -> impl Iterator<Item = &Arc<StoredObject>> {
        self.expiring.iter().take_while(move |(at, _)| *at <= now_s).map(|(_, key)| &self.state[key])
    }

    /// Stores an object if the precondition holds. The commit gets the next revision. The stored object has an empty
    /// selector index and does not expire.
    pub fn put(
        &mut self,
        key: &str,
        expect: Precondition,
        draft: &ObjectDraft,
    ) -> Result<Arc<CommitEvent>, CommitConflict> {
        let before = self.get(key).cloned();
        expect.check(before.as_ref())?;
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
        expect.check(before.as_ref())?;
        let event = CommitEvent::delete(self.revision + 1, before.ok_or(CommitConflict::Missing)?);
        self.apply_commit(event.clone());
        self.trim_history(drop);
        Ok(event)
    }

    /// Raises the revision of the store to at least `revision` without a commit, so that later commits have higher
    /// revisions.
    pub fn skip_to_revision(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }

    /// Returns the commits after the revision `after` to keys that begin with `prefix`, in order. A prefix with a slash
    /// selects the commits of one kind. Fails if some of these commits may have been dropped from the history.
    pub fn commits_since(
        &self,
        prefix: &str,
        after: Revision,
    ) -> Result<impl Iterator<Item = &Arc<CommitEvent>>, CompactedError> {
        let (history, compacted_revision) = match prefix.split_once('/') {
            None => (Some(&self.history), self.compacted_revision),
            Some((kind, _)) => match self.kind_histories.get(kind) {
                None => (None, self.initial_compacted_revision),
                Some(kind) => (Some(&kind.history), kind.compacted_revision),
            },
        };
        if after < compacted_revision {
            return Err(CompactedError { compacted_revision });
        }
        let skip = move |it: &VecDeque<Arc<CommitEvent>>| it.partition_point(|event| event.revision <= after);
        let events = history.into_iter().flat_map(move |it| it.range(skip(it)..));
        Ok(events.filter(move |event| event.key.starts_with(prefix)))
    }

    /// Returns the revision to pass to [`Store::compact`] so that the last `events` commits stay in the history and all
    /// earlier ones are dropped.
    pub fn max_compaction_revision(&self, events: usize) -> Revision {
        let last_dropped = self.history.len().checked_sub(events + 1).map(|at| self.history[at].revision);
        last_dropped.unwrap_or(self.compacted_revision)
    }

    /// Drops the commits up to `revision` from the history. Objects are not affected.
    pub fn compact(&mut self, revision: Revision) {
        self.compact_to(revision, drop);
    }

    /// Drops the commits up to `revision` from the history, and calls `trimmed` with each dropped commit.
    pub(crate) fn compact_to(&mut self, revision: Revision, mut trimmed: impl FnMut(Arc<CommitEvent>)) {
        while self.history.front().is_some_and(|it| it.revision <= revision) {
            trimmed(self.drop_oldest_commit());
        }
    }

    /// Adds an object that existed at the compacted revision. It is called while the store is loaded. The history does
    /// not get the commit of the object.
    pub fn restore_object(&mut self, record: impl Into<Arc<StoredObject>>) {
        let record = record.into();
        assert!(
            record.modified <= self.compacted_revision,
            "a record of the state at the compacted revision is not newer than that revision"
        );
        self.insert_object(record);
    }

    /// Applies the next commit to the objects and the history. The caller calls [`Store::trim_history`] afterwards.
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
        self.history_bytes += event_memory_bytes(&event);
        let kind = kind_of(&event.key);
        if !self.kind_histories.contains_key(kind) {
            self.kind_histories.insert(
                kind.into(),
                KindHistory { history: VecDeque::new(), compacted_revision: self.initial_compacted_revision },
            );
        }
        self.kind_histories.get_mut(kind).expect("inserted above").history.push_back(event.clone());
        self.history.push_back(event);
    }

    /// Returns an event for each object that `next` adds, changes or deletes, ordered by key. All events have the
    /// revision of `next`, because the commits between the two states are not known.
    pub(crate) fn differences(&self, next: &Self) -> Vec<Arc<CommitEvent>> {
        let revision = next.revision;
        let deleted = self.state.values().filter(|it| !next.state.contains_key(&it.key));
        let deleted = deleted.map(|it| CommitEvent::delete(revision, it.clone()));
        let changed = next.state.values().filter_map(|now| {
            let before = self.state.get(&now.key);
            (before != Some(now)).then(|| {
                let change = KeyChange::Put { now: now.clone(), before: before.cloned() };
                CommitEvent::new(revision, now.key.clone(), change)
            })
        });
        let mut events: Vec<_> = deleted.chain(changed).collect();
        events.sort_by(|one, other| one.key.cmp(&other.key));
        events
    }

    /// Drops the oldest commits until the history is within its window. Calls `trimmed` with each dropped commit.
    pub(crate) fn trim_history(&mut self, mut trimmed: impl FnMut(Arc<CommitEvent>)) {
        while self.window.events_max < self.history.len() || self.window.bytes_max < self.history_bytes {
            trimmed(self.drop_oldest_commit());
        }
    }

    /// Adds or replaces an object, and updates usage and expiry times.
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

    /// Removes the object from `expiring`.
    fn remove_expiry(&mut self, record: &StoredObject) {
        if let Some(at) = record.expires_s {
            self.expiring.remove(&(at, record.key.clone()));
        }
    }

    /// Removes the oldest commit from the history and returns it.
    fn drop_oldest_commit(&mut self) -> Arc<CommitEvent> {
        let oldest = self.history.pop_front().expect("the history is not empty");
        let kind = self
            .kind_histories
            .get_mut(kind_of(&oldest.key))
            .expect("every commit is in the history of its kind");
        let also = kind.history.pop_front().expect("every commit is in the history of its kind");
        assert_eq!(also.revision, oldest.revision, "both histories are in order");
        kind.compacted_revision = oldest.revision;
        self.compacted_revision = oldest.revision;
        self.history_bytes -= event_memory_bytes(&oldest);
        oldest
    }
}

/// Returns the kind in a store key: the part before the first slash, such as `daemonsets.apps`.
fn kind_of(key: &str) -> &str {
    key.split('/').next().unwrap_or_default()
}

/// Returns the estimated memory of an event in the history in bytes: its key, its value, an encoded watch event with a
/// copy of the value, and overhead.
fn event_memory_bytes(event: &CommitEvent) -> usize {
    /// Memory of the event in addition to its key and values.
    const OVERHEAD_BYTES: usize = 400;
    OVERHEAD_BYTES + event.key.len() + 2 * event.latest_value().len()
}

#[cfg(test)]
mod tests;
