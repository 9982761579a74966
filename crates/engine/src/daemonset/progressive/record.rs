//! The decoded form of a DaemonRollout: the operator's requests in its spec, and the stored state of the rollout in its
//! status.

use alloc::vec::Vec;
use core::fmt;

use muster_api::muster_v1alpha1::daemon_rollout::StatusCondition;
use muster_api::object_key::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;

use super::membership::NodeAdmission;
use super::policy::PolicyKind;

/// The fields of a DaemonRollout that the controller uses. A DaemonRollout has the name and namespace of its DaemonSet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RolloutRecord {
    pub key: ObjectKey,
    pub uid: Text,
    /// UIDs of the DaemonSets in the owner references of the DaemonRollout.
    pub owners: Vec<Text>,
    pub resource_version: u64,
    pub generation: i64,
    /// The requests of operators, such as pause or retry: the `spec` of the DaemonRollout.
    pub requests: OperatorRequests,
    /// The stored `status` of the DaemonRollout.
    pub status: RolloutStatus,
    /// The stored conditions. A condition whose status does not change keeps its transition time.
    pub conditions: Vec<StatusCondition>,
    /// Why this version of the controller cannot interpret the DaemonRollout, for example because a newer version wrote
    /// it. `None` if this version can interpret the DaemonRollout.
    pub unreadable: Option<Text>,
}

impl RolloutRecord {
    /// Whether the DaemonRollout belongs to the DaemonSet with this UID.
    ///
    /// Rule: a DaemonRollout belongs to the DaemonSet if its owner references name that DaemonSet, or no DaemonSet at
    /// all. Otherwise the DaemonRollout is left over from a deleted DaemonSet of the same name. Such a DaemonRollout is
    /// neither read nor written, and the garbage collector deletes it. Until then no other DaemonRollout of this name
    /// can be created.
    pub fn belongs_to(&self, set_uid: &Text) -> bool {
        self.owners.is_empty() || self.owners.contains(set_uid)
    }
}

/// The requests of operators, from the spec of a DaemonRollout. Every request except `paused` names a revision, so that
/// a late request has no effect on another revision.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OperatorRequests {
    /// Whether an operator paused the rollout (`spec.paused`).
    pub paused: bool,
    /// The approval of a step, after which the next step may start. `None` if no operator has approved a step.
    pub approve: Option<ApproveRequest>,
    /// Hash of the revision whose rollout is to be aborted. `None` if no operator has requested an abort.
    pub abort: Option<Text>,
    /// The request to start a new attempt to roll out a revision. `None` if no operator has requested one.
    pub retry: Option<RetryRequest>,
    /// Results of external checks that other components reported, for any revision.
    pub check_reports: Vec<CheckReport>,
}

/// An operator's approval of a step, after which the next step may start. The step name `*` approves all steps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApproveRequest {
    /// Hash of the revision whose step is approved.
    pub revision: Text,
    /// Name of the approved step, or [`ALL_STEPS`].
    pub step: Text,
}

/// The step name `*`, which stands for all steps.
pub const ALL_STEPS: &str = "*";

/// A request to start a new attempt to roll out a revision, from the first step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RetryRequest {
    /// Hash of the revision to retry.
    pub revision: Text,
    /// Number of the new attempt. The request has an effect only if this number is higher than the number of the
    /// current attempt.
    pub attempt: u32,
}

/// The result of an external check, which another component reports in the spec of the DaemonRollout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckReport {
    /// Name of the check, as in the policy.
    pub check: Text,
    /// Hash of the revision that was checked.
    pub revision: Text,
    pub result: CheckResult,
    pub message: Text,
}

/// The result of a check. Only `Pass` lets a step pass. An inconclusive check makes the step wait, but does not fail
/// the revision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckResult {
    Pass,
    Fail,
    /// The check has no result yet, its last result is too old, or its measurement showed neither a pass nor a failure.
    Inconclusive,
}

