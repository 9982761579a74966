//! Client of a container runtime, over CRI v1 through a Unix socket.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _};
use hyper_util::rt::TokioIo;
use prost::Message as _;
use tokio::net::UnixStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};

use super::containerd::events::events_client::EventsClient;
use super::containerd::events::{SubscribeRequest, TaskExit};
use super::v1::image_service_client::ImageServiceClient;
use super::v1::runtime_service_client::RuntimeServiceClient;
use super::{ExitStream, Runtime, RuntimeError, RuntimeErrorKind, RuntimeStatus, label, v1};
use crate::metrics::RuntimeCallMetrics;

/// Timeout of a CRI call. Starting or stopping a sandbox has [`SANDBOX_TIMEOUT`] instead, and pulling an image has
/// [`PULL_TIMEOUT`]. When a container is stopped, its grace period is added. When a command is run, the timeout of the
/// command is added. Upstream: `runtimeRequestTimeout`.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Timeout for starting or stopping a sandbox, including the setup of its network.
const SANDBOX_TIMEOUT: Duration = Duration::from_secs(240);
/// Timeout of an image pull, so that a pull that hangs does not block queued pulls forever.
const PULL_TIMEOUT: Duration = Duration::from_secs(3600);
/// Maximum size of a received gRPC message. The largest messages are lists of all containers and outputs of probes.
/// Upstream: `maxMsgSize`.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Client of a CRI runtime. It reconnects when the runtime restarts.
#[derive(Debug, Clone)]
pub struct CriClient {
    socket: PathBuf,
    channel: Channel,
    /// Metrics of the CRI calls.
    calls: RuntimeCallMetrics,
}

impl CriClient {
    /// Creates a client that connects at its first call. If the runtime is not running, the call returns an
    /// `Unreachable` error.
    pub fn connect_lazy(socket: &Path) -> Self {
        let path = socket.to_owned();
        // The address is not used: the connector opens the socket.
        let endpoint = Endpoint::from_static("http://localhost").http2_adaptive_window(true);
        let channel = endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }));
        Self { socket: socket.to_owned(), channel, calls: RuntimeCallMetrics::default() }
    }

    /// Sets the metrics in which the client records its calls.
    #[must_use]
    pub fn with_metrics(self, calls: RuntimeCallMetrics) -> Self {
        Self { calls, ..self }
    }

    /// Returns the path of the runtime's Unix socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the gRPC channel, for containerd's own services.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Awaits a CRI call with the timeout `limit`, and records it in the metrics. `operation` is the kubelet's name for
    /// the operation, which the metrics use. `tried` describes the operation in errors.
    async fn call<T>(
        &self,
        limit: Duration,
        operation: &'static str,
        tried: &'static str,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, RuntimeError> {
        let began = Instant::now();
        let answered = match tokio::time::timeout(limit, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(runtime_error(tried, &status)),
            Err(_) => Err(RuntimeError {
                operation: tried,
                kind: RuntimeErrorKind::TimedOut,
                message: format!("no response within {} s", limit.as_secs()),
            }),
        };
        self.calls.record_call(operation, answered.is_err(), began.elapsed());
        answered
    }

    /// Returns the name of the sandbox image that the runtime is configured with. Returns `None` if the runtime does
    /// not report the name. Only containerd reports it.
    pub async fn sandbox_image(&self) -> Result<Option<String>, RuntimeError> {
        let request = v1::StatusRequest { verbose: true };
        let mut runtime = self.runtime_service();
        let call = runtime.status(request);
        let answer = self.call(CALL_TIMEOUT, "status", "get the runtime configuration", call).await?;
        let config = answer.info.get("config").and_then(|it| serde_json::from_str(it).ok());
        let config: serde_json::Value = config.unwrap_or_default();
        let name = config["sandboxImage"].as_str().filter(|it| !it.is_empty());
        Ok(name.map(str::to_owned))
    }

    /// Returns a gRPC client for CRI's `RuntimeService`.
    fn runtime_service(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Returns a gRPC client for CRI's `ImageService`.
    fn image_service(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }
}

impl Runtime for CriClient {
    async fn version(&self) -> Result<v1::VersionResponse, RuntimeError> {
        let request = v1::VersionRequest { version: "v1".to_owned() };
        self.call(CALL_TIMEOUT, "version", "get the runtime version", self.runtime_service().version(request))
            .await
    }

