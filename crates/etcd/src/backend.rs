//! The backend: the interface to the store, and the thread on which the driver runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc as sync_mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;

use muster_store::{
    Backend, Commit, CommitError, DbOptions, EncryptionKeys, Fence, OnCommitted, OnReadBarrier,
    PublishedStore, ReadBarrierError, Revision, SyncStatistics,
};
use tokio::sync::mpsc;

use crate::api::{EtcdApi, EtcdError};
use crate::driver::{self, Command, DriverConfig};
use crate::keyspace::Keyspace;
use crate::load::{self, LoadError};
use crate::object_value::ObjectCodec;

/// The storage backend on etcd. Dropping the backend closes it without waiting for its thread. The thread completes the
/// queued commits before it ends.
pub struct EtcdBackend {
    commands: mpsc::UnboundedSender<Command>,
    /// Number of commits that were submitted and are not answered yet.
    queued: Arc<AtomicUsize>,
    queue_max: usize,
    statistics: Arc<Mutex<SyncStatistics>>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// Why the backend cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("start the thread of the storage backend")]
    Thread(#[source] std::io::Error),
    #[error("connect to etcd")]
    Etcd(#[source] EtcdError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Barrier(#[from] ReadBarrierError),
}

/// Checks the etcd cluster, lists all objects and starts the backend. Waits until the store has caught up with etcd.
/// Returns the store, and the backend that publishes to it. `encryption` has the keys for Secrets, or is `None` if
/// Secrets are not encrypted.
pub fn open(
    api: impl EtcdApi,
    keys: Keyspace,
    encryption: Option<EncryptionKeys>,
    options: DbOptions,
) -> Result<(Arc<PublishedStore>, EtcdBackend), OpenError> {
    let codec = ObjectCodec { encryption };
    let DbOptions { window, limits, queue_max, on_commit, on_failure } = options;
    let (commands, received) = mpsc::unbounded_channel();
    let (opened, is_open) = sync_mpsc::channel();
    let queued = Arc::new(AtomicUsize::new(0));
    let statistics: Arc<Mutex<SyncStatistics>> = Arc::default();
    let (in_driver, statistics_in_driver) = (queued.clone(), statistics.clone());
    let run = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(opened.send(Err(OpenError::Thread(error)))),
        };
        runtime.block_on(async move {
            if let Err(error) = api.check().await {
                return drop(opened.send(Err(OpenError::Etcd(error))));
            }
            let loaded = match load::load(&api, keys, &codec, window).await {
                Ok(loaded) => loaded,
                Err(error) => return drop(opened.send(Err(error.into()))),
            };
            let published = PublishedStore::new(loaded.store, on_commit);
            let config = DriverConfig {
                api: Arc::new(api),
                keys: loaded.keys,
                codec,
                server_id: uuid::Uuid::new_v4().to_string(),
                published: published.clone(),
                window,
                limits,
                queued: in_driver,
                statistics: statistics_in_driver,
                on_failure,
                revision: loaded.revision,
                source_revision: loaded.source_revision,
            };
            drop(opened.send(Ok(published)));
            driver::run(config, received).await;
        });
    };
    let thread = thread::Builder::new().name("etcd".into()).spawn(run).map_err(OpenError::Thread)?;
    let ended = || OpenError::Thread(std::io::Error::other("the thread has ended"));
    let published = is_open.recv().map_err(|_| ended())??;
    let backend = EtcdBackend { commands, queued, queue_max, statistics, thread: Mutex::new(Some(thread)) };
    // The published state is older than the state of etcd until the watch has delivered the history. A long history
    // takes longer than a read barrier may take.
    loop {
        let before = published.read().revision();
        let (passed, is_current) = sync_mpsc::channel();
        backend.read_barrier(Box::new(move |it| drop(passed.send(it))));
        match is_current.recv().map_err(|_| ended())? {
            Ok(()) => return Ok((published, backend)),
            Err(error) if published.read().revision() == before => return Err(error.into()),
            Err(error) => tracing::info!(%error, "reading the history from etcd"),
        }
    }
}

impl Backend for EtcdBackend {
    fn commit(&self, commit: Commit, done: OnCommitted) {
        if self.queue_max <= self.queued.fetch_add(1, Ordering::AcqRel) {
            self.queued.fetch_sub(1, Ordering::AcqRel);
            return done(Err(CommitError::QueueFull));
        }
        if let Err(refused) = self.commands.send(Command::Commit(Box::new(commit), done)) {
            self.queued.fetch_sub(1, Ordering::AcqRel);
            let Command::Commit(_, done) = refused.0 else { return };
            done(Err(CommitError::Failed { why: "it was closed".to_owned() }));
        }
    }

    fn read_barrier(&self, done: OnReadBarrier) {
        if let Err(refused) = self.commands.send(Command::ReadBarrier(done)) {
            let Command::ReadBarrier(done) = refused.0 else { return };
            done(Err(ReadBarrierError { why: "the store was closed".to_owned() }));
        }
    }

    fn read_barrier_at(&self, revision: Revision, done: OnReadBarrier) {
        if let Err(refused) = self.commands.send(Command::ReadBarrierAt(revision, done)) {
            let Command::ReadBarrierAt(_, done) = refused.0 else { return };
            done(Err(ReadBarrierError { why: "the store was closed".to_owned() }));
        }
    }

    fn compact(&self, revision: Revision, fence: Option<Fence>) {
        let _ = self.commands.send(Command::Compact(revision, fence));
    }

    fn sync_statistics(&self) -> Option<SyncStatistics> {
        Some(*self.statistics.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn close(&self) {
        let _ = self.commands.send(Command::Close);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread prints its own panic.
            let _ = thread.join();
        }
    }
}

impl Drop for EtcdBackend {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Close);
    }
}

impl fmt::Debug for EtcdBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdBackend").field("queued", &self.queued).finish_non_exhaustive()
    }
}
