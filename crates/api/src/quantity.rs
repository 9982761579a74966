//! Resource quantities, such as `100m`, `1.5Gi` and `12e6`.
//!
//! Upstream: `apimachinery/pkg/api/resource/quantity.go`. A [`Quantity`] is a 128-bit integer of nanounits. Finer
//! fractions are rounded away from zero. A quantity above about 10²⁹, or with more than 38 significant digits, is
//! refused, although upstream's type is unbounded. With a binary suffix, as upstream, a quantity above 2⁶³-1 is parsed
//! as 2⁶³-1.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString as _};
use core::cmp::Ordering;
use core::fmt;

/// A quantity, and the suffix format in which it is written. Comparisons ignore the format. Upstream:
/// `resource.Quantity`.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    /// The value of the quantity in nanounits (billionths of a unit).
    nanos: i128,
    format: SuffixFormat,
}

/// The suffix format of a quantity. Upstream: `resource.Format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SuffixFormat {
    /// The quantity has a decimal suffix, such as `12M`, or none.
    Decimal,
    /// The quantity has a binary suffix, such as `12Mi`.
    Binary,
    /// The quantity has a decimal exponent, such as `12e6`.
    Exponent,
}

/// Why a text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityError {
    /// The text does not have the format of a quantity.
    Format,
    /// The numeric part is too large or has too many digits.
    Number,
    /// The suffix is not a known suffix of quantities.
    Suffix,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            Self::Number => "unable to parse numeric part of quantity",
            Self::Suffix => "unable to parse quantity's suffix",
        })
    }
}

impl core::error::Error for QuantityError {}

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = NANOS_PER_UNIT / 1_000;

/// Returns the text that upstream stores for the quantity `text`: usually the canonical text, sometimes `text` itself.
/// Fails if `text` is not a quantity.
pub fn canonical_text(text: &str) -> Result<Cow<'_, str>, QuantityError> {
    let parts = QuantityTokens::tokenize(text)?;
    let quantity = parts.to_quantity()?;
    Ok(if parts.is_stored_verbatim_by_upstream() { text.into() } else { quantity.to_string().into() })
}

impl Quantity {
    pub const ZERO: Self = Self { nanos: 0, format: SuffixFormat::Decimal };

