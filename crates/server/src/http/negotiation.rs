//! Content negotiation: a response contains whole objects, their metadata or table rows, as JSON or YAML. Objects are
//! encoded in the requested API version. Table cells are computed from the storage version.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use muster_api::well_known::{JSON_MEDIA_TYPE, YAML_MEDIA_TYPE};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::kinds::Kind;
use crate::storage::ListMeta;
use crate::unstructured;

/// Size in bytes from which a chunk of a JSON list is sent. A large list is encoded in chunks, so that the whole
/// encoded list is never in memory.
const LIST_CHUNK_BYTES: usize = 64 << 10;

/// Encoding of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Yaml,
}

impl Encoding {
    /// Returns the encoding for a media range of the Accept header, given without its parameters. Wildcards and an
    /// empty media range mean JSON. Returns `None` if the server does not support the media range.
    fn from_media_range(range: &str) -> Option<Self> {
        match range {
            JSON_MEDIA_TYPE | "application/*" | "*/*" | "" => Some(Self::Json),
            YAML_MEDIA_TYPE => Some(Self::Yaml),
            _ => None,
        }
    }
}

/// Whether the Accept header prefers YAML to JSON: YAML has a higher weight, or the same weight and comes first.
pub(crate) fn prefers_yaml(accept: &str) -> bool {
    let mut best = (0.0, Encoding::Json);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let Some(encoding) = Encoding::from_media_range(parts.next().unwrap_or_default()) else { continue };
        let weight = parts.find_map(|it| it.strip_prefix("q=")).map_or(1.0, |it| it.parse().unwrap_or(0.0));
        if best.0 < weight {
            best = (weight, encoding);
        }
    }
    best.1 == Encoding::Yaml
}

/// Serializes a value as YAML like upstream's serializer: without folding, and with quotes where a parser could
/// mistake a string for another type.
pub(crate) fn to_yaml(value: &Value) -> String {
    // Serializing a `Value` cannot fail.
    serde_saphyr::to_string_with_options(value, yaml_options()).unwrap_or_default()
}

/// Returns the serializer options that reproduce upstream's YAML output.
fn yaml_options() -> serde_saphyr::SerializerOptions {
    serde_saphyr::ser_options! { prefer_block_scalars: false }
}

/// How a response represents each object, as requested in the Accept header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    /// The whole object.
    Whole,
    /// A `PartialObjectMetadata`.
    Metadata,
    /// A row of a `Table`, with the cells that `kubectl get` prints.
    Table { version: &'static str, include_object: IncludeObject },
}

/// API versions in which the server serves `Table`. The tables of these versions differ only in `apiVersion`.
const TABLE_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The part of an object that its table row contains besides the cells, as requested in the query parameter
/// `includeObject`. Upstream: `IncludeObjectPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    Nothing,
    Metadata,
    Whole,
}

