//! One pod on its node: what to do next, from what its object says and what the runtime has of it.
//!
//! ```text
//! object, RuntimeState, outcomes -> Pod -> actions: prepare, sandbox, image, start, probe, stop, clean up, report, delete
//! ```
//!
//! A shell owns one [`Pod`] per UID. It hands in the object as the watch shows it ([`Pod::see`]), all that the runtime has
//! of the pod ([`Pod::seen`]: at first, after each action that is done, and whenever something may have changed), and the
//! outcome of each action ([`Pod::done`]); and it carries out what [`Pod::look`] gives, side by side. Nothing that matters
//! is kept here alone: a `Pod` made anew from the object and the runtime goes on where the last one was, but for the exact
//! place of its back-offs.

pub mod admission;
mod ending;
mod running_container;
mod spec;
mod start;
mod status;
mod sync;
#[cfg(test)]
mod tests;
mod wait;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::{Time, earliest};
use serde_json::Value;

use self::running_container::RunningContainer;
pub use self::spec::{ContainerSpec, Object, Probe, Pull, Restart, Role, Spec};
use self::start::StartHistory;
use self::wait::Waits;
use crate::controller::{EventRecord, ObjectReference};
use crate::daemonset::facts::Phase;
use crate::daemonset::plan::Event;

/// What every pod of a node says of the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Host {
    /// The node's own, the first one first.
    pub addresses: Vec<Text>,
    /// What container IDs begin with, as `containerd`.
    pub runtime: Text,
}

/// All that the runtime has of a pod.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuntimeState {
    /// [`Pod::mark`] from before the runtime was asked: what was done since may be missing, and such an answer is not used.
    pub mark: u64,
    pub sandboxes: Vec<Sandbox>,
    pub containers: Vec<Container>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sandbox {
    pub id: Text,
    pub attempt: u32,
    pub is_ready: bool,
    pub created: Time,
    /// None for a pod on the node's own network.
    pub addresses: Vec<Text>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Container {
    pub id: Text,
    pub sandbox: Text,
    pub name: Text,
    pub attempt: u32,
    /// As [`Action::Start`] gave it.
    pub hash: Text,
    pub image: Text,
    pub image_id: Text,
    pub state: State,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    Created,
    Running { since: Time },
    Exited { code: i32, reason: Text, message: Text, started: Time, finished: Time },
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

impl ProbeKind {
    pub const ALL: [Self; 3] = [Self::Startup, Self::Liveness, Self::Readiness];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// Something for the shell to do, once. It answers with [`Pod::done`].
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Make directories, volumes and the pod's cgroup, or bring them up to date.
    Prepare,
    RunSandbox {
        attempt: u32,
    },
    /// Is the image on the node? [`Outcome::Present`] or [`Outcome::Absent`]; a failure's reason is `InvalidImageName` or
    /// `ImageInspectError`.
    FindImage {
        container: Text,
        image: Text,
    },
    /// [`Outcome::Pulled`]; a failure's reason is `ErrImagePull` as a rule.
    Pull {
        container: Text,
        image: Text,
    },
    /// Create and start it: [`Outcome::Started`]. A failure's reason is `CreateContainerConfigError`, `CreateContainerError`
    /// or `RunContainerError`.
    Start {
        container: Text,
        /// [`ContainerSpec::position`].
        position: usize,
        sandbox: Text,
        attempt: u32,
        /// To be kept with the container, and shown in [`Container::hash`].
        hash: Text,
    },
    PostStart {
        container: Text,
        /// [`ContainerSpec::position`].
        position: usize,
        id: Text,
    },
    /// [`Outcome::Probed`]; a failure means that it could not be tried, and says nothing of the container.
    Probe {
        container: Text,
        /// [`ContainerSpec::position`].
        position: usize,
        id: Text,
        probe: ProbeKind,
    },
    /// Run its hook if `pre_stop`, then end it: all within `grace`, but for the least that a container is given to end.
    /// May come again with less grace while the first is under way.
    Stop {
        container: Text,
        id: Text,
        grace: Duration,
        pre_stop: bool,
    },
    RemoveContainer {
        id: Text,
    },
    StopSandbox {
        id: Text,
    },
    /// With all containers that are in it.
    RemoveSandbox {
        id: Text,
    },
    /// Take away volumes, the pod's cgroup and its directory; its logs too if `with_logs`.
    CleanUp {
        with_logs: bool,
    },
    /// A strategic merge patch of the pod's `status`.
    Report(Value),
    /// Take it off the API server: grace 0, for this UID only.
    Delete,
}

/// The outcome of an action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    Started {
        id: Text,
    },
    Present,
    Absent,
    Pulled {
        bytes: u64,
    },
    /// One that passed with a message is to be warned of.
    Probed {
        passed: bool,
        message: Text,
    },
    Failed {
        reason: Text,
        message: Text,
    },
}

