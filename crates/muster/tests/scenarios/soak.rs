//! `muster up` as a process, and a seeded user who does what users do: nodes join, fail, leave, are relabelled and tainted; sets
//! are made, edited, undone and deleted; pods are deleted; the process is killed and started again. After every round
//! everything must come to rest in the right state, and the server's own history tells whether it went there rightly.
//!
//! `MUSTER_SOAK=3600 cargo test --test scenarios soak -- --nocapture` does so for an hour; `MUSTER_SOAK_SEED` is another user.

#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http::Method;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use muster_agent::sim::{self, FAULTS_ANNOTATION};
use muster_api::object_key::ObjectKey;
use muster_engine::daemonset::facts::Kind;
use muster_sim::invariants::InvariantChecks;
use muster_sim::rng::Rng;
use muster_sim::server::{Actor, SimServer};
use serde_json::{Value, json};

use crate::bed::{KINDS, Seen, history, items, now, send, set, with};
use crate::judge::{self, Change, Of};

/// How long `make test` spends on it.
const SPAN_DEFAULT_S: u64 = 40;

const NODES: u16 = 12;

/// Most nodes at once: a cluster that grew would need more memory rightly.
const NODES_MAX: usize = 16;

/// Everything comes to rest in seconds; some rollouts take one node after the other, and other machines are slower.
const REST_MAX: Duration = Duration::from_secs(300);

/// Most sets at once.
const SETS_MAX: usize = 4;

/// A life has this many rounds at least before its memory is judged. The store keeps up to 64 MiB of history, so that is what it may
/// come to hold, and half as much for what an allocator keeps.
const ROUNDS_OF_LIFE: usize = 8;
const GROWTH_MAX_MIB: u64 = 96;

/// Nodes are told so, and undone, by these names.
const TAINT: &str = "soak";
const LABEL: &str = "soak/zone";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak() {
    let number = |name: &str| std::env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
    let span = Duration::from_secs(number("MUSTER_SOAK").unwrap_or(SPAN_DEFAULT_S));
    let seed = number("MUSTER_SOAK_SEED").unwrap_or(1);
    println!("soak for {span:?}, seed {seed}");
    let (began, mut soak) = (Instant::now(), Soak::new(seed, 100 < span.as_secs()).await);
    while began.elapsed() < span {
        soak.round().await;
    }
    soak.end();
}

/// A `muster up`, until it is killed.
struct Up {
    child: Child,
    client: Client,
    /// Its memory when it had come to rest, round by round.
    mib: Vec<u64>,
}

impl Up {
    async fn new(dir: &Path) -> Self {
        let log = File::options().create(true).append(true).open(dir.join("log")).unwrap();
        let mut child = Command::new(dir.join("muster"))
            .args(["up", "--listen", "127.0.0.1:0", "--node-monitor-grace-period", "25s"])
            .args(["--sim-nodes", &NODES.to_string(), "--data-dir"])
            .arg(dir.join("data"))
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready: "), "{line:?}; {}", fs::read_to_string(dir.join("log")).unwrap());
        let kubeconfig = Kubeconfig::read_from(dir.join("data/kubeconfig")).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Self { child, client: Client::try_from(config).unwrap(), mib: Vec::new() }
    }

    fn mib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }
}

/// As `kill -9` does.
impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Soak {
    dir: PathBuf,
    seed: u64,
    rng: Rng,
    is_long: bool,
    up: Option<Up>,
    rounds: usize,
    kills: usize,
    /// Counts versions of images, and names of sets and nodes.
    serial: u64,
    seen: BTreeMap<Kind, Seen>,
    server: SimServer,
    checks: InvariantChecks,
    watch: Watch,
}

/// What the user did in this round, and what is therefore no wonder.
#[derive(Default)]
struct Watch {
    done: Vec<String>,
    nodes: BTreeSet<String>,
    sets: BTreeSet<String>,
    pods: BTreeSet<String>,
    /// Nodes that a rollout took an available pod from, by set, until they have one again.
    taken: BTreeMap<String, BTreeSet<String>>,
}

