//! Sorts the pods of one DaemonSet on one node into pods to keep and pods to delete, and decides whether to create a
//! pod.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::time::{Time, earliest};

use super::revision::TargetRevision;
use super::status::check_availability;
use crate::controller::{Backoff, BackoffPolicy};
use crate::daemonset::facts::{Phase, Pod, Set, UpdateStrategy};
use crate::daemonset::placement::Verdict;
use crate::daemonset::why::Why;

/// The pods of one DaemonSet on one node, sorted into pods to keep and pods to delete, and whether to create a pod. The
/// deletes and creates of the rolling update are not included.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// Pods to delete from the node, with the reasons.
    pub(crate) delete: Vec<(Arc<Pod>, Why)>,
    /// Pods of the node that are live and not in `delete`.
    pub(crate) kept: Vec<Arc<Pod>>,
    /// Why a new pod is to be created on the node. `None` if no pod is to be created.
    pub(crate) vacancy: Option<Why>,
    /// Why an eligible node that needs a pod does not get one yet. `None` if the node is not blocked.
    pub(crate) blocked: Option<Why>,
    /// End of the failed-pod backoff of a failed or succeeded pod that is not deleted yet. At that time the roster must
    /// be computed again even without an event. `None` if no pod waits for the backoff.
    pub(crate) recheck_at: Option<Time>,
}

/// Backoff of a DaemonSet on one node after a failed or succeeded pod was deleted there. Upstream: `failedPodsBackoff`.
pub(crate) const FAILED_POD_BACKOFF: BackoffPolicy =
    BackoffPolicy { min: Duration::from_secs(1), max: Duration::from_secs(15 * 60) };

/// Sorts the pods of a DaemonSet on one node into pods to keep and pods to delete, and decides whether to create a pod.
/// `current` is the revision that the node is assigned. `verdict` is `None` if the node was deleted.
///
/// Rule: each eligible node has one pod. Pods on a node with verdict `Leave` are deleted, and so are unbound pods on a
/// node with verdict `Keep`. Failed and succeeded pods are deleted one after the other, with a backoff on this node
/// between two deletes. Of several pods, one is kept, or with surge one outdated and one up-to-date pod. Upstream:
/// `podsShouldBeOnNode`.
pub(crate) fn build_roster(
    set: &Set,
    current: &TargetRevision,
    verdict: Option<&Verdict>,
    pods: &[Arc<Pod>],
    backoff: Option<Backoff>,
    now: Time,
) -> Roster {
    let mut roster = Roster::default();
    let Some(verdict) = verdict else {
        return roster_of_deleted_node(pods);
    };
    if let Verdict::Leave(why) = verdict {
        let leaving = pods.iter().filter(|it| !it.deleting);
        roster.delete.extend(leaving.map(|it| (it.clone(), why.clone())));
        return roster;
    }
    let mut running: Vec<Arc<Pod>> = pods.iter().filter(|it| it.is_live()).cloned().collect();
    if let Verdict::Keep(why) = verdict {
        // Rule: a node with verdict `Keep` admits no new pod, so its pending pods can never start: they are deleted.
        let (bound, pending): (Vec<_>, Vec<_>) = running.into_iter().partition(|it| it.bound);
        roster.delete.extend(pending.into_iter().map(|it| (it, why.clone())));
        running = bound;
    }
    let finished = pods.iter().filter(|it| it.is_terminal() && !it.deleting);
    delete_finished_pod(&mut roster, finished, backoff, now);
    running.sort_by(|a, b| retention_order(a).cmp(&retention_order(b)));
    match set.rollout {
        UpdateStrategy::Surge(_) => keep_old_and_new_pod(&mut roster, set, current, running, now),
        UpdateStrategy::OnDelete | UpdateStrategy::Drain(_) => keep_one_pod(&mut roster, running),
    }
    if *verdict == Verdict::Run {
        match create_reason(set, current, pods, roster.recheck_at) {
            Ok(why) => roster.vacancy = Some(why),
            Err(why) => roster.blocked = why,
        }
    }
    roster
}

/// Returns the roster of a node that was deleted.
///
/// Rule: a pod that was not bound to its node before the node was deleted can never start and is deleted. The garbage
/// collector deletes the bound pods of a deleted node.
fn roster_of_deleted_node(pods: &[Arc<Pod>]) -> Roster {
    let pending = pods.iter().filter(|it| !it.bound && !it.deleting);
    Roster {
        delete: pending.map(|it| (it.clone(), Why::NodeDeleted)).collect(),
        kept: pods.iter().filter(|it| it.bound && it.is_live()).cloned().collect(),
        ..Roster::default()
    }
}

/// Adds the first failed or succeeded pod of the node (`finished`) to the deletes of the roster, unless the roster
/// already deletes another pod. During the backoff, sets the recheck time of the roster instead.
///
/// Rule: failed and succeeded pods are deleted so that a new pod can be created, but not before the failed-pod backoff
/// of the node has ended. So a kubelet that rejects every pod gets new pods less and less often.
fn delete_finished_pod<'a>(
    roster: &mut Roster,
    finished: impl Iterator<Item = &'a Arc<Pod>>,
    backoff: Option<Backoff>,
    now: Time,
) {
    let retry_at = backoff.map(Backoff::ends_at).filter(|until| now < *until);
    for pod in finished {
        match retry_at {
            Some(at) => roster.recheck_at = earliest(roster.recheck_at, Some(at)),
            // One pod at a time: its delete starts the backoff of the next one.
            None if roster.delete.is_empty() => {
                roster.delete.push((pod.clone(), finished_pod_delete_reason(pod)))
            }
            None => {}
        }
    }
}

