//! OpenAPI paths and operations of each kind.

use serde_json::{Map, Value, json};

use super::{OpenApiVersion, root};
use crate::kinds::Kind;
use crate::types;

const ACCEPTED: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// kubectl reads from these which patch types the server supports.
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

const LIST: &[(&str, &str)] = &[
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

/// kubectl reads from `fieldValidation` that the server validates fields, and from `dryRun` that it supports
/// dry runs.
const WRITE: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];

const PATCH: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];

const DELETE: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];

pub(super) fn of(kinds: &[&Kind], version: OpenApiVersion) -> Map<String, Value> {
    let mut paths = Paths { version, found: Map::new() };
    for kind in kinds {
        paths.add(kind);
    }
    paths.found
}

struct Paths {
    version: OpenApiVersion,
    found: Map<String, Value>,
}

/// One verb on one path.
struct OpenApiOperation<'a> {
    kind: &'a Kind,
    method: &'a str,
    /// The `x-kubernetes-action`, mostly the verb of authorization.
    action: &'a str,
    id: String,
    parameters: &'a [(&'a str, &'a str)],
    /// Group, version and kind of the request body, unless it is a patch.
    body: Option<(&'a str, &'a str, &'a str)>,
    answer: String,
}

impl Paths {
    fn add(&mut self, kind: &Kind) {
        let own = (kind.group, kind.version, kind.kind);
        let name = name_of(own);
        let list = name.as_ref().map(|it| format!("{it}List")).unwrap_or_default();
        let name = name.unwrap_or_default();
        let namespaced = if kind.namespaced { "Namespaced" } else { "" };
        let all = format!("/{}/{}", root(kind.group, kind.version), kind.plural);
        let collection = if kind.namespaced {
            format!("/{}/namespaces/{{namespace}}/{}", root(kind.group, kind.version), kind.plural)
        } else {
            all.clone()
        };
        let object = format!("{collection}/{{name}}");
        let group = camel(kind.group.split(".k8s.io").next().unwrap_or_default());
        let group = if group.is_empty() { "Core".to_owned() } else { group };
        let id = |verb: &str, rest: &str| format!("{verb}{group}{}{rest}", camel(kind.version));
        let plain = |rest: &str| format!("{namespaced}{}{rest}", kind.kind);
        let options = ("", "v1", "DeleteOptions");
        let status = "io.k8s.apimachinery.pkg.apis.meta.v1.Status".to_owned();
        let can = |verb: &str| kind.verbs.contains(&verb);
        let mut put = |path: &str, method, action, id, parameters, body, answer| {
            self.put(path, &OpenApiOperation { kind, method, action, id, parameters, body, answer });
        };
        if can("list") {
            put(&collection, "get", "list", id("list", &plain("")), LIST, None, list.clone());
            if kind.namespaced {
                let rest = format!("{}ForAllNamespaces", kind.kind);
                put(&all, "get", "list", id("list", &rest), LIST, None, list);
            }
        }
        if can("create") {
            put(&collection, "post", "post", id("create", &plain("")), WRITE, Some(own), name.clone());
        }
        if can("deletecollection") {
            let rest = format!("Collection{}", plain(""));
            put(
                &collection,
                "delete",
                "deletecollection",
                id("delete", &rest),
                DELETE,
                Some(options),
                status.clone(),
            );
        }
        if can("get") {
            put(&object, "get", "get", id("read", &plain("")), &[], None, name.clone());
        }
        if can("update") {
            put(&object, "put", "put", id("replace", &plain("")), WRITE, Some(own), name.clone());
        }
        if can("patch") {
            put(&object, "patch", "patch", id("patch", &plain("")), PATCH, None, name.clone());
        }
        if can("delete") {
            put(&object, "delete", "delete", id("delete", &plain("")), DELETE, Some(options), status);
        }
        let of_status = ("status", own, &["get", "patch", "update"][..]);
        let parts = kind.subresources.iter().map(|it| (it.name, it.body.unwrap_or(own), it.verbs));
        for (subresource, body, verbs) in
            kind.has_status_subresource().then_some(of_status).into_iter().chain(parts)
        {
            let path = format!("{object}/{subresource}");
            let answer = name_of(body).unwrap_or_default();
            for verb in verbs {
                let (method, action, word, parameters, body) = match *verb {
                    "create" => ("post", "post", "create", WRITE, Some(body)),
                    "update" => ("put", "put", "replace", WRITE, Some(body)),
                    "patch" => ("patch", "patch", "patch", PATCH, None),
                    "get" => ("get", "get", "read", &[][..], None),
                    _ => continue,
                };
                put(
                    &path,
                    method,
                    action,
                    id(word, &plain(&camel(subresource))),
                    parameters,
                    body,
                    answer.clone(),
                );
            }
        }
    }

