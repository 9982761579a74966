//! Runs a fleet of simulated nodes: two watches, timers, and a bounded number of concurrent API calls.
//!
//! A node belongs to the fleet if it has the fleet's label: nodes that other clients add later are simulated too.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::behaviour::{FLEET, NodeBehaviour, Pace, Trouble};
use super::clock::{Clock, shifted};
use super::node::{self, Addresses, New};
use super::pod::{Call, Host, Pod};
use super::wire;
use crate::error_chain::chain;

/// Heartbeat interval. As with the kubelet, four heartbeats may be missed.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);
const LEASE_S: u64 = 40;
/// Interval of node status reports without a change.
const REPORT_EVERY: Duration = Duration::from_secs(300);

/// Delay after a call that failed temporarily, such as by a lost connection.
const RETRY: Duration = Duration::from_secs(1);

/// Concurrent API calls: enough to saturate a server that batches its disk writes.
const CALLS_MAX: usize = 64;

const NODES: &str = "/api/v1/nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json";

/// Configuration of a fleet.
#[derive(Debug, Clone)]
pub struct Options {
    /// Value of the fleet label of its nodes.
    pub fleet: String,
    /// Minimum number of nodes, named `PREFIX-1`, `PREFIX-2`, …
    pub count: u16,
    pub prefix: String,
    pub pace: Pace,
    /// Number of zones that the nodes are spread over; 0: no zones.
    pub zones: u16,
}

impl Default for Options {
    fn default() -> Self {
        Self { fleet: "up".into(), count: 0, prefix: "sim".into(), pace: Pace::default(), zones: 0 }
    }
}

/// A registered fleet of simulated nodes.
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct Fleet {
    client: Client,
    options: Options,
}

impl Fleet {
    /// Registers the nodes; they are Ready unless their annotations name a fault.
    pub async fn register(client: Client, options: Options) -> kube::Result<Self> {
        let now = Timestamp::now();
        let mut calls = Vec::new();
        let mut existing = HashSet::new();
        for node in list(&client, &options.fleet).await? {
            let behaviour = NodeBehaviour::read(node.annotations(), &mut |_| {});
            let name = node.name_any();
            if let Some(number) = node::number(&node).filter(|_| behaviour.speaks()) {
                calls.push(report(
                    &name,
                    &node::status(&name, number, &behaviour, &node.status.conditions, now),
                ));
            }
            existing.insert(name);
        }
        for number in 1..=options.count {
            let name = format!("{}-{number}", options.prefix);
            if !existing.contains(&name) {
                calls.push(create(&options.new_node(name, number), now));
            }
        }
        all(&client, calls).await?;
        Ok(Self { client, options })
    }

    /// Simulates the nodes until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let Self { client, options } = self;
        let mut play = Play::new(client, options, Clock::new(Timestamp::now));
        tokio::select! {
            () = stop.cancelled() => {}
            () = play.run() => {}
        }
    }
}

impl Options {
    fn new_node(&self, name: String, number: u16) -> New {
        let zone = (self.zones != 0).then(|| {
            ("topology.kubernetes.io/zone".to_owned(), format!("zone-{}", (number - 1) % self.zones + 1))
        });
        New {
            name,
            number,
            fleet: self.fleet.clone(),
            labels: zone.into_iter().collect(),
            taints: Vec::new(),
        }
    }
}

/// Registers one more node, which the process of its fleet then simulates.
pub async fn add(client: &Client, new: &New) -> kube::Result<()> {
    send(client, create(new, Timestamp::now())).await.map(drop)
}

/// Node numbers that no fleet uses, in ascending order.
pub async fn free(client: &Client) -> kube::Result<impl Iterator<Item = u16>> {
    let nodes: Api<wire::Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default().labels(FLEET)).await?;
    let used: BTreeSet<u16> = nodes.iter().filter_map(node::number).collect();
    Ok((1..=node::NODES_MAX).filter(move |it| !used.contains(it)))
}

