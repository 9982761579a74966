//! What becomes of a node that is not well, and of the pods on it.
//!
//! A [`Lifecycle`] holds the nodes, when each was last heard of, and the pods on them. A node that is silent for too long
//! is said to be in an unknown state; what is known of a node becomes taints; and a taint that sends pods off makes those
//! leave that do not tolerate it, or no longer.
//!
//! A heartbeat is whatever changes in a node's lease, or in the time that its status carries. When it was is told by our
//! own clock: what a node's clock says is compared with nothing but what it said before. And nobody is called lost on the
//! word of a watch that may be late: the lease is read before, and the node is written on the version that was seen.
//! Upstream: `pkg/controller/nodelifecycle`, `pkg/controller/tainteviction`.

mod call;
mod decode;
mod evict;
mod listening;
mod taints;
mod zones;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

pub use call::Call;
pub use decode::{Condition, Conditions, Fact, Lease, Node, Pod, Taint, Tolerates};

use muster_api::interner::Interner;
use muster_api::meta::ObjectKey;
use muster_api::taints::TaintEffect;
use muster_api::text::Text;
use muster_api::time::Time;

use self::decode::LEASE_NAMESPACE;
use self::evict::SendsOff;
use self::listening::Listening;
use self::zones::Zones;
use crate::controller::retry::{Attempt, NextAttempt};
use crate::controller::{
    Controller, Event, EventRecord, ObjectReference, Outcome, Reconcile, Request, Requeue, Watch,
};
use crate::daemonset::execution::Refusal;
use crate::daemonset::facts::{Malformed, Truth};
use crate::daemonset::plan;

/// What may be chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// A node that is not heard of for so long is lost. Upstream: `node-monitor-grace-period`.
    pub grace: Duration,
    /// The same for one that has never said how it is. Upstream: `node-startup-grace-period`.
    pub startup_grace: Duration,
    /// How often a node that is well is heard of.
    pub heartbeat: Duration,
    /// The time between two nodes of a zone whose pods are sent off. Upstream: `node-eviction-rate`.
    pub send_off_every: Duration,
    /// Upstream: `secondary-node-eviction-rate`.
    pub send_off_every_if_partly_down: Duration,
    /// Upstream: `unhealthy-zone-threshold`.
    pub unhealthy_zone_percent: usize,
    /// A larger one goes on when it is partly down. Upstream: `large-cluster-size-threshold`.
    pub large_zone: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(50),
            startup_grace: Duration::from_secs(60),
            heartbeat: Duration::from_secs(10),
            send_off_every: Duration::from_secs(10),
            send_off_every_if_partly_down: Duration::from_secs(100),
            unhealthy_zone_percent: 55,
            large_zone: 50,
        }
    }
}

/// What is looked at.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    /// Ourselves: whether we listen.
    Pulse,
    Zone(Text),
    Node(Text),
    Pod(ObjectKey),
}

/// Nodes, when each was last heard of, and the pods on them.
#[derive(Debug, Default)]
pub struct Lifecycle {
    settings: Settings,
    nodes: BTreeMap<Text, Member>,
    /// What the leases say, by node; the node may not be there yet.
    renewals: BTreeMap<Text, Option<Text>>,
    pods: BTreeMap<ObjectKey, Resident>,
    on_node: BTreeMap<Text, BTreeSet<ObjectKey>>,
    zones: Zones,
    listening: Listening,
    /// The clock was set back: whatever was to be looked at later is looked at now.
    rearm: bool,
}

#[derive(Debug)]
struct Member {
    node: Arc<Node>,
    heard: Time,
    /// It was last heard of then, and the API server itself has said so.
    confirmed: Option<Time>,
    /// The server was asked whether it is silent, and did not answer.
    unanswered: bool,
    /// Since when we know its taints that send pods off, by key and value.
    noticed: BTreeMap<(Text, Text), Time>,
    /// Pods that were said not to be ready since nobody knows how the node is: once is enough, for the node may be able to
    /// say otherwise.
    unreadied: BTreeSet<Text>,
    attempt: Attempt,
}

