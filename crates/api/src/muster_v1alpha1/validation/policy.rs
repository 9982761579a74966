//! Validation of RolloutPolicy and ClusterRolloutPolicy.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use super::daemon_rollout::check_conditions;
use super::{
    CHECK_INTERVAL_BOUNDS, CHECKS_MAX, DAEMON_SETS_MAX, FAILURE_PERCENT_MAX, FAILURE_THRESHOLD_MAX,
    FAULTY_NODES_MAX, FieldValidator, InvalidField, InvalidFieldKind, NON_NEGATIVE_DURATION,
    POSITIVE_DURATION, QUERY_LENGTH_MAX, REASON_LENGTH_MAX, REASONS_MAX, RESTARTS_MAX, SELECTOR_ITEMS_MAX,
    SEQUENCE_MAX, STEPS_MAX, WEBHOOK_TIMEOUT_BOUNDS, WINDOWS_MAX,
};
use crate::muster_v1alpha1::checks::{CaConfigMapRef, RolloutCheck, TokenSecretRef};
use crate::muster_v1alpha1::policy::{
    ClusterRolloutPolicySpec, FailureBudget, RolloutOrder, RolloutPolicySpec, RolloutPolicyStatus,
    RolloutSettings, RolloutStep, RolloutWindow, StepGroups,
};
use crate::muster_v1alpha1::syntax;
use crate::muster_v1alpha1::values::{
    ApprovalMode, CountOrPercent, DeadlineAction, FailureAction, NewNodePolicy, NodeNotReadyPolicy, OrderBy,
    OwnedLabelSelector, ReplaceMethod, Weekday,
};
use crate::names;

impl RolloutPolicySpec {
    /// Returns the validation errors of the spec, or an empty list if it is valid.
    pub fn validate(&self) -> Vec<InvalidField> {
        let mut out = FieldValidator::new("spec");
        match (&self.selector, &self.daemon_sets) {
            (None, None) => out.add_required_error("exactly one of `selector` and `daemonSets` must be set"),
            (Some(_), Some(_)) => out.in_field("daemonSets", |it| {
                it.add_forbidden_error("exactly one of `selector` and `daemonSets` must be set");
            }),
            _ => {}
        }
        if let Some(selector) = &self.selector {
            check_selector("selector", selector, &mut out);
        }
        if let Some(sets) = &self.daemon_sets {
            if sets.is_empty() {
                out.in_field("daemonSets", |it| it.add_required_error("must have at least one name"));
            }
            out.check_count("daemonSets", sets.len(), DAEMON_SETS_MAX);
            out.for_each_item("daemonSets", sets, |it, _, name| {
                it.check_text(name, names::dns_subdomain_errors)
            });
            out.check_unique("daemonSets", None, sets.iter().map(String::as_str));
        }
        check_settings(&self.settings, &mut out);
        out.invalid
    }
}

impl ClusterRolloutPolicySpec {
    /// Returns the validation errors of the spec, or an empty list if it is valid.
    pub fn validate(&self) -> Vec<InvalidField> {
        let mut out = FieldValidator::new("spec");
        match &self.selector {
            None => out.in_field("selector", |it| it.add_required_error("")),
            Some(selector) => check_selector("selector", selector, &mut out),
        }
        if let Some(selector) = &self.namespace_selector {
            check_selector("namespaceSelector", selector, &mut out);
        }
        check_settings(&self.settings, &mut out);
        out.invalid
    }
}

impl RolloutPolicyStatus {
    /// Returns the validation errors of the status, or an empty list if it is valid.
    pub fn validate(&self) -> Vec<InvalidField> {
        let mut out = FieldValidator::new("status");
        check_conditions(&self.conditions, &mut out);
        out.invalid
    }
}

