//! The simulated kubelet of one node, with the node's container runtime. The kubelet can crash and restart. It runs the
//! shipped rules of `engine::kubelet::pod`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::{Time, earliest};
use muster_engine::controller::CallError;
use muster_engine::daemonset::facts::Kind;
use muster_engine::kubelet::pod::{Action, ActionOutcome, Host, PodObject, PodStateMachine, PodTermination};
use muster_engine::kubelet::wall_clock::WallClock;
use serde_json::{Value, json};

use crate::container_runtime::SimRuntime;
use crate::faults::FaultRates;
use crate::invariants::InvariantChecks;
use crate::lagging_server::{LaggingServer, ServerId, visible_revision};
use crate::rng::Rng;
use crate::server::{Actor, SimServer};

/// Interval of node heartbeats. A node may miss three heartbeats before it becomes Ready=Unknown.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);

/// How the containers of an image behave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ImageBehaviour {
    /// The container starts, and its readiness probe passes.
    #[default]
    BecomesReady,
    /// The readiness probe of the container never passes.
    NeverReady,
    /// The node terminates the pod. It evicts a pod that has a sandbox, and rejects a pod that has none.
    PodFails,
    /// The container runs to completion.
    Completes,
    /// The container crashes its node.
    CrashesNode,
    /// The container exits with an error after each start, so that the kubelet applies its crash-loop backoff.
    CrashLoops,
    /// The image is on no node, and every pull of it fails. Running containers are not affected.
    CannotBePulled,
}

/// The simulated kubelet of one node, with the node's container runtime.
#[derive(Clone, Debug, Default)]
pub struct Kubelet {
    /// Whether the node is running, that is, has not crashed.
    pub alive: bool,
    /// Time of the crash of a node that has not been rebooted since. `None` if the node is running.
    pub dead_since: Option<Time>,
    /// Clock skew of the node in microseconds.
    pub skew: i64,
    /// Time that a container takes to start.
    pub start_delay: Duration,
    /// Time that a container takes to stop. A shorter grace period limits it.
    pub stop_delay: Duration,
    /// Whether the node is shutting down. Such a node fails its pods and rejects new pods.
    pub shutting_down: bool,
    /// The API server on which the kubelet watches pods. The kubelet always writes to the current server.
    pub server: ServerId,
    /// The revision that the watch of pods has reached. After a restart of the kubelet, the lowest revision that the
    /// first list may have. The kubelet reads nothing from a server with an older state.
    watched_revision: u64,
    runtime: SimRuntime,
    /// Namespace and name of each pod, by UID. A real kubelet reads them from the labels of the sandboxes.
    keys: BTreeMap<Text, ObjectKey>,
    /// Runtime operations in progress, by completion time. They complete even if the kubelet restarts, but not after a
    /// reboot.
    operations: BTreeMap<(Time, u64), RuntimeOperation>,
    /// Number of started operations. It orders operations that complete at the same time.
    operation_sequence: u64,
    /// The kubelet's in-memory state, by pod UID.
    pods: BTreeMap<Text, ManagedPod>,
    /// Number of kubelet restarts. The outcome of an action of an earlier kubelet process is dropped.
    process_number: u64,
}

/// A runtime operation in progress.
#[derive(Clone, Debug)]
struct RuntimeOperation {
    /// The kubelet process that started the operation.
    process_number: u64,
    /// UID of the pod.
    uid: Text,
    action: Action,
}

/// The kubelet's in-memory state of one pod.
#[derive(Clone, Debug)]
struct ManagedPod {
    pod: PodStateMachine,
    /// The API object as the kubelet last read it. `None` if the object does not exist.
    object: Option<Arc<Value>>,
    /// Image of the pod's first container, which selects the [`ImageBehaviour`].
    image: Text,
    /// Outcomes of requests to the API server, with the time at which the response arrives.
    responses: Vec<(Time, Action, ActionOutcome)>,
    /// The probe in progress. The probe completes only when its result differs from the last result, so that an idle
    /// pod needs no steps.
    probe: Option<Action>,
    /// Container ID and result of the last probe.
    last_probe: Option<(Text, bool)>,
    /// Whether the node has terminated the pod on its own: it rejected or evicted the pod, or shut down.
    is_ended: bool,
    /// Time at which the pod's rules ask for the next sync. `None` if they ask for none.
    wake_at: Option<Time>,
    /// Whether the pod must be synced because an input has changed since the last sync.
    needs_sync: bool,
}

