//! On one node: who stays, who goes, is there a vacancy.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::time::{Time, earliest};

use super::revision::Current;
use super::status::available;
use crate::daemonset::facts::{Phase, Pod, Rollout, Set};
use crate::daemonset::placement::Verdict;
use crate::daemonset::why::Why;

/// What one node's pods come to, whatever the rollout does.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub(crate) delete: Vec<(Arc<Pod>, Why)>,
    /// Live pods that are left after the deletes.
    pub(crate) stay: Vec<Arc<Pod>>,
    pub(crate) vacancy: Option<Why>,
    /// Why a node that should have a pod gets none yet.
    pub(crate) blocked: Option<Why>,
    /// When this changes by time alone.
    pub(crate) again_at: Option<Time>,
}

/// Failed pods of one node: when the last one was deleted, and how long the next one stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailedPodBackoff {
    pub last: Time,
    pub delay: Duration,
}

/// Upstream: `NewBackOff(1s, 15min)`.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(15 * 60);

impl FailedPodBackoff {
    /// Rule: each failure within the window doubles the wait, from 1 s to 15 min; after twice the longest wait without
    /// a failure it starts over.
    pub fn next(before: Option<Self>, now: Time) -> Self {
        let delay = match before {
            Some(it) if now.since(it.last) <= BACKOFF_MAX * 2 => (it.delay * 2).min(BACKOFF_MAX),
            _ => BACKOFF_MIN,
        };
        Self { last: now, delay }
    }

    /// Rule: a failed pod is not touched before this; exactly then it may go.
    pub fn until(self) -> Time {
        self.last + self.delay
    }
}

/// Rule: one pod per eligible node. Pods on a node that must be left go; finished ones are replaced, after a wait when
/// that has happened here before; of several, one stays. Upstream: `podsShouldBeOnNode`.
pub(crate) fn roster(
    set: &Set,
    current: &Current,
    verdict: Option<&Verdict>,
    pods: &[Arc<Pod>],
    backoff: Option<FailedPodBackoff>,
    now: Time,
) -> Roster {
    let mut roster = Roster::default();
    let Some(verdict) = verdict else {
        return of_a_missing_node(pods);
    };
    if let Verdict::Leave(why) = verdict {
        let leaving = pods.iter().filter(|it| !it.deleting);
        roster.delete.extend(leaving.map(|it| (it.clone(), why.clone())));
        return roster;
    }
    let mut running: Vec<Arc<Pod>> = pods.iter().filter(|it| it.live()).cloned().collect();
    if let Verdict::Keep(why) = verdict {
        // Rule: a node that only keeps what it has takes no pod in, so one that is still pending there never starts.
        let (bound, pending): (Vec<_>, Vec<_>) = running.into_iter().partition(|it| it.bound);
        roster.delete.extend(pending.into_iter().map(|it| (it, why.clone())));
        running = bound;
    }
    let finished = pods.iter().filter(|it| it.terminal() && !it.deleting);
    replace_finished(&mut roster, finished, backoff, now);
    running.sort_by(|a, b| seniority(a).cmp(&seniority(b)));
    match set.rollout {
        Rollout::Surge(_) => one_of_each(&mut roster, set, current, running, now),
        Rollout::OnDelete | Rollout::Drain(_) => only_one(&mut roster, running),
    }
    if *verdict == Verdict::Run {
        match vacancy(set, current, pods, roster.again_at) {
            Ok(why) => roster.vacancy = Some(why),
            Err(why) => roster.blocked = why,
        }
    }
    roster
}

/// Rule: a pending pod of a node that is gone can never start, so it goes; a bound one is left to the garbage collector.
fn of_a_missing_node(pods: &[Arc<Pod>]) -> Roster {
    let pending = pods.iter().filter(|it| !it.bound && !it.deleting);
    Roster {
        delete: pending.map(|it| (it.clone(), Why::NodeIsGone)).collect(),
        stay: pods.iter().filter(|it| it.bound && it.live()).cloned().collect(),
        ..Roster::default()
    }
}