#[derive(Debug)]
struct Resident {
    pod: Arc<Pod>,
    /// It was told to leave later.
    leaves_later: bool,
    /// It was told to leave now.
    leaves: bool,
    attempt: Attempt,
}

/// The places of the kinds among those that are watched.
const NODES: usize = 0;
const LEASES: usize = 1;
const PODS: usize = 2;

fn nodes() -> Watch {
    Watch::whole("", "v1", "Node", "nodes", false)
}

fn leases() -> Watch {
    Watch::whole("coordination.k8s.io", "v1", "Lease", "leases", true)
}

fn pods() -> Watch {
    Watch::whole("", "v1", "Pod", "pods", true)
}

impl Controller for Lifecycle {
    type Fact = Fact;
    type Key = Key;
    type Call = Call;

    fn watches(&self) -> Vec<Watch> {
        [nodes(), leases(), pods()].into()
    }

    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<Fact, Malformed> {
        Ok(match &*watch.resource.kind {
            "Node" => Fact::Node(decode::node(object, shared)?),
            "Lease" => Fact::Lease(decode::lease(object, shared)?),
            _ => Fact::Pod(decode::pod(object, shared)?),
        })
    }

    fn apply(&mut self, event: Event<Fact>, now: Time) -> Vec<Key> {
        self.awake(now);
        let mut keys = Vec::new();
        let were_all_down = self.zones.are_all_down();
        match event {
            Event::Applied { fact, .. } => self.put(fact, now, &mut keys),
            Event::Deleted { fact, .. } => self.remove(&fact, now, &mut keys),
            Event::Listed { kind, facts } => {
                // Whether a node spoke since the last list, nobody knows.
                if kind != PODS {
                    self.listening.anew(now);
                }
                self.forget_others(kind, &facts, now, &mut keys);
                facts.into_iter().for_each(|it| self.put(it, now, &mut keys));
                keys.push(Key::Pulse);
            }
        }
        let are_all_down = self.zones.are_all_down();
        if were_all_down && !are_all_down {
            self.listening.anew(now);
        }
        if !were_all_down && are_all_down {
            self.zones.recall();
        }
        if were_all_down != are_all_down || core::mem::take(&mut self.rearm) {
            keys.extend(self.nodes.keys().cloned().map(Key::Node));
            keys.extend(self.nodes.values().map(|it| Key::Zone(it.node.zone.clone())));
            let later = self.pods.iter().filter(|(_, it)| it.leaves_later);
            keys.extend(later.map(|(key, _)| Key::Pod(key.clone())));
        }
        keys
    }

    fn reconcile(&mut self, key: &Key, now: Time) -> Reconcile<Call> {
        self.awake(now);
        match key {
            Key::Pulse => {
                let wake_at = Some(now + Listening::pulse(self.settings.grace));
                Reconcile { wake_at, ..Reconcile::default() }
            }
            Key::Zone(zone) => self.look_at_zone(zone, now),
            Key::Node(name) => self.look_at_node(name, now),
            Key::Pod(key) => self.look_at_pod(key, now),
        }
    }

    fn request(call: &Call) -> Request {
        call::request(call)
    }

    fn done(&mut self, call: &Call, outcome: Outcome, now: Time) -> Requeue<Key> {
        self.awake(now);
        match call {
            Call::ReadLease { node, heard } => self.answered(node, *heard, &outcome, now),
            Call::Doubt { node, .. } | Call::Amend { node, .. } => {
                if matches!(call, Call::Doubt { .. }) {
                    self.doubted(&node.name, &outcome, now);
                }
                let Some(member) = self.nodes.get_mut(&node.name).filter(|it| it.node.uid == node.uid) else {
                    return Requeue::default();
                };
                member.attempt.wrote(node.resource_version, &outcome, now);
                let is_news = matches!(call, Call::Doubt { .. }) && node.ready() == Some(Truth::True);
                let tell = (is_news && matches!(outcome, Outcome::Done(_))).then(|| not_ready(node));
                Requeue { keys: [Key::Node(node.name.clone())].into(), events: tell.into_iter().collect() }
            }
            Call::Unready { pod, .. } | Call::Announce { pod, .. } | Call::Delete { pod } => {
                self.written(call, pod, &outcome, now)
            }
        }
    }
}

