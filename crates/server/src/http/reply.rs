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
use serde_json::{Value, json};

use super::negotiation::{self, Encoding, View};
use crate::decode::{JSON, YAML};
use crate::discovery::Document;
use crate::error::{ApiError, without_empty};
use crate::kinds::{Kind, group_versions};
use crate::registry::Written;
use crate::request::Context;
use crate::storage::Listed;
use crate::unstructured;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";

pub(crate) type Response = hyper::Response<Body>;
pub(crate) type Body = Either<Full<Bytes>, StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>>;

/// The response to a write that may have created the object.
pub(super) fn show_written(context: &Context, view: View, kind: &Kind, written: Written) -> Response {
    match written {
        Written::Created(object) => show(context, StatusCode::CREATED, view, kind, object),
        Written::Updated(object) => show(context, StatusCode::OK, view, kind, object),
    }
}

pub(super) fn show(context: &Context, code: StatusCode, view: View, kind: &Kind, object: Bytes) -> Response {
    respond(code, JSON, view.of_object(kind, &object, context.now))
}

pub(super) fn show_list(
    context: &Context,
    (view, encoding): (View, Encoding),
    kind: &'static Kind,
    listed: Listed,
) -> Response {
    if encoding == Encoding::Yaml {
        let pieces = view.of_list_in_yaml(kind, listed.objects, &listed.meta, context.now);
        let frames = stream::iter(pieces.map(|it| Ok(Frame::data(it))));
        return with_body(StatusCode::OK, YAML, Either::Right(StreamBody::new(frames.boxed())));
    }
    let mut pieces = view.of_list(kind, listed.objects, &listed.meta, context.now).peekable();
    let first = pieces.next().unwrap_or_default();
    if pieces.peek().is_none() {
        return respond(StatusCode::OK, JSON, first);
    }
    let frames = stream::iter(iter::once(first).chain(pieces).map(|it| Ok(Frame::data(it))));
    with_body(StatusCode::OK, JSON, Either::Right(StreamBody::new(frames.boxed())))
}

/// Applies the Accept header and the method HEAD to a finished response: YAML, or headers only. A long list is
/// YAML already.
pub(super) fn negotiated(response: Response, accept: &str, is_head: bool) -> Response {
    let response = if negotiation::wants_yaml(accept) { in_yaml(response) } else { response };
    if is_head { without_body(response) } else { response }
}

/// Converts API objects to YAML. Other documents stay JSON: `/version`, OpenAPI, metrics.
fn in_yaml(response: Response) -> Response {
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|it| it == JSON);
    let (mut parts, body) = response.into_parts();
    let bytes = match body {
        Either::Left(whole) if is_json => {
            whole.collect().now_or_never().and_then(Result::ok).map(Collected::to_bytes)
        }
        other => return Response::from_parts(parts, other),
    };
    let bytes = bytes.unwrap_or_default();
    let body = match serde_json::from_slice::<Value>(&bytes) {
        Ok(object) if object["kind"].is_string() => {
            parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(YAML));
            negotiation::yaml(&object).into()
        }
        _ => bytes,
    };
    Response::from_parts(parts, Either::Left(Full::new(body)))
}

/// The response to a HEAD. hyper omits the body over HTTP/1.1, but would send it over HTTP/2, which is a
/// protocol error.
fn without_body(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Response::from_parts(parts, Either::Left(Full::default()))
}

pub(super) fn success(details: Value) -> Value {
    let details = without_empty(details);
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success", "details": details})
}

pub(super) fn refusal(refusal: &ApiError) -> Response {
    let mut response = json_of(refusal.code, &refusal.status());
    if let Some(after_s) = refusal.retry_after_s() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(after_s));
    }
    response
}

/// The response for a path without a route: a `Status` within a served API group, plain text elsewhere.
pub(super) fn nothing_at(path: &str) -> Result<Response, ApiError> {
    let mut segments = path.split('/').filter(|it| !it.is_empty());
    let is_served = match (segments.next(), segments.next()) {
        (Some("api"), Some(_)) => true,
        (Some("apis"), Some(group)) => group_versions().iter().any(|it| it.0 == group),
        _ => false,
    };
    if is_served && !path.starts_with("//") { Err(ApiError::no_such_resource()) } else { Ok(not_found()) }
}

pub(super) fn not_found() -> Response {
    plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

pub(super) fn json_of(code: StatusCode, value: &Value) -> Response {
    respond(code, JSON, unstructured::bytes(value))
}

pub(super) fn plain(code: StatusCode, text: &'static str) -> Response {
    respond(code, TEXT, Bytes::from_static(text.as_bytes()))
}

/// A static document, or 304 if the client has it already (`If-None-Match`).
pub(super) fn document(document: &Document, if_none_match: &str) -> Response {
    let etag = format!("\"{}\"", document.hash);
    let has_it = if_none_match.split(',').any(|it| it.trim() == etag);
    let (code, body) = if has_it {
        (StatusCode::NOT_MODIFIED, Bytes::new())
    } else {
        (StatusCode::OK, document.bytes.clone())
    };
    let mut response = respond(code, document.media_type, body);
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    headers.extend(HeaderValue::try_from(etag).ok().map(|it| (ETAG, it)));
    response
}

pub(super) fn respond(code: StatusCode, media_type: &'static str, body: Bytes) -> Response {
    with_body(code, media_type, Either::Left(Full::new(body)))
}

pub(super) fn with_body(code: StatusCode, media_type: &'static str, body: Body) -> Response {
    let mut response = hyper::Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// A response that resets the stream, or the connection over HTTP/1, without a body.
pub(super) fn reset() -> Response {
    let error = io::Error::other("too many responses to this client are unsent");
    let body = StreamBody::new(stream::once(async { Err(error) }).boxed());
    with_body(StatusCode::TOO_MANY_REQUESTS, TEXT, Either::Right(body))
}

/// Most characters of all warnings together. Above this each warning is truncated, and those that still do not
/// fit are dropped, because clients reject headers that are too long. Upstream: `truncateAtTotalRunes`.
const WARNINGS_CHARS_MAX: usize = 4 * 1024;
/// Most characters of one warning after truncation. Upstream: `truncateItemRunes`.
const WARNING_CHARS_MAX: usize = 256;

/// Adds `Warning: 299 - "text"` headers, which kubectl prints.
pub(super) fn warn(response: &mut Response, warnings: Vec<String>) {
    let is_cut = WARNINGS_CHARS_MAX < warnings.iter().map(|it| it.chars().count()).sum();
    let mut chars = 0;
    for text in warnings {
        if is_cut && WARNINGS_CHARS_MAX <= chars {
            return;
        }
        let chars_max = if is_cut { WARNING_CHARS_MAX } else { usize::MAX };
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
        let document = Document::new(JSON, "{}");
        let sent = |if_none_match: &str| {
            let response = super::document(&document, if_none_match);
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
            let mut response = respond(StatusCode::OK, JSON, Bytes::new());
            warn(&mut response, warnings.to_vec());
            let lengths = response.headers().get_all(WARNING).iter().map(HeaderValue::len);
            lengths.collect::<Vec<_>>()
        };
        let frame = r#"299 - """#.len();
        assert_eq!(sent(&["w".repeat(4096)]), [4096 + frame]);
        assert_eq!(sent(&["w".repeat(4096), "x".into()]), [256 + frame, 1 + frame]);
        assert_eq!(sent(&vec!["w".repeat(300); 100]), [256 + frame; 16]);
    }
}
