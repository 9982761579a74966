//! The pod selector of a DaemonSet.

use alloc::vec::Vec;

use muster_api::labels::{LabelRequirement, Labels};
use muster_api::text::Text;

/// Which pods are a set's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selector {
    AllOf(Vec<LabelRequirement>),
    /// An empty selector would claim every pod of the namespace, so it claims none.
    Everything,
    /// Claims none, and says what could not be read.
    Unreadable(Text),
}

impl Selector {
    /// Rule: only a selector that can be read and asks for something claims anything.
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::AllOf(requirements) => requirements.iter().all(|it| it.matches(labels)),
            Self::Everything | Self::Unreadable(_) => false,
        }
    }
}
