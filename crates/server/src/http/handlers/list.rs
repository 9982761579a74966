//! GET of a collection without the query parameter `watch`.

use crate::error::ApiError;
use crate::http::negotiation::Representation;
use crate::http::reply::list_response;
use crate::http::{Api, ApiRequest, ApiResponse};
use crate::kinds::{Kind, MeteredResource};

use super::watch::watch_timeout;

impl Api {
    /// Returns one page of the objects of a collection.
    pub(super) async fn list(
        &self,
        kind: &'static Kind,
        namespace: Option<&str>,
        api_request: &ApiRequest,
        view: Representation,
    ) -> Result<ApiResponse, ApiError> {
        let query = &api_request.query;
        watch_timeout(query)?;
        let options = query.list_options(kind)?;
        self.wait_for_revision(query.resource_version()?.max(options.from.revision())).await?;
        let listed = self.registry.storage.list_page(kind, namespace, &options)?;
        Ok(list_response(&api_request.context, api_request.list_format(view), kind, listed))
    }

    /// Returns the resource metrics of all selected nodes or pods (`metrics.k8s.io`).
    pub(super) async fn list_resource_metrics(
        &self,
        kind: &'static Kind,
        of: MeteredResource,
        namespace: Option<&str>,
        api_request: &ApiRequest,
        view: Representation,
    ) -> Result<ApiResponse, ApiError> {
        let measured =
            self.read_resource_metrics(kind, of, namespace, &api_request.query.selector(kind)?).await?;
        Ok(list_response(&api_request.context, api_request.list_format(view), kind, measured))
    }
}
