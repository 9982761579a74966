//! The OpenAPI documents, built from the tables of kinds and types on first use and kept as bytes.
//!
//! kubectl up to 1.28 reads OpenAPI v2, and only as protobuf. Later versions of kubectl read OpenAPI v3, which has one
//! document for each group and version. `kubectl explain` prints the descriptions. `kubectl apply` reads which patch
//! types and parameters the server supports.

/// Values of upstream's enum types, which the type table does not contain.
mod enum_values;
/// Encoding of the OpenAPI v2 document as protobuf.
mod gnostic;
/// OpenAPI paths, and the operations on each of them.
mod paths;
/// OpenAPI schemas of the types in the type table.
mod schema;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::decode::JSON_MEDIA_TYPE;
use crate::discovery::StaticDocument;
use crate::kinds::{Kind, WRITABLE_KINDS, group_versions};
use schema::SchemasBuilder;

/// The version of the OpenAPI specification in which a document is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenApiVersion {
    V2,
    V3,
}

/// Returns the OpenAPI v2 document, which describes all kinds except the read-only ones, as protobuf or JSON. `accept`
/// is the Accept header of the request.
pub(crate) fn v2_document(accept: &str) -> &'static StaticDocument {
    /// Media type of the protobuf encoding of the document.
    const PROTOBUF_MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    /// The OpenAPI v2 document as JSON.
    static JSON_DOCUMENT: LazyLock<StaticDocument> =
        LazyLock::new(|| StaticDocument::new(JSON_MEDIA_TYPE, v2_document_json().to_string()));
    /// The OpenAPI v2 document as protobuf.
    static PROTOBUF_DOCUMENT: LazyLock<StaticDocument> = LazyLock::new(|| {
        StaticDocument::new(PROTOBUF_MEDIA_TYPE, gnostic::encode_document(&v2_document_json()))
    });
    // Clients write `@` instead of the first dot of the media type.
    if accept.contains("proto-openapi.spec.v2") { &PROTOBUF_DOCUMENT } else { &JSON_DOCUMENT }
}

/// Returns the document at `/openapi/v3`, which lists the paths of all OpenAPI v3 documents.
pub(crate) fn v3_index_document() -> &'static StaticDocument {
    /// The document at `/openapi/v3`.
    static INDEX_DOCUMENT: LazyLock<StaticDocument> = LazyLock::new(|| {
        let at = |(path, document): (&String, &StaticDocument)| {
            let url = format!("/openapi/v3/{path}?hash={}", document.hash);
            (path.clone(), json!({"serverRelativeURL": url}))
        };
        let paths: Map<String, Value> = V3_DOCUMENTS.iter().map(at).collect();
        StaticDocument::new(JSON_MEDIA_TYPE, json!({ "paths": paths }).to_string())
    });
    &INDEX_DOCUMENT
}

/// Returns the OpenAPI v3 document of a group and version. Returns `None` if the server does not serve them, or serves
/// only read-only kinds in them.
pub(crate) fn v3_document(group: &str, version: &str) -> Option<&'static StaticDocument> {
    V3_DOCUMENTS.get(&api_root(group, version))
}

/// The OpenAPI v3 documents by path, for example `apis/apps/v1`.
static V3_DOCUMENTS: LazyLock<BTreeMap<String, StaticDocument>> = LazyLock::new(|| {
    let documents = group_versions().into_iter().map(|(group, version)| {
        let kinds: Vec<&Kind> =
            WRITABLE_KINDS.iter().filter(|it| (it.group, it.version) == (group, version)).collect();
        // Groups with read-only kinds only have no types.
        if kinds.is_empty() {
            return None;
        }
        let value = json!({
            "openapi": "3.0.0",
            "info": info_json(),
            "paths": paths::openapi_paths(&kinds, OpenApiVersion::V3),
            "components": {"schemas": schemas_of_kinds(&kinds, OpenApiVersion::V3)},
        });
        Some((api_root(group, version), StaticDocument::new(JSON_MEDIA_TYPE, value.to_string())))
    });
    documents.flatten().collect()
});

/// Builds the OpenAPI v2 document as a JSON value.
fn v2_document_json() -> Value {
    let kinds: Vec<&Kind> = WRITABLE_KINDS.iter().collect();
    json!({
        "swagger": "2.0",
        "info": info_json(),
        "paths": paths::openapi_paths(&kinds, OpenApiVersion::V2),
        "definitions": schemas_of_kinds(&kinds, OpenApiVersion::V2),
    })
}

/// Returns the object `info` of an OpenAPI document.
fn info_json() -> Value {
    json!({"title": "Kubernetes", "version": "unversioned"})
}

/// Returns the schemas of an OpenAPI document, by name. They are those of the kinds, of their lists, of the bodies of
/// their subresources, of `DeleteOptions` and `Status`, and of all types to which these refer.
fn schemas_of_kinds(kinds: &[&Kind], version: OpenApiVersion) -> Map<String, Value> {
    let mut schemas = SchemasBuilder::new(version);
    for kind in kinds {
        schemas.add_kind(kind);
        for (group, version, kind) in kind.subresources.iter().filter_map(|it| it.body) {
            schemas.add_kind_type(group, version, kind);
        }
    }
    for kind in ["DeleteOptions", "Status"] {
        schemas.add_kind_type("", "v1", kind);
    }
    schemas.into_schemas()
}

/// Returns the path of a group and version without leading slash, such as `api/v1` or `apis/apps/v1`.
fn api_root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

#[cfg(test)]
mod tests;
