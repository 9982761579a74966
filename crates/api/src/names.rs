//! Syntax of names, label keys and similar strings. Each `…_errors` function returns all error messages for a value, or
//! an empty list if the value is valid.
//!
//! Upstream: `apimachinery/pkg/util/validation` and `pkg/api/validate/content`.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// A function that returns the errors of an object name. Its second argument is `true` if the name is a prefix to which
/// a suffix will be appended (`generateName`).
pub type NameRule = fn(&str, bool) -> Vec<String>;

/// Returns the errors of an object name that must be a DNS subdomain, as for most kinds. Upstream:
/// `NameIsDNSSubdomain`.
pub fn dns_subdomain_name_errors(name: &str, is_prefix: bool) -> Vec<String> {
    dns_subdomain_errors(&mask_trailing_dash(name, is_prefix))
}

/// Returns the errors of an object name that must be a DNS label, as for namespaces. Upstream: `NameIsDNSLabel`.
pub fn dns_label_name_errors(name: &str, is_prefix: bool) -> Vec<String> {
    dns_label_errors(&mask_trailing_dash(name, is_prefix))
}

/// Returns the errors of an object name that only has to be a valid path segment, as for roles and bindings. Upstream:
/// `IsValidPathSegmentName`.
pub fn path_segment_name_errors(name: &str, is_prefix: bool) -> Vec<String> {
    let mut errors = Vec::new();
    if !is_prefix && (name == "." || name == "..") {
        return vec![format!("may not be '{name}'")];
    }
    for part in ["/", "%"] {
        if name.contains(part) {
            errors.push(format!("may not contain '{part}'"));
        }
    }
    errors
}

/// Returns the errors of a string that must be a lowercase RFC 1123 subdomain.
pub fn dns_subdomain_errors(text: &str) -> Vec<String> {
    subdomain_errors(text, "characters")
}

/// Returns the errors of a string that must be a lowercase RFC 1123 label.
pub fn dns_label_errors(text: &str) -> Vec<String> {
    let mut errors = length_errors(text, 63, "characters");
    if !is_dns_label(text) {
        if is_dns_subdomain(text) {
            errors.push("must not contain dots".into());
        } else {
            errors.push(regex_mismatch_message(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                 start and end with an alphanumeric character",
                &["my-name", "123-abc"],
                DNS_LABEL_REGEX,
            ));
        }
    }
    errors
}

/// Returns the errors of a string that must be a DNS subdomain whose labels may contain underscores.
pub fn dns_subdomain_with_underscore_errors(text: &str) -> Vec<String> {
    /// Upstream's regular expression for a label of the subdomain, as the message shows it.
    const SUBDOMAIN_PART_REGEX: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
    let is_part = |it: &str| {
        let it = it.strip_prefix('_').unwrap_or(it);
        it.bytes().all(|b| is_lowercase_or_digit(b) || b == b'-' || b == b'_')
            && has_lowercase_or_digit_ends(it)
    };
    let mut errors = length_errors(text, 253, "characters");
    if !text.split('.').all(is_part) {
        errors.push(regex_mismatch_message(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and \
             must start and end with an alphanumeric character",
            &["example.com"],
            &format!("{SUBDOMAIN_PART_REGEX}(\\.{SUBDOMAIN_PART_REGEX})*"),
        ));
    }
    errors
}

/// Returns the errors of a string that must be a qualified name such as `example.com/name`, for example a label key, a
/// taint key or a finalizer.
pub fn qualified_name_errors(text: &str) -> Vec<String> {
    /// Upstream's message for an invalid qualified name.
    const QUALIFIED_NAME_MESSAGE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                        alphanumeric character";
    /// Upstream's examples of qualified names, as the message shows them.
    const QUALIFIED_NAME_EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];
    /// Upstream's regular expression for the name part of a qualified name, as the message shows it.
    const QUALIFIED_NAME_REGEX: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
    let mut errors = Vec::new();
    let mut parts = text.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".into());
            } else {
                errors.extend(
                    subdomain_errors(prefix, "bytes").into_iter().map(|it| format!("prefix part {it}")),
                );
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                regex_mismatch_message(QUALIFIED_NAME_MESSAGE, QUALIFIED_NAME_EXAMPLES, QUALIFIED_NAME_REGEX)
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".into());
    } else {
        errors.extend(length_errors(name, 63, "bytes").into_iter().map(|it| format!("name part {it}")));
    }
    if name.is_empty() || !is_label_value(name) {
        errors.push(format!(
            "name part {}",
            regex_mismatch_message(QUALIFIED_NAME_MESSAGE, QUALIFIED_NAME_EXAMPLES, QUALIFIED_NAME_REGEX)
        ));
    }
    errors
}

/// Returns the errors of a label value.
pub fn label_value_errors(text: &str) -> Vec<String> {
    let mut errors = length_errors(text, 63, "bytes");
    if !is_label_value(text) {
        errors.push(regex_mismatch_message(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            &["MyValue", "my_value", "12345"],
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
        ));
    }
    errors
}

