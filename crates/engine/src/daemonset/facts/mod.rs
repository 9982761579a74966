//! API objects, parsed once into small values: the only way in.
//!
//! What is malformed is settled here, once: a fact either has a usable value, or it says in a
//! [`Fault`] what was wrong and what was taken instead. Rules never parse.

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

pub use muster_api::core_v1::{ConditionStatus as Truth, PodPhase as Phase};

pub use decode::{Fact, deleted, fact, node, pod, revision, set, watched};
pub use selector::Selector;

use crate::controller::Watch;
use crate::daemonset::template_equivalence::Meaning;

/// The four kinds the DaemonSet rules read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    Sets,
    Nodes,
    Pods,
    Revisions,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Sets, Self::Nodes, Self::Pods, Self::Revisions];

    /// The index of the kind in [`Kind::ALL`] and among the watches of the controller.
    pub fn index(self) -> usize {
        self as usize
    }

    /// What the controller lists and watches.
    pub fn watch(self) -> Watch {
        let kind = match self {
            Self::Sets => "DaemonSet",
            Self::Nodes => "Node",
            Self::Pods => "Pod",
            Self::Revisions => "ControllerRevision",
        };
        Watch::whole(self.group(), "v1", kind, self.plural(), self != Self::Nodes)
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
    pub rollout: Rollout,
    pub min_ready: Duration,
    pub history_max: usize,
    pub template: Template,
    /// `deprecated.daemonset.template.generation`, which pods of old clusters are labelled with.
    pub template_generation: Option<i64>,
    pub status: Status,
    /// The object's metadata as it came: a status write must send it back whole.
    pub metadata: Text,
    /// Its annotations as JSON text: a revision carries them, `kubectl rollout history` reads them there.
    pub annotations: Text,
    /// What is wrong with the object, and what was taken instead.
    pub faults: Vec<Fault>,
}

/// The part of the pod template that rules read, and the whole of it as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    /// JSON as it came, so that fields we do not know survive.
    pub raw: Text,
    /// Go-exact bytes of the revision that records this template.
    pub data: Text,
    pub meaning: Meaning,
    pub labels: Labels,
    pub node_name: Option<Text>,
    pub node_selector: Labels,
    pub affinity: Affinity,
    /// The template's own, then the automatic ones: what a created pod will carry.
    pub tolerations: Arc<[Toleration]>,
}

/// Required node affinity.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Affinity {
    /// None asked for.
    #[default]
    Anywhere,
    /// One term must hold; an empty list holds nowhere.
    AnyOf(Vec<Term>),
}

/// All requirements of a term must hold; a term without any holds nowhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Term {
    AllOf(Vec<NodeRequirement>),
    /// A term that cannot be read holds nowhere, and says so.
    Unreadable(Text),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeRequirement {
    Label(LabelRequirement),
    NameIs(Text),
    NameIsNot(Text),
}

/// How old pods give way to new ones. Upstream validates that exactly one of the two counts is set;
/// here both cannot be spelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rollout {
    OnDelete,
    /// The old pod goes first; at most this many nodes are without.
    Drain(Share),
    /// The new pod comes first; at most this many nodes have two.
    Surge(Share),
}

/// A number of nodes, or a percentage of them, rounded up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    Count(u32),
    Percent(u32),
}

impl Share {
    /// Rule: a percentage is of the eligible nodes, rounded up.
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

/// What a field said that could not be used.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Fault {
    pub field: &'static str,
    pub problem: String,
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

/// A DaemonSet's status: what was last written.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Status {
    pub observed_generation: i64,
    pub counts: Counts,
    pub collisions: Option<i32>,
    /// Our own conditions only; those of others stay in `raw`.
    pub conditions: Vec<Condition>,
    /// The status as it came, so that what others wrote survives.
    pub raw: Option<Text>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    pub desired: i64,
    pub current: i64,
    pub ready: i64,
    pub updated: i64,
    pub available: i64,
    pub unavailable: i64,
    pub misscheduled: i64,
}

/// The three conditions that are ours.
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

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    pub kind: ConditionType,
    pub status: Truth,
    pub reason: Text,
    pub message: Text,
    pub since: Option<Time>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub name: Text,
    pub uid: Text,
    pub resource_version: u64,
    pub labels: Labels,
    pub taints: Arc<[Taint]>,
    pub ready: Ready,
}

impl Node {
    /// Whether a rule could tell the two apart: a heartbeat changes neither.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.labels == other.labels
            && self.taints == other.taints
            && self.ready == other.ready
    }
}

/// A node's Ready condition and since when it is so; a node that never reported has neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    pub status: Truth,
    pub since: Option<Time>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    pub key: ObjectKey,
    pub uid: Text,
    pub resource_version: u64,
    /// UID of the controlling DaemonSet; `None` for an orphan. Pods of other controllers are not kept.
    pub owner: Option<Text>,
    pub labels: Labels,
    /// From `spec.nodeName`, else from the one `metadata.name` of the required affinity.
    pub target: Option<Text>,
    pub bound: bool,
    pub created: Time,
    pub deleting: bool,
    pub phase: Phase,
    /// Since when it has been Ready; `None` while it is not.
    pub ready_since: Option<Time>,
    /// Why it does not start or failed, in Kubernetes' own word (`CrashLoopBackOff`, `Evicted`).
    pub trouble: Option<Text>,
    pub tolerations: Arc<[Toleration]>,
}

impl Pod {
    /// Its work is over: the node holds nothing for it any more.
    pub fn terminal(&self) -> bool {
        self.phase.is_terminal()
    }

    /// Neither on its way out nor finished.
    pub fn live(&self) -> bool {
        !self.deleting && !self.terminal()
    }

    /// Deleted and finished: only a finalizer or a slow kubelet keeps the object. It blocks nothing.
    pub fn gone(&self) -> bool {
        self.deleting && self.terminal()
    }

    pub fn ready(&self) -> bool {
        self.live() && self.ready_since.is_some()
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
    pub owner: Option<Text>,
    pub labels: Labels,
    pub number: i64,
    /// Go-exact bytes of the recorded patch.
    pub data: Text,
    pub meaning: Option<Meaning>,
    /// The template generation that the set was annotated with when this was made.
    pub template_generation: Option<i64>,
    pub created: Time,
    pub deleting: bool,
}

impl Revision {
    /// The label pods of this revision carry. Upstream: a revision without one is given its name.
    pub fn hash(&self) -> Option<&Text> {
        self.labels.get(HASH_LABEL)
    }
}

pub use crate::daemonset::manifest::{GENERATION_LABEL, HASH_LABEL};
pub const GENERATION_ANNOTATION: &str = ANNOTATION_TEMPLATE_GENERATION;
