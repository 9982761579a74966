//! The task that batches commits into transactions, applies the events of the watch, and answers callers.
//!
//! One task owns all state, so the only locks are those of the published store and of the statistics. The task waits
//! for commands of the server, responses of etcd, events of the watch, the interval at which overdue callers are
//! answered, and the interval of the consistency check.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use muster_store::{
    Commit, CommitConflict, CommitError, CommitEvent, Fence, FollowerStatistics, HistoryWindow, KeyChange,
    LogError, OnCommitted, OnFailure, OnReadBarrier, Precondition, PublishedStore, ReadBarrierError,
    Revision, StoreLimits, StoredObject,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use crate::allocation_pool::AllocationPools;
use crate::api::{EtcdApi, EtcdError, WatchStream};
use crate::batch::{
    Batch, BatchBuilder, BatchUsage, QueuedCommit, check_preconditions, expected_revisions, fence_bound,
    needs_quota, written_keys,
};
use crate::cluster_state::{self, FollowedCluster};
use crate::compaction::Compaction;
use crate::consistency::{Differences, PublishedRevisions};
use crate::keyspace::{Keyspace, POSITION_MAX};
use crate::lane::{self, Lane, LaneOutcome};
use crate::load::{self, LoadError, LoadedObjects};
use crate::object_value::ObjectCodec;
use crate::proto::event::EventType;
use crate::proto::{Event, RangeRequest, TxnResponse, WatchCreateRequest, WatchResponse};

/// Number of lanes, and so the maximum number of transactions in progress. While one waits for etcd's fsync, the next
/// one is collected.
const LANES: usize = 2;

/// Time after which a commit or a read barrier fails if etcd does not respond. It begins when the commit or the barrier
/// is submitted. For a commit it covers the wait in the queue, all attempts of the transaction and the wait for its
/// events. Together with [`TIMEOUT_CHECK_INTERVAL`] it is below the 5 s that docs/high-availability.md promises.
/// Upstream: a request of kube-apiserver to etcd has no deadline of its own, so it waits for the deadline of the
/// client's request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(4);

/// Minimum time that a transaction has for its attempts. A commit with less time left is not sent any more, because its
/// outcome, and that of the other commits in the transaction, would more often be unknown.
const TRANSACTION_TIME_MIN: Duration = Duration::from_millis(500);

/// Number of times that the transaction of a commit may be refused because of other commits in it. After that, the
/// commit gets a transaction of its own.
const ALONE_AFTER_REFUSALS: u32 = 2;

/// Delay after a failed attempt to open the watch, and before a watch that etcd has ended is opened again.
const WATCH_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Time without a read barrier after which the driver starts one itself, to check that the watch delivers events.
const WATCH_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Time without an event after which the watch is replaced by another one, if callers have waited in vain for events. A
/// watch that delivers other events still catches up, and is not replaced.
const WATCH_SILENCE_MAX: Duration = Duration::from_secs(2);

/// Delay after a failed reload of all objects, before the next attempt.
const RELOAD_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Minimum time between two reloads. A reload reads the whole cluster, so a fault that comes back must not load etcd
/// without a pause.
const RELOAD_INTERVAL_MIN: Duration = Duration::from_secs(10);

/// Interval of the comparison of all objects with those in etcd. Upstream: `ConsistencyCheckPeriod`.
const CONSISTENCY_CHECK_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Interval at which the driver checks for commits and read barriers that have waited too long, and answers them.
const TIMEOUT_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// A request of the server to the driver.
pub(crate) enum Command {
    /// Make a commit, and call the callback with its result.
    Commit(Box<Commit>, OnCommitted),
    /// Pass a read barrier, and call the callback.
    ReadBarrier(OnReadBarrier),
    /// Pass a read barrier, raise the published revision to this one if etcd has reached it, and call the callback.
    ReadBarrierAt(Revision, OnReadBarrier),
    /// Drop the history up to this revision, in memory and in etcd.
    Compact(Revision, Option<Fence>),
    /// Complete the queued commits and end.
    Close,
}

/// What the driver needs to run.
pub(crate) struct DriverConfig<A> {
    pub(crate) api: Arc<A>,
    pub(crate) keys: Keyspace,
    pub(crate) codec: ObjectCodec,
    /// Random ID of this server process. It is a part of the keys of the server's lanes.
    pub(crate) server_id: String,
    pub(crate) published: Arc<PublishedStore>,
    pub(crate) window: HistoryWindow,
    pub(crate) limits: StoreLimits,
    /// Number of commits that were submitted and not answered.
    pub(crate) queued: Arc<AtomicUsize>,
    pub(crate) statistics: Arc<Mutex<FollowerStatistics>>,
    pub(crate) on_failure: OnFailure,
    /// The etcd revision up to which `published` has all events.
    pub(crate) revision: i64,
    /// The etcd revision of the last write of `m/source` when the objects were loaded. 0 if the key did not exist.
    pub(crate) source_revision: i64,
}

/// The task that batches commits into transactions, follows the watch and answers callers.
struct Driver<A> {
    api: Arc<A>,
    keys: Keyspace,
    codec: ObjectCodec,
    published: Arc<PublishedStore>,
    window: HistoryWindow,
    limits: StoreLimits,
    queued: Arc<AtomicUsize>,
    statistics: Arc<Mutex<FollowerStatistics>>,
    source_revision: i64,
    /// Commits that wait for a transaction.
    queue: VecDeque<QueuedCommit>,
    lanes: Vec<LaneState>,
    lane_keys: Vec<Bytes>,
    /// The key that is written together with the deletion of the lanes of other servers, see
    /// [`lane::delete_stale_lanes`].
    lane_marker: Bytes,
    /// Store keys that transactions in progress write.
    keys_in_progress: HashSet<String>,
    pools: AllocationPools,
    /// Where the next events come from.
    source: EventSource,
    /// The time at which the watch was opened, or at which its last event was published.
    watch_active_at: Instant,
    /// Whether the last attempt to open the watch has failed.
    is_watch_failing: bool,
    /// The etcd revision up to which all events are published.
    applied: i64,
    /// The etcd revision at which all objects were last loaded. Earlier events are not known, except those in
    /// `own_events`.
    reloaded: i64,
    /// The time of the last reload. `None` if all objects were loaded only at the start.
    reloaded_at: Option<Instant>,
    /// The published events of this server's own transactions that may still be needed to answer their commits, by etcd
    /// revision.
    own_events: BTreeMap<i64, Vec<Arc<CommitEvent>>>,
    /// Callers that are answered when all events up to an etcd revision are published, by that revision.
    waiting: BTreeMap<i64, Vec<WaitingCallers>>,
    /// Callers that wait for the next read barrier, each with the time of its call.
    barriers: Vec<BarrierCaller>,
    /// Callers of the read barrier in progress, each with the time of its call. `None` if no barrier is in progress.
    barriers_in_progress: Option<Vec<BarrierCaller>>,
    /// The time at which the last read barrier began.
    last_barrier: Instant,
    /// Calls of etcd in progress: transactions, checks of lanes, read barriers, compactions and comparisons.
    operations: FuturesUnordered<BoxFuture<'static, Completion>>,
    /// Events of a watch response whose last fragments have not arrived yet.
    fragments: Vec<Event>,
    /// Whether the published objects are being compared with those in etcd.
    is_checking: bool,
    is_closing: bool,
}

