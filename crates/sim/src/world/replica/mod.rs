//! A replica of the DaemonSet controller. It runs the shipped controller with lagging watches and a Lease, in a process
//! that can crash, freeze or lose its network.

/// Requests of a replica, and their responses.
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::time::Time;
use muster_engine::controller::{Controller as _, Event, EventRecord};
use muster_engine::daemonset::facts::{Kind, WatchedObject};
use muster_engine::daemonset::plan::{Plan, Settings};
use muster_engine::daemonset::{DaemonSetCall, DaemonSetController};

use self::requests::RequestInFlight;
use super::{SimTask, World};
use crate::faults::WatchFault;
use crate::invariants::DecidedPlan;
use crate::lagging_server::{ReadBarrier, ServerId};
use crate::rng::Rng;
use crate::server::{Actor, store_key_prefix};

/// Time from the last renewal of the Lease until the Lease expires. It is upstream's default.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// Time from the last renewal of the Lease until the leader stops writing, if it cannot renew the Lease again. It is
/// upstream's default.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Interval at which the leader renews the Lease and the other replicas try to acquire it. It is upstream's default.
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Timeout of a request. A request that takes longer to reach the API server is not applied. The timeout is shorter
/// than the difference between [`LEASE_DURATION`] and [`RENEW_DEADLINE`], so that no write of a former leader arrives
/// after the Lease has expired.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

/// The Lease for leader election on the simulated API server.
#[derive(Clone, Debug, Default)]
pub struct LeaderLease {
    /// Index and process number of the replica that last acquired or renewed the Lease.
    pub holder: Option<(usize, u64)>,
    /// Time at which the Lease expires.
    pub until: Time,
}

/// A replica of the DaemonSet controller: a simulated process with its clock, watches, work queue and requests.
#[derive(Debug)]
pub struct Replica {
    /// Whether the process is running. A frozen process counts as running.
    pub alive: bool,
    /// Number of process starts and crashes. Tasks of an earlier process are ignored, except requests that it has sent.
    pub process_number: u64,
    /// Current clock skew in microseconds, including clock steps.
    skew: i64,
    /// Clock skew in microseconds without clock steps. The clock returns to it when faults stop.
    usual_skew: i64,
    /// Whether the process is frozen: it executes nothing until it resumes.
    frozen: bool,
    /// Tasks that were due while the process was frozen.
    deferred_tasks: Vec<SimTask>,
    /// Time until which the replica has no network.
    cut_off_until: Time,
    /// The API server of the watches, and usually of the requests.
    pub server: ServerId,
    pub is_leader: bool,
    /// Time of the last Lease renewal, by the replica's own clock.
    renewed_at: Time,
    pub controller: DaemonSetController,
    /// The revision up to which the watch of each kind has delivered events.
    cursors: BTreeMap<Kind, u64>,
    /// Kinds whose next event delivery ([`SimTask::DeliverEvent`]) is scheduled.
    scheduled_deliveries: BTreeSet<Kind>,
    /// Time until which the watch of a kind is stalled.
    stalled_until: BTreeMap<Kind, Time>,
    /// Lists that the replica has requested and not received yet, with what they must contain. The watches of these
    /// kinds have ended.
    awaited_lists: BTreeMap<Kind, ReadBarrier>,
    /// Whether the replica has acquired the Lease, and waits for the lists that every new leader makes. It reconciles
    /// nothing before it has received them.
    awaits_lists_of_leader: bool,
    /// Work queue: the keys of the sets to reconcile.
    queue: BTreeSet<ObjectKey>,
    /// Whether the next reconcile ([`SimTask::Reconcile`]) is scheduled.
    is_reconcile_scheduled: bool,
    /// The plans in execution, by key of the set.
    executing: BTreeMap<ObjectKey, DecidedPlan>,
    /// All requests of the process. A [`SimTask`] refers to a request by its index in this list.
    calls: Vec<RequestInFlight>,
    /// Time of the next scheduled reconcile of a set, by key of the set.
    timers: BTreeMap<ObjectKey, Time>,
}

/// The state that a list request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ListVersion {
    /// A list without `resourceVersion`: the state includes every acknowledged write.
    Fresh,
    /// A list with this `resourceVersion`: the state has at least this revision.
    NotOlderThan(u64),
    /// A list with `resourceVersion=0`: the state of the server, however old it is.
    Any,
}

