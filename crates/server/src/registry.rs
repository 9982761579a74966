//! The rules of reading and writing objects, the same for every kind. Nothing here waits or knows HTTP.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use muster_store::{Compacted, Event, Expect, Revision, Store};
use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use crate::admit::{self, Cause};
use crate::kinds::{KINDS, Kind, Status};
use crate::object::{self, is_set, list, map_mut, str_at};
use crate::refusal::Refusal;
use crate::route::{Part, Target};
use crate::selector::Selector;

/// Namespaces that are always there.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

#[derive(Debug)]
pub(crate) struct Registry {
    store: Mutex<Store>,
    /// The revision of the last commit: watchers sleep on it.
    head: watch::Sender<Revision>,
}

/// What every write comes with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    pub(crate) now: Timestamp,
    /// Do everything but the commit.
    pub(crate) dry_run: bool,
}

#[derive(Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_s: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    /// Preconditions.
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
}

/// What becomes of the objects that the deleted one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Debug)]
pub(crate) enum Deleted {
    Gone {
        last: Bytes,
    },
    /// Someone else has something to do first: a node, or whoever holds a finalizer.
    Marked {
        now: Bytes,
    },
}

impl Registry {
    pub(crate) fn new(now: Timestamp, history_max: usize) -> Self {
        let store = Store::new(history_max);
        let registry = Self { head: watch::Sender::new(store.revision()), store: Mutex::new(store) };
        for name in NAMESPACES {
            let namespace = json!({"metadata": {"name": name}});
            let write = Write { now, dry_run: false };
            registry.create(Kind::namespace(), None, namespace, write).expect("the store is empty");
        }
        registry
    }

    pub(crate) fn get(&self, target: &Target) -> Result<Bytes, Refusal> {
        let store = self.store();
        let record = store.get(&target.key()).ok_or_else(|| target.not_found())?;
        Ok(record.value.clone())
    }

    pub(crate) fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> (Vec<Bytes>, Revision) {
        let store = self.store();
        let all: Vec<Bytes> = store.list(&kind.prefix(namespace)).map(|it| it.value.clone()).collect();
        let revision = store.revision();
        drop(store);
        let chosen = |it: &Bytes| selector.is_empty() || selector.matches(&object::parse(it));
        (all.into_iter().filter(chosen).collect(), revision)
    }

    pub(crate) fn revision(&self) -> Revision {
        self.store().revision()
    }

    pub(crate) fn heads(&self) -> watch::Receiver<Revision> {
        self.head.subscribe()
    }

    /// The commits after `after`, and the revision up to which these are all.
    pub(crate) fn since(&self, prefix: &str, after: Revision) -> Result<(Vec<Event>, Revision), Compacted> {
        let store = self.store();
        let events = store.since(prefix, after)?.cloned().collect();
        Ok((events, store.revision()))
    }

    pub(crate) fn create(
        &self,
        kind: &'static Kind,
        namespace: Option<&str>,
        mut object: Value,
        write: Write,
    ) -> Result<Bytes, Refusal> {
        refuse_shapeless(kind, &object)?;
        let mut store = self.store();
        let name = begin(kind, namespace, &mut object, write.now)?;
        // Another name is tried only where we made it up.
        let is_taken = |name: &str| store.get(&kind.key(namespace, name)).is_some();
        let name = name.unwrap_or_else(|prefix| {
            std::iter::repeat_with(|| format!("{prefix}{}", suffix()))
                .find(|it| !is_taken(it))
                .expect("endless")
        });
        object["metadata"]["name"] = json!(name);
        admit(kind, &name, &mut object, None)?;
        if let Some(namespace) = namespace {
            refuse_dying_namespace(&store, kind, namespace, &name)?;
        }
        if is_taken(&name) {
            return Err(Refusal::exists(kind, &name));
        }
        if write.dry_run {
            return Ok(object::bytes(&object));
        }
        Ok(self.put(&mut store, &kind.key(namespace, &name), Expect::Absent, object))
    }

