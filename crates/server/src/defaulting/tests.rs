use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn check(default: fn(&mut Value), mut object: Value, golden: &Expect) {
    default(&mut object);
    let once = object.clone();
    default(&mut object);
    assert_eq!(object, once, "defaults are set once");
    golden.assert_eq(&serde_json::to_string_pretty(&object).unwrap());
}

#[test]
fn a_daemonset_gets_upstreams_defaults() {
    check(
        set_daemonset_defaults,
        json!({"spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "hostNetwork": true,
                    "serviceAccount": "old",
                    "containers": [{
                        "name": "c",
                        "image": "registry:5000/c",
                        "ports": [{"containerPort": 80}],
                        "resources": {"limits": {"cpu": "1u"}},
                        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                        "livenessProbe": {"httpGet": {"port": 80}},
                        "readinessProbe": {"grpc": {"port": 80}, "periodSeconds": 5},
                        "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
                    }],
                    "volumes": [
                        {"name": "logs", "hostPath": {"path": "/var/log"}},
                        {"name": "tmp"},
                        {"name": "config", "configMap": {"name": "c"}},
                        {"name": "access", "projected": {"sources": [
                            {"serviceAccountToken": {"path": "token"}},
                            {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                        ]}},
                    ],
                },
            },
        }}),
        &expect![[r#"
            {
              "metadata": {
                "annotations": {
                  "deprecated.daemonset.template.generation": "0"
                }
              },
              "spec": {
                "revisionHistoryLimit": 10,
                "selector": {
                  "matchLabels": {
                    "a": "b"
                  }
                },
                "template": {
                  "metadata": {
                    "labels": {
                      "a": "b"
                    }
                  },
                  "spec": {
                    "containers": [
                      {
                        "env": [
                          {
                            "name": "NODE",
                            "valueFrom": {
                              "fieldRef": {
                                "apiVersion": "v1",
                                "fieldPath": "spec.nodeName"
                              }
                            }
                          }
                        ],
                        "image": "registry:5000/c",
                        "imagePullPolicy": "Always",
                        "lifecycle": {
                          "preStop": {
                            "httpGet": {
                              "path": "/",
                              "port": 80,
                              "scheme": "HTTP"
                            }
                          }
                        },
                        "livenessProbe": {
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
                        "name": "c",
                        "ports": [
                          {
                            "containerPort": 80,
                            "protocol": "TCP"
                          }
                        ],
                        "readinessProbe": {
                          "failureThreshold": 3,
                          "grpc": {
                            "port": 80,
                            "service": ""
                          },
                          "periodSeconds": 5,
                          "successThreshold": 1,
                          "timeoutSeconds": 1
                        },
                        "resources": {
                          "limits": {
                            "cpu": "1m"
                          }
                        },
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File"
                      }
                    ],
                    "dnsPolicy": "ClusterFirst",
                    "hostNetwork": true,
                    "restartPolicy": "Always",
                    "schedulerName": "default-scheduler",
                    "securityContext": {},
                    "serviceAccount": "old",
                    "serviceAccountName": "old",
                    "terminationGracePeriodSeconds": 30,
                    "volumes": [
                      {
                        "hostPath": {
                          "path": "/var/log",
                          "type": ""
                        },
                        "name": "logs"
                      },
                      {
                        "emptyDir": {},
                        "name": "tmp"
                      },
                      {
                        "configMap": {
                          "defaultMode": 420,
                          "name": "c"
                        },
                        "name": "config"
                      },
                      {
                        "name": "access",
                        "projected": {
                          "defaultMode": 420,
                          "sources": [
                            {
                              "serviceAccountToken": {
                                "expirationSeconds": 3600,
                                "path": "token"
                              }
                            },
                            {
                              "downwardAPI": {
                                "items": [
                                  {
                                    "fieldRef": {
                                      "apiVersion": "v1",
                                      "fieldPath": "metadata.name"
                                    },
                                    "path": "n"
                                  }
                                ]
                              }
                            }
                          ]
                        }
                      }
                    ]
                  }
                },
                "updateStrategy": {
                  "rollingUpdate": {
                    "maxSurge": 0,
                    "maxUnavailable": 1
                  },
                  "type": "RollingUpdate"
                }
              }
            }"#]],
    );
}

#[test]
fn only_pods_get_newer_defaults() {
    check(
        set_pod_defaults,
        json!({"spec": {
            "hostNetwork": true,
            "containers": [{
                "name": "c",
                "image": "c:1",
                "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
            }],
            "resources": {"limits": {"cpu": "2"}},
        }}),
        &expect![[r#"
            {
              "spec": {
                "containers": [
                  {
                    "image": "c:1",
                    "imagePullPolicy": "IfNotPresent",
                    "name": "c",
                    "ports": [
                      {
                        "containerPort": 80,
                        "hostPort": 80,
                        "protocol": "TCP"
                      }
                    ],
                    "resources": {
                      "limits": {
                        "cpu": "1",
                        "memory": "1Gi"
                      },
                      "requests": {
                        "cpu": "500m",
                        "memory": "1Gi"
                      }
                    },
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File"
                  }
                ],
                "dnsPolicy": "ClusterFirst",
                "enableServiceLinks": true,
                "hostNetwork": true,
                "resources": {
                  "limits": {
                    "cpu": "2"
                  },
                  "requests": {
                    "cpu": "500m",
                    "memory": "1Gi"
                  }
                },
                "restartPolicy": "Always",
                "schedulerName": "default-scheduler",
                "securityContext": {},
                "terminationGracePeriodSeconds": 30
              }
            }"#]],
    );
}

#[test]
fn the_grace_of_a_pod_is_never_negative_and_that_of_a_template_is_left_alone() {
    let grace = |change: fn(&mut Value), mut object: Value, at: &str| {
        change(&mut object);
        object.pointer(at).cloned()
    };
    let spec = json!({"terminationGracePeriodSeconds": -5});
    let at = "/spec/terminationGracePeriodSeconds";
    assert_eq!(grace(set_pod_defaults, json!({"spec": spec}), at), Some(json!(1)));
    let template = json!({"template": {"spec": spec}});
    assert_eq!(grace(set_pod_template_defaults, template, &format!("/template{at}")), Some(json!(-5)));
}

#[test]
fn a_service_and_the_small_kinds() {
    check(
        set_service_defaults,
        json!({"spec": {"ports": [{"port": 80}, {"port": 81, "targetPort": "http"}]}}),
        &expect![[r#"
            {
              "spec": {
                "internalTrafficPolicy": "Cluster",
                "ports": [
                  {
                    "port": 80,
                    "protocol": "TCP",
                    "targetPort": 80
                  },
                  {
                    "port": 81,
                    "protocol": "TCP",
                    "targetPort": "http"
                  }
                ],
                "sessionAffinity": "None",
                "type": "ClusterIP"
              }
            }"#]],
    );
    check(
        set_service_defaults,
        json!({"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP", "ports": []}}),
        &expect![[r#"
            {
              "spec": {
                "allocateLoadBalancerNodePorts": true,
                "externalTrafficPolicy": "Cluster",
                "internalTrafficPolicy": "Cluster",
                "ports": [],
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {
                  "clientIP": {
                    "timeoutSeconds": 10800
                  }
                },
                "type": "LoadBalancer"
              }
            }"#]],
    );
    check(
        set_secret_defaults,
        json!({"stringData": {"a": "b"}}),
        &expect![[r#"
        {
          "data": {
            "a": "Yg=="
          },
          "type": "Opaque"
        }"#]],
    );
    check(
        set_namespace_defaults,
        json!({"metadata": {"name": "n"}}),
        &expect![[r#"
        {
          "metadata": {
            "labels": {
              "kubernetes.io/metadata.name": "n"
            },
            "name": "n"
          }
        }"#]],
    );
    check(
        set_node_defaults,
        json!({"status": {"capacity": {"cpu": "1.0001"}}}),
        &expect![[r#"
        {
          "status": {
            "allocatable": {
              "cpu": "1001m"
            },
            "capacity": {
              "cpu": "1001m"
            }
          }
        }"#]],
    );
    check(
        set_limit_range_defaults,
        json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1", "memory": "1Mi"}}]}}),
        &expect![[r#"
            {
              "spec": {
                "limits": [
                  {
                    "default": {
                      "cpu": "2"
                    },
                    "defaultRequest": {
                      "cpu": "2",
                      "memory": "1Mi"
                    },
                    "max": {
                      "cpu": "2"
                    },
                    "min": {
                      "cpu": "1",
                      "memory": "1Mi"
                    },
                    "type": "Container"
                  }
                ]
              }
            }"#]],
    );
    check(
        set_role_binding_defaults,
        json!({"subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}], "roleRef": {}}),
        &expect![[r#"
            {
              "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io"
              },
              "subjects": [
                {
                  "apiGroup": "rbac.authorization.k8s.io",
                  "kind": "User",
                  "name": "u"
                },
                {
                  "kind": "ServiceAccount",
                  "name": "s"
                }
              ]
            }"#]],
    );
}
