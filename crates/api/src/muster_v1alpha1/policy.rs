//! The types of RolloutPolicy and ClusterRolloutPolicy, which say how DaemonSets are rolled out.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
#[cfg(feature = "schema")]
use alloc::string::ToString as _;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::checks::RolloutCheck;
use super::daemon_rollout::StatusCondition;
#[cfg(feature = "schema")]
use super::syntax;
#[cfg(feature = "schema")]
use super::validation::{self, rules};
use super::values::{
    ApprovalMode, CountOrPercent, DeadlineAction, FailureAction, GoDuration, NewNodePolicy,
    NodeNotReadyPolicy, OrderBy, OwnedLabelSelector, ReplaceMethod, Weekday,
};
use crate::meta_v1::ObjectMeta;

/// RolloutPolicy controls how new revisions of the DaemonSets of its namespace are rolled out. A policy that names a
/// DaemonSet has precedence over a policy that selects it, and both over a ClusterRolloutPolicy.
#[derive(Deserialize, Clone, Debug)]
pub struct RolloutPolicy<'a, S = RolloutPolicySpec> {
    #[serde(borrow, default)]
    pub metadata: ObjectMeta<'a>,
    #[serde(default)]
    pub spec: S,
    #[serde(default)]
    pub status: RolloutPolicyStatus,
}

/// ClusterRolloutPolicy controls how new revisions of DaemonSets in all namespaces are rolled out. It applies to
/// DaemonSets that no RolloutPolicy names or selects.
#[derive(Deserialize, Clone, Debug)]
pub struct ClusterRolloutPolicy<'a> {
    #[serde(borrow, default)]
    pub metadata: ObjectMeta<'a>,
    #[serde(default)]
    pub spec: ClusterRolloutPolicySpec,
    #[serde(default)]
    pub status: RolloutPolicyStatus,
}

/// Desired behaviour of the rollouts of the selected DaemonSets.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = rules::selector_or_names())))]
#[serde(rename_all = "camelCase")]
pub struct RolloutPolicySpec {
    /// Selects DaemonSets of the namespace by their labels; {} selects all. Exactly one of selector and daemonSets must
    /// be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<OwnedLabelSelector>,
    /// Names of DaemonSets of the namespace. Exactly one of selector and daemonSets must be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = validation::DAEMON_SETS_MAX)))]
    #[cfg_attr(feature = "schema", schemars(extend(
        "items" = {
            "type": "string",
            "maxLength": syntax::SUBDOMAIN_LENGTH_MAX,
            "pattern": syntax::DNS_SUBDOMAIN_PATTERN,
        },
        "x-kubernetes-list-type" = "set",
    )))]
    pub daemon_sets: Option<Vec<String>>,
    #[serde(flatten)]
    pub settings: RolloutSettings,
}

/// Desired behaviour of the rollouts of the selected DaemonSets.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["selector"])))]
#[serde(rename_all = "camelCase")]
pub struct ClusterRolloutPolicySpec {
    /// Selects DaemonSets by their labels; {} selects all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<OwnedLabelSelector>,
    /// Selects the namespaces of the DaemonSets by their labels. Defaults to all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<OwnedLabelSelector>,
    #[serde(flatten)]
    pub settings: RolloutSettings,
}

/// The fields that RolloutPolicy and ClusterRolloutPolicy share.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutSettings {
    /// Whether rollouts are paused: no node gets a new revision. Failures are still counted. Defaults to false.
    pub paused: bool,
    /// Times at which nodes may get a new revision. Defaults to any time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = validation::WINDOWS_MAX)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub windows: Vec<RolloutWindow>,
    /// Number or percentage of nodes whose pod may be unavailable during a rollout. It is used only for DaemonSets with
    /// the update strategy OnDelete that state no maxUnavailable. Percentages are rounded up. Defaults to 1.
    pub max_unavailable: CountOrPercent,
    /// Order in which nodes get a new revision.
    pub order: RolloutOrder,
    /// Steps of a rollout, one after the other. Each limits how many nodes have the new revision. A later step with an
    /// equal selector must not have a lower count or percentage. Defaults to one step with all nodes.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = validation::STEPS_MAX)))]
    #[cfg_attr(feature = "schema", schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
        "x-kubernetes-validations" = rules::steps(),
    )))]
    pub steps: Vec<RolloutStep>,
    /// When a node is faulty, and how many faulty nodes fail a rollout.
    pub failures: FailureBudget,
    /// Reaction to a failed rollout. Rollback returns all nodes to the stable revision, Stop leaves every node as it is.
    /// Auto means Rollback in every step but the last, and Stop in the last. Defaults to Auto.
    pub on_failure: FailureAction,
    /// Time without progress after which onDeadline applies. Paused, soaking and waiting rollouts are excluded. Defaults
    /// to 10m.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("x-kubernetes-validations" = rules::duration(&validation::POSITIVE_DURATION)))
    )]
    pub progress_deadline: GoDuration,
    /// Reaction to a rollout without progress. Report only sets a condition. Defaults to Report.
    pub on_deadline: DeadlineAction,
    /// Revision of nodes that join during a rollout: Stable is the last good one, Latest the new one. Defaults to Stable.
    pub new_nodes: NewNodePolicy,
    /// Checks of the new revision. A step passes only if all checks pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = validation::CHECKS_MAX)))]
    #[cfg_attr(feature = "schema", schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"],
    )))]
    pub checks: Vec<RolloutCheck>,
    /// How pods are replaced.
    pub replace: PodReplacement,
}

