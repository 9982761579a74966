//! A simulated pod, driven by the kubelet rules of the engine with a fake runtime. It reads no clock and makes no API
//! calls.
//!
//! An idle pod needs no state machine. The state machine is dropped, and rebuilt from the API object and the runtime
//! state when the object changes. This saves memory with thousands of pods in one process.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use muster_api::core_v1::PodPhase;
use muster_api::text::Text;
use muster_api::time::{Time, earliest};
use muster_engine::kubelet::pod::{self as kubelet, Action, ActionOutcome, PodObject, Probe, ProbeKind};
use muster_engine::kubelet::wall_clock::WallClock;
use serde_json::Value;

use super::behaviour::{ContainerBehaviour, ContainerTimings, StopBehaviour};
use super::clock::shift_timestamp;
use super::runtime::SimulatedRuntime;
use super::wire;

/// A simulated pod.
#[derive(Debug)]
pub(super) struct SimulatedPod {
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
    pub(super) uid: Arc<str>,
    /// Name of the pod's node.
    pub(super) node: Arc<str>,
    pub(super) on_host_network: bool,
    has_readiness_gates: bool,
    /// The pod's IP address: from its status, or else allocated by its node. `None` if it has no address yet.
    pub(super) address: Option<Ipv4Addr>,
    behaviour: ContainerBehaviour,
    runtime: SimulatedRuntime,
    /// The pod's state machine. `None` while the pod is idle.
    active: Option<Box<ActivePod>>,
    /// The resourceVersion of the pod after the last successful API call. 0 before the first.
    version: u64,
    /// Metadata of the last applied watch event, from which a change by another client is detected.
    last_change: ChangeMarker,
}

/// The metadata fields of a pod that change when another client changes the pod's spec or deletes the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChangeMarker {
    generation: Option<i64>,
    is_deleted: bool,
    deletion_grace_s: Option<i64>,
}

impl ChangeMarker {
    /// Reads the marker from the metadata of a watch event.
    fn from_event(event: &wire::Pod) -> Self {
        let metadata = &event.metadata;
        Self {
            generation: metadata.generation,
            is_deleted: metadata.deletion_timestamp.is_some(),
            deletion_grace_s: metadata.deletion_grace_period_seconds,
        }
    }
}

/// The state machine of a pod that is not idle, and the progress of its actions.
#[derive(Debug)]
struct ActivePod {
    /// The pod's state machine, which the engine's kubelet rules drive.
    kubelet: kubelet::PodStateMachine,
    /// The pod object that the state machine last received.
    object: Arc<PodObject>,
    /// Actions in progress, with the time at which each completes. `None` means that the action does not complete on
    /// its own: the container never stops.
    in_flight: Vec<(Option<Time>, Action)>,
    /// Probes that have passed, each with the ID of its container. A passed probe is not run again.
    passed_probes: BTreeSet<(Text, ProbeKind)>,
    /// The action whose API call is in flight: a status report or a deletion. `None` if no call is in flight.
    call_in_flight: Option<Action>,
    /// The last watch event that arrived while a call was in flight. It is applied when the call has ended.
    deferred_event: Option<wire::Pod>,
    /// Total change of the wall clock since the pod became active. The pod's own time is the wall-clock time without
    /// this change.
    skew: SignedDuration,
}

/// Result of [`SimulatedPod::step`]: the API call to make, if any, and the time at which the next actions are due.
#[derive(Debug)]
pub(super) struct PodStep {
    pub(super) call: Option<PodCall>,
    pub(super) wake_at: Option<Timestamp>,
}

/// Address and container timings of the node that runs a pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimulatedHost {
    pub(super) address: Ipv4Addr,
    pub(super) timings: ContainerTimings,
}

/// An API call that a pod needs.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PodCall {
    /// Report the status, with a strategic merge patch.
    Report(Value),
    /// Delete the pod, whose containers have all stopped.
    Delete,
}

