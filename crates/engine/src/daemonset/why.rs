//! [`Why`]: the reasons that `muster explain`, plans, conditions and the garbage collector give.
//!
//! To find the rule behind a reason, search for the function that returns this variant of [`Why`]. The doc comment of
//! that function states the rule.

use alloc::sync::Arc;
use core::fmt;

use muster_api::taints::Taint;
use muster_api::text::Text;
use muster_api::time::Time;

/// The reason for a verdict, a write or a wait. The type is kept small, with large values behind an `Arc`, because
/// every cell (the state of one DaemonSet on one node) contains several reasons.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    // placement: why a node gets no pod
    /// The template has the `nodeName` of another node.
    NodeNameMismatch { named: Text },
    /// The node does not have a label of the node selector.
    NodeSelectorMismatch { label: Text },
    /// The node matches no term of the required node affinity.
    NodeAffinityMismatch,
    /// The node matches no term of the required node affinity, and a term cannot be parsed.
    NodeAffinityInvalid { problem: Text },
    /// The node has an untolerated `NoSchedule` taint. It gets no new pod, but a bound pod is kept.
    UntoleratedNoScheduleTaint { taint: Arc<Taint> },
    /// The node has an untolerated `NoExecute` taint. It gets no new pod, and an existing pod is deleted.
    UntoleratedNoExecuteTaint { taint: Arc<Taint> },

    // roster: one pod per node
    /// The node has no pod of the DaemonSet.
    NoPodOnNode,
    /// With surge, a pod is created because all pods of the DaemonSet on the node are terminating.
    OldPodsTerminating,
    /// The pod failed, so it is replaced. `reason` is why the pod failed, as Kubernetes names it, such as `Evicted`.
    /// `None` if that is not known.
    Failed { reason: Option<Text> },
    /// The pod succeeded, so it is replaced.
    Succeeded,
    /// The pod is deleted because the node has more pods of the DaemonSet than it needs. Pod `kept` stays.
    SurplusPod { kept: Text },
    /// The node was deleted, so its pods are deleted.
    NodeDeleted,
    /// A pod failed or succeeded on the node, and the failed-pod backoff lasts until `retry_at`.
    FailedPodBackoff { retry_at: Time },
    /// The node gets no new pod yet, because a pod of the DaemonSet on the node is still terminating.
    StillTerminating { pod: Text },
    /// With surge, the node gets no new pod yet, because two or more pods of the revision assigned to the node are
    /// still terminating there.
    TooManyTerminating { count: usize },
    /// The node gets no new pod yet, because a pod on the node is about to be replaced.
    BeingReplaced,

    // rollout: outdated pods are replaced
    /// The pod is outdated: it is replaced, or waits to be replaced.
    Outdated,
    /// The pod is outdated and not Ready, so it is replaced without regard to the rollout budget.
    OutdatedAndNotReady,
    /// With surge, the old pod is deleted because pod `new` is available.
    NewPodAvailable { new: Text },
    /// With surge, the old pod is deleted because it is not Ready and pod `new` exists.
    OldPodNotReady { new: Text },
    /// The outdated pod tolerates the node's taint, but the new template does not.
    TolerationDropped { taint: Arc<Taint> },
    /// The outdated pod is on a node with the taint `not-ready` or `unreachable`.
    NodeNotReadyOrUnreachable { taint: Arc<Taint> },
    /// The outdated pod is on a node whose Ready condition has been Unknown since before the revision that the node is
    /// assigned was created.
    NodeLost { since: Time },
    /// The outdated pod is not Ready, and its node's Ready condition has been Unknown since `since`.
    NodeUnreachable { since: Time },
    /// The outdated pod is kept, because no new pod could run on the node with this taint.
    KeptByTaint { taint: Arc<Taint> },
    /// With `OnDelete`, the outdated pod is replaced when a user deletes it.
    WaitsForUserDelete,
    /// A progressive rollout does not update the node now, so the node keeps its outdated pod.
    HeldByRollout,

    // availability
    /// The pod is not Ready, is terminating, or has failed or succeeded. `reason` is the problem of the pod, such as
    /// `CrashLoopBackOff`. `None` if no problem is known.
    NotReady { reason: Option<Text> },
    /// The pod is Ready, but has not been Ready for `minReadySeconds` yet. It is available at `until`.
    WaitsForMinReady { until: Time },
    /// The pod is available and up to date.
    UpToDate,

    // expectations and execution
    /// The watches have not delivered this number of the controller's own writes yet.
    WaitingForOwnWrites { writes: usize },
    /// The last plan had a failed call. The next plan is made at `at`.
    RetryLater { at: Time },
    /// In assist mode, upstream's controller has not recorded the template as a revision yet.
    RevisionNotRecorded,

    // garbage collector
    /// An owner of the object no longer exists. The object is deleted, or its reference to this owner is removed.
    OwnersAbsent,
    /// An owner of the object is being deleted in the foreground and waits for the object, so the object is deleted.
    OwnerDeletedInForeground,
    /// An owner of the object is being deleted and orphans its dependents, so the object's reference to this owner is
    /// removed.
    OwnerOrphansDependents,
    /// The pod is force-deleted because it is being deleted and was never bound.
    NeverBound,
    /// The pod is force-deleted because it is being deleted on a node that is out of service.
    NodeOutOfService,
    /// The pod has failed or succeeded, and is deleted because too many such pods exist. Evicted pods are deleted
    /// first, then the oldest.
    TooManyTerminatedPods,
}

