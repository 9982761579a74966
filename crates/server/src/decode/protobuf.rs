//! Decodes protobuf request bodies into JSON with the type table. kubectl sends protobuf since 1.32.
//!
//! A body consists of four magic bytes and a `runtime.Unknown` message with `apiVersion`, `kind` and the bytes of the
//! object.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use muster_api::time::Time;
use serde_json::{Map, Value};

use super::value_reader::{self, ENTRY_BYTES, ITEM_BYTES, MemoryBudget, OBJECT_BYTES};
use crate::types::{Field, Shape, Type};

/// The first bytes of every request body in protobuf.
const PROTOBUF_MAGIC: &[u8] = b"k8s\0";

/// `apiVersion` and `kind` in the `runtime.Unknown` message of a request body. An absent field is empty.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UnknownTypeMeta {
    pub(crate) api_version: String,
    pub(crate) kind: String,
}

/// Decodes a request body that contains an object of the type `of`. Returns the `apiVersion` and `kind` in the body,
/// and the object as JSON. The JSON is not normalized: it may contain explicit zero values.
pub(crate) fn decode_object(body: &[u8], of: &'static Type) -> Result<(UnknownTypeMeta, Value), String> {
    let Some(unknown) = body.strip_prefix(PROTOBUF_MAGIC) else {
        return Err(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]".into()
        );
    };
    let mut found = UnknownTypeMeta::default();
    let mut raw: &[u8] = &[];
    for part in MessageFields(unknown) {
        match part? {
            (1, WireValue::Bytes(type_meta)) => {
                for part in MessageFields(type_meta) {
                    match part? {
                        (1, WireValue::Bytes(it)) => found.api_version = decode_string(it)?,
                        (2, WireValue::Bytes(it)) => found.kind = decode_string(it)?,
                        _ => {}
                    }
                }
            }
            (2, WireValue::Bytes(it)) => raw = it,
            (3, WireValue::Bytes(encoding)) if !encoding.is_empty() => {
                return Err(format!("proto: the encoding {:?} is not supported", decode_string(encoding)?));
            }
            _ => {}
        }
    }
    let mut decoder = ObjectDecoder {
        budget: MemoryBudget::default(),
        drops_managed_fields: value_reader::drops_managed_fields(of),
    };
    let object = decoder.decode_value(Shape::Object(of), WireValue::Bytes(raw))?;
    Ok((found, object))
}

/// State of the decoding of one object.
struct ObjectDecoder {
    budget: MemoryBudget,
    /// Whether to skip `metadata.managedFields`.
    drops_managed_fields: bool,
}

impl ObjectDecoder {
    /// Decodes the fields of a message and adds them to the JSON object `object`. `within` is empty for a message of
    /// the type `of`. For a struct that Go embeds in this type, `within` is the path of field numbers to the struct.
    fn decode_message(
        &mut self,
        bytes: &[u8],
        of: &'static Type,
        within: &[u32],
        object: &mut Map<String, Value>,
    ) -> Result<(), String> {
        for part in MessageFields(bytes) {
            let (number, payload) = part?;
            let leads =
                |it: &&Field| it.proto.strip_prefix(within).is_some_and(|rest| rest.first() == Some(&number));
            let Some(field) = of.fields.iter().find(leads) else { continue };
            if field.proto.len() == within.len() + 1 {
                self.decode_field(field, payload, object)?;
            } else {
                // Go embeds the struct, and in JSON its fields belong to the outer object.
                let path: Vec<u32> = within.iter().copied().chain([number]).collect();
                self.decode_message(payload.bytes()?, of, &path, object)?;
            }
        }
        Ok(())
    }

    /// Decodes one occurrence of `field` and adds it to `object`, the JSON object that contains the field.
    fn decode_field(
        &mut self,
        field: &Field,
        payload: WireValue<'_>,
        object: &mut Map<String, Value>,
    ) -> Result<(), String> {
        if self.drops_managed_fields && field.name == "managedFields" {
            return Ok(());
        }
        self.charge_entry(object, field.name)?;
        match field.shape {
            Shape::List(items, _) => {
                let list = object.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(list) = list else { return Err(wrong_wire_type_error()) };
                self.decode_items(*items, payload, list)
            }
            Shape::Map(values, _) => {
                let map = object.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
                let Value::Object(map) = map else { return Err(wrong_wire_type_error()) };
                let (mut key, mut value) = (String::new(), Value::Null);
                for part in MessageFields(payload.bytes()?) {
                    match part? {
                        (1, it) => key = decode_string(it.bytes()?)?,
                        (2, it) => value = self.decode_value(*values, it)?,
                        _ => {}
                    }
                }
                self.charge_entry(map, &key)?;
                map.insert(key, value);
                Ok(())
            }
            // A message that occurs several times is merged.
            Shape::Object(of) => {
                let inner = object.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
                let Value::Object(inner) = inner else { return Err(wrong_wire_type_error()) };
                self.decode_message(payload.bytes()?, of, &[], inner)
            }
            shape => {
                let value = self.decode_value(shape, payload)?;
                object.insert(field.name.to_owned(), value);
                Ok(())
            }
        }
    }

