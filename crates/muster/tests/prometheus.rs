//! Checks of progressive rollouts by a real Prometheus, which scrapes the pods of a cluster with simulated nodes.

#[path = "rollout_bed/mod.rs"]
mod bed;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bed::{Cluster, POLICIES, REVISIONS, SETS, policy};
use expect_test::expect;
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Time within which Prometheus must be ready, also on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Time in which a check with an interval of 5 s is measured at least twice.
const TWO_INTERVALS: Duration = Duration::from_secs(12);

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs prometheus"]
async fn a_good_revision_completes_and_a_bad_one_reaches_only_the_canary() {
    let bed = Bed::start("judge").await;
    bed.roll_out_first_revision(canary()).await;

    bed.cluster.set_image("web:2").await;
    bed.cluster.phase("Complete").await;
    expect![[r#"
        phase    Complete, step rest, attempt 1
        message  -
        check    errors Pass -
        revision 1 Good Adopted
        revision 2 Good Passed
        node     sim-1 web:2
        node     sim-2 web:2
        node     sim-3 web:2
        had web:2: sim-1 sim-2 sim-3
    "#]]
    .assert_eq(&bed.state("web:2").await);

    // Auto: in a step before the last one, a failed revision is rolled back.
    bed.metrics.set_errors("web:3", 5);
    bed.cluster.set_image("web:3").await;
    bed.cluster.phase("RolledBack").await;
    expect![[r#"
        phase    RolledBack, step canary, attempt 1
        message  check "errors" failed: the query returned 1 series: {pod="web-x7k2p"} 5
        check    errors Fail the query returned 1 series: {pod="web-x7k2p"} 5
        revision 1 Good Adopted
        revision 2 Good Passed
        revision 3 Bad Failed
        node     sim-1 web:2
        node     sim-2 web:2
        node     sim-3 web:2
        had web:3: sim-3
    "#]]
    .assert_eq(&bed.state("web:3").await);
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: RolledBack
        check "errors" failed: the query returned 1 series: {pod="web-x7k2p"} 5

        revision    3 (7fb847ff66), attempt 1; stable is 2 (75d7c47879)
        policy      RolloutPolicy careful
        nodes       3 eligible: 0 admitted, 0 updated, 0 available, 0 soaked, 3 held
        failures    0 nodes, at most 0 allowed
        checks      errors Fail since 2026-08-23T10:00:00Z: the query returned 1 series: {pod="web-x7k2p"} 5
        next        change the template, or:
                    `muster rollout retry ds/web` starts the revision again
    "#]]
    .assert_eq(&bed.console("status ds/web"));

    bed.cluster.merge(&format!("{POLICIES}/careful"), &json!({"spec": {"onFailure": "Stop"}})).await;
    bed.metrics.set_errors("web:4", 2);
    bed.cluster.set_image("web:4").await;
    bed.cluster.phase("Stopped").await;
    expect![[r#"
        phase    Stopped, step canary, attempt 1
        message  check "errors" failed: the query returned 1 series: {pod="web-x7k2p"} 2
        check    errors Fail the query returned 1 series: {pod="web-x7k2p"} 2
        revision 1 Good Adopted
        revision 2 Good Passed
        revision 3 Bad Failed
        revision 4 Bad Failed
        node     sim-1 web:2
        node     sim-2 web:2
        node     sim-3 web:4
        had web:4: sim-3
    "#]]
    .assert_eq(&bed.state("web:4").await);
    bed.hold().await;

    // The same revision passes once its metrics are good and an operator retries it.
    bed.metrics.set_errors("web:4", 0);
    bed.cluster.run("retry ds/web");
    bed.cluster.phase("Complete").await;
    expect![[r#"
        phase    Complete, step rest, attempt 2
        message  -
        check    errors Pass -
        revision 1 Good Adopted
        revision 2 Good Passed
        revision 3 Bad Failed
        revision 4 Good Passed
        node     sim-1 web:4
        node     sim-2 web:4
        node     sim-3 web:4
        had web:4: sim-1 sim-2 sim-3
    "#]]
    .assert_eq(&bed.state("web:4").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs prometheus"]
async fn a_rollout_waits_while_prometheus_is_down() {
    let mut bed = Bed::start("outage").await;
    let mut settings = canary();
    settings["steps"][0]["approval"] = "Manual".into();
    bed.roll_out_first_revision(settings).await;
    bed.cluster.set_image("web:2").await;
    bed.until_message("waits for approval").await;
    expect![[r#"
        phase    Waiting, step canary, attempt 1
        message  step "canary" waits for approval
        check    errors Pass -
        revision 1 Good Adopted
        revision 2 - -
        node     sim-1 web:2
        node     sim-2 web:1
        node     sim-3 web:1
        had web:2: sim-1
    "#]]
    .assert_eq(&bed.state("web:2").await);

    bed.prometheus.kill();
    bed.until_message("Connection refused").await;
    expect![[r#"
        phase    Waiting, step canary, attempt 1
        message  check "errors" has not passed: query: Connection refused (os error 111)
        check    errors Inconclusive query: Connection refused (os error 111)
        revision 1 Good Adopted
        revision 2 - -
        node     sim-1 web:2
        node     sim-2 web:1
        node     sim-3 web:1
        had web:2: sim-1
    "#]]
    .assert_eq(&bed.state("web:2").await);
    expect![[r#"
        $ muster rollout status ds/web
        DaemonSet default/web: Waiting, step canary (1 of 2)
        check "errors" has not passed: query: Connection refused (os error 111)

        revision    2 (75d7c47879), attempt 1; stable is 1 (66cc47f568)
        policy      RolloutPolicy careful
        nodes       3 eligible: 1 admitted, 1 updated, 1 available, 1 soaked, 2 held
        failures    0 nodes, at most 0 allowed
        checks      errors Inconclusive since 2026-08-23T10:00:00Z: query: Connection refused (os error 111)
        next        the check is repeated until it has a result
                    `muster rollout abort ds/web` returns all nodes to the stable revision
    "#]]
    .assert_eq(&bed.console("status ds/web"));
    expect![[r#"
        DaemonRollout Ready False WaitingForCheck check "errors" has not passed: query: Connection refused (os error 111)
        DaemonRollout Reconciling True WaitingForCheck check "errors" has not passed: query: Connection refused (os error 111)
        DaemonSet Progressing False WaitingForCheck 1 of 3 nodes are up to date; check "errors" has not passed: query: Connection refused (os error 111)
        DaemonSet Reconciling True WaitingForCheck check "errors" has not passed: query: Connection refused (os error 111)
    "#]].assert_eq(&bed.conditions().await);

    // The approval alone does not end the wait.
    bed.cluster.run("promote ds/web --step canary");
    bed.cluster
        .until("the approval is observed", async || {
            let rollout = bed.cluster.rollout().await;
            rollout["status"]["observedGeneration"] == rollout["metadata"]["generation"]
        })
        .await;
    bed.hold().await;

    bed.prometheus.spawn();
    bed.cluster.phase("Complete").await;
    expect![[r#"
        phase    Complete, step rest, attempt 1
        message  -
        check    errors Pass -
        revision 1 Good Adopted
        revision 2 Good Passed
        node     sim-1 web:2
        node     sim-2 web:2
        node     sim-3 web:2
        had web:2: sim-1 sim-2 sim-3
    "#]]
    .assert_eq(&bed.state("web:2").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs prometheus"]
async fn a_check_without_data_or_without_an_allowed_endpoint_holds_the_rollout() {
    let bed = Bed::start("no-data").await;
    bed.roll_out_first_revision(canary()).await;

    bed.metrics.silence("web:2", true);
    bed.cluster.set_image("web:2").await;
    bed.until_message("no data").await;
    expect![[r#"
        phase    Waiting, step canary, attempt 1
        message  check "errors" has not passed: no data: the presence query returned nothing
        check    errors Inconclusive no data: the presence query returned nothing
        revision 1 Good Adopted
        revision 2 - -
        node     sim-1 web:2
        node     sim-2 web:1
        node     sim-3 web:1
        had web:2: sim-1
    "#]]
    .assert_eq(&bed.state("web:2").await);
    // Two more measurements, each with both queries, change nothing.
    let (before, queries) = (bed.cluster.rollout().await, bed.prometheus.queries());
    bed.cluster.until("two more measurements", async || queries + 4 <= bed.prometheus.queries()).await;
    assert_eq!(bed.cluster.rollout().await, before);
    bed.metrics.silence("web:2", false);
    bed.cluster.phase("Complete").await;
    expect![[r#"
        phase    Complete, step rest, attempt 1
        message  -
        check    errors Pass -
        revision 1 Good Adopted
        revision 2 Good Passed
        node     sim-1 web:2
        node     sim-2 web:2
        node     sim-3 web:2
        had web:2: sim-1 sim-2 sim-3
    "#]]
    .assert_eq(&bed.state("web:2").await);

    // Nothing listens at the other endpoint, but it is not called either.
    let url = bed.prometheus.url();
    bed.set_url("http://127.0.0.1:9").await;
    bed.cluster.set_image("web:3").await;
    bed.until_message("is not allowed").await;
    expect![[r#"
        phase    Waiting, step canary, attempt 1
        message  check "errors" has not passed: the endpoint http://127.0.0.1:9 is not allowed: add it to --check-endpoints
        check    errors Inconclusive the endpoint http://127.0.0.1:9 is not allowed: add it to --check-endpoints
        revision 1 Good Adopted
        revision 2 Good Passed
        revision 3 - -
        node     sim-1 web:2
        node     sim-2 web:2
        node     sim-3 web:3
        had web:3: sim-3
    "#]].assert_eq(&bed.state("web:3").await);
    expect![[r#"
        DaemonRollout Ready False WaitingForCheck check "errors" has not passed: the endpoint http://127.0.0.1:9 is not allowed: add it to --check-endpoints
        DaemonRollout Reconciling True WaitingForCheck check "errors" has not passed: the endpoint http://127.0.0.1:9 is not allowed: add it to --check-endpoints
        DaemonSet Progressing False WaitingForCheck 1 of 3 nodes are up to date; check "errors" has not passed: the endpoint http://127.0.0.1:9 is not allowed: add it to --check-endpoints
        DaemonSet Reconciling True WaitingForCheck check "errors" has not passed: the endpoint http://127.0.0.1:9 is not allowed: add it to --check-endpoints
    "#]].assert_eq(&bed.conditions().await);
    bed.hold().await;
    bed.set_url(&url).await;
    bed.cluster.phase("Complete").await;
    expect![[r#"
        phase    Complete, step rest, attempt 1
        message  -
        check    errors Pass -
        revision 1 Good Adopted
        revision 2 Good Passed
        revision 3 Good Passed
        node     sim-1 web:3
        node     sim-2 web:3
        node     sim-3 web:3
        had web:3: sim-1 sim-2 sim-3
    "#]]
    .assert_eq(&bed.state("web:3").await);
}

/// Steps of one node and of all nodes, and a check that fails the revision with its second failure in a row.
fn canary() -> Value {
    json!({
        "steps": [{"name": "canary", "nodes": 1}, {"name": "rest", "nodes": "100%"}],
        "checks": [{"name": "errors", "interval": "5s", "failureThreshold": 2, "prometheus": {
            "url": "",
            "query": "sum by (pod) (web_errors{pod=~\"{{pods}}\", revision=\"{{revision}}\"}) > 1",
            "presenceQuery": "web_errors{pod=~\"{{pods}}\", revision=\"{{revision}}\"}",
        }}],
    })
}

/// A cluster with the DaemonSet `web`, the metrics of its pods, and a Prometheus that scrapes them.
struct Bed {
    // Dropped first, because its data is in the directory of the cluster.
    prometheus: Prometheus,
    metrics: Metrics,
    cluster: Cluster,
}

impl Bed {
    async fn start(name: &str) -> Self {
        let port = free_port();
        let endpoint = format!("http://127.0.0.1:{port}");
        let cluster = Cluster::start(&format!("prometheus-{name}"), &["--check-endpoints", &endpoint]).await;
        let metrics = Metrics::serve(cluster.client.clone()).await;
        let prometheus = Prometheus::start(cluster.dir.join("prometheus"), port, metrics.port);
        Self { cluster, metrics, prometheus }
    }

    /// Creates the DaemonSet with its first revision, and then the policy. Its check queries this Prometheus.
    async fn roll_out_first_revision(&self, mut settings: Value) {
        settings["checks"][0]["prometheus"]["url"] = self.prometheus.url().into();
        self.cluster.create_set().await;
        self.cluster.complete_without_policy().await;
        self.cluster.create(POLICIES, policy(settings)).await;
        self.cluster.phase("Complete").await;
    }

    /// Changes the base URL of Prometheus in the policy.
    async fn set_url(&self, url: &str) {
        let path = format!("{POLICIES}/careful");
        let mut checks = self.cluster.get(&path).await["spec"]["checks"].clone();
        checks[0]["prometheus"]["url"] = url.into();
        self.cluster.merge(&path, &json!({"spec": {"checks": checks}})).await;
    }

    /// Waits until the rollout waits, with this text in its message and in the condition of the DaemonSet.
    async fn until_message(&self, text: &str) {
        self.cluster
            .until(&format!("the rollout waits: {text}"), async || {
                let status = self.cluster.rollout().await["status"].clone();
                let has_text = |it: &Value| it["message"].as_str().is_some_and(|it| it.contains(text));
                let set = self.cluster.get(&format!("{SETS}/web")).await;
                let conditions = set["status"]["conditions"].as_array().unwrap();
                let is_reported = |kind: &str| conditions.iter().any(|it| it["type"] == kind && has_text(it));
                status["phase"] == "Waiting"
                    && has_text(&status)
                    && is_reported("Progressing")
                    && is_reported("Reconciling")
            })
            .await;
    }

    /// Asserts that the DaemonRollout does not change, and is not written, in two intervals of the check.
    async fn hold(&self) {
        let before = self.cluster.rollout().await;
        tokio::time::sleep(TWO_INTERVALS).await;
        assert_eq!(self.cluster.rollout().await, before);
    }

    /// Returns the whole state of the rollout as text: phase, message, checks, verdicts, the image on each node, and the
    /// nodes that ever had a pod with `image`.
    async fn state(&self, image: &str) -> String {
        let status = self.cluster.rollout().await["status"].clone();
        let word = |it: &Value| it.as_str().unwrap_or("-").to_owned();
        let mut lines = vec![
            format!(
                "phase    {}, step {}, attempt {}",
                word(&status["phase"]),
                word(&status["step"]["name"]),
                status["attempt"]
            ),
            format!("message  {}", word(&status["message"])),
        ];
        for check in status["checks"].as_array().into_iter().flatten() {
            let parts = ["name", "result", "message"].map(|it| word(&check[it]));
            lines.push(format!("check    {}", parts.join(" ")));
        }
        let mut revisions = self.cluster.get(REVISIONS).await["items"].as_array().unwrap().clone();
        revisions.sort_by_key(|it| it["revision"].as_i64());
        for revision in &revisions {
            let annotations = &revision["metadata"]["annotations"];
            let verdict =
                ["muster.dev/verdict", "muster.dev/verdict-reason"].map(|it| word(&annotations[it]));
            lines.push(format!("revision {} {}", revision["revision"], verdict.join(" ")));
        }
        let nodes = images_by_node(&self.cluster.client).await.unwrap();
        lines.extend(nodes.iter().map(|(node, images)| format!("node     {node} {}", images.join(" "))));
        let exposed = self.metrics.exposed(image);
        lines.push(format!("had {image}: {}", exposed.into_iter().collect::<Vec<_>>().join(" ")));
        self.normalised(&(lines.join("\n") + "\n"))
    }

    /// Returns the conditions of the DaemonRollout and of the DaemonSet that are about the rollout, as text.
    async fn conditions(&self) -> String {
        let set = self.cluster.get(&format!("{SETS}/web")).await;
        let rollout = self.cluster.rollout().await;
        let lines =
            [("DaemonRollout", &rollout), ("DaemonSet", &set)].into_iter().flat_map(|(kind, object)| {
                let conditions = object["status"]["conditions"].as_array().unwrap();
                let about =
                    conditions.iter().filter(|it| it["type"] != "Available" && it["type"] != "Degraded");
                about.map(move |it| {
                    let parts = ["type", "status", "reason", "message"]
                        .map(|field| it[field].as_str().unwrap_or("-"));
                    format!("{kind} {}\n", parts.join(" "))
                })
            });
        self.normalised(&lines.collect::<String>())
    }

    /// Runs `muster rollout` with these words, and returns it with what it printed.
    fn console(&self, words: &str) -> String {
        self.normalised(&self.cluster.all(&[words]))
    }

    /// Replaces the address of Prometheus, and the random part of the names of pods.
    fn normalised(&self, text: &str) -> String {
        let pod = regex::Regex::new(r"\bweb-[bcdfghjklmnpqrstvwxz2456789]{5}\b").unwrap();
        let text = text.replace(&self.prometheus.url(), "http://prometheus.monitoring:9090");
        pod.replace_all(&text, "web-x7k2p").into_owned()
    }
}

/// The metrics that the pods of the DaemonSet export: their number of errors, by name of the pod, node and revision.
/// Simulated pods run no containers, so this server exports the metrics of all of them.
struct Metrics {
    port: u16,
    exports: Arc<Mutex<Exports>>,
}

/// What the pods export, by image, and where they were.
#[derive(Default)]
struct Exports {
    /// Number of errors. Pods with another image export 0.
    errors: BTreeMap<String, u32>,
    /// Images whose pods export nothing.
    silent: BTreeSet<String>,
    /// The nodes that ever had a pod, by image.
    exposed: BTreeMap<String, BTreeSet<String>>,
}

impl Metrics {
    /// Serves the metrics of the pods that exist at the time of a scrape, and records on which nodes they are.
    async fn serve(client: Client) -> Self {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let exports: Arc<Mutex<Exports>> = Arc::default();
        let (observed, observer) = (exports.clone(), client.clone());
        tokio::spawn(async move {
            // A pod lives for a second at least, which is its grace period.
            loop {
                if let Some(nodes) = images_by_node(&observer).await {
                    let exposed = &mut observed.lock().unwrap().exposed;
                    for (node, image) in
                        nodes.iter().flat_map(|(node, all)| all.iter().map(move |it| (node, it)))
                    {
                        exposed.entry(image.clone()).or_default().insert(node.clone());
                    }
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let served = exports.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // The request has no body and fits into one read: only its presence matters.
                let _ = stream.read(&mut [0; 4096]).await;
                let pods = list_pods(&client).await.unwrap_or_default();
                let body = exposition(&pods, &served.lock().unwrap());
                let head =
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
                let response = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
                let _ = stream.write_all(response.as_bytes()).await;
            }
        });
        Self { port, exports }
    }

    fn set_errors(&self, image: &str, errors: u32) {
        self.exports.lock().unwrap().errors.insert(image.to_owned(), errors);
    }

    fn silence(&self, image: &str, is_silent: bool) {
        let silent = &mut self.exports.lock().unwrap().silent;
        if is_silent {
            silent.insert(image.to_owned())
        } else {
            silent.remove(image)
        };
    }

    /// Returns the nodes that ever had a pod with the image.
    fn exposed(&self, image: &str) -> BTreeSet<String> {
        self.exports.lock().unwrap().exposed.get(image).cloned().unwrap_or_default()
    }
}

/// Returns the metrics of these pods in the text format of Prometheus.
fn exposition(pods: &[Value], exports: &Exports) -> String {
    let mut text = "# TYPE web_errors gauge\n".to_owned();
    for pod in pods {
        let (image, node) = (image(pod), pod["spec"]["nodeName"].as_str().unwrap_or_default());
        if exports.silent.contains(image) {
            continue;
        }
        let name = pod["metadata"]["name"].as_str().unwrap();
        let revision = pod["metadata"]["labels"]["controller-revision-hash"].as_str().unwrap();
        let errors = exports.errors.get(image).copied().unwrap_or(0);
        let labels = format!("pod=\"{name}\",node=\"{node}\",revision=\"{revision}\"");
        text += &format!("web_errors{{{labels}}} {errors}\n");
    }
    text
}

/// Returns all pods that are not being deleted. `None` if the server cannot be reached.
async fn list_pods(client: &Client) -> Option<Vec<Value>> {
    let list: Value = client.request(Request::get(PODS).body(Vec::new()).unwrap()).await.ok()?;
    let pods = list["items"].as_array()?.iter();
    Some(pods.filter(|it| it["metadata"]["deletionTimestamp"].is_null()).cloned().collect())
}

/// Returns the images of the pods on each node, without pods that are not bound to a node yet. `None` if the server
/// cannot be reached.
async fn images_by_node(client: &Client) -> Option<BTreeMap<String, Vec<String>>> {
    let mut nodes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in list_pods(client).await? {
        let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
        nodes.entry(node.to_owned()).or_default().push(image(&pod).to_owned());
    }
    Some(nodes)
}

fn image(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["image"].as_str().unwrap()
}

/// A real Prometheus on the loopback interface, which scrapes one target every second.
struct Prometheus {
    child: Child,
    dir: PathBuf,
    port: u16,
}

impl Prometheus {
    fn start(dir: PathBuf, port: u16, target_port: u16) -> Self {
        fs::create_dir_all(&dir).unwrap();
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{
                "job_name": "web",
                "static_configs": [{"targets": [format!("127.0.0.1:{target_port}")]}],
            }],
        });
        fs::write(dir.join("prometheus.yml"), config.to_string()).unwrap();
        let child = spawn_prometheus(&dir, port);
        let prometheus = Self { child, dir, port };
        prometheus.wait_until_ready();
        prometheus
    }

    /// Starts Prometheus again, with the data and at the address that it had before.
    fn spawn(&mut self) {
        self.child = spawn_prometheus(&self.dir, self.port);
        self.wait_until_ready();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn wait_until_ready(&self) {
        let began = Instant::now();
        while self.get("/-/ready").is_none_or(|it| !it.starts_with("HTTP/1.0 200")) {
            let log = fs::read_to_string(self.dir.join("log")).unwrap();
            assert!(began.elapsed() < START_TIMEOUT, "Prometheus is not ready:\n{log}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Returns the number of queries that Prometheus has responded to.
    fn queries(&self) -> u64 {
        let metrics = self.get("/metrics").unwrap();
        let name = "prometheus_http_requests_total{code=\"200\",handler=\"/api/v1/query\"} ";
        let value = metrics.lines().find_map(|it| it.strip_prefix(name)).unwrap();
        value.parse().unwrap()
    }

    /// Returns the whole response to a GET request. `None` if Prometheus cannot be reached.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        stream.set_read_timeout(Some(START_TIMEOUT)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        Some(response)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn_prometheus(dir: &Path, port: u16) -> Child {
    let log = fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
    Command::new("prometheus")
        .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("prometheus is installed by ci/setup")
}

/// Returns a port that no other process takes while Prometheus does not listen at it: it is below the range from which
/// Linux takes ports for connections and for listeners without a port.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 1000).unwrap() * 10;
    let mut ports =
        std::iter::repeat_with(|| 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000);
    ports.find(|it| TcpListener::bind((Ipv4Addr::LOCALHOST, *it)).is_ok()).unwrap()
}
