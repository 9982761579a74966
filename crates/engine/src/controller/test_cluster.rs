//! Runs one controller in tests, against an in-memory API server and a simulated clock. Logs the calls and events of
//! the controller.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::interner::Interner;
use muster_api::object_key::ObjectKey;
use muster_api::time::Time;
use serde_json::{Map, Value, json};

use crate::controller::{
    CallError, Controller, Event, MeasurementResult, Outcome, PatchFormat, Request, Verb, Watch, WorkQueue,
};

/// An in-memory API server, its clock, and the controller under test.
pub(crate) struct TestCluster<C: Controller> {
    queue: WorkQueue<C>,
    watches: Vec<Watch>,
    objects: BTreeMap<(usize, ObjectKey), Value>,
    shared: Interner,
    version: u64,
    pub(crate) now: Time,
    /// While the watches are delayed: the events that they have not delivered yet. Otherwise `None`.
    delayed: Option<Vec<Event<C::DecodedObject>>>,
    /// Errors that the next calls return, one error for each call.
    pub(crate) refusals: VecDeque<CallError>,
    /// Decides whether a pod (as JSON) can be evicted. Returns the error of the eviction, or `None` if the eviction
    /// succeeds.
    pub(crate) check_eviction: fn(&Value) -> Option<CallError>,
    /// The results that measurements return, by name of the check. Measurements of other checks are inconclusive.
    pub(crate) measured: BTreeMap<String, MeasurementResult>,
    log: String,
}

impl<C: Controller> TestCluster<C> {
    /// Creates a cluster with these objects. The controller has listed them and reconciled nothing yet.
    pub(crate) fn new(controller: C, objects: impl IntoIterator<Item = Value>) -> Self {
        let mut cluster = Self {
            watches: controller.watches(),
            queue: WorkQueue::new(controller, 20),
            objects: BTreeMap::new(),
            shared: Interner::default(),
            version: 0,
            now: Time::from_secs(0),
            delayed: Some(Vec::new()),
            refusals: VecDeque::new(),
            check_eviction: |_| None,
            measured: BTreeMap::new(),
            log: String::new(),
        };
        objects.into_iter().for_each(|it| cluster.put(it));
        cluster.delayed = None;
        cluster.deliver_lists();
        cluster
    }

