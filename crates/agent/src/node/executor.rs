//! Executes the actions that `engine::kubelet::pod` decides on.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use muster_api::object_key::ObjectKey;
use muster_api::quantity::Quantity;
use muster_engine::controller::{EventRecord, KubeEvent, ObjectReference};
use muster_engine::kubelet::downward_api::PodAddresses;
use muster_engine::kubelet::pod::{
    Action, ActionOutcome, Container, ContainerState, ProbeKind, RuntimeState,
};
use muster_engine::service_proxy;
use tokio::time::Instant;

use super::container::{self, ContainerConfigBuilder};
use super::container_logs::ContainerLogs;
use super::handlers::HandlerRunner;
use super::naming::PodHostname;
use super::pod_manager::{PodEntry, PodSource};
use super::status_writer::StatusWriter;
use super::{NodeAgent, cgroup, environment, image, naming, sandbox};
use crate::parsed_pod::{ParsedPod, PodContainer};
use crate::runtime::{Runtime, RuntimeError};

/// Timeout for a response of the API server, and for the wait until the service cache is synced.
const API_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval at which the agent checks whether the service cache is synced.
const SYNC_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Minimum grace period of a container after its preStop hook, even if the hook took the whole grace period. Upstream:
/// `minimumGracePeriodInSeconds`.
const GRACE_PERIOD_MIN: Duration = Duration::from_secs(2);

/// Maximum number of attempts to remove a pod's cgroup. The removal fails while the cgroup has processes, and the last
/// processes of a pod may exit shortly after its sandbox has stopped.
const CGROUP_REMOVAL_ATTEMPTS_MAX: u32 = 20;
/// Delay between two attempts to remove a pod's cgroup.
const CGROUP_REMOVAL_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Executes the actions of one pod. It has the pod object and the runtime state from which the actions were decided.
pub(super) struct Executor<R> {
    pub node: Arc<NodeAgent<R>>,
    pub entry: Arc<PodEntry>,
    pub pod: Arc<ParsedPod>,
    /// IP addresses of the pod.
    pub addresses: Vec<String>,
    /// The pod's containers in the runtime.
    pub containers: Vec<Container>,
    /// Measures how long the start of the pod takes.
    pub start_timing: Arc<StartTiming>,
}

impl<R: Runtime> Executor<R> {
    /// Executes one action and returns its outcome. While the node is suspended, the actions that report the status,
    /// delete or clean up a pod do nothing, unless the pod has a deletion timestamp.
    pub(super) async fn execute(&self, action: Action) -> ActionOutcome {
        let runtime = &self.node.runtime;
        let is_last = matches!(action, Action::Report(_) | Action::Delete | Action::CleanUp { .. });
        let is_deleted = self.pod.metadata.deletion_timestamp.is_some();
        if is_last && !is_deleted && self.node.state.is_suspended() {
            // The next agent resumes the pod from its containers and its status.
            return ActionOutcome::Done;
        }
        match action {
            Action::Prepare => self.prepare_pod().await,
            Action::RunSandbox { attempt } => self.run_sandbox(attempt).await,
            Action::FindImage { image, .. } => self.find_image(&image).await,
            Action::Pull { image, .. } => self.pull_image(&image).await,
            Action::Start { position, sandbox, attempt, hash, .. } => {
                match self.start_container(self.pod.container_at(position), &sandbox, attempt, &hash).await {
                    Ok(id) => ActionOutcome::Started { id: id.into() },
                    Err(outcome) => outcome,
                }
            }
            Action::PostStart { position, id, .. } => {
                self.run_post_start_hook(self.pod.container_at(position), &id).await
            }
            Action::Probe { position, id, probe, .. } => {
                self.run_probe(self.pod.container_at(position), &id, probe).await
            }
            Action::Stop { container, id, grace, pre_stop } => {
                self.stop_container(&container, &id, grace, pre_stop).await
            }
            Action::RemoveContainer { id } => {
                let outcome = stop_or_removal_outcome(runtime.remove_container(&id).await);
                let container = self.containers.iter().find(|it| it.id == id);
                if let (ActionOutcome::Done, Some(it)) = (&outcome, container) {
                    self.container_logs().remove_log(&it.name, it.attempt, &id);
                }
                outcome
            }
            Action::StopSandbox { id } => stop_or_removal_outcome(runtime.stop_sandbox(&id).await),
            Action::RemoveSandbox { id } => stop_or_removal_outcome(runtime.remove_sandbox(&id).await),
            Action::CleanUp { with_logs } => self.clean_up_pod(with_logs).await,
            Action::Report(patch) => self.status_writer().patch_status(patch).await,
            Action::Delete => self.status_writer().delete_pod().await,
        }
    }

