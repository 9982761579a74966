//! API types of pods and pod templates.

use alloc::vec::Vec;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Affinity, ConditionStatus, PodPhase, TopologySpreadConstraint};
use crate::interner::Interner;
use crate::json::{QuantityText, Str, StrMap};
use crate::meta_v1::ObjectMeta;
use crate::taints;

/// Upstream: `v1.Pod`. The types of the containers and of the container statuses are type parameters. A caller that
/// does not need them skips them with [`IgnoredAny`], because they are the largest part of a pod.
#[derive(Deserialize, Clone, Debug)]
pub struct Pod<'a, C = Container<'a>, S = ContainerStatus<'a>> {
    #[serde(borrow, default)]
    pub metadata: ObjectMeta<'a>,
    #[serde(borrow)]
    pub spec: Option<PodSpec<'a, C>>,
    #[serde(borrow)]
    pub status: Option<PodStatus<'a, S>>,
}

/// A pod whose containers and container statuses are skipped.
pub type PodWithoutContainers<'a> = Pod<'a, IgnoredAny, IgnoredAny>;

/// A pod whose container statuses are skipped.
pub type PodWithoutContainerStatuses<'a> = Pod<'a, Container<'a>, IgnoredAny>;

/// Upstream: `v1.PodTemplateSpec`.
#[derive(Deserialize, Clone, Debug, Default)]
pub struct PodTemplateSpec<'a, C = Container<'a>> {
    #[serde(borrow)]
    pub metadata: Option<ObjectMeta<'a>>,
    #[serde(borrow)]
    pub spec: Option<PodSpec<'a, C>>,
}

/// Upstream: `v1.PodSpec`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec<'a, C = Container<'a>> {
    #[serde(borrow)]
    pub node_name: Option<Str<'a>>,
    #[serde(borrow)]
    pub node_selector: Option<StrMap<'a>>,
    #[serde(borrow)]
    pub affinity: Option<Affinity<'a>>,
    #[serde(borrow)]
    pub tolerations: Option<Vec<Toleration<'a>>>,
    #[serde(borrow)]
    pub topology_spread_constraints: Option<Vec<TopologySpreadConstraint<'a>>>,
    #[serde(borrow)]
    pub scheduler_name: Option<Str<'a>>,
    pub scheduling_gates: Option<Vec<IgnoredAny>>,
    pub priority: Option<i32>,
    #[serde(borrow)]
    pub preemption_policy: Option<Str<'a>>,
    #[serde(borrow)]
    pub restart_policy: Option<Str<'a>>,
    pub termination_grace_period_seconds: Option<i64>,
    pub active_deadline_seconds: Option<i64>,
    #[serde(borrow)]
    pub readiness_gates: Option<Vec<PodReadinessGate<'a>>>,
    #[serde(borrow)]
    pub os: Option<PodOs<'a>>,
    #[serde(borrow)]
    pub runtime_class_name: Option<Str<'a>>,
    #[serde(borrow)]
    pub security_context: Option<PodSecurityContext<'a>>,
    #[serde(rename = "hostIPC")]
    pub host_ipc: Option<bool>,
    pub host_network: Option<bool>,
    #[serde(borrow)]
    pub hostname: Option<Str<'a>>,
    #[serde(borrow)]
    pub subdomain: Option<Str<'a>>,
    #[serde(borrow)]
    pub resources: Option<ResourceRequirements<'a>>,
    #[serde(borrow)]
    pub overhead: Option<ResourceList<'a>>,
    pub init_containers: Option<Vec<C>>,
    pub containers: Option<Vec<C>>,
    pub ephemeral_containers: Option<Vec<C>>,
}

impl<'a> PodSpec<'a> {
    /// Returns the regular containers, and then the sidecars.
    pub fn long_running_containers(&self) -> impl Iterator<Item = &Container<'a>> {
        let sidecars = self.init_containers.iter().flatten().filter(|it| it.is_sidecar());
        self.containers.iter().flatten().chain(sidecars)
    }
}

/// Upstream: `v1.Toleration`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Toleration<'a> {
    #[serde(borrow)]
    pub key: Option<Str<'a>>,
    #[serde(borrow)]
    pub operator: Option<Str<'a>>,
    #[serde(borrow)]
    pub value: Option<Str<'a>>,
    #[serde(borrow)]
    pub effect: Option<Str<'a>>,
    pub toleration_seconds: Option<i64>,
}