impl Lifecycle {
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Rule: when the clock was set back, what lies in its future happened now: no grace and no toleration becomes longer.
    fn awake(&mut self, now: Time) {
        if !self.listening.awake(self.settings.grace, now) {
            return;
        }
        self.rearm = true;
        for member in self.nodes.values_mut() {
            member.heard = member.heard.min(now);
            member.noticed.values_mut().for_each(|it| *it = (*it).min(now));
        }
    }

    /// A node was marked as lost, or the write was refused.
    fn doubted(&mut self, node: &Text, outcome: &Outcome, now: Time) {
        match outcome {
            Outcome::Done(_) => self.listening.written(now),
            Outcome::Refused(Refusal::Server(_)) => {
                self.listening.refused(now);
                // Before the next time the leases are read again.
                self.nodes.values_mut().for_each(|it| it.confirmed = None);
            }
            Outcome::Refused(_) => self.listening.not_written(node),
        }
    }

    fn put(&mut self, fact: Fact, now: Time, keys: &mut Vec<Key>) {
        match fact {
            Fact::Node(node) => self.put_node(node, now, keys),
            Fact::Lease(lease) if *lease.key.namespace == *LEASE_NAMESPACE => {
                let said = self.renewals.insert(lease.key.name.clone(), lease.renewed.clone());
                if said.is_none_or(|it| it != lease.renewed) {
                    self.hear(&lease.key.name, now);
                }
            }
            Fact::Lease(_) => {}
            Fact::Pod(pod) => self.put_pod(pod, keys),
        }
    }

    fn remove(&mut self, fact: &Fact, now: Time, keys: &mut Vec<Key>) {
        match fact {
            Fact::Node(node) => self.remove_node(&node.name, now, keys),
            // A lease that goes says nothing of its node.
            Fact::Lease(lease) if *lease.key.namespace == *LEASE_NAMESPACE => {
                self.renewals.remove(&lease.key.name);
            }
            Fact::Lease(_) => {}
            Fact::Pod(pod) => self.remove_pod(&pod.key),
        }
    }

    /// What a new list does not have is gone.
    fn forget_others(&mut self, kind: usize, listed: &[Fact], now: Time, keys: &mut Vec<Key>) {
        let listed: BTreeSet<ObjectKey> = listed.iter().map(crate::controller::Fact::key).collect();
        let is_gone = |key: &ObjectKey| !listed.contains(key);
        let of_nodes = |name: &Text| ObjectKey::new("", name.clone());
        match kind {
            NODES => {
                let names: Vec<Text> =
                    self.nodes.keys().filter(|it| is_gone(&of_nodes(it))).cloned().collect();
                names.iter().for_each(|it| self.remove_node(it, now, keys));
            }
            LEASES => {
                self.renewals.retain(|name, _| !is_gone(&ObjectKey::new(LEASE_NAMESPACE, name.clone())))
            }
            _ => {
                let gone: Vec<ObjectKey> = self.pods.keys().filter(|it| is_gone(it)).cloned().collect();
                gone.iter().for_each(|it| self.remove_pod(it));
            }
        }
    }

    fn hear(&mut self, name: &Text, now: Time) {
        if let Some(member) = self.nodes.get_mut(name) {
            member.heard = now;
            self.listening.hear(self.settings.grace, self.settings.heartbeat, now);
        }
    }

