//! A real node: its pods run as containers.
//!
//! `pods` watches what is to run here, and what the runtime has; each pod has a `worker`, which has it let in (`admission`) and
//! asks `engine::pod` what to do; `action` does it. The runtime's configuration of a pod is built in `sandbox`, `container`,
//! `env`, `naming` and `cgroup`; `image` and `probe` are actions of some size. `static_pods` are those that come from files;
//! `host` is the node itself; `membership` says whether the API server is that of the cluster which the node joined.

mod admission;
mod cgroup;
mod container;
mod container_logs;
mod env;
mod executor;
pub mod host;
mod image;
mod naming;
mod orphans;
mod pleg;
mod pod_manager;
mod probe;
mod runtime_status;
mod sandbox;
mod static_pods;
mod status_writer;
mod worker;

use std::sync::{Arc, OnceLock};

use kube::Client;
use muster_api::resources::ResourceQuantities;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::host::Standing;
use self::host::stats::Figures;
pub use self::pod_manager::{Entry, PodManager, Shown};
pub(crate) use self::probe::{dialled, trusting};
use crate::config::Config;
use crate::membership::Membership;
use crate::metrics::Metrics;
use crate::net::ServiceCache;
use crate::record::Recorder;
use crate::references::References;
use crate::runtime::Runtime;
use crate::volumes::Volumes;

/// Images that are pulled at once. Upstream: `maxParallelImagePulls`, which has no limit by itself.
const PULLS_MAX: usize = 5;

/// A node, and all that its parts share.
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct Node<R> {
    pub client: Client,
    pub config: Arc<Config>,
    pub runtime: Arc<R>,
    pub references: References,
    pub volumes: Volumes,
    pub recorder: Recorder,
    pub metrics: Arc<Metrics>,
    pub pods: PodManager,
    /// How it stands: registered, short of something, shutting down.
    pub standing: Standing,
    /// Which cluster it belongs to.
    pub membership: Arc<Membership>,
    /// What it has heard of the cluster's Services.
    pub network: Arc<ServiceCache>,
    /// What its pods take.
    pub figures: Figures<R>,
    /// Its workers end with it.
    stopping: CancellationToken,
    /// What the runtime calls itself, once it was asked.
    runtime_name: OnceLock<String>,
    pulls: Semaphore,
    /// What pods may have of the node.
    allocatable: Arc<ResourceQuantities>,
}

impl<R: Runtime> Node<R> {
    pub fn new(
        client: Client,
        config: Arc<Config>,
        runtime: Arc<R>,
        recorder: Recorder,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let references = References::new(client.clone());
        let volumes = Volumes::new(config.clone(), references.clone());
        Arc::new(Self {
            pods: PodManager::default(),
            standing: Standing::default(),
            membership: Arc::new(Membership::new(client.clone(), &config.root)),
            network: Arc::default(),
            figures: Figures::new(config.clone(), runtime.clone()),
            stopping: CancellationToken::new(),
            runtime_name: OnceLock::new(),
            pulls: Semaphore::new(PULLS_MAX),
            allocatable: Arc::new(host::allocatable(&config)),
            client,
            config,
            runtime,
            references,
            volumes,
            recorder,
            metrics,
        })
    }

    /// Registers the node and runs its pods until `stop`. Their containers stay: whoever comes next finds them again.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let work = async {
            tokio::join!(
                // First: what comes from files is not an orphan.
                static_pods::run(&self),
                pod_manager::run(&self),
                host::run(&self),
                self.membership.run(),
            );
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = work => {}
        }
        self.stopping.cancel();
    }

    pub fn allocatable(&self) -> Arc<ResourceQuantities> {
        self.allocatable.clone()
    }
}
