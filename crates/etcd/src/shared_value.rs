//! Values that are stored under one key of the cluster and that all servers share: the private keys and the settings.

use bytes::Bytes;

use crate::api::{EtcdApi, EtcdError, retry};
use crate::cluster_state::UnusableError;
use crate::keyspace::Keyspace;
use crate::lane::{found_keys, get, put, revision_is, value_is};
use crate::proto::{Compare, RangeRequest, RequestOp, TxnRequest};

/// Returns the value of `key`, or `None` if the key does not exist.
pub(crate) async fn read(api: &impl EtcdApi, key: Bytes) -> Result<Option<Bytes>, EtcdError> {
    let request = RangeRequest { key, ..RangeRequest::default() };
    Ok(api.range(request).await?.kvs.into_iter().next().map(|it| it.value))
}

/// Stores `value` unless `key` exists. Returns the stored value: `value`, or the value that another server stored first.
/// Fails if the key does not exist and a restore is in progress or was interrupted. A call that got no response may be
/// repeated with the same value.
pub(crate) async fn create(
    api: &impl EtcdApi,
    keys: &Keyspace,
    key: Bytes,
    value: Bytes,
) -> Result<Bytes, EtcdError> {
    let request = TxnRequest {
        // A restore writes or deletes the key.
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

/// A replacement of a shared value.
pub(crate) struct Replacement {
    pub(crate) key: Bytes,
    pub(crate) old: Bytes,
    pub(crate) new: Bytes,
    /// Further preconditions of the replacement.
    pub(crate) compare: Vec<Compare>,
    /// Further writes that are made together with the replacement.
    pub(crate) writes: Vec<RequestOp>,
}

/// Replaces a value. Changes nothing if the stored value is not `old`, if a further precondition fails, or if a restore
/// is in progress or was interrupted. Returns whether `new` is stored.
pub(crate) async fn replace(
    api: &impl EtcdApi,
    keys: &Keyspace,
    replacement: Replacement,
) -> Result<bool, EtcdError> {
    let Replacement { key, old, new, mut compare, writes } = replacement;
    compare.extend([value_is(key.clone(), old), revision_is(keys.restoring_key(), 0)]);
    let mut success = vec![put(key.clone(), new.clone())];
    success.extend(writes);
    let request = TxnRequest { compare, success, failure: vec![get(key)] };
    let response = retry(async || api.txn(request.clone()).await).await?;
    // An earlier attempt, whose response was lost, may have been applied.
    Ok(response.succeeded || found_keys(&response, 0).first().is_some_and(|it| it.value == new))
}
