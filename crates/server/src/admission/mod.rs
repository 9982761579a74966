//! Admission plugins, which mutate or refuse writes. Unlike defaulting and validation, a plugin may depend on the user
//! of the request and on other stored objects.
//!
//! [`Kind::admission_plugins`] lists the plugins of each kind, in upstream's order. [`AdmissionChain`] runs
//! `namespace_lifecycle`, `resource_quota` and the plugins that prevent privilege escalation for all kinds, so they are
//! not in that list. Each module is one plugin.

/// Converts AppArmor annotations of pods to fields.
mod app_armor;
/// Authorizes the creation, approval and signing of CertificateSigningRequests.
pub(crate) mod certificate_approval;
/// Sets the fields of a CertificateSigningRequest that describe the user who created it.
mod certificate_requester;
/// Restricts the external IPs of Services.
mod external_ips;
/// Applies the defaults and constraints of LimitRanges to pods.
mod limit_ranger;
/// Refuses new objects in missing or terminating namespaces, and the deletion of `default`, `kube-system` and
/// `kube-public`.
mod namespace_lifecycle;
/// Restricts the addresses that a node may add to its Node.
mod node_address;
/// Restricts a node's writes to Nodes, Leases, pods, service account tokens and CertificateSigningRequests.
pub(crate) mod node_restriction;
/// Adds the not-ready taint to new Nodes.
mod node_taint;
/// Allocates pod CIDRs to Nodes.
mod pod_cidr;
/// Checks pods and pod templates against the Pod Security levels of their namespace.
mod pod_security;
/// Sets the priority of a pod from its PriorityClass.
mod priority;
/// Refuses RBAC writes that would grant permissions which the user does not hold.
pub(crate) mod rbac_escalation;
/// Enforces ResourceQuotas.
mod resource_quota;
/// Applies the overhead and scheduling constraints of a RuntimeClass to pods.
mod runtime_class;
/// Sets the service account of a pod and mounts its token.
mod service_account;
/// Allocates the cluster IPs and node ports of Services.
mod service_address;
/// Adds the default tolerations for not-ready and unreachable nodes to pods.
mod toleration_seconds;

use std::sync::Arc;

use jiff::Timestamp;
use muster_api::well_known::{API_GROUP_CERTIFICATES, API_GROUP_RBAC};
use muster_store::{Allocation, Revision};
use serde_json::Value;

use crate::auth::{AccessControl, revocation};
use crate::error::ApiError;
use crate::kinds::{AdmissionPlugin, Kind};
use crate::metrics::ServerMetrics;
use crate::request::{RequestContext, RequestTarget, User};
use crate::storage::ObjectStorage;
use crate::subresource::Subresource;
use crate::unstructured::str_at;

pub(crate) use external_ips::parse_external_ip_ranges;
pub(crate) use pod_cidr::{PodCidrAllocator, parse_cluster_range};
pub use pod_security::{LevelVersion, PodSecurityConfiguration, PodSecurityLevel, PolicyVersion};
pub(crate) use resource_quota::{QuotaAccessor, QuotaCharge, has_quotas, recalculate_quotas};
pub(crate) use service_address::{API_SERVER_IP, DNS_IP};

/// The write that admission plugins check. Upstream: `admission.Attributes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdmissionAttributes<'a> {
    /// The object that is written. During [`AdmissionChain::mutate`], its name is empty in a create with
    /// `generateName`.
    pub(crate) target: &'a RequestTarget,
    pub(crate) operation: AdmissionOperation<'a>,
}

/// The operation of a write. `old` is the stored object. Upstream: `admission.Operation`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AdmissionOperation<'a> {
    Create,
    Update { old: &'a Value },
    Delete,
}

/// Runs the admission plugins on a write. Holds the configuration of the plugins, the allocators of addresses and
/// ports, and the locks of the ResourceQuotas. Upstream: `chainAdmissionHandler`.
#[derive(Debug)]
pub(crate) struct AdmissionChain {
    storage: Arc<ObjectStorage>,
    access: Arc<AccessControl>,
    metrics: Arc<ServerMetrics>,
    /// Allocates cluster IPs and node ports.
    service_addresses: service_address::ServiceAllocator,
    /// Allocates pod CIDRs to Nodes.
    pub(crate) pod_cidrs: PodCidrAllocator,
    quota_locks: resource_quota::QuotaLocks,
    /// The ranges of external IPs that Services may use.
    pub(crate) external_ips: external_ips::AllowedExternalIps,
    pub(crate) pod_security: pod_security::PodSecurityCell,
}

