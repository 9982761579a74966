//! Simulation of one pod on one node. It runs the shipped rules of `engine::kubelet::pod` with a slow and failing
//! runtime, crashing containers, a crashing kubelet, and users who change and delete the pod.
//!
//! In the first phase every component may fail, and safety is checked at every step. Then all faults stop, and the pod
//! must converge. Then the pod is deleted, and none of its containers may remain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_api::core_v1::PodPhase;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_engine::kubelet::pod::{
    Action, ActionOutcome, Container, ContainerState, Host, PodObject, PodStateMachine, PodTermination,
    RestartPolicy, RuntimeState,
};
use muster_engine::kubelet::wall_clock::WallClock;
use serde_json::{Value, json};

use crate::container_runtime::{SimRuntime, is_running_state};
use crate::kubelet_checks::KubeletChecks;
use crate::rng::Rng;
use crate::server::apply_patch;

/// Runs the simulation of one pod with a seed. The error describes the violation and contains the trace.
pub fn run_pod_seed(seed: u64) -> Result<(), String> {
    let mut simulation = PodSimulation::from_seed(seed);
    simulation.run_all_phases().map_err(|why| {
        let PodSimulation { object, trace, .. } = &simulation;
        format!("seed {seed}: {why}\n{}\n{}", object, trace.join("\n"))
    })
}

/// Duration of the phase with faults.
const POD_FAULTS_DURATION: Duration = Duration::from_secs(600);
/// Time within which the pod must converge after the phase with faults. It is longer than the longest backoff.
const POD_CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(700);
/// Maximum number of executed tasks in one phase. A phase with more tasks has a hot loop.
const PHASE_STEPS_MAX: usize = 100_000;

/// A scheduled task of the simulation.
#[derive(Debug)]
enum PodTask {
    /// The runtime or the API server executes an action.
    Execute { process_number: u64, action: Action },
    /// The outcome of an action reaches the kubelet.
    Respond { process_number: u64, action: Action, outcome: ActionOutcome },
    /// The container with this ID exits on its own, with this exit code.
    Exit { id: Text, code: i32 },
    /// The kubelet queries the state of the runtime.
    QueryRuntime { process_number: u64 },
    /// The queried state of the runtime reaches the kubelet.
    RuntimeQueried { process_number: u64, seen: RuntimeState },
    /// The watch delivers the current object to the kubelet. If the object no longer exists, the watch delivers its
    /// deletion.
    Watch { process_number: u64 },
    /// The kubelet's timer for the next sync fires.
    Wake { process_number: u64 },
    /// Injects a fault or a user action.
    Chaos,
    /// A new kubelet process starts.
    StartKubelet,
}

/// The simulation of one pod.
struct PodSimulation {
    rng: Rng,
    now: Time,
    /// Scheduled tasks, by time and sequence number.
    tasks: BTreeMap<(Time, u64), PodTask>,
    /// Sequence number of the last scheduled task. It orders tasks at the same time.
    sequence: u64,
    /// UID of the pod.
    uid: Text,
    /// The pod on the API server.
    object: Value,
    /// Whether the pod exists on the API server.
    exists: bool,
    runtime: SimRuntime,
    /// The running kubelet's state of the pod. `None` while the kubelet is not running.
    kubelet: Option<PodStateMachine>,
    /// Number of kubelet starts and crashes. Tasks of an earlier kubelet process are ignored. Exception: an action that
    /// the earlier process has started is still executed.
    process_number: u64,
    /// Whether the kubelet has observed that the pod is deleted or being deleted.
    has_seen_deletion: bool,
    /// Time of the next scheduled sync. `None` if no sync is scheduled.
    wake_at: Option<Time>,
    /// Whether faults are injected: true in the first phase only.
    has_faults: bool,
    /// Restart policy of the pod.
    restart: RestartPolicy,
    /// Exit codes of the exited containers, by container name. They decide whether a restart is allowed.
    exit_codes: BTreeMap<Text, Vec<i32>>,
    /// IDs of the sandboxes in which a main container has started.
    started_sandboxes: BTreeSet<Text>,
    /// Name and attempt of every container that was started.
    started_attempts: BTreeSet<(Text, u32)>,
    /// Invariant checks of the kubelet's actions.
    checks: KubeletChecks,
    /// Log lines of the run.
    trace: Vec<String>,
}

