//! `muster up --servers`: several API servers and a trial etcd cluster, of which any process may be killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tempfile::TempDir;

/// Maximum time for anything on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(120);

/// Number of simulated nodes. There are more nodes than processes, so that a rollout goes on after the last process was
/// killed.
const NODES: usize = 8;

/// `minReadySeconds` of the DaemonSet. It makes the rollout so slow that a process can be killed after each node.
const MIN_READY: SignedDuration = SignedDuration::from_secs(2);

/// Time without an event after which a watch is opened again. The server of the watch may be gone.
const WATCH_SILENCE: Duration = Duration::from_secs(5);

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
            "minReadySeconds": MIN_READY.as_secs(),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
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

fn image(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().containers[0].image.as_deref().unwrap()
}

/// The node of a daemon pod, which has a node before it is scheduled to it.
fn node(pod: &Pod) -> String {
    let affinity = serde_json::to_value(&pod.spec.as_ref().unwrap().affinity).unwrap();
    let fields =
        "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0";
    affinity.pointer(&format!("{fields}/values/0")).and_then(|it| it.as_str()).unwrap().to_owned()
}

/// Since when a pod is Ready. `None` if it is not.
fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|it| it.type_ == "Ready" && it.status == "True")?;
    Some(ready.last_transition_time.as_ref().unwrap().0)
}

/// When the deletion of a pod was requested. `None` if it is not being deleted.
fn deleted_at(pod: &Pod) -> Option<Timestamp> {
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    Some(pod.metadata.deletion_timestamp.as_ref()?.0 - grace)
}

fn live(pods: &BTreeMap<String, Pod>) -> impl Iterator<Item = &Pod> {
    pods.values().filter(|it| deleted_at(it).is_none())
}

/// One line for each pod, for messages.
fn describe(pods: &BTreeMap<String, Pod>) -> String {
    let line = |it: &Pod| {
        let (since, deleted) = (ready_since(it), deleted_at(it));
        format!("{} {} {} ready since {since:?}, deleted at {deleted:?}", node(it), it.name_any(), image(it))
    };
    pods.values().map(line).collect::<Vec<_>>().join("\n")
}

/// The pods of the DaemonSet by name, and the resourceVersion of the list.
async fn list_pods(client: &Client) -> (BTreeMap<String, Pod>, String) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pods = retry(PATIENCE, "list the pods", async || pods.list(&ListParams::default()).await).await;
    let version = pods.metadata.resource_version.clone().unwrap();
    (pods.items.into_iter().map(|it| (it.name_any(), it)).collect(), version)
}

/// Whether every node has one pod with this image, which is Ready, and no other pod.
fn is_complete(pods: &BTreeMap<String, Pod>, with: &str) -> bool {
    let is_right = |it: &Pod| image(it) == with && ready_since(it).is_some() && deleted_at(it).is_none();
    let nodes: BTreeSet<String> = pods.values().map(node).collect();
    pods.len() == NODES && nodes.len() == NODES && pods.values().all(is_right)
}

/// Follows a rollout by a watch, which continues after its last event when it breaks. So no state is missed, and each is
/// judged. Sends the number of nodes that have a pod with the new image, and returns the pods after the rollout.
///
/// Rules of a rollout with `maxUnavailable` 1:
/// - A node never has two pods that are not being deleted.
/// - At most one node has no Ready pod.
/// - A pod is deleted only while all other nodes have pods that have been Ready for `minReadySeconds`.
async fn judge_rollout(
    client: Client,
    (mut pods, mut version): (BTreeMap<String, Pod>, String),
    to: &'static str,
    updated: tokio::sync::watch::Sender<usize>,
) -> BTreeMap<String, Pod> {
    let api: Api<Pod> = Api::namespaced(client, "default");
    loop {
        let opened = tokio::time::timeout(WATCH_SILENCE, api.watch(&WatchParams::default(), &version)).await;
        let mut events = match opened {
            Ok(Ok(events)) => events.boxed(),
            Ok(Err(kube::Error::Api(status))) if status.code == 410 => panic!("events are lost: {status:?}"),
            Ok(Err(_)) | Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while let Ok(Some(Ok(event))) = tokio::time::timeout(WATCH_SILENCE, events.next()).await {
            let before = pods.clone();
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    version = pod.resource_version().unwrap();
                    pods.insert(pod.name_any(), pod);
                }
                WatchEvent::Deleted(pod) => {
                    version = pod.resource_version().unwrap();
                    pods.remove(&pod.name_any());
                }
                WatchEvent::Bookmark(bookmark) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) if status.code == 410 => panic!("events are lost: {status:?}"),
                WatchEvent::Error(_) => break,
            }
            judge_state(&before, &pods);
            let new: BTreeSet<String> = live(&pods).filter(|it| image(it) == to).map(node).collect();
            updated.send_replace(new.len());
            if is_complete(&pods, to) {
                return pods;
            }
        }
    }
}

/// Judges a state of the pods, and the change that led to it, by the rules of [`judge_rollout`].
fn judge_state(before: &BTreeMap<String, Pod>, now: &BTreeMap<String, Pod>) {
    let mut nodes = BTreeSet::new();
    for pod in live(now) {
        assert!(nodes.insert(node(pod)), "{} has two pods:\n{}", node(pod), describe(now));
    }
    let ready: BTreeSet<String> = live(now).filter(|it| ready_since(it).is_some()).map(node).collect();
    assert!(NODES - ready.len() <= 1, "{} nodes have no Ready pod:\n{}", NODES - ready.len(), describe(now));
    for gone in live(before) {
        let at = match now.get(&gone.name_any()) {
            Some(pod) if pod.uid() == gone.uid() => deleted_at(pod),
            _ => panic!("{} was removed without a grace period:\n{}", gone.name_any(), describe(now)),
        };
        let Some(at) = at else { continue };
        let is_available = |it: &&Pod| ready_since(it).is_some_and(|since| since + MIN_READY <= at);
        let available: BTreeSet<String> = live(now).filter(is_available).map(node).collect();
        assert_eq!(available.len(), NODES - 1, "{} was deleted at {at}:\n{}", gone.name_any(), describe(now));
    }
}

/// Waits until every node has one Ready pod with this image.
async fn wait_for_pods(client: &Client, image: &str) -> BTreeMap<String, Pod> {
    let began = Instant::now();
    loop {
        let (pods, _) = list_pods(client).await;
        if is_complete(&pods, image) {
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
async fn the_cluster_goes_on_when_any_of_its_processes_is_killed() {
    let cluster = Cluster(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let dir = cluster.path();
    let up = Up::start(dir);
    let api = client(dir).await;
    let sets: Api<DaemonSet> = Api::namespaced(api.clone(), "default");
    sets.create(&PostParams::default(), &daemonset("a")).await.unwrap();
    wait_for_pods(&api, "a").await;
    // The rollout begins with available pods.
    tokio::time::sleep(MIN_READY.unsigned_abs()).await;

    // Every process is killed in the middle of a rollout, which replaces one pod at a time.
    let before = list_pods(&api).await;
    let (sender, mut updated) = tokio::sync::watch::channel(0);
    let mut judging = tokio::spawn(judge_rollout(api.clone(), before, "b", sender));
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "b"}]}}}});
    retry(PATIENCE, "roll the DaemonSet", async || {
        sets.patch("d", &PatchParams::default(), &Patch::Strategic(&patch)).await
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
    let (pods, _) = list_pods(&api).await;
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