/// The state of a lane.
enum LaneState {
    /// No transaction is in progress.
    Free(Lane),
    /// A transaction with these commits is in progress. It is applied after the etcd revision `after`, if at all.
    Busy { commits: Vec<QueuedCommit>, after: i64 },
    /// A transaction had no response. Until the lane has moved on, the transaction may still be applied.
    Blocked,
}

/// Where the driver gets events from.
enum EventSource {
    /// The watch is being opened.
    Opening(BoxFuture<'static, Result<WatchStream, EtcdError>>),
    Watch(WatchStream),
    /// All objects are being loaded again, because the watch cannot go on from the published revision.
    Reload(BoxFuture<'static, Result<LoadedObjects, LoadError>>),
}

/// What comes from an [`EventSource`].
enum SourceOutput {
    Opened(Result<WatchStream, EtcdError>),
    /// The next response of the watch, or `None` if the watch has ended.
    Response(Option<Result<WatchResponse, EtcdError>>),
    Reloaded(Result<LoadedObjects, LoadError>),
}

/// Why events cannot be published.
enum EventError {
    /// The published objects are not those of etcd, because events were lost. They must be loaded again.
    Lost { why: String },
    /// This server cannot go on.
    Fatal(LogError),
}

/// Callers that are answered when all events up to an etcd revision are published.
enum WaitingCallers {
    /// The commits of an applied transaction, in the order of their operations. Some of them may be answered already.
    Applied { commits: Vec<QueuedCommit> },
    /// A commit that etcd refused, because one of its preconditions does not hold.
    Refused { commit: Box<QueuedCommit>, error: CommitError },
    /// A commit that is queued again then: etcd refused it because of a change that this server has not published, but
    /// the commit does not depend on the changed state.
    Retry { commit: Box<QueuedCommit> },
    /// A caller of the read barrier.
    Barrier(BarrierCaller),
}

/// A caller of the read barrier.
struct BarrierCaller {
    /// The time after which the caller is answered with an error.
    deadline: Instant,
    /// The revision to which the published revision is raised before the caller is answered, if etcd has reached it. 0
    /// if the caller needs no revision.
    revision: Revision,
    done: OnReadBarrier,
}

/// The result of an operation of [`Driver::operations`].
enum Completion {
    /// A transaction has ended in the lane with the index `number`. `used` is the lane as [`Lane::execute`] returns it.
    /// `pools` are the allocation pools that the transaction writes.
    Transaction { number: usize, used: Lane, pools: BTreeMap<&'static str, i64>, outcome: LaneOutcome },
    /// A lane whose last transaction had no response can be used again. `number` is its index.
    LaneFree { lane: Lane, number: usize },
    /// The read of a read barrier has ended.
    Barrier(Result<BarrierRead, EtcdError>),
    /// The history in etcd was compacted.
    Compacted(Result<(), EtcdError>),
    /// The objects that were published at this etcd revision were compared with those in etcd.
    Checked { revision: i64, result: Result<Differences, EtcdError> },
}

/// The result of the linearizable read with which a read barrier begins.
struct BarrierRead {
    /// The highest etcd revision of all lanes, which is at least the revision of the last write of an object. 0 if
    /// there is no lane.
    last_write: i64,
    /// The etcd revision at the time of the read.
    current: i64,
    /// The etcd revision that this server had published when the read began.
    applied_before: i64,
}

/// Runs until the backend is closed, or until the published store can no longer follow etcd. In the second case it
/// calls `on_failure`.
pub(crate) async fn run<A: EtcdApi>(config: DriverConfig<A>, mut commands: mpsc::UnboundedReceiver<Command>) {
    let DriverConfig {
        api,
        keys,
        codec,
        server_id,
        published,
        window,
        limits,
        queued,
        statistics,
        on_failure,
        revision,
        source_revision,
    } = config;
    let lane_keys: Vec<Bytes> = (0..LANES).map(|it| keys.lane(&server_id, it)).collect();
    let lane_marker = keys.lane(&server_id, LANES);
    let mut driver = Driver {
        source: open_watch(&api, &keys, revision, Duration::ZERO),
        api,
        keys,
        codec,
        published,
        window,
        limits,
        queued,
        statistics,
        source_revision,
        queue: VecDeque::new(),
        lanes: lane_keys
            .iter()
            .map(|key| LaneState::Free(Lane { key: key.clone(), revision: 0, transactions: 0 }))
            .collect(),
        lane_keys,
        lane_marker,
        keys_in_progress: HashSet::new(),
        pools: AllocationPools::default(),
        watch_active_at: Instant::now(),
        is_watch_failing: false,
        applied: revision,
        reloaded: revision,
        reloaded_at: None,
        own_events: BTreeMap::new(),
        waiting: BTreeMap::new(),
        barriers: Vec::new(),
        barriers_in_progress: None,
        last_barrier: Instant::now(),
        operations: FuturesUnordered::new(),
        fragments: Vec::new(),
        is_checking: false,
        is_closing: false,
    };
    // After a panic the process must end too: without the driver no request can be answered.
    let ended = AssertUnwindSafe(driver.follow(&mut commands)).catch_unwind().await;
    let failure = ended.unwrap_or_else(|_| {
        Some(LogError::Remote { why: "the storage backend panicked, see the log".to_owned() })
    });
    // Later commands are refused by the channel.
    commands.close();
    while let Ok(command) = commands.try_recv() {
        driver.handle_command(command);
    }
    driver.fail_all(failure.as_ref());
    if let Some(error) = failure {
        on_failure(&error);
    }
}

impl<A: EtcdApi> Driver<A> {
    /// Handles commands, responses and events. Returns `None` after the backend was closed. Returns the error if this
    /// server can no longer follow etcd.
    async fn follow(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> Option<LogError> {
        let mut timeouts = tokio::time::interval(TIMEOUT_CHECK_INTERVAL);
        timeouts.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let first_check = Instant::now() + CONSISTENCY_CHECK_INTERVAL;
        let mut checks = tokio::time::interval_at(first_check, CONSISTENCY_CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut has_commands = true;
        loop {
            if !has_commands && self.queued.load(Ordering::Acquire) == 0 {
                return None;
            }
            tokio::select! {
                command = commands.recv(), if has_commands => match command {
                    Some(command) => {
                        self.handle_command(command);
                        // Commits that were submitted together share a transaction.
                        while let Ok(command) = commands.try_recv() {
                            self.handle_command(command);
                        }
                        if self.is_closing {
                            // Commands that were submitted before this are still received.
                            commands.close();
                        }
                    }
                    None => has_commands = false,
                },
                Some(completion) = self.operations.next() => {
                    if let Err(error) = self.handle_completion(completion) {
                        return Some(error);
                    }
                }
                output = self.source.next() => {
                    if let Err(error) = self.handle_source(output) {
                        return Some(error);
                    }
                }
                _ = timeouts.tick() => {
                    self.check_watch();
                    if self.fail_overdue() {
                        self.replace_silent_watch();
                    }
                }
                _ = checks.tick() => self.start_check(),
            }
            self.start_transactions();
            self.start_barrier();
        }
    }

    /// Queues a commit or a read barrier, starts a compaction, or records that the backend is closing.
    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Commit(commit, done) => {
                let (done, deadline) = (Some(done), Instant::now() + RESPONSE_TIMEOUT);
                self.queue.push_back(QueuedCommit { commit: *commit, done, deadline, refusals: 0 });
            }
            Command::ReadBarrier(done) => self.barriers.push(BarrierCaller::new(0, done)),
            Command::ReadBarrierAt(revision, done) => self.barriers.push(BarrierCaller::new(revision, done)),
            Command::Compact(revision, fence) => {
                self.published.compact(revision, |_| ());
                let (api, keys) = (self.api.clone(), self.keys.clone());
                let compaction = Compaction {
                    revision: self.keys.etcd_revision(revision),
                    fence: fence_bound(&self.keys, fence.as_ref()),
                    lane_marker: self.lane_marker.clone(),
                };
                self.operations
                    .push(Box::pin(async move { Completion::Compacted(compaction.run(&*api, &keys).await) }));
            }
            Command::Close => self.is_closing = true,
        }
    }

    /// Handles the result of an operation. Fails if this server can no longer follow etcd.
    fn handle_completion(&mut self, completion: Completion) -> Result<(), LogError> {
        match completion {
            Completion::Transaction { number, used, pools, outcome } => {
                let applied = match outcome {
                    LaneOutcome::Applied { revision } => Some(revision),
                    _ => None,
                };
                self.pools.end(&pools, applied);
                self.handle_transaction_outcome(number, used, outcome);
            }
            Completion::LaneFree { lane, number } => self.lanes[number] = LaneState::Free(lane),
            Completion::Barrier(result) => self.handle_barrier(result)?,
            Completion::Compacted(Ok(())) => {}
            Completion::Checked { revision, result } => self.handle_check(revision, result),
            Completion::Compacted(Err(error)) => tracing::warn!(%error, "cannot compact the history in etcd"),
        }
        Ok(())
    }

    // Transactions

    /// Starts a transaction in every free lane, as long as there are commits that can be written now.
    fn start_transactions(&mut self) {
        while !self.queue.is_empty()
            && let Some(number) = self.lanes.iter().position(|it| matches!(it, LaneState::Free(_)))
        {
            let Some(Batch { commits, pools, request }) = self.next_batch() else { return };
            let deadline = commits.iter().map(|it| it.deadline).min().expect("a batch has commits");
            self.pools.begin(&pools);
            self.keys_in_progress.extend(commits.iter().flat_map(|it| written_keys(&it.commit)).cloned());
            let busy = LaneState::Busy { commits, after: self.applied };
            let LaneState::Free(lane) = std::mem::replace(&mut self.lanes[number], busy) else {
                unreachable!("the lane is free");
            };
            let (api, lanes) = (self.api.clone(), self.keys.lanes());
            self.operations.push(Box::pin(async move {
                let (used, outcome) = lane.execute(&*api, &lanes, request, deadline).await;
                Completion::Transaction { number, used, pools, outcome }
            }));
        }
    }

    /// Takes commits from the queue and builds their transaction. Answers commits that the published state already
    /// refuses. Returns `None` if no commit can be written now.
    ///
    /// Rule: commits to one key are written in order. A commit waits as long as a transaction in progress writes its
    /// key, its namespace or its allocation pool, because etcd may apply the transactions of two lanes in any order.
    fn next_batch(&mut self) -> Option<Batch> {
        let published = self.published.clone();
        let store = published.read();
        let mut batch = BatchBuilder::default();
        let mut rest = VecDeque::new();
        let mut refused = Vec::new();
        // Keys of this batch, and of commits that must wait.
        let mut blocked = HashSet::new();
        let mut usage = BatchUsage { bytes: store.usage().total_bytes(), namespaces: HashMap::new() };
        while let Some(queued) = self.queue.pop_front() {
            let commit = &queued.commit;
            let is_blocked = |key: &str| self.keys_in_progress.contains(key) || blocked.contains(key);
            let waits = written_keys(commit).any(|it| is_blocked(it))
                || commit.within.as_ref().is_some_and(|(key, _)| is_blocked(key))
                || commit.allocation.as_ref().is_some_and(|it| self.pools.is_in_progress(it));
            let is_alone = ALONE_AFTER_REFUSALS <= queued.refusals;
            let waits = waits || queued.deadline < Instant::now() + TRANSACTION_TIME_MIN;
            if waits || batch.is_full() || (is_alone && !batch.commits.is_empty()) {
                blocked.extend(written_keys(commit).cloned());
                rest.push_back(queued);
                continue;
            }
            let before = store.get(&commit.key);
            let checked =
                check_preconditions(commit, before, |key| store.get(key)).map_err(CommitError::from);
            let checked = checked.and_then(|()| usage.check(&self.limits, &store, commit, before));
            let bound = commit
                .allocation
                .as_ref()
                .map(|it| Ok((it.pool, self.pools.revision_bound(&self.keys, it)?)));
            let checked = checked.and_then(|()| bound.transpose().map_err(|it: CommitConflict| it.into()));
            let bound = match checked {
                Ok(bound) => bound,
                Err(error) => {
                    refused.push((queued, error));
                    continue;
                }
            };
            blocked.extend(written_keys(commit).cloned());
            if !batch.fits(&self.keys, commit) {
                rest.push_back(queued);
                continue;
            }
            if let Err(refusal) = batch.add(&self.keys, &self.codec, queued, |key| store.get(key)) {
                refused.push(*refusal);
                continue;
            }
            if let Some((pool, bound)) = bound {
                batch.add_pool(pool, bound);
            }
            if is_alone {
                break;
            }
        }
        rest.append(&mut self.queue);
        self.queue = rest;
        drop(store);
        for (queued, error) in refused {
            self.answer(queued, Err(error));
        }
        batch.build(&self.keys, self.source_revision)
    }

    /// Frees the lane of a transaction, or keeps it blocked if the outcome is not known. Answers the commits of the
    /// transaction, lets them wait for their events, or queues them again.
    fn handle_transaction_outcome(&mut self, number: usize, used: Lane, outcome: LaneOutcome) {
        let next = match &outcome {
            LaneOutcome::Applied { revision } => Some(*revision),
            LaneOutcome::Refused { lane_revision, .. } => Some(*lane_revision),
            LaneOutcome::Rejected { .. } => Some(used.revision),
            LaneOutcome::Unknown { .. } => None,
        };
        let state = match next {
            Some(revision) => LaneState::Free(used.moved_to(revision)),
            None => {
                let api = self.api.clone();
                self.operations.push(Box::pin(async move {
                    let revision = used.advance(&*api).await;
                    Completion::LaneFree { lane: used.moved_to(revision), number }
                }));
                LaneState::Blocked
            }
        };
        let LaneState::Busy { commits, .. } = std::mem::replace(&mut self.lanes[number], state) else {
            unreachable!("a transaction was in progress");
        };
        for key in commits.iter().flat_map(|it| written_keys(&it.commit)) {
            self.keys_in_progress.remove(key);
        }
        match outcome {
            LaneOutcome::Applied { revision } => {
                self.wait_until_applied(revision, WaitingCallers::Applied { commits });
            }
            LaneOutcome::Refused { response, .. } => self.handle_refusal(commits, &response),
            LaneOutcome::Rejected { error: EtcdError::Rejected { .. } } if 1 < commits.len() => {
                // One of the commits may be the reason. They are written one by one.
                for it in commits.into_iter().rev() {
                    self.queue.push_front(QueuedCommit { refusals: ALONE_AFTER_REFUSALS, ..it });
                }
            }
            LaneOutcome::Rejected { error: EtcdError::NoSpace } => self.handle_no_space(commits),
            // No member could execute the transaction. Those that have more time are sent again.
            LaneOutcome::Rejected { error } if !error.is_final() => {
                let now = Instant::now();
                for it in commits.into_iter().rev() {
                    match now < it.deadline {
                        true => self.queue.push_front(it),
                        false => self.answer(it, Err(CommitError::Unavailable { why: error.to_string() })),
                    }
                }
            }
            LaneOutcome::Rejected { error } => {
                self.answer_all(commits, &CommitError::Unavailable { why: error.to_string() });
            }
            LaneOutcome::Unknown { error } => {
                self.answer_all(commits, &CommitError::OutcomeUnknown { why: error.to_string() });
            }
        }
    }

    /// Handles a transaction that etcd did not apply because it has no space: answers its commits with an error. If it
    /// had deletes among other commits, queues these deletes again instead, because etcd accepts a transaction that
    /// only deletes.
    fn handle_no_space(&mut self, commits: Vec<QueuedCommit>) {
        let are_deletes = commits.iter().all(|it| !needs_quota(&it.commit));
        for mut it in commits.into_iter().rev() {
            if are_deletes || needs_quota(&it.commit) {
                let why = EtcdError::NoSpace.to_string();
                self.answer(it, Err(CommitError::StorageFull { why }));
                continue;
            }
            it.refusals = ALONE_AFTER_REFUSALS;
            self.queue.push_front(it);
        }
    }

    /// Handles a transaction that etcd refused because a compare failed. Answers the commits whose preconditions do not
    /// hold, after the state that refused them is published. Queues the other commits again. A commit with
    /// [`Precondition::Any`] whose key has changed is queued again too, unless its fence does not hold, but only after
    /// the changed state is published: etcd would refuse it again before.
    fn handle_refusal(&mut self, commits: Vec<QueuedCommit>, response: &TxnResponse) {
        let found: HashMap<Bytes, i64> = (0..response.responses.len())
            .flat_map(|it| lane::found_keys(response, it))
            .map(|it| (it.key.clone(), it.mod_revision))
            .collect();
        let last_write = lane::last_write_revision(response);
        // A restore has begun or ended. This server ends when its watch says so.
        let is_restored = found.contains_key(&self.keys.restoring_key())
            || found.get(&self.keys.source_key()).copied().unwrap_or(0) != self.source_revision;
        let last_found = found.values().copied().max().unwrap_or(0);
        for mut it in commits.into_iter().rev() {
            let before = self.published.read().get(&it.commit.key).cloned();
            let conflict = expected_revisions(&self.keys, &it.commit, before.as_ref())
                .into_iter()
                .find(|(key, expected)| found.get(key).copied().unwrap_or(0) != *expected);
            let is_allocated = it.commit.allocation.as_ref().is_some_and(|allocation| {
                let written = found.get(&self.keys.allocation_pool(allocation.pool)).copied().unwrap_or(0);
                self.pools.revision_bound(&self.keys, allocation).is_ok_and(|bound| bound < written)
            });
            let is_fenced = fence_bound(&self.keys, it.commit.fence.as_ref())
                .is_some_and(|(key, bound)| bound < found.get(&key).copied().unwrap_or(0));
            let refusal = match conflict {
                _ if is_fenced => Some(CommitConflict::Fenced),
                None if is_allocated => Some(CommitConflict::Allocated),
                _ => None,
            };
            if let Some(refusal) = refusal {
                let (commit, error) = (Box::new(it), refusal.into());
                self.wait_until_applied(last_write, WaitingCallers::Refused { commit, error });
                continue;
            }
            it.refusals += 1;
            match conflict {
                None if !is_restored => self.queue.push_front(it),
                None => self.wait_until_applied(last_found, WaitingCallers::Retry { commit: Box::new(it) }),
                Some(_) if it.commit.expect == Precondition::Any => {
                    self.wait_until_applied(last_found, WaitingCallers::Retry { commit: Box::new(it) });
                }
                // The caller is answered after it can read the state that refused its commit.
                Some((key, _)) => {
                    let error = match found.get(&key) {
                        None => CommitConflict::Missing,
                        Some(at) => {
                            let at = self.keys.resource_version(*at, 0);
                            match it.commit.expect {
                                Precondition::Absent if key == self.keys.object(&it.commit.key) => {
                                    CommitConflict::Exists { at }
                                }
                                _ => CommitConflict::Modified { at },
                            }
                        }
                    };
                    let (commit, error) = (Box::new(it), error.into());
                    self.wait_until_applied(last_write, WaitingCallers::Refused { commit, error });
                }
            }
        }
    }

    /// Answers one commit, unless it was answered already.
    fn answer(&self, mut queued: QueuedCommit, result: Result<Arc<CommitEvent>, CommitError>) {
        answer(&mut queued, &self.queued, result);
    }

    /// Answers commits with the same error.
    fn answer_all(&self, commits: impl IntoIterator<Item = QueuedCommit>, error: &CommitError) {
        commits.into_iter().for_each(|it| self.answer(it, Err(error.clone())));
    }

    // Read barrier

    /// Adds a read barrier without a caller if none was started for [`WATCH_CHECK_INTERVAL`]. If the watch is silent
    /// although another server writes, this barrier is overdue after a while, and the watch is replaced.
    fn check_watch(&mut self) {
        if WATCH_CHECK_INTERVAL <= self.last_barrier.elapsed() {
            self.barriers.push(BarrierCaller::new(0, Box::new(|_| ())));
        }
    }

    /// Starts a read barrier if callers wait for one and none is in progress. Callers that come while a barrier is in
    /// progress share the next one, because the read in progress may be older than their calls.
    fn start_barrier(&mut self) {
        if self.barriers.is_empty() || self.barriers_in_progress.is_some() {
            return;
        }
        self.barriers_in_progress = Some(std::mem::take(&mut self.barriers));
        self.last_barrier = Instant::now();
        let (api, lanes, applied) = (self.api.clone(), self.keys.lanes(), self.applied);
        self.operations.push(Box::pin(async move {
            // A linearizable read of the lanes: every write of an object writes a lane at the same revision.
            let request = RangeRequest {
                key: lanes.start,
                range_end: lanes.end,
                keys_only: true,
                ..RangeRequest::default()
            };
            let read = tokio::time::timeout(RESPONSE_TIMEOUT, api.range(request)).await;
            let read =
                read.unwrap_or_else(|_| Err(EtcdError::NoResponse { why: "the read timed out".to_owned() }));
            Completion::Barrier(read.map(|it| BarrierRead {
                last_write: it.kvs.iter().map(|kv| kv.mod_revision).max().unwrap_or(0),
                current: it.header.map_or(0, |it| it.revision),
                applied_before: applied,
            }))
        }));
    }

    /// Lets the callers of a barrier wait for the last write, or answers them with the error of the read. Fails if etcd
    /// has lost revisions that this server has seen.
    fn handle_barrier(&mut self, result: Result<BarrierRead, EtcdError>) -> Result<(), LogError> {
        if let Ok(read) = &result {
            FollowedCluster { revision: read.applied_before, ..self.followed_cluster() }
                .check_revision(read.current)?;
        }
        let callers = self.barriers_in_progress.take().unwrap_or_default();
        match result {
            Ok(read) => {
                for mut caller in callers {
                    // etcd has not given this revision to a write yet.
                    if read.current < self.keys.etcd_revision(caller.revision) {
                        caller.revision = 0;
                    }
                    self.wait_until_applied(read.last_write, WaitingCallers::Barrier(caller));
                }
            }
            Err(EtcdError::Foreign { why }) => {
                self.barriers.extend(callers);
                return Err(LogError::Remote { why });
            }
            Err(error) => {
                let why = format!("{error}: check etcd");
                for it in callers {
                    (it.done)(Err(ReadBarrierError { why: why.clone() }));
                }
            }
        }
        Ok(())
    }

    // Watch

    /// Opens the watch after the last published revision.
    fn open_watch(&mut self) {
        self.fragments.clear();
        self.watch_active_at = Instant::now();
        self.source = open_watch(&self.api, &self.keys, self.applied, Duration::ZERO);
    }

    /// Opens the watch again after etcd has ended it. Waits for [`WATCH_RETRY_DELAY`] first, because a member without a
    /// leader ends every watch at once.
    fn reopen_watch(&mut self) {
        self.open_watch();
        self.source = open_watch(&self.api, &self.keys, self.applied, WATCH_RETRY_DELAY);
    }

    /// Opens another watch if the current one has delivered nothing for [`WATCH_SILENCE_MAX`]. If etcd has several
    /// members, the new watch is at another member, which may have the events. Does nothing during a reload.
    fn replace_silent_watch(&mut self) {
        let is_reload = matches!(self.source, EventSource::Reload(_));
        if !is_reload && WATCH_SILENCE_MAX <= self.watch_active_at.elapsed() {
            self.open_watch();
        }
    }

    /// Handles an output of the event source. Fails if this server can no longer follow etcd.
    fn handle_source(&mut self, output: SourceOutput) -> Result<(), LogError> {
        match output {
            SourceOutput::Opened(Ok(stream)) => {
                if std::mem::take(&mut self.is_watch_failing) {
                    tracing::info!("watching etcd again");
                }
                self.source = EventSource::Watch(stream);
            }
            SourceOutput::Opened(Err(EtcdError::Compacted))
            | SourceOutput::Response(Some(Err(EtcdError::Compacted))) => self.reload_after_compaction(),
            SourceOutput::Opened(Err(EtcdError::Foreign { why }))
            | SourceOutput::Response(Some(Err(EtcdError::Foreign { why }))) => {
                return Err(LogError::Remote { why });
            }
            SourceOutput::Opened(Err(error)) => {
                // An outage has one line in the log.
                if !std::mem::replace(&mut self.is_watch_failing, true) {
                    tracing::warn!(%error, "cannot watch etcd: retrying until a member responds");
                }
                self.open_watch();
            }
            SourceOutput::Response(Some(Ok(response))) => self.handle_watch_response(response)?,
            SourceOutput::Response(ended) => {
                if let Some(Err(error)) = ended {
                    tracing::warn!(%error, "the watch of etcd ended: opening it again");
                }
                self.reopen_watch();
            }
            SourceOutput::Reloaded(result) => self.handle_reload(result)?,
        }
        Ok(())
    }

    /// Applies the events of a watch response, as far as their transactions are complete. Opens the watch again if etcd
    /// has ended it. Starts a reload if events are missing.
    fn handle_watch_response(&mut self, response: WatchResponse) -> Result<(), LogError> {
        if response.compact_revision != 0 {
            self.reload_after_compaction();
            return Ok(());
        }
        if response.canceled {
            tracing::warn!(reason = response.cancel_reason, "etcd ended the watch: opening it again");
            self.reopen_watch();
            return Ok(());
        }
        self.fragments.extend(response.events);
        // The other events of the last revision may be in the next fragment.
        let complete = match self.fragments.last().filter(|_| response.fragment) {
            Some(last) => {
                let last = revision_of(last);
                self.fragments.partition_point(|it| revision_of(it) < last)
            }
            None => self.fragments.len(),
        };
        let events: Vec<Event> = self.fragments.drain(..complete).collect();
        match self.apply(&events) {
            Ok(()) => Ok(()),
            Err(EventError::Fatal(error)) => Err(error),
            Err(EventError::Lost { why }) => {
                self.reload_after_loss(&why);
                Ok(())
            }
        }
    }

    /// Returns the cluster as this server has seen it.
    fn followed_cluster(&self) -> FollowedCluster {
        FollowedCluster { source_revision: self.source_revision, revision: self.applied }
    }

    /// Publishes the events of a watch response, and answers the callers that waited for them. Fails, and publishes
    /// none of them, if events were lost, if a value cannot be decoded, or if this server may no longer use the
    /// cluster.
    fn apply(&mut self, events: &[Event]) -> Result<(), EventError> {
        let mut published: Vec<Arc<CommitEvent>> = Vec::with_capacity(events.len());
        // The objects after the events of this response, which are not published yet.
        let mut changed: HashMap<Arc<str>, Option<Arc<StoredObject>>> = HashMap::new();
        // The position of the next event of this revision among the objects.
        let mut position = 0;
        let mut revision = self.applied;
        let mut last = self.published.read().revision();
        let mut own = Vec::new();
        for event in events {
            let Some(kv) = &event.kv else { continue };
            if kv.mod_revision <= self.applied {
                // A watch that was opened again may repeat events.
                continue;
            }
            if kv.mod_revision != revision {
                (revision, position) = (kv.mod_revision, 0);
            }
            if self.lane_keys.contains(&kv.key) {
                own.push(revision);
            }
            cluster_state::check_event(&self.keys, event).map_err(EventError::Fatal)?;
            let Some(key) = self.keys.store_key(&kv.key) else { continue };
            let before = match changed.get(key) {
                Some(changed) => changed.clone(),
                None => self.published.read().get(key).cloned(),
            };
            let committed = match event.r#type() {
                EventType::Put => {
                    let (_, object) = load::decode_stored_object(&self.keys, &self.codec, kv)
                        .map_err(|it| EventError::Fatal(LogError::Remote { why: it.to_string() }))?;
                    let StoredObject { value, index, expires_s, modified, .. } = object;
                    CommitEvent::put(modified, key, before, value, index, expires_s)
                }
                EventType::Delete => {
                    let Some(before) = before else {
                        let why = format!("etcd deleted {key}, which this server does not have");
                        return Err(EventError::Lost { why });
                    };
                    let Some(position) = u8::try_from(position).ok().filter(|it| *it <= POSITION_MAX) else {
                        let why =
                            format!("etcd deleted {key} together with more objects than a server deletes");
                        return Err(EventError::Lost { why });
                    };
                    CommitEvent::delete(self.keys.resource_version(revision, position), before)
                }
            };
            if committed.revision <= last {
                let why =
                    format!("the event of {key} has resourceVersion {}, after {last}", committed.revision);
                return Err(EventError::Lost { why });
            }
            last = committed.revision;
            position = u64::from(self.keys.position(last)) + 1;
            let now = match &committed.change {
                KeyChange::Put { now, .. } => Some(now.clone()),
                KeyChange::Delete { .. } => None,
            };
            changed.insert(committed.key.clone(), now);
            published.push(committed);
        }
        if !published.is_empty() {
            self.published.publish(&published, |_| ());
        }
        for own in own {
            let events = published.iter().filter(|it| self.keys.etcd_revision(it.revision) == own);
            self.own_events.insert(own, events.cloned().collect());
        }
        if self.applied < revision {
            self.applied = revision;
            self.watch_active_at = Instant::now();
        }
        self.answer_applied();
        Ok(())
    }

    // Reload

    /// Starts a reload because etcd has dropped events that this server has not seen.
    fn reload_after_compaction(&mut self) {
        tracing::warn!(
            revision = self.applied,
            "etcd has compacted changes that this server has not seen, because it was stopped or cut off for too long: \
             loading all objects again"
        );
        self.reload(|it| it.reloads_after_compaction += 1);
    }

    /// Starts a reload because the watch has not delivered all events.
    fn reload_after_loss(&mut self, why: &str) {
        tracing::error!(why, "the watch of etcd has lost events: loading all objects again");
        self.reload(|it| it.reloads_after_loss += 1);
    }

    /// Starts a reload, unless one is in progress. Until it ends, no events are published. `count` increments the
    /// counter for the reason of the reload.
    fn reload(&mut self, count: impl FnOnce(&mut FollowerStatistics)) {
        if !matches!(self.source, EventSource::Reload(_)) {
            self.update_statistics(count);
            self.reload_at(self.reloaded_at.map(|it| it + RELOAD_INTERVAL_MIN));
        }
    }

    /// Loads all objects again beside the published ones, at the time `begin` or at once.
    fn reload_at(&mut self, begin: Option<Instant>) {
        self.fragments.clear();
        let (api, keys, codec) = (self.api.clone(), self.keys.clone(), self.codec.clone());
        let (window, followed, published) = (self.window, self.followed_cluster(), self.published.clone());
        self.source = EventSource::Reload(Box::pin(async move {
            if let Some(begin) = begin {
                tokio::time::sleep_until(begin).await;
            }
            load::load_again(&*api, keys, &codec, window, followed, &published).await
        }));
    }

    /// Publishes the objects that were loaded again, and opens the watch after their revision. If etcd did not return
    /// the objects, tries again after a delay.
    ///
    /// Rule: the history begins with the reload, because the changes before it are not known one by one. Watches and
    /// paged lists that began before it get 410 Gone, and their clients list again.
    fn handle_reload(&mut self, result: Result<LoadedObjects, LoadError>) -> Result<(), LogError> {
        let loaded = match result {
            Ok(loaded) => loaded,
            Err(LoadError::Etcd { source: EtcdError::Foreign { why } }) => {
                return Err(LogError::Remote { why });
            }
            Err(LoadError::Etcd { source: error }) => {
                tracing::warn!(%error, "cannot load all objects from etcd: retrying");
                self.reload_at(Some(Instant::now() + RELOAD_RETRY_DELAY));
                return Ok(());
            }
            Err(error) => return Err(LogError::Remote { why: error.to_string() }),
        };
        let changed = self.published.replace(loaded.store);
        (self.applied, self.reloaded) = (loaded.revision, loaded.revision);
        self.reloaded_at = Some(Instant::now());
        tracing::warn!(
            revision = loaded.revision,
            changed,
            "loaded all objects again: clients must list again"
        );
        self.open_watch();
        self.answer_applied();
        Ok(())
    }

    /// Changes the statistics with `update`.
    fn update_statistics(&self, update: impl FnOnce(&mut FollowerStatistics)) {
        update(&mut self.statistics.lock().unwrap_or_else(PoisonError::into_inner));
    }

    // Consistency check

    /// Begins to compare the published objects with those in etcd. Does nothing during an earlier comparison or a
    /// reload.
    fn start_check(&mut self) {
        if self.is_checking || matches!(self.source, EventSource::Reload(_)) {
            return;
        }
        self.is_checking = true;
        let published = PublishedRevisions::of(&self.published.read(), &self.keys, self.applied);
        let (api, keys, revision) = (self.api.clone(), self.keys.clone(), self.applied);
        self.operations.push(Box::pin(async move {
            Completion::Checked { revision, result: published.compare(&*api, &keys).await }
        }));
    }

    /// Counts the result of a consistency check, and starts a reload if objects are different. Ignores the check if all
    /// objects were loaded again since it began. `revision` is the etcd revision of the compared objects.
    fn handle_check(&mut self, revision: i64, result: Result<Differences, EtcdError>) {
        self.is_checking = false;
        match result {
            // The objects were loaded again during the check.
            _ if revision < self.reloaded => {}
            Ok(differences) if differences.count == 0 => {
                self.update_statistics(|it| it.checks_passed += 1);
            }
            Ok(Differences { count, keys }) => {
                self.update_statistics(|it| it.checks_failed += 1);
                let keys = keys.join(", ");
                self.reload_after_loss(&format!("{count} objects are different in etcd: {keys}"));
            }
            Err(error) => {
                self.update_statistics(|it| it.checks_with_error += 1);
                tracing::warn!(%error, "cannot compare the objects with those in etcd");
            }
        }
    }

    // Callers that wait for events

    /// Answers the callers when all events up to an etcd revision are published, which may be at once.
    fn wait_until_applied(&mut self, revision: i64, waiting: WaitingCallers) {
        self.waiting.entry(revision).or_default().push(waiting);
        self.answer_applied();
    }

    /// Answers the callers that wait for events that are published now. Removes the events in `own_events` that no
    /// caller can need any more.
    fn answer_applied(&mut self) {
        while let Some(entry) = self.waiting.first_entry().filter(|it| *it.key() <= self.applied) {
            let (revision, callers) = entry.remove_entry();
            for it in callers {
                match it {
                    WaitingCallers::Applied { commits } => self.answer_committed(revision, commits),
                    WaitingCallers::Refused { commit, error } => self.answer(*commit, Err(error)),
                    WaitingCallers::Retry { commit } => self.queue.push_front(*commit),
                    WaitingCallers::Barrier(caller) => {
                        // Between the last write of an object and the revision at the read there is none.
                        self.published.skip_to_revision(caller.revision);
                        (caller.done)(Ok(()));
                    }
                }
            }
        }
        // Transactions without a response, and those whose callers did not wait so long, leave their events behind.
        let waiting = self.waiting.first_key_value().map(|it| *it.0);
        let begun = self.lanes.iter().filter_map(|it| match it {
            LaneState::Busy { after, .. } => Some(after + 1),
            LaneState::Free(_) | LaneState::Blocked => None,
        });
        let oldest = begun.chain(waiting).min().unwrap_or(self.applied + 1);
        self.own_events = self.own_events.split_off(&oldest);
    }

    /// Answers the commits of a transaction that was applied at `revision`. If the published events of this revision
    /// are not those of the commits, the answer is [`CommitError::OutcomeUnknown`]. Then a reload starts too, unless an
    /// earlier reload is the reason for the missing events.
    fn answer_committed(&mut self, revision: i64, commits: Vec<QueuedCommit>) {
        let events = self.own_events.remove(&revision).unwrap_or_default();
        let written = commits.iter().flat_map(|it| written_keys(&it.commit));
        if !written.eq(events.iter().map(|it| &*it.key)) {
            let why = "it was made, but all objects are loaded again".to_owned();
            self.answer_all(commits, &CommitError::OutcomeUnknown { why });
            // The events up to a reload are not known.
            if self.reloaded < revision {
                self.reload_after_loss(&format!(
                    "an own transaction at revision {revision} has other events"
                ));
            }
            return;
        }
        let mut events = events.into_iter();
        for queued in commits {
            let event = events.next().expect("a commit has an event");
            // The events of linked updates follow that of their commit.
            events.by_ref().take(queued.commit.linked.len()).for_each(drop);
            self.answer(queued, Ok(event));
        }
    }

    /// Answers the callers that have waited for longer than [`RESPONSE_TIMEOUT`]. Returns whether one of them waited
    /// for events that the watch has not delivered.
    fn fail_overdue(&mut self) -> bool {
        let now = Instant::now();
        let why = || "etcd did not respond in time: check etcd".to_owned();
        let (overdue, queue): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.queue).into_iter().partition(|it| it.deadline <= now);
        self.queue = queue.into();
        self.answer_all(overdue, &CommitError::Unavailable { why: why() });
        // The callers of the read in progress may have waited for the read before it.
        for callers in self.barriers_in_progress.iter_mut().chain([&mut self.barriers]) {
            for it in callers.extract_if(.., |it| it.deadline <= now) {
                (it.done)(Err(ReadBarrierError { why: why() }));
            }
        }
        let mut lags = false;
        let waiting = std::mem::take(&mut self.waiting);
        for (revision, callers) in waiting {
            for it in callers {
                match it {
                    WaitingCallers::Barrier(caller) if caller.deadline <= now => {
                        lags = true;
                        let why = "the watch of etcd is behind: check etcd".to_owned();
                        (caller.done)(Err(ReadBarrierError { why }));
                    }
                    WaitingCallers::Applied { mut commits } => {
                        let why = "it was made, but the watch of etcd is behind".to_owned();
                        let error = CommitError::OutcomeUnknown { why };
                        lags |= answer_overdue(&mut commits, &self.queued, now, &error);
                        // The others need the events of all commits of the transaction.
                        if commits.iter().any(|it| it.done.is_some()) {
                            let waiting = WaitingCallers::Applied { commits };
                            self.waiting.entry(revision).or_default().push(waiting);
                        }
                    }
                    WaitingCallers::Refused { commit, error } if commit.deadline <= now => {
                        lags = true;
                        self.answer(*commit, Err(error));
                    }
                    WaitingCallers::Retry { commit } if commit.deadline <= now => {
                        lags = true;
                        let why = "the watch of etcd is behind".to_owned();
                        self.answer(*commit, Err(CommitError::Unavailable { why }));
                    }
                    it => self.waiting.entry(revision).or_default().push(it),
                }
            }
        }
        lags
    }

    /// Answers all callers after the driver has ended.
    fn fail_all(&mut self, failure: Option<&LogError>) {
        let why = failure.map_or_else(|| "it was closed".to_owned(), ToString::to_string);
        let waiting = std::mem::take(&mut self.waiting).into_values().flatten();
        let mut commits: Vec<QueuedCommit> = std::mem::take(&mut self.queue).into();
        let mut barriers: Vec<BarrierCaller> = Vec::new();
        for it in std::mem::take(&mut self.lanes) {
            if let LaneState::Busy { commits: in_progress, .. } = it {
                commits.extend(in_progress);
            }
        }
        for it in waiting {
            match it {
                WaitingCallers::Applied { commits: applied } => commits.extend(applied),
                WaitingCallers::Refused { commit, .. } | WaitingCallers::Retry { commit } => {
                    commits.push(*commit);
                }
                WaitingCallers::Barrier(caller) => barriers.push(caller),
            }
        }
        barriers.append(&mut self.barriers);
        barriers.extend(self.barriers_in_progress.take().into_iter().flatten());
        self.answer_all(commits, &CommitError::Failed { why: why.clone() });
        for it in barriers {
            (it.done)(Err(ReadBarrierError { why: why.clone() }));
        }
    }
}

impl BarrierCaller {
    fn new(revision: Revision, done: OnReadBarrier) -> Self {
        Self { deadline: Instant::now() + RESPONSE_TIMEOUT, revision, done }
    }
}

/// Answers a commit, unless it was answered already. `queued` is the number of commits that are not answered.
fn answer(commit: &mut QueuedCommit, queued: &AtomicUsize, result: Result<Arc<CommitEvent>, CommitError>) {
    if let Some(done) = commit.done.take() {
        done(result);
        queued.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answers the commits whose deadline is over with this error. Returns whether there was one that had no answer yet.
fn answer_overdue(
    commits: &mut [QueuedCommit],
    queued: &AtomicUsize,
    now: Instant,
    error: &CommitError,
) -> bool {
    let mut is_any = false;
    for commit in commits.iter_mut().filter(|it| it.done.is_some() && it.deadline <= now) {
        is_any = true;
        answer(commit, queued, Err(error.clone()));
    }
    is_any
}

impl EventSource {
    /// Returns the next output. It must not be called again after [`SourceOutput::Opened`], after
    /// [`SourceOutput::Reloaded`], or after the end of the watch.
    async fn next(&mut self) -> SourceOutput {
        match self {
            Self::Opening(opening) => SourceOutput::Opened(opening.await),
            Self::Watch(stream) => SourceOutput::Response(stream.next().await),
            Self::Reload(reload) => SourceOutput::Reloaded(reload.await),
        }
    }
}

/// Returns a source that waits for `delay`, and then opens a watch of all keys for the events after the etcd revision
/// `after`. If the watch cannot be opened, the source returns the error only after [`WATCH_RETRY_DELAY`].
fn open_watch<A: EtcdApi>(api: &Arc<A>, keys: &Keyspace, after: i64, delay: Duration) -> EventSource {
    let api = api.clone();
    let range = keys.all();
    let request = WatchCreateRequest {
        key: range.start,
        range_end: range.end,
        start_revision: after + 1,
        // Values may be larger in total than a message.
        fragment: true,
        ..WatchCreateRequest::default()
    };
    EventSource::Opening(Box::pin(async move {
        tokio::time::sleep(delay).await;
        let opened = api.watch(request).await;
        if opened.is_err() {
            tokio::time::sleep(WATCH_RETRY_DELAY).await;
        }
        opened
    }))
}

/// Returns the etcd revision of an event.
fn revision_of(event: &Event) -> i64 {
    event.kv.as_ref().map_or(0, |it| it.mod_revision)
}
