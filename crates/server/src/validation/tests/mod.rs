//! Validates manifests and compares the errors.

mod daemonset;
mod others;
mod pod;
mod random;

use expect_test::Expect;
use serde_json::{Value, json};

use super::WriteToValidate;
use crate::kinds::{Kind, WRITABLE_KINDS};
use crate::subresource::Subresource;

fn kind(name: &str) -> &'static Kind {
    WRITABLE_KINDS.iter().find(|it| it.kind == name).unwrap()
}

/// Defaults are set, and then every cause is on a line of its own.
fn said(kind: &Kind, new: &Value, old: Option<&Value>, subresource: Subresource) -> String {
    let named = |object: &Value| {
        let mut object = object.clone();
        if object["metadata"]["name"].is_null() {
            object["metadata"]["name"] = json!("it");
        }
        if kind.namespaced && object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!("default");
        }
        (kind.apply_defaults)(&mut object);
        object
    };
    let (new, old) = (named(new), old.map(named));
    let causes = kind.validate(&WriteToValidate { new: &new, old: old.as_ref(), subresource });
    let line = |it: &crate::validation::FieldError| format!("{}: {}", it.field, it.message);
    causes.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn check(name: &str, new: &Value, golden: &Expect) {
    golden.assert_eq(&said(kind(name), new, None, Subresource::Whole));
}

fn check_change(name: &str, old: &Value, new: &Value, golden: &Expect) {
    golden.assert_eq(&said(kind(name), new, Some(old), Subresource::Whole));
}

fn check_status(name: &str, old: &Value, new: &Value, golden: &Expect) {
    golden.assert_eq(&said(kind(name), new, Some(old), Subresource::Status));
}

/// A pod, or a template, of one container with these fields added to it.
fn pod_with(more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"spec": spec})
}

fn container_with(more: Value) -> Value {
    let mut container = json!({"name": "c", "image": "i"});
    container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    pod_with(json!({"containers": [container]}))
}

#[test]
fn the_errors_of_one_object_are_bounded() {
    let owner = |index: usize| {
        let name = index.to_string();
        json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": true})
    };
    let owners: Vec<Value> = (0..5_000).map(owner).collect();
    let object = json!({"metadata": {"name": "a", "namespace": "default", "ownerReferences": owners}});
    let errors = |object: &Value| {
        let kind = kind("ConfigMap");
        let causes =
            kind.validate(&WriteToValidate { new: object, old: None, subresource: Subresource::Whole });
        (crate::error::ApiError::invalid(kind, "a", &causes).status(), causes)
    };
    let (status, causes) = errors(&object);
    assert!(status.to_string().len() < 1 << 20, "{}", status.to_string().len());
    let line = |it: &crate::validation::FieldError| format!("{}: {}", it.field, it.message);
    assert_eq!(causes.len(), 101);
    assert_eq!(line(&causes[100]), "<nil>: Too many errors: 4899 more are not shown");
    assert!(causes[0].message.len() < 1_400, "the quoted list is truncated: {}", causes[0].message);

    let object = json!({"metadata": {"name": "a", "namespace": "default", "finalizers": vec!["!"; 500_000]}});
    let (status, causes) = errors(&object);
    assert!(status.to_string().len() < 1 << 20);
    assert_eq!(causes.len(), 101);

    // Few large errors.
    let keys: serde_json::Map<_, _> =
        (0..40).map(|index| (format!("{index}{}", "!".repeat(70_000)), json!("1"))).collect();
    let container = json!({"name": "c", "image": "i", "resources": {"limits": keys}});
    let mut pod =
        json!({"metadata": {"name": "a", "namespace": "default"}, "spec": {"containers": [container]}});
    (kind("Pod").apply_defaults)(&mut pod);
    let causes =
        kind("Pod").validate(&WriteToValidate { new: &pod, old: None, subresource: Subresource::Whole });
    let bytes: usize = causes.iter().map(|it| it.field.len() + it.message.len()).sum();
    assert!(bytes < 512 << 10, "{bytes}");
}

