//! Subresources of an object.

/// The object itself, or one of its subresources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subresource {
    /// The object itself.
    Whole,
    Status,
    Binding,
    Finalize,
    Eviction,
    /// The subresource `token`, which issues a token for a service account.
    Token,
    EphemeralContainers,
    /// The subresource `approval`, which approves or denies a certificate signing request.
    Approval,
    /// A subresource that the node's agent serves: log, exec, attach, portforward, proxy.
    Agent(&'static str),
}

impl Subresource {
    /// Whether the subresource is read and updated like the object itself.
    pub(crate) fn supports_get_and_update(self) -> bool {
        matches!(self, Self::Whole | Self::Status | Self::EphemeralContainers | Self::Approval)
    }
}
