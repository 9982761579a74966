//! What the API server costs, as its clients see it: over TLS, with writes that are on disk before they are answered.
//!
//! `cargo bench -p muster` starts `muster server` and prints a table; with `-- --check` it fails where a promise is broken.
//! `-- --cluster KUBECONFIG --pids 1,2` puts the same load on a server that runs already, whose processes these are.
//! `-- --etcd URL,…` starts a `muster server` whose objects are in this etcd, under a prefix of its own.

mod bed;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bed::{IN_FLIGHT, Muster, Served, Table, clients, create, median, node, send};
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use kube::Client;
use serde_json::{Value, json};

const NODES: usize = 5_000;
const PODS: usize = 3_000;
const OBJECTS: usize = 50_000;

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
    let mut table = Table::new();
    match after("--cluster") {
        Some(kubeconfig) => {
            let pids = after("--pids").map(String::as_str).unwrap_or_default();
            let pids = pids.split(',').filter_map(|it| it.parse().ok()).collect();
            load(&mut table, &Served { kubeconfig: kubeconfig.into(), pids }).await;
        }
        None => match after("--etcd") {
            Some(urls) => on_etcd(&mut table, urls).await,
            None => ours(&mut table).await,
        },
    }
    table.end()
}

/// Measures a server whose objects are in etcd.
async fn on_etcd(table: &mut Table, urls: &str) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-server-etcd");
    let _ = std::fs::remove_dir_all(&dir);
    let prefix = format!("/bench-{}", std::process::id());
    let flags = ["--etcd", urls, "--etcd-prefix", &prefix, "--etcd-any-version"];
    let (server, took) = Muster::start_with(&dir, &flags).await;
    table.row("from exec to ready, empty", &format!("{took:.1?}"), "");
    load(table, &server.served).await;
    server.stop();
    let _ = std::fs::remove_dir_all(&dir);
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

async fn clear(clients: &[Client]) {
    for path in ["/api/v1/namespaces/default/pods", "/api/v1/nodes", "/api/v1/namespaces/default/configmaps"]
    {
        let options = json!({"gracePeriodSeconds": 0}).to_string().into_bytes();
        let path = format!("{path}?labelSelector=bench%3Dyes");
        let _ = send(&clients[0], "DELETE", &path, options).await;
    }
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
