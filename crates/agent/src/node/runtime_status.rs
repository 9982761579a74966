//! Reads the runtime state of a pod: its sandboxes and containers.

use std::collections::BTreeMap;

use muster_engine::kubelet::pod::{Container, ContainerState, RuntimeState, Sandbox};

use super::{Config, container};
use crate::clock::from_runtime_nanos;
use crate::parsed_pod::ParsedPod;
use crate::runtime::{Runtime, RuntimeError, label, v1};

/// Reads the runtime state of one pod. The status of a container is read once while the container runs, and once after
/// its exit. The IP addresses of a sandbox are cached as long as the sandbox exists.
#[derive(Debug, Default)]
pub(super) struct RuntimeStateReader {
    /// The containers whose status was read, by container ID.
    containers: BTreeMap<String, Container>,
    /// IP addresses of sandboxes, by sandbox ID.
    addresses: BTreeMap<String, Vec<String>>,
}

impl RuntimeStateReader {
    /// Reads the sandboxes and containers of the pod. `change_count` is the number of actions that changed sandboxes or
    /// containers of the pod before this read.
    pub(super) async fn read_state<R: Runtime>(
        &mut self,
        runtime: &R,
        config: &Config,
        pod: &ParsedPod,
        change_count: u64,
    ) -> Result<RuntimeState, RuntimeError> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let (sandboxes, containers) =
            (runtime.list_sandboxes(Some(uid)).await?, runtime.list_containers(Some(uid)).await?);
        let mut state = RuntimeState { change_count, ..RuntimeState::default() };
        for it in sandboxes {
            state.sandboxes.extend(self.read_sandbox(runtime, it).await?);
        }
        for it in containers {
            state.containers.extend(self.read_container(runtime, config, pod, it).await?);
        }
        self.containers.retain(|id, _| state.containers.iter().any(|it| *it.id == **id));
        self.addresses.retain(|id, _| state.sandboxes.iter().any(|it| *it.id == **id));
        Ok(state)
    }

    /// Reads one sandbox. Returns `None` if it no longer exists.
    async fn read_sandbox<R: Runtime>(
        &mut self,
        runtime: &R,
        it: v1::PodSandbox,
    ) -> Result<Option<Sandbox>, RuntimeError> {
        let is_ready = it.state == v1::PodSandboxState::SandboxReady as i32;
        if is_ready && !self.addresses.contains_key(&it.id) {
            match runtime.sandbox_status(&it.id).await {
                Ok(status) => drop(self.addresses.insert(it.id.clone(), sandbox_addresses(status))),
                Err(error) if error.is_not_found() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(Sandbox {
            attempt: it.metadata.map_or(0, |it| it.attempt),
            is_ready,
            created: from_runtime_nanos(it.created_at),
            addresses: self
                .addresses
                .get(&it.id)
                .into_iter()
                .flatten()
                .map(|it| it.as_str().into())
                .collect(),
            id: it.id.into(),
        }))
    }

    /// Reads one container. Returns `None` if it no longer exists.
    async fn read_container<R: Runtime>(
        &mut self,
        runtime: &R,
        config: &Config,
        pod: &ParsedPod,
        it: v1::Container,
    ) -> Result<Option<Container>, RuntimeError> {
        let name = it.labels.get(label::CONTAINER_NAME).cloned();
        let (own_name, attempt) = it.metadata.map(|it| (it.name, it.attempt)).unwrap_or_default();
        let mut found = Container {
            sandbox: it.pod_sandbox_id.into(),
            name: name.unwrap_or(own_name).into(),
            attempt,
            hash: it.annotations.get(container::HASH_ANNOTATION).map_or("", |it| it.as_str()).into(),
            image: it.image.map(|it| it.image).unwrap_or_default().into(),
            image_id: it.image_ref.into(),
            state: ContainerState::Unknown,
            id: it.id.as_str().into(),
        };
        let is_running = it.state == v1::ContainerState::ContainerRunning as i32;
        if it.state == v1::ContainerState::ContainerCreated as i32 {
            found.state = ContainerState::Created;
            return Ok(Some(found));
        }
        if !is_running && it.state != v1::ContainerState::ContainerExited as i32 {
            return Ok(Some(found));
        }
        let is_unchanged = |cached: &Container| match cached.state {
            ContainerState::Running { .. } => is_running,
            ContainerState::Exited { .. } => !is_running,
            _ => false,
        };
        if let Some(cached) = self.containers.get(&it.id).filter(|it| is_unchanged(it)) {
            return Ok(Some(cached.clone()));
        }
        let status = match runtime.container_status(&it.id).await {
            Ok(status) => status,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        if let Some(image) = status.image.map(|it| it.image).filter(|it| !it.is_empty()) {
            found.image = image.into();
        }
        if !status.image_ref.is_empty() {
            found.image_id = status.image_ref.into();
        }
        // The state may have changed since the list.
        found.state = if status.state == v1::ContainerState::ContainerRunning as i32 {
            ContainerState::Running { since: from_runtime_nanos(status.started_at) }
        } else if status.state == v1::ContainerState::ContainerExited as i32 {
            let mut message = status.message;
            let termination_message =
                container::termination_message(config, pod, &found.name, attempt, status.exit_code != 0);
            if !message.is_empty() && !termination_message.is_empty() {
                message += ": ";
            }
            message += &termination_message;
            ContainerState::Exited {
                code: status.exit_code,
                reason: status.reason.into(),
                message: message.into(),
                started: from_runtime_nanos(status.started_at),
                finished: from_runtime_nanos(status.finished_at),
            }
        } else {
            ContainerState::Unknown
        };
        self.containers.insert(it.id, found.clone());
        Ok(Some(found))
    }
}

/// Returns the IP addresses of a sandbox, the primary address first.
fn sandbox_addresses(status: v1::PodSandboxStatus) -> Vec<String> {
    let network = status.network.unwrap_or_default();
    let more = network.additional_ips.into_iter().map(|it| it.ip);
    std::iter::once(network.ip).chain(more).filter(|it| !it.is_empty()).collect()
}
