use expect_test::expect;

use super::*;
use crate::kinds::KindRegistry;
use crate::unstructured;

fn builtin_kinds() -> Arc<ServedKinds> {
    KindRegistry::builtin().served()
}

fn v3_of(group: &str, version: &str) -> Value {
    serde_json::from_slice(&v3_document(&builtin_kinds(), group, version).expect("a known group").bytes)
        .expect("JSON")
}

#[test]
fn a_schema_has_the_type_and_its_merge_strategy() {
    let schemas = &v3_of("apps", "v1")["components"]["schemas"];
    expect![[r##"
        {
          "description": "DaemonSetUpdateStrategy is a struct used to control the update strategy for a DaemonSet.",
          "properties": {
            "rollingUpdate": {
              "allOf": [
                {
                  "$ref": "#/components/schemas/io.k8s.api.apps.v1.RollingUpdateDaemonSet"
                }
              ],
              "description": "Rolling update config params. Present only if type = \"RollingUpdate\"."
            },
            "type": {
              "description": "Type of daemon set update. Can be \"RollingUpdate\" or \"OnDelete\". Default is RollingUpdate.\n\nPossible enum values:\n - `\"OnDelete\"`\n - `\"RollingUpdate\"`",
              "enum": [
                "OnDelete",
                "RollingUpdate"
              ],
              "type": "string"
            }
          },
          "type": "object"
        }
    "##]].assert_eq(&format!("{:#}\n", schemas["io.k8s.api.apps.v1.DaemonSetUpdateStrategy"]));
    let mut port = schemas["io.k8s.api.core.v1.Container"]["properties"]["ports"].clone();
    port["description"] = Value::Null;
    expect![[r##"
        {
          "description": null,
          "items": {
            "allOf": [
              {
                "$ref": "#/components/schemas/io.k8s.api.core.v1.ContainerPort"
              }
            ],
            "default": {}
          },
          "type": "array",
          "x-kubernetes-list-map-keys": [
            "containerPort",
            "protocol"
          ],
          "x-kubernetes-list-type": "map",
          "x-kubernetes-patch-merge-key": "containerPort",
          "x-kubernetes-patch-strategy": "merge"
        }
    "##]]
    .assert_eq(&format!("{port:#}\n"));
    let v2: Value =
        serde_json::from_slice(&v2_document(&builtin_kinds(), JSON_MEDIA_TYPE).bytes).expect("JSON");
    let set = &v2["definitions"]["io.k8s.api.apps.v1.DaemonSet"];
    expect![[r##"
        {
          "description": "DaemonSet represents the configuration of a daemon set.",
          "properties": {
            "apiVersion": {
              "description": "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
              "type": "string"
            },
            "kind": {
              "description": "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
              "type": "string"
            },
            "metadata": {
              "$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
              "description": "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
            },
            "spec": {
              "$ref": "#/definitions/io.k8s.api.apps.v1.DaemonSetSpec",
              "description": "The desired behavior of this daemon set. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status"
            },
            "status": {
              "$ref": "#/definitions/io.k8s.api.apps.v1.DaemonSetStatus",
              "description": "The current status of this daemon set. This data may be out of date by some window of time. Populated by the system. Read-only. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status"
            }
          },
          "type": "object",
          "x-kubernetes-group-version-kind": [
            {
              "group": "apps",
              "kind": "DaemonSet",
              "version": "v1"
            }
          ]
        }
    "##]].assert_eq(&format!("{set:#}\n"));
}

#[test]
fn every_reference_leads_somewhere() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|it| references(it, found));
            }
            Value::Array(items) => items.iter().for_each(|it| references(it, found)),
            _ => {}
        }
    }
    let (kinds, v3) = (builtin_kinds(), v3_documents(&builtin_kinds()));
    let documents = v3.values().cloned().chain([v2_document(&kinds, JSON_MEDIA_TYPE)]);
    for document in documents {
        let value: Value = serde_json::from_slice(&document.bytes).expect("JSON");
        let mut found = Vec::new();
        references(&value, &mut found);
        assert!(!found.is_empty());
        let dead: Vec<_> = found.iter().filter(|it| value.pointer(&it[1..]).is_none()).collect();
        assert!(dead.is_empty(), "{dead:?}");
    }
}

#[test]
fn the_operations_of_a_kind() {
    let document = v3_of("apps", "v1");
    // Readers that write a document again leave an empty list away, and find that it is not the same.
    assert!(!document["paths"].to_string().contains("[]"));
    let lines = document["paths"].as_object().expect("paths").iter().flat_map(|(path, item)| {
        let methods = item.as_object().expect("methods").iter();
        methods.filter(|it| it.1.is_object()).map(move |(method, it)| {
            let names = unstructured::list_at(it, "parameters").iter();
            let names: Vec<_> = names.filter_map(|it| it["name"].as_str()).collect();
            let id = it["operationId"].as_str().unwrap_or_default();
            format!("{method} {path} {id}({})\n", names.join(" "))
        })
    });
    expect![[r#"
        get /apis/apps/v1/controllerrevisions listAppsV1ControllerRevisionForAllNamespaces(allowWatchBookmarks continue fieldSelector labelSelector limit resourceVersion resourceVersionMatch sendInitialEvents timeoutSeconds watch)
        get /apis/apps/v1/daemonsets listAppsV1DaemonSetForAllNamespaces(allowWatchBookmarks continue fieldSelector labelSelector limit resourceVersion resourceVersionMatch sendInitialEvents timeoutSeconds watch)
        delete /apis/apps/v1/namespaces/{namespace}/controllerrevisions deleteAppsV1CollectionNamespacedControllerRevision(dryRun gracePeriodSeconds orphanDependents propagationPolicy)
        get /apis/apps/v1/namespaces/{namespace}/controllerrevisions listAppsV1NamespacedControllerRevision(allowWatchBookmarks continue fieldSelector labelSelector limit resourceVersion resourceVersionMatch sendInitialEvents timeoutSeconds watch)
        post /apis/apps/v1/namespaces/{namespace}/controllerrevisions createAppsV1NamespacedControllerRevision(dryRun fieldManager fieldValidation)
        delete /apis/apps/v1/namespaces/{namespace}/controllerrevisions/{name} deleteAppsV1NamespacedControllerRevision(dryRun gracePeriodSeconds orphanDependents propagationPolicy)
        get /apis/apps/v1/namespaces/{namespace}/controllerrevisions/{name} readAppsV1NamespacedControllerRevision()
        patch /apis/apps/v1/namespaces/{namespace}/controllerrevisions/{name} patchAppsV1NamespacedControllerRevision(dryRun fieldManager fieldValidation force)
        put /apis/apps/v1/namespaces/{namespace}/controllerrevisions/{name} replaceAppsV1NamespacedControllerRevision(dryRun fieldManager fieldValidation)
        delete /apis/apps/v1/namespaces/{namespace}/daemonsets deleteAppsV1CollectionNamespacedDaemonSet(dryRun gracePeriodSeconds orphanDependents propagationPolicy)
        get /apis/apps/v1/namespaces/{namespace}/daemonsets listAppsV1NamespacedDaemonSet(allowWatchBookmarks continue fieldSelector labelSelector limit resourceVersion resourceVersionMatch sendInitialEvents timeoutSeconds watch)
        post /apis/apps/v1/namespaces/{namespace}/daemonsets createAppsV1NamespacedDaemonSet(dryRun fieldManager fieldValidation)
        delete /apis/apps/v1/namespaces/{namespace}/daemonsets/{name} deleteAppsV1NamespacedDaemonSet(dryRun gracePeriodSeconds orphanDependents propagationPolicy)
        get /apis/apps/v1/namespaces/{namespace}/daemonsets/{name} readAppsV1NamespacedDaemonSet()
        patch /apis/apps/v1/namespaces/{namespace}/daemonsets/{name} patchAppsV1NamespacedDaemonSet(dryRun fieldManager fieldValidation force)
        put /apis/apps/v1/namespaces/{namespace}/daemonsets/{name} replaceAppsV1NamespacedDaemonSet(dryRun fieldManager fieldValidation)
        get /apis/apps/v1/namespaces/{namespace}/daemonsets/{name}/status readAppsV1NamespacedDaemonSetStatus()
        patch /apis/apps/v1/namespaces/{namespace}/daemonsets/{name}/status patchAppsV1NamespacedDaemonSetStatus(dryRun fieldManager fieldValidation force)
        put /apis/apps/v1/namespaces/{namespace}/daemonsets/{name}/status replaceAppsV1NamespacedDaemonSetStatus(dryRun fieldManager fieldValidation)
    "#]].assert_eq(&lines.collect::<String>());
    let patch = "/paths/~1apis~1apps~1v1~1namespaces~1{namespace}~1daemonsets~1{name}/patch";
    expect![[r##"
        {
          "operationId": "patchAppsV1NamespacedDaemonSet",
          "parameters": [
            {
              "in": "query",
              "name": "dryRun",
              "schema": {
                "type": "string",
                "uniqueItems": true
              }
            },
            {
              "in": "query",
              "name": "fieldManager",
              "schema": {
                "type": "string",
                "uniqueItems": true
              }
            },
            {
              "in": "query",
              "name": "fieldValidation",
              "schema": {
                "type": "string",
                "uniqueItems": true
              }
            },
            {
              "in": "query",
              "name": "force",
              "schema": {
                "type": "boolean",
                "uniqueItems": true
              }
            }
          ],
          "requestBody": {
            "content": {
              "application/apply-patch+yaml": {
                "schema": {
                  "type": "object"
                }
              },
              "application/json-patch+json": {
                "schema": {
                  "type": "object"
                }
              },
              "application/merge-patch+json": {
                "schema": {
                  "type": "object"
                }
              },
              "application/strategic-merge-patch+json": {
                "schema": {
                  "type": "object"
                }
              }
            },
            "required": true
          },
          "responses": {
            "200": {
              "content": {
                "application/json": {
                  "schema": {
                    "$ref": "#/components/schemas/io.k8s.api.apps.v1.DaemonSet"
                  }
                }
              },
              "description": "OK"
            },
            "401": {
              "description": "Unauthorized"
            }
          },
          "tags": [
            "apps_v1"
          ],
          "x-kubernetes-action": "patch",
          "x-kubernetes-group-version-kind": {
            "group": "apps",
            "kind": "DaemonSet",
            "version": "v1"
          }
        }
    "##]]
    .assert_eq(&format!("{:#}\n", document.pointer(patch).expect("a path")));
}
