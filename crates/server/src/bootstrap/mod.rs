//! Bootstrap objects: namespaces, priority classes, the Services `kubernetes` (with its endpoints) and `kube-dns`, and
//! in each namespace a service account and a ConfigMap with the CA certificate. They are created when the server
//! starts. All except the namespaces and priority classes are also recreated when they are deleted. A new namespace
//! gets its service account and ConfigMap when it is created.
//!
//! [`run`] recreates these objects. It also recalculates quota usage and reconciles the Secrets that contain service
//! account tokens (`token_secrets`), because it already reads every commit.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use muster_api::well_known::{
    LABEL_SERVICE_NAME, NAMESPACE_NODE_LEASE, NAMESPACE_SYSTEM, NODE_CRITICAL_PRIORITY,
    PRIORITY_CLASS_CLUSTER_CRITICAL, PRIORITY_CLASS_NODE_CRITICAL, SYSTEM_CRITICAL_PRIORITY,
};
use muster_store::{CommitEvent, KeyChange, Revision};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admission::{self, DNS_IP};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::machine_address::machine_address;
use crate::registry::{DeleteOptions, Registry};
use crate::request::{RequestContext, RequestTarget};
use crate::selector::ObjectSelector;
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, str_at};

/// The Service `kubernetes` and its endpoints.
mod kubernetes_service;
/// The Leases of the API servers that share a store.
pub(crate) mod server_leases;
/// Reconciles the Secrets that contain service account tokens.
mod token_secrets;

/// Namespaces that every cluster has.
pub(crate) const BOOTSTRAP_NAMESPACES: [&str; 4] =
    ["default", NAMESPACE_NODE_LEASE, "kube-public", NAMESPACE_SYSTEM];

/// Name of the service account that the server creates in every namespace.
const DEFAULT_ACCOUNT: &str = "default";
/// Name of the ConfigMap with the CA certificate that the server creates in every namespace.
const CA_CONFIG_MAP: &str = "kube-root-ca.crt";

/// Group and plural name of EndpointSlices.
const ENDPOINT_SLICES: (&str, &str) = ("discovery.k8s.io", "endpointslices");

/// Time for which changes are collected before quota usage is recalculated. A recalculation reads all objects of a
/// namespace, so it is not done for each change.
const QUOTA_BATCH_DELAY: Duration = Duration::from_millis(50);

/// Addresses and CA certificate of the server, which some bootstrap objects contain.
#[derive(Debug, Clone)]
pub(crate) struct ServerIdentity {
    /// Address that the server listens on.
    pub(crate) listen_address: SocketAddr,
    /// Address at which nodes on this machine reach the server, if they run in separate network namespaces.
    pub(crate) node_facing_address: Option<IpAddr>,
    /// The CA certificate in PEM.
    pub(crate) ca_pem: String,
}

impl ServerIdentity {
    /// Returns the address at which nodes and other machines reach the server: the node-facing address if there is one,
    /// otherwise the listen address. An unspecified listen address such as `0.0.0.0` stands for the address of this
    /// machine. Without a node-facing address, returns `None` if the listen address is a loopback address, or if it is
    /// unspecified and this machine has no route to other machines.
    pub(crate) fn endpoint(&self) -> Option<SocketAddr> {
        let listens_on = self.listen_address.ip();
        let reachable = match listens_on.is_unspecified() {
            true => machine_address(),
            false => Some(listens_on).filter(|it| !it.is_loopback()),
        };
        let address = self.node_facing_address.or(reachable)?;
        Some(SocketAddr::new(address, self.listen_address.port()))
    }
}

#[cfg(test)]
impl ServerIdentity {
    /// Returns the identity of a test server.
    pub(crate) fn for_test() -> Self {
        Self {
            listen_address: SocketAddr::from(([10, 0, 0, 1], 6443)),
            node_facing_address: None,
            ca_pem: "a certificate".into(),
        }
    }
}

