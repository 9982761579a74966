//! Table columns of DaemonSets, pod templates, controller revisions and disruption budgets.

use serde_json::{Value, json};

use super::{AGE, Column, Field, NAME, Says, containers, count, label_list, number, selector, text};
use crate::unstructured::{list, str_at};

const NAMES: Column = text("Containers", Says("Names of each container in the template."), |it, _| {
    json!(containers(&it["spec"]["template"], "name"))
});
const IMAGES: Column =
    text("Images", Says("Images referenced by each container in the template."), |it, _| {
        json!(containers(&it["spec"]["template"], "image"))
    });

pub(crate) const DAEMON_SET: &[Column] = &[
    NAME,
    number("Desired", Field("status.desiredNumberScheduled"), |it, _| {
        count(&it["status"]["desiredNumberScheduled"])
    }),
    number("Current", Field("status.currentNumberScheduled"), |it, _| {
        count(&it["status"]["currentNumberScheduled"])
    }),
    number("Ready", Field("status.numberReady"), |it, _| count(&it["status"]["numberReady"])),
    number("Up-to-date", Field("status.updatedNumberScheduled"), |it, _| {
        count(&it["status"]["updatedNumberScheduled"])
    }),
    number("Available", Field("status.numberAvailable"), |it, _| count(&it["status"]["numberAvailable"])),
    text("Node Selector", Field("spec.template.spec.nodeSelector"), |it, _| {
        json!(label_list(&it["spec"]["template"]["spec"]["nodeSelector"]))
    }),
    AGE,
    NAMES.wide(),
    IMAGES.wide(),
    text("Selector", Field("spec.selector"), |it, _| json!(selector(&it["spec"]["selector"]))).wide(),
];

pub(crate) const POD_TEMPLATE: &[Column] = &[
    NAME,
    Column { cell: |it, _| json!(containers(&it["template"], "name")), ..NAMES },
    Column { cell: |it, _| json!(containers(&it["template"], "image")), ..IMAGES },
    text("Pod Labels", Says("The labels for the pod template."), |it, _| {
        json!(label_list(&it["template"]["metadata"]["labels"]))
    }),
];

pub(crate) const CONTROLLER_REVISION: &[Column] = &[
    NAME,
    text("Controller", Says("Controller of the object"), |it, _| {
        let owner = list(&it["metadata"], "ownerReferences").iter().find(|it| it["controller"] == true);
        json!(owner.map_or_else(|| "<none>".to_owned(), owner_name))
    }),
    text("Revision", Field("revision"), |it, _| count(&it["revision"])),
    AGE,
];

pub(crate) const POD_DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    text("Min Available", Says("The minimum number of pods that must be available."), |it, _| {
        json!(share(&it["spec"]["minAvailable"]))
    }),
    text("Max Unavailable", Says("The maximum number of pods that may be unavailable."), |it, _| {
        json!(share(&it["spec"]["maxUnavailable"]))
    }),
    number(
        "Allowed Disruptions",
        Says("Calculated number of pods that may be disrupted at this time."),
        |it, _| count(&it["status"]["disruptionsAllowed"]),
    ),
    AGE,
];

fn owner_name(owner: &Value) -> String {
    let group = str_at(owner, "apiVersion").split_once('/').map_or("", |(group, _)| group);
    let kind = str_at(owner, "kind");
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    format!("{}/{}", kind.to_lowercase(), str_at(owner, "name"))
}

/// Prints a number or a percentage.
fn share(value: &Value) -> String {
    match value {
        Value::Null => "N/A".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::tests::rows;
    use super::*;

    #[test]
    fn workloads() {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {
            "containers": [{"name": "c", "image": "i:1"}, {"name": "d", "image": "j"}],
            "nodeSelector": {"disk": "ssd"},
        }});
        let meta = json!({"name": "x", "creationTimestamp": "2026-01-09T23:00:00Z"});
        let set = json!({"metadata": meta, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
            "status": {"desiredNumberScheduled": 3, "currentNumberScheduled": 2, "numberReady": 1}});
        let mut revision = json!({"metadata": meta, "revision": 7});
        let orphan = revision.clone();
        revision["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "controller": true}]);
        let budget =
            |spec: Value| json!({"metadata": meta, "spec": spec, "status": {"disruptionsAllowed": 1}});
        let said = [
            rows(DAEMON_SET, &[set]),
            rows(POD_TEMPLATE, &[json!({"metadata": meta, "template": template})]),
            rows(CONTROLLER_REVISION, &[revision, orphan]),
            rows(
                POD_DISRUPTION_BUDGET,
                &[budget(json!({"minAvailable": 1})), budget(json!({"maxUnavailable": "20%"}))],
            ),
        ];
        expect![[r#"
            x | 3 | 2 | 1 | 0 | 0 | disk=ssd | 60m | c,d | i:1,j | a=b
            x | c,d | i:1,j | a=b
            x | daemonset.apps/x | 7 | 60m
            x | <none> | 7 | 60m
            x | 1 | N/A | 1 | 60m
            x | N/A | 20% | 1 | 60m
        "#]]
        .assert_eq(&said.concat());
    }
}
