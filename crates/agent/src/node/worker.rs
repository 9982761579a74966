//! The worker of one pod. It reads the pod's runtime state, syncs the pod through `engine::kubelet::pod`, runs the
//! resulting actions and passes their outcomes back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::time::Time;
use muster_engine::kubelet::pod::{self, Action, ActionOutcome, ContainerState, Host, RuntimeState};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::executor::{Executor, StartTiming};
use super::pod_manager::{PodEntry, WorkerUpdate};
use super::runtime_status::RuntimeStateReader;
use super::{NodeAgent, admission};
use crate::clock::{self, now};
use crate::parsed_pod::ParsedPod;
use crate::runtime::Runtime;

/// Delay before the worker reads the runtime state again after a failed read.
const RUNTIME_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Delays between the reads of the runtime state after an exit event, in milliseconds. Several reads are needed because
/// the runtime reports an exit a moment before it shows the new state.
const EXIT_RECHECK_DELAYS_MS: [u64; 14] =
    [10, 20, 30, 50, 50, 100, 100, 200, 300, 500, 1000, 2000, 4000, 4000];

/// Delay between the preparation of a pod's volumes and their first refresh. The interval between later refreshes is
/// twice as long. A change of the pod object causes a refresh immediately.
const VOLUME_FIRST_REFRESH_DELAY: Duration = Duration::from_secs(30);

/// The worker of one pod.
pub(super) struct Worker<R> {
    node: Arc<NodeAgent<R>>,
    entry: Arc<PodEntry>,
    /// The pod's state machine.
    pod: pod::PodStateMachine,
    /// The pod object that was last passed to the state machine.
    object: Arc<ParsedPod>,
    /// Reads the runtime state of the pod.
    status_reader: RuntimeStateReader,
    /// The runtime state that was last read.
    runtime_state: RuntimeState,
    /// The tasks of the actions in progress, and of volume refreshes.
    actions: JoinSet<ActionOutcome>,
    /// The action of each task in `actions`. A volume refresh has none.
    in_flight: HashMap<Id, Action>,
    /// When the volumes are refreshed next. `None` before the volumes are prepared, and once no refresh is needed
    /// because their content is final or the pod is deleted or has terminated.
    refresh_at: Option<Instant>,
    /// When this worker was created.
    created_at: Instant,
    start_timing: Arc<StartTiming>,
}

impl<R: Runtime> Worker<R> {
    pub(super) fn new(node: Arc<NodeAgent<R>>, entry: Arc<PodEntry>, object: Arc<ParsedPod>) -> Self {
        let pod = pod::PodStateMachine::new(object.object.clone(), host_info(&node), now());
        Self::with_pod(node, entry, pod, object)
    }

    /// Returns a worker that cleans up an orphan.
    pub(super) fn for_orphan(
        node: Arc<NodeAgent<R>>,
        entry: Arc<PodEntry>,
        key: ObjectKey,
        uid: &str,
    ) -> Self {
        let pod = pod::PodStateMachine::orphan(key, uid.into(), host_info(&node), now());
        let object = entry.snapshot().object;
        Self::with_pod(node, entry, pod, object)
    }

    /// Returns a worker for a pod with this state machine.
    fn with_pod(
        node: Arc<NodeAgent<R>>,
        entry: Arc<PodEntry>,
        pod: pod::PodStateMachine,
        object: Arc<ParsedPod>,
    ) -> Self {
        Self {
            node,
            entry,
            pod,
            object,
            status_reader: RuntimeStateReader::default(),
            runtime_state: RuntimeState::default(),
            actions: JoinSet::new(),
            in_flight: HashMap::new(),
            refresh_at: None,
            created_at: Instant::now(),
            start_timing: Arc::default(),
        }
    }