/// Creates the missing bootstrap objects, and resets the server-owned fields of existing ones. If `kube-dns` cannot be
/// created, this is only logged.
///
/// Rule: the bootstrap objects are created if they are missing. If none is missing and no server-owned field was
/// changed, nothing is written.
///
/// `endpoints` are the addresses of the API servers for the endpoints of the Service `kubernetes`. If it is `None`,
/// these endpoints are not changed.
pub(crate) async fn ensure_bootstrap_objects(
    registry: &Registry,
    server: &ServerIdentity,
    endpoints: Option<&BTreeSet<SocketAddr>>,
    now: Timestamp,
) -> Result<(), ApiError> {
    let bootstrap = BootstrapWriter { registry, server, now };
    let cluster_objects =
        BOOTSTRAP_NAMESPACES.map(|name| (Kind::namespace_kind(), None, json!({"metadata": {"name": name}})));
    futures::future::try_join_all(
        cluster_objects.into_iter().chain(priority_classes()).map(|it| bootstrap.ensure_object(it)),
    )
    .await?;
    let (namespaces, _) = registry.storage.list(Kind::namespace_kind(), None, &ObjectSelector::default());
    let names: Vec<_> = namespaces
        .iter()
        .map(|it| str_at(&unstructured::parse_stored(it), "metadata.name").to_owned())
        .collect();
    let namespace_objects =
        futures::future::try_join_all(names.iter().map(|it| bootstrap.ensure_namespace_objects(it)));
    let port = server.listen_address.port();
    let endpoints = endpoints.into_iter().flat_map(|it| kubernetes_service::endpoints(it, port));
    let own_services = [kubernetes_service::service(port)].into_iter().chain(endpoints);
    let own_services = futures::future::try_join_all(own_services.map(|it| bootstrap.ensure_object(it)));
    futures::future::try_join(namespace_objects, own_services).await?;
    bootstrap.ensure_dns_service().await;
    Ok(())
}

/// Creates the Services `kubernetes` and `kube-dns` if they are missing. Resets the endpoints of `kubernetes` to the
/// API servers in `endpoints`, unless `endpoints` is `None`. Logs a warning for each write that fails. Returns `false`
/// if a write fails, except the write of `kube-dns`.
async fn ensure_cluster_services(
    bootstrap: &BootstrapWriter<'_>,
    endpoints: Option<&BTreeSet<SocketAddr>>,
) -> bool {
    let port = bootstrap.server.listen_address.port();
    let mut is_done = bootstrap.ensure_or_warn(kubernetes_service::service(port)).await;
    if let Some(endpoints) = endpoints {
        let endpoints = kubernetes_service::endpoints(endpoints, port);
        // The address type of an EndpointSlice cannot be updated.
        is_done &= bootstrap.delete_endpoint_slices(|it| has_address_type_conflict(it, &endpoints)).await;
        for object in &endpoints {
            is_done &= bootstrap.ensure_or_warn(object.clone()).await;
        }
        // Slices are left behind when the ports of the API servers change. They are deleted last, so that a server is
        // always listed.
        is_done &= bootstrap.delete_endpoint_slices(|it| !has_expected_name(it, &endpoints)).await;
    }
    bootstrap.ensure_dns_service().await;
    is_done
}

/// Whether an EndpointSlice in `expected` has the same name as the EndpointSlice `object`, but a different address
/// type.
fn has_address_type_conflict(object: &Value, expected: &[BootstrapObject]) -> bool {
    let is_other = |it: &Value| {
        it["metadata"]["name"] == object["metadata"]["name"] && it["addressType"] != object["addressType"]
    };
    expected.iter().filter(|(kind, ..)| kind.resource() == ENDPOINT_SLICES).any(|(_, _, it)| is_other(it))
}

/// Whether one of the `expected` objects has the same name as `object`.
fn has_expected_name(object: &Value, expected: &[BootstrapObject]) -> bool {
    expected.iter().any(|(_, _, it)| it["metadata"]["name"] == object["metadata"]["name"])
}

