//! Table columns of DaemonSets, pod templates, controller revisions and disruption budgets.

use serde_json::{Value, json};

use super::{
    AGE_COLUMN, Column, Field, Literal, NAME_COLUMN, container_field_list, format_labels, format_selector,
    integer_column, integer_or_zero, text_column,
};
use crate::unstructured::{list_at, str_at};

/// The column with the container names of `spec.template`.
const CONTAINER_NAMES_COLUMN: Column =
    text_column("Containers", Literal("Names of each container in the template."), |it, _| {
        json!(container_field_list(&it["spec"]["template"], "name"))
    });
/// The column with the container images of `spec.template`.
const CONTAINER_IMAGES_COLUMN: Column =
    text_column("Images", Literal("Images referenced by each container in the template."), |it, _| {
        json!(container_field_list(&it["spec"]["template"], "image"))
    });

pub(crate) const DAEMON_SET_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    integer_column("Desired", Field("status.desiredNumberScheduled"), |it, _| {
        integer_or_zero(&it["status"]["desiredNumberScheduled"])
    }),
    integer_column("Current", Field("status.currentNumberScheduled"), |it, _| {
        integer_or_zero(&it["status"]["currentNumberScheduled"])
    }),
    integer_column("Ready", Field("status.numberReady"), |it, _| {
        integer_or_zero(&it["status"]["numberReady"])
    }),
    integer_column("Up-to-date", Field("status.updatedNumberScheduled"), |it, _| {
        integer_or_zero(&it["status"]["updatedNumberScheduled"])
    }),
    integer_column("Available", Field("status.numberAvailable"), |it, _| {
        integer_or_zero(&it["status"]["numberAvailable"])
    }),
    text_column("Node Selector", Field("spec.template.spec.nodeSelector"), |it, _| {
        json!(format_labels(&it["spec"]["template"]["spec"]["nodeSelector"]))
    }),
    AGE_COLUMN,
    CONTAINER_NAMES_COLUMN.only_wide(),
    CONTAINER_IMAGES_COLUMN.only_wide(),
    text_column("Selector", Field("spec.selector"), |it, _| json!(format_selector(&it["spec"]["selector"])))
        .only_wide(),
];

pub(crate) const POD_TEMPLATE_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    Column { cell: |it, _| json!(container_field_list(&it["template"], "name")), ..CONTAINER_NAMES_COLUMN },
    Column { cell: |it, _| json!(container_field_list(&it["template"], "image")), ..CONTAINER_IMAGES_COLUMN },
    text_column("Pod Labels", Literal("The labels for the pod template."), |it, _| {
        json!(format_labels(&it["template"]["metadata"]["labels"]))
    }),
];

pub(crate) const CONTROLLER_REVISION_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column("Controller", Literal("Controller of the object"), |it, _| {
        let owner = list_at(&it["metadata"], "ownerReferences").iter().find(|it| it["controller"] == true);
        json!(owner.map_or_else(|| "<none>".to_owned(), format_owner_reference))
    }),
    text_column("Revision", Field("revision"), |it, _| integer_or_zero(&it["revision"])),
    AGE_COLUMN,
];

pub(crate) const POD_DISRUPTION_BUDGET_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column("Min Available", Literal("The minimum number of pods that must be available."), |it, _| {
        json!(format_int_or_percent(&it["spec"]["minAvailable"]))
    }),
    text_column(
        "Max Unavailable",
        Literal("The maximum number of pods that may be unavailable."),
        |it, _| json!(format_int_or_percent(&it["spec"]["maxUnavailable"])),
    ),
    integer_column(
        "Allowed Disruptions",
        Literal("Calculated number of pods that may be disrupted at this time."),
        |it, _| integer_or_zero(&it["status"]["disruptionsAllowed"]),
    ),
    AGE_COLUMN,
];

/// Formats an owner reference, such as `daemonset.apps/fluentd`.
fn format_owner_reference(owner: &Value) -> String {
    let group = str_at(owner, "apiVersion").split_once('/').map_or("", |(group, _)| group);
    let kind = str_at(owner, "kind");
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    format!("{}/{}", kind.to_lowercase(), str_at(owner, "name"))
}

/// Formats a number or percentage. An absent value is `N/A`.
fn format_int_or_percent(value: &Value) -> String {
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
            rows(DAEMON_SET_COLUMNS, &[set]),
            rows(POD_TEMPLATE_COLUMNS, &[json!({"metadata": meta, "template": template})]),
            rows(CONTROLLER_REVISION_COLUMNS, &[revision, orphan]),
            rows(
                POD_DISRUPTION_BUDGET_COLUMNS,
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
