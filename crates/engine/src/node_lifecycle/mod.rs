//! The node lifecycle controller: missing heartbeats set conditions, conditions add taints, and taints evict pods.
//!
//! [`NodeLifecycle`] stores the nodes, the time of the last heartbeat of each node, and the pods on each node. The
//! conditions of a node without heartbeats become Unknown ([`heartbeat_observation`]). Conditions add taints
//! ([`taints`]), at a limited rate per zone ([`zones`]). `NoExecute` taints evict the pods that do not tolerate them
//! ([`taint_eviction`]).
//!
//! A heartbeat is any change of the renew time of a node's Lease, or of the heartbeat time in the node's status. The
//! time of a heartbeat is read from the clock of this process. Timestamps of a node are only compared with earlier
//! timestamps of the same node. A delayed watch must not make a node Unknown. So the node's Lease is read from the API
//! server before the node is marked Unknown, and the Node is patched with its `resourceVersion` as precondition.
//! Upstream: `pkg/controller/nodelifecycle`, `pkg/controller/tainteviction`.

/// The calls of the node lifecycle controller and their API requests.
mod call;
/// Decodes the objects that the node lifecycle controller watches.
mod decode;
/// Tracks since when heartbeats have been observed without a gap.
mod heartbeat_observation;
/// Computes when `NoExecute` taints evict a pod.
mod taint_eviction;
/// Computes the taints that a node gets for its conditions.
mod taints;
/// Limits the rate at which the nodes of a zone are tainted `NoExecute`.
mod zones;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

pub use call::NodeLifecycleCall;
pub use decode::{
    Conditions, Lease, Node, NodeConditionType, NodeLifecycleObject, Pod, Taint, TimedToleration,
};

use muster_api::core_v1::ConditionStatus;
use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::taints::TaintEffect;
use muster_api::text::Text;
use muster_api::time::Time;

use self::decode::LEASE_NAMESPACE;
use self::heartbeat_observation::HeartbeatObservation;
use self::taint_eviction::NoExecuteTaint;
use self::zones::Zones;
use crate::controller::retry::{Attempt, NextAttempt};
use crate::controller::{
    self, CallError, Controller, DecodedObject as _, Event, EventRecord, FactStore, KubeEvent, Malformed,
    ObjectReference, Outcome, Reconcile, Request, Requeue, Watch,
};

/// Configuration of the node lifecycle controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Time without a heartbeat after which the conditions of a node are set to Unknown. Upstream:
    /// `node-monitor-grace-period`.
    pub node_monitor_grace_period: Duration,
    /// Time without a heartbeat after which a new node, which has no condition `Ready` yet, gets `Ready=Unknown`.
    /// Upstream: `node-startup-grace-period`.
    pub node_startup_grace_period: Duration,
    /// Interval at which a healthy node sends heartbeats.
    pub heartbeat_interval: Duration,
    /// Minimum time between adding the `NoExecute` taint, which evicts pods, to two nodes of the same zone: the inverse
    /// of upstream's `node-eviction-rate`.
    pub eviction_interval: Duration,
    /// Minimum time between adding the `NoExecute` taint to two nodes of a large zone that is partly down: the inverse
    /// of upstream's `secondary-node-eviction-rate`.
    pub secondary_eviction_interval: Duration,
    /// Percentage of not ready nodes from which a zone counts as partly down. Such a zone also has more than two not
    /// ready nodes, and at least one ready node. Upstream: `unhealthy-zone-threshold`.
    pub unhealthy_zone_percent: usize,
    /// Number of nodes above which a zone is large. If a large zone is partly down, its nodes still get the `NoExecute`
    /// taint, at [`Self::secondary_eviction_interval`]. In any other zone that is partly down, no node gets the taint.
    /// Upstream: `large-cluster-size-threshold`.
    pub large_zone_threshold: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node_monitor_grace_period: Duration::from_secs(50),
            node_startup_grace_period: Duration::from_secs(60),
            heartbeat_interval: Duration::from_secs(10),
            eviction_interval: Duration::from_secs(10),
            secondary_eviction_interval: Duration::from_secs(100),
            unhealthy_zone_percent: 55,
            large_zone_threshold: 50,
        }
    }
}