    fn put_node(&mut self, node: Node, now: Time, keys: &mut Vec<Key>) {
        let name = node.name.clone();
        if self.nodes.get(&name).is_some_and(|it| it.node.uid != node.uid) {
            self.remove_node(&name, now, keys);
        }
        let node = Arc::new(node);
        let Some(member) = self.nodes.get_mut(&name) else {
            self.zones.change(None, Some(&node), now);
            let noticed = node.sending_off().map(|it| ((it.key.clone(), it.value.clone()), now)).collect();
            keys.extend([Key::Node(name.clone()), Key::Zone(node.zone.clone())]);
            keys.extend(self.on_node.get(&name).into_iter().flatten().cloned().map(Key::Pod));
            let member = Member {
                node,
                heard: now,
                confirmed: None,
                unanswered: false,
                noticed,
                unreadied: BTreeSet::new(),
                attempt: Attempt::None,
            };
            self.nodes.insert(name, member);
            return;
        };
        let before = core::mem::replace(&mut member.node, node.clone());
        if member.attempt != Attempt::None {
            keys.push(Key::Node(name.clone()));
        }
        if !before.looks_like(&node) {
            keys.extend([
                Key::Node(name.clone()),
                Key::Zone(before.zone.clone()),
                Key::Zone(node.zone.clone()),
            ]);
            if before.ready() != node.ready() || !before.sending_off().eq(node.sending_off()) {
                keys.extend(self.on_node.get(&name).into_iter().flatten().cloned().map(Key::Pod));
            }
            let known = core::mem::take(&mut member.noticed);
            let noticed = node.sending_off().map(|it| (it.key.clone(), it.value.clone()));
            member.noticed = noticed.map(|it| (it.clone(), known.get(&it).copied().unwrap_or(now))).collect();
            if node.ready() != Some(Truth::Unknown) {
                member.unreadied.clear();
            }
            self.zones.change(Some(&before), Some(&node), now);
        }
        // That nobody knows how a node is, is what we say, not the node.
        let is_said_by_node = node.ready() != Some(Truth::Unknown);
        if is_said_by_node && (before.beat != node.beat || before.ready().is_some() != node.ready().is_some())
        {
            self.hear(&name, now);
        }
    }

    fn remove_node(&mut self, name: &Text, now: Time, keys: &mut Vec<Key>) {
        let Some(member) = self.nodes.remove(name) else { return };
        self.zones.change(Some(&member.node), None, now);
        keys.push(Key::Zone(member.node.zone.clone()));
        keys.extend(self.on_node.get(name).into_iter().flatten().cloned().map(Key::Pod));
    }

    fn put_pod(&mut self, pod: Pod, keys: &mut Vec<Key>) {
        let key = pod.key.clone();
        if self.pods.get(&key).is_some_and(|it| it.pod.uid != pod.uid || it.pod.node != pod.node) {
            self.remove_pod(&key);
        }
        let is_in_doubt =
            |it: &Member| it.node.ready() == Some(Truth::Unknown) || it.node.sending_off().next().is_some();
        let pod = Arc::new(pod);
        let resident = self.pods.entry(key.clone()).or_insert_with(|| Resident {
            pod: pod.clone(),
            leaves_later: false,
            leaves: false,
            attempt: Attempt::None,
        });
        resident.pod = pod.clone();
        if resident.leaves_later
            || resident.attempt != Attempt::None
            || self.nodes.get(&pod.node).is_some_and(is_in_doubt)
        {
            keys.push(Key::Pod(key.clone()));
        }
        if !pod.node.is_empty() {
            self.on_node.entry(pod.node.clone()).or_default().insert(key);
        }
    }

    fn remove_pod(&mut self, key: &ObjectKey) {
        let Some(Resident { pod, .. }) = self.pods.remove(key) else { return };
        if let Some(others) = self.on_node.get_mut(&pod.node) {
            others.remove(key);
            if others.is_empty() {
                self.on_node.remove(&pod.node);
            }
        }
        if let Some(member) = self.nodes.get_mut(&pod.node) {
            member.unreadied.remove(&pod.uid);
        }
    }

    fn look_at_zone(&mut self, zone: &Text, now: Time) -> Reconcile<Call> {
        let (node, wake_at) = self.zones.turn(zone, &self.settings, self.listening.since(), now);
        let reconcile = node.map(|it| self.look_at_node(&it, now)).unwrap_or_default();
        Reconcile { wake_at, ..reconcile }
    }

