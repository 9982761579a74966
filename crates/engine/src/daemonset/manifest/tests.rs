use expect_test::{Expect, expect};

use super::*;

const OWNER: Owner<'static> = Owner { namespace: "ops", name: "web", uid: "u-1" };

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]},
    })
}

fn pod(template: &Value, binding: Binding) -> Value {
    daemon_pod(OWNER, template, "n1", "abc", None, binding)
}

fn pod_of_spec(spec: Value) -> Value {
    pod(&json!({"metadata": {"labels": {"app": "web"}}, "spec": spec}), Binding::Scheduler)
}

fn tolerations(spec: Value) -> String {
    let pod = pod_of_spec(spec);
    let lines: Vec<String> =
        pod["spec"]["tolerations"].as_array().unwrap().iter().map(go_json::to_string).collect();
    lines.join("\n")
}

/// The affinity of a template, and the affinity of the pod built from it.
fn check_affinity(affinity: Value, want: Expect) {
    want.assert_eq(&go_json::to_string(&pod_of_spec(json!({"affinity": affinity}))["spec"]["affinity"]));
}

fn required(terms: Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

#[test]
fn a_complete_daemon_pod() {
    expect![[r#"
        {
          "apiVersion": "v1",
          "kind": "Pod",
          "metadata": {
            "generateName": "web-",
            "labels": {
              "app": "web",
              "controller-revision-hash": "abc"
            },
            "namespace": "ops",
            "ownerReferences": [
              {
                "apiVersion": "apps/v1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "DaemonSet",
                "name": "web",
                "uid": "u-1"
              }
            ]
          },
          "spec": {
            "affinity": {
              "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                  "nodeSelectorTerms": [
                    {
                      "matchFields": [
                        {
                          "key": "metadata.name",
                          "operator": "In",
                          "values": [
                            "n1"
                          ]
                        }
                      ]
                    }
                  ]
                }
              }
            },
            "containers": [
              {
                "image": "web:1",
                "name": "web"
              }
            ],
            "tolerations": [
              {
                "effect": "NoExecute",
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists"
              },
              {
                "effect": "NoExecute",
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists"
              },
              {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/disk-pressure",
                "operator": "Exists"
              },
              {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/memory-pressure",
                "operator": "Exists"
              },
              {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/pid-pressure",
                "operator": "Exists"
              },
              {
                "effect": "NoSchedule",
                "key": "node.kubernetes.io/unschedulable",
                "operator": "Exists"
              }
            ]
          }
        }"#]]
    .assert_eq(&pretty(&pod(&template(), Binding::Scheduler)));
}

#[test]
fn a_pod_bound_by_us_keeps_its_affinity() {
    let mut template = template();
    let wanted = required(json!([{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]));
    template["spec"]["affinity"] = wanted.clone();
    let pod = pod(&template, Binding::Direct);
    assert_eq!(pod["spec"]["nodeName"], "n1");
    assert_eq!(pod["spec"]["schedulerName"], "kubernetes.io/daemonset-controller");
    assert_eq!(pod["spec"]["affinity"], wanted);
    assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 6);
}

#[test]
fn a_pod_bound_by_the_scheduler_has_no_node_name() {
    let pod = pod(&template(), Binding::Scheduler);
    assert_eq!(pod["spec"].get("nodeName"), None);
    assert_eq!(pod["spec"].get("schedulerName"), None);
}