/// Returns the errors of the name of an environment variable.
pub fn env_name_errors(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".into()];
    }
    if text.bytes().all(|it| (b' '..=b'~').contains(&it) && it != b'=') {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .into(),
    ]
}

/// Returns the errors of a key of a ConfigMap or Secret, which may become a file name.
pub fn config_key_errors(text: &str) -> Vec<String> {
    let mut errors = length_errors(text, 253, "characters");
    let is_inner = |it: u8| it.is_ascii_alphanumeric() || b"-._".contains(&it);
    if text.is_empty() || !text.bytes().all(is_inner) {
        errors.push(regex_mismatch_message(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            &["key.name", "KEY_NAME", "key-name"],
            "[-._a-zA-Z0-9]+",
        ));
    }
    match text {
        "." => errors.push("must not be '.'".into()),
        ".." => errors.push("must not be '..'".into()),
        other if other.starts_with("..") => errors.push("must not start with '..'".into()),
        _ => {}
    }
    errors
}

/// Returns the errors of the name of a port. Upstream: `IsValidPortName`.
pub fn port_name_errors(text: &str) -> Vec<String> {
    let mut errors = length_errors(text, 15, "characters");
    if text.is_empty() || !text.bytes().all(|it| is_lowercase_or_digit(it) || it == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !text.bytes().any(|it| it.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".into());
    }
    if text.contains("--") {
        errors.push("must not contain consecutive hyphens".into());
    }
    if text.starts_with('-') || text.ends_with('-') {
        errors.push("must not begin or end with a hyphen".into());
    }
    errors
}

/// Returns the error of a port number that is not between 1 and 65535.
pub fn port_number_errors(port: i64) -> Vec<String> {
    range_errors(port, 1, 65535)
}

/// Returns the error of a Unix user or group ID that is negative or above 2³¹-1.
pub fn unix_id_errors(id: i64) -> Vec<String> {
    range_errors(id, 0, i64::from(i32::MAX))
}

/// Returns the error of a number that is not between `least` and `most`, inclusive.
pub fn range_errors(number: i64, least: i64, most: i64) -> Vec<String> {
    if (least..=most).contains(&number) {
        return Vec::new();
    }
    vec![format!("must be between {least} and {most}, inclusive")]
}

/// Returns the errors of a string that must be a percentage such as `25%`.
pub fn percent_errors(text: &str) -> Vec<String> {
    if parse_percent(text).is_some() {
        return Vec::new();
    }
    vec![regex_mismatch_message(
        "a valid percent string must be a numeric string followed by an ending '%'",
        &["1%", "93%"],
        "[0-9]+%",
    )]
}

/// Parses a percentage such as `25%`: digits without a sign, and `%`. Returns `None` for other texts. A number above
/// `u64::MAX` becomes `u64::MAX`. Upstream: `IsValidPercent`, `getPercentValue`.
pub fn parse_percent(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('%').filter(|it| !it.is_empty())?;
    digits.bytes().all(|it| it.is_ascii_digit()).then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Returns the errors of an HTTP header name.
pub fn http_header_name_errors(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-') {
        return Vec::new();
    }
    vec![regex_mismatch_message(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        &["X-Header-Name"],
        "[-A-Za-z0-9]+",
    )]
}

/// Formats upstream's message for a string that does not match a regular expression: `<message> (e.g. 'a',  or 'b',
/// regex used for validation is '<form>')`, with upstream's commas and spaces.
pub fn regex_mismatch_message(message: &str, examples: &[&str], form: &str) -> String {
    let examples: Vec<_> = examples.iter().map(|it| format!("'{it}', ")).collect();
    let examples =
        if examples.is_empty() { String::new() } else { format!("e.g. {}", examples.join(" or ")) };
    format!("{message} ({examples}regex used for validation is '{form}')")
}

/// Upstream's regular expression for a DNS label, as messages show it.
const DNS_LABEL_REGEX: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// Returns the errors of a string that must be a DNS subdomain. `unit` is the unit in the message about its length.
fn subdomain_errors(text: &str, unit: &str) -> Vec<String> {
    let mut errors = length_errors(text, 253, unit);
    if !is_dns_subdomain(text) {
        errors.push(regex_mismatch_message(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            &["example.com"],
            &format!("{DNS_LABEL_REGEX}(\\.{DNS_LABEL_REGEX})*"),
        ));
    }
    errors
}

/// Replaces the dash at the end of a `generateName` prefix, and the character before it, with the letter `a`, so that
/// the prefix can be checked like a complete name. The dash is allowed, because a suffix follows it. Returns any other
/// name, and the prefix `-`, unchanged. Upstream: `maskTrailingDash`.
fn mask_trailing_dash(name: &str, is_prefix: bool) -> alloc::borrow::Cow<'_, str> {
    match name.strip_suffix('-') {
        Some(rest) if is_prefix && !rest.is_empty() => {
            // The character before the dash is replaced too, a bug of upstream that clients rely on.
            let end = rest.char_indices().next_back().map_or(0, |(at, _)| at);
            format!("{}a", &rest[..end]).into()
        }
        _ => name.into(),
    }
}

