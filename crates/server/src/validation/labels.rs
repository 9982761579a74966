//! Validation of labels and label selectors.

use muster_api::meta_v1::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

use super::field_error::{ErrorPath, FieldErrors};
use super::names;
use crate::unstructured::{list_at, str_at};

/// Checks the keys and values of labels.
pub(crate) fn check_labels(labels: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        check_label_key(key, at, out);
        let value = value.as_str().unwrap_or_default();
        out.invalid_for_each(at, value, names::label_value_errors(value));
    }
}

/// Checks that a string has the syntax of a label key.
pub(crate) fn check_label_key(key: &str, at: &ErrorPath, out: &mut FieldErrors) {
    out.invalid_for_each(at, key, names::qualified_name_errors(key));
}

/// Checks a `LabelSelector`.
pub(crate) fn check_selector(selector: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    check_labels(&selector["matchLabels"], &at.field("matchLabels"), out);
    for (index, it) in list_at(selector, "matchExpressions").iter().enumerate() {
        let at = at.field("matchExpressions");
        let at = at.index(index);
        let values = list_at(it, "values");
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
        check_label_key(str_at(it, "key"), &at.field("key"), out);
        for (index, value) in values.iter().enumerate() {
            let value = value.as_str().unwrap_or_default();
            out.invalid_for_each(&at.field("values").index(index), value, names::label_value_errors(value));
        }
    }
}

/// Whether a `LabelSelector` matches the labels. A null or invalid selector matches nothing.
pub(crate) fn selector_matches(selector: &Value, labels: &Value) -> bool {
    let selector = Option::<LabelSelector<'_>>::deserialize(selector).ok();
    let selector = selector.and_then(|it| LabelSelector::to_selector(it.as_ref()).ok());
    selector.unwrap_or_default().matches_lookup(|key| labels[key].as_str())
}
