//! The hooks and probes of running containers, and the decision whether a container must be killed.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::text::Text;
use muster_api::time::Time;

use super::{Action, ActionOutcome, Container, ContainerState, PodStateMachine, ProbeKind, RuntimeState};

/// The kubelet's state about one container instance while it runs: its postStart hook, its probes, and whether it must
/// be killed or is being stopped. A restarted container is a new instance, with a new `RunningContainer`.
#[derive(Clone, Debug)]
pub(super) struct RunningContainer {
    /// Name of the container in the pod's spec.
    name: Text,
    /// Time at which the container was started.
    since: Time,
    /// State of the container's postStart hook.
    pub hook: HookState,
    /// The state of each probe, by kind. A kind without an entry has the default state: it has not run yet.
    probes: BTreeMap<ProbeKind, ProbeState>,
    /// Why the container must be killed. `None` if it need not be killed.
    pub kill: Option<KillReason>,
    /// Time by which the container must have stopped. `None` if the container is not being stopped.
    pub stop_by: Option<Time>,
}

/// Why a container must be killed, and with which grace period.
#[derive(Clone, Debug)]
pub(super) struct KillReason {
    /// Message of the event `Killing`.
    pub message: String,
    /// Grace period of the stop. `None` means the `terminationGracePeriodSeconds` of the pod.
    pub grace: Option<Duration>,
}

/// State of the postStart hook of a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HookState {
    /// The postStart hook has not completed yet.
    Pending,
    /// The postStart hook has succeeded, or the container has none. Also the state of a container that another agent
    /// process started.
    Done,
    /// The postStart hook has failed, and the container is killed.
    Failed,
}

/// State of one probe (startup, liveness or readiness) of a container instance: its results, and when it runs next.
#[derive(Clone, Debug, Default)]
struct ProbeState {
    /// Time at which the probe runs next. `None` if it has not run yet: then it runs after its initial delay.
    next: Option<Time>,
    /// Whether the probe passed when it last ran. `None` if it has not run yet.
    last: Option<bool>,
    /// Number of consecutive probe results that equal `last`.
    equal_results: u32,
    /// Whether the container counts as passing the probe. `None` until consecutive successes reach `successThreshold`,
    /// or consecutive failures reach `failureThreshold`. The initial value for an adopted container is from its
    /// reported status.
    verdict: Option<bool>,
}

impl RunningContainer {
    /// Creates the state of the container instance that was started at `since`. None of its probes has run.
    pub(super) fn new(name: &Text, since: Time, hook: HookState) -> Self {
        Self { name: name.clone(), since, hook, probes: BTreeMap::new(), kill: None, stop_by: None }
    }

    /// Returns whether the container counts as passing a probe. `None` until consecutive equal results reach the
    /// threshold of the probe.
    fn verdict(&self, kind: ProbeKind) -> Option<bool> {
        self.probes.get(&kind).and_then(|it| it.verdict)
    }
}

impl PodStateMachine {
    /// Updates the tracked containers from a new runtime state: removes containers that no longer exist, adds running
    /// containers that another agent process started, and records start times and attempt numbers.
    pub(super) fn track_containers(&mut self, runtime_state: &RuntimeState, _: Time) {
        self.running_containers.retain(|id, _| runtime_state.containers.iter().any(|it| it.id == *id));
        for container in &runtime_state.containers {
            let history = self.start_histories.entry(container.name.clone()).or_default();
            history.attempt = history.attempt.max(Some(container.attempt));
            let ContainerState::Running { since } = container.state else { continue };
            if let Some(running) = self.running_containers.get_mut(&container.id) {
                running.since = since;
            } else if !self.is_starting(&container.name) {
                let running = self.adopted_container(container, since);
                self.running_containers.insert(container.id.clone(), running);
            }
        }
    }

    /// Whether the start of the container with this name is in flight.
    fn is_starting(&self, name: &Text) -> bool {
        self.is_in_flight(|it| matches!(it, Action::Start { container, .. } if container == name))
    }

    /// Returns the initial state of a running container that this agent process did not start.
    ///
    /// Rule: a container that was started before this agent process keeps its reported readiness until its probes have
    /// new results.
    fn adopted_container(&self, container: &Container, since: Time) -> RunningContainer {
        let mut running = RunningContainer::new(&container.name, since, HookState::Done);
        let known = self.reported_container(&container.name);
        if known["containerID"].as_str() == Some(&*self.status_container_id(&container.id)) {
            for (kind, field) in [(ProbeKind::Startup, "started"), (ProbeKind::Readiness, "ready")] {
                let verdict = (known[field] == true).then_some(true);
                running.probes.insert(kind, ProbeState { verdict, ..ProbeState::default() });
            }
        }
        running
    }

    /// Issues the postStart hooks and the probes that are due, for all running containers.
    pub(super) fn run_hooks_and_probes(&mut self, now: Time) {
        let running = self.runtime_state.iter().flat_map(|it| &it.containers);
        let running = running.filter(|it| matches!(it.state, ContainerState::Running { .. }));
        let running: Vec<(Text, Text)> = running.map(|it| (it.id.clone(), it.name.clone())).collect();
        for (id, name) in running {
            let Some(running) = self.running_containers.get(&id) else { continue };
            if running.hook == HookState::Pending && running.stop_by.is_none() {
                if let Some(position) = self.object.spec.find_container(&name).map(|it| it.position) {
                    let (container, id) = (name.clone(), id.clone());
                    self.issue(Action::PostStart { container, position, id }, now);
                }
                continue;
            }
            for kind in ProbeKind::ALL {
                self.probe(&id, &name, kind, now);
            }
        }
    }

