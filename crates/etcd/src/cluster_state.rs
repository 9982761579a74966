//! The state of a cluster in etcd as a whole: whether servers may use it, when a server last wrote to it, and what it
//! was restored from.

use bytes::Bytes;
use muster_store::{LogError, Revision};

use crate::api::{EtcdApi, EtcdError, retry};
use crate::feature_level::{parse_feature_level, supported_feature_level};
use crate::keyspace::{KeyRange, Keyspace};
use crate::lane::{
    first_key_request, found_keys, get, header_revision, keys_only_range_op, put, revision_is,
    revisions_are_at_most,
};
use crate::proto::event::EventType;
use crate::proto::{Event, KeyValue, RequestOp, TxnRequest, request_op};

/// The state of a cluster in etcd at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterState {
    /// Whether etcd has no key under the cluster's prefix.
    pub is_empty: bool,
    /// The etcd revision of the last write of any server: the highest revision of all lane keys (`l/SERVER/N`). Every
    /// transaction that writes an object also writes the key of its [`lane`](crate::lane). 0 if there is no lane key,
    /// because no server has written.
    pub last_write: i64,
    /// What the cluster was restored or moved from. `None` for a cluster that began in etcd.
    pub source: Option<ClusterSource>,
    /// The etcd revision at which the cluster was moved from etcd to a data directory. `None` if it was not moved.
    pub(crate) moved: Option<i64>,
    /// The etcd revision of the last write of `m/source`. 0 if the key does not exist.
    pub(crate) source_revision: i64,
    /// The mark of a restore that is in progress or was interrupted. `None` if there is none.
    pub(crate) restoring: Option<RestoreMark>,
    /// The feature level of the cluster, see [`feature_level`](crate::feature_level). Servers that do not support this
    /// level may not use the cluster.
    pub(crate) feature_level: u32,
    /// A conflict of the prefix of this cluster with the prefix of another cluster. `None` if there is no conflict.
    pub(crate) prefix_conflict: Option<PrefixConflict>,
    /// The etcd revision of this state.
    pub(crate) revision: i64,
    /// The highest resourceVersion that an object of the cluster can have. 0 if there is no cluster. Exception: if a
    /// restore is in progress or was interrupted, the highest resourceVersion that an object could have before the
    /// restore.
    pub(crate) resource_version: Revision,
}

/// What a cluster in etcd was restored or moved from: the value of `m/source`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSource {
    /// The UID of the cluster in the SQLite database file that was restored or moved into etcd. The file is a backup,
    /// or the database of a data directory.
    pub cluster_uid: String,
    /// The revision of the objects in that database file.
    pub revision: Revision,
    /// Random ID of the restore or migration. If the last transaction of a restore gets no response, the restore finds
    /// out by this ID whether etcd has applied the transaction.
    pub(crate) restore_id: String,
}

/// The mark of a restore that is in progress or was interrupted: the key `m/restoring`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RestoreMark {
    /// The etcd revision of the last write of the mark.
    pub(crate) revision: i64,
    /// The highest resourceVersion that the cluster had before the restore.
    pub(crate) resource_version: Revision,
    /// The value of the key: `resource_version`, the ID of the restore, and the phase of the restore (`deleting` or
    /// `writing`).
    pub(crate) value: Bytes,
}

/// A conflict between the prefixes of two clusters in one etcd: the prefix of the inner cluster begins with the prefix
/// of the outer cluster. A restore of the outer cluster would delete the inner cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefixConflict {
    #[error(
        "etcd has the key {key} below the prefix {prefix}, which is not one of this cluster but perhaps of another one: choose \
         another --etcd-prefix"
    )]
    Inner { prefix: String, key: String },
    #[error(
        "etcd has a cluster with the prefix {outer}, which has all keys below {prefix}: choose another --etcd-prefix"
    )]
    Outer { prefix: String, outer: String },
}

/// Why servers may not use a cluster in etcd.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableError {
    #[error(transparent)]
    Prefix(#[from] PrefixConflict),
    #[error("a restore or a migration into etcd was interrupted or is running: wait for it, or run it again")]
    Restoring,
    #[error(
        "the cluster was moved from etcd to a data directory: start the server there without --etcd. `muster migrate` moves it to \
         etcd again"
    )]
    Moved,
    #[error(
        "the cluster in etcd has feature level {level}, and this version of Muster reads level {supported} at most: run a newer \
         version"
    )]
    TooNew { level: u32, supported: u32 },
}

