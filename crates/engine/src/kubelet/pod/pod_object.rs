//! Decodes the fields of a pod's API object that the node's decisions depend on.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::core_v1::{self, PodWithoutContainerStatuses};
use muster_api::image_reference::default_pull_policy;
use muster_api::json::{self, Str};
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::DEFAULT_TERMINATION_GRACE_PERIOD_S;
use serde::Deserialize;
use serde_json::Value;

use crate::controller::Malformed;
use crate::kubelet::static_pod;

/// A pod's API object, decoded once: the fields that the node's decisions depend on.
#[derive(Clone, Debug)]
pub struct PodObject {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub generation: i64,
    /// Whether the pod is a static pod: it comes from a manifest on the node, not from the API server.
    pub is_static: bool,
    /// The `deletionGracePeriodSeconds`, or the pod's own grace period if absent. The node counts the grace period from
    /// the time at which it first sees the deletion. `None` if the pod is not being deleted.
    pub deletion_grace: Option<Duration>,
    pub spec: Spec,
    /// The pod's status on the API server, as JSON. `Null` if it has none.
    pub status: Value,
}

/// The fields of a pod's spec that the node's decisions depend on.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// The pod's `restartPolicy`.
    pub restart: RestartPolicy,
    /// The pod's `terminationGracePeriodSeconds`; 30 seconds if absent.
    pub grace: Duration,
    /// The pod's `activeDeadlineSeconds`. `None` if the pod has no active deadline.
    pub deadline: Option<Duration>,
    /// Whether the pod uses the node's network (`hostNetwork`).
    pub on_host_network: bool,
    /// Types of the pod conditions that the `readinessGates` name.
    pub gates: Vec<Text>,
    /// The `initContainers` of the pod, including sidecars.
    pub init: Vec<ContainerSpec>,
    /// The `containers` of the pod.
    pub main: Vec<ContainerSpec>,
    /// The `ephemeralContainers` of the pod.
    pub ephemeral: Vec<ContainerSpec>,
}

/// The `restartPolicy` of a pod or container: whether a container is restarted after it has exited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum RestartPolicy {
    #[default]
    Always,
    OnFailure,
    Never,
}

/// The role of a container in its pod: init container, sidecar, main or ephemeral container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ContainerRole {
    /// An init container, which runs to completion before the next container starts.
    Init,
    /// An init container with `restartPolicy: Always`, which starts in order and keeps running.
    Sidecar,
    /// A main container, which is listed in `spec.containers`.
    Main,
    /// An ephemeral container, which is added to a running pod to debug it.
    Ephemeral,
}

/// A container of a pod's spec. Hooks and probes of ephemeral containers, and of init containers that are not sidecars,
/// are ignored.
#[derive(Clone, Debug)]
pub struct ContainerSpec {
    /// Index of the container among all containers of the pod's spec: first the init containers, then the main
    /// containers, then the ephemeral containers.
    pub position: usize,
    pub name: Text,
    pub image: Text,
    /// The `imagePullPolicy` of the container.
    pub pull: ImagePullPolicy,
    pub role: ContainerRole,
    /// The restart policy of this container, from its role and the pod's `restartPolicy`.
    pub restart: RestartPolicy,
    pub has_post_start: bool,
    pub has_pre_stop: bool,
    /// The `startupProbe` of the container. `None` if it has none.
    pub startup: Option<Probe>,
    /// The `livenessProbe` of the container. `None` if it has none.
    pub liveness: Option<Probe>,
    /// The `readinessProbe` of the container. `None` if it has none.
    pub readiness: Option<Probe>,
    /// The `resources` of the container, which are part of the container's status.
    pub resources: Value,
    /// The `volumeMounts` of the container.
    pub mounts: Vec<VolumeMount>,
}

/// A volume mount of a container, which is part of the container's status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeMount {
    /// Name of the volume.
    pub name: Text,
    /// The `mountPath` of the volume in the container.
    pub path: Text,
    pub is_read_only: bool,
}

