//! Who set which field: `metadata.managedFields`, and server-side apply.

use serde_json::Value;

use crate::context::Context;
use crate::object::map_mut;
use crate::refusal::Refusal;
use crate::route::Target;

/// Notes that `context.manager()` made `new` of `old`; there is no `old` where the object is created. Cannot fail:
/// a write goes through even if the managed fields that came with it make no sense.
pub(crate) fn updated(_context: &Context, _target: &Target, new: &mut Value, _old: Option<&Value>) {
    map_mut(new, "metadata").remove("managedFields");
}

/// Server-side apply: what `old`, or a new object, becomes if its manager wants `applied`.
pub(crate) fn applied(
    _context: &Context,
    _target: &Target,
    _applied: &Value,
    _force: bool,
    _old: Option<&Value>,
) -> Result<Value, Refusal> {
    Err(Refusal::unsupported_media("application/merge-patch+json, application/strategic-merge-patch+json"))
}
