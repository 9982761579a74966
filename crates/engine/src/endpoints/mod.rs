//! What stands behind a Service: its Endpoints and EndpointSlices, for those that select pods, and a mirror of what was
//! written by hand for those that do not.
//!
//! An event marks the Services it concerns, and costs what it touches. What a Service's pods make of it is worked out when
//! it is looked at, which happens once a second at most, however many pods change: a rollout of 5,000 pods is a write of
//! some slices each second, and not 5,000 writes.
//! Upstream: `pkg/controller/endpoint`, `endpointslice` and `endpointslicemirroring`.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::interner::Interner;
use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use serde::Deserialize;

pub use call::{Call, Change, Draft, EndpointsDraft};
pub use facts::{
    Address, Condition, Endpoint, Endpoints, Fact, Family, Hints, Node, Owner, Pod, Port, Referent, Service,
    ServicePort, Slice, Subset, Target, Traffic,
};

use self::slices::Zones;
use crate::controller::retry::{Attempt, NextAttempt, WATCH_DELAY_MAX};
use crate::controller::{
    Controller, Event, EventRecord, Fact as _, Outcome, Reconcile, Request, Requeue, Watch,
};
use crate::daemonset::execution::Refusal;
use crate::daemonset::facts::Malformed;
use crate::daemonset::plan;

mod call;
mod decode;
mod facts;
mod mirror;
mod slices;
mod subsets;

/// After something was written for a Service, what happens next is gathered for so long. Upstream:
/// `endpoint-updates-batch-period`.
const GATHER: Duration = Duration::from_secs(1);

/// Nothing can be made in a namespace that is being deleted. It is looked at again, in case it stays after all.
const NAMESPACE_TERMINATING_RETRY: Duration = Duration::from_secs(60);

const HEADLESS: &str = "service.kubernetes.io/headless";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// All Services, and what stands behind them.
#[derive(Debug, Default)]
pub struct Services {
    /// By the name that a Service shares with its Endpoints, and that its slices bear as a label.
    entries: BTreeMap<ObjectKey, Entry>,
    pods: BTreeMap<ObjectKey, Arc<Pod>>,
    by_node: BTreeMap<Text, BTreeSet<ObjectKey>>,
    zones: Zones,
    /// To which entry a slice belongs.
    slices: BTreeMap<ObjectKey, ObjectKey>,
    endpoints_were_listed: bool,
}

#[derive(Debug, Default)]
struct Entry {
    service: Option<Arc<Service>>,
    /// Names of the pods it selects.
    members: BTreeSet<Text>,
    endpoints: Option<Arc<Endpoints>>,
    /// Those that are ours, by name.
    slices: BTreeMap<Text, Arc<Slice>>,
    /// The Endpoints are those of a Service that is gone.
    is_left_over: bool,
    trigger: Trigger,
    /// Calls that no answer has come to.
    under_way: usize,
    /// What was written, and the watches have not shown yet.
    awaited: BTreeMap<(Kind, Text), Awaited>,
    awaited_until: Time,
    attempt: Attempt,
    not_before: Option<Time>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Endpoints,
    Slice,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaited {
    Version(u64),
    Gone,
}

/// What began the changes that are not written yet: clients measure by it how late they hear of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Trigger {
    /// Nothing was ever written: it is the Service itself.
    #[default]
    Service,
    /// The earliest change of a pod.
    Pod(Option<Time>),
}

