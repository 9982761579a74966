use expect_test::{Expect, expect};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::protobuf::encoding::{encode_bytes_field, encode_number_field, encode_request_body};
use super::*;
use crate::request::User;

const SET: GroupVersionKind<'_> = GroupVersionKind { group: "apps", version: "v1", kind: "DaemonSet" };
const POD: GroupVersionKind<'_> = GroupVersionKind { group: "", version: "v1", kind: "Pod" };
const CONFIG_MAP: GroupVersionKind<'_> = GroupVersionKind { group: "", version: "v1", kind: "ConfigMap" };

fn context(field_validation: FieldValidation) -> RequestContext {
    RequestContext {
        field_validation,
        ..RequestContext::new(User::server(), "create", Timestamp::UNIX_EPOCH)
    }
}

fn told(context: &RequestContext, read: Result<Value, ApiError>) -> String {
    let mut told = match read {
        Ok(object) => format!("{object:#}\n"),
        Err(refusal) => {
            let status = refusal.status();
            format!("{} {}\n", status["code"], str_at(&status, "message"))
        }
    };
    for warning in context.take_warnings() {
        told.push_str(&format!("warning: {warning}\n"));
    }
    told
}

/// What a body is read as, unless a client asks for more strictness.
fn check(expected: GroupVersionKind<'_>, body: &str, golden: &Expect) {
    let context = context(FieldValidation::Warn);
    golden.assert_eq(&told(
        &context,
        decode_object(&context, expected.into(), JSON_MEDIA_TYPE, body.as_bytes()),
    ));
}

