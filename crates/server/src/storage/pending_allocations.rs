//! Allocations whose object may not be stored yet.

use std::collections::HashMap;
use std::hash::Hash;

use jiff::{SignedDuration, Timestamp};

/// Time for which an allocation counts as in use, even if no stored object has it. After this time, the write of the
/// object has been committed or has failed.
const PENDING_ALLOCATION_TTL: SignedDuration = SignedDuration::from_mins(2);

/// Allocations by key, each with the time at which it was recorded. [`Self::drop_expired`] drops those that are older
/// than `PENDING_ALLOCATION_TTL`.
#[derive(Debug)]
pub(crate) struct PendingAllocations<K, V>(HashMap<K, (V, Timestamp)>);

impl<K, V> Default for PendingAllocations<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V> PendingAllocations<K, V> {
    /// Drops the allocations that are older than `PENDING_ALLOCATION_TTL`.
    pub(crate) fn drop_expired(&mut self, now: Timestamp) {
        self.0.retain(|_, (_, at)| now.duration_since(*at) < PENDING_ALLOCATION_TTL);
    }

    /// Records an allocation. It replaces an earlier one with this key.
    pub(crate) fn insert(&mut self, key: K, value: V, now: Timestamp) {
        self.0.insert(key, (value, now));
    }

    /// Drops the allocation with this key.
    pub(crate) fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: std::borrow::Borrow<Q>,
    {
        self.0.remove(key);
    }

    /// Returns the allocation with this key.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.0.get(key).map(|(value, _)| value)
    }

    /// Returns all allocations with their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, (value, _))| (key, value))
    }
}