/// Checks the fields that RolloutPolicy and ClusterRolloutPolicy share.
fn check_settings(settings: &RolloutSettings, out: &mut FieldValidator) {
    out.check_count("windows", settings.windows.len(), WINDOWS_MAX);
    out.for_each_item("windows", &settings.windows, |it, _, window| check_window(window, it));
    out.check_count_or_percent("maxUnavailable", &settings.max_unavailable);
    out.in_field("order", |it| check_order(&settings.order, it));
    check_steps(&settings.steps, out);
    out.in_field("failures", |it| check_failures(&settings.failures, it));
    out.check_choice("onFailure", settings.on_failure.as_str(), FailureAction::VALUES);
    out.check_duration("progressDeadline", &settings.progress_deadline, &POSITIVE_DURATION);
    out.check_choice("onDeadline", settings.on_deadline.as_str(), DeadlineAction::VALUES);
    out.check_choice("newNodes", settings.new_nodes.as_str(), NewNodePolicy::VALUES);
    out.check_count("checks", settings.checks.len(), CHECKS_MAX);
    out.for_each_item("checks", &settings.checks, |it, _, check| check_rollout_check(check, it));
    out.check_unique("checks", Some("name"), settings.checks.iter().map(|it| it.name.as_str()));
    out.in_field("replace", |it| {
        it.check_choice("method", settings.replace.method.as_str(), ReplaceMethod::VALUES)
    });
}

/// Checks a time window of a policy.
fn check_window(window: &RolloutWindow, out: &mut FieldValidator) {
    if window.days.is_empty() {
        out.in_field("days", |it| it.add_required_error("must have at least one day"));
    }
    out.check_count("days", window.days.len(), Weekday::VALUES.len());
    for (index, day) in window.days.iter().enumerate() {
        out.check_choice(&format!("days[{index}]"), day.as_str(), Weekday::VALUES);
    }
    out.check_unique("days", None, window.days.iter().map(Weekday::as_str));
    out.check_text_field("start", &window.start, clock_time_errors);
    out.check_text_field("end", &window.end, clock_time_errors);
    if window.start == window.end && !window.end.is_empty() {
        out.in_field("end", |it| it.add_invalid_error(window.end.as_str(), "must not be equal to `start`"));
    }
    out.check_text_field("timeZone", &window.time_zone, time_zone_errors);
}

/// Returns the validation errors of a time of day.
fn clock_time_errors(text: &str) -> Vec<String> {
    match syntax::parse_clock_time(text) {
        Some(_) => Vec::new(),
        None => vec!["must be a time from 00:00 to 23:59".into()],
    }
}

/// Returns the validation errors of a time zone name.
fn time_zone_errors(text: &str) -> Vec<String> {
    if syntax::is_time_zone_name(text) {
        return Vec::new();
    }
    vec!["must be an IANA time zone name such as UTC or Europe/Berlin".into()]
}

/// Checks `order`, the order in which nodes get a new revision.
fn check_order(order: &RolloutOrder, out: &mut FieldValidator) {
    out.check_choice("by", order.by.as_str(), OrderBy::VALUES);
    match (&order.by, &order.label_key) {
        (OrderBy::Label, None) => {
            out.in_field("labelKey", |it| it.add_required_error("must be set if `by` is Label"));
        }
        (OrderBy::Hash | OrderBy::Name, Some(_)) => {
            out.in_field("labelKey", |it| it.add_forbidden_error("may be set only if `by` is Label"));
        }
        (OrderBy::Label, Some(key)) => out.check_text_field("labelKey", key, names::qualified_name_errors),
        _ => {}
    }
}

/// Checks the steps of a policy: there is at least one and at most [`STEPS_MAX`], their names are unique, each of them
/// is valid, and none has fewer nodes than an earlier step with the same selector.
fn check_steps(steps: &[RolloutStep], out: &mut FieldValidator) {
    if steps.is_empty() {
        out.in_field("steps", |it| it.add_required_error("must have at least one step"));
    }
    out.check_count("steps", steps.len(), STEPS_MAX);
    out.for_each_item("steps", steps, |it, index, step| check_step(step, index + 1 == steps.len(), it));
    out.check_unique("steps", Some("name"), steps.iter().map(|it| it.name.as_str()));
    out.for_each_item("steps", steps, |it, index, step| {
        if let Some(earlier) = steps[..index].iter().find(|earlier| has_fewer_nodes_than(step, earlier)) {
            let detail = format!("must not be lower than that of the earlier step {:?}", earlier.name);
            it.in_field("nodes", |it| it.add_invalid_error(step.nodes.to_json(), &detail));
        }
    });
}

