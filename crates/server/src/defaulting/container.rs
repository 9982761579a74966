use serde_json::{Map, Value, json};

use super::image::pull_policy;
use super::{each, fill, fill_absent, forget, round_resources, with};
use crate::unstructured::str_at;

/// Sets the defaults of a regular, init or ephemeral container. Upstream: `SetDefaults_Container`.
pub(super) fn container(container: &mut Value) {
    let policy = pull_policy(str_at(container, "image"));
    fill(container, "imagePullPolicy", policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    // Not a default, but the JSON of an empty Go struct.
    fill_absent(container, "resources", json!({}));
    with(container, "resources", |it| {
        round_resources(it, "limits");
        round_resources(it, "requests");
    });
    each(container, "ports", |it| fill(it, "protocol", "TCP"));
    each(container, "env", |it| {
        with(it, "valueFrom.fieldRef", |it| fill(it, "apiVersion", "v1"));
        with(it, "valueFrom.fileKeyRef", |it| fill_absent(it, "optional", false));
    });
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        with(container, name, probe);
    }
    if !container["lifecycle"]["stopSignal"].is_null() {
        with(container, "lifecycle", |it| forget(it, "stopSignal"));
        // An empty `lifecycle` from the client stays; one that becomes empty here is removed.
        if container["lifecycle"].as_object().is_some_and(Map::is_empty) {
            forget(container, "lifecycle");
        }
    }
    for hook in ["lifecycle.postStart", "lifecycle.preStop"] {
        with(container, hook, |it| with(it, "httpGet", http_get));
    }
}

/// Sets the defaults of a probe. Upstream: `SetDefaults_Probe`.
fn probe(probe: &mut Value) {
    fill(probe, "timeoutSeconds", 1);
    fill(probe, "periodSeconds", 10);
    fill(probe, "successThreshold", 1);
    fill(probe, "failureThreshold", 3);
    with(probe, "httpGet", http_get);
    with(probe, "grpc", |it| fill_absent(it, "service", ""));
}

/// Sets the defaults of an HTTP probe or hook. Upstream: `SetDefaults_HTTPGetAction`.
fn http_get(action: &mut Value) {
    fill(action, "path", "/");
    fill(action, "scheme", "HTTP");
}
