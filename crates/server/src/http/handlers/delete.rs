//! DELETE of one object, or of a collection.

use bytes::Bytes;
use hyper::StatusCode;
use serde_json::json;

use crate::error::ApiError;
use crate::http::negotiation::View;
use crate::http::reply::{json_of, show, show_list, success};
use crate::http::{Api, ApiRequest, Response};
use crate::kinds::Kind;
use crate::registry::Deleted;
use crate::request::Target;
use crate::subresource::Subresource;
use crate::unstructured::{self, str_at};

impl Api {
    pub(super) async fn delete(
        &self,
        target: &Target,
        asked: &ApiRequest,
        view: View,
    ) -> Result<Response, ApiError> {
        let kind = target.kind;
        let (options, context) = asked.delete_options()?;
        let show = |code, object| show(&asked.context, code, view, kind, object);
        match self.registry.delete(&context, target, &options).await? {
            Deleted::Marked { now } if options.is_cascade_asked => Ok(show(StatusCode::ACCEPTED, now)),
            Deleted::Marked { now } => Ok(show(StatusCode::OK, now)),
            Deleted::Gone { last } if kind.returns_deleted => Ok(show(StatusCode::OK, last)),
            Deleted::Gone { last } => {
                let mut details = json!({
                    "name": target.name,
                    "kind": kind.plural,
                    "uid": unstructured::parse(&last)["metadata"]["uid"],
                });
                if !kind.group.is_empty() {
                    details["group"] = json!(kind.group);
                }
                Ok(json_of(StatusCode::OK, &success(details)))
            }
        }
    }

    pub(super) async fn delete_collection(
        &self,
        kind: &'static Kind,
        namespace: Option<&str>,
        asked: &ApiRequest,
        view: View,
    ) -> Result<Response, ApiError> {
        let list_options = asked.query.list_options(kind)?;
        let (options, context) = asked.delete_options()?;
        let listed = self.registry.storage.list_page(kind, namespace, &list_options)?;
        let target = |object: &Bytes| {
            let object = unstructured::parse(object);
            Target {
                kind,
                namespace: kind.namespaced.then(|| str_at(&object, "metadata.namespace").to_owned()),
                name: str_at(&object, "metadata.name").to_owned(),
                subresource: Subresource::Whole,
            }
        };
        let targets: Vec<Target> = listed.objects.iter().map(target).collect();
        // All or nothing: if admission refuses one object, none is deleted.
        for target in &targets {
            match self.registry.may_delete(&context, target, &options).await {
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
        Ok(show_list(&context, asked.list_as(view), kind, listed))
    }
}
