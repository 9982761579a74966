//! [`PodStateMachine`]: one pod on its node. It decides the next actions from the API object and the runtime state.
//!
//! ```text
//! object, RuntimeState, outcomes -> PodStateMachine -> PodSync: actions, events, wake_at
//! ```
//!
//! The agent owns one [`PodStateMachine`] per UID. The agent passes in the API object as the watch delivers it
//! ([`PodStateMachine::update_object`]), and the outcome of each action ([`PodStateMachine::apply_outcome`]). It also passes in the state of
//! the pod in the runtime ([`PodStateMachine::update_runtime_state`]): once at the start, after each action that changed the
//! runtime, and whenever that state may have changed. [`PodStateMachine::sync`] returns actions, which the agent executes
//! concurrently. After a restart of the agent, a new `PodStateMachine` is built from the API object and the runtime state, and
//! continues where the previous `PodStateMachine` was. State that is only in memory, such as backoffs and counts of probe results,
//! starts again.

/// Decides whether the node admits a pod.
pub mod admission;
/// The delays before failed actions, image pulls and container restarts are tried again.
mod backoff;
/// Starts containers: crash backoff, image pull and container start.
mod container_start;
/// Decodes the pod's API object.
mod pod_object;
/// Tracks hooks, probes and readiness of one container instance in the runtime.
mod running_container;
/// Computes the pod's status.
mod status;
/// Issues the next actions of a pod that is not terminating.
mod sync;
/// Issues the next actions of a terminating pod: stops its containers and cleans up.
mod termination;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use muster_api::core_v1::PodPhase;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::{Time, earliest};
use serde_json::Value;

use self::backoff::ActionBackoffs;
use self::container_start::StartHistory;
pub use self::pod_object::{
    ContainerRole, ContainerSpec, ImagePullPolicy, PodObject, Probe, RestartPolicy, Spec,
};
use self::running_container::RunningContainer;
use super::wall_clock::WallClock;
use crate::controller::{BackoffPolicy, EventRecord, KubeEvent, ObjectReference};

/// The addresses, the runtime and the wall clock of a node, which the status of each of its pods depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// Addresses of the node. The first one is reported as `hostIP`.
    pub addresses: Vec<Text>,
    /// Name of the runtime, such as `containerd`. It is the scheme of container IDs.
    pub runtime: Text,
    /// Converts node times, which all methods of [`Pod`] take, to the wall-clock times of the pod's status.
    pub wall_clock: WallClock,
}

/// The sandboxes and containers of a pod in the runtime.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuntimeState {
    /// The value of [`PodStateMachine::change_count`] before the runtime was read. If an action that changed the runtime has
    /// completed since then, this state is outdated and is not used.
    pub change_count: u64,
    pub sandboxes: Vec<Sandbox>,
    pub containers: Vec<Container>,
}

/// A pod sandbox as the runtime reports it. Upstream: `PodSandbox` of CRI.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sandbox {
    /// ID of the sandbox in the runtime.
    pub id: Text,
    /// Attempt number: the first sandbox of the pod has 0, each further sandbox a higher number.
    pub attempt: u32,
    /// Whether the runtime reports the sandbox as ready (`SANDBOX_READY`).
    pub is_ready: bool,
    pub created: Time,
    /// IP addresses of the sandbox. Empty for a host-network pod.
    pub addresses: Vec<Text>,
}

/// A container instance as the runtime reports it. [`ContainerSpec`] is its specification in the pod, and
/// [`RunningContainer`] is the kubelet's state of its hooks and probes. Upstream: `ContainerStatus` of CRI.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Container {
    /// ID of the container in the runtime.
    pub id: Text,
    /// ID of the sandbox in which the container runs.
    pub sandbox: Text,
    /// Name of the container in the pod's spec.
    pub name: Text,
    /// Attempt number: the first instance of a container of the spec has 0, each restart the next number.
    pub attempt: u32,
    /// [`ContainerSpec::hash`] of the spec with which the container was started, from [`Action::Start`]. If the hash of
    /// the current spec differs, the container is restarted. Empty if the hash is unknown.
    pub hash: Text,
    /// Name of the image in the container's spec.
    pub image: Text,
    /// ID of the image in the runtime.
    pub image_id: Text,
    pub state: ContainerState,
}

