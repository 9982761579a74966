//! Builds HTTP requests to the API server.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use muster_api::well_known::JSON_MEDIA_TYPE;
use muster_engine::controller::Verb;

/// `Accept` header that requests only the metadata of an object. For example, a write uses it if the caller does not
/// need the whole object in the response. A whole pod has some kilobytes.
pub(crate) const ACCEPT_METADATA: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// `Accept` header that requests only the metadata of the objects of a list.
pub(crate) const ACCEPT_METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Builds a request with this `Accept` header. The verb determines the HTTP method and the media type of the body,
/// which may be empty.
pub(crate) fn request(verb: Verb, path: String, accept: &str, body: String) -> Request<Vec<u8>> {
    let (method, media_type) = match verb {
        Verb::Get | Verb::List => (Method::GET, JSON_MEDIA_TYPE),
        Verb::Create => (Method::POST, JSON_MEDIA_TYPE),
        Verb::Update => (Method::PUT, JSON_MEDIA_TYPE),
        Verb::Delete => (Method::DELETE, JSON_MEDIA_TYPE),
        Verb::Patch(patch) => (Method::PATCH, patch.content_type()),
    };
    let request =
        Request::builder().method(method).uri(path).header(ACCEPT, accept).header(CONTENT_TYPE, media_type);
    request.body(body.into_bytes()).expect("names of objects make valid paths")
}
