//! The Leases of the API servers that share a store. Each server renews its own Lease in `kube-system`. The Lease has
//! the address of the server as an annotation, so that the servers know each other's addresses. Upstream: API server
//! identity Leases (`apiserver-…`), and `LeaseEndpointReconciler` for the endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use muster_api::well_known::{
    ANNOTATION_SERVER_ENDPOINT, ANNOTATION_SERVER_FEATURE_LEVEL, ANNOTATION_SERVER_SIGNING_KEYS,
    ANNOTATION_SERVER_VERSION, LABEL_SERVER_IDENTITY, NAMESPACE_SYSTEM,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;
use crate::kinds::Kind;
use crate::registry::{DeleteOptions, Registry};
use crate::request::{RequestContext, RequestTarget};
use crate::selector::ObjectSelector;
use crate::subresource::Subresource;
use crate::unstructured::{self, str_at};

/// Namespace of the Leases of API servers.
const LEASE_NAMESPACE: &str = NAMESPACE_SYSTEM;
/// Name prefix of the Leases of API servers. The ID of the server follows.
const LEASE_NAME_PREFIX: &str = "apiserver-";

/// Interval at which a server renews its own Lease and reads the Leases of the other servers.
pub(crate) const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// Time without a renewal of its Lease after which a server counts as dead.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// Time without a renewal after which the Lease of a server is deleted.
const LEASE_RETENTION: Duration = Duration::from_secs(120);

/// ID, address and feature level of an API server. The server writes them to its Lease.
#[derive(Debug, Clone)]
pub(crate) struct ServerRegistration {
    /// ID of the server process. It is unique, so that a restarted server has a new Lease.
    pub(crate) id: String,
    /// Address at which other machines reach the server. `None` if they cannot reach it.
    pub(crate) endpoint: Option<SocketAddr>,
    /// The highest feature level that the server supports, see [`muster_etcd::FEATURE_LEVEL`].
    pub(crate) feature_level: u32,
}

/// Channels on which [`run`] publishes the servers that share the store, including this server.
#[derive(Debug, Default)]
pub(crate) struct LiveServers {
    /// The addresses at which other machines reach the live servers. `None` until they are known.
    pub(crate) endpoints: watch::Sender<Option<BTreeSet<SocketAddr>>>,
    /// The names of the Leases of the live servers.
    pub(crate) names: watch::Sender<BTreeSet<String>>,
    /// The lowest feature level of all servers that have a Lease. `None` until it is known, and while this server
    /// cannot renew its own Lease.
    pub(crate) feature_level: watch::Sender<Option<u32>>,
}

/// Chooses for each Lease of a controller the server that should hold it, so that the controllers are spread over the
/// live servers.
#[derive(Debug, Clone)]
pub struct LeasePreference {
    /// Name of the Lease of this server. Empty if no other server can share the store, see [`Self::always`].
    own: String,
    /// Names of the Leases of the live servers.
    live: watch::Receiver<BTreeSet<String>>,
}

impl LeasePreference {
    /// Returns the preference of the server `own`. `live` are the servers that share its store, this server included.
    pub(crate) fn new(own: &ServerRegistration, live: &LiveServers) -> Self {
        Self { own: lease_name(&own.id), live: live.names.subscribe() }
    }

    /// Returns the preference of a server whose store no other server can share. Such a server should hold every Lease.
    pub(crate) fn always() -> Self {
        Self { own: String::new(), live: watch::channel(BTreeSet::new()).1 }
    }

    /// Whether this server should hold the Lease of a controller.
    ///
    /// Rule: the preferred holder of a Lease is the live server with the highest hash of its own name and the name of
    /// the Lease (rendezvous hashing). When a server starts or stops, the preferred holder changes only for the Leases
    /// whose preferred holder that server is.
    pub fn is_preferred(&self, lease: &str) -> bool {
        let weight = |server: &str| {
            // FNV-1a, and the finalizer of SplitMix64, because similar names have similar FNV-1a hashes. All servers
            // must calculate the same value, also servers of different versions.
            let bytes = server.bytes().chain(lease.bytes());
            let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, it| {
                (hash ^ u64::from(it)).wrapping_mul(0x100_0000_01b3)
            });
            let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        let own = weight(&self.own);
        self.live.borrow().iter().all(|it| weight(it) <= own)
    }
}