/// Why a pod ends although nobody deleted it. It becomes Failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ending {
    /// `Evicted`, `OutOfcpu`, `Terminated` and the like.
    pub reason: Text,
    pub message: Text,
    /// `None`: the pod's own.
    pub grace: Option<Duration>,
    /// Never let in: nothing of it has run, and nothing is said of its containers.
    pub is_rejection: bool,
    /// The node's doing, and not the pod's: the condition `DisruptionTarget` says so.
    pub is_disruption: bool,
}

/// The result of a sync: actions to execute and events to record.
#[must_use = "the caller executes the actions"]
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PodSync {
    pub actions: Vec<Action>,
    pub events: Vec<EventRecord>,
    /// When to sync again if no event comes before. Each sync replaces it.
    pub wake_at: Option<Time>,
}

/// A pod on its node.
#[derive(Clone, Debug)]
pub struct Pod {
    object: Arc<Object>,
    host: Host,
    begun: Time,
    seen: Option<RuntimeState>,
    /// Number of completed actions that changed the state of the runtime.
    mark: u64,
    under_way: Vec<Action>,
    waits: Waits,
    is_prepared: bool,
    start_histories: BTreeMap<Text, StartHistory>,
    running_containers: BTreeMap<Text, RunningContainer>,
    /// A runtime may keep the name of one that failed.
    sandbox_attempt_min: u32,
    /// Sandboxes that are stopped for good.
    stopped: BTreeSet<Text>,
    /// The API server has it no more.
    is_gone: bool,
    ending: Option<Ending>,
    /// When what still runs must have ended.
    end_by: Option<Time>,
    /// How it ended. Nothing is begun any more.
    ended: Option<Phase>,
    cleaned: Cleaned,
    is_deleted: bool,
    /// The status that the API server was last told, or has.
    reported: Value,
    /// Whether it may have another by now.
    must_report: bool,
    actions: Vec<Action>,
    events: Vec<EventRecord>,
    wake_at: Option<Time>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Cleaned {
    Not,
    ButForLogs,
    All,
}

impl Pod {
    /// From the API object, or a static manifest.
    pub fn new(object: Arc<Object>, host: Host, now: Time) -> Self {
        let mut pod = Self {
            reported: object.status.clone(),
            begun: spec::time(&object.status["startTime"]).unwrap_or(now),
            object,
            host,
            seen: None,
            mark: 0,
            under_way: Vec::new(),
            waits: Waits::default(),
            is_prepared: false,
            start_histories: BTreeMap::new(),
            running_containers: BTreeMap::new(),
            sandbox_attempt_min: 0,
            stopped: BTreeSet::new(),
            is_gone: false,
            ending: None,
            end_by: None,
            ended: None,
            cleaned: Cleaned::Not,
            is_deleted: false,
            must_report: false,
            actions: Vec::new(),
            events: Vec::new(),
            wake_at: None,
        };
        pod.ended = status::terminal(&pod.object.status);
        pod.limit_by_deletion(now);
        pod
    }

    /// Containers or files of a pod that the API server does not know.
    pub fn orphan(key: ObjectKey, uid: Text, host: Host, now: Time) -> Self {
        let object = Object {
            key,
            uid,
            resource_version: 0,
            generation: 0,
            is_static: false,
            deletion_grace: None,
            spec: spec::Spec::default(),
            status: Value::Null,
        };
        let mut pod = Self::new(Arc::new(object), host, now);
        pod.gone(now);
        pod
    }

    pub fn key(&self) -> &ObjectKey {
        &self.object.key
    }

    pub fn uid(&self) -> &Text {
        &self.object.uid
    }

