//! The Services, EndpointSlices and nodes of the cluster, kept up to date by watches.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::TryStreamExt as _;
use kube::api::ApiResource;
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use muster_api::meta::ObjectKey;
use muster_engine::daemonset::facts::Malformed;
use muster_engine::service_proxy::{Node, Picture, Service, Slice};
use tokio::sync::Notify;

use crate::error_chain::chain;
use crate::membership::Membership;

/// Number of watched kinds: Services, EndpointSlices and Nodes.
const KINDS: usize = 3;

/// The Services, EndpointSlices and nodes that this node has received.
#[derive(Debug)]
pub struct ServiceCache {
    picture: Mutex<Picture>,
    /// Number of kinds that have been listed at least once.
    listed: AtomicUsize,
    changed: Notify,
}

impl Default for ServiceCache {
    fn default() -> Self {
        Self { picture: Mutex::default(), listed: AtomicUsize::new(0), changed: Notify::new() }
    }
}

impl ServiceCache {
    pub(crate) fn picture(&self) -> MutexGuard<'_, Picture> {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True once every kind was listed. Before that, an object that is missing here may exist.
    pub(crate) fn is_synced(&self) -> bool {
        self.listed.load(Ordering::Acquire) == KINDS
    }

    /// Waits until every kind was listed.
    pub(super) async fn synced(&self) {
        while !self.is_synced() {
            self.changed.notified().await;
        }
    }

    /// Waits for the next change.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// Runs the watches that keep the cache up to date; never returns.
pub(super) async fn watch(client: Client, cache: &ServiceCache, membership: &Membership) {
    let of_kind = async |kind| {
        let mut was_listed = false;
        loop {
            follow(&client, cache, membership, kind, &mut was_listed).await;
            // The API server may be that of another cluster: confirm before the next list.
            membership.confirmed().await;
        }
    };
    tokio::join!(of_kind(Kind::Services), of_kind(Kind::Slices), of_kind(Kind::Nodes));
}

/// A kind that the cache watches.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Services,
    Slices,
    Nodes,
}

impl Kind {
    fn resource(self) -> ApiResource {
        let (group, kind, plural) = match self {
            Self::Services => ("", "Service", "services"),
            Self::Slices => ("discovery.k8s.io", "EndpointSlice", "endpointslices"),
            Self::Nodes => ("", "Node", "nodes"),
        };
        let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version,
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        }
    }

    fn put(self, picture: &mut Picture, key: ObjectKey, object: &DynamicObject) -> Result<bool, Malformed> {
        Ok(match self {
            Self::Services => picture.put_service(key, Service::read(&object.data)?),
            Self::Slices => picture.put_slice(key, Slice::read(object.labels(), &object.data)?),
            Self::Nodes => picture.put_node(key.name, Node::read(object.labels(), &object.data)?),
        })
    }

    fn remove(self, picture: &mut Picture, key: &ObjectKey) -> bool {
        match self {
            Self::Services => picture.remove_service(key),
            Self::Slices => picture.remove_slice(key),
            Self::Nodes => picture.remove_node(&key.name),
        }
    }

    fn keep(self, picture: &mut Picture, listed: &BTreeSet<ObjectKey>) -> bool {
        match self {
            Self::Services => picture.keep_services(listed),
            Self::Slices => picture.keep_slices(listed),
            Self::Nodes => picture.keep_nodes(listed),
        }
    }
}

/// Watches one kind while the API server is confirmed to be the node's cluster.
async fn follow(
    client: &Client,
    cache: &ServiceCache,
    membership: &Membership,
    kind: Kind,
    was_listed: &mut bool,
) {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut list = Vec::new();
    let mut is_healthy = true;
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                // Logged once: retries follow about every second.
                if std::mem::take(&mut is_healthy) {
                    let error = chain(&error);
                    tracing::warn!(?kind, error, "a watch failed, retrying");
                }
                continue;
            }
        };
        let has_changed = match event {
            watcher::Event::Init => {
                list.clear();
                false
            }
            watcher::Event::InitApply(object) => {
                list.push(object);
                false
            }
            watcher::Event::InitDone => {
                is_healthy = true;
                if !membership.confirm().await {
                    return;
                }
                let listed: BTreeSet<ObjectKey> = list.iter().map(key).collect();
                let mut has_changed = false;
                for object in std::mem::take(&mut list) {
                    has_changed |= put(cache, kind, &object);
                }
                has_changed |= kind.keep(&mut cache.picture(), &listed);
                let is_first = !std::mem::replace(was_listed, true);
                if is_first {
                    cache.listed.fetch_add(1, Ordering::AcqRel);
                }
                has_changed || is_first
            }
            watcher::Event::Apply(_) | watcher::Event::Delete(_) if !membership.may_obey() => return,
            watcher::Event::Apply(object) => put(cache, kind, &object),
            watcher::Event::Delete(object) => kind.remove(&mut cache.picture(), &key(&object)),
        };
        if has_changed {
            cache.changed.notify_one();
        }
    }
}

fn put(cache: &ServiceCache, kind: Kind, object: &DynamicObject) -> bool {
    let put = kind.put(&mut cache.picture(), key(object), object);
    put.unwrap_or_else(|error| {
        tracing::error!(name = object.name_any(), %error, "ignoring an object that cannot be decoded");
        false
    })
}

fn key(object: &DynamicObject) -> ObjectKey {
    ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any())
}
