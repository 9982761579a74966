//! The objects of the cluster by key, on top of the store: reads, lists, watches and commits. The rules for writes are
//! in `registry`.

/// Reads the changes of the stored objects of one kind.
mod change_reader;
/// Commits of single objects.
mod commit;
/// The database in the data directory, with backup and restore.
pub(crate) mod data_dir;
/// The store on etcd, which several servers share.
pub(crate) mod etcd;
/// Fencing of leaders.
pub(crate) mod fence;
/// Periodic compaction of the history and deletion of expired objects.
mod housekeeping;
/// Lists and their pages.
mod list;
/// Allocations whose object may not be stored yet.
mod pending_allocations;
/// Wakes watches after commits.
mod watch_notifier;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLockReadGuard};
use std::time::Duration;

use bytes::Bytes;
use muster_store::{
    CommitEvent, CompactedError, Db, DbOptions, HistoryWindow, OnFailure, Revision, Store, StoreLimits,
    StoredObject, SyncStatistics,
};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::error::ApiError;
use crate::kinds::{Kind, KindRegistry};
use crate::metrics::ServerMetrics;
use crate::request::RequestTarget;
use crate::selector::ObjectSelector;

pub(crate) use self::change_reader::{ObjectChange, ObjectChangeReader};
pub(crate) use self::commit::{ObjectCommit, QuotaUpdate};
pub(crate) use self::housekeeping::{HISTORY_WINDOW, run_housekeeping};
pub(crate) use self::list::{ContinueToken, ListMeta, ListOptions, ListPage, ListStart};
pub(crate) use self::pending_allocations::PendingAllocations;
pub(crate) use self::watch_notifier::Subscription;
use self::watch_notifier::WatchNotifier;

/// Maximum number of commits that wait until they are durable. Clients normally do not reach this maximum, because it
/// is far higher than the number of requests that they may have in flight.
const COMMIT_QUEUE_MAX: usize = 4096;

/// The objects of the cluster. Reads return only durable objects. A write is durable when [`Self::commit`] returns the
/// stored object.
#[derive(Debug)]
pub(crate) struct ObjectStorage {
    db: Db,
    /// Maximum total size of all objects in bytes.
    bytes_max: usize,
    pub(crate) kinds: KindRegistry,
    /// Notifier that wakes watches after commits.
    notifier: Arc<WatchNotifier>,
    metrics: Arc<ServerMetrics>,
    /// Whether the last write failed because the disk was full.
    pub(crate) is_disk_full: AtomicBool,
    /// Whether the last write that needed space failed because the storage that several servers share was full.
    pub(crate) is_shared_storage_full: AtomicBool,
    /// Whether other servers write to the storage too, so that the objects here may be behind.
    is_shared: bool,
    /// Time at which the storage was opened. Opening it reads all objects.
    opened: Instant,
    /// When the last read barrier that was passed began, in milliseconds after `opened`. Always 0 if the storage is not
    /// shared.
    confirmed_ms: AtomicU64,
}

impl ObjectStorage {
    /// Creates the storage. `open` opens the database with the given options. `on_failure` is called when the store can
    /// no longer be written.
    pub(crate) fn open<E>(
        open: impl FnOnce(DbOptions) -> Result<Db, E>,
        window: HistoryWindow,
        limits: StoreLimits,
        on_failure: OnFailure,
        metrics: Arc<ServerMetrics>,
    ) -> Result<Self, E> {
        let notifier = Arc::new(WatchNotifier::new());
        let commit_notifier = notifier.clone();
        let on_commit = Box::new(move |batch: &[Arc<CommitEvent>]| commit_notifier.notify_commits(batch));
        let db = open(DbOptions { window, limits, queue_max: COMMIT_QUEUE_MAX, on_commit, on_failure })?;
        notifier.set_initial_revision(db.read().revision());
        Ok(Self {
            is_shared: db.sync_statistics().is_some(),
            opened: Instant::now(),
            confirmed_ms: AtomicU64::new(0),
            db,
            bytes_max: limits.bytes_max,
            kinds: KindRegistry::builtin(),
            notifier,
            metrics,
            is_disk_full: AtomicBool::new(false),
            is_shared_storage_full: AtomicBool::new(false),
        })
    }