    /// The API object changed.
    pub fn update_spec(&mut self, object: Arc<Object>, now: Time) {
        // The stored status may differ from the reported one: others write there too.
        let reporting = self.under_way.iter().any(|it| match it {
            Action::Report(patch) => status::covers(&status::stated(patch), &object.status),
            _ => false,
        });
        self.must_report |= !reporting && !status::covers(&self.reported, &object.status);
        if self.ended.is_none() {
            self.ended = status::terminal(&object.status);
        }
        let is_changed = |it: &&ContainerSpec| {
            self.object.spec.find(&it.name).is_some_and(|before| before.image != it.image)
        };
        for container in object.spec.all().filter(is_changed) {
            if let Some(history) = self.start_histories.get_mut(&container.name) {
                history.forget_image();
            }
        }
        self.object = object;
        self.limit_by_deletion(now);
    }

    /// The API server has it no more: it was deleted by force, or while nobody was here. Or its manifest is gone from the
    /// node.
    pub fn gone(&mut self, now: Time) {
        self.is_gone = true;
        self.limit(if self.object.is_static { self.object.spec.grace } else { ending::GRACE_MIN }, now);
    }

    /// What the runtime has of the pod. An answer from before the last action was done is not used.
    pub fn update_runtime_state(&mut self, seen: RuntimeState, now: Time) {
        if self.mark <= seen.mark {
            self.follow(&seen, now);
            self.seen = Some(seen);
        }
    }

    /// To be read before the runtime is asked, and given in [`RuntimeState::mark`].
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// It is to end: rejected, evicted, or because the node shuts down. The first reason stays.
    pub fn end(&mut self, ending: Ending, now: Time) {
        let grace = ending.grace.unwrap_or(self.object.spec.grace);
        if self.ended.is_none() && self.ending.is_none() {
            if ending.is_rejection || *ending.reason == *"Preempting" {
                self.warn(event_reason(&ending.reason), ending.message.to_string());
            }
            self.ending = Some(ending);
        }
        self.limit(grace, now);
    }

    /// The actions to execute now, the report of the status among them.
    pub fn sync(&mut self, now: Time) -> PodSync {
        self.advance(now);
        if !self.is_over() && self.is_up_to_date() {
            self.report(now);
        }
        self.decided()
    }

    /// [`Pod::sync`] without the report: for a runtime that answers at once, until no action is left. Statuses in between are not
    /// worth a write.
    pub fn sync_runtime(&mut self, now: Time) -> PodSync {
        self.advance(now);
        self.decided()
    }

    fn advance(&mut self, now: Time) {
        self.wake_at = None;
        if !self.is_over() && self.is_up_to_date() {
            self.expire(now);
            if self.is_ending() {
                self.wind_down(now);
            } else {
                self.run(now);
            }
            self.tend(now);
        }
    }

    fn decided(&mut self) -> PodSync {
        PodSync {
            actions: core::mem::take(&mut self.actions),
            events: core::mem::take(&mut self.events),
            wake_at: self.wake_at.take(),
        }
    }

    /// Takes the outcome of an action that [`Pod::look`] returned.
    pub fn done(&mut self, action: &Action, outcome: Outcome, now: Time) {
        let Some(place) = self.under_way.iter().position(|it| it == action) else { return };
        self.under_way.remove(place);
        if action.changes_the_runtime() {
            self.mark += 1;
        }
        let failure = match &outcome {
            Outcome::Failed { message, .. } => Some(message.clone()),
            _ => None,
        };
        if let Some(name) = action.tried_again() {
            self.waits.note(&name, failure.is_some(), action.wait_max(), now);
        }
        match (action, failure) {
            (Action::Prepare, None) => self.is_prepared = true,
            (Action::Prepare, Some(message)) => self.warn("FailedMount", message.to_string()),
            (Action::RunSandbox { attempt }, Some(message)) => {
                self.sandbox_attempt_min = attempt + 1;
                self.warn(
                    "FailedCreatePodSandBox",
                    alloc::format!("Failed to create pod sandbox: {message}"),
                );
            }
            (Action::FindImage { container, .. }, _) => self.image_found(container, outcome, now),
            (Action::Pull { container, .. }, _) => self.image_pulled(container, outcome, now),
            (Action::Start { container, .. }, _) => self.started(container, outcome, now),
            (Action::PostStart { container, id, .. }, failure) => {
                self.post_started(container, id, failure, now)
            }
            (Action::Probe { container, id, probe, .. }, _) => {
                self.probed(container, id, *probe, outcome, now)
            }
            (Action::StopSandbox { id }, None) => {
                self.stopped.insert(id.clone());
            }
            (Action::CleanUp { with_logs }, None) => {
                self.cleaned = if *with_logs { Cleaned::All } else { Cleaned::ButForLogs };
            }
            (Action::Report(patch), None) => self.reported = status::stated(patch),
            (Action::Report(_), Some(_)) => self.must_report = true,
            (Action::Delete, None) => self.is_deleted = true,
            (Action::Stop { .. } | Action::StopSandbox { .. }, Some(message)) => {
                self.warn("FailedKillPod", alloc::format!("error killing pod: {message}"));
            }
            _ => {}
        }
    }

