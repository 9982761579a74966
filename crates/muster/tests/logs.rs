//! An output that cannot be written never blocks a process, and never ends it before its work is done: a full device, a full disk, a
//! closed pipe, or a pipe that is not read.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use http::Request;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(120);
/// A `muster up` that ends in order takes a few seconds; one that is blocked does not end.
const EXIT_MAX: Duration = Duration::from_secs(60);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn fresh_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("log-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

/// A process that is killed when the test ends.
struct Process(Child);

impl Process {
    fn spawn(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    /// The first line that it prints.
    fn ready(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready: "), "{line}");
        line
    }

    fn terminate(self) -> Option<i32> {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.exit_code()
    }

    fn exit_code(mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < EXIT_MAX, "the process does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that logs with every step it takes.
fn talkative(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.args(args).env("RUST_LOG", "trace");
    command
}

/// Every write fails with "no space left on device".
fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

async fn client(kubeconfig: &Path) -> Client {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    Client::try_from(kube::Config::from_custom_kubeconfig(config, &options).await.unwrap()).unwrap()
}

/// A pipe whose reader has closed it.
fn closed() -> PipeWriter {
    std::io::pipe().unwrap().1
}

/// A pipe that is full and that nobody reads while the reader is kept.
fn unread() -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    let (progress, progresses) = sync_channel(0);
    // It ends with an error when the reader is dropped.
    std::thread::spawn(move || while filler.write_all(&[0; 512]).is_ok() && progress.send(()).is_ok() {});
    while progresses.recv_timeout(Duration::from_millis(500)) != Err(RecvTimeoutError::Timeout) {}
    (reader, writer)
}

/// When each node last renewed its lease.
async fn renewals(kubeconfig: &Path) -> Result<BTreeMap<String, String>, kube::Error> {
    let request = Request::get(LEASES).body(Vec::new()).unwrap();
    let leases = client(kubeconfig).await.request::<Value>(request).await?;
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let renewal = |it: &Value| (text(&it["metadata"]["name"]), text(&it["spec"]["renewTime"]));
    Ok(leases["items"].as_array().expect("a list of leases").iter().map(renewal).collect())
}

/// Waits until every one of the nodes has renewed its lease since this was called.
async fn all_renew(kubeconfig: &Path, nodes: usize) {
    let began = Instant::now();
    let mut before = BTreeMap::new();
    // A node may be Ready before it has its lease.
    while before.len() < nodes {
        assert!(began.elapsed() < PATIENCE, "of {nodes} nodes only these have a lease: {before:?}");
        before = renewals(kubeconfig).await.expect("list the leases");
    }
    loop {
        let now = renewals(kubeconfig).await.expect("list the leases");
        if now.len() == nodes && now.iter().all(|(name, renewed)| before.get(name) != Some(renewed)) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "leases were renewed at {before:?}, and are at {now:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn up_and_its_nodes_work_with_standard_error_on_a_full_device() {
    let dir = fresh_dir("full");
    let mut up = talkative(&["up", "--listen", "127.0.0.1:0", "--sim-nodes", "3", "--data-dir"]);
    let mut up = Process::spawn(up.arg(&dir).stdout(Stdio::piped()).stderr(full()));
    up.ready();
    all_renew(&dir.join("kubeconfig"), 3).await;
    assert_eq!(up.terminate(), Some(0));
    fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn up_works_while_nobody_reads_its_standard_error() {
    let dir = fresh_dir("pipe");
    let mut up = talkative(&["up", "--listen", "127.0.0.1:0", "--sim-nodes", "3", "--data-dir"]);
    // The read end stays open, and full.
    let mut up = Process::spawn(up.arg(&dir).stdout(Stdio::piped()).stderr(Stdio::piped()));
    up.ready();
    all_renew(&dir.join("kubeconfig"), 3).await;
    assert_eq!(up.terminate(), Some(0));
    fs::remove_dir_all(&dir).unwrap();
}

#[tokio::test]
async fn the_server_works_with_all_output_on_a_full_device() {
    let dir = fresh_dir("server");
    let mut server = talkative(&["server", "--listen", "127.0.0.1:0", "--data-dir"]);
    let server = Process::spawn(server.arg(&dir).stdout(full()).stderr(full()));
    let (kubeconfig, began) = (dir.join("kubeconfig"), Instant::now());
    while !kubeconfig.exists() {
        assert!(began.elapsed() < PATIENCE, "the server did not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(renewals(&kubeconfig).await.expect("list the leases"), BTreeMap::new());
    let map = json!({"metadata": {"name": "written"}}).to_string().into_bytes();
    let request =
        Request::post("/api/v1/namespaces/default/configmaps").header("Content-Type", "application/json");
    let written = client(&kubeconfig).await.request::<Value>(request.body(map).unwrap()).await;
    assert_eq!(written.expect("create a ConfigMap")["metadata"]["name"], "written");
    assert_eq!(server.terminate(), Some(0));
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_refused_start_ends_while_nobody_reads_its_standard_error() {
    let dir = fresh_dir("refused");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("foreign"), "").unwrap();
    let (_reader, pipe) = unread();
    for command in [&["server", "--data-dir"][..], &["up", "--sim-nodes", "0", "--data-dir"]] {
        let refused = Process::spawn(talkative(command).arg(&dir).stderr(pipe.try_clone().unwrap()));
        assert_eq!(refused.exit_code(), Some(1), "{command:?}");
    }
    let wrong = Process::spawn(talkative(&["server", "--no-such-flag"]).stderr(pipe));
    assert_eq!(wrong.exit_code(), Some(2));
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_server_ends_without_its_lock_while_nobody_reads_its_standard_error() {
    let dir = fresh_dir("lock");
    let (_reader, pipe) = unread();
    let mut server = talkative(&["server", "--listen", "127.0.0.1:0", "--data-dir"]);
    let mut server = Process::spawn(server.arg(&dir).stdout(Stdio::piped()).stderr(pipe));
    server.ready();
    fs::remove_file(dir.join("lock")).unwrap();
    assert_eq!(server.exit_code(), Some(1));
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn up_without_flags_is_ready_while_nobody_reads_its_standard_error() {
    let dir = fresh_dir("flags");
    let (_reader, pipe) = unread();
    let mut up = talkative(&["up", "--listen", "127.0.0.1:0", "--data-dir"]);
    // Without a containerd, so that the nodes are simulated.
    let mut up = Process::spawn(up.arg(&dir).env("PATH", "").stdout(Stdio::piped()).stderr(pipe));
    assert!(up.ready().starts_with("ready: 3 simulated nodes"));
    assert_eq!(up.terminate(), Some(0));
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_server_works_while_nobody_reads_its_standard_output() {
    let dir = fresh_dir("stdout");
    let (_reader, pipe) = unread();
    let mut server = talkative(&["server", "--listen", "127.0.0.1:0", "--data-dir"]);
    let server = Process::spawn(server.arg(&dir).stdout(pipe).stderr(Stdio::null()));
    let began = Instant::now();
    while !dir.join("kubeconfig").exists() {
        assert!(began.elapsed() < PATIENCE, "the server did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(server.terminate(), Some(0));
    fs::remove_dir_all(&dir).unwrap();
}

/// Runs a command with each output that cannot be written, and each time checks that its work is done.
fn check_outputs(command: impl Fn() -> Command, is_done: impl Fn() -> bool) {
    let full_error = "muster: cannot write to standard output: No space left on device (os error 28)\n";
    let shown = command();
    let check = |what: &str, mut command: Command, code: i32| {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{shown:?} with {what}: {said}");
        assert!(is_done(), "{shown:?} with {what} did its work");
        said
    };
    let with = |change: &dyn Fn(&mut Command) -> &mut Command| {
        let mut command = command();
        change(&mut command);
        command
    };
    let said = check("standard output full", with(&|it| it.stdout(full())), 1);
    assert!(said.ends_with(full_error), "{said}");
    let said = check("standard output closed", with(&|it| it.stdout(closed())), 0);
    assert!(!said.contains("standard output"), "{said}");
    check("standard error full", with(&|it| it.stderr(full())), 0);
    check("standard error closed", with(&|it| it.stderr(closed())), 0);
    check("both full", with(&|it| it.stdout(full()).stderr(full())), 1);
    check("both closed", with(&|it| it.stdout(closed()).stderr(closed())), 0);
    let (_reader, pipe) = unread();
    check("standard error not read", with(&|it| it.stderr(pipe.try_clone().unwrap())), 0);
}

#[test]
fn commands_do_their_work_where_their_output_cannot_be_written() {
    let (dir, copies) = (fresh_dir("commands"), fresh_dir("copies"));
    fs::create_dir_all(&copies).unwrap();
    let muster = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(args).arg("--data-dir").arg(&dir).env_remove("KUBECONFIG").env_remove("RUST_LOG");
        command
    };
    let mut up = muster(&["up", "--listen", "127.0.0.1:0", "--sim-nodes", "1"]);
    let mut up = Process::spawn(up.stdout(Stdio::piped()).stderr(Stdio::null()));
    up.ready();
    check_outputs(|| muster(&["cert", "list"]), || true);
    check_outputs(|| muster(&["token", "list"]), || true);
    let tokens = || {
        let listed = muster(&["token", "list"]).output().unwrap();
        String::from_utf8(listed.stdout).unwrap().lines().filter(|it| it.contains("bootstrap")).count()
    };
    let count = std::cell::Cell::new(tokens());
    check_outputs(|| muster(&["token", "create"]), || count.replace(tokens()) + 1 == count.get());
    let copy = copies.join("copy");
    let backup = || {
        let mut command = muster(&["backup"]);
        command.arg(&copy);
        command
    };
    check_outputs(backup, || fs::remove_file(&copy).is_ok());
    check_outputs(
        || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
            command.args(["sim-node", "--kubeconfig"]).arg(dir.join("kubeconfig")).arg("list");
            command
        },
        || true,
    );
    assert_eq!(up.terminate(), Some(0));
    let keys = || fs::read(dir.join("encryption.key")).unwrap();
    let before = std::cell::RefCell::new(keys());
    check_outputs(|| muster(&["encrypt", "--rotate"]), || before.replace(keys()) != *before.borrow());
    check_outputs(|| muster(&["down"]), || true);
    fs::remove_dir_all(&dir).unwrap();
    fs::remove_dir_all(&copies).unwrap();
}

#[test]
fn the_controller_and_the_agent_do_not_panic_with_standard_error_on_a_full_device() {
    let dir = fresh_dir("others");
    fs::create_dir_all(&dir).unwrap();
    let kubeconfig = dir.join("nowhere");
    let cluster = json!({"server": "https://127.0.0.1:1"});
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let mut controller = talkative(&["controller", "--metrics-addr", "off", "--kubeconfig"]);
    let mut controller = Process::spawn(controller.arg(&kubeconfig).stderr(full()));
    let mut agent =
        talkative(&["agent", "--server", "https://127.0.0.1:1", "--token", "abcdef.0123456789abcdef"]);
    agent.args(["--ca-hash", &format!("sha256:{}", "0".repeat(64)), "--node-name", "n", "--root"]);
    let mut agent = Process::spawn(agent.arg(dir.join("agent")).stderr(full()));
    std::thread::sleep(Duration::from_secs(3));
    // The controller waits for its server; the agent may give up, with a message and code 1.
    assert_eq!(controller.0.try_wait().unwrap(), None);
    assert!(agent.0.try_wait().unwrap().is_none_or(|it| it.code() == Some(1)));
    drop(agent);
    assert_eq!(controller.terminate(), Some(0));
    fs::remove_dir_all(&dir).unwrap();
}

/// A small file system of its own, unmounted when the test ends.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(at: PathBuf) -> Self {
        fs::create_dir_all(&at).unwrap();
        let mut mount = Command::new("mount");
        let status = mount.args(["-t", "tmpfs", "-o", "size=40m", "tmpfs"]).arg(&at).status();
        assert!(status.expect("run mount").success(), "only root can mount a tmpfs at {}", at.display());
        Self(at)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

/// Nodes renew their leases while the disk is full, in the space of the store's history, and after it.
#[tokio::test]
#[ignore = "needs root"]
async fn a_full_disk_that_holds_the_log_too_needs_no_restart() {
    let disk = Tmpfs::mount(fresh_dir("disk"));
    let (dir, log) = (disk.0.join("d"), disk.0.join("log"));
    let mut up = Command::new(env!("CARGO_BIN_EXE_muster"));
    up.args(["up", "--listen", "127.0.0.1:0", "--sim-nodes", "3", "--data-dir"])
        .arg(&dir)
        .env_remove("RUST_LOG");
    let mut up = Process::spawn(up.stdout(Stdio::piped()).stderr(File::create(&log).unwrap()));
    up.ready();
    let fill = disk.0.join("fill");
    let mut filling = File::create(&fill).unwrap();
    let block = vec![0; 64 * 1024];
    while filling.write_all(&block).is_ok() {}
    drop(filling);
    // What the store has reserved is used up too.
    let (client, value) = (client(&dir.join("kubeconfig")).await, "x".repeat(60_000));
    let mut refused = false;
    for number in 0..1000 {
        let map = json!({"metadata": {"name": format!("fill-{number}")}, "data": {"k": value}});
        let request =
            Request::post("/api/v1/namespaces/default/configmaps").header("Content-Type", "application/json");
        refused = client.request::<Value>(request.body(map.to_string().into_bytes()).unwrap()).await.is_err();
        if refused {
            break;
        }
    }
    assert!(refused, "the disk is not full");
    // Longer than a heartbeat that failed would take, and its first retries.
    tokio::time::sleep(Duration::from_secs(15)).await;
    all_renew(&dir.join("kubeconfig"), 3).await;
    fs::remove_file(&fill).unwrap();
    all_renew(&dir.join("kubeconfig"), 3).await;
    let said = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = said.lines().filter(|it| it.contains("heartbeat failed")).collect();
    assert!(lines.len() <= 2 * 3, "{} lines in 15 s: {said}", lines.len());
    assert!(lines.iter().all(|it| it.len() < 400 && !it.contains("Status {")), "{said}");
    assert_eq!(up.terminate(), Some(0));
}

/// A server starts on a full disk, answers reads and deletes objects; once there is space, it creates what it could not
/// create at the start.
#[tokio::test]
#[ignore = "needs root"]
async fn a_server_starts_and_deletes_on_a_full_disk() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let disk = Tmpfs::mount(fresh_dir("full-start"));
    let (dir, fill) = (disk.0.join("d"), disk.0.join("fill"));
    let start = || {
        let mut server = Command::new(env!("CARGO_BIN_EXE_muster"));
        server.args(["server", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&dir).env_remove("RUST_LOG");
        let mut server = Process::spawn(server.stdout(Stdio::piped()).stderr(Stdio::null()));
        server.ready();
        server
    };
    let kubeconfig = dir.join("kubeconfig");
    let call = async |method: &str, path: &str, body: Value| -> u16 {
        let request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        match client(&kubeconfig).await.request::<Value>(request.body(body).unwrap()).await {
            Ok(_) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => panic!("{method} {path}: {error}"),
        }
    };
    let map = |name: &str| json!({"metadata": {"name": name}, "data": {"k": "x".repeat(60_000)}});

    let server = start();
    let mut filling = File::create(&fill).unwrap();
    let block = vec![0; 64 * 1024];
    while filling.write_all(&block).is_ok() {}
    drop(filling);
    let mut created = Vec::new();
    loop {
        let name = format!("fill-{}", created.len());
        if call("POST", MAPS, map(&name)).await != 200 {
            break;
        }
        created.push(name);
        assert!(created.len() < 1000, "the disk is not full");
    }
    assert!(2 < created.len(), "the store has no reserve: {created:?}");
    assert_eq!(call("DELETE", &format!("{MAPS}/{}", created[0]), Value::Null).await, 200);
    // A bootstrap object, which the next start creates again.
    let priority = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical";
    drop(server);

    let server = start();
    assert_eq!(call("GET", &format!("{MAPS}/{}", created[1]), Value::Null).await, 200);
    assert_eq!(call("GET", priority, Value::Null).await, 200);
    assert_eq!(call("DELETE", &format!("{MAPS}/{}", created[1]), Value::Null).await, 200);
    for name in &created[2..] {
        assert_eq!(call("GET", &format!("{MAPS}/{name}"), Value::Null).await, 200, "{name}");
    }
    fs::remove_file(&fill).unwrap();
    let began = Instant::now();
    while call("POST", MAPS, map("after")).await != 200 {
        assert!(began.elapsed() < PATIENCE, "creates still fail");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(server.terminate(), Some(0));
}
