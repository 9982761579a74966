//! Objects that are always there: made when the server starts, if they are missing, and made again when they go. What a
//! namespace uses of its quotas is kept here too, and so are the secrets with tokens of service accounts, for they are
//! woken by the same changes.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use muster_store::{Change, Event, Revision};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::admission::{self, DNS_ADDRESS, SERVER_ADDRESS};
use crate::error::ApiError;
use crate::kinds::{KINDS, Kind};
use crate::registry::Registry;
use crate::request::{Context, Target};
use crate::selector::Selector;
use crate::subresource::Subresource;
use crate::unstructured::{self, is_set, str_at};

mod token_secrets;

pub(crate) const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

const ACCOUNT: &str = "default";
const AUTHORITY: &str = "kube-root-ca.crt";

/// How long changes are gathered before quotas are counted anew: counting reads all that a namespace holds.
const GATHER: Duration = Duration::from_millis(50);

/// What the bootstrap objects say of the server.
#[derive(Debug, Clone)]
pub(crate) struct ServerIdentity {
    /// Where clients inside the cluster find it.
    pub(crate) address: SocketAddr,
    /// Where nodes on this machine find it, which have a network of their own.
    pub(crate) nodes: Option<IpAddr>,
    /// The certificate of its authority.
    pub(crate) ca_pem: String,
}

#[cfg(test)]
impl ServerIdentity {
    pub(crate) fn of_test() -> Self {
        Self { address: SocketAddr::from(([10, 0, 0, 1], 6443)), nodes: None, ca_pem: "a certificate".into() }
    }
}

/// Rule: what every cluster and every namespace has is made if it is missing. If nothing is, nothing is written.
pub(crate) async fn make(
    registry: &Registry,
    server: &ServerIdentity,
    now: Timestamp,
) -> Result<(), ApiError> {
    let bootstrap = Bootstrap { registry, server, now };
    let first = NAMESPACES.map(|name| (Kind::namespace(), None, json!({"metadata": {"name": name}})));
    futures::future::try_join_all(first.into_iter().chain(classes()).map(|it| bootstrap.ensure(it))).await?;
    let (namespaces, _) = registry.storage.list(Kind::namespace(), None, &Selector::default());
    let names: Vec<_> =
        namespaces.iter().map(|it| str_at(&unstructured::parse(it), "metadata.name").to_owned()).collect();
    let furnished = futures::future::try_join_all(names.iter().map(|it| bootstrap.furnish(it)));
    let own = futures::future::try_join_all(own(server).map(|it| bootstrap.ensure(it)));
    futures::future::try_join(furnished, own).await?;
    bootstrap.ensure_dns().await;
    Ok(())
}

/// The Services of the server and of DNS, again.
async fn make_own(bootstrap: &Bootstrap<'_>) {
    for wanted in own(bootstrap.server) {
        if let Err(refusal) = bootstrap.ensure(wanted).await {
            tracing::warn!(status = %refusal.status(), "create the Service of the API server again");
        }
    }
    bootstrap.ensure_dns().await;
}

/// Some namespaces, and in the first an account for pods: all that most tests need, in four commits.
#[cfg(test)]
pub(crate) async fn make_bare(registry: &Registry, now: Timestamp) -> Result<(), ApiError> {
    let bootstrap = Bootstrap { registry, server: &ServerIdentity::of_test(), now };
    for name in ["default", "kube-node-lease", "kube-system"] {
        bootstrap.ensure((Kind::namespace(), None, json!({"metadata": {"name": name}}))).await?;
    }
    let account = json!({"metadata": {"name": ACCOUNT}});
    bootstrap.ensure((kind("", "serviceaccounts"), Some("default"), account)).await
}

