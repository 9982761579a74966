use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::encoding::{body, bytes, number};
use super::*;
use crate::decode::{self, arbitrary};
use crate::request::RequestContext;
use crate::types::{self, GroupVersionKind};

fn check(group: &str, version: &str, kind: &str, object: &[u8], golden: &Expect) {
    let of = types::find_type(group, version, kind).expect("a known kind");
    let told = match self::decode_object(&body("v1", kind, object), of) {
        Ok((said, object)) => format!("{} {}: {object}", said.api_version, said.kind),
        Err(why) => why,
    };
    golden.assert_eq(&told);
}

#[test]
fn a_config_map() {
    let metadata = [
        bytes(1, "cm"),
        bytes(3, "default"),
        bytes(8, ""),
        bytes(11, [bytes(1, "a"), bytes(2, "b")].concat()),
    ];
    let object = [
        bytes(1, metadata.concat()),
        bytes(2, [bytes(1, "k"), bytes(2, "v")].concat()),
        bytes(2, bytes(1, "empty")),
        bytes(3, [bytes(1, "raw"), bytes(2, [0, 255])].concat()),
        number(4, 1),
        bytes(999, "from the future"),
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
    let quantity = |it: &str| bytes(1, it);
    let limits = bytes(1, [bytes(1, "cpu"), bytes(2, quantity("1500m"))].concat());
    let port = [number(1, 1), bytes(3, "http")].concat();
    // Probe.handler.httpGet.port, and the probe's own number beside it.
    let probe = [bytes(1, bytes(2, bytes(2, port))), number(2, 3)].concat();
    let container = [
        bytes(1, "c"),
        bytes(8, limits),
        bytes(10, probe),
        bytes(6, [bytes(1, "p"), number(3, 8080)].concat()),
    ];
    // Volume.volumeSource.configMap.localObjectReference.name
    let volume = [bytes(1, "v"), bytes(2, bytes(19, bytes(1, bytes(1, "cm"))))];
    let security = [number(2, u64::MAX), bytes(4, [1, 2, 0xac, 0x02]), number(4, 7)];
    let spec = [
        bytes(1, volume.concat()),
        bytes(2, container.concat()),
        number(4, 30),
        bytes(14, security.concat()),
    ];
    check(
        "",
        "v1",
        "Pod",
        &bytes(2, spec.concat()),
        &expect![[
            r#"v1 Pod: {"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":"http"},"initialDelaySeconds":3},"name":"c","ports":[{"containerPort":8080,"name":"p"}],"resources":{"limits":{"cpu":"1500m"}}}],"securityContext":{"runAsUser":-1,"supplementalGroups":[1,2,300,7]},"terminationGracePeriodSeconds":30,"volumes":[{"configMap":{"name":"cm"},"name":"v"}]}}"#
        ]],
    );
}

#[test]
fn times_numbers_and_raw_json() {
    let time = [number(1, 1_767_323_045), number(2, 999_999_999)].concat();
    let lease = bytes(2, [bytes(3, &time), bytes(4, "")].concat());
    check(
        "coordination.k8s.io",
        "v1",
        "Lease",
        &lease,
        &expect![[r#"v1 Lease: {"spec":{"acquireTime":"2026-01-02T03:04:05.999999Z","renewTime":null}}"#]],
    );
    let metadata = bytes(
        1,
        [bytes(8, &time), bytes(17, [bytes(4, &time), bytes(7, bytes(1, r#"{"f:a":{}}"#))].concat())]
            .concat(),
    );
    let revision = [metadata, bytes(2, bytes(1, r#"{"spec":[1,2.5]}"#)), number(3, -4i64 as u64)].concat();
    check(
        "apps",
        "v1",
        "ControllerRevision",
        &revision,
        &expect![[
            r#"v1 ControllerRevision: {"data":{"spec":[1,2.5]},"metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","managedFields":[{"fieldsV1":{"f:a":{}},"time":"2026-01-02T03:04:05Z"}]},"revision":-4}"#
        ]],
    );
    let budget = bytes(
        2,
        [bytes(1, [number(1, 0), number(2, 2)].concat()), bytes(3, [number(1, 1), bytes(3, "10%")].concat())]
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
    let extra = [bytes(1, "k"), bytes(2, [bytes(1, "a"), bytes(1, "b")].concat())].concat();
    let review = bytes(2, [bytes(3, "me"), bytes(5, extra)].concat());
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
        &body("v1", "ConfigMap", &number(2, 5)),
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
                    bytes(*last, [bytes(1, key), written(2, *values, value)].concat())
                };
                map.iter().map(entry).collect::<Vec<_>>().concat()
            }
            (shape, value) => written(*last, shape, value),
        };
        out.extend(outer.iter().rev().fold(written, |it, number| bytes(*number, it)));
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
        [number(1, s as u64), number(2, ns as u64)].concat()
    };
    match shape {
        Shape::Bool => number(field, u64::from(*value == true)),
        Shape::Int32 | Shape::Int64 => number(field, integer()),
        Shape::String => bytes(field, text()),
        Shape::Bytes => bytes(field, STANDARD.decode(text()).expect("base64")),
        Shape::Time | Shape::MicroTime => bytes(field, time()),
        Shape::Quantity => bytes(field, bytes(1, text())),
        Shape::IntOrString if value.is_string() => bytes(field, [number(1, 1), bytes(3, text())].concat()),
        Shape::IntOrString => bytes(field, [number(1, 0), number(2, integer())].concat()),
        Shape::Any | Shape::FieldsV1 => bytes(field, bytes(1, value.to_string())),
        Shape::Object(of) => bytes(field, message_of(of, value)),
        Shape::List(items, _) => {
            let list = value.as_array().into_iter().flatten();
            bytes(field, list.map(|it| written(1, *items, it)).collect::<Vec<_>>().concat())
        }
        Shape::Map(..) => panic!("there is no map of maps"),
    }
}

fn read(media_type: &str, kind: GroupVersionKind<'_>, body: &[u8]) -> Result<Value, Value> {
    let context = RequestContext::for_server("create", Timestamp::UNIX_EPOCH);
    decode::decode_object(&context, kind, media_type, body).map_err(|it| it.status())
}

#[test]
fn a_kind_without_protobuf_is_read_as_json_or_yaml_only() {
    let kind = GroupVersionKind { group: "muster.dev", version: "v1alpha1", kind: "RolloutPolicy" };
    let body = body("muster.dev/v1alpha1", "RolloutPolicy", &[]);
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
        let body = body(&said, kind.kind, &message_of(of, &in_json));
        prop_assert_eq!(Ok(in_json), read("application/vnd.kubernetes.protobuf", kind, &body));
    }

    #[test]
    fn almost_any_message_is_read_or_refused(
        (kind, bytes) in arbitrary::valid_objects().prop_flat_map(|(kind, it)| {
            let of = types::find_type(kind.group, kind.version, kind.kind).expect("a known kind");
            let in_json = read(decode::JSON_MEDIA_TYPE, kind, it.to_string().as_bytes()).expect("every value has the right type");
            (Just(kind), arbitrary::mutated_bytes(body("", "", &message_of(of, &in_json))))
        }),
        noise in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let _ = read("application/vnd.kubernetes.protobuf", kind, &bytes);
        let _ = read("application/vnd.kubernetes.protobuf", kind, &body("", "", &noise));
        let _ = read("application/vnd.kubernetes.protobuf", kind, &[PROTOBUF_MAGIC, &noise].concat());
    }
}
