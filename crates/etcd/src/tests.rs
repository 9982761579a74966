//! Model tests: several servers write to one etcd that loses requests and responses, applies requests late, and breaks
//! watches. Every server must end with the state of etcd, and every answer must be true.

/// The comparison of the published objects with those in etcd.
mod consistency;
/// How the driver ends.
mod end;
/// Members that cannot serve requests, or belong to another etcd cluster.
mod members;
/// Known bugs, each of which a test must notice.
mod mutants;
/// Loading all objects again while servers run.
mod reload;
/// Restore of a cluster, and snapshots.
mod restore;
/// The settings of the cluster.
mod settings;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use muster_store::{
    Commit, CommitConflict, CommitError, CommitEvent, CommitWrite, Fence, HistoryWindow, KeyChange,
    LinkedUpdate, ObjectDraft, Precondition, PublishedStore, Revision, SelectorIndex, StoreLimits,
    StoredObject, SyncStatistics, WriteClass,
};
use tokio::sync::{mpsc, oneshot};

use crate::api::EtcdApi;
use crate::cluster_keys::{create_cluster_keys, has_objects, read_cluster_keys};
use crate::driver::{self, Command, DriverConfig};
use crate::fake_etcd::{FakeEtcd, FaultRates};
use crate::keyspace::Keyspace;
use crate::load;
use crate::object_value::ObjectCodec;
use crate::proto::event::EventType;

const WIDE: HistoryWindow = HistoryWindow { events_max: usize::MAX, bytes_max: usize::MAX };
const FAULTS: FaultRates = FaultRates {
    lost_request: 60,
    lost_response: 60,
    late: 40,
    broken_watch: 50,
    fragment: 300,
    outage: 0,
    no_space: 0,
};
/// Fault rates of an etcd whose database is full again and again.
const FULL: FaultRates = FaultRates { no_space: 60, ..FAULTS };

/// A server: its driver, and the events that it has published.
#[derive(Clone)]
struct Server {
    commands: mpsc::UnboundedSender<Command>,
    published: Arc<PublishedStore>,
    events: Arc<Mutex<Vec<Arc<CommitEvent>>>>,
    queued: Arc<AtomicUsize>,
    statistics: Arc<Mutex<SyncStatistics>>,
    failure: Arc<Mutex<Option<String>>>,
    name: String,
    /// Values that a client of this server is allocating.
    pending_values: Arc<Mutex<BTreeSet<usize>>>,
}

