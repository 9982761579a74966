//! Table columns of ConfigMaps, Secrets, role bindings and certificate signing requests.

use serde_json::{Value, json};

use super::{
    AGE_COLUMN, Column, Field, Literal, NAME_COLUMN, entry_count, human_duration, non_empty_or, text_column,
};
use crate::unstructured::{is_set, list_at, str_at};

pub(crate) const CONFIG_MAP_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column("Data", Field("data"), |it, _| {
        json!(entry_count(&it["data"]) + entry_count(&it["binaryData"]))
    }),
    AGE_COLUMN,
];

pub(crate) const SECRET_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    text_column("Type", Field("type"), |it, _| json!(str_at(it, "type"))),
    text_column("Data", Field("data"), |it, _| json!(entry_count(&it["data"]))),
    AGE_COLUMN,
];

/// The column with the role to which a binding refers.
const ROLE_COLUMN: Column = text_column("Role", Field("roleRef"), |it, _| {
    json!(format!("{}/{}", str_at(it, "roleRef.kind"), str_at(it, "roleRef.name")))
});

/// The column with the users of a binding.
const USERS_COLUMN: Column =
    text_column("Users", Literal(""), |it, _| json!(subject_names(it, "User"))).only_wide();
/// The column with the groups of a binding.
const GROUPS_COLUMN: Column =
    text_column("Groups", Literal(""), |it, _| json!(subject_names(it, "Group"))).only_wide();
/// The column with the service accounts of a binding.
const SERVICE_ACCOUNTS_COLUMN: Column =
    text_column("ServiceAccounts", Literal(""), |it, _| json!(subject_names(it, "ServiceAccount")))
        .only_wide();

pub(crate) const ROLE_BINDING_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    ROLE_COLUMN,
    AGE_COLUMN,
    Column { description: Literal("Users in the roleBinding"), ..USERS_COLUMN },
    Column { description: Literal("Groups in the roleBinding"), ..GROUPS_COLUMN },
    Column { description: Literal("ServiceAccounts in the roleBinding"), ..SERVICE_ACCOUNTS_COLUMN },
];

pub(crate) const CLUSTER_ROLE_BINDING_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    ROLE_COLUMN,
    AGE_COLUMN,
    Column { description: Literal("Users in the clusterRoleBinding"), ..USERS_COLUMN },
    Column { description: Literal("Groups in the clusterRoleBinding"), ..GROUPS_COLUMN },
    Column { description: Literal("ServiceAccounts in the clusterRoleBinding"), ..SERVICE_ACCOUNTS_COLUMN },
];

pub(crate) const CERTIFICATE_SIGNING_REQUEST_COLUMNS: &[Column] = &[
    NAME_COLUMN,
    AGE_COLUMN,
    text_column("SignerName", Field("spec.signerName"), |it, _| {
        json!(non_empty_or(str_at(it, "spec.signerName"), "<none>"))
    }),
    text_column("Requestor", Field("spec.request"), |it, _| json!(str_at(it, "spec.username"))),
    text_column("RequestedDuration", Field("spec.expirationSeconds"), |it, _| {
        json!(it["spec"]["expirationSeconds"].as_i64().map_or_else(|| "<none>".to_owned(), human_duration))
    }),
    text_column("Condition", Field("status.conditions"), |it, _| json!(signing_request_condition(it))),
];

/// Returns the names of the subjects of this kind in a binding, joined with commas. A service account is shown as
/// `namespace/name`.
fn subject_names(binding: &Value, kind: &str) -> String {
    let chosen = list_at(binding, "subjects").iter().filter(|it| it["kind"] == kind);
    let names: Vec<_> = chosen
        .map(|it| match kind {
            "ServiceAccount" => format!("{}/{}", str_at(it, "namespace"), str_at(it, "name")),
            _ => str_at(it, "name").to_owned(),
        })
        .collect();
    names.join(", ")
}

/// Returns the text of the column `Condition` of a CertificateSigningRequest, such as `Approved,Issued`.
fn signing_request_condition(request: &Value) -> String {
    let has = |kind: &str| list_at(&request["status"], "conditions").iter().any(|it| it["type"] == kind);
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
            rows(
                CONFIG_MAP_COLUMNS,
                &[json!({"metadata": meta, "data": {"a": "1"}, "binaryData": {"b": "eA=="}})],
            ),
            rows(SECRET_COLUMNS, &[json!({"metadata": meta, "type": "Opaque", "data": {"a": "eA=="}})]),
            rows(ROLE_BINDING_COLUMNS, &[binding]),
            rows(CERTIFICATE_SIGNING_REQUEST_COLUMNS, &[asked, issued]),
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