/// The status of a DaemonRollout. The default is the status of an object that no controller has written yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RolloutStatus {
    pub observed_generation: i64,
    /// The policy that governs the DaemonSet. `None` if no policy selects it.
    pub policy: Option<PolicyReference>,
    /// The phase of the rollout. `None` until the controller has written the status for the first time.
    pub phase: Option<Phase>,
    /// Whether the rollout is paused: by an operator, by the policy, because the policy is invalid, or because no
    /// maintenance window is open.
    pub paused: bool,
    /// Why the rollout is in its phase, or why it is paused.
    pub message: Text,
    /// The revision of the DaemonSet's template, which is being rolled out. `None` until the controller has written the
    /// status.
    pub current: Option<RevisionReference>,
    /// The stable revision: the one with the latest verdict `Good`. `None` if there is none.
    pub stable: Option<RevisionReference>,
    /// Number of the current attempt, counted from one. 0 before the first attempt.
    pub attempt: u32,
    /// Time at which the current attempt started. `None` before the first attempt.
    pub attempt_started: Option<Time>,
    /// The step that the rollout is in. `None` if no step has started.
    pub step: Option<StepStatus>,
    /// The nodes that are admitted, that is, assigned the current revision.
    pub admitted: Vec<NodeAdmission>,
    /// Numbers of eligible nodes by their state in the rollout.
    pub nodes: NodeCounts,
    /// The failed nodes and the excused nodes of this attempt.
    pub failures: FailureStatus,
    /// The last result of each check.
    pub checks: Vec<CheckStatus>,
    /// Time from which `progressDeadline` is measured: the last time at which the number of updated or of available
    /// nodes increased, a step started, or the rollout became able to advance again. `None` before the first attempt.
    pub last_progress: Option<Time>,
}

/// Formats the phase, the step, the counts of nodes and the message, if any, such as `Rolling canary 1/1, 1 admitted, 2
/// held`. In `1/1`, the first number is the number of nodes with an available pod of the current revision. The second
/// number is the target of the step.
impl fmt::Display for RolloutStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.phase.map_or("-", Phase::as_str))?;
        if self.paused {
            f.write_str(" (paused)")?;
        }
        if let Some(step) = &self.step {
            write!(f, " {} {}/{}", step.name, self.nodes.available, step.target)?;
        }
        write!(f, ", {} admitted, {} held", self.nodes.admitted, self.nodes.held)?;
        if !self.failures.nodes.is_empty() {
            write!(f, ", {} failed", self.failures.failed_count())?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

/// Kind, name and generation of the policy that governs a DaemonSet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyReference {
    pub kind: PolicyKind,
    pub name: Text,
    pub generation: i64,
}

/// The hash label and number of a revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevisionReference {
    /// Value of the label `controller-revision-hash` of the revision.
    pub hash: Text,
    /// The `revision` number of the ControllerRevision.
    pub number: i64,
}

/// The phase of a rollout, as its status reports it. Unlike [`RolloutPhase`] of the API, this enum has no variant for
/// unknown phases, so that the state machine covers every phase.
///
/// [`RolloutPhase`]: muster_api::muster_v1alpha1::values::RolloutPhase
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// The rollout has ended: the current revision has the verdict `Good` and is assigned to every node.
    Complete,
    /// Nodes of the current step are assigned the current revision, and are updated within the budget.
    Rolling,
    /// All nodes of the step, except failed ones, have an available pod of the current revision. The step waits until
    /// these pods have been healthy for the soak time and, if the rollout is paused, until the pause ends.
    Soaking,
    /// All nodes of the step, except failed ones, have been healthy for the soak time. The step waits because an
    /// approval is missing, or because a check has not passed.
    Waiting,
    /// The last step has passed, but some nodes do not get the current revision, because the steps do not cover all
    /// nodes. A rollout without eligible nodes is in this phase, too. A rollout in this phase has not given the current
    /// revision the verdict `Good`.
    PartiallyComplete,
    /// The rollout has stopped, for example because the current revision failed, made no progress or had the verdict
    /// `Bad` already, or because the policy was deleted. Nodes keep their revision.
    Stopped,
    /// The current revision has failed or was aborted, and all nodes are being returned to the stable revision.
    RollingBack,
    /// All nodes have the stable revision again.
    RolledBack,
}

