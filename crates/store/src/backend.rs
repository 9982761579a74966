//! The interface of a storage backend of a [`Db`](crate::Db), and the store to which the backend publishes commits.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::{
    CommitConflict, CommitEvent, HistoryWindow, LogError, ObjectDraft, Precondition, Revision, SelectorIndex,
    SizeLimitExceeded, Store, StoreLimits, WriteClass,
};

/// A storage backend. It assigns revisions to commits, makes the commits durable, and applies them to a
/// [`PublishedStore`].
pub trait Backend: Send + Sync {
    /// Submits a commit. Calls `done` when the commit is durable and published, or when it is rejected.
    fn commit(&self, commit: Commit, done: OnCommitted);

    /// Performs a linearizable read barrier: calls `done` when the published state includes every commit that any
    /// server acknowledged before this call.
    fn read_barrier(&self, done: OnReadBarrier);

    /// Like [`Self::read_barrier`]. Before it calls `done`, raises the revision of the published state to `revision` if
    /// the storage has reached this revision. Another server may have shown a revision between those of two commits.
    fn read_barrier_at(&self, _revision: Revision, done: OnReadBarrier) {
        self.read_barrier(done);
    }

    /// Drops the commits up to `revision` from the history. If the fence does not hold, a storage that several servers
    /// share is not changed.
    fn compact(&self, revision: Revision, fence: Option<Fence>);

    /// Returns the counts of reloads and consistency checks since the start. `None` if no other server writes to the
    /// storage of this backend.
    fn sync_statistics(&self) -> Option<SyncStatistics> {
        None
    }

    /// Closes the backend: completes the queued commits and returns when the last one is written. Later commits are
    /// rejected. Calling this in a callback of the backend would deadlock.
    fn close(&self);
}

/// Counts of reloads and consistency checks since the start, for a backend that follows a storage to which other
/// servers write too. A consistency check compares all published objects with those in the storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SyncStatistics {
    /// Reloads of all objects because the storage had dropped changes that were not published yet.
    pub reloads_after_compaction: u64,
    /// Reloads of all objects because the storage did not deliver all changes.
    pub reloads_after_loss: u64,
    /// Checks that found the published objects equal to those in the storage.
    pub checks_passed: u64,
    /// Checks that found a difference.
    pub checks_failed: u64,
    /// Checks that could not be completed.
    pub checks_with_error: u64,
}

/// Callback that is called once with the result of a commit. It may be dropped without a call if the backend panics.
pub type OnCommitted = Box<dyn FnOnce(Result<Arc<CommitEvent>, CommitError>) + Send>;

/// Callback that is called once when a read barrier is passed or has failed.
pub type OnReadBarrier = Box<dyn FnOnce(Result<(), ReadBarrierError>) + Send>;

/// Error of [`Backend::read_barrier`]: the backend cannot confirm that its state is current.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store cannot confirm that its state is current: {why}")]
pub struct ReadBarrierError {
    pub why: String,
}

/// Options of a [`Db`](crate::Db): history window, limits and callbacks.
pub struct DbOptions {
    pub window: HistoryWindow,
    pub limits: StoreLimits,
    /// Maximum number of queued commits. Further commits are rejected with [`CommitError::QueueFull`].
    pub queue_max: usize,
    /// Called with each published batch of commits.
    pub on_commit: OnBatchPublished,
    /// Called once if the backend fails. All later commits are rejected.
    pub on_failure: OnFailure,
}

/// Callback that is called with every batch of commits after it is published and before the callers of the commits get
/// their results. It is also called with the differences after [`PublishedStore::replace`].
pub type OnBatchPublished = Box<dyn Fn(&[Arc<CommitEvent>]) + Send + Sync>;

/// Callback that is called once with the error that stopped the backend.
pub type OnFailure = Box<dyn FnOnce(&LogError) + Send>;

/// A write to one key with its preconditions, and the updates of other keys that belong to it.
#[derive(Debug)]
pub struct Commit {
    pub key: String,
    /// The state that `key` must have.
    pub expect: Precondition,
    /// Precondition on the namespace of the object: the key of the Namespace, and the revision that the Namespace must
    /// still have.
    pub within: Option<(String, Revision)>,
    /// Precondition on a pool of values. `None` if the object allocates no value.
    pub allocation: Option<Allocation>,
    /// The class of the write, which determines the size limits that apply.
    pub class: WriteClass,
    /// What the commit does to the key.
    pub write: CommitWrite,
    /// Updates of other objects. Either all of them and `write` are made, or nothing.
    pub linked: Vec<LinkedUpdate>,
    /// Precondition on the leader that makes the write. `None` if the writer need not be a leader.
    pub fence: Option<Fence>,
    /// Whether the commit writes a Lease with another holder than before, and so begins a new term of the Lease. From
    /// then on, commits with a [`Fence`] of an earlier term are rejected.
    pub begins_term: bool,
}

/// The term of a Lease in which a leader makes a write. A term begins when the Lease gets another holder.
///
/// A backend whose storage several servers share rejects the write if a new term has begun after `at`, so that a leader
/// that was stopped for a while cannot write after its successor has become the leader. A backend of a single server
/// ignores the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// Store key of the Lease.
    pub lease: String,
    /// A revision at which the writer held the Lease.
    pub at: Revision,
}

/// An update of another object that is made together with a [`Commit`], such as the usage of a ResourceQuota. No size
/// limit applies to it.
#[derive(Debug)]
pub struct LinkedUpdate {
    pub key: String,
    /// The revision that the object must have.
    pub at: Revision,
    pub index: SelectorIndex,
    pub draft: ObjectDraft,
}

