//! A scenario in, the calls and the remaining objects out, as text. A small API server executes the calls until nothing
//! is left to do.
//!
//! A line is an object: `KIND NAME`, and then
//! - `ns=NAME`: its namespace, else `a`; a Node is cluster-scoped;
//! - `uid=UID`: else the UID is the name;
//! - `of=KIND/NAME[@UID][!]`: an owner reference; `!` is `blockOwnerDeletion`;
//! - `deleting`, `finalizer=NAME`;
//! - of a pod: `on=NODE`; `terminated=TIME`, with its creation time; `evicted`; `graceful`: it is being deleted with a
//!   grace period; of a node: `out-of-service`;
//! - `unwatched`: the watch has not delivered it; `stale`: it is deleted, and the watch has not delivered the deletion;
//! - `failures=N`: the first N calls about it fail.

mod foreground;
mod orphaning;
mod owner_references;
mod pod_gc;
mod properties;
mod requests;
mod watches;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use expect_test::Expect;
use serde_json::json;

use super::*;
use crate::controller::{Controller as _, Event};

const SERVED: &[(&str, &str, &str, bool)] = &[
    ("", "Pod", "pods", true),
    ("", "Node", "nodes", false),
    ("", "ConfigMap", "configmaps", true),
    ("apps", "DaemonSet", "daemonsets", true),
];

fn resources() -> Vec<Arc<Resource>> {
    let all = SERVED.iter().map(|(group, kind, plural, namespaced)| {
        Arc::new(Resource {
            group: (*group).into(),
            version: "v1".into(),
            kind: (*kind).into(),
            plural: (*plural).into(),
            namespaced: *namespaced,
        })
    });
    all.collect()
}

/// The index of a kind in the watches of the collector.
fn kind_of(resource: &Arc<Resource>) -> usize {
    resources().iter().position(|it| it == resource).unwrap()
}

fn applied(fact: TrackedObject) -> Event<TrackedObject> {
    Event::Applied { kind: kind_of(&fact.resource), fact }
}

fn listed(resource: &Arc<Resource>, facts: Vec<TrackedObject>) -> Event<TrackedObject> {
    Event::Listed { kind: kind_of(resource), facts, resource_version: 1 }
}

/// The response of the API server to a read of an owner.
fn encode(object: &TrackedObject) -> Vec<u8> {
    let metadata = json!({
        "name": &*object.key.name,
        "namespace": &*object.key.namespace,
        "uid": &*object.uid,
        "resourceVersion": object.resource_version.to_string(),
        "deletionTimestamp": object.deleting.then_some("2026-01-01T00:00:00Z"),
        "finalizers": object.finalizers.iter().map(|it| &**it).collect::<Vec<&str>>(),
    });
    json!({ "metadata": metadata }).to_string().into_bytes()
}

/// Runs a scenario to its end, and compares the calls and the remaining objects.
fn check(scenario: &str, expected: Expect) {
    let mut cluster = TestCluster::of(scenario);
    cluster.run();
    expected.assert_eq(&cluster.report());
}

struct TestCluster {
    collector: GarbageCollector,
    server: BTreeMap<Text, TrackedObject>,
    failures: BTreeMap<Text, u32>,
    queue: BTreeSet<Text>,
    wakes: BTreeMap<Text, Time>,
    now: Time,
    until: Time,
    version: u64,
    log: String,
    /// Events that the watches have not delivered yet, while they are delayed.
    delayed: Option<Vec<Event<TrackedObject>>>,
}

