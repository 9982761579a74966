//! Resource usage of each user apart from seats: request bodies, unsent responses, watches and agent streams. Also
//! counts, by client address, the requests without a valid client certificate that wait for the read barrier.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::request::TrustLevel;

/// A kind of resource usage that is limited for each user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UsageKind {
    /// Number of request bodies that have not arrived completely.
    UnfinishedBodies,
    /// Bytes of large request bodies (above 64 KiB), counted until the body is dropped.
    BodyBytes,
    /// Bytes of large responses (above 64 KiB), and of data frames of streamed responses above 4 KiB, that wait to be
    /// sent.
    UnsentResponseBytes,
    /// Number of small responses (up to 64 KiB) that wait to be sent.
    UnsentSmallResponses,
    /// Number of open watches.
    Watches,
    /// Number of open requests that agents serve: logs, exec and attach sessions, forwarded ports and proxied requests.
    AgentStreams,
    /// Number of requests without a valid client certificate that wait for the read barrier, by client address.
    UnverifiedWaits,
}

/// Number of variants of [`UsageKind`].
const USAGE_KIND_COUNT: usize = 7;

/// Limits of one kind of resource usage. A trusted user has only the limit for the total usage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsageLimit {
    /// Limit for each user with the trust level [`TrustLevel::Ordinary`].
    pub(crate) per_user_max: usize,
    /// Limit for each node.
    pub(crate) per_node_max: usize,
    /// Limit for the total usage of all users. Requests of nodes and trusted users may exceed it by `reserve`.
    pub(crate) total_max: usize,
    /// Amount above `total_max` that only nodes and trusted users may use.
    pub(crate) reserve: usize,
}

/// Tracks the usage of all users against the limits.
#[derive(Debug)]
pub(crate) struct UsageTracker {
    /// Limits, indexed by [`UsageKind`].
    limits: [UsageLimit; USAGE_KIND_COUNT],
    /// The current usage, by user and in total.
    table: Mutex<UsageTable>,
}

/// Current usage of each user, and the total usage of all users.
#[derive(Debug, Default)]
struct UsageTable {
    /// Usage by user, indexed by [`UsageKind`]. Users without any usage are removed.
    by_user: HashMap<Arc<str>, [usize; USAGE_KIND_COUNT]>,
    /// Total usage of all users, indexed by [`UsageKind`].
    total: [usize; USAGE_KIND_COUNT],
}

/// An amount of usage that is charged to a user until this value is dropped.
#[derive(Debug)]
pub(crate) struct UsageLease {
    usage: Arc<UsageTracker>,
    user: Arc<str>,
    kind: UsageKind,
    amount: usize,
}

impl UsageTracker {
    /// Creates the tracker with one limit for each kind of usage, in the order of [`UsageKind`].
    pub(crate) fn new(bounds: [UsageLimit; USAGE_KIND_COUNT]) -> Self {
        Self { limits: bounds, table: Mutex::default() }
    }

    /// Acquires a lease for an amount of usage, which is charged to the user until the lease is dropped. Returns `None`
    /// if that would exceed a limit.
    ///
    /// Rule: an ordinary user and a node stay within the limit for their trust level. Trusted users have no limit of
    /// their own. Ordinary users cannot exceed `UsageLimit::total_max` for the total usage of all users. Nodes and
    /// trusted users may exceed it by `UsageLimit::reserve`.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        user: &str,
        trust: TrustLevel,
        what: UsageKind,
        amount: usize,
    ) -> Option<UsageLease> {
        let bound = self.limits[what as usize];
        let (of_user, of_all) = match trust {
            TrustLevel::Ordinary => (bound.per_user_max, bound.total_max),
            TrustLevel::Node => (bound.per_node_max, bound.total_max + bound.reserve),
            TrustLevel::Trusted => (usize::MAX, bound.total_max + bound.reserve),
        };
        let mut held = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if of_all < held.total[what as usize].saturating_add(amount) {
            return None;
        }
        let user = match held.by_user.get_key_value(user) {
            Some((name, own)) => {
                if of_user < own[what as usize].saturating_add(amount) {
                    return None;
                }
                name.clone()
            }
            None if of_user < amount => return None,
            None => Arc::from(user),
        };
        held.total[what as usize] += amount;
        held.by_user.entry(user.clone()).or_default()[what as usize] += amount;
        drop(held);
        Some(UsageLease { usage: self.clone(), user, kind: what, amount })
    }

    /// Returns the total usage of the kind `what` by all users.
    #[cfg(test)]
    pub(crate) fn total_usage(&self, what: UsageKind) -> usize {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).total[what as usize]
    }
}

impl Drop for UsageLease {
    fn drop(&mut self) {
        let mut held = self.usage.table.lock().unwrap_or_else(PoisonError::into_inner);
        held.total[self.kind as usize] -= self.amount;
        if let Some(own) = held.by_user.get_mut(&self.user) {
            own[self.kind as usize] -= self.amount;
            if *own == [0; USAGE_KIND_COUNT] {
                held.by_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage() -> Arc<UsageTracker> {
        Arc::new(UsageTracker::new(
            [UsageLimit { per_user_max: 3, per_node_max: 2, total_max: 8, reserve: 4 }; USAGE_KIND_COUNT],
        ))
    }

    fn take(usage: &Arc<UsageTracker>, user: &str, trust: TrustLevel) -> Vec<UsageLease> {
        std::iter::from_fn(|| usage.acquire(user, trust, UsageKind::Watches, 1)).collect()
    }

    #[test]
    fn a_user_holds_its_share_and_no_more() {
        let usage = usage();
        let mut held = take(&usage, "a", TrustLevel::Ordinary);
        assert_eq!(held.len(), 3);
        assert!(
            usage.acquire("a", TrustLevel::Ordinary, UsageKind::UnfinishedBodies, 3).is_some(),
            "each kind is bounded by itself"
        );
        held.pop();
        assert!(usage.acquire("a", TrustLevel::Ordinary, UsageKind::Watches, 2).is_none());
        assert!(usage.acquire("a", TrustLevel::Ordinary, UsageKind::Watches, 1).is_some());
    }

    #[test]
    fn many_users_leave_the_reserve_to_nodes_and_own_parts() {
        let usage = usage();
        let held: Vec<_> =
            ["a", "b", "c", "d"].iter().flat_map(|it| take(&usage, it, TrustLevel::Ordinary)).collect();
        assert_eq!(held.len(), 8);
        let of_node = take(&usage, "system:node:n", TrustLevel::Node);
        assert_eq!(of_node.len(), 2);
        assert_eq!(take(&usage, "system:muster-controller", TrustLevel::Trusted).len(), 2);
    }

    #[test]
    fn users_that_hold_nothing_are_forgotten() {
        let usage = usage();
        drop(take(&usage, "a", TrustLevel::Ordinary));
        let held = usage.table.lock().unwrap();
        assert_eq!((held.by_user.len(), held.total), (0, [0; USAGE_KIND_COUNT]));
    }
}