impl Toleration<'_> {
    /// Converts the toleration of the API object into a [`taints::Toleration`] with interned strings.
    pub fn intern(&self, interner: &mut Interner) -> taints::Toleration {
        let key = interner.intern_text(self.key.as_deref().unwrap_or_default());
        let value = || interner.intern_text(self.value.as_deref().unwrap_or_default());
        let operator = self.operator.as_deref().unwrap_or_default();
        taints::Toleration::new(key, operator, value, self.effect.as_deref().unwrap_or_default())
    }
}

/// Upstream: `v1.PodReadinessGate`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct PodReadinessGate<'a> {
    #[serde(borrow)]
    pub condition_type: Option<Str<'a>>,
}

/// Upstream: `v1.PodOS`.
#[derive(Deserialize, Clone, Debug)]
pub struct PodOs<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
}

/// Upstream: `v1.PodSecurityContext`.
#[derive(Deserialize, Clone, Debug)]
pub struct PodSecurityContext<'a> {
    #[serde(borrow)]
    pub sysctls: Option<Vec<Sysctl<'a>>>,
}

/// Upstream: `v1.Sysctl`.
#[derive(Deserialize, Clone, Debug)]
pub struct Sysctl<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
}

/// A container of any of the three lists of containers. Upstream: `v1.Container`, `v1.EphemeralContainer`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct Container<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    #[serde(borrow)]
    pub image: Option<Str<'a>>,
    #[serde(borrow)]
    pub image_pull_policy: Option<Str<'a>>,
    #[serde(borrow)]
    pub restart_policy: Option<Str<'a>>,
    #[serde(borrow)]
    pub resources: Option<ResourceRequirements<'a>>,
    #[serde(borrow)]
    pub ports: Option<Vec<ContainerPort<'a>>>,
    #[serde(borrow)]
    pub volume_mounts: Option<Vec<VolumeMount<'a>>>,
    pub lifecycle: Option<Lifecycle>,
    pub startup_probe: Option<Probe>,
    pub liveness_probe: Option<Probe>,
    pub readiness_probe: Option<Probe>,
}

impl Container<'_> {
    /// Whether an init container is a sidecar, see [`is_sidecar_policy`].
    pub fn is_sidecar(&self) -> bool {
        is_sidecar_policy(self.restart_policy.as_deref())
    }
}

/// Whether an init container with this `restartPolicy` is a sidecar, which runs as long as the pod. `None` if the init
/// container has no `restartPolicy`. Upstream: `IsRestartableInitContainer`.
pub fn is_sidecar_policy(restart_policy: Option<&str>) -> bool {
    restart_policy == Some("Always")
}

/// Quantities by resource name. Upstream: `v1.ResourceList`.
pub type ResourceList<'a> = StrMap<'a, QuantityText<'a>>;

/// Upstream: `v1.ResourceRequirements`.
#[derive(Deserialize, Clone, Debug, Default)]
pub struct ResourceRequirements<'a> {
    #[serde(borrow)]
    pub requests: Option<ResourceList<'a>>,
}

/// Upstream: `v1.ContainerPort`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPort<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    #[serde(borrow)]
    pub protocol: Option<Str<'a>>,
    pub container_port: Option<i64>,
    pub host_port: Option<i64>,
    #[serde(borrow, rename = "hostIP")]
    pub host_ip: Option<Str<'a>>,
}

/// Upstream: `v1.VolumeMount`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMount<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    #[serde(borrow)]
    pub mount_path: Option<Str<'a>>,
    pub read_only: Option<bool>,
}

/// Upstream: `v1.Lifecycle`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    pub post_start: Option<LifecycleHandler>,
    pub pre_stop: Option<LifecycleHandler>,
}

/// A hook of a container, whose fields are skipped. Upstream: `v1.LifecycleHandler`.
#[derive(Deserialize, Clone, Copy, Debug)]
pub struct LifecycleHandler {}

/// Upstream: `v1.Probe`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct Probe {
    pub initial_delay_seconds: Option<i64>,
    pub period_seconds: Option<i64>,
    pub failure_threshold: Option<i64>,
    pub success_threshold: Option<i64>,
    pub termination_grace_period_seconds: Option<i64>,
}

