//! Formats values as Go's `fmt` does, for error messages that quote a value.

use muster_api::text;
use serde_json::Value;

/// Maximum number of bytes of a value that an error message quotes. A whole object could be as large as a request body.
pub(crate) const QUOTED_BYTES_MAX: usize = 1024;

/// Truncates a text of more than `QUOTED_BYTES_MAX` bytes and appends `...`, so that an error message can quote it.
pub(crate) fn truncate_quoted(text: &str) -> String {
    text::truncate(text, QUOTED_BYTES_MAX, "...").into_owned()
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