/// The key of an entry in the work queue: the gap check, a zone, a node or a pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// The periodic check whether this controller was paused, so that it may have missed heartbeats.
    GapCheck,
    /// The zone with this name. Its reconcile chooses the next node that gets the `NoExecute` taint.
    Zone(Text),
    /// The node with this name.
    Node(Text),
    Pod(ObjectKey),
}

/// The node lifecycle controller: all nodes, their heartbeats, and the pods on them.
#[derive(Debug, Default)]
pub struct NodeLifecycle {
    config: Config,
    nodes: BTreeMap<Text, TrackedNode>,
    /// The `renewTime` of each node Lease, by node name; `None` for a Lease without a `renewTime`. The Node itself may
    /// not exist yet.
    renew_times: BTreeMap<Text, Option<Text>>,
    pods: BTreeMap<ObjectKey, PodState>,
    /// Keys of the pods on each node, by node name.
    pods_by_node: BTreeMap<Text, BTreeSet<ObjectKey>>,
    zones: Zones,
    /// Tracks since when heartbeats have been observed without a gap.
    observation: HeartbeatObservation,
    /// Whether the clock was set back, so that every waiting key is to be reconciled now.
    clock_was_set_back: bool,
}

/// A node, its last heartbeat, and the state of the writes about it.
#[derive(Debug)]
struct TrackedNode {
    node: Arc<Node>,
    /// Time of the last heartbeat, by the clock of this process. Initially the time at which the Node was first seen.
    last_heartbeat: Time,
    /// The `last_heartbeat` that is confirmed to be the latest, because a read of the Lease from the API server found
    /// no later one. `None` before such a read, and after the API server failed to mark a node Unknown.
    confirmed_last_heartbeat: Option<Time>,
    /// Whether the last [`NodeLifecycleCall::ReadLease`] for this node failed.
    lease_read_failed: bool,
    /// Time at which each `NoExecute` taint of the node was first seen, by key and value.
    no_execute_since: BTreeMap<(Text, Text), Time>,
    /// UIDs of the pods that were marked not ready since the node became Unknown. Each pod is marked only once, because
    /// the node may still be able to report the pod as ready.
    marked_not_ready: BTreeSet<Text>,
    /// The state of the last call about the node.
    attempt: Attempt,
}

/// A pod, and the progress of its eviction.
#[derive(Debug)]
struct PodState {
    pod: Arc<Pod>,
    /// Whether a `NoExecute` taint will evict the pod at a later time, when its `tolerationSeconds` have passed.
    eviction_scheduled: bool,
    /// Whether the event `Marking for deletion Pod` was recorded. It is recorded once for each pod.
    eviction_event_recorded: bool,
    /// The state of the last call about the pod.
    attempt: Attempt,
}

/// Index of the watch of Nodes in [`Controller::watches`].
const NODE_KIND: usize = 0;
/// Index of the watch of Leases in [`Controller::watches`].
const LEASE_KIND: usize = 1;
/// Index of the watch of pods in [`Controller::watches`].
const POD_KIND: usize = 2;

/// Returns the watch of Nodes.
fn node_watch() -> Watch {
    Watch::whole_objects("", "v1", "Node", "nodes", false)
}

/// Returns the watch of Leases.
fn lease_watch() -> Watch {
    Watch::whole_objects("coordination.k8s.io", "v1", "Lease", "leases", true)
}

/// Returns the watch of pods.
fn pod_watch() -> Watch {
    Watch::whole_objects("", "v1", "Pod", "pods", true)
}

impl Controller for NodeLifecycle {
    type DecodedObject = NodeLifecycleObject;
    type Key = Key;
    type Call = NodeLifecycleCall;