impl Phase {
    /// All phases, for [`Phase::parse`].
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

    /// Returns the name of the phase in the status.
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

    /// Parses the name of a phase. `None` if this version of the controller does not know the phase.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }

    /// Whether the rollout of the current revision did not succeed: it has stopped, is being rolled back, or was rolled
    /// back.
    pub fn is_failed(self) -> bool {
        matches!(self, Self::Stopped | Self::RollingBack | Self::RolledBack)
    }
}

/// Name, target and times of the step that a rollout is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepStatus {
    pub name: Text,
    /// Index of the step in the policy, from zero. The step `*`, which is not in the policy and admits every node, has
    /// the index of the last step.
    pub index: usize,
    /// Number of nodes that may have the current revision in this step.
    pub target: usize,
    /// Time at which the current step started. For the step `*`, the start of the step that it replaced, if any.
    pub started: Time,
    /// Time at which all nodes of the step will have been healthy for the soak time, if their pods stay healthy. `None`
    /// if the phase is not `Soaking`, or if no node soaks.
    pub passes_at: Option<Time>,
}

/// Numbers of eligible nodes by their state in a rollout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeCounts {
    /// Nodes that should run a pod, according to the template of the current revision.
    pub eligible: usize,
    /// Nodes that are assigned the current revision.
    pub admitted: usize,
    /// Nodes with a pod of the current revision.
    pub updated: usize,
    /// Nodes with an available pod of the current revision.
    pub available: usize,
    /// Nodes whose pod of the current revision is available, and has been healthy for the soak time of the current
    /// step.
    pub soaked: usize,
    /// Nodes that have a pod of a revision without the verdict `Good`, although they are not admitted.
    pub unassigned: usize,
    /// Nodes that are not admitted. They are assigned the stable revision.
    pub held: usize,
}

/// The failed nodes and the excused nodes of an attempt. A node stays listed after its pod or the node itself is gone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FailureStatus {
    /// Maximum number of failed nodes that is tolerated. With one more failed node, the revision counts as failed.
    pub allowed: usize,
    /// Nodes that count as failed in this attempt.
    pub nodes: Vec<NodeFailure>,
    /// Nodes whose failures are not counted, because the node or its old pod was not Ready when the rollout was about
    /// to delete the old pod or, with surge, to create the new one.
    pub excused: Vec<NodeFailure>,
    /// Number of excused nodes: the length of `excused`, which lists all of them.
    pub excused_count: usize,
}

impl FailureStatus {
    /// Returns the number of nodes that count as failed: the length of `nodes`, which lists all of them.
    pub fn failed_count(&self) -> usize {
        self.nodes.len()
    }

    /// Whether a node counts as failed.
    pub fn has_failed(&self, node: &str) -> bool {
        self.nodes.iter().any(|it| *it.node == *node)
    }

    /// Whether the failures of a node are not counted.
    pub fn is_excused(&self, node: &str) -> bool {
        self.excused.iter().any(|it| *it.node == *node)
    }
}

/// A node that failed, or whose failures are not counted (excused), with the reason and time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeFailure {
    /// Name of the node that failed or is excused.
    pub node: Text,
    /// Why the node failed, or why its failures are not counted.
    pub reason: Text,
    /// Time at which the status first listed the node.
    pub at: Time,
}

/// The last result of a check, with its time and message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckStatus {
    pub name: Text,
    pub result: CheckResult,
    /// Time of the measurement. In the status of a rollout, the time since which the check has had this result.
    pub at: Time,
    pub message: Text,
}
