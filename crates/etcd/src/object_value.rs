//! The value of an object in etcd: a header, the selector index, and the JSON of the object without its
//! resourceVersion. The JSON is split in two parts where the resourceVersion was. The resourceVersion is inserted when
//! the value is read, because it is not known before the transaction that writes the value.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | format: 1, or 2 if the JSON is encrypted |
//! | 1 | position of the object in the transaction that wrote it |
//! | 1 | position of the object in the transaction that created it |
//! | 8 | expiry time in seconds since the Unix epoch, little-endian; 0 if the object does not expire |
//! | 4 | length of the selector index, little-endian |
//! | 4 | length of the JSON before the resourceVersion, little-endian |
//! | … | selector index, JSON before the resourceVersion, JSON after it |
//!
//! In format 2 both parts of the JSON are encrypted together. The selector index, which has labels and selectable
//! fields, is not encrypted.

use bytes::Bytes;
use muster_store::{DecryptError, EncryptionKeys, ObjectDraft, SelectorIndex};

use crate::keyspace::POSITION_MAX;

/// Value format of an object whose JSON is not encrypted.
const FORMAT: u8 = 1;
/// Value format of an object whose JSON is encrypted.
const FORMAT_ENCRYPTED: u8 = 2;
/// Length of the header of a value: all fields before the selector index.
const HEADER_BYTES: usize = 19;

/// The decoded value of an object in etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectValue {
    /// Position of the object in the transaction that last wrote it.
    pub(crate) position: u8,
    /// Position of the object in the transaction that created it.
    pub(crate) created_position: u8,
    /// Expiry time in seconds since the Unix epoch. `None` if the object does not expire.
    pub(crate) expires_s: Option<u64>,
    pub(crate) index: SelectorIndex,
    pub(crate) draft: ObjectDraft,
}

/// Why a value cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("the value has format {0}, which this version does not know: run a newer version")]
    Format(u8),
    #[error("the value is truncated")]
    Truncated,
    #[error("the value has position {0}, and a transaction has at most 128 operations")]
    Position(u8),
    #[error("the value cannot be decrypted: {0}")]
    Decrypt(#[from] DecryptError),
    #[error("the value is encrypted, and the server has no encryption keys")]
    NoKeys,
}

/// Encodes and decodes the values of objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectCodec {
    /// The keys that encrypt Secrets. `None` if Secrets are not encrypted.
    pub(crate) encryption: Option<EncryptionKeys>,
}

/// The revision that is passed to the encryption of every value. The real revision cannot be used, because it is not
/// known before the transaction. So the encryption binds a value to its store key, but not to a revision.
const ENCRYPTION_REVISION: u64 = 0;

impl ObjectCodec {
    /// Encodes the value of the object with the store key `key`. `position` is the position of the object in the
    /// transaction that writes the value. `created_position` is the position in the transaction that created the
    /// object, or `None` if this transaction creates it. Fails if the value cannot be encrypted.
    pub(crate) fn encode(
        &self,
        key: &str,
        position: u8,
        created_position: Option<u8>,
        expires_s: Option<u64>,
        index: &SelectorIndex,
        draft: &ObjectDraft,
    ) -> Result<Bytes, String> {
        let encrypted = match &self.encryption {
            Some(keys) => keys.encrypt(key, ENCRYPTION_REVISION, &[&*draft.head, &*draft.tail].concat())?,
            None => None,
        };
        let index = index.as_bytes();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        let body = encrypted.as_ref().map_or(draft.head.len() + draft.tail.len(), Vec::len);
        let mut value = Vec::with_capacity(HEADER_BYTES + index.len() + body);
        let format = if encrypted.is_some() { FORMAT_ENCRYPTED } else { FORMAT };
        value.extend([format, position, created_position.unwrap_or(position)]);
        value.extend(expires_s.unwrap_or(0).to_le_bytes());
        value.extend(length(index));
        value.extend(length(&draft.head));
        value.extend(index);
        match encrypted {
            Some(encrypted) => value.extend(encrypted),
            None => {
                value.extend(&draft.head);
                value.extend(&draft.tail);
            }
        }
        Ok(value.into())
    }