/// The etcd revisions that a running server has observed. If the current state of etcd contradicts them, etcd or the
/// cluster was restored or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObservedRevisions {
    /// The etcd revision of the last write of `m/source` when the objects were loaded. 0 if the key did not exist.
    pub(crate) source_revision: i64,
    /// The etcd revision up to which the server has seen all events.
    pub(crate) revision: i64,
}

/// Why a server can no longer follow its cluster: etcd no longer has the state that the server has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplacedError {
    #[error(
        "etcd is at revision {current}, and this server has seen revision {seen}: etcd was restored from a snapshot. \
         Restart the servers"
    )]
    WentBack { current: i64, seen: i64 },
    #[error(
        "the cluster was restored, or its settings were changed, while this server was cut off. Restart the server"
    )]
    Restored,
}

impl ObservedRevisions {
    /// Fails if `current`, the current revision of etcd, is below the revision that the server has already seen.
    pub(crate) fn check_revision(&self, current: i64) -> Result<(), ReplacedError> {
        match current < self.revision {
            true => Err(ReplacedError::WentBack { current, seen: self.revision }),
            false => Ok(()),
        }
    }

    /// Fails if the cluster was restored, or its settings were changed, since the server loaded its objects.
    /// `source_revision` is the etcd revision of the last write of `m/source`, as etcd has it now.
    pub(crate) fn check_source(&self, source_revision: i64) -> Result<(), ReplacedError> {
        if source_revision == self.source_revision { Ok(()) } else { Err(ReplacedError::Restored) }
    }
}

impl From<ReplacedError> for LogError {
    fn from(error: ReplacedError) -> Self {
        Self::Remote { why: error.to_string() }
    }
}

impl ClusterState {
    /// Fails if servers may not use the cluster, for one of these reasons:
    /// - a restore is in progress or was interrupted,
    /// - the cluster was moved to a data directory,
    /// - the feature level of the cluster is too high for the process that reads `keys`.
    pub fn check_usable(&self, keys: &Keyspace) -> Result<(), UnusableError> {
        if self.is_restoring() {
            return Err(UnusableError::Restoring);
        }
        if self.is_moved() {
            return Err(UnusableError::Moved);
        }
        check_feature_level(keys, self.feature_level)
    }

    /// Fails if the prefix of the cluster conflicts with the prefix of another cluster. A server calls this function
    /// when it starts, and a restore when it begins.
    pub fn check_prefix(&self) -> Result<(), UnusableError> {
        self.prefix_conflict.clone().map_or(Ok(()), |it| Err(it.into()))
    }

    /// Whether the cluster was moved from etcd to a data directory.
    pub fn is_moved(&self) -> bool {
        self.moved.is_some()
    }

    /// Whether a restore is in progress or was interrupted.
    pub fn is_restoring(&self) -> bool {
        self.restoring.is_some()
    }
}

impl ClusterSource {
    /// Parses the value of `m/source`. Returns `None` if the value does not have the format of [`Self::to_text`].
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (uid, revision, id) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
        Some(Self { cluster_uid: uid.to_owned(), revision, restore_id: id.to_owned() })
    }

    /// Returns the value of `m/source`: the three fields, separated by spaces.
    pub(crate) fn to_text(&self) -> String {
        format!("{} {} {}", self.cluster_uid, self.revision, self.restore_id)
    }
}

