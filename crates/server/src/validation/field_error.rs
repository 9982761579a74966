//! Validation errors of fields, with upstream's messages. Upstream: `field.Error`.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;

use crate::go_format;

/// One validation error: the reason, the path of the field, and the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// Machine-readable reason, such as `FieldValueInvalid`.
    pub(crate) reason: &'static str,
    /// Path of the field, such as `spec.containers[0].image`.
    pub(crate) field: String,
    /// Message for the user. For most reasons, it contains the invalid value.
    pub(crate) message: String,
}

impl FieldError {
    /// Returns the error for a required field that is not set.
    pub(crate) fn required(field: impl fmt::Display, why: &str) -> Self {
        Self::without_value("FieldValueRequired", "Required value", field, why)
    }

    /// Returns the error for a field that must not be set.
    pub(crate) fn forbidden(field: impl fmt::Display, why: &str) -> Self {
        Self::without_value("FieldValueForbidden", "Forbidden", field, why)
    }

    /// Returns the error for a value of more than `bytes_max` bytes.
    pub(crate) fn too_long(field: impl fmt::Display, bytes_max: usize) -> Self {
        let why = format!("may not be more than {bytes_max} bytes");
        Self::without_value("FieldValueTooLong", "Too long", field, &why)
    }

    /// Returns the error for an invalid value.
    pub(crate) fn invalid<'a>(
        field: impl fmt::Display,
        value: impl Into<InvalidValue<'a>>,
        why: &str,
    ) -> Self {
        Self::with_value("FieldValueInvalid", "Invalid value", field, value, why)
    }

    /// Returns the error for a reference to something that does not exist.
    pub(crate) fn not_found<'a>(field: impl fmt::Display, value: impl Into<InvalidValue<'a>>) -> Self {
        Self::with_value("FieldValueNotFound", "Not found", field, value, "")
    }

    /// Returns the error for a value that must be unique and is not.
    pub(crate) fn duplicate<'a>(field: impl fmt::Display, value: impl Into<InvalidValue<'a>>) -> Self {
        Self::with_value("FieldValueDuplicate", "Duplicate value", field, value, "")
    }

    /// Returns the error for a list with more than `count_max` items.
    pub(crate) fn too_many(field: impl fmt::Display, count: usize, count_max: usize) -> Self {
        let items = if count_max == 1 { "item" } else { "items" };
        let why = format!("must have at most {count_max} {items}");
        Self::with_value("FieldValueTooMany", "Too many", field, count, &why)
    }

    /// Returns the error for a value that is not one of `supported`.
    pub(crate) fn unsupported<'a>(
        field: impl fmt::Display,
        value: impl Into<InvalidValue<'a>>,
        supported: &[&str],
    ) -> Self {
        // Enumerated strings have types of their own in Go, and are shown as JSON.
        let value = match value.into() {
            InvalidValue::Text(text) => {
                InvalidValue::Formatted(InvalidValue::Json(&text.into()).to_string().into())
            }
            other => other,
        };
        let supported: Vec<_> = supported.iter().map(|it| format!("{it:?}")).collect();
        let why = format!("supported values: {}", supported.join(", "));
        Self::with_value("FieldValueNotSupported", "Unsupported value", field, value, &why)
    }

    /// Returns an error whose message does not contain the invalid value. `what` is the beginning of the message.
    fn without_value(reason: &'static str, what: &str, field: impl fmt::Display, why: &str) -> Self {
        let message = if why.is_empty() { what.to_owned() } else { format!("{what}: {why}") };
        Self { reason, field: field.to_string(), message }
    }

    /// Returns an error whose message contains the invalid value. `what` is the beginning of the message.
    fn with_value<'a>(
        reason: &'static str,
        what: &str,
        field: impl fmt::Display,
        value: impl Into<InvalidValue<'a>>,
        why: &str,
    ) -> Self {
        let value = value.into();
        let message =
            if why.is_empty() { format!("{what}: {value}") } else { format!("{what}: {value}: {why}") };
        Self { reason, field: field.to_string(), message }
    }
}

