//! Encodes protobuf messages by hand for tests, so that they do not repeat a mistake of the decoder.

use super::PROTOBUF_MAGIC;

/// Encodes a field that contains a number, bool or enum.
pub(crate) fn number(field: u32, value: u64) -> Vec<u8> {
    [encoded(u64::from(field << 3)), encoded(value)].concat()
}

/// Encodes a field that contains a string, bytes or a message.
pub(crate) fn bytes(field: u32, value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [encoded(u64::from(field << 3 | 2)), encoded(value.len() as u64), value.to_vec()].concat()
}

/// Encodes a varint.
fn encoded(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while 0x80 <= value {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

/// Encodes a request body that contains the message `object`.
pub(crate) fn body(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let type_meta = [bytes(1, api_version), bytes(2, kind)].concat();
    [PROTOBUF_MAGIC.to_vec(), bytes(1, type_meta), bytes(2, object), bytes(3, ""), bytes(4, "")].concat()
}
