//! What the server makes of an object beyond its own defaults and checks, by what else there is in the store. Upstream
//! calls each of these a plugin; a kind's row names those that concern it, in upstream's order.

mod app_armor;
mod certificate_requester;
mod external_ips;
mod limit_ranger;
mod namespace_lifecycle;
mod node_address;
mod node_taint;
mod pod_range;
mod pod_security;
mod priority;
mod resource_quota;
mod resources;
mod runtime_class;
mod service_account;
mod service_address;
mod toleration_seconds;

use serde_json::Value;

use crate::auth;
use crate::context::Context;
use crate::object::str_at;
use crate::refusal::Refusal;
use crate::registry::Registry;
use crate::route::{Part, Target};

pub(crate) use pod_range::PodRanges;
pub(crate) use pod_security::Subject;
pub use pod_security::{Level, LevelVersion, PodSecurity, Version};
pub(crate) use resource_quota::{Charge, Charges, count_quotas, has_quotas};
pub(crate) use service_address::{DNS as DNS_ADDRESS, SERVER as SERVER_ADDRESS};

/// A write that asks to be admitted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt<'a> {
    /// Its name is empty where it is still to be generated.
    pub(crate) target: &'a Target,
    pub(crate) operation: Operation<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation<'a> {
    Create,
    Update { old: &'a Value },
    Delete,
}

/// What concerns some kinds only. A namespace's life and quotas concern every kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plugin {
    LimitRanger,
    ServiceAccount,
    NodeTaint,
    NodeAddress,
    PodRange,
    Priority,
    TolerationSeconds,
    RuntimeClass,
    CertificateRequester,
    ServiceAddress,
    ExternalIps,
    AppArmor,
    PodSecurity(Subject),
}

/// What admission remembers from one request to the next.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    addresses: service_address::Addresses,
    ranges: pod_range::PodRanges,
    charges: resource_quota::Charges,
    external_ips: external_ips::Allowed,
    pod_security: pod_security::Settings,
}

impl Memory {
    pub(crate) fn charges(&self) -> &Charges {
        &self.charges
    }

    pub(crate) fn external_ips(&self) -> &external_ips::Allowed {
        &self.external_ips
    }

    pub(crate) fn pod_ranges(&self) -> &PodRanges {
        &self.ranges
    }

    pub(crate) fn pod_security(&self) -> &pod_security::Settings {
        &self.pod_security
    }
}

/// Runs before the server's own fields are set, and before any check. `object` is null for a delete.
pub(crate) async fn mutate(
    registry: &Registry,
    context: &Context,
    attempt: Attempt<'_>,
    object: &mut Value,
) -> Result<(), Refusal> {
    namespace_lifecycle::admit(registry, attempt, object)?;
    auth::complete_write(context.now, attempt, object);
    if matches!(attempt.operation, Operation::Delete) || attempt.target.part != Part::Whole {
        return Ok(());
    }
    for plugin in attempt.target.kind.plugins {
        match plugin {
            Plugin::LimitRanger => limit_ranger::mutate(registry, attempt, object),
            Plugin::ServiceAccount => service_account::mutate(registry, attempt, object).await?,
            Plugin::NodeTaint => node_taint::mutate(attempt, object),
            Plugin::PodRange => pod_range::mutate(registry, context, attempt, object)?,
            Plugin::Priority => priority::mutate(registry, attempt, object)?,
            Plugin::TolerationSeconds => toleration_seconds::mutate(object),
            Plugin::RuntimeClass => runtime_class::mutate(registry, attempt, object)?,
            Plugin::CertificateRequester => certificate_requester::mutate(context, attempt, object),
            Plugin::ServiceAddress => service_address::mutate(registry, context, attempt, object)?,
            Plugin::AppArmor => app_armor::mutate(context, attempt, object),
            Plugin::NodeAddress | Plugin::ExternalIps | Plugin::PodSecurity(_) => {}
        }
    }
    Ok(())
}

/// Once more, because the namespace has changed since.
pub(crate) fn check_namespace(
    registry: &Registry,
    attempt: Attempt<'_>,
    object: &Value,
) -> Result<(), Refusal> {
    namespace_lifecycle::admit(registry, attempt, object)
}

/// Runs last, on the object as it would be stored. `object` is null for a delete. What it charges to quotas is safe from
/// being counted anew for as long as the charge is held.
pub(crate) async fn validate(
    registry: &Registry,
    context: &Context,
    attempt: Attempt<'_>,
    object: &Value,
) -> Result<Option<Charge>, Refusal> {
    auth::check_write(registry, &context.user, attempt, object)?;
    if matches!(attempt.operation, Operation::Delete) {
        return Ok(None);
    }
    let is_whole = attempt.target.part == Part::Whole;
    for plugin in attempt.target.kind.plugins {
        match plugin {
            Plugin::PodSecurity(subject) => {
                pod_security::validate(registry, context, attempt, *subject, object).await?;
            }
            Plugin::NodeAddress => node_address::validate(registry, context, attempt, object)?,
            _ if !is_whole => {}
            Plugin::LimitRanger => limit_ranger::validate(registry, attempt, object)?,
            Plugin::Priority => priority::validate(registry, attempt, object)?,
            Plugin::RuntimeClass => runtime_class::validate(registry, attempt, object)?,
            Plugin::ExternalIps => external_ips::validate(registry, attempt, object)?,
            _ => {}
        }
    }
    if !is_whole {
        return Ok(None);
    }
    resource_quota::charge(registry, context, attempt, object).await
}

/// The write that was admitted came through.
pub(crate) fn spent(charge: Option<Charge>) {
    if let Some(mut charge) = charge {
        charge.spend();
    }
}

impl Attempt<'_> {
    fn is_create(&self) -> bool {
        matches!(self.operation, Operation::Create)
    }

    fn namespace(&self) -> &str {
        self.target.namespace.as_deref().unwrap_or_default()
    }

    /// `pods "p" is forbidden: …`. An object that has no name yet goes by the prefix of it.
    fn forbid(&self, object: &Value, why: &str) -> Refusal {
        let names =
            [&self.target.name, str_at(object, "metadata.name"), str_at(object, "metadata.generateName")];
        let name = names.into_iter().find(|it| !it.is_empty()).unwrap_or("Unknown");
        Refusal::forbidden(self.target.kind, name, why)
    }
}
