//! Defaults of DaemonSets.

use muster_api::defaulting::{
    set_if_absent, set_if_zero, set_pod_spec_defaults, with_object, with_object_or_new,
};
use muster_api::well_known::ANNOTATION_TEMPLATE_GENERATION;
use serde_json::{Value, json};

/// Sets the defaults of a DaemonSet. Upstream: `SetDefaults_DaemonSet`.
pub(crate) fn set_daemonset_defaults(set: &mut Value) {
    with_object_or_new(set, "spec", |spec| {
        set_if_absent(spec, "revisionHistoryLimit", 10);
        with_object_or_new(spec, "updateStrategy", |it| set_if_zero(it, "type", "RollingUpdate"));
        set_rolling_update_and_template_defaults(spec);
    });
    // The server increments it, but the client owns it in managed fields: upstream's objects have it from the start.
    with_object_or_new(set, "metadata", |meta| {
        with_object_or_new(meta, "annotations", |it| set_if_zero(it, ANNOTATION_TEMPLATE_GENERATION, "0"))
    });
}

/// Sets the defaults of `updateStrategy.rollingUpdate` and of the pod template in a DaemonSet spec.
fn set_rolling_update_and_template_defaults(spec: &mut Value) {
    with_object(spec, "updateStrategy", |strategy| {
        let is_rolling = strategy["type"] == "RollingUpdate";
        if is_rolling {
            set_if_absent(strategy, "rollingUpdate", json!({}));
        }
        with_object(strategy, "rollingUpdate", |it| {
            set_if_absent(it, "maxUnavailable", i64::from(is_rolling));
            set_if_absent(it, "maxSurge", 0);
        });
    });
    with_object_or_new(spec, "template", |template| {
        set_if_absent(template, "metadata", json!({}));
        with_object_or_new(template, "spec", set_pod_spec_defaults);
    });
}
