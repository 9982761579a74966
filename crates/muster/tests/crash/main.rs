//! The real server, killed again and again while clients write, read and watch: what was answered must have happened,
//! and watches must go on as if nothing had been.

#![allow(clippy::print_stdout)]

mod agent_failover;
mod etcd;
mod etcd_backup;
mod history;

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, future};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt as _};

use history::{Commit, History, NEVER, Operation, Outcome, Revision, Tick, Told, Version, What};

/// So many in `make test`; another number by MUSTER_TEST_CRASHES.
const ROUNDS: u64 = 100;

const WRITERS: usize = 8;
const KEYS: u64 = 6;

/// How long the server lives, at least and at most.
const LIFE_MS: (u64, u64) = (50, 400);

const LABEL: &str = "crash=test";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_keeps_its_word() {
    let rounds = std::env::var("MUSTER_TEST_CRASHES").map_or(ROUNDS, |it| it.parse().expect("a number"));
    kill_again_and_again("crash", &[], rounds).await;
}

/// Kills a server with these flags while clients write, read and watch, and checks all that they were told.
async fn kill_again_and_again(name: &str, flags: &[&str], rounds: u64) {
    let dir = fresh_dir(name);
    let clients = Arc::new(Clients::default());

    // Watches begin here, and never list again.
    let server = Server::start_with(&dir, flags);
    let seen =
        server.maps().await.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let mut watchers = [Watcher::new(WatchParams::default().labels(LABEL), &seen), {
        Watcher::new(WatchParams::default(), &seen)
    }];
    let mut server = Some(server);
    for round in 0..rounds {
        let mut running = server.take().unwrap_or_else(|| Server::start_with(&dir, flags));
        let maps = running.maps().await;
        let writers = (0..WRITERS).map(|_| clients.write_until_lost(maps.clone()));
        let watching = watchers.iter_mut().map(|it| it.watch(&maps, &clients, None));
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
    clients.list(&maps).await.unwrap();
    let last = clients.put(&maps, "last", None).await.unwrap().expect("nobody else writes it");
    for watcher in &mut watchers {
        watcher.watch(&maps, &clients, Some(last)).await;
    }
    let told = watchers.map(|it| it.told);
    let history = History { operations: clients.operations.lock().unwrap().clone(), watches: told.to_vec() };
    println!("{rounds} crashes: {}", summary(&history));
    let wrong = history::check(&history);
    // One that is wrong drags others along: the first say most.
    assert!(wrong.is_empty(), "the data is in {}: {:#?}", dir.display(), &wrong[..wrong.len().min(9)]);
    drop(server);
    fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn a_backup_is_restored_and_watchers_list_again() {
    let dir = fresh_dir("restore");
    let file = dir.join("backup.db");
    let names = |list: kube::core::ObjectList<ConfigMap>| {
        list.iter().map(|it| it.name_any()).filter(|it| it.starts_with("key")).collect::<Vec<_>>().join(" ")
    };
    let clients = Clients::default();
    let server = Server::start(&dir);
    let maps = server.maps().await;
    clients.put(&maps, "key-before", None).await.unwrap();
    // While the server serves.
    let said = run("backup", &dir, &[&file]);
    assert!(said.0 && said.1.starts_with("backed up"), "{said:?}");
    let after = clients.put(&maps, "key-after", None).await.unwrap().unwrap();
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
    clients.put(&maps, "key-new", None).await.unwrap();
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
    Clients::default().put(&server.maps().await, "key-a", None).await.unwrap();
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
    fs::remove_dir_all(&dir).unwrap();
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

fn summary(history: &History) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for operation in &history.operations {
        let name = match &operation.what {
            What::Get { .. } => "gets",
            What::List { .. } => "lists",
            What::Put { outcome, .. } | What::Delete { outcome, .. } => match outcome {
                Outcome::Done(_) => "writes done",
                Outcome::Refused => "writes refused",
                Outcome::Unknown => "writes without an answer",
            },
        };
        *counts.entry(name).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    format!("{}; {} commits watched", counts.join(", "), history.watches[0].len())
}

/// All that the clients share.
#[derive(Default)]
struct Clients {
    clock: AtomicU64,
    operations: Mutex<Vec<Operation>>,
    /// What someone saw last under each key: writers begin from it, and often it is too late.
    beliefs: Mutex<BTreeMap<String, Option<Revision>>>,
}

/// The connection was lost before an answer came.
#[derive(Debug)]
struct Lost;

impl Clients {
    fn tick(&self) -> Tick {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn record(&self, begin: Tick, what: What) {
        let is_unknown = matches!(
            what,
            What::Put { outcome: Outcome::Unknown, .. } | What::Delete { outcome: Outcome::Unknown, .. }
        );
        let end = if is_unknown { NEVER } else { self.tick() };
        self.operations.lock().unwrap().push(Operation { begin, end, what });
    }

    fn believe(&self, key: &str, revision: Option<Revision>) {
        self.beliefs.lock().unwrap().insert(key.to_owned(), revision);
    }

    async fn write_until_lost(&self, maps: Api<ConfigMap>) {
        loop {
            let key = format!("key-{}", random() % KEYS);
            let belief = self.beliefs.lock().unwrap().get(&key).copied().flatten();
            let done = match (random() % 12, belief) {
                (0, _) => Ok(None),
                (1, _) => self.list(&maps).await.map(Some),
                (2..4, Some(on)) => self.delete(&maps, &key, on).await,
                (_, on) => self.put(&maps, &key, on).await.map(|it| it.map(drop)),
            };
            // Whoever came too late looks again.
            let done = match done {
                Ok(None) => self.get(&maps, &key).await,
                Ok(Some(())) => Ok(()),
                Err(Lost) => Err(Lost),
            };
            if done.is_err() {
                return;
            }
        }
    }

    async fn get(&self, maps: &Api<ConfigMap>, key: &str) -> Result<(), Lost> {
        let begin = self.tick();
        let seen = match maps.get(key).await {
            Ok(map) => Some(version(&map)),
            Err(error) if refused(&error)? => None,
            Err(error) => panic!("get {key}: {error}"),
        };
        self.record(begin, What::Get { key: key.to_owned(), seen: seen.clone() });
        self.believe(key, seen.map(|it| it.revision));
        Ok(())
    }

    async fn list(&self, maps: &Api<ConfigMap>) -> Result<(), Lost> {
        let begin = self.tick();
        let list = match maps.list(&ListParams::default().labels(LABEL)).await {
            Ok(list) => list,
            Err(error) => return refused(&error).map(|_| panic!("list: {error}")),
        };
        let at = number(list.metadata.resource_version.as_deref());
        let seen = list.iter().map(|it| (it.name_any(), version(it))).collect();
        self.record(begin, What::List { at, seen });
        Ok(())
    }

    /// Nothing is given back if the server refused.
    async fn put(
        &self,
        maps: &Api<ConfigMap>,
        key: &str,
        on: Option<Revision>,
    ) -> Result<Option<Revision>, Lost> {
        let begin = self.tick();
        let value = begin.to_string();
        let (label, said) = LABEL.split_once('=').expect("a label is a pair");
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(key.to_owned()),
                labels: Some([(label.to_owned(), said.to_owned())].into()),
                resource_version: on.map(|it| it.to_string()),
                ..ObjectMeta::default()
            },
            data: Some([("value".to_owned(), value.clone())].into()),
            ..ConfigMap::default()
        };
        let written = match on {
            None => maps.create(&PostParams::default(), &map).await,
            Some(_) => maps.replace(key, &PostParams::default(), &map).await,
        };
        let (outcome, revision) = match written {
            Ok(map) => {
                let revision = version(&map).revision;
                (Outcome::Done(Some(revision)), Some(revision))
            }
            Err(error) => match refused(&error) {
                Ok(true) => (Outcome::Refused, None),
                Ok(false) => panic!("write {key}: {error}"),
                Err(Lost) => (Outcome::Unknown, None),
            },
        };
        let is_lost = outcome == Outcome::Unknown;
        self.record(begin, What::Put { key: key.to_owned(), value, on, outcome });
        self.believe(key, revision);
        if is_lost { Err(Lost) } else { Ok(revision) }
    }

    async fn delete(&self, maps: &Api<ConfigMap>, key: &str, on: Revision) -> Result<Option<()>, Lost> {
        let begin = self.tick();
        let resource_version = Some(on.to_string());
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: None, resource_version }),
            ..DeleteParams::default()
        };
        let outcome = match maps.delete(key, &params).await {
            Ok(_) => Outcome::Done(None),
            Err(error) => match refused(&error) {
                Ok(true) => Outcome::Refused,
                Ok(false) => panic!("delete {key}: {error}"),
                Err(Lost) => Outcome::Unknown,
            },
        };
        self.record(begin, What::Delete { key: key.to_owned(), on, outcome: outcome.clone() });
        self.believe(key, None);
        match outcome {
            Outcome::Done(_) => Ok(Some(())),
            Outcome::Refused => Ok(None),
            Outcome::Unknown => Err(Lost),
        }
    }
}

