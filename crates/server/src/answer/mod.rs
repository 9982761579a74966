//! What is sent to be answered or done, and is not stored itself.

mod eviction;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::context::Context;
use crate::http::Api;
use crate::kinds::Kind;
use crate::object::str_at;
use crate::refusal::Refusal;
use crate::route::{Part, Target};

pub(crate) use eviction::eviction;

/// A scheduler says where a pod goes: to `pods/NAME/binding`, or to `bindings`, where the pod's name is the binding's.
pub(crate) fn binding<'a>(
    api: &'a Api,
    context: &'a Context,
    target: &'a Target,
    binding: Value,
) -> BoxFuture<'a, Result<Value, Refusal>> {
    async move {
        let name = if target.name.is_empty() { str_at(&binding, "metadata.name") } else { &target.name };
        let pods = Kind::find("", "v1", "pods").expect("it is in the table");
        let pod = Target {
            kind: pods,
            namespace: target.namespace.clone(),
            name: name.to_owned(),
            part: Part::Binding,
        };
        api.registry.bind(context, &pod, &binding).await?;
        Ok(success())
    }
    .boxed()
}

fn success() -> Value {
    json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success", "code": 201})
}
