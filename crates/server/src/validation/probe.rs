//! Validation of probes and lifecycle hooks.

use serde_json::Value;

use super::container::check_port;
use super::pod::PodSpecToValidate;
use super::{check_choice, check_required, has_field};
use crate::unstructured::{list_at, str_at};
use crate::validation::field_error::{ErrorPath, FieldErrors};
use crate::validation::names;

pub(super) fn check_lifecycle_and_probes(
    container: &Value,
    spec: &PodSpecToValidate,
    at: &ErrorPath,
    out: &mut FieldErrors,
) {
    let lifecycle = &container["lifecycle"];
    for name in ["postStart", "preStop"].into_iter().filter(|name| has_field(lifecycle, name)) {
        check_handler(&lifecycle[name], spec, &at.field("lifecycle").field(name), out);
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"]
        .into_iter()
        .filter(|name| has_field(container, name))
    {
        check_probe(name, &container[name], spec, &at.field(name), out);
    }
}

/// Checks a probe. `name` is its field, such as `livenessProbe`.
fn check_probe(name: &str, probe: &Value, spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    check_handler(probe, spec, at, out);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        if let Some(number) = probe[field].as_i64().filter(|it| *it < 0) {
            out.invalid(&at.field(field), number, "must be greater than or equal to 0");
        }
    }
    let grace = &probe["terminationGracePeriodSeconds"];
    if let Some(grace_s) = grace.as_i64().filter(|it| *it <= 0) {
        out.invalid(&at.field("terminationGracePeriodSeconds"), grace_s, "must be greater than 0");
    }
    if name == "readinessProbe" {
        if !grace.is_null() {
            let why = "must not be set for readinessProbes";
            out.invalid(&at.field("terminationGracePeriodSeconds"), grace, why);
        }
    } else {
        match probe["successThreshold"].as_i64().unwrap_or(0) {
            1 => {}
            other => out.invalid(&at.field("successThreshold"), other, "must be 1"),
        }
    }
}

/// Checks the handler of a probe or lifecycle hook. Exactly one type of handler must be set.
fn check_handler(handler: &Value, spec: &PodSpecToValidate, at: &ErrorPath, out: &mut FieldErrors) {
    let mut found = false;
    for name in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let action = &handler[name];
        if action.is_null() {
            continue;
        }
        let at = at.field(name);
        if found {
            out.forbidden(&at, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match name {
            "exec" => check_required(action, &["command"], &at, out),
            "httpGet" => check_http_get(action, &at, out),
            "sleep" => {
                let seconds = action["seconds"].as_i64().unwrap_or(0);
                if let Some(grace_s) =
                    spec.termination_grace_s().filter(|grace_s| seconds < 0 || *grace_s < seconds)
                {
                    let why = format!(
                        "must be non-negative and less than terminationGracePeriodSeconds ({grace_s})"
                    );
                    out.invalid(&at, seconds, &why);
                }
            }
            _ => check_port_or_name(&action["port"], &at.field("port"), out),
        }
    }
    if !found {
        out.required(at, "must specify a handler type");
    }
}

fn check_http_get(action: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    check_required(action, &["path"], at, out);
    check_port_or_name(&action["port"], &at.field("port"), out);
    check_choice(&action["scheme"], &["HTTP", "HTTPS"], &at.field("scheme"), out);
    for header in list_at(action, "httpHeaders") {
        let name = str_at(header, "name");
        out.invalid_for_each(&at.field("httpHeaders"), name, names::http_header_name_errors(name));
    }
}

/// Checks a port that is a number or the name of a container port.
pub(super) fn check_port_or_name(port: &Value, at: &ErrorPath, out: &mut FieldErrors) {
    match port.as_str() {
        Some(name) => out.invalid_for_each(at, name, names::port_name_errors(name)),
        None => check_port(port.as_i64().unwrap_or(0), at, out),
    }
}
