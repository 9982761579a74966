//! A cluster of etcd, kube-apiserver and kube-controller-manager on the loopback address, with simulated nodes, and the
//! controller under test.

#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use expect_test::Expect;
use http::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use regex::Regex;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../bed/mod.rs"]
pub(crate) mod binaries;

use crate::pod_history::PodHistory;

/// Time within which a state must be reached, also on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

/// Time within which counts and conditions follow the pods, also on a busy machine.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Interval at which a state is read again.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Shorter than the defaults, so that a new replica acquires the Lease of a killed one soon; long enough for a busy
/// machine.
const LEASE_FLAGS: [&str; 6] = [
    "--leader-elect-lease-duration",
    "10s",
    "--leader-elect-renew-deadline",
    "8s",
    "--leader-elect-retry-period",
    "500ms",
];

/// Controllers of kube-controller-manager that run in every test.
const UPSTREAM_CONTROLLERS: &str =
    "garbage-collector-controller,namespace-controller,serviceaccount-controller";

pub(crate) const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
pub(crate) const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
pub(crate) const POLICIES: &str = "/apis/muster.dev/v1alpha1/namespaces/default/rolloutpolicies";
pub(crate) const ROLLOUTS: &str = "/apis/muster.dev/v1alpha1/namespaces/default/daemonrollouts";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const NODES: &str = "/api/v1/nodes";

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kubernetes");

/// Name of the fleet of simulated nodes, and prefix of their names.
const FLEET: &str = "n";

/// One cluster at a time: each of them loads a small machine.
static TURN: Mutex<()> = Mutex::const_new(());

/// Which controller creates the pods of DaemonSets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DaemonSetController {
    /// `muster controller`, in place of that of kube-controller-manager.
    Muster,
    /// That of kube-controller-manager, with `muster controller --assist` beside it.
    Upstream,
}

impl DaemonSetController {
    /// Name of the namespace and of the service account of the controller under test.
    fn account(self) -> (&'static str, &'static str) {
        match self {
            Self::Muster => ("muster-system", "muster-controller"),
            Self::Upstream => ("muster-assist", "muster-assist"),
        }
    }

    /// Manifests of the controller under test.
    fn manifests(self) -> String {
        match self {
            Self::Muster => DEPLOY.to_owned(),
            Self::Upstream => format!("{DEPLOY}/assist"),
        }
    }
}

/// Returns the directory with the binaries of Kubernetes and etcd. Panics if MUSTER_TEST_UPSTREAM is not set or a
/// binary is missing.
fn find_binaries() -> PathBuf {
    let Some(dir) = std::env::var_os("MUSTER_TEST_UPSTREAM").filter(|it| !it.is_empty()).map(PathBuf::from)
    else {
        panic!("MUSTER_TEST_UPSTREAM is not set: it names a directory with kube-apiserver");
    };
    for name in ["kube-apiserver", "kube-controller-manager"] {
        assert!(dir.join(name).is_file(), "{} has no {name}", dir.display());
    }
    let has_etcd = dir.join("etcd36").is_file() || dir.join("etcd").is_file();
    assert!(has_etcd, "{} has neither etcd36 nor etcd", dir.display());
    dir
}

/// A cluster of upstream's binaries. Dropping it ends all its processes.
pub(crate) struct UpstreamCluster {
    pub(crate) dir: PathBuf,
    pub(crate) client: Client,
    pub(crate) pods: PodHistory,
    daemon_set_controller: DaemonSetController,
    kubectl: PathBuf,
    /// In the order of their start.
    processes: Vec<LoggedProcess>,
    scheduler: CancellationToken,
    controllers: u32,
    _turn: MutexGuard<'static, ()>,
}

