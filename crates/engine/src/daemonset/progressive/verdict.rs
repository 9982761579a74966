//! Verdicts about revisions: which revisions have passed, have failed or were superseded.

use muster_api::text::Text;
use muster_api::time::Time;
use muster_api::well_known::{VERDICT_BAD, VERDICT_GOOD, VERDICT_SUPERSEDED};

use super::record::RevisionReference;

/// The verdict about a revision, stored as an annotation of its ControllerRevision. The annotation outlives the policy,
/// the DaemonRollout and the controller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RevisionVerdict {
    /// The revision was rolled out to all eligible nodes, or it was already running when there was no stable revision.
    Good,
    /// The revision failed or was aborted. It is not rolled out again unless an operator requests a retry.
    Bad,
    /// Another revision became current before the revision had passed.
    Superseded,
}

impl RevisionVerdict {
    /// All verdicts, for [`RevisionVerdict::parse`].
    pub const ALL: [Self; 3] = [Self::Good, Self::Bad, Self::Superseded];

    /// Returns the verdict as it is written in the annotation of the ControllerRevision.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Good => VERDICT_GOOD,
            Self::Bad => VERDICT_BAD,
            Self::Superseded => VERDICT_SUPERSEDED,
        }
    }

    /// Parses the annotation value that [`RevisionVerdict::as_str`] returns. `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }
}

/// A revision of the DaemonSet, with the verdict that is stored on its ControllerRevision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevisionWithVerdict {
    pub reference: RevisionReference,
    /// The stored verdict. `None` if the revision has no verdict yet.
    pub verdict: Option<RevisionVerdict>,
    /// Why the revision got the stored verdict, in CamelCase, such as `Failed`. `None` if it has no verdict yet.
    pub reason: Option<Text>,
    /// Creation time of the ControllerRevision.
    pub created: Time,
}

/// A write of a [`RevisionVerdict`] to the annotations of a ControllerRevision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevisionVerdictWrite {
    /// Hash of the revision whose verdict is written.
    pub revision: Text,
    /// The verdict to store. `None` removes the stored verdict, because the revision is retried.
    pub verdict: Option<RevisionVerdict>,
    /// Why the revision gets the verdict, or why the verdict is removed: one of the `REASON_` constants. If the
    /// controller restarts after it wrote a `Bad` verdict and before it stored the phase, the controller derives the
    /// phase from this reason.
    pub reason: &'static str,
}

/// Reason of the verdict `Good`: the revision was already running when there was no stable revision.
pub(crate) const REASON_ADOPTED: &str = "Adopted";
/// Reason of the verdict `Good`: the revision was rolled out to all eligible nodes.
pub(crate) const REASON_PASSED: &str = "Passed";
/// Reason of the verdict `Superseded`: another revision became current before the revision had passed.
pub(crate) const REASON_SUPERSEDED: &str = VERDICT_SUPERSEDED;
/// Reason for removing a verdict: an operator asked for a retry.
pub(crate) const REASON_RETRIED: &str = "Retried";
/// Reason of the verdict `Bad`: more nodes failed than the policy tolerates, or a check failed.
pub(crate) const REASON_FAILED: &str = "Failed";
/// Reason of the verdict `Bad`: an operator aborted the rollout.
pub(crate) const REASON_ABORTED: &str = "Aborted";
/// Reason of the verdict `Bad`: the rollout made no progress within `progressDeadline`.
pub(crate) const REASON_DEADLINE: &str = "DeadlineExceeded";
