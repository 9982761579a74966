//! The bytes are written by hand, by a few helpers, so that a mistake of the reader is not made twice.

use expect_test::{Expect, expect};

use super::*;
use crate::types;

fn number(field: u32, value: u64) -> Vec<u8> {
    [encoded(u64::from(field << 3)), encoded(value)].concat()
}

fn bytes(field: u32, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [encoded(u64::from(field << 3 | 2)), encoded(value.len() as u64), value.to_vec()].concat()
}

fn encoded(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while 0x80 <= value {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn body(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let type_meta = [bytes(1, api_version), bytes(2, kind)].concat();
    [MAGIC.to_vec(), bytes(1, type_meta), bytes(2, object), bytes(3, ""), bytes(4, "")].concat()
}

fn check(group: &str, version: &str, kind: &str, object: &[u8], golden: &Expect) {
    let of = types::of(group, version, kind).expect("a known kind");
    let told = match self::object(&body("v1", kind, object), of) {
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
fn a_pod_has_what_is_embedded_where_json_has_it() {
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
    let of = types::of("", "v1", "ConfigMap").expect("a known kind");
    let broken: [&[u8]; 7] = [
        b"",
        b"{}",
        b"k8s\0\x0a",
        b"k8s\0\x12\x05\x0a",
        b"k8s\0\x13\x14",
        b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        &body("v1", "ConfigMap", &number(2, 5)),
    ];
    let lines = broken.map(|it| match object(it, of) {
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
