//! A cluster in this process: our server on a port of its own, simulated nodes, a scheduler, a garbage collector, and controllers that each
//! have a thread and a line of their own, so that one can be cut off, stopped in its tracks or killed.

#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, process};

use expect_test::Expect;
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use http::{Method, Request};
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_control::{
    Binding, ControllerExit, LeaderElectionConfig, LeaseConfig, NodeLifecycleConfig, Options, PlanObserver,
    PlanProgress, Settings,
};
use muster_engine::daemonset::facts::Kind;
use muster_server::{ApiServer, BuiltinUser};
use muster_sim::server::Actor;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::judge::{self, Change, Leases, Of, Record, Run, What};
use crate::line::{self, Delivered, Fate, Log, Tamper, Weather};

/// Far longer than anything takes on a machine that is busy with other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

const SETS: &str = "/apis/apps/v1/daemonsets";
const REVISIONS: &str = "/apis/apps/v1/controllerrevisions";
const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/scenario";

pub(crate) struct Bed {
    pub(crate) dir: PathBuf,
    stop: CancellationToken,
    serving: Option<tokio::task::JoinHandle<()>>,
    pub(crate) admin: Client,
    controller_kubeconfig: String,
    lifecycle_kubeconfig: String,
    sent: Log,
    delivered: Arc<Mutex<Vec<Delivered>>>,
    records: Arc<Mutex<Vec<Record>>>,
    pub(crate) leases: Leases,
    settings: Settings,
    replicas: Vec<Controller>,
    /// Counts processes.
    lives: Arc<AtomicU64>,
    election: Option<LeaderElectionConfig>,
}

/// One process of a controller.
pub(crate) struct Controller {
    replica: usize,
    stop: CancellationToken,
    kill: CancellationToken,
    pause: mpsc::UnboundedSender<Duration>,
    thread: JoinHandle<()>,
    pub(crate) weather: Arc<Weather>,
}

impl Bed {
    /// A server with so many nodes, and no controller yet.
    pub(crate) async fn new(nodes: u16) -> Self {
        static BEDS: AtomicU64 = AtomicU64::new(0);
        // RUST_LOG=muster_control=debug tells what the controllers do.
        let filter = EnvFilter::from_default_env();
        drop(tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init());
        let name = format!("scenario-{}-{}", process::id(), BEDS.fetch_add(1, Ordering::Relaxed));
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&dir).unwrap();
        let server = ApiServer::open("127.0.0.1:0".parse().unwrap(), None, &dir).await.unwrap();
        let kubeconfig = |who| server.issue_kubeconfig(who).unwrap();
        let [admin, controller, scheduler] =
            [BuiltinUser::Admin, BuiltinUser::Controller, BuiltinUser::Scheduler].map(kubeconfig);
        let lifecycle = kubeconfig(BuiltinUser::NodeLifecycle);
        let [collector, simulated] =
            [BuiltinUser::GarbageCollector, BuiltinUser::SimulatedNodes].map(kubeconfig);
        fs::write(dir.join("kubeconfig"), &admin).unwrap();
        let stop = CancellationToken::new();
        let serving = server.serve(stop.clone());
        let serving = tokio::spawn(async move { serving.await.unwrap() });