/// Whether a step has the same selector as an earlier step, but a lower count or percentage of nodes. Returns `false`
/// if one has a count and the other a percentage.
fn has_fewer_nodes_than(step: &RolloutStep, earlier: &RolloutStep) -> bool {
    step.selector == earlier.selector
        && match (&step.nodes, &earlier.nodes) {
            (CountOrPercent::Count(count), CountOrPercent::Count(before)) => count < before,
            (CountOrPercent::Percent(percent), CountOrPercent::Percent(before)) => percent < before,
            _ => false,
        }
}

/// Checks one step of a policy. `is_last` is `true` for the last step. Only the last step may have `groups`.
fn check_step(step: &RolloutStep, is_last: bool, out: &mut FieldValidator) {
    out.check_text_field("name", &step.name, names::dns_label_errors);
    out.check_count_or_percent("nodes", &step.nodes);
    if let Some(selector) = &step.selector {
        check_selector("selector", selector, out);
    }
    if let Some(spread) = &step.spread {
        out.in_field("spread", |it| {
            it.check_text_field("labelKey", &spread.label_key, names::qualified_name_errors)
        });
    }
    out.check_duration("soak", &step.soak, &NON_NEGATIVE_DURATION);
    out.check_choice("approval", step.approval.as_str(), ApprovalMode::VALUES);
    let Some(groups) = &step.groups else { return };
    out.in_field("groups", |it| {
        if !is_last {
            it.add_forbidden_error("may be set only in the last step");
        }
        if step.spread.is_some() {
            it.add_forbidden_error("may not be set together with `spread`");
        }
        check_groups(groups, it);
    });
}

/// Checks `groups` of a step.
fn check_groups(groups: &StepGroups, out: &mut FieldValidator) {
    out.check_text_field("labelKey", &groups.label_key, names::qualified_name_errors);
    out.check_count("sequence", groups.sequence.len(), SEQUENCE_MAX);
    out.for_each_item("sequence", &groups.sequence, |it, _, value| {
        it.check_text(value, names::label_value_errors)
    });
    out.check_unique("sequence", None, groups.sequence.iter().map(String::as_str));
    out.check_number("maxConcurrent", groups.max_concurrent, 1, i32::MAX);
    out.check_count_or_percent("maxUnavailable", &groups.max_unavailable);
    out.check_duration("soak", &groups.soak, &NON_NEGATIVE_DURATION);
}

/// Checks `failures`: when a node is faulty, and how many faulty nodes fail a rollout.
fn check_failures(failures: &FailureBudget, out: &mut FieldValidator) {
    let is_valid = match &failures.max_nodes {
        CountOrPercent::Count(count) => usize::try_from(*count).is_ok_and(|it| it <= FAULTY_NODES_MAX),
        CountOrPercent::Percent(percent) => *percent <= FAILURE_PERCENT_MAX,
        CountOrPercent::Invalid(_) => false,
    };
    if !is_valid {
        let detail = format!(
            "must be a number from 0 to {FAULTY_NODES_MAX} or a percentage from 0% to {FAILURE_PERCENT_MAX}%"
        );
        out.in_field("maxNodes", |it| it.add_invalid_error(failures.max_nodes.to_json(), &detail));
    }
    out.check_number("maxRestarts", failures.max_restarts, 0, RESTARTS_MAX);
    out.check_duration("readyTimeout", &failures.ready_timeout, &POSITIVE_DURATION);
    let reasons = &failures.immediate_failure_reasons;
    out.check_count("immediateFailureReasons", reasons.len(), REASONS_MAX);
    for (index, reason) in reasons.iter().enumerate() {
        out.check_length(&format!("immediateFailureReasons[{index}]"), reason, REASON_LENGTH_MAX);
    }
    out.check_choice("nodeNotReady", failures.node_not_ready.as_str(), NodeNotReadyPolicy::VALUES);
}

