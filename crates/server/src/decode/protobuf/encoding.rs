//! Encodes protobuf messages for tests with code of its own, so that the tests do not repeat a mistake of the decoder.

use super::PROTOBUF_MAGIC;

/// Encodes a field that contains a number, bool or enum.
pub(crate) fn encode_number_field(field: u32, value: u64) -> Vec<u8> {
    [encode_varint(u64::from(field << 3)), encode_varint(value)].concat()
}

/// Encodes a field that contains a string, bytes or a message.
pub(crate) fn encode_bytes_field(field: u32, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [encode_varint(u64::from(field << 3 | 2)), encode_varint(value.len() as u64), value.to_vec()].concat()
}

/// Encodes a number as a varint.
fn encode_varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while 0x80 <= value {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// Encodes a request body that contains the message `object`.
pub(crate) fn encode_request_body(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let type_meta = [encode_bytes_field(1, api_version), encode_bytes_field(2, kind)].concat();
    [
        PROTOBUF_MAGIC.to_vec(),
        encode_bytes_field(1, type_meta),
        encode_bytes_field(2, object),
        encode_bytes_field(3, ""),
        encode_bytes_field(4, ""),
    ]
    .concat()
}