    fn watches(&self) -> Vec<Watch> {
        [node_watch(), lease_watch(), pod_watch()].into()
    }

    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<NodeLifecycleObject, Malformed> {
        Ok(match &*watch.resource.kind {
            "Node" => NodeLifecycleObject::Node(decode::decode_node(object, shared)?),
            "Lease" => NodeLifecycleObject::Lease(decode::decode_lease(object, shared)?),
            _ => NodeLifecycleObject::Pod(decode::decode_pod(object, shared)?),
        })
    }

    fn apply(&mut self, event: Event<NodeLifecycleObject>, now: Time) -> Vec<Key> {
        self.check_gap(now);
        let mut keys = Vec::new();
        let were_all_down = self.zones.are_all_down();
        let listed = if let Event::Listed { kind, .. } = &event { Some(*kind) } else { None };
        // Heartbeats since the last list may have been missed.
        if listed.is_some_and(|it| it != POD_KIND) {
            self.observation.restart_observation(now);
        }
        controller::apply_event(self, event, now, &mut keys);
        if listed.is_some() {
            keys.push(Key::GapCheck);
        }
        let are_all_down = self.zones.are_all_down();
        if were_all_down && !are_all_down {
            self.observation.restart_observation(now);
        }
        if !were_all_down && are_all_down {
            self.zones.requeue_all();
        }
        if were_all_down != are_all_down || core::mem::take(&mut self.clock_was_set_back) {
            keys.extend(self.nodes.keys().cloned().map(Key::Node));
            keys.extend(self.nodes.values().map(|it| Key::Zone(it.node.zone.clone())));
            let later = self.pods.iter().filter(|(_, it)| it.eviction_scheduled);
            keys.extend(later.map(|(key, _)| Key::Pod(key.clone())));
        }
        keys
    }

    fn reconcile(&mut self, key: &Key, now: Time) -> Reconcile<NodeLifecycleCall> {
        self.check_gap(now);
        match key {
            Key::GapCheck => {
                let wake_at = Some(
                    now + HeartbeatObservation::gap_check_interval(self.config.node_monitor_grace_period),
                );
                Reconcile { wake_at, ..Reconcile::default() }
            }
            Key::Zone(zone) => self.reconcile_zone(zone, now),
            Key::Node(name) => self.reconcile_node(name, now),
            Key::Pod(key) => self.reconcile_pod(key, now),
        }
    }

    fn request(call: &NodeLifecycleCall) -> Request {
        call::request(call)
    }

    fn apply_outcome(&mut self, call: &NodeLifecycleCall, outcome: Outcome, now: Time) -> Requeue<Key> {
        self.check_gap(now);
        match call {
            NodeLifecycleCall::ReadLease { node, last_heartbeat } => {
                self.apply_lease_read(node, *last_heartbeat, &outcome, now)
            }
            NodeLifecycleCall::MarkUnknown { node, .. } | NodeLifecycleCall::PatchNode { node, .. } => {
                if matches!(call, NodeLifecycleCall::MarkUnknown { .. }) {
                    self.apply_mark_unknown(&node.name, &outcome, now);
                }
                let Some(state) = self.nodes.get_mut(&node.name).filter(|it| it.node.uid == node.uid) else {
                    return Requeue::default();
                };
                state.attempt.apply_outcome(node.resource_version, &outcome, now);
                let is_news = matches!(call, NodeLifecycleCall::MarkUnknown { .. })
                    && node.ready() == Some(ConditionStatus::True);
                let event = (is_news && matches!(outcome, Outcome::Done(_))).then(|| not_ready_event(node));
                Requeue { keys: [Key::Node(node.name.clone())].into(), events: event.into_iter().collect() }
            }
            NodeLifecycleCall::MarkPodNotReady { pod, .. }
            | NodeLifecycleCall::MarkDisruptionTarget { pod, .. }
            | NodeLifecycleCall::DeletePod { pod } => self.apply_pod_write(call, pod, &outcome, now),
        }
    }
}

impl FactStore for NodeLifecycle {
    type Id = ObjectKey;
    type Keys = Vec<Key>;

    fn id(fact: &NodeLifecycleObject) -> ObjectKey {
        fact.key()
    }

