//! Fuzzing with arbitrary HTTP/2 frames from an unauthenticated client. They must cause no panic, no hang, and no
//! access to stored objects.
//!
//! Each connection starts with a valid preface and SETTINGS frame. Most of the frames after them have a defined type
//! and a plausible stream ID and length. The others are random. A header block contains a request or random bytes.

use std::pin::pin;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::tests::fairness;
use super::{FuzzPermissions, FuzzServer, LEAK_MARKER, requests_per_test, response_or_hang, test_runner};

/// The bytes that every HTTP/2 client sends first.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Maximum number of generated frames on one connection.
const FRAMES_MAX: usize = 24;

/// A generated HTTP/2 frame, which may be invalid.
#[derive(Debug, Clone)]
struct FuzzFrame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
    /// Number that is added to the correct length in the length field of the frame header.
    length_error: i8,
}

/// Sends arbitrary frames, and checks that no response contains the marker and that no object in a closed namespace
/// changes.
#[test]
fn arbitrary_frames_do_not_leak() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    // One server for all connections: an unauthenticated request changes nothing in the store.
    let world = runtime.block_on(FuzzServer::new(FuzzPermissions::OpenNamespace));
    let before = runtime.block_on(world.closed_objects());
    let connections = requests_per_test().div_ceil(FRAMES_MAX as u32 / 2);
    let ran = test_runner(connections).run(&vec(arbitrary_frame(), 1..=FRAMES_MAX), |frames| {
        runtime.block_on(async {
            let answer = send_over_connection(&world, &encode_frames(&frames)).await?;
            prop_assert!(
                !answer.windows(LEAK_MARKER.len()).any(|it| it == LEAK_MARKER.as_bytes()),
                "a response contains the marker"
            );
            Ok(())
        })
    });
    ran.unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(
        before,
        runtime.block_on(world.closed_objects()),
        "an object in a closed namespace was changed"
    );
}

/// Sends the bytes over a new connection, and returns what the server sends until it closes the connection. Fails if
/// the connection hangs or its task panics.
async fn send_over_connection(fuzz_server: &FuzzServer, bytes: &[u8]) -> Result<Vec<u8>, TestCaseError> {
    let (client, serving) = fairness::serve(&fuzz_server.server.api, None, true);
    let talking = pin!(async move {
        let (mut reading, mut writing) = tokio::io::split(client);
        let mut answer = Vec::new();
        let write = async {
            // The server may close the connection before it has read everything.
            let _ = writing.write_all(bytes).await;
            let _ = writing.shutdown().await;
        };
        tokio::join!(write, reading.read_to_end(&mut answer)).1.ok();
        answer
    });
    let Some(answer) = response_or_hang(talking).await else {
        return Err(TestCaseError::fail("the connection hangs"));
    };
    match response_or_hang(pin!(serving)).await {
        Some(Ok(())) => Ok(answer),
        Some(Err(panicked)) => Err(TestCaseError::fail(format!("the connection panicked: {panicked}"))),
        None => Err(TestCaseError::fail("the connection does not end")),
    }
}

/// Encodes the HTTP/2 preface, an empty SETTINGS frame and `frames`.
fn encode_frames(frames: &[FuzzFrame]) -> Vec<u8> {
    let mut bytes = HTTP2_PREFACE.to_vec();
    let settings = FuzzFrame { kind: 4, flags: 0, stream: 0, payload: Vec::new(), length_error: 0 };
    for frame in std::iter::once(&settings).chain(frames) {
        let length = frame.payload.len().saturating_add_signed(isize::from(frame.length_error));
        bytes.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
        bytes.extend_from_slice(&[frame.kind, frame.flags]);
        bytes.extend_from_slice(&frame.stream.to_be_bytes());
        bytes.extend_from_slice(&frame.payload);
    }
    bytes
}

/// Generates a frame: HEADERS, DATA, another defined type, or random bytes as type, flags and payload.
fn arbitrary_frame() -> impl Strategy<Value = FuzzFrame> {
    let streams = prop_oneof![8 => (0..8_u32).prop_map(|it| it * 2 + 1), 1 => 0..6_u32, 1 => any::<u32>()];
    let length_errors = prop_oneof![30 => Just(0_i8), 1 => any::<i8>()];
    let kinds = prop_oneof![
        // HEADERS of a valid request, with and without END_STREAM.
        6 => (arbitrary_header_block(), select(vec![0x4_u8, 0x5])).prop_map(|(payload, flags)| (1, flags, payload)),
        2 => (arbitrary_data(), select(vec![0_u8, 1])).prop_map(|(payload, flags)| (0, flags, payload)),
        1 => vec(any::<u8>(), 4).prop_map(|payload| (3, 0, payload)),
        1 => arbitrary_settings().prop_map(|payload| (4, 0, payload)),
        1 => vec(any::<u8>(), 4).prop_map(|payload| (8, 0, payload)),
        1 => (arbitrary_header_block(), any::<u8>()).prop_map(|(payload, flags)| (9, flags, payload)),
        1 => vec(any::<u8>(), 8).prop_map(|payload| (6, 0, payload)),
        2 => (any::<u8>(), any::<u8>(), vec(any::<u8>(), 0..60)),
    ];
    (kinds, streams, length_errors).prop_map(|((kind, flags, payload), stream, length_error)| FuzzFrame {
        kind,
        flags,
        stream,
        payload,
        length_error,
    })
}

/// Generates the uncompressed header block of a request, or random bytes instead.
fn arbitrary_header_block() -> impl Strategy<Value = Vec<u8>> {
    let methods = select(vec!["GET", "POST", "HEAD", "PATCH", "DELETE", "CONNECT", "get", ""]);
    let paths = select(vec![
        "/version",
        "/healthz",
        "/api/v1/namespaces/b/secrets/s",
        "/api/v1/namespaces/a/secrets?watch=1",
        "/apis",
        "*",
        "",
        "//",
        "/openapi/v2",
    ]);
    let further = (
        select(vec![
            "impersonate-user",
            "authorization",
            "content-length",
            "te",
            "connection",
            ":path",
            "Host",
            "",
        ]),
        vec(any::<u8>(), 0..20),
    );
    let request = (methods, paths, vec(further, 0..4)).prop_map(|(method, path, further)| {
        let mut block = Vec::new();
        let mut field = |name: &[u8], value: &[u8]| {
            block.push(0);
            for text in [name, value] {
                block.push(text.len() as u8);
                block.extend_from_slice(text);
            }
        };
        field(b":method", method.as_bytes());
        field(b":scheme", b"https");
        field(b":authority", b"localhost");
        field(b":path", path.as_bytes());
        for (name, value) in further {
            field(name.as_bytes(), &value);
        }
        block
    });
    prop_oneof![8 => request, 1 => vec(any::<u8>(), 0..80)]
}

/// Generates the payload of a DATA frame: empty, an empty JSON object, or random bytes.
fn arbitrary_data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![Just(Vec::new()), Just(b"{}".to_vec()), vec(any::<u8>(), 0..200)]
}

/// Generates the payload of a SETTINGS frame: defined and undefined identifiers, mostly with values at or beyond their
/// bounds.
fn arbitrary_settings() -> impl Strategy<Value = Vec<u8>> {
    let setting = (0..10_u16, select(vec![0_u32, 1, 100, 16_384, 1 << 24, u32::MAX >> 1, u32::MAX]));
    vec(setting, 0..6).prop_map(|settings| {
        settings
            .iter()
            .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect()
    })
}
