//! A request that has passed the filters, as the handlers read it.

use std::net::IpAddr;

use bytes::Bytes;
use hyper::{HeaderMap, Method, Uri};
use serde_json::Value;

use super::agent::ClientUpgrade;
use super::negotiation::{Encoding, Representation, prefers_yaml};
use super::query::{RequestQuery, delete_options};
use super::reply::{self, ApiResponse};
use crate::auth::Reauthorization;
use crate::decode;
use crate::discovery::ApiDocument;
use crate::error::ApiError;
use crate::registry::DeleteOptions;
use crate::request::{RequestContext, User};
use crate::types::{GroupVersionKind, TypedKind};

/// An authorized request with its whole body, as the handlers receive it.
pub(super) struct ApiRequest {
    pub(super) context: RequestContext,
    pub(super) uri: Uri,
    pub(super) query: RequestQuery,
    pub(super) method: Method,
    /// The protocol upgrade that the client requests. `None` if it requests none.
    pub(super) upgrade: Option<ClientUpgrade>,
    /// The header `Accept`. Empty if the request has none.
    pub(super) accept: String,
    /// The header `If-None-Match`. Empty if the request has none.
    pub(super) if_none_match: String,
    /// The `Content-Type` of the request without its parameters. Empty if the request has none.
    pub(super) media_type: String,
    /// The IP address of the client, if known.
    pub(super) source_ip: Option<IpAddr>,
    /// All headers of the request if an agent serves it. Empty for all other requests.
    pub(super) headers: HeaderMap,
    /// Checks at intervals whether a watch or an agent stream is still authorized. `None` for other requests.
    pub(super) reauthorization: Option<Reauthorization>,
    /// The user whose limits the request counts against, if the request has impersonation headers. `None` for a request
    /// without them, which counts against the limits of `context.user`.
    pub(super) charged_user: Option<User>,
    pub(super) body: Bytes,
}

impl ApiRequest {
    /// Returns the user whose limits the request counts against.
    pub(super) fn charged_user(&self) -> &User {
        self.charged_user.as_ref().unwrap_or(&self.context.user)
    }

    /// Returns the representation that the client requests in the Accept header.
    pub(super) fn representation(&self) -> Result<Representation, ApiError> {
        Representation::from_accept(&self.accept, self.query.get("includeObject"))
    }

    /// Returns `view` and the encoding of a list response: YAML if the client prefers it, otherwise JSON.
    pub(super) fn list_format(&self, view: Representation) -> (Representation, Encoding) {
        (view, if prefers_yaml(&self.accept) { Encoding::Yaml } else { Encoding::Json })
    }

    /// Returns a response with a discovery or OpenAPI document, or a 304 response if the client already has the
    /// document.
    pub(super) fn document_response(&self, document: &ApiDocument) -> ApiResponse {
        reply::document_response(document, &self.if_none_match)
    }

    /// Decodes the body as an object of the kind `expected`. Fails if the body has another kind.
    pub(super) fn decode_body(&self, expected: TypedKind<'_>) -> Result<Value, ApiError> {
        decode::decode_object(&self.context, expected, &self.media_type, &self.body)
    }

    /// Returns the delete options, and the context of the delete, in which `dry_run` is set if a dry run is requested.
    ///
    /// The options are in the body or, if there is no body, in the query. The body may lack `kind` and `apiVersion`,
    /// because kubectl omits them. A dry run can be requested in the body or in the query.
    pub(super) fn delete_options(&self) -> Result<(DeleteOptions, RequestContext), ApiError> {
        let expected = GroupVersionKind { group: "", version: "v1", kind: "DeleteOptions" };
        let body = if self.body.is_empty() { None } else { Some(self.decode_body(expected.into())?) };
        let (options, dry_run) = delete_options(&self.query, body.as_ref())?;
        let context = RequestContext {
            dry_run: self.context.dry_run || dry_run,
            field_manager: self.context.field_manager.clone(),
            user_agent: self.context.user_agent.clone(),
            ..RequestContext::new(self.context.user.clone(), self.context.verb.clone(), self.context.now)
        };
        Ok((options, context))
    }
}
