//! Generates arbitrary requests. Their parts are mostly valid, so that many requests pass routing, decoding and
//! authorization.

use std::collections::BTreeSet;
use std::fmt;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::OPEN_NAMESPACE;
use crate::headers;
use crate::kinds::WRITABLE_KINDS;

/// A generated HTTP request.
#[derive(Clone)]
pub(super) struct FuzzRequest {
    method: &'static str,
    path: FuzzPath,
    query: Vec<(String, String)>,
    accept: &'static str,
    /// Additional headers, whose values may be invalid UTF-8.
    headers: Vec<(&'static str, Vec<u8>)>,
    body: (&'static str, Vec<u8>),
}

/// The path of a generated request.
#[derive(Debug, Clone)]
pub(super) enum FuzzPath {
    /// The path of a collection, an object or a subresource. `group` is the path prefix of an API group and version,
    /// and `rest` are the path segments after `plural`.
    Resource { group: String, namespace: Option<String>, plural: String, rest: Vec<String> },
    /// Any other path, such as `/healthz` or random characters.
    Other(String),
}

impl fmt::Debug for FuzzRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (media_type, body) = (self.body.0, self.body.1.escape_ascii());
        write!(
            f,
            "{} {} accept={} {media_type} {body}",
            self.method,
            self.uri(false).unwrap_or_default(),
            self.accept
        )?;
        for (name, value) in &self.headers {
            write!(f, " {name}={}", value.escape_ascii())?;
        }
        Ok(())
    }
}

impl FuzzRequest {
    /// Builds the HTTP request. If `in_open_namespace` is set, the request is for `OPEN_NAMESPACE`, whatever namespace
    /// the resource path has. Returns `None` if `in_open_namespace` is set and the path is not a resource path, or if
    /// the request cannot be expressed in HTTP.
    pub(super) fn to_http_request(&self, in_open_namespace: bool) -> Option<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(self.method)
            .uri(self.uri(in_open_namespace)?)
            .header(ACCEPT, self.accept)
            .header(CONTENT_TYPE, self.body.0);
        for (name, value) in &self.headers {
            request = request.header(*name, value.as_slice());
        }
        request.body(Full::new(Bytes::from(self.body.1.clone()))).ok()
    }

    /// Returns the path and query. If `in_open_namespace` is set, a resource path gets the namespace `OPEN_NAMESPACE`,
    /// and any other path gives `None`.
    fn uri(&self, in_open_namespace: bool) -> Option<String> {
        let path = match &self.path {
            FuzzPath::Resource { group, namespace, plural, rest } => {
                let namespace = if in_open_namespace { Some(OPEN_NAMESPACE) } else { namespace.as_deref() };
                let namespace = namespace.map(|it| format!("namespaces/{it}/")).unwrap_or_default();
                let rest: String = rest.iter().map(|it| format!("/{it}")).collect();
                format!("/{group}/{namespace}{plural}{rest}")
            }
            FuzzPath::Other(_) if in_open_namespace => return None,
            FuzzPath::Other(path) => path.clone(),
        };
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let query: Vec<String> =
            self.query.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
        Some(if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) })
    }
}

