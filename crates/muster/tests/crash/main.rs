//! The real server, killed again and again while clients write, read and watch: what was answered must have happened,
//! and watches must go on as if nothing had been.

#![allow(clippy::print_stdout)]

mod agent_failover;
#[path = "../cluster/mod.rs"]
mod cluster;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../hostile/connection.rs"]
mod connection;
mod etcd;
mod etcd_backup;
mod etcd_snapshot;
mod feature_level;
mod fencing;
#[path = "../bed/history.rs"]
mod history;
#[path = "../bed/recorder.rs"]
mod recorder;
mod shutdown;
mod transaction_gate;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, future};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt as _};

use history::{History, Revision};
use recorder::{Answer, LABEL, Recorder, WatchEnd, Watcher, number, random, summary};

/// So many in `make test`; another number by MUSTER_TEST_CRASHES.
const ROUNDS: u64 = 100;

const WRITERS: usize = 8;

/// How long the server lives, at least and at most.
const LIFE_MS: (u64, u64) = (50, 400);

/// Longer than any client waits for an answer, and for an event of a watch.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_no_acknowledged_write() {
    let rounds = std::env::var("MUSTER_TEST_CRASHES").map_or(ROUNDS, |it| it.parse().expect("a number"));
    kill_again_and_again("crash", &[], rounds).await;
}

/// Kills a server with these flags while clients write, read and watch, and checks all that they were told.
async fn kill_again_and_again(name: &str, flags: &[&str], rounds: u64) {
    let dir = fresh_dir(name);
    let recorder = Arc::new(Recorder::new(CLIENT_TIMEOUT));

    // Watches begin here, and never list again.
    let server = Server::start_with(&dir, flags);
    let list = server.maps().await.list(&ListParams::default()).await.unwrap();
    let seen = number(list.metadata.resource_version.as_deref());
    let mut watchers = [
        Watcher::new(WatchParams::default().labels(LABEL), seen),
        Watcher::new(WatchParams::default(), seen),
    ];
    let mut server = Some(server);
    for round in 0..rounds {
        let mut running = server.take().unwrap_or_else(|| Server::start_with(&dir, flags));
        let maps = running.maps().await;
        let writers = (0..WRITERS).map(|_| write_until_lost(&recorder, maps.clone()));
        let watching = watchers.iter_mut().map(|it| watch(it, &maps, &recorder, None));
        let life = Duration::from_millis(LIFE_MS.0 + random() % (LIFE_MS.1 - LIFE_MS.0));
        let kill = async {
            tokio::time::sleep(life).await;
            running.child.kill().unwrap();
            running.child.wait().unwrap();
        };
        let all = async { tokio::join!(future::join_all(writers), future::join_all(watching), kill) };
        tokio::time::timeout(Duration::from_secs(60), all)
            .await
            .unwrap_or_else(|_| panic!("round {round}: a client is still waiting for a dead server"));
    }

    // The last word, which every watcher must come to.
    let server = Server::start_with(&dir, flags);
    let maps = server.maps().await;
    assert!(matches!(recorder.list(&maps).await, Answer::Done(())));
    let last = create(&recorder, &maps, "last").await;
    for watcher in &mut watchers {
        watch(watcher, &maps, &recorder, Some(last)).await;
    }
    let told = watchers.map(|it| it.told);
    let history = History { operations: recorder.operations(), watches: told.to_vec() };
    println!(
        "{rounds} crashes: {}; {} commits watched",
        summary(&history.operations),
        history.watches[0].len()
    );
    let wrong = history::check(&history);
    // One that is wrong drags others along: the first say most.
    assert!(wrong.is_empty(), "the data is in {}: {:#?}", dir.display(), &wrong[..wrong.len().min(9)]);
    drop(server);
    fs::remove_dir_all(&dir).unwrap();
}

/// Writes, and sometimes reads, until the connection is lost.
async fn write_until_lost(recorder: &Recorder, maps: Api<ConfigMap>) {
    loop {
        let (key, belief) = recorder.any_key();
        let answer = match (random() % 12, belief) {
            (0, _) => Answer::Refused,
            (1, _) => recorder.list(&maps).await,
            (2..4, Some(on)) => recorder.delete(&maps, &key, on).await,
            (_, on) => recorder.put(&maps, &key, on).await.map(drop),
        };
        // A client whose write came too late reads the object again.
        let answer = match answer {
            Answer::Refused => recorder.get(&maps, &key).await,
            answer => answer,
        };
        match answer {
            Answer::Done(()) => {}
            Answer::Lost => return,
            Answer::Refused | Answer::Failed(_) => panic!("{key}: {answer:?}"),
        }
    }
}

