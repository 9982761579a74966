//! The backend on a real etcd: the program `etcd` on PATH.

use std::fs::File;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use muster_etcd::proto::{CompactionRequest, RangeRequest, WatchCreateRequest};
use muster_etcd::{EtcdApi as _, EtcdClient, Keyspace};
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
    name: String,
    url: String,
    peer_url: String,
    /// Names and peer URLs of all members.
    initial_cluster: String,
    child: Child,
}

impl Etcd {
    fn start() -> Self {
        Self::start_members(1).remove(0)
    }

    fn start_members(count: usize) -> Vec<Self> {
        let members: Vec<(String, String)> = (0..count).map(|it| (format!("m{it}"), free_url())).collect();
        let initial_cluster: Vec<String> =
            members.iter().map(|(name, url)| format!("{name}={url}")).collect();
        let start = |(name, peer_url): (String, String)| {
            let (dir, url) = (TempDir::new().unwrap(), free_url());
            let initial_cluster = initial_cluster.join(",");
            let child = spawn(dir.path(), &name, (&url, &peer_url), &initial_cluster);
            Self { dir, name, url, peer_url, initial_cluster, child }
        };
        members.into_iter().map(start).collect()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn restart(&mut self) {
        let urls = (&*self.url, &*self.peer_url);
        self.child = spawn(self.dir.path(), &self.name, urls, &self.initial_cluster);
    }

    /// Opens a server on this etcd.
    fn open(&self) -> Db {
        Self::open_at(&self.url)
    }

    /// Opens a server on the etcd with this URL, waiting until etcd responds.
    fn open_at(url: &str) -> Db {
        let began = Instant::now();
        loop {
            let client = EtcdClient::new(&[url.to_owned()], None).unwrap().accept_any_version();
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

    /// Compacts the whole history, as another program may do.
    fn compact(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = EtcdClient::new(std::slice::from_ref(&self.url), None).unwrap().accept_any_version();
            let key = RangeRequest { key: "/".into(), ..RangeRequest::default() };
            let revision = client.range(key).await.unwrap().header.unwrap().revision;
            client.compact(CompactionRequest { revision, physical: true }).await.unwrap();
        });
    }
}

/// A connection to etcd that a test can cut.
struct Proxy {
    url: String,
    state: Arc<Mutex<ProxyState>>,
}

#[derive(Default)]
struct ProxyState {
    is_cut: bool,
    is_closed: bool,
    connections: Vec<TcpStream>,
}

impl Proxy {
    fn to(etcd: &Etcd) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let target = etcd.url.trim_start_matches("http://").to_owned();
        let state: Arc<Mutex<ProxyState>> = Arc::default();
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut state = shared.lock().unwrap();
                match (client, TcpStream::connect(&target)) {
                    _ if state.is_closed => return,
                    (Ok(client), Ok(server)) if !state.is_cut => {
                        for (from, to) in [(&client, &server), (&server, &client)] {
                            to.set_nodelay(true).unwrap();
                            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                            thread::spawn(move || std::io::copy(&mut from, &mut to));
                        }
                        state.connections.extend([client, server]);
                    }
                    _ => {}
                }
            }
        });
        Self { url, state }
    }

    /// Closes all connections, and refuses new ones until [`Proxy::join`].
    fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_cut = true;
        for it in state.connections.drain(..) {
            let _ = it.shutdown(Shutdown::Both);
        }
    }

    fn join(&self) {
        self.state.lock().unwrap().is_cut = false;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.state.lock().unwrap().is_closed = true;
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
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

fn spawn(dir: &Path, name: &str, (url, peer_url): (&str, &str), initial_cluster: &str) -> Child {
    let log = File::create(dir.join("log")).unwrap();
    Command::new("etcd")
        .arg("--data-dir")
        .arg(dir.join("data"))
        .args(["--listen-client-urls", url, "--advertise-client-urls", url])
        .args(["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url])
        .args(["--name", name, "--initial-cluster", initial_cluster])
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("run etcd (Debian has it in etcd-server)")
}

fn commit(db: &Db, key: &str, expect: Precondition, value: usize) -> Result<Arc<CommitEvent>, CommitError> {
    let (said, outcome) = mpsc::channel();
    db.commit(commit_of(key, expect, value), move |it| said.send(it).unwrap_or_default());
    outcome.recv().expect("every commit is answered")
}

fn commit_of(key: &str, expect: Precondition, value: usize) -> Commit {
    let head = format!(r#"{{"value":{value},"metadata":{{"resourceVersion":""#).into_bytes();
    let draft = ObjectDraft { head, tail: br#""}}"#.to_vec() };
    let index = SelectorIndex::new([("value", &*value.to_string())], []);
    Commit {
        key: key.into(),
        expect,
        within: None,
        allocation: None,
        linked: Vec::new(),
        fence: None,
        begins_term: false,
        class: WriteClass::Ordinary,
        write: CommitWrite::Put { index, expires_s: None, draft },
    }
}

fn delete(db: &Db, key: &str) {
    let (said, outcome) = mpsc::channel();
    let commit = Commit { write: CommitWrite::Delete, ..commit_of(key, Precondition::Any, 0) };
    db.commit(commit, move |it| said.send(it).unwrap_or_default());
    outcome.recv().expect("every commit is answered").unwrap();
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
#[ignore = "needs etcd"]
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

/// A member that is cut off from the others has no leader. Its watches must not be silent.
#[test]
#[ignore = "needs etcd"]
fn a_watch_ends_when_its_member_has_no_leader() {
    let mut members = Etcd::start_members(3);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = EtcdClient::new(std::slice::from_ref(&members[0].url), None).unwrap().accept_any_version();
    let all = WatchCreateRequest { key: "/".into(), range_end: "0".into(), ..WatchCreateRequest::default() };
    let began = Instant::now();
    let mut watch = runtime.block_on(async {
        // Until the members have elected a leader, a watch cannot be opened, or it ends.
        loop {
            if let Ok(mut watch) = client.watch(all.clone()).await
                && let Some(Ok(_)) = watch.next().await
            {
                return watch;
            }
            assert!(began.elapsed() < RECOVERY_TIMEOUT);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    members[1].kill();
    members[2].kill();
    let ended = runtime.block_on(async { tokio::time::timeout(RECOVERY_TIMEOUT, watch.next()).await });
    assert!(matches!(ended, Ok(None | Some(Err(_)))), "the watch is silent");
}

#[test]
#[ignore = "needs etcd"]
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

#[test]
#[ignore = "needs etcd"]
fn a_server_that_was_cut_off_while_etcd_was_compacted_goes_on() {
    let etcd = Etcd::start();
    let proxy = Proxy::to(&etcd);
    let (one, two) = (Etcd::open_at(&proxy.url), etcd.open());
    let write = |db: &Db, name: usize, value: usize| {
        commit(db, &format!("nodes//{name:04}"), Precondition::Any, value).unwrap().revision
    };
    for it in 0..1200 {
        write(&two, it, 1);
    }
    assert!(read_barrier(&one));
    let before = one.read().revision();
    assert_eq!(everything(&one, before), everything(&two, before));
    proxy.cut();
    for it in 0..100 {
        write(&two, it, 2);
        write(&two, 2000 + it, 1);
    }
    for it in 500..600 {
        delete(&two, &format!("nodes//{it:04}"));
    }
    etcd.compact();
    assert!(!read_barrier(&one), "it is cut off");
    assert_eq!(one.read().revision(), before);
    proxy.join();
    let began = Instant::now();
    while !read_barrier(&one) {
        assert!(began.elapsed() < RECOVERY_TIMEOUT);
    }
    let reloaded = one.read().revision();
    assert_eq!(one.read().commits_since("", before).err().unwrap().compacted_revision, reloaded);
    // All servers go on with the same events.
    let last = [write(&one, 0, 3), write(&two, 500, 3)];
    assert!(before < reloaded && reloaded < last[0] && last[0] < last[1]);
    assert!(read_barrier(&one));
    assert_eq!(everything(&one, reloaded), everything(&two, reloaded));
    [one, two].iter().for_each(Db::close);
}