/// The state of a container instance in the runtime.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ContainerState {
    Created,
    Running { since: Time },
    Exited { code: i32, reason: Text, message: Text, started: Time, finished: Time },
    Unknown,
}

/// The kinds of probes that a container can have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

impl ProbeKind {
    /// All kinds of probes, in the order of the variants.
    pub const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    /// Returns the name of the kind of probe, for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// An action for the agent to execute once, and to complete with [`PodStateMachine::apply_outcome`].
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Creates or updates the directories, volumes and the cgroup of the pod.
    Prepare,
    /// Creates and starts a sandbox.
    RunSandbox { attempt: u32 },
    /// Checks whether the image is on the node. The outcome is [`ActionOutcome::Present`] or [`ActionOutcome::Absent`].
    /// The reason of a failure is `InvalidImageName` or `ImageInspectError`.
    FindImage { container: Text, image: Text },
    /// Pulls an image. The outcome is [`ActionOutcome::Pulled`]. The reason of a failure is usually `ErrImagePull`.
    Pull { container: Text, image: Text },
    /// Creates and starts a container. The outcome is [`ActionOutcome::Started`]. The reason of a failure is, for
    /// example, `CreateContainerConfigError`, `CreateContainerError` or `RunContainerError`.
    Start {
        container: Text,
        /// Index of the container in the pod's spec, see [`ContainerSpec::position`].
        position: usize,
        sandbox: Text,
        attempt: u32,
        /// Hash of the container's spec, stored with the container and returned in [`Container::hash`].
        hash: Text,
    },
    /// Runs the postStart hook of the container with this container ID.
    PostStart {
        container: Text,
        /// Index of the container in the pod's spec, see [`ContainerSpec::position`].
        position: usize,
        id: Text,
    },
    /// Runs a probe in the container with this container ID. The outcome is [`ActionOutcome::Probed`]. A failed action
    /// means that the probe could not run. It is not a probe result.
    Probe {
        container: Text,
        /// Index of the container in the pod's spec, see [`ContainerSpec::position`].
        position: usize,
        id: Text,
        probe: ProbeKind,
    },
    /// Runs the preStop hook if `pre_stop`, then stops the container with this container ID. Both happen within
    /// `grace`, but after a preStop hook the container still gets at least two seconds to stop.
    ///
    /// The action may be issued again with a shorter grace period while the first one is in flight.
    Stop { container: Text, id: Text, grace: Duration, pre_stop: bool },
    /// Removes a container that has exited or was never started, by its container ID.
    RemoveContainer { id: Text },
    /// Stops a sandbox, by its sandbox ID.
    StopSandbox { id: Text },
    /// Removes a sandbox with all its containers, by its sandbox ID.
    RemoveSandbox { id: Text },
    /// Removes the volumes, the cgroup and the directory of the pod, and its logs if `with_logs`.
    CleanUp { with_logs: bool },
    /// Writes the pod's `status` with this strategic merge patch.
    Report(Value),
    /// Deletes the pod from the API server with grace period 0 and its UID as precondition.
    Delete,
}

/// The outcome of an [`Action`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ActionOutcome {
    /// The action succeeded. Used for actions without a result, such as a stop.
    Done,
    /// A container was started. `id` is its container ID.
    Started { id: Text },
    /// The image that was checked is on the node.
    Present,
    /// The image that was checked is not on the node.
    Absent,
    /// The image was pulled. `bytes` is the size of the image.
    Pulled { bytes: u64 },
    /// The probe ran. `message` is the output of the probe. A probe that passed with a message records the event
    /// `ProbeWarning`.
    Probed { passed: bool, message: Text },
    /// The action failed. For image checks, pulls and container starts, [`Action`] names the reasons, such as
    /// `ErrImagePull`.
    Failed { reason: Text, message: Text },
}

