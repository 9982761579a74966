//! Decodes request bodies (JSON, YAML, protobuf) into objects of the expected type.

/// Decoding of protobuf request bodies.
mod protobuf;
/// Converts quantities, times and base64 to their canonical form.
mod scalar;
/// Decodes values of a given type, and values of any type.
pub(crate) mod value_reader;

use muster_api::well_known::{JSON_MEDIA_TYPE, PROTOBUF_MEDIA_TYPE, YAML_MEDIA_TYPE};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::go_format;
use crate::kinds::group_version;
use crate::request::{FieldValidation, RequestContext};
use crate::types::{self, GroupVersionKind, Type, TypedKind};
use crate::unstructured::str_at;
use crate::validation::FieldError;
use value_reader::{ContentErrors, MemoryBudget};

pub(crate) use value_reader::{DECODED_BYTES_MAX, STRICT_ERRORS_MAX, estimated_bytes};

/// Decodes the object in a request body. `kind` and `apiVersion` of the object may be absent. If they are present, they
/// must be those of `expected`, except that DeleteOptions may have any `apiVersion`. `media_type` has no parameters. An
/// empty `media_type` means JSON.
pub(crate) fn decode_object(
    context: &RequestContext,
    expected: TypedKind<'_>,
    media_type: &str,
    body: &[u8],
) -> Result<Value, ApiError> {
    let (expected, of) = (expected.gvk, expected_type(expected)?);
    let (read, errors) = match media_type {
        "" | JSON_MEDIA_TYPE => {
            let mut from = serde_json::Deserializer::from_slice(body);
            let (read, errors) = value_reader::read_typed(&mut from, of);
            let read = read.and_then(|it| from.end().map(|()| it));
            (read.map_err(|error| json_error_message(&error)), errors)
        }
        YAML_MEDIA_TYPE => match parse_yaml(body) {
            Ok((object, mut duplicates)) => {
                let (read, mut errors) = value_reader::read_typed(object, of);
                duplicates.append(&mut errors.strict_errors);
                (
                    read.map_err(|error| json_error_message(&error)),
                    ContentErrors { strict_errors: duplicates, ..errors },
                )
            }
            Err(error) => (Err(error), ContentErrors::default()),
        },
        PROTOBUF_MEDIA_TYPE if of.has_protobuf() => {
            let (type_meta, object) = protobuf::decode_object(body, of)
                .map_err(|why| unrecognized_object_error(expected, &why, body))?;
            check_type_meta(expected, &type_meta.api_version, &type_meta.kind)?;
            let (read, errors) = value_reader::read_typed(object, of);
            (read.map_err(|error| json_error_message(&error)), errors)
        }
        _ => {
            let mut accepted = vec![JSON_MEDIA_TYPE, YAML_MEDIA_TYPE];
            accepted.extend(of.has_protobuf().then_some(PROTOBUF_MEDIA_TYPE));
            return Err(ApiError::unsupported_media_type(&accepted.join(", ")));
        }
    };
    let mut object = match (read, &errors.type_error) {
        (Ok(object), _) => object,
        (Err(_), Some(why)) if errors.is_type_meta_error => {
            return Err(unrecognized_object_error(expected, &type_meta_error_message(why), body));
        }
        (Err(_), Some(why)) => {
            // The object may be of another kind, which is then the better error.
            let type_meta = TypeMeta::from_body(body);
            check_type_meta(expected, &type_meta.api_version, &type_meta.kind)?;
            return Err(decode_error(expected, &type_meta.kind, why));
        }
        (Err(error), None) => {
            return Err(unrecognized_object_error(expected, &type_meta_error_message(&error), body));
        }
    };
    check_type_meta(expected, str_at(&object, "apiVersion"), str_at(&object, "kind"))?;
    match context.field_validation {
        FieldValidation::Strict if !errors.strict_errors.is_empty() => {
            let why = format!("strict decoding error: {}", errors.strict_errors.join(", "));
            return Err(decode_error(expected, str_at(&object, "kind"), &why));
        }
        FieldValidation::Strict | FieldValidation::Ignore => {}
        FieldValidation::Warn => errors.strict_errors.into_iter().for_each(|it| context.add_warning(it)),
    }
    set_type_meta(expected, &mut object);
    Ok(object)
}

