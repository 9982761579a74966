//! The node among others: its object, its heartbeat, and what it says of itself.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use muster_api::interner::Interner;
use muster_api::resources::ResourceQuantities;
use muster_engine::controller::EventRecord;
use muster_engine::daemonset::plan::Event;
use muster_engine::kubelet::node_status::{self, HEARTBEAT_EVERY, Image, Info, Pressures, REPORT_EVERY};
use muster_engine::scheduler;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::{measure, node_reference, reserved};
use crate::clock::now;
use crate::error_chain::chain;
use crate::node::Node;
use crate::runtime::{Runtime, Status};

/// A call that takes longer than a heartbeat is worth nothing.
const CALL_MAX: Duration = HEARTBEAT_EVERY;

/// A runtime that does not say how it is within this time is down. Upstream: `maxWaitForContainerRuntime`.
const RUNTIME_MAX: Duration = Duration::from_secs(30);

/// After a call that failed: twice as long each time.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(7);
/// A failure that goes on is logged this often.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Until it is ready, a node looks so often whether it is.
const UNREADY_EVERY: Duration = Duration::from_millis(500);

/// The names of images change seldom, and a list of them is long.
const IMAGES_EVERY: Duration = Duration::from_secs(60);

/// How the node stands, for all its parts.
#[derive(Debug, Clone)]
pub struct Standing {
    own: watch::Sender<Option<Arc<core::Node>>>,
    /// The same node, as admission reads it.
    facts: watch::Sender<Option<Arc<scheduler::Node>>>,
    pressures: watch::Sender<Pressures>,
    ending: watch::Sender<Option<End>>,
}

/// How a node ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The machine goes down: its pods fail, and who made them makes others elsewhere.
    Shutdown,
    /// The node stops for a while, and begins the same pods again when it is started: so nobody is told that they ended.
    Rest,
}

impl Default for Standing {
    fn default() -> Self {
        Self {
            own: watch::Sender::new(None),
            facts: watch::Sender::new(None),
            pressures: watch::Sender::new(Pressures::default()),
            ending: watch::Sender::new(None),
        }
    }
}

impl Standing {
    /// The node's own object, as the API server shows it. `None` until it is registered, and when it was deleted.
    pub fn own(&self) -> watch::Receiver<Option<Arc<core::Node>>> {
        self.own.subscribe()
    }

    /// The node's own object, parsed for admission when it changed.
    pub(crate) fn facts(&self) -> Option<Arc<scheduler::Node>> {
        self.facts.borrow().clone()
    }

    /// What it is short of.
    pub fn pressures(&self) -> watch::Receiver<Pressures> {
        self.pressures.subscribe()
    }

    pub fn is_shutting_down(&self) -> bool {
        *self.ending.borrow() == Some(End::Shutdown)
    }

    pub fn is_resting(&self) -> bool {
        *self.ending.borrow() == Some(End::Rest)
    }

    pub(super) fn set_pressures(&self, pressures: Pressures) {
        self.pressures.send_if_modified(|it| std::mem::replace(it, pressures) != pressures);
    }

    /// From now on no pod begins. A node that shuts down is not ready, and says why.
    pub(super) fn end(&self, how: End) {
        self.ending.send_replace(Some(how));
    }
}

/// Keeps the node registered, its lease renewed and its status true, for ever.
pub(super) async fn run<R: Runtime>(node: &Arc<Node<R>>) {
    let presence = NodeStatusManager {
        nodes: Api::all(node.client.clone()),
        leases: Api::namespaced(node.client.clone(), "kube-node-lease"),
        node,
        info: measure::info(),
        capacity: measure::capacity(&node.config.root, node.config.pods_max),
    };
    presence.register().await;
    tokio::join!(presence.follow(), presence.beat(), presence.report());
}

struct NodeStatusManager<'a, R> {
    nodes: Api<core::Node>,
    leases: Api<Lease>,
    node: &'a Node<R>,
    info: Info,
    /// As it was at the start: what a file system says of its size goes to and fro.
    capacity: ResourceQuantities,
}