    fn stored_ids(&self, kind: usize) -> Vec<ObjectKey> {
        match kind {
            NODE_KIND => self.nodes.keys().map(|it| ObjectKey::new("", it.clone())).collect(),
            LEASE_KIND => {
                self.renew_times.keys().map(|it| ObjectKey::new(LEASE_NAMESPACE, it.clone())).collect()
            }
            _ => self.pods.keys().cloned().collect(),
        }
    }

    fn put(&mut self, fact: NodeLifecycleObject, now: Time, keys: &mut Vec<Key>) {
        match fact {
            NodeLifecycleObject::Node(node) => self.put_node(node, now, keys),
            NodeLifecycleObject::Lease(lease) if *lease.key.namespace == *LEASE_NAMESPACE => {
                let before = self.renew_times.insert(lease.key.name.clone(), lease.renewed.clone());
                if before.is_none_or(|it| it != lease.renewed) {
                    self.record_heartbeat(&lease.key.name, now);
                }
            }
            NodeLifecycleObject::Lease(_) => {}
            NodeLifecycleObject::Pod(pod) => self.put_pod(pod, keys),
        }
    }

    fn remove(&mut self, kind: usize, key: &ObjectKey, now: Time, keys: &mut Vec<Key>) {
        match kind {
            NODE_KIND => self.remove_node(&key.name, now, keys),
            // A deleted Lease says nothing about its node.
            LEASE_KIND if *key.namespace == *LEASE_NAMESPACE => drop(self.renew_times.remove(&key.name)),
            LEASE_KIND => {}
            _ => self.remove_pod(key),
        }
    }
}

impl NodeLifecycle {
    /// Creates a controller that has not received any objects yet.
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// Checks whether this controller was paused, or the clock was set (see [`HeartbeatObservation::check_gap`]). If
    /// the clock was set back, adjusts the stored times.
    ///
    /// Rule: after the clock was set back, times in the future are replaced by the current time, so that no grace
    /// period and no toleration becomes longer.
    fn check_gap(&mut self, now: Time) {
        if !self.observation.check_gap(self.config.node_monitor_grace_period, now) {
            return;
        }
        self.clock_was_set_back = true;
        for state in self.nodes.values_mut() {
            state.last_heartbeat = state.last_heartbeat.min(now);
            state.no_execute_since.values_mut().for_each(|it| *it = (*it).min(now));
        }
    }

    /// Applies the outcome of [`NodeLifecycleCall::MarkUnknown`] to the [`HeartbeatObservation`].
    fn apply_mark_unknown(&mut self, node: &Text, outcome: &Outcome, now: Time) {
        match outcome {
            Outcome::Done(_) => self.observation.record_write_success(now),
            Outcome::Refused(CallError::Server(_)) => {
                self.observation.record_write_failure(now);
                // Leases are read again before the next attempt.
                self.nodes.values_mut().for_each(|it| it.confirmed_last_heartbeat = None);
            }
            Outcome::Refused(_) => self.observation.record_write_rejection(node),
        }
    }

    /// Records that a node sent a heartbeat at the time `now`, in the state of the node and in the
    /// [`HeartbeatObservation`]. Does nothing if the Node does not exist.
    fn record_heartbeat(&mut self, name: &Text, now: Time) {
        if let Some(state) = self.nodes.get_mut(name) {
            state.last_heartbeat = now;
            self.observation.record_heartbeat(
                self.config.node_monitor_grace_period,
                self.config.heartbeat_interval,
                now,
            );
        }
    }