/// Generates requests with these paths, queries and bodies, an arbitrary method and an arbitrary `Accept` header.
pub(super) fn arbitrary_request(
    path: impl Strategy<Value = FuzzPath>,
    query: impl Strategy<Value = Vec<(String, String)>>,
    body: impl Strategy<Value = (&'static str, Vec<u8>)>,
) -> impl Strategy<Value = FuzzRequest> {
    let accepts = select(vec![
        "",
        "application/json",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
        "application/vnd.kubernetes.protobuf,application/json",
        "application/vnd.kubernetes.protobuf",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,*/*",
        "application/yaml",
        "text/html;q=0.9,*/*;q=0.1",
        ";;=,",
    ]);
    let methods = prop_oneof![
        4 => Just("GET"), 3 => Just("POST"), 3 => Just("PUT"), 3 => Just("PATCH"), 2 => Just("DELETE"),
        1 => select(vec!["HEAD", "OPTIONS", "CONNECT", "BREW"]),
    ];
    (methods, path, query, accepts, body).prop_map(|(method, path, query, accept, body)| FuzzRequest {
        method,
        path,
        query,
        accept,
        headers: Vec::new(),
        body,
    })
}

/// Generates requests with realistic and random values in the headers that the server reads.
pub(super) fn requests_with_arbitrary_headers() -> impl Strategy<Value = FuzzRequest> {
    (arbitrary_request(arbitrary_path(), arbitrary_query(), arbitrary_body()), vec(arbitrary_header(), 1..6))
        .prop_map(|(input, headers)| FuzzRequest { headers, ..input })
}

/// Further headers of generated requests: unusual impersonation headers, and headers that HTTP libraries, proxies and
/// other API servers interpret.
const OTHER_HEADERS: &[&str] = &[
    "accept-encoding",
    "content-encoding",
    "content-length",
    "expect",
    "impersonate-extra-authentication.kubernetes.io%2fpod-name",
    "impersonate-extra-%ff",
    "impersonate-other",
    "origin",
    "sec-websocket-version",
    "te",
    "transfer-encoding",
    "x-remote-extra-scopes",
    "x-remote-group",
    "x-remote-user",
    "x-stream-protocol-version",
];

/// Returns the names of the headers in generated requests: all that the server reads, and [`OTHER_HEADERS`].
pub(in crate::http) fn header_names() -> Vec<&'static str> {
    headers::read_header_names().chain(OTHER_HEADERS.iter().copied()).collect()
}

/// Generates the name and value of a header of [`header_names`]. The value is realistic, realistic with one byte
/// changed, or random.
fn arbitrary_header() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let names = select(header_names());
    let known = select(vec![
        "kubernetes-admin",
        "system:masters",
        "system:admin",
        "system:node:n",
        "system:nodes",
        "system:serviceaccount:b:default",
        "system:anonymous",
        "guest",
        "Bearer eyJhbGciOiJub25lIn0.e30.",
        "Bearer abcdef.0123456789abcdef",
        "Basic Z3Vlc3Q6Z3Vlc3Q=",
        "websocket",
        "SPDY/3.1",
        "v5.channel.k8s.io",
        "base64url.bearer.authorization.k8s.io.Z3Vlc3Q",
        "kube-system/muster-controller/1",
        "identity",
        "gzip",
        "chunked",
        "100-continue",
    ]);
    let values = prop_oneof![
        4 => known.prop_map(|it| it.as_bytes().to_vec()),
        // A known value with one byte changed, mostly to a non-ASCII byte.
        4 => (known_header_values(), any::<prop::sample::Index>(), 0x80..=0xff_u8).prop_map(|(mut value, at, byte)| {
            let at = at.index(value.len());
            value[at] = byte;
            value
        }),
        2 => vec(0x20..=0xff_u8, 0..40),
        1 => "\\PC{0,20}".prop_map(String::into_bytes),
    ];
    (names, values)
}

/// Generates realistic header values, in which [`arbitrary_header`] changes one byte.
fn known_header_values() -> impl Strategy<Value = Vec<u8>> {
    select(vec!["kubernetes-admin", "system:masters", "j\u{f6}rg", "Bearer abc", "guest"])
        .prop_map(|it| it.as_bytes().to_vec())
}

/// Generates requests for a collection: list, watch, delete collection and create.
pub(super) fn arbitrary_collection_request(
    query: impl Strategy<Value = Vec<(String, String)>>,
) -> impl Strategy<Value = FuzzRequest> {
    let methods = prop_oneof![8 => Just("GET"), 2 => Just("DELETE"), 1 => Just("POST")];
    (arbitrary_request(collection_paths(), query, empty_body()), methods)
        .prop_map(|(input, method)| FuzzRequest { method, ..input })
}