/// Decodes the object that a patch results in. Sets its `apiVersion` and `kind` without checking them. `strict_errors`
/// are the strict decoding errors of the patch itself.
pub(crate) fn decode_patch_result(
    context: &RequestContext,
    expected: TypedKind<'_>,
    object: Value,
    strict_errors: Vec<String>,
) -> Result<Value, ApiError> {
    let (expected, of) = (expected.gvk, expected_type(expected)?);
    // Most patches fit their type, so the result is only serialized for an error.
    let (read, mut errors) = value_reader::read_typed(&object, of);
    errors.strict_errors.splice(0..0, strict_errors);
    let wrong = match (&read, errors.type_error) {
        (Err(error), wrong) => Some(wrong.unwrap_or_else(|| json_error_message(error))),
        (Ok(_), _) if errors.strict_errors.is_empty() => None,
        (Ok(_), _) => match context.field_validation {
            FieldValidation::Strict => {
                Some(format!("strict decoding error: {}", errors.strict_errors.join(", ")))
            }
            FieldValidation::Ignore => None,
            FieldValidation::Warn => {
                errors.strict_errors.into_iter().for_each(|it| context.add_warning(it));
                None
            }
        },
    };
    if let Some(why) = wrong {
        return Err(patch_decode_error(&object, &why));
    }
    let mut object = read.unwrap_or_default();
    set_type_meta(expected, &mut object);
    Ok(object)
}

/// Decodes the object that a server-side apply results in. An applied object with unknown fields was already rejected,
/// so that only values can be invalid. `applied` is the object that the client applied. Error messages contain its
/// namespace and name.
pub(crate) fn decode_apply_result(
    expected: TypedKind<'_>,
    object: &Value,
    applied: &Value,
) -> Result<Value, ApiError> {
    let (expected, of) = (expected.gvk, expected_type(expected)?);
    let (read, errors) = value_reader::read_typed(object, of);
    let mut object = read.map_err(|error| {
        let why = errors.type_error.unwrap_or_else(|| json_error_message(&error));
        if why == value_reader::TOO_MANY_VALUES_MESSAGE {
            return applied_object_too_large_error(object);
        }
        let of = format!("{}/{}, Kind={}", expected.group, expected.version, expected.kind);
        ApiError::internal_without_reason(format!(
            "failed to convert new object ({}/{}; {of}) to proper version: unable to convert unstructured object to {of}: error decoding from json: {why}",
            str_at(applied, "metadata.namespace"),
            str_at(applied, "metadata.name"),
        ))
    })?;
    set_type_meta(expected, &mut object);
    Ok(object)
}

/// Returns the 413 error for an apply whose resulting object exceeds `DECODED_BYTES_MAX`.
///
/// Rule: an apply whose resulting object would exceed the limit of a decoded body is refused with 413. Each apply under
/// a new field manager adds an entry to `managedFields`. If these entries are the cause, the message says how to remove
/// them.
fn applied_object_too_large_error(object: &Value) -> ApiError {
    let managed = &object["metadata"]["managedFields"];
    if estimated_bytes(managed) < DECODED_BYTES_MAX / 2 {
        return ApiError::entity_too_large("the applied object has too many values");
    }
    let managers = managed.as_array().map_or(0, Vec::len);
    ApiError::entity_too_large(&format!(
        "metadata.managedFields has entries of {managers} field managers, which is too many: apply with fewer names of field \
         managers, and remove the entries with a merge patch that sets metadata.managedFields to [{{}}]"
    ))
}

/// Decodes the body of a JSON patch, merge patch or strategic merge patch. Returns the patch, and a strict decoding
/// error for each duplicate field.
pub(crate) fn decode_patch(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    let mut from = serde_json::Deserializer::from_slice(body);
    let (read, errors) = value_reader::read_untyped(&mut from, &mut MemoryBudget::default());
    let patch = read.and_then(|it| from.end().map(|()| it)).map_err(|error| json_error_message(&error))?;
    Ok((patch, errors.strict_errors))
}

