//! Decodes RolloutPolicies, ClusterRolloutPolicies and DaemonRollouts, and encodes the status of a DaemonRollout.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use muster_api::interner::Interner;
use muster_api::json;
use muster_api::labels::Selector;
use muster_api::meta_v1::{ObjectMeta, PartialObjectMetadata};
use muster_api::muster_v1alpha1::checks::RolloutCheck;
use muster_api::muster_v1alpha1::daemon_rollout::{self as api, DaemonRollout};
use muster_api::muster_v1alpha1::policy::{
    self as api_policy, ClusterRolloutPolicy, RolloutPolicy, RolloutPolicyStatus, RolloutSettings,
    RolloutStep,
};
use muster_api::muster_v1alpha1::validation;
use muster_api::muster_v1alpha1::values::{
    ApprovalMode, CheckOutcome, CountOrPercent, DeadlineAction, FailureAction, NewNodePolicy,
    NodeNotReadyPolicy, OrderBy, OwnedLabelSelector, ReportedResult, RolloutPhase,
};
use muster_api::muster_v1alpha1::{DAEMON_ROLLOUT, values};
use muster_api::text::Text;
use serde::de::IgnoredAny;

use super::membership::{AdmittedMembers, NodeAdmission};
use super::order::{NodeOrder, OrderKey};
use super::policy::{
    Approval, Check, CheckSource, FailureRules, NewNodeRevision, NodeGroups, OnDeadline, OnFailure, Policy,
    PolicyKind, PolicySpec, ReplaceMethod, SetSelection, Step,
};
use super::record::{
    ApproveRequest, CheckReport, CheckResult, CheckStatus, FailureStatus, NodeCounts, NodeFailure,
    OperatorRequests, Phase, PolicyReference, RetryRequest, RevisionReference, RolloutRecord, RolloutStatus,
    StepStatus,
};
use super::window::Window;
use crate::controller::Malformed;
use crate::daemonset::facts::IntOrPercent;

/// A policy with its UID and its stored status.
#[derive(Clone, PartialEq, Debug)]
pub struct WatchedPolicy {
    pub policy: Policy,
    pub uid: Text,
    pub status: RolloutPolicyStatus,
}

impl AsRef<Policy> for WatchedPolicy {
    fn as_ref(&self) -> &Policy {
        &self.policy
    }
}

/// Decodes a RolloutPolicy. If its spec cannot be decoded, the policy is invalid and selects all DaemonSets of its
/// namespace. Fails only if the metadata cannot be decoded.
pub fn decode_policy(object: &[u8], shared: &mut Interner) -> Result<WatchedPolicy, Malformed> {
    let RolloutPolicy { metadata, spec, status } = match json::from_slice::<RolloutPolicy<'_>>(object) {
        Ok(policy) => policy,
        Err(error) => {
            let selection = SetSelection::Selector(match_all_selector());
            return unreadable_policy(PolicyKind::RolloutPolicy, selection, object, &error, shared);
        }
    };
    let names = spec.daemon_sets.iter().flatten().map(|it| shared.intern_text(it)).collect();
    let selection = match &spec.selector {
        Some(selector) => SetSelection::Selector(decode_selector(Some(selector))),
        None => SetSelection::Names(names),
    };
    let kind = PolicyKind::RolloutPolicy;
    let policy = build_policy(kind, &metadata, selection, &spec.settings, &spec.validate(), shared);
    Ok(WatchedPolicy { policy, uid: metadata.uid(), status })
}