impl Server {
    async fn start<A: EtcdApi + Clone>(api: &A, name: &str) -> Self {
        let loaded = loop {
            match load::load(api, Keyspace::new("/m", 0), &ObjectCodec::default(), WIDE).await {
                Ok(loaded) => break loaded,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        let events: Arc<Mutex<Vec<Arc<CommitEvent>>>> = Arc::default();
        let (seen, failure) = (events.clone(), Arc::new(Mutex::new(None)));
        let failed = failure.clone();
        let published = PublishedStore::new(
            loaded.store,
            Box::new(move |batch| seen.lock().unwrap().extend(batch.iter().cloned())),
        );
        let (commands, received) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let statistics: Arc<Mutex<SyncStatistics>> = Arc::default();
        let config = DriverConfig {
            codec: ObjectCodec::default(),
            api: Arc::new(api.clone()),
            keys: loaded.keys,
            server_id: name.to_owned(),
            published: published.clone(),
            window: WIDE,
            limits: StoreLimits::UNLIMITED,
            queued: queued.clone(),
            statistics: statistics.clone(),
            on_failure: Box::new(move |error| *failed.lock().unwrap() = Some(error.to_string())),
            revision: loaded.revision,
            source_revision: loaded.source_revision,
        };
        tokio::spawn(driver::run(config, received));
        let (name, pending_values) = (name.to_owned(), Arc::default());
        Self { commands, published, events, queued, statistics, failure, name, pending_values }
    }

    async fn commit(&self, commit: Commit) -> Result<Arc<CommitEvent>, CommitError> {
        self.commit_if_running(commit).await.expect("every commit is answered")
    }

    /// Returns `None` if the driver ends during the commit.
    async fn commit_if_running(&self, commit: Commit) -> Option<Result<Arc<CommitEvent>, CommitError>> {
        let (said, outcome) = oneshot::channel();
        self.queued.fetch_add(1, Ordering::AcqRel);
        let done = Box::new(move |it| drop(said.send(it)));
        let _ = self.commands.send(Command::Commit(Box::new(commit), done));
        outcome.await.ok()
    }

    async fn read_barrier(&self) -> bool {
        let (said, outcome) = oneshot::channel();
        let _ = self
            .commands
            .send(Command::ReadBarrier(Box::new(move |it| said.send(it.is_ok()).unwrap_or_default())));
        outcome.await.expect("every barrier is answered")
    }

    async fn read_barrier_at(&self, revision: Revision) -> bool {
        let (said, outcome) = oneshot::channel();
        let done = Box::new(move |it: Result<(), _>| said.send(it.is_ok()).unwrap_or_default());
        let _ = self.commands.send(Command::ReadBarrierAt(revision, done));
        outcome.await.expect("every barrier is answered")
    }

    fn statistics(&self) -> SyncStatistics {
        *self.statistics.lock().unwrap()
    }

    fn get(&self, key: &str) -> Option<Arc<StoredObject>> {
        self.published.read().get(key).cloned()
    }
}

/// The objects of a server with their revisions, as text.
fn objects(server: &Server) -> Vec<String> {
    let store = server.published.read();
    store.list("").map(|it| format!("{} {} {}..{}", it.key, value_of(it), it.created, it.modified)).collect()
}

fn put(key: &str, expect: Precondition, value: &str) -> Commit {
    let head = format!(r#"{{"value":"{value}","metadata":{{"resourceVersion":""#).into_bytes();
    let draft = ObjectDraft { head, tail: br#""}}"#.to_vec() };
    let index = SelectorIndex::new([("value", value)], []);
    let write = CommitWrite::Put { index, expires_s: None, draft };
    Commit {
        key: key.into(),
        expect,
        within: None,
        allocation: None,
        linked: Vec::new(),
        fence: None,
        begins_term: false,
        class: WriteClass::Ordinary,
        write,
    }
}

fn delete(key: &str, expect: Precondition) -> Commit {
    Commit { write: CommitWrite::Delete, class: WriteClass::Deletion, ..put(key, expect, "") }
}

fn value_of(object: &StoredObject) -> &str {
    object.index.label("value").unwrap()
}

/// Everything that a test recorded about answered commits.
#[derive(Default)]
struct Record {
    /// Revision, key and value (`None` for a delete) of acknowledged commits.
    acknowledged: Vec<(Revision, String, Option<String>)>,
    /// Values that were refused: they must never be written.
    refused: Vec<String>,
    /// Values whose outcome is not known.
    unknown: Vec<String>,
    /// How many of them were written, with events that were compacted.
    written_before_reload: usize,
    /// How many watches of clients have expired.
    expired: usize,
    /// How many commits were refused because etcd had no space.
    refused_without_space: usize,
}

/// Runs clients on all servers, then checks the record against the history of etcd.
async fn run_model(seed: u64, faults: FaultRates, servers: usize, clients: usize, writes: usize) -> Record {
    let etcd = FakeEtcd::new(seed, faults);
    run_model_on(seed, &etcd, &etcd, faults, (servers, clients, writes)).await
}

/// Like [`run_model`], with servers that reach etcd through `api`.
async fn run_model_on<A: EtcdApi + Clone>(
    seed: u64,
    etcd: &FakeEtcd,
    api: &A,
    faults: FaultRates,
    (servers, clients, writes): (usize, usize, usize),
) -> Record {
    let mut started = Vec::new();
    for it in 0..servers {
        started.push(Server::start(api, &format!("s{it}")).await);
    }
    let record = Arc::new(Mutex::new(Record::default()));
    let (stop, watchers) = start_watchers(etcd, &started);
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let (server, etcd, record) = (started[client % servers].clone(), etcd.clone(), record.clone());
            tokio::spawn(async move { run_client(client, writes, &server, &etcd, &record).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    etcd.stop_faults();
    // Requests that are applied late, and watches that are opened again.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let marker = started[0].commit(put("marker//end", Precondition::Absent, "end")).await.unwrap();
    for it in &started {
        assert!(it.read_barrier().await, "seed {seed}: {:?}", it.failure.lock().unwrap());
        assert!(marker.revision <= it.published.read().revision(), "seed {seed}");
    }
    stop.store(true, Ordering::Relaxed);
    let mut record = std::mem::take(&mut *record.lock().unwrap());
    check_history(seed, etcd, &started, &record, faults.outage == 0);
    for watcher in futures::future::join_all(watchers).await {
        let watches = watcher.unwrap();
        check_watches(seed, etcd, &watches);
        record.expired += watches.len() - 1;
    }
    record
}

/// A watch of a client: the objects that it listed first, and then the events that it got.
#[derive(Default)]
struct ClientWatch {
    prefix: &'static str,
    list_revision: Revision,
    objects: BTreeMap<String, (Revision, String)>,
    events: Vec<(Revision, String, Option<String>)>,
    /// The revision up to which the client got all events.
    seen: Revision,
}

/// Starts clients of each server that list and watch until `stop` is set, as informers do. When a watch expires, they
/// list again. Each task returns the watches of its client, of which all but the last have expired.
fn start_watchers(
    etcd: &FakeEtcd,
    servers: &[Server],
) -> (Arc<AtomicBool>, Vec<tokio::task::JoinHandle<Vec<ClientWatch>>>) {
    let stop = Arc::new(AtomicBool::new(false));
    let clients = servers.iter().flat_map(|server| ["", "pods/", "pods/default/3"].map(|it| (server, it)));
    let start = |(server, prefix): (&Server, &'static str)| {
        let (etcd, published, stop) = (etcd.clone(), server.published.clone(), stop.clone());
        tokio::spawn(async move {
            let mut watches: Vec<ClientWatch> = vec![client_watch(&published, prefix)];
            loop {
                let is_last = stop.load(Ordering::Relaxed);
                let watch = watches.last_mut().expect("it has begun");
                let is_expired = {
                    let store = published.read();
                    match store.commits_since(prefix, watch.seen) {
                        Ok(events) => {
                            watch.events.extend(events.map(|it| line(it)));
                            watch.seen = store.revision();
                            false
                        }
                        Err(_) => true,
                    }
                };
                match is_expired {
                    true => watches.push(client_watch(&published, prefix)),
                    false if is_last => return watches,
                    false => tokio::time::sleep(Duration::from_millis(etcd.random_below(300))).await,
                }
            }
        })
    };
    let tasks = clients.map(start).collect();
    (stop, tasks)
}

/// Lists the objects with the prefix, and begins a watch from the list.
fn client_watch(published: &PublishedStore, prefix: &'static str) -> ClientWatch {
    let store = published.read();
    let objects = store.list(prefix).map(|it| (it.key.to_string(), (it.modified, value_of(it).to_owned())));
    let (objects, revision) = (objects.collect(), store.revision());
    ClientWatch { prefix, list_revision: revision, objects, events: Vec::new(), seen: revision }
}

/// Every list has the objects of its revision, a watch has every event after it in order, and no list is older than what
/// the same client has seen before.
fn check_watches(seed: u64, etcd: &FakeEtcd, watches: &[ClientWatch]) {
    let history = history_of(etcd);
    let mut seen = 0;
    for watch in watches {
        assert!(seen <= watch.list_revision, "seed {seed}: a list is older than an event before it");
        seen = watch.seen;
        let of_prefix = |it: &&(Revision, String, Option<String>)| it.1.starts_with(watch.prefix);
        let before = history.iter().filter(|it| it.0 <= watch.list_revision).filter(of_prefix);
        assert_eq!(watch.objects, state_after(before), "seed {seed}: list at {}", watch.list_revision);
        let after = history.iter().filter(|it| watch.list_revision < it.0 && it.0 <= watch.seen);
        let after: Vec<_> = after.filter(of_prefix).cloned().collect();
        assert_eq!(watch.events, after, "seed {seed}: watch after {}", watch.list_revision);
    }
}

/// The events of all objects in the history of etcd: revision, key and value (`None` for a delete).
fn history_of(etcd: &FakeEtcd) -> Vec<(Revision, String, Option<String>)> {
    let keys = Keyspace::new("/m", 0);
    let mut history = Vec::new();
    for (revision, events) in etcd.history() {
        let objects = events.iter().filter(|it| keys.store_key(&it.kv.as_ref().unwrap().key).is_some());
        for (position, event) in objects.enumerate() {
            let kv = event.kv.as_ref().unwrap();
            let key = keys.store_key(&kv.key).unwrap().to_owned();
            let value = (event.r#type() == EventType::Put).then(|| {
                value_of(&load::decode_stored_object(&keys, &ObjectCodec::default(), kv).unwrap().1)
                    .to_owned()
            });
            history.push((keys.resource_version(revision, u8::try_from(position).unwrap()), key, value));
        }
    }
    history
}

/// The objects after some events.
fn state_after<'a>(
    events: impl Iterator<Item = &'a (Revision, String, Option<String>)>,
) -> BTreeMap<String, (Revision, String)> {
    let mut state = BTreeMap::new();
    for (revision, key, value) in events {
        match value {
            Some(value) => drop(state.insert(key.clone(), (*revision, value.clone()))),
            None => drop(state.remove(key)),
        }
    }
    state
}

/// Creates, updates and deletes a few keys that all clients share.
async fn run_client(client: usize, writes: usize, server: &Server, etcd: &FakeEtcd, record: &Mutex<Record>) {
    for number in 0..writes {
        let key = format!("pods/default/{}", etcd.random_below(6));
        let value = format!("{client}-{number}");
        if etcd.random_below(4) == 0 {
            check_barrier(server, record).await;
        }
        let found = server.get(&key);
        let (commit, written) = match (&found, etcd.random_below(5)) {
            (Some(it), 0) => (delete(&key, Precondition::At(it.modified)), None),
            (_, 1) => (put(&key, Precondition::Any, &value), Some(value.clone())),
            (Some(it), _) => (put(&key, Precondition::At(it.modified), &value), Some(value.clone())),
            (None, _) => (put(&key, Precondition::Absent, &value), Some(value.clone())),
        };
        let outcome = server.commit(commit).await;
        let mut record = record.lock().unwrap();
        match outcome {
            Ok(event) => {
                // A client reads its own write from the server that acknowledged it.
                assert!(event.revision <= server.published.read().revision());
                record.acknowledged.push((event.revision, key, written));
            }
            Err(CommitError::OutcomeUnknown { why }) => {
                record.unknown.extend(written);
                record.written_before_reload += usize::from(why.contains("are loaded again"));
            }
            Err(CommitError::Conflict(_) | CommitError::Unavailable { .. }) => record.refused.extend(written),
            Err(CommitError::StorageFull { .. }) => {
                record.refused.extend(written);
                record.refused_without_space += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// After a read barrier a server has every commit that was acknowledged before it, by any server.
async fn check_barrier(server: &Server, record: &Mutex<Record>) {
    let before = record.lock().unwrap().acknowledged.iter().map(|it| it.0).max();
    if server.read_barrier().await {
        assert!(before <= Some(server.published.read().revision()), "a stale read after the barrier");
    }
}

/// Checks the answers of `record`, and the objects of each server. If `are_events_known`, each server has also published
/// every event of etcd.
fn check_history(seed: u64, etcd: &FakeEtcd, servers: &[Server], record: &Record, are_events_known: bool) {
    let history = history_of(etcd);
    let written: HashMap<&str, usize> =
        history.iter().filter_map(|it| it.2.as_deref()).fold(HashMap::new(), |mut counts, value| {
            *counts.entry(value).or_default() += 1;
            counts
        });
    for it in &record.acknowledged {
        assert_eq!(
            history.iter().filter(|found| *found == it).count(),
            1,
            "seed {seed}: {it:?} was acknowledged"
        );
    }
    for it in &record.refused {
        assert_eq!(written.get(&**it), None, "seed {seed}: {it} was refused and is written");
    }
    for it in &record.unknown {
        assert!(written.get(&**it).is_none_or(|count| *count == 1), "seed {seed}: {it} is written twice");
    }
    let state = state_after(history.iter());
    for server in servers {
        assert_eq!(*server.failure.lock().unwrap(), None, "seed {seed}");
        assert_eq!(server.statistics().reloads_after_loss, 0, "seed {seed}: no event was lost");
        let events: Vec<_> = server.events.lock().unwrap().iter().map(|it| line(it)).collect();
        if are_events_known {
            assert_eq!(events, history, "seed {seed}: a server published other events than those of etcd");
        }
        let store = server.published.read();
        let objects: BTreeMap<String, (Revision, String)> =
            store.list("").map(|it| (it.key.to_string(), (it.modified, value_of(it).to_owned()))).collect();
        assert_eq!(objects, state, "seed {seed}");
        for it in store.list("") {
            let version = format!(r#""resourceVersion":"{}""#, it.modified);
            assert!(std::str::from_utf8(&it.value).unwrap().contains(&version), "seed {seed}: {it:?}");
        }
    }
    let keys = Keyspace::new("/m", 0);
    assert_eq!(etcd.keys().iter().filter(|it| keys.store_key(&it.key).is_some()).count(), state.len());
}

fn line(event: &CommitEvent) -> (Revision, String, Option<String>) {
    let value = match &event.change {
        KeyChange::Put { now, .. } => Some(value_of(now).to_owned()),
        KeyChange::Delete { .. } => None,
    };
    (event.revision, event.key.to_string(), value)
}

#[tokio::test(start_paused = true)]
async fn every_answer_is_true_under_faults() {
    let (mut acknowledged, mut refused, mut unknown) = (0, 0, 0);
    for seed in 0..60 {
        let record = run_model(seed, FAULTS, 3, 9, 25).await;
        acknowledged += record.acknowledged.len();
        refused += record.refused.len();
        unknown += record.unknown.len();
    }
    assert!(
        1000 < acknowledged && 100 < refused,
        "{acknowledged} acknowledged, {refused} refused, {unknown} unknown"
    );
}

/// A commit that etcd refused because it has no space must not be written, and the one that filled etcd is.
#[tokio::test(start_paused = true)]
async fn every_answer_is_true_when_etcd_has_no_space() {
    let (mut acknowledged, mut refused) = (0, 0);
    for seed in 0..40 {
        let record = run_model(seed, FULL, 3, 9, 25).await;
        acknowledged += record.acknowledged.len();
        refused += record.refused_without_space;
    }
    assert!(1000 < acknowledged && 100 < refused, "{acknowledged} acknowledged, {refused} refused");
}

#[tokio::test(start_paused = true)]
async fn without_faults_every_commit_has_an_outcome() {
    for seed in 0..20 {
        let record = run_model(seed, FaultRates::default(), 2, 8, 20).await;
        assert!(record.unknown.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_moves_on_when_its_member_loses_its_leader() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    check_leader_loss(&etcd, &etcd).await;
}

/// A server without requests has nothing but its watch to notice that its member is cut off from the others. Its own
/// clients only watch.
async fn check_leader_loss<A: EtcdApi + Clone>(etcd: &FakeEtcd, api: &A) {
    let (idle, busy) = (Server::start(api, "idle").await, Server::start(api, "busy").await);
    busy.commit(put("nodes//n", Precondition::Absent, "1")).await.unwrap();
    etcd.lose_leader(0);
    let last = busy.commit(put("nodes//n", Precondition::Any, "2")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(idle.published.read().revision(), last.revision, "the watch is silent");
}

/// Reading a long history takes longer than a request waits. The watch must not be opened again and again.
#[tokio::test(start_paused = true)]
async fn a_server_catches_up_with_a_long_history() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    write_history(&etcd, 3000);
    etcd.slow_down_watches();
    let server = Server::start(&etcd, "s").await;
    let mut failed = 0;
    while !server.read_barrier().await {
        failed += 1;
    }
    assert!(3 < failed, "{failed}");
    assert_eq!(server.get("nodes//n").map(|it| value_of(&it).to_owned()).as_deref(), Some("2999"));
    assert_eq!((etcd.watches_opened(), server.statistics()), (1, SyncStatistics::default()));
}

/// A server starts although it must read a long history first.
#[test]
fn a_server_with_a_long_history_starts() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    write_history(&etcd, 600);
    etcd.slow_down_watches();
    let options = muster_store::DbOptions {
        window: WIDE,
        limits: StoreLimits::UNLIMITED,
        queue_max: 10,
        on_commit: Box::new(|_| ()),
        on_failure: Box::new(|error| panic!("{error}")),
    };
    let started = std::time::Instant::now();
    let (published, backend) = crate::open(etcd, Keyspace::new("/m", 0), None, options).unwrap();
    assert!(Duration::from_secs(4) < started.elapsed(), "the barrier has not failed");
    assert_eq!(published.read().get("nodes//n").map(|it| value_of(it).to_owned()).as_deref(), Some("599"));
    muster_store::Backend::close(&backend);
}

/// Writes an object often, as other servers did in the past.
fn write_history(etcd: &FakeEtcd, writes: usize) {
    let keys = Keyspace::new("/m", 0);
    for it in 0..writes {
        let CommitWrite::Put { index, draft, .. } = put("nodes//n", Precondition::Any, &it.to_string()).write
        else {
            unreachable!()
        };
        let value = ObjectCodec::default().encode("nodes//n", 0, None, None, &index, &draft).unwrap();
        etcd.write(keys.object_key("nodes//n"), value);
    }
    etcd.write(keys.lane_key("other", 0), Default::default());
}

/// A member may stop sending events without an error. A server without requests must notice it too.
#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_opened_again() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (idle, busy) = (Server::start(&etcd, "idle").await, Server::start(&etcd, "busy").await);
    busy.commit(put("nodes//n", Precondition::Absent, "1")).await.unwrap();
    etcd.stop_watch(0);
    let last = busy.commit(put("nodes//n", Precondition::Any, "2")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(idle.published.read().revision(), last.revision);
    assert_eq!(idle.statistics(), SyncStatistics::default(), "nothing was lost");
}

/// An object whose labels do not fit into a request of etcd together with its JSON, which has them too.
#[tokio::test(start_paused = true)]
async fn an_object_that_etcd_cannot_hold_is_refused_at_once() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    let started = tokio::time::Instant::now();
    let large = put("pods/a/large", Precondition::Absent, &"x".repeat(800_000));
    let refused = server.commit(large).await.map(|it| line(&it));
    let Err(CommitError::TooLarge { bytes, bytes_max }) = refused else { panic!("{refused:?}") };
    assert!(1_600_000 < bytes && bytes_max < 3 << 19, "{bytes} {bytes_max}");
    assert_eq!(started.elapsed(), Duration::ZERO);
    // Because of its labels, the last object needs a transaction of its own.
    let commits = [30_000, 30_000, 30_000, 30_000, 750_000].into_iter().enumerate();
    let commits =
        commits.map(|(it, size)| put(&format!("pods/a/{it}"), Precondition::Absent, &"x".repeat(size)));
    let results = futures::future::join_all(commits.map(|it| server.commit(it))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let bytes_max = |(_, events): &(i64, Vec<crate::proto::Event>)| {
        events.iter().map(|it| it.kv.as_ref().unwrap().value.len()).sum::<usize>() < 3 << 19
    };
    assert!(etcd.history().iter().all(bytes_max));
}

/// etcd rejects a transaction because of one of its commits.
#[tokio::test(start_paused = true)]
async fn a_rejected_commit_does_not_fail_others() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    etcd.reject("/m/o/pods/a/bad");
    let commits = ["1", "2", "bad", "3"].map(|it| put(&format!("pods/a/{it}"), Precondition::Absent, it));
    let results = futures::future::join_all(commits.map(|it| server.commit(it))).await;
    let errors: Vec<_> = results.into_iter().map(|it| it.err().map(|it| it.to_string())).collect();
    let refused = "the storage is not available: etcd rejected the request: injected".to_owned();
    assert_eq!(errors, [None, None, Some(refused), None]);
    assert_eq!(server.published.read().list("").count(), 3);
}

#[tokio::test(start_paused = true)]
async fn commits_that_are_submitted_together_share_a_transaction() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    let commits = (0..250).map(|it| {
        let (server, key) = (server.clone(), format!("pods/default/{it:03}"));
        async move { server.commit(put(&key, Precondition::Absent, "x")).await.unwrap() }
    });
    futures::future::join_all(commits).await;
    let written = etcd.history().iter().filter(|(_, events)| 1 < events.len()).count();
    assert_eq!(written, 3, "100, 100 and 50 commits");
    assert_eq!(server.published.read().list("").count(), 250);
}

#[tokio::test(start_paused = true)]
async fn conflicts_name_the_state_that_refused_the_commit() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
    let created = one.commit(put("nodes//n", Precondition::Absent, "1")).await.unwrap();
    let exists = two.commit(put("nodes//n", Precondition::Absent, "2")).await.unwrap_err();
    assert!(matches!(exists, CommitError::Conflict(CommitConflict::Exists { .. })), "{exists}");
    // The caller reads the object that refused its commit.
    assert_eq!(two.get("nodes//n").unwrap().modified, created.revision);
    let updated = two.commit(put("nodes//n", Precondition::At(created.revision), "2")).await.unwrap();
    let modified = one.commit(put("nodes//n", Precondition::At(created.revision), "3")).await.unwrap_err();
    assert!(matches!(modified, CommitError::Conflict(CommitConflict::Modified { .. })), "{modified}");
    assert_eq!(one.get("nodes//n").unwrap().modified, updated.revision);
    assert_eq!(one.get("nodes//n").unwrap().created, created.revision);
    let mut inside = put("pods/n/p", Precondition::Absent, "p");
    inside.within = Some(("nodes//n".to_owned(), created.revision));
    let moved = two.commit(inside).await.unwrap_err();
    assert!(matches!(moved, CommitError::Conflict(CommitConflict::Modified { .. })), "{moved}");
    one.commit(delete("nodes//n", Precondition::Any)).await.unwrap();
    let missing = two.commit(delete("nodes//n", Precondition::At(updated.revision))).await.unwrap_err();
    assert_eq!(missing, CommitError::Conflict(CommitConflict::Missing));
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_refused_after_another_server_has_changed_its_namespace() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    check_within(&etcd, &etcd).await;
}

/// A server that has not seen yet that another server has terminated or deleted a namespace creates objects in it.
async fn check_within<A: EtcdApi + Clone>(etcd: &FakeEtcd, api: &A) {
    const NAMESPACE: &str = "namespaces//n";
    let (behind, other) = (Server::start(api, "behind").await, Server::start(api, "other").await);
    let within = |key: &str, at: Revision| Commit {
        within: Some((NAMESPACE.to_owned(), at)),
        ..put(key, Precondition::Absent, "x")
    };
    let active = other.commit(put(NAMESPACE, Precondition::Absent, "active")).await.unwrap().revision;
    behind.commit(within("pods/n/before", active)).await.unwrap();
    let changes = [
        ("terminated", put(NAMESPACE, Precondition::Any, "terminating")),
        ("deleted", delete(NAMESPACE, Precondition::Any)),
    ];
    for (change, commit) in changes {
        assert!(behind.read_barrier().await);
        etcd.stop_watch(0);
        let known = behind.get(NAMESPACE).unwrap().modified;
        let changed = other.commit(commit).await.unwrap().revision;
        let created = async |key: &str| behind.commit(within(&format!("{key}-{change}"), known)).await;
        let outside = behind.commit(put(&format!("nodes//{change}"), Precondition::Absent, "x"));
        let resume = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(behind.get(NAMESPACE).unwrap().modified, known);
            etcd.resume_watches();
        };
        // They share a transaction.
        let (pod, outside, map, ()) =
            tokio::join!(created("pods/n/late"), outside, created("configmaps/n/late"), resume);
        for refused in [pod, map] {
            let is_refused = match change {
                "deleted" => matches!(refused, Err(CommitError::Conflict(CommitConflict::Missing))),
                _ => matches!(refused, Err(CommitError::Conflict(CommitConflict::Modified { .. }))),
            };
            assert!(
                is_refused,
                "another server has changed its namespace: {:?}",
                refused.map(|it| line(&it))
            );
        }
        outside.unwrap();
        // The caller reads the namespace that refused its commit.
        assert!(changed <= behind.published.read().revision());
    }
    assert!(other.read_barrier().await);
    let found: Vec<_> = other.published.read().list("").map(|it| it.key.to_string()).collect();
    assert_eq!(found, ["nodes//deleted", "nodes//terminated", "pods/n/before"]);
}

/// A server whose events are ahead of a restored etcd ends: its memory is not the state of etcd.
#[tokio::test(start_paused = true)]
async fn a_server_ends_if_etcd_was_restored_from_a_snapshot() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    for it in 0..3 {
        server.commit(put(&format!("nodes//{it}"), Precondition::Absent, "x")).await.unwrap();
    }
    assert!(server.read_barrier().await);
    etcd.restore(2);
    assert!(!server.read_barrier().await);
    expect_test::expect![
        "etcd is at revision 2, and this server has seen revision 5: etcd was restored from a snapshot. Restart the servers"
    ]
    .assert_eq(server.failure.lock().unwrap().as_deref().unwrap_or_default());
}

/// A caller may first wait for the read that was in progress when it came. Its own time limit counts from then on.
#[tokio::test(start_paused = true)]
async fn a_read_barrier_fails_in_time_although_it_waits_for_an_earlier_read() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    assert!(server.read_barrier().await);
    etcd.silence_reads();
    let wait = async |after: u64| {
        tokio::time::sleep(Duration::from_millis(after)).await;
        let began = tokio::time::Instant::now();
        assert!(!server.read_barrier().await);
        began.elapsed()
    };
    let waited = futures::future::join_all([0, 100, 3_900].map(wait)).await;
    assert!(waited.iter().all(|it| *it < Duration::from_millis(4_500)), "{waited:?}");
}

/// etcd applies the transaction that exceeds the quota, and answers it as if it did not.
#[tokio::test(start_paused = true)]
async fn a_commit_that_fills_etcd_is_acknowledged() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    for is_first in [true, false] {
        etcd.set_full(false);
        etcd.fill_up();
        let key = format!("nodes//{is_first}");
        let created = server.commit(put(&key, Precondition::Absent, "x")).await.unwrap();
        assert_eq!(server.get(&key).unwrap().modified, created.revision);
        let refused = server.commit(put("nodes//refused", Precondition::Absent, "x")).await.unwrap_err();
        assert!(matches!(refused, CommitError::StorageFull { .. }), "{refused}");
        assert!(refused.to_string().contains("etcdctl alarm disarm"), "{refused}");
        server.commit(delete(&key, Precondition::At(created.revision))).await.unwrap();
    }
    assert!(server.read_barrier().await);
    assert_eq!(server.published.read().list("").count(), 0);
}

/// etcd rejects a transaction with a put as a whole, also if it has deletes.
#[tokio::test(start_paused = true)]
async fn an_etcd_without_space_refuses_puts_and_executes_deletes() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (server, other) = (Server::start(&etcd, "s").await, Server::start(&etcd, "other").await);
    for it in 0..3 {
        server.commit(put(&format!("nodes//{it}"), Precondition::Absent, "x")).await.unwrap();
    }
    etcd.set_full(true);
    let update = |key: &str| put(key, Precondition::Any, "y");
    let remove = |key: &str| delete(key, Precondition::Any);
    let refusal = server.commit(update("nodes//0")).await.unwrap_err();
    assert!(matches!(refusal, CommitError::StorageFull { .. }), "{refusal}");
    let together = [update("nodes//0"), remove("nodes//1"), update("nodes//new"), remove("nodes//2")];
    let outcomes = futures::future::join_all(together.map(|it| server.commit(it))).await;
    let refused: Vec<_> = outcomes.iter().map(|it| it.as_ref().err()).collect();
    assert_eq!(refused, [Some(&refusal), None, Some(&refusal), None]);
    // The deletes moved the lanes on, so a read barrier of another server waits for them.
    assert!(other.read_barrier().await);
    assert_eq!(other.published.read().list("").map(|it| &*it.key).collect::<Vec<_>>(), ["nodes//0"]);
    // An object that is deleted after a while gets a deletion timestamp.
    let marked = Commit { class: WriteClass::Deletion, ..put("nodes//0", Precondition::Any, "deleted") };
    let together =
        futures::future::join_all([marked, update("nodes//new")].map(|it| server.commit(it))).await;
    assert!(together[0].is_ok() && together[1].as_ref().is_err_and(|it| *it == refusal), "{together:?}");
    etcd.set_full(false);
    server.commit(update("nodes//0")).await.unwrap();
}

/// A create whose first request is late is refused, because another server has created the object. The late request must
/// not create the object again after it was deleted.
#[tokio::test(start_paused = true)]
async fn a_refused_commit_is_not_made_by_a_late_request() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    check_late_request(&etcd, &etcd).await;
}

/// A create whose first request is late is refused, because another server has created the object. The late request must
/// not create the object again after it was deleted.
async fn check_late_request<A: EtcdApi + Clone>(etcd: &FakeEtcd, api: &A) {
    let (one, two) = (Server::start(api, "one").await, Server::start(api, "two").await);
    etcd.delay_next_transaction(Duration::from_secs(2));
    let late = tokio::spawn({
        let one = one.clone();
        async move { one.commit(put("nodes//n", Precondition::Absent, "late")).await }
    });
    // The request of the first server has left before the second server creates the object.
    etcd.wait_for_delayed_transaction().await;
    let created = two.commit(put("nodes//n", Precondition::Absent, "n")).await.unwrap();
    let refused = late.await.unwrap().unwrap_err();
    assert!(matches!(refused, CommitError::Conflict(CommitConflict::Exists { .. })), "{refused}");
    two.commit(delete("nodes//n", Precondition::At(created.revision))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(two.read_barrier().await);
    assert_eq!(two.get("nodes//n"), None, "a refused commit was made later");
}

/// Callers are answered in time although members do not answer: with an unknown outcome if the commit was sent.
#[tokio::test(start_paused = true)]
async fn commits_without_a_response_are_answered_in_time() {
    for has_lanes in [true, false] {
        let etcd = FakeEtcd::new(1, FaultRates::default());
        let server = Server::start(&etcd, "s").await;
        if has_lanes {
            let first = server.commit(put("nodes//a", Precondition::Absent, "x"));
            let second = async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                server.commit(put("nodes//b", Precondition::Absent, "x")).await
            };
            let (first, second) = tokio::join!(first, second);
            assert!(first.is_ok() && second.is_ok());
        }
        etcd.cut_off_transactions(true);
        let answer = async |(it, after_ms): (usize, u64)| {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            let began = tokio::time::Instant::now();
            let error =
                server.commit(put(&format!("pods/a/{it}"), Precondition::Absent, "x")).await.unwrap_err();
            (began.elapsed(), matches!(error, CommitError::OutcomeUnknown { .. }))
        };
        // The first two have the lanes, and the others wait for one.
        let answers = [0, 10, 20, 1_500, 3_900].into_iter().enumerate().map(answer);
        let answers = futures::future::join_all(answers).await;
        assert!(answers.iter().all(|it| it.0 < Duration::from_millis(4_300)), "{answers:?}");
        let unknown: Vec<bool> = answers.iter().map(|it| it.1).collect();
        assert_eq!(unknown, [has_lanes, has_lanes, false, false, false]);
        etcd.cut_off_transactions(false);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(server.published.read().list("pods/").count(), 0);
        server.commit(put("pods/a/0", Precondition::Absent, "x")).await.unwrap();
    }
}

/// The wait for the events of a commit is a part of the time for it.
#[tokio::test(start_paused = true)]
async fn a_commit_whose_events_do_not_arrive_is_answered_in_time() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "s").await;
    assert!(server.read_barrier().await);
    etcd.stop_watch(0);
    etcd.delay_next_response(Duration::from_secs(3));
    let commits = [0, 5].map(|after_ms| {
        let server = &server;
        async move {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            let began = tokio::time::Instant::now();
            let commit = put(&format!("pods/a/{after_ms}"), Precondition::Absent, "x");
            (server.commit(commit).await.map(|it| line(&it)), began.elapsed())
        }
    });
    for (outcome, elapsed) in futures::future::join_all(commits).await {
        assert!(matches!(outcome, Err(CommitError::OutcomeUnknown { .. })), "{outcome:?}");
        assert!(elapsed < Duration::from_millis(4_300), "{elapsed:?}");
    }
}