    /// Whether the last write failed because the disk or the storage was full.
    pub(crate) fn is_full(&self) -> bool {
        let is_set = |it: &AtomicBool| it.load(Ordering::Relaxed);
        is_set(&self.is_disk_full) || is_set(&self.is_shared_storage_full)
    }

    /// Completes all queued writes and closes the store.
    pub(crate) fn close(&self) {
        self.db.close();
    }

    /// Waits until reads include every write that any server acknowledged before this call. A request that must not
    /// read stale objects calls this once, before its first read.
    pub(crate) async fn wait_until_fresh(&self) -> Result<(), ApiError> {
        let (done, outcome) = oneshot::channel();
        let begun_ms = if self.is_shared { self.opened_ms_ago() } else { 0 };
        self.db.read_barrier(move |it| drop(done.send(it)));
        match outcome.await {
            Ok(Ok(())) => {
                self.confirmed_ms.fetch_max(begun_ms, Ordering::Relaxed);
                Ok(())
            }
            Ok(Err(error)) => Err(ApiError::service_unavailable(error.to_string())),
            Err(_) => Err(ApiError::service_unavailable("the store has stopped")),
        }
    }

    /// Whether other servers write to the storage too.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether reads include every write that any server had acknowledged `age_max` ago. Always `true` if the storage is
    /// not shared. `false` if no request has waited for a read barrier for that time, or if the storage cannot be
    /// reached.
    pub(crate) fn is_confirmed_within(&self, age_max: Duration) -> bool {
        let age_max_ms = u64::try_from(age_max.as_millis()).unwrap_or(u64::MAX);
        !self.is_shared
            || self.opened_ms_ago() <= self.confirmed_ms.load(Ordering::Relaxed).saturating_add(age_max_ms)
    }

