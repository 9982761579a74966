//! Builds HTTP responses.

use std::{io, iter};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use http_body_util::{BodyExt as _, Collected, Either, Full, StreamBody};
use hyper::StatusCode;
use hyper::body::{Body as _, Frame};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderValue, RETRY_AFTER, VARY, WARNING};
use muster_api::well_known::{JSON_MEDIA_TYPE, YAML_MEDIA_TYPE};
use serde_json::{Value, json};

use super::negotiation::{self, Encoding, Representation};
use crate::discovery::ApiDocument;
use crate::error::{ApiError, omit_empty};
use crate::kinds::{Kind, ServedKinds};
use crate::registry::WriteOutcome;
use crate::request::RequestContext;
use crate::storage::ListPage;
use crate::unstructured;

/// `Content-Type` of responses in plain text.
pub(super) const TEXT_PLAIN: &str = "text/plain; charset=utf-8";

/// The HTTP response that a handler returns.
pub(crate) type ApiResponse = hyper::Response<ApiResponseBody>;
/// A response body that is either whole in memory (`Left`) or streamed (`Right`).
pub(crate) type ApiResponseBody =
    Either<Full<Bytes>, StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>>;

/// Returns the response to a write, which contains the written object. The status code is 201 if the object was
/// created, and otherwise 200.
pub(super) fn write_outcome_response(
    context: &RequestContext,
    view: Representation,
    kind: &Kind,
    written: WriteOutcome,
) -> ApiResponse {
    match written {
        WriteOutcome::Created(object) => object_response(context, StatusCode::CREATED, view, kind, object),
        WriteOutcome::Updated(object) => object_response(context, StatusCode::OK, view, kind, object),
    }
}

/// Returns a response with one stored object in the requested representation.
pub(super) fn object_response(
    context: &RequestContext,
    code: StatusCode,
    view: Representation,
    kind: &Kind,
    object: Bytes,
) -> ApiResponse {
    full_response(code, JSON_MEDIA_TYPE, view.encode_object(kind, &object, context.now))
}

/// Returns a response with a list in the requested representation and encoding. A YAML list and a large JSON list are
/// streamed.
pub(super) fn list_response(
    context: &RequestContext,
    (view, encoding): (Representation, Encoding),
    kind: &'static Kind,
    listed: ListPage,
) -> ApiResponse {
    if encoding == Encoding::Yaml {
        let pieces = view.encode_list_as_yaml(kind, listed.objects, &listed.meta, context.now);
        let frames = stream::iter(pieces.map(|it| Ok(Frame::data(it))));
        return response_with_body(
            StatusCode::OK,
            YAML_MEDIA_TYPE,
            Either::Right(StreamBody::new(frames.boxed())),
        );
    }
    let mut pieces = view.encode_list_as_json(kind, listed.objects, &listed.meta, context.now).peekable();
    let first = pieces.next().unwrap_or_default();
    if pieces.peek().is_none() {
        return full_response(StatusCode::OK, JSON_MEDIA_TYPE, first);
    }
    let frames = stream::iter(iter::once(first).chain(pieces).map(|it| Ok(Frame::data(it))));
    response_with_body(StatusCode::OK, JSON_MEDIA_TYPE, Either::Right(StreamBody::new(frames.boxed())))
}

/// Converts a finished response to the form that the client requests: to YAML if the Accept header prefers YAML, and to
/// a response without a body for a HEAD request. A list needs no conversion, because [`list_response`] encodes lists as
/// YAML itself.
pub(super) fn negotiate_response(response: ApiResponse, accept: &str, is_head: bool) -> ApiResponse {
    let response = if negotiation::prefers_yaml(accept) { convert_to_yaml(response) } else { response };
    if is_head { without_body(response) } else { response }
}

/// Returns the response with its API object converted to YAML. Streamed responses and JSON documents that are not
/// API objects, such as `/version`, are not converted.
fn convert_to_yaml(response: ApiResponse) -> ApiResponse {
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|it| it == JSON_MEDIA_TYPE);
    let (mut parts, body) = response.into_parts();
    let bytes = match body {
        Either::Left(whole) if is_json => {
            whole.collect().now_or_never().and_then(Result::ok).map(Collected::to_bytes)
        }
        other => return ApiResponse::from_parts(parts, other),
    };
    let bytes = bytes.unwrap_or_default();
    let body = match serde_json::from_slice::<Value>(&bytes) {
        Ok(object) if object["kind"].is_string() => {
            parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(YAML_MEDIA_TYPE));
            negotiation::to_yaml(&object).into()
        }
        _ => bytes,
    };
    ApiResponse::from_parts(parts, Either::Left(Full::new(body)))
}

/// Removes the body from the response to a HEAD request, and sets `Content-Length` to the size of the body if it is
/// known. hyper omits the body over HTTP/1.1, but would send it over HTTP/2, which is a protocol error.
fn without_body(response: ApiResponse) -> ApiResponse {
    let (mut parts, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    ApiResponse::from_parts(parts, Either::Left(Full::default()))
}

/// Returns a `Status` that reports success. `details` describes the object of the request. Empty fields of `details`
/// are omitted.
pub(super) fn success_status(details: Value) -> Value {
    let details = omit_empty(details);
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success", "details": details})
}

/// Returns the response for an error: a `Status`, with a `Retry-After` header if the error asks the client to retry.
pub(super) fn error_response(refusal: &ApiError) -> ApiResponse {
    let mut response = json_response(refusal.code, &refusal.status());
    if let Some(after_s) = refusal.retry_after_s() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after_s));
    }
    response
}

