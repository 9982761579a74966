//! A log that cannot be written never ends or blocks a process: standard error on a full device, on a full disk, or on a pipe that
//! nobody reads.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http::Request;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(120);
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

    fn terminate(mut self) -> Option<i32> {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.0.wait().unwrap().code()
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

/// When the leases of all nodes were last renewed.
async fn renewals(kubeconfig: &Path) -> Vec<String> {
    let request = Request::get(LEASES).body(Vec::new()).unwrap();
    let Ok(leases) = client(kubeconfig).await.request::<Value>(request).await else { return Vec::new() };
    let renewed = |it: &Value| it["spec"]["renewTime"].as_str().map(str::to_owned);
    leases["items"].as_array().into_iter().flatten().filter_map(renewed).collect()
}

/// Waits until every one of the nodes has renewed its lease since this was called.
async fn all_renew(kubeconfig: &Path, nodes: usize) {
    let (began, before) = (Instant::now(), renewals(kubeconfig).await);
    loop {
        let now = renewals(kubeconfig).await;
        if now.len() == nodes && !now.iter().any(|it| before.contains(it)) {
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
    assert_eq!(renewals(&kubeconfig).await, Vec::<String>::new());
    assert_eq!(server.terminate(), Some(0));
    fs::remove_dir_all(&dir).unwrap();
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
    /// `None` where mounting is not allowed.
    fn mount(at: PathBuf) -> Option<Self> {
        fs::create_dir_all(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=40m", "tmpfs"]).arg(&at).stderr(Stdio::null());
        mount.status().is_ok_and(|it| it.success()).then_some(Self(at))
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
async fn a_full_disk_that_holds_the_log_too_needs_no_restart() {
    let Some(disk) = Tmpfs::mount(fresh_dir("disk")) else {
        eprintln!("SKIPPED a_full_disk_that_holds_the_log_too_needs_no_restart: mounting needs root");
        return;
    };
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
