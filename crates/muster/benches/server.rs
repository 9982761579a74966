//! What the API server costs, as its clients see it: over TLS, with writes that are on disk before they are answered.
//!
//! `cargo bench -p muster` starts `muster server` and prints a table; with `-- --check` it fails where a promise is broken.
//! `-- --cluster KUBECONFIG --pids 1,2` puts the same load on a server that runs already, whose processes these are.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

const NODES: usize = 5_000;
const PODS: usize = 3_000;
const OBJECTS: usize = 50_000;

/// Eight connections with eight requests each.
const CLIENTS: usize = 8;
const IN_FLIGHT: usize = 64;

const LISTS: usize = 20;

/// From exec to the first answer of `/readyz`.
const READY_MAX: Duration = Duration::from_millis(100);
/// … with 50,000 objects in the store.
const READY_FULL_MAX: Duration = Duration::from_millis(1_500);
const IDLE_MIB_MAX: f64 = 32.0;
const FULL_MIB_MAX: f64 = 67.0;
/// Five times, a tenth and a third of what kube-apiserver did once on two quiet cores: not promised until it is seen.
const CREATES_PER_S_AIM: f64 = 4_400.0;
const LIST_AIM: Duration = Duration::from_millis(21);
const WATCH_P99_AIM: Duration = Duration::from_micros(6_600);

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let after = |flag: &str| args.iter().position(|it| it == flag).and_then(|at| args.get(at + 1));
    let mut table = Table { check: args.iter().any(|it| it == "--check"), broken: Vec::new() };
    match after("--cluster") {
        Some(kubeconfig) => {
            let pids = after("--pids").map(String::as_str).unwrap_or_default();
            let pids = pids.split(',').filter_map(|it| it.parse().ok()).collect();
            load(&mut table, &Served { kubeconfig: kubeconfig.into(), pids }).await;
        }
        None => ours(&mut table).await,
    }
    for broken in &table.broken {
        eprintln!("broken: {broken}");
    }
    if table.check && !table.broken.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

async fn ours(table: &mut Table) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-server");
    let _ = std::fs::remove_dir_all(&dir);
    let mut started = Vec::new();
    for _ in 0..5 {
        let _ = std::fs::remove_dir_all(&dir);
        let (server, took) = Muster::start(&dir).await;
        started.push(took);
        server.stop();
    }
    table.at_most("from exec to ready, empty", median(&mut started), READY_MAX);

    let _ = std::fs::remove_dir_all(&dir);
    let (server, _) = Muster::start(&dir).await;
    load(table, &server.served).await;

    let clients = clients(&server.served.kubeconfig).await;
    create(&clients, "/api/v1/namespaces/default/configmaps", OBJECTS, config_map).await;
    server.stop();
    let mut started = Vec::new();
    for _ in 0..3 {
        let (server, took) = Muster::start(&dir).await;
        started.push(took);
        server.stop();
    }
    table.at_most(
        &format!("from exec to ready, with {OBJECTS} objects"),
        median(&mut started),
        READY_FULL_MAX,
    );
    let _ = std::fs::remove_dir_all(&dir);
}

/// The same for any server.
async fn load(table: &mut Table, served: &Served) {
    let clients = clients(&served.kubeconfig).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    table.memory("resident, idle", served.resident_mib(), IDLE_MIB_MAX);

    create(&clients, "/api/v1/nodes", NODES, node).await;
    let rate = create(&clients, "/api/v1/namespaces/default/pods", PODS, pod).await;
    let name = format!("pods created per second, {IN_FLIGHT} in flight");
    table.row(&name, &format!("{rate:.0}"), &format!("aim: at least {CREATES_PER_S_AIM}"));
    table.memory(&format!("resident, {NODES} nodes and {PODS} pods"), served.resident_mib(), FULL_MIB_MAX);

    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..LISTS {
        let began = Instant::now();
        bytes = send(&clients[0], "GET", "/api/v1/nodes", Vec::new()).await.expect("a list of nodes");
        times.push(began.elapsed());
    }
    let name = format!("a list of {NODES} nodes, {:.1} MiB of JSON", bytes as f64 / 1_048_576.0);
    table.row(&name, &format!("{:.1?}", median(&mut times)), &format!("aim: at most {LIST_AIM:?}"));

    watch(table, &clients, 200, 100, 8).await;
    table.row("", "", &format!("aim: 99 of 100 within {WATCH_P99_AIM:?}"));
    let lost = watch(table, &clients, 1_000, 50, 8).await;
    if lost != 0 {
        table.broken.push(format!("{lost} events did not reach 1,000 watchers"));
    }
    clear(&clients).await;
}

