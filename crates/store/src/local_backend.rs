//! The storage backend of a single server: a queue, one writer thread and a [`Log`].
//!
//! The writer takes the queued commits, up to [`BATCH_COMMITS_MAX`], as one batch. It checks each commit against the
//! store and the earlier commits of the batch, and assigns the next revision. Then the log makes the batch durable.
//! After that the batch is published, watches are notified, and the callers get their results.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::backend::{
    Backend, Commit, CommitError, CommitWrite, DbOptions, Fence, OnCommitted, OnFailure, OnReadBarrier,
    PublishedStore,
};
use crate::usage::{namespace_of, object_bytes};
use crate::{
    CommitConflict, CommitEvent, Compaction, HistoryWindow, KeyChange, Log, LogError, LogRow, Precondition,
    Revision, Store, StoreLimits, StoredObject, WriteClass,
};

/// Maximum number of commits in one batch. The commits of a batch share one fsync.
const BATCH_COMMITS_MAX: usize = 512;

/// Maximum number of commits that one transaction removes from the history of the log on a full disk, because a larger
/// transaction might not fit on the disk.
const COMPACTION_COMMITS_MAX: usize = 256;

/// Maximum number of bytes by which a commit of [`WriteClass::System`] may grow an object on a full disk. This is
/// enough for a longer number or one more condition in a status.
const SYSTEM_GROWTH_BYTES_MAX: isize = 1024;

/// The storage backend of a single server. After it is dropped, the writer thread writes the queued commits and ends.
pub(crate) struct LocalBackend(Arc<BackendState>);

/// State that [`LocalBackend`] and the writer thread share.
struct BackendState {
    /// The store from which readers read.
    published: Arc<PublishedStore>,
    /// The commits that wait for the writer thread.
    queue: Mutex<CommitQueue>,
    /// Maximum number of commits in `queue`.
    queue_max: usize,
    /// Wakes the writer thread when a commit is queued or the backend is closed.
    queued: Condvar,
    /// Notifies callers of [`Backend::close`] that the writer thread has ended.
    ended: Condvar,
    /// Commits that were removed from the history in memory, but not yet from the history of the log, oldest first.
    trimmed: Mutex<VecDeque<TrimmedCommit>>,
}

/// The commits that wait for the writer thread.
#[derive(Default)]
struct CommitQueue {
    /// The queued commits with their callbacks, in order.
    waiting: VecDeque<(Commit, OnCommitted)>,
    /// Why the writer thread must end. Set when the backend is closed or has failed; later commits are rejected.
    end: Option<WriterEndReason>,
    /// Whether the writer thread has ended and the log is closed.
    has_ended: bool,
}

/// Why the writer thread ends.
enum WriterEndReason {
    /// The backend was closed.
    Closed,
    /// The log has failed.
    Failed(LogError),
}

/// A commit to remove from the history of the log, usually after it has left the history in memory. To remove it, the
/// log deletes the row of the object that this commit replaced or deleted. If this commit is a deletion, the log also
/// deletes the row of this commit.
#[derive(Clone, Copy)]
struct TrimmedCommit {
    /// Revision of this commit.
    revision: Revision,
    /// Revision of the commit that wrote the object that this commit replaced or deleted. `None` for a create, even if
    /// the key existed before.
    before: Option<Revision>,
    /// Whether this commit deleted the key.
    is_delete: bool,
}

impl LocalBackend {
    /// Loads the store from the log and starts the writer thread. Returns the store to which the backend publishes
    /// commits, and the backend.
    pub(crate) fn open(
        mut log: impl Log + 'static,
        options: DbOptions,
    ) -> Result<(Arc<PublishedStore>, Self), LogError> {
        let DbOptions { window, limits, queue_max, on_commit, on_failure } = options;
        let mut trimmed = VecDeque::new();
        let store = load_store(&mut log, window, &mut trimmed)?;
        let log_compacted_revision = log.compacted_revision()?;
        let published = PublishedStore::new(store, on_commit);
        let shared = Arc::new(BackendState {
            published: published.clone(),
            queue: Mutex::default(),
            queue_max,
            queued: Condvar::new(),
            ended: Condvar::new(),
            trimmed: Mutex::new(trimmed),
        });
        let writer = LogWriter { log: Box::new(log), log_compacted_revision, shared: shared.clone(), limits };
        thread::Builder::new()
            .name("store".into())
            .spawn(move || writer.run(on_failure))
            .map_err(|error| LogError::Writer { why: error.to_string() })?;
        Ok((published, Self(shared)))
    }
}