impl Representation {
    /// Returns the supported representation that the Accept header prefers. Returns a 406 error if the header accepts
    /// no supported representation, and a 400 error if the header accepts a table and `include_object` is invalid.
    /// `include_object` is the query parameter `includeObject`. Protobuf is ignored, because clients that prefer it
    /// accept JSON too.
    pub(crate) fn from_accept(accept: &str, include_object: &str) -> Result<Self, ApiError> {
        let in_row = match include_object {
            "None" => Ok(IncludeObject::Nothing),
            "Object" => Ok(IncludeObject::Whole),
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            _ => Err(()),
        };
        let mut is_json = false;
        let mut best: Option<(f32, Self)> = None;
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            if Encoding::from_media_range(parts.next().unwrap_or_default()).is_none() {
                continue;
            }
            is_json = true;
            let parts: BTreeMap<_, _> = parts.filter_map(|it| it.split_once('=')).collect();
            let version = parts.get("v").map_or("v1", |it| *it);
            let view = match parts.get("as") {
                None => Self::Whole,
                Some(_) if parts.get("g").is_some_and(|it| *it != "meta.k8s.io") => continue,
                Some(&"Table") => match (TABLE_VERSIONS.into_iter().find(|it| *it == version), in_row) {
                    (None, _) => continue,
                    (Some(version), Ok(in_row)) => Self::Table { version, include_object: in_row },
                    (_, Err(())) => {
                        return Err(ApiError::bad_request(format!(
                            "Unable to convert to Table as requested: includeObject: Invalid value: {include_object:?}: must be 'Metadata', 'Object', 'None', or empty"
                        )));
                    }
                },
                Some(&("PartialObjectMetadata" | "PartialObjectMetadataList")) if version == "v1" => {
                    Self::Metadata
                }
                Some(_) => continue,
            };
            let weight = parts.get("q").and_then(|it| it.parse().ok()).unwrap_or(1.0);
            if best.is_none_or(|(best, _)| best < weight) {
                best = Some((weight, view));
            }
        }
        best.map(|(_, view)| view).ok_or_else(|| {
            if is_json { ApiError::representation_not_acceptable() } else { ApiError::not_acceptable() }
        })
    }

    /// Returns a 406 error unless the client requests the whole object. Called for responses with an object that is not
    /// stored: the server has neither a table row nor a `PartialObjectMetadata` for such an object.
    pub(crate) fn require_whole_object(self) -> Result<(), ApiError> {
        if self == Self::Whole { Ok(()) } else { Err(ApiError::representation_not_acceptable()) }
    }

    /// Encodes one stored object as a JSON response body.
    pub(crate) fn encode_object(self, kind: &Kind, stored: &Bytes, now: Timestamp) -> Bytes {
        self.encode_event_object(kind, stored, now, true)
    }

    /// Encodes the object of a watch event as JSON. A table contains its column definitions only if `with_columns` is
    /// set. In a watch, it is set only for the first event.
    pub(crate) fn encode_event_object(
        self,
        kind: &Kind,
        stored: &Bytes,
        now: Timestamp,
        with_columns: bool,
    ) -> Bytes {
        match self {
            Self::Whole => kind.to_served_bytes(stored.clone()),
            Self::Metadata => {
                let mut text = Vec::with_capacity(1024);
                write_metadata(&mut text, stored, "v1");
                text.into()
            }
            Self::Table { .. } => {
                let object = unstructured::parse_stored(stored);
                let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let mut text = self.list_head(kind, &meta, with_columns);
                self.write_item(&mut text, kind, stored, now);
                text.extend_from_slice(b"]}");
                text.into()
            }
        }
    }

    /// Encodes a list as YAML. Returns an iterator over the chunks of the list. The first chunk contains the fields of
    /// the list, and each further chunk contains one object.
    pub(crate) fn encode_list_as_yaml(
        self,
        kind: &'static Kind,
        objects: Vec<Bytes>,
        meta: &ListMeta,
        now: Timestamp,
    ) -> impl Iterator<Item = Bytes> + Send + 'static {
        let mut head = self.list_head(kind, &list_metadata(meta), true);
        head.extend_from_slice(b"]}");
        let mut head = unstructured::parse_stored(&head);
        let items = if matches!(self, Self::Table { .. }) { "rows" } else { "items" };
        if let Some(head) = head.as_object_mut() {
            head.remove(items);
        }
        let none = if objects.is_empty() { " []" } else { "" };
        let head = format!("{}{items}:{none}\n", to_yaml(&head));
        let item = move |stored: Bytes| {
            let mut text = Vec::new();
            self.write_item(&mut text, kind, &stored, now);
            Bytes::from(to_yaml(&json!([unstructured::parse_stored(&text)])))
        };
        std::iter::once(Bytes::from(head)).chain(objects.into_iter().map(item))
    }

    /// Encodes a list as JSON. Returns an iterator over the chunks of the list. Objects are stored as JSON, so a whole
    /// object is serialized again only if its version must be converted.
    pub(crate) fn encode_list_as_json(
        self,
        kind: &'static Kind,
        objects: Vec<Bytes>,
        meta: &ListMeta,
        now: Timestamp,
    ) -> impl Iterator<Item = Bytes> + Send + 'static {
        let mut piece = self.list_head(kind, &list_metadata(meta), true);
        let mut objects = Some(objects.into_iter().enumerate());
        std::iter::from_fn(move || {
            let remaining = objects.as_mut()?;
            for (at, object) in remaining.by_ref() {
                if at != 0 {
                    piece.push(b',');
                }
                self.write_item(&mut piece, kind, &object, now);
                if LIST_CHUNK_BYTES <= piece.len() {
                    let next = Vec::with_capacity(LIST_CHUNK_BYTES + LIST_CHUNK_BYTES / 4);
                    return Some(std::mem::replace(&mut piece, next).into());
                }
            }
            objects = None;
            piece.extend_from_slice(b"]}");
            Some(std::mem::take(&mut piece).into())
        })
    }

    /// Returns the JSON of a list or table up to its first item or row. `meta` is the `metadata` of the list or table.
    /// A table has column definitions only if `with_columns` is set.
    fn list_head(self, kind: &Kind, meta: &Value, with_columns: bool) -> Vec<u8> {
        let head = match self {
            Self::Whole => format!(
                r#"{{"kind":"{}List","apiVersion":"{}","metadata":{meta},"items":["#,
                kind.kind,
                kind.api_version()
            ),
            Self::Metadata => format!(
                r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{meta},"items":["#
            ),
            Self::Table { version, .. } => {
                let stored = kind.storage_kind().object_type();
                let columns: Vec<_> = kind
                    .columns
                    .iter()
                    .map(|it| {
                        json!({
                            "name": it.name,
                            "type": it.cell_type,
                            "format": it.column_format(),
                            "description": it.description(stored),
                            "priority": i32::from(it.wide),
                        })
                    })
                    .collect();
                let columns = if with_columns { Value::Array(columns) } else { Value::Null };
                format!(
                    r#"{{"kind":"Table","apiVersion":"meta.k8s.io/{version}","metadata":{meta},"columnDefinitions":{columns},"rows":["#
                )
            }
        };
        head.into_bytes()
    }

    /// Appends one object to `text`, as the JSON of a list item or table row.
    fn write_item(self, text: &mut Vec<u8>, kind: &Kind, stored: &Bytes, now: Timestamp) {
        match self {
            Self::Whole => {
                let object = kind.to_served_bytes(stored.clone());
                // Items of a list have no `apiVersion` and `kind` of their own.
                match object.strip_prefix(type_meta_prefix(kind).as_bytes()) {
                    Some(rest) => {
                        text.push(b'{');
                        text.extend_from_slice(rest);
                    }
                    None => text.extend_from_slice(&object),
                }
            }
            Self::Metadata => write_metadata(text, stored, "v1"),
            Self::Table { version, include_object: in_row } => {
                let object = unstructured::parse_stored(stored);
                let cells = kind.columns.iter().map(|it| (it.cell)(&object, now)).collect();
                text.extend_from_slice(br#"{"cells":"#);
                text.extend_from_slice(Value::Array(cells).to_string().as_bytes());
                if let Some(condition) = (kind.row_condition)(&object) {
                    text.extend_from_slice(format!(r#","conditions":[{condition}]"#).as_bytes());
                }
                match in_row {
                    IncludeObject::Nothing => text.extend_from_slice(br#","object":null"#),
                    IncludeObject::Metadata => {
                        text.extend_from_slice(br#","object":"#);
                        write_metadata(text, stored, version);
                    }
                    IncludeObject::Whole => {
                        text.extend_from_slice(br#","object":"#);
                        text.extend_from_slice(&kind.to_served_bytes(stored.clone()));
                    }
                }
                text.push(b'}');
            }
        }
    }
}

fn list_metadata(meta: &ListMeta) -> Value {
    let mut metadata = json!({"resourceVersion": meta.revision.to_string()});
    if !meta.continue_token.is_empty() {
        metadata["continue"] = json!(meta.continue_token);
    }
    if let Some(remaining) = meta.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    metadata
}

/// Returns the JSON text with which every served object of a kind begins: the opening brace, `apiVersion` and `kind`.
fn type_meta_prefix(kind: &Kind) -> String {
    format!(r#"{{"apiVersion":"{}","kind":"{}","#, kind.api_version(), kind.kind)
}

/// Appends a stored object to `text`, as a `PartialObjectMetadata` of the API version `version`. Copies `metadata` from
/// the stored JSON without parsing the rest of the object.
fn write_metadata(text: &mut Vec<u8>, stored: &[u8], version: &str) {
    let object: BTreeMap<String, &RawValue> =
        serde_json::from_slice(stored).expect("the store contains valid JSON");
    let head =
        format!(r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/{version}","metadata":"#);
    text.extend_from_slice(head.as_bytes());
    text.extend_from_slice(object.get("metadata").map_or("{}", |it| it.get()).as_bytes());
    text.push(b'}');
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn yaml_is_sent_to_clients_that_prefer_it() {
        for (accept, wanted) in [
            ("", false),
            ("application/json", false),
            ("application/yaml", true),
            ("application/yaml, */*", true),
            ("application/json, application/yaml", false),
            ("application/json;q=0.5, application/yaml", true),
            ("application/yaml;q=0", false),
            ("text/html", false),
            ("application/yaml;as=Table;v=v1;g=meta.k8s.io", true),
        ] {
            assert_eq!(prefers_yaml(accept), wanted, "{accept}");
        }
    }

    #[test]
    fn strings_that_look_like_something_else_are_quoted() {
        let value = json!({"a": ["yes", "no", "on", "12", "0x1f", "1e3", "~", "null", "", " x", "2024-01-01", "1:30", "a: b", "# c"],
            "b": "two\nlines\n", "c": {}, "d": [], "e": null, "f": [{"g": 1, "h": true}]});
        let text = to_yaml(&value);
        expect![[r##"
            a:
            - "yes"
            - "no"
            - "on"
            - "12"
            - "0x1f"
            - "1e3"
            - "~"
            - "null"
            - ""
            - " x"
            - "2024-01-01"
            - "1:30"
            - "a: b"
            - "# c"
            b: "two\nlines\n"
            c: {}
            d: []
            e: null
            f:
            - g: 1
              h: true
        "##]]
        .assert_eq(&text);
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, value);
    }
}