impl Soak {
    async fn new(seed: u64, is_long: bool) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("soak-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        // What is built meanwhile is not what is started again.
        fs::copy(env!("CARGO_BIN_EXE_muster"), dir.join("muster")).unwrap();
        let up = Up::new(&dir).await;
        Self {
            dir,
            seed,
            rng: Rng::new(seed),
            is_long,
            up: Some(up),
            rounds: 0,
            kills: 0,
            serial: 0,
            seen: KINDS.iter().map(|(kind, _)| (*kind, Seen::default())).collect(),
            server: SimServer::default(),
            checks: InvariantChecks::default(),
            watch: Watch::default(),
        }
    }

    fn client(&self) -> &Client {
        &self.up.as_ref().expect("it is up").client
    }

    /// Some things happen, all is mended, all comes to rest, and all is judged.
    async fn round(&mut self) {
        self.rounds += 1;
        let began = Instant::now();
        let last_s = if self.is_long { self.rng.between(5, 45) } else { 4 };
        // A short soak has one kill at least.
        let kill_at = (self.rounds == 2 || self.rng.chance(120)).then(|| self.rng.below(last_s * 1000));
        let mut kill_at = kill_at.map(Duration::from_millis);
        while began.elapsed() < Duration::from_secs(last_s) {
            if kill_at.is_some_and(|it| it < began.elapsed()) {
                kill_at = None;
                self.kill().await;
            }
            self.act().await;
            tokio::time::sleep(Duration::from_millis(self.rng.between(20, 700))).await;
        }
        self.mend().await;
        let mended = Instant::now();
        self.settles().await;
        let settled = mended.elapsed();
        let changes = self.judge().await;
        let up = self.up.as_mut().expect("it is up");
        let mib = up.mib();
        up.mib.push(mib);
        println!(
            "round {}: {} actions, {changes} changes, at rest after {:.1} s, {mib} MiB, {} kills so far",
            self.rounds,
            self.watch.done.len(),
            settled.as_secs_f64(),
            self.kills
        );
        self.watch = Watch::default();
    }

    async fn kill(&mut self) {
        self.kills += 1;
        self.watch.done.push("kill -9".to_owned());
        self.end_life();
        self.up = Some(Up::new(&self.dir).await);
        // Nodes that had left are made again at the start.
        let nodes = (1..=NODES).map(|it| format!("sim-{it}"));
        self.watch.nodes.extend(nodes.filter(|it| !self.server.nodes.keys().any(|known| **known == **it)));
    }

    /// The memory of a process that has rested often enough does not grow.
    fn end_life(&mut self) {
        let Some(up) = self.up.take() else { return };
        let mib = &up.mib;
        if ROUNDS_OF_LIFE <= mib.len() {
            let (first, last) = (mib[..3].iter().max().unwrap(), mib[mib.len() - 3..].iter().min().unwrap());
            println!("memory of a life of {} rounds: {mib:?}", mib.len());
            assert!(*last <= first + GROWTH_MAX_MIB, "{}: the memory grows: {mib:?} MiB", self.how());
        }
    }

    fn end(mut self) {
        self.end_life();
        println!("{} rounds, {} kills, nothing broken", self.rounds, self.kills);
        fs::remove_dir_all(&self.dir).unwrap();
    }

    /// What to say of a failure.
    fn how(&self) -> String {
        format!(
            "seed {}, round {}, after {:?}; the log is {}",
            self.seed,
            self.rounds,
            self.watch.done,
            self.dir.join("log").display()
        )
    }

