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
    FailedRecently { retry_at: Time },
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
    NewPodIsAvailable { new: Text },
    /// With surge, the old pod is deleted because it is not Ready and pod `new` exists.
    NewPodBesideNotReadyOld { new: Text },
    /// The outdated pod tolerates the node's taint, but the new template does not.
    TolerationDropped { taint: Arc<Taint> },
    /// The outdated pod is on a node with the taint `not-ready` or `unreachable`.
    NodeNotReadyOrUnreachable { taint: Arc<Taint> },
    /// The outdated pod is on a node whose Ready condition has been Unknown since before the revision that the node is
    /// assigned was created.
    NodeIsLost { since: Time },
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

impl Why {
    /// Returns the `reason` in the JSON of `muster explain` and `muster plan`. Clients compare it, so it does not
    /// change when a variant is renamed.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NodeNameMismatch { .. } => "AnotherNodeIsNamed",
            Self::NodeSelectorMismatch { .. } => "SelectorAsksForLabel",
            Self::NodeAffinityMismatch => "AffinityMatchesNotThisNode",
            Self::NodeAffinityInvalid { .. } => "AffinityCannotBeRead",
            Self::UntoleratedNoScheduleTaint { .. } => "TaintKeepsAway",
            Self::UntoleratedNoExecuteTaint { .. } => "TaintSendsOff",
            Self::NoPodOnNode => "NoPodHere",
            Self::OldPodsTerminating => "OldPodIsLeaving",
            Self::Failed { .. } => "Failed",
            Self::Succeeded => "Succeeded",
            Self::SurplusPod { .. } => "SurplusPod",
            Self::NodeDeleted => "NodeIsGone",
            Self::FailedRecently { .. } => "FailedRecently",
            Self::StillTerminating { .. } => "StillLeaving",
            Self::TooManyTerminating { .. } => "TooManyStillLeaving",
            Self::BeingReplaced => "BeingReplaced",
            Self::Outdated => "OutOfDate",
            Self::OutdatedAndNotReady => "OutOfDateAndNotReady",
            Self::NewPodIsAvailable { .. } => "NewPodIsAvailable",
            Self::NewPodBesideNotReadyOld { .. } => "NewPodBesideNotReadyOld",
            Self::TolerationDropped { .. } => "TolerationDropped",
            Self::NodeNotReadyOrUnreachable { .. } => "NodeInTrouble",
            Self::NodeIsLost { .. } => "NodeIsLost",
            Self::NodeUnreachable { .. } => "NodeIsSilent",
            Self::KeptByTaint { .. } => "KeptByTaint",
            Self::WaitsForUserDelete => "UpdatesWaitForDeletion",
            Self::HeldByRollout => "HeldByRollout",
            Self::NotReady { .. } => "NotReady",
            Self::WaitsForMinReady { .. } => "StillSettling",
            Self::UpToDate => "UpToDate",
            Self::WaitingForOwnWrites { .. } => "WaitingForOwnWrites",
            Self::RetryLater { .. } => "RetryLater",
            Self::RevisionNotRecorded => "RevisionNotRecorded",
            Self::OwnersAbsent => "OwnersAreGone",
            Self::OwnerDeletedInForeground => "OwnerIsLeaving",
            Self::OwnerOrphansDependents => "OwnerLetsGo",
            Self::NeverBound => "NeverBound",
            Self::NodeOutOfService => "NodeOutOfService",
            Self::TooManyTerminatedPods => "TooManyEnded",
        }
    }

    /// Returns a short text for the reason, without its details. Conditions and explanations count nodes by this text.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NodeNameMismatch { .. } => "another node is named",
            Self::NodeSelectorMismatch { .. } => "node selector does not match",
            Self::NodeAffinityMismatch => "node affinity does not match",
            Self::NodeAffinityInvalid { .. } => "node affinity cannot be read",
            Self::UntoleratedNoScheduleTaint { .. } => "untolerated NoSchedule taint",
            Self::UntoleratedNoExecuteTaint { .. } => "untolerated NoExecute taint",
            Self::NoPodOnNode => "no pod yet",
            Self::OldPodsTerminating => "old pod is leaving",
            Self::Failed { .. } => "pod failed",
            Self::Succeeded => "pod ended",
            Self::SurplusPod { .. } => "more than one pod",
            Self::NodeDeleted => "node is gone",
            Self::FailedRecently { .. } => "pod failed, waiting to retry",
            Self::StillTerminating { .. } => "pod still terminating",
            Self::TooManyTerminating { .. } => "pods still terminating",
            Self::BeingReplaced => "pod is being replaced",
            Self::Outdated => "pod out of date",
            Self::OutdatedAndNotReady => "pod out of date and not ready",
            Self::NewPodIsAvailable { .. } => "new pod is available",
            Self::NewPodBesideNotReadyOld { .. } => "old pod is not ready",
            Self::TolerationDropped { .. } => "template no longer tolerates the node's taint",
            Self::NodeNotReadyOrUnreachable { .. } => "node is not ready",
            Self::NodeIsLost { .. } => "node was lost before this revision",
            Self::NodeUnreachable { .. } => "node is silent",
            Self::KeptByTaint { .. } => "kept through a taint",
            Self::WaitsForUserDelete => "waiting for a delete",
            Self::HeldByRollout => "held by the rollout",
            Self::NotReady { .. } => "pod not ready",
            Self::WaitsForMinReady { .. } => "pod ready, not yet for minReadySeconds",
            Self::UpToDate => "up to date",
            Self::WaitingForOwnWrites { .. } => "waiting to see own writes",
            Self::RetryLater { .. } => "waiting to try again",
            Self::RevisionNotRecorded => "template not recorded as a revision",
            Self::OwnersAbsent => "owners are gone",
            Self::OwnerDeletedInForeground => "owner is leaving",
            Self::OwnerOrphansDependents => "owner lets go",
            Self::NeverBound => "deleted before it was bound",
            Self::NodeOutOfService => "node is out of service",
            Self::TooManyTerminatedPods => "too many pods have ended",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeNameMismatch { named } => write!(f, "the template names node {named}"),
            Self::NodeSelectorMismatch { label } => write!(f, "the node selector asks for {label}"),
            Self::NodeAffinityMismatch => f.write_str("no term of the node affinity matches"),
            Self::NodeAffinityInvalid { problem } => {
                write!(f, "the node affinity cannot be read: {problem}")
            }
            Self::UntoleratedNoScheduleTaint { taint } | Self::UntoleratedNoExecuteTaint { taint } => {
                write!(f, "taint {taint} is not tolerated")
            }
            Self::NoPodOnNode => f.write_str("no pod here"),
            Self::OldPodsTerminating => f.write_str("the pod here is leaving"),
            Self::Failed { reason: Some(reason) } => write!(f, "failed: {reason}"),
            Self::Failed { reason: None } => f.write_str("failed"),
            Self::Succeeded => f.write_str("ended"),
            Self::SurplusPod { kept } => write!(f, "one pod is enough, {kept} stays"),
            Self::NodeDeleted => f.write_str("its node is gone"),
            Self::FailedRecently { retry_at } => write!(f, "failed before, tried again at {retry_at:?}"),
            Self::StillTerminating { pod } => write!(f, "{pod} is still terminating"),
            Self::TooManyTerminating { count } => write!(f, "{count} pods are still terminating"),
            Self::BeingReplaced => f.write_str("its pod is being replaced"),
            Self::Outdated => f.write_str("out of date"),
            Self::OutdatedAndNotReady => f.write_str("out of date and not ready"),
            Self::NewPodIsAvailable { new } => write!(f, "{new} has taken over"),
            Self::NewPodBesideNotReadyOld { new } => write!(f, "not ready, and {new} is there"),
            Self::TolerationDropped { taint } => write!(f, "the template no longer tolerates taint {taint}"),
            Self::NodeNotReadyOrUnreachable { taint } => {
                write!(f, "out of date on a node with taint {taint}")
            }
            Self::NodeIsLost { since } => write!(f, "node silent since {since:?}, before this revision"),
            Self::NodeUnreachable { since } => {
                write!(f, "node silent since {since:?}, updated when it reports again")
            }
            Self::KeptByTaint { taint } => write!(f, "kept: taint {taint} lets it stay but none follow"),
            Self::WaitsForUserDelete => f.write_str("out of date, replaced when it is deleted"),
            Self::HeldByRollout => f.write_str("held: the rollout has not reached this node"),
            Self::NotReady { reason: Some(reason) } => write!(f, "not ready: {reason}"),
            Self::NotReady { reason: None } => f.write_str("not ready"),
            Self::WaitsForMinReady { until } => write!(f, "ready, available at {until:?}"),
            Self::UpToDate => f.write_str("up to date"),
            Self::WaitingForOwnWrites { writes } => write!(f, "{writes} own writes have not come back yet"),
            Self::RetryLater { at } => write!(f, "a call failed, tried again at {at:?}"),
            Self::RevisionNotRecorded => {
                f.write_str("kube-controller-manager has not recorded the template as a revision yet")
            }
            Self::OwnersAbsent => f.write_str("its owners are gone"),
            Self::OwnerDeletedInForeground => f.write_str("its owner is leaving, and waits for it"),
            Self::OwnerOrphansDependents => f.write_str("its owner is leaving, and lets it go"),
            Self::NeverBound => f.write_str("deleted before it was bound"),
            Self::NodeOutOfService => f.write_str("deleted on a node that is out of service"),
            Self::TooManyTerminatedPods => f.write_str("ended, and too many ended pods exist"),
        }
    }
}

