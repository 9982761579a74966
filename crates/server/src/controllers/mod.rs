//! Controllers that run in the server. They react to changes of stored objects and write through the registry.

pub(crate) mod certificate_records;
pub(crate) mod certificate_signing;
pub(crate) mod cluster_roles;
pub(crate) mod namespace_deletion;
