//! Facts: the fields of API objects that the controller's rules read, decoded once. Rules read facts, never JSON.
//!
//! Invalid fields of a DaemonSet are handled when the object is decoded: the decoded field has a default, and for most
//! fields an [`InvalidField`] describes the problem.

/// Decodes the JSON of API objects into facts.
pub(crate) mod decode;
/// Reads from a pod's status why the pod does not start, why it failed, or why it is not Ready.
mod pod_problem;
/// The pod selector of a DaemonSet.
mod selector;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use muster_api::labels::{LabelRequirement, Labels};
use muster_api::muster_v1alpha1::{self, CLUSTER_ROLLOUT_POLICY, DAEMON_ROLLOUT, ROLLOUT_POLICY};
use muster_api::object_key::ObjectKey;
use muster_api::taints::{Taint, Toleration};
use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::ANNOTATION_TEMPLATE_GENERATION;

pub use muster_api::core_v1::{ConditionStatus, PodPhase as Phase};

pub use decode::{
    WatchedObject, decode_deleted, decode_node, decode_object, decode_pod, decode_revision, decode_set,
    decode_watch_event,
};
pub(crate) use pod_problem::PodProblem;
pub use selector::Selector;

use crate::controller::Watch;
use crate::daemonset::progressive::verdict::RevisionVerdict;
use crate::daemonset::template_equivalence::TemplateIdentity;

/// The kinds that the DaemonSet controller watches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// The kind DaemonSet.
    Sets,
    Nodes,
    Pods,
    /// The kind ControllerRevision.
    Revisions,
    /// The kind RolloutPolicy.
    Policies,
    /// The kind ClusterRolloutPolicy.
    ClusterPolicies,
    /// The kind DaemonRollout.
    Rollouts,
    /// The kind Namespace. ClusterRolloutPolicies select Namespaces by their labels.
    Namespaces,
}

impl Kind {
    /// All kinds, in the order of their [`Kind::index`].
    pub const ALL: [Self; 8] = [
        Self::Sets,
        Self::Nodes,
        Self::Pods,
        Self::Revisions,
        Self::Policies,
        Self::ClusterPolicies,
        Self::Rollouts,
        Self::Namespaces,
    ];

    /// The kinds without which the controller cannot make plans.
    pub const REQUIRED: [Self; 4] = [Self::Sets, Self::Nodes, Self::Pods, Self::Revisions];

    /// The kinds that only progressive rollouts need. The controller also makes plans if the API server does not serve
    /// them, or forbids the controller to read them.
    pub const OPTIONAL: [Self; 4] = [Self::Policies, Self::ClusterPolicies, Self::Rollouts, Self::Namespaces];

    /// Returns the index of the kind in [`Kind::ALL`] and in
    /// [`Controller::watches`](crate::controller::Controller::watches).
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the resource to list and watch for this kind.
    pub fn watch(self) -> Watch {
        let is_namespaced = !matches!(self, Self::Nodes | Self::ClusterPolicies | Self::Namespaces);
        let (group, version, kind, plural) = (self.group(), self.version(), self.name(), self.plural());
        let watch = match self {
            Self::Namespaces => Watch::metadata(group, version, kind, plural, is_namespaced),
            _ => Watch::whole_objects(group, version, kind, plural, is_namespaced),
        };
        Watch { is_optional: Self::OPTIONAL.contains(&self), ..watch }
    }

    /// Returns the name of the kind, such as `DaemonSet`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sets => "DaemonSet",
            Self::Nodes => "Node",
            Self::Pods => "Pod",
            Self::Revisions => "ControllerRevision",
            Self::Policies => "RolloutPolicy",
            Self::ClusterPolicies => "ClusterRolloutPolicy",
            Self::Rollouts => "DaemonRollout",
            Self::Namespaces => "Namespace",
        }
    }

    /// Returns the kind whose resource has this plural name, such as `pods`. `None` if the controller does not watch
    /// that resource.
    pub(crate) fn from_plural(plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.plural() == plural)
    }

    /// Returns the API group. The core group is the empty string.
    pub fn group(self) -> &'static str {
        match self {
            Self::Sets | Self::Revisions => "apps",
            Self::Nodes | Self::Pods | Self::Namespaces => "",
            Self::Policies | Self::ClusterPolicies | Self::Rollouts => muster_v1alpha1::GROUP,
        }
    }

    /// Returns the version of the API group.
    fn version(self) -> &'static str {
        match self {
            Self::Policies | Self::ClusterPolicies | Self::Rollouts => muster_v1alpha1::VERSION,
            _ => "v1",
        }
    }

    /// Returns the name of the resource in URL paths and RBAC rules, such as `daemonsets`.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Sets => "daemonsets",
            Self::Nodes => "nodes",
            Self::Pods => "pods",
            Self::Revisions => "controllerrevisions",
            Self::Policies => ROLLOUT_POLICY.plural,
            Self::ClusterPolicies => CLUSTER_ROLLOUT_POLICY.plural,
            Self::Rollouts => DAEMON_ROLLOUT.plural,
            Self::Namespaces => "namespaces",
        }
    }
}

