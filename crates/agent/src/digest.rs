//! SHA-256 digests as text.

/// Returns the digest of the content, in the form `sha256:HEX`.
pub(crate) fn sha256_digest(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    format!("sha256:{}", format_hex(digest.as_ref()))
}

/// Formats bytes as lower-case hexadecimal digits.
pub(crate) fn format_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}
