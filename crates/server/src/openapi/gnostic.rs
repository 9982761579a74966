//! Encodes the OpenAPI v2 document as protobuf, the only encoding that kubectl up to 1.28 reads. The messages are those
//! of `openapi.v2` in the library gnostic. Only the messages and fields that this document uses are implemented.

use serde_json::Value;

/// Encodes an OpenAPI v2 document as the protobuf message `Document`.
pub(super) fn encode_document(value: &Value) -> Vec<u8> {
    let mut out = ProtobufWriter::default();
    out.write_text(1, &value["swagger"]);
    out.write_message(2, |info| {
        info.write_text(1, &value["info"]["title"]);
        info.write_text(2, &value["info"]["version"]);
    });
    out.write_message(8, |paths| paths.write_map(2, &value["paths"], write_path_item));
    out.write_message(9, |definitions| definitions.write_map(1, &value["definitions"], write_schema));
    out.0
}

/// Writes the fields of the message `PathItem`.
fn write_path_item(out: &mut ProtobufWriter, value: &Value) {
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if value[method].is_object() {
            out.write_message(number, |it| write_operation(it, &value[method]));
        }
    }
    out.write_messages(9, &value["parameters"], write_parameter);
}

/// Writes the fields of the message `Operation`.
fn write_operation(out: &mut ProtobufWriter, value: &Value) {
    out.write_texts(1, &value["tags"]);
    out.write_text(5, &value["operationId"]);
    out.write_texts(6, &value["produces"]);
    out.write_texts(7, &value["consumes"]);
    out.write_messages(8, &value["parameters"], write_parameter);
    out.write_message(9, |responses| {
        responses.write_map(1, &value["responses"], |it, response| {
            it.write_message(1, |it| {
                it.write_text(1, &response["description"]);
                if response["schema"].is_object() {
                    it.write_message(2, |it| it.write_message(1, |it| write_schema(it, &response["schema"])));
                }
            });
        });
    });
    out.write_extensions(13, value);
}

/// Writes the fields of the message `ParametersItem`: a body, path or query parameter.
fn write_parameter(out: &mut ProtobufWriter, value: &Value) {
    out.write_message(1, |out| match value["in"].as_str() {
        Some("body") => out.write_message(1, |body| {
            body.write_text(2, &value["name"]);
            body.write_text(3, &value["in"]);
            body.write_flag(4, &value["required"]);
            body.write_message(5, |it| write_schema(it, &value["schema"]));
        }),
        Some("path") => out.write_message(2, |it| {
            it.write_message(4, |path| {
                path.write_flag(1, &value["required"]);
                path.write_text(2, &value["in"]);
                path.write_text(4, &value["name"]);
                path.write_text(5, &value["type"]);
                path.write_flag(19, &value["uniqueItems"]);
            });
        }),
        _ => out.write_message(2, |it| {
            it.write_message(3, |query| {
                query.write_text(2, &value["in"]);
                query.write_text(4, &value["name"]);
                query.write_text(6, &value["type"]);
                query.write_flag(20, &value["uniqueItems"]);
            });
        }),
    });
}

/// Writes the fields of the message `Schema`.
fn write_schema(out: &mut ProtobufWriter, value: &Value) {
    out.write_text(1, &value["$ref"]);
    out.write_text(2, &value["format"]);
    out.write_text(4, &value["description"]);
    out.write_texts(19, &value["required"]);
    if value["additionalProperties"].is_object() {
        out.write_message(21, |it| {
            it.write_message(1, |it| write_schema(it, &value["additionalProperties"]))
        });
    }
    if value["type"].is_string() {
        out.write_message(22, |it| it.write_text(1, &value["type"]));
    }
    if value["items"].is_object() {
        out.write_message(23, |it| it.write_message(1, |it| write_schema(it, &value["items"])));
    }
    if value["properties"].is_object() {
        out.write_message(25, |it| it.write_map(1, &value["properties"], write_schema));
    }
    out.write_extensions(31, value);
}

/// Writes the fields of a protobuf message. Strings that are absent or empty, and flags that are absent or false, are
/// omitted. The parameter `number` of its methods is the field number.
#[derive(Default)]
struct ProtobufWriter(Vec<u8>);

impl ProtobufWriter {
    /// Writes a string field.
    fn write_text(&mut self, number: u32, value: &Value) {
        if let Some(text) = value.as_str().filter(|it| !it.is_empty()) {
            self.write_bytes(number, text.as_bytes());
        }
    }

    /// Writes a repeated string field.
    fn write_texts(&mut self, number: u32, value: &Value) {
        for text in value.as_array().into_iter().flatten() {
            self.write_text(number, text);
        }
    }

    /// Writes a boolean field.
    fn write_flag(&mut self, number: u32, value: &Value) {
        if *value == true {
            self.write_varint(u64::from(number << 3));
            self.write_varint(1);
        }
    }

    /// Writes a message field. `write` writes the fields of the message.
    fn write_message(&mut self, number: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.write_bytes(number, &inner.0);
    }

    /// Writes a repeated message field. `write` writes the fields of the message for one item of `list`.
    fn write_messages(&mut self, number: u32, list: &Value, write: fn(&mut Self, &Value)) {
        for value in list.as_array().into_iter().flatten() {
            self.write_message(number, |it| write(it, value));
        }
    }

    /// Writes a map as a repeated message field. Each message has the name and the value of one entry, and `write`
    /// writes the fields of the value.
    fn write_map(&mut self, number: u32, map: &Value, write: fn(&mut Self, &Value)) {
        for (name, value) in map.as_object().into_iter().flatten() {
            self.write_message(number, |it| {
                it.write_bytes(1, name.as_bytes());
                it.write_message(2, |it| write(it, value));
            });
        }
    }

    /// Writes the vendor extensions, whose names begin with `x-`. Gnostic expects their values as YAML. They are
    /// written as JSON, which is valid YAML.
    fn write_extensions(&mut self, number: u32, value: &Value) {
        let all = value.as_object().into_iter().flatten();
        for (name, value) in all.filter(|(name, _)| name.starts_with("x-")) {
            self.write_message(number, |it| {
                it.write_bytes(1, name.as_bytes());
                it.write_message(2, |any| any.write_bytes(2, format!("{value}\n").as_bytes()));
            });
        }
    }

    /// Writes a length-delimited field.
    fn write_bytes(&mut self, number: u32, bytes: &[u8]) {
        self.write_varint(u64::from(number << 3 | 2));
        self.write_varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Writes a number as a varint, without a field number before it.
    fn write_varint(&mut self, mut value: u64) {
        while 0x80 <= value {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
