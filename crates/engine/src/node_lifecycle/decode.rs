//! Nodes, their leases and pods as the API server sends them. What no rule reads is skipped, not kept.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use muster_api::interner::Interner;
use muster_api::meta::ObjectKey;
use muster_api::taints::Toleration;
use muster_api::text::Text;
use muster_api::time::Time;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::taints::NO_EXECUTE;
use crate::controller;
use crate::daemonset::facts::{Malformed, Truth};

/// Where nodes keep their leases.
pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";

/// What a watch brings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact {
    Node(Node),
    Lease(Lease),
    Pod(Pod),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub name: Text,
    pub uid: Text,
    pub resource_version: u64,
    /// As the server wrote it.
    pub created: Text,
    pub zone: Text,
    /// Its label excludes it where the healthy nodes of a zone are counted.
    pub excluded: bool,
    pub unschedulable: bool,
    pub taints: Vec<Taint>,
    pub conditions: Conditions,
    /// `lastHeartbeatTime` of the condition `Ready`, by the node's own clock: only its changes matter.
    pub heartbeat: Option<Text>,
    /// Deprecated label aliases (`beta.kubernetes.io/os` …) whose value differs from the stable label.
    pub alias_labels: Vec<(&'static str, Text)>,
}

impl Node {
    pub fn ready(&self) -> Option<Truth> {
        self.conditions.get(ConditionType::Ready)
    }

    /// Whether the two differ in nothing that rules depend on. A heartbeat makes no such difference.
    pub(super) fn is_equivalent(&self, other: &Self) -> bool {
        let Self { resource_version: _, heartbeat: _, name: _, created: _, .. } = self;
        self.uid == other.uid
            && self.zone == other.zone
            && self.excluded == other.excluded
            && self.unschedulable == other.unschedulable
            && self.taints == other.taints
            && self.conditions == other.conditions
            && self.alias_labels == other.alias_labels
    }

    pub(super) fn no_execute_taints(&self) -> impl Iterator<Item = &Taint> {
        self.taints.iter().filter(|it| *it.effect == *NO_EXECUTE)
    }
}

/// A taint as it stands in the node, for all of them are written back when one changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taint {
    pub key: Text,
    pub value: Text,
    pub effect: Text,
    pub added: Option<Text>,
}

/// The types of the conditions that rules depend on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ConditionType {
    Ready,
    MemoryPressure,
    DiskPressure,
    PidPressure,
    NetworkUnavailable,
}

impl ConditionType {
    pub(super) const ALL: [Self; 5] =
        [Self::Ready, Self::MemoryPressure, Self::DiskPressure, Self::PidPressure, Self::NetworkUnavailable];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::MemoryPressure => "MemoryPressure",
            Self::DiskPressure => "DiskPressure",
            Self::PidPressure => "PIDPressure",
            Self::NetworkUnavailable => "NetworkUnavailable",
        }
    }
}

/// What each condition says; `None` where nobody has said anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Conditions([Option<Truth>; 5]);

impl Conditions {
    pub(super) fn get(self, condition: ConditionType) -> Option<Truth> {
        self.0[condition as usize]
    }

    pub(super) fn set(&mut self, condition: ConditionType, says: Truth) {
        self.0[condition as usize] = Some(says);
    }
}

/// A node's heartbeat. Its own clock wrote the time, so all that counts is that it changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Named as its node, if it is one of a node.
    pub key: ObjectKey,
    pub resource_version: u64,
    pub renewed: Option<Text>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub generation: i64,
    /// Empty until it is bound.
    pub node: Text,
    /// When the pod was bound: its creation, or the transition of `PodScheduled`.
    pub bound_at: Time,
    pub deleting: bool,
    pub ready: bool,
    /// Its condition `DisruptionTarget` shows that it is evicted because of a taint.
    pub is_disruption_target: bool,
    /// Those that may fit a taint that sends pods off.
    pub tolerations: Vec<TimedToleration>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimedToleration {
    pub toleration: Toleration,
    /// `None`: for ever.
    pub seconds: Option<i64>,
}