/// One iteration of a kubelet's sync loop, with the parts of the simulation that the iteration uses.
pub(crate) struct SyncIteration<'a> {
    pub(crate) node: &'a Text,
    pub(crate) now: Time,
    /// The current time by the node's clock.
    pub(crate) clock: Time,
    pub(crate) server: &'a mut SimServer,
    /// The lagging server, if the kubelet watches pods there. `None` if it watches pods on the current server.
    pub(crate) lagging: Option<&'a LaggingServer>,
    /// Behaviour of the containers of each image.
    pub(crate) behaviours: &'a BTreeMap<String, ImageBehaviour>,
    pub(crate) fault_rates: &'a FaultRates,
    pub(crate) rng: &'a mut Rng,
    pub(crate) checks: &'a mut InvariantChecks,
    /// Time at which the next iteration is due. `None` if no pod needs one.
    pub(crate) next_at: Option<Time>,
    /// Whether a container has crashed the node during the iteration.
    pub(crate) crashes_node: bool,
}

impl Kubelet {
    /// Returns the kubelet of a running node. `skew` is the skew of the node's clock in microseconds. The two delays
    /// are the times that a container takes to start and to stop.
    pub fn new(skew: i64, start_delay: Duration, stop_delay: Duration) -> Self {
        Self { alive: true, skew, start_delay, stop_delay, ..Self::default() }
    }

    /// Returns the UID, namespace and name of each pod with a running container.
    pub fn running_pods(&self) -> impl Iterator<Item = (&Text, &ObjectKey)> {
        self.keys.iter().filter(|(uid, _)| self.runtime.is_running(uid))
    }

    /// Whether the kubelet is idle. An idle kubelet has no runtime operation or API request in progress, no timer, and
    /// no pod to sync.
    pub fn is_idle(&self) -> bool {
        let is_idle = |it: &ManagedPod| it.responses.is_empty() && it.wake_at.is_none() && !it.needs_sync;
        self.operations.is_empty() && self.pods.values().all(is_idle)
    }

    /// Returns the revision that the watch of pods has reached. After a restart of the kubelet, returns the revision
    /// that the first list must have.
    pub fn watched_revision(&self) -> u64 {
        self.watched_revision
    }

    /// Reboots the node. All containers are stopped, and a new kubelet process starts. `revision` is the revision of
    /// the store.
    pub fn reboot(&mut self, now: Time, revision: u64) {
        (self.alive, self.dead_since, self.shutting_down) = (true, None, false);
        self.operations.clear();
        self.restart_kubelet(revision);
        self.runtime.reboot(self.node_time(now));
    }

    /// Restarts the kubelet, which loses its in-memory state. The new process lists its pods without a
    /// `resourceVersion`, and syncs no pod before it has received a list at `revision` or later. `revision` is the
    /// current revision of the store.
    pub fn restart_kubelet(&mut self, revision: u64) {
        self.watched_revision = revision;
        self.pods.clear();
        self.process_number += 1;
    }

    /// Crashes a random running container, or the sandbox of its pod. Returns a description of what crashed, or `None`
    /// if no container is running.
    pub fn crash_container(&mut self, rng: &mut Rng, now: Time) -> Option<String> {
        let all = self
            .runtime
            .pod_uids()
            .flat_map(|uid| self.runtime.running_containers(uid).map(move |(it, _)| (uid, it)));
        let all: Vec<(Text, Text)> = all.map(|(uid, it)| (uid.clone(), it.id.clone())).collect();
        let (uid, id) = rng.pick(&all)?;
        let clock = self.node_time(now);
        if let Some(managed) = self.pods.get_mut(uid) {
            managed.needs_sync = true;
        }
        if rng.chance(300) {
            self.runtime.crash_sandboxes(uid, clock);
            return Some(format!("the sandbox of {uid}"));
        }
        self.runtime.exit_container(uid, id, 137, clock);
        Some(format!("{id} of {uid}"))
    }

