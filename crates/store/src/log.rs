//! What makes a store durable, as the store sees it.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Event, Index, Revision, Store};

/// All that the store asks of a log. A log holds rows, one for each commit, and a floor. The rows up to
/// the floor are the state at the floor; the rows after it are every commit since, without a gap.
pub trait Log: Send {
    fn floor(&mut self) -> Result<Revision, LogError>;

    /// Every row, in the order of revisions. What `each` says against one is [`LogError::Damaged`].
    fn load(&mut self, each: Each<'_>) -> Result<(), LogError>;

    /// Returns when the batch is durable. Commits of the batch whose rows are compacted with it are not stored. An error means that
    /// none of it is durable, or, with [`LogError::Failed`], that it is unknown.
    fn append(&mut self, batch: &[Arc<Event>], forget: Option<&Forget>) -> Result<(), LogError>;

    /// Whether there is room on the disk for more than deletes. It may set room aside for those.
    fn has_reserve(&mut self) -> bool {
        true
    }

    /// Makes room for a delete that found none; `false` if there is no more to be made.
    fn release_reserve(&mut self) -> bool {
        false
    }

    /// A moment in which no commit waits for this one: for what has to be done now and then.
    fn rest(&mut self) -> Result<(), LogError> {
        Ok(())
    }
}

pub type Each<'a> = &'a mut dyn FnMut(Row) -> Result<(), String>;

/// One commit as the log holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub revision: Revision,
    pub key: Arc<str>,
    /// The commit deleted the key, and the value is the last one.
    pub is_gone: bool,
    pub created: Revision,
    pub expires_s: Option<u64>,
    pub index: Index,
    pub value: Bytes,
}

/// The floor rises, and these rows are of no use any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forget {
    pub floor: Revision,
    pub rows: Vec<Revision>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// Nothing was written; once there is room, everything goes on.
    #[error("the disk is full")]
    Full,
    /// Nothing was written.
    #[error("another program holds the data file: {why}")]
    Busy { why: String },
    #[error("the data file {} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("the data file {} is of format {found}, and this version reads up to {known}", path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("{} is not a data file of this program", path.display())]
    Foreign { path: PathBuf },
    #[error("{} is there already", path.display())]
    Exists { path: PathBuf },
    /// There was a cluster, and its database is not there: a new one would be another cluster.
    #[error("the data file {} is {what}, and this data directory had a cluster", path.display())]
    Lost { path: PathBuf, what: &'static str },
    #[error(
        "the data file {} ends at revision {found}, and revision {expected} had been written: its -wal file is missing or was \
         cut short, or an older copy was put in its place",
        path.display()
    )]
    Behind { path: PathBuf, found: Revision, expected: Revision },
    #[error(
        "the data file {} is of another cluster ({}) than its data directory ({expected})",
        path.display(),
        found.as_deref().unwrap_or("without a UID")
    )]
    OtherCluster { path: PathBuf, found: Option<String>, expected: String },
    #[error("{} does not say which cluster the data directory is of", path.display())]
    Marker { path: PathBuf },
    /// A new cluster was asked for.
    #[error("{} has a cluster", path.display())]
    HasCluster { path: PathBuf },
    #[error("the Secrets in {} are encrypted with key {id}, which is not there", path.display())]
    NoKey { path: PathBuf, id: String },
    /// No later start would find what is written now.
    #[error("{} was removed or replaced while it was in use", path.display())]
    Gone { path: PathBuf },
    #[error("the thread that writes: {why}")]
    Writer { why: String },
    #[error("{}: {why}", path.display())]
    Failed { path: PathBuf, why: String },
}

/// Lasts as long as the process.
#[derive(Debug, Clone, Copy)]
pub struct Volatile;

impl Log for Volatile {
    fn floor(&mut self) -> Result<Revision, LogError> {
        Ok(Store::FIRST)
    }

    fn load(&mut self, _: Each<'_>) -> Result<(), LogError> {
        Ok(())
    }

    fn append(&mut self, _: &[Arc<Event>], _: Option<&Forget>) -> Result<(), LogError> {
        Ok(())
    }
}
