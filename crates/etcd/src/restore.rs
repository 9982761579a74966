//! Writes all objects of a backup, or of a data directory, as a cluster in etcd.
//!
//! A restore needs many transactions. The key `m/restoring` exists from the first to the last of them, and no server
//! starts while it exists. Every transaction between them compares the key, so that none is applied after the restore
//! has ended. After the old keys are deleted, the key is written again, which makes the comparison of a late deletion
//! fail. An interrupted restore leaves the key behind. The next restore deletes what the interrupted one has written.

use std::sync::Arc;

use bytes::Bytes;
use muster_store::{EncryptionKeys, ObjectDraft, ObjectListDigest, Revision, StoredObject};

use crate::api::{EtcdApi, EtcdError, retry};
use crate::cluster_state::{self, ClusterSource, ClusterState, UnusableError};
use crate::keyspace::{KeyRange, Keyspace, POSITIONS_PER_REVISION};
use crate::lane::{delete, delete_range, header_revision, put, revision_is, revisions_are_at_most};
use crate::load::{self, LoadError};
use crate::object_value::ObjectCodec;
use crate::proto::{RangeRequest, RequestOp, TxnRequest, TxnResponse};

/// Maximum number of objects in one transaction. etcd allows 128 operations.
const BATCH_OBJECTS_MAX: usize = 100;

/// Maximum size in bytes of the values in one transaction of several objects. A larger object gets a transaction of its
/// own. etcd allows 1.5 MiB in a request.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Maximum number of keys that one transaction deletes. etcd deletes a range in one step, and other clients wait until
/// it has ended.
const DELETED_KEYS_MAX: i64 = 1000;

/// The content of the cluster that a restore writes to etcd.
#[derive(Debug)]
pub struct RestoreInput<'a> {
    /// The objects, ordered by store key.
    pub objects: &'a [Arc<StoredObject>],
    /// The private keys of the cluster, encrypted with the server token.
    pub cluster_keys: Bytes,
    /// The keys that encrypt Secrets. They are a part of `cluster_keys`.
    pub encryption: &'a EncryptionKeys,
    /// The UID of the source cluster, from the SQLite database file that is restored or moved into etcd. The file is a
    /// backup, or the database of a data directory.
    pub cluster_uid: String,
    /// The revision of the objects in the SQLite database file.
    pub revision: Revision,
    /// The number of resourceVersions to skip after the highest known one. Clients of the source cluster may have seen
    /// the skipped ones.
    pub revision_gap: Revision,
}

/// Why a restore failed. The key `m/restoring` may remain, unless the error says that nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("write to etcd")]
    Etcd(#[from] EtcdError),
    #[error("write {key} to etcd")]
    Object { key: String, source: EtcdError },
    #[error("write {key} to etcd: {why}")]
    Value { key: String, why: String },
    #[error("nothing was changed")]
    Unusable(#[from] UnusableError),
    #[error(
        "nothing was changed: a server or another restore wrote to the cluster in etcd in the meantime. Stop all servers"
    )]
    Raced,
    #[error("another restore or migration into the same --etcd-prefix has begun: run only one")]
    Superseded,
    #[error("read back what was written")]
    ReadBack(#[from] LoadError),
    #[error(
        "etcd does not have what was written to it ({written:?}, read back: {found:?}): run the restore again"
    )]
    Differs { written: Box<ObjectListDigest>, found: Box<ObjectListDigest> },
}