/// Generates PATCH requests for `EXISTING_OBJECTS` and their subresources, in the namespaces of `namespace_names`.
pub(super) fn arbitrary_patch_request() -> impl Strategy<Value = FuzzRequest> {
    let on = select(EXISTING_OBJECTS);
    let rest =
        prop_oneof![5 => Just(vec![]), 1 => select(SUBRESOURCE_NAMES).prop_map(|it| vec![it.to_owned()])];
    let path = (on, namespace_names(), rest).prop_map(|((group, plural, name), namespace, part)| {
        FuzzPath::Resource {
            group: group.to_owned(),
            namespace: Some(namespace),
            plural: plural.to_owned(),
            rest: [vec![name.to_owned()], part].concat(),
        }
    });
    (arbitrary_request(path, arbitrary_query(), patch_bodies()), Just("PATCH"))
        .prop_map(|(input, method)| FuzzRequest { method, ..input })
}

/// Returns the path prefixes of all group versions that the server serves, and of one that does not exist.
fn group_version_paths() -> Vec<String> {
    let served: BTreeSet<String> = WRITABLE_KINDS
        .iter()
        .map(
            |it| if it.group.is_empty() { "api/v1".to_owned() } else { format!("apis/{}", it.api_version()) },
        )
        .collect();
    served.into_iter().chain(["apis/no.such.group/v1".to_owned()]).collect()
}

/// Returns the plural names of all resources that the server serves, and of one that does not exist.
fn resource_plurals() -> Vec<&'static str> {
    let served: BTreeSet<&str> = WRITABLE_KINDS.iter().map(|it| it.plural).collect();
    served.into_iter().chain(["deployments"]).collect()
}

/// Objects that exist in each namespace: the path prefix of the API group, the plural name of the resource, and the
/// name.
const EXISTING_OBJECTS: &[(&str, &str, &str)] = &[
    ("api/v1", "configmaps", "m"),
    ("api/v1", "secrets", "s"),
    ("api/v1", "pods", "p"),
    ("apis/apps/v1", "daemonsets", "d"),
    ("apis/extensions/v1beta1", "daemonsets", "d"),
    ("apis/muster.dev/v1alpha1", "rolloutpolicies", "r"),
    ("api/v1", "serviceaccounts", "default"),
];

/// Names of subresources.
const SUBRESOURCE_NAMES: &[&str] = &[
    "status",
    "binding",
    "eviction",
    "log",
    "exec",
    "attach",
    "portforward",
    "ephemeralcontainers",
    "token",
    "scale",
    "finalize",
    "approval",
    "proxy",
    "resize",
];

/// Generates names of open, closed and missing namespaces, and invalid names.
fn namespace_names() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => Just(OPEN_NAMESPACE.to_owned()),
        4 => select(vec!["aa", "b", "a-b", "default", "kube-system", "", "nosuch"]).prop_map(str::to_owned),
        3 => select(vec!["a%2Fb", "b%2F", "..", "%2e%2e", "a%2F..%2Fb", "a%00", ".", "%2F", "a%2fpods", "*", "%"]).prop_map(str::to_owned),
        1 => "[a-b%./]{0,6}",
    ]
}

/// Generates names of existing objects, names for the subresource `proxy`, and invalid names.
fn object_names() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => select(vec!["m", "s", "p", "d", "r", "default"]).prop_map(str::to_owned),
        1 => select(vec!["p:80", "https:p:", "w:80", "w:http", "http:w:80", "w:99999", "p:a:b:c", "::", "w:b%2Fp"]).prop_map(str::to_owned),
        3 => select(vec!["..%2Fb%2Fs", "..", "b%2Fs", "%2Fb%2Fs", "%2e%2e%2fb%2fm", "x%00", "s%2Fstatus", "*", "%ff", "guest"]).prop_map(str::to_owned),
        2 => "[a-z%./-]{0,8}",
    ]
}

