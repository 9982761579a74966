//! A store behind a log: one thread writes, everybody reads.
//!
//! A batch goes this way: whatever has gathered in the queue → every commit is checked against the state and
//! against those before it in the batch → revisions are given → the log makes all of it durable at once →
//! it is published → whoever watches is told → whoever wrote is told.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread;

use bytes::Bytes;

use crate::store::written;
use crate::usage::{namespace_of, weight};
use crate::{
    Change, Class, Conflict, Event, Expect, Forget, Index, Limits, Log, LogError, OverLimit, Record,
    Revision, Row, Store, Window,
};

/// Most commits that share one sync: as many clients may wait for one answer of the disk.
const BATCH_MAX: usize = 512;

/// How many commits of its history the log forgets in one transaction on a full disk, where a larger one might find no room.
const COMPACT_MAX: usize = 256;

/// On a full disk, what keeps the cluster running may still grow by this much at a time: a longer number, another condition.
const SMALL_GROWTH: isize = 1024;

/// A handle; clones are the same store. The writer ends when the last one is dropped.
#[derive(Clone)]
pub struct Db(Arc<Handle>);

pub struct Options {
    pub window: Window,
    pub limits: Limits,
    /// Commits that may wait for the writer; more are refused at once.
    pub queue_max: usize,
    /// Called with every batch once it is published, and before its writers are told.
    pub on_commit: OnCommit,
    /// Called once if the log fails: nothing can be written from then on.
    pub on_failure: OnFailure,
}

pub type OnCommit = Box<dyn FnMut(&[Arc<Event>]) + Send>;
pub type OnFailure = Box<dyn FnOnce(&LogError) + Send>;

/// One write, to one key.
#[derive(Debug)]
pub struct Commit {
    pub key: String,
    pub expect: Expect,
    /// Another record that must still be the one that was written at this revision.
    pub within: Option<(String, Revision)>,
    pub class: Class,
    pub write: Write,
}

#[derive(Debug)]
pub enum Write {
    Put { index: Index, expires_s: Option<u64>, make: Make },
    Delete { make: Make },
}

/// Gives the value its revision. The writer's thread calls it, and every other commit waits meanwhile: what
/// takes long is done before. It is called again if the commit was kept from the disk by others in its batch.
pub struct Make(Box<dyn Fn(Revision) -> Bytes + Send>);

impl Make {
    pub fn new(make: impl Fn(Revision) -> Bytes + Send + 'static) -> Self {
        Self(Box::new(make))
    }
}

impl fmt::Debug for Make {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Make")
    }
}

/// Nothing was changed, except perhaps with [`CommitError::Failed`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error(transparent)]
    Conflict(#[from] Conflict),
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    #[error("too many writes wait for the disk already: try again later")]
    Crowded,
    #[error("the disk is full: nothing can be written until there is room again; reads and deletes go on")]
    Full,
    #[error("{why}: try again later")]
    NotNow { why: String },
    #[error("the store has ended: {why}")]
    Failed { why: String },
}

type Done = Box<dyn FnOnce(Result<Arc<Event>, CommitError>) + Send>;

struct Handle(Arc<Shared>);

struct Shared {
    store: RwLock<Store>,
    queue: Mutex<Queue>,
    queue_max: usize,
    /// The writer sleeps here.
    came: Condvar,
    /// Whoever closes the store sleeps here.
    ended: Condvar,
    /// What the history has forgotten and the log has not yet, in order.
    forgotten: Mutex<VecDeque<Forgotten>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Commit, Done)>,
    end: Option<End>,
    has_ended: bool,
}

enum End {
    Closed,
    Failed(LogError),
}

/// A commit that left the history, and the rows that were kept for its sake.
#[derive(Clone, Copy)]
struct Forgotten {
    revision: Revision,
    before: Option<Revision>,
    is_gone: bool,
}

impl Db {
    /// Reads the whole log. It parses no value.
    pub fn open(mut log: impl Log + 'static, options: Options) -> Result<Self, LogError> {
        let mut forgotten = VecDeque::new();
        let store = load(&mut log, options.window, &mut forgotten)?;
        let log_floor = log.floor()?;
        let shared = Arc::new(Shared {
            store: RwLock::new(store),
            queue: Mutex::default(),
            queue_max: options.queue_max,
            came: Condvar::new(),
            ended: Condvar::new(),
            forgotten: Mutex::new(forgotten),
        });
        let writer = Writer {
            log: Box::new(log),
            log_floor,
            shared: shared.clone(),
            limits: options.limits,
            on_commit: options.on_commit,
        };
        let on_failure = options.on_failure;
        thread::Builder::new()
            .name("store".into())
            .spawn(move || writer.run(on_failure))
            .map_err(|error| LogError::Writer { why: error.to_string() })?;
        Ok(Self(Arc::new(Handle(shared))))
    }

