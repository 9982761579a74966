//! API requests that controllers make, and their outcomes.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use muster_api::json;
use muster_api::meta_v1::PartialObjectMetadata;
use muster_api::text::Text;
use muster_api::well_known::{
    APPLY_PATCH_MEDIA_TYPE, MERGE_PATCH_MEDIA_TYPE, STRATEGIC_MERGE_PATCH_MEDIA_TYPE,
};
use serde_json::{Value, json};

/// An API request that a controller makes. Its body is a JSON value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub verb: Verb,
    /// URL path of the request, with its query string.
    pub path: String,
    /// Body of the request. `None` for a request without a body, such as a read.
    pub body: Option<Value>,
    /// Whether the response should contain only the metadata of the object (`PartialObjectMetadata`).
    pub metadata_only: bool,
}

/// An API request that a controller makes, ready to be sent: its body is serialized.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodedRequest {
    pub verb: Verb,
    /// URL path of the request, with its query string.
    pub path: String,
    /// Body of the request as JSON. Empty for a request without a body, such as a read.
    pub body: String,
    pub accept: Accept,
    pub priority: Priority,
}

impl From<Request> for EncodedRequest {
    fn from(Request { verb, path, body, metadata_only }: Request) -> Self {
        let accept = if metadata_only { Accept::Metadata } else { Accept::Object };
        let body = body.map(|it| it.to_string()).unwrap_or_default();
        Self { verb, path, body, accept, priority: Priority::Normal }
    }
}

/// The representation that the client requests for a response (header `Accept`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accept {
    /// The response is the whole object or, for a write that returns no object, a `Status`.
    Object,
    /// The response is a `PartialObjectMetadata`.
    Metadata,
    /// The response is a `PartialObjectMetadataList`.
    MetadataList,
}

/// Priority of a request. While the client's rate limit delays requests, requests of the priority `Normal` are sent
/// before those of the priority `Low`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Priority {
    /// The priority of requests that should not be delayed, such as pod creates and deletes. It is the priority of most
    /// requests.
    Normal,
    /// The priority of requests that can wait, such as the status writes of the DaemonSet controller, which only report
    /// state.
    Low,
}

/// The verb of a request, as RBAC names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Get,
    List,
    Create,
    Patch(PatchFormat),
    Update,
    Delete,
}

impl Verb {
    /// Returns the name of the verb in RBAC rules.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
            Self::Patch(_) => "patch",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// The format of a patch: merge patch, strategic merge patch or server-side apply. Upstream: `types.PatchType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PatchFormat {
    /// A JSON merge patch (RFC 7386).
    Merge,
    /// A strategic merge patch. Lists are merged by key, so that one of several owner references can be added or
    /// removed.
    Strategic,
    /// A server-side apply patch.
    Apply,
}

impl PatchFormat {
    /// Returns the media type of this patch format, for the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Merge => MERGE_PATCH_MEDIA_TYPE,
            Self::Strategic => STRATEGIC_MERGE_PATCH_MEDIA_TYPE,
            Self::Apply => APPLY_PATCH_MEDIA_TYPE,
        }
    }
}

/// The result of an API call: the body of the response, or an error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The call succeeded. Holds the body of the response as JSON, usually an object.
    Done(Vec<u8>),
    /// The call failed. Holds the error.
    Refused(CallError),
}