/// Generates paths of collections, objects and subresources, a few non-resource paths and a few random paths.
pub(super) fn arbitrary_path() -> impl Strategy<Value = FuzzPath> {
    let rest = prop_oneof![
        2 => Just(vec![]),
        5 => object_names().prop_map(|it| vec![it]),
        3 => (object_names(), select(SUBRESOURCE_NAMES)).prop_map(|(name, part)| vec![name, part.to_owned()]),
        1 => (object_names(), "[a-z%./:]{0,12}").prop_map(|(name, rest)| vec![name, "proxy".to_owned(), rest]),
        1 => vec("[a-z%./]{0,4}", 0..5),
    ];
    // Most groups have few of the resources, so the two groups with most of them are frequent.
    let group = prop_oneof![
        4 => Just("api/v1".to_owned()), 2 => Just("apis/apps/v1".to_owned()), 4 => select(group_version_paths()),
    ];
    let of = (group, prop::option::weighted(0.8, namespace_names()), select(resource_plurals()), rest);
    let of = of.prop_map(|(group, namespace, plural, rest)| FuzzPath::Resource {
        group,
        namespace,
        plural: plural.to_owned(),
        rest,
    });
    let known = select(vec![
        "/",
        "/api",
        "/apis",
        "/version",
        "/healthz",
        "/readyz/ping",
        "/livez?verbose",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/apis/apps/v1",
        "/openapi/v3/api/v1",
        "/apis/apps",
        "/apis/apps/v1",
        "/api/v1",
        "//api//v1//namespaces//b//secrets",
        "/api/v1/namespaces/b/secrets/s/../../..",
        "/debug/pprof",
    ]);
    prop_oneof![
        12 => of,
        1 => known.prop_map(|it| FuzzPath::Other(it.to_owned())),
        1 => "/[!-~]{0,40}".prop_map(FuzzPath::Other),
    ]
}

/// Generates paths of collections in the open namespace, in other namespaces and across all namespaces.
pub(super) fn collection_paths() -> impl Strategy<Value = FuzzPath> {
    let lists = (select(EXISTING_OBJECTS), prop::option::weighted(0.9, namespace_names()));
    lists.prop_map(|((group, plural, _), namespace)| FuzzPath::Resource {
        group: group.to_owned(),
        namespace,
        plural: plural.to_owned(),
        rest: Vec::new(),
    })
}

/// Generates a query parameter with this name and these values.
fn query_parameter(
    name: &'static str,
    value: impl Strategy<Value = String> + 'static,
) -> BoxedStrategy<(String, String)> {
    value.prop_map(move |value| (name.to_owned(), value)).boxed()
}

/// Generates one of `values` as a `String`.
fn select_owned(values: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(values).prop_map(str::to_owned)
}

/// Generates up to three query parameters: those that the server reads, with valid and invalid values, or random ones.
pub(super) fn arbitrary_query() -> impl Strategy<Value = Vec<(String, String)>> {
    let parameters = prop::strategy::Union::new(vec![
        query_parameter("watch", select_owned(&["true", "1", "false", "yes"])),
        query_parameter("allowWatchBookmarks", select_owned(&["true", "0"])),
        query_parameter("sendInitialEvents", select_owned(&["true", "false"])),
        query_parameter("timeoutSeconds", select_owned(&["0", "1", "-1", "99999999999999999999", "x"])),
        query_parameter("limit", select_owned(&["0", "1", "2", "-1", "18446744073709551616"])),
        query_parameter("continue", continue_tokens()),
        query_parameter(
            "resourceVersion",
            select_owned(&["", "0", "1", "5", "40", "999999", "-1", "18446744073709551615", "x"]),
        ),
        query_parameter("resourceVersionMatch", select_owned(&["Exact", "NotOlderThan", "", "Other"])),
        query_parameter("labelSelector", label_selectors()),
        query_parameter("fieldSelector", field_selectors()),
        query_parameter("dryRun", select_owned(&["All", "", "Some"])),
        query_parameter(
            "fieldManager",
            select_owned(&[
                "me",
                "",
                "\u{1}",
                "a-very-long-name-a-very-long-name-a-very-long-name-a-very-long-name-a-very-long-name-a-very-long-name-a-very-long-name-a-very-long",
            ]),
        ),
        query_parameter("fieldValidation", select_owned(&["Strict", "Warn", "Ignore", "Other"])),
        query_parameter("force", select_owned(&["true", "false", "x"])),
        query_parameter("propagationPolicy", select_owned(&["Orphan", "Foreground", "Background", "Other"])),
        query_parameter("gracePeriodSeconds", select_owned(&["0", "1", "-1", "9223372036854775807", "x"])),
        query_parameter("orphanDependents", select_owned(&["true", "false"])),
        query_parameter("includeObject", select_owned(&["None", "Metadata", "Object", "Other"])),
        query_parameter("pretty", select_owned(&["true", "false"])),
        query_parameter("container", select_owned(&["c", ""])),
        query_parameter("command", select_owned(&["true", "; id"])),
        (".{0,8}", ".{0,8}").boxed(),
    ]);
    vec(parameters, 0..4)
}