impl TestCluster {
    fn of(scenario: &str) -> Self {
        let (mut server, mut watched, mut failures) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        for (version, line) in (1..).zip(scenario.lines().map(str::trim).filter(|it| !it.is_empty())) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let object = object(&words, version);
            if !words.contains(&"unwatched") {
                watched.push(object.clone());
            }
            if let Some(times) = words.iter().find_map(|it| it.strip_prefix("failures=")) {
                failures.insert(object.uid.clone(), times.parse().unwrap());
            }
            if !words.contains(&"stale") {
                server.insert(object.uid.clone(), object);
            }
        }
        let mut cluster = Self {
            collector: GarbageCollector::new(resources(), resources()),
            server,
            failures,
            queue: BTreeSet::new(),
            wakes: BTreeMap::new(),
            now: Time::from_secs(0),
            until: Time::from_secs(15),
            version: 100,
            log: String::new(),
            delayed: None,
        };
        for resource in resources() {
            let objects = watched.iter().filter(|it| it.resource == resource).cloned().collect();
            cluster.apply(listed(&resource, objects));
        }
        cluster
    }

    fn apply(&mut self, event: Event<TrackedObject>) {
        self.queue.extend(self.collector.apply(event, self.now));
    }

    fn notify(&mut self, event: Event<TrackedObject>) {
        match &mut self.delayed {
            Some(delayed) => delayed.push(event),
            None => self.apply(event),
        }
    }

    fn deliver(&mut self) {
        self.delayed.take().into_iter().flatten().for_each(|it| self.apply(it));
    }

    /// Reconciles until nothing is left to do, then advances the clock to the next timer, up to `until`.
    fn run(&mut self) {
        for _ in 0..2000 {
            let Some(uid) = self.queue.pop_first() else {
                let Some((uid, at)) =
                    self.wakes.iter().min_by_key(|(_, at)| **at).map(|(u, t)| (u.clone(), *t))
                else {
                    return;
                };
                // Retries and expired cache entries could go on forever.
                if self.until < at {
                    return;
                }
                self.now = at;
                self.wakes.remove(&uid);
                self.queue.insert(uid);
                continue;
            };
            let reconcile = self.collector.reconcile(&uid, self.now);
            match reconcile.wake_at {
                Some(at) => drop(self.wakes.insert(uid, at)),
                None => drop(self.wakes.remove(&uid)),
            }
            for call in reconcile.calls {
                if let GarbageCollectorCall::Delete { object, .. } = &call {
                    self.assert_no_solid_owner(object);
                }
                let (outcome, event) = self.make(&call);
                let refusal = match &outcome {
                    Outcome::Refused(it) => format!("  -> {it}"),
                    Outcome::Done(_) => String::new(),
                };
                self.log += &format!("{call}{refusal}\n");
                self.queue.extend(self.collector.apply_outcome(&call, outcome, self.now).keys);
                event.into_iter().for_each(|it| self.notify(it));
            }
        }
        panic!("does not settle:\n{}", self.log);
    }

    fn make(&mut self, call: &GarbageCollectorCall) -> (Outcome, Option<Event<TrackedObject>>) {
        let uid = match call {
            GarbageCollectorCall::Read(it) => {
                let is_it = |o: &&TrackedObject| o.resource == it.resource && o.key == it.key;
                let found = self.server.values().find(is_it).cloned();
                let found =
                    found.map_or(Outcome::Refused(CallError::NotFound), |it| Outcome::Done(encode(&it)));
                return (found, None);
            }
            GarbageCollectorCall::Delete { object, .. }
            | GarbageCollectorCall::RemoveOwners { object, .. }
            | GarbageCollectorCall::UnblockOwners { object }
            | GarbageCollectorCall::RemoveFinalizer { object, .. }
            | GarbageCollectorCall::MarkPodFailed { object, .. }
            | GarbageCollectorCall::ForceDeletePod { object, .. } => object.uid.clone(),
        };
        if let Some(times) = self.failures.get_mut(&uid).filter(|it| 0 < **it) {
            *times -= 1;
            return (Outcome::Refused(CallError::Server("not now".to_string())), None);
        }
        let Some(object) = self.server.get_mut(&uid) else {
            return (Outcome::Refused(CallError::NotFound), None);
        };
        match call {
            GarbageCollectorCall::Read(_) => unreachable!("read above"),
            GarbageCollectorCall::Delete { object: listed, .. }
            | GarbageCollectorCall::RemoveFinalizer { object: listed, .. }
                if listed.resource_version != object.resource_version =>
            {
                return (Outcome::Refused(CallError::Conflict), None);
            }
            GarbageCollectorCall::Delete { propagation, .. } => {
                object.deleting = true;
                object.pod = object
                    .pod
                    .take()
                    .map(|it| Arc::new(Pod { has_zero_grace_period: true, ..(*it).clone() }));
                match propagation {
                    Propagation::Foreground if !object.has_finalizer(FINALIZER_FOREGROUND) => {
                        object.finalizers.push(FINALIZER_FOREGROUND.into())
                    }
                    Propagation::Orphan if !object.has_finalizer(FINALIZER_ORPHAN) => {
                        object.finalizers.push(FINALIZER_ORPHAN.into())
                    }
                    _ => {}
                }
            }
            GarbageCollectorCall::RemoveOwners { owners, .. } => {
                object.owners.retain(|it| !owners.contains(&it.uid))
            }
            GarbageCollectorCall::UnblockOwners { .. } => {
                object.owners.iter_mut().for_each(|it| it.block_owner_deletion = false)
            }
            GarbageCollectorCall::MarkPodFailed { .. } => {
                Arc::make_mut(object.pod.as_mut().unwrap()).terminated = true
            }
            GarbageCollectorCall::ForceDeletePod { .. } => {
                object.deleting = true;
                Arc::make_mut(object.pod.as_mut().unwrap()).has_zero_grace_period = true;
            }
            GarbageCollectorCall::RemoveFinalizer { finalizer, .. } => {
                object.finalizers.retain(|it| **it != **finalizer)
            }
        }
        self.version += 1;
        object.resource_version = self.version;
        if object.deleting && object.finalizers.is_empty() {
            let event = Event::Deleted { kind: kind_of(&object.resource), fact: object.clone() };
            self.server.remove(&uid);
            return (Outcome::Done(Vec::new()), Some(event));
        }
        let now = object.clone();
        (Outcome::Done(Vec::new()), Some(applied(now)))
    }

    fn report(&self) -> String {
        let mut report = self.log.clone();
        for object in self.server.values() {
            report += &format!("left: {object}");
            for it in &object.owners {
                report += &format!(" of {}", it.uid);
            }
            report += if object.deleting { " deleting\n" } else { "\n" };
        }
        report
    }
}

