//! POST: creates an object or a subresource.

use hyper::StatusCode;

use crate::error::ApiError;
use crate::http::negotiation::View;
use crate::http::reply::{json_of, show};
use crate::http::{Api, ApiRequest, Response};
use crate::kinds::Kind;
use crate::request::Target;
use crate::subresource::Subresource;
use crate::types::GroupVersionKind;

impl Api {
    pub(super) async fn create(
        &self,
        kind: &'static Kind,
        namespace: Option<String>,
        asked: &ApiRequest,
        view: View,
    ) -> Result<Response, ApiError> {
        let context = &asked.context;
        if kind.namespaced && namespace.is_none() {
            return Err(ApiError::method_not_allowed());
        }
        if let Some(create) = kind.virtual_create {
            view.must_be_whole()?;
            let target = Target { kind, namespace, name: String::new(), subresource: Subresource::Whole };
            let created = self.virtual_create(create, context, &target, asked.object(kind.gvk())?).await?;
            return Ok(json_of(StatusCode::CREATED, &created));
        }
        let object = kind.to_storage_version(asked.object(kind.gvk())?);
        let created = self.registry.create(context, kind, namespace.as_deref(), object).await?;
        Ok(show(context, StatusCode::CREATED, view, kind, created))
    }

    pub(super) async fn create_subresource(
        &self,
        target: &Target,
        asked: &ApiRequest,
        view: View,
    ) -> Result<Response, ApiError> {
        let kind = target.kind;
        let Some(sub) = kind.subresources.iter().find(|it| it.subresource == target.subresource) else {
            return Err(ApiError::method_not_allowed());
        };
        let (Some((group, version, kind)), Some(create)) = (sub.body, sub.virtual_create) else {
            return Err(ApiError::method_not_allowed());
        };
        view.must_be_whole()?;
        let body = match (asked.object(GroupVersionKind { group, version, kind }), sub.older) {
            (Err(_), Some(version)) => asked.object(GroupVersionKind { group, version, kind })?,
            (body, _) => body?,
        };
        Ok(json_of(StatusCode::CREATED, &self.virtual_create(create, &asked.context, target, body).await?))
    }
}