/// Generates queries with a label selector, a field selector or both.
pub(super) fn selector_queries() -> impl Strategy<Value = Vec<(String, String)>> {
    (label_selectors(), field_selectors(), 0..3).prop_map(|(labels, fields, which)| {
        let labels = ("labelSelector".to_owned(), labels);
        let fields = ("fieldSelector".to_owned(), fields);
        match which {
            0 => vec![labels],
            1 => vec![fields],
            _ => vec![labels, fields],
        }
    })
}

/// Generates valid and invalid label selectors.
fn label_selectors() -> impl Strategy<Value = String> {
    let key = select_owned(&["app", "mark", "a.b/c", "!app", "", "-", "kubernetes.io/metadata.name", "x y"]);
    let value = select_owned(&["x", "open", "", "(", "a,b", "\u{e4}"]);
    let operator = select_owned(&["=", "==", "!=", " in ", " notin ", ">", "<", "", " ", " in (", ")"]);
    let term = (key, operator, value, prop::bool::ANY).prop_map(|(key, operator, value, many)| {
        match (operator.as_str(), many) {
            (" in " | " notin ", true) => format!("{key}{operator}({value},y)"),
            _ => format!("{key}{operator}{value}"),
        }
    });
    let good = select_owned(&[
        "app=x",
        "app",
        "mark",
        "mark!=open",
        "app in (x,y)",
        "app notin (y)",
        "!nosuch,app==x",
    ]);
    prop_oneof![
        2 => good,
        4 => vec(term, 0..4).prop_map(|it| it.join(",")),
        1 => ".{0,20}",
        1 => "[a-z!=(),<> ]{0,20}",
    ]
}

/// Generates valid and invalid field selectors.
fn field_selectors() -> impl Strategy<Value = String> {
    let field = select_owned(&[
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "status.phase",
        "type",
        "involvedObject.name",
        "spec",
        "metadata.uid",
        "",
        ".",
    ]);
    let value = select_owned(&["m", "s", "p", "b", "a", "n", "", "Running", "Opaque", "\\,", "\\", "a=b"]);
    let operator = select_owned(&["=", "==", "!=", "", ","]);
    let term =
        (field, operator, value).prop_map(|(field, operator, value)| format!("{field}{operator}{value}"));
    let good = select_owned(&[
        "metadata.namespace=b",
        "metadata.namespace!=a",
        "metadata.name!=nosuch",
        "metadata.name=m,metadata.namespace=aa",
        "spec.nodeName=n",
        "",
    ]);
    prop_oneof![
        2 => good,
        4 => vec(term, 0..4).prop_map(|it| it.join(",")),
        1 => ".{0,20}",
        1 => "[a-z.!=,\\\\]{0,20}",
    ]
}

/// Generates queries with a continue token, a limit and an optional `resourceVersion`.
pub(super) fn paging_queries() -> impl Strategy<Value = Vec<(String, String)>> {
    (
        continue_tokens(),
        select_owned(&["1", "2", "500", "0", "-5"]),
        prop::option::of(select_owned(&["0", "7", ""])),
    )
        .prop_map(|(token, limit, version)| {
            let mut query = vec![("continue".to_owned(), token), ("limit".to_owned(), limit)];
            query.extend(version.map(|it| ("resourceVersion".to_owned(), it)));
            query
        })
}

