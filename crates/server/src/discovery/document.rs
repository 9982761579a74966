//! Discovery and OpenAPI documents. Each is built on first use and kept as bytes, with its hash as ETag. When a kind is
//! added or removed, the documents are built again on their next use.

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use ring::digest::{SHA256, digest};

use crate::kinds::ServedKinds;

/// A discovery or OpenAPI document.
#[derive(Debug, Clone)]
pub(crate) struct ApiDocument {
    pub(crate) media_type: &'static str,
    pub(crate) bytes: Bytes,
    /// SHA-256 of the content, sent as the ETag. A client compares it to see whether its copy is current.
    pub(crate) hash: String,
}

impl ApiDocument {
    pub(crate) fn new(media_type: &'static str, content: impl Into<Bytes>) -> Self {
        let bytes = content.into();
        let hash = digest(&SHA256, &bytes).as_ref().iter().map(|it| format!("{it:02X}")).collect();
        Self { media_type, bytes, hash }
    }
}

/// Documents that depend only on the served kinds. They are kept until they are requested for other kinds, which in a
/// process with one server happens only after a kind was added or removed.
#[derive(Debug)]
pub(crate) struct DocumentCache<T>(RwLock<Option<(Arc<ServedKinds>, Arc<T>)>>);

impl<T> DocumentCache<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(None))
    }

    /// Returns the documents for these kinds. `build` builds them if they are not in the cache.
    pub(crate) fn get(&self, kinds: &Arc<ServedKinds>, build: impl FnOnce(&Arc<ServedKinds>) -> T) -> Arc<T> {
        if let Some((of, documents)) = &*self.0.read().unwrap_or_else(PoisonError::into_inner)
            && Arc::ptr_eq(of, kinds)
        {
            return documents.clone();
        }
        let documents = Arc::new(build(kinds));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some((kinds.clone(), documents.clone()));
        documents
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn the_hash_is_of_the_content() {
        let hash = |content: &'static str| ApiDocument::new("text/plain", content).hash;
        expect!["E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855"].assert_eq(&hash(""));
        assert_ne!(hash("a"), hash("b"));
    }
}