/// Decodes the body of a server-side apply, in YAML or JSON. Returns the applied object, which is empty for a null
/// body, and a strict decoding error for each duplicate field of a JSON body.
pub(crate) fn decode_apply_configuration(body: &[u8]) -> Result<(Value, Vec<String>), ApiError> {
    let bad = |why: String| ApiError::bad_request(format!("error decoding YAML: {why}"));
    match parse_yaml(body).map_err(bad)? {
        (applied @ Value::Object(_), duplicates) => Ok((applied, duplicates)),
        (Value::Null, duplicates) => Ok((Value::Object(Map::new()), duplicates)),
        (other, _) => Err(bad(format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_format::json_type_of(&other)
        ))),
    }
}

/// Reports the duplicate fields of an applied object as the query parameter `fieldValidation` requires: as an error, as
/// a warning, or not at all. `duplicates` are the strict decoding errors of the object.
pub(crate) fn report_duplicate_fields(
    context: &RequestContext,
    duplicates: &[String],
) -> Result<(), ApiError> {
    if duplicates.is_empty() {
        return Ok(());
    }
    let key = |it: &String| {
        let path = it.trim_start_matches("duplicate field ").trim_matches('"');
        format!("  line 1: key {:?} already set in map", path.rsplit('.').next().unwrap_or_default())
    };
    let keys: Vec<_> = duplicates.iter().map(key).collect();
    let why = format!("error converting YAML to JSON: yaml: unmarshal errors:\n{}", keys.join("\n"));
    match context.field_validation {
        FieldValidation::Strict => Err(ApiError::bad_request(format!("error strict decoding YAML: {why}"))),
        FieldValidation::Warn => {
            context.add_warning(why);
            Ok(())
        }
        FieldValidation::Ignore => Ok(()),
    }
}

/// Parses YAML. The body is first parsed as JSON, because kubectl sends JSON as `apply-patch+yaml`. Returns the value,
/// and a strict decoding error for each duplicate field of a JSON body. A duplicate field in a body that is not JSON is
/// a parse error.
fn parse_yaml(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    let mut from = serde_json::Deserializer::from_slice(body);
    let (read, errors) = value_reader::read_untyped(&mut from, &mut MemoryBudget::default());
    match read.and_then(|it| from.end().map(|()| it)) {
        Ok(value) => return Ok((value, errors.strict_errors)),
        Err(_) if errors.type_error.is_some() => return Err(errors.type_error.unwrap_or_default()),
        Err(_) => {}
    }
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    // Duplicate fields are only reported for JSON: the YAML parser fails at a duplicate key.
    let read = serde_saphyr::with_deserializer_from_str(text, |from| {
        let (read, errors) = value_reader::read_untyped(from, &mut MemoryBudget::default());
        // The parser's own message for too many values would add a position.
        if errors.type_error.is_some() {
            Ok(Err(errors.type_error.unwrap_or_default()))
        } else {
            read.map(Ok)
        }
    });
    Ok((read.map_err(|error| error.to_string())??, Vec::new()))
}

/// Returns the [`Type`] of the expected kind. Returns a 400 error if the type is not known.
fn expected_type(TypedKind { gvk, object_type }: TypedKind<'_>) -> Result<&'static Type, ApiError> {
    object_type.ok_or_else(|| {
        let version = group_version(gvk.group, gvk.version);
        ApiError::bad_request(unregistered_kind_message(gvk.kind, &version))
    })
}

/// Sets `apiVersion` and `kind` to those of the expected kind.
fn set_type_meta(expected: GroupVersionKind<'_>, object: &mut Value) {
    object["apiVersion"] = group_version(expected.group, expected.version).into();
    object["kind"] = expected.kind.into();
}

/// Checks that `apiVersion` and `kind` of an object, if present, are those of the expected kind. DeleteOptions may have
/// any `apiVersion`.
fn check_type_meta(expected: GroupVersionKind<'_>, api_version: &str, kind: &str) -> Result<(), ApiError> {
    // DeleteOptions are the same in every group.
    let is_option = expected.kind == "DeleteOptions";
    let must = group_version(expected.group, expected.version);
    let api_version = if api_version.is_empty() || is_option { &must } else { api_version };
    let kind = if kind.is_empty() { expected.kind } else { kind };
    if (api_version, kind) == (must.as_str(), expected.kind) {
        return Ok(());
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if types::find_type(group, version, kind).is_none() {
        let why = unregistered_kind_message(kind, api_version);
        return Err(ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}: {why}",
            expected.kind
        )));
    }
    if kind == expected.kind {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({must})"
        )));
    }
    let package = if expected.group.is_empty() { "core" } else { expected.group };
    Err(ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {0}: converting ({version}.{kind}) to ({1}.{0}): \
         unknown conversion",
        expected.kind,
        package.split('.').next().unwrap_or(package),
    )))
}