/// Until the connection is lost, or until a revision.
async fn watch(watcher: &mut Watcher, maps: &Api<ConfigMap>, recorder: &Recorder, until: Option<Revision>) {
    match watcher.watch(maps, recorder, CLIENT_TIMEOUT, until).await {
        WatchEnd::Reached | WatchEnd::Lost => {}
        WatchEnd::Refused(status) => {
            panic!("the watch from {} was refused: {}", watcher.seen(), status.message)
        }
        WatchEnd::Silent => panic!("there was no event after {}", watcher.seen()),
    }
}

/// Creates an object that nobody else writes.
async fn create(recorder: &Recorder, maps: &Api<ConfigMap>, key: &str) -> Revision {
    match recorder.put(maps, key, None).await {
        Answer::Done(revision) => revision,
        answer => panic!("create {key}: {answer:?}"),
    }
}

#[tokio::test]
async fn a_backup_is_restored_and_watchers_list_again() {
    let dir = fresh_dir("restore");
    let file = dir.join("backup.db");
    let names = |list: kube::core::ObjectList<ConfigMap>| {
        list.iter().map(|it| it.name_any()).filter(|it| it.starts_with("key")).collect::<Vec<_>>().join(" ")
    };
    let recorder = Recorder::new(CLIENT_TIMEOUT);
    let server = Server::start(&dir);
    let maps = server.maps().await;
    create(&recorder, &maps, "key-before").await;
    // While the server serves.
    let said = run("backup", &dir, &[&file]);
    assert!(said.0 && said.1.starts_with("backed up"), "{said:?}");
    let after = create(&recorder, &maps, "key-after").await;
    let refused = run("restore", &dir, &[&file]);
    let running = format!("another muster (process {}) is running on DIR", server.child.id());
    assert_eq!(refused, (false, format!("muster: {running}: stop that one, or choose another --data-dir\n")));
    server.stop();

    let refused = run("restore", &dir, &[&file]);
    assert_eq!(
        refused,
        (false, "muster: DIR already holds a state: add --replace to replace it; it is kept as muster.db.replaced\n".into())
    );
    let said = run("restore", &dir, &[Path::new("--replace"), &file]);
    assert!(said.0 && said.1.contains("clients must list again"), "{said:?}");

    let server = Server::start(&dir);
    let maps = server.maps().await;
    let list = maps.list(&ListParams::default()).await.unwrap();
    let at = number(list.metadata.resource_version.as_deref());
    assert!(after < at, "revisions that were given out are not given out again: {after}, {at}");
    assert_eq!(names(list), "key-before");
    let events = maps.watch(&WatchParams::default(), &after.to_string()).await.unwrap();
    match events.boxed().next().await {
        Some(Ok(WatchEvent::Error(status))) => assert_eq!(status.code, 410),
        other => panic!("the watch should be told to list again: {other:?}"),
    }
    // It is a state like any other: a clean stop, and on it goes.
    create(&recorder, &maps, "key-new").await;
    server.stop();
    let server = Server::start(&dir);
    assert_eq!(names(server.maps().await.list(&ListParams::default()).await.unwrap()), "key-before key-new");
    server.stop();

    // A server does not start on a damaged file, and says what to do.
    let data = dir.join("muster.db");
    let mut bytes = fs::read(&data).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0);
    fs::write(&data, bytes).unwrap();
    let (is_up, said) = run("server", &dir, &[Path::new("--listen"), Path::new("127.0.0.1:0")]);
    assert!(!is_up && said.starts_with("muster: the data file DIR/muster.db is damaged: "), "{said}");
    assert!(said.contains("Restore a backup with `muster restore --replace`"), "{said}");
    fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn a_lost_database_is_not_a_new_cluster() {
    let dir = fresh_dir("lost");
    let listen = [Path::new("--listen"), Path::new("127.0.0.1:0")];
    let server = Server::start(&dir);
    let cluster = server.cluster_uid().await;
    create(&Recorder::new(CLIENT_TIMEOUT), &server.maps().await, "key-a").await;
    drop(server);

    // After a kill -9 the last writes are in the log alone: without it they are missed.
    let (wal, aside) = (dir.join("muster.db-wal"), dir.join("aside"));
    fs::rename(&wal, &aside).unwrap();
    let (is_up, said) = run("server", &dir, &listen);
    assert!(!is_up && said.contains("its -wal file is missing or was truncated"), "{said}");
    fs::rename(&aside, &wal).unwrap();
    let server = Server::start(&dir);
    assert_eq!(server.cluster_uid().await, cluster);
    server.stop();

    let data = dir.join("muster.db");
    for is_empty in [false, true] {
        fs::rename(&data, &aside).unwrap();
        if is_empty {
            fs::write(&data, "").unwrap();
        }
        let (is_up, said) = run("server", &dir, &listen);
        assert!(!is_up && said.contains("and this data directory had a cluster"), "{said}");
        fs::rename(&aside, &data).unwrap();
    }

    // It is still there, and asked for there is a new cluster.
    let (is_up, said) = run("server", &dir, &[Path::new("--new-cluster"), listen[0], listen[1]]);
    assert!(!is_up && said.contains("DIR/muster.db already has a cluster"), "{said}");
    fs::remove_file(&data).unwrap();
    let server = Server::start_with(&dir, &["--new-cluster"]);
    assert_ne!(server.cluster_uid().await, cluster);
    server.stop();

    // One file of the cluster is enough to know that there was one.
    for file in ["ca.crt", "ca.key", "nodes-ca.crt", "nodes-ca.key", "sa.key", "kubeconfig"] {
        let remains = fresh_dir(&format!("lost-but-{file}"));
        fs::create_dir_all(&remains).unwrap();
        fs::copy(dir.join("lock"), remains.join("lock")).unwrap();
        fs::copy(dir.join(file), remains.join(file)).unwrap();
        let (is_up, said) = run("server", &remains, &listen);
        assert!(!is_up && said.contains("and this data directory had a cluster"), "{file}: {said}");
        fs::remove_dir_all(&remains).unwrap();
    }
    fs::remove_dir_all(&dir).unwrap();
}

