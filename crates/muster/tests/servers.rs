//! `muster up --servers`: several API servers and a trial etcd cluster, of which any process may be killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tempfile::TempDir;

/// Maximum time for anything on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(120);

/// Number of simulated nodes.
const NODES: usize = 8;

/// The processes of the cluster, by the names of their data directories.
const PROCESSES: [&str; 6] = ["server-1", "etcd-1", "server-2", "etcd-2", "server-3", "etcd-3"];

fn muster(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// A `muster up --servers 3` that is ready. Killed at the end of the test, with its child processes.
struct Up {
    child: Child,
}

impl Up {
    fn start(dir: &Path) -> Self {
        // Debian's etcd is older than the supported versions.
        let flags = ["--servers", "3", "--etcd-any-version", "--listen", "127.0.0.1:0", "--sim-nodes"];
        let mut up = muster(&["up"]);
        let mut child = up
            .args(flags)
            .arg(NODES.to_string())
            .arg("--data-dir")
            .arg(dir)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready: "), "{line}");
        Self { child }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The data directory. At the end of a test, no process of the cluster is left.
struct Cluster(TempDir);

impl Cluster {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn down(&self) -> String {
        let output = muster(&["down", "--data-dir"]).arg(self.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = muster(&["down", "--data-dir"]).arg(self.path()).output();
    }
}

async fn client(dir: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(dir.join("kubeconfig")).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Returns the PID of the process whose data directory is `name`. Waits until it runs.
fn pid(dir: &Path, name: &str) -> u32 {
    let argument = format!("--data-dir={}", dir.join(name).display()).into_bytes();
    let began = Instant::now();
    loop {
        let found = fs::read_dir("/proc").unwrap().flatten().find_map(|it| {
            let pid = it.file_name().to_str()?.parse::<u32>().ok()?;
            let line = fs::read(it.path().join("cmdline")).ok()?;
            line.split(|it| *it == 0).any(|it| it == argument).then_some(pid)
        });
        if let Some(pid) = found {
            return pid;
        }
        assert!(began.elapsed() < PATIENCE, "{name} does not run");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn kill(dir: &Path, name: &str) {
    let killed = Command::new("kill").args(["-9", &pid(dir, name).to_string()]).status().unwrap();
    assert!(killed.success());
}

/// Repeats a call until it succeeds. Fails after `limit`.
async fn retry<T>(limit: Duration, what: &str, mut call: impl AsyncFnMut() -> Result<T, kube::Error>) -> T {
    let began = Instant::now();
    loop {
        match call().await {
            Ok(done) => return done,
            Err(error) => assert!(began.elapsed() < limit, "{what}: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn daemonset(image: &str) -> DaemonSet {
    serde_json::from_value(json!({
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "d"}},
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "c", "image": image}],
                },
            },
        },
    }))
    .unwrap()
}

/// The pods by node, without those that are being deleted: image, UID and whether the pod is Ready.
async fn pods_by_node(client: &Client) -> BTreeMap<String, Vec<(String, String, bool)>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pods = retry(PATIENCE, "list the pods", async || pods.list(&ListParams::default()).await).await;
    let mut by_node: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for pod in pods.iter().filter(|it| it.metadata.deletion_timestamp.is_none()) {
        let spec = pod.spec.as_ref().unwrap();
        let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True");
        // A daemon pod is created for a node before it is scheduled to it.
        let affinity = serde_json::to_value(&spec.affinity).unwrap();
        let fields =
            "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0";
        let node =
            affinity.pointer(&format!("{fields}/values/0")).and_then(|it| it.as_str()).unwrap().to_owned();
        let image = spec.containers[0].image.clone().unwrap();
        by_node.entry(node).or_default().push((image, pod.uid().unwrap(), is_ready));
    }
    by_node
}

/// Waits until every node has one Ready pod with this image, and checks at every look that no node has two pods and that
/// at most one node is without a Ready pod. Calls `disturb` after every look. Returns the UIDs of the pods.
async fn wait_for_rollout(
    client: &Client,
    image: &str,
    unavailable_max: usize,
    mut disturb: impl FnMut(),
) -> BTreeSet<String> {
    let began = Instant::now();
    loop {
        let pods = pods_by_node(client).await;
        assert!(pods.values().all(|it| it.len() == 1), "a node has two pods: {pods:?}");
        let ready = pods.values().filter(|it| it[0].2).count();
        assert!(NODES - ready <= unavailable_max, "{} nodes have no Ready pod: {pods:?}", NODES - ready);
        let is_done = pods.len() == NODES && pods.values().all(|it| it[0].0 == image && it[0].2);
        if is_done {
            return pods.into_values().map(|it| it[0].1.clone()).collect();
        }
        assert!(began.elapsed() < PATIENCE, "the rollout does not end: {pods:?}");
        disturb();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_goes_on_when_any_of_its_processes_is_killed() {
    let cluster = Cluster(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let dir = cluster.path();
    let up = Up::start(dir);
    let api = client(dir).await;
    let sets: Api<DaemonSet> = Api::namespaced(api.clone(), "default");
    sets.create(&PostParams::default(), &daemonset("a")).await.unwrap();
    wait_for_rollout(&api, "a", NODES, || ()).await;

    // Every process is killed in the middle of a rollout, which replaces one pod at a time.
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "b"}]}}}});
    retry(PATIENCE, "roll the DaemonSet", async || {
        sets.patch("d", &PatchParams::default(), &Patch::Strategic(&patch)).await
    })
    .await;
    let mut victims = PROCESSES.iter().peekable();
    let mut killed_at = Instant::now();
    let uids = wait_for_rollout(&api, "b", 1, || {
        if Duration::from_secs(1) < killed_at.elapsed()
            && let Some(victim) = victims.next()
        {
            kill(dir, victim);
            killed_at = Instant::now();
        }
    })
    .await;
    let maps: Api<ConfigMap> = Api::namespaced(api.clone(), "default");
    for victim in PROCESSES {
        kill(dir, victim);
        let name = format!("after-{victim}");
        let map = ConfigMap {
            metadata: kube::api::ObjectMeta { name: Some(name.clone()), ..Default::default() },
            ..ConfigMap::default()
        };
        // A call without an answer may have been made.
        retry(Duration::from_secs(10), &name, async || {
            match maps.create(&PostParams::default(), &map).await {
                Err(kube::Error::Api(it)) if it.reason == "AlreadyExists" => Ok(()),
                done => done.map(drop),
            }
        })
        .await;
        // The process is restarted before the next one dies: of three members of etcd, one may be gone.
        pid(dir, victim);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }

    // The Leases of the controllers are spread over the servers.
    let leases: Api<Lease> = Api::namespaced(api.clone(), "kube-system");
    let began = Instant::now();
    loop {
        let leases =
            retry(PATIENCE, "list the Leases", async || leases.list(&ListParams::default()).await).await;
        let of_controllers = leases.iter().filter(|it| it.name_any().starts_with("muster-"));
        let holders: BTreeSet<_> = of_controllers
            .filter_map(|it| it.spec.as_ref()?.holder_identity.clone())
            .filter(|it| !it.is_empty())
            .collect();
        if holders.len() == 3 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{holders:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }

    // `muster up` itself is killed: its servers end, and its members of etcd are stopped by the next start.
    drop(up);
    let up = Up::start(dir);
    let api = client(dir).await;
    let pods = pods_by_node(&api).await;
    assert_eq!(pods.into_values().flatten().map(|it| it.1).collect::<BTreeSet<_>>(), uids);
    let maps: Api<ConfigMap> = Api::namespaced(api.clone(), "default");
    for victim in PROCESSES {
        maps.get(&format!("after-{victim}")).await.unwrap();
    }
    drop(up);
    let stopped = cluster.down();
    assert_eq!(stopped.lines().filter(|it| it.starts_with("stopped: process")).count(), 3, "{stopped}");
}