/// Decodes a ClusterRolloutPolicy. If its spec cannot be decoded, the policy is invalid and selects all DaemonSets of
/// the cluster. Fails only if the metadata cannot be decoded.
pub fn decode_cluster_policy(object: &[u8], shared: &mut Interner) -> Result<WatchedPolicy, Malformed> {
    let kind = PolicyKind::ClusterRolloutPolicy;
    let ClusterRolloutPolicy { metadata, spec, status } = match json::from_slice(object) {
        Ok(policy) => policy,
        Err(error) => {
            let selection =
                SetSelection::Cluster { sets: match_all_selector(), namespaces: match_all_selector() };
            return unreadable_policy(kind, selection, object, &error, shared);
        }
    };
    let selection = SetSelection::Cluster {
        sets: decode_selector(spec.selector.as_ref()),
        namespaces: spec
            .namespace_selector
            .as_ref()
            .map_or(match_all_selector(), |it| decode_selector(Some(it))),
    };
    let policy = build_policy(kind, &metadata, selection, &spec.settings, &spec.validate(), shared);
    Ok(WatchedPolicy { policy, uid: metadata.uid(), status })
}

/// Builds an invalid policy with this selection from an object whose spec cannot be decoded. `error` is the decoding
/// error of the spec.
///
/// Rule: a policy that cannot be decoded is taken to select all DaemonSets of its namespace, or of the cluster if it is
/// a ClusterRolloutPolicy. It holds each of them that no other policy governs: no step admits a node, and no outdated
/// pod is replaced except by a rollback.
fn unreadable_policy(
    kind: PolicyKind,
    selection: SetSelection,
    object: &[u8],
    error: &serde_json::Error,
    shared: &mut Interner,
) -> Result<WatchedPolicy, Malformed> {
    let plural = kind.watched_kind().plural();
    let (metadata, status) = match json::from_slice::<RolloutPolicy<'_, IgnoredAny>>(object) {
        Ok(RolloutPolicy { metadata, status, .. }) => (metadata, status),
        // A status that cannot be decoded counts as empty, so that the controller writes it again.
        Err(_) => {
            let object: PartialObjectMetadata<'_> =
                json::from_slice(object).map_err(|it| Malformed::new(plural, it))?;
            (object.metadata, RolloutPolicyStatus::default())
        }
    };
    let invalid = Vec::from([format!("spec: {error}")]);
    let policy = policy_from_parts(kind, &metadata, selection, PolicySpec::default(), invalid, shared);
    Ok(WatchedPolicy { policy, uid: metadata.uid(), status })
}

/// Builds a policy with this kind, selection, spec and list of invalid fields. Its key, resource version, generation
/// and creation time come from `metadata`.
fn policy_from_parts(
    kind: PolicyKind,
    metadata: &ObjectMeta<'_>,
    selection: SetSelection,
    spec: PolicySpec,
    invalid: Vec<String>,
    shared: &mut Interner,
) -> Policy {
    Policy {
        kind,
        key: metadata.key(shared),
        resource_version: metadata.resource_version(),
        generation: metadata.generation(),
        created: metadata.creation_time(),
        selection,
        spec,
        invalid,
    }
}

/// Builds a policy from its metadata, selection and settings. `invalid` are the fields that validation rejected.
fn build_policy(
    kind: PolicyKind,
    metadata: &ObjectMeta<'_>,
    selection: SetSelection,
    settings: &RolloutSettings,
    invalid: &[validation::InvalidField],
    shared: &mut Interner,
) -> Policy {
    let mut invalid: Vec<String> =
        invalid.iter().map(|it| format!("{}: {}", it.path, it.message())).collect();
    let spec = decode_policy_spec(settings, &mut invalid);
    policy_from_parts(kind, metadata, selection, spec, invalid, shared)
}