/// Reads the state of the cluster in one transaction. If no member responds or can serve requests, repeats the call for
/// up to 30 seconds.
pub async fn read(api: &impl EtcdApi, keys: &Keyspace) -> Result<ClusterState, EtcdError> {
    let (all, lanes) = (keys.all(), keys.lanes());
    let first_of = |range: KeyRange| RequestOp {
        request: Some(request_op::Request::RequestRange(first_key_request(range))),
    };
    let mut success = vec![
        get(keys.restoring_key()),
        get(keys.moved_key()),
        get(keys.source_key()),
        get(keys.base_key()),
        keys_only_range_op(lanes.start, lanes.end),
        first_of(all),
        get(keys.feature_level_key()),
    ];
    let foreign = success.len()..success.len() + keys.foreign_ranges().len();
    success.extend(keys.foreign_ranges().into_iter().map(first_of));
    let outer_keyspaces = keys.outer_keyspaces();
    for it in &outer_keyspaces {
        // A cluster has one of the two keys.
        success.extend(
            [it.cluster_keys_key(), it.restoring_key()].map(|key| keys_only_range_op(key, Bytes::new())),
        );
    }
    let request = TxnRequest { success, ..TxnRequest::default() };
    let response = retry(|| api.txn(request.clone())).await?;
    let revision = header_revision(&response);
    let found = |operation| found_keys(&response, operation).first();
    let text = |kv: &KeyValue| String::from_utf8_lossy(&kv.value).into_owned();
    let restoring = found(0).map(|kv| RestoreMark {
        revision: kv.mod_revision,
        resource_version: text(kv).split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0),
        value: kv.value.clone(),
    });
    let inner = foreign.clone().find_map(found).map(|kv| PrefixConflict::Inner {
        prefix: keys.prefix().to_owned(),
        key: String::from_utf8_lossy(&kv.key).into_owned(),
    });
    let outer = outer_keyspaces.iter().enumerate().find_map(|(at, it)| {
        let operation = foreign.end + 2 * at;
        found(operation).or(found(operation + 1)).map(|_| PrefixConflict::Outer {
            prefix: keys.prefix().to_owned(),
            outer: it.prefix().to_owned(),
        })
    });
    let is_empty = found(5).is_none();
    let base = found(3).and_then(|it| text(it).parse().ok()).unwrap_or(0);
    let resource_version =
        if is_empty { 0 } else { keys.clone().with_base(base).last_resource_version(revision) };
    Ok(ClusterState {
        is_empty,
        last_write: found_keys(&response, 4).iter().map(|it| it.mod_revision).max().unwrap_or(0),
        source: found(2).and_then(|it| ClusterSource::parse(&text(it))),
        source_revision: found(2).map_or(0, |it| it.mod_revision),
        moved: found(1).map(|it| it.mod_revision),
        resource_version: restoring.as_ref().map_or(resource_version, |it| it.resource_version),
        restoring,
        feature_level: parse_feature_level(found(6)),
        prefix_conflict: outer.or(inner),
        revision,
    })
}

/// Marks the cluster as moved to a data directory, so that no server uses it. Returns `true` if the cluster is marked
/// now, or was already marked in `state`. Returns `false`, and changes nothing, if a restore is in progress, or if a
/// server has written or a restore has ended since `state` was read.
pub async fn mark_moved(
    api: &impl EtcdApi,
    keys: &Keyspace,
    state: &ClusterState,
) -> Result<bool, EtcdError> {
    if state.is_moved() {
        return Ok(true);
    }
    let request = TxnRequest {
        compare: vec![
            revisions_are_at_most(keys.lanes(), state.last_write),
            revision_is(keys.restoring_key(), 0),
            // An attempt that etcd applies late must not mark a cluster that was restored since.
            revision_is(keys.source_key(), state.source_revision),
        ],
        success: vec![put(keys.moved_key(), "to a data directory".into())],
        failure: Vec::new(),
    };
    // A repetition writes the same value.
    let response = retry(|| api.txn(request.clone())).await?;
    Ok(response.succeeded)
}

/// Fails if the process that reads `keys` does not support the feature level `level` of the cluster.
fn check_feature_level(keys: &Keyspace, level: u32) -> Result<(), UnusableError> {
    match supported_feature_level(keys) {
        supported if supported < level => Err(UnusableError::TooNew { level, supported }),
        _ => Ok(()),
    }
}

/// Fails if an event shows that this server may no longer use the cluster: a restore or a migration into etcd has
/// begun, the settings of the cluster were changed, the cluster was moved to a data directory, or its feature level has
/// become too high. A restore or a change of the settings can begin while a server runs, if the server has not written
/// for so long that it seemed to be stopped.
pub(crate) fn check_event(keys: &Keyspace, event: &Event) -> Result<(), LogError> {
    let Some(kv) = event.kv.as_ref().filter(|_| event.r#type() == EventType::Put) else { return Ok(()) };
    let error = if kv.key == keys.source_key() {
        return Err(ReplacedError::Restored.into());
    } else if kv.key == keys.restoring_key() {
        UnusableError::Restoring
    } else if kv.key == keys.moved_key() {
        UnusableError::Moved
    } else if kv.key == keys.feature_level_key()
        && let Err(error) = check_feature_level(keys, parse_feature_level(Some(kv)))
    {
        error
    } else {
        return Ok(());
    };
    Err(LogError::Remote { why: error.to_string() })
}
