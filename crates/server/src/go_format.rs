//! Formats values as Go's `fmt` does, for error messages that quote a value.

use std::fmt::{self, Write as _};

use muster_api::text;
use serde_json::Value;

/// Maximum number of bytes of a value that an error message quotes. A whole object could be as large as a request body.
pub(crate) const QUOTED_BYTES_MAX: usize = 1024;

/// Truncates a text of more than `QUOTED_BYTES_MAX` bytes and appends `...`, so that an error message can quote it.
pub(crate) fn truncate_quoted(text: &str) -> String {
    text::truncate(text, QUOTED_BYTES_MAX, "...").into_owned()
}

/// Formats a value as JSON, truncated to `QUOTED_BYTES_MAX`. Takes no longer than the truncated text requires.
pub(crate) fn format_json(value: &Value) -> String {
    /// Text that accepts bytes until it is longer than `QUOTED_BYTES_MAX`.
    struct QuotedText(String);

    impl fmt::Write for QuotedText {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.push_str(&text[..text.floor_char_boundary(QUOTED_BYTES_MAX + 4)]);
            if self.0.len() <= QUOTED_BYTES_MAX { Ok(()) } else { Err(fmt::Error) }
        }
    }

    let mut text = QuotedText(String::new());
    // An error only means that the text is long enough.
    let _ = write!(text, "{value}");
    truncate_quoted(&text.0)
}

/// Formats a value as Go's `%v`, truncated to `QUOTED_BYTES_MAX`.
pub(crate) fn format_value(value: &Value) -> String {
    truncate_quoted(&format_value_untruncated(value))
}

/// Formats a value as Go's `%v`, in full length.
fn format_value_untruncated(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(format_value_untruncated).collect::<Vec<_>>().join(" "))
        }
        Value::Object(entries) => {
            let entries: Vec<_> =
                entries.iter().map(|(name, it)| format!("{name}:{}", format_value_untruncated(it))).collect();
            format!("map[{}]", entries.join(" "))
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Formats a value as Go's `%#v`, truncated to `QUOTED_BYTES_MAX`.
pub(crate) fn format_go_syntax(value: &Value) -> String {
    truncate_quoted(&format_go_syntax_untruncated(value))
}

/// Formats a value as Go's `%#v`, in full length.
fn format_go_syntax_untruncated(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => format!("{text:?}"),
        Value::Array(items) => {
            format!(
                "[]interface {{}}{{{}}}",
                items.iter().map(format_go_syntax_untruncated).collect::<Vec<_>>().join(", ")
            )
        }
        Value::Object(entries) => {
            let entries: Vec<_> = entries
                .iter()
                .map(|(name, it)| format!("{name:?}:{}", format_go_syntax_untruncated(it)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", entries.join(", "))
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// Returns the Go type of a value, as Go's `%T` formats it.
pub(crate) fn go_type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(it) if it.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Returns the name of a value's JSON type, as Go's `encoding/json` writes it in errors.
pub(crate) fn json_type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