impl Backend for LocalBackend {
    fn commit(&self, commit: Commit, done: OnCommitted) {
        let shared = &self.0;
        let mut queue = shared.lock_queue();
        let refused = match &queue.end {
            Some(end) => Some(end.to_commit_error()),
            None if shared.queue_max <= queue.waiting.len() => Some(CommitError::QueueFull),
            None => None,
        };
        if let Some(refused) = refused {
            drop(queue);
            return done(Err(refused));
        }
        queue.waiting.push_back((commit, done));
        drop(queue);
        shared.queued.notify_one();
    }

    /// Succeeds immediately: a commit is published before it is acknowledged, and no other server writes.
    fn read_barrier(&self, done: OnReadBarrier) {
        done(Ok(()));
    }

    fn compact(&self, revision: Revision, _: Option<Fence>) {
        self.0.published.compact(revision, |events| self.0.record_trimmed_commits(events));
    }

    fn close(&self) {
        let mut queue = self.0.request_close();
        while !queue.has_ended {
            queue = self.0.ended.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for LocalBackend {
    fn drop(&mut self) {
        drop(self.0.request_close());
    }
}

impl WriterEndReason {
    /// Returns the error for commits that are rejected because the writer thread has ended or is ending.
    fn to_commit_error(&self) -> CommitError {
        let why = match self {
            Self::Closed => "it was closed".to_owned(),
            Self::Failed(error) => error.to_string(),
        };
        CommitError::Failed { why }
    }
}

// Poisoned locks are still used: no panic can leave the queue or the trimmed commits half changed.
impl BackendState {
    fn lock_queue(&self) -> MutexGuard<'_, CommitQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_trimmed_commits(&self) -> MutexGuard<'_, VecDeque<TrimmedCommit>> {
        self.trimmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds commits to the list of trimmed commits: those that were removed from the in-memory history.
    fn record_trimmed_commits(&self, events: &[Arc<CommitEvent>]) {
        self.lock_trimmed_commits().extend(events.iter().map(|it| TrimmedCommit::from_event(it)));
    }

    /// Tells the writer thread to end after the queued commits. Returns the locked queue.
    fn request_close(&self) -> MutexGuard<'_, CommitQueue> {
        let mut queue = self.lock_queue();
        queue.end.get_or_insert(WriterEndReason::Closed);
        self.queued.notify_one();
        queue
    }
}

impl TrimmedCommit {
    /// Describes the commit of an event as a trimmed commit.
    fn from_event(event: &CommitEvent) -> Self {
        Self {
            revision: event.revision,
            before: event.previous_object().map(|it| it.modified),
            is_delete: matches!(event.change, KeyChange::Delete { .. }),
        }
    }
}

impl Compaction {
    /// Returns the compaction that removes the commits from the history of the log, or `None` if there are no commits.
    fn from_commits(commits: impl IntoIterator<Item = TrimmedCommit>) -> Option<Self> {
        let mut compaction = None;
        for it in commits {
            let compaction =
                compaction.get_or_insert_with(|| Self { revision: it.revision, rows: Vec::new() });
            compaction.revision = it.revision;
            compaction.rows.extend(it.before);
            compaction.rows.extend(it.is_delete.then_some(it.revision));
        }
        compaction
    }
}

/// The state of the writer thread, which owns the log.
struct LogWriter {
    log: Box<dyn Log>,
    /// The compacted revision of the log. After the disk was full, it may be above the compacted revision of the store
    /// in memory.
    log_compacted_revision: Revision,
    /// The state that the thread shares with [`LocalBackend`].
    shared: Arc<BackendState>,
    limits: StoreLimits,
}

impl LogWriter {
    /// Writes batches until the backend is closed or the log fails. After a failure, rejects the queued commits and
    /// calls `on_failure`.
    fn run(self, on_failure: OnFailure) {
        // Declared before the writer and so dropped after it: when `close` returns, the log is closed, even after a
        // panic.
        let _ended = EndNotifier(self.shared.clone());
        let mut writer = self;
        let failed = loop {
            let Some(batch) = writer.next_batch() else { break None };
            if let Err(error) = writer.write_batch(batch) {
                break Some(error);
            }
        };
        if let Some(error) = failed {
            let mut queue = writer.shared.lock_queue();
            queue.end = Some(WriterEndReason::Failed(error.clone()));
            let waiting = std::mem::take(&mut queue.waiting);
            drop(queue);
            for (_, done) in waiting {
                done(Err(WriterEndReason::Failed(error.clone()).to_commit_error()));
            }
            on_failure(&error);
        }
    }

    /// Waits for queued commits and returns them as a batch. Returns `None` when the backend is closed and the queue is
    /// empty.
    fn next_batch(&mut self) -> Option<Vec<(Commit, OnCommitted)>> {
        let mut queue = self.shared.lock_queue();
        loop {
            let many = queue.waiting.len().min(BATCH_COMMITS_MAX);
            if 0 < many {
                return Some(queue.waiting.drain(..many).collect());
            }
            if queue.end.is_some() {
                return None;
            }
            queue = self.shared.queued.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes and publishes a batch. Returns an error only if the writer thread must end.
    fn write_batch(&mut self, batch: Vec<(Commit, OnCommitted)>) -> Result<(), LogError> {
        let (mut commits, dones): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let has_write_space = self.ensure_write_space()?;
        let mut outcomes = self.check_batch(&mut commits, |_| true, has_write_space);
        let mut written = self.append_passed_commits(&outcomes);
        // Rule: on a full disk deletes still succeed: they free disk space, and only they may use the reserve.
        let may_retry = |error: &Result<(), LogError>| matches!(error, Err(LogError::DiskFull));
        if may_retry(&written) && self.try_compact_log()? {
            restore_indexes(&mut commits, &outcomes);
            outcomes = self.check_batch(&mut commits, |_| true, has_write_space);
            written = self.append_passed_commits(&outcomes);
        }
        if may_retry(&written) && commits.iter().any(Commit::is_deletion) {
            restore_indexes(&mut commits, &outcomes);
            outcomes = self.check_batch(&mut commits, Commit::is_deletion, false);
            written = self.append_compacted(&outcomes);
            if may_retry(&written) && 1 < commits.len() {
                // A smaller transaction may fit on the disk.
                restore_indexes(&mut commits, &outcomes);
                let mut first: Vec<_> = commits.into_iter().zip(dones).collect();
                let second = first.split_off(first.len() / 2);
                self.write_batch(first)?;
                return self.write_batch(second);
            }
            while may_retry(&written) && self.log.release_reserve() {
                written = self.append_compacted(&outcomes);
            }
        }
        let outcomes = dones.into_iter().zip(outcomes);
        if let Err(error) = written {
            let refusal = match &error {
                LogError::DiskFull => CommitError::DiskFull,
                LogError::Busy { .. } => CommitError::Busy { why: error.to_string() },
                _ => WriterEndReason::Failed(error.clone()).to_commit_error(),
            };
            // Commits with a conflict get this error too: they may conflict with a commit of this batch that was not
            // written.
            outcomes.for_each(|(done, _)| done(Err(refusal.clone())));
            return if error.is_transient() { Ok(()) } else { Err(error) };
        }
        let (dones, outcomes): (Vec<_>, Vec<_>) = outcomes.unzip();
        let events = passed_events(&outcomes);
        if !events.is_empty() {
            self.shared.published.publish(&events, |trimmed| self.shared.record_trimmed_commits(trimmed));
        }
        for (done, outcome) in dones.into_iter().zip(outcomes) {
            done(outcome.map(|it| it.event));
        }
        match self.log.run_maintenance() {
            Err(error) if !error.is_transient() => Err(error),
            _ => Ok(()),
        }
    }

    /// Checks the commits of a batch, and returns the event or error of each commit. Commits for which `may` returns
    /// `false` are rejected with [`CommitError::DiskFull`]. `has_write_space` says whether the disk has space for
    /// writes other than deletes. Moves the selector indexes out of the commits, see [`restore_indexes`].
    fn check_batch(
        &self,
        commits: &mut [Commit],
        may: impl Fn(&Commit) -> bool,
        has_write_space: bool,
    ) -> Vec<Result<CheckedCommit, CommitError>> {
        let store = self.shared.published.read();
        let mut pending = PendingBatch {
            store: &store,
            limits: self.limits,
            has_write_space,
            bytes: store.usage().total_bytes(),
            namespaces: HashMap::new(),
            changed: HashMap::new(),
            revision: store.revision(),
        };
        commits
            .iter_mut()
            .map(|it| if may(it) { pending.check_and_add(it) } else { Err(CommitError::DiskFull) })
            .collect()
    }

    /// Appends the commits that passed [`LogWriter::check_batch`] to the log.
    fn append_passed_commits(
        &mut self,
        outcomes: &[Result<CheckedCommit, CommitError>],
    ) -> Result<(), LogError> {
        let events = passed_events(outcomes);
        if events.is_empty() { Ok(()) } else { self.append_events(&events) }
    }

    /// Appends commits to the log, and removes some trimmed commits from the history of the log.
    fn append_events(&mut self, events: &[Arc<CommitEvent>]) -> Result<(), LogError> {
        // Rows are removed slightly faster than the history grows, so that the log does not lag behind, and in small
        // portions, so that no commit waits long for the compaction.
        let many = 2 * events.len() + 16;
        // On a full disk, commits may have been removed from the log while they were still in the history in memory.
        // They need not be removed again.
        self.advance_log_compaction(self.log_compacted_revision);
        let compaction =
            Compaction::from_commits(self.shared.lock_trimmed_commits().iter().take(many).copied());
        self.log.append(events, compaction.as_ref())?;
        if let Some(compaction) = compaction {
            self.advance_log_compaction(compaction.revision);
        }
        Ok(())
    }

    /// Appends the commits that passed [`LogWriter::check_batch`] to the log, and removes the whole history from the
    /// log. Does nothing if no commit has passed.
    ///
    /// Rule: on a full disk the log contains only the current objects and no history. A delete therefore frees the pages
    /// of its object, and does not write the last value of the object as history. The history in memory stays, and
    /// watches continue. After a restart, a watch from an earlier revision gets 410 Expired.
    fn append_compacted(&mut self, outcomes: &[Result<CheckedCommit, CommitError>]) -> Result<(), LogError> {
        let events = passed_events(outcomes);
        let Some(compaction) =
            Compaction::from_commits(events.iter().map(|it| TrimmedCommit::from_event(it)))
        else {
            return Ok(());
        };
        self.compact_log()?;
        self.log.append(&events, Some(&compaction))?;
        self.advance_log_compaction(compaction.revision);
        Ok(())
    }

    /// Returns whether there is disk space for writes other than deletes. On a full disk, first removes the history
    /// from the log to free space.
    fn ensure_write_space(&mut self) -> Result<bool, LogError> {
        Ok(self.log.ensure_write_space() || self.try_compact_log()? && self.log.ensure_write_space())
    }

    /// Tries to remove the history from the log: all rows except those of the current objects. Returns `false` if no
    /// row was removed, if the disk is full or if the database is locked.
    fn try_compact_log(&mut self) -> Result<bool, LogError> {
        match self.compact_log() {
            Err(error) if error.is_transient() => Ok(false),
            done => done,
        }
    }

    /// Removes the history from the log: all rows except those of the current objects. Returns whether any row was
    /// removed.
    fn compact_log(&mut self) -> Result<bool, LogError> {
        let mut has_removed = false;
        while let Some(compaction) = self.next_log_compaction() {
            self.log.append(&[], Some(&compaction))?;
            self.advance_log_compaction(compaction.revision);
            has_removed |= !compaction.rows.is_empty();
        }
        Ok(has_removed)
    }

    /// Returns the compaction that removes the oldest commits from the history of the log, at most
    /// `COMPACTION_COMMITS_MAX`. These may include commits that are still in the history in memory. Returns `None` if
    /// the log has no history left.
    fn next_log_compaction(&self) -> Option<Compaction> {
        let store = self.shared.published.read();
        let trimmed = self.shared.lock_trimmed_commits();
        let history = store
            .commits_since("", store.compacted_revision())
            .into_iter()
            .flatten()
            .map(|it| TrimmedCommit::from_event(it));
        let commits = trimmed.iter().copied().chain(history);
        Compaction::from_commits(
            commits.skip_while(|it| it.revision <= self.log_compacted_revision).take(COMPACTION_COMMITS_MAX),
        )
    }

    /// Records that the log is compacted to `revision`, and forgets the trimmed commits up to it.
    fn advance_log_compaction(&mut self, revision: Revision) {
        assert!(self.log_compacted_revision <= revision, "the compacted revision of the log never decreases");
        self.log_compacted_revision = revision;
        let mut trimmed = self.shared.lock_trimmed_commits();
        while trimmed.front().is_some_and(|it| it.revision <= revision) {
            trimmed.pop_front();
        }
    }
}

impl LogError {
    /// Whether the error is temporary: nothing was written or lost, and the next write may succeed.
    fn is_transient(&self) -> bool {
        matches!(self, Self::DiskFull | Self::Busy { .. })
    }
}

/// Guard of the writer thread. Dropping it, which also happens after a panic, marks the thread as ended and notifies
/// [`Backend::close`]. Commits that are still queued then are dropped without a call of their callbacks.
struct EndNotifier(Arc<BackendState>);

impl Drop for EndNotifier {
    fn drop(&mut self) {
        let mut queue = self.0.lock_queue();
        if thread::panicking() {
            queue.end = Some(WriterEndReason::Failed(LogError::Writer { why: "it panicked".into() }));
        }
        queue.waiting.clear();
        queue.has_ended = true;
        self.0.ended.notify_all();
    }
}

/// Returns the events of the commits that passed [`LogWriter::check_batch`].
fn passed_events(outcomes: &[Result<CheckedCommit, CommitError>]) -> Vec<Arc<CommitEvent>> {
    let events = outcomes.iter().flatten().flat_map(|it| std::iter::once(&it.event).chain(&it.linked));
    events.cloned().collect()
}

/// Restores the selector indexes that [`LogWriter::check_batch`] moved out of the commits, so that the commits can be
/// checked again.
fn restore_indexes(commits: &mut [Commit], outcomes: &[Result<CheckedCommit, CommitError>]) {
    for (commit, outcome) in commits.iter_mut().zip(outcomes) {
        commit.restore_index(outcome);
    }
}

impl Commit {
    /// Whether the commit deletes an object or sets its deletion timestamp.
    fn is_deletion(&self) -> bool {
        self.class == WriteClass::Deletion || matches!(self.write, CommitWrite::Delete)
    }

    /// Restores the selector indexes that [`PendingBatch::check_and_add`] moved out of the commit.
    fn restore_index(&mut self, outcome: &Result<CheckedCommit, CommitError>) {
        let Ok(checked) = outcome else { return };
        let own = match &mut self.write {
            CommitWrite::Put { index, .. } => Some((index, &checked.event)),
            CommitWrite::Delete => None,
        };
        let linked = self.linked.iter_mut().map(|it| &mut it.index).zip(&checked.linked);
        for (index, event) in own.into_iter().chain(linked) {
            if let KeyChange::Put { now, .. } = &event.change {
                *index = now.index.clone();
            }
        }
    }
}

/// The events of a commit that passed [`LogWriter::check_batch`].
struct CheckedCommit {
    event: Arc<CommitEvent>,
    /// Events of the updates in [`Commit::linked`].
    linked: Vec<Arc<CommitEvent>>,
}

/// Checks the commits of a batch one after the other. Represents the state after the commits that are already checked.
/// These commits are not in the store yet.
struct PendingBatch<'a> {
    /// The store without the commits of this batch.
    store: &'a Store,
    limits: StoreLimits,
    /// Whether the disk has space for writes other than deletes.
    has_write_space: bool,
    /// Total bytes of the store after the checked commits. Not updated if the store has no size limits.
    bytes: usize,
    /// Bytes of each namespace that the checked commits changed, after these commits.
    namespaces: HashMap<Box<str>, usize>,
    /// The objects that the checked commits wrote, by key. The value is `None` for a deleted key.
    changed: HashMap<Arc<str>, Option<Arc<StoredObject>>>,
    /// Revision of the last checked commit, or of the store if no commit has passed its checks yet.
    revision: Revision,
}

impl PendingBatch<'_> {
    /// Checks a commit against its preconditions and the limits, and adds its writes to the batch. Each write, also
    /// those of [`Commit::linked`], gets a revision and an event of its own. Moves the selector indexes of the writes
    /// to the events; [`Commit::restore_index`] moves them back.
    fn check_and_add(&mut self, commit: &mut Commit) -> Result<CheckedCommit, CommitError> {
        if let Some((key, revision)) = &commit.within {
            Precondition::At(*revision).check(self.get(key).as_ref())?;
        }
        for it in &commit.linked {
            Precondition::At(it.at).check(self.get(&it.key).as_ref())?;
        }
        let before = self.get(&commit.key);
        commit.expect.check(before.as_ref())?;
        let revision = self.revision + 1;
        let event = match &mut commit.write {
            CommitWrite::Put { index, expires_s, draft } => {
                let value = draft.with_revision(revision);
                let growth = growth_bytes(&commit.key, value.len(), before.as_deref());
                self.check_limits(&commit.key, commit.class, growth)?;
                CommitEvent::put(revision, &commit.key, before, value, std::mem::take(index), *expires_s)
            }
            CommitWrite::Delete => CommitEvent::delete(revision, before.ok_or(CommitConflict::Missing)?),
        };
        self.add(&event);
        let linked = commit.linked.iter_mut().map(|it| {
            let (revision, before) = (self.revision + 1, self.get(&it.key));
            let expires_s = before.as_ref().and_then(|it| it.expires_s);
            let (value, index) = (it.draft.with_revision(revision), std::mem::take(&mut it.index));
            let event = CommitEvent::put(revision, &it.key, before, value, index, expires_s);
            self.add(&event);
            event
        });
        Ok(CheckedCommit { linked: linked.collect(), event })
    }

    /// Adds an event to the state after the checked commits.
    fn add(&mut self, event: &CommitEvent) {
        self.revision = event.revision;
        let now = match &event.change {
            KeyChange::Put { now, .. } => Some(now.clone()),
            KeyChange::Delete { .. } => None,
        };
        self.update_usage(&event.key, now.as_deref(), event.previous_object());
        self.changed.insert(event.key.clone(), now);
    }

    /// Checks the growth of an object against the free disk space and the size limits. On a full disk, only deletions
    /// and small writes of [`WriteClass::System`] may grow an object.
    fn check_limits(&self, key: &str, class: WriteClass, growth: isize) -> Result<(), CommitError> {
        let is_small = class == WriteClass::System && growth <= SYSTEM_GROWTH_BYTES_MAX;
        if 0 < growth && !self.has_write_space && !is_small && class != WriteClass::Deletion {
            return Err(CommitError::DiskFull);
        }
        if self.limits == StoreLimits::UNLIMITED {
            return Ok(());
        }
        let namespace = namespace_of(key).map(|it| (it, self.namespace_bytes(it)));
        Ok(self.limits.check_growth(class, growth, self.bytes, namespace)?)
    }

    /// Updates `bytes` and `namespaces` for a commit that was checked and is not written yet. Does nothing if the
    /// store has no size limits.
    fn update_usage(&mut self, key: &str, now: Option<&StoredObject>, before: Option<&Arc<StoredObject>>) {
        if self.limits == StoreLimits::UNLIMITED {
            return;
        }
        let (more, less) = (now.map_or(0, object_bytes), before.map_or(0, |it| object_bytes(it)));
        self.bytes = self.bytes + more - less;
        if let Some(namespace) = namespace_of(key) {
            let bytes = self.namespace_bytes(namespace) + more - less;
            self.namespaces.insert(namespace.into(), bytes);
        }
    }

    /// Returns the size of the namespace in bytes after the checked commits.
    fn namespace_bytes(&self, namespace: &str) -> usize {
        let pending = self.namespaces.get(namespace).copied();
        pending.unwrap_or_else(|| self.store.usage().namespace_bytes(namespace))
    }

    /// Returns the object of the key after the checked commits, or `None` if the key does not exist.
    fn get(&self, key: &str) -> Option<Arc<StoredObject>> {
        match self.changed.get(key) {
            Some(pending) => pending.clone(),
            None => self.store.get(key).cloned(),
        }
    }
}

/// Returns the number of bytes by which a write grows its object. The number is negative if the object becomes smaller.
fn growth_bytes(key: &str, value_bytes: usize, before: Option<&StoredObject>) -> isize {
    let (now, before) = (key.len() + value_bytes, before.map_or(0, object_bytes));
    isize::try_from(now).unwrap_or(isize::MAX) - isize::try_from(before).unwrap_or(isize::MAX)
}

/// Reads and verifies the whole log, and returns its last revision.
pub(crate) fn verify_log(log: &mut dyn Log) -> Result<Revision, LogError> {
    Ok(load_objects(log)?.revision())
}

/// Reads and verifies the whole log, and returns its objects without history.
pub(crate) fn load_objects(log: &mut dyn Log) -> Result<Store, LogError> {
    load_store(log, HistoryWindow { events_max: 0, bytes_max: 0 }, &mut VecDeque::new())
}

/// Loads the store from the log. The history contains at most as many commits as `window` allows. Older commits are
/// added to `trimmed`.
///
/// Fails if rows contradict each other, because this is damage that the log did not detect. The writer numbers commits
/// without gaps, so a gap after the compacted revision means a lost row.
fn load_store(
    log: &mut dyn Log,
    window: HistoryWindow,
    trimmed: &mut VecDeque<TrimmedCommit>,
) -> Result<Store, LogError> {
    let compacted_revision = log.compacted_revision()?;
    let mut store = Store::empty_after(compacted_revision, window);
    log.load(&mut |row| {
        let before = store.get(&row.key).cloned();
        let LogRow { revision, key, is_delete, created, expires_s, index, value } = row;
        let damaged = |why: &str| Err(format!("{why}, at revision {revision}"));
        if revision <= compacted_revision {
            if is_delete || before.is_some() {
                return damaged("a commit before the compacted revision was not removed");
            }
            store.restore_object(StoredObject { key, value, index, created, modified: revision, expires_s });
            return Ok(());
        }
        if revision != store.revision() + 1 {
            return damaged("the commit before this one is missing");
        }
        if created != before.as_ref().map_or(revision, |it| it.created) {
            return damaged("an older commit to the same key is missing");
        }
        store.apply_commit(match (is_delete, before) {
            (false, before) => CommitEvent::put(revision, &key, before, value, index, expires_s),
            (true, Some(before)) => {
                CommitEvent::new(revision, key, KeyChange::Delete { before, last: value })
            }
            (true, None) => return damaged("the deleted key did not exist"),
        });
        store.trim_history(|event| trimmed.push_back(TrimmedCommit::from_event(&event)));
        Ok(())
    })?;
    Ok(store)
}
