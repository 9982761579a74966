//! Kinds that are served in another version than they are stored in: converted at the door, both ways.

use bytes::Bytes;
use serde_json::Value;

use crate::kinds::Kind;

/// From the version of `kind`, in which the client speaks, to the one that is stored.
pub(crate) fn inward(_kind: &Kind, object: Value) -> Value {
    object
}

/// From the version that is stored to the one of `kind`.
pub(crate) fn outward(_kind: &Kind, stored: Bytes) -> Bytes {
    stored
}
