use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::encoding::{encode_bytes_field, encode_number_field, encode_request_body};
use super::*;
use crate::decode::{self, arbitrary};
use crate::request::RequestContext;
use crate::types::{self, GroupVersionKind};

fn check(group: &str, version: &str, kind: &str, object: &[u8], golden: &Expect) {
    let of = types::find_type(group, version, kind).expect("a known kind");
    let told = match self::decode_object(&encode_request_body("v1", kind, object), of) {
        Ok((said, object)) => format!("{} {}: {object}", said.api_version, said.kind),
        Err(why) => why,
    };
    golden.assert_eq(&told);
}

#[test]
fn a_config_map() {
    let metadata = [
        encode_bytes_field(1, "cm"),
        encode_bytes_field(3, "default"),
        encode_bytes_field(8, ""),
        encode_bytes_field(11, [encode_bytes_field(1, "a"), encode_bytes_field(2, "b")].concat()),
    ];
    let object = [
        encode_bytes_field(1, metadata.concat()),
        encode_bytes_field(2, [encode_bytes_field(1, "k"), encode_bytes_field(2, "v")].concat()),
        encode_bytes_field(2, encode_bytes_field(1, "empty")),
        encode_bytes_field(3, [encode_bytes_field(1, "raw"), encode_bytes_field(2, [0, 255])].concat()),
        encode_number_field(4, 1),
        encode_bytes_field(999, "from the future"),
    ];
    check(
        "",
        "v1",
        "ConfigMap",
        &object.concat(),
        &expect![[
            r#"v1 ConfigMap: {"binaryData":{"raw":"AP8="},"data":{"empty":null,"k":"v"},"immutable":true,"metadata":{"creationTimestamp":null,"labels":{"a":"b"},"name":"cm","namespace":"default"}}"#
        ]],
    );
}

#[test]
fn embedded_fields_of_a_pod_are_where_json_has_them() {
    let quantity = |it: &str| encode_bytes_field(1, it);
    let limits = encode_bytes_field(
        1,
        [encode_bytes_field(1, "cpu"), encode_bytes_field(2, quantity("1500m"))].concat(),
    );
    let port = [encode_number_field(1, 1), encode_bytes_field(3, "http")].concat();
    // Probe.handler.httpGet.port, and the probe's own number beside it.
    let probe = [
        encode_bytes_field(1, encode_bytes_field(2, encode_bytes_field(2, port))),
        encode_number_field(2, 3),
    ]
    .concat();
    let container = [
        encode_bytes_field(1, "c"),
        encode_bytes_field(8, limits),
        encode_bytes_field(10, probe),
        encode_bytes_field(6, [encode_bytes_field(1, "p"), encode_number_field(3, 8080)].concat()),
    ];
    // Volume.volumeSource.configMap.localObjectReference.name
    let volume = [
        encode_bytes_field(1, "v"),
        encode_bytes_field(2, encode_bytes_field(19, encode_bytes_field(1, encode_bytes_field(1, "cm")))),
    ];
    let security = [
        encode_number_field(2, u64::MAX),
        encode_bytes_field(4, [1, 2, 0xac, 0x02]),
        encode_number_field(4, 7),
    ];
    let spec = [
        encode_bytes_field(1, volume.concat()),
        encode_bytes_field(2, container.concat()),
        encode_number_field(4, 30),
        encode_bytes_field(14, security.concat()),
    ];
    check(
        "",
        "v1",
        "Pod",
        &encode_bytes_field(2, spec.concat()),
        &expect![[
            r#"v1 Pod: {"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":"http"},"initialDelaySeconds":3},"name":"c","ports":[{"containerPort":8080,"name":"p"}],"resources":{"limits":{"cpu":"1500m"}}}],"securityContext":{"runAsUser":-1,"supplementalGroups":[1,2,300,7]},"terminationGracePeriodSeconds":30,"volumes":[{"configMap":{"name":"cm"},"name":"v"}]}}"#
        ]],
    );
}