/// Returns the error of a string with more than `bytes_max` bytes. `unit` is the unit in the message. Upstream counts
/// bytes, even if the message says `characters`.
fn length_errors(text: &str, bytes_max: usize, unit: &str) -> Vec<String> {
    if text.len() <= bytes_max {
        Vec::new()
    } else {
        vec![format!("must be no more than {bytes_max} {unit}")]
    }
}

/// Whether the text is a DNS subdomain. Its length is not checked.
fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

/// Whether the text is a DNS label. Its length is not checked.
fn is_dns_label(text: &str) -> bool {
    text.bytes().all(|it| is_lowercase_or_digit(it) || it == b'-') && has_lowercase_or_digit_ends(text)
}

/// Whether the text is not empty and its first and last byte are lowercase letters or digits.
fn has_lowercase_or_digit_ends(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|&it| is_lowercase_or_digit(it))
        && bytes.last().is_some_and(|&it| is_lowercase_or_digit(it))
}

fn is_lowercase_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Whether the text is a label value. Its length is not checked.
fn is_label_value(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_inner = |it: &u8| it.is_ascii_alphanumeric() || b"-_.".contains(it);
    bytes.iter().all(is_inner)
        && bytes.first().is_none_or(u8::is_ascii_alphanumeric)
        && bytes.last().is_none_or(u8::is_ascii_alphanumeric)
}

/// Characters of random names: consonants without `y`, and digits without 0, 1 and 3. So random names form no words.
/// Upstream: `alphanums` of `k8s.io/apimachinery/pkg/util/rand`.
const RANDOM_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns `length` random characters, of which each has 4.75 bits of entropy. `uuids` are random UUIDs (version 4).
pub fn random_string(uuids: impl Iterator<Item = [u8; 16]>, length: usize) -> String {
    // Rejection sampling: bytes from 243 (9 × 27) on, and the bytes of a UUID with fixed bits, would bias the result.
    let fair = |(at, byte): &(usize, u8)| !matches!(at, 6 | 8) && *byte < 243;
    let bytes = uuids.flat_map(|it| it.into_iter().enumerate().filter(fair));
    bytes.take(length).map(|(_, byte)| char::from(RANDOM_ALPHABET[usize::from(byte) % 27])).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(rule: fn(&str) -> Vec<String>, texts: &[&str], golden: &Expect) {
        let said: Vec<_> = texts.iter().map(|it| format!("{it}: {}", rule(it).join("; "))).collect();
        golden.assert_eq(&said.join("\n"));
    }

    #[test]
    fn names_of_objects() {
        check(
            dns_subdomain_errors,
            &["a", "a.b-c.1", "A", "a..b", "-a", ""],
            &expect![[r#"
                a: 
                a.b-c.1: 
                A: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
                a..b: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
                -a: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
                : a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
        );
        check(
            dns_label_errors,
            &["a-1", "a.b", "_"],
            &expect![[r#"
                a-1: 
                a.b: must not contain dots
                _: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#]],
        );
        assert_eq!(dns_subdomain_name_errors("web-", true), Vec::<String>::new());
        assert_eq!(dns_subdomain_name_errors("web-", false).len(), 1);
        assert_eq!(
            dns_subdomain_name_errors(&"a".repeat(254), false),
            ["must be no more than 253 characters"]
        );
        assert_eq!(path_segment_name_errors("a/b:%", false), ["may not contain '/'", "may not contain '%'"]);
    }

    #[test]
    fn percentages_have_digits_only() {
        for (text, percent) in
            [("0%", 0), ("5%", 5), ("007%", 7), ("250%", 250), ("99999999999999999999%", u64::MAX)]
        {
            assert_eq!(parse_percent(text), Some(percent), "{text}");
            assert_eq!(percent_errors(text), Vec::<String>::new(), "{text}");
        }
        for text in ["", "%", "5", "+5%", "-5%", "5%%", " 5%", "5 %", "1.5%"] {
            assert_eq!(parse_percent(text), None, "{text}");
            assert_eq!(percent_errors(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn keys_and_values_of_labels() {
        check(
            qualified_name_errors,
            &["app", "example.com/App_1.x", "/a", "a/", "a/b/c", "a b", "E.com/a"],
            &expect![[r#"
                app: 
                example.com/App_1.x: 
                /a: prefix part must be non-empty
                a/: name part must be non-empty; name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
                a/b/c: a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')
                a b: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
                E.com/a: prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
        );
        check(
            label_value_errors,
            &["", "v1.2_x", "-v"],
            &expect![[r#"
                : 
                v1.2_x: 
                -v: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#]],
        );
        assert_eq!(label_value_errors(&"v".repeat(64)), ["must be no more than 63 bytes"]);
    }

    #[test]
    fn random_strings_use_only_unbiased_bytes() {
        let uuids = [[0, 26, 27, 242, 243, 255, 1, 2, 3, 243, 243, 243, 243, 243, 243, 4], [5; 16]];
        assert_eq!(random_string(uuids.into_iter(), 7), "b9b9dgh");
        assert_eq!(random_string(core::iter::repeat([7; 16]), 20), "k".repeat(20));
    }
}
