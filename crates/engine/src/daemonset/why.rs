//! Every reason the engine can give: the index of its rules.
//!
//! `explain` prints a `Why`; grep the variant to find the one function that builds it, whose doc
//! comment states the rule.

use alloc::sync::Arc;
use core::fmt;

use muster_api::taints::Taint;
use muster_api::text::Text;
use muster_api::time::Time;

/// Small, for every node has some: what is large is held elsewhere.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Why {
    // placement: why no pod belongs on a node
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

    // rollout: old pods give way to new ones
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

    // gate and act
    WaitingForOwnWrites { writes: usize },
    RetryLater { at: Time },

    // garbage: what goes because of what it belongs to
    OwnersAreGone,
    OwnerIsLeaving,
    OwnerLetsGo,
    NeverBound,
    NodeOutOfService,
    TooManyEnded,
}

impl Why {
    /// The variant's name in words, without its particulars: what nodes are counted by.
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
