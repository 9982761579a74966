//! The types of DaemonRollout. A DaemonRollout contains the instructions of operators for the rollout of one DaemonSet,
//! and the state of the rollout.

use alloc::string::String;
#[cfg(feature = "schema")]
use alloc::string::ToString as _;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use super::syntax;
#[cfg(feature = "schema")]
use super::validation;
use super::values::{CheckOutcome, ReportedResult, RolloutPhase};
use crate::meta_v1::ObjectMeta;
use crate::time::Time;

/// DaemonRollout is the rollout of the DaemonSet of the same name. Operators write the spec, the controller writes the
/// status.
#[derive(Deserialize, Clone, Debug)]
pub struct DaemonRollout<'a> {
    #[serde(borrow, default)]
    pub metadata: ObjectMeta<'a>,
    #[serde(default)]
    pub spec: DaemonRolloutSpec,
    #[serde(default)]
    pub status: DaemonRolloutStatus,
}

/// Instructions that operators give for the rollout. The controller never writes them. An instruction for a revision
/// that is not current has no effect.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonRolloutSpec {
    /// Whether the rollout is paused: no node gets a new revision, and a rollback stops. Failures are still counted.
    /// Defaults to false.
    pub paused: bool,
    /// Approves a step of a revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approve: Option<StepApproval>,
    /// Aborts the rollout of a revision: all nodes return to the stable revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort: Option<RolloutAbort>,
    /// Starts a failed rollout of a revision again, at its first step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RolloutRetry>,
    /// Results of external checks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = validation::CHECKS_MAX)))]
    #[cfg_attr(feature = "schema", schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["check"],
    )))]
    pub check_reports: Vec<CheckReport>,
}

/// The approval of a step.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["revision", "step"])))]
#[serde(default)]
pub struct StepApproval {
    /// Hash of the revision, as in status.current.revision.
    #[cfg_attr(feature = "schema", schemars(length(max = syntax::LABEL_LENGTH_MAX)))]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = syntax::NON_EMPTY_LABEL_VALUE_PATTERN)))]
    pub revision: String,
    /// Name of the step, or * for all steps: all nodes then get the revision, without soak times and approvals. The
    /// failure budget and the checks still apply.
    #[cfg_attr(feature = "schema", schemars(length(max = syntax::LABEL_LENGTH_MAX)))]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = syntax::APPROVED_STEP_PATTERN)))]
    pub step: String,
}

/// The revision whose rollout is aborted.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["revision"])))]
#[serde(default)]
pub struct RolloutAbort {
    /// Hash of the revision, as in status.current.revision.
    #[cfg_attr(feature = "schema", schemars(length(max = syntax::LABEL_LENGTH_MAX)))]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = syntax::NON_EMPTY_LABEL_VALUE_PATTERN)))]
    pub revision: String,
}

/// The revision whose rollout starts again, and the number of the attempt.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["revision", "attempt"])))]
#[serde(default)]
pub struct RolloutRetry {
    /// Hash of the revision, as in status.current.revision.
    #[cfg_attr(feature = "schema", schemars(length(max = syntax::LABEL_LENGTH_MAX)))]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = syntax::NON_EMPTY_LABEL_VALUE_PATTERN)))]
    pub revision: String,
    /// Number of the attempt to start. It has an effect if it is higher than status.attempt.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub attempt: i32,
}

/// The result of an external check.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["check", "revision", "result"])))]
#[serde(default)]
pub struct CheckReport {
    /// Name of the check in the policy.
    #[cfg_attr(feature = "schema", schemars(length(max = syntax::LABEL_LENGTH_MAX)))]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = syntax::DNS_LABEL_PATTERN)))]
    pub check: String,
    /// Hash of the revision that was checked, as in status.current.revision.
    #[cfg_attr(feature = "schema", schemars(length(max = syntax::LABEL_LENGTH_MAX)))]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = syntax::NON_EMPTY_LABEL_VALUE_PATTERN)))]
    pub revision: String,
    /// Result of the check.
    pub result: ReportedResult,
    /// Explanation of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = validation::REPORT_LENGTH_MAX)))]
    pub message: Option<String>,
}

impl Default for CheckReport {
    fn default() -> Self {
        // A report without a result is invalid: it must not pass a check.
        let result = ReportedResult::Unknown(String::new());
        Self { check: String::new(), revision: String::new(), result, message: None }
    }
}

/// Observed state of a rollout.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DaemonRolloutStatus {
    /// Generation of the DaemonRollout that the controller has observed.
    pub observed_generation: i64,
    /// The policy of the DaemonSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyRef>,
    /// Phase of the rollout. Complete: every eligible node has the current revision. Rolling: nodes get the current
    /// revision. Soaking: the nodes of the step have it, and their soak time is not over. Waiting: an approval or the
    /// result of a check is missing. PartiallyComplete: the last step has passed but does not include all nodes, or no
    /// node is eligible. Stopped: nodes keep their revision, for example because the rollout failed or made no
    /// progress; message says why. RollingBack and RolledBack: nodes return, or have returned, to the stable revision.
    pub phase: RolloutPhase,
    /// Whether the rollout is paused: by its spec, by its policy, because the policy is invalid, or by a closed window.
    /// message says why, except in a failed rollout, where it says why the rollout failed.
    pub paused: bool,
    /// Explanation of the phase.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Revision of the template of the DaemonSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<RevisionRef>,
    /// The last good revision. Absent if none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stable: Option<RevisionRef>,
    /// Number of the attempt to roll out the current revision, from 1.
    pub attempt: i32,
    /// Time at which the attempt started. With newNodes Latest, nodes that are created later get the current revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_start_time: Option<Time>,
    /// The current step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepProgress>,
    /// Nodes that may get the current revision, by step and group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub admitted: Vec<AdmittedNodes>,
    /// Numbers of nodes.
    pub nodes: RolloutNodeCounts,
    /// Faulty nodes.
    pub failures: RolloutFailures,
    /// Last results of the checks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    )))]
    pub checks: Vec<CheckStatus>,
    /// Last time at which the rollout made progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_progress_time: Option<Time>,
    /// Conditions of the rollout.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"],
    )))]
    pub conditions: Vec<StatusCondition>,
}

