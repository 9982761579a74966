//! Encodes certificates in PEM.

use alloc::format;
use alloc::string::String;

/// Number of characters in a line of PEM.
const LINE_LENGTH: usize = 64;

/// Encodes a certificate in PEM. `base64` is its DER encoding in Base64.
pub fn certificate_to_pem(base64: &str) -> String {
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = base64;
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE_LENGTH));
        pem.extend([line, "\n"]);
        rest = after;
    }
    format!("{pem}-----END CERTIFICATE-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_at_most_64_characters() {
        for (length, lines) in [(0, &[][..]), (4, &[4]), (64, &[64]), (132, &[64, 64, 4])] {
            let pem = certificate_to_pem(&"A".repeat(length));
            let inner = pem.strip_prefix("-----BEGIN CERTIFICATE-----\n").unwrap();
            let inner = inner.strip_suffix("-----END CERTIFICATE-----\n").unwrap();
            assert!(inner.lines().map(str::len).eq(lines.iter().copied()), "{pem}");
        }
    }
}