/// Maximum number of plans that a replica executes at the same time. It is the shipped default.
const CONCURRENT_PLANS_MAX: usize = 16;

impl Replica {
    /// Returns a replica that is not started yet. `skew_s` is the maximum clock skew in seconds.
    pub fn new(rng: &mut Rng, skew_s: u64) -> Self {
        let micros = i64::try_from(skew_s * 1_000_000).unwrap_or(0);
        let skew = i64::try_from(rng.below(2 * skew_s * 1_000_000 + 1)).unwrap_or(0) - micros;
        Self {
            alive: false,
            process_number: 0,
            skew,
            usual_skew: skew,
            frozen: false,
            deferred_tasks: Vec::new(),
            cut_off_until: Time::default(),
            server: ServerId::Current,
            is_leader: false,
            renewed_at: Time::default(),
            controller: DaemonSetController::new(Settings::default(), CONCURRENT_PLANS_MAX),
            cursors: BTreeMap::new(),
            scheduled_deliveries: BTreeSet::new(),
            stalled_until: BTreeMap::new(),
            awaited_lists: BTreeMap::new(),
            awaits_lists_of_leader: false,
            queue: BTreeSet::new(),
            is_reconcile_scheduled: false,
            executing: BTreeMap::new(),
            calls: Vec::new(),
            timers: BTreeMap::new(),
        }
    }

    /// Returns the current time by the replica's own clock.
    pub fn local_time(&self, now: Time) -> Time {
        Time::from_micros(now.as_micros() + self.skew)
    }

    /// Whether the replica has nothing left to do: it is not the leader, or it is not frozen and has no set to
    /// reconcile and no plan in execution.
    pub fn is_settled(&self) -> bool {
        !self.is_leader || (self.queue.is_empty() && self.executing.is_empty() && !self.frozen)
    }

    /// Whether the replica can send requests now: it is alive, not frozen and not cut off from the API server.
    pub fn can_send_requests(&self, now: Time) -> bool {
        self.alive && !self.frozen && self.cut_off_until <= now
    }

    /// Whether the replica has requested a list of a kind and not received it yet.
    pub(super) fn awaits_list(&self, kind: Kind) -> bool {
        self.awaited_lists.contains_key(&kind)
    }

    /// Returns the revision up to which the watch of a kind has delivered events. Returns `None` before the first list.
    pub(super) fn delivered_revision(&self, kind: Kind) -> Option<u64> {
        self.cursors.get(&kind).copied()
    }

    /// Returns the revision up to which the watch of each kind has delivered events.
    fn delivered_revisions(&self) -> BTreeMap<Kind, u64> {
        self.cursors.clone()
    }
}

impl World {
    /// Starts a new process with empty caches. It lists all kinds, the required ones possibly in an old state.
    pub fn start_replica(&mut self, index: usize) {
        let (settings, server) = (self.settings, self.random_server());
        let replica = &mut self.replicas[index];
        replica.process_number += 1;
        let (skew, usual_skew) = (replica.skew, replica.usual_skew);
        *replica = Replica {
            alive: true,
            process_number: replica.process_number,
            skew,
            usual_skew,
            server,
            controller: DaemonSetController::new(settings, CONCURRENT_PLANS_MAX),
            ..Replica::new(&mut Rng::new(0), 0)
        };
        let process_number = replica.process_number;
        for kind in Kind::OPTIONAL {
            self.list_kind(index, kind, ListVersion::Fresh);
        }
        for kind in Kind::REQUIRED {
            if self.fault_rates.random_watch_fault(&mut self.rng) == Some(WatchFault::StaleRelist) {
                self.list_old_state(index, kind, 20);
            } else {
                self.list_kind(index, kind, ListVersion::Fresh);
            }
        }
        let delay = self.random_delay();
        self.schedule_after(delay, SimTask::RenewLease { replica: index, process_number });
    }

    /// Crashes the process of a replica. A new process starts later.
    pub fn crash_replica(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        if !replica.alive {
            return;
        }
        self.trace.add_line(self.now, || format!("replica {index} crashes"));
        (replica.alive, replica.is_leader) = (false, false);
        replica.process_number += 1;
        self.checks.drop_replica_records(index);
        let delay = Duration::from_millis(self.rng.between(100, 20_000));
        self.schedule_after(delay, SimTask::StartReplica { replica: index });
    }