    /// Whether a store could be opened on this log.
    pub(crate) fn check(log: &mut dyn Log) -> Result<Store, LogError> {
        load(log, Window { events_max: 0, bytes_max: 0 }, &mut VecDeque::new())
    }

    /// What is published. Writers wait while it is held: take what is needed, and let go.
    pub fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.0.0.read()
    }

    /// `done` is called by the writer's thread once the commit is durable and published, or refused.
    pub fn commit(
        &self,
        commit: Commit,
        done: impl FnOnce(Result<Arc<Event>, CommitError>) + Send + 'static,
    ) {
        let shared = &self.0.0;
        let mut queue = shared.queue();
        let refused = match &queue.end {
            Some(end) => Some(end.refusal()),
            None if shared.queue_max <= queue.waiting.len() => Some(CommitError::Crowded),
            None => None,
        };
        if let Some(refused) = refused {
            drop(queue);
            return done(Err(refused));
        }
        queue.waiting.push_back((commit, Box::new(done)));
        drop(queue);
        shared.came.notify_one();
    }

    /// Forgets the history up to `floor`.
    pub fn compact(&self, floor: Revision) {
        self.0.0.publish(|store, forgotten| store.compact_to(floor, forgotten));
    }

    /// Writes what waits, refuses what comes, and comes back when the log is closed. Not to be called from a
    /// callback, which would wait for itself.
    pub fn close(&self) {
        let shared = &self.0.0;
        let mut queue = shared.close();
        while !queue.has_ended {
            queue = shared.ended.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        drop(self.0.close());
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Db at {}", self.read().revision())
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("window", &self.window).finish_non_exhaustive()
    }
}

impl End {
    fn refusal(&self) -> CommitError {
        let why = match self {
            Self::Closed => "it was closed".to_owned(),
            Self::Failed(error) => error.to_string(),
        };
        CommitError::Failed { why }
    }
}

// A panic elsewhere cannot leave half of anything behind these locks: a batch is published by the writer alone,
// and readers change nothing.
impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the store, and remembers what its history forgot. What was forgotten is freed after the store
    /// is let go.
    fn publish(&self, change: impl FnOnce(&mut Store, &mut dyn FnMut(Arc<Event>))) {
        let mut gone = Vec::new();
        let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut store, &mut |event| gone.push(event));
        // In order also when two do this at once: the store is still held.
        self.forgotten().extend(gone.iter().map(|it| Forgotten::of(it)));
        drop(store);
    }

    fn forgotten(&self) -> MutexGuard<'_, VecDeque<Forgotten>> {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) -> MutexGuard<'_, Queue> {
        let mut queue = self.queue();
        queue.end.get_or_insert(End::Closed);
        self.came.notify_one();
        queue
    }
}

impl Forgotten {
    fn of(event: &Event) -> Self {
        Self {
            revision: event.revision,
            before: event.before().map(|it| it.modified),
            is_gone: matches!(event.change, Change::Delete { .. }),
        }
    }
}

impl Forget {
    fn of(commits: impl IntoIterator<Item = Forgotten>) -> Option<Self> {
        let mut forget = None;
        for it in commits {
            let forget = forget.get_or_insert_with(|| Self { floor: it.revision, rows: Vec::new() });
            forget.floor = it.revision;
            forget.rows.extend(it.before);
            forget.rows.extend(it.is_gone.then_some(it.revision));
        }
        forget
    }
}

struct Writer {
    log: Box<dyn Log>,
    /// The log's history begins after this revision. After a full disk that is later than the history in memory begins.
    log_floor: Revision,
    shared: Arc<Shared>,
    limits: Limits,
    on_commit: OnCommit,
}

impl Writer {
    fn run(self, on_failure: OnFailure) {
        // However this thread ends, nobody waits for it in vain; and whoever waits finds the log closed, for the
        // writer is dropped before this is.
        let _ended = Ended(self.shared.clone());
        let mut writer = self;
        let failed = loop {
            let Some(batch) = writer.next_batch() else { break None };
            if let Err(error) = writer.write(batch) {
                break Some(error);
            }
        };
        if let Some(error) = failed {
            let mut queue = writer.shared.queue();
            queue.end = Some(End::Failed(error.clone()));
            let waiting = std::mem::take(&mut queue.waiting);
            drop(queue);
            for (_, done) in waiting {
                done(Err(End::Failed(error.clone()).refusal()));
            }
            on_failure(&error);
        }
    }