/// Renews the Lease of this server and publishes the live servers until `shutting_down` is cancelled. Then deletes the
/// Lease, and waits until `stop` is cancelled, because a background task must not end earlier.
pub(crate) async fn run(
    registry: Arc<Registry>,
    own: ServerRegistration,
    published: LiveServers,
    shutting_down: CancellationToken,
    stop: CancellationToken,
) {
    let mut servers = ObservedServers::default();
    let mut rounds = tokio::time::interval(RENEW_INTERVAL);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while shutting_down.run_until_cancelled(rounds.tick()).await.is_some() {
        let renewed = renew_lease(&registry, &own, Timestamp::now()).await;
        if let Err(error) = &renewed {
            tracing::warn!(status = %error.status(), "cannot renew the Lease of this server");
            servers.mark_all_renewed(Instant::now());
        }
        let expired = servers.observe(list_leases(&registry), Instant::now());
        let mut live = servers.live_endpoints();
        live.extend(own.endpoint);
        let live = Some(live);
        published.endpoints.send_if_modified(|it| std::mem::replace(it, live.clone()) != live);
        let mut names = servers.live_lease_names();
        names.insert(lease_name(&own.id));
        // This includes servers that count as dead, because they may only be suspended.
        published.feature_level.send_replace(renewed.is_ok().then(|| servers.lowest_feature_level(&own)));
        published.names.send_if_modified(|it| std::mem::replace(it, names.clone()) != names);
        for (name, version) in expired {
            delete_lease(&registry, &name, Some(version)).await;
        }
    }
    delete_lease(&registry, &lease_name(&own.id), None).await;
    stop.cancelled().await;
}

fn lease_name(id: &str) -> String {
    format!("{LEASE_NAME_PREFIX}{id}")
}

/// Returns the target of a write to the Lease with this name.
fn lease_target(name: &str) -> RequestTarget {
    RequestTarget {
        kind: Kind::builtin("coordination.k8s.io", "v1", "leases"),
        namespace: Some(LEASE_NAMESPACE.to_owned()),
        name: name.to_owned(),
        subresource: Subresource::Whole,
    }
}

/// Sets the renewal time of the Lease of the server `own`, and the digest of its signing keys. Creates the Lease if it
/// does not exist.
async fn renew_lease(registry: &Registry, own: &ServerRegistration, now: Timestamp) -> Result<(), ApiError> {
    let target = lease_target(&lease_name(&own.id));
    let renewed_at = format!("{now:.6}");
    let signing_keys = registry.access.tokens.keys().digest();
    let update = |stored: &Value| {
        let mut new = stored.clone();
        new["spec"]["renewTime"] = json!(renewed_at);
        new["metadata"]["annotations"][ANNOTATION_SERVER_SIGNING_KEYS] = json!(signing_keys);
        Ok(new)
    };
    match registry.update(&RequestContext::for_server("update", now), &target, update).await {
        Err(error) if error.is_not_found() => {}
        done => return done.map(drop),
    }
    let mut annotations = json!({
        (ANNOTATION_SERVER_VERSION): env!("CARGO_PKG_VERSION"),
        (ANNOTATION_SERVER_FEATURE_LEVEL): own.feature_level.to_string(),
        (ANNOTATION_SERVER_SIGNING_KEYS): signing_keys,
    });
    if let Some(endpoint) = own.endpoint {
        annotations[ANNOTATION_SERVER_ENDPOINT] = json!(endpoint.to_string());
    }
    let lease = json!({
        "metadata": {
            "name": target.name,
            "labels": {(LABEL_SERVER_IDENTITY): "muster-server"},
            "annotations": annotations,
        },
        "spec": {
            "holderIdentity": own.id,
            "leaseDurationSeconds": LEASE_DURATION.as_secs(),
            "acquireTime": renewed_at,
            "renewTime": renewed_at,
        },
    });
    let context = RequestContext::for_server("create", now);
    registry.create(&context, target.kind, Some(LEASE_NAMESPACE), lease).await.map(drop)
}