        let (sent, delivered) = (Log::default(), Arc::default());
        let over_line = async |kubeconfig: &str, actor| {
            let client = Client::try_from(config(kubeconfig).await).unwrap();
            line::client(
                (client, Handle::current()),
                (actor, 0),
                Weather::fair(),
                Tamper::default(),
                sent.clone(),
                Arc::clone(&delivered),
            )
        };
        let kubelets = over_line(&simulated, Actor::Kubelet).await;
        let fleet =
            muster_agent::sim::FleetOptions { count: nodes, ..muster_agent::sim::FleetOptions::default() };
        let kubelets = muster_agent::sim::Fleet::register(kubelets, fleet).await.unwrap();
        tokio::spawn(kubelets.run(stop.clone()));
        tokio::spawn(muster_control::run_garbage_collector(
            over_line(&collector, Actor::GarbageCollector).await,
            stop.clone(),
        ));
        tokio::spawn(muster_control::run_scheduler(
            over_line(&scheduler, Actor::Scheduler).await,
            stop.clone(),
        ));
        let bed = Self {
            admin: over_line(&admin, Actor::User).await,
            dir,
            stop,
            serving: Some(serving),
            controller_kubeconfig: controller,
            lifecycle_kubeconfig: lifecycle,
            sent,
            delivered,
            records: Arc::default(),
            leases: Leases::One,
            settings: Settings::default(),
            replicas: Vec::new(),
            lives: Arc::default(),
            election: None,
        };
        // Nobody watches over the nodes here, so nobody else takes the taint that a new one has.
        for number in 1..=nodes {
            bed.patch_node(&format!("sim-{number}"), json!({"spec": {"taints": null}})).await;
        }
        bed
    }

    /// Each pod is told its node by the controller itself.
    pub(crate) fn binds_directly(&mut self) {
        self.settings.binding = Binding::Direct;
    }

    /// From now on somebody watches over the nodes, and calls lost who is silent for this long.
    pub(crate) async fn watches_nodes(&self, grace: Duration) {
        let client = Client::try_from(config(&self.lifecycle_kubeconfig).await).unwrap();
        let config =
            NodeLifecycleConfig { node_monitor_grace_period: grace, ..NodeLifecycleConfig::default() };
        tokio::spawn(muster_control::run_node_lifecycle(client, config, self.stop.clone()));
    }

    /// From now on a lease decides who writes.
    pub(crate) async fn elects(&mut self, election: LeaderElectionConfig) {
        (self.leases, self.election) = (Leases::Held, Some(election));
        let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system";
        let meta = json!({"name": "scenario"});
        let verbs = ["create", "get", "list", "update", "watch"];
        let rules = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": verbs}]);
        let group = "rbac.authorization.k8s.io";
        let role = json!({"metadata": meta, "rules": rules});
        let binding = json!({
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "scenario"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "system:muster-controller"}],
        });
        self.send(Method::POST, &format!("{rbac}/roles"), &role).await.unwrap();
        self.send(Method::POST, &format!("{rbac}/rolebindings"), &binding).await.unwrap();
    }

    /// Waits until somebody leads whom this allows.
    pub(crate) async fn leader(&self, but: Option<usize>) -> usize {
        let began = Instant::now();
        loop {
            let lease = self.send(Method::GET, LEASE, &Value::Null).await.unwrap_or_default();
            let holder = lease["spec"]["holderIdentity"].as_str().and_then(judge::process);
            match holder {
                Some((replica, _)) if Some(replica) != but => return replica,
                _ => assert!(self.wait(began).await, "{lease}"),
            }
        }
    }

    pub(crate) fn start(&mut self, replica: usize, weather: Arc<Weather>) {
        self.start_broken(replica, weather, Tamper::default());
    }

    pub(crate) fn start_broken(&mut self, replica: usize, weather: Arc<Weather>, tamper: Tamper) {
        let (stop, kill) = (CancellationToken::new(), CancellationToken::new());
        let (pause, mut pauses) = mpsc::unbounded_channel::<Duration>();
        let (kubeconfig, handle, lives) =
            (self.controller_kubeconfig.clone(), Handle::current(), self.lives.clone());
        let (sent, delivered, records) = (self.sent.clone(), self.delivered.clone(), self.records.clone());
        let (settings, election) = (self.settings, self.election);
        let (stopped, killed, of_line) = (stop.clone(), kill.clone(), weather.clone());
        let process = move |life: u64, pauses: &mut mpsc::UnboundedReceiver<Duration>| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let config = handle.block_on(config(&kubeconfig));
            let server = {
                let _on = handle.enter();
                muster_control::client(config).unwrap()
            };
            let on_thread = runtime.enter();
            let line = line::client(
                (server, handle.clone()),
                (Actor::Controller(replica), life),
                of_line.clone(),
                tamper,
                sent.clone(),
                delivered.clone(),
            );
            drop(on_thread);
            let lease = election.map(|election| LeaseConfig {
                namespace: "kube-system".to_owned(),
                name: "scenario".to_owned(),
                identity: format!("{replica}-{life}"),
                election,
            });
            let options = Options { settings, lease, ..Options::default() };
            let observer = observer(records.clone(), replica, life);
            let controller =
                muster_control::DaemonSetControllerReplica::new(line, options).with_plan_observer(observer);
            let ended = runtime.block_on(async {
                let pausing = async {
                    // The whole thread stands still, and its timers with it, as a process does that is stopped.
                    while let Some(span) = pauses.recv().await {
                        std::thread::sleep(span);
                    }
                    std::future::pending().await
                };
                tokio::select! {
                    ended = controller.run(stopped.clone()) => ended,
                    () = killed.cancelled() => Ok(()),
                    () = pausing => Ok(()),
                }
            });
            runtime.shutdown_background();
            records.lock().unwrap().push(Record { at: now(), replica, life, what: What::Died });
            ended
        };
        // Whoever has lost its lease ends, and is started again.
        let thread = std::thread::spawn(move || {
            while let Err(ended) = process(lives.fetch_add(1, Ordering::Relaxed), &mut pauses) {
                assert!(matches!(ended, ControllerExit::LostLease(_)), "{ended}");
            }
        });
        self.replicas.push(Controller { replica, stop, kill, pause, thread, weather });
    }

    pub(crate) fn controller(&self, replica: usize) -> &Controller {
        self.replicas.iter().find(|it| it.replica == replica).expect("it runs")
    }

    /// Ends a process: in order, or in the midst of whatever it does.
    pub(crate) async fn end(&mut self, replica: usize, killed: bool) {
        let at = self.replicas.iter().position(|it| it.replica == replica).expect("it runs");
        let controller = self.replicas.remove(at);
        if killed {
            controller.kill.cancel()
        } else {
            controller.stop.cancel()
        }
        tokio::task::spawn_blocking(move || controller.thread.join()).await.unwrap().expect("no panic");
    }

    /// Waits, while all controllers live.
    async fn wait(&self, began: Instant) -> bool {
        assert!(self.replicas.iter().all(|it| !it.thread.is_finished()), "a controller has ended");
        tokio::time::sleep(Duration::from_millis(100)).await;
        began.elapsed() < PATIENCE
    }

    /// Nothing goes wrong any more.
    pub(crate) fn clear(&self) {
        self.replicas.iter().for_each(|it| it.weather.clear());
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> kube::Result<Value> {
        send(&self.admin, method, path, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.send(Method::GET, path, &Value::Null).await.unwrap()
    }

    pub(crate) async fn create(&self, object: Value) -> Value {
        let path = match object["kind"].as_str() {
            Some("DaemonSet") => "/apis/apps/v1/namespaces/default/daemonsets",
            Some("Pod") => "/api/v1/namespaces/default/pods",
            Some("Node") => NODES,
            other => panic!("no path for {other:?}"),
        };
        self.send(Method::POST, path, &object).await.unwrap()
    }

    pub(crate) async fn patch_set(&self, name: &str, patch: Value) {
        let path = format!("/apis/apps/v1/namespaces/default/daemonsets/{name}");
        self.send(Method::PATCH, &path, &patch).await.unwrap();
    }

    /// A new image, and with it a new revision.
    pub(crate) async fn set_image(&self, name: &str, version: &str) {
        let containers = json!([{"name": "c", "image": format!("r/{name}:{version}")}]);
        self.patch_set(name, json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
    }

    pub(crate) async fn patch_node(&self, name: &str, patch: Value) {
        self.send(Method::PATCH, &format!("{NODES}/{name}"), &patch).await.unwrap();
    }

    /// Takes a node away, and gives it back as it was.
    pub(crate) async fn remove_node(&self, name: &str) -> Value {
        let mut node = self.get(&format!("{NODES}/{name}")).await;
        self.send(Method::DELETE, &format!("{NODES}/{name}"), &Value::Null).await.unwrap();
        for field in ["resourceVersion", "uid", "creationTimestamp", "managedFields"] {
            node["metadata"].as_object_mut().unwrap().remove(field);
        }
        node
    }

    pub(crate) async fn add_node(&self, node: &Value) {
        let name = self.create(node.clone()).await["metadata"]["name"].as_str().unwrap().to_owned();
        let status = json!({"status": node["status"]});
        self.send(Method::PATCH, &format!("{NODES}/{name}/status"), &status).await.unwrap();
        self.patch_node(&name, json!({"spec": {"taints": null}})).await;
    }

    pub(crate) async fn pods(&self) -> Vec<Value> {
        items(self.get(PODS).await)
    }

    /// The names of a node's pods, the oldest first.
    pub(crate) async fn pods_on(&self, node: &str) -> Vec<Value> {
        self.pods().await.into_iter().filter(|it| it["spec"]["nodeName"] == node).collect()
    }

    pub(crate) async fn pod_uids(&self) -> BTreeSet<String> {
        self.pods().await.iter().map(|it| it["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits for a pod on a node, and gives its name.
    pub(crate) async fn pod_on(&self, node: &str) -> String {
        let began = Instant::now();
        loop {
            if let Some(pod) = self.pods_on(node).await.first() {
                return pod["metadata"]["name"].as_str().unwrap().to_owned();
            }
            assert!(self.wait(began).await, "no pod on {node}\n{}", self.state().await);
        }
    }

    /// Waits until a set has let go of the pods with this label.
    pub(crate) async fn are_released(&self, app: &str) {
        let began = Instant::now();
        let is_held = |it: &Value| it["metadata"]["labels"]["app"] == app && owner(it) != "nobody";
        while self.pods().await.iter().any(is_held) {
            assert!(self.wait(began).await, "{}", self.state().await);
        }
    }

    pub(crate) async fn delete_pod_on(&self, node: &str) {
        self.to_pods_on(node, Method::DELETE, "", Value::Null).await;
    }

    /// A node's pods have ended, one way or the other.
    pub(crate) async fn end_pods_on(&self, node: &str, phase: &str) {
        let ready = json!([{"type": "Ready", "status": "False"}]);
        let status = json!({"status": {"phase": phase, "conditions": ready}});
        self.to_pods_on(node, Method::PATCH, "/status", status).await;
    }

    pub(crate) async fn relabel_pods_on(&self, node: &str, app: &str) {
        self.to_pods_on(node, Method::PATCH, "", json!({"metadata": {"labels": {"app": app}}})).await;
    }

    async fn to_pods_on(&self, node: &str, method: Method, subresource: &str, body: Value) {
        for pod in self.pods_on(node).await {
            let name = pod["metadata"]["name"].as_str().unwrap();
            let path = format!("/api/v1/namespaces/default/pods/{name}{subresource}");
            match self.send(method.clone(), &path, &body).await {
                Err(kube::Error::Api(refused)) if refused.code == 404 => {}
                other => drop(other.unwrap()),
            }
        }
    }

    /// Waits until the state is as said, all of it.
    pub(crate) async fn becomes(&self, state: &Expect) {
        let is_update = std::env::var_os("UPDATE_EXPECT").is_some();
        let (began, mut last, mut since) = (Instant::now(), String::new(), Instant::now());
        loop {
            let now = self.state().await;
            if now != last {
                (last, since) = (now, Instant::now());
            }
            let done =
                if is_update { Duration::from_secs(6) < since.elapsed() } else { trim(state.data()) == last };
            if done || !self.wait(began).await {
                return state.assert_eq(&last);
            }
        }
    }

    /// Everything that counts: pods by node with owner, revision and version, sets, revisions, events.
    pub(crate) async fn state(&self) -> String {
        let (nodes, pods) = (items(self.get(NODES).await), items(self.get(PODS).await));
        let (sets, revisions) = (items(self.get(SETS).await), items(self.get(REVISIONS).await));
        let events = items(self.get("/api/v1/events").await);
        let number = |pod: &Value| {
            let hash = &pod["metadata"]["labels"]["controller-revision-hash"];
            let of = revisions.iter().find(|it| {
                it["metadata"]["labels"]["controller-revision-hash"] == *hash && owner(it) == owner(pod)
            });
            of.map_or("?".to_owned(), |it| it["revision"].to_string())
        };
        let mut lines: BTreeMap<String, Vec<String>> = nodes
            .iter()
            .map(|it| (it["metadata"]["name"].as_str().unwrap().to_owned(), Vec::new()))
            .collect();
        for pod in &pods {
            let node = pod["spec"]["nodeName"].as_str().unwrap_or("nowhere").to_owned();
            let line = format!("{}@{} {} {}", owner(pod), number(pod), version(&pod["spec"]), condition(pod));
            lines.entry(node).or_default().push(line);
        }
        let mut out = String::new();
        for (node, mut pods) in lines {
            pods.sort();
            out += &format!("{node}  {}\n", if pods.is_empty() { "-".to_owned() } else { pods.join(", ") });
        }
        for set in &sets {
            let status = &set["status"];
            let count = |name: &str| status[name].as_i64().unwrap_or(0);
            out += &format!(
                "{}  generation {}/{} desired {} current {} ready {} updated {} available {} unavailable {} misscheduled {}\n",
                set["metadata"]["name"].as_str().unwrap(),
                count("observedGeneration"),
                set["metadata"]["generation"],
                count("desiredNumberScheduled"),
                count("currentNumberScheduled"),
                count("numberReady"),
                count("updatedNumberScheduled"),
                count("numberAvailable"),
                count("numberUnavailable"),
                count("numberMisscheduled"),
            );
        }
        let mut of_history: Vec<String> = revisions
            .iter()
            .map(|it| {
                let number = &it["revision"];
                format!(
                    "revision {number} of {}: {}\n",
                    owner(it),
                    version(&it["data"]["spec"]["template"]["spec"])
                )
            })
            .collect();
        of_history.sort();
        out += &of_history.concat();
        let mut told: BTreeMap<String, i64> = BTreeMap::new();
        // Pods have their own, from the scheduler.
        for event in events.iter().filter(|it| it["involvedObject"]["kind"] == "DaemonSet") {
            let about = event["involvedObject"]["name"].as_str().unwrap_or("?");
            let reason = event["reason"].as_str().unwrap_or("?");
            *told.entry(format!("{about} {reason}")).or_default() +=
                event["count"].as_i64().unwrap_or(1).max(1);
        }
        for (what, times) in told {
            out += &format!("event {what} x{times}\n");
        }
        out
    }

    /// ApplyMode often things were tried is a matter of luck where they fail.
    pub(crate) async fn state_without_events(&self) -> String {
        let state = self.state().await;
        state.split_inclusive('\n').filter(|it| !it.starts_with("event ")).collect()
    }

    /// ApplyMode many pods there have ever been.
    pub(crate) async fn pods_ever(&self) -> usize {
        let uid = |it: &Change| it.object["metadata"]["uid"].as_str().map(str::to_owned);
        history(&self.admin, Of::Kind(Kind::Pods), PODS, Seen::default())
            .await
            .0
            .iter()
            .filter_map(uid)
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// Waits until a controller has sent so many requests of a sort, such as `DELETE pods`, and heard the answers.
    pub(crate) async fn has_sent(&self, times: usize, request: &str) {
        let began = Instant::now();
        let count = || {
            let log = self.sent.lock().unwrap();
            let of =
                log.iter().filter(|it| matches!(it.actor, Actor::Controller(_)) && it.fate != Fate::UnderWay);
            of.filter(|it| format!("{} {}", it.method, line::resource(&it.path)) == request).count()
        };
        while count() < times {
            assert!(self.wait(began).await, "{} of {times} times {request}", count());
        }
    }

    /// Waits until every set is where it should be, and its status says so.
    pub(crate) async fn settles(&self) {
        let began = Instant::now();
        loop {
            let Some(violation) = self.unsettled().await else { return };
            if !self.wait(began).await {
                let struck: Vec<_> = self.replicas.iter().flat_map(|it| it.weather.struck()).collect();
                panic!("{violation}\nafter {}\n{}", struck.join("\n"), self.state().await);
            }
        }
    }

    async fn unsettled(&self) -> Option<muster_sim::invariants::Violation> {
        let mut objects = Vec::new();
        for (kind, path) in KINDS {
            objects.extend(items(self.get(path).await).into_iter().map(|it| (kind, it)));
        }
        judge::unsettled(&objects, &BTreeSet::<Text>::new(), now())
    }

    pub(crate) async fn revision(&self) -> u64 {
        self.get(PODS).await["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    }

    /// Waits until no controller has written for ten seconds. A replica whose watch was cut several times sees a change only
    /// after the backoff of its reflector, which is a few seconds by then.
    pub(crate) async fn calms_down(&self) {
        let began = Instant::now();
        loop {
            let before = self.revision().await;
            tokio::time::sleep(Duration::from_secs(10)).await;
            let writes = self.run().await.writes_after(before);
            if writes.is_empty() {
                return;
            }
            assert!(self.wait(began).await, "the controllers still write: {writes:#?}");
        }
    }

    /// L9: a controller that runs, and one that starts, leave a settled cluster alone.
    pub(crate) async fn stays_quiet(&mut self) {
        let before = self.revision().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let replicas: Vec<usize> = self.replicas.iter().map(|it| it.replica).collect();
        for replica in replicas {
            self.end(replica, false).await;
            self.start(replica, Weather::fair());
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        let writes = self.run().await.writes_after(before);
        assert!(writes.is_empty(), "L9: a settled cluster was written to: {writes:#?}");
        self.settles().await;
    }

    /// Stops everything, and says which invariant was broken.
    pub(crate) async fn judge(mut self) -> Option<muster_sim::invariants::Violation> {
        let mut struck = Vec::new();
        for replica in self.replicas.iter().map(|it| it.replica).collect::<Vec<_>>() {
            struck.extend(self.controller(replica).weather.struck());
            self.end(replica, false).await;
        }
        let run = self.run().await;
        let violation = run.violation();
        if violation.is_some() {
            println!("what had gone wrong:\n{}", struck.join("\n"));
        }
        self.stop.cancel();
        self.serving.take().expect("it serves until here").await.unwrap();
        fs::remove_dir_all(&self.dir).unwrap();
        violation
    }

    /// All is as it should be, and was at every step.
    pub(crate) async fn ends_well(self) {
        assert_eq!(self.judge().await.map(|it| it.to_string()), None);
    }

    async fn run(&self) -> Run {
        let whole = async |of, path| history(&self.admin, of, path, Seen::default()).await.0;
        let histories = KINDS.map(|(kind, path)| whole(Of::Kind(kind), path));
        let (histories, leases) =
            futures::join!(futures::future::join_all(histories), whole(Of::Lease, LEASES));
        let mut history: Vec<Change> = histories.into_iter().flatten().chain(leases).collect();
        history.sort_by_key(|it| it.revision);
        Run {
            history,
            records: self.records.lock().unwrap().clone(),
            sent: self.sent.lock().unwrap().clone(),
            delivered: self.delivered.lock().unwrap().clone(),
            leases: self.leases.clone(),
        }
    }
}

impl Controller {
    /// It stands still for so long, and does not know.
    pub(crate) fn pause(&self, span: Duration) {
        self.pause.send(span).unwrap();
    }
}

/// A test that fails leaves no thread behind that goes on writing.
impl Drop for Bed {
    fn drop(&mut self) {
        self.replicas.iter().for_each(|it| it.kill.cancel());
        self.stop.cancel();
    }
}

pub(crate) const KINDS: [(Kind, &str); 4] =
    [(Kind::Sets, SETS), (Kind::Nodes, NODES), (Kind::Pods, PODS), (Kind::Revisions, REVISIONS)];

pub(crate) async fn send(client: &Client, method: Method, path: &str, body: &Value) -> kube::Result<Value> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .header("accept", "application/json")
        .body(body);
    client.request(request.unwrap()).await
}

/// ApplyMode much of a kind's history is known: the revision, and that of each object that is there.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    revision: u64,
    shown: BTreeMap<ObjectKey, u64>,
}

/// Nothing but the beginning.
impl Default for Seen {
    fn default() -> Self {
        Self { revision: 1, shown: BTreeMap::new() }
    }
}

/// Everything that has happened to a kind since then: a watch from there on, until it shows what a list shows.
pub(crate) async fn history(client: &Client, of: Of, path: &str, seen: Seen) -> (Vec<Change>, Seen) {
    let version = |it: &Value| it["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let listed = send(client, Method::GET, path, &Value::Null).await.unwrap();
    let listed_at = version(&listed);
    let listed: BTreeMap<ObjectKey, u64> =
        items(listed).iter().map(|it| (judge::key_of(it), version(it))).collect();
    let Seen { mut revision, mut shown } = seen;
    let request = Request::get(format!("{path}?watch=true&resourceVersion={revision}&timeoutSeconds=300"));
    let stream = client.request_stream(request.body(Vec::new()).unwrap()).await.unwrap();
    let stream = std::pin::pin!(stream);
    let mut lines = stream.lines();
    let (mut changes, mut caught_up) = (Vec::new(), false);
    loop {
        caught_up |= shown == listed;
        // Something may have come and gone again after the last change of what is there.
        let wait = if caught_up { Duration::from_millis(300) } else { PATIENCE };
        let Ok(line) = tokio::time::timeout(wait, lines.try_next()).await else {
            assert!(caught_up, "{path}: the watch shows {shown:?}, the list {listed:?}");
            return (changes, Seen { revision: revision.max(listed_at), shown });
        };
        let Some(change) = judge::change(of, &line.unwrap().expect("the watch goes on")) else {
            continue;
        };
        match change.gone {
            true => drop(shown.remove(&change.key)),
            false => drop(shown.insert(change.key.clone(), change.revision)),
        }
        revision = change.revision;
        changes.push(change);
    }
}

/// A set with one container, whose image is `r/NAME:VERSION`.
pub(crate) fn set(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "c", "image": format!("r/{name}:{version}")}],
                },
            },
        },
    })
}

/// A pod that such a set would make, but that nobody owns.
pub(crate) fn stray(of: &str, name: &str, node: &str) -> Value {
    let mut pod = set(of, "v1")["spec"]["template"].take();
    (pod["kind"], pod["metadata"]["name"], pod["spec"]["nodeName"]) =
        ("Pod".into(), name.into(), node.into());
    pod
}

pub(crate) fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let mut at = &mut object;
    for part in pointer.split('.') {
        at = &mut at[part];
    }
    *at = value;
    object
}