#[test]
fn a_data_directory_is_not_used_for_another_kind_of_cluster() {
    let cluster = Cluster(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let run = |dir: &Path, flags: &[&str]| {
        let mut up = muster(&["up", "--listen", "127.0.0.1:0", "--sim-nodes", "0"]);
        let output = up.args(flags).arg("--data-dir").arg(dir).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        said.replace(&dir.display().to_string(), "DIR").lines().last().unwrap_or_default().to_owned() + "\n"
    };
    let (one, several) = (cluster.path().join("one"), cluster.path().join("several"));
    fs::create_dir_all(several.join("etcd-1")).unwrap();
    fs::write(several.join("lock"), "").unwrap();
    fs::create_dir_all(&one).unwrap();
    for name in ["lock", "muster.db"] {
        fs::write(one.join(name), "").unwrap();
    }
    let said = [
        run(&several, &[]),
        run(&one, &["--servers", "3"]),
        run(&cluster.path().join("new"), &["--servers", "3", "--new-cluster"]),
        run(&cluster.path().join("new"), &["--servers", "3", "--encryption-key-file", "k"]),
        run(&cluster.path().join("new"), &["--servers", "3", "--audit-log", "a"]),
    ];
    expect_test::expect![[r#"
        muster: DIR has a cluster with several servers: add --servers N, or choose another --data-dir
        muster: DIR has a cluster with one server: omit --servers, or choose another --data-dir
        muster: --new-cluster cannot be used with --servers: remove the data directory to start an empty cluster
        muster: --encryption-key-file cannot be used with --servers: the servers share a key in etcd
        muster: --audit-log cannot be used with --servers: every server needs a file of its own: start them with `muster server`
    "#]]
    .assert_eq(&said.concat());
}
