//! Validation of IP addresses and CIDRs.
//!
//! Upstream: `apimachinery/pkg/util/validation/ip.go`.

use std::net::IpAddr;

use muster_api::cidr::IpCidr;

use super::field_error::{ErrorPath, FieldErrors};

/// Upstream's message for a string that is not an IP address.
const NOT_AN_IP_MESSAGE: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// Checks that a string is an IP address, and not an IPv4-mapped IPv6 address.
pub(crate) fn check_ip(text: &str, at: &ErrorPath, out: &mut FieldErrors) {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            out.invalid(at, text, "must not be an IPv4-mapped IPv6 address");
        }
        Ok(_) => {}
        Err(_) if would_be_ip_without_leading_zeros(text) => {
            out.invalid(at, text, "must not have leading 0s")
        }
        Err(_) => out.invalid(at, text, NOT_AN_IP_MESSAGE),
    }
}

/// Whether the string would be an IP address if its parts between dots had no leading zeros. The caller has checked
/// that it is not an IP address. Such an address is refused, because some programs read numbers with leading zeros as
/// octal.
fn would_be_ip_without_leading_zeros(text: &str) -> bool {
    let plain: Vec<_> = text.split('.').map(|it| it.trim_start_matches('0')).collect();
    let plain: Vec<_> = plain.iter().map(|it| if it.is_empty() { "0" } else { it }).collect();
    !text.split('.').any(str::is_empty) && plain.join(".").parse::<IpAddr>().is_ok()
}

/// Checks that a string is a CIDR whose address has no bits set after the prefix.
pub(crate) fn check_cidr(text: &str, at: &ErrorPath, out: &mut FieldErrors) {
    if let Err(why) = IpCidr::parse(text) {
        out.invalid(at, text, &why.to_string());
    }
}

/// Checks that the IP address of an endpoint, or an external IP of a Service, is not unspecified, loopback, link-local
/// or link-local multicast. Upstream: `ValidateNonSpecialIP`.
pub(crate) fn check_non_special_ip(text: &str, at: &ErrorPath, out: &mut FieldErrors) {
    let Ok(ip) = text.parse::<IpAddr>() else {
        return out.invalid(at, text, "must be a valid IP address");
    };
    let (is_link_local, is_link_local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    if ip.is_unspecified() {
        out.invalid(at, text, &format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        out.invalid(at, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if is_link_local {
        out.invalid(at, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if is_link_local_multicast {
        out.invalid(at, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}
