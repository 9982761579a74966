//! The rules of reading and writing objects, the same for every kind. Nothing here knows HTTP.
//!
//! A write reads what stands, computes what shall stand with nothing held, and commits it only if the first still
//! stands; else it begins again. Its order is upstream's: decode and convert (done by the caller) → defaults → managed
//! fields → admission that mutates → what the server alone says → checks → admission that validates → commit.

mod commit;
mod create;
mod delete;
mod heads;
mod housekeeping;
mod list;
mod update;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, RwLockReadGuard};

use bytes::Bytes;
use muster_store::{
    Compacted, Db, Event, Limits, LogError, OnFailure, Options, Record, Revision, Store, Window,
};
use serde_json::Value;
use tokio::sync::{oneshot, watch};

use crate::admission;
use crate::auth::Access;
use crate::context::Context;
use crate::kinds::Kind;
use crate::metrics::Metrics;
use crate::object::str_at;
use crate::refusal::Refusal;
use crate::route::Target;
use crate::selector::Selector;
use crate::validation::Write;

use self::commit::Commit;
pub(crate) use self::create::suffix;
pub(crate) use self::delete::{DeleteOptions, Deleted, Propagation};
pub(crate) use self::heads::Head;
use self::heads::Heads;
pub(crate) use self::housekeeping::{WINDOW, keep_house};
pub(crate) use self::list::{Continue, From, ListMeta, ListOptions, Listed};
pub(crate) use self::update::Written;

/// How often a write is begun again because another came first. Each time some other write got through, so a write that
/// loses this often stands in a crowd that cannot be served in time.
const ATTEMPTS_MAX: u32 = 64;

/// Writes that may wait for the disk: far more than clients may have under way.
const QUEUE_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct Registry {
    db: Db,
    /// The store may have this many bytes.
    bytes_max: usize,
    heads: Arc<Heads>,
    pub(crate) memory: admission::Memory,
    /// Who may do what.
    pub(crate) access: Access,
    pub(crate) metrics: Metrics,
    /// The last write found no room on the disk.
    pub(crate) is_full: AtomicBool,
}

impl Registry {
    /// `open` opens the store with its storage backend.
    pub(crate) fn open(
        open: impl FnOnce(Options) -> Result<Db, LogError>,
        window: Window,
        limits: Limits,
        on_failure: OnFailure,
    ) -> Result<Self, LogError> {
        let heads = Arc::new(Heads::new());
        let awake = heads.clone();
        let on_commit = Box::new(move |batch: &[Arc<Event>]| awake.advance(batch));
        let db = open(Options { window, limits, queue_max: QUEUE_MAX, on_commit, on_failure })?;
        heads.begin(db.read().revision());
        Ok(Self {
            db,
            bytes_max: limits.bytes_max,
            heads,
            memory: admission::Memory::default(),
            access: Access::default(),
            metrics: Metrics::default(),
            is_full: AtomicBool::new(false),
        })
    }

    #[cfg(test)]
    pub(crate) fn new(history_max: usize) -> Self {
        let window = Window { events_max: history_max, bytes_max: usize::MAX };
        let open = |options| Db::open(muster_store::MemoryLog, options);
        Self::open(open, window, Limits::NONE, Box::new(|_| ())).expect("an empty log is opened")
    }

    /// Returns when every queued write is stored and nothing writes to the store any more.
    pub(crate) fn close(&self) {
        self.db.close();
    }

