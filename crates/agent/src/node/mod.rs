//! A real node: its pods run as containers.
//!
//! `pods` watches what is to run here, and what the runtime has; each pod has a `worker`, which asks `engine::pod` what to do;
//! `deed` does it. What the runtime is told of a pod is put together in `sandbox`, `container`, `env`, `naming` and `cgroup`;
//! `image` and `probe` are deeds of some size; `admission` lets pods in.

mod admission;
mod cgroup;
mod config;
mod container;
mod deed;
mod env;
mod image;
mod naming;
mod observe;
mod pods;
mod probe;
mod sandbox;
mod worker;

use std::sync::{Arc, Mutex, PoisonError};

use kube::Client;
use muster_engine::quantity::Quantity;
use muster_engine::resources::Amounts;
use muster_engine::time::Time;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use self::config::Config;
#[cfg(test)]
pub(crate) use self::config::tests::config as example_config;
pub use self::pods::{Entry, Pods, Shown};
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
    pub pods: Pods,
    pulls: Semaphore,
    /// What pods may have of the node.
    allocatable: Mutex<Arc<Amounts>>,
}

impl<R: Runtime> Node<R> {
    /// The node, and the work of writing down its events, which [`Node::run`] does.
    pub fn new(client: Client, config: Arc<Config>, runtime: Arc<R>, recorder: Recorder) -> Arc<Self> {
        let references = References::new(client.clone());
        let volumes = Volumes::new(config.clone(), references.clone());
        Arc::new(Self {
            client,
            config,
            runtime,
            references,
            volumes,
            recorder,
            pods: Pods::default(),
            pulls: Semaphore::new(PULLS_MAX),
            allocatable: Mutex::new(Arc::new(of_machine())),
        })
    }

    /// Runs the node's pods until `stop`. Their containers stay: whoever comes next finds them again.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = pods::run(&self) => {}
        }
    }

    pub fn allocatable(&self) -> Arc<Amounts> {
        self.allocatable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_allocatable(&self, amounts: Amounts) {
        *self.allocatable.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(amounts);
    }
}

/// What the machine has, until it is known what of it is for pods.
fn of_machine() -> Amounts {
    let cpus = std::thread::available_parallelism().map_or(1, |it| i64::try_from(it.get()).unwrap_or(1));
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text
        .lines()
        .find_map(|it| it.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    let memory: i64 = total.unwrap_or(0);
    [("cpu", Quantity::whole(cpus)), ("memory", Quantity::whole(memory.saturating_mul(1024)))]
        .map(|(name, amount)| (name.to_owned(), amount))
        .into()
}

pub(crate) fn now() -> Time {
    Time::from_micros(jiff::Timestamp::now().as_microsecond())
}