    /// One thing that users do.
    async fn act(&mut self) {
        let nodes = self.names("/api/v1/nodes").await;
        let sets = self.names(SETS).await;
        let node = self.rng.pick(&nodes).cloned();
        let of = self.rng.pick(&sets).cloned();
        match (self.rng.below(14), node, of) {
            (0, Some(node), _) => {
                let how = ["not-ready", "memory-pressure", "disk-pressure", "network-unavailable", "silent"];
                let how = *self.rng.pick(&how).expect("there are some");
                self.change_node(&node, how, json!({"metadata": {"annotations": {FAULTS_ANNOTATION: how}}}))
                    .await;
            }
            (1, Some(node), _) => {
                self.change_node(
                    &node,
                    "recover",
                    json!({"metadata": {"annotations": {FAULTS_ANNOTATION: null}}}),
                )
                .await;
            }
            (2, Some(node), _) if usize::from(NODES) / 2 < nodes.len() => {
                self.note(&node, "leave");
                self.send(Method::DELETE, &format!("/api/v1/nodes/{node}"), &Value::Null).await;
            }
            (3, _, _) if nodes.len() < NODES_MAX => self.join().await,
            (4, Some(node), _) => {
                let zone = self.rng.pick(&[json!("a"), json!("b"), Value::Null]).cloned().unwrap_or_default();
                self.change_node(
                    &node,
                    &format!("zone {zone}"),
                    json!({"metadata": {"labels": {LABEL: zone}}}),
                )
                .await;
            }
            (5, Some(node), _) => {
                let effect = if self.rng.chance(500) { "NoSchedule" } else { "NoExecute" };
                let taints = json!([{"key": TAINT, "effect": effect}]);
                self.change_node(&node, effect, json!({"spec": {"taints": taints}})).await;
            }
            (6, Some(node), _) => {
                let cordon = self.rng.chance(500);
                let spec = json!({"spec": {"unschedulable": cordon}});
                self.change_node(&node, if cordon { "cordon" } else { "uncordon" }, spec).await;
            }
            (7, _, Some(of)) if SETS_MAX <= sets.len() => {
                self.note_set(&of, "delete");
                let policy = *self.rng.pick(&["Background", "Foreground"]).expect("there are some");
                let body = json!({"propagationPolicy": policy});
                self.send(Method::DELETE, &format!("{SETS}/{of}"), &body).await;
            }
            (8, _, Some(of)) => {
                let pods = self.names(&format!("{PODS}?labelSelector=app%3D{of}")).await;
                let Some(pod) = self.rng.pick(&pods).cloned() else { return };
                self.watch.done.push(format!("delete {pod}"));
                self.watch.pods.insert(pod.clone());
                self.send(Method::DELETE, &format!("{PODS}/{pod}"), &Value::Null).await;
            }
            (9..12, _, Some(of)) => {
                self.serial += 1;
                // Sometimes to one that was there before, which is an undo, and sometimes to one that never starts.
                let version = match self.rng.below(5) {
                    0 => "non-existent".to_owned(),
                    1 | 2 => "v1".to_owned(),
                    _ => format!("v{}", self.serial),
                };
                self.set_image(&of, &version).await;
            }
            _ if sets.len() < SETS_MAX => self.create_set().await,
            _ => {}
        }
    }

    async fn create_set(&mut self) {
        self.serial += 1;
        let name = format!("set-{}", self.serial);
        let share = self.rng.between(1, 3);
        let rolling = match self.rng.below(2) {
            0 => json!({"maxUnavailable": share}),
            _ => json!({"maxSurge": share, "maxUnavailable": 0}),
        };
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        let mut object = with(set(&name, "v1"), "spec.updateStrategy", strategy);
        match self.rng.below(4) {
            0 => object = with(object, "spec.template.spec.nodeSelector", json!({LABEL: "a"})),
            1 => {
                let all = json!([{"key": TAINT, "operator": "Exists"}]);
                object = with(object, "spec.template.spec.tolerations", all);
            }
            _ => {}
        }
        self.note_set(&name, &format!("create {rolling}"));
        self.send(Method::POST, SETS, &object).await;
    }

    async fn set_image(&mut self, of: &str, version: &str) {
        self.note_set(of, version);
        let containers = json!([{"name": "c", "image": format!("r/{of}:{version}")}]);
        let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        self.send(Method::PATCH, &format!("{SETS}/{of}"), &patch).await;
    }

    async fn join(&mut self) {
        let number = sim::free_node_numbers(self.client()).await.unwrap().next().expect("there are numbers");
        let name = format!("sim-{number}");
        self.note(&name, "join");
        let new = sim::NewNode { name, number, fleet: "up".to_owned(), ..sim::NewNode::default() };
        match sim::register_node(self.client(), &new).await {
            Err(kube::Error::Api(refused)) if refused.code == 409 => {}
            added => added.unwrap(),
        }
    }

