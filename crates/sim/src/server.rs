//! A simulated API server. It keeps objects as JSON in the real store, with the semantics that the rules rely on:
//! optimistic concurrency, generations, graceful deletion, finalizers, and strategic merge of owner references.
//!
//! The state of this server is the authoritative state of the cluster, against which the invariants are checked. A run
//! can have a second server, which lags behind and commits its writes to the same store.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use muster_api::core_v1::PodPhase;
use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{
    NODE_DISK_PRESSURE, NODE_MEMORY_PRESSURE, NODE_NETWORK_UNAVAILABLE, NODE_PID_PRESSURE,
};
use muster_engine::controller::CallError;
use muster_engine::daemonset::facts::{self, Kind, Revision, Set, Template, WatchedObject};
use muster_engine::daemonset::progressive::policy::Policy;
use muster_engine::daemonset::progressive::record::RolloutRecord;
use muster_engine::scenario;
use muster_store::{ObjectDraft, Precondition, Store};
use serde_json::{Value, json};

use crate::watch_cache::WatchCache;

/// The component that made a change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Actor {
    /// A replica of the DaemonSet controller, by its index in `World::replicas`.
    Controller(usize),
    Scheduler,
    Kubelet,
    NodeLifecycle,
    GarbageCollector,
    User,
}

/// One committed change of an object.
#[derive(Clone, Debug)]
pub struct SimCommit {
    pub revision: u64,
    pub kind: Kind,
    pub key: ObjectKey,
    pub actor: Actor,
    /// Time of the commit.
    pub at: Time,
    /// The parsed object after the change. `None` if the object was deleted, or if the DaemonSet controller ignores it.
    pub fact: Option<WatchedObject>,
    /// For a change by the lagging server: the resourceVersion that the object had in the state of this server, or 0 if
    /// the object did not exist there. `None` for a change by the current server.
    pub based_on: Option<u64>,
}

/// One version of an object: the revision of the change, and the parsed object after the change. The object is `None`
/// if it was deleted, or if the DaemonSet controller ignores it.
type ObjectVersion = (u64, Option<WatchedObject>);

/// The simulated API server.
#[derive(Debug)]
pub struct SimServer {
    pub store: Store,
    /// Stores equal strings of decoded objects only once.
    shared: Interner,
    /// The current objects as JSON.
    cache: WatchCache,
    /// The current DaemonSets, parsed, by key.
    pub sets: BTreeMap<ObjectKey, Arc<Set>>,
    /// The current nodes, parsed, by name.
    pub nodes: BTreeMap<Text, Arc<facts::Node>>,
    /// The current pods, parsed, by key. Pods that the DaemonSet controller ignores are left out.
    pub pods: BTreeMap<ObjectKey, Arc<facts::Pod>>,
    /// The current ControllerRevisions, parsed, by key. ControllerRevisions that the DaemonSet controller ignores are
    /// left out.
    pub revisions: BTreeMap<ObjectKey, Arc<Revision>>,
    /// The current RolloutPolicies and ClusterRolloutPolicies, parsed, by kind and key.
    pub policies: BTreeMap<(Kind, ObjectKey), Arc<Policy>>,
    /// The current DaemonRollouts, parsed, by key.
    pub rollouts: BTreeMap<ObjectKey, Arc<RolloutRecord>>,
    /// All pod templates that sets have ever had, and those that [`SimServer::record_template`] has recorded, by `data`
    /// of their ControllerRevision.
    pub templates: Arc<BTreeMap<Text, Template>>,
    /// All versions of every object. A controller's cache at an earlier revision is derived from them.
    versions: BTreeMap<(Kind, ObjectKey), Vec<ObjectVersion>>,
    /// All commits of the run, in order of their revisions.
    pub log: Vec<SimCommit>,
    /// Time of the last renewal of each node's Lease, by node name.
    pub leases: BTreeMap<Text, Time>,
    /// Number of generated UIDs.
    uids: u64,
    /// Number of generated names.
    names: u64,
    /// Maximum number of pods, as in a ResourceQuota. Creates of more pods are rejected. `None` means no limit.
    pub quota: Option<usize>,
    /// Whether the namespace is terminating. In a terminating namespace, creates of pods are rejected.
    pub namespace_terminating: bool,
    now: Time,
}

