//! Lists of objects. A list is complete or in pages. It contains the current objects, or the objects at a past
//! revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::{DecodeError, Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use bytes::Bytes;
use muster_store::{CompactedError, Revision, Store, StoredObject};
use serde_json::{Value, json};

use super::ObjectStorage;
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::selector::ObjectSelector;

/// Options of a list request.
#[derive(Debug, Default)]
pub(crate) struct ListOptions {
    pub(crate) selector: ObjectSelector,
    /// Maximum number of objects in a page. 0 means no limit.
    pub(crate) limit: usize,
    /// The revision whose objects are listed, and the start of the page.
    pub(crate) from: ListStart,
}

/// The revision that a list reads, and the key at which its page starts.
#[derive(Debug, Default)]
pub(crate) enum ListStart {
    /// The current objects, from the first key.
    #[default]
    Now,
    /// The objects at this revision, from the first key.
    At(Revision),
    /// The next page of an earlier list.
    Page(ContinueToken),
}

impl ListStart {
    /// Returns the revision whose objects are listed, or 0 for the current objects.
    pub(crate) fn revision(&self) -> Revision {
        match self {
            Self::Now => 0,
            Self::At(revision) => *revision,
            Self::Page(token) => token.at.unwrap_or(0),
        }
    }
}

/// The decoded query parameter `continue`, which says where the next page of a list starts. The client may have forged
/// it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ContinueToken {
    /// The revision of the first page, at which all further pages are read. `None` if the next page contains the
    /// current objects.
    at: Option<Revision>,
    /// The key at which the next page begins, without the key prefix of the list: the last key of the previous page,
    /// followed by a NUL byte.
    start: String,
}

/// One page of a list.
#[derive(Debug)]
pub(crate) struct ListPage {
    /// The objects of the page as JSON.
    pub(crate) objects: Vec<Bytes>,
    pub(crate) meta: ListMeta,
}

/// The metadata of a list. Upstream: `metav1.ListMeta`.
#[derive(Debug)]
pub(crate) struct ListMeta {
    /// The revision of the list, which clients see as `resourceVersion`.
    pub(crate) revision: Revision,
    /// Continue token of the next page. Empty if this is the last page.
    pub(crate) continue_token: String,
    /// Number of objects in later pages. `None` if the list has a selector, or if this is the last page.
    pub(crate) remaining: Option<usize>,
}

