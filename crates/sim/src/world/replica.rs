//! A replica of the DaemonSet controller. It runs the shipped controller with lagging watches and a Lease, in a process
//! that can crash, freeze or lose its network.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_api::object_key::ObjectKey;
use muster_api::time::Time;
use muster_engine::controller::{CallError, Controller as _, Event, EventRecord, Outcome};
use muster_engine::daemonset::execution::{Call, Response};
use muster_engine::daemonset::facts::{Kind, Set, WatchedObject};
use muster_engine::daemonset::manifest::{self, Binding};
use muster_engine::daemonset::plan::{Claim, Plan, RevisionWrite, RolloutWrite, Settings};
use muster_engine::daemonset::progressive::verdict::RevisionVerdict;
use muster_engine::daemonset::{DaemonSetCall, DaemonSetController};
use serde_json::{Value, json};

use super::{SimTask, World};
use crate::faults::{RequestFault, WatchFault};
use crate::invariants::DecidedPlan;
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
const WRITE_TIMEOUT: Duration = Duration::from_secs(4);

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

/// A request of a replica, from its sending until its response is delivered.
#[derive(Debug)]
struct RequestInFlight {
    call: DaemonSetCall,
    sent_at: Time,
    /// The response as a decoded value for the checks, and as the outcome that the controller gets. `None` until the
    /// API server has handled the request.
    response: Option<(Response, Outcome)>,
    /// The plan that caused the request.
    decided: DecidedPlan,
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
            is_leader: false,
            renewed_at: Time::default(),
            controller: DaemonSetController::new(Settings::default(), CONCURRENT_PLANS_MAX),
            cursors: BTreeMap::new(),
            scheduled_deliveries: BTreeSet::new(),
            stalled_until: BTreeMap::new(),
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

    /// Whether the replica is not frozen, and has no set to reconcile and no plan in execution. Always true for a
    /// replica that is not the leader.
    pub fn has_no_work(&self) -> bool {
        !self.is_leader || (self.queue.is_empty() && self.executing.is_empty() && !self.frozen)
    }

    /// Whether the replica could acquire a free Lease now.
    pub fn can_lead(&self, now: Time) -> bool {
        self.alive && !self.frozen && self.cut_off_until <= now
    }

    /// Returns the revision up to which the watch of each kind has delivered events.
    fn watch_revisions(&self) -> BTreeMap<Kind, u64> {
        self.cursors.clone()
    }
}