    fn next_batch(&mut self) -> Option<Vec<(Commit, Done)>> {
        let mut queue = self.shared.queue();
        loop {
            let many = queue.waiting.len().min(BATCH_MAX);
            if 0 < many {
                return Some(queue.waiting.drain(..many).collect());
            }
            if queue.end.is_some() {
                return None;
            }
            queue = self.shared.came.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// An error ends the writer.
    fn write(&mut self, batch: Vec<(Commit, Done)>) -> Result<(), LogError> {
        let (mut commits, dones): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let has_reserve = self.has_reserve()?;
        let mut outcomes = self.prepare(&mut commits, |_| true, has_reserve);
        let mut written = self.append_all(&outcomes);
        // Rule: on a full disk deletes go on: they free the space of what they delete, use the room that is set aside for them, and
        // nothing else in their batch does.
        let may_retry = |error: &Result<(), LogError>| matches!(error, Err(LogError::Full));
        if may_retry(&written) && self.free_history()? {
            restore_all(&mut commits, &outcomes);
            outcomes = self.prepare(&mut commits, |_| true, has_reserve);
            written = self.append_all(&outcomes);
        }
        if may_retry(&written) && commits.iter().any(Commit::is_removal) {
            restore_all(&mut commits, &outcomes);
            outcomes = self.prepare(&mut commits, Commit::is_removal, false);
            written = self.append_compacted(&outcomes);
            if may_retry(&written) && 1 < commits.len() {
                // A smaller transaction may find room.
                restore_all(&mut commits, &outcomes);
                let mut first: Vec<_> = commits.into_iter().zip(dones).collect();
                let second = first.split_off(first.len() / 2);
                self.write(first)?;
                return self.write(second);
            }
            while may_retry(&written) && self.log.release_reserve() {
                written = self.append_compacted(&outcomes);
            }
        }
        let outcomes = dones.into_iter().zip(outcomes);
        if let Err(error) = written {
            let refusal = match &error {
                LogError::Full => CommitError::Full,
                LogError::Busy { .. } => CommitError::NotNow { why: error.to_string() },
                _ => End::Failed(error.clone()).refusal(),
            };
            // Also to those who were refused: perhaps because of a commit that now did not happen.
            outcomes.for_each(|(done, _)| done(Err(refusal.clone())));
            return if error.is_passing() { Ok(()) } else { Err(error) };
        }
        let (dones, outcomes): (Vec<_>, Vec<_>) = outcomes.unzip();
        let events = events_of(&outcomes);
        if !events.is_empty() {
            self.shared.publish(|store, forgotten| {
                events.iter().for_each(|it| store.apply(it.clone()));
                store.trim(forgotten);
            });
            (self.on_commit)(&events);
        }
        for (done, outcome) in dones.into_iter().zip(outcomes) {
            done(outcome);
        }
        match self.log.rest() {
            Err(error) if !error.is_passing() => Err(error),
            _ => Ok(()),
        }
    }

    /// What becomes of each commit if those that `may` are written; the others find the disk full.
    fn prepare(
        &self,
        commits: &mut [Commit],
        may: impl Fn(&Commit) -> bool,
        has_reserve: bool,
    ) -> Vec<Result<Arc<Event>, CommitError>> {
        let store = self.shared.read();
        let mut pending = Pending {
            store: &store,
            limits: self.limits,
            has_reserve,
            bytes: store.usage().bytes(),
            namespaces: HashMap::new(),
            changed: HashMap::new(),
            revision: store.revision(),
        };
        commits.iter_mut().map(|it| if may(it) { pending.add(it) } else { Err(CommitError::Full) }).collect()
    }

    fn append_all(&mut self, outcomes: &[Result<Arc<Event>, CommitError>]) -> Result<(), LogError> {
        let events = events_of(outcomes);
        if events.is_empty() { Ok(()) } else { self.append(&events) }
    }

    fn append(&mut self, events: &[Arc<Event>]) -> Result<(), LogError> {
        // A little faster than the history grows, so that the log is never far behind; and never so much at once
        // that a commit would have to wait for it.
        let many = 2 * events.len() + 16;
        // The log may have forgotten them before the history did.
        self.raise_log_floor(self.log_floor);
        let forget = Forget::of(self.shared.forgotten().iter().take(many).copied());
        self.log.append(events, forget.as_ref())?;
        if let Some(forget) = forget {
            self.raise_log_floor(forget.floor);
        }
        Ok(())
    }

    /// Rule: on a full disk the log holds the state and no history, so that a delete frees pages and writes no value. Memory keeps the
    /// history and watches go on; after a restart a watch from an earlier revision gets 410 Expired.
    fn append_compacted(&mut self, outcomes: &[Result<Arc<Event>, CommitError>]) -> Result<(), LogError> {
        let events = events_of(outcomes);
        let Some(forget) = Forget::of(events.iter().map(|it| Forgotten::of(it))) else { return Ok(()) };
        self.compact_log()?;
        self.log.append(&events, Some(&forget))?;
        self.raise_log_floor(forget.floor);
        Ok(())
    }

    /// Whether there is room for more than deletes. On a full disk the room of the log's history is used first.
    fn has_reserve(&mut self) -> Result<bool, LogError> {
        Ok(self.log.has_reserve() || self.free_history()? && self.log.has_reserve())
    }

    /// Makes room in the log; `false` if there was none to be made.
    fn free_history(&mut self) -> Result<bool, LogError> {
        match self.compact_log() {
            Err(error) if error.is_passing() => Ok(false),
            done => done,
        }
    }

    /// Removes the rows that the log keeps for its history; `false` if there were none.
    fn compact_log(&mut self) -> Result<bool, LogError> {
        let mut has_removed = false;
        while let Some(forget) = self.oldest_in_log() {
            self.log.append(&[], Some(&forget))?;
            self.raise_log_floor(forget.floor);
            has_removed |= !forget.rows.is_empty();
        }
        Ok(has_removed)
    }

    /// The oldest commits in the log's history: first those that memory has forgotten, then those that it has not.
    fn oldest_in_log(&self) -> Option<Forget> {
        let store = self.shared.read();
        let forgotten = self.shared.forgotten();
        let history = store.since("", store.floor()).into_iter().flatten().map(|it| Forgotten::of(it));
        let commits = forgotten.iter().copied().chain(history);
        Forget::of(commits.skip_while(|it| it.revision <= self.log_floor).take(COMPACT_MAX))
    }

    fn raise_log_floor(&mut self, floor: Revision) {
        assert!(self.log_floor <= floor, "what is forgotten stays forgotten");
        self.log_floor = floor;
        let mut forgotten = self.shared.forgotten();
        while forgotten.front().is_some_and(|it| it.revision <= floor) {
            forgotten.pop_front();
        }
    }
}

impl LogError {
    /// Nothing was written, nothing is lost, and the next write may succeed.
    fn is_passing(&self) -> bool {
        matches!(self, Self::Full | Self::Busy { .. })
    }
}

struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        if thread::panicking() {
            queue.end = Some(End::Failed(LogError::Writer { why: "it panicked".into() }));
        }
        queue.waiting.clear();
        queue.has_ended = true;
        self.0.ended.notify_all();
    }
}

