//! Decodes values by their type in one pass, from JSON, YAML or a `serde_json::Value`.
//!
//! The result is what Go would serialize after it had decoded the same input: no unknown fields, no null where
//! Go omits the field, quantities and times in canonical form, and the zero values that Go always writes.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::scalar;
use crate::types::{Field, Presence, Shape, Type};

/// Most strict decoding errors that are reported. Upstream: the same number.
const NOTES_MAX: usize = 100;

/// Most memory that the values of one body may take, estimated with the three sizes below: a body of 3 MiB of
/// `{"":0}` would otherwise take 300 MiB. An object of 1.4 MiB with a nested object every 40 bytes takes 33
/// MiB.
pub(crate) const VALUES_BYTES_MAX: usize = 40 << 20;

/// Estimated memory of an object: a node of serde_json's map has space for eleven entries.
const OBJECT_BYTES: usize = 700;

/// Estimated memory of a field name on the heap.
const ENTRY_BYTES: usize = 48;

/// Estimated memory of a list item: 32 bytes, twice while the list grows.
const ITEM_BYTES: usize = 64;

pub(super) const TOO_MANY: &str = "the body has too many values";

/// Errors in the content of a value, apart from its syntax.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Strict decoding errors, for unknown and duplicate fields: `unknown field "spec.x"`.
    pub(super) strict: Vec<String>,
    /// Error for a value of the wrong type, as Go words it. Nothing was decoded in this case.
    pub(super) wrong: Option<String>,
    /// The error is in `kind` or `apiVersion`, so the intended type is unknown.
    pub(super) is_kindless: bool,
}

/// Decodes an object of a type. The error is a syntax error; errors in the content are in the notes.
pub(super) fn typed<'de, D: Deserializer<'de>>(
    from: D,
    of: &'static Type,
) -> (Result<Value, D::Error>, Notes) {
    // Reviews are not stored, so their `managedFields` are meaningless.
    let mut reader = Reader { without_managers: short_name(of).ends_with("Review"), ..Reader::default() };
    let read = At { reader: &mut reader, shape: Shape::Object(of), go_type: None }.deserialize(from);
    (read, reader.notes)
}

/// Decodes any value and notes duplicate fields.
pub(super) fn untyped<'de, D: Deserializer<'de>>(from: D) -> (Result<Value, D::Error>, Notes) {
    let mut reader = Reader::default();
    let read = Free { reader: &mut reader, notes_twice: true }.deserialize(from);
    (read, reader.notes)
}

