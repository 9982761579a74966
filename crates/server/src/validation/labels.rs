//! Validation of labels and label selectors.

use serde_json::Value;

use super::field_error::{FieldErrors, Path};
use super::names;
use crate::unstructured::{list, str_at};

pub(crate) fn check_labels(labels: &Value, at: &Path, out: &mut FieldErrors) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        check_key(key, at, out);
        let value = value.as_str().unwrap_or_default();
        out.each(at, value, names::label_value(value));
    }
}

pub(crate) fn check_key(key: &str, at: &Path, out: &mut FieldErrors) {
    out.each(at, key, names::qualified(key));
}

/// Checks a `LabelSelector`.
pub(crate) fn check_selector(selector: &Value, at: &Path, out: &mut FieldErrors) {
    check_labels(&selector["matchLabels"], &at.field("matchLabels"), out);
    for (index, it) in list(selector, "matchExpressions").iter().enumerate() {
        let at = at.field("matchExpressions");
        let at = at.index(index);
        let values = list(it, "values");
        match str_at(it, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                out.required(&at.field("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                out.forbidden(&at.field("values"), why);
            }
            "Exists" | "DoesNotExist" => {}
            other => out.invalid(&at.field("operator"), other, "not a valid selector operator"),
        }
        check_key(str_at(it, "key"), &at.field("key"), out);
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            out.each(&at.field("values").index(index), value, names::label_value(value));
        }
    }
}

/// Whether a `LabelSelector` matches the labels.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    let exact = selector["matchLabels"].as_object().into_iter().flatten();
    let expressions = list(selector, "matchExpressions");
    exact.into_iter().all(|(key, value)| labels[key] == *value)
        && expressions.iter().all(|it| {
            let value = &labels[str_at(it, "key")];
            let is_in_values = !value.is_null() && list(it, "values").contains(value);
            match str_at(it, "operator") {
                "In" => is_in_values,
                "NotIn" => !is_in_values,
                "Exists" => !value.is_null(),
                "DoesNotExist" => value.is_null(),
                _ => false,
            }
        })
}