/// The fields of a DaemonSet that rules read, and the JSON that writes copy or send back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    pub generation: i64,
    /// The `creationTimestamp` of the DaemonSet.
    pub created: Time,
    /// Whether the DaemonSet has a `deletionTimestamp`.
    pub deleting: bool,
    pub labels: Labels,
    pub selector: Selector,
    /// The `updateStrategy` of the DaemonSet.
    pub rollout: UpdateStrategy,
    /// The `rollingUpdate.maxUnavailable` of a DaemonSet with the strategy `OnDelete`. Only a progressive rollout uses
    /// it. `None` if the field is absent or invalid, or if the strategy is not `OnDelete`.
    pub on_delete_limit: Option<IntOrPercent>,
    /// The `minReadySeconds` of the DaemonSet, as a duration.
    pub min_ready: Duration,
    /// The `revisionHistoryLimit` of the DaemonSet.
    pub history_max: usize,
    pub template: Template,
    /// The value of the annotation `deprecated.daemonset.template.generation`, which new pods get as a label. `None` if
    /// the annotation is absent or not a number.
    pub template_generation: Option<i64>,
    pub status: Status,
    /// The object's metadata as received (JSON). A status write must send all of it.
    pub metadata: Text,
    /// The DaemonSet's annotations (JSON), copied to revisions for `kubectl rollout history`.
    pub annotations: Text,
    /// Invalid fields of the object, each with a message about the problem and its consequence.
    pub faults: Vec<InvalidField>,
}

/// A pod template: the fields that rules read, the whole template as JSON, and values that are computed from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    /// The template as JSON, including fields that this controller does not know: as received in the DaemonSet or, for
    /// an older revision, as stored in the `data` of its ControllerRevision.
    pub raw: Text,
    /// The `data` of the ControllerRevision for this template, encoded byte for byte as upstream's Go code would encode
    /// it.
    pub data: Text,
    /// Hash of the normalized template. Equivalent templates have the same hash.
    pub identity: TemplateIdentity,
    pub labels: Labels,
    pub node_name: Option<Text>,
    pub node_selector: Labels,
    pub affinity: RequiredNodeAffinity,
    /// The tolerations of the template, followed by those that the controller adds to the pods of this template:
    /// [`automatic_tolerations`](crate::daemonset::manifest::automatic_tolerations).
    pub tolerations: Arc<[Toleration]>,
}

/// The required node affinity of a pod template.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum RequiredNodeAffinity {
    /// The template has no required node affinity.
    #[default]
    Anywhere,
    /// The node must match one of the terms. An empty list matches no node.
    AnyOf(Vec<Term>),
}

/// A node selector term. A node matches the term if the term has at least one requirement and the node meets all of
/// them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Term {
    /// The node must meet all of these requirements. Exception: an empty list matches no node.
    AllOf(Vec<NodeRequirement>),
    /// A term that cannot be parsed, with the parse error. It matches no node.
    Unreadable(Text),
}

/// A requirement of a node selector term on the labels or on the name of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeRequirement {
    /// The requirement of a `matchExpressions` entry, on a label of the node.
    Label(LabelRequirement),
    /// The node must have this name (`matchFields`, operator `In`).
    NameIs(Text),
    /// The node must not have this name (`matchFields`, operator `NotIn`).
    NameIsNot(Text),
}

/// The update strategy of a DaemonSet. For a rolling update, upstream validates that exactly one of `maxUnavailable`
/// and `maxSurge` is non-zero, so the type holds only that one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpdateStrategy {
    /// The controller deletes no pod for an update. An outdated pod is replaced after a user deletes it.
    OnDelete,
    /// The old pod is deleted before the new one is created. The value is `maxUnavailable`.
    Drain(IntOrPercent),
    /// The new pod is created before the old one is deleted. The value is `maxSurge`.
    Surge(IntOrPercent),
}

/// A number or percentage of nodes, such as the value of `maxUnavailable` or `maxSurge`. Upstream: `IntOrString`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IntOrPercent {
    /// A number of nodes.
    Count(u32),
    /// A percentage of nodes, such as 25 for `25%`.
    Percent(u32),
}

impl IntOrPercent {
    /// Returns the value as a number of nodes. `desired` is the number of eligible nodes, to which a percentage refers.
    ///
    /// Rule: a percentage in `maxUnavailable` or `maxSurge` refers to the eligible nodes and is rounded up.
    pub fn scaled_value(self, desired: usize) -> usize {
        match self {
            Self::Count(count) => count as usize,
            Self::Percent(percent) => desired.saturating_mul(percent as usize).div_ceil(100),
        }
    }

