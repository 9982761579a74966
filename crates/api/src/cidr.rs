//! Ranges of IP addresses in CIDR notation, such as `10.244.1.0/24`.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// A range of IPv4 addresses in CIDR notation.
pub type Ipv4Cidr = Cidr<Ipv4Addr>;

/// A range of IPv4 or IPv6 addresses in CIDR notation.
pub type IpCidr = Cidr<IpAddr>;

/// A range of IP addresses: all addresses that begin with the same prefix. Its text is `ADDRESS/LENGTH`, for example
/// `10.244.1.0/24` or `2001:db8::/32`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cidr<A> {
    /// The first address of the range. The bits after the prefix are zero.
    first: A,
    /// Length of the prefix in bits.
    prefix_length: u8,
}

/// Why a text is not a CIDR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CidrError {
    /// The text is not an IP address of the expected family and the length of a prefix.
    Format,
    /// The address has bits set after the prefix.
    HostBits,
}

/// The messages of upstream's validation.
impl fmt::Display for CidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            Self::HostBits => "must not have bits set beyond the prefix length",
        })
    }
}

impl core::error::Error for CidrError {}

/// A type of IP address: `Ipv4Addr`, `Ipv6Addr`, or `IpAddr` for addresses of either family.
pub trait Address: Copy + Eq + FromStr {
    /// Returns the address with the bits after the first `prefix_length` bits cleared. `None` if the address has fewer
    /// than `prefix_length` bits.
    fn network(self, prefix_length: u8) -> Option<Self>;
}

impl Address for Ipv4Addr {
    fn network(self, prefix_length: u8) -> Option<Self> {
        let host_bits = Self::BITS.checked_sub(prefix_length.into())?;
        Some(Self::from_bits(self.to_bits() & u32::MAX.checked_shl(host_bits).unwrap_or(0)))
    }
}

impl Address for Ipv6Addr {
    fn network(self, prefix_length: u8) -> Option<Self> {
        let host_bits = Self::BITS.checked_sub(prefix_length.into())?;
        Some(Self::from_bits(self.to_bits() & u128::MAX.checked_shl(host_bits).unwrap_or(0)))
    }
}

impl Address for IpAddr {
    fn network(self, prefix_length: u8) -> Option<Self> {
        match self {
            Self::V4(it) => it.network(prefix_length).map(Self::V4),
            Self::V6(it) => it.network(prefix_length).map(Self::V6),
        }
    }
}

impl<A: Address> Cidr<A> {
    /// Parses a CIDR. Fails if the address has bits set after the prefix. Upstream: `IsValidCIDR`.
    pub fn parse(text: &str) -> Result<Self, CidrError> {
        let (address, length) = text.split_once('/').ok_or(CidrError::Format)?;
        // `u8::from_str` also accepts a sign.
        if length.starts_with('+') {
            return Err(CidrError::Format);
        }
        let address: A = address.parse().map_err(|_| CidrError::Format)?;
        let length = length.parse().map_err(|_| CidrError::Format)?;
        let cidr = Self::containing(address, length).ok_or(CidrError::Format)?;
        if cidr.first == address { Ok(cidr) } else { Err(CidrError::HostBits) }
    }

    /// Returns the CIDR that contains the address and has a prefix of `prefix_length` bits. `None` if the address has
    /// fewer bits.
    pub fn containing(address: A, prefix_length: u8) -> Option<Self> {
        Some(Self { first: address.network(prefix_length)?, prefix_length })
    }

    /// Returns the length of the prefix in bits.
    pub const fn prefix_length(self) -> u8 {
        self.prefix_length
    }

    /// Whether the address is in the CIDR. An address of the other IP family is not.
    pub fn contains(self, address: A) -> bool {
        address.network(self.prefix_length) == Some(self.first)
    }

    /// Whether the two CIDRs have an address in common.
    pub fn overlaps(self, other: Self) -> bool {
        let (wide, narrow) =
            if self.prefix_length < other.prefix_length { (self, other) } else { (other, self) };
        wide.contains(narrow.first)
    }
}

