//! The OpenAPI documents, built from the served kinds and their types on first use and kept as bytes.
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
use std::sync::Arc;

use muster_api::well_known::JSON_MEDIA_TYPE;
use serde_json::{Map, Value, json};

use crate::discovery::{ApiDocument, DocumentCache};
use crate::kinds::{Kind, ServedKinds};
use schema::SchemasBuilder;

/// The version of the OpenAPI specification in which a document is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenApiVersion {
    V2,
    V3,
}

/// Returns the OpenAPI v2 document, which describes all kinds except the read-only ones, as protobuf or JSON. `accept`
/// is the Accept header of the request.
pub(crate) fn v2_document(kinds: &Arc<ServedKinds>, accept: &str) -> ApiDocument {
    /// Media type of the protobuf encoding of the document.
    const PROTOBUF_MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    /// The OpenAPI v2 document as JSON.
    static JSON_DOCUMENT: DocumentCache<ApiDocument> = DocumentCache::new();
    /// The OpenAPI v2 document as protobuf.
    static PROTOBUF_DOCUMENT: DocumentCache<ApiDocument> = DocumentCache::new();
    // Clients write `@` instead of the first dot of the media type.
    let document = if accept.contains("proto-openapi.spec.v2") {
        PROTOBUF_DOCUMENT.get(kinds, |kinds| {
            ApiDocument::new(PROTOBUF_MEDIA_TYPE, gnostic::encode_document(&v2_document_json(kinds)))
        })
    } else {
        JSON_DOCUMENT
            .get(kinds, |kinds| ApiDocument::new(JSON_MEDIA_TYPE, v2_document_json(kinds).to_string()))
    };
    ApiDocument::clone(&document)
}

/// Returns the document at `/openapi/v3`, which lists the paths of all OpenAPI v3 documents.
pub(crate) fn v3_index_document(kinds: &Arc<ServedKinds>) -> ApiDocument {
    let at = |(path, document): (&String, &ApiDocument)| {
        let url = format!("/openapi/v3/{path}?hash={}", document.hash);
        (path.clone(), json!({"serverRelativeURL": url}))
    };
    let paths: Map<String, Value> = v3_documents(kinds).iter().map(at).collect();
    ApiDocument::new(JSON_MEDIA_TYPE, json!({ "paths": paths }).to_string())
}

/// Returns the OpenAPI v3 document of a group and version. Returns `None` if the server does not serve this group and
/// version, or serves only read-only kinds in it.
pub(crate) fn v3_document(kinds: &Arc<ServedKinds>, group: &str, version: &str) -> Option<ApiDocument> {
    v3_documents(kinds).get(&api_root(group, version)).cloned()
}

/// Returns the OpenAPI v3 documents by path, for example `apis/apps/v1`.
fn v3_documents(kinds: &Arc<ServedKinds>) -> Arc<BTreeMap<String, ApiDocument>> {
    static DOCUMENTS: DocumentCache<BTreeMap<String, ApiDocument>> = DocumentCache::new();
    DOCUMENTS.get(kinds, |served| {
        let documents = served.group_versions().into_iter().map(|(group, version)| {
            let kinds: Vec<&Kind> =
                served.writable().filter(|it| (it.group, it.version) == (group, version)).collect();
            // Groups with read-only kinds only have no types.
            if kinds.is_empty() {
                return None;
            }
            let value = json!({
                "openapi": "3.0.0",
                "info": info_json(),
                "paths": paths::openapi_paths(&kinds, OpenApiVersion::V3),
                "components": {"schemas": schemas_of_kinds(served, &kinds, OpenApiVersion::V3)},
            });
            Some((api_root(group, version), ApiDocument::new(JSON_MEDIA_TYPE, value.to_string())))
        });
        documents.flatten().collect()
    })
}

/// Builds the OpenAPI v2 document as a JSON value.
fn v2_document_json(served: &ServedKinds) -> Value {
    let kinds: Vec<&Kind> = served.writable().collect();
    json!({
        "swagger": "2.0",
        "info": info_json(),
        "paths": paths::openapi_paths(&kinds, OpenApiVersion::V2),
        "definitions": schemas_of_kinds(served, &kinds, OpenApiVersion::V2),
    })
}

/// Returns the object `info` of an OpenAPI document.
fn info_json() -> Value {
    json!({"title": "Kubernetes", "version": "unversioned"})
}

/// Returns the schemas of an OpenAPI document, by name: one for each kind, list kind and subresource body, for
/// `DeleteOptions` and `Status`, and for each type to which these refer.
fn schemas_of_kinds(served: &ServedKinds, kinds: &[&Kind], version: OpenApiVersion) -> Map<String, Value> {
    let mut schemas = SchemasBuilder::new(served, version);
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