    /// Puts what `change` makes of the object in its place. The store is held meanwhile, so a patch
    /// never meets a concurrent write.
    pub(crate) fn update(
        &self,
        target: &Target,
        write: Write,
        change: impl FnOnce(Value) -> Result<Value, Refusal>,
    ) -> Result<Bytes, Refusal> {
        let (kind, name) = (target.kind, &target.name);
        let mut store = self.store();
        let key = target.key();
        let record = store.get(&key).ok_or_else(|| target.not_found())?.clone();
        let old = object::parse(&record.value);
        let mut new = change(old.clone())?;
        refuse_shapeless(kind, &new)?;
        refuse_stale(target, &new, &old)?;
        settle(target, &mut new, &old);
        admit(kind, name, &mut new, Some(&old))?;
        if kind.generation && new["spec"] != old["spec"] {
            new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_u64().unwrap_or(0) + 1);
        }
        raise_template_generation(&mut new, &old);
        if new == old {
            return Ok(record.value.clone());
        }
        if write.dry_run {
            return Ok(object::bytes(&new));
        }
        let expect = Expect::At(record.modified);
        let was_last_finalizer = is_set(&old["metadata"]["deletionTimestamp"])
            && list(&new["metadata"], "finalizers").is_empty()
            && old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
        if was_last_finalizer {
            return Ok(self.remove(&mut store, &key, expect, new));
        }
        Ok(self.put(&mut store, &key, expect, new))
    }

    /// A scheduler says where a pod goes: once.
    pub(crate) fn bind(&self, target: &Target, binding: &Value, write: Write) -> Result<(), Refusal> {
        let node = str_at(binding, "target.name");
        if node.is_empty() {
            return Err(Refusal::invalid(
                target.kind,
                &target.name,
                &[Cause::required("target.name", "name of the node to bind to")],
            ));
        }
        let bind = |mut pod: Value| {
            let bound_to = str_at(&pod, "spec.nodeName");
            if !bound_to.is_empty() {
                let why = format!("pod {} is already assigned to node \"{bound_to}\"", target.name);
                return Err(Refusal::conflict(target.kind, &target.name, &why));
            }
            if is_set(&pod["metadata"]["deletionTimestamp"]) {
                let why = format!("pod {} is being deleted, cannot be assigned to a host", target.name);
                return Err(Refusal::conflict(target.kind, &target.name, &why));
            }
            pod["spec"]["nodeName"] = json!(node);
            if let Some(annotations) = binding["metadata"]["annotations"].as_object() {
                map_mut(&mut pod["metadata"], "annotations").extend(annotations.clone());
            }
            let scheduled = json!({
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": null,
                "lastTransitionTime": object::time(write.now),
            });
            let mut conditions = list(&pod["status"], "conditions").to_vec();
            conditions.retain(|it| it["type"] != "PodScheduled");
            conditions.push(scheduled);
            pod["status"]["conditions"] = Value::Array(conditions);
            Ok(pod)
        };
        self.update(target, write, bind).map(drop)
    }

    /// Upstream: `BeforeDelete` and the registry's `Delete`.
    pub(crate) fn delete(
        &self,
        target: &Target,
        options: &DeleteOptions,
        write: Write,
    ) -> Result<Deleted, Refusal> {
        let mut store = self.store();
        let key = target.key();
        let record = store.get(&key).ok_or_else(|| target.not_found())?.clone();
        let mut object = object::parse(&record.value);
        refuse_other_object(target, options, &object)?;
        refuse_namespace_in_use(&store, target)?;

        let meta = &mut object["metadata"];
        let finalizers = finalizers_at_delete(list(meta, "finalizers"), options.propagation);
        let is_first = !is_set(&meta["deletionTimestamp"]);
        let granted_s = if is_first { None } else { meta["deletionGracePeriodSeconds"].as_i64() };
        let wanted_s = grace_s(target.kind, &object, options.grace_s);
        // A second delete may shorten the time that the first one gave, and never lengthen it.
        let grace_s = granted_s.map_or(wanted_s, |granted_s| wanted_s.min(granted_s));

        let meta = &mut object["metadata"];
        if finalizers.is_empty() {
            meta.as_object_mut().expect("every object has metadata").remove("finalizers");
        } else {
            meta["finalizers"] = json!(finalizers);
        }
        if granted_s != Some(grace_s) {
            meta["deletionTimestamp"] = json!(object::time(write.now + SignedDuration::from_secs(grace_s)));
            meta["deletionGracePeriodSeconds"] = json!(grace_s);
        }
        if let Some(generation) = meta["generation"].as_u64().filter(|_| is_first) {
            meta["generation"] = json!(generation + 1);
        }
        let is_gone = finalizers.is_empty() && grace_s == 0;
        let expect = Expect::At(record.modified);
        match (is_gone, write.dry_run) {
            (true, true) => Ok(Deleted::Gone { last: record.value.clone() }),
            (false, true) => Ok(Deleted::Marked { now: object::bytes(&object) }),
            (true, false) => Ok(Deleted::Gone { last: self.remove(&mut store, &key, expect, object) }),
            (false, false) if object == object::parse(&record.value) => {
                Ok(Deleted::Marked { now: record.value.clone() })
            }
            (false, false) => Ok(Deleted::Marked { now: self.put(&mut store, &key, expect, object) }),
        }
    }

    fn put(&self, store: &mut Store, key: &str, expect: Expect, object: Value) -> Bytes {
        let record = store.put(key, expect, |revision| at(object, revision)).expect(HELD);
        self.head.send_replace(record.modified);
        record.value.clone()
    }

    fn remove(&self, store: &mut Store, key: &str, expect: Expect, last: Value) -> Bytes {
        let mut bytes = Bytes::new();
        let event = store
            .delete(key, expect, |revision| {
                bytes = at(last, revision);
                bytes.clone()
            })
            .expect(HELD);
        self.head.send_replace(event.revision);
        bytes
    }

    /// A panic elsewhere cannot leave the store half written: each of its calls is whole or was not.
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const HELD: &str = "the store is held since the key was looked at";