    /// Subtracts the memory of the entry `key` of `object` from the budget, unless the entry exists. The memory of
    /// `object` itself is subtracted with its first entry: an empty object takes no memory, and Go writes many empty
    /// messages.
    fn charge_entry(&mut self, object: &Map<String, Value>, key: &str) -> Result<(), &'static str> {
        if object.contains_key(key) {
            return Ok(());
        }
        self.budget.charge(ENTRY_BYTES + if object.is_empty() { OBJECT_BYTES } else { 0 })
    }

    /// Decodes items of a list and appends them to `list`. With packed encoding, one payload contains many numbers.
    fn decode_items(
        &mut self,
        items: Shape,
        payload: WireValue<'_>,
        list: &mut Vec<Value>,
    ) -> Result<(), String> {
        match (items, payload) {
            (Shape::Bool | Shape::Int32 | Shape::Int64, WireValue::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    self.budget.charge(ITEM_BYTES)?;
                    list.push(self.decode_value(items, WireValue::Varint(decode_varint(&mut packed)?))?);
                }
                Ok(())
            }
            (_, payload) => {
                self.budget.charge(ITEM_BYTES)?;
                list.push(self.decode_value(items, payload)?);
                Ok(())
            }
        }
    }

    /// Decodes a value of the type `shape` to JSON. Fails if the wire type does not fit the type.
    fn decode_value(&mut self, shape: Shape, payload: WireValue<'_>) -> Result<Value, String> {
        match (shape, payload) {
            (Shape::Bool, WireValue::Varint(it)) => Ok((it != 0).into()),
            // A negative number is encoded in 64 bits, whatever its type.
            (Shape::Int32, WireValue::Varint(it)) => Ok((it as i32).into()),
            (Shape::Int64, WireValue::Varint(it)) => Ok((it as i64).into()),
            (Shape::String, WireValue::Bytes(it)) => Ok(decode_string(it)?.into()),
            (Shape::Bytes, WireValue::Bytes(it)) => Ok(STANDARD.encode(it).into()),
            (Shape::Time, WireValue::Bytes(it)) => decode_time(it, Time::to_rfc3339),
            (Shape::MicroTime, WireValue::Bytes(it)) => decode_time(it, Time::to_rfc3339_micros),
            (Shape::Quantity, WireValue::Bytes(it)) => match bytes_field(it, 1)? {
                [] => Ok("0".into()),
                quantity => Ok(decode_string(quantity)?.into()),
            },
            (Shape::IntOrString, WireValue::Bytes(it)) => decode_int_or_string(it),
            (Shape::Any | Shape::FieldsV1, WireValue::Bytes(it)) => match bytes_field(it, 1)? {
                [] => Ok(Value::Null),
                raw => self.decode_raw_json(raw),
            },
            (Shape::Object(of), WireValue::Bytes(it)) => {
                let mut object = Map::new();
                self.decode_message(it, of, &[], &mut object)?;
                Ok(Value::Object(object))
            }
            // Protobuf has no maps of lists, so the list is wrapped in a message.
            (Shape::List(items, _), WireValue::Bytes(it)) => {
                let mut list = Vec::new();
                for part in MessageFields(it) {
                    if let (1, item) = part? {
                        self.decode_items(*items, item, &mut list)?;
                    }
                }
                Ok(Value::Array(list))
            }
            _ => Err(wrong_wire_type_error()),
        }
    }

    /// Decodes the JSON text of a raw extension or of `fieldsV1`.
    fn decode_raw_json(&mut self, raw: &[u8]) -> Result<Value, String> {
        let mut from = serde_json::Deserializer::from_slice(raw);
        let (read, errors) = value_reader::read_untyped(&mut from, &mut self.budget);
        read.and_then(|it| from.end().map(|()| it))
            .map_err(|error| errors.type_error.unwrap_or_else(|| error.to_string()))
    }
}

