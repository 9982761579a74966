//! One valid object of every kind that is stored, for tests that go over all kinds.

use super::*;
use crate::kinds::WRITABLE_KINDS;

pub(in crate::http) const NAMESPACE: &str = "samples";

/// Every kind that is stored, by each group and version that serves it, with a valid object.
pub(in crate::http) fn all() -> Vec<(&'static Kind, Value)> {
    let stored = WRITABLE_KINDS.iter().filter(|it| it.create_action.is_none());
    stored.map(|kind| (*kind, of(kind.kind))).collect()
}

/// The path of the collection that holds the sample, and its name.
pub(in crate::http) fn path(kind: &Kind) -> String {
    let root = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let namespace = if kind.namespaced { format!("/namespaces/{NAMESPACE}") } else { String::new() };
    format!("{root}/{}{namespace}/{}", kind.version, kind.plural)
}

fn of(kind: &str) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let mut object = match kind {
        "ConfigMap" => json!({"data": {"k": "v"}}),
        "Secret" => json!({"stringData": {"k": "v"}}),
        "Endpoints" => json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}),
        "Event" => json!({
            "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": "sample"},
            "regarding": {"kind": "Pod", "namespace": NAMESPACE, "name": "sample"},
            "reason": "Tested", "message": "m", "type": "Normal", "note": "m",
        }),
        "LimitRange" => json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "4"}}]}}),
        "Namespace" | "ServiceAccount" => json!({}),
        "Node" => json!({"spec": {"unschedulable": true}}),
        "Pod" => template.clone(),
        "PodTemplate" => json!({"template": template}),
        "ResourceQuota" => json!({"spec": {"hard": {"pods": "100"}}}),
        "Service" => json!({"spec": {"ports": [{"port": 80}], "selector": {"app": "a"}}}),
        "ControllerRevision" => json!({"revision": 1, "data": {"a": 1}}),
        "DaemonSet" => json!({"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template}}),
        "CertificateSigningRequest" => json!({"spec": {
            "request": crate::pki::tests::signing_request("me", "us"),
            "signerName": "example.com/signer",
            "usages": ["client auth"],
        }}),
        "PodDisruptionBudget" => {
            json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}})
        }
        "ClusterRole" | "Role" => {
            json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})
        }
        "ClusterRoleBinding" | "RoleBinding" => json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "nobody-at-all", "apiGroup": "rbac.authorization.k8s.io"}],
        }),
        "ClusterRolloutPolicy" | "RolloutPolicy" => json!({"spec": {"selector": {}}}),
        "DaemonRollout" => json!({"spec": {"paused": true}}),
        "PriorityClass" => json!({"value": 7}),
        "Lease" => json!({"spec": {"holderIdentity": "h", "leaseDurationSeconds": 10}}),
        "RuntimeClass" => json!({"handler": "runc"}),
        "EndpointSlice" => {
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": []})
        }
        other => panic!("no sample of {other}: add one"),
    };
    let name = if kind == "Namespace" { "sample-namespace" } else { "sample" };
    object["metadata"]["name"] = json!(name);
    object
}

/// A server that has one object of every kind.
pub(in crate::http) async fn server() -> Server {
    let server = Server::new().await;
    crate::controllers::cluster_roles::ensure_default_roles(&server.api.registry, Timestamp::UNIX_EPOCH)
        .await
        .unwrap();
    let (code, _) = server.json("POST", "/api/v1/namespaces", json!({"metadata": {"name": NAMESPACE}})).await;
    assert_eq!(code, 201);
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    let (code, _) = server.json("POST", &accounts, json!({"metadata": {"name": "default"}})).await;
    assert_eq!(code, 201);
    for (kind, mut object) in all().into_iter().filter(|it| it.0.is_stored()) {
        if let Some(meta) = object["metadata"].as_object_mut()
            && kind.kind == "Event"
        {
            meta.insert("namespace".into(), json!(NAMESPACE));
        }
        let path = format!("{}?fieldValidation=Ignore", path(kind));
        let (code, said) = server.json("POST", &path, object).await;
        assert!(code == 201 || code == 409, "{path}: {code} {said}");
    }
    server
}