/// The process is stopped (SIGSTOP) after an attempt without a response, for so long that another server deletes its
/// lane. Then the object of the commit, which was written, is deleted.
#[tokio::test(start_paused = true)]
async fn a_commit_is_not_repeated_after_the_process_was_stopped_for_long() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (stopped, other) = (Server::start(&etcd, "stopped").await, Server::start(&etcd, "other").await);
    etcd.lose_next_response();
    let commit = tokio::spawn({
        let stopped = stopped.clone();
        async move { stopped.commit(put("pods/a/a", Precondition::Absent, "x")).await }
    });
    etcd.wait_for_lost_response().await;
    etcd.delete_prefix("/m/l/stopped/");
    etcd.delete_prefix("/m/o/pods/");
    tokio::time::advance(Duration::from_secs(1_200)).await;
    let outcome = commit.await.unwrap().map(|it| line(&it));
    assert!(matches!(outcome, Err(CommitError::OutcomeUnknown { .. })), "{outcome:?}");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(other.read_barrier().await);
    assert_eq!(other.get("pods/a/a"), None, "the commit was repeated");
    stopped.commit(put("pods/a/a", Precondition::Absent, "x")).await.unwrap();
}

/// A commit to any state of its object is refused because of a change that the server has not published. It waits for
/// that change.
#[tokio::test(start_paused = true)]
async fn a_commit_without_a_precondition_waits_for_the_watch() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
    one.commit(put("nodes//n", Precondition::Absent, "1")).await.unwrap();
    assert!(two.read_barrier().await);
    etcd.stop_watch(0);
    two.commit(put("nodes//n", Precondition::Any, "2")).await.unwrap();
    let before = etcd.transactions();
    let behind = one.commit(put("nodes//n", Precondition::Any, "3"));
    let resume = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let sent = etcd.transactions() - before;
        assert!(sent < 3, "{sent} transactions");
        etcd.resume_watches();
    };
    let (written, ()) = tokio::join!(behind, resume);
    written.unwrap();
    assert_eq!(value_of(&one.get("nodes//n").unwrap()), "3");
    // Without events the commit fails in time, and was not made.
    etcd.stop_watch(0);
    two.commit(put("nodes//n", Precondition::Any, "4")).await.unwrap();
    let began = tokio::time::Instant::now();
    let refused = one.commit(put("nodes//n", Precondition::Any, "5")).await.map(|it| line(&it));
    assert!(matches!(refused, Err(CommitError::Unavailable { .. })), "{refused:?}");
    assert!(began.elapsed() < Duration::from_millis(4_300), "{:?}", began.elapsed());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(value_of(&two.get("nodes//n").unwrap()), "4");
}

