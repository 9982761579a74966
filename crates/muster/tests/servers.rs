//! `muster up --servers`: several API servers and a trial etcd cluster, of which any process may be killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
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
const SET: JudgedSet = JudgedSet { name: "d", nodes: 10, min_ready: SignedDuration::from_secs(2) };

/// Set for the process of a test that runs in a network namespace of its own.
const IN_NAMESPACE: &str = "MUSTER_TEST_IN_NETWORK_NAMESPACE";

/// The processes of the cluster: those with a data directory of this name, `muster up` itself, and its standby process.
const PROCESSES: [&str; 8] = ["server-1", "etcd-1", UP, "server-2", "etcd-2", STANDBY, "server-3", "etcd-3"];

/// The process that holds the lock of the data directory.
const UP: &str = "up";

/// The process that continues when [`UP`] is gone.
const STANDBY: &str = "standby";

/// Maximum time until a write through the load balancer succeeds after a process was killed.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Time from the restart of a process until the next one is killed. Of three members of etcd, one may be gone.
const KILL_PAUSE: Duration = Duration::from_secs(3);

fn muster(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.args(args).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// The data directory. At the end of a test, no process of the cluster is left.
struct Cluster {
    parent: TempDir,
    dir: PathBuf,
}

impl Cluster {
    fn new() -> Self {
        let parent = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let dir = parent.path().join("ha");
        Self { parent, dir }
    }

    /// Starts `muster up --servers 3`, and waits until it is ready.
    fn start(&self) -> Child {
        // Debian's etcd is older than the supported versions.
        let flags = ["--servers", "3", "--etcd-any-version", "--listen", "127.0.0.1:0", "--sim-nodes"];
        let mut up = muster(&["up"]);
        up.args(flags).arg(SET.nodes.to_string()).arg("--data-dir").arg(&self.dir);
        wait_until_ready(&mut up)
    }

    fn down(&self) -> String {
        let output = muster(&["down", "--data-dir"]).arg(&self.dir).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        stop_everything(&self.dir);
    }
}

/// Starts a `muster up`, and waits for its `ready:` line.
fn wait_until_ready(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready: "), "{line}");
    child
}

/// Kills `muster up` and its standby process, and stops the processes that they leave behind. After a failed test they
/// may be in any state, such as during a takeover.
fn stop_everything(dir: &Path) {
    for _ in 0..10 {
        kill_up_and_standby(dir);
        let output = muster(&["down", "--data-dir"]).arg(dir).output().unwrap();
        if output.status.success() {
            return;
        }
    }
    assert!(std::thread::panicking(), "processes of {} are left", dir.display());
}

async fn client(dir: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(dir.join("kubeconfig")).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Returns the PID of one of the [`PROCESSES`]. `None` if it does not run.
fn find_pid(dir: &Path, name: &str) -> Option<u32> {
    let lock = fs::read_to_string(dir.join("lock")).unwrap_or_default();
    let up = lock.trim().parse::<u32>().ok();
    // A zombie has an empty command line.
    let command_line = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|it| !it.is_empty());
    let argument = match name {
        UP => return up.filter(|it| command_line(*it).is_some()),
        STANDBY => format!("--standby-for={}", dir.display()),
        _ => format!("--data-dir={}", dir.join(name).display()),
    };
    let pids =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
    let has_argument = |pid: &u32| {
        command_line(*pid).is_some_and(|it| it.split(|it| *it == 0).any(|it| it == argument.as_bytes()))
    };
    // After a takeover, `muster up` has the arguments of a standby process too.
    pids.filter(|it| Some(*it) != up).find(has_argument)
}

/// Returns the PID of one of the [`PROCESSES`]. Waits until it runs and is not `killed`.
fn wait_for_pid(dir: &Path, name: &str, killed: Option<u32>) -> u32 {
    let began = Instant::now();
    loop {
        if let Some(pid) = find_pid(dir, name).filter(|it| Some(*it) != killed) {
            return pid;
        }
        assert!(began.elapsed() < PATIENCE, "{name} does not run");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Kills `muster up` and its standby process at once, so that neither replaces the other.
fn kill_up_and_standby(dir: &Path) {
    let pids = [STANDBY, UP].into_iter().filter_map(|it| find_pid(dir, it)).map(|it| it.to_string());
    // Without PIDs, `kill` prints how it is used.
    let _ = Command::new("kill").arg("-9").args(pids).stderr(Stdio::null()).status();
}

/// Kills one of the [`PROCESSES`], and returns its PID.
fn kill(dir: &Path, name: &str) -> u32 {
    let pid = wait_for_pid(dir, name, None);
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
    pid
}

/// Waits until a process that was killed is replaced. The standby process that takes over is replaced too.
fn wait_until_replaced(dir: &Path, name: &str, killed: u32) {
    wait_for_pid(dir, name, Some(killed));
    wait_for_pid(dir, STANDBY, Some(killed));
    std::thread::sleep(KILL_PAUSE);
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

/// Waits until every node has one Ready pod of this version. Returns the pods, by name.
async fn wait_for_pods(client: &Client, version: &str) -> BTreeMap<String, Pod> {
    let began = Instant::now();
    loop {
        let pods = SET.list_pods(client, PATIENCE).await.pods;
        if SET.is_complete(&pods, version) {
            return pods;
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
async fn the_cluster_survives_the_death_of_any_process() {
    let cluster = Cluster::new();
    let dir = &cluster.dir;
    let mut up = cluster.start();
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
        let killed = kill(dir, victim);
        let name = format!("after-{victim}");
        let map = ConfigMap {
            metadata: kube::api::ObjectMeta { name: Some(name.clone()), ..Default::default() },
            ..ConfigMap::default()
        };
        // A call without an answer may have been made.
        retry(WRITE_LIMIT, &name, async || match maps.create(&PostParams::default(), &map).await {
            Err(kube::Error::Api(it)) if it.reason == "AlreadyExists" => Ok(()),
            done => done.map(drop),
        })
        .await;
        wait_until_replaced(dir, victim, killed);
    }
    assert_eq!(uids(&wait_for_pods(&api, "b").await), uids_after_rollout);

    // The DaemonSet controller runs: it replaces a pod that is deleted.
    let pods: Api<Pod> = Api::namespaced(api.clone(), "default");
    let deleted = SET.list_pods(&api, PATIENCE).await.pods.into_iter().next().unwrap();
    let delete = async || pods.delete(&deleted.0, &DeleteParams::default()).await.map(drop);
    retry(PATIENCE, "delete a pod", delete).await;
    let began = Instant::now();
    let uids_after_deletion = loop {
        let uids = uids(&wait_for_pods(&api, "b").await);
        if !uids.contains(&deleted.1.uid().unwrap()) {
            break uids;
        }
        assert!(began.elapsed() < PATIENCE, "the pod is not replaced");
    };
    assert_eq!(uids_after_deletion.intersection(&uids_after_rollout).count(), SET.nodes - 1);

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

    // `muster up` and its standby process are killed at once: the next start stops the processes that are left.
    kill_up_and_standby(dir);
    let mut second_up = cluster.start();
    let api = client(dir).await;
    let pods = SET.list_pods(&api, PATIENCE).await.pods;
    assert_eq!(uids(&pods), uids_after_deletion);
    let maps: Api<ConfigMap> = Api::namespaced(api.clone(), "default");
    for victim in PROCESSES {
        maps.get(&format!("after-{victim}")).await.unwrap();
    }
    // `muster down` stops them too: three servers and three members of etcd.
    kill_up_and_standby(dir);
    let stopped = cluster.down();
    assert_eq!(stopped.lines().filter(|it| it.starts_with("stopped: process")).count(), 6, "{stopped}");
    for child in [&mut up, &mut second_up] {
        child.wait().unwrap();
    }
}

/// Returns the blocks of shell commands in a section of a document.
fn shell_blocks<'a>(document: &'a str, heading: &str) -> Vec<&'a str> {
    let section = document.split_once(heading).unwrap().1.split("\n## ").next().unwrap();
    section.split("```sh\n").skip(1).map(|it| it.split("```").next().unwrap()).collect()
}

#[test]
#[ignore = "needs etcd in network namespaces and kubectl: root, etcd, ip, nft, pkill"]
fn the_documented_cluster_survives_the_death_of_any_process() {
    // The documented commands use the default port.
    if std::env::var_os(IN_NAMESPACE).is_none() {
        let mut test = Command::new("unshare");
        test.arg("--net").arg(std::env::current_exe().unwrap()).args(["--nocapture", "--ignored", "--exact"]);
        test.arg("the_documented_cluster_survives_the_death_of_any_process");
        let output = test.env(IN_NAMESPACE, "1").stderr(Stdio::inherit()).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        println!("{stdout}");
        // The process also succeeds if no test has this name.
        assert!(output.status.success() && stdout.contains("1 passed"), "the test in a namespace fails");
        return;
    }
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let document = include_str!("../../../docs/high-availability.md");
    let [start, try_it] = shell_blocks(document, "## Try it on one machine")[..] else {
        panic!("the section has another number of blocks");
    };
    let cluster = Cluster::new();
    let programs = Path::new(env!("CARGO_BIN_EXE_muster")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let shell = |script: &str| {
        let mut shell = Command::new("sh");
        shell
            .args(["-e", "-c", script])
            .current_dir(cluster.parent.path())
            .env("PATH", &path)
            .env_remove("RUST_LOG");
        shell.stdin(Stdio::null());
        shell
    };
    let dir = &cluster.dir;
    let mut up = wait_until_ready(&mut shell(start));
    let output = shell(try_it).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let last = try_it.lines().last().unwrap();
    let get_nodes = format!("export KUBECONFIG=$PWD/ha/kubeconfig\n{last}");
    // The commands have killed the first `muster up`.
    wait_until_replaced(dir, UP, up.id());
    for victim in PROCESSES {
        let killed = kill(dir, victim);
        let began = Instant::now();
        let output = loop {
            let output = shell(&get_nodes).output().unwrap();
            if output.status.success() {
                break String::from_utf8(output.stdout).unwrap();
            }
            assert!(began.elapsed() < WRITE_LIMIT, "after {victim} was killed: {output:?}");
        };
        let ready = output.lines().filter(|it| it.contains(" Ready ")).count();
        assert_eq!(ready, 3, "after {victim} was killed: {output}");
        wait_until_replaced(dir, victim, killed);
    }
    // SIGTERM stops every process, as in a cluster that was not taken over.
    let last_up = find_pid(dir, UP).unwrap();
    assert!(Command::new("kill").arg(last_up.to_string()).status().unwrap().success());
    let began = Instant::now();
    while let Some(left) = PROCESSES.iter().find(|it| find_pid(dir, it).is_some()) {
        assert!(began.elapsed() < PATIENCE, "{left} is left");
        std::thread::sleep(Duration::from_millis(100));
    }
    up.wait().unwrap();
}

#[test]
#[ignore = "needs etcd"]
fn a_data_directory_is_not_used_for_another_kind_of_cluster() {
    let cluster = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
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
