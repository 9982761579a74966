//! CEL validation rules of the CustomResourceDefinitions, for what a JSON schema cannot express. kube-apiserver
//! evaluates them; Muster's API server uses the validation in Rust instead. A test checks that the two agree.
//!
//! kube-apiserver estimates the cost of each rule from the maximum lengths of lists and strings. Every list and string
//! that a rule reads therefore has a maximum length.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Value, json};

use super::{DurationBounds, STEPS_MAX};
use crate::muster_v1alpha1::syntax;

/// Returns a CEL rule that reports its error for the validated value itself.
fn rule(expression: &str, message: &str) -> Value {
    json!({"rule": expression, "message": message})
}

/// Returns a CEL rule that reports its error for the field `field` of the validated value.
fn field_rule(field: &str, reason: &str, expression: &str, message: &str) -> Value {
    json!({"rule": expression, "message": message, "fieldPath": field, "reason": reason})
}

/// Returns the CEL rule that checks that a duration is within the bounds. The rule accepts texts that are not
/// durations, because the pattern of the schema reports them.
pub fn duration(bounds: &DurationBounds) -> Value {
    let (min, is_included) = bounds.min;
    let operator = if is_included { ">=" } else { ">" };
    let expression = format!(
        "!self.matches(r'{}') || (duration(self) {operator} duration('{min}') && duration(self) <= duration('{}'))",
        syntax::DURATION_PATTERN,
        bounds.max
    );
    json!([rule(&expression, &bounds.message())])
}

/// Returns the CEL rule that checks the label keys in `matchLabels` of a selector.
pub fn match_labels() -> Value {
    let expression = format!(
        "!has(self.matchLabels) || self.matchLabels.all(key, key.matches(r'{}') && key.matches(r'{}'))",
        syntax::LABEL_KEY_PATTERN,
        syntax::LABEL_KEY_LENGTHS_PATTERN
    );
    field_rule(
        ".matchLabels",
        "FieldValueInvalid",
        &expression,
        "must have valid label keys such as example.com/name",
    )
}

/// Returns the CEL rules that check whether `values` of a selector expression is set as its operator requires.
pub fn selector_values() -> Value {
    json!([
        field_rule(
            ".values",
            "FieldValueRequired",
            "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
            "must be specified when `operator` is 'In' or 'NotIn'",
        ),
        field_rule(
            ".values",
            "FieldValueForbidden",
            "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
    ])
}

/// Returns the CEL rule that checks that exactly one of `selector` and `daemonSets` of a RolloutPolicy is set.
pub fn selector_or_names() -> Value {
    json!([rule(
        "has(self.selector) != has(self.daemonSets)",
        "exactly one of `selector` and `daemonSets` must be set"
    )])
}

/// Returns the CEL rule that checks that the start and end of a time window differ.
pub fn window() -> Value {
    json!([field_rule(".end", "FieldValueInvalid", "self.start != self.end", "must not be equal to `start`")])
}

/// Returns the CEL rules that check that `order.labelKey` is set if and only if nodes are ordered by a label.
pub fn order() -> Value {
    json!([
        field_rule(
            ".labelKey",
            "FieldValueRequired",
            "self.by != 'Label' || has(self.labelKey)",
            "must be set if `by` is Label",
        ),
        field_rule(
            ".labelKey",
            "FieldValueForbidden",
            "self.by == 'Label' || !has(self.labelKey)",
            "may be set only if `by` is Label",
        ),
    ])
}

/// Returns the CEL rules for the list of steps. Only the last step may have `groups`. A later step with an equal
/// selector must not be for fewer nodes. The rule enumerates the indices of both steps of a pair, so that
/// kube-apiserver can estimate its cost. Percentages are strings without leading zeros, so the rule compares their
/// lengths first.
pub fn steps() -> Value {
    let indices = |from: usize, to: usize| {
        let indices: Vec<String> = (from..to).map(|it| format!("{it}")).collect();
        indices.join(", ")
    };
    let same_selector = "has(self[i].selector) == has(self[j].selector) \
                         && (!has(self[i].selector) || self[i].selector == self[j].selector)";
    let not_lower = "(type(self[i].nodes) == int ? type(self[j].nodes) != int || self[i].nodes <= self[j].nodes \
                     : type(self[j].nodes) == int || size(self[i].nodes) < size(self[j].nodes) \
                     || (size(self[i].nodes) == size(self[j].nodes) && self[i].nodes <= self[j].nodes))";
    let expression = format!(
        "[{}].all(i, i >= size(self) || [{}].all(j, j <= i || j >= size(self) || !({same_selector}) || {not_lower}))",
        indices(0, STEPS_MAX - 1),
        indices(1, STEPS_MAX),
    );
    json!([
        rule(
            "self.all(step, !has(step.groups) || step.name == self[size(self) - 1].name)",
            "`groups` may be set only in the last step"
        ),
        rule(&expression, "`nodes` must not be lower than that of an earlier step with an equal selector"),
    ])
}

/// Returns the CEL rule that checks that a step does not set both `groups` and `spread`.
pub fn step() -> Value {
    json!([field_rule(
        ".groups",
        "FieldValueForbidden",
        "!has(self.groups) || !has(self.spread)",
        "may not be set together with `spread`",
    )])
}

/// Returns the CEL rule that checks that the values of `groups.sequence` are unique.
pub fn sequence() -> Value {
    json!([rule("self.all(value, self.exists_one(other, other == value))", "must not have a value twice")])
}

/// Returns the CEL rule that checks that exactly one type of check is set.
pub fn exactly_one_check_type() -> Value {
    json!([rule(
        "[has(self.prometheus), has(self.webhook), has(self.external)].exists_one(it, it)",
        "exactly one of `prometheus`, `webhook` and `external` must be set"
    )])
}
