//! The container runtime interface of the agent, and its implementation over CRI.
//!
//! The message types are CRI's own.

/// Implements [`Runtime`] over CRI.
mod cri;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures::stream::BoxStream;

pub use self::cri::CriClient;

/// The messages and gRPC clients of CRI.
#[allow(unreachable_pub, missing_debug_implementations)]
pub mod v1 {
    tonic::include_proto!("runtime.v1");
}

/// containerd's own gRPC services, in addition to CRI.
#[allow(unreachable_pub, missing_debug_implementations)]
pub mod containerd {
    /// containerd's content store.
    pub mod content {
        tonic::include_proto!("containerd.services.content.v1");
    }
    /// containerd's events.
    pub mod events {
        tonic::include_proto!("containerd.services.events.v1");
    }
    /// containerd's image store.
    pub mod images {
        tonic::include_proto!("containerd.services.images.v1");
    }
    /// containerd's leases, which protect content from garbage collection.
    pub mod leases {
        tonic::include_proto!("containerd.services.leases.v1");
    }
}

/// The operations of a container runtime that the agent uses.
pub trait Runtime: Send + Sync + 'static {
    /// Returns the name and version of the runtime.
    fn version(&self) -> impl Future<Output = Result<v1::VersionResponse, RuntimeError>> + Send;
    /// Returns whether the runtime and the pod network are ready, and the runtime's features.
    fn status(&self) -> impl Future<Output = Result<RuntimeStatus, RuntimeError>> + Send;

    /// Lists the sandboxes of the pod with this UID. Lists all sandboxes if `uid` is `None`.
    fn list_sandboxes(
        &self,
        uid: Option<&str>,
    ) -> impl Future<Output = Result<Vec<v1::PodSandbox>, RuntimeError>> + Send;
    /// Returns the status of a sandbox, including its IP addresses, which `list_sandboxes` does not return.
    fn sandbox_status(
        &self,
        id: &str,
    ) -> impl Future<Output = Result<v1::PodSandboxStatus, RuntimeError>> + Send;
    /// Creates and starts a sandbox and returns its ID. An empty `handler` selects the runtime's default handler.
    fn run_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        handler: &str,
    ) -> impl Future<Output = Result<String, RuntimeError>> + Send;
    /// Stops a sandbox and all its containers.
    fn stop_sandbox(&self, id: &str) -> impl Future<Output = Result<(), RuntimeError>> + Send;
    /// Removes a sandbox and all its containers.
    fn remove_sandbox(&self, id: &str) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// Lists the containers of the pod with this UID. Lists all containers if `uid` is `None`.
    fn list_containers(
        &self,
        uid: Option<&str>,
    ) -> impl Future<Output = Result<Vec<v1::Container>, RuntimeError>> + Send;
    /// Returns the status of a container, including its exit code, which `list_containers` does not return.
    fn container_status(
        &self,
        id: &str,
    ) -> impl Future<Output = Result<v1::ContainerStatus, RuntimeError>> + Send;
    /// Creates a container in a sandbox, and returns the container ID.
    fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> impl Future<Output = Result<String, RuntimeError>> + Send;
    fn start_container(&self, id: &str) -> impl Future<Output = Result<(), RuntimeError>> + Send;
    /// Stops a container and waits until it has exited. The container is killed if it does not exit within `grace`.
    fn stop_container(
        &self,
        id: &str,
        grace: Duration,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;
    fn remove_container(&self, id: &str) -> impl Future<Output = Result<(), RuntimeError>> + Send;
    /// Changes the resource limits of a container.
    fn update_resources(
        &self,
        id: &str,
        resources: v1::LinuxContainerResources,
    ) -> impl Future<Output = Result<(), RuntimeError>> + Send;
    /// Makes the runtime reopen a container's log after the log file was renamed.
    fn reopen_log(&self, id: &str) -> impl Future<Output = Result<(), RuntimeError>> + Send;

    /// Runs a command in a container, and returns its output and exit code. Returns a `TimedOut` error if the command
    /// does not end within `timeout`.
    fn exec_sync(
        &self,
        id: &str,
        command: &[String],
        timeout: Duration,
    ) -> impl Future<Output = Result<v1::ExecSyncResponse, RuntimeError>> + Send;
    /// Prepares an exec session and returns its streaming URL.
    fn exec(&self, request: v1::ExecRequest) -> impl Future<Output = Result<String, RuntimeError>> + Send;
    /// Prepares an attach session and returns its streaming URL.
    fn attach(&self, request: v1::AttachRequest)
    -> impl Future<Output = Result<String, RuntimeError>> + Send;
    /// Prepares a port-forward session and returns its streaming URL.
    fn port_forward(
        &self,
        sandbox: &str,
        ports: &[u16],
    ) -> impl Future<Output = Result<String, RuntimeError>> + Send;

    fn list_images(&self) -> impl Future<Output = Result<Vec<v1::Image>, RuntimeError>> + Send;
    /// Returns the status of an image, or `None` if the image is not present.
    fn image_status(
        &self,
        name: &str,
    ) -> impl Future<Output = Result<Option<v1::Image>, RuntimeError>> + Send;
    /// Pulls an image and returns its reference in the runtime.
    fn pull_image(
        &self,
        name: &str,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> impl Future<Output = Result<String, RuntimeError>> + Send;
    fn remove_image(&self, name: &str) -> impl Future<Output = Result<(), RuntimeError>> + Send;
    /// Returns the usage of the filesystems that store images.
    fn image_fs_info(&self) -> impl Future<Output = Result<Vec<v1::FilesystemUsage>, RuntimeError>> + Send;

    /// Returns the stats of the containers of the pod with this UID. Returns the stats of all containers if `uid` is
    /// `None`.
    fn container_stats(
        &self,
        uid: Option<&str>,
    ) -> impl Future<Output = Result<Vec<v1::ContainerStats>, RuntimeError>> + Send;
    /// Returns the stats of all pods. A runtime without pod stats returns an `Unsupported` error.
    fn pod_stats(&self) -> impl Future<Output = Result<Vec<v1::PodSandboxStats>, RuntimeError>> + Send;

    /// Streams the IDs of containers and sandboxes that exit. The stream may end at any time, and some runtimes have no
    /// events, so callers must also list containers periodically.
    fn watch_exits(&self) -> impl Future<Output = Result<ExitStream, RuntimeError>> + Send;
}

/// Stream of the IDs of containers and sandboxes that exited.
pub type ExitStream = BoxStream<'static, Result<String, RuntimeError>>;

/// Whether the runtime and the pod network are ready, and the features of the runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeStatus {
    /// Why the runtime is not ready. `None` if the runtime is ready.
    pub not_ready_reason: Option<String>,
    /// Why the pod network is not ready. `None` if the network is ready.
    pub network_not_ready_reason: Option<String>,
    /// Handlers that a RuntimeClass may name. `None` if the runtime does not list its handlers.
    pub handlers: Option<Vec<String>>,
    /// Whether `supplementalGroupsPolicy: Strict` is supported.
    pub supports_strict_groups: bool,
}