    /// Freezes the process of a replica. Tasks that are due while it is frozen run after the process resumes.
    pub fn freeze_replica(&mut self, index: usize, span: Duration) {
        let replica = &mut self.replicas[index];
        if replica.alive && !replica.frozen {
            replica.frozen = true;
            self.trace.add_line(self.now, || format!("replica {index} freezes for {span:?}"));
            self.schedule_after(span, SimTask::ResumeReplica { replica: index });
        }
    }

    /// Ends the freeze of a replica's process, and schedules the deferred tasks.
    pub fn resume_replica(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        replica.frozen = false;
        let held = std::mem::take(&mut replica.deferred_tasks);
        self.trace.add_line(self.now, || format!("replica {index} resumes"));
        for task in held {
            let delay = self.random_delay();
            self.schedule_after(delay, task);
        }
    }

    /// Cuts a replica off from the network for the duration `span`.
    pub fn partition_replica(&mut self, index: usize, span: Duration) {
        self.replicas[index].cut_off_until = self.now + span;
    }

    /// Steps the clock of a replica forward, or backward if `micros` is negative.
    pub fn step_clock(&mut self, index: usize, micros: i64) {
        self.replicas[index].skew += micros;
        self.checks.on_clock_step(index);
        self.trace.add_line(self.now, || format!("the clock of replica {index} steps by {micros} us"));
    }

    /// Decides whether a task of a replica's process is executed now. If this process has ended, drops the task and
    /// returns `false`. If the process is frozen, defers the task until the process resumes, and returns `false`.
    fn admit_task(&mut self, index: usize, process_number: u64, task: impl FnOnce() -> SimTask) -> bool {
        let replica = &mut self.replicas[index];
        if !replica.alive || replica.process_number != process_number {
            return false;
        }
        if replica.frozen {
            let task = task();
            replica.deferred_tasks.push(task);
            return false;
        }
        true
    }

    /// Makes a replica list a kind on its server, and watch from the revision of the list. If the state of the server
    /// is older than the replica asks for, the server responds later.
    ///
    /// Rule: a list waits until the server has the requested state. Only a list with `resourceVersion=0` may be old.
    pub(super) fn list_kind(&mut self, index: usize, kind: Kind, version: ListVersion) {
        let wanted = match version {
            ListVersion::Fresh => self.read_barrier(),
            ListVersion::NotOlderThan(revision) => ReadBarrier { revision, acknowledged: 0 },
            ListVersion::Any => ReadBarrier { revision: 0, acknowledged: 0 },
        };
        self.replicas[index].awaited_lists.insert(kind, wanted);
        self.receive_list(index, self.replicas[index].process_number, kind);
    }

    /// Delivers a list of a kind that a replica has requested, if its server has the state that the list must contain.
    pub(super) fn receive_list(&mut self, index: usize, process_number: u64, kind: Kind) {
        let task = SimTask::ReceiveList { replica: index, process_number, kind };
        if !self.admit_task(index, process_number, || task.clone()) {
            return;
        }
        let replica = &self.replicas[index];
        let Some(wanted) = replica.awaited_lists.get(&kind).copied() else { return };
        let revision = self.visible_revision(replica.server);
        if revision < wanted.revision {
            return self.wait_for_revision(wanted.revision, task);
        }
        self.checks.check_fresh_state(wanted.acknowledged, revision);
        self.checks.check_list(Actor::Controller(index), kind, wanted.revision, revision);
        self.replicas[index].awaited_lists.remove(&kind);
        self.relist_kind(index, kind, revision);
        let replica = &mut self.replicas[index];
        if replica.awaits_lists_of_leader && replica.awaited_lists.is_empty() {
            self.begin_reconciling(index);
        }
    }

    /// Makes a replica list an old state of a kind. On the lagging server, this is the state of that server. On the
    /// current server, it is the state of `behind` revisions ago.
    fn list_old_state(&mut self, index: usize, kind: Kind, behind: u64) {
        match self.replicas[index].server {
            ServerId::Current => {
                self.relist_kind(index, kind, self.server.revision().saturating_sub(behind).max(1))
            }
            ServerId::Lagging => self.list_kind(index, kind, ListVersion::Any),
        }
    }

    /// Resumes a replica's watch of a kind on its server after the revision `watched`. No event is delivered before the
    /// duration `gap` has passed.
    pub(super) fn resume_watch(&mut self, index: usize, kind: Kind, watched: u64, gap: Duration) {
        let replica = &mut self.replicas[index];
        replica.cursors.insert(kind, watched);
        let stalled = replica.stalled_until.entry(kind).or_default();
        *stalled = (*stalled).max(self.now + gap);
        self.schedule_delivery(index, kind);
    }

