//! The feature level of a cluster: which formats in etcd a server must be able to read. During a rolling upgrade,
//! servers of two versions share the cluster, and a server of the new version writes nothing that the old version
//! cannot read. When all servers have the new version, they raise the level. From then on, older versions refuse to
//! start.

use crate::api::{EtcdApi, EtcdError};
use crate::keyspace::Keyspace;
use crate::lane::{found_keys, get, put, revision_is};
use crate::proto::{KeyValue, TxnRequest};

/// The highest feature level that this version supports. A change of the meaning or the format of a key in etcd needs a
/// new level. A server writes the new format only if the level of the cluster allows it.
///
/// | level | since version | what is written |
/// |---|---|---|
/// | 1 | 0.1.0 | value formats 1 and 2 |
pub const FEATURE_LEVEL: u32 = 1;

/// Returns the highest feature level that this process supports: [`FEATURE_LEVEL`], or less for a key space with
/// [`Keyspace::with_feature_level_max`].
pub(crate) fn supported_feature_level(keys: &Keyspace) -> u32 {
    FEATURE_LEVEL.min(keys.feature_level_max())
}

/// Returns the feature level in the value of `m/format`. `found` is `None` if the cluster does not have this key, which
/// means level 1. Returns `u32::MAX` for a value that is not a number, because a later version must have written it.
pub(crate) fn parse_feature_level(found: Option<&KeyValue>) -> u32 {
    found.map_or(1, |kv| {
        let text = std::str::from_utf8(&kv.value).unwrap_or_default();
        text.parse().unwrap_or(u32::MAX)
    })
}

/// Raises the feature level of the cluster to `level`. Does nothing if the cluster already has this or a higher level,
/// or if a restore is in progress. The caller must ensure that all servers of the cluster can read what is written at
/// this level. A call that got no response may be repeated.
pub async fn raise_feature_level(api: &impl EtcdApi, keys: &Keyspace, level: u32) -> Result<(), EtcdError> {
    let key = keys.feature_level_key();
    let mut known = 0;
    loop {
        let request = TxnRequest {
            compare: vec![revision_is(key.clone(), known), revision_is(keys.restoring_key(), 0)],
            success: vec![put(key.clone(), level.to_string().into())],
            failure: vec![get(key.clone()), get(keys.restoring_key())],
        };
        let response = api.txn(request).await?;
        let found = found_keys(&response, 0).first();
        let is_restoring = !found_keys(&response, 1).is_empty();
        match found {
            _ if response.succeeded || is_restoring => return Ok(()),
            Some(kv) if parse_feature_level(Some(kv)) < level => known = kv.mod_revision,
            // The level is high enough.
            _ => return Ok(()),
        }
    }
}