/// Returns upstream's message for a kind that the server does not have.
fn unregistered_kind_message(kind: &str, api_version: &str) -> String {
    format!(
        "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
    )
}

/// The fields `apiVersion` and `kind` of a request body.
#[derive(Default)]
struct TypeMeta {
    api_version: String,
    kind: String,
}

impl TypeMeta {
    /// Reads `apiVersion` and `kind` from a JSON body, for an error message. A field that is absent or not a string is
    /// empty. Both are empty if the body is not JSON.
    fn from_body(body: &[u8]) -> Self {
        /// `apiVersion` and `kind` as unparsed JSON values, so that a value of the wrong type does not fail the
        /// parsing.
        #[derive(Default, serde::Deserialize)]
        struct UnparsedTypeMeta<'a> {
            #[serde(borrow, rename = "apiVersion")]
            api_version: Option<&'a RawValue>,
            #[serde(borrow)]
            kind: Option<&'a RawValue>,
        }
        let raw: UnparsedTypeMeta<'_> = serde_json::from_slice(body).unwrap_or_default();
        let text = |it: Option<&RawValue>| {
            it.and_then(|it| serde_json::from_str::<String>(it.get()).ok()).unwrap_or_default()
        };
        Self { api_version: text(raw.api_version), kind: text(raw.kind) }
    }
}

/// Returns the 400 error for a body that cannot be decoded as the expected kind. `kind` is the kind in the body.
fn decode_error(expected: GroupVersionKind<'_>, kind: &str, why: &str) -> ApiError {
    let kind = if kind.is_empty() { expected.kind } else { kind };
    let version = expected.version;
    ApiError::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {}: {why}",
        expected.kind
    ))
}

/// Returns the 422 error for a patch whose result, `object`, cannot be decoded.
fn patch_decode_error(object: &Value, why: &str) -> ApiError {
    let value = Value::from(go_format::truncate_quoted(&object.to_string()));
    let message = format!("Invalid value: {value}: {why}");
    ApiError::invalid_patch(FieldError { reason: "FieldValueInvalid", field: "patch".into(), message })
}

/// Returns the 400 error for a body that cannot be parsed, or whose `apiVersion` or `kind` has the wrong type. The
/// message quotes the first bytes of the body.
fn unrecognized_object_error(expected: GroupVersionKind<'_>, why: &str, body: &[u8]) -> ApiError {
    /// Maximum number of bytes of the request body that the error message quotes.
    const BODY_EXCERPT_BYTES_MAX: usize = 30;
    let more = if BODY_EXCERPT_BYTES_MAX < body.len() { " ..." } else { "" };
    let start = &body[..body.len().min(BODY_EXCERPT_BYTES_MAX)];
    let shown = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(start).into_owned(),
        Some(_) => start.iter().map(|it| format!("{it:02x}")).collect(),
    };
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({shown}{more})",
        expected.kind
    ))
}

/// Returns upstream's message for a body whose `apiVersion` and `kind` cannot be read.
fn type_meta_error_message(why: &str) -> String {
    format!("couldn't get version/kind; json parse error: {why}")
}

/// Returns the message for a JSON error. For an unexpected end of input, the most common error, this is the message of
/// Go's `encoding/json`.
fn json_error_message(error: &serde_json::Error) -> String {
    if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() }
}

/// Generates random objects of the served types, for property tests.
#[cfg(test)]
pub(crate) mod arbitrary;
#[cfg(test)]
mod tests;
