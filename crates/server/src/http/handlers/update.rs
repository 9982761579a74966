//! PUT: replaces an object or a subresource.

use crate::error::ApiError;
use crate::http::negotiation::View;
use crate::http::reply::show_written;
use crate::http::{Api, ApiRequest, Response};
use crate::request::Target;

use super::hold_to_url;

impl Api {
    pub(super) async fn update(
        &self,
        target: &Target,
        asked: &ApiRequest,
        view: View,
    ) -> Result<Response, ApiError> {
        let kind = target.kind;
        let mut object = asked.object(kind.gvk())?;
        hold_to_url(target, &mut object)?;
        let object = kind.to_storage_version(object);
        let written = self.registry.replace(&asked.context, target, object).await?;
        Ok(show_written(&asked.context, view, kind, written))
    }
}