    /// Parses a quantity. Fails if the text does not have the format of a quantity, or if the number is too large. The
    /// value of a quantity with a binary suffix is limited to `i64::MAX` instead. Upstream does the same.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        QuantityTokens::tokenize(text)?.to_quantity()
    }

    /// Parses the quantity in a JSON string or number. Returns zero if it is not a valid quantity, or if the value is
    /// neither a string nor a number. There is no error, because the decoder of the API object has already refused
    /// invalid values.
    pub fn from_json(value: &serde_json::Value) -> Self {
        let parsed = match value {
            serde_json::Value::String(text) => Self::parse(text),
            serde_json::Value::Number(number) => Self::parse(&number.to_string()),
            _ => Ok(Self::ZERO),
        };
        parsed.unwrap_or(Self::ZERO)
    }

    /// Creates a quantity of `count` units, in decimal format.
    pub fn from_units(count: i64) -> Self {
        Self { nanos: i128::from(count) * NANOS_PER_UNIT, format: SuffixFormat::Decimal }
    }

    /// Creates a quantity of `count` bytes, in binary format.
    pub fn from_bytes(count: i64) -> Self {
        Self { nanos: i128::from(count) * NANOS_PER_UNIT, format: SuffixFormat::Binary }
    }

    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether the quantity is a whole number of units.
    pub fn is_whole(self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// Returns the quantity as a number of units, rounded away from zero.
    pub fn units(self) -> i128 {
        div_away_from_zero(self.nanos, NANOS_PER_UNIT)
    }

    /// Returns the quantity as a number of thousandths, rounded away from zero.
    pub fn millis(self) -> i128 {
        div_away_from_zero(self.nanos, NANOS_PER_MILLI)
    }

    /// Returns the sum of two quantities. The result has the suffix format of this quantity, or that of `other` if this
    /// quantity is zero.
    pub fn plus(self, other: Self) -> Self {
        // Zero takes the format of the other operand.
        let form = if self.is_zero() { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_add(other.nanos), format: form }
    }

    /// Returns this quantity minus `other`. The result has the suffix format of this quantity, or that of `other` if
    /// this quantity is zero.
    pub fn minus(self, other: Self) -> Self {
        let form = if self.is_zero() { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_sub(other.nanos), format: form }
    }

    /// Returns the quantity rounded away from zero to thousandths, the finest precision that upstream stores for
    /// resources.
    pub fn rounded_to_millis(self) -> Self {
        Self { nanos: self.millis().saturating_mul(NANOS_PER_MILLI), format: self.format }
    }

    /// Returns the canonical text in decimal format. Equal quantities have the same text, whatever their own format.
    pub fn decimal_text(self) -> String {
        Self { nanos: self.nanos, format: SuffixFormat::Decimal }.to_string()
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// Writes the canonical text, which has the largest suffix for which the number has no fraction.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return write!(f, "0");
        }
        let is_small = -1024 * NANOS_PER_UNIT < self.nanos && self.nanos < 1024 * NANOS_PER_UNIT;
        if self.format == SuffixFormat::Binary && !is_small && self.is_whole() {
            let (mut number, mut times) = (self.nanos / NANOS_PER_UNIT, 0);
            while number % 1024 == 0 && times < 6 {
                (number, times) = (number / 1024, times + 1);
            }
            return write!(f, "{number}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][times]);
        }
        let (mut number, mut exponent) = (self.nanos, -9);
        while number % 1000 == 0 {
            (number, exponent) = (number / 1000, exponent + 3);
        }
        match exponent {
            0 => write!(f, "{number}"),
            _ if self.format == SuffixFormat::Exponent => write!(f, "{number}e{exponent}"),
            -9 => write!(f, "{number}n"),
            -6 => write!(f, "{number}u"),
            -3 => write!(f, "{number}m"),
            3 => write!(f, "{number}k"),
            6 => write!(f, "{number}M"),
            9 => write!(f, "{number}G"),
            12 => write!(f, "{number}T"),
            15 => write!(f, "{number}P"),
            18 => write!(f, "{number}E"),
            // No suffix exists for this exponent. Upstream omits it, which changes the quantity.
            _ => write!(f, "{number}e{exponent}"),
        }
    }
}

/// A quantity text split into sign, digits and suffix.
struct QuantityTokens<'a> {
    /// Whether the quantity is negative: the text starts with `-`.
    negative: bool,
    /// Digits before the decimal point, without leading zeros.
    whole: &'a str,
    /// Digits after the decimal point.
    fraction: &'a str,
    format: SuffixFormat,
    /// The exponent of the suffix: a power of two in binary format, otherwise a power of ten.
    exponent: i32,
}

