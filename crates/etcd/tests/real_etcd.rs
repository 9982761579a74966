//! The backend on a real etcd: the program `etcd` on PATH.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use muster_etcd::{EtcdClient, Keyspace};
use muster_store::{
    Commit, CommitError, CommitEvent, CommitWrite, Db, DbOptions, HistoryWindow, ObjectDraft, Precondition,
    Revision, SelectorIndex, StoreLimits, WriteClass,
};
use tempfile::TempDir;

/// Time within which a write succeeds again after etcd has returned.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// One member of etcd on loopback.
struct Etcd {
    dir: TempDir,
    url: String,
    peer_url: String,
    child: Child,
}

impl Etcd {
    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let (url, peer_url) = (free_url(), free_url());
        let child = spawn(dir.path(), &url, &peer_url);
        Self { dir, url, peer_url, child }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        self.child = spawn(self.dir.path(), &self.url, &self.peer_url);
    }

    /// Opens a server on this etcd, waiting until etcd responds.
    fn open(&self) -> Db {
        let began = Instant::now();
        loop {
            let client = EtcdClient::new(std::slice::from_ref(&self.url), None).unwrap().accept_any_version();
            let options = DbOptions {
                window: HistoryWindow { events_max: 100_000, bytes_max: usize::MAX },
                limits: StoreLimits::UNLIMITED,
                queue_max: 1_000,
                on_commit: Box::new(|_| ()),
                on_failure: Box::new(|error| panic!("{error}")),
            };
            match muster_etcd::open(client, Keyspace::new("/muster/v1", 0), None, options) {
                Ok((published, backend)) => return Db::new(published, backend),
                Err(error) => assert!(began.elapsed() < RECOVERY_TIMEOUT, "{error:?}"),
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_url() -> String {
    format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
}

fn spawn(dir: &Path, url: &str, peer_url: &str) -> Child {
    let log = File::create(dir.join("log")).unwrap();
    Command::new("etcd")
        .arg("--data-dir")
        .arg(dir.join("data"))
        .args(["--listen-client-urls", url, "--advertise-client-urls", url])
        .args(["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url])
        .args(["--initial-cluster", &format!("default={peer_url}")])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("run etcd (Debian has it in etcd-server)")
}

fn commit(db: &Db, key: &str, expect: Precondition, value: usize) -> Result<Arc<CommitEvent>, CommitError> {
    let head = format!(r#"{{"value":{value},"metadata":{{"resourceVersion":""#).into_bytes();
    let draft = ObjectDraft { head, tail: br#""}}"#.to_vec() };
    let index = SelectorIndex::new([("value", &*value.to_string())], []);
    let write = CommitWrite::Put { index, expires_s: None, draft };
    let commit = Commit {
        key: key.into(),
        expect,
        within: None,
        allocation: None,
        linked: Vec::new(),
        fence: None,
        begins_term: false,
        class: WriteClass::Ordinary,
        write,
    };
    let (said, outcome) = mpsc::channel();
    db.commit(commit, move |it| said.send(it).unwrap_or_default());
    outcome.recv().expect("every commit is answered")
}

fn read_barrier(db: &Db) -> bool {
    let (said, outcome) = mpsc::channel();
    db.read_barrier(move |it| said.send(it.is_ok()).unwrap_or_default());
    outcome.recv().expect("every barrier is answered")
}

/// Reads a counter: its value, and the precondition for its next value.
fn counter(db: &Db, key: &str) -> (usize, Precondition) {
    match db.read().get(key) {
        None => (0, Precondition::Absent),
        Some(it) => (it.index.label("value").unwrap().parse().unwrap(), Precondition::At(it.modified)),
    }
}

/// Increments shared counters through several servers, until `is_over`. Returns how many increments were acknowledged,
/// and how many had no known outcome.
fn increment(db: &Db, client: usize, is_over: impl Fn() -> bool) -> (usize, usize) {
    let (mut acknowledged, mut unknown) = (0, 0);
    while !is_over() {
        let key = format!("counters//{}", (acknowledged + client) % 5);
        let (value, expect) = counter(db, &key);
        match commit(db, &key, expect, value + 1) {
            Ok(event) => {
                acknowledged += 1;
                assert!(event.revision <= db.read().revision(), "a client reads its own write");
            }
            Err(CommitError::Conflict(_)) => {}
            Err(CommitError::Unavailable { .. }) => thread::sleep(Duration::from_millis(50)),
            Err(CommitError::OutcomeUnknown { .. }) => unknown += 1,
            Err(error) => panic!("{error}"),
        }
    }
    (acknowledged, unknown)
}

/// All objects with their revisions, and all commits since the first one that both servers have.
fn everything(db: &Db, from: Revision) -> (Vec<String>, Vec<String>) {
    let store = db.read();
    let objects = store.list("").map(|it| format!("{it:?}")).collect();
    let history =
        store.commits_since("", from).unwrap().map(|it| format!("{} {}", it.revision, it.key)).collect();
    (objects, history)
}

#[test]
fn servers_share_the_state_and_lose_nothing_when_etcd_is_killed() {
    let mut etcd = Etcd::start();
    let servers = [etcd.open(), etcd.open()];
    let from = servers[1].read().revision();
    let over = Arc::new(Mutex::new(false));
    let clients: Vec<_> = (0..6)
        .map(|client| {
            let (db, over) = (servers[client % 2].clone(), over.clone());
            thread::spawn(move || increment(&db, client, || *over.lock().unwrap()))
        })
        .collect();
    for _ in 0..3 {
        thread::sleep(Duration::from_secs(1));
        etcd.kill();
        thread::sleep(Duration::from_millis(500));
        etcd.restart();
        let began = Instant::now();
        while commit(&servers[0], "probe//p", Precondition::Any, 0).is_err() {
            assert!(began.elapsed() < RECOVERY_TIMEOUT, "no write succeeds after etcd has returned");
        }
    }
    thread::sleep(Duration::from_secs(1));
    *over.lock().unwrap() = true;
    let results: Vec<(usize, usize)> = clients.into_iter().map(|it| it.join().unwrap()).collect();
    let (acknowledged, unknown) = results.iter().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    assert!(servers.iter().all(read_barrier));
    let total: usize = (0..5).map(|it| counter(&servers[0], &format!("counters//{it}")).0).sum();
    assert!(
        acknowledged <= total && total <= acknowledged + unknown,
        "the counters are at {total}: {acknowledged} increments were acknowledged, {unknown} are unknown"
    );
    assert!(100 < acknowledged, "{acknowledged}");
    let from = from.max(servers[0].read().compacted_revision());
    assert_eq!(everything(&servers[0], from), everything(&servers[1], from));
    // A server that starts now lists the same objects.
    let third = etcd.open();
    assert_eq!(everything(&third, third.read().revision()).0, everything(&servers[0], from).0);
    servers.iter().for_each(Db::close);
    third.close();
}

#[test]
fn without_etcd_writes_and_reads_fail_in_time() {
    let mut etcd = Etcd::start();
    let db = etcd.open();
    let before = commit(&db, "nodes//n", Precondition::Absent, 1).unwrap();
    etcd.kill();
    let began = Instant::now();
    let error = commit(&db, "nodes//n", Precondition::At(before.revision), 2).unwrap_err();
    assert!(matches!(error, CommitError::OutcomeUnknown { .. } | CommitError::Unavailable { .. }), "{error}");
    assert!(!read_barrier(&db));
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    // Reads that need not be current go on.
    assert_eq!(counter(&db, "nodes//n").0, 1);
    etcd.restart();
    let began = Instant::now();
    while !read_barrier(&db) {
        assert!(began.elapsed() < RECOVERY_TIMEOUT);
    }
    assert_eq!(counter(&db, "nodes//n").0, 1, "a write that failed without being sent is not made later");
    db.close();
}
