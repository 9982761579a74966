//! Budgets and pods as the API server sends them. What no rule reads is skipped, not kept.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use muster_api::interner::Interner;
use muster_api::labels::{LabelRequirement, Labels};
use muster_api::meta::ObjectKey;
use muster_api::text::Text;
use muster_api::time::Time;
use serde::Deserialize;
use serde_json::Value;

use crate::controller::{self, ObjectReference, Watch};
use crate::daemonset::facts::decode::{Meta, Pairs, RawSelector, Str, requirements};
use crate::daemonset::facts::{Malformed, Share};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact {
    Budget(Arc<PodDisruptionBudget>),
    Pod(Arc<Pod>),
}

impl controller::Fact for Fact {
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

/// A PodDisruptionBudget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodDisruptionBudget {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub generation: i64,
    /// All must hold; `None` selects nothing.
    pub selector: Option<Vec<LabelRequirement>>,
    pub target: AvailabilityTarget,
    pub status: BudgetStatus,
}

/// `minAvailable` or `maxUnavailable` of a budget.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AvailabilityTarget {
    /// `minAvailable` as a number.
    MinAvailable(i64),
    /// `minAvailable` as a percentage of the expected pods.
    MinAvailablePercent(Share),
    /// `maxUnavailable`, as a number or as a percentage of the expected pods.
    MaxUnavailable(Share),
    Unset,
    Malformed(Text),
}

/// The status of a budget.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BudgetStatus {
    pub observed_generation: i64,
    pub allowed: i64,
    pub healthy: i64,
    pub desired: i64,
    pub expected: i64,
    /// Pods that evictions are about to delete, by name, and since when.
    pub disrupted: BTreeMap<Text, Time>,
    /// As they came, so that those of others survive.
    pub conditions: Vec<Value>,
}

impl PodDisruptionBudget {
    pub(super) fn selects(&self, pod: &Pod) -> bool {
        self.selector.as_ref().is_some_and(|all| all.iter().all(|it| it.matches(&pod.labels)))
    }

    pub(super) fn reference(&self) -> ObjectReference {
        reference("policy/v1", "PodDisruptionBudget", &self.key, &self.uid, self.resource_version)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub labels: Labels,
    pub controller: Option<PodController>,
    pub deleting: bool,
    pub ready: bool,
    /// Since when it says that it is about to go, if it has neither ended nor is being deleted.
    pub disrupted_since: Option<Time>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodController {
    pub api_version: Text,
    pub kind: Text,
}

impl Pod {
    pub(super) fn is_healthy(&self) -> bool {
        self.ready && !self.deleting
    }

    /// Whether a budget could tell the two apart.
    pub(super) fn is_equivalent(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.labels == other.labels
            && self.controller == other.controller
            && self.deleting == other.deleting
            && self.ready == other.ready
    }

    pub(super) fn reference(&self) -> ObjectReference {
        reference("v1", "Pod", &self.key, &self.uid, self.resource_version)
    }
}

fn reference(
    api_version: &str,
    kind: &str,
    key: &ObjectKey,
    uid: &Text,
    resource_version: u64,
) -> ObjectReference {
    ObjectReference {
        api_version: api_version.into(),
        kind: kind.into(),
        key: key.clone(),
        uid: uid.clone(),
        resource_version,
    }
}

pub(super) fn fact(watch: &Watch, object: &[u8], shared: &mut Interner) -> Result<Fact, Malformed> {
    let plural = &watch.resource.plural;
    let malformed = |source| Malformed::new(plural, source);
    if **plural == *"pods" {
        let raw: RawPod<'_> = serde_json::from_slice(object).map_err(malformed)?;
        return Ok(Fact::Pod(Arc::new(raw.into_fact(shared))));
    }
    let raw: RawBudget<'_> = serde_json::from_slice(object).map_err(malformed)?;
    Ok(Fact::Budget(Arc::new(raw.into_fact(shared))))
}

#[derive(Deserialize)]
struct RawBudget<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: RawSpec<'a>,
    #[serde(borrow, default)]
    status: RawStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawSpec<'a> {
    min_available: Option<Value>,
    max_unavailable: Option<Value>,
    #[serde(borrow)]
    selector: Option<RawSelector<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawStatus<'a> {
    observed_generation: i64,
    disruptions_allowed: i64,
    current_healthy: i64,
    desired_healthy: i64,
    expected_pods: i64,
    #[serde(borrow)]
    disrupted_pods: Option<Pairs<'a>>,
    conditions: Option<Vec<Value>>,
}

impl RawBudget<'_> {
    fn into_fact(self, shared: &mut Interner) -> PodDisruptionBudget {
        let mut target = self.spec.target();
        let selector = match self.spec.selector.map(requirements).transpose() {
            Ok(selector) => selector,
            Err(problem) => {
                target = AvailabilityTarget::Malformed(problem.as_str().into());
                None
            }
        };
        let disrupted = self.status.disrupted_pods.into_iter().flatten();
        let status = BudgetStatus {
            observed_generation: self.status.observed_generation,
            allowed: self.status.disruptions_allowed,
            healthy: self.status.current_healthy,
            desired: self.status.desired_healthy,
            expected: self.status.expected_pods,
            // A time that cannot be read is long past.
            disrupted: disrupted
                .map(|(name, at)| (name.as_ref().into(), Time::parse(&at).unwrap_or_default()))
                .collect(),
            conditions: self.status.conditions.unwrap_or_default(),
        };
        PodDisruptionBudget {
            key: self.metadata.key(shared),
            uid: self.metadata.uid(),
            resource_version: self.metadata.resource_version(),
            generation: self.metadata.generation.unwrap_or_default(),
            selector,
            target,
            status,
        }
    }
}

