//! PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.

use hyper::StatusCode;
use serde_json::Value;

use crate::decode;
use crate::error::ApiError;
use crate::http::negotiation::Representation;
use crate::http::reply::{object_response, write_outcome_response};
use crate::http::{Api, ApiRequest, ApiResponse};
use crate::patch::PatchType;
use crate::request::RequestTarget;

use super::match_object_to_url;

impl Api {
    /// Applies the patch in the body to the object. The `Content-Type` of the request selects the patch type.
    pub(super) async fn patch(
        &self,
        target: &RequestTarget,
        api_request: &ApiRequest,
        view: Representation,
    ) -> Result<ApiResponse, ApiError> {
        let (context, kind) = (&api_request.context, target.kind);
        let patch_type = PatchType::from_content_type(&api_request.media_type)?;
        patch_type.validate_options(&context.field_manager, api_request.query.contains("force"))?;
        if patch_type == PatchType::Apply {
            return self.apply(target, api_request, view).await;
        }
        let typed = kind.typed();
        let change = |old: &Value| {
            let old = kind.to_served_version(old.clone());
            let (object, strict_errors) = patch_type.apply(typed.object_type, &old, &api_request.body)?;
            let mut object = decode::decode_patch_result(context, typed, object, strict_errors)?;
            match_object_to_url(target, &mut object)?;
            Ok(kind.to_storage_version(object))
        };
        let updated = self.registry.update(context, target, change).await?;
        Ok(object_response(context, StatusCode::OK, view, kind, updated))
    }

    /// Handles a server-side apply: merges the configuration in the body into the object.
    async fn apply(
        &self,
        target: &RequestTarget,
        api_request: &ApiRequest,
        view: Representation,
    ) -> Result<ApiResponse, ApiError> {
        let context = &api_request.context;
        let (applied, strict_errors) = decode::decode_apply_configuration(&api_request.body)?;
        let check = |object: &mut Value| {
            decode::report_duplicate_fields(context, &strict_errors)?;
            match_object_to_url(target, object)
        };
        let written =
            self.registry.apply(context, target, &applied, api_request.query.is_true("force"), check).await?;
        Ok(write_outcome_response(context, view, target.kind, written))
    }
}