/// Why the node terminates a pod on its own, without a deletion of the pod: for example, the node rejected, evicted or
/// preempted the pod, or the pod exceeded its active deadline. The pod becomes Failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodTermination {
    /// Reason in the pod's status, such as `Evicted`, `OutOfcpu` or `Terminated`.
    pub reason: Text,
    pub message: Text,
    /// Grace period of the termination. `None` means the pod's own grace period.
    pub grace: Option<Duration>,
    /// Whether the node rejected the pod at admission. If so, no container has run, and the pod's status has no
    /// container statuses.
    pub is_rejection: bool,
    /// Whether the termination is a disruption, such as eviction, preemption or node shutdown. If so, the condition
    /// `DisruptionTarget` is set.
    pub is_disruption: bool,
}

/// The result of a pod sync: actions to execute, events to record, and the time of the next sync.
#[must_use = "the caller executes the actions"]
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PodSync {
    pub actions: Vec<Action>,
    pub events: Vec<EventRecord>,
    /// Time at which the agent syncs the pod again, unless an event causes an earlier sync. `None` if only an event
    /// causes the next sync. Each sync replaces this time.
    pub wake_at: Option<Time>,
}

/// The lifecycle of one pod on its node, from admission to cleanup. Upstream: `podSyncStatus` and `syncPod`.
#[derive(Clone, Debug)]
pub struct PodStateMachine {
    object: Arc<PodObject>,
    host: Host,
    /// The `startTime` of the pod's status, which is a wall-clock time.
    start_time: Time,
    /// Node time from which the active deadline is counted: the node time of `start_time`.
    active_since: Time,
    /// The last state that was read from the runtime. `None` before the first read.
    runtime_state: Option<RuntimeState>,
    /// Number of completed actions that changed the runtime. A [`RuntimeState`] with a smaller number is outdated.
    change_count: u64,
    /// Actions that [`PodStateMachine::sync`] returned and that have not completed.
    in_flight: Vec<Action>,
    /// Delays before failed actions are issued again.
    backoffs: ActionBackoffs,
    /// Whether [`Action::Prepare`] has succeeded.
    is_prepared: bool,
    /// Restarts and backoff of each container of the spec, by container name.
    start_histories: BTreeMap<Text, StartHistory>,
    /// Hooks, probes and readiness of each container instance, by container ID.
    running_containers: BTreeMap<Text, RunningContainer>,
    /// Minimum attempt number of the next sandbox. It is increased when [`Action::RunSandbox`] fails, because the
    /// runtime may still reserve the name of the failed sandbox.
    sandbox_attempt_min: u32,
    /// IDs of the sandboxes for which [`Action::StopSandbox`] has succeeded.
    stopped_sandboxes: BTreeSet<Text>,
    /// Whether the pod no longer exists on the API server or, for a static pod, whether its manifest was removed.
    is_removed_from_api: bool,
    /// Why the node terminates the pod. `None` if it does not.
    termination: Option<PodTermination>,
    /// Deadline by which all containers must have terminated. `None` until a termination sets it.
    terminate_by: Option<Time>,
    /// The terminal phase of the pod, Succeeded or Failed. Once it is set, no container is started any more. `None`
    /// before.
    final_phase: Option<PodPhase>,
    /// How much of the pod has been removed from the node.
    cleanup: CleanupState,
    /// Whether [`Action::Delete`] has succeeded.
    is_deleted: bool,
    /// The pod's status that was last written. Before the first write, it is the status in the API object from which
    /// this `PodStateMachine` was created.
    reported: Value,
    /// Whether the status on the API server may differ from `reported`, so that it must be written again.
    must_report: bool,
    /// Actions that the next [`PodSync`] returns.
    actions: Vec<Action>,
    /// Events that the next [`PodSync`] returns.
    events: Vec<EventRecord>,
    /// Value of `wake_at` in the next [`PodSync`]: the earliest time for which a sync was requested, `None` if none was
    /// requested.
    wake_at: Option<Time>,
}

/// How much of a pod was removed from the node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum CleanupState {
    /// Nothing of the pod has been removed from the node yet.
    NotStarted,
    /// Volumes, cgroup and directory of the pod are removed. Its logs are kept, because the pod still exists on the API
    /// server.
    LogsKept,
    /// Everything of the pod is removed, including its logs.
    Done,
}