    /// Creates the sandbox and the first container of a pod that is already running when it is added to the simulation.
    /// Adds the status of the container to `object`, the JSON of the pod. Does nothing if the phase of the pod is not
    /// `Running`.
    pub fn add_running_pod(&mut self, object: &mut Value, now: Time) {
        let text = |it: &Value| Text::from(it.as_str().unwrap_or_default());
        let (meta, container) = (&object["metadata"], &object["spec"]["containers"][0]);
        let (uid, name, image) = (text(&meta["uid"]), text(&container["name"]), text(&container["image"]));
        if object["status"]["phase"] != "Running" || uid.is_empty() {
            return;
        }
        let clock = self.node_time(now);
        self.keys.insert(uid.clone(), ObjectKey::new(text(&meta["namespace"]), text(&meta["name"])));
        self.runtime.execute_action(&uid, &Action::RunSandbox { attempt: 0 }, &image, clock);
        let sandbox =
            self.runtime.runtime_state(&uid, 0).sandboxes.first().map(|it| it.id.clone()).unwrap_or_default();
        let start =
            Action::Start { container: name.clone(), position: 0, sandbox, attempt: 0, hash: "".into() };
        let Some(ActionOutcome::Started { id }) = self.runtime.execute_action(&uid, &start, &image, clock)
        else {
            return;
        };
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
        object["status"]["containerStatuses"] = json!([{
            "name": name, "image": image, "imageID": image, "containerID": format!("sim://{id}"), "restartCount": 0,
            "ready": is_ready, "started": true, "state": {"running": {"startedAt": clock.to_rfc3339()}}, "lastState": {},
        }]);
    }

    /// Runs one iteration of the sync loop: reads the bound pods, completes the runtime operations that are due,
    /// simulates the containers, and syncs each changed pod.
    pub(crate) fn run_sync_iteration(&mut self, iteration: &mut SyncIteration<'_>) {
        self.update_pods(iteration);
        self.complete_operations(iteration);
        self.simulate_containers(iteration);
        self.sync_changed_pods(iteration);
    }

    /// Returns the current time by the node's clock.
    pub(crate) fn node_time(&self, now: Time) -> Time {
        Time::from_micros(now.as_micros() + self.skew)
    }

    /// Updates the kubelet's pods from the API server, and finds pods that exist only in the runtime. Does nothing if
    /// the state of the server is older than what the kubelet has seen.
    fn update_pods(&mut self, iteration: &mut SyncIteration<'_>) {
        let revision = visible_revision(self.server, iteration.server, iteration.lagging);
        if revision < self.watched_revision {
            return;
        }
        self.watched_revision = revision;
        let host = || Host { addresses: Vec::new(), runtime: "sim".into(), wall_clock: WallClock::default() };
        let mut bound = BTreeSet::new();
        let here = |object: &Arc<Value>| object["spec"]["nodeName"].as_str() == Some(iteration.node);
        let objects: Vec<_> = match iteration.lagging {
            Some(lagging) => lagging.cache().objects(Kind::Pods).collect(),
            None => iteration.server.objects(Kind::Pods).collect(),
        };
        for (key, object) in objects.into_iter().filter(|(_, it)| here(it)) {
            let uid = Text::from(object["metadata"]["uid"].as_str().unwrap_or_default());
            let parsed = || Arc::new(PodObject::from_value(object).expect("a pod"));
            match self.pods.get_mut(&uid) {
                None => {
                    let pod = PodStateMachine::new(parsed(), host(), iteration.clock);
                    let image = object["spec"]["containers"][0]["image"].as_str().unwrap_or_default();
                    self.keys.insert(uid.clone(), key.clone());
                    self.pods.insert(uid.clone(), ManagedPod::new(pod, Some(object.clone()), image.into()));
                }
                Some(managed) if managed.object.as_ref().is_none_or(|it| !Arc::ptr_eq(it, object)) => {
                    managed.pod.update_object(parsed(), iteration.clock);
                    managed.object = Some(object.clone());
                    managed.needs_sync = true;
                }
                Some(_) => {}
            }
            bound.insert(uid);
        }
        for (_, managed) in self.pods.iter_mut().filter(|(uid, _)| !bound.contains(*uid)) {
            if managed.object.take().is_some() {
                managed.pod.mark_removed_from_api(iteration.clock);
                managed.needs_sync = true;
            }
        }
        for uid in self.runtime.pod_uids().filter(|it| !bound.contains(*it)) {
            let key = || self.keys.get(uid).cloned().unwrap_or_else(|| ObjectKey::new("", uid.clone()));
            let orphan = || {
                ManagedPod::new(
                    PodStateMachine::orphan(key(), uid.clone(), host(), iteration.clock),
                    None,
                    "".into(),
                )
            };
            self.pods.entry(uid.clone()).or_insert_with(orphan);
        }
    }