#[test]
fn times_numbers_and_raw_json() {
    let time = [encode_number_field(1, 1_767_323_045), encode_number_field(2, 999_999_999)].concat();
    let lease = encode_bytes_field(2, [encode_bytes_field(3, &time), encode_bytes_field(4, "")].concat());
    check(
        "coordination.k8s.io",
        "v1",
        "Lease",
        &lease,
        &expect![[r#"v1 Lease: {"spec":{"acquireTime":"2026-01-02T03:04:05.999999Z","renewTime":null}}"#]],
    );
    let metadata = encode_bytes_field(
        1,
        [
            encode_bytes_field(8, &time),
            encode_bytes_field(
                17,
                [encode_bytes_field(4, &time), encode_bytes_field(7, encode_bytes_field(1, r#"{"f:a":{}}"#))]
                    .concat(),
            ),
        ]
        .concat(),
    );
    let revision = [
        metadata,
        encode_bytes_field(2, encode_bytes_field(1, r#"{"spec":[1,2.5]}"#)),
        encode_number_field(3, -4i64 as u64),
    ]
    .concat();
    check(
        "apps",
        "v1",
        "ControllerRevision",
        &revision,
        &expect![[
            r#"v1 ControllerRevision: {"data":{"spec":[1,2.5]},"metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","managedFields":[{"fieldsV1":{"f:a":{}},"time":"2026-01-02T03:04:05Z"}]},"revision":-4}"#
        ]],
    );
    let budget = encode_bytes_field(
        2,
        [
            encode_bytes_field(1, [encode_number_field(1, 0), encode_number_field(2, 2)].concat()),
            encode_bytes_field(3, [encode_number_field(1, 1), encode_bytes_field(3, "10%")].concat()),
        ]
        .concat(),
    );
    check(
        "policy",
        "v1",
        "PodDisruptionBudget",
        &budget,
        &expect![[r#"v1 PodDisruptionBudget: {"spec":{"maxUnavailable":"10%","minAvailable":2}}"#]],
    );
    // A map of lists: each list is a message.
    let extra = [
        encode_bytes_field(1, "k"),
        encode_bytes_field(2, [encode_bytes_field(1, "a"), encode_bytes_field(1, "b")].concat()),
    ]
    .concat();
    let review = encode_bytes_field(2, [encode_bytes_field(3, "me"), encode_bytes_field(5, extra)].concat());
    check(
        "authorization.k8s.io",
        "v1",
        "SubjectAccessReview",
        &review,
        &expect![[r#"v1 SubjectAccessReview: {"spec":{"extra":{"k":["a","b"]},"user":"me"}}"#]],
    );
}

#[test]
fn broken_bodies_are_refused() {
    let of = types::find_type("", "v1", "ConfigMap").expect("a known kind");
    let broken: [&[u8]; 7] = [
        b"",
        b"{}",
        b"k8s\0\x0a",
        b"k8s\0\x12\x05\x0a",
        b"k8s\0\x13\x14",
        b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        &encode_request_body("v1", "ConfigMap", &encode_number_field(2, 5)),
    ];
    let lines = broken.map(|it| match decode_object(it, of) {
        Ok((_, object)) => format!("{object}\n"),
        Err(why) => format!("{why}\n"),
    });
    expect![[r#"
        provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]
        provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]
        unexpected EOF
        unexpected EOF
        proto: illegal wireType 3
        proto: integer overflow
        proto: wrong wireType
    "#]]
    .assert_eq(&lines.concat());
}

/// The message of an object, by the same table: so this says nothing of the numbers, but much of the forms.
fn message_of(of: &'static Type, object: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for field in of.fields.iter().filter(|it| !it.proto.is_empty()) {
        let (last, outer) = field.proto.split_last().expect("it is not empty");
        let written = match (field.shape, &object[field.name]) {
            (_, Value::Null) => continue,
            (Shape::List(items, _), Value::Array(list)) => {
                list.iter().map(|it| written(*last, *items, it)).collect::<Vec<_>>().concat()
            }
            (Shape::Map(values, _), Value::Object(map)) => {
                let entry = |(key, value): (&String, &Value)| {
                    encode_bytes_field(
                        *last,
                        [encode_bytes_field(1, key), written(2, *values, value)].concat(),
                    )
                };
                map.iter().map(entry).collect::<Vec<_>>().concat()
            }
            (shape, value) => written(*last, shape, value),
        };
        out.extend(outer.iter().rev().fold(written, |it, number| encode_bytes_field(*number, it)));
    }
    out
}

fn written(field: u32, shape: Shape, value: &Value) -> Vec<u8> {
    let text = || value.as_str().unwrap_or_default();
    let integer = || value.as_i64().unwrap_or_default() as u64;
    let time = || {
        let at: Timestamp = text().parse().expect("a time");
        let (s, ns) =
            (at.as_nanosecond().div_euclid(1_000_000_000), at.as_nanosecond().rem_euclid(1_000_000_000));
        [encode_number_field(1, s as u64), encode_number_field(2, ns as u64)].concat()
    };
    match shape {
        Shape::Bool => encode_number_field(field, u64::from(*value == true)),
        Shape::Int32 | Shape::Int64 => encode_number_field(field, integer()),
        Shape::String => encode_bytes_field(field, text()),
        Shape::Bytes => encode_bytes_field(field, STANDARD.decode(text()).expect("base64")),
        Shape::Time | Shape::MicroTime => encode_bytes_field(field, time()),
        Shape::Quantity => encode_bytes_field(field, encode_bytes_field(1, text())),
        Shape::IntOrString if value.is_string() => {
            encode_bytes_field(field, [encode_number_field(1, 1), encode_bytes_field(3, text())].concat())
        }
        Shape::IntOrString => {
            encode_bytes_field(field, [encode_number_field(1, 0), encode_number_field(2, integer())].concat())
        }
        Shape::Any | Shape::FieldsV1 => encode_bytes_field(field, encode_bytes_field(1, value.to_string())),
        Shape::Object(of) => encode_bytes_field(field, message_of(of, value)),
        Shape::List(items, _) => {
            let list = value.as_array().into_iter().flatten();
            encode_bytes_field(field, list.map(|it| written(1, *items, it)).collect::<Vec<_>>().concat())
        }
        Shape::Map(..) => panic!("there is no map of maps"),
    }
}

fn read(media_type: &str, kind: GroupVersionKind<'_>, body: &[u8]) -> Result<Value, Value> {
    let context = RequestContext::for_server("create", Timestamp::UNIX_EPOCH);
    decode::decode_object(&context, kind.into(), media_type, body).map_err(|it| it.status())
}

#[test]
fn a_kind_without_protobuf_is_read_as_json_or_yaml_only() {
    let kind = GroupVersionKind { group: "muster.dev", version: "v1alpha1", kind: "RolloutPolicy" };
    let body = encode_request_body("muster.dev/v1alpha1", "RolloutPolicy", &[]);
    let refused =
        read("application/vnd.kubernetes.protobuf", kind, &body).expect_err("it has no protobuf message");
    expect![[r#"415 the body of the request was in an unknown format - accepted media types include: application/json, application/yaml"#]]
        .assert_eq(&format!("{} {}", refused["code"], refused["message"].as_str().unwrap_or_default()));
}

// More cases are run with the environment variable PROPTEST_CASES.
proptest! {
    #[test]
    fn an_object_is_the_same_in_protobuf_and_in_json((kind, it) in arbitrary::valid_objects()) {
        let in_json = read(decode::JSON_MEDIA_TYPE, kind, it.to_string().as_bytes()).expect("every value has the right type");
        let of = types::find_type(kind.group, kind.version, kind.kind).expect("a known kind");
        prop_assume!(of.has_protobuf());
        let said = crate::kinds::group_version(kind.group, kind.version);
        let body = encode_request_body(&said, kind.kind, &message_of(of, &in_json));
        prop_assert_eq!(Ok(in_json), read("application/vnd.kubernetes.protobuf", kind, &body));
    }

    #[test]
    fn almost_any_message_is_read_or_refused(
        (kind, bytes) in arbitrary::valid_objects().prop_flat_map(|(kind, it)| {
            let of = types::find_type(kind.group, kind.version, kind.kind).expect("a known kind");
            let in_json = read(decode::JSON_MEDIA_TYPE, kind, it.to_string().as_bytes()).expect("every value has the right type");
            (Just(kind), arbitrary::mutated_bytes(encode_request_body("", "", &message_of(of, &in_json))))
        }),
        noise in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let _ = read("application/vnd.kubernetes.protobuf", kind, &bytes);
        let _ = read("application/vnd.kubernetes.protobuf", kind, &encode_request_body("", "", &noise));
        let _ = read("application/vnd.kubernetes.protobuf", kind, &[PROTOBUF_MAGIC, &noise].concat());
    }
}
