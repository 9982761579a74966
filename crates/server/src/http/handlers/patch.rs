//! PATCH: JSON patch, merge patch, strategic merge patch and server-side apply.

use hyper::StatusCode;
use serde_json::Value;

use crate::decode;
use crate::error::ApiError;
use crate::http::negotiation::View;
use crate::http::reply::{show, show_written};
use crate::http::{Api, ApiRequest, Response};
use crate::patch::PatchType;
use crate::request::Target;

use super::hold_to_url;

impl Api {
    pub(super) async fn patch(
        &self,
        target: &Target,
        asked: &ApiRequest,
        view: View,
    ) -> Result<Response, ApiError> {
        let (context, kind) = (&asked.context, target.kind);
        let patch_type = PatchType::of(&asked.media_type)?;
        patch_type.refuse_options(&context.field_manager, asked.query.has("force"))?;
        if patch_type == PatchType::Apply {
            return self.apply(target, asked, view).await;
        }
        let change = |old: &Value| {
            let old = kind.to_served_version(old.clone());
            let (object, complaints) = patch_type.apply(kind.gvk(), &old, &asked.body)?;
            let mut object = decode::patched(context, kind.gvk(), object, complaints)?;
            hold_to_url(target, &mut object)?;
            Ok(kind.to_storage_version(object))
        };
        let updated = self.registry.update(context, target, change).await?;
        Ok(show(context, StatusCode::OK, view, kind, updated))
    }

    /// Server-side apply.
    async fn apply(&self, target: &Target, asked: &ApiRequest, view: View) -> Result<Response, ApiError> {
        let context = &asked.context;
        let (applied, complaints) = decode::applied(&asked.body)?;
        let check = |object: &mut Value| {
            decode::complain_of_yaml(context, &complaints)?;
            hold_to_url(target, object)
        };
        let written = self.registry.apply(context, target, &applied, asked.query.is("force"), check).await?;
        Ok(show_written(context, view, target.kind, written))
    }
}
