//! The database that the server uses: reads come from the published store in memory, writes go through a [`Backend`].

use std::fmt;
use std::sync::{Arc, RwLockReadGuard};

use crate::backend::{
    Backend, Commit, CommitError, DbOptions, Fence, PublishedStore, ReadBarrierError, SyncStatistics,
};
use crate::local_backend::LocalBackend;
use crate::{CommitEvent, Log, LogError, Revision, Store};

/// A handle to the database. Clones share one store. The backend is dropped with the last handle.
#[derive(Clone)]
pub struct Db(Arc<DbInner>);

/// The store and backend that all handles share.
struct DbInner {
    /// The store from which readers read.
    published: Arc<PublishedStore>,
    /// The backend that orders commits and makes them durable.
    backend: Box<dyn Backend>,
}

impl Db {
    /// Opens a database over a local log. Reads the whole log, but does not parse the values.
    pub fn open(log: impl Log + 'static, options: DbOptions) -> Result<Self, LogError> {
        let (published, local) = LocalBackend::open(log, options)?;
        Ok(Self::new(published, local))
    }

    /// Creates a database over a backend, which must publish its commits to `published`.
    pub fn new(published: Arc<PublishedStore>, backend: impl Backend + 'static) -> Self {
        Self(Arc::new(DbInner { published, backend: Box::new(backend) }))
    }

    /// Locks the published state and history for reading. Commits wait while the guard is held.
    pub fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.0.published.read()
    }

    /// Submits a commit, see [`Backend::commit`].
    pub fn commit(
        &self,
        commit: Commit,
        done: impl FnOnce(Result<Arc<CommitEvent>, CommitError>) + Send + 'static,
    ) {
        self.0.backend.commit(commit, Box::new(done));
    }

    /// Calls `done` with `Ok` when reads include all commits that were acknowledged before this call, or with an error
    /// if the backend cannot ensure this. See [`Backend::read_barrier`].
    pub fn read_barrier(&self, done: impl FnOnce(Result<(), ReadBarrierError>) + Send + 'static) {
        self.0.backend.read_barrier(Box::new(done));
    }

    /// Like [`Self::read_barrier`], but for a reader that needs this revision. See [`Backend::read_barrier_at`].
    pub fn read_barrier_at(
        &self,
        revision: Revision,
        done: impl FnOnce(Result<(), ReadBarrierError>) + Send + 'static,
    ) {
        self.0.backend.read_barrier_at(revision, Box::new(done));
    }

    /// Drops the commits up to `revision` from the history, see [`Backend::compact`].
    pub fn compact(&self, revision: Revision, fence: Option<Fence>) {
        self.0.backend.compact(revision, fence);
    }

    /// Returns counts of reloads and consistency checks, see [`Backend::sync_statistics`].
    pub fn sync_statistics(&self) -> Option<SyncStatistics> {
        self.0.backend.sync_statistics()
    }

    /// Stops the backend after all queued commits, see [`Backend::close`].
    pub fn close(&self) {
        self.0.backend.close();
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Db at {}", self.read().revision())
    }
}

#[cfg(test)]
mod tests;
