//! A real node, whose pods run as containers.
//!
//! `pod_manager` watches the pods of the API server, `static_pods` watches the manifests of static pods, and `pleg`
//! watches the containers of the runtime. Each pod has a `worker`. The worker waits for the pod's `admission`, syncs
//! the pod through `engine::kubelet::pod`, and runs the resulting actions in `executor`. The CRI configuration of a pod
//! is built in `sandbox`, `container`, `environment`, `naming` and `cgroup`. `host` handles the Node object and the
//! machine.

/// Admission of pods on the node.
mod admission;
/// The cgroup of a pod.
mod cgroup;
/// The CRI configuration of a container.
mod container;
/// The log files of a pod's containers.
mod container_logs;
/// Environment variables of a container.
mod environment;
/// Execution of the actions that the engine decides on.
mod executor;
/// Handlers of a container: its probes and lifecycle hooks.
mod handlers;
/// The Node object and the machine.
pub mod host;
/// Image names and pull credentials.
mod image;
/// Hostname, `/etc/hosts` and DNS configuration of a pod.
mod naming;
/// Finds the pods that have files on the node's disk. Those that the node does not run are orphans.
mod orphans;
/// Pod lifecycle event generator: wakes workers when containers change.
mod pleg;
/// The pods of the node, with a worker for each.
mod pod_manager;
/// Reads the runtime state of a pod.
mod runtime_status;
/// The CRI configuration of a pod's sandbox.
mod sandbox;
/// Static pods and their mirror pods.
mod static_pods;
/// Writes the status of a pod to the API server, and finally deletes the pod there.
mod status_writer;
/// The task that runs one pod.
mod worker;

use std::sync::{Arc, OnceLock};

use kube::Client;
use muster_api::resources::ResourceQuantities;
use muster_events::{EventRecorder, EventSource};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub(crate) use self::cgroup::CGROUP_ROOT;
pub(crate) use self::handlers::{format_dial_error, insecure_tls_config};
use self::host::NodeState;
use self::host::stats::StatsProvider;
pub use self::pod_manager::{PodEntry, PodManager, PodSnapshot};
use crate::config::Config;
use crate::membership::ClusterMembership;
use crate::metrics::AgentMetrics;
use crate::net::ServiceCache;
use crate::references::PodReferenceClient;
use crate::runtime::Runtime;
use crate::volumes::VolumeManager;

/// Maximum number of concurrent image pulls. Upstream: `maxParallelImagePulls`, which is unlimited by default.
const PARALLEL_PULLS_MAX: usize = 5;

/// Source component of the agent's Events. It is the kubelet's name, because tools search for it.
const EVENT_COMPONENT: &str = "kubelet";

/// Returns the recorder of a node's Events, and the future that writes the Events.
pub fn event_recorder(client: Client, node: String) -> (EventRecorder, impl Future<Output = ()> + Send) {
    let source = EventSource { component: EVENT_COMPONENT, host: node };
    EventRecorder::new(client, source, Counter::default())
}

/// The agent of one node: the state that its components share. Upstream: `Kubelet`.
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct NodeAgent<R> {
    pub client: Client,
    pub config: Arc<Config>,
    pub runtime: Arc<R>,
    pub references: PodReferenceClient,
    pub volumes: VolumeManager,
    pub recorder: EventRecorder,
    pub metrics: Arc<AgentMetrics>,
    pub pods: PodManager,
    /// The Node object, its pressure conditions, and whether the node stops.
    pub state: NodeState,
    /// The cluster that the node has joined.
    pub membership: Arc<ClusterMembership>,
    /// The cluster's Services, endpoints and nodes.
    pub service_cache: Arc<ServiceCache>,
    /// Resource usage of the node and its pods.
    pub stats: StatsProvider<R>,
    /// Cancelled when the agent stops. The cancellation stops the workers.
    stopping: CancellationToken,
    /// Name of the container runtime, read once at the start.
    runtime_name: OnceLock<String>,
    /// Permits for concurrent image pulls.
    pull_permits: Semaphore,
    /// Allocatable resources of the node.
    allocatable: Arc<ResourceQuantities>,
}

impl<R: Runtime> NodeAgent<R> {
    pub fn new(
        client: Client,
        config: Arc<Config>,
        runtime: Arc<R>,
        recorder: EventRecorder,
        metrics: Arc<AgentMetrics>,
    ) -> Arc<Self> {
        let references = PodReferenceClient::new(client.clone());
        let volumes = VolumeManager::new(config.clone(), references.clone());
        Arc::new(Self {
            pods: PodManager::default(),
            state: NodeState::default(),
            membership: Arc::new(ClusterMembership::new(client.clone(), &config.root_dir)),
            service_cache: Arc::default(),
            stats: StatsProvider::new(config.clone(), runtime.clone()),
            stopping: CancellationToken::new(),
            runtime_name: OnceLock::new(),
            pull_permits: Semaphore::new(PARALLEL_PULLS_MAX),
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

    /// Registers the node and runs its pods until `stop` is cancelled. The containers keep running after that, and the
    /// next agent finds them.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let work = async {
            tokio::join!(
                // First, so that static pods are known before orphans are removed.
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
