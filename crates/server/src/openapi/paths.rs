//! OpenAPI paths, and the operations that each kind has on them.

use muster_api::well_known::{
    APPLY_PATCH_MEDIA_TYPE, JSON_MEDIA_TYPE, JSON_PATCH_MEDIA_TYPE, MERGE_PATCH_MEDIA_TYPE,
    PROTOBUF_MEDIA_TYPE, STRATEGIC_MERGE_PATCH_MEDIA_TYPE, YAML_MEDIA_TYPE,
};
use serde_json::{Map, Value, json};

use super::{OpenApiVersion, api_root};
use crate::kinds::Kind;
use crate::types;

/// Media types of request bodies that contain an object.
const BODY_MEDIA_TYPES: &[&str] = &[JSON_MEDIA_TYPE, YAML_MEDIA_TYPE, PROTOBUF_MEDIA_TYPE];

/// Media types of patches. kubectl reads from them which patch types the server supports.
const PATCH_MEDIA_TYPES: &[&str] = &[
    JSON_PATCH_MEDIA_TYPE,
    MERGE_PATCH_MEDIA_TYPE,
    STRATEGIC_MERGE_PATCH_MEDIA_TYPE,
    APPLY_PATCH_MEDIA_TYPE,
];

/// Query parameters of lists and watches, as pairs of name and type.
const LIST_PARAMETERS: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];

/// Query parameters of creates and updates, as pairs of name and type. If `fieldValidation` is among them, kubectl
/// concludes that the server validates fields. If `dryRun` is among them, kubectl concludes that the server supports
/// dry runs.
const WRITE_PARAMETERS: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];

/// Query parameters of patches, as pairs of name and type.
const PATCH_PARAMETERS: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];

/// Query parameters of deletes, as pairs of name and type.
const DELETE_PARAMETERS: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];

/// Returns the object `paths` of an OpenAPI document that describes these kinds.
pub(super) fn openapi_paths(kinds: &[&Kind], version: OpenApiVersion) -> Map<String, Value> {
    let mut paths = PathsBuilder { version, paths: Map::new() };
    for kind in kinds {
        paths.add_kind(kind);
    }
    paths.paths
}

/// Builds the object `paths` of an OpenAPI document.
struct PathsBuilder {
    version: OpenApiVersion,
    /// The OpenAPI path items by path.
    paths: Map<String, Value>,
}

/// One OpenAPI operation: an HTTP method on a path.
struct OpenApiOperation<'a> {
    kind: &'a Kind,
    /// The HTTP method in lower case.
    method: &'a str,
    /// Value of `x-kubernetes-action`, such as `list` or `post`.
    action: &'a str,
    /// Value of `operationId`, such as `listCoreV1NamespacedPod`.
    id: String,
    /// Query parameters of the operation, as pairs of name and type.
    parameters: &'a [(&'a str, &'a str)],
    /// Group, version and kind of the request body. `None` for a patch and for a request without a body.
    body: Option<(&'a str, &'a str, &'a str)>,
    /// Name of the schema of the response body. Empty if the type table does not contain the type.
    response: String,
}

