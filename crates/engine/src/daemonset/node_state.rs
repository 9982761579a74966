//! The state of one set on every node, as of the last reconcile: for `muster explain`.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use super::planner::Planner;
use crate::daemonset::cell::Cell;
use crate::daemonset::execution::Creates;
use crate::daemonset::facts::{Counts, Node, Pod};
use crate::daemonset::placement::Verdict;
use crate::daemonset::plan::Step;
use crate::daemonset::why::Why;
use crate::daemonset::{self, FailedPodBackoff, RolloutDeletion};

/// What is true of one node for one set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeExplanation {
    pub node: Text,
    /// `None`: the node is gone, only pods are left.
    pub verdict: Option<Verdict>,
    pub state: NodeState,
    /// The pod that counts.
    pub pod: Option<Text>,
    pub why: Why,
    /// It takes one of the nodes that may be down, or have two pods.
    pub charged: bool,
    pub wakes_at: Option<Time>,
}

/// How a node stands to a set. The first six should run it, the next three should not; together they are all nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NodeState {
    UpToDate,
    Outdated,
    /// A pod is there, and not available.
    NotReady,
    /// A pod is there that no node was told about yet.
    Pending,
    Terminating,
    Missing,
    /// It is not meant to have a pod, and keeps the one it has.
    Kept,
    Leaving,
    Excluded,
    /// There is no such node any more.
    Gone,
}

impl NodeState {
    pub const ALL: [Self; 10] = [
        Self::UpToDate,
        Self::Outdated,
        Self::NotReady,
        Self::Pending,
        Self::Terminating,
        Self::Missing,
        Self::Kept,
        Self::Leaving,
        Self::Excluded,
        Self::Gone,
    ];

    /// Rule: which of its states a node is in follows from whether it should have a pod, and from the pod that counts.
    fn of(cell: &Cell) -> Self {
        let pod = cell.pod.as_ref().map(|(pod, _)| pod);
        match (&cell.verdict, pod) {
            (None, _) => Self::Gone,
            (Some(Verdict::Run), None) => Self::Missing,
            (Some(Verdict::Run), Some(pod)) if pod.deleting => Self::Terminating,
            (Some(Verdict::Run), Some(pod)) if !pod.bound => Self::Pending,
            (Some(Verdict::Run), Some(_)) if cell.share.available && cell.share.updated => Self::UpToDate,
            (Some(Verdict::Run), Some(pod)) if pod.ready() && !cell.share.updated => Self::Outdated,
            (Some(Verdict::Run), Some(_)) => Self::NotReady,
            (Some(Verdict::Keep(_)), Some(pod)) if pod.bound && !pod.deleting => Self::Kept,
            (Some(_), Some(_)) => Self::Leaving,
            (Some(_), None) => Self::Excluded,
        }
    }

    pub fn should_run(self) -> bool {
        self <= Self::Missing
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::UpToDate => "up to date",
            Self::Outdated => "outdated",
            Self::NotReady => "not ready",
            Self::Pending => "pending",
            Self::Terminating => "terminating",
            Self::Missing => "missing",
            Self::Kept => "kept",
            Self::Leaving => "leaving",
            Self::Excluded => "excluded",
            Self::Gone => "gone",
        }
    }
}

/// Where the rollout of a set stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutState {
    pub counts: Counts,
    /// How many nodes may be down, or have two pods, at once; and how many are or do.
    pub budget: usize,
    pub charged: usize,
    /// Nodes with an old pod that is up, in the order in which they come.
    pub next: Vec<Text>,
    pub complete: bool,
    /// The label of new pods; `None` while the template is not recorded.
    pub hash: Option<Text>,
    /// What is to be written to the history first.
    pub steps: Vec<Step>,
}

/// What is remembered of a set beside the facts: nobody but the controller that runs knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SetMemory {
    pub generation: i64,
    /// Failed pods by node.
    pub backoffs: BTreeMap<Text, FailedPodBackoff>,
    /// Nodes whose pod was deleted under a revision.
    pub rollout_deletions: BTreeMap<Text, RolloutDeletion>,
    /// Own writes that no watch has shown yet.
    pub unseen_writes: usize,
    /// Calls that failed in a row, and when the next one is made.
    pub failures: u32,
    pub retry_at: Option<Time>,
    /// When the rollout last came further.
    pub advanced_at: Option<Time>,
    /// What became of the last creates.
    pub creates: Creates,
}