/// The addresses of the API servers that are the endpoints of the Service `kubernetes`. They can change if several
/// servers share the store.
#[derive(Debug, Clone)]
pub(crate) enum ApiEndpoints {
    /// The address of the only API server. Empty if other machines do not reach it.
    Fixed(BTreeSet<SocketAddr>),
    /// A channel with the addresses of all live API servers. Its value is `None` until they are known.
    Watched(watch::Receiver<Option<BTreeSet<SocketAddr>>>),
}

impl ApiEndpoints {
    /// Returns the current addresses, or `None` if they are not known yet.
    fn current(&mut self) -> Option<BTreeSet<SocketAddr>> {
        match self {
            Self::Fixed(endpoints) => Some(endpoints.clone()),
            Self::Watched(endpoints) => endpoints.borrow_and_update().clone(),
        }
    }

    /// Returns the addresses of [`Self::Fixed`], or `None` for [`Self::Watched`].
    pub(crate) fn fixed(&self) -> Option<&BTreeSet<SocketAddr>> {
        match self {
            Self::Fixed(endpoints) => Some(endpoints),
            Self::Watched(_) => None,
        }
    }

    /// Waits until the addresses change. Never returns for [`Self::Fixed`], or after the sender of the channel was
    /// dropped.
    async fn wait_for_change(&mut self) {
        if let Self::Watched(endpoints) = self
            && endpoints.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

/// Creates the bootstrap objects that most tests need: three namespaces and one service account, in four commits.
#[cfg(test)]
pub(crate) async fn ensure_test_objects(registry: &Registry, now: Timestamp) -> Result<(), ApiError> {
    let bootstrap = BootstrapWriter { registry, server: &ServerIdentity::for_test(), now };
    for name in ["default", NAMESPACE_NODE_LEASE, NAMESPACE_SYSTEM] {
        bootstrap.ensure_object((Kind::namespace_kind(), None, json!({"metadata": {"name": name}}))).await?;
    }
    let account = json!({"metadata": {"name": DEFAULT_ACCOUNT}});
    bootstrap.ensure_object((Kind::builtin("", "v1", "serviceaccounts"), Some("default"), account)).await
}

/// Recreates deleted bootstrap objects, creates the objects of new namespaces, updates the endpoints of the Service
/// `kubernetes`, recalculates quota usage and reconciles token Secrets, until `stop` is cancelled.
pub(crate) async fn run(
    registry: Arc<Registry>,
    server: ServerIdentity,
    mut endpoints: ApiEndpoints,
    stop: CancellationToken,
) {
    let mut commits = registry.storage.watch_revision();
    let mut synced = registry.storage.revision();
    // Changes before the start are unknown, so everything is checked first.
    let mut to_count: BTreeSet<String> = all_namespaces(&registry);
    let mut unchecked = to_count.clone();
    let mut tokens: BTreeSet<token_secrets::SecretName> =
        token_secrets::list_token_secrets(&registry, None).collect();
    let port = server.listen_address.port();
    let mut current_endpoints = endpoints.current();
    let mut are_endpoints_written = false;
    loop {
        let own_keys: Vec<String> = [kubernetes_service::service(port), dns_service()]
            .into_iter()
            .chain(current_endpoints.iter().flat_map(|it| kubernetes_service::endpoints(it, port)))
            .map(|(kind, namespace, it)| kind.store_key(namespace, str_at(&it, "metadata.name")))
            .collect();
        if to_count.is_empty() {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = commits.changed() => if changed.is_err() { return },
                () = endpoints.wait_for_change() => {}
            }
        } else {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(QUOTA_BATCH_DELAY) => {}
            }
        }
        commits.mark_unchanged();
        let mut is_service_deleted = true;
        let latest = endpoints.current();
        are_endpoints_written &= current_endpoints == latest;
        current_endpoints = latest;
        let (mut to_ensure, revision) = match registry.storage.events_since("", synced) {
            Ok((events, revision)) => {
                for event in &events {
                    tokens.extend(affected_token_secrets(&registry, event));
                }
                let is_own_deletion = |it: &Arc<CommitEvent>| {
                    matches!(it.change, KeyChange::Delete { .. })
                        && own_keys.iter().any(|own| **own == *it.key)
                };
                is_service_deleted = events.iter().any(is_own_deletion);
                (affected_namespaces(&registry, &events, &mut to_count), revision)
            }
            Err(_) => {
                to_count = all_namespaces(&registry);
                tokens = token_secrets::list_token_secrets(&registry, None).collect();
                (to_count.clone(), registry.storage.revision())
            }
        };
        synced = revision;
        to_ensure.append(&mut unchecked);
        if is_service_deleted || !are_endpoints_written {
            let bootstrap = BootstrapWriter { registry: &registry, server: &server, now: Timestamp::now() };
            are_endpoints_written = ensure_cluster_services(&bootstrap, current_endpoints.as_ref()).await;
        }
        let bootstrap = BootstrapWriter { registry: &registry, server: &server, now: Timestamp::now() };
        for namespace in to_ensure {
            if let Err(error) = bootstrap.ensure_namespace_objects(&namespace).await {
                tracing::warn!(namespace, status = %error.status(), "cannot create the service account or CA ConfigMap of a namespace");
            }
        }
        for secret in std::mem::take(&mut tokens) {
            if let Err(error) = token_secrets::reconcile(&registry, &server, &secret, bootstrap.now).await {
                let (namespace, name) = secret;
                tracing::warn!(namespace, name, status = %error.status(), "cannot reconcile a Secret with a service account token");
            }
        }
        let mut retry = BTreeSet::new();
        for namespace in std::mem::take(&mut to_count) {
            if !admission::recalculate_quotas(&registry.admission, &*registry, &namespace, bootstrap.now)
                .await
            {
                retry.insert(namespace);
            }
        }
        to_count = retry;
    }
}