/// Decodes a `Timestamp` message, which contains seconds and nanoseconds since 1970, to a JSON string. An empty
/// message becomes null.
fn decode_time(bytes: &[u8], format: fn(Time) -> String) -> Result<Value, String> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut s, mut ns) = (0, 0);
    for part in MessageFields(bytes) {
        match part? {
            (1, WireValue::Varint(it)) => s = it as i64,
            (2, WireValue::Varint(it)) => ns = it as i32,
            _ => {}
        }
    }
    // Truncated to microseconds, since rounding could carry into the seconds.
    let ns = ns.clamp(0, 999_999_999) / 1000 * 1000;
    let at = Timestamp::new(s, ns).map_err(|error| error.to_string())?;
    Ok(format(at.into()).into())
}

/// Decodes an `IntOrString` message to a JSON number or string.
fn decode_int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut kind, mut number, mut string) = (0, 0, String::new());
    for part in MessageFields(bytes) {
        match part? {
            (1, WireValue::Varint(it)) => kind = it,
            (2, WireValue::Varint(it)) => number = it as i32,
            (3, WireValue::Bytes(it)) => string = decode_string(it)?,
            _ => {}
        }
    }
    Ok(if kind == 0 { number.into() } else { string.into() })
}

/// Returns the bytes of the field `number` of a message, or an empty slice if the field is absent.
fn bytes_field(message: &[u8], number: u32) -> Result<&[u8], String> {
    let mut found: &[u8] = &[];
    for part in MessageFields(message) {
        match part? {
            (at, WireValue::Bytes(it)) if at == number => found = it,
            _ => {}
        }
    }
    Ok(found)
}

/// Decodes a string. Fails if the bytes are not UTF-8.
fn decode_string(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "proto: invalid UTF-8".to_owned())
}

/// Returns the error message for a field whose wire type does not fit its type.
fn wrong_wire_type_error() -> String {
    "proto: wrong wireType".to_owned()
}

/// The value of one field in the protobuf wire format, before its type is known.
#[derive(Clone, Copy)]
enum WireValue<'a> {
    /// A number, bool or enum.
    Varint(u64),
    /// A fixed-size number of four or eight bytes. The types of the type table have no such fields, so its value is
    /// dropped.
    Fixed,
    /// A string, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> WireValue<'a> {
    /// Returns the bytes of a length-delimited field. Fails for a field with another wire type.
    fn bytes(self) -> Result<&'a [u8], String> {
        match self {
            Self::Bytes(it) => Ok(it),
            _ => Err(wrong_wire_type_error()),
        }
    }
}

/// Iterates over the field numbers and values of a message in wire order. Ends with an error at the first malformed
/// field.
struct MessageFields<'a>(&'a [u8]);

impl<'a> Iterator for MessageFields<'a> {
    type Item = Result<(u32, WireValue<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let part = self.next_field();
        if part.is_err() {
            self.0 = &[];
        }
        Some(part)
    }
}

impl<'a> MessageFields<'a> {
    fn next_field(&mut self) -> Result<(u32, WireValue<'a>), String> {
        let key = decode_varint(&mut self.0)?;
        let number = u32::try_from(key >> 3).ok().filter(|it| *it != 0);
        let number = number.ok_or_else(|| format!("proto: illegal tag {}", key >> 3))?;
        let payload = match key & 7 {
            0 => WireValue::Varint(decode_varint(&mut self.0)?),
            1 => {
                let (_, rest) = self.0.split_first_chunk::<8>().ok_or_else(unexpected_eof_error)?;
                self.0 = rest;
                WireValue::Fixed
            }
            2 => {
                let length =
                    usize::try_from(decode_varint(&mut self.0)?).map_err(|_| unexpected_eof_error())?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(unexpected_eof_error)?;
                self.0 = rest;
                WireValue::Bytes(bytes)
            }
            5 => {
                let (_, rest) = self.0.split_first_chunk::<4>().ok_or_else(unexpected_eof_error)?;
                self.0 = rest;
                WireValue::Fixed
            }
            other => return Err(format!("proto: illegal wireType {other}")),
        };
        Ok((number, payload))
    }
}

/// Decodes a varint at the start of `bytes`, and advances `bytes`.
fn decode_varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0;
    for at in 0..10 {
        let (byte, rest) = bytes.split_first().ok_or_else(unexpected_eof_error)?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("proto: integer overflow".to_owned())
}

/// Returns the error message for input that ends in the middle of a field.
fn unexpected_eof_error() -> String {
    "unexpected EOF".to_owned()
}

#[cfg(test)]
pub(crate) mod encoding;
#[cfg(test)]
mod tests;
