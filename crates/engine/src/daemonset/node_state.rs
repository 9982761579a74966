//! The state of one DaemonSet on every node as of the last reconcile, for `muster explain`. It is read from the
//! DaemonSet's cells. A cell is the state of one DaemonSet on one node, with the writes that the node needs.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use super::planner::Planner;
use crate::controller::Backoff;
use crate::daemonset::cell::Cell;
use crate::daemonset::execution::CreateResult;
use crate::daemonset::facts::{Node, Pod, StatusCounts, UpdateStrategy};
use crate::daemonset::placement::Verdict;
use crate::daemonset::plan::RevisionWrite;
use crate::daemonset::progressive::membership::AssignedRevision;
use crate::daemonset::progressive::policy::PolicyKind;
use crate::daemonset::progressive::record::{RevisionReference, RolloutRecord, RolloutStatus};
use crate::daemonset::why::Why;
use crate::daemonset::{self, RolloutDeletion, SetState};

/// The state of one DaemonSet on one node, and the reason why the node runs or does not run a pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeExplanation {
    pub node: Text,
    /// Whether the node should run a pod, may only keep an existing pod, or must not run a pod. `None` if the node was
    /// deleted and only its pods are left.
    pub verdict: Option<Verdict>,
    pub state: NodeSummary,
    /// Name of the pod from which the status counts of the node are taken. `None` if the node has no pod, or only pods
    /// that are terminating and have failed or succeeded.
    pub pod: Option<Text>,
    /// The reason for the state of the node.
    pub why: Why,
    /// Whether the node counts against `maxUnavailable` or `maxSurge`.
    pub charged: bool,
    /// Hash label of the revision that the next pod of the node gets in a progressive rollout. In assist mode, always
    /// the hash label of the current revision. `None` without a progressive rollout, or if the node is assigned a
    /// stable revision that does not exist.
    pub assigned: Option<Text>,
    /// Whether a progressive rollout has admitted the node to the current revision. `None` without a progressive
    /// rollout.
    pub admitted: Option<bool>,
    /// Revision hash label of `pod`. `None` if there is no such pod, or if the pod has no such label.
    pub revision: Option<Text>,
    /// The time at which the state of the node must be computed again even without an event. `None` if there is no such
    /// time.
    pub wakes_at: Option<Time>,
}

/// State of one DaemonSet on one node. With the first six variants, the node should run a pod. With `Kept`, `Removing`
/// and `Excluded`, it should not. With `Gone`, the node no longer exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NodeSummary {
    /// The node should run a pod, and its pod is available and up to date.
    UpToDate,
    /// The node should run a pod, and its pod is Ready and not up to date.
    Outdated,
    /// The node should run a pod, and its pod is not Ready, or is up to date and not available yet.
    NotReady,
    /// The node should run a pod, and its pod is not bound to the node yet.
    Pending,
    /// The node should run a pod, and its pod is being deleted.
    Terminating,
    /// The node should run a pod, and has no pod of the DaemonSet.
    Missing,
    /// The node is not eligible for a new pod and keeps the existing pod.
    Kept,
    /// The node is not eligible, and its pod is being deleted or is to be deleted.
    Removing,
    /// The node is not eligible and has no pod of the DaemonSet.
    Excluded,
    /// The node was deleted, but pods of the DaemonSet that were on it still exist.
    Gone,
}

impl NodeSummary {
    /// All states, in the order in which `muster explain` prints them.
    pub const ALL: [Self; 10] = [
        Self::UpToDate,
        Self::Outdated,
        Self::NotReady,
        Self::Pending,
        Self::Terminating,
        Self::Missing,
        Self::Kept,
        Self::Removing,
        Self::Excluded,
        Self::Gone,
    ];

