//! The durable log of a store.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Event, Index, Revision, Store};

/// All that the writer needs of a durable log. A log holds one row per commit, and a floor. The rows up to the floor are the state at
/// the floor; the rows after it are every commit since.
pub trait Log: Send {
    fn floor(&mut self) -> Result<Revision, LogError>;

    /// Reads every row in the order of revisions. A row that `on_row` rejects is [`LogError::Damaged`].
    fn load(&mut self, on_row: OnRow<'_>) -> Result<(), LogError>;

    /// Returns when the batch is durable. Rows of the batch that are compacted with it are not stored. After an error none of the batch
    /// is durable, except that with [`LogError::Failed`] this is unknown.
    fn append(&mut self, batch: &[Arc<Event>], compaction: Option<&Compaction>) -> Result<(), LogError>;

    /// Whether the disk has room for more than deletes. A log may reserve room for deletes.
    fn has_reserve(&mut self) -> bool {
        true
    }

    /// Frees a part of the reserve, after a delete found the disk full. `false` if nothing is left of it.
    fn release_reserve(&mut self) -> bool {
        false
    }

    /// Periodic work. Called after each batch, when its writers have their results.
    fn maintain(&mut self) -> Result<(), LogError> {
        Ok(())
    }
}

pub type OnRow<'a> = &'a mut dyn FnMut(Row) -> Result<(), String>;

/// A commit as the log stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub revision: Revision,
    pub key: Arc<str>,
    /// The commit deleted the key. Its value is `last` of [`Change::Delete`](crate::Change::Delete).
    pub is_delete: bool,
    pub created: Revision,
    pub expires_s: Option<u64>,
    pub index: Index,
    pub value: Bytes,
}

/// The floor rises, and these rows are no longer needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    pub floor: Revision,
    pub rows: Vec<Revision>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Nothing was written. Writes succeed again once there is room.
    #[error("the disk is full")]
    DiskFull,
    /// Nothing was written.
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
    /// The data directory had a cluster, so it must not silently become a new one.
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
    /// A new cluster was requested.
    #[error("{} already has a cluster", path.display())]
    HasCluster { path: PathBuf },
    #[error("the Secrets in {} are encrypted with key {id}, which is not available", path.display())]
    NoKey { path: PathBuf, id: String },
    /// No later start would find later writes.
    #[error("{} was removed or replaced while it was in use", path.display())]
    Replaced { path: PathBuf },
    #[error("the writer thread: {why}")]
    Writer { why: String },
    #[error("{}: {why}", path.display())]
    Failed { path: PathBuf, why: String },
}

/// A log that stores nothing: the store lasts as long as the process.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLog;

impl Log for MemoryLog {
    fn floor(&mut self) -> Result<Revision, LogError> {
        Ok(Store::FIRST)
    }

    fn load(&mut self, _: OnRow<'_>) -> Result<(), LogError> {
        Ok(())
    }

    fn append(&mut self, _: &[Arc<Event>], _: Option<&Compaction>) -> Result<(), LogError> {
        Ok(())
    }
}