    /// Creates the pod's directory, cgroup and volumes, before its sandbox is run.
    async fn prepare_pod(&self) -> ActionOutcome {
        if self.pod.spec.is_none() {
            return failed_outcome("InvalidPod", "the pod has no spec");
        }
        let (_, _, uid) = sandbox::pod_ids(&self.pod);
        let dir = self.node.config.pod_dir(uid);
        if let Err(error) = fs::create_dir_all(&dir) {
            return failed_outcome("FailedCreatePodDirectory", format!("create {}: {error}", dir.display()));
        }
        if let Err(error) = cgroup::ensure_pod_cgroup(&self.node.config.cgroup_parent, uid, &self.pod) {
            return failed_outcome(
                "FailedCreatePodContainer",
                format!("unable to ensure pod container exists: {error}"),
            );
        }
        match self.prepare_volumes().await {
            Ok(()) => ActionOutcome::Done,
            Err(message) => failed_outcome("FailedMount", message),
        }
    }

    /// Sets up the pod's volumes. Updates the content of volumes that are already set up.
    pub(super) async fn prepare_volumes(&self) -> Result<(), String> {
        let node_addresses = self.node_addresses();
        let addresses = self.pod_addresses(&node_addresses);
        let allocatable = self.node.allocatable();
        let prepared =
            self.node.volumes.prepare_volumes(&self.pod, &self.pod.json, addresses, &allocatable).await;
        prepared.map_err(|it| it.to_string())
    }

    /// Returns the IP addresses of the node, as the pod's `status.hostIPs` has them.
    fn node_addresses(&self) -> [String; 1] {
        [self.node.config.address.to_string()]
    }

    /// Returns the current IP addresses of the pod and the node, for the downward API.
    fn pod_addresses<'a>(&'a self, node: &'a [String]) -> PodAddresses<'a> {
        PodAddresses { pod: &self.addresses, node }
    }

    /// Creates the pod's log directory and log marker, and runs a new sandbox. Fails while the pod network is not
    /// ready, unless the pod is a hostNetwork pod. `attempt` is the number of earlier sandboxes of the pod.
    async fn run_sandbox(&self, attempt: u32) -> ActionOutcome {
        let node = &self.node;
        let spec = self.pod.spec.as_ref();
        let status = match self.start_timing.measure_call(node.runtime.status()).await {
            Ok(status) => status,
            Err(error) => return failed_outcome("FailedCreatePodSandBox", error.to_string()),
        };
        // A sandbox that is run without a network can be neither used nor stopped.
        if let Some(why) = status.network_not_ready_reason
            && spec.is_none_or(|it| it.host_network != Some(true))
        {
            let message = format!("network is not ready: container runtime network not ready: {why}");
            return failed_outcome("NetworkNotReady", message);
        }
        if !status.supports_strict_groups && spec.is_some_and(sandbox::has_strict_groups_policy) {
            let message =
                "the node's runtime does not support spec.securityContext.supplementalGroupsPolicy: Strict";
            return failed_outcome("FailedCreatePodSandBox", message);
        }
        let config = match sandbox::sandbox_config(&node.config, &self.pod, attempt) {
            Ok(config) => config,
            Err(message) => return failed_outcome("FailedCreatePodSandBox", message),
        };
        let handler = match spec.and_then(|it| it.runtime_class_name.as_deref()).filter(|it| !it.is_empty()) {
            None => String::new(),
            Some(name) => match self.runtime_handler(name).await {
                Ok(handler) => handler,
                Err(message) => return failed_outcome("FailedCreatePodSandBox", message),
            },
        };
        let markers_dir = node.config.log_markers_dir();
        let made = Path::new(&config.log_directory).file_name().map_or(Ok(()), |name| {
            fs::create_dir_all(&markers_dir).and_then(|()| fs::write(markers_dir.join(name), ""))
        });
        if let Err(error) = made.and_then(|()| fs::create_dir_all(&config.log_directory)) {
            return failed_outcome(
                "FailedCreatePodSandBox",
                format!("create {}: {error}", config.log_directory),
            );
        }
        match self.start_timing.measure_call(node.runtime.run_sandbox(config, &handler)).await {
            Ok(_) => ActionOutcome::Done,
            Err(error) => failed_outcome("FailedCreatePodSandBox", error.message),
        }
    }