    /// Returns the state of a node from its cell.
    ///
    /// Rule: the state of a node follows from its verdict, from the pod that the status counts for the node, and from
    /// whether the node counts as updated and as available.
    fn from_cell(cell: &Cell) -> Self {
        let pod = cell.pod.as_ref().map(|(pod, _)| pod);
        match (&cell.verdict, pod) {
            (None, _) => Self::Gone,
            (Some(Verdict::Run), None) => Self::Missing,
            (Some(Verdict::Run), Some(pod)) if pod.deleting => Self::Terminating,
            (Some(Verdict::Run), Some(pod)) if !pod.bound => Self::Pending,
            (Some(Verdict::Run), Some(_)) if cell.counts.available && cell.counts.updated => Self::UpToDate,
            (Some(Verdict::Run), Some(pod)) if pod.is_ready() && !cell.counts.updated => Self::Outdated,
            (Some(Verdict::Run), Some(_)) => Self::NotReady,
            (Some(Verdict::Keep(_)), Some(pod)) if pod.bound && !pod.deleting => Self::Kept,
            (Some(_), Some(_)) => Self::Removing,
            (Some(_), None) => Self::Excluded,
        }
    }

    /// Whether the node should run a pod of the DaemonSet: true for the first six states.
    pub fn should_run(self) -> bool {
        self <= Self::Missing
    }

    /// Returns the name of the state in `muster explain`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UpToDate => "up to date",
            Self::Outdated => "outdated",
            Self::NotReady => "not ready",
            Self::Pending => "pending",
            Self::Terminating => "terminating",
            Self::Missing => "missing",
            Self::Kept => "kept",
            Self::Removing => "removing",
            Self::Excluded => "excluded",
            Self::Gone => "gone",
        }
    }
}

/// The rollout of one DaemonSet over all nodes, for `muster explain`: counts, budget, and the nodes that are next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutSummary {
    /// The node counts of the DaemonSet's status, such as `numberReady`.
    pub counts: StatusCounts,
    /// The update strategy that the rollout follows. For a DaemonSet with `OnDelete` that a policy governs, it is
    /// [`UpdateStrategy::Drain`] with the `maxUnavailable` of the DaemonSet or, if the DaemonSet has none, of the
    /// policy.
    pub strategy: UpdateStrategy,
    /// The rollout budget (`maxUnavailable` or `maxSurge`) as a number of nodes.
    pub budget: usize,
    /// Number of nodes that count against the rollout budget.
    pub charged: usize,
    /// Nodes whose Ready but outdated pod waits for the rollout budget, in update order.
    pub next: Vec<Text>,
    /// Whether every eligible node has an available, up-to-date pod, and no outdated pod is left to replace or delete.
    pub complete: bool,
    /// Hash label of the current revision. `None` until a revision records the template.
    pub hash: Option<Text>,
    /// Writes of ControllerRevisions, which precede the writes of pods.
    pub steps: Vec<RevisionWrite>,
    /// The progressive rollout. `None` if the DaemonSet has none.
    pub progressive: Option<ProgressiveRolloutSummary>,
}

/// The progressive rollout of one DaemonSet, for `muster explain`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgressiveRolloutSummary {
    /// Kind and name of the policy that governs the DaemonSet. `None` if no policy does.
    pub policy: Option<(PolicyKind, Text)>,
    /// Number of steps of the policy. One if no policy governs the DaemonSet.
    pub step_count: usize,
    /// The stored status of the DaemonRollout. `None` if the DaemonRollout does not exist, or belongs to a deleted
    /// DaemonSet of the same name.
    pub status: Option<RolloutStatus>,
    /// Whether the DaemonRollout of a deleted DaemonSet of the same name still exists, so that no DaemonRollout can be
    /// created for this DaemonSet.
    pub has_stale_record: bool,
    /// The stable revision, to which a rollback returns. `None` if there is none.
    pub stable: Option<RevisionReference>,
    /// Message that says why the rollout is frozen: it replaces no outdated pods, whatever the policy says. `None` if
    /// the rollout is not frozen.
    pub frozen: Option<String>,
}

/// The part of the running controller's in-memory state about one DaemonSet that `/debug/explain` returns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SetInMemoryState {
    /// Generation that the DaemonSet had when this state was recorded.
    pub generation: i64,
    /// Failed-pod backoff of the DaemonSet on each node, by node name.
    pub backoffs: BTreeMap<Text, Backoff>,
    /// The controller's last deletion or eviction of a pod of the DaemonSet on each node, by node name.
    pub rollout_deletions: BTreeMap<Text, RolloutDeletion>,
    /// Number of the controller's own writes that the watches have not delivered yet. All creates and updates of one
    /// kind count as one write, and each delete counts as one. At least 1 while it is unknown whether a write of a pod
    /// was applied.
    pub unseen_writes: usize,
    /// Number of plans of the DaemonSet in a row that had a failed call.
    pub failures: u32,
    /// Time before which no new plan is made after a failed call. `None` if there is no such time.
    pub retry_at: Option<Time>,
    /// Time of the rollout's last progress. `None` before the first plan with a current revision.
    pub advanced_at: Option<Time>,
    /// Whether the most recent pod creates succeeded and, if not, why.
    pub creates: CreateResult,
}

