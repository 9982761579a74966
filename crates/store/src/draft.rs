//! Inserts the resourceVersion into the JSON of an object. A writer does not know the resourceVersion, because the
//! revision is assigned only when the backend orders the commit.

use std::ops::Range;

use bytes::Bytes;

use crate::Revision;

/// The JSON of an object without its resourceVersion, which the commit inserts between `head` and `tail`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectDraft {
    /// The JSON before the resourceVersion. It ends with the opening quote.
    pub head: Vec<u8>,
    /// The JSON after the resourceVersion. It begins with the closing quote.
    pub tail: Vec<u8>,
}

impl ObjectDraft {
    /// Splits the JSON of an object around its resourceVersion. Returns `None` if the object has no resourceVersion.
    pub fn split(object: &[u8]) -> Option<Self> {
        let version = resource_version_range(object)?;
        Some(Self { head: object[..version.start].to_vec(), tail: object[version.end..].to_vec() })
    }

    /// Returns the object's JSON with `revision` as its resourceVersion.
    pub fn with_revision(&self, revision: Revision) -> Bytes {
        join_with_revision(&self.head, revision, &self.tail)
    }
}

/// Returns the object with `revision` as its resourceVersion. An object without a resourceVersion is returned
/// unchanged.
///
/// It is used for the watch events of a deleted object and of an object that no longer matches the selector of the
/// watch. Both events carry the last matching state with the revision of the change.
pub fn with_resource_version(object: &Bytes, revision: Revision) -> Bytes {
    match resource_version_range(object) {
        Some(version) => join_with_revision(&object[..version.start], revision, &object[version.end..]),
        None => object.clone(),
    }
}

/// Joins `head`, the revision and `tail`. The result stays in memory, so it is allocated with its exact length.
fn join_with_revision(head: &[u8], revision: Revision, tail: &[u8]) -> Bytes {
    [head, revision.to_string().as_bytes(), tail].concat().into()
}

/// Returns the byte range of the value of `metadata.resourceVersion` without its quotes, or `None` if the object has no
/// resourceVersion. Scans the JSON instead of parsing it.
fn resource_version_range(object: &[u8]) -> Option<Range<usize>> {
    let metadata = find_member_value(object, 0, b"metadata")?;
    let version = find_member_value(object, metadata, b"resourceVersion")?;
    if object.get(version) != Some(&b'"') {
        return None;
    }
    Some(version + 1..find_string_end(object, version)?)
}

/// Returns the position of the value of the member `name` in a JSON object, or `None` if the object has no such member.
/// `start` is the position of the opening brace of the object. The JSON must have no whitespace between tokens.
fn find_member_value(json: &[u8], start: usize, name: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (start, 0_usize);
    loop {
        match json.get(at)? {
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth <= 1 => return None,
            b'}' | b']' => depth -= 1,
            b'"' => {
                let end = find_string_end(json, at)?;
                if depth == 1 && json.get(end + 1) == Some(&b':') && json[at + 1..end] == *name {
                    return Some(end + 2);
                }
                at = end;
            }
            _ => {}
        }
        at += 1;
    }
}

/// Returns the position of the closing quote of the string whose opening quote is at `start`, or `None` if the string
/// does not end.
fn find_string_end(json: &[u8], start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        match json.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(object: &str, expected: &str) {
        let object = Bytes::from(object.to_owned());
        assert_eq!(with_resource_version(&object, 17), expected);
        let draft = ObjectDraft::split(&object).map(|it| it.with_revision(17));
        assert_eq!(draft.unwrap_or(object), expected);
    }

    #[test]
    fn only_the_version_of_the_object_itself_is_replaced() {
        check(
            r#"{"kind":"A","metadata":{"resourceVersion":"3","name":"a"}}"#,
            r#"{"kind":"A","metadata":{"resourceVersion":"17","name":"a"}}"#,
        );
        // Arbitrary JSON in a ControllerRevision, in strings and in metadata itself.
        check(
            r#"{"data":{"metadata":{"resourceVersion":"3"}},"l":[{"metadata":{"resourceVersion":"3"}}],"metadata":{"annotations":{"resourceVersion":"3","x":"\"metadata\":{\"resourceVersion\":\"3\"\\"},"f":{"metadata":{"resourceVersion":"3"}},"resourceVersion":"3"}}"#,
            r#"{"data":{"metadata":{"resourceVersion":"3"}},"l":[{"metadata":{"resourceVersion":"3"}}],"metadata":{"annotations":{"resourceVersion":"3","x":"\"metadata\":{\"resourceVersion\":\"3\"\\"},"f":{"metadata":{"resourceVersion":"3"}},"resourceVersion":"17"}}"#,
        );
        for without in
            [r#"{"metadata":{"name":"resourceVersion"},"resourceVersion":"3"}"#, "{}", "", "x@3", "{\"a\\"]
        {
            check(without, without);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in "[{}\\[\\]\":,\\\\a]{0,40}", name in "a{0,2}") {
            let _ = find_member_value(bytes.as_bytes(), 0, name.as_bytes());
            let _ = with_resource_version(&Bytes::from(bytes), 1);
        }
    }
}
