//! Decodes the fields of a pod's API object that the node's decisions depend on.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::image_reference::default_pull_policy;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use serde::Deserialize;
use serde_json::Value;

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
    /// The `volumeMounts` of the container, which are part of the container's status.
    pub mounts: Vec<Value>,
}

impl ContainerSpec {
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

/// When a probe runs, and after how many consecutive equal results it counts as failed or passed.
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

impl PodObject {
    /// Decodes a pod's API object from JSON text.
    pub fn parse(json: &[u8]) -> Result<Self, Malformed> {
        serde_json::from_slice(json).map(Self::from_wire).map_err(|it| Malformed::new("pods", it))
    }

    /// Decodes a pod's API object from parsed JSON.
    pub fn from_value(object: &Value) -> Result<Self, Malformed> {
        WirePod::deserialize(object).map(Self::from_wire).map_err(|it| Malformed::new("pods", it))
    }

    /// Converts the JSON of a pod to a [`PodObject`], with defaults for absent fields.
    fn from_wire(WirePod { metadata, spec, status }: WirePod) -> Self {
        let source =
            metadata.annotations.get(crate::kubelet::static_pod::SOURCE_ANNOTATION).map(String::as_str);
        let grace = duration_from_seconds(spec.termination_grace_period_seconds.unwrap_or(30));
        let deletion = metadata.deletion_timestamp.is_some();
        let deletion_grace = metadata.deletion_grace_period_seconds.map_or(grace, duration_from_seconds);
        let restart = parse_restart_policy(spec.restart_policy.as_deref());
        let role = |it: &WireContainer| match it.restart_policy.as_deref() {
            Some("Always") => ContainerRole::Sidecar,
            _ => ContainerRole::Init,
        };
        let mut positions = 0..;
        let mut container = |it: WireContainer, role, restart| {
            it.into_container_spec(positions.next().unwrap_or_default(), role, restart)
        };
        let init = spec.init_containers.into_iter().map(|it| {
            let role = role(&it);
            container(
                it,
                role,
                if role == ContainerRole::Sidecar {
                    RestartPolicy::Always
                } else {
                    init_restart_policy(restart)
                },
            )
        });
        let init = init.collect();
        let main =
            spec.containers.into_iter().map(|it| container(it, ContainerRole::Main, restart)).collect();
        let ephemeral = spec.ephemeral_containers.into_iter();
        let ephemeral =
            ephemeral.map(|it| container(it, ContainerRole::Ephemeral, RestartPolicy::Never)).collect();
        Self {
            key: ObjectKey::new(metadata.namespace.unwrap_or_else(|| "default".into()), metadata.name),
            uid: metadata.uid.into(),
            resource_version: metadata.resource_version.and_then(|it| it.parse().ok()).unwrap_or(0),
            generation: metadata.generation.unwrap_or(0),
            is_static: source.is_some_and(|it| it != "api"),
            deletion_grace: deletion.then_some(deletion_grace),
            spec: Spec {
                restart,
                grace,
                deadline: spec.active_deadline_seconds.map(duration_from_seconds),
                on_host_network: spec.host_network.unwrap_or(false),
                gates: spec.readiness_gates.into_iter().map(|it| it.condition_type.into()).collect(),
                init,
                main,
                ephemeral,
            },
            status: status.unwrap_or(Value::Null),
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

/// Parses an `imagePullPolicy`. If it is absent or unknown, it is the default for `image`.
fn parse_pull_policy(policy: Option<&str>, image: &str) -> ImagePullPolicy {
    match policy {
        Some("Always") => ImagePullPolicy::Always,
        Some("Never") => ImagePullPolicy::Never,
        Some("IfNotPresent") => ImagePullPolicy::IfNotPresent,
        _ => parse_pull_policy(Some(default_pull_policy(image)), image),
    }
}

/// A pod as sent in JSON, with the fields that the node reads. The other `Wire…` types are parts of it.
#[derive(Deserialize)]
struct WirePod {
    #[serde(default)]
    metadata: WireMetadata,
    #[serde(default)]
    spec: WireSpec,
    #[serde(default)]
    status: Option<Value>,
}

/// The `metadata` of a pod.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireMetadata {
    name: String,
    namespace: Option<String>,
    uid: String,
    resource_version: Option<String>,
    generation: Option<i64>,
    #[serde(deserialize_with = "null_as_default")]
    annotations: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
}

/// The `spec` of a pod.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    restart_policy: Option<String>,
    termination_grace_period_seconds: Option<i64>,
    active_deadline_seconds: Option<i64>,
    host_network: Option<bool>,
    #[serde(deserialize_with = "null_as_default")]
    readiness_gates: Vec<WireReadinessGate>,
    #[serde(deserialize_with = "null_as_default")]
    init_containers: Vec<WireContainer>,
    #[serde(deserialize_with = "null_as_default")]
    containers: Vec<WireContainer>,
    #[serde(deserialize_with = "null_as_default")]
    ephemeral_containers: Vec<WireContainer>,
}

/// An element of `readinessGates`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireReadinessGate {
    #[serde(default)]
    condition_type: String,
}

/// A container of any of the three container lists.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireContainer {
    name: String,
    image: Option<String>,
    image_pull_policy: Option<String>,
    restart_policy: Option<String>,
    resources: Option<Value>,
    #[serde(deserialize_with = "null_as_default")]
    volume_mounts: Vec<Value>,
    lifecycle: Option<WireLifecycle>,
    startup_probe: Option<WireProbe>,
    liveness_probe: Option<WireProbe>,
    readiness_probe: Option<WireProbe>,
}

