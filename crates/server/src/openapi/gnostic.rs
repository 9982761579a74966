//! Encodes the OpenAPI v2 document as protobuf (gnostic's `openapi.v2`), the only encoding that kubectl up to
//! 1.28 reads. Of a `oneof` message, only the one field that this document uses is written.

use serde_json::Value;

pub(super) fn encode_document(value: &Value) -> Vec<u8> {
    let mut out = ProtobufWriter::default();
    out.text(1, &value["swagger"]);
    out.message(2, |info| {
        info.text(1, &value["info"]["title"]);
        info.text(2, &value["info"]["version"]);
    });
    out.message(8, |paths| paths.map(2, &value["paths"], path_item));
    out.message(9, |definitions| definitions.map(1, &value["definitions"], schema));
    out.0
}

fn path_item(out: &mut ProtobufWriter, value: &Value) {
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if value[method].is_object() {
            out.message(number, |it| operation(it, &value[method]));
        }
    }
    out.messages(9, &value["parameters"], parameter);
}

fn operation(out: &mut ProtobufWriter, value: &Value) {
    out.texts(1, &value["tags"]);
    out.text(5, &value["operationId"]);
    out.texts(6, &value["produces"]);
    out.texts(7, &value["consumes"]);
    out.messages(8, &value["parameters"], parameter);
    out.message(9, |responses| {
        responses.map(1, &value["responses"], |it, response| {
            it.message(1, |it| {
                it.text(1, &response["description"]);
                if response["schema"].is_object() {
                    it.message(2, |it| it.message(1, |it| schema(it, &response["schema"])));
                }
            });
        });
    });
    out.extensions(13, value);
}

fn parameter(out: &mut ProtobufWriter, value: &Value) {
    out.message(1, |out| match value["in"].as_str() {
        Some("body") => out.message(1, |body| {
            body.text(2, &value["name"]);
            body.text(3, &value["in"]);
            body.flag(4, &value["required"]);
            body.message(5, |it| schema(it, &value["schema"]));
        }),
        Some("path") => out.message(2, |it| {
            it.message(4, |path| {
                path.flag(1, &value["required"]);
                path.text(2, &value["in"]);
                path.text(4, &value["name"]);
                path.text(5, &value["type"]);
                path.flag(19, &value["uniqueItems"]);
            });
        }),
        _ => out.message(2, |it| {
            it.message(3, |query| {
                query.text(2, &value["in"]);
                query.text(4, &value["name"]);
                query.text(6, &value["type"]);
                query.flag(20, &value["uniqueItems"]);
            });
        }),
    });
}

fn schema(out: &mut ProtobufWriter, value: &Value) {
    out.text(1, &value["$ref"]);
    out.text(2, &value["format"]);
    out.text(4, &value["description"]);
    out.texts(19, &value["required"]);
    if value["additionalProperties"].is_object() {
        out.message(21, |it| it.message(1, |it| schema(it, &value["additionalProperties"])));
    }
    if value["type"].is_string() {
        out.message(22, |it| it.text(1, &value["type"]));
    }
    if value["items"].is_object() {
        out.message(23, |it| it.message(1, |it| schema(it, &value["items"])));
    }
    if value["properties"].is_object() {
        out.message(25, |it| it.map(1, &value["properties"], schema));
    }
    out.extensions(31, value);
}

/// Writes a protobuf message. Null and empty values are omitted.
#[derive(Default)]
struct ProtobufWriter(Vec<u8>);

impl ProtobufWriter {
    fn text(&mut self, number: u32, value: &Value) {
        if let Some(text) = value.as_str().filter(|it| !it.is_empty()) {
            self.bytes(number, text.as_bytes());
        }
    }

    fn texts(&mut self, number: u32, value: &Value) {
        for text in value.as_array().into_iter().flatten() {
            self.text(number, text);
        }
    }

    fn flag(&mut self, number: u32, value: &Value) {
        if *value == true {
            self.varint(u64::from(number << 3));
            self.varint(1);
        }
    }

    fn message(&mut self, number: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(number, &inner.0);
    }

    fn messages(&mut self, number: u32, list: &Value, write: fn(&mut Self, &Value)) {
        for value in list.as_array().into_iter().flatten() {
            self.message(number, |it| write(it, value));
        }
    }

    /// Writes a map: one message for each entry, with its name and its value.
    fn map(&mut self, number: u32, map: &Value, write: fn(&mut Self, &Value)) {
        for (name, value) in map.as_object().into_iter().flatten() {
            self.message(number, |it| {
                it.bytes(1, name.as_bytes());
                it.message(2, |it| write(it, value));
            });
        }
    }

    /// Writes vendor extensions, whose values are encoded as YAML; JSON is a subset of YAML.
    fn extensions(&mut self, number: u32, value: &Value) {
        let all = value.as_object().into_iter().flatten();
        for (name, value) in all.filter(|(name, _)| name.starts_with("x-")) {
            self.message(number, |it| {
                it.bytes(1, name.as_bytes());
                it.message(2, |any| any.bytes(2, format!("{value}\n").as_bytes()));
            });
        }
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) {
        self.varint(u64::from(number << 3 | 2));
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut value: u64) {
        while 0x80 <= value {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