impl ObjectStorage {
    /// Returns the JSON of all matching objects of a kind, and the current revision.
    pub(crate) fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: &ObjectSelector,
    ) -> (Vec<Bytes>, Revision) {
        let (records, revision) = self.list_records(kind, namespace, selector);
        (records.iter().map(|it| it.value.clone()).collect(), revision)
    }

    /// Returns all matching objects of a kind as the store has them (JSON, revisions and selector index), and the
    /// current revision.
    pub(crate) fn list_records(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: &ObjectSelector,
    ) -> (Vec<Arc<StoredObject>>, Revision) {
        let prefix = list_prefix(kind, namespace);
        let store = self.read_store();
        // A selector for one name is a lookup by key.
        if let (Some(name), true) =
            (selector.required_value("metadata.name"), !kind.namespaced || namespace.is_some())
        {
            let found = store.get(&format!("{prefix}{name}")).filter(|it| selector.matches(it));
            return (found.cloned().into_iter().collect(), store.revision());
        }
        let all = store.list(&prefix);
        (all.filter(|it| selector.matches(it)).cloned().collect(), store.revision())
    }

    /// Returns a page of the matching objects at `revision`, from the key `start` on. Also returns the key at which the
    /// next page starts, or `None` if this is the last page. Fails if the history does not reach back to `revision`.
    ///
    /// A page has at most `records_max` objects, and ends after the object with which it reaches `bytes_max` bytes. A
    /// slow reader holds only the objects of one page in memory. The history keeps the objects of later pages until it
    /// is compacted.
    pub(crate) fn records_page_at(
        &self,
        revision: Revision,
        (prefix, start): (&str, &str),
        selector: &ObjectSelector,
        (records_max, bytes_max): (usize, usize),
    ) -> Result<(Vec<Arc<StoredObject>>, Option<String>), CompactedError> {
        let store = self.read_store();
        let (mut records, mut bytes) = (Vec::new(), 0);
        for record in records_at_revision(&store, prefix, start, revision)?.filter(|it| selector.matches(it))
        {
            if records.len() == records_max || bytes_max <= bytes {
                return Ok((records, Some(record.key.to_string())));
            }
            bytes += record.value.len();
            records.push(record.clone());
        }
        Ok((records, None))
    }

    /// Returns the page of a list that `options` describe. Fails if the revision of the list was compacted, or if the
    /// store has not reached it.
    pub(crate) fn list_page(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        options: &ListOptions,
    ) -> Result<ListPage, ApiError> {
        let prefix = list_prefix(kind, namespace);
        let (at, start) = match &options.from {
            ListStart::Now => (None, prefix.clone()),
            ListStart::At(revision) => (Some(*revision), prefix.clone()),
            ListStart::Page(it) => (it.at, format!("{prefix}{}", it.start)),
        };
        let selector = &options.selector;
        if options.limit == 0 && at.is_none() && start == prefix {
            let (objects, revision) = self.list(kind, namespace, selector);
            return Ok(ListPage {
                objects,
                meta: ListMeta { revision, continue_token: String::new(), remaining: None },
            });
        }
        let store = self.read_store();
        let revision = at.unwrap_or(store.revision());
        if store.revision() < revision {
            return Err(ApiError::resource_version_too_large(revision, store.revision()));
        }
        let records =
            records_at_revision(&store, &prefix, &start, revision).map_err(|_| match &options.from {
                ListStart::Page(it) => ApiError::continue_token_expired(
                    &ContinueToken { at: None, start: it.start.clone() }.encode(),
                ),
                ListStart::Now | ListStart::At(_) => {
                    ApiError::resource_expired("The resourceVersion for the provided list is too old.")
                }
            })?;
        let records: Vec<_> = records.cloned().collect();
        drop(store);

        let mut chosen = records.iter().enumerate().filter(|(_, it)| selector.matches(it));
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        let page: Vec<_> = chosen.by_ref().take(limit).collect();
        let is_more = match page.last() {
            Some((last, _)) if page.len() == limit => last + 1 < records.len(),
            _ => false,
        };
        let last = page.last().filter(|_| is_more);
        let next = last.map_or_else(String::new, |(_, last)| {
            // The smallest key that is greater than the last one.
            let start = format!("{}\0", last.key.strip_prefix(&*prefix).unwrap_or_default());
            ContinueToken { at: Some(revision), start }.encode()
        });
        // Later objects were not matched against the selector, so with one the number is unknown.
        let remaining = last.filter(|_| selector.is_empty()).map(|(last, _)| records.len() - last - 1);
        let objects = page.into_iter().map(|(_, it)| it.value.clone()).collect();
        Ok(ListPage { objects, meta: ListMeta { revision, continue_token: next, remaining } })
    }
}

/// Returns the prefix of the store keys of the objects in a list. Cluster-scoped objects have an empty namespace in
/// their key.
fn list_prefix(kind: &Kind, namespace: Option<&str>) -> String {
    kind.store_key_prefix(namespace.or_else(|| (!kind.namespaced).then_some("")))
}

