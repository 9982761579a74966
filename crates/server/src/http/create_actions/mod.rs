//! Create requests whose object is not stored: reviews, token requests, bindings and evictions.

/// The subresource `pods/eviction`.
mod eviction;

use serde_json::{Value, json};

use super::Api;
use crate::admission::node_restriction;
use crate::auth;
use crate::error::ApiError;
use crate::kinds::{CreateAction, Kind};
use crate::request::{RequestContext, RequestTarget};
use crate::subresource::Subresource;
use crate::unstructured::str_at;

impl Api {
    /// Performs the action of a create request whose object is not stored, and returns the response object. For a
    /// subresource, `target` names the object to which the subresource belongs.
    pub(super) async fn run_create_action(
        &self,
        action: CreateAction,
        context: &RequestContext,
        target: &RequestTarget,
        body: Value,
    ) -> Result<Value, ApiError> {
        match action {
            CreateAction::Binding => self.bind_pod(context, target, &body).await,
            CreateAction::Eviction => eviction::evict_pod(&self.registry, context, target, &body).await,
            CreateAction::ServiceAccountToken => {
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
            CreateAction::SelfSubjectReview => {
                Ok(auth::reviews::review_self(context, with_type_meta(target, body)))
            }
            CreateAction::TokenReview => {
                auth::reviews::review_token(&self.registry.access, context, with_type_meta(target, body))
            }
            CreateAction::SubjectAccessReview => {
                auth::reviews::review_access(&self.registry.access, target, with_type_meta(target, body))
            }
            CreateAction::SelfSubjectAccessReview => auth::reviews::review_own_access(
                &self.registry.access,
                context,
                target,
                with_type_meta(target, body),
            ),
            CreateAction::SelfSubjectRulesReview => {
                auth::reviews::review_own_rules(&self.registry.access, context, with_type_meta(target, body))
            }
        }
    }

    /// Binds a pod to a node for a scheduler. The pod is named in the URL `pods/NAME/binding` or, if the Binding is
    /// sent to `bindings`, in `metadata.name` of the Binding.
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

/// Returns the review with the `apiVersion` and `kind` of the requested resource.
fn with_type_meta(target: &RequestTarget, mut review: Value) -> Value {
    review["apiVersion"] = json!(target.kind.api_version());
    review["kind"] = json!(target.kind.kind);
    review
}

/// Returns a `Status` with the code 201, the response to a binding or eviction.
fn created_status() -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success", "code": 201})
}