/// Implements `Why::reason`. It does not compile unless all variants of [`Why`] are listed.
macro_rules! reasons {
    ($($variant:ident),+ $(,)?) => {
        impl Why {
            /// The names of all variants, in their order.
            pub const REASONS: &[&str] = &[$(stringify!($variant)),+];

            /// Returns the `reason` in the JSON of `muster explain` and `muster plan`: the name of the variant. Clients
            /// compare it, so a variant is not renamed after it was released.
            pub fn reason(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($variant),)+
                }
            }
        }
    };
}

reasons! {
    NodeNameMismatch,
    NodeSelectorMismatch,
    NodeAffinityMismatch,
    NodeAffinityInvalid,
    UntoleratedNoScheduleTaint,
    UntoleratedNoExecuteTaint,
    NoPodOnNode,
    OldPodsTerminating,
    Failed,
    Succeeded,
    SurplusPod,
    NodeDeleted,
    FailedPodBackoff,
    StillTerminating,
    TooManyTerminating,
    BeingReplaced,
    Outdated,
    OutdatedAndNotReady,
    NewPodAvailable,
    OldPodNotReady,
    TolerationDropped,
    NodeNotReadyOrUnreachable,
    NodeLost,
    NodeUnreachable,
    KeptByTaint,
    WaitsForUserDelete,
    HeldByRollout,
    NotReady,
    WaitsForMinReady,
    UpToDate,
    WaitingForOwnWrites,
    RetryLater,
    RevisionNotRecorded,
    OwnersAbsent,
    OwnerDeletedInForeground,
    OwnerOrphansDependents,
    NeverBound,
    NodeOutOfService,
    TooManyTerminatedPods,
}

