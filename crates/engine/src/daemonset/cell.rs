//! One cell per node: its verdict, what is to be done there, and what it adds to the set's totals.
//!
//! A cell is computed from its own node and pods alone, so an event costs what it touches: the cell's old share is
//! subtracted from the totals, the new one added.

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

/// What is true of one node for one set, and what follows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cell {
    /// `None`: the node is gone, only pods are left.
    pub(crate) verdict: Option<Verdict>,
    pub(crate) create: Option<Why>,
    pub(crate) delete: Vec<(Arc<Pod>, Why)>,
    /// What the rollout may do here against its budget.
    pub(crate) offer: Option<Offer>,
    pub(crate) share: ShareOfTotals,
    /// The pod that counts, and how it stands: for `explain`.
    pub(crate) pod: Option<(Arc<Pod>, Why)>,
    /// Why nothing is done here although something will have to be.
    pub(crate) waiting: Option<Why>,
    pub(crate) trouble: Option<Text>,
    /// When this cell changes by time alone.
    pub(crate) again_at: Option<Time>,
}

/// What is remembered of a node beside its facts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeMemory<'a> {
    pub(crate) backoff: Option<FailedPodBackoff>,
    pub(crate) rollout_deletion: Option<&'a RolloutDeletion>,
}

/// What one node adds.
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

/// The set's running totals.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    desired: i64,
    current: i64,
    ready: i64,
    updated: i64,
    available: i64,
    misscheduled: i64,
    /// Nodes with an old pod that the rollout has still to see to.
    pub(crate) old_pods: i64,
    /// Nodes charged to the budget.
    pub(crate) charged: i64,
    /// Eligible nodes with an available pod, and nodes that an available one is to leave.
    pub(crate) available_or_leaving: i64,
    /// Nodes by what they wait for.
    pub(crate) waiting: BTreeMap<Text, i64>,
    /// Nodes by what their pod suffers from, in Kubernetes' word.
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

    /// Rule: a rollout is complete when every eligible node has an available pod that is up to date, and no old pod is
    /// left for it to see to.
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

/// Assesses one node: verdict, roster, rollout, counts.
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
        // Of a node that is not the set's only `explain` asks: it is not counted among those that wait.
        _ if !runs => stand.waiting.clone(),
        (_, Some(why)) => Some(why.clone()),
        (None, _) => Some(roster.blocked.clone().unwrap_or(Why::NoPodHere)),
        (Some(Err(why)), _) => Some(roster.blocked.clone().unwrap_or_else(|| why.clone())),
        (Some(Ok(())), _) => roster.blocked.clone(),
    };
    // A node that keeps its old pod through a taint is none of the rollout's business.
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
