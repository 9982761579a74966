//! Subresources: the parts of an object that have a path of their own.

/// The object itself, or one of its subresources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subresource {
    Whole,
    Status,
    Binding,
    Finalize,
    Eviction,
    /// Of a service account: a token is made.
    Token,
    EphemeralContainers,
    /// Whether a certificate is to be issued.
    Approval,
    /// What only the agent of a node can serve: logs, commands, connections.
    Agent(&'static str),
}

impl Subresource {
    /// Read and written like the object that it is a part of.
    pub(crate) fn is_written(self) -> bool {
        matches!(self, Self::Whole | Self::Status | Self::EphemeralContainers | Self::Approval)
    }
}
