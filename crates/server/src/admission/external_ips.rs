//! Restricts `spec.externalIPs` of Services to the ranges allowed by the operator. Upstream: the admission plugin
//! `DenyServiceExternalIPs`, which is off by default, and which refuses all new external IPs.

use std::net::Ipv4Addr;
use std::sync::{PoisonError, RwLock};

use muster_api::cidr::Ipv4Cidr;
use serde_json::Value;

use super::AdmissionChain;
use super::{AdmissionAttributes, AdmissionOperation};
use crate::error::ApiError;
use crate::small_map::SmallSet;
use crate::unstructured::list_at;

/// The address ranges given with `--allow-external-ips`, IPv4 only like all addresses of Services. If there are none,
/// no external IPs can be added to a Service.
#[derive(Debug, Default)]
pub(crate) struct AllowedExternalIps(RwLock<Vec<Ipv4Cidr>>);

impl AllowedExternalIps {
    /// Replaces the allowed ranges.
    pub(crate) fn set_ranges(&self, ranges: Vec<Ipv4Cidr>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = ranges;
    }

    /// Whether the text is an IPv4 address in one of the allowed ranges.
    fn contains(&self, address: &str) -> bool {
        let Ok(address) = address.parse::<Ipv4Addr>() else { return false };
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().any(|it| it.contains(address))
    }
}

/// Parses the value of `--allow-external-ips`. Fails with a message that names the first invalid range.
pub(crate) fn parse_external_ip_ranges(ranges: &[String]) -> Result<Vec<Ipv4Cidr>, String> {
    let ranges = ranges.iter().map(|it| {
        Ipv4Cidr::parse(it).map_err(|_| format!("{it:?} is not an IPv4 CIDR range such as 192.0.2.0/24"))
    });
    ranges.collect()
}

/// Checks the external IPs that a write adds to a Service.
///
/// Rule: a Service may add only external IPs in the ranges of `--allow-external-ips`. A Service keeps the external IPs
/// that it already has, so that its other fields can be updated. The service proxy of a node ignores external IPs that
/// are outside the ranges of its own `--allow-external-ips`.
pub(super) fn validate(
    admission: &AdmissionChain,
    attributes: AdmissionAttributes<'_>,
    service: &Value,
) -> Result<(), ApiError> {
    let before = match attributes.operation {
        AdmissionOperation::Update { old } => list_at(&old["spec"], "externalIPs"),
        AdmissionOperation::Create | AdmissionOperation::Delete => &[],
    };
    let before: SmallSet<&Value> = before.iter().collect();
    let added = list_at(&service["spec"], "externalIPs").iter().filter(|it| !before.contains(it));
    let refused: Vec<&str> =
        added.filter_map(Value::as_str).filter(|it| !admission.external_ips.contains(it)).collect();
    if refused.is_empty() {
        return Ok(());
    }
    let refused = refused.join(", ");
    let why = format!("spec.externalIPs {refused}: not in a range allowed by --allow-external-ips");
    Err(attributes.forbidden(service, &why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_ipv4_addresses() {
        let allowed = AllowedExternalIps::default();
        assert!(!allowed.contains("192.0.2.7"), "none is allowed by default");
        let ranges = ["192.0.2.0/28".to_owned(), "198.51.100.0/24".to_owned()];
        allowed.set_ranges(parse_external_ip_ranges(&ranges).unwrap());
        let asked = ["192.0.2.7", "192.0.2.16", "198.51.100.1", "2001:db8::1", "::ffff:192.0.2.7", "x"];
        assert_eq!(asked.map(|it| allowed.contains(it)), [true, false, true, false, false, false]);
    }

    #[test]
    fn invalid_ranges_are_refused() {
        let wrong = ["192.0.2.1", "192.0.2.1/24", "192.0.2.0/33", "192.0.2.0/+24", "x/8", "2001:db8::/32"];
        for range in wrong {
            let message = format!("{range:?} is not an IPv4 CIDR range such as 192.0.2.0/24");
            assert_eq!(parse_external_ip_ranges(&[range.to_owned()]), Err(message));
        }
    }
}