fn events_of(outcomes: &[Result<Arc<Event>, CommitError>]) -> Vec<Arc<Event>> {
    outcomes.iter().flatten().cloned().collect()
}

fn restore_all(commits: &mut [Commit], outcomes: &[Result<Arc<Event>, CommitError>]) {
    for (commit, outcome) in commits.iter_mut().zip(outcomes) {
        commit.restore(outcome);
    }
}

impl Commit {
    fn is_removal(&self) -> bool {
        self.class == Class::Removal || matches!(self.write, Write::Delete { .. })
    }

    /// Takes back what [`Pending::add`] took of it.
    fn restore(&mut self, outcome: &Result<Arc<Event>, CommitError>) {
        if let (Write::Put { index, .. }, Ok(event)) = (&mut self.write, outcome)
            && let Change::Put { now, .. } = &event.change
        {
            *index = now.index.clone();
        }
    }
}

/// The state as it will be when the commits so far are published.
struct Pending<'a> {
    store: &'a Store,
    limits: Limits,
    has_reserve: bool,
    /// What the store will hold, and each namespace that changes.
    bytes: usize,
    namespaces: HashMap<Box<str>, usize>,
    changed: HashMap<Arc<str>, Option<Arc<Record>>>,
    revision: Revision,
}

impl Pending<'_> {
    fn add(&mut self, commit: &mut Commit) -> Result<Arc<Event>, CommitError> {
        if let Some((key, revision)) = &commit.within {
            Expect::At(*revision).check(self.get(key).as_ref())?;
        }
        let before = self.get(&commit.key);
        commit.expect.check(before.as_ref())?;
        let revision = self.revision + 1;
        let (key, now, change) = match &mut commit.write {
            Write::Put { index, expires_s, make } => {
                let value = (make.0)(revision);
                let growth = growth(&commit.key, &value, before.as_deref());
                self.check_room(&commit.key, commit.class, growth)?;
                let index = std::mem::take(index);
                let now = written(&commit.key, before.as_ref(), revision, value, index, *expires_s);
                (now.key.clone(), Some(now.clone()), Change::Put { now, before })
            }
            Write::Delete { make } => {
                let before = before.ok_or(Conflict::Missing)?;
                (before.key.clone(), None, Change::Delete { before, last: (make.0)(revision) })
            }
        };
        self.revision = revision;
        self.count(&key, now.as_deref(), change.before());
        self.changed.insert(key.clone(), now);
        Ok(Event::new(revision, key, change))
    }

    fn check_room(&self, key: &str, class: Class, growth: isize) -> Result<(), CommitError> {
        let is_small = class == Class::System && growth <= SMALL_GROWTH;
        if 0 < growth && !self.has_reserve && !is_small && class != Class::Removal {
            return Err(CommitError::Full);
        }
        if self.limits == Limits::NONE {
            return Ok(());
        }
        let namespace = namespace_of(key).map(|it| (it, self.of_namespace(it)));
        Ok(self.limits.check(class, growth, self.bytes, namespace)?)
    }

    fn count(&mut self, key: &str, now: Option<&Record>, before: Option<&Arc<Record>>) {
        if self.limits == Limits::NONE {
            return;
        }
        let (more, less) = (now.map_or(0, weight), before.map_or(0, |it| weight(it)));
        self.bytes = self.bytes + more - less;
        if let Some(namespace) = namespace_of(key) {
            let bytes = self.of_namespace(namespace) + more - less;
            self.namespaces.insert(namespace.into(), bytes);
        }
    }

    fn of_namespace(&self, namespace: &str) -> usize {
        let pending = self.namespaces.get(namespace).copied();
        pending.unwrap_or_else(|| self.store.usage().of_namespace(namespace))
    }

    fn get(&self, key: &str) -> Option<Arc<Record>> {
        match self.changed.get(key) {
            Some(pending) => pending.clone(),
            None => self.store.get(key).cloned(),
        }
    }
}

