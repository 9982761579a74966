//! The private keys of the cluster, which all servers share. They are stored in etcd as one encrypted value. This
//! module does not decode the value.

use bytes::Bytes;

use crate::api::{EtcdApi, EtcdError};
use crate::keyspace::Keyspace;
use crate::lane::first_key_request;
use crate::shared_value::{self, Replacement};

/// Returns the encrypted keys of the cluster, or `None` if it has no keys yet.
pub async fn read_cluster_keys(api: &impl EtcdApi, keys: &Keyspace) -> Result<Option<Bytes>, EtcdError> {
    shared_value::read(api, keys.cluster_keys_key()).await
}

/// Stores `value` as the encrypted keys of the cluster, unless the cluster already has keys. Returns the stored keys:
/// `value`, or the keys that another server stored first. Fails if the cluster has no keys and a restore is in progress
/// or was interrupted. A call that got no response may be repeated with the same value.
pub async fn create_cluster_keys(
    api: &impl EtcdApi,
    keys: &Keyspace,
    value: Bytes,
) -> Result<Bytes, EtcdError> {
    shared_value::create(api, keys, keys.cluster_keys_key(), value).await
}

/// Replaces the encrypted keys `old` of the cluster with `new`. Changes nothing if the stored keys are not `old`, or if
/// a restore is in progress or was interrupted. Returns whether `new` is stored.
pub async fn replace_cluster_keys(
    api: &impl EtcdApi,
    keys: &Keyspace,
    old: Bytes,
    new: Bytes,
) -> Result<bool, EtcdError> {
    let key = keys.cluster_keys_key();
    let replacement = Replacement { key, old, new, compare: Vec::new(), writes: Vec::new() };
    shared_value::replace(api, keys, replacement).await
}

/// Whether the cluster has at least one object in etcd.
pub async fn has_objects(api: &impl EtcdApi, keys: &Keyspace) -> Result<bool, EtcdError> {
    Ok(!api.range(first_key_request(keys.objects())).await?.kvs.is_empty())
}