/// Returns the 404 response for a path without a route. The response is a `Status`, returned as `Err`, for a path in a
/// served API group, and plain text for any other path.
pub(super) fn no_route_response(kinds: &ServedKinds, path: &str) -> Result<ApiResponse, ApiError> {
    let mut segments = path.split('/').filter(|it| !it.is_empty());
    let is_served = match (segments.next(), segments.next()) {
        (Some("api"), Some(_)) => true,
        (Some("apis"), Some(group)) => kinds.has_group(group),
        _ => false,
    };
    if is_served && !path.starts_with("//") {
        Err(ApiError::no_such_resource())
    } else {
        Ok(not_found_page())
    }
}

/// Returns a 404 response in plain text.
pub(super) fn not_found_page() -> ApiResponse {
    text_response(StatusCode::NOT_FOUND, "404 page not found\n")
}

pub(super) fn json_response(code: StatusCode, value: &Value) -> ApiResponse {
    full_response(code, JSON_MEDIA_TYPE, unstructured::to_bytes(value))
}

pub(super) fn text_response(code: StatusCode, text: &'static str) -> ApiResponse {
    full_response(code, TEXT_PLAIN, Bytes::from_static(text.as_bytes()))
}

/// Returns a response with a document, or a 304 response without a body if the client already has the document.
/// `if_none_match` is the header `If-None-Match` of the request.
pub(super) fn document_response(document: &ApiDocument, if_none_match: &str) -> ApiResponse {
    let etag = format!("\"{}\"", document.hash);
    let has_it = if_none_match.split(',').any(|it| it.trim() == etag);
    let (code, body) = if has_it {
        (StatusCode::NOT_MODIFIED, Bytes::new())
    } else {
        (StatusCode::OK, document.bytes.clone())
    };
    let mut response = full_response(code, document.media_type, body);
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.extend(HeaderValue::try_from(etag).ok().map(|it| (ETAG, it)));
    response
}

/// Returns a response whose whole body is in memory.
pub(super) fn full_response(code: StatusCode, media_type: &'static str, body: Bytes) -> ApiResponse {
    response_with_body(code, media_type, Either::Left(Full::new(body)))
}

/// Returns a response with a whole or streamed body.
pub(super) fn response_with_body(
    code: StatusCode,
    media_type: &'static str,
    body: ApiResponseBody,
) -> ApiResponse {
    let mut response = hyper::Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// Returns a response whose body fails immediately. The failure resets the HTTP/2 stream or closes the HTTP/1
/// connection.
pub(super) fn reset_response() -> ApiResponse {
    let error = io::Error::other("too many responses to this client are unsent");
    let body = StreamBody::new(stream::once(async { Err(error) }).boxed());
    response_with_body(StatusCode::TOO_MANY_REQUESTS, TEXT_PLAIN, Either::Right(body))
}

/// Maximum total number of characters of the warnings of a response. If the warnings are longer, each of them is
/// truncated to `TRUNCATED_WARNING_CHARS_MAX`, and the warnings after the first `TOTAL_WARNING_CHARS_MAX` characters
/// are dropped. Clients reject headers that are too long. Upstream: `truncateAtTotalRunes`.
const TOTAL_WARNING_CHARS_MAX: usize = 4 * 1024;
/// Number of characters to which each warning is truncated if the warnings of a response together exceed
/// `TOTAL_WARNING_CHARS_MAX`. Upstream: `truncateItemRunes`.
const TRUNCATED_WARNING_CHARS_MAX: usize = 256;

/// Adds a header `Warning: 299 - "text"` to the response for each warning, without control characters. kubectl prints
/// these warnings. If the warnings are too long together, each is truncated and the last ones are dropped, see
/// [`TOTAL_WARNING_CHARS_MAX`].
pub(super) fn add_warnings(response: &mut ApiResponse, warnings: Vec<String>) {
    let is_cut = TOTAL_WARNING_CHARS_MAX < warnings.iter().map(|it| it.chars().count()).sum();
    let mut chars = 0;
    for text in warnings {
        if is_cut && TOTAL_WARNING_CHARS_MAX <= chars {
            return;
        }
        let chars_max = if is_cut { TRUNCATED_WARNING_CHARS_MAX } else { usize::MAX };
        let text: String = text.chars().take(chars_max).filter(|it| !it.is_control()).collect();
        chars += text.chars().count();
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_a_client_has_is_not_sent_again() {
        let document = ApiDocument::new(JSON_MEDIA_TYPE, "{}");
        let sent = |if_none_match: &str| {
            let response = super::document_response(&document, if_none_match);
            (response.status().as_u16(), response.headers()[ETAG].to_str().unwrap_or_default().to_owned())
        };
        let (code, etag) = sent("");
        assert_eq!((code, etag.len()), (200, 66));
        assert_eq!(sent(&format!("\"other\", {etag}")), (304, etag.clone()));
        assert_eq!(sent("\"other\""), (200, etag));
    }

    #[test]
    fn warnings_are_cut_when_they_are_too_long_together() {
        let sent = |warnings: &[String]| {
            let mut response = full_response(StatusCode::OK, JSON_MEDIA_TYPE, Bytes::new());
            add_warnings(&mut response, warnings.to_vec());
            let lengths = response.headers().get_all(WARNING).iter().map(HeaderValue::len);
            lengths.collect::<Vec<_>>()
        };
        let frame = r#"299 - """#.len();
        assert_eq!(sent(&["w".repeat(4096)]), [4096 + frame]);
        assert_eq!(sent(&["w".repeat(4096), "x".into()]), [256 + frame, 1 + frame]);
        assert_eq!(sent(&vec!["w".repeat(300); 100]), [256 + frame; 16]);
    }
}
