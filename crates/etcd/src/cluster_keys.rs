//! The private keys of the cluster, which all servers share. They are stored in etcd as one encrypted value. This
//! module does not decode the value.

use bytes::Bytes;

use crate::api::{EtcdApi, EtcdError, retry};
use crate::cluster_state::UnusableError;
use crate::keyspace::Keyspace;
use crate::lane::{first_key_request, found_keys, get, put, revision_is, value_is};
use crate::proto::{RangeRequest, TxnRequest};

/// Returns the encrypted keys of the cluster, or `None` if it has no keys yet.
pub async fn read_cluster_keys(api: &impl EtcdApi, keys: &Keyspace) -> Result<Option<Bytes>, EtcdError> {
    let request = RangeRequest { key: keys.cluster_keys_key(), ..RangeRequest::default() };
    Ok(api.range(request).await?.kvs.into_iter().next().map(|it| it.value))
}

/// Stores `value` as the encrypted keys of the cluster, unless the cluster already has keys. Returns the stored keys:
/// `value`, or the keys that another server stored first. Fails if the cluster has no keys and a restore is in progress
/// or was interrupted. A call that got no response may be repeated with the same value.
pub async fn create_cluster_keys(
    api: &impl EtcdApi,
    keys: &Keyspace,
    value: Bytes,
) -> Result<Bytes, EtcdError> {
    let key = keys.cluster_keys_key();
    let request = TxnRequest {
        // A restore writes the keys of its backup.
        compare: vec![revision_is(key.clone(), 0), revision_is(keys.restoring_key(), 0)],
        success: vec![put(key.clone(), value.clone())],
        failure: vec![get(key)],
    };
    let response = api.txn(request).await?;
    match found_keys(&response, 0).first() {
        _ if response.succeeded => Ok(value),
        Some(found) => Ok(found.value.clone()),
        None => Err(EtcdError::Rejected { why: UnusableError::Restoring.to_string() }),
    }
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
    let request = TxnRequest {
        compare: vec![value_is(key.clone(), old), revision_is(keys.restoring_key(), 0)],
        success: vec![put(key.clone(), new.clone())],
        failure: vec![get(key)],
    };
    let response = retry(async || api.txn(request.clone()).await).await?;
    // An earlier attempt, whose response was lost, may have been applied.
    Ok(response.succeeded || found_keys(&response, 0).first().is_some_and(|it| it.value == new))
}

/// Whether the cluster has at least one object in etcd.
pub async fn has_objects(api: &impl EtcdApi, keys: &Keyspace) -> Result<bool, EtcdError> {
    Ok(!api.range(first_key_request(keys.objects())).await?.kvs.is_empty())
}