/// Maximum number of commits in the store's history. No run makes more commits, so no watch fails because of
/// compaction.
const HISTORY_COMMITS_MAX: usize = 100_000;

impl Default for SimServer {
    fn default() -> Self {
        Self {
            store: Store::new(HISTORY_COMMITS_MAX),
            shared: Interner::default(),
            cache: WatchCache::default(),
            sets: BTreeMap::new(),
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            revisions: BTreeMap::new(),
            policies: BTreeMap::new(),
            rollouts: BTreeMap::new(),
            templates: Arc::default(),
            versions: BTreeMap::new(),
            log: Vec::new(),
            leases: BTreeMap::new(),
            uids: 0,
            names: 0,
            quota: None,
            namespace_terminating: false,
            now: Time::default(),
        }
    }
}

/// Adds the template of a set to `templates`, unless `templates` already contains it.
fn add_template(templates: &mut Arc<BTreeMap<Text, Template>>, set: &Set) {
    if !templates.contains_key(&set.template.data) {
        Arc::make_mut(templates).insert(set.template.data.clone(), set.template.clone());
    }
}

/// Returns the common prefix of the store keys of all objects of a kind.
pub fn store_key_prefix(kind: Kind) -> &'static str {
    match kind {
        Kind::Sets => "daemonsets.apps/",
        Kind::Nodes => "nodes/",
        Kind::Pods => "pods/",
        Kind::Revisions => "controllerrevisions.apps/",
        Kind::Policies => "rolloutpolicies.muster.dev/",
        Kind::ClusterPolicies => "clusterrolloutpolicies.muster.dev/",
        Kind::Rollouts => "daemonrollouts.muster.dev/",
        Kind::Namespaces => "namespaces/",
    }
}

/// Returns the key of an object in the store.
fn store_key(kind: Kind, key: &ObjectKey) -> String {
    format!("{}{}/{}", store_key_prefix(kind), key.namespace, key.name)
}

impl SimServer {
    /// Sets the current time of the server.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Returns the current revision of the store.
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    /// Returns the current JSON of an object, or `None` if the object does not exist.
    pub fn object(&self, kind: Kind, key: &ObjectKey) -> Option<&Arc<Value>> {
        self.cache.object(kind, key)
    }

    /// Returns the JSON of an object as the bytes that are sent to clients, or no bytes if the object does not exist.
    pub fn object_json(&self, kind: Kind, key: &ObjectKey) -> Bytes {
        self.store.get(&store_key(kind, key)).map(|it| it.value.clone()).unwrap_or_default()
    }

    /// Returns all current objects of a kind, as JSON.
    pub fn objects(&self, kind: Kind) -> impl Iterator<Item = (&ObjectKey, &Arc<Value>)> {
        self.cache.objects(kind)
    }

    /// Returns the parsed object (the fact) at a revision. Returns `None` if the object did not exist, or if the
    /// DaemonSet controller ignores it.
    pub fn object_at_revision(&self, kind: Kind, key: &ObjectKey, revision: u64) -> Option<&WatchedObject> {
        let versions = self.versions.get(&(kind, key.clone()))?;
        versions.iter().rev().find(|(at, _)| *at <= revision).and_then(|(_, fact)| fact.as_ref())
    }

    /// Returns all versions of an object that were current at a revision between `from` and `to`, both included. A
    /// version is `None` if the object did not exist, or if the DaemonSet controller ignores it.
    pub fn versions_between(
        &self,
        kind: Kind,
        key: &ObjectKey,
        from: u64,
        to: u64,
    ) -> Vec<Option<&WatchedObject>> {
        let Some(versions) = self.versions.get(&(kind, key.clone())) else { return vec![None] };
        let first = versions.iter().rposition(|(at, _)| *at <= from);
        let mut found: Vec<Option<&WatchedObject>> = Vec::new();
        if first.is_none() {
            found.push(None);
        }
        let held = versions.iter().enumerate().filter(|(i, (at, _))| Some(*i) >= first && *at <= to);
        found.extend(held.map(|(_, (_, fact))| fact.as_ref()));
        found
    }

