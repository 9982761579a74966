//! Errors of the API, sent as the `Status` object that clients expect. Upstream: `apierrors.StatusError`.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::kinds::{Kind, qualified_resource};
use crate::small_map::SmallSet;
use crate::validation::FieldError;

/// A failed request, with the fields of the `Status` object that the client receives.
#[derive(Debug)]
pub(crate) struct ApiError {
    /// HTTP status code of the response.
    pub(crate) code: StatusCode,
    /// `reason` of the `Status`, such as `NotFound`. Empty if the `Status` has none.
    reason: &'static str,
    message: String,
    /// `details` of the `Status`: the object, the causes and the seconds to wait before a retry. Null if the `Status`
    /// has none.
    details: Value,
    /// `metadata` of the `Status`. If the continue token of the request has expired, it contains a new continue token.
    metadata: Value,
}

impl ApiError {
    /// Returns the error for an object that does not exist (404).
    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            format!("{} \"{name}\" not found", kind.group_resource()),
        )
        .with_details(kind, name)
    }

    /// Returns the error for a create of an object whose name is in use (409).
    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.group_resource());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with_details(kind, name)
    }

    /// Returns the error for a create with `generateName` when every generated name was in use (409). `name` is the
    /// last generated name.
    pub(crate) fn name_generation_failed(kind: &Kind, name: &str) -> Self {
        let message = format!(
            "{} \"{name}\" already exists, the server was not able to generate a unique name for the object",
            kind.group_resource()
        );
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).with_details(kind, name)
    }

    /// Whether the status code is 404 or 409.
    pub(crate) fn is_not_found_or_conflict(&self) -> bool {
        matches!(self.code, StatusCode::NOT_FOUND | StatusCode::CONFLICT)
    }

    /// Returns the error with `text` inserted at the start of its message.
    pub(crate) fn with_message_prefix(mut self, text: &str) -> Self {
        self.message.insert_str(0, text);
        self
    }

    /// Whether the reason is `NotFound`.
    pub(crate) fn is_not_found(&self) -> bool {
        self.reason == "NotFound"
    }

    /// Whether the reason is `AlreadyExists`.
    pub(crate) fn is_already_exists(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    /// Returns the error for a write whose precondition does not hold (409).
    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.group_resource());
        Self::new(StatusCode::CONFLICT, "Conflict", message).with_details(kind, name)
    }

    /// Like [`Self::conflict`], but message and details name the kind, such as `Pod`, instead of the resource. Upstream
    /// does so for the preconditions of a delete, and for a TokenRequest whose UID does not match.
    pub(crate) fn conflict_naming_kind(group: &str, kind: &str, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified_resource(kind, group));
        let mut error = Self::new(StatusCode::CONFLICT, "Conflict", message);
        error.details = json!({"name": name, "group": group, "kind": kind});
        error
    }

    /// Returns the error for a write that is refused for a reason other than authorization, mostly by admission (403).
    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.group_resource());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).with_details(kind, name)
    }

    /// Returns the error for a request that authorization does not allow (403). The resource may be one that the server
    /// does not serve.
    pub(crate) fn not_authorized(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let resource = qualified_resource(plural, group);
        let message = match (resource.as_str(), name) {
            ("", _) => format!("forbidden: {why}"),
            (resource, "") => format!("{resource} is forbidden: {why}"),
            (resource, name) => format!("{resource} \"{name}\" is forbidden: {why}"),
        };
        let mut error = Self::new(StatusCode::FORBIDDEN, "Forbidden", message);
        let details = [("name", name), ("group", group), ("kind", plural)];
        error.details = details.into_iter().filter(|(_, it)| !it.is_empty()).collect();
        error
    }

    /// Returns the error for an object with invalid fields (422).
    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[FieldError]) -> Self {
        Self::invalid_of_kind(kind.group, kind.kind, name, causes)
    }

    /// Returns the error for invalid options of a request, as opposed to an invalid object (422). `kind` is the kind of
    /// the options, such as `DeleteOptions`.
    pub(crate) fn invalid_options(kind: &str, causes: &[FieldError]) -> Self {
        Self::invalid_of_kind("meta.k8s.io", kind, "", causes)
    }

    /// Returns the error for an update without a `resourceVersion`, for a kind that requires one. As in upstream, the
    /// error names the resource and not the kind.
    pub(crate) fn resource_version_required(kind: &Kind, name: &str) -> Self {
        let cause = FieldError::invalid("metadata.resourceVersion", 0_i64, "must be specified for an update");
        Self::invalid_of_kind(kind.group, kind.plural, name, &[cause])
    }

    /// Returns the error for a patch whose result cannot be decoded as an object of the kind (422).
    pub(crate) fn invalid_patch(cause: FieldError) -> Self {
        Self::invalid_of_kind("", "", "", &[cause])
    }

    /// Returns the error for an object with invalid fields, like [`Self::invalid`]. The kind may be one that the server
    /// does not serve.
    pub(crate) fn invalid_of_kind(group: &str, kind: &str, name: &str, causes: &[FieldError]) -> Self {
        let mut seen = SmallSet::default();
        let messages: Vec<_> = causes
            .iter()
            .filter(|it| seen.insert((&it.field, &it.message)))
            .map(|it| format!("{}: {}", it.field, it.message))
            .collect();
        let messages =
            if let [one] = &messages[..] { one.clone() } else { format!("[{}]", messages.join(", ")) };
        let message = format!("{} \"{name}\" is invalid: {messages}", qualified_resource(kind, group));
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        let causes: Vec<_> = causes
            .iter()
            .map(|it| json!({"reason": it.reason, "message": it.message, "field": it.field}))
            .collect();
        error.details = json!({"name": name, "group": group, "kind": kind, "causes": causes});
        error
    }

    /// Returns the error for a request that the server cannot understand or that has invalid options (400).
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// Returns the error for a request that is not authenticated (401).
    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// Returns the error for a request with more than `count_max` headers (431).
    pub(crate) fn too_many_headers(count_max: usize) -> Self {
        let message = format!("the request has more than {count_max} headers");
        Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "BadRequest", message)
    }

    /// Returns the error for a request whose headers have more than `bytes_max` bytes in total (431).
    pub(crate) fn headers_too_large(bytes_max: usize) -> Self {
        let message = format!("the headers of the request are larger than {bytes_max} bytes");
        Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "BadRequest", message)
    }

    /// Returns the error for a request whose URL has more than `bytes_max` bytes (414).
    pub(crate) fn url_too_long(bytes_max: usize) -> Self {
        let message = format!("the URL of the request is longer than {bytes_max} bytes");
        Self::new(StatusCode::URI_TOO_LONG, "BadRequest", message)
    }

    /// Returns the seconds after which the client may retry, if the error specifies them.
    pub(crate) fn retry_after_s(&self) -> Option<u64> {
        self.details["retryAfterSeconds"].as_u64()
    }

    /// Returns the error for a path that names no resource of the server (404).
    pub(crate) fn no_such_resource() -> Self {
        Self::with_empty_details(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// Returns the error for an HTTP method that the path does not support (405).
    pub(crate) fn method_not_allowed() -> Self {
        Self::with_empty_details(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// Returns the error for a verb that the kind does not support (405). The message says why if the kind has a
    /// `read_only_error`.
    pub(crate) fn method_not_allowed_on(kind: &Kind) -> Self {
        kind.read_only_error.map_or_else(Self::method_not_allowed, |why| {
            Self::with_empty_details(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", why)
        })
    }

    /// Returns the error for an Accept header without a media type that the server supports (406).
    pub(crate) fn not_acceptable() -> Self {
        Self::with_empty_details(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml",
        )
    }

    /// Returns the error for an Accept header with a supported media type whose parameters request an unsupported
    /// representation (406).
    pub(crate) fn representation_not_acceptable() -> Self {
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml",
        )
    }

    /// Returns the error for a PATCH whose `Content-Type` is not a patch type (415).
    pub(crate) fn unsupported_patch_type() -> Self {
        Self::with_empty_details(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            "415: Unsupported Media Type",
        )
    }

    /// Returns the error for a body whose `Content-Type` the server cannot decode (415). `accepted` lists the media
    /// types that it can decode.
    pub(crate) fn unsupported_media_type(accepted: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    /// Returns the error for a request body of more than `bytes_max` bytes (413).
    pub(crate) fn body_too_large(bytes_max: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {bytes_max}"),
        )
    }

    /// Returns the error for a request that exceeds a size limit other than the limit of the body (413).
    pub(crate) fn entity_too_large(why: &str) -> Self {
        let message = format!("Request entity too large: {why}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// Returns the error for a patch that cannot be applied to its object (422). As in upstream, the message does not
    /// say why.
    pub(crate) fn patch_not_applicable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        let error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        Self { details: json!({}), ..error }
    }

    /// Returns an error with code 500 and without `reason`. Upstream sends such an error in some cases in which the
    /// client is at fault.
    pub(crate) fn internal_without_reason(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// Returns the error for a server-side apply that would change fields owned by other field managers (409).
    pub(crate) fn apply_conflict(message: String, causes: Vec<Value>) -> Self {
        let error = Self::new(StatusCode::CONFLICT, "Conflict", message);
        Self { details: json!({"causes": causes}), ..error }
    }

    /// Returns the error for a request that did not complete before its deadline (504). Also used in some other cases,
    /// such as a write that failed repeatedly because of concurrent writes to the same object.
    pub(crate) fn timeout() -> Self {
        let message =
            "Timeout: request did not complete within requested timeout - context deadline exceeded";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    /// Returns the error for a request whose body arrived too slowly or not at all (408).
    pub(crate) fn body_timeout() -> Self {
        let message = "the body of the request did not arrive in time";
        Self::new(StatusCode::REQUEST_TIMEOUT, "Timeout", message)
    }

    /// Returns the error for a request whose handler panicked (500).
    pub(crate) fn handler_panicked() -> Self {
        Self::internal("this request caused the server to panic: see its log")
    }

    /// Returns the error for a request that is rejected because a limit on requests is reached (429). The client may
    /// retry after `retry_after_s` seconds.
    pub(crate) fn too_many_requests(retry_after_s: u32) -> Self {
        let message = "Too many requests, please try again later.";
        let mut error = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        error.details = json!({"retryAfterSeconds": retry_after_s});
        error
    }

    /// Returns the error for a failure inside the server (500).
    pub(crate) fn internal(why: &str) -> Self {
        let message = format!("Internal error occurred: {why}");
        let mut error = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message);
        error.details = json!({"causes": [{"message": why}]});
        error
    }

    /// Returns the error for an eviction that would violate a PodDisruptionBudget (429). The client may retry after
    /// `retry_after_s` seconds. If `retry_after_s` is 0, the error contains no time.
    pub(crate) fn disruption_budget_exceeded(message: &str, retry_after_s: u32) -> Self {
        let mut error = Self::too_many_requests(retry_after_s);
        message.clone_into(&mut error.message);
        if retry_after_s == 0 {
            error.details = json!({});
        }
        error
    }

    /// Returns the error for an error response of a node agent with the status code `code` and the text `why`. Codes
    /// other than 400 and 404 become 500.
    pub(crate) fn from_agent(code: StatusCode, why: String) -> Self {
        match code {
            StatusCode::BAD_REQUEST => Self::bad_request(why),
            StatusCode::NOT_FOUND => Self::new(code, "NotFound", why),
            _ => Self::internal(&why),
        }
    }

    /// Returns the error for a request that the server temporarily cannot process (503).
    pub(crate) fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// Adds an entry to `details.causes` of the `Status`.
    pub(crate) fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let mut cause = json!({"reason": reason, "message": message});
        if !field.is_empty() {
            cause["field"] = json!(field);
        }
        if !self.details.is_object() {
            self.details = json!({});
        }
        match &mut self.details["causes"] {
            Value::Array(causes) => causes.push(cause),
            other => *other = json!([cause]),
        }
        self
    }

    /// Returns the error for a `resourceVersion` that is older than the compacted revision (410).
    pub(crate) fn resource_expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// Returns the error for a continue token whose revision was compacted (410). `next` is a continue token for the
    /// rest of the list at the current revision.
    pub(crate) fn continue_token_expired(next: &str) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                       list without the continue parameter, or use the continue token in this response to retrieve the \
                       remainder of the results. Continuing with the provided token results in an inconsistent list - \
                       objects that were created, modified, or deleted between the time the first chunk was returned and \
                       now may show up in the list.";
        Self { metadata: json!({"continue": next}), ..Self::resource_expired(message) }
    }

    /// Returns the error for a `resourceVersion` that the store has not reached (504).
    pub(crate) fn resource_version_too_large(requested: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let mut error = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        error.details = json!({"causes": [cause], "retryAfterSeconds": 1});
        error
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns the error as the `Status` object that is sent to the client.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            status["details"] = omit_empty(self.details.clone());
        }
        status
    }

    /// Creates an error with empty `details`, which upstream sends for an error that occurs before the object is known.
    fn with_empty_details(code: StatusCode, reason: &'static str, message: &str) -> Self {
        Self { details: json!({}), ..Self::new(code, reason, message) }
    }

    /// Creates an error without `details`.
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null, metadata: json!({}) }
    }

    /// Sets `details` to the name, group and resource of the object. As in upstream, `details.kind` is the resource and
    /// not the kind, because clients expect it.
    fn with_details(mut self, kind: &Kind, name: &str) -> Self {
        self.details = json!({"name": name, "group": kind.group, "kind": kind.plural});
        self
    }
}

/// Removes the fields with an empty string from `details` of a `Status`, as Go's `omitempty` does.
pub(crate) fn omit_empty(mut details: Value) -> Value {
    if let Value::Object(details) = &mut details {
        details.retain(|_, it| *it != "");
    }
    details
}