    /// Creates or replaces an object as a user would.
    pub(crate) fn put(&mut self, mut object: Value) {
        let kind = self.kind_index(object["kind"].as_str().unwrap());
        let key = key_of_object(&object);
        let before = self.objects.get(&(kind, key.clone()));
        let uid =
            before.map_or_else(|| json!(format!("uid-{}", key.name)), |it| it["metadata"]["uid"].clone());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = uid;
        }
        self.put_object(kind, key, object);
    }

    /// Merges fields into an object as a user would.
    pub(crate) fn patch(&mut self, kind: &str, name: &str, patch: &Value) {
        let kind = self.kind_index(kind);
        let key = self.find_key(kind, name);
        let mut object = self.objects[&(kind, key.clone())].clone();
        merge_patch(&mut object, patch, false);
        self.put_object(kind, key, object);
    }

    /// Deletes an object as a user would.
    pub(crate) fn delete(&mut self, kind: &str, name: &str) {
        let kind = self.kind_index(kind);
        let key = self.find_key(kind, name);
        self.remove(kind, &key);
    }

    /// Returns the object of this kind, such as `Pod`, with this name. Panics if it does not exist.
    pub(crate) fn get(&self, kind: &str, name: &str) -> &Value {
        let kind = self.kind_index(kind);
        &self.objects[&(kind, self.find_key(kind, name))]
    }

    /// Returns all objects of a kind.
    pub(crate) fn all(&self, kind: &str) -> Vec<Value> {
        let kind = self.kind_index(kind);
        self.objects.iter().filter(|((it, _), _)| *it == kind).map(|(_, it)| it.clone()).collect()
    }

    /// Replaces the controller with a new one that has an empty cache, and passes it a list of every kind.
    pub(crate) fn restart(&mut self, controller: C) {
        self.queue = WorkQueue::new(controller, 20);
        self.deliver_lists();
    }

    /// Passes a list of all objects to the controller, kind by kind.
    fn deliver_lists(&mut self) {
        for (kind, watch) in self.watches.iter().enumerate() {
            let listed = self.objects.iter().filter(|((it, _), _)| *it == kind);
            let facts = listed.map(|(_, it)| decode_fact::<C>(watch, it, &mut self.shared)).collect();
            let resource_version = self.version.max(1);
            self.queue.apply(Event::Listed { kind, facts, resource_version }, self.now);
        }
    }

    /// Delays all watch events from now on.
    pub(crate) fn delay_watches(&mut self) {
        self.delayed = Some(Vec::new());
    }

    /// Delivers all delayed watch events, and ends the delay.
    pub(crate) fn deliver_watches(&mut self) {
        let now = self.now;
        self.delayed.take().into_iter().flatten().for_each(|it| self.queue.apply(it, now));
    }

    /// Runs the controller for a duration, and returns its calls and events, one per line.
    pub(crate) fn run(&mut self, time: Duration) -> String {
        let until = self.now + time;
        for _ in 0..10_000 {
            let step = self.queue.reconcile_due(self.now);
            for record in step.events {
                let (about, event) = (&record.about, &record.event);
                let event_type = if event.warning { "Warning" } else { "Normal" };
                self.log += &format!(
                    "  {event_type} event for {} {}: {} {}\n",
                    about.kind, about.key, event.reason, event.message
                );
            }
            for measurement in &step.measurements {
                let measured = self.measured.get(&*measurement.check).cloned();
                let measured = measured.unwrap_or_else(|| MeasurementResult::inconclusive("no data"));
                self.log += &format!("measure {}: {measured:?}\n", measurement.check);
                self.queue.apply_measurement(measurement, &measured, self.now);
            }
            if step.calls.is_empty() && step.measurements.is_empty() {
                match step.wake_at.filter(|it| *it <= until) {
                    Some(at) => self.now = at,
                    None => {
                        self.now = until;
                        return core::mem::take(&mut self.log);
                    }
                }
            }
            for call in step.calls {
                let outcome = match self.refusals.pop_front() {
                    Some(refusal) => Outcome::Refused(refusal),
                    None => self.execute_request(&C::request(&call)),
                };
                let refused = match &outcome {
                    Outcome::Refused(refusal) => format!("  -> {refusal}"),
                    Outcome::Done(_) => String::new(),
                };
                self.log += &format!("{call}{refused}\n");
                self.queue.apply_outcome(&call, outcome, self.now);
            }
        }
        panic!("does not settle:\n{}", self.log);
    }

    /// Executes an API request of the controller, and returns its outcome.
    fn execute_request(&mut self, request: &Request) -> Outcome {
        let path = request.path.split('?').next().unwrap_or_default().trim_end_matches("/status");
        let (path, is_eviction) = path.strip_suffix("/eviction").map_or((path, false), |path| (path, true));
        let found = self.watches.iter().enumerate().find_map(|(kind, watch)| {
            let mut parts = path.rsplit('/');
            let (last, before) = (parts.next()?, parts.next()?);
            let plural = &*watch.resource.plural;
            let name = if last == plural { "" } else { last };
            let namespace =
                path.split("/namespaces/").nth(1).and_then(|it| it.split('/').next()).unwrap_or("");
            (last == plural || before == plural).then(|| (kind, ObjectKey::new(namespace, name)))
        });
        let Some((kind, key)) = found else { panic!("no such path: {}", request.path) };
        let body = request.body.clone().unwrap_or_default();
        let found = self.objects.get(&(kind, key.clone()));
        let meta = &body["metadata"];
        let preconditions = match request.verb {
            Verb::Delete => &body["preconditions"],
            _ if is_eviction => &body["deleteOptions"]["preconditions"],
            _ => meta,
        };
        let differs = |field: &str, it: &Value| {
            !preconditions[field].is_null() && preconditions[field] != it["metadata"][field]
        };
        match (request.verb, found) {
            (Verb::Create, _) if !is_eviction => {
                let mut object = body;
                let name = match object["metadata"]["name"].as_str() {
                    Some(name) => name.to_string(),
                    None => {
                        format!("{}{}", object["metadata"]["generateName"].as_str().unwrap(), self.version)
                    }
                };
                let key = ObjectKey::new(key.namespace, name.as_str());
                if self.objects.contains_key(&(kind, key.clone())) {
                    return Outcome::Refused(CallError::AlreadyExists);
                }
                object["metadata"]["name"] = json!(name);
                object["metadata"]["namespace"] = json!(key.namespace);
                object["metadata"]["uid"] = json!(format!("uid-{name}"));
                object["metadata"]["creationTimestamp"] = json!(self.now.to_rfc3339());
                let done = self.put_object(kind, key, object);
                Outcome::Done(done)
            }
            // Selectors are ignored: the tests have one owner of objects in each namespace.
            (Verb::List, _) => {
                let listed = self.objects.iter().filter(|((it, _), _)| *it == kind);
                let items: Vec<&Value> = listed.map(|(_, it)| it).collect();
                Outcome::Done(serde_json::to_vec(&json!({"items": items})).unwrap())
            }
            (_, None) => Outcome::Refused(CallError::NotFound),
            (Verb::Get, Some(it)) => Outcome::Done(serde_json::to_vec(it).unwrap()),
            (_, Some(it)) if differs("uid", it) || differs("resourceVersion", it) => {
                Outcome::Refused(CallError::Conflict)
            }
            (Verb::Create, Some(pod)) if is_eviction => match (self.check_eviction)(pod) {
                Some(refusal) => Outcome::Refused(refusal),
                None => {
                    self.remove(kind, &key);
                    Outcome::Done(b"{}".to_vec())
                }
            },
            (Verb::Delete, Some(_)) => {
                self.remove(kind, &key);
                Outcome::Done(b"{}".to_vec())
            }
            (Verb::Patch(PatchFormat::Apply), Some(it)) => {
                let manager = request.path.split("fieldManager=").nth(1).unwrap().split('&').next().unwrap();
                let mut object = it.clone();
                apply_status_conditions(&mut object, &body, manager, self.now);
                // Like an API server: a request that changes nothing makes no new version.
                if object == *it {
                    return Outcome::Done(serde_json::to_vec(it).unwrap());
                }
                Outcome::Done(self.put_object(kind, key, object))
            }
            (Verb::Patch(patch), Some(it)) => {
                let mut object = it.clone();
                merge_patch(&mut object, &body, patch == PatchFormat::Strategic);
                let done = self.put_object(kind, key, object);
                Outcome::Done(done)
            }
            // Only the status is updated.
            (Verb::Update, Some(it)) if request.path.ends_with("/status") => {
                let mut object = it.clone();
                object["status"] = body["status"].clone();
                record_status_write(&mut object, "muster-controller", self.now);
                let done = self.put_object(kind, key, object);
                Outcome::Done(done)
            }
            (verb, _) => panic!("not supported: {verb:?}"),
        }
    }

    /// Stores an object with a new resource version, and notifies the watch. Returns the JSON of the object.
    fn put_object(&mut self, kind: usize, key: ObjectKey, mut object: Value) -> Vec<u8> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let fact = decode_fact::<C>(&self.watches[kind], &object, &mut self.shared);
        let answer = serde_json::to_vec(&object).unwrap();
        self.objects.insert((kind, key), object);
        self.notify_watch(Event::Applied { kind, fact });
        answer
    }

    /// Removes an object, and notifies the watch.
    fn remove(&mut self, kind: usize, key: &ObjectKey) {
        self.version += 1;
        let mut object = self.objects.remove(&(kind, key.clone())).unwrap();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let bytes = serde_json::to_vec(&object).unwrap();
        let fact = C::decode_deleted(&self.watches[kind], &bytes, &mut self.shared).unwrap();
        self.notify_watch(Event::Deleted { kind, fact });
    }

    /// Passes a watch event to the controller, or keeps it while the watches are delayed.
    fn notify_watch(&mut self, event: Event<C::DecodedObject>) {
        match &mut self.delayed {
            Some(delayed) => delayed.push(event),
            None => self.queue.apply(event, self.now),
        }
    }

    /// Returns the index of a kind, such as `Pod`, in [`Controller::watches`].
    fn kind_index(&self, kind: &str) -> usize {
        self.watches.iter().position(|it| *it.resource.kind == *kind).unwrap()
    }

    /// Returns the key of the object with this name. `kind` is an index in [`Controller::watches`].
    fn find_key(&self, kind: usize, name: &str) -> ObjectKey {
        let found = self.objects.keys().find(|(it, key)| *it == kind && *key.name == *name);
        found.unwrap_or_else(|| panic!("there is no {name}")).1.clone()
    }
}

