//! Handles creates that store no object of their own kind: reviews, tokens, bindings and evictions.

mod eviction;

use serde_json::{Value, json};

use super::Api;
use crate::admission::node_restriction;
use crate::auth;
use crate::error::ApiError;
use crate::kinds::{Kind, VirtualCreate};
use crate::request::{RequestContext, RequestTarget};
use crate::subresource::Subresource;
use crate::unstructured::str_at;

impl Api {
    /// Executes the create and returns the response object. The name in `target` is that of the object to which
    /// the subresource belongs.
    pub(super) async fn virtual_create(
        &self,
        create: VirtualCreate,
        context: &RequestContext,
        target: &RequestTarget,
        body: Value,
    ) -> Result<Value, ApiError> {
        match create {
            VirtualCreate::Binding => self.bind_pod(context, target, &body).await,
            VirtualCreate::Eviction => eviction::evict_pod(&self.registry, context, target, &body).await,
            VirtualCreate::ServiceAccountToken => {
                let write = node_restriction::NodeWrite::Create { new: &body };
                node_restriction::check_node_write(
                    &self.registry.access,
                    &context.user,
                    target,
                    "token",
                    write,
                )?;
                auth::token_request::create_token(&self.registry.access, context, target, body)
            }
            VirtualCreate::SelfSubjectReview => {
                Ok(auth::reviews::review_self(context, with_type_meta(target, body)))
            }
            VirtualCreate::TokenReview => {
                auth::reviews::review_token(&self.registry.access, context, with_type_meta(target, body))
            }
            VirtualCreate::SubjectAccessReview => {
                auth::reviews::review_access(&self.registry.access, target, with_type_meta(target, body))
            }
            VirtualCreate::SelfSubjectAccessReview => auth::reviews::review_own_access(
                &self.registry.access,
                context,
                target,
                with_type_meta(target, body),
            ),
            VirtualCreate::SelfSubjectRulesReview => {
                auth::reviews::review_own_rules(&self.registry.access, context, with_type_meta(target, body))
            }
        }
    }

    /// Binds a pod to a node for a scheduler: through `pods/NAME/binding`, or through `bindings`, where the
    /// Binding has the pod's name.
    async fn bind_pod(
        &self,
        context: &RequestContext,
        target: &RequestTarget,
        binding: &Value,
    ) -> Result<Value, ApiError> {
        let name = if target.name.is_empty() { str_at(binding, "metadata.name") } else { &target.name };
        let pods = Kind::builtin("", "v1", "pods");
        let pod = RequestTarget {
            kind: pods,
            namespace: target.namespace.clone(),
            name: name.to_owned(),
            subresource: Subresource::Binding,
        };
        self.registry.bind_pod(context, &pod, binding).await?;
        Ok(created_status())
    }
}

/// Sets kind and version of a review to those of the request URL.
fn with_type_meta(target: &RequestTarget, mut review: Value) -> Value {
    review["apiVersion"] = json!(target.kind.api_version());
    review["kind"] = json!(target.kind.kind);
    review
}

fn created_status() -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success", "code": 201})
}