    /// Completes the runtime operations that are due. Checks S12: no second instance of a container runs beside the
    /// first.
    fn complete_operations(&mut self, iteration: &mut SyncIteration<'_>) {
        while let Some(entry) = self.operations.first_entry().filter(|it| it.key().0 <= iteration.now) {
            let RuntimeOperation { process_number, uid, action } = entry.remove();
            let running =
                action.container_name().filter(|_| matches!(action, Action::Start { .. })).and_then(|name| {
                    let mut running = self.runtime.running_containers(&uid);
                    running.find(|(it, _)| it.name == *name).map(|(it, _)| it.id.clone())
                });
            let image = self.pods.get(&uid).map(|it| it.image.clone()).unwrap_or_default();
            let Some(outcome) = self.runtime.execute_action(&uid, &action, &image, iteration.clock) else {
                continue;
            };
            if let (Some(running), ActionOutcome::Started { id }) = (running, &outcome) {
                iteration.checks.report_violation("S12", || {
                    format!("{uid} on {} runs {id} beside {running}", iteration.node)
                });
            }
            if let Some(managed) = self.pods.get_mut(&uid).filter(|_| process_number == self.process_number) {
                managed.pod.apply_outcome(&action, outcome, iteration.clock);
                managed.needs_sync = true;
            }
        }
        if let Some(((at, _), _)) = self.operations.first_key_value() {
            iteration.schedule_at(*at);
        }
    }

    /// Applies the behaviour of images to running containers. Terminates pods whose image has the behaviour
    /// [`ImageBehaviour::PodFails`], and all pods of a node that shuts down.
    fn simulate_containers(&mut self, iteration: &mut SyncIteration<'_>) {
        let Self { runtime, pods: managed_pods, start_delay, shutting_down, .. } = self;
        for (uid, managed) in managed_pods {
            let behaviour = iteration.behaviours.get(&*managed.image).copied().unwrap_or_default();
            let code = match behaviour {
                ImageBehaviour::CrashLoops => Some(1),
                ImageBehaviour::Completes => Some(0),
                ImageBehaviour::BecomesReady
                | ImageBehaviour::NeverReady
                | ImageBehaviour::PodFails
                | ImageBehaviour::CrashesNode
                | ImageBehaviour::CannotBePulled => None,
            };
            if let Some(code) = code {
                let running: Vec<(Text, Time)> =
                    runtime.running_containers(uid).map(|(it, since)| (it.id.clone(), since)).collect();
                for (id, since) in running {
                    let end = since + *start_delay;
                    if iteration.clock < end {
                        iteration.schedule_at(iteration.now + end.since(iteration.clock));
                    } else {
                        runtime.exit_container(uid, &id, code, iteration.clock);
                        managed.needs_sync = true;
                    }
                }
            }
            iteration.crashes_node |= behaviour == ImageBehaviour::CrashesNode && runtime.is_running(uid);
            if (behaviour == ImageBehaviour::PodFails || *shutting_down) && !managed.is_ended {
                (managed.is_ended, managed.needs_sync) = (true, true);
                let is_rejection = runtime.runtime_state(uid, 0).sandboxes.is_empty();
                managed.pod.terminate(pod_termination(is_rejection, *shutting_down), iteration.clock);
            }
            managed.complete_probe(behaviour, iteration.clock);
        }
    }

