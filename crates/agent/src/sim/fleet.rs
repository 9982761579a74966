//! Runs a fleet of simulated nodes with two watches, timers, and a limited number of concurrent API calls.
//!
//! A node belongs to the fleet if it has the fleet's label. Nodes with this label that other clients add later are
//! simulated too.

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
use muster_api::meta_v1::PartialObjectMetadata;
use muster_api::text::Text;
use muster_api::well_known::{
    JSON_MEDIA_TYPE, LABEL_TOPOLOGY_ZONE, MERGE_PATCH_MEDIA_TYPE, STRATEGIC_MERGE_PATCH_MEDIA_TYPE,
};
use muster_engine::kubelet::node_status::{
    HEARTBEAT_INTERVAL, REPORT_INTERVAL, lease_renewal_patch, node_lease,
};
use muster_events::error_chain::format_error_chain;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::behaviour::{ContainerTimings, FLEET_LABEL, NodeBehaviour, NodeFault};
use super::clock::{FleetClock, shift_timestamp};
use super::node::{self, NewNode, PodAddressPool};
use super::pod::{PodCall, SimulatedHost, SimulatedPod};
use super::wire;

/// Delay before the retry of a call that failed temporarily, for example because the connection was lost. Also the
/// minimum interval between two status reports of a node.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of concurrent API calls. It is large enough to saturate a server that batches its disk writes.
const CONCURRENT_CALLS_MAX: usize = 64;

/// URL path of the Nodes.
const NODES_PATH: &str = "/api/v1/nodes";
/// URL path of the node Leases.
const LEASES_PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Configuration of a fleet.
#[derive(Debug, Clone)]
pub struct FleetOptions {
    /// Name of the fleet: the value of the label [`FLEET_LABEL`] on its nodes.
    pub fleet: String,
    /// Number of nodes that the fleet registers, named `PREFIX-1`, `PREFIX-2`, … Other clients may add more nodes.
    pub count: u16,
    /// Prefix of the node names.
    pub prefix: String,
    /// How long containers take to start and to stop by default.
    pub timings: ContainerTimings,
    /// Number of zones over which the nodes are spread. With 0, nodes have no zone.
    pub zones: u16,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            fleet: "up".into(),
            count: 0,
            prefix: "sim".into(),
            timings: ContainerTimings::default(),
            zones: 0,
        }
    }
}

/// A fleet of simulated nodes that are registered on the API server.
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct Fleet {
    client: Client,
    options: FleetOptions,
}

impl Fleet {
    /// Creates the nodes of a fleet that do not exist yet. Reports the status of the existing nodes, except those with
    /// a fault that stops their API calls.
    pub async fn register(client: Client, options: FleetOptions) -> kube::Result<Self> {
        let now = Timestamp::now();
        let mut calls = Vec::new();
        let mut existing = HashSet::new();
        for node in list_nodes(&client, &options.fleet).await? {
            let behaviour = NodeBehaviour::read(node.annotations(), &mut |_| {});
            let name = node.name_any();
            if let Some(number) = node::node_number(&node).filter(|_| behaviour.is_connected()) {
                calls.push(node_status_request(
                    &name,
                    &node::node_status(&name, number, &behaviour, &node.conditions.parse(), now.into()),
                ));
            }
            existing.insert(name);
        }
        for number in 1..=options.count {
            let name = format!("{}-{number}", options.prefix);
            if !existing.contains(&name) {
                calls.push(create_node_request(&options.new_node(name, number), now));
            }
        }
        send_all(&client, calls).await?;
        Ok(Self { client, options })
    }

    /// Simulates the nodes until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let Self { client, options } = self;
        let mut runner = FleetRunner::new(client, options, FleetClock::new(Timestamp::now));
        tokio::select! {
            () = stop.cancelled() => {}
            () = runner.run() => {}
        }
    }
}

impl FleetOptions {
    /// Returns the Node to register with this name and number. The number also determines its zone.
    fn new_node(&self, name: String, number: u16) -> NewNode {
        let zone = (self.zones != 0)
            .then(|| (LABEL_TOPOLOGY_ZONE.to_owned(), format!("zone-{}", (number - 1) % self.zones + 1)));
        NewNode {
            name,
            number,
            fleet: self.fleet.clone(),
            labels: zone.into_iter().collect(),
            taints: Vec::new(),
        }
    }
}

/// Registers one more simulated node in the fleet that [`NewNode::fleet`] names. The process that runs this fleet then
/// simulates the node.
pub async fn register_node(client: &Client, new: &NewNode) -> kube::Result<()> {
    send_write_request(client, create_node_request(new, Timestamp::now())).await.map(drop)
}

