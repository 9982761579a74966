//! DELETE of one object, or of a collection.

use bytes::Bytes;
use hyper::StatusCode;
use serde_json::json;

use crate::error::ApiError;
use crate::http::negotiation::Representation;
use crate::http::reply::{json_response, list_response, object_response, success_status};
use crate::http::{Api, ApiRequest, ApiResponse};
use crate::kinds::Kind;
use crate::registry::DeleteOutcome;
use crate::request::RequestTarget;
use crate::subresource::Subresource;
use crate::unstructured::{self, str_at};

impl Api {
    /// Deletes one object. The response body is the object if its kind returns deleted objects or if the deletion is
    /// pending, and otherwise a `Status`.
    pub(super) async fn delete(
        &self,
        target: &RequestTarget,
        api_request: &ApiRequest,
        view: Representation,
    ) -> Result<ApiResponse, ApiError> {
        let kind = target.kind;
        let (options, context) = api_request.delete_options()?;
        let show = |code, object| object_response(&api_request.context, code, view, kind, object);
        match self.registry.delete(&context, target, &options).await? {
            DeleteOutcome::Pending { now } if options.requests_cascade => Ok(show(StatusCode::ACCEPTED, now)),
            DeleteOutcome::Pending { now } => Ok(show(StatusCode::OK, now)),
            DeleteOutcome::Removed { last } if kind.returns_deleted_object => Ok(show(StatusCode::OK, last)),
            DeleteOutcome::Removed { last } => {
                let mut details = json!({
                    "name": target.name,
                    "kind": kind.plural,
                    "uid": unstructured::parse_stored(&last)["metadata"]["uid"],
                });
                if !kind.group.is_empty() {
                    details["group"] = json!(kind.group);
                }
                Ok(json_response(StatusCode::OK, &success_status(details)))
            }
        }
    }

    /// Deletes the objects of a collection that the selector of the request matches, and returns them as a list. With
    /// the query parameter `limit`, deletes one page only. If admission refuses to delete one of the objects, deletes
    /// none.
    pub(super) async fn delete_collection(
        &self,
        kind: &'static Kind,
        namespace: Option<&str>,
        api_request: &ApiRequest,
        view: Representation,
    ) -> Result<ApiResponse, ApiError> {
        let list_options = api_request.query.list_options(kind)?;
        let (options, context) = api_request.delete_options()?;
        let listed = self.registry.storage.list_page(kind, namespace, &list_options)?;
        let target = |object: &Bytes| {
            let object = unstructured::parse_stored(object);
            RequestTarget {
                kind,
                namespace: kind.namespaced.then(|| str_at(&object, "metadata.namespace").to_owned()),
                name: str_at(&object, "metadata.name").to_owned(),
                subresource: Subresource::Whole,
            }
        };
        let targets: Vec<RequestTarget> = listed.objects.iter().map(target).collect();
        // All or nothing: if admission refuses one object, none is deleted.
        for target in &targets {
            match self.registry.check_delete(&context, target, &options).await {
                Err(it) if !it.is_not_found() => return Err(it),
                _ => {}
            }
        }
        for target in targets {
            match self.registry.delete(&context, &target, &options).await {
                Ok(_) => {}
                // Another client has deleted it in the meantime.
                Err(it) if it.is_not_found() => {}
                Err(it) => return Err(it),
            }
        }
        Ok(list_response(&context, api_request.list_format(view), kind, listed))
    }
}