/// Deletes every node of a fleet.
pub async fn remove_all(client: &Client, fleet: &str) -> kube::Result<()> {
    let delete =
        |it: wire::Node| request(Method::DELETE, format!("{NODES}/{}", it.name_any()), JSON, &json!({}));
    let calls = list(client, fleet).await?.into_iter().map(delete).collect();
    all(client, calls).await
}

async fn list(client: &Client, fleet: &str) -> kube::Result<Vec<wire::Node>> {
    let nodes: Api<wire::Node> = Api::all(client.clone());
    Ok(nodes.list(&ListParams::default().labels(&format!("{FLEET}={fleet}"))).await?.items)
}

/// Sends requests concurrently, until one fails.
async fn all(client: &Client, calls: Vec<Request<Vec<u8>>>) -> kube::Result<()> {
    let mut in_flight = JoinSet::new();
    for call in calls {
        if CALLS_MAX <= in_flight.len()
            && let Some(done) = in_flight.join_next().await
        {
            done.expect("no call panics")?;
        }
        let client = client.clone();
        in_flight.spawn(async move { send(&client, call).await });
    }
    while let Some(done) = in_flight.join_next().await {
        done.expect("no call panics")?;
    }
    Ok(())
}

/// Sends a request and returns the resourceVersion of the written object.
async fn send(client: &Client, request: Request<Vec<u8>>) -> kube::Result<u64> {
    let written: wire::Written = client.request(request).await?;
    Ok(wire::version(&written.metadata))
}

fn request(method: Method, path: String, media_type: &str, body: &Value) -> Request<Vec<u8>> {
    let request = Request::builder().method(method).uri(path).header("Content-Type", media_type);
    request.body(body.to_string().into_bytes()).expect("object names are valid in a path")
}

fn create(new: &New, now: Timestamp) -> Request<Vec<u8>> {
    request(Method::POST, NODES.to_owned(), JSON, &new.object(now))
}

fn report(node: &str, status: &Value) -> Request<Vec<u8>> {
    request(Method::PATCH, format!("{NODES}/{node}/status"), STRATEGIC, &json!({"status": status}))
}

/// Runs a fleet: nodes, pods, timers and calls.
pub(super) struct Play {
    client: Client,
    options: Options,
    clock: Clock,
    nodes: HashMap<Arc<str>, Node>,
    pods: HashMap<Arc<str>, Known>,
    /// Timers in order of time, at most one for each subject.
    timers: BTreeSet<(Timestamp, Subject)>,
    /// Heartbeats and other calls alternate, so that neither starves on a slow server.
    beats: VecDeque<Task>,
    others: VecDeque<Task>,
    is_beats_turn: bool,
    calls: JoinSet<Done>,
    /// Nodes seen so far by a list in progress.
    listed_nodes: HashSet<Arc<str>>,
    /// Pods seen so far by a list in progress.
    listed_pods: HashSet<Arc<str>>,
}

/// A node of the fleet.
struct Node {
    uid: Box<str>,
    number: u16,
    behaviour: NodeBehaviour,
    shown: Vec<wire::Condition>,
    has_lease: bool,
    /// Time of the last status report, finished or in flight.
    reported: Option<Timestamp>,
    pods: BTreeSet<Arc<str>>,
    addresses: Addresses,
    timers: [Option<Timestamp>; 2],
}

impl Node {
    fn host(&self, usual: Pace) -> Host {
        Host { address: node::host_address(self.number), pace: self.behaviour.pace(usual) }
    }
}

/// A pod of the fleet.
struct Known {
    pod: Pod,
    /// An API call is in flight; the pod is stepped again when it completes.
    busy: bool,
    timer: Option<Timestamp>,
}

/// Subject of a timer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Pod(Arc<str>),
    Beat(Arc<str>),
    Report(Arc<str>),
}

/// A queued API call and its subject.
struct Task {
    about: About,
    request: Request<Vec<u8>>,
}

