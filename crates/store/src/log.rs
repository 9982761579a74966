//! The interface of the durable log of a store.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::{CommitEvent, Revision, SelectorIndex, Store};

/// A durable log of commits. A log contains a floor revision and one row for each commit. The rows up to the floor are
/// the state at the floor. The rows after the floor are all later commits.
pub trait Log: Send {
    /// The floor of the log. The log contains every commit after this revision.
    fn history_floor(&mut self) -> Result<Revision, LogError>;

    /// Reads every row in the order of revisions. A row that `on_row` rejects results in [`LogError::Damaged`].
    fn load(&mut self, on_row: OnRow<'_>) -> Result<(), LogError>;

    /// Appends a batch of commits, and returns when it is durable. Rows of the batch that `compaction` contains are not
    /// stored. After an error no commit of the batch is durable. Only after [`LogError::Failed`] some may be.
    fn append(&mut self, batch: &[Arc<CommitEvent>], compaction: Option<&Compaction>)
    -> Result<(), LogError>;

    /// Whether the disk has space for writes other than deletes. A log may reserve disk space for deletes.
    fn has_write_space(&mut self) -> bool {
        true
    }

    /// Releases a part of the disk space that is reserved for deletes. Returns `false` if none of it is left.
    fn release_reserve(&mut self) -> bool {
        false
    }

    /// Does maintenance work, such as checkpoints, if it is due. Called after each batch, when the callers of its
    /// commits have their results.
    fn run_maintenance(&mut self) -> Result<(), LogError> {
        Ok(())
    }
}

/// Called with each row of a log. Returns an error message if the row contradicts earlier rows.
pub type OnRow<'a> = &'a mut dyn FnMut(LogRow) -> Result<(), String>;

/// A commit as the log stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRow {
    pub revision: Revision,
    pub key: Arc<str>,
    /// Whether the commit deleted the key. `value` is then `last` of [`KeyChange::Delete`](crate::KeyChange::Delete).
    pub is_delete: bool,
    pub created: Revision,
    pub expires_s: Option<u64>,
    pub index: SelectorIndex,
    pub value: Bytes,
}

/// A compaction of the log: the new floor, and the revisions of the rows that are no longer needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    pub floor: Revision,
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
    #[error("the data file {} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("the data file {} has format {found}, and this version reads formats up to {known}", path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("{} is not a data file of this program", path.display())]
    Foreign { path: PathBuf },
    #[error("{} already exists", path.display())]
    Exists { path: PathBuf },
    /// The database of an existing cluster is missing or empty. The data directory must not silently be used for a new
    /// cluster.
    #[error("the data file {} is {what}, and this data directory had a cluster", path.display())]
    Lost { path: PathBuf, what: &'static str },
    #[error(
        "the data file {} ends at revision {found}, and revision {expected} had been written: its -wal file is missing or was \
         truncated, or an older copy has replaced the file",
        path.display()
    )]
    Behind { path: PathBuf, found: Revision, expected: Revision },
    #[error(
        "the data file {} belongs to another cluster ({}) than its data directory ({expected})",
        path.display(),
        found.as_deref().unwrap_or("without a UID")
    )]
    OtherCluster { path: PathBuf, found: Option<String>, expected: String },
    #[error("{} is not a valid cluster marker", path.display())]
    Marker { path: PathBuf },
    /// A new cluster was requested, but the data directory has a usable cluster.
    #[error("{} already has a cluster", path.display())]
    HasCluster { path: PathBuf },
    #[error("the Secrets in {} are encrypted with key {id}, which is not available", path.display())]
    NoKey { path: PathBuf, id: String },
    /// The database file was removed or replaced. A later start would not find further writes.
    #[error("{} was removed or replaced while it was in use", path.display())]
    Replaced { path: PathBuf },
    #[error("the writer thread failed: {why}")]
    Writer { why: String },
    #[error("{}: {why}", path.display())]
    Failed { path: PathBuf, why: String },
}

/// A log that stores nothing. The data is lost when the process ends.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLog;

impl Log for MemoryLog {
    fn history_floor(&mut self) -> Result<Revision, LogError> {
        Ok(Store::FIRST_REVISION)
    }

    fn load(&mut self, _: OnRow<'_>) -> Result<(), LogError> {
        Ok(())
    }

    fn append(&mut self, _: &[Arc<CommitEvent>], _: Option<&Compaction>) -> Result<(), LogError> {
        Ok(())
    }
}