impl PodStateMachine {
    /// Creates a pod from its API object, or from a static manifest.
    pub fn new(object: Arc<PodObject>, host: Host, now: Time) -> Self {
        let start_time = pod_object::parse_time(&object.status["startTime"])
            .unwrap_or_else(|| host.wall_clock.wall_time(now));
        let mut pod = Self {
            reported: object.status.clone(),
            start_time,
            active_since: host.wall_clock.node_time(start_time, now),
            object,
            host,
            runtime_state: None,
            change_count: 0,
            in_flight: Vec::new(),
            backoffs: ActionBackoffs::default(),
            is_prepared: false,
            start_histories: BTreeMap::new(),
            running_containers: BTreeMap::new(),
            sandbox_attempt_min: 0,
            stopped_sandboxes: BTreeSet::new(),
            is_removed_from_api: false,
            termination: None,
            terminate_by: None,
            final_phase: None,
            cleanup: CleanupState::NotStarted,
            is_deleted: false,
            must_report: false,
            actions: Vec::new(),
            events: Vec::new(),
            wake_at: None,
        };
        pod.final_phase = status::terminal_phase(&pod.object.status);
        pod.tighten_deadline_by_deletion(now);
        pod
    }

    /// Creates a `PodStateMachine` for containers or files on the node whose pod does not exist on the API server. Its actions
    /// remove these containers and files.
    pub fn orphan(key: ObjectKey, uid: Text, host: Host, now: Time) -> Self {
        let object = PodObject {
            key,
            uid,
            resource_version: 0,
            generation: 0,
            is_static: false,
            deletion_grace: None,
            spec: pod_object::Spec::default(),
            status: Value::Null,
        };
        let mut pod = Self::new(Arc::new(object), host, now);
        pod.mark_removed_from_api(now);
        pod
    }

    pub fn key(&self) -> &ObjectKey {
        &self.object.key
    }

    pub fn uid(&self) -> &Text {
        &self.object.uid
    }

    /// Replaces the wall clock of the node after it was changed. Deadlines and delays of the pod do not change.
    pub fn set_wall_clock(&mut self, wall_clock: WallClock) {
        self.host.wall_clock = wall_clock;
    }

    /// Replaces the API object of the pod after it has changed: its spec, its status and its deletion.
    pub fn update_object(&mut self, object: Arc<PodObject>, now: Time) {
        // The stored status may differ from the reported one: others write there too.
        let reporting = self.in_flight.iter().any(|it| match it {
            Action::Report(patch) => status::contains_fields(&status::patched_status(patch), &object.status),
            _ => false,
        });
        self.must_report |= !reporting && !status::contains_fields(&self.reported, &object.status);
        if self.final_phase.is_none() {
            self.final_phase = status::terminal_phase(&object.status);
        }
        let is_changed = |it: &&ContainerSpec| {
            self.object.spec.find_container(&it.name).is_some_and(|before| before.image != it.image)
        };
        for container in object.spec.all_containers().filter(is_changed) {
            if let Some(history) = self.start_histories.get_mut(&container.name) {
                history.reset_image();
            }
        }
        self.object = object;
        self.tighten_deadline_by_deletion(now);
    }

    /// Records that the pod no longer exists on the API server, because it was force-deleted, or deleted while the
    /// agent did not run. For a static pod, records that its manifest was removed. Also sets the deadline of the
    /// termination.
    pub fn mark_removed_from_api(&mut self, now: Time) {
        self.is_removed_from_api = true;
        self.tighten_deadline(
            if self.object.is_static {
                self.object.spec.grace
            } else {
                termination::REMOVED_POD_GRACE_PERIOD
            },
            now,
        );
    }

    /// Applies the state of the pod that was read from the runtime. Ignores a state that was read before the last
    /// action that changed the runtime.
    pub fn update_runtime_state(&mut self, runtime_state: RuntimeState, now: Time) {
        if self.change_count <= runtime_state.change_count {
            self.track_containers(&runtime_state, now);
            self.runtime_state = Some(runtime_state);
        }
    }

