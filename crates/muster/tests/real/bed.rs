//! What the tests of real nodes stand on: a cluster in a directory of its own, with an image of busybox, that leaves nothing behind.

#![allow(clippy::print_stdout)]

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{LazyLock, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use muster_agent::local_node::{self, LocalCluster, LocalNode};
use serde_json::{Value, json};

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../bed/mod.rs"]
mod clients;

pub(crate) use clients::{fresh_dir, kubectls};

/// Far longer than anything takes on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// What the image of busybox is called.
pub(crate) const IMAGE: &str = "busybox:1.36";

/// The DaemonSet `app`, whose one container runs this command.
pub(crate) fn daemon_set(command: &[&str]) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "app"},
        "spec": {
            "selector": {"matchLabels": {"app": "app"}},
            "template": {
                "metadata": {"labels": {"app": "app"}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "app", "image": IMAGE, "command": command}],
                },
            },
        },
    })
}

/// One archive for all clusters, made when the first wants it.
static ARCHIVE: OnceLock<PathBuf> = OnceLock::new();

static KUBECTL: LazyLock<PathBuf> =
    LazyLock::new(|| clients::kubectls().into_values().next_back().expect("there is one"));

/// A cluster of real nodes.
pub(crate) struct Cluster {
    pub(crate) dir: PathBuf,
    flags: Vec<String>,
    nodes: u16,
    up: Option<Child>,
}

/// Panics if this machine cannot run real nodes. The message says what is missing.
pub(crate) fn check_prerequisites() {
    if let Some(missing) = local_node::find_missing_prerequisites() {
        panic!("{missing}");
    }
}

impl Cluster {
    /// So many nodes that are Ready.
    pub(crate) fn up(name: &str, nodes: u16) -> Self {
        Self::up_with(name, nodes, &[])
    }

