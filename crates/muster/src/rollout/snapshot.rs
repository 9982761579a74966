//! The objects of one rollout, as the commands of `muster rollout` read them.

use std::fmt;

use anyhow::Context as _;
use muster_api::muster_v1alpha1::daemon_rollout::{
    CheckStatus, DaemonRolloutSpec, DaemonRolloutStatus, RevisionRef,
};
use muster_api::muster_v1alpha1::policy::RolloutSettings;
use muster_api::muster_v1alpha1::values::{ApprovalMode, CheckOutcome, RolloutPhase};
use muster_api::well_known::{
    ANNOTATION_VERDICT, ANNOTATION_VERDICT_REASON, ANNOTATION_VERDICT_TIME, LABEL_CONTROLLER_REVISION_HASH,
    VERDICT_BAD,
};
use serde_json::Value;

use super::{printable, text_of};

/// Namespace and name of a DaemonSet, and of its DaemonRollout.
#[derive(Debug, Clone)]
pub(super) struct SetName {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Whether the command line names the namespace, so that suggested commands must name it too.
    pub(super) is_namespace_given: bool,
}

impl SetName {
    /// Returns `NAMESPACE/NAME`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the command line of `muster rollout` with this verb and these further words.
    pub(super) fn command(&self, verb: &str, words: &str) -> String {
        let mut command = format!("muster rollout {verb} ds/{}", self.name);
        if !words.is_empty() {
            command.push(' ');
            command.push_str(words);
        }
        if self.is_namespace_given {
            command.push_str(" -n ");
            command.push_str(&self.namespace);
        }
        command
    }
}

/// Formats the DaemonSet: `DaemonSet NAMESPACE/NAME`.
impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DaemonSet {}/{}", self.namespace, self.name)
    }
}

/// The objects of one rollout, read one after the other.
#[derive(Debug)]
pub(super) struct RolloutSnapshot {
    pub(super) set: SetName,
    /// The DaemonRollout. `None` if the DaemonSet has none.
    pub(super) rollout: Option<StoredRollout>,
    /// Whether the API server has the kinds of `muster.dev`.
    pub(super) is_served: bool,
    /// The settings of the policy that the status of the DaemonRollout names, or the defaults if it names none. `None`
    /// without a DaemonRollout, or if the policy cannot be read.
    pub(super) policy: Option<RolloutSettings>,
    /// The DaemonSet. `None` if the command does not need it.
    pub(super) daemon_set: Option<Value>,
    /// The revisions of the DaemonSet by their number. Empty if the command does not need them.
    pub(super) revisions: Vec<RevisionRecord>,
}

/// A DaemonRollout as it is stored.
#[derive(Debug)]
pub(super) struct StoredRollout {
    /// The whole object.
    pub(super) object: Value,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) generation: i64,
    pub(super) spec: DaemonRolloutSpec,
    pub(super) status: DaemonRolloutStatus,
}

impl StoredRollout {
    /// Decodes a DaemonRollout.
    pub(super) fn decode(object: Value) -> anyhow::Result<Self> {
        let part = |name: &str| object.get(name).filter(|it| !it.is_null());
        let spec = part("spec").map(|it| serde_json::from_value(it.clone())).transpose();
        let status = part("status").map(|it| serde_json::from_value(it.clone())).transpose();
        let newer = "a newer version of muster may have written it";
        Ok(Self {
            uid: text_of(&object, "/metadata/uid"),
            resource_version: text_of(&object, "/metadata/resourceVersion"),
            generation: object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default(),
            spec: spec
                .with_context(|| format!("the spec of the DaemonRollout is unreadable: {newer}"))?
                .unwrap_or_default(),
            status: status
                .with_context(|| format!("the status of the DaemonRollout is unreadable: {newer}"))?
                .unwrap_or_default(),
            object,
        })
    }

    /// Returns the current revision. `None` until the controller has written the status.
    pub(super) fn current(&self) -> Option<&RevisionRef> {
        self.status.current.as_ref()
    }

    /// Whether a retry is requested that the controller has not started yet.
    pub(super) fn is_retry_pending(&self) -> bool {
        let retry = self.spec.retry.as_ref();
        retry.is_some_and(|it| {
            self.current().is_some_and(|current| current.revision == it.revision)
                && self.status.attempt < it.attempt
        })
    }

    /// Whether the controller has observed the spec, and has started a requested retry.
    pub(super) fn is_observed(&self) -> bool {
        self.generation <= self.status.observed_generation && !self.is_retry_pending()
    }

