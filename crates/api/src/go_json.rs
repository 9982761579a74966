//! JSON text as Go's encoders write it. Upstream compares ControllerRevisions by their bytes, and paths of managed
//! fields as text, so both must be written in Go's format.
use alloc::{collections::BTreeMap, format, string::String};
use core::fmt::Write;

use serde_json::{Number, Value};

/// A JSON encoder of Go, and its differences to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoder {
    /// `encoding/json` of Go 1.22 and later.
    Standard,
    /// `github.com/json-iterator/go` with `ConfigCompatibleWithStandardLibrary`. Differences to [`Encoder::Standard`]:
    ///
    /// - U+0008 and U+000C are `\u0008` and `\u000c`, not `\b` and `\f`.
    /// - An exponent has at least two digits: `1e-07`, not `1e-7`.
    /// - `Stream.WriteObjectField` does not escape the characters that are special in HTML and JavaScript.
    JsonIterator,
}

/// Formats a value as Go's `encoding/json` does.
///
/// Rule: the text equals the output of Go's `json.Marshal` for a value that upstream's `util/json.Unmarshal` decoded
/// into `interface{}`. Keys are sorted by bytes, there are no spaces, and characters are escaped as in Go. A signed
/// 64-bit integer is written as an integer, and every other number as a float64.
pub fn to_string(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value, Encoder::Standard);
    out
}

/// Appends a value to `out`.
pub fn write_value(out: &mut String, value: &Value, encoder: Encoder) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number, encoder),
        Value::String(text) => write_string(out, text, encoder, true),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_value(out, item, encoder);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            // Sorted here, because a crate that enables serde_json's `preserve_order` would otherwise change every
            // revision.
            let sorted: BTreeMap<&str, &Value> =
                fields.iter().map(|(key, value)| (key.as_str(), value)).collect();
            out.push('{');
            for (at, (key, value)) in sorted.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_string(out, key, encoder, true);
                out.push(':');
                write_value(out, value, encoder);
            }
            out.push('}');
        }
    }
}

/// Appends the name of a field in quotes, and a colon.
///
/// Upstream: `Stream.WriteObjectField` of json-iterator. `encoding/json` has no such function and escapes the name as
/// any other string.
pub fn write_object_field(out: &mut String, name: &str, encoder: Encoder) {
    write_string(out, name, encoder, encoder == Encoder::Standard);
    out.push(':');
}

/// Appends a number to `out`.
///
/// Rule: a signed 64-bit integer is written as an integer. Any other number is written as the shortest decimal that
/// parses to the same float64. The decimal has an exponent if the absolute value is below 1e-6 (but not zero) or at
/// least 1e21.
///
/// Upstream: `encoding/json` decodes every number to a float64, so that digits above 2^53 are lost. The package
/// `util/json`, which writes revisions, preserves integers, as this function does.
fn write_number(out: &mut String, number: &Number, encoder: Encoder) {
    if let Some(whole) = number.as_i64() {
        out.push_str(&format!("{whole}"));
        return;
    }
    let float = number.as_f64().unwrap_or(0.0);
    let size = float.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        out.push_str(&format!("{float}"));
        return;
    }
    let text = format!("{float:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return out.push_str(&text) };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |it| ('-', it));
    let width = if encoder == Encoder::JsonIterator { 2 } else { 1 };
    // Writing into a String cannot fail.
    let _ = write!(out, "{digits}e{sign}{exponent:0>width$}");
}

