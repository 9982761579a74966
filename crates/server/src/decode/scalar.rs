//! Converts scalar values (quantities, times and base64) to their canonical form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use muster_api::quantity::canonical_text;
use muster_api::time::Time;

/// Returns the canonical form of a quantity: `1000m` becomes `1`, and `0.5` becomes `500m`. Returns an error message if
/// the text is not a quantity.
pub(super) fn canonical_quantity(text: &str) -> Result<Value, String> {
    canonical_text(text.trim()).map(|it| it.into()).map_err(|why| why.to_string())
}

/// Returns the canonical form of a `metav1.Time`: whole seconds in UTC, or null for Go's zero time. Returns Go's error
/// message if the text is not a time.
pub(super) fn canonical_time(text: &str) -> Result<Value, String> {
    let at = parse_rfc3339(text, "2006-01-02T15:04:05Z07:00")?;
    Ok(null_if_zero_time(at, Time::from(at).to_rfc3339()))
}

/// Returns the canonical form of a `metav1.MicroTime`: UTC with six fractional digits of a second, or null for Go's
/// zero time. Returns Go's error message if the text is not a time with six fractional digits.
pub(super) fn canonical_micro_time(text: &str) -> Result<Value, String> {
    /// Go's layout of a `metav1.MicroTime`.
    const MICRO_TIME_LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    let fraction = text.get(19..).unwrap_or_default();
    let digits = fraction.strip_prefix('.').map(|it| it.bytes().take_while(u8::is_ascii_digit).count());
    if text.len() > 19 && digits != Some(6) {
        return Err(format!(
            "parsing time {text:?} as {MICRO_TIME_LAYOUT:?}: cannot parse {fraction:?} as \".000000\""
        ));
    }
    let at = parse_rfc3339(text, MICRO_TIME_LAYOUT)?;
    Ok(null_if_zero_time(at, Time::from(at).to_rfc3339_micros()))
}

/// Returns null for Go's zero time (year one), and `text` for any other time.
fn null_if_zero_time(at: Timestamp, text: String) -> Value {
    /// Unix time of 0001-01-01T00:00:00Z.
    const YEAR_ONE_S: i64 = -62_135_596_800;
    if at.as_second() == YEAR_ONE_S && at.subsec_nanosecond() == 0 { Value::Null } else { text.into() }
}

/// Parses an RFC 3339 time as strictly as Go does, because the crate `jiff` accepts more. `layout` is the Go time
/// layout that error messages name.
fn parse_rfc3339(text: &str, layout: &str) -> Result<Timestamp, String> {
    let failed = |rest: &str, part: &str| {
        format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}")
    };
    let parts = [(0..4, "2006"), (4..5, "-"), (5..7, "01"), (7..8, "-"), (8..10, "02"), (10..11, "T")];
    let more = [(11..13, "15"), (13..14, ":"), (14..16, "04"), (16..17, ":"), (17..19, "05")];
    for (place, part) in parts.into_iter().chain(more) {
        let is_number = part.bytes().all(|it| it.is_ascii_digit());
        let found = text.get(place.clone()).unwrap_or_default();
        let fits = if is_number { found.bytes().all(|it| it.is_ascii_digit()) } else { found == part };
        if !fits || found.len() != part.len() {
            return Err(failed(text.get(place.start..).unwrap_or_default(), part));
        }
    }
    let zone = text[19..].trim_start_matches('.').trim_start_matches(|it: char| it.is_ascii_digit());
    let is_zone = match zone.as_bytes() {
        [b'Z'] => true,
        [b'+' | b'-', h, h0, b':', m, m0] => [h, h0, m, m0].into_iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_zone {
        return Err(failed(zone, "Z07:00"));
    }
    text.parse().map_err(|_| format!("parsing time {text:?}: day out of range"))
}

/// Removes line breaks from base64 text. Returns Go's error message if the text without line breaks is not standard
/// base64 with padding.
pub(super) fn canonical_base64(text: &str) -> Result<Value, String> {
    let joined;
    let plain = if text.contains(['\r', '\n']) {
        joined = text.replace(['\r', '\n'], "");
        &joined
    } else {
        text
    };
    // A strict decoder accepts only the canonical form, so there is no need to encode again.
    match STANDARD.decode(plain) {
        Ok(_) => Ok(plain.into()),
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => {
            Err(format!("illegal base64 data at input byte {at}"))
        }
        Err(_) => Err(format!("illegal base64 data at input byte {}", plain.len() / 4 * 4)),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn said(read: fn(&str) -> Result<Value, String>, texts: &[&str]) -> String {
        let lines = texts.iter().map(|it| match read(it) {
            Ok(value) => format!("{it} = {value}\n"),
            Err(why) => format!("{it}: {why}\n"),
        });
        lines.collect()
    }

    #[test]
    fn times_are_whole_seconds_in_utc() {
        expect![[r#"
            2026-01-02T03:04:05Z = "2026-01-02T03:04:05Z"
            2026-01-02T03:04:05.999Z = "2026-01-02T03:04:05Z"
            2026-01-02T03:04:05+02:00 = "2026-01-02T01:04:05Z"
            0001-01-01T00:00:00Z = null
            2026-02-30T00:00:00Z: parsing time "2026-02-30T00:00:00Z": day out of range
            2026-01-02 03:04:05Z: parsing time "2026-01-02 03:04:05Z" as "2006-01-02T15:04:05Z07:00": cannot parse " 03:04:05Z" as "T"
            2026-01-02T03:04:05: parsing time "2026-01-02T03:04:05" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"
            yesterday: parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006"
            : parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"
            2026-01-02T03:04:05+é:00: parsing time "2026-01-02T03:04:05+é:00" as "2006-01-02T15:04:05Z07:00": cannot parse "+é:00" as "Z07:00"
        "#]]
        .assert_eq(&said(
            canonical_time,
            &[
                "2026-01-02T03:04:05Z",
                "2026-01-02T03:04:05.999Z",
                "2026-01-02T03:04:05+02:00",
                "0001-01-01T00:00:00Z",
                "2026-02-30T00:00:00Z",
                "2026-01-02 03:04:05Z",
                "2026-01-02T03:04:05",
                "yesterday",
                "",
                "2026-01-02T03:04:05+é:00",
            ],
        ));
    }

    #[test]
    fn micro_times_have_six_digits() {
        expect![[r#"
            2026-01-02T03:04:05.123456Z = "2026-01-02T03:04:05.123456Z"
            2026-01-02T03:04:05.123456-01:00 = "2026-01-02T04:04:05.123456Z"
            2026-01-02T03:04:05.000000Z = "2026-01-02T03:04:05.000000Z"
            2026-01-02T03:04:05Z: parsing time "2026-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000"
        "#]]
        .assert_eq(&said(
            canonical_micro_time,
            &[
                "2026-01-02T03:04:05.123456Z",
                "2026-01-02T03:04:05.123456-01:00",
                "2026-01-02T03:04:05.000000Z",
                "2026-01-02T03:04:05Z",
            ],
        ));
    }

    #[test]
    fn base64_is_checked_and_joined() {
        expect![[r#"
            aGVsbG8= = "aGVsbG8="
            aGVs
            bG8= = "aGVsbG8="
             = ""
            a: illegal base64 data at input byte 0
            aGV*bG8=: illegal base64 data at input byte 3
        "#]]
        .assert_eq(&said(canonical_base64, &["aGVsbG8=", "aGVs\nbG8=", "", "a", "aGV*bG8="]));
    }
}