impl<R: Runtime> NodeStatusManager<'_, R> {
    /// Makes the node known, until it is. One that was known under this name keeps what others have set on it.
    async fn register(&self) {
        let mut retry = Retry::default();
        loop {
            let node = self.measured(&mut Images::default()).await;
            let (mut object, events) =
                node_status::object(&node, &self.node.config.labels, &self.node.config.taints, now());
            if let Some(range) = &self.node.config.pod_range {
                object["spec"]["podCIDR"] = range.as_str().into();
                object["spec"]["podCIDRs"] = vec![range.as_str()].into();
            }
            match self.try_register(&object).await {
                Ok(own) => {
                    tracing::info!(node = self.node.config.name, "registered");
                    self.show(own);
                    self.tell(vec![Event::normal("Starting", "Starting kubelet.".to_owned())]);
                    self.tell(events);
                    return;
                }
                Err(error) => {
                    if retry.is_news() {
                        let node = &self.node.config.name;
                        tracing::warn!(node, error, "cannot register yet: it is tried again");
                    }
                    retry.wait().await;
                }
            }
        }
    }

    async fn try_register(&self, object: &Value) -> Result<core::Node, String> {
        let name = &self.node.config.name;
        let wanted: core::Node = serde_json::from_value(object.clone()).map_err(|it| it.to_string())?;
        match within(self.nodes.create(&PostParams::default(), &wanted)).await {
            Ok(own) => return Ok(own),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(chain(&error)),
        }
        let own = within(self.nodes.get(name)).await.map_err(|it| chain(&it))?;
        let shown = serde_json::to_value(&own).map_err(|it| it.to_string())?;
        match node_status::relabel(object, &shown) {
            None => Ok(own),
            Some(patch) => within(self.nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch)))
                .await
                .map_err(|it| chain(&it)),
        }
    }

    /// What others do to the node's object.
    async fn follow(&self) {
        let one = watcher::Config::default().fields(&format!("metadata.name={}", self.node.config.name));
        let mut events = pin!(watcher(self.nodes.clone(), one).default_backoff());
        loop {
            match events.try_next().await {
                Ok(Some(watcher::Event::Apply(own) | watcher::Event::InitApply(own))) => self.show(own),
                Ok(Some(watcher::Event::Delete(_))) => {
                    tracing::warn!(
                        node = self.node.config.name,
                        "the node was deleted: it comes back when its agent is started again"
                    );
                    self.node.standing.facts.send_replace(None);
                    self.node.standing.own.send_replace(None);
                }
                Ok(Some(watcher::Event::Init | watcher::Event::InitDone)) => {}
                // It backs off, and begins anew.
                Err(error) => {
                    tracing::debug!(node = self.node.config.name, %error, "the watch of the own node broke off")
                }
                Ok(None) => return,
            }
        }
    }

    /// A watch may be later than the answer to a write.
    fn show(&self, own: core::Node) {
        let version =
            |it: &core::Node| it.resource_version().and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
        let is_cordoned = |it: &core::Node| it.spec.as_ref().and_then(|it| it.unschedulable).unwrap_or(false);
        let mut news = None;
        self.node.standing.own.send_if_modified(|it| {
            let is_newer = it.as_ref().is_none_or(|it| it.uid() != own.uid() || version(it) < version(&own));
            if is_newer {
                let before = it.as_deref().filter(|it| it.uid() == own.uid()).map(is_cordoned);
                let name = &self.node.config.name;
                news = before.and_then(|before| node_status::cordoned(name, before, is_cordoned(&own)));
                let facts = serde_json::to_vec(&own).ok();
                let facts = facts.and_then(|it| scheduler::node(&it, &mut Interner::default()).ok());
                self.node.standing.facts.send_replace(facts.map(Arc::new));
                *it = Some(Arc::new(own));
            }
            is_newer
        });
        self.tell(news.into_iter().collect());
    }

    /// The heartbeat. A node that was deleted has none.
    async fn beat(&self) {
        let mut own = self.node.standing.own();
        let mut retry = Retry::default();
        loop {
            let Some(uid) = own.borrow_and_update().as_ref().map(|it| it.uid()) else {
                if own.changed().await.is_err() {
                    return;
                }
                continue;
            };
            match self.renew(uid.as_deref()).await {
                Ok(()) => {
                    retry = Retry::default();
                    sleep(HEARTBEAT_EVERY).await;
                }
                Err(error) => {
                    if retry.is_news() {
                        let error = chain(&error);
                        tracing::warn!(node = self.node.config.name, error, "cannot renew the node's lease");
                    }
                    retry.wait().await;
                }
            }
        }
    }

    async fn renew(&self, uid: Option<&str>) -> kube::Result<()> {
        let name = &self.node.config.name;
        let lease = node_status::lease(name, uid.map(Into::into).as_ref(), now());
        let patch = Patch::Merge(json!({"spec": lease["spec"]}));
        match within(self.leases.patch_metadata(name, &PatchParams::default(), &patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let lease: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
                within(self.leases.create(&PostParams::default(), &lease)).await.map(drop)
            }
            renewed => renewed.map(drop),
        }
    }

    /// What the node says of itself: at once where it changed, else now and then.
    async fn report(&self) {
        let mut own = self.node.standing.own();
        let mut pressures = self.node.standing.pressures();
        let mut ending = self.node.standing.ending.subscribe();
        let mut images = Images::default();
        let mut said: Option<Instant> = None;
        let mut retry = Retry::default();
        loop {
            own.mark_unchanged();
            pressures.mark_unchanged();
            ending.mark_unchanged();
            let node = self.measured(&mut images).await;
            let shown = own.borrow().clone();
            if let Some(shown) = shown {
                let shown = serde_json::to_value(&shown.status).unwrap_or_default();
                let (status, events) = node_status::status(&node, &shown, now());
                let is_due = said.is_none_or(|it| REPORT_EVERY <= it.elapsed());
                if is_due || node_status::is_news(&status, &shown) {
                    let patch = Patch::Strategic(json!({"status": status}));
                    let params = PatchParams::default();
                    match within(self.nodes.patch_status(&self.node.config.name, &params, &patch)).await {
                        Ok(own) => {
                            said = Some(Instant::now());
                            retry = Retry::default();
                            self.show(own);
                            self.tell(events);
                        }
                        Err(error) => {
                            if retry.is_news() {
                                let (node, error) = (&self.node.config.name, chain(&error));
                                tracing::warn!(node, error, "cannot report the node's status");
                            }
                            retry.wait().await;
                            continue;
                        }
                    }
                }
            }
            let pause = if node.troubles.is_empty() { HEARTBEAT_EVERY } else { UNREADY_EVERY };
            tokio::select! {
                () = sleep(pause) => {}
                // Others may say that it is lost, or have deleted it.
                _ = own.changed() => {}
                _ = pressures.changed() => {}
                _ = ending.changed() => {}
            }
        }
    }

    async fn measured(&self, images: &mut Images) -> node_status::Node {
        let config = &self.node.config;
        let mut troubles = Vec::new();
        let mut handlers = Vec::new();
        match how_is(&*self.node.runtime, RUNTIME_MAX).await {
            Ok(status) => {
                troubles.extend(status.not_ready.map(|it| format!("container runtime not ready: {it}")));
                troubles
                    .extend(status.no_network.map(|it| format!("container runtime network not ready: {it}")));
                handlers = status.handlers.unwrap_or_default();
                images.refresh(&*self.node.runtime).await;
            }
            Err(error) => {
                tracing::debug!(node = config.name, %error, "the runtime does not answer");
                troubles.push("container runtime is down".to_owned());
                // It may be another one when it is back.
                images.runtime.clear();
            }
        }
        troubles.extend(self.node.membership.trouble());
        if self.node.standing.is_shutting_down() {
            troubles.push("node is shutting down".to_owned());
        }
        let capacity = self.capacity.clone();
        let missing: Vec<&str> = ["cpu", "memory", "pods", "ephemeral-storage"]
            .into_iter()
            .filter(|it| !capacity.contains_key(*it))
            .collect();
        if !missing.is_empty() {
            troubles.push(format!("missing node capacity for resources: {}", missing.join(", ")));
        }
        let reserved = reserved(config, &capacity);
        let info = Info { runtime: images.runtime.clone(), ..self.info.clone() };
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
            pressures: *self.node.standing.pressures.borrow(),
            troubles,
        }
    }

    fn tell(&self, events: Vec<Event>) {
        for event in events {
            self.node.recorder.record(EventRecord { about: node_reference(&self.node.config.name), event });
        }
    }
}

