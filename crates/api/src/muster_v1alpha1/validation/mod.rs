//! Validation of the kinds of `muster.dev`, which the server and the controllers share. Each spec and status has a
//! function `validate`. The messages have the form of upstream's field errors. The CustomResourceDefinitions contain
//! the same rules, as JSON schemas and as the CEL expressions in `rules`.

/// Validation of DaemonRollouts.
mod daemon_rollout;
/// Validation of RolloutPolicies and ClusterRolloutPolicies.
mod policy;
/// CEL rules of the CustomResourceDefinitions.
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

/// Maximum number of `windows` of a policy.
pub const WINDOWS_MAX: usize = 10;
/// Maximum number of `steps` of a policy.
pub const STEPS_MAX: usize = 20;
/// Maximum number of `checks` of a policy.
pub const CHECKS_MAX: usize = 10;
/// Maximum number of names in `daemonSets` of a policy.
pub const DAEMON_SETS_MAX: usize = 256;
/// Maximum number of label values in `groups.sequence` of a step.
pub const SEQUENCE_MAX: usize = 64;
/// Maximum number of labels and of expressions in a selector, and of values in an expression.
pub const SELECTOR_ITEMS_MAX: usize = 64;
/// Maximum number of `failures.immediateFailureReasons` of a policy.
pub const REASONS_MAX: usize = 20;
/// Maximum length of one of the `failures.immediateFailureReasons` of a policy.
pub const REASON_LENGTH_MAX: usize = 128;
/// Maximum length of a Prometheus query of a check.
pub const QUERY_LENGTH_MAX: usize = 4096;
/// Maximum length of the message in a check report of a DaemonRollout.
pub const REPORT_LENGTH_MAX: usize = 1024;
/// Maximum number of faulty nodes that a policy may allow. It is limited because the status lists all of them.
pub const FAULTY_NODES_MAX: usize = 200;
/// Maximum of `failures.maxRestarts` of a policy.
pub const RESTARTS_MAX: i32 = 1000;
/// Maximum of `failureThreshold` of a check.
pub const FAILURE_THRESHOLD_MAX: i32 = 100;
/// Maximum percentage of faulty nodes that a policy may allow.
const FAILURE_PERCENT_MAX: u8 = 50;

/// Lower and upper bound of a duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DurationBounds {
    /// The lower bound, and whether the duration may be equal to it.
    pub min: (&'static str, bool),
    /// The upper bound, which the duration may be equal to.
    pub max: &'static str,
}

/// Bounds of a duration that may be zero and is at most 30 days.
pub const NON_NEGATIVE_DURATION: DurationBounds = DurationBounds { min: ("0s", true), max: "720h" };
/// Bounds of a duration that must not be zero and is at most 30 days.
pub const POSITIVE_DURATION: DurationBounds = DurationBounds { min: ("0s", false), max: "720h" };
/// Bounds of `interval` of a check.
pub const CHECK_INTERVAL_BOUNDS: DurationBounds = DurationBounds { min: ("5s", true), max: "1h" };
/// Bounds of `timeout` of a webhook check.
pub const WEBHOOK_TIMEOUT_BOUNDS: DurationBounds = DurationBounds { min: ("1s", true), max: "30s" };

impl DurationBounds {
    /// Returns the error message for a duration that is not within the bounds.
    pub fn message(&self) -> String {
        let bounds = match self.min {
            ("0s", true) => format!("of at most {}", self.max),
            (min, true) => format!("from {min} to {}", self.max),
            (min, false) => format!("longer than {min} and of at most {}", self.max),
        };
        format!("must be a duration such as 90s, 10m or 1h30m, {bounds}")
    }

    /// Whether the duration is within the bounds.
    fn includes(&self, duration: Duration) -> bool {
        let parse = |it| GoDuration::new(it).duration_or_zero();
        let (min, is_included) = self.min;
        let min = parse(min);
        (min < duration || (is_included && min == duration)) && duration <= parse(self.max)
    }
}