    /// Delivers the responses that have arrived, and syncs each changed pod until no immediate action is left. Forgets
    /// pods that have finished and no longer exist on the API server.
    fn sync_changed_pods(&mut self, iteration: &mut SyncIteration<'_>) {
        for uid in self.pods.keys().cloned().collect::<Vec<_>>() {
            let Some(mut managed) = self.pods.remove(&uid) else { continue };
            managed.needs_sync |= managed.wake_at.is_some_and(|at| at <= iteration.clock);
            for (at, action, outcome) in core::mem::take(&mut managed.responses) {
                if at <= iteration.now {
                    managed.pod.apply_outcome(&action, outcome, iteration.clock);
                    managed.needs_sync = true;
                } else {
                    iteration.schedule_at(at);
                    managed.responses.push((at, action, outcome));
                }
            }
            while core::mem::take(&mut managed.needs_sync) {
                managed.pod.update_runtime_state(
                    self.runtime.runtime_state(&uid, managed.pod.change_count()),
                    iteration.clock,
                );
                let sync = managed.pod.sync(iteration.clock);
                managed.wake_at = sync.wake_at;
                for action in sync.actions {
                    self.execute_action(&uid, &mut managed, action, iteration);
                }
            }
            if let Some(at) = managed.wake_at {
                iteration.schedule_at(iteration.now + at.since(iteration.clock));
            }
            if managed.object.is_some() || !managed.pod.is_finished() {
                self.pods.insert(uid, managed);
            }
        }
        let Self { keys, runtime, pods: managed_pods, .. } = self;
        keys.retain(|uid, _| managed_pods.contains_key(uid) || runtime.has_pod(uid));
    }

    /// Executes an action of the kubelet's rules. The start and the stop of a container, and the response to an API
    /// request, take some time. A probe completes when its result changes. All other actions complete immediately.
    fn execute_action(
        &mut self,
        uid: &Text,
        managed: &mut ManagedPod,
        action: Action,
        iteration: &mut SyncIteration<'_>,
    ) {
        let done = match &action {
            Action::Start { .. } => return self.start_operation(uid, action, self.start_delay, iteration),
            Action::Stop { grace, .. } => {
                return self.start_operation(uid, action.clone(), self.stop_delay.min(*grace), iteration);
            }
            Action::Probe { .. } => {
                managed.probe = Some(action);
                let behaviour = iteration.behaviours.get(&*managed.image).copied().unwrap_or_default();
                return managed.complete_probe(behaviour, iteration.clock);
            }
            Action::Report(patch) => {
                let outcome = self.report_status(uid, managed, patch, iteration);
                return managed.responses.push((self.schedule_response(iteration), action, outcome));
            }
            Action::Delete => {
                let outcome = self.delete_pod(uid, managed, iteration);
                return managed.responses.push((self.schedule_response(iteration), action, outcome));
            }
            Action::FindImage { .. } | Action::Pull { .. } => {
                let behaviour = iteration.behaviours.get(&*managed.image).copied().unwrap_or_default();
                image_outcome(&action, behaviour)
            }
            action => self
                .runtime
                .execute_action(uid, action, &managed.image, iteration.clock)
                .unwrap_or(ActionOutcome::Done),
        };
        managed.pod.apply_outcome(&action, done, iteration.clock);
        managed.needs_sync = true;
    }

    /// Starts a runtime operation that completes after the duration `takes`.
    fn start_operation(
        &mut self,
        uid: &Text,
        action: Action,
        takes: Duration,
        iteration: &mut SyncIteration<'_>,
    ) {
        self.operation_sequence += 1;
        let at = iteration.now + takes;
        self.operations.insert(
            (at, self.operation_sequence),
            RuntimeOperation { process_number: self.process_number, uid: uid.clone(), action },
        );
        iteration.schedule_at(at);
    }

    /// Schedules an iteration at the time at which the kubelet receives the response to a write. Returns this time. It
    /// includes the network latency and the start delay of containers, so that the kubelet reports several changes in
    /// one write.
    fn schedule_response(&self, iteration: &mut SyncIteration<'_>) -> Time {
        let lag =
            Duration::from_micros(iteration.rng.between(100, iteration.fault_rates.lag_ms.max(1) * 1000));
        let at = iteration.now + self.start_delay + lag;
        iteration.schedule_at(at);
        at
    }

    /// Patches the status of a pod on the API server. Checks S11: a pod that is reported as Ready is running.
    fn report_status(
        &self,
        uid: &Text,
        managed: &ManagedPod,
        patch: &Value,
        iteration: &mut SyncIteration<'_>,
    ) -> ActionOutcome {
        let conditions = patch["status"]["conditions"].as_array().into_iter().flatten();
        let reports_ready = conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
        if reports_ready && !self.runtime.is_running(uid) {
            iteration.checks.report_violation("S11", || {
                format!("{} is reported as Ready, but is not running", managed.pod.key())
            });
        }
        iteration.write_to_server(|server| {
            server.patch(Kind::Pods, managed.pod.key(), patch, Actor::Kubelet).map(drop)
        })
    }

