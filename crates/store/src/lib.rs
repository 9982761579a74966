//! The storage layer: objects, revisions and history in memory, over a durable log. Synchronous, without HTTP.
//!
//! Every [`CommitEvent`] writes or deletes one key, and has a higher [`Revision`] than all earlier events. Revisions
//! may have gaps. A [`Commit`] has one event for its own key, and one for each linked update of another key. The state
//! is the result of all commits. The history contains the most recent commits, so that a watch can resume from any of
//! their revisions.
//!
//! [`Store`] holds state and history in memory, which is all that the simulator needs. [`Db`] publishes a store to
//! concurrent readers and passes writes to a [`Backend`], which orders commits and makes them durable. No commit can be
//! read or watched before it is durable. The backend of this crate has one writer thread over a [`Log`], in which many
//! commits share one fsync. [`Sqlite`] is the durable log.

/// The interface of storage backends.
mod backend;
/// The file that records the cluster UID and the last revision outside the database.
mod cluster_marker;
/// The database as the server uses it: a store in memory and a backend.
mod db;
/// Objects whose resourceVersion is not assigned yet.
mod draft;
/// Encryption of Secrets at rest.
mod encryption;
/// The backend with one writer thread over a log.
mod local_backend;
/// The interface of a durable log.
mod log;
/// Labels and selectable fields, stored beside an object.
mod selector_index;
/// The durable log in an SQLite database.
mod sqlite;
/// Objects and history in memory.
mod store;
/// The size of the stored objects and its limits.
mod usage;

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

pub use crate::backend::{
    Allocation, Backend, Commit, CommitError, CommitWrite, DbOptions, Fence, LinkedUpdate, OnBatchPublished,
    OnCommitted, OnFailure, OnReadBarrier, PublishedStore, ReadBarrierError, SyncStatistics,
};
pub use crate::db::Db;
pub use crate::draft::{ObjectDraft, with_resource_version};
pub use crate::encryption::{DecryptError, EncryptionKeys, KeyFileError};
pub use crate::log::{Compaction, Log, LogError, LogRow, MemoryLog, OnRow};
pub use crate::selector_index::SelectorIndex;
pub use crate::sqlite::{
    BackupFile, DataDirectory, DataFileGuard, ObjectListDigest, OpenedLog, RESTORE_REVISION_GAP, Snapshot,
    SnapshotWriter, Sqlite, backup, check_encryption_keys, reencrypt_secrets, rename_migrated_database,
    restore,
};
pub use crate::store::{HistoryWindow, Store};
pub use crate::usage::{SizeLimitExceeded, StoreLimits, StoreUsage, WriteClass, namespace_of};

/// The number of a write, which clients see as `resourceVersion`. Each write of a commit has its own. A new store has
/// [`Store::FIRST_REVISION`].
pub type Revision = u64;

/// A stored object. Its key is a path of kind, namespace and name, such as `daemonsets.apps/kube-system/fluentd`. The
/// namespace of a cluster-scoped object is empty, as in `nodes//n1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredObject {
    pub key: Arc<str>,
    /// The object as JSON, including its resourceVersion.
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
    /// The key may have any state.
    Any,
}

impl Precondition {
    /// Checks the precondition against `found`, the current object of the key. `found` is `None` if the key does not
    /// exist.
    pub fn check(self, found: Option<&Arc<StoredObject>>) -> Result<(), CommitConflict> {
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

/// Error for a commit that conflicts with the current state. Nothing was changed. `at` is the revision of the last
/// commit to the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitConflict {
    /// [`Precondition::Absent`] was required, and the key exists.
    Exists { at: Revision },
    /// The key does not exist, but the commit deletes it or requires [`Precondition::At`].
    Missing,
    /// [`Precondition::At`] was required, and the key has another revision.
    Modified { at: Revision },
    /// Another server may have allocated the same value from the pool, see [`Allocation`].
    Allocated,
    /// The writer no longer holds its Lease, see [`Fence`].
    Fenced,
}

impl fmt::Display for CommitConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists { at } => write!(f, "the key exists, at revision {at}"),
            Self::Missing => write!(f, "the key does not exist"),
            Self::Modified { at } => {
                write!(f, "the key was modified at revision {at}: read it again and retry")
            }
            Self::Allocated => write!(f, "another server allocated from the same pool: choose again"),
            Self::Fenced => write!(f, "the writer no longer holds its Lease"),
        }
    }
}

impl std::error::Error for CommitConflict {}

/// A commit to one key, as the history keeps it and watches receive it.
#[derive(Debug)]
pub struct CommitEvent {
    pub revision: Revision,
    pub key: Arc<str>,
    pub change: KeyChange,
    /// The encoded watch events of this commit in two representations, which the server defines. All watches share
    /// them. The first watch that needs a representation encodes it.
    pub frames: [OnceLock<Bytes>; 2],
}

/// How a commit changed its key. `before` is the object before the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChange {
    /// The commit created or updated the object. `now` is the object after the commit, and `before` is `None` for a
    /// create.
    Put { now: Arc<StoredObject>, before: Option<Arc<StoredObject>> },
    /// The commit deleted the object. `last` is the JSON of `before` with the revision of the deletion as
    /// resourceVersion.
    Delete { before: Arc<StoredObject>, last: Bytes },
}

impl KeyChange {
    /// Returns the object before the commit, or `None` for a create.
    pub(crate) fn previous_object(&self) -> Option<&Arc<StoredObject>> {
        match self {
            Self::Put { before, .. } => before.as_ref(),
            Self::Delete { before, .. } => Some(before),
        }
    }
}

impl CommitEvent {
    /// Creates an event. Its watch events are encoded later, when they are needed.
    pub(crate) fn new(revision: Revision, key: Arc<str>, change: KeyChange) -> Arc<Self> {
        Arc::new(Self { revision, key, change, frames: Default::default() })
    }

    /// Creates the event of a commit that stores `value` under `key`. `before` is the object that the commit replaces,
    /// or `None` for a create.
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

    /// Creates the event of a commit that deletes the object `before`.
    ///
    /// Rule: a delete event carries the last stored object with the revision of the deletion.
    /// Upstream: `transformPrevObject` in the watch of the etcd3 store.
    pub fn delete(revision: Revision, before: Arc<StoredObject>) -> Arc<Self> {
        let last = with_resource_version(&before.value, revision);
        Self::new(revision, before.key.clone(), KeyChange::Delete { before, last })
    }

    /// Returns the JSON of the object after the commit. For a deletion, this is the last JSON of the object with the
    /// revision of the deletion.
    pub fn latest_value(&self) -> &Bytes {
        match &self.change {
            KeyChange::Put { now, .. } => &now.value,
            KeyChange::Delete { last, .. } => last,
        }
    }

    /// Returns the object before the commit, or `None` for a create.
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

/// Error for a watch or list from a revision that is no longer in the history. Upstream: `ErrCompacted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactedError {
    /// The compacted revision: the history begins after it.
    pub compacted_revision: Revision,
}

impl fmt::Display for CompactedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the history begins after revision {}: list, and watch from the list's revision",
            self.compacted_revision
        )
    }
}

impl std::error::Error for CompactedError {}