/// Checks one of the `checks` of a policy: a query of Prometheus, a call of a webhook or an external check.
fn check_rollout_check(check: &RolloutCheck, out: &mut FieldValidator) {
    out.check_text_field("name", &check.name, names::dns_label_errors);
    let kinds = [check.prometheus.is_some(), check.webhook.is_some(), check.external.is_some()];
    match kinds.iter().filter(|it| **it).count() {
        0 => out.add_required_error("exactly one of `prometheus`, `webhook` and `external` must be set"),
        1 => {}
        _ => out.add_forbidden_error("exactly one of `prometheus`, `webhook` and `external` must be set"),
    }
    if let Some(prometheus) = &check.prometheus {
        out.in_field("prometheus", |it| {
            it.check_text_field("url", &prometheus.url, url_errors);
            it.check_length("query", &prometheus.query, QUERY_LENGTH_MAX);
            if let Some(query) = &prometheus.presence_query {
                it.check_length("presenceQuery", query, QUERY_LENGTH_MAX);
            }
            check_references(prometheus.secret_ref.as_ref(), prometheus.ca_ref.as_ref(), it);
        });
    }
    if let Some(webhook) = &check.webhook {
        out.in_field("webhook", |it| {
            it.check_text_field("url", &webhook.url, url_errors);
            it.check_duration("timeout", &webhook.timeout, &WEBHOOK_TIMEOUT_BOUNDS);
            check_references(webhook.secret_ref.as_ref(), webhook.ca_ref.as_ref(), it);
        });
    }
    out.check_duration("interval", &check.interval, &CHECK_INTERVAL_BOUNDS);
    out.check_number("failureThreshold", check.failure_threshold, 1, FAILURE_THRESHOLD_MAX);
}

/// Returns the validation errors of the URL of a check.
fn url_errors(text: &str) -> Vec<String> {
    if syntax::is_http_url(text) {
        return Vec::new();
    }
    vec!["must be a URL with the scheme http or https, such as https://example.com/path".into()]
}

/// Checks `secretRef` and `caRef` of a rollout check: the references to the Secret with a token and to the ConfigMap
/// with CA certificates.
fn check_references(secret: Option<&TokenSecretRef>, ca: Option<&CaConfigMapRef>, out: &mut FieldValidator) {
    let references =
        [("secretRef", secret.map(|it| (&it.name, &it.key))), ("caRef", ca.map(|it| (&it.name, &it.key)))];
    for (field, reference) in references {
        let Some((name, key)) = reference else { continue };
        out.in_field(field, |it| {
            it.check_text_field("name", name, names::dns_subdomain_errors);
            it.check_text_field("key", key, names::config_key_errors);
        });
    }
}

/// Checks the label selector in the field `field`. Upstream: `ValidateLabelSelector`.
fn check_selector(field: &str, selector: &OwnedLabelSelector, out: &mut FieldValidator) {
    out.in_field(field, |out| {
        let labels = selector.match_labels.iter().flatten();
        out.check_count("matchLabels", labels.clone().count(), SELECTOR_ITEMS_MAX);
        for (key, value) in labels {
            out.check_text_field("matchLabels", key, names::qualified_name_errors);
            out.in_field("matchLabels", |it| {
                for detail in names::label_value_errors(value) {
                    it.add_invalid_error(value.as_str(), &detail);
                }
            });
        }
        let expressions = selector.match_expressions.as_deref().unwrap_or_default();
        out.check_count("matchExpressions", expressions.len(), SELECTOR_ITEMS_MAX);
        out.for_each_item("matchExpressions", expressions, |it, _, expression| {
            let values = expression.values.as_deref().unwrap_or_default();
            match expression.operator.as_str() {
                "In" | "NotIn" if values.is_empty() => it.in_field("values", |it| {
                    it.add_required_error("must be specified when `operator` is 'In' or 'NotIn'");
                }),
                "Exists" | "DoesNotExist" if !values.is_empty() => it.in_field("values", |it| {
                    it.add_forbidden_error(
                        "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                    );
                }),
                "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
                other => it.in_field("operator", |it| {
                    it.add_error(InvalidFieldKind::Invalid, other.into(), "not a valid selector operator");
                }),
            }
            it.check_text_field("key", &expression.key, names::qualified_name_errors);
            it.check_count("values", values.len(), SELECTOR_ITEMS_MAX);
            it.for_each_item("values", values, |it, _, value| {
                for detail in names::label_value_errors(value) {
                    it.add_invalid_error(value.as_str(), &detail);
                }
            });
        });
    });
}
