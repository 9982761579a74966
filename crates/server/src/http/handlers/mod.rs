//! Handlers of API requests: one module for each verb on resources, and one for other paths. Upstream:
//! `apiserver/pkg/endpoints/handlers`.

/// POST of an object, or of a subresource that no agent serves.
mod create;
/// DELETE of one object or of a collection.
mod delete;
/// GET of one object, or of a subresource that no agent serves.
mod get;
/// GET of a collection without the query parameter `watch`.
mod list;
/// Requests for non-resource paths, such as discovery, OpenAPI, health and metrics.
mod nonresource;
/// PATCH of an object or a subresource, including server-side apply.
mod patch;
/// PUT of an object or a subresource.
mod update;
/// Watches: GET with the query parameter `watch`, or of a deprecated watch path.
mod watch;

use std::time::Duration;

use hyper::Method;
use muster_store::Revision;
use serde_json::{Value, json};

use super::route::Route;
use super::{Api, ApiRequest, ApiResponse};
use crate::error::ApiError;
use crate::kinds::Kind;
use crate::request::RequestTarget;
use crate::subresource::Subresource;
use crate::unstructured::{self, str_at};

/// Maximum time that a read waits until the store of this server has reached the requested `resourceVersion`.
const RESOURCE_VERSION_WAIT_TIMEOUT: Duration = Duration::from_secs(3);

impl Api {
    /// Calls the handler for the route and the verb of a request, and returns its response.
    pub(super) async fn dispatch(
        &self,
        route: Route,
        api_request: &ApiRequest,
    ) -> Result<ApiResponse, ApiError> {
        if let Some(text) = route.kind().and_then(|it| it.deprecation_warning) {
            api_request.context.add_warning(text);
        }
        match route {
            Route::Collection { kind, namespace } => {
                self.handle_collection(kind, namespace, api_request).await
            }
            Route::Watch { kind, namespace, name } => {
                self.watch(kind, namespace, name.as_deref(), api_request).await
            }
            Route::Object(target) => self.handle_object(&target, api_request).await,
            other => self.handle_nonresource(other, api_request).await,
        }
    }

    /// Handles a request whose URL names a collection: list, watch, create or delete collection.
    async fn handle_collection(
        &self,
        kind: &'static Kind,
        namespace: Option<String>,
        api_request: &ApiRequest,
    ) -> Result<ApiResponse, ApiError> {
        // The authorized verb decides, not the HTTP method.
        if api_request.context.verb == "watch" {
            return self.watch(kind, namespace, None, api_request).await;
        }
        let view = api_request.representation()?;
        if !kind.verbs.contains(&api_request.context.verb.as_ref()) {
            return Err(ApiError::method_not_allowed_on(kind));
        }
        if let Some(of) = kind.metered_resource {
            return self.list_resource_metrics(kind, of, namespace.as_deref(), api_request, view).await;
        }
        match api_request.method {
            Method::GET => self.list(kind, namespace.as_deref(), api_request, view).await,
            Method::POST => self.create(kind, namespace, api_request, view).await,
            Method::DELETE => self.delete_collection(kind, namespace.as_deref(), api_request, view).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// Handles a request whose URL names one object or a subresource of one object.
    async fn handle_object(
        &self,
        target: &RequestTarget,
        api_request: &ApiRequest,
    ) -> Result<ApiResponse, ApiError> {
        let kind = target.kind;
        let is_allowed =
            kind.subresource_verbs(target.subresource).contains(&api_request.context.verb.as_ref());
        if let Subresource::Agent(what) = target.subresource {
            return match what {
                // An OPTIONS request is passed on to the backend of a proxy.
                "proxy" if is_allowed || api_request.method == Method::OPTIONS => {
                    self.proxy(target, api_request).await
                }
                what if is_allowed => self.serve_from_agent(target, what, api_request).await,
                _ => Err(ApiError::method_not_allowed()),
            };
        }
        let view = api_request.representation()?;
        if !is_allowed {
            return Err(ApiError::method_not_allowed_on(kind));
        }
        if let Some(of) = kind.metered_resource {
            return self.get_resource_metrics(target, of, api_request, view).await;
        }
        match (&api_request.method, target.subresource) {
            (&Method::GET, it) if it.supports_get_and_update() => self.get(target, api_request, view).await,
            (&Method::PUT, it) if it.supports_get_and_update() || it == Subresource::Finalize => {
                self.update(target, api_request, view).await
            }
            (&Method::PATCH, it) if it.supports_get_and_update() => {
                self.patch(target, api_request, view).await
            }
            (&Method::DELETE, Subresource::Whole) => self.delete(target, api_request, view).await,
            (&Method::POST, _) => self.create_subresource(target, api_request, view).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// Waits until the store has reached the revision `requested`, that of the request or of its continue token. Fails
    /// after `RESOURCE_VERSION_WAIT_TIMEOUT`.
    async fn wait_for_revision(&self, requested: Revision) -> Result<(), ApiError> {
        if requested <= self.registry.storage.revision() {
            return Ok(());
        }
        let reached = self.registry.storage.wait_until_reached(requested);
        match tokio::time::timeout(RESOURCE_VERSION_WAIT_TIMEOUT, reached).await {
            Ok(()) => Ok(()),
            Err(_) => Err(ApiError::resource_version_too_large(requested, self.registry.storage.revision())),
        }
    }
}

/// Checks that the object to write has the namespace and name of the URL. If the object has no namespace, inserts the
/// namespace of the URL. Removes the namespace of a cluster-scoped object.
fn match_object_to_url(target: &RequestTarget, object: &mut Value) -> Result<(), ApiError> {
    let meta = unstructured::map_at_mut(object, "metadata");
    match (target.namespace.as_deref(), meta.get("namespace").and_then(Value::as_str)) {
        (Some(namespace), Some(found)) if found == namespace => {}
        (Some(namespace), None | Some("")) => drop(meta.insert("namespace".into(), json!(namespace))),
        (None, _) => drop(meta.remove("namespace")),
        (Some(_), Some(_)) => {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    match str_at(object, "metadata.name") {
        "" => Err(ApiError::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        ))),
        name if name == target.name => Ok(()),
        name => Err(ApiError::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        ))),
    }
}
