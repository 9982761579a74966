//! Nothing is made in a namespace that is not there, or that is going. Upstream: `NamespaceLifecycle`.

use serde_json::Value;

use super::{Attempt, Operation};
use crate::kinds::Kind;
use crate::object::{self, str_at};
use crate::refusal::Refusal;
use crate::registry::Registry;

/// Namespaces without which a cluster is none.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];

/// Rule: nothing is made in a namespace that is missing or going; some namespaces never go.
pub(super) fn admit(registry: &Registry, attempt: Attempt<'_>, object: &Value) -> Result<(), Refusal> {
    let target = attempt.target;
    if std::ptr::eq(target.kind, Kind::namespace()) {
        let is_lost = matches!(attempt.operation, Operation::Delete) && IMMORTAL.contains(&&*target.name);
        return if is_lost {
            Err(attempt.forbid(object, "this namespace may not be deleted"))
        } else {
            Ok(())
        };
    }
    // The objects of a namespace that is going may be changed, and must be deleted.
    let (Operation::Create, Some(namespace)) = (attempt.operation, target.namespace.as_deref()) else {
        return Ok(());
    };
    let Some(stored) = registry.peek(Kind::namespace(), None, namespace) else {
        return Err(Refusal::not_found(Kind::namespace(), namespace));
    };
    if str_at(&object::parse(&stored), "status.phase") != "Terminating" {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let cause = format!("namespace {namespace} is being terminated");
    Err(attempt.forbid(object, &why).because("NamespaceTerminating", &cause, "metadata.namespace"))
}