    fn put(&mut self, path: &str, operation: &OpenApiOperation<'_>) {
        let item = self.found.entry(path).or_insert_with(|| {
            let in_path = ["name", "namespace"].into_iter().filter(|it| path.contains(&format!("{{{it}}}")));
            let parameters = in_path.map(|it| parameter(self.version, it, "path", "string")).collect();
            with_parameters(json!({}), parameters)
        });
        item[operation.method] = self::operation(self.version, operation);
    }
}

fn operation(version: OpenApiVersion, it: &OpenApiOperation<'_>) -> Value {
    let mut parameters: Vec<_> =
        it.parameters.iter().map(|(name, of)| parameter(version, name, "query", of)).collect();
    let is_patch = it.method == "patch";
    let body = match it.body {
        Some(body) => name_of(body),
        None => None,
    };
    let code = if it.method == "post" { "201" } else { "200" };
    let mut answer = json!({"description": if it.method == "post" { "Created" } else { "OK" }});
    let mut value = json!({
        "operationId": it.id,
        "tags": [tag(it.kind)],
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
                value["consumes"] = if is_patch { PATCHES } else { ACCEPTED }.into();
            }
            value["produces"] = vec!["application/json"].into();
            if !it.answer.is_empty() {
                answer["schema"] = json!({"$ref": format!("#/definitions/{}", it.answer)});
            }
        }
        OpenApiVersion::V3 => {
            let content = |media: &[&str], schema: &Value| {
                let each = media.iter().map(|it| ((*it).to_owned(), json!({"schema": schema})));
                Value::Object(each.collect())
            };
            if is_patch {
                value["requestBody"] =
                    json!({"content": content(PATCHES, &json!({"type": "object"})), "required": true});
            } else if let Some(name) = &body {
                let schema = json!({"$ref": format!("#/components/schemas/{name}")});
                value["requestBody"] = json!({"content": content(&["*/*"], &schema), "required": true});
            }
            if !it.answer.is_empty() {
                let schema = json!({"$ref": format!("#/components/schemas/{}", it.answer)});
                answer["content"] = content(&["application/json"], &schema);
            }
        }
    }
    value["responses"] = json!({ code: answer, "401": {"description": "Unauthorized"} });
    with_parameters(value, parameters)
}

/// An empty list is omitted: a client that serializes the document again would drop it.
fn with_parameters(mut value: Value, parameters: Vec<Value>) -> Value {
    if !parameters.is_empty() {
        value["parameters"] = parameters.into();
    }
    value
}

fn parameter(version: OpenApiVersion, name: &str, place: &str, of: &str) -> Value {
    let mut value = json!({"name": name, "in": place});
    if place == "path" {
        value["required"] = true.into();
    }
    match version {
        OpenApiVersion::V2 => {
            value["type"] = of.into();
            value["uniqueItems"] = true.into();
        }
        OpenApiVersion::V3 => value["schema"] = json!({"type": of, "uniqueItems": true}),
    }
    value
}

/// Name of the schema of a kind, if it has one.
fn name_of((group, version, kind): (&str, &str, &str)) -> Option<String> {
    types::of(group, version, kind).map(|it| it.name.to_owned())
}

/// Tag of the operations of a kind, for example `apps_v1`.
fn tag(kind: &Kind) -> String {
    let group =
        if kind.group.is_empty() { "core" } else { kind.group.split(".k8s.io").next().unwrap_or_default() };
    format!("{}_{}", camel_low(group), kind.version)
}

/// `rbac.authorization` becomes `RbacAuthorization`.
fn camel(words: &str) -> String {
    let word = |it: &str| it.get(..1).map(|first| first.to_uppercase() + &it[1..]).unwrap_or_default();
    words.split(['.', '-']).map(word).collect()
}

fn camel_low(words: &str) -> String {
    let camel = camel(words);
    camel.get(..1).map(|first| first.to_lowercase() + &camel[1..]).unwrap_or_default()
}
