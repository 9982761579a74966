//! Syntax of strings. The schemas have the patterns; a function here or in [`names`](crate::names) accepts the same.

/// Maximum length of a DNS label, a label value and a revision.
pub const LABEL_LENGTH_MAX: usize = 63;
/// Maximum length of a DNS subdomain, and of a key of a Secret or ConfigMap.
pub const SUBDOMAIN_LENGTH_MAX: usize = 253;
/// Maximum length of a label key: a prefix, a slash and a name.
pub const LABEL_KEY_LENGTH_MAX: usize = SUBDOMAIN_LENGTH_MAX + 1 + LABEL_LENGTH_MAX;
/// Maximum length of a time zone name. The longest name of the IANA database has 32 characters.
pub const TIME_ZONE_LENGTH_MAX: usize = 64;
pub const URL_LENGTH_MAX: usize = 2048;
/// Maximum length of a duration; `720h0m0.000000000s` has 18 characters.
pub const DURATION_LENGTH_MAX: usize = 32;

pub const DNS_LABEL_PATTERN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
pub const DNS_SUBDOMAIN_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
pub const LABEL_VALUE_PATTERN: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
pub const NON_EMPTY_LABEL_VALUE_PATTERN: &str = "^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
pub const LABEL_KEY_PATTERN: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
/// The lengths of both parts of a label key, which [`LABEL_KEY_PATTERN`] does not limit.
pub const LABEL_KEY_LENGTHS_PATTERN: &str = "^([^/]{1,253}/)?[^/]{1,63}$";
pub const CONFIG_KEY_PATTERN: &str = r"^\.?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$";
pub const CLOCK_TIME_PATTERN: &str = "^([01][0-9]|2[0-3]):[0-5][0-9]$";
pub const TIME_ZONE_PATTERN: &str = "^[A-Za-z][-+_A-Za-z0-9]*(/[-+_A-Za-z0-9]+)*$";
pub const URL_PATTERN: &str = r"^https?://[A-Za-z0-9\[][!-~]*$";
/// Durations without a sign as Go's `time.ParseDuration` accepts them.
pub const DURATION_PATTERN: &str = r"^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";
/// Percentages from 1% to 100%.
pub const PERCENT_PATTERN: &str = "^(100|[1-9][0-9]?)%$";
/// Percentages from 0% to 50%.
pub const FAILURE_PERCENT_PATTERN: &str = "^(50|[1-4]?[0-9])%$";
/// Step names and `*`.
pub const APPROVED_STEP_PATTERN: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?|\*)$";

/// Parses `HH:MM` to minutes since midnight.
pub fn parse_clock_time(text: &str) -> Option<u16> {
    let &[h1, h2, b':', m1, m2] = text.as_bytes() else { return None };
    let number = |tens: u8, ones: u8| {
        let are_digits = tens.is_ascii_digit() && ones.is_ascii_digit();
        are_digits.then(|| u16::from(tens - b'0') * 10 + u16::from(ones - b'0'))
    };
    let (hour, minute) = (number(h1, h2)?, number(m1, m2)?);
    (hour < 24 && minute < 60).then_some(hour * 60 + minute)
}

/// Whether the text can be an IANA time zone name. Whether the zone exists is not checked.
pub fn is_time_zone_name(text: &str) -> bool {
    let is_part =
        |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_alphanumeric() || b"-+_".contains(&it));
    text.len() <= TIME_ZONE_LENGTH_MAX
        && text.starts_with(|it: char| it.is_ascii_alphabetic())
        && text.split('/').all(is_part)
}

pub fn is_http_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let has_host = |it: &str| it.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '[');
    text.len() <= URL_LENGTH_MAX
        && rest.is_some_and(|it| has_host(it) && it.bytes().all(|it| it.is_ascii_graphic()))
}
