//! The objects of one rollout, as the commands of `muster rollout` read them.

use std::fmt;

use anyhow::Context as _;
use muster_api::muster_v1alpha1::daemon_rollout::{
    CheckStatus, DaemonRolloutSpec, DaemonRolloutStatus, RevisionRef,
};
use muster_api::muster_v1alpha1::policy::RolloutSettings;
use muster_api::muster_v1alpha1::values::{CheckOutcome, RolloutPhase};
use muster_api::well_known::{
    ANNOTATION_VERDICT, ANNOTATION_VERDICT_REASON, ANNOTATION_VERDICT_TIME, LABEL_CONTROLLER_REVISION_HASH,
    VERDICT_BAD,
};
use muster_control::ControllerMode;
use serde_json::Value;

use super::{printable, string_at};

/// Namespace and name of a DaemonSet. Its DaemonRollout has the same namespace and name.
#[derive(Debug, Clone)]
pub(super) struct SetName {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Whether the user gave the namespace with `-n`. If so, suggested commands have the flag too.
    pub(super) is_namespace_given: bool,
}

impl SetName {
    /// Returns the namespace and name as `NAMESPACE/NAME`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns a command line to suggest to the user: `muster rollout VERB ds/NAME`, followed by the arguments in
    /// `words` and, if the user gave it, the namespace.
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

/// Formats the name as `DaemonSet NAMESPACE/NAME`.
impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DaemonSet {}/{}", self.namespace, self.name)
    }
}

/// The objects of the rollout of one DaemonSet, as read from the API server. They are read one by one, so they can be
/// of slightly different times.
#[derive(Debug)]
pub(super) struct RolloutSnapshot {
    pub(super) set: SetName,
    /// The DaemonRollout that belongs to the DaemonSet. `None` if there is none.
    pub(super) rollout: Option<StoredRollout>,
    /// Whether the DaemonRollout of a deleted DaemonSet of the same name still exists.
    pub(super) has_stale_rollout: bool,
    /// Whether the API server serves the kinds of `muster.dev`.
    pub(super) are_kinds_served: bool,
    /// The settings of the policy that the status of the DaemonRollout names, or the default settings if it names none.
    /// `None` if there is no DaemonRollout, or if the policy could not be read.
    pub(super) policy: Option<RolloutSettings>,
    /// The DaemonSet. `None` if the user may not read it.
    pub(super) daemon_set: Option<Value>,
    /// The ControllerRevisions of the DaemonSet, sorted by number. Empty if they were not read, because the command
    /// does not need them or because the user may not read them.
    pub(super) revisions: Vec<RevisionRecord>,
}

/// A DaemonRollout as stored in the API server, with its spec and status decoded.
#[derive(Debug)]
pub(super) struct StoredRollout {
    /// The whole DaemonRollout as JSON.
    pub(super) object: Value,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) generation: i64,
    pub(super) spec: DaemonRolloutSpec,
    pub(super) status: DaemonRolloutStatus,
}