/// Deletes the Lease with this name, if it has the resourceVersion `version`. If `version` is `None`, deletes any
/// version of the Lease. A failure is only logged, because other servers delete the Lease after `LEASE_RETENTION`.
async fn delete_lease(registry: &Registry, name: &str, version: Option<String>) {
    let context = RequestContext::for_server("delete", Timestamp::now());
    let options = DeleteOptions { resource_version: version, ..DeleteOptions::default() };
    match registry.delete(&context, &lease_target(name), &options).await {
        Err(error) if !error.is_not_found_or_conflict() => {
            tracing::warn!(name, status = %error.status(), "cannot delete the Lease of a server");
        }
        _ => {}
    }
}

/// Returns the prefix of the store keys of the Leases of all API servers.
pub(crate) fn lease_store_key_prefix() -> String {
    let kind = Kind::builtin("coordination.k8s.io", "v1", "leases");
    kind.store_key(Some(LEASE_NAMESPACE), LEASE_NAME_PREFIX)
}

/// The stored Lease of an API server, parsed.
pub(crate) struct ServerLease {
    pub(crate) name: String,
    resource_version: String,
    pub(crate) endpoint: Option<SocketAddr>,
    /// The highest feature level that the server supports.
    feature_level: u32,
    /// The digest of the signing keys that the server uses. `None` for a version of Muster that does not publish it.
    pub(crate) signing_keys: Option<String>,
}

impl ServerLease {
    /// Parses the JSON of a stored Lease of an API server.
    pub(crate) fn from_stored(lease: &Value) -> Self {
        let annotation = |name: &str| lease["metadata"]["annotations"][name].as_str();
        Self {
            name: str_at(lease, "metadata.name").to_owned(),
            resource_version: str_at(lease, "metadata.resourceVersion").to_owned(),
            endpoint: annotation(ANNOTATION_SERVER_ENDPOINT).and_then(|it| it.parse().ok()),
            // A server without the annotation has level 1.
            feature_level: annotation(ANNOTATION_SERVER_FEATURE_LEVEL)
                .and_then(|it| it.parse().ok())
                .unwrap_or(1),
            signing_keys: annotation(ANNOTATION_SERVER_SIGNING_KEYS).map(str::to_owned),
        }
    }
}

/// Returns the stored Leases of all API servers.
fn list_leases(registry: &Registry) -> Vec<ServerLease> {
    let kind = Kind::builtin("coordination.k8s.io", "v1", "leases");
    let (leases, _) = registry.storage.list(kind, Some(LEASE_NAMESPACE), &ObjectSelector::default());
    let leases = leases.iter().map(|it| unstructured::parse_stored(it));
    let of_servers = leases.filter(|it| str_at(it, "metadata.name").starts_with(LEASE_NAME_PREFIX));
    of_servers.map(|it| ServerLease::from_stored(&it)).collect()
}

/// The Leases of all servers by name, each with the time at which this server first saw its latest renewal.
///
/// Rule: a server counts as dead when its Lease has not been renewed for 15 seconds. Each server measures this time
/// with its own clock. The clocks of two servers are never compared.
#[derive(Debug, Default)]
pub(crate) struct ObservedServers(BTreeMap<String, ObservedServer>);

/// The last observed state of the Lease of a server, and whether the server counts as live.
#[derive(Debug)]
struct ObservedServer {
    resource_version: String,
    endpoint: Option<SocketAddr>,
    feature_level: u32,
    /// Time at which this server first saw the Lease with this resourceVersion.
    renewed_at: Instant,
    is_live: bool,
}