    /// Replaces the objects of a kind in a replica's controller by the objects at a revision, and continues the watch
    /// from this revision.
    fn relist_kind(&mut self, index: usize, kind: Kind, revision: u64) {
        let items = self.server.list_at_revision(kind, revision);
        let count = items.len();
        self.checks.on_list(Actor::Controller(index), kind, revision);
        let replica = &mut self.replicas[index];
        replica.cursors.insert(kind, revision);
        let clock = replica.local_time(self.now);
        let listed = Event::Listed { kind: kind.index(), facts: items, resource_version: revision };
        let keys = replica.controller.apply(listed, clock);
        replica.queue.extend(keys);
        if count != 0 || Kind::REQUIRED.contains(&kind) {
            self.trace.add_line(self.now, || format!("replica {index} lists {kind:?} at r{revision}"));
        }
        self.schedule_delivery(index, kind);
        self.schedule_reconcile(index);
    }

    /// Schedules the delivery of the next watch event of a kind to a replica. Does nothing if the delivery is already
    /// scheduled, if there is no new event, if the replica is not running or does not watch the kind, or if it waits
    /// for a list of the kind.
    pub fn schedule_delivery(&mut self, index: usize, kind: Kind) {
        let replica = &mut self.replicas[index];
        let Some(cursor) = replica.cursors.get(&kind).copied() else { return };
        if !replica.alive || replica.scheduled_deliveries.contains(&kind) || replica.awaits_list(kind) {
            return;
        }
        let server = replica.server;
        if self.next_commit_after_revision(server, kind, cursor).is_none() {
            return;
        }
        let replica = &mut self.replicas[index];
        let process_number = replica.process_number;
        replica.scheduled_deliveries.insert(kind);
        let stuck = replica.stalled_until.get(&kind).copied().unwrap_or_default().since(self.now);
        let delay = self.random_delay() + stuck;
        self.schedule_after(delay, SimTask::DeliverEvent { replica: index, process_number, kind });
    }

    /// Sends a bookmark to all watches without pending events of the replicas that run and are not frozen. Schedules the
    /// next bookmarks.
    pub fn send_bookmarks(&mut self) {
        self.schedule_after(Duration::from_secs(30), SimTask::SendBookmarks);
        for index in 0..self.replicas.len() {
            let server = self.replicas[index].server;
            let revision = self.visible_revision(server);
            for kind in Kind::ALL {
                let replica = &self.replicas[index];
                let Some(cursor) = replica.cursors.get(&kind).copied() else { continue };
                // A watch that was resumed from a later revision than the server has is ahead of it.
                let is_in_sync =
                    cursor <= revision && self.next_commit_after_revision(server, kind, cursor).is_none();
                if !replica.alive || replica.frozen || replica.awaits_list(kind) || !is_in_sync {
                    continue;
                }
                self.checks.check_watch_position(Actor::Controller(index), kind, revision);
                let replica = &mut self.replicas[index];
                replica.cursors.insert(kind, revision);
                let keys = replica.controller.apply_bookmark(kind.index(), revision);
                replica.queue.extend(keys);
                self.schedule_reconcile(index);
            }
        }
    }

    /// Delivers the next watch event of a kind to a replica. A watch fault, or a loss of the network, changes or delays
    /// the delivery.
    pub fn deliver_event(&mut self, index: usize, process_number: u64, kind: Kind) {
        if !self.admit_task(index, process_number, || SimTask::DeliverEvent {
            replica: index,
            process_number,
            kind,
        }) {
            return;
        }
        self.replicas[index].scheduled_deliveries.remove(&kind);
        if self.replicas[index].awaits_list(kind) {
            return;
        }
        if self.now < self.replicas[index].cut_off_until {
            let until = self.replicas[index].cut_off_until;
            self.replicas[index].stalled_until.insert(kind, until);
            return self.schedule_delivery(index, kind);
        }
        self.deliveries += 1;
        let fault = match self.injected_fault.watch {
            Some((at, fault)) if at == self.deliveries => Some(fault),
            _ => self.fault_rates.random_watch_fault(&mut self.rng),
        };
        match fault {
            Some(WatchFault::Relist) => return self.list_kind(index, kind, ListVersion::Fresh),
            Some(WatchFault::StaleRelist) => {
                let behind = self.rng.between(1, 30);
                return self.list_old_state(index, kind, behind);
            }
            Some(WatchFault::Freeze) => {
                let until = self.now + Duration::from_millis(self.rng.between(500, 15_000));
                self.replicas[index].stalled_until.insert(kind, until);
                return self.schedule_delivery(index, kind);
            }
            _ => {}
        }
        let Some(mut next) = self.next_undelivered_commit(index, kind) else { return };
        if fault == Some(WatchFault::Coalesce) {
            let server = self.replicas[index].server;
            while let Some(later) =
                self.next_commit_after(server, kind, next).filter(|it| self.is_same_object(next, *it))
            {
                next = later;
            }
        }
        self.apply_to_cache(index, next);
        if fault == Some(WatchFault::Duplicate) {
            self.apply_to_cache(index, next);
        }
        self.schedule_delivery(index, kind);
        self.schedule_reconcile(index);
    }