/// Every server process has lanes of its own, so restarts would add keys for ever.
#[tokio::test(start_paused = true)]
async fn a_compaction_deletes_lanes_that_are_no_longer_written() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let lanes = || {
        let lanes = etcd.keys().into_iter().filter(|it| it.key.starts_with(b"/m/l/"));
        lanes.map(|it| String::from_utf8(it.key.to_vec()).unwrap()).collect::<Vec<_>>()
    };
    let (idle, busy) = (Server::start(&etcd, "idle").await, Server::start(&etcd, "busy").await);
    let first = idle.commit(put("nodes//a", Precondition::Absent, "1")).await.unwrap();
    let last = busy.commit(put("nodes//b", Precondition::Absent, "1")).await.unwrap();
    assert_eq!(lanes(), ["/m/l/busy/0", "/m/l/idle/0"]);
    busy.commands.send(Command::Compact(last.revision, None)).map_err(drop).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(lanes(), ["/m/l/busy/0", "/m/l/busy/2"]);
    // The idle server still reads and writes.
    assert!(idle.read_barrier().await);
    assert!(idle.get("nodes//b").is_some());
    idle.commit(put("nodes//a", Precondition::At(first.revision), "2")).await.unwrap();
    assert_eq!(lanes(), ["/m/l/busy/0", "/m/l/busy/2", "/m/l/idle/0"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_server_creates_the_keys_of_the_cluster() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let keys = Keyspace::new("/m", 0);
    assert_eq!(read_cluster_keys(&etcd, &keys).await, Ok(None));
    let create = |value: &'static str| create_cluster_keys(&etcd, &keys, value.into());
    let stored = futures::future::join_all(["one", "two", "three"].map(create)).await;
    assert!(stored.iter().all(|it| *it == stored[0]) && stored[0].is_ok(), "{stored:?}");
    assert_eq!(read_cluster_keys(&etcd, &keys).await.map(|it| it.ok_or(())), stored[0].clone().map(Ok));
    assert_eq!(has_objects(&etcd, &keys).await, Ok(false));
    Server::start(&etcd, "s").await.commit(put("nodes//a", Precondition::Absent, "1")).await.unwrap();
    assert_eq!(has_objects(&etcd, &keys).await, Ok(true));
}

/// A watch that a client began on one server continues on a server that starts later.
#[tokio::test(start_paused = true)]
async fn a_server_that_starts_has_the_history_since_the_last_compaction() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let one = Server::start(&etcd, "one").await;
    let mut revisions = Vec::new();
    for value in ["a", "b", "c", "d"] {
        let expect = revisions.last().map_or(Precondition::Absent, |at| Precondition::At(*at));
        revisions.push(one.commit(put("nodes//n", expect, value)).await.unwrap().revision);
    }
    let history = |server: &Server, from: Revision| {
        let store = server.published.read();
        store.commits_since("", from).map(|it| it.map(|it| it.revision).collect::<Vec<_>>())
    };
    let two = Server::start(&etcd, "two").await;
    assert!(two.read_barrier().await);
    assert_eq!(history(&two, revisions[0]).unwrap(), revisions[1..]);
    one.commands.send(Command::Compact(revisions[2], None)).map_err(drop).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let three = Server::start(&etcd, "three").await;
    assert!(three.read_barrier().await);
    assert_eq!(history(&three, revisions[3] - 1).unwrap(), revisions[3..]);
    assert!(history(&three, revisions[0]).is_err());
    // Another program compacts etcd: the list is made at the current revision.
    etcd.compact_to_current();
    let four = Server::start(&etcd, "four").await;
    assert!(four.read_barrier().await);
    assert_eq!(four.get("nodes//n").map(|it| it.modified), revisions.last().copied());
    assert_eq!(*four.failure.lock().unwrap(), None);
}