/// Replaces the cluster in etcd with `input`. `state` is the state of the cluster that is replaced. Fails, and changes
/// nothing, if the prefix conflicts with that of another cluster, or if a server or another restore has written since
/// `state` was read. Calls `on_progress` with the number of objects that were written so far. Returns the
/// resourceVersion at which the history of the restored cluster begins. No restored object has a higher
/// resourceVersion.
pub async fn restore(
    api: &impl EtcdApi,
    keys: &Keyspace,
    state: &ClusterState,
    input: &RestoreInput<'_>,
    on_progress: &mut (dyn FnMut(usize) + Send),
) -> Result<Revision, RestoreError> {
    state.check_prefix()?;
    let restore_id = uuid::Uuid::new_v4().to_string();
    let mark_value = |phase: &str| Bytes::from(format!("{} {restore_id} {phase}", state.resource_version));
    let mark = write_mark(api, keys, state, mark_value("deleting")).await?;
    let mut restore = Restore { api, keys, mark };
    restore.delete_all().await?;
    restore.advance_mark(mark_value("writing")).await?;
    let mark = restore.mark;
    // All objects are written after the revision of the mark.
    let first = input.revision.max(state.resource_version) + input.revision_gap + 1;
    let base = first.saturating_sub(mark.unsigned_abs() * POSITIONS_PER_REVISION);
    let codec = ObjectCodec { encryption: Some(input.encryption.clone()) };
    let revision = restore.write_objects(&codec, input.objects, on_progress).await?;
    restore.verify(&codec, input.objects, revision).await?;
    let source =
        ClusterSource { cluster_uid: input.cluster_uid.clone(), revision: input.revision, restore_id };
    restore.finish(input, &source, base, revision).await?;
    Ok(keys.clone().with_base(base).last_resource_version(revision))
}

/// Writes the key `m/restoring`. Fails if a server has written, or another restore has begun or ended, since `state`
/// was read. Returns the etcd revision of this write.
async fn write_mark(
    api: &impl EtcdApi,
    keys: &Keyspace,
    state: &ClusterState,
    value: Bytes,
) -> Result<i64, RestoreError> {
    let key = keys.restoring_key();
    let before = state.restoring.as_ref().map_or(0, |it| it.revision);
    let request = TxnRequest {
        compare: vec![
            revision_is(key.clone(), before),
            // A complete restore writes this key. An attempt that etcd applies so late must not mark its cluster.
            revision_is(keys.source_key(), state.source_revision),
            revisions_are_at_most(keys.lanes(), state.last_write),
        ],
        success: vec![put(key, value)],
        failure: Vec::new(),
    };
    // This is not repeated: after an attempt without a response the first compare fails.
    let response = api.txn(request).await?;
    if response.succeeded { Ok(header_revision(&response)) } else { Err(RestoreError::Raced) }
}

/// A restore in progress.
struct Restore<'a, A> {
    api: &'a A,
    keys: &'a Keyspace,
    /// The etcd revision of the last write of the key `m/restoring`.
    mark: i64,
}

