//! Decodes nodes, node Leases and pods into facts: only the fields that the node lifecycle controller reads.

use alloc::vec::Vec;

use muster_api::coordination_v1;
use muster_api::core_v1::{self, ConditionStatus, PodWithoutContainers};
use muster_api::interner::Interner;
use muster_api::json;
use muster_api::meta_v1::ObjectMeta;
use muster_api::object_key::ObjectKey;
use muster_api::taints::Toleration;
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{
    DISRUPTION_TARGET, LABEL_ARCH, LABEL_BETA_ARCH, LABEL_BETA_OS, LABEL_FAILURE_DOMAIN_BETA_REGION,
    LABEL_FAILURE_DOMAIN_BETA_ZONE, LABEL_NODE_EXCLUDE_DISRUPTION, LABEL_OS, LABEL_TOPOLOGY_REGION,
    LABEL_TOPOLOGY_ZONE, NAMESPACE_NODE_LEASE, NODE_DISK_PRESSURE, NODE_MEMORY_PRESSURE,
    NODE_NETWORK_UNAVAILABLE, NODE_PID_PRESSURE, NODE_READY, POD_READY, POD_SCHEDULED,
};

use super::taints::NO_EXECUTE;
use crate::controller;
use crate::controller::Malformed;

/// Namespace of the node Leases.
pub(super) const LEASE_NAMESPACE: &str = NAMESPACE_NODE_LEASE;

/// A decoded object of one of the kinds that the node lifecycle controller watches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeLifecycleObject {
    Node(Node),
    Lease(Lease),
    Pod(Pod),
}

/// The fields of a node that the node lifecycle controller reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub name: Text,
    pub uid: Text,
    pub resource_version: u64,
    /// The `creationTimestamp` of the Node, as text.
    pub created: Text,
    /// Region and zone of the node as `region/zone`; empty if it has neither label.
    pub zone: Text,
    /// Whether the label `node.kubernetes.io/exclude-disruption` excludes the node from the counts of its zone.
    pub excluded: bool,
    /// Whether the node is cordoned (`spec.unschedulable`).
    pub unschedulable: bool,
    pub taints: Vec<Taint>,
    pub conditions: Conditions,
    /// The `lastHeartbeatTime` of the condition `Ready`, by the node's clock. It is only compared with earlier values.
    /// `None` if it is absent.
    pub heartbeat: Option<Text>,
    /// The deprecated labels `beta.kubernetes.io/os` and `beta.kubernetes.io/arch` that are to be changed, each with
    /// its new value: the value of the stable label.
    pub alias_labels: Vec<(&'static str, Text)>,
}

impl Node {
    /// Returns the status of the condition `Ready`. `None` if the node has no such condition.
    pub fn ready(&self) -> Option<ConditionStatus> {
        self.conditions.get(NodeConditionType::Ready)
    }

    /// Whether two versions of a node are equal in all fields that the rules for taints, labels and zones read. A
    /// heartbeat alone does not change these fields.
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

    /// Returns the taints with effect `NoExecute`.
    pub(super) fn no_execute_taints(&self) -> impl Iterator<Item = &Taint> {
        self.taints.iter().filter(|it| *it.effect == *NO_EXECUTE)
    }
}

/// A taint with all its fields, because a patch replaces the whole list of taints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Taint {
    pub key: Text,
    pub value: Text,
    pub effect: Text,
    /// The taint's `timeAdded` as text. `None` if it is absent.
    pub added: Option<Text>,
}

/// The node condition types that the node lifecycle controller reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NodeConditionType {
    Ready,
    MemoryPressure,
    DiskPressure,
    PidPressure,
    NetworkUnavailable,
}

impl NodeConditionType {
    /// All condition types, in the order of the variants.
    pub(super) const ALL: [Self; 5] =
        [Self::Ready, Self::MemoryPressure, Self::DiskPressure, Self::PidPressure, Self::NetworkUnavailable];