/// The error of a failed API call, classified by how callers react to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallError {
    /// Status 404: the object does not exist.
    NotFound,
    /// Status 409 with the reason `AlreadyExists`: the object to create exists already.
    AlreadyExists,
    /// Status 409 with any other reason: the object has changed since it was read, or a precondition failed.
    Conflict,
    /// Status 401 or 403, without the cause `NamespaceTerminating`: the call is not authorized, or admission refused
    /// it, for example because a quota is exceeded. Holds the message.
    Forbidden(String),
    /// Any other status that is not a success, such as 400 or 422. Usually the request or its object is invalid. Holds
    /// the message.
    Invalid(String),
    /// Status 429 without the cause `DisruptionBudget`. `retry_after` is the delay that the API server requested,
    /// `None` if it requested none.
    TooManyRequests { retry_after: Option<Duration> },
    /// Status 429 with the cause `DisruptionBudget`: a PodDisruptionBudget does not allow the eviction. Holds the
    /// message of the cause, which usually names the PodDisruptionBudget, and the delay that the API server requested.
    DisruptionBudget { message: String, retry_after: Option<Duration> },
    /// Status 5xx, except 504: the API server failed. A write may or may not have been applied. Holds the message.
    Server(String),
    /// No response was received, or a response with status 504. A write may or may not have been applied.
    NoAnswer,
    /// Status 403 with the cause `NamespaceTerminating`: nothing can be created in a terminating namespace.
    NamespaceTerminating,
}

/// Maximum delay that the client accepts from a `Retry-After` header. A longer delay is shortened to this maximum.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

impl CallError {
    /// Returns the delay that the API server requested before the next attempt, at most [`RETRY_AFTER_MAX`]. Zero if
    /// the API server requested no delay, and for any status other than 429.
    pub(crate) fn retry_after(&self) -> Duration {
        match self {
            Self::TooManyRequests { retry_after } | Self::DisruptionBudget { retry_after, .. } => {
                retry_after.unwrap_or_default().min(RETRY_AFTER_MAX)
            }
            _ => Duration::ZERO,
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("not found"),
            Self::AlreadyExists => f.write_str("already exists"),
            Self::Conflict => f.write_str("the object has changed"),
            Self::Forbidden(message) | Self::Invalid(message) | Self::Server(message) => f.write_str(message),
            Self::TooManyRequests { .. } => f.write_str("too many requests"),
            Self::DisruptionBudget { message, .. } => f.write_str(message),
            Self::NoAnswer => f.write_str("no answer in time"),
            Self::NamespaceTerminating => f.write_str("the namespace is being terminated"),
        }
    }
}

/// Returns the body of a request that deletes an object with this UID. If `resource_version` is not `None`, the object
/// is deleted only if it still has this resource version.
pub(crate) fn delete_options(uid: &str, resource_version: Option<u64>) -> Value {
    let mut preconditions = json!({"uid": uid});
    if let Some(version) = resource_version {
        preconditions["resourceVersion"] = version.to_string().into();
    }
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions})
}

/// Returns the owner reference to the controller of an object. A foreground deletion of the controller waits until the
/// object is deleted. Upstream: `metav1.NewControllerRef`.
pub(crate) fn new_controller_ref(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// The object in the response to a write. Only its name and resource version are decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WrittenObject {
    pub(crate) name: Text,
    /// `None` if it is absent or not a number.
    pub(crate) resource_version: Option<u64>,
}

impl WrittenObject {
    /// Decodes the body of a successful response. `None` if the body is not an object with a name.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let PartialObjectMetadata { metadata } = json::from_slice(body).ok()?;
        let resource_version = metadata.resource_version.as_deref().and_then(|it| it.parse().ok());
        Some(Self { name: metadata.name?.as_ref().into(), resource_version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_resource_version_of_a_written_object() {
        let decode =
            |body: &str| WrittenObject::decode(body.as_bytes()).map(|it| (it.name, it.resource_version));
        let name = || Text::from("a");
        assert_eq!(
            decode(r#"{"metadata":{"name":"a","resourceVersion":"7"},"spec":{}}"#),
            Some((name(), Some(7)))
        );
        assert_eq!(decode(r#"{"metadata":{"name":"a","resourceVersion":"x"}}"#), Some((name(), None)));
        assert_eq!(decode(r#"{"metadata":{"name":"a"}}"#), Some((name(), None)));
        for body in [
            "",
            "{}",
            r#"{"metadata":{"resourceVersion":"7"}}"#,
            r#"{"metadata":5}"#,
            r#"{"metadata":{"resourceVersion":"7"}"#,
        ] {
            assert_eq!(decode(body), None, "{body}");
        }
    }
}
