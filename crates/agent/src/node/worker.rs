//! The worker of one pod: reads its runtime state, syncs it through `engine::kubelet::pod`, runs the actions and
//! passes back their outcomes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use muster_api::meta::ObjectKey;
use muster_api::time::Time;
use muster_engine::kubelet::pod::{self, Action, Host, Outcome, RuntimeState, State};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;

use super::executor::{Executor, Figures};
use super::pod_manager::{Entry, Mail};
use super::runtime_status::RuntimeStatusReader;
use super::{Node, admission};
use crate::clock::now;
use crate::pod::ParsedPod;
use crate::runtime::Runtime;

/// Delay before a runtime that does not respond is tried again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Delays of repeated reads after an exit event: the runtime reports an exit a moment before it shows the new
/// state.
const SHOWN_AFTER_MS: [u64; 14] = [10, 20, 30, 50, 50, 100, 100, 200, 300, 500, 1000, 2000, 4000, 4000];

/// Delay of the first volume refresh after preparation; later ones follow at twice this interval.
const REFRESH_AGAIN: Duration = Duration::from_secs(30);

pub(super) struct Worker<R> {
    node: Arc<Node<R>>,
    entry: Arc<Entry>,
    pod: pod::Pod,
    object: Arc<ParsedPod>,
    observer: RuntimeStatusReader,
    seen: RuntimeState,
    actions: JoinSet<Outcome>,
    under_way: HashMap<Id, Action>,
    /// When the volumes are refreshed next. `None` until they are prepared.
    refresh_at: Option<Instant>,
    begun: Instant,
    figures: Arc<Figures>,
}

impl<R: Runtime> Worker<R> {
    pub(super) fn new(node: Arc<Node<R>>, entry: Arc<Entry>, object: Arc<ParsedPod>) -> Self {
        let pod = pod::Pod::new(object.object.clone(), host(&node), now());
        Self::of(node, entry, pod, object)
    }

    pub(super) fn orphan(node: Arc<Node<R>>, entry: Arc<Entry>, key: ObjectKey, uid: &str) -> Self {
        let pod = pod::Pod::orphan(key, uid.into(), host(&node), now());
        let object = entry.shown().object;
        Self::of(node, entry, pod, object)
    }

    fn of(node: Arc<Node<R>>, entry: Arc<Entry>, pod: pod::Pod, object: Arc<ParsedPod>) -> Self {
        Self {
            node,
            entry,
            pod,
            object,
            observer: RuntimeStatusReader::default(),
            seen: RuntimeState::default(),
            actions: JoinSet::new(),
            under_way: HashMap::new(),
            refresh_at: None,
            begun: Instant::now(),
            figures: Arc::default(),
        }
    }

    /// Runs until nothing is left of the pod.
    pub(super) async fn run(mut self) {
        if let Some(ending) = admission::let_in(&self.node, &self.entry).await {
            self.pod.end(ending, now());
        }
        let mut read_at = Some(Instant::now());
        // Consecutive reads in which an exited container still shows as running.
        let mut stale_reads = 0;
        loop {
            if read_at.is_some_and(|it| it <= Instant::now()) {
                let wait = match self.observe().await {
                    Ok(()) if self.shows_ended() => {
                        stale_reads += 1;
                        SHOWN_AFTER_MS.get(stale_reads - 1).map(|it| Duration::from_millis(*it))
                    }
                    Ok(()) => {
                        stale_reads = 0;
                        None
                    }
                    Err(error) => {
                        tracing::debug!(pod = %self.pod.key(), "cannot read the runtime state: {error}");
                        Some(ASK_AGAIN)
                    }
                };
                read_at = wait.map(|it| Instant::now() + it);
            }
            let wake_at = self.look();
            if self.pod.is_over() {
                break;
            }
            let at = [wake_at, read_at, self.refresh_at].into_iter().flatten().min();
            let later = Instant::now() + Duration::from_secs(3600);
            tokio::select! {
                update = self.entry.mail() => {
                    if update.look {
                        read_at = Some(Instant::now());
                    }
                    self.read(update);
                }
                Some(done) = self.actions.join_next_with_id() => {
                    let mark = self.pod.mark();
                    self.done(done);
                    if mark != self.pod.mark() {
                        read_at = Some(Instant::now());
                    }
                }
                () = tokio::time::sleep_until(at.unwrap_or(later)) => self.refresh(),
            }
        }
        tracing::debug!(pod = %self.pod.key(), "the pod is gone from this node");
    }