    /// Whether nothing is left of it, on the node or on the API server: the shell forgets it.
    pub fn is_over(&self) -> bool {
        let is_off_the_server = self.is_deleted || self.is_gone;
        is_off_the_server && self.cleaned == Cleaned::All && self.under_way.iter().all(|it| !it.holds_up())
    }

    /// Whether nothing of it runs any more or will: what it asked of the node is free.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some() && !self.is_any_running()
    }

    /// Whether a `Pod` built from the API object and the runtime state would decide as this one does: no action but probes is in
    /// flight, and no back-off is remembered.
    pub fn can_be_rebuilt(&self) -> bool {
        self.under_way.iter().all(|it| matches!(it, Action::Probe { .. }))
            && !self.must_report
            && !self.is_ending()
            && self.waits.is_empty()
            && self.start_histories.values().all(StartHistory::is_empty)
    }

    /// Whether the runtime state is from after the last action that changed it.
    fn is_up_to_date(&self) -> bool {
        self.seen.as_ref().is_some_and(|it| self.mark <= it.mark)
    }

    /// Adds an action, unless it is in flight or in back-off.
    fn give(&mut self, action: Action, now: Time) -> bool {
        if self.under_way.contains(&action) {
            return false;
        }
        if let Some(at) = action.tried_again().and_then(|it| self.waits.until(&it)).filter(|at| now < *at) {
            self.wake(at);
            return false;
        }
        self.under_way.push(action.clone());
        self.actions.push(action);
        true
    }

    fn wake(&mut self, at: Time) {
        self.wake_at = earliest(self.wake_at, Some(at));
    }

    fn is_under_way(&self, is: impl Fn(&Action) -> bool) -> bool {
        self.under_way.iter().any(is)
    }

    fn emit(&mut self, event: Event) {
        let about = ObjectReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            key: self.object.key.clone(),
            uid: self.object.uid.clone(),
            resource_version: self.object.resource_version,
        };
        self.events.push(EventRecord { about, event });
    }

    fn note(&mut self, reason: &'static str, message: String) {
        self.emit(Event::normal(reason, message));
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.emit(Event::warning(reason, message));
    }

    /// As a kubelet calls it in messages.
    fn title(&self) -> String {
        let ObjectKey { namespace, name } = &self.object.key;
        alloc::format!("{name}_{namespace}({})", self.object.uid)
    }
}

/// An event's reason is one of a few.
fn event_reason(reason: &str) -> &'static str {
    const ALL: [&str; 13] = [
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
    ALL.into_iter().find(|it| *it == reason).unwrap_or("UnexpectedAdmissionError")
}

impl Action {
    /// The runtime must be asked again once it is done.
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

    /// The pod is not over while it is under way.
    fn holds_up(&self) -> bool {
        self.changes_the_runtime() || matches!(self, Self::Prepare | Self::CleanUp { .. } | Self::Delete)
    }

    /// What it is called while it waits to be tried again after a failure. Those about an image or a container's start have
    /// back-offs of their own.
    fn tried_again(&self) -> Option<String> {
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

    fn wait_max(&self) -> Duration {
        match self {
            Self::Prepare => Duration::from_secs(20),
            _ => Duration::from_secs(10),
        }
    }

    /// The container that it is about.
    pub fn container(&self) -> Option<&Text> {
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

/// As tests and logs show it.
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
            Self::PostStart { container, id, .. } => write!(f, "run the hook of {container} {id}"),
            Self::Probe { container, id, probe, .. } => {
                write!(f, "{} probe of {container} {id}", probe.as_str())
            }
            Self::Stop { container, id, grace, pre_stop } => {
                let hook = if *pre_stop { " after its hook" } else { "" };
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
