//! Validation of LimitRanges and ResourceQuotas.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use super::WriteToValidate;
use crate::go_format;
use crate::small_map::SmallSet;
use crate::unstructured::{is_set, list_at, str_at};
use crate::validation::field_error::{ErrorPath, FIELD_ERRORS_MAX, FieldErrors, InvalidValue};
use crate::validation::{metadata::IMMUTABLE_MESSAGE, names, resources};
use muster_api::quantity::Quantity;

/// Validates a LimitRange. Upstream: `ValidateLimitRange`.
pub(crate) fn validate_limit_range(write: &WriteToValidate, out: &mut FieldErrors) {
    let limits = list_at(&write.new["spec"], "limits");
    let mut seen = SmallSet::default();
    for (index, limit) in limits.iter().enumerate() {
        let at = ErrorPath::new("spec.limits");
        let at = at.index(index);
        let kind = str_at(limit, "type");
        let errors = names::qualified_name_errors(kind);
        if !errors.is_empty() {
            out.invalid_for_each(&at.field("type"), kind, errors);
        } else if !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
            out.invalid(&at.field("type"), kind, "must be a standard limit type or fully qualified");
        }
        if !seen.insert(kind) {
            out.duplicate(&at.field("type"), kind);
        }
        check_limit_range_item(kind, limit, &at, out);
    }
}

/// Checks one item of a LimitRange. `kind` is its type, such as `Container`.
fn check_limit_range_item(kind: &str, limit: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let check_name = match kind {
        "Pod" | "Container" => resources::check_container_resource_name,
        _ => resources::check_resource_name,
    };
    let mut names = BTreeSet::new();
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let is_default = field.starts_with("default");
        if kind == "Pod" && is_default {
            if is_set(&limit[field]) {
                out.forbidden(&at.field(field), "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        if field == "maxLimitRequestRatio" && kind == "PersistentVolumeClaim" {
            let is_given = |field: &str| !limit[field]["storage"].is_null();
            if !is_given("min") && !is_given("max") {
                let why = "either minimum or maximum storage value is required, but neither was provided";
                out.required(&at.field("limits"), why);
            }
        }
        for (name, _) in limit[field].as_object().into_iter().flatten() {
            check_name(name, &at.field(field).key(name), out);
            names.insert(name);
        }
    }
    for name in names {
        check_quantity_order(kind, name, limit, at, out);
    }
}

/// Checks that the quantities of the resource `name` in an item of a LimitRange do not decrease in the order `min`,
/// `defaultRequest`, `default`, `max`. For a resource that cannot be overcommitted, `defaultRequest` and `default` must
/// be equal. Also checks `maxLimitRequestRatio`. `kind` is the type of the item, such as `Container`.
fn check_quantity_order(kind: &str, name: &str, limit: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let quantity_of = |field: &'static str| {
        let amount = &limit[field][name];
        let counts = !amount.is_null() && (kind != "Pod" || !field.starts_with("default"));
        counts.then(|| {
            (Quantity::from_json(amount), amount.as_str().map_or_else(|| amount.to_string(), str::to_owned))
        })
    };
    let (min, max, ratio) = (quantity_of("min"), quantity_of("max"), quantity_of("maxLimitRequestRatio"));
    let (default, request) = (quantity_of("default"), quantity_of("defaultRequest"));
    let mut check_order = |low: &Option<(Quantity, String)>,
                           high: &Option<(Quantity, String)>,
                           field: &str,
                           bad: bool,
                           words: [&str; 2]| {
        if let (Some(low), Some(high)) = (low, high)
            && high.0 < low.0
        {
            let why = format!("{} value {} is greater than {} value {}", words[0], low.1, words[1], high.1);
            out.invalid(&at.field(field).key(name), if bad { &low.1 } else { &high.1 }, &why);
        }
    };
    check_order(&min, &max, "min", true, ["min", "max"]);
    check_order(&min, &request, "defaultRequest", false, ["min", "default request"]);
    check_order(&request, &max, "defaultRequest", true, ["default request", "max"]);
    check_order(&request, &default, "defaultRequest", true, ["default request", "default limit"]);
    check_order(&min, &default, "default", true, ["min", "default"]);
    check_order(&default, &max, "default", false, ["default", "max"]);
    if let Some((amount, text)) = &ratio {
        let at = at.field("maxLimitRequestRatio");
        if *amount < Quantity::from_units(1) {
            out.invalid(&at.key(name), text, &format!("ratio {text} is less than 1"));
        }
        if let (Some((min, _)), Some((max, _))) = (&min, &max)
            && 0 < min.millis()
            && max.millis().saturating_mul(1000) < amount.millis().saturating_mul(min.millis())
        {
            let (whole, rest) = (max.millis() / min.millis(), max.millis() % min.millis());
            let millionths = rest.saturating_mul(1_000_000) / min.millis();
            let why = format!("ratio {text} is greater than max/min = {whole}.{millionths:06}");
            out.invalid(&at.key(name), text, &why);
        }
    }
    if let (Some(default), Some(request)) = (&default, &request)
        && default.0 != request.0
        && !resources::is_overcommittable(name)
    {
        let why =
            format!("default value {} must equal to defaultRequest value {} in {name}", default.1, request.1);
        out.invalid(&at.field("defaultRequest").key(name), &request.1, &why);
    }
}

