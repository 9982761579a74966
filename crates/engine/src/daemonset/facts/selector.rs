//! The pod selector of a DaemonSet.

use muster_api::labels::{self, Labels};
use muster_api::text::Text;

/// The label selector (`spec.selector`) with which a DaemonSet selects its pods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selector {
    /// A selector with at least one requirement.
    Requirements(labels::Selector),
    /// The empty selector. It would select every pod of the namespace, so it is treated as selecting no pod.
    Everything,
    /// A selector that cannot be parsed, with the parse error. It selects no pod.
    Unreadable(Text),
}

impl Selector {
    /// Whether the selector selects a pod with these labels.
    ///
    /// Rule: an empty selector, and a selector that cannot be parsed, select no pod.
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::Requirements(selector) => selector.matches(labels),
            Self::Everything | Self::Unreadable(_) => false,
        }
    }
}