/// Makes again what goes, until `stop`.
pub(crate) async fn keep(registry: Arc<Registry>, server: ServerIdentity, stop: CancellationToken) {
    let mut commits = registry.storage.commits();
    let mut seen = registry.storage.revision();
    // What happened while no one looked is not known, so everything is looked at once.
    let mut to_count: BTreeSet<String> = all_namespaces(&registry);
    let mut unseen = to_count.clone();
    let mut tokens: BTreeSet<token_secrets::SecretName> = token_secrets::all(&registry, None).collect();
    let own_keys: Vec<String> = own(&server)
        .chain([dns()])
        .map(|(kind, namespace, it)| kind.key(namespace, str_at(&it, "metadata.name")))
        .collect();
    loop {
        if to_count.is_empty() {
            tokio::select! {
                () = stop.cancelled() => return,
                changed = commits.changed() => if changed.is_err() { return },
                () = registry.admission.charges.unspent() => {}
            }
        } else {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(GATHER) => {}
            }
        }
        commits.mark_unchanged();
        let mut is_own_gone = true;
        let (mut to_furnish, revision) = match registry.storage.since("", seen) {
            Ok((events, revision)) => {
                for event in &events {
                    tokens.extend(with_tokens(&registry, event));
                }
                let is_gone = |it: &Arc<Event>| {
                    matches!(it.change, Change::Delete { .. }) && own_keys.iter().any(|own| **own == *it.key)
                };
                is_own_gone = events.iter().any(is_gone);
                (sort(&registry, &events, &mut to_count), revision)
            }
            Err(_) => {
                to_count = all_namespaces(&registry);
                tokens = token_secrets::all(&registry, None).collect();
                (to_count.clone(), registry.storage.revision())
            }
        };
        seen = revision;
        to_furnish.append(&mut unseen);
        if is_own_gone {
            make_own(&Bootstrap { registry: &registry, server: &server, now: Timestamp::now() }).await;
        }
        to_count.extend(registry.admission.charges.take_unspent());
        let bootstrap = Bootstrap { registry: &registry, server: &server, now: Timestamp::now() };
        for namespace in to_furnish {
            if let Err(refusal) = bootstrap.furnish(&namespace).await {
                tracing::warn!(namespace, status = %refusal.status(), "make what every namespace has");
            }
        }
        for place in std::mem::take(&mut tokens) {
            if let Err(refusal) = token_secrets::keep(&registry, &server, &place, bootstrap.now).await {
                let (namespace, name) = place;
                tracing::warn!(namespace, name, status = %refusal.status(), "keep the secret with a token");
            }
        }
        let mut left = BTreeSet::new();
        for namespace in std::mem::take(&mut to_count) {
            if !admission::count_quotas(&registry.admission, &*registry, &namespace, bootstrap.now).await {
                left.insert(namespace);
            }
        }
        to_count = left;
    }
}

struct Bootstrap<'a> {
    registry: &'a Registry,
    server: &'a ServerIdentity,
    now: Timestamp,
}

type BootstrapObject = (&'static Kind, Option<&'static str>, Value);

impl Bootstrap<'_> {
    /// What every namespace has: an account for its pods, and the certificate by which they know the server.
    async fn furnish(&self, namespace: &str) -> Result<(), ApiError> {
        let Some(stored) = self.registry.storage.peek(Kind::namespace(), None, namespace) else {
            return Ok(());
        };
        if is_set(&unstructured::parse(&stored)["metadata"]["deletionTimestamp"]) {
            return Ok(());
        }
        let account = json!({"metadata": {"name": ACCOUNT}});
        let authority = json!({
            "metadata": {
                "name": AUTHORITY,
                "annotations": {"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."},
            },
            "data": {"ca.crt": self.server.ca_pem},
        });
        futures::future::try_join(
            self.write(kind("", "serviceaccounts"), Some(namespace), account, &[]),
            self.write(kind("", "configmaps"), Some(namespace), authority, &["data"]),
        )
        .await
        .map(drop)
    }

    async fn ensure_dns(&self) {
        // Whoever took that address before there was anything at it keeps it.
        if let Err(refusal) = self.ensure(dns()).await {
            tracing::warn!(status = %refusal.status(), "make the Service for the names of the cluster");
        }
    }

    async fn ensure(&self, (kind, namespace, object): BootstrapObject) -> Result<(), ApiError> {
        let kept: &[&str] = match kind.plural {
            "endpoints" => &["subsets"],
            "endpointslices" => &["endpoints", "ports"],
            _ => &[],
        };
        self.write(kind, namespace, object, kept).await
    }

    /// Creates the object, or puts back those of its fields that are `kept` as we say.
    async fn write(
        &self,
        kind: &'static Kind,
        namespace: Option<&str>,
        object: Value,
        kept: &[&str],
    ) -> Result<(), ApiError> {
        let name = str_at(&object, "metadata.name").to_owned();
        let Some(stored) = self.registry.storage.peek(kind, namespace, &name) else {
            let context = Context::of_server("create", self.now);
            let done = self.registry.create(&context, kind, namespace, object).await;
            return match done {
                Err(it) if it.is_exists() => Ok(()),
                done => done.map(drop),
            };
        };
        if kept.is_empty() || is_kept(&stored, &object, kept) {
            return Ok(());
        }
        let target =
            Target { kind, namespace: namespace.map(str::to_owned), name, subresource: Subresource::Whole };
        let update = |stored: &Value| {
            let mut new = stored.clone();
            for field in kept {
                new[field] = object[field].clone();
            }
            Ok(new)
        };
        self.registry.update(&Context::of_server("update", self.now), &target, update).await.map(drop)
    }
}

fn is_kept(stored: &Bytes, wanted: &Value, kept: &[&str]) -> bool {
    let stored = unstructured::parse(stored);
    kept.iter().all(|it| stored[it] == wanted[it])
}

