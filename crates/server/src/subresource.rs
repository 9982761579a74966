//! Subresources of an object.

/// The object itself, or one of its subresources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subresource {
    /// The object itself, not a subresource.
    Whole,
    /// The subresource `status`.
    Status,
    /// The subresource `binding`, which binds a pod to a node.
    Binding,
    /// The subresource `finalize`, which updates `spec.finalizers` of a Namespace.
    Finalize,
    /// The subresource `eviction`, which deletes a pod if its PodDisruptionBudget allows it. An eviction fails if
    /// several PodDisruptionBudgets select the pod.
    Eviction,
    /// The subresource `token`, which issues a token for a ServiceAccount.
    Token,
    /// The subresource `ephemeralcontainers`, which adds ephemeral containers to a pod.
    EphemeralContainers,
    /// The subresource `approval`, which approves or denies a CertificateSigningRequest.
    Approval,
    /// A subresource that the agent of the node serves: `log`, `exec`, `attach`, `portforward` or `proxy`.
    Agent(&'static str),
}

impl Subresource {
    /// Whether the subresource is read and updated like the object itself, with the object as the body.
    pub(crate) fn supports_get_and_update(self) -> bool {
        matches!(self, Self::Whole | Self::Status | Self::EphemeralContainers | Self::Approval)
    }
}