/// A leader that was paused compacts the history up to an old revision. So does a request that etcd applies late.
#[tokio::test(start_paused = true)]
async fn the_recorded_compaction_does_not_go_back() {
    const LEASE: &str = "leases.coordination.k8s.io/kube-system/muster-history";
    for (loses_request, has_fence) in [(false, true), (true, true), (false, false), (true, false)] {
        let etcd = FakeEtcd::new(1, FaultRates::default());
        let (one, two) = (Server::start(&etcd, "one").await, Server::start(&etcd, "two").await);
        let recorded = || {
            let found = etcd.keys().into_iter().find(|it| it.key == "/m/m/compacted");
            found.map(|it| String::from_utf8(it.value.to_vec()).unwrap().parse::<i64>().unwrap())
        };
        let acquire = async |server: &Server, expect: Precondition| {
            let lease = Commit { begins_term: true, ..put(LEASE, expect, &server.name) };
            server.commit(lease).await.unwrap().revision
        };
        let compact = async |server: &Server, revision: Revision, at: Revision| {
            let fence = has_fence.then(|| Fence { lease: LEASE.into(), at });
            server.commands.send(Command::Compact(revision, fence)).map_err(drop).unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            recorded()
        };
        let first = acquire(&one, Precondition::Absent).await;
        let keys = Keyspace::new("/m", 0);
        assert_eq!(compact(&one, first, first).await, Some(keys.etcd_revision(first)));
        let old = put_nodes(&one, 5).await;
        if loses_request {
            // The first leader has sent its request.
            etcd.delay_next_transaction_of("/m/m/compacted", Duration::from_secs(10));
            compact(&one, old, first).await;
        }
        let second = acquire(&two, Precondition::At(first)).await;
        let new = put_nodes(&two, 5).await;
        assert_eq!(compact(&two, new, second).await, Some(keys.etcd_revision(new)));
        compact(&one, old, first).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(recorded(), Some(keys.etcd_revision(new)));
        // A later revision than the recorded one does not help a former leader.
        let last = put_nodes(&one, 5).await;
        if has_fence {
            assert_eq!(compact(&one, last, first).await, Some(keys.etcd_revision(new)));
        }
        assert_eq!(compact(&two, last, second).await, Some(keys.etcd_revision(last)));
        // A full etcd can be compacted.
        let last = put_nodes(&two, 1).await;
        etcd.set_full(true);
        assert_eq!(compact(&two, last, second).await, Some(keys.etcd_revision(last)));
    }
}