/// Generates continue tokens: well-formed ones with arbitrary start keys and revisions, and malformed ones.
fn continue_tokens() -> impl Strategy<Value = String> {
    let start = prop_oneof![
        select_owned(&[
            "a/m\0",
            "b/",
            "b/m\0",
            "m\0",
            "",
            "/",
            "../b/m",
            "aa/",
            "\0",
            "a/../b",
            "z",
            "a-b/s\0",
            "\u{10ffff}"
        ]),
        ".{0,10}",
    ];
    let revision = prop_oneof![Just(-1i64), Just(0), 0..60i64, any::<i64>()];
    let good = (start, revision, select_owned(&["meta.k8s.io/v1", "v1", ""]), prop::bool::ANY).prop_map(
        |(start, revision, version, url_safe)| {
            let token = json!({"v": version, "rv": revision, "start": start}).to_string();
            if url_safe { BASE64_URL_SAFE_NO_PAD.encode(token) } else { BASE64_STANDARD.encode(token) }
        },
    );
    let json = json_values().prop_map(|it| BASE64_URL_SAFE_NO_PAD.encode(it.to_string()));
    let bytes = vec(any::<u8>(), 0..30).prop_map(|it| BASE64_URL_SAFE_NO_PAD.encode(it));
    prop_oneof![4 => good, 1 => json, 1 => bytes, 1 => ".{0,20}"]
}

/// Generates an empty body with an empty `Content-Type`.
pub(super) fn empty_body() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    Just(("", Vec::new()))
}

/// Generates a body and its `Content-Type`: empty, an object, a patch, protobuf or random bytes.
pub(super) fn arbitrary_body() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let json = (select(vec!["application/json", "", "application/yaml", "text/plain"]), mutated_objects())
        .prop_map(|(media_type, object)| (media_type, object.to_string().into_bytes()));
    let raw = (select(vec!["application/json", "application/yaml"]), vec(any::<u8>(), 0..60));
    prop_oneof![3 => empty_body(), 6 => json, 3 => patch_bodies(), 2 => protobuf_body(), 1 => raw]
}

/// Generates a patch and its `Content-Type`. The patch may be invalid or of another type than the `Content-Type`.
fn patch_bodies() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let media_types = vec![
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/json-patch+json",
    ];
    let of_object = (select(media_types.clone()), mutated_objects())
        .prop_map(|(it, patch)| (it, patch.to_string().into_bytes()));
    let of_fields = (select(media_types.clone()), json_values())
        .prop_map(|(it, patch)| (it, patch.to_string().into_bytes()));
    let operations = vec(json_patch_operation(), 0..6)
        .prop_map(|it| ("application/json-patch+json", Value::Array(it).to_string().into_bytes()));
    let raw = (select(media_types), vec(any::<u8>(), 0..60));
    prop_oneof![4 => of_object, 2 => of_fields, 4 => operations, 1 => raw]
}

/// Generates an operation of a JSON patch, which may be invalid.
fn json_patch_operation() -> impl Strategy<Value = Value> {
    let pointer = prop_oneof![
        4 => vec(select(FIELD_NAMES), 0..5).prop_map(|it| it.iter().map(|it| format!("/{}", it.replace('/', "~1"))).collect::<String>()),
        2 => select_owned(&["", "/", "/spec/containers/0", "/spec/containers/-", "/spec/containers/99999999999999999999",
            "/metadata/labels/app", "/metadata/namespace", "/metadata/managedFields", "/spec/template/spec/containers/0/image", "~2", "/~"]),
        1 => "[/~0-9a-z-]{0,12}",
    ]
    .boxed();
    let operator = select_owned(&["add", "remove", "replace", "move", "copy", "test", "other"]);
    (operator, pointer.clone(), pointer, json_values()).prop_map(
        |(operator, path, from, value)| json!({"op": operator, "path": path, "from": from, "value": value}),
    )
}

/// Field names in generated JSON objects and patches.
const FIELD_NAMES: &[&str] = &[
    "metadata",
    "name",
    "namespace",
    "generateName",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "uid",
    "resourceVersion",
    "managedFields",
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "spec",
    "status",
    "data",
    "stringData",
    "type",
    "template",
    "selector",
    "matchLabels",
    "matchExpressions",
    "containers",
    "initContainers",
    "image",
    "ports",
    "containerPort",
    "protocol",
    "env",
    "value",
    "valueFrom",
    "volumes",
    "volumeMounts",
    "mountPath",
    "resources",
    "limits",
    "requests",
    "cpu",
    "memory",
    "tolerations",
    "key",
    "operator",
    "effect",
    "affinity",
    "nodeAffinity",
    "updateStrategy",
    "rollingUpdate",
    "maxUnavailable",
    "maxSurge",
    "nodeName",
    "serviceAccountName",
    "conditions",
    "phase",
    "roleRef",
    "subjects",
    "rules",
    "verbs",
    "apiGroups",
    "kind",
    "apiVersion",
    "items",
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
    "k:{\"name\":\"c\"}",
    "f:metadata",
    "fieldsV1",
    "manager",
    "operation",
    "time",
    "deleteOptions",
    "preconditions",
    "target",
    "app",
    "",
];

