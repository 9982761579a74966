//! Validation of the kinds of `muster.dev`: one function for each kind, which the server and the controllers share.
//! Texts are those of upstream's field errors. The CustomResourceDefinitions have the same rules, as schemas and as the
//! expressions in `rules`.

mod daemon_rollout;
mod policy;
#[cfg(feature = "schema")]
pub mod rules;

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde_json::Value;

use super::values::{CountOrPercent, GoDuration};
use crate::time::parse_go_duration;

pub const WINDOWS_MAX: usize = 10;
pub const STEPS_MAX: usize = 20;
pub const CHECKS_MAX: usize = 10;
pub const DAEMON_SETS_MAX: usize = 256;
pub const SEQUENCE_MAX: usize = 64;
/// Maximum number of labels, of expressions and of values of an expression in a selector.
pub const SELECTOR_ITEMS_MAX: usize = 64;
pub const REASONS_MAX: usize = 20;
pub const REASON_LENGTH_MAX: usize = 128;
pub const QUERY_LENGTH_MAX: usize = 4096;
pub const REPORT_LENGTH_MAX: usize = 1024;
/// Maximum number of faulty nodes that a policy may allow. A status lists all of them.
pub const FAULTY_NODES_MAX: usize = 200;
pub const RESTARTS_MAX: i32 = 1000;
pub const FAILURE_THRESHOLD_MAX: i32 = 100;
/// Maximum percentage of faulty nodes that a policy may allow.
const FAILURE_PERCENT_MAX: u8 = 50;

/// Bounds of a duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DurationBounds {
    /// The lower bound, and whether the duration may be equal to it.
    pub min: (&'static str, bool),
    pub max: &'static str,
}

pub const ANY_DURATION: DurationBounds = DurationBounds { min: ("0s", true), max: "720h" };
pub const POSITIVE_DURATION: DurationBounds = DurationBounds { min: ("0s", false), max: "720h" };
pub const CHECK_INTERVAL: DurationBounds = DurationBounds { min: ("5s", true), max: "1h" };
pub const WEBHOOK_TIMEOUT: DurationBounds = DurationBounds { min: ("1s", true), max: "30s" };

impl DurationBounds {
    /// The error message of a duration that is not within the bounds.
    pub fn message(&self) -> String {
        let bounds = match self.min {
            ("0s", true) => format!("of at most {}", self.max),
            (min, true) => format!("from {min} to {}", self.max),
            (min, false) => format!("longer than {min} and of at most {}", self.max),
        };
        format!("must be a duration such as 90s, 10m or 1h30m, {bounds}")
    }

    fn includes(&self, duration: Duration) -> bool {
        let parse = |it| parse_go_duration(it).unwrap_or_default();
        let (min, is_included) = self.min;
        let min = parse(min);
        (min < duration || (is_included && min == duration)) && duration <= parse(self.max)
    }
}

/// An invalid field of an object. Upstream: `field.Error`.
#[derive(Clone, PartialEq, Debug)]
pub struct InvalidField {
    /// Path of the field: `spec.steps[0].name`.
    pub path: String,
    pub kind: InvalidFieldKind,
    /// The invalid value; null for the kinds Required, Forbidden and TooLong.
    pub value: Value,
    /// What is allowed. May be empty.
    pub detail: String,
}

/// The kind of an error. Upstream: `field.ErrorType`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidFieldKind {
    Required,
    Invalid,
    NotSupported,
    Duplicate,
    Forbidden,
    TooLong,
    TooMany,
}

impl InvalidFieldKind {
    /// The reason in a `metav1.StatusCause`. Upstream: `field.ErrorType`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

impl InvalidField {
    /// The message without the path: `Invalid value: "x": must be …`. Upstream: `field.Error.ErrorBody`.
    pub fn message(&self) -> String {
        let mut message = self.kind.as_str().to_owned();
        if !matches!(
            self.kind,
            InvalidFieldKind::Required | InvalidFieldKind::Forbidden | InvalidFieldKind::TooLong
        ) {
            message.push_str(&format!(": {}", self.value));
        }
        if !self.detail.is_empty() {
            message.push_str(&format!(": {}", self.detail));
        }
        message
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message())
    }
}

/// Collects the invalid fields of an object, and has the path of the current field.
#[derive(Debug)]
struct FieldValidator {
    path: String,
    invalid: Vec<InvalidField>,
}

impl FieldValidator {
    fn new(root: &str) -> Self {
        Self { path: root.to_owned(), invalid: Vec::new() }
    }

    /// Calls `check` with the path of a field.
    fn field(&mut self, name: &str, check: impl FnOnce(&mut Self)) {
        self.at(&format!(".{name}"), check);
    }