/// Names of the init containers, and whether each one is a sidecar. A pod has the first zero to three of them.
const INIT_CONTAINERS: [(&str, bool); 3] = [("first", false), ("proxy", true), ("second", false)];
/// Names of the main containers.
const MAIN_CONTAINERS: [&str; 2] = ["log", "web"];

impl PodSimulation {
    /// Returns the simulation of a random pod, which is drawn from a seed.
    fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let restarts = [
            (RestartPolicy::Always, "Always"),
            (RestartPolicy::OnFailure, "OnFailure"),
            (RestartPolicy::Never, "Never"),
        ];
        let (restart, policy) = restarts[usize::try_from(rng.below(3)).unwrap_or(0)];
        let image = |name: &str| json!({"name": name, "image": format!("{name}:1")});
        let init = INIT_CONTAINERS.map(|(name, is_sidecar)| {
            let mut container = image(name);
            if is_sidecar {
                container["restartPolicy"] = "Always".into();
                container["startupProbe"] = json!({"exec": {}, "periodSeconds": 3, "failureThreshold": 20});
            }
            container
        });
        let count = usize::try_from(rng.below(4)).unwrap_or(0);
        let mut main = MAIN_CONTAINERS.map(image);
        main[0]["readinessProbe"] = json!({"exec": {}, "periodSeconds": 20});
        main[1]["livenessProbe"] = json!({"exec": {}, "periodSeconds": 30, "failureThreshold": 2});
        if rng.chance(500) {
            main[1]["startupProbe"] = json!({"exec": {}, "periodSeconds": 2, "failureThreshold": 10});
        }
        if rng.chance(300) {
            main[0]["lifecycle"] = json!({"postStart": {"exec": {}}, "preStop": {"exec": {}}});
        }
        let object = json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "1", "generation": 1},
            "spec": {
                "restartPolicy": policy,
                "terminationGracePeriodSeconds": rng.below(40),
                "initContainers": init[..count].to_vec(),
                "containers": main.to_vec(),
            },
            "status": {"phase": "Pending"},
        });
        Self {
            rng,
            now: Time::from_secs(1_000_000),
            tasks: BTreeMap::new(),
            sequence: 0,
            uid: "u".into(),
            object,
            exists: true,
            runtime: SimRuntime::default(),
            kubelet: None,
            process_number: 0,
            has_seen_deletion: false,
            wake_at: None,
            has_faults: true,
            restart,
            exit_codes: BTreeMap::new(),
            started_sandboxes: BTreeSet::new(),
            started_attempts: BTreeSet::new(),
            checks: KubeletChecks::default(),
            trace: Vec::new(),
        }
    }

    /// Runs the phase with faults and the phase of convergence, and then deletes the pod. The error is the first
    /// violation.
    fn run_all_phases(&mut self) -> Result<(), String> {
        self.schedule_task(0, PodTask::StartKubelet);
        self.schedule_task(100, PodTask::Chaos);
        self.run_for(POD_FAULTS_DURATION)?;
        self.has_faults = false;
        if self.kubelet.is_none() {
            self.schedule_task(0, PodTask::StartKubelet);
        }
        self.run_for(POD_CONVERGENCE_TIMEOUT)?;
        if self.exists {
            self.check_converged()?;
            self.add_trace_line("the pod is deleted");
            self.mark_deleted(30);
            self.run_for(POD_CONVERGENCE_TIMEOUT)?;
        }
        if self.exists {
            return Err("the pod was deleted, but still exists on the API server".into());
        }
        if let Some(uid) = self.runtime.pod_uids().next() {
            return Err(format!(
                "the pod is deleted from the API server, but the runtime still has {:?}",
                self.runtime.runtime_state(uid, 0)
            ));
        }
        match &self.kubelet {
            Some(pod) if !pod.is_finished() => {
                Err("nothing of the pod is left, but the kubelet keeps its state".into())
            }
            _ => Ok(()),
        }
    }

    /// Executes the tasks that are due within the duration `span`. Returns an error at the first violation.
    fn run_for(&mut self, span: Duration) -> Result<(), String> {
        let end = self.now + span;
        let mut steps = 0;
        while let Some(((at, _), _)) = self.tasks.first_key_value() {
            if end < *at {
                break;
            }
            let ((at, _), task) = self.tasks.pop_first().expect("there is a first");
            self.now = self.now.max(at);
            self.execute_task(task)?;
            steps += 1;
            if PHASE_STEPS_MAX < steps {
                return Err("a hot loop".into());
            }
        }
        self.now = end;
        Ok(())
    }

    /// Schedules a task after `millis` milliseconds.
    fn schedule_task(&mut self, millis: u64, task: PodTask) {
        self.sequence += 1;
        self.tasks.insert((self.now + Duration::from_millis(millis), self.sequence), task);
    }

    /// Adds a line with the current time to the trace.
    fn add_trace_line(&mut self, what: impl Into<String>) {
        let at = self.now.as_micros() / 1000 - 1_000_000_000;
        self.trace.push(format!("{:>8}.{:03} {}", at / 1000, at % 1000, what.into()));
    }

    /// Executes a task. A task of an earlier kubelet process is ignored, unless it executes an action that this process
    /// has started. Returns an error if an invariant is violated.
    fn execute_task(&mut self, task: PodTask) -> Result<(), String> {
        let process_number = self.process_number;
        match task {
            PodTask::StartKubelet => self.start_kubelet(),
            PodTask::Chaos => self.inject_random_fault(),
            PodTask::Exit { id, code } => self.exit_container(&id, code),
            PodTask::Execute { process_number: of, action } => self.apply_action(of, action)?,
            PodTask::Respond { process_number: of, action, outcome } if of == process_number => {
                self.add_trace_line(format!("  {action}: {}", outcome_summary(&outcome)));
                let now = self.now;
                self.checks.on_response(&action);
                if let Some(pod) = &mut self.kubelet {
                    pod.apply_outcome(&action, outcome, now);
                }
                self.schedule_runtime_query(1);
                self.sync_pod()?;
            }
            PodTask::QueryRuntime { process_number: of } if of == process_number => {
                if let Some(pod) = &self.kubelet {
                    let seen = self.runtime.runtime_state(&self.uid, pod.change_count());
                    let late = self.rng.between(1, if self.has_faults { 300 } else { 10 });
                    self.schedule_task(late, PodTask::RuntimeQueried { process_number, seen });
                }
            }
            PodTask::RuntimeQueried { process_number: of, seen } if of == process_number => {
                let now = self.now;
                if let Some(pod) = &mut self.kubelet {
                    pod.update_runtime_state(seen, now);
                }
                self.sync_pod()?;
            }
            PodTask::Watch { process_number: of } if of == process_number => {
                let (now, object) = (self.now, self.parsed_pod());
                self.observe_deletion();
                if let Some(pod) = &mut self.kubelet {
                    if self.exists { pod.update_object(object, now) } else { pod.mark_removed_from_api(now) }
                }
                self.sync_pod()?;
            }
            PodTask::Wake { process_number: of }
                if of == process_number && self.wake_at.is_some_and(|at| at <= self.now) =>
            {
                self.wake_at = None;
                self.sync_pod()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the pod on the API server, parsed for the kubelet's rules.
    fn parsed_pod(&self) -> Arc<PodObject> {
        Arc::new(PodObject::from_value(&self.object).expect("it is a pod"))
    }

    /// Starts a new kubelet process, unless one is running.
    fn start_kubelet(&mut self) {
        if self.kubelet.is_some() {
            return;
        }
        self.process_number += 1;
        self.add_trace_line(format!("kubelet {} starts", self.process_number));
        self.checks.on_kubelet_start(&self.object["status"]);
        self.observe_deletion();
        let host = Host {
            addresses: ["192.168.0.1".into()].into(),
            runtime: "sim".into(),
            wall_clock: WallClock::default(),
        };
        self.kubelet = Some(if self.exists {
            PodStateMachine::new(self.parsed_pod(), host, self.now)
        } else {
            PodStateMachine::orphan(ObjectKey::new("default", "p"), self.uid.clone(), host, self.now)
        });
        self.wake_at = None;
        self.schedule_runtime_query(1);
    }

    /// Records what the kubelet observes in the current object: whether the pod is being deleted, and by when its
    /// containers must be stopped.
    fn observe_deletion(&mut self) {
        let meta = &self.object["metadata"];
        let is_deleted = meta["deletionTimestamp"].is_string();
        self.has_seen_deletion = !self.exists || is_deleted;
        let grace_s = match (self.exists, is_deleted) {
            (false, _) => Some(2),
            (true, true) => meta["deletionGracePeriodSeconds"].as_u64(),
            (true, false) => None,
        };
        if let Some(grace_s) = grace_s {
            self.checks.set_stop_deadline(self.now + Duration::from_secs(grace_s));
        }
    }

    /// Schedules a query of the runtime by the kubelet after `late` milliseconds.
    fn schedule_runtime_query(&mut self, late: u64) {
        self.schedule_task(late, PodTask::QueryRuntime { process_number: self.process_number });
    }

    /// Runs the kubelet's rules once, checks the resulting actions, and schedules their execution and the next sync.
    fn sync_pod(&mut self) -> Result<(), String> {
        let (now, process_number) = (self.now, self.process_number);
        let Some(pod) = &mut self.kubelet else { return Ok(()) };
        let sync = pod.sync(now);
        if let Some(at) = sync.wake_at
            && self.wake_at.is_none_or(|before| at < before)
        {
            self.wake_at = Some(at);
            let late = u64::try_from(at.since(now).as_millis()).unwrap_or(u64::MAX) + 1;
            self.schedule_task(late, PodTask::Wake { process_number });
        }
        for action in sync.actions {
            self.add_trace_line(match &action {
                Action::Report(patch) => format!("report {}", patch["status"]),
                action => action.to_string(),
            });
            let seen = self.runtime.runtime_state(&self.uid, 0);
            self.checks.check_action(&action, &self.object["spec"], &seen, now)?;
            let begins = matches!(action, Action::Start { .. } | Action::RunSandbox { .. });
            if begins && self.has_seen_deletion {
                return Err(format!("{action}: but the pod is being deleted"));
            }
            let slow = if self.has_faults { 1500 } else { 50 };
            let late = self.rng.between(1, slow);
            self.schedule_task(late, PodTask::Execute { process_number, action });
        }
        Ok(())
    }

    /// Executes an action and schedules the response, even if the kubelet process that issued the action has crashed.
    /// If faults are injected, the action may fail, before or after it takes effect.
    fn apply_action(&mut self, process_number: u64, action: Action) -> Result<(), String> {
        let failed =
            ActionOutcome::Failed { reason: failure_reason(&action).into(), message: "it failed".into() };
        let fails = self.has_faults && self.rng.chance(120);
        // Some calls take effect although they return an error.
        let outcome = if fails && self.rng.chance(600) {
            failed
        } else {
            let outcome = self.execute_on_target(process_number, &action)?;
            self.checks.on_outcome(&action, &outcome);
            if fails { failed } else { outcome }
        };
        let late = self.rng.between(1, if self.has_faults { 400 } else { 10 });
        self.schedule_task(late, PodTask::Respond { process_number, action, outcome });
        Ok(())
    }

    /// Executes an action on the runtime or on the API server. Returns an error if the action violates an invariant.
    fn execute_on_target(&mut self, process_number: u64, action: &Action) -> Result<ActionOutcome, String> {
        let now = self.now;
        match action {
            Action::Start { container, sandbox, attempt, .. } => {
                let before = self.runtime.runtime_state(&self.uid, 0);
                let image: Text = format!("{container}:1").into();
                let outcome =
                    self.runtime.execute_action(&self.uid.clone(), action, &image, now).expect("it starts");
                if let ActionOutcome::Started { id } = &outcome {
                    self.check_start_allowed(container, sandbox, *attempt, &before)?;
                    self.schedule_exit(&id.clone(), container);
                }
                return Ok(outcome);
            }
            Action::Stop { container, .. } => self.check_stop_order(process_number, container)?,
            _ => {}
        }
        if let Some(outcome) = self.runtime.execute_action(&self.uid.clone(), action, &"".into(), now) {
            self.record_exit_codes();
            return Ok(outcome);
        }
        Ok(match action {
            Action::FindImage { .. } if self.rng.chance(300) => ActionOutcome::Absent,
            Action::FindImage { .. } => ActionOutcome::Present,
            Action::Pull { .. } => ActionOutcome::Pulled { bytes: 1 },
            Action::Probe { .. } => {
                let passed = !self.has_faults || self.rng.chance(800);
                ActionOutcome::Probed { passed, message: "no".into() }
            }
            Action::Report(patch) => {
                let before = self.object["status"].clone();
                if self.exists {
                    apply_patch(&mut self.object, patch);
                }
                if self.object["status"] != before {
                    self.schedule_watch_event();
                }
                ActionOutcome::Done
            }
            Action::Delete => {
                if self.exists {
                    self.check_delete_allowed()?;
                    self.add_trace_line("the pod is deleted from the API server");
                    self.exists = false;
                    self.schedule_watch_event();
                }
                ActionOutcome::Done
            }
            _ => ActionOutcome::Done,
        })
    }

    /// Checks that a container may start now, and records its start. `before` is the state of the runtime before the
    /// start.
    fn check_start_allowed(
        &mut self,
        name: &Text,
        sandbox: &Text,
        attempt: u32,
        before: &RuntimeState,
    ) -> Result<(), String> {
        let running =
            |name: &str| before.containers.iter().any(|it| *it.name == *name && is_running_state(&it.state));
        if running(name) {
            return Err(format!("two containers {name} are running"));
        }
        if !self.started_attempts.insert((name.clone(), attempt)) {
            return Err(format!("attempt {attempt} of {name} is started twice"));
        }
        let init = self.object["spec"]["initContainers"].as_array().map_or(0, Vec::len);
        let place = INIT_CONTAINERS[..init].iter().position(|(it, _)| **it == **name);
        let in_sandbox = |name: &str| {
            let all = before.containers.iter().filter(|it| *it.name == *name && it.sandbox == *sandbox);
            all.max_by_key(|it| it.attempt)
        };
        let has_succeeded = |it: &Container| matches!(it.state, ContainerState::Exited { code: 0, .. });
        if !self.started_sandboxes.contains(sandbox) {
            for (earlier, is_sidecar) in &INIT_CONTAINERS[..place.unwrap_or(init)] {
                let last = in_sandbox(earlier);
                let has_finished = last.is_some_and(|it| *is_sidecar || has_succeeded(it));
                if !has_finished {
                    return Err(format!("{name} starts before {earlier} has finished"));
                }
            }
        }
        match place {
            Some(place) if !INIT_CONTAINERS[place].1 => {
                if self.started_sandboxes.contains(sandbox) || in_sandbox(name).is_some_and(has_succeeded) {
                    return Err(format!("{name} starts again after it had finished"));
                }
                let failed = in_sandbox(name).is_some();
                if failed && self.restart == RestartPolicy::Never {
                    return Err(format!("{name} failed, but starts again"));
                }
            }
            Some(_) => {}
            None => {
                self.started_sandboxes.insert(sandbox.clone());
                let codes = self.exit_codes.get(name).into_iter().flatten();
                if let Some(code) = codes.into_iter().find(|it| !is_restarted(self.restart, **it)) {
                    return Err(format!("{name} exited with {code}, but starts again"));
                }
            }
        }
        Ok(())
    }

    /// Checks the order of termination: a sidecar is stopped after all main containers. The order is checked only after
    /// all faults have stopped, and only for a pod that is being deleted and has a ready sandbox.
    fn check_stop_order(&self, process_number: u64, name: &str) -> Result<(), String> {
        let seen = self.runtime.runtime_state(&self.uid, 0);
        let is_deleted =
            self.object["metadata"]["deletionTimestamp"].is_string() && process_number == self.process_number;
        let is_broken = !seen.sandboxes.iter().any(|it| it.is_ready);
        let main = seen
            .containers
            .iter()
            .find(|it| MAIN_CONTAINERS.contains(&&*it.name) && is_running_state(&it.state));
        match main {
            Some(main) if name == "proxy" && is_deleted && !is_broken && !self.has_faults => {
                Err(format!("proxy is stopped before {}", main.name))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the kubelet may delete the pod from the API server: no container is running, and the phase of the
    /// pod is Succeeded or Failed. After all faults have stopped, the status must also report the exit of every
    /// container.
    fn check_delete_allowed(&self) -> Result<(), String> {
        if self.runtime.is_running(&self.uid) {
            return Err("the pod is deleted from the API server while it is running".into());
        }
        let status = &self.object["status"];
        let lists = ["initContainerStatuses", "containerStatuses"];
        let statuses = lists.into_iter().filter_map(|it| status[it].as_array()).flatten();
        let is_open = |it: &&Value| it["containerID"].is_string() && !it["state"]["terminated"].is_object();
        if let Some(open) = statuses.into_iter().find(is_open).filter(|_| !self.has_faults) {
            return Err(format!(
                "the pod is deleted from the API server without this container's exit: {open}"
            ));
        }
        let phase = status["phase"].as_str();
        if phase.is_some_and(|it| PodPhase::parse(it).is_terminal()) {
            return Ok(());
        }
        Err(format!("the pod is deleted from the API server in phase {phase:?}"))
    }

    /// Schedules the exit of a started container, if the container exits on its own. In the phase with faults, every
    /// container may exit on its own.
    fn schedule_exit(&mut self, id: &Text, name: &Text) {
        let is_init = INIT_CONTAINERS.iter().any(|(it, is_sidecar)| **it == **name && !is_sidecar);
        let ends = is_init || self.restart != RestartPolicy::Always && &**name != "proxy";
        let code = if self.has_faults && self.rng.chance(300) { 1 } else { 0 };
        if ends || (self.has_faults && self.rng.chance(300)) {
            let late = self.rng.between(100, 20_000);
            self.schedule_task(late, PodTask::Exit { id: id.clone(), code });
        }
    }

    /// Increments the resourceVersion of the pod, and schedules the delivery of the pod to the kubelet.
    fn schedule_watch_event(&mut self) {
        let version =
            self.object["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse::<u64>().ok());
        self.object["metadata"]["resourceVersion"] = (version.unwrap_or(0) + 1).to_string().into();
        let late = self.rng.between(1, if self.has_faults { 2000 } else { 20 });
        self.schedule_task(late, PodTask::Watch { process_number: self.process_number });
    }

    /// Increments the generation of the pod, as a change of its spec does.
    fn increment_generation(&mut self) {
        let generation = self.object["metadata"]["generation"].as_u64().unwrap_or(0);
        self.object["metadata"]["generation"] = (generation + 1).into();
    }

    /// Sets the pod's deletion timestamp, as a delete request with this grace period does.
    fn mark_deleted(&mut self, grace_s: u64) {
        self.object["metadata"]["deletionTimestamp"] = self.now.to_rfc3339().into();
        self.object["metadata"]["deletionGracePeriodSeconds"] = grace_s.into();
        self.increment_generation();
        self.schedule_watch_event();
    }

    /// Injects a random fault or user action, and schedules the next one. Does nothing after faults have stopped.
    fn inject_random_fault(&mut self) {
        if !self.has_faults {
            return;
        }
        let late = self.rng.between(100, 20_000);
        self.schedule_task(late, PodTask::Chaos);
        let (now, uid) = (self.now, self.uid.clone());
        match self.rng.below(1000) {
            0..250 => {
                let seen = self.runtime.runtime_state(&uid, 0);
                let running: Vec<Text> = seen
                    .containers
                    .iter()
                    .filter(|it| is_running_state(&it.state))
                    .map(|it| it.id.clone())
                    .collect();
                if let Some(id) = self.rng.pick(&running).cloned() {
                    let code = if self.rng.chance(500) { 137 } else { 0 };
                    self.exit_container(&id, code);
                }
            }
            250..320 => {
                self.add_trace_line("the sandbox dies");
                self.runtime.crash_sandboxes(&uid, now);
                self.record_exit_codes();
                self.schedule_runtime_query(5);
            }
            320..470 if self.kubelet.is_some() => {
                self.add_trace_line("the kubelet crashes");
                self.kubelet = None;
                self.process_number += 1;
                let late = self.rng.between(1, 5_000);
                self.schedule_task(late, PodTask::StartKubelet);
            }
            470..490 => {
                self.add_trace_line("the pod is deleted");
                let grace_s = self.rng.below(30);
                self.mark_deleted(grace_s);
            }
            490..500 => {
                self.add_trace_line("the pod is deleted by force");
                self.exists = false;
                self.schedule_watch_event();
            }
            500..520 if self.restart == RestartPolicy::Always => {
                let image = format!("web:{}", self.rng.between(1, 3));
                self.add_trace_line(format!("web is to be {image}"));
                self.object["spec"]["containers"][1]["image"] = image.into();
                self.increment_generation();
                self.schedule_watch_event();
            }
            520..530 => {
                if let Some(pod) = &mut self.kubelet {
                    let ending = PodTermination {
                        reason: "Evicted".into(),
                        message: "too much".into(),
                        grace: None,
                        is_rejection: false,
                        is_disruption: true,
                    };
                    pod.terminate(ending, now);
                    self.add_trace_line("the pod is evicted");
                }
            }
            530..600 => self.schedule_runtime_query(1),
            _ => {}
        }
    }

    /// Simulates the exit of the container with this ID, unless it has already exited.
    fn exit_container(&mut self, id: &Text, code: i32) {
        self.add_trace_line(format!("{id} exits with {code}"));
        self.runtime.exit_container(&self.uid.clone(), id, code, self.now);
        self.record_exit_codes();
        self.schedule_runtime_query(5);
    }

    /// Records the exit codes of all exited containers in `exit_codes`.
    fn record_exit_codes(&mut self) {
        let seen = self.runtime.runtime_state(&self.uid, 0);
        for container in seen.containers {
            if let ContainerState::Exited { code, .. } = container.state {
                let codes = self.exit_codes.entry(container.name).or_default();
                if !codes.contains(&code) {
                    codes.push(code);
                }
            }
        }
    }

    /// Checks that the pod has converged after all faults have stopped: the status of the pod agrees with its spec and
    /// with the running containers.
    fn check_converged(&self) -> Result<(), String> {
        let status = &self.object["status"];
        let phase = PodPhase::parse(status["phase"].as_str().unwrap_or_default());
        let seen = self.runtime.runtime_state(&self.uid, 0);
        let running: BTreeSet<&str> =
            seen.containers.iter().filter(|it| is_running_state(&it.state)).map(|it| &*it.name).collect();
        let mut expected: BTreeSet<&str> = MAIN_CONTAINERS.into_iter().collect();
        let init = self.object["spec"]["initContainers"].as_array().map_or(0, Vec::len);
        expected.extend(
            INIT_CONTAINERS[..init].iter().filter(|(_, is_sidecar)| *is_sidecar).map(|(name, _)| *name),
        );
        match phase {
            PodPhase::Failed | PodPhase::Succeeded if running.is_empty() => {}
            PodPhase::Running if running == expected => {
                let conditions = status["conditions"].as_array().into_iter().flatten();
                let is_ready =
                    conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
                if !is_ready {
                    return Err(format!("all containers are running, but the pod is not Ready: {status}"));
                }
            }
            _ => return Err(format!("the phase is {phase:?}, but the running containers are {running:?}")),
        }
        let (observed, generation) = (&status["observedGeneration"], &self.object["metadata"]["generation"]);
        if phase == PodPhase::Running && observed != generation {
            return Err(format!("observedGeneration is {observed}, but the generation is {generation}"));
        }
        if self.restart == RestartPolicy::Always && phase == PodPhase::Succeeded {
            return Err("the pod has finished, but its restartPolicy is Always".into());
        }
        for container in seen.containers.iter().filter(|it| is_running_state(&it.state)) {
            let lists = ["containerStatuses", "initContainerStatuses"];
            let statuses = lists.iter().filter_map(|it| status[it].as_array()).flatten();
            let reported = statuses.into_iter().find(|it| it["name"] == *container.name);
            let reported = reported
                .ok_or_else(|| format!("{} is running, but has no container status", container.name))?;
            if reported["containerID"] != format!("sim://{}", container.id)
                || reported["restartCount"] != container.attempt
            {
                return Err(format!("the container status of {} is wrong: {reported}", container.name));
            }
        }
        Ok(())
    }
}

/// Whether the restart policy restarts a container that has exited with this code. It is a second implementation of the
/// rule, independent of the engine's.
fn is_restarted(restart: RestartPolicy, code: i32) -> bool {
    match (restart, code) {
        (RestartPolicy::Always, _) => true,
        (RestartPolicy::OnFailure, 0) | (RestartPolicy::Never, _) => false,
        (RestartPolicy::OnFailure, _) => true,
    }
}

/// Returns the reason that the kubelet reports when this action fails.
fn failure_reason(action: &Action) -> &'static str {
    match action {
        Action::FindImage { .. } => "ImageInspectError",
        Action::Pull { .. } => "ErrImagePull",
        Action::Start { .. } => "CreateContainerError",
        _ => "Failed",
    }
}

/// Formats an outcome for the trace.
fn outcome_summary(outcome: &ActionOutcome) -> &str {
    match outcome {
        ActionOutcome::Failed { message, .. } => message,
        ActionOutcome::Probed { passed: false, .. } => "did not pass",
        ActionOutcome::Absent => "absent",
        _ => "done",
    }
}

#[cfg(test)]
mod tests {
    /// Enough seeds for most pairs of faults to coincide: a failed action, a kubelet crash, a sandbox crash.
    #[test]
    fn a_pod_on_its_node() {
        for seed in 0..200 {
            super::run_pod_seed(seed).unwrap_or_else(|why| panic!("{why}"));
        }
    }
}
