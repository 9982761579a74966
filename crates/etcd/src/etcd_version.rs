//! The version of an etcd member, and the check that the version is supported.

use std::fmt;

/// The version of an etcd member, such as 3.5.28.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EtcdVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl EtcdVersion {
    /// Parses a version such as `3.5.28`. A suffix such as `-rc.0` is ignored. Returns `None` if the text does not
    /// begin with three numbers.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(['.', '-', '+']).map(|it| it.parse().ok());
        Some(Self { major: numbers.next()??, minor: numbers.next()??, patch: numbers.next()?? })
    }

    /// Whether this version is supported. Unsupported versions lose watch events or answer reads with stale data. These
    /// versions are supported:
    /// - 3.5.28 and later versions of 3.5,
    /// - 3.6.9 and later versions of 3.6,
    /// - 3.7 and all later versions.
    pub fn is_supported(self) -> bool {
        match (self.major, self.minor) {
            (3, 5) => 28 <= self.patch,
            (3, 6) => 9 <= self.patch,
            (3, minor) => 7 <= minor,
            (major, _) => 3 < major,
        }
    }
}

impl fmt::Display for EtcdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_known_bugs_are_not_supported() {
        let is_supported = |text: &str| EtcdVersion::parse(text).unwrap().is_supported();
        for text in ["3.4.23", "3.5.27", "3.6.8", "2.3.8"] {
            assert!(!is_supported(text), "{text}");
        }
        for text in ["3.5.28", "3.6.9", "3.7.0-rc.1", "4.0.0"] {
            assert!(is_supported(text), "{text}");
        }
        assert_eq!(EtcdVersion::parse("latest"), None);
    }
}