/// Appends a string in quotes to `out`.
///
/// Rule: in addition to the escapes that JSON requires, Go escapes `<`, `>`, `&` (for HTML), U+2028 and U+2029 (for
/// JavaScript), but not if `escape_html` is false.
fn write_string(out: &mut String, text: &str, encoder: Encoder, escape_html: bool) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' if encoder == Encoder::Standard => out.push_str("\\b"),
            '\u{c}' if encoder == Encoder::Standard => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' if !escape_html => out.push(letter),
            '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                // Writing into a String cannot fail.
                let _ = write!(out, "\\u{:04x}", letter as u32);
            }
            _ => out.push(letter),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use alloc::{string::ToString, vec::Vec};

    use expect_test::{Expect, expect};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn check(value: Value, want: Expect) {
        want.assert_eq(&to_string(&value));
    }

    #[test]
    fn keys_are_sorted_by_bytes_at_every_depth() {
        check(
            json!({"b": {"z": 1, "a": 2}, "B": [], "$patch": {}, "é": null, "a-b": true, "a": false}),
            expect![[r#"{"$patch":{},"B":[],"a":false,"a-b":true,"b":{"a":2,"z":1},"é":null}"#]],
        );
    }

    #[test]
    fn html_and_javascript_are_escaped() {
        check(
            json!({"a<b": "x > y && z\u{2028}\u{2029}"}),
            expect![[r#"{"a\u003cb":"x \u003e y \u0026\u0026 z\u2028\u2029"}"#]],
        );
    }

    #[test]
    fn control_characters() {
        let all: String = (0u8..0x20).map(char::from).collect();
        check(
            json!(all),
            expect![[
                r#""\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000b\f\r\u000e\u000f\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f""#
            ]],
        );
    }

    #[test]
    fn nothing_else_is_escaped() {
        check(
            json!("\"\\/'`\u{7f}\u{80}é漢😀\u{202a}"),
            expect![["\"\\\"\\\\/'`\u{7f}\u{80}é漢😀\u{202a}\""]],
        );
    }

    #[test]
    fn whole_numbers_keep_every_digit() {
        check(
            json!([0, -17, 9007199254740993i64, i64::MAX, i64::MIN]),
            expect!["[0,-17,9007199254740993,9223372036854775807,-9223372036854775808]"],
        );
        // Past 64 bits Go falls back to float64.
        check(json!(u64::MAX), expect!["18446744073709552000"]);
    }

    #[test]
    fn floats() {
        check(json!([0.0, -0.0, 1.0, -1e2, 0.1, 1.5]), expect!["[0,-0,1,-100,0.1,1.5]"]);
        check(json!([1e-6, 1e-7, 1.23e-9, -1e-10, 5e-324]), expect!["[0.000001,1e-7,1.23e-9,-1e-10,5e-324]"]);
        check(
            json!([1e20, 1e21, -12.5e30, f64::MAX]),
            expect!["[100000000000000000000,1e+21,-1.25e+31,1.7976931348623157e+308]"],
        );
    }

    #[test]
    fn json_iterator_differs_in_two_escapes_small_exponents_and_field_names() {
        let check = |value: Value, want: &str| {
            let mut out = String::new();
            write_value(&mut out, &value, Encoder::JsonIterator);
            assert_eq!(out, want);
        };
        check(json!("\u{8}\u{c}\n\u{1}<\u{2028}"), r#""\u0008\u000c\n\u0001\u003c\u2028""#);
        check(
            json!([1e15, 1e20, 1e21, 1e-6, 1e-7, 1.5e-10, 1e300]),
            "[1000000000000000,100000000000000000000,1e+21,0.000001,1e-07,1.5e-10,1e+300]",
        );
        check(json!({"b": 1, "a<": 2}), r#"{"a\u003c":2,"b":1}"#);

        let field = |encoder| {
            let mut out = String::new();
            write_object_field(&mut out, "a<\u{2028}\u{8}", encoder);
            out
        };
        assert_eq!(field(Encoder::JsonIterator), "\"a<\u{2028}\\u0008\":");
        assert_eq!(field(Encoder::Standard), r#""a\u003c\u2028\b":"#);
    }

    fn ordinary() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            // Fractions that every parser reads exactly: serde_json is one ulp off for some others.
            (-100_000i32..100_000).prop_map(|it| Value::from(f64::from(it) + 0.5)),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                prop::collection::vec((any::<String>(), inner), 0..8).prop_map(|it| it.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn written_json_parses_to_the_same_value(value in ordinary()) {
            let text = to_string(&value);
            prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }

        #[test]
        fn any_number_reads_back_as_the_same_float(bits in any::<u64>()) {
            let float = f64::from_bits(bits);
            prop_assume!(float.is_finite());
            let text = to_string(&json!(float));
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), bits);
            let plain = float == 0.0 || (1e-6..1e21).contains(&float.abs());
            prop_assert_eq!(!text.contains('e'), plain);
        }

        #[test]
        fn escaped_text_is_safe_in_a_page(text in any::<String>()) {
            let out = to_string(&json!(text));
            let banned: Vec<char> = "<>&\u{2028}\u{2029}".to_string().chars().collect();
            prop_assert!(!out.contains(&banned[..]));
        }
    }
}
