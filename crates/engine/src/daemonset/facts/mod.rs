//! Facts: the fields of API objects that rules read, decoded once. Rules read facts, never JSON.
//!
//! Invalid fields are handled here. Each field of a fact has either a valid value, or a default and an [`InvalidField`]
//! that describes the problem.

pub(crate) mod decode;
mod selector;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::labels::{LabelRequirement, Labels};
use muster_api::meta::ObjectKey;
use muster_api::taints::{Taint, Toleration};
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::ANNOTATION_TEMPLATE_GENERATION;

pub use muster_api::core_v1::{ConditionStatus, PodPhase as Phase};

pub use decode::{
    Fact, decode_deleted, decode_fact, decode_node, decode_pod, decode_revision, decode_set, decode_watched,
};
pub use selector::Selector;

use crate::controller::Watch;
use crate::daemonset::template_equivalence::TemplateIdentity;

/// The four kinds that the DaemonSet controller watches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    Sets,
    Nodes,
    Pods,
    Revisions,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Sets, Self::Nodes, Self::Pods, Self::Revisions];

    /// The index of the kind in [`Kind::ALL`] and in [`Controller::watches`](crate::controller::Controller::watches).
    pub fn index(self) -> usize {
        self as usize
    }

    /// The resource to list and watch.
    pub fn watch(self) -> Watch {
        let kind = match self {
            Self::Sets => "DaemonSet",
            Self::Nodes => "Node",
            Self::Pods => "Pod",
            Self::Revisions => "ControllerRevision",
        };
        Watch::whole_objects(self.group(), "v1", kind, self.plural(), self != Self::Nodes)
    }

    /// The kind with this name in URL paths.
    pub(crate) fn from_plural(plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.plural() == plural)
    }

    /// The API group; empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Self::Sets | Self::Revisions => "apps",
            Self::Nodes | Self::Pods => "",
        }
    }

    /// The name of the resource in URL paths and RBAC rules.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Sets => "daemonsets",
            Self::Nodes => "nodes",
            Self::Pods => "pods",
            Self::Revisions => "controllerrevisions",
        }
    }
}

/// A DaemonSet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub generation: i64,
    pub created: Time,
    pub deleting: bool,
    pub selector: Selector,
    /// The `updateStrategy`.
    pub rollout: UpdateStrategy,
    /// The `minReadySeconds`.
    pub min_ready: Duration,
    /// The `revisionHistoryLimit`.
    pub history_max: usize,
    pub template: Template,
    /// The value of the annotation `deprecated.daemonset.template.generation`. Pods of old clusters have it as a label.
    pub template_generation: Option<i64>,
    pub status: Status,
    /// The object's metadata as received (JSON). A status write must send all of it.
    pub metadata: Text,
    /// The DaemonSet's annotations (JSON), copied to revisions for `kubectl rollout history`.
    pub annotations: Text,
    /// Invalid fields of the object, with the values that are used instead.
    pub faults: Vec<InvalidField>,
}

/// The fields of the pod template that rules read, and the whole template as JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    /// The template as received (JSON), so that unknown fields are kept.
    pub raw: Text,
    /// The `data` of the ControllerRevision for this template, encoded byte for byte as upstream's Go code would.
    pub data: Text,
    pub identity: TemplateIdentity,
    pub labels: Labels,
    pub node_name: Option<Text>,
    pub node_selector: Labels,
    pub affinity: Affinity,
    /// The tolerations of a created pod: those of the template, then the automatic ones.
    pub tolerations: Arc<[Toleration]>,
}

/// Required node affinity.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Affinity {
    /// The template has no required node affinity.
    #[default]
    Anywhere,
    /// The node must match one of the terms. An empty list matches no node.
    AnyOf(Vec<Term>),
}

/// A node selector term. A node must match all its requirements. An empty term matches no node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Term {
    AllOf(Vec<NodeRequirement>),
    /// A term that cannot be parsed, with the parse error. It matches no node.
    Unreadable(Text),
}

/// A requirement of a node selector term on the labels or on the name of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeRequirement {
    Label(LabelRequirement),
    NameIs(Text),
    NameIsNot(Text),
}

/// The update strategy of a DaemonSet. Upstream validates that exactly one of `maxUnavailable` and `maxSurge` is
/// non-zero; this type cannot represent both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateStrategy {
    OnDelete,
    /// The old pod is deleted before the new one is created. At most `maxUnavailable` nodes are without an available
    /// pod.
    Drain(IntOrPercent),
    /// The new pod is created before the old one is deleted. At most `maxSurge` nodes have two pods.
    Surge(IntOrPercent),
}

/// The value of `maxUnavailable` or `maxSurge`: a number of nodes or a percentage of the nodes. Upstream:
/// `IntOrString`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntOrPercent {
    Count(u32),
    Percent(u32),
}

impl IntOrPercent {
    /// Rule: a percentage in `maxUnavailable` or `maxSurge` refers to the eligible nodes and is rounded up.
    pub fn of(self, desired: usize) -> usize {
        match self {
            Self::Count(count) => count as usize,
            Self::Percent(percent) => desired.saturating_mul(percent as usize).div_ceil(100),
        }
    }

