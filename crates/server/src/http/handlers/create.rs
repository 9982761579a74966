//! POST of an object, or of a subresource that no agent serves.

use hyper::StatusCode;

use crate::error::ApiError;
use crate::http::negotiation::Representation;
use crate::http::reply::{json_response, object_response};
use crate::http::{Api, ApiRequest, ApiResponse};
use crate::kinds::Kind;
use crate::request::RequestTarget;
use crate::subresource::Subresource;
use crate::types::GroupVersionKind;

impl Api {
    /// Creates the object in the body. For a kind with a create action, such as TokenReview, performs the action and
    /// stores no object.
    pub(super) async fn create(
        &self,
        kind: &'static Kind,
        namespace: Option<String>,
        api_request: &ApiRequest,
        view: Representation,
    ) -> Result<ApiResponse, ApiError> {
        let context = &api_request.context;
        if kind.namespaced && namespace.is_none() {
            return Err(ApiError::method_not_allowed());
        }
        if let Some(action) = kind.create_action {
            view.require_whole_object()?;
            let target =
                RequestTarget { kind, namespace, name: String::new(), subresource: Subresource::Whole };
            let created = self
                .run_create_action(action, context, &target, api_request.decode_body(kind.typed())?)
                .await?;
            return Ok(json_response(StatusCode::CREATED, &created));
        }
        let object = kind.to_storage_version(api_request.decode_body(kind.typed())?);
        let created = self.registry.create(context, kind, namespace.as_deref(), object).await?;
        Ok(object_response(context, StatusCode::CREATED, view, kind, created))
    }

    /// Handles a POST to a subresource, such as `binding`, `eviction` or `token`.
    pub(super) async fn create_subresource(
        &self,
        target: &RequestTarget,
        api_request: &ApiRequest,
        view: Representation,
    ) -> Result<ApiResponse, ApiError> {
        let kind = target.kind;
        let Some(sub) = kind.subresources.iter().find(|it| it.subresource == target.subresource) else {
            return Err(ApiError::method_not_allowed());
        };
        let (Some((group, version, kind)), Some(action)) = (sub.body, sub.create_action) else {
            return Err(ApiError::method_not_allowed());
        };
        view.require_whole_object()?;
        let body = match (
            api_request.decode_body(GroupVersionKind { group, version, kind }.into()),
            sub.older_body_version,
        ) {
            (Err(_), Some(version)) => {
                api_request.decode_body(GroupVersionKind { group, version, kind }.into())?
            }
            (body, _) => body?,
        };
        Ok(json_response(
            StatusCode::CREATED,
            &self.run_create_action(action, &api_request.context, target, body).await?,
        ))
    }
}
