//! Fencing of leaders. Of the servers that share a store, only one at a time runs a given controller or singleton task.
//! That server is called the leader and holds the Lease of the controller or task. A leader whose process was suspended
//! may still write before it notices that it has lost the Lease. The store refuses such a write.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_api::well_known::{NAMESPACE_SYSTEM, is_fenced_lease};
use muster_store::{Fence, Revision};
use serde_json::Value;

use crate::kinds::Kind;
use crate::request::RequestTarget;
use crate::subresource::Subresource;

tokio::task_local! {
    /// The fence of all writes that the current task makes.
    static CURRENT_FENCE: LeaderFence;
}

/// A fence, with which the writes of a leader succeed only as long as the leader holds its Lease.
#[derive(Debug, Clone)]
pub struct LeaderFence {
    lease: Arc<RequestTarget>,
    /// The last known revision at which the leader held the Lease. 0 before it has held the Lease.
    held_at: Arc<AtomicU64>,
}

impl LeaderFence {
    /// Returns the fence of the Lease `lease_name` in `kube-system`. The name must begin with `muster-`, because other
    /// Leases are not fenced. Until [`LeaderFence::record_held`] is called, writes are refused.
    pub fn new(lease_name: &str) -> Self {
        Self::new_at(NAMESPACE_SYSTEM, lease_name, 0)
    }

    /// Parses the header [`LEASE_FENCE_HEADER`](muster_api::well_known::LEASE_FENCE_HEADER). Returns `None` if it is
    /// malformed or names a Lease that is not fenced, see [`is_fenced_lease`].
    pub(crate) fn from_header(value: &str) -> Option<Self> {
        let (lease, held_at) = value.rsplit_once('/')?;
        let (namespace, name) = lease.split_once('/')?;
        let is_name = (1..=253).contains(&name.len())
            && name.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-.".contains(&it));
        let is_version = held_at.bytes().all(|it| it.is_ascii_digit());
        let is_valid = is_name && is_version && is_fenced_lease(namespace, name);
        held_at.parse().ok().filter(|_| is_valid).map(|held_at| Self::new_at(namespace, name, held_at))
    }

    /// Returns the fence of a Lease that the leader held at the revision `held_at`.
    fn new_at(namespace: &str, name: &str, held_at: Revision) -> Self {
        let lease = RequestTarget {
            kind: Kind::builtin("coordination.k8s.io", "v1", "leases"),
            namespace: Some(namespace.to_owned()),
            name: name.to_owned(),
            subresource: Subresource::Whole,
        };
        Self { lease: Arc::new(lease), held_at: Arc::new(AtomicU64::new(held_at)) }
    }

    /// The Lease that the leader must hold.
    pub(crate) fn lease(&self) -> &RequestTarget {
        &self.lease
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
        let fence = |it: &Self| Fence { lease: it.lease.key(), at: it.held_at.load(Ordering::Acquire) };
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
        && target.namespace.as_deref().is_some_and(|it| is_fenced_lease(it, &target.name))
        && new["spec"]["holderIdentity"] != old["spec"]["holderIdentity"]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            LeaderFence::from_header(it).map(|it| (it.lease.key(), it.held_at.load(Ordering::Acquire)))
        };
        let key = "leases.coordination.k8s.io/muster-system/muster-controller".to_owned();
        assert_eq!(parse("muster-system/muster-controller/17"), Some((key, 17)));
        for malformed in [
            "",
            "17",
            "muster-controller/17",
            "kube-system/muster-a/",
            "kube-system/muster-a/c",
            "kube-system/muster-a/-1",
            "kube-system/muster-a/+1",
            "kube-system/muster-a/b/1",
            "/muster-a/1",
            "kube-system//1",
            "kube-system/muster-A/1",
            "kube-system/kube-scheduler/1",
            "kube-node-lease/muster-a/1",
            "default/muster-a/1",
            "kube-system/muster-a/18446744073709551616",
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