/// Generates JSON nulls, booleans, numbers and strings.
fn scalar_values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3..200i64).prop_map(Value::from),
        any::<f64>().prop_map(|it| json!(it)),
        select_owned(&[
            "a",
            "b",
            "m",
            "c",
            "default",
            "replace",
            "delete",
            "merge",
            "100m",
            "1Gi",
            "-1",
            "1e99",
            "10%",
            "101%",
            "TCP",
            "Always",
            "RollingUpdate",
            "OnDelete",
            "NoExecute",
            "Exists",
            "2026-01-01T00:00:00Z",
            "ConfigMap",
            "v1",
            "apps/v1",
            "DaemonSet",
            "system:masters",
            "\0",
            "",
        ])
        .prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ]
}

/// Generates JSON values with nested arrays and objects.
fn json_values() -> impl Strategy<Value = Value> {
    scalar_values().prop_recursive(5, 24, 4, |inner| {
        prop_oneof![
            1 => vec(inner.clone(), 0..4).prop_map(Value::Array),
            3 => vec((select(FIELD_NAMES), inner), 0..5).prop_map(json_object),
        ]
    })
}

/// Returns a JSON object with these fields.
fn json_object(fields: Vec<(&'static str, Value)>) -> Value {
    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

/// Generates valid objects with up to two random changes.
fn mutated_objects() -> impl Strategy<Value = Value> {
    let metadata = |name: &str| json!({"name": name, "labels": {"app": "x"}});
    let containers = json!([{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}]}]);
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}});
    let good = vec![
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("m2"), "data": {"k": "v"}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("s2"), "data": {"k": "dg=="}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata("p2"), "spec": {"containers": containers}}),
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata("d"),
            "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}}),
        json!({"apiVersion": "extensions/v1beta1", "kind": "DaemonSet", "metadata": metadata("d2"), "spec": {"template": template}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata("c")}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("sa")}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata("svc"), "spec": {"ports": [{"port": 80}]}}),
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata("q"), "spec": {"hard": {"pods": "5"}}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata("b"),
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}),
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "b"}}),
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata("rb"),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "User", "name": "guest", "apiGroup": "rbac.authorization.k8s.io"}]}),
        json!({"apiVersion": "muster.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": metadata("r2"), "spec": {"selector": {}}}),
        json!({"apiVersion": "muster.dev/v1alpha1", "kind": "DaemonRollout", "metadata": metadata("d"), "spec": {"paused": true}}),
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Foreground"}),
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}),
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"namespace": "b", "verb": "get", "resource": "secrets"}}}),
    ];
    let namespace = prop::option::of(select_owned(&["a", "b", "aa", "", "../b"]));
    let changes = vec((vec(any::<prop::sample::Index>(), 0..5), select(FIELD_NAMES), json_values()), 0..3);
    (select(good), namespace, changes).prop_map(|(mut object, namespace, changes)| {
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = json!(namespace);
        }
        for (way, field, value) in changes {
            change_at_path(&mut object, &way, field, value);
        }
        object
    })
}

/// Follows a path into the JSON value `object`, and changes the value there: an object gets the field `field` with
/// `value`, and any other value is replaced by `value`. Each item of `path` selects a field or item.
fn change_at_path(object: &mut Value, path: &[prop::sample::Index], field: &str, value: Value) {
    match (object, path.split_first()) {
        (Value::Object(fields), Some((at, rest))) if !fields.is_empty() => {
            let at = at.index(fields.len());
            if let Some(inner) = fields.values_mut().nth(at) {
                change_at_path(inner, rest, field, value);
            }
        }
        (Value::Array(items), Some((at, rest))) if !items.is_empty() => {
            let at = at.index(items.len());
            change_at_path(&mut items[at], rest, field, value);
        }
        (Value::Object(fields), None) => drop(fields.insert(field.to_owned(), value)),
        (place, _) => *place = value,
    }
}