impl PathsBuilder {
    /// Adds the operations on a kind and on its subresources. Watches are the list operations with the parameter
    /// `watch`. The verb `delete` of a subresource has no operation.
    fn add_kind(&mut self, kind: &Kind) {
        let own = (kind.group, kind.version, kind.kind);
        let name = schema_name(own);
        let list = name.as_ref().map(|it| format!("{it}List")).unwrap_or_default();
        let name = name.unwrap_or_default();
        let namespaced = if kind.namespaced { "Namespaced" } else { "" };
        let all = format!("/{}/{}", api_root(kind.group, kind.version), kind.plural);
        let collection = if kind.namespaced {
            format!("/{}/namespaces/{{namespace}}/{}", api_root(kind.group, kind.version), kind.plural)
        } else {
            all.clone()
        };
        let object = format!("{collection}/{{name}}");
        let group = upper_camel_case(kind.group.split(".k8s.io").next().unwrap_or_default());
        let group = if group.is_empty() { "Core".to_owned() } else { group };
        let id = |verb: &str, rest: &str| format!("{verb}{group}{}{rest}", upper_camel_case(kind.version));
        let plain = |rest: &str| format!("{namespaced}{}{rest}", kind.kind);
        let options = ("", "v1", "DeleteOptions");
        let status = "io.k8s.apimachinery.pkg.apis.meta.v1.Status".to_owned();
        let can = |verb: &str| kind.verbs.contains(&verb);
        let mut put = |path: &str, method, action, id, parameters, body, answer| {
            self.add_operation(
                path,
                &OpenApiOperation { kind, method, action, id, parameters, body, response: answer },
            );
        };
        if can("list") {
            put(&collection, "get", "list", id("list", &plain("")), LIST_PARAMETERS, None, list.clone());
            if kind.namespaced {
                let rest = format!("{}ForAllNamespaces", kind.kind);
                put(&all, "get", "list", id("list", &rest), LIST_PARAMETERS, None, list);
            }
        }
        if can("create") {
            put(
                &collection,
                "post",
                "post",
                id("create", &plain("")),
                WRITE_PARAMETERS,
                Some(own),
                name.clone(),
            );
        }
        if can("deletecollection") {
            let rest = format!("Collection{}", plain(""));
            put(
                &collection,
                "delete",
                "deletecollection",
                id("delete", &rest),
                DELETE_PARAMETERS,
                Some(options),
                status.clone(),
            );
        }
        if can("get") {
            put(&object, "get", "get", id("read", &plain("")), &[], None, name.clone());
        }
        if can("update") {
            put(&object, "put", "put", id("replace", &plain("")), WRITE_PARAMETERS, Some(own), name.clone());
        }
        if can("patch") {
            put(&object, "patch", "patch", id("patch", &plain("")), PATCH_PARAMETERS, None, name.clone());
        }
        if can("delete") {
            put(
                &object,
                "delete",
                "delete",
                id("delete", &plain("")),
                DELETE_PARAMETERS,
                Some(options),
                status,
            );
        }
        let of_status = ("status", own, &["get", "patch", "update"][..]);
        let parts = kind.subresources.iter().map(|it| (it.name, it.body.unwrap_or(own), it.verbs));
        for (subresource, body, verbs) in
            kind.has_status_subresource().then_some(of_status).into_iter().chain(parts)
        {
            let path = format!("{object}/{subresource}");
            let answer = schema_name(body).unwrap_or_default();
            for verb in verbs {
                let (method, action, word, parameters, body) = match *verb {
                    "create" => ("post", "post", "create", WRITE_PARAMETERS, Some(body)),
                    "update" => ("put", "put", "replace", WRITE_PARAMETERS, Some(body)),
                    "patch" => ("patch", "patch", "patch", PATCH_PARAMETERS, None),
                    "get" => ("get", "get", "read", &[][..], None),
                    _ => continue,
                };
                put(
                    &path,
                    method,
                    action,
                    id(word, &plain(&upper_camel_case(subresource))),
                    parameters,
                    body,
                    answer.clone(),
                );
            }
        }
    }

    /// Adds an operation to the path item of `path`. If this path item does not exist, first creates it with the path
    /// parameters that `path` contains.
    fn add_operation(&mut self, path: &str, operation: &OpenApiOperation<'_>) {
        let item = self.paths.entry(path).or_insert_with(|| {
            let in_path = ["name", "namespace"].into_iter().filter(|it| path.contains(&format!("{{{it}}}")));
            let parameters = in_path.map(|it| parameter_json(self.version, it, "path", "string")).collect();
            with_parameters(json!({}), parameters)
        });
        item[operation.method] = self::operation_json(self.version, operation);
    }
}