    pub fn is_zero(self) -> bool {
        matches!(self, Self::Count(0) | Self::Percent(0))
    }
}

/// An invalid field of an object, and the problem with its value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct InvalidField {
    pub field: &'static str,
    pub problem: String,
}

impl core::fmt::Display for InvalidField {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

/// The stored status of a DaemonSet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Status {
    pub observed_generation: i64,
    pub counts: StatusCounts,
    /// The `collisionCount`.
    pub collisions: Option<i32>,
    /// The conditions that this controller writes. Conditions of other writers are only in `raw`.
    pub conditions: Vec<Condition>,
    /// The status as received (JSON), so that fields of other writers are kept.
    pub raw: Option<Text>,
}

/// The counts of nodes in the status of a DaemonSet (`desiredNumberScheduled`, `numberReady` …).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StatusCounts {
    pub desired: i64,
    pub current: i64,
    pub ready: i64,
    pub updated: i64,
    pub available: i64,
    pub unavailable: i64,
    pub misscheduled: i64,
}

/// The types of the conditions that this controller writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ConditionType {
    Available,
    Progressing,
    Degraded,
}

impl ConditionType {
    pub const ALL: [Self; 3] = [Self::Available, Self::Progressing, Self::Degraded];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Available => "Available",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }
}

/// A condition in the status of a DaemonSet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    pub kind: ConditionType,
    pub status: ConditionStatus,
    pub reason: Text,
    pub message: Text,
    /// The `lastTransitionTime`.
    pub since: Option<Time>,
}

/// A Node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub name: Text,
    pub uid: Text,
    pub resource_version: u64,
    pub created: Time,
    pub labels: Labels,
    pub taints: Arc<[Taint]>,
    pub ready: Ready,
}

impl Node {
    /// Whether two versions of a node are equal in all fields that rules read. A heartbeat changes none of these
    /// fields.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.labels == other.labels
            && self.taints == other.taints
            && self.ready == other.ready
    }
}

/// The Ready condition of a node. `since` is the last transition time, `None` if the node never reported its status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    pub status: ConditionStatus,
    pub since: Option<Time>,
}

/// A pod that a DaemonSet controls, or a pod without a controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    /// UID of the DaemonSet that controls the pod. `None` if the pod has no controller.
    pub owner: Option<Text>,
    pub labels: Labels,
    /// Name of the pod's node: `spec.nodeName`, or else the node that the required node affinity names by
    /// `metadata.name`.
    pub target: Option<Text>,
    /// Whether `spec.nodeName` is set.
    pub bound: bool,
    pub created: Time,
    pub deleting: bool,
    pub phase: Phase,
    /// Time at which the pod became Ready. `None` while the pod is not Ready.
    pub ready_since: Option<Time>,
    /// Time at which the pod lost readiness; `None` while it is Ready, and before it was Ready for the first time.
    pub not_ready_since: Option<Time>,
    /// Time of the last start of a container that runs.
    pub last_started: Option<Time>,
    /// The restart count of the container that restarted most often.
    pub restarts: u32,
    /// Whether the pod is about to be terminated by a disruption such as an eviction (condition `DisruptionTarget`).
    pub is_disrupted: bool,
    /// Why the pod does not start or why it failed, as Kubernetes names it (`CrashLoopBackOff`, `Evicted`).
    pub problem: Option<Text>,
    pub tolerations: Arc<[Toleration]>,
}

impl Pod {
    /// Whether the pod succeeded or failed, so that its node no longer runs containers for it.
    pub fn is_terminal(&self) -> bool {
        self.phase.is_terminal()
    }

    /// Whether the pod is neither being deleted nor terminal.
    pub fn is_live(&self) -> bool {
        !self.deleting && !self.is_terminal()
    }

    /// Whether the pod is being deleted and is terminal. Only a finalizer or a slow kubelet keeps such a pod, and the
    /// pod does not prevent a new pod on its node.
    pub fn is_gone(&self) -> bool {
        self.deleting && self.is_terminal()
    }

    pub fn is_ready(&self) -> bool {
        self.is_live() && self.ready_since.is_some()
    }

    pub fn hash(&self) -> Option<&Text> {
        self.labels.get(HASH_LABEL)
    }
}

/// A ControllerRevision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revision {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    /// UID of the DaemonSet that controls the revision. `None` if the revision has no controller.
    pub owner: Option<Text>,
    pub labels: Labels,
    /// The `revision` number.
    pub number: i64,
    /// The `data`: a patch that restores the template, encoded byte for byte as upstream's Go code would.
    pub data: Text,
    pub identity: Option<TemplateIdentity>,
    /// The value of the DaemonSet's template generation annotation when this revision was created.
    pub template_generation: Option<i64>,
    pub created: Time,
    pub deleting: bool,
}

impl Revision {
    /// The revision hash label of this revision and of its pods. Upstream: a revision without that label gets its name
    /// as label.
    pub fn hash(&self) -> Option<&Text> {
        self.labels.get(HASH_LABEL)
    }
}

pub use crate::daemonset::manifest::{GENERATION_LABEL, HASH_LABEL};
/// Annotation of a DaemonSet with its template generation.
pub const GENERATION_ANNOTATION: &str = ANNOTATION_TEMPLATE_GENERATION;