impl Default for RolloutSettings {
    fn default() -> Self {
        Self {
            paused: false,
            windows: Vec::new(),
            max_unavailable: CountOrPercent::Count(1),
            order: RolloutOrder::default(),
            steps: [RolloutStep { name: "all".to_owned(), ..RolloutStep::default() }].into(),
            failures: FailureBudget::default(),
            on_failure: FailureAction::default(),
            progress_deadline: GoDuration::new("10m"),
            on_deadline: DeadlineAction::default(),
            new_nodes: NewNodePolicy::default(),
            checks: Vec::new(),
            replace: PodReplacement::default(),
        }
    }
}

/// A time window in which nodes may get a new revision.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend(
    "required" = ["start", "end"],
    "x-kubernetes-validations" = rules::window(),
)))]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutWindow {
    /// Days on which the window starts. Defaults to all days.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 7)))]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "set")))]
    pub days: Vec<Weekday>,
    /// Start of the window as HH:MM.
    #[cfg_attr(feature = "schema", schemars(length(max = 5), regex(pattern = syntax::CLOCK_TIME_PATTERN)))]
    pub start: String,
    /// End of the window as HH:MM. An end before start is on the next day.
    #[cfg_attr(feature = "schema", schemars(length(max = 5), regex(pattern = syntax::CLOCK_TIME_PATTERN)))]
    pub end: String,
    /// IANA time zone of start and end, such as Europe/Berlin. Defaults to UTC.
    #[cfg_attr(feature = "schema", schemars(length(max = syntax::TIME_ZONE_LENGTH_MAX)))]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = syntax::TIME_ZONE_PATTERN)))]
    pub time_zone: String,
}

impl Default for RolloutWindow {
    fn default() -> Self {
        Self {
            days: Weekday::VALUES.iter().map(|it| Weekday::from(*it)).collect(),
            start: String::new(),
            end: String::new(),
            time_zone: "UTC".to_owned(),
        }
    }
}

/// The order in which nodes get a new revision.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = rules::order())))]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutOrder {
    /// Hash orders nodes by a hash of the stable revision and the node name, Name by node name, Label by the value of
    /// labelKey. Defaults to Hash.
    pub by: OrderBy,
    /// Node label by whose value nodes are ordered; numbers are compared as numbers, and nodes without the label are
    /// last. Required if by is Label, and forbidden otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(transform = syntax::label_key_schema))]
    pub label_key: Option<String>,
}

/// A step of a rollout: how many nodes have the new revision, and when the next step begins.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend(
    "required" = ["name"],
    "x-kubernetes-validations" = rules::step(),
)))]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutStep {
    /// Name of the step, unique in the policy.
    #[cfg_attr(feature = "schema", schemars(length(max = syntax::LABEL_LENGTH_MAX)))]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = syntax::DNS_LABEL_PATTERN)))]
    pub name: String,
    /// Number or percentage of the eligible nodes that match selector and have the new revision at the end of the step.
    /// Nodes of earlier steps are included. Percentages are rounded up. Defaults to 100%.
    pub nodes: CountOrPercent,
    /// Selects the nodes of the step by their labels. Defaults to all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<OwnedLabelSelector>,
    /// Spreads the nodes of the step evenly over the values of a label. Must not be set together with groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<StepSpread>,
    /// Time for which the pod of each node of the step must be available before the step passes. Defaults to 0s.
    pub soak: GoDuration,
    /// Whether the next step begins automatically, or after an operator has approved this step. Defaults to Automatic.
    pub approval: ApprovalMode,
    /// Updates the nodes of the step group by group. Allowed only in the last step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<StepGroups>,
}

impl Default for RolloutStep {
    fn default() -> Self {
        Self {
            name: String::new(),
            nodes: CountOrPercent::Percent(100),
            selector: None,
            spread: None,
            soak: GoDuration::new("0s"),
            approval: ApprovalMode::default(),
            groups: None,
        }
    }
}

/// Spreads the nodes of a step over the values of a label.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["labelKey"])))]
#[serde(rename_all = "camelCase", default)]
pub struct StepSpread {
    /// Node label over whose values the nodes are spread, such as topology.kubernetes.io/zone.
    #[cfg_attr(feature = "schema", schemars(transform = syntax::label_key_schema))]
    pub label_key: String,
}