/// The invalid value in an error message. The variant determines how the value is formatted. A value of more than
/// `go_format::QUOTED_BYTES_MAX` bytes is truncated.
#[derive(Clone)]
pub(crate) enum InvalidValue<'a> {
    /// A string, quoted like Go's `%q`.
    Text(&'a str),
    Number(i128),
    /// A value, formatted as JSON like Go's encoder does.
    Json(&'a Value),
    /// A value that is already formatted as Go prints it.
    Formatted(Cow<'a, str>),
}

impl fmt::Display for InvalidValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write_quoted(f, &go_format::truncate_quoted(text)),
            Self::Number(number) => write!(f, "{number}"),
            Self::Formatted(text) => f.write_str(&go_format::truncate_quoted(text)),
            Self::Json(value) => {
                // Go's encoder escapes HTML characters.
                for part in go_format::format_json(value).chars() {
                    match part {
                        '<' | '>' | '&' => write!(f, "\\u{:04x}", u32::from(part))?,
                        other => write!(f, "{other}")?,
                    }
                }
                Ok(())
            }
        }
    }
}

/// Quotes a string like Go's `%q`, truncated to `go_format::QUOTED_BYTES_MAX`.
pub(crate) fn go_quoted(text: &str) -> String {
    InvalidValue::Text(text).to_string()
}

/// Writes a string in quotes, like Go's `%q`.
fn write_quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(f, "\"")?;
    for it in text.chars() {
        match it {
            '"' | '\\' => write!(f, "\\{it}")?,
            '\n' => write!(f, "\\n")?,
            '\r' => write!(f, "\\r")?,
            '\t' => write!(f, "\\t")?,
            '\x07' => write!(f, "\\a")?,
            '\x08' => write!(f, "\\b")?,
            '\x0b' => write!(f, "\\v")?,
            '\x0c' => write!(f, "\\f")?,
            '\0'..='\x1f' | '\x7f' => write!(f, "\\x{:02x}", u32::from(it))?,
            '\u{80}'..='\u{9f}' | '\u{ad}' | '\u{feff}' => write!(f, "\\u{:04x}", u32::from(it))?,
            other => write!(f, "{other}")?,
        }
    }
    write!(f, "\"")
}

impl<'a> From<&'a str> for InvalidValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for InvalidValue<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a Value> for InvalidValue<'a> {
    fn from(value: &'a Value) -> Self {
        Self::Json(value)
    }
}

impl From<i64> for InvalidValue<'_> {
    fn from(number: i64) -> Self {
        Self::Number(number.into())
    }
}

impl From<i128> for InvalidValue<'_> {
    fn from(number: i128) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for InvalidValue<'_> {
    fn from(number: usize) -> Self {
        Self::Number(i128::try_from(number).unwrap_or(i128::MAX))
    }
}

/// Path of a field in an error, such as `spec.containers[0].image`. A path borrows its parents and is formatted only if
/// there is an error, so that the validation of a valid object allocates no paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ErrorPath<'a> {
    parent: Option<&'a ErrorPath<'a>>,
    step: ErrorPathStep<'a>,
}

/// The last step of an [`ErrorPath`]: a field, a list index or a map key.
#[derive(Debug, Clone, Copy)]
enum ErrorPathStep<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> ErrorPath<'a> {
    /// Returns a path that begins at the object. `name` is a top-level field such as `spec`, or a dotted path such as
    /// `status.addresses`.
    pub(crate) const fn new(name: &'a str) -> Self {
        Self { parent: None, step: ErrorPathStep::Field(name) }
    }

    /// Returns the path of a field below this path. `name` is a field name or a dotted path.
    pub(crate) const fn field(&'a self, name: &'a str) -> ErrorPath<'a> {
        ErrorPath { parent: Some(self), step: ErrorPathStep::Field(name) }
    }

    /// Returns the path of an item of the list at this path, such as `spec.containers[0]`.
    pub(crate) const fn index(&'a self, at: usize) -> ErrorPath<'a> {
        ErrorPath { parent: Some(self), step: ErrorPathStep::Index(at) }
    }

    /// Returns the path of an entry of the map at this path, such as `metadata.labels[key]`.
    pub(crate) const fn key(&'a self, key: &'a str) -> ErrorPath<'a> {
        ErrorPath { parent: Some(self), step: ErrorPathStep::Key(key) }
    }
}

impl fmt::Display for ErrorPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            ErrorPathStep::Field(name) if self.parent.is_none() => write!(f, "{name}"),
            ErrorPathStep::Field(name) => write!(f, ".{name}"),
            ErrorPathStep::Index(at) => write!(f, "[{at}]"),
            ErrorPathStep::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// Maximum number of validation errors in one response. Without a limit, an object of 3 MiB could have half a million
/// errors of 200 bytes. Upstream has no limit.
pub(super) const FIELD_ERRORS_MAX: usize = 100;