/// By how much a record becomes larger.
fn growth(key: &str, value: &Bytes, before: Option<&Record>) -> isize {
    let (now, before) = (key.len() + value.len(), before.map_or(0, weight));
    isize::try_from(now).unwrap_or(isize::MAX) - isize::try_from(before).unwrap_or(isize::MAX)
}

/// The store as the log says, with no history beyond the window. What does not fit together is damage that the log itself did not see.
fn load(log: &mut dyn Log, window: Window, forgotten: &mut VecDeque<Forgotten>) -> Result<Store, LogError> {
    let floor = log.floor()?;
    let mut store = Store::at(floor, window);
    log.load(&mut |row| {
        let before = store.get(&row.key).cloned();
        let Row { revision, key, is_gone, created, expires_s, index, value } = row;
        let damaged = |why: &str| Err(format!("{why}, at revision {revision}"));
        if revision <= floor {
            if is_gone || before.is_some() {
                return damaged("a commit should have been forgotten");
            }
            store.restore(Record { key, value, index, created, modified: revision, expires_s });
            return Ok(());
        }
        if revision != store.revision() + 1 {
            return damaged("a commit is missing before the one");
        }
        if created != before.as_ref().map_or(revision, |it| it.created) {
            return damaged("an older commit to the same key is missing");
        }
        let change = match (is_gone, before) {
            (false, before) => {
                let now = written(&key, before.as_ref(), revision, value, index, expires_s);
                Change::Put { now, before }
            }
            (true, Some(before)) => Change::Delete { before, last: value },
            (true, None) => return damaged("what was deleted had never been there"),
        };
        store.apply(Event::new(revision, key, change));
        store.trim(|event| forgotten.push_back(Forgotten::of(&event)));
        Ok(())
    })?;
    Ok(store)
}

#[cfg(test)]
mod tests;