/// Decodes an object as the controller does. If the watch is metadata-only, all other fields are removed first.
fn decode_fact<C: Controller>(watch: &Watch, object: &Value, shared: &mut Interner) -> C::DecodedObject {
    let mut object = object.clone();
    if watch.metadata_only {
        object.as_object_mut().unwrap().retain(|key, _| key == "metadata");
    }
    C::decode(watch, &serde_json::to_vec(&object).unwrap(), shared).unwrap()
}

/// Returns namespace and name of an object from its metadata.
fn key_of_object(object: &Value) -> ObjectKey {
    let meta = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    ObjectKey::new(meta("namespace"), meta("name"))
}

/// Applies the status conditions in `body` to an object by server-side apply. Removes the conditions that `manager`
/// applied before and that `body` does not contain.
fn apply_status_conditions(object: &mut Value, body: &Value, manager: &str, now: Time) {
    let stored = object["status"]["conditions"].clone();
    let key = |condition: &Value| format!("k:{}", json!({"type": condition["type"]}));
    let wanted = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut managers = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let at = managers.iter().position(|it| it["manager"] == manager && it["subresource"] == "status");
    let before = at.map(|at| managers.remove(at)).unwrap_or_default();
    let mut conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|it| before["fieldsV1"]["f:status"]["f:conditions"][key(it)].is_null());
    conditions.retain(|it| !wanted.iter().any(|wanted| wanted["type"] == it["type"]));
    conditions.extend(wanted.iter().cloned());
    object["status"]["conditions"] = Value::Array(conditions);
    if !wanted.is_empty() {
        let owned: Map<String, Value> = wanted.iter().map(|it| (key(it), json!({".": {}}))).collect();
        let fields = json!({"f:status": {"f:conditions": owned}});
        let is_same = before["fieldsV1"] == fields && stored == object["status"]["conditions"];
        let time = if is_same { before["time"].clone() } else { json!(now.to_rfc3339()) };
        managers.push(json!({
            "manager": manager, "operation": "Apply", "subresource": "status", "time": time, "fieldsV1": fields,
        }));
    }
    object["metadata"]["managedFields"] = Value::Array(managers);
}

/// Records in `managedFields` that a manager wrote counts to the status of an object.
pub(crate) fn record_status_write(object: &mut Value, manager: &str, now: Time) {
    let mut managers = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    managers.retain(|it| it["manager"] != manager || it["subresource"] != "status");
    managers.push(json!({
        "manager": manager, "operation": "Update", "subresource": "status", "time": now.to_rfc3339(),
        "fieldsV1": {"f:status": {"f:numberReady": {}}},
    }));
    object["metadata"]["managedFields"] = Value::Array(managers);
}

/// Applies a merge patch to an object. A strategic patch also merges lists by the field `type` of their elements.
fn merge_patch(object: &mut Value, patch: &Value, strategic: bool) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    for (field, value) in fields {
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(field)),
            Value::Array(items) if strategic && items.iter().all(|it| it["type"].is_string()) => {
                let mut all = object[field].as_array().cloned().unwrap_or_default();
                for item in items {
                    match all.iter_mut().find(|it| it["type"] == item["type"]) {
                        Some(found) => merge_patch(found, item, true),
                        None => all.push(item.clone()),
                    }
                }
                object[field] = Value::Array(all);
            }
            _ => merge_patch(&mut object[field], value, strategic),
        }
    }
}
