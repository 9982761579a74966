//! PUT: replaces an object or a subresource.

use crate::error::ApiError;
use crate::http::negotiation::Representation;
use crate::http::reply::write_outcome_response;
use crate::http::{Api, ApiRequest, ApiResponse};
use crate::request::RequestTarget;

use super::match_object_to_url;

impl Api {
    /// Replaces the object or subresource with the object in the body.
    pub(super) async fn update(
        &self,
        target: &RequestTarget,
        api_request: &ApiRequest,
        view: Representation,
    ) -> Result<ApiResponse, ApiError> {
        let kind = target.kind;
        let mut object = api_request.decode_body(kind.typed())?;
        match_object_to_url(target, &mut object)?;
        let object = kind.to_storage_version(object);
        let written = self.registry.replace(&api_request.context, target, object).await?;
        Ok(write_outcome_response(&api_request.context, view, kind, written))
    }
}