/// Estimates the memory of a value in the same way as for a body.
pub(crate) fn values_bytes(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(|it| ITEM_BYTES + values_bytes(it)).sum(),
        Value::Object(entries) => {
            OBJECT_BYTES + entries.values().map(|it| ENTRY_BYTES + values_bytes(it)).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// State of one decoding.
#[derive(Default)]
struct Reader {
    path: Vec<ReadStep>,
    /// Name of the Go struct that is being decoded, for error messages.
    within: &'static str,
    /// Estimated memory of the values read so far.
    bytes: usize,
    /// Drop `metadata.managedFields`.
    without_managers: bool,
    notes: Notes,
}

/// One step of the path to the current value.
enum ReadStep {
    Field(&'static Field),
    Key(String),
    Index(usize),
}

impl Reader {
    /// Rule: the values of one body take a bounded amount of memory, with or without a type, in a patch or in
    /// an object.
    fn spend<E: serde::de::Error>(&mut self, bytes: usize) -> Result<(), E> {
        self.bytes += bytes;
        if self.bytes <= VALUES_BYTES_MAX { Ok(()) } else { Err(self.wrong(TOO_MANY)) }
    }

    /// Records a strict decoding error for the field `name` of the current value.
    fn note(&mut self, what: &str, name: &str) {
        if self.notes.strict.len() == NOTES_MAX {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            let name = match step {
                ReadStep::Field(field) => field.name,
                ReadStep::Key(name) => name,
                ReadStep::Index(at) => {
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
        let note = format!("{what} field {path:?}");
        if !self.notes.strict.contains(&note) {
            self.notes.strict.push(note);
        }
    }

    fn wrong<E: serde::de::Error>(&mut self, why: impl Into<String>) -> E {
        let why = why.into();
        let error = E::custom(&why);
        self.notes.wrong = Some(why);
        error
    }

    /// Returns Go's error for a value of the wrong type: the struct, and the field names that lead to the value
    /// without list indices and map keys. Upstream: `json.UnmarshalTypeError`.
    fn mismatch<E: serde::de::Error>(&mut self, found: &str, go_type: &str) -> E {
        let fields = self.path.iter().filter_map(|it| match it {
            ReadStep::Field(field) => Some(*field),
            ReadStep::Key(_) | ReadStep::Index(_) => None,
        });
        let names: Vec<&str> = fields.flat_map(|it| it.embedded.into_iter().chain([it.name])).collect();
        let place = match &names[..] {
            [] => "Go value".to_owned(),
            // Go reads these two first, into an anonymous struct.
            [name @ ("apiVersion" | "kind")] => {
                self.notes.is_kindless = true;
                format!("Go struct field .{name}")
            }
            _ => format!("Go struct field {}.{}", self.within, names.join(".")),
        };
        self.wrong(format!("json: cannot unmarshal {found} into {place} of type {go_type}"))
    }
}

/// Deserializes one value of a known type.
struct At<'a> {
    reader: &'a mut Reader,
    shape: Shape,
    /// Go's name of the type, if it is a named one.
    go_type: Option<&'static str>,
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        match self.shape {
            Shape::Any | Shape::FieldsV1 => {
                Free { reader: self.reader, notes_twice: false }.deserialize(from)
            }
            _ => from.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&go_type(self.shape, self.go_type))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, it: bool) -> Result<Value, E> {
        match self.shape {
            Shape::Bool => Ok(it.into()),
            Shape::Quantity => self.quantity(if it { "true" } else { "false" }),
            _ => Err(self.misfit("bool")),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, it: i64) -> Result<Value, E> {
        match self.shape {
            Shape::Int64 => Ok(it.into()),
            Shape::Int32 | Shape::IntOrString if i32::try_from(it).is_ok() => Ok(it.into()),
            Shape::Int32 | Shape::IntOrString => Err(self.misfit(&format!("number {it}"))),
            Shape::Quantity => self.quantity(&it.to_string()),
            _ => Err(self.misfit("number")),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, it: u64) -> Result<Value, E> {
        match i64::try_from(it) {
            Ok(it) => self.visit_i64(it),
            Err(_) => self.unwhole(&it.to_string()),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, it: f64) -> Result<Value, E> {
        self.unwhole(&format!("{it:?}"))
    }

    fn visit_str<E: serde::de::Error>(self, it: &str) -> Result<Value, E> {
        match self.shape {
            Shape::String | Shape::IntOrString => Ok(it.into()),
            Shape::Bytes => scalar::base64(it).map_err(|why| self.reader.wrong(why)),
            Shape::Time => scalar::time(it).map_err(|why| self.reader.wrong(why)),
            Shape::MicroTime => scalar::micro_time(it).map_err(|why| self.reader.wrong(why)),
            Shape::Quantity => self.quantity(it),
            _ => Err(self.misfit("string")),
        }
    }

    fn visit_string<E: serde::de::Error>(self, it: String) -> Result<Value, E> {
        match self.shape {
            Shape::String | Shape::IntOrString => Ok(it.into()),
            _ => self.visit_str(&it),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let Shape::List(items, _) = self.shape else { return Err(self.misfit("array")) };
        let mut list = Vec::new();
        loop {
            self.reader.path.push(ReadStep::Index(list.len()));
            let go_type = self.go_type.and_then(|it| it.strip_prefix("[]"));
            let item = seq.next_element_seed(At { reader: &mut *self.reader, shape: *items, go_type })?;
            self.reader.path.pop();
            self.reader.spend(ITEM_BYTES)?;
            match item {
                None => return Ok(Value::Array(list)),
                Some(Value::Null) => list.push(zero(*items)),
                Some(item) => list.push(item),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        match self.shape {
            Shape::Object(of) => self.object(of, map),
            Shape::Map(values, _) => self.map(*values, map),
            _ => Err(self.misfit("object")),
        }
    }
}

impl At<'_> {
    fn object<'de, A: MapAccess<'de>>(self, of: &'static Type, mut map: A) -> Result<Value, A::Error> {
        self.reader.spend(OBJECT_BYTES)?;
        let outer = std::mem::replace(&mut self.reader.within, short_name(of));
        let mut object = Map::new();
        let mut seen = Seen::default();
        while let Some(found) = map.next_key_seed(Name(of))? {
            let at = match found {
                Ok(at) => at,
                Err(name) => {
                    self.reader.note("unknown", &name);
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let field = &of.fields[at];
            if seen.twice(at) {
                self.reader.note("duplicate", field.name);
            }
            if self.reader.without_managers && field.name == "managedFields" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            self.reader.path.push(ReadStep::Field(field));
            let seed = At { reader: &mut *self.reader, shape: field.shape, go_type: field.go_type };
            let value = map.next_value_seed(seed)?;
            self.reader.path.pop();
            if is_written(field, &value) {
                object.insert(field.name.to_owned(), value);
            } else {
                // The last of duplicate fields wins, also if it is empty.
                object.remove(field.name);
            }
        }
        self.reader.within = outer;
        self.reader.spend(ENTRY_BYTES * object.len())?;
        fill(of, &mut object);
        Ok(Value::Object(object))
    }

    fn map<'de, A: MapAccess<'de>>(self, values: Shape, mut map: A) -> Result<Value, A::Error> {
        let go_type = self.go_type.and_then(|it| it.strip_prefix("map[")?.split_once(']')).map(|(_, it)| it);
        let is_deep = matches!(values, Shape::Object(_) | Shape::List(..) | Shape::Map(..));
        let mut object = Map::new();
        self.reader.spend(OBJECT_BYTES)?;
        while let Some(key) = map.next_key::<String>()? {
            self.reader.spend(ENTRY_BYTES)?;
            if object.contains_key(&key) {
                self.reader.note("duplicate", &key);
            }
            if is_deep {
                self.reader.path.push(ReadStep::Key(key.clone()));
            }
            let seed = At { reader: &mut *self.reader, shape: values, go_type };
            let value = map.next_value_seed(seed)?;
            if is_deep {
                self.reader.path.pop();
            }
            let value = match (value, values) {
                (Value::Null, Shape::Bytes) => "".into(),
                (Value::Null, values) => zero(values),
                (value, _) => value,
            };
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }

    /// A number that is not an integer.
    fn unwhole<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        match self.shape {
            Shape::Quantity => self.quantity(text),
            Shape::Int32 | Shape::Int64 | Shape::IntOrString => Err(self.misfit(&format!("number {text}"))),
            _ => Err(self.misfit("number")),
        }
    }

    fn quantity<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        scalar::quantity(text).map_err(|why| self.reader.wrong(why))
    }

    fn misfit<E: serde::de::Error>(self, found: &str) -> E {
        match self.shape {
            Shape::Quantity => self.reader.wrong(scalar::quantity("?").err().unwrap_or_default()),
            shape => self.reader.mismatch(found, &go_type(shape, self.go_type)),
        }
    }
}

/// Bit set of the fields that an object has had. No type has more than 128 fields.
#[derive(Default)]
struct Seen(u128);

impl Seen {
    fn twice(&mut self, at: usize) -> bool {
        let bit = 1u128.checked_shl(u32::try_from(at).unwrap_or(u32::MAX)).unwrap_or(0);
        let twice = self.0 & bit != 0;
        self.0 |= bit;
        twice
    }
}

/// Deserializes a field name into its index in the type, or into the name if the type has no such field.
struct Name(&'static Type);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Result<usize, String>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Result<usize, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.position(name).ok_or_else(|| name.to_owned()))
    }
}

/// Deserializes a value without a type.
struct Free<'a> {
    reader: &'a mut Reader,
    /// Record duplicate fields as strict decoding errors.
    notes_twice: bool,
}

impl<'de> DeserializeSeed<'de> for Free<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Free<'_> {
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
        let Self { reader, notes_twice } = self;
        let mut list = Vec::new();
        loop {
            reader.path.push(ReadStep::Index(list.len()));
            let item = seq.next_element_seed(Free { reader: &mut *reader, notes_twice })?;
            reader.path.pop();
            reader.spend(ITEM_BYTES)?;
            let Some(item) = item else { return Ok(Value::Array(list)) };
            list.push(item);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let Self { reader, notes_twice } = self;
        let mut object = Map::new();
        reader.spend(OBJECT_BYTES)?;
        while let Some(key) = map.next_key::<String>()? {
            reader.spend(ENTRY_BYTES)?;
            if notes_twice && object.contains_key(&key) {
                reader.note("duplicate", &key);
            }
            reader.path.push(ReadStep::Key(key.clone()));
            let value = map.next_value_seed(Free { reader: &mut *reader, notes_twice })?;
            reader.path.pop();
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// Rule: an object has the fields that Go would serialize: unset fields, and empty ones with `omitempty`, are
/// left out.
fn is_written(field: &Field, value: &Value) -> bool {
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

/// Adds the fields that Go serializes even if they are unset.
fn fill(of: &'static Type, object: &mut Map<String, Value>) {
    for field in of.fields {
        let value = match field.presence {
            Presence::NotEmpty | Presence::Set => continue,
            _ if object.contains_key(field.name) => continue,
            Presence::Always => zero(field.shape),
            Presence::OrNull => Value::Null,
        };
        object.insert(field.name.to_owned(), value);
    }
}

/// What Go serializes for a value that was never set.
fn zero(shape: Shape) -> Value {
    match shape {
        Shape::Bool => false.into(),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString => 0.into(),
        Shape::String => "".into(),
        Shape::Quantity => "0".into(),
        Shape::Bytes | Shape::Time | Shape::MicroTime | Shape::Any | Shape::FieldsV1 => Value::Null,
        Shape::List(..) | Shape::Map(..) => Value::Null,
        Shape::Object(of) => {
            let mut object = Map::new();
            fill(of, &mut object);
            Value::Object(object)
        }
    }
}

fn go_type(shape: Shape, named: Option<&str>) -> String {
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
        Shape::List(items, _) => format!("[]{}", go_type(*items, None)),
        Shape::Map(values, _) => format!("map[string]{}", go_type(*values, None)),
    }
}

fn short_name(of: &'static Type) -> &'static str {
    of.name.rsplit('.').next().unwrap_or_default()
}