impl StoredRollout {
    /// Decodes a DaemonRollout. Fails if its spec or status has an unexpected type.
    pub(super) fn decode(object: Value) -> anyhow::Result<Self> {
        let part = |name: &str| object.get(name).filter(|it| !it.is_null());
        let spec = part("spec").map(|it| serde_json::from_value(it.clone())).transpose();
        let status = part("status").map(|it| serde_json::from_value(it.clone())).transpose();
        let newer = "a newer version of muster may have written it";
        Ok(Self {
            uid: string_at(&object, "/metadata/uid"),
            resource_version: string_at(&object, "/metadata/resourceVersion"),
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

    /// Whether the DaemonRollout is about the DaemonSet with this UID, and not left from a deleted DaemonSet of the
    /// same name. Also `true` if no DaemonSet owns the DaemonRollout.
    pub(super) fn belongs_to(&self, set_uid: &str) -> bool {
        let owners = self.object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let mut sets = owners.into_iter().flatten().filter(|it| it["kind"] == "DaemonSet").peekable();
        sets.peek().is_none() || sets.any(|it| it["uid"] == *set_uid)
    }

    /// Returns the revision that the status names as current. `None` until the controller has written the status.
    pub(super) fn current(&self) -> Option<&RevisionRef> {
        self.status.current.as_ref()
    }

    /// Whether the spec requests a new attempt of the current revision that the controller has not started yet.
    pub(super) fn is_retry_pending(&self) -> bool {
        let retry = self.spec.retry.as_ref();
        retry.is_some_and(|it| {
            self.current().is_some_and(|current| current.revision == it.revision)
                && self.status.attempt < it.attempt
        })
    }

    /// Whether the status reflects the latest spec: the controller has observed its generation and started any
    /// requested retry.
    pub(super) fn is_observed(&self) -> bool {
        self.generation <= self.status.observed_generation && !self.is_retry_pending()
    }

    /// Whether the spec approves the step with this name, or all steps, of the current revision.
    pub(super) fn is_approved(&self, step: &str) -> bool {
        let approve = self.spec.approve.as_ref();
        approve.is_some_and(|it| {
            self.current().is_some_and(|current| current.revision == it.revision)
                && (it.step == step || it.step == ALL_STEPS)
        })
    }
}

/// Step name in approvals and in the status that means all steps of the rollout.
pub(super) const ALL_STEPS: &str = "*";

/// What a rollout in the phase `Waiting` waits for.
#[derive(Debug)]
pub(super) enum WaitsFor<'a> {
    /// An operator must approve this step.
    Approval { step: &'a str },
    /// This check must pass. `is_external` is whether the result of the check is reported from outside the controller.
    Check { check: &'a CheckStatus, is_external: bool },
}

impl RolloutSnapshot {
    /// Returns the mode of the controller, as the `managedFields` of the DaemonSet show it. Returns
    /// [`ControllerMode::Unknown`] if the DaemonSet was not read.
    pub(super) fn controller_mode(&self) -> ControllerMode {
        let metadata = self.daemon_set.as_ref().map(|it| it["metadata"].to_string());
        metadata.map_or(ControllerMode::Unknown, |it| ControllerMode::from_metadata(&it))
    }

    /// Whether assist mode refuses the DaemonSet, because its update strategy is not `OnDelete`.
    pub(super) fn is_refused_in_assist_mode(&self) -> bool {
        self.controller_mode() == ControllerMode::Assist && self.update_strategy() != "OnDelete"
    }

    /// Whether the controller runs in assist mode and the current revision has the verdict `Bad`. Then an abort of the
    /// stopped rollout would have no effect.
    pub(super) fn is_bad_in_assist_mode(&self) -> bool {
        let is_bad = self.newest_revision().is_some_and(RevisionRecord::is_bad);
        self.controller_mode() == ControllerMode::Assist && is_bad
    }

    /// Returns the type of the update strategy of the DaemonSet. Returns the default `RollingUpdate` if the DaemonSet
    /// was not read or has no type.
    pub(super) fn update_strategy(&self) -> &str {
        let strategy = self.daemon_set.as_ref().and_then(|it| it.pointer("/spec/updateStrategy/type"));
        strategy.and_then(Value::as_str).unwrap_or("RollingUpdate")
    }

    /// Returns what the rollout waits for. `None` unless it is in the phase `Waiting`.
    pub(super) fn waits_for(&self) -> Option<WaitsFor<'_>> {
        let status = &self.rollout.as_ref()?.status;
        if status.phase != RolloutPhase::Waiting {
            return None;
        }
        let step = status.step.as_ref().map_or("", |it| it.name.as_str());
        if let Some(check) = status.checks.iter().find(|it| it.result != CheckOutcome::Pass) {
            let is_external = self.is_external(&check.name).unwrap_or(false);
            return Some(WaitsFor::Check { check, is_external });
        }
        Some(WaitsFor::Approval { step })
    }

    /// Whether the check with this name is external, that is, its result is reported from outside the controller.
    /// `None` if the policy has no such check, or could not be read.
    pub(super) fn is_external(&self, check: &str) -> Option<bool> {
        let checks = &self.policy.as_ref()?.checks;
        checks.iter().find(|it| it.name == check).map(|it| it.external.is_some())
    }

    /// Returns the revision of the DaemonSet's current template: the revision with the highest number. `None` if the
    /// controller has not observed the template yet, or if the DaemonSet or its revisions were not read.
    pub(super) fn newest_revision(&self) -> Option<&RevisionRecord> {
        let set = self.daemon_set.as_ref()?;
        let generation = set.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        let observed = set.pointer("/status/observedGeneration").and_then(Value::as_i64).unwrap_or_default();
        self.revisions.last().filter(|_| generation <= observed)
    }
}

/// A ControllerRevision of the DaemonSet, decoded.
#[derive(Debug)]
pub(super) struct RevisionRecord {
    pub(super) number: i64,
    pub(super) hash: String,
    /// Verdict of the revision, such as `Bad`, from an annotation. Empty if the revision has no verdict.
    pub(super) verdict: String,
    /// Reason of the verdict, from an annotation. Empty if the revision has no verdict.
    pub(super) reason: String,
    /// Time of the verdict, from an annotation. Empty if the revision has no verdict.
    pub(super) time: String,
    /// Images of the containers in the pod template, in the order of the containers.
    pub(super) images: Vec<String>,
}

impl RevisionRecord {
    /// Decodes a ControllerRevision. A missing field becomes zero or empty, and a missing image `-`.
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

    /// Whether the revision has the verdict `Bad`: its rollout failed or was aborted.
    pub(super) fn is_bad(&self) -> bool {
        self.verdict == VERDICT_BAD
    }
}
