//! The ways to change an object without sending it whole.

pub(crate) mod go;
mod json;
mod merge;
mod strategic;

#[cfg(test)]
mod tests;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::admit::Cause;
use crate::context::{Context, FieldValidation};
use crate::decode::Gvk;
use crate::refusal::Refusal;
use crate::types::{self, Shape};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

/// What is wrong with a body and does not keep it from being understood.
type Complaints = Vec<String>;

impl PatchType {
    const ACCEPTED: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";

    pub(crate) fn of(content_type: &str) -> Result<Self, Refusal> {
        match content_type {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            other => Err(Refusal::unsupported_media(other, Self::ACCEPTED)),
        }
    }

    /// Only who applies must say who he is, and may insist.
    pub(crate) fn refuse_options(self, manager: &str, says_force: bool) -> Result<(), Refusal> {
        let cause = match self {
            Self::Apply if manager.is_empty() => {
                Cause::required("fieldManager", "is required for apply patch")
            }
            Self::Json | Self::Merge | Self::Strategic if says_force => {
                Cause::forbidden("force", "may not be specified for non-apply patch")
            }
            _ => return Ok(()),
        };
        Err(Refusal::invalid_patch_options(&[cause]))
    }

    /// What the patch in `body` makes of `object`.
    pub(crate) fn apply(
        self,
        of: Gvk<'_>,
        object: &Value,
        body: &[u8],
    ) -> Result<(Value, Complaints), Refusal> {
        let mut object = object.clone();
        let (patch, mut complaints) = parse(body).map_err(|error| self.undecodable(&error))?;
        let mismatch = |patch: &Value, expected: &str| {
            let got = go::json_type_of(patch);
            self.undecodable(&format!("json: cannot unmarshal {got} into Go value of type {expected}"))
        };
        match (self, patch) {
            (Self::Json, Value::Null) => {}
            (Self::Json, Value::Array(operations)) => {
                if let Some(wrong) = operations.iter().find(|it| !it.is_object() && !it.is_null()) {
                    return Err(mismatch(wrong, "handlers.jsonPatchOp"));
                }
                if json::OPERATIONS_MAX < operations.len() {
                    return Err(Refusal::entity_too_large(&format!(
                        "The allowed maximum operations in a JSON patch is {}, got {}",
                        json::OPERATIONS_MAX,
                        operations.len()
                    )));
                }
                complaints.extend(json::unknown_fields(&operations));
                complaints.iter_mut().for_each(|it| it.insert_str(0, "json patch "));
                json::apply(&mut object, &operations)
                    .map_err(|json::DoesNotApply| Refusal::unprocessable())?;
            }
            (Self::Json, other) => return Err(mismatch(&other, "[]handlers.jsonPatchOp")),
            (Self::Merge, Value::Null) => return Err(Refusal::bad_request("Invalid JSON Patch")),
            (Self::Merge, Value::Object(patch)) => {
                if let Some(object) = object.as_object_mut() {
                    merge::merge(object, patch);
                }
            }
            (Self::Strategic, Value::Null) => {}
            (Self::Strategic, Value::Object(patch)) => {
                let original = object.as_object_mut().map(std::mem::take).unwrap_or_default();
                let shape = types::of(of.group, of.version, of.kind).map_or(Shape::Any, Shape::Object);
                object = Value::Object(strategic::merge(original, patch, shape)?);
            }
            (Self::Merge | Self::Strategic, other) => {
                return Err(mismatch(&other, "map[string]interface {}"));
            }
            (Self::Apply, _) => unreachable!("what is applied is not a change of what stands"),
        }
        Ok((object, complaints))
    }

    fn undecodable(self, why: &str) -> Refusal {
        match self {
            Self::Strategic => Refusal::bad_request(why),
            _ => Refusal::bad_request(format!("error decoding patch: {why}")),
        }
    }
}

/// The body of a server-side apply: YAML, which JSON is too.
pub(crate) fn applied(body: &[u8]) -> Result<(Value, Complaints), Refusal> {
    let bad = |why: String| Refusal::bad_request(format!("error decoding YAML: {why}"));
    let (applied, twice) = match parse(body) {
        Ok(parsed) => parsed,
        Err(_) => {
            let text = std::str::from_utf8(body).map_err(|_| bad("yaml: invalid UTF-8".to_owned()))?;
            let parsed: Value = serde_saphyr::from_str(text)
                .map_err(|error| bad(format!("error converting YAML to JSON: yaml: {error}")))?;
            (parsed, Vec::new())
        }
    };
    match applied {
        Value::Object(_) => Ok((applied, twice)),
        Value::Null => Ok((Value::Object(Map::new()), twice)),
        other => Err(bad(format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go::json_type_of(&other)
        ))),
    }
}

/// Tells the client of what is wrong with a patch, or refuses it if the client would have it so.
pub(crate) fn complain(context: &Context, complaints: Complaints, object: &Value) -> Result<(), Refusal> {
    match context.field_validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            let why = format!("strict decoding error: {}", complaints.join(", "));
            let cause = Cause::invalid("patch", &Value::String(object.to_string()), &why);
            Err(Refusal::invalid_patch(&[cause]))
        }
        FieldValidation::Warn => {
            complaints.into_iter().for_each(|it| context.warn(it));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// As `complain`, of what was applied.
pub(crate) fn complain_of_yaml(context: &Context, complaints: Complaints) -> Result<(), Refusal> {
    if complaints.is_empty() {
        return Ok(());
    }
    let key = |it: &String| {
        let path = it.trim_start_matches("duplicate field ").trim_matches('"');
        format!("  line 1: key {:?} already set in map", path.rsplit('.').next().unwrap_or_default())
    };
    let keys: Vec<_> = complaints.iter().map(key).collect();
    let why = format!("error converting YAML to JSON: yaml: unmarshal errors:\n{}", keys.join("\n"));
    match context.field_validation {
        FieldValidation::Strict => Err(Refusal::bad_request(format!("error strict decoding YAML: {why}"))),
        FieldValidation::Warn => {
            context.warn(why);
            Ok(())
        }
        FieldValidation::Ignore => Ok(()),
    }
}

/// JSON, and which names are there twice in an object of it: the last one counts.
fn parse(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    let mut twice = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Reading { path: &mut String::new(), twice: &mut twice }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| syntax_error(body, &error))?;
    Ok((value, twice))
}

/// As `encoding/json` words it.
fn syntax_error(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let line = body.split(|it| *it == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let at = line.get(error.column().saturating_sub(1)).copied().unwrap_or(b' ');
    format!("invalid character {:?} looking for beginning of value", char::from(at))
}

struct Reading<'a> {
    path: &'a mut String,
    twice: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("JSON")
    }

    fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_f64<E>(self, it: f64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_str<E>(self, it: &str) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_string<E>(self, it: String) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let Reading { path, twice } = self;
        let here = path.len();
        let mut all = Vec::new();
        loop {
            path.push_str(&format!("[{}]", all.len()));
            let item = items.next_element_seed(Reading { path: &mut *path, twice: &mut *twice })?;
            path.truncate(here);
            match item {
                Some(item) => all.push(item),
                None => return Ok(Value::Array(all)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let Reading { path, twice } = self;
        let here = path.len();
        let mut all = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            if here != 0 {
                path.push('.');
            }
            path.push_str(&name);
            if all.contains_key(&name) {
                twice.push(format!("duplicate field {path:?}"));
            }
            let value = entries.next_value_seed(Reading { path: &mut *path, twice: &mut *twice })?;
            path.truncate(here);
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}
