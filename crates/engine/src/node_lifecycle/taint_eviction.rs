//! Computes when `NoExecute` taints evict a pod. Upstream: `pkg/controller/tainteviction`.

use core::time::Duration;

use muster_api::taints::Taint;
use muster_api::time::{Time, earliest};

use super::decode::Pod;

/// A `NoExecute` taint of a node, and the times that determine when the taint evicts pods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NoExecuteTaint {
    pub taint: Taint,
    /// Time at which the taint was added: its `timeAdded` if that is at least one second before the controller first
    /// saw the taint, otherwise the time at which the controller first saw it. `tolerationSeconds` count from this
    /// time, or from the binding of the pod if that is later.
    pub since: Time,
    /// Time before which the taint evicts no pod. It is later than `since` if heartbeats have not been observed long
    /// enough to know whether the taint still applies.
    pub not_before: Time,
}

/// Returns the time at which the taints evict a pod, possibly in the past. `None` if they do not evict it.
///
/// Rule: each `NoExecute` taint has an eviction time: the time at which the taint was added or the pod was bound,
/// whichever was later, plus the `tolerationSeconds` of the pod's first matching toleration. Without a matching
/// toleration, nothing is added. An eviction time before `not_before` becomes `not_before`. A taint that the pod
/// tolerates without `tolerationSeconds` has no eviction time. The pod is evicted at the earliest eviction time.
/// Upstream: `processPodOnNode`.
pub(super) fn eviction_time(pod: &Pod, taints: &[NoExecuteTaint]) -> Option<Time> {
    let mut at = None;
    for it in taints {
        let toleration = pod.tolerations.iter().find(|its| its.toleration.tolerates(&it.taint));
        let tolerated = match toleration.map(|it| it.seconds) {
            Some(None) => continue,
            Some(Some(seconds)) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
            None => Duration::ZERO,
        };
        let evicted = (it.since.max(pod.bound_at) + tolerated).max(it.not_before);
        at = earliest(at, Some(evicted));
    }
    at
}
