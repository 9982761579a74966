//! Validation of DaemonSets and ControllerRevisions.

use serde_json::Value;

use super::{
    WriteToValidate, check_immutable, check_int_or_percent, check_not_above_100_percent, check_not_negative,
    parse_percent, pod,
};
use crate::unstructured::{is_set, list_at, str_at};
use crate::validation::field_error::{ErrorPath, FieldErrors, InvalidValue};
use crate::validation::labels;

/// Validates a DaemonSet. Upstream: `ValidateDaemonSet`.
pub(crate) fn validate_daemonset(write: &WriteToValidate, out: &mut FieldErrors) {
    let new = write.new;
    if let Some(old) = write.old {
        if write.is_status_update() {
            return check_status_update(new, old, out);
        }
        check_immutable(
            &new["spec"]["selector"],
            &old["spec"]["selector"],
            &ErrorPath::new("spec.selector"),
            out,
        );
    }
    let (spec, at) = (&new["spec"], ErrorPath::new("spec"));
    let (selector, template) = (&spec["selector"], &spec["template"]);
    let labels = &template["metadata"]["labels"];
    let before = out.len();
    labels::check_selector(selector, &at.field("selector"), out);
    let is_selector_valid = out.len() == before;
    if is_selector_valid && !labels::selector_matches(selector, labels) {
        out.invalid(
            &at.field("template.metadata.labels"),
            labels,
            "`selector` does not match template `labels`",
        );
    }
    let selects_all = list_at(selector, "matchExpressions").is_empty() && !is_set(&selector["matchLabels"]);
    if !selector.is_null() && selects_all {
        out.invalid(&at.field("selector"), selector, "empty selector is invalid for daemonset");
    }
    pod::check_template(template, &at.field("template"), out);
    let policy = str_at(template, "spec.restartPolicy");
    if policy != "Always" {
        out.unsupported(&at.field("template.spec.restartPolicy"), policy, &["Always"]);
    }
    if !template["spec"]["activeDeadlineSeconds"].is_null() {
        let why = "activeDeadlineSeconds in DaemonSet is not Supported";
        out.forbidden(&at.field("template.spec.activeDeadlineSeconds"), why);
    }
    check_not_negative(spec, &["minReadySeconds"], &at, out);
    check_update_strategy(&spec["updateStrategy"], &at.field("updateStrategy"), out);
    check_not_negative(spec, &["revisionHistoryLimit"], &at, out);
}

/// Checks `spec.updateStrategy` of a DaemonSet.
fn check_update_strategy(strategy: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    match str_at(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let (rolling, at) = (&strategy["rollingUpdate"], at.field("rollingUpdate"));
            if rolling.is_null() {
                return out.required(&at, "");
            }
            check_rolling_update(rolling, &at, out);
        }
        _ => {
            let rolling = match &strategy["rollingUpdate"] {
                Value::Null => "null".to_owned(),
                rolling => {
                    let or_zero = |name: &str| {
                        if rolling[name].is_null() { "0".into() } else { rolling[name].to_string() }
                    };
                    let (unavailable, surge) = (or_zero("maxUnavailable"), or_zero("maxSurge"));
                    format!("{{\"MaxUnavailable\":{unavailable},\"MaxSurge\":{surge}}}")
                }
            };
            let strategy_in_go = format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", strategy["type"]);
            out.unsupported(
                at,
                InvalidValue::Formatted(strategy_in_go.into()),
                &["RollingUpdate", "OnDelete"],
            );
        }
    }
}

/// Checks `updateStrategy.rollingUpdate`. Exactly one of `maxUnavailable` and `maxSurge` must be non-zero.
fn check_rolling_update(rolling: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let fields = [("maxUnavailable", &rolling["maxUnavailable"]), ("maxSurge", &rolling["maxSurge"])];
    for (name, value) in fields {
        check_int_or_percent(value, &at.field(name), out);
    }
    for (name, value) in fields {
        check_not_above_100_percent(value, &at.field(name), out);
    }
    let is_non_zero = |value: &Value| {
        parse_percent(value).map_or_else(|| value.as_i64().unwrap_or(0) != 0, |percent| percent != 0)
    };
    match (is_non_zero(fields[0].1), is_non_zero(fields[1].1)) {
        (true, true) => {
            let why = "may not be set when maxUnavailable is non-zero";
            out.invalid(&at.field("maxSurge"), fields[1].1, why);
        }
        (false, false) => out.required(&at.field("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

/// Checks an update of a DaemonSet's status. Upstream: `ValidateDaemonSetStatusUpdate`.
fn check_status_update(new: &Value, old: &Value, out: &mut FieldErrors) {
    /// Fields of a DaemonSet's status that must not be negative.
    const STATUS_COUNTS: &[&str] = &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    let at = ErrorPath::new("status");
    check_not_negative(&new["status"], STATUS_COUNTS, &at, out);
    let collisions = |it: &Value| it["status"]["collisionCount"].as_i64();
    let now = collisions(new).unwrap_or(0);
    if collisions(old).is_some_and(|before| now < before) {
        out.invalid(&at.field("collisionCount"), now, "cannot be decremented");
    }
}

/// Validates a ControllerRevision. Upstream: `ValidateControllerRevision`.
pub(crate) fn validate_controller_revision(write: &WriteToValidate, out: &mut FieldErrors) {
    let (data, at) = (&write.new["data"], ErrorPath::new("data"));
    if let Some(revision) = write.new["revision"].as_i64().filter(|it| *it < 0) {
        out.invalid(&ErrorPath::new("revision"), revision, "must be greater than or equal to 0");
    }
    match write.old {
        Some(old) => check_immutable(data, &old["data"], &at, out),
        None if data.is_null() => out.required(&at, "data is mandatory"),
        None if !data.is_object() => out.required(&at, "data must be a valid JSON object"),
        None => {}
    }
}