/// A pool of values, such as cluster IPs, each of which belongs to at most one object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AllocationPool {
    name: &'static str,
    /// Revision of the store before admission chooses a value. The commit fails if another server has allocated from
    /// the pool since this revision.
    revision: Revision,
    /// Function that returns whether an object has a value of the pool that the stored object does not have. The
    /// arguments are the written object and the stored object, which is null for a create.
    allocates: fn(&Value, &Value) -> bool,
}

impl AllocationPool {
    /// Returns the allocation to commit together with the object, or `None` if the object allocates no value. `old` is
    /// the stored object, or null for a create.
    pub(crate) fn allocation(self, object: &Value, old: &Value) -> Option<Allocation> {
        (self.allocates)(object, old).then_some(Allocation { pool: self.name, known: self.revision })
    }
}

impl AdmissionChain {
    pub(crate) fn new(
        storage: Arc<ObjectStorage>,
        access: Arc<AccessControl>,
        metrics: Arc<ServerMetrics>,
    ) -> Self {
        Self {
            storage,
            access,
            metrics,
            service_addresses: service_address::ServiceAllocator::default(),
            pod_cidrs: PodCidrAllocator::default(),
            quota_locks: resource_quota::QuotaLocks::default(),
            external_ips: external_ips::AllowedExternalIps::default(),
            pod_security: pod_security::PodSecurityCell::default(),
        }
    }

    /// Returns the pool from which objects of the kind allocate values, or `None` if they allocate none. The caller
    /// calls this before admission chooses the values, because the pool contains the current revision of the store.
    ///
    /// Rule: each cluster IP and each node port belongs to one Service. Each pod CIDR and each node address belongs to
    /// one Node.
    pub(crate) fn allocation_pool(&self, kind: &Kind) -> Option<AllocationPool> {
        let (name, allocates): (_, fn(&Value, &Value) -> bool) = match kind.resource() {
            ("", "services") => ("services", service_address::allocates),
            ("", "nodes") => ("nodes", pod_cidr::allocates),
            _ => return None,
        };
        Some(AllocationPool { name, revision: self.storage.revision(), allocates })
    }

    /// Runs the mutating plugins of the kind. The caller then sets server-owned fields and validates the object.
    /// `object` is null for a delete.
    ///
    /// Also checks the namespace and calls [`set_server_timestamps`]. For a delete, and for a write to a subresource,
    /// does only these two steps.
    pub(crate) async fn mutate(
        &self,
        context: &RequestContext,
        attributes: AdmissionAttributes<'_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        namespace_lifecycle::admit(self, attributes, object)?;
        set_server_timestamps(context.now, attributes, object);
        if matches!(attributes.operation, AdmissionOperation::Delete)
            || attributes.target.subresource != Subresource::Whole
        {
            return Ok(());
        }
        for plugin in attributes.target.kind.admission_plugins {
            match plugin {
                AdmissionPlugin::LimitRanger => limit_ranger::mutate(self, attributes, object),
                AdmissionPlugin::ServiceAccount => service_account::mutate(self, attributes, object).await?,
                AdmissionPlugin::NodeTaint => node_taint::mutate(attributes, object),
                AdmissionPlugin::PodCidr => pod_cidr::mutate(self, context, attributes, object)?,
                AdmissionPlugin::Priority => priority::mutate(self, attributes, object)?,
                AdmissionPlugin::TolerationSeconds => toleration_seconds::mutate(object),
                AdmissionPlugin::RuntimeClass => runtime_class::mutate(self, attributes, object)?,
                AdmissionPlugin::CertificateRequester => {
                    certificate_requester::mutate(context, attributes, object);
                }
                AdmissionPlugin::ServiceAddress => {
                    service_address::mutate(self, context, attributes, object)?
                }
                AdmissionPlugin::AppArmor => app_armor::mutate(context, attributes, object),
                AdmissionPlugin::NodeAddress
                | AdmissionPlugin::ExternalIps
                | AdmissionPlugin::PodSecurity(_) => {}
            }
        }
        Ok(())
    }

    /// Checks again that the namespace of a create exists and is not terminating. Called when the Namespace has changed
    /// during the request.
    pub(crate) fn check_namespace(
        &self,
        attributes: AdmissionAttributes<'_>,
        object: &Value,
    ) -> Result<(), ApiError> {
        namespace_lifecycle::admit(self, attributes, object)
    }