    /// Returns the number of completed actions that changed the runtime. The agent calls this before it reads the
    /// runtime, and passes the number in [`RuntimeState::change_count`].
    pub fn change_count(&self) -> u64 {
        self.change_count
    }

    /// Terminates the pod by a decision of the node, without a deletion. If a [`PodTermination`] or a terminal phase is
    /// already set, that one stays, and this call can only shorten the grace period.
    pub fn terminate(&mut self, termination: PodTermination, now: Time) {
        let grace = termination.grace.unwrap_or(self.object.spec.grace);
        if self.final_phase.is_none() && self.termination.is_none() {
            if termination.is_rejection || *termination.reason == *"Preempting" {
                self.record_warning(event_reason(&termination.reason), termination.message.to_string());
            }
            self.termination = Some(termination);
        }
        self.tighten_deadline(grace, now);
    }

    /// Returns the actions to execute now, including the write of the pod's status, the events to record, and the time
    /// of the next sync. Returns no action while the runtime state is outdated.
    pub fn sync(&mut self, now: Time) -> PodSync {
        self.issue_actions(now);
        if !self.is_finished() && self.is_runtime_state_current() {
            self.report(now);
        }
        self.take_sync()
    }

    /// Returns the same actions as [`PodStateMachine::sync`], without the write of the status. It is for callers that complete
    /// actions at once (the simulated nodes), so that intermediate statuses are not written.
    pub fn sync_without_status(&mut self, now: Time) -> PodSync {
        self.issue_actions(now);
        self.take_sync()
    }

    /// Issues all actions that the pod needs now, except for the write of its status.
    fn issue_actions(&mut self, now: Time) {
        self.wake_at = None;
        if !self.is_finished() && self.is_runtime_state_current() {
            self.enforce_active_deadline(now);
            if self.is_terminating() {
                self.sync_terminating(now);
            } else {
                self.sync_running(now);
            }
            self.run_hooks_and_probes(now);
        }
    }

    /// Returns the collected actions and events and the time of the next sync, and clears them.
    fn take_sync(&mut self) -> PodSync {
        PodSync {
            actions: core::mem::take(&mut self.actions),
            events: core::mem::take(&mut self.events),
            wake_at: self.wake_at.take(),
        }
    }

    /// Applies the outcome of an action that [`PodStateMachine::sync`] returned. Ignores an action that is not in flight.
    pub fn apply_outcome(&mut self, action: &Action, outcome: ActionOutcome, now: Time) {
        let Some(index) = self.in_flight.iter().position(|it| it == action) else { return };
        self.in_flight.remove(index);
        if action.changes_the_runtime() {
            self.change_count += 1;
        }
        let failure = match &outcome {
            ActionOutcome::Failed { message, .. } => Some(message.clone()),
            _ => None,
        };
        if let Some(name) = action.backoff_key() {
            self.backoffs.update(&name, failure.is_some(), action.backoff_policy(), now);
        }
        match (action, failure) {
            (Action::Prepare, None) => self.is_prepared = true,
            (Action::Prepare, Some(message)) => self.record_warning("FailedMount", message.to_string()),
            (Action::RunSandbox { attempt }, Some(message)) => {
                self.sandbox_attempt_min = attempt + 1;
                self.record_warning(
                    "FailedCreatePodSandBox",
                    alloc::format!("Failed to create pod sandbox: {message}"),
                );
            }
            (Action::FindImage { container, .. }, _) => {
                self.apply_find_image_outcome(container, outcome, now)
            }
            (Action::Pull { container, .. }, _) => self.apply_pull_outcome(container, outcome, now),
            (Action::Start { container, .. }, _) => self.apply_start_outcome(container, outcome, now),
            (Action::PostStart { container, id, .. }, failure) => {
                self.apply_post_start_outcome(container, id, failure, now)
            }
            (Action::Probe { container, id, probe, .. }, _) => {
                self.apply_probe_outcome(container, id, *probe, outcome, now)
            }
            (Action::StopSandbox { id }, None) => {
                self.stopped_sandboxes.insert(id.clone());
            }
            (Action::CleanUp { with_logs }, None) => {
                self.cleanup = if *with_logs { CleanupState::Done } else { CleanupState::LogsKept };
            }
            (Action::Report(patch), None) => self.reported = status::patched_status(patch),
            (Action::Report(_), Some(_)) => self.must_report = true,
            (Action::Delete, None) => self.is_deleted = true,
            (Action::Stop { .. } | Action::StopSandbox { .. }, Some(message)) => {
                self.record_warning("FailedKillPod", alloc::format!("error killing pod: {message}"));
            }
            _ => {}
        }
    }