/// Generates a protobuf body: mostly `k8s\0` and a `runtime.Unknown` that contains a message with arbitrary fields.
/// Some of these bodies are truncated or have one byte replaced. One body in nine consists of random bytes.
pub(super) fn protobuf_body() -> impl Strategy<Value = (&'static str, Vec<u8>)> {
    let kinds = select(vec![
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
        ("v1", "Pod"),
        ("v1", "Namespace"),
        ("apps/v1", "DaemonSet"),
        ("v1", "Node"),
        ("v1", "ServiceAccount"),
        ("v1", "DeleteOptions"),
        ("policy/v1", "Eviction"),
        ("policy/v1", "PodDisruptionBudget"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
        ("authentication.k8s.io/v1", "TokenRequest"),
        ("v1", "Nonsense"),
        ("", ""),
    ]);
    let whole = (kinds, protobuf_messages()).prop_map(|((api_version, kind), raw)| {
        let type_meta =
            [encode_bytes_field(1, api_version.as_bytes()), encode_bytes_field(2, kind.as_bytes())].concat();
        [b"k8s\0".to_vec(), encode_bytes_field(1, &type_meta), encode_bytes_field(2, &raw)].concat()
    });
    let whole = whole.boxed();
    let broken =
        (whole.clone(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, byte)| {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        });
    let cut = (whole.clone(), any::<prop::sample::Index>())
        .prop_map(|(bytes, at)| bytes[..at.index(bytes.len())].to_vec());
    let raw = vec(any::<u8>(), 0..60);
    let bytes = prop_oneof![5 => whole, 2 => broken, 1 => cut, 1 => raw];
    bytes.prop_map(|it| ("application/vnd.kubernetes.protobuf", it))
}

/// Generates protobuf messages with arbitrary field numbers, wire types and values.
fn protobuf_messages() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        (1..20u64, any::<u64>()).prop_map(|(number, value)| [
            encode_varint(number << 3),
            encode_varint(value)
        ]
        .concat()),
        (1..20u64, "[a-z:/.0-9-]{0,8}")
            .prop_map(|(number, text)| encode_bytes_field(number, text.as_bytes())),
        (1..20u64, vec(any::<u8>(), 0..8)).prop_map(|(number, bytes)| encode_bytes_field(number, &bytes)),
        (1..20u64, any::<[u8; 8]>()).prop_map(|(number, bytes)| [
            encode_varint(number << 3 | 1),
            bytes.to_vec()
        ]
        .concat()),
        (1..20u64, any::<[u8; 4]>()).prop_map(|(number, bytes)| [
            encode_varint(number << 3 | 5),
            bytes.to_vec()
        ]
        .concat()),
        any::<[u8; 3]>().prop_map(|it| it.to_vec()),
    ];
    leaf.prop_recursive(6, 24, 4, |inner| {
        (1..12u64, vec(inner, 0..4)).prop_map(|(number, parts)| encode_bytes_field(number, &parts.concat()))
    })
}

/// Encodes a length-delimited protobuf field with this number.
fn encode_bytes_field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [encode_varint(number << 3 | 2), encode_varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// Encodes a number as a protobuf varint.
fn encode_varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while 0x80 <= value {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// The paths of generated requests have all kinds, also those of the group `muster.dev`.
#[test]
fn all_kinds_are_in_generated_paths() {
    let (groups, plurals) = (group_version_paths(), resource_plurals());
    for path in ["api/v1", "apis/extensions/v1beta1", "apis/muster.dev/v1alpha1"] {
        assert!(groups.iter().any(|it| it == path), "{path}");
    }
    for plural in ["pods", "rolloutpolicies", "clusterrolloutpolicies", "daemonrollouts"] {
        assert!(plurals.contains(&plural), "{plural}");
    }
}