impl<A: EtcdApi> Restore<'_, A> {
    /// Executes a transaction that etcd applies only while `m/restoring` is unchanged. Returns `None` if this key has
    /// changed: another restore has begun, or an earlier attempt of this transaction has written or deleted the key.
    /// The operations must have the same result if they are executed twice.
    async fn execute(&self, operations: Vec<RequestOp>) -> Result<Option<TxnResponse>, EtcdError> {
        let request = TxnRequest {
            compare: vec![revision_is(self.keys.restoring_key(), self.mark)],
            success: operations,
            failure: Vec::new(),
        };
        let response = retry(|| self.api.txn(request.clone())).await?;
        Ok(response.succeeded.then_some(response))
    }

    /// Deletes all keys of the cluster except `m/restoring`.
    async fn delete_all(&self) -> Result<(), RestoreError> {
        let (all, mark) = (self.keys.all(), self.keys.restoring_key());
        let after_mark: Bytes = [&mark[..], &[0]].concat().into();
        for range in [KeyRange { start: all.start, end: mark }, KeyRange { start: after_mark, end: all.end }]
        {
            loop {
                let request = RangeRequest {
                    key: range.start.clone(),
                    range_end: range.end.clone(),
                    limit: DELETED_KEYS_MAX,
                    keys_only: true,
                    ..RangeRequest::default()
                };
                let page = retry(|| self.api.range(request.clone())).await?;
                let Some(last) = page.kvs.last() else { break };
                let end = [&last.key[..], &[0]].concat().into();
                let operation = delete_range(KeyRange { start: range.start.clone(), end });
                self.execute(vec![operation]).await?.ok_or(RestoreError::Superseded)?;
            }
        }
        Ok(())
    }

    /// Writes `m/restoring` again, with a new value. A transaction that compares the previous revision of the key, and
    /// that etcd applies late, then changes nothing. Otherwise a late deletion could delete objects that are written
    /// after this function returns.
    async fn advance_mark(&mut self, value: Bytes) -> Result<(), RestoreError> {
        let advanced = self.execute(vec![put(self.keys.restoring_key(), value.clone())]).await?;
        if let Some(response) = advanced {
            self.mark = header_revision(&response);
            return Ok(());
        }
        // An attempt without a response may have been applied.
        let state = cluster_state::read(self.api, self.keys).await?;
        let own = state.restoring.filter(|it| it.value == value).ok_or(RestoreError::Superseded)?;
        self.mark = own.revision;
        Ok(())
    }

    /// Writes the objects in batches. Calls `on_progress` after each batch with the number of objects written so far.
    /// Returns the etcd revision of the last batch or, if there are no objects, that of the key `m/restoring`. Fails if
    /// that key has changed, because another restore has begun.
    async fn write_objects(
        &self,
        codec: &ObjectCodec,
        objects: &[Arc<StoredObject>],
        on_progress: &mut (dyn FnMut(usize) + Send),
    ) -> Result<i64, RestoreError> {
        let mut revision = self.mark;
        let mut rest = objects;
        while let Some(first) = rest.first() {
            let mut operations = Vec::new();
            let mut bytes = 0;
            for object in rest.iter().take(BATCH_OBJECTS_MAX) {
                let value = encode(codec, object, operations.len())?;
                bytes += value.len();
                if !operations.is_empty() && BATCH_BYTES_MAX < bytes {
                    break;
                }
                operations.push(put(self.keys.object_key(&object.key), value));
            }
            let count = operations.len();
            let written = self.execute(operations).await;
            let written =
                written.map_err(|source| RestoreError::Object { key: first.key.to_string(), source })?;
            revision = header_revision(&written.ok_or(RestoreError::Superseded)?);
            rest = &rest[count..];
            on_progress(objects.len() - rest.len());
        }
        Ok(revision)
    }

    /// Reads the objects at `revision` back. Fails if they differ from `objects`, which were written.
    async fn verify(
        &self,
        codec: &ObjectCodec,
        objects: &[Arc<StoredObject>],
        revision: i64,
    ) -> Result<(), RestoreError> {
        let mut found = ObjectListDigest::default();
        load::read_objects::<LoadError>(self.api, self.keys, codec, revision, &mut |object| {
            found.add(&object);
            Ok(())
        })
        .await?;
        let written = ObjectListDigest::of(objects);
        if found == written {
            return Ok(());
        }
        Err(RestoreError::Differs { written: Box::new(written), found: Box::new(found) })
    }

    /// Writes the other keys that servers need, and deletes `m/restoring`, so that servers can start. The history of
    /// the cluster begins at `revision`.
    async fn finish(
        &self,
        input: &RestoreInput<'_>,
        source: &ClusterSource,
        base: Revision,
        revision: i64,
    ) -> Result<(), RestoreError> {
        let operations = vec![
            put(self.keys.base_key(), base.to_string().into()),
            put(self.keys.compacted_key(), revision.to_string().into()),
            put(self.keys.cluster_keys_key(), input.cluster_keys.clone()),
            put(self.keys.source_key(), source.to_text().into()),
            delete(self.keys.restoring_key()),
        ];
        if self.execute(operations).await?.is_some() {
            return Ok(());
        }
        // An attempt without a response may have been applied.
        let state = cluster_state::read(self.api, self.keys).await?;
        if state.source.as_ref() == Some(source) { Ok(()) } else { Err(RestoreError::Superseded) }
    }
}

/// Encodes an object that the transaction writes at `position`.
fn encode(codec: &ObjectCodec, object: &StoredObject, position: usize) -> Result<Bytes, RestoreError> {
    let failed = |why: String| RestoreError::Value { key: object.key.to_string(), why };
    let draft = ObjectDraft::split(&object.value)
        .ok_or_else(|| failed("the object has no resourceVersion".to_owned()))?;
    let position = u8::try_from(position).expect("a transaction has at most 128 operations");
    codec.encode(&object.key, position, None, object.expires_s, &object.index, &draft).map_err(failed)
}