    /// Calls `check` with the path of each item of the field `name`.
    fn items<T>(&mut self, name: &str, items: &[T], mut check: impl FnMut(&mut Self, usize, &T)) {
        for (index, item) in items.iter().enumerate() {
            self.at(&format!(".{name}[{index}]"), |it| check(it, index, item));
        }
    }

    fn at(&mut self, suffix: &str, check: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push_str(suffix);
        check(self);
        self.path.truncate(length);
    }

    fn push(&mut self, kind: InvalidFieldKind, value: Value, detail: &str) {
        self.invalid.push(InvalidField { path: self.path.clone(), kind, value, detail: detail.to_owned() });
    }

    fn required(&mut self, detail: &str) {
        self.push(InvalidFieldKind::Required, Value::Null, detail);
    }

    fn forbidden(&mut self, detail: &str) {
        self.push(InvalidFieldKind::Forbidden, Value::Null, detail);
    }

    fn invalid(&mut self, value: impl Into<Value>, detail: &str) {
        self.push(InvalidFieldKind::Invalid, value.into(), detail);
    }

    fn duplicate(&mut self, value: &str) {
        self.push(InvalidFieldKind::Duplicate, value.into(), "");
    }

    /// Checks the number of items of a list.
    fn at_most(&mut self, name: &str, count: usize, count_max: usize) {
        if count_max < count {
            let detail = format!("must have at most {count_max} items");
            self.field(name, |it| it.push(InvalidFieldKind::TooMany, count.into(), &detail));
        }
    }

    /// Checks that a text is one of the supported values.
    fn choice(&mut self, name: &str, text: &str, supported: &[&str]) {
        if supported.contains(&text) {
            return;
        }
        self.field(name, |it| {
            if text.is_empty() {
                return it.required("");
            }
            let supported: Vec<_> = supported.iter().map(|it| Value::from(*it).to_string()).collect();
            let detail = format!("supported values: {}", supported.join(", "));
            it.push(InvalidFieldKind::NotSupported, text.into(), &detail);
        });
    }

    /// Checks a required text against a syntax rule, which returns error messages.
    fn name(&mut self, name: &str, text: &str, rule: fn(&str) -> Vec<String>) {
        self.field(name, |it| it.text(text, rule));
    }

    /// Checks a required text at the current path.
    fn text(&mut self, text: &str, rule: fn(&str) -> Vec<String>) {
        if text.is_empty() {
            return self.required("");
        }
        for detail in rule(text) {
            self.invalid(text, &detail);
        }
    }

    /// Checks that a text is not empty and not too long.
    fn length(&mut self, name: &str, text: &str, length_max: usize) {
        self.field(name, |it| {
            if text.is_empty() {
                it.required("");
            }
            it.not_too_long(text, length_max);
        });
    }

    fn not_too_long(&mut self, text: &str, length_max: usize) {
        if length_max < text.chars().count() {
            let detail = format!("may not be more than {length_max} characters");
            self.push(InvalidFieldKind::TooLong, Value::Null, &detail);
        }
    }

    fn duration(&mut self, name: &str, duration: &GoDuration, bounds: &DurationBounds) {
        let is_valid = duration.as_str().chars().count() <= super::syntax::DURATION_LENGTH_MAX
            && duration.parse().is_some_and(|it| bounds.includes(it));
        if !is_valid {
            self.field(name, |it| it.invalid(duration.as_str(), &bounds.message()));
        }
    }

    fn number(&mut self, name: &str, number: i32, min: i32, max: i32) {
        if number < min || max < number {
            let detail = match max {
                i32::MAX => format!("must be greater than or equal to {min}"),
                _ => format!("must be between {min} and {max}, inclusive"),
            };
            self.field(name, |it| it.invalid(number, &detail));
        }
    }

    /// Checks a count of at least one or a percentage from 1% to 100%.
    fn count_or_percent(&mut self, name: &str, value: &CountOrPercent) {
        let is_valid = match value {
            CountOrPercent::Count(count) => 1 <= *count,
            CountOrPercent::Percent(percent) => 1 <= *percent,
            CountOrPercent::Invalid(_) => false,
        };
        if !is_valid {
            let detail = "must be a number of at least 1 or a percentage from 1% to 100%";
            self.field(name, |it| it.invalid(value.to_json(), detail));
        }
    }

    /// Checks that no item of the field `name` has the key of an earlier one. The error is at the key field, or at the
    /// item itself.
    fn unique<'a>(&mut self, name: &str, key_field: Option<&str>, keys: impl Iterator<Item = &'a str>) {
        let mut seen: Vec<&str> = Vec::new();
        for (index, key) in keys.enumerate() {
            if seen.contains(&key) && !key.is_empty() {
                let field = key_field.map(|it| format!(".{it}")).unwrap_or_default();
                self.at(&format!(".{name}[{index}]{field}"), |it| it.duplicate(key));
            }
            seen.push(key);
        }
    }
}

#[cfg(test)]
mod tests;
