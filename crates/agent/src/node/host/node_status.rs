//! Registers the Node, renews its lease and reports its status.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use muster_api::backoff::{BackoffPolicy, RetryDelay};
use muster_api::interner::Interner;
use muster_api::resources::ResourceQuantities;
use muster_api::well_known::NAMESPACE_NODE_LEASE;
use muster_engine::controller::{EventRecord, KubeEvent};
use muster_engine::kubelet::node_status::{
    self, ContainerImage, HEARTBEAT_INTERVAL, NodeSystemInfo, Pressures, REPORT_INTERVAL,
};
use muster_engine::scheduler;
use muster_events::clock::now;
use muster_events::error_chain::format_error_chain;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::{measure, node_reference, reserved_resources};
use crate::node::NodeAgent;
use crate::runtime::{Runtime, RuntimeStatus};

/// Timeout of an API call. It is the heartbeat interval, because a late heartbeat has no use.
const CALL_TIMEOUT: Duration = HEARTBEAT_INTERVAL;

/// Timeout for the runtime to report its status, after which the runtime counts as not ready. Upstream:
/// `maxWaitForContainerRuntime`.
const RUNTIME_STATUS_TIMEOUT: Duration = Duration::from_secs(30);

/// Backoff after a failed API call.
const RETRY_BACKOFF: BackoffPolicy =
    BackoffPolicy { min: Duration::from_millis(100), max: Duration::from_secs(7) };
/// Minimum interval between two log messages about a persistent failure.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Interval at which the status is measured while the node is NotReady.
const NOT_READY_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Interval at which the list of images in the status is refreshed. The list is long and seldom changes.
const IMAGE_LIST_INTERVAL: Duration = Duration::from_secs(60);

/// State of the node that its components share: the Node object, the pressure conditions, and whether the node stops.
#[derive(Debug, Clone)]
pub struct NodeState {
    /// The Node object on the API server. `None` while it does not exist.
    node: watch::Sender<Option<Arc<core::Node>>>,
    /// The Node object on the API server, parsed for pod admission. `None` while it does not exist or cannot be parsed.
    scheduler_node: watch::Sender<Option<Arc<scheduler::Node>>>,
    /// The pressure conditions.
    pressures: watch::Sender<Pressures>,
    /// How the node stops. `None` while the node is not stopping.
    stop: watch::Sender<Option<NodeStop>>,
}

/// How a node stops: by shutdown or by suspension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeStop {
    /// The machine shuts down. The node's pods fail, so that their controllers can replace them.
    Shutdown,
    /// The node is suspended and restarts the same pods later, so the termination of their containers is not reported.
    Suspend,
}

impl Default for NodeState {
    fn default() -> Self {
        Self {
            node: watch::Sender::new(None),
            scheduler_node: watch::Sender::new(None),
            pressures: watch::Sender::new(Pressures::default()),
            stop: watch::Sender::new(None),
        }
    }
}

impl NodeState {
    /// Returns a receiver of the node's own Node object on the API server. The value is `None` until the Node is
    /// registered, and after it was deleted.
    pub fn watch_node(&self) -> watch::Receiver<Option<Arc<core::Node>>> {
        self.node.subscribe()
    }

    /// Returns the node's own Node object, parsed for pod admission. Returns `None` while the Node does not exist on
    /// the API server, or cannot be parsed.
    pub(crate) fn scheduler_node(&self) -> Option<Arc<scheduler::Node>> {
        self.scheduler_node.borrow().clone()
    }

    /// Returns a receiver of the node's pressure conditions.
    pub fn watch_pressures(&self) -> watch::Receiver<Pressures> {
        self.pressures.subscribe()
    }

    /// Whether the node stops because the machine shuts down.
    pub fn is_shutting_down(&self) -> bool {
        *self.stop.borrow() == Some(NodeStop::Shutdown)
    }

    /// Whether the node stops temporarily and restarts the same pods later.
    pub fn is_suspended(&self) -> bool {
        *self.stop.borrow() == Some(NodeStop::Suspend)
    }

    /// Sets the pressure conditions, and wakes the watchers if they changed.
    pub(super) fn set_pressures(&self, pressures: Pressures) {
        self.pressures.send_if_modified(|it| std::mem::replace(it, pressures) != pressures);
    }

    /// Records that the node stops, by shutdown or suspension. From then on, no new pod is admitted, and a node that
    /// shuts down reports NotReady.
    pub(super) fn begin_node_stop(&self, how: NodeStop) {
        self.stop.send_replace(Some(how));
    }
}

