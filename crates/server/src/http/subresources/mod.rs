//! Creates that store no object of their own kind: reviews, tokens, bindings and evictions.

mod eviction;

use serde_json::{Value, json};

use super::Api;
use crate::admission::node_restriction;
use crate::auth;
use crate::error::ApiError;
use crate::kinds::{Kind, VirtualCreate};
use crate::request::{Context, Target};
use crate::subresource::Subresource;
use crate::unstructured::str_at;

impl Api {
    /// Executes the create and returns the response object. The target has the name of the object that the
    /// subresource belongs to.
    pub(super) async fn virtual_create(
        &self,
        create: VirtualCreate,
        context: &Context,
        target: &Target,
        body: Value,
    ) -> Result<Value, ApiError> {
        match create {
            VirtualCreate::Binding => self.bind(context, target, &body).await,
            VirtualCreate::Eviction => eviction::evict(&self.registry, context, target, &body).await,
            VirtualCreate::ServiceAccountToken => {
                let write = node_restriction::NodeWrite::Create { new: &body };
                node_restriction::check(&self.registry.access, &context.user, target, "token", write)?;
                auth::token_request::answer(&self.registry.access, context, target, body)
            }
            VirtualCreate::SelfSubjectReview => Ok(auth::review::of_self(context, typed(target, body))),
            VirtualCreate::TokenReview => {
                auth::review::of_token(&self.registry.access, context, typed(target, body))
            }
            VirtualCreate::SubjectAccessReview => {
                auth::review::of_access(&self.registry.access, target, typed(target, body))
            }
            VirtualCreate::SelfSubjectAccessReview => {
                auth::review::of_own_access(&self.registry.access, context, target, typed(target, body))
            }
            VirtualCreate::SelfSubjectRulesReview => {
                auth::review::of_own_rules(&self.registry.access, context, typed(target, body))
            }
        }
    }

    /// Binds a pod to a node for a scheduler: through `pods/NAME/binding`, or through `bindings`, where the
    /// Binding has the pod's name.
    async fn bind(&self, context: &Context, target: &Target, binding: &Value) -> Result<Value, ApiError> {
        let name = if target.name.is_empty() { str_at(binding, "metadata.name") } else { &target.name };
        let pods = Kind::builtin("", "v1", "pods");
        let pod = Target {
            kind: pods,
            namespace: target.namespace.clone(),
            name: name.to_owned(),
            subresource: Subresource::Binding,
        };
        self.registry.bind(context, &pod, binding).await?;
        Ok(success())
    }
}

/// Sets kind and version of a review to those of the request URL.
fn typed(target: &Target, mut review: Value) -> Value {
    review["apiVersion"] = json!(target.kind.api_version());
    review["kind"] = json!(target.kind.kind);
    review
}

fn success() -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success", "code": 201})
}