    async fn status(&self) -> Result<RuntimeStatus, RuntimeError> {
        let request = v1::StatusRequest { verbose: false };
        let answer = self
            .call(CALL_TIMEOUT, "status", "get the runtime status", self.runtime_service().status(request))
            .await?;
        let conditions = answer.status.unwrap_or_default().conditions;
        let failure_reason = |kind: &str| match conditions.iter().find(|it| it.r#type == kind) {
            Some(it) if it.status => None,
            Some(it) => Some(format!("{kind}=false reason:{} message:{}", it.reason, it.message)),
            None => Some(format!("the runtime does not report {kind}")),
        };
        let handlers: Vec<_> = answer.runtime_handlers.into_iter().map(|it| it.name).collect();
        Ok(RuntimeStatus {
            not_ready_reason: failure_reason("RuntimeReady"),
            network_not_ready_reason: failure_reason("NetworkReady"),
            handlers: (!handlers.is_empty()).then_some(handlers),
            supports_strict_groups: answer.features.is_some_and(|it| it.supplemental_groups_policy),
        })
    }

    async fn list_sandboxes(&self, uid: Option<&str>) -> Result<Vec<v1::PodSandbox>, RuntimeError> {
        let filter = uid.map(|uid| v1::PodSandboxFilter {
            label_selector: [(label::POD_UID.to_owned(), uid.to_owned())].into(),
            ..Default::default()
        });
        let request = v1::ListPodSandboxRequest { filter };
        Ok(self
            .call(
                CALL_TIMEOUT,
                "list_podsandbox",
                "list sandboxes",
                self.runtime_service().list_pod_sandbox(request),
            )
            .await?
            .items)
    }

    async fn sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, RuntimeError> {
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        let answer = self
            .call(
                CALL_TIMEOUT,
                "podsandbox_status",
                "get the status of a sandbox",
                self.runtime_service().pod_sandbox_status(request),
            )
            .await?;
        answer.status.ok_or_else(|| empty_response_error("get the status of a sandbox"))
    }