    /// Issues the probe of this kind of the running container with this ID and name, if the container has the probe and
    /// it is due. If the probe is due later, requests a sync at that time.
    ///
    /// Rule: liveness and readiness probes start when the startup probe has passed. A container that is being stopped
    /// is not probed, but while the whole pod terminates, its readiness probes still run.
    fn probe(&mut self, id: &Text, name: &Text, kind: ProbeKind, now: Time) {
        let Some(container) = self.object.spec.find_container(name) else { return };
        let (Some(probe), position) = (container.probe(kind).cloned(), container.position) else { return };
        let is_started = self.is_started(id);
        let is_terminating = self.is_terminating();
        let Some(running) = self.running_containers.get_mut(id) else { return };
        let is_due = match kind {
            ProbeKind::Startup => !is_started,
            ProbeKind::Liveness | ProbeKind::Readiness => is_started,
        };
        let is_stopping = running.kill.is_some() || running.stop_by.is_some() || is_terminating;
        if !is_due || (is_stopping && !(is_terminating && kind == ProbeKind::Readiness)) {
            return;
        }
        let first = (running.since + probe.initial_delay).max(running.since);
        let probing = running.probes.entry(kind).or_default();
        let next = probing.next.unwrap_or(first);
        if now < next {
            return self.request_sync_at(next);
        }
        let action = Action::Probe { container: name.clone(), position, id: id.clone(), probe: kind };
        if self.in_flight.contains(&action) {
            return;
        }
        probing.next = Some(now + probe.period);
        self.issue(action, now);
    }

    /// Applies the outcome of [`Action::Probe`]. When consecutive results reach a threshold, updates the verdict. If
    /// the verdict of a startup or liveness probe is that it failed, the container must be killed.
    pub(super) fn apply_probe_outcome(
        &mut self,
        name: &Text,
        id: &Text,
        kind: ProbeKind,
        outcome: ActionOutcome,
        _: Time,
    ) {
        let (passed, message) = match outcome {
            ActionOutcome::Probed { passed, message } => (passed, message),
            // The probe could not run: its result is unknown.
            ActionOutcome::Failed { message, .. } => {
                let message =
                    format!("{} probe errored and resulted in unknown state: {message}", kind.as_str());
                return self.record_warning("Unhealthy", message);
            }
            _ => return,
        };
        let Some(container) = self.object.spec.find_container(name) else { return };
        let Some(probe) = container.probe(kind).cloned() else { return };
        let restarts = container.restart != super::RestartPolicy::Never;
        let Some(running) = self.running_containers.get_mut(id) else { return };
        let probing = running.probes.entry(kind).or_default();
        probing.equal_results =
            if probing.last == Some(passed) { probing.equal_results.saturating_add(1) } else { 1 };
        probing.last = Some(passed);
        let enough = if passed { probe.successes_min } else { probe.failures_max };
        if enough <= probing.equal_results {
            probing.verdict = Some(passed);
            if !passed && kind != ProbeKind::Readiness && running.kill.is_none() {
                let failed = kind.as_str().to_lowercase();
                let then = if restarts { ", will be restarted" } else { "" };
                let message = format!("Container {name} failed {failed} probe{then}");
                running.kill = Some(KillReason { message, grace: probe.grace });
            }
        }
        match passed {
            false => self.record_warning("Unhealthy", format!("{} probe failed: {message}", kind.as_str())),
            true if message.is_empty() => {}
            true => {
                self.record_warning("ProbeWarning", format!("{} probe warning: {message}", kind.as_str()))
            }
        }
    }

    /// Applies the outcome of [`Action::PostStart`]. `failure` is the error message, `None` after a success. If the
    /// hook failed, the container is killed.
    pub(super) fn apply_post_start_outcome(
        &mut self,
        name: &Text,
        id: &Text,
        failure: Option<Text>,
        _: Time,
    ) {
        let Some(running) = self.running_containers.get_mut(id) else { return };
        running.hook = if failure.is_none() { HookState::Done } else { HookState::Failed };
        let Some(message) = failure else { return };
        running.kill = Some(KillReason { message: "FailedPostStartHook".to_string(), grace: None });
        self.start_histories.entry(name.clone()).or_default().waiting =
            Some(("PostStartHookError".into(), message.clone()));
        self.record_warning("FailedPostStartHook", format!("PostStartHook failed: {message}"));
    }

    /// Whether the running container with this ID has started: its postStart hook has succeeded and its startup probe
    /// has passed, if it has them.
    pub(super) fn is_started(&self, id: &Text) -> bool {
        let Some(running) = self.running_containers.get(id) else { return false };
        let has_probe = self.object.spec.find_container(&running.name).is_some_and(|it| it.startup.is_some());
        running.hook == HookState::Done && (!has_probe || running.verdict(ProbeKind::Startup) == Some(true))
    }

    /// Whether the running container with this ID is ready.
    ///
    /// Rule: a container is ready once it has started and, if it has a readiness probe, the probe has passed.
    pub(super) fn is_ready(&self, id: &Text) -> bool {
        let Some(running) = self.running_containers.get(id) else { return false };
        let has_probe =
            self.object.spec.find_container(&running.name).is_some_and(|it| it.readiness.is_some());
        self.is_started(id) && (!has_probe || running.verdict(ProbeKind::Readiness) == Some(true))
    }
}