impl World {
    /// Starts a new process with empty caches. It lists all kinds, the required ones possibly from an API server that
    /// lags behind.
    pub fn start_replica(&mut self, index: usize) {
        let settings = self.settings;
        let replica = &mut self.replicas[index];
        replica.process_number += 1;
        let (skew, usual_skew) = (replica.skew, replica.usual_skew);
        *replica = Replica {
            alive: true,
            process_number: replica.process_number,
            skew,
            usual_skew,
            controller: DaemonSetController::new(settings, CONCURRENT_PLANS_MAX),
            ..Replica::new(&mut Rng::new(0), 0)
        };
        let process_number = replica.process_number;
        for kind in Kind::OPTIONAL {
            self.relist_kind(index, kind, self.server.revision().max(1));
        }
        for kind in Kind::REQUIRED {
            let lag = if self.fault_rates.random_watch_fault(&mut self.rng) == Some(WatchFault::StaleRelist) {
                20
            } else {
                0
            };
            self.relist_kind(index, kind, self.server.revision().saturating_sub(lag).max(1));
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

    /// Whether the process that a task was scheduled for is running and not frozen, so that the task can be executed
    /// now. If the process is frozen, also defers the task until the process resumes.
    fn is_running_or_defer(
        &mut self,
        index: usize,
        process_number: u64,
        task: impl FnOnce() -> SimTask,
    ) -> bool {
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

    /// Makes a replica list a kind at a revision, and watch from this revision.
    pub fn relist_kind(&mut self, index: usize, kind: Kind, revision: u64) {
        let items = self.server.list_at_revision(kind, revision);
        let count = items.len();
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
        self.wake_worker(index);
    }

    /// Schedules the delivery of the next watch event of a kind to a replica, unless it is already scheduled or there
    /// is no new event.
    pub fn schedule_delivery(&mut self, index: usize, kind: Kind) {
        let replica = &mut self.replicas[index];
        let Some(cursor) = replica.cursors.get(&kind).copied() else { return };
        if !replica.alive || replica.scheduled_deliveries.contains(&kind) {
            return;
        }
        if self
            .server
            .store
            .commits_since(store_key_prefix(kind), cursor)
            .is_ok_and(|mut it| it.next().is_none())
        {
            return;
        }
        let process_number = replica.process_number;
        replica.scheduled_deliveries.insert(kind);
        let stuck = replica.stalled_until.get(&kind).copied().unwrap_or_default().since(self.now);
        let delay = self.random_delay() + stuck;
        self.schedule_after(delay, SimTask::DeliverEvent { replica: index, process_number, kind });
    }

    /// Sends a bookmark to all watches of running replicas that have no pending events, and schedules the next
    /// bookmarks.
    pub fn send_bookmarks(&mut self) {
        self.schedule_after(Duration::from_secs(30), SimTask::SendBookmarks);
        let revision = self.server.revision();
        for index in 0..self.replicas.len() {
            for kind in Kind::ALL {
                let replica = &mut self.replicas[index];
                let Some(cursor) = replica.cursors.get(&kind).copied() else { continue };
                let behind = self
                    .server
                    .store
                    .commits_since(store_key_prefix(kind), cursor)
                    .is_ok_and(|mut it| it.next().is_some());
                if !replica.alive || replica.frozen || behind {
                    continue;
                }
                replica.cursors.insert(kind, revision);
                let keys = replica.controller.apply_bookmark(kind.index(), revision);
                replica.queue.extend(keys);
                self.wake_worker(index);
            }
        }
    }

    /// Delivers the next watch event of a kind to a replica. If the event gets a watch fault, the fault changes or
    /// delays the delivery. So does a loss of the network.
    pub fn deliver_event(&mut self, index: usize, process_number: u64, kind: Kind) {
        if !self.is_running_or_defer(index, process_number, || SimTask::DeliverEvent {
            replica: index,
            process_number,
            kind,
        }) {
            return;
        }
        self.replicas[index].scheduled_deliveries.remove(&kind);
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
            Some(WatchFault::Relist) => return self.relist_kind(index, kind, self.server.revision()),
            Some(WatchFault::StaleRelist) => {
                let behind = self.rng.between(1, 30);
                let revision = self.server.revision().saturating_sub(behind).max(1);
                return self.relist_kind(index, kind, revision);
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
            while let Some(later) =
                self.next_commit_after(kind, next).filter(|it| self.is_same_object(next, *it))
            {
                next = later;
            }
        }
        self.apply_to_cache(index, next);
        if fault == Some(WatchFault::Duplicate) {
            self.apply_to_cache(index, next);
        }
        self.schedule_delivery(index, kind);
        self.wake_worker(index);
    }

    /// Returns the index in the commit log of the next commit of a kind that was not delivered to a replica. Returns
    /// `None` if all commits were delivered.
    fn next_undelivered_commit(&mut self, index: usize, kind: Kind) -> Option<usize> {
        let cursor = self.replicas[index].cursors.get(&kind).copied()?;
        self.next_commit_after_revision(kind, cursor)
    }

    /// Returns the next commit of a kind after the commit `at`, or `None` if there is none. `at` and the result are
    /// indexes in the commit log.
    fn next_commit_after(&self, kind: Kind, at: usize) -> Option<usize> {
        self.next_commit_after_revision(kind, self.server.log[at].revision)
    }

    /// Returns the index in the commit log of the next commit of a kind after a revision, or `None` if there is none.
    fn next_commit_after_revision(&self, kind: Kind, revision: u64) -> Option<usize> {
        let event = self.server.store.commits_since(store_key_prefix(kind), revision).ok()?.next()?.revision;
        self.server.log.binary_search_by_key(&event, |it| it.revision).ok()
    }

    /// Whether two commits, given by their indexes in the commit log, changed the same object.
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

    /// Schedules the next reconcile of a replica, if the replica is the leader and has a set to reconcile.
    fn wake_worker(&mut self, index: usize) {
        let replica = &mut self.replicas[index];
        let waits = replica.queue.iter().any(|key| !replica.executing.contains_key(key));
        if replica.alive && replica.is_leader && !replica.is_reconcile_scheduled && waits {
            replica.is_reconcile_scheduled = true;
            let process_number = replica.process_number;
            let delay = Duration::from_micros(self.rng.between(50, 2_000));
            self.schedule_after(delay, SimTask::Reconcile { replica: index, process_number });
        }
    }

    /// Makes a replica reconcile the next set of its queue, and starts to execute the resulting plan.
    pub fn reconcile_next_key(&mut self, index: usize, process_number: u64) {
        if !self.is_running_or_defer(index, process_number, || SimTask::Reconcile {
            replica: index,
            process_number,
        }) {
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
        let snapshot = replica.watch_revisions();
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
        self.wake_worker(index);
    }

    /// Starts the execution of a plan. If the plan requests it, lists all kinds again. If the plan is idle, only
    /// schedules the next reconcile of the set.
    fn execute_plan(&mut self, decided: DecidedPlan, calls: Vec<DaemonSetCall>) {
        let (index, process_number, plan) = (decided.replica, decided.process_number, decided.plan.clone());
        let key = plan.set.key.clone();
        if plan.relist {
            for kind in Kind::ALL {
                self.relist_kind(index, kind, self.server.revision());
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
            let replica = &mut self.replicas[index];
            let Some(decided) = replica.executing.get(key).cloned() else { return };
            replica.calls.push(RequestInFlight { call, sent_at: now, response: None, decided });
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
        self.wake_worker(index);
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

    /// Handles a request on the simulated API server, even if the replica that sent it has crashed and is not restarted
    /// yet. `at` is the index of the request in `Replica::calls`.
    pub fn handle_replica_request(&mut self, index: usize, process_number: u64, at: usize) {
        if self.replicas[index].process_number != process_number && self.replicas[index].calls.len() <= at {
            return;
        }
        let is_read = matches!(
            self.replicas[index].calls[at].call.call,
            Call::ReadSet | Call::ListPods | Call::ReadRevision { .. }
        );
        let (DaemonSetCall { set, call, .. }, sent_at, decided) = {
            let it = &self.replicas[index].calls[at];
            (it.call.clone(), it.sent_at, it.decided.clone())
        };
        let key = set.key.clone();
        let fault = self.next_request_fault(&call, is_read);
        let too_late = sent_at + WRITE_TIMEOUT < self.now || self.now < self.replicas[index].cut_off_until;
        let outcome = match fault {
            _ if too_late => Response::Refused(CallError::NoAnswer),
            Some(RequestFault::CrashBefore) => {
                self.crash_replica(index);
                return;
            }
            Some(RequestFault::LostNotApplied) => Response::Refused(CallError::NoAnswer),
            Some(RequestFault::Conflict) => Response::Refused(CallError::Conflict),
            Some(RequestFault::TooManyRequests) => {
                Response::Refused(CallError::TooManyRequests { retry_after: Some(Duration::from_secs(1)) })
            }
            Some(RequestFault::Server) => Response::Refused(CallError::Server("etcd is away".into())),
            Some(RequestFault::Forbidden) => Response::Refused(CallError::Forbidden("denied".into())),
            Some(RequestFault::Invalid) => Response::Refused(CallError::Invalid("invalid".into())),
            Some(RequestFault::LostApplied | RequestFault::CrashAfter | RequestFault::ServerApplied)
            | None => {
                let before = self.server.revision();
                let body = manifest::call_body(&set, &call, Binding::Scheduler).unwrap_or_default();
                self.checks.check_request(&self.server, &decided, &set, &call, &body, self.now);
                let outcome = self.apply_request(index, &key, &set, &call);
                self.trace.add_line(self.now, || {
                    format!("replica {index} {} -> {}", describe_call(&call), describe_response(&outcome))
                });
                self.checks.check_applied_request(
                    &self.server,
                    &decided,
                    &set,
                    &call,
                    &outcome,
                    before,
                    self.now,
                );
                outcome
            }
        };
        self.checks.on_response(&decided, &call, &outcome, fault);
        let lost = matches!(fault, Some(RequestFault::LostApplied))
            || outcome == Response::Refused(CallError::NoAnswer);
        if fault == Some(RequestFault::CrashAfter) {
            self.crash_replica(index);
            return;
        }
        let delay = if lost {
            (sent_at + WRITE_TIMEOUT + Duration::from_millis(500)).since(self.now)
        } else {
            self.random_delay()
        };
        let response = match fault {
            _ if lost => Response::Refused(CallError::NoAnswer),
            Some(RequestFault::ServerApplied) => {
                Response::Refused(CallError::Server("request timed out".into()))
            }
            _ => outcome,
        };
        let sent = self.encode_response(&key, &call, &response);
        self.replicas[index].calls[at].response = Some((response, sent));
        self.schedule_after(delay, SimTask::DeliverResponse { replica: index, process_number, call: at });
    }

    /// Returns the fault that the next request gets, or `None` if it gets no fault. Counts the request in
    /// [`World::writes`], unless it only reads.
    fn next_request_fault(&mut self, call: &Call, is_read: bool) -> Option<RequestFault> {
        let fault = if is_read {
            self.fault_rates.random_request_fault(&mut self.rng)
        } else {
            self.writes += 1;
            match self.injected_fault.write {
                Some((at, fault)) if at == self.writes => Some(fault),
                _ => {
                    let scripted = self.next_fault.take_if(|(trigger, _)| trigger.selects(call));
                    let scripted = scripted.map(|(_, fault)| fault);
                    scripted.or_else(|| self.fault_rates.random_request_fault(&mut self.rng))
                }
            }
        };
        let possible_for_read = !matches!(
            fault,
            Some(
                RequestFault::Conflict
                    | RequestFault::Invalid
                    | RequestFault::LostApplied
                    | RequestFault::ServerApplied
            )
        );
        fault.filter(|_| !is_read || possible_for_read)
    }

    /// Delivers the response to a request, and continues the plan of the request. `at` is the index of the request in
    /// `Replica::calls`.
    pub fn deliver_response(&mut self, index: usize, process_number: u64, at: usize) {
        if !self.is_running_or_defer(index, process_number, || SimTask::DeliverResponse {
            replica: index,
            process_number,
            call: at,
        }) {
            return;
        }
        let replica = &mut self.replicas[index];
        let clock = replica.local_time(self.now);
        let request = &mut replica.calls[at];
        let call = request.call.clone();
        let key = call.set.key.clone();
        let Some((response, outcome)) = request.response.take() else { return };
        let Some(decided) = replica.executing.get_mut(&key) else { return };
        if let Response::Set(set) = &response {
            decided.rechecked = Some((set.uid.clone(), set.deleting));
        }
        let done = replica.controller.apply_outcome(&call, outcome, clock);
        let is_executing = replica.controller.is_executing(&key);
        let calls = if is_executing { replica.controller.reconcile(&key, clock).calls } else { Vec::new() };
        self.count_events(&done.events);
        self.continue_execution(index, &key, calls);
    }

    /// Encodes a response of the simulated API server as the outcome that the controller decodes.
    fn encode_response(&self, key: &ObjectKey, call: &Call, response: &Response) -> Outcome {
        let object = |kind: Kind, key: &ObjectKey| Outcome::Done(self.server.object_json(kind, key).to_vec());
        let body: Value = match (response, call) {
            (Response::Refused(error), _) => return Outcome::Refused(error.clone()),
            (Response::Set(_), _) => return object(Kind::Sets, key),
            (Response::Revision(_), Call::ReadRevision { name }) => {
                return object(Kind::Revisions, &ObjectKey::new(key.namespace.clone(), name.clone()));
            }
            (Response::Wrote { name, resource_version }, _) => {
                json!({"metadata": {"name": name, "resourceVersion": resource_version.to_string()}})
            }
            (Response::Pods(pods), _) => {
                let pods = pods.iter().map(|(uid, resource_version, is_deleting)| {
                    let deletion = is_deleting.then_some("1970-01-01T00:00:00Z");
                    let version = resource_version.to_string();
                    json!({"metadata": {"uid": uid, "resourceVersion": version, "deletionTimestamp": deletion}})
                });
                json!({"items": pods.collect::<Vec<_>>()})
            }
            (Response::Deleted | Response::Revision(_), _) => json!({}),
        };
        Outcome::Done(body.to_string().into_bytes())
    }

    /// Enqueues a set whose scheduled reconcile is due.
    pub fn fire_timer(&mut self, index: usize, process_number: u64, key: &ObjectKey) {
        if !self.is_running_or_defer(index, process_number, || SimTask::FireTimer {
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
            self.wake_worker(index);
        }
    }

    /// Makes a replica renew the Lease if it holds the Lease, and try to acquire it otherwise. A leader that has lost
    /// the Lease, or cannot renew it in time, ends its process. Also schedules the next attempt.
    pub fn renew_lease(&mut self, index: usize, process_number: u64) {
        if !self.is_running_or_defer(index, process_number, || SimTask::RenewLease {
            replica: index,
            process_number,
        }) {
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
            for kind in Kind::ALL {
                self.relist_kind(index, kind, self.server.revision());
            }
            let keys: Vec<ObjectKey> = self.replicas[index].controller.planner().keys().cloned().collect();
            self.replicas[index].queue.extend(keys);
            self.wake_worker(index);
        }
    }

    /// Ends the process of a leader that has lost its Lease. A new process starts later.
    fn stop_leading(&mut self, index: usize) {
        if self.replicas[index].is_leader {
            self.crash_replica(index);
        }
    }

    /// Executes a request on the simulated API server, with the body that the controller would send.
    fn apply_request(&mut self, index: usize, key: &ObjectKey, set: &Set, call: &Call) -> Response {
        let actor = Actor::Controller(index);
        let body = manifest::call_body(set, call, self.settings.binding).unwrap_or_default();
        let namespace = key.namespace.clone();
        let of = |name: &str| ObjectKey::new(namespace.clone(), name);
        let wrote = |world: &Self, kind: Kind, key: &ObjectKey| Response::Wrote {
            name: key.name.clone(),
            resource_version: world.server.resource_version(kind, key),
        };
        let result = match call {
            Call::ReadSet => {
                return self
                    .server
                    .sets
                    .get(key)
                    .map_or(Response::Refused(CallError::NotFound), |it| Response::Set(it.clone()));
            }
            Call::ListPods => {
                let pods = self
                    .server
                    .pods
                    .values()
                    .filter(|it| it.key.namespace == namespace && set.selector.matches(&it.labels));
                return Response::Pods(
                    pods.map(|it| (it.uid.clone(), it.resource_version, it.deleting)).collect(),
                );
            }
            Call::ReadRevision { name } => {
                let key = of(name);
                return match self.server.object(Kind::Revisions, &key) {
                    None => Response::Refused(CallError::NotFound),
                    Some(_) => Response::Revision(self.server.revisions.get(&key).cloned()),
                };
            }
            Call::Claim(Claim::AdoptPod(it) | Claim::ReleasePod(it)) | Call::RelabelPod { pod: it, .. } => {
                self.server.patch(Kind::Pods, &it.key, &body, actor).map(|_| wrote(self, Kind::Pods, &it.key))
            }
            Call::Claim(Claim::AdoptRevision(it) | Claim::ReleaseRevision(it))
            | Call::WriteRevision(
                RevisionWrite::Renumber { revision: it, .. }
                | RevisionWrite::Label { revision: it }
                | RevisionWrite::StoreVerdict { revision: it, .. },
            ) => self
                .server
                .patch(Kind::Revisions, &it.key, &body, actor)
                .map(|_| wrote(self, Kind::Revisions, &it.key)),
            Call::WriteRevision(RevisionWrite::Create { .. }) => {
                self.server.create(Kind::Revisions, body, actor).map(|key| wrote(self, Kind::Revisions, &key))
            }
            Call::CreatePod { .. } => {
                self.server.create(Kind::Pods, body, actor).map(|key| wrote(self, Kind::Pods, &key))
            }
            Call::DeletePod { pod, .. } => {
                let guards = &body["preconditions"];
                let version = guards["resourceVersion"].as_str().and_then(|it| it.parse().ok());
                self.server
                    .delete(Kind::Pods, &pod.key, guards["uid"].as_str(), version, false, actor)
                    .map(|()| Response::Deleted)
            }
            Call::EvictPod { pod, .. } => {
                let guards = &body["deleteOptions"]["preconditions"];
                let version = guards["resourceVersion"].as_str().and_then(|it| it.parse().ok());
                self.server
                    .delete(Kind::Pods, &pod.key, guards["uid"].as_str(), version, false, actor)
                    .map(|()| Response::Deleted)
            }
            Call::DeleteRevision { revision } => {
                let uid = body["preconditions"]["uid"].as_str();
                self.server
                    .delete(Kind::Revisions, &revision.key, uid, None, false, actor)
                    .map(|()| Response::Deleted)
            }
            Call::PutStatus { of, .. } => {
                let written = self.server.put_status(Kind::Sets, &of.key, &body, actor);
                written.map(|_| wrote(self, Kind::Sets, &of.key))
            }
            // Only assist mode applies conditions, and no simulated controller runs in it.
            Call::ApplyConditions { .. } => Err(CallError::Invalid("apply is not simulated".to_owned())),
            Call::WriteRollout(RolloutWrite::Create) => {
                self.server.create(Kind::Rollouts, body, actor).map(|key| wrote(self, Kind::Rollouts, &key))
            }
            Call::WriteRollout(RolloutWrite::PutStatus { record, .. }) => {
                let written = self.server.put_status(Kind::Rollouts, &record.key, &body, actor);
                written.map(|_| wrote(self, Kind::Rollouts, &record.key))
            }
        };
        result.unwrap_or_else(Response::Refused)
    }
}

/// Formats a call for the trace.
fn describe_call(call: &Call) -> String {
    match call {
        Call::ReadSet => "reads the set".to_owned(),
        Call::ListPods => "lists the set's pods".to_owned(),
        Call::ReadRevision { name } => format!("reads revision {name}"),
        Call::Claim(Claim::AdoptPod(it)) => format!("adopts {}", it.key.name),
        Call::Claim(Claim::ReleasePod(it)) => format!("releases {}", it.key.name),
        Call::Claim(Claim::AdoptRevision(it)) => format!("adopts {}", it.key.name),
        Call::Claim(Claim::ReleaseRevision(it)) => format!("releases {}", it.key.name),
        Call::WriteRevision(RevisionWrite::Create { name, number, .. }) => {
            format!("creates revision {name} number {number}")
        }
        Call::WriteRevision(RevisionWrite::Renumber { revision, number }) => {
            format!("renumbers {} to {number}", revision.key.name)
        }
        Call::WriteRevision(RevisionWrite::Label { revision }) => format!("labels {}", revision.key.name),
        Call::RelabelPod { pod, hash } => format!("relabels {} to {hash}", pod.key.name),
        Call::DeletePod { pod, why } => format!("deletes {}: {why}", pod.key.name),
        Call::EvictPod { pod, why } => format!("evicts {}: {why}", pod.key.name),
        Call::WriteRevision(RevisionWrite::StoreVerdict { revision, verdict, reason, .. }) => {
            let verdict = verdict.map_or("none", RevisionVerdict::as_str);
            format!("judges revision {}: {verdict} ({reason})", revision.key.name)
        }
        Call::ApplyConditions { conditions } => format!("applies {} conditions", conditions.len()),
        Call::WriteRollout(RolloutWrite::Create) => "creates the rollout".to_owned(),
        Call::WriteRollout(RolloutWrite::PutStatus { status, .. }) => {
            format!("writes the rollout's status: {status}")
        }
        Call::CreatePod { node, hash, why, .. } => format!("creates a pod of {hash} on {node}: {why}"),
        Call::DeleteRevision { revision } => format!("deletes revision {}", revision.key.name),
        Call::PutStatus { status, .. } => {
            let it = status.counts;
            let conditions: Vec<String> = status
                .conditions
                .iter()
                .map(|it| format!("{}={} {}", it.kind.as_str(), it.status.as_str(), it.reason))
                .collect();
            format!(
                "writes status desired={} current={} ready={} updated={} available={} observed={} {conditions:?}",
                it.desired, it.current, it.ready, it.updated, it.available, status.observed_generation
            )
        }
    }
}

/// Formats a response for the trace.
fn describe_response(outcome: &Response) -> String {
    match outcome {
        Response::Wrote { name, resource_version } => format!("{name} r{resource_version}"),
        Response::Deleted => "deleted".to_owned(),
        Response::Set(it) => {
            format!("r{}{}", it.resource_version, if it.deleting { ", deleting" } else { "" })
        }
        Response::Revision(it) => {
            it.as_ref().map_or_else(|| "another owner's".to_owned(), |it| format!("r{}", it.resource_version))
        }
        Response::Pods(pods) => format!("{} pods", pods.len()),
        Response::Refused(refusal) => format!("rejected: {refusal}"),
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
                self.wake_worker(index);
            }
        }
    }

    /// Switches the scheduler on if `runs` is true, and off otherwise.
    pub fn set_scheduler_enabled(&mut self, runs: bool) {
        self.scheduler_runs = runs;
    }
}
