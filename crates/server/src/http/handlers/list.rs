//! GET of a collection.

use crate::error::ApiError;
use crate::http::negotiation::View;
use crate::http::reply::show_list;
use crate::http::{Api, ApiRequest, Response};
use crate::kinds::{Kind, MeteredResource};

use super::watch::watch_timeout;

impl Api {
    pub(super) async fn list(
        &self,
        kind: &'static Kind,
        namespace: Option<&str>,
        asked: &ApiRequest,
        view: View,
    ) -> Result<Response, ApiError> {
        let query = &asked.query;
        watch_timeout(query)?;
        let options = query.list_options(kind)?;
        self.wait_for(query.version()?).await?;
        let listed = self.registry.storage.list_page(kind, namespace, &options)?;
        Ok(show_list(&asked.context, asked.list_as(view), kind, listed))
    }

    /// Lists the resource metrics of nodes or pods (`metrics.k8s.io`).
    pub(super) async fn list_metered(
        &self,
        kind: &'static Kind,
        of: MeteredResource,
        namespace: Option<&str>,
        asked: &ApiRequest,
        view: View,
    ) -> Result<Response, ApiError> {
        let measured = self.resource_metrics(kind, of, namespace, &asked.query.selector(kind)?).await?;
        Ok(show_list(&asked.context, asked.list_as(view), kind, measured))
    }
}
