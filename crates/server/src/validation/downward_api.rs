//! Validation of references to pod fields and container resources in the downward API.

use serde_json::Value;

use super::check_required;
use crate::unstructured::str_at;
use crate::validation::field_error::{ErrorPath, FieldErrors};
use crate::validation::names;
use muster_api::quantity::Quantity;

/// Pod fields that the downward API can expose as environment variables, in addition to single labels and annotations.
pub(super) const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Pod fields that the downward API can expose as files in a volume, in addition to single labels and annotations.
pub(super) const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

/// Container resources that the downward API can expose, in addition to huge pages.
const EXPOSED_RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Checks a `fieldRef`. `fields` are the pod fields that it may refer to, in addition to single labels and annotations.
pub(super) fn check_field_ref(reference: &Value, fields: &[&str], at: &ErrorPath, out: &mut FieldErrors) {
    let before = out.len();
    for name in ["apiVersion", "fieldPath"] {
        if out.len() == before {
            check_required(reference, &[name], at, out);
        }
    }
    if out.len() != before {
        return;
    }
    let (version, path) = (str_at(reference, "apiVersion"), str_at(reference, "fieldPath"));
    let path_at = at.field("fieldPath");
    if version != "v1" {
        let why = format!("error converting fieldPath: unsupported pod version: {version}");
        return out.invalid(&path_at, path, &why);
    }
    let subscripted =
        path.strip_suffix("']").and_then(|it| it.split_once("['")).filter(|it| !it.0.is_empty());
    match subscripted {
        Some(("metadata.annotations", key)) => {
            out.invalid_for_each(at, &key.to_lowercase(), names::qualified_name_errors(&key.to_lowercase()))
        }
        Some(("metadata.labels", key)) => out.invalid_for_each(at, key, names::qualified_name_errors(key)),
        Some(_) => {
            let why = format!("error converting fieldPath: field label does not support subscript: {path}");
            out.invalid(&path_at, path, &why);
        }
        None if !is_convertible_field_path(path) => {
            let why = format!("error converting fieldPath: field label not supported: {path}");
            out.invalid(&path_at, path, &why);
        }
        None => {
            // `spec.host` is the former name of `spec.nodeName`.
            let path = if path == "spec.host" { "spec.nodeName" } else { path };
            if !fields.contains(&path) {
                out.unsupported(&path_at, path, fields);
            }
        }
    }
}

/// Whether upstream can convert the field path to the internal version of pods. Upstream refuses all other paths before
/// it checks which fields the downward API may expose. Upstream: `ConvertDownwardAPIFieldLabel`.
fn is_convertible_field_path(path: &str) -> bool {
    /// Field paths that upstream can convert, in addition to [`ENV_FIELDS`].
    const OTHER_CONVERTIBLE_FIELDS: &[&str] = &[
        "metadata.annotations",
        "metadata.labels",
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.phase",
        "spec.host",
    ];
    ENV_FIELDS.contains(&path) || OTHER_CONVERTIBLE_FIELDS.contains(&path)
}

/// Checks a `resourceFieldRef`, including its divisor. In a volume (`is_file`), the reference must name a container. In
/// an environment variable, the container name is optional.
pub(super) fn check_resource_field_ref(
    reference: &Value,
    is_file: bool,
    at: &ErrorPath,
    out: &mut FieldErrors,
) {
    let resource = str_at(reference, "resource");
    let huge = ["requests.hugepages-", "limits.hugepages-"].iter().any(|it| resource.starts_with(it));
    if is_file && str_at(reference, "containerName").is_empty() {
        out.required(&at.field("containerName"), "");
    } else if resource.is_empty() {
        out.required(&at.field("resource"), "");
    } else if !EXPOSED_RESOURCES.contains(&resource) && !huge {
        out.unsupported(&at.field("resource"), resource, EXPOSED_RESOURCES);
    }
    let divisor = Quantity::from_json(&reference["divisor"]);
    if divisor.is_zero() {
        return;
    }
    let written = reference["divisor"].as_str().map_or_else(|| divisor.to_string(), str::to_owned);
    let bytes = ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let byte_units = |what: &str| (bytes.contains(&written.as_str()), bytes.join(", "), what.to_owned());
    let (is_supported, allowed, what) = match resource {
        "limits.cpu" | "requests.cpu" => {
            (written == "1" || written == "1m", "1m and 1".to_owned(), "cpu".to_owned())
        }
        "limits.memory" | "requests.memory" => byte_units("memory"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => byte_units("local ephemeral storage"),
        _ if huge => byte_units("hugepages"),
        _ => return,
    };
    if !is_supported {
        let why = format!("only divisor's values {allowed} are supported with the {what} resource");
        out.invalid(&at.field("divisor"), resource, &why);
    }
}