    /// Whether the spec approves this step of the current revision, or all its steps.
    pub(super) fn is_approved(&self, step: &str) -> bool {
        let approve = self.spec.approve.as_ref();
        approve.is_some_and(|it| {
            self.current().is_some_and(|current| current.revision == it.revision)
                && (it.step == step || it.step == ALL_STEPS)
        })
    }
}

/// Name of a step that stands for all steps.
pub(super) const ALL_STEPS: &str = "*";

/// What a rollout in the phase `Waiting` waits for.
#[derive(Debug)]
pub(super) enum WaitsFor<'a> {
    /// An operator must approve the step.
    Approval { step: &'a str },
    /// A check has not passed.
    Check { check: Option<&'a CheckStatus>, is_external: bool },
}

impl RolloutSnapshot {
    /// Returns what the rollout waits for. `None` unless it is in the phase `Waiting`.
    pub(super) fn waits_for(&self) -> Option<WaitsFor<'_>> {
        let status = &self.rollout.as_ref()?.status;
        if status.phase != RolloutPhase::Waiting {
            return None;
        }
        let step = status.step.as_ref().map_or("", |it| it.name.as_str());
        if let Some(check) = status.checks.iter().find(|it| it.result != CheckOutcome::Pass) {
            let is_external = self.is_external(&check.name).unwrap_or(false);
            return Some(WaitsFor::Check { check: Some(check), is_external });
        }
        // A measured check that passed too long ago has no other mark than that no approval is missing.
        let steps = self.policy.as_ref().map(|it| &it.steps);
        let is_automatic = steps
            .and_then(|it| it.iter().find(|it| it.name == step))
            .is_some_and(|it| it.approval == ApprovalMode::Automatic);
        if is_automatic {
            return Some(WaitsFor::Check { check: None, is_external: false });
        }
        Some(WaitsFor::Approval { step })
    }

    /// Whether a check of the policy is external. `None` if the policy has no such check, or cannot be read.
    pub(super) fn is_external(&self, check: &str) -> Option<bool> {
        let checks = &self.policy.as_ref()?.checks;
        checks.iter().find(|it| it.name == check).map(|it| it.external.is_some())
    }

    /// Returns the revision of the DaemonSet's template: the one with the highest number. `None` if no controller has
    /// recorded the template yet.
    pub(super) fn newest_revision(&self) -> Option<&RevisionRecord> {
        let set = self.daemon_set.as_ref()?;
        let generation = set.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        let observed = set.pointer("/status/observedGeneration").and_then(Value::as_i64).unwrap_or_default();
        self.revisions.last().filter(|_| generation <= observed)
    }
}

/// A ControllerRevision of the DaemonSet.
#[derive(Debug)]
pub(super) struct RevisionRecord {
    pub(super) number: i64,
    pub(super) hash: String,
    /// Verdict, reason and time as the annotations have them. Empty if the revision has no verdict.
    pub(super) verdict: String,
    pub(super) reason: String,
    pub(super) time: String,
    /// Images of the containers of the template, in their order.
    pub(super) images: Vec<String>,
}

impl RevisionRecord {
    /// Decodes a ControllerRevision.
    pub(super) fn decode(object: &Value) -> Self {
        let annotation = |key: &str| {
            let annotations = object.pointer("/metadata/annotations");
            printable(annotations.and_then(|it| it.get(key)).and_then(Value::as_str).unwrap_or_default())
        };
        let labels = object.pointer("/metadata/labels");
        let hash = labels.and_then(|it| it.get(LABEL_CONTROLLER_REVISION_HASH)).and_then(Value::as_str);
        let containers = object.pointer("/data/spec/template/spec/containers").and_then(Value::as_array);
        let image = |it: &Value| printable(it["image"].as_str().unwrap_or("-"));
        Self {
            number: object["revision"].as_i64().unwrap_or_default(),
            hash: printable(hash.unwrap_or_default()),
            verdict: annotation(ANNOTATION_VERDICT),
            reason: annotation(ANNOTATION_VERDICT_REASON),
            time: annotation(ANNOTATION_VERDICT_TIME),
            images: containers.into_iter().flatten().map(image).collect(),
        }
    }

    /// Whether the revision failed or was aborted.
    pub(super) fn is_bad(&self) -> bool {
        self.verdict == VERDICT_BAD
    }
}