/// Upstream: TestCreatePodTemplate.
#[test]
fn the_generation_label_comes_with_the_generation_and_the_hash_label_with_a_hash() {
    let labels = |generation, hash| {
        let pod = daemon_pod(OWNER, &json!({}), "n1", hash, generation, Binding::Scheduler);
        go_json::to_string(&pod["metadata"]["labels"])
    };
    assert_eq!(labels(Some(1), ""), r#"{"pod-template-generation":"1"}"#);
    assert_eq!(
        labels(Some(2), "3242341807"),
        r#"{"controller-revision-hash":"3242341807","pod-template-generation":"2"}"#
    );
    assert_eq!(labels(None, "x"), r#"{"controller-revision-hash":"x"}"#);
    assert_eq!(labels(None, ""), "{}");
}

#[test]
fn our_labels_win_over_the_template_s() {
    let template = json!({"metadata": {"labels": {REVISION_HASH_LABEL: "old", TEMPLATE_GENERATION_LABEL: "1", "a": "b"}}});
    let pod = daemon_pod(OWNER, &template, "n1", "new", Some(7), Binding::Scheduler);
    expect![[r#"{"a":"b","controller-revision-hash":"new","pod-template-generation":"7"}"#]]
        .assert_eq(&go_json::to_string(&pod["metadata"]["labels"]));
}

#[test]
fn of_the_template_s_metadata_only_labels_annotations_and_finalizers_reach_the_pod() {
    let template = json!({"metadata": {
        "name": "x", "generateName": "y", "namespace": "z", "uid": "u", "creationTimestamp": null,
        "ownerReferences": [{"uid": "other"}],
        "labels": {"app": "web"}, "annotations": {"a": "1"}, "finalizers": ["f/f"],
    }});
    let mut pod = pod(&template, Binding::Scheduler);
    pod["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    expect![[r#"{"annotations":{"a":"1"},"finalizers":["f/f"],"generateName":"web-","labels":{"app":"web","controller-revision-hash":"abc"},"namespace":"ops"}"#]]
        .assert_eq(&go_json::to_string(&pod["metadata"]));
}

#[test]
fn unknown_fields_survive_at_every_depth() {
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "flightMode": {"on": true},
            "containers": [{"name": "web", "image": "web:1", "warp": 9}],
            "tolerations": [{"key": "gpu", "operator": "Exists", "until": "dawn"}],
            "affinity": {"moonAffinity": [1], "nodeAffinity": {"soon": 2,
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [], "mode": "any"}}},
        },
    });
    let spec = &pod(&template, Binding::Scheduler)["spec"];
    assert_eq!(spec["flightMode"], json!({"on": true}));
    assert_eq!(spec["containers"], template["spec"]["containers"]);
    assert_eq!(spec["tolerations"][0], template["spec"]["tolerations"][0]);
    assert_eq!(spec["affinity"]["moonAffinity"], json!([1]));
    assert_eq!(spec["affinity"]["nodeAffinity"]["soon"], 2);
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(required["mode"], "any");
    assert_eq!(required["nodeSelectorTerms"].as_array().unwrap().len(), 1);
    assert!(revision_data(&template).contains(r#""warp":9"#));
}

#[test]
fn the_template_is_not_modified() {
    let before = template();
    let after = before.clone();
    let _ = pod(&after, Binding::Scheduler);
    let _ = pod(&after, Binding::Direct);
    let _ = controller_revision(OWNER, &Value::Null, &after, "abc", 1);
    let _ = revision_data(&after);
    assert_eq!(before, after);
}

#[test]
fn everything_but_tolerations_and_affinity_equals_the_template() {
    let template = json!({"spec": {
        "hostNetwork": true, "nodeName": "n9", "nodeSelector": {"zone": "a"}, "priority": 0,
        "containers": [], "volumes": [{"name": "v", "emptyDir": {}}], "schedulerName": "mine",
    }});
    let mut made = pod(&template, Binding::Scheduler);
    let spec = made["spec"].as_object_mut().unwrap();
    spec.remove("tolerations");
    spec.remove("affinity");
    assert_eq!(made["spec"], template["spec"]);
}

#[test]
fn odd_input_gives_a_pod_all_the_same() {
    for odd in [json!(null), json!("x"), json!([]), json!({"metadata": 1, "spec": []})] {
        let pod = pod(&odd, Binding::Scheduler);
        assert_eq!(pod["kind"], "Pod");
        assert_eq!(pod["spec"]["tolerations"].as_array().unwrap().len(), 6);
        let _ =
            (revision_data(&odd), revision_hash(&odd, None), controller_revision(OWNER, &odd, &odd, "", 0));
    }
    let spec = json!({"tolerations": "all", "affinity": [1], "hostNetwork": "yes"});
    assert_eq!(pod_of_spec(spec)["spec"]["tolerations"].as_array().unwrap().len(), 6);
    assert_eq!(tolerations(json!({"tolerations": [null, 7]})).lines().count(), 8);
}

#[test]
fn pods_on_the_host_network_tolerate_its_absence() {
    let keys = |host| automatic_tolerations(host).map(|it| it.key).collect::<Vec<_>>();
    assert_eq!(keys(false).len(), 6);
    assert_eq!(keys(true)[..6], keys(false));
    assert_eq!(keys(true)[6], "node.kubernetes.io/network-unavailable");
    let lines = tolerations(json!({"hostNetwork": true}));
    expect![[
        r#"{"effect":"NoSchedule","key":"node.kubernetes.io/network-unavailable","operator":"Exists"}"#
    ]]
    .assert_eq(lines.lines().last().unwrap());
    assert!(!tolerations(json!({"hostNetwork": false})).contains("network-unavailable"));
}

#[test]
fn own_tolerations_come_first_and_the_same_one_is_replaced_in_place() {
    let lines = tolerations(json!({"tolerations": [
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists", "effect": "NoSchedule", "value": ""},
    ]}));
    expect![[r#"
        {"effect":"NoExecute","key":"node.kubernetes.io/unreachable","operator":"Exists"}
        {"effect":"NoSchedule","key":"gpu","operator":"Equal","value":"yes"}
        {"effect":"NoSchedule","key":"node.kubernetes.io/pid-pressure","operator":"Exists"}
        {"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists"}
        {"effect":"NoSchedule","key":"node.kubernetes.io/disk-pressure","operator":"Exists"}
        {"effect":"NoSchedule","key":"node.kubernetes.io/memory-pressure","operator":"Exists"}
        {"effect":"NoSchedule","key":"node.kubernetes.io/unschedulable","operator":"Exists"}"#]]
    .assert_eq(&lines);
}

#[test]
fn a_toleration_with_another_effect_operator_or_value_is_another_one() {
    let key = "node.kubernetes.io/not-ready";
    for other in [
        json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}),
        json!({"key": key, "operator": "Exists"}),
        json!({"key": key, "effect": "NoExecute"}),
        json!({"key": key, "operator": "Equal", "effect": "NoExecute"}),
        json!({"key": key, "operator": "Exists", "effect": "NoExecute", "value": "x"}),
        json!({"operator": "Exists"}),
    ] {
        let lines = tolerations(json!({"tolerations": [other]}));
        assert_eq!(lines.lines().next().unwrap(), go_json::to_string(&other));
        assert_eq!(lines.lines().count(), 7, "{other}");
    }
}

#[test]
fn making_a_pod_of_a_pod_s_own_spec_changes_nothing() {
    let once = pod(&template(), Binding::Scheduler);
    assert_eq!(pod_of_spec(once["spec"].clone())["spec"], once["spec"]);
}

/// Upstream: the eight cases of TestReplaceDaemonSetPodNodeNameNodeAffinity.
#[test]
fn the_node_name_replaces_required_node_affinity() {
    let only_the_node = r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}}}"#;
    let field = |key: &str, operator: &str, values: &[&str]| json!({"matchFields": [{"key": key, "operator": operator, "values": values}]});
    let hostname =
        json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]});
    for affinity in [
        Value::Null,
        required(json!([hostname])),
        required(json!([field("metadata.name", "In", &["n1", "n2"])])),
        json!({}),
        required(json!([hostname, field("metadata.name", "In", &["n2"])])),
        required(json!([field("metadata.name", "NotIn", &["n2"])])),
        required(json!([field("metadata.foo", "In", &["bar"])])),
    ] {
        let pod = pod_of_spec(json!({"affinity": affinity}));
        assert_eq!(go_json::to_string(&pod["spec"]["affinity"]), only_the_node, "{affinity}");
    }
    check_affinity(
        json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": hostname}]}}),
        expect![[
            r#"{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"preference":{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":["n1"]}]},"weight":1}],"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}}}"#
        ]],
    );
}