/// After a kill -9 the last commits are in muster.db-wal. Nothing in a copy of muster.db alone shows that they are missing.
#[test]
fn a_database_that_was_copied_alone_is_opened_with_a_warning() {
    let (dir, copy) = (fresh_dir("copied-from"), fresh_dir("copied-to"));
    drop(Server::start(&dir));
    fs::create_dir_all(&copy).unwrap();
    fs::copy(dir.join("muster.db"), copy.join("muster.db")).unwrap();
    for is_first in [true, false] {
        let mut server = Server::start(&copy);
        let mut stderr = server.child.stderr.take().unwrap();
        server.stop();
        let mut said = String::new();
        stderr.read_to_string(&mut said).unwrap();
        assert_eq!(
            said.contains("copy muster.db-wal and cluster too, or use `muster backup`"),
            is_first,
            "{said}"
        );
    }
    fs::remove_dir_all(&dir).unwrap();
    fs::remove_dir_all(&copy).unwrap();
}

#[tokio::test]
async fn a_server_ends_when_its_files_are_taken_away() {
    for (name, expected) in [
        ("muster.db", "muster.db was removed or replaced while it was in use"),
        ("cluster", "cluster was removed or replaced while it was in use"),
        ("lock", "lock was removed or replaced while this process held it"),
    ] {
        let dir = fresh_dir(&format!("gone-{name}"));
        let mut server = Server::start(&dir);
        fs::rename(dir.join(name), dir.join("aside")).unwrap();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut server.child.stderr.take().unwrap(), &mut said).unwrap();
        assert_eq!(server.child.wait().unwrap().code(), Some(1), "{said}");
        assert!(said.contains(expected), "{said}");
        // Put back, everything is as it was.
        fs::rename(dir.join("aside"), dir.join(name)).unwrap();
        drop(server);
        Server::start(&dir).stop();
        fs::remove_dir_all(&dir).unwrap();
    }
}

