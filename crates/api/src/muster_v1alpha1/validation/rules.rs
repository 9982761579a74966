//! The rules that a schema cannot express, as validation rules (CEL) of the CustomResourceDefinitions. The server does
//! not evaluate them: a test holds them equal to the validation.
//!
//! kube-apiserver estimates the cost of each rule from the limits of lists and strings: every list and string that a
//! rule reads has one.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::{Value, json};

use super::{DurationBounds, STEPS_MAX};
use crate::muster_v1alpha1::syntax;

fn rule(expression: &str, message: &str) -> Value {
    json!({"rule": expression, "message": message})
}

fn rule_at(field: &str, reason: &str, expression: &str, message: &str) -> Value {
    json!({"rule": expression, "message": message, "fieldPath": field, "reason": reason})
}

/// A duration within bounds. The pattern of the schema reports texts that are no durations.
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

/// Keys of labels in a selector, which a schema cannot describe.
pub fn match_labels() -> Value {
    let expression = format!(
        "!has(self.matchLabels) || self.matchLabels.all(key, key.matches(r'{}') && key.matches(r'{}'))",
        syntax::LABEL_KEY_PATTERN,
        syntax::LABEL_KEY_LENGTHS_PATTERN
    );
    rule_at(
        ".matchLabels",
        "FieldValueInvalid",
        &expression,
        "must have valid label keys such as example.com/name",
    )
}

pub fn selector_values() -> Value {
    json!([
        rule_at(
            ".values",
            "FieldValueRequired",
            "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
            "must be specified when `operator` is 'In' or 'NotIn'",
        ),
        rule_at(
            ".values",
            "FieldValueForbidden",
            "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || size(self.values) == 0",
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
    ])
}

pub fn selector_or_names() -> Value {
    json!([rule(
        "has(self.selector) != has(self.daemonSets)",
        "exactly one of `selector` and `daemonSets` must be set"
    )])
}

pub fn window() -> Value {
    json!([rule_at(".end", "FieldValueInvalid", "self.start != self.end", "must not be equal to `start`")])
}

pub fn order() -> Value {
    json!([
        rule_at(
            ".labelKey",
            "FieldValueRequired",
            "self.by != 'Label' || has(self.labelKey)",
            "must be set if `by` is Label",
        ),
        rule_at(
            ".labelKey",
            "FieldValueForbidden",
            "self.by == 'Label' || !has(self.labelKey)",
            "may be set only if `by` is Label",
        ),
    ])
}

/// Rules on the order of steps. The pairs of steps are enumerated by their indices, so that the cost estimate has the
/// limits of their fields; a comparison of two types would have no limit. Percentages have no leading zeros, so a shorter
/// one is lower.
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

pub fn step() -> Value {
    json!([rule_at(
        ".groups",
        "FieldValueForbidden",
        "!has(self.groups) || !has(self.spread)",
        "may not be set together with `spread`",
    )])
}

pub fn sequence() -> Value {
    json!([rule("self.all(value, self.exists_one(other, other == value))", "must not have a value twice")])
}

pub fn check() -> Value {
    json!([rule(
        "[has(self.prometheus), has(self.webhook), has(self.external)].exists_one(it, it)",
        "exactly one of `prometheus`, `webhook` and `external` must be set"
    )])
}
