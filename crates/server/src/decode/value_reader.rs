//! Decodes values of a given type in one pass, from JSON, YAML or a `serde_json::Value`.
//!
//! The result equals what Go serializes after decoding the same input. It has no unknown fields and no null where Go
//! omits the field. Quantities and times have their canonical form. The zero values that Go always writes are present.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::scalar;
use crate::types::{Field, Presence, Shape, Type};

/// Maximum number of strict decoding errors that are reported, as in upstream.
pub(crate) const STRICT_ERRORS_MAX: usize = 100;

/// Maximum memory in bytes that the values of one body may take, estimated with `OBJECT_BYTES`, `ENTRY_BYTES` and
/// `ITEM_BYTES`. Without this limit, a body of 3 MiB of `{"":0}` would take 300 MiB. The limit is high enough for an
/// object of 1.4 MiB with a nested object every 40 bytes, which takes 33 MiB.
pub(crate) const DECODED_BYTES_MAX: usize = 40 << 20;

/// Estimated memory in bytes of a decoded object without its entries. Even an object with one entry takes this much,
/// because a node of serde_json's map has capacity for eleven entries.
pub(crate) const OBJECT_BYTES: usize = 700;

/// Estimated memory in bytes of an entry of a decoded object: its field name on the heap.
pub(crate) const ENTRY_BYTES: usize = 48;

/// Estimated memory in bytes of an item of a decoded list: 32 bytes, counted twice because a growing list is copied.
pub(crate) const ITEM_BYTES: usize = 64;

/// Error message for a body whose values exceed `DECODED_BYTES_MAX`.
pub(crate) const TOO_MANY_VALUES_MESSAGE: &str = "the body has too many values";

/// Estimated memory in bytes that the values of one body may still take. Initially `DECODED_BYTES_MAX`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryBudget(usize);

impl Default for MemoryBudget {
    fn default() -> Self {
        Self(DECODED_BYTES_MAX)
    }
}

impl MemoryBudget {
    /// Subtracts `bytes` from the budget. Fails with `TOO_MANY_VALUES_MESSAGE` if fewer bytes are left.
    ///
    /// Rule: the values of one body take a bounded amount of memory, whether the body is JSON, YAML or protobuf, typed
    /// or untyped, a patch or an object.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), &'static str> {
        self.0 = self.0.checked_sub(bytes).ok_or(TOO_MANY_VALUES_MESSAGE)?;
        Ok(())
    }
}

/// Errors in the content of a decoded value: all errors other than those in the JSON or YAML syntax.
#[derive(Debug, Default)]
pub(crate) struct ContentErrors {
    /// Strict decoding errors, for unknown and duplicate fields: `unknown field "spec.x"`.
    pub(crate) strict_errors: Vec<String>,
    /// Error for a value of the wrong type or an invalid scalar, worded as in Go, or `TOO_MANY_VALUES_MESSAGE`. If it
    /// is set, the decoding has failed.
    pub(crate) type_error: Option<String>,
    /// Whether `type_error` is about `kind` or `apiVersion`, so that the intended kind is unknown.
    pub(super) is_type_meta_error: bool,
}

/// Decodes an object of the type `of`. Returns the object and the errors in its content. Drops `managedFields` of
/// reviews, which are never stored. The result is `Err` after a syntax error or a type error, and if the value exceeds
/// `DECODED_BYTES_MAX`.
pub(super) fn read_typed<'de, D: Deserializer<'de>>(
    from: D,
    of: &'static Type,
) -> (Result<Value, D::Error>, ContentErrors) {
    let mut reader = ValueReader { drops_managed_fields: drops_managed_fields(of), ..ValueReader::default() };
    let read = TypedSeed { reader: &mut reader, shape: Shape::Object(of), go_type: None }.deserialize(from);
    (read, reader.errors)
}