    async fn run_sandbox(&self, config: v1::PodSandboxConfig, handler: &str) -> Result<String, RuntimeError> {
        let request = v1::RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() };
        let answer = self
            .call(
                SANDBOX_TIMEOUT,
                "run_podsandbox",
                "run a sandbox",
                self.runtime_service().run_pod_sandbox(request),
            )
            .await?;
        Ok(answer.pod_sandbox_id)
    }

    async fn stop_sandbox(&self, id: &str) -> Result<(), RuntimeError> {
        let request = v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call(
            SANDBOX_TIMEOUT,
            "stop_podsandbox",
            "stop a sandbox",
            self.runtime_service().stop_pod_sandbox(request),
        )
        .await
        .map(drop)
    }

    async fn remove_sandbox(&self, id: &str) -> Result<(), RuntimeError> {
        let request = v1::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call(
            CALL_TIMEOUT,
            "remove_podsandbox",
            "remove a sandbox",
            self.runtime_service().remove_pod_sandbox(request),
        )
        .await
        .map(drop)
    }

    async fn list_containers(&self, uid: Option<&str>) -> Result<Vec<v1::Container>, RuntimeError> {
        let filter = uid.map(|uid| v1::ContainerFilter {
            label_selector: [(label::POD_UID.to_owned(), uid.to_owned())].into(),
            ..Default::default()
        });
        let request = v1::ListContainersRequest { filter };
        Ok(self
            .call(
                CALL_TIMEOUT,
                "list_containers",
                "list containers",
                self.runtime_service().list_containers(request),
            )
            .await?
            .containers)
    }

    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, RuntimeError> {
        let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let answer = self
            .call(
                CALL_TIMEOUT,
                "container_status",
                "get the status of a container",
                self.runtime_service().container_status(request),
            )
            .await?;
        answer.status.ok_or_else(|| empty_response_error("get the status of a container"))
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, RuntimeError> {
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let answer = self
            .call(
                CALL_TIMEOUT,
                "create_container",
                "create a container",
                self.runtime_service().create_container(request),
            )
            .await?;
        Ok(answer.container_id)
    }

    async fn start_container(&self, id: &str) -> Result<(), RuntimeError> {
        let request = v1::StartContainerRequest { container_id: id.to_owned() };
        self.call(
            CALL_TIMEOUT,
            "start_container",
            "start a container",
            self.runtime_service().start_container(request),
        )
        .await
        .map(drop)
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), RuntimeError> {
        let request = v1::StopContainerRequest { container_id: id.to_owned(), timeout: ceil_seconds(grace) };
        let limit = CALL_TIMEOUT.saturating_add(grace);
        self.call(limit, "stop_container", "stop a container", self.runtime_service().stop_container(request))
            .await
            .map(drop)
    }

    async fn remove_container(&self, id: &str) -> Result<(), RuntimeError> {
        let request = v1::RemoveContainerRequest { container_id: id.to_owned() };
        self.call(
            CALL_TIMEOUT,
            "remove_container",
            "remove a container",
            self.runtime_service().remove_container(request),
        )
        .await
        .map(drop)
    }

    async fn update_resources(
        &self,
        id: &str,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), RuntimeError> {
        let request =
            v1::UpdateContainerResourcesRequest { container_id: id.to_owned(), linux: Some(resources) };
        let mut runtime = self.runtime_service();
        let call = runtime.update_container_resources(request);
        self.call(CALL_TIMEOUT, "update_container", "update the resources of a container", call)
            .await
            .map(drop)
    }

    async fn reopen_log(&self, id: &str) -> Result<(), RuntimeError> {
        let request = v1::ReopenContainerLogRequest { container_id: id.to_owned() };
        self.call(
            CALL_TIMEOUT,
            "reopen_container_log",
            "reopen a log",
            self.runtime_service().reopen_container_log(request),
        )
        .await
        .map(drop)
    }

    async fn exec_sync(
        &self,
        id: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, RuntimeError> {
        // Zero would mean no limit.
        let seconds = i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX).max(1);
        let request =
            v1::ExecSyncRequest { container_id: id.to_owned(), cmd: command.to_vec(), timeout: seconds };
        // The runtime enforces the timeout; this limit is for a runtime that hangs.
        let limit = timeout.saturating_add(CALL_TIMEOUT);
        self.call(
            limit,
            "exec_sync",
            "run a command in a container",
            self.runtime_service().exec_sync(request),
        )
        .await
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<String, RuntimeError> {
        Ok(self
            .call(CALL_TIMEOUT, "exec", "exec in a container", self.runtime_service().exec(request))
            .await?
            .url)
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<String, RuntimeError> {
        Ok(self
            .call(CALL_TIMEOUT, "attach", "attach to a container", self.runtime_service().attach(request))
            .await?
            .url)
    }

    async fn port_forward(&self, sandbox: &str, ports: &[u16]) -> Result<String, RuntimeError> {
        let port = ports.iter().copied().map(i32::from).collect();
        let request = v1::PortForwardRequest { pod_sandbox_id: sandbox.to_owned(), port };
        Ok(self
            .call(CALL_TIMEOUT, "port_forward", "forward ports", self.runtime_service().port_forward(request))
            .await?
            .url)
    }

    async fn list_images(&self) -> Result<Vec<v1::Image>, RuntimeError> {
        let request = v1::ListImagesRequest { filter: None };
        Ok(self
            .call(CALL_TIMEOUT, "list_images", "list images", self.image_service().list_images(request))
            .await?
            .images)
    }

    async fn image_status(&self, name: &str) -> Result<Option<v1::Image>, RuntimeError> {
        let request = v1::ImageStatusRequest { image: Some(image_spec(name)), verbose: false };
        Ok(self
            .call(
                CALL_TIMEOUT,
                "image_status",
                "get the status of an image",
                self.image_service().image_status(request),
            )
            .await?
            .image)
    }

    async fn pull_image(
        &self,
        name: &str,
        auth: Option<v1::AuthConfig>,
        sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, RuntimeError> {
        let request = v1::PullImageRequest { image: Some(image_spec(name)), auth, sandbox_config };
        Ok(self
            .call(PULL_TIMEOUT, "pull_image", "pull an image", self.image_service().pull_image(request))
            .await?
            .image_ref)
    }

    async fn remove_image(&self, name: &str) -> Result<(), RuntimeError> {
        let request = v1::RemoveImageRequest { image: Some(image_spec(name)) };
        self.call(CALL_TIMEOUT, "remove_image", "remove an image", self.image_service().remove_image(request))
            .await
            .map(drop)
    }

    async fn image_fs_info(&self) -> Result<Vec<v1::FilesystemUsage>, RuntimeError> {
        let request = v1::ImageFsInfoRequest {};
        let mut images = self.image_service();
        let answer = self
            .call(
                CALL_TIMEOUT,
                "image_fs_info",
                "get the usage of the image filesystem",
                images.image_fs_info(request),
            )
            .await?;
        Ok(answer.image_filesystems)
    }

    async fn container_stats(&self, uid: Option<&str>) -> Result<Vec<v1::ContainerStats>, RuntimeError> {
        let filter = uid.map(|uid| v1::ContainerStatsFilter {
            label_selector: [(label::POD_UID.to_owned(), uid.to_owned())].into(),
            ..Default::default()
        });
        let request = v1::ListContainerStatsRequest { filter };
        let mut runtime = self.runtime_service();
        Ok(self
            .call(
                CALL_TIMEOUT,
                "list_container_stats",
                "get container stats",
                runtime.list_container_stats(request),
            )
            .await?
            .stats)
    }

    async fn pod_stats(&self) -> Result<Vec<v1::PodSandboxStats>, RuntimeError> {
        let request = v1::ListPodSandboxStatsRequest { filter: None };
        let mut runtime = self.runtime_service();
        Ok(self
            .call(
                CALL_TIMEOUT,
                "list_podsandbox_stats",
                "get pod stats",
                runtime.list_pod_sandbox_stats(request),
            )
            .await?
            .stats)
    }

    async fn watch_exits(&self) -> Result<ExitStream, RuntimeError> {
        match self.watch_cri_exits().await {
            Err(error) if error.kind == RuntimeErrorKind::Unsupported => self.watch_containerd_exits().await,
            other => other,
        }
    }
}

impl CriClient {
    /// Streams the IDs of containers and sandboxes that exit, from CRI events.
    async fn watch_cri_exits(&self) -> Result<ExitStream, RuntimeError> {
        /// Description of the operation in errors.
        const OPERATION: &str = "watch CRI events";
        let events = self.runtime_service().get_container_events(v1::GetEventsRequest {}).await;
        let events = events.map_err(|status| runtime_error(OPERATION, &status))?.into_inner();
        Ok(events
            .map_err(|status| runtime_error(OPERATION, &status))
            .try_filter_map(|event| async move {
                let has_stopped =
                    event.container_event_type == v1::ContainerEventType::ContainerStoppedEvent as i32;
                Ok(has_stopped.then_some(event.container_id))
            })
            .boxed())
    }

    /// Streams the IDs of containers and sandboxes that exit, from containerd's own events, because containerd 1.6 has
    /// no CRI events.
    async fn watch_containerd_exits(&self) -> Result<ExitStream, RuntimeError> {
        /// Description of the operation in errors.
        const OPERATION: &str = "watch containerd events";
        let filters = vec![r#"topic=="/tasks/exit",namespace=="k8s.io""#.to_owned()];
        let events = EventsClient::new(self.channel.clone()).subscribe(SubscribeRequest { filters }).await;
        let events = events.map_err(|status| runtime_error(OPERATION, &status))?.into_inner();
        Ok(events
            .map_err(|status| runtime_error(OPERATION, &status))
            .try_filter_map(|envelope| async move {
                let exit = envelope.event.and_then(|it| TaskExit::decode(&*it.value).ok());
                // Exits of exec sessions have their own ID and are skipped.
                Ok(exit.filter(|it| it.id == it.container_id).map(|it| it.container_id))
            })
            .boxed())
    }
}

/// Rounds a grace period up to whole seconds, so that a grace period below one second does not become zero.
fn ceil_seconds(grace: Duration) -> i64 {
    i64::try_from(grace.as_nanos().div_ceil(1_000_000_000)).unwrap_or(i64::MAX)
}

/// Returns the CRI message that refers to the image with this name.
fn image_spec(name: &str) -> v1::ImageSpec {
    v1::ImageSpec { image: name.to_owned(), ..Default::default() }
}

/// Converts a gRPC status to an error. `tried` describes the operation that failed.
fn runtime_error(tried: &'static str, status: &tonic::Status) -> RuntimeError {
    let sort = match status.code() {
        Code::NotFound => RuntimeErrorKind::NotFound,
        Code::Unavailable | Code::Cancelled => RuntimeErrorKind::Unreachable,
        Code::DeadlineExceeded => RuntimeErrorKind::TimedOut,
        Code::Unimplemented => RuntimeErrorKind::Unsupported,
        _ => RuntimeErrorKind::Refused,
    };
    RuntimeError { operation: tried, kind: sort, message: status.message().to_owned() }
}

/// Returns the error for a response without the expected content. `tried` describes the operation that failed.
fn empty_response_error(tried: &'static str) -> RuntimeError {
    RuntimeError {
        operation: tried,
        kind: RuntimeErrorKind::Refused,
        message: "the response of the runtime is empty".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_is_never_cut_short() {
        let told = [0, 1, 999_999, 1_000_000, 29_999_990].map(|us| ceil_seconds(Duration::from_micros(us)));
        assert_eq!((told, ceil_seconds(Duration::MAX)), ([0, 1, 1, 1, 30], i64::MAX));
    }
}