    /// Returns all objects of a kind as they were at a revision, parsed. Objects that the DaemonSet controller ignores
    /// are left out.
    pub fn list_at_revision(&self, kind: Kind, revision: u64) -> Vec<WatchedObject> {
        let of_kind = self.versions.iter().filter(|((it, _), _)| *it == kind);
        of_kind
            .filter_map(|((kind, key), _)| self.object_at_revision(*kind, key, revision).cloned())
            .collect()
    }

    /// Whether new pods are rejected, because the quota is used up or the namespace is terminating.
    pub fn rejects_new_pods(&self) -> bool {
        self.namespace_terminating || self.quota.is_some_and(|max| max <= self.pods.len())
    }

    /// Records the pod template of a set in [`SimServer::templates`], but does not create the set. It is used for a
    /// template that only a ControllerRevision has.
    pub fn record_template(&mut self, set: &Value) {
        let set = facts::decode_set(set.to_string().as_bytes(), &mut self.shared).expect("a set");
        add_template(&mut self.templates, &set);
    }

    /// Returns the handler of a request to the current server.
    fn request_handler(&mut self) -> RequestHandler<'_> {
        RequestHandler { store: self, cache: None }
    }

    /// Creates an object on the current server, not on the lagging one. See [`RequestHandler::create`].
    pub fn create(&mut self, kind: Kind, object: Value, actor: Actor) -> Result<ObjectKey, CallError> {
        self.request_handler().create(kind, object, actor)
    }

    /// Updates an object on the current server, not on the lagging one. See [`RequestHandler::update`].
    pub fn update(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        actor: Actor,
        change: impl FnOnce(&mut Value),
    ) -> Result<u64, CallError> {
        self.request_handler().update(kind, key, actor, change)
    }

    /// Patches an object on the current server, not on the lagging one. See [`RequestHandler::patch`].
    pub fn patch(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        patch: &Value,
        actor: Actor,
    ) -> Result<u64, CallError> {
        self.request_handler().patch(kind, key, patch, actor)
    }

    /// Deletes an object on the current server, not on the lagging one. See [`RequestHandler::delete`].
    pub fn delete(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        uid: Option<&str>,
        resource_version: Option<u64>,
        force: bool,
        actor: Actor,
    ) -> Result<(), CallError> {
        self.request_handler().delete(kind, key, uid, resource_version, force, actor)
    }

    /// Returns the resourceVersion of an object, or 0 if the object does not exist.
    pub fn resource_version(&self, kind: Kind, key: &ObjectKey) -> u64 {
        self.store.get(&store_key(kind, key)).map_or(0, |it| it.modified)
    }

    /// Returns the UID of an object, or `None` if the object does not exist.
    pub fn uid(&self, kind: Kind, key: &ObjectKey) -> Option<&str> {
        self.object(kind, key)?["metadata"]["uid"].as_str()
    }

    /// Returns the sets, nodes, pods and revisions as scenario text, which a test can parse.
    pub fn scenario_text(&self) -> String {
        let of = |kind| self.objects(kind).map(|(_, it)| (**it).clone()).collect();
        scenario::print(&scenario::World {
            now: self.now.as_micros() / 1_000_000 - scenario::EPOCH_S,
            sets: of(Kind::Sets),
            nodes: of(Kind::Nodes),
            pods: of(Kind::Pods),
            revisions: of(Kind::Revisions),
        })
    }

    /// Replays a change that was recorded on another server, with the same bytes and the same revision. `json` is
    /// `None` for a deletion.
    pub fn replay_commit(
        &mut self,
        revision: u64,
        kind: Kind,
        key: &ObjectKey,
        json: Option<Bytes>,
        actor: Actor,
        at: Time,
    ) {
        // Skipped revisions belong to kinds that the simulation does not have.
        self.store.skip_to_revision(revision.saturating_sub(1));
        self.now = self.now.max(at);
        let object = json.map(|it| {
            let draft = ObjectDraft::split(&it).expect("it has a resourceVersion");
            (serde_json::from_slice(&it).expect("JSON"), draft)
        });
        self.store_change(kind, key, object, actor, None);
    }

    /// Commits a new version of an object, or the deletion of the object if `object` is `None`. `based_on` is described
    /// at [`SimCommit::based_on`].
    fn commit(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        object: Option<Value>,
        actor: Actor,
        based_on: Option<u64>,
    ) {
        let object = object.map(|mut object| {
            object["metadata"]["resourceVersion"] = "".into();
            let json = serde_json::to_vec(&object).expect("JSON");
            (object, ObjectDraft::split(&json).expect("it has a resourceVersion"))
        });
        self.store_change(kind, key, object, actor, based_on);
    }

    /// Writes a change of an object to the store, and records the parsed object and the commit. `object` is `None` for
    /// a deletion.
    fn store_change(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        object: Option<(Value, ObjectDraft)>,
        actor: Actor,
        based_on: Option<u64>,
    ) {
        let path = store_key(kind, key);
        let revision = match object {
            Some((mut object, draft)) => {
                let event = self.store.put(&path, Precondition::Any, &draft).expect("no precondition");
                object["metadata"]["resourceVersion"] = event.revision.to_string().into();
                self.cache.put(kind, key.clone(), object);
                self.record_fact(kind, key, Some(event.latest_value()));
                event.revision
            }
            None => {
                self.cache.remove(kind, key.clone()).expect("it was there");
                let event = self.store.delete(&path, Precondition::Any).expect("it was there");
                self.record_fact(kind, key, None);
                event.revision
            }
        };
        let fact =
            self.versions.get(&(kind, key.clone())).and_then(|it| it.last()).and_then(|it| it.1.clone());
        self.log.push(SimCommit { revision, kind, key: key.clone(), actor, at: self.now, fact, based_on });
    }

    /// Parses the newest version of an object. Records the result (the fact) as the current object and in the object's
    /// versions. `json` is `None` for a deletion.
    fn record_fact(&mut self, kind: Kind, key: &ObjectKey, json: Option<&[u8]>) {
        let shared = &mut self.shared;
        let parsed = json.and_then(|json| match kind {
            Kind::Sets => Some(WatchedObject::Set(Arc::new(facts::decode_set(json, shared).expect("a set")))),
            Kind::Nodes => {
                Some(WatchedObject::Node(Arc::new(facts::decode_node(json, shared).expect("a node"))))
            }
            Kind::Pods => {
                facts::decode_pod(json, shared).expect("a pod").map(|it| WatchedObject::Pod(Arc::new(it)))
            }
            Kind::Revisions => facts::decode_revision(json, shared)
                .expect("a revision")
                .map(|it| WatchedObject::Revision(Arc::new(it))),
            kind => Some(facts::decode_object(kind, json, shared).expect("an object of a rollout")),
        });
        if let Some(WatchedObject::Set(set)) = &parsed {
            add_template(&mut self.templates, set);
        }
        match (&parsed, kind) {
            (Some(WatchedObject::Set(it)), _) => drop(self.sets.insert(key.clone(), it.clone())),
            (Some(WatchedObject::Node(it)), _) => drop(self.nodes.insert(key.name.clone(), it.clone())),
            (Some(WatchedObject::Pod(it)), _) => drop(self.pods.insert(key.clone(), it.clone())),
            (Some(WatchedObject::Revision(it)), _) => drop(self.revisions.insert(key.clone(), it.clone())),
            (Some(WatchedObject::Policy(it)), kind) => {
                drop(self.policies.insert((kind, key.clone()), it.clone()))
            }
            (Some(WatchedObject::Rollout(it)), _) => drop(self.rollouts.insert(key.clone(), it.clone())),
            (_, Kind::Sets) => drop(self.sets.remove(key)),
            (_, Kind::Nodes) => drop(self.nodes.remove(&key.name)),
            (_, Kind::Pods) => drop(self.pods.remove(key)),
            (_, Kind::Revisions) => drop(self.revisions.remove(key)),
            (_, Kind::Rollouts) => drop(self.rollouts.remove(key)),
            (_, Kind::Policies | Kind::ClusterPolicies) => drop(self.policies.remove(&(kind, key.clone()))),
            _ => {}
        }
        let revision = self.store.revision();
        self.versions.entry((kind, key.clone())).or_default().push((revision, parsed));
    }
}

