//! The object or subresource that a request reads or writes.

use crate::error::ApiError;
use crate::kinds::Kind;
use crate::subresource::Subresource;

/// The object or subresource that a request reads or writes.
#[derive(Debug, Clone)]
pub(crate) struct RequestTarget {
    pub(crate) kind: &'static Kind,
    /// Namespace of the object. `None` for a cluster-scoped object.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// The subresource that the request reads or writes, or `Subresource::Whole` for the object itself.
    pub(crate) subresource: Subresource,
}

impl RequestTarget {
    /// Returns the store key of the object.
    pub(crate) fn key(&self) -> String {
        self.kind.store_key(self.namespace.as_deref(), &self.name)
    }

    /// Returns the error for a request whose object does not exist.
    pub(crate) fn not_found_error(&self) -> ApiError {
        ApiError::not_found(self.kind, &self.name)
    }
}