/// The node or pod that a call is about, by kind of call.
#[derive(Debug, Clone)]
enum About {
    Pod(Arc<str>),
    Renewal(Arc<str>),
    Lease(Arc<str>),
    Report(Arc<str>),
    Adoption(Arc<str>),
    Vanishing(Arc<str>),
    PodsOf(Arc<str>),
}

/// A completed call.
struct Done {
    about: About,
    came: kube::Result<Came>,
}

/// The response to a call.
enum Came {
    Written(u64),
    Pods(Vec<wire::Pod>),
}

impl Play {
    pub(super) fn new(client: Client, options: Options, clock: Clock) -> Self {
        Self {
            client,
            options,
            clock,
            nodes: HashMap::new(),
            pods: HashMap::new(),
            timers: BTreeSet::new(),
            beats: VecDeque::new(),
            others: VecDeque::new(),
            is_beats_turn: false,
            calls: JoinSet::new(),
            listed_nodes: HashSet::new(),
            listed_pods: HashSet::new(),
        }
    }

    pub(super) async fn run(&mut self) {
        let fleet = format!("{FLEET}={}", self.options.fleet);
        let nodes = Api::<wire::Node>::all(self.client.clone());
        let nodes = watcher(nodes, watcher::Config::default().labels(&fleet)).default_backoff();
        let mut nodes = pin!(nodes);
        // Pods are listed after the nodes are known; for nodes that appear later, node by node.
        loop {
            match nodes.try_next().await {
                Ok(Some(event)) => {
                    let is_last = matches!(event, watcher::Event::InitDone);
                    self.node_event(event, false);
                    if is_last {
                        break;
                    }
                }
                Ok(None) => return,
                Err(error) => tracing::warn!(error = %chain(&error), "cannot list the nodes, retrying"),
            }
        }
        let pods = Api::<wire::Pod>::all(self.client.clone());
        let pods = watcher(pods, watcher::Config::default().fields("spec.nodeName!=")).default_backoff();
        let mut pods = pin!(pods);
        loop {
            self.start_calls();
            let wait = self.timers.first().map(|(at, _)| at.duration_since(self.clock.now()));
            let timer = async {
                match wait {
                    Some(wait) => tokio::time::sleep(Duration::try_from(wait).unwrap_or_default()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(done) = self.calls.join_next() => match done {
                    Ok(done) => self.done(done),
                    Err(error) => tracing::error!(%error, "a call panicked"),
                },
                event = pods.try_next() => match event {
                    Ok(Some(event)) => self.pod_event(event),
                    Ok(None) => return,
                    Err(error) => tracing::warn!(error = %chain(&error), "the watch of pods failed; restarting it"),
                },
                event = nodes.try_next() => match event {
                    Ok(Some(event)) => self.node_event(event, true),
                    Ok(None) => return,
                    Err(error) => tracing::warn!(error = %chain(&error), "the watch of nodes failed; restarting it"),
                },
                () = timer => self.wake(),
            }
        }
    }

    fn start_calls(&mut self) {
        while self.calls.len() < CALLS_MAX {
            let Some(task) = self.next_task() else { return };
            let client = self.client.clone();
            self.calls.spawn(async move {
                let Task { about, request } = task;
                let came = match about {
                    About::PodsOf(_) => {
                        let list: kube::Result<kube::core::ObjectList<wire::Pod>> =
                            client.request(request).await;
                        list.map(|it| Came::Pods(it.items))
                    }
                    // The response to a delete is the object or a Status.
                    About::Vanishing(_) => {
                        client.request::<IgnoredAny>(request).await.map(|_| Came::Written(0))
                    }
                    _ => send(&client, request).await.map(Came::Written),
                };
                Done { about, came }
            });
        }
    }

    fn next_task(&mut self) -> Option<Task> {
        self.is_beats_turn = !self.is_beats_turn;
        let (mut one, mut other) = (&mut self.beats, &mut self.others);
        if !self.is_beats_turn {
            (one, other) = (other, one);
        }
        one.pop_front().or_else(|| other.pop_front())
    }

    /// The current time. If the wall clock was changed, all timers are shifted with it.
    fn now(&mut self) -> Timestamp {
        let (now, by) = self.clock.read();
        if !by.is_zero() {
            tracing::warn!(
                seconds = by.as_secs(),
                "the wall clock was changed; the timers of simulated nodes are adjusted"
            );
            self.shift(by);
        }
        now
    }

    /// Rule: a change of the wall clock neither delays nor hastens heartbeats, reports or pods: waits follow the
    /// monotonic clock.
    fn shift(&mut self, by: SignedDuration) {
        let timers = std::mem::take(&mut self.timers);
        self.timers = timers.into_iter().map(|(at, subject)| (shifted(at, by), subject)).collect();
        for node in self.nodes.values_mut() {
            let times = node.timers.iter_mut().chain([&mut node.reported]);
            times.flatten().for_each(|it| *it = shifted(*it, by));
        }
        for entry in self.pods.values_mut() {
            entry.timer = entry.timer.map(|it| shifted(it, by));
            entry.pod.shift(by);
        }
    }

    fn wake(&mut self) {
        let now = self.now();
        while let Some((at, _)) = self.timers.first()
            && *at <= now
            && let Some((_, subject)) = self.timers.pop_first()
        {
            match subject {
                Subject::Pod(uid) => {
                    if let Some(entry) = self.pods.get_mut(&uid) {
                        entry.timer = None;
                    }
                    self.step(&uid, now);
                }
                Subject::Beat(name) => {
                    if let Some(node) = self.nodes.get_mut(&name) {
                        node.timers[BEAT] = None;
                        if node.behaviour.speaks() {
                            self.beats.push_back(beat(&name, node, now));
                        } else {
                            self.arm_node(&name, BEAT, after(now, HEARTBEAT_EVERY));
                        }
                    }
                }
                Subject::Report(name) => {
                    if let Some(node) = self.nodes.get_mut(&name) {
                        node.timers[REPORT] = None;
                        self.report(&name, now);
                    }
                }
            }
        }
    }

    fn arm_node(&mut self, name: &Arc<str>, which: usize, at: Timestamp) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let subject = |it: Arc<str>| if which == BEAT { Subject::Beat(it) } else { Subject::Report(it) };
        if let Some(before) = node.timers[which].replace(at) {
            self.timers.remove(&(before, subject(name.clone())));
        }
        self.timers.insert((at, subject(name.clone())));
    }

    fn node_event(&mut self, event: watcher::Event<wire::Node>, is_late: bool) {
        match event {
            watcher::Event::Init => self.listed_nodes.clear(),
            watcher::Event::InitApply(node) => {
                self.listed_nodes.insert(node.name_any().into());
                self.see_node(&node, is_late);
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed_nodes);
                let removed: Vec<_> = self.nodes.keys().filter(|it| !listed.contains(*it)).cloned().collect();
                removed.iter().for_each(|it| self.forget_node(it));
            }
            watcher::Event::Apply(node) => self.see_node(&node, is_late),
            watcher::Event::Delete(node) => self.forget_node(node.name_any().as_str()),
        }
    }

