//! `muster up`, whole: server, loops and simulated nodes in one process. How soon its nodes are Ready, and what a DaemonSet on all
//! of them costs, made and rolled a tenth at a time.
//!
//! `cargo bench -p muster --bench up` prints a table; with `-- --check` it fails where a promise is broken, and with
//! `-- --nodes 1000,2000` the fleets are others.

mod bed;

use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use bed::{Table, clients, send};
use kube::Client;
use serde_json::{Value, json};

/// From exec until each of 1,000 nodes is Ready, without a taint.
const READY_MAX: Duration = Duration::from_secs(5);

/// What a DaemonSet on 5,000 nodes, created and rolled, took with kube-apiserver, etcd, kube-controller-manager and simulated kubelets
/// on two quiet cores, without the kubelets' CPU and memory. PROMISES.md has a later run, in which upstream needed less.
const UPSTREAM_NODES: usize = 5_000;
const UPSTREAM_S: f64 = 83.5;
const UPSTREAM_CPU_S: f64 = 134.0;
const UPSTREAM_MIB: f64 = 1_930.0;

/// A fifth of each, with the nodes' part of it. Time depends on what else the machine does, and is not promised.
const TIME_S_AIM: f64 = UPSTREAM_S / 5.0;
const CPU_S_MAX: f64 = UPSTREAM_CPU_S / 5.0;
const PEAK_MIB_MAX: f64 = UPSTREAM_MIB / 5.0;

/// So long a phase may take before the bench gives up.
const PHASE_MAX: Duration = Duration::from_secs(900);

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";

#[tokio::main]
async fn main() -> ExitCode {
    let mut table = Table::new();
    let args: Vec<String> = std::env::args().collect();
    let nodes = args.iter().position(|it| it == "--nodes").and_then(|at| args.get(at + 1));
    let nodes =
        nodes.map_or("1000,5000,15000", String::as_str).split(',').map(|it| it.parse().expect("a number"));
    let mut before: Option<(usize, Duration)> = None;
    for nodes in nodes {
        let took = measure(&mut table, nodes).await;
        if let Some((fewer, shorter)) = before {
            let growth = took.as_secs_f64() / shorter.as_secs_f64();
            let aim = nodes as f64 / fewer as f64;
            let name = format!("time of {nodes} nodes, in times of {fewer}");
            table.row(&name, &format!("{growth:.1}"), &format!("aim: {aim:.1}"));
        }
        before = Some((nodes, took));
    }
    table.end()
}

/// How long making and rolling took together.
async fn measure(table: &mut Table, nodes: usize) -> Duration {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-up");
    let _ = std::fs::remove_dir_all(&dir);
    let began = Instant::now();
    let up = Up::start(&dir, nodes);
    let clients = clients(&dir.join("kubeconfig")).await;
    let client = &clients[0];
    while ready_nodes(client).await < nodes {
        assert!(began.elapsed() < PHASE_MAX, "the nodes are not ready in time");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let name = format!("{nodes} nodes Ready, from exec");
    match nodes {
        1_000 => table.at_most(&name, began.elapsed(), READY_MAX),
        _ => table.row(&name, &format!("{:.1?}", began.elapsed()), ""),
    }

    let (before, began) = (up.cpu(), Instant::now());
    send(client, "POST", SETS, daemon_set("app:1").to_string().into_bytes()).await.expect("a set");
    wait(client, nodes).await;
    let (create, create_cpu) = (began.elapsed(), up.cpu() - before);
    let cpu = |seconds: f64| format!("{seconds:.1} CPU-s, {:.2} ms a pod", seconds * 1000.0 / nodes as f64);
    table.row(&format!("a DaemonSet on {nodes} nodes"), &format!("{create:.1?}"), &cpu(create_cpu));

    let (before, began) = (up.cpu(), Instant::now());
    let image = json!({"spec": daemon_set("app:2")["spec"]}).to_string();
    send(client, "PATCH", &format!("{SETS}/bench"), image.into_bytes()).await.expect("a patch");
    wait(client, nodes).await;
    let (roll, roll_cpu) = (began.elapsed(), up.cpu() - before);
    table.row("… rolled, a tenth at a time", &format!("{roll:.1?}"), &cpu(roll_cpu));
    let peak = bed::mib(up.0.id(), "VmHWM:");
    table.row("… peak memory", &format!("{peak:.0} MiB"), "");

    if nodes == UPSTREAM_NODES {
        let (time, cpu) = ((create + roll).as_secs_f64(), create_cpu + roll_cpu);
        let name = "… both together";
        table.row(name, &format!("{time:.1} s"), &format!("upstream {UPSTREAM_S} s; aim: {TIME_S_AIM:.1} s"));
        let note = format!("upstream {UPSTREAM_CPU_S} CPU-s; at most {CPU_S_MAX:.1}");
        table.row(name, &format!("{cpu:.1} CPU-s"), &note);
        if CPU_S_MAX < cpu {
            table.broken.push(format!("{nodes} nodes took {cpu:.1} CPU-s, promised {CPU_S_MAX:.1}"));
        }
        table.memory(&format!("… beside upstream's {UPSTREAM_MIB} MiB"), peak, PEAK_MIB_MAX);
    }
    let (before, began) = (up.cpu(), Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let idle = (up.cpu() - before) / began.elapsed().as_secs_f64() * 100.0;
    table.row("… at rest, but for heartbeats", &format!("{idle:.0} %"), "of a core");
    drop(up);
    let _ = std::fs::remove_dir_all(&dir);
    create + roll
}

async fn ready_nodes(client: &Client) -> usize {
    let request = http::Request::get("/api/v1/nodes").body(Vec::new()).expect("a request");
    let nodes: Value = client.request(request).await.expect("a list");
    let is_ready = |node: &&Value| {
        let conditions = node["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|it| it["type"] == "Ready" && it["status"] == "True")
            && node["spec"]["taints"].is_null()
    };
    nodes["items"].as_array().into_iter().flatten().filter(is_ready).count()
}

async fn wait(client: &Client, nodes: usize) {
    let began = Instant::now();
    loop {
        let request = http::Request::get(format!("{SETS}/bench")).body(Vec::new()).expect("a request");
        let set: Value = client.request(request).await.expect("the set");
        let (status, nodes) = (&set["status"], json!(nodes));
        if status["observedGeneration"] == set["metadata"]["generation"]
            && ["desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"]
                .iter()
                .all(|it| status[it] == nodes)
        {
            return;
        }
        assert!(began.elapsed() < PHASE_MAX, "not done in time: {status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn daemon_set(image: &str) -> Value {
    json!({
        "metadata": {"name": "bench"},
        "spec": {
            "selector": {"matchLabels": {"app": "bench"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {
                "metadata": {"labels": {"app": "bench"}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "c", "image": image, "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}}}],
                },
            },
        },
    })
}

struct Up(Child);

impl Up {
    /// Started when it says so.
    fn start(dir: &Path, nodes: usize) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(["up", "--listen", "127.0.0.1:0", "--sim-start-delay", "0", "--sim-stop-delay", "0"]);
        command.args(["--sim-nodes", &nodes.to_string(), "--data-dir"]).arg(dir);
        Self(bed::started(&mut command))
    }

    /// CPU-seconds so far.
    fn cpu(&self) -> f64 {
        bed::cpu_s(self.0.id())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
