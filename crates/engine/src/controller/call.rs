//! API requests and their outcomes.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde_json::Value;

/// An API request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub verb: Verb,
    pub path: String,
    /// `None` for a read.
    pub body: Option<Value>,
    /// Only metadata is requested (`PartialObjectMetadata`).
    pub metadata_only: bool,
}

/// A request as it is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodedRequest {
    pub verb: Verb,
    pub path: String,
    /// Empty for a read.
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

/// What the response is to contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accept {
    Object,
    /// `PartialObjectMetadata`
    Metadata,
    /// `PartialObjectMetadataList`
    MetadataList,
}

/// Which calls go first when a rate limit delays some.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Priority {
    Normal,
    /// Status writes only report the state; writes that change it go first.
    Low,
}

/// The verb of a request, as RBAC names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Get,
    List,
    Create,
    Patch(Patch),
    Update,
    Delete,
}

impl Verb {
    /// The name of the verb in RBAC rules.
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

/// The type of a patch. Upstream: `types.PatchType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Patch {
    Merge,
    /// Lists are merged by key: one of several owner references can be added or removed.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl Patch {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// The outcome of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// With the body of the response, usually an object.
    Done(Vec<u8>),
    Refused(CallError),
}

/// Why a call failed, sorted by what the caller does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallError {
    NotFound,
    AlreadyExists,
    /// 409: the object has changed, or another object has its name.
    Conflict,
    /// 403, including quota.
    Forbidden(String),
    /// 422
    Invalid(String),
    /// 429
    TooManyRequests {
        retry_after: Option<Duration>,
    },
    /// 5xx: the write may or may not have been applied.
    Server(String),
    /// No response: the write may or may not have been applied.
    NoAnswer,
    NamespaceTerminating,
}

/// Longest `Retry-After` that is respected.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

impl CallError {
    /// How long the server asks the client to wait, at most [`RETRY_AFTER_MAX`].
    pub(crate) fn retry_after(&self) -> Duration {
        match self {
            Self::TooManyRequests { retry_after } => retry_after.unwrap_or_default().min(RETRY_AFTER_MAX),
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
            Self::NoAnswer => f.write_str("no answer in time"),
            Self::NamespaceTerminating => f.write_str("the namespace is being terminated"),
        }
    }
}