    fn see_node(&mut self, object: &wire::Node, is_late: bool) {
        let now = self.now();
        let name: Arc<str> = object.name_any().into();
        let uid = object.uid().unwrap_or_default().into_boxed_str();
        if self.nodes.get(&name).is_some_and(|it| it.uid != uid) {
            self.forget_node(&name);
        }
        let behaviour = NodeBehaviour::read(object.annotations(), &mut |error| {
            tracing::warn!(node = &*name, error, "ignoring an invalid annotation");
        });
        let shown = object.status.conditions.clone();
        if let Some(node) = self.nodes.get_mut(&name) {
            let before = std::mem::replace(&mut node.behaviour, behaviour);
            node.shown = shown;
            if before != node.behaviour {
                self.obey(&name, now);
            }
        } else {
            let number = node::number(object).unwrap_or_else(|| self.adopt(&name));
            let node = Node {
                uid,
                number,
                behaviour,
                shown,
                has_lease: false,
                reported: None,
                pods: BTreeSet::new(),
                addresses: Addresses::new(number),
                timers: [None; 2],
            };
            self.nodes.insert(name.clone(), node);
            // The first heartbeat creates the lease and is due immediately.
            self.arm_node(&name, BEAT, now);
            self.arm_node(&name, REPORT, after(now, REPORT_EVERY.mul_f64(share(number))));
            if is_late {
                self.others.push_back(pods_of(&name));
            }
            self.obey_if_set(&name, now);
        }
        let node = self.nodes.get(&name).expect("the node was just added");
        if node.behaviour.speaks() && !node::is_as_said(&node.behaviour, &node.shown) {
            self.report(&name, now);
        }
    }