/// Returns the node numbers that no node of any fleet uses, in ascending order.
pub async fn free_node_numbers(client: &Client) -> kube::Result<impl Iterator<Item = u16>> {
    let nodes: Api<wire::Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default().labels(FLEET_LABEL)).await?;
    let used: BTreeSet<u16> = nodes.iter().filter_map(node::node_number).collect();
    Ok((1..=node::NODES_MAX).filter(move |it| !used.contains(it)))
}

/// Deletes every node of a fleet.
pub async fn remove_fleet(client: &Client, fleet: &str) -> kube::Result<()> {
    let delete = |it: wire::Node| {
        api_request(Method::DELETE, format!("{NODES_PATH}/{}", it.name_any()), JSON_MEDIA_TYPE, &json!({}))
    };
    let calls = list_nodes(client, fleet).await?.into_iter().map(delete).collect();
    send_all(client, calls).await
}

/// Returns the nodes with the label of this fleet.
async fn list_nodes(client: &Client, fleet: &str) -> kube::Result<Vec<wire::Node>> {
    let nodes: Api<wire::Node> = Api::all(client.clone());
    Ok(nodes.list(&ListParams::default().labels(&format!("{FLEET_LABEL}={fleet}"))).await?.items)
}

/// Sends requests concurrently. Stops and returns the error when a request fails.
async fn send_all(client: &Client, calls: Vec<Request<Vec<u8>>>) -> kube::Result<()> {
    let mut in_flight = JoinSet::new();
    for call in calls {
        if CONCURRENT_CALLS_MAX <= in_flight.len()
            && let Some(done) = in_flight.join_next().await
        {
            done.expect("no call panics")?;
        }
        let client = client.clone();
        in_flight.spawn(async move { send_write_request(&client, call).await });
    }
    while let Some(done) = in_flight.join_next().await {
        done.expect("no call panics")?;
    }
    Ok(())
}

/// Sends a write request and returns the resourceVersion of the written object.
async fn send_write_request(client: &Client, request: Request<Vec<u8>>) -> kube::Result<u64> {
    let written: Box<RawValue> = client.request(request).await?;
    let written: PartialObjectMetadata<'_> =
        serde_json::from_str(written.get()).map_err(kube::Error::SerdeError)?;
    Ok(written.metadata.resource_version())
}

/// Builds a request with a JSON body. `media_type` is the type of the body.
fn api_request(method: Method, path: String, media_type: &str, body: &Value) -> Request<Vec<u8>> {
    let request = Request::builder().method(method).uri(path).header("Content-Type", media_type);
    request.body(body.to_string().into_bytes()).expect("object names are valid in a path")
}

/// Builds the request that creates the Node object of a simulated node.
fn create_node_request(new: &NewNode, now: Timestamp) -> Request<Vec<u8>> {
    api_request(Method::POST, NODES_PATH.to_owned(), JSON_MEDIA_TYPE, &new.to_object(now.into()))
}

/// Builds the request that patches the status of a node.
fn node_status_request(node: &str, status: &Value) -> Request<Vec<u8>> {
    api_request(
        Method::PATCH,
        format!("{NODES_PATH}/{node}/status"),
        STRATEGIC_MERGE_PATCH_MEDIA_TYPE,
        &json!({"status": status}),
    )
}

/// Runs the nodes, pods, timers and API calls of a fleet.
pub(super) struct FleetRunner {
    client: Client,
    options: FleetOptions,
    clock: FleetClock,
    /// The nodes of the fleet, by name.
    nodes: HashMap<Arc<str>, SimulatedNode>,
    /// The pods on nodes of the fleet, by UID.
    pods: HashMap<Arc<str>, SimulatedPodEntry>,
    /// Timers in chronological order, at most one for each key.
    timers: BTreeSet<(Timestamp, TimerKey)>,
    /// Queue of heartbeats and node status reports. Calls are taken alternately from this queue and from `call_queue`,
    /// so that neither starves on a slow server.
    heartbeat_queue: VecDeque<QueuedCall>,
    /// Queue of all other calls.
    call_queue: VecDeque<QueuedCall>,
    /// Whether the last [`FleetRunner::next_call`] looked for a call in `heartbeat_queue` first. The next one looks in
    /// the other queue first.
    last_preferred_heartbeat: bool,
    /// API calls in flight.
    calls: JoinSet<CompletedCall>,
    /// Names of the nodes that a list in progress has returned so far.
    listed_nodes: HashSet<Arc<str>>,
    /// UIDs of the pods that a list in progress has returned so far.
    listed_pods: HashSet<Arc<str>>,
}

