//! Compaction of the history in etcd.
//!
//! The key `m/compacted` has the etcd revision up to which the history was compacted. A server that starts lists the
//! objects at this revision, so that its watch then delivers the whole remaining history.

use bytes::Bytes;

use crate::api::{EtcdApi, EtcdError};
use crate::keyspace::Keyspace;
use crate::lane::{
    self, found_keys, get, keys_only_range_op, put, revision_is, revision_is_at_most, without_quota,
};
use crate::proto::{CompactionRequest, KeyValue, TxnRequest};

/// A compaction of the history up to an etcd revision.
#[derive(Debug)]
pub(crate) struct Compaction {
    pub(crate) revision: i64,
    /// The etcd key of the term of the Lease that the writer must hold, and an etcd revision. The compaction does
    /// nothing if this key was written after this revision. `None` if the writer need not hold a Lease.
    pub(crate) fence: Option<(Bytes, i64)>,
    /// The key that is written together with the deletion of stale lanes, see [`lane::delete_stale_lanes`].
    pub(crate) lane_marker: Bytes,
}

impl Compaction {
    /// Writes the revision to `m/compacted`, compacts etcd, and deletes lanes that were last written before the
    /// revision. Does nothing if the history was compacted up to this or a later revision already, if the writer no
    /// longer holds its Lease, or if a restore is in progress or was interrupted.
    pub(crate) async fn run(self, api: &impl EtcdApi, keys: &Keyspace) -> Result<(), EtcdError> {
        // `m/compacted` is written first, so that a server that starts does not list at a revision that is being
        // compacted. If the write fails, a server may list at such a revision. It then lists the current objects.
        let recorded = match self.record(api, keys).await {
            Ok(false) => return Ok(()),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        let request = CompactionRequest { revision: self.revision, physical: false };
        let compacted = match api.compact(request).await {
            Err(EtcdError::Compacted) => Ok(()),
            result => result,
        };
        let deleted = lane::delete_stale_lanes(api, &keys.lanes(), self.lane_marker, self.revision).await;
        recorded.and(compacted).and(deleted)
    }

    /// Writes the revision to `m/compacted`. Returns `false`, and writes nothing, if the key already has this or a
    /// later revision, if the writer no longer holds its Lease, or if a restore is in progress or was interrupted.
    ///
    /// Rule: the recorded revision never decreases. Each transaction compares the etcd revision of the last write of
    /// the key, so a transaction of a former leader that etcd applies late changes nothing.
    async fn record(&self, api: &impl EtcdApi, keys: &Keyspace) -> Result<bool, EtcdError> {
        let key = keys.compacted_key();
        // The etcd revision of the last write of the key.
        let mut written = 0;
        loop {
            let fence = self.fence.iter().map(|(key, bound)| revision_is_at_most(key.clone(), *bound));
            let own = [revision_is(key.clone(), written), revision_is(keys.restoring_key(), 0)];
            let fence_keys = self.fence.iter().map(|(key, _)| keys_only_range_op(key.clone(), Bytes::new()));
            let request = TxnRequest {
                compare: own.into_iter().chain(fence).collect(),
                // A full etcd is compacted too.
                success: vec![without_quota(put(key.clone(), self.revision.to_string().into()))],
                failure: [get(key.clone()), get(keys.restoring_key())]
                    .into_iter()
                    .chain(fence_keys)
                    .collect(),
            };
            let response = api.txn(request).await?;
            if response.succeeded {
                return Ok(true);
            }
            let term = found_keys(&response, 2).first().map_or(0, |it| it.mod_revision);
            let is_fenced = self.fence.as_ref().is_some_and(|(_, bound)| *bound < term);
            let is_restoring = !found_keys(&response, 1).is_empty();
            let found = found_keys(&response, 0).first();
            if is_fenced || is_restoring || self.revision <= found.map_or(0, recorded_revision) {
                return Ok(false);
            }
            written = found.map_or(0, |it| it.mod_revision);
        }
    }
}

/// Returns the revision in the value of `m/compacted`, or 0 if the value is not a number.
fn recorded_revision(found: &KeyValue) -> i64 {
    std::str::from_utf8(&found.value).ok().and_then(|it| it.parse().ok()).unwrap_or(0)
}
