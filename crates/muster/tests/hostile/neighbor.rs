//! The neighbors that must not notice anything: an administrator, a node with its heartbeats over the wire, and an observer of all
//! nodes and of the server's memory.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::connection::Endpoint;
use crate::identity::{GOOD_NODE, Identities, admin, call, with_certificate};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

pub(crate) struct Neighbors {
    tasks: JoinSet<()>,
    report: Arc<Mutex<Report>>,
    admin: Client,
}

/// What the neighbors saw.
#[derive(Debug, Default, Clone)]
pub(crate) struct Report {
    admin_latencies: Vec<Duration>,
    heartbeat_latencies: Vec<Duration>,
    failures: Vec<String>,
    not_ready: Vec<String>,
    observations: usize,
    resident_mib: u64,
    not_served_at_once: Vec<String>,
}

pub(crate) async fn start(
    kubeconfig: &Path,
    identities: &Identities,
    pid: u32,
    stop: CancellationToken,
) -> Neighbors {
    let (endpoint, report) = (Endpoint::of(kubeconfig), Arc::new(Mutex::new(Report::default())));
    let node = with_certificate(&endpoint, &identities.node).await;
    register(&node).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(administrate(admin(kubeconfig).await, report.clone(), stop.clone()));
    tasks.spawn(beat(node, report.clone(), stop.clone()));
    tasks.spawn(observe(admin(kubeconfig).await, pid, report.clone(), stop));
    Neighbors { tasks, report, admin: admin(kubeconfig).await }
}

impl Neighbors {
    pub(crate) fn made_enough_requests(&self) -> bool {
        self.report.lock().expect("no panic").has_enough_requests()
    }

    pub(crate) async fn end(mut self) -> Report {
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a neighbor does not panic");
        }
        let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
        let metrics = self.admin.request_text(request).await.expect("metrics");
        let mut report = self.report.lock().expect("no panic").clone();
        report.not_served_at_once = not_served_at_once(&metrics);
        report
    }
}

/// Requests of the neighbors that were rejected or queued: lines of the metrics with a count above zero. The
/// administrator must be exempt: a line of its flow means that it was not.
fn not_served_at_once(metrics: &str) -> Vec<String> {
    const LEVEL_COUNTS: [&str; 2] = [
        "apiserver_flowcontrol_rejected_requests_total{",
        "apiserver_flowcontrol_request_wait_duration_seconds_count{",
    ];
    const FLOW_COUNTS: [&str; 2] = [
        "muster_flowcontrol_flow_rejected_requests_total{",
        "muster_flowcontrol_flow_queued_requests_total{",
    ];
    let flows = [format!("flow=\"system:node:{GOOD_NODE}\""), "flow=\"kubernetes-admin\"".to_owned()];
    let is_neighbor = |line: &&str| {
        let is_one_of = |counts: [&str; 2]| counts.iter().any(|it| line.starts_with(it));
        (is_one_of(LEVEL_COUNTS) && line.contains("\"exempt\""))
            || (is_one_of(FLOW_COUNTS) && flows.iter().any(|it| line.contains(it.as_str())))
    };
    metrics.lines().filter(is_neighbor).filter(|it| !it.ends_with(" 0")).map(str::to_owned).collect()
}

async fn register(node: &Client) {
    let body = json!({"metadata": {"name": GOOD_NODE, "labels": {"kubernetes.io/hostname": GOOD_NODE}}, "status": status()});
    call(node, "POST", "/api/v1/nodes", Some(body)).await.expect("the node registers");
    let lease = json!({
        "metadata": {"name": GOOD_NODE},
        "spec": {"holderIdentity": GOOD_NODE, "leaseDurationSeconds": 40, "renewTime": now()},
    });
    call(node, "POST", LEASES, Some(lease)).await.expect("the node's lease");
}

fn status() -> Value {
    let now = jiff::Timestamp::now().to_string();
    json!({
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now}],
    })
}

fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// An administrator's ordinary work, one request after the other.
async fn administrate(client: Client, report: Arc<Mutex<Report>>, stop: CancellationToken) {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let mut index = 0;
    while !stop.is_cancelled() {
        index += 1;
        let name = format!("note-{index}");
        let one = format!("{MAPS}/{name}");
        // Larger than what is left of the store when the smallest objects of `fill_with_objects` are refused.
        let made = json!({"metadata": {"name": name}, "data": {"a": "b".repeat(10_000)}});
        for (method, path, body) in [
            ("GET", "/api/v1/namespaces/default/pods", None),
            ("GET", "/api/v1/nodes", None),
            ("POST", MAPS, Some(made)),
            ("PATCH", &one, Some(json!({"data": {"a": "c"}}))),
            ("GET", &one, None),
            ("GET", "/apis/apps/v1/daemonsets?limit=500", None),
            ("DELETE", &one, None),
        ] {
            let began = Instant::now();
            let answered = call(&client, method, path, body).await;
            let mut report = report.lock().expect("no panic");
            report.admin_latencies.push(began.elapsed());
            if let Err(error) = answered {
                report.failures.push(format!("administrator: {method} {path}: {error}"));
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Renews the node's lease, and now and then its status, as an agent does.
async fn beat(client: Client, report: Arc<Mutex<Report>>, stop: CancellationToken) {
    let (lease, node) = (format!("{LEASES}/{GOOD_NODE}"), format!("/api/v1/nodes/{GOOD_NODE}/status"));
    let mut index = 0;
    while !stop.is_cancelled() {
        index += 1;
        let (path, body) = if index % 10 == 0 {
            (&node, json!({"status": status()}))
        } else {
            (&lease, json!({"spec": {"renewTime": now()}}))
        };
        let began = Instant::now();
        let answered = call(&client, "PATCH", path, Some(body)).await;
        {
            let mut report = report.lock().expect("no panic");
            report.heartbeat_latencies.push(began.elapsed());
            if let Err(error) = answered {
                report.failures.push(format!("heartbeat: PATCH {path}: {error}"));
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Every second: is each node Ready, and how much memory does the server have?
async fn observe(client: Client, pid: u32, report: Arc<Mutex<Report>>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let nodes = call(&client, "GET", "/api/v1/nodes", None).await;
        {
            let mut report = report.lock().expect("no panic");
            report.observations += 1;
            report.resident_mib = report.resident_mib.max(resident_mib(pid));
            match nodes {
                Ok(nodes) => report.not_ready.extend(not_ready(&nodes)),
                Err(error) => report.failures.push(format!("observer: {error}")),
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn not_ready(nodes: &Value) -> Vec<String> {
    let nodes = nodes["items"].as_array().expect("a list");
    let is_ready = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array();
        conditions.is_some_and(|it| it.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"))
    };
    let not_ready = nodes.iter().filter(|it| !is_ready(it) && it["metadata"]["name"] != "hostile-node");
    not_ready.map(|it| it["metadata"]["name"].to_string()).collect()
}

fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"));
    line.and_then(|it| it.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or_default() / 1024
}

impl Report {
    pub(crate) fn complaints(&self, resident_mib_max: u64) -> Vec<String> {
        let mut complaints = self.failures.clone();
        complaints.extend(self.not_ready.iter().map(|it| format!("node {it} was not Ready")));
        complaints.extend(self.not_served_at_once.iter().map(|it| format!("rejected or queued: {it}")));
        if resident_mib_max < self.resident_mib {
            complaints.push(format!("{} MiB resident, at most {resident_mib_max}", self.resident_mib));
        }
        if !self.has_enough_requests() {
            complaints.push("the neighbors made too few requests to prove anything".to_owned());
        }
        complaints
    }

    fn has_enough_requests(&self) -> bool {
        50 <= self.admin_latencies.len() && 20 <= self.heartbeat_latencies.len() && 10 <= self.observations
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (who, latencies) in
            [("administrator", &self.admin_latencies), ("heartbeats", &self.heartbeat_latencies)]
        {
            let mut sorted = latencies.clone();
            sorted.sort_unstable();
            let at = |share: usize| sorted.get(sorted.len() * share / 100).copied().unwrap_or_default();
            writeln!(f, "{who:<28} {} requests, p50 {:.1?}, p99 {:.1?}", sorted.len(), at(50), at(99))?;
        }
        write!(f, "server: {} MiB resident at most; {} observations", self.resident_mib, self.observations)
    }
}