/// Handles requests on one of the two servers. It bases a write on the objects in the state of this server, and commits
/// the write to the shared store.
#[derive(Debug)]
pub struct RequestHandler<'a> {
    pub store: &'a mut SimServer,
    /// The objects in the state of the server. `None` for the current server, whose state is that of the store.
    pub cache: Option<&'a WatchCache>,
}

impl RequestHandler<'_> {
    /// Returns the JSON of an object in the state of the server, or `None` if the object does not exist there.
    pub fn object(&self, kind: Kind, key: &ObjectKey) -> Option<&Arc<Value>> {
        match self.cache {
            Some(cache) => cache.object(kind, key),
            None => self.store.object(kind, key),
        }
    }

    /// Returns the resourceVersion of an object in the state of the server, or 0 if the object does not exist there.
    fn resource_version(&self, kind: Kind, key: &ObjectKey) -> u64 {
        match self.cache {
            Some(cache) => cache.resource_version(kind, key),
            None => self.store.resource_version(kind, key),
        }
    }

    /// Commits a new version of an object, or the deletion of the object if `object` is `None`.
    fn commit(&mut self, kind: Kind, key: &ObjectKey, object: Option<Value>, actor: Actor) {
        let based_on = self.cache.map(|it| it.resource_version(kind, key));
        self.store.commit(kind, key, object, actor, based_on);
    }

    /// Creates an object. Generates a name, UID, creation time and generation if they are missing, and sets the
    /// defaults of the simulation. Fails if the object already exists, or if it is a pod and new pods are rejected.
    pub fn create(&mut self, kind: Kind, mut object: Value, actor: Actor) -> Result<ObjectKey, CallError> {
        if kind == Kind::Pods {
            if self.store.namespace_terminating {
                return Err(CallError::NamespaceTerminating);
            }
            if self.store.quota.is_some_and(|max| max <= self.store.pods.len()) {
                return Err(CallError::Forbidden("exceeded quota".into()));
            }
        }
        let meta = &mut object["metadata"];
        if meta["name"].as_str().is_none_or(str::is_empty) {
            self.store.names += 1;
            let generated = format!(
                "{}{}",
                meta["generateName"].as_str().unwrap_or("x-"),
                generated_name_suffix(self.store.names)
            );
            meta["name"] = generated.into();
        }
        let key = ObjectKey::new(
            meta["namespace"].as_str().unwrap_or_default(),
            meta["name"].as_str().unwrap_or_default(),
        );
        if self.object(kind, &key).is_some() {
            return Err(CallError::AlreadyExists);
        }
        if meta["uid"].as_str().is_none_or(str::is_empty) {
            self.store.uids += 1;
            meta["uid"] = format!("u-{}-{}", key.name, self.store.uids).into();
        }
        if meta["creationTimestamp"].is_null() {
            meta["creationTimestamp"] = self.store.now.to_rfc3339().into();
        }
        if has_generation(kind) && meta["generation"].is_null() {
            meta["generation"] = 1.into();
        }
        if kind == Kind::Pods {
            set_pod_defaults(&mut object);
        }
        if kind == Kind::Nodes {
            set_conditions_for_taints(&mut object);
            // Every node has enough resources for all pods: the simulation does not cover resource shortage.
            object["status"]["allocatable"] = json!({"cpu": "64", "memory": "64Gi", "pods": "110"});
        }
        self.commit(kind, &key, Some(object), actor);
        Ok(key)
    }

    /// Updates an object with the function `change`. Commits nothing if `change` leaves the object as it is. Deletes an
    /// object that is being deleted when `change` removes its last finalizer. Exception: a pod that may still be
    /// running is not deleted. Returns the resourceVersion of the object, or the revision of its deletion.
    pub fn update(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        actor: Actor,
        change: impl FnOnce(&mut Value),
    ) -> Result<u64, CallError> {
        let before = self.object(kind, key).cloned().ok_or(CallError::NotFound)?;
        let mut object = (*before).clone();
        change(&mut object);
        if kind == Kind::Nodes && actor == Actor::User {
            set_conditions_for_taints(&mut object);
        }
        if object == *before {
            return Ok(self.resource_version(kind, key));
        }
        if has_generation(kind) && object["spec"] != before["spec"] {
            object["metadata"]["generation"] =
                (before["metadata"]["generation"].as_i64().unwrap_or(0) + 1).into();
        }
        let no_finalizers = object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        let last_finalizer_removed = no_finalizers
            && !before["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
            && !object["metadata"]["deletionTimestamp"].is_null();
        if last_finalizer_removed && (kind != Kind::Pods || may_delete_pod_immediately(&object)) {
            self.commit(kind, key, None, actor);
        } else {
            self.commit(kind, key, Some(object), actor);
        }
        Ok(self.store.revision())
    }

    /// Patches an object. UID and resourceVersion in the patch are preconditions. Returns the resourceVersion of the
    /// object.
    pub fn patch(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        patch: &Value,
        actor: Actor,
    ) -> Result<u64, CallError> {
        let before = self.object(kind, key).ok_or(CallError::NotFound)?;
        let meta = &patch["metadata"];
        for guard in ["uid", "resourceVersion"] {
            if !meta[guard].is_null() && meta[guard] != before["metadata"][guard] {
                return Err(CallError::Conflict);
            }
        }
        self.update(kind, key, actor, |object| apply_patch(object, patch))
    }

    /// Replaces the status of an object. Fails with a conflict unless UID and resourceVersion in `body` are those of
    /// the object. Returns the new resourceVersion of the object.
    pub fn put_status(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        body: &Value,
        actor: Actor,
    ) -> Result<u64, CallError> {
        let before = self.object(kind, key).ok_or(CallError::NotFound)?;
        for guard in ["uid", "resourceVersion"] {
            if body["metadata"][guard] != before["metadata"][guard] {
                return Err(CallError::Conflict);
            }
        }
        self.update(kind, key, actor, |object| object["status"] = body["status"].clone())
    }

    /// Deletes an object. `uid` and `resource_version` are preconditions. With `force`, a pod without finalizers is
    /// deleted even if it may still be running.
    ///
    /// Rule: an object with finalizers only gets a deletion timestamp. So does a pod that may still be running, unless
    /// `force` is true. The kubelet deletes such a pod after its containers have stopped.
    pub fn delete(
        &mut self,
        kind: Kind,
        key: &ObjectKey,
        uid: Option<&str>,
        resource_version: Option<u64>,
        force: bool,
        actor: Actor,
    ) -> Result<(), CallError> {
        let before = self.object(kind, key).cloned().ok_or(CallError::NotFound)?;
        let moved = uid.is_some_and(|it| before["metadata"]["uid"] != *it)
            || resource_version.is_some_and(|it| it != self.resource_version(kind, key));
        if moved {
            return Err(CallError::Conflict);
        }
        let held = !before["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty);
        let at_once = force || kind != Kind::Pods || may_delete_pod_immediately(&before);
        if at_once && !held {
            self.commit(kind, key, None, actor);
            return Ok(());
        }
        if !before["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let mut object = (*before).clone();
        object["metadata"]["deletionTimestamp"] = self.store.now.to_rfc3339().into();
        if kind == Kind::Sets {
            object["metadata"]["generation"] =
                (object["metadata"]["generation"].as_i64().unwrap_or(0) + 1).into();
        }
        self.commit(kind, key, Some(object), actor);
        Ok(())
    }
}

/// Whether objects of the kind have `metadata.generation`, which increases with each change of the spec.
fn has_generation(kind: Kind) -> bool {
    matches!(kind, Kind::Sets | Kind::Policies | Kind::ClusterPolicies | Kind::Rollouts)
}

/// Sets the spec fields that every pod of the simulation has, as a mutating webhook would: the restart policy
/// `OnFailure`, the host network, a long grace period and a readiness probe. A pod without a status becomes Pending.
fn set_pod_defaults(pod: &mut Value) {
    if pod["status"].is_null() {
        pod["status"] = json!({"phase": "Pending"});
    }
    pod["spec"]["restartPolicy"] = "OnFailure".into();
    pod["spec"]["hostNetwork"] = true.into();
    pod["spec"]["terminationGracePeriodSeconds"] = 90.into();
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        container["readinessProbe"] = json!({"exec": {}, "periodSeconds": 1, "failureThreshold": 1});
    }
}

/// Makes the node conditions agree with the taints that represent them, such as `MemoryPressure` with
/// `memory-pressure`. A condition becomes True if the node has the taint. An existing condition becomes False if the
/// node does not have the taint. In the same way, `spec.unschedulable` follows the taint `unschedulable`. If a
/// condition and its taint disagreed, the node lifecycle controller would change the taint.
fn set_conditions_for_taints(node: &mut Value) {
    /// Names of taints without the prefix `node.kubernetes.io/`, each with the type of the node condition that the
    /// taint represents.
    const CONDITION_TAINTS: [(&str, &str); 4] = [
        ("network-unavailable", NODE_NETWORK_UNAVAILABLE),
        ("memory-pressure", NODE_MEMORY_PRESSURE),
        ("disk-pressure", NODE_DISK_PRESSURE),
        ("pid-pressure", NODE_PID_PRESSURE),
    ];
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let has = |name: &str| taints.iter().any(|it| it["key"] == format!("node.kubernetes.io/{name}"));
    let has_condition = |node: &Value, kind: &str| {
        node["status"]["conditions"].as_array().into_iter().flatten().any(|it| it["type"] == *kind)
    };
    for (name, kind) in CONDITION_TAINTS {
        if has(name) || has_condition(node, kind) {
            let status = if has(name) { "True" } else { "False" };
            merge_conditions(&mut node["status"], &[json!({"type": kind, "status": status})]);
        }
    }
    if has("unschedulable") || node["spec"]["unschedulable"] == true {
        node["spec"]["unschedulable"] = has("unschedulable").into();
    }
}

/// Whether a pod may be deleted immediately, because it was never bound or has finished.
fn may_delete_pod_immediately(pod: &Value) -> bool {
    let unbound = pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty);
    unbound || pod["status"]["phase"].as_str().is_some_and(|it| PodPhase::parse(it).is_terminal())
}

