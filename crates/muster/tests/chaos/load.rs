//! The load: clients that write, read and watch through all servers while faults happen.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, WatchParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::history::Revision;
use super::recorder::{Answer, LABEL, Recorder, WatchEnd, Watcher, is_store_full, number, random};

/// Writers that use one server each, for every server.
const WRITERS_PER_SERVER: usize = 3;
/// Clients that write through one server and read through another one.
const FRESH_READERS: usize = 3;

/// Time for which a client waits for an answer. It is longer than a server may take to answer.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// Time without an event after which a watcher goes to the next server. Its server may be stopped, or cut off.
const WATCH_SILENCE: Duration = Duration::from_secs(3);

/// Delay after an operation of a client, at least and at most, and after one that failed.
const PAUSE_MS: (u64, u64) = (20, 80);
const RETRY_PAUSE: Duration = Duration::from_millis(150);

/// Maximum time for which all servers refuse a watcher because the history after its last event was compacted.
const GONE_TIMEOUT: Duration = Duration::from_secs(30);

/// The clients, and what they were answered.
pub(crate) struct Load {
    pub(crate) recorder: Recorder,
    /// The objects, as each server has them.
    servers: Vec<Api<ConfigMap>>,
    /// Whether each server is stopped or killed at the moment.
    away: Vec<Arc<AtomicBool>>,
    writes: Mutex<Vec<WriteAttempt>>,
    /// The highest revision of an acknowledged write.
    acknowledged: AtomicU64,
    is_over: CancellationToken,
    /// The revision at which watchers end.
    last: watch::Sender<Option<Revision>>,
}

/// A write that has ended.
#[derive(Debug, Clone)]
pub(crate) struct WriteAttempt {
    pub(crate) server: usize,
    pub(crate) is_delete: bool,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) reply: Reply,
}

/// The answer to a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Acknowledged,
    /// The object was not as the writer believed.
    Conflict,
    /// The server says that its store has no space.
    StoreFull,
    /// Another status code with its message.
    Failed(u16, String),
    /// The connection was lost, or there was no answer in time.
    Lost,
}

/// A watcher, as others see it.
#[derive(Clone)]
pub(crate) struct WatcherProgress {
    pub(crate) seen: Arc<AtomicU64>,
    /// How often it went on at another server.
    pub(crate) resumed: Arc<AtomicUsize>,
}

impl Load {
    pub(crate) fn new(clients: &[Client], away: Vec<Arc<AtomicBool>>) -> Self {
        Self {
            recorder: Recorder::new(REQUEST_TIMEOUT),
            servers: clients.iter().map(|it| Api::namespaced(it.clone(), "default")).collect(),
            away,
            writes: Mutex::default(),
            acknowledged: AtomicU64::new(0),
            is_over: CancellationToken::new(),
            last: watch::Sender::new(None),
        }
    }

    /// Starts the writers and readers. They end after [`Self::finish`].
    pub(crate) fn start_clients(self: &Arc<Self>) -> Vec<tokio::task::JoinHandle<()>> {
        let writers = (0..self.servers.len())
            .flat_map(|server| (0..WRITERS_PER_SERVER).map(move |number| (server, number)))
            .map(|(server, number)| tokio::spawn(self.clone().run_writer(server, number)));
        let readers = (0..FRESH_READERS).map(|it| tokio::spawn(self.clone().run_fresh_reader(it)));
        writers.chain(readers).collect()
    }

    /// Starts the watchers at the current revision, each at another server. They end after [`Self::finish`].
    pub(crate) async fn start_watchers(
        self: &Arc<Self>,
    ) -> (Vec<WatcherProgress>, Vec<tokio::task::JoinHandle<Result<Watcher, String>>>) {
        let list = self.servers[0].list(&ListParams::default()).await.unwrap();
        let from = number(list.metadata.resource_version.as_deref());
        let (mut progress, mut tasks) = (Vec::new(), Vec::new());
        for server in 0..self.servers.len() {
            // One of them sees all ConfigMaps.
            let params = WatchParams::default();
            let params = if server == 1 { params } else { params.labels(LABEL) };
            let watcher = Watcher::new(params, from);
            let own = WatcherProgress { seen: watcher.seen.clone(), resumed: Arc::default() };
            progress.push(own.clone());
            tasks.push(tokio::spawn(self.clone().run_watcher(watcher, server, own)));
        }
        (progress, tasks)
    }

    /// Ends the clients after their current operations.
    pub(crate) fn finish_clients(&self) {
        self.is_over.cancel();
    }

    /// Lets the watchers end at a revision.
    pub(crate) fn finish_watchers(&self, last: Revision) {
        self.last.send_replace(Some(last));
    }

    /// Creates or updates an object through a server.
    pub(crate) async fn put(&self, server: usize, key: &str, on: Option<Revision>) -> Answer<Revision> {
        let began = Instant::now();
        let answer = self.recorder.put(&self.servers[server], key, on).await;
        if let Answer::Done(revision) = answer {
            self.acknowledged.fetch_max(revision, Ordering::Relaxed);
        }
        self.log(server, false, began, &answer);
        answer
    }