    /// Assigns a number, hence addresses, to a node that another client created.
    fn adopt(&mut self, name: &Arc<str>) -> u16 {
        let used: HashSet<u16> = self.nodes.values().map(|it| it.number).collect();
        let number = (1..node::NODES_MAX).find(|it| !used.contains(it)).unwrap_or(node::NODES_MAX);
        let new = New { name: name.to_string(), number, fleet: self.options.fleet.clone(), ..New::default() };
        let object = new.object(Timestamp::now());
        let patch = json!({
            "metadata": {"labels": object["metadata"]["labels"]},
            "spec": {"podCIDR": object["spec"]["podCIDR"], "podCIDRs": object["spec"]["podCIDRs"]},
        });
        let request = request(Method::PATCH, format!("{NODES}/{name}"), MERGE, &patch);
        self.others.push_back(Task { about: About::Adoption(name.clone()), request });
        number
    }

    fn obey_if_set(&mut self, name: &Arc<str>, now: Timestamp) {
        if self.nodes.get(name).is_some_and(|it| it.behaviour != NodeBehaviour::default()) {
            self.obey(name, now);
        }
    }

    /// Applies a changed behaviour to the node and its pods.
    fn obey(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(node) = self.nodes.get(name) else { return };
        if node.behaviour.has(Trouble::Vanish) {
            let request = request(Method::DELETE, format!("{NODES}/{name}"), JSON, &json!({}));
            self.others.push_back(Task { about: About::Vanishing(name.clone()), request });
            return;
        }
        if node.behaviour.speaks() {
            self.report(name, now);
            self.arm_node(name, BEAT, now);
        }
        let pods: Vec<_> =
            self.nodes.get(name).map(|it| it.pods.iter().cloned().collect()).unwrap_or_default();
        for uid in pods {
            self.step(&uid, now);
        }
    }

    /// Reports the node's status, at most once a second.
    fn report(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        if let Some(reported) = node.reported
            && now < after(reported, RETRY)
        {
            return self.arm_node(name, REPORT, after(reported, RETRY));
        }
        if node.behaviour.speaks() {
            node.reported = Some(now);
            let status = node::status(name, node.number, &node.behaviour, &node.shown, now);
            let request = report(name, &status);
            self.beats.push_back(Task { about: About::Report(name.clone()), request });
        }
        self.arm_node(name, REPORT, after(now, REPORT_EVERY));
    }

    fn forget_node(&mut self, name: &str) {
        let Some((name, node)) = self.nodes.remove_entry(name) else { return };
        for uid in node.pods {
            self.drop_pod(&uid);
        }
        let [beat, report] = node.timers;
        let beat = beat.map(|at| (at, Subject::Beat(name.clone())));
        let report = report.map(|at| (at, Subject::Report(name.clone())));
        beat.into_iter().chain(report).for_each(|it| {
            self.timers.remove(&it);
        });
    }