/// Applies a patch as a JSON merge patch. As in a strategic merge patch, however, `ownerReferences` are merged by UID,
/// `conditions` are merged by type, and `podIPs` are replaced. The fields `uid` and `resourceVersion` are ignored,
/// because they are preconditions.
pub fn apply_patch(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    for (name, change) in fields {
        match (name.as_str(), change) {
            ("uid" | "resourceVersion", _) => {}
            ("ownerReferences", Value::Array(references)) => merge_owner_references(object, references),
            ("conditions", Value::Array(conditions)) => merge_conditions(object, conditions),
            ("podIPs", Value::Array(addresses)) => {
                object[name] = addresses.iter().filter(|it| it["$patch"].is_null()).cloned().collect();
            }
            (_, Value::Null) => {
                if let Some(it) = object.as_object_mut() {
                    it.remove(name);
                }
            }
            (_, Value::Object(_)) => {
                if !object[name].is_object() {
                    object[name] = json!({});
                }
                apply_patch(&mut object[name], change);
            }
            _ => object[name] = change.clone(),
        }
    }
}

/// Merges owner references by UID. A reference with `$patch: delete` removes the reference with its UID.
fn merge_owner_references(metadata: &mut Value, references: &[Value]) {
    let mut owners = metadata["ownerReferences"].as_array().cloned().unwrap_or_default();
    for reference in references {
        owners.retain(|it| it["uid"] != reference["uid"]);
        if reference["$patch"] != "delete" {
            owners.push(reference.clone());
        }
    }
    metadata["ownerReferences"] = owners.into();
}

/// Merges the changed conditions into the conditions of a status, by type.
fn merge_conditions(status: &mut Value, changed: &[Value]) {
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    for change in changed {
        match conditions.iter_mut().find(|it| it["type"] == change["type"]) {
            Some(condition) => apply_patch(condition, change),
            None => {
                let mut condition = json!({});
                apply_patch(&mut condition, change);
                conditions.push(condition);
            }
        }
    }
    status["conditions"] = conditions.into();
}

/// Returns the suffix of the generated name with this number, in the alphabet of Kubernetes' name generator.
fn generated_name_suffix(mut number: u64) -> String {
    /// Letters and digits of generated names.
    const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut out = String::new();
    for _ in 0..4 {
        let len = NAME_ALPHABET.len() as u64;
        out.insert(0, char::from(NAME_ALPHABET[usize::try_from(number % len).expect("small")]));
        number /= len;
    }
    out
}
