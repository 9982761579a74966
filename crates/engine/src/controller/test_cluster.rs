//! A small API server and a clock, on which a loop plays its story until nothing is left to do.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::interner::Interner;
use muster_api::meta::ObjectKey;
use muster_api::time::Time;
use serde_json::{Map, Value, json};

use crate::controller::{Driver, Event, Loop, Outcome, Request, Watch};
use crate::daemonset::execution::Refusal;
use crate::daemonset::manifest::{Patch, Verb};

pub(crate) struct Stage<L: Loop> {
    driver: Driver<L>,
    watches: Vec<Watch>,
    objects: BTreeMap<(usize, ObjectKey), Value>,
    shared: Interner,
    version: u64,
    pub(crate) now: Time,
    /// What the watches have not shown yet, if they are late.
    late: Option<Vec<Event<L::Fact>>>,
    /// The next calls are answered so.
    pub(crate) refusals: VecDeque<Refusal>,
    story: String,
}

impl<L: Loop> Stage<L> {
    /// Plays nothing yet: all objects are listed.
    pub(crate) fn new(inner: L, objects: impl IntoIterator<Item = Value>) -> Self {
        let mut stage = Self {
            watches: inner.watches(),
            driver: Driver::new(inner, 20),
            objects: BTreeMap::new(),
            shared: Interner::default(),
            version: 0,
            now: Time::from_secs(0),
            late: Some(Vec::new()),
            refusals: VecDeque::new(),
            story: String::new(),
        };
        objects.into_iter().for_each(|it| stage.put(it));
        stage.late = None;
        for (kind, watch) in stage.watches.iter().enumerate() {
            let listed = stage.objects.iter().filter(|((it, _), _)| *it == kind);
            let facts = listed.map(|(_, it)| decode::<L>(watch, it, &mut stage.shared)).collect();
            stage.driver.take(Event::Listed { kind, facts }, stage.now);
        }
        stage
    }