impl UpstreamCluster {
    /// Starts a cluster with the kinds of muster.dev and the permissions of the controller under test, and with
    /// simulated nodes.
    pub(crate) async fn start(test: &str, daemon_set_controller: DaemonSetController, nodes: u16) -> Self {
        let binaries = find_binaries();
        let turn = TURN.lock().await;
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("upstream-{test}"));
        if dir.exists() {
            fs::remove_dir_all(&dir).unwrap();
        }
        fs::create_dir_all(&dir).unwrap();
        let [etcd_port, peer_port, port, manager_port] = free_ports();
        let token = uuid::Uuid::new_v4().to_string();
        write_credentials(&dir, &token);
        write_kubeconfig(&dir.join("admin.conf"), port, &token);

        let mut processes = vec![start_etcd(&binaries, &dir, etcd_port, peer_port)];
        processes.push(start_apiserver(&binaries, &dir, etcd_port, port));
        let client = connect(&dir.join("admin.conf")).await;
        until_ready(&client, &processes).await;
        processes.push(start_controller_manager(&binaries, &dir, manager_port, daemon_set_controller));

        // The scheduler of Muster binds the pods, as kube-scheduler does. It decides nothing: a daemon pod fits one node.
        let scheduler = CancellationToken::new();
        tokio::spawn(muster_control::run_scheduler(client.clone(), scheduler.clone()));
        let pods = PodHistory::record(client.clone(), PODS);
        let kubectl = binaries::kubectls().into_values().next_back().expect("there is a kubectl");
        let mut cluster = Self {
            dir,
            client,
            pods,
            daemon_set_controller,
            kubectl,
            processes,
            scheduler,
            controllers: 0,
            _turn: turn,
        };
        cluster.install(port);
        cluster.start_nodes(nodes);
        cluster
    }

    /// Installs the kinds of muster.dev and the manifests of the controller under test, and creates a kubeconfig with
    /// the token of its service account. No Deployment controller runs, so the Deployment has no effect.
    fn install(&self, port: u16) {
        self.kubectl(&["apply", "-k", &format!("{DEPLOY}/crds")]);
        self.kubectl(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=300s"]);
        self.kubectl(&["apply", "-k", &self.daemon_set_controller.manifests()]);
        let (namespace, account) = self.daemon_set_controller.account();
        let token = self.kubectl(&["create", "token", account, "-n", namespace, "--duration", "6h"]);
        write_kubeconfig(&self.dir.join("controller.conf"), port, token.trim());
    }

    fn start_nodes(&mut self, count: u16) {
        let mut command = self.muster(&["sim-nodes", "--name-prefix", FLEET, "--count", &count.to_string()]);
        let log = self.dir.join("sim-nodes.log");
        command.stdout(Stdio::piped()).stderr(fs::File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        self.processes.push(LoggedProcess { child, log });
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, format!("ready: {count} simulated nodes\n"), "{}", self.logs());
    }

    /// Adds nodes to the cluster, and returns their names.
    pub(crate) async fn add_nodes(&self, count: u16) -> BTreeSet<String> {
        let before = self.nodes().await;
        let mut add = self.muster(&["sim-node", "add", "--fleet", FLEET, "--count", &count.to_string()]);
        output_of(&mut add);
        let after = self.nodes().await;
        let added: BTreeSet<String> = after.difference(&before).cloned().collect();
        assert_eq!(added.len(), usize::from(count));
        added
    }

    /// Returns the names of all nodes.
    pub(crate) async fn nodes(&self) -> BTreeSet<String> {
        items(self.get(NODES).await).iter().map(name).collect()
    }

    /// Starts `muster controller` with the permissions that the manifests grant.
    pub(crate) fn start_controller(&mut self) -> LoggedProcess {
        self.controllers += 1;
        let log = self.dir.join(format!("controller-{}.log", self.controllers));
        let (namespace, _) = self.daemon_set_controller.account();
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(["controller", "--metrics-addr", "off", "--leader-elect-resource-namespace", namespace]);
        command.args(LEASE_FLAGS).arg("--kubeconfig").arg(self.dir.join("controller.conf"));
        if self.daemon_set_controller == DaemonSetController::Upstream {
            command.arg("--assist");
        }
        command.env_remove("RUST_LOG").stdin(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        LoggedProcess { child: command.spawn().unwrap(), log }
    }

    /// A command of the binary under test, as the administrator.
    fn muster(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(args).env("KUBECONFIG", self.dir.join("admin.conf")).env_remove("RUST_LOG");
        command.stdin(Stdio::null());
        command
    }

    /// Runs `muster rollout` as the administrator, and returns its output.
    #[track_caller]
    pub(crate) fn rollout_command(&self, args: &[&str]) -> String {
        output_of(self.muster(&["rollout"]).args(args))
    }

    #[track_caller]
    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        let mut command = Command::new(&self.kubectl);
        command.args(args).env("KUBECONFIG", self.dir.join("admin.conf")).stdin(Stdio::null());
        output_of(command.env("HOME", &self.dir))
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> kube::Result<Value> {
        send(&self.client, method, path, body).await
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> impl Future<Output = Value> {
        let sent = self.send(Method::GET, path, &Value::Null);
        async move { sent.await.unwrap_or_else(|error| panic!("GET {path}: {error}")) }
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) {
        let sent = self.send(Method::POST, path, object).await;
        sent.unwrap_or_else(|error| panic!("create {object}: {error}"));
    }

    /// Applies a merge patch.
    pub(crate) async fn patch(&self, path: &str, patch: &Value) {
        let sent = self.send(Method::PATCH, path, patch).await;
        sent.unwrap_or_else(|error| panic!("patch {path} with {patch}: {error}"));
    }

    pub(crate) async fn delete(&self, path: &str) {
        let sent = self.send(Method::DELETE, path, &Value::Null).await;
        sent.unwrap_or_else(|error| panic!("delete {path}: {error}"));
    }

    /// Deletes the pods of these nodes.
    pub(crate) async fn delete_pods_of(&self, nodes: &BTreeSet<String>) {
        let of_nodes = self.pods.present().into_iter().filter(|it| nodes.contains(&it.node));
        let deletes = of_nodes.map(|it| {
            let path = format!("{PODS}/{}", it.name);
            async move { self.delete(&path).await }
        });
        futures::future::join_all(deletes).await;
    }

    /// Changes the image of the only container of the DaemonSet `web`.
    pub(crate) async fn set_image(&self, image: &str) {
        let containers = json!([{"name": "c", "image": image}]);
        self.patch(
            &format!("{SETS}/web"),
            &json!({"spec": {"template": {"spec": {"containers": containers}}}}),
        )
        .await;
    }

    /// Returns the DaemonRollout of the DaemonSet `web`, or null.
    pub(crate) async fn rollout(&self) -> Value {
        self.send(Method::GET, &format!("{ROLLOUTS}/web"), &Value::Null).await.unwrap_or_default()
    }

    /// Waits until the rollout of the DaemonSet `web` has this phase, and returns the DaemonRollout.
    pub(crate) async fn until_phase(&self, phase: &str) -> Value {
        self.until(&format!("the phase {phase}"), async || {
            let rollout = self.rollout().await;
            (rollout["status"]["phase"] == phase).then_some(rollout)
        })
        .await
    }

    /// Waits until every node has one pod, of this image and Ready, and until the status of the DaemonSet counts them.
    /// `except` names other images by node.
    pub(crate) async fn until_images(&self, image: &str, except: &BTreeMap<String, String>) {
        let nodes = self.nodes().await;
        let expected = |node: &String| except.get(node).map_or(image, String::as_str).to_owned();
        let expected: BTreeMap<String, String> = nodes.iter().map(|it| (it.clone(), expected(it))).collect();
        self.until(&format!("{image} on {} nodes, except {except:?}", nodes.len()), async || {
            (self.pods.ready_images() == expected).then_some(())
        })
        .await;
        self.until("the status of the DaemonSet", async || {
            let set = self.send(Method::GET, &format!("{SETS}/web"), &Value::Null).await.unwrap_or_default();
            let available = set["status"]["numberAvailable"].as_u64().and_then(|it| usize::try_from(it).ok());
            (available == Some(nodes.len())).then_some(())
        })
        .await;
    }

    /// Waits until `check` returns a value.
    pub(crate) async fn until<T>(&self, what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            self.pods.assert_complete();
            if let Some(found) = check().await {
                return found;
            }
            if TIMEOUT < began.elapsed() {
                panic!("{what}: not within {} s\n{}\n{}", TIMEOUT.as_secs(), self.state().await, self.logs());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until [`Self::state`] is as expected: counts and conditions are written after the pods have changed. `count`
    /// is a number of nodes that differs from run to run, and is written as COUNT.
    pub(crate) async fn until_state(&self, count: Option<usize>, expected: Expect) {
        let began = Instant::now();
        loop {
            let mut state = self.state().await;
            if let Some(count) = count {
                state = state.replace(&count.to_string(), "COUNT");
            }
            let lines = |text: &str| -> Vec<String> {
                text.lines().map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect()
            };
            if lines(&state) == lines(expected.data()) || SETTLE_TIMEOUT < began.elapsed() {
                return expected.assert_eq(&state);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the state of the DaemonSet `web` as text: its pods by node, revisions, rollout, counts and conditions.
    pub(crate) async fn state(&self) -> String {
        let revisions: Vec<Value> = items(self.get(REVISIONS).await);
        let number = |hash: &Value| {
            let of_hash = |it: &&Value| it["metadata"]["labels"]["controller-revision-hash"] == *hash;
            revisions.iter().find(of_hash).map_or("unknown".to_owned(), |it| it["revision"].to_string())
        };
        let mut by_node: BTreeMap<String, Vec<String>> =
            self.nodes().await.into_iter().map(|it| (it, Vec::new())).collect();
        for pod in items(self.get(PODS).await) {
            let hash = &pod["metadata"]["labels"]["controller-revision-hash"];
            let image = pod["spec"]["containers"][0]["image"].as_str().unwrap();
            let line = format!("revision {}, {image}, {}", number(hash), readiness(&pod));
            by_node.entry(target_node(&pod)).or_default().push(line);
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for pods in by_node.into_values() {
            let pods = if pods.is_empty() { "no pod".to_owned() } else { pods.join("; ") };
            *counts.entry(pods).or_default() += 1;
        }
        let mut text = String::new();
        for (pods, count) in counts {
            writeln!(text, "{count} nodes: {pods}").unwrap();
        }
        let mut lines: Vec<String> = revisions.iter().map(revision_line).collect();
        lines.sort();
        text += &lines.concat();
        text += &rollout_lines(&self.rollout().await);
        text += &set_lines(&self.get(&format!("{SETS}/web")).await);
        // Names of nodes follow from the order of the rollout, which other tests fix.
        Regex::new(&format!(r"\b{FLEET}-\d+\b")).unwrap().replace_all(&text, "NODE").into_owned()
    }

    /// The last lines of the logs of all processes.
    fn logs(&self) -> String {
        let mut logs: Vec<PathBuf> = fs::read_dir(&self.dir).unwrap().flatten().map(|it| it.path()).collect();
        logs.retain(|it| it.extension().is_some_and(|it| it == "log"));
        logs.sort();
        let mut text = String::new();
        for log in logs {
            let bytes = fs::read(&log).unwrap_or_default();
            let end = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(4000)..]).into_owned();
            writeln!(text, "---- {}\n{end}", log.display()).unwrap();
        }
        text
    }
}

impl Drop for UpstreamCluster {
    fn drop(&mut self) {
        self.scheduler.cancel();
        while self.processes.pop().is_some() {}
        if std::thread::panicking() {
            println!("{}", self.logs());
        } else {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// A process with its log. Dropping it kills the process.
pub(crate) struct LoggedProcess {
    child: Child,
    log: PathBuf,
}

impl LoggedProcess {
    fn start(command: &mut Command, log: PathBuf) -> Self {
        let file = fs::File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, log }
    }

    /// Ends the process as `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for LoggedProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns ports that are free now. kube-apiserver cannot choose one itself.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|it| it.local_addr().unwrap().port())
}

/// Writes the token of the administrator and the keys of service account tokens.
fn write_credentials(dir: &Path, token: &str) {
    fs::write(dir.join("tokens.csv"), format!("{token},admin,admin,system:masters\n")).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(dir.join("service-accounts.key"), key.serialize_pem()).unwrap();
    fs::write(dir.join("service-accounts.pub"), key.public_key_pem()).unwrap();
}

fn write_kubeconfig(path: &Path, port: u16, token: &str) {
    let server = format!("https://127.0.0.1:{port}");
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    });
    fs::write(path, kubeconfig.to_string()).unwrap();
}

fn start_etcd(binaries: &Path, dir: &Path, client_port: u16, peer_port: u16) -> LoggedProcess {
    let [client_url, peer_url] = [client_port, peer_port].map(|it| format!("http://127.0.0.1:{it}"));
    let data = dir.join("etcd");
    let embedded = binaries.join("etcd36");
    let mut command;
    if embedded.is_file() {
        command = Command::new(embedded);
        command.arg(data).args([&client_url, &peer_url]);
    } else {
        command = Command::new(binaries.join("etcd"));
        command.arg("--data-dir").arg(data);
        command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
        command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
        command.arg("--initial-cluster").arg(format!("default={peer_url}"));
    }
    LoggedProcess::start(&mut command, dir.join("etcd.log"))
}

fn start_apiserver(binaries: &Path, dir: &Path, etcd_port: u16, port: u16) -> LoggedProcess {
    let mut command = Command::new(binaries.join("kube-apiserver"));
    command.arg(format!("--etcd-servers=http://127.0.0.1:{etcd_port}"));
    command.args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"]);
    command.arg(format!("--secure-port={port}"));
    command.arg("--cert-dir").arg(dir.join("certificates"));
    command.arg("--token-auth-file").arg(dir.join("tokens.csv"));
    command.args(["--authorization-mode=RBAC", "--service-account-issuer=https://upstream.test"]);
    command.arg("--service-account-key-file").arg(dir.join("service-accounts.pub"));
    command.arg("--service-account-signing-key-file").arg(dir.join("service-accounts.key"));
    command.arg("--service-cluster-ip-range=10.0.0.0/16");
    // Pods need no token of a service account. No controller removes the taint of a new node, which a heartbeat that
    // arrives late on a busy machine would bring back.
    command.arg("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition");
    LoggedProcess::start(&mut command, dir.join("kube-apiserver.log"))
}

fn start_controller_manager(
    binaries: &Path,
    dir: &Path,
    port: u16,
    daemon_set_controller: DaemonSetController,
) -> LoggedProcess {
    let mut command = Command::new(binaries.join("kube-controller-manager"));
    for flag in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(flag).arg(dir.join("admin.conf"));
    }
    command.args(["--leader-elect=false", "--bind-address=127.0.0.1"]);
    command.arg(format!("--secure-port={port}"));
    command.arg("--cert-dir").arg(dir.join("certificates"));
    let controllers = match daemon_set_controller {
        DaemonSetController::Muster => UPSTREAM_CONTROLLERS.to_owned(),
        DaemonSetController::Upstream => format!("{UPSTREAM_CONTROLLERS},daemonset-controller"),
    };
    command.arg(format!("--controllers={controllers}"));
    command.args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
    LoggedProcess::start(&mut command, dir.join("kube-controller-manager.log"))
}

pub(crate) async fn connect(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Waits until kube-apiserver is ready.
async fn until_ready(client: &Client, processes: &[LoggedProcess]) {
    let began = Instant::now();
    loop {
        let request = Request::get("/readyz").body(Vec::new()).unwrap();
        let Err(error) = client.request_text(request).await else { return };
        let logs = || processes.iter().map(|it| fs::read_to_string(&it.log).unwrap()).collect::<String>();
        assert!(began.elapsed() < TIMEOUT, "kube-apiserver is not ready: {error}\n{}", logs());
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Runs a command that must succeed, and returns its standard output.
#[track_caller]
fn output_of(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    assert!(status.success(), "{command:?}: {stdout}{stderr}");
    stdout
}

pub(crate) async fn send(client: &Client, method: Method, path: &str, body: &Value) -> kube::Result<Value> {
    let media_type =
        if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).header("Content-Type", media_type).body(body);
    client.request(request.unwrap()).await
}

pub(crate) fn items(mut list: Value) -> Vec<Value> {
    match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

pub(crate) fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// The node of a daemon pod: where it is bound, or the only node that its affinity allows.
pub(crate) fn target_node(pod: &Value) -> String {
    let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let allowed = &terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0];
    let node = pod["spec"]["nodeName"].as_str().or(allowed.as_str());
    node.unwrap_or_else(|| panic!("a daemon pod without a node: {pod}")).to_owned()
}

pub(crate) fn readiness(pod: &Value) -> &'static str {
    let conditions = pod["status"]["conditions"].as_array();
    let is_ready = |it: &Value| it["type"] == "Ready" && it["status"] == "True";
    match conditions.into_iter().flatten().any(is_ready) {
        _ if pod["metadata"]["deletionTimestamp"].is_string() => "terminating",
        true => "Ready",
        false => "not Ready",
    }
}

/// A revision with its image and its verdict.
fn revision_line(revision: &Value) -> String {
    let annotations = &revision["metadata"]["annotations"];
    let image = revision["data"]["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap();
    let text = |key: &str| annotations[key].as_str().unwrap_or("-").to_owned();
    let (verdict, reason) = (text("muster.dev/verdict"), text("muster.dev/verdict-reason"));
    format!("revision {} is {image}: {verdict}, {reason}\n", revision["revision"])
}

fn rollout_lines(rollout: &Value) -> String {
    if rollout.is_null() {
        return "no rollout\n".to_owned();
    }
    let status = &rollout["status"];
    let number = |name: &str| status[name]["number"].to_string();
    let mut text = format!(
        "rollout {}, attempt {}, step {}, revision {}, stable {}: {}\n",
        status["phase"].as_str().unwrap_or("-"),
        status["attempt"],
        status["step"]["name"].as_str().unwrap_or("-"),
        number("current"),
        number("stable"),
        status["message"].as_str().unwrap_or("-"),
    );
    let mut counts = String::from("rollout nodes:");
    for name in ["eligible", "admitted", "updated", "available", "soaked", "held", "unassigned"] {
        write!(counts, " {name} {}", status["nodes"][name].as_i64().unwrap_or(0)).unwrap();
    }
    let failures = status["failures"]["nodes"].as_array().cloned().unwrap_or_default();
    for failure in failures {
        write!(counts, "\nfailed: {} {}", failure["node"], failure["reason"]).unwrap();
    }
    text += &counts;
    text.push('\n');
    text
}

fn set_lines(set: &Value) -> String {
    let status = &set["status"];
    let mut text = String::from("set:");
    for (label, name) in [
        ("desired", "desiredNumberScheduled"),
        ("current", "currentNumberScheduled"),
        ("ready", "numberReady"),
        ("available", "numberAvailable"),
        ("updated", "updatedNumberScheduled"),
        ("misscheduled", "numberMisscheduled"),
    ] {
        write!(text, " {label} {}", status[name].as_i64().unwrap_or(0)).unwrap();
    }
    text.push('\n');
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.sort_by_key(|it| it["type"].to_string());
    for it in conditions {
        let word = |name: &str| it[name].as_str().unwrap_or("-").to_owned();
        let line = [word("type"), word("status"), word("reason")].join(" ");
        writeln!(text, "condition {line}: {}", word("message")).unwrap();
    }
    text
}

/// The DaemonSet `web` with one container.
pub(crate) fn daemon_set(image: &str, update_strategy: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "updateStrategy": update_strategy,
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "c", "image": image}],
                },
            },
        },
    })
}

/// The RolloutPolicy `careful` for the DaemonSet `web`: `spec` without `daemonSets`.
pub(crate) fn policy(mut spec: Value) -> Value {
    spec["daemonSets"] = json!(["web"]);
    json!({
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "RolloutPolicy",
        "metadata": {"name": "careful"},
        "spec": spec,
    })
}
