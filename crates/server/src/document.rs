//! What does not change while the server runs: made when first asked for, kept as bytes, known by a hash.

use bytes::Bytes;
use ring::digest::{SHA256, digest};

#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) media_type: &'static str,
    pub(crate) bytes: Bytes,
    /// Of the content: who has it already is not sent it again.
    pub(crate) hash: String,
}

impl Document {
    pub(crate) fn new(media_type: &'static str, content: impl Into<Bytes>) -> Self {
        let bytes = content.into();
        let hash = digest(&SHA256, &bytes).as_ref().iter().map(|it| format!("{it:02X}")).collect();
        Self { media_type, bytes, hash }
    }
}