impl Target {
    fn key(&self) -> String {
        self.kind.key(self.namespace.as_deref(), &self.name)
    }

    fn not_found(&self) -> Refusal {
        Refusal::not_found(self.kind, &self.name)
    }
}

/// The object as the commit at `revision` leaves it.
fn at(mut object: Value, revision: Revision) -> Bytes {
    object["metadata"]["resourceVersion"] = json!(revision.to_string());
    object::bytes(&object)
}

/// Five letters that make no words, as upstream.
fn suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    // The low 62 bits of a random UUID are all random, and 27^5 is far below 2^62.
    let mut random = Uuid::new_v4().as_u64_pair().1 & (u64::MAX >> 2);
    let mut letter = || {
        let (rest, at) = (random / LETTERS.len() as u64, random % LETTERS.len() as u64);
        random = rest;
        char::from(LETTERS[usize::try_from(at).expect("below 27")])
    };
    std::iter::repeat_with(&mut letter).take(5).collect()
}

/// Fills in what the server alone says of a new object. Gives its name, or else the prefix of one.
fn begin(
    kind: &Kind,
    namespace: Option<&str>,
    object: &mut Value,
    now: Timestamp,
) -> Result<Result<String, String>, Refusal> {
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
    let meta = map_mut(object, "metadata");
    if meta.get("resourceVersion").is_some_and(is_set) {
        return Err(Refusal::bad_request("resourceVersion should not be set on objects to be created"));
    }
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields", "selfLink"]
    {
        meta.remove(name);
    }
    meta.insert("uid".into(), json!(Uuid::new_v4().to_string()));
    meta.insert("creationTimestamp".into(), json!(object::time(now)));
    if kind.generation {
        meta.insert("generation".into(), json!(1));
    }
    match (namespace, meta.get("namespace").and_then(Value::as_str)) {
        (Some(namespace), None | Some("")) => drop(meta.insert("namespace".into(), json!(namespace))),
        (Some(namespace), Some(said)) if said == namespace => {}
        (None, None | Some("")) => drop(meta.remove("namespace")),
        (_, Some(_)) => {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    match kind.status {
        Status::Plain | Status::ApartButCreated => {}
        Status::Apart(initial) => {
            object["status"] = serde_json::from_str(initial).expect("the table of kinds holds JSON");
        }
    }
    match (str_at(object, "metadata.name"), str_at(object, "metadata.generateName")) {
        ("", "") => Err(Refusal::invalid(
            kind,
            "",
            &[Cause::required("metadata.name", "name or generateName is required")],
        )),
        ("", prefix) => Ok(Err(prefix.to_owned())),
        (name, _) => Ok(Ok(name.to_owned())),
    }
}

/// The rest of the server relies on these being objects where they are at all.
fn refuse_shapeless(kind: &Kind, object: &Value) -> Result<(), Refusal> {
    let is_map = |it: &Value| it.is_null() || it.is_object();
    let wrong = ["metadata", "spec", "status"].into_iter().find(|it| !is_map(&object[it]));
    let Some(wrong) = wrong.or_else(|| (!object.is_object()).then_some("it")) else { return Ok(()) };
    Err(Refusal::bad_request(format!(
        "{0} in version \"{1}\" cannot be handled as a {0}: {wrong} is not an object",
        kind.kind, kind.version
    )))
}

/// Defaults, then checks.
fn admit(kind: &Kind, name: &str, new: &mut Value, old: Option<&Value>) -> Result<(), Refusal> {
    (kind.default)(new);
    let causes = admit::check(kind, new, old);
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(kind, name, &causes)) }
}

