//! The plan of one DaemonSet: all writes to make now, as a value. The module `execution` decides only about batches,
//! about reads before writes, and about errors.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use muster_api::muster_v1alpha1::daemon_rollout::StatusCondition;
use muster_api::text::Text;
use muster_api::time::Time;

use crate::controller::{KubeEvent, Measurement};
use crate::daemonset::facts::{Condition, Pod, Revision, Set, Status};
use crate::daemonset::manifest::Binding;
use crate::daemonset::progressive::record::{RolloutRecord, RolloutStatus};
use crate::daemonset::progressive::verdict::RevisionVerdict;
pub use crate::daemonset::revision::RevisionWrite;
use crate::daemonset::why::Why;

/// Settings of the DaemonSet controller's rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Maximum number of pod creates in one plan. It is also the maximum number of pod deletes and evictions together.
    pub burst: usize,
    /// Whether to write conditions to the status of DaemonSets.
    pub conditions: bool,
    /// Whether the scheduler or the controller itself binds new pods.
    pub binding: Binding,
    /// Whether the controller runs beside upstream's DaemonSet controller (assist mode). It then only deletes or evicts
    /// outdated pods, and only those of DaemonSets that a policy selects or that have a DaemonRollout.
    pub assist: bool,
}

/// Default of [`Settings::burst`]. With it, creating pods on 5,000 nodes takes at least 20 plans.
/// Upstream: `BurstReplicas`.
const BURST_DEFAULT: usize = 250;

impl Default for Settings {
    fn default() -> Self {
        Self { burst: BURST_DEFAULT, conditions: true, binding: Binding::Scheduler, assist: false }
    }
}

/// What the controller does for one DaemonSet now: the writes, which are executed in the order of the fields, the
/// measurements, the events, and when to reconcile again.
#[must_use = "a plan does nothing until it is executed"]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The DaemonSet that the plan was made for.
    pub set: Arc<Set>,
    /// Whether to list the pods from the API server first, because it is unknown whether an earlier write was applied.
    pub confirm: bool,
    /// Pods and ControllerRevisions to adopt or to release.
    pub claims: Vec<Claim>,
    /// Creates and patches of ControllerRevisions. They are executed before pods are created or deleted.
    pub steps: Vec<RevisionWrite>,
    /// The write of the DaemonRollout. `None` if the DaemonSet has no progressive rollout, or if nothing is to be
    /// written now.
    pub rollout: Option<RolloutWrite>,
    /// Pods whose revision hash label changes, each with the new value.
    pub relabel: Vec<(Arc<Pod>, Text)>,
    /// Pods to delete, with the reasons.
    pub delete: Vec<(Arc<Pod>, Why)>,
    /// Pods to remove by an eviction, which a PodDisruptionBudget may refuse, with the reasons.
    pub evict: Vec<(Arc<Pod>, Why)>,
    /// Nodes on which to create a pod of the current revision, with the reasons.
    pub create: Vec<(Text, Why)>,
    /// Nodes on which to create a pod of the stable revision, with the reasons.
    pub create_stable: Vec<(Text, Why)>,
    /// The revision hash label of pods of the current revision. Empty if the plan makes no decision about pods.
    pub hash: Text,
    /// Template and labels of the pods of the stable revision. `None` if `create_stable` is empty.
    pub stable: Option<Arc<PodSource>>,
    /// ControllerRevisions to delete, because they are no longer needed.
    pub prune: Vec<Arc<Revision>>,
    /// The status of the DaemonSet to write. `None` if no status is to be written now.
    pub status: Option<Status>,
    /// Measurements to start for the checks of the progressive rollout. The execution of the plan does not wait for
    /// them.
    pub measurements: Vec<Arc<Measurement>>,
    /// The conditions to write by server-side apply in assist mode. A condition that was applied before and is not in
    /// this list is removed. `None` if nothing is to be written now.
    pub conditions: Option<Vec<Condition>>,
    /// Kubernetes Events to record about the DaemonSet.
    pub events: Vec<KubeEvent>,
    /// Why the plan waits instead of making the needed writes. `None` if it does not wait.
    pub waiting: Option<Why>,
    /// Whether to list every kind again, because the controller has waited too long for the watches to deliver its own
    /// writes.
    pub relist: bool,
    /// The time at which to reconcile the DaemonSet again even without an event. `None` if there is no such time.
    pub wake_at: Option<Time>,
}

impl Plan {
    /// Creates a plan that does nothing.
    pub fn idle(set: Arc<Set>) -> Self {
        Self {
            set,
            confirm: false,
            claims: Vec::new(),
            steps: Vec::new(),
            rollout: None,
            relabel: Vec::new(),
            delete: Vec::new(),
            evict: Vec::new(),
            create: Vec::new(),
            create_stable: Vec::new(),
            hash: Text::from(""),
            stable: None,
            prune: Vec::new(),
            status: None,
            measurements: Vec::new(),
            conditions: None,
            events: Vec::new(),
            waiting: None,
            relist: false,
            wake_at: None,
        }
    }