    /// Whether the value is 0 or 0 %.
    pub fn is_zero(self) -> bool {
        matches!(self, Self::Count(0) | Self::Percent(0))
    }
}

/// An invalid field of a DaemonSet: its path, and the problem with its value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct InvalidField {
    /// Path of the field, such as `spec.minReadySeconds`.
    pub field: &'static str,
    /// Message that says why the value is invalid, and what follows from that, such as the value that is used instead.
    pub problem: String,
}

impl core::fmt::Display for InvalidField {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

/// The status of a DaemonSet, stored or to be written.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Status {
    pub observed_generation: i64,
    pub counts: StatusCounts,
    /// The `collisionCount` of the status. `None` if it is absent.
    pub collisions: Option<i32>,
    /// The conditions that this controller writes. Conditions of other writers are only in `raw`.
    pub conditions: Vec<Condition>,
    /// The stored status as received (JSON), so that fields of other writers are kept. `None` if the object has no
    /// status.
    pub raw: Option<Text>,
}

/// The counts of nodes in the status of a DaemonSet (`desiredNumberScheduled`, `numberReady` …).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StatusCounts {
    /// `desiredNumberScheduled`: eligible nodes, which should run a pod of the DaemonSet.
    pub desired: i64,
    /// `currentNumberScheduled`: eligible nodes with a pod.
    pub current: i64,
    /// `numberReady`: eligible nodes with a Ready pod.
    pub ready: i64,
    /// `updatedNumberScheduled`: eligible nodes with an up-to-date pod.
    pub updated: i64,
    /// `numberAvailable`: eligible nodes with an available pod.
    pub available: i64,
    /// `numberUnavailable`: eligible nodes without an available pod.
    pub unavailable: i64,
    /// `numberMisscheduled`: nodes that have a pod and are not eligible.
    pub misscheduled: i64,
}

/// The types of the conditions that this controller writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ConditionType {
    Available,
    Progressing,
    Degraded,
    /// A progressive rollout is in progress or waits, that is, its phase is not `Complete`, `Stopped` or `RolledBack`,
    /// and it is not frozen. As in kstatus, the condition is present only while it is true.
    Reconciling,
    /// A progressive rollout has ended without success (phase `Stopped` or `RolledBack`), or is frozen. As in kstatus,
    /// the condition is present only while it is true.
    Stalled,
}

impl ConditionType {
    /// All condition types that this controller writes.
    pub const ALL: [Self; 5] =
        [Self::Available, Self::Progressing, Self::Degraded, Self::Reconciling, Self::Stalled];

    /// The types of the conditions that a new DaemonSet gets first, with the status Unknown. Later these conditions are
    /// kept whether they are true or not. In assist mode, `Available` is not written.
    pub const INITIAL_CONDITIONS: [Self; 3] = [Self::Available, Self::Progressing, Self::Degraded];

    /// Returns the `type` of the condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Available => "Available",
            Self::Progressing => "Progressing",
            Self::Degraded => "Degraded",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
        }
    }

    /// Parses the `type` of a condition. `None` if this controller does not write conditions of that type.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }
}

/// A condition in the status of a DaemonSet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The `type` of the condition.
    pub kind: ConditionType,
    pub status: ConditionStatus,
    pub reason: Text,
    pub message: Text,
    /// The `lastTransitionTime` of the condition. `None` if it is missing or invalid.
    pub since: Option<Time>,
}

/// The fields of a Node that rules read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub name: Text,
    pub uid: Text,
    pub resource_version: u64,
    /// The `creationTimestamp` of the Node.
    pub created: Time,
    pub labels: Labels,
    pub taints: Arc<[Taint]>,
    /// The `Ready` condition of the Node.
    pub ready: ReadyCondition,
}

impl Node {
    /// Whether two versions of a node with the same name are equal in all fields that rules read. A heartbeat changes
    /// none of these fields.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.labels == other.labels
            && self.taints == other.taints
            && self.ready == other.ready
    }
}

/// The `Ready` condition of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadyCondition {
    /// Status of the `Ready` condition. `Unknown` if the node has no `Ready` condition.
    pub status: ConditionStatus,
    /// The `lastTransitionTime`. `None` if the node has no `Ready` condition, or if the time is missing or invalid.
    pub since: Option<Time>,
}