/// Registers the node, then keeps its lease and status up to date. Never returns.
pub(super) async fn run<R: Runtime>(node: &Arc<NodeAgent<R>>) {
    let manager = NodeStatusManager {
        nodes: Api::all(node.client.clone()),
        leases: Api::namespaced(node.client.clone(), NAMESPACE_NODE_LEASE),
        node,
        info: measure::read_node_info(),
        capacity: measure::node_capacity(&node.config.root_dir, node.config.pods_max),
    };
    manager.register().await;
    tokio::join!(manager.watch_own_node(), manager.renew_lease_loop(), manager.report_loop());
}

/// Registers the Node, renews its Lease and reports its status.
struct NodeStatusManager<'a, R> {
    nodes: Api<core::Node>,
    leases: Api<Lease>,
    node: &'a NodeAgent<R>,
    /// `nodeInfo` of the Node's status, without the name and version of the runtime.
    info: NodeSystemInfo,
    /// Capacity at the start of the agent. Later measurements are not used, because the reported size of a filesystem
    /// fluctuates.
    capacity: ResourceQuantities,
}

impl<R: Runtime> NodeStatusManager<'_, R> {
    /// Registers the Node and retries until registration succeeds. An existing Node keeps the fields that other clients
    /// have set.
    async fn register(&self) {
        let mut retry = FailureBackoff::new();
        loop {
            let node = self.measure_node(&mut RuntimeInfoCache::default()).await;
            let (mut object, events) =
                node_status::initial_node(&node, &self.node.config.labels, &self.node.config.taints, now());
            if let Some(range) = &self.node.config.pod_cidr {
                object["spec"]["podCIDR"] = range.as_str().into();
                object["spec"]["podCIDRs"] = vec![range.as_str()].into();
            }
            match self.try_register(&object).await {
                Ok(own) => {
                    tracing::info!(node = self.node.config.name, "registered the node");
                    self.store_node(own);
                    self.record_events(vec![KubeEvent::normal("Starting", "Starting kubelet.".to_owned())]);
                    self.record_events(events);
                    return;
                }
                Err(error) => {
                    if retry.should_log() {
                        let node = &self.node.config.name;
                        tracing::warn!(node, error, "cannot register the node, retrying");
                    }
                    tokio::time::sleep(retry.delay.next_delay()).await;
                }
            }
        }
    }

    /// Creates the Node `object`. If the Node exists, only updates its default labels. Returns the Node on the API
    /// server.
    async fn try_register(&self, object: &Value) -> Result<core::Node, String> {
        let name = &self.node.config.name;
        let node: core::Node = serde_json::from_value(object.clone()).map_err(|it| it.to_string())?;
        match with_timeout(self.nodes.create(&PostParams::default(), &node)).await {
            Ok(own) => return Ok(own),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(format_error_chain(&error)),
        }
        let own = with_timeout(self.nodes.get(name)).await.map_err(|it| format_error_chain(&it))?;
        let current = serde_json::to_value(&own).map_err(|it| it.to_string())?;
        match node_status::default_label_patch(object, &current) {
            None => Ok(own),
            Some(patch) => {
                with_timeout(self.nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)))
                    .await
                    .map_err(|it| format_error_chain(&it))
            }
        }
    }

    /// Watches the node's own Node object on the API server, and stores it in [`NodeState`]. Never returns.
    async fn watch_own_node(&self) {
        let one = watcher::Config::default().fields(&format!("metadata.name={}", self.node.config.name));
        let mut events = pin!(watcher(self.nodes.clone(), one).default_backoff());
        loop {
            match events.try_next().await {
                Ok(Some(watcher::Event::Apply(own) | watcher::Event::InitApply(own))) => self.store_node(own),
                Ok(Some(watcher::Event::Delete(_))) => {
                    tracing::warn!(
                        node = self.node.config.name,
                        "the Node was deleted; restart the agent to register it again"
                    );
                    self.node.state.scheduler_node.send_replace(None);
                    self.node.state.node.send_replace(None);
                }
                Ok(Some(watcher::Event::Init | watcher::Event::InitDone)) => {}
                // The watcher backs off and reconnects.
                Err(error) => {
                    tracing::debug!(node = self.node.config.name, %error, "the watch of the node's own object failed")
                }
                Ok(None) => return,
            }
        }
    }

    /// Stores the Node object in [`NodeState`], unless it is older than the stored object. A watch event may arrive
    /// after the response to a later write. Records an Event if the Node was cordoned or uncordoned.
    fn store_node(&self, own: core::Node) {
        let version =
            |it: &core::Node| it.resource_version().and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
        let is_cordoned = |it: &core::Node| it.spec.as_ref().and_then(|it| it.unschedulable).unwrap_or(false);
        let mut cordon_event = None;
        self.node.state.node.send_if_modified(|it| {
            let is_newer = it.as_ref().is_none_or(|it| it.uid() != own.uid() || version(it) < version(&own));
            if is_newer {
                let before = it.as_deref().filter(|it| it.uid() == own.uid()).map(is_cordoned);
                let name = &self.node.config.name;
                cordon_event =
                    before.and_then(|before| node_status::schedulable_event(name, before, is_cordoned(&own)));
                let facts = serde_json::to_vec(&own).ok();
                let facts = facts.and_then(|it| scheduler::decode_node(&it, &mut Interner::default()).ok());
                self.node.state.scheduler_node.send_replace(facts.map(Arc::new));
                *it = Some(Arc::new(own));
            }
            is_newer
        });
        self.record_events(cordon_event.into_iter().collect());
    }

    /// Renews the Lease periodically while the Node exists. Never returns.
    async fn renew_lease_loop(&self) {
        let mut own = self.node.state.watch_node();
        let mut retry = FailureBackoff::new();
        loop {
            let Some(uid) = own.borrow_and_update().as_ref().map(|it| it.uid()) else {
                if own.changed().await.is_err() {
                    return;
                }
                continue;
            };
            match self.renew_lease(uid.as_deref()).await {
                Ok(()) => {
                    retry = FailureBackoff::new();
                    sleep(HEARTBEAT_INTERVAL).await;
                }
                Err(error) => {
                    if retry.should_log() {
                        let error = format_error_chain(&error);
                        tracing::warn!(node = self.node.config.name, error, "cannot renew the node's lease");
                    }
                    tokio::time::sleep(retry.delay.next_delay()).await;
                }
            }
        }
    }

    /// Renews or creates the Lease of the node. `uid` is the UID of the Node, which owns the Lease.
    async fn renew_lease(&self, uid: Option<&str>) -> kube::Result<()> {
        let name = &self.node.config.name;
        let lease = node_status::node_lease(name, uid.map(Into::into).as_ref(), now());
        let patch = Patch::Merge(node_status::lease_renewal_patch(&lease));
        match with_timeout(self.leases.patch_metadata(name, &PatchParams::default(), &patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let lease: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
                with_timeout(self.leases.create(&PostParams::default(), &lease)).await.map(drop)
            }
            renewed => renewed.map(drop),
        }
    }

    /// Measures the node's status periodically, and also when the Node object or the pressure conditions change or the
    /// node begins to stop. Reports the status if it has changed, or if the last report is [`REPORT_INTERVAL`] old.
    /// Never returns.
    async fn report_loop(&self) {
        let mut own = self.node.state.watch_node();
        let mut pressures = self.node.state.watch_pressures();
        let mut ending = self.node.state.stop.subscribe();
        let mut images = RuntimeInfoCache::default();
        let mut reported: Option<Instant> = None;
        let mut retry = FailureBackoff::new();
        loop {
            own.mark_unchanged();
            pressures.mark_unchanged();
            ending.mark_unchanged();
            let node = self.measure_node(&mut images).await;
            let current = own.borrow().clone();
            if let Some(current) = current {
                let current = serde_json::to_value(&current.status).unwrap_or_default();
                let (status, events) = node_status::status_patch(&node, &current, now());
                let is_due = reported.is_none_or(|it| REPORT_INTERVAL <= it.elapsed());
                if is_due || node_status::has_changed(&status, &current) {
                    let patch = Patch::Strategic(json!({"status": status}));
                    let params = PatchParams::default();
                    match with_timeout(self.nodes.patch_status(&self.node.config.name, &params, &patch)).await
                    {
                        Ok(own) => {
                            reported = Some(Instant::now());
                            retry = FailureBackoff::new();
                            self.store_node(own);
                            self.record_events(events);
                        }
                        Err(error) => {
                            if retry.should_log() {
                                let (node, error) = (&self.node.config.name, format_error_chain(&error));
                                tracing::warn!(node, error, "cannot report the node's status");
                            }
                            tokio::time::sleep(retry.delay.next_delay()).await;
                            continue;
                        }
                    }
                }
            }
            let pause =
                if node.not_ready_reasons.is_empty() { HEARTBEAT_INTERVAL } else { NOT_READY_CHECK_INTERVAL };
            tokio::select! {
                () = sleep(pause) => {}
                // Another client may have changed the status, or deleted the Node.
                _ = own.changed() => {}
                _ = pressures.changed() => {}
                _ = ending.changed() => {}
            }
        }
    }

    /// Measures the state of the node, from which the engine computes the Node's status.
    async fn measure_node(&self, images: &mut RuntimeInfoCache) -> node_status::Node {
        let config = &self.node.config;
        let mut not_ready_reasons = Vec::new();
        let mut handlers = Vec::new();
        match runtime_status(&*self.node.runtime, RUNTIME_STATUS_TIMEOUT).await {
            Ok(status) => {
                not_ready_reasons
                    .extend(status.not_ready_reason.map(|it| format!("container runtime not ready: {it}")));
                not_ready_reasons.extend(
                    status
                        .network_not_ready_reason
                        .map(|it| format!("container runtime network not ready: {it}")),
                );
                handlers = status.handlers.unwrap_or_default();
                images.refresh(&*self.node.runtime).await;
            }
            Err(error) => {
                tracing::debug!(node = config.name, %error, "the runtime does not respond");
                not_ready_reasons.push("container runtime is down".to_owned());
                // The runtime may be another one when it is back.
                images.runtime.clear();
            }
        }
        not_ready_reasons.extend(self.node.membership.not_ready_reason());
        if self.node.state.is_shutting_down() {
            not_ready_reasons.push("node is shutting down".to_owned());
        }
        let capacity = self.capacity.clone();
        let missing: Vec<&str> = ["cpu", "memory", "pods", "ephemeral-storage"]
            .into_iter()
            .filter(|it| !capacity.contains_key(*it))
            .collect();
        if !missing.is_empty() {
            not_ready_reasons.push(format!("missing node capacity for resources: {}", missing.join(", ")));
        }
        let reserved = reserved_resources(config, &capacity);
        let info = NodeSystemInfo { runtime: images.runtime.clone(), ..self.info.clone() };
        node_status::Node {
            name: config.name.clone(),
            arch: crate::architecture().to_owned(),
            addresses: vec![config.address.to_string()],
            port: config.port,
            capacity,
            reserved,
            info,
            images: images.all.clone(),
            handlers,
            pressures: *self.node.state.pressures.borrow(),
            not_ready_reasons,
        }
    }

    /// Records Kubernetes Events about the node.
    fn record_events(&self, events: Vec<KubeEvent>) {
        for event in events {
            self.node.recorder.record(EventRecord { about: node_reference(&self.node.config.name), event });
        }
    }
}

