//! Defaults of containers, probes and lifecycle hooks.

use serde_json::{Map, Value};

use super::{for_each_object, remove_field, round_to_millis, set_if_absent, set_if_zero, with_object};
use crate::image_reference::default_pull_policy;

/// Sets the defaults of a regular, init or ephemeral container. Upstream: `SetDefaults_Container`.
pub(super) fn set_container_defaults(container: &mut Value) {
    let policy = default_pull_policy(container["image"].as_str().unwrap_or_default());
    set_if_zero(container, "imagePullPolicy", policy);
    set_if_zero(container, "terminationMessagePath", "/dev/termination-log");
    set_if_zero(container, "terminationMessagePolicy", "File");
    // Not a default, but the JSON of an empty Go struct.
    set_if_absent(container, "resources", Map::new());
    with_object(container, "resources", |it| {
        round_to_millis(it, "limits");
        round_to_millis(it, "requests");
    });
    for_each_object(container, "ports", |it| set_if_zero(it, "protocol", "TCP"));
    for_each_object(container, "env", |it| {
        with_object(it, "valueFrom.fieldRef", |it| set_if_zero(it, "apiVersion", "v1"));
        with_object(it, "valueFrom.fileKeyRef", |it| set_if_absent(it, "optional", false));
    });
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        with_object(container, name, set_probe_defaults);
    }
    if !container["lifecycle"]["stopSignal"].is_null() {
        with_object(container, "lifecycle", |it| remove_field(it, "stopSignal"));
        // An empty `lifecycle` from the client stays; one that becomes empty here is removed.
        if container["lifecycle"].as_object().is_some_and(Map::is_empty) {
            remove_field(container, "lifecycle");
        }
    }
    for hook in ["lifecycle.postStart", "lifecycle.preStop"] {
        with_object(container, hook, |it| with_object(it, "httpGet", set_http_get_defaults));
    }
}

/// Sets the defaults of a probe. Upstream: `SetDefaults_Probe`.
fn set_probe_defaults(probe: &mut Value) {
    set_if_zero(probe, "timeoutSeconds", 1);
    set_if_zero(probe, "periodSeconds", 10);
    set_if_zero(probe, "successThreshold", 1);
    set_if_zero(probe, "failureThreshold", 3);
    with_object(probe, "httpGet", set_http_get_defaults);
    with_object(probe, "grpc", |it| set_if_absent(it, "service", ""));
}

/// Sets the defaults of an HTTP probe or hook. Upstream: `SetDefaults_HTTPGetAction`.
fn set_http_get_defaults(action: &mut Value) {
    set_if_zero(action, "path", "/");
    set_if_zero(action, "scheme", "HTTP");
}
