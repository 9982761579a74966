//! A DaemonRollout as the rules read it: the operator's requests in its spec, and the stored state of the rollout in its
//! status.

use alloc::vec::Vec;

use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use super::membership::NodeAdmission;
use super::policy::PolicyKind;

/// A DaemonRollout. It has the name and namespace of its DaemonSet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutRecord {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub generation: i64,
    pub requests: OperatorRequests,
    pub status: RolloutStatus,
}

/// The spec of a DaemonRollout. Only operators write it. A request names the revision that it is about, so that a late
/// request has no effect on another revision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OperatorRequests {
    pub paused: bool,
    pub approve: Option<ApproveRequest>,
    /// The revision to roll back.
    pub abort: Option<Text>,
    pub retry: Option<RetryRequest>,
    pub check_reports: Vec<CheckReport>,
}

/// Approves a step, or with the step `*` all steps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApproveRequest {
    pub revision: Text,
    pub step: Text,
}

/// The step name that stands for all steps.
pub const ALL_STEPS: &str = "*";

/// Starts a new attempt of a revision, from the first step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetryRequest {
    pub revision: Text,
    pub attempt: u32,
}

/// The result of an external check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckReport {
    pub check: Text,
    pub revision: Text,
    pub result: CheckResult,
    pub message: Text,
}

/// The result of a check. Only `Pass` lets a step pass; an inconclusive check holds the rollout and stops nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckResult {
    Pass,
    Fail,
    Inconclusive,
}

/// The status of a DaemonRollout. The default is that of an object that no controller has written yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RolloutStatus {
    pub observed_generation: i64,
    pub policy: Option<PolicyReference>,
    /// `None` until the controller has written the status for the first time.
    pub phase: Option<Phase>,
    /// Whether the operator, the policy or a closed window holds the rollout.
    pub paused: bool,
    pub message: Text,
    pub current: Option<RevisionReference>,
    pub stable: Option<RevisionReference>,
    pub attempt: u32,
    pub step: Option<StepStatus>,
    pub admitted: Vec<NodeAdmission>,
    pub nodes: NodeCounts,
    pub failures: FailureStatus,
    pub checks: Vec<CheckStatus>,
    pub last_progress: Option<Time>,
}

/// The policy that governs the rollout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyReference {
    pub kind: PolicyKind,
    pub name: Text,
    pub generation: i64,
}

/// A revision by its hash label and number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevisionReference {
    pub hash: Text,
    pub number: i64,
}

/// The phase of a rollout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// R is good and on every eligible node.
    Complete,
    /// Nodes of the current step are admitted and updated within the budget.
    Rolling,
    /// All nodes of the step have R; the step waits for its soak time.
    Soaking,
    /// The step has soaked, but an approval or a conclusive check is missing.
    Waiting,
    /// The last step has passed, and nodes remain that no step reaches. R is not good yet.
    PartiallyComplete,
    /// The rollout has stopped: R failed, made no progress, or its policy was deleted. Nodes keep their revision.
    Stopped,
    /// R has failed; all nodes are being returned to S.
    RollingBack,
    /// All nodes have S again.
    RolledBack,
}

impl Phase {
    pub const ALL: [Self; 8] = [
        Self::Complete,
        Self::Rolling,
        Self::Soaking,
        Self::Waiting,
        Self::PartiallyComplete,
        Self::Stopped,
        Self::RollingBack,
        Self::RolledBack,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "Complete",
            Self::Rolling => "Rolling",
            Self::Soaking => "Soaking",
            Self::Waiting => "Waiting",
            Self::PartiallyComplete => "PartiallyComplete",
            Self::Stopped => "Stopped",
            Self::RollingBack => "RollingBack",
            Self::RolledBack => "RolledBack",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }

    /// Whether R has failed: no further node gets it.
    pub fn is_failed(self) -> bool {
        matches!(self, Self::Stopped | Self::RollingBack | Self::RolledBack)
    }
}

/// The step that a rollout is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepStatus {
    pub name: Text,
    pub index: usize,
    /// Number of nodes that may have R in this step.
    pub target: usize,
    pub started: Time,
    /// The time at which the step passes, if no node fails until then; known only while it soaks.
    pub passes_at: Option<Time>,
}

/// Numbers of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeCounts {
    pub eligible: usize,
    pub admitted: usize,
    pub updated: usize,
    pub available: usize,
    pub soaked: usize,
    /// Nodes that have a revision that is not good and that they are not assigned.
    pub unassigned: usize,
    pub held: usize,
}

/// The failed nodes of an attempt. A node stays listed when its pod or the node itself is gone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FailureStatus {
    pub allowed: usize,
    pub nodes: Vec<NodeFailure>,
    /// Nodes that were already in trouble when the rollout took their pod: their failures are not counted.
    pub excused: Vec<NodeFailure>,
    /// Number of excused nodes, including those that are not listed.
    pub excused_count: usize,
}

impl FailureStatus {
    /// Number of nodes that count as failed. All of them are listed.
    pub fn counted(&self) -> usize {
        self.nodes.len()
    }

    pub fn has_failed(&self, node: &str) -> bool {
        self.nodes.iter().any(|it| *it.node == *node)
    }

    pub fn is_excused(&self, node: &str) -> bool {
        self.excused.iter().any(|it| *it.node == *node)
    }
}

/// A node that failed, or whose failures are excused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeFailure {
    pub node: Text,
    pub reason: Text,
    pub at: Time,
}

/// The last result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckStatus {
    pub name: Text,
    pub result: CheckResult,
    pub at: Time,
    pub message: Text,
}
