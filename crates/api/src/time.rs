//! Timestamps and durations. This crate has no clock, so the current time is always an argument.

use alloc::string::{String, ToString};
use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

use jiff::SignedDuration;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::quantity::split_digits;

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

/// Converts a timestamp, rounded down to whole microseconds.
impl From<jiff::Timestamp> for Time {
    fn from(timestamp: jiff::Timestamp) -> Self {
        // The microseconds of a timestamp before 1970 are rounded up.
        let is_rounded_up = timestamp.subsec_nanosecond() % 1000 < 0;
        Self(timestamp.as_microsecond() - i64::from(is_rounded_up))
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

/// Formats a duration as [`parse_duration`] parses it, with the largest unit that needs no fraction. Microseconds and
/// nanoseconds are dropped.
pub fn format_duration(duration: Duration) -> String {
    let units = [(24 * 60 * 60 * 1000, "d"), (60 * 60 * 1000, "h"), (60 * 1000, "m"), (1000, "s"), (1, "ms")];
    let millis = duration.as_millis();
    let unit = units.iter().find(|(unit_ms, _)| 0 < millis && millis.is_multiple_of(*unit_ms));
    unit.map_or_else(|| String::from("0s"), |(unit_ms, unit)| alloc::format!("{}{unit}", millis / unit_ms))
}

/// Why a text is not a duration in Go's format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GoDurationError<'a> {
    /// The syntax is invalid, or the duration is too long.
    Invalid,
    /// A number has no unit.
    MissingUnit,
    /// A number has this unit, which does not exist.
    UnknownUnit(&'a str),
}

/// Parses a duration in Go's format, such as `90s`, `1h30m`, `-1.5h` or `0`. A duration has -2⁶³ to 2⁶³-1 nanoseconds.
/// Upstream: `time.ParseDuration`.
pub fn parse_go_duration(text: &str) -> Result<SignedDuration, GoDurationError<'_>> {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    let mut total_ns: u64 = 0;
    loop {
        let (whole, after) = split_digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), split_digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(GoDurationError::Invalid);
        }
        let whole = if whole.is_empty() { Some(0) } else { whole.parse::<u64>().ok() };
        let whole = whole.filter(|it| *it <= GO_NANOSECONDS_MAX).ok_or(GoDurationError::Invalid)?;
        let (unit, after) =
            after.split_at(after.find(|it: char| it == '.' || it.is_ascii_digit()).unwrap_or(after.len()));
        let unit_ns: u64 = match unit {
            "ns" => 1,
            // Micro sign and Greek letter mu.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60 * 1_000_000_000,
            "h" => 60 * 60 * 1_000_000_000,
            "" => return Err(GoDurationError::MissingUnit),
            _ => return Err(GoDurationError::UnknownUnit(unit)),
        };
        let sum = whole.checked_mul(unit_ns).and_then(|it| it.checked_add(fraction_ns(fraction, unit_ns)));
        let sum = sum.and_then(|it| it.checked_add(total_ns)).filter(|it| *it <= GO_NANOSECONDS_MAX);
        total_ns = sum.ok_or(GoDurationError::Invalid)?;
        rest = after;
        if rest.is_empty() {
            let signed_ns = i128::from(total_ns) * if text.starts_with('-') { -1 } else { 1 };
            return i64::try_from(signed_ns)
                .map(SignedDuration::from_nanos)
                .map_err(|_| GoDurationError::Invalid);
        }
    }
}

/// Largest absolute value of a Go duration in nanoseconds: the absolute value of the smallest `int64`.
const GO_NANOSECONDS_MAX: u64 = 1 << 63;

/// Returns a decimal fraction of a unit in nanoseconds, rounded down. `digits` are the digits after the decimal point,
/// and `unit_ns` is the length of the unit. Upstream: `leadingFraction` and the float arithmetic of
/// `time.ParseDuration`.
fn fraction_ns(digits: &str, unit_ns: u64) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0);
    for digit in digits.bytes() {
        let next = value.checked_mul(10).and_then(|it| it.checked_add(u64::from(digit - b'0')));
        // Digits that do not fit are less than a nanosecond of any unit.
        let Some(next) = next.filter(|it| *it <= GO_NANOSECONDS_MAX) else { break };
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit_ns as f64 / scale)) as u64
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
    fn timestamps_are_rounded_down() {
        let before_epoch = jiff::Timestamp::from_nanosecond(-1).unwrap();
        assert_eq!(Time::from(before_epoch), Time::from_micros(-1));
        assert_eq!(Time::from(before_epoch).to_rfc3339(), "1969-12-31T23:59:59Z");
        for (end, text) in [
            (jiff::Timestamp::MIN, "-009999-01-02T01:59:59Z"),
            (jiff::Timestamp::MAX, "9999-12-30T22:00:00Z"),
        ] {
            assert_eq!(Time::from(end).to_rfc3339(), text);
        }
    }

    #[test]
    fn durations_have_a_number_and_a_unit() {
        for (text, millis) in [("0", 0), ("0s", 0), ("500ms", 500), ("15m", 900_000), ("7d", 604_800_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["0s", "500ms", "90s", "15m", "36h", "7d", "1001ms"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
        assert_eq!(format_duration(parse_duration("86400s").unwrap()), "1d");
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
            assert_eq!(parse_go_duration(text), Ok(SignedDuration::from_micros(micros)), "{text}");
        }
        for (text, nanos) in [
            ("1ns", 1),
            ("1.9ns", 1),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("0.100000000000000000000h", 360_000_000_000),
            ("9007199254740993ns", 9_007_199_254_740_993),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("-1.5s", -1_500_000_000),
        ] {
            assert_eq!(parse_go_duration(text), Ok(SignedDuration::from_nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "+",
            "+-1s",
            "s",
            ".s",
            ".",
            " 1s",
            "3000000h",
            "9223372036854775808ns",
            "-9223372036854775809ns",
            "99999999999999999999s",
            "99999999999999999999",
        ] {
            assert_eq!(parse_go_duration(text), Err(GoDurationError::Invalid), "{text}");
        }
        for text in ["5", "1h30", "1.5", "1.2.3s"] {
            assert_eq!(parse_go_duration(text), Err(GoDurationError::MissingUnit), "{text}");
        }
        for (text, unit) in [("1d", "d"), ("1 s", " s"), ("1s ", "s "), ("1H", "H")] {
            assert_eq!(parse_go_duration(text), Err(GoDurationError::UnknownUnit(unit)), "{text}");
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
