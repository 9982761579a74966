//! GET of one object.

use hyper::StatusCode;

use crate::error::ApiError;
use crate::http::negotiation::View;
use crate::http::reply::show;
use crate::http::{Api, ApiRequest, Response};
use crate::kinds::MeteredResource;
use crate::request::Target;
use crate::selector::Selector;

impl Api {
    pub(super) async fn get(
        &self,
        target: &Target,
        asked: &ApiRequest,
        view: View,
    ) -> Result<Response, ApiError> {
        self.wait_for(asked.query.version()?).await?;
        let object = self.registry.storage.get(target)?;
        Ok(show(&asked.context, StatusCode::OK, view, target.kind, object))
    }

    /// Returns the resource metrics of one node or pod (`metrics.k8s.io`).
    pub(super) async fn get_metered(
        &self,
        target: &Target,
        of: MeteredResource,
        asked: &ApiRequest,
        view: View,
    ) -> Result<Response, ApiError> {
        let kind = target.kind;
        let selector = Selector::parse(kind, "", &format!("metadata.name={}", target.name))?;
        let measured = self.resource_metrics(kind, of, target.namespace.as_deref(), &selector).await?;
        let object = measured.objects.into_iter().next_back().ok_or_else(|| target.not_found())?;
        Ok(show(&asked.context, StatusCode::OK, view, kind, object))
    }
}