impl TestCluster {
    /// A delete of another version fails, so only the current version is checked.
    fn assert_no_solid_owner(&self, object: &TrackedObject) {
        let now = self.server.get(&object.uid).filter(|it| it.resource_version == object.resource_version);
        for owner in now.iter().flat_map(|it| &it.owners) {
            let state = self.actual_owner_state(object, owner);
            assert_ne!(state, Some(OwnerState::Solid), "{object} has a solid owner:\n{}", self.report());
        }
    }

    /// The state of an owner on the server. `None` if it cannot be resolved.
    fn actual_owner_state(&self, object: &TrackedObject, owner: &OwnerReference) -> Option<OwnerState> {
        let identity = self.collector.owner_identity(object, owner)?;
        let is_it = |it: &&TrackedObject| it.resource == identity.resource && it.key == identity.key;
        let found = self.server.get(&owner.uid).filter(is_it);
        Some(found.map_or(OwnerState::Absent, TrackedObject::owner_state))
    }
}

fn object(words: &[&str], version: u64) -> TrackedObject {
    let value_of = |word: &str| words.iter().find_map(|it| it.strip_prefix(word));
    let resource = resources().into_iter().find(|it| *it.kind == *words[0]).unwrap();
    let namespace = if resource.namespaced { value_of("ns=").unwrap_or("a") } else { "" };
    let owner = |word: &str| {
        let (word, blocks) = word.strip_suffix('!').map_or((word, false), |it| (it, true));
        let (kind, name) = word.split_once('/').unwrap();
        let (name, uid) = name.split_once('@').unwrap_or((name, name));
        let group = SERVED.iter().find(|it| it.1 == kind).map_or("other.io", |it| it.0);
        let api_version = if group.is_empty() { "v1".to_string() } else { format!("{group}/v1") };
        OwnerReference {
            api_version: api_version.as_str().into(),
            kind: kind.into(),
            name: name.into(),
            uid: uid.into(),
            block_owner_deletion: blocks,
        }
    };
    let pod = (words[0] == "Pod").then(|| {
        Arc::new(Pod {
            node: value_of("on=").unwrap_or_default().into(),
            terminated: value_of("terminated=").is_some(),
            evicted: words.contains(&"evicted"),
            created: Time::from_secs(value_of("terminated=").map_or(0, |it| it.parse().unwrap())),
            has_zero_grace_period: words.contains(&"deleting") && !words.contains(&"graceful"),
        })
    });
    TrackedObject {
        pod,
        out_of_service: (words[0] == "Node").then(|| words.contains(&"out-of-service")),
        resource,
        key: ObjectKey::new(namespace, words[1]),
        uid: value_of("uid=").unwrap_or(words[1]).into(),
        resource_version: version,
        owners: words.iter().filter_map(|it| it.strip_prefix("of=")).map(owner).collect(),
        deleting: words.contains(&"deleting"),
        finalizers: words.iter().filter_map(|it| it.strip_prefix("finalizer=")).map(Text::from).collect(),
    }
}