/// An invalid field of an object. Upstream: `field.Error`.
#[derive(Clone, PartialEq, Debug)]
pub struct InvalidField {
    /// Path of the field, such as `spec.steps[0].name`.
    pub path: String,
    pub kind: InvalidFieldKind,
    /// The invalid value. Null for the kinds Required, Forbidden and TooLong, whose message does not show it.
    pub value: Value,
    /// End of the message, which says what is allowed. It may be empty.
    pub detail: String,
}

/// Why a field is invalid. Upstream: `field.ErrorType`.
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
    /// Returns the reason of a `metav1.StatusCause`, such as `FieldValueInvalid`. Upstream: `field.ErrorType`.
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

    /// Returns the beginning of the error message, such as `Invalid value`.
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
    /// Returns the message without the path, such as `Invalid value: "x": must be …`. Upstream:
    /// `field.Error.ErrorBody`.
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

/// Collects the validation errors of an object. Errors are added for the field at the current path.
#[derive(Debug)]
struct FieldValidator {
    /// Path of the field that is being checked.
    path: String,
    /// The errors that were found so far.
    invalid: Vec<InvalidField>,
}

impl FieldValidator {
    /// Creates a validator whose current path is `root`.
    fn new(root: &str) -> Self {
        Self { path: root.to_owned(), invalid: Vec::new() }
    }

    /// Calls `check` with the field `name` as the current path.
    fn in_field(&mut self, name: &str, check: impl FnOnce(&mut Self)) {
        self.with_path_suffix(&format!(".{name}"), check);
    }

    /// Calls `check` for each item of the field `name`, with the index of the item. The current path is then the path
    /// of the item.
    fn for_each_item<T>(&mut self, name: &str, items: &[T], mut check: impl FnMut(&mut Self, usize, &T)) {
        for (index, item) in items.iter().enumerate() {
            self.with_path_suffix(&format!(".{name}[{index}]"), |it| check(it, index, item));
        }
    }

    /// Calls `check` while `suffix` is appended to the current path.
    fn with_path_suffix(&mut self, suffix: &str, check: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push_str(suffix);
        check(self);
        self.path.truncate(length);
    }

    /// Adds an error for the field at the current path.
    fn add_error(&mut self, kind: InvalidFieldKind, value: Value, detail: &str) {
        self.invalid.push(InvalidField { path: self.path.clone(), kind, value, detail: detail.to_owned() });
    }

    /// Adds the error for a required field that is not set.
    fn add_required_error(&mut self, detail: &str) {
        self.add_error(InvalidFieldKind::Required, Value::Null, detail);
    }

    /// Adds the error for a field that must not be set.
    fn add_forbidden_error(&mut self, detail: &str) {
        self.add_error(InvalidFieldKind::Forbidden, Value::Null, detail);
    }

    /// Adds the error for a malformed value.
    fn add_invalid_error(&mut self, value: impl Into<Value>, detail: &str) {
        self.add_error(InvalidFieldKind::Invalid, value.into(), detail);
    }

    /// Adds the error for a value that must be unique and is not.
    fn add_duplicate_error(&mut self, value: &str) {
        self.add_error(InvalidFieldKind::Duplicate, value.into(), "");
    }

    /// Checks that the list in the field `name` has at most `count_max` items.
    fn check_count(&mut self, name: &str, count: usize, count_max: usize) {
        if count_max < count {
            let detail = format!("must have at most {count_max} items");
            self.in_field(name, |it| it.add_error(InvalidFieldKind::TooMany, count.into(), &detail));
        }
    }