    /// Adds or updates a node, and adds to `keys` the keys to reconcile. A changed heartbeat time in the node's status
    /// counts as a heartbeat, unless the status is `Ready=Unknown`, which this controller wrote.
    fn put_node(&mut self, node: Node, now: Time, keys: &mut Vec<Key>) {
        let name = node.name.clone();
        if self.nodes.get(&name).is_some_and(|it| it.node.uid != node.uid) {
            self.remove_node(&name, now, keys);
        }
        let node = Arc::new(node);
        let Some(state) = self.nodes.get_mut(&name) else {
            self.zones.update_node(None, Some(&node), now);
            let no_execute_since =
                node.no_execute_taints().map(|it| ((it.key.clone(), it.value.clone()), now)).collect();
            keys.extend([Key::Node(name.clone()), Key::Zone(node.zone.clone())]);
            keys.extend(self.pods_by_node.get(&name).into_iter().flatten().cloned().map(Key::Pod));
            let state = TrackedNode {
                node,
                last_heartbeat: now,
                confirmed_last_heartbeat: None,
                lease_read_failed: false,
                no_execute_since,
                marked_not_ready: BTreeSet::new(),
                attempt: Attempt::None,
            };
            self.nodes.insert(name, state);
            return;
        };
        let before = core::mem::replace(&mut state.node, node.clone());
        if state.attempt != Attempt::None {
            keys.push(Key::Node(name.clone()));
        }
        if !before.is_equivalent(&node) {
            keys.extend([
                Key::Node(name.clone()),
                Key::Zone(before.zone.clone()),
                Key::Zone(node.zone.clone()),
            ]);
            if before.ready() != node.ready() || !before.no_execute_taints().eq(node.no_execute_taints()) {
                keys.extend(self.pods_by_node.get(&name).into_iter().flatten().cloned().map(Key::Pod));
            }
            let before_taints = core::mem::take(&mut state.no_execute_since);
            let names = node.no_execute_taints().map(|it| (it.key.clone(), it.value.clone()));
            let first_seen = |it: &(Text, Text)| before_taints.get(it).copied().unwrap_or(now);
            state.no_execute_since = names.map(|it| (it.clone(), first_seen(&it))).collect();
            if node.ready() != Some(ConditionStatus::Unknown) {
                state.marked_not_ready.clear();
            }
            self.zones.update_node(Some(&before), Some(&node), now);
        }
        // Ready=Unknown was written by this controller, not by the node.
        let is_written_by_node = node.ready() != Some(ConditionStatus::Unknown);
        if is_written_by_node
            && (before.heartbeat != node.heartbeat || before.ready().is_some() != node.ready().is_some())
        {
            self.record_heartbeat(&name, now);
        }
    }

    /// Removes a node, and adds its zone and its pods to `keys`.
    fn remove_node(&mut self, name: &Text, now: Time, keys: &mut Vec<Key>) {
        let Some(state) = self.nodes.remove(name) else { return };
        self.zones.update_node(Some(&state.node), None, now);
        keys.push(Key::Zone(state.node.zone.clone()));
        keys.extend(self.pods_by_node.get(name).into_iter().flatten().cloned().map(Key::Pod));
    }

    /// Adds or updates a pod. Adds the pod to `keys` in three cases: its node is Unknown or has a `NoExecute` taint,
    /// its eviction is scheduled, or the last call about it is in flight, failed, or is not visible in the watch yet.
    fn put_pod(&mut self, pod: Pod, keys: &mut Vec<Key>) {
        let key = pod.key.clone();
        if self.pods.get(&key).is_some_and(|it| it.pod.uid != pod.uid || it.pod.node != pod.node) {
            self.remove_pod(&key);
        }
        let may_evict = |it: &TrackedNode| {
            it.node.ready() == Some(ConditionStatus::Unknown) || it.node.no_execute_taints().next().is_some()
        };
        let pod = Arc::new(pod);
        let state = self.pods.entry(key.clone()).or_insert_with(|| PodState {
            pod: pod.clone(),
            eviction_scheduled: false,
            eviction_event_recorded: false,
            attempt: Attempt::None,
        });
        state.pod = pod.clone();
        if state.eviction_scheduled
            || state.attempt != Attempt::None
            || self.nodes.get(&pod.node).is_some_and(may_evict)
        {
            keys.push(Key::Pod(key.clone()));
        }
        if !pod.node.is_empty() {
            self.pods_by_node.entry(pod.node.clone()).or_default().insert(key);
        }
    }

