//! Table columns of ConfigMaps, Secrets, role bindings and certificate signing requests.

use serde_json::{Value, json};

use super::{AGE, Column, Field, NAME, Says, human_duration, or, size, text};
use crate::unstructured::{is_set, list, str_at};

pub(crate) const CONFIG_MAP: &[Column] =
    &[NAME, text("Data", Field("data"), |it, _| json!(size(&it["data"]) + size(&it["binaryData"]))), AGE];

pub(crate) const SECRET: &[Column] = &[
    NAME,
    text("Type", Field("type"), |it, _| json!(str_at(it, "type"))),
    text("Data", Field("data"), |it, _| json!(size(&it["data"]))),
    AGE,
];

const ROLE: Column = text("Role", Field("roleRef"), |it, _| {
    json!(format!("{}/{}", str_at(it, "roleRef.kind"), str_at(it, "roleRef.name")))
});

const USERS: Column = text("Users", Says(""), |it, _| json!(subjects(it, "User"))).wide();
const GROUPS: Column = text("Groups", Says(""), |it, _| json!(subjects(it, "Group"))).wide();
const ACCOUNTS: Column =
    text("ServiceAccounts", Says(""), |it, _| json!(subjects(it, "ServiceAccount"))).wide();

pub(crate) const ROLE_BINDING: &[Column] = &[
    NAME,
    ROLE,
    AGE,
    Column { doc: Says("Users in the roleBinding"), ..USERS },
    Column { doc: Says("Groups in the roleBinding"), ..GROUPS },
    Column { doc: Says("ServiceAccounts in the roleBinding"), ..ACCOUNTS },
];

pub(crate) const CLUSTER_ROLE_BINDING: &[Column] = &[
    NAME,
    ROLE,
    AGE,
    Column { doc: Says("Users in the clusterRoleBinding"), ..USERS },
    Column { doc: Says("Groups in the clusterRoleBinding"), ..GROUPS },
    Column { doc: Says("ServiceAccounts in the clusterRoleBinding"), ..ACCOUNTS },
];

pub(crate) const CERTIFICATE_SIGNING_REQUEST: &[Column] = &[
    NAME,
    AGE,
    text("SignerName", Field("spec.signerName"), |it, _| json!(or(str_at(it, "spec.signerName"), "<none>"))),
    text("Requestor", Field("spec.request"), |it, _| json!(str_at(it, "spec.username"))),
    text("RequestedDuration", Field("spec.expirationSeconds"), |it, _| {
        json!(it["spec"]["expirationSeconds"].as_i64().map_or_else(|| "<none>".to_owned(), human_duration))
    }),
    text("Condition", Field("status.conditions"), |it, _| json!(csr_condition(it))),
];

fn subjects(binding: &Value, kind: &str) -> String {
    let chosen = list(binding, "subjects").iter().filter(|it| it["kind"] == kind);
    let names: Vec<_> = chosen
        .map(|it| match kind {
            "ServiceAccount" => format!("{}/{}", str_at(it, "namespace"), str_at(it, "name")),
            _ => str_at(it, "name").to_owned(),
        })
        .collect();
    names.join(", ")
}

fn csr_condition(request: &Value) -> String {
    let has = |kind: &str| list(&request["status"], "conditions").iter().any(|it| it["type"] == kind);
    let mut text = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        text.push_str(",Failed");
    }
    if is_set(&request["status"]["certificate"]) {
        text.push_str(",Issued");
    }
    text
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::tests::rows;
    use super::*;

    #[test]
    fn configuration_and_access() {
        let meta = json!({"name": "x", "creationTimestamp": "2026-01-09T23:00:00Z"});
        let binding = json!({"metadata": meta, "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [
            {"kind": "User", "name": "a"}, {"kind": "User", "name": "b"}, {"kind": "Group", "name": "g"},
            {"kind": "ServiceAccount", "namespace": "n", "name": "s"},
        ]});
        let asked = json!({"metadata": meta, "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "username": "a", "expirationSeconds": 86400}});
        let mut issued = asked.clone();
        issued["spec"]["expirationSeconds"] = Value::Null;
        issued["status"] = json!({"conditions": [{"type": "Approved"}], "certificate": "eA=="});
        let said = [
            rows(CONFIG_MAP, &[json!({"metadata": meta, "data": {"a": "1"}, "binaryData": {"b": "eA=="}})]),
            rows(SECRET, &[json!({"metadata": meta, "type": "Opaque", "data": {"a": "eA=="}})]),
            rows(ROLE_BINDING, &[binding]),
            rows(CERTIFICATE_SIGNING_REQUEST, &[asked, issued]),
        ];
        expect![[r#"
            x | 2 | 60m
            x | Opaque | 1 | 60m
            x | ClusterRole/view | 60m | a, b | g | n/s
            x | 60m | kubernetes.io/kube-apiserver-client | a | 24h | Pending
            x | 60m | kubernetes.io/kube-apiserver-client | a | <none> | Approved,Issued
        "#]]
        .assert_eq(&said.concat());
    }
}
