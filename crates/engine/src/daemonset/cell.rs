//! A cell is the state of one DaemonSet on one node: the verdict, the writes that the node needs, and what the node
//! adds to the totals of the DaemonSet.
//!
//! A cell does not depend on other nodes, nor on pods on other nodes. So an event of a node, or of a pod on it,
//! recomputes only the cells of that node. The counts of each old cell are subtracted from the totals, and those of the
//! new cell are added.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::text::Text;
use muster_api::time::{Time, earliest};

use super::node_rollout::{self, BudgetUse, RolloutAction, RolloutDeletion};
use super::revision::TargetRevision;
use super::roster;
use super::status::{check_availability, counted_pod};
use crate::controller::Backoff;
use crate::daemonset::facts::{Node, Pod, Set, StatusCounts};
use crate::daemonset::placement::{self, Verdict};
use crate::daemonset::progressive::counts::NodeProgress;
use crate::daemonset::progressive::membership::AssignedRevision;
use crate::daemonset::progressive::rollout::{NodeTarget, ProgressiveRollout, UpdateMode};
use crate::daemonset::why::Why;

/// State of one DaemonSet on one node, and the writes that are needed on this node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cell {
    /// Whether a pod may run on the node. `None` if the node was deleted and only its pods are left.
    pub(crate) verdict: Option<Verdict>,
    /// Why a pod is created on the node. `None` if no pod is created, or if `action` decides about the new pod.
    pub(crate) create: Option<Why>,
    /// Pods to delete on the node, each with the reason. A pod that `action` deletes is not included.
    pub(crate) delete: Vec<(Arc<Pod>, Why)>,
    /// Action of the rolling update on the node. The variant of the action decides when the plan executes it. `None` if
    /// the node needs no such action.
    pub(crate) action: Option<RolloutAction>,
    /// The counts that the node adds to the totals of the DaemonSet.
    pub(crate) counts: CellCounts,
    /// Which revision the node is assigned: the current revision or, in a progressive rollout, possibly the stable
    /// revision.
    pub(crate) assigned: AssignedRevision,
    /// State of the node in the progressive rollout. `None` if the DaemonSet has no progressive rollout, or if the node
    /// was deleted.
    pub(crate) progress: Option<Box<NodeProgress>>,
    /// The pod from which the status counts of the node are taken, and the state of this pod for `muster explain`.
    /// `None` if the node has no such pod.
    pub(crate) pod: Option<(Arc<Pod>, Why)>,
    /// Why the node waits: why a needed write is not made yet, or why the pod of the node is not available yet. `None`
    /// if the node does not wait.
    pub(crate) waiting: Option<Why>,
    /// Why the first pod with a problem on the node does not start, or why it failed, as Kubernetes names it, such as
    /// `CrashLoopBackOff`. Pods that are Ready, and terminal pods that are being deleted, are skipped. `None` if none
    /// of the other pods has a problem.
    pub(crate) problem: Option<Text>,
    /// The time at which this cell must be computed again even without an event. `None` if there is no such time.
    pub(crate) recheck_at: Option<Time>,
}

/// The controller's in-memory state about one DaemonSet on one node, which no API object stores.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeInMemoryState<'a> {
    /// Backoff after a failed or succeeded pod was deleted on the node. `None` if there is none.
    pub(crate) backoff: Option<Backoff>,
    /// The controller's last deletion or eviction of a pod of the DaemonSet on the node. `None` if there was none, or
    /// if it no longer matters for the rollout budget.
    pub(crate) rollout_deletion: Option<&'a RolloutDeletion>,
}

/// What one cell adds to the [`Totals`] of its DaemonSet: one node for each flag that is true. The counts in
/// [`Totals::waiting`] and [`Totals::problem`] come from other fields of the cell. Where a field refers to the pod of
/// the node, it means [`Cell::pod`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CellCounts {
    /// Whether the node is eligible, that is, should run a pod of the DaemonSet.
    pub(crate) desired: bool,
    /// Whether the node is eligible (should run a pod of the DaemonSet) and has a pod.
    pub(crate) current: bool,
    /// Whether the node is eligible (should run a pod of the DaemonSet) and its pod is Ready.
    pub(crate) ready: bool,
    /// Whether the node is eligible (should run a pod of the DaemonSet) and its pod has the current revision.
    pub(crate) updated: bool,
    /// Whether the node is eligible and its pod has the revision assigned to the node, which is the current or the
    /// stable one.
    pub(crate) as_assigned: bool,
    /// Whether the node is eligible (should run a pod of the DaemonSet) and its pod is available.
    pub(crate) available: bool,
    /// Whether the node exists and has a pod although it is not eligible (should not run a pod of the DaemonSet).
    pub(crate) misscheduled: bool,
    /// Whether the node has a pod that must still be replaced or deleted, because it does not have the revision
    /// assigned to the node. A pod that the node only keeps because of a taint does not count.
    pub(crate) old_pod: bool,
    /// Whether the node counts against the rollout budget, and whether it counts as a node with an available pod.
    pub(crate) budget_use: BudgetUse,
}