    /// Whether the plan has no call to make and no event to record. Measurements are not considered.
    pub fn is_idle(&self) -> bool {
        !self.confirm
            && self.claims.is_empty()
            && self.steps.is_empty()
            && self.rollout.is_none()
            && self.relabel.is_empty()
            && self.delete.is_empty()
            && self.evict.is_empty()
            && self.create.is_empty()
            && self.create_stable.is_empty()
            && self.prune.is_empty()
            && self.status.is_none()
            && self.conditions.is_none()
            && self.events.is_empty()
    }
}

/// The template, hash label and template generation from which pods of an older revision are created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodSource {
    /// The revision hash label of the pods.
    pub hash: Text,
    /// The pod template of the older revision, as JSON.
    pub template: Text,
    /// Value of the template generation label of the pods. `None` if the pods do not get this label.
    pub generation: Option<i64>,
}

/// A write of the DaemonRollout of a DaemonSet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RolloutWrite {
    /// Create the DaemonRollout of the DaemonSet.
    Create,
    /// Write `status` and `conditions` to the DaemonRollout. Both were computed from its version `record`.
    PutStatus { record: Arc<RolloutRecord>, status: Arc<RolloutStatus>, conditions: Vec<StatusCondition> },
}

/// A write that makes the DaemonSet the controller of an object (adopt), or ends its control (release).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claim {
    AdoptPod(Arc<Pod>),
    ReleasePod(Arc<Pod>),
    AdoptRevision(Arc<Revision>),
    ReleaseRevision(Arc<Revision>),
}

impl Claim {
    /// Whether the claim adopts an object. Otherwise it releases one.
    pub fn is_adoption(&self) -> bool {
        matches!(self, Self::AdoptPod(_) | Self::AdoptRevision(_))
    }
}

/// Formats a plan with one line for the list of pods (`confirm`), one line for each write, one line for each event, and
/// one line for the reason to wait, if there is one. Exceptions: the write of the DaemonSet's status has no line, and
/// the write of its conditions has one line for each condition.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.confirm {
            writeln!(f, "list the pods")?;
        }
        for claim in &self.claims {
            match claim {
                Claim::AdoptPod(it) => writeln!(f, "adopt pod {}", it.key.name)?,
                Claim::ReleasePod(it) => writeln!(f, "release pod {}", it.key.name)?,
                Claim::AdoptRevision(it) => writeln!(f, "adopt revision {}", it.key.name)?,
                Claim::ReleaseRevision(it) => writeln!(f, "release revision {}", it.key.name)?,
            }
        }
        for step in &self.steps {
            match step {
                RevisionWrite::Create { name, number, .. } => {
                    writeln!(f, "create revision {name} number {number}")?
                }
                RevisionWrite::Renumber { revision, number } => {
                    writeln!(f, "renumber {} to {number}", revision.key.name)?
                }
                RevisionWrite::Label { revision } => writeln!(f, "label revision {}", revision.key.name)?,
                RevisionWrite::StoreVerdict { revision, verdict, reason, .. } => {
                    let verdict = verdict.map_or("none", RevisionVerdict::as_str);
                    writeln!(f, "set verdict of revision {}: {verdict}, {reason}", revision.key.name)?
                }
            }
        }
        match &self.rollout {
            None => {}
            Some(RolloutWrite::Create) => writeln!(f, "create rollout {}", self.set.key.name)?,
            Some(RolloutWrite::PutStatus { status, .. }) => writeln!(f, "rollout {status}")?,
        }
        for (pod, hash) in &self.relabel {
            writeln!(f, "relabel {} to {hash}", pod.key.name)?;
        }
        for (pod, why) in &self.delete {
            let node = pod.target.as_deref().unwrap_or("-");
            writeln!(f, "{node}  delete {}  {why}", pod.key.name)?;
        }
        for (pod, why) in &self.evict {
            let node = pod.target.as_deref().unwrap_or("-");
            writeln!(f, "{node}  evict {}  {why}", pod.key.name)?;
        }
        for (node, why) in &self.create {
            writeln!(f, "{node}  create  {why}")?;
        }
        for (node, why) in &self.create_stable {
            writeln!(f, "{node}  create stable  {why}")?;
        }
        for revision in &self.prune {
            writeln!(f, "delete revision {}", revision.key.name)?;
        }
        for condition in self.conditions.iter().flatten() {
            let (kind, status) = (condition.kind.as_str(), condition.status.as_str());
            writeln!(f, "apply condition {kind}={status} {}", condition.reason)?;
        }
        for event in &self.events {
            writeln!(f, "event {}: {}", event.reason, event.message)?;
        }
        if let Some(why) = &self.waiting {
            writeln!(f, "wait  {why}")?;
        }
        Ok(())
    }
}
