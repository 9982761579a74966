//! Timestamps and durations. This crate has no clock, so the current time is always an argument.

use alloc::string::{String, ToString};
use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time, in microseconds since the Unix epoch. All arithmetic saturates, so a time from an API object cannot
/// cause an overflow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(i64);

impl Time {
    /// Creates a time from microseconds since the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Creates a time from seconds since the Unix epoch.
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Returns the microseconds since the Unix epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Parses an RFC 3339 timestamp, the format of the Kubernetes API. Returns `None` if the text is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let timestamp: jiff::Timestamp = text.parse().ok()?;
        Some(Self(timestamp.as_microsecond()))
    }

    /// Formats the time as RFC 3339 with whole seconds, the precision of `metav1.Time`. A time that RFC 3339 cannot
    /// represent is formatted as the Unix epoch.
    pub fn to_rfc3339(self) -> String {
        let secs = self.0.div_euclid(1_000_000);
        jiff::Timestamp::from_second(secs)
            .map_or_else(|_| String::from("1970-01-01T00:00:00Z"), |timestamp| timestamp.to_string())
    }

    /// Formats the time as RFC 3339 with microseconds, the precision of `metav1.MicroTime`. A time that RFC 3339 cannot
    /// represent is formatted as the Unix epoch.
    pub fn to_rfc3339_micros(self) -> String {
        let timestamp = jiff::Timestamp::from_microsecond(self.0).unwrap_or_default();
        timestamp.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    }

    /// Returns the duration from `earlier` to this time, or zero if this time is before `earlier`.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }
}

/// Formats the time as RFC 3339 with whole seconds.
impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_rfc3339())
    }
}

/// Returns the earlier of two optional times. `None` means never.
pub fn earliest(a: Option<Time>, b: Option<Time>) -> Option<Time> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Why a text is not a duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DurationError {
    /// The unit of the duration is missing or unknown.
    InvalidUnit,
    /// The number of the duration is missing or too large.
    InvalidNumber,
}

/// Parses a duration of one number and one unit, such as `500ms`, `30s`, `15m`, `24h` or `7d`. Zero needs no unit.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let (number, unit) = text.split_at(text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len()));
    let number = number.parse::<u32>();
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        "" if number == Ok(0) => 1,
        _ => return Err(DurationError::InvalidUnit),
    };
    let number = number.map_err(|_| DurationError::InvalidNumber)?;
    Ok(Duration::from_millis(u64::from(number) * unit_ms))
}

/// Parses a duration in Go's format, such as `90s`, `1h30m`, `1.5h` or `0`. Returns `None` if the text is invalid, or
/// if the duration is negative or too long. Upstream: `time.ParseDuration`.
pub fn parse_go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut total_ns: i64 = 0;
    loop {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), split_digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (unit, after) =
            after.split_at(after.find(|it: char| it == '.' || it.is_ascii_digit()).unwrap_or(after.len()));
        let unit_ns: i64 = match unit {
            "ns" => 1,
            // Micro sign and Greek letter mu.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60 * 1_000_000_000,
            "h" => 60 * 60 * 1_000_000_000,
            _ => return None,
        };
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total_ns =
            total_ns.checked_add(whole.checked_mul(unit_ns)?)?.checked_add(fraction_ns(fraction, unit_ns))?;
        rest = after;
        if rest.is_empty() {
            return u64::try_from(total_ns).ok().map(Duration::from_nanos);
        }
    }
}

/// Splits a text into its leading digits and the rest.
fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns a decimal fraction of a unit in nanoseconds, rounded down. `digits` are the digits after the decimal point,
/// and `unit_ns` is the length of the unit.
fn fraction_ns(digits: &str, unit_ns: i64) -> i64 {
    // 18 digits fit an `i64`; the others are less than a nanosecond of any unit.
    let digits = digits.get(..18).unwrap_or(digits);
    let scale = digits.bytes().fold(1_i128, |scale, _| scale * 10);
    let value = digits.parse::<i128>().unwrap_or(0);
    i64::try_from(value * i128::from(unit_ns) / scale).unwrap_or(0)
}

impl Serialize for Time {
    /// Serializes the time as `metav1.Time`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_rfc3339())
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("a time is not RFC 3339"))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Time {
    fn schema_name() -> alloc::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_3339_timestamps_of_the_api_are_parsed_and_formatted() {
        let time = Time::parse("2026-01-02T03:04:05Z").unwrap();
        assert_eq!(time.to_rfc3339(), "2026-01-02T03:04:05Z");
        assert_eq!(Time::parse("2026-01-02T03:04:05.000001Z").unwrap(), time + Duration::from_micros(1));
        assert_eq!(Time::parse("yesterday"), None);
        assert_eq!((time + Duration::from_micros(70)).to_rfc3339_micros(), "2026-01-02T03:04:05.000070Z");
    }

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, millis) in [("0", 0), ("0s", 0), ("500ms", 500), ("15m", 900_000), ("7d", 604_800_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "1w", "-1s", "1h30m"] {
            assert_eq!(parse_duration(text), Err(DurationError::InvalidUnit), "{text}");
        }
        for text in ["s", "99999999999s"] {
            assert_eq!(parse_duration(text), Err(DurationError::InvalidNumber), "{text}");
        }
    }

    #[test]
    fn go_durations_have_several_numbers_with_units() {
        for (text, micros) in [
            ("0", 0),
            ("+0", 0),
            ("0s", 0),
            ("90s", 90_000_000),
            ("1h30m", 5_400_000_000),
            ("1.5h", 5_400_000_000),
            ("+2m", 120_000_000),
            (".5s", 500_000),
            ("1.s", 1_000_000),
            ("3us", 3),
            ("3\u{b5}s", 3),
            ("3\u{3bc}s", 3),
            ("2ms", 2_000),
            ("0.0000000000000000000001s", 0),
        ] {
            assert_eq!(parse_go_duration(text), Some(Duration::from_micros(micros)), "{text}");
        }
        assert_eq!(parse_go_duration("1ns"), Some(Duration::from_nanos(1)));
        for text in
            ["", "+", "5", "s", ".s", "1d", "-1s", "1 s", "1s ", "1h30", "99999999999999999999s", "2562048h"]
        {
            assert_eq!(parse_go_duration(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_serialized_as_rfc_3339() {
        let time: Time = serde_json::from_str("\"2026-01-02T03:04:05Z\"").unwrap();
        assert_eq!(serde_json::to_string(&time).unwrap(), "\"2026-01-02T03:04:05Z\"");
        assert!(serde_json::from_str::<Time>("\"yesterday\"").is_err());
    }

    #[test]
    fn arithmetic_saturates() {
        let end = Time::from_micros(i64::MAX);
        assert_eq!(end + Duration::MAX, end);
        assert_eq!(Time::from_micros(i64::MIN) - Duration::MAX, Time::from_micros(i64::MIN));
        assert_eq!(Time::from_secs(1).since(Time::from_secs(2)), Duration::ZERO);
        assert_eq!(end.to_rfc3339(), "1970-01-01T00:00:00Z");
    }
}
