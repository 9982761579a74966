//! Validation of the kinds that have no module of their own: ConfigMap, Secret, Namespace, PriorityClass,
//! PodDisruptionBudget, Lease and Event.

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use muster_api::well_known::{
    ANNOTATION_SERVICE_ACCOUNT_NAME, NAMESPACE_SYSTEM, NODE_CRITICAL_PRIORITY,
    PRIORITY_CLASS_CLUSTER_CRITICAL, PRIORITY_CLASS_NODE_CRITICAL, SECRET_TYPE_SERVICE_ACCOUNT_TOKEN,
    SYSTEM_CRITICAL_PRIORITY, USER_DEFINABLE_PRIORITY_MAX,
};
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{
    WriteToValidate, check_choice, check_immutable, check_int_or_percent, check_not_above_100_percent,
    check_not_negative, has_field,
};
use crate::small_map::SmallSet;
use crate::subresource::Subresource;
use crate::unstructured::{is_set, list_at, str_at};
use crate::validation::field_error::{ErrorPath, FieldErrors, InvalidValue};
use crate::validation::{labels, metadata, names};

/// Maximum total size of the decoded values of a ConfigMap or Secret in bytes.
const DATA_BYTES_MAX: usize = 1 << 20;

pub(crate) fn validate_config_map(write: &WriteToValidate, out: &mut FieldErrors) {
    let map = write.new;
    check_immutable_data(write, &["data", "binaryData"], out);
    let mut bytes = 0;
    for (key, value) in map["data"].as_object().into_iter().flatten() {
        let at = ErrorPath::new("data");
        let at = at.key(key);
        out.invalid_for_each(&at, key, names::config_key_errors(key));
        if !map["binaryData"][key].is_null() {
            out.invalid(&at, key, "duplicate of key present in binaryData");
        }
        bytes += value.as_str().map_or(0, str::len);
    }
    for (key, value) in map["binaryData"].as_object().into_iter().flatten() {
        out.invalid_for_each(&ErrorPath::new("binaryData").key(key), key, names::config_key_errors(key));
        bytes += decoded_len(value);
    }
    if DATA_BYTES_MAX < bytes {
        out.too_long(&ErrorPath::new(""), DATA_BYTES_MAX);
    }
}

pub(crate) fn validate_secret(write: &WriteToValidate, out: &mut FieldErrors) {
    let (secret, at) = (write.new, ErrorPath::new("data"));
    if let Some(old) = write.old {
        check_immutable(&secret["type"], &old["type"], &ErrorPath::new("type"), out);
    }
    check_immutable_data(write, &["data"], out);
    let data = &secret["data"];
    let mut bytes = 0;
    for (key, value) in data.as_object().into_iter().flatten() {
        out.invalid_for_each(&at.key(key), key, names::config_key_errors(key));
        bytes += decoded_len(value);
    }
    if DATA_BYTES_MAX < bytes {
        out.too_long(&at, DATA_BYTES_MAX);
    }
    let mut require_keys = |keys: &[&str]| {
        for key in keys.iter().filter(|key| data[**key].is_null()) {
            out.required(&at.key(key), "");
        }
    };
    match str_at(secret, "type") {
        SECRET_TYPE_SERVICE_ACCOUNT_TOKEN
            if !is_set(&secret["metadata"]["annotations"][ANNOTATION_SERVICE_ACCOUNT_NAME]) =>
        {
            out.required(&ErrorPath::new("metadata.annotations").key(ANNOTATION_SERVICE_ACCOUNT_NAME), "");
        }
        "kubernetes.io/dockercfg" => check_docker_config(data, ".dockercfg", &at, out),
        "kubernetes.io/dockerconfigjson" => check_docker_config(data, ".dockerconfigjson", &at, out),
        "kubernetes.io/basic-auth" if data["username"].is_null() && data["password"].is_null() => {
            require_keys(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" if !is_set(&data["ssh-privatekey"]) => {
            out.required(&at.key("ssh-privatekey"), "")
        }
        "kubernetes.io/tls" => require_keys(&["tls.crt", "tls.key"]),
        _ => {}
    }
}

/// Checks that the entry `key` of a Secret exists and is a JSON object or null, as a Docker configuration must be.
fn check_docker_config(data: &Value, key: &str, at: &ErrorPath, out: &mut FieldErrors) {
    let Some(content) = data[key].as_str() else { return out.required(&at.key(key), "") };
    let content = BASE64.decode(content).unwrap_or_default();
    let unmarshal =
        |what: &str| format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}");
    // Only the syntax is checked: a `Value` would take a hundred times the memory of the content.
    let is_json = serde_json::from_slice::<IgnoredAny>(&content).is_ok();
    let why = match content.trim_ascii_start().first() {
        Some(b'{' | b'n') if is_json => return,
        Some(b'"') if is_json => unmarshal("string"),
        Some(b'[') if is_json => unmarshal("array"),
        Some(b't' | b'f') if is_json => unmarshal("bool"),
        Some(_) if is_json => unmarshal("number"),
        _ => match content.first() {
            None => "unexpected end of JSON input".into(),
            // The parser's message would quote secret data.
            Some(b'{') => "invalid character in JSON".into(),
            Some(first) => {
                format!("invalid character '{}' looking for beginning of value", char::from(*first))
            }
        },
    };
    out.invalid(&at.key(key), "<secret contents redacted>", &why);
}