/// A node of the fleet.
struct SimulatedNode {
    uid: Box<str>,
    /// Number of the node, from which its addresses are derived.
    number: u16,
    behaviour: NodeBehaviour,
    /// The node's conditions on the API server.
    conditions: wire::NodeConditions,
    /// Whether the node's Lease is known to exist.
    has_lease: bool,
    /// Time at which a report of the node's status was last queued, or `None` if none was queued yet.
    last_reported_at: Option<Timestamp>,
    /// UIDs of the node's pods.
    pods: BTreeSet<Arc<str>>,
    /// Pod addresses of the node.
    addresses: PodAddressPool,
    /// Due times of the heartbeat timer and of the timer for status reports, at the indexes [`HEARTBEAT_TIMER`] and
    /// [`STATUS_REPORT_TIMER`]. `None` for a timer that is not set.
    timers: [Option<Timestamp>; 2],
}

impl SimulatedNode {
    /// Returns the address and the container timings of the node.
    fn simulated_host(&self, default_timings: ContainerTimings) -> SimulatedHost {
        SimulatedHost {
            address: node::host_address(self.number),
            timings: self.behaviour.timings(default_timings),
        }
    }
}

/// A pod of the fleet, with the state of its timer and API call.
struct SimulatedPodEntry {
    pod: SimulatedPod,
    /// Whether an API call for the pod is in flight. No further actions of the pod are executed until the call
    /// completes.
    is_call_in_flight: bool,
    /// Time at which the next actions of the pod are due, or `None` if no timer is set.
    timer: Option<Timestamp>,
}

/// What a timer is for, with the UID of the pod or the name of the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum TimerKey {
    /// The next actions of a pod.
    Pod(Arc<str>),
    /// The next heartbeat of a node.
    Heartbeat(Arc<str>),
    /// The next status report of a node.
    Report(Arc<str>),
}

/// An API call in a queue.
struct QueuedCall {
    key: CallKey,
    request: Request<Vec<u8>>,
}

/// What an API call is for, with the UID of the pod or the name of the node.
#[derive(Debug, Clone)]
enum CallKey {
    /// Report the status of a pod, or delete the pod.
    Pod(Arc<str>),
    /// Renew the Lease of a node.
    LeaseRenewal(Arc<str>),
    /// Create the Lease of a node.
    LeaseCreation(Arc<str>),
    /// Report the status of a node.
    NodeReport(Arc<str>),
    /// Set the labels and the pod CIDR of a node that another client created.
    NodeAdoption(Arc<str>),
    /// Delete the Node object of a node with the fault `vanish`.
    NodeDeletion(Arc<str>),
    /// List the pods of a node.
    PodList(Arc<str>),
}

/// A completed API call and its result.
struct CompletedCall {
    key: CallKey,
    result: kube::Result<CallResponse>,
}

/// The response to an API call.
enum CallResponse {
    /// The resourceVersion of the written object.
    Written(u64),
    /// The listed pods of a node.
    Pods(Vec<wire::Pod>),
}

impl FleetRunner {
    pub(super) fn new(client: Client, options: FleetOptions, clock: FleetClock) -> Self {
        Self {
            client,
            options,
            clock,
            nodes: HashMap::new(),
            pods: HashMap::new(),
            timers: BTreeSet::new(),
            heartbeat_queue: VecDeque::new(),
            call_queue: VecDeque::new(),
            last_preferred_heartbeat: false,
            calls: JoinSet::new(),
            listed_nodes: HashSet::new(),
            listed_pods: HashSet::new(),
        }
    }

    /// Runs the watches, timers and calls of the fleet. Returns only if a watch ends, which kube-rs' watches never do.
    pub(super) async fn run(&mut self) {
        let fleet = format!("{FLEET_LABEL}={}", self.options.fleet);
        let nodes = Api::<wire::Node>::all(self.client.clone());
        let nodes = watcher(nodes, watcher::Config::default().labels(&fleet)).default_backoff();
        let mut nodes = pin!(nodes);
        // Pods are listed after the nodes are known; for nodes that appear later, node by node.
        loop {
            match nodes.try_next().await {
                Ok(Some(event)) => {
                    let is_last = matches!(event, watcher::Event::InitDone);
                    self.handle_node_event(event, false);
                    if is_last {
                        break;
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(error = %format_error_chain(&error), "cannot list the nodes, retrying")
                }
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
                    Ok(done) => self.handle_call_completion(done),
                    Err(error) => tracing::error!(%error, "a call panicked"),
                },
                event = pods.try_next() => match event {
                    Ok(Some(event)) => self.handle_pod_event(event),
                    Ok(None) => return,
                    Err(error) => tracing::warn!(error = %format_error_chain(&error), "the watch of pods failed; restarting it"),
                },
                event = nodes.try_next() => match event {
                    Ok(Some(event)) => self.handle_node_event(event, true),
                    Ok(None) => return,
                    Err(error) => tracing::warn!(error = %format_error_chain(&error), "the watch of nodes failed; restarting it"),
                },
                () = timer => self.fire_timers(),
            }
        }
    }