impl SimulatedPod {
    /// Creates a pod from its first watch event. Its containers are restored from its status, so that a restarted
    /// process continues with the containers of the previous process. Returns `None` if the pod cannot be parsed. Each
    /// error, also of an invalid annotation, is passed to `on_invalid`.
    pub(super) fn new(
        event: &wire::Pod,
        host: SimulatedHost,
        now: Timestamp,
        on_invalid: &mut dyn FnMut(String),
    ) -> Option<Self> {
        let behaviour = ContainerBehaviour::read(event.annotations(), on_invalid);
        let object = event.parse().map_err(|error| on_invalid(error.to_string())).ok()?;
        let mut runtime = SimulatedRuntime::restore(&object, now.into());
        let running: Vec<(Text, Text, Time)> =
            runtime.running_containers().map(|(it, since)| (it.id.clone(), it.name.clone(), since)).collect();
        for (id, name, since) in running {
            let Some(container) = object.spec.find_container(&name) else { continue };
            let exit = behaviour
                .for_container(container.role, &container.image)
                .exit_behaviour(container.role, host.timings);
            runtime.schedule_exit(&id, exit, since);
        }
        let mut pod = Self {
            namespace: (*object.key.namespace).into(),
            name: (*object.key.name).into(),
            uid: (*object.uid).into(),
            node: event.node_name.as_deref().unwrap_or_default().into(),
            on_host_network: object.spec.on_host_network,
            has_readiness_gates: !object.spec.gates.is_empty(),
            address: object.status["podIP"].as_str().and_then(|it| it.parse().ok()),
            behaviour,
            runtime,
            active: None,
            version: 0,
            last_change: ChangeMarker::from_event(event),
        };
        pod.apply_object(object, host, now);
        Some(pod)
    }

    /// Applies a watch event of the pod. While an API call is in flight, the event is deferred. An event that is
    /// not newer than the pod's last write, and has neither a spec change nor a deletion, is ignored. If the pod has
    /// readiness gates, the event of the last write itself is still applied.
    pub(super) fn apply_event(&mut self, event: wire::Pod, host: SimulatedHost, now: Timestamp) {
        // An event that is older than the last status write has no newer status. It is still applied if it carries a
        // deletion or a spec change, because the event of such a change may arrive after the response to that write.
        // The event of that write itself is applied if the pod has readiness gates: it has the conditions that other
        // clients have written before.
        let change = ChangeMarker::from_event(&event);
        let seen_version =
            if self.has_readiness_gates { self.version.saturating_sub(1) } else { self.version };
        if event.resource_version() <= seen_version && change == self.last_change {
            return;
        }
        if let Some(active) = self.active.as_mut().filter(|it| it.call_in_flight.is_some()) {
            active.deferred_event = Some(event);
            return;
        }
        match event.parse() {
            Ok(object) => {
                self.last_change = change;
                self.apply_object(object, host, now);
            }
            Err(error) => {
                tracing::warn!(pod = &*self.name, %error, "cannot decode a pod; keeping its last state")
            }
        }
    }

    /// Passes a changed pod to its state machine, which is created if the pod was idle. Adapts the pod's probes to the
    /// simulation before that.
    fn apply_object(&mut self, mut object: PodObject, host: SimulatedHost, now: Timestamp) {
        for container in object.spec.init.iter_mut().chain(&mut object.spec.main) {
            let never_ready = self.behaviour.for_container(container.role, &container.image).never_ready;
            if never_ready && container.readiness.is_none() {
                container.readiness = Some(NEVER_PASSING_PROBE);
            }
            // Probes pass from the first time on, so liveness probes have no effect and one success is enough.
            container.liveness = None;
            for probe in container.startup.iter_mut().chain(&mut container.readiness) {
                probe.successes_min = 1;
            }
        }
        let object = Arc::new(object);
        match &mut self.active {
            Some(active) => {
                let now = active.pod_time(now);
                active.object = object.clone();
                active.kubelet.update_object(object, now);
            }
            None => {
                let host = kubelet::Host {
                    addresses: vec![host.address.to_string().into()],
                    runtime: "sim".into(),
                    wall_clock: WallClock::default(),
                };
                self.active = Some(Box::new(ActivePod {
                    kubelet: kubelet::PodStateMachine::new(object.clone(), host, now.into()),
                    object,
                    in_flight: Vec::new(),
                    passed_probes: BTreeSet::new(),
                    call_in_flight: None,
                    deferred_event: None,
                    skew: SignedDuration::ZERO,
                }));
            }
        }
    }

    /// Shifts the deadlines of the pod by a change of the wall clock, so that no wait becomes longer or shorter.
    pub(super) fn adjust_clock(&mut self, by: SignedDuration) {
        if let Some(active) = &mut self.active {
            active.skew = active.skew.saturating_add(by);
        }
    }