/// Cached list of the runtime's images, and cached name and version of the runtime.
#[derive(Default)]
struct RuntimeInfoCache {
    /// When the images were last listed, or `None` if they were never listed.
    listed_at: Option<Instant>,
    /// The images, in the form of the Node's status.
    all: Vec<ContainerImage>,
    /// Name and version of the runtime, for example `containerd://1.6.20`. Empty while they are unknown.
    runtime: String,
}

impl RuntimeInfoCache {
    /// Lists the images if the list is older than [`IMAGE_LIST_INTERVAL`], and reads the name and version of the
    /// runtime if they are unknown.
    async fn refresh<R: Runtime>(&mut self, runtime: &R) {
        if self.runtime.is_empty()
            && let Ok(version) = runtime.version().await
        {
            self.runtime = format!("{}://{}", version.runtime_name, version.runtime_version);
        }
        if self.listed_at.is_some_and(|it| it.elapsed() < IMAGE_LIST_INTERVAL) {
            return;
        }
        if let Ok(images) = runtime.list_images().await {
            self.listed_at = Some(Instant::now());
            let image = |it: crate::runtime::v1::Image| ContainerImage {
                names: it.repo_digests.into_iter().chain(it.repo_tags).collect(),
                size_bytes: i64::try_from(it.size).unwrap_or(i64::MAX),
            };
            self.all = images.into_iter().map(image).collect();
        }
    }
}