    /// A user makes or replaces an object.
    pub(crate) fn put(&mut self, mut object: Value) {
        let kind = self.kind(object["kind"].as_str().unwrap());
        let key = key(&object);
        let before = self.objects.get(&(kind, key.clone()));
        let uid =
            before.map_or_else(|| json!(format!("uid-{}", key.name)), |it| it["metadata"]["uid"].clone());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = uid;
        }
        self.store(kind, key, object);
    }

    /// A user changes some fields.
    pub(crate) fn patch(&mut self, kind: &str, name: &str, patch: &Value) {
        let kind = self.kind(kind);
        let key = self.find(kind, name);
        let mut object = self.objects[&(kind, key.clone())].clone();
        merge(&mut object, patch, false);
        self.store(kind, key, object);
    }

    pub(crate) fn delete(&mut self, kind: &str, name: &str) {
        let kind = self.kind(kind);
        let key = self.find(kind, name);
        self.remove(kind, &key);
    }

    pub(crate) fn get(&self, kind: &str, name: &str) -> &Value {
        let kind = self.kind(kind);
        &self.objects[&(kind, self.find(kind, name))]
    }

    /// From now on the watches are late.
    pub(crate) fn hold(&mut self) {
        self.late = Some(Vec::new());
    }

    pub(crate) fn show(&mut self) {
        let now = self.now;
        self.late.take().into_iter().flatten().for_each(|it| self.driver.take(it, now));
    }

    /// What happens in that time, as it was told and called, line by line.
    pub(crate) fn pass(&mut self, time: Duration) -> String {
        let until = self.now + time;
        for _ in 0..10_000 {
            let step = self.driver.next(self.now);
            for tell in step.tells {
                let (about, event) = (&tell.about, &tell.event);
                let word = if event.warning { "warns" } else { "says" };
                self.story += &format!(
                    "  {word} of {} {}: {} {}\n",
                    about.kind, about.key, event.reason, event.message
                );
            }
            if step.calls.is_empty() {
                match step.wake_at.filter(|it| *it <= until) {
                    Some(at) => self.now = at,
                    None => {
                        self.now = until;
                        return core::mem::take(&mut self.story);
                    }
                }
            }
            for call in step.calls {
                let outcome = match self.refusals.pop_front() {
                    Some(refusal) => Outcome::Refused(refusal),
                    None => self.make(&L::request(&call)),
                };
                let refused = match &outcome {
                    Outcome::Refused(refusal) => format!("  -> {refusal}"),
                    Outcome::Done(_) => String::new(),
                };
                self.story += &format!("{call}{refused}\n");
                self.driver.done(&call, outcome, self.now);
            }
        }
        panic!("no end:\n{}", self.story);
    }

    fn make(&mut self, request: &Request) -> Outcome {
        let path = request.path.trim_end_matches("/status");
        let found = self.watches.iter().enumerate().find_map(|(kind, watch)| {
            let mut parts = path.rsplit('/');
            let (last, before) = (parts.next()?, parts.next()?);
            let plural = &*watch.resource.plural;
            let name = if last == plural { "" } else { last };
            let namespace =
                path.split("/namespaces/").nth(1).and_then(|it| it.split('/').next()).unwrap_or("");
            (last == plural || before == plural).then(|| (kind, ObjectKey::new(namespace, name)))
        });
        let Some((kind, key)) = found else { panic!("no such place: {}", request.path) };
        let body = request.body.clone().unwrap_or_default();
        let found = self.objects.get(&(kind, key.clone()));
        let meta = &body["metadata"];
        let asked = if request.verb == Verb::Delete { &body["preconditions"] } else { meta };
        let differs =
            |field: &str, it: &Value| !asked[field].is_null() && asked[field] != it["metadata"][field];
        match (request.verb, found) {
            (Verb::Create, _) => {
                let mut object = body;
                let name = match object["metadata"]["name"].as_str() {
                    Some(name) => name.to_string(),
                    None => {
                        format!("{}{}", object["metadata"]["generateName"].as_str().unwrap(), self.version)
                    }
                };
                let key = ObjectKey::new(key.namespace, name.as_str());
                if self.objects.contains_key(&(kind, key.clone())) {
                    return Outcome::Refused(Refusal::AlreadyExists);
                }
                object["metadata"]["name"] = json!(name);
                object["metadata"]["namespace"] = json!(key.namespace);
                object["metadata"]["uid"] = json!(format!("uid-{name}"));
                let done = self.store(kind, key, object);
                Outcome::Done(done)
            }
            (_, None) => Outcome::Refused(Refusal::NotFound),
            (_, Some(it)) if differs("uid", it) || differs("resourceVersion", it) => {
                Outcome::Refused(Refusal::Conflict)
            }
            (Verb::Delete, Some(_)) => {
                self.remove(kind, &key);
                Outcome::Done(b"{}".to_vec())
            }
            (Verb::Patch(patch), Some(it)) => {
                let mut object = it.clone();
                merge(&mut object, &body, patch == Patch::Strategic);
                let done = self.store(kind, key, object);
                Outcome::Done(done)
            }
            (verb, _) => panic!("nobody does that: {verb:?}"),
        }
    }

    fn store(&mut self, kind: usize, key: ObjectKey, mut object: Value) -> Vec<u8> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let fact = decode::<L>(&self.watches[kind], &object, &mut self.shared);
        let answer = serde_json::to_vec(&object).unwrap();
        self.objects.insert((kind, key), object);
        self.happens(Event::Put { kind, fact });
        answer
    }

    fn remove(&mut self, kind: usize, key: &ObjectKey) {
        self.version += 1;
        let mut object = self.objects.remove(&(kind, key.clone())).unwrap();
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let fact = decode::<L>(&self.watches[kind], &object, &mut self.shared);
        self.happens(Event::Gone { kind, fact });
    }

    fn happens(&mut self, event: Event<L::Fact>) {
        match &mut self.late {
            Some(late) => late.push(event),
            None => self.driver.take(event, self.now),
        }
    }

    fn kind(&self, kind: &str) -> usize {
        self.watches.iter().position(|it| *it.resource.kind == *kind).unwrap()
    }

    fn find(&self, kind: usize, name: &str) -> ObjectKey {
        let found = self.objects.keys().find(|(it, key)| *it == kind && *key.name == *name);
        found.unwrap_or_else(|| panic!("there is no {name}")).1.clone()
    }
}

fn decode<L: Loop>(watch: &Watch, object: &Value, shared: &mut Interner) -> L::Fact {
    let mut object = object.clone();
    if watch.metadata_only {
        object.as_object_mut().unwrap().retain(|key, _| key == "metadata");
    }
    L::decode(watch, &serde_json::to_vec(&object).unwrap(), shared).unwrap()
}

fn key(object: &Value) -> ObjectKey {
    let meta = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    ObjectKey::new(meta("namespace"), meta("name"))
}

/// A merge patch; a strategic one merges the lists whose elements have a type.
fn merge(object: &mut Value, patch: &Value, strategic: bool) {
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
                        Some(found) => merge(found, item, true),
                        None => all.push(item.clone()),
                    }
                }
                object[field] = Value::Array(all);
            }
            _ => merge(&mut object[field], value, strategic),
        }
    }
}