    /// Reads the RuntimeClass with this name, and returns its runtime handler.
    async fn runtime_handler(&self, class: &str) -> Result<String, String> {
        let classes: Api<RuntimeClass> = Api::all(self.node.client.clone());
        match tokio::time::timeout(API_TIMEOUT, classes.get(class)).await {
            Ok(Ok(found)) => Ok(found.handler),
            Ok(Err(error)) => Err(format!("failed to get sandbox runtime: {error}")),
            Err(_) => Err("failed to get sandbox runtime: the API server does not respond".to_owned()),
        }
    }

    /// Checks whether the runtime has an image with this name.
    async fn find_image(&self, name: &str) -> ActionOutcome {
        if let Err(why) = image::normalize_image_name(name) {
            return failed_outcome(
                "InvalidImageName",
                format!("Failed to apply default image tag {name:?}: {why}"),
            );
        }
        match self.start_timing.measure_call(self.node.runtime.image_status(name)).await {
            Ok(Some(_)) => ActionOutcome::Present,
            Ok(None) => ActionOutcome::Absent,
            Err(error) if error.is_not_found() => ActionOutcome::Absent,
            Err(error) => failed_outcome(
                "ImageInspectError",
                format!("Failed to inspect image {name:?}: {}", error.message),
            ),
        }
    }

    /// Pulls an image after waiting for a pull permit. Tries all matching credentials of the pod in turn, or no
    /// credentials if none match.
    async fn pull_image(&self, name: &str) -> ActionOutcome {
        let Ok(_permit) = self.node.pull_permits.acquire().await else {
            return failed_outcome("ErrImagePull", "the node agent is stopping");
        };
        let mut auths: Vec<_> = image::registry_credentials(&self.node.references, &self.pod, name).await;
        // Matching credentials are tried in turn; without any, the registry may allow anonymous pulls.
        let mut auths = if auths.is_empty() { vec![None] } else { auths.drain(..).map(Some).collect() };
        let mut last = failed_outcome("ErrImagePull", "no credentials");
        for auth in auths.drain(..) {
            match self.start_timing.measure_call(self.node.runtime.pull_image(name, auth, None)).await {
                Ok(_) => {
                    let found = self.node.runtime.image_status(name).await;
                    let bytes = found.ok().flatten().map_or(0, |it| it.size);
                    return ActionOutcome::Pulled { bytes };
                }
                Err(error) => last = failed_outcome("ErrImagePull", error.message),
            }
        }
        last
    }