    fn pod_event(&mut self, event: watcher::Event<wire::Pod>) {
        match event {
            watcher::Event::Init => self.listed_pods.clear(),
            watcher::Event::InitApply(pod) => {
                self.listed_pods.insert(pod.uid().unwrap_or_default().into());
                self.see_pod(pod);
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed_pods);
                let removed: Vec<_> = self.pods.keys().filter(|it| !listed.contains(*it)).cloned().collect();
                removed.iter().for_each(|it| self.forget_pod(it));
            }
            watcher::Event::Apply(pod) => self.see_pod(pod),
            watcher::Event::Delete(pod) => self.forget_pod(&pod.uid().unwrap_or_default()),
        }
    }

    fn see_pod(&mut self, object: wire::Pod) {
        let now = self.now();
        let uid: Arc<str> = match object.metadata.uid.as_deref() {
            Some(uid) => uid.into(),
            None => return,
        };
        if let Some(entry) = self.pods.get_mut(&uid) {
            let Some(node) = self.nodes.get(&entry.pod.node) else { return };
            entry.pod.see(object, node.host(self.options.pace), now);
        } else {
            let Some(node) = object.node_name.as_deref().and_then(|it| self.nodes.get_mut(it)) else {
                return;
            };
            let host = node.host(self.options.pace);
            let name = object.name_any();
            let pod = Pod::new(&object, host, now, &mut |error| {
                tracing::warn!(pod = name, error, "ignoring an invalid part of a pod");
            });
            let Some(mut pod) = pod else { return };
            if !pod.on_host {
                pod.address = Some(node.addresses.lend(pod.address));
            }
            node.pods.insert(uid.clone());
            self.pods.insert(uid.clone(), Known { pod, busy: false, timer: None });
        }
        self.step(&uid, now);
    }

    fn step(&mut self, uid: &Arc<str>, now: Timestamp) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let Some(node) = self.nodes.get(&entry.pod.node) else { return };
        if entry.busy || !node.behaviour.works() {
            return;
        }
        let step = entry.pod.step(node.host(self.options.pace), now);
        if let Some(before) = entry.timer.take() {
            self.timers.remove(&(before, Subject::Pod(uid.clone())));
        }
        if let Some(at) = step.wake_at {
            entry.timer = Some(at);
            self.timers.insert((at, Subject::Pod(uid.clone())));
        }
        if let Some(call) = step.call {
            entry.busy = true;
            let request = pod_request(&entry.pod, call);
            self.others.push_back(Task { about: About::Pod(uid.clone()), request });
        }
    }

    fn forget_pod(&mut self, uid: &str) {
        let Some(entry) = self.drop_pod(uid) else { return };
        if let Some(node) = self.nodes.get_mut(&entry.pod.node) {
            node.pods.remove(uid);
            node.addresses.take_back(entry.pod.address);
        }
    }

    fn drop_pod(&mut self, uid: &str) -> Option<Known> {
        let entry = self.pods.remove(uid)?;
        if let Some(at) = entry.timer {
            self.timers.remove(&(at, Subject::Pod(entry.pod.uid.clone())));
        }
        Some(entry)
    }

    /// Starts the renewals of a lease that exists; nodes renew at different offsets.
    fn has_lease(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        node.has_lease = true;
        let due = after(now, HEARTBEAT_EVERY.mul_f64(share(node.number)));
        self.arm_node(name, BEAT, due);
    }

    fn done(&mut self, done: Done) {
        let now = self.now();
        let Done { about, came } = done;
        let failed = match &came {
            Ok(_) => None,
            Err(kube::Error::Api(refused)) if refused.code < 500 && refused.code != 429 => Some(refused.code),
            Err(_) => Some(0),
        };
        match (&about, came) {
            (About::PodsOf(_), Ok(Came::Pods(pods))) => pods.into_iter().for_each(|it| self.see_pod(it)),
            (About::Pod(uid), Ok(Came::Written(version))) => {
                if let Some(entry) = self.pods.get_mut(uid)
                    && let Some(node) = self.nodes.get(&entry.pod.node)
                {
                    entry.busy = false;
                    entry.pod.sent(version, node.host(self.options.pace), now);
                }
                self.step(uid, now);
            }
            (About::Lease(name), Ok(_)) => self.has_lease(name, now),
            (About::Renewal(name), Ok(_)) => self.arm_node(name, BEAT, after(now, HEARTBEAT_EVERY)),
            (_, Ok(_)) => {}
            (_, Err(error)) => self.failed(about, failed.unwrap_or_default(), &error, now),
        }
    }

    /// Handles a failed call. `code` is 0 for temporary failures.
    fn failed(&mut self, about: About, code: u16, error: &kube::Error, now: Timestamp) {
        let error = chain(error);
        match (about, code) {
            // The object is gone or was replaced; the watch will show it.
            (About::Pod(_) | About::Report(_) | About::Vanishing(_) | About::Adoption(_), 404 | 409) => {}
            (About::Pod(uid), code) => {
                tracing::warn!(uid = &*uid, %error, "cannot write the status of a pod, retrying");
                let Some(entry) = self.pods.get_mut(&uid) else { return };
                let Some(node) = self.nodes.get(&entry.pod.node) else { return };
                entry.busy = false;
                entry.pod.was_refused(node.host(self.options.pace), now);
                let wait = if code == 0 { RETRY } else { REPORT_EVERY };
                let at = after(now, wait);
                if let Some(before) = entry.timer.replace(at) {
                    self.timers.remove(&(before, Subject::Pod(uid.clone())));
                }
                self.timers.insert((at, Subject::Pod(uid)));
            }
            // The lease of an earlier process exists.
            (About::Lease(name), 409) => self.has_lease(&name, now),
            (About::Renewal(name), 404) => {
                if let Some(node) = self.nodes.get_mut(&name) {
                    node.has_lease = false;
                }
                self.arm_node(&name, BEAT, now);
            }
            (About::Renewal(name) | About::Lease(name), _) => {
                tracing::warn!(node = &*name, %error, "a heartbeat failed, retrying");
                self.arm_node(&name, BEAT, after(now, RETRY));
            }
            (About::Report(name), _) => {
                tracing::warn!(node = &*name, %error, "cannot write the status of a node, retrying");
                self.arm_node(&name, REPORT, after(now, RETRY));
            }
            (About::PodsOf(name), _) => {
                tracing::warn!(node = &*name, %error, "cannot list the pods of a node, retrying");
                self.others.push_back(pods_of(&name));
            }
            (About::Vanishing(name) | About::Adoption(name), _) => {
                tracing::warn!(node = &*name, %error, "cannot update or delete a node");
            }
        }
    }
}

