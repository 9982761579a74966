//! Decodes PodDisruptionBudgets and pods into facts: only the fields that the disruption controller reads.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::core_v1::PodWithoutContainers;
use muster_api::interner::Interner;
use muster_api::json::{self, IntOrString, StrMap};
use muster_api::labels::{Labels, Selector};
use muster_api::meta_v1::LabelSelector;
use muster_api::object_key::ObjectKey;
use muster_api::policy_v1::{self, PodDisruptionBudgetSpec};
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{DISRUPTION_TARGET, POD_READY};
use serde_json::Value;

use crate::controller::{self, Malformed, ObjectReference, Watch};
use crate::daemonset::facts::IntOrPercent;
use crate::daemonset::facts::decode::parse_int_or_percent;

/// A decoded object of one of the kinds that the disruption controller watches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DisruptionObject {
    Budget(Arc<PodDisruptionBudget>),
    Pod(Arc<Pod>),
}

impl controller::DecodedObject for DisruptionObject {
    fn key(&self) -> ObjectKey {
        match self {
            Self::Budget(it) => it.key.clone(),
            Self::Pod(it) => it.key.clone(),
        }
    }

    fn resource_version(&self) -> u64 {
        match self {
            Self::Budget(it) => it.resource_version,
            Self::Pod(it) => it.resource_version,
        }
    }
}

/// The fields of a PodDisruptionBudget that the disruption controller reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodDisruptionBudget {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub generation: i64,

    pub selector: Selector,
    /// The `maxUnavailable` or else the `minAvailable` of the spec. `Unset` if the spec has neither.
    pub target: AvailabilityTarget,
    pub status: BudgetStatus,
}

/// How many pods a PodDisruptionBudget keeps available: its `minAvailable` or `maxUnavailable`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AvailabilityTarget {
    /// The `minAvailable` as a number of pods.
    MinAvailable(i64),
    /// The `minAvailable` as a percentage of the expected pods.
    MinAvailablePercent(IntOrPercent),
    /// The `maxUnavailable`, as a number of pods or as a percentage of the expected pods.
    MaxUnavailable(IntOrPercent),
    /// The spec has neither `minAvailable` nor `maxUnavailable`.
    Unset,
    /// The spec of the PodDisruptionBudget is invalid. Holds the error message.
    Malformed(Text),
}

/// The status of a PodDisruptionBudget.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BudgetStatus {
    pub observed_generation: i64,
    /// The `disruptionsAllowed`: how many pods may be evicted now.
    pub allowed: i64,
    /// The `currentHealthy`: how many selected pods are healthy.
    pub healthy: i64,
    /// The `desiredHealthy`: how many pods must be healthy.
    pub desired: i64,
    /// The `expectedPods`: how many pods the budget counts in total.
    pub expected: i64,
    /// The `disruptedPods`: names of pods that an eviction is about to delete, with the time of the eviction.
    pub disrupted: BTreeMap<Text, Time>,
    /// All conditions as JSON, so that the conditions of other writers are preserved.
    pub conditions: Vec<Value>,
}

impl PodDisruptionBudget {
    /// Whether the budget's selector matches the pod's labels. The caller must pass a pod in the same namespace.
    pub(super) fn selects(&self, pod: &Pod) -> bool {
        self.selector.matches(&pod.labels)
    }

    /// Returns a reference to the budget, for events about it.
    pub(super) fn object_reference(&self) -> ObjectReference {
        let (key, uid) = (self.key.clone(), self.uid.clone());
        ObjectReference::new("policy/v1", "PodDisruptionBudget", key, uid, self.resource_version)
    }
}

/// The fields of a pod that the disruption controller reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub labels: Labels,
    /// The owner reference with `controller: true`. `None` if the pod has no such owner.
    pub controller: Option<PodController>,
    /// Whether the pod has a `deletionTimestamp`.
    pub deleting: bool,
    /// Whether the pod's condition `Ready` is True.
    pub ready: bool,
    /// Transition time of the condition `DisruptionTarget`. `None` if that condition is not True, if the kubelet set
    /// the condition (reason `TerminationByKubelet`), or if the pod has terminated or is being deleted.
    pub disrupted_since: Option<Time>,
}

/// The `apiVersion` and kind of the controller of a pod, from the owner reference with `controller: true`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodController {
    pub api_version: Text,
    pub kind: Text,
}

impl Pod {
    /// Whether the pod is Ready and not being deleted.
    pub(super) fn is_healthy(&self) -> bool {
        self.ready && !self.deleting
    }

    /// Whether two versions of a pod are equal in all fields that the status of a PodDisruptionBudget depends on.
    pub(super) fn is_equivalent(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.labels == other.labels
            && self.controller == other.controller
            && self.deleting == other.deleting
            && self.ready == other.ready
    }