async fn config(kubeconfig: &str) -> Config {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
}

pub(crate) fn now() -> Time {
    Time::from_micros(Timestamp::now().as_microsecond())
}

fn observer(records: Arc<Mutex<Vec<Record>>>, replica: usize, life: u64) -> PlanObserver {
    Arc::new(move |moment| {
        let what = match moment {
            PlanProgress::Planned { planner, plan, .. } => What::Planned {
                plan: Arc::new(plan.clone()),
                snapshot: judge::snapshot(planner),
                sets: planner.sets().cloned().collect(),
            },
            PlanProgress::Called { set, call } => What::Called { set: set.clone(), call: call.clone() },
            PlanProgress::Answered { set, call, outcome } => {
                What::Answered { set: set.clone(), call: call.clone(), outcome: outcome.clone() }
            }
            PlanProgress::Done { set } => What::Done { set: set.clone() },
        };
        records.lock().unwrap().push(Record { at: now(), replica, life, what });
    })
}

pub(crate) fn items(list: Value) -> Vec<Value> {
    let mut list = list;
    match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

fn owner(object: &Value) -> String {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let controller = owners.into_iter().flatten().find(|it| it["controller"] == true);
    controller.and_then(|it| it["name"].as_str()).unwrap_or("nobody").to_owned()
}

fn version(pod_spec: &Value) -> &str {
    let image = pod_spec["containers"][0]["image"].as_str().unwrap_or("?");
    image.rsplit(':').next().unwrap_or("?")
}

fn condition(pod: &Value) -> &'static str {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().any(|it| it["type"] == "Ready" && it["status"] == "True");
    match pod["status"]["phase"].as_str() {
        _ if !pod["metadata"]["deletionTimestamp"].is_null() => "leaving",
        Some("Failed") => "failed",
        Some("Succeeded") => "succeeded",
        _ if ready => "ready",
        Some("Running") => "running",
        _ => "pending",
    }
}

/// The indentation of an expectation is not part of it.
pub(crate) fn trim(text: &str) -> String {
    let lines: Vec<&str> = text.strip_prefix('\n').unwrap_or(text).lines().collect();
    let indent =
        lines.iter().filter(|it| !it.trim().is_empty()).map(|it| it.len() - it.trim_start().len()).min();
    let lines = lines.iter().map(|it| it.get(indent.unwrap_or(0)..).unwrap_or(""));
    let text = lines.collect::<Vec<_>>().join("\n");
    text.trim_end_matches(' ').to_owned()
}