/// Writes an object a few times. Returns the revision of the last write.
async fn put_nodes(server: &Server, count: usize) -> Revision {
    let mut revision = 0;
    for it in 0..count {
        let written = server.commit(put("nodes//n", Precondition::Any, &it.to_string())).await;
        revision = written.unwrap().revision;
    }
    revision
}

#[tokio::test(start_paused = true)]
async fn two_servers_do_not_allocate_from_the_same_state() {
    check_pools(&FakeEtcd::new(1, FaultRates::default())).await;
}

/// Each server knows only its own allocations and those that it has published.
async fn check_pools<A: EtcdApi + Clone>(api: &A) {
    let (one, two) = (Server::start(api, "one").await, Server::start(api, "two").await);
    let allocate = |name: &str, known: Revision| {
        let allocation = Some(muster_store::Allocation { pool: "services", known });
        Commit { allocation, ..put(&format!("services/default/{name}"), Precondition::Absent, name) }
    };
    let begin = one.published.read().revision();
    // The own allocations of a server do not refuse each other.
    let own = ["a", "b", "c"].map(|it| one.commit(allocate(it, begin)));
    let own: Vec<_> = futures::future::join_all(own).await.into_iter().map(Result::unwrap).collect();
    one.commit(allocate("d", begin)).await.unwrap();
    let refused = two.commit(allocate("e", begin)).await.map(|it| line(&it));
    let allocated = Err(CommitError::Conflict(CommitConflict::Allocated));
    assert_eq!(refused, allocated, "another server has allocated from this state");
    // The caller chooses again, from the state that refused its commit.
    assert!(two.get("services/default/d").is_some());
    let known = two.published.read().revision();
    let last = two.commit(allocate("e", known)).await.unwrap();
    assert!(own.iter().all(|it| it.revision < last.revision));
    let refused = one.commit(allocate("f", begin)).await.unwrap_err();
    assert_eq!(refused, CommitError::Conflict(CommitConflict::Allocated));
    // Other commits are not affected.
    one.commit(put("services/default/f", Precondition::Absent, "f")).await.unwrap();
}

