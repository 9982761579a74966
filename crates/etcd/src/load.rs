//! Lists all objects at one revision: when the backend is opened, and when the watch cannot go on from the published
//! revision.

use std::str::FromStr;
use std::sync::Arc;

use muster_store::{HistoryWindow, PublishedStore, Store, StoredObject};

use crate::api::{EtcdApi, EtcdError, retry};
use crate::cluster_state::{self, ClusterState, ObservedRevisions, ReplacedError, UnusableError};
use crate::keyspace::{KeyRange, Keyspace};
use crate::object_value::{ObjectCodec, ValueError};
use crate::paged_range::PagedRange;
use crate::proto::{KeyValue, RangeRequest, RangeResponse};

/// Maximum number of objects that one request reads. 500 objects of etcd's largest size (1.5 MiB) fit into the largest
/// message of the client.
const PAGE_OBJECTS_MAX: i64 = 500;

/// All objects of a cluster at one etcd revision.
#[derive(Debug)]
pub(crate) struct LoadedObjects {
    pub(crate) store: Store,
    /// The key space of the cluster, with the offset between its resourceVersions and the etcd revisions.
    pub(crate) keys: Keyspace,
    /// The etcd revision at which the objects were listed. The watch continues after it.
    pub(crate) revision: i64,
    /// The etcd revision of the last write of `m/source`, or 0 if the key does not exist. If this revision changes
    /// later, the cluster was restored, or its settings were changed.
    pub(crate) source_revision: i64,
}