    /// Checks that the text in the field `name` is one of the supported values.
    fn check_choice(&mut self, name: &str, text: &str, supported: &[&str]) {
        if supported.contains(&text) {
            return;
        }
        self.in_field(name, |it| {
            if text.is_empty() {
                return it.add_required_error("");
            }
            let supported: Vec<_> = supported.iter().map(|it| Value::from(*it).to_string()).collect();
            let detail = format!("supported values: {}", supported.join(", "));
            it.add_error(InvalidFieldKind::NotSupported, text.into(), &detail);
        });
    }

    /// Checks that the text in the field `name` is not empty, and that `rule` returns no error messages for it.
    fn check_text_field(&mut self, name: &str, text: &str, rule: fn(&str) -> Vec<String>) {
        self.in_field(name, |it| it.check_text(text, rule));
    }

    /// Checks that the text at the current path is not empty, and that `rule` returns no error messages for it.
    fn check_text(&mut self, text: &str, rule: fn(&str) -> Vec<String>) {
        if text.is_empty() {
            return self.add_required_error("");
        }
        for detail in rule(text) {
            self.add_invalid_error(text, &detail);
        }
    }

    /// Checks that the text in the field `name` is not empty and has at most `length_max` characters.
    fn check_length(&mut self, name: &str, text: &str, length_max: usize) {
        self.in_field(name, |it| {
            if text.is_empty() {
                it.add_required_error("");
            }
            it.check_not_too_long(text, length_max);
        });
    }

    /// Checks that the text at the current path has at most `length_max` characters.
    fn check_not_too_long(&mut self, text: &str, length_max: usize) {
        if length_max < text.chars().count() {
            let detail = format!("may not be more than {length_max} characters");
            self.add_error(InvalidFieldKind::TooLong, Value::Null, &detail);
        }
    }

    /// Checks that the duration in the field `name` is valid and within the bounds.
    fn check_duration(&mut self, name: &str, duration: &GoDuration, bounds: &DurationBounds) {
        let is_valid = duration.as_str().chars().count() <= super::syntax::DURATION_LENGTH_MAX
            && duration.parse().is_some_and(|it| bounds.includes(it));
        if !is_valid {
            self.in_field(name, |it| it.add_invalid_error(duration.as_str(), &bounds.message()));
        }
    }

    /// Checks that the number in the field `name` is between `min` and `max`, inclusive.
    fn check_number(&mut self, name: &str, number: i32, min: i32, max: i32) {
        if number < min || max < number {
            let detail = match max {
                i32::MAX => format!("must be greater than or equal to {min}"),
                _ => format!("must be between {min} and {max}, inclusive"),
            };
            self.in_field(name, |it| it.add_invalid_error(number, &detail));
        }
    }

    /// Checks that the field `name` is a count of at least one or a percentage from 1% to 100%.
    fn check_count_or_percent(&mut self, name: &str, value: &CountOrPercent) {
        let is_valid = match value {
            CountOrPercent::Count(count) => 1 <= *count,
            CountOrPercent::Percent(percent) => 1 <= *percent,
            CountOrPercent::Invalid(_) => false,
        };
        if !is_valid {
            let detail = "must be a number of at least 1 or a percentage from 1% to 100%";
            self.in_field(name, |it| it.add_invalid_error(value.to_json(), detail));
        }
    }

    /// Checks that no item of the field `name` has the same key as an earlier item. `keys` are the keys of the items.
    /// Empty keys are ignored. The error is for the item's field `key_field`, or for the item itself if `key_field` is
    /// `None`.
    fn check_unique<'a>(&mut self, name: &str, key_field: Option<&str>, keys: impl Iterator<Item = &'a str>) {
        let mut seen: Vec<&str> = Vec::new();
        for (index, key) in keys.enumerate() {
            if seen.contains(&key) && !key.is_empty() {
                let field = key_field.map(|it| format!(".{it}")).unwrap_or_default();
                self.with_path_suffix(&format!(".{name}[{index}]{field}"), |it| it.add_duplicate_error(key));
            }
            seen.push(key);
        }
    }
}

#[cfg(test)]
mod tests;