/// Decodes the settings of a policy. Adds time windows that cannot be parsed to `invalid`, which already contains the
/// other invalid fields.
///
/// Rule: an invalid field gets a default, and a window that cannot be parsed is left out. While a policy is invalid,
/// its DaemonSets are held: no step admits a node, and no outdated pod is replaced except by a rollback.
fn decode_policy_spec(settings: &RolloutSettings, invalid: &mut Vec<String>) -> PolicySpec {
    let mut windows = Vec::new();
    for (index, it) in settings.windows.iter().enumerate() {
        let days: Vec<Text> = it.days.iter().map(|it| it.as_str().into()).collect();
        match Window::parse(&days, &it.start, &it.end, &it.time_zone) {
            Ok(window) => windows.push(window),
            // The validation of the field reports everything but an unknown time zone.
            Err(problem) => invalid.push(format!("spec.windows[{index}]: {problem}")),
        }
    }
    let label_key = settings.order.label_key.as_deref().unwrap_or_default();
    PolicySpec {
        paused: settings.paused,
        windows,
        max_unavailable: decode_int_or_percent(&settings.max_unavailable),
        order: match settings.order.by {
            OrderBy::Name => NodeOrder::Name,
            OrderBy::Label => NodeOrder::Label(label_key.into()),
            OrderBy::Hash | OrderBy::Unknown(_) => NodeOrder::Hash,
        },
        steps: settings.steps.iter().map(decode_step).collect(),
        failures: FailureRules {
            max_nodes: decode_int_or_percent(&settings.failures.max_nodes),
            max_restarts: u32::try_from(settings.failures.max_restarts).unwrap_or(0),
            ready_timeout: settings.failures.ready_timeout.duration_or_zero(),
            immediate_reasons: settings
                .failures
                .immediate_failure_reasons
                .iter()
                .map(|it| it.as_str().into())
                .collect(),
            count_not_ready_nodes: settings.failures.node_not_ready != NodeNotReadyPolicy::Ignore,
        },
        on_failure: match settings.on_failure {
            FailureAction::Rollback => OnFailure::Rollback,
            FailureAction::Stop => OnFailure::Stop,
            FailureAction::Auto | FailureAction::Unknown(_) => OnFailure::Auto,
        },
        progress_deadline: settings.progress_deadline.duration_or_zero(),
        on_deadline: match settings.on_deadline {
            DeadlineAction::Stop => OnDeadline::Stop,
            DeadlineAction::Rollback => OnDeadline::Rollback,
            DeadlineAction::Report | DeadlineAction::Unknown(_) => OnDeadline::Report,
        },
        new_nodes: match settings.new_nodes {
            NewNodePolicy::Latest => NewNodeRevision::Latest,
            NewNodePolicy::Stable | NewNodePolicy::Unknown(_) => NewNodeRevision::Stable,
        },
        checks: settings.checks.iter().map(decode_check).collect(),
        replace_method: match settings.replace.method {
            values::ReplaceMethod::Evict => ReplaceMethod::Evict,
            values::ReplaceMethod::Delete | values::ReplaceMethod::Unknown(_) => ReplaceMethod::Delete,
        },
    }
}

/// Decodes a step of a policy.
fn decode_step(step: &RolloutStep) -> Step {
    let groups = |it: &api_policy::StepGroups| NodeGroups {
        label: it.label_key.as_str().into(),
        sequence: it.sequence.iter().map(|it| it.as_str().into()).collect(),
        max_concurrent: usize::try_from(it.max_concurrent).unwrap_or(1),
        max_unavailable: decode_int_or_percent(&it.max_unavailable),
        soak: it.soak.duration_or_zero(),
    };
    Step {
        name: step.name.as_str().into(),
        nodes: decode_int_or_percent(&step.nodes),
        selector: step.selector.as_ref().map_or(match_all_selector(), |it| decode_selector(Some(it))),
        spread: step.spread.as_ref().map(|it| it.label_key.as_str().into()),
        soak: step.soak.duration_or_zero(),
        approval: match step.approval {
            ApprovalMode::Automatic => Approval::Automatic,
            ApprovalMode::Manual | ApprovalMode::Unknown(_) => Approval::Manual,
        },
        groups: step.groups.as_ref().map(groups),
    }
}

impl Default for PolicySpec {
    fn default() -> Self {
        decode_policy_spec(&RolloutSettings::default(), &mut Vec::new())
    }
}

impl Default for FailureRules {
    fn default() -> Self {
        PolicySpec::default().failures
    }
}

impl Default for Step {
    fn default() -> Self {
        decode_step(&RolloutStep { name: "all".into(), ..RolloutStep::default() })
    }
}