    /// Whether nothing of the pod is left on the node or on the API server, so that the agent can drop it.
    pub fn is_finished(&self) -> bool {
        let is_removed = self.is_deleted || self.is_removed_from_api;
        is_removed
            && self.cleanup == CleanupState::Done
            && self.in_flight.iter().all(|it| !it.must_complete())
    }

    /// Whether no container runs or will run any more, so that the pod's resources are free.
    pub fn has_terminated(&self) -> bool {
        self.final_phase.is_some() && !self.is_any_running()
    }

    /// Whether this `PodStateMachine` can be built again from the API object and the runtime state without a loss. False while the
    /// pod is terminating, while an action other than a probe is in flight or has a backoff, and while the status must
    /// be written again. Also false if a [`StartHistory`] cannot be rebuilt.
    pub fn can_be_rebuilt(&self) -> bool {
        self.in_flight.iter().all(|it| matches!(it, Action::Probe { .. }))
            && !self.must_report
            && !self.is_terminating()
            && self.backoffs.is_empty()
            && self.start_histories.values().all(StartHistory::can_be_rebuilt)
    }

    /// Whether the runtime state was read after the last action that changed the runtime.
    fn is_runtime_state_current(&self) -> bool {
        self.runtime_state.as_ref().is_some_and(|it| self.change_count <= it.change_count)
    }

    /// Adds an action to the next [`PodSync`], unless an equal action is in flight or the action is in backoff. In
    /// backoff, requests a sync at its end instead. Returns whether the action was added.
    fn issue(&mut self, action: Action, now: Time) -> bool {
        if self.in_flight.contains(&action) {
            return false;
        }
        if let Some(at) =
            action.backoff_key().and_then(|it| self.backoffs.retry_at(&it)).filter(|at| now < *at)
        {
            self.request_sync_at(at);
            return false;
        }
        self.in_flight.push(action.clone());
        self.actions.push(action);
        true
    }

    /// Requests a sync at the time `at`, unless an earlier sync is requested already.
    fn request_sync_at(&mut self, at: Time) {
        self.wake_at = earliest(self.wake_at, Some(at));
    }

    /// Whether any action in flight satisfies the predicate `is`.
    fn is_in_flight(&self, is: impl Fn(&Action) -> bool) -> bool {
        self.in_flight.iter().any(is)
    }

    /// Adds an event about the pod to the next [`PodSync`].
    fn emit_event(&mut self, event: KubeEvent) {
        let PodObject { key, uid, resource_version, .. } = &*self.object;
        let about = ObjectReference::to_pod(key, uid, *resource_version);
        self.events.push(EventRecord { about, event });
    }

    /// Adds an event of type `Normal` about the pod to the next [`PodSync`].
    fn record_event(&mut self, reason: &'static str, message: String) {
        self.emit_event(KubeEvent::normal(reason, message));
    }

    /// Adds an event of type `Warning` about the pod to the next [`PodSync`].
    fn record_warning(&mut self, reason: &'static str, message: String) {
        self.emit_event(KubeEvent::warning(reason, message));
    }

    /// Returns the name of the pod in messages: `NAME_NAMESPACE(UID)`. Upstream: `format.Pod`.
    fn display_name(&self) -> String {
        let ObjectKey { namespace, name } = &self.object.key;
        alloc::format!("{name}_{namespace}({})", self.object.uid)
    }
}