    /// Everything that was done to nodes is undone, and no set has an image that nobody has.
    async fn mend(&mut self) {
        for node in self.list("/api/v1/nodes").await {
            let name = name(&node).to_owned();
            let is_ours = |it: &&Value| it["key"] != TAINT;
            let taints: Vec<_> =
                node["spec"]["taints"].as_array().into_iter().flatten().filter(is_ours).collect();
            let all = node["spec"]["taints"].as_array().map_or(0, Vec::len);
            let fails = !node["metadata"]["annotations"][FAULTS_ANNOTATION].is_null();
            if fails || taints.len() < all || node["spec"]["unschedulable"] == true {
                let patch = json!({
                    "metadata": {"annotations": {FAULTS_ANNOTATION: null}, "resourceVersion": node["metadata"]["resourceVersion"]},
                    "spec": {"unschedulable": null, "taints": taints},
                });
                // Somebody else may write its taints at the same time: then it is read again.
                self.note(&name, "mend");
                if self.try_send(Method::PATCH, &format!("/api/v1/nodes/{name}"), &patch).await == Err(409) {
                    return Box::pin(self.mend()).await;
                }
            }
        }
        while self.names("/api/v1/nodes").await.len() < usize::from(NODES) {
            self.join().await;
        }
        for set in self.list(SETS).await {
            let image =
                set["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default();
            if image.ends_with("non-existent") {
                self.set_image(name(&set), "v1").await;
            }
        }
    }

    /// Waits until every node is Ready, every set is where it should be, and its status says so.
    async fn settles(&mut self) {
        let began = Instant::now();
        loop {
            let mut objects = Vec::new();
            for (kind, path) in KINDS {
                objects.extend(self.list(path).await.into_iter().map(|it| (kind, it)));
            }
            let is_troubled = |(kind, it): &&(Kind, Value)| {
                *kind == Kind::Nodes
                    && (!is_ready(it) || it["spec"]["taints"].as_array().is_some_and(|it| !it.is_empty()))
            };
            let why = match objects.iter().find(is_troubled) {
                Some((_, node)) => Some(format!("{} is not well: {}", name(node), node["spec"])),
                None => judge::unsettled(&objects, &BTreeSet::new(), now()).map(|it| it.to_string()),
            };
            let Some(why) = why else { return };
            assert!(began.elapsed() < REST_MAX, "{why}; {}", self.how());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Holds everything that happened since the last time against what may happen. Says how much it was.
    async fn judge(&mut self) -> usize {
        let mut changes: Vec<Change> = Vec::new();
        for (kind, path) in KINDS {
            let seen = self.seen.remove(&kind).expect("each kind has one");
            let (new, seen) = history(self.client(), Of::Kind(kind), path, seen).await;
            changes.extend(new);
            self.seen.insert(kind, seen);
        }
        changes.sort_by_key(|it| it.revision);
        for change in &changes {
            if let Err(why) = self.take(change) {
                panic!("{why} at revision {}; {}", change.revision, self.how());
            }
        }
        changes.len()
    }

    fn take(&mut self, change: &Change) -> Result<(), String> {
        let Of::Kind(kind) = change.of else { return Ok(()) };
        let before = self.server.object(kind, &change.key).cloned();
        match kind {
            Kind::Pods => self.take_pod(before.as_deref(), change)?,
            Kind::Sets if !change.gone => counts_fit(&change.object)?,
            _ => {}
        }
        let json = (!change.gone).then(|| change.json.clone());
        self.server.replay_commit(change.revision, kind, &change.key, json, Actor::Kubelet, now());
        let commit = self.server.log.last().expect("it was just replayed").clone();
        self.checks.on_commit(&self.server, &commit, now());
        self.checks.violation.as_ref().map_or(Ok(()), |it| Err(it.to_string()))
    }

    /// No pod is started anew or taken without a reason, and no rollout takes more than it may.
    fn take_pod(&mut self, before: Option<&Value>, change: &Change) -> Result<(), String> {
        let pod = &change.object;
        let restarts = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
        if restarts.clone().any(|it| it["restartCount"] != 0) {
            return Err(format!("{} was started anew", change.key));
        }
        let set = pod["metadata"]["labels"]["app"].as_str().unwrap_or_default().to_owned();
        let node = pod["spec"]["nodeName"].as_str().or(judge::pinned(pod)).unwrap_or_default().to_owned();
        if is_ready(pod) && !is_going(pod) && !change.gone {
            self.watch.taken.entry(set.clone()).or_default().remove(&node);
        }
        let goes = is_going(pod) || change.gone;
        let was_there = before.is_some_and(|it| !is_going(it));
        if !goes || !was_there {
            return Ok(());
        }
        // A pod whose node has left goes a while later.
        let has_node = self.server.nodes.keys().any(|it| **it == *node);
        if self.watch.pods.contains(name(pod)) || self.watch.nodes.contains(&node) || !has_node {
            return Ok(());
        }
        // What belonged to a set goes with it.
        let key = ObjectKey::new("default", set.as_str());
        let of = self.server.object(Kind::Sets, &key).filter(|it| !is_going(it)).cloned();
        let Some(of) = of else { return Ok(()) };
        if !self.watch.sets.contains(&set) {
            return Err(format!("{} on {node} went for no reason", change.key));
        }
        if before.is_some_and(is_ready) {
            let may = of["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"].as_u64().unwrap_or(1);
            let here = self.server.pods.values().filter(|it| it.target.as_deref() == Some(&*node));
            let has_another = here.filter_map(|it| self.server.object(Kind::Pods, &it.key)).any(|it| {
                it["metadata"]["labels"]["app"] == *set
                    && name(it) != name(pod)
                    && is_ready(it)
                    && !is_going(it)
            });
            let taken = self.watch.taken.entry(set).or_default();
            if !has_another {
                taken.insert(node);
            }
            if (may as usize) < taken.len() {
                return Err(format!("{} took more than {may} available pods: from {taken:?}", change.key));
            }
        }
        Ok(())
    }

    async fn change_node(&mut self, node: &str, what: &str, patch: Value) {
        self.note(node, what);
        self.send(Method::PATCH, &format!("/api/v1/nodes/{node}"), &patch).await;
    }

    fn note(&mut self, node: &str, what: &str) {
        self.watch.done.push(format!("{node}: {what}"));
        self.watch.nodes.insert(node.to_owned());
    }

    fn note_set(&mut self, set: &str, what: &str) {
        self.watch.done.push(format!("{set}: {what}"));
        self.watch.sets.insert(set.to_owned());
    }

    /// What is gone by now, or was changed by somebody else just then, is left alone.
    async fn send(&self, method: Method, path: &str, body: &Value) {
        let _ = self.try_send(method, path, body).await;
    }

    async fn try_send(&self, method: Method, path: &str, body: &Value) -> Result<(), u16> {
        match send(self.client(), method.clone(), path, body).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(refused)) if matches!(refused.code, 404 | 409) => Err(refused.code),
            Err(error) => panic!("{method} {path}: {error}; {}", self.how()),
        }
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        match send(self.client(), Method::GET, path, &Value::Null).await {
            Ok(list) => items(list),
            Err(error) => panic!("GET {path}: {error}; {}", self.how()),
        }
    }

    async fn names(&self, path: &str) -> Vec<String> {
        let items = self.list(path).await;
        items.iter().filter(|it| !is_going(it)).map(|it| name(it).to_owned()).collect()
    }
}

const SETS: &str = "/apis/apps/v1/namespaces/default/daemonsets";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_going(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// S3: the counts of a status fit together.
fn counts_fit(set: &Value) -> Result<(), String> {
    let count = |name: &str| set["status"][name].as_u64().unwrap_or(0);
    let desired = count("desiredNumberScheduled");
    let (current, ready) = (count("currentNumberScheduled"), count("numberReady"));
    let (available, unavailable) = (count("numberAvailable"), count("numberUnavailable"));
    let fit = current <= desired
        && ready <= current
        && available <= ready
        && count("updatedNumberScheduled") <= current
        && available + unavailable == desired;
    if fit { Ok(()) } else { Err(format!("{} counts {}", name(set), set["status"])) }
}