/// Validates a ResourceQuota. Upstream: `ValidateResourceQuota`.
pub(crate) fn validate_resource_quota(write: &WriteToValidate, out: &mut FieldErrors) {
    let quota = write.new;
    if write.is_status_update() {
        for field in ["hard", "used"] {
            check_quota_resources(&quota["status"][field], &ErrorPath::new("status").field(field), out);
        }
        return;
    }
    let (spec, at) = (&quota["spec"], ErrorPath::new("spec"));
    check_quota_resources(&spec["hard"], &at.field("hard"), out);
    let scopes: Vec<_> = list_at(spec, "scopes").iter().map(|it| it.as_str().unwrap_or_default()).collect();
    let resources = standard_resources(spec);
    for scope in &scopes {
        let at = at.field("scopes");
        check_scope(scope, &resources, &at, &at, &InvalidValue::Json(&spec["scopes"]), out);
    }
    check_conflicting_scopes(&scopes, spec, &at.field("scopes"), out);
    check_scope_selector(spec, &at.field("scopeSelector.matchExpressions"), out);
    if let Some(old) = write.old {
        let scope_set =
            |it: &Value| list_at(&it["spec"], "scopes").iter().map(Value::to_string).collect::<BTreeSet<_>>();
        if scope_set(old) != scope_set(quota) {
            out.invalid(&at.field("scopes"), &spec["scopes"], IMMUTABLE_MESSAGE);
        }
    }
}

/// Checks the names and amounts of the resources that a ResourceQuota limits.
fn check_quota_resources(hard: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    for (name, amount) in hard.as_object().into_iter().flatten() {
        let at = at.key(name);
        resources::check_resource_name(name, &at, out);
        if !name.contains('/') && !resources::is_standard_quota_resource(name) {
            out.invalid(&at, name, "must be a standard resource for quota");
        }
        resources::check_quantity(name, amount, &at, out);
    }
}

/// Checks that a ResourceQuota may have this scope, and that the scope applies to the resources of the quota. `source`
/// is the list of scopes that contains the scope, or the scope selector in Go. `resources` are the standard resources
/// of the quota. `name_at` is the path in errors about the name of the scope, and `at` is the path in all other errors.
fn check_scope(
    scope: &str,
    resources: &[&str],
    name_at: &ErrorPath,
    at: &ErrorPath,
    source: &InvalidValue<'_>,
    out: &mut FieldErrors,
) {
    /// All scopes that a ResourceQuota may have.
    const QUOTA_SCOPES: &[&str] = &[
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
        "VolumeAttributesClass",
    ];
    /// Standard resources that a quota may limit if it has a scope other than `BestEffort` and `VolumeAttributesClass`.
    const POD_SCOPE_RESOURCES: &[&str] =
        &["pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    if !QUOTA_SCOPES.contains(&scope) {
        match source {
            InvalidValue::Json(_) => out.invalid(name_at, source.clone(), "unsupported scope"),
            _ => out.invalid(name_at, scope, "unsupported scope"),
        }
    }
    for name in resources {
        let is_supported = match scope {
            "BestEffort" => *name == "pods",
            "VolumeAttributesClass" => *name == "persistentvolumeclaims" || *name == "requests.storage",
            known if QUOTA_SCOPES.contains(&known) => POD_SCOPE_RESOURCES.contains(name),
            _ => true,
        };
        if !is_supported {
            out.invalid(at, source.clone(), "unsupported scope applied to resource");
        }
    }
}

/// Returns the names of the standard resources in `spec.hard` of a quota. There are few, except for sizes of huge
/// pages, of which only the first are returned: no scope supports them, so they cause the same error for each scope.
fn standard_resources(spec: &Value) -> Vec<&str> {
    let names = spec["hard"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    names.filter(|it| resources::is_standard_quota_resource(it)).take(2 * FIELD_ERRORS_MAX).collect()
}

/// Formats a scope selector for an error message, as Go prints upstream's internal struct, and truncated.
fn format_scope_selector(expressions: &[Value]) -> String {
    let source: Vec<_> = expressions
        .iter()
        .map(|it| {
            format!(
                "{{\"ScopeName\":{},\"Operator\":{},\"Values\":{}}}",
                it["scopeName"], it["operator"], it["values"]
            )
        })
        .collect();
    let text = format!("{{\"MatchExpressions\":[{}]}}", source.join(","));
    go_format::truncate_quoted(&text)
}

/// Checks that no two scopes of a ResourceQuota exclude each other.
fn check_conflicting_scopes(scopes: &[&str], spec: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if scopes.contains(&one) && scopes.contains(&other) {
            out.invalid(at, &spec["scopes"], "conflicting scopes");
        }
    }
}

fn check_scope_selector(spec: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    let selector = &spec["scopeSelector"];
    let expressions = list_at(selector, "matchExpressions");
    let (resources, selector_in_go) = (standard_resources(spec), format_scope_selector(expressions));
    let source = InvalidValue::Formatted(Cow::Borrowed(&selector_in_go));
    for it in expressions {
        let (scope, operator) = (str_at(it, "scopeName"), str_at(it, "operator"));
        check_scope(scope, &resources, &at.field("scopeName"), at, &source, out);
        let only_exists = matches!(
            scope,
            "BestEffort" | "NotBestEffort" | "Terminating" | "NotTerminating" | "CrossNamespacePodAffinity"
        );
        if only_exists && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                       ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort \
                       or ResourceQuotaScopeCrossNamespacePodAffinity";
            out.invalid(&at.field("operator"), operator, why);
        }
        match operator {
            "In" | "NotIn" if !is_set(&it["values"]) => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                out.required(&at.field("values"), why);
            }
            "Exists" | "DoesNotExist" if is_set(&it["values"]) => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                out.invalid(&at.field("values"), &it["values"], why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => out.invalid(&at.field("operator"), other, "not a valid selector operator"),
        }
    }
    let scopes: Vec<_> = expressions.iter().map(|it| str_at(it, "scopeName")).collect();
    check_conflicting_scopes(&scopes, spec, at, out);
}
