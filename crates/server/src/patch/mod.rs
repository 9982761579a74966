//! Patches: JSON patch, JSON merge patch and strategic merge patch.

/// JSON patch (RFC 6902).
mod json;
/// JSON merge patch (RFC 7386).
mod merge;
/// Strategic merge patch.
mod strategic;

#[cfg(test)]
mod tests;

use muster_api::well_known::{
    APPLY_PATCH_MEDIA_TYPE, JSON_PATCH_MEDIA_TYPE, MERGE_PATCH_MEDIA_TYPE, STRATEGIC_MERGE_PATCH_MEDIA_TYPE,
};
use serde_json::Value;

use crate::error::ApiError;
use crate::types::{Shape, Type};
use crate::validation::FieldError;
use crate::{decode, go_format};

/// The type of a patch, which follows from the `Content-Type` of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// JSON patch (RFC 6902).
    Json,
    /// JSON merge patch (RFC 7386).
    Merge,
    /// Strategic merge patch.
    Strategic,
    /// Server-side apply.
    Apply,
}

/// Strict decoding errors of a patch, for example for duplicate fields. The query parameter `fieldValidation`
/// determines what happens with them.
type StrictErrors = Vec<String>;

impl PatchType {
    /// Returns the patch type for a `Content-Type`. Fails if the server does not support it.
    pub(crate) fn from_content_type(content_type: &str) -> Result<Self, ApiError> {
        match content_type {
            JSON_PATCH_MEDIA_TYPE => Ok(Self::Json),
            MERGE_PATCH_MEDIA_TYPE => Ok(Self::Merge),
            STRATEGIC_MERGE_PATCH_MEDIA_TYPE => Ok(Self::Strategic),
            APPLY_PATCH_MEDIA_TYPE => Ok(Self::Apply),
            _ => Err(ApiError::unsupported_patch_type()),
        }
    }

    /// Checks the options of a patch: server-side apply requires `fieldManager`, and only server-side apply allows
    /// `force`.
    pub(crate) fn validate_options(self, manager: &str, has_force: bool) -> Result<(), ApiError> {
        let cause = match self {
            Self::Apply if manager.is_empty() => {
                FieldError::required("fieldManager", "is required for apply patch")
            }
            Self::Json | Self::Merge | Self::Strategic if has_force => {
                FieldError::forbidden("force", "may not be specified for non-apply patch")
            }
            _ => return Ok(()),
        };
        Err(ApiError::invalid_options("PatchOptions", &[cause]))
    }

    /// Applies the patch in `body` to `object`, which has the type `of`. Returns the patched object and the strict
    /// decoding errors of the patch. Panics for server-side apply, which `Registry::apply` performs.
    pub(crate) fn apply(
        self,
        of: Option<&'static Type>,
        object: &Value,
        body: &[u8],
    ) -> Result<(Value, StrictErrors), ApiError> {
        let mut object = object.clone();
        let (patch, mut complaints) =
            decode::decode_patch(body).map_err(|error| self.decode_error(&error))?;
        let mismatch = |patch: &Value, expected: &str| {
            let got = go_format::json_type_of(patch);
            self.decode_error(&format!("json: cannot unmarshal {got} into Go value of type {expected}"))
        };
        match (self, patch) {
            (Self::Json, Value::Null) => {}
            (Self::Json, Value::Array(operations)) => {
                if let Some(wrong) = operations.iter().find(|it| !it.is_object() && !it.is_null()) {
                    return Err(mismatch(wrong, "handlers.jsonPatchOp"));
                }
                if json::OPERATIONS_MAX < operations.len() {
                    return Err(ApiError::entity_too_large(&format!(
                        "The allowed maximum operations in a JSON patch is {}, got {}",
                        json::OPERATIONS_MAX,
                        operations.len()
                    )));
                }
                complaints.extend(json::unknown_field_errors(&operations));
                complaints.iter_mut().for_each(|it| it.insert_str(0, "json patch "));
                json::apply_operations(&mut object, &operations)
                    .map_err(|json::PatchDoesNotApply| ApiError::patch_not_applicable())?;
            }
            (Self::Json, other) => return Err(mismatch(&other, "[]handlers.jsonPatchOp")),
            (Self::Merge, Value::Null) => return Err(ApiError::bad_request("Invalid JSON Patch")),
            (Self::Merge, Value::Object(patch)) => {
                if let Some(object) = object.as_object_mut() {
                    merge::merge_patch(object, patch);
                }
            }
            (Self::Strategic, Value::Null) => {}
            (Self::Strategic, Value::Object(patch)) => {
                let original = object.as_object_mut().map(std::mem::take).unwrap_or_default();
                let shape = of.map_or(Shape::Any, Shape::Object);
                object = Value::Object(strategic::merge_objects(original, patch.clone(), shape)?);
                if let Some(why) = strategic::conversion_error(shape, &object) {
                    let patch = Value::String(go_format::format_value(&Value::Object(patch)));
                    return Err(ApiError::invalid_patch(FieldError::invalid("patch", &patch, &why)));
                }
            }
            (Self::Merge | Self::Strategic, other) => {
                return Err(mismatch(&other, "map[string]interface {}"));
            }
            (Self::Apply, _) => unreachable!("server-side apply has its own handler"),
        }
        Ok((object, complaints))
    }

    /// Returns the error for a patch that cannot be decoded.
    fn decode_error(self, why: &str) -> ApiError {
        match self {
            Self::Strategic => ApiError::bad_request(why),
            _ => ApiError::bad_request(format!("error decoding patch: {why}")),
        }
    }
}