    /// Removes a pod.
    fn remove_pod(&mut self, key: &ObjectKey) {
        let Some(PodState { pod, .. }) = self.pods.remove(key) else { return };
        if let Some(others) = self.pods_by_node.get_mut(&pod.node) {
            others.remove(key);
            if others.is_empty() {
                self.pods_by_node.remove(&pod.node);
            }
        }
        if let Some(state) = self.nodes.get_mut(&pod.node) {
            state.marked_not_ready.remove(&pod.uid);
        }
    }

    /// Reconciles the next node of the zone that may be tainted `NoExecute`, if there is one. `wake_at` of the result
    /// is the time at which the next node may be tainted.
    fn reconcile_zone(&mut self, zone: &Text, now: Time) -> Reconcile<NodeLifecycleCall> {
        let (node, wake_at) = self.zones.dequeue_node(zone, &self.config, self.observation.since(), now);
        let reconcile = node.map(|it| self.reconcile_node(&it, now)).unwrap_or_default();
        Reconcile { wake_at, ..reconcile }
    }

    /// Returns the next call about a node: read its Lease, mark it Unknown, or patch its taints and labels.
    fn reconcile_node(&mut self, name: &Text, now: Time) -> Reconcile<NodeLifecycleCall> {
        let Some(state) = self.nodes.get_mut(name) else { return Reconcile::default() };
        match state.attempt.next_attempt(state.node.resource_version, now) {
            NextAttempt::Now => {}
            NextAttempt::AfterOutcome => return Reconcile::default(),
            NextAttempt::At(at) => return Reconcile { wake_at: Some(at), ..Reconcile::default() },
        }
        let node = state.node.clone();
        let conditions = conditions_to_mark_unknown(&node);
        let lost_at =
            state.last_heartbeat.min(now).max(self.observation.since()) + grace_period(&node, &self.config);
        let call = if !conditions.is_empty() && lost_at <= now {
            if state.confirmed_last_heartbeat != Some(state.last_heartbeat) {
                Some(NodeLifecycleCall::ReadLease {
                    node: name.clone(),
                    last_heartbeat: state.last_heartbeat,
                })
            } else if self.observation.reserve_mark_attempt(name) {
                Some(NodeLifecycleCall::MarkUnknown { node, conditions, at: now })
            } else {
                let wake_at = Some(
                    now + HeartbeatObservation::gap_check_interval(self.config.node_monitor_grace_period),
                );
                return Reconcile { wake_at, ..Reconcile::default() };
            }
        } else {
            let taints = taints::desired_taints(&node, self.zones.eviction_permission(&node), now);
            let is_due = taints.is_some() || !node.alias_labels.is_empty();
            is_due.then_some(NodeLifecycleCall::PatchNode { node, taints })
        };
        match call {
            Some(call) => {
                state.attempt.begin();
                Reconcile { calls: [call].into(), ..Reconcile::default() }
            }
            None => {
                state.attempt = Attempt::None;
                let wake_at = (!conditions_to_mark_unknown(&state.node).is_empty()).then_some(lost_at);
                Reconcile { wake_at, ..Reconcile::default() }
            }
        }
    }

    /// Applies the outcome of [`NodeLifecycleCall::ReadLease`]. A renew time that the watch has not delivered yet counts as a
    /// heartbeat, and so does the first success after a failed read. `last_heartbeat` is the time of the node's last
    /// heartbeat when the call was made.
    fn apply_lease_read(
        &mut self,
        name: &Text,
        last_heartbeat: Time,
        outcome: &Outcome,
        now: Time,
    ) -> Requeue<Key> {
        let Some(state) = self.nodes.get_mut(name) else { return Requeue::default() };
        let read = |answer: &Vec<u8>| decode::decode_lease(answer, &mut Interner::default()).ok();
        let renewed = match outcome {
            Outcome::Done(answer) => match read(answer) {
                Some(lease) => Ok(lease.renewed),
                None => Err(&CallError::NoAnswer),
            },
            Outcome::Refused(CallError::NotFound) => Ok(None),
            Outcome::Refused(refusal) => Err(refusal),
        };
        match renewed {
            // While the API server did not answer us, it could not answer the node either.
            Ok(_) if core::mem::take(&mut state.lease_read_failed) => state.last_heartbeat = now,
            // The watch is delayed.
            Ok(Some(ref renewed)) if self.renew_times.get(name) != Some(&Some(renewed.clone())) => {
                state.last_heartbeat = now
            }
            Ok(_) => state.confirmed_last_heartbeat = Some(last_heartbeat),
            Err(_) => state.lease_read_failed = true,
        }
        match renewed {
            Ok(_) => state.attempt = Attempt::None,
            Err(refusal) => state.attempt.record_failure(refusal, now),
        }
        Vec::from([Key::Node(name.clone())]).into()
    }