    /// Runs the validating plugins on the object as it would be stored, as the last check before the commit. `object`
    /// is null for a delete.
    ///
    /// Returns the usage that the write adds to the ResourceQuotas of the namespace. The caller commits this charge
    /// together with the write. Returns `None` if the write does not increase the usage of a ResourceQuota.
    pub(crate) async fn validate(
        &self,
        context: &RequestContext,
        attributes: AdmissionAttributes<'_>,
        object: &Value,
    ) -> Result<Option<QuotaCharge>, ApiError> {
        self.check_privilege_escalation(&context.user, attributes, object)?;
        if matches!(attributes.operation, AdmissionOperation::Delete) {
            return Ok(None);
        }
        let is_whole = attributes.target.subresource == Subresource::Whole;
        for plugin in attributes.target.kind.admission_plugins {
            match plugin {
                AdmissionPlugin::PodSecurity(subject) => {
                    pod_security::validate(self, context, attributes, *subject, object).await?;
                }
                AdmissionPlugin::NodeAddress => node_address::validate(self, context, attributes, object)?,
                _ if !is_whole => {}
                AdmissionPlugin::LimitRanger => limit_ranger::validate(self, attributes, object)?,
                AdmissionPlugin::Priority => priority::validate(self, attributes, object)?,
                AdmissionPlugin::RuntimeClass => runtime_class::validate(self, attributes, object)?,
                AdmissionPlugin::ExternalIps => external_ips::validate(self, attributes, object)?,
                _ => {}
            }
        }
        if !is_whole {
            return Ok(None);
        }
        resource_quota::prepare_quota_charge(self, context, attributes, object).await
    }

    /// Refuses a write that would escalate the user's privileges. Checks writes to RBAC objects,
    /// CertificateSigningRequests and the revocation list, and all writes by nodes. Deletions of RBAC objects and
    /// CertificateSigningRequests are checked only for nodes. `new` is null for a delete.
    pub(crate) fn check_privilege_escalation(
        &self,
        user: &User,
        attributes: AdmissionAttributes<'_>,
        new: &Value,
    ) -> Result<(), ApiError> {
        let target = attributes.target;
        let subresource = target.kind.subresource_name(target.subresource);
        let (write, old) = match attributes.operation {
            AdmissionOperation::Create => (node_restriction::NodeWrite::Create { new }, None),
            AdmissionOperation::Update { old } => {
                (node_restriction::NodeWrite::Update { new, old }, Some(old))
            }
            AdmissionOperation::Delete => (node_restriction::NodeWrite::Delete, None),
        };
        node_restriction::check_node_write(&self.access, user, target, subresource, write)?;
        revocation::check_credential_record_write(user, target, new)?;
        if matches!(attributes.operation, AdmissionOperation::Delete) {
            return Ok(());
        }
        match target.kind.group {
            API_GROUP_RBAC => rbac_escalation::check_rbac_write(&self.access, user, target, new, old),
            API_GROUP_CERTIFICATES => certificate_approval::check_signing_request_write(
                &self.access,
                user,
                target,
                subresource,
                new,
                old,
            ),
            _ => Ok(()),
        }
    }
}

/// Sets timestamps that the server owns and that the client left out: in the conditions of a CertificateSigningRequest,
/// in a write to one of its subresources, and in the entries of the revocation list.
fn set_server_timestamps(now: Timestamp, attributes: AdmissionAttributes<'_>, new: &mut Value) {
    if let AdmissionOperation::Update { old } = attributes.operation
        && attributes.target.kind.group == API_GROUP_CERTIFICATES
        && attributes.target.subresource != Subresource::Whole
    {
        certificate_approval::set_condition_times(now, new, old);
    }
    // The request may have been queued, and certificates issued since it arrived.
    revocation::set_revocation_times(now.max(Timestamp::now()), attributes.target, new);
}

impl AdmissionAttributes<'_> {
    fn is_create(&self) -> bool {
        matches!(self.operation, AdmissionOperation::Create)
    }

    /// Returns the namespace of the object, or "" for a cluster-scoped object.
    fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or_default()
    }

    /// Returns a 403 error: `pods "p" is forbidden: …`. If the object has no name, the message contains its
    /// `generateName`, or else `Unknown`.
    fn forbidden(&self, object: &Value, why: &str) -> ApiError {
        let names =
            [&self.target.name, str_at(object, "metadata.name"), str_at(object, "metadata.generateName")];
        let name = names.into_iter().find(|it| !it.is_empty()).unwrap_or("Unknown");
        ApiError::forbidden(self.target.kind, name, why)
    }
}
