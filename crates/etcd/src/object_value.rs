//! The value of an object in etcd: a header, the selector index, and the JSON in two parts without its resourceVersion.
//! The resourceVersion is inserted when the value is read, because it is not known before the transaction.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | format, 1 |
//! | 1 | position of the object in the transaction that wrote it |
//! | 1 | position of the object in the transaction that created it |
//! | 8 | expiry time in seconds since the Unix epoch, little-endian; 0 if the object does not expire |
//! | 4 | length of the selector index, little-endian |
//! | 4 | length of the JSON before the resourceVersion, little-endian |
//! | … | selector index, JSON before the resourceVersion, JSON after it |

use bytes::Bytes;
use muster_store::{ObjectDraft, SelectorIndex};

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 19;

/// A value of an object, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectValue {
    /// Position of the object in the transaction that wrote it.
    pub(crate) position: u8,
    /// Position of the object in the transaction that created it.
    pub(crate) created_position: u8,
    pub(crate) expires_s: Option<u64>,
    pub(crate) index: SelectorIndex,
    pub(crate) draft: ObjectDraft,
}

/// Why a value cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("the value has format {0}, and this version reads format {FORMAT}: run a newer version")]
    Format(u8),
    #[error("the value is truncated")]
    Truncated,
}

/// Encodes a value. `created_position` is `None` if the transaction creates the object.
pub(crate) fn encode(
    position: u8,
    created_position: Option<u8>,
    expires_s: Option<u64>,
    index: &SelectorIndex,
    draft: &ObjectDraft,
) -> Bytes {
    let index = index.as_bytes();
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut value = Vec::with_capacity(HEADER_BYTES + index.len() + draft.head.len() + draft.tail.len());
    value.extend([FORMAT, position, created_position.unwrap_or(position)]);
    value.extend(expires_s.unwrap_or(0).to_le_bytes());
    value.extend(length(index));
    value.extend(length(&draft.head));
    value.extend(index);
    value.extend(&draft.head);
    value.extend(&draft.tail);
    value.into()
}

pub(crate) fn decode(value: &[u8]) -> Result<ObjectValue, ValueError> {
    match value.first() {
        Some(&FORMAT) => {}
        Some(&format) => return Err(ValueError::Format(format)),
        None => return Err(ValueError::Truncated),
    }
    let (header, rest) = value.split_at_checked(HEADER_BYTES).ok_or(ValueError::Truncated)?;
    let number = |at: usize| {
        let bytes = header[at..at + 4].try_into().expect("a slice of four bytes");
        usize::try_from(u32::from_le_bytes(bytes)).map_err(|_| ValueError::Truncated)
    };
    let expires_s = u64::from_le_bytes(header[3..11].try_into().expect("a slice of eight bytes"));
    let (index, rest) = rest.split_at_checked(number(11)?).ok_or(ValueError::Truncated)?;
    let (head, tail) = rest.split_at_checked(number(15)?).ok_or(ValueError::Truncated)?;
    Ok(ObjectValue {
        position: header[1],
        created_position: header[2],
        expires_s: (expires_s != 0).then_some(expires_s),
        index: SelectorIndex::from_bytes(index),
        draft: ObjectDraft { head: head.to_vec(), tail: tail.to_vec() },
    })
}

/// Returns the position of the object in the transaction that wrote it. The value must have been decoded before.
pub(crate) fn position_of(value: &[u8]) -> u8 {
    value.get(1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_decoded_value_equals_the_encoded_one(
            position in 0_u8..128,
            created in 0_u8..128,
            expires_s in proptest::option::of(1_u64..),
            label in "[a-z]{0,9}",
            head in proptest::collection::vec(any::<u8>(), 0..50),
            tail in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let index = SelectorIndex::new([("a", &*label)], []);
            let draft = ObjectDraft { head, tail };
            let value = encode(position, Some(created), expires_s, &index, &draft);
            let expected = ObjectValue { position, created_position: created, expires_s, index, draft };
            prop_assert_eq!(decode(&value), Ok(expected));
        }

        #[test]
        fn no_value_causes_a_panic(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode(&value);
            let _ = decode(&[&[FORMAT], &*value].concat());
        }
    }

    #[test]
    fn a_value_of_a_newer_format_is_refused() {
        assert_eq!(decode(&[2, 0, 0]), Err(ValueError::Format(2)));
        assert_eq!(decode(&[]), Err(ValueError::Truncated));
    }
}