const BEAT: usize = 0;
const REPORT: usize = 1;

/// Offset of a node within an interval, from 0 to 1: multiples of the golden ratio are evenly spread, however many
/// there are.
fn share(number: u16) -> f64 {
    (f64::from(number) * 0.618_033_988_749_895).fract()
}

fn beat(name: &Arc<str>, node: &Node, now: Timestamp) -> Task {
    let at = now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    if node.has_lease {
        let patch = json!({"spec": {"renewTime": at}});
        let request = request(Method::PATCH, format!("{LEASES}/{name}"), MERGE, &patch);
        return Task { about: About::Renewal(name.clone()), request };
    }
    // The lease is garbage collected with its node.
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid});
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease", "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_S, "renewTime": at},
    });
    let request = request(Method::POST, LEASES.to_owned(), JSON, &lease);
    Task { about: About::Lease(name.clone()), request }
}

/// Adds a duration to a timestamp, saturating.
fn after(at: Timestamp, span: Duration) -> Timestamp {
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}

fn pods_of(node: &Arc<str>) -> Task {
    let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
    let request = Request::get(path).body(Vec::new()).expect("node names are valid in a path");
    Task { about: About::PodsOf(node.clone()), request }
}

fn pod_request(pod: &Pod, call: Call) -> Request<Vec<u8>> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
    match call {
        Call::Report(patch) => request(Method::PATCH, format!("{path}/status"), STRATEGIC, &patch),
        Call::Delete => {
            let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}});
            request(Method::DELETE, path, JSON, &options)
        }
    }
}