    /// Starts queued calls, at most [`CONCURRENT_CALLS_MAX`] at a time.
    fn start_calls(&mut self) {
        while self.calls.len() < CONCURRENT_CALLS_MAX {
            let Some(task) = self.next_call() else { return };
            let client = self.client.clone();
            self.calls.spawn(async move {
                let QueuedCall { key, request } = task;
                let result = match key {
                    CallKey::PodList(_) => {
                        let list: kube::Result<kube::core::ObjectList<wire::Pod>> =
                            client.request(request).await;
                        list.map(|it| CallResponse::Pods(it.items))
                    }
                    // The response to a delete is the object or a Status.
                    CallKey::NodeDeletion(_) => {
                        client.request::<IgnoredAny>(request).await.map(|_| CallResponse::Written(0))
                    }
                    _ => send_write_request(&client, request).await.map(CallResponse::Written),
                };
                CompletedCall { key, result }
            });
        }
    }

    /// Takes the next call, alternately from the two queues. Returns `None` if both queues are empty.
    fn next_call(&mut self) -> Option<QueuedCall> {
        self.last_preferred_heartbeat = !self.last_preferred_heartbeat;
        let (mut one, mut other) = (&mut self.heartbeat_queue, &mut self.call_queue);
        if !self.last_preferred_heartbeat {
            (one, other) = (other, one);
        }
        one.pop_front().or_else(|| other.pop_front())
    }

    /// Returns the current time. If the wall clock was changed, all timers are shifted by the same amount.
    fn now(&mut self) -> Timestamp {
        let (now, by) = self.clock.read_and_detect_step();
        if !by.is_zero() {
            tracing::warn!(
                seconds = by.as_secs(),
                "the wall clock was changed; the timers of simulated nodes are adjusted"
            );
            self.shift_timers(by);
        }
        now
    }

    /// Shifts all timers by a change of the wall clock.
    ///
    /// Rule: a change of the wall clock neither delays nor advances heartbeats, reports or pods, because waits follow
    /// the monotonic clock.
    fn shift_timers(&mut self, by: SignedDuration) {
        let timers = std::mem::take(&mut self.timers);
        self.timers = timers.into_iter().map(|(at, key)| (shift_timestamp(at, by), key)).collect();
        for node in self.nodes.values_mut() {
            let times = node.timers.iter_mut().chain([&mut node.last_reported_at]);
            times.flatten().for_each(|it| *it = shift_timestamp(*it, by));
        }
        for entry in self.pods.values_mut() {
            entry.timer = entry.timer.map(|it| shift_timestamp(it, by));
            entry.pod.adjust_clock(by);
        }
    }

    /// Handles all timers that are due.
    fn fire_timers(&mut self) {
        let now = self.now();
        while let Some((at, _)) = self.timers.first()
            && *at <= now
            && let Some((_, key)) = self.timers.pop_first()
        {
            match key {
                TimerKey::Pod(uid) => {
                    if let Some(entry) = self.pods.get_mut(&uid) {
                        entry.timer = None;
                    }
                    self.step_pod(&uid, now);
                }
                TimerKey::Heartbeat(name) => {
                    if let Some(node) = self.nodes.get_mut(&name) {
                        node.timers[HEARTBEAT_TIMER] = None;
                        if node.behaviour.is_connected() {
                            self.heartbeat_queue.push_back(heartbeat_call(&name, node, now));
                        } else {
                            self.set_node_timer(
                                &name,
                                HEARTBEAT_TIMER,
                                add_duration(now, HEARTBEAT_INTERVAL),
                            );
                        }
                    }
                }
                TimerKey::Report(name) => {
                    if let Some(node) = self.nodes.get_mut(&name) {
                        node.timers[STATUS_REPORT_TIMER] = None;
                        self.report_node(&name, now);
                    }
                }
            }
        }
    }