impl ObservedServers {
    /// Records the stored Leases. Returns the name and resourceVersion of each Lease that has not been renewed for
    /// `LEASE_RETENTION`, so that the caller deletes it.
    pub(crate) fn observe(&mut self, leases: Vec<ServerLease>, now: Instant) -> Vec<(String, String)> {
        let names: BTreeSet<String> = leases.iter().map(|it| it.name.clone()).collect();
        self.0.retain(|name, _| names.contains(name));
        for ServerLease { name, resource_version, endpoint, feature_level, signing_keys: _ } in leases {
            let is_same = |it: &ObservedServer| it.resource_version == resource_version;
            let renewed_at = self.0.get(&name).filter(|it| is_same(it)).map_or(now, |it| it.renewed_at);
            let is_live = now - renewed_at < LEASE_DURATION;
            let observed = ObservedServer { resource_version, endpoint, feature_level, renewed_at, is_live };
            self.0.insert(name, observed);
        }
        let expired = self.0.iter().filter(|(_, it)| LEASE_RETENTION <= now - it.renewed_at);
        expired.map(|(name, it)| (name.clone(), it.resource_version.clone())).collect()
    }

    /// Counts all Leases as renewed at `now`. Called when this process cannot use the store, because the servers may then
    /// be unable to renew their Leases.
    pub(crate) fn mark_all_renewed(&mut self, now: Instant) {
        self.0.values_mut().for_each(|it| it.renewed_at = now);
    }

    /// Returns the lowest feature level of the server `own` and of all servers that have a Lease, live or not.
    fn lowest_feature_level(&self, own: &ServerRegistration) -> u32 {
        self.0.values().map(|it| it.feature_level).fold(own.feature_level, u32::min)
    }

    /// Returns the names of the Leases of the live servers.
    pub(crate) fn live_lease_names(&self) -> BTreeSet<String> {
        self.0.iter().filter(|(_, it)| it.is_live).map(|(name, _)| name.clone()).collect()
    }