const _: () = assert!(size_of::<Why>() <= 24);

#[cfg(test)]
mod tests {
    use muster_api::taints::TaintEffect;

    use super::*;

    /// Clients compare these strings: never change one.
    #[test]
    fn reasons_in_json_are_stable() {
        let at = Time::default();
        let taint =
            || Arc::new(Taint { key: "k".into(), value: "v".into(), effect: TaintEffect::NoSchedule });
        let reasons = [
            (Why::NodeNameMismatch { named: "n".into() }, "AnotherNodeIsNamed"),
            (Why::NodeSelectorMismatch { label: "n".into() }, "SelectorAsksForLabel"),
            (Why::NodeAffinityMismatch, "AffinityMatchesNotThisNode"),
            (Why::NodeAffinityInvalid { problem: "n".into() }, "AffinityCannotBeRead"),
            (Why::UntoleratedNoScheduleTaint { taint: taint() }, "TaintKeepsAway"),
            (Why::UntoleratedNoExecuteTaint { taint: taint() }, "TaintSendsOff"),
            (Why::NoPodOnNode, "NoPodHere"),
            (Why::OldPodsTerminating, "OldPodIsLeaving"),
            (Why::Failed { reason: None }, "Failed"),
            (Why::Succeeded, "Succeeded"),
            (Why::SurplusPod { kept: "n".into() }, "SurplusPod"),
            (Why::NodeDeleted, "NodeIsGone"),
            (Why::FailedRecently { retry_at: at }, "FailedRecently"),
            (Why::StillTerminating { pod: "n".into() }, "StillLeaving"),
            (Why::TooManyTerminating { count: 1 }, "TooManyStillLeaving"),
            (Why::BeingReplaced, "BeingReplaced"),
            (Why::Outdated, "OutOfDate"),
            (Why::OutdatedAndNotReady, "OutOfDateAndNotReady"),
            (Why::NewPodIsAvailable { new: "n".into() }, "NewPodIsAvailable"),
            (Why::NewPodBesideNotReadyOld { new: "n".into() }, "NewPodBesideNotReadyOld"),
            (Why::TolerationDropped { taint: taint() }, "TolerationDropped"),
            (Why::NodeNotReadyOrUnreachable { taint: taint() }, "NodeInTrouble"),
            (Why::NodeIsLost { since: at }, "NodeIsLost"),
            (Why::NodeUnreachable { since: at }, "NodeIsSilent"),
            (Why::KeptByTaint { taint: taint() }, "KeptByTaint"),
            (Why::WaitsForUserDelete, "UpdatesWaitForDeletion"),
            (Why::HeldByRollout, "HeldByRollout"),
            (Why::NotReady { reason: None }, "NotReady"),
            (Why::WaitsForMinReady { until: at }, "StillSettling"),
            (Why::UpToDate, "UpToDate"),
            (Why::WaitingForOwnWrites { writes: 1 }, "WaitingForOwnWrites"),
            (Why::RetryLater { at }, "RetryLater"),
            (Why::RevisionNotRecorded, "RevisionNotRecorded"),
            (Why::OwnersAbsent, "OwnersAreGone"),
            (Why::OwnerDeletedInForeground, "OwnerIsLeaving"),
            (Why::OwnerOrphansDependents, "OwnerLetsGo"),
            (Why::NeverBound, "NeverBound"),
            (Why::NodeOutOfService, "NodeOutOfService"),
            (Why::TooManyTerminatedPods, "TooManyEnded"),
        ];
        for (why, reason) in reasons {
            assert_eq!(why.reason(), reason);
        }
    }
}