impl Ipv4Cidr {
    /// Creates a CIDR from its first address and the length of its prefix. Panics if the prefix is longer than 32 bits,
    /// or if the address has bits set after the prefix.
    pub const fn new(first: Ipv4Addr, prefix_length: u8) -> Self {
        assert!(prefix_length <= 32 && 32 <= first.to_bits().trailing_zeros() + prefix_length as u32);
        Self { first, prefix_length }
    }

    /// Returns the address that is `offset` addresses after the first. Does not check that it is in the CIDR.
    pub fn nth(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first.to_bits().wrapping_add(offset))
    }

    /// Returns how many addresses after the first the address is, or `None` if it is not in the CIDR.
    pub fn offset_of(self, address: Ipv4Addr) -> Option<u32> {
        self.contains(address).then(|| address.to_bits() - self.first.to_bits())
    }
}

impl<A: fmt::Display> fmt::Display for Cidr<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix_length)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_networks_in_cidr_notation_are_parsed() {
        for text in ["0.0.0.0/0", "::/0", "192.0.2.1/32", "10.244.1.0/24", "2001:db8::/32", "::1/128"] {
            assert_eq!(IpCidr::parse(text).unwrap().to_string(), text);
        }
        let refused = [
            "",
            "x",
            "x/8",
            "192.0.2.1",
            "192.0.2.0/",
            "192.0.2.0/+24",
            "192.0.2.0/-1",
            "192.0.2.0/33",
            "192.0.2.0/256",
            "192.0.2.0/24/1",
            "010.0.0.0/8",
            "::1/129",
        ];
        for text in refused {
            assert_eq!(IpCidr::parse(text), Err(CidrError::Format), "{text}");
        }
        for text in ["192.0.2.1/24", "0.0.0.1/0", "2001:db8::1/64", "::1/0"] {
            assert_eq!(IpCidr::parse(text), Err(CidrError::HostBits), "{text}");
        }
        assert_eq!(Ipv4Cidr::parse("2001:db8::/32"), Err(CidrError::Format));
    }

    #[test]
    fn a_cidr_contains_only_addresses_of_its_family() {
        let contains =
            |range: &str, address: &str| IpCidr::parse(range).unwrap().contains(address.parse().unwrap());
        assert!(contains("0.0.0.0/0", "255.255.255.255") && contains("::/0", "::ffff:192.0.2.7"));
        assert!(!contains("0.0.0.0/0", "::") && !contains("::/0", "0.0.0.0"));
        assert!(contains("192.0.2.0/28", "192.0.2.15") && !contains("192.0.2.0/28", "192.0.2.16"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1") && !contains("2001:db8::/32", "2001:db9::"));
    }

    #[test]
    fn an_address_is_found_by_its_offset() {
        let range = Ipv4Cidr::new(Ipv4Addr::new(10, 96, 0, 0), 16);
        assert_eq!(
            (range.nth(258), range.offset_of(range.nth(258))),
            (Ipv4Addr::new(10, 96, 1, 2), Some(258))
        );
        assert_eq!(range.offset_of(Ipv4Addr::new(10, 97, 0, 0)), None);
        assert_eq!(range.offset_of(Ipv4Addr::new(10, 95, 255, 255)), None);
    }

    proptest! {
        #[test]
        fn cidrs_overlap_if_they_have_a_common_address(one: u8, other: u8, bits in (24u8..=32, 24u8..=32)) {
            let cidr = |last, bits| Ipv4Cidr::containing(Ipv4Addr::new(192, 0, 2, last), bits).unwrap();
            let (one, other) = (cidr(one, bits.0), cidr(other, bits.1));
            let both = |it: u8| {
                let address = Ipv4Addr::new(192, 0, 2, it);
                one.contains(address) && other.contains(address)
            };
            prop_assert_eq!(one.overlaps(other), (0..=u8::MAX).any(both));
            prop_assert_eq!(Ipv4Cidr::parse(&one.to_string()), Ok(one));
        }
    }
}
