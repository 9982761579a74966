//! All reasons that `muster explain`, plans and conditions give: an index of the rules.
//!
//! To find the rule behind a reason, search for the `Why` variant: one function builds it, and its doc comment states
//! the rule.

use alloc::sync::Arc;
use core::fmt;

use muster_api::taints::Taint;
use muster_api::text::Text;
use muster_api::time::Time;

/// The reason of a verdict, write or wait. Small, because every cell has several: large values are behind an `Arc`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    // placement: why a node gets no pod
    AnotherNodeIsNamed { named: Text },
    SelectorAsksForLabel { label: Text },
    AffinityMatchesNotThisNode,
    AffinityCannotBeRead { problem: Text },
    TaintKeepsAway { taint: Arc<Taint> },
    TaintSendsOff { taint: Arc<Taint> },

    // roster: one pod per node
    NoPodHere,
    OldPodIsLeaving,
    Failed { reason: Option<Text> },
    Succeeded,
    SurplusPod { kept: Text },
    NodeIsGone,
    FailedRecently { retry_at: Time },
    StillLeaving { pod: Text },
    TooManyStillLeaving { count: usize },
    BeingReplaced,

    // rollout: outdated pods are replaced
    OutOfDate,
    OutOfDateAndNotReady,
    NewPodIsAvailable { new: Text },
    NewPodBesideNotReadyOld { new: Text },
    TolerationDropped { taint: Arc<Taint> },
    NodeInTrouble { taint: Arc<Taint> },
    NodeIsLost { since: Time },
    NodeIsSilent { since: Time },
    KeptByTaint { taint: Arc<Taint> },
    UpdatesWaitForDeletion,

    // availability
    NotReady { reason: Option<Text> },
    StillSettling { until: Time },
    UpToDate,

    // expectations and execution
    WaitingForOwnWrites { writes: usize },
    RetryLater { at: Time },

    // garbage collector
    OwnersAreGone,
    OwnerIsLeaving,
    OwnerLetsGo,
    NeverBound,
    NodeOutOfService,
    TooManyEnded,
}