    /// Returns the addresses at which other machines reach the live servers.
    fn live_endpoints(&self) -> BTreeSet<SocketAddr> {
        self.0.values().filter(|it| it.is_live).filter_map(|it| it.endpoint).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signing_keys::SigningKeys;

    fn lease(name: &str, version: &str) -> ServerLease {
        let endpoint = format!("10.0.0.{}:6443", name.len()).parse().ok();
        ServerLease {
            name: name.to_owned(),
            resource_version: version.to_owned(),
            endpoint,
            feature_level: 1,
            signing_keys: None,
        }
    }

    #[test]
    fn a_server_is_live_while_its_lease_is_renewed() {
        let start = Instant::now();
        let mut servers = ObservedServers::default();
        let mut observe = |seconds: u64, leases: Vec<ServerLease>| {
            let expired = servers.observe(leases, start + Duration::from_secs(seconds));
            let live: Vec<_> = servers.live_endpoints().iter().map(ToString::to_string).collect();
            let expired: Vec<_> =
                expired.into_iter().map(|(name, version)| format!("{name}@{version}")).collect();
            (live, expired)
        };
        let none: Vec<String> = Vec::new();
        // A Lease whose renewals this server has not seen may be that of a live server.
        assert_eq!(
            observe(0, vec![lease("a", "1"), lease("bb", "2")]),
            (vec!["10.0.0.1:6443".to_owned(), "10.0.0.2:6443".to_owned()], none.clone())
        );
        assert_eq!(
            observe(14, vec![lease("a", "3"), lease("bb", "2")]).0,
            ["10.0.0.1:6443", "10.0.0.2:6443"]
        );
        assert_eq!(observe(15, vec![lease("a", "3"), lease("bb", "2")]).0, ["10.0.0.1:6443"]);
        // It was stopped, and goes on.
        assert_eq!(
            observe(20, vec![lease("a", "4"), lease("bb", "5")]).0,
            ["10.0.0.1:6443", "10.0.0.2:6443"]
        );
        // It stops in order, and deletes its Lease.
        assert_eq!(observe(21, vec![lease("bb", "5")]), (vec!["10.0.0.2:6443".to_owned()], none.clone()));
        assert_eq!(observe(139, vec![lease("bb", "5")]), (none.clone(), none.clone()));
        assert_eq!(observe(140, vec![lease("bb", "5")]), (none.clone(), vec!["bb@5".to_owned()]));
        // This server could not write either.
        servers.mark_all_renewed(start + Duration::from_secs(140));
        assert_eq!(servers.observe(vec![lease("bb", "5")], start + Duration::from_secs(150)), []);
        assert_eq!(servers.live_endpoints().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn servers_on_one_store_know_each_other_until_one_stops() {
        let registry = Arc::new(Registry::new(1_000));
        super::super::ensure_test_objects(&registry, Timestamp::now()).await.unwrap();
        let start = |id: &str, address: &str| {
            let own =
                ServerRegistration { id: id.to_owned(), endpoint: address.parse().ok(), feature_level: 1 };
            let published = LiveServers::default();
            let endpoints = published.endpoints.subscribe();
            let preference = LeasePreference::new(&own, &published);
            let (shutting_down, stop) = (CancellationToken::new(), CancellationToken::new());
            let task =
                tokio::spawn(run(registry.clone(), own, published, shutting_down.clone(), stop.clone()));
            (endpoints, preference, shutting_down, stop, task)
        };
        let both: BTreeSet<SocketAddr> =
            ["10.0.0.1:6443", "10.0.0.2:6444"].map(|it| it.parse().unwrap()).into();
        let both = Some(both);
        let published_digests = || -> BTreeSet<_> {
            list_leases(&registry).into_iter().map(|it| it.signing_keys.unwrap()).collect()
        };
        let (mut first, first_preference, _shutting_down, _stop, _task) = start("a", "10.0.0.1:6443");
        let (mut second, second_preference, second_shutting_down, stop_second, second_task) =
            start("b", "10.0.0.2:6444");
        first.wait_for(|it| *it == both).await.unwrap();
        second.wait_for(|it| *it == both).await.unwrap();
        // Their Leases have the digest of the keys that they use.
        assert_eq!(published_digests(), [registry.access.tokens.keys().digest()].into());
        // Exactly one of them is preferred for each Lease, and each of them for some.
        let leases: Vec<String> = (0..20).map(|it| format!("muster-{it}")).collect();
        let of_first = leases.iter().filter(|it| first_preference.is_preferred(it)).count();
        let of_second = leases.iter().filter(|it| second_preference.is_preferred(it)).count();
        assert!(0 < of_first && 0 < of_second && of_first + of_second == 20, "{of_first} and {of_second}");
        second_shutting_down.cancel();
        first.wait_for(|it| it.as_ref().is_some_and(|it| it.len() == 1)).await.unwrap();
        assert!(leases.iter().all(|it| first_preference.is_preferred(it)));
        assert!(!second_task.is_finished(), "the server still serves");
        stop_second.cancel();
        second_task.await.unwrap();
        let leases = list_leases(&registry);
        assert_eq!(leases.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["apiserver-a"]);
        // The Lease follows the keys.
        let replaced = Arc::new(SigningKeys::generate().unwrap());
        registry.access.tokens.replace_keys(replaced.clone());
        assert_ne!(published_digests(), [replaced.digest()].into());
        // The paused clock may be ahead of the thread that commits.
        let mut rounds = 0;
        while published_digests() != [replaced.digest()].into() {
            rounds += 1;
            assert!(rounds < 1000, "the Lease keeps the digest of the old keys");
            tokio::time::sleep(RENEW_INTERVAL).await;
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