impl Planner {
    /// What is true of each node for a set, by name, as of the last look.
    pub fn explain(&self, key: &ObjectKey) -> Vec<NodeExplanation> {
        let cells = self.index.entries.get(key).into_iter().flat_map(|it| it.ledger.cells.iter());
        let mut lines: Vec<NodeExplanation> = cells.map(|(node, cell)| explained(node, cell)).collect();
        lines.sort_by(|a, b| a.node.cmp(&b.node));
        lines
    }

    pub fn rollout_of(&self, key: &ObjectKey) -> Option<RolloutState> {
        let entry = self.index.entries.get(key)?;
        let (ledger, totals) = (&entry.ledger, &entry.ledger.totals);
        Some(RolloutState {
            counts: totals.counts(),
            budget: daemonset::budget(&entry.set, totals.counts().desired),
            charged: usize::try_from(totals.charged).unwrap_or(0),
            next: ledger.offered().cloned().collect(),
            complete: ledger.history.current.is_some() && totals.complete(),
            hash: ledger.history.current.as_ref().map(|it| it.hash.clone()),
            steps: ledger.history.steps.clone(),
        })
    }

    /// What this process alone knows of a set.
    pub fn remembered(&self, key: &ObjectKey) -> Option<SetMemory> {
        let entry = self.index.entries.get(key)?;
        let (set, memory) = (&entry.set, &entry.memory);
        Some(SetMemory {
            generation: set.generation,
            backoffs: memory.backoffs.clone(),
            rollout_deletions: memory.rollout_deletions.clone(),
            unseen_writes: memory.expectations.pending(),
            failures: memory.failures,
            retry_at: memory.retry_at,
            advanced_at: memory.advance.as_ref().map(|it| it.at),
            creates: memory.creates.clone(),
        })
    }

    /// Takes the waits of failed pods from another process, so that this one looks at the set with its eyes.
    pub fn recall(&mut self, key: &ObjectKey, remembered: &SetMemory) {
        if let Some(entry) = self.index.entries.get_mut(key)
            && entry.set.generation == remembered.generation
        {
            entry.memory.generation = remembered.generation;
            entry.memory.backoffs.clone_from(&remembered.backoffs);
            entry.memory.rollout_deletions.clone_from(&remembered.rollout_deletions);
            entry.memory.creates.clone_from(&remembered.creates);
        }
    }

    /// Why no pod of a set can be created, where that is so.
    pub fn refused_creates(&self, key: &ObjectKey) -> Option<String> {
        let entry = self.index.entries.get(key)?;
        let (set, memory) = (&entry.set, &entry.memory);
        daemonset::status::refused_creates(set, &memory.creates)
    }

    /// The pods of a set on one node, by name.
    pub fn pods_on(&self, key: &ObjectKey, node: &Text) -> &[Arc<Pod>] {
        self.index.entries.get(key).and_then(|it| it.pods.get(node)).map_or(&[], Vec::as_slice)
    }

    pub fn node_of(&self, name: &Text) -> Option<&Node> {
        self.index.objects.node(name)
    }
}

fn explained(node: &Text, cell: &Cell) -> NodeExplanation {
    let from_verdict = || match &cell.verdict {
        Some(Verdict::Keep(why) | Verdict::Leave(why)) => why.clone(),
        Some(Verdict::Run) => Why::NoPodHere,
        None => Why::NodeIsGone,
    };
    let standing = cell.pod.as_ref().map(|(_, why)| why.clone());
    let runs = cell.verdict == Some(Verdict::Run);
    let why = cell.waiting.clone().or(standing.filter(|_| runs)).unwrap_or_else(from_verdict);
    NodeExplanation {
        node: node.clone(),
        verdict: cell.verdict.clone(),
        state: NodeState::of(cell),
        pod: cell.pod.as_ref().map(|(pod, _)| pod.key.name.clone()),
        why,
        charged: cell.share.standing.charged,
        wakes_at: cell.again_at,
    }
}