    /// Handles the success of the call in flight. `version` is the resourceVersion of the written object.
    pub(super) fn handle_call_success(&mut self, version: u64, host: SimulatedHost, now: Timestamp) {
        self.version = self.version.max(version);
        self.handle_call_outcome(ActionOutcome::Done, host, now);
    }

    /// Handles the failure of the call in flight.
    pub(super) fn handle_call_failure(&mut self, host: SimulatedHost, now: Timestamp) {
        let failed =
            ActionOutcome::Failed { reason: "Unreachable".into(), message: "the call failed".into() };
        self.handle_call_outcome(failed, host, now);
    }

    /// Passes the outcome of the call in flight to the state machine, then applies the deferred event.
    fn handle_call_outcome(&mut self, outcome: ActionOutcome, host: SimulatedHost, now: Timestamp) {
        let Some(active) = &mut self.active else { return };
        let at = active.pod_time(now);
        if let Some(action) = active.call_in_flight.take() {
            active.kubelet.apply_outcome(&action, outcome, at);
        }
        if let Some(event) = active.deferred_event.take() {
            self.apply_event(event, host, now);
        }
    }

    /// Executes the actions of the pod that are due. Returns at most one API call, which reports the effects of all
    /// executed actions or deletes the pod. Drops the state machine if the pod is then idle.
    pub(super) fn step(&mut self, SimulatedHost { timings, .. }: SimulatedHost, now: Timestamp) -> PodStep {
        let Self { active: active_pod, runtime, behaviour, address, .. } = self;
        let Some(active) = active_pod else { return PodStep { call: None, wake_at: None } };
        let at = active.pod_time(now);
        let address = address.filter(|_| !self.on_host_network);
        let mut call = None;
        loop {
            active.complete_due_operations(runtime, behaviour, timings, at);
            active.kubelet.update_runtime_state(runtime.runtime_state(active.kubelet.change_count()), at);
            let sync = active.kubelet.sync_without_status(at);
            if sync.actions.is_empty() {
                break;
            }
            for action in sync.actions {
                if action == Action::Delete {
                    call = Some(PodCall::Delete);
                    active.call_in_flight = Some(action);
                } else {
                    active.start_action(action, runtime, behaviour, timings, address, at);
                }
            }
        }
        let sync = active.kubelet.sync(at);
        if let Some(Action::Report(patch)) = sync.actions.first() {
            if active.has_final_status() {
                active.kubelet.apply_outcome(&sync.actions[0], ActionOutcome::Done, at);
            } else {
                call = Some(PodCall::Report(patch.clone()));
                active.call_in_flight = sync.actions.into_iter().next();
            }
        }
        let due = active.in_flight.iter().filter_map(|(due, _)| *due).chain(runtime.next_exit());
        let wake_at = earliest(sync.wake_at, due.min());
        let step = PodStep { call, wake_at: wake_at.map(|it| active.wall_time(it)) };
        let is_at_rest = step.call.is_none()
            && wake_at.is_none()
            && active.in_flight.is_empty()
            && active.kubelet.can_be_rebuilt();
        if is_at_rest {
            *active_pod = None;
        }
        step
    }
}

/// A readiness probe for containers that have no readiness probe but must never become ready.
const NEVER_PASSING_PROBE: Probe = Probe {
    initial_delay: Duration::ZERO,
    period: Duration::from_secs(10),
    failures_max: 3,
    successes_min: 1,
    grace: None,
};

impl ActivePod {
    /// Whether the pod has the phase Succeeded or Failed on the API server, and is not being deleted. The status of
    /// such a pod is no longer reported, because another client may have written it.
    fn has_final_status(&self) -> bool {
        let has_ended =
            self.object.status["phase"].as_str().is_some_and(|it| PodPhase::parse(it).is_terminal());
        has_ended && self.object.deletion_grace.is_none()
    }

    /// Converts a wall-clock time to the pod's own time, which does not follow changes of the wall clock.
    fn pod_time(&self, now: Timestamp) -> Time {
        Time::from(shift_timestamp(now, -self.skew))
    }

    /// Converts the pod's own time, which does not follow changes of the wall clock, to a wall-clock time.
    fn wall_time(&self, at: Time) -> Timestamp {
        shift_timestamp(Timestamp::from_microsecond(at.as_micros()).unwrap_or(Timestamp::MAX), self.skew)
    }