/// The namespaces that miss something after these events; those to count anew are added to `to_count`.
fn sort(registry: &Registry, events: &[Arc<Event>], to_count: &mut BTreeSet<String>) -> BTreeSet<String> {
    let mut to_furnish = BTreeSet::new();
    for event in events {
        let mut parts = event.key.splitn(3, '/');
        let (Some(resource), Some(namespace), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        match (resource, name) {
            ("namespaces", name) => drop(to_furnish.insert(name.to_owned())),
            ("serviceaccounts", ACCOUNT) | ("configmaps", AUTHORITY) => {
                to_furnish.insert(namespace.to_owned());
            }
            _ => {}
        }
        if !namespace.is_empty()
            && !to_count.contains(namespace)
            && admission::has_quotas(&registry.admission, namespace)
            && frees(resource, event)
        {
            to_count.insert(namespace.to_owned());
        }
    }
    to_furnish
}

/// The secrets with tokens that are to be looked at after the event: the one that it is about, or those of an account that
/// is gone.
fn with_tokens(registry: &Registry, event: &Event) -> Vec<token_secrets::SecretName> {
    let mut parts = event.key.splitn(3, '/');
    let (resource, namespace, name) = (parts.next(), parts.next(), parts.next());
    let (Some(namespace), Some(name)) = (namespace, name) else { return Vec::new() };
    match (resource, &event.change) {
        (Some("secrets"), Change::Put { now, .. })
            if token_secrets::is_token(&unstructured::parse(&now.value)) =>
        {
            vec![(namespace.to_owned(), name.to_owned())]
        }
        (Some("serviceaccounts"), Change::Delete { .. }) => {
            token_secrets::all(registry, Some((namespace, name))).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether less may be used after the event than before. What is new was charged when it came.
fn frees(resource: &str, event: &Event) -> bool {
    match &event.change {
        Change::Delete { .. } => true,
        Change::Put { now, .. } if resource == "resourcequotas" => {
            let quota = unstructured::parse(&now.value);
            quota["spec"]["hard"] != quota["status"]["hard"]
        }
        Change::Put { now, before: Some(before) } if matches!(resource, "pods" | "services") => {
            let (now, before) = (unstructured::parse(&now.value), unstructured::parse(&before.value));
            now["status"]["phase"] != before["status"]["phase"] || now["spec"] != before["spec"]
        }
        Change::Put { .. } => false,
    }
}

fn all_namespaces(registry: &Registry) -> BTreeSet<String> {
    let (namespaces, _): (_, Revision) = registry.storage.list(Kind::namespace(), None, &Selector::default());
    namespaces.iter().map(|it| str_at(&unstructured::parse(it), "metadata.name").to_owned()).collect()
}

/// The priorities that nothing of a user's can exceed.
fn classes() -> impl Iterator<Item = BootstrapObject> {
    let class = |name: &str, value: u32, description: &str| {
        let class = json!({
            "metadata": {"name": name},
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        });
        (kind("scheduling.k8s.io", "priorityclasses"), None, class)
    };
    [
        class(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        class(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ]
    .into_iter()
}

/// The server as a service that pods can find.
fn own(server: &ServerIdentity) -> impl Iterator<Item = BootstrapObject> {
    let port = server.address.port();
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": SERVER_ADDRESS.to_string(),
            "clusterIPs": [SERVER_ADDRESS.to_string()],
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
            "sessionAffinity": "None",
        },
    });
    let mut endpoints = json!({
        "metadata": {"name": "kubernetes", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
    });
    let mut slice = json!({
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        "endpoints": [],
    });
    if let Some(address) = server.nodes.or_else(|| reachable(server.address.ip())) {
        endpoints["subsets"] = json!([{
            "addresses": [{"ip": address.to_string()}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }]);
        slice["endpoints"] = json!([{"addresses": [address.to_string()], "conditions": {"ready": true}}]);
        if address.is_ipv6() {
            slice["addressType"] = json!("IPv6");
        }
    }
    let default = Some("default");
    [
        (kind("", "services"), default, service),
        (kind("", "endpoints"), default, endpoints),
        (kind("discovery.k8s.io", "endpointslices"), default, slice),
    ]
    .into_iter()
}

/// Where names of the cluster are asked for. Each node answers its own pods, so nothing stands behind it; a user who has a
/// selector put here runs DNS servers instead.
fn dns() -> BootstrapObject {
    let port = |name: &str, protocol: &str| json!({"name": name, "protocol": protocol, "port": 53, "targetPort": 53});
    let service = json!({
        "metadata": {
            "name": "kube-dns",
            "labels": {"k8s-app": "kube-dns"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": DNS_ADDRESS.to_string(),
            "clusterIPs": [DNS_ADDRESS.to_string()],
            "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")],
            "sessionAffinity": "None",
        },
    });
    (kind("", "services"), Some("kube-system"), service)
}

/// The address under which others reach the server: none if it listens to its own machine only.
fn reachable(listens_on: IpAddr) -> Option<IpAddr> {
    if !listens_on.is_unspecified() {
        return (!listens_on.is_loopback()).then_some(listens_on);
    }
    // Nothing is sent: the system only says from which address it would.
    let socket = UdpSocket::bind((listens_on, 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|it| !it.is_loopback() && !it.is_unspecified())
}

fn kind(group: &str, plural: &str) -> &'static Kind {
    let found = KINDS.iter().find(|it| it.group == group && it.plural == plural);
    found.expect("it is in the table")
}

#[cfg(test)]
mod tests;
