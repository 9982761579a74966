//! What the tests of progressive rollouts stand on: a cluster with simulated nodes, and `muster rollout` beside it.

#[path = "../cluster/mod.rs"]
pub(crate) mod cluster;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use cluster::{TestCluster, UpFlags};

/// Time within which a state must be reached, also on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
pub(crate) const REVISIONS: &str = "/apis/apps/v1/namespaces/default/controllerrevisions";
pub(crate) const ROLLOUTS: &str = "/apis/muster.dev/v1alpha1/namespaces/default/daemonrollouts";
pub(crate) const POLICIES: &str = "/apis/muster.dev/v1alpha1/namespaces/default/rolloutpolicies";

/// A cluster in a directory of its own.
pub(crate) struct Cluster {
    _processes: TestCluster,
    pub(crate) dir: PathBuf,
    pub(crate) client: Client,
}

impl Cluster {
    /// Starts a cluster with three simulated nodes in three zones, and with further flags of the controller.
    pub(crate) async fn start(name: &str, controller: &[&str]) -> Self {
        let flags = UpFlags { nodes: 3, sim_nodes: &["--sim-zones", "3"], controller, ..UpFlags::default() };
        Self::start_with(name, |dir| TestCluster::up(dir, flags)).await
    }

    /// Starts a cluster with `start`, which gets the data directory.
    pub(crate) async fn start_with(name: &str, start: impl FnOnce(&Path) -> TestCluster) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rollout-{name}"));
        if dir.exists() {
            fs::remove_dir_all(&dir).unwrap();
        }
        let processes = start(&dir);
        let client = processes.client().await;
        Self { _processes: processes, dir, client }
    }

    /// Runs `muster rollout` with these words, and returns what it printed, with its exit code.
    pub(crate) fn run(&self, words: &str) -> String {
        self.run_as(&self.dir.join("kubeconfig"), words)
    }

    pub(crate) fn run_as(&self, kubeconfig: &Path, words: &str) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.arg("rollout").args(words.split(' ')).arg("--kubeconfig").arg(kubeconfig);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let code = output.status.code().unwrap_or(-1);
        let exit = if code == 0 { String::new() } else { format!("[exit {code}]\n") };
        normalised(&(text(&output) + &exit))
    }

    /// Runs commands, and returns them with what they printed, as a console shows it.
    pub(crate) fn all(&self, commands: &[&str]) -> String {
        self.all_as(&self.dir.join("kubeconfig"), commands)
    }

    pub(crate) fn all_as(&self, kubeconfig: &Path, commands: &[&str]) -> String {
        let shown =
            commands.iter().map(|it| format!("$ muster rollout {it}\n{}", self.run_as(kubeconfig, it)));
        shown.collect::<Vec<_>>().join("\n")
    }

    pub(crate) async fn send(
        &self,
        request: http::request::Builder,
        media_type: &str,
        body: &Value,
    ) -> Value {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = request.header("Content-Type", media_type).body(body).unwrap();
        self.client.request(request).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.send(Request::get(path), "application/json", &Value::Null).await
    }

    pub(crate) async fn create(&self, path: &str, object: Value) -> Value {
        self.send(Request::post(path), "application/json", &object).await
    }

    pub(crate) async fn merge(&self, path: &str, patch: &Value) {
        self.send(Request::patch(path), "application/merge-patch+json", patch).await;
    }

    /// Creates the DaemonSet `web` with the image `web:1`.
    pub(crate) async fn create_set(&self) {
        self.create_set_with(json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%"}}))
            .await;
    }

    /// Creates the DaemonSet `web` with the image `web:1` and this update strategy.
    pub(crate) async fn create_set_with(&self, strategy: Value) {
        let container = json!({"name": "c", "image": "web:1"});
        let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
        let object = json!({
            "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "updateStrategy": strategy,
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
            },
        });
        self.create(SETS, object).await;
    }

    pub(crate) async fn set_image(&self, image: &str) {
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
        self.merge(&format!("{SETS}/web"), &patch).await;
    }

    /// Waits until every node has an available pod.
    pub(crate) async fn complete_without_policy(&self) {
        self.until("all pods are available", async || {
            let status = self.get(&format!("{SETS}/web")).await["status"].clone();
            status["numberAvailable"] == 3 && status["updatedNumberScheduled"] == 3
        })
        .await;
    }

    pub(crate) async fn rollout(&self) -> Value {
        let list = self.get(ROLLOUTS).await;
        list["items"].as_array().and_then(|it| it.first()).cloned().unwrap_or_default()
    }

    /// Waits until the rollout of the present template is in this phase.
    pub(crate) async fn phase(&self, phase: &str) {
        self.state(phase, false).await;
    }

    /// Waits until the rollout of the present template is in this phase, and paused or not.
    pub(crate) async fn state(&self, phase: &str, is_paused: bool) {
        self.until(&format!("the rollout is {phase}"), async || {
            let set = self.get(&format!("{SETS}/web")).await;
            let status = self.rollout().await["status"].clone();
            let revisions = self.get(REVISIONS).await;
            let revisions = revisions["items"].as_array().unwrap().clone();
            let newest = revisions.iter().map(|it| it["revision"].as_i64().unwrap()).max();
            set["status"]["observedGeneration"] == set["metadata"]["generation"]
                && status["current"]["number"].as_i64() == newest
                && status["phase"] == phase
                && status["paused"] == is_paused
        })
        .await;
    }

    pub(crate) async fn until(&self, expected: &str, is_reached: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !is_reached().await {
            let rollout = self.rollout().await;
            assert!(began.elapsed() < TIMEOUT, "not reached: {expected}\n{rollout:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// A policy for the DaemonSet with these settings.
pub(crate) fn policy(settings: Value) -> Value {
    let mut spec = settings;
    spec["daemonSets"] = json!(["web"]);
    json!({"metadata": {"name": "careful"}, "spec": spec})
}

/// Replaces times.
pub(crate) fn normalised(said: &str) -> String {
    let time = regex::Regex::new(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z").unwrap();
    time.replace_all(said, "2026-08-23T10:00:00Z").into_owned()
}

/// What a command printed.
pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