    /// Returns the `type` of the condition in a Node object.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ready => NODE_READY,
            Self::MemoryPressure => NODE_MEMORY_PRESSURE,
            Self::DiskPressure => NODE_DISK_PRESSURE,
            Self::PidPressure => NODE_PID_PRESSURE,
            Self::NetworkUnavailable => NODE_NETWORK_UNAVAILABLE,
        }
    }
}

/// The status of each condition type of a node. `None` if the node does not have the condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Conditions([Option<ConditionStatus>; 5]);

impl Conditions {
    /// Returns the status of a condition of this type. `None` if the node has no such condition.
    pub(super) fn get(self, condition: NodeConditionType) -> Option<ConditionStatus> {
        self.0[condition as usize]
    }

    /// Sets the status of the condition of this type.
    pub(super) fn set(&mut self, condition: NodeConditionType, status: ConditionStatus) {
        self.0[condition as usize] = Some(status);
    }
}

/// The Lease of a node, which its kubelet renews as a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Namespace and name of the Lease. The name is the name of its node.
    pub key: ObjectKey,
    pub resource_version: u64,
    /// The `renewTime` of the Lease as text, by the node's clock. It is only compared with earlier values. `None` if it
    /// is absent.
    pub renewed: Option<Text>,
}

/// The fields of a pod that the node lifecycle controller reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub generation: i64,
    /// Name of the pod's node (`spec.nodeName`); empty until the pod is bound.
    pub node: Text,
    /// Time at which the pod was bound: the transition time of the condition `PodScheduled`, but not before the
    /// creation time of the pod. If the condition is not True, it is the creation time.
    pub bound_at: Time,
    /// Whether the pod has a `deletionTimestamp`.
    pub deleting: bool,
    /// Whether the pod's condition `Ready` is True.
    pub ready: bool,
    /// Whether the pod has the condition `DisruptionTarget` with the reason `DeletionByTaintManager`, which this
    /// controller sets before it evicts a pod.
    pub is_disruption_target: bool,
    /// The pod's tolerations that may tolerate a `NoExecute` taint.
    pub tolerations: Vec<TimedToleration>,
}

/// A toleration with its `tolerationSeconds`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimedToleration {
    pub toleration: Toleration,
    /// The `tolerationSeconds`. `None` means that the taint is tolerated forever.
    pub seconds: Option<i64>,
}

impl controller::DecodedObject for NodeLifecycleObject {
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

/// Returns region and zone of a node, from its labels. The deprecated `failure-domain.beta.kubernetes.io` labels take
/// precedence. An absent label is empty. Upstream: `GetZoneKey`.
fn region_and_zone<'a>(meta: &'a ObjectMeta<'_>) -> [&'a str; 2] {
    let of = |old, new| meta.label(old).or_else(|| meta.label(new)).unwrap_or_default();
    [
        of(LABEL_FAILURE_DOMAIN_BETA_REGION, LABEL_TOPOLOGY_REGION),
        of(LABEL_FAILURE_DOMAIN_BETA_ZONE, LABEL_TOPOLOGY_ZONE),
    ]
}

/// Returns the deprecated OS and architecture labels that are missing or differ from their stable labels, each with its
/// new value: the value of the stable label. Leaves out labels whose stable label is missing. Upstream:
/// `reconcileNodeLabels`.
fn outdated_alias_labels<'a>(meta: &'a ObjectMeta<'_>) -> impl Iterator<Item = (&'static str, &'a str)> {
    /// Each stable label with its deprecated alias.
    const ALIASES: [(&str, &str); 2] = [(LABEL_OS, LABEL_BETA_OS), (LABEL_ARCH, LABEL_BETA_ARCH)];
    let wanted = ALIASES.into_iter().filter_map(|(stable, alias)| Some((alias, meta.label(stable)?)));
    wanted.filter(|(alias, value)| meta.label(alias) != Some(*value))
}