impl Trigger {
    fn add(&mut self, turned_at: Option<Time>) {
        if let Self::Pod(first) = self {
            *first = muster_api::time::earliest(*first, turned_at);
        }
    }
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.service.is_none() && self.endpoints.is_none() && self.slices.is_empty() && self.under_way == 0
    }

    /// Those that are kept by `controller`, and are not about to go.
    fn slices_of(&self, controller: &str) -> Vec<&Arc<Slice>> {
        self.slices.values().filter(|it| it.label(MANAGED_BY) == controller && !it.deleting).collect()
    }

    fn version(&self, kind: Kind, name: &Text) -> Option<u64> {
        match kind {
            Kind::Endpoints => self.endpoints.as_ref().map(|it| it.resource_version),
            Kind::Slice => self.slices.get(name).map(|it| it.resource_version),
        }
    }

    /// What was refused for one Service says nothing of the next one of that name.
    fn forget_refusals(&mut self) {
        if self.under_way == 0 {
            (self.attempt, self.not_before) = (Attempt::None, None);
        }
    }

    /// Nothing is written before the watches have shown what was, nor too soon after it.
    fn waits_until(&mut self, now: Time) -> Option<Time> {
        // What was under way is over, and nobody refused it.
        if let Attempt::InFlight { .. } = self.attempt {
            self.attempt = Attempt::None;
        }
        let refused = match self.attempt.next(0, now) {
            NextAttempt::At(at) => Some(at),
            NextAttempt::Now | NextAttempt::AfterOutcome => None,
        };
        let awaited = (!self.awaited.is_empty()).then_some(self.awaited_until);
        // A clock that was set back must not make a wait longer.
        let is_ahead = |at: &Time, most: Duration| now < *at && at.since(now) <= most;
        let awaited = awaited.filter(|it| is_ahead(it, WATCH_DELAY_MAX));
        let not_before = self.not_before.filter(|it| is_ahead(it, NAMESPACE_TERMINATING_RETRY));
        refused.max(awaited).max(not_before)
    }

    /// Whatever the watches have shown is awaited no longer.
    fn settle(&mut self) {
        let mut awaited = core::mem::take(&mut self.awaited);
        awaited.retain(|(kind, name), it| match (it, self.version(*kind, name)) {
            (Awaited::Version(version), shown) => shown.is_none_or(|shown| shown < *version),
            (Awaited::Gone, shown) => shown.is_some(),
        });
        self.awaited = awaited;
    }
}

impl Controller for Services {
    type Fact = Fact;
    type Key = ObjectKey;
    type Call = Call;