/// Returns the JSON of an OpenAPI operation.
fn operation_json(version: OpenApiVersion, it: &OpenApiOperation<'_>) -> Value {
    let mut parameters: Vec<_> =
        it.parameters.iter().map(|(name, of)| parameter_json(version, name, "query", of)).collect();
    let is_patch = it.method == "patch";
    let body = match it.body {
        Some(body) => schema_name(body),
        None => None,
    };
    let code = if it.method == "post" { "201" } else { "200" };
    let mut answer = json!({"description": if it.method == "post" { "Created" } else { "OK" }});
    let mut value = json!({
        "operationId": it.id,
        "tags": [operation_tag(it.kind)],
        "x-kubernetes-action": it.action,
        "x-kubernetes-group-version-kind":
            {"group": it.kind.group, "version": it.kind.version, "kind": it.kind.kind},
    });
    match version {
        OpenApiVersion::V2 => {
            if is_patch || body.is_some() {
                let schema = match &body {
                    Some(name) => json!({"$ref": format!("#/definitions/{name}")}),
                    None => json!({"type": "object"}),
                };
                parameters
                    .insert(0, json!({"name": "body", "in": "body", "required": true, "schema": schema}));
                value["consumes"] = if is_patch { PATCH_MEDIA_TYPES } else { BODY_MEDIA_TYPES }.into();
            }
            value["produces"] = vec!["application/json"].into();
            if !it.response.is_empty() {
                answer["schema"] = json!({"$ref": format!("#/definitions/{}", it.response)});
            }
        }
        OpenApiVersion::V3 => {
            let content = |media: &[&str], schema: &Value| {
                let each = media.iter().map(|it| ((*it).to_owned(), json!({"schema": schema})));
                Value::Object(each.collect())
            };
            if is_patch {
                value["requestBody"] = json!({"content": content(PATCH_MEDIA_TYPES, &json!({"type": "object"})), "required": true});
            } else if let Some(name) = &body {
                let schema = json!({"$ref": format!("#/components/schemas/{name}")});
                value["requestBody"] = json!({"content": content(&["*/*"], &schema), "required": true});
            }
            if !it.response.is_empty() {
                let schema = json!({"$ref": format!("#/components/schemas/{}", it.response)});
                answer["content"] = content(&["application/json"], &schema);
            }
        }
    }
    value["responses"] = json!({ code: answer, "401": {"description": "Unauthorized"} });
    with_parameters(value, parameters)
}

/// Returns the JSON of an operation or path item with `parameters` added. An empty list is omitted, because clients
/// that parse and serialize the document drop empty lists.
fn with_parameters(mut value: Value, parameters: Vec<Value>) -> Value {
    if !parameters.is_empty() {
        value["parameters"] = parameters.into();
    }
    value
}

/// Returns the JSON of an OpenAPI parameter. `place` is `path` or `query`. `value_type` is the OpenAPI type of the
/// parameter, such as `string`.
fn parameter_json(version: OpenApiVersion, name: &str, place: &str, value_type: &str) -> Value {
    let mut value = json!({"name": name, "in": place});
    if place == "path" {
        value["required"] = true.into();
    }
    match version {
        OpenApiVersion::V2 => {
            value["type"] = value_type.into();
            value["uniqueItems"] = true.into();
        }
        OpenApiVersion::V3 => value["schema"] = json!({"type": value_type, "uniqueItems": true}),
    }
    value
}

/// Returns the name of the schema of a kind, or `None` if the type table does not contain the kind.
fn schema_name((group, version, kind): (&str, &str, &str)) -> Option<String> {
    types::find_type(group, version, kind).map(|it| it.name.to_owned())
}

/// Returns the tag of the operations of a kind, such as `apps_v1`.
fn operation_tag(kind: &Kind) -> String {
    let group =
        if kind.group.is_empty() { "core" } else { kind.group.split(".k8s.io").next().unwrap_or_default() };
    format!("{}_{}", lower_camel_case(group), kind.version)
}

/// Converts words separated by dots or hyphens to upper camel case: `rbac.authorization` becomes `RbacAuthorization`.
fn upper_camel_case(words: &str) -> String {
    let word = |it: &str| it.get(..1).map(|first| first.to_uppercase() + &it[1..]).unwrap_or_default();
    words.split(['.', '-']).map(word).collect()
}

/// Converts words separated by dots or hyphens to lower camel case: `rbac.authorization` becomes `rbacAuthorization`.
fn lower_camel_case(words: &str) -> String {
    let camel = upper_camel_case(words);
    camel.get(..1).map(|first| first.to_lowercase() + &camel[1..]).unwrap_or_default()
}