#[test]
fn unknown_fields_are_dropped_and_reported() {
    let body = r#"{
        "kind": "DaemonSet", "apiVersion": "apps/v1", "surprise": 1,
        "metadata": {"name": "d", "labels": {"a": "1", "a": "2"}},
        "spec": {
            "Selector": {}, "minReadySeconds": 1, "minReadySeconds": 2,
            "template": {"spec": {"containers": [{"name": "c"}, {"name": "d", "bogus": {"deep": [1]}}]}}
        }
    }"#;
    let strict = context(FieldValidation::Strict);
    expect![[r#"
        400 DaemonSet in version "v1" cannot be handled as a DaemonSet: strict decoding error: unknown field "surprise", duplicate field "metadata.labels.a", unknown field "spec.Selector", duplicate field "spec.minReadySeconds", unknown field "spec.template.spec.containers[1].bogus"
    "#]]
    .assert_eq(&told(&strict, decode_object(&strict, SET.into(), JSON_MEDIA_TYPE, body.as_bytes())));
    let ignore = context(FieldValidation::Ignore);
    let ignored = told(&ignore, decode_object(&ignore, SET.into(), JSON_MEDIA_TYPE, body.as_bytes()));
    let warn = context(FieldValidation::Warn);
    let warned = told(&warn, decode_object(&warn, SET.into(), JSON_MEDIA_TYPE, body.as_bytes()));
    expect![[r#"
        warning: unknown field "surprise"
        warning: duplicate field "metadata.labels.a"
        warning: unknown field "spec.Selector"
        warning: duplicate field "spec.minReadySeconds"
        warning: unknown field "spec.template.spec.containers[1].bogus"
    "#]]
    .assert_eq(warned.strip_prefix(&ignored).expect("the object is the same"));
    expect![[r#"
        {
          "apiVersion": "apps/v1",
          "kind": "DaemonSet",
          "metadata": {
            "labels": {
              "a": "2"
            },
            "name": "d"
          },
          "spec": {
            "minReadySeconds": 2,
            "selector": null,
            "template": {
              "metadata": {},
              "spec": {
                "containers": [
                  {
                    "name": "c",
                    "resources": {}
                  },
                  {
                    "name": "d",
                    "resources": {}
                  }
                ]
              }
            },
            "updateStrategy": {}
          },
          "status": {
            "currentNumberScheduled": 0,
            "desiredNumberScheduled": 0,
            "numberMisscheduled": 0,
            "numberReady": 0
          }
        }
    "#]]
    .assert_eq(&ignored);
}

#[test]
fn a_value_of_the_wrong_type_is_refused_in_gos_words() {
    let wrong = [
        r#"{"spec": {"minReadySeconds": "5"}}"#,
        r#"{"spec": {"minReadySeconds": 1.0}}"#,
        r#"{"spec": {"minReadySeconds": 3000000000}}"#,
        r#"{"metadata": {"generation": 9223372036854775808}}"#,
        r#"{"spec": {"template": {"spec": {"containers": {"name": "c"}}}}}"#,
        r#"{"spec": {"template": {"spec": {"containers": ["c"]}}}}"#,
        r#"{"spec": {"template": {"spec": {"hostNetwork": "true"}}}}"#,
        r#"{"spec": {"template": {"metadata": {"labels": {"a": 1}}}}}"#,
        r#"{"spec": {"template": {"metadata": {"labels": []}}}}"#,
        r#"{"spec": {"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": "much"}}}]}}}}"#,
        r#"{"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": true}}}}"#,
        r#"{"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1.5}}}}"#,
        r#"{"metadata": {"creationTimestamp": "soon"}}"#,
        r#"{"metadata": {"creationTimestamp": 5}}"#,
        r#"{"spec": []}"#,
        r#"[]"#,
        r#"{"spec": {"#,
        r#"{"spec": {}} {"#,
        r#"<p>"#,
        r#""#,
    ];
    let context = context(FieldValidation::Warn);
    let lines = wrong.map(|it| {
        format!(
            "{it}\n    {}",
            told(&context, decode_object(&context, SET.into(), JSON_MEDIA_TYPE, it.as_bytes()))
        )
    });
    expect![[r#"
        {"spec": {"minReadySeconds": "5"}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal string into Go struct field DaemonSetSpec.spec.minReadySeconds of type int32
        {"spec": {"minReadySeconds": 1.0}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal number 1.0 into Go struct field DaemonSetSpec.spec.minReadySeconds of type int32
        {"spec": {"minReadySeconds": 3000000000}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal number 3000000000 into Go struct field DaemonSetSpec.spec.minReadySeconds of type int32
        {"metadata": {"generation": 9223372036854775808}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal number 9223372036854775808 into Go struct field ObjectMeta.metadata.generation of type int64
        {"spec": {"template": {"spec": {"containers": {"name": "c"}}}}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container
        {"spec": {"template": {"spec": {"containers": ["c"]}}}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal string into Go struct field PodSpec.spec.template.spec.containers of type v1.Container
        {"spec": {"template": {"spec": {"hostNetwork": "true"}}}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal string into Go struct field PodSpec.spec.template.spec.hostNetwork of type bool
        {"spec": {"template": {"metadata": {"labels": {"a": 1}}}}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal number into Go struct field ObjectMeta.spec.template.metadata.labels of type string
        {"spec": {"template": {"metadata": {"labels": []}}}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal array into Go struct field ObjectMeta.spec.template.metadata.labels of type map[string]string
        {"spec": {"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": "much"}}}]}}}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
        {"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": true}}}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal bool into Go struct field RollingUpdateDaemonSet.spec.updateStrategy.rollingUpdate.maxSurge of type int32
        {"spec": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1.5}}}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal number 1.5 into Go struct field RollingUpdateDaemonSet.spec.updateStrategy.rollingUpdate.maxSurge of type int32
        {"metadata": {"creationTimestamp": "soon"}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006"
        {"metadata": {"creationTimestamp": 5}}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string
        {"spec": []}
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal array into Go struct field DaemonSet.spec of type v1.DaemonSetSpec
        []
            400 DaemonSet in version "v1" cannot be handled as a DaemonSet: json: cannot unmarshal array into Go value of type v1.DaemonSet
        {"spec": {
            400 the object provided is unrecognized (must be of type DaemonSet): couldn't get version/kind; json parse error: unexpected end of JSON input ({"spec": {)
        {"spec": {}} {
            400 the object provided is unrecognized (must be of type DaemonSet): couldn't get version/kind; json parse error: trailing characters at line 1 column 14 ({"spec": {}} {)
        <p>
            400 the object provided is unrecognized (must be of type DaemonSet): couldn't get version/kind; json parse error: expected value at line 1 column 1 (3c703e)

            400 the object provided is unrecognized (must be of type DaemonSet): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)
    "#]].assert_eq(&lines.concat());
}

#[test]
fn an_object_must_be_of_the_kind_that_is_expected() {
    let bodies = [
        r#"{"kind": "Pod", "data": {}}"#,
        r#"{"kind": "Pod", "spec": {"containers": []}}"#,
        r#"{"apiVersion": "v1", "kind": "Deployment"}"#,
        r#"{"apiVersion": "apps/v1", "kind": "ConfigMap"}"#,
        r#"{"kind": 5}"#,
    ];
    let context = context(FieldValidation::Strict);
    let lines = bodies.map(|it| {
        format!(
            "{it}\n    {}",
            told(&context, decode_object(&context, CONFIG_MAP.into(), JSON_MEDIA_TYPE, it.as_bytes()))
        )
    });
    expect![[r#"
        {"kind": "Pod", "data": {}}
            400 Pod in version "v1" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion
        {"kind": "Pod", "spec": {"containers": []}}
            400 Pod in version "v1" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion
        {"apiVersion": "v1", "kind": "Deployment"}
            400 Deployment in version "v1" cannot be handled as a ConfigMap: no kind "Deployment" is registered for version "v1" in scheme "pkg/api/legacyscheme/scheme.go:30"
        {"apiVersion": "apps/v1", "kind": "ConfigMap"}
            400 ConfigMap in version "v1" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "apps/v1" in scheme "pkg/api/legacyscheme/scheme.go:30"
        {"kind": 5}
            400 the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string ({"kind": 5})
    "#]].assert_eq(&lines.concat());
    let old = r#"{"apiVersion": "extensions/v1beta1", "kind": "DaemonSet"}"#;
    expect![[r#"
        400 the API version in the data (extensions/v1beta1) does not match the expected API version (apps/v1)
    "#]]
    .assert_eq(&told(&context, decode_object(&context, SET.into(), JSON_MEDIA_TYPE, old.as_bytes())));
}

#[test]
fn an_object_comes_out_as_go_writes_it() {
    let body = r#"{
        "metadata": {"name": "p", "labels": null, "annotations": {}, "creationTimestamp": null, "finalizers": [],
                     "generation": 0, "deletionTimestamp": "2026-01-02T03:04:05.5+01:00"},
        "spec": {
            "nodeName": "", "hostNetwork": false, "priority": 0, "restartPolicy": null, "hostUsers": false,
            "activeDeadlineSeconds": null, "tolerations": [{"tolerationSeconds": 0}],
            "containers": [
                {"name": "c", "ports": [{"containerPort": 80, "hostPort": 0}], "command": [null],
                 "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi", "x": 3}, "requests": {"cpu": null}},
                 "livenessProbe": {"httpGet": {"port": "http"}, "initialDelaySeconds": 0},
                 "securityContext": {"runAsUser": 0},
                 "env": [{"name": "a", "value": "", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}
            ],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {"sizeLimit": "1000m"}}]
        }
    }"#;
    check(
        POD,
        body,
        &expect![[r#"
        {
          "apiVersion": "v1",
          "kind": "Pod",
          "metadata": {
            "deletionTimestamp": "2026-01-02T02:04:05Z",
            "name": "p"
          },
          "spec": {
            "containers": [
              {
                "command": [
                  ""
                ],
                "env": [
                  {
                    "name": "a",
                    "valueFrom": {
                      "resourceFieldRef": {
                        "divisor": "0",
                        "resource": "limits.cpu"
                      }
                    }
                  }
                ],
                "livenessProbe": {
                  "httpGet": {
                    "port": "http"
                  }
                },
                "name": "c",
                "ports": [
                  {
                    "containerPort": 80
                  }
                ],
                "resources": {
                  "limits": {
                    "cpu": "500m",
                    "memory": "1Gi",
                    "x": "3"
                  },
                  "requests": {
                    "cpu": "0"
                  }
                },
                "securityContext": {
                  "runAsUser": 0
                }
              }
            ],
            "hostUsers": false,
            "priority": 0,
            "tolerations": [
              {
                "tolerationSeconds": 0
              }
            ],
            "volumes": [
              {
                "emptyDir": {},
                "name": "v"
              },
              {
                "emptyDir": {
                  "sizeLimit": "1"
                },
                "name": "w"
              }
            ]
          },
          "status": {}
        }
    "#]],
    );
    let node = GroupVersionKind { group: "", version: "v1", kind: "Node" };
    check(
        node,
        r#"{"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready"}]}}"#,
        &expect![[r#"
        {
          "apiVersion": "v1",
          "kind": "Node",
          "metadata": {
            "name": "n"
          },
          "spec": {},
          "status": {
            "conditions": [
              {
                "lastHeartbeatTime": null,
                "lastTransitionTime": null,
                "status": "",
                "type": "Ready"
              }
            ],
            "daemonEndpoints": {
              "kubeletEndpoint": {
                "Port": 0
              }
            },
            "nodeInfo": {
              "architecture": "",
              "bootID": "",
              "containerRuntimeVersion": "",
              "kernelVersion": "",
              "kubeProxyVersion": "",
              "kubeletVersion": "",
              "machineID": "",
              "operatingSystem": "",
              "osImage": "",
              "systemUUID": ""
            }
          }
        }
    "#]],
    );
    check(
        CONFIG_MAP,
        r#"{"data": {"a": null}, "binaryData": {"b": "aGk="}, "immutable": false}"#,
        &expect![[r#"
        {
          "apiVersion": "v1",
          "binaryData": {
            "b": "aGk="
          },
          "data": {
            "a": ""
          },
          "immutable": false,
          "kind": "ConfigMap",
          "metadata": {}
        }
    "#]],
    );
}

#[test]
fn the_result_of_a_patch_is_decoded_by_its_type() {
    let context = context(FieldValidation::Strict);
    let object: Value =
        serde_json::from_str(r#"{"kind": "ConfigMap", "data": {"a": "1"}, "bogus": 1}"#).expect("JSON");
    expect![[r#"
        422  "" is invalid: patch: Invalid value: "{\"bogus\":1,\"data\":{\"a\":\"1\"},\"kind\":\"ConfigMap\"}": strict decoding error: unknown field "bogus"
    "#]].assert_eq(&told(&context, decode_patch_result(&context, CONFIG_MAP.into(), object, Vec::new())));
    let object: Value = serde_json::from_str(r#"{"data": {"a": 1}}"#).expect("JSON");
    expect![[r#"
        422  "" is invalid: patch: Invalid value: "{\"data\":{\"a\":1}}": json: cannot unmarshal number into Go struct field ConfigMap.data of type string
    "#]].assert_eq(&told(&context, decode_patch_result(&context, CONFIG_MAP.into(), object, Vec::new())));
    let (patch, twice) = decode_patch(br#"{"data": {"a": "1", "a": "2"}}"#).unwrap();
    expect![[r#"
        422  "" is invalid: patch: Invalid value: "{\"data\":{\"a\":\"2\"}}": strict decoding error: duplicate field "data.a"
    "#]]
    .assert_eq(&told(&context, decode_patch_result(&context, CONFIG_MAP.into(), patch, twice)));
    expect![[r#"
        400 error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:
          line 1: key "a" already set in map
    "#]]
    .assert_eq(&told(
        &context,
        decode_apply_configuration(br#"{"data": {"a": "1", "a": "2"}}"#)
            .and_then(|(applied, twice)| report_duplicate_fields(&context, &twice).map(|()| applied)),
    ));
    expect![[r#"
        {
          "data": {
            "a": "x",
            "b": 2
          }
        }
    "#]]
    .assert_eq(&told(&context, decode_apply_configuration(b"data:\n  a: x\n  b: 2\n").map(|it| it.0)));
}

// More cases are run with the environment variable PROPTEST_CASES.
proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for media_type in [JSON_MEDIA_TYPE, YAML_MEDIA_TYPE, PROTOBUF_MEDIA_TYPE] {
            for field_validation in [FieldValidation::Strict, FieldValidation::Warn] {
                let context = context(field_validation);
                let _ = decode_object(&context, POD.into(), media_type, &bytes);
            }
        }
        let _ = decode_patch(&bytes);
        let _ = decode_apply_configuration(&bytes);
    }

    #[test]
    fn almost_any_object_is_read_or_refused(
        (kind, bytes) in arbitrary::objects_with_errors()
            .prop_flat_map(|(kind, it)| (Just(kind), arbitrary::mutated_bytes(it.to_string().into_bytes())))
    ) {
        let context = context(FieldValidation::Strict);
        let _ = decode_object(&context, kind.into(), JSON_MEDIA_TYPE, &bytes);
        let _ = decode_object(&context, kind.into(), YAML_MEDIA_TYPE, &bytes);
    }

    /// A decoded object is in canonical form: decoding it again changes nothing.
    #[test]
    fn decoding_is_idempotent((kind, it) in arbitrary::valid_objects()) {
        let context = context(FieldValidation::Strict);
        let once = decode_object(&context, kind.into(), JSON_MEDIA_TYPE, it.to_string().as_bytes()).map_err(|it| it.status());
        let once = once.expect("every value has the right type");
        let twice = decode_patch_result(&context, kind.into(), once.clone(), Vec::new()).map_err(|it| it.status());
        prop_assert_eq!(Ok(once), twice);
    }
}

const SELF_REVIEW: GroupVersionKind<'_> =
    GroupVersionKind { group: "authorization.k8s.io", version: "v1", kind: "SelfSubjectAccessReview" };
const SUBJECT_REVIEW: GroupVersionKind<'_> =
    GroupVersionKind { group: "authorization.k8s.io", version: "v1", kind: "SubjectAccessReview" };

/// A list of 3 MiB in JSON, of the smallest values of one sort.
fn bomb(item: &str) -> String {
    let items = (3 << 20) / (item.len() + 1);
    format!("[{}]", vec![item; items].join(","))
}

/// Decodes the message of an object to JSON, without the second pass that checks the types and counts again.
fn decode_protobuf(of: GroupVersionKind<'_>, object: &[u8]) -> Result<Value, String> {
    let body = encode_request_body("", "", object);
    protobuf::decode_object(&body, expected_type(of.into()).unwrap()).map(|(_, object)| object)
}

#[test]
fn no_body_takes_much_more_memory_than_its_bytes() {
    let context = context(FieldValidation::Warn);
    let too_many = |told: String| {
        assert!(
            told.contains(value_reader::TOO_MANY_VALUES_MESSAGE),
            "{}",
            told.chars().take(200).collect::<String>()
        );
    };
    for item in [r#"{"":0}"#, "{}", "[0]", "[]", "0", r#"{"a":{}}"#] {
        let list = bomb(item);
        // A raw extension, managed fields, and a list of a type.
        let revision = GroupVersionKind { group: "apps", version: "v1", kind: "ControllerRevision" };
        let body = format!(r#"{{"metadata":{{"name":"a"}},"revision":1,"data":{list}}}"#);
        too_many(told(&context, decode_object(&context, revision.into(), JSON_MEDIA_TYPE, body.as_bytes())));
        too_many(told(&context, decode_object(&context, revision.into(), YAML_MEDIA_TYPE, body.as_bytes())));
        let body =
            format!(r#"{{"metadata":{{"name":"a","managedFields":[{{"fieldsV1":{{"f:a":{list}}}}}]}}}}"#);
        too_many(told(
            &context,
            decode_object(&context, CONFIG_MAP.into(), JSON_MEDIA_TYPE, body.as_bytes()),
        ));
        let managed = encode_bytes_field(
            17,
            encode_bytes_field(7, encode_bytes_field(1, format!(r#"{{"f:a":{list}}}"#))),
        );
        too_many(
            decode_protobuf(revision, &encode_bytes_field(2, encode_bytes_field(1, &list)))
                .err()
                .unwrap_or_default(),
        );
        too_many(decode_protobuf(CONFIG_MAP, &encode_bytes_field(1, managed)).err().unwrap_or_default());
        // Patches, before they meet an object, and what is applied.
        too_many(decode_patch(list.as_bytes()).unwrap_err());
        too_many(
            decode_apply_configuration(format!("{{\"data\":{list}}}").as_bytes())
                .unwrap_err()
                .message()
                .to_owned(),
        );
        // What a patch made of an object.
        let body: Value = serde_json::from_str(&list).unwrap();
        let made = json!({"metadata": {"name": "a"}, "revision": 1, "data": body});
        let refusal = decode_patch_result(&context, revision.into(), made, Vec::new()).unwrap_err();
        assert!(refusal.message().contains(value_reader::TOO_MANY_VALUES_MESSAGE));
        assert!(refusal.message().len() < 4096, "what is quoted is cut");
    }
    // Protobuf: messages, strings and numbers in a list, and a list in a map.
    let many = |part: &[u8]| part.repeat((3 << 20) / part.len());
    let extra =
        [encode_bytes_field(1, "k"), encode_bytes_field(2, many(&encode_bytes_field(1, "")))].concat();
    for (of, object) in [
        (SELF_REVIEW, encode_bytes_field(1, many(&encode_bytes_field(13, encode_bytes_field(5, ""))))),
        (SELF_REVIEW, encode_bytes_field(1, many(&encode_bytes_field(13, "")))),
        (SELF_REVIEW, encode_bytes_field(1, many(&encode_bytes_field(14, "")))),
        (SUBJECT_REVIEW, encode_bytes_field(2, encode_bytes_field(5, extra))),
        (POD, encode_bytes_field(2, encode_bytes_field(14, encode_bytes_field(4, many(&[0]))))),
        (POD, encode_bytes_field(2, encode_bytes_field(14, many(&encode_number_field(4, 0))))),
    ] {
        assert_eq!(
            decode_protobuf(of, &object).err().as_deref(),
            Some(value_reader::TOO_MANY_VALUES_MESSAGE)
        );
        let body = encode_request_body("", "", &object);
        too_many(told(&context, decode_object(&context, of.into(), PROTOBUF_MEDIA_TYPE, &body)));
    }
    // YAML that is not JSON.
    let yaml = format!("data:\n{}", "- {a: }\n".repeat((3 << 20) / 8));
    let refused = decode_apply_configuration(yaml.as_bytes()).unwrap_err();
    assert!(refused.message().len() < 4096, "{}", refused.message().len());
}

#[test]
fn an_object_as_large_as_the_store_takes_is_read() {
    let context = context(FieldValidation::Warn);
    let stored = r#"{"name":"c","env":[{"name":"A","value":"b"},{"name":"B","value":"c"}],"image":"registry.example/a:1"}"#;
    let containers = vec![stored; 1_400_000 / stored.len()].join(",");
    let body = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{containers}]}}}}"#);
    decode_object(&context, POD.into(), JSON_MEDIA_TYPE, body.as_bytes()).unwrap();
    decode_apply_configuration(body.as_bytes()).unwrap();
    // Go also writes the empty strings, bools and messages that are not pointers.
    let env = |name: &str, value: &str| {
        encode_bytes_field(7, [encode_bytes_field(1, name), encode_bytes_field(2, value)].concat())
    };
    let strings = [2, 5, 13, 14, 20].map(|it| encode_bytes_field(it, "")).concat();
    let bools = [16, 17, 18].map(|it| encode_number_field(it, 0)).concat();
    let container = [
        encode_bytes_field(1, "c"),
        encode_bytes_field(2, "registry.example/a:1"),
        env("A", "b"),
        env("B", "c"),
        encode_bytes_field(8, ""),
        strings,
        bools,
    ]
    .concat();
    // This container is stored with `resources`.
    let stored_length = stored.len() + r#","resources":{}"#.len();
    let containers = encode_bytes_field(2, container).repeat(1_400_000 / stored_length);
    let body = encode_request_body("v1", "Pod", &encode_bytes_field(2, containers));
    decode_object(&context, POD.into(), PROTOBUF_MEDIA_TYPE, &body).unwrap();
}

#[test]
fn managed_fields_of_a_review_are_not_read() {
    let context = context(FieldValidation::Warn);
    let body = format!(
        r#"{{"metadata":{{"managedFields":[{{"fieldsV1":{{"f:a":{}}}}}]}},"spec":{{}}}}"#,
        bomb(r#"{"":0}"#)
    );
    let read = decode_object(&context, SELF_REVIEW.into(), JSON_MEDIA_TYPE, body.as_bytes()).unwrap();
    assert!(read["metadata"].get("managedFields").is_none());
    let managed = encode_bytes_field(17, encode_bytes_field(7, encode_bytes_field(1, bomb(r#"{"":0}"#))));
    let metadata = [encode_bytes_field(1, "r"), managed].concat();
    assert_eq!(
        decode_protobuf(SELF_REVIEW, &encode_bytes_field(1, metadata)),
        Ok(json!({"metadata": {"name": "r"}}))
    );
}