    /// Runs the pod until its containers and files are removed.
    pub(super) async fn run(mut self) {
        if let Some(ending) = admission::admit_pod(&self.node, &self.entry).await {
            self.pod.terminate(ending, now());
        }
        let mut read_at = Some(Instant::now());
        // Consecutive reads in which an exited container still shows as running.
        let mut stale_reads = 0;
        loop {
            if read_at.is_some_and(|it| it <= Instant::now()) {
                let wait = match self.read_runtime_state().await {
                    Ok(()) if self.is_exit_pending() => {
                        stale_reads += 1;
                        EXIT_RECHECK_DELAYS_MS.get(stale_reads - 1).map(|it| Duration::from_millis(*it))
                    }
                    Ok(()) => {
                        stale_reads = 0;
                        None
                    }
                    Err(error) => {
                        tracing::debug!(pod = %self.pod.key(), "cannot read the runtime state: {error}");
                        Some(RUNTIME_RETRY_DELAY)
                    }
                };
                read_at = wait.map(|it| Instant::now() + it);
            }
            let wake_at = self.sync_pod();
            if self.pod.is_finished() {
                break;
            }
            let at = [wake_at, read_at, self.refresh_at].into_iter().flatten().min();
            let later = Instant::now() + Duration::from_secs(3600);
            tokio::select! {
                update = self.entry.next_update() => {
                    if update.runtime_changed {
                        read_at = Some(Instant::now());
                    }
                    self.apply_update(update);
                }
                Some(done) = self.actions.join_next_with_id() => {
                    let change_count = self.pod.change_count();
                    self.handle_action_outcome(done);
                    if change_count != self.pod.change_count() {
                        read_at = Some(Instant::now());
                    }
                }
                () = tokio::time::sleep_until(at.unwrap_or(later)) => self.refresh_volumes(),
            }
        }
        tracing::debug!(pod = %self.pod.key(), "the pod is gone from this node");
    }

    /// Reads the runtime state, and passes it to the state machine and to the pod's snapshot. Records the start latency
    /// of the pod once.
    async fn read_runtime_state(&mut self) -> Result<(), crate::runtime::RuntimeError> {
        let Self { node, status_reader, object, pod, start_timing: figures, .. } = self;
        let reading = status_reader.read_state(&*node.runtime, &node.config, object, pod.change_count());
        let state = figures.measure_call(reading).await?;
        if let Some((all, own)) =
            self.start_timing.take_start_latency(&state, self.created_at, self.pod.key())
        {
            self.node.metrics.observe_pod_start(all, own);
        }
        self.entry.update_snapshot(|snapshot| snapshot.runtime_state = state.clone());
        self.runtime_state = state.clone();
        self.pod.update_runtime_state(state, now());
        Ok(())
    }

    /// Whether the last runtime state has a running container or ready sandbox although the runtime has reported its
    /// exit.
    fn is_exit_pending(&self) -> bool {
        let running = self
            .runtime_state
            .containers
            .iter()
            .filter(|it| matches!(it.state, ContainerState::Running { .. }));
        let ready = self.runtime_state.sandboxes.iter().filter(|it| it.is_ready);
        let mut ids = running.map(|it| &it.id).chain(ready.map(|it| &it.id));
        ids.any(|id| self.node.pods.has_exited(id))
    }

    /// Passes a changed pod object, a deletion or a termination to the state machine.
    fn apply_update(&mut self, update: WorkerUpdate) {
        let now = now();
        if let Some(object) = update.object {
            self.pod.update_object(object.object.clone(), now);
            // Downward API volumes may contain the changed fields.
            self.refresh_at = self.refresh_at.map(|_| Instant::now());
            self.entry.update_snapshot(|snapshot| snapshot.object = object.clone());
            self.object = object;
        }
        if let Some(termination) = update.termination {
            self.pod.terminate(termination, now);
        }
        if update.is_gone {
            self.pod.mark_removed_from_api(now);
        }
    }

    /// Syncs the pod: starts its next actions, records its Events, and updates `has_ended` in its snapshot. Returns the
    /// time of the next sync, or `None` if none is scheduled.
    fn sync_pod(&mut self) -> Option<Instant> {
        let began = now();
        self.pod.set_wall_clock(clock::wall_clock());
        let sync = self.pod.sync(began);
        for record in sync.events {
            self.node.recorder.record(record);
        }
        for action in sync.actions {
            tracing::debug!(pod = %self.pod.key(), "{action}");
            let executor = self.executor();
            let task = {
                let action = action.clone();
                async move { executor.execute(action).await }
            };
            let id = self.actions.spawn(task).id();
            self.in_flight.insert(id, action);
        }
        let has_ended = self.pod.has_terminated();
        let mut has_changed = false;
        self.entry.update_snapshot(|snapshot| {
            has_changed = std::mem::replace(&mut snapshot.has_ended, has_ended) != has_ended;
        });
        if has_changed {
            self.node.pods.notify_change();
        }
        sync.wake_at.map(|at| to_instant(at, began))
    }