impl<'a> QuantityTokens<'a> {
    /// Splits a quantity text into sign, digits and suffix. Fails if the text does not have the format of a quantity,
    /// or if the suffix is unknown. The size of the number is not checked.
    fn tokenize(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let significant = unsigned.trim_start_matches('0');
        let (whole, rest) = split_digits(significant);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        let letters = suffix.trim_start_matches(|it| "eEinumkKMGTP".contains(it));
        let after_sign = letters.strip_prefix(['-', '+']).unwrap_or(letters);
        if !after_sign.bytes().all(|it| it.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        let (form, exponent) = match suffix {
            "" => (SuffixFormat::Decimal, 0),
            "n" => (SuffixFormat::Decimal, -9),
            "u" => (SuffixFormat::Decimal, -6),
            "m" => (SuffixFormat::Decimal, -3),
            "k" => (SuffixFormat::Decimal, 3),
            "M" => (SuffixFormat::Decimal, 6),
            "G" => (SuffixFormat::Decimal, 9),
            "T" => (SuffixFormat::Decimal, 12),
            "P" => (SuffixFormat::Decimal, 15),
            "E" => (SuffixFormat::Decimal, 18),
            "Ki" => (SuffixFormat::Binary, 10),
            "Mi" => (SuffixFormat::Binary, 20),
            "Gi" => (SuffixFormat::Binary, 30),
            "Ti" => (SuffixFormat::Binary, 40),
            "Pi" => (SuffixFormat::Binary, 50),
            "Ei" => (SuffixFormat::Binary, 60),
            other => {
                let exponent = other.strip_prefix(['e', 'E']).and_then(|it| it.parse().ok());
                (SuffixFormat::Exponent, exponent.ok_or(QuantityError::Suffix)?)
            }
        };
        Ok(Self { negative: text.starts_with('-'), whole, fraction, format: form, exponent })
    }

    /// Returns the quantity. Fails if the number is too large.
    fn to_quantity(&self) -> Result<Quantity, QuantityError> {
        let (magnitude, form) = self.absolute_nanos()?;
        Ok(Quantity { nanos: if self.negative { -magnitude } else { magnitude }, format: form })
    }

    /// Returns the absolute value in nanounits, and the suffix format of the quantity. A binary quantity below one gets
    /// the decimal format. Fails if the number is too large.
    fn absolute_nanos(&self) -> Result<(i128, SuffixFormat), QuantityError> {
        /// Upstream's maximum for quantities with a binary suffix.
        const BINARY_MAX: i128 = i64::MAX as i128 * NANOS_PER_UNIT;
        let digits = self.digits().filter(|it| !it.is_empty());
        let Some(digits) = digits else { return Ok((0, self.format)) };
        let digits: i128 = digits.parse().map_err(|_| QuantityError::Number)?;
        if digits == 0 {
            return Ok((0, self.format));
        }
        let tens = 9 - i32::try_from(self.fraction.len()).map_err(|_| QuantityError::Number)?;
        if self.format != SuffixFormat::Binary {
            let tens = tens.checked_add(self.exponent).ok_or(QuantityError::Number)?;
            return Ok((scale_by_power_of_ten(digits, tens).ok_or(QuantityError::Number)?, self.format));
        }
        let nanos = digits.checked_mul(1 << self.exponent).and_then(|it| scale_by_power_of_ten(it, tens));
        let nanos = nanos.map_or(BINARY_MAX, |it| it.min(BINARY_MAX));
        Ok((nanos, if nanos < NANOS_PER_UNIT { SuffixFormat::Decimal } else { SuffixFormat::Binary }))
    }

    /// Returns the digits before and after the decimal point as one string, or `None` if there are none.
    fn digits(&self) -> Option<Cow<'_, str>> {
        match (self.whole, self.fraction) {
            ("", "") => None,
            (whole, "") => Some(whole.into()),
            (whole, fraction) => Some(format!("{whole}{fraction}").into()),
        }
    }

    /// Whether upstream stores the input text unchanged. Upstream's fast path keeps each text that it considers
    /// canonical. Some of these texts are not canonical.
    fn is_stored_verbatim_by_upstream(&self) -> bool {
        let digits = self.digits().unwrap_or_default();
        let count = digits.len().max(1);
        match self.format {
            SuffixFormat::Binary => {
                let margin =
                    15 - i64::try_from(count).unwrap_or(i64::MAX) - i64::from(self.exponent) * 3 / 10 - 1;
                let last = digits.parse::<u64>().unwrap_or(0);
                self.fraction.is_empty() && 0 <= margin && last % 8 != 0
            }
            SuffixFormat::Decimal | SuffixFormat::Exponent => {
                let fraction = i64::try_from(self.fraction.len()).unwrap_or(i64::MAX);
                let scale = i64::from(self.exponent).saturating_sub(fraction);
                let fits = count <= 18 && -9 <= scale;
                fits && scale % 3 == 0 && !self.whole.is_empty() && !digits.ends_with("000")
            }
        }
    }
}

/// Splits a text into its leading digits and the rest.
pub(crate) fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns `number` × 10^`tens`, rounded away from zero, or `None` if the result overflows.
fn scale_by_power_of_ten(number: i128, tens: i32) -> Option<i128> {
    match 10i128.checked_pow(tens.unsigned_abs()) {
        Some(by) if 0 <= tens => number.checked_mul(by),
        Some(by) => Some(div_away_from_zero(number, by)),
        // Too small to represent, so it is rounded up to one.
        None => (tens < 0).then_some(1),
    }
}