/// A DaemonSet that carries the old API's template generation has it raised with every change of its template: pods are
/// told old from new by it, so one that stood still would stop every update.
fn raise_template_generation(new: &mut Value, old: &Value) {
    const ANNOTATION: &str = "deprecated.daemonset.template.generation";
    if new["spec"]["template"] == old["spec"]["template"] {
        return;
    }
    let before = old["metadata"]["annotations"][ANNOTATION].as_str().and_then(|it| it.parse::<i64>().ok());
    if let Some(before) = before {
        new["metadata"]["annotations"][ANNOTATION] = before.saturating_add(1).to_string().into();
    }
}

/// Carries over from the old object what this write may not change.
fn settle(target: &Target, new: &mut Value, old: &Value) {
    let kind = target.kind;
    new["apiVersion"] = json!(kind.api_version());
    new["kind"] = json!(kind.kind);
    let meta = map_mut(new, "metadata");
    meta.remove("managedFields");
    for name in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        keep(meta, &old["metadata"], name);
    }
    match target.part {
        Part::Binding => {}
        Part::Whole if kind.has_status_subresource() => {
            keep(new.as_object_mut().expect("it has metadata"), old, "status");
        }
        Part::Whole => {}
        Part::Status => {
            let (mut metadata, status) = (new["metadata"].take(), new["status"].take());
            keep(metadata.as_object_mut().expect("it is a map"), &old["metadata"], "ownerReferences");
            *new = old.clone();
            new["metadata"] = metadata;
            new["status"] = status;
        }
    }
}

fn keep(new: &mut serde_json::Map<String, Value>, old: &Value, name: &str) {
    match old.get(name) {
        Some(value) => drop(new.insert(name.into(), value.clone())),
        None => drop(new.remove(name)),
    }
}

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// The writer may say which object, and which version of it, it means.
fn refuse_stale(target: &Target, new: &Value, old: &Value) -> Result<(), Refusal> {
    let (new, old) = (&new["metadata"], &old["metadata"]);
    if is_set(&new["uid"]) && new["uid"] != old["uid"] {
        return Err(precondition_failed(target, "UID", &new["uid"], &old["uid"]));
    }
    if is_set(&new["resourceVersion"]) && new["resourceVersion"] != old["resourceVersion"] {
        return Err(Refusal::conflict(target.kind, &target.name, MODIFIED));
    }
    Ok(())
}