/// A value that an object allocates from a pool, such as a cluster IP, which no other object may have.
///
/// A backend whose storage several servers share rejects the commit if another server has allocated from the pool since
/// `known`. A server must itself prevent two of its own objects from allocating the same value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// Name of the pool.
    pub pool: &'static str,
    /// The revision of the state from which the value was chosen, or an earlier one.
    pub known: Revision,
}

/// What a commit does to its key.
#[derive(Debug)]
pub enum CommitWrite {
    /// Creates or replaces the object. `expires_s` is its expiry time in seconds since the Unix epoch.
    Put { index: SelectorIndex, expires_s: Option<u64>, draft: ObjectDraft },
    /// Deletes the object.
    Delete,
}

/// Why a commit was rejected. A rejected commit changed nothing, except that after [`CommitError::Failed`] and
/// [`CommitError::OutcomeUnknown`] it may have been written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A precondition of the commit does not hold.
    #[error(transparent)]
    Conflict(#[from] CommitConflict),
    /// The write would exceed a size limit.
    #[error(transparent)]
    SizeLimitExceeded(#[from] SizeLimitExceeded),
    /// The storage cannot hold the object. `bytes` is its encoded size.
    #[error(
        "the object needs {bytes} bytes in the storage, with its labels stored twice, limit is {bytes_max}"
    )]
    TooLarge { bytes: usize, bytes_max: usize },
    /// Too many commits are queued.
    #[error("too many writes are waiting for the disk: try again later")]
    QueueFull,
    #[error("the disk is full: writes fail until disk space is free again; reads and deletes still work")]
    DiskFull,
    /// The storage that several servers share is full. `why` says what an administrator has to do.
    #[error("{why}")]
    StorageFull { why: String },
    /// Another process has locked the database.
    #[error("{why}: try again later")]
    Busy { why: String },
    /// The backend cannot reach its storage, or cannot write the commit to it, for example because the commit changes
    /// too many objects or because a value cannot be encrypted. The commit changed nothing.
    #[error("the storage is not available: {why}")]
    Unavailable { why: String },
    /// The backend got no response from its storage. The commit may have been written, or may be written later.
    #[error("it is not known whether the write was made: {why}")]
    OutcomeUnknown { why: String },
    /// The backend was closed or has failed.
    #[error("the store has stopped: {why}")]
    Failed { why: String },
}

impl fmt::Debug for DbOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DbOptions").field("window", &self.window).finish_non_exhaustive()
    }
}

/// The store from which readers read. Only the backend modifies it.
pub struct PublishedStore {
    /// The state and history that readers see.
    store: RwLock<Store>,
    /// Called with each published batch of commits.
    on_commit: OnBatchPublished,
}

// A poisoned lock is still used: no panic can leave a half-published batch, because readers change nothing and the
// backend publishes from one place.
impl PublishedStore {
    /// Makes `store` available to readers. `on_commit` is called with each batch that is published later.
    pub fn new(store: Store, on_commit: OnBatchPublished) -> Arc<Self> {
        Arc::new(Self { store: RwLock::new(store), on_commit })
    }

    /// Locks the store for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies durable commits in order of revision, and then calls `on_commit`. Calls `trimmed` with the commits that
    /// left the history, in order.
    pub fn publish(&self, events: &[Arc<CommitEvent>], trimmed: impl FnOnce(&[Arc<CommitEvent>])) {
        self.modify_store(trimmed, |store, trimmed| {
            events.iter().for_each(|it| store.apply_commit(it.clone()));
            store.trim_history(trimmed);
        });
        (self.on_commit)(events);
    }

    /// Replaces the objects and the history with `next`, which was loaded again at a later revision because the commits
    /// in between are not known. Then calls `on_commit` with an event for each object that is different, all with the
    /// revision of `next`, and returns the number of events.
    ///
    /// The history has none of these events: it begins after the revision of `next`. Every watch and every paged list
    /// from before that revision gets a [`CompactedError`](crate::CompactedError).
    pub fn replace(&self, next: Store) -> usize {
        // Only the backend changes the store, so the differences are still right under the write lock.
        let events = self.read().differences(&next);
        let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
        assert!(store.revision() <= next.revision(), "revisions do not decrease");
        let before = std::mem::replace(&mut *store, next);
        drop(store);
        drop(before);
        if !events.is_empty() {
            (self.on_commit)(&events);
        }
        events.len()
    }

    /// Raises the revision to at least `revision`, up to which there are no further commits.
    pub fn skip_to_revision(&self, revision: Revision) {
        if self.read().revision() < revision {
            self.store.write().unwrap_or_else(PoisonError::into_inner).skip_to_revision(revision);
        }
    }

    /// Drops the commits up to `revision` from the history. Calls `trimmed` with the dropped commits, in order.
    pub fn compact(&self, revision: Revision, trimmed: impl FnOnce(&[Arc<CommitEvent>])) {
        self.modify_store(trimmed, |store, trimmed| store.compact_to(revision, trimmed));
    }

    /// Changes the store under its write lock, and calls `trimmed` with the commits that left the history.
    fn modify_store(
        &self,
        trimmed: impl FnOnce(&[Arc<CommitEvent>]),
        change: impl FnOnce(&mut Store, &mut dyn FnMut(Arc<CommitEvent>)),
    ) {
        let mut events = Vec::new();
        let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut store, &mut |event| events.push(event));
        // Under the lock, so that concurrent calls report their commits in order.
        trimmed(&events);
        // The memory of the events is freed after the lock is released.
        drop(store);
    }
}

impl fmt::Debug for PublishedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Published at {}", self.read().revision())
    }
}
