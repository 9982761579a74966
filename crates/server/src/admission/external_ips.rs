//! Restricts `spec.externalIPs` of Services to the ranges allowed by the operator. Upstream: the admission plugin
//! `DenyServiceExternalIPs`, which is off by default, and which refuses all new external IPs.

use std::net::IpAddr;
use std::sync::{PoisonError, RwLock};

use serde_json::Value;

use super::AdmissionChain;
use super::{AdmissionAttributes, AdmissionOperation};
use crate::error::ApiError;
use crate::unstructured::list_at;

/// The address ranges given with `--allow-external-ips`. If there are none, no external IPs can be added to a Service.
#[derive(Debug, Default)]
pub(crate) struct AllowedExternalIps(RwLock<Vec<ExternalIpRange>>);

/// A range of IP addresses that Services may use as external IPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ExternalIpRange {
    /// First address of the range.
    first: IpAddr,
    /// Prefix length of the range in bits.
    bits: u8,
}

impl AllowedExternalIps {
    /// Replaces the allowed ranges. Fails with a message that names the first invalid range.
    pub(crate) fn set_ranges(&self, ranges: &[String]) -> Result<(), String> {
        let ranges = ranges.iter().map(|it| {
            ExternalIpRange::parse(it)
                .ok_or_else(|| format!("{it:?} is not an address range such as 192.0.2.0/24"))
        });
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = ranges.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Whether the text is an IP address in one of the allowed ranges.
    fn contains(&self, address: &str) -> bool {
        let Ok(address) = address.parse::<IpAddr>() else { return false };
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().any(|it| it.contains(address))
    }
}

impl ExternalIpRange {
    /// Parses a range in CIDR notation. Returns `None` if the text is not a CIDR or has host bits set.
    fn parse(text: &str) -> Option<Self> {
        let (first, bits) = text.split_once('/')?;
        let range = Self { first: first.parse().ok()?, bits: bits.parse().ok()? };
        let (number, width) = address_as_number(range.first);
        (range.bits <= width && clear_host_bits(number, width, range.bits) == number).then_some(range)
    }

    /// Whether the address is in the range. An address of the other IP family is not.
    fn contains(self, address: IpAddr) -> bool {
        let ((first, width), (number, address_width)) =
            (address_as_number(self.first), address_as_number(address));
        width == address_width && clear_host_bits(number, width, self.bits) == first
    }
}

/// Returns an IP address as a number, and its width in bits: 32 for IPv4, 128 for IPv6.
fn address_as_number(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(it) => (u32::from(it).into(), 32),
        IpAddr::V6(it) => (it.into(), 128),
    }
}

/// Returns `number`, an address of `width` bits, with all bits after the first `bits` cleared.
fn clear_host_bits(number: u128, width: u8, bits: u8) -> u128 {
    let rest = u32::from(width - bits);
    number.checked_shr(rest).unwrap_or(0).checked_shl(rest).unwrap_or(0)
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
    fn ranges_contain_addresses_of_their_family() {
        let allowed = AllowedExternalIps::default();
        assert!(!allowed.contains("192.0.2.7"), "none is allowed by default");
        allowed.set_ranges(&["192.0.2.0/28".to_owned(), "2001:db8::/32".to_owned()]).unwrap();
        let asked = ["192.0.2.7", "192.0.2.16", "2001:db8::1", "2001:db9::1", "::ffff:192.0.2.7", "x"];
        assert_eq!(asked.map(|it| allowed.contains(it)), [true, false, true, false, false, false]);
    }

    #[test]
    fn invalid_ranges_are_refused() {
        let wrong = ["192.0.2.1", "192.0.2.1/24", "192.0.2.0/33", "x/8", "::1/129"];
        let parsed = wrong.map(|it| ExternalIpRange::parse(it).is_some());
        assert_eq!(parsed, [false; 5]);
        assert_eq!(
            ["0.0.0.0/0", "::/0", "192.0.2.1/32"].map(|it| ExternalIpRange::parse(it).is_some()),
            [true; 3]
        );
    }
}