    /// Starts an action. Most actions take no time and complete immediately.
    fn start_action(
        &mut self,
        action: Action,
        runtime: &mut SimulatedRuntime,
        behaviour: &ContainerBehaviour,
        timings: ContainerTimings,
        address: Option<Ipv4Addr>,
        now: Time,
    ) {
        let of = |name: &str| {
            let container = self.object.spec.find_container(name);
            container
                .map_or_else(ContainerBehaviour::default, |it| behaviour.for_container(it.role, &it.image))
        };
        let outcome = match &action {
            Action::Start { container, .. } => {
                let takes = of(container).start.unwrap_or(timings.start);
                return self.in_flight.push((Some(now + takes), action));
            }
            Action::Stop { container, grace, .. } => {
                let due = match of(container).stop.unwrap_or(StopBehaviour::After(timings.stop)) {
                    StopBehaviour::After(takes) => Some(now + takes.min(*grace)),
                    StopBehaviour::Never => None,
                };
                return self.in_flight.push((due, action));
            }
            Action::Probe { container, id, probe, .. } => {
                let never = *probe == ProbeKind::Readiness && of(container).never_ready;
                if never || !self.passed_probes.insert((id.clone(), *probe)) {
                    return;
                }
                ActionOutcome::Probed { passed: true, message: "".into() }
            }
            Action::FindImage { container, .. } if of(container).image_missing => ActionOutcome::Absent,
            Action::FindImage { .. } => ActionOutcome::Present,
            Action::Pull { container, image } if of(container).image_missing => ActionOutcome::Failed {
                reason: "ErrImagePull".into(),
                message: format!("failed to pull and unpack image {image:?}: {image}: not found").into(),
            },
            Action::Pull { .. } => ActionOutcome::Pulled { bytes: 0 },
            action => runtime.execute_instant_action(action, address, now),
        };
        self.kubelet.apply_outcome(&action, outcome, now);
    }

    /// Completes the container exits, starts and stops that are due. Cancels starts if the pod is deleted.
    fn complete_due_operations(
        &mut self,
        runtime: &mut SimulatedRuntime,
        behaviour: &ContainerBehaviour,
        timings: ContainerTimings,
        now: Time,
    ) {
        runtime.exit_due_containers(now);
        let is_deleted = self.object.deletion_grace.is_some();
        let is_due = |(due, action): &mut (Option<Time>, Action)| {
            due.is_some_and(|it| it <= now) || (is_deleted && matches!(action, Action::Start { .. }))
        };
        let due: Vec<(Option<Time>, Action)> = self.in_flight.extract_if(.., is_due).collect();
        for (_, action) in due {
            let outcome = match &action {
                // A start in progress is cancelled when the pod is deleted, as in the kubelet.
                Action::Start { .. } if is_deleted => ActionOutcome::Failed {
                    reason: "RunContainerError".into(),
                    message: "context canceled".into(),
                },
                Action::Start { position, .. } => {
                    let spec = self.object.spec.all_containers().nth(*position);
                    let image = spec.map(|it| it.image.clone()).unwrap_or_default();
                    let outcome = runtime.start_container(&self.object.uid, &image, &action, now);
                    let exit = spec.and_then(|it| {
                        behaviour.for_container(it.role, &it.image).exit_behaviour(it.role, timings)
                    });
                    if let ActionOutcome::Started { id } = &outcome {
                        runtime.schedule_exit(id, exit, now);
                    }
                    outcome
                }
                Action::Stop { container, id, grace, .. } => {
                    let spec = self.object.spec.find_container(container);
                    let behaviour =
                        spec.map(|it| behaviour.for_container(it.role, &it.image)).unwrap_or_default();
                    let is_killed = matches!(behaviour.stop.unwrap_or(StopBehaviour::After(timings.stop)), StopBehaviour::After(it) if *grace < it);
                    runtime.stop_container(id, is_killed, now);
                    ActionOutcome::Done
                }
                _ => ActionOutcome::Done,
            };
            self.kubelet.apply_outcome(&action, outcome, now);
        }
        // A container that was stopped more than once, or that exited meanwhile, has stopped.
        let has_stopped = |(_, action): &mut (Option<Time>, Action)| matches!(action, Action::Stop { id, .. } if !runtime.is_running(id));
        let stopped: Vec<(Option<Time>, Action)> = self.in_flight.extract_if(.., has_stopped).collect();
        stopped.iter().for_each(|(_, action)| self.kubelet.apply_outcome(action, ActionOutcome::Done, now));
    }
}
