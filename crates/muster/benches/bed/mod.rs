//! What the benches share: a server of our own, clients, load, and a table of what came out.

#![allow(clippy::print_stdout, clippy::print_stderr)]
#![allow(dead_code, reason = "each bench takes a part of it")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

/// Eight connections with eight requests each.
pub(crate) const CLIENTS: usize = 8;
pub(crate) const IN_FLIGHT: usize = 64;

/// The length of the answer; its content is not looked at.
pub(crate) async fn send(client: &Client, method: &str, path: &str, body: Vec<u8>) -> kube::Result<usize> {
    let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("Accept", "application/json");
    let request = request.header("Content-Type", media_type).body(body).expect("a request");
    Ok(client.request_text(request).await?.len())
}

pub(crate) async fn clients(kubeconfig: &Path) -> Vec<Client> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let options = KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig.clone(), &options)
            .await
            .expect("a configuration");
        config.read_timeout = None;
        clients.push(Client::try_from(config).expect("a client"));
    }
    clients
}

/// Who serves, and from which processes.
pub(crate) struct Served {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) pids: Vec<u32>,
}

impl Served {
    pub(crate) fn resident_mib(&self) -> f64 {
        self.pids.iter().map(|pid| mib(*pid, "VmRSS:")).sum()
    }
}

/// What the kernel says of a process's memory.
pub(crate) fn mib(pid: u32, what: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|it| it.strip_prefix(what));
    line.and_then(|it| it.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or_default() / 1024.0
}

/// CPU-seconds of a process so far.
pub(crate) fn cpu_s(pid: u32) -> f64 {
    const TICKS_PER_S: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields = stat.rsplit_once(')').map(|(_, it)| it.split_whitespace().collect::<Vec<_>>());
    let ticks = |at: usize| fields.as_ref().and_then(|it| it.get(at)?.parse::<f64>().ok()).expect("a number");
    (ticks(11) + ticks(12)) / TICKS_PER_S
}

/// A process of ours, as soon as it says that it is ready.
pub(crate) fn started(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("start muster");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("ready"), "muster says: {line}");
    child
}

/// Ends a process of ours in order.
pub(crate) fn stop(child: &mut Child) {
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    let _ = child.wait();
}

pub(crate) struct Muster {
    child: Child,
    pub(crate) served: Served,
}

impl Muster {
    /// Starts a server with a data directory. Returns it and the time until `/readyz` succeeded.
    pub(crate) async fn start(dir: &Path) -> (Self, Duration) {
        Self::start_with(dir, &[]).await
    }

    /// Starts a server with a data directory and further flags. Returns it and the time until `/readyz` succeeded.
    pub(crate) async fn start_with(dir: &Path, flags: &[&str]) -> (Self, Duration) {
        let began = Instant::now();
        let child = started(
            Command::new(env!("CARGO_BIN_EXE_muster"))
                .args(["server", "--without", "all", "--listen", "127.0.0.1:0"])
                .args(flags)
                .arg("--data-dir")
                .arg(dir),
        );
        let served = Served { kubeconfig: dir.join("kubeconfig"), pids: vec![child.id()] };
        let kubeconfig = Kubeconfig::read_from(&served.kubeconfig).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.expect("a configuration")).expect("a client");
        send(&client, "GET", "/readyz", Vec::new()).await.expect("it is ready");
        (Self { child, served }, began.elapsed())
    }

    pub(crate) fn stop(mut self) {
        stop(&mut self.child);
    }
}

impl Drop for Muster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Table {
    check: bool,
    pub(crate) broken: Vec<String>,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { check: std::env::args().any(|it| it == "--check"), broken: Vec::new() }
    }

    pub(crate) fn end(self) -> ExitCode {
        for broken in &self.broken {
            eprintln!("broken: {broken}");
        }
        if self.check && !self.broken.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    pub(crate) fn row(&self, name: &str, value: &str, note: &str) {
        println!("{name:<58} {value:>12}  {note}");
    }

    pub(crate) fn at_most(&mut self, name: &str, value: Duration, most: Duration) {
        self.row(name, &format!("{value:.1?}"), &format!("at most {most:?}"));
        if most < value {
            self.broken.push(format!("{name}: {value:.1?}, promised {most:?}"));
        }
    }

    pub(crate) fn memory(&mut self, name: &str, mib: f64, most: f64) {
        self.row(name, &format!("{mib:.1} MiB"), &format!("at most {most} MiB"));
        if most < mib {
            self.broken.push(format!("{name}: {mib:.1} MiB, promised {most}"));
        }
    }
}

/// Creates them all, and gives how many per second.
pub(crate) async fn create(
    clients: &[Client],
    path: &'static str,
    count: usize,
    object: fn(usize) -> Value,
) -> f64 {
    // Serialised before the clock starts, so that the client's part is small.
    let bodies: Arc<Vec<Vec<u8>>> =
        Arc::new((0..count).map(|it| object(it).to_string().into_bytes()).collect());
    let next = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let creating = (0..IN_FLIGHT).map(|index| {
        let (client, bodies, next) = (clients[index % clients.len()].clone(), bodies.clone(), next.clone());
        tokio::spawn(async move {
            while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
                send(&client, "POST", path, body.clone()).await.expect("a create");
            }
        })
    });
    for creating in creating.collect::<Vec<_>>() {
        creating.await.expect("no panic");
    }
    count as f64 / began.elapsed().as_secs_f64()
}

/// Sorts them, too.
pub(crate) fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

pub(crate) fn node(index: usize) -> Value {
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": format!("Kubelet{kind}"), "message": "as it should be",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({
        "metadata": {"name": format!("bench-{index}"), "labels": {
            "bench": "yes", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": format!("bench-{index}"), "topology.kubernetes.io/zone": format!("zone-{}", index % 3)}},
        "spec": {"podCIDR": format!("10.{}.{}.0/24", index / 256, index % 256)},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "64Gi"},
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "64Gi"},
            "conditions": [condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False"), condition("Ready", "True")],
            "addresses": [{"type": "InternalIP", "address": format!("10.200.{}.{}", index / 256, index % 256)},
                {"type": "Hostname", "address": format!("bench-{index}")}],
            "nodeInfo": {"machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "6.1", "osImage": "Debian",
                "containerRuntimeVersion": "containerd://2.0", "kubeletVersion": "v1.36.4", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64"},
        },
    })
}