impl RawSpec<'_> {
    fn target(&self) -> AvailabilityTarget {
        let unreadable = |field: &str, value: &Value| {
            AvailabilityTarget::Malformed(
                format!("{field}: {value} is neither a number nor a percentage").as_str().into(),
            )
        };
        match (&self.max_unavailable, &self.min_available) {
            (Some(value), _) => share(value)
                .map_or_else(|| unreadable("maxUnavailable", value), AvailabilityTarget::MaxUnavailable),
            (None, Some(value)) => match share(value) {
                Some(Share::Count(count)) => AvailabilityTarget::MinAvailable(i64::from(count)),
                Some(share) => AvailabilityTarget::MinAvailablePercent(share),
                None => unreadable("minAvailable", value),
            },
            (None, None) => AvailabilityTarget::Unset,
        }
    }
}

fn share(value: &Value) -> Option<Share> {
    match value {
        Value::Number(number) => number.as_u64().and_then(|it| u32::try_from(it).ok()).map(Share::Count),
        Value::String(text) => text.strip_suffix('%')?.parse().ok().map(Share::Percent),
        _ => None,
    }
}

#[derive(Deserialize)]
struct RawPod<'a> {
    #[serde(borrow, default)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    status: RawPodStatus<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawPodStatus<'a> {
    #[serde(borrow)]
    phase: Option<Str<'a>>,
    #[serde(borrow)]
    conditions: Option<Vec<RawCondition<'a>>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Str<'a>,
    #[serde(borrow)]
    status: Str<'a>,
    #[serde(borrow)]
    reason: Option<Str<'a>>,
    #[serde(borrow)]
    last_transition_time: Option<Str<'a>>,
}

impl RawPod<'_> {
    fn into_fact(self, shared: &mut Interner) -> Pod {
        let condition = |kind: &str| {
            let mut conditions = self.status.conditions.iter().flatten();
            conditions.find(|it| it.kind == kind && it.status == "True")
        };
        let deleting = self.metadata.deletion_timestamp.is_some();
        let ended = matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"));
        let disrupted = condition("DisruptionTarget")
            .filter(|it| !deleting && !ended && it.reason.as_deref() != Some("TerminationByKubelet"));
        let mut owners = self.metadata.owner_references.iter().flatten();
        let controller = owners.find(|it| it.controller == Some(true)).map(|it| PodController {
            api_version: shared.intern_text(it.api_version.as_deref().unwrap_or_default()),
            kind: shared.intern_text(it.kind.as_deref().unwrap_or_default()),
        });
        Pod {
            key: self.metadata.key(shared),
            uid: self.metadata.uid(),
            resource_version: self.metadata.resource_version(),
            labels: self.metadata.labels(shared),
            controller,
            deleting,
            ready: condition("Ready").is_some(),
            disrupted_since: disrupted
                .map(|it| it.last_transition_time.as_deref().and_then(Time::parse).unwrap_or_default()),
        }
    }
}
