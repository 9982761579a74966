use serde_json::{Value, json};

use super::{fill, fill_absent, pod::pod_spec, with, within};
use crate::object::is_set;

pub(crate) fn daemonset(set: &mut Value) {
    within(set, "spec", |spec| {
        fill_absent(spec, "revisionHistoryLimit", 10);
        within(spec, "updateStrategy", |it| fill(it, "type", "RollingUpdate"));
        rolling_update_and_template(spec);
    });
}

#[allow(dead_code, reason = "the old door comes next")]
/// The old API, extensions/v1beta1, took the selector and the set's own labels from the template, and did not
/// update by itself.
pub(crate) fn old_daemonset(set: &mut Value) {
    let labels = set["spec"]["template"]["metadata"]["labels"].clone();
    if labels.is_object() {
        if set["spec"]["selector"].is_null() {
            within(set, "spec", |spec| spec["selector"] = json!({"matchLabels": labels}));
        }
        if !is_set(&set["metadata"]["labels"]) {
            within(set, "metadata", |it| it["labels"] = labels.clone());
        }
    }
    within(set, "spec", |spec| {
        fill_absent(spec, "revisionHistoryLimit", 10);
        within(spec, "updateStrategy", |it| fill(it, "type", "OnDelete"));
        rolling_update_and_template(spec);
    });
}

fn rolling_update_and_template(spec: &mut Value) {
    with(spec, "updateStrategy", |strategy| {
        if strategy["type"] == "RollingUpdate" {
            within(strategy, "rollingUpdate", |it| {
                fill_absent(it, "maxUnavailable", 1);
                fill_absent(it, "maxSurge", 0);
            });
        }
    });
    within(spec, "template", |template| {
        fill_absent(template, "metadata", json!({}));
        within(template, "spec", pod_spec);
    });
}
