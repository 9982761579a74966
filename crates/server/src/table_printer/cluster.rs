//! Table columns of namespaces, nodes, events, leases, priority and runtime classes, and resource quotas.

use serde_json::{Value, json};

use super::{
    AGE_COLUMN, Column, Field, Literal, NAME_COLUMN, boolean_column, format_age, integer_or_zero,
    non_empty_or, text_column,
};
use crate::unstructured::{is_set, list_at, str_at};

pub(crate) const NAMESPACE_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column("Status", Literal("The status of the namespace"), |it, _| json!(str_at(it, "status.phase"))),
    AGE_COLUMN,
];

pub(crate) const NODE_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column("Status", Literal("The status of the node"), |it, _| json!(node_status(it))),
    text_column("Roles", Literal("The roles of the node"), |it, _| json!(node_roles(it))),
    AGE_COLUMN,
    text_column("Version", Field("status.nodeInfo.kubeletVersion"), |it, _| {
        json!(str_at(it, "status.nodeInfo.kubeletVersion"))
    }),
    text_column("Internal-IP", Field("status.addresses"), |it, _| json!(node_address(it, "InternalIP")))
        .only_wide(),
    text_column("External-IP", Field("status.addresses"), |it, _| json!(node_address(it, "ExternalIP")))
        .only_wide(),
    text_column("OS-Image", Field("status.nodeInfo.osImage"), |it, _| {
        json!(non_empty_or(str_at(it, "status.nodeInfo.osImage"), "<unknown>"))
    })
    .only_wide(),
    text_column("Kernel-Version", Field("status.nodeInfo.kernelVersion"), |it, _| {
        let version = non_empty_or(str_at(it, "status.nodeInfo.kernelVersion"), "<unknown>");
        json!(match str_at(it, "status.nodeInfo.architecture") {
            "" => version.to_owned(),
            architecture => format!("{version} ({architecture})"),
        })
    })
    .only_wide(),
    text_column("Container-Runtime", Field("status.nodeInfo.containerRuntimeVersion"), |it, _| {
        json!(non_empty_or(str_at(it, "status.nodeInfo.containerRuntimeVersion"), "<unknown>"))
    })
    .only_wide(),
];

pub(crate) const EVENT_COLUMNS: &[Column] = &[
    text_column("Last Seen", Field("lastTimestamp"), |it, now| {
        let since = match &it["series"] {
            Value::Null => first_set_field(it, &["lastTimestamp", "firstTimestamp", "eventTime"]),
            series => &series["lastObservedTime"],
        };
        json!(format_age(since, now))
    }),
    text_column("Type", Field("type"), |it, _| json!(str_at(it, "type"))),
    text_column("Reason", Field("reason"), |it, _| json!(str_at(it, "reason"))),
    text_column("Object", Field("involvedObject"), |it, _| {
        let kind = str_at(it, "involvedObject.kind").to_lowercase();
        json!(match str_at(it, "involvedObject.name") {
            "" => kind,
            name => format!("{kind}/{name}"),
        })
    }),
    text_column("Subobject", Field("involvedObject.fieldPath"), |it, _| {
        json!(str_at(it, "involvedObject.fieldPath"))
    })
    .only_wide(),
    text_column("Source", Field("source"), |it, _| {
        let component = non_empty_or(str_at(it, "source.component"), str_at(it, "reportingComponent"));
        json!(match non_empty_or(str_at(it, "source.host"), str_at(it, "reportingInstance")) {
            "" => component.to_owned(),
            instance => format!("{component}, {instance}"),
        })
    })
    .only_wide(),
    text_column("Message", Field("message"), |it, _| json!(str_at(it, "message").trim())),
    text_column("First Seen", Field("firstTimestamp"), |it, now| {
        json!(format_age(first_set_field(it, &["firstTimestamp", "eventTime"]), now))
    })
    .only_wide(),
    text_column("Count", Field("count"), |it, _| {
        // A single event of `events.k8s.io` has no count.
        match &it["series"] {
            Value::Null => json!(it["count"].as_i64().filter(|it| *it != 0).unwrap_or(1)),
            series => integer_or_zero(&series["count"]),
        }
    })
    .only_wide(),
    NAME_COLUMN.only_wide(),
];

pub(crate) const LEASE_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column("Holder", Field("spec.holderIdentity"), |it, _| json!(str_at(it, "spec.holderIdentity"))),
    AGE_COLUMN,
];

pub(crate) const PRIORITY_CLASS_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    Column {
        cell_type: "integer",
        ..text_column("Value", Field("value"), |it, _| integer_or_zero(&it["value"]))
    },
    boolean_column("Global-Default", Field("globalDefault"), |it, _| json!(it["globalDefault"] == true)),
    AGE_COLUMN,
    text_column("PreemptionPolicy", Field("preemptionPolicy"), |it, _| json!(str_at(it, "preemptionPolicy"))),
];

pub(crate) const RUNTIME_CLASS_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column("Handler", Field("handler"), |it, _| json!(str_at(it, "handler"))),
    AGE_COLUMN,
];

pub(crate) const RESOURCE_QUOTA_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column(
        "Request",
        Literal("Request represents a minimum amount of cpu/memory that a container may consume."),
        |it, _| json!(quota_usage(it, false)),
    ),
    text_column(
        "Limit",
        Literal(
            "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node.",
        ),
        |it, _| json!(quota_usage(it, true)),
    ),
    AGE_COLUMN,
];

