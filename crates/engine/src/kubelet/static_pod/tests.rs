use alloc::format;
use alloc::string::String;

use expect_test::{Expect, expect};
use muster_api::qos::QosClass;

use super::*;

fn manifest() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "kube-system", "uid": "mine", "labels": {"app": "web"}},
        "spec": {
            "hostNetwork": true,
            "containers": [{
                "name": "main", "image": "registry:5000/web",
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1Mi"}},
                "readinessProbe": {"httpGet": {"port": 80}},
            }],
            "volumes": [{"name": "logs", "hostPath": {"path": "/var/log"}}],
        },
    })
}

#[test]
fn a_manifest_becomes_a_static_pod() {
    let pod = parse_manifest(manifest(), "Node-1", "0123", "2026-01-01T00:00:00Z").unwrap();
    expect![[r#"
        {
          "apiVersion": "v1",
          "kind": "Pod",
          "metadata": {
            "annotations": {
              "kubernetes.io/config.hash": "0123",
              "kubernetes.io/config.seen": "2026-01-01T00:00:00Z",
              "kubernetes.io/config.source": "file"
            },
            "labels": {
              "app": "web"
            },
            "name": "web-node-1",
            "namespace": "kube-system",
            "uid": "0123"
          },
          "spec": {
            "containers": [
              {
                "image": "registry:5000/web",
                "imagePullPolicy": "Always",
                "name": "main",
                "ports": [
                  {
                    "containerPort": 80,
                    "hostPort": 80,
                    "protocol": "TCP"
                  }
                ],
                "readinessProbe": {
                  "failureThreshold": 3,
                  "httpGet": {
                    "path": "/",
                    "port": 80,
                    "scheme": "HTTP"
                  },
                  "periodSeconds": 10,
                  "successThreshold": 1,
                  "timeoutSeconds": 1
                },
                "resources": {
                  "limits": {
                    "cpu": "1"
                  },
                  "requests": {
                    "cpu": "1",
                    "memory": "1Mi"
                  }
                },
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File"
              }
            ],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": true,
            "hostNetwork": true,
            "nodeName": "Node-1",
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "tolerations": [
              {
                "effect": "NoExecute",
                "operator": "Exists"
              }
            ],
            "volumes": [
              {
                "hostPath": {
                  "path": "/var/log",
                  "type": ""
                },
                "name": "logs"
              }
            ]
          },
          "status": {
            "phase": "Pending"
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&pod).unwrap());
    let mirror = mirror_pod(&pod, "Node-1", "node-uid");
    expect![[r#"
        {
          "annotations": {
            "kubernetes.io/config.hash": "0123",
            "kubernetes.io/config.mirror": "0123",
            "kubernetes.io/config.seen": "2026-01-01T00:00:00Z",
            "kubernetes.io/config.source": "file"
          },
          "labels": {
            "app": "web"
          },
          "name": "web-node-1",
          "namespace": "kube-system",
          "ownerReferences": [
            {
              "apiVersion": "v1",
              "controller": true,
              "kind": "Node",
              "name": "Node-1",
              "uid": "node-uid"
            }
          ]
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&mirror["metadata"]).unwrap());
}

/// Upstream: the kubelet decodes manifests with the defaults of the API.
#[test]
fn a_static_pod_gets_the_defaults_of_the_api_also_for_null_empty_and_zero() {
    let mut manifest = manifest();
    manifest["metadata"]["namespace"] = "".into();
    let spec = &mut manifest["spec"];
    for field in ["restartPolicy", "dnsPolicy", "schedulerName"] {
        spec[field] = "".into();
    }
    for field in ["securityContext", "tolerations", "terminationGracePeriodSeconds"] {
        spec[field] = Value::Null;
    }
    spec["volumes"] = json!([
        {"name": "scratch"},
        {"name": "info", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]);
    let container = &mut spec["containers"][0];
    container["imagePullPolicy"] = "".into();
    container["terminationMessagePath"] = "".into();
    container["env"] = json!([{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]);
    container["ports"] = json!([{"containerPort": 80, "hostPort": 0, "protocol": ""}]);
    container["livenessProbe"] = json!({"grpc": {"port": 80}, "timeoutSeconds": 0});
    container["lifecycle"] = json!({"preStop": {"httpGet": {"port": 80, "path": ""}}});
    let pod = parse_manifest(manifest, "n1", "0123", "").unwrap();
    assert_eq!(pod["metadata"]["namespace"], "default");
    let spec = &pod["spec"];
    assert_eq!(
        ["restartPolicy", "dnsPolicy", "schedulerName"].map(|it| spec[it].as_str().unwrap()),
        ["Always", "ClusterFirst", "default-scheduler"]
    );
    assert_eq!(spec["securityContext"], json!({}));
    assert_eq!(spec["terminationGracePeriodSeconds"], 30);
    assert_eq!(spec["tolerations"], json!([{"operator": "Exists", "effect": "NoExecute"}]));
    let item = json!({"path": "n", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}});
    assert_eq!(
        spec["volumes"],
        json!([
            {"name": "scratch", "emptyDir": {}},
            {"name": "info", "downwardAPI": {"defaultMode": 0o644, "items": [item]}},
        ])
    );
    let container = &spec["containers"][0];
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"], "v1");
    assert_eq!(container["ports"], json!([{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]));
    assert_eq!(container["livenessProbe"]["grpc"], json!({"port": 80, "service": ""}));
    assert_eq!(container["livenessProbe"]["timeoutSeconds"], 1);
    assert_eq!(
        container["lifecycle"]["preStop"]["httpGet"],
        json!({"port": 80, "path": "/", "scheme": "HTTP"})
    );
}

/// Upstream: the kubelet decodes manifests with `SetDefaults_Pod`.
#[test]
fn a_static_pod_with_limits_at_pod_level_only_is_guaranteed() {
    let mut manifest = manifest();
    manifest["spec"]["containers"][0]["resources"] = json!({});
    manifest["spec"]["resources"] = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    let pod = parse_manifest(manifest, "n1", "0123", "").unwrap();
    assert_eq!(pod["spec"]["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(QosClass::of_pod(&pod), QosClass::Guaranteed);
}

#[test]
fn invalid_manifests_are_refused() {
    let check = |change: fn(&mut Value), expected: Expect| {
        let mut manifest = manifest();
        change(&mut manifest);
        let report = match parse_manifest(manifest, "n1", "0123", "") {
            Ok(pod) => format!("is {}", pod["metadata"]["name"]),
            Err(why) => why,
        };
        expected.assert_eq(&report);
    };
    check(|it| *it = json!([]), expect!["not an object"]);
    check(|it| it["kind"] = "Service".into(), expect!["not a pod: apiVersion must be v1 and kind Pod"]);
    check(|it| it["metadata"] = json!({}), expect!["metadata.name: required"]);
    check(
        |it| it["metadata"]["name"] = "../etc".into(),
        expect![[r#"metadata.name: "../etc-n1" is not a valid pod name"#]],
    );
    check(
        |it| it["metadata"]["namespace"] = "a/b".into(),
        expect![[r#"metadata.namespace: "a/b" is not a valid namespace name"#]],
    );
    check(|it| it["spec"] = Value::Null, expect!["spec: required"]);
    check(|it| it["spec"]["containers"] = json!([]), expect!["spec.containers: required"]);
    check(
        |it| it["spec"]["containers"][0]["name"] = "..".into(),
        expect![[r#"spec.containers[0].name: ".." is not a valid container name"#]],
    );
    check(
        |it| it["spec"]["initContainers"] = it["spec"]["containers"].clone(),
        expect![[r#"spec.containers[0].name: duplicate name "main""#]],
    );
    check(
        |it| it["spec"]["containers"][0]["image"] = Value::Null,
        expect!["spec.containers[0].image: required"],
    );
    check(
        |it| {
            it["spec"]["containers"][0]["env"] =
                json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s"}}}])
        },
        expect!["spec.containers[0].env: static pods may not reference configmaps or secrets"],
    );
    check(
        |it| it["spec"]["serviceAccountName"] = "root".into(),
        expect!["spec.serviceAccountName: static pods may not reference serviceaccountname"],
    );
    check(
        |it| it["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "m"}}]),
        expect!["spec.volumes[0].configMap: static pods may not reference configmaps"],
    );
    check(
        |it| it["spec"]["ephemeralContainers"] = json!([{}]),
        expect!["spec.ephemeralContainers: not allowed in a static pod"],
    );
}

#[test]
fn a_mirror_pod_is_kept_while_it_matches() {
    let pod = parse_manifest(manifest(), "n1", "0123", "").unwrap();
    let other = parse_manifest(manifest(), "n1", "4567", "").unwrap();
    let of = mirror_pod(&pod, "n1", "u1");
    let mut deleted = of.clone();
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let report: String = [
        ("unchanged", decide_mirror(&of, Some(&pod), "u1")),
        ("manifest changed", decide_mirror(&of, Some(&other), "u1")),
        ("manifest removed", decide_mirror(&of, None, "u1")),
        ("another Node", decide_mirror(&of, Some(&pod), "u2")),
        ("mirror pod deleted", decide_mirror(&deleted, Some(&pod), "u1")),
    ]
    .iter()
    .map(|(what, decision)| format!("{what}: {decision:?}\n"))
    .collect();
    expect![[r#"
        unchanged: Keep
        manifest changed: Delete
        manifest removed: Delete
        another Node: Delete
        mirror pod deleted: Delete
    "#]]
    .assert_eq(&report);
}