    async fn observe(&mut self) -> Result<(), crate::runtime::RuntimeError> {
        let Self { node, observer, object, pod, figures, .. } = self;
        let reading = observer.observe(&*node.runtime, &node.config, object, pod.mark());
        let state = figures.within(reading).await?;
        if let Some((all, own)) = self.figures.note_running(&state, self.begun, self.pod.key()) {
            self.node.metrics.started(all, own);
        }
        self.entry.show(|snapshot| snapshot.seen = state.clone());
        self.seen = state.clone();
        self.pod.update_runtime_state(state, now());
        Ok(())
    }

    /// Whether a container or sandbox shows as running although the runtime reported its exit.
    fn shows_ended(&self) -> bool {
        let running = self.seen.containers.iter().filter(|it| matches!(it.state, State::Running { .. }));
        let ready = self.seen.sandboxes.iter().filter(|it| it.is_ready);
        let mut ids = running.map(|it| &it.id).chain(ready.map(|it| &it.id));
        ids.any(|id| self.node.pods.has_ended(id))
    }

    fn read(&mut self, update: Mail) {
        let now = now();
        if let Some(object) = update.object {
            self.pod.update_spec(object.object.clone(), now);
            // Downward API volumes may contain the changed fields.
            self.refresh_at = self.refresh_at.map(|_| Instant::now());
            self.entry.show(|snapshot| snapshot.object = object.clone());
            self.object = object;
        }
        if let Some(ending) = update.ending {
            self.pod.end(ending, now);
        }
        if update.is_gone {
            self.pod.gone(now);
        }
    }

    /// Starts the pod's next actions and returns when to sync again.
    fn look(&mut self) -> Option<Instant> {
        let began = now();
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
            self.under_way.insert(id, action);
        }
        let has_ended = self.pod.has_ended();
        let mut has_changed = false;
        self.entry.show(|snapshot| {
            has_changed = std::mem::replace(&mut snapshot.has_ended, has_ended) != has_ended;
        });
        if has_changed {
            self.node.pods.change();
        }
        sync.wake_at.map(|at| instant(at, began))
    }

    fn executor(&self) -> Executor<R> {
        let ready = self.seen.sandboxes.iter().filter(|it| it.is_ready).max_by_key(|it| it.attempt);
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
            containers: self.seen.containers.clone(),
            figures: self.figures.clone(),
        }
    }

    fn done(&mut self, done: Result<(Id, Outcome), JoinError>) {
        let (id, outcome) = match done {
            Ok(done) => done,
            // An action that panicked counts as failed.
            Err(error) => {
                let message = format!("internal error of the agent: {error}");
                tracing::error!(pod = %self.pod.key(), "{message}");
                (error.id(), Outcome::Failed { reason: "InternalError".into(), message: message.into() })
            }
        };
        let Some(action) = self.under_way.remove(&id) else { return };
        self.node.metrics.done(&action, &outcome);
        if let Outcome::Failed { reason, message } = &outcome {
            tracing::debug!(pod = %self.pod.key(), %reason, "{action}: {message}");
        }
        if action == Action::Prepare && outcome == Outcome::Done {
            self.refresh_at = Some(Instant::now() + REFRESH_AGAIN);
        }
        if let (Action::Report(patch), Outcome::Done) = (&action, &outcome) {
            let status = patch["status"].clone();
            self.entry.show(|snapshot| snapshot.status = status);
        }
        self.pod.done(&action, outcome, now());
    }

    /// Refreshes the volumes if they are due.
    fn refresh(&mut self) {
        if self.refresh_at.is_none_or(|at| Instant::now() < at) {
            return;
        }
        let are_settled = self.node.volumes.are_settled(self.pod.uid());
        if self.pod.has_ended() || are_settled || self.object.metadata.deletion_timestamp.is_some() {
            self.refresh_at = None;
            return;
        }
        self.refresh_at = Some(Instant::now() + REFRESH_AGAIN * 2);
        let executor = self.executor();
        // Runs in the background; a failure is retried at the next refresh.
        self.actions.spawn(async move {
            if let Err(error) = executor.prepare_volumes().await {
                tracing::debug!("cannot refresh the volumes of a pod: {error}");
            }
            Outcome::Done
        });
    }
}

fn host<R: Runtime>(node: &Node<R>) -> Host {
    let runtime = node.runtime_name.get().map_or("containerd", |it| it.as_str());
    Host { addresses: vec![node.config.address.to_string().into()], runtime: runtime.into() }
}

fn instant(at: Time, now: Time) -> Instant {
    Instant::now() + at.since(now)
}