#[tokio::test]
async fn a_killed_encryption_leaves_the_data_as_it_was_or_encrypted() {
    const ROUNDS: usize = 20;
    let dir = fresh_dir("encrypt");
    let is_found = |file: &Path| {
        let content = fs::read(file).unwrap_or_default();
        content.windows(6).any(|it| it == b"aHVudG")
    };
    let server = Server::start(&dir);
    let secrets: Api<Secret> = Api::namespaced(server.client().await, "default");
    for it in 0..50 {
        let secret = Secret {
            metadata: ObjectMeta { name: Some(format!("s-{it}")), ..ObjectMeta::default() },
            data: Some([("password".to_owned(), ByteString(b"hunter2 ".repeat(2000)))].into()),
            ..Secret::default()
        };
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
    server.stop();
    let data = dir.join("muster.db");
    assert!(is_found(&data));
    let mut hits = 0;
    for round in 0..ATTEMPTS_MAX {
        if ROUNDS <= round && 0 < hits {
            break;
        }
        let args = [Path::new(["--rotate", "--decrypt"][round % 2])];
        hits += usize::from(killed_while_converting("encrypt", &dir, &args, round).await);
        let server = Server::start(&dir);
        let secrets: Api<Secret> = Api::namespaced(server.client().await, "default");
        let found = secrets.list(&ListParams::default()).await.unwrap();
        let whole =
            found.iter().filter(|it| it.data.as_ref().is_some_and(|it| it["password"].0.len() == 16_000));
        assert_eq!(whole.count(), 50, "round {round}");
        server.stop();
    }
    assert!(0 < hits, "no kill came while the data file was converted");
    let (is_done, said) = run("encrypt", &dir, &[]);
    assert!(is_done, "{said}");
    assert!(!is_found(&data) && !dir.join("muster.db-wal").exists(), "nothing is left in clear");
    let server = Server::start(&dir);
    drop(server);
    assert!(!is_found(&dir.join("muster.db-wal")));
    let key = dir.join("encryption.key");
    fs::rename(&key, dir.join("aside")).unwrap();
    let (is_up, said) = run("server", &dir, &[Path::new("--listen"), Path::new("127.0.0.1:0")]);
    assert!(!is_up && said.contains("are encrypted with key "), "{said}");
    fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn a_killed_restore_leaves_the_old_cluster_or_the_restored_one() {
    const ROUNDS: usize = 12;
    let dir = fresh_dir("restore-killed");
    let file = dir.with_extension("backup");
    let _ = fs::remove_file(&file);
    let large = |name: &str| Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([("value".to_owned(), ByteString(b"content ".repeat(4000)))].into()),
        ..Secret::default()
    };
    let mut server = Server::start(&dir);
    let secrets: Api<Secret> = Api::namespaced(server.client().await, "default");
    for it in 0..50 {
        secrets.create(&PostParams::default(), &large(&format!("s-{it:02}"))).await.unwrap();
    }
    let said = run("backup", &dir, &[&file]);
    assert!(said.0, "{said:?}");
    let backed_up = whole(&secrets).await.0;
    let args = [Path::new("--replace"), &file];
    let (mut hits, mut old_again, mut restored, mut refused) = (0, 0, 0, 0);
    for round in 0..ATTEMPTS_MAX {
        if ROUNDS <= round && 0 < hits {
            break;
        }
        // What the backup does not have.
        let secrets: Api<Secret> = Api::namespaced(server.client().await, "default");
        secrets.create(&PostParams::default(), &large(&format!("new-{round:02}"))).await.unwrap();
        let (old, revision) = whole(&secrets).await;
        // Every other time there is a write-ahead log.
        if round % 4 < 2 {
            server.stop();
        } else {
            drop(server);
        }
        let is_hit = killed_while_converting("restore", &dir, &args, round).await;
        hits += usize::from(is_hit);
        server = match Server::try_start(&dir) {
            Ok(server) => server,
            Err(said) => {
                assert!(said.contains("muster restore --replace"), "round {round}: {said}");
                let has_old = [dir.join("muster.db"), dir.join("muster.db.replaced")];
                assert!(has_old.iter().any(|it| it.exists()), "round {round}: {said}");
                refused += 1;
                let said = run("restore", &dir, &args);
                assert!(said.0, "round {round}: {said:?}");
                Server::start(&dir)
            }
        };
        let (found, now) = whole(&Api::namespaced(server.client().await, "default")).await;
        assert!(revision <= now, "round {round}: a revision went back from {revision} to {now}");
        if found == old {
            old_again += 1;
        } else {
            assert_eq!(found, backed_up, "round {round}");
            restored += 1;
            // The old database is kept, whole.
            let kept = fresh_dir("restore-kept");
            let said = run("restore", &kept, &[&dir.join("muster.db.replaced")]);
            assert!(said.0, "round {round}: {said:?}");
            let server = Server::start(&kept);
            let secrets = Api::namespaced(server.client().await, "default");
            assert_eq!(whole(&secrets).await.0, old, "round {round}");
            drop(server);
            fs::remove_dir_all(&kept).unwrap();
        }
    }
    println!("{hits} kills hit: {old_again} times the old cluster, {restored} restored, {refused} refused");
    assert!(0 < hits, "no kill came while the backup was restored");
    assert!(0 < restored, "no kill came after the backup had taken the place of the old cluster");
    drop(server);
    fs::remove_file(&file).unwrap();
    fs::remove_dir_all(&dir).unwrap();
}

/// The Secrets of the tests, each of which must be whole, and the revision of the list.
async fn whole(secrets: &Api<Secret>) -> (Vec<String>, Revision) {
    let found = secrets.list(&ListParams::default()).await.unwrap();
    let is_whole = |it: &Secret| it.data.as_ref().is_some_and(|it| it["value"].0.len() == 32_000);
    assert!(found.iter().all(is_whole));
    let names = found.iter().map(kube::ResourceExt::name_any).collect();
    (names, number(found.metadata.resource_version.as_deref()))
}

/// Maximum number of rounds until a kill hits a command while it replaces the data file. On a busy machine the kill often comes too late.
const ATTEMPTS_MAX: usize = 150;

/// Runs a command that replaces the data file, and kills it: in even rounds whenever, in odd ones once the new file is begun, or once it
/// has taken its name. From round 20 on it is always killed once the new file is begun.
/// `true` if the command had begun the new file and was not done with it.
async fn killed_while_converting(command: &str, dir: &Path, args: &[&Path], round: usize) -> bool {
    let partial = dir.join("muster.db.partial");
    let mut muster = Command::new(env!("CARGO_BIN_EXE_muster"));
    let muster = muster.arg(command).arg("--data-dir").arg(dir).args(args);
    let mut child = muster.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let round = if round < 20 { round } else { 1 };
    if round.is_multiple_of(2) {
        tokio::time::sleep(Duration::from_millis(random() % 60)).await;
    } else {
        while !partial.exists() && child.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        if round % 4 == 1 {
            // From "as soon as the file exists" to "about when it is complete".
            let delay_max_us = 3_000 * (round as u64 - 1);
            tokio::time::sleep(Duration::from_micros(random() % delay_max_us.max(1))).await;
        }
        while round % 4 == 3 && partial.exists() {
            std::hint::spin_loop();
        }
    }
    child.kill().unwrap();
    let is_killed = child.wait().unwrap().signal().is_some();
    is_killed && partial.exists()
}

/// Runs a command. Returns whether it succeeded, and its output.
fn run(command: &str, dir: &Path, args: &[&Path]) -> (bool, String) {
    let mut muster = Command::new(env!("CARGO_BIN_EXE_muster"));
    let output = muster.arg(command).arg("--data-dir").arg(dir).args(args).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).replace(&dir.display().to_string(), "DIR"))
}

