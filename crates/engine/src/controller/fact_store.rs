//! Applies list and watch events to the facts of a controller.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use muster_api::time::Time;

use super::{Controller, Event};

/// A controller whose facts [`apply_event`] keeps up to date. Upstream: `Store` of client-go's `cache` package.
pub(crate) trait FactStore: Controller {
    /// Identifies an object among the objects of its kind: its namespace and name, or its UID.
    type Id: Ord;
    /// Collects the keys to reconcile.
    type Keys;

    fn id(fact: &Self::DecodedObject) -> Self::Id;

    /// Returns the IDs of all stored objects of a kind. `kind` is an index in [`Controller::watches`].
    fn stored_ids(&self, kind: usize) -> Vec<Self::Id>;

    /// Adds or updates an object, and adds to `keys` the keys to reconcile.
    fn put(&mut self, fact: Self::DecodedObject, now: Time, keys: &mut Self::Keys);

    /// Removes an object that was deleted, and adds to `keys` the keys to reconcile. The object need not be stored.
    /// `kind` is an index in [`Controller::watches`].
    fn remove(&mut self, kind: usize, id: &Self::Id, now: Time, keys: &mut Self::Keys);
}

/// Applies an event to the facts of a controller, and adds to `keys` the keys to reconcile. The stored objects that a
/// list does not contain are removed before the objects of the list are stored. Upstream: `Store.Replace`.
pub(crate) fn apply_event<S: FactStore>(
    store: &mut S,
    event: Event<S::DecodedObject>,
    now: Time,
    keys: &mut S::Keys,
) {
    match event {
        Event::Applied { fact, .. } => store.put(fact, now, keys),
        Event::Deleted { kind, fact } => store.remove(kind, &S::id(&fact), now, keys),
        Event::Listed { kind, facts, .. } => {
            let listed: BTreeSet<S::Id> = facts.iter().map(S::id).collect();
            let stored = store.stored_ids(kind);
            for gone in stored.iter().filter(|it| !listed.contains(it)) {
                store.remove(kind, gone, now, keys);
            }
            facts.into_iter().for_each(|it| store.put(it, now, keys));
        }
    }
}