    /// Sets a timer of a node. `which` is [`HEARTBEAT_TIMER`] or [`STATUS_REPORT_TIMER`].
    fn set_node_timer(&mut self, name: &Arc<str>, which: usize, at: Timestamp) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let key = |it: Arc<str>| {
            if which == HEARTBEAT_TIMER { TimerKey::Heartbeat(it) } else { TimerKey::Report(it) }
        };
        if let Some(before) = node.timers[which].replace(at) {
            self.timers.remove(&(before, key(name.clone())));
        }
        self.timers.insert((at, key(name.clone())));
    }

    /// Handles an event of the node watch. `pods_are_listed` is false only during the first list of nodes, before the
    /// pod watch starts. Otherwise the pods of a new node are listed separately.
    fn handle_node_event(&mut self, event: watcher::Event<wire::Node>, pods_are_listed: bool) {
        match event {
            watcher::Event::Init => self.listed_nodes.clear(),
            watcher::Event::InitApply(node) => {
                self.listed_nodes.insert(node.name_any().into());
                self.apply_node(&node, pods_are_listed);
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed_nodes);
                let removed: Vec<_> = self.nodes.keys().filter(|it| !listed.contains(*it)).cloned().collect();
                removed.iter().for_each(|it| self.remove_node(it));
            }
            watcher::Event::Apply(node) => self.apply_node(&node, pods_are_listed),
            watcher::Event::Delete(node) => self.remove_node(node.name_any().as_str()),
        }
    }

    /// Adds a new node to the fleet. If the fleet already has the node, applies the changes of the node. A Node with
    /// another UID is a new node. If `pods_are_listed` is true, the pods of a new node are listed separately.
    fn apply_node(&mut self, object: &wire::Node, pods_are_listed: bool) {
        let now = self.now();
        let name: Arc<str> = object.name_any().into();
        let uid = object.uid().unwrap_or_default().into_boxed_str();
        if self.nodes.get(&name).is_some_and(|it| it.uid != uid) {
            self.remove_node(&name);
        }
        let behaviour = NodeBehaviour::read(object.annotations(), &mut |error| {
            tracing::warn!(node = &*name, error, "ignoring an invalid annotation");
        });
        let shown = object.conditions.clone();
        if let Some(node) = self.nodes.get_mut(&name) {
            let before = std::mem::replace(&mut node.behaviour, behaviour);
            node.conditions = shown;
            if before != node.behaviour {
                self.apply_behaviour(&name, now);
            }
        } else {
            let number = node::node_number(object).unwrap_or_else(|| self.assign_number(&name));
            let node = SimulatedNode {
                uid,
                number,
                behaviour,
                conditions: shown,
                has_lease: false,
                last_reported_at: None,
                pods: BTreeSet::new(),
                addresses: PodAddressPool::new(number),
                timers: [None; 2],
            };
            self.nodes.insert(name.clone(), node);
            // The first heartbeat creates the lease and is due immediately.
            self.set_node_timer(&name, HEARTBEAT_TIMER, now);
            self.set_node_timer(
                &name,
                STATUS_REPORT_TIMER,
                add_duration(now, REPORT_INTERVAL.mul_f64(interval_offset(number))),
            );
            if pods_are_listed {
                self.call_queue.push_back(pod_list_call(&name));
            }
            self.apply_initial_behaviour(&name, now);
        }
        let node = self.nodes.get(&name).expect("the node was just added");
        if node.behaviour.is_connected()
            && !node::is_status_current(&node.behaviour, &node.conditions.parse())
        {
            self.report_node(&name, now);
        }
    }

    /// Assigns a number to a node that another client created, and queues the call that sets its labels and pod CIDR.
    /// The node's addresses are derived from the number. If no number is free, the node shares the highest one.
    fn assign_number(&mut self, name: &Arc<str>) -> u16 {
        let used: HashSet<u16> = self.nodes.values().map(|it| it.number).collect();
        let number = (1..node::NODES_MAX).find(|it| !used.contains(it)).unwrap_or(node::NODES_MAX);
        let new = NewNode {
            name: name.to_string(),
            number,
            fleet: self.options.fleet.clone(),
            ..NewNode::default()
        };
        let object = new.to_object(Timestamp::now().into());
        let patch = json!({
            "metadata": {"labels": object["metadata"]["labels"]},
            "spec": {"podCIDR": object["spec"]["podCIDR"], "podCIDRs": object["spec"]["podCIDRs"]},
        });
        let request =
            api_request(Method::PATCH, format!("{NODES_PATH}/{name}"), MERGE_PATCH_MEDIA_TYPE, &patch);
        self.call_queue.push_back(QueuedCall { key: CallKey::NodeAdoption(name.clone()), request });
        number
    }

    /// Applies the behaviour of a new node, unless it is the default.
    fn apply_initial_behaviour(&mut self, name: &Arc<str>, now: Timestamp) {
        if self.nodes.get(name).is_some_and(|it| it.behaviour != NodeBehaviour::default()) {
            self.apply_behaviour(name, now);
        }
    }

    /// Applies a changed behaviour to the node and its pods. Deletes the Node of a node with the fault `vanish`.
    fn apply_behaviour(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(node) = self.nodes.get(name) else { return };
        if node.behaviour.has_fault(NodeFault::Vanish) {
            let request =
                api_request(Method::DELETE, format!("{NODES_PATH}/{name}"), JSON_MEDIA_TYPE, &json!({}));
            self.call_queue.push_back(QueuedCall { key: CallKey::NodeDeletion(name.clone()), request });
            return;
        }
        if node.behaviour.is_connected() {
            self.report_node(name, now);
            self.set_node_timer(name, HEARTBEAT_TIMER, now);
        }
        let pods: Vec<_> =
            self.nodes.get(name).map(|it| it.pods.iter().cloned().collect()).unwrap_or_default();
        for uid in pods {
            self.step_pod(&uid, now);
        }
    }

    /// Queues a report of the node's status if the node is connected. If the last report was less than a second ago,
    /// sets the timer for a later report instead.
    fn report_node(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        if let Some(reported) = node.last_reported_at
            && now < add_duration(reported, RETRY_DELAY)
        {
            return self.set_node_timer(name, STATUS_REPORT_TIMER, add_duration(reported, RETRY_DELAY));
        }
        if node.behaviour.is_connected() {
            node.last_reported_at = Some(now);
            let current = node.conditions.parse();
            let status = node::node_status(name, node.number, &node.behaviour, &current, now.into());
            let request = node_status_request(name, &status);
            self.heartbeat_queue.push_back(QueuedCall { key: CallKey::NodeReport(name.clone()), request });
        }
        self.set_node_timer(name, STATUS_REPORT_TIMER, add_duration(now, REPORT_INTERVAL));
    }

    /// Removes a node and its pods from the simulation.
    fn remove_node(&mut self, name: &str) {
        let Some((name, node)) = self.nodes.remove_entry(name) else { return };
        for uid in node.pods {
            self.remove_pod_entry(&uid);
        }
        let [heartbeat, report] = node.timers;
        let heartbeat = heartbeat.map(|at| (at, TimerKey::Heartbeat(name.clone())));
        let report = report.map(|at| (at, TimerKey::Report(name.clone())));
        heartbeat.into_iter().chain(report).for_each(|it| {
            self.timers.remove(&it);
        });
    }

    /// Handles an event of the pod watch.
    fn handle_pod_event(&mut self, event: watcher::Event<wire::Pod>) {
        match event {
            watcher::Event::Init => self.listed_pods.clear(),
            watcher::Event::InitApply(pod) => {
                self.listed_pods.insert(pod.uid().unwrap_or_default().into());
                self.apply_pod(pod);
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed_pods);
                let removed: Vec<_> = self.pods.keys().filter(|it| !listed.contains(*it)).cloned().collect();
                removed.iter().for_each(|it| self.remove_pod(it));
            }
            watcher::Event::Apply(pod) => self.apply_pod(pod),
            watcher::Event::Delete(pod) => self.remove_pod(&pod.uid().unwrap_or_default()),
        }
    }

    /// Adds a new pod to its node. If the fleet already has the pod, applies the changes of the pod. A pod on a node
    /// outside the fleet is ignored.
    fn apply_pod(&mut self, object: wire::Pod) {
        let now = self.now();
        let uid: Arc<str> = match object.metadata.uid.as_deref() {
            Some(uid) => uid.into(),
            None => return,
        };
        if let Some(entry) = self.pods.get_mut(&uid) {
            let Some(node) = self.nodes.get(&entry.pod.node) else { return };
            entry.pod.apply_event(object, node.simulated_host(self.options.timings), now);
        } else {
            let Some(node) = object.node_name.as_deref().and_then(|it| self.nodes.get_mut(it)) else {
                return;
            };
            let host = node.simulated_host(self.options.timings);
            let name = object.name_any();
            let pod = SimulatedPod::new(&object, host, now, &mut |error| {
                tracing::warn!(pod = name, error, "ignoring an invalid part of a pod");
            });
            let Some(mut pod) = pod else { return };
            if !pod.on_host_network {
                pod.address = Some(node.addresses.allocate_address(pod.address));
            }
            node.pods.insert(uid.clone());
            self.pods.insert(uid.clone(), SimulatedPodEntry { pod, is_call_in_flight: false, timer: None });
        }
        self.step_pod(&uid, now);
    }

    /// Executes the actions of a pod that are due, queues the resulting API call, and sets the timer for the next
    /// actions. Does nothing while a call of the pod is in flight, or while its node runs no containers.
    fn step_pod(&mut self, uid: &Arc<str>, now: Timestamp) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let Some(node) = self.nodes.get(&entry.pod.node) else { return };
        if entry.is_call_in_flight || !node.behaviour.runs_containers() {
            return;
        }
        let step = entry.pod.step(node.simulated_host(self.options.timings), now);
        if let Some(before) = entry.timer.take() {
            self.timers.remove(&(before, TimerKey::Pod(uid.clone())));
        }
        if let Some(at) = step.wake_at {
            entry.timer = Some(at);
            self.timers.insert((at, TimerKey::Pod(uid.clone())));
        }
        if let Some(call) = step.call {
            entry.is_call_in_flight = true;
            let request = pod_call_request(&entry.pod, call);
            self.call_queue.push_back(QueuedCall { key: CallKey::Pod(uid.clone()), request });
        }
    }

    /// Removes a deleted pod and releases its address.
    fn remove_pod(&mut self, uid: &str) {
        let Some(entry) = self.remove_pod_entry(uid) else { return };
        if let Some(node) = self.nodes.get_mut(&entry.pod.node) {
            node.pods.remove(uid);
            node.addresses.release_address(entry.pod.address);
        }
    }

    /// Removes a pod and its timer. Returns the pod, or `None` if it is not in the fleet.
    fn remove_pod_entry(&mut self, uid: &str) -> Option<SimulatedPodEntry> {
        let entry = self.pods.remove(uid)?;
        if let Some(at) = entry.timer {
            self.timers.remove(&(at, TimerKey::Pod(entry.pod.uid.clone())));
        }
        Some(entry)
    }

    /// Starts the periodic renewal of a Lease that was created, or that already existed. Nodes renew their Leases at
    /// different offsets within [`HEARTBEAT_INTERVAL`].
    fn start_lease_renewal(&mut self, name: &Arc<str>, now: Timestamp) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        node.has_lease = true;
        let due = add_duration(now, HEARTBEAT_INTERVAL.mul_f64(interval_offset(node.number)));
        self.set_node_timer(name, HEARTBEAT_TIMER, due);
    }

    /// Handles a completed API call, successful or failed.
    fn handle_call_completion(&mut self, done: CompletedCall) {
        let now = self.now();
        let CompletedCall { key, result } = done;
        let failed = match &result {
            Ok(_) => None,
            Err(kube::Error::Api(refused)) if refused.code < 500 && refused.code != 429 => Some(refused.code),
            Err(_) => Some(0),
        };
        match (&key, result) {
            (CallKey::PodList(_), Ok(CallResponse::Pods(pods))) => {
                pods.into_iter().for_each(|it| self.apply_pod(it))
            }
            (CallKey::Pod(uid), Ok(CallResponse::Written(version))) => {
                if let Some(entry) = self.pods.get_mut(uid)
                    && let Some(node) = self.nodes.get(&entry.pod.node)
                {
                    entry.is_call_in_flight = false;
                    entry.pod.handle_call_success(version, node.simulated_host(self.options.timings), now);
                }
                self.step_pod(uid, now);
            }
            (CallKey::LeaseCreation(name), Ok(_)) => self.start_lease_renewal(name, now),
            (CallKey::LeaseRenewal(name), Ok(_)) => {
                self.set_node_timer(name, HEARTBEAT_TIMER, add_duration(now, HEARTBEAT_INTERVAL))
            }
            (_, Ok(_)) => {}
            (_, Err(error)) => self.handle_call_failure(key, failed.unwrap_or_default(), &error, now),
        }
    }

    /// Handles a failed API call. `code` is the HTTP status code, or 0 for a temporary failure.
    fn handle_call_failure(&mut self, key: CallKey, code: u16, error: &kube::Error, now: Timestamp) {
        let error = format_error_chain(error);
        match (key, code) {
            // The object is gone or was replaced; the watch will show it.
            (
                CallKey::Pod(_)
                | CallKey::NodeReport(_)
                | CallKey::NodeDeletion(_)
                | CallKey::NodeAdoption(_),
                404 | 409,
            ) => {}
            (CallKey::Pod(uid), code) => {
                tracing::warn!(uid = &*uid, %error, "cannot write the status of a pod, retrying");
                let Some(entry) = self.pods.get_mut(&uid) else { return };
                let Some(node) = self.nodes.get(&entry.pod.node) else { return };
                entry.is_call_in_flight = false;
                entry.pod.handle_call_failure(node.simulated_host(self.options.timings), now);
                let wait = if code == 0 { RETRY_DELAY } else { REPORT_INTERVAL };
                let at = add_duration(now, wait);
                if let Some(before) = entry.timer.replace(at) {
                    self.timers.remove(&(before, TimerKey::Pod(uid.clone())));
                }
                self.timers.insert((at, TimerKey::Pod(uid)));
            }
            // The lease of an earlier process exists.
            (CallKey::LeaseCreation(name), 409) => self.start_lease_renewal(&name, now),
            (CallKey::LeaseRenewal(name), 404) => {
                if let Some(node) = self.nodes.get_mut(&name) {
                    node.has_lease = false;
                }
                self.set_node_timer(&name, HEARTBEAT_TIMER, now);
            }
            (CallKey::LeaseRenewal(name) | CallKey::LeaseCreation(name), _) => {
                tracing::warn!(node = &*name, %error, "a heartbeat failed, retrying");
                self.set_node_timer(&name, HEARTBEAT_TIMER, add_duration(now, RETRY_DELAY));
            }
            (CallKey::NodeReport(name), _) => {
                tracing::warn!(node = &*name, %error, "cannot write the status of a node, retrying");
                self.set_node_timer(&name, STATUS_REPORT_TIMER, add_duration(now, RETRY_DELAY));
            }
            (CallKey::PodList(name), _) => {
                tracing::warn!(node = &*name, %error, "cannot list the pods of a node, retrying");
                self.call_queue.push_back(pod_list_call(&name));
            }
            (CallKey::NodeDeletion(name) | CallKey::NodeAdoption(name), _) => {
                tracing::warn!(node = &*name, %error, "cannot update or delete a node");
            }
        }
    }
}