impl Planner {
    /// Returns the state of a DaemonSet on each node as of the last reconcile, sorted by node name. Empty if the
    /// DaemonSet does not exist, or if no revision records its template yet.
    pub fn explain(&self, key: &ObjectKey) -> Vec<NodeExplanation> {
        let Some(entry) = self.cache.entries.get(key) else { return Vec::new() };
        let cells = entry.set_state.cells.iter();
        let mut lines: Vec<NodeExplanation> =
            cells.map(|(node, cell)| explain_cell(node, cell, &entry.set_state)).collect();
        lines.sort_by(|a, b| a.node.cmp(&b.node));
        lines
    }

    /// Returns the summary of a DaemonSet's rollout. `None` if the DaemonSet does not exist.
    pub fn rollout_summary(&self, key: &ObjectKey) -> Option<RolloutSummary> {
        let entry = self.cache.entries.get(key)?;
        let (set_state, totals) = (&entry.set_state, &entry.set_state.totals);
        Some(RolloutSummary {
            counts: totals.status_counts(),
            strategy: entry.effective.rollout,
            budget: daemonset::rollout_budget(&entry.effective, totals.status_counts().desired),
            charged: usize::try_from(totals.charged).unwrap_or(0),
            next: set_state.nodes_with_budgeted_action().cloned().collect(),
            complete: set_state.history.current.is_some() && totals.is_rollout_complete(),
            hash: set_state.history.current.as_ref().map(|it| it.hash.clone()),
            steps: set_state.history.writes.clone(),
            progressive: set_state.progressive.as_ref().map(|it| ProgressiveRolloutSummary {
                policy: it.policy.as_ref().map(|it| (it.kind, it.key.name.clone())),
                step_count: it.policy.as_ref().map_or(1, |it| it.spec.steps.len()),
                status: it.record.as_ref().map(|it| it.status.clone()),
                has_stale_record: it.has_stale_record,
                stable: it.stable.as_ref().map(|it| it.judged.reference.clone()),
                frozen: it.frozen.as_ref().map(|it| it.message().into()),
            }),
        })
    }

    /// Returns the in-memory state about a DaemonSet, to be passed to [`Planner::import_in_memory_state`] of another
    /// planner. `None` if the DaemonSet does not exist.
    pub fn export_in_memory_state(&self, key: &ObjectKey) -> Option<SetInMemoryState> {
        let entry = self.cache.entries.get(key)?;
        let (set, memory) = (&entry.set, &entry.memory);
        Some(SetInMemoryState {
            generation: set.generation,
            backoffs: memory.backoffs.clone(),
            rollout_deletions: memory.rollout_deletions.clone(),
            unseen_writes: memory.expectations.pending_count(),
            failures: memory.failures,
            retry_at: memory.retry_at,
            advanced_at: memory.rollout_progress.as_ref().map(|it| it.at),
            creates: memory.creates.clone(),
        })
    }

    /// Imports failed-pod backoffs, pod deletions and the result of pod creates from the running controller, so that
    /// this planner makes the same decisions. Does nothing if the DaemonSet does not exist, or if its generation is not
    /// the one of the imported state.
    pub fn import_in_memory_state(&mut self, key: &ObjectKey, imported: &SetInMemoryState) {
        if let Some(entry) = self.cache.entries.get_mut(key)
            && entry.set.generation == imported.generation
        {
            entry.memory.generation = imported.generation;
            entry.memory.backoffs.clone_from(&imported.backoffs);
            entry.memory.rollout_deletions.clone_from(&imported.rollout_deletions);
            entry.memory.creates.clone_from(&imported.creates);
        }
    }