/// Decodes a value of any type. Returns the value, and its duplicate fields as strict decoding errors. Subtracts the
/// memory of the value from `budget`. The result is `Err` after a syntax error, and if the budget is exceeded.
pub(crate) fn read_untyped<'de, D: Deserializer<'de>>(
    from: D,
    budget: &mut MemoryBudget,
) -> (Result<Value, D::Error>, ContentErrors) {
    let mut reader = ValueReader { budget: *budget, ..ValueReader::default() };
    let read = UntypedSeed { reader: &mut reader, reports_duplicates: true }.deserialize(from);
    *budget = reader.budget;
    (read, reader.errors)
}

/// Whether `metadata.managedFields` of objects of the type `of` is dropped. Reviews are not stored, so their
/// `managedFields` are meaningless.
pub(crate) fn drops_managed_fields(of: &'static Type) -> bool {
    go_struct_name(of).ends_with("Review")
}

/// Returns the estimated memory of a value in bytes, calculated in the same way as for a request body.
pub(crate) fn estimated_bytes(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(|it| ITEM_BYTES + estimated_bytes(it)).sum(),
        Value::Object(entries) => {
            OBJECT_BYTES + entries.values().map(|it| ENTRY_BYTES + estimated_bytes(it)).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// State of the decoding of one value.
#[derive(Default)]
struct ValueReader {
    /// Path from the root of the decoded value to the current value.
    path: Vec<PathStep>,
    /// Name of the Go struct that is being decoded, for error messages.
    go_struct: &'static str,
    budget: MemoryBudget,
    /// Whether to drop `metadata.managedFields` of the decoded object.
    drops_managed_fields: bool,
    errors: ContentErrors,
}

/// One step of the path to the current value.
enum PathStep {
    /// A field of an object with a known type.
    Field(&'static Field),
    /// A key of a map.
    Key(String),
    /// An index in a list.
    Index(usize),
}

impl ValueReader {
    /// Subtracts `bytes` from the budget. If fewer bytes are left, sets `ContentErrors::type_error` and returns an
    /// error.
    fn charge_memory<E: serde::de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        self.budget.charge(bytes).map_err(|why| self.record_type_error(why))
    }

    /// Records a strict decoding error for the field `name` of the current value. `what` is `unknown` or `duplicate`.
    /// Ignores repeated errors, and errors after the first `STRICT_ERRORS_MAX`.
    fn record_strict_error(&mut self, what: &str, name: &str) {
        if self.errors.strict_errors.len() == STRICT_ERRORS_MAX {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            let name = match step {
                PathStep::Field(field) => field.name,
                PathStep::Key(name) => name,
                PathStep::Index(at) => {
                    path.push_str(&format!("[{at}]"));
                    continue;
                }
            };
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name);
        }
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        let error = format!("{what} field {path:?}");
        if !self.errors.strict_errors.contains(&error) {
            self.errors.strict_errors.push(error);
        }
    }

    /// Sets `ContentErrors::type_error`, and returns the error that stops the decoding.
    fn record_type_error<E: serde::de::Error>(&mut self, why: impl Into<String>) -> E {
        let why = why.into();
        let error = E::custom(&why);
        self.errors.type_error = Some(why);
        error
    }

    /// Records Go's error for a value of the wrong type, and returns the error that stops the decoding. The message
    /// names the struct and the fields that lead to the value, without list indices and map keys. Upstream:
    /// `json.UnmarshalTypeError`.
    fn record_unmarshal_type_error<E: serde::de::Error>(&mut self, found: &str, go_type: &str) -> E {
        let fields = self.path.iter().filter_map(|it| match it {
            PathStep::Field(field) => Some(*field),
            PathStep::Key(_) | PathStep::Index(_) => None,
        });
        let names: Vec<&str> = fields.flat_map(|it| it.embedded.into_iter().chain([it.name])).collect();
        let place = match &names[..] {
            [] => "Go value".to_owned(),
            // Go reads these two first, into an anonymous struct.
            [name @ ("apiVersion" | "kind")] => {
                self.errors.is_type_meta_error = true;
                format!("Go struct field .{name}")
            }
            _ => format!("Go struct field {}.{}", self.go_struct, names.join(".")),
        };
        self.record_type_error(format!("json: cannot unmarshal {found} into {place} of type {go_type}"))
    }
}

/// Serde seed that deserializes one value of the type that `shape` describes.
struct TypedSeed<'a> {
    reader: &'a mut ValueReader,
    shape: Shape,
    /// Name of the value's type in Go, if it is a named type. Error messages contain it.
    go_type: Option<&'static str>,
}