/// The `lifecycle` of a container: its hooks.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireLifecycle {
    post_start: Option<Value>,
    pre_stop: Option<Value>,
}

/// A probe of a container.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct WireProbe {
    initial_delay_seconds: Option<i64>,
    period_seconds: Option<i64>,
    failure_threshold: Option<i64>,
    success_threshold: Option<i64>,
    termination_grace_period_seconds: Option<i64>,
}

impl WireContainer {
    /// Returns the decoded container. `position` is its [`ContainerSpec::position`].
    fn into_container_spec(
        self,
        position: usize,
        role: ContainerRole,
        restart: RestartPolicy,
    ) -> ContainerSpec {
        let image = self.image.unwrap_or_default();
        // Init and ephemeral containers have neither probes nor hooks.
        let is_probed = matches!(role, ContainerRole::Main | ContainerRole::Sidecar);
        let probe = |it: Option<WireProbe>| it.filter(|_| is_probed).map(WireProbe::into_probe);
        let lifecycle = self.lifecycle.filter(|_| is_probed).unwrap_or_default();
        ContainerSpec {
            position,
            name: self.name.into(),
            pull: parse_pull_policy(self.image_pull_policy.as_deref(), &image),
            image: image.into(),
            role,
            restart,
            has_post_start: lifecycle.post_start.is_some_and(|it| !it.is_null()),
            has_pre_stop: lifecycle.pre_stop.is_some_and(|it| !it.is_null()),
            startup: probe(self.startup_probe),
            liveness: probe(self.liveness_probe),
            readiness: probe(self.readiness_probe),
            resources: self.resources.unwrap_or(Value::Null),
            mounts: self.volume_mounts,
        }
    }
}

impl WireProbe {
    /// Returns the decoded probe, with defaults for absent fields.
    fn into_probe(self) -> Probe {
        let count = |it: Option<i64>, or: u32| it.and_then(|it| u32::try_from(it).ok()).unwrap_or(or).max(1);
        Probe {
            initial_delay: duration_from_seconds(self.initial_delay_seconds.unwrap_or(0)),
            period: duration_from_seconds(self.period_seconds.unwrap_or(10)).max(Duration::from_secs(1)),
            failures_max: count(self.failure_threshold, 3),
            successes_min: count(self.success_threshold, 1),
            grace: self.termination_grace_period_seconds.map(duration_from_seconds),
        }
    }
}

/// Deserializes a field that may be `null`. Like an absent field, `null` becomes the default value.
fn null_as_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// Parses a timestamp in a pod's status. `None` if it is absent or invalid.
pub(super) fn parse_time(value: &Value) -> Option<Time> {
    value.as_str().and_then(Time::parse)
}
use crate::controller::Malformed;
