//! Controllers that run in the server. They react to changes of stored objects and write through the registry.

/// Records issued client certificates in ConfigMaps.
pub(crate) mod certificate_records;
/// Approves, signs and deletes CertificateSigningRequests.
pub(crate) mod certificate_signing;
/// Reconciles the default roles and aggregates ClusterRoles.
pub(crate) mod cluster_roles;
/// Deletes the content of terminating namespaces.
pub(crate) mod namespace_deletion;
