//! `muster up --servers`: several API servers and a trial etcd cluster, of which any process may be killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tempfile::TempDir;

#[path = "bed/rollout_judge.rs"]
mod rollout_judge;

use rollout_judge::{JudgedSet, complete_manifest, describe, retry, version_patch};

/// Maximum time for anything on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(120);

/// The DaemonSet. There are more nodes than processes, so that a rollout goes on after the last process was killed.
/// `minReadySeconds` makes the rollout so slow that a process can be killed after each node.
const SET: JudgedSet = JudgedSet { name: "d", nodes: 8, min_ready: SignedDuration::from_secs(2) };

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
            .arg(SET.nodes.to_string())
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

fn daemonset(version: &str) -> DaemonSet {
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "c"}]});
    let mut manifest = json!({
        "metadata": {"name": SET.name, "namespace": "default"},
        "spec": {"template": {"spec": spec}},
    });
    complete_manifest(&mut manifest, &SET, version);
    serde_json::from_value(manifest).unwrap()
}

/// Waits until every node has one Ready pod of this version.
async fn wait_for_pods(client: &Client, version: &str) {
    let began = Instant::now();
    loop {
        let pods = SET.list_pods(client, PATIENCE).await.pods;
        if SET.is_complete(&pods, version) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "not every node has a pod:\n{}", describe(&pods));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn uids(pods: &BTreeMap<String, Pod>) -> BTreeSet<String> {
    pods.values().map(|it| it.uid().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs etcd"]
async fn the_cluster_goes_on_when_any_of_its_processes_is_killed() {
    let cluster = Cluster(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let dir = cluster.path();
    let up = Up::start(dir);
    let api = client(dir).await;
    let sets: Api<DaemonSet> = Api::namespaced(api.clone(), "default");
    sets.create(&PostParams::default(), &daemonset("a")).await.unwrap();
    wait_for_pods(&api, "a").await;
    // The rollout begins with available pods.
    tokio::time::sleep(SET.min_ready.unsigned_abs()).await;

    // Every process is killed in the middle of a rollout, which replaces one pod at a time.
    let before = SET.list_pods(&api, PATIENCE).await;
    let (sender, mut updated) = tokio::sync::watch::channel(0);
    let judge_api = api.clone();
    let mut judging =
        tokio::spawn(async move { SET.judge_rollout(&judge_api, before, "b", &sender).await.pods });
    let patch = Patch::Strategic(version_patch("b"));
    retry(PATIENCE, "roll the DaemonSet", async || {
        sets.patch(SET.name, &PatchParams::default(), &patch).await
    })
    .await;
    let rolling = async {
        let mut killed_at = Vec::new();
        for (number, victim) in PROCESSES.iter().enumerate() {
            // Each dies after the pod of one more node was replaced.
            if updated.wait_for(|it| number < *it).await.is_err() {
                // The judge has panicked.
                break;
            }
            kill(dir, victim);
            killed_at.push(Timestamp::now());
        }
        let pods = (&mut judging).await.unwrap();
        (killed_at, pods)
    };
    let rolled = tokio::time::timeout(2 * PATIENCE, rolling).await;
    judging.abort();
    let (killed_at, pods) = rolled.expect("the rollout ends");
    let last_created = pods.values().map(|it| it.metadata.creation_timestamp.as_ref().unwrap().0).max();
    for (victim, at) in PROCESSES.iter().zip(&killed_at) {
        assert!(
            Some(*at) < last_created,
            "{victim} was killed at {at}, the last pod was created at {last_created:?}"
        );
    }
    let uids_after_rollout = uids(&pods);
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
    let pods = SET.list_pods(&api, PATIENCE).await.pods;
    assert_eq!(uids(&pods), uids_after_rollout);
    let maps: Api<ConfigMap> = Api::namespaced(api.clone(), "default");
    for victim in PROCESSES {
        maps.get(&format!("after-{victim}")).await.unwrap();
    }
    drop(up);
    let stopped = cluster.down();
    assert_eq!(stopped.lines().filter(|it| it.starts_with("stopped: process")).count(), 3, "{stopped}");
}

#[test]
#[ignore = "needs etcd"]
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