    /// Returns when reads include every write that any server acknowledged before this call. Requests wait here once, at their entry;
    /// reads behind it do not.
    pub(crate) async fn fresh(&self) -> Result<(), Refusal> {
        let (done, outcome) = oneshot::channel();
        self.db.fresh(move |it| drop(done.send(it)));
        match outcome.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Refusal::unavailable(error.to_string())),
            Err(_) => Err(Refusal::unavailable("the store has stopped")),
        }
    }

    pub(crate) fn get(&self, target: &Target) -> Result<Bytes, Refusal> {
        Ok(self.standing(target)?.value.clone())
    }

    /// The object as it is stored, if there is one.
    pub(crate) fn peek(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Option<Bytes> {
        Some(self.store().get(&kind.key(namespace, name))?.value.clone())
    }

    /// How many bytes the store has, and how many it may have.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        (self.store().usage().bytes(), self.bytes_max)
    }

    /// The namespaces with most bytes.
    pub(crate) fn largest_namespaces(&self, count: usize) -> Vec<(String, usize)> {
        let store = self.store();
        store.usage().largest(count).into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
    }

    pub(crate) fn revision(&self) -> Revision {
        self.store().revision()
    }

    /// How many objects of the kind there are.
    pub(crate) fn count(&self, kind: &Kind) -> usize {
        self.store().list(&kind.prefix(None)).count()
    }

    /// The revision of the last commit.
    pub(crate) fn heads(&self) -> watch::Receiver<Revision> {
        self.heads.all.subscribe()
    }

    /// The revision of the last commit to one kind, as of now.
    pub(crate) fn head_of(&self, kind: &Kind) -> Revision {
        *self.heads.of_kind(kind).borrow()
    }

    /// The revision of the last commit to one kind.
    pub(crate) fn heads_of(&self, kind: &Kind) -> watch::Receiver<Revision> {
        self.heads.of_kind(kind).subscribe()
    }

    /// What a watch of a kind sleeps on: of one object alone, if it has a `key`, or of what the selector narrows it to.
    pub(crate) fn head_of_watch(&self, kind: &Kind, key: Option<&str>, selector: &Selector) -> Head {
        self.heads.of_watch(kind, key, selector)
    }

    /// The commits after `after`, and the revision up to which these are all.
    pub(crate) fn since(
        &self,
        prefix: &str,
        after: Revision,
    ) -> Result<(Vec<Arc<Event>>, Revision), Compacted> {
        self.some_since(prefix, after, usize::MAX)
    }

    /// The same, but no more than `events_max` of them at once.
    pub(crate) fn some_since(
        &self,
        prefix: &str,
        after: Revision,
        events_max: usize,
    ) -> Result<(Vec<Arc<Event>>, Revision), Compacted> {
        let store = self.store();
        let events: Vec<_> = store.since(prefix, after)?.take(events_max).cloned().collect();
        let revision = match events.last() {
            Some(last) if events.len() == events_max => last.revision,
            _ => store.revision(),
        };
        Ok((events, revision))
    }

    fn standing(&self, target: &Target) -> Result<Arc<Record>, Refusal> {
        self.store().get(&target.key()).cloned().ok_or_else(|| target.not_found())
    }

    /// Durable state and history. Commits wait while the guard is held.
    fn store(&self) -> RwLockReadGuard<'_, Store> {
        self.db.read()
    }
}

impl Target {
    fn key(&self) -> String {
        self.kind.key(self.namespace.as_deref(), &self.name)
    }

    fn not_found(&self) -> Refusal {
        Refusal::not_found(self.kind, &self.name)
    }
}

/// Owners that are named twice are kept once.
fn dedup_owners(context: &Context, object: &mut Value) {
    let Some(owners) = object["metadata"].get_mut("ownerReferences").and_then(Value::as_array_mut) else {
        return;
    };
    if owners.len() < 2 {
        return;
    }
    let mut twice = Vec::new();
    let mut once: Vec<Value> = Vec::with_capacity(owners.len());
    for owner in std::mem::take(owners) {
        if once.contains(&owner) {
            twice.push(str_at(&owner, "uid").to_owned());
        } else {
            once.push(owner);
        }
    }
    *owners = once;
    if !twice.is_empty() {
        context.warn(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        ));
    }
}

fn check(context: &Context, target: &Target, new: &Value, old: Option<&Value>) -> Result<(), Refusal> {
    let write = Write { new, old, part: target.part };
    let causes = target.kind.validate(&write);
    if !causes.is_empty() {
        return Err(Refusal::invalid(target.kind, &target.name, &causes));
    }
    for warning in (target.kind.warn)(&write) {
        context.warn(warning);
    }
    Ok(())
}