impl<'de> DeserializeSeed<'de> for TypedSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        match self.shape {
            Shape::Any | Shape::FieldsV1 => {
                UntypedSeed { reader: self.reader, reports_duplicates: false }.deserialize(from)
            }
            _ => from.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for TypedSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&go_type_name(self.shape, self.go_type))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, it: bool) -> Result<Value, E> {
        match self.shape {
            Shape::Bool => Ok(it.into()),
            Shape::Quantity => self.visit_quantity(if it { "true" } else { "false" }),
            _ => Err(self.record_unexpected_type_error("bool")),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, it: i64) -> Result<Value, E> {
        match self.shape {
            Shape::Int64 => Ok(it.into()),
            Shape::Int32 | Shape::IntOrString if i32::try_from(it).is_ok() => Ok(it.into()),
            Shape::Int32 | Shape::IntOrString => {
                Err(self.record_unexpected_type_error(&format!("number {it}")))
            }
            Shape::Quantity => self.visit_quantity(&it.to_string()),
            _ => Err(self.record_unexpected_type_error("number")),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, it: u64) -> Result<Value, E> {
        match i64::try_from(it) {
            Ok(it) => self.visit_i64(it),
            Err(_) => self.visit_non_integer(&it.to_string()),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, it: f64) -> Result<Value, E> {
        self.visit_non_integer(&format!("{it:?}"))
    }

    fn visit_str<E: serde::de::Error>(self, it: &str) -> Result<Value, E> {
        match self.shape {
            Shape::String | Shape::IntOrString => Ok(it.into()),
            Shape::Bytes => scalar::canonical_base64(it).map_err(|why| self.reader.record_type_error(why)),
            Shape::Time => scalar::canonical_time(it).map_err(|why| self.reader.record_type_error(why)),
            Shape::MicroTime => {
                scalar::canonical_micro_time(it).map_err(|why| self.reader.record_type_error(why))
            }
            Shape::Quantity => self.visit_quantity(it),
            _ => Err(self.record_unexpected_type_error("string")),
        }
    }

    fn visit_string<E: serde::de::Error>(self, it: String) -> Result<Value, E> {
        match self.shape {
            Shape::String | Shape::IntOrString => Ok(it.into()),
            _ => self.visit_str(&it),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let Shape::List(items, _) = self.shape else {
            return Err(self.record_unexpected_type_error("array"));
        };
        let mut list = Vec::new();
        loop {
            self.reader.path.push(PathStep::Index(list.len()));
            let go_type = self.go_type.and_then(|it| it.strip_prefix("[]"));
            let item =
                seq.next_element_seed(TypedSeed { reader: &mut *self.reader, shape: *items, go_type })?;
            self.reader.path.pop();
            self.reader.charge_memory(ITEM_BYTES)?;
            match item {
                None => return Ok(Value::Array(list)),
                Some(Value::Null) => list.push(items.go_zero_value()),
                Some(item) => list.push(item),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        match self.shape {
            Shape::Object(of) => self.visit_object(of, map),
            Shape::Map(values, _) => self.visit_typed_map(*values, map),
            _ => Err(self.record_unexpected_type_error("object")),
        }
    }
}

impl TypedSeed<'_> {
    /// Decodes an object with the fields of the type `of`.
    fn visit_object<'de, A: MapAccess<'de>>(self, of: &'static Type, mut map: A) -> Result<Value, A::Error> {
        self.reader.charge_memory(OBJECT_BYTES)?;
        let outer = std::mem::replace(&mut self.reader.go_struct, go_struct_name(of));
        let mut object = Map::new();
        let mut seen = SeenFields::default();
        while let Some(found) = map.next_key_seed(FieldNameSeed(of))? {
            let at = match found {
                Ok(at) => at,
                Err(name) => {
                    self.reader.record_strict_error("unknown", &name);
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let field = &of.fields[at];
            if seen.mark_seen(at) {
                self.reader.record_strict_error("duplicate", field.name);
            }
            if self.reader.drops_managed_fields && field.name == "managedFields" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            self.reader.path.push(PathStep::Field(field));
            let seed = TypedSeed { reader: &mut *self.reader, shape: field.shape, go_type: field.go_type };
            let value = map.next_value_seed(seed)?;
            self.reader.path.pop();
            if is_serialized(field, &value) {
                object.insert(field.name.to_owned(), value);
            } else {
                // The last of duplicate fields wins, also if it is empty.
                object.remove(field.name);
            }
        }
        self.reader.go_struct = outer;
        self.reader.charge_memory(ENTRY_BYTES * object.len())?;
        of.add_always_serialized_fields(&mut object);
        Ok(Value::Object(object))
    }

    /// Decodes a map with arbitrary keys and with values of one type.
    fn visit_typed_map<'de, A: MapAccess<'de>>(self, values: Shape, mut map: A) -> Result<Value, A::Error> {
        let go_type = self.go_type.and_then(|it| it.strip_prefix("map[")?.split_once(']')).map(|(_, it)| it);
        let is_deep = matches!(values, Shape::Object(_) | Shape::List(..) | Shape::Map(..));
        let mut object = Map::new();
        self.reader.charge_memory(OBJECT_BYTES)?;
        while let Some(key) = map.next_key::<String>()? {
            self.reader.charge_memory(ENTRY_BYTES)?;
            if object.contains_key(&key) {
                self.reader.record_strict_error("duplicate", &key);
            }
            if is_deep {
                self.reader.path.push(PathStep::Key(key.clone()));
            }
            let seed = TypedSeed { reader: &mut *self.reader, shape: values, go_type };
            let value = map.next_value_seed(seed)?;
            if is_deep {
                self.reader.path.pop();
            }
            let value = match (value, values) {
                (Value::Null, Shape::Bytes) => "".into(),
                (Value::Null, values) => values.go_zero_value(),
                (value, _) => value,
            };
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }

    /// Decodes a number that is not a signed 64-bit integer, given as text. Only a quantity may have such a value. For
    /// any other type, returns an error.
    fn visit_non_integer<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        match self.shape {
            Shape::Quantity => self.visit_quantity(text),
            Shape::Int32 | Shape::Int64 | Shape::IntOrString => {
                Err(self.record_unexpected_type_error(&format!("number {text}")))
            }
            _ => Err(self.record_unexpected_type_error("number")),
        }
    }

    fn visit_quantity<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        scalar::canonical_quantity(text).map_err(|why| self.reader.record_type_error(why))
    }

    /// Records the error for a value of the wrong type, and returns the error that stops the decoding. `found` is Go's
    /// description of the value.
    fn record_unexpected_type_error<E: serde::de::Error>(self, found: &str) -> E {
        match self.shape {
            Shape::Quantity => {
                self.reader.record_type_error(scalar::canonical_quantity("?").err().unwrap_or_default())
            }
            shape => self.reader.record_unmarshal_type_error(found, &go_type_name(shape, self.go_type)),
        }
    }
}

/// Bit set of the fields that have occurred in an object. No type has more than 128 fields.
#[derive(Default)]
struct SeenFields(u128);

impl SeenFields {
    /// Marks the field with the index `at` in `Type::fields` as seen. Returns whether it was seen before.
    fn mark_seen(&mut self, at: usize) -> bool {
        let bit = 1u128.checked_shl(u32::try_from(at).unwrap_or(u32::MAX)).unwrap_or(0);
        let twice = self.0 & bit != 0;
        self.0 |= bit;
        twice
    }
}

/// Serde seed that deserializes a field name into its index in `Type::fields`. If the type has no such field, returns
/// the name as `Err`.
struct FieldNameSeed(&'static Type);

impl<'de> DeserializeSeed<'de> for FieldNameSeed {
    type Value = Result<usize, String>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldNameSeed {
    type Value = Result<usize, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.field_index(name).ok_or_else(|| name.to_owned()))
    }
}

/// Serde seed that deserializes a value of any type.
struct UntypedSeed<'a> {
    reader: &'a mut ValueReader,
    /// Whether to record duplicate fields as strict decoding errors.
    reports_duplicates: bool,
}

impl<'de> DeserializeSeed<'de> for UntypedSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UntypedSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.deserialize(from)
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

    fn visit_f64<E: serde::de::Error>(self, it: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(it).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, it: &str) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_string<E>(self, it: String) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let Self { reader, reports_duplicates } = self;
        let mut list = Vec::new();
        loop {
            reader.path.push(PathStep::Index(list.len()));
            let item = seq.next_element_seed(UntypedSeed { reader: &mut *reader, reports_duplicates })?;
            reader.path.pop();
            reader.charge_memory(ITEM_BYTES)?;
            let Some(item) = item else { return Ok(Value::Array(list)) };
            list.push(item);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let Self { reader, reports_duplicates } = self;
        let mut object = Map::new();
        reader.charge_memory(OBJECT_BYTES)?;
        while let Some(key) = map.next_key::<String>()? {
            reader.charge_memory(ENTRY_BYTES)?;
            if reports_duplicates && object.contains_key(&key) {
                reader.record_strict_error("duplicate", &key);
            }
            reader.path.push(PathStep::Key(key.clone()));
            let value = map.next_value_seed(UntypedSeed { reader: &mut *reader, reports_duplicates })?;
            reader.path.pop();
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// Whether the decoded object contains the field, given the field's value.
///
/// Rule: an object has the fields that Go would serialize. Unset fields, and empty fields with `omitempty`, are left
/// out. So are empty lists and maps, unless they are pointers in Go.
fn is_serialized(field: &Field, value: &Value) -> bool {
    let holds_none = match value {
        Value::Null => true,
        _ if field.presence == Presence::Set => false,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty() && matches!(field.shape, Shape::Map(..)),
        _ => false,
    };
    match value {
        // Upstream stores protobuf, in which an empty list is the same as none.
        _ if holds_none => false,
        _ if field.presence != Presence::NotEmpty => true,
        Value::Bool(it) => *it,
        Value::Number(it) => it.as_f64() != Some(0.0),
        Value::String(it) => !it.is_empty(),
        Value::Null | Value::Array(_) | Value::Object(_) => true,
    }
}

/// Returns the name of a type in Go's error messages: `string` for a time, otherwise `named` if given, otherwise the
/// name that Go has for `shape`.
fn go_type_name(shape: Shape, named: Option<&str>) -> String {
    match shape {
        // A time has its own unmarshaller, which reads a string.
        Shape::Time | Shape::MicroTime => "string".to_owned(),
        _ if named.is_some() => named.unwrap_or_default().to_owned(),
        Shape::Bool => "bool".to_owned(),
        Shape::Int32 | Shape::IntOrString => "int32".to_owned(),
        Shape::Int64 => "int64".to_owned(),
        Shape::String => "string".to_owned(),
        Shape::Bytes => "[]uint8".to_owned(),
        Shape::Quantity => "resource.Quantity".to_owned(),
        Shape::Any => "runtime.RawExtension".to_owned(),
        Shape::FieldsV1 => "v1.FieldsV1".to_owned(),
        Shape::Object(of) => {
            let mut parts = of.name.rsplit('.');
            let (name, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            format!("{package}.{name}")
        }
        Shape::List(items, _) => format!("[]{}", go_type_name(*items, None)),
        Shape::Map(values, _) => format!("map[string]{}", go_type_name(*values, None)),
    }
}

/// Returns the name of the Go struct that corresponds to a type, without its package.
fn go_struct_name(of: &'static Type) -> &'static str {
    of.name.rsplit('.').next().unwrap_or_default()
}