    /// Creates and starts a container, and returns its ID. Also writes the pod's `/etc/hosts` and links the container's
    /// log. `hash` is the hash of the container's spec.
    async fn start_container(
        &self,
        role: PodContainer<'_>,
        sandbox_id: &str,
        attempt: u32,
        hash: &str,
    ) -> Result<String, ActionOutcome> {
        let config_error = |message: String| failed_outcome("CreateContainerConfigError", message);
        let node = &self.node;
        let name = &role.container.name;
        let image_name = role.container.image.as_deref().unwrap_or_default();
        let image = self.start_timing.measure_call(node.runtime.image_status(image_name)).await;
        let image =
            image.map_err(|error| failed_outcome("ImageInspectError", error.message))?.ok_or_else(|| {
                failed_outcome("CreateContainerError", format!("image {image_name:?} is no longer present"))
            })?;

        let object: &ParsedPod = &self.pod;
        let node_addresses = self.node_addresses();
        let services = self.service_environment().await.map_err(config_error)?;
        let source = environment::EnvironmentSource {
            references: &node.references,
            pod: object,
            pod_json: &object.json,
            addresses: self.pod_addresses(&node_addresses),
            allocatable: &node.allocatable(),
            services: &services,
        };
        let variables = source.resolve_variables(role.container).await.map_err(config_error)?;
        let mounts = role.container.volume_mounts.as_deref().unwrap_or_default();
        let mounts = node.volumes.resolve_mounts(object, name, mounts, &variables, false).await;
        let mounts = mounts.map_err(|error| config_error(error.to_string()))?;
        self.write_hosts_file()
            .map_err(|error| config_error(format!("write the pod's /etc/hosts: {error}")))?;
        let memory = node.allocatable().get("memory").copied().map_or(0, Quantity::units);
        let make = ContainerConfigBuilder {
            config: &node.config,
            pod: object,
            pod_container: role,
            attempt,
            hash,
            image: &image,
            variables: &variables,
            mounts,
            node_memory: i64::try_from(memory).unwrap_or(i64::MAX),
            target_id: self.target_container_id(role).map_err(config_error)?,
        };
        let config = make.build().map_err(config_error)?;
        let sandbox_config = sandbox::sandbox_config(&node.config, object, 0).map_err(config_error)?;
        let created = self
            .start_timing
            .measure_call(node.runtime.create_container(sandbox_id, config, sandbox_config))
            .await;
        let id = created.map_err(|error| failed_outcome("CreateContainerError", error.message))?;
        self.container_logs().link_log(name, attempt, &id);
        let started = self.start_timing.measure_call(node.runtime.start_container(&id)).await;
        started.map_err(|error| failed_outcome("RunContainerError", error.message))?;
        self.start_timing.has_started.store(true, Ordering::Relaxed);
        Ok(id)
    }

    /// Returns the ID of the running container that the `targetContainerName` of an ephemeral container names. Returns
    /// `None` if `targetContainerName` is not set, and an error if the target is not running.
    fn target_container_id(&self, role: PodContainer<'_>) -> Result<Option<String>, String> {
        let Some(name) = role.target.filter(|it| !it.is_empty()) else { return Ok(None) };
        let running = self.containers.iter().filter(|it| matches!(it.state, ContainerState::Running { .. }));
        let target = running.filter(|it| *it.name == *name).max_by_key(|it| it.attempt);
        let id = target.map(|it| it.id.to_string());
        id.map(Some).ok_or_else(|| format!("unable to find target container {name}"))
    }

    /// Returns the environment variables for Services. Waits until the service cache is synced, and fails if this takes
    /// longer than [`API_TIMEOUT`]. A static pod does not wait.
    async fn service_environment(&self) -> Result<BTreeMap<String, String>, String> {
        let cache = &self.node.service_cache;
        // A static pod does not wait for the API server.
        let began = Instant::now();
        while !cache.is_synced() && self.entry.source != PodSource::Static {
            if API_TIMEOUT < began.elapsed() {
                return Err(
                    "services have not yet been read at least once, cannot construct envvars".to_owned()
                );
            }
            tokio::time::sleep(SYNC_POLL_INTERVAL).await;
        }
        let namespace = sandbox::pod_ids(&self.pod).1;
        let wants_all = self.pod.spec.as_ref().is_none_or(|it| it.enable_service_links != Some(false));
        Ok(service_proxy::service_env_vars(&cache.lock_state(), namespace, wants_all))
    }