/// Decodes a check of a policy.
fn decode_check(check: &RolloutCheck) -> Check {
    let source = match (&check.prometheus, &check.webhook) {
        (Some(prometheus), _) => CheckSource::Prometheus(prometheus.clone()),
        (None, Some(webhook)) => CheckSource::Webhook(webhook.clone()),
        (None, None) => CheckSource::External,
    };
    Check {
        name: check.name.as_str().into(),
        source,
        interval: check.interval.duration_or_zero(),
        failure_threshold: u32::try_from(check.failure_threshold).unwrap_or(1),
    }
}

/// Returns a selector that matches all objects.
fn match_all_selector() -> Selector {
    Selector::AllOf(Vec::new())
}

/// Decodes a label selector. An absent or invalid selector matches nothing.
fn decode_selector(selector: Option<&OwnedLabelSelector>) -> Selector {
    selector.and_then(|it| it.to_selector().ok()).unwrap_or_default()
}

/// Decodes a number or percentage of nodes. An invalid or negative value becomes 0.
fn decode_int_or_percent(value: &CountOrPercent) -> IntOrPercent {
    match value {
        CountOrPercent::Count(count) => IntOrPercent::Count(u32::try_from(*count).unwrap_or(0)),
        CountOrPercent::Percent(percent) => IntOrPercent::Percent(u32::from(*percent)),
        CountOrPercent::Invalid(_) => IntOrPercent::Count(0),
    }
}

/// Decodes a DaemonRollout. If its spec or status cannot be decoded, the record has only the metadata and the error.
/// Fails only if the metadata cannot be decoded.
///
/// Rule: an invalid request of an operator has no effect. The controller does not write a DaemonRollout that it cannot
/// decode, or whose status has a phase that this version of the controller does not know, and replaces no outdated pod
/// of its DaemonSet.
pub fn decode_rollout(object: &[u8], shared: &mut Interner) -> Result<RolloutRecord, Malformed> {
    let DaemonRollout { metadata, spec, status } = match json::from_slice(object) {
        Ok(rollout) => rollout,
        Err(error) => {
            let PartialObjectMetadata { metadata, .. } =
                json::from_slice(object).map_err(|it| Malformed::new(DAEMON_ROLLOUT.plural, it))?;
            return Ok(RolloutRecord {
                key: metadata.key(shared),
                uid: metadata.uid(),
                owners: owner_uids(&metadata),
                resource_version: metadata.resource_version(),
                generation: metadata.generation(),
                requests: OperatorRequests::default(),
                status: RolloutStatus::default(),
                conditions: Vec::new(),
                unreadable: Some(format!("{error}").into()),
            });
        }
    };
    let unknown_phase = || {
        let phase = status.current.as_ref().map(|_| status.phase.as_str())?;
        let is_known = Phase::parse(phase).is_some();
        (!is_known).then(|| Text::from(format!("status.phase: {phase:?} is unknown to this version")))
    };
    let text = |it: &str| Text::from(it);
    let report = |it: &api::CheckReport| {
        let result = match it.result {
            ReportedResult::Pass => CheckResult::Pass,
            ReportedResult::Fail => CheckResult::Fail,
            ReportedResult::Unknown(_) => return None,
        };
        let message = text(it.message.as_deref().unwrap_or_default());
        Some(CheckReport { check: text(&it.check), revision: text(&it.revision), result, message })
    };
    Ok(RolloutRecord {
        key: metadata.key(shared),
        uid: metadata.uid(),
        owners: owner_uids(&metadata),
        resource_version: metadata.resource_version(),
        generation: metadata.generation(),
        requests: OperatorRequests {
            paused: spec.paused,
            approve: spec
                .approve
                .map(|it| ApproveRequest { revision: text(&it.revision), step: text(&it.step) }),
            abort: spec.abort.map(|it| text(&it.revision)),
            retry: spec.retry.and_then(|it| {
                let attempt = u32::try_from(it.attempt).ok()?;
                Some(RetryRequest { revision: text(&it.revision), attempt })
            }),
            check_reports: spec.check_reports.iter().filter_map(report).collect(),
        },
        unreadable: unknown_phase(),
        status: decode_status(&status),
        conditions: status.conditions,
    })
}