/// The fields of a pod that rules read. The controller of the pod is a DaemonSet, or the pod has no controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    /// UID of the DaemonSet that controls the pod. `None` if the pod has no controller.
    pub owner: Option<Text>,
    pub labels: Labels,
    /// Name of the pod's node: `spec.nodeName`, or else the node that the required node affinity names by
    /// `metadata.name`. `None` if the pod has neither.
    pub target: Option<Text>,
    /// Whether the pod is bound: its `spec.nodeName` is set.
    pub bound: bool,
    /// The `creationTimestamp` of the pod.
    pub created: Time,
    /// Whether the pod has a `deletionTimestamp`.
    pub deleting: bool,
    pub phase: Phase,
    /// Time at which the pod became Ready, or its creation time if the time in the `Ready` condition cannot be parsed.
    /// `None` if the pod has no `Ready` condition, or if the condition is not true.
    pub ready_since: Option<Time>,
    /// Transition time of a `Ready` condition that is not true, usually the time at which the pod lost readiness.
    /// `None` if the condition is true or absent, or if its time is missing or not after the creation of the pod.
    pub not_ready_since: Option<Time>,
    /// Start time of the running container that was started last. `None` if no container runs.
    pub last_started: Option<Time>,
    /// The highest restart count of the pod's containers.
    pub restarts: u32,
    /// Whether the pod is about to be terminated by a disruption such as an eviction (condition `DisruptionTarget`).
    pub is_disrupted: bool,
    /// Why the pod does not start or why it failed, as Kubernetes names it, such as `CrashLoopBackOff` or `Evicted`.
    /// `None` if the pod has no such problem.
    pub problem: Option<Text>,
    pub tolerations: Arc<[Toleration]>,
}

impl Pod {
    /// Whether the pod succeeded or failed, so that its node no longer runs its containers.
    pub fn is_terminal(&self) -> bool {
        self.phase.is_terminal()
    }

    /// Whether the pod has no `deletionTimestamp`, and has neither succeeded nor failed.
    pub fn is_live(&self) -> bool {
        !self.deleting && !self.is_terminal()
    }

    /// Whether the pod succeeded or failed, and has a `deletionTimestamp`. Such a pod exists only until its finalizers
    /// are removed or the kubelet deletes it. It does not prevent a new pod on its node.
    pub fn is_terminal_and_deleting(&self) -> bool {
        self.deleting && self.is_terminal()
    }

    /// Whether the pod is live and its `Ready` condition is true.
    pub fn is_ready(&self) -> bool {
        self.is_live() && self.ready_since.is_some()
    }

    /// Returns the value of the revision hash label. `None` if the pod has no such label.
    pub fn hash_label(&self) -> Option<&Text> {
        self.labels.get(REVISION_HASH_LABEL)
    }
}

/// The fields of a ControllerRevision that rules read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revision {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    /// UID of the DaemonSet that controls the revision. `None` if the revision has no controller.
    pub owner: Option<Text>,
    pub labels: Labels,
    /// The `revision` number of the ControllerRevision.
    pub number: i64,
    /// The `data`, normally a patch that restores the template, encoded byte for byte as upstream's Go code would
    /// encode it.
    pub data: Text,
    /// Hash of the normalized template. `None` if `data` is not a patch that replaces the whole template.
    pub identity: Option<TemplateIdentity>,
    /// The value of the DaemonSet's template generation annotation when this revision was created. `None` if the
    /// revision has no such annotation, or if the value is not a number.
    pub template_generation: Option<i64>,
    /// The `creationTimestamp` of the ControllerRevision.
    pub created: Time,
    /// Whether the revision has a `deletionTimestamp`.
    pub deleting: bool,
    /// The verdict of a progressive rollout about the revision. `None` if the revision has no verdict or an unknown
    /// one.
    pub verdict: Option<Arc<StoredVerdict>>,
}

/// The verdict about a revision, as the annotations of its ControllerRevision store it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredVerdict {
    pub verdict: RevisionVerdict,
    /// Time of the verdict. The zero time if it is missing or invalid.
    pub at: Time,
    /// Why the revision got the verdict, as one CamelCase word. Empty if it is missing.
    pub reason: Text,
}

/// The fields of a Namespace that rules read. ClusterRolloutPolicies select Namespaces by their labels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespaceLabels {
    pub name: Text,
    pub resource_version: u64,
    pub labels: Labels,
}

impl Revision {
    /// Returns the value of the revision hash label, which the pods of this revision have too. `None` if the revision
    /// has no such label. Upstream: `constructHistory` sets a missing label to the name of the revision.
    pub fn hash_label(&self) -> Option<&Text> {
        self.labels.get(REVISION_HASH_LABEL)
    }
}

pub use crate::daemonset::manifest::{REVISION_HASH_LABEL, TEMPLATE_GENERATION_LABEL};
/// Key of the annotation that stores the template generation of a DaemonSet.
pub const TEMPLATE_GENERATION_ANNOTATION: &str = ANNOTATION_TEMPLATE_GENERATION;