/// Three servers under faults allocate numbers, each the lowest that is free in its published state.
#[tokio::test(start_paused = true)]
async fn no_value_is_allocated_twice_under_faults() {
    for seed in 0..20 {
        let etcd = FakeEtcd::new(seed, FAULTS);
        let mut servers = Vec::new();
        for name in ["one", "two", "three"] {
            servers.push(Server::start(&etcd, name).await);
        }
        let clients = (0..3).flat_map(|it| servers.iter().map(move |server| (it, server.clone())));
        let runs = clients.map(|(client, server)| async move {
            for it in 0..6 {
                let (name, mut attempts) = (format!("{client}-{it}"), 0);
                loop {
                    attempts += 1;
                    assert!(attempts < 500, "seed {seed}: {name} gets no value");
                    // Clients of one server exclude each other, as its allocator does.
                    let known = server.published.read().revision();
                    let value = {
                        let mut pending = server.pending_values.lock().unwrap();
                        let store = server.published.read();
                        let used: Vec<usize> =
                            store.list("services/").map(|it| value_of(it).parse().unwrap()).collect();
                        let free = (0..).find(|it| !used.contains(it) && !pending.contains(it)).unwrap();
                        pending.insert(free);
                        free
                    };
                    let allocation = Some(muster_store::Allocation { pool: "services", known });
                    let key = format!("services/{}/{name}", server.name);
                    let commit = Commit { allocation, ..put(&key, Precondition::Absent, &value.to_string()) };
                    let result = server.commit(commit).await;
                    server.pending_values.lock().unwrap().remove(&value);
                    match result {
                        // An earlier attempt had an unknown outcome, and was applied.
                        Ok(_) | Err(CommitError::Conflict(CommitConflict::Exists { .. })) => break,
                        Err(_) => {}
                    }
                }
            }
        });
        futures::future::join_all(runs).await;
        for server in &servers {
            while !server.read_barrier().await {}
            let store = server.published.read();
            let mut values: Vec<String> = store.list("services/").map(|it| value_of(it).to_owned()).collect();
            let count = values.len();
            values.sort_unstable();
            values.dedup();
            assert_eq!((count, values.len()), (54, 54), "seed {seed}: a value was allocated twice");
        }
    }
}