/// Divides and rounds away from zero, so that a small quantity never becomes zero.
fn div_away_from_zero(number: i128, by: i128) -> i128 {
    number / by + (number % by).signum()
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn check(texts: &[&str], golden: &Expect) {
        let lines: Vec<_> = texts
            .iter()
            .map(|text| match canonical_text(text) {
                Ok(canonical) => format!("{text} = {canonical}"),
                Err(why) => format!("{text}: {why}"),
            })
            .collect();
        golden.assert_eq(&lines.join("\n"));
    }

    #[test]
    fn a_quantity_is_stored_as_upstream_stores_it() {
        check(
            &[
                "0",
                "0Mi",
                "00",
                "-",
                ".",
                "1000m",
                "0.5",
                "1.5",
                "1.500",
                "0.500",
                "100m",
                "1500m",
                "12000",
                "+1",
                "01",
                "-1.5",
                "1e3",
                "1E3",
                "1e2",
                "1e-3",
                "12e6",
                "1.5e3",
                "1n",
                "0.1n",
                "1.0000000001",
            ],
            &expect![[r#"
                0 = 0
                0Mi = 0
                00 = 0
                - = 0
                . = 0
                1000m = 1
                0.5 = 500m
                1.5 = 1500m
                1.500 = 1.500
                0.500 = 500m
                100m = 100m
                1500m = 1500m
                12000 = 12k
                +1 = +1
                01 = 01
                -1.5 = -1500m
                1e3 = 1e3
                1E3 = 1E3
                1e2 = 100
                1e-3 = 1e-3
                12e6 = 12e6
                1.5e3 = 1500
                1n = 1n
                0.1n = 1n
                1.0000000001 = 1000000001n"#]],
        );
        check(
            &[
                "1Ki", "100Ki", "1024Ki", "1536Mi", "0.5Gi", "1.5Gi", "0.5Ki", "1.5Ki", "0.0001Ki",
                "1.0001Ki", "8Ei", "100Ei", "-2048Ki", "1000E",
            ],
            &expect![[r#"
                1Ki = 1Ki
                100Ki = 100Ki
                1024Ki = 1Mi
                1536Mi = 1536Mi
                0.5Gi = 512Mi
                1.5Gi = 1536Mi
                0.5Ki = 512
                1.5Ki = 1536
                0.0001Ki = 102400u
                1.0001Ki = 1024102400u
                8Ei = 9223372036854775807
                100Ei = 9223372036854775807
                -2048Ki = -2Mi
                1000E = 1e21"#]],
        );
    }

    #[test]
    fn invalid_quantities_are_rejected() {
        check(
            &[
                "",
                "abc",
                "1 Gi",
                "1.5.2",
                "1Mi2",
                "1e",
                "1ee5",
                "1e-",
                "1KiB",
                "0x10",
                "1e99",
                "1e99999999999",
                "١",
            ],
            &expect![[r#"
                : quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
                abc: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
                1 Gi: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
                1.5.2: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
                1Mi2: unable to parse quantity's suffix
                1e: unable to parse quantity's suffix
                1ee5: unable to parse quantity's suffix
                1e-: unable to parse quantity's suffix
                1KiB: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
                0x10: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
                1e99: unable to parse numeric part of quantity
                1e99999999999: unable to parse quantity's suffix
                ١: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"#]],
        );
    }

    #[test]
    fn quantities_are_compared_and_added_across_formats() {
        let of = |it| Quantity::parse(it).unwrap();
        assert_eq!(of("1Ki"), of("1024"));
        assert!(of("999m") < of("1"));
        let sums = [("1Gi", "512Mi"), ("500m", "1"), ("0", "1Mi"), ("1Mi", "1M")];
        let results: Vec<_> = sums.iter().map(|(a, b)| of(a).plus(of(b)).to_string()).collect();
        assert_eq!(results, ["1536Mi", "1500m", "1Mi", "2048576"]);
        assert_eq!(of("1Gi").minus(of("2Gi")).to_string(), "-1Gi");
        assert_eq!(
            (of("1500m").units(), of("1u").millis(), of("1u").rounded_to_millis().to_string()),
            (2, 1, "1m".into())
        );
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected(text in "[-+]?[0-9.]{0,50}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,12}") {
            if let Ok(quantity) = Quantity::parse(&text) {
                let written = quantity.to_string();
                prop_assert_eq!(Quantity::parse(&written).unwrap(), quantity);
                prop_assert_eq!(canonical_text(&written).unwrap(), written.as_str());
                prop_assert_eq!(Quantity::parse(&canonical_text(&text).unwrap()).unwrap(), quantity);
            }
        }
    }
}