/// Backoff and log throttling for consecutive failures.
struct FailureBackoff {
    delay: RetryDelay,
    /// When a failure was last logged, or `None` if none was logged yet.
    logged_at: Option<Instant>,
}

impl FailureBackoff {
    fn new() -> Self {
        Self { delay: RetryDelay::new(RETRY_BACKOFF), logged_at: None }
    }

    /// Whether to log this failure. The first failure is logged, then at most one per `LOG_INTERVAL`.
    fn should_log(&mut self) -> bool {
        let is_due = self.logged_at.is_none_or(|it| LOG_INTERVAL <= it.elapsed());
        if is_due {
            self.logged_at = Some(Instant::now());
        }
        is_due
    }
}

/// Returns the runtime's status, or an error if the runtime does not respond within the time `within`.
async fn runtime_status<R: Runtime>(runtime: &R, within: Duration) -> Result<RuntimeStatus, String> {
    match timeout(within, runtime.status()).await {
        Ok(status) => status.map_err(|it| it.to_string()),
        Err(_) => Err(format!("no status within {} s", within.as_secs())),
    }
}

/// Awaits an API call. Returns an error if it takes longer than [`CALL_TIMEOUT`].
async fn with_timeout<T>(call: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    timeout(CALL_TIMEOUT, call).await.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_runtime_that_hangs_is_down() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("silent.sock");
        // It accepts connections and does not respond.
        let silent = tokio::net::UnixListener::bind(&path).unwrap();
        let runtime = crate::runtime::CriClient::connect_lazy(&path);
        let said = runtime_status(&runtime, Duration::from_millis(10)).await;
        drop(silent);
        assert_eq!(said, Err("no status within 0 s".to_owned()));
    }
}