/// Returns `reason` as a static string if it is one of the known event reasons, otherwise `UnexpectedAdmissionError`.
fn event_reason(reason: &str) -> &'static str {
    /// Reasons of a [`PodTermination`] that are also event reasons.
    const KNOWN_REASONS: [&str; 13] = [
        "Evicted",
        "NodeShutdown",
        "PodOSNotSupported",
        "SysctlForbidden",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfephemeral-storage",
        "OutOfpods",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TaintToleration",
        "Preempting",
    ];
    KNOWN_REASONS.into_iter().find(|it| *it == reason).unwrap_or("UnexpectedAdmissionError")
}

impl Action {
    /// Whether the action changes sandboxes or containers, so that the runtime must be read again when it has
    /// completed.
    fn changes_the_runtime(&self) -> bool {
        match self {
            Self::RunSandbox { .. }
            | Self::Start { .. }
            | Self::Stop { .. }
            | Self::RemoveContainer { .. }
            | Self::StopSandbox { .. }
            | Self::RemoveSandbox { .. } => true,
            Self::Prepare
            | Self::FindImage { .. }
            | Self::Pull { .. }
            | Self::PostStart { .. }
            | Self::Probe { .. }
            | Self::CleanUp { .. }
            | Self::Report(_)
            | Self::Delete => false,
        }
    }

    /// Whether the action must complete before the agent can drop the pod.
    fn must_complete(&self) -> bool {
        self.changes_the_runtime() || matches!(self, Self::Prepare | Self::CleanUp { .. } | Self::Delete)
    }

    /// Returns the key of this action in [`ActionBackoffs`]. `None` for image checks, pulls, container starts, hooks
    /// and probes, for which other rules apply.
    fn backoff_key(&self) -> Option<String> {
        match self {
            Self::FindImage { .. }
            | Self::Pull { .. }
            | Self::Start { .. }
            | Self::PostStart { .. }
            | Self::Probe { .. } => None,
            Self::RunSandbox { .. } => Some("run sandbox".into()),
            Self::Stop { id, .. } => Some(alloc::format!("stop {id}")),
            _ => Some(self.to_string()),
        }
    }

    /// Returns the backoff after consecutive failures of this action.
    fn backoff_policy(&self) -> BackoffPolicy {
        let max_s = match self {
            Self::Prepare => 20,
            _ => 10,
        };
        BackoffPolicy { min: Duration::from_millis(500), max: Duration::from_secs(max_s) }
    }

    /// Returns the name of the container that the action is about. `None` if the action is about the pod, a sandbox, or
    /// the removal of a container.
    pub fn container_name(&self) -> Option<&Text> {
        match self {
            Self::FindImage { container, .. }
            | Self::Pull { container, .. }
            | Self::Start { container, .. }
            | Self::PostStart { container, .. }
            | Self::Probe { container, .. }
            | Self::Stop { container, .. } => Some(container),
            _ => None,
        }
    }
}

/// Formats the action on one line, for logs and tests.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prepare => write!(f, "prepare"),
            Self::RunSandbox { attempt } => write!(f, "run sandbox {attempt}"),
            Self::FindImage { container, image } => write!(f, "find image {image} for {container}"),
            Self::Pull { container, image } => write!(f, "pull image {image} for {container}"),
            Self::Start { container, sandbox, attempt, .. } => {
                write!(f, "start {container} {attempt} in {sandbox}")
            }
            Self::PostStart { container, id, .. } => write!(f, "run the postStart hook of {container} {id}"),
            Self::Probe { container, id, probe, .. } => {
                write!(f, "{} probe of {container} {id}", probe.as_str())
            }
            Self::Stop { container, id, grace, pre_stop } => {
                let hook = if *pre_stop { " after its preStop hook" } else { "" };
                write!(f, "stop {container} {id} within {}s{hook}", grace.as_secs())
            }
            Self::RemoveContainer { id } => write!(f, "remove container {id}"),
            Self::StopSandbox { id } => write!(f, "stop sandbox {id}"),
            Self::RemoveSandbox { id } => write!(f, "remove sandbox {id}"),
            Self::CleanUp { with_logs: false } => write!(f, "clean up"),
            Self::CleanUp { with_logs: true } => write!(f, "clean up with its logs"),
            Self::Report(_) => write!(f, "report"),
            Self::Delete => write!(f, "delete"),
        }
    }
}
