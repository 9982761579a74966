//! Revisions, history and watches over a durable log: synchronous, no HTTP.
//!
//! One store is one line of commits. Every commit writes or deletes one key and takes the next
//! [`Revision`], so revisions have no gaps. The state is what the commits left; the history is the last
//! of the commits themselves, so that a watcher can go on from any revision in it.
//!
//! [`Store`] is state and history in memory, and nothing else: whoever simulates runs on it. [`Db`] is a
//! store behind a [`Log`]: one thread writes, many commits share one sync, and nothing can be read or
//! watched before it is durable. [`Sqlite`] is the log that lasts.

mod db;
mod index;
mod log;
mod marker;
mod sqlite;
mod store;
mod usage;

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

pub use crate::db::{Commit, CommitError, Db, Make, OnCommit, OnFailure, Options, Write};
pub use crate::index::Index;
pub use crate::log::{Each, Forget, Log, LogError, Row, Volatile};
pub use crate::sqlite::{Directory, Guard, Keys, KeysError, Opened, Sqlite, backup, convert, restore};
pub use crate::store::{Store, Window};
pub use crate::usage::{Class, Limits, OverLimit, Usage};

/// The number of a commit. The store before its first commit is at [`Store::FIRST`].
pub type Revision = u64;

/// Keys are paths, such as `daemonsets.apps/kube-system/fluentd` and `nodes//n1`. The part before the
/// first slash is the kind: history is kept, and watchers are woken, kind by kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub key: Arc<str>,
    pub value: Bytes,
    pub index: Index,
    pub created: Revision,
    pub modified: Revision,
    /// In seconds of the Unix epoch. Nothing happens by itself then: see [`Store::expired`].
    pub expires_s: Option<u64>,
}

/// What the writer believes of the key: the commit happens only if it is so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Absent,
    At(Revision),
    Any,
}

impl Expect {
    /// The belief against what was found.
    pub(crate) fn check(self, found: Option<&Arc<Record>>) -> Result<(), Conflict> {
        match (self, found) {
            (Self::Any | Self::Absent, None) | (Self::Any, Some(_)) => Ok(()),
            (Self::At(_), None) => Err(Conflict::Missing),
            (Self::Absent, Some(it)) => Err(Conflict::Exists { at: it.modified }),
            (Self::At(at), Some(it)) if at != it.modified => Err(Conflict::Moved { at: it.modified }),
            (Self::At(_), Some(_)) => Ok(()),
        }
    }
}

/// The writer's belief was wrong, and nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    Exists { at: Revision },
    Missing,
    Moved { at: Revision },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists { at } => {
                write!(f, "the key exists since revision {at}: read it, and write with that revision")
            }
            Self::Missing => write!(f, "the key does not exist: create it, or forget it"),
            Self::Moved { at } => write!(f, "the key has moved on to revision {at}: read it again and retry"),
        }
    }
}

impl std::error::Error for Conflict {}

/// One commit.
#[derive(Debug)]
pub struct Event {
    pub revision: Revision,
    pub key: Arc<str>,
    pub change: Change,
    /// The commit as watchers send it: made by the first who needs it, and shared by all. What a frame
    /// looks like, and which is which, is for whoever serves watches to say.
    pub frames: [OnceLock<Bytes>; 2],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Put {
        now: Arc<Record>,
        before: Option<Arc<Record>>,
    },
    /// `last` is the value as it went, carrying the revision of the deletion.
    Delete {
        before: Arc<Record>,
        last: Bytes,
    },
}

impl Change {
    pub(crate) fn before(&self) -> Option<&Arc<Record>> {
        match self {
            Self::Put { before, .. } => before.as_ref(),
            Self::Delete { before, .. } => Some(before),
        }
    }
}

impl Event {
    pub(crate) fn new(revision: Revision, key: Arc<str>, change: Change) -> Arc<Self> {
        Arc::new(Self { revision, key, change, frames: Default::default() })
    }

    /// The value that this commit left, or that went with it.
    pub fn value(&self) -> &Bytes {
        match &self.change {
            Change::Put { now, .. } => &now.value,
            Change::Delete { last, .. } => last,
        }
    }

    pub fn before(&self) -> Option<&Arc<Record>> {
        self.change.before()
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.revision, &self.key, &self.change) == (other.revision, &other.key, &other.change)
    }
}

impl Eq for Event {}

/// The history no longer reaches back that far: list, and watch from the list's revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    pub floor: Revision,
}

impl fmt::Display for Compacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the history begins after revision {}: list, and watch from the list's revision",
            self.floor
        )
    }
}

impl std::error::Error for Compacted {}