/// Validates objects with lists of ten thousand different items. With a loop over the list for each item, this takes
/// minutes.
#[test]
fn long_lists_are_validated_in_linear_time() {
    const COUNT: usize = 10_000;
    let started = std::time::Instant::now();
    let list = |item: &dyn Fn(usize) -> Value| -> Value { (0..COUNT).map(item).collect() };
    let items = |more: Value| {
        list(&|index| {
            let mut item = json!({"name": format!("n{index}")});
            item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            item
        })
    };
    let ports = list(&|index| {
        let (high, low) = (index / 60_000 + 1, index % 60_000 + 1);
        json!({"name": format!("p{index}"), "containerPort": low, "hostPort": low, "hostIP": format!("10.0.0.{high}"),
            "protocol": "TCP"})
    });
    let mounts = list(&|index| json!({"name": format!("n{index}"), "mountPath": format!("/m{index}")}));
    let devices = list(&|index| json!({"name": format!("n{index}"), "devicePath": format!("/d{index}")}));
    let env = list(&|index| json!({"name": format!("E{index}"), "value": "x"}));
    let files = list(&|index| json!({"key": "k", "path": format!("f{index}")}));
    let container = |more: Value| container_with(more);
    let pods = [
        container(json!({"ports": ports})),
        container(json!({"volumeMounts": mounts, "volumeDevices": devices})),
        container(json!({"env": env})),
        container(json!({"resources": {"claims": items(json!({}))}})),
        pod_with(json!({"containers": items(json!({"image": "i"}))})),
        pod_with(json!({"initContainers": items(json!({"image": "i"}))})),
        pod_with(json!({"ephemeralContainers": items(json!({"image": "i"}))})),
        pod_with(json!({"volumes": items(json!({"emptyDir": {}}))})),
        pod_with(json!({"volumes": [{"name": "v", "projected": {"sources": [
            {"configMap": {"name": "m", "items": files}}]}}]})),
        pod_with(json!({"resourceClaims": items(json!({"resourceClaimName": "c"}))})),
        pod_with(json!({"schedulingGates": items(json!({}))})),
        pod_with(json!({"securityContext": {"sysctls": items(json!({"value": "1"}))}})),
        pod_with(
            json!({"topologySpreadConstraints": list(&|index| json!({"topologyKey": format!("k{index}"),
            "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}))}),
        ),
        pod_with(json!({"imagePullSecrets": items(json!({}))})),
    ];
    for mut pod in pods {
        pod["metadata"] = json!({"name": "a", "namespace": "default"});
        said(kind("Pod"), &pod, Some(&pod), Subresource::Whole);
        said(kind("Pod"), &pod, None, Subresource::Whole);
        let write = WriteToValidate { new: &pod, old: None, subresource: Subresource::Whole };
        (kind("Pod").warnings)(&write);
    }
    let service_ports = list(&|index| json!({"name": format!("p{index}"), "port": index, "nodePort": index}));
    let service = json!({"spec": {"type": "NodePort", "clusterIP": "10.96.0.1", "ports": service_ports}});
    said(kind("Service"), &service, None, Subresource::Whole);
    let usages = list(&|index| json!(format!("usage {index}")));
    let request = json!({"spec": {"signerName": "example.com/a", "usages": usages, "request": ""}});
    said(kind("CertificateSigningRequest"), &request, None, Subresource::Whole);
    let conditions = list(&|index| json!({"type": format!("t{index}"), "status": "True"}));
    said(
        kind("CertificateSigningRequest"),
        &json!({"spec": {"signerName": "example.com/a"}, "status": {"conditions": conditions}}),
        Some(&json!({"spec": {"signerName": "example.com/a"}})),
        Subresource::Status,
    );
    let taints = list(&|index| json!({"key": format!("k{index}"), "effect": "NoSchedule"}));
    said(kind("Node"), &json!({"spec": {"taints": taints}}), None, Subresource::Whole);
    let limits = list(&|index| json!({"type": format!("a/t{index}")}));
    said(kind("LimitRange"), &json!({"spec": {"limits": limits}}), None, Subresource::Whole);
    let hard: serde_json::Map<_, _> =
        (0..COUNT).map(|index| (format!("hugepages-{index}"), json!("1"))).collect();
    let scopes = list(&|_| json!("BestEffort"));
    let expressions = list(&|_| json!({"scopeName": "BestEffort", "operator": "Exists"}));
    let quota =
        json!({"spec": {"hard": hard, "scopes": scopes, "scopeSelector": {"matchExpressions": expressions}}});
    said(kind("ResourceQuota"), &quota, None, Subresource::Whole);
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}