    /// Returns the next call about a pod. A pod is evicted in two calls: the first marks it, the second deletes it. A
    /// pod on an Unknown node is marked not ready.
    fn reconcile_pod(&mut self, key: &ObjectKey, now: Time) -> Reconcile<NodeLifecycleCall> {
        let Some(state) = self.pods.get_mut(key) else { return Reconcile::default() };
        let node_state = self.nodes.get(&state.pod.node);
        let taints: Vec<NoExecuteTaint> = node_state
            .map(|it| {
                no_execute_taints(it, self.observation.since(), self.config.node_monitor_grace_period)
                    .collect()
            })
            .unwrap_or_default();
        let pod = state.pod.clone();
        let mut reconcile = Reconcile::default();
        let eviction_time = if pod.deleting { None } else { taint_eviction::eviction_time(&pod, &taints) };
        let eviction_scheduled = eviction_time.is_some_and(|it| now < it);
        if state.eviction_scheduled && eviction_time.is_none() && !pod.deleting && node_state.is_some() {
            reconcile.events.push(pod_event(
                &pod,
                KubeEvent::normal(EVICTION_EVENT_REASON, format!("Cancelling deletion of Pod {key}")),
            ));
        }
        state.eviction_scheduled = eviction_scheduled;
        reconcile.wake_at = eviction_time.filter(|_| eviction_scheduled);
        match state.attempt.next_attempt(pod.resource_version, now) {
            NextAttempt::Now => {}
            NextAttempt::AfterOutcome => return Reconcile { wake_at: None, ..reconcile },
            NextAttempt::At(at) => return Reconcile { wake_at: Some(at), ..reconcile },
        }
        let is_unready = |it: &TrackedNode| {
            it.node.ready() == Some(ConditionStatus::Unknown) && !it.marked_not_ready.contains(&pod.uid)
        };
        let call = if eviction_time.is_some() && !eviction_scheduled {
            if !core::mem::replace(&mut state.eviction_event_recorded, true) {
                let message = format!("Marking for deletion Pod {key}");
                reconcile.events.push(pod_event(&pod, KubeEvent::normal(EVICTION_EVENT_REASON, message)));
            }
            Some(if pod.is_disruption_target {
                NodeLifecycleCall::DeletePod { pod }
            } else {
                NodeLifecycleCall::MarkDisruptionTarget { pod, at: now }
            })
        } else if pod.ready && node_state.is_some_and(is_unready) {
            Some(NodeLifecycleCall::MarkPodNotReady { pod, at: now })
        } else {
            None
        };
        match call {
            Some(call) => {
                state.attempt.begin();
                reconcile.calls.push(call);
                reconcile.wake_at = None;
            }
            None => state.attempt = Attempt::None,
        }
        reconcile
    }