/// The policy of a DaemonSet.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PolicyRef {
    /// RolloutPolicy or ClusterRolloutPolicy.
    pub kind: String,
    /// Name of the policy.
    pub name: String,
    /// Generation of the policy that the rollout follows.
    pub generation: i64,
}

/// A revision of a DaemonSet.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RevisionRef {
    /// Hash of the revision: the value of the label controller-revision-hash.
    pub revision: String,
    /// Number of the revision, as in kubectl rollout history.
    pub number: i64,
}

/// The current step of a rollout.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct StepProgress {
    /// Name of the step.
    pub name: String,
    /// Index of the step in the policy, from 0.
    pub index: i32,
    /// Number of nodes that have the current revision at the end of the step.
    pub target: i32,
    /// Time at which the step began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// Earliest time at which the step can pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passes_at: Option<Time>,
}

/// Nodes that may get the current revision.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct AdmittedNodes {
    /// Name of the step.
    pub step: String,
    /// Label value of the group, if the step has groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Names of admitted nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub nodes: Vec<String>,
    /// Sort key of a node in the order of the rollout. Nodes with this sort key or a lower one are admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to: Option<String>,
    /// Only nodes that were created at this time or before are admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_before: Option<Time>,
}

/// Numbers of nodes of a rollout.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RolloutNodeCounts {
    /// Nodes that should run a pod of the DaemonSet.
    pub eligible: i32,
    /// Nodes that may get the current revision.
    pub admitted: i32,
    /// Nodes with a pod of the current revision.
    pub updated: i32,
    /// Nodes with an available pod of the current revision.
    pub available: i32,
    /// Nodes whose pod of the current revision has been available for the soak time.
    pub soaked: i32,
    /// Nodes that are not admitted, but have a pod of a revision that is not known to be good.
    pub unassigned: i32,
    /// Eligible nodes that are not admitted, including unassigned nodes. They keep or get the stable revision.
    pub held: i32,
}

/// Faulty nodes of a rollout.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutFailures {
    /// Number of faulty nodes in this attempt.
    pub counted: i32,
    /// Maximum number of faulty nodes. With more faulty nodes, the rollout fails.
    pub allowed: i32,
    /// Faulty nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = validation::FAULTY_NODES_MAX)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub nodes: Vec<NodeFailure>,
    /// Nodes that were already faulty when they got the current revision, and are not counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = validation::FAULTY_NODES_MAX)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub excused: Vec<NodeFailure>,
    /// Number of excused nodes.
    pub excused_count: i32,
}

/// The failure of a node.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NodeFailure {
    /// Name of the node.
    pub node: String,
    /// Reason of the failure, such as CrashLoopBackOff.
    pub reason: String,
    /// Time at which the failure was observed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
}

/// The last result of a check.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["name"])))]
#[serde(default)]
pub struct CheckStatus {
    /// Name of the check.
    pub name: String,
    /// Result of the check. Inconclusive means that the check has neither passed nor failed.
    pub result: CheckOutcome,
    /// Time since which the check has this result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Explanation of the result.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Condition contains details for one aspect of the current state of this API Resource.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "io.k8s.apimachinery.pkg.apis.meta.v1.Condition"))]
#[cfg_attr(feature = "schema", schemars(extend(
    "required" = ["type", "status", "lastTransitionTime", "reason"],
)))]
#[serde(rename_all = "camelCase", default)]
pub struct StatusCondition {
    /// type of condition in CamelCase or in foo.example.com/CamelCase.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "schema", schemars(transform = syntax::label_key_schema))]
    pub type_: String,
    /// status of the condition, one of True, False, Unknown.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["True", "False", "Unknown"])))]
    pub status: String,
    /// observedGeneration represents the .metadata.generation that the condition was set based upon. For instance, if
    /// .metadata.generation is currently 12, but the .status.conditions\[x\].observedGeneration is 9, the condition is out
    /// of date with respect to the current state of the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub observed_generation: Option<i64>,
    /// lastTransitionTime is the last time the condition transitioned from one status to another. This should be when the
    /// underlying condition changed. If that is not known, then using the time when the API field changed is acceptable.
    pub last_transition_time: Option<Time>,
    /// reason contains a programmatic identifier indicating the reason for the condition's last transition. Producers of
    /// specific condition types may define expected values and meanings for this field, and whether the values are
    /// considered a guaranteed API. The value should be a CamelCase string. This field may not be empty.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub reason: String,
    /// message is a human readable message indicating details about the transition. This may be an empty string.
    #[cfg_attr(feature = "schema", schemars(length(max = 32768)))]
    pub message: String,
}