/// Decodes the JSON of a Node, and keeps only the fields that the node lifecycle controller reads.
pub(super) fn decode_node(object: &[u8], shared: &mut Interner) -> Result<Node, Malformed> {
    let core_v1::Node { metadata, spec, status } =
        json::from_slice(object).map_err(|it| Malformed::new("nodes", it))?;
    let spec = spec.unwrap_or_default();
    let mut conditions = Conditions::default();
    let mut heartbeat = None;
    for found in status.iter().flat_map(|it| it.conditions.iter().flatten()) {
        let condition =
            NodeConditionType::ALL.into_iter().find(|it| Some(it.as_str()) == found.type_.as_deref());
        if let Some(condition) = condition.filter(|it| conditions.get(*it).is_none()) {
            conditions.set(condition, found.status());
            if condition == NodeConditionType::Ready {
                heartbeat = found.last_heartbeat_time.as_deref().map(Text::from);
            }
        }
    }
    let taints = spec.taints.iter().flatten().map(|it| Taint {
        key: shared.intern_text(it.key.as_deref().unwrap_or_default()),
        value: shared.intern_text(it.value.as_deref().unwrap_or_default()),
        effect: shared.intern_text(it.effect.as_deref().unwrap_or_default()),
        added: it.time_added.as_deref().map(Text::from),
    });
    let taints = taints.collect();
    let zone = match region_and_zone(&metadata) {
        ["", ""] => shared.intern_text(""),
        [region, zone] => shared.intern_text(&[region, zone].join("/")),
    };
    let alias_labels =
        outdated_alias_labels(&metadata).map(|(alias, value)| (alias, shared.intern_text(value))).collect();
    Ok(Node {
        name: shared.intern_text(metadata.name()),
        uid: metadata.uid(),
        resource_version: metadata.resource_version(),
        created: metadata.creation_timestamp.as_deref().unwrap_or_default().into(),
        zone,
        excluded: metadata.label(LABEL_NODE_EXCLUDE_DISRUPTION).is_some(),
        unschedulable: spec.unschedulable == Some(true),
        taints,
        conditions,
        heartbeat,
        alias_labels,
    })
}

/// Decodes the JSON of a node Lease, and keeps only the fields that the node lifecycle controller reads.
pub(super) fn decode_lease(object: &[u8], shared: &mut Interner) -> Result<Lease, Malformed> {
    let coordination_v1::Lease { metadata, spec } =
        json::from_slice(object).map_err(|it| Malformed::new("leases", it))?;
    Ok(Lease {
        key: ObjectKey {
            namespace: shared.intern_text(metadata.namespace()),
            name: shared.intern_text(metadata.name()),
        },
        resource_version: metadata.resource_version(),
        renewed: spec.and_then(|it| it.renew_time).as_deref().map(Text::from),
    })
}

/// Decodes the JSON of a pod, and keeps only the fields that the node lifecycle controller reads.
pub(super) fn decode_pod(object: &[u8], shared: &mut Interner) -> Result<Pod, Malformed> {
    let PodWithoutContainers { metadata, spec, status } =
        json::from_slice(object).map_err(|it| Malformed::new("pods", it))?;
    let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
    let tolerations = spec.tolerations.iter().flatten();
    let may_tolerate = tolerations.filter(|it| matches!(it.effect.as_deref(), None | Some("" | NO_EXECUTE)));
    let tolerations = may_tolerate
        .map(|it| TimedToleration { toleration: it.intern(shared), seconds: it.toleration_seconds });
    let tolerations = tolerations.collect();
    let is_true = |condition: &str| status.condition(condition).filter(|it| it.is_true());
    let scheduled = is_true(POD_SCHEDULED).and_then(|it| it.last_transition_time.as_deref());
    Ok(Pod {
        key: metadata.key(shared),
        uid: metadata.uid(),
        resource_version: metadata.resource_version(),
        generation: metadata.generation(),
        node: shared.intern_text(spec.node_name.as_deref().unwrap_or_default()),
        bound_at: metadata.creation_time().max(scheduled.and_then(Time::parse).unwrap_or_default()),
        deleting: metadata.is_deleting(),
        ready: is_true(POD_READY).is_some(),
        is_disruption_target: is_true(DISRUPTION_TARGET)
            .is_some_and(|it| it.reason.as_deref() == Some(super::call::DELETION_BY_TAINT_MANAGER)),
        tolerations,
    })
}
