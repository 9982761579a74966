//! Fencing of leaders. Of the servers that share a store, only one at a time runs a given controller or singleton task.
//! That server is called the leader and holds the Lease of the controller or task. A leader whose process was suspended
//! may still write before it notices that it has lost the Lease. The store refuses such a write.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_api::well_known::{NAMESPACE_MUSTER_SYSTEM, NAMESPACE_SYSTEM};
use muster_store::{Fence, Revision};
use serde_json::Value;

use crate::kinds::Kind;
use crate::request::RequestTarget;

/// Namespaces of the Leases whose holders are fenced.
const LEASE_NAMESPACES: [&str; 2] = [NAMESPACE_SYSTEM, NAMESPACE_MUSTER_SYSTEM];
/// Prefix of the names of the Leases whose holders are fenced.
const LEASE_NAME_PREFIX: &str = "muster-";

tokio::task_local! {
    /// The fence of all writes that the current task makes.
    static CURRENT_FENCE: LeaderFence;
}

/// A fence, with which the writes of a leader succeed only as long as the leader holds its Lease.
#[derive(Debug, Clone)]
pub struct LeaderFence {
    /// Store key of the Lease.
    lease: Arc<str>,
    /// The last known revision at which the leader held the Lease. 0 before it has held the Lease.
    held_at: Arc<AtomicU64>,
}

impl LeaderFence {
    /// Returns the fence of a Lease in `kube-system` whose name begins with `muster-`. Until
    /// [`LeaderFence::record_held`] is called, writes are refused.
    pub fn new(lease_name: &str) -> Self {
        Self::at(NAMESPACE_SYSTEM, lease_name, 0)
    }

    /// Parses the header [`LEASE_FENCE_HEADER`](muster_api::well_known::LEASE_FENCE_HEADER). Returns `None` if it is
    /// malformed.
    pub(crate) fn from_header(value: &str) -> Option<Self> {
        let (lease, held_at) = value.rsplit_once('/')?;
        let (namespace, name) = lease.split_once('/')?;
        let is_name = |it: &str| {
            (1..=253).contains(&it.len())
                && it.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-.".contains(&it))
        };
        let is_valid = is_name(namespace) && is_name(name);
        held_at.parse().ok().filter(|_| is_valid).map(|held_at| Self::at(namespace, name, held_at))
    }

    /// Returns the fence of a Lease that the leader held at the revision `held_at`.
    fn at(namespace: &str, name: &str, held_at: Revision) -> Self {
        let kind = Kind::builtin("coordination.k8s.io", "v1", "leases");
        let lease = kind.store_key(Some(namespace), name).into();
        Self { lease, held_at: Arc::new(AtomicU64::new(held_at)) }
    }

    /// Records that the leader held the Lease at this resourceVersion.
    pub fn record_held(&self, resource_version: &str) {
        let revision: Revision = resource_version.parse().unwrap_or(0);
        self.held_at.fetch_max(revision, Ordering::AcqRel);
    }

    /// Runs `task` with this fence: its writes are refused once the Lease has another holder.
    pub(crate) async fn run_fenced<F: Future>(self, task: F) -> F::Output {
        CURRENT_FENCE.scope(self, task).await
    }

    /// Returns the fence of the current task, or `None` if the task runs without a fence.
    pub(super) fn current() -> Option<Fence> {
        let fence = |it: &Self| Fence { lease: it.lease.to_string(), at: it.held_at.load(Ordering::Acquire) };
        CURRENT_FENCE.try_with(fence).ok()
    }
}

/// Whether a write begins a new term of a fenced Lease, because it changes the holder. `old` is the stored object, or
/// null for a create.
///
/// Rule: a term of a Lease `muster-…` in `kube-system` or `muster-system` begins when its holder changes. From then on,
/// writes of the previous holder are refused.
pub(crate) fn begins_term(target: &RequestTarget, new: &Value, old: &Value) -> bool {
    target.kind.resource() == ("coordination.k8s.io", "leases")
        && target.namespace.as_deref().is_some_and(|it| LEASE_NAMESPACES.contains(&it))
        && target.name.starts_with(LEASE_NAME_PREFIX)
        && new["spec"]["holderIdentity"] != old["spec"]["holderIdentity"]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::subresource::Subresource;

    #[test]
    fn a_term_begins_when_the_holder_of_a_fenced_lease_changes() {
        let target = |plural: &str, namespace: &str, name: &str| RequestTarget {
            kind: Kind::builtin(if plural == "leases" { "coordination.k8s.io" } else { "" }, "v1", plural),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
            subresource: Subresource::Whole,
        };
        let lease = |holder: &str, time: u64| json!({"spec": {"holderIdentity": holder, "renewTime": time}});
        let scheduler = target("leases", "kube-system", "muster-scheduler");
        let controller = target("leases", "muster-system", "muster-controller");
        assert!(begins_term(&controller, &lease("b", 2), &lease("a", 1)));
        assert!(begins_term(&scheduler, &lease("a", 1), &Value::Null));
        assert!(begins_term(&scheduler, &lease("b", 2), &lease("a", 1)));
        assert!(begins_term(&scheduler, &lease("", 2), &lease("a", 1)), "a released Lease has no holder");
        assert!(!begins_term(&scheduler, &lease("a", 2), &lease("a", 1)), "a renewal");
        for other in [
            target("leases", "kube-node-lease", "muster-scheduler"),
            target("leases", "kube-system", "apiserver-a"),
            target("leases", "default", "muster-controller"),
            target("configmaps", "kube-system", "muster-scheduler"),
        ] {
            assert!(!begins_term(&other, &lease("b", 2), &lease("a", 1)));
        }
    }

    #[test]
    fn a_header_names_a_lease_and_its_version() {
        let parse = |it: &str| {
            LeaderFence::from_header(it).map(|it| (it.lease.to_string(), it.held_at.load(Ordering::Acquire)))
        };
        let key = "leases.coordination.k8s.io/muster-system/muster-controller".to_owned();
        assert_eq!(parse("muster-system/muster-controller/17"), Some((key, 17)));
        for malformed in [
            "",
            "17",
            "muster-controller/17",
            "a/b/",
            "a/b/c",
            "a/b/-1",
            "a/b/c/1",
            "/b/1",
            "a//1",
            "a/B/1",
            "a/b/18446744073709551616",
        ] {
            assert_eq!(parse(malformed), None, "{malformed:?}");
        }
    }

    #[tokio::test]
    async fn the_writes_of_a_task_have_its_fence() {
        let fence = LeaderFence::new("muster-scheduler");
        assert_eq!(LeaderFence::current(), None);
        let current = || LeaderFence::current().map(|it| (it.lease, it.at));
        let key = "leases.coordination.k8s.io/kube-system/muster-scheduler".to_owned();
        assert_eq!(fence.clone().run_fenced(async { current() }).await, Some((key.clone(), 0)));
        fence.record_held("17");
        fence.record_held("not a version");
        assert_eq!(fence.run_fenced(async { current() }).await, Some((key, 17)));
    }
}