    /// Writes the pod's `/etc/hosts`, if its content has changed.
    fn write_hosts_file(&self) -> io::Result<()> {
        let Some(spec) = &self.pod.spec else { return Ok(()) };
        let names = PodHostname::from_pod(&self.pod, spec, &self.node.config.cluster_domain);
        let of_node = (spec.host_network == Some(true)).then(naming::read_node_hosts_file);
        let text = names.hosts_file_content(spec, &self.addresses, of_node.as_deref());
        let path = container::hosts_file_path(&self.node.config, sandbox::pod_ids(&self.pod).2);
        if fs::read_to_string(&path).is_ok_and(|it| it == text) {
            return Ok(());
        }
        // Written in place, because running containers have the file mounted.
        fs::write(path, text)
    }

    /// Returns the runner of the probes and lifecycle hooks of a container of the pod spec. `id` is the ID of its
    /// instance in the runtime.
    fn handler_runner<'a>(&'a self, role: PodContainer<'a>, id: &'a str) -> HandlerRunner<'a, R> {
        let address = self.addresses.first().map_or("", |it| it.as_str());
        HandlerRunner { runtime: &self.node.runtime, container: role.container, id, address }
    }

    async fn run_post_start_hook(&self, role: PodContainer<'_>, id: &str) -> ActionOutcome {
        let hook = role.container.lifecycle.as_ref().and_then(|it| it.post_start.as_ref());
        let Some(hook) = hook else { return ActionOutcome::Done };
        match self.handler_runner(role, id).run_hook(hook, &self.pod_display_name()).await {
            Ok(()) => ActionOutcome::Done,
            Err(message) => failed_outcome("PostStartHookError", message),
        }
    }

    async fn run_probe(&self, role: PodContainer<'_>, id: &str, kind: ProbeKind) -> ActionOutcome {
        let probe = match kind {
            ProbeKind::Startup => role.container.startup_probe.as_ref(),
            ProbeKind::Liveness => role.container.liveness_probe.as_ref(),
            ProbeKind::Readiness => role.container.readiness_probe.as_ref(),
        };
        let Some(probe) = probe else { return failed_outcome("Unknown", "the container has no such probe") };
        match self.handler_runner(role, id).run_probe(probe).await {
            Ok(answer) => ActionOutcome::Probed { passed: answer.passed, message: answer.message.into() },
            Err(message) => failed_outcome("Unknown", message),
        }
    }

    /// Runs the preStop hook of a container, if `pre_stop` is true, and stops the container with the remaining grace
    /// period. With `pre_stop` this is at least [`GRACE_PERIOD_MIN`], because the hook may have used up the grace
    /// period.
    async fn stop_container(&self, name: &str, id: &str, grace: Duration, pre_stop: bool) -> ActionOutcome {
        let began = Instant::now();
        if pre_stop && let Some(role) = self.pod.container(name) {
            let hook = role.container.lifecycle.as_ref().and_then(|it| it.pre_stop.as_ref());
            if let Some(hook) = hook {
                match tokio::time::timeout(
                    grace,
                    self.handler_runner(role, id).run_hook(hook, &self.pod_display_name()),
                )
                .await
                {
                    Ok(Ok(())) => {}
                    Ok(Err(message)) => self.record_warning("FailedPreStopHook", message),
                    Err(_) => {
                        let seconds = grace.as_secs();
                        self.record_warning(
                            "FailedPreStopHook",
                            format!("PreStop hook did not complete in {seconds}s"),
                        );
                    }
                }
            }
        }
        let remaining = grace.saturating_sub(began.elapsed());
        // The hook may have used up the grace period.
        let remaining = if pre_stop && remaining < GRACE_PERIOD_MIN { GRACE_PERIOD_MIN } else { remaining };
        stop_or_removal_outcome(self.node.runtime.stop_container(id, remaining).await)
    }

    /// Returns the handle for the log files of the pod's containers.
    fn container_logs(&self) -> ContainerLogs<'_> {
        ContainerLogs { config: &self.node.config, pod: &self.pod }
    }

    fn status_writer(&self) -> StatusWriter<'_> {
        StatusWriter { client: &self.node.client, entry: &self.entry, pod: &self.pod }
    }

    /// Formats name, namespace and UID of the pod for messages, as the kubelet does.
    fn pod_display_name(&self) -> String {
        let (name, namespace, uid) = sandbox::pod_ids(&self.pod);
        format!("{name}_{namespace}({uid})")
    }

    /// Records a Kubernetes Event of type Warning about the pod.
    fn record_warning(&self, reason: &'static str, message: String) {
        let (name, namespace, uid) = sandbox::pod_ids(&self.pod);
        let about = ObjectReference::new("v1", "Pod", ObjectKey::new(namespace, name), uid.into(), 0);
        self.node.recorder.record(EventRecord { about, event: KubeEvent::warning(reason, message) });
    }

    /// Removes the cgroup, volumes and directory of a terminated pod, and its logs if `with_logs` is true.
    async fn clean_up_pod(&self, with_logs: bool) -> ActionOutcome {
        let uid = sandbox::pod_ids(&self.pod).2;
        let mut tries = 0;
        while let Err(error) = cgroup::remove_pod_cgroup(&self.node.config.cgroup_parent, uid) {
            tries += 1;
            if tries == CGROUP_REMOVAL_ATTEMPTS_MAX {
                return failed_outcome("FailedCleanUp", format!("remove the pod's cgroup: {error}"));
            }
            tokio::time::sleep(CGROUP_REMOVAL_RETRY_DELAY).await;
        }
        if let Err(error) = self.node.volumes.clean_up_pod(uid).await {
            return failed_outcome("FailedCleanUp", error.to_string());
        }
        if with_logs && let Err(message) = self.container_logs().remove_all_logs() {
            return failed_outcome("FailedCleanUp", message);
        }
        ActionOutcome::Done
    }
}