    /// Returns the index in the commit log of the next commit of a kind that was not delivered to a replica. Returns
    /// `None` if all commits were delivered.
    fn next_undelivered_commit(&mut self, index: usize, kind: Kind) -> Option<usize> {
        let replica = &self.replicas[index];
        let cursor = replica.cursors.get(&kind).copied()?;
        self.next_commit_after_revision(replica.server, kind, cursor)
    }

    /// Returns the next commit of a kind in the state of a server after the commit `at`, or `None` if there is none.
    /// `at` and the result are indexes in the commit log.
    fn next_commit_after(&self, server: ServerId, kind: Kind, at: usize) -> Option<usize> {
        self.next_commit_after_revision(server, kind, self.server.log[at].revision)
    }

    /// Returns the first commit of `kind` after `revision`, as an index in the commit log. `None` if there is no such
    /// commit, or if the state of `server` does not contain it yet.
    fn next_commit_after_revision(&self, server: ServerId, kind: Kind, revision: u64) -> Option<usize> {
        let event = self.server.store.commits_since(store_key_prefix(kind), revision).ok()?.next()?.revision;
        if self.visible_revision(server) < event {
            return None;
        }
        self.server.log.binary_search_by_key(&event, |it| it.revision).ok()
    }

    /// Whether two commits of one kind changed the same object. `a` and `b` are indexes in the commit log.
    fn is_same_object(&self, a: usize, b: usize) -> bool {
        self.server.log[a].key == self.server.log[b].key
    }

    /// Passes a commit to the controller of the replica `index`, and enqueues the sets that the commit concerns. `at`
    /// is the index of the commit in the commit log.
    fn apply_to_cache(&mut self, index: usize, at: usize) {
        let commit = self.server.log[at].clone();
        let gone = WatchedObject::Gone {
            kind: commit.kind,
            key: commit.key.clone(),
            resource_version: commit.revision,
        };
        self.checks.check_delivered_event(
            &self.server,
            index,
            commit.kind,
            self.replicas[index].cursors[&commit.kind],
            commit.revision,
        );
        self.checks.check_watch_position(Actor::Controller(index), commit.kind, commit.revision);
        let replica = &mut self.replicas[index];
        let fact = commit.fact.clone().unwrap_or(gone);
        let clock = replica.local_time(self.now);
        let keys = replica.controller.apply(fact.into_event(), clock);
        replica.cursors.insert(commit.kind, commit.revision);
        self.trace.add_line(self.now, || {
            format!("replica {index} sees {:?} {} r{}", commit.kind, commit.key, commit.revision)
        });
        self.replicas[index].queue.extend(keys);
    }

    /// Schedules the next reconcile of a replica, unless one is scheduled already. Does nothing unless the replica is a
    /// leader that has listed all kinds and has a set to reconcile.
    fn schedule_reconcile(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        let waits = replica.queue.iter().any(|key| !replica.executing.contains_key(key));
        let may_reconcile = replica.alive && replica.is_leader && !replica.awaits_lists_of_leader;
        if may_reconcile && !replica.is_reconcile_scheduled && waits {
            replica.is_reconcile_scheduled = true;
            let process_number = replica.process_number;
            let delay = Duration::from_micros(self.rng.between(50, 2_000));
            self.schedule_after(delay, SimTask::Reconcile { replica: index, process_number });
        }
    }