impl ContainerSpec {
    /// Converts a decoded container, with defaults for absent fields. `position` is its [`Self::position`].
    /// `pod_restart` is the restart policy of the pod. `resources` are the `resources` of the container as JSON.
    fn from_container(
        container: &core_v1::Container<'_>,
        position: usize,
        role: ContainerRole,
        pod_restart: RestartPolicy,
        resources: Value,
    ) -> Self {
        let image = text_of(&container.image);
        // Init containers that are not sidecars, and ephemeral containers, have neither probes nor hooks.
        let is_probed = matches!(role, ContainerRole::Main | ContainerRole::Sidecar);
        let probe = |it: &Option<core_v1::Probe>| it.as_ref().filter(|_| is_probed).map(Probe::from_probe);
        let lifecycle = container.lifecycle.as_ref().filter(|_| is_probed);
        let mounts = container.volume_mounts.iter().flatten().map(|it| VolumeMount {
            name: text_of(&it.name),
            path: text_of(&it.mount_path),
            is_read_only: it.read_only.unwrap_or(false),
        });
        Self {
            position,
            name: text_of(&container.name),
            pull: parse_pull_policy(container.image_pull_policy.as_deref(), &image),
            image,
            role,
            restart: match role {
                ContainerRole::Init => init_restart_policy(pod_restart),
                ContainerRole::Sidecar => RestartPolicy::Always,
                ContainerRole::Main => pod_restart,
                ContainerRole::Ephemeral => RestartPolicy::Never,
            },
            has_post_start: lifecycle.is_some_and(|it| it.post_start.is_some()),
            has_pre_stop: lifecycle.is_some_and(|it| it.pre_stop.is_some()),
            startup: probe(&container.startup_probe),
            liveness: probe(&container.liveness_probe),
            readiness: probe(&container.readiness_probe),
            resources,
            mounts: mounts.collect(),
        }
    }

    /// Returns the probe of this kind. `None` if the container has none.
    pub(super) fn probe(&self, kind: super::ProbeKind) -> Option<&Probe> {
        match kind {
            super::ProbeKind::Startup => self.startup.as_ref(),
            super::ProbeKind::Liveness => self.liveness.as_ref(),
            super::ProbeKind::Readiness => self.readiness.as_ref(),
        }
    }

    /// Returns a hash of the container's name and image. A running container that was started with another hash is
    /// restarted.
    pub(super) fn hash(&self) -> Text {
        /// Offset basis of the 64-bit FNV-1a hash.
        const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        /// Prime of the 64-bit FNV-1a hash.
        const FNV_PRIME: u64 = 0x0100_0000_01b3;
        let bytes = self.name.bytes().chain([0]).chain(self.image.bytes());
        let hash = bytes.fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
        format!("{hash:016x}").into()
    }
}

/// The `imagePullPolicy` of a container: when its image is pulled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImagePullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// When a probe runs, after how many consecutive equal results it counts as failed or passed, and the grace period of a
/// container that it kills.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// The `initialDelaySeconds` of the probe, as a duration.
    pub initial_delay: Duration,
    /// The `periodSeconds` of the probe, as a duration.
    pub period: Duration,
    /// The `failureThreshold`: number of consecutive failures after which the probe counts as failed.
    pub failures_max: u32,
    /// The `successThreshold`: number of consecutive successes after which the probe counts as passed.
    pub successes_min: u32,
    /// The `terminationGracePeriodSeconds` of the probe: grace period of a container that this probe kills. `None`
    /// means the grace period of the pod.
    pub grace: Option<Duration>,
}

impl Probe {
    /// Converts a decoded probe, with defaults for absent fields.
    fn from_probe(probe: &core_v1::Probe) -> Self {
        let count = |it: Option<i64>, or: u32| it.and_then(|it| u32::try_from(it).ok()).unwrap_or(or).max(1);
        Self {
            initial_delay: duration_from_seconds(probe.initial_delay_seconds.unwrap_or(0)),
            period: duration_from_seconds(probe.period_seconds.unwrap_or(10)).max(Duration::from_secs(1)),
            failures_max: count(probe.failure_threshold, 3),
            successes_min: count(probe.success_threshold, 1),
            grace: probe.termination_grace_period_seconds.map(duration_from_seconds),
        }
    }
}

impl PodObject {
    /// Decodes a pod's API object from JSON text.
    pub fn parse(json: &[u8]) -> Result<Self, Malformed> {
        let object: Value = json::from_slice(json).map_err(|it| Malformed::new("pods", it))?;
        Self::from_value(&object)
    }

    /// Decodes a pod's API object from parsed JSON.
    pub fn from_value(object: &Value) -> Result<Self, Malformed> {
        let pod =
            PodWithoutContainerStatuses::deserialize(object).map_err(|it| Malformed::new("pods", it))?;
        Ok(Self::from_pod(&pod, object))
    }