    /// Applies the outcome of a call that marked or deleted a pod.
    fn apply_pod_write(
        &mut self,
        call: &NodeLifecycleCall,
        pod: &Arc<Pod>,
        outcome: &Outcome,
        now: Time,
    ) -> Requeue<Key> {
        let Some(state) = self.pods.get_mut(&pod.key).filter(|it| it.pod.uid == pod.uid) else {
            return Requeue::default();
        };
        let mut next = Requeue { keys: [Key::Pod(pod.key.clone())].into(), events: Vec::new() };
        state.attempt.apply_outcome(pod.resource_version, outcome, now);
        let is_done = matches!(outcome, Outcome::Done(_));
        match call {
            // The deletion does not wait for the watch to show the condition.
            NodeLifecycleCall::MarkDisruptionTarget { .. } if is_done => {
                state.pod = Arc::new(Pod { is_disruption_target: true, ..(*state.pod).clone() });
                state.attempt = Attempt::None;
            }
            NodeLifecycleCall::MarkPodNotReady { .. } if is_done => {
                if let Some(node_state) = self.nodes.get_mut(&pod.node) {
                    node_state.marked_not_ready.insert(pod.uid.clone());
                }
                let event = KubeEvent::warning(NOT_READY_EVENT_REASON, "Node is not ready".into());
                next.events.push(pod_event(pod, event));
            }
            _ => {}
        }
        next
    }
}

/// Reason of the events about the eviction of a pod. Upstream: `emitPodDeletionEvent`.
const EVICTION_EVENT_REASON: &str = "TaintManagerEviction";
/// Reason of the events about a node that became Unknown and about its pods. Upstream: `RecordNodeStatusChange`.
const NOT_READY_EVENT_REASON: &str = "NodeNotReady";

/// Returns the conditions of a node that are to be set to Unknown when its grace period has ended. Conditions that are
/// Unknown already are left out.
///
/// Rule: a node without a heartbeat for 50 seconds (by default) becomes Unknown, and so does a new node without a
/// condition `Ready` after 60 seconds. All conditions that the kubelet reports are set to Unknown. `NetworkUnavailable`
/// stays, because the network plugin reports it. Upstream: `tryUpdateNodeHealth`.
fn conditions_to_mark_unknown(node: &Node) -> Vec<NodeConditionType> {
    let by_kubelet =
        NodeConditionType::ALL.into_iter().filter(|it| *it != NodeConditionType::NetworkUnavailable);
    by_kubelet.filter(|it| node.conditions.get(*it) != Some(ConditionStatus::Unknown)).collect()
}

/// Returns the time without a heartbeat after which the node becomes Unknown.
fn grace_period(node: &Node, config: &Config) -> Duration {
    if node.ready().is_some() { config.node_monitor_grace_period } else { config.node_startup_grace_period }
}

/// Returns the `NoExecute` taints of a node, each with the time before which the taint evicts no pod. For a `not-ready`
/// or `unreachable` taint from before `observed_since`, this time is `grace` after `observed_since`, because the node
/// may still send a heartbeat.
fn no_execute_taints(
    state: &TrackedNode,
    observed_since: Time,
    grace: Duration,
) -> impl Iterator<Item = NoExecuteTaint> + '_ {
    state.node.no_execute_taints().map(move |it| {
        let name = (it.key.clone(), it.value.clone());
        let first_seen = state.no_execute_since.get(&name).copied().unwrap_or_default();
        let added = it.added.as_deref().and_then(Time::parse);
        // `timeAdded` is truncated to seconds, and no pod may be evicted too early.
        let since = added.filter(|it| *it + Duration::from_secs(1) <= first_seen).unwrap_or(first_seen);
        let (key, value) = name;
        let predates_observation = taints::is_health_taint(&key) && since <= observed_since;
        NoExecuteTaint {
            not_before: if predates_observation { observed_since + grace } else { since },
            taint: muster_api::taints::Taint { key, value, effect: TaintEffect::NoExecute },
            since,
        }
    })
}

/// Returns the event `NodeNotReady` about a node that was marked Unknown.
fn not_ready_event(node: &Node) -> EventRecord {
    let about =
        ObjectReference::new("v1", "Node", ObjectKey::new("", node.name.clone()), node.uid.clone(), 0);
    let message = format!("Node {} status is now: {NOT_READY_EVENT_REASON}", node.name);
    EventRecord { about, event: KubeEvent::normal(NOT_READY_EVENT_REASON, message) }
}

/// Returns an event about a pod.
fn pod_event(pod: &Pod, event: KubeEvent) -> EventRecord {
    EventRecord { about: ObjectReference::to_pod(&pod.key, &pod.uid, pod.resource_version), event }
}

#[cfg(test)]
mod tests;