    /// Returns an executor for the actions of the current sync, with the current pod object and runtime state.
    fn executor(&self) -> Executor<R> {
        let ready = self.runtime_state.sandboxes.iter().filter(|it| it.is_ready).max_by_key(|it| it.attempt);
        let mut addresses: Vec<String> =
            ready.into_iter().flat_map(|it| it.addresses.iter().map(|it| it.to_string())).collect();
        let spec = self.object.spec.as_ref();
        if addresses.is_empty() && spec.is_some_and(|it| it.host_network == Some(true)) {
            addresses.push(self.node.config.address.to_string());
        }
        Executor {
            node: self.node.clone(),
            entry: self.entry.clone(),
            pod: self.object.clone(),
            addresses,
            containers: self.runtime_state.containers.clone(),
            start_timing: self.start_timing.clone(),
        }
    }

    /// Passes the outcome of a finished action to the state machine. The result of a volume refresh is ignored.
    fn handle_action_outcome(&mut self, done: Result<(Id, ActionOutcome), JoinError>) {
        let (id, outcome) = match done {
            Ok(done) => done,
            // An action that panicked counts as failed.
            Err(error) => {
                let message = format!("internal error of the agent: {error}");
                tracing::error!(pod = %self.pod.key(), "{message}");
                (
                    error.id(),
                    ActionOutcome::Failed { reason: "InternalError".into(), message: message.into() },
                )
            }
        };
        let Some(action) = self.in_flight.remove(&id) else { return };
        self.node.metrics.count_action(&action, &outcome);
        if let ActionOutcome::Failed { reason, message } = &outcome {
            tracing::debug!(pod = %self.pod.key(), %reason, "{action}: {message}");
        }
        if action == Action::Prepare && outcome == ActionOutcome::Done {
            self.refresh_at = Some(Instant::now() + VOLUME_FIRST_REFRESH_DELAY);
        }
        if let (Action::Report(patch), ActionOutcome::Done) = (&action, &outcome) {
            let status = patch["status"].clone();
            self.entry.update_snapshot(|snapshot| snapshot.status = status);
        }
        self.pod.apply_outcome(&action, outcome, now());
    }

    /// Starts a refresh of the volumes if it is due and still needed.
    fn refresh_volumes(&mut self) {
        if self.refresh_at.is_none_or(|at| Instant::now() < at) {
            return;
        }
        let are_settled = self.node.volumes.are_volumes_final(self.pod.uid());
        if self.pod.has_terminated() || are_settled || self.object.metadata.deletion_timestamp.is_some() {
            self.refresh_at = None;
            return;
        }
        self.refresh_at = Some(Instant::now() + VOLUME_FIRST_REFRESH_DELAY * 2);
        let executor = self.executor();
        // Runs in the background; a failure is retried at the next refresh.
        self.actions.spawn(async move {
            if let Err(error) = executor.prepare_volumes().await {
                tracing::debug!("cannot refresh the volumes of a pod: {error}");
            }
            ActionOutcome::Done
        });
    }
}

/// Returns the addresses and the runtime name of the node, for the kubelet rules. A runtime whose name is unknown
/// counts as containerd.
fn host_info<R: Runtime>(node: &NodeAgent<R>) -> Host {
    let runtime = node.runtime_name.get().map_or("containerd", |it| it.as_str());
    Host {
        addresses: vec![node.config.address.to_string().into()],
        runtime: runtime.into(),
        wall_clock: clock::wall_clock(),
    }
}

/// Converts the engine's time `at` to an `Instant`. `now` is the current time of the engine.
fn to_instant(at: Time, now: Time) -> Instant {
    Instant::now() + at.since(now)
}

#[cfg(test)]
mod tests;