    /// Converts a decoded pod to a [`PodObject`], with defaults for absent fields. `object` is the JSON from which
    /// `pod` was decoded. The pod's status and the `resources` of its containers are copied from it.
    pub fn from_pod(pod: &PodWithoutContainerStatuses<'_>, object: &Value) -> Self {
        let no_spec = core_v1::PodSpec::default();
        let (meta, spec) = (&pod.metadata, pod.spec.as_ref().unwrap_or(&no_spec));
        let grace = duration_from_seconds(
            spec.termination_grace_period_seconds.unwrap_or(DEFAULT_TERMINATION_GRACE_PERIOD_S),
        );
        let deletion_grace = meta.deletion_grace_period_seconds.map_or(grace, duration_from_seconds);
        let restart = parse_restart_policy(spec.restart_policy.as_deref());
        let mut positions = 0..;
        let mut containers =
            |field: &str, list: &Option<Vec<core_v1::Container<'_>>>, role: ContainerRole| {
                let list = list.iter().flatten().enumerate().map(|(index, container)| {
                    let is_sidecar = role == ContainerRole::Init && container.is_sidecar();
                    let role = if is_sidecar { ContainerRole::Sidecar } else { role };
                    let resources = object["spec"][field][index]["resources"].clone();
                    let position = positions.next().unwrap_or_default();
                    ContainerSpec::from_container(container, position, role, restart, resources)
                });
                list.collect::<Vec<_>>()
            };
        let init = containers("initContainers", &spec.init_containers, ContainerRole::Init);
        let main = containers("containers", &spec.containers, ContainerRole::Main);
        let ephemeral =
            containers("ephemeralContainers", &spec.ephemeral_containers, ContainerRole::Ephemeral);
        let gates = spec.readiness_gates.iter().flatten();
        Self {
            key: ObjectKey::new(meta.namespace.as_deref().unwrap_or("default"), meta.name()),
            uid: meta.uid(),
            resource_version: meta.resource_version(),
            generation: meta.generation(),
            is_static: static_pod::is_static(meta),
            deletion_grace: meta.is_deleting().then_some(deletion_grace),
            spec: Spec {
                restart,
                grace,
                deadline: spec.active_deadline_seconds.map(duration_from_seconds),
                on_host_network: spec.host_network.unwrap_or(false),
                gates: gates.map(|it| text_of(&it.condition_type)).collect(),
                init,
                main,
                ephemeral,
            },
            status: object["status"].clone(),
        }
    }
}

impl Spec {
    /// Returns all containers of the spec: init, main and ephemeral containers, in this order.
    pub fn all_containers(&self) -> impl Iterator<Item = &ContainerSpec> {
        self.init.iter().chain(&self.main).chain(&self.ephemeral)
    }

    /// Returns the container with this name. `None` if the spec has no such container.
    pub fn find_container(&self, name: &str) -> Option<&ContainerSpec> {
        self.all_containers().find(|it| *it.name == *name)
    }

    /// Returns the init containers that are sidecars, in the order of the spec.
    pub(super) fn sidecars(&self) -> impl DoubleEndedIterator<Item = &ContainerSpec> {
        self.init.iter().filter(|it| it.role == ContainerRole::Sidecar)
    }
}

/// Returns the restart policy of an init container. `restart` is the policy of the pod.
///
/// Rule: an init container that succeeded is not restarted, whatever the pod's restart policy. An init container that
/// failed is restarted, unless the policy is Never.
fn init_restart_policy(restart: RestartPolicy) -> RestartPolicy {
    if restart == RestartPolicy::Never { RestartPolicy::Never } else { RestartPolicy::OnFailure }
}

/// Parses a `restartPolicy`. The default is Always.
fn parse_restart_policy(policy: Option<&str>) -> RestartPolicy {
    match policy {
        Some("OnFailure") => RestartPolicy::OnFailure,
        Some("Never") => RestartPolicy::Never,
        _ => RestartPolicy::Always,
    }
}

/// Converts a number of seconds to a duration. A negative number becomes zero.
fn duration_from_seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}

/// Parses an `imagePullPolicy`. An absent or unknown policy becomes the default for `image`.
fn parse_pull_policy(policy: Option<&str>, image: &str) -> ImagePullPolicy {
    match policy {
        Some("Always") => ImagePullPolicy::Always,
        Some("Never") => ImagePullPolicy::Never,
        Some("IfNotPresent") => ImagePullPolicy::IfNotPresent,
        _ => parse_pull_policy(Some(default_pull_policy(image)), image),
    }
}

/// Returns a text field. Empty if it is absent.
fn text_of(field: &Option<Str<'_>>) -> Text {
    field.as_deref().unwrap_or_default().into()
}

/// Parses a timestamp in a pod's status. `None` if it is absent or invalid.
pub(super) fn parse_time(value: &Value) -> Option<Time> {
    value.as_str().and_then(Time::parse)
}
