//! What a node asks of a container runtime, and CRI as one that answers.
//!
//! The messages are CRI's own: there is no second vocabulary beside it.

mod cri;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures::stream::BoxStream;

pub use self::cri::Cri;

/// The messages of CRI, as far as a node uses them.
#[allow(unreachable_pub, missing_debug_implementations)]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}

/// What containerd offers beside CRI.
#[allow(unreachable_pub, missing_debug_implementations)]
pub mod containerd {
    pub mod content {
        tonic::include_proto!("containerd.services.content.v1");
    }
    pub mod events {
        tonic::include_proto!("containerd.services.events.v1");
    }
    pub mod images {
        tonic::include_proto!("containerd.services.images.v1");
    }
    pub mod leases {
        tonic::include_proto!("containerd.services.leases.v1");
    }
}

/// All that a node asks of a container runtime.
pub trait Runtime: Send + Sync + 'static {
    fn version(&self) -> impl Future<Output = Result<v1::VersionResponse, RuntimeError>> + Send;
    fn status(&self) -> impl Future<Output = Result<Status, RuntimeError>> + Send;

    /// All of them, or those of one pod.
    fn sandboxes(
        &self,
        uid: Option<&str>,
    ) -> impl Future<Output = Result<Vec<v1::PodSandbox>, RuntimeError>> + Send;
    /// With its addresses, which a list does not have.
    fn sandbox(&self, id: &str) -> impl Future<Output = Result<v1::PodSandboxStatus, RuntimeError>> + Send;
    /// Answers with its name. `handler` is empty for the runtime's own choice.
    fn run_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        handler: &str,
    ) -> impl Future<Output = Result<String, RuntimeError>> + Send;
    fn stop_sandbox(&self, id: &str) -> impl Future<Output = Result<(), RuntimeError>> + Send;
    fn remove_sandbox(&self, id: &str) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// All of them, or those of one pod.
    fn containers(
        &self,
        uid: Option<&str>,
    ) -> impl Future<Output = Result<Vec<v1::Container>, RuntimeError>> + Send;
    /// With how it ended, which a list does not have.
    fn container(&self, id: &str) -> impl Future<Output = Result<v1::ContainerStatus, RuntimeError>> + Send;
    fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> impl Future<Output = Result<String, RuntimeError>> + Send;
    fn start_container(&self, id: &str) -> impl Future<Output = Result<(), RuntimeError>> + Send;
    /// Answers when it has ended: by itself within `grace`, or killed.
    fn stop_container(
        &self,
        id: &str,
        grace: Duration,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;
    fn remove_container(&self, id: &str) -> impl Future<Output = Result<(), RuntimeError>> + Send;
    fn update_resources(
        &self,
        id: &str,
        resources: v1::LinuxContainerResources,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;
    /// The log's file was renamed: the runtime goes on in a new one.
    fn reopen_log(&self, id: &str) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// Runs a command in a container, to its end.
    fn exec_sync(
        &self,
        id: &str,
        command: &[String],
        timeout: Duration,
    ) -> impl Future<Output = Result<v1::ExecSyncResponse, RuntimeError>> + Send;
    /// Answers with where the runtime streams it.
    fn exec(&self, request: v1::ExecRequest) -> impl Future<Output = Result<String, RuntimeError>> + Send;
    fn attach(&self, request: v1::AttachRequest)
    -> impl Future<Output = Result<String, RuntimeError>> + Send;
    fn port_forward(
        &self,
        sandbox: &str,
        ports: &[u16],
    ) -> impl Future<Output = Result<String, RuntimeError>> + Send;

    fn images(&self) -> impl Future<Output = Result<Vec<v1::Image>, RuntimeError>> + Send;
    /// `None` where it is not here.
    fn image(&self, name: &str) -> impl Future<Output = Result<Option<v1::Image>, RuntimeError>> + Send;
    fn pull(
        &self,
        name: &str,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> impl Future<Output = Result<String, RuntimeError>> + Send;
    fn remove_image(&self, name: &str) -> impl Future<Output = Result<(), RuntimeError>> + Send;
    fn image_fs(&self) -> impl Future<Output = Result<Vec<v1::FilesystemUsage>, RuntimeError>> + Send;

    /// Of all of them, or of those of one pod.
    fn container_stats(
        &self,
        uid: Option<&str>,
    ) -> impl Future<Output = Result<Vec<v1::ContainerStats>, RuntimeError>> + Send;
    /// Runtimes that do not know it answer [`Sort::Unsupported`].
    fn pod_stats(&self) -> impl Future<Output = Result<Vec<v1::PodSandboxStats>, RuntimeError>> + Send;

    /// The names of the containers and sandboxes that end. It only wakes up: whatever it misses, because it broke off or the
    /// runtime has no such thing, is seen by whoever looks now and then.
    fn exits(&self) -> impl Future<Output = Result<Exits, RuntimeError>> + Send;
}

pub type Exits = BoxStream<'static, Result<String, RuntimeError>>;

/// Whether the runtime can run pods, and why not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Why it can run nothing; `None` when it can.
    pub not_ready: Option<String>,
    /// Why pods with a network of their own cannot run; `None` when they can.
    pub no_network: Option<String>,
    /// What a RuntimeClass may name. `None` where the runtime does not say.
    pub handlers: Option<Vec<String>>,
    /// Whether it can keep the groups of an image away from a container.
    pub has_strict_groups: bool,
}

/// What was tried, and what the runtime said to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct RuntimeError {
    pub tried: &'static str,
    pub sort: Sort,
    /// In the runtime's words.
    pub message: String,
}

impl RuntimeError {
    pub fn is_missing(&self) -> bool {
        self.sort == Sort::Missing
    }
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.tried, self.message)
    }
}

/// Errors, by what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// There is no such thing: whoever wanted it gone is content.
    Missing,
    /// It would not or could not.
    Refused,
    /// It did not answer in time. It may have done it.
    TimedOut,
    /// There is no one to answer: later.
    Unreachable,
    /// It does not know what was asked.
    Unsupported,
}

/// What the messages of a runtime are marked with, so that whoever comes later knows whose they are.
pub mod label {
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
}

/// What is written to containers beside that.
pub mod annotation {
    /// How long the pod has to end, in seconds.
    pub const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
}