    fn look_at_node(&mut self, name: &Text, now: Time) -> Reconcile<Call> {
        let Some(member) = self.nodes.get_mut(name) else { return Reconcile::default() };
        match member.attempt.next(member.node.resource_version, now) {
            NextAttempt::Now => {}
            NextAttempt::AfterOutcome => return Reconcile::default(),
            NextAttempt::At(at) => return Reconcile { wake_at: Some(at), ..Reconcile::default() },
        }
        let node = member.node.clone();
        let conditions = doubtful(&node);
        let lost_at = member.heard.min(now).max(self.listening.since()) + grace(&node, &self.settings);
        let call = if !conditions.is_empty() && lost_at <= now {
            if member.confirmed != Some(member.heard) {
                Some(Call::ReadLease { node: name.clone(), heard: member.heard })
            } else if self.listening.may_doubt(name) {
                Some(Call::Doubt { node, conditions, at: now })
            } else {
                let wake_at = Some(now + Listening::pulse(self.settings.grace));
                return Reconcile { wake_at, ..Reconcile::default() };
            }
        } else {
            let taints = taints::wanted(&node, self.zones.send_off(&node), now);
            let is_due = taints.is_some() || !node.labels.is_empty();
            is_due.then_some(Call::Amend { node, taints })
        };
        match call {
            Some(call) => {
                member.attempt.begin();
                Reconcile { calls: [call].into(), ..Reconcile::default() }
            }
            None => {
                member.attempt = Attempt::None;
                let wake_at = (!doubtful(&member.node).is_empty()).then_some(lost_at);
                Reconcile { wake_at, ..Reconcile::default() }
            }
        }
    }

    /// What the API server says of a node's lease.
    fn answered(&mut self, name: &Text, heard: Time, outcome: &Outcome, now: Time) -> Requeue<Key> {
        let Some(member) = self.nodes.get_mut(name) else { return Requeue::default() };
        let read = |answer: &Vec<u8>| decode::lease(answer, &mut Interner::default()).ok();
        let renewed = match outcome {
            Outcome::Done(answer) => match read(answer) {
                Some(lease) => Ok(lease.renewed),
                None => Err(&Refusal::NoAnswer),
            },
            Outcome::Refused(Refusal::NotFound) => Ok(None),
            Outcome::Refused(refusal) => Err(refusal),
        };
        match renewed {
            // If we could not be answered, then the node could not either.
            Ok(_) if core::mem::take(&mut member.unanswered) => member.heard = now,
            // The watch is late.
            Ok(Some(ref renewed)) if self.renewals.get(name) != Some(&Some(renewed.clone())) => {
                member.heard = now
            }
            Ok(_) => member.confirmed = Some(heard),
            Err(_) => member.unanswered = true,
        }
        match renewed {
            Ok(_) => member.attempt = Attempt::None,
            Err(refusal) => member.attempt.fail(refusal, now),
        }
        Vec::from([Key::Node(name.clone())]).into()
    }

    fn look_at_pod(&mut self, key: &ObjectKey, now: Time) -> Reconcile<Call> {
        let Some(resident) = self.pods.get_mut(key) else { return Reconcile::default() };
        let member = self.nodes.get(&resident.pod.node);
        let taints: Vec<SendsOff> = member
            .map(|it| sends_off(it, self.listening.since(), self.settings.grace).collect())
            .unwrap_or_default();
        let pod = resident.pod.clone();
        let mut reconcile = Reconcile::default();
        let leaves_at = if pod.deleting { None } else { evict::leaves_at(&pod, &taints) };
        let leaves_later = leaves_at.is_some_and(|it| now < it);
        if resident.leaves_later && leaves_at.is_none() && !pod.deleting && member.is_some() {
            reconcile
                .events
                .push(tell(&pod, plan::Event::normal(EVICTION, format!("Cancelling deletion of Pod {key}"))));
        }
        resident.leaves_later = leaves_later;
        reconcile.wake_at = leaves_at.filter(|_| leaves_later);
        match resident.attempt.next(pod.resource_version, now) {
            NextAttempt::Now => {}
            NextAttempt::AfterOutcome => return Reconcile { wake_at: None, ..reconcile },
            NextAttempt::At(at) => return Reconcile { wake_at: Some(at), ..reconcile },
        }
        let is_unready =
            |it: &Member| it.node.ready() == Some(Truth::Unknown) && !it.unreadied.contains(&pod.uid);
        let call = if leaves_at.is_some() && !leaves_later {
            if !core::mem::replace(&mut resident.leaves, true) {
                let message = format!("Marking for deletion Pod {key}");
                reconcile.events.push(tell(&pod, plan::Event::normal(EVICTION, message)));
            }
            Some(if pod.announced { Call::Delete { pod } } else { Call::Announce { pod, at: now } })
        } else if pod.ready && member.is_some_and(is_unready) {
            Some(Call::Unready { pod, at: now })
        } else {
            None
        };
        match call {
            Some(call) => {
                resident.attempt.begin();
                reconcile.calls.push(call);
                reconcile.wake_at = None;
            }
            None => resident.attempt = Attempt::None,
        }
        reconcile
    }

