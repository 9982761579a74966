//! The OpenAPI documents, as far as `kubectl apply` needs them: which kinds can be patched, and with which
//! parameters. kubectl up to 1.28 wants version 2, and that only as protobuf; later ones take version 3.
//! There are no schemas yet, so kubectl merges with the types that it was built with.

use bytes::Bytes;
use prost::Message;
use serde_json::{Map, Value, json};

use crate::kinds::{KINDS, Kind, group_versions};

/// kubectl looks for these to know that the server validates fields and can run dry.
const PATCH_PARAMETERS: [&str; 5] = ["dryRun", "fieldManager", "fieldValidation", "force", "pretty"];

pub(crate) const V2_MEDIA_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

pub(crate) fn v2() -> Bytes {
    let path = KINDS.iter().map(|kind| v2::NamedPathItem {
        name: path(kind),
        value: Some(v2::PathItem { patch: Some(v2_patch(kind)) }),
    });
    let document = v2::Document {
        swagger: "2.0".into(),
        info: Some(v2::Info { title: "Kubernetes".into(), version: "unversioned".into() }),
        paths: Some(v2::Paths { path: path.collect() }),
        definitions: Some(v2::Definitions {}),
    };
    document.encode_to_vec().into()
}

fn v2_patch(kind: &Kind) -> v2::Operation {
    let parameter = |name: &str| {
        let query = v2::QueryParameter { r#in: "query".into(), name: name.into(), r#type: "string".into() };
        let non_body = v2::NonBodyParameter { query: Some(query) };
        v2::ParametersItem { parameter: Some(v2::Parameter { non_body: Some(non_body) }) }
    };
    let gvk = v2::Any { yaml: format!("{}\n", group_version_kind(kind)) };
    let ok = v2::ResponseValue { response: Some(v2::Response { description: "OK".into() }) };
    v2::Operation {
        operation_id: format!("patch{}", kind.kind),
        consumes: vec![
            "application/strategic-merge-patch+json".into(),
            "application/merge-patch+json".into(),
        ],
        produces: vec!["application/json".into()],
        parameters: PATCH_PARAMETERS.iter().map(|it| parameter(it)).collect(),
        responses: Some(v2::Responses {
            response_code: vec![v2::NamedResponseValue { name: "200".into(), value: Some(ok) }],
        }),
        vendor_extension: vec![v2::NamedAny {
            name: "x-kubernetes-group-version-kind".into(),
            value: Some(gvk),
        }],
    }
}

pub(crate) fn v3_index() -> Value {
    let mut paths = Map::new();
    for (group, version) in group_versions() {
        let path = root(group, version);
        paths.insert(path.clone(), json!({"serverRelativeURL": format!("/openapi/v3/{path}")}));
    }
    json!({ "paths": paths })
}

pub(crate) fn v3(group: &str, version: &str) -> Option<Value> {
    let kinds: Vec<_> = KINDS.iter().filter(|it| it.group == group && it.version == version).collect();
    if kinds.is_empty() {
        return None;
    }
    let parameters: Vec<_> = PATCH_PARAMETERS
        .iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
        .collect();
    let patch = |kind: &Kind| {
        json!({"patch": {
            "operationId": format!("patch{}", kind.kind),
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": group_version_kind(kind),
        }})
    };
    let paths: Map<String, Value> = kinds.into_iter().map(|kind| (path(kind), patch(kind))).collect();
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
    }))
}

fn group_version_kind(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

fn path(kind: &Kind) -> String {
    let namespace = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
    format!("/{}/{namespace}{}/{{name}}", root(kind.group, kind.version), kind.plural)
}

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The part of gnostic's `openapi.v2` that we fill. A message there that holds one of several things is
/// here one with the field of ours.
mod v2 {
    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Document {
        #[prost(string, tag = "1")]
        pub(super) swagger: String,
        #[prost(message, optional, tag = "2")]
        pub(super) info: Option<Info>,
        #[prost(message, optional, tag = "8")]
        pub(super) paths: Option<Paths>,
        #[prost(message, optional, tag = "9")]
        pub(super) definitions: Option<Definitions>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Info {
        #[prost(string, tag = "1")]
        pub(super) title: String,
        #[prost(string, tag = "2")]
        pub(super) version: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Definitions {}

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Paths {
        #[prost(message, repeated, tag = "2")]
        pub(super) path: Vec<NamedPathItem>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct NamedPathItem {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<PathItem>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct PathItem {
        #[prost(message, optional, tag = "8")]
        pub(super) patch: Option<Operation>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Operation {
        #[prost(string, tag = "5")]
        pub(super) operation_id: String,
        #[prost(string, repeated, tag = "6")]
        pub(super) produces: Vec<String>,
        #[prost(string, repeated, tag = "7")]
        pub(super) consumes: Vec<String>,
        #[prost(message, repeated, tag = "8")]
        pub(super) parameters: Vec<ParametersItem>,
        #[prost(message, optional, tag = "9")]
        pub(super) responses: Option<Responses>,
        #[prost(message, repeated, tag = "13")]
        pub(super) vendor_extension: Vec<NamedAny>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct ParametersItem {
        #[prost(message, optional, tag = "1")]
        pub(super) parameter: Option<Parameter>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Parameter {
        #[prost(message, optional, tag = "2")]
        pub(super) non_body: Option<NonBodyParameter>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct NonBodyParameter {
        #[prost(message, optional, tag = "3")]
        pub(super) query: Option<QueryParameter>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct QueryParameter {
        #[prost(string, tag = "2")]
        pub(super) r#in: String,
        #[prost(string, tag = "4")]
        pub(super) name: String,
        #[prost(string, tag = "6")]
        pub(super) r#type: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Responses {
        #[prost(message, repeated, tag = "1")]
        pub(super) response_code: Vec<NamedResponseValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct NamedResponseValue {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<ResponseValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct ResponseValue {
        #[prost(message, optional, tag = "1")]
        pub(super) response: Option<Response>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Response {
        #[prost(string, tag = "1")]
        pub(super) description: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct NamedAny {
        #[prost(string, tag = "1")]
        pub(super) name: String,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<Any>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Any {
        #[prost(string, tag = "2")]
        pub(super) yaml: String,
    }
}
