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
use crate::discovery::StaticDocument;
use crate::error::ApiError;
use crate::registry::DeleteOptions;
use crate::request::{RequestContext, User};
use crate::types::GroupVersionKind;

/// An authorized request with its whole body.
pub(super) struct ApiRequest {
    pub(super) context: RequestContext,
    pub(super) uri: Uri,
    pub(super) query: RequestQuery,
    pub(super) method: Method,
    pub(super) upgrade: Option<ClientUpgrade>,
    pub(super) accept: String,
    pub(super) if_none_match: String,
    /// The content type of the request without its parameters, or empty.
    pub(super) media_type: String,
    /// The address of the client.
    pub(super) source: Option<IpAddr>,
    /// All headers of the request if an agent serves it; otherwise empty.
    pub(super) headers: HeaderMap,
    /// Repeats the authorization of a watch or an agent stream while the response lasts. `None` for other requests.
    pub(super) reauthorization: Option<Reauthorization>,
    /// The user to whom a watch or an agent stream is charged. `None` for a request without impersonation, which is
    /// charged to its own user.
    pub(super) charged_user: Option<User>,
    pub(super) body: Bytes,
}

impl ApiRequest {
    pub(super) fn charged_user(&self) -> &User {
        self.charged_user.as_ref().unwrap_or(&self.context.user)
    }

    pub(super) fn representation(&self) -> Result<Representation, ApiError> {
        Representation::from_accept(&self.accept, self.query.get("includeObject"))
    }

    /// Returns the representation and the encoding of a list response.
    pub(super) fn list_format(&self, view: Representation) -> (Representation, Encoding) {
        (view, if prefers_yaml(&self.accept) { Encoding::Yaml } else { Encoding::Json })
    }

    pub(super) fn document_response(&self, document: &StaticDocument) -> ApiResponse {
        reply::document_response(document, &self.if_none_match)
    }

    pub(super) fn decode_body(&self, expected: GroupVersionKind<'_>) -> Result<Value, ApiError> {
        decode::decode_object(&self.context, expected, &self.media_type, &self.body)
    }

    /// Decodes the delete options from the body or, if there is no body, from the query. The body may lack `kind` and
    /// `apiVersion`: kubectl omits them. A dry run can be requested in the body and in the query.
    pub(super) fn delete_options(&self) -> Result<(DeleteOptions, RequestContext), ApiError> {
        let expected = GroupVersionKind { group: "", version: "v1", kind: "DeleteOptions" };
        let body = if self.body.is_empty() { None } else { Some(self.decode_body(expected)?) };
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