    /// Returns a reference to the pod, for events about it.
    pub(super) fn object_reference(&self) -> ObjectReference {
        ObjectReference::to_pod(&self.key, &self.uid, self.resource_version)
    }
}

/// Decodes the JSON of a PodDisruptionBudget or pod, and keeps only the fields that the disruption controller reads.
pub(super) fn decode_fact(
    watch: &Watch,
    object: &[u8],
    shared: &mut Interner,
) -> Result<DisruptionObject, Malformed> {
    let plural = &watch.resource.plural;
    let malformed = |source| Malformed::new(plural, source);
    if **plural == *"pods" {
        let pod: PodWithoutContainers<'_> = json::from_slice(object).map_err(malformed)?;
        return Ok(DisruptionObject::Pod(Arc::new(pod_fact(pod, shared))));
    }
    let budget: policy_v1::PodDisruptionBudget<'_> = json::from_slice(object).map_err(malformed)?;
    Ok(DisruptionObject::Budget(Arc::new(budget_fact(budget, shared))))
}

/// Extracts the fields of a PodDisruptionBudget that the disruption controller reads.
fn budget_fact(budget: policy_v1::PodDisruptionBudget<'_>, shared: &mut Interner) -> PodDisruptionBudget {
    let meta = budget.metadata;
    let spec = budget.spec.unwrap_or_default();
    let status = budget.status.unwrap_or_default();
    let (selector, target) = match LabelSelector::to_selector(spec.selector.as_ref()) {
        Ok(selector) => (selector, availability_target(&spec)),
        Err(problem) => (Selector::Nothing, AvailabilityTarget::Malformed(problem.into())),
    };
    let disrupted = status.disrupted_pods.iter().flat_map(StrMap::pairs);
    // An invalid time is the epoch, so that the entry counts as expired.
    let disrupted = disrupted.map(|(name, at)| (name.into(), Time::parse(at).unwrap_or_default())).collect();
    PodDisruptionBudget {
        key: meta.key(shared),
        uid: meta.uid(),
        resource_version: meta.resource_version(),
        generation: meta.generation(),
        selector,
        target,
        status: BudgetStatus {
            observed_generation: status.observed_generation.unwrap_or_default(),
            allowed: status.disruptions_allowed.unwrap_or_default(),
            healthy: status.current_healthy.unwrap_or_default(),
            desired: status.desired_healthy.unwrap_or_default(),
            expected: status.expected_pods.unwrap_or_default(),
            disrupted,
            conditions: status.conditions.unwrap_or_default(),
        },
    }
}

/// Returns the `maxUnavailable` of a PodDisruptionBudget or, if that is absent, its `minAvailable`.
fn availability_target(spec: &PodDisruptionBudgetSpec<'_>) -> AvailabilityTarget {
    let invalid = |field: &str, value: &IntOrString<'_>| {
        AvailabilityTarget::Malformed(format!("{field}: {value} is neither a number nor a percentage").into())
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(value), _) => parse_int_or_percent(value)
            .map_or_else(|| invalid("maxUnavailable", value), AvailabilityTarget::MaxUnavailable),
        (None, Some(value)) => match parse_int_or_percent(value) {
            Some(IntOrPercent::Count(count)) => AvailabilityTarget::MinAvailable(i64::from(count)),
            Some(share) => AvailabilityTarget::MinAvailablePercent(share),
            None => invalid("minAvailable", value),
        },
        (None, None) => AvailabilityTarget::Unset,
    }
}

/// Extracts the fields of a pod that the disruption controller reads.
fn pod_fact(pod: PodWithoutContainers<'_>, shared: &mut Interner) -> Pod {
    let meta = pod.metadata;
    let status = pod.status.unwrap_or_default();
    let is_true = |kind: &str| {
        let mut conditions = status.conditions.iter().flatten();
        conditions.find(|it| it.type_.as_deref() == Some(kind) && it.is_true())
    };
    let is_live = !meta.is_deleting() && !status.is_terminal();
    let disrupted = is_true(DISRUPTION_TARGET)
        .filter(|it| is_live && it.reason.as_deref() != Some("TerminationByKubelet"));
    let controller = meta.controller().map(|it| PodController {
        api_version: shared.intern_text(it.api_version.as_deref().unwrap_or_default()),
        kind: shared.intern_text(it.kind.as_deref().unwrap_or_default()),
    });
    Pod {
        key: meta.key(shared),
        uid: meta.uid(),
        resource_version: meta.resource_version(),
        labels: meta.labels(shared),
        controller,
        deleting: meta.is_deleting(),
        ready: is_true(POD_READY).is_some(),
        disrupted_since: disrupted
            .map(|it| it.last_transition_time.as_deref().and_then(Time::parse).unwrap_or_default()),
    }
}
