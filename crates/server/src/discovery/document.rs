//! Documents that do not change while the server runs. Each is built on first use and kept as bytes, with its hash as
//! ETag.

use bytes::Bytes;
use ring::digest::{SHA256, digest};

/// A discovery or OpenAPI document that does not change while the server runs.
#[derive(Debug)]
pub(crate) struct StaticDocument {
    pub(crate) media_type: &'static str,
    pub(crate) bytes: Bytes,
    /// SHA-256 of the content, sent as the ETag. A client compares it to see whether its copy is current.
    pub(crate) hash: String,
}

impl StaticDocument {
    pub(crate) fn new(media_type: &'static str, content: impl Into<Bytes>) -> Self {
        let bytes = content.into();
        let hash = digest(&SHA256, &bytes).as_ref().iter().map(|it| format!("{it:02X}")).collect();
        Self { media_type, bytes, hash }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn the_hash_is_of_the_content() {
        let hash = |content: &'static str| StaticDocument::new("text/plain", content).hash;
        expect!["E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"].assert_eq(&hash(""));
        assert_ne!(hash("a"), hash("b"));
    }
}