    fn watches(&self) -> Vec<Watch> {
        [
            Watch::whole("", "v1", "Service", "services", true),
            Watch::whole("", "v1", "Pod", "pods", true),
            Watch::metadata("", "v1", "Node", "nodes", false),
            Watch::whole("", "v1", "Endpoints", "endpoints", true),
            Watch::whole("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true),
        ]
        .into()
    }

    fn decode(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<Fact, Malformed> {
        decode::fact(watch, object, shared)
    }

    fn apply(&mut self, event: Event<Fact>, _: Time) -> Vec<ObjectKey> {
        let mut keys = BTreeSet::new();
        match event {
            Event::Applied { fact, .. } => self.put(fact, &mut keys),
            Event::Deleted { fact, .. } => self.remove(&fact, &mut keys),
            Event::Listed { kind, facts } => {
                for gone in self.unlisted(kind, &facts) {
                    self.remove(&gone, &mut keys);
                }
                facts.into_iter().for_each(|it| self.put(it, &mut keys));
                if kind == ENDPOINTS && !core::mem::replace(&mut self.endpoints_were_listed, true) {
                    self.entries.values_mut().for_each(|it| it.is_left_over = true);
                }
            }
        }
        keys.into_iter().collect()
    }

    fn reconcile(&mut self, key: &ObjectKey, now: Time) -> Reconcile<Call> {
        let Some(entry) = self.entries.get_mut(key) else { return Reconcile::default() };
        if 0 < entry.under_way {
            return Reconcile::default();
        }
        entry.settle();
        if let Some(wake_at) = entry.waits_until(now) {
            return Reconcile { wake_at: Some(wake_at), ..Reconcile::default() };
        }
        entry.awaited.clear();
        let (mut changes, events) = decide(key, entry, &self.pods, &self.zones);
        if changes.is_empty() {
            (entry.attempt, entry.not_before) = (Attempt::None, None);
            if entry.is_empty() {
                self.entries.remove(key);
            }
            return Reconcile::default();
        }
        // Slices go only when what takes their place is there.
        let is_delete = |it: &Change| matches!(it, Change::DeleteSlice(_));
        if changes.iter().all(is_delete) {
            entry.not_before = None;
        } else {
            changes.retain(|it| !is_delete(it));
            entry.not_before = Some(now + GATHER);
        }
        entry.under_way = changes.len();
        entry.attempt.begin();
        let calls = changes.into_iter().map(|change| Call { service: key.clone(), change }).collect();
        Reconcile { calls, events, wake_at: None }
    }

    fn request(call: &Call) -> Request {
        call::request(call)
    }

    fn done(&mut self, call: &Call, outcome: Outcome, now: Time) -> Requeue<ObjectKey> {
        let Some(entry) = self.entries.get_mut(&call.service) else { return Requeue::default() };
        entry.under_way = entry.under_way.saturating_sub(1);
        let mut events = Vec::new();
        let is_delete = matches!(call.change, Change::DeleteEndpoints(_) | Change::DeleteSlice(_));
        let outcome = match outcome {
            // Somebody was faster.
            Outcome::Refused(Refusal::NotFound) if is_delete => Outcome::Done(Vec::new()),
            outcome => outcome,
        };
        match outcome {
            Outcome::Done(body) => {
                entry.awaited.extend(awaited(&call.change, &body));
                entry.awaited_until = now + WATCH_DELAY_MAX;
            }
            Outcome::Refused(Refusal::NamespaceTerminating) => {
                entry.not_before = Some(now + NAMESPACE_TERMINATING_RETRY);
            }
            Outcome::Refused(refusal) => {
                // Calls that are refused together were refused once.
                if let Attempt::InFlight { .. } = entry.attempt {
                    entry.attempt.fail(&refusal, now);
                }
                events.extend(entry.service.as_ref().map(|it| failed(it, &call.change, &refusal)));
            }
        }
        Requeue { keys: Vec::from([call.service.clone()]), events }
    }
}

/// Its place among the watches.
const ENDPOINTS: usize = 3;

impl Services {
    fn unlisted(&self, kind: usize, facts: &[Fact]) -> Vec<Fact> {
        let listed: BTreeSet<ObjectKey> = facts.iter().map(Fact::key).collect();
        let mut known: Vec<Fact> = match kind {
            0 => self.entries.values().filter_map(|it| it.service.clone()).map(Fact::Service).collect(),
            1 => self.pods.values().cloned().map(Fact::Pod).collect(),
            2 => {
                let nodes = self.zones.iter().map(|(name, zone)| {
                    Fact::Node(Node { name: name.clone(), resource_version: 0, zone: zone.clone() })
                });
                nodes.collect()
            }
            ENDPOINTS => {
                self.entries.values().filter_map(|it| it.endpoints.clone()).map(Fact::Endpoints).collect()
            }
            _ => {
                let slices = self.entries.values().flat_map(|it| it.slices.values());
                slices.cloned().map(Fact::Slice).collect()
            }
        };
        known.retain(|it| !listed.contains(&it.key()));
        known
    }

    fn put(&mut self, fact: Fact, keys: &mut BTreeSet<ObjectKey>) {
        match fact {
            Fact::Service(service) => self.put_service(service, keys),
            Fact::Pod(pod) => {
                let before = self.pods.insert(pod.key.clone(), pod.clone());
                self.change_pod(before.as_deref(), Some(&pod), keys);
            }
            Fact::Node(node) => {
                let before = self.zones.insert(node.name.clone(), node.zone.clone());
                if before.as_ref() != Some(&node.zone) {
                    self.mark_node(&node.name, keys);
                }
            }
            Fact::Endpoints(endpoints) => {
                let entry = self.entries.entry(endpoints.key.clone()).or_default();
                keys.insert(endpoints.key.clone());
                entry.endpoints = Some(endpoints);
            }
            Fact::Slice(slice) => self.put_slice(slice, keys),
        }
    }

    fn remove(&mut self, fact: &Fact, keys: &mut BTreeSet<ObjectKey>) {
        match fact {
            Fact::Service(service) => {
                if let Some(entry) = self.entries.get_mut(&service.key) {
                    (entry.service, entry.trigger, entry.is_left_over) = (None, Trigger::Service, true);
                    entry.members.clear();
                    entry.forget_refusals();
                    keys.insert(service.key.clone());
                }
            }
            Fact::Pod(pod) => {
                let before = self.pods.remove(&pod.key);
                self.change_pod(before.as_deref(), None, keys);
            }
            Fact::Node(node) => {
                self.zones.remove(&node.name);
                self.mark_node(&node.name, keys);
            }
            Fact::Endpoints(endpoints) => {
                if let Some(entry) = self.entries.get_mut(&endpoints.key) {
                    entry.endpoints = None;
                    keys.insert(endpoints.key.clone());
                }
            }
            Fact::Slice(slice) => {
                if let Some(key) = self.slices.remove(&slice.key) {
                    if let Some(entry) = self.entries.get_mut(&key) {
                        entry.slices.remove(&slice.key.name);
                    }
                    keys.insert(key);
                }
            }
        }
    }

    fn put_service(&mut self, service: Arc<Service>, keys: &mut BTreeSet<ObjectKey>) {
        keys.insert(service.key.clone());
        let entry = self.entries.entry(service.key.clone()).or_default();
        let selected = entry.service.as_ref().and_then(|it| it.selector.clone());
        if selected != service.selector || entry.service.is_none() {
            let namespace = &service.key.namespace;
            let first = ObjectKey { namespace: namespace.clone(), name: Text::from("") };
            let pods = self.pods.range(first..).take_while(|(key, _)| key.namespace == *namespace);
            let members = pods.filter(|(_, pod)| service.selects(pod));
            entry.members.clear();
            entry.forget_refusals();
            for (key, pod) in members {
                entry.members.insert(key.name.clone());
                entry.trigger.add(pod.turned_at);
            }
        }
        entry.service = Some(service);
    }

    fn put_slice(&mut self, slice: Arc<Slice>, keys: &mut BTreeSet<ObjectKey>) {
        let is_ours = [slices::CONTROLLER, mirror::CONTROLLER].contains(&slice.label(MANAGED_BY));
        let name = slice.label(SERVICE_NAME);
        let key = ObjectKey { namespace: slice.key.namespace.clone(), name: name.into() };
        let before = self.slices.get(&slice.key);
        if before.is_some_and(|it| *it != key || !is_ours) {
            self.remove(&Fact::Slice(slice.clone()), keys);
        }
        if is_ours && !name.is_empty() {
            self.slices.insert(slice.key.clone(), key.clone());
            let entry = self.entries.entry(key.clone()).or_default();
            entry.slices.insert(slice.key.name.clone(), slice);
            keys.insert(key);
        }
    }

    /// A pod has come or gone or changed.
    fn change_pod(&mut self, before: Option<&Pod>, now: Option<&Pod>, keys: &mut BTreeSet<ObjectKey>) {
        let Some(key) = now.or(before).map(|it| it.key.clone()) else { return };
        let (was_on, is_on) = (before.and_then(|it| it.node.as_ref()), now.and_then(|it| it.node.as_ref()));
        if was_on != is_on {
            if let Some(node) = was_on
                && let Some(others) = self.by_node.get_mut(node)
            {
                others.remove(&key);
                if others.is_empty() {
                    self.by_node.remove(node);
                }
            }
            if let Some(node) = is_on {
                self.by_node.entry(node.clone()).or_default().insert(key.clone());
            }
        }
        if before.zip(now).is_some_and(|(before, now)| before.looks_like(now)) {
            return;
        }
        let turned_at = now.and_then(|it| it.turned_at);
        let is_news = turned_at > before.and_then(|it| it.turned_at);
        for (name, entry) in within(&mut self.entries, &key.namespace) {
            let Some(service) = &entry.service else { continue };
            let was = before.is_some_and(|it| service.selects(it));
            let is = now.is_some_and(|it| service.selects(it));
            match is {
                true => entry.members.insert(key.name.clone()),
                false => entry.members.remove(&key.name),
            };
            if is && (is_news || !was) {
                entry.trigger.add(turned_at);
            }
            if was || is {
                keys.insert(name.clone());
            }
        }
    }

    fn mark_node(&mut self, node: &Text, keys: &mut BTreeSet<ObjectKey>) {
        for key in self.by_node.get(node).into_iter().flatten() {
            let services = within(&mut self.entries, &key.namespace);
            keys.extend(
                services.filter(|(_, it)| it.members.contains(&key.name)).map(|(name, _)| name.clone()),
            );
        }
    }
}

fn within<'a>(
    entries: &'a mut BTreeMap<ObjectKey, Entry>,
    namespace: &'a Text,
) -> impl Iterator<Item = (&'a ObjectKey, &'a mut Entry)> {
    let first = ObjectKey { namespace: namespace.clone(), name: Text::from("") };
    entries.range_mut(first..).take_while(move |(key, _)| key.namespace == *namespace)
}

/// Rule: a Service that selects pods has Endpoints and slices of them; one that selects none has what was written for it by
/// hand, with a mirror in slices; one that stands for something outside has nothing. When a Service is gone its Endpoints
/// go, and its slices are garbage.
fn decide(
    key: &ObjectKey,
    entry: &mut Entry,
    pods: &BTreeMap<ObjectKey, Arc<Pod>>,
    zones: &Zones,
) -> (Vec<Change>, Vec<EventRecord>) {
    let mirrors = entry.slices_of(mirror::CONTROLLER);
    let without_mirror = || mirrors.iter().map(|it| Change::DeleteSlice((*it).clone())).collect::<Vec<_>>();
    let Some(service) = entry.service.clone() else {
        let mut changes = without_mirror();
        let left = entry.endpoints.as_ref().filter(|it| entry.is_left_over && !mirror::is_election(it));
        changes.extend(left.filter(|it| !it.deleting).map(|it| Change::DeleteEndpoints(it.clone())));
        return (changes, Vec::new());
    };
    if service.selector.is_none() {
        return match entry.endpoints.as_ref().filter(|it| mirror::is_mirrored(it)) {
            Some(endpoints) => mirror::changes(endpoints, &mirrors),
            None => (without_mirror(), Vec::new()),
        };
    }
    let mut changes = without_mirror();
    if service.is_external {
        return (changes, Vec::new());
    }
    let trigger = match core::mem::replace(&mut entry.trigger, Trigger::Pod(None)) {
        Trigger::Service => Some(service.created),
        Trigger::Pod(first) => first,
    };
    let members = entry.members.iter().filter_map(|name| {
        let key = ObjectKey { namespace: key.namespace.clone(), name: name.clone() };
        pods.get(&key)
    });
    changes.extend(subsets::change(&service, members.clone(), entry.endpoints.as_ref(), trigger));
    let slices = entry.slices_of(slices::CONTROLLER);
    changes.extend(slices::changes(&service, members, zones, &slices, trigger));
    if service.deleting {
        changes.retain(|it| !matches!(it, Change::CreateEndpoints(_)));
    }
    (changes, Vec::new())
}

/// What the watches must show before the Service is looked at again.
fn awaited(change: &Change, body: &[u8]) -> Option<((Kind, Text), Awaited)> {
    #[derive(Deserialize)]
    struct Written {
        metadata: Meta,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta {
        name: String,
        resource_version: String,
    }
    let kind = match change {
        Change::DeleteEndpoints(it) => return Some(((Kind::Endpoints, it.key.name.clone()), Awaited::Gone)),
        Change::DeleteSlice(it) => return Some(((Kind::Slice, it.key.name.clone()), Awaited::Gone)),
        Change::CreateEndpoints(_) | Change::UpdateEndpoints(..) => Kind::Endpoints,
        Change::CreateSlice(_) | Change::UpdateSlice(..) => Kind::Slice,
    };
    let written: Written = serde_json::from_slice(body).ok()?;
    let version = written.metadata.resource_version.parse().ok()?;
    Some(((kind, written.metadata.name.as_str().into()), Awaited::Version(version)))
}

fn failed(service: &Service, change: &Change, refusal: &Refusal) -> EventRecord {
    let key = &service.key;
    let slices = |what: &str| {
        let message = format!(
            "Error updating Endpoint Slices for Service {key}: failed to {what} EndpointSlice for Service {key}: {refusal}"
        );
        plan::Event::warning("FailedToUpdateEndpointSlices", message)
    };
    let event = match change {
        Change::CreateEndpoints(_) => plan::Event::warning(
            "FailedToCreateEndpoint",
            format!("Failed to create endpoint for service {key}: {refusal}"),
        ),
        Change::UpdateEndpoints(..) | Change::DeleteEndpoints(_) => plan::Event::warning(
            "FailedToUpdateEndpoint",
            format!("Failed to update endpoint {key}: {refusal}"),
        ),
        Change::CreateSlice(_) => slices("create"),
        Change::UpdateSlice(..) => slices("update"),
        Change::DeleteSlice(_) => slices("delete"),
    };
    EventRecord { about: service.reference(), event }
}

#[cfg(test)]
mod tests;
