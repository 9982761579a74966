//! The storage layer: objects, revisions and history in memory, over a durable log. Synchronous, without HTTP.
//!
//! Every commit writes or deletes one key, and has a higher [`Revision`] than all earlier commits. Revisions may have
//! gaps. The state is the result of all commits. The history contains the most recent commits, so that a watch can
//! resume from any of their revisions.
//!
//! [`Store`] holds state and history in memory, which is all that the simulator needs. [`Db`] publishes a store to
//! concurrent readers and passes writes to a [`Backend`], which orders commits and makes them durable. No commit can be
//! read or watched before it is durable. The only backend has one writer thread over a [`Log`], in which many commits
//! share one fsync. [`Sqlite`] is the durable log.

mod backend;
mod cluster_marker;
mod db;
mod draft;
mod local_backend;
mod log;
mod selector_index;
mod sqlite;
mod store;
mod usage;

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

pub use crate::backend::{
    Backend, Commit, CommitError, CommitWrite, DbOptions, OnBatchPublished, OnCommitted, OnFailure,
    OnReadBarrier, PublishedStore, ReadBarrierError,
};
pub use crate::db::Db;
pub use crate::draft::{ObjectDraft, with_resource_version};
pub use crate::log::{Compaction, Log, LogError, LogRow, MemoryLog, OnRow};
pub use crate::selector_index::SelectorIndex;
pub use crate::sqlite::{
    DataDirectory, DataFileGuard, EncryptionKeys, KeyFileError, OpenedLog, Sqlite, backup, convert_secrets,
    restore,
};
pub use crate::store::{HistoryWindow, Store};
pub use crate::usage::{SizeLimitExceeded, StoreLimits, StoreUsage, WriteClass};

/// The number of a commit, which clients see as `resourceVersion`. An empty store has [`Store::FIRST_REVISION`].
pub type Revision = u64;

/// A stored object. Its key is a path, such as `daemonsets.apps/kube-system/fluentd` or `nodes//n1`. The part before
/// the first slash is the kind. History is kept and watches are notified for each kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredObject {
    pub key: Arc<str>,
    pub value: Bytes,
    pub index: SelectorIndex,
    /// Revision of the commit that created the object.
    pub created: Revision,
    /// Revision of the last commit to the object.
    pub modified: Revision,
    /// Expiry time in seconds since the Unix epoch. The store does not delete expired objects, see
    /// [`Store::expired_objects`].
    pub expires_s: Option<u64>,
}

/// The state that a key must have for a commit to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// The key must not exist.
    Absent,
    /// The last commit to the key must have this revision.
    At(Revision),
    Any,
}

impl Precondition {
    pub(crate) fn check_precondition(self, found: Option<&Arc<StoredObject>>) -> Result<(), CommitConflict> {
        match (self, found) {
            (Self::Any | Self::Absent, None) | (Self::Any, Some(_)) => Ok(()),
            (Self::At(_), None) => Err(CommitConflict::Missing),
            (Self::Absent, Some(it)) => Err(CommitConflict::Exists { at: it.modified }),
            (Self::At(at), Some(it)) if at != it.modified => {
                Err(CommitConflict::Modified { at: it.modified })
            }
            (Self::At(_), Some(_)) => Ok(()),
        }
    }
}

/// A commit failed because its precondition does not hold. Nothing was changed. `at` is the revision of the last commit
/// to the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitConflict {
    Exists { at: Revision },
    Missing,
    Modified { at: Revision },
}

impl fmt::Display for CommitConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists { at } => write!(f, "the key exists, at revision {at}"),
            Self::Missing => write!(f, "the key does not exist"),
            Self::Modified { at } => {
                write!(f, "the key was modified at revision {at}: read it again and retry")
            }
        }
    }
}

impl std::error::Error for CommitConflict {}

/// A commit, as it is delivered to watches.
#[derive(Debug)]
pub struct CommitEvent {
    pub revision: Revision,
    pub key: Arc<str>,
    pub change: KeyChange,
    /// The commit as an encoded watch event, in the two representations that watches share. The first watch that needs
    /// a representation encodes it. The server defines the representations.
    pub frames: [OnceLock<Bytes>; 2],
}

/// The change of one key: a write or a deletion, with the object before the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChange {
    Put {
        now: Arc<StoredObject>,
        before: Option<Arc<StoredObject>>,
    },
    /// A deletion. `last` is the value of `before` with the revision of the deletion.
    Delete {
        before: Arc<StoredObject>,
        last: Bytes,
    },
}

impl KeyChange {
    pub(crate) fn previous_object(&self) -> Option<&Arc<StoredObject>> {
        match self {
            Self::Put { before, .. } => before.as_ref(),
            Self::Delete { before, .. } => Some(before),
        }
    }
}

impl CommitEvent {
    pub(crate) fn new(revision: Revision, key: Arc<str>, change: KeyChange) -> Arc<Self> {
        Arc::new(Self { revision, key, change, frames: Default::default() })
    }

    /// The event of a commit that stores `value` under `key`.
    pub fn put(
        revision: Revision,
        key: &str,
        before: Option<Arc<StoredObject>>,
        value: Bytes,
        index: SelectorIndex,
        expires_s: Option<u64>,
    ) -> Arc<Self> {
        let created = before.as_ref().map_or(revision, |it| it.created);
        // The allocation of the key is shared with the previous object.
        let key = before.as_ref().map_or_else(|| Arc::from(key), |it| it.key.clone());
        let now = StoredObject { key: key.clone(), value, index, created, modified: revision, expires_s };
        Self::new(revision, key, KeyChange::Put { now: Arc::new(now), before })
    }

    /// Rule: a delete event carries the last stored object with the revision of the deletion.
    /// Upstream: `transformPrevObject` in the watch of the etcd3 store.
    pub fn delete(revision: Revision, before: Arc<StoredObject>) -> Arc<Self> {
        let last = with_resource_version(&before.value, revision);
        Self::new(revision, before.key.clone(), KeyChange::Delete { before, last })
    }

    /// The object after the commit, or its last state if the commit deleted it.
    pub fn latest_value(&self) -> &Bytes {
        match &self.change {
            KeyChange::Put { now, .. } => &now.value,
            KeyChange::Delete { last, .. } => last,
        }
    }

    pub fn previous_object(&self) -> Option<&Arc<StoredObject>> {
        self.change.previous_object()
    }
}

impl PartialEq for CommitEvent {
    fn eq(&self, other: &Self) -> bool {
        (self.revision, &self.key, &self.change) == (other.revision, &other.key, &other.change)
    }
}

impl Eq for CommitEvent {}

/// The error for a requested revision that is older than the history. Upstream: `ErrCompacted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactedError {
    /// The revision after which the history begins.
    pub floor: Revision,
}

impl fmt::Display for CompactedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the history begins after revision {}: list, and watch from the list's revision",
            self.floor
        )
    }
}

impl std::error::Error for CompactedError {}
