//! Which pods a tainted node sends off, and when. Upstream: `pkg/controller/tainteviction`.

use core::time::Duration;

use muster_api::taints::Taint;
use muster_api::time::{Time, earliest};

use super::decode::Pod;

/// A taint that sends pods off.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SendsOff {
    pub taint: Taint,
    pub since: Time,
    /// Nobody goes before: we have not listened long enough to know that the node still deserves it.
    pub not_before: Time,
}

/// Rule: a pod leaves its node at once for a taint (`NoExecute`) that it does not tolerate, and after the least of
/// the times for which it tolerates one: from when the taint was added or the pod was bound, whichever was later. Of
/// the tolerations that fit a taint the first counts. `None`: it stays. Upstream: `processPodOnNode`.
pub(super) fn leaves_at(pod: &Pod, taints: &[SendsOff]) -> Option<Time> {
    let mut at = None;
    for it in taints {
        let fits = pod.tolerations.iter().find(|its| its.what.tolerates(&it.taint));
        let tolerated = match fits.map(|it| it.for_s) {
            Some(None) => continue,
            Some(Some(for_s)) => Duration::from_secs(u64::try_from(for_s).unwrap_or(0)),
            None => Duration::ZERO,
        };
        let leaves = (it.since.max(pod.bound) + tolerated).max(it.not_before);
        at = earliest(at, Some(leaves));
    }
    at
}
