//! The labels and selectable fields of an object, stored beside its JSON, so that selectors need not parse the object.

use std::fmt;

/// The labels and selectable fields of an object, encoded as pairs of strings in one buffer.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SelectorIndex(Box<[u8]>);

impl SelectorIndex {
    /// Encodes the labels, as pairs of name and value, and the selectable fields, as pairs of path and value.
    pub fn new<'a>(
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut bytes = Vec::new();
        let mut put = |list: u8, (name, value): (&str, &str)| {
            bytes.push(list);
            for text in [name, value] {
                // An object has at most a few megabytes, so the length of a string fits into 32 bits.
                bytes.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
                bytes.extend(text.as_bytes());
            }
        };
        labels.into_iter().for_each(|it| put(LABEL_TAG, it));
        fields.into_iter().for_each(|it| put(FIELD_TAG, it));
        Self(bytes.into())
    }

    /// Returns the value of a label, or `None` if the object does not have the label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels().find(|(it, _)| *it == name).map(|(_, value)| value)
    }

    /// Returns the value of a selectable field, or `None` if the index does not contain the field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields().find(|(it, _)| *it == name).map(|(_, value)| value)
    }

    /// Returns all labels as pairs of name and value.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs_with_tag(LABEL_TAG)
    }

    /// Returns all selectable fields as pairs of path and value.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs_with_tag(FIELD_TAG)
    }

    /// Returns the pairs with this tag, which is `LABEL_TAG` or `FIELD_TAG`.
    fn pairs_with_tag(&self, tag: u8) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || read_pair(&mut rest))
            .filter(move |(list, _, _)| *list == tag)
            .map(|(_, name, value)| (name, value))
    }

    /// Returns the encoded index, as the log stores it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the index with the encoding `bytes`, which [`SelectorIndex::as_bytes`] returned. The encoding is not
    /// checked here: the storage has verified the bytes, and invalid bytes end the list of pairs.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

/// Tag byte before the pair of a label.
const LABEL_TAG: u8 = b'l';
/// Tag byte before the pair of a selectable field.
const FIELD_TAG: u8 = b'f';

/// Decodes the next pair, and returns its tag, name and value. Advances `rest` past the pair. Returns `None` at the end
/// of the bytes and for invalid bytes.
fn read_pair<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a str, &'a str)> {
    let (list, after) = rest.split_first()?;
    *rest = after;
    Some((*list, read_text(rest)?, read_text(rest)?))
}

/// Decodes the next string, which is encoded as its length in four bytes and its text. Returns `None` for invalid
/// bytes. Advances `rest` past the string.
fn read_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (len, after) = rest.split_first_chunk::<4>()?;
    let (text, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
    *rest = after;
    str::from_utf8(text).ok()
}

impl fmt::Debug for SelectorIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.labels().map(|it| ('l', it)).chain(self.fields().map(|it| ('f', it)));
        f.debug_list().entries(pairs).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn encoding_is_lossless(
            labels in prop::collection::vec((".{0,9}", ".{0,9}"), 0..4),
            fields in prop::collection::vec((".{0,9}", ".{0,9}"), 0..4),
        ) {
            fn borrow(pairs: &[(String, String)]) -> Vec<(&str, &str)> {
                pairs.iter().map(|(name, value)| (&**name, &**value)).collect()
            }
            let index = SelectorIndex::new(borrow(&labels), borrow(&fields));
            let index = SelectorIndex::from_bytes(index.as_bytes());
            prop_assert_eq!(index.labels().collect::<Vec<_>>(), borrow(&labels));
            prop_assert_eq!(index.fields().collect::<Vec<_>>(), borrow(&fields));
        }

        #[test]
        fn any_bytes_decode_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let index = SelectorIndex::from_bytes(&bytes);
            prop_assert!(index.labels().count() + index.fields().count() <= bytes.len());
        }
    }
}