/// Rule: failed and ended pods are deleted so that a new one can come, but not within the wait that the last one here
/// began, with surge or without: a kubelet that rejects every pod is asked ever more rarely.
fn replace_finished<'a>(
    roster: &mut Roster,
    finished: impl Iterator<Item = &'a Arc<Pod>>,
    backoff: Option<FailedPodBackoff>,
    now: Time,
) {
    let retry_at = backoff.map(FailedPodBackoff::until).filter(|until| now < *until);
    for pod in finished {
        match retry_at {
            Some(at) => roster.again_at = earliest(roster.again_at, Some(at)),
            // One at a time: the delete of the first begins the wait of the next.
            None if roster.delete.is_empty() => roster.delete.push((pod.clone(), finished_why(pod))),
            None => {}
        }
    }
}

fn finished_why(pod: &Pod) -> Why {
    match pod.phase {
        Phase::Succeeded => Why::Succeeded,
        _ => Why::Failed { reason: pod.trouble.clone().filter(|it| it.as_ref() != "Failed") },
    }
}

/// Rule: of several pods on a node the one that is bound, oldest, smallest in name stays. Upstream:
/// `podByCreationTimestampAndPhase`.
fn seniority(pod: &Pod) -> (bool, Time, &str) {
    (!pod.bound, pod.created, &pod.key.name)
}

/// Rule: without surge, all but the senior pod are surplus.
fn only_one(roster: &mut Roster, mut running: Vec<Arc<Pod>>) {
    let Some(first) = running.first() else { return };
    let kept = first.key.name.clone();
    roster.delete.extend(running.drain(1..).map(|it| (it, Why::SurplusPod { kept: kept.clone() })));
    roster.stay = running;
}

/// Rule: with surge an old and a new pod may stand side by side, the senior one of each, while the old one is Ready and
/// the new one is not available yet.
fn one_of_each(roster: &mut Roster, set: &Set, current: &Current, running: Vec<Arc<Pod>>, now: Time) {
    let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|it| current.is_new(it));
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
        let availability = available(set, new, now);
        let superseded = if !old.ready() {
            Some(Why::NewPodBesideNotReadyOld { new: name })
        } else if availability.is_ok() {
            Some(Why::NewPodIsAvailable { new: name })
        } else {
            None
        };
        if let Some(why) = superseded {
            roster.delete.push((old.clone(), why));
            roster.stay.push(new.clone());
            return;
        }
    }
    roster.stay.extend([new, old].into_iter().flatten());
}

/// Rule: an eligible node has a vacancy when no pod of the set is on it. One that is terminating still counts, for its
/// containers may still run; one that is deleted and finished does not. With surge a terminating pod is no hindrance.
fn vacancy(
    set: &Set,
    current: &Current,
    pods: &[Arc<Pod>],
    retry_at: Option<Time>,
) -> Result<Why, Option<Why>> {
    let mut present = pods.iter().filter(|it| !it.gone());
    if let Rollout::Surge(_) = set.rollout {
        if present.clone().any(|it| it.live()) {
            return Err(None);
        }
        may_create_new(current, pods, retry_at).map_err(Some)?;
        return Ok(if present.next().is_some() { Why::OldPodIsLeaving } else { Why::NoPodHere });
    }
    if let Some(at) = retry_at {
        return Err(Some(Why::FailedRecently { retry_at: at }));
    }
    match present.next() {
        None => Ok(Why::NoPodHere),
        Some(pod) if pod.deleting => Err(Some(Why::StillLeaving { pod: pod.key.name.clone() })),
        Some(_) => Err(None),
    }
}

/// Rule: with surge, a new pod comes to a node only when no finished one waits there to be deleted, and no third one of
/// a revision comes while two of it are leaving.
pub(super) fn may_create_new(
    current: &Current,
    pods: &[Arc<Pod>],
    retry_at: Option<Time>,
) -> Result<(), Why> {
    if let Some(retry_at) = retry_at {
        return Err(Why::FailedRecently { retry_at });
    }
    if pods.iter().any(|it| it.terminal() && !it.deleting) {
        return Err(Why::BeingReplaced);
    }
    let leaving = pods.iter().filter(|it| it.deleting && !it.gone() && current.is_new(it)).count();
    if 1 < leaving { Err(Why::TooManyStillLeaving { count: leaving }) } else { Ok(()) }
}