/// Sends a signal to a server. `name` is the flag of `kill`, such as `-STOP`.
fn signal(server: &Server, name: &str) {
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

struct Server {
    child: Child,
    kubeconfig: PathBuf,
}

impl Server {
    fn start(dir: &Path) -> Self {
        Self::start_with(dir, &[])
    }

    fn start_with(dir: &Path, args: &[&str]) -> Self {
        Self::spawn(dir, args).unwrap_or_else(|said| panic!("the server did not start: {said}"))
    }

    /// A server, or what it said when it refused to start.
    fn try_start(dir: &Path) -> Result<Self, String> {
        Self::spawn(dir, &[])
    }

    fn spawn(dir: &Path, args: &[&str]) -> Result<Self, String> {
        let listen: &[&str] = if args.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
        let mut child = Command::new(env!("CARGO_BIN_EXE_muster"))
            .args(["server", "--data-dir"])
            .arg(dir)
            .args(listen)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut server = Self { child, kubeconfig: dir.join("kubeconfig") };
        if line.starts_with("ready") {
            return Ok(server);
        }
        let mut said = line;
        server.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        Err(said)
    }

    /// As the machine's own init would: it ends by itself.
    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }

    async fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client().await, "default")
    }

    /// As nodes know a cluster.
    async fn cluster_uid(&self) -> String {
        let namespaces: Api<Namespace> = Api::all(self.client().await);
        namespaces.get("kube-system").await.unwrap().uid().unwrap()
    }

    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }
}

/// A test that fails must not leave a server behind.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fresh_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if dir.exists() {
        fs::remove_dir_all(&dir).unwrap();
    }
    dir
}
