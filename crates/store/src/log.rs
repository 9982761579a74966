//! The interface of the durable log of a store.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::{CommitEvent, Revision, SelectorIndex, Store};

/// A durable log of commits: a compacted revision and one row for each commit that is kept. The rows up to the
/// compacted revision are the objects that existed at that revision. The rows after the compacted revision are all
/// later commits.
pub trait Log: Send {
    /// Returns the compacted revision of the log. The log contains every commit after this revision.
    fn compacted_revision(&mut self) -> Result<Revision, LogError>;

    /// Reads every row in order of revision and calls `on_row` with it. Fails with [`LogError::Damaged`] if `on_row`
    /// rejects a row.
    fn load(&mut self, on_row: OnRow<'_>) -> Result<(), LogError>;

    /// Appends a batch of commits, and returns when it is durable. Also performs `compaction`, if any, and does not
    /// store the rows of the batch that `compaction` removes.
    ///
    /// After [`LogError::Failed`] some commits of the batch may be durable. After any other error none is.
    fn append(&mut self, batch: &[Arc<CommitEvent>], compaction: Option<&Compaction>)
    -> Result<(), LogError>;

    /// Returns whether the disk has space for writes other than deletes. A log may keep a reserve of disk space that
    /// only deletes may use, and may refill it in this call.
    fn ensure_write_space(&mut self) -> bool {
        true
    }

    /// Frees a part of the disk space that the log reserves for deletes. Returns `false` if there is no reserve, if the
    /// whole reserve is already used, or if nothing could be freed.
    fn release_reserve(&mut self) -> bool {
        false
    }

    /// Does maintenance work that is due, such as a checkpoint. The backend calls this after each batch, unless the
    /// write of the batch failed, when all callers have the results of their commits. By default does nothing.
    fn run_maintenance(&mut self) -> Result<(), LogError> {
        Ok(())
    }
}

/// Callback that is called with each row of a log. It returns an error message if the row contradicts earlier rows.
pub type OnRow<'a> = &'a mut dyn FnMut(LogRow) -> Result<(), String>;

/// A commit as a row of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRow {
    pub revision: Revision,
    pub key: Arc<str>,
    /// Whether the commit deleted the object. Then `value` is the last JSON of the object, with the revision of the
    /// deletion as resourceVersion.
    pub is_delete: bool,
    /// Revision of the commit that created the object.
    pub created: Revision,
    /// Expiry time of the object in seconds since the Unix epoch.
    pub expires_s: Option<u64>,
    pub index: SelectorIndex,
    /// The object as JSON, including its resourceVersion. A log without the encryption keys returns Secrets as they are
    /// stored.
    pub value: Bytes,
}

/// A compaction of the log: removes rows of old commits and raises the compacted revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// The new compacted revision of the log.
    pub revision: Revision,
    /// The revisions of the rows to remove.
    pub rows: Vec<Revision>,
}

/// Why the log could not be opened, read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The disk is full and nothing was written. Writes succeed again once disk space is free.
    #[error("the disk is full")]
    DiskFull,
    /// Another process holds the lock of the database file. Nothing was written.
    #[error("another process has locked the data file: {why}")]
    Busy { why: String },
    /// The content of the database is inconsistent or unreadable.
    #[error("the data file {} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    /// A newer version of Muster wrote the database. `known` is the newest format that this version reads.
    #[error("the data file {} has format {found}, and this version reads formats up to {known}", path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    /// The file is not a database of Muster.
    #[error("{} is not a data file of this program", path.display())]
    Foreign { path: PathBuf },
    /// The published store can no longer follow the storage that it shares with other servers, such as etcd.
    #[error("{why}")]
    Remote { why: String },
    /// The target file of a backup exists.
    #[error("{} already exists", path.display())]
    Exists { path: PathBuf },
    /// The database of an existing cluster is missing or empty. The data directory must not silently be used for a new
    /// cluster.
    #[error("the data file {} is {what}, and this data directory had a cluster", path.display())]
    Lost { path: PathBuf, what: &'static str },
    /// The objects of the database were moved to etcd, and its file was renamed.
    #[error("the cluster of the data file {} was moved to etcd", path.display())]
    MovedToEtcd { path: PathBuf },
    /// The database ends before the revision in its cluster marker, so commits are lost.
    #[error(
        "the data file {} ends at revision {found}, and revision {expected} had been written: its -wal file is missing or was \
         truncated, or an older copy has replaced the file",
        path.display()
    )]
    Behind { path: PathBuf, found: Revision, expected: Revision },
    /// The cluster UID in the database is not the one in the cluster marker.
    #[error(
        "the data file {} belongs to another cluster ({}) than its data directory ({expected})",
        path.display(),
        found.as_deref().unwrap_or("without a UID")
    )]
    OtherCluster { path: PathBuf, found: Option<String>, expected: String },
    /// The cluster marker file cannot be parsed.
    #[error("{} is not a valid cluster marker", path.display())]
    Marker { path: PathBuf },
    /// A new cluster was requested, but the data directory has a usable cluster.
    #[error("{} already has a cluster", path.display())]
    HasCluster { path: PathBuf },
    /// The encryption key with this ID is needed and is not configured.
    #[error("the Secrets in {} are encrypted with key {id}, which is not available", path.display())]
    NoKey { path: PathBuf, id: String },
    /// The database file or the cluster marker was removed or replaced while the server used it. Further writes would
    /// go to the old file, which a later start does not read.
    #[error("{} was removed or replaced while it was in use", path.display())]
    Replaced { path: PathBuf },
    /// The writer thread could not be started or has panicked.
    #[error("the writer thread failed: {why}")]
    Writer { why: String },
    /// Any other error, such as one of SQLite or of the file system. Part of a batch may have been written.
    #[error("{}: {why}", path.display())]
    Failed { path: PathBuf, why: String },
}

/// A log that stores nothing. The objects exist only in memory, until the process ends.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLog;

impl Log for MemoryLog {
    fn compacted_revision(&mut self) -> Result<Revision, LogError> {
        Ok(Store::FIRST_REVISION)
    }

    fn load(&mut self, _: OnRow<'_>) -> Result<(), LogError> {
        Ok(())
    }

    fn append(&mut self, _: &[Arc<CommitEvent>], _: Option<&Compaction>) -> Result<(), LogError> {
        Ok(())
    }
}