impl controller::Fact for Fact {
    fn key(&self) -> ObjectKey {
        match self {
            Self::Node(it) => ObjectKey::new("", it.name.clone()),
            Self::Lease(it) => it.key.clone(),
            Self::Pod(it) => it.key.clone(),
        }
    }

    fn resource_version(&self) -> u64 {
        match self {
            Self::Node(it) => it.resource_version,
            Self::Lease(it) => it.resource_version,
            Self::Pod(it) => it.resource_version,
        }
    }
}

type Str<'a> = Cow<'a, str>;

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Meta<'a> {
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    namespace: Option<Str<'a>>,
    #[serde(borrow)]
    uid: Str<'a>,
    #[serde(borrow)]
    resource_version: Str<'a>,
    generation: Option<i64>,
    #[serde(borrow)]
    creation_timestamp: Option<Str<'a>>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(borrow)]
    labels: Option<BTreeMap<Str<'a>, Str<'a>>>,
}

impl Meta<'_> {
    fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(AsRef::as_ref)
    }

    /// The old name of a label counts before the new one. Upstream: `GetZoneKey`.
    fn zone(&self) -> [&str; 2] {
        let of = |old, new| self.label(old).or_else(|| self.label(new)).unwrap_or_default();
        [
            of("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
            of("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        ]
    }

    /// Labels that old selectors still ask for. Upstream: `reconcileNodeLabels`.
    fn labels_to_copy(&self) -> impl Iterator<Item = (&'static str, &str)> {
        const COPIES: [(&str, &str); 2] = [
            ("kubernetes.io/os", "beta.kubernetes.io/os"),
            ("kubernetes.io/arch", "beta.kubernetes.io/arch"),
        ];
        let wanted = COPIES.into_iter().filter_map(|(of, copy)| Some((copy, self.label(of)?)));
        wanted.filter(|(copy, value)| self.label(copy) != Some(*value))
    }
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
    last_heartbeat_time: Option<Str<'a>>,
    #[serde(borrow)]
    last_transition_time: Option<Str<'a>>,
}

pub(super) fn node(object: &[u8], shared: &mut Interner) -> Result<Node, Malformed> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Raw<'a> {
        #[serde(borrow)]
        metadata: Meta<'a>,
        #[serde(borrow)]
        spec: Spec<'a>,
        #[serde(borrow)]
        status: Status<'a>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Spec<'a> {
        unschedulable: Option<bool>,
        #[serde(borrow)]
        taints: Option<Vec<RawTaint<'a>>>,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct RawTaint<'a> {
        #[serde(borrow)]
        key: Str<'a>,
        #[serde(borrow)]
        value: Option<Str<'a>>,
        #[serde(borrow)]
        effect: Str<'a>,
        #[serde(borrow)]
        time_added: Option<Str<'a>>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Status<'a> {
        #[serde(borrow)]
        conditions: Option<Vec<RawCondition<'a>>>,
    }

    let Raw { metadata, spec, status } =
        serde_json::from_slice(object).map_err(|it| Malformed::new("nodes", it))?;
    let mut conditions = Conditions::default();
    let mut heartbeat = None;
    for raw in status.conditions.iter().flatten() {
        let condition = ConditionType::ALL.into_iter().find(|it| it.as_str() == raw.kind);
        if let Some(condition) = condition.filter(|it| conditions.get(*it).is_none()) {
            conditions.set(condition, Truth::parse(&raw.status));
            if condition == ConditionType::Ready {
                heartbeat = raw.last_heartbeat_time.as_deref().map(Text::from);
            }
        }
    }
    let taints = spec.taints.iter().flatten().map(|it| Taint {
        key: shared.intern_text(&it.key),
        value: shared.intern_text(it.value.as_deref().unwrap_or_default()),
        effect: shared.intern_text(&it.effect),
        added: it.time_added.as_deref().map(Text::from),
    });
    let taints = taints.collect();
    let zone = match metadata.zone() {
        ["", ""] => shared.intern_text(""),
        [region, zone] => shared.intern_text(&[region, zone].join("/")),
    };
    let alias_labels =
        metadata.labels_to_copy().map(|(copy, value)| (copy, shared.intern_text(value))).collect();
    Ok(Node {
        name: shared.intern_text(&metadata.name),
        uid: metadata.uid.as_ref().into(),
        resource_version: metadata.version(),
        created: metadata.creation_timestamp.as_deref().unwrap_or_default().into(),
        zone,
        excluded: metadata.label("node.kubernetes.io/exclude-disruption").is_some(),
        unschedulable: spec.unschedulable == Some(true),
        taints,
        conditions,
        heartbeat,
        alias_labels,
    })
}

pub(super) fn lease(object: &[u8], shared: &mut Interner) -> Result<Lease, Malformed> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Raw<'a> {
        #[serde(borrow)]
        metadata: Meta<'a>,
        #[serde(borrow)]
        spec: Spec<'a>,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Spec<'a> {
        #[serde(borrow)]
        renew_time: Option<Str<'a>>,
    }

    let Raw { metadata, spec } = serde_json::from_slice(object).map_err(|it| Malformed::new("leases", it))?;
    Ok(Lease {
        key: ObjectKey {
            namespace: shared.intern_text(metadata.namespace.as_deref().unwrap_or_default()),
            name: shared.intern_text(&metadata.name),
        },
        resource_version: metadata.version(),
        renewed: spec.renew_time.as_deref().map(Text::from),
    })
}

pub(super) fn pod(object: &[u8], shared: &mut Interner) -> Result<Pod, Malformed> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Raw<'a> {
        #[serde(borrow)]
        metadata: Meta<'a>,
        #[serde(borrow)]
        spec: Spec<'a>,
        #[serde(borrow)]
        status: Status<'a>,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Spec<'a> {
        #[serde(borrow)]
        node_name: Option<Str<'a>>,
        #[serde(borrow)]
        tolerations: Option<Vec<RawToleration<'a>>>,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct RawToleration<'a> {
        #[serde(borrow)]
        key: Option<Str<'a>>,
        #[serde(borrow)]
        operator: Option<Str<'a>>,
        #[serde(borrow)]
        value: Option<Str<'a>>,
        #[serde(borrow)]
        effect: Option<Str<'a>>,
        toleration_seconds: Option<i64>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Status<'a> {
        #[serde(borrow)]
        conditions: Option<Vec<RawCondition<'a>>>,
    }

    let Raw { metadata, spec, status } =
        serde_json::from_slice(object).map_err(|it| Malformed::new("pods", it))?;
    let mut tolerations = Vec::new();
    for raw in spec.tolerations.iter().flatten() {
        let effect = raw.effect.as_deref().unwrap_or_default();
        if !matches!(effect, "" | NO_EXECUTE) {
            continue;
        }
        let key = shared.intern_text(raw.key.as_deref().unwrap_or_default());
        let value = || shared.intern_text(raw.value.as_deref().unwrap_or_default());
        let what = Toleration::new(key, raw.operator.as_deref().unwrap_or_default(), value, effect);
        tolerations.push(TimedToleration { toleration: what, seconds: raw.toleration_seconds });
    }
    let says = |kind: &str| {
        let mut conditions = status.conditions.iter().flatten();
        conditions.find(|it| it.kind == kind).filter(|it| it.status == "True")
    };
    let time = |text: Option<&str>| text.and_then(Time::parse).unwrap_or_default();
    let scheduled = says("PodScheduled").and_then(|it| it.last_transition_time.as_deref());
    Ok(Pod {
        key: ObjectKey {
            namespace: shared.intern_text(metadata.namespace.as_deref().unwrap_or_default()),
            name: metadata.name.as_ref().into(),
        },
        uid: metadata.uid.as_ref().into(),
        resource_version: metadata.version(),
        generation: metadata.generation.unwrap_or_default(),
        node: shared.intern_text(spec.node_name.as_deref().unwrap_or_default()),
        bound_at: time(metadata.creation_timestamp.as_deref()).max(time(scheduled)),
        deleting: metadata.deletion_timestamp.is_some(),
        ready: says("Ready").is_some(),
        is_disruption_target: says("DisruptionTarget")
            .is_some_and(|it| it.reason.as_deref() == Some(super::call::DELETION_BY_TAINT_MANAGER)),
        tolerations,
    })
}