    /// Deletes a pod from the API server. Checks S13: the containers of the pod have stopped.
    fn delete_pod(
        &self,
        uid: &Text,
        managed: &ManagedPod,
        iteration: &mut SyncIteration<'_>,
    ) -> ActionOutcome {
        let key = managed.pod.key();
        if self.runtime.is_running(uid) {
            iteration.checks.report_violation("S13", || {
                format!("{key} is deleted from the API server while it is running")
            });
        }
        iteration.write_to_server(|server| {
            match server.delete(Kind::Pods, key, Some(uid), None, true, Actor::Kubelet) {
                Err(CallError::NotFound | CallError::Conflict) => Ok(()),
                other => other,
            }
        })
    }
}

impl ManagedPod {
    fn new(pod: PodStateMachine, object: Option<Arc<Value>>, image: Text) -> Self {
        Self {
            pod,
            object,
            image,
            responses: Vec::new(),
            probe: None,
            last_probe: None,
            is_ended: false,
            wake_at: None,
            needs_sync: true,
        }
    }

    /// Completes the probe in progress, unless the last completed probe had the same container ID and the same result.
    /// The behaviour of the image determines the result.
    fn complete_probe(&mut self, behaviour: ImageBehaviour, clock: Time) {
        let Some(Action::Probe { id, .. }) = &self.probe else { return };
        let passes = matches!(behaviour, ImageBehaviour::BecomesReady | ImageBehaviour::CannotBePulled);
        let result = (id.clone(), passes);
        if self.last_probe.as_ref() == Some(&result) {
            return;
        }
        if let Some(action) = self.probe.take() {
            let outcome = ActionOutcome::Probed { passed: result.1, message: "no".into() };
            self.pod.apply_outcome(&action, outcome, clock);
            (self.last_probe, self.needs_sync) = (Some(result), true);
        }
    }
}

impl SyncIteration<'_> {
    /// Makes sure that the next iteration is due no later than `time`.
    fn schedule_at(&mut self, time: Time) {
        self.next_at = earliest(self.next_at, Some(time));
    }

    /// Writes to the API server, and returns the outcome as the kubelet sees it. Some requests are lost, and some
    /// responses are lost after the write was applied. The kubelet sees both as failures.
    fn write_to_server(
        &mut self,
        write: impl FnOnce(&mut SimServer) -> Result<(), CallError>,
    ) -> ActionOutcome {
        let fails = self.rng.chance(self.fault_rates.kubelet_write);
        let failed = |why: &str| ActionOutcome::Failed { reason: "Unreachable".into(), message: why.into() };
        if fails && self.rng.chance(500) {
            return failed("the request was lost");
        }
        match write(self.server) {
            Ok(()) if fails => failed("the response was lost"),
            Ok(()) => ActionOutcome::Done,
            Err(refusal) => failed(&format!("{refusal:?}")),
        }
    }
}

/// Returns the outcome of [`Action::FindImage`] or [`Action::Pull`] for an image with this behaviour.
fn image_outcome(action: &Action, behaviour: ImageBehaviour) -> ActionOutcome {
    match (action, behaviour) {
        (Action::FindImage { .. }, ImageBehaviour::CannotBePulled) => ActionOutcome::Absent,
        (Action::FindImage { .. }, _) => ActionOutcome::Present,
        (_, ImageBehaviour::CannotBePulled) => ActionOutcome::Failed {
            reason: "ErrImagePull".into(),
            message: "the registry does not answer".into(),
        },
        _ => ActionOutcome::Pulled { bytes: 1 },
    }
}

/// Returns the reason and kind of a pod's termination. The node rejects the pod if `is_rejection` is true, and evicts
/// it otherwise. If `by_shutdown` is true, the reason is that the node shuts down.
fn pod_termination(is_rejection: bool, by_shutdown: bool) -> PodTermination {
    let (reason, message) = match (is_rejection, by_shutdown) {
        (true, true) => ("NodeShutdown", "Pod was rejected as the node is shutting down."),
        (false, true) => ("Terminated", "Pod was terminated in response to imminent node shutdown."),
        (true, false) => ("OutOfcpu", "Node didn't have enough resource: cpu"),
        (false, false) => ("Evicted", "The node was low on resource: memory."),
    };
    let (reason, message) = (reason.into(), message.into());
    PodTermination { reason, message, grace: None, is_rejection, is_disruption: !is_rejection }
}