/// What the runtime has, as it was a while ago.
#[derive(Default)]
struct Images {
    listed: Option<Instant>,
    all: Vec<Image>,
    /// As `containerd://1.6.20`.
    runtime: String,
}

impl Images {
    async fn refresh<R: Runtime>(&mut self, runtime: &R) {
        if self.runtime.is_empty()
            && let Ok(version) = runtime.version().await
        {
            self.runtime = format!("{}://{}", version.runtime_name, version.runtime_version);
        }
        if self.listed.is_some_and(|it| it.elapsed() < IMAGES_EVERY) {
            return;
        }
        if let Ok(images) = runtime.images().await {
            self.listed = Some(Instant::now());
            let image = |it: crate::runtime::v1::Image| Image {
                names: it.repo_digests.into_iter().chain(it.repo_tags).collect(),
                size_bytes: i64::try_from(it.size).unwrap_or(i64::MAX),
            };
            self.all = images.into_iter().map(image).collect();
        }
    }
}

/// Failures in a row: how long to wait after each, and which are logged.
#[derive(Default)]
struct Retry {
    pause: Option<Duration>,
    logged: Option<Instant>,
}

impl Retry {
    /// The first failure is logged, and then one a minute.
    fn is_news(&mut self) -> bool {
        let is_news = self.logged.is_none_or(|it| LOG_EVERY <= it.elapsed());
        if is_news {
            self.logged = Some(Instant::now());
        }
        is_news
    }

    async fn wait(&mut self) {
        let pause = self.pause.map_or(RETRY_MIN, |it| (it * 2).min(RETRY_MAX));
        self.pause = Some(pause);
        sleep(pause).await;
    }
}

async fn how_is<R: Runtime>(runtime: &R, within: Duration) -> Result<Status, String> {
    match timeout(within, runtime.status()).await {
        Ok(said) => said.map_err(|it| it.to_string()),
        Err(_) => Err(format!("it does not say how it is within {} s", within.as_secs())),
    }
}

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    timeout(CALL_MAX, call).await.unwrap_or_else(|late| Err(kube::Error::Service(late.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_runtime_that_hangs_is_down() {
        let dir = std::env::temp_dir().join(format!("muster-hangs-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        // It takes what it is asked, and says nothing.
        let silent = tokio::net::UnixListener::bind(dir.join("silent.sock")).unwrap();
        let runtime = crate::runtime::Cri::connect(&dir.join("silent.sock"));
        let said = how_is(&runtime, Duration::from_millis(10)).await;
        drop(silent);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(said, Err("it does not say how it is within 0 s".to_owned()));
    }
}