/// Creates bootstrap objects, and resets their server-owned fields. Also deletes those EndpointSlices of the Service
/// `kubernetes` that are no longer needed, or whose address type must change.
struct BootstrapWriter<'a> {
    registry: &'a Registry,
    server: &'a ServerIdentity,
    now: Timestamp,
}

/// Kind, namespace and content of a bootstrap object.
type BootstrapObject = (&'static Kind, Option<&'static str>, Value);

impl BootstrapWriter<'_> {
    /// Ensures that the namespace has the service account `default` and the ConfigMap `kube-root-ca.crt`. Does nothing
    /// if the namespace does not exist or is being deleted.
    async fn ensure_namespace_objects(&self, namespace: &str) -> Result<(), ApiError> {
        let Some(stored) = self.registry.storage.find(Kind::namespace_kind(), None, namespace) else {
            return Ok(());
        };
        if is_set(&unstructured::parse_stored(&stored)["metadata"]["deletionTimestamp"]) {
            return Ok(());
        }
        let account = json!({"metadata": {"name": DEFAULT_ACCOUNT}});
        let authority = json!({
            "metadata": {
                "name": CA_CONFIG_MAP,
                "annotations": {"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."},
            },
            "data": {"ca.crt": self.server.ca_pem},
        });
        futures::future::try_join(
            self.create_or_reset(Kind::builtin("", "v1", "serviceaccounts"), Some(namespace), account, &[]),
            self.create_or_reset(
                Kind::builtin("", "v1", "configmaps"),
                Some(namespace),
                authority,
                &["data"],
            ),
        )
        .await
        .map(drop)
    }

    /// Creates the Service `kube-dns` if it is missing. Logs a warning if this fails.
    async fn ensure_dns_service(&self) {
        // If another Service already has the cluster IP, that Service keeps it.
        if let Err(error) = self.ensure_object(dns_service()).await {
            tracing::warn!(status = %error.status(), "cannot create the Service kube-dns");
        }
    }

    /// Deletes the EndpointSlices of the Service `kubernetes` for which `should_delete` returns `true`. If this fails,
    /// logs a warning and returns `false`.
    async fn delete_endpoint_slices(&self, should_delete: impl Fn(&Value) -> bool) -> bool {
        let kind = Kind::builtin("discovery.k8s.io", "v1", "endpointslices");
        let namespace = Some(kubernetes_service::SERVICE_NAMESPACE);
        let (slices, _) = self.registry.storage.list(kind, namespace, &ObjectSelector::default());
        let mut is_done = true;
        for slice in slices.iter().map(|it| unstructured::parse_stored(it)) {
            let (name, labels) = (str_at(&slice, "metadata.name"), &slice["metadata"]["labels"]);
            if labels[LABEL_SERVICE_NAME] != kubernetes_service::SERVICE_NAME || !should_delete(&slice) {
                continue;
            }
            let target = RequestTarget {
                kind,
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
                subresource: Subresource::Whole,
            };
            let context = RequestContext::for_server("delete", self.now);
            if let Err(error) = self.registry.delete(&context, &target, &DeleteOptions::default()).await {
                tracing::warn!(name, status = %error.status(), "cannot delete an EndpointSlice of the API server");
                is_done = false;
            }
        }
        is_done
    }

    /// Like [`Self::ensure_object`]. If this fails, logs a warning and returns `false`.
    async fn ensure_or_warn(&self, object: BootstrapObject) -> bool {
        let ensured = self.ensure_object(object).await;
        if let Err(error) = &ensured {
            tracing::warn!(status = %error.status(), "cannot write the Service of the API server or its endpoints");
        }
        ensured.is_ok()
    }

    /// Creates the object if it is missing. Resets the endpoints of an existing Endpoints or EndpointSlice object.
    async fn ensure_object(&self, (kind, namespace, object): BootstrapObject) -> Result<(), ApiError> {
        let owned_fields: &[&str] = match kind.resource() {
            ("", "endpoints") => &["subsets"],
            ENDPOINT_SLICES => &["endpoints", "ports"],
            _ => &[],
        };
        self.create_or_reset(kind, namespace, object, owned_fields).await
    }

    /// Creates the object if it is missing. In an existing object, resets the fields in `owned_fields`, which the
    /// server owns.
    async fn create_or_reset(
        &self,
        kind: &'static Kind,
        namespace: Option<&str>,
        object: Value,
        owned_fields: &[&str],
    ) -> Result<(), ApiError> {
        let name = str_at(&object, "metadata.name").to_owned();
        let Some(stored) = self.registry.storage.find(kind, namespace, &name) else {
            let context = RequestContext::for_server("create", self.now);
            let done = self.registry.create(&context, kind, namespace, object).await;
            return match done {
                Err(it) if it.is_already_exists() => Ok(()),
                done => done.map(drop),
            };
        };
        if owned_fields.is_empty() || has_equal_fields(&stored, &object, owned_fields) {
            return Ok(());
        }
        let target = RequestTarget {
            kind,
            namespace: namespace.map(str::to_owned),
            name,
            subresource: Subresource::Whole,
        };
        let update = |stored: &Value| {
            let mut new = stored.clone();
            for field in owned_fields {
                new[field] = object[field].clone();
            }
            Ok(new)
        };
        self.registry.update(&RequestContext::for_server("update", self.now), &target, update).await.map(drop)
    }
}