    /// Decodes the value of the object with the store key `key`.
    pub(crate) fn decode(&self, key: &str, value: &[u8]) -> Result<ObjectValue, ValueError> {
        let is_encrypted = match value.first() {
            Some(&FORMAT) => false,
            Some(&FORMAT_ENCRYPTED) => true,
            Some(&format) => return Err(ValueError::Format(format)),
            None => return Err(ValueError::Truncated),
        };
        let (header, rest) = value.split_at_checked(HEADER_BYTES).ok_or(ValueError::Truncated)?;
        let number = |at: usize| {
            let bytes = header[at..at + 4].try_into().expect("a slice of four bytes");
            usize::try_from(u32::from_le_bytes(bytes)).map_err(|_| ValueError::Truncated)
        };
        let expires_s = u64::from_le_bytes(header[3..11].try_into().expect("a slice of eight bytes"));
        if let Some(position) = header[1..3].iter().find(|it| POSITION_MAX < **it) {
            return Err(ValueError::Position(*position));
        }
        let (index, body) = rest.split_at_checked(number(11)?).ok_or(ValueError::Truncated)?;
        let decrypted = match &self.encryption {
            _ if !is_encrypted => None,
            Some(keys) => Some(keys.decrypt(key, ENCRYPTION_REVISION, body)?.ok_or(ValueError::Truncated)?),
            None => return Err(ValueError::NoKeys),
        };
        let json = decrypted.as_deref().unwrap_or(body);
        let (head, tail) = json.split_at_checked(number(15)?).ok_or(ValueError::Truncated)?;
        Ok(ObjectValue {
            position: header[1],
            created_position: header[2],
            expires_s: (expires_s != 0).then_some(expires_s),
            index: SelectorIndex::from_bytes(index),
            draft: ObjectDraft { head: head.to_vec(), tail: tail.to_vec() },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_new_keys() -> ObjectCodec {
        let dir = tempfile::tempdir().unwrap();
        let keys = EncryptionKeys::write_file_with_new_key(None, &dir.path().join("keys")).unwrap();
        ObjectCodec { encryption: Some(keys) }
    }

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
            let expected =
                ObjectValue { position, created_position: created, expires_s, index: index.clone(), draft: draft.clone() };
            for codec in [ObjectCodec::default(), with_new_keys()] {
                for key in ["pods/default/a", "secrets/default/a"] {
                    let value = codec.encode(key, position, Some(created), expires_s, &index, &draft).unwrap();
                    prop_assert_eq!(codec.decode(key, &value), Ok(expected.clone()));
                }
            }
        }

        #[test]
        fn no_value_causes_a_panic(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            for codec in [ObjectCodec::default(), with_new_keys()] {
                let _ = codec.decode("secrets/a/b", &value);
                let _ = codec.decode("secrets/a/b", &[&[FORMAT], &*value].concat());
                let _ = codec.decode("secrets/a/b", &[&[FORMAT_ENCRYPTED], &*value].concat());
            }
        }
    }

    #[test]
    fn secrets_are_encrypted_for_their_key() {
        let draft = ObjectDraft { head: b"{\"password\":\"".to_vec(), tail: b"\"}".to_vec() };
        let codec = with_new_keys();
        let contains = |value: &[u8]| value.windows(8).any(|it| it == b"password");
        let encode = |key| codec.encode(key, 0, None, None, &SelectorIndex::default(), &draft).unwrap();
        let secret = encode("secrets/default/a");
        assert!(!contains(&secret) && contains(&encode("configmaps/default/a")));
        let moved = codec.decode("secrets/default/b", &secret);
        assert_eq!(moved, Err(ValueError::Decrypt(DecryptError::Changed)));
        let unreadable = with_new_keys().decode("secrets/default/a", &secret);
        assert!(matches!(unreadable, Err(ValueError::Decrypt(DecryptError::NoKey(_)))), "{unreadable:?}");
        assert_eq!(ObjectCodec::default().decode("secrets/default/a", &secret), Err(ValueError::NoKeys));
    }

    #[test]
    fn a_value_that_no_server_of_this_version_writes_is_refused() {
        let codec = ObjectCodec::default();
        assert_eq!(codec.decode("pods/a/b", &[3, 0, 0]), Err(ValueError::Format(3)));
        assert_eq!(codec.decode("pods/a/b", &[]), Err(ValueError::Truncated));
        let of_no_transaction = [&[FORMAT, 128][..], &[0; HEADER_BYTES - 2]].concat();
        assert_eq!(codec.decode("pods/a/b", &of_no_transaction), Err(ValueError::Position(128)));
    }
}