    /// The same, with further flags for `muster up`.
    pub(crate) fn up_with(name: &str, nodes: u16, flags: &[&str]) -> Self {
        check_prerequisites();
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("real-{name}"));
        if dir.exists() {
            // What a run left that was killed.
            let _ = muster(&["down", "--data-dir"]).arg(&dir).output();
            fs::remove_dir_all(&dir).unwrap();
        }
        fs::create_dir_all(dir.join("images")).unwrap();
        fs::copy(archive(), dir.join("images").join("busybox.tar")).unwrap();
        let flags = flags.iter().map(|it| (*it).to_owned()).collect();
        let mut cluster = Self { dir, flags, nodes, up: None };
        cluster.start();
        cluster
    }

    /// Starts it, or starts it again, and waits until its nodes are Ready.
    pub(crate) fn start(&mut self) {
        assert!(self.up.is_none(), "it runs");
        let log = fs::OpenOptions::new().create(true).append(true).open(self.dir.join("up.log")).unwrap();
        let mut command = muster(&["up", "--listen", "127.0.0.1:0", "--nodes", &self.nodes.to_string()]);
        command.args(&self.flags).arg("--data-dir").arg(&self.dir).stdout(Stdio::piped()).stderr(log);
        command.env("PATH", self.search_path());
        let mut up = command.spawn().unwrap();
        let mut stdout = BufReader::new(up.stdout.take().unwrap());
        self.up = Some(up);
        let (said, heard) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            let _ = stdout.read_line(&mut line);
            let _ = said.send(line);
            // Whatever else it says is read, so that it can say it.
            let _ = stdout.read_to_end(&mut Vec::new());
        });
        let line = heard.recv_timeout(PATIENCE).unwrap_or_default();
        assert!(line.starts_with("ready: "), "{line:?}\n{}", self.logs());
    }

    /// The PATH of `muster up`, which finds `etcd` there. MUSTER_TEST_ETCD names another program than the one on PATH.
    fn search_path(&self) -> OsString {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let Some(etcd) = std::env::var_os("MUSTER_TEST_ETCD").filter(|it| !it.is_empty()) else {
            return path;
        };
        let programs = self.dir.join("programs");
        if !programs.exists() {
            fs::create_dir(&programs).unwrap();
            symlink(etcd, programs.join("etcd")).unwrap();
        }
        std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&path))).unwrap()
    }

    /// The same with other flags.
    pub(crate) fn start_with(&mut self, flags: &[&str]) {
        self.flags = flags.iter().map(|it| (*it).to_owned()).collect();
        self.start();
    }

    /// As by `kill -9`: what its nodes run goes on.
    pub(crate) fn kill(&mut self) {
        let mut up = self.up.take().expect("it runs");
        up.kill().unwrap();
        up.wait().unwrap();
    }

    /// As by Ctrl-C. It ends by itself and without an error, and nothing of it is left on the machine.
    pub(crate) fn stop(&mut self) {
        self.interrupt();
        self.has_stopped();
    }

    /// As by Ctrl-C, again and again: its pods are not waited for.
    fn stop_at_once(&mut self) {
        self.interrupt();
        let said = || fs::read_to_string(self.dir.join("up.log")).unwrap_or_default();
        let ends = |it: &str| it.matches("Ctrl-C again").count();
        let before = ends(&said());
        let began = Instant::now();
        // One that has no pods ends by itself.
        while ends(&said()) <= before && began.elapsed() < Duration::from_millis(500) {
            thread::sleep(Duration::from_millis(20));
        }
        self.interrupt();
        self.has_stopped();
    }

    pub(crate) fn interrupt(&self) {
        let up = self.up.as_ref().expect("it runs").id().to_string();
        // It may have ended by now.
        let _ = Command::new("kill").args(["-INT", &up]).stderr(Stdio::null()).status();
    }

    pub(crate) fn has_stopped(&mut self) {
        let up = self.up.take().expect("it runs");
        let status = wait_for(up, PATIENCE);
        assert_eq!(status, Some(0), "{}", self.logs());
        let left = local_node::find_leftovers(&self.dir).unwrap();
        assert_eq!(left.0, Vec::<String>::new(), "it is left after an orderly stop");
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// Where the nodes reach this machine.
    pub(crate) fn address(&self) -> IpAddr {
        self.machine().address().into()
    }

    /// Where a node is on the machine: its address, its network namespace, its processes.
    pub(crate) fn node(&self, number: u16) -> LocalNode {
        self.machine().node(number)
    }

    fn machine(&self) -> LocalCluster {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(LocalCluster::open_or_create(&self.dir)).unwrap()
    }

    pub(crate) fn kubectl_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&*KUBECTL);
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(args).stdin(Stdio::null());
        command
    }

    /// What it prints. It must succeed.
    #[track_caller]
    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        let (is_ok, said) = self.try_kubectl(args);
        assert!(is_ok, "kubectl {}: {said}\n{}", args.join(" "), self.logs());
        said
    }

    /// Whether it succeeds, and what it prints.
    pub(crate) fn try_kubectl(&self, args: &[&str]) -> (bool, String) {
        let output = self.kubectl_command(args).output().unwrap();
        (output.status.success(), said(&output))
    }

    #[track_caller]
    pub(crate) fn apply(&self, manifests: &str) {
        let (is_ok, said) = self.try_apply(manifests);
        assert!(is_ok, "apply: {said}\n{manifests}");
    }

    /// Whether they are taken, and what is said of them.
    pub(crate) fn try_apply(&self, manifests: &str) -> (bool, String) {
        let mut command = self.kubectl_command(&["apply", "-f", "-"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(manifests.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.success(), said(&output))
    }

    /// `kubectl get … -o json`; nothing, if it fails.
    pub(crate) fn get(&self, args: &[&str]) -> Value {
        let args: Vec<&str> = ["get", "-o", "json"].iter().chain(args).copied().collect();
        let output = self.kubectl_command(&args).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Looks again and again until there is an answer.
    #[track_caller]
    pub(crate) fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            if PATIENCE < began.elapsed() {
                let (_, pods) = self.try_kubectl(&["describe", "pods", "-A"]);
                let (_, nodes) = self.try_kubectl(&["get", "nodes", "-o", "wide"]);
                panic!("{what}: not within {} s\n{nodes}\n{pods}\n{}", PATIENCE.as_secs(), self.logs());
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// The pods that a label selects, by node: each must have one of them that is ready. As `kubectl get pod -o json` has them.
    #[track_caller]
    pub(crate) fn ready_pods(&self, selector: &str, count: usize) -> Vec<Value> {
        self.wait(&format!("{count} pods of {selector} that are ready"), || {
            let mut pods = items(&self.get(&["pods", "-A", "-l", selector]));
            pods.sort_by_key(|it| it["spec"]["nodeName"].as_str().unwrap_or_default().to_owned());
            let is_whole = pods.len() == count && pods.iter().all(is_ready);
            is_whole.then_some(pods)
        })
    }

    /// The last words of whatever runs for it.
    pub(crate) fn logs(&self) -> String {
        let mut said = String::new();
        let mut files = vec![self.dir.join("up.log")];
        for number in 1..=self.nodes {
            let node = self.dir.join("nodes").join(format!("node-{number}"));
            files.extend(["agent.log", "containerd.log"].map(|it| node.join(it)));
        }
        for file in files {
            let text = fs::read(&file).unwrap_or_default();
            let text = String::from_utf8_lossy(&text[text.len().saturating_sub(6000)..]).into_owned();
            let _ = writeln!(said, "---- {}\n{text}", file.display());
        }
        said
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !thread::panicking() {
            if self.up.is_some() {
                self.stop_at_once();
            }
            fs::remove_dir_all(&self.dir).unwrap();
            return;
        }
        // Its data stays, for whoever looks why; nothing of it runs on.
        println!("{}", self.logs());
        // A standby process of `--servers` would continue in the place of a `muster up` that is killed alone.
        let standby = find_pids(&format!("--standby-for={}", self.dir.display()));
        let pids = standby.into_iter().chain(self.up.as_ref().map(Child::id)).map(|it| it.to_string());
        let _ = Command::new("kill").arg("-9").args(pids).status();
        if let Some(mut up) = self.up.take() {
            let _ = up.wait();
        }
        let _ = muster(&["down", "--data-dir"]).arg(&self.dir).output();
    }
}

/// The PIDs of the processes that have this command line argument.
pub(crate) fn find_pids(argument: &str) -> Vec<u32> {
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
    let has_argument = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|it| *it == 0).any(|it| it == argument.as_bytes())
    };
    pids.filter(has_argument).collect()
}

pub(crate) fn muster(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.args(args).stdin(Stdio::null());
    command
}

/// An archive with an image of busybox, under its own name and under those of the examples.
pub(crate) fn archive() -> &'static Path {
    ARCHIVE.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("busybox.tar");
        make_image(&path, IMAGE, &std::env::var("PATH").unwrap());
        path
    })
}

/// An image of the busybox that is found there.
pub(crate) fn make_image(archive: &Path, name: &str, path: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/busybox-image");
    let output = Command::new("bash").arg(script).arg(archive).arg(name).env("PATH", path).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

pub(crate) fn newest_kubectl() -> &'static Path {
    &KUBECTL
}

/// The code it ends with by itself; it is killed if it does not.
pub(crate) fn wait_for(mut child: Child, patience: Duration) -> Option<i32> {
    let began = Instant::now();
    while began.elapsed() < patience {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

pub(crate) fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().cloned().unwrap_or_default()
}

pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}