/// Goes on from where it was, server after server.
struct Watcher {
    params: WatchParams,
    seen: String,
    told: Vec<Told>,
}

impl Watcher {
    fn new(params: WatchParams, seen: &str) -> Self {
        Self { params, seen: seen.to_owned(), told: Vec::new() }
    }

    /// Until the connection is lost, or until a revision.
    async fn watch(&mut self, maps: &Api<ConfigMap>, clients: &Clients, until: Option<Revision>) {
        let Ok(events) = maps.watch(&self.params, &self.seen).await else { return };
        let mut events = events.boxed();
        while until.is_none_or(|it| number(Some(&self.seen)) < it) {
            let Some(Ok(event)) = events.next().await else { return };
            let at = clients.tick();
            let (map, is_gone) = match event {
                WatchEvent::Added(map) | WatchEvent::Modified(map) => (map, false),
                WatchEvent::Deleted(map) => (map, true),
                WatchEvent::Bookmark(bookmark) => {
                    self.seen = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => panic!("the watch from {} was refused: {status:?}", self.seen),
            };
            let Version { value, revision } = version(&map);
            self.seen = revision.to_string();
            if map.labels().contains_key("crash") {
                let commit = Commit { revision, key: map.name_any(), value: (!is_gone).then_some(value) };
                self.told.push(Told { at, commit });
            }
        }
    }
}

fn version(map: &ConfigMap) -> Version {
    let value = map.data.as_ref().and_then(|it| it.get("value")).cloned().unwrap_or_default();
    Version { value, revision: number(map.resource_version().as_deref()) }
}

fn number(revision: Option<&str>) -> Revision {
    revision.expect("there is one").parse().expect("it is a number")
}

/// Whether the server said that the key is not as the client believed; an error if it said nothing.
fn refused(error: &kube::Error) -> Result<bool, Lost> {
    match error {
        kube::Error::Api(status) => Ok(matches!(status.code, 404 | 409)),
        _ => Err(Lost),
    }
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

fn random() -> u64 {
    RandomState::new().hash_one(0)
}

fn fresh_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if dir.exists() {
        fs::remove_dir_all(&dir).unwrap();
    }
    dir
}
