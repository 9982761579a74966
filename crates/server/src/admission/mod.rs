//! What the server makes of an object beyond its own defaults and checks, by what else there is in the store.

use serde_json::Value;

use crate::context::Context;
use crate::kinds::Kind;
use crate::object::{self, is_set};
use crate::refusal::Refusal;
use crate::registry::Registry;
use crate::route::Target;
use crate::standing::NAMESPACES;

/// A write that asks to be admitted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt<'a> {
    /// Its name is empty where it is still to be generated.
    pub(crate) target: &'a Target,
    pub(crate) operation: Operation<'a>,
}

#[allow(dead_code, reason = "plugins read it")]
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation<'a> {
    Create,
    Update { old: &'a Value },
    Delete { old: &'a Value },
}

/// Runs before the server's own fields are set, and before any check. `object` is null for a delete.
pub(crate) async fn mutate(
    registry: &Registry,
    _context: &Context,
    attempt: Attempt<'_>,
    _object: &mut Value,
) -> Result<(), Refusal> {
    let target = attempt.target;
    match (attempt.operation, target.namespace.as_deref()) {
        (Operation::Create, Some(namespace)) => {
            refuse_dying_namespace(registry, target.kind, namespace, &target.name)
        }
        // Without it nothing works.
        (Operation::Delete { .. }, None)
            if target.kind.holds_others && NAMESPACES.contains(&&*target.name) =>
        {
            Err(Refusal::forbidden(target.kind, &target.name, "this namespace may not be deleted"))
        }
        _ => Ok(()),
    }
}

/// Runs last, on the object as it would be stored. May charge a quota. `object` is null for a delete.
pub(crate) async fn validate(
    _registry: &Registry,
    _context: &Context,
    _attempt: Attempt<'_>,
    _object: &Value,
) -> Result<(), Refusal> {
    Ok(())
}

fn refuse_dying_namespace(
    registry: &Registry,
    kind: &Kind,
    namespace: &str,
    name: &str,
) -> Result<(), Refusal> {
    let Some(stored) = registry.peek(Kind::namespace(), None, namespace) else {
        return Err(Refusal::not_found(Kind::namespace(), namespace));
    };
    if is_set(&object::parse(&stored)["metadata"]["deletionTimestamp"]) {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        return Err(Refusal::forbidden(kind, name, &why));
    }
    Ok(())
}