/// A failed call to the runtime.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct RuntimeError {
    /// The operation that failed, as a verb phrase such as `list sandboxes`.
    pub operation: &'static str,
    pub kind: RuntimeErrorKind,
    /// The runtime's error message, or the agent's if the runtime sent none.
    pub message: String,
}

impl RuntimeError {
    /// Whether the container, sandbox or image does not exist.
    pub fn is_not_found(&self) -> bool {
        self.kind == RuntimeErrorKind::NotFound
    }
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.message)
    }
}

/// Kinds of runtime errors that callers handle differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeErrorKind {
    /// The container, sandbox or image does not exist. Callers treat its removal as successful.
    NotFound,
    /// The runtime refused the operation, or the operation failed.
    Refused,
    /// The runtime did not respond within the timeout of the call. The operation may have been executed.
    TimedOut,
    /// The runtime cannot be reached. The call can be retried later.
    Unreachable,
    /// The runtime does not implement the operation.
    Unsupported,
}

/// Labels of sandboxes and containers in the runtime, which identify their pod.
pub mod label {
    /// Label with the name of the pod.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// Label with the namespace of the pod.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// Label with the UID of the pod.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// Label with the name of the container in the pod spec.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
}

/// Annotations of containers in the runtime.
pub mod annotation {
    /// Annotation with the termination grace period of the pod, in seconds.
    pub const POD_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
}