    /// Makes a replica reconcile the next set of its queue, and starts to execute the resulting plan.
    pub fn reconcile_next_key(&mut self, index: usize, process_number: u64) {
        if !self.admit_task(index, process_number, || SimTask::Reconcile { replica: index, process_number }) {
            return;
        }
        let now = self.now;
        let replica = &mut self.replicas[index];
        replica.is_reconcile_scheduled = false;
        let next = replica.queue.iter().find(|key| !replica.executing.contains_key(*key)).cloned();
        let Some(key) = next.filter(|_| replica.is_leader) else { return };
        replica.queue.remove(&key);
        replica.timers.remove(&key);
        let clock = replica.local_time(now);
        let step = replica.controller.reconcile(&key, clock);
        let plan = replica.controller.last_plan(&key).cloned();
        let snapshot = replica.delivered_revisions();
        if let Some(plan) = plan {
            self.trace.add_line(now, || format!("replica {index} reconciles {key}: {}", plan_summary(&plan)));
            let process_number = self.replicas[index].process_number;
            let decided =
                DecidedPlan { replica: index, process_number, snapshot, clock, plan, rechecked: None };
            let planner = self.replicas[index].controller.planner();
            self.checks.check_new_plan(&self.server, planner.sets(), &decided);
            self.count_events(&step.events);
            self.execute_plan(decided, step.calls);
        }
        self.schedule_reconcile(index);
    }

    /// Starts the execution of a plan, and lists all kinds again if the plan requests it. An idle plan has nothing to
    /// execute, so only the next reconcile of the set is scheduled.
    fn execute_plan(&mut self, decided: DecidedPlan, calls: Vec<DaemonSetCall>) {
        let (index, process_number, plan) = (decided.replica, decided.process_number, decided.plan.clone());
        let key = plan.set.key.clone();
        if plan.relist {
            for kind in Kind::ALL {
                self.list_kind(index, kind, ListVersion::Fresh);
            }
        }
        if plan.is_idle() {
            if let Some(at) = plan.wake_at {
                let (now, delay) = (self.now, at.since(decided.clock));
                self.replicas[index].timers.insert(key.clone(), now + delay);
                self.schedule_after(delay, SimTask::FireTimer { replica: index, process_number, key });
            }
            return;
        }
        self.checks.on_execution_start(&decided);
        self.replicas[index].executing.insert(key.clone(), decided);
        self.continue_execution(index, &key, calls);
    }

    /// Sends the calls of a plan that may be sent now. If the plan has no calls left, ends its execution. If the
    /// replica may no longer write, ends its process.
    fn continue_execution(&mut self, index: usize, key: &ObjectKey, calls: Vec<DaemonSetCall>) {
        for call in calls {
            let (now, process_number) = (self.now, self.replicas[index].process_number);
            if !self.may_replica_write(index) {
                // The replica may no longer be the leader: it stops in the middle of the plan.
                return self.stop_leading(index);
            }
            let server = self.route_request(self.replicas[index].server);
            let replica = &mut self.replicas[index];
            let Some(decided) = replica.executing.get(key).cloned() else { return };
            replica.calls.push(RequestInFlight::new(call, now, server, decided));
            let call = replica.calls.len() - 1;
            let delay = self.random_delay();
            self.schedule_after(delay, SimTask::HandleRequest { replica: index, process_number, call });
        }
        let replica = &mut self.replicas[index];
        if replica.controller.is_executing(key) {
            return;
        }
        let Some(decided) = replica.executing.remove(key) else { return };
        replica.queue.insert(key.clone());
        self.checks.on_execution_end(&self.server, &decided);
        self.schedule_reconcile(index);
    }

    /// Counts recorded Kubernetes Events by reason.
    fn count_events(&mut self, events: &[EventRecord]) {
        for record in events {
            *self.events.entry(record.event.reason.to_owned()).or_default() += 1;
        }
    }

    /// Whether the replica is the leader and has renewed the Lease within [`RENEW_DEADLINE`], by its own clock.
    fn may_replica_write(&self, index: usize) -> bool {
        let replica = &self.replicas[index];
        let fresh = replica.local_time(self.now).since(replica.renewed_at) <= RENEW_DEADLINE;
        replica.is_leader && fresh
    }