/// Sums of the counts of all cells of a DaemonSet. They are updated whenever a cell changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    /// Number of eligible nodes: those that should run a pod of the DaemonSet.
    desired: i64,
    /// Number of eligible nodes (those that should run a pod of the DaemonSet) with a pod.
    current: i64,
    /// Number of eligible nodes (those that should run a pod of the DaemonSet) with a Ready pod.
    ready: i64,
    /// Number of eligible nodes (those that should run a pod of the DaemonSet) with a pod of the current revision.
    updated: i64,
    /// Number of eligible nodes whose pod has the revision assigned to the node, which is the current or the stable
    /// one.
    as_assigned: i64,
    /// Number of eligible nodes (those that should run a pod of the DaemonSet) with an available pod.
    available: i64,
    /// Number of existing nodes that have a pod of the DaemonSet although they are not eligible, that is, should not
    /// run one.
    misscheduled: i64,
    /// Number of nodes with a pod that must still be replaced or deleted ([`CellCounts::old_pod`]).
    pub(crate) old_pods: i64,
    /// Number of nodes that count against the rollout budget (`maxUnavailable` or `maxSurge`).
    pub(crate) charged: i64,
    /// Number of eligible nodes with an available pod, plus the nodes whose available pod is to be deleted by
    /// [`RolloutAction::Remove`].
    pub(crate) available_or_leaving: i64,
    /// Number of eligible nodes that wait ([`Cell::waiting`]), by [`Why::label`] of the reason.
    pub(crate) waiting: BTreeMap<Text, i64>,
    /// Number of nodes by the problem of their pod ([`Cell::problem`]). Nodes without a problem are not counted.
    pub(crate) problem: BTreeMap<Text, i64>,
}

impl Totals {
    /// Returns the counts for the status of the DaemonSet.
    pub(crate) fn status_counts(&self) -> StatusCounts {
        StatusCounts {
            desired: self.desired,
            current: self.current,
            ready: self.ready,
            updated: self.updated,
            available: self.available,
            unavailable: self.desired - self.available,
            misscheduled: self.misscheduled,
        }
    }

    /// Whether the rollout is complete.
    ///
    /// Rule: a rollout is complete when every eligible node has an available, up-to-date pod and the rollout has no
    /// outdated pod left to replace or delete.
    pub(crate) fn is_rollout_complete(&self) -> bool {
        self.updated == self.desired && self.available == self.desired && self.old_pods == 0
    }

    /// Whether every eligible node has an available pod of the revision assigned to the node (current or stable), and
    /// the rollout has no other pod left to replace or delete.
    pub(crate) fn is_assignment_complete(&self) -> bool {
        self.as_assigned == self.desired && self.available == self.desired && self.old_pods == 0
    }

    /// Adds the counts of a cell to the totals.
    pub(crate) fn add(&mut self, cell: &Cell) {
        self.add_or_subtract(cell, 1);
    }

    /// Subtracts the counts of a cell from the totals.
    pub(crate) fn subtract(&mut self, cell: &Cell) {
        self.add_or_subtract(cell, -1);
    }

    /// Adds the counts of a cell to the totals (`by` is 1), or subtracts them (`by` is -1).
    fn add_or_subtract(&mut self, cell: &Cell, by: i64) {
        let counts = &cell.counts;
        let counted = [
            (counts.desired, &mut self.desired),
            (counts.current, &mut self.current),
            (counts.ready, &mut self.ready),
            (counts.updated, &mut self.updated),
            (counts.as_assigned, &mut self.as_assigned),
            (counts.available, &mut self.available),
            (counts.misscheduled, &mut self.misscheduled),
            (counts.old_pod, &mut self.old_pods),
            (counts.budget_use.charged, &mut self.charged),
            (counts.budget_use.available, &mut self.available_or_leaving),
        ];
        for (is_counted, total) in counted {
            if is_counted {
                *total += by;
            }
        }
        if let Some(why) = cell.waiting.as_ref().filter(|_| counts.desired) {
            add_to_count(&mut self.waiting, why.label(), by);
        }
        if let Some(problem) = &cell.problem {
            add_to_count(&mut self.problem, problem, by);
        }
    }
}

/// Adds `by` to the count of a reason. Removes the reason if its count becomes zero.
fn add_to_count(counts: &mut BTreeMap<Text, i64>, reason: &str, by: i64) {
    if let Some(count) = counts.get_mut(reason) {
        *count += by;
        if *count == 0 {
            counts.remove(reason);
        }
    } else {
        counts.insert(reason.into(), by);
    }
}

