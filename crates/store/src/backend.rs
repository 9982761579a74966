//! The interface of a storage backend of a [`Db`](crate::Db), and the store to which the backend publishes commits.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::{
    CommitConflict, CommitEvent, HistoryWindow, LogError, ObjectDraft, Precondition, Revision, SelectorIndex,
    SizeLimitExceeded, Store, StoreLimits, WriteClass,
};

/// A storage backend: orders commits, makes them durable and publishes them.
pub trait Backend: Send + Sync {
    /// Submits a commit. Calls `done` when the commit is durable and published, or when it is rejected.
    fn commit(&self, commit: Commit, done: OnCommitted);

    /// Linearizable read barrier. Calls `done` when the published state includes every commit that any server
    /// acknowledged before this call.
    fn read_barrier(&self, done: OnReadBarrier);

    /// Drops all history up to the revision `floor`.
    fn compact(&self, floor: Revision);

    /// Completes queued commits, rejects later commits, and returns when the last write is done. A call from a callback
    /// would deadlock.
    fn close(&self);
}

/// Called once with the result of a commit.
pub type OnCommitted = Box<dyn FnOnce(Result<Arc<CommitEvent>, CommitError>) + Send>;

/// Called once when a read barrier is passed or has failed.
pub type OnReadBarrier = Box<dyn FnOnce(Result<(), ReadBarrierError>) + Send>;

/// The backend cannot confirm that its state is current.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store cannot confirm that its state is current: {why}")]
pub struct ReadBarrierError {
    pub why: String,
}

/// Options of a [`Db`](crate::Db): history window, limits and callbacks.
pub struct DbOptions {
    pub window: HistoryWindow,
    pub limits: StoreLimits,
    /// Maximum number of queued commits. Further commits are rejected immediately.
    pub queue_max: usize,
    pub on_commit: OnBatchPublished,
    /// Called once if the log fails. No later commit succeeds.
    pub on_failure: OnFailure,
}

/// Called with every batch of commits after it is published and before the callers of the commits get their results.
pub type OnBatchPublished = Box<dyn Fn(&[Arc<CommitEvent>]) + Send + Sync>;

/// Called once with the error that stopped the backend.
pub type OnFailure = Box<dyn FnOnce(&LogError) + Send>;

/// A write to one key, with its preconditions.
#[derive(Debug)]
pub struct Commit {
    pub key: String,
    /// The state that the key must have.
    pub expect: Precondition,
    /// Additional precondition: another key (that of the namespace), and the revision that its object must still have.
    pub within: Option<(String, Revision)>,
    pub class: WriteClass,
    pub write: CommitWrite,
}

/// What a commit does to its key.
#[derive(Debug)]
pub enum CommitWrite {
    Put { index: SelectorIndex, expires_s: Option<u64>, draft: ObjectDraft },
    Delete,
}

/// Why a commit was rejected. The commit changed nothing. Only after [`CommitError::Failed`] it may have been written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error(transparent)]
    Conflict(#[from] CommitConflict),
    #[error(transparent)]
    SizeLimitExceeded(#[from] SizeLimitExceeded),
    #[error("too many writes are waiting for the disk: try again later")]
    QueueFull,
    #[error("the disk is full: writes fail until disk space is free again; reads and deletes still work")]
    DiskFull,
    #[error("{why}: try again later")]
    Busy { why: String },
    #[error("the store has stopped: {why}")]
    Failed { why: String },
}

impl fmt::Debug for DbOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("window", &self.window).finish_non_exhaustive()
    }
}

/// The store from which readers read. Only the backend modifies it.
pub struct PublishedStore {
    store: RwLock<Store>,
    on_commit: OnBatchPublished,
}

// A poisoned lock is still used: no panic can leave a half-published batch, because readers change nothing and the
// backend publishes from one place.
impl PublishedStore {
    pub fn new(store: Store, on_commit: OnBatchPublished) -> Arc<Self> {
        Arc::new(Self { store: RwLock::new(store), on_commit })
    }

    pub fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies durable commits in the order of their revisions, and notifies watches. Calls `trimmed` with the commits
    /// that left the history, in order.
    pub fn publish(&self, events: &[Arc<CommitEvent>], trimmed: impl FnOnce(&[Arc<CommitEvent>])) {
        self.modify_store(trimmed, |store, trimmed| {
            events.iter().for_each(|it| store.apply_commit(it.clone()));
            store.trim_history(trimmed);
        });
        (self.on_commit)(events);
    }

    /// Drops all history up to the revision `floor`. Calls `trimmed` with the dropped commits, in order.
    pub fn compact(&self, floor: Revision, trimmed: impl FnOnce(&[Arc<CommitEvent>])) {
        self.modify_store(trimmed, |store, trimmed| store.compact_to(floor, trimmed));
    }

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
