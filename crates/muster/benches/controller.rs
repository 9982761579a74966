//! What the controller costs beside our own server, over TLS: nodes that answer at once, one DaemonSet made, then rolled.
//!
//! `cargo bench -p muster --bench controller` prints a table; with `-- --check` it fails where a promise is broken, and with
//! `-- --nodes 200,1000` the fleets are others.

mod bed;

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bed::{Muster, Table, clients, create, median, node, send};
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

/// From the answer to a node's create to the create of its pod, as a watch shows it: the median of these many.
const JOIN_MAX: Duration = Duration::from_millis(100);
const JOINS: usize = 20;

/// CPU of the controller for one pod made, and for one replaced.
const CREATE_MS_MAX: f64 = 1.0;
const ROLL_MS_MAX: f64 = 2.0;
const PEAK_MIB_MAX: f64 = 40.0;

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// So long a phase may take before the bench gives up.
const PHASE_MAX: Duration = Duration::from_secs(600);

#[tokio::main]
async fn main() -> ExitCode {
    let mut table = Table::new();
    let args: Vec<String> = std::env::args().collect();
    let nodes = args.iter().position(|it| it == "--nodes").and_then(|at| args.get(at + 1));
    let nodes = nodes.map_or("1000,5000", String::as_str).split(',').map(|it| it.parse().expect("a number"));
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
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-controller");
    let _ = std::fs::remove_dir_all(&dir);
    let (server, _) = Muster::start(&dir).await;
    let clients = clients(&server.served.kubeconfig).await;
    create(&clients, "/api/v1/nodes", nodes, node).await;
    let (sender, mut made) = mpsc::unbounded_channel();
    let kubelets = tokio::spawn(kubelets(clients.clone(), sender));
    let controller = Controller::start(&server.served.kubeconfig);
    // It lists the nodes, and takes the lease.
    tokio::time::sleep(Duration::from_secs(5)).await;

    let client = &clients[0];
    let before = controller.cpu();
    let began = Instant::now();
    send(client, "POST", SETS, daemon_set("app:1").to_string().into_bytes()).await.expect("a set");
    wait(client, nodes).await;
    let create = began.elapsed();
    table.row(&format!("a DaemonSet on {nodes} nodes"), &format!("{create:.1?}"), "until all are available");
    cpu(table, controller.cpu() - before, nodes, CREATE_MS_MAX);

    let before = controller.cpu();
    let began = Instant::now();
    let image = json!({"spec": daemon_set("app:2")["spec"]}).to_string();
    send(client, "PATCH", &format!("{SETS}/bench"), image.into_bytes()).await.expect("a patch");
    wait(client, nodes).await;
    let roll = began.elapsed();
    table.row("… rolled, a tenth at a time", &format!("{roll:.1?}"), "until all are available");
    cpu(table, controller.cpu() - before, nodes, ROLL_MS_MAX);
    table.memory("… peak memory of the controller", controller.peak_mib(), PEAK_MIB_MAX);
    table.row("… the server, resident", &format!("{:.1} MiB", server.served.resident_mib()), "");

    while made.try_recv().is_ok() {}
    let mut joins = Vec::new();
    for index in nodes..nodes + JOINS {
        send(client, "POST", "/api/v1/nodes", node(index).to_string().into_bytes()).await.expect("a node");
        let joined = Instant::now();
        let name = format!("bench-{index}");
        loop {
            let (node, at) = made.recv().await.expect("a pod for the node");
            if node == name {
                joins.push(at.saturating_duration_since(joined));
                break;
            }
        }
    }
    table.at_most("… from a node that joins to its pod, median", median(&mut joins), JOIN_MAX);
    kubelets.abort();
    drop(controller);
    server.stop();
    let _ = std::fs::remove_dir_all(&dir);
    create + roll
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
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Plays every kubelet: a pod is Ready as soon as it is seen, and its node is told.
async fn kubelets(clients: Vec<Client>, made: mpsc::UnboundedSender<(String, Instant)>) {
    #[derive(Deserialize)]
    struct Line {
        r#type: String,
        object: Pod,
    }
    #[derive(Deserialize)]
    struct Pod {
        metadata: Meta,
        spec: Spec,
    }
    #[derive(Deserialize)]
    struct Meta {
        name: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        node_name: String,
    }
    let uri = format!("{PODS}?watch=true&timeoutSeconds=3600");
    let request = http::Request::get(uri).body(Vec::new()).expect("a request");
    let mut lines = clients[0].request_stream(request).await.expect("a watch").lines();
    let running = Arc::new(running().to_string().into_bytes());
    let places = Arc::new(Semaphore::new(64));
    let mut next = 0;
    while let Ok(Some(line)) = lines.try_next().await {
        let line: Line = serde_json::from_str(&line).expect("a pod with a node");
        if line.r#type != "ADDED" {
            continue;
        }
        let _ = made.send((line.object.spec.node_name, Instant::now()));
        next += 1;
        let (client, running) = (clients[next % clients.len()].clone(), running.clone());
        let place = places.clone().acquire_owned().await.expect("it is never closed");
        tokio::spawn(async move {
            let path = format!("{PODS}/{}/status", line.object.metadata.name);
            let _ = send(&client, "PATCH", &path, running.to_vec()).await;
            drop(place);
        });
    }
}

fn running() -> Value {
    let now = "2026-01-01T00:00:00Z";
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|it| json!({"type": it, "status": "True", "lastTransitionTime": now}));
    let container = json!({"name": "c", "image": "app", "imageID": "", "ready": true, "restartCount": 0,
        "started": true, "state": {"running": {"startedAt": now}}});
    json!({"status": {"phase": "Running", "startTime": now, "podIP": "10.0.0.1", "hostIP": "10.0.0.1",
        "conditions": conditions, "containerStatuses": [container]}})
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
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": "c", "image": image, "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}}}],
                },
            },
        },
    })
}

/// CPU-seconds of a phase, and for each pod of it.
fn cpu(table: &mut Table, seconds: f64, pods: usize, ms_max: f64) {
    let each = seconds * 1000.0 / pods as f64;
    let name = "… CPU of the controller";
    table.row(name, &format!("{seconds:.2} s"), &format!("{each:.2} ms a pod, at most {ms_max} ms"));
    if ms_max < each {
        table.broken.push(format!("{name}: {each:.2} ms a pod, promised {ms_max} ms"));
    }
}

struct Controller(Child);

impl Controller {
    fn start(kubeconfig: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(["controller", "--binding", "direct", "--metrics-addr", "127.0.0.1:0", "--kubeconfig"]);
        // Logs are made as always, and go nowhere.
        command.arg(kubeconfig).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("start the controller"))
    }

    /// CPU-seconds so far.
    fn cpu(&self) -> f64 {
        bed::cpu_s(self.0.id())
    }

    fn peak_mib(&self) -> f64 {
        bed::mib(self.0.id(), "VmHWM:")
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