/// If the stored ConfigMap or Secret has `immutable: true`, checks that the update changes neither `immutable` nor one
/// of `fields`.
fn check_immutable_data(write: &WriteToValidate, fields: &[&str], out: &mut FieldErrors) {
    /// Upstream's message for a change of immutable data.
    const IMMUTABLE_DATA_MESSAGE: &str = "field is immutable when `immutable` is set";
    let Some(old) = write.old.filter(|old| old["immutable"] == true) else { return };
    if write.new["immutable"] != true {
        out.forbidden(&ErrorPath::new("immutable"), IMMUTABLE_DATA_MESSAGE);
    }
    for field in fields.iter().filter(|field| write.new[**field] != old[**field]) {
        out.forbidden(&ErrorPath::new(field), IMMUTABLE_DATA_MESSAGE);
    }
}

/// Returns the number of bytes that a base64 string encodes.
fn decoded_len(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    let padding = text.bytes().rev().take_while(|it| *it == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

pub(crate) fn validate_namespace(write: &WriteToValidate, out: &mut FieldErrors) {
    let new = write.new;
    match (write.old, write.subresource) {
        (Some(_), Subresource::Status) => {
            let is_terminating = is_set(&new["metadata"]["deletionTimestamp"]);
            let (phase, at) = (str_at(new, "status.phase"), ErrorPath::new("status.Phase"));
            if !is_terminating && phase != "Active" {
                out.invalid(&at, phase, "may only be 'Active' if `deletionTimestamp` is empty");
            } else if is_terminating && phase != "Terminating" {
                out.invalid(&at, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty");
            }
        }
        (Some(_), Subresource::Whole) => {}
        _ => {
            for it in list_at(&new["spec"], "finalizers") {
                let (name, at) = (it.as_str().unwrap_or_default(), ErrorPath::new("spec.finalizers"));
                out.invalid_for_each(&at, name, names::qualified_name_errors(name));
                if !name.contains('/') && !metadata::is_standard_finalizer(name) {
                    let why = "name is neither a standard finalizer name nor is it fully qualified";
                    out.invalid(&at, name, why);
                }
            }
        }
    }
}

pub(crate) fn validate_priority_class(write: &WriteToValidate, out: &mut FieldErrors) {
    let class = write.new;
    let value = class["value"].as_i64().unwrap_or(0);
    if let Some(old) = write.old {
        if old["value"].as_i64().unwrap_or(0) != value {
            out.forbidden(&ErrorPath::new("value"), "may not be changed in an update.");
        }
        return check_immutable(
            &class["preemptionPolicy"],
            &old["preemptionPolicy"],
            &ErrorPath::new("preemptionPolicy"),
            out,
        );
    }
    let name = str_at(class, "metadata.name");
    if name.starts_with("system-") {
        let required_value: Option<i64> = match name {
            PRIORITY_CLASS_NODE_CRITICAL => Some(NODE_CRITICAL_PRIORITY.into()),
            PRIORITY_CLASS_CLUSTER_CRITICAL => Some(SYSTEM_CRITICAL_PRIORITY.into()),
            _ => None,
        };
        let why = match required_value {
            None => Some(format!("{name} is not a known system priority class")),
            Some(required) if required != value => {
                Some(format!("value of {name} PriorityClass must be {required}"))
            }
            Some(_) if class["globalDefault"] == true => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            let why = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            );
            out.forbidden(&ErrorPath::new("metadata.name"), &why);
        }
    } else if i64::from(USER_DEFINABLE_PRIORITY_MAX) < value {
        let why =
            format!("maximum allowed value of a user defined priority is {USER_DEFINABLE_PRIORITY_MAX}");
        out.forbidden(&ErrorPath::new("value"), &why);
    }
    let policies = &["PreemptLowerPriority", "Never"];
    check_choice(&class["preemptionPolicy"], policies, &ErrorPath::new("preemptionPolicy"), out);
}

pub(crate) fn validate_disruption_budget(write: &WriteToValidate, out: &mut FieldErrors) {
    let budget = write.new;
    if write.is_status_update() {
        let counts = &["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
        check_budget_conditions(
            list_at(&budget["status"], "conditions"),
            &ErrorPath::new("status.conditions"),
            out,
        );
        return check_not_negative(&budget["status"], counts, &ErrorPath::new("status"), out);
    }
    let (spec, at) = (&budget["spec"], ErrorPath::new("spec"));
    if has_field(spec, "minAvailable") && has_field(spec, "maxUnavailable") {
        let or_null = |name: &str| spec[name].clone();
        let spec_in_go = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            or_null("minAvailable"),
            or_null("selector"),
            or_null("maxUnavailable"),
            or_null("unhealthyPodEvictionPolicy")
        );
        out.invalid(
            &at,
            InvalidValue::Formatted(spec_in_go.into()),
            "minAvailable and maxUnavailable cannot be both set",
        );
    }
    for name in ["minAvailable", "maxUnavailable"] {
        check_int_or_percent(&spec[name], &at.field(name), out);
        check_not_above_100_percent(&spec[name], &at.field(name), out);
    }
    labels::check_selector(&spec["selector"], &at.field("selector"), out);
    let policy_at = at.field("unhealthyPodEvictionPolicy");
    check_choice(&spec["unhealthyPodEvictionPolicy"], &["AlwaysAllow", "IfHealthyBudget"], &policy_at, out);
}

/// Checks the conditions in the status of a PodDisruptionBudget.
fn check_budget_conditions(conditions: &[Value], at: &ErrorPath, out: &mut FieldErrors) {
    let mut seen = SmallSet::default();
    for (index, it) in conditions.iter().enumerate() {
        let (at, kind) = (at.index(index), str_at(it, "type"));
        if !seen.insert(kind) {
            out.duplicate(&at.field("type"), kind);
        }
        labels::check_label_key(kind, &at.field("type"), out);
        let status = str_at(it, "status");
        if !matches!(status, "True" | "False" | "Unknown") {
            out.unsupported(&at.field("status"), status, &["False", "True", "Unknown"]);
        }
        if let Some(number) = it["observedGeneration"].as_i64().filter(|it| *it < 0) {
            out.invalid(&at.field("observedGeneration"), number, "must be greater than or equal to zero");
        }
        super::check_required(it, &["lastTransitionTime", "reason"], &at, out);
    }
}

pub(crate) fn validate_lease(write: &WriteToValidate, out: &mut FieldErrors) {
    let (spec, at) = (&write.new["spec"], ErrorPath::new("spec"));
    if let Some(seconds) = spec["leaseDurationSeconds"].as_i64().filter(|it| *it <= 0) {
        out.invalid(&at.field("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    check_not_negative(spec, &["leaseTransitions"], &at, out);
}

/// Validates an Event. An Event with an `eventTime` must also have the fields that `events.k8s.io` requires.
pub(crate) fn validate_event(write: &WriteToValidate, out: &mut FieldErrors) {
    let event = write.new;
    let namespace = str_at(event, "metadata.namespace");
    let involved = str_at(event, "involvedObject.namespace");
    let is_new = is_set(&event["eventTime"]);
    let agrees = match (is_new, involved) {
        (false, "") => matches!(namespace, "" | "default"),
        (false, _) => namespace == involved,
        (true, "") => matches!(namespace, "default" | NAMESPACE_SYSTEM),
        (true, _) => true,
    };
    if !agrees {
        out.invalid(&ErrorPath::new("involvedObject.namespace"), involved, "does not match event.namespace");
    }
    if is_new {
        let reporter = str_at(event, "reportingComponent");
        if reporter.is_empty() {
            out.required(&ErrorPath::new("reportingComponent"), "");
        }
        labels::check_label_key(reporter, &ErrorPath::new("reportingComponent"), out);
        for (field, bytes_max, is_required) in [
            ("reportingInstance", 128, true),
            ("action", 128, true),
            ("reason", 128, true),
            ("message", 1024, false),
        ] {
            let text = str_at(event, field);
            if is_required && text.is_empty() {
                out.required(&ErrorPath::new(field), "");
            }
            if bytes_max < text.len() {
                out.invalid(&ErrorPath::new(field), "", &format!("can have at most {bytes_max} characters"));
            }
        }
    }
    out.invalid_for_each(&ErrorPath::new("namespace"), namespace, names::dns_subdomain_errors(namespace));
}
