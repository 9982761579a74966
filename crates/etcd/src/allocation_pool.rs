//! Allocation pools: sets of values that no two objects may share, such as cluster IPs.
//!
//! A server chooses a free value from its published state. Another server may choose the same value at the same time.
//! So every transaction that allocates from a pool writes the key of the pool. The transaction also requires that no
//! other server has written this key since the state from which the value was chosen. A server knows its own
//! allocations, even those that are not published yet, so its own writes of the key do not count.

use std::collections::{BTreeMap, BTreeSet};

use muster_store::{Allocation, CommitConflict};

use crate::keyspace::Keyspace;

/// The writes of pool keys by this server, and the pools that its transactions in progress write.
#[derive(Debug, Default)]
pub(crate) struct AllocationPools {
    pools: BTreeMap<&'static str, OwnWrites>,
    /// Pools that a transaction in progress writes.
    in_progress: BTreeSet<&'static str>,
}

/// The latest writes of a pool by this server, with no write of another server between them.
#[derive(Debug, Clone, Copy, Default)]
struct OwnWrites {
    /// The etcd revision after which only this server has written the pool, up to `last`.
    since: i64,
    /// The etcd revision of this server's last write of the pool.
    last: i64,
}

impl AllocationPools {
    /// Whether a transaction in progress of this server writes the pool. If so, etcd would refuse another transaction
    /// that allocates from the pool.
    pub(crate) fn is_pool_being_written(&self, allocation: &Allocation) -> bool {
        self.in_progress.contains(allocation.pool)
    }

    /// Returns the etcd revision after which nobody may have written the key of the pool, for a transaction that
    /// allocates from it. Fails if another server may have written the key after the state from which the value was
    /// chosen.
    pub(crate) fn revision_bound(
        &self,
        keys: &Keyspace,
        allocation: &Allocation,
    ) -> Result<i64, CommitConflict> {
        let known = keys.etcd_revision(allocation.known);
        match self.pools.get(allocation.pool) {
            Some(own) if known < own.since => Err(CommitConflict::Allocated),
            Some(own) => Ok(known.max(own.last)),
            None => Ok(known),
        }
    }

    /// Records the start of a transaction that writes these pools.
    pub(crate) fn begin_transaction(&mut self, pools: &BTreeMap<&'static str, i64>) {
        self.in_progress.extend(pools.keys());
    }

    /// Records the end of a transaction. `pools` are the pools that it writes, each with the bound from
    /// [`Self::revision_bound`]. `applied` is the etcd revision at which the transaction was applied, or `None` if it
    /// was not applied or if that is not known.
    pub(crate) fn end_transaction(&mut self, pools: &BTreeMap<&'static str, i64>, applied: Option<i64>) {
        for (pool, bound) in pools {
            self.in_progress.remove(pool);
            let Some(revision) = applied else { continue };
            let own = self.pools.entry(pool).or_default();
            // A bound that is the last own write continues the sequence of own writes.
            if *bound != own.last {
                own.since = *bound;
            }
            own.last = revision;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(etcd_revision: i64, keys: &Keyspace) -> Allocation {
        Allocation { pool: "services", known: keys.last_resource_version(etcd_revision) }
    }

    #[test]
    fn own_writes_do_not_count_and_others_do() {
        let keys = Keyspace::new("/m", 0);
        let mut pools = AllocationPools::default();
        assert_eq!(pools.revision_bound(&keys, &at(5, &keys)), Ok(5));
        let batch: BTreeMap<&'static str, i64> = [("services", 5)].into();
        pools.begin_transaction(&batch);
        assert!(pools.is_pool_being_written(&at(5, &keys)));
        pools.end_transaction(&batch, Some(9));
        assert!(!pools.is_pool_being_written(&at(5, &keys)));
        // The state at 5 lacks only the own write at 9.
        assert_eq!(pools.revision_bound(&keys, &at(5, &keys)), Ok(9));
        assert_eq!(pools.revision_bound(&keys, &at(12, &keys)), Ok(12));
        // The state at 4 may lack a write of another server at 5.
        assert_eq!(pools.revision_bound(&keys, &at(4, &keys)), Err(CommitConflict::Allocated));
        pools.end_transaction(&[("services", 9)].into(), Some(10));
        assert_eq!(pools.revision_bound(&keys, &at(5, &keys)), Ok(10));
        pools.end_transaction(&[("services", 12)].into(), Some(13));
        assert_eq!(pools.revision_bound(&keys, &at(11, &keys)), Err(CommitConflict::Allocated));
        assert_eq!(pools.revision_bound(&keys, &at(12, &keys)), Ok(13));
        // The outcome of a transaction is not known: nothing changes.
        pools.end_transaction(&[("services", 13)].into(), None);
        assert_eq!(pools.revision_bound(&keys, &at(12, &keys)), Ok(13));
    }
}