/// Returns the text of the column `Status` of a Node, such as `Ready,SchedulingDisabled`.
fn node_status(node: &Value) -> String {
    let ready = list_at(&node["status"], "conditions").iter().rfind(|it| it["type"] == "Ready");
    let mut status = match ready.map(|it| &it["status"]) {
        None => "Unknown",
        Some(status) if status == "True" => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    status
}

/// Returns the roles of a Node, joined with commas, from its labels `node-role.kubernetes.io/…` and
/// `kubernetes.io/role`. Returns `<none>` for a Node without roles.
fn node_roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let mut roles: Vec<_> = labels
        .filter_map(|(name, value)| match name.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if name == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|it| !it.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    non_empty_or(&roles.join(","), "<none>").to_owned()
}

/// Returns the first address of a Node that has the type `kind`, such as `InternalIP`, or `<none>`.
fn node_address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let address = list_at(&node["status"], "addresses").iter().find(|it| it["type"] == kind);
    address.map_or("<none>", |it| str_at(it, "address"))
}

/// Formats the used and hard amounts of a ResourceQuota, such as `cpu: 1/2, pods: 3/10`. Shows the resources `limits.*`
/// if `of_limits` is `true`, and all other resources if it is `false`.
fn quota_usage(quota: &Value, of_limits: bool) -> String {
    let status = &quota["status"];
    let hard = status["hard"].as_object().into_iter().flatten();
    let usage: Vec<_> = hard
        .filter(|(name, _)| name.starts_with("limits.") == of_limits)
        .map(|(name, hard)| {
            let used = non_empty_or(status["used"][name].as_str().unwrap_or_default(), "0");
            format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
        })
        .collect();
    usage.join(", ")
}

/// Returns the value of the first of these fields that is set, or null.
fn first_set_field<'a>(object: &'a Value, names: &[&str]) -> &'a Value {
    names.iter().map(|it| &object[it]).find(|it| is_set(it)).unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::tests::rows;
    use super::*;

    #[test]
    fn nodes_and_namespaces() {
        let nodes = [
            json!({"metadata": {"name": "n1", "labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/a": "", "kubernetes.io/role": "a"}},
                "spec": {"unschedulable": true},
                "status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                    "nodeInfo": {"kubeletVersion": "v1", "kernelVersion": "6.1", "architecture": "amd64", "osImage": "Linux"}}}),
            json!({"metadata": {"name": "n2"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
            json!({"metadata": {"name": "n3"}}),
        ];
        let space = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-10T00:00:00Z"}, "status": {"phase": "Active"}});
        expect![[r#"
            n1 | Ready,SchedulingDisabled | a,worker | <unknown> | v1 | 10.0.0.1 | <none> | Linux | 6.1 (amd64) | <unknown>
            n2 | NotReady | <none> | <unknown> |  | <none> | <none> | <unknown> | <unknown> | <unknown>
            n3 | Unknown | <none> | <unknown> |  | <none> | <none> | <unknown> | <unknown> | <unknown>
            a | Active | 0s
        "#]].assert_eq(&(rows(NODE_COLUMNS, &nodes) + &rows(NAMESPACE_COLUMNS, &[space])));
    }

    #[test]
    fn events_old_and_new() {
        let about = json!({"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"});
        let events = [
            json!({"metadata": {"name": "old"}, "type": "Normal", "reason": "Pulled", "message": "done\n", "involvedObject": about, "count": 4,
                "firstTimestamp": "2026-01-09T23:00:00Z", "lastTimestamp": "2026-01-09T23:59:00Z", "source": {"component": "kubelet", "host": "n1"}}),
            json!({"metadata": {"name": "new"}, "type": "Warning", "reason": "Failed", "involvedObject": about,
                "eventTime": "2026-01-09T23:59:30.500000Z", "reportingComponent": "x", "reportingInstance": "x-1"}),
            json!({"metadata": {"name": "many"}, "type": "Warning", "reason": "Failed", "involvedObject": {"kind": "Node"},
                "eventTime": "2026-01-09T23:00:00.000000Z", "series": {"count": 9, "lastObservedTime": "2026-01-09T23:58:00.000000Z"}}),
        ];
        expect![[r#"
            60s | Normal | Pulled | pod/p | spec.containers{c} | kubelet, n1 | done | 60m | 4 | old
            29s | Warning | Failed | pod/p | spec.containers{c} | x, x-1 |  | 29s | 1 | new
            2m | Warning | Failed | node |  |  |  | 60m | 9 | many
        "#]]
        .assert_eq(&rows(EVENT_COLUMNS, &events));
    }

    #[test]
    fn quotas_and_classes() {
        let meta = json!({"name": "x", "creationTimestamp": "2026-01-09T00:00:00Z"});
        let quota = json!({"metadata": meta, "status": {
            "hard": {"pods": "10", "limits.cpu": "2", "requests.cpu": "1"},
            "used": {"pods": "3", "limits.cpu": "500m"},
        }});
        let class = json!({"metadata": meta, "value": -5, "preemptionPolicy": "Never"});
        let lease = json!({"metadata": meta, "spec": {"holderIdentity": "n1"}});
        let runtime = json!({"metadata": meta, "handler": "runc"});
        let said = [
            rows(RESOURCE_QUOTA_COLUMNS, &[quota]),
            rows(PRIORITY_CLASS_COLUMNS, &[class]),
            rows(LEASE_COLUMNS, &[lease]),
            rows(RUNTIME_CLASS_COLUMNS, &[runtime]),
        ];
        expect![[r#"
            x | pods: 3/10, requests.cpu: 0/1 | limits.cpu: 500m/2 | 24h
            x | -5 | false | 24h | Never
            x | n1 | 24h
            x | runc | 24h
        "#]]
        .assert_eq(&said.concat());
    }
}
