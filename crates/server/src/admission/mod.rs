//! Admission plugins: they mutate or refuse a write depending on its user and on other stored objects. The table of
//! kinds lists the plugins of each kind, in upstream's order.

mod app_armor;
pub(crate) mod certificate_approval;
mod certificate_requester;
mod external_ips;
mod limit_ranger;
mod namespace_lifecycle;
mod node_address;
pub(crate) mod node_restriction;
mod node_taint;
mod pod_range;
mod pod_security;
mod priority;
pub(crate) mod rbac_escalation;
mod resource_quota;
mod resources;
mod runtime_class;
mod service_account;
mod service_address;
mod toleration_seconds;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::auth::{Access, RBAC, revoked};
use crate::error::ApiError;
use crate::kinds::AdmissionPlugin;
use crate::metrics::Metrics;
use crate::request::{Context, Target, User};
use crate::storage::ObjectStorage;
use crate::subresource::Subresource;
use crate::unstructured::str_at;

pub(crate) use pod_range::PodRanges;
pub use pod_security::{Level, LevelVersion, PodSecurity, Version};
pub(crate) use resource_quota::{Charge, Charges, QuotaAccessor, count_quotas, has_quotas};
pub(crate) use service_address::{DNS as DNS_ADDRESS, SERVER as SERVER_ADDRESS};

/// The write that admission plugins check. Upstream: `admission.Attributes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdmissionAttributes<'a> {
    /// The object written. Its name is empty on a create with `generateName`.
    pub(crate) target: &'a Target,
    pub(crate) operation: Operation<'a>,
}

/// The verb of the write, with the stored object on an update. Upstream: `admission.Operation`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation<'a> {
    Create,
    Update { old: &'a Value },
    Delete,
}

/// Runs the admission plugins of a write. Holds their configuration and the addresses, ports and quota charges in
/// flight. Upstream: `chainAdmissionHandler`.
#[derive(Debug)]
pub(crate) struct Admission {
    storage: Arc<ObjectStorage>,
    access: Arc<Access>,
    metrics: Arc<Metrics>,
    service_addresses: service_address::Addresses,
    pub(crate) pod_ranges: PodRanges,
    pub(crate) charges: Charges,
    pub(crate) external_ips: external_ips::Allowed,
    pub(crate) pod_security: pod_security::Settings,
}

impl Admission {
    pub(crate) fn new(storage: Arc<ObjectStorage>, access: Arc<Access>, metrics: Arc<Metrics>) -> Self {
        Self {
            storage,
            access,
            metrics,
            service_addresses: service_address::Addresses::default(),
            pod_ranges: PodRanges::default(),
            charges: Charges::default(),
            external_ips: external_ips::Allowed::default(),
            pod_security: pod_security::Settings::default(),
        }
    }

    /// Mutating admission. Runs before server-owned fields are set and before validation. `object` is null for a
    /// delete.
    pub(crate) async fn mutate(
        &self,
        context: &Context,
        attributes: AdmissionAttributes<'_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        namespace_lifecycle::admit(self, attributes, object)?;
        complete_write(context.now, attributes, object);
        if matches!(attributes.operation, Operation::Delete)
            || attributes.target.subresource != Subresource::Whole
        {
            return Ok(());
        }
        for plugin in attributes.target.kind.plugins {
            match plugin {
                AdmissionPlugin::LimitRanger => limit_ranger::mutate(self, attributes, object),
                AdmissionPlugin::ServiceAccount => service_account::mutate(self, attributes, object).await?,
                AdmissionPlugin::NodeTaint => node_taint::mutate(attributes, object),
                AdmissionPlugin::PodRange => pod_range::mutate(self, context, attributes, object)?,
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

    /// Checks again that the namespace exists and is not terminating, after a namespace has changed during the request.
    pub(crate) fn check_namespace(
        &self,
        attributes: AdmissionAttributes<'_>,
        object: &Value,
    ) -> Result<(), ApiError> {
        namespace_lifecycle::admit(self, attributes, object)
    }

    /// Validating admission. Runs last, on the object as it would be stored; `object` is null for a delete. Quota usage
    /// of the namespace is not recalculated while the returned charge exists.
    pub(crate) async fn validate(
        &self,
        quotas: &dyn QuotaAccessor,
        context: &Context,
        attributes: AdmissionAttributes<'_>,
        object: &Value,
    ) -> Result<Option<Charge>, ApiError> {
        self.check_write(&context.user, attributes, object)?;
        if matches!(attributes.operation, Operation::Delete) {
            return Ok(None);
        }
        let is_whole = attributes.target.subresource == Subresource::Whole;
        for plugin in attributes.target.kind.plugins {
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
        resource_quota::charge(self, quotas, context, attributes, object).await
    }

    /// Checks writes that could escalate privileges: RBAC rules, certificate signing requests, writes by nodes, and
    /// revocations. `new` is null for a delete.
    pub(crate) fn check_write(
        &self,
        user: &User,
        attributes: AdmissionAttributes<'_>,
        new: &Value,
    ) -> Result<(), ApiError> {
        let target = attributes.target;
        let subresource = target.kind.name_of(target.subresource);
        let (write, old) = match attributes.operation {
            Operation::Create => (node_restriction::NodeWrite::Create { new }, None),
            Operation::Update { old } => (node_restriction::NodeWrite::Update { new, old }, Some(old)),
            Operation::Delete => (node_restriction::NodeWrite::Delete, None),
        };
        node_restriction::check(&self.access, user, target, subresource, write)?;
        revoked::check(user, target, new)?;
        if matches!(attributes.operation, Operation::Delete) {
            return Ok(());
        }
        match target.kind.group {
            RBAC => rbac_escalation::check(&self.access, user, target, new, old),
            certificate_approval::GROUP => {
                certificate_approval::check(&self.access, user, target, subresource, new, old)
            }
            _ => Ok(()),
        }
    }
}

/// Sets timestamps that the server owns: of conditions in signing requests, and of revocations.
fn complete_write(now: Timestamp, attributes: AdmissionAttributes<'_>, new: &mut Value) {
    if let Operation::Update { old } = attributes.operation
        && attributes.target.kind.group == certificate_approval::GROUP
        && attributes.target.subresource != Subresource::Whole
    {
        certificate_approval::date_conditions(now, new, old);
    }
    // The request may have been queued, and certificates issued since it arrived.
    revoked::complete(now.max(Timestamp::now()), attributes.target, new);
}

impl AdmissionAttributes<'_> {
    fn is_create(&self) -> bool {
        matches!(self.operation, Operation::Create)
    }

    fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or_default()
    }

    /// Returns a 403 error: `pods "p" is forbidden: …`. An object without a name is named by its `generateName` prefix.
    fn forbid(&self, object: &Value, why: &str) -> ApiError {
        let names =
            [&self.target.name, str_at(object, "metadata.name"), str_at(object, "metadata.generateName")];
        let name = names.into_iter().find(|it| !it.is_empty()).unwrap_or("Unknown");
        ApiError::forbidden(self.target.kind, name, why)
    }
}