/// Returns the UIDs of the DaemonSets in the owner references of a DaemonRollout.
fn owner_uids(metadata: &ObjectMeta<'_>) -> Vec<Text> {
    let owners = metadata.owner_references.iter().flatten();
    let sets = owners.filter(|it| it.kind.as_deref() == Some("DaemonSet"));
    sets.filter_map(|it| it.uid.as_deref().map(Text::from)).collect()
}

/// Decodes the status of a DaemonRollout.
fn decode_status(status: &api::DaemonRolloutStatus) -> RolloutStatus {
    let count = |it: i32| usize::try_from(it).unwrap_or(0);
    let revision =
        |it: &api::RevisionRef| RevisionReference { hash: it.revision.as_str().into(), number: it.number };
    let failure = |it: &api::NodeFailure| NodeFailure {
        node: it.node.as_str().into(),
        reason: it.reason.as_str().into(),
        at: it.time.unwrap_or_default(),
    };
    let kind = |it: &str| match it {
        "ClusterRolloutPolicy" => PolicyKind::ClusterRolloutPolicy,
        _ => PolicyKind::RolloutPolicy,
    };
    RolloutStatus {
        observed_generation: status.observed_generation,
        policy: status.policy.as_ref().map(|it| PolicyReference {
            kind: kind(&it.kind),
            name: it.name.as_str().into(),
            generation: it.generation,
        }),
        // A status that names no revision was never written.
        phase: status.current.as_ref().map(|_| decode_phase(&status.phase)),
        paused: status.paused,
        message: status.message.as_str().into(),
        current: status.current.as_ref().map(revision),
        stable: status.stable.as_ref().map(revision),
        attempt: u32::try_from(status.attempt).unwrap_or(0),
        attempt_started: status.attempt_start_time,
        step: status.step.as_ref().map(|it| StepStatus {
            name: it.name.as_str().into(),
            index: count(it.index),
            target: count(it.target),
            started: it.start_time.unwrap_or_default(),
            passes_at: it.passes_at,
        }),
        admitted: status.admitted.iter().map(decode_admission).collect(),
        nodes: NodeCounts {
            eligible: count(status.nodes.eligible),
            admitted: count(status.nodes.admitted),
            updated: count(status.nodes.updated),
            available: count(status.nodes.available),
            soaked: count(status.nodes.soaked),
            unassigned: count(status.nodes.unassigned),
            held: count(status.nodes.held),
        },
        failures: FailureStatus {
            allowed: count(status.failures.allowed),
            nodes: status.failures.nodes.iter().map(failure).collect(),
            excused: status.failures.excused.iter().map(failure).collect(),
            excused_count: count(status.failures.excused_count),
        },
        checks: status.checks.iter().map(decode_check_status).collect(),
        last_progress: status.last_progress_time,
    }
}

/// Decodes a phase. An unknown phase, which a newer controller wrote, becomes `Stopped`.
fn decode_phase(phase: &RolloutPhase) -> Phase {
    Phase::parse(phase.as_str()).unwrap_or(Phase::Stopped)
}

/// Decodes one entry of `status.admitted`, which says which nodes a step has admitted.
fn decode_admission(it: &api::AdmittedNodes) -> NodeAdmission {
    let members = match (&it.up_to, it.created_before) {
        (Some(key), Some(created_before)) => {
            AdmittedMembers::UpTo { key: OrderKey::from_stored(key.as_str().into()), created_before }
        }
        _ => AdmittedMembers::Names(it.nodes.iter().map(|it| it.as_str().into()).collect()),
    };
    let group = it.group.as_deref().unwrap_or_default();
    NodeAdmission { step: it.step.as_str().into(), group: group.into(), members }
}

