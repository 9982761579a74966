//! The data file: where it is, and what to do when something is wrong with it.

use std::path::{Path, PathBuf};

use muster_store::{LogError, Revision};

/// The store of a server whose data directory this is.
pub(crate) fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("muster.db")
}

#[derive(Debug, thiserror::Error)]
#[error("{error}{}", self.advice())]
pub struct DataError {
    error: LogError,
}

impl From<LogError> for DataError {
    fn from(error: LogError) -> Self {
        Self { error }
    }
}

impl DataError {
    fn advice(&self) -> &'static str {
        match self.error {
            LogError::Full => ": make room, and try again",
            LogError::Damaged { .. } => {
                ". Restore a backup with `muster restore`, or move the file and its -wal away to begin with an empty store"
            }
            LogError::Newer { .. } => ". Use the version of muster that wrote it, or a later one",
            LogError::Foreign { .. } => ". Choose another --data-dir",
            LogError::Exists { .. } => ". Choose another name, or move it away",
            LogError::Busy { .. } | LogError::Writer { .. } | LogError::Failed { .. } => "",
        }
    }
}

/// Copies the store of a data directory to `to`, also while a server writes it. Says at which revision.
pub fn backup(data_dir: &Path, to: &Path) -> Result<Revision, DataError> {
    Ok(muster_store::backup(&file(data_dir), to)?)
}

/// Puts a backup in the place of the store of a data directory, which no server may be using. Says at which revision it
/// goes on.
pub fn restore(data_dir: &Path, from: &Path) -> Result<Revision, DataError> {
    Ok(muster_store::restore(from, &file(data_dir))?)
}

/// Whether the data directory has a store already.
pub fn has_store(data_dir: &Path) -> bool {
    file(data_dir).exists()
}