    /// Deletes an object through a server.
    pub(crate) async fn delete(&self, server: usize, key: &str, on: Revision) -> Answer<()> {
        let began = Instant::now();
        let answer = self.recorder.delete(&self.servers[server], key, on).await;
        self.log(server, true, began, &answer);
        answer
    }

    pub(crate) async fn list(&self, server: usize) -> Answer<()> {
        self.recorder.list(&self.servers[server]).await
    }

    fn log<T>(&self, server: usize, is_delete: bool, began: Instant, answer: &Answer<T>) {
        let reply = match answer {
            Answer::Done(_) => Reply::Acknowledged,
            Answer::Refused => Reply::Conflict,
            Answer::Failed(status) if is_store_full(status) => Reply::StoreFull,
            Answer::Failed(status) => Reply::Failed(status.code, status.message.clone()),
            Answer::Lost => Reply::Lost,
        };
        let attempt = WriteAttempt { server, is_delete, began, ended: Instant::now(), reply };
        self.writes.lock().unwrap().push(attempt);
    }

    /// Number of writes that have ended.
    pub(crate) fn write_count(&self) -> usize {
        self.writes.lock().unwrap().len()
    }

    /// The writes that have ended, without the first `from` of them.
    pub(crate) fn writes_since(&self, from: usize) -> Vec<WriteAttempt> {
        self.writes.lock().unwrap()[from..].to_vec()
    }

    /// The highest revision of an acknowledged write.
    pub(crate) fn acknowledged_revision(&self) -> Revision {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Writes through one server, from what someone saw last. The first writer of a server has a key of its own, so
    /// that the others do not make its writes conflicts when answers take long. The others share their keys.
    async fn run_writer(self: Arc<Self>, server: usize, number: usize) {
        let own_key = (number == 0).then(|| format!("own-{server}"));
        while !self.is_over.is_cancelled() {
            let (key, belief) = match &own_key {
                Some(key) => (key.clone(), self.recorder.belief(key)),
                None => self.recorder.any_key(),
            };
            let answer = match (random() % 30, belief) {
                (0, _) => self.list(server).await,
                (1..5, Some(on)) => self.delete(server, &key, on).await,
                (_, on) => self.put(server, &key, on).await.map(drop),
            };
            // A client whose write came too late reads the object again.
            let answer = match answer {
                Answer::Refused => self.recorder.get(&self.servers[server], &key).await,
                answer => answer,
            };
            pause(matches!(answer, Answer::Done(()))).await;
        }
    }

    /// Writes a key of its own through one server and then reads it through another one, which must show the write.
    async fn run_fresh_reader(self: Arc<Self>, number: usize) {
        let key = format!("fresh-{number}");
        while !self.is_over.is_cancelled() {
            let mut present: Vec<usize> =
                (0..self.servers.len()).filter(|it| !self.away[*it].load(Ordering::Relaxed)).collect();
            if present.len() < 2 {
                pause(false).await;
                continue;
            }
            let writer = present.swap_remove(index(present.len()));
            let reader = present[index(present.len())];
            let written = self.put(writer, &key, self.recorder.belief(&key)).await;
            let read = self.recorder.get(&self.servers[reader], &key).await;
            pause(matches!((written, read), (Answer::Done(_) | Answer::Refused, Answer::Done(())))).await;
        }
    }

    /// Watches from server to server, always from the last event, and never lists. Fails if no server has the history
    /// after the last event any more.
    async fn run_watcher(
        self: Arc<Self>,
        mut watcher: Watcher,
        first: usize,
        progress: WatcherProgress,
    ) -> Result<Watcher, String> {
        let mut server = first;
        let mut gone_since: Option<Instant> = None;
        loop {
            let until = *self.last.borrow();
            let seen = watcher.seen();
            let end = watcher.watch(&self.servers[server], &self.recorder, WATCH_SILENCE, until).await;
            if seen < watcher.seen() {
                gone_since = None;
            }
            match end {
                WatchEnd::Reached => return Ok(watcher),
                WatchEnd::Refused(status) if status.code == 410 => {
                    let since = *gone_since.get_or_insert_with(Instant::now);
                    if GONE_TIMEOUT < since.elapsed() {
                        return Err(format!(
                            "no server has the history after {}: {}",
                            watcher.seen(),
                            status.message
                        ));
                    }
                }
                WatchEnd::Lost | WatchEnd::Silent | WatchEnd::Refused(_) => {}
            }
            server = (server + 1) % self.servers.len();
            progress.resumed.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn pause(is_done: bool) {
    let range = PAUSE_MS.1 - PAUSE_MS.0;
    let short = Duration::from_millis(PAUSE_MS.0 + random() % range);
    tokio::time::sleep(if is_done { short } else { RETRY_PAUSE }).await;
}

fn index(length: usize) -> usize {
    usize::try_from(random() % length as u64).expect("it is less than the length")
}