/// Index of the heartbeat timer in `SimulatedNode::timers`.
const HEARTBEAT_TIMER: usize = 0;
/// Index of the timer for node status reports in `SimulatedNode::timers`.
const STATUS_REPORT_TIMER: usize = 1;

/// Returns the fraction of an interval, from 0 to 1, after which the node with this number first acts. The fractions
/// come from multiples of the golden ratio, so they are evenly spread for any number of nodes.
fn interval_offset(number: u16) -> f64 {
    (f64::from(number) * 0.618_033_988_749_895).fract()
}

/// Returns the call that renews the Lease of a node, or that creates the Lease if it was not created yet.
fn heartbeat_call(name: &Arc<str>, node: &SimulatedNode, now: Timestamp) -> QueuedCall {
    let lease = node_lease(name, Some(&Text::from(&*node.uid)), now.into());
    if node.has_lease {
        let patch = lease_renewal_patch(&lease);
        let request =
            api_request(Method::PATCH, format!("{LEASES_PATH}/{name}"), MERGE_PATCH_MEDIA_TYPE, &patch);
        return QueuedCall { key: CallKey::LeaseRenewal(name.clone()), request };
    }
    let request = api_request(Method::POST, LEASES_PATH.to_owned(), JSON_MEDIA_TYPE, &lease);
    QueuedCall { key: CallKey::LeaseCreation(name.clone()), request }
}

/// Adds a duration to a timestamp. The sum saturates at the maximum timestamp.
fn add_duration(at: Timestamp, span: Duration) -> Timestamp {
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// Returns the call that lists the pods of a node.
fn pod_list_call(node: &Arc<str>) -> QueuedCall {
    let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
    let request = Request::get(path).body(Vec::new()).expect("node names are valid in a path");
    QueuedCall { key: CallKey::PodList(node.clone()), request }
}

/// Builds the request for an API call that a pod needs.
fn pod_call_request(pod: &SimulatedPod, call: PodCall) -> Request<Vec<u8>> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
    match call {
        PodCall::Report(patch) => {
            api_request(Method::PATCH, format!("{path}/status"), STRATEGIC_MERGE_PATCH_MEDIA_TYPE, &patch)
        }
        PodCall::Delete => {
            let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}});
            api_request(Method::DELETE, path, JSON_MEDIA_TYPE, &options)
        }
    }
}