/// Groups of nodes that are updated in order, by default one at a time.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("required" = ["labelKey"])))]
#[serde(rename_all = "camelCase", default)]
pub struct StepGroups {
    /// Node label whose values form the groups, such as topology.kubernetes.io/zone.
    #[cfg_attr(feature = "schema", schemars(transform = syntax::label_key_schema))]
    pub label_key: String,
    /// Label values of the first groups, in order. Other groups follow by label value, and nodes without the label are
    /// last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = validation::SEQUENCE_MAX)))]
    #[cfg_attr(feature = "schema", schemars(extend(
        "items" = {
            "type": "string",
            "maxLength": syntax::LABEL_LENGTH_MAX,
            "pattern": syntax::NON_EMPTY_LABEL_VALUE_PATTERN,
        },
        "x-kubernetes-list-type" = "atomic",
        "x-kubernetes-validations" = rules::sequence(),
    )))]
    pub sequence: Vec<String>,
    /// Number of groups that are updated at the same time. Defaults to 1.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub max_concurrent: i32,
    /// Number or percentage of the nodes of a group whose pod may be unavailable. The limit of the DaemonSet applies too.
    /// Percentages are rounded up. Defaults to 100%.
    pub max_unavailable: CountOrPercent,
    /// Time for which the pods of a group must be available before the next group begins. Defaults to 0s.
    pub soak: GoDuration,
}

impl Default for StepGroups {
    fn default() -> Self {
        Self {
            label_key: String::new(),
            sequence: Vec::new(),
            max_concurrent: 1,
            max_unavailable: CountOrPercent::Percent(100),
            soak: GoDuration::new("0s"),
        }
    }
}

/// When a node is faulty, and how many faulty nodes fail a rollout.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct FailureBudget {
    /// Maximum number of faulty nodes, or percentage of the nodes that have had the new revision. With more faulty
    /// nodes, a rollout fails. Percentages are rounded down. Defaults to 2%.
    #[cfg_attr(feature = "schema", schemars(extend(
        "minimum" = 0,
        "maximum" = validation::FAULTY_NODES_MAX,
        "pattern" = syntax::FAILURE_PERCENT_PATTERN,
    )))]
    pub max_nodes: CountOrPercent,
    /// Highest number of restarts of a container of a new pod; with more, the node is faulty. Defaults to 2.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = validation::RESTARTS_MAX)))]
    pub max_restarts: i32,
    /// Time for which a new pod may be unavailable before its node counts as faulty. Defaults to 5m.
    #[cfg_attr(
        feature = "schema",
        schemars(extend("x-kubernetes-validations" = rules::duration(&validation::POSITIVE_DURATION)))
    )]
    pub ready_timeout: GoDuration,
    /// Waiting reasons of containers that make a node faulty at once. Defaults to InvalidImageName, ErrImageNeverPull and
    /// CreateContainerConfigError.
    #[cfg_attr(feature = "schema", schemars(length(max = validation::REASONS_MAX)))]
    #[cfg_attr(feature = "schema", schemars(extend(
        "items" = {"type": "string", "minLength": 1, "maxLength": validation::REASON_LENGTH_MAX},
        "x-kubernetes-list-type" = "atomic",
    )))]
    pub immediate_failure_reasons: Vec<String>,
    /// Whether a node that becomes NotReady after it got the new revision is faulty (Count) or not (Ignore). Defaults to
    /// Count.
    pub node_not_ready: NodeNotReadyPolicy,
}

impl Default for FailureBudget {
    fn default() -> Self {
        /// Default of `immediateFailureReasons`.
        const DEFAULT_REASONS: [&str; 3] =
            ["InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError"];
        Self {
            max_nodes: CountOrPercent::Percent(2),
            max_restarts: 2,
            ready_timeout: GoDuration::new("5m"),
            immediate_failure_reasons: DEFAULT_REASONS.map(str::to_owned).into(),
            node_not_ready: NodeNotReadyPolicy::default(),
        }
    }
}

/// How pods are replaced.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PodReplacement {
    /// Whether pods are deleted, or evicted so that PodDisruptionBudgets are respected. Defaults to Delete.
    pub method: ReplaceMethod,
}

/// Observed state of a policy.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutPolicyStatus {
    /// Generation of the policy that the controller has observed.
    pub observed_generation: i64,
    /// Numbers of DaemonSets of the policy.
    pub sets: PolicySetCounts,
    /// Conditions of the policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"],
    )))]
    pub conditions: Vec<StatusCondition>,
}

/// Numbers of DaemonSets of a policy.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PolicySetCounts {
    /// DaemonSets that the policy applies to.
    pub matched: i32,
    /// DaemonSets that are being rolled out.
    pub rolling: i32,
    /// DaemonSets whose rollout waits for an approval or a check.
    pub waiting: i32,
    /// DaemonSets whose rollout failed.
    pub failed: i32,
}