/// Whether the stored object and `expected` have the same values in the fields `fields`.
fn has_equal_fields(stored: &Bytes, expected: &Value, fields: &[&str]) -> bool {
    let stored = unstructured::parse_stored(stored);
    fields.iter().all(|it| stored[it] == expected[it])
}

/// Returns the namespaces in which bootstrap objects may be missing or changed after the commits `events`. Adds to
/// `to_count` the namespaces whose quota usage must be recalculated.
fn affected_namespaces(
    registry: &Registry,
    events: &[Arc<CommitEvent>],
    to_count: &mut BTreeSet<String>,
) -> BTreeSet<String> {
    let mut to_ensure = BTreeSet::new();
    for event in events {
        let mut parts = event.key.splitn(3, '/');
        let (Some(resource), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        match (resource, name) {
            ("namespaces", name) => drop(to_ensure.insert(name.to_owned())),
            ("serviceaccounts", DEFAULT_ACCOUNT) | ("configmaps", CA_CONFIG_MAP) => {
                to_ensure.insert(namespace.to_owned());
            }
            _ => {}
        }
        if !namespace.is_empty()
            && !to_count.contains(namespace)
            && admission::has_quotas(&registry.admission, namespace)
            && requires_quota_recalculation(resource, event)
        {
            to_count.insert(namespace.to_owned());
        }
    }
    to_ensure
}

/// Returns the token Secrets to reconcile after an event. For a written token Secret, this is the Secret itself. For a
/// deleted service account, these are its token Secrets.
fn affected_token_secrets(registry: &Registry, event: &CommitEvent) -> Vec<token_secrets::SecretName> {
    let mut parts = event.key.splitn(3, '/');
    let (resource, namespace, name) = (parts.next(), parts.next(), parts.next());
    let (Some(namespace), Some(name)) = (namespace, name) else { return Vec::new() };
    match (resource, &event.change) {
        (Some("secrets"), KeyChange::Put { now, .. })
            if token_secrets::is_token_secret(&unstructured::parse_stored(&now.value)) =>
        {
            vec![(namespace.to_owned(), name.to_owned())]
        }
        (Some("serviceaccounts"), KeyChange::Delete { .. }) => {
            token_secrets::list_token_secrets(registry, Some((namespace, name))).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether quota usage must be recalculated after an event: the event may lower the usage, or it changes the limits of
/// a quota. Events that increase usage need no recalculation, because admission has charged them.
fn requires_quota_recalculation(resource: &str, event: &CommitEvent) -> bool {
    match &event.change {
        KeyChange::Delete { .. } => true,
        KeyChange::Put { now, .. } if resource == "resourcequotas" => {
            let quota = unstructured::parse_stored(&now.value);
            quota["spec"]["hard"] != quota["status"]["hard"]
        }
        KeyChange::Put { now, before: Some(before) } if matches!(resource, "pods" | "services") => {
            let (now, before) =
                (unstructured::parse_stored(&now.value), unstructured::parse_stored(&before.value));
            now["status"]["phase"] != before["status"]["phase"] || now["spec"] != before["spec"]
        }
        KeyChange::Put { .. } => false,
    }
}

fn all_namespaces(registry: &Registry) -> BTreeSet<String> {
    let (namespaces, _): (_, Revision) =
        registry.storage.list(Kind::namespace_kind(), None, &ObjectSelector::default());
    namespaces.iter().map(|it| str_at(&unstructured::parse_stored(it), "metadata.name").to_owned()).collect()
}

/// Returns the built-in PriorityClasses. Their values are above the maximum for user-defined PriorityClasses.
fn priority_classes() -> impl Iterator<Item = BootstrapObject> {
    let class = |name: &str, value: i32, description: &str| {
        let class = json!({
            "metadata": {"name": name},
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        });
        (Kind::builtin("scheduling.k8s.io", "v1", "priorityclasses"), None, class)
    };
    [
        class(
            PRIORITY_CLASS_CLUSTER_CRITICAL,
            SYSTEM_CRITICAL_PRIORITY,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        class(
            PRIORITY_CLASS_NODE_CRITICAL,
            NODE_CRITICAL_PRIORITY,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ]
    .into_iter()
}

/// Returns the Service `kube-dns`. It has no endpoints, because each node answers the DNS queries of its pods. Users
/// can add a selector to run DNS servers in pods.
fn dns_service() -> BootstrapObject {
    let port = |name: &str, protocol: &str| json!({"name": name, "protocol": protocol, "port": 53, "targetPort": 53});
    let service = json!({
        "metadata": {
            "name": "kube-dns",
            "labels": {"k8s-app": "kube-dns"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": DNS_IP.to_string(),
            "clusterIPs": [DNS_IP.to_string()],
            "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")],
            "sessionAffinity": "None",
        },
    });
    (Kind::builtin("", "v1", "services"), Some(NAMESPACE_SYSTEM), service)
}

#[cfg(test)]
mod tests;
