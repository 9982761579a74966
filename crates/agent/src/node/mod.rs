//! A real node: its pods run as containers.
//!
//! `pods` watches what is to run here, and what the runtime has; each pod has a `worker`, which has it let in (`admission`) and
//! asks `engine::pod` what to do; `deed` does it. What the runtime is told of a pod is put together in `sandbox`, `container`,
//! `env`, `naming` and `cgroup`; `image` and `probe` are deeds of some size. `static_pods` are those that come from files;
//! `host` is the node itself; `membership` says whether the API server is that of the cluster which the node joined.

mod admission;
mod cgroup;
mod clock;
mod config;
mod container;
mod deed;
mod env;
pub mod host;
mod image;
mod membership;
mod naming;
mod observe;
mod pods;
mod probe;
mod sandbox;
mod static_pods;
mod worker;

use std::sync::{Arc, OnceLock};

use kube::Client;
use muster_engine::resources::Amounts;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub(crate) use self::clock::now;
#[cfg(test)]
pub(crate) use self::config::tests::config as example_config;
pub use self::config::{Config, Upkeep};
use self::host::Standing;
use self::host::stats::Figures;
pub use self::membership::Membership;
pub use self::pods::{Entry, Pods, Shown};
pub(crate) use self::probe::{dialled, trusting};
use crate::metrics::Metrics;
use crate::net::Seen;
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
    pub pods: Pods,
    /// How it stands: registered, short of something, shutting down.
    pub standing: Standing,
    /// Which cluster it belongs to.
    pub membership: Arc<Membership>,
    /// What it has heard of the cluster's Services.
    pub network: Arc<Seen>,
    /// What its pods take.
    pub figures: Figures<R>,
    /// Its workers end with it.
    stopping: CancellationToken,
    /// What the runtime calls itself, once it was asked.
    runtime_name: OnceLock<String>,
    pulls: Semaphore,
    /// What pods may have of the node.
    allocatable: Arc<Amounts>,
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
            pods: Pods::default(),
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
                pods::run(&self),
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

    pub fn allocatable(&self) -> Arc<Amounts> {
        self.allocatable.clone()
    }
}
