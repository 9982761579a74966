//! The task that batches commits into transactions, applies the events of the watch, and answers callers.
//!
//! One task owns all state, so the only locks are those of the published store and of the statistics. The task waits
//! for commands of the server, responses of etcd, events of the watch, and two timers: one to answer overdue callers,
//! and one for the consistency check.

mod read_barrier;
mod reload;
mod transactions;
mod waiting_callers;
mod watch;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use muster_store::{
    Commit, CommitError, CommitEvent, Fence, HistoryWindow, LogError, OnCommitted, OnFailure, OnReadBarrier,
    PublishedStore, Revision, StoreLimits, SyncStatistics,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use self::read_barrier::{BarrierCaller, BarrierRead};
use self::transactions::LaneState;
use self::waiting_callers::WaitingCallers;
use self::watch::{EventSource, open_watch};
use crate::allocation_pool::AllocationPools;
use crate::api::{EtcdApi, EtcdError};
use crate::batch::{QueuedCommit, fence_bound};
use crate::compaction::Compaction;
use crate::consistency::Differences;
use crate::keyspace::Keyspace;
use crate::lane::{Lane, LaneOutcome};
use crate::object_value::ObjectCodec;
use crate::proto::Event;

/// Number of [lanes](crate::lane) of this server. Each lane has at most one transaction in progress, so this is also
/// the maximum number of transactions in progress. While etcd writes one transaction to disk, the next one can already
/// be sent.
const LANES: usize = 2;

/// Time after which a commit or a read barrier fails if etcd does not respond. It begins when the commit or the barrier
/// is submitted. For a commit it covers the wait in the queue, all attempts of the transaction and the wait for its
/// events. Together with [`TIMEOUT_CHECK_INTERVAL`] it is 4.25 s, which is below the 5 s that docs/high-availability.md
/// promises. Upstream: a request of kube-apiserver to etcd has no deadline of its own, so it waits for the deadline of
/// the client's request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(4);

/// Interval of the consistency check, which compares all published objects with those in etcd. Upstream:
/// `ConsistencyCheckPeriod`.
const CONSISTENCY_CHECK_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Interval at which the driver checks for commits and read barriers that have waited too long, and answers them.
const TIMEOUT_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// A request of the server to the driver.
pub(crate) enum Command {
    /// Make a commit, and call the callback with its result.
    Commit(Box<Commit>, OnCommitted),
    /// Wait until all writes are published that etcd had committed before this command, then call the callback. See
    /// [`read_barrier`].
    ReadBarrier(OnReadBarrier),
    /// Do the same as [`Command::ReadBarrier`]. Before the callback, raise the published revision to this revision if
    /// etcd has reached it.
    ReadBarrierAt(Revision, OnReadBarrier),
    /// Drop the history up to this revision, in memory and in etcd. Exception: if the [`Fence`] no longer holds, drop
    /// it in memory only.
    Compact(Revision, Option<Fence>),
    /// Answer the commits that were submitted before, then end.
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
    /// Number of commits that were submitted and are not answered yet.
    pub(crate) queued: Arc<AtomicUsize>,
    pub(crate) statistics: Arc<Mutex<SyncStatistics>>,
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
    statistics: Arc<Mutex<SyncStatistics>>,
    source_revision: i64,
    /// Commits that wait for a transaction.
    queue: VecDeque<QueuedCommit>,
    /// The [lanes](crate::lane) of this server, each with at most one transaction in progress.
    lanes: Vec<LaneState>,
    /// The etcd keys of `lanes`, in the same order. The events of a transaction that writes one of these keys are kept
    /// in `own_events`.
    lane_keys: Vec<Bytes>,
    /// The key that is written together with the deletion of stale lanes, see [`crate::lane::delete_stale_lanes`].
    lane_marker: Bytes,
    /// Store keys that the transactions in progress write.
    keys_in_progress: HashSet<String>,
    pools: AllocationPools,
    /// Where the next events come from.
    source: EventSource,
    /// The time at which the watch was opened, or at which its last event was published.
    watch_active_at: Instant,
    /// Whether the last attempt to open the watch failed.
    is_watch_failing: bool,
    /// The etcd revision up to which all events are published.
    applied: i64,
    /// The etcd revision at which all objects were last loaded. Earlier events are not known, except those in
    /// `own_events`.
    reloaded: i64,
    /// The time of the last reload. `None` if all objects were loaded only at the start.
    reloaded_at: Option<Instant>,
    /// The published events of this server's own transactions, by etcd revision. They are kept as long as they may be
    /// needed to answer the commits of these transactions.
    own_events: BTreeMap<i64, Vec<Arc<CommitEvent>>>,
    /// Callers that are answered when all events up to an etcd revision are published. The key is this revision.
    waiting: BTreeMap<i64, Vec<WaitingCallers>>,
    /// Callers of the next read barrier, which has not started yet.
    barriers: Vec<BarrierCaller>,
    /// Callers of the read barrier in progress. `None` if no barrier is in progress.
    barriers_in_progress: Option<Vec<BarrierCaller>>,
    /// The time at which the last read barrier started.
    last_barrier: Instant,
    /// Calls to etcd in progress: transactions, requests that move a lane on, read barriers, compactions and
    /// consistency checks.
    operations: FuturesUnordered<BoxFuture<'static, Completion>>,
    /// Events of a watch response of which not all fragments have arrived yet.
    fragments: Vec<Event>,
    /// Whether a consistency check is in progress.
    is_checking: bool,
    is_closing: bool,
}

/// The result of an operation of [`Driver::operations`].
enum Completion {
    /// A transaction has ended in the lane with the index `number`. `used` is the lane as [`Lane::execute`] returns it.
    /// `pools` are the allocation pools that the transaction writes, each with the etcd revision after which the key of
    /// the pool must not have been written.
    Transaction { number: usize, used: Lane, pools: BTreeMap<&'static str, i64>, outcome: LaneOutcome },
    /// The lane with the index `number`, whose last transaction had no response, can be used again. `used` is the lane
    /// as the transaction compared it, and `revision` is the etcd revision of its key now.
    LaneFree { used: Lane, revision: i64, number: usize },
    /// The linearizable read of a read barrier has ended.
    Barrier(Result<BarrierRead, EtcdError>),
    /// The compaction of the history in etcd has ended.
    Compacted(Result<(), EtcdError>),
    /// A consistency check of the objects that were published at this etcd revision has ended.
    Checked { revision: i64, result: Result<Differences, EtcdError> },
}

/// Runs until the backend is closed, or until the published store can no longer follow etcd. Then answers all callers
/// that still wait. Calls `on_failure` if the store can no longer follow etcd.
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
    let lane_keys: Vec<Bytes> = (0..LANES).map(|it| keys.lane_key(&server_id, it)).collect();
    let lane_marker = keys.lane_key(&server_id, LANES);
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
            .map(|key| LaneState::Free(Lane { key: key.clone(), revision: 0, next_number: 0 }))
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
    /// Handles commands, responses and events until the backend is closed and all its commits are answered. Then
    /// returns `None`. Returns an error as soon as this server can no longer follow etcd.
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
                    self.probe_watch();
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

