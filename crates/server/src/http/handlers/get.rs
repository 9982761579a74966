//! GET of one object, or of a subresource that no agent serves.

use hyper::StatusCode;

use crate::error::ApiError;
use crate::http::negotiation::Representation;
use crate::http::reply::object_response;
use crate::http::{Api, ApiRequest, ApiResponse};
use crate::kinds::MeteredResource;
use crate::request::RequestTarget;
use crate::selector::ObjectSelector;

impl Api {
    /// Returns one object. A GET of a subresource such as `status` returns the whole object too.
    pub(super) async fn get(
        &self,
        target: &RequestTarget,
        api_request: &ApiRequest,
        view: Representation,
    ) -> Result<ApiResponse, ApiError> {
        self.wait_for_revision(api_request.query.resource_version()?).await?;
        let object = self.registry.storage.get(target)?;
        Ok(object_response(&api_request.context, StatusCode::OK, view, target.kind, object))
    }

    /// Returns the resource metrics of one node or pod (`metrics.k8s.io`). Returns a 404 error if its metrics are
    /// unknown.
    pub(super) async fn get_resource_metrics(
        &self,
        target: &RequestTarget,
        of: MeteredResource,
        api_request: &ApiRequest,
        view: Representation,
    ) -> Result<ApiResponse, ApiError> {
        let kind = target.kind;
        let selector = ObjectSelector::parse(kind, "", &format!("metadata.name={}", target.name))?;
        let measured = self.read_resource_metrics(kind, of, target.namespace.as_deref(), &selector).await?;
        let object = measured.objects.into_iter().next_back().ok_or_else(|| target.not_found_error())?;
        Ok(object_response(&api_request.context, StatusCode::OK, view, kind, object))
    }
}
