//! The settings that all servers of the cluster must have in common, such as the range of pod IPs. They are stored in etcd
//! as one value, which the first server writes. This module does not decode the value.

use bytes::Bytes;

use crate::api::{EtcdApi, EtcdError, retry};
use crate::cluster_state::{ClusterSource, ClusterState};
use crate::keyspace::Keyspace;
use crate::lane::{put, revision_is, revisions_are_at_most};
use crate::shared_value::{self, Replacement};

/// Returns the settings of the cluster, or `None` if no server has stored them yet.
pub async fn read_cluster_settings(api: &impl EtcdApi, keys: &Keyspace) -> Result<Option<Bytes>, EtcdError> {
    retry(async || shared_value::read(api, keys.settings_key()).await).await
}

/// Stores `value` as the settings of the cluster, unless the cluster already has settings. Returns the stored settings:
/// `value`, or the settings that another server stored first. Fails if the cluster has no settings and a restore is in
/// progress or was interrupted.
pub async fn create_cluster_settings(
    api: &impl EtcdApi,
    keys: &Keyspace,
    value: Bytes,
) -> Result<Bytes, EtcdError> {
    retry(async || shared_value::create(api, keys, keys.settings_key(), value.clone()).await).await
}

/// Replaces the settings `old` of the cluster with `new`. Changes nothing if the stored settings are not `old`, or if a
/// server has written, or a restore has begun or ended, since `state` was read. Returns whether `new` is stored.
///
/// Rule: a server that was suspended and still has the settings `old` must not write any more. So this function also
/// writes `m/source` again: every transaction of a server compares the etcd revision of this key with its revision when
/// the server loaded the objects.
pub async fn replace_cluster_settings(
    api: &impl EtcdApi,
    keys: &Keyspace,
    state: &ClusterState,
    old: Bytes,
    new: Bytes,
) -> Result<bool, EtcdError> {
    let source = state.source.as_ref().map(ClusterSource::to_text).unwrap_or_default();
    let replacement = Replacement {
        key: keys.settings_key(),
        old,
        new,
        compare: vec![
            revisions_are_at_most(keys.lanes(), state.last_write),
            revision_is(keys.source_key(), state.source_revision),
        ],
        writes: vec![put(keys.source_key(), source.into())],
    };
    shared_value::replace(api, keys, replacement).await
}