fn refuse_other_object(target: &Target, options: &DeleteOptions, object: &Value) -> Result<(), Refusal> {
    let meta = &object["metadata"];
    if let Some(uid) = options.uid.as_ref().filter(|it| meta["uid"] != **it) {
        return Err(precondition_failed(target, "UID", &json!(uid), &meta["uid"]));
    }
    if let Some(version) = options.version.as_ref().filter(|it| meta["resourceVersion"] != **it) {
        return Err(precondition_failed(
            target,
            "ResourceVersion",
            &json!(version),
            &meta["resourceVersion"],
        ));
    }
    Ok(())
}

fn precondition_failed(target: &Target, what: &str, wanted: &Value, found: &Value) -> Refusal {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let why = format!(
        "Precondition failed: {what} in precondition: {}, {what} in object meta: {}",
        text(wanted),
        text(found)
    );
    Refusal::conflict(target.kind, &target.name, &why)
}

fn refuse_dying_namespace(store: &Store, kind: &Kind, namespace: &str, name: &str) -> Result<(), Refusal> {
    let Some(record) = store.get(&Kind::namespace().key(None, namespace)) else {
        return Err(Refusal::not_found(Kind::namespace(), namespace));
    };
    if is_set(&object::parse(&record.value)["metadata"]["deletionTimestamp"]) {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        return Err(Refusal::forbidden(kind, name, &why));
    }
    Ok(())
}

/// There is no namespace controller yet that would empty it, so a namespace must be empty to go.
fn refuse_namespace_in_use(store: &Store, target: &Target) -> Result<(), Refusal> {
    if !std::ptr::eq(target.kind, Kind::namespace()) {
        return Ok(());
    }
    if NAMESPACES.contains(&target.name.as_str()) {
        return Err(Refusal::forbidden(target.kind, &target.name, "this namespace may not be deleted"));
    }
    let holds = |it: &&Kind| it.namespaced && store.list(&it.prefix(Some(&target.name))).next().is_some();
    match KINDS.iter().find(holds) {
        None => Ok(()),
        Some(kind) => {
            let why = format!("it still holds {}: delete them first", kind.plural);
            Err(Refusal::conflict(target.kind, &target.name, &why))
        }
    }
}

fn finalizers_at_delete(held: &[Value], propagation: Option<Propagation>) -> Vec<Value> {
    const FOREGROUND: &str = "foregroundDeletion";
    const ORPHAN: &str = "orphan";
    let mut finalizers = held.to_vec();
    let Some(propagation) = propagation else { return finalizers };
    finalizers.retain(|it| it != FOREGROUND && it != ORPHAN);
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(json!(FOREGROUND)),
        Propagation::Orphan => finalizers.push(json!(ORPHAN)),
    }
    finalizers
}

/// How long a node has to stop the object: no time at all if no node has it.
fn grace_s(kind: &Kind, object: &Value, wanted_s: Option<i64>) -> i64 {
    let is_on_a_node = !str_at(object, "spec.nodeName").is_empty();
    let is_over = matches!(str_at(object, "status.phase"), "Succeeded" | "Failed");
    if !kind.graceful || !is_on_a_node || is_over {
        return 0;
    }
    let said_s = object["spec"]["terminationGracePeriodSeconds"].as_i64();
    match wanted_s.or(said_s).unwrap_or(30) {
        negative_s if negative_s < 0 => 1,
        // So that no one's number takes the deadline out of the calendar.
        s => s.min(i64::from(i32::MAX)),
    }
}