/// Three servers under faults create objects, each together with an update of one counter, as quotas are charged.
#[tokio::test(start_paused = true)]
async fn linked_updates_are_made_with_their_commit_or_not_at_all() {
    const COUNTER: &str = "resourcequotas/default/q";
    for seed in 0..20 {
        let etcd = FakeEtcd::new(seed, FAULTS);
        let mut servers = Vec::new();
        for name in ["one", "two", "three"] {
            servers.push(Server::start(&etcd, name).await);
        }
        while !matches!(
            servers[0].commit(put(COUNTER, Precondition::Absent, "0")).await,
            Ok(_) | Err(CommitError::Conflict(CommitConflict::Exists { .. }))
        ) {}
        let runs = servers.iter().map(|server| async move {
            for it in 0..8 {
                let (key, mut attempts) = (format!("pods/default/{}-{it}", server.name), 0);
                loop {
                    attempts += 1;
                    assert!(attempts < 500, "seed {seed}: {key} is not created");
                    let Some(counter) = server.get(COUNTER) else {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        continue;
                    };
                    let count: usize = value_of(&counter).parse().unwrap();
                    let next = put(COUNTER, Precondition::Any, &(count + 1).to_string());
                    let CommitWrite::Put { index, draft, .. } = next.write else { unreachable!() };
                    let linked =
                        vec![LinkedUpdate { key: COUNTER.into(), at: counter.modified, index, draft }];
                    match server.commit(Commit { linked, ..put(&key, Precondition::Absent, "pod") }).await {
                        // An earlier attempt had an unknown outcome, and was applied.
                        Ok(_) | Err(CommitError::Conflict(CommitConflict::Exists { .. })) => break,
                        Err(_) => {}
                    }
                }
            }
        });
        futures::future::join_all(runs).await;
        for server in &servers {
            while !server.read_barrier().await {}
            let counter = server.get(COUNTER).unwrap();
            let pods = server.published.read().list("pods/").count();
            assert_eq!((pods, value_of(&counter)), (24, "24"), "seed {seed}, server {}", server.name);
            // The history never shows one without the other.
            let (mut pods, mut count) = (0, 0);
            for event in server.events.lock().unwrap().iter() {
                match &event.change {
                    KeyChange::Put { now, .. } if *event.key == *COUNTER => {
                        count = value_of(now).parse().unwrap();
                        assert_eq!(pods, count, "seed {seed}: revision {}", event.revision);
                    }
                    _ => {
                        assert_eq!(pods, count, "seed {seed}: revision {}", event.revision);
                        pods += 1;
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_lost_its_lease_cannot_write() {
    check_fence(&FakeEtcd::new(1, FaultRates::default())).await;
}

/// A leader that lost its Lease may still have commits on the way.
async fn check_fence<A: EtcdApi + Clone>(api: &A) {
    const LEASE: &str = "leases.coordination.k8s.io/kube-system/muster-scheduler";
    let (one, two) = (Server::start(api, "one").await, Server::start(api, "two").await);
    let acquire =
        |expect: Precondition, holder: &str| Commit { begins_term: true, ..put(LEASE, expect, holder) };
    let fenced = |name: &str, at: Revision| {
        let fence = Some(Fence { lease: LEASE.into(), at });
        Commit { fence, ..put(&format!("pods/default/{name}"), Precondition::Absent, name) }
    };
    let refused = Err(CommitError::Conflict(CommitConflict::Fenced));
    let commit = async |server: &Server, commit: Commit| server.commit(commit).await.map(|it| it.revision);

    let first = one.commit(acquire(Precondition::Absent, "one")).await.unwrap().revision;
    assert_eq!(commit(&one, fenced("before", 0)).await, refused, "it has not held the Lease");
    commit(&one, fenced("a", first)).await.unwrap();
    // A renewal does not begin a term.
    let renewed = one.commit(put(LEASE, Precondition::At(first), "one")).await.unwrap().revision;
    commit(&one, fenced("b", first)).await.unwrap();
    commit(&one, fenced("c", renewed)).await.unwrap();
    let second = two.commit(acquire(Precondition::At(renewed), "two")).await.unwrap().revision;
    // Commits in one transaction: those without a fence, and of another Lease, are written.
    let other = Commit { fence: None, ..fenced("other", 0) };
    let together = [fenced("late", renewed), other, fenced("later", first)].map(|it| commit(&one, it));
    let together = futures::future::join_all(together).await;
    assert!(together[0] == refused && together[1].is_ok() && together[2] == refused, "{together:?}");
    commit(&two, fenced("d", second)).await.unwrap();
    let pods: Vec<_> = two.published.read().list("pods/").map(|it| value_of(it).to_owned()).collect();
    assert_eq!(pods, ["a", "b", "c", "d", "other"]);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_no_transaction_can_hold_is_refused() {
    let etcd = FakeEtcd::new(1, FaultRates::default());
    let server = Server::start(&etcd, "one").await;
    let mut linked = Vec::new();
    for at in 0..300 {
        let key = format!("resourcequotas/default/{at}");
        let revision = server.commit(put(&key, Precondition::Absent, "0")).await.unwrap().revision;
        let CommitWrite::Put { index, draft, .. } = put(&key, Precondition::Any, "1").write else {
            unreachable!()
        };
        linked.push(LinkedUpdate { key, at: revision, index, draft });
    }
    let refused = server.commit(Commit { linked, ..put("pods/default/a", Precondition::Absent, "a") }).await;
    assert!(matches!(refused, Err(CommitError::Unavailable { .. })), "{refused:?}");
    server.commit(put("pods/default/b", Precondition::Absent, "b")).await.unwrap();
    assert!(server.get("pods/default/a").is_none());
}
