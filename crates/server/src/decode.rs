//! From the bytes of a request to an object of the type that is expected.

use serde_json::Value;

use crate::context::Context;
use crate::object::str_at;
use crate::refusal::Refusal;

pub(crate) const JSON: &str = "application/json";

/// The group, version and kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gvk<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
}

/// The object in a body. It may leave out its kind and version, and must not name others than `expected`.
/// `media_type` comes without parameters; an empty one means JSON.
pub(crate) fn object(
    _context: &Context,
    expected: Gvk<'_>,
    media_type: &str,
    body: &[u8],
) -> Result<Value, Refusal> {
    let object: Value = match media_type {
        "" | JSON => serde_json::from_slice(body)
            .map_err(|error| Refusal::bad_request(format!("the body is not JSON: {error}")))?,
        other => return Err(Refusal::unsupported_media(other, JSON)),
    };
    let api_version = crate::kinds::group_version(expected.group, expected.version);
    for (field, must) in [("kind", expected.kind), ("apiVersion", &api_version)] {
        let said = str_at(&object, field);
        if !said.is_empty() && said != must {
            return Err(Refusal::bad_request(format!(
                "the {field} in the data ({said}) does not match the expected {field} ({must})"
            )));
        }
    }
    refuse_shapeless(expected, &object)?;
    Ok(object)
}

/// What a patch made of an object, held to its type like a body.
pub(crate) fn patched(_context: &Context, expected: Gvk<'_>, object: Value) -> Result<Value, Refusal> {
    refuse_shapeless(expected, &object)?;
    Ok(object)
}

/// The rest of the server relies on these being objects where they are at all.
fn refuse_shapeless(expected: Gvk<'_>, object: &Value) -> Result<(), Refusal> {
    let is_map = |it: &Value| it.is_null() || it.is_object();
    let wrong = ["metadata", "spec", "status"].into_iter().find(|it| !is_map(&object[it]));
    let Some(wrong) = wrong.or_else(|| (!object.is_object()).then_some("it")) else { return Ok(()) };
    Err(Refusal::bad_request(format!(
        "{0} in version \"{1}\" cannot be handled as a {0}: {wrong} is not an object",
        expected.kind, expected.version
    )))
}