/// Shows how long a write takes to come out of each watch, and says how many events never came.
async fn watch(
    table: &mut Table,
    clients: &[Client],
    watchers: usize,
    writes_per_s: u64,
    seconds: u64,
) -> usize {
    const PATH: &str = "/api/v1/namespaces/default/configmaps";
    let _ = send(&clients[0], "DELETE", &format!("{PATH}/bench"), Vec::new()).await;
    send(&clients[0], "POST", PATH, json!({"metadata": {"name": "bench"}}).to_string().into_bytes())
        .await
        .expect("a map");
    let origin = Instant::now();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel::<Duration>();
    let watching: Vec<_> = (0..watchers)
        .map(|index| {
            let (client, sender) = (clients[index % clients.len()].clone(), sender.clone());
            tokio::spawn(async move {
                let uri = format!("{PATH}?watch=true&fieldSelector=metadata.name%3Dbench&timeoutSeconds=290");
                let request = http::Request::get(uri).body(Vec::new()).expect("a request");
                let mut lines = client.request_stream(request).await.expect("a watch").lines();
                while let Ok(Some(line)) = lines.try_next().await {
                    let Some((_, rest)) = line.split_once("\"at\":\"") else { continue };
                    let at: u64 = rest.split('"').next().and_then(|it| it.parse().ok()).expect("a time");
                    let _ = sender.send(origin.elapsed().saturating_sub(Duration::from_micros(at)));
                }
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut due = tokio::time::interval(Duration::from_micros(1_000_000 / writes_per_s));
    let writes = writes_per_s * seconds;
    for _ in 0..writes {
        due.tick().await;
        let patch = json!({"data": {"at": origin.elapsed().as_micros().to_string()}}).to_string();
        send(&clients[0], "PATCH", &format!("{PATH}/bench"), patch.into_bytes()).await.expect("a patch");
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut delays = Vec::new();
    while let Ok(delay) = receiver.try_recv() {
        delays.push(delay);
    }
    for watching in watching {
        watching.abort();
    }
    let lost = (writes as usize * watchers).saturating_sub(delays.len());
    let p50 = median(&mut delays);
    let p99 = delays.get(delays.len() * 99 / 100).copied().unwrap_or_default();
    let name = format!("from a write to {watchers} watchers, {writes_per_s} per second: median");
    table.row(&name, &format!("{p50:.1?}"), &format!("99 of 100: {p99:.1?}; {lost} lost"));
    lost
}

/// Creates them all, and gives how many per second.
async fn create(clients: &[Client], path: &'static str, count: usize, object: fn(usize) -> Value) -> f64 {
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

async fn clear(clients: &[Client]) {
    for path in ["/api/v1/namespaces/default/pods", "/api/v1/nodes", "/api/v1/namespaces/default/configmaps"]
    {
        let options = json!({"gracePeriodSeconds": 0}).to_string().into_bytes();
        let path = format!("{path}?labelSelector=bench%3Dyes");
        let _ = send(&clients[0], "DELETE", &path, options).await;
    }
}

/// The length of the answer; its content is not looked at.
async fn send(client: &Client, method: &str, path: &str, body: Vec<u8>) -> kube::Result<usize> {
    let media_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("Accept", "application/json");
    let request = request.header("Content-Type", media_type).body(body).expect("a request");
    Ok(client.request_text(request).await?.len())
}

async fn clients(kubeconfig: &Path) -> Vec<Client> {
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
struct Served {
    kubeconfig: PathBuf,
    pids: Vec<u32>,
}

impl Served {
    fn resident_mib(&self) -> f64 {
        let of = |pid: &u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
            line.and_then(|it| it.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or_default()
                / 1024.0
        };
        self.pids.iter().map(of).sum()
    }
}

struct Muster {
    child: Child,
    served: Served,
}

impl Muster {
    /// Starts a server, and says how long it took until `/readyz` said yes.
    async fn start(dir: &Path) -> (Self, Duration) {
        let began = Instant::now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_muster"))
            .args(["server", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .expect("start muster");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("a line");
        assert!(line.starts_with("ready"), "muster says: {line}");
        let served = Served { kubeconfig: dir.join("kubeconfig"), pids: vec![child.id()] };
        let kubeconfig = Kubeconfig::read_from(&served.kubeconfig).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.expect("a configuration")).expect("a client");
        send(&client, "GET", "/readyz", Vec::new()).await.expect("it is ready");
        (Self { child, served }, began.elapsed())
    }

    fn stop(mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

impl Drop for Muster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Table {
    check: bool,
    broken: Vec<String>,
}

impl Table {
    fn row(&self, name: &str, value: &str, note: &str) {
        println!("{name:<58} {value:>12}  {note}");
    }

    fn at_most(&mut self, name: &str, value: Duration, most: Duration) {
        self.row(name, &format!("{value:.1?}"), &format!("at most {most:?}"));
        if most < value {
            self.broken.push(format!("{name}: {value:.1?}, promised {most:?}"));
        }
    }

    fn memory(&mut self, name: &str, mib: f64, most: f64) {
        self.row(name, &format!("{mib:.1} MiB"), &format!("at most {most} MiB"));
        if most < mib {
            self.broken.push(format!("{name}: {mib:.1} MiB, promised {most}"));
        }
    }
}

/// Sorts them, too.
fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn config_map(index: usize) -> Value {
    json!({"metadata": {"name": format!("bench-{index}"), "labels": {"bench": "yes"}},
        "data": {"a": "x".repeat(200), "b": index.to_string()}})
}

fn pod(index: usize) -> Value {
    json!({
        "metadata": {"name": format!("bench-{index}"), "labels": {"bench": "yes", "shard": (index % 16).to_string()}},
        "spec": {
            "schedulerName": "nobody",
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "c",
                "image": "app:1",
                "env": [{"name": "A", "value": "1"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}, "limits": {"memory": "100Mi"}},
                "volumeMounts": [{"name": "log", "mountPath": "/var/log"}],
            }],
            "volumes": [{"name": "log", "hostPath": {"path": "/var/log"}}],
            "tolerations": [{"operator": "Exists"}],
        },
    })
}

fn node(index: usize) -> Value {
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
