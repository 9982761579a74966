//! Syntax of the strings in the kinds of `muster.dev`. The JSON schemas contain the patterns. The validation uses
//! functions of this module or of [`names`](crate::names) that accept the same strings.

#[cfg(feature = "schema")]
use alloc::borrow::ToOwned as _;

#[cfg(feature = "schema")]
use schemars::Schema;
#[cfg(feature = "schema")]
use serde_json::json;

/// Maximum length of a DNS label, of a label value and of the hash of a revision.
pub const LABEL_LENGTH_MAX: usize = 63;
/// Maximum length of a DNS subdomain, and of a key of a Secret or ConfigMap.
pub const SUBDOMAIN_LENGTH_MAX: usize = 253;
/// Maximum length of a label key: a prefix, a slash and a name.
pub const LABEL_KEY_LENGTH_MAX: usize = SUBDOMAIN_LENGTH_MAX + 1 + LABEL_LENGTH_MAX;
/// Maximum length of a time zone name. The longest name of the IANA database has 32 characters.
pub const TIME_ZONE_LENGTH_MAX: usize = 64;
/// Maximum length of the URL of a check.
pub const URL_LENGTH_MAX: usize = 2048;
/// Maximum length of a duration as text. The longest common form, `720h0m0.000000000s`, has 18 characters.
pub const DURATION_LENGTH_MAX: usize = 32;

/// Regular expression for a DNS label.
pub const DNS_LABEL_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Regular expression for a DNS subdomain.
pub const DNS_SUBDOMAIN_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Regular expression for a label value, which may be empty.
pub const LABEL_VALUE_PATTERN: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// Regular expression for a label value that is not empty.
pub const NON_EMPTY_LABEL_VALUE_PATTERN: &str = "^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
/// Regular expression for a label key. It does not limit the lengths of the prefix and the name.
pub const LABEL_KEY_PATTERN: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
/// Regular expression for the lengths of the prefix and the name of a label key, which [`LABEL_KEY_PATTERN`] does not
/// limit.
pub const LABEL_KEY_LENGTHS_PATTERN: &str = "^([^/]{1,253}/)?[^/]{1,63}$";
/// Regular expression for a key of a Secret or ConfigMap.
pub const CONFIG_KEY_PATTERN: &str = r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$";
/// Regular expression for a time of day as `HH:MM`.
pub const CLOCK_TIME_PATTERN: &str = "^([01][0-9]|2[0-3]):[0-5][0-9]$";
/// Regular expression for an IANA time zone name.
pub const TIME_ZONE_PATTERN: &str = "^[A-Za-z][-+_A-Za-z0-9]*(/[-+_A-Za-z0-9]+)*$";
/// Regular expression for a URL with the scheme `http` or `https`.
pub const URL_PATTERN: &str = r"^https?://[A-Za-z0-9\[][!-~]*$";
/// Regular expression for a duration as Go's `time.ParseDuration` accepts it, without negative durations.
pub const DURATION_PATTERN: &str = r"^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";
/// Regular expression for a percentage from 1% to 100%.
pub const PERCENT_PATTERN: &str = "^(100|[1-9][0-9]?)%$";
/// Regular expression for the percentage of faulty nodes that a policy allows, from 0% to 50%.
pub const FAILURE_PERCENT_PATTERN: &str = "^(50|[1-4]?[0-9])%$";
/// Regular expression for an approved step: the name of a step, or `*` for all steps.
pub const APPROVED_STEP_PATTERN: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?|\*)$";

/// Limits a string in a JSON schema to label keys.
#[cfg(feature = "schema")]
pub fn label_key_schema(schema: &mut Schema) {
    limit_string(schema, LABEL_KEY_LENGTH_MAX, LABEL_KEY_PATTERN);
    schema.insert("allOf".to_owned(), json!([{"pattern": LABEL_KEY_LENGTHS_PATTERN}]));
}

/// Limits a string in a JSON schema to DNS subdomains.
#[cfg(feature = "schema")]
pub fn dns_subdomain_schema(schema: &mut Schema) {
    limit_string(schema, SUBDOMAIN_LENGTH_MAX, DNS_SUBDOMAIN_PATTERN);
}

/// Limits a string in a JSON schema to keys of a Secret or ConfigMap.
#[cfg(feature = "schema")]
pub fn config_key_schema(schema: &mut Schema) {
    limit_string(schema, SUBDOMAIN_LENGTH_MAX, CONFIG_KEY_PATTERN);
}

/// Limits the length of a string in a JSON schema, and its form to a regular expression.
#[cfg(feature = "schema")]
fn limit_string(schema: &mut Schema, length_max: usize, pattern: &str) {
    schema.insert("maxLength".to_owned(), length_max.into());
    schema.insert("pattern".to_owned(), pattern.into());
}

/// Parses a time of day as `HH:MM`. Returns the minutes since midnight, or `None` for any other text.
pub fn parse_clock_time(text: &str) -> Option<u16> {
    let &[h1, h2, b':', m1, m2] = text.as_bytes() else { return None };
    let number = |tens: u8, ones: u8| {
        let are_digits = tens.is_ascii_digit() && ones.is_ascii_digit();
        are_digits.then(|| u16::from(tens - b'0') * 10 + u16::from(ones - b'0'))
    };
    let (hour, minute) = (number(h1, h2)?, number(m1, m2)?);
    (hour < 24 && minute < 60).then_some(hour * 60 + minute)
}

/// Whether the text has the syntax of an IANA time zone name. Does not check that the time zone exists.
pub fn is_time_zone_name(text: &str) -> bool {
    let is_part =
        |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_alphanumeric() || b"-+_".contains(&it));
    text.len() <= TIME_ZONE_LENGTH_MAX
        && text.starts_with(|it: char| it.is_ascii_alphabetic())
        && text.split('/').all(is_part)
}

/// Whether the text is a URL with the scheme `http` or `https` of at most [`URL_LENGTH_MAX`] bytes. Checks only that
/// the host begins with a letter, a digit or `[`, and that all characters are printable ASCII other than spaces.
pub fn is_http_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let has_host = |it: &str| it.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '[');
    text.len() <= URL_LENGTH_MAX
        && rest.is_some_and(|it| has_host(it) && it.bytes().all(|it| it.is_ascii_graphic()))
}
