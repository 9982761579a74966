//! A cell: the state of one DaemonSet on one node, with the writes it needs and its contribution to the DaemonSet's
//! totals.
//!
//! A cell is computed from its node and the pods on it alone. So an event costs as much as the cells it changes: the
//! old contribution of a cell is subtracted from the totals and the new one added.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use super::revision::Current;
use super::rollout::{self, Offer, RolloutDeletion, Standing};
use super::roster::{self, FailedPodBackoff};
use super::status::{available, counted};
use crate::daemonset::facts::{Counts, Node, Pod, Set};
use crate::daemonset::placement::{self, Verdict};
use crate::daemonset::why::Why;

/// State of one DaemonSet on one node, and the writes that follow from it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cell {
    /// `None`: the node was deleted, and only pods are left.
    pub(crate) verdict: Option<Verdict>,
    pub(crate) create: Option<Why>,
    pub(crate) delete: Vec<(Arc<Pod>, Why)>,
    /// Action of the rolling update here, executed when the budget allows it.
    pub(crate) offer: Option<Offer>,
    pub(crate) share: ShareOfTotals,
    /// The pod that the status counts, and its state: for `muster explain`.
    pub(crate) pod: Option<(Arc<Pod>, Why)>,
    /// Why a needed write is not made yet.
    pub(crate) waiting: Option<Why>,
    pub(crate) trouble: Option<Text>,
    /// When this cell changes without an event.
    pub(crate) again_at: Option<Time>,
}

/// In-memory state of one node that no API object has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeMemory<'a> {
    pub(crate) backoff: Option<FailedPodBackoff>,
    pub(crate) rollout_deletion: Option<&'a RolloutDeletion>,
}

/// Contribution of one node to the totals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ShareOfTotals {
    pub(crate) desired: bool,
    pub(crate) current: bool,
    pub(crate) ready: bool,
    pub(crate) updated: bool,
    pub(crate) available: bool,
    pub(crate) misscheduled: bool,
    pub(crate) old: bool,
    pub(crate) standing: Standing,
}

/// Sums over all cells of a DaemonSet, updated with each cell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    desired: i64,
    current: i64,
    ready: i64,
    updated: i64,
    available: i64,
    misscheduled: i64,
    /// Nodes with an outdated pod that the rollout must still replace or delete.
    pub(crate) old_pods: i64,
    /// Nodes that count against the budget.
    pub(crate) charged: i64,
    /// Eligible nodes with an available pod, and nodes whose available pod the rollout is to delete.
    pub(crate) available_or_leaving: i64,
    /// Number of nodes by the reason why they wait.
    pub(crate) waiting: BTreeMap<Text, i64>,
    /// Number of nodes by the problem of their pod, as Kubernetes names it (`CrashLoopBackOff`).
    pub(crate) trouble: BTreeMap<Text, i64>,
}

impl Totals {
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            desired: self.desired,
            current: self.current,
            ready: self.ready,
            updated: self.updated,
            available: self.available,
            unavailable: self.desired - self.available,
            misscheduled: self.misscheduled,
        }
    }

    /// Rule: a rollout is complete when every eligible node has an available, up-to-date pod and the rollout has no
    /// outdated pod left to replace or delete.
    pub(crate) fn complete(&self) -> bool {
        self.updated == self.desired && self.available == self.desired && self.old_pods == 0
    }

    pub(crate) fn add(&mut self, cell: &Cell) {
        self.change(cell, 1);
    }

    pub(crate) fn subtract(&mut self, cell: &Cell) {
        self.change(cell, -1);
    }

    fn change(&mut self, cell: &Cell, by: i64) {
        let share = &cell.share;
        let counted = [
            (share.desired, &mut self.desired),
            (share.current, &mut self.current),
            (share.ready, &mut self.ready),
            (share.updated, &mut self.updated),
            (share.available, &mut self.available),
            (share.misscheduled, &mut self.misscheduled),
            (share.old, &mut self.old_pods),
            (share.standing.charged, &mut self.charged),
            (share.standing.available, &mut self.available_or_leaving),
        ];
        for (is_counted, total) in counted {
            if is_counted {
                *total += by;
            }
        }
        if let Some(why) = cell.waiting.as_ref().filter(|_| share.desired) {
            tally(&mut self.waiting, why.label(), by);
        }
        if let Some(trouble) = &cell.trouble {
            tally(&mut self.trouble, trouble, by);
        }
    }
}

fn tally(counts: &mut BTreeMap<Text, i64>, reason: &str, by: i64) {
    if let Some(count) = counts.get_mut(reason) {
        *count += by;
        if *count == 0 {
            counts.remove(reason);
        }
    } else {
        counts.insert(reason.into(), by);
    }
}

/// Computes the cell of one node: verdict, roster, rollout state and counts.
pub(crate) fn assess(
    set: &Set,
    current: &Current,
    node: Option<&Node>,
    pods: &[Arc<Pod>],
    node_memory: NodeMemory<'_>,
    now: Time,
) -> Cell {
    let verdict = node.map(|it| placement::verdict(&set.template, it));
    let roster = roster::roster(set, current, verdict.as_ref(), pods, node_memory.backoff, now);
    let charged_until = node_memory.rollout_deletion.and_then(|it| it.until(set, current, pods, now));
    let stand = rollout::stand(set, current, node.zip(verdict.as_ref()), pods, &roster, charged_until, now);
    let runs = verdict == Some(Verdict::Run);
    let counts = counted(set, current, pods, now);
    let how = counts.map(|pod| available(set, pod, now));
    let again_at = earliest(roster.again_at, stand.again_at);
    let again_at = pods.iter().fold(again_at, |again_at, pod| match available(set, pod, now) {
        Err(Why::StillSettling { until }) => earliest(again_at, Some(until)),
        _ => again_at,
    });
    let waiting = match (&how, &stand.waiting) {
        // For a node that is not eligible, `muster explain` shows the reason, but no total counts it.
        _ if !runs => stand.waiting.clone(),
        (_, Some(why)) => Some(why.clone()),
        (None, _) => Some(roster.blocked.clone().unwrap_or(Why::NoPodHere)),
        (Some(Err(why)), _) => Some(roster.blocked.clone().unwrap_or_else(|| why.clone())),
        (Some(Ok(())), _) => roster.blocked.clone(),
    };
    // The rollout ignores a node that only keeps its old pod because of a taint.
    let has_old = (runs && pods.iter().any(|it| it.live() && !current.is_new(it)))
        || stand.offer.is_some()
        || !stand.delete.is_empty();
    let mut delete = roster.delete;
    delete.extend(stand.delete);
    Cell {
        create: roster.vacancy.or(stand.create),
        delete,
        offer: stand.offer,
        share: ShareOfTotals {
            desired: runs,
            current: runs && counts.is_some(),
            ready: runs && counts.is_some_and(|it| it.ready()),
            updated: runs && counts.is_some_and(|it| current.is_new(it)),
            available: runs && how == Some(Ok(())),
            misscheduled: node.is_some() && !runs && counts.is_some(),
            old: has_old,
            standing: stand.standing,
        },
        trouble: pods.iter().filter(|it| !it.ready() && !it.gone()).find_map(|it| it.trouble.clone()),
        pod: counts.map(|it| {
            let why = match how {
                Some(Err(why)) => why,
                _ if current.is_new(it) => Why::UpToDate,
                _ => Why::OutOfDate,
            };
            (it.clone(), why)
        }),
        waiting,
        again_at,
        verdict,
    }
}
