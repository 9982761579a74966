//! A whole cluster at one etcd revision. A backup reads it while servers may write.

use bytes::Bytes;
use muster_store::{EncryptionKeys, Revision, StoredObject};

use crate::api::EtcdApi;
use crate::cluster_state::{self, ClusterSource};
use crate::keyspace::Keyspace;
use crate::load::{self, LoadError};
use crate::object_value::ObjectCodec;
use crate::proto::RangeRequest;

/// A cluster at one etcd revision. Its objects can be read until etcd compacts that revision.
#[derive(Debug)]
pub struct EtcdSnapshot {
    keys: Keyspace,
    etcd_revision: i64,
    /// The etcd revision at which the cluster was moved to a data directory. `None` if it was not moved.
    moved: Option<i64>,
    /// The private keys of the cluster, encrypted with the server token. `None` if there is no cluster.
    pub cluster_keys: Option<Bytes>,
    /// What the cluster was restored or moved from. `None` for a cluster that began in etcd.
    pub source: Option<ClusterSource>,
}

impl EtcdSnapshot {
    /// Takes a snapshot at the current revision. Fails if servers may not use the cluster, for example during a
    /// restore. With `allow_moved`, a snapshot of a cluster that was moved to a data directory is allowed.
    pub async fn take(api: &impl EtcdApi, keys: Keyspace, allow_moved: bool) -> Result<Self, LoadError> {
        let failed = |source| LoadError::Etcd { source };
        let state = cluster_state::read(api, &keys).await.map_err(failed)?;
        if !(allow_moved && state.is_moved()) {
            state.check_usable(&keys)?;
        }
        let read = async |key: Bytes| {
            let request = RangeRequest { key, revision: state.revision, ..RangeRequest::default() };
            api.range(request).await.map_err(failed)
        };
        let base = load::parse_number(&read(keys.base_key()).await?)?.unwrap_or(0);
        let cluster_keys = read(keys.cluster_keys_key()).await?.kvs.into_iter().next().map(|it| it.value);
        let keys = keys.with_base(base);
        Ok(Self {
            keys,
            etcd_revision: state.revision,
            moved: state.moved,
            cluster_keys,
            source: state.source,
        })
    }

    /// Returns the highest resourceVersion that an object can have at the etcd revision of this snapshot.
    pub fn revision(&self) -> Revision {
        self.keys.last_resource_version(self.etcd_revision)
    }

    /// Returns the highest resourceVersion that an object could have when the cluster was moved to a data directory.
    /// `None` if it was not moved.
    pub fn moved_revision(&self) -> Option<Revision> {
        self.moved.map(|it| self.keys.last_resource_version(it))
    }

    /// Reads all objects in the order of their keys. `encryption` decrypts Secrets. Fails if `on_object` does, or if
    /// etcd has compacted the revision since.
    pub async fn read_objects<E: From<LoadError>>(
        &self,
        api: &impl EtcdApi,
        encryption: &EncryptionKeys,
        on_object: &mut (dyn FnMut(StoredObject) -> Result<(), E> + Send),
    ) -> Result<(), E> {
        let codec = ObjectCodec { encryption: Some(encryption.clone()) };
        load::read_objects(api, &self.keys, &codec, self.etcd_revision, on_object).await
    }
}