/// Computes the cell of one DaemonSet on one node: the verdict, the writes that the node needs, and its counts.
///
/// `node` is `None` if the node was deleted and only its pods are left. `current` is the current revision of the
/// DaemonSet. `progressive` is its progressive rollout, `None` if it has none.
///
/// A progressive rollout may assign the stable revision to the node, instead of the current revision. For such a node,
/// the pods of the stable revision count as up to date, except in [`CellCounts::updated`], which always refers to the
/// current revision. The verdict of such a node follows from the template of the stable revision or, in assist mode,
/// from the template of the DaemonSet.
pub(crate) fn compute_cell(
    set: &Set,
    current: &TargetRevision,
    progressive: Option<&ProgressiveRollout>,
    node: Option<&Node>,
    pods: &[Arc<Pod>],
    in_memory_state_of_node: NodeInMemoryState<'_>,
    now: Time,
) -> Cell {
    let target = match progressive {
        Some(progressive) => progressive.target(set, current, node),
        None => NodeTarget {
            assigned: AssignedRevision::Current,
            revision: current,
            template: &set.template,
            mode: UpdateMode::Plain,
        },
    };
    let assigned = target.revision;
    let verdict = node.map(|it| placement::verdict(target.template, it));
    let roster =
        roster::build_roster(set, assigned, verdict.as_ref(), pods, in_memory_state_of_node.backoff, now);
    let charged_until =
        in_memory_state_of_node.rollout_deletion.and_then(|it| it.charged_until(set, assigned, pods, now));
    let node_rollout = node_rollout::compute_node_rollout(
        set,
        &target,
        node.zip(verdict.as_ref()),
        pods,
        &roster,
        charged_until,
        now,
    );
    let progress = progressive
        .and_then(|it| it.node_progress(set, current, node, pods, node_rollout.budget_use.charged, now));
    let runs = verdict == Some(Verdict::Run);
    let counted = counted_pod(set, assigned, pods, now);
    let availability_of_pod = counted.map(|pod| check_availability(set, pod, now));
    let recheck_at = earliest(roster.recheck_at, node_rollout.recheck_at);
    let recheck_at = earliest(recheck_at, progress.as_ref().and_then(|(_, at)| *at));
    let recheck_at =
        pods.iter().fold(recheck_at, |recheck_at, pod| match check_availability(set, pod, now) {
            Err(Why::WaitsForMinReady { until }) => earliest(recheck_at, Some(until)),
            _ => recheck_at,
        });
    let waiting = match (&availability_of_pod, &node_rollout.waiting) {
        // For a node that is not eligible, `muster explain` shows the reason, but no total counts it.
        _ if !runs => node_rollout.waiting.clone(),
        (_, Some(why)) => Some(why.clone()),
        (None, _) => Some(roster.blocked.clone().unwrap_or(Why::NoPodOnNode)),
        (Some(Err(why)), _) => Some(roster.blocked.clone().unwrap_or_else(|| why.clone())),
        (Some(Ok(())), _) => roster.blocked.clone(),
    };
    let is_held =
        target.assigned == AssignedRevision::Stable && counted.is_some_and(|it| !current.is_up_to_date(it));
    let waiting = waiting.or_else(|| is_held.then_some(Why::HeldByRollout));
    // The rollout ignores a node that only keeps its old pod because of a taint.
    let has_old = (runs && pods.iter().any(|it| it.is_live() && !assigned.is_up_to_date(it)))
        || node_rollout.action.is_some()
        || !node_rollout.delete.is_empty();
    let mut delete = roster.delete;
    delete.extend(node_rollout.delete);
    Cell {
        create: roster.vacancy.or(node_rollout.create),
        delete,
        action: node_rollout.action,
        counts: CellCounts {
            desired: runs,
            current: runs && counted.is_some(),
            ready: runs && counted.is_some_and(|it| it.is_ready()),
            updated: runs && counted.is_some_and(|it| current.is_up_to_date(it)),
            as_assigned: runs && counted.is_some_and(|it| assigned.is_up_to_date(it)),
            available: runs && availability_of_pod == Some(Ok(())),
            misscheduled: node.is_some() && !runs && counted.is_some(),
            old_pod: has_old,
            budget_use: node_rollout.budget_use,
        },
        problem: pods
            .iter()
            .filter(|it| !it.is_ready() && !it.is_terminal_and_deleting())
            .find_map(|it| it.problem.clone()),
        pod: counted.map(|it| {
            let why = match availability_of_pod {
                Some(Err(why)) => why,
                _ if assigned.is_up_to_date(it) => Why::UpToDate,
                _ => Why::Outdated,
            };
            (it.clone(), why)
        }),
        waiting,
        recheck_at,
        verdict,
        assigned: target.assigned,
        progress: progress.map(|(progress, _)| Box::new(progress)),
    }
}