/// Returns the objects with this key prefix as they were at `revision`, from the key `start` on, ordered by key. Fails
/// if the history does not reach back to `revision`.
fn records_at_revision<'a>(
    store: &'a Store,
    prefix: &'a str,
    start: &str,
    revision: Revision,
) -> Result<impl Iterator<Item = &'a Arc<StoredObject>>, CompactedError> {
    let mut changed: BTreeMap<&str, Option<&Arc<StoredObject>>> = BTreeMap::new();
    if revision != store.revision() {
        for event in store.commits_since(prefix, revision)?.filter(|it| start <= &*it.key) {
            // The first change after `revision` has the object as it was before that change.
            changed.entry(&event.key).or_insert(event.previous_object());
        }
    }
    let mut before = changed.values().copied().flatten().collect::<Vec<_>>().into_iter().peekable();
    let unchanged = store.list_from(prefix, start).filter(move |it| !changed.contains_key(&*it.key));
    let mut unchanged = unchanged.peekable();
    Ok(std::iter::from_fn(move || match (unchanged.peek(), before.peek()) {
        (Some(one), Some(other)) if other.key < one.key => before.next(),
        (Some(_), _) => unchanged.next(),
        (None, _) => before.next(),
    }))
}

impl ContinueToken {
    /// Format version of the token, which is upstream's.
    const CONTINUE_TOKEN_VERSION: &str = "meta.k8s.io/v1";

    /// Encodes the token as the `continue` field of a list, in upstream's format.
    fn encode(&self) -> String {
        // Upstream encodes the current state as -1.
        let at = self.at.and_then(|it| i64::try_from(it).ok()).unwrap_or(-1);
        BASE64.encode(json!({"v": Self::CONTINUE_TOKEN_VERSION, "rv": at, "start": self.start}).to_string())
    }

    /// Decodes the `continue` parameter. Returns an error message if it is invalid. A forged token gives no access to
    /// objects outside the list, because `start` can only shorten the list.
    pub(crate) fn parse(token: &str) -> Result<Self, String> {
        /// Beginning of the error messages for an invalid token.
        const INVALID_TOKEN_MESSAGE: &str = "continue key is not valid";
        let json = BASE64.decode(token).map_err(|error| {
            let at = match error {
                DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
                DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => token.len() / 4 * 4,
            };
            format!("{INVALID_TOKEN_MESSAGE}: illegal base64 data at input byte {at}")
        })?;
        let fields: Value =
            serde_json::from_slice(&json).map_err(|error| format!("{INVALID_TOKEN_MESSAGE}: {error}"))?;
        let (version, at) =
            (fields["v"].as_str().unwrap_or_default(), fields["rv"].as_i64().unwrap_or_default());
        let start = fields["start"].as_str().unwrap_or_default();
        if version != Self::CONTINUE_TOKEN_VERSION {
            return Err(format!(
                "{INVALID_TOKEN_MESSAGE}: server does not recognize this encoded version {version}"
            ));
        }
        if at == 0 {
            return Err(format!(
                "{INVALID_TOKEN_MESSAGE}: incorrect encoded start resourceVersion (version {version})"
            ));
        }
        if start.is_empty() {
            return Err(format!("{INVALID_TOKEN_MESSAGE}: encoded start key empty (version {version})"));
        }
        let is_step = |it: &str| matches!(it, "" | "." | "..");
        if start.strip_prefix('/').unwrap_or(start).split('/').any(is_step) {
            return Err(format!("{INVALID_TOKEN_MESSAGE}: {start}"));
        }
        Ok(Self { at: u64::try_from(at).ok(), start: start.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_token_is_upstreams() {
        let it = ContinueToken { at: Some(3221), start: "default/ds-2wc24\0".into() };
        let json = String::from_utf8(BASE64.decode(it.encode()).unwrap()).unwrap();
        assert_eq!(json, r#"{"rv":3221,"start":"default/ds-2wc24\u0000","v":"meta.k8s.io/v1"}"#);
        assert_eq!(ContinueToken::parse(&it.encode()), Ok(it));
    }

    proptest! {
        #[test]
        fn no_token_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..60), start in ".{0,9}", rv in any::<i64>()) {
            let _ = ContinueToken::parse(&String::from_utf8_lossy(&bytes));
            let _ = ContinueToken::parse(&BASE64.encode(&bytes));
            let token = BASE64.encode(json!({"v": ContinueToken::CONTINUE_TOKEN_VERSION, "rv": rv, "start": start}).to_string());
            if let Ok(it) = ContinueToken::parse(&token) {
                prop_assert!(!it.start.is_empty());
            }
        }
    }
}
