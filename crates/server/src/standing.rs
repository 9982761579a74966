//! Objects that are always there: made when the server starts, if they are missing.

use jiff::Timestamp;
use serde_json::json;

use crate::context::Context;
use crate::kinds::Kind;
use crate::refusal::Refusal;
use crate::registry::Registry;

pub(crate) const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

pub(crate) async fn make(registry: &Registry, now: Timestamp) -> Result<(), Refusal> {
    let context = Context::of_server("create", now);
    for name in NAMESPACES {
        if registry.peek(Kind::namespace(), None, name).is_none() {
            let namespace = json!({"metadata": {"name": name}});
            registry.create(&context, Kind::namespace(), None, namespace).await?;
        }
    }
    Ok(())
}
