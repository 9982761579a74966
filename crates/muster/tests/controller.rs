//! `muster controller` as it is deployed: replicas of the real binary, beside a server that has no controller of its own.

#[path = "cluster/mod.rs"]
mod cluster;
#[path = "explain/mod.rs"]
mod explain;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use expect_test::expect;
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use cluster::TestCluster;

/// What takes a moment here may take a while on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(180);

/// Shorter than the default, so that nobody waits long for a lease to run out; long enough for a busy machine.
const TERMS: [&str; 6] = [
    "--leader-elect-lease-duration",
    "10s",
    "--leader-elect-renew-deadline",
    "8s",
    "--leader-elect-retry-period",
    "500ms",
];

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/muster-controller";

#[tokio::test]
async fn one_replica_acts_and_the_next_takes_over() {
    let cluster = Cluster::start("takeover").await;
    cluster.add_node("n1").await;
    cluster.create("/apis/apps/v1/namespaces/default/daemonsets", set("web")).await;

    let a = cluster.controller("a");
    cluster.until("n1 web", async || cluster.pods().await).await;
    assert_eq!(a.once_ready().await, "leader 1");
    let b = cluster.controller("b");
    // A replica that waits is ready to.
    assert_eq!(b.once_ready().await, "leader 0");
    let first = cluster.holder().await;

    a.signal("-KILL");
    cluster.add_node("n2").await;
    cluster.until("n1 web\nn2 web", async || cluster.pods().await).await;
    let second = cluster.holder().await;
    assert_ne!(first, second);
    assert_eq!(cluster.transitions().await, 1);

    let c = cluster.controller("c");
    assert_eq!(c.once_ready().await, "leader 0");
    b.signal("-TERM");
    let (code, said) = b.ended();
    assert_eq!(code, Some(0), "{said}");
    expect![[r#"
        shutting down
        stopping: finishing the plans that are being executed
        released the lease
        stopped leading"#]]
    .assert_eq(&messages(&said, "shutting down"));
    cluster.add_node("n3").await;
    cluster.until("n1 web\nn2 web\nn3 web", async || cluster.pods().await).await;
    assert_eq!(cluster.transitions().await, 2);

    // Whoever finds another name in the lease ends, and says why.
    let mut lease = cluster.get(LEASE).await;
    lease["spec"]["holderIdentity"] = "somebody".into();
    cluster.put(LEASE, &lease).await;
    let (code, said) = c.ended();
    assert_eq!(code, Some(1));
    assert!(said.ends_with("muster: no longer the leader: somebody holds the lease now\n"), "{said}");
}

#[tokio::test]
async fn a_leader_that_cannot_renew_ends() {
    let cluster = Cluster::start("renew").await;
    let controller = cluster.controller("a");
    assert_eq!(controller.once_ready().await, "leader 1");
    cluster.servers.signal_servers("-STOP");
    let (code, said) = controller.ended();
    assert_eq!(code, Some(1));
    assert!(
        said.ends_with("muster: no longer the leader: the lease could not be renewed in time\n"),
        "{said}"
    );
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let cluster = Cluster::start("signals").await;
    let controller = cluster.controller("a");
    assert_eq!(controller.once_ready().await, "leader 1");
    // Now the lease cannot be given back, and that is waited for.
    cluster.servers.signal_servers("-STOP");
    controller.signal("-TERM");
    cluster.until("true", async || controller.log().contains("shutting down").to_string()).await;
    controller.signal("-TERM");
    let (code, said) = controller.ended();
    assert_eq!(code, Some(1));
    let last = "muster: second signal: exiting without waiting for requests in flight\n";
    assert!(said.ends_with(last), "{said}");
}

#[tokio::test]
async fn what_it_counts_and_how_it_is() {
    let cluster = Cluster::start("metrics").await;
    for name in ["n1", "n2"] {
        cluster.add_node(name).await;
    }
    cluster.create("/apis/apps/v1/namespaces/default/daemonsets", set("web")).await;
    cluster.create("/api/v1/namespaces", json!({"metadata": {"name": "elsewhere"}})).await;
    cluster.create("/apis/apps/v1/namespaces/elsewhere/daemonsets", set("other")).await;
    let controller = cluster.controller_with("a", &["--leader-elect=false", "--namespace", "default"]);
    cluster.until("n1 web\nn2 web", async || cluster.pods().await).await;
    assert_eq!(controller.once_ready().await, "leader 1");
    let wanted = [
        "muster_leader",
        "muster_daemonset_",
        "muster_cache_objects",
        "muster_lists",
        "muster_decisions",
        "muster_calls_total{verb=\"create\"",
    ];
    let counted = async || {
        let text = controller.get("/metrics").1;
        let lines = text.lines().filter(|line| wanted.iter().any(|it| line.starts_with(it)));
        let mut lines: Vec<&str> = lines.collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    // The set in the namespace that was not named is not there.
    let expected = "\
muster_cache_objects{resource=\"controllerrevisions\"} 1
muster_cache_objects{resource=\"daemonsets\"} 1
muster_cache_objects{resource=\"namespaces\"} 5
muster_cache_objects{resource=\"nodes\"} 2
muster_cache_objects{resource=\"pods\"} 2
muster_calls_total{verb=\"create\",resource=\"controllerrevisions\",outcome=\"ok\"} 1
muster_calls_total{verb=\"create\",resource=\"pods\",outcome=\"ok\"} 2
muster_daemonset_available{namespace=\"default\",daemonset=\"web\"} 0
muster_daemonset_current{namespace=\"default\",daemonset=\"web\"} 2
muster_daemonset_desired{namespace=\"default\",daemonset=\"web\"} 2
muster_daemonset_misscheduled{namespace=\"default\",daemonset=\"web\"} 0
muster_daemonset_ready{namespace=\"default\",daemonset=\"web\"} 0
muster_daemonset_rollout_progress{namespace=\"default\",daemonset=\"web\"} 1.0
muster_daemonset_unavailable{namespace=\"default\",daemonset=\"web\"} 2
muster_daemonset_updated{namespace=\"default\",daemonset=\"web\"} 2
muster_decisions_total{decision=\"create pod\",reason=\"no pod yet\"} 2
muster_decisions_total{decision=\"record revision\",reason=\"new template\"} 1
muster_leader 1
muster_lists_total{resource=\"clusterrolloutpolicies\"} 1
muster_lists_total{resource=\"controllerrevisions\"} 1
muster_lists_total{resource=\"daemonrollouts\"} 1
muster_lists_total{resource=\"daemonsets\"} 1
muster_lists_total{resource=\"namespaces\"} 1
muster_lists_total{resource=\"nodes\"} 1
muster_lists_total{resource=\"pods\"} 1
muster_lists_total{resource=\"rolloutpolicies\"} 1";
    cluster.until(expected, counted).await;
    let asked = |path: &str| {
        let (code, text) = controller.get(path);
        format!("{path} {code} {text}")
    };
    expect![[r#"
        /healthz 200 ok
        /readyz 200 ok
        / 404 /metrics, /healthz, /readyz or /debug/explain"#]]
    .assert_eq(&["/healthz", "/readyz", "/"].map(asked).join("\n"));
    controller.signal("-INT");
    assert_eq!(controller.ended().0, Some(0));
}

#[tokio::test]
async fn results_of_checks_are_counted() {
    let cluster = Cluster::start("checks").await;
    cluster.add_node("n1").await;
    // No endpoint is allowed by default.
    let checks = json!([{"name": "errors", "prometheus": {"url": "http://127.0.0.1:9", "query": "up == 0"}}]);
    let policy = json!({"metadata": {"name": "careful"}, "spec": {"daemonSets": ["web"], "checks": checks}});
    cluster.create("/apis/muster.dev/v1alpha1/namespaces/default/rolloutpolicies", policy).await;
    cluster.create("/apis/apps/v1/namespaces/default/daemonsets", set("web")).await;
    let controller = cluster.controller_with("a", &["--leader-elect=false"]);
    assert_eq!(controller.once_ready().await, "leader 1");
    let counted = async || {
        let text = controller.get("/metrics").1;
        let lines = text.lines().filter(|it| it.starts_with("muster_rollout_check_results_total"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let expected = "muster_rollout_check_results_total{check=\"errors\",result=\"Inconclusive\"} 1";
    cluster.until(expected, counted).await;
}

#[tokio::test]
async fn conditions_are_taken_away_again() {
    let cluster = Cluster::start("release").await;
    cluster.add_node("n1").await;
    cluster.create("/apis/apps/v1/namespaces/default/daemonsets", set("web")).await;
    let controller = cluster.controller("a");
    let path = "/apis/apps/v1/namespaces/default/daemonsets/web";
    let conditions = async || {
        let set = cluster.get(path).await;
        let all = set["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let mut kinds: Vec<String> = all.iter().map(|it| it["type"].as_str().unwrap().to_owned()).collect();
        kinds.sort_unstable();
        format!("desired={} {}", set["status"]["desiredNumberScheduled"], kinds.join(" "))
    };
    cluster.until("desired=1 Available Degraded Progressing", &conditions).await;

    let release = || {
        let output = cluster.muster(&["controller", "release"]);
        let holder = regex::Regex::new(r"\S+_[0-9a-f-]{36}").unwrap();
        format!("[{}] {}", output.status.code().unwrap_or(-1), holder.replace(&text(&output), "HOLDER"))
    };
    expect![[r#"
        [1] muster: HOLDER holds the Lease kube-system/muster-controller: stop every `muster controller` first, or it writes the conditions again; --force skips this check
    "#]]
    .assert_eq(&release());
    controller.signal("-TERM");
    assert_eq!(controller.ended().0, Some(0));
    let mut set = cluster.get(path).await;
    let theirs = json!({"type": "Audited", "status": "True"});
    set["status"]["conditions"].as_array_mut().unwrap().push(theirs);
    cluster.put(&format!("{path}/status"), &set).await;

    let before = cluster.get(path).await;
    expect![[r#"
        [0] default/web: conditions removed
        1 of 1 DaemonSets had conditions of this controller
    "#]]
    .assert_eq(&release());
    assert_eq!(conditions().await, "desired=1 Audited");
    // And nothing else.
    let mut after = cluster.get(path).await;
    after["status"]["conditions"] = before["status"]["conditions"].clone();
    for field in ["resourceVersion", "managedFields"] {
        after["metadata"][field] = before["metadata"][field].clone();
    }
    assert_eq!(after, before);
    expect![[r#"
        [0] 0 of 1 DaemonSets had conditions of this controller
    "#]]
    .assert_eq(&release());
}

/// Where nobody listens.
const NOWHERE: &str = "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], \
                       clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: u, user: {token: t}}]}";

#[test]
fn what_makes_no_sense_is_refused() {
    let said = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        let output = command.arg("controller").args(args).env_remove("KUBECONFIG").output().unwrap();
        format!("[{}] {}", output.status.code().unwrap_or(-1), text(&output))
    };
    let dir = fresh_dir("senseless");
    fs::create_dir_all(&dir).unwrap();
    let kubeconfig = dir.join("kubeconfig");
    fs::write(&kubeconfig, NOWHERE).unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let all = [
        said(&["--kubeconfig", kubeconfig, "--leader-elect-lease-duration", "10s"]),
        said(&["--kubeconfig", kubeconfig, "--leader-elect-resource-name", "a b"]),
        said(&["--kubeconfig", kubeconfig, "--log-level", "=!"]),
        said(&["--kubeconfig", kubeconfig, "--metrics-addr", "8080"]),
        said(&["--kubeconfig", kubeconfig, "release", "--workers", "2"]),
    ];
    fs::remove_dir_all(&dir).unwrap();
    expect![[r#"
        [1] muster: the lease duration 10s must be a second longer than the renew deadline 10s: a write must end in between
        [1] muster: "a b" is not a valid name of a Lease or namespace
        [1] muster: "=!" is not a log level: invalid filter directive
        [2] error: invalid value '8080' for '--metrics-addr <ADDR:PORT>': expected an address and a port, such as 0.0.0.0:8080, or `off`

        For more information, try '--help'.
        [2] error: the subcommand 'release' cannot be used with '--kubeconfig <FILE>'

        Usage: muster controller [OPTIONS]
               muster controller <COMMAND>

        For more information, try '--help'.
    "#]].assert_eq(&all.concat());
}

/// A server without controllers, and whoever asks it.
struct Cluster {
    servers: TestCluster,
    dir: PathBuf,
    client: Client,
}

impl Cluster {
    async fn start(name: &str) -> Self {
        let dir = fresh_dir(name);
        // Nodes that are made here send no heartbeats.
        let servers = TestCluster::serve(&dir, &["--without", "node-lifecycle"]);
        let client = servers.client().await;
        Self { servers, dir, client }
    }

    fn controller(&self, name: &str) -> Replica {
        self.controller_with(name, &TERMS)
    }

    fn controller_with(&self, name: &str, args: &[&str]) -> Replica {
        let log = self.dir.join(format!("{name}.log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args([
            "controller",
            "--binding",
            "direct",
            "--metrics-addr",
            "127.0.0.1:0",
            "--log-format",
            "json",
        ]);
        command.arg("--kubeconfig").arg(self.dir.join("kubeconfig")).args(args);
        command.env_remove("RUST_LOG").stderr(fs::File::create(&log).unwrap());
        Replica { child: command.spawn().unwrap(), log }
    }

    fn muster(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(args).arg("--kubeconfig").arg(self.dir.join("kubeconfig")).output().unwrap()
    }

    async fn ask(&self, request: http::request::Builder, body: Option<&Value>) -> Value {
        let body = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let request = request.header("Content-Type", "application/json").body(body).unwrap();
        self.client.request(request).await.unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        self.ask(Request::get(path), None).await
    }

    async fn create(&self, path: &str, object: Value) {
        self.ask(Request::post(path), Some(&object)).await;
    }

    /// A node that nothing keeps pods away from: the taint of a new one is gone.
    async fn add_node(&self, name: &str) {
        self.create("/api/v1/nodes", json!({"metadata": {"name": name}})).await;
        let path = format!("/api/v1/nodes/{name}");
        let mut node = self.get(&path).await;
        node["spec"] = json!({});
        self.put(&path, &node).await;
    }

    async fn put(&self, path: &str, object: &Value) {
        self.ask(Request::put(path), Some(object)).await;
    }

    /// Each pod's node and set, in order.
    async fn pods(&self) -> String {
        let list = self.get("/api/v1/pods").await;
        let line = |it: &Value| {
            let (node, owner) = (&it["spec"]["nodeName"], &it["metadata"]["ownerReferences"][0]["name"]);
            format!("{} {}", node.as_str().unwrap_or("-"), owner.as_str().unwrap_or("-"))
        };
        let mut lines: Vec<String> = list["items"].as_array().unwrap().iter().map(line).collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    async fn holder(&self) -> String {
        self.get(LEASE).await["spec"]["holderIdentity"].as_str().unwrap().to_owned()
    }

    async fn transitions(&self) -> i64 {
        self.get(LEASE).await["spec"]["leaseTransitions"].as_i64().unwrap()
    }

    /// Waits for what must come to be.
    async fn until(&self, expected: &str, mut seen: impl AsyncFnMut() -> String) {
        let began = Instant::now();
        loop {
            let now = seen().await;
            if now == expected {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "waited for:\n{expected}\n\nand saw:\n{now}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

struct Replica {
    child: Child,
    log: PathBuf,
}

impl Replica {
    fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// How it ended, and all that it said.
    fn ended(mut self) -> (Option<i32>, String) {
        let began = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            assert!(began.elapsed() < PATIENCE, "it does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        };
        (code, self.log())
    }

    /// Whether it leads, once it is ready.
    async fn once_ready(&self) -> String {
        let began = Instant::now();
        while self.address().is_none() || self.get("/readyz").0 != 200 {
            assert!(began.elapsed() < PATIENCE, "not ready:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let metrics = self.get("/metrics").1;
        let line = metrics.lines().find(|it| it.starts_with("muster_leader ")).unwrap();
        line.replace("muster_", "")
    }

    /// Where it says that metrics are served.
    fn address(&self) -> Option<String> {
        let log = self.log();
        let line = log.lines().find(|it| it.contains("serving metrics and health checks"))?;
        Some(serde_json::from_str::<Value>(line).ok()?["addr"].as_str()?.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(process: &Child, name: &str) {
    let pid = process.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

/// What was logged from one message on, without times and the like.
fn messages(log: &str, from: &str) -> String {
    let lines = log.lines().map(|it| serde_json::from_str::<Value>(it).expect("a line of JSON"));
    let said = lines.map(|it| it["message"].as_str().unwrap_or_default().to_owned());
    said.skip_while(|it| it != from).collect::<Vec<_>>().join("\n")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn fresh_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("controller-{name}"));
    if dir.exists() {
        fs::remove_dir_all(&dir).unwrap();
    }
    dir
}

fn set(name: &str) -> Value {
    let container = json!({"name": "c", "image": "registry.example/c:1"});
    json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
    })
}
