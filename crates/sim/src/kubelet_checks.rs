//! Invariants of a kubelet's actions for one pod. The checks do not use rules of the engine, so that the engine does
//! not check itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_api::core_v1::PodPhase;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::kubelet::pod::{Action, ActionOutcome, ContainerState, ProbeKind, RuntimeState};
use serde_json::Value;

/// Checks the actions of a kubelet for one pod.
#[derive(Debug, Default)]
pub struct KubeletChecks {
    /// IDs of containers whose startup probe has passed. They are kept when the kubelet restarts.
    started_containers: BTreeSet<Text>,
    /// The kubelet's actions in progress. Forgotten when the kubelet restarts.
    in_progress: Vec<Action>,
    /// Restarts by container name. Forgotten when the kubelet restarts.
    restarts: BTreeMap<Text, RestartHistory>,
    /// IDs of containers whose preStop hook was started. Forgotten when the kubelet restarts.
    hooks: BTreeSet<Text>,
    /// Deadline by which all containers of the pod must be stopped. Forgotten when the kubelet restarts.
    stop_deadline: Option<Time>,
    /// The phase that the kubelet last reported, or read when it started.
    phase: PodPhase,
}

/// The restarts of one container of the spec.
#[derive(Debug)]
struct RestartHistory {
    /// ID of the exited container that was last replaced.
    after: Text,
    /// Time of the last restart.
    at: Time,
    /// Number of restarts without a run of more than ten minutes between them.
    count: u32,
}

/// Tolerance of the checks of grace periods. A grace period is a whole number of seconds.
const GRACE_TOLERANCE: Duration = Duration::from_secs(1);

impl KubeletChecks {
    /// Records that a new kubelet process starts and reads `status`, the stored status of the pod. Forgets the records
    /// of the earlier process, except the passed startup probes.
    pub fn on_kubelet_start(&mut self, status: &Value) {
        let passed = std::mem::take(&mut self.started_containers);
        *self = Self { started_containers: passed, phase: phase_of(status), ..Self::default() };
    }

    /// Records the deadline `at`, by which the kubelet must have stopped all containers. If an earlier deadline is
    /// already recorded, that deadline holds.
    pub fn set_stop_deadline(&mut self, at: Time) {
        self.stop_deadline = Some(self.stop_deadline.map_or(at, |it| it.min(at)));
    }

    /// Checks an action that the kubelet starts, and records it as in progress. `spec` is the spec of the pod, and
    /// `seen` is the state of the runtime. The error describes the violation.
    pub fn check_action(
        &mut self,
        action: &Action,
        spec: &Value,
        seen: &RuntimeState,
        now: Time,
    ) -> Result<(), String> {
        if self.in_progress.contains(action) {
            return Err(format!("{action}: started again while it is in progress"));
        }
        self.in_progress.push(action.clone());
        match action {
            Action::Start { container, .. } => self.check_restart_backoff(container, seen, now),
            Action::Probe { container, id, probe, .. } => {
                self.check_probe_allowed(container, id, *probe, spec)
            }
            Action::Stop { id, grace, pre_stop, .. } => self.check_stop_allowed(id, *grace, *pre_stop, now),
            Action::Report(patch) => self.check_phase_order(&patch["status"]),
            _ => Ok(()),
        }
    }

    /// Records that the response to an action has reached the kubelet.
    pub fn on_response(&mut self, action: &Action) {
        self.in_progress.retain(|it| it != action);
    }

    /// Records that an action was executed. A passed startup probe marks the container as started.
    pub fn on_outcome(&mut self, action: &Action, outcome: &ActionOutcome) {
        if let (
            Action::Probe { id, probe: ProbeKind::Startup, .. },
            ActionOutcome::Probed { passed: true, .. },
        ) = (action, outcome)
        {
            self.started_containers.insert(id.clone());
        }
    }

    /// Checks the crash-loop backoff of a container that starts, and records the restart. An exited container may
    /// restart immediately the first time, and then no earlier than 10 s, 20 s and so on up to 5 min after its exit. A
    /// run of more than ten minutes, or a restart of the kubelet, resets the backoff.
    fn check_restart_backoff(&mut self, name: &Text, seen: &RuntimeState, now: Time) -> Result<(), String> {
        let all = seen.containers.iter().filter(|it| it.name == *name);
        let Some(last) = all.max_by_key(|it| it.attempt) else { return Ok(()) };
        let ContainerState::Exited { finished, .. } = last.state else { return Ok(()) };
        let before = self.restarts.remove(name);
        if let Some(before) = before.as_ref().filter(|it| it.after == last.id) {
            // The previous attempt to start the container failed, and is repeated.
            let RestartHistory { after, at, count } = before;
            self.restarts
                .insert(name.clone(), RestartHistory { after: after.clone(), at: *at, count: *count });
            return Ok(());
        }
        let ran_long = |it: &RestartHistory| Duration::from_secs(600) < finished.since(it.at);
        let count = before.filter(|it| !ran_long(it)).map_or(0, |it| it.count);
        let waits = [0, 10, 20, 40, 80, 160, 300];
        let wait = waits[usize::try_from(count).unwrap_or(0).min(waits.len() - 1)];
        if now < finished + Duration::from_secs(wait) {
            return Err(format!(
                "{name} restarts before its backoff of {wait} s has passed (restart {count})"
            ));
        }
        self.restarts
            .insert(name.clone(), RestartHistory { after: last.id.clone(), at: now, count: count + 1 });
        Ok(())
    }

    /// Checks that no liveness or readiness probe runs before the startup probe of the container has passed.
    fn check_probe_allowed(
        &self,
        name: &Text,
        id: &Text,
        probe: ProbeKind,
        spec: &Value,
    ) -> Result<(), String> {
        let lists = ["initContainers", "containers"].into_iter().filter_map(|it| spec[it].as_array());
        let container = lists.flatten().find(|it| it["name"] == **name);
        let starts_slowly = container.is_some_and(|it| it["startupProbe"].is_object());
        let has_started = !starts_slowly || self.started_containers.contains(id);
        match probe {
            ProbeKind::Liveness | ProbeKind::Readiness if !has_started => {
                Err(format!("{name} is probed before its startup probe has passed"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the preStop hook of the container `id` runs only once. Also checks that `grace`, the grace period of
    /// the container, ends at most [`GRACE_TOLERANCE`] after the deadline of the pod.
    fn check_stop_allowed(
        &mut self,
        id: &Text,
        grace: Duration,
        hook: bool,
        now: Time,
    ) -> Result<(), String> {
        if hook && !self.hooks.insert(id.clone()) {
            return Err(format!("the preStop hook of {id} runs twice"));
        }
        match self.stop_deadline {
            Some(by) if by.max(now) + GRACE_TOLERANCE < now + grace => Err(format!(
                "{id} gets a grace period of {grace:?}, which ends {:?} after the pod's deadline",
                (now + grace).since(by)
            )),
            _ => Ok(()),
        }
    }

    /// Checks that the phase of a pod only advances from Pending to Running to Succeeded or Failed.
    fn check_phase_order(&mut self, status: &Value) -> Result<(), String> {
        let before = std::mem::replace(&mut self.phase, phase_of(status));
        let has_ended = before.is_terminal();
        if self.phase < before || (has_ended && self.phase != before) {
            return Err(format!("the phase goes back from {} to {}", before.as_str(), status["phase"]));
        }
        Ok(())
    }
}

/// Returns the phase in a pod's status. A status without a phase has the phase Pending.
fn phase_of(status: &Value) -> PodPhase {
    PodPhase::parse(status["phase"].as_str().unwrap_or_default())
}