/// Returns why a failed or succeeded pod is deleted.
fn finished_pod_delete_reason(pod: &Pod) -> Why {
    match pod.phase {
        Phase::Succeeded => Why::Succeeded,
        _ => Why::Failed { reason: pod.problem.clone().filter(|it| it.as_ref() != "Failed") },
    }
}

/// Returns the sort key of a pod. The pod with the smallest key is kept.
///
/// Rule: of several pods on a node the first in this order is kept: bound pods before unbound pods, then older pods
/// before younger ones, then by name.
/// Upstream: `podByCreationTimestampAndPhase`.
fn retention_order(pod: &Pod) -> (bool, Time, &str) {
    (!pod.bound, pod.created, &pod.key.name)
}

/// Keeps the first pod of `running`, and adds the others to the deletes of the roster.
///
/// Rule: without surge, one pod of the node is kept, and all others are surplus.
fn keep_one_pod(roster: &mut Roster, mut running: Vec<Arc<Pod>>) {
    let Some(first) = running.first() else { return };
    let kept = first.key.name.clone();
    roster.delete.extend(running.drain(1..).map(|it| (it, Why::SurplusPod { kept: kept.clone() })));
    roster.kept = running;
}

/// Keeps at most one outdated and one up-to-date pod of `running`, and adds the others to the deletes of the roster.
///
/// Rule: with surge a node may have one outdated and one up-to-date pod, as long as the outdated pod is Ready and the
/// up-to-date pod is not available yet.
fn keep_old_and_new_pod(
    roster: &mut Roster,
    set: &Set,
    current: &TargetRevision,
    running: Vec<Arc<Pod>>,
    now: Time,
) {
    let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|it| current.is_up_to_date(it));
    let mut keep = |pods: Vec<Arc<Pod>>| {
        let mut pods = pods.into_iter();
        let first = pods.next();
        if let Some(first) = &first {
            let kept = first.key.name.clone();
            roster.delete.extend(pods.map(|it| (it, Why::SurplusPod { kept: kept.clone() })));
        }
        first
    };
    let (new, old) = (keep(new), keep(old));
    if let (Some(new), Some(old)) = (&new, &old) {
        let name = new.key.name.clone();
        let availability = check_availability(set, new, now);
        let superseded = if !old.is_ready() {
            Some(Why::OldPodNotReady { new: name })
        } else if availability.is_ok() {
            Some(Why::NewPodAvailable { new: name })
        } else {
            None
        };
        if let Some(why) = superseded {
            roster.delete.push((old.clone(), why));
            roster.kept.push(new.clone());
            return;
        }
    }
    roster.kept.extend([new, old].into_iter().flatten());
}

/// Returns why a pod is to be created on an eligible node. The error is the reason why the node must wait for its pod,
/// or `None` if the node needs no new pod. `retry_at` is the end of the failed-pod backoff, `None` if no pod waits for
/// it.
///
/// Rule: an eligible node gets a pod when it has no pod of the DaemonSet. A terminating pod still counts, because its
/// containers may still run. It does not count if it has failed or succeeded. With surge no terminating pod counts (but
/// see [`check_surge_create`]). No pod is created during the failed-pod backoff.
fn create_reason(
    set: &Set,
    current: &TargetRevision,
    pods: &[Arc<Pod>],
    retry_at: Option<Time>,
) -> Result<Why, Option<Why>> {
    let mut present = pods.iter().filter(|it| !it.is_terminal_and_deleting());
    if let UpdateStrategy::Surge(_) = set.rollout {
        if present.clone().any(|it| it.is_live()) {
            return Err(None);
        }
        check_surge_create(current, pods, retry_at).map_err(Some)?;
        return Ok(if present.next().is_some() { Why::OldPodsTerminating } else { Why::NoPodOnNode });
    }
    if let Some(at) = retry_at {
        return Err(Some(Why::FailedPodBackoff { retry_at: at }));
    }
    match present.next() {
        None => Ok(Why::NoPodOnNode),
        Some(pod) if pod.deleting => Err(Some(Why::StillTerminating { pod: pod.key.name.clone() })),
        Some(_) => Err(None),
    }
}

/// Checks whether surge (`maxSurge`) may create another pod on a node. The error is the reason why it may not.
/// `current` is the revision that the node is assigned. `retry_at` is the end of the failed-pod backoff, `None` if no
/// pod waits for it.
///
/// Rule: with surge, a node gets no new pod during the failed-pod backoff, while a failed or succeeded pod on the node
/// is yet to be deleted, or while two or more pods of the revision that the node is assigned are terminating there.
pub(super) fn check_surge_create(
    current: &TargetRevision,
    pods: &[Arc<Pod>],
    retry_at: Option<Time>,
) -> Result<(), Why> {
    if let Some(retry_at) = retry_at {
        return Err(Why::FailedPodBackoff { retry_at });
    }
    if pods.iter().any(|it| it.is_terminal() && !it.deleting) {
        return Err(Why::BeingReplaced);
    }
    let leaving = pods
        .iter()
        .filter(|it| it.deleting && !it.is_terminal_and_deleting() && current.is_up_to_date(it))
        .count();
    if 1 < leaving { Err(Why::TooManyTerminating { count: leaving }) } else { Ok(()) }
}
