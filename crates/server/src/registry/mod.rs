//! The rules of reading and writing objects, the same for every kind. Nothing here knows HTTP.
//!
//! A write reads what stands, computes what shall stand with nothing held, and commits it only if the first still
//! stands; else it begins again. Its order is upstream's: decode and convert (done by the caller) → defaults → managed
//! fields → admission that mutates → what the server alone says → checks → admission that validates → commit.

mod create;
mod delete;
mod list;
mod update;

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use muster_store::{Compacted, Conflict, Event, Expect, Record, Revision, Store};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::admission;
use crate::admit;
use crate::auth::Access;
use crate::kinds::Kind;
use crate::object;
use crate::refusal::Refusal;
use crate::route::Target;

pub(crate) use self::create::suffix;
pub(crate) use self::delete::{DeleteOptions, Deleted, Propagation};

/// How often a write is begun again because another came first. Each time some other write got through, so a write that
/// loses this often stands in a crowd that cannot be served in time.
const ATTEMPTS_MAX: u32 = 64;

#[derive(Debug)]
pub(crate) struct Registry {
    store: Mutex<Store>,
    /// The revision of the last commit: watchers sleep on it.
    head: watch::Sender<Revision>,
    pub(crate) memory: admission::Memory,
    /// Who may do what.
    pub(crate) access: Access,
}

/// What a commit leaves under a key.
enum Commit<'a> {
    Put(&'a Value),
    Delete { last: &'a Value },
}

impl Registry {
    pub(crate) fn new(history_max: usize) -> Self {
        let store = Store::new(history_max);
        Self {
            head: watch::Sender::new(store.revision()),
            store: Mutex::new(store),
            access: Access::default(),
            memory: admission::Memory::default(),
        }
    }

    pub(crate) fn get(&self, target: &Target) -> Result<Bytes, Refusal> {
        Ok(self.standing(target)?.value.clone())
    }

    /// The object as it is stored, if there is one.
    pub(crate) fn peek(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Option<Bytes> {
        Some(self.store().get(&kind.key(namespace, name))?.value.clone())
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

    fn standing(&self, target: &Target) -> Result<std::sync::Arc<Record>, Refusal> {
        self.store().get(&target.key()).cloned().ok_or_else(|| target.not_found())
    }

    /// The one way into the store. Gives the object as it was written.
    async fn commit(&self, key: &str, expect: Expect, commit: Commit<'_>) -> Result<Bytes, Conflict> {
        let mut store = self.store();
        let bytes = match commit {
            Commit::Put(object) => store.put(key, expect, |revision| at(object, revision))?.value.clone(),
            Commit::Delete { last } => {
                let mut bytes = Bytes::new();
                store.delete(key, expect, |revision| {
                    bytes = at(last, revision);
                    bytes.clone()
                })?;
                bytes
            }
        };
        let revision = store.revision();
        drop(store);
        self.head.send_if_modified(|head| std::mem::replace(head, revision.max(*head)) < revision);
        Ok(bytes)
    }

    /// A panic elsewhere cannot leave the store half written: each of its calls is whole or was not.
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The object as the commit at `revision` leaves it.
fn at(object: &Value, revision: Revision) -> Bytes {
    let mut object = object.clone();
    object["metadata"]["resourceVersion"] = json!(revision.to_string());
    object::bytes(&object)
}

fn check(target: &Target, new: &Value, old: Option<&Value>) -> Result<(), Refusal> {
    let causes = admit::check(target.kind, new, old, target.part);
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(target.kind, &target.name, &causes)) }
}