/// Maximum total size of the validation errors in one response, which the last error may exceed. 100 errors that quote
/// values of 1 KiB fit.
const FIELD_ERRORS_BYTES_MAX: usize = 256 << 10;

/// The validation errors that were found in an object so far: the first ones up to a limit, and how many more there
/// are. Upstream: `field.ErrorList`.
#[derive(Debug, Default)]
pub(crate) struct FieldErrors {
    first: Vec<FieldError>,
    /// Total size of `first`.
    bytes: usize,
    /// Number of errors that are not in `first`.
    omitted_count: usize,
}

impl FieldErrors {
    /// Returns the errors. If some were omitted, the last error says how many.
    pub(crate) fn into_inner(mut self) -> Vec<FieldError> {
        if self.omitted_count != 0 {
            let message = format!("Too many errors: {} more are not shown", self.omitted_count);
            self.first.push(FieldError {
                reason: "FieldValueTooMany",
                field: ErrorPath::new("<nil>").to_string(),
                message,
            });
        }
        self.first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Returns how many errors were found, including the omitted ones.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.omitted_count
    }

    /// Adds the error that `build` returns. `build` is not called if the error is omitted.
    fn add(&mut self, build: impl FnOnce() -> FieldError) {
        if FIELD_ERRORS_MAX <= self.first.len() || FIELD_ERRORS_BYTES_MAX <= self.bytes {
            self.omitted_count += 1;
            return;
        }
        let error = build();
        self.bytes += error.field.len() + error.message.len();
        self.first.push(error);
    }

    pub(crate) fn push(&mut self, cause: FieldError) {
        self.add(|| cause);
    }

    /// Adds the error for a required field that is not set.
    pub(crate) fn required(&mut self, at: &ErrorPath, why: &str) {
        self.add(|| FieldError::required(at, why));
    }

    /// Adds the error for a field that must not be set.
    pub(crate) fn forbidden(&mut self, at: &ErrorPath, why: &str) {
        self.add(|| FieldError::forbidden(at, why));
    }

    /// Adds the error for an invalid value.
    pub(crate) fn invalid<'a>(&mut self, at: &ErrorPath, value: impl Into<InvalidValue<'a>>, why: &str) {
        self.add(|| FieldError::invalid(at, value, why));
    }

    /// Adds the error for a reference to something that does not exist.
    pub(crate) fn not_found<'a>(&mut self, at: &ErrorPath, value: impl Into<InvalidValue<'a>>) {
        self.add(|| FieldError::not_found(at, value));
    }

    /// Adds the error for a reference to something that does not exist. `why` is the end of the message.
    pub(crate) fn not_found_because<'a>(
        &mut self,
        at: &ErrorPath,
        value: impl Into<InvalidValue<'a>>,
        why: &str,
    ) {
        self.add(|| FieldError::with_value("FieldValueNotFound", "Not found", at, value, why));
    }

    /// Adds the error for a value that must be unique and is not.
    pub(crate) fn duplicate<'a>(&mut self, at: &ErrorPath, value: impl Into<InvalidValue<'a>>) {
        self.add(|| FieldError::duplicate(at, value));
    }

    /// Adds the error for a value that must be unique and is not. `why` is the end of the message.
    pub(crate) fn duplicate_because<'a>(
        &mut self,
        at: &ErrorPath,
        value: impl Into<InvalidValue<'a>>,
        why: &str,
    ) {
        self.add(|| FieldError::with_value("FieldValueDuplicate", "Duplicate value", at, value, why));
    }

    /// Adds the error for a list with more than `count_max` items.
    pub(crate) fn too_many(&mut self, at: &ErrorPath, count: usize, count_max: usize) {
        self.add(|| FieldError::too_many(at, count, count_max));
    }

    /// Adds the error for a value that is not one of `supported`.
    pub(crate) fn unsupported<'a>(
        &mut self,
        at: &ErrorPath,
        value: impl Into<InvalidValue<'a>>,
        supported: &[&str],
    ) {
        self.add(|| FieldError::unsupported(at, value, supported));
    }

    /// Adds the error for a value of more than `bytes_max` bytes.
    pub(crate) fn too_long(&mut self, at: &ErrorPath, bytes_max: usize) {
        self.add(|| FieldError::too_long(at, bytes_max));
    }

    /// Adds an `Invalid` error for each message. `text` is the invalid value.
    pub(crate) fn invalid_for_each(&mut self, at: &ErrorPath, text: &str, messages: Vec<String>) {
        for why in messages {
            self.invalid(at, text, &why);
        }
    }
}