/// Decodes one entry of `status.checks`.
fn decode_check_status(it: &api::CheckStatus) -> CheckStatus {
    CheckStatus {
        name: it.name.as_str().into(),
        result: match it.result {
            CheckOutcome::Pass => CheckResult::Pass,
            CheckOutcome::Fail => CheckResult::Fail,
            CheckOutcome::Inconclusive | CheckOutcome::Unknown(_) => CheckResult::Inconclusive,
        },
        at: it.time.unwrap_or_default(),
        message: it.message.as_str().into(),
    }
}

/// Encodes the status of a DaemonRollout. `conditions` are the conditions of the encoded status.
pub fn encode_status(
    status: &RolloutStatus,
    conditions: Vec<api::StatusCondition>,
) -> api::DaemonRolloutStatus {
    let count = |it: usize| i32::try_from(it).unwrap_or(i32::MAX);
    let revision =
        |it: &RevisionReference| api::RevisionRef { revision: it.hash.to_string(), number: it.number };
    let failure = |it: &NodeFailure| api::NodeFailure {
        node: it.node.to_string(),
        reason: it.reason.to_string(),
        time: Some(it.at),
    };
    api::DaemonRolloutStatus {
        observed_generation: status.observed_generation,
        policy: status.policy.as_ref().map(|it| api::PolicyRef {
            kind: it.kind.as_str().to_string(),
            name: it.name.to_string(),
            generation: it.generation,
        }),
        phase: status.phase.map_or(RolloutPhase::default(), |it| RolloutPhase::from(it.as_str())),
        paused: status.paused,
        message: status.message.to_string(),
        current: status.current.as_ref().map(revision),
        stable: status.stable.as_ref().map(revision),
        attempt: i32::try_from(status.attempt).unwrap_or(i32::MAX),
        attempt_start_time: status.attempt_started,
        step: status.step.as_ref().map(|it| api::StepProgress {
            name: it.name.to_string(),
            index: count(it.index),
            target: count(it.target),
            start_time: Some(it.started),
            passes_at: it.passes_at,
        }),
        admitted: status.admitted.iter().map(encode_admission).collect(),
        nodes: api::RolloutNodeCounts {
            eligible: count(status.nodes.eligible),
            admitted: count(status.nodes.admitted),
            updated: count(status.nodes.updated),
            available: count(status.nodes.available),
            soaked: count(status.nodes.soaked),
            unassigned: count(status.nodes.unassigned),
            held: count(status.nodes.held),
        },
        failures: api::RolloutFailures {
            counted: count(status.failures.failed_count()),
            allowed: count(status.failures.allowed),
            nodes: status.failures.nodes.iter().map(failure).collect(),
            excused: status.failures.excused.iter().map(failure).collect(),
            excused_count: count(status.failures.excused_count),
        },
        checks: status
            .checks
            .iter()
            .map(|it| api::CheckStatus {
                name: it.name.to_string(),
                result: match it.result {
                    CheckResult::Pass => CheckOutcome::Pass,
                    CheckResult::Fail => CheckOutcome::Fail,
                    CheckResult::Inconclusive => CheckOutcome::Inconclusive,
                },
                time: Some(it.at),
                message: it.message.to_string(),
            })
            .collect(),
        last_progress_time: status.last_progress,
        conditions,
    }
}

/// Encodes one entry of `status.admitted`, which says which nodes a step has admitted.
fn encode_admission(it: &NodeAdmission) -> api::AdmittedNodes {
    let (nodes, up_to, created_before) = match &it.members {
        AdmittedMembers::Names(names) => (names.iter().map(|it| it.to_string()).collect(), None, None),
        AdmittedMembers::UpTo { key, created_before } => {
            (Vec::new(), Some(key.as_text().to_string()), Some(*created_before))
        }
    };
    let group = Some(it.group.to_string()).filter(|it| !it.is_empty());
    api::AdmittedNodes { step: it.step.to_string(), group, nodes, up_to, created_before }
}

#[cfg(test)]
mod tests;