    /// Enqueues a set whose scheduled reconcile is due.
    pub fn fire_timer(&mut self, index: usize, process_number: u64, key: &ObjectKey) {
        if !self.admit_task(index, process_number, || SimTask::FireTimer {
            replica: index,
            process_number,
            key: key.clone(),
        }) {
            return;
        }
        let replica = &mut self.replicas[index];
        if replica.timers.get(key).is_some_and(|at| *at <= self.now) {
            replica.timers.remove(key);
            replica.queue.insert(key.clone());
            self.schedule_reconcile(index);
        }
    }

    /// Makes a replica renew the Lease if it holds the Lease, and try to acquire it otherwise. A leader that has lost
    /// the Lease, or cannot renew it in time, ends its process. Also schedules the next attempt.
    pub fn renew_lease(&mut self, index: usize, process_number: u64) {
        if !self.admit_task(index, process_number, || SimTask::RenewLease { replica: index, process_number })
        {
            return;
        }
        self.schedule_after(RETRY_PERIOD, SimTask::RenewLease { replica: index, process_number });
        let clock = self.replicas[index].local_time(self.now);
        if self.now < self.replicas[index].cut_off_until {
            if RENEW_DEADLINE < clock.since(self.replicas[index].renewed_at) {
                self.stop_leading(index);
            }
            return;
        }
        let mine = self.lease.holder == Some((index, process_number));
        let free = self.lease.holder.is_none() || self.lease.until <= self.now;
        // A leader that finds another holder in the Lease has lost it, even if that holder is gone again.
        if !mine && (!free || self.replicas[index].is_leader) {
            return self.stop_leading(index);
        }
        self.checks.on_lease_renewed((index, process_number));
        self.lease = LeaderLease { holder: Some((index, process_number)), until: self.now + LEASE_DURATION };
        self.replicas[index].renewed_at = clock;
        if !self.replicas[index].is_leader {
            self.trace.add_line(self.now, || format!("replica {index} leads"));
            self.replicas[index].is_leader = true;
            // A new leader must see all writes of the previous leader, so it lists again.
            self.replicas[index].awaits_lists_of_leader = self.replicas[index].server == ServerId::Lagging;
            for kind in Kind::ALL {
                self.list_kind(index, kind, ListVersion::Fresh);
            }
            if self.replicas[index].awaited_lists.is_empty() {
                self.begin_reconciling(index);
            }
        }
    }

    /// Makes a new leader reconcile all sets.
    fn begin_reconciling(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        replica.awaits_lists_of_leader = false;
        let keys: Vec<ObjectKey> = replica.controller.planner().keys().cloned().collect();
        replica.queue.extend(keys);
        self.schedule_reconcile(index);
    }

    /// Ends the process of a replica if it is the leader, because it may no longer write. A new process starts later.
    fn stop_leading(&mut self, index: usize) {
        if self.replicas[index].is_leader {
            self.crash_replica(index);
        }
    }
}

/// Formats a plan for the trace.
fn plan_summary(plan: &Plan) -> String {
    let text = plan.to_string();
    let text = text.trim_end().replace('\n', " | ");
    let status = if plan.status.is_some() { " +status" } else { "" };
    if text.is_empty() && status.is_empty() { "nothing".to_owned() } else { format!("{text}{status}") }
}

impl World {
    /// Ends the clock steps, the network partition and the stalled watches of a replica.
    pub fn end_replica_faults(&mut self, index: usize) {
        let now = self.now;
        let replica = &mut self.replicas[index];
        let is_changed = replica.skew != replica.usual_skew;
        replica.skew = replica.usual_skew;
        if is_changed {
            self.checks.on_clock_step(index);
        }
        replica.cut_off_until = now;
        replica.stalled_until.clear();
    }

    /// Stalls the watches of a kind on all replicas for the duration `span`.
    pub fn stall_watches(&mut self, kind: Kind, span: Duration) {
        let until = self.now + span;
        for replica in &mut self.replicas {
            replica.stalled_until.insert(kind, until);
        }
    }

    /// Enqueues all sets on the leader. In a converged cluster, the resulting reconciles must not write anything.
    pub fn enqueue_all_sets(&mut self) {
        for index in 0..self.replicas.len() {
            let keys: Vec<ObjectKey> = self.replicas[index].controller.planner().keys().cloned().collect();
            if self.replicas[index].is_leader {
                self.replicas[index].queue.extend(keys);
                self.schedule_reconcile(index);
            }
        }
    }

    /// Switches the scheduler on if `runs` is true, and off otherwise.
    pub fn set_scheduler_enabled(&mut self, runs: bool) {
        self.scheduler_runs = runs;
    }
}