impl Why {
    /// The `reason` in the JSON of `muster explain` and `muster plan`. Clients compare it: it does not change when a
    /// variant is renamed.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::AnotherNodeIsNamed { .. } => "AnotherNodeIsNamed",
            Self::SelectorAsksForLabel { .. } => "SelectorAsksForLabel",
            Self::AffinityMatchesNotThisNode => "AffinityMatchesNotThisNode",
            Self::AffinityCannotBeRead { .. } => "AffinityCannotBeRead",
            Self::TaintKeepsAway { .. } => "TaintKeepsAway",
            Self::TaintSendsOff { .. } => "TaintSendsOff",
            Self::NoPodHere => "NoPodHere",
            Self::OldPodIsLeaving => "OldPodIsLeaving",
            Self::Failed { .. } => "Failed",
            Self::Succeeded => "Succeeded",
            Self::SurplusPod { .. } => "SurplusPod",
            Self::NodeIsGone => "NodeIsGone",
            Self::FailedRecently { .. } => "FailedRecently",
            Self::StillLeaving { .. } => "StillLeaving",
            Self::TooManyStillLeaving { .. } => "TooManyStillLeaving",
            Self::BeingReplaced => "BeingReplaced",
            Self::OutOfDate => "OutOfDate",
            Self::OutOfDateAndNotReady => "OutOfDateAndNotReady",
            Self::NewPodIsAvailable { .. } => "NewPodIsAvailable",
            Self::NewPodBesideNotReadyOld { .. } => "NewPodBesideNotReadyOld",
            Self::TolerationDropped { .. } => "TolerationDropped",
            Self::NodeInTrouble { .. } => "NodeInTrouble",
            Self::NodeIsLost { .. } => "NodeIsLost",
            Self::NodeIsSilent { .. } => "NodeIsSilent",
            Self::KeptByTaint { .. } => "KeptByTaint",
            Self::UpdatesWaitForDeletion => "UpdatesWaitForDeletion",
            Self::NotReady { .. } => "NotReady",
            Self::StillSettling { .. } => "StillSettling",
            Self::UpToDate => "UpToDate",
            Self::WaitingForOwnWrites { .. } => "WaitingForOwnWrites",
            Self::RetryLater { .. } => "RetryLater",
            Self::OwnersAreGone => "OwnersAreGone",
            Self::OwnerIsLeaving => "OwnerIsLeaving",
            Self::OwnerLetsGo => "OwnerLetsGo",
            Self::NeverBound => "NeverBound",
            Self::NodeOutOfService => "NodeOutOfService",
            Self::TooManyEnded => "TooManyEnded",
        }
    }

    /// Short text of the reason without its details; nodes are grouped and counted by it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::AnotherNodeIsNamed { .. } => "another node is named",
            Self::SelectorAsksForLabel { .. } => "node selector does not match",
            Self::AffinityMatchesNotThisNode => "node affinity does not match",
            Self::AffinityCannotBeRead { .. } => "node affinity cannot be read",
            Self::TaintKeepsAway { .. } => "untolerated NoSchedule taint",
            Self::TaintSendsOff { .. } => "untolerated NoExecute taint",
            Self::NoPodHere => "no pod yet",
            Self::OldPodIsLeaving => "old pod is leaving",
            Self::Failed { .. } => "pod failed",
            Self::Succeeded => "pod ended",
            Self::SurplusPod { .. } => "more than one pod",
            Self::NodeIsGone => "node is gone",
            Self::FailedRecently { .. } => "pod failed, waiting to retry",
            Self::StillLeaving { .. } => "pod still terminating",
            Self::TooManyStillLeaving { .. } => "pods still terminating",
            Self::BeingReplaced => "pod is being replaced",
            Self::OutOfDate => "pod out of date",
            Self::OutOfDateAndNotReady => "pod out of date and not ready",
            Self::NewPodIsAvailable { .. } => "new pod is available",
            Self::NewPodBesideNotReadyOld { .. } => "old pod is not ready",
            Self::TolerationDropped { .. } => "template no longer tolerates the node's taint",
            Self::NodeInTrouble { .. } => "node is not ready",
            Self::NodeIsLost { .. } => "node was lost before this revision",
            Self::NodeIsSilent { .. } => "node is silent",
            Self::KeptByTaint { .. } => "kept through a taint",
            Self::UpdatesWaitForDeletion => "waiting for a delete",
            Self::NotReady { .. } => "pod not ready",
            Self::StillSettling { .. } => "pod ready, not yet for minReadySeconds",
            Self::UpToDate => "up to date",
            Self::WaitingForOwnWrites { .. } => "waiting to see own writes",
            Self::RetryLater { .. } => "waiting to try again",
            Self::OwnersAreGone => "owners are gone",
            Self::OwnerIsLeaving => "owner is leaving",
            Self::OwnerLetsGo => "owner lets go",
            Self::NeverBound => "deleted before it was bound",
            Self::NodeOutOfService => "node is out of service",
            Self::TooManyEnded => "too many pods have ended",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AnotherNodeIsNamed { named } => write!(f, "the template names node {named}"),
            Self::SelectorAsksForLabel { label } => write!(f, "the node selector asks for {label}"),
            Self::AffinityMatchesNotThisNode => f.write_str("no term of the node affinity matches"),
            Self::AffinityCannotBeRead { problem } => {
                write!(f, "the node affinity cannot be read: {problem}")
            }
            Self::TaintKeepsAway { taint } | Self::TaintSendsOff { taint } => {
                write!(f, "taint {taint} is not tolerated")
            }
            Self::NoPodHere => f.write_str("no pod here"),
            Self::OldPodIsLeaving => f.write_str("the pod here is leaving"),
            Self::Failed { reason: Some(reason) } => write!(f, "failed: {reason}"),
            Self::Failed { reason: None } => f.write_str("failed"),
            Self::Succeeded => f.write_str("ended"),
            Self::SurplusPod { kept } => write!(f, "one pod is enough, {kept} stays"),
            Self::NodeIsGone => f.write_str("its node is gone"),
            Self::FailedRecently { retry_at } => write!(f, "failed before, tried again at {retry_at:?}"),
            Self::StillLeaving { pod } => write!(f, "{pod} is still terminating"),
            Self::TooManyStillLeaving { count } => write!(f, "{count} pods are still terminating"),
            Self::BeingReplaced => f.write_str("its pod is being replaced"),
            Self::OutOfDate => f.write_str("out of date"),
            Self::OutOfDateAndNotReady => f.write_str("out of date and not ready"),
            Self::NewPodIsAvailable { new } => write!(f, "{new} has taken over"),
            Self::NewPodBesideNotReadyOld { new } => write!(f, "not ready, and {new} is there"),
            Self::TolerationDropped { taint } => write!(f, "the template no longer tolerates taint {taint}"),
            Self::NodeInTrouble { taint } => write!(f, "out of date on a node with taint {taint}"),
            Self::NodeIsLost { since } => write!(f, "node silent since {since:?}, before this revision"),
            Self::NodeIsSilent { since } => {
                write!(f, "node silent since {since:?}, updated when it reports again")
            }
            Self::KeptByTaint { taint } => write!(f, "kept: taint {taint} lets it stay but none follow"),
            Self::UpdatesWaitForDeletion => f.write_str("out of date, replaced when it is deleted"),
            Self::NotReady { reason: Some(reason) } => write!(f, "not ready: {reason}"),
            Self::NotReady { reason: None } => f.write_str("not ready"),
            Self::StillSettling { until } => write!(f, "ready, available at {until:?}"),
            Self::UpToDate => f.write_str("up to date"),
            Self::WaitingForOwnWrites { writes } => write!(f, "{writes} own writes have not come back yet"),
            Self::RetryLater { at } => write!(f, "a call failed, tried again at {at:?}"),
            Self::OwnersAreGone => f.write_str("its owners are gone"),
            Self::OwnerIsLeaving => f.write_str("its owner is leaving, and waits for it"),
            Self::OwnerLetsGo => f.write_str("its owner is leaving, and lets it go"),
            Self::NeverBound => f.write_str("deleted before it was bound"),
            Self::NodeOutOfService => f.write_str("deleted on a node that is out of service"),
            Self::TooManyEnded => f.write_str("ended, as too many others have since"),
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
            (Why::AnotherNodeIsNamed { named: "n".into() }, "AnotherNodeIsNamed"),
            (Why::SelectorAsksForLabel { label: "n".into() }, "SelectorAsksForLabel"),
            (Why::AffinityMatchesNotThisNode, "AffinityMatchesNotThisNode"),
            (Why::AffinityCannotBeRead { problem: "n".into() }, "AffinityCannotBeRead"),
            (Why::TaintKeepsAway { taint: taint() }, "TaintKeepsAway"),
            (Why::TaintSendsOff { taint: taint() }, "TaintSendsOff"),
            (Why::NoPodHere, "NoPodHere"),
            (Why::OldPodIsLeaving, "OldPodIsLeaving"),
            (Why::Failed { reason: None }, "Failed"),
            (Why::Succeeded, "Succeeded"),
            (Why::SurplusPod { kept: "n".into() }, "SurplusPod"),
            (Why::NodeIsGone, "NodeIsGone"),
            (Why::FailedRecently { retry_at: at }, "FailedRecently"),
            (Why::StillLeaving { pod: "n".into() }, "StillLeaving"),
            (Why::TooManyStillLeaving { count: 1 }, "TooManyStillLeaving"),
            (Why::BeingReplaced, "BeingReplaced"),
            (Why::OutOfDate, "OutOfDate"),
            (Why::OutOfDateAndNotReady, "OutOfDateAndNotReady"),
            (Why::NewPodIsAvailable { new: "n".into() }, "NewPodIsAvailable"),
            (Why::NewPodBesideNotReadyOld { new: "n".into() }, "NewPodBesideNotReadyOld"),
            (Why::TolerationDropped { taint: taint() }, "TolerationDropped"),
            (Why::NodeInTrouble { taint: taint() }, "NodeInTrouble"),
            (Why::NodeIsLost { since: at }, "NodeIsLost"),
            (Why::NodeIsSilent { since: at }, "NodeIsSilent"),
            (Why::KeptByTaint { taint: taint() }, "KeptByTaint"),
            (Why::UpdatesWaitForDeletion, "UpdatesWaitForDeletion"),
            (Why::NotReady { reason: None }, "NotReady"),
            (Why::StillSettling { until: at }, "StillSettling"),
            (Why::UpToDate, "UpToDate"),
            (Why::WaitingForOwnWrites { writes: 1 }, "WaitingForOwnWrites"),
            (Why::RetryLater { at }, "RetryLater"),
            (Why::OwnersAreGone, "OwnersAreGone"),
            (Why::OwnerIsLeaving, "OwnerIsLeaving"),
            (Why::OwnerLetsGo, "OwnerLetsGo"),
            (Why::NeverBound, "NeverBound"),
            (Why::NodeOutOfService, "NodeOutOfService"),
            (Why::TooManyEnded, "TooManyEnded"),
        ];
        for (why, reason) in reasons {
            assert_eq!(why.reason(), reason);
        }
    }
}