/// Why the objects cannot be loaded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadError {
    #[error("list the objects in etcd")]
    Etcd {
        #[source]
        source: EtcdError,
    },
    #[error("read the value of {key} in etcd: {why}")]
    Value { key: String, why: String },
    #[error(transparent)]
    Unusable(#[from] UnusableError),
    #[error(transparent)]
    Replaced(#[from] ReplacedError),
}

/// Lists all objects, page by page, at the revision up to which Muster has compacted the history. The watch then
/// delivers all later changes, so that clients can continue their watches and paged lists on this server. If etcd has
/// compacted past that revision, lists the objects at the current revision.
pub(crate) async fn load(
    api: &impl EtcdApi,
    keys: Keyspace,
    codec: &ObjectCodec,
    window: HistoryWindow,
) -> Result<LoadedObjects, LoadError> {
    let cluster = UsableCluster::read(api, keys).await?;
    cluster.state.check_prefix()?;
    let compacted_request = RangeRequest { key: cluster.keys.compacted_key(), ..RangeRequest::default() };
    let compacted = api.range(compacted_request).await.map_err(etcd_error)?;
    // An etcd without data has revision 1. The history of a restored cluster begins after the restore.
    let compacted = parse_number(&compacted)?.unwrap_or(1).max(cluster.state.source_revision);
    let compacted = compacted.min(cluster.revision).max(1);
    let new = |object| Arc::new(object);
    match list(api, &cluster.keys, codec, window, compacted, new).await {
        Ok(store) => cluster.finish_load(api, store, compacted).await,
        Err(LoadError::Etcd { source: EtcdError::Compacted }) => cluster.load(api, codec, window, new).await,
        Err(error) => Err(error),
    }
}

/// Lists all objects, page by page, at the current revision. An object that is equal to one in `published` shares its
/// memory. Fails if servers may no longer use the cluster, if the cluster was restored, or if etcd is at an earlier
/// revision than the server has already seen.
pub(crate) async fn load_again(
    api: &impl EtcdApi,
    keys: Keyspace,
    codec: &ObjectCodec,
    window: HistoryWindow,
    followed: ObservedRevisions,
    published: &PublishedStore,
) -> Result<LoadedObjects, LoadError> {
    let cluster = UsableCluster::read(api, keys).await?;
    followed.check_revision(cluster.revision)?;
    followed.check_source(cluster.state.source_revision)?;
    let share = |object: StoredObject| match published.read().get(&object.key) {
        Some(known) if **known == object => known.clone(),
        _ => Arc::new(object),
    };
    cluster.load(api, codec, window, share).await
}

/// The state of a cluster that servers may use. It is read before the objects are listed.
struct UsableCluster {
    state: ClusterState,
    keys: Keyspace,
    /// The current etcd revision when the state was read.
    revision: i64,
}

impl UsableCluster {
    /// Reads the state of the cluster. Fails if servers may not use the cluster.
    async fn read(api: &impl EtcdApi, keys: Keyspace) -> Result<Self, LoadError> {
        let state = cluster_state::read(api, &keys).await.map_err(etcd_error)?;
        state.check_usable(&keys)?;
        let base_request = RangeRequest { key: keys.base_key(), ..RangeRequest::default() };
        let found = api.range(base_request).await.map_err(etcd_error)?;
        let revision = found.header.as_ref().map_or(0, |it| it.revision);
        let keys = keys.with_base(parse_number(&found)?.unwrap_or(0));
        Ok(Self { state, keys, revision })
    }

    /// Lists all objects at the revision at which the state of the cluster was read.
    async fn load(
        self,
        api: &impl EtcdApi,
        codec: &ObjectCodec,
        window: HistoryWindow,
        share: impl Fn(StoredObject) -> Arc<StoredObject> + Send + Sync,
    ) -> Result<LoadedObjects, LoadError> {
        let revision = self.revision;
        let store = list(api, &self.keys, codec, window, revision, share).await?;
        self.finish_load(api, store, revision).await
    }

    /// Checks the cluster again after its objects were listed at `revision`. Returns the objects with what the driver
    /// needs to follow the cluster. Fails if servers may no longer use the cluster. Also fails if a restore has begun
    /// or ended since the state was read, because the list may then have only a part of the objects.
    async fn finish_load(
        self,
        api: &impl EtcdApi,
        store: Store,
        revision: i64,
    ) -> Result<LoadedObjects, LoadError> {
        let now = cluster_state::read(api, &self.keys).await.map_err(etcd_error)?;
        let Self { state, keys, .. } = self;
        now.check_usable(&keys)?;
        if now.source_revision != state.source_revision {
            return Err(UnusableError::Restoring.into());
        }
        Ok(LoadedObjects { store, keys, revision, source_revision: state.source_revision })
    }
}

/// Converts the error of a call to etcd to a [`LoadError`].
fn etcd_error(source: EtcdError) -> LoadError {
    LoadError::Etcd { source }
}

/// Lists all objects at an etcd revision. `share` puts an object into an `Arc`. It may instead return an existing `Arc`
/// with an equal object.
async fn list(
    api: &impl EtcdApi,
    keys: &Keyspace,
    codec: &ObjectCodec,
    window: HistoryWindow,
    revision: i64,
    share: impl Fn(StoredObject) -> Arc<StoredObject> + Send + Sync,
) -> Result<Store, LoadError> {
    let mut store = Store::empty_after(keys.last_resource_version(revision), window);
    read_objects::<LoadError>(api, keys, codec, revision, &mut |object| {
        store.restore_object(share(object));
        Ok(())
    })
    .await?;
    Ok(store)
}

/// Reads all objects at an etcd revision, page by page, and calls `on_object` with each object in the order of the
/// keys. Fails if a page cannot be read, if a value cannot be decoded, or if `on_object` fails.
pub(crate) async fn read_objects<E: From<LoadError>>(
    api: &impl EtcdApi,
    keys: &Keyspace,
    codec: &ObjectCodec,
    revision: i64,
    on_object: &mut (dyn FnMut(StoredObject) -> Result<(), E> + Send),
) -> Result<(), E> {
    let mut pages = PagedRange::new(keys.objects(), revision, false, PAGE_OBJECTS_MAX);
    while let Some(page) = pages.next(api).await {
        for kv in &page.map_err(etcd_error)? {
            on_object(decode_stored_object(keys, codec, kv)?.1)?;
        }
    }
    Ok(())
}

/// Reads the objects whose store keys begin with `prefix`, for a command that runs beside the servers. The objects must
/// fit into one response, and must not be encrypted. If no member responds or can serve requests, repeats the call for up
/// to 30 seconds.
pub async fn read_objects_with_prefix(
    api: &impl EtcdApi,
    keys: &Keyspace,
    prefix: &str,
) -> Result<Vec<StoredObject>, LoadError> {
    let KeyRange { start, end } = keys.objects_with_prefix(prefix);
    let request = RangeRequest { key: start, range_end: end, ..RangeRequest::default() };
    let found = retry(|| api.range(request.clone())).await.map_err(etcd_error)?;
    let codec = ObjectCodec::default();
    found.kvs.iter().map(|it| Ok(decode_stored_object(keys, &codec, it)?.1)).collect()
}

/// Parses the value of the first key in a response as a number. Returns `None` if the response has no key. Fails if the
/// value is not a number.
pub(crate) fn parse_number<T: FromStr>(found: &RangeResponse) -> Result<Option<T>, LoadError> {
    let Some(kv) = found.kvs.first() else { return Ok(None) };
    let text = std::str::from_utf8(&kv.value).unwrap_or_default();
    text.parse().map(Some).map_err(|_| value_error(&kv.key, "it is not a number"))
}

/// Decodes the key-value pair of an object. Returns its store key and the object.
pub(crate) fn decode_stored_object<'a>(
    keys: &Keyspace,
    codec: &ObjectCodec,
    kv: &'a KeyValue,
) -> Result<(&'a str, StoredObject), LoadError> {
    let key =
        keys.store_key(&kv.key).ok_or_else(|| value_error(&kv.key, "the key is not one of an object"))?;
    let decoded =
        codec.decode(key, &kv.value).map_err(|it: ValueError| value_error(&kv.key, &it.to_string()))?;
    let modified = keys.resource_version(kv.mod_revision, decoded.position);
    let created = keys.resource_version(kv.create_revision, decoded.created_position);
    let object = StoredObject {
        key: key.into(),
        value: decoded.draft.with_revision(modified),
        index: decoded.index,
        created,
        modified,
        expires_s: decoded.expires_s,
    };
    Ok((key, object))
}

/// Returns the error for a value that cannot be read.
fn value_error(key: &[u8], why: &str) -> LoadError {
    LoadError::Value { key: String::from_utf8_lossy(key).into_owned(), why: why.to_owned() }
}