    /// What came of a write about a pod.
    fn written(&mut self, call: &Call, pod: &Arc<Pod>, outcome: &Outcome, now: Time) -> Requeue<Key> {
        let Some(resident) = self.pods.get_mut(&pod.key).filter(|it| it.pod.uid == pod.uid) else {
            return Requeue::default();
        };
        let mut next = Requeue { keys: [Key::Pod(pod.key.clone())].into(), events: Vec::new() };
        resident.attempt.wrote(pod.resource_version, outcome, now);
        let is_done = matches!(outcome, Outcome::Done(_));
        match call {
            // It need not be seen to have said so before it goes.
            Call::Announce { .. } if is_done => {
                resident.pod = Arc::new(Pod { announced: true, ..(*resident.pod).clone() });
                resident.attempt = Attempt::None;
            }
            Call::Unready { .. } if is_done => {
                if let Some(member) = self.nodes.get_mut(&pod.node) {
                    member.unreadied.insert(pod.uid.clone());
                }
                let event = plan::Event::warning(NOT_READY, "Node is not ready".into());
                next.events.push(tell(pod, event));
            }
            _ => {}
        }
        next
    }
}

/// The words that events carry. Upstream: `emitPodDeletionEvent`, `RecordNodeStatusChange`.
const EVICTION: &str = "TaintManagerEviction";
const NOT_READY: &str = "NodeNotReady";

/// Rule: a node that is not heard of for 50 seconds, or that in its first 60 has never said how it is, is lost: all
/// that the node itself says becomes unknown. What is said of its network stays, for that is not the node's to say.
/// Upstream: `tryUpdateNodeHealth`.
fn doubtful(node: &Node) -> Vec<Condition> {
    let by_node = Condition::ALL.into_iter().filter(|it| *it != Condition::NetworkUnavailable);
    by_node.filter(|it| node.conditions.get(*it) != Some(Truth::Unknown)).collect()
}

fn grace(node: &Node, settings: &Settings) -> Duration {
    if node.ready().is_some() { settings.grace } else { settings.startup_grace }
}

/// Since when each taint of a node sends pods off. A node's trouble from before we listened has its grace to pass.
fn sends_off(member: &Member, listening: Time, grace: Duration) -> impl Iterator<Item = SendsOff> + '_ {
    member.node.sending_off().map(move |it| {
        let name = (it.key.clone(), it.value.clone());
        let noticed = member.noticed.get(&name).copied().unwrap_or_default();
        let added = it.added.as_deref().and_then(Time::parse);
        // Of a time in whole seconds the rest is lost, and nobody is to leave too early.
        let since = added.filter(|it| *it + Duration::from_secs(1) <= noticed).unwrap_or(noticed);
        let (key, value) = name;
        let is_old_trouble = taints::is_trouble(&key) && since <= listening;
        SendsOff {
            not_before: if is_old_trouble { listening + grace } else { since },
            taint: muster_api::taints::Taint { key, value, effect: TaintEffect::NoExecute },
            since,
        }
    })
}

fn not_ready(node: &Node) -> EventRecord {
    let about = ObjectReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        key: ObjectKey::new("", node.name.clone()),
        uid: node.uid.clone(),
        resource_version: 0,
    };
    let message = format!("Node {} status is now: {NOT_READY}", node.name);
    EventRecord { about, event: plan::Event::normal(NOT_READY, message) }
}

fn tell(pod: &Pod, event: plan::Event) -> EventRecord {
    let about = ObjectReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        key: pod.key.clone(),
        uid: pod.uid.clone(),
        resource_version: pod.resource_version,
    };
    EventRecord { about, event }
}

#[cfg(test)]
mod tests;