/// Upstream: `v1.PodStatus`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct PodStatus<'a, S = ContainerStatus<'a>> {
    #[serde(borrow)]
    pub phase: Option<Str<'a>>,
    #[serde(borrow)]
    pub reason: Option<Str<'a>>,
    #[serde(borrow)]
    pub message: Option<Str<'a>>,
    #[serde(borrow)]
    pub start_time: Option<Str<'a>>,
    #[serde(borrow)]
    pub nominated_node_name: Option<Str<'a>>,
    #[serde(borrow, rename = "podIPs")]
    pub pod_ips: Option<Vec<PodIp<'a>>>,
    #[serde(borrow)]
    pub conditions: Option<Vec<PodCondition<'a>>>,
    pub init_container_statuses: Option<Vec<S>>,
    pub container_statuses: Option<Vec<S>>,
}

impl<'a, S> PodStatus<'a, S> {
    /// Returns the condition of this type, or `None` if the pod does not have it.
    pub fn condition(&self, type_: &str) -> Option<&PodCondition<'a>> {
        self.conditions.iter().flatten().find(|it| it.type_.as_deref() == Some(type_))
    }

    /// Returns the phase, or `Pending` if it is absent, invalid or the deprecated `Unknown`.
    pub fn phase(&self) -> PodPhase {
        PodPhase::parse(self.phase.as_deref().unwrap_or_default())
    }

    /// Whether the pod succeeded or failed. Upstream: `IsPodTerminal`.
    pub fn is_terminal(&self) -> bool {
        self.phase().is_terminal()
    }
}

/// Upstream: `v1.PodIP`.
#[derive(Deserialize, Clone, Debug)]
pub struct PodIp<'a> {
    #[serde(borrow)]
    pub ip: Option<Str<'a>>,
}

/// Upstream: `v1.PodCondition`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct PodCondition<'a> {
    #[serde(borrow, rename = "type")]
    pub type_: Option<Str<'a>>,
    #[serde(borrow)]
    pub status: Option<Str<'a>>,
    #[serde(borrow)]
    pub reason: Option<Str<'a>>,
    #[serde(borrow)]
    pub message: Option<Str<'a>>,
    #[serde(borrow)]
    pub last_transition_time: Option<Str<'a>>,
}

impl PodCondition<'_> {
    /// Whether the status of the condition is True.
    pub fn is_true(&self) -> bool {
        self.status() == ConditionStatus::True
    }

    /// Whether the status of the condition is False. Returns `false` if the status is Unknown.
    pub fn is_false(&self) -> bool {
        self.status() == ConditionStatus::False
    }

    /// Returns the status of the condition, or `Unknown` if it is absent or invalid.
    fn status(&self) -> ConditionStatus {
        ConditionStatus::parse(self.status.as_deref().unwrap_or_default())
    }
}

/// Upstream: `v1.ContainerStatus`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus<'a> {
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    pub ready: Option<bool>,
    pub started: Option<bool>,
    pub restart_count: Option<i64>,
    #[serde(borrow)]
    pub state: Option<ContainerState<'a>>,
    #[serde(borrow)]
    pub last_state: Option<ContainerState<'a>>,
}

/// Upstream: `v1.ContainerState`.
#[derive(Deserialize, Clone, Debug)]
pub struct ContainerState<'a> {
    #[serde(borrow)]
    pub waiting: Option<ContainerStateWaiting<'a>>,
    #[serde(borrow)]
    pub running: Option<ContainerStateRunning<'a>>,
    #[serde(borrow)]
    pub terminated: Option<ContainerStateTerminated<'a>>,
}

/// Upstream: `v1.ContainerStateWaiting`.
#[derive(Deserialize, Clone, Debug)]
pub struct ContainerStateWaiting<'a> {
    #[serde(borrow)]
    pub reason: Option<Str<'a>>,
    #[serde(borrow)]
    pub message: Option<Str<'a>>,
}

/// Upstream: `v1.ContainerStateRunning`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStateRunning<'a> {
    #[serde(borrow)]
    pub started_at: Option<Str<'a>>,
}

/// Upstream: `v1.ContainerStateTerminated`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStateTerminated<'a> {
    pub exit_code: Option<i64>,
    #[serde(borrow)]
    pub reason: Option<Str<'a>>,
    #[serde(borrow)]
    pub message: Option<Str<'a>>,
}
