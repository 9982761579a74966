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

    /// Comes back when the batch is durable. An error means that none of it is, or, with
    /// [`LogError::Failed`], that nobody knows.
    fn append(&mut self, batch: &[Arc<Event>], forget: Option<&Forget>) -> Result<(), LogError>;

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