    /// Returns a message that says why pods of a DaemonSet cannot be created. `None` if they can be created, if that is
    /// not known, if their namespace is terminating, or if the DaemonSet does not exist.
    pub fn create_refusal(&self, key: &ObjectKey) -> Option<String> {
        let entry = self.cache.entries.get(key)?;
        let (set, memory) = (&entry.set, &entry.memory);
        daemonset::status::create_refusal(set, &memory.creates)
    }

    /// Returns the names of the nodes that need a pod, and the pods to delete (for example failed ones), as of the last
    /// reconcile. The pods that a rollout creates and deletes by a
    /// [`RolloutAction`](super::node_rollout::RolloutAction) are not included. Both lists are empty if the DaemonSet
    /// does not exist.
    pub(crate) fn unbudgeted_creates_and_deletes(&self, key: &ObjectKey) -> (Vec<Text>, Vec<Arc<Pod>>) {
        let (mut create, mut delete) = (Vec::new(), Vec::new());
        for (node, cell) in self.cache.entries.get(key).into_iter().flat_map(|it| it.set_state.cells.iter()) {
            create.extend(cell.create.as_ref().map(|_| node.clone()));
            delete.extend(cell.delete.iter().map(|(pod, _)| pod.clone()));
        }
        (create, delete)
    }

    /// Returns the pods of a DaemonSet on one node, sorted by name. Empty if the DaemonSet does not exist or has no pod
    /// there.
    pub fn pods_on(&self, key: &ObjectKey, node: &Text) -> &[Arc<Pod>] {
        self.cache.entries.get(key).and_then(|it| it.pods.get(node)).map_or(&[], Vec::as_slice)
    }

    /// Returns the DaemonRollout of a DaemonSet. `None` if one of the two does not exist, or if the DaemonRollout
    /// belongs to a deleted DaemonSet of the same name.
    pub fn rollout_record(&self, key: &ObjectKey) -> Option<&RolloutRecord> {
        let entry = self.cache.entries.get(key)?;
        self.cache.objects.rollout(key).map(Arc::as_ref).filter(|it| it.belongs_to(&entry.set.uid))
    }

    /// Returns the node with this name. `None` if the cache does not contain the node.
    pub fn node_by_name(&self, name: &Text) -> Option<&Node> {
        self.cache.objects.node(name)
    }
}

/// Builds the explanation of the DaemonSet's state on one node from the cell of that node.
fn explain_cell(node: &Text, cell: &Cell, set_state: &SetState) -> NodeExplanation {
    let from_verdict = || match &cell.verdict {
        Some(Verdict::Keep(why) | Verdict::Leave(why)) => why.clone(),
        Some(Verdict::Run) => Why::NoPodOnNode,
        None => Why::NodeDeleted,
    };
    let pod_reason = cell.pod.as_ref().map(|(_, why)| why.clone());
    let runs = cell.verdict == Some(Verdict::Run);
    let progressive = set_state.progressive.as_ref();
    let assigned = progressive.and_then(|it| match cell.assigned {
        AssignedRevision::Stable if it.is_assisting => Some(it.current.reference.hash.clone()),
        AssignedRevision::Current => Some(it.current.reference.hash.clone()),
        AssignedRevision::Stable => it.stable.as_ref().map(|it| it.target.hash.clone()),
    });
    // In assist mode a held node may have a pod of the current revision, which is not outdated then.
    let is_unassigned = progressive.is_some_and(|it| it.is_assisting) && cell.counts.updated;
    let waiting = cell.waiting.clone().filter(|it| !is_unassigned || *it != Why::HeldByRollout);
    let pod_reason =
        pod_reason.map(|why| if is_unassigned && why == Why::Outdated { Why::UpToDate } else { why });
    let why = waiting.or(pod_reason.filter(|_| runs)).unwrap_or_else(from_verdict);
    NodeExplanation {
        node: node.clone(),
        verdict: cell.verdict.clone(),
        state: NodeSummary::from_cell(cell),
        pod: cell.pod.as_ref().map(|(pod, _)| pod.key.name.clone()),
        why,
        charged: cell.counts.budget_use.charged,
        assigned,
        admitted: progressive.map(|_| cell.assigned == AssignedRevision::Current),
        revision: cell.pod.as_ref().and_then(|(pod, _)| pod.hash_label().cloned()),
        wakes_at: cell.recheck_at,
    }
}
