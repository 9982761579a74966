//! The Services, EndpointSlices and Nodes of the cluster, kept up to date by watches.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::TryStreamExt as _;
use kube::api::ApiResource;
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use muster_api::object_key::ObjectKey;
use muster_api::time::Time;
use muster_engine::controller::Malformed;
use muster_engine::service_proxy::{self, ProxyState, Service, Slice};
use muster_events::error_chain::format_error_chain;
use tokio::sync::Notify;

use crate::membership::ClusterMembership;

/// Number of watched kinds: Services, EndpointSlices and Nodes.
const WATCHED_KIND_COUNT: usize = 3;

/// The Services, EndpointSlices and Nodes that the watches of this node have received.
#[derive(Debug)]
pub struct ServiceCache {
    state: Mutex<ProxyState>,
    /// Number of kinds that have been listed at least once.
    kinds_listed: AtomicUsize,
    /// Notified after each change of the cache.
    changed: Notify,
}

impl Default for ServiceCache {
    fn default() -> Self {
        Self { state: Mutex::default(), kinds_listed: AtomicUsize::new(0), changed: Notify::new() }
    }
}

impl ServiceCache {
    /// Locks the cached Services, EndpointSlices and Nodes.
    pub(crate) fn lock_state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every watched kind was listed. Until then, an object that is not in the cache may exist.
    pub(crate) fn is_synced(&self) -> bool {
        self.kinds_listed.load(Ordering::Acquire) == WATCHED_KIND_COUNT
    }

    /// Waits until every watched kind was listed.
    pub(super) async fn wait_until_synced(&self) {
        while !self.is_synced() {
            self.changed.notified().await;
        }
    }

    /// Waits until the cache changes. Returns at once if the cache has changed since the last wait ended. Only one task
    /// may wait.
    pub(super) async fn wait_for_change(&self) {
        self.changed.notified().await;
    }
}

/// Runs the watches that keep the cache up to date and never returns.
pub(super) async fn run_watches(client: Client, cache: &ServiceCache, membership: &ClusterMembership) {
    let of_kind = async |kind| {
        let mut was_listed = false;
        loop {
            watch_kind(&client, cache, membership, kind, &mut was_listed).await;
            // The API server may be that of another cluster: confirm before the next list.
            membership.wait_until_confirmed().await;
        }
    };
    tokio::join!(of_kind(WatchedKind::Services), of_kind(WatchedKind::Slices), of_kind(WatchedKind::Nodes));
}

/// A kind that the cache watches.
#[derive(Debug, Clone, Copy)]
enum WatchedKind {
    Services,
    Slices,
    Nodes,
}

impl WatchedKind {
    /// Returns the API resource of this kind, to list and watch it.
    fn api_resource(self) -> ApiResource {
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

    /// Adds or updates an object in the proxy state. Returns whether this changed the proxy state.
    fn apply(
        self,
        proxy_state: &mut ProxyState,
        key: ObjectKey,
        object: &DynamicObject,
    ) -> Result<bool, Malformed> {
        Ok(match self {
            Self::Services => {
                let created = object.metadata.creation_timestamp.as_ref();
                let created = created.map(|it| Time::from(it.0)).unwrap_or_default();
                proxy_state.put_service(key, Service::decode(created, &object.data)?)
            }
            Self::Slices => proxy_state.put_slice(key, Slice::decode(object.labels(), &object.data)?),
            Self::Nodes => {
                proxy_state.put_node(key.name, service_proxy::Node::decode(object.labels(), &object.data)?)
            }
        })
    }

    /// Removes an object from the proxy state. Returns whether this changed the proxy state.
    fn remove(self, proxy_state: &mut ProxyState, key: &ObjectKey) -> bool {
        match self {
            Self::Services => proxy_state.remove_service(key),
            Self::Slices => proxy_state.remove_slice(key),
            Self::Nodes => proxy_state.remove_node(&key.name),
        }
    }

    /// Removes the objects of this kind whose keys are not in `listed`. Returns whether this changed the proxy state.
    fn retain_listed(self, proxy_state: &mut ProxyState, listed: &BTreeSet<ObjectKey>) -> bool {
        match self {
            Self::Services => proxy_state.retain_services(listed),
            Self::Slices => proxy_state.retain_slices(listed),
            Self::Nodes => proxy_state.retain_nodes(listed),
        }
    }
}

/// Lists and watches one kind. After each list, confirms that the API server belongs to the node's cluster. If this
/// fails, returns without applying the list. Also returns when an event arrives while the API server is not confirmed.
/// Sets `was_listed` after the first list was applied.
async fn watch_kind(
    client: &Client,
    cache: &ServiceCache,
    membership: &ClusterMembership,
    kind: WatchedKind,
    was_listed: &mut bool,
) {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.api_resource());
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
                    let error = format_error_chain(&error);
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
                if !membership.confirm_cluster().await {
                    return;
                }
                let listed: BTreeSet<ObjectKey> = list.iter().map(object_key).collect();
                let mut has_changed = false;
                for object in std::mem::take(&mut list) {
                    has_changed |= apply_object(cache, kind, &object);
                }
                has_changed |= kind.retain_listed(&mut cache.lock_state(), &listed);
                let is_first = !std::mem::replace(was_listed, true);
                if is_first {
                    cache.kinds_listed.fetch_add(1, Ordering::AcqRel);
                }
                has_changed || is_first
            }
            watcher::Event::Apply(_) | watcher::Event::Delete(_) if !membership.may_apply_events() => return,
            watcher::Event::Apply(object) => apply_object(cache, kind, &object),
            watcher::Event::Delete(object) => kind.remove(&mut cache.lock_state(), &object_key(&object)),
        };
        if has_changed {
            cache.changed.notify_one();
        }
    }
}

/// Applies an added or changed object to the cache. Returns whether this changed the cache. An object that cannot be
/// decoded is ignored.
fn apply_object(cache: &ServiceCache, kind: WatchedKind, object: &DynamicObject) -> bool {
    let put = kind.apply(&mut cache.lock_state(), object_key(object), object);
    put.unwrap_or_else(|error| {
        tracing::error!(name = object.name_any(), %error, "ignoring an object that cannot be decoded");
        false
    })
}

fn object_key(object: &DynamicObject) -> ObjectKey {
    ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any())
}