    /// Returns the time since the storage was opened in milliseconds.
    fn opened_ms_ago(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Waits until the store has reached `revision`. Does not return before, so the caller sets a time limit.
    ///
    /// Rule: a revision that another server has shown is reached when the store has all commits up to it, even if none
    /// of them has this revision. After a reload, the revision of a server is between those of two commits.
    pub(crate) async fn wait_until_reached(&self, revision: Revision) {
        let mut commits = self.watch_revision();
        let reached = async {
            let (done, outcome) = oneshot::channel();
            self.db.read_barrier_at(revision, move |it| drop(done.send(it)));
            drop(outcome.await);
            if self.revision() < revision {
                // A commit of the future may reach it.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = reached => {}
            _ = async { commits.wait_for(|head| revision <= *head).await.map(drop) } => {}
        }
    }

    /// Returns the JSON of an object, or the error `NotFound`.
    pub(crate) fn get(&self, target: &RequestTarget) -> Result<Bytes, ApiError> {
        Ok(self.get_record(target)?.value.clone())
    }

    /// Returns the JSON of an object, or `None` if it does not exist.
    pub(crate) fn find(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Option<Bytes> {
        Some(self.read_store().get(&kind.store_key(namespace, name))?.value.clone())
    }

    /// Returns the total size of all objects and the maximum of this size, both in bytes.
    pub(crate) fn used_bytes_and_capacity(&self) -> (usize, usize) {
        (self.read_store().usage().total_bytes(), self.bytes_max)
    }

    /// Returns the `count` largest namespaces with their sizes in bytes, largest first.
    pub(crate) fn largest_namespaces(&self, count: usize) -> Vec<(String, usize)> {
        let store = self.read_store();
        store
            .usage()
            .largest_namespaces(count)
            .into_iter()
            .map(|(name, bytes)| (name.to_owned(), bytes))
            .collect()
    }

    /// Returns the numbers of reloads and consistency checks of a store that several servers share. Returns `None` for
    /// the database in the data directory.
    pub(crate) fn sync_statistics(&self) -> Option<SyncStatistics> {
        self.db.sync_statistics()
    }

    /// Returns the revision of the last commit.
    pub(crate) fn revision(&self) -> Revision {
        self.read_store().revision()
    }

    pub(crate) fn count_objects(&self, kind: &Kind) -> usize {
        self.read_store().list(&kind.store_key_prefix(None)).count()
    }

    /// Returns a channel whose value is always the revision of the last commit.
    pub(crate) fn watch_revision(&self) -> watch::Receiver<Revision> {
        self.notifier.last_revision.subscribe()
    }

    /// Returns the revision of the last commit to an object of the kind since the server started, or 0 if there was
    /// none.
    pub(crate) fn kind_revision(&self, kind: &Kind) -> Revision {
        self.notifier.kind_revision(kind)
    }

    /// Returns a channel whose value is always what [`Self::kind_revision`] returns.
    pub(crate) fn watch_kind_revision(&self, kind: &Kind) -> watch::Receiver<Revision> {
        self.notifier.watch_kind(kind)
    }

    /// Stops serving a kind that was added at run time. Ends the watches of its objects, unless another version of the
    /// resource is still served. Returns `false` if there is no such kind. The objects stay in the store.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "kinds are removed only by tests until CRDs are served")
    )]
    pub(crate) fn remove_kind(&self, group: &str, version: &str, plural: &str) -> bool {
        let Some(removed) = self.kinds.remove(group, version, plural) else { return false };
        let stored = removed.storage_kind().resource();
        if self.kinds.served().all().all(|it| it.storage_kind().resource() != stored) {
            self.notifier.end_subscriptions(removed);
        }
        true
    }

    /// Subscribes a watch to commits. If `key` is set, the watch is notified of commits to the object with this store
    /// key. Otherwise it is notified of commits to the kind. If the selector of a watch of pods requires a node, the
    /// watch is notified only of commits to the pods of this node.
    pub(crate) fn subscribe(
        &self,
        kind: &Kind,
        key: Option<&str>,
        selector: &ObjectSelector,
    ) -> Subscription {
        self.notifier.subscribe(kind, key, selector)
    }

    /// Returns the commits after the revision `after` to keys with this prefix, and the revision up to which they are
    /// complete. Fails if the history no longer contains all of them.
    pub(crate) fn events_since(
        &self,
        prefix: &str,
        after: Revision,
    ) -> Result<(Vec<Arc<CommitEvent>>, Revision), CompactedError> {
        self.bounded_events_since(prefix, (after, after), usize::MAX)
    }

    /// Returns at most `events_max` of the commits that [`ObjectStorage::events_since`] returns, oldest first, and the
    /// revision up to which they are complete. None of the commits after `after` and up to `skippable` concerns the
    /// caller, see [`Subscription::skippable_revision`]. The history therefore need not contain them, unless the store
    /// was reloaded after `after`.
    pub(crate) fn bounded_events_since(
        &self,
        prefix: &str,
        (after, skippable): (Revision, Revision),
        events_max: usize,
    ) -> Result<(Vec<Arc<CommitEvent>>, Revision), CompactedError> {
        let store = self.read_store();
        // The commits before a reload are not known, so the caller may have missed one that concerns it.
        let after = if after < store.initial_compacted_revision() { after } else { skippable };
        let events: Vec<_> = store.commits_since(prefix, after)?.take(events_max).cloned().collect();
        let revision = match events.last() {
            Some(last) if events.len() == events_max => last.revision,
            _ => store.revision(),
        };
        Ok((events, revision))
    }

    /// Returns an object as the store has it (JSON, revisions and selector index), or the error `NotFound`.
    pub(crate) fn get_record(&self, target: &RequestTarget) -> Result<Arc<StoredObject>, ApiError> {
        self.read_store().get(&target.key()).cloned().ok_or_else(|| target.not_found_error())
    }

    /// Locks the objects and their history for reading. Commits wait while the guard is held.
    pub(crate) fn read_store(&self) -> RwLockReadGuard<'_, Store> {
        self.db.read()
    }
}