#[test]
fn affinity_to_other_pods_is_kept() {
    check_affinity(
        json!({"podAffinity": {"a": 1}, "podAntiAffinity": {"b": 2}, "nodeAffinity": null}),
        expect![[
            r#"{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}},"podAffinity":{"a":1},"podAntiAffinity":{"b":2}}"#
        ]],
    );
}

#[test]
fn a_whole_revision() {
    let annotations = json!({"kubernetes.io/change-cause": "because"});
    expect![[r#"
        {
          "apiVersion": "apps/v1",
          "data": {
            "spec": {
              "template": {
                "$patch": "replace",
                "metadata": {
                  "labels": {
                    "app": "web"
                  }
                },
                "spec": {
                  "containers": [
                    {
                      "image": "web:1",
                      "name": "web"
                    }
                  ]
                }
              }
            }
          },
          "kind": "ControllerRevision",
          "metadata": {
            "annotations": {
              "kubernetes.io/change-cause": "because"
            },
            "labels": {
              "app": "web",
              "controller-revision-hash": "abc"
            },
            "name": "web-abc",
            "namespace": "ops",
            "ownerReferences": [
              {
                "apiVersion": "apps/v1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "DaemonSet",
                "name": "web",
                "uid": "u-1"
              }
            ]
          },
          "revision": 3
        }"#]]
    .assert_eq(&pretty(&controller_revision(OWNER, &annotations, &template(), "abc", 3)));
}

#[test]
fn a_revision_of_a_set_without_annotations_has_none() {
    for none in [Value::Null, json!({})] {
        let revision = controller_revision(OWNER, &none, &template(), "abc", 1);
        assert_eq!(revision["metadata"].get("annotations"), None);
    }
}

#[test]
fn revision_data_is_spelt_as_go_spells_it() {
    let template = json!({
        "spec": {"containers": [{"name": "web", "image": "web:1", "command": ["sh", "-c", "a <b && c>d"]}]},
        "metadata": {"labels": {"app": "web"}, "creationTimestamp": null},
    });
    let text = revision_data(&template);
    expect![[r#"{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"app":"web"}},"spec":{"containers":[{"command":["sh","-c","a \u003cb \u0026\u0026 c\u003ed"],"image":"web:1","name":"web"}]}}}}"#]]
        .assert_eq(&text);
    // The data of a revision, encoded as Go would, is byte-equal to the recorded text.
    let revision = controller_revision(OWNER, &Value::Null, &template, "abc", 1);
    assert!(go_json::to_string(&revision).contains(&text));
}

#[test]
fn hashes() {
    let mut other = template();
    other["spec"]["containers"][0]["image"] = "web:2".into();
    let all = [
        revision_hash(&template(), None),
        revision_hash(&template(), Some(0)),
        revision_hash(&template(), Some(1)),
        revision_hash(&template(), Some(-1)),
        revision_hash(&other, None),
    ];
    expect!["794686fc5b 6996875cb8 855f4f85fc 57967565b 849fb4b4d5"].assert_eq(&all.join(" "));
}

#[test]
fn fnv_and_the_alphabet() {
    assert_eq!(fnv1a_32("".bytes()), 0x811c_9dc5);
    assert_eq!(fnv1a_32("a".bytes()), 0xe40c_292c);
    assert_eq!(fnv1a_32("foobar".bytes()), 0xbf9c_f968);
    assert_eq!(safe_encode("0123456789"), "456789bcdf");
}

#[test]
fn patches() {
    let check = |patch: Value, want: Expect| want.assert_eq(&go_json::to_string(&patch));
    check(
        adopt_patch(OWNER, "p-1", "7"),
        expect![[
            r#"{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"DaemonSet","name":"web","uid":"u-1"}],"resourceVersion":"7","uid":"p-1"}}"#
        ]],
    );
    check(
        release_patch("u-1", "p-1", "7"),
        expect![[
            r#"{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"u-1"}],"resourceVersion":"7","uid":"p-1"}}"#
        ]],
    );
    check(
        relabel_patch("abc", "p-1", "7"),
        expect![[
            r#"{"metadata":{"labels":{"controller-revision-hash":"abc"},"resourceVersion":"7","uid":"p-1"}}"#
        ]],
    );
    check(
        renumber_patch(4, "r-1", "7"),
        expect![[r#"{"metadata":{"resourceVersion":"7","uid":"r-1"},"revision":4}"#]],
    );
    check(
        label_revision_patch("web-x", "r-1", "7"),
        expect![[
            r#"{"metadata":{"labels":{"controller-revision-hash":"web-x"},"resourceVersion":"7","uid":"r-1"}}"#
        ]],
    );
}
