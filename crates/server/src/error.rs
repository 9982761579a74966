//! Errors of the API, as the `Status` object that clients expect. Upstream: `apierrors.StatusError`.

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::kinds::{Kind, join};
use crate::validation::FieldError;

#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) code: StatusCode,
    reason: &'static str,
    message: String,
    details: Value,
    metadata: Value,
}

impl ApiError {
    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{} \"{name}\" not found", kind.resource()))
            .about(kind, name)
    }

    pub(crate) fn exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.resource());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(kind, name)
    }

    /// Every name that was made up was taken.
    pub(crate) fn no_name_left(kind: &Kind, name: &str) -> Self {
        let message = format!(
            "{} \"{name}\" already exists, the server was not able to generate a unique name for the object",
            kind.resource()
        );
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(kind, name)
    }

    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.code, StatusCode::NOT_FOUND | StatusCode::CONFLICT)
    }

    pub(crate) fn prefixed(mut self, text: &str) -> Self {
        self.message.insert_str(0, text);
        self
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.reason == "NotFound"
    }

    pub(crate) fn is_exists(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource());
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(kind, name)
    }

    /// Preconditions of a delete, and bodies of subresources, name the kind where all else names the resource.
    pub(crate) fn conflict_of_kind(group: &str, kind: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", join(kind, group));
        let mut refusal = Self::new(StatusCode::CONFLICT, "Conflict", message);
        refusal.details = json!({"name": name, "group": group, "kind": kind});
        refusal
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.resource());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(kind, name)
    }

    /// Nothing grants what was asked for. The resource need not be one that is served.
    pub(crate) fn not_granted(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let resource = join(plural, group);
        let message = match (resource.as_str(), name) {
            ("", _) => format!("forbidden: {why}"),
            (resource, "") => format!("{resource} is forbidden: {why}"),
            (resource, name) => format!("{resource} \"{name}\" is forbidden: {why}"),
        };
        let mut refusal = Self::new(StatusCode::FORBIDDEN, "Forbidden", message);
        let details = [("name", name), ("group", group), ("kind", plural)];
        refusal.details = details.into_iter().filter(|(_, it)| !it.is_empty()).collect();
        refusal
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[FieldError]) -> Self {
        Self::invalid_in(kind.group, kind.kind, name, causes)
    }

    /// The options of the request are wrong, rather than its object. `kind` is theirs: `DeleteOptions`.
    pub(crate) fn invalid_options(kind: &str, causes: &[FieldError]) -> Self {
        Self::invalid_in("meta.k8s.io", kind, "", causes)
    }

    /// A PUT of a kind whose writers must say which version they replace. Upstream names the resource here.
    pub(crate) fn version_required(kind: &Kind, name: &str) -> Self {
        let cause = FieldError::invalid("metadata.resourceVersion", 0_i64, "must be specified for an update");
        Self::invalid_in(kind.group, kind.plural, name, &[cause])
    }

    /// A patch made of the object what its type does not allow.
    pub(crate) fn invalid_patch(cause: FieldError) -> Self {
        Self::invalid_in("", "", "", &[cause])
    }

    pub(crate) fn invalid_in(group: &str, kind: &str, name: &str, causes: &[FieldError]) -> Self {
        let mut said: Vec<_> = Vec::with_capacity(causes.len());
        for cause in causes.iter().map(|it| format!("{}: {}", it.field, it.message)) {
            if !said.contains(&cause) {
                said.push(cause);
            }
        }
        let said = if let [one] = &said[..] { one.clone() } else { format!("[{}]", said.join(", ")) };
        let message = format!("{} \"{name}\" is invalid: {said}", join(kind, group));
        let mut refusal = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        let causes: Vec<_> = causes
            .iter()
            .map(|it| json!({"reason": it.reason, "message": it.message, "field": it.field}))
            .collect();
        refusal.details = json!({"name": name, "group": group, "kind": kind, "causes": causes});
        refusal
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn too_many_headers(count_max: usize) -> Self {
        let message = format!("the request has more than {count_max} headers");
        Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "BadRequest", message)
    }

    pub(crate) fn headers_too_large(bytes_max: usize) -> Self {
        let message = format!("the headers of the request are larger than {bytes_max} bytes");
        Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "BadRequest", message)
    }

    pub(crate) fn url_too_long(bytes_max: usize) -> Self {
        let message = format!("the URL of the request is longer than {bytes_max} bytes");
        Self::new(StatusCode::URI_TOO_LONG, "BadRequest", message)
    }

    /// When the client shall come again, if the refusal says so.
    pub(crate) fn retry_after_s(&self) -> Option<u64> {
        self.details["retryAfterSeconds"].as_u64()
    }

    pub(crate) fn no_such_resource() -> Self {
        Self::plain(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// A verb that the kind does not have.
    pub(crate) fn method_not_allowed_on(kind: &Kind) -> Self {
        kind.read_only.map_or_else(Self::method_not_allowed, |why| {
            Self::plain(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", why)
        })
    }

    /// The client names no format that we have.
    pub(crate) fn not_acceptable() -> Self {
        Self::plain(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml",
        )
    }

    /// The client names the format, but wants to see in it what we do not have.
    pub(crate) fn no_such_view() -> Self {
        Self::new(
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml",
        )
    }

    pub(crate) fn unsupported_patch() -> Self {
        Self::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", "415: Unsupported Media Type")
    }

    pub(crate) fn unsupported_media(accepted: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    pub(crate) fn too_large(bytes_max: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {bytes_max}"),
        )
    }

    /// As `too_large`, where something else than the body is.
    pub(crate) fn entity_too_large(why: &str) -> Self {
        let message = format!("Request entity too large: {why}");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// A patch that does not fit its object: upstream says no more.
    pub(crate) fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        let refusal = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        Self { details: json!({}), ..refusal }
    }

    /// What upstream has no reason for, though it is the client's fault as often as not.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// Others own what a server-side apply would change.
    pub(crate) fn apply_conflict(message: String, causes: Vec<Value>) -> Self {
        let refusal = Self::new(StatusCode::CONFLICT, "Conflict", message);
        Self { details: json!({"causes": causes}), ..refusal }
    }

    /// Others kept writing the same object, or the client's time is over.
    pub(crate) fn timeout() -> Self {
        let message =
            "Timeout: request did not complete within requested timeout - context deadline exceeded";
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    /// The body of the request does not arrive, or too slowly.
    pub(crate) fn body_timeout() -> Self {
        let message = "the body of the request did not arrive in time";
        Self::new(StatusCode::REQUEST_TIMEOUT, "Timeout", message)
    }

    pub(crate) fn panicked() -> Self {
        Self::internal("this request caused the server to panic: see its log")
    }

    /// Too much is under way already.
    pub(crate) fn too_many_requests(retry_after_s: u32) -> Self {
        let message = "Too many requests, please try again later.";
        let mut refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        refusal.details = json!({"retryAfterSeconds": retry_after_s});
        refusal
    }

    pub(crate) fn internal(why: &str) -> Self {
        let message = format!("Internal error occurred: {why}");
        let mut refusal = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message);
        refusal.details = json!({"causes": [{"message": why}]});
        refusal
    }

    /// A budget would be broken. It may be tried again after so many seconds; 0 says nothing of when.
    pub(crate) fn over_budget(message: &str, retry_after_s: u32) -> Self {
        let mut refusal = Self::too_many_requests(retry_after_s);
        message.clone_into(&mut refusal.message);
        if retry_after_s == 0 {
            refusal.details = json!({});
        }
        refusal
    }

    /// An agent says no.
    pub(crate) fn of_agent(code: StatusCode, why: String) -> Self {
        match code {
            StatusCode::BAD_REQUEST => Self::bad_request(why),
            StatusCode::NOT_FOUND => Self::new(code, "NotFound", why),
            _ => Self::internal(&why),
        }
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
    }

    /// One more cause, for a client that looks for it.
    pub(crate) fn because(mut self, reason: &str, message: &str, field: &str) -> Self {
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

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// The state that a list was told from is gone. `next` leads on to the rest of it as it is now.
    pub(crate) fn page_expired(next: &str) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
                       list without the continue parameter, or use the continue token in this response to retrieve the \
                       remainder of the results. Continuing with the provided token results in an inconsistent list - \
                       objects that were created, modified, or deleted between the time the first chunk was returned and \
                       now may show up in the list.";
        Self { metadata: json!({"continue": next}), ..Self::expired(message) }
    }

    pub(crate) fn revision_not_yet(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let mut refusal = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        refusal.details = json!({"causes": [cause], "retryAfterSeconds": 1});
        refusal
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

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
            status["details"] = without_empty(self.details.clone());
        }
        status
    }

    /// AuditEvent before anything is known of the object: upstream has details then, and nothing in them.
    fn plain(code: StatusCode, reason: &'static str, message: &str) -> Self {
        Self { details: json!({}), ..Self::new(code, reason, message) }
    }

    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null, metadata: json!({}) }
    }

    /// `details.kind` is the resource and not the kind: upstream's habit, which clients rely on.
    fn about(mut self, kind: &Kind, name: &str) -> Self {
        self.details = json!({"name": name, "group": kind.group, "kind": kind.plural});
        self
    }
}

/// As everywhere in the API, what is empty is left out.
pub(crate) fn without_empty(mut details: Value) -> Value {
    if let Value::Object(details) = &mut details {
        details.retain(|_, it| *it != "");
    }
    details
}