    /// Handles the result of a call to etcd. Fails if this server can no longer follow etcd.
    fn handle_completion(&mut self, completion: Completion) -> Result<(), LogError> {
        match completion {
            Completion::Transaction { number, used, pools, outcome } => {
                let applied = match outcome {
                    LaneOutcome::Applied { revision } => Some(revision),
                    _ => None,
                };
                self.pools.end_transaction(&pools, applied);
                self.handle_transaction_outcome(number, used, outcome);
            }
            Completion::LaneFree { used, revision, number } => self.free_lane(number, used, revision),
            Completion::Barrier(result) => self.handle_barrier(result)?,
            Completion::Compacted(Ok(())) => {}
            Completion::Checked { revision, result } => self.handle_check(revision, result),
            Completion::Compacted(Err(error)) => tracing::warn!(%error, "cannot compact the history in etcd"),
        }
        Ok(())
    }

    /// Answers one commit, unless it was answered already.
    fn answer(&self, mut queued: QueuedCommit, result: Result<Arc<CommitEvent>, CommitError>) {
        answer(&mut queued, &self.queued, result);
    }

    /// Answers all `commits` with the same error.
    fn answer_all(&self, commits: impl IntoIterator<Item = QueuedCommit>, error: &CommitError) {
        commits.into_iter().for_each(|it| self.answer(it, Err(error.clone())));
    }

    /// Changes the statistics with `update`.
    fn update_statistics(&self, update: impl FnOnce(&mut SyncStatistics)) {
        update(&mut self.statistics.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Answers a commit and decrements `queued`, the number of commits that are not answered yet. Does nothing if the
/// commit was answered already.
fn answer(commit: &mut QueuedCommit, queued: &AtomicUsize, result: Result<Arc<CommitEvent>, CommitError>) {
    if let Some(done) = commit.done.take() {
        done(result);
        queued.fetch_sub(1, Ordering::AcqRel);
    }
}
