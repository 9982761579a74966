use serde_json::{Map, Value, json};

use super::image::pull_policy;
use super::{each, fill, fill_absent, forget, round_resources, with};
use crate::unstructured::str_at;

/// Of any sort: regular, init, ephemeral.
pub(super) fn container(container: &mut Value) {
    let policy = pull_policy(str_at(container, "image"));
    fill(container, "imagePullPolicy", policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    // Not a default, but what an empty struct looks like on upstream's wire.
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
        // An empty one that was said stays; one that said only this goes with it.
        if container["lifecycle"].as_object().is_some_and(Map::is_empty) {
            forget(container, "lifecycle");
        }
    }
    for hook in ["lifecycle.postStart", "lifecycle.preStop"] {
        with(container, hook, |it| with(it, "httpGet", http_get));
    }
}

fn probe(probe: &mut Value) {
    fill(probe, "timeoutSeconds", 1);
    fill(probe, "periodSeconds", 10);
    fill(probe, "successThreshold", 1);
    fill(probe, "failureThreshold", 3);
    with(probe, "httpGet", http_get);
    with(probe, "grpc", |it| fill_absent(it, "service", ""));
}

fn http_get(action: &mut Value) {
    fill(action, "path", "/");
    fill(action, "scheme", "HTTP");
}