/// Returns the outcome of a failed action, with this reason and message.
pub(super) fn failed_outcome(reason: &str, message: impl Into<String>) -> ActionOutcome {
    ActionOutcome::Failed { reason: reason.into(), message: message.into().into() }
}

/// Returns the outcome of a call that stops or removes a container or sandbox. A container or sandbox that no longer
/// exists counts as stopped and removed.
fn stop_or_removal_outcome(outcome: Result<(), RuntimeError>) -> ActionOutcome {
    match outcome {
        Ok(()) => ActionOutcome::Done,
        Err(error) if error.is_not_found() => ActionOutcome::Done,
        Err(error) => failed_outcome("KillPodError", error.message),
    }
}

/// Measures how long the start of a pod takes, in total and without the calls to the runtime.
#[derive(Debug, Default)]
pub(super) struct StartTiming {
    /// Time spent in measured calls to the runtime, in microseconds.
    in_runtime_us: AtomicU64,
    /// Whether this agent started a container of the pod.
    has_started: AtomicBool,
    /// Whether `take_start_latency` has already returned the latency.
    is_latency_returned: AtomicBool,
}

impl StartTiming {
    /// Awaits a call to the runtime, and adds its duration to the time spent in the runtime.
    pub(super) async fn measure_call<T>(&self, call: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let outcome = call.await;
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.in_runtime_us.fetch_add(took, Ordering::Relaxed);
        outcome
    }

    /// Returns the start latency of the pod since `begun`, and the part of the latency that was not spent in the
    /// runtime. Returns them only once: at the first call with a running container in `state`, after this agent has
    /// started a container of the pod. Otherwise returns `None`.
    pub(super) fn take_start_latency(
        &self,
        state: &RuntimeState,
        begun: Instant,
        pod: &ObjectKey,
    ) -> Option<(Duration, Duration)> {
        let in_runtime = Duration::from_micros(self.in_runtime_us.load(Ordering::Relaxed));
        let runs = state.containers.iter().any(|it| matches!(it.state, ContainerState::Running { .. }));
        let has_started = self.has_started.load(Ordering::Relaxed);
        if !runs || !has_started || self.is_latency_returned.swap(true, Ordering::Relaxed) {
            return None;
        }
        let all = begun.elapsed();
        let own = all.saturating_sub(in_runtime);
        tracing::debug!(%pod, own_ms = own.as_millis(), all_ms = all.as_millis(), "the first container of the pod runs");
        Some((all, own))
    }
}
