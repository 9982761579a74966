use serde_json::{Value, json};

use super::{fill, fill_absent, pod::pod_spec, with, within};

/// Annotation with the template generation of `extensions/v1beta1`. Upstream: `DeprecatedTemplateGeneration`.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Sets the defaults of a DaemonSet. Upstream: `SetDefaults_DaemonSet`.
pub(crate) fn daemonset(set: &mut Value) {
    within(set, "spec", |spec| {
        fill_absent(spec, "revisionHistoryLimit", 10);
        within(spec, "updateStrategy", |it| fill(it, "type", "RollingUpdate"));
        rolling_update_and_template(spec);
    });
    // The server increments it, but the client owns it in managed fields: upstream's objects have it from the start.
    within(set, "metadata", |meta| within(meta, "annotations", |it| fill(it, TEMPLATE_GENERATION, "0")));
}

/// Sets the defaults of the rolling update parameters and of the pod template.
fn rolling_update_and_template(spec: &mut Value) {
    with(spec, "updateStrategy", |strategy| {
        let is_rolling = strategy["type"] == "RollingUpdate";
        if is_rolling {
            fill_absent(strategy, "rollingUpdate", json!({}));
        }
        with(strategy, "rollingUpdate", |it| {
            fill_absent(it, "maxUnavailable", i64::from(is_rolling));
            fill_absent(it, "maxSurge", 0);
        });
    });
    within(spec, "template", |template| {
        fill_absent(template, "metadata", json!({}));
        within(template, "spec", pod_spec);
    });
}