impl Why {
    /// Returns a short text for the reason, without its details. Conditions and explanations count nodes by this text.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NodeNameMismatch { .. } => "nodeName does not match",
            Self::NodeSelectorMismatch { .. } => "node selector does not match",
            Self::NodeAffinityMismatch => "node affinity does not match",
            Self::NodeAffinityInvalid { .. } => "node affinity is invalid",
            Self::UntoleratedNoScheduleTaint { .. } => "untolerated NoSchedule taint",
            Self::UntoleratedNoExecuteTaint { .. } => "untolerated NoExecute taint",
            Self::NoPodOnNode => "no pod yet",
            Self::OldPodsTerminating => "old pod is terminating",
            Self::Failed { .. } => "pod failed",
            Self::Succeeded => "pod succeeded",
            Self::SurplusPod { .. } => "surplus pod",
            Self::NodeDeleted => "node was deleted",
            Self::FailedPodBackoff { .. } => "failed-pod backoff",
            Self::StillTerminating { .. } => "pod still terminating",
            Self::TooManyTerminating { .. } => "pods still terminating",
            Self::BeingReplaced => "pod is being replaced",
            Self::Outdated => "pod is outdated",
            Self::OutdatedAndNotReady => "pod is outdated and not ready",
            Self::NewPodAvailable { .. } => "new pod is available",
            Self::OldPodNotReady { .. } => "old pod is not ready",
            Self::TolerationDropped { .. } => "template no longer tolerates the node's taint",
            Self::NodeNotReadyOrUnreachable { .. } => "node is not ready or unreachable",
            Self::NodeLost { .. } => "node unreachable since before this revision",
            Self::NodeUnreachable { .. } => "node unreachable (Ready=Unknown)",
            Self::KeptByTaint { .. } => "existing pod kept despite a taint",
            Self::WaitsForUserDelete => "waiting for a user to delete the pod",
            Self::HeldByRollout => "held by the rollout",
            Self::NotReady { .. } => "pod not ready",
            Self::WaitsForMinReady { .. } => "pod ready for less than minReadySeconds",
            Self::UpToDate => "up to date",
            Self::WaitingForOwnWrites { .. } => "waiting for the watch to deliver own writes",
            Self::RetryLater { .. } => "waiting to retry a failed call",
            Self::RevisionNotRecorded => "template not recorded as a revision",
            Self::OwnersAbsent => "owner no longer exists",
            Self::OwnerDeletedInForeground => "owner is deleted in the foreground",
            Self::OwnerOrphansDependents => "owner is deleted, orphaning dependents",
            Self::NeverBound => "deleted before it was bound",
            Self::NodeOutOfService => "node is out of service",
            Self::TooManyTerminatedPods => "too many terminated pods",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeNameMismatch { named } => write!(f, "the template has nodeName {named}"),
            Self::NodeSelectorMismatch { label } => write!(f, "the node selector requires {label}"),
            Self::NodeAffinityMismatch => f.write_str("no term of the node affinity matches"),
            Self::NodeAffinityInvalid { problem } => {
                write!(f, "the node affinity is invalid: {problem}")
            }
            Self::UntoleratedNoScheduleTaint { taint } | Self::UntoleratedNoExecuteTaint { taint } => {
                write!(f, "taint {taint} is not tolerated")
            }
            Self::NoPodOnNode => f.write_str("no pod on the node"),
            Self::OldPodsTerminating => f.write_str("old pod is terminating"),
            Self::Failed { reason: Some(reason) } => write!(f, "failed: {reason}"),
            Self::Failed { reason: None } => f.write_str("failed"),
            Self::Succeeded => f.write_str("succeeded"),
            Self::SurplusPod { kept } => write!(f, "surplus pod; {kept} is kept"),
            Self::NodeDeleted => f.write_str("its node was deleted"),
            Self::FailedPodBackoff { retry_at } => write!(f, "failed-pod backoff until {retry_at:?}"),
            Self::StillTerminating { pod } => write!(f, "{pod} is still terminating"),
            Self::TooManyTerminating { count } => write!(f, "{count} pods are still terminating"),
            Self::BeingReplaced => f.write_str("its pod is being replaced"),
            Self::Outdated => f.write_str("outdated"),
            Self::OutdatedAndNotReady => f.write_str("outdated and not ready"),
            Self::NewPodAvailable { new } => write!(f, "new pod {new} is available"),
            Self::OldPodNotReady { new } => write!(f, "old pod not ready; replaced by {new}"),
            Self::TolerationDropped { taint } => write!(f, "the template no longer tolerates taint {taint}"),
            Self::NodeNotReadyOrUnreachable { taint } => {
                write!(f, "outdated on a node with taint {taint}")
            }
            Self::NodeLost { since } => {
                write!(f, "node unreachable (Ready=Unknown) since {since:?}, before this revision")
            }
            Self::NodeUnreachable { since } => {
                write!(
                    f,
                    "node unreachable (Ready=Unknown) since {since:?}, updated after its next heartbeat"
                )
            }
            Self::KeptByTaint { taint } => write!(f, "existing pod kept; taint {taint} prevents a new one"),
            Self::WaitsForUserDelete => f.write_str("outdated, replaced when a user deletes it"),
            Self::HeldByRollout => f.write_str("held: the rollout has not admitted this node"),
            Self::NotReady { reason: Some(reason) } => write!(f, "not ready: {reason}"),
            Self::NotReady { reason: None } => f.write_str("not ready"),
            Self::WaitsForMinReady { until } => write!(f, "ready, available at {until:?}"),
            Self::UpToDate => f.write_str("up to date"),
            Self::WaitingForOwnWrites { writes } => {
                let noun = if *writes == 1 { "write" } else { "writes" };
                write!(f, "waiting for the watch to deliver {writes} {noun}")
            }
            Self::RetryLater { at } => write!(f, "a call failed; next attempt at {at:?}"),
            Self::RevisionNotRecorded => {
                f.write_str("kube-controller-manager has not recorded the template as a revision yet")
            }
            Self::OwnersAbsent => f.write_str("its owners no longer exist"),
            Self::OwnerDeletedInForeground => f.write_str("owner is deleted in the foreground"),
            Self::OwnerOrphansDependents => f.write_str("owner is deleted, orphaning dependents"),
            Self::NeverBound => f.write_str("deleted before it was bound"),
            Self::NodeOutOfService => f.write_str("deleted on a node that is out of service"),
            Self::TooManyTerminatedPods => f.write_str("terminated, and too many terminated pods exist"),
        }
    }
}

const _: () = assert!(size_of::<Why>() <= 24);

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    /// Clients compare the names: a variant that is renamed fails here until it is renamed in the documentation.
    #[test]
    fn reasons_of_nodes_are_documented() {
        const DOCS: &str = include_str!("../../../../docs/explain.md");
        let of_nodes =
            Why::REASONS.iter().take_while(|it| **it != Why::WaitingForOwnWrites { writes: 0 }.reason());
        for reason in of_nodes {
            assert!(DOCS.contains(&format!("| `{reason}` |")), "docs/explain.md does not have {reason}");
        }
    }
}
